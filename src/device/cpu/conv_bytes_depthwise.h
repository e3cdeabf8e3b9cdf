// Convolutions of bytes whose groups have one channel each; conv_bytes_depthwise.c says how.
#ifndef TNI_DEVICE_CPU_CONV_BYTES_DEPTHWISE_H
#define TNI_DEVICE_CPU_CONV_BYTES_DEPTHWISE_H

#include "device/cpu/conv_windows.h"

// Returns whether a convolution is one of those.
bool tni_bytes_depthwise_takes(const tni_conv_plan *c);
// Returns the bytes of scratch.
size_t tni_bytes_depthwise_scratch(const tni_conv_plan *c);
// Computes y of x, which is dense with channels last; w is (O, 1, taps) of three axes with any
// strides.
void tni_bytes_depthwise_run(const tni_conv_plan *c, const tni_arg *w, char *scratch);

#endif
