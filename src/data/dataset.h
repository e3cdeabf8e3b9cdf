// Datasets: a source of items, and the dataset that hands them out.
#ifndef TNI_DATA_DATASET_H
#define TNI_DATA_DATASET_H

#include "data/loader.h"
#include "data/order.h"

// A source of items. A reader's struct begins with it. Datasets that were split from one another
// share it, unchanged; the last of them frees it. get writes one item: field f, row-major, to
// dst[f]. It runs on the loader threads of all these datasets, perhaps at the same time, so it must
// be pure: no tn_ calls, no memory of the context. A nonzero result is a failure, which tn_next
// reports with the item's number.
typedef struct tni_item_source tni_item_source;
struct tni_item_source {
    int64_t            refs;  // set by tni_data_make
    int64_t            count;
    int                fields;
    tn_array           field[TN_MAX_FIELDS];  // dtype and shape of one item; data is ignored
    int64_t            classes;               // of field 1; 0: it is not a class
    const char *const *class_names;           // one for each class; NULL: they have none
    const char        *schema;                // JSON; NULL: there is none
    _Atomic int64_t    skipped;   // rows of a table that are not items; pictures that are none
    const int64_t     *row_of;    // of items; NULL: item i is row i
    bool               threaded;  // get must run on a loader's thread: it is the user's
    int                threads;   // that fill a batch together; 0: one
    bool skips;  // an item that fails is left out: the next one of the order comes instead
    int (*get)(const tni_item_source *s, int64_t item, void *const *dst);
    // Instead of get, if it is not NULL: it does what o says of resized crops and flips itself.
    int (*get_drawn)(const tni_item_source *s, int64_t item, const tn_augment_opts *o, tni_draw *r,
                     void *const *dst);
    const char *(*why)(const tni_item_source *s,
                       int64_t                item);   // it failed; NULL: nothing is known
    void (*enter)(tni_item_source *s);  // before a batch is asked for, by the owner; NULL: nothing
    void (*free)(tni_heap *h, tni_item_source *s);  // the struct too
};

// A dataset: a selection of a source's items, their order, and the program's position.
struct tn_data {
    tni_owned        owned;  // first
    tni_item_source *source;
    int64_t         *items;  // its items, by number in the source; NULL: all
    int64_t          count;
    bool             shuffled, drop_last;
    int64_t          rank, ranks;  // whose part of each batch it hands out; 0 of 1: all of it
    tn_cursor        at;           // the next batch to hand out
    tn_augment_opts  augment;
    tn_array         field
        [TN_MAX_FIELDS];  // the source's, but y has a number for each class if images are mixed
    float     *scratch;   // an image for each thread and a row for mixing; NULL: there is none
    tni_loader loader;
};

// A dataset of all items, shuffled by the context's seed. Takes the source over, also on failure:
// then it is freed, NULL is returned, and the error (its text begins with op, "idx") is reported.
tn_data *tni_data_make(tn_ctx *cx, const char *op, tni_item_source *s);

// Which of `count` items tn_data_split takes: those at the first places of a random order. Both
// sides keep the order of their items. take is 0 if one side would be empty.
typedef struct {
    tni_order order;
    int64_t   take;
} tni_data_split;

tni_data_split     tni_data_split_of(int64_t count, double fraction, uint64_t seed);
static inline bool tni_split_takes(const tni_data_split *s, int64_t i)
{
    return s->take > 0 && tni_order_item(&s->order, i) < s->take;
}

// Describes a field of one item.
tn_array tni_field(tn_dtype dt, int rank, const int64_t *size);

#endif
