// Autocast: under a mode of 16 bits, products take their f32 operands in 16 bits and ops that need
// the range or the digits of f32 take theirs in f32, each by the column of its row in ops.def or by
// a line in the composite op, as PyTorch's lists have it. f64 is never touched, and what is
// recorded is plain casts: gradients, planner and devices know nothing of the mode.
//
// Casts are made once. A weight has its copy in 16 bits beside its store (low of tni_store), where
// it stays until the weight is written; an optimizer's update writes the next one (optim/flat.c).
// Of any other value the cast is shared by the products that read it, as long as it lives (low of
// tni_node).
#include "ops/ops.h"

tn_dtype tn_autocast(tn_ctx *cx, tn_dtype mode)
{
    if (!tni_ctx_ok(cx, "autocast")) return TN_F32;
    tn_dtype before = cx->autocast;
    if (mode == TN_F32 || mode == TN_F16 || mode == TN_BF16) cx->autocast = mode;
    else if (!tni_dtype_ok(mode)) tni_fail(cx, TN_EDTYPE, "autocast: %d is not a dtype", (int)mode);
    else
        tni_fail(cx, TN_EDTYPE, "autocast: %s is not a mode: give bf16, f16, or f32 for off",
                 tn_dtype_name(mode));
    return before;
}

tn_dtype tni_autocast_dtype(const tn_ctx *cx, tni_autocast how, tn_dtype dt)
{
    if (cx->autocast == TN_F32 || !tni_is_float(dt) || dt == TN_F64 || tni_is_storage_only(dt))
        return dt;
    if (how == TNI_AUTOCAST_LOW) return cx->autocast;
    return how == TNI_AUTOCAST_WIDE ? TN_F32 : dt;
}

// ---- casts that are made once ------------------------------------------------------------------

// Whether the copy of x's store is worth keeping, since x outlives the steps that use it: a
// parameter, or all of a value that the program made once and does not write. Of other values, as
// part of a large one or what every step writes, just what is used is cast.
static bool is_weight(const tn_tensor *x)
{
    const tni_store *s   = x->store;
    bool             own = x->leaf || x->detached || !s->node->needs_grad;  // no history of its own
    bool             all = tni_count(x) == tni_node_count(s->node) && s->node->state == TNI_DONE;
    if (s->depth > 0 || !own || s->node->constant) return false;
    return x->leaf || tni_low_is_valid(s) || (all && !s->written);
}

// Makes the copy of all of x's store, without history: gradients go to the leaf by its mark. It is
// part of no layer's call and shares no kernel with its readers, so that those are computed by the
// kernels of later steps, for which it is there: where a library adds a bias itself, it rounds less
// often than where a kernel does.
static bool make_low(tn_tensor *x, tn_dtype dt)
{
    tn_ctx   *cx     = x->cx;
    tni_node *n      = tni_store_node(x, "autocast");
    bool      mode   = cx->grad_mode;
    uint32_t  region = cx->region;
    if (!n) return false;
    cx->grad_mode  = false;
    cx->region     = 0;
    tn_tensor *low = tni_record(cx, TNI_cast, dt, n->rank, n->size, 1, &n, NULL);
    cx->grad_mode  = mode;
    cx->region     = region;
    if (!low) return false;
    low->store->node->apart = true;
    tni_low_set(x->store, low);
    return true;
}

// x as a view of its store's copy, made again if the store was written. A leaf's mark goes with it,
// so a gradient is deposited in the f32 leaf; and it counts as made from x, for gradients with
// respect to x where that is a view.
static tn_tensor *view_low(tn_tensor *x, tn_dtype dt)
{
    tni_store *s = x->store;
    if ((!tni_low_is_valid(s) || tni_dtype(s->low) != dt) && !make_low(x, dt)) return NULL;
    s->low_used = true;
    return tni_wrap_low(x);
}

// Any other value: the newest cast of its node, if it is of that dtype and has the history that a
// new one would have.
static tn_tensor *cast_once(tn_tensor *x, tn_dtype dt)
{
    tn_ctx   *cx = x->cx;
    tni_node *n  = tni_resolve(x, "autocast");
    if (!n) return NULL;
    tni_node *known = n->low;
    bool      needs = cx->grad_mode && n->needs_grad;
    if (known && known->dtype == dt && known->state <= TNI_DONE && !known->spent &&
        known->needs_grad == needs)
        return tni_wrap(cx, tni_node_ref(known));
    tn_tensor *y = tn_cast(x, dt);
    if (y && y->store->node->nsrc && y->store->node->src[0] == n) n->low = y->store->node;
    return y;
}

// ---- operands ----------------------------------------------------------------------------------

static tn_tensor *cast_operand(tn_tensor *x, tn_dtype dt)
{
    if (tni_dtype(x) == dt || !tni_is_float(tni_dtype(x))) return x;
    if (dt == TN_F32 || tni_dtype(x) != TN_F32) return tn_cast(x, dt);
    return is_weight(x) ? view_low(x, dt) : cast_once(x, dt);
}

bool tni_autocast_args(tn_ctx *cx, tni_autocast how, int n, tn_tensor **x)
{
    tn_dtype promoted = TN_BOOL;
    if (cx->autocast == TN_F32) return true;
    for (int i = 0; i < n; i++) {
        if (x[i] && tni_is_storage_only(tni_dtype(x[i]))) return true;  // the op refuses it
        if (x[i]) promoted = tni_promote(promoted, tni_dtype(x[i]));
    }
    tn_dtype dt = tni_autocast_dtype(cx, how, promoted);
    if (!tni_is_float(dt) || dt == TN_F64) return true;
    if (how == TNI_AUTOCAST_KEEP) return true;
    for (int i = 0; i < n; i++)
        if (x[i] && !(x[i] = cast_operand(x[i], dt))) return false;
    return true;
}

tn_tensor *tni_autocast_arg(tn_tensor *x, tni_autocast how)
{
    return x && tni_autocast_args(x->cx, how, 1, &x) ? x : NULL;
}
