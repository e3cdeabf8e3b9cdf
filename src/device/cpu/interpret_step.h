// What runs a program's sections: one worker and where it is.
#ifndef TNI_DEVICE_CPU_INTERPRET_STEP_H
#define TNI_DEVICE_CPU_INTERPRET_STEP_H

#include "device/cpu/interpret_program.h"

// A worker at a tile. reg points to the elements of every register; place[access] is the place of
// the first lane of the line in hand, in elements, to which `shift` lanes are added.
typedef struct {
    const tni_program *g;
    char              *mem;
    char             **reg;
    int64_t           *unit_place, *place;  // of the unit; of the line
    int                lane;                // axis
    int64_t            shift, n;  // lanes of the line before this tile; lanes of this tile
    int64_t            at;        // elements of the unit before this tile
    int64_t            index;     // lane in P: which r
    int64_t            row;       // of the chunk's units: which
    bool               last_row, last_index;
    tni_total         *partial;  // of the chunk; in the finish stage those of all
    int64_t            chunk;
    int64_t            fail[3];  // of its first CHECK that failed: chunk, 1 + instruction, index
} tni_worker;

// Runs the steps of a section over the tile in hand.
void tni_run_section(tni_worker *w, int section);

// The accumulators of a group of rows join the totals of n lanes, which the first group begins.
void tni_end_group(const tni_tile_step *s, char *acc, char *total, char *widened, bool first,
                   int64_t n);
// Runs so many units from the one in hand on, each a row, at once; or units that are strips of a line; or
// the loop over R of the unit in hand. False, and nothing is done, where the program does more than fold
// what it loads.
bool tni_fold_rows(tni_worker *w, int64_t rows);
bool tni_fold_strips(tni_worker *w, int64_t first, int64_t end);
bool tni_fold_loop(tni_worker *w, int section);

#endif
