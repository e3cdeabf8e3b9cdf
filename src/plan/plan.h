// Planning: which pending nodes to run, what to store of them, where it lies in memory.
#ifndef TNI_PLAN_PLAN_H
#define TNI_PLAN_PLAN_H

#include "kernel/call.h"
#include "ops/ops.h"

// What the planner may know of a device.
typedef struct {
    size_t (*element_size)(tn_dtype dt);
    bool kernels;  // it runs kernels; else every op is a call
    bool fuses;    // several ops may be one kernel; else each has one of its own
    bool doubles;  // kernels compute in f64
    bool checked;  // every step may fail: its values are looked at
    bool
        loads_before_stores;  // a kernel of a map has all values of a point before it stores one of them
    bool async_errors;        // an index out of range is known only later
    int  buffers;             // most buffers of a kernel
    // Whether it runs a call along with a kernel that reads the result; NULL: none.
    bool (*takes)(void *session, const tni_offer *o);
    void *session;
} tni_limits;

// How an evaluation came about, which decides what it stores.
typedef enum {
    TNI_READ,   // of one value: everything that a live handle or a pending node may need stays
    TNI_FLUSH,  // of all pending values: the same, and walked nodes are spent
    TNI_STEP    // a step boundary: what is assigned, wanted, unconsumed or one element stays
} tni_mode;

// Why the value of a node is stored, as bits. A boundary stores by the first seven and by TNI_FLEETING,
// a read or a flush by TNI_BY_READ, TNI_BY_HANDLE and TNI_BY_PENDING; any of them by history, view and call.
typedef enum {
    TNI_BY_READ       = 1 << 0,   // it is the value that was asked for
    TNI_BY_ASSIGNMENT = 1 << 1,   // it was written into a tensor
    TNI_BY_WANT       = 1 << 2,   // tn_want, tn_keep
    TNI_BY_SCOPE      = 1 << 3,   // its tensor was made outside the innermost scope
    TNI_UNCONSUMED    = 1 << 4,   // nothing was made from a tensor of it
    TNI_SCALAR        = 1 << 5,   // it is one element, and has a tensor
    TNI_BY_PENDING    = 1 << 6,   // a node that is not of this evaluation has it as a source
    TNI_BY_HANDLE     = 1 << 7,   // it has a tensor
    TNI_BY_HISTORY    = 1 << 8,   // the gradient of a stored value needs it
    TNI_BY_VIEW       = 1 << 9,   // a stored view lies in it
    TNI_BY_CALL       = 1 << 10,  // it can be asked for, and the first output of its op is stored
    TNI_FLEETING =
        1 << 11  // it has a tensor, and what it is made from is computed again or given back
} tni_why;

// One node of the graph under evaluation. Positions are in id order, so a node's sources stand
// before it.
typedef struct {
    tni_node *n;
    uint32_t  edges;     // consumers in the graph
    uint16_t  why;       // bits of tni_why; 0: its value is not stored
    bool      dies;      // lets its sources go once computed, although it needs gradients
    bool      asked;     // it can be asked for, or is needed to compute again what can be
    bool      fleeting;  // it, or what it is made from, is computed again or given back
    bool      keeps;     // it holds its sources afterwards: a view, or for its gradient
    int32_t   base;      // position of the node that holds its elements; ~i: input i
    int32_t   part;  // values of several parts are not of one kernel; not 0: it is none's inside
} tni_item;

// A computed node that is read. It is free if nobody outside the graph needs it or its buffer, so
// that an update may write into it.
typedef struct {
    tni_node *n;
    uint32_t  edges;  // consumers in the graph
    bool      dies;   // after the evaluation nobody needs it, nor anything else in its buffer
} tni_input;

// The pending nodes an evaluation runs, and the computed nodes they read. With an op of several outputs
// come all of them that live, since they cannot be had later: its call is made once.
typedef struct {
    tn_ctx    *cx;
    tni_mode   mode;
    size_t     count, inputs, inputs_cap;
    tni_item  *item;
    tni_input *input;
    bool       unmarked;
} tni_graph;

bool tni_input_is_free(const tni_input *in);
// The reasons in words: "assigned, history".
tni_text tni_why_text(unsigned why);

// Gathers what the roots need (root: one node; NULL: all pending stores). While the graph is open
// a node's mark is its position plus one, each item holds a reference, and the context is busy.
bool tni_graph_open(tni_graph *g, tn_ctx *cx, tni_mode mode, tni_node *root);
// Takes the marks off again, before the first node may go. An item whose node has gone is NULL.
void tni_graph_unmark(tni_graph *g);
void tni_graph_close(tni_graph *g);

