// The roles of a unit's axes: reduced (R) or parallel (P). See kernel.h for what the two mean to a
// kernel.
//
// Reductions decide. One that folds exactly R is a main reduction: it is finished for each row, and
// later phases of the row may read it. One that folds exactly P, or all axes, is a tail: partial
// results are joined after all rows in the finish stage, and only finish values may read it. So a
// set R fits a unit if
//
// - every reduction folds R, P or everything, and its operand varies along what it folds
// - no value of the main stage reads a finish value, and no finish value reads a main reduction
// - every seed is written once: per point or per row in the main stage, per column or once in the
//   finish stage
//
// The gradient of layer norm is the example: sums along a row are main reductions, the gradients of
// weight and bias fold the rows and are tails, and all are one kernel.
#include "plan/fuse.h"

#include "kernel/thresholds.h"

// A kernel whose every axis is reduced is one row, which few threads fold. Beyond this many
// elements its folds are tails instead, whose partial results all threads compute.
enum {
    ALONE_ROW = 1 << 16  // most elements of a kernel that is a single row
};

// What is known of a value for some choice of R: whether it belongs to the finish stage, and
// whether it is made from a reduction of the main stage.
typedef struct {
    bool in_finish, from_main;
} stage;

// Whether value x can be computed with R = r, and the stage it belongs to. `of` has the stages of
// the values before it. A finish value may vary along R (per column) or not at all, but not along
// P, whose loop is over by then.
static bool value_fits(const tni_unit *u, const tni_lowered *x, uint32_t r, const stage *of,
                       stage *me)
{
    uint32_t p          = tni_all_axes(u) & ~r;
    int16_t  operand[3] = { x->ins.a, x->ins.b, x->ins.c };
    *me                 = (stage){ false, false };
    for (int k = 0; k < 3; k++)
        if (operand[k] >= 0) {
            me->in_finish |= of[operand[k]].in_finish;
            me->from_main |= of[operand[k]].from_main;
        }
    if (x->ins.code != TNI_I_REDUCE) return !(me->in_finish && (me->from_main || x->axes & p));
    uint32_t from = u->value[x->ins.a].axes;
    if (me->in_finish) return false;
    me->in_finish = x->mask != r;
    me->from_main = !me->in_finish;
    if (x->mask == r) return (from & r) != 0;
    if (x->mask == p) return (from & p) != 0;
    return x->mask == (p | r) && from & p && (!r || from & r);
}

// Whether a seed's element is written exactly once: for each point, for each row, or in the finish
// stage for each column or once.
static bool seed_fits(const tni_unit *u, const tni_lowered *x, uint32_t r, bool in_finish)
{
    uint32_t all = tni_all_axes(u);
    if (in_finish) return x->moves == 0 || x->moves == r;
    return x->moves == all || x->moves == (all & ~r);
}

// Whether bounds of a pad or a concat keep short axes of R from being collapsed into one long row.
// Such a kernel would loop over short rows; the other choice of R keeps its lanes full.
static bool splits_short_axes(const tni_unit *u, uint32_t r)
{
    uint32_t bounds = 0, brief = 0;
    for (size_t i = 0; i < u->values; i++)
        if (u->value[i].ins.code == TNI_I_LOAD && u->value[i].ins.b >= 0)
            bounds |= u->value[u->value[i].ins.b].axes & r;
    for (int k = 0; k < u->naxes; k++) brief |= (uint32_t)(u->size[k] < TNI_SHORT_ROW) << k;
    return bounds & brief && tni_points(u, r) >= TNI_SHORT_ROW * TNI_SHORT_ROW;
}

// Whether it was chosen for a fold along these axes to be done otherwise than the rule says; notes
// that it could be.
static bool is_otherwise(tni_fusion *f, const tni_unit *u, uint32_t r)
{
    bool otherwise = false;
    for (size_t i = 0; i < u->values; i++) {
        const tni_lowered *x = &u->value[i];
        if (x->ins.code != TNI_I_REDUCE || x->mask != r || x->item < 0) continue;
        tni_could_choose(f, x->item, TNI_CHOICE_SPREAD);
        otherwise |= tni_is_chosen(f, x->item, TNI_CHOICE_SPREAD);
    }
    return otherwise;
}

