// Planning: which pending nodes an evaluation runs, which of their values it stores, and where.
//
//   tni_graph_open   nodes -> items, inputs, and why each value is stored     graph.c
//   tni_key_write    items -> bytes: equal bytes, equal plan                  key.c
//   tni_plans_get    key -> plan, found or built                              cache.c
//   tni_plan_build   items -> steps (kernels and calls) and places            build.c
#ifndef TNI_PLAN_PLAN_H
#define TNI_PLAN_PLAN_H

#include "kernel/call.h"
#include "kernel/tuning.h"
#include "ops/ops.h"

// The facts about a device that the planner decides by. The planner sees no more of a device than
// this, so a plan is a function of the graph's key, of these limits, which do not change while a
// context is open except where inspection is switched on or off, and of choices that measuring has
// made for it (choices.c).
typedef struct {
    size_t (*element_size)(tn_dtype dt);
    bool kernels;  // it runs kernels; else every op is a call
    bool fuses;    // several ops may share a kernel; else each op has a kernel of its own
    bool doubles;  // kernels compute in f64
    bool checked;  // the values of every step are inspected, so any step may fail
    // A kernel without reductions loads all values of a point before it stores one of them. Then
    // any result of it may overwrite any input that it reads at the same place.
    bool loads_before_stores;
    bool async_errors;  // an index out of range is reported after the step, not by it
    // Products are fast if the rows of their matrices begin at multiples of that many bytes; 0:
    // wherever they begin.
    int row_bytes;
    int buffers;  // the most buffers a kernel may have
    // Rows side by side in memory that keep the whole device busy, whatever their length; 0: any
    // number.
    int64_t lanes;
    // Whether the device runs a library call and the kernel that reads its result as one step; NULL
    // if it never does. Called while the plan is built.
    bool (*takes)(void *session, const tni_offer *o);
    void *session;  // the argument of takes
    // Whether the results of a library call may have strides.
    bool (*strided)(const void *device, int op);
    // What a call could do otherwise, as bits of tni_otherwise; NULL: nothing.
    unsigned (*others)(const void *device, const tni_call *call);
    const void *device;  // the argument of strided and others
    const char *chip;    // whose choices are looked for when a plan is built; NULL: rules decide
} tni_limits;

// What started an evaluation, which decides what it computes and stores.
typedef enum {
    TNI_READ,  // one value: everything that a live handle or a pending node may need is stored
    TNI_FLUSH,  // all pending values: stores as TNI_READ does, and nodes a backward pass walked are spent
    TNI_STEP  // a step boundary: stores what is assigned, wanted, unconsumed or one element
} tni_mode;

// Why the value of a node is stored, that is, why it outlives the evaluation, as bits. A step
// boundary looks at all of them but TNI_BY_READ and TNI_BY_HANDLE; a read or a flush only at
// TNI_BY_READ, TNI_BY_PENDING and TNI_BY_HANDLE. TNI_BY_HISTORY, TNI_BY_VIEW and TNI_BY_CALL follow
// from other stored values in every mode.
typedef enum {
    TNI_BY_READ       = 1 << 0,  // it is the value the evaluation was asked for
    TNI_BY_ASSIGNMENT = 1 << 1,  // it was written into a tensor
    TNI_BY_WANT       = 1 << 2,  // tn_want, tn_keep
    TNI_BY_SCOPE      = 1 << 3,  // its tensor was made outside the innermost scope
    TNI_UNCONSUMED    = 1 << 4,  // it has a tensor, and no node was made from it
    TNI_SCALAR        = 1 << 5,  // it has a tensor, and one element: a loss is printed later
    TNI_BY_PENDING    = 1 << 6,  // a node outside this evaluation has it as a source
    TNI_BY_HANDLE     = 1 << 7,  // it has a tensor
    TNI_BY_HISTORY    = 1 << 8,  // the gradient of a stored value needs it
    TNI_BY_VIEW       = 1 << 9,  // a stored value is a view of it
    TNI_BY_CALL =
        1 << 10,  // a tensor or a recipe needs it, and the first output of its op is stored
    TNI_BY_RECOMPUTE =
        1 << 11  // it has a tensor, and its sources are recomputed or released: recomputing
                 // it later would reach further back with every step
} tni_why;

