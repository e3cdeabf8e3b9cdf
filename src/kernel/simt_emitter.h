// A page of the simt skeletons: a kernel being written, and what its writers share.
#ifndef TNI_KERNEL_SIMT_EMITTER_H
#define TNI_KERNEL_SIMT_EMITTER_H

#include "kernel/simt.h"

// Which part of the text is being written: a point of a row, the same for each lane, a loop over R (or
// all of POINT), the finish.
typedef enum { TNI_AT_ROW, TNI_AT_LANES, TNI_AT_LOOP, TNI_AT_FINISH } tni_stage;

// A kernel being written. `emitter` comes first: its callbacks get the whole by a cast.
typedef struct {
    tni_emitter           emitter;
    tni_out              *o;
    const tni_kernel     *k;
    const tni_dialect    *d;
    const tni_simt_class *m;
    const char           *name;
    const char           *index;   // type of places
    const char           *uindex;  // its unsigned form, for divisions
    const char           *local;   // before the type of what a pointer to shared memory points to
    tni_simt_layout       at;
    tni_set               scalar;   // forms of lanes: values that are the same in all of them
    tni_set               kept;     // values in arrays from loop to loop
    tni_set               fetched;  // loads whose words are held
    tni_set               reread;   // loads that several loops read
    tni_set               hoisted;  // what was found once for a row
    tni_set               costly;   // values worth keeping
    tni_set               work;     // what the loop at hand computes
    tni_stage             stage;
    char                  letter;    // of the words that are fetched: x, or z of the next row
    int                   lane;      // axis
    int                   folds;     // most reductions of one loop
    bool                  together;  // LANE: all threads are at the same r, for barriers
    int                   unroll;    // vectors in hand of the loop being written
    bool                  sure;      // all vectors of the pass at hand are there
    bool                  whole;     // the vectors of the pass at hand lie in their line
    bool                  single;    // the pass at hand has one vector, which may not
    bool                  missed;    // no column that finds_column asks for is in the pass at hand
    size_t red[2];  // from where to where the text of the kernel at hand declares red
    bool   shares;  // threads of the kernel at hand leave words in red
} tni_simt_emitter;

static inline bool is_tail(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && x->over_p;
}

static inline bool is_fold(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && !x->over_p;
}

static inline tn_dtype buffer_dtype(const tni_simt_emitter *c, int i)
{
    return (tn_dtype)c->k->buffer[c->k->access[c->k->ins[i].access].buffer].dtype;
}

static inline const char *type_of(const tni_simt_emitter *c, int i)
{
    return tni_compute_type((tn_dtype)c->k->ins[i].dtype);
}

static inline int words_of(const tni_simt_emitter *c, int i)
{
    return tni_simt_vector_words(c->m, buffer_dtype(c, i));
}

static inline void begin_indent(tni_simt_emitter *c)
{
    tni_out_print(c->o, "%*s", 4 * c->o->depth, "");
}

// ---- names and places: simt_address.c ----------------------------------------------------------

// What the text of an instruction asks the skeleton for.
tni_emitter tni_simt_callbacks(const tni_kernel *k, const tni_dialect *d, tni_out *o);
// Whether LOAD or STORE i moves vectors here. A vector of one element is loaded so, but stored only
// where it goes through a tile.
bool tni_simt_moves(const tni_simt_emitter *c, int i);
// Rows of LANE have their values in arrays, one for each lane.
bool     tni_simt_in_lanes(const tni_simt_emitter *c, int i);
tni_text tni_simt_value_name(const tni_simt_emitter *c, int i);
tni_text tni_simt_word_name(const tni_simt_emitter *c, int w);
// The number of elements along the lane axis.
tni_text tni_simt_lanes_name(const tni_simt_emitter *c);
// The place of an access; `lane` names the lane coordinate.
void tni_simt_put_place(tni_simt_emitter *c, int access, const char *lane);
void tni_simt_put_index(tni_simt_emitter *c, int i);
// Coordinates of axes from .. to-1 out of a number that counts them in row-major order.
void tni_simt_put_coordinates(tni_simt_emitter *c, int from, int to, const char *number);
// The base of an access in a line: offset and the parts of P, without the lane; and those of all
// accesses that the main stage uses, except through tiles.
void tni_simt_put_base(tni_simt_emitter *c, int access);
void tni_simt_put_bases(tni_simt_emitter *c);
// How far the first vector of a line begins before the line.
void tni_simt_put_shift(tni_simt_emitter *c, bool declared);
// Where the words of the vector in hand begin in the array of a load.
tni_text tni_simt_word_base(const tni_simt_emitter *c, int i);

// ---- moving vectors: simt_vector.c -------------------------------------------------------------

void tni_simt_put_edge_test(tni_simt_emitter *c);
// The words of LOAD i at lane coordinate c.
void tni_simt_fetch(tni_simt_emitter *c, int i);
// The vector of STORE i at lane coordinate c.
void tni_simt_put_vector(tni_simt_emitter *c, int i);
// The vector i of LOAD i in shared memory, to or from its words.
void tni_simt_put_stash(tni_simt_emitter *c, int i, bool out);
bool tni_simt_stashed(const tni_simt_emitter *c, int i);

