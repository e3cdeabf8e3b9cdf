// Running products by cuBLASLt. What the library needs for products of one key, descriptors,
// layouts and an algorithm, is built once, kept in a table of the process, and found again by a
// pointer in the product itself as long as nothing that it depends on has changed.
#include "device/cuda/product_plan.h"

#include "base/hash.h"
#include "device/cuda/choice.h"
#include "device/cuda/product_small.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Matrices and addresses of a product: C is the residual, INPUT the matrix for gelu's input.
enum { A, B, D, C, BIAS, INPUT };
// ALIGN_MOST: no algorithm asks for more than 16 bytes.
enum { BUCKETS = 1024, GPUS = 64, ALIGN_MOST = 16 };

// All plans of the process, and the library's handle for each GPU. The lock covers everything, also
// the timing of candidates: another thread that needs the same product would otherwise time it as
// well, and disturb this one.
static struct {
    pthread_mutex_t lock;
    tni_ltplan     *bucket[BUCKETS];
    tni_lthandle    handle[GPUS];
    uint32_t        generation;  // rises when plans are freed; 0 is never used
} self = { .lock = PTHREAD_MUTEX_INITIALIZER, .generation = 1 };

// ---- the form ----------------------------------------------------------------------------------

// Returns the largest power of two up to ALIGN_MOST that divides all addresses or strides in bits,
// which are joined by or.
static int64_t alignment(uintptr_t bits)
{
    bits |= ALIGN_MOST;
    return (int64_t)(bits & (0 - bits));
}

// The alignment of a matrix stored like matrix i at an address, over all its batches and loops.
static int64_t matrix_alignment(const tni_product *p, int i, const char *at)
{
    uintptr_t bytes = tni_dtype_size(i == D ? p->out : p->in);
    uintptr_t bits  = (uintptr_t)at | (uintptr_t)p->x[i].batch_stride * bytes;
    for (int k = 0; k < p->loops; k++) bits |= (uintptr_t)p->loop_stride[i][k] * bytes;
    return alignment(bits);
}

// Translates an epilogue to the library's bits, which are added to each other.
static int epilogue_of(const tni_product_epilogue *e)
{
    int bits = (e->bias ? TNI_LT_EPILOGUE_BIAS : 0) | (e->input ? TNI_LT_EPILOGUE_AUX : 0) |
               (e->activation == TNI_relu        ? TNI_LT_EPILOGUE_RELU
                : e->activation == TNI_gelu_tanh ? TNI_LT_EPILOGUE_GELU
                                                 : 0);
    return bits ? bits : TNI_LT_EPILOGUE_NONE;
}

// Collects all that a choice depends on. Alignments are part of it, since algorithms differ in what
// they accept; scale and addresses are not.
static tni_product_key product_key_of(const tni_product *p, const tni_product_env *at)
{
    tni_product_key f = { .device    = at->device,
                          .timing    = at->timing,
                          .small     = at->launch_small && tni_small_takes(p),
                          .in        = p->in,
                          .out       = p->out,
                          .tf32      = p->tf32 && p->in == TN_F32,
                          .residual  = p->epilogue.residual,
                          .epilogue  = epilogue_of(&p->epilogue),
                          .rows      = p->rows,
                          .cols      = p->cols,
                          .depth     = p->depth,
                          .batch     = p->batch,
                          .workspace = (int64_t)at->bytes };
    for (int i = 0; i < 3; i++) {
        const tni_matrix *x    = &p->x[i];
        int64_t           v[5] = { x->rows, x->cols, x->ld, x->batch_stride, x->transposed };
        memcpy(f.matrix[i], v, sizeof v);
        f.align[i] = matrix_alignment(p, i, p->at[i]);
    }
    f.align[C]     = p->epilogue.residual ? matrix_alignment(p, D, p->residual) : f.align[D];
    f.align[BIAS]  = p->epilogue.bias ? alignment((uintptr_t)p->bias) : ALIGN_MOST;
    f.align[INPUT] = p->epilogue.input ? alignment((uintptr_t)p->input) : ALIGN_MOST;
    return f;
}

