// What tuning of kernels (tune_kernel.c), of plans (tune_plan.c) and of calls (tune.c) have in
// common beside contests (kernel/tuning.h): how long samples are, and whether results agree.
#ifndef TNI_INSPECT_AGREEMENT_H
#define TNI_INSPECT_AGREEMENT_H

#include "engine/engine.h"

// How often something that takes so long is run for a sample: long enough for the clock, and for
// the cpu's threads to be scheduled evenly.
int tni_repeats_for(const tni_engine *e, double seconds);

// How results are compared. BITS: all are equal; else numbers may differ by what another order of
// summing may change. PARTS: of results that are very large, parts alone: what is wrong in a kernel
// is wrong everywhere, or at an end.
enum { TNI_COMPARE_BITS = 1, TNI_COMPARE_PARTS = 2 };

// Whether n elements on the device agree. slack: further differences that are allowed, by what is
// known of the value; 0 mostly.
bool tni_results_agree(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n,
                       unsigned how, double slack);
// Fills memory on the device with bytes that are NaNs as floats, so that what is not written there
// is no result of a run before. False if that fails.
bool tni_spoil_memory(tn_ctx *cx, char *data, int64_t bytes);
// The largest difference; INFINITY if an element is finite in one alone, or it could not be found.
double tni_results_differ(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n);

#endif
