// Composite ops of movement: joining, splitting, repeating and choosing elements.
#include "ops/kept_calls.h"
#include "ops/complex.h"

// 0 .. n-1, i64.
static tn_tensor *index_range(tn_ctx *cx, int64_t n)
{
    return tn_arange(cx, TN_I64, 0, (double)n, 1);
}

// ---- joining and cutting -----------------------------------------------------------------------

// stack joins along a new axis, so all shapes must be equal, not only the others' sizes.
static bool same_shapes(tn_ctx *cx, int n, tn_tensor *const *x)
{
    for (int i = 1; i < n; i++) {
        if (tni_shape_equal(tni_rank(x[0]), tni_sizes(x[0]), tni_rank(x[i]), tni_sizes(x[i])))
            continue;
        tni_fail(cx, TN_ESHAPE, "stack: x[0] %s and x[%d] %s differ", tni_shape_of(x[0]).s, i,
                 tni_shape_of(x[i]).s);
        return false;
    }
    return true;
}

// Each tensor gets the new axis as a view; the concatenation is the only copy.
tn_tensor *tn_stack(int n, tn_tensor *const *x, int axis)
{
    if (n < 1 || !x) {
        tni_thread_fail(TN_EARG, "stack: there are no tensors");
        return NULL;
    }
    tn_ctx *cx = tni_args_any("stack", n, x, NULL);
    // Without names: messages say "an argument" for one of many.
    if (!cx || !same_shapes(cx, n, x)) return NULL;
    if (tni_any_complex(n, x)) return tni_complex_concat(n, x, axis, true);
    int i = tni_axis(cx, "stack", tn_rank(x[0]) + 1, axis);
    if (i < 0) return NULL;
    tn_tensor **part = tni_alloc(&cx->heap, (size_t)n * sizeof *part);
    if (!part) return tni_fail_memory(cx, "stack");
    for (int k = 0; k < n; k++) part[k] = tn_unsqueeze(x[k], i);
    tn_tensor *y = tn_concat(n, part, i);
    tni_free(&cx->heap, part);
    return y;
}

// The axis to split, from 0; -1, reported, on wrong arguments. `by` is the argument called by_name,
// which must be positive.
static int checked_axis(const char *op, tn_tensor *x, int axis, const char *by_name, int64_t by,
                        tn_tensor **y)
{
    tn_ctx *cx = tni_arg1_any(op, x, "x");
    int     i  = cx ? tni_axis(cx, op, tn_rank(x), axis) : -1;
    if (i < 0) return -1;
    if (by > 0 && y) return i;
    if (!y) tni_fail(cx, TN_EARG, "%s: y is NULL", op);
    else
        tni_fail(cx, TN_EARG, "%s: %s %lld is not positive for x %s", op, by_name, (long long)by,
                 tni_shape_of(x).s);
    return -1;
}

// Splits axis i of x into pieces of `size`, into y[n]; an empty axis is one piece. Returns their
// number, or -1. The pieces are views: nothing is copied.
static int split_axis(const char *op, tn_tensor *x, int i, int64_t size, int n, tn_tensor **y)
{
    int64_t length = tn_size(x, i), pieces = length > 0 ? (length - 1) / size + 1 : 1;
    if (pieces > n) {
        tni_fail(x->cx, TN_EARG, "%s: x %s along axis %d has %lld pieces, y has room for %d", op,
                 tni_shape_of(x).s, i, (long long)pieces, n);
        return -1;
    }
    for (int64_t k = 0; k < pieces; k++) {
        int64_t start = k * size;
        y[k]          = tn_slice(x, i, start, length - start > size ? start + size : length, 1);
        if (!y[k]) return -1;
    }
    return (int)pieces;
}

int tn_split(tn_tensor *x, int64_t size, int axis, int n, tn_tensor **y)
{
    for (int k = 0; y && k < n; k++) y[k] = NULL;
    int i = checked_axis("split", x, axis, "size", size, y);
    return i < 0 ? -1 : split_axis("split", x, i, size, n, y);
}

// Pieces of equal size, rounded up, so there may be fewer than `chunks`, as in PyTorch.
int tn_chunk(tn_tensor *x, int chunks, int axis, tn_tensor **y)
{
    for (int k = 0; y && k < chunks; k++) y[k] = NULL;
    int i = checked_axis("chunk", x, axis, "chunks", chunks, y);
    if (i < 0) return -1;
    int64_t length = tn_size(x, i);
    return split_axis("chunk", x, i, length > chunks ? (length - 1) / chunks + 1 : 1, chunks, y);
}

