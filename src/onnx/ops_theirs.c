// com.microsoft's operators of transformers: what ONNX Runtime's optimizer and its exporters of
// language models write.
//
// Keys and values of a language model, two rows of which the first is one token longer, in room for
// six:
//
//   past      a b c d . .          total 5, one new token a row
//             a b c . . .
//   present   a b c d e .          row 0: 5 keys, the new one at place 4
//             a b c d . .          row 1: 4 keys, the new one at place 3
//
// Lengths are on the device, so that rows of a batch may differ without a wait; what the longest
// row has is a number of the host, as ONNX Runtime wants it, too.
//
// B batch, T queries, S keys, H heads, D width of a head.
#include "onnx/onnx_ops.h"

#include <math.h>

// ---- activations and products ------------------------------------------------------------------

// x + bias, where there is one.
static tn_tensor *with_bias(tni_onnx_call *c, tn_tensor *x, int i)
{
    return x && tni_onnx_has(c, i) ? tn_add(x, tni_onnx_in(c, i)) : x;
}

// BiasGelu(x, b) and Gelu(x).
bool tni_onnx_bias_gelu(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tn_gelu(with_bias(c, tni_onnx_in(c, 0), 1)));
}
// FastGelu(x, b): by tanh.
bool tni_onnx_fast_gelu(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tn_gelu_tanh(with_bias(c, tni_onnx_in(c, 0), 1)));
}
// QuickGelu(x; alpha): x * sigmoid(alpha * x).
bool tni_onnx_quick_gelu(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    return tni_onnx_out(c, 0,
                        tn_mul(x, tn_sigmoid(tn_mul_s(x, tni_onnx_attr_real(c, "alpha", 1.702)))));
}

// An activation by name, with its numbers: those of FusedConv are a list, those of FusedGemm
// attributes.
static tn_tensor *activated(tni_onnx_call *c, tn_tensor *y)
{
    tni_wire name = tni_onnx_attr_text(c, "activation");
    double   v[4] = { tni_onnx_attr_real(c, "activation_alpha", 0.01),
                      tni_onnx_attr_real(c, "activation_beta", 0) };
    int      n;
    if (!y || !tni_wire_size(name)) return y;
    if (!tni_onnx_attr_reals(c, "activation_params", 4, v, &n)) return NULL;
    if (tni_wire_is(name, "Relu")) return tn_relu(y);
    if (tni_wire_is(name, "Sigmoid")) return tn_sigmoid(y);
    if (tni_wire_is(name, "Tanh")) return tn_tanh(y);
    if (tni_wire_is(name, "LeakyRelu")) return tn_leaky_relu(y, v[0]);
    if (tni_wire_is(name, "Clip") && n == 2) return tn_clamp(y, v[0], v[1]);
    if (tni_wire_is(name, "HardSigmoid")) return tn_clamp(tn_add_s(tn_mul_s(y, v[0]), v[1]), 0, 1);
    return tni_onnx_refuse(c, "activation %s is not known", tni_onnx_quoted(name).s), NULL;
}

// FusedConv(x, w, b, z; as Conv, activation): activation(conv + z).
bool tni_onnx_fused_conv(tni_onnx_call *c)
{
    tn_tensor *y = tni_onnx_convolve(c, tni_onnx_in(c, 0), tni_onnx_in(c, 1), tni_onnx_in(c, 2));
    return tni_onnx_out(c, 0, activated(c, with_bias(c, y, 3)));
}

//   transBatch   (B0, B1, M, K) is given as (M, B0, B1, K)
//
// The axes of a matrix, or of a matrix of a batch, in the order that the node asks for.
static tn_tensor *turned(tni_onnx_call *c, tn_tensor *x, const char *inner, const char *batch)
{
    int n = x ? tn_rank(x) : 0, order[TN_MAX_RANK];
    if (n > 2 && batch && tni_onnx_attr_int(c, batch, 0)) {
        for (int i = 0; i < n - 2; i++) order[i] = i + 1;
        order[n - 2] = 0;
        order[n - 1] = n - 1;
        x            = tn_permute(x, n, order);
    }
    return n > 1 && tni_onnx_attr_int(c, inner, 0) ? tn_transpose(x, n - 2, n - 1) : x;
}

