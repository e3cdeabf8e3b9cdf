// Stores, handles and leaves, and resolving: which node a handle stands for now. tensor.h says what
// each of them is and owns.
#include "tensor/context.h"

#include <string.h>

// ---- stores ------------------------------------------------------------------------------------

// A store is in at most one list: the context's of pending stores, or that of an unstored node.
// `pending_stores` counts the first.
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

// Makes n, whose reference is taken over, the node that the store returns to if the step fails;
// NULL for none. The old one is released as overwritten: its value is lost unless something else
// holds it.
static void set_rollback(tn_ctx *cx, tni_store *s, tni_node *n)
{
    tni_node *old = s->rollback;
    s->rollback   = n;
    if (n) n->rollbacks++;
    if (old) old->rollbacks--;
    tni_node_overwrite(cx, old, s->node, s->number);
}

// A store whose node was computed but not stored waits in the node's list, so that it becomes
// pending again together with the node.
void tni_store_mark_computed(tn_ctx *cx, tni_store *s)
{
    unlist_store(cx, s);
    s->wanted = s->assigned = false;
    if (s->rollback) set_rollback(cx, s, NULL);
    if (s->node->state == TNI_UNSTORED) list_store(cx, s, &s->node->waiting);
}

// Forgets a handle's cached node.
static void uncache_node(tn_tensor *t)
{
    if (t->view_next) t->view_next->view_prev = t->view_prev;
    if (t->view_prev) t->view_prev->view_next = t->view_next;
    else t->store->views = t->view_next;
    tni_node *n = t->node;
    t->node     = NULL;
    tni_node_unhold(t->cx, n);
}

// Takes over the reference to n. The handle joins the store's list of views, so that a write to the
// store finds every cached node of the old state.
static void cache_node(tn_tensor *t, tni_node *n)
{
    n->handles++;
    t->node      = n;
    t->view_prev = NULL;
    t->view_next = t->store->views;
    if (t->view_next) t->view_next->view_prev = t;
    t->store->views = t;
}

