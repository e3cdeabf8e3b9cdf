// Coordinates: which element of a value a point of a domain means.
#include "plan/fuse.h"

#include <string.h>

// Writes a distance in row-major elements as steps along the axes, outermost first; axes of size 1
// take none.
static bool digits(const tni_node *n, const int64_t *row, int64_t distance, int64_t *step)
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

bool tni_delinearize(const tni_node *n, int64_t offset, const int64_t *stride, int naxes,
                     const int64_t *from, const int64_t *to, int64_t via_size, tni_coords *c)
{
    int64_t row[TN_MAX_RANK], step[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    tni_shape_strides(n->rank, n->size, row);
    // Only at a point that counts does an element tell its coordinates.
    for (int k = 0; k < naxes; k++) offset += stride[k] * from[k];
    if (!digits(n, row, offset, c->start)) return false;
    memcpy(low, c->start, sizeof low);
    memcpy(high, c->start, sizeof high);
    for (int j = 0; j < n->rank; j++) memset(c->step[j], 0, sizeof c->step[j]);
    for (int k = 0; k <= TNI_AXES; k++) {
        if (k >= naxes && k < TNI_AXES) continue;
        if (!stride[k]) continue;
        if (!digits(n, row, stride[k], step)) return false;
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