// ---- folding over threads, and the finish: simt_reduce.c ---------------------------------------

// A line that folds `other` into an accumulator, by the op of REDUCE i.
void tni_simt_fold_line(tni_simt_emitter *c, int i, const char *before, const char *acc,
                        const char *other);
// Folds the variables letter and number of the instructions in set over `team` neighbouring threads.
void tni_simt_fold_team(tni_simt_emitter *c, const tni_set *set, char letter, int team);
// Folds the accumulators of lanes over the threads that share their R.
void tni_simt_fold_lanes(tni_simt_emitter *c, int i);
// Folds an accumulator of a column or row over the teams of a group, into that of the first.
void tni_simt_fold_rows(tni_simt_emitter *c, int i, const char *acc);
// Where the partials of tail i are, of a part.
void tni_simt_declare_part(tni_simt_emitter *c, int i, const char *part);
void tni_simt_declare_parts(tni_simt_emitter *c);
// Everything that is one value, by all threads of a group.
void tni_simt_finish_once(tni_simt_emitter *c, int threads, const char *mine);
// The last group to get here finishes.
void tni_simt_finish_last(tni_simt_emitter *c);
// As many columns as are finished at once, from `first` on, each by as many threads as there are.
void tni_simt_finish_columns(tni_simt_emitter *c, int threads, const char *first);
// Whether there is something to finish for each column.
bool tni_simt_finishes_columns(const tni_simt_emitter *c);

// ---- rows that bulk copies bring: simt_bulk.c --------------------------------------------------

// The number of a group, or of a cluster where groups share rows.
tni_text tni_simt_group_name(const tni_simt_emitter *c);
// How many vectors a row has; and a line for n, those of them that are this group's, from `lo` on.
tni_text tni_simt_row_vectors(const tni_simt_emitter *c);
void     tni_simt_put_piece(tni_simt_emitter *c);
// Before the first row; and when nobody needs a row any more.
void tni_simt_open_bulk(tni_simt_emitter *c);
void tni_simt_release_row(tni_simt_emitter *c);
// What a group folded, over the groups of its cluster.
void tni_simt_fold_cluster(tni_simt_emitter *c, const tni_set *set);

// ---- transposed operands: simt_tile.c ----------------------------------------------------------

// Takes tiles for a POINT kernel where its accesses ask for them; else false, and m is as it was.
bool tni_simt_choose_tile(const tni_launch *l, const tni_simt_limits *limits, tni_simt *m);
// Whether LOAD or STORE i goes through a tile.
bool tni_simt_tiled(const tni_simt_emitter *c, int i);
// Where the group's tile is, and the loads that go through it; they are put there, and all wait.
void tni_simt_open_tile(tni_simt_emitter *c, const tni_set *set);
void tni_simt_fill_tile(tni_simt_emitter *c, const tni_set *set);
// Begins the loop over the vectors a thread has in hand, and the block for one of them: along the
// lane, or crossed, along the other axis.
void tni_simt_open_slot(tni_simt_emitter *c, bool crossed);
// The words of loads from the tile; the elements of STORE i to it; and those on to memory.
void tni_simt_take_tile(tni_simt_emitter *c, const tni_set *set);
void tni_simt_put_tile(tni_simt_emitter *c, int i);
void tni_simt_drain_tile(tni_simt_emitter *c, const tni_set *set);

// ---- folds of pairs: simt_pair.c ---------------------------------------------------------------

// The load whose words REDUCE i folds two elements at a time, -1 if there is none. Only vectors that
// lie in their line are folded so.
int  tni_simt_pair_of(const tni_simt_emitter *c, int i);
void tni_simt_declare_pair(tni_simt_emitter *c, int i);
void tni_simt_fold_pairs(tni_simt_emitter *c, int i);
void tni_simt_join_pair(tni_simt_emitter *c, int i);

// ---- loads of the next row: simt_prefetch.c ----------------------------------------------------

// Before the first row; at the beginning of each; at its end.
void tni_simt_open_next(tni_simt_emitter *c);
void tni_simt_fetch_next(tni_simt_emitter *c);
void tni_simt_take_next(tni_simt_emitter *c);

// ---- instructions: simt_instruction.c ------------------------------------------------------------

void tni_simt_put_ins(tni_simt_emitter *c, int i);
// What instruction i of a loop needs of the row, once, before the loop.
void tni_simt_put_hoisted(tni_simt_emitter *c, int i);
// Whether MAP i asks if a column of the lane axis is the one that a value of the row names.
bool tni_simt_finds_column(const tni_simt_emitter *c, int i);

// ---- rows and vectors: emit_simt.c --------------------------------------------------------------

// The number of row `it` of those that a team has, and lines that say what there is to know of `row`,
// apart: in a block of its own, not for the row at hand.
tni_text tni_simt_row_name(const tni_simt_emitter *c, const char *it);
void     tni_simt_put_row_line(tni_simt_emitter *c, bool apart);
// Begins the loop over the vectors q a thread has in hand, and the block for one of them.
void tni_simt_open_vector(tni_simt_emitter *c);
void tni_simt_close_vector(tni_simt_emitter *c);

#endif
