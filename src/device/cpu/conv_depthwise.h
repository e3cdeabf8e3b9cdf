// Convolutions in which each channel has a window of its own; conv_depthwise.c says how.
#ifndef TNI_DEVICE_CPU_CONV_DEPTHWISE_H
#define TNI_DEVICE_CPU_CONV_DEPTHWISE_H

#include "device/cpu/conv_windows.h"

// Returns whether the call is such a convolution, of f32 with channels first, and no padding or
// stride makes its planes much larger than they are. Only sizes decide.
bool tni_depthwise_takes(const tni_conv_plan *c);

// Returns the bytes of scratch for all threads of the call.
size_t tni_depthwise_scratch(const tni_conv_plan *c);

// Computes y. scratch: that many bytes, aligned to 64.
void tni_depthwise_run(const tni_conv_plan *c, int threads, char *scratch);

#endif