// Where the elements of a source are stored: the position of an item, or ~i for input i.
int32_t tni_base_of(const tni_graph *g, const tni_node *src);

// Where the value of an item lies. Items that share a place name the same root.
typedef enum {
    TNI_NOWHERE,  // a view: its base holds it
    TNI_ARENA,    // at an offset of the plan's arena
    TNI_OWN,      // in a buffer of its own, which outlives the evaluation
    TNI_INPUT     // in the buffer of an input: an update in place, or an assignment
} tni_where;

// One per item, at the same position.
typedef struct {
    tni_where where;
    uint32_t  root;      // item whose place it shares; itself if none; for TNI_INPUT the input
    bool      alias;     // shares its first source's memory as it is: nothing to run
    bool      filled;    // a concat whose sources all write into it: nothing to run
    bool      in_place;  // update: writes into its base's place
    int64_t   bytes;     // of the root's place
    int64_t   offset;    // of a root: in the arena
    int64_t   start;     // of what a concat takes in: in the concat, in elements
    bool      takes;     // TNI_OWN: the buffer of an input that dies, from where `taken` begins: an
    int32_t   taken;     // item that lies in an input, or ~input
    uint32_t  call;      // 1 + its number among the plan's calls; 0: it is none
} tni_place;

// Where a view begins in the node that holds its elements; 0 for what is no view.
static inline int64_t tni_offset_of(const tni_node *n)
{
    int64_t offset;
    tni_node_base((tni_node *)n, &offset);
    return offset;
}

// Whether all that the call of a node would write is empty: its value and the other outputs.
static inline bool tni_writes_nothing(const tni_node *n)
{
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        if (tni_node_count(o)) return false;
    return tni_node_count(n) == 0;
}

// Whether an item of a plan has its value without a call: a view, a share, a concat that its sources fill,
// nothing at all.
static inline bool tni_runs_nothing(const tni_graph *g, const tni_place *place, size_t i)
{
    const tni_node *n = g->item[i].n;
    return n->op == TNI_view || place[i].alias || place[i].filled || tni_writes_nothing(n);
}

// Where an access of a kernel finds its elements: in the place of an item or (~) of an input, from
// offset on. The view by which item `reader` reads its source number `edge` adds its own offset,
// which is known only when the plan runs; edge is -1 where there is none.
typedef struct {
    int32_t place, reader, edge;
    int64_t offset, stride[TNI_AXES + 1];
} tni_access_binding;

// Which number of an item a kernel is given.
typedef enum {
    TNI_NUMBER_VALUE,    // of full, scalar
    TNI_NUMBER_START,    // of iota
    TNI_NUMBER_STEP,     // of iota
    TNI_NUMBER_KEY,      // of a random op
    TNI_NUMBER_COUNTER,  // of a random op
    TNI_NUMBER_FILL,     // of pad
    TNI_NUMBER_LITERAL   // of the plan itself: a size, a bound, a known bool
} tni_number_kind;

typedef struct {
    uint8_t which, dtype;
    int32_t item;
    int64_t literal;
} tni_number_binding;

// A kernel of a plan and how to launch it. launch has the sizes and strides; addresses, offsets and
// numbers are filled in for each run. buffer: the place (item, or ~input) of each buffer; origin: the
// item each instruction stands for.
typedef struct {
    tni_kernel         *kernel;
    tni_launch          launch;
    int32_t             buffer[TNI_MAX_BUFFERS];
    tni_access_binding *source;
    tni_number_binding *number;
    int32_t            *origin;
    int32_t            *seed;  // items it computes, ~item for those it does not store
    size_t              seeds;
    int32_t call_item;    // the item whose op runs along with it, before each part of it; -1: none
    bool    only_reader;  // nobody else needs that op's result
    tni_epilogue epilogue;  // what the kernel does to it, if it is that
    void        *entry;     // the device's
    int64_t      bytes;     // that it moves
} tni_planned_kernel;

// The item of a seed, stored or not.
static inline int32_t tni_seed_item(int32_t seed)
{
    return seed < 0 ? ~seed : seed;
}

// A call of a plan as it is in every run: the shapes, strides and dtypes of its arguments, which the key
// has, and the device's entry for them. Addresses, attributes that are no part of the key, and what
// is the engine's are filled in for each run. arg: the inputs, behind them the outputs after the first.
typedef struct {
    int32_t  item;
    tni_call call;
    tni_arg *arg;
    void (*forget)(void *entry);  // frees call.entry
} tni_planned_call;

