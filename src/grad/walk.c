// The reverse walk: from the outputs to the leaves, newest node first. Ids are a topological order,
// so there is no recursion and no queue of ready nodes.
//
// Five passes over one list:
//   collect_nodes  lists every node that a gradient could reach, sorted by id
//   mark_leads     marks those from which something wanted (a leaf, an x) can be reached
//   seed_outputs   puts the gradients of the outputs in place
//   visit_nodes    newest first: asks the rule of each node for the gradients of its sources
//                  (rules.c) and adds them up there; at a leaf, deposits what arrived
//   give_results   for tn_grad: sums up what arrived at each x
// Everything is recorded as ordinary ops, so the backward pass is planned and fused with the
// forward pass, and with gradient mode on it can be differentiated again.
#include "grad/grad.h"
#include "ops/complex.h"
#include "tensor/hook.h"

// The nodes that a gradient can reach, oldest first, and beside each its gradient so far (NULL:
// none arrived). Invariant: during the walk, a listed node's mark is its index plus one, and every
// other node's mark is 0; tni_grad_walk clears the marks at the end, also after a failure.
typedef struct {
    tn_ctx              *cx;
    const tni_walk_args *w;
    size_t               count, cap;
    tni_node           **node;
    tn_tensor          **g;
    bool                *leads;  // to a leaf or node whose gradient is wanted
    tni_recomputed       recomputed;
} walk;

// Lists a node once. A node that an earlier backward pass spent has no sources any more, so its
// gradient would silently be incomplete: an error. Leaves are never spent.
static bool push_node(walk *k, tni_node *n)
{
    if (n->mark) return true;
    if (n->spent && !n->leaf)
        return tni_refuse(
            k->cx, TN_EGRAD,
            "%s: the value of %s made at %s was used by an earlier backward pass and its "
            "history is gone",
            k->w->op, tni_shape_text(n->rank, n->size).s, tni_site_text(&n->site).s);
    if (!tni_grow(&k->cx->heap, (void **)&k->node, &k->cap, k->count + 1, sizeof *k->node))
        return tni_no_memory(k->cx, k->w->op);
    k->node[k->count++] = n;
    n->mark             = 1;
    return true;
}

// Lists everything reachable through nodes that need gradients, sorted by id. The list is its own
// work queue: it grows while it is read.
static bool collect_nodes(walk *k)
{
    for (int i = 0; i < k->w->ny; i++) {
        tni_node *n = tni_resolve(k->w->y[i], k->w->op);
        if (!n || (n->needs_grad && !push_node(k, n))) return false;
    }
    for (size_t i = 0; i < k->count; i++) {
        tni_node *n = k->node[i];
        for (uint32_t s = 0; !n->leaf && s < n->nsrc; s++)
            if (tni_passes_grad_to(n, n->src[s]) && !push_node(k, n->src[s])) return false;
    }
    if (!tni_nodes_sort(&k->cx->heap, k->count, k->node)) return tni_no_memory(k->cx, k->w->op);
    for (size_t i = 0; i < k->count; i++) k->node[i]->mark = (uint32_t)i + 1;
    return true;
}

// Whether gradients for this leaf are wanted: its handle is alive, and the caller (an optimizer)
// has it.
static bool accepts_leaf(const walk *k, const tni_leaf *l)
{
    return l->handle && (!k->w->accepts || k->w->accepts(l, k->w->user));
}

// The state of the store that a view looks at, behind a leaf's mark if there is one.
static const tni_node *store_state(const tni_node *view)
{
    const tni_node *n = view->src[0];
    return n->leaf ? n->src[0] : n;
}

// Whether two views look at the same state of a store, or at a leaf and its copy in 16 bits.
static bool same_state(const tni_node *a, const tni_node *b)
{
    const tni_leaf *l = a->src[0]->leaf;
    return store_state(a) == store_state(b) || (l && l == b->src[0]->leaf && a->dtype != b->dtype);
}

