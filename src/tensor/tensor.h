// Handles, stores and leaves: what changes, while nodes do not.
//
// A store is the mutable cell behind one or more handles. It has a current node; writing through
// any handle records a new node from the current one and rebinds the store, so every handle on it
// sees the write, while nodes recorded before keep the old one. A handle is a store and a view of
// it; each use resolves the store's current node.
//
// Who holds whom: a scope (or an owner) holds handles, a handle its store and the nodes it caches,
// a store its current node and the one to roll back to, a node its sources and its buffer. Nothing
// points back with a count, so there are no cycles.
#ifndef TNI_TENSOR_TENSOR_H
#define TNI_TENSOR_TENSOR_H

#include "tensor/dtype.h"
#include "tensor/node.h"

// A running variance keeps the weight and the bias of the convolution that its batch norm was
// folded into (ops/fold_norm.c). They are those of the values whose ids are in made_of: a write
// makes a new id.
typedef struct {
    tn_tensor *weight, *bias;
    uint64_t   made_of[6];  // weight, bias (0: none), mean, variance, gain, shift
    uint64_t   recipe;      // how the convolution's weight is made of the stored one
    double     eps;
    int64_t    order;     // attr.conv.channels_last
    bool       declined;  // these values are not folded; weight and bias are NULL
} tni_folded;

// A mutable cell. While its node is pending, rollback is the last node that was computed, to which
// it returns if the step fails.
//
// Invariant: between evaluations a store whose node is pending is in the context's list `pending`;
// one whose node is unstored is in that node's list `waiting`; others are in no list, except that a
// read may leave computed ones in `pending` for a while (tn_ctx.computed_pending).
struct tni_store {
    tni_node   *node, *rollback;
    uint32_t    refs;         // handles
    uint32_t    unused;       // of these, handles that nothing was made from
    bool        wanted;       // the next step boundary stores it
    bool        assigned;     // written in place since the last boundary
    bool        written;      // written in place at some time (of a gradient: it is one)
    int         depth;        // of the scope it was made in
    uint64_t    number;       // unique, for messages
    tni_store **list;         // cx->pending, node->waiting, or NULL
    tni_store  *prev, *next;  // in that list
    tn_tensor  *views;        // handles that cache a node made from the current one
    tn_tensor  *low;          // of a weight: autocast's copy in 16 bits, owned; NULL: none
    uint64_t    low_of;       // id of the node that it is a copy of: any write makes it stale
    bool        low_used;     // an op took it since the last update
    tni_folded *folded;       // of a running variance: see above; owned, NULL: none
};

// The gradient cell of a leaf, a tensor that requires a gradient. Every state that the leaf's store
// takes deposits here. The handle may die before the cell: then gradients for it are dropped.
// Invariant: grad and zeros are NULL once handle is.
struct tni_leaf {
    uint32_t   refs;  // handles of it and of its views, nodes with its mark
    tn_tensor *handle;
    tn_tensor *grad;      // made on demand; dies with handle
    tni_node  *zeros;     // what grad was last cleared to, reused while pending
    bool       has_grad;  // else grad, if not NULL, is zeros
};

// Which handle a view was made through. All views look straight at the store, also views of views,
// so a node alone does not tell whether y = view(view(x)) used the view in between; tn_grad with
// respect to that view has to know. Each such handle has an origin, and its origin's parent is that
// of the handle it was made from. Identity is the address; a node of the view keeps a reference.
//
// `within` is the last step of the chain by itself: the view as if its parent were a row-major
// tensor. It is needed where the parent has an element of the store twice (expanded, or overlapping
// windows), since then two views of the store do not tell which of the parent's elements was read.
struct tni_origin {
    uint32_t    refs;
    bool        has_within;  // within is valid
    tni_origin *parent;
    tni_view    within;
};

enum { TNI_LIVE = 0x7e40, TNI_DEAD = 0xdead };

