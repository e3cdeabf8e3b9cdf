// Movement that needs a copy: padding, concatenating, gathering, scattering, sorting.
#include "ops/complex.h"

#include <string.h>

// Negative amounts cut off. The number is cast as a tensor would be; only i64 and u64 have bits
// beyond those of a double. The bounds of a quarter of int64 keep the sum of three from
// overflowing.
static tn_tensor *record_pad(const char *op, tn_tensor *x, const int64_t *before,
                             const int64_t *after, tni_num v)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx) return NULL;
    tn_dtype dt = tni_dtype(x);
    tni_view s  = tni_layout(x);
    // An i64 value of the call is exact; through a double it would lose bits.
    bool     fits64 = dt == TN_I64 || (dt == TN_U64 && v.i >= 0);
    int64_t  i64    = tni_num_is_i64(v) && fits64 ? v.i : tni_clamp_to_dtype(dt, v.f);
    tni_attr a      = { .pad = { .value = v.f, .ivalue = i64 } };
    int64_t  size[TN_MAX_RANK];
    if (s.rank && (!before || !after))
        return tni_fail(cx, TN_EARG, "%s: no sizes given for x %s", op, tni_shape_of(x).s);
    for (int i = 0; i < s.rank; i++) {
        a.pad.before[i] = before[i];
        bool fits       = before[i] > -(INT64_MAX / 4) && before[i] < INT64_MAX / 4 &&
                    after[i] > -(INT64_MAX / 4) && after[i] < INT64_MAX / 4;
        size[i] = fits ? s.size[i] + before[i] + after[i] : -1;
        if (size[i] < 0)
            return tni_fail(cx, TN_ESHAPE, "%s: %lld and %lld at axis %d of x %s", op,
                            (long long)before[i], (long long)after[i], i, tni_shape_of(x).s);
    }
    if (!tni_shape_ok(cx, op, s.rank, size)) return NULL;
    tni_node *n = tni_resolve(x, op);
    return n ? tni_record(cx, TNI_pad, dt, s.rank, size, 1, &n, &a) : NULL;
}

tn_tensor *tn_pad(tn_tensor *x, const int64_t *before, const int64_t *after, double v)
{
    return record_pad("pad", x, before, after, tni_num_of(v));
}

tn_tensor *tn_pad_i64(tn_tensor *x, const int64_t *before, const int64_t *after, int64_t v)
{
    return record_pad("pad_i64", x, before, after, tni_num_i64(v));
}

// Whether x is of shape (0), with which lists begin to grow. As in PyTorch only its dtype counts.
static bool is_empty_list(const tn_tensor *x)
{
    return tni_rank(x) == 1 && tni_sizes(x)[0] == 0;
}

// Checks that all inputs agree with the first one that is no empty list, except along the axis, and
// sums up the result's shape and dtype.
static bool join_shapes(tn_ctx *cx, int n, tn_tensor *const *x, int first, int axis,
                        tni_view *shape, tn_dtype *dt)
{
    *shape = tni_layout(x[first]);
    *dt    = tn_dtype_of(x[0]);
    for (int k = 0; k < n; k++) {
        tni_view v = tni_layout(x[k]);
        // Equal storage-only dtypes can be joined: nothing is computed.
        if (*dt != tn_dtype_of(x[k]) && (!tni_want_math_dtype(cx, "concat", *dt) ||
                                         !tni_want_math_dtype(cx, "concat", tn_dtype_of(x[k]))))
            return false;
        *dt = tni_promote(*dt, tn_dtype_of(x[k]));
        if (k == first || is_empty_list(x[k])) continue;
        bool fits = v.rank == shape->rank;
        for (int i = 0; fits && i < v.rank; i++) fits = i == axis || v.size[i] == shape->size[i];
        if (!fits) {
            tni_fail(cx, TN_ESHAPE, "concat: x[%d] %s and x[%d] %s differ besides axis %d", first,
                     tni_shape_of(x[first]).s, k, tni_shape_of(x[k]).s, axis);
            return false;
        }
        shape->size[axis] += v.size[axis];
    }
    return tni_shape_ok(cx, "concat", shape->rank, shape->size);
}