// Whether node n is a view that was made, directly or through others, from the view x of the same
// state of the store. The views' chain of origins tells (tensor.h): both look straight at the
// store.
static bool made_from(const tni_node *n, const tn_tensor *x, const tni_node *resolved)
{
    if (n->op != TNI_view || resolved->op != TNI_view || !x->view || !x->origin) return false;
    const tni_origin *o = n->origin;
    while (o && o != x->origin) o = o->parent;
    return o && same_state(n, resolved);
}

// The node whose gradient is that of x.
static tni_node *gradient_node(const walk *k, tn_tensor *x)
{
    tni_node *n = tni_resolve(x, k->w->op);
    return n && tni_is_permuted(x) ? x->store->node : n;
}

// Whether the gradient of node n contributes to that of x: for a leaf all its states, for a view
// all views made from it.
static bool stands_for(const tni_node *n, const tn_tensor *x, const tni_node *resolved)
{
    if (tni_is_leaf(x)) return n->leaf == x->leaf;
    return n == resolved || (!tni_is_permuted(x) && made_from(n, x, resolved));
}

// The gradient g of a view made from x, taken back through the views in between one by one, by each
// origin's `within`. Needed where x has an element of the store twice. An origin without `within`
// comes from a product that took one matrix of a broadcast batch (fold_batch in product.c): that
// cannot be undone.
static tn_tensor *unview_through(walk *k, const tn_tensor *x, const tni_origin *o, tn_tensor *g)
{
    for (; g && o != x->origin; o = o->parent) {
        const tni_view *parent = o->parent == x->origin ? x->view : &o->parent->within;
        if (!o->has_within)
            return tni_fail(k->cx, TN_EGRAD,
                            "%s: x %s is an expanded view of which a product took one matrix; take "
                            "the gradient of a tn_clone of it",
                            k->w->op, tni_shape_of(x).s);
        g = tni_unview(k->cx, g, o->within, parent);
    }
    return g;
}

// Turns the gradient g of node n into one of x's shape. Two different views of one store meet in
// the store's shape: g is scattered into it (tni_unview), then x's view of that is read. Where x
// has an element of the store twice, the store's shape does not tell which of them was used, and
// the origins do.
static tn_tensor *as_gradient_of(walk *k, const tn_tensor *x, const tni_node *n, tn_tensor *g)
{
    tni_view v        = tni_node_layout(n);
    bool     permuted = tni_is_permuted(x);  // n is its store's node
    bool     view     = n->op == TNI_view && !n->leaf && !permuted;
    if (!x->view) return g;
    if (view && !tni_view_injective(x->view)) return unview_through(k, x, n->origin, g);
    if (view && tni_view_equal(&v, x->view)) return g;
    if (view) {
        tni_view store = tni_node_layout(n->src[0]);
        g              = tni_unview(k->cx, g, v, &store);
    }
    g = g ? tn_contiguous(g) : NULL;
    return g ? tni_wrap_view(g, x->view, NULL, NULL) : NULL;
}

// Oldest first, so that a source is marked before its consumers look at it. Rules of nodes that
// lead to nothing wanted never run: a frozen layer costs nothing.
static bool mark_leads(walk *k)
{
    size_t n = k->count ? k->count : 1;
    k->g     = tni_zalloc(&k->cx->heap, n * sizeof *k->g);
    k->leads = tni_zalloc(&k->cx->heap, n * sizeof *k->leads);
    if (!k->g || !k->leads) return tni_no_memory(k->cx, k->w->op);
    for (int i = 0; i < k->w->nx; i++) {
        tni_node *x = gradient_node(k, k->w->x[i]);
        if (!x) return false;
        for (size_t j = 0; j < k->count; j++)
            if (stands_for(k->node[j], k->w->x[i], x)) k->leads[j] = true;
    }
    for (size_t i = 0; i < k->count; i++) {
        tni_node *node = k->node[i];
        if (node->leaf && !k->w->nx && accepts_leaf(k, node->leaf)) k->leads[i] = true;
        for (uint32_t s = 0; !node->leaf && s < node->nsrc; s++)
            if (tni_passes_grad_to(node, node->src[s]) && k->leads[node->src[s]->mark - 1])
                k->leads[i] = true;
    }
    return true;
}

// A value with several consumers gets the sum of what they send.
static bool add_gradient(walk *k, size_t i, tn_tensor *g)
{
    k->g[i] = k->g[i] ? tni_add_gradients(k->cx, k->g[i], g) : g;
    return k->g[i] != NULL;
}

