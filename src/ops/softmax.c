// Softmax and its kin. Subtracting the maximum keeps exp() finite and cancels out, so no gradient
// flows through it. A row of -inf alone has a logsumexp of -inf and a softmax of NaN. The planner
// makes one kernel of each.
#include "ops/composite.h"

// x minus its maximum along the axis, in f32 at least.
static tn_tensor *shifted(tn_tensor *x, int axis)
{
    x = tni_widen(x);
    return tn_sub(x, tn_detach(tn_max_keep(x, axis)));
}

// The sum is between 1 and the number of elements, so one division a row and a product an element
// do instead of a division each.
static tn_tensor *softmax(tn_tensor *x, int axis)
{
    tn_tensor *e = tn_exp(shifted(x, axis));
    return tn_mul(e, tn_reciprocal(tn_sum_keep(e, axis)));
}

// z - log(sum(exp(z))), never the logarithm of a softmax: that would be -inf where exp underflows.
static tn_tensor *log_softmax(tn_tensor *x, int axis)
{
    tn_tensor *z = shifted(x, axis);
    return tn_sub(z, tn_log(tn_sum_keep(tn_exp(z), axis)));
}

// Applies f along the axis; a 0-d x counts as one element, and an empty x is returned as it is.
static tn_tensor *along_axis(const char *op, tn_tensor *(*f)(tn_tensor *, int), tn_tensor *x,
                             int axis)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx || !tni_want_float(x, op)) return NULL;
    int rank = tn_rank(x);
    axis     = tni_axis(cx, op, rank ? rank : 1, axis);
    if (axis < 0 || !(x = tni_autocast_wide(x))) return NULL;
    if (tn_count(x) == 0) return tni_share(x, op);
    return tni_narrow(f(x, axis), tn_dtype_of(x));
}

tn_tensor *tn_softmax(tn_tensor *x, int axis)
{
    tn_tensor *y = along_axis("softmax", softmax, x, axis);
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_softmax, .i = { axis } });
}

tn_tensor *tn_log_softmax(tn_tensor *x, int axis)
{
    tn_tensor *y = along_axis("log_softmax", log_softmax, x, axis);
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_log_softmax, .i = { axis } });
}

// x without the axes in the mask, which are of size 1.
static tn_tensor *drop_axes(tn_tensor *x, uint32_t mask)
{
    for (int i = tn_rank(x) - 1; i >= 0; i--)
        if (mask >> i & 1) x = tn_squeeze(x, i);
    return x;
}

// An infinite maximum is not subtracted: inf - inf would be NaN where the result is infinite.
static tn_tensor *logsumexp(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    if (!(x = tni_autocast_wide(x))) return NULL;
    tn_dtype   dt = tn_dtype_of(x);
    tn_tensor *w  = tni_is_float(dt) ? tni_widen(x) : tn_cast(x, TN_F32);
    if (!w) return NULL;
    if (tni_reduced_count(x, mask) == 0)
        return tni_narrow(tn_log(tni_sum_over(w, op, mask, keep)), dt);
    tn_tensor *top = tn_detach(tni_reduce(TNI_max, op, w, mask, true));
    top            = tn_where(tn_isinf(top), tni_number_like(w, 0), top);
    tn_tensor *sum = tni_sum_over(tn_exp(tn_sub(w, top)), op, mask, keep);
    return tni_narrow(tn_add(tn_log(sum), keep ? top : drop_axes(top, mask)), dt);
}
TNI_REDUCTION_FORMS(logsumexp, logsumexp)
