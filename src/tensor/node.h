// Nodes: what recording makes. A node is one op applied to earlier nodes. Ids grow, so a source
// always has a smaller id than its consumer, and id order is topological order. Nothing here
// recurses over the graph.
//
// States and how they change:
//
//     recorded                 evaluated, stored
//    ----------> PENDING ----------------------------> DONE
//                 |  ^  \  evaluated, not stored         |
//     step failed |  |   `------> UNSTORED <-------------+ only recipes hold it
//                 v  `---------------'                   |
//                GONE     asked for: tni_node_reschedule | no sources left to compute it from
//                 ^--------------------------------------+
#ifndef TNI_TENSOR_NODE_H
#define TNI_TENSOR_NODE_H

#include "base/fault.h"
#include "tensor/attr.h"
#include "tensor/buffer.h"
#include "tensor/shape.h"

typedef struct tni_node   tni_node;
typedef struct tni_leaf   tni_leaf;
typedef struct tni_origin tni_origin;
typedef struct tni_store  tni_store;

// The three ops that this folder makes by itself; ops.def begins with them, in this order.
enum { TNI_LEAF_OP, TNI_VIEW_OP, TNI_OUTPUT_OP };

typedef enum {
    TNI_PENDING,
    TNI_DONE,      // has a buffer
    TNI_UNSTORED,  // was computed and not stored: computed again from its recipe if asked for
    TNI_GONE       // cannot be computed: its step failed, or it was overwritten or released
} tni_state;

// Recording and releasing change both counts of every source: one 64-bit addition does both.
#define TNI_ONE_USE ((uint64_t)1 << 32 | 1)

// One value. While pending it holds its sources. Once done it holds a buffer, and releases its
// sources unless a gradient can still reach it. A view has no buffer of its own: it keeps its
// source and is done when that is. A view of several sources is the value of the first, and its
// gradient goes to the others (users' ops with a grad_expr). What the value is (op, dtype, shape,
// attributes) is fixed when the node is recorded, except that a node that is gone keeps the reason
// in attr.
//
// Several outputs: the node itself is output 0 of its op, the primary. Each other output is a node
// with the primary as its source, computed by the same call. It holds the primary; the primary
// knows it while it lives, but does not hold it.
//
// Recipes: an evaluation stores only what somebody can ask for. A value that was computed and not
// stored (UNSTORED) keeps its sources as its recipe, to be computed again if it is asked for after
// all, for instance by a tn_item after the step. A recipe keeps nodes, not memory: when only
// recipes hold a node, its buffer is released, and the node becomes unstored itself or, if it has
// no sources to be computed from, gone. Asking for a value that needs a gone node is TN_EGONE;
// tn_want or tn_keep beforehand avoids it.
//
// Regions: what a layer records that was set to be recomputed (tn_layer_recompute) carries the
// number of that call. A backward pass reads copies of these nodes, `again`, which it records right
// before it needs them, so that the values of the forward pass die early (grad/recompute.c).
//
// Invariant: refs counts every holder; of these, `uses` are the sources of pending and done nodes,
// `recipes` those of unstored nodes, `handles` the ones through which a user can ask, and
// `rollbacks` the stores that would return to it. The sources of a pending node are pending or
// done, except that a failed step may leave others, which the next evaluation looks for. An
// unstored output has an unstored or pending primary, since one call computes both; where the
// primary is stored and recipes need an output, the primary holds it.
struct tni_node {
    uint64_t id;
    union {
        struct {
            uint32_t refs;  // all holders; among them:
            uint32_t uses;  // nodes that have it as a source
        };
        uint64_t refs_and_uses;  // both as one number: TNI_ONE_USE
    };
    uint32_t rollbacks;  // stores that return to it if a step fails
    uint32_t handles;    // holders by which a user can ask for it: stores, views, late values
    uint32_t recipes;    // unstored nodes that have it as a source
    uint32_t mark;       // scratch of the walk or evaluation in progress, else 0
    uint32_t below;  // its elements are in 0 .. below-1 whatever they are computed from; 0: unknown
    uint32_t region;  // the call of a recomputed layer that it is part of; 0: none
    uint16_t op;
    uint8_t  dtype, rank, state;
    uint32_t nsrc;
    bool     again           : 1;  // a copy of a node of such a call, recorded for a backward pass
    bool     needs_grad      : 1;  // a leaf, or made from one while the gradient mode was on
    bool     spent           : 1;  // a backward pass went through it: no further gradient
    bool     walked          : 1;  // becomes spent when it is next evaluated
    bool     weak            : 1;  // a plain number: takes the dtype of the tensor it meets
    bool     failed          : 1;  // a read failed to compute it: only another read tries again
    bool     owns_bytes      : 1;  // attr.custom.bytes
    bool     constant        : 1;  // one number everywhere: computable at any time, so never gone
    bool     update          : 1;  // a store's state recorded by an optimizer's update
    bool     dropped_sources : 1;  // released sources that its value depends on
    bool     recomputed      : 1;  // has been unstored: computing it now is computing it again
    bool     carried         : 1;  // stored only because its sources will soon be released
    bool     visited         : 1;  // scratch of tni_node_reschedule
    bool     replaced        : 1;  // attention took its place: gradients pass it by
    bool     hooked          : 1;  // functions are called with its gradient: they go with it
    bool     apart           : 1;  // a weight's copy in 16 bits: no kernel makes it and reads it
    tni_node  **src;               // `few`, or an array of its own
    tni_node   *few[3];
    tni_leaf   *leaf;    // this is a state of that leaf: gradients stop and are deposited here
    tni_origin *origin;  // of a view that needs gradients: the handle it was made for
    tni_buffer *buf;
    tni_buffer *packed;   // beside buf, what products read instead (engine/compress.c); NULL: none
    int64_t     start;    // first element in buf
    tni_node   *next;     // scratch: work lists
    tni_node   *copy;     // scratch of a walk: the node that is computed again in its place
    tni_store  *waiting;  // while unstored: its stores, which become pending with it
    tni_node   *output;   // of a primary: its newest living output; of an output: the next one
    tni_node   *held;     // of a stored primary: outputs that recipes need, linked by output
    tni_node   *low;      // the newest living cast of it that autocast made; weak, NULL: none
    tni_site    site;     // from here on written by tni_node_new, not zeroed
    int64_t     size[TN_MAX_RANK];
    tni_attr    attr;
};

