// The shape of a kernel on a device with work groups (CUDA, OpenCL): how its work is divided over
// groups and threads. A shape is chosen for a launch, by what launch_words.h lists, the device's
// limits and settings that were kept (tuning.h) alone, never by how many threads happen to be free:
// it fixes the order of every sum.
//
// Three forms, by where the lane axis is:
//
//   ROW    lane in R. A group has `rows` teams of `team` threads. A team takes a row; a thread takes
//          every team-th vector of it. What several loops read is held in registers (the row then
//          has at most team * unroll vectors), held in shared memory, or read again. Long rows are
//          copied into shared memory ahead, by bulk copies, and shared by a cluster of groups.
//   LANE   lane in P, with loops over R. A thread takes a vector of neighbouring rows; `team` threads
//          share the elements of R, and a group has `rows` such vectors side by side.
//   POINT  no R. As LANE, without loops; `unroll` vectors a thread if there are tails, or if loads
//          depend on the column alone: a thread then has the same columns of several rows. If
//          accesses are transposed (their neighbours are along another axis), a group takes a square
//          of points, and those accesses go through shared memory: simt_tile.c.
//
// A kernel with tails goes over several rows: each team (ROW), or each thread (LANE, POINT), has
// `chunk` of them one after the other, and each group leaves one partial result for each tail; with
// tickets, where chance decides who has a row, each row leaves one. They are joined in order by the
// last group to end, or by a second kernel, NAME_finish.
//
// Arguments of a kernel and of its finish kernel: the buffers, scratch, state, then words of 64
// bits (tni_simt_words). In OpenCL, if shared_bytes is not 0, a pointer to that many bytes of local
// memory follows, for the main kernel only. With TNI_GPU_STRUCT all are one struct by value
// (tni_simt_pack). State is an array of m_long on the device, zero at first, one array for each
// queue: the failure of a CHECK (as tni_launch.fail), then a count of groups and one of tickets, 32
// bits each, which every kernel leaves at zero; with TNI_GPU_LAST two addresses more: where the
// host reads of a failure, and a word that is set then. A launcher whose addresses are offsets into
// buffer objects adds those offsets to the words: in elements to the offset of each access, in
// bytes to TNI_WORD_SCRATCH.
#ifndef TNI_KERNEL_SIMT_H
#define TNI_KERNEL_SIMT_H

#include "kernel/emit.h"
#include "kernel/tuning.h"

typedef enum { TNI_SIMT_POINT, TNI_SIMT_ROW, TNI_SIMT_LANE } tni_simt_form;
typedef enum { TNI_HOLD_REGISTERS, TNI_HOLD_SHARED, TNI_HOLD_NOTHING } tni_simt_hold;
typedef enum { TNI_FINISH_NONE, TNI_FINISH_LAST, TNI_FINISH_KERNEL } tni_simt_finish;

// The limits of the device.
typedef struct {
    int      threads;       // most threads of a group
    int      shared_bytes;  // most shared memory of a group, that which the text declares included
    int      units;         // multiprocessors
    unsigned features;      // TNI_GPU_ bits of dialect.h
    int cluster;  // most groups that can read each other's shared memory; above 0: the chip also
                  // has bulk copies into shared memory
    bool few_registers;  // each thread is to take few registers: the kernel spilled without this
    int  slices;         // most groups along the second axis of a grid; 0: TNI_SLICES
    const tni_tuning *tuning;  // settings that replace rules where they can; NULL: none
} tni_simt_limits;

// What CUDA allows along the second axis of a grid; along the first it is 2^31 - 1.
enum { TNI_SLICES = 65535 };

// How a grid goes over slices of the columns: not, by its second axis, or, if they are too many for
// that, by its first, where a slice has one group, which has all rows.
enum { TNI_SLICES_NONE, TNI_SLICES_SECOND, TNI_SLICES_FIRST };

// The part of a shape that the text depends on: two launches of equal class run the same compiled
// kernel. Invariant: zeroed as bytes before it is filled, since it is compared and hashed as bytes.
typedef struct {
    uint8_t form, hold, finish;
    uint8_t vector;       // elements: 1, 2, 4 or 8
    uint8_t unroll;       // vectors a thread has in flight: 1, 2, 4, 8 or 16
    uint8_t window;       // vectors begin at aligned addresses, the first before the row's start
    uint8_t wide;         // 64-bit indices
    uint8_t keep_costly;  // costly values are kept from loop to loop
    uint8_t
        rows_in_flight;     // ROW with column tails only: the vectors in flight are of several rows
    uint8_t prefetch_row;   // ROW with tails: the next row is loaded while one is computed
    uint8_t low_occupancy;  // half as many threads on a multiprocessor, each with more registers
    uint8_t split_columns;  // TNI_SLICES_: whether the grid goes over slices of the columns
    uint8_t features;       // TNI_GPU_ bits
    uint8_t bulk;     // groups of a multiprocessor whose rows bulk copies bring; 0: no bulk copies
    uint8_t cluster;  // groups that share a row; 0: each has its own
    uint8_t
        by_warps;  // a row ahead: each warp has a run of vectors of its own and asks for it itself
    uint8_t complete;     // with bulk: each thread has `unroll` vectors of every row
    uint8_t tickets;      // with bulk: whoever is done with a row takes the next that is left
    uint8_t tail_memory;  // column tails are added up in scratch, not in registers
    uint8_t tile_axis;    // POINT in tiles: the axis of P along which they extend, besides the lane
    uint8_t
        square;  // tiles along a side of squares that are visited with their transposes; 0: they are not
    uint8_t
        pairs;  // a group has a tile and its transpose, each of which is the other's transposed operand
    uint8_t  whole_blocks;     // vectors of random numbers are whole blocks of the generator's
    uint16_t tile;             // lanes of a tile, and points along tile_axis; 0: no tiles
    uint16_t tiles_per_group;  // tiles of a group, side by side along the lane
    uint16_t team, rows;       // threads of a group: team * rows
    uint16_t finish_threads;   // of a group of the finish kernel; 0: there is no finish kernel
    uint16_t finish_cols;      // columns that a group finishes at once
    uint16_t leader;           // window: the access that all vectors are aligned with
    uint64_t vectors;  // accesses that move a vector at a time; with vector 1, those fetched before
                       // their loop's work
    uint64_t tiled;    // those of them that go through shared memory
    uint64_t columns;  // those of them that are the same in every row, where a thread has the same
                       // columns of several rows: loaded once
} tni_simt_class;

