// Placing values in the arena. All lifetimes are known, so the awkward ones go first: the large, or
// those that stay long; whichever order ends lower is taken. Where there are very many, each is
// placed as it comes instead, in time that does not grow with their square.
#include "plan/arena.h"

#include <stdbool.h>
#include <stdlib.h>

enum { MANY = 1024 };

static int64_t sum(int64_t a, int64_t b)
{
    return b > TNI_BYTES_LIMIT - a ? TNI_BYTES_LIMIT : a + b;
}

// ---- all at once -------------------------------------------------------------------------------

static int by_size(const void *a, const void *b)
{
    const tni_arena_span *x = *(tni_arena_span *const *)a, *y = *(tni_arena_span *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int by_length(const void *a, const void *b)
{
    const tni_arena_span *x = *(tni_arena_span *const *)a, *y = *(tni_arena_span *const *)b;
    uint32_t              m = x->last - x->first, n = y->last - y->first;
    return m != n ? (m > n ? -1 : 1) : by_size(a, b);
}

// The lowest gap that a span fits into, among those of `placed`, which are by offset, that are there
// when it is.
static int64_t lowest_gap(const tni_arena_span *s, size_t n, tni_arena_span *const *placed)
{
    int64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const tni_arena_span *k = placed[i];
        if (k->last < s->first || s->last < k->first) continue;
        if (k->offset - end >= s->bytes) break;
        if (sum(k->offset, k->bytes) > end) end = sum(k->offset, k->bytes);
    }
    return end;
}

static void insert(tni_arena_span *s, size_t n, tni_arena_span **placed)
{
    for (; n > 0 && placed[n - 1]->offset > s->offset; n--) placed[n] = placed[n - 1];
    placed[n] = s;
}

// Places the spans in this order; where the highest of them ends.
static int64_t place_sorted(size_t n, tni_arena_span **list, tni_arena_span **placed,
                            int (*order)(const void *a, const void *b))
{
    int64_t end = 0;
    qsort(list, n, sizeof *list, order);
    for (size_t i = 0; i < n; i++) {
        tni_arena_span *s = list[i];
        s->offset         = lowest_gap(s, i, placed);
        insert(s, i, placed);
        if (sum(s->offset, s->bytes) > end) end = sum(s->offset, s->bytes);
    }
    return end;
}

static int64_t place_all(tni_heap *h, size_t n, tni_arena_span *span)
{
    tni_arena_span **list = tni_alloc(h, 2 * n * sizeof *list);
    if (!list) return -1;
    for (size_t i = 0; i < n; i++) list[i] = &span[i];
    int64_t a = place_sorted(n, list, list + n, by_size);
    int64_t b = place_sorted(n, list, list + n, by_length);
    if (a < b) b = place_sorted(n, list, list + n, by_size);
    tni_free(h, list);
    return b;
}

// ---- one after the other -----------------------------------------------------------------------

typedef struct {
    int64_t offset, bytes;
} stretch;

// Free stretches below end, in no order.
typedef struct {
    tni_heap *heap;
    stretch  *free;
    size_t    count, cap;
    int64_t   end;
} arena;

// The free stretch that fits best, else the end.
static int64_t take(arena *a, int64_t bytes)
{
    size_t best = a->count;
    for (size_t i = 0; i < a->count; i++)
        if (a->free[i].bytes >= bytes &&
            (best == a->count || a->free[i].bytes < a->free[best].bytes))
            best = i;
    if (best == a->count) {
        int64_t at = a->end;
        a->end     = sum(a->end, bytes);
        return at;
    }
    int64_t at = a->free[best].offset;
    a->free[best].offset += bytes;
    a->free[best].bytes -= bytes;
    if (!a->free[best].bytes) a->free[best] = a->free[--a->count];
    return at;
}

// Gives a stretch back, joined with its neighbours. False when memory for the list is out.
static bool give(arena *a, int64_t offset, int64_t bytes)
{
    for (size_t i = 0; i < a->count;) {
        stretch *s = &a->free[i];
        if (s->offset + s->bytes == offset || offset + bytes == s->offset) {
            offset = s->offset < offset ? s->offset : offset;
            bytes += s->bytes;
            *s = a->free[--a->count];
            i  = 0;
        } else {
            i++;
        }
    }
    if (!tni_grow(a->heap, (void **)&a->free, &a->cap, a->count + 1, sizeof *a->free)) return false;
    a->free[a->count++] = (stretch){ offset, bytes };
    return true;
}

static int by_end(const void *a, const void *b)
{
    const tni_arena_span *x = *(tni_arena_span *const *)a, *y = *(tni_arena_span *const *)b;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int64_t place_in_time(tni_heap *h, size_t n, tni_arena_span *span)
{
    arena            a    = { .heap = h };
    tni_arena_span **list = tni_alloc(h, n * sizeof *list);
    bool             ok   = list != NULL;
    size_t           over = 0;
    for (size_t i = 0; ok && i < n; i++) list[i] = &span[i];
    if (ok) qsort(list, n, sizeof *list, by_end);
    for (size_t i = 0; ok && i < n; i++) {
        for (; ok && list[over]->last < span[i].first; over++)
            ok = give(&a, list[over]->offset, list[over]->bytes);
        span[i].offset = take(&a, span[i].bytes);
    }
    tni_free(h, list);
    tni_free(h, a.free);
    return ok ? a.end : -1;
}

int64_t tni_arena_place(tni_heap *h, size_t n, tni_arena_span *span)
{
    if (!n) return 0;
    return n <= MANY ? place_all(h, n, span) : place_in_time(h, n, span);
}
