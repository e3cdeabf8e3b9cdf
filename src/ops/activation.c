// Activations, and the elementwise functions that are a choice between two maps.
//
// Where a function has a kink, the choice is written so that the gradient there is PyTorch's; and
// the branch that is not taken gets an argument at which it is finite, since its gradient is
// multiplied by zero, which infinity survives.
#include "ops/composite.h"

tn_tensor *tn_leaky_relu(tn_tensor *x, double slope)
{
    if (!tni_arg1("leaky_relu", x, "x")) return NULL;
    tn_tensor *y = tn_where(tn_gt_s(x, 0), x, tn_mul_s(x, slope));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_leaky_relu, .f = { slope } });
}

// One slope for all, or one for each channel, which is axis 1.
tn_tensor *tn_prelu(tn_tensor *x, tn_tensor *w)
{
    static const char *const names[] = { "x", "w" };
    tn_ctx                  *cx      = tni_args("prelu", 2, (tn_tensor *const[]){ x, w }, names);
    if (!cx || !tni_want_float(x, "prelu") || !tni_want_float(w, "prelu")) return NULL;
    int     rank              = tn_rank(x);
    int64_t size[TN_MAX_RANK] = { 0 }, count = tn_count(w), channels = rank > 1 ? tn_size(x, 1) : 1;
    if (tn_rank(w) > 1 || (count != 1 && count != channels))
        return tni_fail(cx, TN_ESHAPE,
                        "prelu: w %s is neither one number nor one for each channel of x %s",
                        tni_shape_of(w).s, tni_shape_of(x).s);
    for (int i = 0; i < rank; i++) size[i] = i == 1 ? count : 1;
    if (!(w = tn_reshape(w, count == 1 ? 0 : rank, size))) return NULL;
    return tn_where(tn_gt_s(x, 0), x, tn_mul(x, tn_cast(w, tn_dtype_of(x))));
}

// a (exp(w / b) - 1) below 0. expm1 keeps the digits near 0; above 0 it gets 0, so that it does not
// overflow in the branch not taken.
static tn_tensor *elu(tn_tensor *w, double a, double b)
{
    tn_tensor *above = tn_gt_s(w, 0), *below = tn_where(above, tni_number_like(w, 0), w);
    if (b != 1) below = tn_div_s(below, b);
    return tn_where(above, w, tn_mul_s(tn_expm1(below), a));
}

tn_tensor *tn_elu(tn_tensor *x, double alpha)
{
    if (!tni_arg1("elu", x, "x")) return NULL;
    tn_tensor *y = tni_narrow(elu(tni_widen(x), alpha, 1), tn_dtype_of(x));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_elu, .f = { alpha } });
}

tn_tensor *tn_celu(tn_tensor *x, double alpha)
{
    tn_ctx *cx = tni_arg1("celu", x, "x");
    if (!cx || !tni_want_float(x, "celu")) return NULL;
    if (alpha == 0) return tni_fail(cx, TN_EARG, "celu: alpha is 0, and x is divided by it");
    return tni_narrow(elu(tni_widen(x), alpha, alpha), tn_dtype_of(x));
}

// The two numbers at which layers of this activation keep a mean of 0 and a variance of 1.
tn_tensor *tn_selu(tn_tensor *x)
{
    const double alpha = 1.6732632423543772848170429916717,
                 scale = 1.0507009873554804934193349852946;
    if (!tni_arg1("selu", x, "x") || !tni_want_float(x, "selu")) return NULL;
    tn_tensor *y = tni_narrow(tn_mul_s(elu(tni_widen(x), alpha, 1), scale), tn_dtype_of(x));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_selu });
}

// -|x|, whose gradient at 0 is -1 and not 0: what is smooth at 0 stays so.
static tn_tensor *minus_abs(tn_tensor *x, tn_tensor *from_zero)
{
    return tn_where(from_zero, tn_neg(x), x);
}

