// Offsets in the arena. All lifetimes are known, so values are placed in the order of how awkward
// they are: the largest first, or the longest-lived first, each into the lowest gap that is free
// during its lifetime; the better of the two orders is taken. Both are quadratic in the number of
// spans, so with very many of them each span is placed when its lifetime begins instead, into the
// best-fitting free range, and one with parts as a whole.
#include "plan/arena.h"

#include <stdlib.h>

// Up to this many spans are placed in the quadratic way: eight million comparisons for each order,
// or a hundredth of a second, at most.
enum { MANY = 4096 };

static int64_t capped_sum(int64_t a, int64_t b)
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

// Returns the lowest gap from `end` on that a span fits into, among the n placed ones, which are
// sorted by offset; only those whose lifetimes overlap its own are in the way.
static int64_t lowest_gap(const tni_arena_span *s, int64_t end, size_t n,
                          tni_arena_span *const *placed)
{
    for (size_t i = 0; i < n; i++) {
        const tni_arena_span *k = placed[i];
        if (k->last < s->first || s->last < k->first) continue;
        if (k->offset - end >= s->bytes) break;
        if (capped_sum(k->offset, k->bytes) > end) end = capped_sum(k->offset, k->bytes);
    }
    return end;
}

// Returns the lowest place of a span with parts: each part must have a gap at its own place in it.
// What is in the way of one moves all of them further.
static int64_t lowest_place(const tni_arena_span *s, size_t n, tni_arena_span *const *placed)
{
    if (!s->parts) return lowest_gap(s, 0, n, placed);
    int64_t  at = 0;
    uint32_t k  = 0;
    while (k < s->parts) {
        const tni_arena_span *part = s + 1 + k;
        int64_t               gap  = lowest_gap(part, at + part->within, n, placed);
        bool                  fits = gap == at + part->within;
        at                         = gap - part->within;
        k                          = fits ? k + 1 : 0;
    }
    return at;
}

// Inserts a span into the list sorted by offset.
static void insert_span(tni_arena_span *s, size_t n, tni_arena_span **placed)
{
    for (; n > 0 && placed[n - 1]->offset > s->offset; n--) placed[n] = placed[n - 1];
    placed[n] = s;
}

// Puts a span at its offset: its parts, where it has some, since the whole is not in the way of
// others. Returns how many are placed then.
static size_t put_span(tni_arena_span *s, size_t n, tni_arena_span **placed)
{
    if (!s->parts) insert_span(s, n++, placed);
    for (uint32_t k = 0; k < s->parts; k++) {
        s[1 + k].offset = s->offset + s[1 + k].within;
        insert_span(&s[1 + k], n++, placed);
    }
    return n;
}

// Places n spans, without parts in the list, in an order; returns where the highest of them ends.
static int64_t place_sorted(size_t n, tni_arena_span **list, tni_arena_span **placed,
                            int (*order)(const void *a, const void *b))
{
    int64_t end  = 0;
    size_t  puts = 0;
    qsort(list, n, sizeof *list, order);
    for (size_t i = 0; i < n; i++) {
        tni_arena_span *s = list[i];
        s->offset         = lowest_place(s, puts, placed);
        puts              = put_span(s, puts, placed);
        if (capped_sum(s->offset, s->bytes) > end) end = capped_sum(s->offset, s->bytes);
    }
    return end;
}

// Lists the spans that are no parts, which live as long as the whole does. Returns how many there
// are.
static size_t list_wholes(size_t n, tni_arena_span *span, tni_arena_span **list)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!span[i].part) list[count++] = &span[i];
        else span[i].last = list[count - 1]->last;
    }
    return count;
}

// Places all spans in both orders and keeps the better one; returns the bytes, -1 when memory is
// out.
static int64_t place_all(tni_heap *h, size_t n, tni_arena_span *span)
{
    tni_arena_span **list = tni_alloc(h, 2 * n * sizeof *list);
    if (!list) return -1;
    size_t  wholes = list_wholes(n, span, list);
    int64_t a      = place_sorted(wholes, list, list + n, by_size);
    int64_t b      = place_sorted(wholes, list, list + n, by_length);
    if (a < b) b = place_sorted(wholes, list, list + n, by_size);
    tni_free(h, list);
    return b;
}

// ---- one after the other -----------------------------------------------------------------------

// A range of the arena that no live span uses.
typedef struct {
    int64_t offset, bytes;
} free_range;

// The free ranges below end, in no order. Invariant: no two of them touch.
typedef struct {
    tni_heap   *heap;
    free_range *free;
    size_t      count, cap;
    int64_t     end;
} free_list;

// Takes bytes from the free range that fits best, else from the end of the arena.
static int64_t take_range(free_list *a, int64_t bytes)
{
    size_t best = a->count;
    for (size_t i = 0; i < a->count; i++)
        if (a->free[i].bytes >= bytes &&
            (best == a->count || a->free[i].bytes < a->free[best].bytes))
            best = i;
    if (best == a->count) {
        int64_t at = a->end;
        a->end     = capped_sum(a->end, bytes);
        return at;
    }
    int64_t at = a->free[best].offset;
    a->free[best].offset += bytes;
    a->free[best].bytes -= bytes;
    if (!a->free[best].bytes) a->free[best] = a->free[--a->count];
    return at;
}

// Gives a range back, joined with its free neighbours. False when memory for the list is out.
static bool give_range(free_list *a, int64_t offset, int64_t bytes)
{
    for (size_t i = 0; i < a->count;) {
        free_range *s = &a->free[i];
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
    a->free[a->count++] = (free_range){ offset, bytes };
    return true;
}

static int by_end(const void *a, const void *b)
{
    const tni_arena_span *x = *(tni_arena_span *const *)a, *y = *(tni_arena_span *const *)b;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return x < y ? -1 : x > y;
}

// Places each span when it begins, after the ranges of all spans that have ended were given back.
// Spans come in the order of their first steps.
static int64_t place_in_time(tni_heap *h, size_t n, tni_arena_span *span)
{
    free_list        a    = { .heap = h };
    tni_arena_span **list = tni_alloc(h, n * sizeof *list);
    bool             ok   = list != NULL;
    size_t           over = 0, wholes = ok ? list_wholes(n, span, list) : 0;
    if (ok) qsort(list, wholes, sizeof *list, by_end);
    for (size_t i = 0; ok && i < n; i++) {
        if (span[i].part) continue;
        for (; ok && list[over]->last < span[i].first; over++)
            ok = give_range(&a, list[over]->offset, list[over]->bytes);
        span[i].offset = take_range(&a, span[i].bytes);
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
