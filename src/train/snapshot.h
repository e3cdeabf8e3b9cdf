// The training state as a list of named pieces: what a checkpoint writes and puts back.
#ifndef TNI_TRAIN_SNAPSHOT_H
#define TNI_TRAIN_SNAPSHOT_H

#include "train/numbers.h"

typedef enum {
    TNI_PIECE_VALUE,     // of a parameter or buffer
    TNI_PIECE_STATE,     // what an update rule remembers of a parameter, if anything
    TNI_PIECE_GRADIENT,  // of an optimizer's parameter, if it has one
    TNI_PIECE_SCALING,   // what loss scaling keeps, if an optimizer does it
    TNI_PIECE_NUMBERS    // host memory
} tni_piece_kind;

// One tensor of the file. Numbers are read into the snapshot, so that reading them changes nothing
// else.
typedef struct {
    tni_piece_kind kind;
    char          *name;
    tn_tensor     *t;    // the tensor itself, or the parameter that a state or gradient belongs to
    tn_optim      *opt;  // of a state or gradient: its optimizer, and the parameter's slot in it
    tni_trained   *slot;
    int            state;  // which state of the slot
    tn_dtype       dtype;
    bool           unused;  // of a state or scaling: the optimizer has none, whatever the file has
    int64_t        count;   // of numbers; data NULL: not asked for
    int64_t        least;   // how many of them a file has at least; 0: all
    void          *data;
    int            from;    // loading: its index in the file, -1 where that has none
    bool           sliced;  // loading: it is in slices, of which `from` is one
    tn_tensor     *value;   // to be written or to be put; NULL: none
} tni_piece;

// The pieces of c, in the order of the file, and copies of all numbers. Values live in the scope
// that is open while they are taken or read.
typedef struct {
    tn_ctx              *cx;
    const char          *op, *path;
    const tn_checkpoint *c;
    tni_piece           *piece;
    size_t               pieces, cap;
    tni_optim_numbers    opt[TN_MAX_CHECKPOINT];
    int64_t              data[TN_MAX_CHECKPOINT][4];  // seed, epoch, index of the cursor; items
    void                *user;
    int64_t              step;
    uint64_t             seed, counter;  // of the context's random numbers
    bool                 sharded;        // saving: each rank writes a part
    uint64_t             sum;            // loading: the checksum of the file
    tni_text             marker;         // its name for the tensor that stands for this rank's file
} tni_snapshot;

// Lists the pieces and copies the numbers. False, reported, on failure; tni_snapshot_close either
// way.
bool tni_snapshot_open(tni_snapshot *s);
void tni_snapshot_close(tni_snapshot *s);
// Sets the value of every piece from the training state.
bool tni_snapshot_take(tni_snapshot *s);
// Returns whether the numbers, as read from a file, fit the objects; reports the first that does
// not.
bool tni_snapshot_fits(const tni_snapshot *s);
// Puts the numbers and all values into the training state: all or nothing. False, reported, on
// failure.
bool tni_snapshot_put(tni_snapshot *s);

#endif
