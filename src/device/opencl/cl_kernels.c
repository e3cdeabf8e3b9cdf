// Kernels of this device: compiling them for the table that devices with work groups share, and
// launching them, generated ones with their words and those written by hand.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

// ---- compiling ---------------------------------------------------------------------------------

static void *build(void *device, const char *source, const char *what, tni_build_kind how,
                   bool *found, tn_status *s, tni_text *why)
{
    tni_cl *cl = device;
    (void)how;  // there is no background to look ahead for, and one way to compile
    *s = TN_OK;
    tni_cl_lock();
    int64_t        before = cl->loaded;
    tni_cl_program p      = tni_cl_build(source, what, s, why);
    *found                = cl->loaded > before;
    tni_cl_unlock();
    return p;
}

static tn_status function(void *device, void *program, const char *name, void **f, tni_text *why)
{
    tni_cl *cl   = device;
    int32_t code = 0;
    tni_cl_lock();
    *f = cl->api.clCreateKernel(program, name, &code);
    tni_cl_unlock();
    return *f ? TN_OK : tni_cl_error(why, name, code);
}

static const tni_compiler compiler = { &tni_dialect_opencl, build, function, NULL };

static tni_compiled_counts counts;

tni_compiled *tni_cl_compiled_new(tni_cl *cl)
{
    tni_compiled_opts o = { .by     = &compiler,
                            .device = cl,
                            .limits = { .threads      = 256,
                                        .shared_bytes = cl->local < 32768 ? (int)cl->local : 32768,
                                        .units        = (int)cl->units },
                            .batch  = cl->batch,
                            .counts = &counts };
    tni_compiled     *t = tni_compiled_new(&o);
    if (t) tni_compiled_doubles(t, cl->fp64);
    return t;
}

tni_compiled *tni_cl_compiled(void *session)
{
    (void)session;
    return tni_cl_get()->compiled;
}

void tni_cl_counts(int64_t *compiled, int64_t *found)
{
    *compiled = atomic_load(&counts.compiled);
    *found    = atomic_load(&counts.found);
}

tn_status tni_cl_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                         bool wait, tni_text *why)
{
    (void)wait;
    return tni_compiled_prepare(tni_cl_compiled(session), n, first, entry, true, why);
}

size_t tni_cl_scratch(void *session, void *entry, const tni_launch *l)
{
    return tni_compiled_scratch(tni_cl_compiled(session), entry, l);
}

// ---- the state ---------------------------------------------------------------------------------

// Zero at first: the failure of a CHECK, and counts that kernels leave at zero. One for the queue.
// Guarded by the lock.
static tni_cl_mem    state;
static const int64_t zeros[4];

static tni_cl_mem state_of(tni_cl *cl)
{
    int32_t code = 0;
    if (state) return state;
    state = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, sizeof zeros, NULL,
                                   &code);
    if (state)
        cl->api.clEnqueueWriteBuffer(cl->queue, state, 1, 0, sizeof zeros, zeros, 0, NULL, NULL);
    return state;
}

tni_buffer_at tni_cl_state(void *session, int ticket)
{
    (void)session, (void)ticket;
    tni_cl_lock();
    tni_buffer_at s = { state_of(tni_cl_get()), 0 };
    tni_cl_unlock();
    return s;
}

// Waits for what can fail, and clears what it left. Locked.
static tn_status read_failure(tni_cl *cl, int64_t fail[2], tni_text *why)
{
    int32_t code = cl->api.clEnqueueReadBuffer(cl->queue, state, 1, 0, 2 * sizeof *fail, fail, 0,
                                               NULL, NULL);
    if (code == TNI_CL_SUCCESS && fail[0])
        code = cl->api.clEnqueueWriteBuffer(cl->queue, state, 1, 0, sizeof zeros, zeros, 0, NULL,
                                            NULL);
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "kernel", code);
}

// ---- kernels written by hand -------------------------------------------------------------------

tni_buffer_at tni_cl_buffer_at(void *session, const void *address)
{
    (void)session;
    tni_cl_lock();
    tni_cl_place p = tni_cl_find(address);
    tni_cl_unlock();
    return (tni_buffer_at){ p.mem, p.offset };
}

