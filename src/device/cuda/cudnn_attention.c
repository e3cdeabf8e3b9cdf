// Attention and its gradient as graphs of cuDNN, for f16 and bf16.
//
// The library recognizes the graph of products, maps and reductions that attention is composed of,
// and computes it by one kernel that never stores the scores. Tensors are (batch, head, place,
// width) for it, in any layout: strides say that ours are (batch, place, head, width), also inside
// a packed q, k, v.
//
// B batch, H heads, Hk heads of keys and values, T queries, S keys, D their width, E that of a
// value
#include "device/cuda/cuda_attention.h"
#include "device/cuda/dnn_plan.h"

#include <math.h>
#include <stdlib.h>

// The bits of an address and of a stride that the library wants to be 0, and where parts of scratch
// begin.
enum { ALIGN = 16, PART = 256 };
// A query to which a mask shows no key gives zeros in this version; older ones were not looked at.
enum { MASKS_SINCE = 91900 };

// The tensors of a graph by name; 0: it has none. acc: sums of dQ in f32; delta: the sum of dO O of
// each query; queries, keys: how many there are, for each batch.
typedef struct {
    int q, k, v, mask, o, lse, g, dq, dk, dv, acc, delta, queries, keys;
    int scale, lowest, one;
} named_tensors;

// A form of attention for the library: its graph, and where its own memory is in scratch.
typedef struct {
    tni_dnn_plans *plans;
    named_tensors  t;
    size_t         acc, delta, lengths, end;  // offsets, behind the workspace
} attention_work;

// A graph being written.
typedef struct {
    tni_dnn_graph       *g;
    const tni_attention *a;
    const tni_call      *call;
    named_tensors        t;
    int                  dtype;
    int64_t              scores[4], rows[4];  // sizes (B, H, T, S) and (B, H, T, 1)
    int                  sizes_qk[3], sizes_kq[3], sizes_q[3];  // of products; 0: as they are
} sketch;

// ---- what it takes -----------------------------------------------------------------------------

// Whether the library reads an argument of four axes in place: elements of the last axis next to
// each other, all else at multiples of 16 bytes, nothing repeated.
static bool layout_suits(const tni_arg *x)
{
    if (!x->rank) return true;  // an output that is not wanted
    if (x->stride[3] != 1 && x->size[3] != 1) return false;
    for (int i = 0; i < 3; i++)
        if (x->size[i] > 1 && (x->stride[i] <= 0 || x->stride[i] % (ALIGN / 2))) return false;
    return true;
}

static bool width_suits(int64_t n)
{
    return n % 8 == 0 && n <= 256;
}

// Whether the library adds the mask, if there is one: of numbers, without a gradient.
static bool mask_suits(const tni_attention *a)
{
    if (!a->extras) return true;
    const tni_arg *m = a->extra[0].arg;
    return a->extras == 1 && !a->extra[0].grad && m->dtype == a->q->dtype && m->size[3] > 1 &&
           layout_suits(m);
}

// What shapes, dtypes and attributes decide.
static const char *declines_call(const tni_call *call, const tni_attention *a)
{
    if (a->q->dtype != TN_F16 && a->q->dtype != TN_BF16)
        return "cuDNN has attention in f16 and bf16 only";
    if (a->score || a->lengths || a->window || a->drops || !mask_suits(a))
        return "cuDNN has attention without bool masks, windows, lengths, dropout and score programs";
    if (!width_suits(a->D) || !width_suits(a->E))
        return "cuDNN has attention with widths that are multiples of 8 up to 256";
    if (!layout_suits(a->q) || !layout_suits(a->k) || !layout_suits(a->v) ||
        !layout_suits(&call->out))
        return "cuDNN reads and writes rows at multiples of 16 bytes only";
    if (a->g && (!layout_suits(a->g) || !layout_suits(a->o) || !layout_suits(&call->more[0]) ||
                 !layout_suits(&call->more[1])))
        return "cuDNN reads and writes rows at multiples of 16 bytes only";
    return NULL;
}

// ---- the graph ---------------------------------------------------------------------------------

