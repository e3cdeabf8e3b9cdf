// fake_blaslt.h: what a test sets of the fake cuBLASLt, and what it counts.
#ifndef TEST_FAKE_BLASLT_H
#define TEST_FAKE_BLASLT_H

#include "device/cuda/blaslt.h"

// What is wrong with an algorithm: its results, what it adds, its last column, gelu's input; it
// does not run; it asks for addresses at multiples of 32.
typedef enum {
    FAKE_SCALES,
    FAKE_NO_RESIDUAL,
    FAKE_LAST_COLUMN,
    FAKE_INPUT,
    FAKE_DOES_NOT_RUN,
    FAKE_UNALIGNED
} fake_lie;

typedef struct {
    int  version;  // added to that of the library
    int  algos;    // how many it proposes; 0: none
    int  fastest;  // the number of the one that takes half as long, from 1
    int  broken;   // the number of the one that does not run, 0: all run
    bool fails;    // nothing runs
    int tile;  // of the tiles 0 to TILES, the one that takes a quarter as long; proposals have tile 0
    int      calm;  // how many runs of that tile are so fast; later ones are like others
    int      liar;  // the tile that takes least of all and with which something is wrong; 0: none
    fake_lie lies;
    double   cost;        // milliseconds of a product; 0: one
    tni_custream stream;  // the only one that it accepts
    double       milliseconds;
    int          handles, alive, asked, runs, last,
        used;             // last, used: the number and the tile of the last product
    uint32_t reductions;  // that the last question allowed
} fake_state;

#endif
