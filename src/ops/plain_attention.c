// Attention and its gradient out of products, maps and a softmax: what tn_attention records where
// the op does not serve, and what the rules of gradients are made of.
//
// T queries, S keys and values, D their size, E that of a value; H heads of queries, Hk of keys
#include "ops/composite.h"
#include "ops/op_functions.h"

#include <string.h>

// ---- heads -------------------------------------------------------------------------------------

// (B, T, H, D) as (B, H, T, D), or back.
static tn_tensor *swap_heads(tn_tensor *x)
{
    return tn_transpose(x, 1, 2);
}

// x (..., Hk, S, D) with each head as often as H asks for. One head alone broadcasts by itself.
tn_tensor *tni_repeat_heads(tn_tensor *x, int64_t H)
{
    int64_t size[TN_MAX_RANK];
    int     rank = x ? tn_rank(x) : 0;
    if (rank < 3 || tn_size(x, -3) <= 1 || H <= 1 || tn_size(x, -3) == H) return x;
    int64_t Hk = tn_size(x, -3);
    if (rank == TN_MAX_RANK)
        return tni_fail(x->cx, TN_EARG, "attention: %s has no axis left to repeat heads",
                        tni_shape_of(x).s);
    for (int i = 0; i < rank; i++) size[i + (i > rank - 3)] = tn_size(x, i);
    size[rank - 2] = H / Hk;
    x              = tn_expand(tn_unsqueeze(x, -3), rank + 1, size);
    size[rank - 3] = H;
    memmove(size + rank - 2, size + rank - 1, 2 * sizeof *size);
    return tn_reshape(x, rank, size);
}

// x (B, H, S, D) summed over the heads of each of Hk groups.
static tn_tensor *sum_groups(tn_tensor *x, int64_t Hk)
{
    if (!x || tn_size(x, 1) == Hk) return x;
    x = tn_reshape(x, TN_SHAPE(tn_size(x, 0), Hk, -1, tn_size(x, 2), tn_size(x, 3)));
    return tn_sum(x, 2);
}

// ---- weights -----------------------------------------------------------------------------------

// Whether key j is hidden from query i by causal, window or length, broadcasting to the scores;
// NULL if all keys are seen, or after a failure. tni_attention_keys says which are.
static tn_tensor *hidden_keys(const tni_attention_args *a)
{
    const struct tni_attr_attention *t  = &a->attr->attention;
    tn_ctx                          *cx = a->q->cx;
    int64_t                          T = tn_size(a->q, -2), S = tn_size(a->k, -2);
    tn_tensor                       *i = tn_unsqueeze(tn_arange(cx, TN_I64, 0, (double)T, 1), 1);
    tn_tensor *j = tn_arange(cx, TN_I64, 0, (double)S, 1), *hidden = NULL, *n = NULL;
    if (a->lengths) {
        n      = tn_clamp_i64(tn_cast(a->lengths, TN_I64), 0, S);
        i      = tn_add(i, tn_sub_i64(n, T));
        hidden = tn_ge(j, n);
    }
    if (t->window) {
        tn_tensor *far = tn_ge_i64(tn_abs(tn_sub(j, i)), t->window);
        hidden         = hidden ? tn_logical_or(hidden, far) : far;
    }
    if (t->causal) {
        tn_tensor *future = tn_gt(j, i);
        hidden            = hidden ? tn_logical_or(hidden, future) : future;
    }
    return hidden;
}

// A bool mask keeps where it is true; a float mask is added to the scores.
static tn_tensor *apply_mask(tn_tensor *score, tn_tensor *mask)
{
    if (tn_dtype_of(mask) == TN_BOOL) return tn_masked_fill(score, tn_logical_not(mask), -INFINITY);
    return tn_add(score, tn_cast(mask, tn_dtype_of(score)));
}

// A softmax in which a row of nothing but -inf gives zeros, not NaN. The scores of such rows are
// taken as 0 beforehand, so that no NaN comes back through the gradient.
static tn_tensor *masked_softmax(tn_tensor *score)
{
    if (!score || tn_size(score, -1) == 0) return score;
    tn_tensor *blind = tn_eq_s(tn_max_keep(tn_detach(score), -1), -INFINITY);
    return tn_masked_fill(tn_softmax(tn_masked_fill(score, blind, 0), -1), blind, 0);
}