// Complex numbers are known to handles alone. The node of a complex tensor is one of real numbers
// with an axis more, the last, of 2: the real and the imaginary part, as C's complex types have
// them in memory. Shapes that users see leave that axis out. Nodes, plans, kernels and gradients
// never see complex numbers; the gradient of the pair is PyTorch's, dL/dre + i dL/dim. Functions
// that know complex tensors take their arguments with tni_arg1_any and tni_args_any; tni_arg1 and
// tni_args refuse them, so nothing computes on pairs by accident. Invariant: the last axis of a
// complex handle has stride 1, the other strides and the offset are even.
//
// A handle: a store and a view of it. It belongs to a scope and dies with that, or to owners: a
// gradient to its leaf, a parameter to layers and optimizers. Invariant: while node is cached, the
// handle is in its store's list of views, and node is a view of the store's current node.
struct tn_tensor {
    uint16_t    magic;     // TNI_LIVE or TNI_DEAD
    bool        is_view;   // shares the store of another handle
    bool        permuted;  // the whole of its store with permuted axes: see tni_show_permuted
    bool        detached;
    bool        complex;  // its elements are complex numbers: see below
    bool        temp;     // made inside the public call numbered by frame
    uint16_t    owners;   // leaves (of their gradient), layers and optimizers; 0: its scope owns it
    bool        used;     // an op or a view was made from it
    uint64_t    frame;
    tn_ctx     *cx;
    tn_scope   *scope;
    tn_tensor  *prev, *next;  // in the scope, newest first
    tni_store  *store;
    tni_view   *view;                   // NULL: the whole store
    tni_leaf   *leaf;                   // of this handle or of the tensor it is a view of
    tni_origin *origin;                 // NULL until a gradient may need it
    tni_node   *node;                   // cached: this view of the store's current node
    tn_tensor  *view_prev, *view_next;  // in store->views, while node is cached
    char       *name;
};

// Owns the tensors made while it was the innermost; the context's root scope owns the rest. Scopes
// form a chain by `outer` and close from the innermost outwards; closing one restores the gradient
// mode and autocast.
struct tn_scope {
    uint32_t   magic;
    tn_ctx    *cx;
    tn_scope  *outer;
    int        depth;  // scopes around it
    tn_tensor *newest;
    bool       grad_mode;  // of the context when it began
    tn_dtype   autocast;   // the same
};

// A handle in the innermost scope on a new store bound to n, whose reference is taken over, also
// on failure. NULL in, NULL out.
tn_tensor *tni_wrap(tn_ctx *cx, tni_node *n);
// A handle that stands for n itself: for a view that is not row-major, on its source. No
// reference is taken over.
tn_tensor *tni_wrap_node(tn_ctx *cx, tni_node *n);
// Changes a layout: one step by which a view is made from another, such as a slice. Returns false
// if strides cannot express the result; for a row-major layout they always can. It runs once on the
// store's layout and once on the parent's (see tni_origin.within).
typedef bool tni_view_fn(tni_view *v, const void *how);
// A handle on x's store with another view of it, which `step` made of x's. Without a step (NULL) no
// gradient for x passes through it if x has an element of its store twice.
tn_tensor *tni_wrap_view(tn_tensor *x, const tni_view *v, tni_view_fn *step, const void *how);
// x as a view of its store's copy in 16 bits (low), with x's view, leaf and origin: a gradient for
// it is one for x.
tn_tensor *tni_wrap_low(tn_tensor *x);
// Frees a store's copy, if it has one; and gives it one of its value as it is now.
void tni_low_drop(tni_store *s);
void tni_low_set(tni_store *s, tn_tensor *low);
// Copies *f beside x's store and takes over its tensors; frees what is there. Returns false,
// reported, when memory is out.
bool tni_folded_set(tn_tensor *x, const tni_folded *f);
// Frees what is there.
void tni_folded_drop(tn_ctx *cx, tni_store *s);
// The slow path of tni_store_node: the node is unstored or gone.
tni_node *tni_store_reschedule(tn_tensor *x, const char *op);
// Returns the current node of x's store, pending again if it was not stored. NULL, reported as
// TN_EGONE, if it or something it is computed from is gone.
static inline tni_node *tni_store_node(tn_tensor *x, const char *op)
{
    tni_node *n = x->store->node;
    return n->state <= TNI_DONE ? n : tni_store_reschedule(x, op);
}
// Returns the node that x stands for now; no reference is given. NULL, reported, if its value is
// gone or memory is out. A view that is all of its store is the store's own node, unless a gradient
// has to tell them apart.
tni_node *tni_resolve(tn_tensor *x, const char *op);
// The same for another view of x's store, made as in tni_wrap_view. If that is all of the store,
// and x too stands for all of it, it is the store's own node.
tni_node *tni_resolve_as(tn_tensor *x, const tni_view *v, tni_view_fn *step, const void *how,
                         const char *op);
