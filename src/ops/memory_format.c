// The order of axes in memory (PyTorch's memory format). Every node is row-major; a tensor in
// another order is a permuted view of a row-major node, shown by tni_show_permuted. A map takes the
// order of its largest input (find_result_order in record.c); here are copies and shares of a value
// in an order that is kept or given, tn_contiguous, tn_clone and tn_channels_last.
#include "ops/ops.h"

// A copy is row-major, whatever its source is.
static tn_tensor *copy_of(tn_tensor *x, const char *op)
{
    tni_node *n = tni_resolve(x, op);
    if (!n) return NULL;
    return tni_record(x->cx, TNI_copy, (tn_dtype)n->dtype, n->rank, n->size, 1, &n, NULL);
}

// The same node if its elements are row-major, else a copy that is.
static tn_tensor *share_rows(tn_tensor *x, const char *op)
{
    tni_node *n = tni_resolve(x, op);
    if (!n) return NULL;
    tni_view v = tni_node_layout(n), whole = tni_view_whole(n->rank, n->size);
    if (!tni_view_contiguous(&v)) return copy_of(x, op);
    // A value with a history, or none yet, gets a node of its own, which costs nothing to compute:
    // gradients and step boundaries tell it from x's.
    if (n->needs_grad || n->state == TNI_PENDING)
        return tni_wrap(x->cx, tni_node_view(x->cx, n, &whole));
    return tni_wrap(x->cx, tni_node_ref(n));
}

tn_tensor *tni_share(tn_tensor *x, const char *op)
{
    int        order[TN_MAX_RANK];
    bool       plain = !x->view || x->complex || !tni_view_order(x->view, order);
    tn_tensor *y     = plain ? share_rows(x, op) : tni_share_permuted(x, op, order);
    if (y) y->complex = x->complex;
    return y;
}

// Permuting first makes "in that order" mean row-major; the result is permuted back for the eye
// only.
tn_tensor *tni_share_permuted(tn_tensor *x, const char *op, const int *order)
{
    x = tni_permuted_view(x, order);
    return x ? tni_show_permuted(share_rows(x, op), order) : NULL;
}

tn_tensor *tni_permuted_view(tn_tensor *x, const int *order)
{
    tni_view        v   = tni_layout(x);
    tni_view_change how = { .order = order };
    tni_change_view(&v, &how);
    return tni_wrap_view(x, &v, tni_change_view, &how);
}

// Unlike tni_permuted_view it makes no handle if the permuted view is all of the store.
tni_node *tni_resolve_permuted(tn_tensor *x, const int *order, const char *op)
{
    tni_view        v   = tni_layout(x);
    tni_view_change how = { .order = order };
    tni_change_view(&v, &how);
    return tni_resolve_as(x, &v, tni_change_view, &how, op);
}

tn_tensor *tn_contiguous(tn_tensor *x)
{
    if (!tni_arg1_any("contiguous", x, "x")) return NULL;
    tn_tensor *y = share_rows(x, "contiguous");
    if (y) y->complex = x->complex;
    return y;
}

tn_tensor *tn_clone(tn_tensor *x)
{
    return tni_arg1_any("clone", x, "x") ? tni_share(x, "clone") : NULL;
}

const int *tni_channels_last_order(int rank)
{
    static const int order[3][5] = { { 0, 2, 1 }, { 0, 2, 3, 1 }, { 0, 2, 3, 4, 1 } };
    return order[rank - 3];
}

// Strides decide. Where a size of 1 makes both orders the same memory, the strides of the single
// axes tell which was meant, as in PyTorch.
bool tni_is_channels_last(const tn_tensor *x)
{
    int order[TN_MAX_RANK];
    if (!x->view || x->view->rank < 3 || x->view->rank > 5) return false;
    tni_view v = *x->view, rows = tni_view_whole(v.rank, v.size);
    bool     moved = tni_view_order(&v, order);
    v.offset       = 0;
    if (!moved && tni_view_equal(&v, &rows)) return false;
    tni_view_permute(&v, tni_channels_last_order(v.rank));
    rows = tni_view_whole(v.rank, v.size);
    return moved ? !tni_view_order(&v, order) : tni_view_equal(&v, &rows);
}

tn_tensor *tn_channels_last(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1("channels_last", x, "x");
    if (!cx) return NULL;
    if (tn_rank(x) < 3 || tn_rank(x) > 5)
        return tni_fail(cx, TN_ESHAPE,
                        "channels_last: x %s is not (N, C, L), (N, C, H, W) or (N, C, D, H, W)",
                        tni_shape_of(x).s);
    return tni_share_permuted(x, "channels_last", tni_channels_last_order(tn_rank(x)));
}
