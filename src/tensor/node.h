// Nodes: what recording makes. A node is one op applied to earlier nodes; ids grow, so a source
// always has a smaller id than its consumer and id order is topological order. Nothing here
// recurses over the graph.
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
    TNI_UNSTORED,  // was computed and not stored: is computed again if it is asked for
    TNI_GONE       // cannot be computed: its step failed, or it was overwritten or given back
} tni_state;

// Recording and freeing change refs and uses of every source: one addition does both.
#define TNI_ONE_USE ((uint64_t)1 << 32 | 1)

// One value. While pending it holds its sources. Once done it holds a buffer, and it lets its
// sources go unless a gradient can still reach it. A view has no buffer of its own: it keeps its
// source and is done when that is. A view of several sources is the value of the first, and its
// gradient goes to the others. What the value is (op, dtype, shape, attributes) is fixed when the node is
// recorded, except that a value that is gone keeps the reason in attr; state, buf, sources, spent,
// walked, mark, next, output and refs change.
//
// Of an op with several outputs the node itself is output 0, the primary. Each other output is a node
// with the primary as its source, computed by the same call. It holds the primary; the primary knows it
// as long as it lives and has not let go of the primary, but does not hold it.
//
// A value that is not stored keeps its sources as its recipe. That keeps the nodes, but no memory of the
// device: when only recipes hold a node, its buffer goes, and it is gone, or, if it has its sources
// still, not stored either. Invariant: the sources of what is pending, and those that something done
// keeps, are pending or done, except that a failure may leave others below what is pending, which the next
// evaluation of that looks for; each is counted in `uses`, each source of what is not stored in `recipes`. An
// output that is not stored has a primary that is not, or that is pending: they are computed together. Where
// the primary is stored and recipes need an output, the primary holds it.
struct tni_node {
    uint64_t id;
    union {
        struct {
            uint32_t refs;  // everyone who holds it; among them:
            uint32_t uses;  // nodes that have it as a source
        };
        uint64_t refs_and_uses;  // as one number, for who changes both: TNI_ONE_USE
    };
    uint32_t    rollbacks;  // stores that would return to it if a step failed
    uint32_t    handles;    // those by whom the user can ask for it: stores, views, late values
    uint32_t    recipes;    // nodes that are not stored and are made from it
    uint32_t    mark;       // scratch of the walk in progress, 0 between walks
    uint16_t    op;
    uint8_t     dtype, rank, state;
    uint32_t    nsrc;
    bool        needs_grad : 1;  // a leaf, or made from one while the gradient mode was on
    bool        spent      : 1;  // a backward pass went through it: no further gradient
    bool        walked     : 1;  // becomes spent when it is next evaluated
    bool        weak       : 1;  // a plain number: takes the dtype of what it meets
    bool        failed     : 1;  // a read could not compute it: only another read tries again
    bool        owns_bytes : 1;  // attr.custom.bytes
    bool        constant   : 1;  // one number everywhere: can be had at any time, so never gone
    bool        update : 1;  // a store's state that belongs to a recorded update of an optimizer
    bool        dropped_sources : 1;  // it has let sources go that its value is made from
    bool        recomputed      : 1;  // it was computed before
    bool        carried : 1;  // it was stored because what it is made from is not there for long
    bool        visited : 1;  // scratch of tni_node_reschedule
    tni_node  **src;          // -> few, or owned
    tni_node   *few[3];
    tni_leaf   *leaf;    // this is a state of that leaf: gradients stop here and are deposited
    tni_origin *origin;  // of a view that needs gradients: the handle it was made for
    tni_buffer *buf;
    int64_t     start;  // where in buf it begins, in elements
    tni_node   *next;   // scratch: work lists
    tni_store
             *waiting;  // while it is not stored: the stores of it, which are pending again with it
    tni_node *output;   // of a primary: its newest output that lives; of an output: the next one
    tni_node *held;     // of a primary that is stored: outputs that recipes need, by output
    tni_site  site;     // this and what follows is written when the node is recorded
    int64_t   size[TN_MAX_RANK];
    tni_attr  attr;
};

// Its elements: a shape that was recorded does not overflow.
static inline int64_t tni_node_count(const tni_node *n)
{
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= n->size[i];
    return count;
}

// Records a node of the given shape over nsrc sources (each gets a reference), with one reference
// for the caller. NULL, reported, when memory is out.
tni_node *tni_node_new(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int nsrc,
                       tni_node *const *src);
// Output index (from 1) of a primary that is still pending, with one reference for the caller. NULL,
// reported, when memory is out. Nothing is evaluated meanwhile, unlike by tni_node_new.
tni_node *tni_node_output(tn_ctx *cx, tni_node *primary, int64_t index, tn_dtype dt, int rank,
                          const int64_t *size);
// The newest output of n that lives; the others follow by `output`. NULL where n has none.
static inline tni_node *tni_outputs(const tni_node *n)
{
    return n->op == TNI_OUTPUT_OP ? NULL : n->output;
}
// Whether a gradient of n can go to src, one of its sources. A primary that is no float passes on those
// of its other outputs alone.
static inline bool tni_passes_grad_to(const tni_node *n, const tni_node *src)
{
    return src->needs_grad && (n->op == TNI_OUTPUT_OP || tni_is_float((tn_dtype)src->dtype));
}
// A computed value that begins at an element of a buffer, which gets a reference more.
tni_node *tni_node_in_buffer(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size,
                             tni_buffer *buf, int64_t start);
// A view of src (whose own layout must be row-major): one node, with src's marks.
tni_node *tni_node_view(tn_ctx *cx, tni_node *src, const tni_view *v);
// Where the elements of n lie in its source: the whole of it unless n is a view.
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
void tni_node_unref(tn_ctx *cx, tni_node *n);
// The same for who lets the user ask for the value.
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
// Lets go what only a gradient wants of a computed node: its sources, but not what a view lies in.
void tni_node_forget(tn_ctx *cx, tni_node *n);
// Marks n done with a buffer (one reference is taken over), in which it begins at an element.
void tni_node_mark_done(tn_ctx *cx, tni_node *n, tni_buffer *buf, int64_t start);
// The primary of n, which is stored and needs no gradient, holds it from here on: recipes need it, and its
// call is not made again.
void tni_node_hold_output(tn_ctx *cx, tni_node *n);
// Marks n gone because its step failed: neither computed nor to be computed. The current call site is kept
// as the reason.
void tni_node_mark_gone(tn_ctx *cx, tni_node *n);
// Marks n, which is pending, not stored: it keeps its sources as its recipe.
void tni_node_mark_unstored(tn_ctx *cx, tni_node *n);
// Makes n pending again, with everything that it needs and that is not stored. Where something of that is
// gone, that node is returned and nothing changes; else NULL.
const tni_node *tni_node_reschedule(tn_ctx *cx, tni_node *n);
// Lets n go as tni_node_unref does; where its value is lost with that, the reason is that the node `by` was
// written over it into the store of that number.
void tni_node_overwrite(tn_ctx *cx, tni_node *n, const tni_node *by, uint64_t store);

#endif