// The gradients of the outputs themselves: gy if the caller gives it, else 1 for a single element.
// A gy of another dtype is cast to y's.
static bool seed_outputs(walk *k)
{
    const tni_walk_args *w = k->w;
    for (int i = 0; i < w->ny; i++) {
        tn_tensor *y = w->y[i], *gy = w->gy ? w->gy[i] : NULL;
        tni_view   v = tni_layout(y);
        if (!gy && tn_count(y) != 1)
            return tni_refuse(k->cx, TN_EARG, "%s: y %s is not one element, so gy is needed", w->op,
                              tni_shape_of(y).s);
        if (gy) {
            tni_view vg = tni_layout(gy);
            if (!tni_shape_equal(v.rank, v.size, vg.rank, vg.size))
                return tni_refuse(k->cx, TN_ESHAPE, "%s: y %s and gy %s differ", w->op,
                                  tni_shape_of(y).s, tni_shape_of(gy).s);
            if (tn_dtype_of(gy) != tn_dtype_of(y)) gy = tn_cast(gy, tn_dtype_of(y));
        } else {
            gy = tn_ones_like(y);
        }
        tni_node *n = tni_resolve(y, w->op);
        if (!gy || !n) return false;
        if (n->mark && !add_gradient(k, n->mark - 1, gy)) return false;
    }
    return true;
}

// ---- leaves ------------------------------------------------------------------------------------

// Whether the node's elements are one run of memory in order.
static bool is_row_major(const tni_node *n)
{
    tni_view v = tni_node_layout(n);
    return tni_view_contiguous(&v);
}

// Adds g, of the shape of the leaf's store, to the leaf's gradient, without history. Of the leaf's
// copy in 16 bits (tni_wrap_low) it has the copy's dtype, and is cast. The gradient's
// own store is bound to the sum, as by a write, so a handle that the user has of it sees the new
// value. What is bound is always a row-major node of its own: not a view, which would keep a larger
// buffer alive, and not a plain number, which a failed step could not roll back to and which has no
// dtype of its own.
static bool deposit_gradient(walk *k, tni_leaf *l, tn_tensor *g)
{
    tn_tensor *w = l->handle, *grad = tni_pairs(tn_grad_of(w));
    if (g && grad && tn_dtype_of(g) != tni_dtype(grad)) g = tn_cast(g, tni_dtype(grad));
    if (g && w->view) {
        g = tn_contiguous(g);
        g = g ? tni_wrap_view(g, w->view, NULL, NULL) : NULL;
    }
    if (!g || !grad) return false;
    bool mode        = k->cx->grad_mode;
    k->cx->grad_mode = false;
    if (tn_has_grad(w)) g = tn_add(grad, g);
    else if (tn_needs_grad(g)) g = tn_detach(g);
    tni_node *n = g ? tni_resolve(g, k->w->op) : NULL;
    // A number would be no gradient of a step that failed, and has no dtype of its own.
    // A constant is never computed, so it would survive a failed step as if the step had succeeded.
    bool number = n && (n->constant || n->weak);
    if (n && (number || !is_row_major(n))) {
        g = number ? tni_record(k->cx, TNI_copy, (tn_dtype)n->dtype, n->rank, n->size, 1, &n, NULL)
                   : tn_contiguous(g);
        n = g ? g->store->node : NULL;
    }
    k->cx->grad_mode = mode;
    if (!n) return false;
    if (l->zeros && l->zeros->state != TNI_PENDING) {
        tni_node_unref(k->cx, l->zeros);
        l->zeros = NULL;
    }
    tni_store_bind(k->cx, grad->store, tni_node_ref(n));
    grad->store->assigned = true;
    l->has_grad           = true;
    return true;
}

// ---- nodes -------------------------------------------------------------------------------------

// The gradient that arrived at an output; NULL if none did.
static tn_tensor *gradient_at(const walk *k, const tni_node *output)
{
    return output->mark ? k->g[output->mark - 1] : NULL;
}

