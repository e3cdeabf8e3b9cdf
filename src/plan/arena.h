// The arena: offsets for values that come and go, so that no two that are there at one step overlap.
#ifndef TNI_PLAN_ARENA_H
#define TNI_PLAN_ARENA_H

#include "base/heap.h"

#include <stdint.h>

// What is in use from step first to step last. bytes is a multiple of 64.
typedef struct {
    uint32_t first, last;
    int64_t  bytes, offset;
} tni_arena_span;

static const int64_t TNI_BYTES_LIMIT = INT64_MAX / 4;  // bytes that nobody has: sums stop there

// Finds the offsets of n spans, in the order of their first steps; the bytes that the arena has to
// have, -1 when memory is out.
int64_t tni_arena_place(tni_heap *h, size_t n, tni_arena_span *span);

#endif
