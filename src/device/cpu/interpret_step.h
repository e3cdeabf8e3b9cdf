// Runs a program's sections, by a worker that knows where it is in the domain.
#ifndef TNI_DEVICE_CPU_INTERPRET_STEP_H
#define TNI_DEVICE_CPU_INTERPRET_STEP_H

#include "device/cpu/interpret_program.h"

// A worker at a tile. reg points to the elements of every register; place[access] is the place of
// the first lane of the current line, in elements, and the tile begins `shift` lanes after it.
typedef struct {
    const tni_program *g;
    char              *mem;
    char             **reg;
    int64_t           *unit_place, *place;  // of the unit; of the line
    int                lane;                // axis
    int64_t            shift, n;  // lanes before this tile in its line; lanes of this tile
    int64_t            at;        // elements of the unit before this tile
    int64_t            index;     // lane in P: which r
    int64_t            row;       // number of the unit in its chunk
    bool               last_row, last_index;
    tni_total         *partial;  // of the chunk; in the finish stage, of all chunks
    int64_t            chunk;
    int64_t            fail[3];  // its first failed CHECK: chunk, 1 + instruction, index
} tni_worker;

// Runs the steps of a section over the current tile.
void tni_run_section(tni_worker *w, int section);

// Adds the accumulators of a group of rows to the totals of n lanes; the first group sets the
// totals.
void tni_end_group(const tni_tile_step *s, char *acc, char *total, char *widened, bool first,
                   int64_t n);
// Fast paths for a program that only folds what it loads: run `rows` units, each a row, from the
// current one on; units that are strips of a line; the loop over R of the current unit. Return
// false, having done nothing, if the program does more than that.
bool tni_fold_rows(tni_worker *w, int64_t rows);
bool tni_fold_strips(tni_worker *w, int64_t first, int64_t end);
bool tni_fold_loop(tni_worker *w, int section);

#endif
