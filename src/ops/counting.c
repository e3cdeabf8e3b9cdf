// Counts and elements that are found: bins, places that are not 0, different elements; and writes
// at places that several elements share.
//
// Where the size of a result depends on values, it is read on the host, which waits for the device.
#include "ops/composite.h"
#include "ops/ranking.h"

static tn_tensor *flat(tn_tensor *x)
{
    return tn_reshape(x, TN_SHAPE(-1));
}

// Reads one integer of a tensor; false on error, also if t is NULL.
static bool read_integer(tn_tensor *t, int64_t *v)
{
    return t && tn_read(tn_cast(t, TN_I64), TN_I64, v, 1) == TN_OK;
}

// The places of the nonzero elements of a vector, i64. Each knows its place among them by a running
// sum; all others are written to one place more, which is cut off.
static tn_tensor *true_places(tn_tensor *mask)
{
    if (!mask) return NULL;
    tn_ctx    *cx = mask->cx;
    tn_tensor *on = tn_cast(tn_ne_s(mask, 0), TN_I64), *sum = tn_cumsum(on, 0);
    int64_t    n = tn_size(mask, 0), count = 0;
    if (n && !read_integer(tn_select(sum, 0, n - 1), &count)) return NULL;
    tn_tensor *at    = tn_arange(cx, TN_I64, 0, (double)n, 1);
    tn_tensor *index = tn_where(tn_ne_s(mask, 0), tn_sub_s(sum, 1),
                                tni_number(cx, TN_I64, tni_num_i64(count)));
    tn_tensor *all   = tn_scatter(tn_zeros(cx, TN_I64, TN_SHAPE(count + 1)), 0, index, at);
    return tn_slice(all, 0, 0, count, 1);
}

tn_tensor *tn_nonzero(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1("nonzero", x, "x");
    int     rank;
    if (!cx || !tni_want_math_dtype(cx, "nonzero", tn_dtype_of(x))) return NULL;
    tn_tensor *at = true_places(flat(tn_detach(x))), *axis[TN_MAX_RANK];
    if (!at) return NULL;
    if ((rank = tn_rank(x)) == 0) return tn_zeros(cx, TN_I64, TN_SHAPE(tn_size(at, 0), 0));
    for (int i = rank; i-- > 0;) {
        tn_tensor *size = tni_number(cx, TN_I64, tni_num_i64(tn_size(x, i)));
        axis[i]         = tn_remainder(at, size);
        at              = tn_floor_divide(at, size);
    }
    return tn_stack(rank, axis, 1);
}

tn_tensor *tn_masked_select(tn_tensor *x, tn_tensor *mask)
{
    static const char *const names[] = { "x", "mask" };
    tn_ctx *cx = tni_args("masked_select", 2, (tn_tensor *const[]){ x, mask }, names);
    if (!cx || !tni_broadcast_pair("masked_select", x, "x", mask, "mask")) return NULL;
    if (tn_dtype_of(mask) != TN_BOOL)
        return tni_fail(cx, TN_EDTYPE, "masked_select: mask is %s, not bool",
                        tn_dtype_name(tn_dtype_of(mask)));
    tn_tensor *whole = tn_logical_or(mask, tn_cast(tn_zeros_like(tn_detach(x)), TN_BOOL));
    tn_tensor *at    = true_places(flat(whole));
    if (!at) return NULL;
    tni_view v = tni_layout(whole);
    return tn_index_select(flat(tn_expand(x, v.rank, v.size)), 0, at);
}

// Of sorted elements the first of each run of equals.
tn_status tn_unique(tn_tensor *x, tn_tensor **values, tn_tensor **inverse, tn_tensor **counts)
{
    tn_ctx *cx = tni_arg1("unique", x, "x");
    if (!cx) return tni_failed();
    if (!values) return tni_fail_status(cx, TN_EARG, "unique: values is NULL");
    *values = NULL;
    if (!tni_want_math_dtype(cx, "unique", tn_dtype_of(x))) return tni_failed();
    tni_view   v     = tni_layout(x);
    int64_t    n     = tn_count(x);
    tn_pair    s     = tn_sort(flat(tn_detach(x)), 0, false);
    tn_tensor *one   = tn_ones(cx, TN_BOOL, TN_SHAPE(n > 0));
    tn_tensor *fresh = tn_concat(2,
                                 (tn_tensor *const[]){ one,
                                                       n ? tn_ne(tn_slice(s.values, 0, 1, n, 1),
                                                                 tn_slice(s.values, 0, 0, n - 1, 1))
                                                         : one },
                                 0);
    tn_tensor *at    = fresh ? true_places(fresh) : NULL;
    if (!at) return tni_failed();
    *values = tn_index_select(s.values, 0, at);
    if (inverse) {
        tn_tensor *rank = tn_sub_s(tn_cumsum(tn_cast(fresh, TN_I64), 0), 1);
        *inverse = tn_reshape(tn_scatter(tn_zeros_like(s.indices), 0, s.indices, rank), v.rank,
                              v.size);
    }
    if (counts) {
        tn_tensor *end = tn_full_i64(cx, TN_I64, TN_SHAPE(n > 0), n);
        int64_t    m   = tn_size(at, 0);
        tn_tensor *to  = tn_concat(2, (tn_tensor *const[]){ tn_slice(at, 0, m > 0, m, 1), end }, 0);
        *counts        = tn_sub(to, at);
    }
    return *values && (!inverse || *inverse) && (!counts || *counts) ? TN_OK : tni_failed();
}

