// Operators that compute each element from those at the same place: arithmetic, comparison,
// activations.
#include "onnx/onnx_ops.h"

// The map of the node's row.
bool tni_onnx_one(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tni_onnx_op_at(c->n->row)->one(tni_onnx_in(c, 0)));
}

// Before opset 7 the second operand broadcasts only if an attribute says so, from the axis in
// another.
static tn_tensor *second(tni_onnx_call *c, tn_tensor *a)
{
    tn_tensor *b    = tni_onnx_in(c, 1);
    int64_t    axis = tni_onnx_attr_int(c, "axis", -1);
    if (!a || !b || c->opset >= 7 || axis < 0 || !tni_onnx_attr_int(c, "broadcast", 0)) return b;
    while (b && tn_rank(b) + axis < tn_rank(a)) b = tn_unsqueeze(b, -1);
    return b;
}

// The same of two tensors, which broadcast as in NumPy.
bool tni_onnx_two(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0);
    return tni_onnx_out(c, 0, tni_onnx_op_at(c->n->row)->two(a, second(c, a)));
}

// Min, Max and Sum of any number of tensors.
// A NaN in any of them is the result, as in NumPy.
bool tni_onnx_variadic(tni_onnx_call *c)
{
    tn_tensor *y = tni_onnx_in(c, 0);
    for (int i = 1; y && i < c->nin; i++) y = tni_onnx_op_at(c->n->row)->two(y, tni_onnx_in(c, i));
    return tni_onnx_out(c, 0, y);
}

// Mean(x...): of any number of tensors.
bool tni_onnx_mean(tni_onnx_call *c)
{
    tn_tensor *y = tni_onnx_in(c, 0);
    for (int i = 1; y && i < c->nin; i++) y = tn_add(y, tni_onnx_in(c, i));
    return tni_onnx_out(c, 0, y ? tn_mul_s(y, 1.0 / c->nin) : NULL);
}

// The quotient of integers is cut, not rounded down.
// -7 / 2 is -3, where Python's // gives -4.
bool tni_onnx_div(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *b = second(c, a);
    if (!a || !b) return false;
    return tni_onnx_out(c, 0, tni_is_float(tn_dtype_of(a)) ? tn_div(a, b) : tn_trunc_divide(a, b));
}

// Mod(a, b; fmod): with the sign of b, with fmod of a.
bool tni_onnx_mod(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *b = tni_onnx_in(c, 1);
    return tni_onnx_out(c, 0, tni_onnx_attr_int(c, "fmod", 0) ? tn_fmod(a, b) : tn_remainder(a, b));
}

// The result has the dtype of the base. A power that is a number of the file is a cheaper map.
// An integer to the power of a float is computed in f64 and cut to the integer again.
bool tni_onnx_pow(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *b = second(c, a);
    if (!a || !b) return false;
    tn_dtype dt = tn_dtype_of(a);
    double   power;
    int      n = 0;
    if (tni_is_float(dt) && tn_count(b) == 1 && tn_rank(b) <= tn_rank(a) &&
        tni_onnx_is_constant(c, 1)) {
        if (!tni_onnx_reals(c, 1, 1, &power, &n)) return false;
        return tni_onnx_out(c, 0,
                            power == 2      ? tn_square(a)
                            : power == 3    ? tn_mul(tn_square(a), a)
                            : power == 0.5  ? tn_sqrt(a)
                            : power == -0.5 ? tn_rsqrt(a)
                            : power == -1   ? tn_reciprocal(a)
                                            : tn_pow_s(a, power));
    }
    if (!tni_is_float(dt) && tni_is_float(tn_dtype_of(b)))
        return tni_onnx_out(c, 0, tn_cast(tn_pow(tn_cast(a, TN_F64), b), dt));
    return tni_onnx_out(c, 0, tn_cast(tn_pow(a, tn_dtype_of(b) == dt ? b : tn_cast(b, dt)), dt));
}

// Bounds are inputs from opset 11 on. The lower one first: if it is the larger one, the result is
// the upper one. A bound that is left out is none; a NaN stays a NaN.
bool tni_onnx_clip(tni_onnx_call *c)
{
    tn_tensor *y = tni_onnx_in(c, 0);
    if (c->opset < 11) {
        double lo = tni_onnx_attr_real(c, "min", -3.402823466e38),
               hi = tni_onnx_attr_real(c, "max", 3.402823466e38);
        return tni_onnx_out(c, 0, tn_clamp(y, lo, hi));
    }
    if (y && tni_onnx_has(c, 1)) y = tn_maximum(y, tni_onnx_in(c, 1));
    if (y && tni_onnx_has(c, 2)) y = tn_minimum(y, tni_onnx_in(c, 2));
    return tni_onnx_out(c, 0, y);
}

// BitShift(x, bits; direction).
bool tni_onnx_bit_shift(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *b = tni_onnx_in(c, 1);
    bool       left = tni_onnx_attr_is(c, "direction", "LEFT", false);
    return tni_onnx_out(c, 0, left ? tn_shl(a, b) : tn_shr(a, b));
}

