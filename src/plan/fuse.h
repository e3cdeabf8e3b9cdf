// Fusion: from the items of a graph to units, each of which runs as one kernel or one device call.
//
// Inside plan/ only. decide.c decides how each item is computed:
//
//   view     nothing is computed: a view, or an assignment that shares its source's memory
//   inlined  a cheap map, which every reader computes for itself; it is never in memory
//   seed     a reduction, or a value that is in memory: what a kernel is built around
//   alone    a unit of its own: a call of the device, or a kernel of one op
//
// fuse.c puts the seeds into units. lower.c writes a seed, with everything inlined into it, as
// instructions of a unit; axes.c finds which axes of a unit are reduced; order_units.c orders the
// units; make_kernel.c makes the kernel. A context that runs op by op takes the same way with
// nothing joined: every item but numbers is a seed, and every seed a unit.
#ifndef TNI_PLAN_FUSE_H
#define TNI_PLAN_FUSE_H

#include "plan/plan.h"

// Which element of a value is meant at a point of a unit's domain. Coordinate j of the element is
//   start[j] + sum over axes k of step[j][k] * (coordinate of the point along axis k)
//            + step[j][TNI_AXES] * (value of instruction via), if via is one (a gather's index).
// So a transposed, sliced or broadcast read is other steps of the same value. A read for which no
// such sums exist (most reshapes of strided views) needs its source in memory.
typedef struct {
    int64_t start[TN_MAX_RANK];
    int32_t step[TN_MAX_RANK][TNI_AXES + 1];
    int16_t via;
} tni_coords;

// A value of a unit: an instruction of the kernel to be, and what it stands for.
// Invariant: operands are values before it; axes is the union of its operands' axes and of those
// along which its access moves, less mask.
typedef struct {
    tni_ins    ins;
    int32_t    item;    // the item whose value it is, at coords; -1: a helper
    int32_t    origin;  // the item to name when it fails or is explained
    bool       seed;    // it is the value of a seed, stored if another unit reads it
    uint32_t   moves;   // of a seed: the domain axes along which its element changes, as bits
    uint32_t   axes;    // the domain axes along which it varies
    uint32_t   mask;    // of a REDUCE: the axes it folds
    int16_t    guard;   // the bool value that tells where this one is defined; -1: everywhere
    tni_coords coords;
} tni_lowered;

// A unit: a kernel being written, or an item that runs alone (item >= 0), by a kernel if it has
// values, else by a call. Units are merged by writing one anew and letting the other's `into` point
// to it. Invariant of a kernel: every seed is the value of one instruction, seeds are in id order,
// and `reduced` is a choice of reduced axes by which it can be one kernel (tni_find_reduced_axes
// succeeded).
typedef struct {
    int32_t             item;     // -1: a kernel of seeds
    int32_t             into;     // the unit it was merged into, or itself
    int32_t             level;    // calls (products, copies and the like) on the longest path to it
    uint32_t            readers;  // units that read its results
    uint32_t            seen;     // search_id of the search that visited it last
    int32_t             refused[4];  // the units it could not be merged with, the last four
    int                 refusals;
    int                 naxes;
    int64_t             size[TNI_AXES];
    uint32_t            reduced;  // the reduced axes R, as bits
    tni_lowered        *value;
    size_t              values, values_cap;
    tni_access_binding *source;  // the accesses of its loads and PLACEs
    size_t              sources, sources_cap;
    tni_number_binding *number;
    size_t              numbers, numbers_cap;
    int32_t            *seed;
    size_t              seeds, seeds_cap;
    uint32_t           *dep;  // units whose results it reads; may name merged ones
    size_t              deps, deps_cap;
} tni_unit;

// How an item is computed: see above.
typedef enum { TNI_AS_VIEW, TNI_AS_INLINED, TNI_AS_SEED, TNI_AS_ALONE } tni_item_kind;

// The decision for an item, and the costs it was made by. ops, cost, reads and read_bytes are what
// a reader takes on if the item is inlined: they include everything that is inlined into the item.
// Invariant: an inlined item is not in_memory and not never_inline.
typedef struct {
    uint8_t  kind;        // tni_item_kind
    uint8_t  activation;  // the activation that reads it, if it could be an epilogue; else TNI_leaf
    bool     in_memory;   // its value is stored in the arena or a buffer
    bool     never_inline;   // it must not be inlined
    bool     never_guarded;  // it checks an index or draws a number: never under a guard
    bool     own_unit;       // no other item joins its kernel
    uint16_t could;          // choices that would change what was decided, as bits: choices.c
    bool piecewise;  // a pad or concat is inlined in it: each piece is defined at its own points
    uint16_t ops;    // instructions
    uint16_t cost;   // of these, in additions
    uint16_t reads;  // values loaded
    bool from_kept;  // all it is made from, but for small values, is one value that is kept as long
    int32_t  level;  // as of a unit
    int32_t  last_level;  // of the reader that was counted last
    int32_t  until;      // the highest level at which it is read, by way of what may be inlined too
    int32_t  unit;       // -1 while it has none: a view, or inlined
    int32_t  short_pad;  // 1 + the pad of short rows that is inlined in it; 0: none
    int32_t  closed_form;  // of a sum without a loop: 1 + the scatter_add it follows from
    uint32_t uses;         // readers, looked at through views
    uint32_t levels;  // levels of these: what is read at one of them may be computed once for all
    int64_t  bytes, read_bytes;
    uint32_t fills;  // 1 + the concat into whose rows its kernel stores it; 0: none
} tni_decision;

