// Kernels of this device: compiling them for the table that devices with work groups share
// (device/simt/compiled.h), and launching them, be they generated ones with their launch words or
// those of device/simt.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

// ---- compiling ---------------------------------------------------------------------------------

// Builds a program under the lock, since drivers are not trusted to compile in several threads. The
// kind is ignored: this device compiles no text ahead, and in one way only.
static void *build_cl_program(void *device, const char *source, const char *what,
                              tni_build_kind kind, bool *found, tn_status *s, tni_text *why)
{
    tni_cl *cl = device;
    (void)kind;
    *s = TN_OK;
    tni_cl_lock();
    int64_t        before = cl->loaded;
    tni_cl_program p      = tni_cl_build(source, what, s, why);
    *found                = cl->loaded > before;
    tni_cl_unlock();
    return p;
}

// Makes the kernel object of a function of a program. It is kept for the life of the process.
static tn_status create_cl_kernel(void *device, void *program, const char *name, void **f,
                                  tni_text *why)
{
    tni_cl *cl   = device;
    int32_t code = 0;
    tni_cl_lock();
    *f = cl->api.clCreateKernel(program, name, &code);
    tni_cl_unlock();
    return *f ? TN_OK : tni_cl_error(why, name, code);
}

static const tni_compiler compiler = { &tni_dialect_opencl, build_cl_program, create_cl_kernel,
                                       NULL };

static tni_compiled_counts kernel_counts;

// 256 threads a group is what is_capable demands; 32 KiB of local memory is what OpenCL 1.2
// promises, and more would leave fewer groups on a compute unit.
tni_compiled *tni_cl_compiled_new(tni_cl *cl)
{
    tni_compiled_opts o = { .by     = &compiler,
                            .device = cl,
                            .limits = { .threads      = 256,
                                        .shared_bytes = cl->local < 32768 ? (int)cl->local : 32768,
                                        .units        = (int)cl->units },
                            .batch  = cl->batch,
                            .counts = &kernel_counts,
                            .chip   = cl->chip };
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
    *compiled = atomic_load(&kernel_counts.compiled);
    *found    = atomic_load(&kernel_counts.found);
}

// Compiling is synchronous here, so that nothing is left to wait for.
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

// The state that kernels share (simt.h): the failure of a CHECK, and counts that kernels leave at
// zero. One array for the queue, zero at first, made on first use. Guarded by the lock.
static tni_cl_mem    queue_state;
static const int64_t zeros[4];

// The state, made on first use. The write blocks, so that `zeros` need not outlive it. Locked.
static tni_cl_mem queue_state_of(tni_cl *cl)
{
    int32_t code = 0;
    if (queue_state) return queue_state;
    queue_state = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, sizeof zeros,
                                         NULL, &code);
    if (queue_state)
        cl->api.clEnqueueWriteBuffer(cl->queue, queue_state, 1, 0, sizeof zeros, zeros, 0, NULL,
                                     NULL);
    return queue_state;
}

// One state for all tickets: failures are waited for at once, so that two never overlap.
tni_buffer_at tni_cl_state(void *session, int ticket)
{
    (void)session, (void)ticket;
    tni_cl_lock();
    tni_buffer_at s = { queue_state_of(tni_cl_get()), 0 };
    tni_cl_unlock();
    return s;
}

// Waits for a kernel that can fail, reads its failure and clears it for the next one. Locked.
static tn_status read_failure(tni_cl *cl, int64_t fail[2], tni_text *why)
{
    int32_t code = cl->api.clEnqueueReadBuffer(cl->queue, queue_state, 1, 0, 2 * sizeof *fail, fail,
                                               0, NULL, NULL);
    if (code == TNI_CL_SUCCESS && fail[0])
        code = cl->api.clEnqueueWriteBuffer(cl->queue, queue_state, 1, 0, sizeof zeros, zeros, 0,
                                            NULL, NULL);
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "kernel", code);
}

// ---- kernels written by hand -------------------------------------------------------------------

tni_buffer_at tni_cl_buffer_at(void *session, const void *address)
{
    (void)session;
    tni_cl_lock();
    tni_cl_buffer p = tni_cl_find_buffer(address);
    tni_cl_unlock();
    return (tni_buffer_at){ p.mem, p.offset };
}

