// The settings that are worth measuring for a launch on a device with work groups: every value of
// every knob that makes another shape.
#include "kernel/simt.h"

#include <string.h>

// The values of each knob that are tried; 0 ends a list. Vectors and unrolling are powers of two
// because the text counts on it; a grid is in quarters of what runs at once.
static const uint8_t value[TNI_KNOBS][TNI_SHARINGS + 1] = {
    [TNI_KNOB_VECTOR]    = { 1, 2, 4, 8 },
    [TNI_KNOB_UNROLL]    = { 1, 2, 4, 8 },
    [TNI_KNOB_WARPS]     = { 4, 8, 16, 32 },
    [TNI_KNOB_HOLD]      = { TNI_HOLD_BY_REGISTERS, TNI_HOLD_BY_FEWER, TNI_HOLD_BY_AHEAD,
                             TNI_HOLD_BY_BULK, TNI_HOLD_BY_LOOP },
    [TNI_KNOB_CLUSTER]   = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18 },
    [TNI_KNOB_OCCUPANCY] = { 1, 2 },
    [TNI_KNOB_GRID]      = { 2, 8, 16 },
    [TNI_KNOB_PREFETCH]  = { 1, 2, 3 },
    [TNI_KNOB_TILE]      = { 1, 2, 4 },
    [TNI_KNOB_SQUARE]    = { 1, 2, 4, 8, 16 },
};

// The shape that a launch has under some settings.
static tni_simt shape_under(const tni_launch *l, const tni_simt_limits *limits, const tni_tuning *t)
{
    tni_simt_limits with = *limits;
    with.tuning          = t;
    return tni_simt_choose(l, &with);
}

// Whether a shape is one of n, in which case measuring it would measure the same launch again. All
// bytes of a shape are set.
static bool is_among(const tni_simt *m, const tni_simt *all, int n)
{
    for (int i = 0; i < n; i++)
        if (!memcmp(m, &all[i], sizeof *m)) return true;
    return false;
}

// Whether the device can launch a shape: settings may ask for more threads or shared memory than it
// has.
static bool is_legal(const tni_simt *m, const tni_simt_limits *limits)
{
    return m->block > 0 && m->block <= limits->threads && m->shared_bytes <= limits->shared_bytes;
}

// Choosing a shape takes microseconds, so that all values of all knobs are tried; most make no
// other shape.
int tni_simt_neighbours(const tni_launch *l, const tni_simt_limits *limits, const tni_tuning *from,
                        tni_tuning *dst, int room)
{
    enum { MOST = 64 };
    tni_simt shape[MOST + 1];
    int      n = 0;
    shape[0]   = shape_under(l, limits, from);
    for (int k = 0; k < TNI_KNOBS; k++)
        for (int i = 0; value[k][i] && n < room && n < MOST; i++) {
            dst[n]       = *from;
            dst[n].of[k] = value[k][i];
            shape[n + 1] = shape_under(l, limits, &dst[n]);
            if (is_legal(&shape[n + 1], limits) && !is_among(&shape[n + 1], shape, n + 1)) n++;
        }
    return n;
}
