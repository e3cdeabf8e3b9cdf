// The emitter's common part: a text that grows, the text of one instruction, what has to be
// computed where, and the program around kernels. The skeletons (emit_c.c, emit_simt.c) add loops,
// indices and reductions.
//
// A skeleton decides where values live. It fills a tni_emitter with four callbacks and asks for the
// text of one instruction at a time:
//
//     tni_out_print(out, "    %s v%d = ", tni_compute_type(x->dtype), i);
//     tni_emit_value(s, i);                 // v3 = o_add_f(v1, v2)
//     tni_out_print(out, ";\n");
//
// Functions that the text calls (o_add_f, m_exp_f, m_float_to_half, ...) need no care:
// tni_emit_program finds their names in the finished kernels and puts what they need before them.
#ifndef TNI_KERNEL_EMIT_H
#define TNI_KERNEL_EMIT_H

#include "base/heap.h"
#include "kernel/dialect.h"

// ---- text that grows ---------------------------------------------------------------------------

// A text being written, owned by its opener. Invariant: once `failed` (out of memory), nothing more
// is added, and tni_out_take returns NULL: writers need no checks of their own.
typedef struct {
    tni_heap *heap;
    char     *s;  // ends with 0 once there is anything
    size_t    len, cap;
    int       depth;  // tni_out_line indents by it, four spaces each
    bool      failed;
} tni_out;