// An argument (B, T, H, D) as the library's (B, H, T, D) or, turned, as (B, H, D, T).
static int memory_of(sketch *s, const tni_arg *x, bool turned)
{
    int     last[]   = { turned ? 3 : 1, turned ? 1 : 3 };
    int64_t size[]   = { x->size[0], x->size[2], x->size[last[0]], x->size[last[1]] };
    int64_t stride[] = { x->stride[0], x->stride[2], x->stride[last[0]], x->stride[last[1]] };
    return tni_dnn_memory(s->g, s->dtype, 4, size, stride);
}

// A result (B, T, H, D) in the layout that the call gives it; row-major if the call does not want
// it.
static int result_of(sketch *s, const tni_arg *x, int64_t rows, int64_t heads, int64_t width)
{
    int64_t size[]   = { s->a->B, heads, rows, width };
    int64_t stride[] = { rows * heads * width, width, heads * width, 1 };
    if (x->rank) stride[0] = x->stride[0], stride[1] = x->stride[2], stride[2] = x->stride[1];
    return tni_dnn_memory(s->g, s->dtype, 4, size, stride);
}

// One number in f32 for each query.
static int rows_in_memory(sketch *s)
{
    int64_t stride[] = { s->a->H * s->a->T, s->a->T, 1, 1 };
    return tni_dnn_memory(s->g, TNI_DNN_F32, 4, s->rows, stride);
}

static int reduce_rows(sketch *s, int mode, int x)
{
    int y = tni_dnn_virtual(s->g, TNI_DNN_F32, s->rows, NULL);
    tni_dnn_reduce_to(s->g, mode, x, y);
    return y;
}

// The scores of all keys: scale q k', and what a mask of numbers adds.
static int scaled_scores(sketch *s)
{
    int y = tni_dnn_virtual(s->g, TNI_DNN_F32, s->scores, NULL);
    tni_dnn_product(s->g, s->t.q, s->t.k, y, s->sizes_qk);
    y = tni_dnn_map(s->g, TNI_DNN_MUL, y, s->t.scale);
    return s->t.mask ? tni_dnn_map(s->g, TNI_DNN_ADD, y, s->t.mask) : y;
}

// A mask (B, H, T, S) of size 1 where it is repeated.
static int mask_of(sketch *s, const tni_arg *x)
{
    int64_t stride[4], next = 1;
    for (int i = 3; i >= 0; i--) {
        stride[i] = x->size[i] == 1 ? next : x->stride[i];
        next      = stride[i] * x->size[i];
    }
    return tni_dnn_memory(s->g, s->dtype, 4, x->size, stride);
}

// Replaces the scores of keys after the query's own place by -inf.
static int hide_future(sketch *s, int score)
{
    int row = tni_dnn_index(s->g, score, 2), col = tni_dnn_index(s->g, score, 3);
    return tni_dnn_select(s->g, tni_dnn_compare(s->g, TNI_DNN_GE, row, col), score, s->t.lowest);
}

// Replaces the scores beyond the number of queries and keys by -inf.
static int hide_padding(sketch *s, int score)
{
    int row = tni_dnn_index(s->g, score, 2), col = tni_dnn_index(s->g, score, 3);
    int in_rows = tni_dnn_compare(s->g, TNI_DNN_LT, row, s->t.queries);
    int in_cols = tni_dnn_compare(s->g, TNI_DNN_LT, col, s->t.keys);
    int inside  = tni_dnn_compare(s->g, TNI_DNN_AND, in_rows, in_cols);
    return tni_dnn_select(s->g, inside, score, s->t.lowest);
}

// A matrix for each head, seen as its transpose, in the dtype of the operands.
static int turned(sketch *s, int x)
{
    const tni_attention *a        = s->a;
    int64_t              size[]   = { a->B, a->H, a->S, a->T };
    int64_t              stride[] = { a->H * a->T * a->S, a->T * a->S, 1, a->S };
    int                  y        = tni_dnn_virtual(s->g, s->dtype, size, stride);
    tni_dnn_reshape_to(s->g, x, y);
    return y;
}

