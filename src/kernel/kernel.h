// The kernel IR: what the planner writes, the interpreter runs and the emitter prints.
//
// A kernel is a domain and a straight list of instructions. The domain has parallel axes P and
// reduced axes R, outermost first: its points are (p, r), p is a *row*, and the last axis of all
// that are side by side in memory is the *lane* axis. Control flow is not in the list: it follows
// from where a value varies and from its phase.
//
//   softmax over the last axis, P = rows, R = columns
//     0  load  x[p, r]                  elem, phase 0
//     1  reduce max 0 over R            row,  available from phase 1 on
//     2  map   sub 0 1                  elem, phase 1
//     3  map   exp 2                    elem, phase 1
//     4  reduce sum 3 over R            row,  available from phase 2 on
//     5  map   div 3 4                  elem, phase 2
//     6  store y[p, r] 5
//
// A reduction over R is finished for each row before the next phase of that row. A reduction over P
// is a *tail*: nothing in the main stage reads it; partial results of fixed chunks of rows are
// joined in the *finish* stage, where instructions that read tails run too; what those read besides
// tails (a load for each column, a number) is computed again there.
//
// A kernel has no sizes, strides, numbers or addresses: those are in its launch. It knows only
// classes of strides, so that one kernel serves many shapes.
#ifndef TNI_KERNEL_KERNEL_H
#define TNI_KERNEL_KERNEL_H

#include "base/heap.h"
#include "ops/op_table.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

enum {
    TNI_AXES         = 8,    // of a domain, P and R together
    TNI_MAX_INS      = 192,  // instructions
    TNI_MAX_BUFFERS  = 32,
    TNI_MAX_ACCESSES = 64,
    TNI_MAX_NUMBERS  = 48,
    TNI_NO_VALUE     = -1
};

typedef enum {
    TNI_I_LOAD,    // buffer of `access`, at its place; see tni_access. a: index, b: guard
    TNI_I_NUMBER,  // launch number `number`
    TNI_I_PLACE,   // i64: offset + sum of coordinate times stride, by `access`
    TNI_I_RANDOM,  // op (random_bits, uniform, normal) of element a (i64) of a random tensor; its
                   // key and counter are the numbers `number` and `number` + 1
    TNI_I_MAP,     // op of a, b, c
    TNI_I_CAST,    // a as dtype: rounded to it, cut to it, as the op table's cast
    TNI_I_CHECK,  // i64: index a, counted from the end where negative. Out of 0 .. number-1 it sets
                  // the launch's failure and is 0. `number` holds the size
    TNI_I_REDUCE,  // op (sum, prod, max, min) of a over R or P
    TNI_I_STORE    // a into the buffer of `access`, rounded to the buffer's dtype
} tni_code;

// Where a value varies: a set of these.
enum {
    TNI_PER_ONE  = 0,
    TNI_PER_ROW  = 1,  // over P
    TNI_PER_COL  = 2,  // over R
    TNI_PER_ELEM = 3
};

// One instruction; operands are earlier ones. dtype is that of the value. A value is computed in
// the compute type of its dtype: f16, bf16 and f32 in float, f64 in double, bool, u8, i8 and i32 in
// a 32-bit integer, i64 in a 64-bit one. f16 and bf16 are rounded by CAST and STORE alone; u8 and
// i8 wrap and bool is 0 or 1 after every MAP. The operands of a MAP have one compute type, in which
// its expression is computed, except that the first of `where` is a bool.
//
// per, phase and finish are found by tni_kernel_seal. phase: how many reductions over R have to be
// done before it. A value that varies over R is computed in the loop over R of its phase, or of a
// later one; one that does not, once for the row, before that loop.
typedef struct {
    uint8_t code, op, dtype;
    uint8_t over_p;  // REDUCE: a tail
    uint8_t per, phase, finish;
    int16_t a, b, c;
    int16_t access;  // LOAD, STORE, PLACE
    int16_t number;  // NUMBER, RANDOM, CHECK
} tni_ins;

// The class of a stride.
enum { TNI_STRIDE_0, TNI_STRIDE_1, TNI_STRIDE_N };

// An affine place: offset + sum over axes of coordinate times stride, in elements; of a LOAD with
// an index a, plus a times stride[TNI_AXES] of the launch. A LOAD with a guard b touches memory
// only where b is true, and gives 0 elsewhere.
typedef struct {
    int16_t buffer;            // -1: of a PLACE
    uint8_t stride[TNI_AXES];  // classes
} tni_access;

typedef struct {
    uint8_t dtype;
    uint8_t written;  // by a STORE; else only read
} tni_kernel_buffer;

