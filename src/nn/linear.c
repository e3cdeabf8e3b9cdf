// Layers of a weight or three: linear, y = x w^T + b over the last axis; bilinear; the gated
// feed-forward part of Llama; embedding, rows of w by index; positions.
#include "nn/builtin.h"

#include <math.h>

// ---- linear ------------------------------------------------------------------------------------

// Both belong to the layer; b is NULL where there is no bias.
typedef struct {
    tn_tensor *w, *b;
} linear;

static tn_tensor *linear_forward(tn_layer *l, tn_tensor *x)
{
    linear *s = l->self;
    return tn_linear(x, s->w, s->b);
}

// Weight (out, in) and bias start uniformly within 1 / sqrt(in), as PyTorch's.
tn_layer *tn_nn_linear_with(tn_ctx *cx, int64_t in, int64_t out, tn_nn_linear_opts o)
{
    const char *op = "nn_linear";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "in", in) || !tni_size_arg(cx, op, "out", out))
        return NULL;
    tn_layer *l = tni_layer_make(cx, op, "Linear", linear_forward, sizeof(linear));
    if (!l) return NULL;
    linear *s     = l->self;
    double  bound = 1 / sqrt((double)in);
    s->w          = tni_new_param(l, "weight", tni_start_within, bound, TN_SHAPE(out, in));
    if (s->w && !o.no_bias) s->b = tni_new_param(l, "bias", tni_start_within, bound, TN_SHAPE(out));
    return s->w && (s->b || o.no_bias) ? l : tni_layer_give_up(l);
}

tn_layer *tn_nn_linear(tn_ctx *cx, int64_t in, int64_t out)
{
    return tn_nn_linear_with(cx, in, out, (tn_nn_linear_opts){ 0 });
}

// ---- bilinear ----------------------------------------------------------------------------------

// Checks that the axes before the last of both inputs agree, and their last axes with the weight
// (O, I, J).
static bool bilinear_ok(tn_ctx *cx, tn_tensor *w, tn_tensor *const *x)
{
    tni_view a = tni_layout(x[0]), b = tni_layout(x[1]);
    bool     ok = a.rank >= 1 && b.rank == a.rank && tn_size(x[0], -1) == tn_size(w, 1) &&
              tn_size(x[1], -1) == tn_size(w, 2) &&
              tni_shape_equal(a.rank - 1, a.size, b.rank - 1, b.size);
    return ok ||
           tni_refuse(cx, TN_ESHAPE, "nn_bilinear: %s and %s are not (..., %lld) and (..., %lld)",
                      tni_shape_of(x[0]).s, tni_shape_of(x[1]).s, (long long)tn_size(w, 1),
                      (long long)tn_size(w, 2));
}

// x1 meets all outputs in one product with the weight as (I, O J); the sum over J with x2 is a
// small one for each row.
static void bilinear_forward(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    linear *s = l->self;
    (void)nx;
    (void)ny;
    if (!bilinear_ok(l->owned.cx, s->w, x)) return;
    int64_t    O = tn_size(s->w, 0), I = tn_size(s->w, 1), J = tn_size(s->w, 2);
    tni_view   v = tni_layout(x[0]);
    tn_tensor *w = tn_reshape(tn_transpose(s->w, 0, 1), TN_SHAPE(I, O * J));
    tn_tensor *t = tn_matmul(tn_reshape(x[0], TN_SHAPE(tn_count(x[0]) / I, I)), w);
    t            = tn_reshape(t, TN_SHAPE(tn_count(x[0]) / I, O, J));
    t            = tn_sum(tn_mul(t, tn_reshape(x[1], TN_SHAPE(tn_count(x[1]) / J, 1, J))), -1);
    if (t && s->b) t = tn_add(t, s->b);
    v.size[v.rank - 1] = O;
    y[0]               = t ? tn_reshape(t, v.rank, v.size) : NULL;
}

// Weight and bias start uniformly within 1 / sqrt(in1), as PyTorch's.
tn_layer *tn_nn_bilinear(tn_ctx *cx, int64_t in1, int64_t in2, int64_t out, tn_nn_linear_opts o)
{
    const char *op = "nn_bilinear";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "in1", in1) ||
        !tni_size_arg(cx, op, "in2", in2) || !tni_size_arg(cx, op, "out", out))
        return NULL;
    tn_layer *l = tni_layer_make_n(cx, op, "Bilinear", bilinear_forward,
                                   (tn_layer_counts){ .in = 2, .out = 1 }, sizeof(linear));
    if (!l) return NULL;
    linear *s     = l->self;
    double  bound = 1 / sqrt((double)in1);
    s->w          = tni_new_param(l, "weight", tni_start_within, bound, TN_SHAPE(out, in1, in2));
    if (s->w && !o.no_bias) s->b = tni_new_param(l, "bias", tni_start_within, bound, TN_SHAPE(out));
    return s->w && (s->b || o.no_bias) ? l : tni_layer_give_up(l);
}

// ---- swiglu ------------------------------------------------------------------------------------

// Children of the layer.
typedef struct {
    tn_layer *gate, *up, *down;
} swiglu;

// The gate and the other factor are two products of one x, which devices may run side by side; the
// activation is part of the second one's kernel or of the third's.
static tn_tensor *swiglu_forward(tn_layer *l, tn_tensor *x)
{
    swiglu    *s    = l->self;
    tn_tensor *gate = tn_forward(s->gate, x), *up = gate ? tn_forward(s->up, x) : NULL;
    return up ? tn_forward(s->down, tn_swiglu(gate, up)) : NULL;
}