// ---- building ----------------------------------------------------------------------------------

tn_status tni_lt_status(const tni_ltjob *j, int status, const char *what)
{
    if (status == TNI_LT_OK) return TN_OK;
    const char *text = j->lt->status_string(status);
    tni_text_add(j->why, "cuda: %s: cuBLASLt: %s", what, text ? text : "an unknown error");
    return status == TNI_LT_NO_MEMORY ? TN_EMEM : TN_EDEVICE;
}

static int type_of(tn_dtype dt)
{
    if (dt == TN_F64) return TNI_LT_F64;
    if (dt == TN_F32) return TNI_LT_F32;
    return dt == TN_F16 ? TNI_LT_F16 : TNI_LT_BF16;
}

static int set_desc32(const tni_ltjob *j, int attribute, int32_t value)
{
    return j->lt->desc_set(j->plan->desc, attribute, &value, sizeof value);
}

// Sets an address in the descriptor, unless it has that address already.
static int set_pointer(const tni_ltjob *j, int attribute, const char *want, const char **has)
{
    if (*has == want) return TNI_LT_OK;
    int e = j->lt->desc_set(j->plan->desc, attribute, &want, sizeof want);
    if (!e) *has = want;
    return e;
}

// They are in the descriptor, which all products of the key share; a run sets its own before it
// launches.
int tni_lt_set_pointers(const tni_ltjob *j)
{
    const tni_product *p = j->p;
    int                e = TNI_LT_OK;
    if (p->epilogue.bias) e = set_pointer(j, TNI_LT_DESC_BIAS, p->bias, &j->plan->bias);
    if (!e && p->epilogue.input) e = set_pointer(j, TNI_LT_DESC_AUX, p->input, &j->plan->input);
    return e;
}

static int transpose_of(const tni_matrix *x)
{
    return x->transposed ? TNI_LT_TRANSPOSED : TNI_LT_NOT_TRANSPOSED;
}

// Describes the computation. Sums of f16 and bf16 are taken in f32; f32 is multiplied exactly
// unless TF32 was asked for, f64 in f64.
static int make_desc(const tni_ltjob *j)
{
    const tni_product *p       = j->p;
    bool               wide    = p->in == TN_F64;
    int                compute = wide                         ? TNI_LT_COMPUTE_F64
                                 : p->tf32 && p->in == TN_F32 ? TNI_LT_COMPUTE_TF32
                                                              : TNI_LT_COMPUTE_F32;
    int e = j->lt->desc_create(&j->plan->desc, compute, wide ? TNI_LT_F64 : TNI_LT_F32);
    if (!e) e = set_desc32(j, TNI_LT_DESC_TRANSPOSE_A, transpose_of(&p->x[A]));
    if (!e) e = set_desc32(j, TNI_LT_DESC_TRANSPOSE_B, transpose_of(&p->x[B]));
    if (!e) e = set_desc32(j, TNI_LT_DESC_EPILOGUE, epilogue_of(&p->epilogue));
    if (!e && p->epilogue.input)
        e = j->lt->desc_set(j->plan->desc, TNI_LT_DESC_AUX_LD, &p->x[D].ld, sizeof p->x[D].ld);
    return e ? e : tni_lt_set_pointers(j);
}

// Describes matrix i; C has the layout of D.
static int make_layout(const tni_ltjob *j, int i)
{
    const tni_matrix *x     = &j->p->x[i];
    tni_ltlayout     *l     = &j->plan->layout[i];
    int32_t           batch = (int32_t)j->p->batch;
    int e = j->lt->layout_create(l, type_of(i == D ? j->p->out : j->p->in), (uint64_t)x->rows,
                                 (uint64_t)x->cols, x->ld);
    if (e || batch == 1) return e;
    e = j->lt->layout_set(*l, TNI_LT_LAYOUT_BATCH, &batch, sizeof batch);
    return e ? e
             : j->lt->layout_set(*l, TNI_LT_LAYOUT_STRIDE, &x->batch_stride,
                                 sizeof x->batch_stride);
}

