// fake_cudnn.h: what a test sets of the fake cuDNN, and what it counts.
#ifndef TEST_FAKE_CUDNN_H
#define TEST_FAKE_CUDNN_H

#include "device/cuda/cudnn.h"

enum { FAKE_NONE = -2, FAKE_NOTED = 8 };

typedef struct {
    int     engines;  // how many it proposes
    int     fastest;  // the number of the one that takes half as long, from 0
    int     fails;   // creating (-1) or finalizing descriptors of this kind gives `status`; 0: none
    int     broken;  // this engine does not run; -1: all run
    int     status;  // that it fails with
    bool    no_run;  // nothing runs
    int     notes[FAKE_NOTED];  // of engine i, as bits
    int     compiles;           // the engines that are compiled when a plan is made, as bits
    int64_t workspace;          // engine i needs i times that many bytes; 0: 256
    tni_custream stream;        // the only one that it accepts
    double       milliseconds;
    int          handles, alive, compiled, loaded, runs, last, ops;
} fake_dnn;

#endif