// A node as a call, without addresses, its arguments in arg, where there is room for tni_call_args.
tni_call tni_call_of(const tni_node *n, tni_arg *arg);
size_t   tni_call_args(const tni_node *n);

// What is to be said when an index of a plan turns out to be out of range after the graph is gone: of
// instruction ins (from 1) of a kernel, or, with ins 1, of a call. kernel: its number, or ~item.
typedef struct {
    int      ticket, ins, op, axis;
    int32_t  kernel;
    int64_t  size;
    tni_site site;
} tni_deferred_error;

// A step of a plan: item `item` by a device call, or, where that is negative, kernel ~item.
typedef int32_t tni_plan_step;

// A plan fits every graph of its key. It holds no node and no memory of a device; the cache owns
// it, or, for a graph too large for that, the run it was made for.
typedef struct tni_plan tni_plan;
struct tni_plan {
    uint64_t            hash;
    uint64_t            ops_hash;  // a hash of its ops, whatever their sizes are
    size_t              key_bytes;
    char               *key;
    size_t              count;
    tni_place          *place;
    int32_t            *part;  // by item, as the graph had them; NULL: nothing is cut
    int64_t             arena;
    size_t              steps, kernels, calls;
    tni_plan_step      *step;
    tni_planned_kernel *kernel;
    tni_planned_call   *call;
    bool                called;    // the calls have their entries
    uint64_t            runs;      // so far
    bool                prepared;  // the kernels have their entries
    bool                ready;     // and are compiled
    bool                weighed;   // what they take of the device was looked at
    bool                measured;  // scratch is known for the entries as they are
    size_t              scratch;   // the most that a step asks for, in bytes
    bool                recurs;    // another plan of the cache has the same ops_hash
    bool                unfused;   // it should have been fused and could not: ops run one by one
    uint64_t            used;      // when last, for the LRU
    bool                noted;     // what is to be said, and guarded, is known
    size_t              notes;
    tni_deferred_error *note;
    void               *replay;  // the device's, and what frees it
    void (*forget)(void *replay);
};

// Whether a concat is its sources' elements one after the other.
bool tni_concat_is_flat(const tni_node *n);

// The canonical form of a graph: equal bytes, equal plan. NULL, reported, when memory is out.
char     *tni_key_write(const tni_graph *g, size_t *bytes);
tni_plan *tni_plan_build(tni_graph *g, const tni_limits *limits);
void      tni_plan_free(tni_heap *h, tni_plan *p);
// Decides where every value of a plan with steps is stored (memory.c); false when memory is out.
bool tni_place_values(tni_graph *g, const tni_limits *limits, tni_plan *p);
// Describes the calls among the steps of a plan; false when memory is out. And frees them.
bool tni_plan_calls(const tni_graph *g, tni_plan *p);
void tni_plan_drop_calls(tni_heap *h, tni_plan *p);

// Cuts kernels of a plan in two, for the next plan of the same graph, by the parts of items. spilled: for
// each kernel the bytes that it keeps in memory for want of registers, which have to be worth what a
// cut moves more. False if none is cut: each is too small, or better as it is.
bool tni_split_kernels(tni_graph *g, const tni_plan *p, const int64_t *spilled);
// The bytes that a kernel spills in all, if each of its threads spills so many.
int64_t tni_spilled_bytes(const tni_planned_kernel *k, int64_t spilled);

enum { TNI_PLANS = 512, TNI_PLAN_NODES = 50000 };

// Plans by key, the least recently used given up first. Very large graphs are planned each
// time.
typedef struct {
    tni_plan *plan[TNI_PLANS];
    uint64_t  hash[TNI_PLANS];  // theirs
    tni_plan *last;             // that was asked for, which mostly is asked for again
    int       count;
    uint64_t  clock;
} tni_plans;

// The plan for a graph, found or built. *kept tells whether the cache holds it; if not, the caller
// frees it.
tni_plan *tni_plans_get(tni_plans *c, tni_graph *g, const tni_limits *limits, bool *kept);
// Gives the items of a graph the parts they have in the plan that is kept for it, if there is one.
// False, reported, when memory is out.
bool tni_plans_recall(const tni_plans *c, tni_graph *g);
// A better plan for the same graph takes the place of one that the cache holds, which is freed.
void tni_plans_replace(tni_plans *c, tni_heap *h, tni_plan *old, tni_plan *better);
void tni_plans_close(tni_plans *c, tni_heap *h);

#endif