// Whether rows that lie side by side in memory are so long, and so few, that they would keep only a
// part of the device busy: batch norm with channels last has some dozen rows of a million elements
// each. Their folds are then tails, whose partial results all threads compute, and what reads them
// is another kernel. What measuring may doubt are rows up to IN_DOUBT times as long as the shortest
// of these, or as much shorter.
static bool leaves_lanes_idle(tni_fusion *f, const tni_unit *u, uint32_t r, uint32_t fast)
{
    enum { IN_DOUBT = 32 };
    int64_t row = tni_points(u, r), rows = tni_points(u, tni_all_axes(u) & ~r);
    bool    is_long = row >= TNI_MANY_FOLDED;
    if (!f->limits->lanes || !r || r & fast || rows >= f->limits->lanes) return false;
    if (row * IN_DOUBT < TNI_MANY_FOLDED || row / IN_DOUBT > TNI_MANY_FOLDED) return is_long;
    return is_long != is_otherwise(f, u, r);
}

// Whether the unit is one kernel with R = r.
static bool reduces_by(tni_fusion *f, const tni_unit *u, uint32_t r, uint32_t fast)
{
    stage of[TNI_MAX_INS];
    if (leaves_lanes_idle(f, u, r, fast)) return false;
    if (r && r == tni_all_axes(u) && tni_points(u, r) > ALONE_ROW) return false;
    if (r & (r - 1) && splits_short_axes(u, r)) return false;
    for (size_t i = 0; i < u->values; i++) {
        const tni_lowered *x = &u->value[i];
        if (!value_fits(u, x, r, of, &of[i])) return false;
        if (!x->seed) continue;
        if (!seed_fits(u, x, r, of[i].in_finish)) return false;
    }
    return true;
}

// Returns the axis along which the largest access goes element by element in memory.
static uint32_t fast_axis(const tni_unit *u)
{
    int64_t most = -1;
    int     fast = 0;
    for (size_t i = 0; i < u->sources; i++) {
        const tni_access_binding *s    = &u->source[i];
        uint32_t                  axes = 0;
        int                       unit = -1;
        for (int k = 0; k < u->naxes; k++) {
            if (s->stride[k]) axes |= 1u << k;
            if (s->stride[k] == 1 || s->stride[k] == -1) unit = k;
        }
        if (unit < 0 || tni_points(u, axes) <= most) continue;
        most = tni_points(u, axes);
        fast = unit;
    }
    return 1u << fast;
}

// Whether the unit stores a value that differs along some of these axes.
static bool stores_along(const tni_unit *u, uint32_t axes)
{
    for (size_t i = 0; i < u->values; i++)
        if (u->value[i].seed && u->value[i].moves & axes) return true;
    return false;
}

// Whether a reduction is better a main one than a tail: along the fast axis, since rows are read
// along memory; and down columns, if what it folds is not stored too (as the gradient whose column
// sum is that of a bias, which a library may do with its product), if its elements are few enough
// to be unrolled (the windows of a pool), or its columns enough for each thread to fold its own,
// without partial results to join. MANY: times those that keep the device busy when threads share a
// column.
static bool better_main(const tni_limits *limits, const tni_unit *u, uint32_t mask, uint32_t fast)
{
    enum { MANY = 64 };
    if (mask & fast) return true;
    if (stores_along(u, mask)) return false;
    return tni_points(u, mask) <= TNI_UNROLL_ELEMENTS ||
           (limits->lanes && tni_points(u, tni_all_axes(u) & ~mask) / MANY >= limits->lanes);
}

// Tries the current choice first, so that a unit keeps it while seeds join. Then for each of the
// first reductions the axes it folds and their complement, the better one first. Last, the axes
// along which a seed does not move: it is one value per row. Eight candidates at most, since a unit
// has few different reductions.
bool tni_find_reduced_axes(tni_fusion *f, tni_unit *u)
{
    uint32_t all = tni_all_axes(u), fast = fast_axis(u), tried[8];
    int      count = 0;
    if (reduces_by(f, u, u->reduced, fast)) return true;
    // The preferred choice of each pair comes first.
    for (size_t i = 0; i < u->values && count <= 3; i++) {
        const tni_lowered *x = &u->value[i];
        if (x->ins.code != TNI_I_REDUCE || !(x->mask)) continue;
        bool main      = x->mask != all && better_main(f->limits, u, x->mask, fast);
        tried[count++] = main ? x->mask : all & ~x->mask;
        tried[count++] = main ? all & ~x->mask : x->mask;
    }
    for (size_t i = 0; i < u->values && count < 8; i++) {
        const tni_lowered *x = &u->value[i];
        if (x->seed && x->moves != all) tried[count++] = all & ~x->moves;
    }
    for (int k = 0; k < count; k++)
        if (reduces_by(f, u, tried[k], fast)) {
            u->reduced = tried[k];
            return true;
        }
    return false;
}