// ---- bins --------------------------------------------------------------------------------------

// The number of bins is one more than the largest element.
tn_tensor *tn_bincount(tn_tensor *x, tn_tensor *weights, int64_t least)
{
    tn_ctx *cx = tni_arg1("bincount", x, "x");
    if (!cx || (weights && !tni_arg1("bincount", weights, "weights"))) return NULL;
    if (!tni_is_int(tn_dtype_of(x)) || tn_rank(x) != 1)
        return tni_fail(cx, TN_EDTYPE, "bincount: x %s %s is no vector of integers",
                        tn_dtype_name(tn_dtype_of(x)), tni_shape_of(x).s);
    if (least < 0) return tni_fail(cx, TN_EARG, "bincount: %lld bins", (long long)least);
    if (weights && (tn_rank(weights) != 1 || tn_size(weights, 0) != tn_size(x, 0)))
        return tni_fail(cx, TN_ESHAPE, "bincount: weights %s and x %s differ",
                        tni_shape_of(weights).s, tni_shape_of(x).s);
    tn_tensor *i = tn_cast(x, TN_I64);
    int64_t    n = 0, low = 0;
    if (tn_size(x, 0) && !(read_integer(tn_max_all(i), &n) && read_integer(tn_min_all(i), &low)))
        return NULL;
    n += tn_size(x, 0) > 0;
    if (low < 0) return tni_fail(cx, TN_EARG, "bincount: x has %lld", (long long)low);
    if (n < least) n = least;
    tn_tensor *w = weights ? weights : tn_ones(cx, TN_I64, TN_SHAPE(tn_size(x, 0)));
    return tn_scatter_add(tn_zeros(cx, tn_dtype_of(w), TN_SHAPE(n)), 0, i, w);
}

// Elements outside are counted as 0 of the first bin; hi belongs to the last.
tn_tensor *tn_histogram(tn_tensor *x, int64_t bins, double lo, double hi)
{
    tn_ctx *cx = tni_arg1("histogram", x, "x");
    if (!cx || !tni_want_float(x, "histogram")) return NULL;
    if (bins < 1 || !(lo <= hi) || isinf(hi - lo))
        return tni_fail(cx, TN_EARG, "histogram: %lld bins from %g to %g", (long long)bins, lo, hi);
    tn_tensor *v    = flat(tni_widen(tn_detach(x)));
    tn_tensor *from = tni_number_like(v, lo), *to = tni_number_like(v, hi);
    if (lo == hi && tn_count(x) > 0) {
        // All elements; if they are equal, they are the middle of a range of 2.
        tn_tensor *least = tn_min_all(v), *most = tn_max_all(v), *same = tn_eq(least, most);
        from = tn_where(same, tn_sub_s(least, 1), least);
        to   = tn_where(same, tn_add_s(most, 1), most);
    }
    tn_tensor *at  = tn_mul_s(tn_div(tn_sub(v, from), tn_sub(to, from)), (double)bins);
    tn_tensor *in  = tn_logical_and(tn_ge(v, from), tn_le(v, to));
    at             = tn_where(in, at, tni_number_like(at, 0));
    tn_tensor *bin = tn_minimum_i64(tn_cast(at, TN_I64), bins - 1);
    tn_tensor *y   = tn_scatter_add(tn_zeros(cx, tn_dtype_of(v), TN_SHAPE(bins)), 0, bin,
                                    tn_cast(in, tn_dtype_of(v)));
    return tni_narrow(y, tn_dtype_of(x));
}

// ---- writes at shared places -------------------------------------------------------------------

// The elements in the order of their places, each folded with those of its place before it: the
// last one of a place, which scatter leaves there, has them all. Without x's own element an
// unwritten place keeps it.
static tn_tensor *scatter_folded(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v, bool self,
                                 tni_join *join)
{
    int64_t    n     = tn_size(x, axis);
    tn_tensor *place = tn_where(tn_lt_s(index, 0), tn_add_i64(index, n), index);
    tn_pair    s     = tn_sort(place, axis, false);
    tn_tensor *fold  = tni_running(tn_gather(v, axis, s.indices), s.values, axis, join);
    if (self) fold = join(tn_gather(x, axis, s.values), fold);
    return tn_scatter(x, axis, s.values, fold);
}

