// Attention in its kinds, and rotary positions: of opset 23 on, of previews, and what
// com.microsoft's are made of.
//
// The order of steps is that of the standard; each may be shown as the fourth output:
//
//   scores = (q sqrt(scale)) (k sqrt(scale))'     0
//   scores = cap * tanh(scores / cap)             1
//   scores = scores + mask                        2
//   weights = softmax(scores)                     3
//
// Keys that come before are joined to the new ones; a query at place i then sees those up to past +
// i.
#include "onnx/onnx_ops.h"

#include <math.h>

// (B, T, heads * D) as (B, heads, T, D).
tn_tensor *tni_onnx_split_heads(tn_tensor *x, int64_t heads)
{
    if (!x || tn_rank(x) == 4) return x;
    int64_t d = heads > 0 ? tn_size(x, 2) / heads : 0;
    return tn_transpose(tn_reshape(x, TN_SHAPE(tn_size(x, 0), tn_size(x, 1), heads, d)), 1, 2);
}

// (B, heads, T, D) as (B, T, heads * D).
tn_tensor *tni_onnx_join_heads(tn_tensor *x)
{
    x = x ? tn_contiguous(tn_transpose(x, 1, 2)) : NULL;
    return x ? tn_reshape(x, TN_SHAPE(tn_size(x, 0), tn_size(x, 1), tn_size(x, 2) * tn_size(x, 3)))
             : NULL;
}

// ---- the core ----------------------------------------------------------------------------------

// What a query may see as a bool (T, S) or (B, 1, T, S): of each batch as many keys as there are,
// the keys before it, and those in a window around it. A query has the place past + i, or with
// lengths one of the last T of its batch's keys.
static tn_tensor *visible(tn_ctx *cx, const tni_onnx_attend *a, int64_t T, int64_t S)
{
    tn_tensor *i = tn_reshape(tn_arange_i64(cx, TN_I64, 0, T, 1), TN_SHAPE(T, 1)),
              *j = tn_arange_i64(cx, TN_I64, 0, S, 1), *see = NULL, *more[3] = { 0 };
    if (a->lengths) {
        tn_tensor *l = tn_reshape(tn_cast(a->lengths, TN_I64), TN_SHAPE(-1, 1, 1, 1));
        see          = tn_lt(j, l);
        i            = tn_add(i, tn_add_i64(l, -T));
    } else i = tn_add_i64(i, a->past);
    if (a->causal) more[0] = tn_le(j, i);
    if (a->left >= 0) more[1] = tn_ge(j, tn_add_i64(i, -a->left));
    if (a->right >= 0) more[2] = tn_le(j, tn_add_i64(i, a->right));
    for (int k = 0; k < 3; k++)
        if (more[k]) see = see ? tn_logical_and(see, more[k]) : more[k];
    return see;
}

// What is added to scores: 0 or -inf for a bool, its numbers for a float.
static tn_tensor *bias_of(tn_tensor *mask, tn_dtype dt)
{
    tn_tensor *none = tn_full(tn_ctx_of(mask), dt, TN_0D, -INFINITY),
              *zero = tn_zeros(tn_ctx_of(mask), dt, TN_0D);
    return tn_dtype_of(mask) == TN_BOOL ? tn_where(mask, zero, none) : tn_cast(mask, dt);
}

// A mask that is shorter than the keys hides the rest.
static tn_tensor *long_mask(tn_tensor *mask, int64_t S)
{
    int64_t before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    if (!mask || !tn_rank(mask) || tn_size(mask, -1) >= S || tn_size(mask, -1) == 1) return mask;
    after[tn_rank(mask) - 1] = S - tn_size(mask, -1);
    return tn_dtype_of(mask) == TN_BOOL ? tn_pad_i64(mask, before, after, 0)
                                        : tn_pad(mask, before, after, -INFINITY);
}

// Weights of no key at all are 0, not NaN. A sink is one more score of each head, whose weight goes
// nowhere.
static tn_tensor *softmax_or_zero(tn_tensor *x, tn_tensor *sink)
{
    if (sink && x) {
        int64_t    size[4] = { tn_size(x, 0), tn_size(x, 1), tn_size(x, 2), 1 };
        tn_tensor *s = tn_expand(tn_reshape(tn_cast(sink, tn_dtype_of(x)), TN_SHAPE(1, -1, 1, 1)),
                                 4, size);
        x            = tn_softmax(tn_concat(2, (tn_tensor *[]){ x, s }, -1), -1);
        return x ? tn_slice(x, -1, 0, tn_size(x, -1) - 1, 1) : NULL;
    }
    tn_tensor *p = tn_softmax(x, -1);
    return tn_where(tn_isnan(p), x ? tn_zeros_like(x) : NULL, p);
}

