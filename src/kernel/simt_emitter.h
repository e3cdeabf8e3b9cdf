// The simt emitter: the state of one kernel while its CUDA or OpenCL text is written, and the
// functions that emit_simt.c and the simt_*.c files share. Nothing outside src/kernel includes
// this.
#ifndef TNI_KERNEL_SIMT_EMITTER_H
#define TNI_KERNEL_SIMT_EMITTER_H

#include "kernel/launch_words.h"
#include "kernel/simt.h"

// The elements of a full vector (TNI_VECTOR_BYTES) of a 16-bit dtype. Narrower elements are not
// packed further, since a thread's values would take too many registers.
enum { TNI_MAX_VECTOR = 8 };

// Column tails that are folded over threads together: they share barriers, and their loads are in
// flight together. More would take more registers and shared memory.
enum { TNI_TAILS_TOGETHER = 2 };

// Bytes of scratch for the partial results of a tail, of all parts.
int64_t tni_simt_tail_bytes(const tni_simt *m, const tni_ins *x, int64_t cols);

// Which part of the text is being written; it decides what a value is called and what guards a
// store.
typedef enum {
    TNI_AT_ROW,    // once for a row (ROW), or once for a thread (scalars of POINT and LANE)
    TNI_AT_LANES,  // LANE: once for each lane of the thread's vector, outside the loops over R
    TNI_AT_LOOP,   // in a loop over R, or in the body of POINT
    TNI_AT_FINISH  // where tails are finished
} tni_stage;

// One kernel while it is written. `emitter` is the first member: its callbacks cast back to this.
// Invariant: kept and fetched hold only what the text written so far has declared in the scope that
// is open, so that a branch of the text that is written twice restores `fetched` in between.
typedef struct {
    tni_emitter           emitter;
    tni_out              *o;
    const tni_kernel     *k;
    const tni_dialect    *d;
    const tni_simt_class *m;
    const char           *name;
    const char           *index;   // type of element indices: m_int or m_long
    const char           *uindex;  // its unsigned form, in which divisions are cheaper
    const char           *local;   // qualifier of what a pointer to shared memory points to
    tni_simt_layout       at;      // where each launch word is
    tni_set               scalar;  // POINT, LANE: values equal in all lanes, computed once a thread
    tni_set               line;    // POINT: values equal along a line, computed once a vector
    tni_set               kept;    // values in arrays k, from an earlier loop of the row
    tni_set               fetched;   // loads whose words x are in registers or shared memory
    tni_set               reread;    // loads that several loops read
    tni_set               hoisted;   // instructions whose row part was printed before the loop
    tni_set               costly;    // values worth keeping from loop to loop
    tni_set               loop_set;  // what the loop being written computes
    tni_stage             stage;
    char   word_letter;      // of the array a fetch fills: x, or z for a prefetch or a tile
    int    lane;             // axis of the lanes
    int    max_folds;        // most reductions that are folded over threads together
    bool   lockstep;         // LANE: all threads are at the same r, since barriers follow
    int    unroll;           // vectors a thread has in flight in the loop being written
    bool   all_present;      // every vector of the pass exists: no bounds test
    bool   interior;         // no vector of the pass crosses an end of its line
    bool   edge_vector;      // the pass has one vector, which crosses an end or may
    bool   no_column_match;  // the pass was tested not to hold a column that is looked for
    size_t red_text[2];      // where the declaration of `red` begins and ends in the text
    bool   row_released;     // the next row was asked for
    bool   uses_red;         // threads exchange words in `red`; else it is removed again
} tni_simt_emitter;

// ---- facts about instructions ------------------------------------------------------------------

static inline bool is_memory(const tni_ins *x)
{
    return x->code == TNI_I_LOAD || x->code == TNI_I_STORE;
}

