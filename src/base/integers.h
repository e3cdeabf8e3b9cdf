// Integer helpers: minimum, maximum, division rounding up.
#ifndef TNI_BASE_INTEGERS_H
#define TNI_BASE_INTEGERS_H

#include <stdint.h>

static inline int64_t tni_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t tni_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// How many pieces of that size make up the total; the last may be smaller.
static inline int64_t tni_ceil_div(int64_t total, int64_t piece)
{
    return (total + piece - 1) / piece;
}

static inline int64_t tni_round_up(int64_t n, int64_t to)
{
    return tni_ceil_div(n, to) * to;
}

#endif