// The softmax with its log-sum-exp, then the product with the values. The weights are rounded to
// the dtype of the values.
static void write_forward(sketch *s)
{
    tni_dnn_graph *g = s->g;
    s->t.v           = memory_of(s, s->a->v, false);
    s->t.o           = result_of(s, &s->call->out, s->a->T, s->a->H, s->a->E);
    s->t.lse         = rows_in_memory(s);
    int score        = scaled_scores(s);
    if (s->a->causal) score = hide_future(s, score);
    int most = reduce_rows(s, TNI_DNN_REDUCE_MAX, score);
    int e    = tni_dnn_map(g, TNI_DNN_EXP, tni_dnn_map(g, TNI_DNN_SUB, score, most), 0);
    int sum  = reduce_rows(s, TNI_DNN_REDUCE_ADD, e);
    tni_dnn_map_to(g, TNI_DNN_ADD, most, tni_dnn_map(g, TNI_DNN_LOG, sum, 0), s->t.lse);
    int w = tni_dnn_virtual(g, s->dtype, s->scores, NULL);
    tni_dnn_map_to(g, TNI_DNN_DIV, e, sum, w);
    tni_dnn_product(g, w, s->t.v, s->t.o, s->sizes_q);
}

// The gradient of keys or values: a product for each head of q, added over the heads that share
// one.
static int key_gradient(sketch *s, const tni_arg *to, int a, int b, int64_t width)
{
    int64_t size[] = { s->a->B, s->a->H, s->a->S, width };
    int     y      = result_of(s, to, s->a->S, s->a->Hk, width);
    bool    shared = s->a->Hk != s->a->H;
    int     each   = shared ? tni_dnn_virtual(s->g, s->dtype, size, NULL) : y;
    tni_dnn_product(s->g, a, b, each, s->sizes_kq);
    if (shared) tni_dnn_reduce_to(s->g, TNI_DNN_REDUCE_ADD, each, y);
    return y;
}

// delta, the sum of dO O over each query's result, which the softmax's gradient subtracts.
static void write_delta(sketch *s)
{
    int64_t size[] = { s->a->B, s->a->H, s->a->T, s->a->E };
    int     both   = tni_dnn_virtual(s->g, TNI_DNN_F32, size, NULL);
    tni_dnn_map_to(s->g, TNI_DNN_MUL, s->t.g, s->t.o, both);
    s->t.delta = rows_in_memory(s);
    tni_dnn_map_to(s->g, TNI_DNN_MUL, reduce_rows(s, TNI_DNN_REDUCE_ADD, both), s->t.one,
                   s->t.delta);
}

// dQ = dS K. Several blocks of the library's kernel add to one row of dQ: in f32, in memory of
// ours, in any order. The deterministic form writes dQ itself, for which the library keeps all of
// dS in its workspace.
static void write_dq(sketch *s, int ds, bool deterministic)
{
    const tni_attention *a        = s->a;
    const tni_arg       *k        = a->k;
    int64_t              size[]   = { a->B, a->Hk, a->S, a->D };
    int64_t              stride[] = { k->stride[0], k->stride[2], k->stride[1], k->stride[3] };
    int                  keys     = tni_dnn_virtual(s->g, s->dtype, size, stride);
    tni_dnn_reshape_to(s->g, s->t.k, keys);
    s->t.dq = result_of(s, &s->call->out, a->T, a->H, a->D);
    if (deterministic) {
        tni_dnn_product(s->g, ds, keys, s->t.dq, s->sizes_q);
        return;
    }
    int64_t sums[] = { a->B, a->H, a->T, a->D },
            step[] = { a->H * a->T * a->D, a->T * a->D, a->D, 1 };
    s->t.acc       = tni_dnn_memory(s->g, TNI_DNN_F32, 4, sums, step);
    tni_dnn_product(s->g, ds, keys, s->t.acc, s->sizes_q);
    tni_dnn_map_to(s->g, TNI_DNN_IDENTITY, s->t.acc, 0, s->t.dq);
}