static void free_plan(const tni_blaslt *lt, tni_ltplan *n)
{
    for (int i = 0; i < 3; i++)
        if (n->layout[i]) lt->layout_destroy(n->layout[i]);
    if (n->desc) lt->desc_destroy(n->desc);
    tni_lt_forget_search(n);
    free(n);
}

// ---- proposals ---------------------------------------------------------------------------------

// How the library may add partial sums over parts of the inner axis: in a step of their own, so
// that the order is fixed, never by atomics; and not of parts that were rounded to 16 bits before.
static uint32_t allowed_reductions(const tni_product *p)
{
    bool narrow = tni_is_rounded(p->out);
    return narrow ? TNI_LT_REDUCE_COMPUTE : TNI_LT_REDUCE_COMPUTE | TNI_LT_REDUCE_OUTPUT;
}

// Tells the library which algorithms are of use: the workspace, reductions, and the alignments.
static int set_preference(const tni_ltjob *j, tni_ltpreference w)
{
    static const int attribute[] = { TNI_LT_PREFERENCE_ALIGN_A, TNI_LT_PREFERENCE_ALIGN_B,
                                     TNI_LT_PREFERENCE_ALIGN_D, TNI_LT_PREFERENCE_ALIGN_C };
    uint64_t         bytes       = j->at->bytes;
    uint32_t         bits        = allowed_reductions(j->p);
    int e = j->lt->preference_set(w, TNI_LT_PREFERENCE_WORKSPACE, &bytes, sizeof bytes);
    if (!e) e = j->lt->preference_set(w, TNI_LT_PREFERENCE_REDUCTIONS, &bits, sizeof bits);
    for (int i = 0; i < 4 && !e; i++) {
        uint32_t align = (uint32_t)j->plan->key.align[i];
        e              = j->lt->preference_set(w, attribute[i], &align, sizeof align);
    }
    return e;
}

// NOT_SUPPORTED and INVALID mean that the library has nothing for this combination, which is an
// answer and no error.
int tni_lt_propose(const tni_ltjob *j, tni_ltproposal list[TNI_PROPOSALS], int *count)
{
    const tni_ltplan *n = j->plan;
    tni_ltpreference  w = NULL;
    int               e = j->lt->preference_create(&w), got = 0;
    *count = 0;
    if (e) return e;
    e = set_preference(j, w);
    if (!e)
        e = j->lt->propose(n->handle, n->desc, n->layout[A], n->layout[B], n->layout[D],
                           n->layout[D], w, TNI_PROPOSALS, list, &got);
    j->lt->preference_destroy(w);
    if (e == TNI_LT_NOT_SUPPORTED || e == TNI_LT_INVALID) return TNI_LT_OK;
    for (int i = 0; i < got && !e; i++)
        if (list[i].status == TNI_LT_OK && list[i].workspace <= j->at->bytes)
            list[(*count)++] = list[i];
    return e;
}

// ---- running -----------------------------------------------------------------------------------

// alpha is the scale and beta adds the residual, in f64 for f64 and else in f32. When D is also the
// residual, C is wherever D goes, which may be scratch.
int tni_lt_multiply(const tni_ltjob *j, const tni_ltalgo *algo, const int64_t offset[3], char *out)
{
    const tni_product *p     = j->p;
    const tni_ltplan  *n     = j->plan;
    bool               wide  = p->in == TN_F64;
    double             f64[] = { p->epilogue.scaled ? p->scale : 1, p->epilogue.residual };
    float              f32[] = { (float)f64[0], (float)f64[1] };
    const void        *alpha = wide ? (const void *)&f64[0] : &f32[0];
    const void        *beta  = wide ? (const void *)&f64[1] : &f32[1];
    const char        *c     = p->epilogue.residual && p->residual != p->at[D] ? p->residual : out;
    int64_t            bytes = (int64_t)tni_dtype_size(p->in);
    int64_t            on    = offset[D] * (int64_t)tni_dtype_size(p->out);
    return j->lt->matmul(n->handle, n->desc, alpha, p->at[A] + offset[A] * bytes, n->layout[A],
                         p->at[B] + offset[B] * bytes, n->layout[B], beta, c + on, n->layout[D],
                         out + on, n->layout[D], algo, (void *)(uintptr_t)j->at->workspace,
                         j->at->bytes, j->at->stream);
}