// The number of elements; recorded shapes do not overflow.
static inline int64_t tni_node_count(const tni_node *n)
{
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= n->size[i];
    return count;
}

// Records a pending node of the given shape over nsrc sources, each of which gets a reference. The
// caller has one reference. May evaluate everything pending first (see flush_nodes). NULL,
// reported, when memory is out.
tni_node *tni_node_new(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int nsrc,
                       tni_node *const *src);
// Output index (from 1) of a primary that is still pending, with one reference for the caller.
// Never evaluates. NULL, reported, when memory is out.
tni_node *tni_node_output(tn_ctx *cx, tni_node *primary, int64_t index, tn_dtype dt, int rank,
                          const int64_t *size);
// The newest living output of n; the others follow by `output`. NULL if n has none.
static inline tni_node *tni_outputs(const tni_node *n)
{
    return n->op == TNI_OUTPUT_OP ? NULL : n->output;
}
// Whether a gradient of n can go to src, one of its sources. A primary that is no float passes on
// only the gradients of its other outputs.
static inline bool tni_passes_grad_to(const tni_node *n, const tni_node *src)
{
    return src->needs_grad && (n->op == TNI_OUTPUT_OP || tni_is_float((tn_dtype)src->dtype));
}
// A computed value that begins at an element of a buffer, which gets a reference more.
tni_node *tni_node_in_buffer(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size,
                             tni_buffer *buf, int64_t start);
// A view of src (whose own layout must be row-major): one node, with src's marks.
tni_node *tni_node_view(tn_ctx *cx, tni_node *src, const tni_view *v);
// The offset and strides of n's elements in its source: the whole of it unless n is a view.
tni_view tni_node_layout(const tni_node *n);

// The node whose buffer holds n's elements, n itself unless it is a view; and where they begin.
static inline tni_node *tni_node_base(tni_node *n, int64_t *offset)
{
    *offset = 0;
    for (; n->op == TNI_VIEW_OP; n = n->src[0]) *offset += n->attr.view.offset;
    return n;
}

// Sorts nodes, oldest first. False when memory is out.
bool tni_nodes_sort(tni_heap *h, size_t n, tni_node **node);

static inline tni_node *tni_node_ref(tni_node *n)
{
    n->refs++;
    return n;
}
// Releases one reference, and with the last the node; with the last but recipes its buffer.
void tni_node_unref(tn_ctx *cx, tni_node *n);
// The same for holders through which a user can ask for the value: stores, views, late values.
static inline tni_node *tni_node_hold(tni_node *n)
{
    n->handles++;
    return tni_node_ref(n);
}
static inline void tni_node_unhold(tn_ctx *cx, tni_node *n)
{
    if (!n) return;
    n->handles--;
    tni_node_unref(cx, n);
}
// Releases what only a gradient needs of a computed node: its sources, except the base of a view.
void tni_node_forget(tn_ctx *cx, tni_node *n);
// Marks n done with a buffer (one reference is taken over), in which it begins at element `start`.
void tni_node_mark_done(tn_ctx *cx, tni_node *n, tni_buffer *buf, int64_t start);
// The primary of n, which is stored and needs no gradient, holds n from here on: recipes need n,
// and the call that computed it does not run again.
void tni_node_hold_output(tn_ctx *cx, tni_node *n);
// Marks n gone because its step failed. The call site in progress is kept as the reason.
void tni_node_mark_gone(tn_ctx *cx, tni_node *n);
// Marks n, which is pending, unstored: it keeps its sources as its recipe.
void tni_node_mark_unstored(tn_ctx *cx, tni_node *n);
// Makes n pending again, with everything unstored that it needs. If something of that is gone,
// returns that node and changes nothing; else NULL.
const tni_node *tni_node_reschedule(tn_ctx *cx, tni_node *n);
// Releases n as tni_node_unref does. If that loses its value, the reason is that node `by` was
// written over it, into the store of that number.
void tni_node_overwrite(tn_ctx *cx, tni_node *n, const tni_node *by, uint64_t store);

#endif
