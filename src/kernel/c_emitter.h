// The C emitter: the state of one kernel while its C text is written, the functions that emit_c.c
// and the c_*.c files share, and facts about instructions. Nothing outside src/kernel includes
// this. Names in the text, for instruction or access i:
//
//   v  a value          p  pointer of an access at the block's first element
//   t  tile for a fold  a  accumulator in the value's own type   q  total   e  partial results
//   h  a row kept for later loops   w  a strip kept for later blocks   r, f  random words
//   c  coordinates      s  strides  o  places   d  distances in lanes
//   x  a value of all lanes, y  a map of it that a strip function computes for all of them
//   z  what is stored at a stride, of all lanes; of kernels of windows, what is loaded too
//   gp, ga, gt, gh, gw, gx  what the vectors in flight write to those
//   u  where a store writes that may go by strips: to memory, or to k, a strip that is copied there
//
// A block is the text of one row point or of the inside of one loop over R: first what does not
// vary along the lanes, then a lane loop over at most TNI_STRIP neighbours.
#ifndef TNI_KERNEL_C_EMITTER_H
#define TNI_KERNEL_C_EMITTER_H

#include "kernel/emit_c.h"

// One kernel while it is written. Invariant: eval is the block being written, and `tiled` is empty
// between blocks.
typedef struct {
    tni_emitter       s;
    tni_out          *o;
    const tni_kernel *k;
    uint8_t           axes[TNI_MAX_INS];  // along which each value varies, as bits
    int               lane;    // the axis of the lanes; -1: no axis, everything is one by one
    bool              finish;  // the finish stage is being written
    bool              inside;  // within a lane loop
    tni_set           kept;    // values of a row's elements that are kept in rows of scratch
    tni_set           strip;   // row values kept in a strip, where the lane is in P
    tni_set           eval;    // what the block computes
    tni_set strip_maps;  // maps that one call computes for a strip, where they vary along the lanes
    tni_set tiled;       // values of the block that an earlier lane loop left in tiles
    tni_set guards;      // of the block's loads, if each of them holds for a range of lanes
    tni_set guard_values;  // what guards are computed from along the lanes, and they
    bool    holds;         // the loop being written is over lanes for which all guards hold
    int     vectors;       // that a lane loop has in flight, where it can; 0: as the rule says
    tni_set ahead;         // loads whose elements of the next row the block fetches into cache
    bool    fetches;       // whether any is
    bool    block;         // the loop being written is over the lanes of a block of such vectors
    bool    streams;       // stores may go by strips, if the launch says so
    bool    piece;         // the loop being written is over a piece of the lanes, for such stores
    bool windows;  // a turn is several rows of the lanes: lane j is number j % line of row j / line
} tni_c_emitter;

// ---- c_blocks.c: what is computed in which block, and what is kept between them ----------------

// Begins a kernel: finds its facts and what it keeps.
void tni_c_open(tni_c_emitter *w, tni_out *o, const tni_dialect *d, const tni_kernel *k);
// What the block at row point q computes, without what is computed once for all rows.
tni_set tni_c_row_set(const tni_c_emitter *w, int q);
// What loop q computes, given what earlier ones left; adds to that what this one leaves.
tni_set tni_c_loop_set(const tni_c_emitter *w, int q, tni_set *have);
// Makes a set the current block: adds what is loaded again, removes what nothing in it reads.
void tni_c_begin_block(tni_c_emitter *w, tni_set s);

// ---- c_lane_loop.c: the text of a block --------------------------------------------------------

// Sets the callbacks of w->s.
void tni_c_callbacks(tni_c_emitter *w);
// Prints the values of the block that do not vary along the lanes.
void tni_c_put_singles(tni_c_emitter *w);
// Prints the lane loop and what goes around it, after the values that do not vary along it.
void tni_c_put_block(tni_c_emitter *w);
// Whether the block has a lane loop, or folds loads in memory.
bool tni_c_has_lanes(const tni_c_emitter *w);
// Prints `into = fold(into, what)` for REDUCE i, in the type of totals (wide) or its own.
void tni_c_put_fold(tni_c_emitter *w, int i, const char *into, const char *what, bool wide);
// Prints the index of an access at the block's first element.
void tni_c_put_place(tni_c_emitter *w, int access);
// Prints the number of elements of R.
void tni_c_put_cols(tni_c_emitter *w);
// The index in `arg` at which the arguments of an access begin.
int tni_c_arg_index(const tni_c_emitter *w, int access);