// A view of x's store without history, with a reference for the caller: no handle keeps it alive.
tni_node *tni_resolve_detached(tn_tensor *x, const tni_view *v, const char *op);
// Shows y, which is new and the whole of its store, with permuted axes: axis i of the store becomes
// axis order[i]. So a result can be stored in another order of axes than it is seen in (channels
// last). Such a handle stands for its store as one without a view does: it is no view of another
// tensor, and its gradient is the store's. NULL in, NULL out.
tn_tensor *tni_show_permuted(tn_tensor *y, const int *order);
// Puts the store, whose node is pending again, into the context's list of pending stores.
void tni_store_mark_pending(tn_ctx *cx, tni_store *s);
// Binds s to n, whose reference is taken over: every handle on s now has n's value. Cached views of
// the old node are dropped, and the old node becomes the rollback where it was computed.
void tni_store_bind(tn_ctx *cx, tni_store *s, tni_node *n);
// The store's node was computed, or the store gave up on it: the store leaves the pending list, and
// the rollback is released.
void tni_store_mark_computed(tn_ctx *cx, tni_store *s);
// The view of a handle: its own, or the whole store.
tni_view tni_layout(const tn_tensor *x);
// What tn_rank, tn_size and tn_count return, without their checks, for a handle known to be alive;
// tni_dtype is the dtype of the store, which for a complex tensor is that of its parts.
static inline int tni_rank(const tn_tensor *x)
{
    return (x->view ? x->view->rank : x->store->node->rank) - x->complex;
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
// Whether a store has a copy in 16 bits of its current value.
static inline bool tni_low_is_valid(const tni_store *s)
{
    return s->low && s->low_of == s->node->id && s->low->store->node->state != TNI_GONE;
}
// Whether x stands for the whole of its store with permuted axes. A leaf does not, since it has a
// mark of its own, nor a detached handle, which has no history.
static inline bool tni_is_permuted(const tn_tensor *x)
{
    return x->permuted && !x->leaf && !x->detached;
}
// Whether x is the handle of a leaf, not a view of one.
static inline bool tni_is_leaf(const tn_tensor *x)
{
    return x->leaf && x->leaf->handle == x;
}

tni_leaf *tni_leaf_ref(tni_leaf *l);
void      tni_leaf_unref(tn_ctx *cx, tni_leaf *l);
// The leaf's handle dies, or stops being a leaf: its gradient dies.
void tni_leaf_end(tn_ctx *cx, tni_leaf *l);

void tni_origin_unref(tn_ctx *cx, tni_origin *o);

void tni_tensor_free(tn_tensor *t);
// Gives t one owner more: it leaves its scope and outlives all of them, so every step stores it.
// Disowning takes one away; with the last t dies.
void tni_tensor_own(tn_tensor *t);
void tni_tensor_disown(tn_tensor *t);
// Gives t a new store that is bound to n, whose reference is taken over, also on failure. Other
// handles of the old one keep it and its value. False, reported, when memory is out.
bool tni_tensor_leave_store(tn_tensor *t, tni_node *n);
void tni_scope_close(tn_scope *s);
// Takes t out of its scope's list; adds it to that of another.
void tni_scope_remove(tn_tensor *t);
void tni_scope_add(tn_scope *s, tn_tensor *t);

#endif
