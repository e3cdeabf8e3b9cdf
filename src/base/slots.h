// A hash table of the rows of an array that grows: each slot is 0, or 1 + the number of a row,
// which is at the first free slot from its hash on. The array and its hashes are the caller's, who
// keeps at least half of the slots free, and enters all rows again after doubling.
#ifndef TNI_BASE_SLOTS_H
#define TNI_BASE_SLOTS_H

#include "base/heap.h"

// Enters a row.
static inline void tni_slots_put(uint32_t *slot, size_t slots, uint64_t hash, size_t row)
{
    size_t at = hash & (slots - 1);
    while (slot[at]) at = (at + 1) & (slots - 1);
    slot[at] = (uint32_t)row + 1;
}

// Replaces the slots by twice as many, which are free. False, with the old ones, when memory is
// out. Sizes are powers of two, so that a hash is cut by a mask.
static inline bool tni_slots_double(tni_heap *h, uint32_t **slot, size_t *slots)
{
    size_t    n    = *slots ? 2 * *slots : 64;
    uint32_t *more = tni_zalloc(h, n * sizeof *more);
    if (!more) return false;
    tni_free(h, *slot);
    *slot  = more;
    *slots = n;
    return true;
}

#endif
