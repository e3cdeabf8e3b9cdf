// Generated kernels: compiled in programs of up to 64, kept by key until the process ends, launched
// with their words.
#include "device/opencl/opencl.h"

#include "base/hash.h"
#include "kernel/simt.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A kernel compiled for one class of shapes.
typedef struct variant variant;
struct variant {
    tni_simt_class class;
    tni_cl_kernel main, finish;  // finish is NULL where there is none
    variant      *next;
};

// A kernel of the IR and what was compiled of it so far: what prepare hands out. Found by its key
// as bytes; never freed. Guarded by the lock.
typedef struct entry entry;
struct entry {
    tni_kernel kernel;
    char      *key;
    size_t     key_bytes;
    uint64_t   hash;
    variant   *variants;
    entry     *next;
};

enum { BINS = 1024 };
static entry *bins[BINS];

// Zero at first: the failure of a CHECK, and counts that kernels leave at zero. One for the queue.
static tni_cl_mem state;
enum { STATE = 4 * sizeof(int64_t) };

static tni_simt_limits limits_of(const tni_cl *cl)
{
    return (tni_simt_limits){ .threads      = 256,
                              .shared_bytes = cl->local < 32768 ? (int)cl->local : 32768,
                              .units        = (int)cl->units };
}

// ---- entries: locked ---------------------------------------------------------------------------

static entry *new_entry(const tni_kernel *k, const char *key, size_t bytes, uint64_t hash)
{
    entry *e = calloc(1, sizeof *e);
    char  *s = malloc(bytes);
    if (!e || !s) {
        free(e);
        free(s);
        return NULL;
    }
    memcpy(s, key, bytes);
    *e = (entry){
        .kernel = *k, .key = s, .key_bytes = bytes, .hash = hash, .next = bins[hash % BINS]
    };
    bins[hash % BINS] = e;
    return e;
}

// The entry of a kernel, made if need be; NULL where memory is out.
static entry *entry_of(const tni_kernel *k)
{
    char     key[8192];
    size_t   bytes = tni_kernel_key(k, key, sizeof key);
    uint64_t hash  = tni_hash(key, bytes);
    for (entry *e = bins[hash % BINS]; e; e = e->next)
        if (e->hash == hash && e->key_bytes == bytes && !memcmp(e->key, key, bytes)) return e;
    return bytes <= sizeof key ? new_entry(k, key, bytes, hash) : NULL;
}

static variant *variant_of(entry *e, const tni_simt_class *class)
{
    for (variant *v = e->variants; v; v = v->next)
        if (!memcmp(&v->class, class, sizeof *class)) return v;
    return NULL;
}

// ---- compiling: locked -------------------------------------------------------------------------

// A kernel to be compiled.
typedef struct {
    entry   *e;
    tni_simt m;
    char     name[TNI_KERNEL_NAME];
} order;

static tn_status out_of_memory(tni_text *why)
{
    *why = (tni_text){ 0 };
    tni_text_add(why, "opencl: out of memory for kernels");
    return TN_EMEM;
}

static tn_status add_variant(tni_cl *cl, tni_cl_program p, const order *o, tni_text *why)
{
    char     finish[TNI_KERNEL_NAME + 8];
    int32_t  code = 0;
    variant *v    = calloc(1, sizeof *v);
    if (!v) return out_of_memory(why);
    snprintf(finish, sizeof finish, "%s_finish", o->name);
    v->class = o->m.class;
    v->main  = cl->api.clCreateKernel(p, o->name, &code);
    if (v->main && o->m.finish_grid) v->finish = cl->api.clCreateKernel(p, finish, &code);
    if (v->main && (v->finish || !o->m.finish_grid)) {
        v->next        = o->e->variants;
        o->e->variants = v;
        return TN_OK;
    }
    if (v->main) cl->api.clReleaseKernel(v->main);
    free(v);
    return tni_cl_error(why, "kernel", code);
}

