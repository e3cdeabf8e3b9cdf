// Views: other shapes and strides of the same store. Nothing is computed or moved here; a view is a
// handle with an offset, sizes and strides (tni_view), and writes through it write the store.
//
// Each kind of view is a small function that changes a tni_view (a tni_view_fn), and a public
// function that checks the arguments. The small function runs twice: on the layout of x in its
// store, and on a row-major layout of x's shape, from which a gradient learns which elements of x
// were read (tni_origin in tensor.h). The gradient of a view is in grad/unview.c.
#include "ops/ops.h"

#include <string.h>

// The view of x that a step makes, for steps that strides can always express.
static tn_tensor *view_with(tn_tensor *x, tni_view_fn *step, const void *how)
{
    tni_view v = tni_layout(x);
    step(&v, how);
    return tni_wrap_view(x, &v, step, how);
}

// A range of one axis: `count` elements from `start` on, `step` apart.
typedef struct {
    int     axis;
    int64_t start, step, count;
} slice_args;

// An empty range keeps the offset, which could otherwise point past the end of the store; a single
// element keeps its stride, which nothing uses.
static bool slice_axis(tni_view *v, const void *how)
{
    const slice_args *c = how;
    if (c->count > 0) v->offset += c->start * v->stride[c->axis];
    if (c->count > 1) v->stride[c->axis] *= c->step;
    v->size[c->axis] = c->count;
    return true;
}

// Python's rules: negative indices count from the end, and a range is clipped to the axis. With a
// negative step the range runs from start down to just above stop, so the least stop is -1.
// Unsigned arithmetic where the difference of two int64 could overflow.
tn_tensor *tn_slice(tn_tensor *x, int axis, int64_t start, int64_t stop, int64_t step)
{
    tn_ctx *cx = tni_arg1_any("slice", x, "x");
    if (!cx) return NULL;
    tni_view v = tni_layout(x);
    int      i = tni_axis(cx, "slice", tni_rank(x), axis);
    if (i < 0) return NULL;
    if (step == 0) return tni_fail(cx, TN_EARG, "slice: step is 0");
    int64_t n = v.size[i], lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    // Indices count from the end when negative and are clipped to what there is.
    if (stop == TN_TO_END) stop = step > 0 ? n : -1;
    else if (stop < 0) stop = stop < -n ? lo : stop + n;
    if (start < 0) start = start < -n ? lo : start + n;
    start        = start < lo ? lo : start > hi ? hi : start;
    stop         = stop < lo ? lo : stop > hi ? hi : stop;
    int64_t span = step > 0 ? stop - start : start - stop;
    // -INT64_MIN exists only unsigned.
    uint64_t by   = step > 0 ? (uint64_t)step : -(uint64_t)step;
    int64_t  some = span <= 0 ? 0 : (int64_t)((uint64_t)(span - 1) / by) + 1;
    return view_with(x, slice_axis, &(slice_args){ i, start, step, some });
}

// Removes axis i, of which one place is left.
static void remove_axis(tni_view *v, int i)
{
    for (int k = i; k + 1 < v->rank; k++) {
        v->size[k]   = v->size[k + 1];
        v->stride[k] = v->stride[k + 1];
    }
    v->rank--;
}

// One place of an axis, which is removed.
static bool select_place(tni_view *v, const void *how)
{
    const slice_args *c = how;
    v->offset += c->start * v->stride[c->axis];
    remove_axis(v, c->axis);
    return true;
}

// Unlike a slice's, an index out of range is an error.
tn_tensor *tn_select(tn_tensor *x, int axis, int64_t index)
{
    tn_ctx *cx = tni_arg1_any("select", x, "x");
    if (!cx) return NULL;
    tni_view v = tni_layout(x);
    int      i = tni_axis(cx, "select", tni_rank(x), axis);
    if (i < 0) return NULL;
    if (index < -v.size[i] || index >= v.size[i])
        return tni_fail(cx, TN_EARG, "select: index %lld is out of range for axis %d of x %s",
                        (long long)index, axis, tni_shape_of(x).s);
    return view_with(x, select_place,
                     &(slice_args){ i, index < 0 ? index + v.size[i] : index, 1, 1 });
}

// Selects the only place of the axis. PyTorch ignores an axis of another size; here it is an error,
// since a later op would fail with a less clear one.
tn_tensor *tn_squeeze(tn_tensor *x, int axis)
{
    tn_ctx *cx = tni_arg1_any("squeeze", x, "x");
    if (!cx) return NULL;
    tni_view v = tni_layout(x);
    int      i = tni_axis(cx, "squeeze", tni_rank(x), axis);
    if (i < 0) return NULL;
    if (v.size[i] != 1)
        return tni_fail(cx, TN_ESHAPE, "squeeze: axis %d of x %s is not of size 1", axis,
                        tni_shape_of(x).s);
    return view_with(x, select_place, &(slice_args){ i, 0, 1, 1 });
}

