// Hooks: functions of the program that a backward pass calls with the gradient of a value, when it
// knows all of it.
//
// The walk records gradients, it computes none: a hook gets a gradient that is not computed yet,
// and what it makes of it is part of the same plan. That is why it cannot read numbers.
//
//   a value that is no leaf    when the walk comes to its node: all that read it have run, and its gradient is whole
//   a leaf                     at its oldest node, where the walk adds up what its states got
//   an output of an op         before the rule of the op asks for the gradients of all its outputs
//
// Rules see what the hooks made of a gradient, and tn_grad returns it.
#include "grad/grad.h"

#include "tensor/hook.h"

// A view has no gradient of its own in a walk: what reads parts of it goes straight to the store.
int64_t tn_hook_add(tn_tensor *x, tn_hook_fn *f, void *user, void (*end)(void *user))
{
    const char *op = "hook_add";
    tn_ctx     *cx = tni_arg1(op, x, "x");
    if (!cx) return 0;
    if (!f || !tn_needs_grad(x)) {
        tni_fail(cx, f ? TN_EGRAD : TN_EARG, "%s: %s", op,
                 f ? "x has no gradient" : "the function is NULL");
        return 0;
    }
    tni_hook h = { .f = f, .user = user, .end = end };
    if (tni_is_leaf(x)) return tni_hook_put(cx, op, x->leaf, NULL, h);
    tni_node *n = tni_resolve(x, op);
    if (n && (n->op == TNI_view || x->view || n->leaf)) {
        tni_fail(cx, TN_EGRAD,
                 "%s: x %s is a view, whose gradient is never whole; take tn_clone of it", op,
                 tni_shape_of(x).s);
        return 0;
    }
    return n ? tni_hook_put(cx, op, NULL, n, h) : 0;
}

// Also from within a hook, of itself or another: the walk looks the next one up by its number.
bool tn_hook_remove(tn_ctx *cx, int64_t hook)
{
    return tni_ctx_ok(cx, "hook_remove") && tni_hook_end(cx, hook);
}

// Whether what a hook returned can take the place of g.
static bool fits(tn_ctx *cx, const tn_tensor *g, tn_tensor *y)
{
    if (!tni_tensor_alive(y, "hook") || y->cx != cx)
        return tni_refuse(cx, TN_EUSER, "hook: it returned a tensor of another context, or dead");
    tni_view a = tni_layout(g), b = tni_layout(y);
    if (tn_dtype_of(g) == tn_dtype_of(y) && tni_shape_equal(a.rank, a.size, b.rank, b.size))
        return true;
    return tni_refuse(cx, TN_ESHAPE, "hook: it returned %s %s for a gradient %s %s",
                      tn_dtype_name(tn_dtype_of(y)), tni_shape_of(y).s,
                      tn_dtype_name(tn_dtype_of(g)), tni_shape_of(g).s);
}

// One after the other, in order of registration, each with what the one before made of it.
tn_tensor *tni_hooks_run(tn_ctx *cx, const tni_node *n, tn_tensor *g)
{
    int64_t after = 0;
    for (tni_hook *h; g && (h = tni_hook_of(cx, n, after)) != NULL;) {
        tni_thread before;
        uint64_t   failures = cx->failures;
        after               = h->number;
        tni_user_sites_begin(&before);
        tn_tensor *y = h->f(g, h->user);
        tni_user_sites_end(&before);
        if (cx->failures != failures || (y && !fits(cx, g, y))) return NULL;
        if (y) g = y;
    }
    return g;
}
