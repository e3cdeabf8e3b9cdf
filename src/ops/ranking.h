// Running folds of any function of two tensors, by doubling steps, which ranking.c and counting.c
// share.
#ifndef TNI_OPS_RANKING_H
#define TNI_OPS_RANKING_H

#include "ops/ops.h"

typedef tn_tensor *tni_join(tn_tensor *a, tn_tensor *b);

// The fold of all elements up to each one along an axis; with a key, in which equal ones are
// neighbours, of those of its key. join is associative.
tn_tensor *tni_running(tn_tensor *x, tn_tensor *key, int axis, tni_join *join);

// 0, 1, ... along an axis, of a rank that broadcasts with x.
tn_tensor *tni_places_along(tn_tensor *x, int axis);

#endif