// FusedMatMul(a, b; alpha, transA, transB, transBatchA, transBatchB).
bool tni_onnx_fused_mat_mul(tni_onnx_call *c)
{
    double     alpha = tni_onnx_attr_real(c, "alpha", 1);
    tn_tensor *y     = tn_matmul(turned(c, tni_onnx_in(c, 0), "transA", "transBatchA"),
                                 turned(c, tni_onnx_in(c, 1), "transB", "transBatchB"));
    return tni_onnx_out(c, 0, alpha == 1 ? y : tn_mul_s(y, alpha));
}

// FusedGemm(a, b, c; as Gemm, activation).
bool tni_onnx_fused_gemm(tni_onnx_call *c)
{
    double     alpha = tni_onnx_attr_real(c, "alpha", 1), beta = tni_onnx_attr_real(c, "beta", 1);
    tn_tensor *y   = tn_matmul(turned(c, tni_onnx_in(c, 0), "transA", NULL),
                               turned(c, tni_onnx_in(c, 1), "transB", NULL)),
              *add = tni_onnx_in(c, 2);
    if (alpha != 1) y = tn_mul_s(y, alpha);
    if (add) y = tn_add(y, beta == 1 ? add : tn_mul_s(add, beta));
    return tni_onnx_out(c, 0, activated(c, y));
}

// The numbers of packed bytes, `bits` each, the low bits first: (..., n) as (..., n * 8 / bits) in
// f32.
static tn_tensor *unpacked(tn_tensor *x, int bits)
{
    tn_tensor *part[4], *mask;
    int        n = 8 / bits;
    if (!x || n == 1) return x ? tn_cast(x, TN_F32) : NULL;
    mask = tn_full_i64(tn_ctx_of(x), TN_U8, TN_0D, (1 << bits) - 1);
    for (int i = 0; i < n; i++)
        part[i] = tn_bit_and(i ? tn_shr(x, tn_full_i64(tn_ctx_of(x), TN_U8, TN_0D, i * bits)) : x,
                             mask);
    return tn_cast(tn_flatten(tn_stack(n, part, -1), tn_rank(x) - 1, tn_rank(x)), TN_F32);
}

//   byte 0x5e, 4 bits       numbers 14, 5           the low bits first
//   zero point 8            6, -3
//   scale 0.1               0.6, -0.3
//
// MatMulNBits(a, b, scales, zeros, g_idx, bias; K, N, bits, block_size): b (N, blocks, bytes of a
// block), with a scale and a zero point for each block of a row, the zero points packed as b is, or
// real numbers. The weights are unpacked once and kept.
bool tni_onnx_mat_mul_n_bits(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *w = tni_onnx_kept(c, 0);
    int64_t    K = tni_onnx_attr_int(c, "K", 0), N = tni_onnx_attr_int(c, "N", 0),
            block = tni_onnx_attr_int(c, "block_size", 0);
    int bits      = (int)tni_onnx_attr_int(c, "bits", 4);
    if (!a) return false;
    if ((bits != 2 && bits != 4 && bits != 8) || K < 1 || N < 1 || block < 1 || tni_onnx_has(c, 4))
        return tni_onnx_refuse(c,
                               "%d bits in blocks of %lld, or an order of rows, are not supported",
                               bits, (long long)block);
    if (!w) {
        int64_t    blocks = (K + block - 1) / block;
        tn_tensor *b = unpacked(tni_onnx_in(c, 1), bits), *scale = tni_onnx_in(c, 2),
                  *zero = tni_onnx_in(c, 3);
        if (!b || !scale) return false;
        b = tn_reshape(b, TN_SHAPE(N, blocks, block));
        if (zero && tn_dtype_of(zero) == TN_U8)
            zero = tn_slice(unpacked(tn_reshape(zero, TN_SHAPE(N, -1)), bits), 1, 0, blocks, 1);
        zero = zero ? tn_cast(tn_reshape(zero, TN_SHAPE(N, blocks, 1)), TN_F32) : NULL;
        b    = zero ? tn_sub(b, zero) : tn_add_s(b, -(double)(1 << (bits - 1)));
        w    = tn_mul(b, tn_cast(tn_reshape(scale, TN_SHAPE(N, blocks, 1)), TN_F32));
        w = tn_cast(tn_contiguous(tn_slice(tn_reshape(w, TN_SHAPE(N, blocks * block)), 1, 0, K, 1)),
                    tn_dtype_of(a));
        if (tni_onnx_is_fixed(c, 1, 4)) w = tni_onnx_keep(c, 0, w);
    }
    return tni_onnx_out(c, 0, tn_linear(a, w, tni_onnx_in(c, 5)));
}