// A 0-d x becomes (1).
tn_tensor *tn_flatten(tn_tensor *x, int first, int last)
{
    tn_ctx *cx = tni_arg1_any("flatten", x, "x");
    if (!cx) return NULL;
    tni_view s = tni_layout(x);
    s.rank     = tni_rank(x);
    int rank = s.rank ? s.rank : 1, a = tni_axis(cx, "flatten", rank, first);
    int b = a < 0 ? -1 : tni_axis(cx, "flatten", rank, last);
    if (b < 0) return NULL;
    if (a > b) return tni_fail(cx, TN_EARG, "flatten: axis %d comes after axis %d", first, last);
    // Axes a .. b are multiplied into one.
    int64_t size[TN_MAX_RANK] = { 1 };
    int     n                 = 0;
    for (int i = 0; i < s.rank; i++) {
        if (i > a && i <= b) size[n - 1] *= s.size[i];
        else size[n++] = s.size[i];
    }
    return tn_reshape(x, s.rank ? n : 1, size);
}

// ---- repeating ---------------------------------------------------------------------------------

// y of shape s with axis i repeated `times` times: a broadcast axis before it, then merged with it.
static tn_tensor *repeat_axis(tn_tensor *y, tni_view *s, int i, int64_t times)
{
    int64_t size = s->size[i], before = 1, after = 1;
    for (int k = 0; k < i; k++) before *= s->size[k];
    for (int k = i + 1; k < s->rank; k++) after *= s->size[k];
    if (!tni_shape_ok(y->cx, "repeat", TN_SHAPE(size, times))) return NULL;
    s->size[i] *= times;
    if (!tni_shape_ok(y->cx, "repeat", s->rank, s->size)) return NULL;
    y = tn_reshape(y, TN_SHAPE(before, 1, size, after));
    y = tn_expand(y, TN_SHAPE(before, times, size, after));
    return tn_reshape(y, s->rank, s->size);
}

// Axis by axis; the result is a value of its own, never a view of x.
tn_tensor *tn_repeat(tn_tensor *x, int rank, const int64_t *times)
{
    tn_ctx *cx = tni_arg1("repeat", x, "x");
    if (!cx || !tni_shape_ok(cx, "repeat", rank, times)) return NULL;
    tni_view s = tni_layout(x);
    if (rank < s.rank)
        return tni_fail(cx, TN_ESHAPE, "repeat: %d times given for x %s", rank, tni_shape_of(x).s);
    for (int i = rank - 1, own = s.rank - 1; i >= 0; i--, own--)
        s.size[i] = own >= 0 ? s.size[own] : 1;
    // Leading axes of size 1 are added, as broadcasting does.
    s.rank       = rank;
    tn_tensor *y = tn_reshape(x, rank, s.size);
    for (int i = rank - 1; y && i >= 0; i--)
        if (times[i] != 1) y = repeat_axis(y, &s, i, times[i]);
    return y && tn_is_view(y) ? tni_share(y, "repeat") : y;
}

// Shorter lists than x has axes are about its last ones.
tn_tensor *tn_tile(tn_tensor *x, int n, const int64_t *times)
{
    int64_t all[TN_MAX_RANK];
    tn_ctx *cx = tni_arg1("tile", x, "x");
    if (!cx) return NULL;
    if (n < 0 || n > TN_MAX_RANK || (n > 0 && !times))
        return tni_fail(cx, TN_EARG, "tile: %d numbers for x %s", n, tni_shape_of(x).s);
    int rank = tn_rank(x) > n ? tn_rank(x) : n;
    for (int i = 0; i < rank; i++) all[i] = i < rank - n ? 1 : times[i - rank + n];
    return tn_repeat(x, rank, all);
}

// Each slice along an axis `times` times in a row: a broadcast axis behind it, then merged with it.
static tn_tensor *repeat_each(tn_tensor *x, int axis, int64_t times)
{
    tni_view s    = tni_layout(x);
    int64_t  rows = tni_shape_count(axis + 1, s.size), rest = 1;
    for (int i = axis + 1; i < s.rank; i++) rest *= s.size[i];
    if (!tni_shape_ok(x->cx, "repeat_interleave", TN_SHAPE(rows, times, rest))) return NULL;
    s.size[axis] *= times;
    tn_tensor *y = tn_expand(tn_reshape(x, TN_SHAPE(rows, 1, rest)), TN_SHAPE(rows, times, rest));
    y            = tn_reshape(y, s.rank, s.size);
    return y && tn_is_view(y) ? tni_share(y, "repeat_interleave") : y;
}

