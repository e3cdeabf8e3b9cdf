// The reverse walk: from the outputs to the leaves, newest node first. Ids are the order, so there
// is no recursion and no queue of ready nodes.
#include "grad/grad.h"

// The nodes a gradient can reach, oldest first, and beside each its gradient so far. While the walk
// is on, a node's mark is its place in the list plus one.
typedef struct {
    tn_ctx              *cx;
    const tni_walk_args *w;
    size_t               count, cap;
    tni_node           **node;
    tn_tensor          **g;
    bool                *leads;  // to a leaf or node whose gradient is wanted
} walk;

static bool push(walk *k, tni_node *n)
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

// Lists everything reachable through nodes that need gradients, sorted by id.
static bool collect(walk *k)
{
    for (int i = 0; i < k->w->ny; i++) {
        tni_node *n = tni_resolve(k->w->y[i], k->w->op);
        if (!n || (n->needs_grad && !push(k, n))) return false;
    }
    for (size_t i = 0; i < k->count; i++) {
        tni_node *n = k->node[i];
        for (uint32_t s = 0; !n->leaf && s < n->nsrc; s++)
            if (tni_passes_grad_to(n, n->src[s]) && !push(k, n->src[s])) return false;
    }
    if (!tni_nodes_sort(&k->cx->heap, k->count, k->node)) return tni_no_memory(k->cx, k->w->op);
    for (size_t i = 0; i < k->count; i++) k->node[i]->mark = (uint32_t)i + 1;
    return true;
}

static bool accepts(const walk *k, const tni_leaf *l)
{
    return l->handle && (!k->w->accepts || k->w->accepts(l, k->w->user));
}

// The state of the store that a view looks at, behind a leaf's mark.
static const tni_node *state_of(const tni_node *view)
{
    const tni_node *n = view->src[0];
    return n->leaf ? n->src[0] : n;
}

// Whether node n is a view that was made, directly or not, from the view x of the same state.
static bool made_from(const tni_node *n, const tn_tensor *x, const tni_node *resolved)
{
    if (n->op != TNI_view || resolved->op != TNI_view || !x->view || !x->origin) return false;
    const tni_origin *o = n->origin;
    while (o && o != x->origin) o = o->parent;
    return o && state_of(n) == state_of(resolved);
}

// The node whose gradient is that of x.
static tni_node *node_of(const walk *k, tn_tensor *x)
{
    tni_node *n = tni_resolve(x, k->w->op);
    return n && tni_is_permuted(x) ? x->store->node : n;
}

// Whether node n is one whose gradient goes to x: of a leaf all its states, of a view all views
// made from it.
static bool stands_for(const tni_node *n, const tn_tensor *x, const tni_node *resolved)
{
    if (tni_is_leaf(x)) return n->leaf == x->leaf;
    return n == resolved || (!tni_is_permuted(x) && made_from(n, x, resolved));
}

// The gradient g of a view made from x, back through the views in between, one by one. Only a product that
// took one matrix of many equal ones does not tell.
static tn_tensor *back_through(walk *k, const tn_tensor *x, const tni_origin *o, tn_tensor *g)
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

// The gradient g of node n as one of x: through the store's shape, where the two are different
// views of it; but where x has a place of the store twice, that does not tell which was used.
static tn_tensor *as_gradient_of(walk *k, const tn_tensor *x, const tni_node *n, tn_tensor *g)
{
    tni_view v        = tni_node_layout(n);
    bool     permuted = tni_is_permuted(x);  // n is its store's node
    bool     view     = n->op == TNI_view && !n->leaf && !permuted;
    if (!x->view) return g;
    if (view && !tni_view_injective(x->view)) return back_through(k, x, n->origin, g);
    if (view && tni_view_equal(&v, x->view)) return g;
    if (view) {
        tni_view store = tni_node_layout(n->src[0]);
        g              = tni_unview(k->cx, g, v, &store);
    }
    g = g ? tn_contiguous(g) : NULL;
    return g ? tni_wrap_view(g, x->view, NULL, NULL) : NULL;
}

static bool mark_leads(walk *k)
{
    size_t n = k->count ? k->count : 1;
    k->g     = tni_zalloc(&k->cx->heap, n * sizeof *k->g);
    k->leads = tni_zalloc(&k->cx->heap, n * sizeof *k->leads);
    if (!k->g || !k->leads) return tni_no_memory(k->cx, k->w->op);
    for (int i = 0; i < k->w->nx; i++) {
        tni_node *x = node_of(k, k->w->x[i]);
        if (!x) return false;
        for (size_t j = 0; j < k->count; j++)
            if (stands_for(k->node[j], k->w->x[i], x)) k->leads[j] = true;
    }
    for (size_t i = 0; i < k->count; i++) {
        tni_node *node = k->node[i];
        if (node->leaf && !k->w->nx && accepts(k, node->leaf)) k->leads[i] = true;
        for (uint32_t s = 0; !node->leaf && s < node->nsrc; s++)
            if (tni_passes_grad_to(node, node->src[s]) && k->leads[node->src[s]->mark - 1])
                k->leads[i] = true;
    }
    return true;
}

