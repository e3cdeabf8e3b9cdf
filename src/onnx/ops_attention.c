// Attention and rotary positions, of opset 23 on.
//
// The order of steps is that of the standard; each may be shown as the fourth output:
//
//   scores = (q sqrt(scale)) (k sqrt(scale))'     0
//   scores = cap * tanh(scores / cap)             1
//   scores = scores + mask                        2
//   weights = softmax(scores)                     3
//
// Keys that come before are joined to the new ones; a query at place i then sees those up to past + i.
#include "onnx/onnx_ops.h"

#include <math.h>

// (B, T, heads * D) as (B, heads, T, D).
static tn_tensor *split_heads(tn_tensor *x, int64_t heads)
{
    if (!x || tn_rank(x) == 4) return x;
    int64_t d = heads > 0 ? tn_size(x, 2) / heads : 0;
    return tn_transpose(tn_reshape(x, TN_SHAPE(tn_size(x, 0), tn_size(x, 1), heads, d)), 1, 2);
}

// (B, heads, T, D) as (B, T, heads * D).
static tn_tensor *join_heads(tn_tensor *x)
{
    x = tn_contiguous(tn_transpose(x, 1, 2));
    return x ? tn_reshape(x, TN_SHAPE(tn_size(x, 0), tn_size(x, 1), tn_size(x, 2) * tn_size(x, 3)))
             : NULL;
}

// What a query may see as a bool (T, S) or (B, 1, T, S): the keys before it, and of each batch as many as there are.
// With lengths the queries are the last T of each batch's keys.
static tn_tensor *visible(tni_onnx_call *c, int64_t T, int64_t S, int64_t past, tn_tensor *lengths,
                          bool causal)
{
    tn_tensor *i = tn_reshape(tn_arange_i64(c->cx, TN_I64, 0, T, 1), TN_SHAPE(T, 1)),
              *j = tn_arange_i64(c->cx, TN_I64, 0, S, 1), *see = NULL;
    if (lengths) {
        lengths = tn_reshape(tn_cast(lengths, TN_I64), TN_SHAPE(-1, 1, 1, 1));
        see     = tn_lt(j, lengths);
        if (causal) return tn_logical_and(see, tn_le(j, tn_add(i, tn_add_i64(lengths, -T))));
        return see;
    }
    return causal ? tn_le(j, tn_add_i64(i, past)) : NULL;
}

// What is added to scores: 0 or -inf for a bool, its numbers for a float; cut masks are -inf beyond their end.
static tn_tensor *bias_of(tn_tensor *mask, tn_dtype dt, int64_t S)
{
    tn_tensor *none = tn_full(tn_ctx_of(mask), dt, TN_0D, -INFINITY),
              *zero = tn_zeros(tn_ctx_of(mask), dt, TN_0D);
    tn_tensor *bias = tn_dtype_of(mask) == TN_BOOL ? tn_where(mask, zero, none) : tn_cast(mask, dt);
    int64_t    before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    if (!bias || tn_size(bias, -1) >= S || tn_size(bias, -1) == 1) return bias;
    after[tn_rank(bias) - 1] = S - tn_size(bias, -1);
    return tn_pad(bias, before, after, -INFINITY);
}

// Weights of no key at all are 0, not NaN.
static tn_tensor *softmax_or_zero(tn_tensor *x)
{
    tn_tensor *p = tn_softmax(x, -1);
    return tn_where(tn_isnan(p), tn_zeros_like(x), p);
}

