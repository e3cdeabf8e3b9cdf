// Activations, and the elementwise functions that are a choice between two maps.
//
// Where a function has a kink, the choice is written so that the gradient there is PyTorch's; and
// the branch that is not taken gets an argument at which it is finite, since its gradient is
// multiplied by zero, which infinity survives.
#include "ops/compose.h"

tn_tensor *tn_leaky_relu(tn_tensor *x, double slope)
{
    if (!tni_arg1("leaky_relu", x, "x")) return NULL;
    return tn_where(tn_gt_s(x, 0), x, tn_mul_s(x, slope));
}

tn_tensor *tn_elu(tn_tensor *x, double alpha)
{
    if (!tni_arg1("elu", x, "x")) return NULL;
    tn_tensor *w = tni_widen(x), *above = tn_gt_s(w, 0);
    tn_tensor *below = tn_where(above, tni_number_like(w, 0), w);
    return tni_narrow(tn_where(above, w, tn_mul_s(tn_expm1(below), alpha)), tn_dtype_of(x));
}

// -|x|, whose gradient at 0 is -1 and not 0: what is smooth at 0 stays so.
static tn_tensor *minus_abs(tn_tensor *x, tn_tensor *from_zero)
{
    return tn_where(from_zero, tn_neg(x), x);
}

// 1 / (1 + exp(-x)), by exp(-|x|), which does not overflow.
static tn_tensor *sigmoid(tn_tensor *x)
{
    tn_tensor *from_zero = tn_ge_s(x, 0);
    tn_tensor *e         = tn_exp(minus_abs(x, from_zero));
    return tn_div(tn_where(from_zero, tni_number_like(e, 1), e), tn_add_s(e, 1));
}

tn_tensor *tn_sigmoid(tn_tensor *x)
{
    if (!tni_arg1("sigmoid", x, "x")) return NULL;
    if (!tni_is_float(tn_dtype_of(x))) x = tn_cast(x, TN_F32);
    return tni_narrow(sigmoid(tni_widen(x)), tn_dtype_of(x));
}

tn_tensor *tn_silu(tn_tensor *x)
{
    if (!tni_arg1("silu", x, "x") || !tni_want_float(x, "silu")) return NULL;
    tn_tensor *w = tni_widen(x);
    return tni_narrow(tn_mul(w, sigmoid(w)), tn_dtype_of(x));
}

// Half of x, times 1 plus what tells how far x is from 0.
static tn_tensor *gelu_by(tn_tensor *x, tn_tensor *gate)
{
    return tn_mul(tn_mul_s(x, 0.5), tn_add_s(gate, 1));
}

tn_tensor *tn_gelu(tn_tensor *x)
{
    if (!tni_arg1("gelu", x, "x") || !tni_want_float(x, "gelu")) return NULL;
    tn_tensor *w = tni_widen(x);
    return tni_narrow(gelu_by(w, tn_erf(tn_mul_s(w, 0.70710678118654752440))), tn_dtype_of(x));
}

tn_tensor *tn_gelu_tanh(tn_tensor *x)
{
    const double scale = 0.79788456080286535588, cubic = 0.044715;  // sqrt(2 / pi)
    if (!tni_arg1("gelu_tanh", x, "x") || !tni_want_float(x, "gelu_tanh")) return NULL;
    tn_tensor *w = tni_widen(x);
    tn_tensor *u = tn_add(w, tn_mul_s(tn_mul(tn_mul(w, w), w), cubic));
    return tni_narrow(gelu_by(w, tn_tanh(tn_mul_s(u, scale))), tn_dtype_of(x));
}

// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)).
tn_tensor *tn_softplus(tn_tensor *x)
{
    if (!tni_arg1("softplus", x, "x") || !tni_want_float(x, "softplus")) return NULL;
    tn_tensor *w = tni_widen(x), *from_zero = tn_ge_s(w, 0);
    tn_tensor *above = tn_where(from_zero, w, tni_number_like(w, 0));
    tn_tensor *rest  = tn_log1p(tn_exp(minus_abs(w, from_zero)));
    return tni_narrow(tn_add(above, rest), tn_dtype_of(x));
}