// Of several numbers an index is made here.
tn_tensor *tn_repeat_interleave(tn_tensor *x, int n, const int64_t *repeats, int axis)
{
    tn_ctx *cx    = tni_arg1("repeat_interleave", x, "x");
    int     a     = cx ? tni_axis(cx, "repeat_interleave", tn_rank(x), axis) : -1;
    int64_t total = 0;
    if (a < 0) return NULL;
    if (!repeats || n < 1 || (n > 1 && n != tn_size(x, a)))
        return tni_fail(cx, TN_ESHAPE, "repeat_interleave: %d repeats for x %s along axis %d", n,
                        tni_shape_of(x).s, a);
    for (int i = 0; i < n; i++) {
        if (repeats[i] < 0 || repeats[i] > INT64_MAX / 16 / n)
            return tni_fail(cx, TN_EARG, "repeat_interleave: repeats[%d] is %lld", i,
                            (long long)repeats[i]);
        total += repeats[i];
    }
    if (n == 1) return repeat_each(x, a, total);
    int64_t *place = tni_alloc(&cx->heap, (size_t)(total + 1) * sizeof *place), at = 0;
    if (!place) return tni_fail_memory(cx, "repeat_interleave");
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < repeats[i]; k++) place[at++] = i;
    tn_tensor *y = tn_index_select(x, a, tn_from(cx, TN_I64, 1, &total, place));
    tni_free(&cx->heap, place);
    return y;
}

// Views: each vector along an axis of its own, repeated along the others.
tn_status tn_meshgrid(int n, tn_tensor *const *x, bool xy, tn_tensor **y)
{
    int64_t size[TN_MAX_RANK];
    if (n < 1 || !x || !y) {
        tni_thread_fail(TN_EARG, "meshgrid: there are no tensors");
        return TN_EARG;
    }
    tn_ctx *cx = tni_args("meshgrid", n, x, NULL);
    if (!cx) return tni_failed();
    if (n > TN_MAX_RANK) return tni_fail_status(cx, TN_EARG, "meshgrid: %d tensors", n);
    for (int i = 0; i < n; i++) {
        if (tn_rank(x[i]) > 1)
            return tni_fail_status(cx, TN_ESHAPE, "meshgrid: x[%d] %s has more than one axis", i,
                                   tni_shape_of(x[i]).s);
        size[i] = tn_count(x[i]);
    }
    for (int i = 0; i < n; i++) {
        int64_t own[TN_MAX_RANK];
        for (int k = 0; k < n; k++) own[k] = k == i ? size[i] : 1;
        y[i] = tn_expand(tn_reshape(x[i], n, own), n, size);
        if (xy && n > 1) y[i] = tn_transpose(y[i], 0, 1);
        if (!y[i]) return tni_failed();
    }
    return TN_OK;
}

// The two parts of the axis, exchanged. A shift of a multiple of its size moves nothing.
tn_tensor *tn_roll(tn_tensor *x, int64_t shift, int axis)
{
    tn_ctx *cx = tni_arg1_any("roll", x, "x");
    int     i  = cx ? tni_axis(cx, "roll", tn_rank(x), axis) : -1;
    if (i < 0) return NULL;
    int64_t n = tn_size(x, i), by = n > 0 ? shift % n : 0;
    if (by < 0) by += n;
    if (by == 0) return tni_share(x, "roll");
    // What is shifted past the end comes in at the start.
    tn_tensor *part[] = { tn_slice(x, i, n - by, n, 1), tn_slice(x, i, 0, n - by, 1) };
    return tn_concat(2, part, i);
}

// ---- triangles ---------------------------------------------------------------------------------

// Column minus row of each place of a matrix, (rows, cols): 0 on the main diagonal, positive above
// it.
static tn_tensor *diagonals(tn_ctx *cx, int64_t rows, int64_t cols)
{
    return tn_sub(index_range(cx, cols), tn_unsqueeze(index_range(cx, rows), 1));
}

// x where its diagonal compares with `diagonal`, else 0. By where, not by a product, so that
// infinities outside the triangle vanish.
static tn_tensor *triangle(const char *op, tn_tensor *x, int64_t diagonal,
                           tn_tensor *(*compare)(tn_tensor *, int64_t))
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx) return NULL;
    if (tn_rank(x) < 2)
        return tni_fail(cx, TN_ESHAPE, "%s: x %s is not a matrix", op, tni_shape_of(x).s);
    tn_tensor *in = compare(diagonals(cx, tn_size(x, -2), tn_size(x, -1)), diagonal);
    return tn_where(in, x, tni_number_like(x, 0));
}

tn_tensor *tn_tril(tn_tensor *x, int64_t diagonal)
{
    return triangle("tril", x, diagonal, tn_le_i64);
}