// The weights again from the log-sums; dV = P' dO; dS = P (dO V' - delta) scale; dK = dS' Q; dQ =
// dS K.
static void write_backward(sketch *s, bool deterministic)
{
    const tni_attention *a = s->a;
    tni_dnn_graph       *g = s->g;
    s->t.v                 = memory_of(s, a->v, true);
    s->t.o                 = memory_of(s, a->o, false);
    s->t.g                 = memory_of(s, a->g, false);
    s->t.lse               = rows_in_memory(s);
    s->t.one               = tni_dnn_number(g);
    write_delta(s);
    int score = tni_dnn_map(g, TNI_DNN_SUB, scaled_scores(s), s->t.lse);
    if (s->t.keys) score = hide_padding(s, score);
    if (a->causal) score = hide_future(s, score);
    int p   = tni_dnn_map(g, TNI_DNN_EXP, score, 0);
    s->t.dv = key_gradient(s, &s->call->more[1], turned(s, p), s->t.g, a->E);
    int dp  = tni_dnn_virtual(g, TNI_DNN_F32, s->scores, NULL);
    tni_dnn_product(g, s->t.g, s->t.v, dp, s->sizes_qk);
    int ds = tni_dnn_map(g, TNI_DNN_MUL, tni_dnn_map(g, TNI_DNN_SUB, dp, s->t.delta), p);
    int y  = tni_dnn_virtual(g, s->dtype, s->scores, NULL);
    tni_dnn_map_to(g, TNI_DNN_MUL, ds, s->t.scale, y);
    s->t.dk = key_gradient(s, &s->call->more[0], turned(s, y), s->t.q, a->D);
    write_dq(s, y, deterministic);
}

// Up to 9.15 the gradient is wrong for a number of keys that is no multiple of 128, unless the
// numbers of queries and keys are given in memory.
static bool needs_lengths(const tni_attention *a)
{
    tni_text         none = { "" };
    const tni_cudnn *dnn  = tni_cudnn_get(&none);
    return a->g && a->S % 128 != 0 && dnn && dnn->version() < 91600;
}

static void add_lengths(sketch *s)
{
    int64_t size[] = { s->a->B, 1, 1, 1 }, stride[] = { 1, 1, 1, 1 };
    s->t.queries = tni_dnn_memory(s->g, TNI_DNN_I32, 4, size, stride);
    s->t.keys    = tni_dnn_memory(s->g, TNI_DNN_I32, 4, size, stride);
    int q = s->t.queries, k = s->t.keys;
    for (int i = 0; i < 3; i++) {
        s->sizes_qk[i] = (int[]){ q, k, 0 }[i];
        s->sizes_kq[i] = (int[]){ k, 0, q }[i];
        s->sizes_q[i]  = (int[]){ q, 0, k }[i];
    }
}

// Writes the graph of a call. The log-sums are always stored: then a call whose gradient is asked
// for later has the same graph.
static named_tensors write_graph(tni_dnn_graph *g, const tni_call *call, bool deterministic)
{
    tni_attention a = tni_attention_of(call);
    sketch        s = { .g      = g,
                        .a      = &a,
                        .call   = call,
                        .dtype  = a.q->dtype == TN_F16 ? TNI_DNN_F16 : TNI_DNN_BF16,
                        .scores = { a.B, a.H, a.T, a.S },
                        .rows   = { a.B, a.H, a.T, 1 } };
    s.t.q           = memory_of(&s, a.q, false);
    s.t.k           = memory_of(&s, a.k, true);
    s.t.scale       = tni_dnn_number(g);
    if (a.extras) s.t.mask = mask_of(&s, a.extra[0].arg);
    if (needs_lengths(&a)) add_lengths(&s);
    if (a.causal || s.t.keys) s.t.lowest = tni_dnn_number(g);
    if (a.g) write_backward(&s, deterministic);
    else write_forward(&s);
    return s.t;
}

// ---- the method --------------------------------------------------------------------------------

static size_t round_up(size_t n)
{
    return (n + PART - 1) / PART * PART;
}

// The bytes of a number for each batch.
static size_t lengths_bytes(const tni_attention *a)
{
    return round_up((size_t)a->B * sizeof(int32_t));
}

// Where a session's plans run.
static tni_dnn_env env_of(const tni_cuda *c)
{
    return (tni_dnn_env){ .cu     = c->gpu->cu,
                          .cx     = c->gpu->cx,
                          .device = c->gpu->number,
                          .gpu    = c->gpu->name,
                          .timing = !c->deterministic };
}

static const char *name_of(const tni_call *call)
{
    return call->op == TNI_attention ? "attention" : "attention_grad";
}

