// Datasets: a source of items, and the dataset that hands them out.
#ifndef TNI_DATA_DATASET_H
#define TNI_DATA_DATASET_H

#include "data/loader.h"
#include "data/order.h"

// Where items come from. A reader's struct begins with it and is shared, unchanged, by the datasets
// split from one another; the last of them frees it. get fills one item: dst[f] has room for field
// f, row-major. It runs on the loader threads of all these datasets, perhaps at once, so it must be
// pure: no tn_ calls, no context heap. Nonzero is a failure, which tn_next reports by the item.
typedef struct tni_item_source tni_item_source;
struct tni_item_source {
    int64_t  refs;  // set by tni_data_make
    int64_t  count;
    int      fields;
    tn_array field[TN_MAX_FIELDS];   // dtype and shape of one item's; data is not looked at
    int64_t  classes;                // of field 1, 0 where it is not a class
    const char *const *class_names;  // so many, NULL where they have none
    const char        *schema;       // JSON, NULL where there is none
    int64_t            skipped;      // rows of a table that are no item
    const int64_t     *row_of;       // of items; NULL: item i is row i
    bool               threaded;     // get must run on a loader's thread: it is the user's
    int (*get)(const tni_item_source *s, int64_t item, void *const *dst);
    void (*free)(tni_heap *h, tni_item_source *s);  // the struct too
};

// Items of a source, and where the program stands in them.
struct tn_data {
    tni_owned        owned;  // first
    tni_item_source *source;
    int64_t         *items;  // its items, by number in the source; NULL: all
    int64_t          count;
    bool             shuffled, drop_last;
    tn_cursor        at;  // the next batch to hand out
    tn_augment_opts  augment;
    float           *scratch;  // an image, for augmentation; NULL: there is none
    tni_loader       loader;
};

// A dataset of all items, shuffled by the context's seed. Takes the source over, also on failure:
// then it is freed, NULL is returned, and the error (its text begins with op, "idx") is reported.
tn_data *tni_data_make(tn_ctx *cx, const char *op, tni_item_source *s);

// Which of so many items tn_data_split takes: those at the first places of a random order, and all of
// them keep the order they had. take is 0 where one side would be empty.
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