// ---- normalizations ----------------------------------------------------------------------------

// Scale and bias of a norm over the last axis, with the mean left in or not.
static tn_tensor *normed(tn_tensor *x, tn_tensor *w, tn_tensor *b, double eps, bool rms)
{
    if (eps == 0) eps = TN_ZERO;
    return rms ? tn_rms_norm(x, 1, w, eps) : tn_layer_norm(x, 1, w, b, eps);
}

// SkipLayerNormalization(x, skip, scale, b, bias; epsilon): the norm of x + skip + bias, which is
// the fourth output.
bool tni_onnx_skip_layer_normalization(tni_onnx_call *c)
{
    tn_tensor *x = with_bias(c, tn_add(tni_onnx_in(c, 0), tni_onnx_in(c, 1)), 4);
    return tni_onnx_out(c, 0,
                        normed(x, tni_onnx_in(c, 2), tni_onnx_in(c, 3),
                               tni_onnx_attr_real(c, "epsilon", 1e-12), false)) &&
           tni_onnx_out(c, 3, x);
}
// SkipSimplifiedLayerNormalization(x, skip, scale, bias; epsilon).
bool tni_onnx_skip_simplified_layer_normalization(tni_onnx_call *c)
{
    tn_tensor *x = with_bias(c, tn_add(tni_onnx_in(c, 0), tni_onnx_in(c, 1)), 3);
    return tni_onnx_out(c, 0,
                        normed(x, tni_onnx_in(c, 2), NULL, tni_onnx_attr_real(c, "epsilon", 1e-12),
                               true)) &&
           tni_onnx_out(c, 3, x);
}

// EmbedLayerNormalization(ids, segments, words, places, segment words, scale, b, mask, positions;
// epsilon): the norm of the sum of embeddings; how many tokens of each row are no padding; the sum.
bool tni_onnx_embed_layer_normalization(tni_onnx_call *c)
{
    tn_tensor *ids = tni_onnx_in(c, 0), *segments = tni_onnx_in(c, 1), *mask = tni_onnx_in(c, 7),
              *at = tni_onnx_in(c, 8);
    if (!ids || tn_rank(ids) != 2) return false;
    int64_t    B = tn_size(ids, 0), T = tn_size(ids, 1);
    tn_tensor *x = tn_embed(ids, tni_onnx_in(c, 2));
    x = tn_add(x, at ? tn_embed(at, tni_onnx_in(c, 3)) : tn_slice(tni_onnx_in(c, 3), 0, 0, T, 1));
    if (segments && tni_onnx_has(c, 4)) x = tn_add(x, tn_embed(segments, tni_onnx_in(c, 4)));
    tn_tensor *count = mask ? tn_cast(tn_sum(tn_cast(mask, TN_I32), 1), TN_I32)
                            : tn_zeros(c->cx, TN_I32, TN_SHAPE(B));
    return tni_onnx_out(c, 0,
                        normed(x, tni_onnx_in(c, 5), tni_onnx_in(c, 6),
                               tni_onnx_attr_real(c, "epsilon", 1e-12), false)) &&
           tni_onnx_out(c, 1, count) && tni_onnx_out(c, 2, x);
}

// ---- attention ---------------------------------------------------------------------------------

