// Stores, handles and leaves, and the node that a handle stands for.
#include "tensor/context.h"

#include <string.h>

// ---- stores ------------------------------------------------------------------------------------

static void unlist_store(tn_ctx *cx, tni_store *s)
{
    if (!s->list) return;
    if (s->next) s->next->prev = s->prev;
    if (s->prev) s->prev->next = s->next;
    else *s->list = s->next;
    cx->pending_stores -= s->list == &cx->pending;
    s->list = NULL;
}

static inline void push_store(tn_ctx *cx, tni_store *s, tni_store **list)
{
    s->list = list;
    s->prev = NULL;
    s->next = *list;
    if (s->next) s->next->prev = s;
    *list = s;
    cx->pending_stores += list == &cx->pending;
}

static void list_store(tn_ctx *cx, tni_store *s, tni_store **list)
{
    if (s->list == list) return;
    unlist_store(cx, s);
    push_store(cx, s, list);
}

// Takes over the reference to n.
static void set_rollback(tn_ctx *cx, tni_store *s, tni_node *n)
{
    tni_node *old = s->rollback;
    s->rollback   = n;
    if (n) n->rollbacks++;
    if (old) old->rollbacks--;
    tni_node_overwrite(cx, old, s->node, s->number);
}

void tni_store_mark_computed(tn_ctx *cx, tni_store *s)
{
    unlist_store(cx, s);
    s->wanted = s->assigned = false;
    if (s->rollback) set_rollback(cx, s, NULL);
    if (s->node->state == TNI_UNSTORED) list_store(cx, s, &s->node->waiting);
}

// Forgets a handle's cached node.
static void uncache(tn_tensor *t)
{
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
            set_rollback(cx, s, old);
            old = NULL;
        }
        // A constant is there at any time, so what was before it is not returned to.
        if (n->constant && s->rollback) set_rollback(cx, s, NULL);
        list_store(cx, s, &cx->pending);
    } else {
        tni_store_mark_computed(cx, s);
    }
    tni_node_overwrite(cx, old, n, s->number);
}

void tni_store_mark_pending(tn_ctx *cx, tni_store *s)
{
    list_store(cx, s, &cx->pending);
}

static void store_unref(tn_ctx *cx, tni_store *s)
{
    if (--s->refs) return;
    unlist_store(cx, s);
    if (s->rollback) set_rollback(cx, s, NULL);
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
    if (n->state == TNI_PENDING && t) push_store(cx, s, &cx->pending);
    if (n->state == TNI_UNSTORED && t) push_store(cx, s, &n->waiting);
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
    o->refs       = 1;
    o->has_within = false;
    o->parent     = parent;
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
static bool link_origins(tn_tensor *t, tn_tensor *x, tni_view_fn *step, const void *how)
{
    tn_ctx *cx = x->cx;
    if (!x->view || x->detached || !(x->leaf || x->store->node->needs_grad)) return true;
    if (!x->origin && !(x->origin = new_origin(cx, NULL))) return false;
    if (!(t->origin = new_origin(cx, x->origin))) return false;
    t->origin->within     = tni_view_whole(x->view->rank, x->view->size);
    t->origin->has_within = step && step(&t->origin->within, how);
    return true;
}

tn_tensor *tni_wrap_view(tn_tensor *x, const tni_view *v, tni_view_fn *step, const void *how)
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

tn_tensor *tni_show_permuted(tn_tensor *y, const int *order)
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
    y->view     = own;
    y->permuted = true;
    return y;
}

void tni_tensor_free(tn_tensor *t)
{
    tn_ctx *cx = t->cx;
    if (t->node) uncache(t);
    tni_scope_remove(t);
    if (tni_is_leaf(t)) tni_leaf_end(cx, t->leaf);
    if (t->leaf) tni_leaf_unref(cx, t->leaf);
    if (t->view) tni_slab_give(&cx->views, t->view);
    if (t->origin) tni_origin_unref(cx, t->origin);
    if (t->name) tni_free(&cx->heap, t->name);
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

static const char *name_among(const tn_scope *s, uint64_t store)
{
    for (const tn_tensor *t = s->newest; t; t = t->next)
        if (t->name && t->store->number == store) return t->name;
    return NULL;
}

// " \"weight\"" of a store that may be there no more; nothing where no tensor of it has a name.
static tni_text name_of(const tn_ctx *cx, uint64_t store)
{
    tni_text    t    = { "" };
    const char *name = name_among(&cx->owned, store);
    for (const tn_scope *s = cx->scope; s && !name; s = s->outer) name = name_among(s, store);
    if (name) tni_text_add(&t, " \"%s\"", name);
    return t;
}

// The value of x cannot be had: its step failed, or `lost`, which it would be computed from, is gone.
static tni_node *gone(tn_tensor *x, const char *op, const tni_node *lost)
{
    const tni_node *n   = x->store->node;
    const tni_lost *why = &lost->attr.lost;
    tni_text        at  = tni_site_text(&why->site);
    const char     *by  = tni_self.site.op ? tni_self.site.op : op;
    if (why->how == TNI_LOST_FAILED)
        return tni_fail(x->cx, TN_EGONE,
                        "%s: the value of %s made at %s belongs to a step that failed at %s", by,
                        tni_shape_of(x).s, tni_site_text(&n->site).s, at.s);
    bool written = why->how == TNI_LOST_OVERWRITTEN;
    return tni_fail(x->cx, TN_EGONE,
                    "%s: the value of %s made at %s was not stored and cannot be computed again: "
                    "%s%s, made at %s, was %s at %s; tn_want or tn_keep what is read later",
                    by, tni_shape_of(x).s, tni_site_text(&n->site).s,
                    tni_shape_text(lost->rank, lost->size).s,
                    written ? name_of(x->cx, why->store).s : "", tni_site_text(&lost->site).s,
                    written ? "overwritten" : "given back", at.s);
}

tni_node *tni_store_reschedule(tn_tensor *x, const char *op)
{
    tni_node       *n    = x->store->node;
    const tni_node *lost = tni_node_reschedule(x->cx, n);
    return lost ? gone(x, op, lost) : n;
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
    tni_node *base = tni_store_node(x, op);
    if (!base) return NULL;
    use(x);
    bool cut = x->detached && base->needs_grad;
    if (!x->leaf && !cut && (!x->view || (!base->needs_grad && is_all(x->view, base)))) return base;
    // A step need not have kept this view, but the base is there: then it is viewed again.
    if (x->node && x->node->state > TNI_DONE && tni_node_reschedule(x->cx, x->node)) uncache(x);
    if (x->node) return x->node;
    return make_node(x, base, cut);
}

tni_node *tni_resolve_detached(tn_tensor *x, const tni_view *v, const char *op)
{
    tni_node *base = tni_store_node(x, op);
    if (!base) return NULL;
    use(x);
    if (!base->needs_grad && is_all(v, base)) return tni_node_ref(base);
    tni_node *n = tni_node_view(x->cx, base, v);
    if (n) n->needs_grad = false;
    return n;
}

tni_node *tni_resolve_as(tn_tensor *x, const tni_view *v, tni_view_fn *step, const void *how,
                         const char *op)
{
    tni_node *base = x->store->node;
    bool plain = base->state <= TNI_DONE && !x->leaf && (!base->needs_grad || tni_is_permuted(x));
    if (plain && is_all(v, base)) {
        use(x);
        return base;
    }
    tn_tensor *t = tni_wrap_view(x, v, step, how);
    return t ? tni_resolve(t, op) : NULL;
}
