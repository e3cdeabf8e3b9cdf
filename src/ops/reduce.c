// Reductions and scans. Sums of f16 and bf16 are computed in f32, and long sums are joined in the
// wider dtype that dtype.def names, whatever the order in which a device adds.
#include "ops/composite.h"

// Axes are a bit mask from here on: order and repetition no longer matter.
bool tni_axis_mask(tn_tensor *x, const char *op, int axis, uint32_t *mask)
{
    // A 0-d tensor counts as one element along axis 0 or -1.
    int rank = tn_rank(x), i = tni_axis(x->cx, op, rank ? rank : 1, axis);
    *mask = i < 0 || !rank ? 0 : 1u << i;
    return i >= 0;
}

// No axes at all means all of them. An axis given twice is an error, as in NumPy.
bool tni_axes_mask(tn_tensor *x, const char *op, int n, const int *axes, uint32_t *mask)
{
    int rank = tn_rank(x);
    *mask    = 0;
    if (n < 0 || (n > 0 && !axes)) {
        tni_fail(x->cx, TN_EARG, "%s: %d axes given for x %s", op, n, tni_shape_of(x).s);
        return false;
    }
    // The shape of a full reduction is ().
    if (n == 0) {
        *mask = rank ? (1u << rank) - 1 : 0;
        return true;
    }
    for (int k = 0; k < n; k++) {
        uint32_t one;
        if (!tni_axis_mask(x, op, axes[k], &one)) return false;
        if (*mask & one) {
            tni_fail(x->cx, TN_EARG, "%s: axis %d is given twice for x %s", op, axes[k],
                     tni_shape_of(x).s);
            return false;
        }
        *mask |= one;
    }
    return true;
}

// 1 for no axes, 0 if one of them is empty.
int64_t tni_reduced_count(tn_tensor *x, uint32_t axes)
{
    tni_view v = tni_layout(x);
    int64_t  n = 1;
    for (int i = 0; i < v.rank; i++)
        if (axes >> i & 1) n *= v.size[i];
    return n;
}

// Shows y, reduced from x with its axes permuted by `order`, as if it had been reduced from x: the
// axes left are in memory in x's order of memory, and in their own places for the user.
static tn_tensor *show_reduced(tn_tensor *y, int rank, const int *order, uint32_t axes, bool keep)
{
    int  place[TN_MAX_RANK], n = 0;
    bool moved = false;
    for (int i = 0; i < rank; i++) {
        if (axes >> order[i] & 1 && !keep) continue;
        // Axis order[i] of x is axis place[n] of the result: it moves up by the removed axes before
        // it.
        place[n] = 0;
        for (int a = 0; a < order[i]; a++) place[n] += keep || !(axes >> a & 1);
        moved |= n > 0 && place[n] < place[n - 1];
        n++;
    }
    return moved ? tni_show_permuted(y, place) : y;
}

// Whether the axes of a mask have falling strides, in other words are in memory order among
// themselves.
static bool strides_fall(const tni_view *v, uint32_t axes)
{
    int64_t last = INT64_MAX;
    for (int i = 0; i < v->rank; i++) {
        if (!(axes >> i & 1) || v->size[i] == 1) continue;
        if (v->stride[i] > last) return false;
        last = v->stride[i];
    }
    return true;
}

// Whether x is reduced with its axes in memory order, as the maps around it are computed, so that
// all can be one kernel. Windows have more axes than their store: they are permuted only if their
// reduced or remaining axes are out of order among themselves, since that the two interleave is
// what windows are. Where it matters which element comes first (argmax), its place in x's own order
// counts, and nothing is permuted.
static bool reads_in_memory_order(int op, const tn_tensor *x, uint32_t axes, bool first, int *order)
{
    const tni_view *v = x->view;
    if (!v || first || op == TNI_argmax || op == TNI_argmin) return false;
    if (v->rank > x->store->node->rank && strides_fall(v, axes) && strides_fall(v, ~axes))
        return false;
    return tni_view_order(v, order);
}

