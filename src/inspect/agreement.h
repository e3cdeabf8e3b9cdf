// What tuning of kernels (tune_kernel.c), of plans (tune_plan.c) and of calls (tune.c) have in common beside contests (kernel/tuning.h): how long
// samples are, and whether results agree.
#ifndef TNI_INSPECT_AGREEMENT_H
#define TNI_INSPECT_AGREEMENT_H

#include "engine/engine.h"

// How often something that takes so long is run for a sample: long enough for the clock, and for the cpu's threads to be scheduled
// evenly.
int tni_repeats_for(const tni_engine *e, double seconds);

// Whether n elements on the device agree: all bits, or, unless exact, numbers up to what another order of summing
// may change, of results that are very large in parts of them. slack: further differences that are allowed, by what is known of the value; 0 mostly.
bool tni_results_agree(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n,
                       bool exact, double slack);
// The largest difference in the same parts; INFINITY if an element is finite in one alone, or it could not be found.
double tni_results_differ(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n);

#endif
