// Products with a matrix of 2:4 sparsity by cuSPARSELt. D = A B with A packed: W (out, in), of
// which the library reads half, times the transpose of x (tokens, in), gives the result (tokens,
// out) by columns. What it needs for products of one key is built once and kept until the process
// ends.
//
// Of x (1024, 4096) and w (11008, 4096), packed, for tn_linear:
//
//   W   (11008, 4096) by rows, of which memory has 11008 x 2048 elements, and the place of each among its four in two bits
//   X   (1024, 4096) by rows, read transposed
//   Y   (11008, 1024) by columns, which is (1024, 11008) by rows
//
// What is said to the library is what PyTorch says to it, so that it is a form that others rely on,
// too. Its objects point to each other and stay where they are as long as a plan does; a plan that
// ends takes the description of its algorithm along, so that another algorithm is planned with
// objects that are all new.
//
// It is faster for many tokens only, and not by its default algorithm: in bf16 on an H200 1.3 to
// 1.7 times from 1,024 tokens and weights of 4,096 x 4,096 on, 0.4 to 0.7 times with 16 tokens. So
// all algorithms are timed beside the plain product.
#include "device/cuda/product_pruned.h"

#include "device/cuda/choice.h"
#include "device/cuda/cusparselt.h"
#include "device/cuda/gpu.h"
#include "device/cuda/library_log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ALIGN: of addresses and of columns, in bytes, that every algorithm takes. ALGORITHMS: those
// timed, at most; version 0.8 has 21.
enum { A, B, D, ALIGN = 16, GPUS = 64, ALGORITHMS = 64 };

// All that a choice depends on. The words before `type` do not concern other processes.
typedef struct {
    int64_t device, always;
    int64_t type, rows, cols, depth, ldb, ldd, workspace;
} pruned_key;

enum { WORDS = sizeof(pruned_key) / sizeof(int64_t), OWN_WORDS = 2 };

// The objects of a product: W, x and the result as matrices, the product, its algorithm, and the
// plan.
enum { W, X, Y, PRODUCT, ALGO, PLAN, OBJECTS };

// How products of one key are done. Invariant: the first `made` objects are matrices of the
// library's, and object[PLAN] is the plan of algorithm `planned`, -1: there is none.
typedef struct pruned_plan pruned_plan;
struct pruned_plan {
    pruned_plan         *next;
    pruned_key           key;
    tni_sparselt_object *object;  // OBJECTS of them; NULL: the library cannot do it
    int                  made, algorithms, planned;
    int                  chosen;  // -1: the plain product is faster
    bool                 settled;
};