// 0 up to -3, x from 3 on, x (x + 3) / 6 between.
tn_tensor *tn_hardswish(tn_tensor *x)
{
    if (!tni_arg1("hardswish", x, "x") || !tni_want_float(x, "hardswish")) return NULL;
    tn_tensor *w   = tni_widen(x);
    tn_tensor *mid = tn_div_s(tn_mul(w, tn_add_s(w, 3)), 6);
    tn_tensor *y = tn_where(tn_le_s(w, -3), tni_number_like(w, 0), tn_where(tn_ge_s(w, 3), w, mid));
    return tni_narrow(y, tn_dtype_of(x));
}

tn_tensor *tn_dropout(tn_tensor *x, double p, bool training)
{
    tn_ctx *cx = tni_arg1("dropout", x, "x");
    if (!cx || !tni_want_float(x, "dropout")) return NULL;
    if (!(p >= 0 && p <= 1)) return tni_fail(cx, TN_EARG, "dropout: p %g is not in 0 .. 1", p);
    if (!training || p == 0) return tni_share(x, "dropout");
    if (p == 1) return tn_mul_s(x, 0);
    // Drawn in f32 for every dtype: 16 bits are too coarse for a small p.
    tni_view   s = tni_layout(x);
    tn_tensor *u = tn_rand(cx, TN_F32, s.rank, s.size);
    return tn_where(tn_ge_s(u, p), tn_mul_s(x, 1 / (1 - p)), tni_number_like(x, 0));
}

tn_tensor *tn_square(tn_tensor *x)
{
    return tni_arg1("square", x, "x") ? tn_mul(x, x) : NULL;
}

// A bound past all that an integer dtype holds bounds nothing.
static void drop_bounds(tn_dtype dt, double *lo, double *hi)
{
    static const double least[] = { 0, 0, -0x1p7, -0x1p31, -0x1p63 };
    static const double most[]  = { 1, 255, 127, 2147483647.0, 0x1p63 };
    if (*lo <= least[dt]) *lo = -INFINITY;
    if (*hi >= most[dt]) *hi = INFINITY;
}

// A bound with a fraction makes an integer tensor f32.
tn_tensor *tn_clamp(tn_tensor *x, double lo, double hi)
{
    tn_ctx *cx = tni_arg1("clamp", x, "x");
    if (!cx) return NULL;
    if (lo != lo || hi != hi) return tni_fail(cx, TN_EARG, "clamp: a bound is NaN");
    bool whole = (isinf(lo) || lo == floor(lo)) && (isinf(hi) || hi == floor(hi));
    if (!tni_is_float(tn_dtype_of(x)) && !whole) x = tn_cast(x, TN_F32);
    if (lo > hi) lo = hi;
    if (!tni_is_float(tn_dtype_of(x))) drop_bounds(tn_dtype_of(x), &lo, &hi);
    tn_tensor *y = x;
    if (hi < INFINITY) y = tn_where(tn_gt_s(x, hi), tni_number_like(x, hi), y);
    if (lo > -INFINITY) y = tn_where(tn_lt_s(x, lo), tni_number_like(x, lo), y);
    return y == x ? tn_clone(x) : y;
}

tn_tensor *tn_masked_fill(tn_tensor *x, tn_tensor *mask, double v)
{
    static const char *const names[] = { "x", "mask" };
    tn_ctx *cx = tni_args("masked_fill", 2, (tn_tensor *const[]){ x, mask }, names);
    if (!cx) return NULL;
    if (tn_dtype_of(mask) != TN_BOOL)
        return tni_fail(cx, TN_EDTYPE, "masked_fill: mask is %s, not bool",
                        tn_dtype_name(tn_dtype_of(mask)));
    if (!tni_broadcast_pair("masked_fill", x, "x", mask, "mask")) return NULL;
    return tn_where(mask, tni_number_like(x, v), x);
}