// From the last axis on, so that the indices of those to come stay valid.
static bool drop_unit_axes(tni_view *v, const void *how)
{
    (void)how;
    for (int i = v->rank - 1; i >= 0; i--)
        if (v->size[i] == 1) remove_axis(v, i);
    return true;
}

tn_tensor *tn_squeeze_all(tn_tensor *x)
{
    return tni_arg1_any("squeeze_all", x, "x") ? view_with(x, drop_unit_axes, NULL) : NULL;
}

// The new axis has the stride that a row-major tensor would have there: it does not matter to any
// element, but lets reshapes merge it.
static bool insert_unit_axis(tni_view *v, const void *how)
{
    int i = *(const int *)how;
    for (int k = v->rank; k > i; k--) {
        v->size[k]   = v->size[k - 1];
        v->stride[k] = v->stride[k - 1];
    }
    v->stride[i] = i < v->rank ? v->size[i] * v->stride[i] : 1;
    v->size[i]   = 1;
    v->rank++;
    return true;
}

// The axis may be one past the last.
tn_tensor *tn_unsqueeze(tn_tensor *x, int axis)
{
    tn_ctx *cx = tni_arg1_any("unsqueeze", x, "x");
    if (!cx) return NULL;
    tni_view v = tni_layout(x);
    if (v.rank == TN_MAX_RANK)
        return tni_fail(cx, TN_ESHAPE, "unsqueeze: x %s has rank %d, the maximum",
                        tni_shape_of(x).s, TN_MAX_RANK);
    int i = tni_axis(cx, "unsqueeze", tni_rank(x) + 1, axis);
    return i < 0 ? NULL : view_with(x, insert_unit_axis, &i);
}

static void swap_sizes(int64_t *a, int64_t *b)
{
    int64_t t = *a;
    *a        = *b;
    *b        = t;
}

// Swaps sizes and strides of two axes.
static bool transpose_axes(tni_view *v, const void *how)
{
    const int *axis = how;
    swap_sizes(&v->size[axis[0]], &v->size[axis[1]]);
    swap_sizes(&v->stride[axis[0]], &v->stride[axis[1]]);
    return true;
}

// Only strides change; a product reads the transposed matrix in place.
tn_tensor *tn_transpose(tn_tensor *x, int axis1, int axis2)
{
    tn_ctx *cx = tni_arg1_any("transpose", x, "x");
    if (!cx) return NULL;
    int i = tni_axis(cx, "transpose", tni_rank(x), axis1);
    int k = i < 0 ? -1 : tni_axis(cx, "transpose", tni_rank(x), axis2);
    return k < 0 ? NULL : view_with(x, transpose_axes, (int[]){ i, k });
}

// Axis axes[i] of x becomes axis i; each must be given once.
tn_tensor *tn_permute(tn_tensor *x, int n, const int *axes)
{
    tn_ctx *cx = tni_arg1_any("permute", x, "x");
    if (!cx) return NULL;
    int      order[TN_MAX_RANK];
    uint32_t seen = 0;
    if (n != tni_rank(x) || (n && !axes))
        return tni_fail(cx, TN_EARG, "permute: %d axes given for x %s", n, tni_shape_of(x).s);
    for (int i = 0; i < n; i++) {
        int a = tni_axis(cx, "permute", n, axes[i]);
        if (a < 0) return NULL;
        // A repeated axis would leave another one out.
        if (seen & 1u << a)
            return tni_fail(cx, TN_EARG, "permute: axis %d is given twice for x %s", axes[i],
                            tni_shape_of(x).s);
        seen |= 1u << a;
        order[i] = a;
    }
    if (x->complex) order[n] = n;
    return view_with(x, tni_change_view, &(tni_view_change){ .order = order });
}

// A size of -1 keeps that of x. Expanded axes have stride 0, so the view is read-only: writes are
// refused, since one place would be written several times.
tn_tensor *tn_expand(tn_tensor *x, int rank, const int64_t *size)
{
    tn_ctx *cx = tni_arg1_any("expand", x, "x");
    if (!cx) return NULL;
    tni_view v = tni_layout(x);
    int64_t  want[TN_MAX_RANK];
    if (!tni_rank_ok_of(cx, "expand", x->complex, rank, size)) return NULL;
    for (int i = 0; i < rank; i++) {
        // Shapes are aligned at their last axes.
        int own = i - (rank - tni_rank(x));
        want[i] = size[i] == -1 && own >= 0 ? v.size[own] : size[i];
    }
    if (x->complex) want[rank++] = 2;
    if (!tni_shape_ok(cx, "expand", rank, want)) return NULL;
    if (!tni_view_expand(&v, rank, want))
        return tni_fail(cx, TN_ESHAPE, "expand: x %s does not broadcast to %s", tni_shape_of(x).s,
                        tni_shape_text(rank - x->complex, want).s);
    return tni_wrap_view(x, &v, tni_change_view, &(tni_view_change){ .rank = rank, .size = want });
}

