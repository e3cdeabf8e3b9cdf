// Two hash tables with linear probing: tokens by their text, merges by their pair.
#include "data/vocabulary.h"
#include "base/hash.h"
#include "base/text.h"

#include <string.h>

// Returns the mask of a hash table that is at most half full with n entries.
static uint32_t mask_for(uint32_t n)
{
    uint32_t size = 16;
    while (size < 2 * n) size *= 2;
    return size - 1;
}

bool tni_vocabulary_begin(tni_vocabulary *v, uint32_t numbers, uint32_t count)
{
    v->mask  = mask_for(count);
    v->count = numbers;
    v->slot  = tni_zalloc(v->heap, ((size_t)v->mask + 1) * sizeof *v->slot);
    v->token = tni_zalloc(v->heap, (size_t)numbers * sizeof *v->token);
    for (int c = 0; c < TNI_CHARACTERS; c++) v->of_character[c] = tni_no_token;
    return v->slot && v->token;
}

bool tni_vocabulary_begin_merges(tni_vocabulary *v, uint32_t merges)
{
    v->pair_mask = mask_for(merges);
    v->merge     = tni_alloc(v->heap, (size_t)merges * sizeof *v->merge);
    v->pair_slot = tni_zalloc(v->heap, ((size_t)v->pair_mask + 1) * sizeof *v->pair_slot);
    return v->merge && v->pair_slot;
}

void tni_vocabulary_free(tni_vocabulary *v)
{
    tni_free(v->heap, v->token);
    tni_free(v->heap, v->pool.data);
    tni_free(v->heap, v->slot);
    tni_free(v->heap, v->merge);
    tni_free(v->heap, v->pair_slot);
}

// Returns the slot of a text, or the free one where it would go.
static uint32_t *find_text(const tni_vocabulary *v, const char *s, size_t n)
{
    uint32_t i = (uint32_t)tni_hash(s, n) & v->mask;
    for (; v->slot[i]; i = (i + 1) & v->mask) {
        tni_token t = v->token[v->slot[i] - 1];
        if (t.length == n && memcmp(v->pool.data + t.start, s, n) == 0) break;
    }
    return &v->slot[i];
}

uint32_t tni_vocabulary_find(const tni_vocabulary *v, const char *s, size_t n)
{
    uint32_t slot = *find_text(v, s, n);
    return slot ? slot - 1 : tni_no_token;
}

uint32_t tni_vocabulary_find_model(const tni_vocabulary *v, const char *s, size_t n)
{
    uint32_t id = tni_vocabulary_find(v, s, n);
    return id != tni_no_token && v->token[id].is_model ? id : tni_no_token;
}

// Tokens of one character near the start of Unicode are found without a hash.
bool tni_vocabulary_add(tni_vocabulary *v, uint32_t id, const char *s, size_t n, bool model)
{
    uint32_t    start = (uint32_t)v->pool.bytes;
    const char *next, *end = s + n;
    if (!tni_byte_list_add(v->heap, &v->pool, s, n) || !tni_byte_list_add(v->heap, &v->pool, "", 1))
        return false;
    uint32_t c   = n ? tni_read_character(s, end, &next) : tni_no_character;
    v->token[id] = (tni_token){
        .start = start, .length = (uint32_t)n, .is_there = true, .is_model = model
    };
    *find_text(v, s, n) = id + 1;
    if (model && c < TNI_CHARACTERS && next == end) v->of_character[c] = id;
    return true;
}

// Returns the slot of a pair, or the free one where it would go.
static uint32_t *find_pair(const tni_vocabulary *v, uint32_t left, uint32_t right)
{
    uint32_t i = (uint32_t)tni_hash_mix(left * (uint64_t)0x9e3779b1u, right) & v->pair_mask;
    for (; v->pair_slot[i]; i = (i + 1) & v->pair_mask) {
        const tni_merge *m = &v->merge[v->pair_slot[i] - 1];
        if (m->left == left && m->right == right) break;
    }
    return &v->pair_slot[i];
}

int64_t tni_vocabulary_rank(const tni_vocabulary *v, uint32_t left, uint32_t right)
{
    return (int64_t)*find_pair(v, left, right) - 1;
}

void tni_vocabulary_merge(tni_vocabulary *v, tni_merge m)
{
    v->merge[v->merges++]          = m;
    *find_pair(v, m.left, m.right) = v->merges;
}

// ---- bytes as characters -----------------------------------------------------------------------

// Returns whether a byte is shown as itself: printable Latin-1 without the soft hyphen.
static bool is_printed(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The bytes that are not: 0 .. 32, 127 .. 160 and 173.
uint32_t tni_byte_character(int byte)
{
    if (is_printed(byte)) return (uint32_t)byte;
    return (uint32_t)(256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67));
}

int tni_character_byte(uint32_t c)
{
    if (c < 256) return is_printed((int)c) ? (int)c : -1;
    if (c > 256 + 67) return -1;
    int spare = (int)c - 256;
    return spare <= 32 ? spare : spare < 67 ? spare - 33 + 127 : 173;
}