tn_tensor *tn_triu(tn_tensor *x, int64_t diagonal)
{
    return triangle("triu", x, diagonal, tn_ge_i64);
}

// Where the diagonal is 0; not stored before it is read.
tn_tensor *tn_eye(tn_ctx *cx, tn_dtype dt, int64_t rows, int64_t cols)
{
    if (!tni_can_make(cx, "eye", dt, TN_SHAPE(rows, cols))) return NULL;
    return tn_cast(tn_eq_s(diagonals(cx, rows, cols), 0), dt);
}

// From each end to the middle, in f64, so that both ends are exact.
tn_tensor *tn_linspace(tn_ctx *cx, tn_dtype dt, double a, double b, int64_t n)
{
    if (!tni_can_make(cx, "linspace", dt, TN_SHAPE(n))) return NULL;
    double     step = n > 1 ? (b - a) / (double)(n - 1) : 0;
    tn_tensor *i = tn_cast(index_range(cx, n), TN_F64), *left = tn_rsub_s(i, (double)(n - 1));
    tn_tensor *up = tn_add_s(tn_mul_s(i, step), a), *down = tn_rsub_s(tn_mul_s(left, step), b);
    // Of one number, the first end.
    return tn_cast(n > 1 ? tn_where(tn_lt_s(i, (double)(n / 2)), up, down) : up, dt);
}

// ---- by indices --------------------------------------------------------------------------------

// The checks of ops that take an index tensor.
static tn_ctx *index_args(const char *op, tn_tensor *x, const char *x_name, tn_tensor *index)
{
    const char *names[] = { x_name, "index" };
    tn_ctx     *cx      = tni_args(op, 2, (tn_tensor *const[]){ x, index }, names);
    if (!cx) return NULL;
    tn_dtype dt = tn_dtype_of(index);
    if (dt == TN_I64 || dt == TN_I32) return cx;
    return tni_fail(cx, TN_EDTYPE, "%s: index is %s, not i64 or i32", op, tn_dtype_name(dt));
}

// x and index are broadcast to each other, except along the axis.
tn_tensor *tn_take_along_axis(tn_tensor *x, tn_tensor *index, int axis)
{
    const char *op = "take_along_axis";
    tn_ctx     *cx = index_args(op, x, "x", index);
    int         i  = cx ? tni_axis(cx, op, tn_rank(x), axis) : -1;
    if (i < 0) return NULL;
    tni_view v = tni_layout(x), w = tni_layout(index);
    bool     fit = v.rank == w.rank;
    for (int k = 0; fit && k < v.rank; k++) {
        if (k == i) continue;
        fit       = v.size[k] == w.size[k] || v.size[k] == 1 || w.size[k] == 1;
        v.size[k] = w.size[k] = v.size[k] == 1 ? w.size[k] : v.size[k];
    }
    if (!fit)
        return tni_fail(cx, TN_ESHAPE, "%s: x %s and index %s do not fit along axis %d", op,
                        tni_shape_of(x).s, tni_shape_of(index).s, axis);
    return tn_gather(tn_expand(x, v.rank, v.size), i, tn_expand(index, w.rank, w.size));
}

// Gathers along one axis with an index that is the same for all other axes: the index is expanded
// by strides.
static tn_tensor *select_rows(tn_tensor *x, int axis, tn_tensor *index)
{
    tni_view s = tni_layout(x);
    int64_t  flat[TN_MAX_RANK], n = tn_count(index);
    for (int k = 0; k < s.rank; k++) flat[k] = k == axis ? n : 1;
    s.size[axis] = n;
    return tn_gather(x, axis, tn_expand(tn_reshape(index, s.rank, flat), s.rank, s.size));
}

// The index is 1-d, or a single number.
tn_tensor *tn_index_select(tn_tensor *x, int axis, tn_tensor *index)
{
    if (x && x->complex) {
        int k = tni_arg1_any("index_select", x, "x")
                    ? tni_axis(x->cx, "index_select", tni_rank(x), axis)
                    : -1;
        return k < 0 ? NULL : tni_as_complex(tn_index_select(tni_pairs(x), k, index));
    }
    tn_ctx *cx = index_args("index_select", x, "x", index);
    int     i  = cx ? tni_axis(cx, "index_select", tn_rank(x), axis) : -1;
    if (i < 0) return NULL;
    if (tn_rank(index) > 1)
        return tni_fail(cx, TN_ESHAPE, "index_select: index %s is not 1-d", tni_shape_of(index).s);
    return select_rows(x, i, index);
}