// Launches a product for every index of its loops, the last loop innermost, like an odometer.
static int multiply_all(const tni_ltjob *j, const tni_ltalgo *algo)
{
    const tni_product *p                  = j->p;
    int64_t            index[TN_MAX_RANK] = { 0 }, offset[3] = { 0 };
    for (;;) {
        int e = tni_lt_multiply(j, algo, offset, p->at[D]);
        int i = p->loops - 1;
        for (; i >= 0 && ++index[i] == p->loop_size[i]; i--) {
            for (int k = 0; k < 3; k++) offset[k] -= (index[i] - 1) * p->loop_stride[k][i];
            index[i] = 0;
        }
        if (e || i < 0) return e;
        for (int k = 0; k < 3; k++) offset[k] += p->loop_stride[k][i];
    }
}

// Remembers that the library has no algorithm, so that it is not asked again.
static tn_status decline(const tni_ltjob *j)
{
    j->plan->served  = false;
    j->plan->settled = true;
    tni_text_add(j->why, "cuda: cuBLASLt has no algorithm for a product of this form");
    return TN_EARG;
}

void tni_lt_use(tni_ltplan *n, const tni_ltalgo *algo)
{
    if (!memcmp(&n->algo, algo, sizeof *algo)) return;
    n->algo = *algo;
    n->warm = false;
    n->changes++;
}

// Goes back to the rule's choice if a winner does not run here. False: it was the rule's.
static bool leave_winner(tni_ltplan *n)
{
    static const tni_tuned none;
    if (!n->settled || !memcmp(&n->algo, &n->rule, sizeof n->algo)) return false;
    n->tuned = none;
    tni_lt_use(n, &n->rule);
    return true;
}

// Launches a product once that was chosen without being run (from disk, or as the first proposal),
// so that its code is loaded before a capture. D is written, which a run does anyway; a product
// that accumulates into D is left out. If our own kernel cannot run here, the library's algorithm
// takes its place.
static tn_status warm_up(const tni_ltjob *j)
{
    static const int64_t start[3] = { 0 };
    if (j->plan->warm || j->plan->small_pending || tni_product_accumulates(j->p)) return TN_OK;
    j->plan->warm = true;
    if (j->plan->small_faster && !j->at->launch_small(j->at->session, j->p, j->p->at[D]))
        return TN_OK;
    j->plan->small_faster = false;
    int e                 = tni_lt_multiply(j, &j->plan->algo, start, j->p->at[D]);
    if (e && leave_winner(j->plan)) e = tni_lt_multiply(j, &j->plan->algo, start, j->p->at[D]);
    if (e == TNI_LT_NOT_SUPPORTED || e == TNI_LT_INVALID) return decline(j);
    return tni_lt_status(j, e, "multiplying");
}

// ---- the table ---------------------------------------------------------------------------------

// Returns the library's handle for the GPU, created at the first use; it must be current.
static tn_status get_handle(const tni_ltjob *j)
{
    int device = j->at->device;
    if (device < 0 || device >= GPUS) {
        tni_text_add(j->why, "cuda: there is no GPU %d for cuBLASLt", device);
        return TN_EDEVICE;
    }
    if (!self.handle[device]) {
        tn_status s = tni_lt_status(j, j->lt->create(&self.handle[device]), "opening cuBLASLt");
        if (s != TN_OK) return s;
    }
    j->plan->handle = self.handle[device];
    return TN_OK;
}

// Once the rule's choice is known, tuning may have found a faster one. With TN_DETERMINISTIC=1 it
// has not.
static void use_winner(const tni_ltjob *j)
{
    j->plan->imports = tni_tuned_imports();
    if (j->plan->served && j->at->timing && !j->plan->small_faster) tni_lt_take_winner(j);
}

