// Convolutions of 3 x 3 windows with fewer than half of the multiplications; conv_winograd.c says
// how.
#ifndef TNI_DEVICE_CPU_CONV_WINOGRAD_H
#define TNI_DEVICE_CPU_CONV_WINOGRAD_H

#include "device/cpu/conv_windows.h"

// Returns whether a convolution, or one of its gradients, is computed faster in this way than as a
// product over windows. Only sizes decide.
bool tni_winograd_takes(const tni_conv_plan *c);

// Returns the bytes of scratch for all threads of the call.
size_t tni_winograd_scratch(const tni_conv_plan *c);

// Computes y, gx or gw. call->entry: NULL, or what is kept of the weights. scratch: that many
// bytes, aligned to 64.
void tni_winograd_run(const tni_conv_plan *c, int threads, char *scratch);

#endif
