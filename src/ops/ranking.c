// Elements by their order along an axis: extremes with their places, running extremes, medians,
// quantiles, modes, places in sorted rows. All by sorts, gathers and scans of others' making, so
// that gradients go to the elements that were chosen.
#include "ops/composite.h"
#include "ops/ranking.h"

// The axis, from 0, of a tensor with at least one element along it; -1, reported, otherwise.
static int ranked_axis(const char *op, tn_tensor *x, int axis)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    int     a  = cx ? tni_axis(cx, op, tn_rank(x), axis) : -1;
    if (a < 0 || !tni_want_math_dtype(cx, op, tn_dtype_of(x))) return -1;
    if (tn_size(x, a) > 0) return a;
    tni_fail(cx, TN_ESHAPE, "%s: x %s has no elements along axis %d", op, tni_shape_of(x).s, a);
    return -1;
}

static bool is_real(tn_tensor *x)
{
    return tni_is_float(tn_dtype_of(x));
}

// The elements of x at one place of each line (index has size 1 along the axis), and these places,
// both without the axis.
static tn_pair chosen(tn_tensor *x, tn_tensor *index, int axis)
{
    tn_tensor *values = tn_squeeze(tn_take_along_axis(x, index, axis), axis);
    return (tn_pair){ values, values ? tn_squeeze(index, axis) : NULL };
}

tn_pair tn_max_indexed(tn_tensor *x, int axis)
{
    int a = ranked_axis("max_indexed", x, axis);
    return a < 0 ? (tn_pair){ 0 } : chosen(x, tn_argmax_keep(tn_detach(x), a), a);
}

tn_pair tn_min_indexed(tn_tensor *x, int axis)
{
    int a = ranked_axis("min_indexed", x, axis);
    return a < 0 ? (tn_pair){ 0 } : chosen(x, tn_argmin_keep(tn_detach(x), a), a);
}

// ---- running folds -----------------------------------------------------------------------------

// Each round joins every element with the one `step` before it and doubles the step. Equal keys are
// neighbours, so two of one key have only such between them.
tn_tensor *tni_running(tn_tensor *x, tn_tensor *key, int axis, tni_join *join)
{
    int64_t n = x ? tn_size(x, axis) : 0;
    for (int64_t step = 1; step < n && x; step *= 2) {
        tn_tensor *first = tn_slice(x, axis, 0, step, 1), *later = tn_slice(x, axis, step, n, 1);
        tn_tensor *both = join(tn_slice(x, axis, 0, n - step, 1), later);
        if (key)
            both = tn_where(tn_eq(tn_slice(key, axis, step, n, 1),
                                  tn_slice(key, axis, 0, n - step, 1)),
                            both, later);
        x = tn_concat(2, (tn_tensor *const[]){ first, both }, axis);
    }
    return x;
}

tn_tensor *tni_places_along(tn_tensor *x, int axis)
{
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(x); i++) size[i] = i == axis ? tn_size(x, i) : 1;
    tn_tensor *at = tn_arange(x->cx, TN_I64, 0, (double)tn_size(x, axis), 1);
    return tn_reshape(at, tn_rank(x), size);
}

// The place of a running extreme is the last one at which x was as large as it, or was NaN: the
// largest such place so far.
static tn_pair running_extreme(const char *op, tn_tensor *x, int axis, tni_join *join)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    int     a  = cx ? tni_axis(cx, op, tn_rank(x), axis) : -1;
    if (a < 0 || !tni_want_math_dtype(cx, op, tn_dtype_of(x))) return (tn_pair){ 0 };
    tn_tensor *v = tn_detach(x), *most = tni_running(v, NULL, a, join), *hit = tn_eq(v, most);
    if (is_real(x)) hit = tn_logical_or(hit, tn_isnan(v));
    tn_tensor *zero  = tni_number(cx, TN_I64, tni_num_i64(0));
    tn_tensor *at    = tn_where(hit, tni_places_along(x, a), zero);
    tn_tensor *index = tni_running(at, NULL, a, tn_maximum);
    return (tn_pair){ tn_gather(x, a, index), index };
}

tn_pair tn_cummax(tn_tensor *x, int axis)
{
    return running_extreme("cummax", x, axis, tn_maximum);
}

tn_pair tn_cummin(tn_tensor *x, int axis)
{
    return running_extreme("cummin", x, axis, tn_minimum);
}

// ---- of sorted lines ---------------------------------------------------------------------------

tn_pair tn_kthvalue(tn_tensor *x, int64_t k, int axis)
{
    int a = ranked_axis("kthvalue", x, axis);
    if (a < 0) return (tn_pair){ 0 };
    if (k < 1 || k > tn_size(x, a)) {
        tni_fail(x->cx, TN_EARG, "kthvalue: k %lld is not in 1 .. %lld for x %s along axis %d",
                 (long long)k, (long long)tn_size(x, a), tni_shape_of(x).s, a);
        return (tn_pair){ 0 };
    }
    return chosen(x, tn_slice(tn_argsort(tn_detach(x), a, false), a, k - 1, k, 1), a);
}