// Notes the rule's choice, which is final.
static void settle_rule(const tni_ltjob *j)
{
    j->plan->rule = j->plan->algo;
    use_winner(j);
}

// Builds what the library needs, takes its first proposal, and replaces it by a choice from disk if
// there is one. The library's documentation does not say how gelu's input must be aligned, so that
// it is only asked for addresses that all of its kernels accept.
static tn_status build_plan(const tni_ltjob *j)
{
    tni_ltproposal list[TNI_PROPOSALS];
    int            count = 0;
    tn_status      s     = get_handle(j);
    if (s != TN_OK) return s;
    int e = make_desc(j);
    for (int i = 0; i < 3 && !e; i++) e = make_layout(j, i);
    if (!e && j->plan->key.align[INPUT] == ALIGN_MOST) e = tni_lt_propose(j, list, &count);
    if (e) return tni_lt_status(j, e, "describing a product");
    j->plan->served = count > 0;
    if (count) j->plan->algo = list[0].algo;
    j->plan->settled = !count || !j->at->timing || tni_lt_find_choice(j);
    if (j->plan->settled) settle_rule(j);
    return TN_OK;
}

// Makes a plan for a key and adds it to the table. A plan that failed is not added: the reason may
// have been memory.
static tn_status add_plan(tni_ltjob *j, const tni_product_key *f, uint64_t hash)
{
    tni_ltplan *n = calloc(1, sizeof *n);
    if (!n) {
        tni_text_add(j->why, "cuda: out of memory for a product");
        return TN_EMEM;
    }
    n->hash     = hash;
    n->key      = *f;
    j->plan     = n;
    tn_status s = build_plan(j);
    if (s != TN_OK) {
        free_plan(j->lt, n);
        return s;
    }
    n->next                     = self.bucket[hash % BUCKETS];
    self.bucket[hash % BUCKETS] = n;
    return TN_OK;
}

// The last four bits of an address, shifted to their place in one word.
static uint32_t low_bits(const void *at, int place)
{
    return (uint32_t)((uintptr_t)at & (ALIGN_MOST - 1)) << (4 * place);
}

// The last four bits of every address in one word, which decide all alignments of a product.
// Addresses that the epilogue does not use are included, since testing for them costs more than a
// needless miss.
static uint32_t low_address_bits(const tni_product *p)
{
    return low_bits(p->at[A], A) | low_bits(p->at[B], B) | low_bits(p->at[D], D) |
           low_bits(p->residual, C) | low_bits(p->bias, BIAS) | low_bits(p->input, INPUT);
}

// Returns whether the plan that a product keeps is still the one of its key, by comparing
// everything that may have changed since: cheaper than making and hashing the key for every launch.
static bool plan_is_current(const tni_product *p, const tni_product_env *at)
{
    if (!p->plan || p->generation != self.generation) return false;
    const tni_product_key *f = &p->plan->key;
    return p->aligned == low_address_bits(p) && f->device == at->device &&
           f->timing == at->timing && f->workspace == (int64_t)at->bytes &&
           f->tf32 == (p->tf32 && p->in == TN_F32) &&
           f->small == (at->launch_small && tni_small_takes(p));
}

static void remember_plan(tni_product *p, tni_ltplan *n)
{
    p->plan       = n;
    p->aligned    = low_address_bits(p);
    p->generation = self.generation;
}

// Returns the plan of a key in the table; NULL if there is none.
static tni_ltplan *find_plan(const tni_product_key *f, uint64_t hash)
{
    tni_ltplan *n = self.bucket[hash % BUCKETS];
    while (n && (n->hash != hash || memcmp(&n->key, f, sizeof *f) != 0)) n = n->next;
    return n;
}