// Checks the dtype and that there is something to choose from (sums and products of nothing are 0
// and 1), permutes x if that helps, and records the op. first, padded: see tni_first_max.
static tn_tensor *record_reduction(int op, const char *name, tn_tensor *x, uint32_t axes, bool keep,
                                   bool first, bool padded)
{
    if (!(x = tni_autocast_arg(x, tni_op_table[op].autocast))) return NULL;
    tn_ctx  *cx = x->cx;
    tn_dtype in, out, dt = tn_dtype_of(x);
    int      order[TN_MAX_RANK];
    uint32_t given = axes;
    bool     moved = reads_in_memory_order(op, x, axes, first, order);
    if (!tni_want_math_dtype(cx, name, dt)) return NULL;
    if (!tni_dtype_rule_apply(tni_op_table[op].rule, dt, &in, &out))
        return tni_fail(cx, TN_EDTYPE, "%s: %s is not a supported dtype", name, tn_dtype_name(dt));
    // max, min, argmax and argmin have no value for an empty set.
    bool needs_one = op != TNI_sum && op != TNI_prod;
    if (needs_one && tni_reduced_count(x, axes) == 0)
        return tni_fail(cx, TN_ESHAPE, "%s: there is nothing to choose from in x %s", name,
                        tni_shape_of(x).s);
    if (moved) {
        // The mask of the permuted axes.
        axes = 0;
        for (int i = 0; i < tn_rank(x); i++) axes |= (given >> order[i] & 1) << i;
    }
    tni_node *n = moved ? tni_resolve_permuted(x, order, name) : tni_resolve(x, name);
    if (!n) return NULL;
    int64_t size[TN_MAX_RANK];
    int     rank = 0;
    for (int i = 0; i < n->rank; i++) {
        bool gone = axes >> i & 1;
        if (!gone || keep) size[rank++] = gone ? 1 : n->size[i];
    }
    if (!tni_shape_ok(cx, name, rank, size)) return NULL;
    tni_attr   attr = { .reduce = { axes, first, padded } };
    tn_tensor *y    = tni_record(cx, op, out, rank, size, 1, &n, &attr);
    if (op == TNI_argmax || op == TNI_argmin) tni_set_below(y, tni_reduced_count(x, given));
    return moved ? show_reduced(y, n->rank, order, given, keep) : y;
}

// The general entry: axes as a mask, already checked.
tn_tensor *tni_reduce(int op, const char *name, tn_tensor *x, uint32_t axes, bool keep)
{
    return record_reduction(op, name, x, axes, keep, false, false);
}

tn_tensor *tni_first_max(const char *name, tn_tensor *x, uint32_t axes, bool keep, bool padded)
{
    return x ? record_reduction(TNI_max, name, x, axes, keep, true, padded) : NULL;
}

// The public forms (over one axis, all, several) of each primitive reduction come from its body.
#define PRIMITIVE(name)                                                                   \
    static tn_tensor *fold_##name(const char *op, tn_tensor *x, uint32_t mask, bool keep) \
    {                                                                                     \
        return tni_reduce(TNI_##name, op, x, mask, keep);                                 \
    }
PRIMITIVE(sum)
PRIMITIVE(prod)
PRIMITIVE(max)
PRIMITIVE(min)
PRIMITIVE(argmax)
PRIMITIVE(argmin)
TNI_REDUCTION_FORMS(sum, fold_sum)
TNI_REDUCTION_FORMS(prod, fold_prod)
TNI_REDUCTION_FORMS(max, fold_max)
TNI_REDUCTION_FORMS(min, fold_min)
TNI_REDUCTION_SINGLE(argmax, fold_argmax)
TNI_REDUCTION_SINGLE(argmin, fold_argmin)

// A 0-d x is one element, whose running sum is itself.
static tn_tensor *record_scan(int op, tn_tensor *x, int axis)
{
    const char *name = tni_op_table[op].name;
    tn_ctx     *cx   = tni_arg1(name, x, "x");
    tn_dtype    in, out;
    if (!cx || !tni_want_math_dtype(cx, name, tn_dtype_of(x))) return NULL;
    if (!(x = tni_autocast_arg(x, tni_op_table[op].autocast))) return NULL;
    tni_dtype_rule_apply(tni_op_table[op].rule, tn_dtype_of(x), &in, &out);
    int rank = tn_rank(x), i = tni_axis(cx, name, rank ? rank : 1, axis);
    if (i < 0) return NULL;
    if (rank == 0) return tn_cast(x, out);
    tni_node *n = tni_resolve(x, name);
    if (!n) return NULL;
    return tni_record(cx, op, out, n->rank, n->size, 1, &n, &(tni_attr){ .axis = { i, false } });
}

tn_tensor *tn_cumsum(tn_tensor *x, int axis)
{
    return record_scan(TNI_cumsum, x, axis);
}

tn_tensor *tn_cumprod(tn_tensor *x, int axis)
{
    return record_scan(TNI_cumprod, x, axis);
}
