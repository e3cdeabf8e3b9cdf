// How a reduction is taken apart; shared by the folds and by argmax and argmin.
#ifndef TNI_DEVICE_CPU_CPU_REDUCE_H
#define TNI_DEVICE_CPU_CPU_REDUCE_H

#include "device/cpu/cpu_walk.h"

// The kept axes of in, the same axes of out, and the reduced axes of in. An element of the result
// folds the elements of red that begin at its place in kept.
//
// by_column: strips along the last kept axis are folded side by side, one reduced element after
// the other. Otherwise each result folds its own elements, tile by tile.
typedef struct {
    const tni_tiles *tiles;
    tn_dtype         acc;  // the type elements are folded in
    tni_arg          kept, out, red;
    int64_t          results, folded;  // counts of kept and red
    bool             by_column;
} tni_reduction;

// ordered: the reduced axes stay in row-major order; else they may be sorted by stride.
tni_reduction tni_reduction_of(const tni_call *call, tn_dtype acc, bool ordered);

#endif
