// Quantized operators: numbers as small integers with a scale and a zero point, one for the tensor, for each place of an
// axis, or for each block along it. Products of integers are exact: they are computed in i32.
//
//   x   -1.0   0.0   0.6     scale 0.01, zero 128
//   q   28     128   188     round(x / scale) + zero, within 0 .. 255
//
//   sum of (qa - zero a) * (qb - zero b) = sum of a * b / (scale a * scale b)
//
// so that a product in integers is that of the real numbers, times one factor.
#include "onnx/onnx_ops.h"

#include <math.h>

// Shapes a parameter so that it broadcasts to x: (n) along an axis, or blocks of an axis, each repeated.
static tn_tensor *along(tni_onnx_call *c, tn_tensor *x, tn_tensor *p, int axis, int64_t block)
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

// The least and largest integer of a dtype of at most 16 bits.
static bool limits(tn_dtype dt, double *lo, double *hi)
{
    *lo = dt == TN_I8 ? -128 : dt == TN_I16 ? -32768 : 0;
    *hi = dt == TN_I8 ? 127 : dt == TN_U8 ? 255 : dt == TN_I16 ? 32767 : 65535;
    return dt == TN_I8 || dt == TN_U8 || dt == TN_I16 || dt == TN_U16;
}

// round(x / scale) + zero, at the limits of dt. Divided, not multiplied by the inverse, which differs where the quotient is
// halfway between two integers.
// Halves go to the even integer, before the zero point is added.
static tn_tensor *quantize(tn_tensor *x, tn_tensor *scale, tn_tensor *zero, tn_dtype dt)
{
    double lo, hi;
    if (!limits(dt, &lo, &hi)) return tn_cast(tn_div(x, scale), dt);
    tn_tensor *y = tn_round(tn_div(x, scale));
    if (zero) y = tn_add(y, tn_cast(zero, tn_dtype_of(x)));
    return tn_cast(tn_clamp(y, lo, hi), dt);
}

// The same to a type that is kept in a wider dtype: integers at the limits of their bits, floats as casts have them.
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

