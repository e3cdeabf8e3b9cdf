// How a kernel is cut on a device with work groups (CUDA, OpenCL): its shape. A shape is chosen for a
// launch, by sizes, strides, alignment and the device's limits alone, never by the number of
// threads that happen to be free: it fixes the order of every sum.
//
// Three forms, by where the lane axis is:
//
//   ROW    lane in R. A group has `rows` teams of `team` threads. A team takes a row; a thread takes
//          every team-th vector of it. What several loops read is held in registers (the row then
//          has at most team * unroll vectors), in shared memory, or read again. Long rows are
//          brought into shared memory ahead, by bulk copies, and shared by a cluster of groups.
//   LANE   lane in P, with loops over R. A thread takes a vector of neighbouring rows; `team` threads
//          share the elements of R, and `rows` such vectors are side by side in a group.
//   POINT  no R. As LANE, without loops; `unroll` vectors a thread where there are tails. Where
//          accesses have their neighbours along another axis, a group takes a square of points, and
//          those accesses go through shared memory: simt_tile.c.
//
// A kernel with tails goes over several rows: each team (ROW), or each thread (LANE, POINT), has
// `chunk` of them one after the other, and each group leaves one partial result for each tail. They are
// joined in order by the last group to end, or by a second kernel, NAME_finish.
//
// Arguments of a kernel and its finish kernel: the buffers, scratch, state, then words of 64 bits
// (tni_simt_words), and in OpenCL, where shared_bytes is not 0, for the first of the two a pointer
// to so many bytes of local memory. With TNI_GPU_STRUCT all are one struct by value (tni_simt_pack). State is
// m_longs on the device, zero at first and one for each queue: the failure of a CHECK (as
// tni_launch.fail) and a count of groups, which every kernel leaves at zero; with TNI_GPU_LAST two addresses
// more: where the host is told of a failure, and a word that is set then. A launcher whose
// addresses lie inside of buffer objects adds where they do to the words: in elements to the
// offset of each access, in bytes to TNI_WORD_SCRATCH.
#ifndef TNI_KERNEL_SIMT_H
#define TNI_KERNEL_SIMT_H

#include "kernel/emit.h"

typedef enum { TNI_SIMT_POINT, TNI_SIMT_ROW, TNI_SIMT_LANE } tni_simt_form;
typedef enum { TNI_HOLD_REGISTERS, TNI_HOLD_SHARED, TNI_HOLD_NOTHING } tni_simt_hold;
typedef enum { TNI_FINISH_NONE, TNI_FINISH_LAST, TNI_FINISH_KERNEL } tni_simt_finish;

// What the device has.
typedef struct {
    int      threads;       // of a group, at most
    int      shared_bytes;  // of a group, at most, those a text declares included
    int      units;         // multiprocessors
    unsigned features;      // TNI_GPU_ bits of dialect.h
    int      cluster;  // most groups that can read each other's memory; more than 0: the chip also
                       // has bulk copies into shared memory
    bool few_registers;  // a thread is to take few registers, since it spilled otherwise
} tni_simt_limits;

// The part of a shape that its text depends on. Zeroed before it is filled: it is compared as bytes.
typedef struct {
    uint8_t form, hold, finish;
    uint8_t vector;       // elements: 1, 2, 4 or 8
    uint8_t unroll;       // vectors a thread has in hand: 1, 2, 4, 8 or 16
    uint8_t window;       // vectors begin at aligned places, the first before the row's start
    uint8_t wide;         // 64-bit places
    uint8_t keep_costly;  // costly values are kept from loop to loop
    uint8_t
        rows_in_flight;  // ROW with tails of columns alone: the vectors in hand are of as many rows
    uint8_t  prefetch_row;   // ROW with tails: the next row is loaded while one is worked on
    uint8_t  low_occupancy;  // half as many threads on a multiprocessor, each with more registers
    uint8_t  tiles;          // columns are cut over the second axis of the grid
    uint8_t  features;       // TNI_GPU_ bits
    uint8_t  bulk;           // groups of a multiprocessor whose rows bulk copies bring; 0: none do
    uint8_t  cluster;        // groups that share a row; 0: each has its own
    uint8_t  tail_memory;    // tails of elements are added up in scratch, not in registers
    uint8_t  tile_axis;      // POINT in squares: of P, not the lane
    uint8_t  transpose_pairs;  // squares come in pairs that are each other's transposes
    uint16_t tile;             // lanes, and points along tile_axis, of a square; 0: no squares
    uint16_t tiles_per_group;  // squares of a group, side by side along the lane
    uint16_t team, rows;       // threads of a group: team * rows
    uint16_t finish_threads;   // of a group of the finish kernel; 0: there is none
    uint16_t finish_cols;      // columns that a group finishes at once
    uint16_t leader;           // access that all vectors are aligned with
    uint64_t vectors;  // accesses that move a vector at a time; with vector 1, those fetched
                       // before their loop's work
    uint64_t tiled;    // those of them that go through shared memory
} tni_simt_class;

