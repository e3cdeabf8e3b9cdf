// Scaled dot-product attention. A query that may look at no key has a result of 0.
//
// T queries, S keys and values, D their size, E that of a value
#include "ops/compose.h"

// Whether key j comes after query i, (T, S): all but the lower triangle from the top left.
static tn_tensor *future(tn_ctx *cx, int64_t T, int64_t S)
{
    tn_tensor *i = tn_unsqueeze(tn_arange(cx, TN_I64, 0, (double)T, 1), 1);
    return tn_gt(tn_arange(cx, TN_I64, 0, (double)S, 1), i);
}

static tn_tensor *apply_mask(tn_tensor *score, tn_tensor *mask)
{
    static const char *const names[] = { "q", "mask" };
    if (!tni_args("attention", 2, (tn_tensor *const[]){ score, mask }, names)) return NULL;
    if (!tni_broadcasts("attention", mask, "mask", score, "scores")) return NULL;
    if (tn_dtype_of(mask) == TN_BOOL) return tn_masked_fill(score, tn_logical_not(mask), -INFINITY);
    if (!tni_want_float(mask, "attention: mask")) return NULL;
    return tn_add(score, tn_cast(mask, tn_dtype_of(score)));
}

// Softmax in which a row of nothing but -inf gives zeros. The scores of such rows are taken as 0
// before, so that no NaN comes back through the gradient.
static tn_tensor *masked_softmax(tn_tensor *score)
{
    if (!score || tn_size(score, -1) == 0) return score;
    tn_tensor *blind = tn_eq_s(tn_max_keep(tn_detach(score), -1), -INFINITY);
    return tn_masked_fill(tn_softmax(tn_masked_fill(score, blind, 0), -1), blind, 0);
}

static bool fits(tn_ctx *cx, tn_tensor *q, tn_tensor *k, tn_tensor *v)
{
    bool ok = tn_rank(q) >= 2 && tn_rank(k) >= 2 && tn_rank(v) >= 2 &&
              tn_size(q, -1) == tn_size(k, -1) && tn_size(k, -2) == tn_size(v, -2);
    if (!ok)
        tni_fail(cx, TN_ESHAPE, "attention: q %s, k %s and v %s are not (T, D), (S, D) and (S, E)",
                 tni_shape_of(q).s, tni_shape_of(k).s, tni_shape_of(v).s);
    return ok && tni_want_float(q, "attention");
}

tn_tensor *tn_attention(tn_tensor *q, tn_tensor *k, tn_tensor *v, tn_attention_opts o)
{
    static const char *const names[] = { "q", "k", "v" };
    tn_ctx                  *cx = tni_args("attention", 3, (tn_tensor *const[]){ q, k, v }, names);
    if (!cx || !fits(cx, q, k, v)) return NULL;
    int64_t    T = tn_size(q, -2), S = tn_size(k, -2), D = tn_size(q, -1);
    double     scale = tni_or_default(o.scale, 1 / sqrt((double)D));
    tn_tensor *score = tn_matmul(tn_mul_s(q, scale), tn_transpose(k, -1, -2));
    if (o.causal) score = tn_masked_fill(score, future(cx, T, S), -INFINITY);
    if (o.mask) score = apply_mask(score, o.mask);
    tn_tensor *p = o.mask ? masked_softmax(score) : tn_softmax(score, -1);
    if (o.dropout != 0) p = tn_dropout(p, o.dropout, true);
    return tn_matmul(p, v);
}
