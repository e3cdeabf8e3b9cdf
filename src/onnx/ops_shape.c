// Operators that move elements or say where they are: shapes, views, joins, pads, indices.
//
// In files of old opsets what are inputs now are attributes: sizes of Reshape until 5, ranges of
// Slice until 10, pads until 11, axes of Squeeze and Unsqueeze and sizes of Split until 13. Either
// way they are numbers of the host.
#include "onnx/onnx_ops.h"

#include <math.h>

// v within lo .. hi.
static int64_t clamp_to(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

// ---- shapes, on the host -----------------------------------------------------------------------

// Shape(x; start, end): known on the host without x's value.
bool tni_onnx_shape(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    if (!x) return false;
    int     rank = tn_rank(x);
    int64_t size[TN_MAX_RANK + 1], first = tni_onnx_attr_int(c, "start", 0),
                                   last = tni_onnx_attr_int(c, "end", rank);
    first                               = clamp_to(first < 0 ? first + rank : first, 0, rank);
    last                                = clamp_to(last < 0 ? last + rank : last, first, rank);
    for (int i = 0; i < rank; i++) size[i] = tn_size(x, i);
    return tni_onnx_out(c, 0, tn_from(c->r->host, TN_I64, TN_SHAPE(last - first), size + first));
}

// Size(x): the number of elements.
bool tni_onnx_size(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    n = x ? tn_count(x) : 0;
    return tni_onnx_out(c, 0, x ? tn_from(c->r->host, TN_I64, TN_0D, &n) : NULL);
}

// The value of a Constant: of few numbers on the host.
// Besides a tensor it may be a number or a list of numbers, from opset 12 on. Strings are refused.
// Exporters write a constant for each number of shape arithmetic, hundreds in a detector.
bool tni_onnx_constant(tni_onnx_call *c)
{
    tni_wire a;
    int64_t  v[TNI_ONNX_SMALL], one = tni_onnx_attr_int(c, "value_int", 0);
    double   f[TNI_ONNX_SMALL];
    float    real = (float)tni_onnx_attr_real(c, "value_float", 0);
    int      n;
    if (tni_onnx_attribute(c->r->m, c->n, "value", &a)) {
        tni_wire   tensor = tni_onnx_bytes(a, TNI_ATTR_T);
        tn_tensor *t      = tni_onnx_tensor(c->r->m, c->r->host, tensor);
        if (t && tn_count(t) > TNI_ONNX_SMALL) t = tn_copy_to(c->r->cx, t);
        return tni_onnx_out(c, 0, t);
    }
    if (tni_onnx_attribute(c->r->m, c->n, "sparse_value", &a))
        return tni_onnx_out(c, 0,
                            tni_onnx_sparse(c->r->m, c->r->cx, tni_onnx_bytes(a, TNI_ATTR_SPARSE)));
    if (tni_onnx_has_attr(c, "value_int"))
        return tni_onnx_out(c, 0, tn_from(c->r->host, TN_I64, TN_0D, &one));
    if (tni_onnx_has_attr(c, "value_float"))
        return tni_onnx_out(c, 0, tn_from(c->r->host, TN_F32, TN_0D, &real));
    if (!tni_onnx_attr_ints(c, "value_ints", TNI_ONNX_SMALL, v, &n)) return false;
    if (n >= 0) return tni_onnx_out(c, 0, tn_from(c->r->host, TN_I64, TN_SHAPE(n), v));
    if (!tni_onnx_attr_reals(c, "value_floats", TNI_ONNX_SMALL, f, &n)) return false;
    if (n >= 0)
        return tni_onnx_out(c, 0, tn_cast(tn_from(c->r->host, TN_F64, TN_SHAPE(n), f), TN_F32));
    return tni_onnx_refuse(c, "a constant of this kind is not supported");
}

// Reads input i as a shape.
static bool shape_input(tni_onnx_call *c, int i, int64_t *size, int *rank)
{
    if (!tni_onnx_ints(c, i, TN_MAX_RANK, size, rank)) return false;
    return *rank >= 0 || tni_onnx_refuse(c, "input %d is missing", i);
}

// ConstantOfShape(shape; value): on the host if it is small, as a shape that is computed further
// is.
bool tni_onnx_constant_of_shape(tni_onnx_call *c)
{
    int64_t  size[TN_MAX_RANK];
    int      rank;
    tni_wire a;
    if (!shape_input(c, 0, size, &rank) || !tni_shape_ok(c->r->cx, "ConstantOfShape", rank, size))
        return false;
    bool       small = tni_shape_count(rank, size) <= TNI_ONNX_SMALL;
    tn_ctx    *cx    = small ? c->r->host : c->r->cx;
    tn_tensor *v     = tni_onnx_attribute(c->r->m, c->n, "value", &a)
                           ? tni_onnx_tensor(c->r->m, cx, tni_onnx_bytes(a, TNI_ATTR_T))
                           : tn_zeros(cx, TN_F32, TN_SHAPE(1));
    return tni_onnx_out(c, 0, tn_clone(tn_expand(v ? tn_reshape(v, 0, NULL) : NULL, rank, size)));
}

// start, start + delta, ... before limit, whose count is known on the host.
// Its count is that of NumPy: none if the limit lies in the other direction.
bool tni_onnx_range(tni_onnx_call *c)
{
    tn_tensor *start = tni_onnx_in(c, 0);
    double     v[3];
    int64_t    k[3];
    if (!start) return false;
    tn_dtype dt = tn_dtype_of(start);
    for (int i = 0, n; i < 3; i++)
        if (!tni_onnx_reals(c, i, 1, &v[i], &n) || !tni_onnx_ints(c, i, 1, &k[i], &n) || n != 1)
            return false;
    if (tni_is_float(dt)) return tni_onnx_out(c, 0, tn_arange(c->cx, dt, v[0], v[1], v[2]));
    return tni_onnx_out(c, 0, tn_arange_i64(c->cx, dt, k[0], k[1], k[2]));
}

// ---- views -------------------------------------------------------------------------------------

// Reshape(x, shape; allowzero): 0 keeps the size at its place, -1 is what is left.
bool tni_onnx_reshape(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    size[TN_MAX_RANK];
    int        rank;
    bool       zero = tni_onnx_attr_int(c, "allowzero", 0) != 0;
    if (!x) return false;
    if (c->opset < 5 ? !tni_onnx_attr_ints(c, "shape", TN_MAX_RANK, size, &rank)
                     : !shape_input(c, 1, size, &rank))
        return false;
    for (int i = 0; i < rank; i++) {
        if (size[i] || zero) continue;
        if (i >= tn_rank(x))
            return tni_onnx_refuse(c, "size 0 at axis %d takes a size that x %s does not have", i,
                                   tni_shape_of(x).s);
        size[i] = tn_size(x, i);
    }
    return tni_onnx_out(c, 0, tn_reshape(x, rank < 0 ? 0 : rank, size));
}

// Flatten(x; axis): a matrix of the axes before that one and those from it on.
bool tni_onnx_flatten(tni_onnx_call *c)
{
    tn_tensor *x    = tni_onnx_in(c, 0);
    int        axis = (int)tni_onnx_attr_int(c, "axis", 1);
    int64_t    n    = 1;
    if (!x) return false;
    if (axis < 0) axis += tn_rank(x);
    if (axis < 0 || axis > tn_rank(x))
        return tni_onnx_refuse(c, "axis %d is not one of %d axes", axis, tn_rank(x));
    for (int i = 0; i < axis; i++) n *= tn_size(x, i);
    return tni_onnx_out(c, 0, tn_reshape(x, TN_SHAPE(n, n ? tn_count(x) / n : 0)));
}

// Axes of Squeeze and Unsqueeze: an input from opset 13 on. *n is -1 where there are none.
static bool axes_of(tni_onnx_call *c, int64_t *axis, int *n)
{
    return c->opset >= 13 ? tni_onnx_ints(c, 1, TN_MAX_RANK, axis, n)
                          : tni_onnx_attr_ints(c, "axes", TN_MAX_RANK, axis, n);
}

// Squeeze(x, axes): without axes all of size 1.
bool tni_onnx_squeeze(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    axis[TN_MAX_RANK];
    int        n;
    bool       drop[TN_MAX_RANK] = { false };
    if (!x || !axes_of(c, axis, &n)) return false;
    if (n < 0) return tni_onnx_out(c, 0, tn_squeeze_all(x));
    int rank = tn_rank(x);
    for (int i = 0; i < n; i++) {
        int64_t a = axis[i] < 0 ? axis[i] + rank : axis[i];
        if (a < 0 || a >= rank || tn_size(x, (int)a) != 1)
            return tni_onnx_refuse(c, "axis %lld of x %s has not size 1", (long long)axis[i],
                                   tni_shape_of(x).s);
        drop[a] = true;
    }
    for (int i = rank - 1; x && i >= 0; i--)
        if (drop[i]) x = tn_squeeze(x, i);
    return tni_onnx_out(c, 0, x);
}

// Unsqueeze(x, axes): numbers of axes are those of the result.
bool tni_onnx_unsqueeze(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    axis[TN_MAX_RANK];
    int        n;
    bool       add[TN_MAX_RANK] = { false };
    if (!x || !axes_of(c, axis, &n)) return false;
    int rank = tn_rank(x) + n;
    if (n < 0 || rank > TN_MAX_RANK)
        return tni_onnx_refuse(c, "the result has more than %d axes", TN_MAX_RANK);
    for (int i = 0; i < n; i++) {
        int64_t a = axis[i] < 0 ? axis[i] + rank : axis[i];
        if (a < 0 || a >= rank || add[a])
            return tni_onnx_refuse(c, "axis %lld is out of range or given twice",
                                   (long long)axis[i]);
        add[a] = true;
    }
    for (int i = 0; x && i < rank; i++)
        if (add[i]) x = tn_unsqueeze(x, i);
    return tni_onnx_out(c, 0, x);
}

// Transpose(x; perm): without perm the axes are reversed.
bool tni_onnx_transpose(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    perm[TN_MAX_RANK];
    int        n, order[TN_MAX_RANK];
    if (!x || !tni_onnx_attr_ints(c, "perm", TN_MAX_RANK, perm, &n)) return false;
    int rank = tn_rank(x);
    if (n >= 0 && n != rank)
        return tni_onnx_refuse(c, "perm has %d axes, x %s", n, tni_shape_of(x).s);
    for (int i = 0; i < rank; i++) order[i] = n < 0 ? rank - 1 - i : (int)perm[i];
    return tni_onnx_out(c, 0, tn_permute(x, rank, order));
}

// Both x and the result may have the larger size along an axis.
// A size of 1 in the shape keeps that of x: (3, 1) with (2, 1, 4) is (2, 3, 4).
bool tni_onnx_expand(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    size[TN_MAX_RANK], to[TN_MAX_RANK];
    int        rank;
    if (!x || !shape_input(c, 1, size, &rank)) return false;
    int n = rank > tn_rank(x) ? rank : tn_rank(x);
    for (int i = 0; i < n; i++) {
        int64_t a = i + tn_rank(x) >= n ? tn_size(x, i + tn_rank(x) - n) : 1,
                b = i + rank >= n ? size[i + rank - n] : 1;
        to[i]     = a == 1 ? b : a;
        if (b != 1 && a != 1 && a != b)
            return tni_onnx_refuse(c, "x %s does not broadcast to the shape given",
                                   tni_shape_of(x).s);
    }
    return tni_onnx_out(c, 0, tn_expand(x, n, to));
}

// Tile(x, repeats).
bool tni_onnx_tile(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    times[TN_MAX_RANK];
    int        n;
    if (!x || !shape_input(c, 1, times, &n)) return false;
    if (n != tn_rank(x))
        return tni_onnx_refuse(c, "repeats has %d numbers, x is %s", n, tni_shape_of(x).s);
    return tni_onnx_out(c, 0, tn_repeat(x, n, times));
}

// A slice along one axis. Ends far out are cut to the axis; stepping down, the end before the first
// element is -1, which tn_slice spells TN_TO_END.
static tn_tensor *slice(tn_tensor *x, int axis, int64_t first, int64_t last, int64_t step)
{
    int64_t n = tn_size(x, axis);
    if (first < 0) first += first < -n ? 0 : n;
    if (last < 0) last += last < -n ? 0 : n;
    if (step > 0) return tn_slice(x, axis, clamp_to(first, 0, n), clamp_to(last, 0, n), step);
    first = clamp_to(first, -1, n - 1);
    last  = clamp_to(last, -1, n - 1);
    if (first <= last || first < 0) return tn_slice(x, axis, 0, 0, 1);
    return tn_slice(x, axis, first, last < 0 ? TN_TO_END : last, step);
}

// Slice(x, starts, ends, axes, steps): one view for each axis.
// Starts and ends count from the end if negative, and may lie far outside: exporters write
// INT64_MAX for "to the end", and INT64_MIN for "past the first" where the step is negative.
// Without axes the first ones are meant.
bool tni_onnx_slice(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    first[TN_MAX_RANK], last[TN_MAX_RANK], axis[TN_MAX_RANK], step[TN_MAX_RANK];
    int        n, m, axes, steps = -1;
    if (!x) return false;
    bool ok = c->opset < 10 ? tni_onnx_attr_ints(c, "starts", TN_MAX_RANK, first, &n) &&
                                  tni_onnx_attr_ints(c, "ends", TN_MAX_RANK, last, &m) &&
                                  tni_onnx_attr_ints(c, "axes", TN_MAX_RANK, axis, &axes)
                            : tni_onnx_ints(c, 1, TN_MAX_RANK, first, &n) &&
                                  tni_onnx_ints(c, 2, TN_MAX_RANK, last, &m) &&
                                  tni_onnx_ints(c, 3, TN_MAX_RANK, axis, &axes) &&
                                  tni_onnx_ints(c, 4, TN_MAX_RANK, step, &steps);
    if (!ok) return false;
    if (n < 0 || n != m || (axes >= 0 && axes != n) || (steps >= 0 && steps != n) || n > tn_rank(x))
        return tni_onnx_refuse(c, "starts, ends, axes and steps do not fit each other or x %s",
                               tni_shape_of(x).s);
    for (int i = 0; x && i < n; i++) {
        int64_t a = axes < 0      ? i
                    : axis[i] < 0 ? axis[i] + tn_rank(x)
                                  : axis[i],
                s = steps < 0 ? 1 : step[i];
        if (a < 0 || a >= tn_rank(x) || !s)
            return tni_onnx_refuse(c, "axis %lld is out of range, or a step is 0", (long long)a);
        x = slice(x, (int)a, first[i], last[i], s);
    }
    return tni_onnx_out(c, 0, x);
}

// ---- joins and parts ---------------------------------------------------------------------------

// Concat(x...; axis).
// The list may be long, as that of a cache of keys for each layer is: it is not on the stack.
bool tni_onnx_concat(tni_onnx_call *c)
{
    tn_tensor **x  = tni_alloc(&c->r->cx->heap, (size_t)c->nin * sizeof *x);
    int         n  = 0;
    bool        ok = x != NULL;
    for (int i = 0; ok && i < c->nin; i++) ok = (x[n++] = tni_onnx_in(c, i)) != NULL;
    ok = ok && tni_onnx_out(c, 0, tn_concat(n, x, (int)tni_onnx_attr_int(c, "axis", 1)));
    tni_free(&c->r->cx->heap, x);
    return ok;
}

// Parts of given sizes, or as many as there are outputs, of which the last may be smaller.
// Seven places in four parts are 2, 2, 2 and 1. Before opset 18 the parts must be equal, which is
// the same rule.
bool tni_onnx_split(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    part[TNI_ONNX_SMALL], at = 0;
    int        axis = (int)tni_onnx_attr_int(c, "axis", 0), n;
    if (!x) return false;
    if (c->opset >= 13 ? !tni_onnx_ints(c, 1, TNI_ONNX_SMALL, part, &n)
                       : !tni_onnx_attr_ints(c, "split", TNI_ONNX_SMALL, part, &n))
        return false;
    if (axis < -tn_rank(x) || axis >= tn_rank(x))
        return tni_onnx_refuse(c, "axis %d is out of range of x %s", axis, tni_shape_of(x).s);
    int64_t size = tn_size(x, axis), each = c->nout ? (size + c->nout - 1) / c->nout : 0;
    if (n >= 0 && n < c->nout)
        return tni_onnx_refuse(c, "it has %d outputs and %d sizes", c->nout, n);
    for (int i = 0; i < c->nout; i++) {
        int64_t m = n >= 0 ? part[i] : clamp_to(size - at, 0, each);
        if (m < 0 || at + m > size)
            return tni_onnx_refuse(c, "its sizes are more than axis %d of x %s", axis,
                                   tni_shape_of(x).s);
        if (!tni_onnx_out(c, i, tn_slice(x, axis, at, at + m, 1))) return false;
        at += m;
    }
    return true;
}

// ---- pads --------------------------------------------------------------------------------------

// Places of an axis again and again, from `before` before its first one: any number of them.
static tn_tensor *wrapped(tni_onnx_call *c, tn_tensor *x, int axis, int64_t before, int64_t after)
{
    int64_t n = tn_size(x, axis), m = n + before + after;
    if (n < 1 || (!before && !after)) return x;
    tn_tensor *at = tn_arange_i64(c->cx, TN_I64, 0, m, 1);
    // n more than enough keeps places positive.
    at = tn_add_i64(at, (before / n + 1) * n - before);
    return tn_index_select(x, axis, tn_remainder(at, tn_full_like_i64(at, n)));
}

// Pads are all begins, then all ends; an input from opset 11 on. Modes that repeat elements first
// cut what negative pads remove.
// The numbers are all begins and then all ends, not pairs. Reflecting leaves the edge out, edge
// repeats it, wrap takes what is at the other end. With axes, from opset 18 on, only those are
// padded.
bool tni_onnx_pad(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    pads[2 * TN_MAX_RANK], axis[TN_MAX_RANK], before[TN_MAX_RANK] = { 0 },
                                                      after[TN_MAX_RANK] = { 0 };
    int     n, axes;
    double  v = 0;
    int64_t k = 0;
    if (!x) return false;
    if (c->opset < 11) {
        if (!tni_onnx_attr_ints(c, c->opset < 2 ? "paddings" : "pads", 2 * TN_MAX_RANK, pads, &n))
            return false;
        axes = -1;
        v    = tni_onnx_attr_real(c, "value", 0);
    } else {
        int one;
        if (!tni_onnx_ints(c, 1, 2 * TN_MAX_RANK, pads, &n) ||
            !tni_onnx_ints(c, 3, TN_MAX_RANK, axis, &axes))
            return false;
        if (tni_onnx_has(c, 2) &&
            (!tni_onnx_reals(c, 2, 1, &v, &one) || !tni_onnx_ints(c, 2, 1, &k, &one)))
            return false;
    }
    int rank = tn_rank(x), m = axes < 0 ? rank : axes;
    if (n != 2 * m) return tni_onnx_refuse(c, "pads has %d numbers for %d axes", n, m);
    for (int i = 0; i < m; i++) {
        int64_t a = axes < 0 ? i : axis[i] < 0 ? axis[i] + rank : axis[i];
        if (a < 0 || a >= rank)
            return tni_onnx_refuse(c, "axis %lld is out of range of x %s", (long long)axis[i],
                                   tni_shape_of(x).s);
        before[a] = pads[i];
        after[a]  = pads[m + i];
    }
    tni_wire mode = tni_onnx_attr_text(c, "mode");
    if (!tni_wire_size(mode) || tni_wire_is(mode, "constant"))
        return tni_onnx_out(c, 0,
                            tni_is_float(tn_dtype_of(x)) ? tn_pad(x, before, after, v)
                                                         : tn_pad_i64(x, before, after, k));
    for (int i = 0; x && i < rank; i++) {
        x         = tn_slice(x, i, before[i] < 0 ? -before[i] : 0,
                             tn_size(x, i) + (after[i] < 0 ? after[i] : 0), 1);
        before[i] = before[i] < 0 ? 0 : before[i];
        after[i]  = after[i] < 0 ? 0 : after[i];
    }
    if (tni_wire_is(mode, "reflect")) return tni_onnx_out(c, 0, tn_pad_reflect(x, before, after));
    if (tni_wire_is(mode, "edge")) return tni_onnx_out(c, 0, tn_pad_replicate(x, before, after));
    if (tni_wire_is(mode, "wrap")) {
        for (int i = 0; x && i < rank; i++) x = wrapped(c, x, i, before[i], after[i]);
        return tni_onnx_out(c, 0, x);
    }
    return tni_onnx_refuse(c, "mode %s is not known", tni_onnx_quoted(mode).s);
}

// ---- indices -----------------------------------------------------------------------------------

// The parts of x along an axis at indices of any shape, whose axes take the place of that one.
// Negative indices count from the end, and an index out of range is an error of the evaluation.
bool tni_onnx_gather(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *index = tni_onnx_in(c, 1);
    int        axis = (int)tni_onnx_attr_int(c, "axis", 0), rank = 0;
    int64_t    size[2 * TN_MAX_RANK];
    if (!x || !index) return false;
    if (axis < 0) axis += tn_rank(x);
    if (axis < 0 || axis >= tn_rank(x))
        return tni_onnx_refuse(c, "axis %d is out of range of x %s", axis, tni_shape_of(x).s);
    for (int i = 0; i < tn_rank(x); i++) {
        if (i != axis) size[rank++] = tn_size(x, i);
        else
            for (int j = 0; j < tn_rank(index); j++) size[rank++] = tn_size(index, j);
    }
    if (rank > TN_MAX_RANK)
        return tni_onnx_refuse(c, "the result has more than %d axes", TN_MAX_RANK);
    return tni_onnx_out(
        c, 0, tn_reshape(tn_index_select(x, axis, tn_reshape(index, TN_SHAPE(-1))), rank, size));
}

// GatherElements(x, indices; axis).
bool tni_onnx_gather_elements(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0,
                        tn_gather(tni_onnx_in(c, 0), (int)tni_onnx_attr_int(c, "axis", 0),
                                  tni_onnx_in(c, 1)));
}