// Begins at the last element and steps backward.
static bool flip_axis(tni_view *v, const void *how)
{
    int i = *(const int *)how;
    if (v->size[i] > 0) v->offset += (v->size[i] - 1) * v->stride[i];
    v->stride[i] = -v->stride[i];
    return true;
}

// A negative stride, which kernels read like any other.
tn_tensor *tn_flip(tn_tensor *x, int axis)
{
    tn_ctx *cx = tni_arg1_any("flip", x, "x");
    if (!cx) return NULL;
    int i = tni_axis(cx, "flip", tni_rank(x), axis);
    return i < 0 ? NULL : view_with(x, flip_axis, &i);
}

// A diagonal: its two axes, and how many rows or columns come before it (one of the two is 0).
typedef struct {
    int     row, col;
    int64_t skip_rows, skip_cols;
} diagonal;

// One step along both axes at once is the sum of their strides. The diagonal becomes the last axis.
static bool take_diagonal(tni_view *v, const void *how)
{
    const diagonal *d = how;
    int             i = d->row, k = d->col;
    int64_t         rows = v->size[i] - d->skip_rows, cols = v->size[k] - d->skip_cols;
    int64_t         n = rows < cols ? rows : cols, along = v->stride[i] + v->stride[k];
    if (n > 0) v->offset += d->skip_rows * v->stride[i] + d->skip_cols * v->stride[k];
    remove_axis(v, i > k ? i : k);
    remove_axis(v, i > k ? k : i);
    v->size[v->rank]     = n;
    v->stride[v->rank++] = along;
    return true;
}

// A positive offset skips columns, a negative one rows; at most all of them, which leaves it empty.
tn_tensor *tn_diagonal(tn_tensor *x, int64_t offset, int axis1, int axis2)
{
    tn_ctx *cx = tni_arg1("diagonal", x, "x");
    if (!cx) return NULL;
    tni_view v = tni_layout(x);
    int      i = tni_axis(cx, "diagonal", v.rank, axis1);
    int      k = i < 0 ? -1 : tni_axis(cx, "diagonal", v.rank, axis2);
    if (k < 0) return NULL;
    if (i == k) return tni_fail(cx, TN_EARG, "diagonal: axes %d and %d are one", axis1, axis2);
    int64_t rows = v.size[i], cols = v.size[k];
    int64_t skip_rows = offset < 0 ? (offset < -rows ? rows : -offset) : 0;
    int64_t skip_cols = offset > 0 ? (offset > cols ? cols : offset) : 0;
    return view_with(x, take_diagonal, &(diagonal){ i, k, skip_rows, skip_cols });
}

// Windows of n elements along an axis, `dilation` apart; each window begins `step` after the last.
typedef struct {
    int     axis;
    int64_t n, step, dilation;
} windows;

// Axis i becomes the windows' positions, and a new last axis the elements of each. Windows may
// overlap: two axes then step over the same memory.
static bool window_axis(tni_view *v, const void *how)
{
    const windows *w     = how;
    int            i     = w->axis;
    v->size[v->rank]     = w->n;
    v->stride[v->rank++] = v->stride[i] * w->dilation;
    v->size[i]           = (v->size[i] - (w->n - 1) * w->dilation - 1) / w->step + 1;
    v->stride[i] *= v->size[i] > 1 ? w->step : 1;
    return true;
}

// The last condition is (n - 1) dilation < size without overflow. The result can have far more
// elements than x, so its shape is checked too.
tn_tensor *tn_window_dilated(tn_tensor *x, int axis, int64_t n, int64_t step, int64_t dilation)
{
    tn_ctx *cx = tni_arg1("window", x, "x");
    if (!cx) return NULL;
    tni_view v = tni_layout(x);
    int      i = tni_axis(cx, "window", v.rank, axis);
    if (i < 0) return NULL;
    if (v.rank == TN_MAX_RANK)
        return tni_fail(cx, TN_ESHAPE, "window: x %s has rank %d, the maximum", tni_shape_of(x).s,
                        TN_MAX_RANK);
    if (n < 1 || step < 1 || dilation < 1 || n > v.size[i] ||
        (n > 1 && dilation > (v.size[i] - 1) / (n - 1)))
        return tni_fail(
            cx, TN_EARG,
            "window: %lld elements, step %lld, dilation %lld do not fit axis %d of x %s",
            (long long)n, (long long)step, (long long)dilation, axis, tni_shape_of(x).s);
    windows how = { i, n, step, dilation };
    window_axis(&v, &how);
    if (!tni_shape_ok(cx, "window", v.rank, v.size)) return NULL;
    return tni_wrap_view(x, &v, window_axis, &how);
}