// Writes the graph and asks the library about it; the table of plans remembers the answer.
static tni_dnn_plans *find_plans(tni_cuda *c, const tni_call *call, named_tensors *t)
{
    tni_text       none = { "" };
    tni_dnn_env    at   = env_of(c);
    tni_dnn_graph *g    = calloc(1, sizeof *g);
    if (!g) return NULL;
    *t               = write_graph(g, call, c->deterministic);
    tni_dnn_plans *p = tni_dnn_find(g, &at, name_of(call), &none);
    free(g);
    return p;
}

// Lays out what the graph keeps in memory of ours, one part behind the other. The log-sums of a
// forward call that does not want them take delta's place.
static void lay_out(attention_work *w, const tni_attention *a)
{
    size_t rows = (size_t)(a->B * a->H * a->T);
    w->acc      = 0;
    w->delta    = w->acc + (w->t.acc ? round_up(rows * (size_t)a->D * sizeof(float)) : 0);
    w->lengths  = w->delta + round_up(rows * sizeof(float));
    w->end      = w->lengths + (w->t.keys ? 2 * lengths_bytes(a) : 0);
}

static size_t cudnn_version(void)
{
    tni_text         none = { "" };
    const tni_cudnn *dnn  = tni_cudnn_get(&none);
    return dnn ? dnn->version() : 0;
}

static const char *declines(tni_cuda *c, const tni_call *call)
{
    tni_attention a   = tni_attention_of(call);
    const char   *why = declines_call(call, &a);
    named_tensors unused;
    if (why) return why;
    if (!cudnn_version()) return "there is no cuDNN: `tenon doctor` says why";
    if (a.extras && cudnn_version() < MASKS_SINCE) return "cuDNN adds masks since 9.19";
    return find_plans(c, call, &unused) ? NULL : "cuDNN has no engine for it";
}

static void *open(tni_cuda *c, const tni_call *call)
{
    tni_attention   a = tni_attention_of(call);
    attention_work *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->plans = find_plans(c, call, &w->t);
    if (!w->plans) {
        free(w);
        return NULL;
    }
    lay_out(w, &a);
    tni_dnn_begin(w->plans);
    return w;
}

static int count(void *work)
{
    const attention_work *w = work;
    return tni_dnn_wait(w->plans) ? tni_dnn_count(w->plans) : 0;
}

// PART more, since scratch need not begin at a multiple of it.
static size_t scratch(void *work)
{
    const attention_work *w = work;
    return PART + round_up(tni_dnn_workspace(w->plans)) + w->end;
}

static void settle(void *work, int candidate)
{
    const attention_work *w = work;
    tni_dnn_settle(w->plans, candidate);
}

// The numbers that a run reads in host memory.
typedef struct {
    float scale, lowest, one;
} numbers;

// Sets an address, unless the graph has no such tensor; false if it is not aligned.
static bool bind(tni_dnn_binding *b, int tensor, const void *at)
{
    if (tensor) b->at[tensor] = (void *)(uintptr_t)at;
    return !tensor || (uintptr_t)at % ALIGN == 0;
}

// Gradients of keys or values that the call does not want are written to scratch of the session.
// False if there is none.
static bool bind_key_gradients(tni_cuda *c, const attention_work *w, const tni_call *call,
                               tni_dnn_binding *b)
{
    tni_attention a  = tni_attention_of(call);
    char         *dk = call->more[0].data, *dv = call->more[1].data;
    size_t        keys = round_up((size_t)(a.B * a.S * a.Hk * a.D) * 2);
    size_t        more = (size_t)(a.B * a.S * a.Hk * a.E) * 2;
    if (!dk || !dv) {
        char *instead = (char *)(uintptr_t)tni_cuda_scratch(c, keys + more);
        if (!instead) return false;
        if (!dk) dk = instead;
        if (!dv) dv = instead + keys;
    }
    return bind(b, w->t.dk, dk) && bind(b, w->t.dv, dv);
}