// One node of the graph under evaluation. Items are in id order, which is topological: the sources
// of item i that are pending are items before i. Everything here is found by tni_graph_open.
typedef struct {
    tni_node *n;
    uint32_t  edges;       // consumers in the graph
    uint16_t  why;         // bits of tni_why; 0: its value is not stored
    bool becomes_spent;    // no gradient can pass it after this evaluation: it releases its sources
    bool needed_later;     // it has a tensor or a recipe, or a value that has is recomputed from it
    bool from_recomputed;  // it, or a source of it, is recomputed here or released afterwards
    bool keeps_sources;  // it holds its sources afterwards: it is a view, or a gradient needs them
    int32_t base;       // the item that holds its elements, itself unless it is a view; ~i: input i
    int32_t partition;  // items of different partitions never share a kernel (split.c); nonzero:
                        // never inlined into a reader
    uint16_t choices;   // bits of tni_choice_kind that were chosen for it (choices.c)
} tni_item;

// A computed node that the graph reads.
typedef struct {
    tni_node *n;
    uint32_t  edges;  // consumers in the graph
    bool      dies;   // after the evaluation neither it nor anything else in its buffer is needed
} tni_input;

// The pending nodes an evaluation runs, and the computed nodes they read. A node of several outputs
// brings in all its outputs that are alive: they are written by one call, which is made once.
// Invariant while open: the mark of an item's node is its position plus one, that of an input its
// number plus one; every item holds a reference to its node, and the context is busy.
typedef struct {
    tn_ctx    *cx;
    tni_mode   mode;
    size_t     count, inputs, inputs_cap;
    tni_item  *item;
    tni_input *input;
    bool       unmarked;
    bool       body;  // of a loop
} tni_graph;

// Whether an update may write into the buffer of an input: it dies, and no other node is in its
// buffer.
bool tni_input_is_free(const tni_input *in);
// Returns the reasons in words: "assigned, history".
tni_text tni_why_text(unsigned why);

// Gathers the pending nodes that root needs (root NULL: that all pending stores need) and decides
// which of their values are stored. False, reported, when memory is out; tni_graph_close is due in
// any case.
bool tni_graph_open(tni_graph *g, tn_ctx *cx, tni_mode mode, tni_node *root);
// Gathers what the outputs of a loop's body are made of; they are stored. As tni_graph_open
// otherwise.
bool tni_graph_open_body(tni_graph *g, tn_ctx *cx, int n, tni_node *const *root);
// The same for roots that are values of the context, and not of a body.
bool tni_graph_open_roots(tni_graph *g, tn_ctx *cx, int n, tni_node *const *root);
// Removes the marks, so that nodes may be freed before the graph is closed. An item whose node was
// freed has n NULL from then on.
void tni_graph_unmark(tni_graph *g);
// Releases the nodes and frees the lists.
void tni_graph_close(tni_graph *g);

// Returns where the elements of a source are stored: the position of an item, or ~i for input i.
int32_t tni_base_of(const tni_graph *g, const tni_node *src);

// Where the value of an item is stored: memory.c decides. Items that share a place have the same
// root.
typedef enum {
    TNI_NOWHERE,  // a view, whose base is stored; or a value that only exists inside a kernel
    TNI_ARENA,    // at an offset of the plan's arena: gone after the evaluation
    TNI_OWN,      // in a buffer that outlives the evaluation
    TNI_INPUT     // in the buffer of an input: an update in place, or an assignment that shares
} tni_where;

// The place of an item; there is one per item, at the same position.
// Invariant: bytes and offset are those of the root, so only place[root] of them is meaningful;
// where of an item that shares is that of its root.
typedef struct {
    tni_where where;
    uint32_t  root;   // the item whose place it shares, or itself; TNI_INPUT: the input
    bool      alias;  // an assignment that shares its source's memory: nothing to run
    bool filled;  // a concat whose sources are all computed into it, or an update whose value is:
                  // nothing to run
    bool    in_place;  // an update that writes into its base's place, instead of copying that first
    int64_t bytes;     // of a root: the size of the place, a multiple of 64
    int64_t offset;    // of a root in the arena: its first byte there
    int64_t start;     // of an item that is computed into a concat: its first element there
    uint32_t into;     // of an item that is computed into the place of an update: 1 + that item
    bool     donated;  // TNI_OWN: the value overwrites an input that dies, and keeps its buffer
    int32_t  donor;    // of a donated place: the item stored in that input, or ~input
    uint32_t call;     // 1 + its number among the plan's calls; 0: it has no call
    int64_t  row;      // elements of a row, one or more of the last axes together
    int64_t  pitch;    // elements from one row to the next; 0: rows have no gap
} tni_place;