// Attention(q, k, v, mask, past k, past v, lengths; is_causal, scale, softcap, heads): y, all keys, all values, scores. Without
// a soft cap and scores it is Tenon's own; otherwise it is spelled out, each step where the standard has it.
bool tni_onnx_attention(tni_onnx_call *c)
{
    tn_tensor *q = tni_onnx_in(c, 0), *k = tni_onnx_in(c, 1), *v = tni_onnx_in(c, 2),
              *mask = tni_onnx_in(c, 3), *lengths = tni_onnx_in(c, 6);
    if (!q || !k || !v || tn_rank(q) < 3) return false;
    bool    flat = tn_rank(q) == 3, causal = tni_onnx_attr_int(c, "is_causal", 0) != 0;
    int64_t past = 0, mode = tni_onnx_attr_int(c, "qk_matmul_output_mode", 0);
    double  cap = tni_onnx_attr_real(c, "softcap", 0);
    q           = split_heads(q, tni_onnx_attr_int(c, "q_num_heads", 0));
    k           = split_heads(k, tni_onnx_attr_int(c, "kv_num_heads", 0));
    v           = split_heads(v, tni_onnx_attr_int(c, "kv_num_heads", 0));
    if (!q || !k || !v) return false;
    if (tni_onnx_has(c, 4) && tni_onnx_has(c, 5)) {
        tn_tensor *pk = tni_onnx_in(c, 4), *pv = tni_onnx_in(c, 5);
        past = pk ? tn_size(pk, 2) : 0;
        k    = tn_concat(2, (tn_tensor *[]){ pk, k }, 2);
        v    = tn_concat(2, (tn_tensor *[]){ pv, v }, 2);
    }
    if (!k || !v || !tni_onnx_out(c, 1, k) || !tni_onnx_out(c, 2, v)) return false;
    int64_t T = tn_size(q, 2), S = tn_size(k, 2), heads = tn_size(q, 1),
            each     = heads / tn_size(k, 1);
    tn_tensor *see   = visible(c, T, S, past, lengths, causal);
    double     scale = tni_onnx_attr_real(c, "scale", 0);
    if (scale == 0) scale = 1 / sqrt((double)tn_size(q, 3));
    tn_tensor *bias = mask ? bias_of(mask, tn_dtype_of(q), S) : NULL;
    if (see) {
        tn_tensor *more = bias_of(see, tn_dtype_of(q), S);
        bias            = bias ? tn_add(bias, more) : more;
    }
    if (cap == 0 && c->nout < 4) {
        tn_tensor *y = tn_attention(q, k, v, (tn_attention_opts){ .mask = bias, .scale = scale });
        return tni_onnx_out(c, 0, flat ? join_heads(y) : y);
    }
    if (each > 1) {
        k = tn_repeat_interleave(k, 1, &each, 1);
        v = tn_repeat_interleave(v, 1, &each, 1);
    }
    tn_tensor *score = tn_matmul(tn_mul_s(q, sqrt(scale)),
                                 tn_transpose(tn_mul_s(k, sqrt(scale)), 2, 3)),
              *shown = score;
    if (cap != 0) score = tn_mul_s(tn_tanh(tn_div_s(score, cap)), cap);
    if (mode == 1) shown = score;
    if (bias) score = tn_add(score, bias);
    if (mode == 2) shown = score;
    score = softmax_or_zero(score);
    if (mode == 3) shown = score;
    tn_tensor *y = tn_matmul(score, v);
    return tni_onnx_out(c, 0, flat ? join_heads(y) : y) && tni_onnx_out(c, 3, shown);
}

// Rotates pairs of x by cosines and sines, which lie in caches by position.
// Pairs are an element of each half, or neighbours if interleaved; of a partial width the rest stays. With positions the
// caches are tables, without them they have a row for each token.
bool tni_onnx_rotary_embedding(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *cosine = tni_onnx_in(c, 1), *sine = tni_onnx_in(c, 2),
              *at = tni_onnx_in(c, 3);
    if (!x || !cosine || !sine || tn_rank(x) < 3) return false;
    bool flat = tn_rank(x) == 3, pairs = tni_onnx_attr_int(c, "interleaved", 0) != 0;
    if (flat) x = split_heads(x, tni_onnx_attr_int(c, "num_heads", 0));
    if (!x) return false;
    int64_t all = tn_size(x, 3), width = tni_onnx_attr_int(c, "rotary_embedding_dim", 0);
    if (!width) width = all;
    if (at) {
        cosine = tn_embed(at, cosine);
        sine   = tn_embed(at, sine);
    }
    cosine            = tn_unsqueeze(tn_slice(cosine, -1, 0, width / 2, 1), 1);
    sine              = tn_unsqueeze(tn_slice(sine, -1, 0, width / 2, 1), 1);
    tn_tensor *turned = tn_slice(x, -1, 0, width, 1), *rest = tn_slice(x, -1, width, all, 1);
    tn_tensor *a    = pairs ? tn_slice(turned, -1, 0, TN_TO_END, 2)
                            : tn_slice(turned, -1, 0, width / 2, 1);
    tn_tensor *b    = pairs ? tn_slice(turned, -1, 1, TN_TO_END, 2)
                            : tn_slice(turned, -1, width / 2, width, 1);
    tn_tensor *y[2] = { tn_sub(tn_mul(a, cosine), tn_mul(b, sine)),
                        tn_add(tn_mul(a, sine), tn_mul(b, cosine)) };
    tn_tensor *z    = pairs ? tn_flatten(tn_stack(2, y, -1), 3, 4) : tn_concat(2, y, -1);
    if (width < all) z = tn_concat(2, (tn_tensor *[]){ z, rest }, -1);
    return tni_onnx_out(c, 0, flat ? join_heads(z) : z);
}