// Puts the nodes to concatenate, cast to dt, into src and returns their number; -1 on failure.
// Empty lists are left out, unless the result (first) is one.
static int join_sources(int n, tn_tensor *const *x, int first, tn_dtype dt, tni_node **src)
{
    int count = 0;
    for (int k = 0; k < n; k++) {
        if (k != first && is_empty_list(x[k])) continue;
        tn_tensor *one = tn_dtype_of(x[k]) == dt ? x[k] : tn_cast(x[k], dt);
        if (!one || !(src[count++] = tni_resolve(one, "concat"))) return -1;
    }
    return count;
}

// One node over all inputs: a chain of pairs would copy the first input n times.
tn_tensor *tn_concat(int n, tn_tensor *const *x, int axis)
{
    // Without a tensor there is no context that could take the error.
    if (n < 1 || !x) {
        tni_thread_fail(TN_EARG, "concat: there are no tensors");
        return NULL;
    }
    tn_ctx *cx = tni_args_any("concat", n, x, NULL);
    if (!cx) return NULL;
    if (tni_any_complex(n, x)) return tni_complex_concat(n, x, axis, false);
    tni_view shape;
    tn_dtype dt;
    int      first = 0;
    while (first < n && is_empty_list(x[first])) first++;
    // All are empty lists: so is the result.
    if (first == n) first = 0;
    int i = tni_axis(cx, "concat", tn_rank(x[first]), axis);
    if (i < 0 || !join_shapes(cx, n, x, first, i, &shape, &dt)) return NULL;
    tni_node **src = tni_alloc(&cx->heap, (size_t)n * sizeof *src);
    if (!src) return tni_fail_memory(cx, "concat");
    int        count = join_sources(n, x, first, dt, src);
    tn_tensor *y     = NULL;
    if (count > 0)
        y = tni_record(cx, TNI_concat, dt, shape.rank, shape.size, count, src,
                       &(tni_attr){ .axis = { i, false } });
    tni_free(&cx->heap, src);
    return y;
}

// ---- by indices --------------------------------------------------------------------------------

// The axis for x and index of one rank, with index nowhere larger than x except along it; else -1,
// reported. Whether the indices themselves are in range is only known when they are computed:
// devices check it.
static int index_axis(tn_ctx *cx, const char *op, tn_tensor *x, int axis, tn_tensor *index)
{
    tni_view v = tni_layout(x), w = tni_layout(index);
    if (tn_dtype_of(index) != TN_I64 && tn_dtype_of(index) != TN_I32) {
        tni_fail(cx, TN_EDTYPE, "%s: index is %s, not i64 or i32", op,
                 tn_dtype_name(tn_dtype_of(index)));
        return -1;
    }
    int i = tni_axis(cx, op, v.rank, axis);
    if (i < 0) return -1;
    bool fits = v.rank == w.rank;
    for (int k = 0; fits && k < v.rank; k++) fits = k == i || w.size[k] <= v.size[k];
    if (fits) return i;
    tni_fail(cx, TN_ESHAPE, "%s: x %s and index %s do not fit along axis %d", op, tni_shape_of(x).s,
             tni_shape_of(index).s, axis);
    return -1;
}

// The result has the shape of the index.
tn_tensor *tn_gather(tn_tensor *x, int axis, tn_tensor *index)
{
    static const char *const names[] = { "x", "index" };
    tn_ctx                  *cx = tni_args("gather", 2, (tn_tensor *const[]){ x, index }, names);
    int                      i  = cx ? index_axis(cx, "gather", x, axis, index) : -1;
    if (i < 0) return NULL;
    tni_node *src[] = { tni_resolve(x, "gather"), tni_resolve(index, "gather") };
    if (!src[0] || !src[1]) return NULL;
    return tni_record(cx, TNI_gather, (tn_dtype)src[0]->dtype, src[1]->rank, src[1]->size, 2, src,
                      &(tni_attr){ .axis = { i, false } });
}

// A tni_view_fn: the first elements of each axis.
static bool shrink_view(tni_view *v, const void *how)
{
    memcpy(v->size, ((const tni_view *)how)->size, (size_t)v->rank * sizeof *v->size);
    return true;
}

// The part of v that the index reaches, as in PyTorch: v itself, unless it has the rank of index
// and is larger.
static tn_tensor *reached_part(tn_tensor *v, const tni_view *index)
{
    tni_view s    = tni_layout(v);
    bool     fits = s.rank == index->rank, larger = false;
    for (int k = 0; fits && k < s.rank; k++) {
        fits = s.size[k] >= index->size[k];
        larger |= s.size[k] > index->size[k];
    }
    if (!fits || !larger) return v;
    shrink_view(&s, index);
    return tni_wrap_view(v, &s, shrink_view, index);
}