// ScatterElements(x, indices, updates; axis, reduction); Scatter is its old name.
bool tni_onnx_scatter_elements(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *index = tni_onnx_in(c, 1), *v = tni_onnx_in(c, 2);
    int        axis = (int)tni_onnx_attr_int(c, "axis", 0);
    tni_wire   how  = tni_onnx_attr_text(c, "reduction");
    if (!tni_wire_size(how) || tni_wire_is(how, "none"))
        return tni_onnx_out(c, 0, tn_scatter(x, axis, index, v));
    tn_fold f = tni_wire_is(how, "add")   ? TN_FOLD_SUM
                : tni_wire_is(how, "mul") ? TN_FOLD_PROD
                : tni_wire_is(how, "max") ? TN_FOLD_MAX
                                          : TN_FOLD_MIN;
    return tni_onnx_out(c, 0, tn_scatter_reduce(x, axis, index, v, f, true));
}

// Indices out of range give rows without a one.
// An index of -1 is the last class. Values are (off, on), in the dtype of the result; indices may
// be floats.
bool tni_onnx_one_hot(tni_onnx_call *c)
{
    tn_tensor *index = tni_onnx_in(c, 0), *values = tni_onnx_in(c, 2);
    int64_t    depth;
    int        n, axis = (int)tni_onnx_attr_int(c, "axis", -1);
    if (!index || !values || !tni_onnx_ints(c, 1, 1, &depth, &n)) return false;
    int rank = tn_rank(index) + 1;
    if (axis < 0) axis += rank;
    if (n != 1 || depth < 0 || axis < 0 || axis >= rank || rank > TN_MAX_RANK)
        return tni_onnx_refuse(c, "depth or axis is out of range");
    index           = tn_unsqueeze(tn_cast(index, TN_I64), axis);
    tn_tensor *turn = tn_where(tn_lt_i64(index, 0), tn_add_i64(index, depth), index),
              *at   = tn_arange_i64(c->cx, TN_I64, 0, depth, 1);
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) size[i] = i == axis ? depth : 1;
    tn_tensor *off = tn_select(values, 0, 0), *on = tn_select(values, 0, 1);
    return tni_onnx_out(c, 0, tn_where(tn_eq(turn, tn_reshape(at, rank, size)), on, off));
}