// RotaryEmbedding(x, positions, cosines, sines; interleaved, num_heads, rotary_embedding_dim):
// positions (B, T), or one, at which all rows start.
bool tni_onnx_theirs_rotary_embedding(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *at = tni_onnx_in(c, 1), *cosine = tni_onnx_in(c, 2),
              *sine = tni_onnx_in(c, 3);
    if (!x || !at || !cosine || !sine || tn_rank(x) < 3) return false;
    bool    flat  = tn_rank(x) == 3;
    int64_t width = tni_onnx_attr_int(c, "rotary_embedding_dim", 0),
            heads = tni_onnx_attr_int(c, "num_heads", 0), T = tn_size(x, flat ? 1 : 2);
    // The number of heads may be left to the width of the cosines, which is half that of a head.
    if (flat && heads < 1) heads = tn_size(x, 2) / (2 * tn_size(cosine, 1));
    if (tn_count(at) == 1 && (tn_rank(at) == 1 || T > 1))
        at = tn_reshape(tn_add(tn_arange_i64(c->cx, TN_I64, 0, T, 1),
                               tn_reshape(tn_cast(at, TN_I64), 0, NULL)),
                        TN_SHAPE(1, T));
    if (flat) x = tni_onnx_split_heads(x, heads);
    x = tni_onnx_rotated(x, tn_embed(at, cosine), tn_embed(at, sine), width,
                         tni_onnx_attr_int(c, "interleaved", 0) != 0);
    return tni_onnx_out(c, 0, flat ? tni_onnx_join_heads(x) : x);
}

// A mask of keys as one of scores: (B) lengths, (B, S) which keys count, (B, T, S) for each query.
// What is hidden has the least score instead of none, as ONNX Runtime has it, so that a row without
// any key is a mean.
static tn_tensor *mask_of(tni_onnx_call *c, int i, int64_t S)
{
    tn_tensor *m      = tni_onnx_in(c, i);
    double     hidden = tni_onnx_attr_real(c, "mask_filter_value", -10000);
    if (!m) return NULL;
    if (tn_rank(m) == 1)
        m = tn_lt(tn_arange_i64(c->cx, TN_I64, 0, S, 1),
                  tn_reshape(tn_cast(m, TN_I64), TN_SHAPE(-1, 1)));
    else m = tn_cast(m, TN_BOOL);
    m = tn_rank(m) == 2 ? tn_unsqueeze(tn_unsqueeze(m, 1), 1) : tn_unsqueeze(m, 1);
    return tn_where(m, tn_zeros(c->cx, TN_F32, TN_0D), tn_full(c->cx, TN_F32, TN_0D, hidden));
}

// Either may be missing.
// The mask, plus what is added to scores.
static tn_tensor *bias_in(tni_onnx_call *c, int mask, int bias, int64_t S)
{
    tn_tensor *m = mask_of(c, mask, S), *b = tni_onnx_in(c, bias);
    return m && b ? tn_add(m, tn_cast(b, TN_F32)) : m ? m : b;
}

// Joins what came before and the new keys or values.
static tn_tensor *behind(tn_tensor *past, tn_tensor *x)
{
    return past && x ? tn_concat(2, (tn_tensor *[]){ past, x }, 2) : x;
}

