// What the hand-written loops take: a job and the rows from .. to-1 of it. One thread runs one
// range.
#ifndef BENCH_HAND_LOOPS_H
#define BENCH_HAND_LOOPS_H

// N rows, C columns
//
// The arrays belong to the caller and do not overlap. A loop reads and writes those that its
// comment names; dw, db and loss are this range's own and are overwritten: the caller adds up the
// ranges.
typedef struct {
    long long        N, C;
    const float     *x, *gy, *w, *b;
    const long long *target;
    float           *y, *dx, *dw, *db;
    double          *loss;
} hand_job;

typedef void hand_loop(const hand_job *h, long long from, long long to);

#endif