void tni_out_open(tni_out *o, tni_heap *h);
void tni_out_close(tni_out *o);  // frees the text unless it was taken
// Returns the text, which the caller frees by tni_free; NULL if memory ran out.
char *tni_out_take(tni_out *o);
// Adds what printf would print.
void tni_out_print(tni_out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Adds a line: indented, with its newline. A line that ends with `{` indents those after it, one
// that begins with `}` is indented less itself.
void tni_out_line(tni_out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Removes characters from .. to-1.
void tni_out_remove(tni_out *o, size_t from, size_t to);

// ---- sets of instructions ----------------------------------------------------------------------

// A set of instructions of a kernel, by number.
typedef struct {
    uint64_t bit[(TNI_MAX_INS + 63) / 64];
} tni_set;

static inline bool tni_set_has(const tni_set *s, int i)
{
    return s->bit[i / 64] >> i % 64 & 1;
}
static inline void tni_set_add(tni_set *s, int i)
{
    s->bit[i / 64] |= (uint64_t)1 << i % 64;
}

static inline void tni_set_remove(tni_set *s, int i)
{
    s->bit[i / 64] &= ~((uint64_t)1 << i % 64);
}

// ---- what has to be computed where -------------------------------------------------------------
//
// The main stage of a row is: row point 0, loop 0 over R, row point 1, loop 1, ..., row point
// `phases`. A value that varies over R is computed in every loop that needs it unless the skeleton
// kept it in an earlier one; a value that does not, once, at the row point of its phase.

// What the main stage needs at all, of all instructions: its stores and tails and, transitively,
// what they read. Reductions over R are in it; what only the finish stage reads is not.
tni_set tni_needs_main(const tni_kernel *k);

// At row point q, in order: values, CHECKs, row STOREs, and tails of row values (REDUCE with over_p
// whose operand does not vary over R), all of phase q. Reductions over R are not in it: they are
// done by the loop before.
tni_set tni_needs_row(const tni_kernel *k, int q);

// In loop q, in order: what varies over R and has to be computed, STOREs of phase q, and those
// REDUCEs of phase q (over R, and tails) whose operand varies over R. Operands in `kept` were
// kept by an earlier loop and are not in the result, nor is what only they need. kept may be NULL.
tni_set tni_needs_loop(const tni_kernel *k, int q, const tni_set *kept);

// In the finish stage, in order: once (col false), or for each r (col true). Tails are in it.
tni_set tni_needs_finish(const tni_kernel *k, bool col);

// Along which axes each instruction's value varies: bit i is axis i. A STORE: its place.
void tni_varying_axes(const tni_kernel *k, uint8_t axes[TNI_MAX_INS]);

// The cost (in additions) of an instruction itself.
int tni_ins_cost(const tni_ins *x);
// The cost (in additions) of computing value i again from values that exist: loads, reductions,
// numbers and those in `kept`.
int tni_recompute_cost(const tni_kernel *k, int i, const tni_set *kept);

// False, with a reason for people, if the skeletons do not take the kernel: its finish stage needs
// a reduction over R, or a loop loads what an earlier one stores.
bool tni_can_emit(const tni_kernel *k, const char **why);

// ---- the text of one instruction ---------------------------------------------------------------

// The writer of a kernel's body: what the text of an instruction needs from the skeleton. Each
// callback adds an expression to `out`; precedence is that of a name or a call, so callbacks put
// brackets around anything else.
typedef struct tni_emitter tni_emitter;
struct tni_emitter {
    tni_out           *out;
    const tni_dialect *dialect;
    const tni_kernel  *kernel;
    void              *user;  // the skeleton's own
    // The value of instruction i, in its compute type, where it is read.
    void (*value)(tni_emitter *s, int i);
    // The element in memory of LOAD or STORE i: an lvalue of the kept type. A LOAD's index
    // (operand a times the launch's index stride) is in it.
    void (*element)(tni_emitter *s, int i);
    // The place of PLACE i, as an m_long.
    void (*place)(tni_emitter *s, int i);
    // Launch number n: its 64 bits, as an m_ulong.
    void (*number)(tni_emitter *s, int n);
};

// The value of instruction i as one expression of its compute type: LOAD (converted; with its guard
// as ?:), NUMBER, PLACE, RANDOM, MAP (wrapped), CAST, CHECK. CHECK calls
// m_check(m_long index, m_long size, m_int ins, FAIL), which gives the index to use; FAIL is the
// name `fail`, which the skeleton has in scope as the dialect's pointer to two m_long.
void tni_emit_value(tni_emitter *s, int i);
// A statement without its end: element = value, rounded to the buffer's dtype.
void tni_emit_store(tni_emitter *s, int i);
// acc folded with a, in the compute type of dt, by op (sum, prod, max, min): "o_sum_f(acc, a)".
void tni_emit_fold(tni_out *o, int op, tn_dtype dt, const char *acc, const char *a);
// What a fold of nothing is, exactly: fold(start, x) is x for every x, -0 and NaN included. Of sum
// it is -0.0, of max minus infinity. A constant expression of the compute type of dt.
const char *tni_fold_start(int op, tn_dtype dt);

// A conversion of an expression: what goes before it and after it.
typedef struct {
    char before[80], after[8];
} tni_cast_text;

// From the compute type of `from` to the storage type of `to`: f16 and bf16 as their bits.
tni_cast_text tni_text_to_storage(tn_dtype from, tn_dtype to);
// From the storage type to the compute type of dt.
tni_cast_text tni_text_from_storage(tn_dtype dt);
// Rounded or clipped to the dtype `to`, in its compute type.
tni_cast_text tni_text_cast(tn_dtype from, tn_dtype to);

// ---- programs ----------------------------------------------------------------------------------

enum { TNI_KERNEL_NAME = 32 };

typedef struct {
    const tni_kernel *kernel;
    const char       *name;  // of its function
    const void       *opts;  // of the skeleton: tile sizes and so on; may be NULL
} tni_emit_item;

// The skeleton of a dialect: writes one kernel (its functions; nothing they call).
typedef void tni_skeleton(tni_out *o, const tni_dialect *d, const tni_emit_item *item);

// Returns a program of n kernels: the shim, the rows of the prelude and the op functions that the
// kernels use, once each, and the kernels. no_double: the device has no f64, and no row with the
// word is taken. The caller frees the text; NULL if memory ran out.
char *tni_emit_program(tni_heap *h, const tni_dialect *d, tni_skeleton *skeleton, int n,
                       const tni_emit_item *item, bool no_double);

#endif