// Prints one lane loop over the part of the block that varies along the lanes. Values of `tiles`
// are copied to tiles x, those in w->tiled are read from there.
void tni_c_put_lane_loop(tni_c_emitter *w, const tni_set *tiles);

// Whether all that reads place i in the lane loop compares it: the place itself is then not needed.
bool tni_c_is_only_compared(const tni_c_emitter *w, int i);

// ---- c_vectors.c: several vectors in flight ----------------------------------------------------

// Returns how many vectors the lane loop of the block has in flight; 1 if the compiler decides.
int tni_c_vectors(const tni_c_emitter *w);
// Prints what is before the lanes of a block of vectors, and what is after them. b is the first
// lane that no block had then.
void tni_c_begin_vectors(tni_c_emitter *w, int vectors, const char *from, const char *to,
                         const tni_set *tiles);
void tni_c_end_vectors(tni_c_emitter *w, const tni_set *tiles);
// Opens the loops that fetch ahead of the lanes *from .. *to-1 of a loop of one vector, which
// become those of a piece. False if nothing is fetched.
bool tni_c_begin_fetches(tni_c_emitter *w, const char **from, const char **to);
void tni_c_end_fetches(tni_c_emitter *w);
// Makes the loads of the next row that are fetched while loop q over R runs those of the block.
void tni_c_begin_ahead(tni_c_emitter *w, int q);
// Writes where lane j writes element `index` of NAME i to.
void tni_c_target(const tni_c_emitter *w, char name, int i, const char *index, char text[40]);

// ---- c_streams.c: stores past the caches -------------------------------------------------------

// Decides whether the kernel has such stores.
void tni_c_open_streams(tni_c_emitter *w);
// Opens the loop over pieces of the lanes *from .. *to-1, if the block has such stores, and closes
// it; *from and *to become the names of where a piece begins and ends.
void tni_c_begin_piece(tni_c_emitter *w, const char **from, const char **to);
void tni_c_end_piece(tni_c_emitter *w);
// Whether store i writes to a piece: to u[j - from] instead of p[j].
bool tni_c_in_piece(const tni_c_emitter *w, int i);
// Declares whether the launch asks for them; and lets other cores see what was written, at the end
// of the function.
void tni_c_begin_streams(const tni_c_emitter *w);
void tni_c_end_streams(const tni_c_emitter *w);

// ---- c_strip_maps.c: maps that a function computes for all lanes at once -----------------------

// Chooses the strip maps of a kernel.
void tni_c_choose_strip_maps(tni_c_emitter *w);
// Prints the strip maps of the block, each after a lane loop for its operand. Returns what is left
// of the block for the last lane loop: all of it if the block has none.
tni_set tni_c_put_strip_maps(tni_c_emitter *w);

// ---- facts -------------------------------------------------------------------------------------

static inline const tni_ins *ins_at(const tni_c_emitter *w, int i)
{
    return &w->k->ins[i];
}

static inline bool on_lane(const tni_c_emitter *w, int i)
{
    return w->lane >= 0 && w->axes[i] >> w->lane & 1;
}

// A tail with a partial result for each r.
static inline bool is_wide_tail(const tni_ins *x)
{
    return tni_is_tail(x) && x->per & TNI_PER_COL;
}

// A REDUCE that folds lane by lane, over rows or elements; the others fold blocks of lanes.
static inline bool by_lane(const tni_c_emitter *w, const tni_ins *x)
{
    return w->k->lane_in_r ? is_wide_tail(x) : !tni_is_tail(x);
}

static inline const char *c_type_of(const tni_c_emitter *w, int i)
{
    return tni_compute_type((tn_dtype)ins_at(w, i)->dtype);
}

static inline const char *wide_of(const tni_c_emitter *w, int i)
{
    return tni_total_type((tn_dtype)ins_at(w, i)->dtype);
}