// Windows of neighbouring elements.
tn_tensor *tn_window(tn_tensor *x, int axis, int64_t n, int64_t step)
{
    return tn_window_dilated(x, axis, n, step, 1);
}

// A handle on the same store, in which gradients stop. Writes through it still reach the store. A
// whole store needs no view of its own.
tn_tensor *tn_detach(tn_tensor *x)
{
    if (!tni_arg1_any("detach", x, "x")) return NULL;
    tni_view   v = tni_layout(x);
    tn_tensor *y = tni_wrap_view(x, &v, NULL, NULL);  // no gradient passes
    if (!y) return NULL;
    // Whatever wrap_view copied of x's gradient is dropped.
    y->detached = true;
    if (y->leaf) tni_leaf_unref(y->cx, y->leaf);
    y->leaf = NULL;
    if (!x->view) {
        tni_slab_give(&y->cx->views, y->view);
        y->view = NULL;
    }
    return y;
}

// Fills in a size of -1 and checks that the counts agree. With a count of 0 a size of -1 is
// ambiguous, and an error. The pairs of a complex x keep their axis.
static bool infer_shape(tn_tensor *x, const char *op, int rank, const int64_t *size, int64_t *out)
{
    tn_ctx *cx   = x->cx;
    int     open = -1;
    int64_t have = tni_count(x), known = 1;
    if (!tni_rank_ok_of(cx, op, x->complex, rank, size)) return false;
    for (int i = 0; i < rank; i++) {
        out[i] = size[i];
        if (size[i] != -1) continue;
        if (open >= 0) {
            tni_fail(cx, TN_ESHAPE, "%s: shape %s has two sizes of -1", op,
                     tni_shape_text(rank, size).s);
            return false;
        }
        open = i;
        // A placeholder for the product of the known sizes.
        out[i] = 1;
    }
    if (!tni_shape_ok(cx, op, rank, out)) return false;
    known = tni_shape_count(rank, out);
    if (open >= 0 && known > 0) out[open] = have / known;
    if (x->complex) out[rank] = 2;
    if (tni_shape_count(rank, out) == have && (open < 0 || known > 0)) return true;
    tni_fail(cx, TN_ESHAPE, "%s: x %s has %lld elements and does not take shape %s", op,
             tni_shape_of(x).s, (long long)have, tni_shape_text(rank, size).s);
    return false;
}

// Never copies: an error if strides cannot express the shape, as in PyTorch.
tn_tensor *tn_view(tn_tensor *x, int rank, const int64_t *size)
{
    tn_ctx *cx = tni_arg1_any("view", x, "x");
    if (!cx) return NULL;
    int64_t  want[TN_MAX_RANK];
    tni_view v = tni_layout(x), y;
    if (!infer_shape(x, "view", rank, size, want)) return NULL;
    rank += x->complex;
    if (!tni_view_reshape(&v, rank, want, &y))
        return tni_fail(cx, TN_ESHAPE,
                        "view: the strides of x %s cannot express shape %s; see tn_reshape",
                        tni_shape_of(x).s, tni_shape_text(rank - x->complex, want).s);
    return tni_wrap_view(x, &y, tni_change_view, &(tni_view_change){ .to_rank = rank, .to = want });
}

// A view if strides can express the shape, else a copy.
tn_tensor *tn_reshape(tn_tensor *x, int rank, const int64_t *size)
{
    tn_ctx *cx = tni_arg1_any("reshape", x, "x");
    if (!cx) return NULL;
    int64_t  want[TN_MAX_RANK];
    tni_view v = tni_layout(x), y;
    if (!infer_shape(x, "reshape", rank, size, want)) return NULL;
    rank += x->complex;
    if (tni_view_reshape(&v, rank, want, &y))
        return tni_wrap_view(x, &y, tni_change_view,
                             &(tni_view_change){ .to_rank = rank, .to = want });
    tni_node *n = tni_resolve(x, "reshape");
    // A copy has its elements in the order of x: the new shape is only another reading of it, so
    // the copy is recorded in x's shape and the store shows it in the other.
    tni_node *c = n ? tni_node_new(cx, TNI_copy, (tn_dtype)n->dtype, n->rank, n->size, 1, &n)
                    : NULL;
    if (!c) return NULL;
    v               = tni_view_whole(rank, want);
    tni_node *shown = tni_node_view(cx, c, &v);
    tni_node_unref(cx, c);
    tn_tensor *t = tni_wrap(cx, shown);
    if (t) t->complex = x->complex;
    return t;
}
