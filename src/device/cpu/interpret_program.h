// The program that the interpreter makes of a kernel for one launch: steps over registers.
//
// A register is a tile of lanes, or one element that is the same for all lanes, in memory of the
// worker that runs the program. Its elements are of the compute type of their dtype, or of the dtype itself
// where they were just loaded or rounded to it; bools are bytes. Steps stand in sections, which run
//
//     ONE            once a chunk: what is the same everywhere
//     row section p  once a unit, before loop p; the last after all loops
//     loop section p for every tile of the loop over R of phase p
//     FINISH_ONE, FINISH_STORE, FINISH_LOOP  after all chunks: over the columns
#ifndef TNI_DEVICE_CPU_INTERPRET_PROGRAM_H
#define TNI_DEVICE_CPU_INTERPRET_PROGRAM_H

#include "device/cpu/tiles.h"

typedef enum {
    TNI_S_MAP,
    TNI_S_CONVERT,
    TNI_S_SPREAD,  // one element to all lanes
    TNI_S_HERE,    // a load that is used where it lies
    TNI_S_LOAD,    // elements side by side, converted
    TNI_S_GATHER,  // elements a stride apart, as they are
    TNI_S_AT,      // a load with an index or a guard, as they are
    TNI_S_PLACE,
    TNI_S_NUMBER,
    TNI_S_RANDOM,
    TNI_S_CHECK,
    TNI_S_KEPT,        // a value of an earlier loop, kept for the whole row
    TNI_S_STORE,       // side by side, converted
    TNI_S_SCATTER,     // as they are, side by side or a stride apart
    TNI_S_BLOCK,       // main reduction, lane in R: folds a block into the total dst
    TNI_S_FOLD,        // main reduction, lane in P: folds a into the accumulators b, those into dst
    TNI_S_TAIL_ROWS,   // tail of elem values, lane in R
    TNI_S_TAIL_ONE,    // tail of a value that is one for the row, lane in R
    TNI_S_TAIL_BLOCK,  // tails, lane in P
    TNI_S_JOIN         // finish: partial results of all chunks
} tni_step_kind;

// Where a step's result goes, if not into its register's slot.
enum { TNI_LEAD_NONE, TNI_LEAD_OUT, TNI_LEAD_KEEP };

// One step. f is what its kind calls; wide and widen belong to folds: joining totals, and taking
// accumulators to their type.
typedef struct {
    uint8_t kind, op, dtype;
    uint8_t one;    // computed once, not for every lane
    uint8_t lead;   // see above
    uint8_t bytes;  // of an element moved
    int32_t next;   // in its section; -1 ends it
    int32_t dst, a, b, c;
    int32_t ins;
    int16_t access, out;  // out: the access that dst lies at, where lead says so
    int64_t mem;          // of a tail: its accumulators in the worker's memory, and
    int64_t partial;      // its place among the partial results
    union {
        tni_tile_map     *map;
        tni_tile_convert *convert;
        tni_tile_block   *block;
        tni_tile_fold    *fold;
        tni_tile_random  *random;
    } f;
    tni_tile_fold    *wide;
    tni_tile_convert *widen;
} tni_tile_step;

// One register. It has a slot of its own where it is fixed: read outside the section that makes it.
// Else slots are shared by registers that do not live at one time.
typedef struct {
    uint8_t rep;   // dtype of its elements
    uint8_t tile;  // else one element
    uint8_t fixed;
    int32_t section, maker, last;  // the step that makes it; the last that reads it
    int32_t as, spread;            // the register that has it converted, or in every lane; -1
    int64_t keep;                  // kept for the row: where; -1
    int64_t offset;                // of its slot in the worker's memory
} tni_reg;

typedef struct {
    int32_t head, tail;
} tni_section;

// A program lies in the launch's scratch with everything it points to, before the memory of the
// workers. Invariant: a step's operands are made by earlier steps of its section, or in a section
// that runs before.
typedef struct {
    const tni_tiles *tiles;
    tni_launch      *l;
    tni_work_split   cut;
    int              phases, nstep, nreg, nsection;
    int              lane, finish_lane;  // axes; -1: none
    int64_t          lanes;              // of the largest tile
    int64_t          slot_bytes, keep_bytes, worker_bytes;
    int64_t          state_bytes;  // of what is fixed in a worker's memory
    tni_tile_step   *step;
    tni_reg         *reg;
    tni_section     *section;
    int32_t         *loop_reg;  // [loop][ins]: the register there, -1
    int32_t         *row_reg;   // [ins]: what does not vary over R
    int32_t         *fin_reg;   // [ins]: in the finish stage
    int16_t         *cost;      // [ins]: in additions, of all that varies over R
    bool            *needed;    // [ins]
    int64_t         *delta;     // [axis][access]: the step of a place when an axis goes on
    bool             shared[TNI_MAX_BUFFERS];  // memory that is written
} tni_program;

static inline int tni_row_section(int p)
{
    return 1 + 2 * p;
}
static inline int tni_loop_section(int p)
{
    return 2 + 2 * p;
}
enum { TNI_SECTION_ONE = 0 };
enum { TNI_FINISH_ONE, TNI_FINISH_STORE, TNI_FINISH_LOOP };
// After the last row section: FINISH_ONE, FINISH_STORE, FINISH_LOOP.
static inline int tni_finish_section(const tni_program *g, int which)
{
    return 2 + 2 * g->phases + which;
}

enum { TNI_KEEP_MOST = 1 << 19 };  // bytes of a worker for what is kept

// The bytes of a program itself, at most, for a kernel.
size_t tni_program_bytes(const tni_kernel *k);
// The bytes of a worker's memory, at most.
int64_t tni_program_most(const tni_launch *l, const tni_work_split *cut);
// Builds the program of a launch in so many bytes at mem, and finds worker_bytes.
tni_program *tni_program_build(tni_launch *l, char *mem);
// Its part: the steps, in empty arrays.
void tni_program_steps(tni_program *g);

#endif
