// mutate.c: the ways to damage an input. All of them keep it within FUZZ_ROOM bytes.
#include "fuzz.h"

#include <string.h>

uint64_t fuzz_next(fuzz_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z          = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t fuzz_below(fuzz_random *r, size_t n)
{
    return (size_t)(fuzz_next(r) % n);
}

// The input while it is changed, and what it may be changed with.
typedef struct {
    fuzz_random         *random;
    unsigned char       *data;
    size_t               n;
    const unsigned char *other;
    size_t               other_n;
    const char *const   *tokens;
} patient;

static size_t pick(patient *p, size_t n)
{
    return fuzz_below(p->random, n);
}

// Replaces data[at .. at+old-1] by n bytes from elsewhere.
static void replace(patient *p, size_t at, size_t old, const void *bytes, size_t n)
{
    if (p->n - old + n > FUZZ_ROOM) return;
    memmove(p->data + at + n, p->data + at + old, p->n - at - old);
    memcpy(p->data + at, bytes, n);
    p->n = p->n - old + n;
}

// A length up to most, mostly a short one.
static size_t length(patient *p, size_t most)
{
    size_t limit = pick(p, 4) ? 16 : 4096;
    return pick(p, (most < limit ? most : limit) + 1);
}

static void flip_a_bit(patient *p)
{
    if (p->n) p->data[pick(p, p->n)] ^= (unsigned char)(1u << pick(p, 8));
}

static void change_a_byte(patient *p)
{
    if (p->n) p->data[pick(p, p->n)] = (unsigned char)fuzz_next(p->random);
}

// A number that readers trip over, in 1 to 8 bytes, either end first.
static void put_a_number(patient *p)
{
    static const int64_t numbers[] = { 0,         1,         2,          7,         8,
                                       9,         64,        127,        128,       255,
                                       256,       0x7fff,    0x8000,     0xffff,    0x10000,
                                       INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN,
                                       -1,        -8,        100000000,  1LL << 40, 1LL << 62 };

    uint64_t      v     = (uint64_t)numbers[pick(p, sizeof numbers / sizeof *numbers)];
    size_t        bytes = (size_t)1 << pick(p, 4);
    unsigned char b[8];
    if (p->n < bytes) return;
    bool big = pick(p, 2);
    for (size_t i = 0; i < bytes; i++) b[big ? bytes - 1 - i : i] = (unsigned char)(v >> (8 * i));
    // Lengths and counts stand at the beginning of most formats.
    size_t at = pick(p, 3) ? pick(p, p->n - bytes + 1) : 0;
    memcpy(p->data + at, b, bytes);
}

// A number as text in place of one that stands there.
static void put_digits(patient *p)
{
    static const char *const texts[] = { "0",
                                         "1",
                                         "-1",
                                         "8",
                                         "9",
                                         "255",
                                         "1e3",
                                         "0.5",
                                         "4294967296",
                                         "9223372036854775807",
                                         "2",
                                         "1e99",
                                         "64",
                                         "-0",
                                         "18446744073709551616",
                                         "nan",
                                         "",
                                         "00",
                                         "9223372036854775808" };

    const char *text = texts[pick(p, sizeof texts / sizeof *texts)];
    if (!p->n) return;
    size_t at = pick(p, p->n), end;
    while (at < p->n && (p->data[at] < '0' || p->data[at] > '9')) at++;
    for (end = at; end < p->n && p->data[end] >= '0' && p->data[end] <= '9';) end++;
    if (end > at) replace(p, at, end - at, text, strlen(text));
}

static void put_a_token(patient *p)
{
    size_t count = 0;
    while (p->tokens && p->tokens[count]) count++;
    if (!count) return;
    const char *token = p->tokens[pick(p, count)];
    size_t      n = strlen(token), at = pick(p, p->n + 1);
    replace(p, at, pick(p, 2) && at + n <= p->n ? n : 0, token, n);
}

static void delete_a_block(patient *p)
{
    size_t n = length(p, p->n);
    replace(p, pick(p, p->n - n + 1), n, "", 0);
}

static void repeat_a_block(patient *p)
{
    unsigned char copy[4096];
    size_t        n = length(p, p->n);
    memcpy(copy, p->data + pick(p, p->n - n + 1), n);
    replace(p, pick(p, p->n + 1), 0, copy, n);
}

static void insert_bytes(patient *p)
{
    unsigned char bytes[16];
    size_t        n = pick(p, sizeof bytes) + 1;
    memset(bytes, (int)fuzz_next(p->random), sizeof bytes);
    if (pick(p, 2))
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)fuzz_next(p->random);
    replace(p, pick(p, p->n + 1), 0, bytes, n);
}

static void splice(patient *p)
{
    size_t n = length(p, p->other_n), from = pick(p, p->other_n - n + 1);
    size_t old = pick(p, 2) ? length(p, p->n) : 0;
    replace(p, pick(p, p->n - old + 1), old, p->other + from, n);
}

static void cut(patient *p)
{
    p->n = pick(p, p->n + 1);
}

size_t fuzz_mutate(fuzz_random *r, unsigned char *data, size_t n, const unsigned char *other,
                   size_t other_n, const char *const *tokens)
{
    // Cutting stands once: it loses most.
    static void (*const ways[])(patient *) = {
        flip_a_bit,   flip_a_bit,     change_a_byte,  put_a_number, put_a_number, put_digits,
        put_digits,   put_digits,     put_a_token,    put_a_token,  put_a_token,  delete_a_block,
        insert_bytes, repeat_a_block, delete_a_block, splice,       cut,
    };
    patient p = { r, data, n, other, other_n, tokens };
    for (size_t times = (size_t)1 << fuzz_below(r, 4); times > 0; times--)
        ways[fuzz_below(r, sizeof ways / sizeof *ways)](&p);
    return p.n;
}