tn_status tni_cl_launch_args(const tni_kernel_args *h, int64_t groups, int items, tni_text *why)
{
    tni_cl_launch l = { .cl = tni_cl_get(), .kernel = h->kernel };
    tni_cl_lock();
    for (int i = 0; i < h->count; i++) tni_cl_pass(&l, h->value + h->at[i], h->bytes[i]);
    tn_status s = tni_cl_start(&l, h->what, 1, (size_t[]){ (size_t)groups },
                               (size_t[]){ (size_t)items }, why);
    if (s == TN_OK && h->fail) s = read_failure(l.cl, h->fail, why);
    tni_cl_unlock();
    return s;
}

// ---- generated kernels: locked -----------------------------------------------------------------

// A launch whose offsets count from the start of buffers, and those buffers.
static void set_buffers(tni_launch *l, tni_cl_mem *mem)
{
    const tni_kernel *k = l->kernel;
    int64_t           start[TNI_MAX_BUFFERS];
    for (int i = 0; i < k->nbuffer; i++) {
        tni_cl_place p = tni_cl_find(l->buffer[i]);
        mem[i]         = p.mem;
        start[i]       = p.offset / (int64_t)tni_dtype_size((tn_dtype)k->buffer[i].dtype);
    }
    for (int a = 0; a < k->naccess; a++)
        if (k->access[a].buffer >= 0) l->offset[a] += start[k->access[a].buffer];
}

// Buffers, scratch and state, then the words.
static void pass_all(tni_cl_launch *c, const tni_variant *v, const tni_launch *l, const tni_simt *m,
                     const tni_cl_mem *mem)
{
    int64_t words[TNI_MAX_WORDS];
    int     n               = tni_simt_words(l, m, v->layout, words);
    words[TNI_WORD_SCRATCH] = tni_cl_find(l->scratch).offset;
    for (int i = 0; i < l->kernel->nbuffer + 2; i++) tni_cl_pass(c, &mem[i], sizeof mem[i]);
    for (int i = 0; i < n; i++) tni_cl_pass_long(c, words[i]);
}

// Both kernels of a launch into the queue.
static tn_status start_both(tni_cl *cl, const tni_variant *v, const tni_launch *l,
                            const tni_simt *m, tni_text *why)
{
    tni_cl_mem    mem[TNI_MAX_BUFFERS + 2];
    tni_launch    here = *l;
    tni_cl_launch c    = { .cl = cl, .kernel = v->main };
    int           n    = l->kernel->nbuffer;
    set_buffers(&here, mem);
    mem[n]     = tni_cl_find(l->scratch).mem;
    mem[n + 1] = state_of(cl);
    pass_all(&c, v, &here, m, mem);
    if (m->shared_bytes) tni_cl_pass(&c, NULL, (size_t)m->shared_bytes);
    tn_status s = tni_cl_start(&c, "kernel", 2,
                               (size_t[]){ (size_t)m->grid[0], (size_t)m->grid[1] },
                               (size_t[]){ (size_t)m->block, 1 }, why);
    if (s == TN_OK && v->finish) {
        c = (tni_cl_launch){ .cl = cl, .kernel = v->finish };
        pass_all(&c, v, &here, m, mem);
        s = tni_cl_start(&c, "kernel", 1, (size_t[]){ (size_t)m->finish_grid },
                         (size_t[]){ (size_t)m->class.finish_threads }, why);
    }
    return s;
}

// Whether a place is past 31 bits, counted from the start of its buffer: a plan knows of places in
// its values only, and a value may begin anywhere in a buffer.
static bool is_far(const tni_launch *l)
{
    const tni_kernel *k = l->kernel;
    for (int a = 0; a < k->naccess; a++) {
        int     b     = k->access[a].buffer;
        int64_t reach = l->offset[a] < 0 ? -l->offset[a] : l->offset[a];
        if (b >= 0) reach += tni_cl_find(l->buffer[b]).offset;
        for (int i = 0; i < k->np + k->nr; i++) {
            int64_t s = l->stride[a][i];
            reach += (s < 0 ? -s : s) * (l->size[i] - 1);
        }
        if (reach > INT32_MAX / 2) return true;
    }
    return false;
}

// The words of a program, in a buffer that the queue lets go once the launch is done.
static tni_cl_mem word_buffer(tni_cl *cl, const tni_simt_program *p)
{
    int32_t    code  = 0;
    size_t     bytes = 8 * (size_t)p->count;
    tni_cl_mem mem   = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, bytes,
                                              NULL, &code);
    if (mem) cl->api.clEnqueueWriteBuffer(cl->queue, mem, 1, 0, bytes, p->word, 0, NULL, NULL);
    return mem;
}