// Whether Tenon's own attention can say what is seen, so that no mask is made: places of queries
// are those of all keys, or the last ones, and a window is of the same width at both sides or has
// nothing at the right.
static bool is_plain(const tni_onnx_attend *a, int64_t T, int64_t S)
{
    bool window = a->left < 0 ? a->right < 0 : a->causal ? a->right < 0 : a->right == a->left;
    return a->cap == 0 && !a->shown && !a->sink && !a->softmax && window &&
           (a->lengths || !a->past || S == a->past + T || (!a->causal && a->left < 0));
}

// Without a soft cap and scores it is Tenon's own; otherwise it is spelled out, each step where the
// standard has it.
tn_tensor *tni_onnx_attention_of(tni_onnx_attend *a)
{
    tn_tensor *q = a->q, *k = a->k, *v = a->v;
    if (!q || !k || !v || tn_rank(q) != 4 || tn_rank(k) != 4 || tn_rank(v) != 4) return NULL;
    tn_ctx  *cx = tn_ctx_of(q);
    tn_dtype dt = tn_dtype_of(q);
    int64_t  T = tn_size(q, 2), S = tn_size(k, 2),
            each     = tn_size(k, 1) ? tn_size(q, 1) / tn_size(k, 1) : 0;
    double     scale = a->scale != 0 ? a->scale : 1 / sqrt((double)tn_size(q, 3));
    tn_tensor *mask  = long_mask(a->mask, S);
    if (is_plain(a, T, S)) {
        tn_attention_opts o = {
            .mask = mask, .scale = scale, .causal = a->causal, .lengths = a->lengths
        };
        if (a->left >= 0) o.window = a->left + 1;
        if (!o.lengths && a->past && (a->causal || o.window))
            o.lengths = tn_full_i64(cx, TN_I64, TN_SHAPE(tn_size(q, 0)), S);
        if (mask && tn_dtype_of(mask) != TN_BOOL) o.mask = tn_cast(mask, dt);
        return tn_attention(q, k, v, o);
    }
    tn_tensor *see = visible(cx, a, T, S), *bias = mask ? bias_of(mask, dt) : NULL;
    if (see) bias = bias ? tn_add(bias, bias_of(see, dt)) : bias_of(see, dt);
    if (each > 1) {
        k = tn_repeat_interleave(k, 1, &each, 1);
        v = tn_repeat_interleave(v, 1, &each, 1);
    }
    tn_tensor *score = tn_matmul(tn_mul_s(q, sqrt(scale)),
                                 tn_transpose(tn_mul_s(k, sqrt(scale)), 2, 3)),
              *shown = score;
    if (a->cap != 0) score = tn_mul_s(tn_tanh(tn_div_s(score, a->cap)), a->cap);
    if (a->mode == 1) shown = score;
    if (bias) score = tn_add(score, bias);
    if (a->mode == 2) shown = score;
    score = tn_cast(softmax_or_zero(a->softmax ? tn_cast(score, a->softmax) : score, a->sink), dt);
    if (a->mode == 3) shown = score;
    if (a->shown) *a->shown = shown;
    return tn_matmul(score, v);
}

// ---- the operators -----------------------------------------------------------------------------