// Trilu(x, k; upper).
bool tni_onnx_trilu(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    k = 0;
    int        n;
    if (!x || (tni_onnx_has(c, 1) && !tni_onnx_ints(c, 1, 1, &k, &n))) return false;
    return tni_onnx_out(c, 0, tni_onnx_attr_int(c, "upper", 1) ? tn_triu(x, k) : tn_tril(x, k));
}

// EyeLike(x; k, dtype): ones on the diagonal k of a matrix of x's shape.
bool tni_onnx_eye_like(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    k = tni_onnx_attr_int(c, "k", 0), type = tni_onnx_attr_int(c, "dtype", 0);
    if (!x) return false;
    tn_dtype dt = tn_dtype_of(x);
    if (type && !tni_onnx_dtype(type, &dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    if (tn_rank(x) != 2) return tni_onnx_refuse(c, "x %s is no matrix", tni_shape_of(x).s);
    int64_t    rows = tn_size(x, 0), cols = tn_size(x, 1);
    tn_tensor *i = tn_reshape(tn_arange_i64(c->cx, TN_I64, 0, rows, 1), TN_SHAPE(rows, 1));
    tn_tensor *j = tn_arange_i64(c->cx, TN_I64, 0, cols, 1);
    return tni_onnx_out(c, 0, tn_cast(tn_eq(tn_add_i64(i, k), j), dt));
}

// Channels to pixels: in blocks of channels (DCR), or with the factors innermost (CRD).
// The two modes differ in which axis of the channels is the outer one: DCR is TensorFlow's, CRD
// PyTorch's.
bool tni_onnx_depth_to_space(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    b = tni_onnx_attr_int(c, "blocksize", 1);
    if (!x) return false;
    if (tn_rank(x) != 4 || b < 1 || tn_size(x, 1) % (b * b))
        return tni_onnx_refuse(c, "x %s does not fit blocksize %lld", tni_shape_of(x).s,
                               (long long)b);
    if (tni_onnx_attr_is(c, "mode", "CRD", false))
        return tni_onnx_out(c, 0, tn_pixel_shuffle(x, b));
    int64_t n = tn_size(x, 0), k = tn_size(x, 1) / (b * b), h = tn_size(x, 2), w = tn_size(x, 3);
    x = tn_permute(tn_reshape(x, TN_SHAPE(n, b, b, k, h, w)), TN_AXES(0, 3, 4, 1, 5, 2));
    return tni_onnx_out(c, 0, tn_reshape(x, TN_SHAPE(n, k, h * b, w * b)));
}

// SpaceToDepth(x; blocksize, mode): the inverse of DepthToSpace.
bool tni_onnx_space_to_depth(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    b = tni_onnx_attr_int(c, "blocksize", 1);
    if (!x) return false;
    if (tn_rank(x) != 4 || b < 1 || tn_size(x, 2) % b || tn_size(x, 3) % b)
        return tni_onnx_refuse(c, "x %s does not fit blocksize %lld", tni_shape_of(x).s,
                               (long long)b);
    if (tni_onnx_attr_is(c, "mode", "CRD", false))
        return tni_onnx_out(c, 0, tn_pixel_unshuffle(x, b));
    int64_t n = tn_size(x, 0), k = tn_size(x, 1), h = tn_size(x, 2) / b, w = tn_size(x, 3) / b;
    x = tn_permute(tn_reshape(x, TN_SHAPE(n, k, h, b, w, b)), TN_AXES(0, 3, 5, 1, 2, 4));
    return tni_onnx_out(c, 0, tn_reshape(x, TN_SHAPE(n, k * b * b, h, w)));
}