// Launches a kernel of device/simt whose arguments were collected in h; waits for it only if it can
// fail.
tn_status tni_cl_launch_args(const tni_kernel_args *h, int64_t groups, int items, tni_text *why)
{
    tni_cl_launch l = { .cl = tni_cl_get(), .kernel = h->kernel };
    tni_cl_lock();
    for (int i = 0; i < h->count; i++) tni_cl_set_arg(&l, h->value + h->at[i], h->bytes[i]);
    tn_status s = tni_cl_enqueue(&l, h->what, 1, (size_t[]){ (size_t)groups },
                                 (size_t[]){ (size_t)items }, why);
    if (s == TN_OK && h->fail) s = read_failure(l.cl, h->fail, why);
    tni_cl_unlock();
    return s;
}

// ---- generated kernels: locked -----------------------------------------------------------------

// Finds the buffer objects of a launch, and makes its offsets count from their start: a kernel is
// passed buffers, not addresses.
static void set_buffers(tni_launch *l, tni_cl_mem *mem)
{
    const tni_kernel *k = l->kernel;
    int64_t           start[TNI_MAX_BUFFERS];
    for (int i = 0; i < k->nbuffer; i++) {
        tni_cl_buffer p = tni_cl_find_buffer(l->buffer[i]);
        mem[i]          = p.mem;
        start[i]        = p.offset / (int64_t)tni_dtype_size((tn_dtype)k->buffer[i].dtype);
    }
    for (int a = 0; a < k->naccess; a++)
        if (k->access[a].buffer >= 0) l->offset[a] += start[k->access[a].buffer];
}

// Sets the arguments that both kernels of a launch share: buffers, scratch, state, then the launch
// words.
static void pass_arguments(tni_cl_launch *c, const tni_variant *v, const tni_launch *l,
                           const tni_simt *m, const tni_cl_mem *mem)
{
    int64_t words[TNI_MAX_WORDS];
    int     n               = tni_simt_words(l, m, v->layout, words);
    words[TNI_WORD_SCRATCH] = tni_cl_find_buffer(l->scratch).offset;
    for (int i = 0; i < l->kernel->nbuffer + 2; i++) tni_cl_set_arg(c, &mem[i], sizeof mem[i]);
    for (int i = 0; i < n; i++) tni_cl_set_long(c, words[i]);
}

// Enqueues the kernel of a launch and, if it has one, its finish kernel, with the same arguments.
// The queue is in order, so that the finish sees all partial results. Locked.
static tn_status start_kernels(tni_cl *cl, const tni_variant *v, const tni_launch *l,
                               const tni_simt *m, tni_text *why)
{
    tni_cl_mem    mem[TNI_MAX_BUFFERS + 2];
    tni_launch    here = *l;
    tni_cl_launch c    = { .cl = cl, .kernel = v->main };
    int           n    = l->kernel->nbuffer;
    set_buffers(&here, mem);
    mem[n]     = tni_cl_find_buffer(l->scratch).mem;
    mem[n + 1] = queue_state_of(cl);
    pass_arguments(&c, v, &here, m, mem);
    if (m->shared_bytes) tni_cl_set_arg(&c, NULL, (size_t)m->shared_bytes);
    tn_status s = tni_cl_enqueue(&c, "kernel", 2,
                                 (size_t[]){ (size_t)m->grid[0], (size_t)m->grid[1] },
                                 (size_t[]){ (size_t)m->block, 1 }, why);
    if (s == TN_OK && v->finish) {
        c = (tni_cl_launch){ .cl = cl, .kernel = v->finish };
        pass_arguments(&c, v, &here, m, mem);
        s = tni_cl_enqueue(&c, "kernel", 1, (size_t[]){ (size_t)m->finish_grid },
                           (size_t[]){ (size_t)m->class.finish_threads }, why);
    }
    return s;
}

// Whether an index passes 31 bits when counted from the start of its buffer object: a plan knows
// indices within values only, and a value may begin anywhere in a buffer. Half of INT32_MAX is the
// limit, since the text adds two such indices.
static bool needs_wide_indices(const tni_launch *l)
{
    const tni_kernel *k = l->kernel;
    for (int a = 0; a < k->naccess; a++) {
        int     b     = k->access[a].buffer;
        int64_t reach = l->offset[a] < 0 ? -l->offset[a] : l->offset[a];
        if (b >= 0) reach += tni_cl_find_buffer(l->buffer[b]).offset;
        for (int i = 0; i < k->np + k->nr; i++) {
            int64_t s = l->stride[a][i];
            reach += (s < 0 ? -s : s) * (l->size[i] - 1);
        }
        if (reach > INT32_MAX / 2) return true;
    }
    return false;
}

