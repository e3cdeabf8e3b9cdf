// Kernels as data: a program that one compiled kernel, the interpreter, runs on a device with work
// groups. So a kernel that is not compiled yet, or runs only once, need not wait for a compiler.
//
// The interpreter has a switch with a case for each instruction in each type; the words of a
// program say which cases, on which registers. Its arithmetic is the text of the op table, as in
// generated kernels, so a kernel without reductions gives the same bits either way. Sums are added
// in another order.
//
//   a word of code   sel 16 | to 8 | a 8 | b 8 | c 8 | x 8, from the lowest bits on
//   code             segments: what a group does once (prologue of the table of tails), then for each
//                    row: row point 0, loop 0, row point 1, ...; for the finish: once, for each column
//   a table          of accesses: offset, a stride for each axis, the stride of an index
//                    of numbers: those of the launch, then the starts of folds
//                    of tails: bytes in scratch, whether for each column, register, fold, start
//                    of folds: register and fold of each REDUCE over R, by loop
#ifndef TNI_KERNEL_SIMT_INTERPRETER_H
#define TNI_KERNEL_SIMT_INTERPRETER_H

#include "kernel/emit.h"

// Threads of a group; a row is shared by 1 to all of them. Words: what a launch can pass by value.
enum { TNI_INTERPRETER_THREADS = 128, TNI_INTERPRETER_WORDS = 1024 };

// How much of the op table an interpreter has: more takes longer to compile. Each level has all of
// those before it.
typedef enum {
    TNI_INTERPRET_LIGHT,   // ops that cost little, no f64
    TNI_INTERPRET_SINGLE,  // every op, no f64
    TNI_INTERPRET_ALL,
    TNI_INTERPRETERS
} tni_interpreter_level;

// A launch of a kernel as the interpreter takes it.
typedef struct {
    tni_interpreter_level level;                  // the least that has all of its instructions
    int                   count;                  // words
    int64_t               groups, finish_groups;  // finish_groups 0: there are no tails
    int64_t               scratch_bytes;
    int64_t               word[TNI_INTERPRETER_WORDS];
} tni_simt_program;

// Writes the program of a launch, for a device with `units` multiprocessors. False if it is too
// large.
bool tni_simt_program_write(tni_simt_program *p, const tni_launch *l, int units);
// Turns it into the program of its finish stage, which is launched after it with the same buffers.
void tni_simt_program_finish(tni_simt_program *p);

// The text of the interpreter of a level: a skeleton for tni_emit_program, whose opts is a
// tni_interpreter_level.
tni_skeleton tni_emit_interpreter;
// Its name.
#define TNI_INTERPRETER_NAME "interpret"

// On CUDA its one argument is a struct: TNI_MAX_BUFFERS addresses, scratch, state, the words. On
// OpenCL: as many buffers, scratch, state, a constant buffer of the words.
enum { TNI_INTERPRETER_BYTES = 8 * (TNI_MAX_BUFFERS + 2 + TNI_INTERPRETER_WORDS) };
size_t tni_simt_program_pack(const tni_simt_program *p, const tni_launch *l, const void *state,
                             char *dst);

// ---- what the writer of programs and the writer of the text agree on ---------------------------

enum {
    TNI_W_FINISH,    // whether this is the finish
    TNI_W_ROWS,      // product of P
    TNI_W_COLS,      // product of R
    TNI_W_NP,        // axes of P
    TNI_W_AXES,      // of P and R
    TNI_W_TEAM,      // threads that share a row
    TNI_W_PARTS,     // groups that share the rows, each with partial results of its own
    TNI_W_TILES,     // groups that share the columns of a part
    TNI_W_TILE,      // columns of each
    TNI_W_SEGMENTS,  // of the main stage: row point 0, loop 0, ..., the last row point
    TNI_W_GUARDED,   // does nothing after a failure whose error is deferred
    TNI_W_TAILS,     // how many
    TNI_W_TAIL_AT,   // where each table begins
    TNI_W_ACCESS_AT,
    TNI_W_NUMBER_AT,
    TNI_W_SEGMENT_AT,  // for each segment: first word of code, first of folds
    TNI_W_SIZE,        // of each axis
    TNI_W_HEAD = TNI_W_SIZE + TNI_AXES
};
enum {
    TNI_TAIL_BYTES,
    TNI_TAIL_COLUMNS,
    TNI_TAIL_REGISTER,
    TNI_TAIL_FOLD,
    TNI_TAIL_START,
    TNI_TAIL_WORDS
};

// Selectors: cases of the switch. Types are those of dtype.def in their order (tni_type_number).
enum {
    TNI_SEL_LOAD,  // + dtype in memory; a index, b guard, c buffer, x access
    TNI_SEL_STORE  = TNI_SEL_LOAD + TNI_DTYPES,   // + dtype in memory; a value, c buffer, x access
    TNI_SEL_NUMBER = TNI_SEL_STORE + TNI_DTYPES,  // x number
    TNI_SEL_PLACE,                                // x access
    TNI_SEL_CHECK,                                // a index, x number, c instruction
    TNI_SEL_RANDOM,                               // + draw; a element, x number of the key
    TNI_SEL_WRAP   = TNI_SEL_RANDOM + 7,          // + dtype; register `to`
    TNI_SEL_CAST   = TNI_SEL_WRAP + TNI_DTYPES,   // + TNI_DTYPES type + dtype; a value
    TNI_SEL_REDUCE = TNI_SEL_CAST +
                     TNI_COMPUTES * TNI_DTYPES,  // a value into register `to`; c fold
    TNI_SEL_TAIL,                                // a value into the column of tail x; c fold
    TNI_SEL_JOIN,                                // tail x, all parts, into `to`; c fold
    TNI_SEL_MAP                                  // + TNI_COMPUTES op + type
};
enum { TNI_REGISTERS = 200, TNI_SPARE_REGISTER = 199, TNI_NO_REGISTER = 255 };

// What a RANDOM draws, in the order of its selectors.
enum {
    TNI_DRAW_BITS,
    TNI_DRAW_UNIFORM_F,
    TNI_DRAW_UNIFORM_D,
    TNI_DRAW_F16,
    TNI_DRAW_BF16,
    TNI_DRAW_NORMAL_F,
    TNI_DRAW_NORMAL_D
};

// The four folds by number, and a dtype's compute type by number.
extern const int  tni_interpreter_folds[4];
static inline int tni_type_number(tn_dtype dt)
{
    return tni_dtype_table[dt].number;
}

// Whether an interpreter of a level has an op in a type, elements and values of a dtype, a draw, a
// cast from a type to a dtype.
bool tni_interpreter_has(tni_interpreter_level level, int op, int type);
bool tni_interpreter_holds(tni_interpreter_level level, tn_dtype dt);
bool tni_interpreter_draws(tni_interpreter_level level, int draw);
bool tni_interpreter_casts(tni_interpreter_level level, int type, tn_dtype to);

#endif
