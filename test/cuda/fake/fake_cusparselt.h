// fake_cusparselt.h: what a test sets of the fake cuSPARSELt, and what it counts.
#ifndef TEST_FAKE_CUSPARSELT_H
#define TEST_FAKE_CUSPARSELT_H

#include "device/cuda/cusparselt.h"

typedef struct {
    int          algos;    // how many it has
    int          fastest;  // the number of the one that takes half as long, from 0
    int          wide;     // the number of the one that needs more space than anyone has
    double       cost;     // milliseconds of a product by the others
    int          fail_at;  // the call that fails, from 1; 0: none
    tni_custream stream;   // the only one that it accepts
    double      *milliseconds;
    int          calls, runs, last, matrices, plans;
} fake_lt_state;

#endif