// The old node becomes the rollback if it has a value and the new one is still to be computed. If
// several writes follow each other before an evaluation, the first old value stays the rollback: it
// is the last that was computed. A new constant needs none, since it cannot fail to be computed.
void tni_store_bind(tn_ctx *cx, tni_store *s, tni_node *n)
{
    while (s->views) uncache_node(s->views);
    tni_node *old = s->node;
    s->node       = n;
    n->handles++;
    old->handles--;
    if (n->state == TNI_PENDING) {
        if (old->state == TNI_DONE && !n->constant) {
            set_rollback(cx, s, old);
            old = NULL;
        }
        // A constant can be computed at any time, so the store need not roll back to an old value.
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

void tni_folded_drop(tn_ctx *cx, tni_store *s)
{
    tni_folded *f = s->folded;
    s->folded     = NULL;
    if (!f) return;
    if (f->weight) tni_tensor_disown(f->weight);
    if (f->bias) tni_tensor_disown(f->bias);
    tni_free(&cx->heap, f);
}

// The last handle died: no user can ask for the value any more.
static void store_unref(tn_ctx *cx, tni_store *s)
{
    if (--s->refs) return;
    unlist_store(cx, s);
    tni_low_drop(s);
    tni_folded_drop(cx, s);
    if (s->rollback) set_rollback(cx, s, NULL);
    tni_node_unhold(cx, s->node);
    tni_slab_give(&cx->stores, s);
}

// ---- handles -----------------------------------------------------------------------------------

// The list is newest first: a public call that ends finds what it made at the front (see
// end_frame).
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

// A new handle in the innermost scope. Inside a public call it is temporary: it dies with the call
// unless it is the result. NULL when memory is out, not yet reported: the caller first undoes what
// it has begun.
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

// `refs` is 1 while the handle is made, so that a failure releases store and node on the same path
// as success drops the extra reference.
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

// Something is made from t, so a step boundary need not store it for its own sake. `unused` counts
// the handles of a store for which that is not so.
static void mark_handle_used(tn_tensor *t)
{
    if (t->used) return;
    t->used = true;
    t->store->unused--;
}

// Refers to its parent, so that the chain from a view to its oldest ancestor outlives the handles.
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

// A loop, not recursion: chains of views can be long.
void tni_origin_unref(tn_ctx *cx, tni_origin *o)
{
    while (o && --o->refs == 0) {
        tni_origin *parent = o->parent;
        tni_slab_give(&cx->origins, o);
        o = parent;
    }
}

// t is a view of x, which is a view itself: from here on a gradient can tell which of the two was
// used. Only where a gradient can reach the store; else no origin is needed. False, reported, when
// memory is out.
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

// A view of a leaf belongs to the leaf: its gradient is deposited there. Made without gradient mode
// it is detached instead, as in PyTorch.
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
    mark_handle_used(x);
    t->view     = own;
    t->is_view  = true;
    t->complex  = x->complex;
    t->detached = x->detached || !cx->grad_mode;
    if (x->leaf && cx->grad_mode) t->leaf = tni_leaf_ref(x->leaf);
    if (link_origins(t, x, step, how)) return t;
    tni_tensor_free(t);
    return NULL;
}

void tni_low_drop(tni_store *s)
{
    tn_tensor *low = s->low;
    s->low         = NULL;
    if (low) tni_tensor_disown(low);
}

void tni_low_set(tni_store *s, tn_tensor *low)
{
    tni_low_drop(s);
    tni_tensor_own(low);
    low->store->wanted = true;
    s->low             = low;
    s->low_of          = s->node->id;
    s->low_used        = false;
}

bool tni_folded_set(tn_tensor *x, const tni_folded *f)
{
    tni_folded *own = tni_alloc(&x->cx->heap, sizeof *own);
    if (!own) {
        tni_fail_memory(x->cx, "recording");
        return false;
    }
    *own = *f;
    if (!f->declined) {
        tni_tensor_own(f->weight);
        tni_tensor_own(f->bias);
        f->weight->store->wanted = f->bias->store->wanted = true;
    }
    tni_folded_drop(x->cx, x->store);
    x->store->folded = own;
    return true;
}

// The copy has no history and no leaf of its own: while gradients are recorded, each handle of it
// takes the leaf of the handle that it stands for. Of a view of a leaf it is a view made from that,
// which shows all of it.
tn_tensor *tni_wrap_low(tn_tensor *x)
{
    tn_ctx    *cx = x->cx;
    tn_tensor *t  = new_handle(cx, x->store->low->store);
    if (!t) return tni_fail_memory(cx, "recording");
    mark_handle_used(x);
    t->is_view  = true;
    t->permuted = x->permuted;
    bool ok     = !x->view || (t->view = tni_slab_take(&cx->views)) != NULL;
    if (ok && x->view) *t->view = *x->view;
    if (ok && x->leaf && cx->grad_mode) {
        t->leaf = tni_leaf_ref(x->leaf);
        if (x->view)
            ok = (x->origin || (x->origin = new_origin(cx, NULL))) &&
                 (t->origin = new_origin(cx, x->origin));
    }
    if (ok && t->origin) {
        t->origin->within     = tni_view_whole(x->view->rank, x->view->size);
        t->origin->has_within = true;
    }
    if (ok) return t;
    tni_tensor_free(t);
    return tni_fail_memory(cx, "recording");
}

// A node that is not a view, or is one of all elements in order, gets a store of its own. A strided
// view cannot be a store's node, since stores are row-major: it gets a store on its source and a
// view of that.
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
    cache_node(t, tni_node_ref(n));  // n itself, so that a gradient with respect to n passes here
    return t;
}

// Frees y when memory is out: the caller has nothing else to do with it.
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

// The order matters: the cached node and the leaf use the store, which goes last.
void tni_tensor_free(tn_tensor *t)
{
    tn_ctx *cx = t->cx;
    if (t->node) uncache_node(t);
    tni_scope_remove(t);
    if (tni_is_leaf(t)) tni_leaf_end(cx, t->leaf);
    if (t->leaf) tni_leaf_unref(cx, t->leaf);
    if (t->view) tni_slab_give(&cx->views, t->view);
    if (t->origin) tni_origin_unref(cx, t->origin);
    if (t->name) tni_free(&cx->heap, t->name);
    mark_handle_used(t);
    store_unref(cx, t->store);
    t->magic = TNI_DEAD;
    tni_slab_give(&cx->tensors, t);
}

// Depth 0 is that of the root scope: a step boundary stores the value as it does for tensors of the
// root.
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