// Checks, casts and expands v, and records scatter or scatter_add. Of several writes to one place
// the last by index order wins, on every device; additions happen in that order too.
static tn_tensor *record_scatter(int op, tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v)
{
    static const char *const names[] = { "x", "index", "v" };
    const char              *name    = tni_op_table[op].name;
    tn_ctx                  *cx = tni_args(name, 3, (tn_tensor *const[]){ x, index, v }, names);
    int                      i  = cx ? index_axis(cx, name, x, axis, index) : -1;
    if (i < 0) return NULL;
    tni_view shape = tni_layout(index);
    if (op == TNI_scatter_add && !tni_want_math_dtype(cx, name, tn_dtype_of(x))) return NULL;
    tn_dtype both = tni_promote(tn_dtype_of(x), tn_dtype_of(v));
    bool     grow = cx->autocast != TN_F32 && tni_op_table[op].autocast == TNI_AUTOCAST_WIDEST;
    if (grow && !(x = tn_cast(x, both))) return NULL;
    // Before broadcasting, since a larger v does not broadcast.
    if (!(v = reached_part(v, &shape))) return NULL;
    if (!(v = tni_cast_and_expand(v, name, tn_dtype_of(x), shape.rank, shape.size))) return NULL;
    tni_node *src[] = { tni_resolve(x, name), tni_resolve(index, name), tni_resolve(v, name) };
    if (!src[0] || !src[1] || !src[2]) return NULL;
    return tni_record(cx, op, (tn_dtype)src[0]->dtype, src[0]->rank, src[0]->size, 3, src,
                      &(tni_attr){ .axis = { i, false } });
}

tn_tensor *tn_scatter(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v)
{
    return record_scatter(TNI_scatter, x, axis, index, v);
}

tn_tensor *tn_scatter_add(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v)
{
    return record_scatter(TNI_scatter_add, x, axis, index, v);
}

// ---- sorting -----------------------------------------------------------------------------------

// The node to sort and its axis, of which a 0-d x has none. NULL, reported, on a wrong one.
static tni_node *sort_args(const char *op, tn_tensor *x, int axis, int *i)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx || !tni_want_math_dtype(cx, op, tn_dtype_of(x))) return NULL;
    int rank = tn_rank(x);
    *i       = tni_axis(cx, op, rank ? rank : 1, axis);
    return *i < 0 ? NULL : tni_resolve(x, op);
}

// Only the indices are asked for: the sorted values, the op's second output, are not computed.
tn_tensor *tn_argsort(tn_tensor *x, int axis, bool descending)
{
    int       i;
    tni_node *n = sort_args("argsort", x, axis, &i);
    if (!n) return NULL;
    if (n->rank == 0) return tn_zeros(x->cx, TN_I64, TN_0D);
    return tni_record(x->cx, TNI_argsort, TN_I64, n->rank, n->size, 1, &n,
                      &(tni_attr){ .axis = { i, descending } });
}

// One call computes both outputs. The indices are the primary: the gradient of the values needs
// them.
tn_pair tn_sort(tn_tensor *x, int axis, bool descending)
{
    int        i;
    tni_node  *n    = sort_args("sort", x, axis, &i);
    tn_tensor *y[2] = { NULL, NULL };
    if (!n) return (tn_pair){ NULL, NULL };
    tni_attr attr   = { .axis = { i, descending } };
    tn_array out[2] = { { .dtype = TN_I64, .rank = n->rank },
                        { .dtype = (tn_dtype)n->dtype, .rank = n->rank } };
    for (int k = 0; k < 2; k++) memcpy(out[k].size, n->size, sizeof n->size);
    if (n->rank > 0) {
        tni_record_outputs(x->cx, TNI_argsort, 2, out, 1, &n, &attr, y);
    } else {
        y[0] = tn_zeros(x->cx, TN_I64, TN_0D);
        y[1] = y[0] ? tn_clone(x) : NULL;
    }
    return y[1] ? (tn_pair){ y[1], y[0] } : (tn_pair){ NULL, NULL };
}
