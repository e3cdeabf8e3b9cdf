// Placing values in the arena. All lifetimes are known, so the awkward ones can go first: the large,
// or those that stay long; whichever order ends lower is taken. Where there are very many, each is
// placed as it comes instead, in time that does not grow with their square.
#include "plan/arena.h"

#include <stdbool.h>
#include <stdlib.h>

enum { MANY = 1024 };

static int64_t sum(int64_t a, int64_t b)
{
    return b > TNI_PLENTY - a ? TNI_PLENTY : a + b;
}

// ---- all at once -------------------------------------------------------------------------------

// Spans by position in the list of the caller. placed: those that have an offset, by it.
typedef struct {
    tni_span *span;
    size_t    n, placed_count;
    tni_span *sorted;
    size_t   *placed;
} puzzle;

static int by_size(const void *a, const void *b)
{
    const tni_span *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int by_length(const void *a, const void *b)
{
    const tni_span *x = a, *y = b;
    uint32_t        m = x->last - x->first, n = y->last - y->first;
    return m != n ? (m > n ? -1 : 1) : by_size(a, b);
}

// The lowest gap that a span fits into among those that are there when it is.
static int64_t lowest_gap(const puzzle *p, const tni_span *s)
{
    int64_t end = 0;
    for (size_t i = 0; i < p->placed_count; i++) {
        const tni_span *k = &p->sorted[p->placed[i]];
        if (k->last < s->first || s->last < k->first) continue;
        if (k->offset - end >= s->bytes) break;
        if (k->offset + k->bytes > end) end = k->offset + k->bytes;
    }
    return end;
}

static void insert(puzzle *p, size_t i)
{
    size_t at = p->placed_count++;
    for (; at > 0 && p->sorted[p->placed[at - 1]].offset > p->sorted[i].offset; at--)
        p->placed[at] = p->placed[at - 1];
    p->placed[at] = i;
}

// Places the spans of `sorted` in that order; where the last of them ends.
static int64_t solve(puzzle *p, int (*order)(const void *a, const void *b))
{
    int64_t most    = 0;
    p->placed_count = 0;
    qsort(p->sorted, p->n, sizeof *p->sorted, order);
    for (size_t i = 0; i < p->n; i++) {
        tni_span *s = &p->sorted[i];
        s->offset   = lowest_gap(p, s);
        insert(p, i);
        if (sum(s->offset, s->bytes) > most) most = sum(s->offset, s->bytes);
    }
    return most;
}
