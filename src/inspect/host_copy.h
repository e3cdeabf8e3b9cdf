// Values of any device on the host, as the reference device has them, to be looked at one by one;
// and how such a value, its op and its line are named in messages.
#ifndef TNI_INSPECT_HOST_COPY_H
#define TNI_INSPECT_HOST_COPY_H

#include "engine/engine.h"

// Copies the elements of x, in memory of e's device, to cells of the reference device: *y has x's
// shape and strides. Returns what tni_free is to free; NULL when memory is out.
void *tni_host_copy(tni_heap *h, const tni_engine *e, const tni_arg *x, tni_arg *y);
// Returns element at[] of such a copy, whatever its dtype.
double tni_host_value(const tni_arg *y, const int64_t *at);

// "exp", or "exp of softmax" where that is the call the user made.
tni_text tni_node_name(const tni_node *n);
// " (recorded at model.c:40)"; nothing where that is not known.
tni_text tni_node_line(const tni_node *n);
// "element (3, 7) of (64, 128)": the i-th of a shape, in row-major order.
tni_text tni_element_text(int rank, const int64_t *size, int64_t i);
// "91.2", "nan", "-inf".
tni_text tni_value_text(double v);

#endif