static inline int count_bits(uint64_t x)
{
    int n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

// The dtype in memory of LOAD or STORE i.
static inline tn_dtype buffer_dtype(const tni_simt_emitter *c, int i)
{
    return (tn_dtype)c->k->buffer[c->k->access[c->k->ins[i].access].buffer].dtype;
}

// The compute type of value i, as text.
static inline const char *value_type(const tni_simt_emitter *c, int i)
{
    return tni_compute_type((tn_dtype)c->k->ins[i].dtype);
}

// The 32-bit words of one vector of LOAD or STORE i.
static inline int words_of(const tni_simt_emitter *c, int i)
{
    return tni_simt_vector_words(c->m, buffer_dtype(c, i));
}

static inline void begin_indent(tni_simt_emitter *c)
{
    tni_out_print(c->o, "%*s", 4 * c->o->depth, "");
}

// ---- names and addresses: simt_address.c -------------------------------------------------------

// The callbacks by which tni_emit_value and tni_emit_store ask for names and addresses.
tni_emitter tni_simt_callbacks(const tni_kernel *k, const tni_dialect *d, tni_out *o);
// Whether LOAD or STORE i moves whole vectors at this stage. A vector of one element is loaded as a
// vector, but stored as one only if it goes through a tile.
bool tni_simt_moves_vector(const tni_simt_emitter *c, int i);
// Whether value i is an array with one element for each lane of the thread: row values of LANE.
bool tni_simt_is_lane_array(const tni_simt_emitter *c, int i);
// The name of value i where it is read: v3, k3[j] or k3[q * 4 + j].
tni_text tni_simt_value_name(const tni_simt_emitter *c, int i);
// Launch word w in the type of indices: (m_int)a.w[3], or (m_int)w3.
tni_text tni_simt_word_name(const tni_simt_emitter *c, int w);
// The number of elements along the lane axis.
tni_text tni_simt_lanes_name(const tni_simt_emitter *c);
// Prints the address of an access in elements; `lane` names the lane coordinate.
void tni_simt_put_place(tni_simt_emitter *c, int access, const char *lane);
// Prints what the index of LOAD i adds to its address; nothing if it has none.
void tni_simt_put_index(tni_simt_emitter *c, int i);
// Prints the coordinates of axes from .. to-1, out of a number that counts them in row-major order.
void tni_simt_put_coordinates(tni_simt_emitter *c, int from, int to, const char *number);
// Prints the base of an access in a line: its offset and the terms of P, without the lane's; and
// the bases of all accesses that the main stage uses, except those that go through tiles.
void tni_simt_put_base(tni_simt_emitter *c, int access);
void tni_simt_put_bases(tni_simt_emitter *c);
// Prints how many elements the first (aligned) vector of a line begins before the line.
void tni_simt_put_shift(tni_simt_emitter *c, bool declared);
// Where the words of vector q begin in the array of a load: "q * 4 + ".
tni_text tni_simt_word_base(const tni_simt_emitter *c, int i);

// ---- moving vectors: simt_vector.c -------------------------------------------------------------

// Opens the branch for a vector that has all its elements in the line.
void tni_simt_put_edge_test(tni_simt_emitter *c);
// Prints the fetch of the words of LOAD i at lane coordinate c.
void tni_simt_fetch(tni_simt_emitter *c, int i);
// Prints the store of the vector y of STORE i at lane coordinate c.
void tni_simt_put_vector(tni_simt_emitter *c, int i);
// Prints the copy of vector i of LOAD i between its words and shared memory; out: to shared memory.
void tni_simt_put_stash(tni_simt_emitter *c, int i, bool out);
// Whether shared memory holds the elements of LOAD i from loop to loop.
bool tni_simt_stashed(const tni_simt_emitter *c, int i);

// ---- reductions over threads, and the finish stage: simt_reduce.c ------------------------------

// Prints a line that folds `other` into the accumulator `acc`, by the op of REDUCE i.
void tni_simt_fold_line(tni_simt_emitter *c, int i, const char *before, const char *acc,
                        const char *other);
// Folds the variables named `letter` and an instruction's number, for the instructions of a set,
// over `team` neighbouring threads. All of them have the result afterwards.
void tni_simt_fold_team(tni_simt_emitter *c, const tni_set *set, char letter, int team);
// LANE: folds the accumulators of the lanes over the threads that share their elements of R.
void tni_simt_fold_lanes(tni_simt_emitter *c, int i);
// ROW: folds the accumulator of a column or of a row tail over the teams of a group, into the
// first's.
void tni_simt_fold_rows(tni_simt_emitter *c, int i, const char *acc);
// Declares s, the partial results of tail i that belong to part `part`; and those of all tails, of
// part 0.
void tni_simt_declare_part(tni_simt_emitter *c, int i, const char *part);
void tni_simt_declare_parts(tni_simt_emitter *c);
// Finishes what is one value for the kernel, by all threads of a group; `mine` says who stores.
void tni_simt_finish_once(tni_simt_emitter *c, int threads, const char *mine);
// Prints the finish stage at the end of the main kernel, run by the last group to get there.
void tni_simt_finish_last(tni_simt_emitter *c);
// Finishes finish_cols columns from `first` on, each by threads / finish_cols threads.
void tni_simt_finish_columns(tni_simt_emitter *c, int threads, const char *first);
// The words of `red` for that.
int tni_simt_join_words(const tni_simt_emitter *c, int threads);
// Folds the elements of array LETTERi over the threads of a warp that are multiples of `each`
// apart.
void tni_simt_fold_vector(tni_simt_emitter *c, int i, char letter, int each, int width);
// Whether anything is finished for each column.
bool tni_simt_finishes_columns(const tni_simt_emitter *c);

// ---- accumulators and partial results of tails: simt_tails.c -----------------------------------

// Declares for each tail where the partial results of part `part` go, and its accumulators.
void tni_simt_declare_tails(tni_simt_emitter *c, const char *part);
// Prints the partial results of a group after its last row: of POINT and LANE, and of ROW.
void tni_simt_put_group_partials(tni_simt_emitter *c);
void tni_simt_put_row_partials(tni_simt_emitter *c);
// Prints the partial results of one row, where rows are taken by tickets.
void tni_simt_put_ticket_partials(tni_simt_emitter *c);
// Whether the columns of several teams are joined in `red`, all columns of some tails at once; and
// the words of `red` for that, 0 if not.
bool tni_simt_joins_teams(const tni_simt_emitter *c);
int  tni_simt_team_words(const tni_simt_emitter *c);

// ---- the frame of a kernel: simt_frame.c -------------------------------------------------------

// Prints the struct NAME_args that a CUDA kernel takes.
void tni_simt_put_args(tni_simt_emitter *c);
// Opens kernel NAME plus suffix, for groups of `threads` threads, with `red` words to exchange;
// closes it.
void tni_simt_open_kernel(tni_simt_emitter *c, const char *suffix, int threads, int red);
void tni_simt_close_kernel(tni_simt_emitter *c);
// The words of `red` for folds over a group of threads; and those that the main kernel needs in
// all.
int tni_simt_fold_words(const tni_simt_emitter *c, int group);
int tni_simt_red_words(const tni_simt_emitter *c);
// The most reductions that are folded over threads together.
int tni_simt_count_folds(const tni_kernel *k);

// ---- rows that bulk copies bring: simt_bulk.c --------------------------------------------------

// The number of the group, or of its cluster where groups share rows.
tni_text tni_simt_group_name(const tni_simt_emitter *c);
// How many vectors a row has; and the lines that declare n, the number of this group's, from `lo`
// on.
tni_text tni_simt_row_vectors(const tni_simt_emitter *c);
void     tni_simt_put_piece(tni_simt_emitter *c);
// Prints what comes before the first row, the loop over rows up to a row's facts, and what follows
// once no thread needs a row any more.
void tni_simt_open_bulk(tni_simt_emitter *c);
void tni_simt_open_bulk_row(tni_simt_emitter *c);
void tni_simt_release_row(tni_simt_emitter *c);
// Whether LOAD i comes by bulk copies and is then held in registers; and prints how the next row is
// asked for, if all such loads of this one are in registers: behind the fetches of a loop or,
// `barrier`, where all threads of the group came together.
bool tni_simt_ahead(const tni_simt_emitter *c, int i);
void tni_simt_ask_ahead(tni_simt_emitter *c, bool barrier);
// How many vectors of the row are between two of a thread.
int tni_simt_apart(const tni_simt_emitter *c);
// Folds the results of the groups of a cluster into each other.
void tni_simt_fold_cluster(tni_simt_emitter *c, const tni_set *set);

// ---- transposed operands: simt_tile.c ----------------------------------------------------------

// Chooses tiles for a POINT kernel that has transposed accesses; else returns false and leaves m
// alone.
bool tni_simt_choose_tile(const tni_launch *l, const tni_simt_limits *limits, tni_simt *m);
// Whether LOAD or STORE i goes through a tile.
bool tni_simt_tiled(const tni_simt_emitter *c, int i);
// Declares the tiles, finds the group's corner and fetches the loads that go through tiles; then
// puts what was fetched into them and waits for all threads.
void tni_simt_open_tile(tni_simt_emitter *c, const tni_set *set);
void tni_simt_fill_tile(tni_simt_emitter *c, const tni_set *set);
// Opens the loop over the vectors of a thread and the block of one vector: along the lane axis, or
// crossed, along the other axis of the tile.
void tni_simt_open_slot(tni_simt_emitter *c, bool crossed);
// Reads the words of the loads from their tiles; writes the elements of STORE i to its tile; and
// moves those of all stores on to memory.
void tni_simt_take_tile(tni_simt_emitter *c, const tni_set *set);
void tni_simt_put_tile(tni_simt_emitter *c, int i);
void tni_simt_drain_tile(tni_simt_emitter *c, const tni_set *set);

// ---- reductions two elements at a time: simt_pair.c --------------------------------------------

// The load whose words REDUCE i folds two elements at a time; -1 if it does not. Only vectors that
// have all elements in their line are folded in pairs.
int  tni_simt_pair_of(const tni_simt_emitter *c, int i);
void tni_simt_declare_pair(tni_simt_emitter *c, int i);
void tni_simt_fold_pairs(tni_simt_emitter *c, int i);
void tni_simt_join_pair(tni_simt_emitter *c, int i);

// ---- prefetch of the next row: simt_prefetch.c -------------------------------------------------

// Printed before the first row, at the beginning of each row, and at its end.
void tni_simt_open_prefetch(tni_simt_emitter *c);
// Whether a load of one value for the row is fetched ahead, into x.
bool tni_simt_prefetches_value(const tni_simt_emitter *c, int i);
void tni_simt_prefetch_row(tni_simt_emitter *c);
void tni_simt_take_prefetched(tni_simt_emitter *c);

// ---- instructions: simt_instruction.c ----------------------------------------------------------

// Prints the line or lines of instruction i at the current stage.
void tni_simt_put_ins(tni_simt_emitter *c, int i);
// Prints what instruction i of a loop needs of the row, once, before the loop.
void tni_simt_put_hoisted(tni_simt_emitter *c, int i);
// Whether MAP i compares the column with a value of the row, as a one-hot target does.
bool tni_simt_finds_column(const tni_simt_emitter *c, int i);

// ---- rows and vectors: emit_simt.c -------------------------------------------------------------

// The number of row `it` of a team's rows.
tni_text tni_simt_row_name(const tni_simt_emitter *c, const char *it);
// Prints the facts about `row`: whether it exists, its coordinates, bases and number of vectors.
// own_block: in a block of its own, for a row that is fetched ahead, not for the current row.
void tni_simt_put_row_line(tni_simt_emitter *c, bool own_block);
// Opens the loop over the vectors q of a thread, and the block of one vector.
void tni_simt_open_vector(tni_simt_emitter *c);
void tni_simt_close_vector(tni_simt_emitter *c);

#endif