static inline tn_dtype wide_dtype(const tni_ins *x)
{
    return tni_total_dtype((tn_dtype)x->dtype);
}

static inline int lane_class(const tni_c_emitter *w, const tni_ins *x)
{
    return w->lane < 0 ? TNI_STRIDE_0 : w->k->access[x->access].stride[w->lane];
}

// A load without index and guard, from memory that the kernel does not write.
static inline bool is_plain_load(const tni_c_emitter *w, const tni_ins *x)
{
    return x->code == TNI_I_LOAD && x->a < 0 && x->b < 0 &&
           !w->k->buffer[w->k->access[x->access].buffer].written;
}

// Whether the block folds the operand of REDUCE i directly in memory, without a tile.
static inline bool folds_in_place(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i), *a;
    if (x->code != TNI_I_REDUCE || w->finish) return false;
    a = ins_at(w, x->a);
    if (!is_plain_load(w, a) || lane_class(w, a) != TNI_STRIDE_1) return false;
    if (by_lane(w, x)) return false;
    tn_dtype kept = (tn_dtype)w->k->buffer[w->k->access[a->access].buffer].dtype;
    return kept == (tn_dtype)x->dtype && tni_is_held_as_is(kept);
}

// Whether the operand of REDUCE i is in a row that is kept, so that no tile is needed.
static inline bool folds_row(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    return !by_lane(w, x) && tni_set_has(&w->kept, x->a) &&
           tni_compute_dtype((tn_dtype)x->dtype) ==
               tni_compute_dtype((tn_dtype)ins_at(w, x->a)->dtype);
}

// Whether random numbers are made for all lanes at once: neighbours share a block of the generator.
static inline bool is_filled(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (x->code != TNI_I_RANDOM || x->dtype == TN_F64 || !on_lane(w, i)) return false;
    return ins_at(w, x->a)->code == TNI_I_PLACE && lane_class(w, ins_at(w, x->a)) == TNI_STRIDE_1;
}

// Whether a lane loop computes value i from its operands, and does not have it from a tile.
static inline bool is_from_operands(const tni_c_emitter *w, int i)
{
    return !tni_set_has(&w->tiled, i) && !tni_set_has(&w->strip_maps, i) && !is_filled(w, i);
}

static inline bool reads_value(const tni_ins *x, int i)
{
    return x->a == i || x->b == i || x->c == i;
}

// What the lane loop computes or does, of the block's instructions.
static inline bool in_lanes(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (!tni_set_has(&w->eval, i) || folds_in_place(w, i)) return false;
    if (x->code == TNI_I_REDUCE && !w->finish) {
        if (w->lane < 0) return false;
        if (w->k->lane_in_r) return !tni_is_tail(x) || is_wide_tail(x);
        return tni_is_tail(x) || on_lane(w, i);
    }
    return on_lane(w, i);
}

// Whether STORE i is one of several at strides along the lanes, the gradients of windows: these
// would keep the loop from becoming vectors, and are made from tiles after it. So is every store of
// several rows.
static inline bool is_staged(const tni_c_emitter *w, int i)
{
    int n = 0;
    if (w->finish || ins_at(w, i)->code != TNI_I_STORE) return false;
    if (w->windows) return true;
    for (int k = 0; k < w->k->nins; k++)
        n += ins_at(w, k)->code == TNI_I_STORE && lane_class(w, ins_at(w, k)) == TNI_STRIDE_N;
    return n > 1 && lane_class(w, ins_at(w, i)) == TNI_STRIDE_N;
}

static inline bool is_launch_value(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    return !w->axes[i] && !x->phase && x->code != TNI_I_STORE && x->code != TNI_I_REDUCE;
}

static inline bool is_empty(const tni_set *s)
{
    for (size_t i = 0; i < sizeof s->bit / sizeof *s->bit; i++)
        if (s->bit[i]) return false;
    return true;
}

static inline void join_set(tni_set *s, const tni_set *more)
{
    for (size_t i = 0; i < sizeof s->bit / sizeof *s->bit; i++) s->bit[i] |= more->bit[i];
}

#endif