// All plans of the process, and the library's handle for each GPU. The lock covers everything, also
// the timing.
static struct {
    pthread_mutex_t      lock;
    pruned_plan         *plans;
    tni_sparselt_object *handle[GPUS];
    bool                 failed[GPUS];  // it does not serve this GPU
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

// A product that is being worked on. The lock is held.
typedef struct {
    const tni_cusparselt  *lt;
    const void            *h;
    tni_product           *p;
    const tni_product_env *at;
    pruned_plan           *plan;
} job;

// Returns the library's handle for a GPU, created at the first use; it must be current. NULL: it
// does not serve it.
static const void *get_handle(const tni_cusparselt *lt, int device)
{
    if (device < 0 || device >= GPUS || self.failed[device]) return NULL;
    tni_sparselt_object **h = &self.handle[device];
    if (*h) return *h;
    *h    = calloc(1, sizeof **h);
    int e = *h ? lt->init(*h) : 1;
    if (!e) return *h;
    tni_library_log("cuSPARSELt does not open: %s", lt->status_string(e));
    free(*h);
    *h                  = NULL;
    self.failed[device] = true;
    return NULL;
}

// The numbers of CUDA's element types, as in lt_types.h.
static int type_of(tn_dtype dt)
{
    return dt == TN_F16 ? TNI_SPARSELT_F16 : TNI_SPARSELT_BF16;
}

// ---- packing -----------------------------------------------------------------------------------

// Describes a matrix (rows, cols); returns the bytes of its packed form, 0 if the library has none.
static size_t describe_packed(const tni_cusparselt *lt, const void *h, tni_sparselt_object *w,
                              tn_dtype dt, int64_t rows, int64_t cols, size_t *scratch)
{
    size_t bytes = 0;
    int    e     = lt->pruned(h, w, rows, cols, cols, ALIGN, type_of(dt), TNI_SPARSELT_ROWS,
                              TNI_SPARSELT_TWO_OF_FOUR);
    if (e) return 0;
    if (lt->packed_size(h, w, &bytes, scratch)) bytes = 0;
    return bytes;
}

// While a caller captures, nothing is opened. Of bf16 alone: with f16 some algorithms of version
// 0.8 fault on an H200, which ends the context, and the library does not say which.
size_t tni_cuda_packed_bytes(void *session, tn_dtype dt, int64_t rows, int64_t cols)
{
    tni_cuda             *c       = session;
    tni_text              why     = { "" };
    const tni_cusparselt *lt      = tni_cusparselt_get(&why);
    size_t                scratch = 0, bytes = 0;
    if (!lt) tni_library_log("%s: products with pruned matrices are dense", why.s);
    if (!lt || c->capturing || dt != TN_BF16) return 0;
    tni_cuda_enter(c);
    tni_sparselt_object *w = calloc(1, sizeof *w);
    pthread_mutex_lock(&self.lock);
    const void *h = w ? get_handle(lt, c->gpu->number) : NULL;
    if (h) bytes = describe_packed(lt, h, w, dt, rows, cols, &scratch);
    if (bytes) lt->forget_matrix(w);
    pthread_mutex_unlock(&self.lock);
    free(w);
    return bytes;
}

// In the session's stream, behind what makes w; the scratch is that of the stream's kernels, one
// after the other.
tn_status tni_cuda_pack(void *session, tn_dtype dt, int64_t rows, int64_t cols, const char *w,
                        char *packed, tni_text *why)
{
    tni_cuda             *c       = session;
    const tni_cusparselt *lt      = tni_cusparselt_get(why);
    size_t                scratch = 0;
    tni_sparselt_object  *m       = calloc(1, sizeof *m);
    int                   e       = 1;
    tni_cuda_enter(c);
    tni_cuda_await_uploads(c);
    pthread_mutex_lock(&self.lock);
    const void *h = lt && m ? get_handle(lt, c->gpu->number) : NULL;
    if (h && describe_packed(lt, h, m, dt, rows, cols, &scratch)) {
        tni_cuptr room = scratch ? tni_cuda_scratch(c, scratch) : 0;
        if (room || !scratch)
            e = lt->pack(h, m, 1, TNI_SPARSELT_NOT_TRANSPOSED, w, packed, (void *)(uintptr_t)room,
                         c->stream);
        lt->forget_matrix(m);
    }
    pthread_mutex_unlock(&self.lock);
    free(m);
    if (e) tni_text_add(why, "cuda: packing: cuSPARSELt: %s", lt ? lt->status_string(e) : "gone");
    return e ? TN_EDEVICE : TN_OK;
}

// ---- describing --------------------------------------------------------------------------------

static bool is_aligned(const void *at)
{
    return (uintptr_t)at % ALIGN == 0;
}

// Whether the library may do a product at its addresses: one matrix of each, in one dtype, with
// nothing but a scale behind it. What is added to a product is left to cuBLASLt, or to the kernel
// that follows.
static bool takes(const tni_product *p, const tni_product_env *at)
{
    const tni_product_epilogue *e = &p->epilogue;
    if ((double)p->rows * (double)p->cols * (double)p->depth < at->pruned_least) return false;
    if (!p->packed || p->batch != 1 || p->loops || p->in != p->out) return false;
    if (e->activation != TNI_leaf || e->residual || e->bias || e->input) return false;
    if (!p->x[A].transposed || p->x[B].transposed) return false;
    if ((p->x[B].ld | p->x[D].ld) * 2 % ALIGN) return false;
    return is_aligned(p->at[B]) && is_aligned(p->at[D]);
}

static pruned_key key_of(const tni_product *p, const tni_product_env *at)
{
    return (pruned_key){ .device    = at->device,
                         .always    = at->pruned,
                         .type      = p->in,
                         .rows      = p->rows,
                         .cols      = p->cols,
                         .depth     = p->depth,
                         .ldb       = p->x[B].ld,
                         .ldd       = p->x[D].ld,
                         .workspace = (int64_t)at->bytes };
}

// A list is enough: a network has some shapes of weights, each with some numbers of tokens.
static pruned_plan *find_plan(const pruned_key *key)
{
    pruned_plan *n = self.plans;
    while (n && memcmp(&n->key, key, sizeof *key) != 0) n = n->next;
    return n;
}

// Describes the matrices, one after the other.
static int describe_matrices(const job *j)
{
    const pruned_key    *k = &j->plan->key;
    tni_sparselt_object *o = j->plan->object;
    int                  t = type_of((tn_dtype)k->type);
    int e = j->lt->pruned(j->h, &o[W], k->rows, k->depth, k->depth, ALIGN, t, TNI_SPARSELT_ROWS,
                          TNI_SPARSELT_TWO_OF_FOUR);
    j->plan->made += !e;
    if (!e) e = j->lt->dense(j->h, &o[X], k->cols, k->depth, k->ldb, ALIGN, t, TNI_SPARSELT_ROWS);
    j->plan->made += !e;
    if (!e) e = j->lt->dense(j->h, &o[Y], k->rows, k->cols, k->ldd, ALIGN, t, TNI_SPARSELT_COLUMNS);
    j->plan->made += !e;
    return e;
}

// Describes the product of them and its algorithm, which is the default one as yet.
static int describe_product(const job *j)
{
    tni_sparselt_object *o = j->plan->object;
    int e = j->lt->product(j->h, &o[PRODUCT], TNI_SPARSELT_NOT_TRANSPOSED, TNI_SPARSELT_TRANSPOSED,
                           &o[W], &o[X], &o[Y], &o[Y], TNI_SPARSELT_COMPUTE_F32);
    return e ? e : j->lt->algo(j->h, &o[ALGO], &o[PRODUCT], TNI_SPARSELT_ALGO_DEFAULT);
}

// Gives back what the objects hold, the matrices first, as PyTorch does; they can be used again.
static void empty_objects(const tni_cusparselt *lt, pruned_plan *n)
{
    for (int i = 0; i < n->made; i++) lt->forget_matrix(&n->object[W + i]);
    if (n->planned >= 0) lt->forget_plan(&n->object[PLAN]);
    memset(n->object, 0, OBJECTS * sizeof *n->object);
    n->made    = 0;
    n->planned = -1;
}

// Asks how many algorithms there are for the product of a plan. Returns an error of the library.
static int count_algorithms(const job *j)
{
    pruned_plan *n     = j->plan;
    int          count = 0, e = describe_matrices(j);
    if (!e) e = describe_product(j);
    if (!e)
        e = j->lt->algo_get(j->h, &n->object[ALGO], TNI_SPARSELT_ALGO_COUNT, &count, sizeof count);
    n->algorithms = count < ALGORITHMS ? count : ALGORITHMS;
    empty_objects(j->lt, n);
    return e;
}

// Makes a plan for a key and adds it to the table; one without objects if the library cannot do it,
// so that it is not asked again. NULL when memory is out.
static pruned_plan *add_plan(job *j, const pruned_key *key)
{
    pruned_plan *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    *n         = (pruned_plan){ .next = self.plans, .key = *key, .planned = -1, .chosen = -1 };
    n->object  = calloc(OBJECTS, sizeof *n->object);
    j->plan    = n;
    self.plans = n;
    if (!n->object || !count_algorithms(j)) return n;
    tni_library_log("cuSPARSELt declines (%lld, %lld) times (%lld, %lld)", (long long)key->rows,
                    (long long)key->depth, (long long)key->depth, (long long)key->cols);
    free(n->object);
    n->object = NULL;
    return n;
}

// ---- choosing ----------------------------------------------------------------------------------

// Makes the plan that of an algorithm. False if the library has not that one, or it needs more
// space than there is.
static bool plan_algorithm(const job *j, int id)
{
    pruned_plan         *n     = j->plan;
    tni_sparselt_object *o     = n->object;
    size_t               bytes = 0;
    if (n->planned == id) return true;
    empty_objects(j->lt, n);
    int e = describe_matrices(j);
    if (!e) e = describe_product(j);
    if (!e) e = j->lt->algo_set(j->h, &o[ALGO], TNI_SPARSELT_ALGO_ID, &id, sizeof id);
    if (!e) e = j->lt->plan(j->h, &o[PLAN], &o[PRODUCT], &o[ALGO]);
    if (!e) n->planned = id;
    if (!e) e = j->lt->workspace(j->h, &o[PLAN], &bytes);
    if (!e && bytes <= j->at->bytes) return true;
    empty_objects(j->lt, n);
    return false;
}

// beta is 0, so that D is not read.
static int multiply(const job *j)
{
    const tni_product *p     = j->p;
    float              alpha = p->epilogue.scaled ? (float)p->scale : 1, beta = 0;
    tni_custream       stream = j->at->stream;
    return j->lt->multiply(j->h, &j->plan->object[PLAN], &alpha, p->packed, p->at[B], &beta,
                           p->at[D], p->at[D], (void *)(uintptr_t)j->at->workspace, &stream, 1);
}

// Candidate 0 is the plain product, the others are algorithms.
static int launch_candidate(void *session, int i)
{
    const job *j   = session;
    tni_text   why = { "" };
    if (!i) return j->at->pruned || tni_product_run(j->p, j->at, &why) != TN_OK;
    return !plan_algorithm(j, i - 1) || multiply(j);
}

static tni_choice_key choice_key_of(const job *j)
{
    return (tni_choice_key){ .library = "cuSPARSELt",
                             .version = tni_cusparselt_version(j->lt),
                             .gpu     = j->at->gpu,
                             .word    = (const int64_t *)&j->plan->key + OWN_WORDS,
                             .words   = WORDS - OWN_WORDS };
}

// All candidates are timed: which algorithm is fastest does not follow from their order.
static void time_algorithms(const job *j)
{
    pruned_plan   *n                  = j->plan;
    tni_choice_key k                  = choice_key_of(j);
    float          ms[ALGORITHMS + 1] = { 0 };
    tni_candidates c                  = { .cu        = j->at->cu,
                                          .stream    = j->at->stream,
                                          .workspace = j->at->workspace,
                                          .bytes     = j->at->bytes,
                                          .count     = n->algorithms + 1,
                                          .own       = n->algorithms + 1,
                                          .launch    = launch_candidate,
                                          .session   = (void *)j };
    if (tni_choice_time(&c, ms)) return;
    int best = tni_choice_best(ms, n->algorithms + 1);
    if (best < 0) return;
    n->chosen = best - 1;
    if (!n->key.always) tni_choice_keep(&k, &n->chosen, sizeof n->chosen);
    tni_library_log("(%lld, %lld) times 2:4 (%lld, %lld): %.1f us, cuSPARSELt %.1f (algorithm %d)",
                    (long long)n->key.cols, (long long)n->key.depth, (long long)n->key.depth,
                    (long long)n->key.rows, (double)ms[0] * 1e3, (double)ms[best] * 1e3, n->chosen);
}

// A choice of another process holds if its algorithm is there.
static bool find_choice(const job *j)
{
    tni_choice_key k  = choice_key_of(j);
    int            id = -1;
    if (j->plan->key.always || tni_choice_find(&k, &id, sizeof id) != sizeof id) return false;
    if (id >= j->plan->algorithms) return false;
    j->plan->chosen = id;
    return true;
}

// Fills a job with the plan of a product, which is made at the latest now. False: the library
// cannot do it.
static bool open_job(job *j)
{
    tni_text why = { "" };
    j->lt        = tni_cusparselt_get(&why);
    j->h         = j->lt ? get_handle(j->lt, j->at->device) : NULL;
    if (!j->h) return false;
    pruned_key key = key_of(j->p, j->at);
    j->plan        = find_plan(&key);
    if (!j->plan) j->plan = add_plan(j, &key);
    return j->plan && j->plan->object;
}

// What fails while it is timed is not tried again by this process.
void tni_pruned_choose(tni_product *p, const tni_product_env *at)
{
    tni_text why = { "" };
    job      j   = { .p = p, .at = at };
    if (!takes(p, at)) return;
    tni_product_prepare(p, at, &why);  // if cuBLASLt has no algorithm, its candidate does not run
    pthread_mutex_lock(&self.lock);
    if (open_job(&j) && !j.plan->settled) {
        if (!find_choice(&j)) time_algorithms(&j);
        if (j.plan->chosen >= 0 && !plan_algorithm(&j, j.plan->chosen)) j.plan->chosen = -1;
        j.plan->settled = true;
    }
    pthread_mutex_unlock(&self.lock);
}

// ---- running -----------------------------------------------------------------------------------

// Only looks. Nothing is known of a product that no run has chosen for yet; where nothing may be
// timed, the plain one is it.
tni_pruned_method tni_pruned_method_of(const tni_product *p, const tni_product_env *at)
{
    if (!takes(p, at) || !at->timing) return TNI_PRUNED_NOT;
    pruned_key key = key_of(p, at);
    pthread_mutex_lock(&self.lock);
    const pruned_plan *n     = find_plan(&key);
    bool               timed = n && (n->settled || !n->object);
    tni_pruned_method  m     = !timed           ? TNI_PRUNED_NOT_TIMED
                               : n->chosen >= 0 ? TNI_PRUNED
                                                : TNI_PRUNED_NOT;
    pthread_mutex_unlock(&self.lock);
    return m;
}

// The plan of the library is shared by all threads, so that the lock is held while it launches.
tn_status tni_pruned_run(const tni_product *p, const tni_product_env *at, tni_text *why)
{
    job j = { .p = (tni_product *)p, .at = at };
    pthread_mutex_lock(&self.lock);
    int e = !open_job(&j) || !plan_algorithm(&j, j.plan->chosen) ? -1 : multiply(&j);
    pthread_mutex_unlock(&self.lock);
    if (e) tni_text_add(why, "cuda: multiplying: cuSPARSELt: error %d", e);
    return e ? TN_EDEVICE : TN_OK;
}

const char *tni_pruned_words(const tni_product *p, const tni_product_env *at)
{
    switch (tni_pruned_method_of(p, at)) {
    case TNI_PRUNED: return TNI_PRUNED_NAME;
    case TNI_PRUNED_NOT_TIMED: return TNI_PRUNED_NAME " or cuBLASLt";
    case TNI_PRUNED_NOT: break;
    }
    return NULL;
}

void tni_pruned_forget(void)
{
    tni_text              why = { "" };
    const tni_cusparselt *lt  = tni_cusparselt_get(&why);
    pthread_mutex_lock(&self.lock);
    for (pruned_plan *n; (n = self.plans);) {
        self.plans = n->next;
        if (lt && n->object) empty_objects(lt, n);
        free(n->object);
        free(n);
    }
    pthread_mutex_unlock(&self.lock);
}
