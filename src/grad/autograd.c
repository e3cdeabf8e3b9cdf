// The public interface of autograd: gradient mode, leaves, gradients of leaves, tn_backward and
// tn_grad. The walk itself is walk.c.
#include "grad/grad.h"
#include "ops/complex.h"

#include <string.h>

bool tn_grad_mode(tn_ctx *cx, bool on)
{
    if (!tni_ctx_ok(cx, "grad_mode")) return false;
    bool before   = cx->grad_mode;
    cx->grad_mode = on;
    return before;
}

bool tn_needs_grad(const tn_tensor *t)
{
    if (!tni_tensor_alive(t, "needs_grad")) return false;
    const tni_node *n = t->store->node;
    return t->leaf || (!t->detached && n->needs_grad && tni_is_float((tn_dtype)n->dtype));
}

bool tn_is_leaf(const tn_tensor *t)
{
    return tni_tensor_alive(t, "is_leaf") && (t->leaf || !tn_needs_grad(t));
}

// An op that is composed of others has its own name.
const char *tn_op_of(const tn_tensor *t)
{
    if (!tni_tensor_alive(t, "op_of")) return "";
    const tni_node *n = t->store->node;
    return n->site.op ? n->site.op : tni_op_table[n->op].name;
}

// requires_grad(t, false). A value computed from leaves cannot stop: its history is in its node.
static tn_tensor *stop_being_leaf(tn_tensor *t)
{
    if (!tni_is_leaf(t)) {
        if (!tn_needs_grad(t)) return t;
        return tni_fail(t->cx, TN_EGRAD,
                        "requires_grad: t %s is not a leaf; tn_detach gives its value alone",
                        tni_shape_of(t).s);
    }
    // Rebinding the store to its own node drops the cached views.
    // Through the store, so that no view of the leaf keeps a node that is marked.
    tni_node *n = tni_node_ref(t->store->node);
    tni_leaf *l = t->leaf;
    tni_leaf_end(t->cx, l);
    t->leaf = NULL;
    tni_store_bind(t->cx, t->store, n);
    tni_leaf_unref(t->cx, l);
    return t;
}

// A leaf is a mark on the handle, not on the node: each use puts a marked view in front of the
// store's node (mark_leaf in tensor.c). Overlapping views are refused, since a gradient could not
// be written to them.
tn_tensor *tn_requires_grad(tn_tensor *t, bool on)
{
    tn_ctx *cx = tni_arg1_any("requires_grad", t, "t");
    if (!cx) return NULL;
    if (!on) return stop_being_leaf(t);
    if (!tni_want_math_dtype(cx, "requires_grad", tni_dtype(t))) return NULL;
    if (!tni_is_float(tni_dtype(t)))
        return tni_fail(cx, TN_EDTYPE, "requires_grad: t is %s, not a float type",
                        tn_dtype_name(tni_dtype(t)));
    if (tn_needs_grad(t)) return t;
    if (t->view && !tni_view_injective(t->view))
        return tni_fail(cx, TN_EARG, "requires_grad: t %s is an expanded or overlapping view",
                        tni_shape_of(t).s);
    tni_leaf *l = tni_slab_take(&cx->leaves);
    if (!l) return tni_fail_memory(cx, "requires_grad");
    memset(l, 0, sizeof *l);
    l->refs   = 1;
    l->handle = t;
    t->leaf   = l;
    // A node cached before has no mark.
    tni_store_bind(cx, t->store, tni_node_ref(t->store->node));
    t->store->wanted = true;  // a leaf made by ops can be read after the step that computes it
    return t;
}

// ---- gradients of leaves -----------------------------------------------------------------------