// A shape: the class of the text and the numbers of one launch. Invariant: parts * chunk * (units
// of a group's turn) covers all units; grid[0] is parts times the groups of a cluster (with
// tickets: what runs at once), grid[1] the slices of the columns; with TNI_SLICES_FIRST parts is 1
// and grid[0] the slices.
typedef struct {
    tni_simt_class class;
    int64_t
        lines;  // ROW: rows. Else lines of lanes: the product of P but its last axis; tiles: the
                // product of the axes without tiles
    int64_t vectors;  // of a row or of a line; tiles: groups of a plane of points
    int64_t chunk;    // rows of a team, or turns of a group
    int64_t parts;    // partial results of each tail
    int64_t grid[2];
    int     block;
    int     shared_bytes;  // of dynamic shared memory
    int64_t scratch_bytes;
    int64_t finish_grid;  // groups of the finish kernel; 0: there is none
    int     finish_block;
} tni_simt;

// The groups of `block` threads that a multiprocessor is to run at once, where a shape is made for
// a number of them: 1024 threads, which have 64 registers each, or at low occupancy about half as
// many.
static inline int tni_simt_resident(const tni_simt_class *c, int block)
{
    if (c->bulk && c->hold == TNI_HOLD_REGISTERS) return c->bulk;  // as tni_simt_is_ahead
    int n = c->low_occupancy ? (512 + block / 2) / block : 1024 / block;
    return n > 1 ? n : 1;
}

// Whether bulk copies bring the next row while registers hold one.
static inline bool tni_simt_is_ahead(const tni_simt_class *c)
{
    return c->bulk && c->hold == TNI_HOLD_REGISTERS;
}

static inline bool tni_gpu_has(const tni_simt_class *c, unsigned feature)
{
    return c->features & feature;
}

// Chooses the shape for a launch. Buffers that are NULL count as aligned. A plan that launches
// again with other addresses or offsets has to choose again and compare classes.
tni_simt tni_simt_choose(const tni_launch *l, const tni_simt_limits *limits);

// Writes settings that differ from `from` in one knob and make another shape than it and than each
// other; at most `room`. Returns their number.
int tni_simt_neighbours(const tni_launch *l, const tni_simt_limits *limits, const tni_tuning *from,
                        tni_tuning *dst, int room);

// Writes the key of a compiled kernel, tni_kernel_key and the class, with the same contract as
// that.
size_t tni_simt_key(const tni_kernel *k, const tni_simt_class *c, char *dst, size_t size);

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

// Which launch word holds what: the offset of an access, its strides (of class n only; the last is
// the stride of an index), a number, the bytes of scratch before the partial results of a tail. -1:
// no word.
typedef struct {
    int16_t offset[TNI_MAX_ACCESSES], stride[TNI_MAX_ACCESSES][TNI_AXES + 1];
    int16_t number[TNI_MAX_NUMBERS], tail[TNI_MAX_INS];
    int16_t count;
} tni_simt_layout;

void tni_simt_layout_of(const tni_kernel *k, tni_simt_layout *at);
// Writes the words of a launch in the order of the layout; returns their number.
int tni_simt_words(const tni_launch *l, const tni_simt *m, const tni_simt_layout *at,
                   int64_t dst[TNI_MAX_WORDS]);
// Writes the struct that a CUDA kernel takes: nbuffer + 2 addresses, and the words. dst has
// TNI_SIMT_BYTES; returns the bytes used.
enum { TNI_SIMT_BYTES = 8 * (TNI_MAX_BUFFERS + 2 + TNI_MAX_WORDS) };
size_t tni_simt_pack(const tni_launch *l, const tni_simt *m, const tni_simt_layout *at,
                     const void *state, char *dst);

// ---- text --------------------------------------------------------------------------------------

// The skeleton, for tni_emit_program: opts of an item is its tni_simt_class.
tni_skeleton tni_emit_simt;

// Values that vary over R, cost TNI_KEEP_COST_GPU or more to compute again, and that several loops
// read.
tni_set tni_simt_costly(const tni_kernel *k);
// Loads whose elements several loops read, so that holding them saves memory traffic.
tni_set tni_simt_reread(const tni_kernel *k);
// 32-bit words of a vector of dtype dt.
int tni_simt_vector_words(const tni_simt_class *c, tn_dtype dt);

#endif
