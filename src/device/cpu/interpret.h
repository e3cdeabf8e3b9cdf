// Runs kernels without a compiler: one instruction after the other over tiles of lanes, by the tile
// functions, in the order that kernel.h fixes.
#ifndef TNI_DEVICE_CPU_INTERPRET_H
#define TNI_DEVICE_CPU_INTERPRET_H

#include "kernel/kernel.h"

// Returns the bytes of scratch that tni_interpret needs for a launch of these sizes, strides and
// threads.
size_t tni_interpret_scratch(const tni_launch *l);

// Runs a launch. Results depend on sizes and strides alone, not on the number of threads. If a
// CHECK fails, l->fail names the first failure in the order of chunks.
void tni_interpret(tni_launch *l);

#endif
