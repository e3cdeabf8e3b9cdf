// Fourier transforms: what is recorded of the row `fft`, for the public functions and its gradient.
#ifndef TNI_OPS_FFT_H
#define TNI_OPS_FFT_H

#include "ops/complex.h"

// Records a node over x, pairs or real numbers as how.kind has them; n: the size of the last real
// axis, for C2R. NULL in, NULL out.
tn_tensor *tni_fft_record(tn_tensor *x, struct tni_attr_fft how, int64_t n);

#endif