// Finds or makes the plan of a product, which keeps it. The lock is held.
static tn_status get_plan(tni_ltjob *j)
{
    tn_status s = TN_OK;
    j->plan     = j->p->plan;
    if (!plan_is_current(j->p, j->at)) {
        tni_product_key f    = product_key_of(j->p, j->at);
        uint64_t        hash = tni_hash(&f, sizeof f);
        j->plan              = find_plan(&f, hash);
        if (!j->plan) s = add_plan(j, &f, hash);
        if (s == TN_OK) remember_plan(j->p, j->plan);
    }
    return s != TN_OK || j->plan->served ? s : decline(j);
}

// Returns whether our own kernel might be the faster one but is still being compiled, and the
// caller does not wait: until then the library multiplies.
static bool waits_for_small(const tni_ltjob *j)
{
    const tni_ltplan *n = j->plan;
    if (!n->key.small || (n->settled && !n->small_faster) || j->p->waits || !j->at->small_ready)
        return false;
    return !j->at->small_ready(j->at->session);
}

// Whether a run that tunes may look for other algorithms than those that the library has proposed:
// for what is aligned, which the library's proposals were asked for, and is one launch, whose
// result can be compared.
static bool may_search(const tni_ltjob *j)
{
    const tni_ltplan *n  = j->plan;
    bool              ok = n->settled && n->served && !j->p->loops;
    for (int i = 0; i < TNI_ALIGNS; i++) ok &= n->key.align[i] == ALIGN_MOST;
    return ok && !n->small_faster && !j->at->capturing && j->at->timing;
}

// Searches, unless that was done. A call may be several products.
static void search_more(const tni_ltjob *j)
{
    tni_call_search *r = j->p->search;
    if (!may_search(j)) return;
    if (!j->plan->searched) tni_lt_search(j, r);
    if (!j->plan->searched) r->end = TNI_SEARCH_LEFT;
    else if (r->end == TNI_SEARCHED_NOTHING) r->end = TNI_SEARCHED_ALL;
}

// Chooses and warms up, unless the stream is being captured. While our own kernel is compiled,
// nothing is timed: the comparison needs both.
tn_status tni_product_prepare(tni_product *p, const tni_product_env *at, tni_text *why)
{
    tni_ltjob j = { .lt = tni_blaslt_get(why), .p = p, .at = at, .why = why };
    if (!j.lt) return TN_EDEVICE;
    pthread_mutex_lock(&self.lock);
    tn_status s = get_plan(&j);
    if (s == TN_OK) s = tni_lt_status(&j, tni_lt_set_pointers(&j), "describing a product");
    if (s == TN_OK && !at->capturing) j.plan->small_pending = waits_for_small(&j);
    if (s == TN_OK && !j.plan->settled && !at->capturing && !j.plan->small_pending) {
        s = tni_lt_choose(&j);
        if (s == TN_OK && j.plan->settled) settle_rule(&j);
        if (s == TN_EARG) s = decline(&j);
    }
    if (s == TN_OK && j.plan->settled && j.plan->imports != tni_tuned_imports()) use_winner(&j);
    if (s == TN_OK && p->search) search_more(&j);
    if (s == TN_OK && !at->capturing) s = warm_up(&j);
    pthread_mutex_unlock(&self.lock);
    return s;
}

// The answer to the first question takes longest, whatever is asked: the library reads its tables
// then. Any plain product will do; its plan stays in the table.
void tni_product_open(const tni_product_env *at)
{
    enum { SIDE = 256 };
    tni_text         why = { "" };
    const tni_matrix m   = { .rows = SIDE, .cols = SIDE, .ld = SIDE };
    tni_product      p   = { .in    = TN_BF16,
                             .out   = TN_BF16,
                             .rows  = SIDE,
                             .cols  = SIDE,
                             .depth = SIDE,
                             .batch = 1,
                             .width = SIDE,
                             .x     = { m, m, m } };
    tni_ltjob        j   = { .lt = tni_blaslt_get(&why), .p = &p, .at = at, .why = &why };
    if (!j.lt) return;
    pthread_mutex_lock(&self.lock);
    get_plan(&j);  // a failure comes again, and is reported, with the first product
    pthread_mutex_unlock(&self.lock);
}

