// Kernels on the GPU: one entry for each kernel the process has seen, and under it one compiled
// variant for each class of shape it was launched with.
#include "base/hash.h"
#include "device/cuda/gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A kernel compiled for one class of shapes. Complete before it is linked into its entry, and only
// `raised` changes from then on.
typedef struct variant variant;
struct variant {
    tni_simt_class class;
    tni_cufunction main, finish;  // finish: NULL where the main function does it all
    int            raised;        // dynamic shared memory that main may take
    variant       *next;
};

enum { MARKS = TNI_AXES + TNI_MOST_ACCESS * (TNI_AXES + 2) };

// All that a shape depends on besides the kernel, as numbers: sizes, strides, and how places are
// aligned. Equal marks, equal shape.
typedef struct {
    int     count;
    int64_t mark[MARKS];
} marks;

// A kernel, by its key. It and its variants live until the process ends. Since most launches are like
// the one before, the shape of the last is kept with its marks.
typedef struct entry entry;
struct entry {
    uint64_t   hash;
    size_t     key_bytes;
    char      *key;
    tni_kernel kernel;
    bool       checks;  // it can fail on an index
    variant   *variants;
    marks      last;
    tni_simt   shape;
    entry     *next;
};

enum { SLOTS = 1024 };

// All entries; the lock is held while they are searched or added to.
static struct {
    pthread_mutex_t lock;
    entry          *slot[SLOTS];
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

// ---- entries -----------------------------------------------------------------------------------

static bool has_checks(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_CHECK) return true;
    return false;
}

static entry *new_entry(const tni_kernel *k, uint64_t hash, char *key, size_t bytes)
{
    entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->hash                  = hash;
    e->key                   = key;
    e->key_bytes             = bytes;
    e->kernel                = *k;
    e->checks                = has_checks(k);
    e->next                  = table.slot[hash % SLOTS];
    table.slot[hash % SLOTS] = e;
    return e;
}

// The entry of a kernel, found or made; NULL when memory is out.
static entry *entry_of(const tni_kernel *k)
{
    size_t bytes = tni_kernel_key(k, NULL, 0);
    char  *key   = malloc(bytes);
    if (!key) return NULL;
    tni_kernel_key(k, key, bytes);
    uint64_t hash = tni_hash(key, bytes);
    for (entry *e = table.slot[hash % SLOTS]; e; e = e->next) {
        if (e->hash != hash || e->key_bytes != bytes || memcmp(e->key, key, bytes)) continue;
        free(key);
        return e;
    }
    entry *e = new_entry(k, hash, key, bytes);
    if (!e) free(key);
    return e;
}

static variant *variant_of(entry *e, const tni_simt_class *c)
{
    for (variant *v = e->variants; v; v = v->next)
        if (!memcmp(&v->class, c, sizeof *c)) return v;
    return NULL;
}

// ---- compiling ---------------------------------------------------------------------------------

// Kernels that have to be compiled, as the items of one program.
typedef struct {
    int            n;
    entry        **of;
    variant      **made;
    tni_emit_item *item;
    char (*name)[TNI_KERNEL_NAME];
} batch;

static bool batch_open(batch *b, int room)
{
    *b      = (batch){ 0 };
    b->of   = calloc((size_t)room, sizeof *b->of);
    b->made = calloc((size_t)room, sizeof *b->made);
    b->item = calloc((size_t)room, sizeof *b->item);
    b->name = calloc((size_t)room, sizeof *b->name);
    return b->of && b->made && b->item && b->name;
}

// What was not linked into an entry is freed.
static void batch_close(batch *b)
{
    for (int i = 0; b->made && i < b->n; i++) free(b->made[i]);
    free(b->of);
    free(b->made);
    free(b->item);
    free(b->name);
}

// Adds a kernel, unless it is there or compiled already. False when memory is out.
static bool batch_add(batch *b, entry *e, const tni_simt_class *c)
{
    if (variant_of(e, c)) return true;
    for (int i = 0; i < b->n; i++)
        if (b->of[i] == e && !memcmp(&b->made[i]->class, c, sizeof *c)) return true;
    variant *v = calloc(1, sizeof *v);
    if (!v) return false;
    int i      = b->n++;
    v->class   = *c;
    b->made[i] = v;
    b->of[i]   = e;
    snprintf(b->name[i], sizeof b->name[i], "k%d", i);
    b->item[i] = (tni_emit_item){ .kernel = &e->kernel, .name = b->name[i], .opts = &v->class };
    return true;
}

