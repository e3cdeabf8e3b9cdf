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

// ---- products ----------------------------------------------------------------------------------
//
//   sum (a - p) (b - q) = sum a b - p sum b - q sum a + K p q        over K products
//
// so that bytes are multiplied as they are. The sums of weights, with what is added anyway, are kept from run to run.

// A zero point, one for all or for each place of an axis, in i32; NULL if there is none, or it is known to be 0.
static tn_tensor *zero_point(tni_onnx_call *c, tn_tensor *x, int i, int axis)
{
    int64_t v[TNI_ONNX_SMALL];
    int     n = 0, some = 0;
    if (!tni_onnx_has(c, i)) return NULL;
    tn_tensor *z = tni_onnx_in(c, i);
    if (z && tni_onnx_is_constant(c, i) && tn_count(z) <= TNI_ONNX_SMALL &&
        tni_onnx_ints(c, i, TNI_ONNX_SMALL, v, &n)) {
        for (int k = 0; k < n; k++) some |= v[k] != 0;
        if (!some) return NULL;
    }
    z = along(c, x, z, axis, 0);
    return z ? tn_cast(z, TN_I32) : NULL;
}

// x minus its zero point, in i32.
static tn_tensor *centered(tn_tensor *x, tn_tensor *zero)
{
    tn_tensor *y = tn_cast(x, TN_I32);
    return y && zero ? tn_sub(y, zero) : y;
}

// Whether both have elements of one byte, which products of bytes take.
static bool is_bytes(tn_tensor *a, tn_tensor *b)
{
    return tni_dtype_size(tn_dtype_of(a)) == 1 && tni_dtype_size(tn_dtype_of(b)) == 1;
}

// a b - zero points, in i32: a and b are inputs, or a is what stands for one; az and bz say which inputs are their zero points.
// b (K, N) is usually a weight, whose sums are kept in slot 0.
tn_tensor *tni_onnx_byte_product(tni_onnx_call *c, tn_tensor *a, tn_tensor *p, int b_at, int bz_at,
                                 bool turned)
{
    tn_tensor *b = tni_onnx_in(c, b_at), *sum = tni_onnx_kept(c, 0);
    if (!a || !b) return NULL;
    if (turned) b = tn_transpose(b, -2, -1);
    tn_tensor *q = zero_point(c, b, bz_at, -1);
    if (!is_bytes(a, b) || tn_rank(a) < 2 || tn_rank(b) < 2)
        return tn_matmul(centered(a, p), centered(b, q));
    tn_tensor *y = tn_matmul_i32(a, b);
    if (p && !sum) {
        sum = tn_sum_keep(tn_cast(b, TN_I32), -2);
        if (q) sum = tn_sub(sum, tn_mul_i64(q, tn_size(b, -2)));
        sum = tn_cast(sum, TN_I32);
        if (tni_onnx_is_fixed(c, b_at, b_at + 1) && tni_onnx_is_fixed(c, bz_at, bz_at + 1))
            sum = tni_onnx_keep(c, 0, sum);
    }
    if (p) y = tn_sub(y, tn_mul(p, sum));
    if (q) y = tn_sub(y, tn_mul(tn_cast(tn_sum_keep(tn_cast(a, TN_I32), -1), TN_I32), q));
    return y;
}

// MatMulInteger(a, b, zero of a, zero of b): i32.
bool tni_onnx_mat_mul_integer(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0);
    return a &&
           tni_onnx_out(c, 0, tni_onnx_byte_product(c, a, zero_point(c, a, 2, -2), 1, 3, false));
}

// round(sum * scale) + zero at the limits of zero's dtype.
static tn_tensor *scaled(tn_tensor *sum, tn_tensor *scale, tn_tensor *zero)
{
    double lo, hi;
    if (!sum || !scale || !zero || !limits(tn_dtype_of(zero), &lo, &hi)) return NULL;
    tn_tensor *y = tn_add(tn_round(tn_mul(tn_cast(sum, TN_F32), scale)),
                          tn_cast(tn_reshape(zero, 0, NULL), TN_F32));
    return tn_cast(tn_clamp(y, lo, hi), tn_dtype_of(zero));
}