// Rows of a table by index. Its gradient, a scatter_add into zeros, comes from gather's rule.
tn_tensor *tn_embed(tn_tensor *index, tn_tensor *weight)
{
    tn_ctx *cx = index_args("embed", weight, "weight", index);
    if (!cx) return NULL;
    tni_view s = tni_layout(index);
    if (tn_rank(weight) != 2 || s.rank == TN_MAX_RANK)
        return tni_fail(cx, TN_ESHAPE, "embed: weight %s and index %s are not (V, D) and (...)",
                        tni_shape_of(weight).s, tni_shape_of(index).s);
    tn_tensor *rows  = select_rows(weight, 0, index);
    s.size[s.rank++] = tn_size(weight, 1);
    tn_tensor *y     = tn_reshape(rows, s.rank, s.size);
    y                = y ? tni_share(y, "embed") : NULL;
    return tni_traced(y, 2, (tn_tensor *[]){ index, weight }, (tni_kept){ .kind = TNI_KEPT_embed });
}

// By scatter, which refuses an index out of range; a comparison with a range would give zeros
// silently.
tn_tensor *tn_one_hot(tn_tensor *index, int64_t classes)
{
    tn_ctx *cx = index_args("one_hot", index, "index", index);
    if (!cx) return NULL;
    tni_view s = tni_layout(index);
    if (classes < 1)
        return tni_fail(cx, TN_EARG, "one_hot: classes %lld is not positive for index %s",
                        (long long)classes, tni_shape_of(index).s);
    if (s.rank == TN_MAX_RANK)
        return tni_fail(cx, TN_ESHAPE, "one_hot: index %s has no room for an axis of classes",
                        tni_shape_of(index).s);
    s.size[s.rank++] = classes;
    tn_tensor *none  = tn_zeros(cx, TN_I64, s.rank, s.size);
    return tn_scatter(none, -1, tn_unsqueeze(index, -1), tni_number(cx, TN_I64, tni_num_i64(1)));
}

// ---- sorting, drawing --------------------------------------------------------------------------

// By a full sort: simple, and an op that every device has; for a small k a selection would be
// cheaper.
tn_pair tn_topk(tn_tensor *x, int64_t k, int axis, bool largest)
{
    tn_pair none = { NULL, NULL };
    tn_ctx *cx   = tni_arg1("topk", x, "x");
    int     i    = cx ? tni_axis(cx, "topk", tn_rank(x), axis) : -1;
    if (i < 0) return none;
    if (k < 0 || k > tn_size(x, i)) {
        tni_fail(cx, TN_EARG, "topk: k %lld is not in 0 .. %lld, axis %d of x %s", (long long)k,
                 (long long)tn_size(x, i), axis, tni_shape_of(x).s);
        return none;
    }
    tn_tensor *order = tn_argsort(x, i, largest), *first = tn_slice(order, i, 0, k, 1);
    tn_tensor *index = tn_contiguous(first), *y = tn_gather(x, i, index);
    // These are results of public calls made here, not temporaries of one call: they are freed at
    // once.
    tn_drop(first);
    tn_drop(order);
    return y ? (tn_pair){ y, index } : none;
}

// A draw u below the total falls into the first class whose running sum is above it: the number of
// classes whose sum is not. A class of weight 0 is never drawn. The minimum guards against u
// rounding up to the total.
tn_tensor *tn_multinomial(tn_tensor *weights, int64_t n)
{
    tn_ctx *cx = tni_arg1("multinomial", weights, "weights");
    if (!cx) return NULL;
    tni_view s = tni_layout(weights);
    if (!tni_want_float(weights, "multinomial: weights")) return NULL;
    if ((s.rank != 1 && s.rank != 2) || s.size[s.rank - 1] < 1)
        return tni_fail(cx, TN_ESHAPE, "multinomial: weights %s is not (C) or (N, C), C above 0",
                        tni_shape_of(weights).s);
    if (n < 1)
        return tni_fail(cx, TN_EARG, "multinomial: n %lld is not positive for weights %s",
                        (long long)n, tni_shape_of(weights).s);
    int64_t classes     = s.size[s.rank - 1];
    s.size[s.rank - 1]  = n;
    tn_tensor *sums     = tn_cumsum(tn_cast(tn_detach(weights), TN_F32), -1);
    tn_tensor *total    = tn_slice(sums, -1, classes - 1, classes, 1);
    tn_tensor *u        = tn_mul(tni_rand_items(cx, "multinomial", TN_F32, s.rank, s.size), total);
    tn_tensor *not_past = tn_le(tn_unsqueeze(sums, -2), tn_unsqueeze(u, -1));
    return tn_minimum_s(tn_sum(not_past, -1), (double)(classes - 1));
}
