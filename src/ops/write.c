// In-place writes. Nodes never change, so a write records the store's next state and rebinds the
// store to it: every handle on the store sees the write, and everything recorded before keeps the
// old state. Whether the memory is really overwritten in place is the planner's decision; it does
// so when nothing else needs the old value.
#include "ops/complex.h"

// Whether x may be written: not a leaf while gradients are recorded, since its history would begin
// in the middle of a graph; not a view in which two elements share a place, since their order would
// decide.
static bool is_writable(tn_tensor *x, const char *op)
{
    if (x->leaf && x->cx->grad_mode) {
        tni_fail(x->cx, TN_EGRAD,
                 "%s: x %s is a leaf that requires grad (or a view of one); write to it under "
                 "tn_grad_mode(cx, false)",
                 op, tni_shape_of(x).s);
        return false;
    }
    if (x->view && !tni_view_injective(x->view)) {
        tni_fail(x->cx, TN_EARG, "%s: x %s is an expanded or overlapping view", op,
                 tni_shape_of(x).s);
        return false;
    }
    return true;
}

// The store's next state: `assign` if all of it is written, else `update` of the base at the view's
// places. With gradient mode off, or through a detached handle, what is written has no history (it
// is cut); the elements that are not written keep theirs.
static tni_node *next_state(tn_tensor *x, tni_node *base, tni_node *value, bool whole)
{
    tn_ctx   *cx   = x->cx;
    bool      mode = cx->grad_mode, cut = !mode || x->detached;
    tni_view  v = tni_view_whole(value->rank, value->size);
    tni_node *n, *plain = tni_node_ref(value);
    cx->grad_mode = false;
    if (cut && value->needs_grad) {
        tni_node_unref(cx, plain);
        tni_view layout = tni_node_layout(value);
        plain           = tni_view_contiguous(&layout) ? tni_node_view(cx, value, &v)
                                                       : tni_node_new(cx, TNI_copy, (tn_dtype)value->dtype,
                                                                      value->rank, value->size, 1, &value);
    }
    // Where every element is written nothing of the old history is left.
    cx->grad_mode = !cut || tni_count(x) < tni_node_count(base);
    if (!plain) n = NULL;
    else if (whole) {
        n = tni_node_new(cx, TNI_assign, (tn_dtype)base->dtype, base->rank, base->size, 1, &plain);
        // What was overwritten is still made from its leaves: their gradients are zeros, no error.
        if (n && !cut && base->needs_grad) n->needs_grad = true;
    } else
        n = tni_node_new(cx, TNI_update, (tn_dtype)base->dtype, base->rank, base->size, 2,
                         (tni_node *[]){ base, plain });
    cx->grad_mode = mode;
    tni_node_unref(cx, plain);
    return n;
}

// The offset and strides of an update are in its attributes. `update` marks states that belong to
// an optimizer's step, which succeed or fail together.
static tn_tensor *bind_next_state(tn_tensor *x, tni_node *value, bool whole, const tni_view *to)
{
    tni_node *n = next_state(x, x->store->node, value, whole);
    if (!n) return NULL;
    n->attr.view.offset = to->offset;
    for (int i = 0; i < to->rank; i++) n->attr.view.stride[i] = to->stride[i];
    // A write over an update that is pending stays or goes with it.
    const tni_node *old = x->store->node;
    n->update           = x->cx->updating || (old->update && old->state == TNI_PENDING);
    tni_store_bind(x->cx, x->store, n);
    x->store->assigned = x->store->written = true;
    return x;
}

// An empty tensor needs no node.
bool tni_assign_node(tn_tensor *x, tni_node *value)
{
    tni_view to = tni_layout(x);
    return tni_count(x) == 0 || bind_next_state(x, value, true, &to);
}

// Writes v, cast and broadcast, to the elements of x. Finds out whether that is all of the store,
// possibly permuted or in another shape: then the old value is not needed and need not even be
// computable.
static tn_tensor *write_value(tn_tensor *x, const char *op, tn_tensor *v)
{
    tni_view to = tni_layout(x);
    if (!v || !is_writable(x, op)) return NULL;
    v = tni_cast_and_expand(v, op, tni_dtype(x), to.rank, to.size);
    if (!v) return NULL;
    tni_node *base = x->store->node;
    bool      all  = to.offset == 0 && tni_count(x) == tni_node_count(base);
    int       order[TN_MAX_RANK];
    // All of a store that x shows with its axes in other places: the value is put in the store's
    // order.
    if (x->view && all && tni_view_order(&to, order)) {
        tni_view_permute(&to, order);
        if (!(v = tni_permuted_view(v, order))) return NULL;
    }
    bool whole = !x->view || (all && tni_view_contiguous(&to));
    // All of the store through a view of another shape.
    if (whole && !tni_shape_equal(to.rank, to.size, base->rank, base->size))
        v = tn_reshape(v, base->rank, base->size);
    tni_node *value = v ? tni_resolve(v, op) : NULL;
    if (!value) return NULL;
    // Parts of a lost value cannot be replaced; all of it can.
    if (!whole && !tni_store_node(x, op)) return NULL;
    return tni_count(x) == 0 ? x : bind_next_state(x, value, whole, &to);
}

