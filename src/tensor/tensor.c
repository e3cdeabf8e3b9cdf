// Stores, handles and leaves, and the node that a handle stands for.
#include "tensor/context.h"

#include <string.h>

// ---- stores ------------------------------------------------------------------------------------

static void list_store(tn_ctx *cx, tni_store *s)
{
    if (s->listed) return;
    s->listed = true;
    s->prev   = NULL;
    s->next   = cx->pending;
    if (s->next) s->next->prev = s;
    cx->pending = s;
    cx->pending_stores++;
}

static void unlist_store(tn_ctx *cx, tni_store *s)
{
    if (!s->listed) return;
    s->listed = false;
    if (s->next) s->next->prev = s->prev;
    if (s->prev) s->prev->next = s->next;
    else cx->pending = s->next;
    cx->pending_stores--;
}

// Takes over the reference to n.
static void set_fallback(tn_ctx *cx, tni_store *s, tni_node *n)
{
    tni_node *old = s->done;
    s->done       = n;
    if (n) n->fallback++;
    if (old) old->fallback--;
    tni_node_unref(cx, old);
}

void tni_store_settle(tn_ctx *cx, tni_store *s)
{
    unlist_store(cx, s);
    s->wanted = s->assigned = false;
    set_fallback(cx, s, NULL);
}

// Forgets a handle's cached node.
static void uncache(tn_tensor *t)
{
    if (!t->node) return;
    if (t->view_next) t->view_next->view_prev = t->view_prev;
    if (t->view_prev) t->view_prev->view_next = t->view_next;
    else t->store->views = t->view_next;
    tni_node *n = t->node;
    t->node     = NULL;
    tni_node_unhold(t->cx, n);
}

// Takes over the reference to n.
static void cache(tn_tensor *t, tni_node *n)
{
    n->handles++;
    t->node      = n;
    t->view_prev = NULL;
    t->view_next = t->store->views;
    if (t->view_next) t->view_next->view_prev = t;
    t->store->views = t;
}

void tni_store_bind(tn_ctx *cx, tni_store *s, tni_node *n)
{
    while (s->views) uncache(s->views);
    tni_node *old = s->node;
    s->node       = n;
    n->handles++;
    old->handles--;
    if (n->state == TNI_PENDING) {
        if (old->state == TNI_DONE && !n->constant) {
            set_fallback(cx, s, old);
            old = NULL;
        }
        list_store(cx, s);
    } else {
        tni_store_settle(cx, s);
    }
    tni_node_unref(cx, old);
}

static void store_unref(tn_ctx *cx, tni_store *s)
{
    if (--s->refs) return;
    unlist_store(cx, s);
    set_fallback(cx, s, NULL);
    tni_node_unhold(cx, s->node);
    tni_slab_give(&cx->stores, s);
}

// ---- handles -----------------------------------------------------------------------------------

void tni_scope_add(tn_scope *s, tn_tensor *t)
{
    t->scope = s;
    t->prev  = NULL;
    t->next  = s->newest;
    if (t->next) t->next->prev = t;
    s->newest = t;
}

void tni_scope_remove(tn_tensor *t)
{
    if (!t->scope) return;
    if (t->next) t->next->prev = t->prev;
    if (t->prev) t->prev->next = t->next;
    else t->scope->newest = t->next;
    t->scope = NULL;
}

// NULL when memory is out, which the caller reports when nothing is half way.
static tn_tensor *new_handle(tn_ctx *cx, tni_store *s)
{
    tn_tensor *t = tni_slab_take(&cx->tensors);
    if (!t) return NULL;
    memset(t, 0, sizeof *t);
    t->magic = TNI_LIVE;
    t->cx    = cx;
    t->store = s;
    s->refs++;
    s->unused++;
    if (tni_self.depth > 0) {
        t->temp     = true;
        t->frame    = tni_self.frame;
        tni_self.cx = cx;
    }
    tni_scope_add(cx->scope, t);
    return t;
}

tn_tensor *tni_wrap(tn_ctx *cx, tni_node *n)
{
    if (!n) return NULL;
    tni_store *s = tni_slab_take(&cx->stores);
    if (!s) {
        tni_node_unref(cx, n);
        return tni_fail_memory(cx, "recording");
    }
    memset(s, 0, sizeof *s);
    s->refs  = 1;
    s->depth = cx->scope->depth;
    s->node  = n;
    n->handles++;
    tn_tensor *t = new_handle(cx, s);
    if (n->state == TNI_PENDING && t) list_store(cx, s);
    store_unref(cx, s);
    return t ? t : tni_fail_memory(cx, "recording");
}