// a * b / y of three scales, of which that of b may differ along an axis. Kept in slot 1 where all are of the file.
static tn_tensor *joined_scale(tni_onnx_call *c, tn_tensor *sum, const int at[3], int a_axis,
                               int b_axis)
{
    tn_tensor *s = tni_onnx_kept(c, 1);
    if (s || !sum) return s;
    tn_tensor *a = tni_onnx_in(c, at[0]), *b = tni_onnx_in(c, at[1]), *y = tni_onnx_in(c, at[2]);
    if (!a || !b || !y) return NULL;
    s          = tn_div(tn_mul(tn_cast(along(c, sum, a, a_axis, 0), TN_F32),
                               tn_cast(along(c, sum, b, b_axis, 0), TN_F32)),
                        tn_cast(tn_reshape(y, 0, NULL), TN_F32));
    bool fixed = true;
    for (int i = 0; i < 3; i++) fixed = fixed && tni_onnx_is_fixed(c, at[i], at[i] + 1);
    return fixed ? tni_onnx_keep(c, 1, s) : s;
}

// QLinearMatMul(a, scale, zero, b, scale, zero, scale of y, zero of y). The sum is scaled by one float.
bool tni_onnx_q_linear_mat_mul(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0);
    if (!a) return false;
    tn_tensor *sum = tni_onnx_byte_product(c, a, zero_point(c, a, 2, -2), 3, 5, false);
    return tni_onnx_out(
        c, 0, scaled(sum, joined_scale(c, sum, (int[]){ 1, 4, 6 }, -2, -1), tni_onnx_in(c, 7)));
}

// The sums of a convolution of bytes, exact, plus a bias. Pads are the zero point of x.
// What is added for each channel, the bias minus the zero point of x times the sum of weights, is kept in slot 0. Weights with a
// zero point, and elements wider than bytes, are centered and added up in f64.
static tn_tensor *conv_sums(tni_onnx_call *c, int x_at, int xz_at, int w_at, int wz_at, int b_at)
{
    tn_tensor *x = tni_onnx_in(c, x_at), *w = tni_onnx_in(c, w_at), *more = tni_onnx_kept(c, 0), *y;
    int64_t    pad = 0;
    int        n;
    if (!x || !w || tn_rank(x) < 3) return NULL;
    tn_tensor *wz = zero_point(c, w, wz_at, 0), *bias = b_at >= 0 ? tni_onnx_in(c, b_at) : NULL;
    bool       known = !tni_onnx_has(c, xz_at) ||
                 (tni_onnx_is_constant(c, xz_at) && tni_onnx_ints(c, xz_at, 1, &pad, &n));
    if (wz || !known || !is_bytes(x, w)) {
        tn_tensor *a = tn_cast(centered(x, zero_point(c, x, xz_at, 1)), TN_F64);
        y = tn_cast(tni_onnx_convolve(c, a, tn_cast(centered(w, wz), TN_F64), NULL), TN_I32);
        return y && bias ? tn_add(y, along(c, y, bias, 1, 0)) : y;
    }
    y = tni_onnx_convolve_bytes(c, x, w, pad);
    if (y && !more && (pad || bias)) {
        int axes[TN_MAX_RANK];
        for (int i = 1; i < tn_rank(w); i++) axes[i - 1] = i;
        if (pad)
            more = tn_mul_i64(tn_cast(tn_sum_axes(tn_cast(w, TN_I32), tn_rank(w) - 1, axes, false),
                                      TN_I32),
                              -pad);
        if (bias) more = more ? tn_add(more, bias) : bias;
        more = along(c, y, tn_cast(more, TN_I32), 1, 0);
        if (tni_onnx_is_fixed(c, w_at, w_at + 1) && tni_onnx_is_fixed(c, xz_at, xz_at + 1) &&
            (b_at < 0 || tni_onnx_is_fixed(c, b_at, b_at + 1)))
            more = tni_onnx_keep(c, 0, more);
    }
    return y && more ? tn_add(y, more) : y;
}

