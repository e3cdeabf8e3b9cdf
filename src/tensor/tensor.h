// Handles, stores and leaves: what changes while nodes do not.
//
// A store is the mutable cell behind one or more handles. It has a current node; writing through
// any handle records a new node from the current one and rebinds the store, so every handle on it
// sees the write, while nodes recorded before keep the old one. A handle is a store and a view of
// it; each use resolves the store's current node.
#ifndef TNI_TENSOR_TENSOR_H
#define TNI_TENSOR_TENSOR_H

#include "tensor/dtype.h"
#include "tensor/node.h"

// While node is pending, done is the last node that was computed, to return to if the step fails;
// and the store stands in the context's list of pending stores.
struct tni_store {
    tni_node   *node, *rollback;
    uint32_t    refs;      // handles
    uint32_t    unused;    // handles that nothing was made from
    bool        wanted;    // the next step boundary stores it
    bool        assigned;  // written in place since the last boundary
    bool        written;   // written in place at some time; of a gradient: it counts
    int         depth;     // of the scope it was made in
    uint64_t    number;    // its own, for messages
    tni_store **list;  // the context's of pending stores, or its node's of waiting ones; NULL: none
    tni_store  *prev, *next;  // in that
    tn_tensor  *views;        // handles that cache a node made from the current one
};

// The gradient cell of a leaf. The handle may die before the cell: then gradients for it are
// dropped. All states of the leaf deposit here.
struct tni_leaf {
    uint32_t   refs;  // the handles that came from it, nodes
    tn_tensor *handle;
    tn_tensor *grad;      // made when first asked for; dies with handle
    tni_node  *zeros;     // what grad was last cleared to; used again while nobody computes it
    bool       has_grad;  // else grad, if it is there, is zeros
};

// Which handle a view came through. Views of views look straight at the store; this chain tells the
// gradient of a handle in between which of them were made from it. Identity is the address. Which
// element of the parent an element is cannot be told from two views of the store where the parent has a place
// twice (expanded, or windows that overlap): `within` is the view of a row-major tensor of the parent's shape.
struct tni_origin {
    uint32_t    refs;
    bool        has_within;  // within is valid
    tni_origin *parent;
    tni_view    within;
};

enum { TNI_LIVE = 0x7e40, TNI_DEAD = 0xdead };

// A handle: a store and a view of it. It belongs to a scope and dies with that, or to owners: a
// gradient to its leaf, a parameter to layers and optimizers. Invariant: while node is cached, the handle stands in its store's list of views.
struct tn_tensor {
    uint16_t magic;    // TNI_LIVE or TNI_DEAD
    bool     is_view;  // shares the store of another handle
    bool permuted;  // the whole of its store with the axes in other places: see tni_show_permuted
    bool detached;
    bool temp;  // made inside the public call numbered by frame
    uint16_t
         owners;  // leaves (of their gradient), layers and optimizers that hold it; 0: its scope
    bool used;    // an op or a view was made from it
    uint64_t    frame;
    tn_ctx     *cx;
    tn_scope   *scope;
    tn_tensor  *prev, *next;  // in the scope, newest first
    tni_store  *store;
    tni_view   *view;                   // NULL: the whole store
    tni_leaf   *leaf;                   // of this handle or of the one it is a view of
    tni_origin *origin;                 // NULL until a gradient may ask for it
    tni_node   *node;                   // cached: this view of the store's current node
    tn_tensor  *view_prev, *view_next;  // in store->views, while node is cached
    char       *name;
};

// Owns the tensors made while it was the innermost; the context's root scope owns the rest. Scopes
// form a chain by outer and close in that order.
struct tn_scope {
    uint32_t   magic;
    tn_ctx    *cx;
    tn_scope  *outer;
    int        depth;  // scopes around it
    tn_tensor *newest;
    bool       grad_mode;  // when it began
};

