// Operators along axes: reductions, softmax, indices of extremes, running sums, order.
//
// Axes of reductions are attributes in old files and inputs in new ones, from opset 13 on for
// ReduceSum and from 18 on for the others. No axes means all of them, or with noop_with_empty_axes
// none.
#include "onnx/onnx_ops.h"

#include <math.h>

// The axes of a reduction: an attribute in old files, an input from opset `since` on. false:
// reported. n 0: all; *none: the result is x itself.
// An axis may be negative, which the reductions know.
static bool reduced_axes(tni_onnx_call *c, int since, int *axes, int *n, bool *none)
{
    int64_t v[TN_MAX_RANK];
    bool    ok = c->opset >= since ? tni_onnx_ints(c, 1, TN_MAX_RANK, v, n)
                                   : tni_onnx_attr_ints(c, "axes", TN_MAX_RANK, v, n);
    if (!ok) return false;
    if (*n < 0) *n = 0;
    *none = *n == 0 && tni_onnx_attr_int(c, "noop_with_empty_axes", 0) != 0;
    for (int i = 0; i < *n; i++) axes[i] = (int)v[i];
    return true;
}

typedef tn_tensor *reduce_axes(tn_tensor *x, int n, const int *axes, bool keep);

// Records before and after a reduction of what is in between; a sum of integers keeps their dtype.
static bool reduce(tni_onnx_call *c, int since, reduce_axes *f, tn_tensor *(*before)(tn_tensor *),
                   tn_tensor *(*after)(tn_tensor *))
{
    tn_tensor *x = tni_onnx_in(c, 0), *y = x;
    int        axes[TN_MAX_RANK], n;
    bool       none, keep = tni_onnx_attr_int(c, "keepdims", 1) != 0;
    if (!x || !reduced_axes(c, since, axes, &n, &none)) return false;
    if (before) y = before(y);
    if (!none && tn_rank(x)) y = y ? tn_cast(f(y, n, axes, keep), tn_dtype_of(x)) : NULL;
    if (after) y = after(y);
    return tni_onnx_out(c, 0,
                        y && tn_dtype_of(y) != tn_dtype_of(x) ? tn_cast(y, tn_dtype_of(x)) : y);
}

// The largest of nothing is what is less than all: -inf, the lowest integer, false. The axis
// becomes one of such elements.
static tn_tensor *or_least(tn_tensor *x, int n, const int *axes, bool lowest)
{
    int64_t  size[TN_MAX_RANK];
    tn_dtype dt = tn_dtype_of(x);
    for (int i = 0; i < tn_rank(x); i++) size[i] = tn_size(x, i);
    for (int i = 0; i < (n ? n : tn_rank(x)); i++) {
        int a = !n ? i : axes[i] < 0 ? axes[i] + tn_rank(x) : axes[i];
        if (a >= 0 && a < tn_rank(x) && !size[a]) size[a] = 1;
    }
    if (tni_is_float(dt))
        return tn_full(tn_ctx_of(x), dt, tn_rank(x), size, lowest ? -INFINITY : INFINITY);
    bool    sign = dt == TN_I8 || dt == TN_I16 || dt == TN_I32 || dt == TN_I64;
    int     bits = dt == TN_BOOL ? 1 : 8 * (int)tni_dtype_size(dt);
    int64_t all  = (int64_t)(UINT64_MAX >> (64 - bits + sign)),
            v    = lowest ? sign ? -all - 1 : 0 : all;
    return tn_full_i64(tn_ctx_of(x), dt, tn_rank(x), size, v);
}
// ReduceMax and ReduceMin, also of nothing.
static tn_tensor *max_of(tn_tensor *x, int n, const int *axes, bool keep)
{
    return tn_max_axes(tn_count(x) ? x : or_least(x, n, axes, true), n, axes, keep);
}
static tn_tensor *min_of(tn_tensor *x, int n, const int *axes, bool keep)
{
    return tn_min_axes(tn_count(x) ? x : or_least(x, n, axes, false), n, axes, keep);
}

// The operators: from which opset axes are an input, the reduction, and what is done before and
// after it.
// clang-format off
#define REDUCTION(name, since, f, before, after) \
    bool tni_onnx_reduce_##name(tni_onnx_call *c) { return reduce(c, since, f, before, after); }
REDUCTION(sum,         13, tn_sum_axes,       NULL,      NULL)
REDUCTION(mean,        18, tn_mean_axes,      NULL,      NULL)
REDUCTION(prod,        18, tn_prod_axes,      NULL,      NULL)
REDUCTION(max,         18, max_of,            NULL,      NULL)
REDUCTION(min,         18, min_of,            NULL,      NULL)
REDUCTION(l1,          18, tn_sum_axes,       tn_abs,    NULL)
REDUCTION(l2,          18, tn_sum_axes,       tn_square, tn_sqrt)
REDUCTION(log_sum,     18, tn_sum_axes,       NULL,      tn_log)
REDUCTION(log_sum_exp, 18, tn_logsumexp_axes, NULL,      NULL)
REDUCTION(sum_square,  18, tn_sum_axes,       tn_square, NULL)
// clang-format on