// Attention(q, k, v, mask, past k, past v, lengths; is_causal, scale, softcap, heads, windows): y,
// all keys, all values, scores.
bool tni_onnx_attention(tni_onnx_call *c)
{
    tn_tensor *q = tni_onnx_in(c, 0), *k = tni_onnx_in(c, 1), *v = tni_onnx_in(c, 2), *shown = NULL;
    int64_t    heads = tni_onnx_attr_int(c, "q_num_heads", 0),
            kv       = tni_onnx_attr_int(c, "kv_num_heads", 0),
            type     = tni_onnx_attr_int(c, "softmax_precision", 0);
    if (!q || !k || !v || tn_rank(q) < 3) return false;
    bool            flat = tn_rank(q) == 3;
    tni_onnx_attend a    = { .q       = tni_onnx_split_heads(q, heads),
                             .k       = tni_onnx_split_heads(k, kv),
                             .v       = tni_onnx_split_heads(v, kv),
                             .mask    = tni_onnx_in(c, 3),
                             .lengths = tni_onnx_in(c, 6),
                             .causal  = tni_onnx_attr_int(c, "is_causal", 0) != 0,
                             .left    = tni_onnx_attr_int(c, "left_window_size", -1),
                             .right   = tni_onnx_attr_int(c, "right_window_size", -1),
                             .scale   = tni_onnx_attr_real(c, "scale", 0),
                             .cap     = tni_onnx_attr_real(c, "softcap", 0),
                             .mode    = (int)tni_onnx_attr_int(c, "qk_matmul_output_mode", 0),
                             .shown   = c->nout > 3 ? &shown : NULL };
    // Tenon's own computes the softmax in f32; f64 alone asks for more.
    if (type == 11 && tn_dtype_of(q) != TN_F64) a.softmax = TN_F64;
    if (tni_onnx_has(c, 4) && tni_onnx_has(c, 5)) {
        tn_tensor *pk = tni_onnx_in(c, 4), *pv = tni_onnx_in(c, 5);
        a.past = pk ? tn_size(pk, 2) : 0;
        a.k    = tn_concat(2, (tn_tensor *[]){ pk, a.k }, 2);
        a.v    = tn_concat(2, (tn_tensor *[]){ pv, a.v }, 2);
    }
    tn_tensor *y = tni_onnx_attention_of(&a);
    return tni_onnx_out(c, 0, flat ? tni_onnx_join_heads(y) : y) && tni_onnx_out(c, 1, a.k) &&
           tni_onnx_out(c, 2, a.v) && (c->nout < 4 || tni_onnx_out(c, 3, shown));
}

// Runs a graph of one tensor, where the node has it.
static bool modified(tni_onnx_call *c, const char *name, tn_tensor **x)
{
    const tni_onnx_graph *g = tni_onnx_subgraph(c->r->m, c->n, name);
    if (!g || !*x) return *x != NULL;
    if (g->nin != 1 || g->nout != 1) return tni_onnx_refuse(c, "%s is not of one tensor", name);
    bool host                        = c->cx == c->r->host;
    c->r->value[c->r->m->use[g->in]] = (tni_onnx_value){ .t    = host ? NULL : *x,
                                                         .host = host ? *x : NULL };
    if (!tni_onnx_run_graph(c->r, g)) return false;
    tni_onnx_value *v = &c->r->value[c->r->m->use[g->out]];
    tni_onnx_value_make(c->r, v);
    *x = tni_onnx_value_tensor(c, v);
    return *x != NULL;
}

// FlexAttention(q, k, v; score_mod, prob_mod, scale): attention with graphs for what is done to
// scores and to weights. Without them it is Tenon's own.
bool tni_onnx_flex_attention(tni_onnx_call *c)
{
    tn_tensor      *q = tni_onnx_in(c, 0);
    tni_onnx_attend a = { .q     = q,
                          .k     = tni_onnx_in(c, 1),
                          .v     = tni_onnx_in(c, 2),
                          .left  = -1,
                          .right = -1,
                          .scale = tni_onnx_attr_real(c, "scale", 0) };
    if (!q || !a.k || !a.v || tn_rank(q) != 4 || tn_rank(a.k) != 4) return false;
    if (!tni_onnx_has_attr(c, "score_mod") && !tni_onnx_has_attr(c, "prob_mod"))
        return tni_onnx_out(c, 0, tni_onnx_attention_of(&a));
    tn_dtype dt = tn_dtype_of(q), wide = dt == TN_F64 ? TN_F64 : TN_F32;
    int64_t  each = tn_size(q, 1) / tn_size(a.k, 1);
    tni_onnx_dtype(tni_onnx_attr_int(c, "softmax_precision", 0), &wide);
    if (each > 1) {
        a.k = tn_repeat_interleave(a.k, 1, &each, 1);
        a.v = tn_repeat_interleave(a.v, 1, &each, 1);
    }
    double     scale = a.scale != 0 ? a.scale : 1 / sqrt((double)tn_size(q, 3));
    tn_tensor *x     = tn_mul_s(tn_cast(tn_matmul(q, tn_transpose(a.k, 2, 3)), wide), scale);
    if (!modified(c, "score_mod", &x)) return false;
    x = tn_softmax(x, -1);
    if (!modified(c, "prob_mod", &x)) return false;
    return tni_onnx_out(c, 0, tn_matmul(tn_cast(x, dt), a.v));
}