// A new handle and t exchange their stores, and with them what the stores count of their handles.
bool tni_tensor_leave_store(tn_tensor *t, tni_node *n)
{
    tn_tensor *other = tni_wrap(t->cx, n);
    if (!other) return false;
    if (t->node) uncache_node(t);
    tni_store *old  = t->store;
    bool       used = t->used;
    t->store        = other->store;
    t->used         = other->used;
    t->store->depth = old->depth;
    other->store    = old;
    other->used     = used;
    tni_tensor_free(other);
    return true;
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

// The fields are cleared before anything is released, since releasing the gradient may come back
// here.
void tni_leaf_end(tn_ctx *cx, tni_leaf *l)
{
    tn_tensor *grad  = l->grad;
    tni_node  *zeros = l->zeros;
    l->handle = l->grad = NULL;
    l->zeros            = NULL;
    if (grad) tni_tensor_disown(grad);
    tni_node_unref(cx, zeros);
}

// A view of the store's node that carries the leaf's mark: backward passes stop there and deposit.
// It is never spent, so that a parameter takes part in any number of passes.
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

// The name of some tensor of the store, if one in this scope has any.
static const char *name_in_scope(const tn_scope *s, uint64_t store)
{
    for (const tn_tensor *t = s->newest; t; t = t->next)
        if (t->name && t->store->number == store) return t->name;
    return NULL;
}

// " \"weight\"", or nothing if no tensor of the store has a name. By number, since the store may be
// gone.
static tni_text store_name(const tn_ctx *cx, uint64_t store)
{
    tni_text    t    = { "" };
    const char *name = name_in_scope(&cx->owned, store);
    for (const tn_scope *s = cx->scope; s && !name; s = s->outer) name = name_in_scope(s, store);
    if (name) tni_text_add(&t, " \"%s\"", name);
    return t;
}

// Reports TN_EGONE: the value of x cannot be computed, because its step failed or because `lost`,
// which it would be computed from, was overwritten or released. The message says where, and what to
// do.
static tni_node *fail_gone(tn_tensor *x, const char *op, const tni_node *lost)
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
                    written ? store_name(x->cx, why->store).s : "", tni_site_text(&lost->site).s,
                    written ? "overwritten" : "released", at.s);
}

// The store's node was computed in a step that did not store it, and somebody asks for it now: its
// recipe runs again in the next evaluation. TN_EGONE if some of the recipe's inputs are lost.
tni_node *tni_store_reschedule(tn_tensor *x, const char *op)
{
    tni_node       *n    = x->store->node;
    const tni_node *lost = tni_node_reschedule(x->cx, n);
    return lost ? fail_gone(x, op, lost) : n;
}

// Makes the node that x stands for if that is not the store's own: with the leaf's mark, as a view,
// or without history (cut). x caches it, so that two uses of x are one node and share their
// gradient. NULL, reported, on failure.
static tni_node *make_view_node(tn_tensor *x, tni_node *base, bool cut)
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
    cache_node(x, n);
    return n;
}

// Whether a view is all of its base, in the base's own shape and order.
static bool covers_base(const tni_view *v, const tni_node *base)
{
    return !v->offset && tni_shape_equal(v->rank, v->size, base->rank, base->size) &&
           tni_view_contiguous(v);
}

// Three cases: the store's node itself, which is by far the most frequent; the node cached at the
// handle; and a new one. A whole view of a value with history is not the store's node: tn_grad
// tells them apart.
tni_node *tni_resolve(tn_tensor *x, const char *op)
{
    tni_node *base = tni_store_node(x, op);
    if (!base) return NULL;
    mark_handle_used(x);
    bool cut = x->detached && base->needs_grad;
    if (!x->leaf && !cut && (!x->view || (!base->needs_grad && covers_base(x->view, base))))
        return base;
    // A step may have lost this view but kept the base: then it is viewed again.
    if (x->node && x->node->state > TNI_DONE && tni_node_reschedule(x->cx, x->node))
        uncache_node(x);
    if (x->node) return x->node;
    return make_view_node(x, base, cut);
}

tni_node *tni_resolve_detached(tn_tensor *x, const tni_view *v, const char *op)
{
    tni_node *base = tni_store_node(x, op);
    if (!base) return NULL;
    mark_handle_used(x);
    if (!base->needs_grad && covers_base(v, base)) return tni_node_ref(base);
    tni_node *n = tni_node_view(x->cx, base, v);
    if (n) n->needs_grad = false;
    return n;
}

// Saves the handle and the view node in the frequent case that the view is all of the store, as for
// a transposed tensor whose axes are put back.
tni_node *tni_resolve_as(tn_tensor *x, const tni_view *v, tni_view_fn *step, const void *how,
                         const char *op)
{
    tni_node *base = x->store->node;
    bool plain = base->state <= TNI_DONE && !x->leaf && (!base->needs_grad || tni_is_permuted(x));
    if (plain && covers_base(v, base)) {
        mark_handle_used(x);
        return base;
    }
    tn_tensor *t = tni_wrap_view(x, v, step, how);
    return t ? tni_resolve(t, op) : NULL;
}
