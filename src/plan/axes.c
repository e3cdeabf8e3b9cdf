// The roles of a unit's axes: parallel or reduced.
#include "plan/fuse.h"

enum {
    ALONE_ROW = 1 << 16  // most elements of a kernel that is a single row
};

// What is known of a value with some axes reduced: whether it belongs to the finish stage, and whether
// it is made from a reduction of the main stage.
typedef struct {
    bool late, after;
} standing;

// Whether value x can be computed with R = r. The finish stage reads what varies over R or not at all,
// and no reduction of the main stage.
static bool value_fits(const tni_unit *u, const tni_lowered *x, uint32_t r, const standing *of,
                       standing *me)
{
    uint32_t p          = tni_all_axes(u) & ~r;
    int16_t  operand[3] = { x->ins.a, x->ins.b, x->ins.c };
    *me                 = (standing){ false, false };
    for (int k = 0; k < 3; k++)
        if (operand[k] >= 0) {
            me->late |= of[operand[k]].late;
            me->after |= of[operand[k]].after;
        }
    if (x->ins.code != TNI_I_REDUCE) return !(me->late && (me->after || x->axes & p));
    uint32_t from = u->value[x->ins.a].axes;
    if (me->late) return false;
    me->late  = x->mask != r;
    me->after = !me->late;
    if (x->mask == r) return (from & r) != 0;
    if (x->mask == p) return (from & p) != 0;
    return x->mask == (p | r) && from & p && (!r || from & r);
}

// A seed's element is written once: for each point, for each row, or in the end.
static bool seed_fits(const tni_unit *u, const tni_lowered *x, uint32_t r, bool late)
{
    uint32_t all = tni_all_axes(u);
    if (late) return x->moves == 0 || x->moves == r;
    return x->moves == all || x->moves == (all & ~r);
}

// Whether the bounds of a pad or a concat keep short axes of R apart that would else be one long row.
static bool is_chopped(const tni_unit *u, uint32_t r)
{
    uint32_t bounds = 0, brief = 0;
    for (size_t i = 0; i < u->values; i++)
        if (u->value[i].ins.code == TNI_I_LOAD && u->value[i].ins.b >= 0)
            bounds |= u->value[u->value[i].ins.b].axes & r;
    for (int k = 0; k < u->naxes; k++) brief |= (uint32_t)(u->size[k] < TNI_SHORT_ROW) << k;
    return bounds & brief && tni_points(u, r) >= TNI_SHORT_ROW * TNI_SHORT_ROW;
}

static bool roles_fit(const tni_unit *u, uint32_t r)
{
    standing of[TNI_MAX_INS];
    if (r && r == tni_all_axes(u) && tni_points(u, r) > ALONE_ROW) return false;
    if (r & (r - 1) && is_chopped(u, r)) return false;
    for (size_t i = 0; i < u->values; i++) {
        const tni_lowered *x = &u->value[i];
        if (!value_fits(u, x, r, of, &of[i])) return false;
        if (!x->seed) continue;
        if (!seed_fits(u, x, r, of[i].late)) return false;
    }
    return true;
}

// The axis along which most of what is read lies side by side.
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

bool tni_find_reduced_axes(tni_unit *u)
{
    if (roles_fit(u, u->reduced)) return true;  // as before
    uint32_t all = tni_all_axes(u), fast = fast_axis(u), tried[8];
    int      count = 0;
    // Reductions down columns rather as tails.
    for (size_t i = 0; i < u->values && count <= 3; i++) {
        const tni_lowered *x = &u->value[i];
        if (x->ins.code != TNI_I_REDUCE || !(x->mask)) continue;
        bool along     = x->mask & fast || x->mask == all;
        tried[count++] = x->mask == all ? 0 : along ? x->mask : all & ~x->mask;
        tried[count++] = x->mask == all ? all : along ? all & ~x->mask : x->mask;
    }
    for (size_t i = 0; i < u->values && count < 8; i++) {
        const tni_lowered *x = &u->value[i];
        if (x->seed && x->moves != all) tried[count++] = all & ~x->moves;
    }
    for (int k = 0; k < count; k++)
        if (roles_fit(u, tried[k])) {
            u->reduced = tried[k];
            return true;
        }
    return false;
}