// The node that a rule takes values from: n, or its copy if n is part of a layer that is
// recomputed, whose values are then computed again here. NULL, reported, on failure.
static tni_node *node_with_values(walk *k, tni_node *n)
{
    if (!n->copy && tni_is_recomputed(n) &&
        !tni_recompute_region(k->cx, k->w->op, &k->recomputed, n, k->count, k->node, k->leads))
        return NULL;
    return n->copy ? n->copy : n;
}

// Asks the rule of node i for the gradients of its sources and adds each to what arrived there.
// Only sources that lead to something wanted are asked for (need). A rule sees the gradients of all
// outputs of its op.
static bool apply_rule(walk *k, size_t i, tn_tensor **gx, bool *need)
{
    tni_node  *n                       = k->node[i], *values;
    tn_tensor *out_g[TNI_MOST_OUTPUTS] = { k->g[i] };
    if (!(values = node_with_values(k, n))) return false;
    tni_grad_args r = {
        .cx = k->cx, .n = values, .g = k->g[i], .gx = gx, .need = need, .out_g = out_g
    };
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        out_g[o->attr.output.index] = gradient_at(k, o);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        gx[s]   = NULL;
        need[s] = tni_passes_grad_to(n, n->src[s]) && k->leads[n->src[s]->mark - 1];
    }
    if (!tni_grad_rule(&r)) return false;
    for (uint32_t s = 0; s < n->nsrc; s++)
        if (need[s] && gx[s] && !add_gradient(k, n->src[s]->mark - 1, gx[s])) return false;
    return true;
}

// Whether a gradient arrived at the node or at another output of its op.
static bool has_gradient(const walk *k, size_t i)
{
    if (k->g[i]) return true;
    for (const tni_node *o = tni_outputs(k->node[i]); o; o = o->output)
        if (gradient_at(k, o)) return true;
    return false;
}

// A leaf has a node for each state, and each of them gets a part of its gradient. If it has hooks,
// the parts are added up at its oldest node, where the hooks run once.
static bool gather_leaf(walk *k, size_t i)
{
    const tni_node *n     = k->node[i];
    size_t          first = i;
    if (!tni_hook_of(k->cx, n, 0)) return true;
    for (size_t j = 0; j < i && first == i; j++)
        if (k->node[j]->leaf == n->leaf && k->leads[j]) first = j;
    tn_tensor *g = k->g[i];
    if (first == i) return (k->g[i] = tni_hooks_run(k->cx, n, g)) != NULL;
    tn_dtype dt = (tn_dtype)k->node[first]->dtype;
    if (tn_dtype_of(g) != dt) g = tn_cast(g, dt);
    k->g[i] = NULL;
    return g && add_gradient(k, first, g);
}

// Deposits what arrived at a leaf.
static bool visit_leaf(walk *k, size_t i)
{
    const tni_node *n = k->node[i];
    if (k->cx->hooks && !gather_leaf(k, i)) return false;
    return !k->g[i] || k->w->nx || !accepts_leaf(k, n->leaf) ||
           deposit_gradient(k, n->leaf, k->g[i]);
}

// Newest first, so that every consumer of a node has run before the node itself. What a rule
// records belongs to the layer of the node, for profiles and messages, hence the switch of the
// site's layer.
static bool visit_nodes(walk *k)
{
    const tni_path *layer = tni_self.site.layer;
    size_t          most  = 1;
    for (size_t i = 0; i < k->count; i++)
        if (k->node[i]->nsrc > most) most = k->node[i]->nsrc;
    tn_tensor **gx   = tni_alloc(&k->cx->heap, most * sizeof *gx);
    bool       *need = tni_alloc(&k->cx->heap, most * sizeof *need);
    bool        ok   = gx && need;
    if (!ok) tni_fail_memory(k->cx, k->w->op);
    for (size_t i = k->count; ok && i-- > 0;) {
        tni_node *n = k->node[i];
        if (!k->leads[i] || !has_gradient(k, i)) continue;
        if (n->leaf) ok = visit_leaf(k, i);
        else {
            tni_self.site.layer = n->site.layer;
            if (n->hooked && k->g[i]) ok = (k->g[i] = tni_hooks_run(k->cx, n, k->g[i])) != NULL;
            ok = ok && apply_rule(k, i, gx, need);
        }
    }
    tni_self.site.layer = layer;
    tni_free(&k->cx->heap, gx);
    tni_free(&k->cx->heap, need);
    return ok;
}