// What Tenon's own attention takes, beside masks, and when a mask is made instead:
//
//   causal, no past                 .causal
//   causal, past, S = past + T      .causal, .lengths S: queries have the last T places
//   lengths of each batch           .lengths
//   window to the left, causal      .window
//   others                          a mask of (T, S)

// ---- recurrences of tokens ---------------------------------------------------------------------

// What a step of linear attention reads beside its state: sequences in the order of `x` of a step,
// -1 of those left out.
typedef struct {
    int     decay, beta;
    bool    delta;
    double  scale;
    int64_t groups;
} linear_rule;

// S' = e^g S + k (beta (v - (e^g S)' k))', o = scale q' S', for each head: S is (B, H, K, V), q (B,
// H, groups, K), k (B, H, K, 1), v (B, H, 1, V).
static void linear_step(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    const linear_rule *r = user;
    tn_tensor         *s = carry[0], *q = x[0], *k = x[1], *v = x[2];
    if (r->decay >= 0) s = tn_mul(s, tn_exp(x[r->decay]));
    if (r->delta) v = tn_sub(v, tn_sum_keep(tn_mul(s, k), -2));
    if (r->beta >= 0) v = tn_mul(v, x[r->beta]);
    carry[0] = tn_add(s, tn_mul(k, v));
    y[0]     = tn_mul_s(tn_matmul(q, carry[0]), r->scale);
}

// (B, T, heads * D) as (T, B, heads, rows, columns) in f32 or f64; D is either rows or columns.
static tn_tensor *by_step(tn_tensor *x, tn_dtype dt, int64_t heads, int64_t rows, int64_t columns)
{
    int64_t B = tn_size(x, 0), T = tn_size(x, 1);
    x = tn_reshape(tn_cast(x, dt), TN_SHAPE(B, T, heads, rows, columns));
    return tn_contiguous(tn_transpose(x, 0, 1));
}

// LinearAttention(q, k, v, state, decay, beta; update_rule, heads, scale): a state of (K, V) for
// each head of keys, that every token changes and reads.
bool tni_onnx_linear_attention(tni_onnx_call *c)
{
    tn_tensor *q = tni_onnx_in(c, 0), *k = tni_onnx_in(c, 1), *v = tni_onnx_in(c, 2),
              *past = tni_onnx_in(c, 3), *decay = tni_onnx_in(c, 4), *beta = tni_onnx_in(c, 5),
              *x[5], *y = NULL;
    int64_t heads = tni_onnx_attr_int(c, "q_num_heads", 0),
            kv    = tni_onnx_attr_int(c, "kv_num_heads", 0);
    if (!q || !k || !v) return false;
    if (tn_rank(q) != 3 || tn_rank(k) != 3 || tn_rank(v) != 3 || kv < 1 || heads < kv || heads % kv)
        return tni_onnx_refuse(c, "q %s, k %s and v %s do not fit %lld and %lld heads",
                               tni_shape_of(q).s, tni_shape_of(k).s, tni_shape_of(v).s,
                               (long long)heads, (long long)kv);
    tn_dtype dt = tn_dtype_of(q), wide = dt == TN_F64 ? TN_F64 : TN_F32;
    int64_t  B = tn_size(q, 0), T = tn_size(q, 1), K = tn_size(k, 2) / kv, V = tn_size(v, 2) / kv,
            n     = 3;
    bool gated    = tni_onnx_attr_is(c, "update_rule", "gated", false),
         plain    = tni_onnx_attr_is(c, "update_rule", "linear", false),
         delta    = tni_onnx_attr_is(c, "update_rule", "delta", false);
    linear_rule r = { .decay  = -1,
                      .beta   = -1,
                      .delta  = !gated && !plain,
                      .groups = heads / kv,
                      .scale  = tni_onnx_attr_real(c, "scale", 0) };
    if (r.scale == 0) r.scale = 1 / sqrt((double)K);
    x[0] = by_step(q, wide, kv, r.groups, K);
    x[1] = by_step(k, wide, kv, K, 1);
    x[2] = by_step(v, wide, kv, 1, V);
    if (decay && !plain && !delta)
        x[r.decay = (int)n++] = by_step(decay, wide, kv, tn_size(decay, 2) / kv, 1);
    if (beta && r.delta) x[r.beta = (int)n++] = by_step(beta, wide, tn_size(beta, 2), 1, 1);
    tn_tensor *state = past ? tn_cast(past, wide) : tn_zeros(c->cx, wide, TN_SHAPE(B, kv, K, V));
    for (int i = 0; i < n; i++)
        if (!x[i]) return false;
    if (!state ||
        tn_scan(linear_step, &r, 1, &state, (int)n, x, 1, &y, (tn_scan_opts){ 0 }) != TN_OK)
        return false;
    y = tn_reshape(tn_contiguous(tn_transpose(y, 0, 1)), TN_SHAPE(B, T, heads * V));
    return tni_onnx_out(c, 0, tn_cast(y, dt)) &&
           tni_onnx_out(c, 1, tn_cast(state, past ? tn_dtype_of(past) : dt));
}