// 1 / (1 + exp(-x)), by exp(-|x|), which does not overflow: for negative x it is e / (1 + e).
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
    tn_tensor *y = tni_narrow(sigmoid(tni_widen(x)), tn_dtype_of(x));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_sigmoid });
}

tn_tensor *tn_silu(tn_tensor *x)
{
    if (!tni_arg1("silu", x, "x") || !tni_want_float(x, "silu")) return NULL;
    tn_tensor *w = tni_widen(x);
    tn_tensor *y = tni_narrow(tn_mul(w, sigmoid(w)), tn_dtype_of(x));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_silu });
}

// silu(gate) up, rounded once.
tn_tensor *tn_swiglu(tn_tensor *gate, tn_tensor *up)
{
    static const char *const names[] = { "gate", "up" };
    tn_ctx                  *cx = tni_args("swiglu", 2, (tn_tensor *const[]){ gate, up }, names);
    if (!cx || !tni_want_float(gate, "swiglu") || !tni_want_float(up, "swiglu")) return NULL;
    if (!tni_broadcast_pair("swiglu", gate, "gate", up, "up")) return NULL;
    tni_operand both[] = { { tn_dtype_of(gate), tn_rank(gate) ? 2 : 1 },
                           { tn_dtype_of(up), tn_rank(up) ? 2 : 1 } };
    tn_dtype    dt     = tni_promote_all(2, both);
    tn_tensor  *w      = tni_widen(gate);
    tn_tensor  *y      = tni_narrow(tn_mul(tn_mul(w, sigmoid(w)), tni_widen(up)), dt);
    if (tni_dtype(gate) != tni_dtype(up)) return y;
    return tni_traced(y, 2, (tn_tensor *[]){ gate, up }, (tni_kept){ .kind = TNI_KEPT_swiglu });
}

// x times the normal distribution function, by erf; 0.7071... is 1 / sqrt(2).
tn_tensor *tn_gelu(tn_tensor *x)
{
    if (!tni_arg1("gelu", x, "x") || !tni_want_float(x, "gelu")) return NULL;
    tn_tensor *w = tni_widen(x), *gate = tn_add_s(tn_erf(tn_mul_s(w, 0.70710678118654752440)), 1);
    tn_tensor *y = tni_narrow(tn_mul(tn_mul_s(w, 0.5), gate), tn_dtype_of(x));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_gelu });
}

// log(1 + exp(w)) = max(w, 0) + log(1 + exp(-|w|)): neither part overflows, and log1p keeps small
// ones.
static tn_tensor *softplus(tn_tensor *w)
{
    tn_tensor *from_zero = tn_ge_s(w, 0), *above = tn_where(from_zero, w, tni_number_like(w, 0));
    return tn_add(above, tn_log1p(tn_exp(minus_abs(w, from_zero))));
}

tn_tensor *tn_softplus(tn_tensor *x)
{
    if (!tni_arg1("softplus", x, "x") || !tni_want_float(x, "softplus")) return NULL;
    if (!(x = tni_autocast_wide(x))) return NULL;
    tn_tensor *y = tni_narrow(softplus(tni_widen(x)), tn_dtype_of(x));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_softplus });
}

tn_tensor *tn_logsigmoid(tn_tensor *x)
{
    if (!tni_arg1("logsigmoid", x, "x") || !tni_want_float(x, "logsigmoid")) return NULL;
    return tni_narrow(tn_neg(softplus(tn_neg(tni_widen(x)))), tn_dtype_of(x));
}

tn_tensor *tn_mish(tn_tensor *x)
{
    if (!tni_arg1("mish", x, "x") || !tni_want_float(x, "mish")) return NULL;
    tn_tensor *w = tni_widen(x);
    tn_tensor *y = tni_narrow(tn_mul(w, tn_tanh(softplus(w))), tn_dtype_of(x));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_mish });
}