// Whether x can be differentiated by: values that were replaced by one call of attention have no
// gradient of their own, and zeros would be wrong.
static bool is_there(walk *k, const tn_tensor *x, const tni_node *n)
{
    while (n->op == TNI_view && !n->leaf) n = n->src[0];
    if (!n->replaced) return true;
    return tni_refuse(
        k->cx, TN_EGRAD,
        "%s: x %s is a part of attention, which was recorded as one call; where it is "
        "computed first (tn_eval_of), attention stays as it was written",
        k->w->op, tni_shape_of(x).s);
}

// For tn_grad: the sum of everything that stands for x, or zeros if nothing arrived. tni_share
// gives each result a store of its own, as two x may have the same gradient.
static bool give_results(walk *k)
{
    const tni_walk_args *w = k->w;
    for (int i = 0; i < w->nx; i++) {
        tn_tensor *x = w->x[i], *sum = NULL;
        tni_node  *node = gradient_node(k, x);
        if (!node || !is_there(k, x, node)) return false;
        for (size_t j = 0; j < k->count; j++) {
            tn_tensor *g = k->g[j];
            if (!g || !stands_for(k->node[j], x, node)) continue;
            if (k->node[j] != node || tni_is_permuted(x)) g = as_gradient_of(k, x, k->node[j], g);
            if (g && tn_dtype_of(g) != tn_dtype_of(x)) g = tn_cast(g, tn_dtype_of(x));
            if (!g) return false;
            sum = sum ? tn_add(sum, g) : g;
            if (!sum) return false;
        }
        w->gx[i] = sum ? tni_share(sum, w->op) : tn_zeros_like(x);
        if (!w->gx[i]) return false;
    }
    return true;
}

// A leaf, or a view of one: it saves nothing for the backward pass, so nothing of it can be spent.
static bool is_of_leaf(const tni_node *n)
{
    while (!n->leaf && n->op == TNI_view) n = n->src[0];
    return n->leaf != NULL;
}

// The context remembers what was walked, to mark it spent at the next evaluation: only then is the
// backward pass itself computed and needs the saved values no more.
static bool remember_walked(walk *k)
{
    tn_ctx *cx = k->cx;
    if (!tni_grow(&cx->heap, (void **)&cx->walked, &cx->walked_cap, cx->walked_count + k->count,
                  sizeof *cx->walked))
        return tni_no_memory(cx, k->w->op);
    for (size_t i = 0; i < k->count; i++) {
        tni_node *n = k->node[i];
        if (!k->leads[i] || n->walked || is_of_leaf(n)) continue;
        n->walked                      = true;
        cx->walked[cx->walked_count++] = tni_node_ref(n);
    }
    return true;
}

// busy keeps recording from evaluating in the middle of the walk: marks and pointers into the graph
// would not survive it. Autocast is off: a gradient is computed in the dtype of what it is for. A
// failure that was not reported can only be memory.
tn_status tni_grad_walk(tn_ctx *cx, const tni_walk_args *w, bool mark_spent)
{
    walk     k        = { .cx = cx, .w = w };
    uint64_t failures = cx->failures;
    bool     busy     = cx->busy;
    tn_dtype mode     = cx->autocast;
    cx->busy          = true;
    cx->autocast      = TN_F32;
    bool ok = collect_nodes(&k) && mark_leads(&k) && seed_outputs(&k) && visit_nodes(&k) &&
              give_results(&k) && (!mark_spent || remember_walked(&k));
    for (size_t i = 0; i < k.count; i++) k.node[i]->mark = 0;
    tni_recomputed_free(cx, &k.recomputed);
    cx->busy     = busy;
    cx->autocast = mode;
    tni_free(&cx->heap, k.node);
    tni_free(&cx->heap, k.g);
    tni_free(&cx->heap, k.leads);
    if (ok) return TN_OK;
    if (cx->failures == failures) tni_fail_memory(cx, w->op);
    return tni_failed();
}