// The state of fusion while a plan is built.
typedef struct {
    tni_graph        *g;
    const tni_limits *limits;
    tni_decision     *decision;  // by item
    tni_unit         *unit;
    size_t            units, units_cap;
    int32_t *reader;        // by item, then by input: the kernel unit that read it last; -1: none
    int32_t  scalar_unit;   // the kernel unit over one element that was placed last; -1: none
    uint32_t search_id;     // of the last search for a cycle
    int      more_buffers;  // that a unit may have beyond the limit
    bool     failed;        // memory is out
} tni_fusion;

// Returns the unit that a unit has become by merging; -1 for -1.
static inline int32_t tni_final_unit(const tni_fusion *f, int32_t unit)
{
    while (unit >= 0 && f->unit[unit].into != unit) unit = f->unit[unit].into;
    return unit;
}

// Returns all axes of a unit, as bits; and the number of points over some of them.
static inline uint32_t tni_all_axes(const tni_unit *u)
{
    return (1u << u->naxes) - 1;
}

static inline int64_t tni_points(const tni_unit *u, uint32_t axes)
{
    int64_t n = 1;
    for (int k = 0; k < u->naxes; k++)
        if (axes >> k & 1) n *= u->size[k];
    return n;
}

// Whether something was chosen for an item; and to note that it could be.
static inline bool tni_is_chosen(const tni_fusion *f, int32_t item, tni_choice_kind kind)
{
    return f->g->item[item].choices >> kind & 1;
}

static inline void tni_could_choose(tni_fusion *f, int32_t item, tni_choice_kind kind)
{
    f->decision[item].could |= (uint16_t)(1 << kind);
}

// Rows shorter than this are not worth lanes of their own: the vectors of a CPU and the threads of
// a warp would mostly be idle.
enum { TNI_SHORT_ROW = 16 };

// Whether a unit is a call of the device.
static inline bool tni_unit_is_call(const tni_unit *u)
{
    return u->item >= 0 && !u->values;
}

// Returns the item whose elements an assignment that shares its source has; any other item itself.
int32_t tni_shared_item(const tni_fusion *f, int32_t item);

// Finds the coordinates of the element of n at row-major position offset + strides over axes, at
// the points from `from` to `to` of the axes, and with an index below via_size. False if they are
// no sums of axes.
bool tni_delinearize(const tni_node *n, int64_t offset, const int64_t *stride, int naxes,
                     const int64_t *from, const int64_t *to, int64_t via_size, tni_coords *c);

// Writes seed i into a unit. align[j]: the axes of the unit, as bits, that axis j of the seed's
// domain is mapped to, several if it is their product, outermost first; 0 if it has size 1. On
// failure the unit is as before.
bool tni_lower_seed(tni_fusion *f, tni_unit *u, int32_t i, const uint32_t *align);

// Records that a unit reads the results of another; false when memory is out. The other function
// removes the last entries again, down to a count.
bool tni_unit_add_dep(tni_fusion *f, tni_unit *u, int32_t unit);
void tni_unit_drop_deps(tni_fusion *f, tni_unit *u, size_t deps);

// Returns the node whose shape is a seed's domain: its source's if it folds that, else its own.
const tni_node *tni_seed_domain(const tni_fusion *f, int32_t i);
// Returns the scatter_add from which sum i follows without a loop; -1 if there is none.
int32_t tni_closed_form_sum(const tni_fusion *f, int32_t i);

// Finds the reduced axes of a unit (axes.c); false if it cannot be one kernel.
bool tni_find_reduced_axes(tni_fusion *f, tni_unit *u);
// Makes the kernel of a unit once it is known which of its seeds are in memory. False when memory
// is out.
bool tni_make_kernel(tni_fusion *f, tni_unit *u, tni_planned_kernel *out);

// Decides how each item is computed: see decide.c.
void tni_decide_items(tni_fusion *f);
// Whether readers can compute an item of this op themselves, whatever its sources are.
bool tni_can_inline(const tni_node *n);
// Decides, and puts every seed into a unit. False, with failed set, when memory is out.
bool tni_fuse(tni_fusion *f);
// Orders the units and writes them as steps and kernels of the plan. False if memory is out (failed
// is set), or if no order exists or a kernel breaks the rules of kernel.h.
bool tni_order_units(tni_fusion *f, tni_plan *p);
// Turns a sealed kernel that folds only a few elements per row into a map; it has to be sealed
// again. False when memory is out.
bool tni_unroll(tni_heap *h, tni_planned_kernel *f);
// Makes one step of a library call and the kernel that reads its result, where the device takes the
// two. False when memory is out.
bool tni_offer_epilogues(tni_fusion *f, tni_plan *p);
void tni_fusion_close(tni_fusion *f);

#endif