// Fills in all addresses. False if one does not suit the library, or there is no memory.
static bool bind_all(tni_cuda *c, const attention_work *w, const tni_call *call, numbers *n,
                     tni_dnn_binding *b)
{
    tni_attention        a = tni_attention_of(call);
    const named_tensors *t = &w->t;
    *n                     = (numbers){ (float)a.scale, -INFINITY, 1 };
    b->workspace           = (void *)round_up((uintptr_t)call->scratch);
    char *own              = (char *)b->workspace + round_up(tni_dnn_workspace(w->plans));
    if (t->scale) b->at[t->scale] = &n->scale;
    if (t->lowest) b->at[t->lowest] = &n->lowest;
    if (t->one) b->at[t->one] = &n->one;
    bool ok = bind(b, t->q, a.q->data) && bind(b, t->k, a.k->data) && bind(b, t->v, a.v->data) &&
              bind(b, t->mask, a.extras ? a.extra[0].arg->data : NULL) &&
              bind(b, t->lse, a.lse->data ? a.lse->data : own + w->delta);
    if (!a.g) return ok && bind(b, t->o, call->out.data);
    return ok && bind(b, t->o, a.o->data) && bind(b, t->g, a.g->data) &&
           bind(b, t->acc, own + w->acc) && bind(b, t->delta, own + w->delta) &&
           bind(b, t->queries, own + w->lengths) &&
           bind(b, t->keys, own + w->lengths + lengths_bytes(&a)) &&
           bind(b, t->dq, call->out.data) && bind_key_gradients(c, w, call, b);
}

// Writes the numbers of queries and keys where the graph reads them.
static int fill_lengths(tni_cuda *c, const attention_work *w, const tni_call *call,
                        const tni_dnn_binding *b)
{
    tni_attention a = tni_attention_of(call);
    if (!w->t.keys) return TNI_CU_OK;
    int e = c->gpu->cu->set32((tni_cuptr)(uintptr_t)b->at[w->t.queries], (unsigned)a.T, (size_t)a.B,
                              c->stream);
    if (e) return e;
    return c->gpu->cu->set32((tni_cuptr)(uintptr_t)b->at[w->t.keys], (unsigned)a.S, (size_t)a.B,
                             c->stream);
}

// Launches unless a recorded run replaces it. The mark is all that may differ between runs of the
// form: the addresses and the scale. The library's kernels may read masks and sums without waiting
// for the kernel before them: see cudnn_conv.c.
static tn_status launch(tni_cuda *c, void *work, const tni_call *call, int candidate, tni_text *why)
{
    const attention_work *w = work;
    tni_dnn_binding       b = { .workspace = NULL };
    numbers               n;
    struct {
        tni_dnn_binding addresses;
        double          scale;
        const void     *work;
    } mark = { .work = work };
    if (!bind_all(c, w, call, &n, &b)) {
        tni_text_add(why, "an operand is not at a multiple of 16 bytes");
        return TN_EARG;
    }
    mark.addresses = b;
    mark.scale     = n.scale;
    if (w->t.scale)
        mark.addresses.at[w->t.scale] = NULL;  // host addresses, which mean nothing later
    if (w->t.lowest) mark.addresses.at[w->t.lowest] = NULL;
    if (w->t.one) mark.addresses.at[w->t.one] = NULL;
    int e = w->t.mask || w->t.g ? tni_replay_finish(c, INT64_MAX, call->scratch) : TNI_CU_OK;
    if (e) return tni_cuda_status(c, e, "attention", why);
    if (!tni_replay_library_call(c, &mark, sizeof mark)) return TN_OK;
    e = fill_lengths(c, w, call, &b);
    if (e) return tni_cuda_status(c, e, "attention", why);
    if (!tni_dnn_run(w->plans, candidate, &b, c->stream)) return TN_OK;
    tni_text_add(why, "cuDNN does not run it");
    return TN_EDEVICE;
}

static const char *varies(tni_cuda *c, void *work, const tni_call *call)
{
    (void)work;
    if (c->deterministic) return NULL;
    return call->op == TNI_attention
               ? "its algorithm is chosen by timing, unless TN_DETERMINISTIC=1"
               : "parts of the gradient of q are added in any order, unless TN_DETERMINISTIC=1";
}

const tni_method tni_attention_by_cudnn = { .name     = "cuDNN",
                                            .may_fail = true,
                                            .version  = cudnn_version,
                                            .declines = declines,
                                            .open     = open,
                                            .count    = count,
                                            .scratch  = scratch,
                                            .launch   = launch,
                                            .settle   = settle,
                                            .varies   = varies };