// Something is made from t: a step boundary need not store it for its own sake.
static void use(tn_tensor *t)
{
    if (t->used) return;
    t->used = true;
    t->store->unused--;
}

static tni_origin *new_origin(tn_ctx *cx, tni_origin *parent)
{
    tni_origin *o = tni_slab_take(&cx->origins);
    if (!o) return tni_fail_memory(cx, "recording");
    o->refs   = 1;
    o->told   = false;
    o->parent = parent;
    if (parent) parent->refs++;
    return o;
}

void tni_origin_unref(tn_ctx *cx, tni_origin *o)
{
    while (o && --o->refs == 0) {
        tni_origin *parent = o->parent;
        tni_slab_give(&cx->origins, o);
        o = parent;
    }
}

// t is a view of x, which is one itself: from here on both are told apart.
static bool link_origins(tn_tensor *t, tn_tensor *x, tni_view_step *step, const void *how)
{
    tn_ctx *cx = x->cx;
    if (!x->view || x->detached || !(x->leaf || x->store->node->needs_grad)) return true;
    if (!x->origin && !(x->origin = new_origin(cx, NULL))) return false;
    if (!(t->origin = new_origin(cx, x->origin))) return false;
    t->origin->within = tni_view_whole(x->view->rank, x->view->size);
    t->origin->told   = step && step(&t->origin->within, how);
    return true;
}

tn_tensor *tni_wrap_view(tn_tensor *x, const tni_view *v, tni_view_step *step, const void *how)
{
    tn_ctx   *cx  = x->cx;
    tni_view *own = tni_slab_take(&cx->views);
    if (!own) return tni_fail_memory(cx, "recording");
    *own         = *v;
    tn_tensor *t = new_handle(cx, x->store);
    if (!t) {
        tni_slab_give(&cx->views, own);
        return tni_fail_memory(cx, "recording");
    }
    use(x);
    t->view     = own;
    t->is_view  = true;
    t->detached = x->detached || !cx->grad_mode;
    if (x->leaf && cx->grad_mode) t->leaf = tni_leaf_ref(x->leaf);
    if (link_origins(t, x, step, how)) return t;
    tni_tensor_free(t);
    return NULL;
}

tn_tensor *tni_wrap_node(tn_ctx *cx, tni_node *n)
{
    tni_view v = tni_node_layout(n);
    if (n->op != TNI_VIEW_OP || n->leaf || tni_view_contiguous(&v))
        return tni_wrap(cx, tni_node_ref(n));
    tn_tensor *t = tni_wrap(cx, tni_node_ref(n->src[0]));
    if (!t) return NULL;
    t->view = tni_slab_take(&cx->views);
    if (!t->view) {
        tni_tensor_free(t);
        return tni_fail_memory(cx, "recording");
    }
    *t->view    = v;
    t->detached = !n->needs_grad;
    if (n->origin) {
        t->origin = n->origin;
        n->origin->refs++;
    }
    cache(t, tni_node_ref(n));  // n itself, so that a gradient with respect to n passes here
    return t;
}

tn_tensor *tni_lay(tn_tensor *y, const int *order)
{
    if (!y) return NULL;
    tn_ctx   *cx  = y->cx;
    tni_view *own = tni_slab_take(&cx->views);
    if (!own) {
        tni_tensor_free(y);
        return tni_fail_memory(cx, "recording");
    }
    *own = tni_layout(y);
    tni_view_unpermute(own, order);
    y->view = own;
    y->laid = true;
    return y;
}

void tni_tensor_free(tn_tensor *t)
{
    tn_ctx *cx = t->cx;
    uncache(t);
    tni_scope_remove(t);
    if (tni_is_leaf(t)) tni_leaf_end(cx, t->leaf);
    if (t->leaf) tni_leaf_unref(cx, t->leaf);
    if (t->view) tni_slab_give(&cx->views, t->view);
    tni_origin_unref(cx, t->origin);
    tni_free(&cx->heap, t->name);
    use(t);
    store_unref(cx, t->store);
    t->magic = TNI_DEAD;
    tni_slab_give(&cx->tensors, t);
}

void tni_tensor_own(tn_tensor *t)
{
    tni_scope_remove(t);
    tni_scope_add(&t->cx->owned, t);
    t->temp         = false;
    t->store->depth = 0;
    t->owners++;
}

void tni_tensor_disown(tn_tensor *t)
{
    if (--t->owners == 0) tni_tensor_free(t);
}

tni_view tni_layout(const tn_tensor *x)
{
    if (x->view) return *x->view;
    return tni_view_whole(x->store->node->rank, x->store->node->size);
}