// Before opset 13 all axes from the given one on are one.
// Exporters of that time relied on it: a softmax over (N, C, 1, 1) with axis 1.
static bool along_axis(tni_onnx_call *c, tn_tensor *(*f)(tn_tensor *x, int axis))
{
    tn_tensor *x    = tni_onnx_in(c, 0), *y;
    int        axis = (int)tni_onnx_attr_int(c, "axis", c->opset < 13 ? 1 : -1);
    if (!x) return false;
    if (c->opset >= 13) return tni_onnx_out(c, 0, f(x, axis));
    if (axis < 0) axis += tn_rank(x);
    if (axis < 0 || axis >= tn_rank(x))
        return tni_onnx_refuse(c, "axis %d is not one of %d axes", axis, tn_rank(x));
    y = f(tn_flatten(x, axis, tn_rank(x) - 1), axis);
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(x); i++) size[i] = tn_size(x, i);
    return tni_onnx_out(c, 0, tn_reshape(y, tn_rank(x), size));
}

// One at the first largest element, zero elsewhere.
static tn_tensor *hardmax(tn_tensor *x, int axis)
{
    tn_tensor *at = tn_argmax(x, axis);
    if (!at) return NULL;
    if (axis < 0) axis += tn_rank(x);
    tn_tensor *y = tn_cast(tn_one_hot(at, tn_size(x, axis)), tn_dtype_of(x));
    int        order[TN_MAX_RANK], last = tn_rank(x) - 1;
    for (int i = 0; i <= last; i++) order[i] = i < axis ? i : i == axis ? last : i - 1;
    return tn_permute(y, last + 1, order);
}

// Softmax(x; axis).
bool tni_onnx_softmax(tni_onnx_call *c)
{
    return along_axis(c, tn_softmax);
}
// LogSoftmax(x; axis).
bool tni_onnx_log_softmax(tni_onnx_call *c)
{
    return along_axis(c, tn_log_softmax);
}
// Hardmax(x; axis).
bool tni_onnx_hardmax(tni_onnx_call *c)
{
    return along_axis(c, hardmax);
}

// The last of several extremes is the first one from the other end.
// Place n - 1 - i of the flipped tensor is place i.
static bool extreme(tni_onnx_call *c, tn_tensor *(*f)(tn_tensor *x, int axis))
{
    tn_tensor *x    = tni_onnx_in(c, 0), *y;
    int        axis = (int)tni_onnx_attr_int(c, "axis", 0);
    bool       last = tni_onnx_attr_int(c, "select_last_index", 0) != 0;
    if (!x) return false;
    y = f(last ? tn_flip(x, axis) : x, axis);
    if (y && last) y = tn_rsub_i64(y, tn_size(x, axis) - 1);
    return tni_onnx_out(c, 0, y && !tni_onnx_attr_int(c, "keepdims", 1) ? tn_squeeze(y, axis) : y);
}

// ArgMax(x; axis, keepdims, select_last_index).
bool tni_onnx_arg_max(tni_onnx_call *c)
{
    return extreme(c, tn_argmax_keep);
}
// ArgMin(x; axis, keepdims, select_last_index).
bool tni_onnx_arg_min(tni_onnx_call *c)
{
    return extreme(c, tn_argmin_keep);
}

// Running sums or products, also from the other end, also without the element itself.
// The axis is an input. From the other end is that of the flipped tensor, flipped; without the
// element itself all move by one place, behind what is the result of nothing.
static bool running(tni_onnx_call *c, tn_tensor *(*f)(tn_tensor *x, int axis), int64_t nothing)
{
    tn_tensor *x = tni_onnx_in(c, 0), *y;
    int64_t    axis, before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    int        n;
    bool       reverse = tni_onnx_attr_int(c, "reverse", 0) != 0;
    if (!x || !tni_onnx_ints(c, 1, 1, &axis, &n)) return false;
    if (n == 1 && axis < 0) axis += tn_rank(x);
    if (n != 1 || axis < 0 || axis >= tn_rank(x))
        return tni_onnx_refuse(c, "axis is missing, or none of x %s", tni_shape_of(x).s);
    y = f(reverse ? tn_flip(x, (int)axis) : x, (int)axis);
    y = y ? tn_cast(y, tn_dtype_of(x)) : NULL;
    if (y && tni_onnx_attr_int(c, "exclusive", 0) && tn_size(x, (int)axis)) {
        before[axis] = 1;
        after[axis]  = -1;
        y            = tni_is_float(tn_dtype_of(x)) ? tn_pad(y, before, after, (double)nothing)
                                                    : tn_pad_i64(y, before, after, nothing);
    }
    return tni_onnx_out(c, 0, reverse ? tn_flip(y, (int)axis) : y);
}

// CumSum(x, axis; exclusive, reverse).
bool tni_onnx_cum_sum(tni_onnx_call *c)
{
    return running(c, tn_cumsum, 0);
}
// CumProd(x, axis; exclusive, reverse).
bool tni_onnx_cum_prod(tni_onnx_call *c)
{
    return running(c, tn_cumprod, 1);
}

// K is an input from opset 10 on; largest and sorted came with 11.
// Of equal elements the first comes first. Results are in order whether sorted asks for it or not.
bool tni_onnx_top_k(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    k = tni_onnx_attr_int(c, "k", 0);
    int        n, axis = (int)tni_onnx_attr_int(c, "axis", -1);
    if (!x || (c->opset >= 10 && !tni_onnx_ints(c, 1, 1, &k, &n))) return false;
    tn_pair p = tn_topk(x, k, axis, tni_onnx_attr_int(c, "largest", 1) != 0);
    return tni_onnx_out(c, 0, p.values) && tni_onnx_out(c, 1, p.indices);
}
