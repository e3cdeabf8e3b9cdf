// What tuning of kernels (tune.c) and of plans (tune_plan.c) have in common: contests between two ways to compute the same, and
// whether their results agree.
#ifndef TNI_INSPECT_CONTEST_H
#define TNI_INSPECT_CONTEST_H

#include "engine/engine.h"

// Contests that a winner must win.
enum { TNI_CONTESTS = 2 };

// Takes samples of two ways in turns: sample(arg, way) returns the seconds of one, INFINITY if it failed. Returns whether the second
// is faster by more than the samples of either vary, or in each of its samples, and by a hundredth, in each of `times` contests; us gets the microseconds of
// both in the last.
bool tni_wins(double (*sample)(void *arg, const void *way), void *arg, const void *best,
              const void *other, int times, double us[2]);

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