static int find_functions(const tni_gpu *g, tni_cumodule m, batch *b)
{
    for (int i = 0; i < b->n; i++) {
        char finish[TNI_KERNEL_NAME + 8];
        int  error = g->cu->module_function(&b->made[i]->main, m, b->name[i]);
        if (error) return error;
        if (b->made[i]->class.finish != TNI_FINISH_KERNEL) continue;
        snprintf(finish, sizeof finish, "%s_finish", b->name[i]);
        error = g->cu->module_function(&b->made[i]->finish, m, finish);
        if (error) return error;
    }
    return TNI_CU_OK;
}

static void link_variants(batch *b)
{
    for (int i = 0; i < b->n; i++) {
        b->made[i]->next   = b->of[i]->variants;
        b->of[i]->variants = b->made[i];
        b->made[i]         = NULL;
    }
}

tn_status tni_cuda_cubin(int n, const tni_emit_item *item, const char *chip, bool look,
                         tni_cubin *c, tni_text *why)
{
    tni_heap heap = tni_heap_default();
    char    *text = tni_source(&heap, &tni_dialect_cuda, tni_emit_simt, n, item, false);
    *c            = (tni_cubin){ 0 };
    if (!text) {
        tni_text_add(why, "out of memory for kernels");
        return TN_EMEM;
    }
    tn_status s = tni_cubin_make(c, text, chip, look, why);
    tni_free(&heap, text);
    return s;
}

// Compiles and loads all of a batch in one program.
static tn_status batch_compile(const tni_gpu *g, batch *b, tni_text *why)
{
    tni_cubin    c;
    tni_cumodule m = NULL;
    if (!b->n) return TN_OK;
    tn_status s = tni_cuda_cubin(b->n, b->item, g->chip, false, &c, why);
    if (s == TN_OK) {
        int error = g->cu->module_load(&m, c.image);
        if (!error) error = find_functions(g, m, b);
        s = tni_gpu_status(g->cu, error, "loading kernels", why);
    }
    if (s == TN_OK) link_variants(b);
    tni_cubin_free(&c);
    return s;
}

// ---- the contract ------------------------------------------------------------------------------

static tn_status prepare(const tni_gpu *g, batch *b, int n, const tni_launch *const *first,
                         void **out, tni_text *why)
{
    for (int i = 0; i < n; i++) {
        const char *reason = "";
        if (!tni_can_emit(first[i]->kernel, &reason)) {
            tni_text_add(why, "cuda: a kernel cannot be written: %s", reason);
            return TN_EDEVICE;
        }
        tni_simt shape = tni_simt_choose(first[i], &g->limits);
        entry   *e     = entry_of(first[i]->kernel);
        if (!e || !batch_add(b, e, &shape.class)) {
            tni_text_add(why, "cuda: out of memory for kernels");
            return TN_EMEM;
        }
        out[i] = e;
    }
    return batch_compile(g, b, why);
}

tn_status tni_cuda_prepare(void *seat, int n, const tni_launch *const *first, void **out,
                           tni_text *why)
{
    tni_cuda      *c = seat;
    const tni_gpu *g = c->gpu;
    batch          b;
    tn_status      s = TN_EMEM;
    tni_cuda_enter(c);
    pthread_mutex_lock(&table.lock);
    if (batch_open(&b, n)) s = prepare(g, &b, n, first, out, why);
    else tni_text_add(why, "cuda: out of memory for kernels");
    batch_close(&b);
    pthread_mutex_unlock(&table.lock);
    return s;
}

static void take_marks(const tni_launch *l, marks *m)
{
    const tni_kernel *k = l->kernel;
    int               n = k->np + k->nr, at = 0;
    for (int i = 0; i < n; i++) m->mark[at++] = l->size[i];
    for (int a = 0; a < k->naccess; a++) {
        int     b    = k->access[a].buffer;
        int64_t size = b < 0 ? 1 : (int64_t)tni_dtype_size((tn_dtype)k->buffer[b].dtype);
        int64_t base = b < 0 ? 0 : (int64_t)((uintptr_t)l->buffer[b] % 64);
        for (int i = 0; i < n; i++) m->mark[at++] = l->stride[a][i];
        m->mark[at++] = l->stride[a][TNI_AXES];
        m->mark[at++] = (base + l->offset[a] % 64 * size) % 64;
    }
    m->count = at;
}