// MultiHeadAttention(q, k, v, bias, key mask, added to scores, past k, past v; num_heads, scale,
// unidirectional): q is (B, T, H D), or (B, T, H, 3, D) with keys and values in it; k likewise (B,
// S, H, 2, D) with values, or already (B, H, S, D).
bool tni_onnx_multi_head_attention(tni_onnx_call *c)
{
    tn_tensor *q = tni_onnx_in(c, 0), *k = tni_onnx_in(c, 1), *v = tni_onnx_in(c, 2),
              *bias = tni_onnx_in(c, 3), *pk = tni_onnx_in(c, 6), *pv = tni_onnx_in(c, 7), *part[3];
    int64_t heads = tni_onnx_attr_int(c, "num_heads", 0), from = 0;
    if (!q || heads < 1) return false;
    bool packed = tn_rank(q) == 5, pair = k && tn_rank(k) == 5;
    for (int i = 0; i < 3; i++) {
        tn_tensor *x = packed      ? tn_select(q, 3, i)
                       : i && pair ? tn_select(k, 3, i - 1)
                       : i == 0    ? q
                       : i == 1    ? k
                                   : v;
        if (!x) return tni_onnx_refuse(c, "keys or values are missing");
        bool    apart = packed || (i && pair);
        int64_t width = apart             ? heads * tn_size(x, 3)
                        : tn_rank(x) == 3 ? tn_size(x, 2)
                                          : heads * tn_size(x, 3);
        x             = apart ? tn_transpose(x, 1, 2) : tni_onnx_split_heads(x, heads);
        if (bias && x && (apart || tn_rank(i == 0 ? q : i == 1 ? k : v) == 3))
            x = tn_add(x, tn_reshape(tn_slice(bias, 0, from, from + width, 1),
                                     TN_SHAPE(heads, 1, width / heads)));
        from += width;
        part[i] = x;
    }
    tni_onnx_attend a = { .q      = part[0],
                          .k      = behind(pk, part[1]),
                          .v      = behind(pv, part[2]),
                          .left   = -1,
                          .right  = -1,
                          .past   = pk ? tn_size(pk, 2) : 0,
                          .scale  = tni_onnx_attr_real(c, "scale", 0),
                          .causal = tni_onnx_attr_int(c, "unidirectional", 0) != 0 };
    a.mask            = a.k ? bias_in(c, 4, 5, tn_size(a.k, 2)) : NULL;
    return tni_onnx_out(c, 0, tni_onnx_join_heads(tni_onnx_attention_of(&a))) &&
           tni_onnx_out(c, 1, a.k) && tni_onnx_out(c, 2, a.v);
}

// Attention(x, w, b, mask, past, added to scores; num_heads, unidirectional, qkv_hidden_sizes,
// scale): q, k and v are one product of x; past and present are (2, B, H, S, D).
bool tni_onnx_theirs_attention(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *past = tni_onnx_in(c, 4), *part[3];
    int64_t    size[3], at = 0, heads = tni_onnx_attr_int(c, "num_heads", 0);
    int        n;
    if (!x || !w || heads < 1 || !tni_onnx_attr_ints(c, "qkv_hidden_sizes", 3, size, &n))
        return false;
    for (int i = 0; i < 3 && n != 3; i++) size[i] = tn_size(w, 1) / 3;
    x = with_bias(c, tn_matmul(x, w), 2);
    for (int i = 0; i < 3; at += size[i++])
        part[i] = tni_onnx_split_heads(tn_slice(x, 2, at, at + size[i], 1), heads);
    tni_onnx_attend a = { .q      = part[0],
                          .k      = behind(past ? tn_select(past, 0, 0) : NULL, part[1]),
                          .left   = -1,
                          .right  = -1,
                          .v      = behind(past ? tn_select(past, 0, 1) : NULL, part[2]),
                          .past   = past ? tn_size(past, 3) : 0,
                          .scale  = tni_onnx_attr_real(c, "scale", 0),
                          .causal = tni_onnx_attr_int(c, "unidirectional", 0) != 0 };
    if (!a.k || !a.v) return false;
    a.mask = bias_in(c, 3, 5, tn_size(a.k, 2));
    if (!tni_onnx_out(c, 0, tni_onnx_join_heads(tni_onnx_attention_of(&a)))) return false;
    return c->nout < 2 || tni_onnx_out(c, 1, tn_stack(2, (tn_tensor *[]){ a.k, a.v }, 0));
}

// What GroupQueryAttention knows of places: of each row how many keys there are in all, and where
// its new ones go.
typedef struct {
    tn_tensor *all, *first;  // (B), i64
    int64_t    total;        // of the longest row
    bool       prompt;       // nothing came before
} places;

// Past keys with new ones behind those of each row, in room for `total` of them. A past that is
// longer already has that room.
static tn_tensor *appended(tn_tensor *past, tn_tensor *x, const places *p)
{
    int64_t before[4] = { 0 }, after[4] = { 0 }, size[4], room = past ? tn_size(past, 2) : 0;
    if (!x) return NULL;
    for (int i = 0; i < 4; i++) size[i] = tn_size(x, i);
    if (p->prompt && room <= size[2]) return x;
    after[2]     = p->total > room ? p->total - room : 0;
    past         = tn_pad(past, before, after, 0);
    tn_tensor *i = tn_reshape(tn_arange_i64(tn_ctx_of(x), TN_I64, 0, size[2], 1),
                              TN_SHAPE(1, 1, size[2], 1));
    i            = tn_add(i, tn_reshape(p->first, TN_SHAPE(-1, 1, 1, 1)));
    return tn_scatter(past, 2, tn_expand(i, 4, size), x);
}