// ---- leaves ------------------------------------------------------------------------------------

tni_leaf *tni_leaf_ref(tni_leaf *l)
{
    l->refs++;
    return l;
}

void tni_leaf_unref(tn_ctx *cx, tni_leaf *l)
{
    if (--l->refs) return;
    tni_slab_give(&cx->leaves, l);
}

void tni_leaf_end(tn_ctx *cx, tni_leaf *l)
{
    tn_tensor *grad  = l->grad;
    tni_node  *zeros = l->zeros;
    l->handle = l->grad = NULL;
    l->zeros            = NULL;
    if (grad) tni_tensor_disown(grad);
    tni_node_unref(cx, zeros);
}

// The store's node with the leaf's mark on it: gradients stop there.
static tni_node *mark_leaf(tn_ctx *cx, tni_leaf *l, tni_node *base)
{
    tni_view  v = tni_view_whole(base->rank, base->size);
    tni_node *n = tni_node_view(cx, base, &v);
    if (!n) return NULL;
    n->needs_grad = true;
    n->spent      = false;
    n->leaf       = tni_leaf_ref(l);
    return n;
}

// ---- resolving ---------------------------------------------------------------------------------

static tni_node *gone(tn_tensor *x, const char *op, const tni_node *n)
{
    return tni_fail(x->cx, TN_EGONE,
                    "%s: the value of %s made at %s was not stored by the step that ended at "
                    "%s:%d; tn_want or tn_keep it before",
                    tni_self.site.op ? tni_self.site.op : op, tni_shape_of(x).s,
                    tni_site_text(&n->site).s, n->attr.gone.file, n->attr.gone.line);
}

// The node of a view, a leaf or a cut value, which x keeps; NULL, reported, on failure.
static tni_node *make_node(tn_tensor *x, tni_node *base, bool cut)
{
    tn_ctx   *cx = x->cx;
    tni_node *n  = tni_node_ref(base);
    if (x->leaf) {
        tni_node *marked = mark_leaf(cx, x->leaf, n);
        tni_node_unref(cx, n);
        if (!(n = marked)) return NULL;
    }
    if (x->view || (cut && !x->leaf)) {
        tni_view v    = tni_layout(x);
        bool     mode = cx->grad_mode;
        // A view passes gradients on whatever the mode: it is the same value, not a new one.
        cx->grad_mode    = true;
        tni_node *viewed = tni_node_view(cx, n, &v);
        cx->grad_mode    = mode;
        tni_node_unref(cx, n);
        if (!(n = viewed)) return NULL;
        if (cut && !x->leaf) n->needs_grad = false;
        if (x->view && n->needs_grad) {
            if (!x->origin && !(x->origin = new_origin(cx, NULL))) {
                tni_node_unref(cx, n);
                return NULL;
            }
            n->origin = x->origin;
            n->origin->refs++;
        }
    }
    cache(x, n);
    return n;
}

// Whether a view is all of its base as it lies.
static bool is_all(const tni_view *v, const tni_node *base)
{
    return !v->offset && tni_shape_equal(v->rank, v->size, base->rank, base->size) &&
           tni_view_contiguous(v);
}

tni_node *tni_resolve(tn_tensor *x, const char *op)
{
    tni_node *base = x->store->node;
    if (base->state == TNI_GONE) return gone(x, op, base);
    use(x);
    bool cut = x->detached && base->needs_grad;
    if (!x->leaf && !cut && (!x->view || (!base->needs_grad && is_all(x->view, base)))) return base;
    // A step need not have kept this view, but the base is there: then it is viewed again.
    if (x->node && x->node->state == TNI_GONE) uncache(x);
    if (x->node) return x->node;
    return make_node(x, base, cut);
}

tni_node *tni_resolve_cut(tn_tensor *x, const tni_view *v, const char *op)
{
    tni_node *base = x->store->node;
    if (base->state == TNI_GONE) return gone(x, op, base);
    use(x);
    if (!base->needs_grad && is_all(v, base)) return tni_node_ref(base);
    tni_node *n = tni_node_view(x->cx, base, v);
    if (n) n->needs_grad = false;
    return n;
}

tni_node *tni_resolve_as(tn_tensor *x, const tni_view *v, tni_view_step *step, const void *how,
                         const char *op)
{
    tni_node *base  = x->store->node;
    bool      plain = base->state != TNI_GONE && !x->leaf && (!base->needs_grad || tni_is_laid(x));
    if (plain && is_all(v, base)) {
        use(x);
        return base;
    }
    tn_tensor *t = tni_wrap_view(x, v, step, how);
    return t ? tni_resolve(t, op) : NULL;
}
