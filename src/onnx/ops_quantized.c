// Quantized operators: numbers as small integers with a scale and a zero point, one for the tensor,
// for each place of an axis, or for each block along it. Products of integers are exact: they are
// computed in i32.
//
//   x   -1.0   0.0   0.6     scale 0.01, zero 128
//   q   28     128   188     round(x / scale) + zero, within 0 .. 255
//
//   sum of (qa - zero a) * (qb - zero b) = sum of a * b / (scale a * scale b)
//
// so that a product in integers is that of the real numbers, times one factor.
#include "onnx/onnx_ops.h"

#include <math.h>

// Shapes a parameter so that it broadcasts to x: (n) along an axis, or blocks of an axis, each
// repeated.
tn_tensor *tni_onnx_along(tni_onnx_call *c, tn_tensor *x, tn_tensor *p, int axis, int64_t block)
{
    int64_t size[TN_MAX_RANK];
    if (!p || tn_count(p) == 1) return p ? tn_reshape(p, 0, NULL) : NULL;
    if (axis < 0) axis += tn_rank(x);
    if (axis < 0 || axis >= tn_rank(x))
        return tni_onnx_refuse(c, "axis %d is out of range of x %s", axis, tni_shape_of(x).s), NULL;
    if (block && tn_rank(p) == tn_rank(x))
        return tn_slice(tn_repeat_interleave(p, 1, &block, axis), axis, 0, tn_size(x, axis), 1);
    for (int i = 0; i < tn_rank(x); i++) size[i] = i == axis ? tn_count(p) : 1;
    return tn_reshape(p, tn_rank(x), size);
}

// round(x / scale) + zero; the cast has what is beyond the limits of dt at them. Divided, not
// multiplied by the inverse, which differs where the quotient is halfway between two integers.
// Halves go to the even integer, before the zero point is added.
static tn_tensor *quantize(tn_tensor *x, tn_tensor *scale, tn_tensor *zero, tn_dtype dt)
{
    tn_tensor *y = tn_div(x, scale);
    if (!tni_is_float(dt)) y = tn_round(y);
    if (zero && !tni_is_float(dt)) y = tn_add(y, tn_cast(zero, tn_dtype_of(x)));
    return tn_cast(y, dt);
}

// The same to a type that is kept in a wider dtype: integers at the limits of their bits, floats as
// casts have them.
static bool quantize_narrow(tni_onnx_call *c, tn_tensor *x, tn_tensor *scale, tn_tensor *zero,
                            int type)
{
    tn_dtype   dt;
    int        bits;
    tn_tensor *y = tn_div(x, scale);
    tni_onnx_is_narrow(type, &dt, &bits);
    if (dt != TN_F32) y = tn_round(y);
    if (zero) y = tn_add(y, tn_cast(zero, TN_F32));
    double low = dt == TN_I8 ? -(1 << (bits - 1)) : 0;
    if (dt != TN_F32) y = tn_cast(tn_clamp(y, low, low + (1 << bits) - 1), dt);
    else y = tni_onnx_narrowed(y, type, tni_onnx_attr_int(c, "saturate", 1) != 0, (tni_wire){ 0 });
    if (!tni_onnx_out(c, 0, y)) return false;
    tni_onnx_narrow_out(c, 0, type);
    return true;
}

// Whether x is the sum of a product of bytes that is quantized to bytes with one scale: see
// ops_bytes.c. Then the factor of the sum is divided by the scale, once, and each sum multiplied by
// that, as QLinearConv has it.
static tn_tensor *quantize_sum(tni_onnx_call *c, tn_tensor *scale, tn_tensor *zero, tn_dtype dt)
{
    const tni_onnx_value *v = tni_onnx_value_in(c, 0);
    tn_tensor            *s = tni_onnx_kept(c, 1);
    if (!v->sum || tni_dtype_size(dt) != 1 || tn_count(scale) != 1 || (zero && tn_count(zero) != 1))
        return NULL;
    if (!s) s = tn_div(v->factor, tn_cast(tn_reshape(scale, 0, NULL), TN_F32));
    if (!tni_onnx_kept(c, 1) && v->factor_fixed && tni_onnx_is_fixed(c, 1, 2))
        s = tni_onnx_keep(c, 1, s);
    return tni_onnx_scaled(v->sum, s, zero, dt);
}

