// Helpers of the composite ops: functions of a few lines over the public ones, which have no row in
// ops.def and no gradient rule. Their gradients are those of the primitives that they record.
#ifndef TNI_OPS_COMPOSITE_H
#define TNI_OPS_COMPOSITE_H

#include "ops/kept_calls.h"
#include "ops/ops.h"

#include <math.h>

// Whether x is of a float type; else reported.
static inline bool tni_want_float(tn_tensor *x, const char *op)
{
    tn_dtype dt = tn_dtype_of(x);
    if (!tni_want_math_dtype(x->cx, op, dt)) return false;
    if (!tni_is_float(dt))
        tni_fail(x->cx, TN_EDTYPE, "%s: %s is not a float type", op, tn_dtype_name(dt));
    return tni_is_float(dt);
}

// Ops of several steps compute f16 and bf16 in f32 and round once, at the end: tni_widen gives x in
// f32, tni_narrow brings a result back. Other dtypes pass unchanged.
static inline tn_tensor *tni_widen(tn_tensor *x)
{
    tn_dtype dt = tn_dtype_of(x);
    return tni_is_rounded(dt) && !tni_is_storage_only(dt) ? tn_cast(x, TN_F32) : x;
}

static inline tn_tensor *tni_narrow(tn_tensor *y, tn_dtype dt)
{
    return y && tni_is_rounded(dt) && tn_dtype_of(y) != dt ? tn_cast(y, dt) : y;
}

// x as composite ops that PyTorch's autocast runs in f32 take it: then their result is f32 too.
// NULL in, NULL out.
static inline tn_tensor *tni_autocast_wide(tn_tensor *x)
{
    return tni_autocast_arg(x, TNI_AUTOCAST_WIDE);
}

// A number of an options struct: 0 means the fallback, TN_ZERO (-0.0) a real zero.
static inline double tni_or_default(double v, double fallback)
{
    return v != 0 ? v : signbit(v) ? 0 : fallback;
}

// Entry i of a list of an options struct, one for each axis: 0 means the first one, or the fallback
// if that is 0 too; TN_NO_PADDING after the first is a real zero.
static inline int64_t tni_option_at(const int64_t *v, int i, int64_t fallback)
{
    if (i > 0 && v[i] == TN_NO_PADDING) return 0;
    return v[i] ? v[i] : v[0] ? v[0] : fallback;
}

// The losses y of elements, reduced and brought back to dt.
tn_tensor *tni_reduce_loss(const char *op, tn_tensor *y, tn_reduction reduce, tn_dtype dt);

// x with m places along an axis, each the sum of `taps` old ones: at[m][taps] with
// weights[m][taps].
tn_tensor *tni_gather_taps(tn_tensor *x, int axis, int64_t m, int taps, const int64_t *at,
                           const double *weights);

// v in x's dtype, 0-d. NULL in, NULL out.
static inline tn_tensor *tni_number_like(tn_tensor *x, double v)
{
    return x ? tni_number(x->cx, tn_dtype_of(x), tni_num_of(v)) : NULL;
}

// The sum over the axes in the mask. NULL in, NULL out.
static inline tn_tensor *tni_sum_over(tn_tensor *x, const char *op, uint32_t mask, bool keep)
{
    return x ? tni_reduce(TNI_sum, op, x, mask, keep) : NULL;
}

// The moments of x, which is in f32 at least, over the axes in a mask. `mid` is the mean as rounded
// to its dtype, with the axes at size 1; d is x - mid; `sum` is the sum of d, whose mean is the
// rounding error of mid; `squares` is the sum of the squares about the exact mean. No gradient
// flows through mid, since no result depends on it once the rest is counted. All NULL after a
// failure.
typedef struct {
    tn_tensor *mid, *d, *sum, *squares;
} tni_moments;

tni_moments tni_moments_over(tn_tensor *x, const char *op, uint32_t mask, bool keep);
// The same about any mid of that shape, which needs no pass over x of its own: the nearer it is to
// the mean, the more digits the squares have.
tni_moments tni_moments_about(tn_tensor *x, tn_tensor *mid, const char *op, uint32_t mask,
                              bool keep);

// Whether x broadcasts to the shape of `to`; else reports both by their names.
bool tni_broadcasts(const char *op, tn_tensor *x, const char *x_name, tn_tensor *to,
                    const char *to_name);
// Whether x and y broadcast with each other.
bool tni_broadcast_pair(const char *op, tn_tensor *x, const char *x_name, tn_tensor *y,
                        const char *y_name);

// The body of a reduction: x is checked, the mask is that of its axes.
typedef tn_tensor *tni_reduction_body(const char *op, tn_tensor *x, uint32_t mask, bool keep);

// Runs the body over one axis; over n axes (n 0: all).
tn_tensor *tni_reduce_axis(tni_reduction_body *f, const char *op, tn_tensor *x, int axis,
                           bool keep);
tn_tensor *tni_reduce_axes(tni_reduction_body *f, const char *op, tn_tensor *x, int n,
                           const int *axes, bool keep);

// The public forms of a reduction with a body: over one axis, over all, and over several.
#define TNI_REDUCTION_SINGLE(name, body)                               \
    tn_tensor *tn_##name(tn_tensor *x, int axis)                       \
    {                                                                  \
        return tni_reduce_axis(body, #name, x, axis, false);           \
    }                                                                  \
    tn_tensor *tn_##name##_keep(tn_tensor *x, int axis)                \
    {                                                                  \
        return tni_reduce_axis(body, #name "_keep", x, axis, true);    \
    }                                                                  \
    tn_tensor *tn_##name##_all(tn_tensor *x)                           \
    {                                                                  \
        return tni_reduce_axes(body, #name "_all", x, 0, NULL, false); \
    }
#define TNI_REDUCTION_FORMS(name, body)                                          \
    TNI_REDUCTION_SINGLE(name, body)                                             \
    tn_tensor *tn_##name##_axes(tn_tensor *x, int n, const int *axes, bool keep) \
    {                                                                            \
        return tni_reduce_axes(body, #name "_axes", x, n, axes, keep);           \
    }

#endif
