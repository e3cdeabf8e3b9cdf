// test_arena.c: values of the arena never overlap while both are there, and it is hardly larger
// than it has to be.
#include "check.h"

#include "plan/arena.h"

#include <stdlib.h>

static uint32_t state;

static uint32_t next_random(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

// n spans as the values of a network come: most go soon, some stay until the way back.
static tni_arena_span *make_spans(size_t n, uint32_t seed)
{
    tni_arena_span *s = calloc(n, sizeof *s);
    state             = seed;
    for (size_t i = 0; s && i < n; i++) {
        uint32_t stay = next_random(3) ? next_random(4) : (uint32_t)(2 * (n - i));
        s[i]          = (tni_arena_span){ .first = (uint32_t)i, .last = (uint32_t)i + stay };
        s[i].bytes    = 64 * (1 + (int64_t)next_random(1u << next_random(12)));
    }
    return s;
}

// The most bytes that are there at one step.
static int64_t bound(size_t n, const tni_arena_span *s)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t now = 0;
        for (size_t k = 0; k <= i; k++)
            if (s[k].last >= s[i].first) now += s[k].bytes;
        if (now > most) most = now;
    }
    return most;
}

static bool apart(size_t n, const tni_arena_span *s, int64_t end)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i].offset < 0 || s[i].offset + s[i].bytes > end) return false;
        for (size_t k = 0; k < i; k++) {
            bool together = s[k].last >= s[i].first;
            bool overlap  = s[k].offset < s[i].offset + s[i].bytes &&
                           s[i].offset < s[k].offset + s[k].bytes;
            if (together && overlap) return false;
        }
    }
    return true;
}

static void places(size_t n, uint32_t seed, double most)
{
    tni_heap        h = tni_heap_default();
    tni_arena_span *s = make_spans(n, seed);
    if (!CHECK(s != NULL)) return;
    int64_t end = tni_arena_place(&h, n, s), least = bound(n, s);
    test_case_result(apart(n, s, end), "%zu spans, seed %u: two overlap", n, seed);
    test_case_result((double)end <= most * (double)least, "%zu spans, seed %u: %lld for %lld", n,
                     seed, (long long)end, (long long)least);
    free(s);
}

static void values_that_are_there_together_lie_apart(void)
{
    for (uint32_t i = 0; i < 200; i++) places(1 + i % 97, i, 1.3);
    for (uint32_t i = 0; i < 20; i++) places(500, i, 1.1);
}

static void very_many_values_lie_apart_too(void)
{
    for (uint32_t i = 0; i < 5; i++) places(5000, i, 1.5);
}

static void sizes_that_nobody_has_stay_numbers(void)
{
    tni_heap       h    = tni_heap_default();
    tni_arena_span s[4] = { { .first = 0, .last = 3, .bytes = TNI_BYTES_LIMIT },
                            { .first = 1, .last = 3, .bytes = TNI_BYTES_LIMIT },
                            { .first = 2, .last = 3, .bytes = 64 },
                            { .first = 3, .last = 3, .bytes = TNI_BYTES_LIMIT } };
    CHECK(tni_arena_place(&h, 4, s) == TNI_BYTES_LIMIT);
    CHECK_INT(tni_arena_place(&h, 0, NULL), 0);
}

// Four values that go one by one while the parts of a fifth come, as activations do and gradients.
// Each part takes the place of the value that went before it, wherever the whole begins.
static void parts_come_where_values_have_gone(void)
{
    tni_heap       h    = tni_heap_default();
    tni_arena_span s[9] = { { .first = 0, .last = 4, .bytes = 128 },
                            { .first = 1, .last = 5, .bytes = 128 },
                            { .first = 2, .last = 6, .bytes = 128 },
                            { .first = 3, .last = 7, .bytes = 128 },
                            { .first = 5, .last = 9, .bytes = 512, .parts = 4 } };
    for (uint32_t k = 0; k < 4; k++)
        s[5 + k] = (tni_arena_span){
            .first = 5 + k, .bytes = 128, .within = 128 * (int64_t)k, .part = true
        };
    CHECK_INT(tni_arena_place(&h, 9, s), 512);
    for (int k = 0; k < 4; k++) {
        CHECK_INT(s[5 + k].offset, s[4].offset + 128 * k);
        for (int i = k + 1; i < 4; i++)  // what is still there
            CHECK(s[i].offset + 128 <= s[5 + k].offset || s[5 + k].offset + 128 <= s[i].offset);
    }
}

static void *no_memory(void *user, void *old, size_t n)
{
    (void)user;
    (void)old;
    (void)n;
    return NULL;
}

static void memory_that_is_out_is_said(void)
{
    tni_heap h = { .alloc = no_memory };
    for (size_t n = 10; n <= 5000; n += 4990) {
        tni_arena_span *s = make_spans(n, 1);
        if (!CHECK(s != NULL)) return;
        CHECK_INT(tni_arena_place(&h, n, s), -1);
        free(s);
    }
}

const test_case tests_arena[] = {
    TEST(values_that_are_there_together_lie_apart),
    TEST(very_many_values_lie_apart_too),
    TEST(sizes_that_nobody_has_stay_numbers),
    TEST(parts_come_where_values_have_gone),
    TEST(memory_that_is_out_is_said),
    TEST_END,
};
