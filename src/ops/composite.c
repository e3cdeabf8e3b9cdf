// What composite ops share: reductions given as a body, mean and squares about it, checks of
// shapes.
#include "ops/complex.h"

// Checks x and the axis once for all reductions, and hands the body a mask of axes.
tn_tensor *tni_reduce_axis(tni_reduction_body *f, const char *op, tn_tensor *x, int axis, bool keep)
{
    uint32_t mask;
    if (!tni_arg1_any(op, x, "x") || !tni_axis_mask(x, op, axis, &mask)) return NULL;
    return x->complex ? tni_complex_reduce(f, op, x, mask, keep) : f(op, x, mask, keep);
}

tn_tensor *tni_reduce_axes(tni_reduction_body *f, const char *op, tn_tensor *x, int n,
                           const int *axes, bool keep)
{
    uint32_t mask;
    if (!tni_arg1_any(op, x, "x") || !tni_axes_mask(x, op, n, axes, &mask)) return NULL;
    return x->complex ? tni_complex_reduce(f, op, x, mask, keep) : f(op, x, mask, keep);
}

// The mean of f32 values around 10^6 is off by some hundredths, and with it every distance from it;
// but each distance has all its digits, so their own mean tells how far off it is. The squares are
// corrected by that instead of measured again, which keeps both sums in one pass over x. Rounding
// may leave less than 0 where all of x is equal: that is clamped, and the gradient flows through
// the clamp unchanged. The first mean is divided by n, so that it is exact where all of x is equal.
// Other sums are multiplied by 1 / n, here and in norms, which is off by half an ULP more: every
// thread of a row computes such values, and its gradient does too, where a division takes ten
// instructions on a GPU.
tni_moments tni_moments_over(tn_tensor *x, const char *op, uint32_t mask, bool keep)
{
    if (!x) return (tni_moments){ 0 };
    double n = (double)tni_reduced_count(x, mask);
    return tni_moments_about(x, tn_div_s(tni_sum_over(x, op, mask, true), n), op, mask, keep);
}

tni_moments tni_moments_about(tn_tensor *x, tn_tensor *mid, const char *op, uint32_t mask,
                              bool keep)
{
    if (!x || !mid) return (tni_moments){ 0 };
    double      n = (double)tni_reduced_count(x, mask);
    tni_moments m = { .mid = tn_detach(mid) };
    m.d           = tn_sub(x, m.mid);
    m.sum         = tni_sum_over(m.d, op, mask, keep);
    tn_tensor *s  = tni_sum_over(tn_square(m.d), op, mask, keep);
    s             = tn_sub(s, tn_mul_s(tn_square(m.sum), 1 / n));
    if (!s) return (tni_moments){ 0 };
    bool       mode = tn_grad_mode(x->cx, false);
    tn_tensor *low  = tn_minimum(s, tni_number_like(s, 0));  // below 0 by rounding alone
    tn_grad_mode(x->cx, mode);
    m.squares = tn_sub(s, low);
    return m.squares ? m : (tni_moments){ 0 };
}

// Reports both shapes by the names of their arguments.
static bool refuse_shapes(const char *op, tn_tensor *x, const char *x_name, tn_tensor *y,
                          const char *y_name)
{
    tni_fail(x->cx, TN_ESHAPE, "%s: %s %s and %s %s do not broadcast", op, x_name,
             tni_shape_of(x).s, y_name, tni_shape_of(y).s);
    return false;
}

bool tni_broadcast_pair(const char *op, tn_tensor *x, const char *x_name, tn_tensor *y,
                        const char *y_name)
{
    tni_view a = tni_layout(x), b = tni_layout(y);
    return tni_shape_broadcast(&a.rank, a.size, b.rank, b.size) ||
           refuse_shapes(op, x, x_name, y, y_name);
}

bool tni_broadcasts(const char *op, tn_tensor *x, const char *x_name, tn_tensor *to,
                    const char *to_name)
{
    tni_view a = tni_layout(x), b = tni_layout(to);
    return tni_view_expand(&a, b.rank, b.size) || refuse_shapes(op, x, x_name, to, to_name);
}