// CausalConvWithState(x, w, b, past; activation): each channel of x (B, C, T) with k taps of its
// own, behind the k - 1 places that came before; those are zeros without a past. Gives the last k -
// 1 places, too.
bool tni_onnx_causal_conv_with_state(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *b = tni_onnx_in(c, 2),
              *past = tni_onnx_in(c, 3);
    if (!x || !w) return false;
    if (tn_rank(x) != 3 || tn_rank(w) != 3)
        return tni_onnx_refuse(c, "x %s and w %s have not three axes", tni_shape_of(x).s,
                               tni_shape_of(w).s);
    int64_t before[3] = { 0, 0, tn_size(w, 2) - 1 }, after[3] = { 0 }, C = tn_size(x, 1);
    x            = past ? tn_concat(2, (tn_tensor *[]){ past, x }, 2) : tn_pad(x, before, after, 0);
    tn_tensor *y = tn_conv1d(x, w, b, (tn_conv_opts){ .groups = C });
    bool       silu = tni_onnx_attr_is(c, "activation", "silu", false) ||
                tni_onnx_attr_is(c, "activation", "swish", false);
    int64_t all = x ? tn_size(x, 2) : 0;
    return tni_onnx_out(c, 0, silu ? tn_silu(y) : y) &&
           tni_onnx_out(c, 1, tn_slice(x, 2, all - before[2], all, 1));
}

// ---- rotary positions --------------------------------------------------------------------------

// Rotates pairs of x (B, heads, T, D) by cosines and sines (B, T, width / 2).
// Pairs are an element of each half, or neighbours if interleaved; of a partial width the rest
// stays.
tn_tensor *tni_onnx_rotated(tn_tensor *x, tn_tensor *cosine, tn_tensor *sine, int64_t width,
                            bool pairs)
{
    if (!x || !cosine || !sine || tn_rank(x) != 4) return NULL;
    int64_t all = tn_size(x, 3);
    if (!width) width = all;
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
    return width < all ? tn_concat(2, (tn_tensor *[]){ z, rest }, -1) : z;
}

// RotaryEmbedding(x, cosines, sines, positions; interleaved, num_heads, rotary_embedding_dim): with
// positions the caches are tables, without them they have a row for each token.
bool tni_onnx_rotary_embedding(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *cosine = tni_onnx_in(c, 1), *sine = tni_onnx_in(c, 2),
              *at = tni_onnx_in(c, 3);
    if (!x || !cosine || !sine || tn_rank(x) < 3) return false;
    bool flat = tn_rank(x) == 3;
    if (at) {
        cosine = tn_embed(at, cosine);
        sine   = tn_embed(at, sine);
    }
    x = tni_onnx_rotated(flat ? tni_onnx_split_heads(x, tni_onnx_attr_int(c, "num_heads", 0)) : x,
                         cosine, sine, tni_onnx_attr_int(c, "rotary_embedding_dim", 0),
                         tni_onnx_attr_int(c, "interleaved", 0) != 0);
    return tni_onnx_out(c, 0, flat ? tni_onnx_join_heads(x) : x);
}