// QuantizeLinear(x, scale, zero; axis, block_size, output_dtype), computed in f32.
bool tni_onnx_quantize_linear(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *scale = tni_onnx_in(c, 1), *zero = tni_onnx_in(c, 2);
    int        axis = (int)tni_onnx_attr_int(c, "axis", 1), few = tni_onnx_narrow_in(c, 2);
    int64_t    type = tni_onnx_attr_int(c, "output_dtype", few),
            block   = tni_onnx_attr_int(c, "block_size", 0);
    tn_dtype dt     = zero ? tn_dtype_of(zero) : TN_U8;
    if (!x || !scale || (tni_onnx_has(c, 2) && !zero)) return false;
    if (type && !tni_onnx_dtype(type, &dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    if (!tni_is_float(tn_dtype_of(x))) x = tn_cast(x, TN_F32);
    tn_tensor *wide = tn_cast(x, TN_F32);
    scale           = along(c, x, tn_cast(scale, TN_F32), axis, block);
    zero            = zero ? along(c, x, zero, axis, block) : NULL;
    if (!tni_onnx_is_narrow(type, &dt, &few))
        return tni_onnx_out(c, 0, quantize(wide, scale, zero, dt));
    return quantize_narrow(c, wide, scale, zero, (int)type);
}

// DequantizeLinear(x, scale, zero; axis, block_size): (x - zero) * scale, the difference in i32.
bool tni_onnx_dequantize_linear(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *scale = tni_onnx_in(c, 1), *zero = tni_onnx_in(c, 2);
    int        axis = (int)tni_onnx_attr_int(c, "axis", 1);
    int64_t    type = tni_onnx_attr_int(c, "output_dtype", 0),
            block   = tni_onnx_attr_int(c, "block_size", 0);
    if (!x || !scale || (tni_onnx_has(c, 2) && !zero)) return false;
    tn_dtype dt = tn_dtype_of(scale);
    if (type && !tni_onnx_dtype(type, &dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    bool       real = tni_is_float(tn_dtype_of(x));
    tn_tensor *y    = tn_cast(x, real ? TN_F32 : TN_I32);
    if (zero) y = tn_sub(y, tn_cast(along(c, x, zero, axis, block), real ? TN_F32 : TN_I32));
    return tni_onnx_out(
        c, 0,
        tn_cast(tn_mul(tn_cast(y, TN_F32), tn_cast(along(c, x, scale, axis, block), TN_F32)), dt));
}

// A range that has 0 in it, as u8; of zeros alone the scale is 1.
// The range is that of the values; scale and zero point are results too, for the product that follows.
bool tni_onnx_dynamic_quantize_linear(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    if (!x) return false;
    tn_tensor *lo = tn_minimum_s(tn_min_all(x), 0), *hi = tn_maximum_s(tn_max_all(x), 0),
              *scale = tn_div_s(tn_sub(hi, lo), 255);
    scale            = tn_where(tn_eq_s(scale, 0), tn_ones_like(scale), scale);
    tn_tensor *zero  = tn_cast(tn_clamp(tn_round(tn_div(tn_neg(lo), scale)), 0, 255), TN_U8);
    return tni_onnx_out(c, 0, quantize(x, scale, zero, TN_U8)) && tni_onnx_out(c, 1, scale) &&
           tni_onnx_out(c, 2, zero);
}

// ---- products ----------------------------------------------------------------------------------

// x minus its zero point, in i32. axis: that of zero points which differ.
static tn_tensor *centered(tni_onnx_call *c, tn_tensor *x, tn_tensor *zero, int axis)
{
    tn_tensor *y = tn_cast(x, TN_I32);
    return y && zero ? tn_sub(y, tn_cast(along(c, x, zero, axis, 0), TN_I32)) : y;
}

// MatMulInteger(a, b, zero of a, zero of b): i32.
bool tni_onnx_mat_mul_integer(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *b = tni_onnx_in(c, 1);
    if (!a || !b) return false;
    return tni_onnx_out(c, 0,
                        tn_matmul(centered(c, a, tni_onnx_in(c, 2), -2),
                                  centered(c, b, tni_onnx_in(c, 3), -1)));
}

// QLinearMatMul(a, scale, zero, b, scale, zero, scale of y, zero of y). The sum is scaled by one float.
bool tni_onnx_q_linear_mat_mul(tni_onnx_call *c)
{
    tn_tensor *x[8];
    for (int i = 0; i < 8; i++)
        if (!(x[i] = tni_onnx_in(c, i))) return false;
    tn_tensor *sum   = tn_matmul(centered(c, x[0], x[2], -2), centered(c, x[3], x[5], -1));
    tn_tensor *scale = tn_div(tn_mul(tn_cast(along(c, x[0], x[1], -2, 0), TN_F32),
                                     tn_cast(along(c, x[3], x[4], -1, 0), TN_F32)),
                              tn_cast(x[6], TN_F32));
    double     lo, hi;
    if (!sum || !scale || !limits(tn_dtype_of(x[7]), &lo, &hi)) return false;
    tn_tensor *y = tn_add(tn_round(tn_mul(tn_cast(sum, TN_F32), scale)), tn_cast(x[7], TN_F32));
    return tni_onnx_out(c, 0, tn_cast(tn_clamp(y, lo, hi), tn_dtype_of(x[7])));
}

// The sums of a convolution of integers, exact: in f64, as Tenon's convolutions are of floats. Pads are zero points, which
// are 0 once x is centered.
static tn_tensor *conv_sums(tni_onnx_call *c, tn_tensor *x, tn_tensor *w)
{
    return tn_cast(tni_onnx_convolve(c, tn_cast(x, TN_F64), tn_cast(w, TN_F64), NULL), TN_I32);
}

// ConvInteger(x, w, zero of x, zero of w): i32.
bool tni_onnx_conv_integer(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1);
    if (!x || !w) return false;
    return tni_onnx_out(c, 0,
                        conv_sums(c, centered(c, x, tni_onnx_in(c, 2), 1),
                                  centered(c, w, tni_onnx_in(c, 3), 0)));
}

// QLinearConv(x, scale, zero, w, scale, zero, scale of y, zero of y, bias). Scales of w may differ by channel; the bias is
// i32, in units of the sum.
bool tni_onnx_q_linear_conv(tni_onnx_call *c)
{
    tn_tensor *x[8], *bias = tni_onnx_in(c, 8), *sum;
    double     lo, hi;
    for (int i = 0; i < 8; i++)
        if (!(x[i] = tni_onnx_in(c, i))) return false;
    sum = conv_sums(c, centered(c, x[0], x[2], 1), centered(c, x[3], x[5], 0));
    if (!sum || !limits(tn_dtype_of(x[7]), &lo, &hi)) return false;
    if (tni_onnx_has(c, 8)) sum = tn_add(sum, along(c, sum, bias, 1, 0));
    tn_tensor *scale = tn_div(tn_mul(tn_cast(tn_reshape(x[1], 0, NULL), TN_F32),
                                     tn_cast(along(c, sum, x[4], 1, 0), TN_F32)),
                              tn_cast(x[6], TN_F32));
    tn_tensor *y     = tn_add(tn_round(tn_mul(tn_cast(sum, TN_F32), scale)), tn_cast(x[7], TN_F32));
    return tni_onnx_out(c, 0, tn_cast(tn_clamp(y, lo, hi), tn_dtype_of(x[7])));
}