// Made on demand and owned by the leaf. Zeros until something is deposited.
tn_tensor *tn_grad_of(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1_any("grad_of", x, "x");
    if (!cx) return NULL;
    if (!tni_is_leaf(x))
        return tni_fail(
            cx, TN_EGRAD,
            "grad_of: x %s is not a leaf that requires grad; tn_grad gives the gradient "
            "of any value",
            tni_shape_of(x).s);
    // A gradient whose first step failed was never there.
    if (x->leaf->grad && x->leaf->grad->store->node->state == TNI_GONE) tn_zero_grad(x);
    if (x->leaf->grad) return x->leaf->grad;
    tn_tensor *g = tn_zeros_like(x);
    if (!g) return NULL;
    tni_tensor_own(g);
    x->leaf->grad = g;
    return g;
}

// A gradient that the user wrote into counts as one.
bool tn_has_grad(const tn_tensor *x)
{
    if (!tni_tensor_alive(x, "has_grad") || !tni_is_leaf(x)) return false;
    return x->leaf->has_grad || (x->leaf->grad && x->leaf->grad->store->written);
}

// The zeros of a leaf's gradient, one node for all clears until it is computed: clearing every step
// records nothing new. NULL, reported, on failure.
static tni_node *zeros_of(tn_ctx *cx, tn_tensor *x)
{
    tni_leaf *l = x->leaf;
    if (l->zeros && l->zeros->state == TNI_PENDING) return l->zeros;
    tn_tensor *zeros = tn_zeros_like(x);
    if (!zeros) return NULL;
    tni_node_unref(cx, l->zeros);
    l->zeros = tni_node_ref(zeros->store->node);
    tni_tensor_free(zeros);
    return l->zeros;
}

// Binds the gradient to zeros that are not computed until something reads them. A leaf that never
// had a gradient needs none.
void tn_zero_grad(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1_any("zero_grad", x, "x");
    if (!cx) return;
    if (!tni_is_leaf(x)) {
        tni_fail(cx, TN_EGRAD, "zero_grad: x %s is not a leaf that requires grad",
                 tni_shape_of(x).s);
        return;
    }
    tni_leaf  *l    = x->leaf;
    tn_tensor *grad = l->grad;
    l->has_grad     = false;
    if (!grad) return;
    tni_node *zeros = zeros_of(cx, x);
    if (!zeros) return;
    // Views of the gradient that the program has keep its value.
    if (grad->store->refs > 1) {
        tni_tensor_leave_store(grad, tni_node_ref(zeros));
        return;
    }
    // Zeros that nothing has asked for yet: no step need compute them.
    grad->store->written = grad->store->assigned = grad->store->wanted = false;
    tni_store_bind(cx, grad->store, tni_node_ref(zeros));
}

// ---- walks -------------------------------------------------------------------------------------

// The walk sees pairs of real numbers: while it runs, complex tensors are shown as such. Which of n
// are complex, as bits; and those of the bits, shown one way or the other.
static uint64_t complex_among(int n, tn_tensor *const *x)
{
    uint64_t marks = 0;
    for (int i = 0; x && i < n && i < 64; i++) marks |= (uint64_t)(x[i] && x[i]->complex) << i;
    return marks;
}

static void show_complex(tn_tensor *const *x, uint64_t marks, bool complex)
{
    for (int i = 0; marks >> i && i < 64; i++)
        if (marks >> i & 1) x[i]->complex = complex;
}

// Whether outputs y and their gradients gy are both complex or both real; a complex y needs a gy,
// since the direction of the change of a complex number is not given by 1.
static bool complex_match(tn_ctx *cx, const char *op, int n, tn_tensor *const *y,
                          tn_tensor *const *gy)
{
    for (int i = 0; i < n; i++) {
        tn_tensor *g = gy ? gy[i] : NULL;
        if (y[i]->complex && !g)
            return tni_refuse(cx, TN_EARG, "%s: y %s is %s, so gy is needed", op,
                              tni_shape_of(y[i]).s, tn_dtype_name(tn_dtype_of(y[i])));
        if (g && g->complex != y[i]->complex)
            return tni_refuse(cx, TN_EDTYPE, "%s: y is %s and gy is %s", op,
                              tn_dtype_name(tn_dtype_of(y[i])), tn_dtype_name(tn_dtype_of(g)));
        if (i >= 64 && y[i]->complex)
            return tni_refuse(cx, TN_EARG, "%s: y[%d] is %s; of outputs after the 64th none may be",
                              op, i, tn_dtype_name(tn_dtype_of(y[i])));
    }
    return true;
}

