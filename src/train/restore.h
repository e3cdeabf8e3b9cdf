// From a file into tensors that are in use: what loading weights and loading a checkpoint share.
// Everything that can fail happens before the first tensor changes.
#ifndef TNI_TRAIN_RESTORE_H
#define TNI_TRAIN_RESTORE_H

#include "nn/layer.h"

// Names that do not fit: how many, and the first few as text.
typedef struct {
    int64_t  count;
    tni_text first;
} tni_misfits;

void tni_misfit(tni_misfits *m, const char *name);
// Reports both lists, if they are not empty: names that the file lacks, and names in the file that
// were not asked for. remedy is appended to the message.
tn_status tni_names_fit(tn_ctx *cx, const char *op, const char *path, const tni_misfits *missing,
                        const tni_misfits *unknown, const char *remedy);

// Whether a tensor of the file has this shape; reports it by name, with both shapes.
bool tni_shape_fits(tn_ctx *cx, const char *op, const char *path, const tn_file_desc *file,
                    int rank, const int64_t *size);
// Whether a value can be put into t: not if it is a view of another tensor. Reports it by name.
bool tni_can_put(const char *op, const char *name, const tn_tensor *t);

// A tensor of a file as dt, computed, in memory of its own: the file may change afterwards. t is
// dropped, also on failure: NULL, reported by the op's name. NULL in, NULL out.
tn_tensor *tni_take_copy(const char *op, tn_tensor *t, tn_dtype dt);
// Makes a computed value, of t's dtype and shape, the value of t. Cannot fail. Handles, leaves and
// gradients stay what they are.
void tni_put_value(tn_tensor *t, const tn_tensor *value);

// prefix and name as one text; NULL, reported by the op's name, when memory is out.
char *tni_join_names(tn_ctx *cx, const char *op, const char *prefix, const char *name);
// Whether n pairs of pattern and name can rename: no NULLs, and no star in a name that its pattern
// does not have. Reports the pair.
bool tni_renames_ok(tn_ctx *cx, const char *op, int n, const char *const *pair);
// The name that the first fitting pair gives, or the name itself, as a new text; NULL, reported by
// the op's name, when memory is out.
char *tni_rename(tn_ctx *cx, const char *op, int n, const char *const *pair, const char *name);

#endif