// A handle in the innermost scope on a new store bound to n, whose reference is taken over, also
// on failure. NULL in, NULL out.
tn_tensor *tni_wrap(tn_ctx *cx, tni_node *n);
// A handle that stands for n as it is: for a view that is not row-major, on its source. No
// reference is taken over.
tn_tensor *tni_wrap_node(tn_ctx *cx, tni_node *n);
// How a view is made: changes a layout. False where strides cannot say it; they always can for one that
// is row-major.
typedef bool tni_view_fn(tni_view *v, const void *how);
// A handle on x's store with another view of it: what the step makes of x's. Without a step (NULL) there
// is no gradient for x through it where x has a place twice.
tn_tensor *tni_wrap_view(tn_tensor *x, const tni_view *v, tni_view_fn *step, const void *how);
// What tni_store_node gives where the node is neither pending nor done.
tni_node *tni_store_reschedule(tn_tensor *x, const char *op);
// The current node of x's store, pending again if it was not stored; NULL, reported, if it is gone, or what
// it is made from.
static inline tni_node *tni_store_node(tn_tensor *x, const char *op)
{
    tni_node *n = x->store->node;
    return n->state <= TNI_DONE ? n : tni_store_reschedule(x, op);
}
// The node that x stands for now (no reference is given), or NULL, reported, if its value is gone
// or memory is out. A view that is all of its store is the store's own node, unless a gradient would
// have to tell them apart.
tni_node *tni_resolve(tn_tensor *x, const char *op);
// The same for another view of x's store, made as in tni_wrap_view. Where that is all of the store, and x
// too stands for all of it, it is the store's own node.
tni_node *tni_resolve_as(tn_tensor *x, const tni_view *v, tni_view_fn *step, const void *how,
                         const char *op);
// A view of x's store without history, and with a reference for the caller: no handle need keep it.
tni_node *tni_resolve_detached(tn_tensor *x, const tni_view *v, const char *op);
// Shows y, which is new and the whole of its store, with the axes in other places: axis i of the store
// becomes axis order[i]. It stands for its store as a handle without a view does: it is no view of
// another, and its gradient is the store's. NULL in, NULL out.
tn_tensor *tni_show_permuted(tn_tensor *y, const int *order);
// Puts the store, whose node is pending again, into the context's list of those.
void tni_store_mark_pending(tn_ctx *cx, tni_store *s);
// Binds x's store to n, whose reference is taken over.
void tni_store_bind(tn_ctx *cx, tni_store *s, tni_node *n);
// The store's node was computed: nothing to return to any more.
void tni_store_mark_computed(tn_ctx *cx, tni_store *s);
// The view of a handle: its own or the whole.
tni_view tni_layout(const tn_tensor *x);
// What tn_rank, tn_dtype_of and tn_count say of a tensor that is there, and its sizes.
static inline int tni_rank(const tn_tensor *x)
{
    return x->view ? x->view->rank : x->store->node->rank;
}
static inline tn_dtype tni_dtype(const tn_tensor *x)
{
    return (tn_dtype)x->store->node->dtype;
}
static inline const int64_t *tni_sizes(const tn_tensor *x)
{
    return x->view ? x->view->size : x->store->node->size;
}
static inline int64_t tni_count(const tn_tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < tni_rank(x); i++) count *= tni_sizes(x)[i];
    return count;
}
// Whether x stands for its store as it is, with its axes in other places. A leaf is marked, and what is
// cut is without history; they do not.
static inline bool tni_is_permuted(const tn_tensor *x)
{
    return x->permuted && !x->leaf && !x->detached;
}
// Whether x is the handle of a leaf, and no view of one.
static inline bool tni_is_leaf(const tn_tensor *x)
{
    return x->leaf && x->leaf->handle == x;
}

tni_leaf *tni_leaf_ref(tni_leaf *l);
void      tni_leaf_unref(tn_ctx *cx, tni_leaf *l);
// The handle is one no more, or dies: its gradient dies.
void tni_leaf_end(tn_ctx *cx, tni_leaf *l);

void tni_origin_unref(tn_ctx *cx, tni_origin *o);

void tni_tensor_free(tn_tensor *t);
// t belongs to one owner more, and no longer to its scope: it outlives every scope, so every step
// stores it. To one less, and dies with the last.
void tni_tensor_own(tn_tensor *t);
void tni_tensor_disown(tn_tensor *t);
void tni_scope_close(tn_scope *s);
// Takes t out of its scope's list, and puts it into one.
void tni_scope_remove(tn_tensor *t);
void tni_scope_add(tn_scope *s, tn_tensor *t);

#endif