static tn_status start_program(tni_cl *cl, tni_cl_kernel kernel, const tni_simt_program *p,
                               const tni_cl_mem mem[TNI_MAX_BUFFERS + 2], int64_t groups,
                               tni_text *why)
{
    tni_cl_launch c     = { .cl = cl, .kernel = kernel };
    tni_cl_mem    words = word_buffer(cl, p);
    if (!words) return tni_cl_error(why, "interpreter", TNI_CL_OUT_OF_RESOURCES);
    for (int i = 0; i < TNI_MAX_BUFFERS + 2; i++) tni_cl_pass(&c, &mem[i], sizeof mem[i]);
    tni_cl_pass(&c, &words, sizeof words);
    tni_cl_pass(&c, NULL, 8 * TNI_INTERPRETER_THREADS);
    tn_status s = tni_cl_start(&c, "interpreter", 1, (size_t[]){ (size_t)groups },
                               (size_t[]){ TNI_INTERPRETER_THREADS }, why);
    cl->api.clReleaseMemObject(words);
    return s;
}

// By the interpreter, whose scratch is its own. Locked.
static tn_status interpret(tni_cl *cl, tni_cl_kernel kernel, const tni_launch *l,
                           tni_simt_program *p, tni_text *why)
{
    tni_cl_mem mem[TNI_MAX_BUFFERS + 2] = { 0 };
    int32_t    code                     = 0;
    size_t     bytes                    = p->scratch_bytes ? (size_t)p->scratch_bytes : 8;
    for (int i = 0; i < l->kernel->nbuffer; i++) mem[i] = tni_cl_find(l->buffer[i]).mem;
    for (int i = l->kernel->nbuffer; i < TNI_MAX_BUFFERS; i++) mem[i] = state_of(cl);
    tni_cl_mem scratch = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, bytes,
                                                NULL, &code);
    if (!scratch) return tni_cl_error(why, "interpreter", code);
    mem[TNI_MAX_BUFFERS]     = scratch;
    mem[TNI_MAX_BUFFERS + 1] = state_of(cl);
    tn_status s              = start_program(cl, kernel, p, mem, p->groups, why);
    if (s == TN_OK && p->finish_groups) {
        tni_simt_program_finish(p);
        s = start_program(cl, kernel, p, mem, p->finish_groups, why);
    }
    cl->api.clReleaseMemObject(scratch);
    return s;
}

// TN_EARG: the interpreter does not take it.
static tn_status launch_interpreted(void *session, const tni_launch *l, tni_text *why)
{
    tni_cl          *cl   = tni_cl_get();
    tni_launch       here = *l;
    tni_cl_mem       mem[TNI_MAX_BUFFERS];
    tni_simt_program p;
    tni_cl_lock();
    set_buffers(&here, mem);
    tni_cl_unlock();
    if (!tni_simt_program_write(&p, &here, (int)cl->units)) return TN_EARG;
    tni_cl_kernel kernel = tni_compiled_interpreter(tni_cl_compiled(session), p.level);
    if (!kernel) return TN_EARG;
    tni_cl_lock();
    tn_status s = interpret(cl, kernel, l, &p, why);
    tni_cl_unlock();
    return s;
}

tn_status tni_cl_launch_kernel(void *session, void *entry, tni_launch *l, tni_text *why)
{
    tni_cl   *cl = tni_cl_get();
    tni_simt  m;
    tn_status s;
    l->fail[0] = l->fail[1] = 0;
    tni_cl_lock();
    bool far = is_far(l);
    tni_cl_unlock();
    tni_compiled      *t = tni_cl_compiled(session);
    const tni_variant *v = tni_compiled_variant(t, entry, l, far, false, &m, &s, why);
    if (!v && s == TN_OK) s = launch_interpreted(session, l, why);
    if (!v && s == TN_EARG) v = tni_compiled_variant(t, entry, l, far, true, &m, &s, why);
    tni_cl_lock();
    if (v) s = start_both(cl, v, l, &m, why);
    if (s == TN_OK && tni_compiled_checks(entry)) s = read_failure(cl, l->fail, why);
    tni_cl_unlock();
    return s;
}