// IsInf(x; detect_negative, detect_positive).
bool tni_onnx_is_inf(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *y = tn_isinf(x);
    bool       down = tni_onnx_attr_int(c, "detect_negative", 1) != 0,
         up         = tni_onnx_attr_int(c, "detect_positive", 1) != 0;
    if (y && !down) y = tn_logical_and(y, tn_gt_s(x, 0));
    if (y && !up) y = tn_logical_and(y, tn_lt_s(x, 0));
    return tni_onnx_out(c, 0, y);
}

// ---- choices -----------------------------------------------------------------------------------

// Where(condition, a, b).
bool tni_onnx_where(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tn_where(tni_onnx_in(c, 0), tni_onnx_in(c, 1), tni_onnx_in(c, 2)));
}

// Identity(x), also of sequences and optionals.
bool tni_onnx_identity(tni_onnx_call *c)
{
    return tni_onnx_copy(c, 0, 0);
}

// ---- activations -------------------------------------------------------------------------------

// LeakyRelu(x; alpha): alpha times x below 0.
bool tni_onnx_leaky_relu(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0,
                        tn_leaky_relu(tni_onnx_in(c, 0), tni_onnx_attr_real(c, "alpha", 0.01)));
}

// Elu(x; alpha): alpha times e^x - 1 below 0.
bool tni_onnx_elu(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tn_elu(tni_onnx_in(c, 0), tni_onnx_attr_real(c, "alpha", 1)));
}

// Celu(x; alpha): alpha times e^(x / alpha) - 1 below 0.
bool tni_onnx_celu(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tn_celu(tni_onnx_in(c, 0), tni_onnx_attr_real(c, "alpha", 1)));
}

// gamma * elu(x, alpha), whose defaults are those of selu.
bool tni_onnx_selu(tni_onnx_call *c)
{
    double alpha = tni_onnx_attr_real(c, "alpha", 1.67326319217681884765625),
           gamma = tni_onnx_attr_real(c, "gamma", 1.05070102214813232421875);
    return tni_onnx_out(c, 0, tn_mul_s(tn_elu(tni_onnx_in(c, 0), alpha), gamma));
}

// HardSigmoid(x; alpha, beta): alpha x + beta within 0 .. 1; alpha is 0.2 here, not 1/6 as in
// PyTorch.
bool tni_onnx_hard_sigmoid(tni_onnx_call *c)
{
    double alpha = tni_onnx_attr_real(c, "alpha", 0.2), beta = tni_onnx_attr_real(c, "beta", 0.5);
    return tni_onnx_out(c, 0, tn_clamp(tn_add_s(tn_mul_s(tni_onnx_in(c, 0), alpha), beta), 0, 1));
}

// Gelu(x; approximate).
bool tni_onnx_gelu(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    return tni_onnx_out(
        c, 0, tni_onnx_attr_is(c, "approximate", "tanh", false) ? tn_gelu_tanh(x) : tn_gelu(x));
}

// x * sigmoid(alpha * x).
bool tni_onnx_swish(tni_onnx_call *c)
{
    tn_tensor *x     = tni_onnx_in(c, 0);
    double     alpha = tni_onnx_attr_real(c, "alpha", 1);
    return tni_onnx_out(c, 0, alpha == 1 ? tn_silu(x) : tn_mul(x, tn_sigmoid(tn_mul_s(x, alpha))));
}

// SwiGLU(a, b; alpha): a * sigmoid(alpha * a) * b.
bool tni_onnx_swi_glu(tni_onnx_call *c)
{
    tn_tensor *a = tni_onnx_in(c, 0), *b = tni_onnx_in(c, 1);
    double     alpha = tni_onnx_attr_real(c, "alpha", 1);
    if (alpha == 1) return tni_onnx_out(c, 0, tn_swiglu(a, b));
    return tni_onnx_out(c, 0, tn_mul(tn_mul(a, tn_sigmoid(tn_mul_s(a, alpha))), b));
}

// The slope broadcasts to x; in old files a slope of (C) is of channels.
// From opset 7 on the slope must have as many axes as it needs to broadcast: (C, 1, 1) for channels
// of images.
bool tni_onnx_prelu(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *slope = tni_onnx_in(c, 1);
    if (x && slope && c->opset < 7 && tn_rank(slope) == 1)
        while (slope && tn_rank(slope) < tn_rank(x) - 1) slope = tn_unsqueeze(slope, -1);
    return tni_onnx_out(c, 0, tn_where(tn_lt_s(x, 0), tn_mul(x, slope), x));
}

// ThresholdedRelu(x; alpha): x above alpha, otherwise 0.
bool tni_onnx_thresholded_relu(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    return tni_onnx_out(c, 0,
                        tn_where(tn_gt_s(x, tni_onnx_attr_real(c, "alpha", 1)), x,
                                 x ? tn_zeros_like(x) : NULL));
}

// x - bias above lambd, x + bias below -lambd, 0 between.
bool tni_onnx_shrink(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *none = x ? tn_zeros_like(x) : NULL;
    double     lambd = tni_onnx_attr_real(c, "lambd", 0.5), bias = tni_onnx_attr_real(c, "bias", 0);
    tn_tensor *low = tn_where(tn_lt_s(x, -lambd), tn_add_s(x, bias), none);
    return tni_onnx_out(c, 0, tn_where(tn_gt_s(x, lambd), tn_sub_s(x, bias), low));
}