// ConvInteger(x, w, zero of x, zero of w): i32.
bool tni_onnx_conv_integer(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, conv_sums(c, 0, 2, 1, 3, -1));
}

// QLinearConv(x, scale, zero, w, scale, zero, scale of y, zero of y, bias). Scales of w may differ by channel; the bias is
// i32, in units of the sum.
bool tni_onnx_q_linear_conv(tni_onnx_call *c)
{
    tn_tensor *sum = conv_sums(c, 0, 2, 3, 5, tni_onnx_has(c, 8) ? 8 : -1);
    return tni_onnx_out(
        c, 0, scaled(sum, joined_scale(c, sum, (int[]){ 1, 4, 6 }, 1, 1), tni_onnx_in(c, 7)));
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

// QLinearAveragePool and QLinearGlobalAveragePool(x, scale, zero, scale of y, zero of y; channels_last).
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

// QGemm(a, scale, zero, b, scale, zero, bias, scale of y, zero of y; alpha, transA, transB): without a scale of y real numbers.
bool tni_onnx_q_gemm(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *bias = tni_onnx_in(c, 6), *sa = tni_onnx_in(c, 1),
              *sb = tni_onnx_in(c, 4);
    double alpha  = tni_onnx_attr_real(c, "alpha", 1);
    if (!a || !sa || !sb) return false;
    if (tni_onnx_attr_int(c, "transA", 0)) a = tn_transpose(a, 0, 1);
    tn_tensor *sum = tni_onnx_byte_product(c, a, zero_point(c, a, 2, -2), 3, 5,
                                           tni_onnx_attr_int(c, "transB", 0) != 0);
    if (sum && bias) sum = tn_add(sum, bias);
    tn_tensor *scale = tn_mul_s(tn_mul(tn_reshape(sa, 0, NULL), along(c, sum ? sum : a, sb, -1, 0)),
                                alpha);
    if (!tni_onnx_has(c, 7)) return sum && tni_onnx_out(c, 0, tn_mul(tn_cast(sum, TN_F32), scale));
    return tni_onnx_out(c, 0,
                        scaled(sum, tn_div(scale, tn_reshape(tni_onnx_in(c, 7), 0, NULL)),
                               tni_onnx_in(c, 8)));
}

// Real numbers of a product of bytes: sum * scale of a * scale of b + bias.
static bool real_product(tni_onnx_call *c, tn_tensor *sum, tn_tensor *sa, int sb_at, int bias_at)
{
    tn_tensor *sb = tni_onnx_in(c, sb_at), *bias = tni_onnx_in(c, bias_at);
    if (!sum || !sa || !sb) return false;
    tn_tensor *y = tn_mul(tn_cast(sum, TN_F32),
                          tn_mul(tn_reshape(sa, 0, NULL), along(c, sum, sb, -1, 0)));
    return tni_onnx_out(c, 0, bias ? tn_add(y, bias) : y);
}

// MatMulIntegerToFloat(a, b, scale of a, scale of b, zero of a, zero of b, bias).
bool tni_onnx_mat_mul_integer_to_float(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0);
    return a && real_product(c, tni_onnx_byte_product(c, a, zero_point(c, a, 4, -2), 1, 5, false),
                             tni_onnx_in(c, 2), 3, 6);
}

// DynamicQuantizeMatMul(a, b, scale of b, zero of b, bias): a as bytes by its range, as DynamicQuantizeLinear has it.
bool tni_onnx_dynamic_quantize_mat_mul(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *scale, *zero;
    if (!a) return false;
    a = quantize_by_range(a, &scale, &zero);
    return real_product(c, tni_onnx_byte_product(c, a, tn_cast(zero, TN_I32), 1, 3, false), scale,
                        2, 4);
}