// Whether two nodes belong to one recording: neither is computed again for a backward pass, or both
// are, as parts of the same call of a layer.
static inline bool tni_same_pass(const tni_node *a, const tni_node *b)
{
    return a->again == b->again && (!a->again || a->region == b->region);
}

// Returns where a view begins in the node that holds its elements, in elements; 0 if n is no view.
static inline int64_t tni_offset_of(const tni_node *n)
{
    int64_t offset;
    tni_node_base((tni_node *)n, &offset);
    return offset;
}

// Whether the call of a node would write no element: its value and its other outputs are all empty.
static inline bool tni_writes_nothing(const tni_node *n)
{
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        if (tni_node_count(o)) return false;
    return tni_node_count(n) == 0;
}

// Whether an item of a plan needs no call: it is a view, shares memory, is a concat that its
// sources fill, or is empty.
static inline bool tni_runs_nothing(const tni_graph *g, const tni_place *place, size_t i)
{
    const tni_node *n = g->item[i].n;
    return n->op == TNI_view || place[i].alias || place[i].filled || tni_writes_nothing(n);
}

// Where an access of a kernel finds its elements: in the place of an item or (~) of an input, from
// offset on. If the access reads source number `edge` of item `reader`, the offset of that source's
// view is added in each run, since it is not part of the key; edge is -1 if there is no such view
// (a store, or a PLACE).
typedef struct {
    int32_t place, reader, edge;
    int64_t offset, stride[TNI_AXES + 1];  // in elements, by axis; the last: of an index
    int64_t indices;                       // of an access by an index: how many values that has
} tni_access_binding;

// Which number of an item's attributes a kernel is given.
typedef enum {
    TNI_NUMBER_VALUE,    // of full, scalar
    TNI_NUMBER_START,    // of iota
    TNI_NUMBER_STEP,     // of iota
    TNI_NUMBER_KEY,      // of a random op
    TNI_NUMBER_COUNTER,  // of a random op
    TNI_NUMBER_FILL,     // of pad
    TNI_NUMBER_LITERAL   // fixed by the plan: a size, a bound, a known bool
} tni_number_kind;

// Where a number of a kernel comes from in each run: an attribute of an item, or
// (TNI_NUMBER_LITERAL) the plan itself, with item -1. Numbers are arguments and not part of the
// key, so a new learning rate finds the same plan.
typedef struct {
    uint8_t which, dtype;  // tni_number_kind; the dtype the kernel computes with
    int32_t item;
    int64_t literal;
} tni_number_binding;

// A kernel of a plan and how to launch it. The sizes and strides of the launch are fixed;
// addresses, offsets and numbers are filled in for each run from buffer, source and number.
typedef struct {
    tni_kernel         *kernel;
    tni_launch          launch;
    int32_t             buffer[TNI_MAX_BUFFERS];  // the place of each buffer: an item, or ~input
    tni_access_binding *source;                   // by access
    tni_number_binding *number;                   // by number
    int32_t            *origin;  // by instruction: the item it computes, for messages
    int32_t            *seed;    // the items it computes; ~item if it does not store one
    size_t              seeds;
    int32_t      call_item;  // the library call that runs as one step with it, before it; -1: none
    bool         only_reader;  // no other step needs the result of that call
    tni_epilogue epilogue;     // the kernel in terms of that result, if it is an epilogue
    bool is_prologue;  // its launch is left to the call of the next step, which reads what it makes
    bool prologue_kept;   // and what it makes is read by another step, or outlives the plan
    tni_tuning settings;  // of the launch in this run, where scratch depends on them
    void      *entry;     // the device's
    int64_t    bytes;     // that it moves: each element once for each access
} tni_planned_kernel;

// Returns the item of an entry of tni_planned_kernel.seed, stored or not.
static inline int32_t tni_seed_item(int32_t seed)
{
    return seed < 0 ? ~seed : seed;
}

// A call of a plan with everything that is equal in all runs: the shapes, strides and dtypes of its
// arguments, all of which the key has, and the device's entry for them. Addresses, attributes that
// are not part of the key, and the engine's own fields are filled in for each run.
typedef struct {
    int32_t  item;
    tni_call call;
    tni_arg *arg;                 // the inputs, then the outputs after the first
    void (*forget)(void *entry);  // frees call.entry
} tni_planned_call;

