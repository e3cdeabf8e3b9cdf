// The order of an epoch: a permutation by key that is computed place by place, without an array, so
// that a batch in the middle of an epoch of any size can be had at once.
#ifndef TNI_DATA_ORDER_H
#define TNI_DATA_ORDER_H

#include "data/draw.h"

// More rounds mix better and cost more for each item; four would do for large counts, eight also
// for small ones.
enum { TNI_ORDER_ROUNDS = 8 };

// A Feistel network over the smallest power of two that holds count, and at least 4096 so that few
// items are shuffled as well as many. Half the bits are changed by a hash of the other half, in
// turn; places that fall outside count are sent through again until they fall inside.
typedef struct {
    uint64_t key[TNI_ORDER_ROUNDS];
    uint64_t count;
    int      high, low;  // bits of the two halves
} tni_order;

tni_order tni_order_by(tni_draw keys, int64_t count);
// Which item stands at a place, both in 0 .. count-1.
int64_t tni_order_item(const tni_order *o, int64_t place);

#endif