// Runs in a scope of its own with gradient mode off: what the walk makes dies with the scope, and
// gradients live on in their leaves.
tn_status tn_backward(tn_tensor *y, tn_tensor *gy)
{
    static const char *const names[] = { "y", "gy" };
    tn_ctx *cx = tni_args_any("backward", gy ? 2 : 1, (tn_tensor *const[]){ y, gy }, names);
    if (!cx || !complex_match(cx, "backward", 1, &y, &gy)) return tni_failed();
    if (!tn_needs_grad(y))
        return tni_fail_status(cx, TN_EGRAD, "backward: y %s depends on no leaf that requires grad",
                               tni_shape_of(y).s);
    // What the walk makes dies with this scope; gradients live on in the leaves.
    tn_scope *s = tn_begin(cx);
    if (!s) return TN_EMEM;
    cx->grad_mode           = false;
    tni_walk_args    w      = { .op = "backward", .ny = 1, .y = &y, .gy = gy ? &gy : NULL };
    tn_tensor *const both[] = { y, gy };
    uint64_t         marks  = complex_among(2, both);
    show_complex(both, marks, false);
    tn_status status = tni_grad_walk(cx, &w, true);
    show_complex(both, marks, true);
    tni_scope_close(s);
    return status;
}

// Keeps gradient mode as it is, so that the results can be differentiated, and spends nothing: y's
// history stays. The results move to the scope of the caller.
tn_status tn_grad(int ny, tn_tensor *const *y, int nx, tn_tensor *const *x, tn_tensor *const *gy,
                  tn_tensor **gx)
{
    if (ny < 1 || nx < 1 || !y || !x || !gx) {
        tni_thread_fail(TN_EARG, "grad: there are no outputs or no inputs");
        return TN_EARG;
    }
    static const char *const yx[] = { "y", "x" }, *const yg[] = { "y", "gy" };
    for (int i = 0; i < nx; i++) gx[i] = NULL;
    tn_ctx *cx = tni_args_any("grad", ny, y, NULL);
    if (!cx) return tni_failed();
    for (int i = 0; i < nx; i++)
        if (!tni_args_any("grad", 2, (tn_tensor *const[]){ y[0], x[i] }, yx)) return tni_failed();
    for (int i = 0; gy && i < ny; i++)
        if (gy[i] && !tni_args_any("grad", 2, (tn_tensor *const[]){ y[i], gy[i] }, yg))
            return tni_failed();
    for (int i = 0; i < nx; i++)
        if (!tni_is_float(tni_dtype(x[i])) || (i >= 64 && x[i]->complex))
            return tni_fail_status(cx, TN_EDTYPE, "grad: x[%d] is %s, not a float type", i,
                                   tn_dtype_name(tn_dtype_of(x[i])));
    if (!complex_match(cx, "grad", ny, y, gy)) return tni_failed();
    tn_scope *s = tn_begin(cx);
    if (!s) return TN_EMEM;
    tni_walk_args w  = { .op = "grad", .ny = ny, .y = y, .gy = gy, .nx = nx, .x = x, .gx = gx };
    uint64_t      my = complex_among(ny, y), mx = complex_among(nx, x), mg = complex_among(ny, gy);
    show_complex(y, my, false);
    show_complex(x, mx, false);
    show_complex(gy, mg, false);
    tn_status status = tni_grad_walk(cx, &w, false);
    if (status == TN_OK) show_complex(gx, mx, true);
    show_complex(x, mx, true);
    show_complex(y, my, true);
    show_complex(gy, mg, true);
    for (int i = 0; i < nx && status == TN_OK; i++) {
        tni_scope_remove(gx[i]);
        tni_scope_add(s->outer, gx[i]);
    }
    tni_scope_close(s);
    for (int i = 0; i < nx && status != TN_OK; i++) gx[i] = NULL;
    return status;
}