// The shape of a launch. The lock is held.
static tni_simt shape_of(const tni_gpu *g, entry *e, const tni_launch *l)
{
    marks now;
    take_marks(l, &now);
    if (now.count != e->last.count ||
        memcmp(now.mark, e->last.mark, (size_t)now.count * sizeof *now.mark)) {
        e->shape = tni_simt_choose(l, &g->limits);
        e->last  = now;
    }
    return e->shape;
}

size_t tni_cuda_room(void *seat, void *at, const tni_launch *l)
{
    const tni_cuda *c = seat;
    pthread_mutex_lock(&table.lock);
    size_t bytes = (size_t)shape_of(c->gpu, at, l).scratch_bytes;
    pthread_mutex_unlock(&table.lock);
    return bytes;
}

// The variant for a launch and its shape; compiled now if its addresses ask for one that no launch
// before had.
static variant *variant_for(const tni_gpu *g, entry *e, const tni_launch *l, tni_simt *m,
                            tni_text *why)
{
    batch b;
    pthread_mutex_lock(&table.lock);
    *m         = shape_of(g, e, l);
    variant *v = variant_of(e, &m->class);
    if (!v) {
        if (batch_open(&b, 1) && batch_add(&b, e, &m->class) && batch_compile(g, &b, why) == TN_OK)
            v = variant_of(e, &m->class);
        batch_close(&b);
    }
    pthread_mutex_unlock(&table.lock);
    if (!v && !*why->s) tni_text_add(why, "cuda: out of memory for a kernel");
    return v;
}

// More shared memory than every kernel may take has to be asked for.
static int raise_shared(const tni_gpu *g, variant *v, int bytes)
{
    enum { FREE = 48 * 1024 };
    if (bytes <= FREE || bytes <= v->raised) return TNI_CU_OK;
    v->raised = bytes;
    return g->cu->function_set(v->main, TNI_CU_FUNCTION_SHARED, bytes);
}

static int start(const tni_cuda *c, variant *v, const tni_simt *m, const tni_launch *l)
{
    const tni_gpu *g = c->gpu;
    char           args[TNI_SIMT_BYTES];
    void          *list[] = { args };
    int            error  = raise_shared(g, v, m->shared_bytes);
    tni_simt_pack(l, m, (const void *)(uintptr_t)c->state, args);
    if (!error)
        error = g->cu->launch(v->main, (unsigned)m->grid[0], (unsigned)m->grid[1], 1,
                              (unsigned)m->block, 1, 1, (unsigned)m->shared_bytes, c->stream, list,
                              NULL);
    if (!error && v->finish)
        error = g->cu->launch(v->finish, (unsigned)m->finish_grid, 1, 1, m->class.finish_threads, 1,
                              1, 0, c->stream, list, NULL);
    return error;
}

// Waits for a kernel that can fail on an index, and takes the failure, if there is one.
static int take_failure(const tni_cuda *c, tni_launch *l)
{
    enum { BYTES = sizeof l->fail };
    const tni_driver *cu    = c->gpu->cu;
    int               error = cu->copy_out(c->seen, c->state, BYTES, c->stream);
    if (!error) error = cu->stream_wait(c->stream);
    if (error) return error;
    memcpy(l->fail, c->seen, BYTES);
    return l->fail[0] ? cu->set8(c->state, 0, BYTES, c->stream) : TNI_CU_OK;
}

tn_status tni_cuda_launch(void *seat, void *at, tni_launch *l, tni_text *why)
{
    tni_cuda *c = seat;
    entry    *e = at;
    tni_simt  m;
    tni_cuda_enter(c);
    variant *v = variant_for(c->gpu, e, l, &m, why);
    if (!v) return TN_EDEVICE;
    int error = start(c, v, &m, l);
    if (!error && e->checks) error = take_failure(c, l);
    return tni_cuda_status(c, error, "running a kernel", why);
}
