// fake_blaslt.h: what a test sets of the fake cuBLASLt, and what it counts.
#ifndef TEST_FAKE_BLASLT_H
#define TEST_FAKE_BLASLT_H

#include "device/cuda/blaslt.h"

typedef struct {
    int  algos;    // how many it proposes; 0: none
    int  fastest;  // the number of the one that takes half as long, from 1
    int  broken;   // the number of the one that does not run, 0: all run
    bool fails;    // nothing runs
    int tile;  // of the tiles 0 to TILES, the one that takes a quarter as long; proposals have tile 0
    int          liar;    // the tile whose results are wrong, and which takes least of all; 0: none
    double       cost;    // milliseconds of a product; 0: one
    tni_custream stream;  // the only one that it accepts
    double       milliseconds;
    int          handles, alive, asked, runs, last,
        used;             // last, used: the number and the tile of the last product
    uint32_t reductions;  // that the last question allowed
} fake_state;

#endif