// Describes a node as a call without addresses. Its arguments are written to arg, which has room
// for tni_call_args(n).
tni_call tni_call_of(const tni_node *n, tni_arg *arg);
size_t   tni_call_args(const tni_node *n);

// The message for an index that turns out to be out of range after its graph is gone
// (engine/deferred_errors.c). The device reports the ticket and 1 + the instruction that failed;
// for a call the instruction is 1.
typedef struct {
    int      ticket, ins, op, axis;
    int32_t  kernel;  // the number of the kernel, or ~item for a call
    int64_t  size;    // of the axis that the index goes along
    tni_site site;
} tni_deferred_error;

// A step of a plan: a call for item `step`, or, if that is negative, kernel ~step.
typedef int32_t tni_plan_step;

// A plan: the steps of a graph in order, and where every value is stored. It fits every graph with
// its key, holds no node and no device memory, and is owned by the cache; for a graph too large for
// the cache, by the run it was made for.
// Invariant: place and partition are by item, so `count` equals the graph's.
typedef struct tni_plan tni_plan;
struct tni_plan {
    uint64_t       hash;      // of key
    uint64_t       ops_hash;  // of its ops alone, without sizes
    size_t         key_bytes;
    char          *key;
    size_t         count;
    tni_place     *place;
    int32_t       *partition;  // by item, as the graph had them; NULL: no kernel was split
    tni_choices    choices;    // that it was built with
    bool           chosen;     // others were measured as far as it is worth it: inspect/tune_plan.c
    bool           choosing;   // some of them were
    int64_t        arena;      // bytes
    size_t         steps, kernels, calls;
    size_t         overwrites;  // the first step that overwrites an input; `steps`: none does
    bool           measured;  // every kernel and call was, as far as it is worth it: inspect/tune.c
    tni_plan_step *step;
    tni_planned_kernel *kernel;
    tni_planned_call   *call;
    bool                calls_prepared;  // the calls have their entries
    uint64_t            runs;            // so far
    bool                prepared;        // the kernels have their entries
    bool                ready;           // and are compiled
    bool                spills_checked;  // the registers its kernels spill were looked at
    bool                scratch_known;   // scratch is right for the entries as they are
    size_t              scratch;         // bytes, the most that a step asks for
    bool                recurs;          // another plan of the cache has the same ops_hash
    bool                unfused;         // no order of fused units was found, so ops run one by one
    bool                pinned;          // it belongs to one run, which is repeated: tni_plans_pin
    uint64_t            used;            // clock of the cache when it was last used, for the LRU
    bool                errors_registered;  // `error` and the kernels' guards are set
    size_t              errors;
    tni_deferred_error *error;
    void               *replay;  // the device's captured graph, and the function that frees it
    void (*forget)(void *replay);
    // Collectives among its steps: their items in the order in which they run, a hash of all that
    // ranks have to agree in, and by step, the last is the end, how many must have arrived before
    // it: what they read and write is used by nothing else until then. segment: as replay, for the
    // steps between those that wait or begin one.
    size_t    collectives;
    int32_t  *collective;
    uint64_t  collectives_hash;
    uint32_t *arrive;
    void    **segment;
    size_t    segments;
};

// Whether a concat is the elements of its sources one after the other: all axes before its axis
// have size 1.
bool tni_concat_is_flat(const tni_node *n);

// Writes the canonical form of a graph (key.c): equal bytes, equal plan. The caller frees it. NULL,
// reported, when memory is out.
char *tni_key_write(const tni_graph *g, size_t *bytes);
// Returns the words that a source of an item takes in the key.
size_t tni_key_source_words(const tni_node *src);
// Builds the plan of an open graph (build.c). NULL, reported, when memory is out.
tni_plan *tni_plan_build(tni_graph *g, const tni_limits *limits);
void      tni_plan_free(tni_heap *h, tni_plan *p);
// Chooses the values whose rows are stored with gaps, and gives the kernels the strides for it
// (pad_rows.c).
void tni_pad_rows(const tni_graph *g, const tni_limits *limits, tni_plan *p);
// Whether all sources of a concat are results of library calls that can be written with the strides
// of the concat, and nothing else reads them.
bool tni_concat_is_strided(const tni_graph *g, const tni_limits *limits, const tni_node *concat);
// Returns the elements of a concat, or of a source of it, from its axis on: one row.
int64_t tni_concat_row(const tni_node *concat, const tni_node *n);
// Gives an argument of a call, whose node is n, the strides of its place.
void tni_pad_arg(const tni_graph *g, const tni_plan *p, const tni_node *n, tni_arg *arg);
// Decides where every value of a plan with steps is stored (memory.c); false when memory is out.
bool tni_place_values(tni_graph *g, const tni_limits *limits, tni_plan *p);
// Describes the calls among the steps of a plan; false when memory is out. The other function frees
// them.
bool tni_plan_calls(const tni_graph *g, tni_plan *p);
void tni_plan_drop_calls(tni_heap *h, tni_plan *p);