// softmax(scale q k'), masked, or what the score program makes of scale q k'. q is scaled, not the
// product: it is the smaller tensor. Only causal leaves every query a key. value, unless NULL, gets
// every value of the program, the slopes among them.
static tn_tensor *weights_by(const tni_attention_args *a, tn_tensor **value)
{
    const struct tni_attr_attention *t = &a->attr->attention;
    tn_tensor                       *own[TNI_SCORE_OPS];
    if (!a->q || !a->k) return NULL;
    tn_tensor *k     = tni_repeat_heads(a->k, tn_rank(a->q) > 2 ? tn_size(a->q, -3) : 1);
    tn_tensor *score = tn_matmul(tn_mul_s(a->q, t->scale), tn_transpose(k, -1, -2));
    if (!score) return NULL;
    if (t->score) {
        int count = value ? t->score->all : t->score->count;
        if (!value) value = own;
        if (!tni_score_record(a->q->cx, t->score->op, count, score, a->extra, value)) return NULL;
        score = value[t->score->count - 1];
    } else if (a->extra[0]) {
        score = apply_mask(score, a->extra[0]);
    }
    if (t->causal || t->window || a->lengths)
        score = tn_masked_fill(score, hidden_keys(a), -INFINITY);
    bool blind = a->extra[0] || t->score || t->window || a->lengths;
    return blind ? masked_softmax(score) : tn_softmax(score, -1);
}

tn_tensor *tni_attention_weights(const tni_attention_args *a)
{
    return weights_by(a, NULL);
}

// What tn_dropout does, by the random numbers that the attributes name.
tn_tensor *tni_attention_drop(const tni_attr *attr, tn_tensor *x)
{
    const struct tni_attr_attention *t = &attr->attention;
    if (!x || !t->drops) return x;
    if (t->dropout == 1) return tn_mul_s(x, 0);
    tni_view   v = tni_layout(x);
    tni_attr   r = { .random = { t->key, t->counter } };
    tn_tensor *u = tni_record(x->cx, TNI_uniform, TN_F32, v.rank, v.size, 0, NULL, &r);
    return tni_drop(x, u, t->dropout);
}

// ---- the gradient ------------------------------------------------------------------------------

tni_attention_args tni_attention_sources(const tni_attr *attr, tn_tensor *const *x)
{
    const struct tni_attr_attention *t = &attr->attention;
    tni_attention_args               a = { .attr = attr };
    a.q = swap_heads(x[0]), a.k = swap_heads(x[1]), a.v = swap_heads(x[2]);
    for (int i = 0; i < t->extras; i++) a.extra[i] = x[3 + i];
    if (t->counted) a.lengths = tn_reshape(x[3 + t->extras], TN_SHAPE(-1, 1, 1, 1));
    return a;
}

tn_tensor *tni_sum_to(tn_tensor *x, const tn_tensor *like)
{
    uint32_t axes = 0;
    for (int i = 0; x && i < tn_rank(x); i++)
        if (tn_size(like, i) == 1 && tn_size(x, i) != 1) axes |= 1u << i;
    return axes ? tni_sum_over(x, "attention", axes, true) : x;
}

static tn_tensor *transposed_times(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(tn_transpose(a, -1, -2), b);
}

// With the weights p and their gradient dp = g v', the scores get p (dp - sum(p dp)): the gradient
// of a softmax. Dropped weights pass no gradient on.
tn_tensor *tni_fallback_attention_grad(const tni_fallback_args *r)
{
    tni_attention_args a     = tni_attention_sources(r->attr, r->x);
    const tni_score   *score = r->attr->attention.score;
    tn_tensor         *value[TNI_SCORE_OPS];
    tn_tensor         *g = swap_heads(r->x[r->nin - 1]), *p = weights_by(&a, value);
    if (!g || !p || !a.v) return NULL;
    int64_t    H = tn_size(a.q, 1), Hk = tn_size(a.k, 1);
    tn_tensor *k = tni_repeat_heads(a.k, H), *v = tni_repeat_heads(a.v, H);
    tn_tensor *dp = tni_attention_drop(r->attr, tn_matmul(g, tn_transpose(v, -1, -2)));
    tn_tensor *ds = tn_mul(p, tn_sub(dp, tn_sum_keep(tn_mul(p, dp), -1)));
    for (int i = 0; i < r->nout - 3; i++) {
        bool       none = score && score->source_slope[i] < 0;  // of a source that is not of floats
        tn_tensor *by   = score && !none ? value[score->source_slope[i]] : NULL;
        r->more[2 + i]  = none ? tn_zeros_like(a.extra[i])
                               : tni_sum_to(by ? tn_mul(ds, by) : ds, a.extra[i]);
    }
    if (score) ds = tn_mul(ds, value[score->slope]);
    ds         = tn_mul_s(ds, r->attr->attention.scale);
    r->more[0] = swap_heads(sum_groups(transposed_times(ds, a.q), Hk));
    r->more[1] = swap_heads(sum_groups(transposed_times(tni_attention_drop(r->attr, p), g), Hk));
    return swap_heads(tn_matmul(ds, k));
}
