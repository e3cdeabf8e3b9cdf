// Fusion: from the items of a graph to units, each of which runs as one kernel or one device call.
//
// Inside plan/ only. An item is a view, or it *floats* (a cheap map that every reader computes for
// itself), or it is a *seed* (its value is stored, or it is a reduction) of a kernel unit, or it runs
// alone as a unit of its own: a kernel of one op, or a call of the device where no kernel can be written
// for the op. fuse.c decides which; lower.c writes a seed and what floats into it as instructions of a
// unit; axes.c finds the parallel and the reduced axes of a unit, and make_kernel.c makes the kernel. Op by op is the
// same with nothing joined: every item but numbers is a seed, and every seed a unit.
#ifndef TNI_PLAN_FUSE_H
#define TNI_PLAN_FUSE_H

#include "plan/plan.h"

// Which element of a value is meant, for a point of a unit's domain: coordinate j is start[j] + sum
// over axes k of step[j][k] times the coordinate of axis k, plus step[j][TNI_AXES] times the value of
// the instruction via, if there is one.
typedef struct {
    int64_t start[TN_MAX_RANK];
    int32_t step[TN_MAX_RANK][TNI_AXES + 1];
    int16_t via;
} tni_coords;

// An instruction in the making. item: whose value it is at coords; -1 of a helper. axes: where it
// varies, as bits of domain axes. mask: of a REDUCE, the axes it folds. guard: the value that tells
// where it counts; -1 if it does everywhere.
typedef struct {
    tni_ins    ins;
    int32_t    item;
    int32_t    origin;  // the item to name when it fails or is explained
    bool       seed;    // the value of a seed, to be stored if anyone else reads it
    uint32_t   moves;   // of a seed: the axes along which its element is another
    uint32_t   axes, mask;
    int16_t    guard;
    tni_coords coords;
} tni_lowered;

// A unit: a kernel in the making, or an item that runs alone (item >= 0), as a kernel if it has values, else
// by a call. Seeds are in id order.
// Invariant of a kernel: every seed is the value of an instruction, and roles were found for it.
typedef struct {
    int32_t             item;
    int32_t             into;        // the unit it was merged into, or itself
    int32_t             level;       // products, copies and the like on the longest way to it
    uint32_t            readers;     // units that read its results
    uint32_t            seen;        // scratch of searches
    int32_t             refused[4];  // units it could not be merged with, the last ones
    int                 refusals;
    int                 naxes;
    int64_t             size[TNI_AXES];
    uint32_t            reduced;  // R, as bits
    tni_lowered        *value;
    size_t              values, values_cap;
    tni_access_binding *source;  // accesses
    size_t              sources, sources_cap;
    tni_number_binding *number;
    size_t              numbers, numbers_cap;
    int32_t            *seed;
    size_t              seeds, seeds_cap;
    uint32_t           *before;  // units whose results it reads
    size_t              befores, befores_cap;
} tni_unit;

typedef enum {
    TNI_AS_VIEW,     // nothing to compute: a view, or an assignment that shares
    TNI_AS_INLINED,  // computed by its readers
    TNI_AS_SEED,     // an output or a reduction of a kernel
    TNI_AS_ALONE     // by a kernel or a call of its own
} tni_item_kind;

enum { TNI_READS = 6 };

// A value that is loaded for an item; NULL if it is read at other places than the item's own.
typedef struct {
    const tni_node *n;
    int64_t         bytes;
} tni_read;

