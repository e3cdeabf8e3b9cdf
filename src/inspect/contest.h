// What tuning of kernels (tune.c) and of plans (tune_plan.c) have in common: contests between two ways to compute the same, and
// whether their results agree.
#ifndef TNI_INSPECT_CONTEST_H
#define TNI_INSPECT_CONTEST_H

#include "engine/engine.h"

// Takes samples of two ways in turns: sample(arg, which) returns the seconds of way 0 or 1, INFINITY if it failed. Returns whether the second
// is faster by more than the samples of either vary, and by a hundredth; us gets the microseconds of both.
bool tni_contest(double (*sample)(void *arg, int which), void *arg, double us[2]);

// How often something that takes so long is run for a sample: long enough for the clock, and for the cpu's threads to be scheduled
// evenly.
int tni_repeats_for(const tni_engine *e, double seconds);

// Whether n elements on the device agree: all bits, or, unless exact, numbers up to what another order of summing
// may change. slack: further differences that are allowed, by what is known of the value; 0 mostly.
bool tni_results_agree(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n,
                       bool exact, double slack);
// The largest difference of finite elements; INFINITY if one is finite and the other not, or it could not be found.
double tni_results_differ(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n);

// Orders doubles, for qsort.
int tni_by_size(const void *a, const void *b);

#endif