// GroupQueryAttention(q, k, v, past k, past v, keys of each row - 1, keys of the longest row,
// cosines, sines, positions, added to scores, sinks; num_heads, kv_num_heads, scale, softcap,
// local_window_size, do_rotary, rotary_interleaved): q may have keys and values behind its own
// heads.
bool tni_onnx_group_query_attention(tni_onnx_call *c)
{
    tn_tensor *q = tni_onnx_in(c, 0), *k = tni_onnx_in(c, 1), *v = tni_onnx_in(c, 2),
              *pk = tni_onnx_in(c, 3), *pv = tni_onnx_in(c, 4), *last = tni_onnx_in(c, 5),
              *at  = tni_onnx_in(c, 9);
    int64_t heads  = tni_onnx_attr_int(c, "num_heads", 0),
            kv     = tni_onnx_attr_int(c, "kv_num_heads", 0),
            window = tni_onnx_attr_int(c, "local_window_size", -1);
    places p       = { 0 };
    int    n;
    if (!q || !last || heads < 1 || kv < 1 || tn_rank(q) != 3 ||
        !tni_onnx_ints(c, 6, 1, &p.total, &n) || n != 1)
        return false;
    int64_t T = tn_size(q, 1);
    if (!k) {
        int64_t d = tn_size(q, 2) / (heads + 2 * kv);
        v         = tn_slice(q, 2, (heads + kv) * d, (heads + 2 * kv) * d, 1);
        k         = tn_slice(q, 2, heads * d, (heads + kv) * d, 1);
        q         = tn_slice(q, 2, 0, heads * d, 1);
    }
    p.prompt          = p.total == T;
    p.all             = tn_add_i64(tn_cast(tn_reshape(last, TN_SHAPE(-1)), TN_I64), 1);
    p.first           = p.prompt ? tn_zeros_like(p.all) : tn_add_i64(p.all, -T);
    tni_onnx_attend a = { .q       = tni_onnx_split_heads(q, heads),
                          .k       = tni_onnx_split_heads(k, kv),
                          .v       = tni_onnx_split_heads(v, kv),
                          .mask    = tni_onnx_in(c, 10),
                          .sink    = tni_onnx_in(c, 11),
                          .causal  = true,
                          .left    = window > 0 ? window - 1 : -1,
                          .right   = -1,
                          .scale   = tni_onnx_attr_real(c, "scale", 0),
                          .cap     = tni_onnx_attr_real(c, "softcap", 0),
                          .lengths = p.prompt ? NULL : p.all };
    if (tni_onnx_attr_int(c, "smooth_softmax", 0) && !a.sink)
        a.sink = tn_zeros(c->cx, TN_F32, TN_SHAPE(heads));
    if (tni_onnx_attr_int(c, "do_rotary", 0)) {
        bool pairs = tni_onnx_attr_int(c, "rotary_interleaved", 0) != 0;
        if (!at) at = tn_add(tn_unsqueeze(p.first, 1), tn_arange_i64(c->cx, TN_I64, 0, T, 1));
        tn_tensor *cosine = tn_embed(at, tni_onnx_in(c, 7)),
                  *sine   = tn_embed(at, tni_onnx_in(c, 8));
        int64_t width     = cosine ? 2 * tn_size(cosine, -1) : 0;
        a.q               = tni_onnx_rotated(a.q, cosine, sine, width, pairs);
        a.k               = tni_onnx_rotated(a.k, cosine, sine, width, pairs);
    }
    a.k = appended(pk, a.k, &p);
    a.v = appended(pv, a.v, &p);
    return tni_onnx_out(c, 0, tni_onnx_join_heads(tni_onnx_attention_of(&a))) &&
           tni_onnx_out(c, 1, a.k) && tni_onnx_out(c, 2, a.v);
}