tn_tensor *tn_softsign(tn_tensor *x)
{
    if (!tni_arg1("softsign", x, "x") || !tni_want_float(x, "softsign")) return NULL;
    tn_tensor *w = tni_widen(x);
    return tni_narrow(tn_div(w, tn_add_s(tn_abs(w), 1)), tn_dtype_of(x));
}

tn_tensor *tn_glu(tn_tensor *x, int axis)
{
    tn_ctx  *cx = tni_arg1("glu", x, "x");
    uint32_t mask;
    if (!cx || !tni_want_float(x, "glu") || !tni_axis_mask(x, "glu", axis, &mask)) return NULL;
    int64_t n = tn_size(x, axis);
    if (n % 2)
        return tni_fail(cx, TN_ESHAPE, "glu: axis %d of x %s has no halves", axis,
                        tni_shape_of(x).s);
    tn_tensor *w = tni_widen(x);
    tn_tensor *y = tn_mul(tn_slice(w, axis, 0, n / 2, 1), sigmoid(tn_slice(w, axis, n / 2, n, 1)));
    return tni_narrow(y, tn_dtype_of(x));
}

// 0 up to -3, x from 3 on, x (x + 3) / 6 between. The 0 is x times 0, as in PyTorch: -0, and NaN of
// minus infinity.
tn_tensor *tn_hardswish(tn_tensor *x)
{
    if (!tni_arg1("hardswish", x, "x") || !tni_want_float(x, "hardswish")) return NULL;
    tn_tensor *w = tni_widen(x), *low = tn_le_s(w, -3), *high = tn_ge_s(w, 3);
    tn_tensor *in  = tn_where(tn_logical_or(low, high), tni_number_like(w, 0), w);
    tn_tensor *mid = tn_div_s(tn_mul(in, tn_add_s(in, 3)), 6);
    tn_tensor *y   = tn_where(low, tn_mul_s(w, 0), tn_where(high, w, mid));
    return tni_traced(tni_narrow(y, tn_dtype_of(x)), 1, &x,
                      (tni_kept){ .kind = TNI_KEPT_hardswish });
}

tn_tensor *tni_drop(tn_tensor *x, tn_tensor *u, double p)
{
    return tn_where(tn_ge_s(u, p), tn_mul_s(x, 1 / (1 - p)), tni_number_like(x, 0));
}

// What stays is scaled by 1 / (1 - p), so that the expected value is x's. p = 1 keeps NaN, as
// PyTorch does.
tn_tensor *tn_dropout(tn_tensor *x, double p, bool training)
{
    tn_ctx *cx = tni_arg1("dropout", x, "x");
    if (!cx || !tni_want_float(x, "dropout")) return NULL;
    if (!(p >= 0 && p <= 1)) return tni_fail(cx, TN_EARG, "dropout: p %g is not in 0 .. 1", p);
    if (!training || p == 0) return tni_share(x, "dropout");
    if (p == 1) return tn_mul_s(x, 0);
    // Drawn in f32 for every dtype: 16 bits are too coarse for a small p.
    tni_view s = tni_layout(x);
    return tni_drop(x, tni_rand_items(cx, "dropout", TN_F32, s.rank, s.size), p);
}

// x times x, cheaper than a power; one for autocast. Bools become i64, as in PyTorch.
tn_tensor *tn_square(tn_tensor *x)
{
    if (!tni_arg1("square", x, "x") || !(x = tni_autocast_wide(x))) return NULL;
    if (tn_dtype_of(x) == TN_BOOL) x = tn_cast(x, TN_I64);
    return tn_mul(x, x);
}

// Integers exactly: as doubles two large ones may be equal.
static bool is_above(tni_num a, tni_num b)
{
    return tni_num_is_i64(a) && tni_num_is_i64(b) ? a.i > b.i : a.f > b.f;
}

// A bound beyond what an integer dtype holds bounds nothing.
static void drop_bounds(tn_dtype dt, tni_num *lo, tni_num *hi)
{
    const tni_dtype_facts *f     = &tni_dtype_table[dt];
    tni_num                least = tni_num_of(f->low),
            most                 = { f->high, tni_clamp_to_dtype(dt, INFINITY), f->digits < 64 };
    if (!is_above(*lo, least)) *lo = tni_num_of(-INFINITY);
    if (!is_above(most, *hi)) *hi = tni_num_of(INFINITY);
}

