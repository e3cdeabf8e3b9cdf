// From an address to coordinates: which element of a value a point of a domain reads.
//
// A view says where elements are stored: offset + strides, in row-major positions of its base.
// Inside a kernel the base may have no address, because it is computed there; then the same read
// has to be written as coordinates of the base. Each stride is divided into steps along the base's
// axes, outermost first:
//
//   base (4, 6), row-major strides (6, 1); a read with stride 7 moves one step along both axes: a diagonal
//
// That is right only while no coordinate leaves its axis, so the corner points of the domain are
// checked.
#include "plan/fuse.h"

#include <string.h>

// Writes a distance in row-major elements as steps along the axes of n, outermost first, as
// steps_of_distance of a number whose bases are the axes. Axes of size 1 take no step. False if a
// step does not fit or something is left over.
static bool steps_of_distance(const tni_node *n, const int64_t *row, int64_t distance,
                              int64_t *step)
{
    for (int j = 0; j < n->rank; j++) {
        step[j] = 0;
        if (n->size[j] == 1) continue;
        step[j] = distance / row[j];
        distance -= step[j] * row[j];
        if (step[j] > INT32_MAX || step[j] < INT32_MIN) return false;
    }
    return distance == 0;
}

// Only points from `from` to `to` count: at others the value is guarded and may be anything, so the
// start is worked out at `from` and shifted back to the origin afterwards. low and high collect the
// extreme coordinates of those points, which must be inside the axes: else a step would have
// wrapped into the next row.
bool tni_delinearize(const tni_node *n, int64_t offset, const int64_t *stride, int naxes,
                     const int64_t *from, const int64_t *to, int64_t via_size, tni_coords *c)
{
    int64_t row[TN_MAX_RANK], step[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    tni_shape_strides(n->rank, n->size, row);
    // The offset at the first point that counts: that at the origin may be outside the value.
    for (int k = 0; k < naxes; k++) offset += stride[k] * from[k];
    if (!steps_of_distance(n, row, offset, c->start)) return false;
    memcpy(low, c->start, sizeof low);
    memcpy(high, c->start, sizeof high);
    for (int j = 0; j < n->rank; j++) memset(c->step[j], 0, sizeof c->step[j]);
    for (int k = 0; k <= TNI_AXES; k++) {
        if (k >= naxes && k < TNI_AXES) continue;
        if (!stride[k]) continue;
        if (!steps_of_distance(n, row, stride[k], step)) return false;
        int64_t first = k < TNI_AXES ? from[k] : 0, last = k < TNI_AXES ? to[k] : via_size - 1;
        for (int j = 0; j < n->rank; j++) {
            c->step[j][k] = (int32_t)step[j];
            c->start[j] -= step[j] * first;
            *(step[j] < 0 ? &low[j] : &high[j]) += step[j] * (last - first);
        }
    }
    for (int j = 0; j < n->rank; j++)
        if (low[j] < 0 || high[j] >= n->size[j]) return false;
    return true;
}
