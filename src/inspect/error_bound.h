// How far from ref a device may be.
#ifndef TNI_INSPECT_ERROR_BOUND_H
#define TNI_INSPECT_ERROR_BOUND_H

#include "device/device.h"

// A bound of the error of each element of output k of a call that the reference device has run.
// error[i] has the layout of in[i] and the errors of that as doubles; its data is NULL where in[i]
// is exact. *bound is NULL where the output is exact too, else one double for each element, to be
// freed by tni_free; an infinite one says that nothing is known. False when memory is out.
bool tni_error_bound(tni_heap *h, const tni_call *c, int k, const tni_arg *error, double **bound);

// What rounding a number of that size to a dtype may take from it.
double tni_error_of_rounding(tn_dtype dt, double v);

#endif