// Each child is made only if the one before it was.
tn_layer *tn_nn_swiglu(tn_ctx *cx, int64_t width, int64_t hidden, tn_nn_linear_opts o)
{
    const char *op = "nn_swiglu";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "width", width) ||
        !tni_size_arg(cx, op, "hidden", hidden))
        return NULL;
    tn_layer *l = tni_layer_make(cx, op, "SwiGLU", swiglu_forward, sizeof(swiglu));
    if (!l) return NULL;
    swiglu *s = l->self;
    s->gate   = tni_add_child(l, "gate_proj", tn_nn_linear_with(cx, width, hidden, o));
    if (s->gate) s->up = tni_add_child(l, "up_proj", tn_nn_linear_with(cx, width, hidden, o));
    if (s->up) s->down = tni_add_child(l, "down_proj", tn_nn_linear_with(cx, hidden, width, o));
    return s->down ? l : tni_layer_give_up(l);
}

// ---- embedding ---------------------------------------------------------------------------------

static tn_tensor *embedding_forward(tn_layer *l, tn_tensor *x)
{
    linear *s = l->self;
    return tn_embed(x, s->w);
}

// The weight (count, width) starts normally distributed, as PyTorch's.
tn_layer *tn_nn_embedding(tn_ctx *cx, int64_t count, int64_t width)
{
    const char *op = "nn_embedding";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "count", count) ||
        !tni_size_arg(cx, op, "width", width))
        return NULL;
    tn_layer *l = tni_layer_make(cx, op, "Embedding", embedding_forward, sizeof(linear));
    if (!l) return NULL;
    linear *s = l->self;
    s->w      = tni_new_param(l, "weight", tni_start_normal, 1, TN_SHAPE(count, width));
    return s->w ? l : tni_layer_give_up(l);
}

// ---- positions ---------------------------------------------------------------------------------

// w is NULL for sines and cosines.
typedef struct {
    tn_tensor *w;
    int64_t    width, length;
    double     base, dropout;
} positional;

// Elements 2 i and 2 i + 1 of position p are the sine and cosine of p base^(-2 i / width): (T,
// width), or (B, T, width).
static tn_tensor *waves(const positional *s, tn_tensor *positions, tn_dtype dt)
{
    tn_ctx    *cx    = positions->cx;
    tn_tensor *place = tn_arange_i64(cx, TN_I64, 0, s->width, 1);
    tn_tensor *odd   = tn_eq_i64(tn_bit_and(place, tn_full_like(place, 1)), 1);
    tn_tensor *even  = tn_cast(tn_sub(place, tn_cast(odd, TN_I64)), dt);
    tn_tensor *f     = tn_exp(tn_mul_s(even, -log(s->base) / (double)s->width));
    tn_tensor *angle = tn_mul(tn_unsqueeze(tn_cast(positions, dt), -1), f);
    return tn_where(odd, tn_cos(angle), tn_sin(angle));
}

// Angles are computed in f32 at least: 16 bits would round positions.
static tn_tensor *positional_forward(tn_layer *l, tn_tensor *x)
{
    positional *s  = l->self;
    tn_ctx     *cx = l->owned.cx;
    tn_dtype    dt = tn_dtype_of(x);
    if (tn_rank(x) < 2 || tn_size(x, -1) != s->width || !tni_is_float(dt))
        return tni_fail(cx, TN_ESHAPE, "nn_positional: x %s is not (..., T, %lld) of floats",
                        tni_shape_of(x).s, (long long)s->width);
    int64_t T = tn_size(x, -2);
    if (s->w && !tn_layer_fits(l, T, s->length))
        return tni_fail(cx, TN_ESHAPE, "nn_positional: x %s goes beyond %lld positions",
                        tni_shape_of(x).s, (long long)s->length);
    tn_tensor *p = tn_layer_positions(l, T);
    if (!p) return NULL;
    p = s->w ? tn_embed(p, s->w) : waves(s, p, dt == TN_F64 ? TN_F64 : TN_F32);
    if (p && tn_dtype_of(p) != dt) p = tn_cast(p, dt);
    x = p ? tn_add(x, p) : NULL;
    return x ? tn_dropout(x, s->dropout, l->training) : NULL;
}

// Learned positions start with a deviation of 0.02, as GPT-2's.
tn_layer *tn_nn_positional(tn_ctx *cx, int64_t width, tn_nn_positional_opts o)
{
    const char *op = "nn_positional";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "width", width) ||
        (o.length && !tni_size_arg(cx, op, "length", o.length)) ||
        !tni_unit_arg(cx, op, "dropout", o.dropout))
        return NULL;
    if (o.base == 0) o.base = 10000;
    if (!(o.base > 0)) return tni_fail(cx, TN_EARG, "%s: base %g is not above 0", op, o.base);
    tn_layer *l = tni_layer_make(cx, op, "PositionalEncoding", positional_forward,
                                 sizeof(positional));
    if (!l) return NULL;
    positional *s = l->self;
    *s = (positional){ .width = width, .length = o.length, .base = o.base, .dropout = o.dropout };
    if (o.length)
        s->w = tni_new_param(l, "weight", tni_start_normal, 0.02, TN_SHAPE(o.length, width));
    return s->w || !o.length ? l : tni_layer_give_up(l);
}