// Makes a buffer of the program's words, in which the interpreter reads them as constants. The
// queue releases it when the launch is done: OpenCL counts the reference.
static tni_cl_mem word_buffer(tni_cl *cl, const tni_simt_program *p)
{
    int32_t    code  = 0;
    size_t     bytes = 8 * (size_t)p->count;
    tni_cl_mem mem   = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, bytes,
                                              NULL, &code);
    if (mem) cl->api.clEnqueueWriteBuffer(cl->queue, mem, 1, 0, bytes, p->word, 0, NULL, NULL);
    return mem;
}

// Enqueues the interpreter on a program. Its arguments: all buffers it could have, scratch, state,
// the words, and 8 bytes of local memory for each thread.
static tn_status start_program(tni_cl *cl, tni_cl_kernel kernel, const tni_simt_program *p,
                               const tni_cl_mem mem[TNI_MAX_BUFFERS + 2], int64_t groups,
                               tni_text *why)
{
    tni_cl_launch c     = { .cl = cl, .kernel = kernel };
    tni_cl_mem    words = word_buffer(cl, p);
    if (!words) return tni_cl_error(why, "interpreter", TNI_CL_OUT_OF_RESOURCES);
    for (int i = 0; i < TNI_MAX_BUFFERS + 2; i++) tni_cl_set_arg(&c, &mem[i], sizeof mem[i]);
    tni_cl_set_arg(&c, &words, sizeof words);
    tni_cl_set_arg(&c, NULL, 8 * TNI_INTERPRETER_THREADS);
    tn_status s = tni_cl_enqueue(&c, "interpreter", 1, (size_t[]){ (size_t)groups },
                                 (size_t[]){ TNI_INTERPRETER_THREADS }, why);
    cl->api.clReleaseMemObject(words);
    return s;
}

// Runs a kernel by the interpreter, main stage and finish. Scratch is allocated for this launch,
// since the interpreter splits the work differently from the compiled kernel that the plan asked
// scratch for. Buffer arguments that the kernel does not have are set to the state: OpenCL rejects
// NULL. Locked.
static tn_status launch_program(tni_cl *cl, tni_cl_kernel kernel, const tni_launch *l,
                                tni_simt_program *p, tni_text *why)
{
    tni_cl_mem mem[TNI_MAX_BUFFERS + 2] = { 0 };
    int32_t    code                     = 0;
    size_t     bytes                    = p->scratch_bytes ? (size_t)p->scratch_bytes : 8;
    for (int i = 0; i < l->kernel->nbuffer; i++) mem[i] = tni_cl_find_buffer(l->buffer[i]).mem;
    for (int i = l->kernel->nbuffer; i < TNI_MAX_BUFFERS; i++) mem[i] = queue_state_of(cl);
    tni_cl_mem scratch = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, bytes,
                                                NULL, &code);
    if (!scratch) return tni_cl_error(why, "interpreter", code);
    mem[TNI_MAX_BUFFERS]     = scratch;
    mem[TNI_MAX_BUFFERS + 1] = queue_state_of(cl);
    tn_status s              = start_program(cl, kernel, p, mem, p->groups, why);
    if (s == TN_OK && p->finish_groups) {
        tni_simt_program_finish(p);
        s = start_program(cl, kernel, p, mem, p->finish_groups, why);
    }
    cl->api.clReleaseMemObject(scratch);
    return s;
}

// Runs a kernel by the interpreter while it is not compiled. TN_EARG: the interpreter does not take
// it (too large a program), so that it has to be compiled now.
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
    tn_status s = launch_program(cl, kernel, l, &p, why);
    tni_cl_unlock();
    return s;
}

// Runs a fused kernel: the compiled variant for this launch if there is one, else the interpreter,
// else the variant after waiting for its compiler. Kernels with CHECKs are waited for.
tn_status tni_cl_launch_kernel(void *session, void *entry, tni_launch *l, tni_text *why)
{
    tni_cl   *cl = tni_cl_get();
    tni_simt  m;
    tn_status s;
    l->fail[0] = l->fail[1] = 0;
    tni_cl_lock();
    bool far = needs_wide_indices(l);
    tni_cl_unlock();
    tni_compiled      *t = tni_cl_compiled(session);
    const tni_variant *v = tni_compiled_variant(t, entry, l, far, false, &m, &s, why);
    if (!v && s == TN_OK) s = launch_interpreted(session, l, why);
    if (!v && s == TN_EARG) v = tni_compiled_variant(t, entry, l, far, true, &m, &s, why);
    tni_cl_lock();
    if (v) s = start_kernels(cl, v, l, &m, why);
    if (s == TN_OK && tni_compiled_checks(entry)) s = read_failure(cl, l->fail, why);
    tni_cl_unlock();
    return s;
}
