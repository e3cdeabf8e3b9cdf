// Kernels run without a compiler: the instructions one after the other over tiles of lanes, by the
// tile functions, in the order that kernel.h fixes.
#ifndef TNI_DEVICE_CPU_INTERPRET_H
#define TNI_DEVICE_CPU_INTERPRET_H

#include "kernel/kernel.h"

// Bytes of scratch that tni_interpret wants for a launch of these sizes, strides and threads.
size_t tni_interpret_room(const tni_launch *l);

// Runs a launch. Results depend on sizes and strides alone, not on the number of threads. After a
// CHECK failed, l->fail names the first in the order of chunks.
void tni_interpret(tni_launch *l);

#endif
