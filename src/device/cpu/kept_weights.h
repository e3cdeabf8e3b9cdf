// What a call of a plan keeps from run to run: its weights in the form that it multiplies by.
#ifndef TNI_DEVICE_CPU_KEPT_WEIGHTS_H
#define TNI_DEVICE_CPU_KEPT_WEIGHTS_H

#include "device/device.h"

// The second operand of a call, transformed or packed, kept while it is the same value: training
// changes weights in each step, inference never does. They get memory when a value comes for the
// third time.
typedef struct {
    void (*forget)(void *entry);
    tni_heap   *heap;
    uint64_t    value;
    const char *data;
    void       *made;   // NULL: no memory yet
    int         times;  // that the value came, as far as it matters
    bool        valid;  // what was made is that of value
} tni_kept_weights;

// Returns where the weights of a call are, or, with *make set, are to be made in `bytes` bytes: in
// memory that keeps them, or in scratch.
void *tni_kept_weights_place(const tni_call *call, size_t bytes, void *scratch, bool *make);

#endif