// Splits kernels of a plan in two (split.c), by giving the items of the halves different
// partitions; the caller then builds another plan of the graph. spilled[i]: bytes spilled by kernel
// i; it is split only if that saves more than the split moves. False if none is split.
bool tni_split_kernels(tni_graph *g, const tni_plan *p, const int64_t *spilled);
// Returns the item behind which a kernel is cut in two best, -1 if no cut makes two smaller ones.
int32_t tni_best_cut(const tni_graph *g, const tni_planned_kernel *k);
// Returns the bytes that a whole launch of a kernel moves to and from spilled registers, if one
// thread spills `spilled` bytes.
int64_t tni_spilled_bytes(const tni_planned_kernel *k, int64_t spilled);

// A choice that would change a plan, the bytes that the steps move which it is about, and one of
// the items.
typedef struct {
    tni_choice choice;
    int64_t    bytes;
    int32_t    item;
} tni_alternative;

// Choices (choices.c): gives the items of a graph those that are about them, instead of the ones
// they have; says which values a choice is about by a hash that no two graphs with one key differ
// in; lists what could be chosen otherwise than plan p, which was built from the graph as it is, in
// the order of their bytes. Returns how many, or -1 when memory is out.
void     tni_choose(tni_graph *g, const tni_choices *c);
uint32_t tni_choice_where(const tni_graph *g, size_t item);
int      tni_alternatives(tni_graph *g, const tni_limits *limits, const tni_plan *p,
                          tni_alternative *dst, int room);
// Finds what was measured for the key of a graph on this chip. False if there is nothing, or if a
// choice of it is about no item, as one of another version of Tenon may be: the rest of it would
// make a plan that was never measured.
bool tni_find_winner(const tni_graph *g, const tni_limits *limits, const void *key, size_t bytes,
                     tni_tuned *won);

// A loop over batch sizes or sequence lengths builds a plan for each; 512 hold such a loop, and
// looking through as many hashes costs less than running one kernel. A graph of more nodes than
// TNI_PLAN_NODES is evaluated rarely (an unrolled program), and its key alone would take megabytes.
enum { TNI_PLANS = 512, TNI_PLAN_NODES = 50000 };

// Plans by their exact key; the least recently used one is freed first.
// Invariant: hash[i] is plan[i]->hash; `last` is one of the plans, or NULL.
typedef struct {
    tni_plan *plan[TNI_PLANS];
    uint64_t  hash[TNI_PLANS];
    tni_plan *last;  // the plan returned last, which mostly is asked for again
    int       count;
    uint64_t  clock;
} tni_plans;

// Returns the plan of a graph, found or built; NULL, reported, on failure. *kept tells whether the
// cache owns it; if not, the caller frees it.
tni_plan *tni_plans_get(tni_plans *c, tni_graph *g, const tni_limits *limits, bool *kept);
// Gives the items of a graph the partitions and choices they have in its cached plan, or would have
// in a new one. False, reported, when memory is out.
bool tni_plans_recall(const tni_plans *c, tni_graph *g, const tni_limits *limits);
// Puts a better plan of the same graph into the place of a cached one, which is freed.
void tni_plans_replace(tni_plans *c, tni_heap *h, tni_plan *old, tni_plan *better);
// Takes a cached plan away from all others: no graph finds it any more, until tni_plans_drop frees
// it. What its kernels are launched with stays as its last run left it. False if many are already.
bool tni_plans_pin(tni_plans *c, tni_plan *p);
void tni_plans_drop(tni_plans *c, tni_heap *h, tni_plan *p);
void tni_plans_close(tni_plans *c, tni_heap *h);

#endif