// By the two maps that do it, where no gradient is recorded: libraries compute them behind their
// calls.
static tn_tensor *clamp_floats(const char *op, tn_tensor *x, tni_num lo, tni_num hi)
{
    tn_tensor *y = x;
    if (hi.f < INFINITY) y = tni_binary_s(TNI_minimum, op, y, hi, false);
    if (lo.f > -INFINITY && y) y = tni_binary_s(TNI_maximum, op, y, lo, false);
    return y == x ? tn_clone(x) : y;
}

// By comparisons and where, so that the gradient is 1 inside and at the bounds, as in PyTorch, and
// NaN stays NaN. A bound with a fraction makes an integer tensor f32; bools become i64.
static tn_tensor *clamp_to(const char *op, tn_tensor *x, tni_num lo, tni_num hi)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx) return NULL;
    if (lo.f != lo.f || hi.f != hi.f) return tni_fail(cx, TN_EARG, "%s: a bound is NaN", op);
    bool whole = (isinf(lo.f) || lo.f == floor(lo.f)) && (isinf(hi.f) || hi.f == floor(hi.f));
    if (!tni_is_float(tn_dtype_of(x)) && !whole) x = tn_cast(x, TN_F32);
    else if (tn_dtype_of(x) == TN_BOOL) x = tn_cast(x, TN_I64);
    if (!x) return NULL;
    tn_dtype dt = tn_dtype_of(x);
    if (is_above(lo, hi)) lo = hi;
    if (!tni_is_float(dt)) drop_bounds(dt, &lo, &hi);
    else if (!tn_needs_grad(x)) return clamp_floats(op, x, lo, hi);
    tn_tensor *y = x;
    if (hi.f < INFINITY)
        y = tn_where(tni_binary_s(TNI_gt, op, x, hi, false), tni_number(cx, dt, hi), y);
    if (lo.f > -INFINITY)
        y = tn_where(tni_binary_s(TNI_lt, op, x, lo, false), tni_number(cx, dt, lo), y);
    return y == x ? tn_clone(x) : y;
}

tn_tensor *tn_clamp(tn_tensor *x, double lo, double hi)
{
    tn_tensor *y = clamp_to("clamp", x, tni_num_of(lo), tni_num_of(hi));
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_clamp, .f = { lo, hi } });
}

tn_tensor *tn_clamp_i64(tn_tensor *x, int64_t lo, int64_t hi)
{
    return clamp_to("clamp_i64", x, tni_num_i64(lo), tni_num_i64(hi));
}

// v where mask is true. By where: v takes x's dtype, and infinities of x under the mask vanish.
static tn_tensor *masked_fill(const char *op, tn_tensor *x, tn_tensor *mask, tni_num v)
{
    static const char *const names[] = { "x", "mask" };
    tn_ctx                  *cx      = tni_args(op, 2, (tn_tensor *const[]){ x, mask }, names);
    if (!cx) return NULL;
    if (tn_dtype_of(mask) != TN_BOOL)
        return tni_fail(cx, TN_EDTYPE, "%s: mask is %s, not bool", op,
                        tn_dtype_name(tn_dtype_of(mask)));
    if (!tni_broadcast_pair(op, x, "x", mask, "mask")) return NULL;
    return tn_where(mask, tni_number(cx, tn_dtype_of(x), v), x);
}

tn_tensor *tn_masked_fill(tn_tensor *x, tn_tensor *mask, double v)
{
    return masked_fill("masked_fill", x, mask, tni_num_of(v));
}

tn_tensor *tn_masked_fill_i64(tn_tensor *x, tn_tensor *mask, int64_t v)
{
    return masked_fill("masked_fill_i64", x, mask, tni_num_i64(v));
}