// Axes 0 .. np-1 are P, np .. np+nr-1 are R. No axis has size 1 or 0 unless it is the only P axis.
// Invariant once sealed: operands come before their readers; every STORE of the main stage varies
// over all of P, and over all of R or not at all; every REDUCE over R varies over R, every tail's
// operand over P; a buffer that is written is read only by a kernel without R and tails: others may
// read an element in several threads, or again after it was written.
typedef struct {
    uint8_t           np, nr;
    uint8_t           lane_in_r;  // the lane axis is the last R axis, else the last P axis
    uint8_t           wide;       // places need 64 bits
    uint8_t           phases;     // loops over R: 1 + the largest phase of what varies over R
    uint8_t           tails;      // whether there is a finish stage
    uint8_t           guarded;    // it does nothing after a CHECK failed whose error is deferred
    int16_t           nins, nbuffer, naccess, nnumber;
    tni_kernel_buffer buffer[TNI_MAX_BUFFERS];
    tni_access        access[TNI_MAX_ACCESSES];
    uint8_t           number[TNI_MAX_NUMBERS];  // dtypes
    tni_ins           ins[TNI_MAX_INS];
} tni_kernel;

// A number of a launch, in the member of its compute type.
typedef union {
    float    f;
    double   d;
    int32_t  i;
    int64_t  l;
    uint64_t u;
} tni_word;

// Returns a number rounded to a dtype, in its compute type: from f if the dtype is a float, else
// from l.
tni_word tni_word_of(tn_dtype dt, double f, int64_t l);

// Settings that measuring may choose (kernel/tuning.h).
typedef struct tni_tuning tni_tuning;

// What a kernel needs to run. Buffers are addresses on the device, aligned to 64 bytes unless the
// memory is the user's. Invariant: a written buffer aliases a read one only in kernels that may
// read what they write (see tni_kernel), and then each point reads and writes the same element; and
// in kernels over long rows that read a row before they store it (plan/memory.c:
// is_row_read_before).
typedef struct {
    const tni_kernel *kernel;
    int64_t           size[TNI_AXES];
    char             *buffer[TNI_MAX_BUFFERS];
    int64_t           offset[TNI_MAX_ACCESSES];                // in elements
    int64_t           stride[TNI_MAX_ACCESSES][TNI_AXES + 1];  // in elements; the last: of an index
    tni_word          number[TNI_MAX_NUMBERS];
    int               threads;
    char             *scratch;  // as many bytes as the device asked for, aligned to 64
    int64_t           fail[2];  // after a CHECK failed: 1 + its instruction, and the index
    int  ticket;             // identifies the deferred error of a CHECK; 0: the launch waits for it
    bool wait_for_compiler;  // even if the device could interpret the kernel meanwhile
    const tni_tuning *tuning;  // NULL: the settings that won for such a launch, else the rule's
} tni_launch;

// Finds per, phase, finish, phases and tails of a finished list. False if the list breaks the rules
// above.
bool tni_kernel_seal(tni_kernel *k);

// Whether an instruction is a tail: a reduction over P, finished in the finish stage.
static inline bool tni_is_tail(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && x->over_p;
}

// Whether it is a reduction over R, finished for each row before the row's next phase.
static inline bool tni_is_row_reduce(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && !x->over_p;
}

// POINT, ROW, COL or FULL: for people. ROW: it has a reduction over R; COL, FULL: only tails.
const char *tni_kernel_kind(const tni_kernel *k);

// Writes the kernel as bytes, at most size of them: kernels of equal bytes have equal text. Returns
// the number of bytes needed.
size_t tni_kernel_key(const tni_kernel *k, char *dst, size_t size);

// Writes the kernel as lines of text for people, as in the sample above. Truncated to size.
void tni_kernel_print(const tni_kernel *k, char *dst, size_t size);

// ---- how a host device splits the work, which also fixes the order of every sum ----------------
//
// A unit is a row where the lane axis is in R, else a strip of at most TNI_STRIP lanes of the last
// P axis (strips of one lane line come one after the other, lane lines in row-major order). A chunk
// is a number of consecutive units that depends on sizes alone; chunks run in any order on any
// thread.
//
// Lane in R. A main REDUCE folds blocks: for the R axes but the last in row-major order, at most
//   TNI_STRIP elements at a time along the last. A block is folded by the rule of tni_tile_block
//   (64, 16 or 1 lanes); blocks are joined in order, floats in double. A tail of an elem value keeps
//   one accumulator for each r in its own type, which every TNI_GROUP rows of the chunk, and at
//   its end, joins the partial result; a tail of a row value joins it row by row.
// Lane in P. A main REDUCE keeps one accumulator a lane in its own type over r in row-major order,
//   joined to the total every TNI_GROUP r and at the end. A tail folds each strip as a block, joined
//   to the partial result in order: for each r, or once.
// Finish joins the partial results of all chunks in order. Joins are in double or int64.
enum { TNI_STRIP = 1024, TNI_GROUP = 64 };

typedef struct {
    int64_t rows;    // product of P
    int64_t cols;    // product of R, 1 if there is none
    int64_t units;   // in all
    int64_t strips;  // of a lane line; 1 where the lane is in R
    int64_t chunk;   // units of a chunk
    int64_t chunks;
    int64_t partials;  // totals (8 bytes) of a chunk: cols for an elem tail, 1 for a row tail
} tni_work_split;

tni_work_split tni_kernel_split(const tni_launch *l);
// The index in a chunk's partial results at which those of the tail `ins` begin.
int64_t tni_kernel_tail_partials(const tni_kernel *k, const tni_work_split *cut, int ins);

#endif