// What is known of an item. Of what is loaded the first TNI_READS are listed, each once.
typedef struct {
    uint8_t  kind;
    uint8_t  activation;    // the op that reads it, if an epilogue may do that; else TNI_leaf
    bool     stored;        // its value must be in memory
    bool     never_inline;  // it does not float
    bool     whole;  // its readers would check an index or draw a number: only for its elements
    bool     cut;    // its readers would compute it in parts, each at its own points
    uint16_t ops;    // that its readers compute if it floats
    uint16_t cost;   // of these, in additions
    uint16_t reads;  // values they load for it
    int32_t  level;
    int32_t  unit;   // -1 while it floats
    int32_t  known;  // of a sum: one more than the item that tells it without folding, or 0
    uint32_t uses;   // readers, views looked through
    int64_t  bytes, read_bytes;
    tni_read read[TNI_READS];
} tni_decision;

// All of it, while a plan is built. reader: for each item and then each input, the kernel unit that
// read it last; single: the kernel unit over one element that was placed last.
typedef struct {
    tni_graph        *g;
    const tni_limits *limits;
    tni_decision     *decision;
    tni_unit         *unit;
    size_t            units, units_cap;
    int32_t          *reader, single;
    uint32_t          search;
    bool              failed;  // memory is out
} tni_fusion;

// The unit that a unit has become by merging.
static inline int32_t tni_final_unit(const tni_fusion *f, int32_t unit)
{
    while (unit >= 0 && f->unit[unit].into != unit) unit = f->unit[unit].into;
    return unit;
}

// All axes of a unit, as bits; and the number of points over some of them.
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

// A row, or an axis of lanes, of fewer elements than this is short.
enum { TNI_SHORT_ROW = 16 };

// Whether a unit is a call of the device.
static inline bool tni_unit_is_call(const tni_unit *u)
{
    return u->item >= 0 && !u->values;
}

// The item (or ~input) whose elements an assignment that shares has: itself if it is none.
int32_t tni_shared_item(const tni_fusion *f, int32_t item);

// The coordinates of a value's element at `offset` + strides over axes of its row-major elements, at
// the points from `from` to `to` of the axes. False if they are no sums of axes.
bool tni_delinearize(const tni_node *n, int64_t offset, const int64_t *stride, int naxes,
                     const int64_t *from, const int64_t *to, int64_t via_size, tni_coords *c);

// Adds seed i to a unit, each axis of its domain on the axes of the unit that `align` has as bits,
// the outermost first (none: it has one place); the unit is as before where that fails.
bool tni_lower_seed(tni_fusion *f, tni_unit *u, int32_t i, const uint32_t *align);

// A unit reads the results of another; and takes back what it read last, down to so many. False when
// memory is out.
bool tni_unit_reads(tni_fusion *f, tni_unit *u, int32_t unit);
void tni_unit_forget(tni_fusion *f, tni_unit *u, size_t befores);

// The shape a seed is computed over: its own, or its source's if it folds that.
const tni_node *tni_seed_domain(const tni_fusion *f, int32_t i);
// The item that tells the sum i without folding anything; -1 if there is none.
int32_t tni_closed_form_sum(const tni_fusion *f, int32_t i);

// Finds the reduced axes of a unit; false if it cannot be one kernel.
bool tni_find_reduced_axes(tni_unit *u);
// The finished kernel of a unit whose stored values are known. False when memory is out.
bool tni_make_kernel(tni_fusion *f, tni_unit *u, tni_planned_kernel *out);

// Decides how each item is computed: see decide.c.
void tni_decide_items(tni_fusion *f);
// Whether readers can compute an item of this op themselves, whatever its sources are.
bool tni_can_inline(const tni_node *n);
bool tni_fuse(tni_fusion *f);
// The units in an order in which they can run, as steps and kernels of the plan: by their first
// item, as far as that goes.
bool tni_order_units(tni_fusion *f, tni_plan *p);
// Makes a map of a sealed kernel that folds only a few elements for each row; it is to be sealed
// again. False when memory is out.
bool tni_unroll(tni_heap *h, tni_planned_kernel *f);
// Joins library ops with the kernels that follow them, as far as the device takes them.
bool tni_offer_epilogues(tni_fusion *f, tni_plan *p);
void tni_fusion_close(tni_fusion *f);

#endif
