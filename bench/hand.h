// Hand-written loops, compiled when the bench runs by the compiler and with the options that
// Tenon's generated kernels get, and run on as many threads.
#ifndef BENCH_HAND_H
#define BENCH_HAND_H

#include "base/text.h"
#include "hand/loops.h"

#include <stdbool.h>

enum { HAND_THREADS = 64 };

// A loop and its job, cut into ranges of rows, one a thread. It owns dw, db and loss of every
// range; the other arrays are the caller's. The first range's dw, db and loss have the totals after
// a run.
typedef struct {
    hand_loop *loop;
    int        threads;
    long long  columns;  // that dw and db have: all of the job, or none
    hand_job   part[HAND_THREADS];
    double     loss[HAND_THREADS];
} hand_team;

// The loop of that name; NULL, with the reason, where nothing can be compiled here.
hand_loop *hand_find(const char *name, tni_text *why);

// sums: whether the loop fills dw and db. False: out of memory.
bool hand_open(hand_team *t, hand_loop *loop, hand_job whole, bool sums);
void hand_run(hand_team *t);
void hand_close(hand_team *t);

#endif