// Addresses in the descriptor must stay this run's until the library has read them, so that the
// lock is held during the launch if there are any; otherwise others need not wait. A winner of
// tuning that does not run is launched again as the rule's choice.
tn_status tni_product_run(tni_product *p, const tni_product_env *at, tni_text *why)
{
    tni_ltjob  j     = { .lt = tni_blaslt_get(why), .p = p, .at = at, .why = why };
    bool       holds = p->epilogue.bias || p->epilogue.input;
    tni_ltalgo algo;
    if (!j.lt) return TN_EDEVICE;
    pthread_mutex_lock(&self.lock);
    tn_status s = get_plan(&j);
    if (s == TN_OK && holds) s = tni_lt_status(&j, tni_lt_set_pointers(&j), "describing a product");
    if (s == TN_OK) {
        algo         = j.plan->algo;
        j.plan->warm = true;
    }
    if (!holds) pthread_mutex_unlock(&self.lock);
    int e = s == TN_OK ? multiply_all(&j, &algo) : TNI_LT_OK;
    if (e && !holds) {
        pthread_mutex_lock(&self.lock);
        holds = true;
    }
    if (e && leave_winner(j.plan)) e = multiply_all(&j, &j.plan->algo);
    if (holds) pthread_mutex_unlock(&self.lock);
    return s == TN_OK ? tni_lt_status(&j, e, "multiplying") : s;
}

// Nothing is built for it: most products were not measured.
bool tni_product_tuned(const tni_product *p, const tni_product_env *at, tni_tuned *won,
                       tni_text *with)
{
    tni_text   why  = { "" };
    tni_ltplan n    = { .key = product_key_of(p, at) };
    tni_ltjob  j    = { .lt = tni_blaslt_get(&why), .at = at, .plan = &n, .why = &why };
    tni_ltalgo algo = { { 0 } };
    if (!j.lt || !at->timing || !tni_lt_find_winner(&j, won, &algo)) return false;
    *with = won->algorithm.n ? tni_lt_algo_text(j.lt, &algo)
                             : tni_text_of("as the library proposes");
    return true;
}

int64_t tni_product_changes(const tni_product *p)
{
    pthread_mutex_lock(&self.lock);
    int64_t n = p->plan && p->generation == self.generation ? p->plan->changes : 0;
    pthread_mutex_unlock(&self.lock);
    return n;
}

// Only looks; a product whose plan is not known yet goes to the library.
tni_product_method tni_product_method_of(tni_product *p, const tni_product_env *at)
{
    tni_product_method method = TNI_BY_LIBRARY;
    pthread_mutex_lock(&self.lock);
    if (!plan_is_current(p, at)) {
        tni_product_key f = product_key_of(p, at);
        tni_ltplan     *n = find_plan(&f, tni_hash(&f, sizeof f));
        if (n) remember_plan(p, n);
        else p->plan = NULL;
    }
    if (p->plan)
        method = !p->plan->served         ? TNI_BY_NEITHER
                 : p->plan->small_pending ? TNI_BY_LIBRARY_FOR_NOW
                 : p->plan->small_faster  ? TNI_BY_SMALL
                                          : TNI_BY_LIBRARY;
    pthread_mutex_unlock(&self.lock);
    return method;
}

void tni_product_counts(int64_t *timed, int64_t *found)
{
    pthread_mutex_lock(&self.lock);
    tni_lt_counts(timed, found);
    pthread_mutex_unlock(&self.lock);
}

// The generation tells products that keep a plan that it is gone.
void tni_product_forget(void)
{
    tni_text          why = { "" };
    const tni_blaslt *lt  = tni_blaslt_get(&why);
    if (!lt) return;
    pthread_mutex_lock(&self.lock);
    tni_choice_forget();
    self.generation++;
    for (int i = 0; i < BUCKETS; i++) {
        for (tni_ltplan *n; (n = self.bucket[i]);) {
            self.bucket[i] = n->next;
            free_plan(lt, n);
        }
    }
    pthread_mutex_unlock(&self.lock);
}