// QuantizeLinear(x, scale, zero; axis, block_size, output_dtype), computed in f32.
bool tni_onnx_quantize_linear(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *scale = tni_onnx_in(c, 1), *zero = tni_onnx_in(c, 2), *y;
    int        axis = (int)tni_onnx_attr_int(c, "axis", 1), few = tni_onnx_narrow_in(c, 2);
    int64_t    type = tni_onnx_attr_int(c, "output_dtype", few),
            block   = tni_onnx_attr_int(c, "block_size", 0);
    tn_dtype dt     = zero ? tn_dtype_of(zero) : TN_U8;
    if (!x || !scale || (tni_onnx_has(c, 2) && !zero)) return false;
    if (type && !tni_onnx_dtype(type, &dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    tni_onnx_operand q      = tni_onnx_operand_of(c, -1, 1, 2);
    bool             narrow = tni_onnx_is_narrow(type, &dt, &few);
    if (tni_onnx_is_zero(&q)) zero = NULL;
    if (!narrow && (y = quantize_sum(c, scale, zero, dt))) return tni_onnx_out(c, 0, y);
    if (!tni_is_float(tn_dtype_of(x))) x = tn_cast(x, TN_F32);
    tn_tensor *wide = tn_cast(x, TN_F32);
    scale           = tni_onnx_along(c, x, tn_cast(scale, TN_F32), axis, block);
    zero            = zero ? tni_onnx_along(c, x, zero, axis, block) : NULL;
    if (!narrow) return tni_onnx_out(c, 0, quantize(wide, scale, zero, dt));
    return quantize_narrow(c, wide, scale, zero, (int)type);
}

// (x - zero) * scale. The difference of integers is one of i32, and of bytes one of f32, which is
// exact and saves conversions of what was rounded just before.
tn_tensor *tni_onnx_dequantize(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *scale = tni_onnx_in(c, 1), *zero = tni_onnx_in(c, 2);
    int        axis = (int)tni_onnx_attr_int(c, "axis", 1);
    int64_t    type = tni_onnx_attr_int(c, "output_dtype", 0),
            block   = tni_onnx_attr_int(c, "block_size", 0);
    if (!x || !scale || (tni_onnx_has(c, 2) && !zero)) return NULL;
    tn_dtype dt = tn_dtype_of(scale);
    if (type && !tni_onnx_dtype(type, &dt)) {
        tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
        return NULL;
    }
    tni_onnx_operand q    = tni_onnx_operand_of(c, 0, 1, 2);
    bool             real = tni_is_float(tn_dtype_of(x)) || tni_dtype_size(tn_dtype_of(x)) == 1;
    tn_tensor       *y    = tn_cast(x, real ? TN_F32 : TN_I32);
    if (tni_onnx_is_zero(&q)) zero = NULL;
    scale = tni_onnx_along(c, x, scale, axis, block);
    if (zero) zero = tni_onnx_along(c, x, zero, axis, block);
    if (zero) y = tn_sub(y, tn_cast(zero, real ? TN_F32 : TN_I32));
    return tn_cast(tn_mul(tn_cast(y, TN_F32), tn_cast(scale, TN_F32)), dt);
}

// Whether products may take the integers behind the result: bytes, or i32 as biases are, with
// scales in f32 that are not trained and not of blocks.
static bool shows_integers(tni_onnx_call *c)
{
    const tni_onnx_value *x = tni_onnx_value_in(c, 0), *s = tni_onnx_value_in(c, 1);
    tn_tensor            *t = x->t ? x->t : x->host, *scale = s->t ? s->t : s->host;
    if (!t || !scale || x->param || s->param || c->r->training || c->r->m->as != TN_F32 ||
        tn_dtype_of(scale) != TN_F32 || tni_onnx_attr_int(c, "output_dtype", 1) != 1 ||
        tni_onnx_attr_int(c, "block_size", 0))
        return false;
    tn_dtype dt = tn_dtype_of(t);
    return dt == TN_I8 || dt == TN_U8 || dt == TN_I32;
}

// DequantizeLinear(x, scale, zero; axis, block_size, output_dtype). On the device its result is
// computed if anything but a product of bytes reads it.
bool tni_onnx_dequantize_linear(tni_onnx_call *c)
{
    bool shows = tni_onnx_has(c, 0) && tni_onnx_has(c, 1) && shows_integers(c);
    if (c->cx == c->r->host || !shows) {
        if (!tni_onnx_out(c, 0, tni_onnx_dequantize(c))) return false;
    } else tni_onnx_value_out(c, 0, (tni_onnx_value){ 0 });
    if (shows) tni_onnx_dequantizes_out(c);
    return true;
}

// A range that has 0 in it, as u8; of zeros alone the scale is 1.
// The range is that of the values; scale and zero point are results too, for the product that
// follows.
static tn_tensor *quantize_by_range(tn_tensor *x, tn_tensor **scale, tn_tensor **zero)
{
    tn_tensor *lo = tn_minimum_s(tn_min_all(x), 0), *hi = tn_maximum_s(tn_max_all(x), 0),
              *s = tn_div_s(tn_sub(hi, lo), 255);
    *scale       = tn_where(tn_eq_s(s, 0), s ? tn_ones_like(s) : NULL, s);
    *zero        = tn_cast(tn_clamp(tn_round(tn_div(tn_neg(lo), *scale)), 0, 255), TN_U8);
    return quantize(x, *scale, *zero, TN_U8);
}

// DynamicQuantizeLinear(x): bytes, scale, zero point.
bool tni_onnx_dynamic_quantize_linear(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *scale, *zero;
    return x && tni_onnx_out(c, 0, quantize_by_range(x, &scale, &zero)) &&
           tni_onnx_out(c, 1, scale) && tni_onnx_out(c, 2, zero);
}

// ---- com.microsoft's ---------------------------------------------------------------------------

// Input i as a real number, with its scale and zero point in the two inputs behind it.
static tn_tensor *real_in(tni_onnx_call *c, int i)
{
    tn_tensor *x = tni_onnx_in(c, i), *scale = tni_onnx_in(c, i + 1), *zero = tni_onnx_in(c, i + 2);
    if (!x || !scale) return NULL;
    x = tn_cast(x, TN_I32);
    if (zero) x = tn_sub(x, tn_cast(tn_reshape(zero, 0, NULL), TN_I32));
    return tn_mul(tn_cast(x, TN_F32), tn_reshape(scale, 0, NULL));
}

// Real numbers as integers, by the scale and zero point of inputs i and i + 1.
static bool real_out(tni_onnx_call *c, tn_tensor *y, int i)
{
    tn_tensor *scale = tni_onnx_in(c, i), *zero = tni_onnx_in(c, i + 1), *x = tni_onnx_in(c, 0);
    if (!y || !scale || !x) return false;
    tn_dtype dt = zero ? tn_dtype_of(zero) : tn_dtype_of(x);
    zero        = zero ? tn_reshape(zero, 0, NULL) : NULL;
    return tni_onnx_out(c, 0, quantize(y, tn_reshape(scale, 0, NULL), zero, dt));
}

// QLinearAdd and QLinearMul(a, scale, zero, b, scale, zero, scale of y, zero of y).
bool tni_onnx_q_linear_add(tni_onnx_call *c)
{
    return real_out(c, tn_add(real_in(c, 0), real_in(c, 3)), 6);
}
// The product is of real numbers, rounded once, as ONNX Runtime has it.
bool tni_onnx_q_linear_mul(tni_onnx_call *c)
{
    return real_out(c, tn_mul(real_in(c, 0), real_in(c, 3)), 6);
}

// Those of one tensor: (x, scale, zero, scale of y, zero of y).
bool tni_onnx_q_linear_sigmoid(tni_onnx_call *c)
{
    return real_out(c, tn_sigmoid(real_in(c, 0)), 3);
}
// QLinearLeakyRelu(...; alpha).
bool tni_onnx_q_linear_leaky_relu(tni_onnx_call *c)
{
    return real_out(c, tn_leaky_relu(real_in(c, 0), tni_onnx_attr_real(c, "alpha", 0.01)), 3);
}
// QLinearSoftmax(...; axis, opset): opset says which of the standard's two meanings an axis has.
bool tni_onnx_q_linear_softmax(tni_onnx_call *c)
{
    tn_tensor *x    = real_in(c, 0);
    int        axis = (int)tni_onnx_attr_int(c, "axis", -1);
    if (!x) return false;
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(x); i++) size[i] = tn_size(x, i);
    if (axis < 0) axis += tn_rank(x);
    // As before opset 13 of the standard, all axes from this one on are one.
    if (tni_onnx_attr_int(c, "opset", 13) < 13 && axis >= 0 && axis < tn_rank(x))
        x = tn_reshape(tn_softmax(tn_flatten(x, axis, tn_rank(x) - 1), axis), tn_rank(x), size);
    else x = tn_softmax(x, axis);
    return real_out(c, x, 3);
}

// Channels behind the places, as NHWC has them, before them; and back.
static tn_tensor *channels_first(tn_tensor *x, bool last)
{
    int order[TN_MAX_RANK], n = x ? tn_rank(x) : 0;
    for (int i = 0; i < n; i++) order[i] = i < 1 ? i : i == 1 ? n - 1 : i - 1;
    return n && last ? tn_permute(x, n, order) : x;
}
// The order of NHWC again.
static tn_tensor *channels_back(tn_tensor *x, bool last)
{
    int order[TN_MAX_RANK], n = x ? tn_rank(x) : 0;
    for (int i = 0; i < n; i++) order[i] = i < 1 ? i : i == n - 1 ? 1 : i + 1;
    return n && last ? tn_permute(x, n, order) : x;
}

// QLinearAveragePool and QLinearGlobalAveragePool(x, scale, zero, scale of y, zero of y;
// channels_last).
bool tni_onnx_q_linear_average_pool(tni_onnx_call *c)
{
    bool last = tni_onnx_attr_int(c, "channels_last", 0) != 0;
    return real_out(
        c, channels_back(tni_onnx_averages(c, channels_first(real_in(c, 0), last)), last), 3);
}
// All places of a channel are one window.
bool tni_onnx_q_linear_global_average_pool(tni_onnx_call *c)
{
    tn_tensor *x = real_in(c, 0);
    int        axes[TN_MAX_RANK], first = tni_onnx_attr_int(c, "channels_last", 0) ? 1 : 2;
    if (!x || tn_rank(x) < 3) return false;
    for (int i = 0; i < tn_rank(x) - 2; i++) axes[i] = first + i;
    return real_out(c, tn_mean_axes(x, tn_rank(x) - 2, axes, true), 3);
}

// QLinearConcat(scale of y, zero of y, x, scale, zero, ...; axis).
bool tni_onnx_q_linear_concat(tni_onnx_call *c)
{
    int         n    = (c->nin - 2) / 3;
    tn_tensor **x    = tni_alloc(&c->r->cx->heap, (size_t)(n + 1) * sizeof *x),
              *scale = tni_onnx_in(c, 0), *zero = tni_onnx_in(c, 1), *y = NULL;
    bool ok = x && scale && zero && n > 0;
    for (int i = 0; ok && i < n; i++) ok = (x[i] = real_in(c, 2 + 3 * i)) != NULL;
    if (ok)
        y = quantize(tn_concat(n, x, (int)tni_onnx_attr_int(c, "axis", 0)),
                     tn_reshape(scale, 0, NULL), tn_reshape(zero, 0, NULL), tn_dtype_of(zero));
    tni_free(&c->r->cx->heap, x);
    return tni_onnx_out(c, 0, y);
}

// Real numbers of a product of bytes: sum * scale of a * scale of b + bias.
static bool real_product(tni_onnx_call *c, tn_tensor *sum, tn_tensor *sa, int sb_at, int bias_at)
{
    tn_tensor *sb = tni_onnx_in(c, sb_at), *bias = tni_onnx_in(c, bias_at);
    if (!sum || !sa || !sb) return false;
    tn_tensor *y = tn_mul(tn_cast(sum, TN_F32),
                          tn_mul(tn_reshape(sa, 0, NULL), tni_onnx_along(c, sum, sb, -1, 0)));
    return tni_onnx_out(c, 0, bias ? tn_add(y, bias) : y);
}

// MatMulIntegerToFloat(a, b, scale of a, scale of b, zero of a, zero of b, bias).
bool tni_onnx_mat_mul_integer_to_float(tni_onnx_call *c)
{
    tni_onnx_operand a = tni_onnx_operand_of(c, 0, 2, 4), b = tni_onnx_operand_of(c, 1, 3, 5);
    tn_tensor       *x    = tni_onnx_in(c, 0);
    tni_onnx_left    left = { x, tni_onnx_zero_point(&a, x, -2), false };
    return real_product(c, tni_onnx_byte_product(c, &left, &b, NULL, false), tni_onnx_in(c, 2), 3,
                        6);
}

// DynamicQuantizeMatMul(a, b, scale of b, zero of b, bias): a as bytes by its range, as
// DynamicQuantizeLinear has it.
bool tni_onnx_dynamic_quantize_mat_mul(tni_onnx_call *c)
{
    tni_onnx_operand b = tni_onnx_operand_of(c, 1, 2, 3);
    tn_tensor       *a = tni_onnx_in(c, 0), *scale, *zero;
    if (!a) return false;
    a                  = quantize_by_range(a, &scale, &zero);
    tni_onnx_left left = { a, tn_cast(zero, TN_I32), false };
    return real_product(c, tni_onnx_byte_product(c, &left, &b, NULL, false), scale, 2, 4);
}
