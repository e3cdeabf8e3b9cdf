// The kernels of the slice by hand; each is a slice_case.build.
#ifndef BENCH_SLICE_KERNELS_H
#define BENCH_SLICE_KERNELS_H

#include "slice.h"

// AdamW's numbers at the tenth update with a rate of 1e-3 and a decay of 1e-2, as adam.c has them:
// the corrections of the averages are in the rate and in the epsilon.
#define SLICE_C1    (1 - 0.34867844010000004)  // 1 - 0.9^10
#define SLICE_C2    0.09977534660552057        // sqrt(1 - 0.999^10)
#define SLICE_DECAY (1 - 1e-3 * 1e-2)
#define SLICE_EPS   (1e-8 * SLICE_C2)
#define SLICE_RATE  (1e-3 * SLICE_C2 / SLICE_C1)

typedef void slice_builder(int which, tni_kernel *k, tni_launch *l);

slice_builder slice_build_relu, slice_build_softmax, slice_build_cross_entropy, slice_build_adamw,
    slice_build_layer_norm, slice_build_sum, slice_build_column_sum;

#endif