// The lower one of two in the middle. NaN is sorted last: if there is one, it is the median.
tn_pair tn_median(tn_tensor *x, int axis)
{
    int a = ranked_axis("median", x, axis);
    if (a < 0) return (tn_pair){ 0 };
    int64_t    n = tn_size(x, a), k = (n - 1) / 2;
    tn_pair    s      = tn_sort(tn_detach(x), a, false);
    tn_tensor *middle = tn_slice(s.indices, a, k, k + 1, 1);
    if (is_real(x)) {
        tn_tensor *last = tn_isnan(tn_slice(s.values, a, n - 1, n, 1));
        middle          = tn_where(last, tn_slice(s.indices, a, n - 1, n, 1), middle);
    }
    return chosen(x, middle, a);
}

// The end of the longest run of equal elements, of equals the first run: the smallest element. The
// length of a run is known at its end, from the place where it began.
tn_pair tn_mode(tn_tensor *x, int axis)
{
    int a = ranked_axis("mode", x, axis);
    if (a < 0) return (tn_pair){ 0 };
    int64_t    n      = tn_size(x, a);
    tn_ctx    *cx     = x->cx;
    tn_pair    s      = tn_sort(tn_detach(x), a, false);
    tn_tensor *next   = tn_ne(tn_slice(s.values, a, 1, n, 1), tn_slice(s.values, a, 0, n - 1, 1));
    tn_tensor *edge   = tn_ones_like(tn_slice(tn_eq(s.values, s.values), a, 0, 1, 1));
    edge              = tn_cast(edge, TN_BOOL);
    tn_tensor *begins = tn_concat(2, (tn_tensor *const[]){ edge, next }, a);
    tn_tensor *ends   = tn_concat(2, (tn_tensor *const[]){ next, edge }, a);
    tn_tensor *at = tni_places_along(x, a), *zero = tni_number(cx, TN_I64, tni_num_i64(0));
    tn_tensor *from   = tni_running(tn_where(begins, at, zero), NULL, a, tn_maximum);
    tn_tensor *length = tn_where(ends, tn_add_s(tn_sub(at, from), 1), zero);
    tn_tensor *best   = tn_argmax_keep(length, a);
    return chosen(x, tn_take_along_axis(s.indices, best, a), a);
}

// Between the two elements of the sorted line that lie around q (n - 1).
tn_tensor *tn_quantile(tn_tensor *x, double q, int axis)
{
    int a = ranked_axis("quantile", x, axis);
    if (a < 0 || !tni_want_float(x, "quantile")) return NULL;
    if (!(q >= 0 && q <= 1)) return tni_fail(x->cx, TN_EARG, "quantile: q %g is not in 0 .. 1", q);
    int64_t    n  = tn_size(x, a);
    double     at = q * (double)(n - 1), part = at - floor(at);
    int64_t    k  = (int64_t)at;
    tn_tensor *s  = tn_sort(tni_widen(x), a, false).values;
    tn_tensor *lo = tn_select(s, a, k), *y = lo;
    if (part > 0) y = tn_add(lo, tn_mul_s(tn_sub(tn_select(s, a, k + 1), lo), part));
    tn_tensor *last = tn_select(s, a, n - 1);
    return tni_narrow(tn_where(tn_isnan(last), last, y), tn_dtype_of(x));
}

// ---- places in sorted lines --------------------------------------------------------------------

// By halving, all values at once: `at` counts the elements that are known to lie before.
// Comparisons are denied rather than turned, so that NaN counts as the largest number.
tn_tensor *tn_searchsorted(tn_tensor *sorted, tn_tensor *values, bool right)
{
    static const char *const names[] = { "sorted", "values" };
    tn_ctx *cx = tni_args("searchsorted", 2, (tn_tensor *const[]){ sorted, values }, names);
    if (!cx) return NULL;
    int  rank = tn_rank(sorted);
    bool fits = rank == 1 || rank == tn_rank(values);
    for (int i = 0; i < rank - 1 && fits; i++) fits = tn_size(sorted, i) == tn_size(values, i);
    if (rank < 1 || !fits)
        return tni_fail(cx, TN_ESHAPE,
                        "searchsorted: sorted %s and values %s differ before the last axis",
                        tni_shape_of(sorted).s, tni_shape_of(values).s);
    int64_t    n = tn_size(sorted, -1), step = 1;
    tn_tensor *v  = rank == 1 ? tn_reshape(values, TN_SHAPE(-1)) : values;
    tn_tensor *at = tn_cast(tn_zeros_like(v), TN_I64);
    if (rank == 1 && n == 0) return tn_cast(tn_zeros_like(values), TN_I64);
    while (step <= n / 2) step *= 2;
    for (; step > 0 && n > 0; step /= 2) {
        tn_tensor *probe = tn_add_i64(at, step - 1);
        tn_tensor *e     = tn_gather(sorted, rank - 1, tn_minimum_i64(probe, n - 1));
        tn_tensor *stop  = right ? tn_gt(e, v) : tn_ge(e, v);
        tn_tensor *go    = tn_logical_and(tn_logical_not(stop), tn_lt_i64(probe, n));
        at               = tn_where(go, tn_add_i64(at, step), at);
    }
    if (rank > 1) return at;
    tni_view s = tni_layout(values);
    return tn_reshape(at, s.rank, s.size);
}