// Sums by scatter_add, and a mean of them by the number of elements at each place; others by
// folding.
tn_tensor *tn_scatter_reduce(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v, tn_fold fold,
                             bool include_self)
{
    static const char *const names[] = { "x", "index", "v" };
    tn_ctx *cx = tni_args("scatter_reduce", 3, (tn_tensor *const[]){ x, index, v }, names);
    int     a  = cx ? tni_axis(cx, "scatter_reduce", tn_rank(x), axis) : -1;
    if (a < 0) return NULL;
    tni_view i = tni_layout(index), w = tni_layout(v);
    if (tn_dtype_of(x) != tn_dtype_of(v) || !tni_shape_equal(i.rank, i.size, w.rank, w.size) ||
        i.rank != tn_rank(x))
        return tni_fail(cx, TN_ESHAPE, "scatter_reduce: x %s %s, index %s and v %s %s do not fit",
                        tn_dtype_name(tn_dtype_of(x)), tni_shape_of(x).s, tni_shape_of(index).s,
                        tn_dtype_name(tn_dtype_of(v)), tni_shape_of(v).s);
    switch (fold) {
    case TN_FOLD_PROD: return scatter_folded(x, a, index, v, include_self, tn_mul);
    case TN_FOLD_MAX: return scatter_folded(x, a, index, v, include_self, tn_maximum);
    case TN_FOLD_MIN: return scatter_folded(x, a, index, v, include_self, tn_minimum);
    case TN_FOLD_SUM:
    case TN_FOLD_MEAN: break;
    default: return tni_fail(cx, TN_EARG, "scatter_reduce: there is no fold %d", (int)fold);
    }
    tn_tensor *base = include_self ? x : tn_scatter(x, a, index, tn_zeros_like(v));
    tn_tensor *y    = tn_scatter_add(base, a, index, v);
    if (fold == TN_FOLD_SUM) return y;
    tn_tensor *one   = tn_ones_like(tn_detach(v));
    tn_tensor *count = tn_scatter_add(
        include_self ? tn_ones_like(tn_detach(x)) : tn_zeros_like(tn_detach(x)), a, index, one);
    count = tn_maximum_s(count, 1);
    return tni_is_float(tn_dtype_of(x)) ? tn_div(y, count) : tn_floor_divide(y, count);
}

// The index of one axis, repeated along the others.
tn_tensor *tn_index_add(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v)
{
    static const char *const names[] = { "x", "index", "v" };
    tn_ctx *cx = tni_args("index_add", 3, (tn_tensor *const[]){ x, index, v }, names);
    int     a  = cx ? tni_axis(cx, "index_add", tn_rank(x), axis) : -1;
    if (a < 0) return NULL;
    if (tn_rank(index) != 1 || tn_rank(v) != tn_rank(x) || tn_size(v, a) != tn_size(index, 0))
        return tni_fail(cx, TN_ESHAPE,
                        "index_add: x %s, index %s and v %s do not fit along axis %d",
                        tni_shape_of(x).s, tni_shape_of(index).s, tni_shape_of(v).s, a);
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(x); i++) size[i] = i == a ? tn_size(index, 0) : 1;
    tni_view w = tni_layout(v);
    return tn_scatter_add(x, a, tn_expand(tn_reshape(index, w.rank, size), w.rank, w.size), v);
}

// The first n axes as one, whose places are computed from the n indices.
tn_tensor *tn_index_put(tn_tensor *x, int n, tn_tensor *const *index, tn_tensor *v, bool accumulate)
{
    tn_ctx *cx = tni_arg1("index_put", x, "x");
    if (!cx || !tni_arg1("index_put", v, "v")) return NULL;
    if (n < 1 || n > tn_rank(x) || !index)
        return tni_fail(cx, TN_EARG, "index_put: %d indices for x %s", n, tni_shape_of(x).s);
    tn_tensor *at   = NULL;
    tni_view   s    = tni_layout(x);
    int64_t    rows = tni_shape_count(n, s.size), cols = 1;
    for (int i = n; i < s.rank; i++) cols *= s.size[i];
    for (int i = 0; i < n; i++) {
        if (!tni_arg1("index_put", index[i], "index")) return NULL;
        tn_tensor *own = tn_cast(index[i], TN_I64);
        own            = tn_where(tn_lt_s(own, 0), tn_add_i64(own, s.size[i]), own);
        at             = at ? tn_add(tn_mul_i64(at, s.size[i]), own) : own;
    }
    if (!at) return NULL;
    tni_view p = tni_layout(at);
    int64_t  size[2 * TN_MAX_RANK];
    int      rank = p.rank + s.rank - n;
    if (rank > TN_MAX_RANK) return tni_fail(cx, TN_ESHAPE, "index_put: v has %d axes", rank);
    for (int i = 0; i < rank; i++) size[i] = i < p.rank ? p.size[i] : s.size[n + i - p.rank];
    tn_tensor *w     = tni_cast_and_expand(v, "index_put", tn_dtype_of(x), rank, size);
    int64_t    count = tni_shape_count(p.rank, p.size);
    tn_tensor *to    = tn_expand(tn_reshape(at, TN_SHAPE(count, 1)), TN_SHAPE(count, cols));
    tn_tensor *base  = tn_reshape(x, TN_SHAPE(rows, cols));
    w                = tn_reshape(w, TN_SHAPE(count, cols));
    tn_tensor *y     = accumulate ? tn_scatter_add(base, 0, to, w) : tn_scatter(base, 0, to, w);
    return tn_reshape(y, s.rank, s.size);
}