static tn_status compile(tni_cl *cl, int n, order *o, tni_text *why)
{
    tni_heap       heap = tni_heap_default();
    tni_emit_item *item = calloc((size_t)n, sizeof *item);
    tn_status      s    = TN_OK;
    for (int i = 0; item && i < n; i++) {
        snprintf(o[i].name, sizeof o[i].name, "k%d", i);
        item[i] = (tni_emit_item){ &o[i].e->kernel, o[i].name, &o[i].m.class };
    }
    char *text = item ? tni_source(&heap, &tni_dialect_opencl, tni_emit_simt, n, item, !cl->fp64)
                      : NULL;
    free(item);
    if (!text) return out_of_memory(why);
    tni_cl_program p = tni_cl_build(text, "kernel", &s, why);
    tni_free(&heap, text);
    for (int i = 0; p && s == TN_OK && i < n; i++) s = add_variant(cl, p, &o[i], why);
    if (p) cl->api.clReleaseProgram(p);  // its kernels hold it
    return s;
}

static bool uses_double(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].dtype == TN_F64) return true;
    return false;
}

static tn_status can_run(const tni_cl *cl, const tni_kernel *k, tni_text *why)
{
    const char *reason = "";
    if (!cl->fp64 && uses_double(k)) {
        tni_text_add(why, "the opencl device has no f64");
        return TN_EDEVICE;
    }
    if (tni_can_emit(k, &reason)) return TN_OK;
    tni_text_add(why, "opencl: %s", reason);
    return TN_EDEVICE;
}

static bool is_ordered(const order *o, int n, const entry *e, const tni_simt_class *class)
{
    for (int i = 0; i < n; i++)
        if (o[i].e == e && !memcmp(&o[i].m.class, class, sizeof *class)) return true;
    return false;
}

// Gives each launch its entry, and compiles what is cold, in programs of so many kernels.
static tn_status prepare(tni_cl *cl, int n, const tni_launch *const *first, void **to, order *o,
                         tni_text *why)
{
    tni_simt_limits limits = limits_of(cl);
    tn_status       s      = TN_OK;
    int             cold   = 0;
    for (int i = 0; s == TN_OK && i < n; i++) {
        entry *e = entry_of(first[i]->kernel);
        if (!e) return out_of_memory(why);
        to[i]   = e;
        order x = { .e = e, .m = tni_simt_choose(first[i], &limits) };
        s       = can_run(cl, &e->kernel, why);
        if (s == TN_OK && !variant_of(e, &x.m.class) && !is_ordered(o, cold, e, &x.m.class))
            o[cold++] = x;
        if (s == TN_OK && (cold == cl->batch || (i + 1 == n && cold))) {
            s    = compile(cl, cold, o, why);
            cold = 0;
        }
    }
    return s;
}

tn_status tni_cl_prepare(void *seat, int n, const tni_launch *const *first, void **to,
                         tni_text *why)
{
    (void)seat;
    tni_cl *cl = tni_cl_get();
    order  *o  = calloc((size_t)(n < cl->batch ? n : cl->batch), sizeof *o);
    if (!o && n) return out_of_memory(why);
    tni_cl_lock();
    tn_status s = prepare(cl, n, first, to, o, why);
    tni_cl_unlock();
    free(o);
    return s;
}

// ---- launching ---------------------------------------------------------------------------------

size_t tni_cl_room(void *seat, void *e, const tni_launch *l)
{
    (void)seat;
    (void)e;
    tni_simt_limits limits = limits_of(tni_cl_get());
    return (size_t)tni_simt_choose(l, &limits).scratch_bytes;
}

static tni_cl_mem state_of(tni_cl_launch *c)
{
    static const int64_t zeros[4];
    if (state) return state;
    state = c->cl->api.clCreateBuffer(c->cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, STATE, NULL,
                                      &c->code);
    if (state)
        c->code = c->cl->api.clEnqueueWriteBuffer(c->cl->queue, state, 1, 0, STATE, zeros, 0, NULL,
                                                  NULL);
    return state;
}