typedef struct {
    tni_simt_class class;
    int64_t
        lines;  // ROW: rows. Else: lane lines, the product of P but its last axis; or pages of tiles
    int64_t vectors;  // of a row or a lane line; groups for a page
    int64_t chunk, parts;
    int64_t grid[2];
    int     block;
    int     shared_bytes;  // dynamic
    int64_t scratch_bytes;
    int64_t finish_grid;  // groups of the finish kernel; 0: there is none
    int     finish_block;
} tni_simt;

static inline bool tni_gpu_has(const tni_simt_class *c, unsigned feature)
{
    return c->features & feature;
}

// The shape for a launch. Buffers that are NULL count as aligned. A plan that launches again with
// other addresses and offsets has to ask again and compare classes.
tni_simt tni_simt_choose(const tni_launch *l, const tni_simt_limits *limits);

// The key of a compiled kernel: tni_kernel_key and the class. As there.
size_t tni_simt_key(const tni_kernel *k, const tni_simt_class *c, char *dst, size_t room);

// ---- arguments ---------------------------------------------------------------------------------

enum {
    TNI_WORD_LINES,
    TNI_WORD_VECTORS,
    TNI_WORD_COLS,
    TNI_WORD_CHUNK,
    TNI_WORD_PARTS,
    TNI_WORD_SCRATCH,  // bytes from the address of scratch to where it begins
    TNI_WORD_SIZES,    // first of the sizes of axes
    TNI_MAX_WORDS = TNI_WORD_SIZES + TNI_AXES + TNI_MAX_ACCESSES * (TNI_AXES + 2) +
                    TNI_MAX_NUMBERS + TNI_MAX_INS
};

// Where the words of a kernel are: of an offset, a stride (of class n alone; the last is an index's),
// a number, the bytes in scratch before the partials of a tail. -1 where there is none.
typedef struct {
    int16_t offset[TNI_MAX_ACCESSES], stride[TNI_MAX_ACCESSES][TNI_AXES + 1];
    int16_t number[TNI_MAX_NUMBERS], tail[TNI_MAX_INS];
    int16_t count;
} tni_simt_layout;

void tni_simt_layout_of(const tni_kernel *k, tni_simt_layout *at);
// Writes the words of a launch, as they lie in its kernel; their number.
int tni_simt_words(const tni_launch *l, const tni_simt *m, const tni_simt_layout *at,
                   int64_t dst[TNI_MAX_WORDS]);
// The struct that a CUDA kernel takes: nbuffer + 2 addresses, and the words. dst has room for
// TNI_SIMT_BYTES; the bytes used.
enum { TNI_SIMT_BYTES = 8 * (TNI_MAX_BUFFERS + 2 + TNI_MAX_WORDS) };
size_t tni_simt_pack(const tni_launch *l, const tni_simt *m, const tni_simt_layout *at,
                     const void *state, char *dst);

// ---- text --------------------------------------------------------------------------------------

// The skeleton, for tni_emit_program: opts of an item is its tni_simt_class.
tni_skeleton tni_emit_simt;

// Values that vary over R, cost TNI_KEEP_COST_GPU or more to compute again, and that several loops read.
tni_set tni_simt_costly(const tni_kernel *k);
// Loads whose elements several loops read.
tni_set tni_simt_reread(const tni_kernel *k);
// 32-bit words of a vector of dtype dt.
int tni_simt_vector_words(const tni_simt_class *c, tn_dtype dt);

#endif
