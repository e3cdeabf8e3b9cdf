// A call of a user's op, for the devices whose memory its functions can use directly.
#ifndef TNI_DEVICE_CUSTOM_H
#define TNI_DEVICE_CUSTOM_H

#include "device/device.h"

#include <string.h>

// Returns an argument as the user's functions see it.
static inline tn_array tni_custom_array(const tni_arg *x)
{
    tn_array a = { .dtype = x->dtype, .rank = x->rank, .data = x->data };
    memcpy(a.size, x->size, (size_t)x->rank * sizeof *a.size);
    return a;
}

// Writes the outputs to out[]; outputs that have no memory in the call get theirs in spare, one
// after the other. Returns the bytes of spare that this takes. out may be NULL, to ask for the
// bytes alone.
static inline size_t tni_custom_place_outputs(const tni_call *c, char *spare, tn_array *out)
{
    const tn_array *outs = tni_custom_outputs(c->attr);
    int64_t         used = 0;
    for (int k = 0; k <= c->nmore; k++) {
        char   *data  = tni_call_output(c, k)->data;
        int64_t count = tni_shape_count(outs[k].rank, outs[k].size);
        if (out) {
            out[k]      = outs[k];
            out[k].data = data ? data : spare + used;
        }
        if (!data)
            used += tni_align64(count * (int64_t)c->device->memory->element_size(outs[k].dtype));
    }
    return (size_t)used;
}

#endif