static bool add_to(walk *k, size_t i, tn_tensor *g)
{
    k->g[i] = k->g[i] ? tni_add_gradients(k->cx, k->g[i], g) : g;
    return k->g[i] != NULL;
}

// The outputs' own gradients: what the caller gives, or 1.
static bool seed(walk *k)
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
        if (n->mark && !add_to(k, n->mark - 1, gy)) return false;
    }
    return true;
}

// ---- leaves ------------------------------------------------------------------------------------

static bool is_whole(const tni_node *n)
{
    tni_view v = tni_node_layout(n);
    return tni_view_contiguous(&v);
}

// Adds g, of the shape of the leaf's store, to the leaf's gradient; without history.
static bool deposit(walk *k, tni_leaf *l, tn_tensor *g)
{
    tn_tensor *w = l->handle, *grad = tn_grad_of(w);
    if (w->view) {
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
    bool number = n && (n->constant || n->weak);
    if (n && (number || !is_whole(n))) {
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

// What arrived at an output; NULL if nothing did.
static tn_tensor *gradient_of(const walk *k, const tni_node *output)
{
    return output->mark ? k->g[output->mark - 1] : NULL;
}

static bool visit(walk *k, size_t i, tn_tensor **gx, bool *need)
{
    tni_node     *n                       = k->node[i];
    tn_tensor    *out_g[TNI_MOST_OUTPUTS] = { k->g[i] };
    tni_grad_args r = { .cx = k->cx, .n = n, .g = k->g[i], .gx = gx, .need = need, .out_g = out_g };
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        out_g[o->attr.output.index] = gradient_of(k, o);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        gx[s]   = NULL;
        need[s] = tni_passes_grad_to(n, n->src[s]) && k->leads[n->src[s]->mark - 1];
    }
    if (!tni_grad_rule(&r)) return false;
    for (uint32_t s = 0; s < n->nsrc; s++)
        if (need[s] && gx[s] && !add_to(k, n->src[s]->mark - 1, gx[s])) return false;
    return true;
}

// Whether some gradient arrived: at the node, or at another output of its op.
static bool reached(const walk *k, size_t i)
{
    if (k->g[i]) return true;
    for (const tni_node *o = tni_outputs(k->node[i]); o; o = o->output)
        if (gradient_of(k, o)) return true;
    return false;
}

// What is recorded here belongs to the layer that the node is of.
static bool descend(walk *k)
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
        if (!k->leads[i] || !reached(k, i)) continue;
        if (n->leaf) ok = k->w->nx || !accepts(k, n->leaf) || deposit(k, n->leaf, k->g[i]);
        else {
            tni_self.site.layer = n->site.layer;
            ok                  = visit(k, i, gx, need);
        }
    }
    tni_self.site.layer = layer;
    tni_free(&k->cx->heap, gx);
    tni_free(&k->cx->heap, need);
    return ok;
}

static bool give_results(walk *k)
{
    const tni_walk_args *w = k->w;
    for (int i = 0; i < w->nx; i++) {
        tn_tensor *x = w->x[i], *sum = NULL;
        tni_node  *node = node_of(k, x);
        if (!node) return false;
        for (size_t j = 0; j < k->count; j++) {
            tn_tensor *g = k->g[j];
            if (!g || !stands_for(k->node[j], x, node)) continue;
            if (k->node[j] != node || tni_is_permuted(x)) g = as_gradient_of(k, x, k->node[j], g);
            if (!g) return false;
            sum = sum ? tn_add(sum, g) : g;
            if (!sum) return false;
        }
        w->gx[i] = sum ? tni_share(sum, w->op) : tn_zeros_like(x);
        if (!w->gx[i]) return false;
    }
    return true;
}

// A leaf, or a view of one: it saves nothing, so there is nothing to spend.
static bool is_of_leaf(const tni_node *n)
{
    while (!n->leaf && n->op == TNI_view) n = n->src[0];
    return n->leaf != NULL;
}

// The context remembers what was walked, to spend it when it is next evaluated.
static bool remember(walk *k)
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

tn_status tni_grad_walk(tn_ctx *cx, const tni_walk_args *w, bool mark_spent)
{
    walk     k        = { .cx = cx, .w = w };
    uint64_t failures = cx->failures;
    bool     busy     = cx->busy;
    cx->busy          = true;
    bool ok = collect(&k) && mark_leads(&k) && seed(&k) && descend(&k) && give_results(&k) &&
              (!mark_spent || remember(&k));
    for (size_t i = 0; i < k.count; i++) k.node[i]->mark = 0;
    cx->busy = busy;
    tni_free(&cx->heap, k.node);
    tni_free(&cx->heap, k.g);
    tni_free(&cx->heap, k.leads);
    if (ok) return TN_OK;
    if (cx->failures == failures) tni_fail_memory(cx, w->op);
    return tni_failed();
}
