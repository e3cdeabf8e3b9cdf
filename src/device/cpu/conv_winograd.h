// Convolutions of 3 x 3 windows with fewer than half of the multiplications; conv_winograd.c says how.
#ifndef TNI_DEVICE_CPU_CONV_WINOGRAD_H
#define TNI_DEVICE_CPU_CONV_WINOGRAD_H

#include "device/cpu/conv_windows.h"

// Returns whether a convolution, or one of its gradients, is computed faster in this way than as a product
// over windows. Only sizes decide.
bool tni_winograd_takes(const tni_conv_plan *c);

// Returns the bytes of scratch for all threads of the call.
size_t tni_winograd_scratch(const tni_conv_plan *c);

// Transformed weights of one call of a plan, kept while its w is the same value: training changes it in each
// step, inference never does. They get memory when a value comes for the second time.
typedef struct {
    void (*forget)(void *entry);
    tni_heap   *heap;
    uint64_t    value;
    const char *data;
    float      *u;
    bool        made;  // u is that of value
} tni_winograd_weights;

// Computes y, gx or gw. call->entry: NULL, or what is kept of the weights. scratch: that many bytes, aligned to 64.
void tni_winograd_run(const tni_conv_plan *c, int threads, char *scratch);

#endif