// A launch whose offsets count from the start of buffers, and those buffers.
static void set_buffers(tni_launch *l, tni_cl_mem *mem)
{
    const tni_kernel *k = l->kernel;
    int64_t           start[TNI_MOST_BUFFERS];
    for (int i = 0; i < k->nbuffer; i++) {
        tni_cl_place p = tni_cl_find(l->buffer[i]);
        mem[i]         = p.mem;
        start[i]       = p.offset / (int64_t)tni_dtype_size((tn_dtype)k->buffer[i].dtype);
    }
    for (int a = 0; a < k->naccess; a++)
        if (k->access[a].buffer >= 0) l->offset[a] += start[k->access[a].buffer];
}

// Buffers, scratch and state, then the words.
static void pass_all(tni_cl_launch *c, const tni_launch *l, const tni_simt *m,
                     const tni_cl_mem *mem)
{
    int64_t words[TNI_MOST_WORDS];
    int     n               = tni_simt_words(l, m, words);
    words[TNI_WORD_SCRATCH] = tni_cl_find(l->scratch).offset;
    for (int i = 0; i < l->kernel->nbuffer + 2; i++) tni_cl_pass(c, &mem[i], sizeof mem[i]);
    for (int i = 0; i < n; i++) tni_cl_pass_long(c, words[i]);
}

// Both kernels of a launch into the queue.
static tn_status start_both(tni_cl *cl, const variant *v, const tni_launch *l, const tni_simt *m,
                            tni_text *why)
{
    tni_cl_mem    mem[TNI_MOST_BUFFERS + 2];
    tni_launch    here = *l;
    tni_cl_launch c    = { .cl = cl, .kernel = v->main };
    int           n    = l->kernel->nbuffer;
    set_buffers(&here, mem);
    mem[n]     = tni_cl_find(l->scratch).mem;
    mem[n + 1] = state_of(&c);
    pass_all(&c, &here, m, mem);
    if (m->shared_bytes) tni_cl_pass(&c, NULL, (size_t)m->shared_bytes);
    tn_status s = tni_cl_start(&c, "kernel", 2,
                               (size_t[]){ (size_t)m->grid[0], (size_t)m->grid[1] },
                               (size_t[]){ (size_t)m->block, 1 }, why);
    if (s == TN_OK && v->finish) {
        c = (tni_cl_launch){ .cl = cl, .kernel = v->finish };
        pass_all(&c, &here, m, mem);
        s = tni_cl_start(&c, "kernel", 1, (size_t[]){ (size_t)m->finish_grid },
                         (size_t[]){ (size_t)m->class.finish_threads }, why);
    }
    return s;
}

static bool has_check(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_CHECK) return true;
    return false;
}

// Waits for a launch that can fail, and clears what it left.
static tn_status read_failure(tni_cl *cl, tni_launch *l, tni_text *why)
{
    static const int64_t zeros[4];
    int32_t code = cl->api.clEnqueueReadBuffer(cl->queue, state, 1, 0, sizeof l->fail, l->fail, 0,
                                               NULL, NULL);
    if (code == TNI_CL_SUCCESS && l->fail[0])
        code = cl->api.clEnqueueWriteBuffer(cl->queue, state, 1, 0, STATE, zeros, 0, NULL, NULL);
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "kernel", code);
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

static tn_status launch(tni_cl *cl, entry *e, tni_launch *l, tni_text *why)
{
    tni_simt_limits limits = limits_of(cl);
    order           o      = { .e = e, .m = tni_simt_choose(l, &limits) };
    tn_status       s      = TN_OK;
    if (is_far(l)) o.m.class.wide = 1;
    if (!variant_of(e, &o.m.class)) s = compile(cl, 1, &o, why);
    if (s == TN_OK) s = start_both(cl, variant_of(e, &o.m.class), l, &o.m, why);
    if (s == TN_OK && has_check(l->kernel)) s = read_failure(cl, l, why);
    return s;
}

tn_status tni_cl_launch_kernel(void *seat, void *e, tni_launch *l, tni_text *why)
{
    (void)seat;
    l->fail[0] = l->fail[1] = 0;
    tni_cl_lock();
    tn_status s = launch(tni_cl_get(), e, l, why);
    tni_cl_unlock();
    return s;
}
