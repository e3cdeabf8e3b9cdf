// Reductions and scans.
#include "ops/ops.h"

bool tni_axis_mask(tn_tensor *x, const char *op, int axis, uint32_t *mask)
{
    // A 0-d tensor counts as one element along axis 0 or -1.
    int rank = tn_rank(x), i = tni_axis(x->cx, op, rank ? rank : 1, axis);
    *mask = i < 0 || !rank ? 0 : 1u << i;
    return i >= 0;
}

bool tni_axes_mask(tn_tensor *x, const char *op, int n, const int *axes, uint32_t *mask)
{
    int rank = tn_rank(x);
    *mask    = 0;
    if (n < 0 || (n > 0 && !axes)) {
        tni_fail(x->cx, TN_EARG, "%s: %d axes given for x %s", op, n, tni_shape_of(x).s);
        return false;
    }
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

int64_t tni_reduced_count(tn_tensor *x, uint32_t axes)
{
    tni_view v = tni_layout(x);
    int64_t  n = 1;
    for (int i = 0; i < v.rank; i++)
        if (axes >> i & 1) n *= v.size[i];
    return n;
}

tn_tensor *tni_reduce(int op, const char *name, tn_tensor *x, uint32_t axes, bool keep)
{
    tn_ctx  *cx = x->cx;
    tn_dtype in, out, dt = tn_dtype_of(x);
    if (!tni_rule_apply(tni_op_table[op].rule, dt, &in, &out))
        return tni_fail(cx, TN_EDTYPE, "%s: %s is not a dtype it takes", name, tn_dtype_name(dt));
    bool needs_one = op != TNI_sum && op != TNI_prod;
    if (needs_one && tni_reduced_count(x, axes) == 0)
        return tni_fail(cx, TN_ESHAPE, "%s: there is nothing to choose from in x %s", name,
                        tni_shape_of(x).s);
    tni_node *n = tni_resolve(x, name);
    if (!n) return NULL;
    int64_t size[TN_MAX_RANK];
    int     rank = 0;
    for (int i = 0; i < n->rank; i++) {
        bool gone = axes >> i & 1;
        if (!gone || keep) size[rank++] = gone ? 1 : n->size[i];
    }
    return tni_record(cx, op, out, rank, size, 1, &n, &(tni_attr){ .reduce = { axes } });
}

static tn_tensor *by_axis(int op, const char *name, tn_tensor *x, int axis, bool keep)
{
    uint32_t mask;
    if (!tni_arg1(name, x, "x") || !tni_axis_mask(x, name, axis, &mask)) return NULL;
    return tni_reduce(op, name, x, mask, keep);
}

static tn_tensor *by_axes(int op, const char *name, tn_tensor *x, int n, const int *axes, bool keep)
{
    uint32_t mask;
    if (!tni_arg1(name, x, "x") || !tni_axes_mask(x, name, n, axes, &mask)) return NULL;
    return tni_reduce(op, name, x, mask, keep);
}

#define FN_REDUCTION(name)                                           \
    tn_tensor *tn_##name(tn_tensor *x, int axis)                     \
    {                                                                \
        return by_axis(TNI_##name, #name, x, axis, false);           \
    }                                                                \
    tn_tensor *tn_##name##_keep(tn_tensor *x, int axis)              \
    {                                                                \
        return by_axis(TNI_##name, #name "_keep", x, axis, true);    \
    }                                                                \
    tn_tensor *tn_##name##_all(tn_tensor *x)                         \
    {                                                                \
        return by_axes(TNI_##name, #name "_all", x, 0, NULL, false); \
    }
#define FN_REDUCTION_AXES(name)                                                  \
    tn_tensor *tn_##name##_axes(tn_tensor *x, int n, const int *axes, bool keep) \
    {                                                                            \
        return by_axes(TNI_##name, #name "_axes", x, n, axes, keep);             \
    }
FN_REDUCTION(sum)
FN_REDUCTION_AXES(sum)
FN_REDUCTION(prod)
FN_REDUCTION_AXES(prod)
FN_REDUCTION(max)
FN_REDUCTION_AXES(max)
FN_REDUCTION(min)
FN_REDUCTION_AXES(min)
FN_REDUCTION(argmax)
FN_REDUCTION(argmin)

static tn_tensor *scan(int op, tn_tensor *x, int axis)
{
    const char *name = tni_op_table[op].name;
    tn_ctx     *cx   = tni_arg1(name, x, "x");
    tn_dtype    in, out;
    if (!cx) return NULL;
    tni_rule_apply(tni_op_table[op].rule, tn_dtype_of(x), &in, &out);
    int rank = tn_rank(x), i = tni_axis(cx, name, rank ? rank : 1, axis);
    if (i < 0) return NULL;
    if (rank == 0) return tn_cast(x, out);
    tni_node *n = tni_resolve(x, name);
    if (!n) return NULL;
    return tni_record(cx, op, out, n->rank, n->size, 1, &n, &(tni_attr){ .axis = { i, false } });
}

tn_tensor *tn_cumsum(tn_tensor *x, int axis)
{
    return scan(TNI_cumsum, x, axis);
}

tn_tensor *tn_cumprod(tn_tensor *x, int axis)
{
    return scan(TNI_cumprod, x, axis);
}
