// The program that the interpreter makes of a kernel for one launch: steps over registers.
//
// A register is a tile of lanes, or one element that is the same for all lanes, in the memory of
// the worker that runs the program. Its elements have the compute type of their dtype, or the dtype
// itself if they were just loaded or rounded to it; bools are bytes. Steps belong to sections,
// which run
//
//     ONE             once per chunk: values that are the same everywhere
//     row section p   once per unit, before loop p; the last one after all loops
//     loop section p  for every tile of the loop over R of phase p
//     FINISH_ONE, FINISH_STORE, FINISH_LOOP  after all chunks, over the columns: see kernel.h on tails
//
// For the softmax of kernel.h, with the lane axis in R:
//
//     loop section 0  IN_PLACE x; BLOCK max
//     row section 1   CONVERT the maximum to f32, BROADCAST it
//     loop section 1  IN_PLACE x; MAP sub; MAP exp, kept for the next loop; BLOCK sum
//     row section 2   CONVERT the sum, BROADCAST it
//     loop section 2  KEPT exp; MAP div, computed directly in y
#ifndef TNI_DEVICE_CPU_INTERPRET_PROGRAM_H
#define TNI_DEVICE_CPU_INTERPRET_PROGRAM_H

#include "device/cpu/tiles.h"

// What a step does. An access says where in memory; dst, a, b and c are registers.
typedef enum {
    TNI_S_MAP,
    TNI_S_CONVERT,
    TNI_S_BROADCAST,  // copies one element to all lanes
    TNI_S_IN_PLACE,   // a load without a copy: the register points into the buffer
    TNI_S_LOAD,       // loads contiguous elements and converts them
    TNI_S_GATHER,     // loads elements a stride apart, unconverted
    TNI_S_INDEXED,    // a load with an index or a guard, unconverted
    TNI_S_PLACE,
    TNI_S_NUMBER,
    TNI_S_RANDOM,
    TNI_S_CHECK,
    TNI_S_KEPT,        // a value of an earlier loop, kept for the whole row
    TNI_S_STORE,       // converts and stores contiguous elements
    TNI_S_SCATTER,     // stores unconverted, contiguous or a stride apart
    TNI_S_BLOCK,       // main reduction, lane in R: folds a block into the total dst
    TNI_S_FOLD,        // main reduction, lane in P: folds a into the accumulators b, those into dst
    TNI_S_TAIL_ROWS,   // tail of elem values, lane in R
    TNI_S_TAIL_ONE,    // tail of a value that is constant along the row, lane in R
    TNI_S_TAIL_BLOCK,  // tails, lane in P
    TNI_S_COMBINE      // finish stage: combines the partial results of all chunks
} tni_step_kind;

// Where a step computes its result: in its register's slot, directly in the buffer of access `out`,
// or in memory that keeps it for the whole unit.
enum { TNI_DEST_SLOT, TNI_DEST_OUT, TNI_DEST_KEPT };

// One step. f is the function that its kind calls. Folds also have wide, which combines totals, and
// widen, which converts accumulators to the dtype of totals.
typedef struct {
    uint8_t kind, op, dtype;
    uint8_t one;    // computed once, not for every lane
    uint8_t dest;   // see above
    uint8_t bytes;  // of an element moved
    int32_t next;   // in its section; -1 ends it
    int32_t dst, a, b, c;
    int32_t ins;
    int16_t access, out;  // out: the access of TNI_DEST_OUT
    int64_t mem;          // of a tail: offset of its accumulators in the worker's memory, and
    int64_t partial;      // of its results among the chunk's partial results
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

// One register. A fixed register, one read outside of the section that makes it, has a slot of its
// own. Other registers share slots if they are not alive at the same time.
typedef struct {
    uint8_t rep;   // dtype of its elements
    uint8_t tile;  // else one element
    uint8_t fixed;
    int32_t section, maker, last;  // the step that makes it; the last that reads it
    int32_t as,
        broadcast;   // caches of tni_reg_as: registers that hold it converted, in every lane; -1
    int64_t keep;    // offset of the memory that keeps it for the unit; -1: not kept
    int64_t offset;  // of its slot in the worker's memory
} tni_reg;

// The first and last step of a section, a list by `next`; -1: none.
typedef struct {
    int32_t head, tail;
} tni_section;

// A program is stored in the launch's scratch with everything it points to, before the memory of
// the workers. Invariant: a step's operands are made by earlier steps of its section, or in a
// section that runs before.
typedef struct {
    const tni_tiles *tiles;
    tni_launch      *l;
    tni_work_split   cut;
    int              phases, nstep, nreg, nsection;
    int              lane, finish_lane;  // axes; -1: none
    int64_t          lanes;              // of the largest tile
    int64_t          slot_bytes, keep_bytes, worker_bytes;
    int64_t          state_bytes;  // of pointers, fixed registers and tails in a worker's memory
    tni_tile_step   *step;
    tni_reg         *reg;
    tni_section     *section;
    int32_t         *loop_reg;  // [loop][ins]: the register there, -1
    int32_t         *row_reg;   // [ins]: of values that do not vary over R
    int32_t         *fin_reg;   // [ins]: in the finish stage
    int16_t         *cost;      // [ins]: additions to compute it again, of all that varies over R
    bool            *needed;    // [ins]
    int64_t         *delta;     // [axis][access]: how far a place moves when an axis advances
    bool             shared[TNI_MAX_BUFFERS];  // [buffer]: is written, and may not be read in place
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

// Most bytes of a worker for kept values. More would push the operands of the loop out of a
// second-level cache of 1 MiB, and reading kept values back would cost more than computing them
// again.
enum { TNI_KEEP_MOST = 1 << 19 };

// Returns an upper bound of the bytes of a kernel's program.
size_t tni_program_bytes(const tni_kernel *k);
// Returns an upper bound of the bytes of a worker's memory.
int64_t tni_program_worker_bytes(const tni_launch *l, const tni_work_split *cut);
// Builds the program of a launch in tni_program_bytes at mem, and finds worker_bytes.
tni_program *tni_program_build(tni_launch *l, char *mem);
// Part of tni_program_build: makes the steps, in empty arrays.
void tni_program_build_steps(tni_program *g);

#endif
