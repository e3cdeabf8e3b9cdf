// The arena: offsets for values that live for a part of the evaluation, so that no two overlap that
// are alive at the same step.
#ifndef TNI_PLAN_ARENA_H
#define TNI_PLAN_ARENA_H

#include "base/heap.h"

#include <stdbool.h>
#include <stdint.h>

// The bytes of a value that is alive from step first to step last, and the offset they get. bytes
// is a multiple of 64. A value whose parts are made at different steps (a concat that its sources
// are computed into) is a span with parts, which follow it: each is alive from its own first step
// on, so that what is needed before may be stored in its bytes. `within` is where a part begins in
// the whole, whose last step is its own too.
typedef struct {
    uint32_t first, last;
    int64_t  bytes, offset;
    int64_t  within;
    uint32_t parts;  // spans after it that are parts of it
    bool     part;   // it is one
} tni_arena_span;

static const int64_t TNI_BYTES_LIMIT =
    INT64_MAX / 4;  // more bytes than any device has: sums stop here instead of overflowing

// Finds the offsets of n spans, which but for parts are in the order of their first steps. Returns
// the bytes that the arena needs; -1 when memory is out.
int64_t tni_arena_place(tni_heap *h, size_t n, tni_arena_span *span);

#endif