// Records `assign` or `update`; v is read as it is now, so later writes to v do not change x.
tn_tensor *tn_assign(tn_tensor *x, tn_tensor *v)
{
    static const char *const names[] = { "x", "v" };
    if (tni_any_complex(2, (tn_tensor *const[]){ x, v }))
        return tni_complex_write(x, "assign", -1, v);
    return tni_args("assign", 2, (tn_tensor *const[]){ x, v }, names) ? write_value(x, "assign", v)
                                                                      : NULL;
}

// x = f(x, v), of x's shape and dtype. As in PyTorch a float result does not go into an integer x.
static tn_tensor *write_binary(tn_tensor *x, const char *name, int op, tn_tensor *v)
{
    static const char *const names[] = { "x", "v" };
    if (tni_any_complex(2, (tn_tensor *const[]){ x, v })) return tni_complex_write(x, name, op, v);
    tn_ctx *cx = tni_args(name, 2, (tn_tensor *const[]){ x, v }, names);
    if (!cx || !is_writable(x, name)) return NULL;
    tn_tensor *y = tni_binary(op, x, v);
    if (!y) return NULL;
    tn_dtype from = tni_dtype(y), to = tni_dtype(x);
    if ((tni_is_float(from) && !tni_is_float(to)) || (to == TN_BOOL && from != TN_BOOL))
        return tni_fail(cx, TN_EDTYPE, "%s: a result of %s does not go into x of %s", name,
                        tn_dtype_name(from), tn_dtype_name(to));
    tni_view vx = tni_layout(x), vy = tni_layout(y);
    if (!tni_shape_equal(vx.rank, vx.size, vy.rank, vy.size))
        return tni_fail(cx, TN_ESHAPE, "%s: v %s does not broadcast to x %s", name,
                        tni_shape_of(v).s, tni_shape_of(x).s);
    return write_value(x, name, y);
}

tn_tensor *tn_add_(tn_tensor *x, tn_tensor *v)
{
    return write_binary(x, "add_", TNI_add, v);
}

tn_tensor *tn_sub_(tn_tensor *x, tn_tensor *v)
{
    return write_binary(x, "sub_", TNI_sub, v);
}

tn_tensor *tn_mul_(tn_tensor *x, tn_tensor *v)
{
    return write_binary(x, "mul_", TNI_mul, v);
}

tn_tensor *tn_div_(tn_tensor *x, tn_tensor *v)
{
    return write_binary(x, "div_", TNI_div, v);
}

// Writes a number to all elements of x.
static tn_tensor *write_number(tn_tensor *x, const char *op, tn_tensor *v)
{
    return x->complex ? tni_complex_write(x, op, -1, v) : write_value(x, op, v);
}

// By a 0-d constant, which broadcasting and fusion make free.
tn_tensor *tn_fill_(tn_tensor *x, double v)
{
    tn_ctx *cx = tni_arg1_any("fill_", x, "x");
    return cx ? write_number(x, "fill_", tn_full(cx, tni_dtype(x), TN_0D, v)) : NULL;
}

tn_tensor *tn_fill_i64_(tn_tensor *x, int64_t v)
{
    tn_ctx *cx = tni_arg1_any("fill_i64_", x, "x");
    return cx ? write_number(x, "fill_i64_", tn_full_i64(cx, tni_dtype(x), TN_0D, v)) : NULL;
}

tn_tensor *tn_zero_(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1_any("zero_", x, "x");
    return cx ? write_number(x, "zero_", tn_full(cx, tni_dtype(x), TN_0D, 0)) : NULL;
}

tn_tensor *tn_clamp_(tn_tensor *x, double lo, double hi)
{
    if (!tni_arg1("clamp_", x, "x") || !is_writable(x, "clamp_")) return NULL;
    tn_tensor *y = tn_clamp(x, lo, hi);
    return y ? write_value(x, "clamp_", y) : NULL;
}

tn_tensor *tn_clamp_i64_(tn_tensor *x, int64_t lo, int64_t hi)
{
    if (!tni_arg1("clamp_i64_", x, "x") || !is_writable(x, "clamp_i64_")) return NULL;
    tn_tensor *y = tn_clamp_i64(x, lo, hi);
    return y ? write_value(x, "clamp_i64_", y) : NULL;
}
