// GPT-2's tokenizer. A text is cut into words; in each, the pair of neighbours whose merge ranks lowest
// (of equal ones the leftmost) becomes one token, until no pair has a merge. A heap of pairs makes that
// n log n also for a word of a million bytes. As no merge needs a token of a later one, this gives the
// same tokens as the usual way, to merge all pairs of the lowest rank in one pass.
#include "data/bpe.h"
#include "base/hash.h"
#include "data/words.h"

#include <string.h>

// ---- the table of merges -----------------------------------------------------------------------

// Returns the slot of a pair, or the free one where it would go (linear probing, at most half full).
static uint32_t *find_pair(const tn_bpe *b, uint32_t left, uint32_t right)
{
    uint32_t i = (uint32_t)tni_hash_mix(left * (uint64_t)0x9e3779b1u, right) & b->mask;
    for (; b->slot[i]; i = (i + 1) & b->mask) {
        const tni_merge *m = &b->merge[b->slot[i] - 1];
        if (m->left == left && m->right == right) break;
    }
    return &b->slot[i];
}

int64_t tni_bpe_rank(const tn_bpe *b, uint32_t left, uint32_t right)
{
    return (int64_t)*find_pair(b, left, right) - 1;
}

void tni_bpe_enter(tn_bpe *b, uint32_t rank)
{
    *find_pair(b, b->merge[rank].left, b->merge[rank].right) = rank + 1;
}

// ---- one word ----------------------------------------------------------------------------------

// Adds the pair that begins at a place to the heap of n, if it has a merge. The key orders by rank,
// then by place, so that equal ranks are merged from left to right.
static size_t push_pair(tn_bpe *b, size_t n, uint32_t at, uint32_t length)
{
    uint32_t next = b->piece[at].next;
    int64_t  rank = next < length ? tni_bpe_rank(b, b->piece[at].id, b->piece[next].id)
                                  : TNI_BPE_NONE;
    if (rank == TNI_BPE_NONE) return n;
    uint64_t key = (uint64_t)rank << 32 | at;
    size_t   i   = n;
    for (; i && b->heap[(i - 1) / 2] > key; i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = key;
    return n + 1;
}

// Removes the lowest key from a heap of n > 0.
static uint64_t pop_pair(tn_bpe *b, size_t n)
{
    uint64_t top = b->heap[0], key = b->heap[n - 1];
    size_t   i = 0, child;
    for (; (child = 2 * i + 1) < n - 1; i = child) {
        if (child + 1 < n - 1 && b->heap[child + 1] < b->heap[child]) child++;
        if (b->heap[child] >= key) break;
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = key;
    return top;
}

// A pair in the heap is stale once one of its two tokens was merged with something else: it is skipped
// when it is popped, which is cheaper than removing it.
static bool is_current(const tn_bpe *b, uint32_t at, uint32_t rank, uint32_t length)
{
    uint32_t         next = b->piece[at].next;
    const tni_merge *m    = &b->merge[rank];
    return b->piece[at].id == m->left && next < length && b->piece[next].id == m->right;
}

// Merges two neighbours: the left one takes the new token, the right one leaves the list.
static void join_pair(tn_bpe *b, uint32_t at, uint32_t id, uint32_t length)
{
    uint32_t gone = b->piece[at].next, next = b->piece[gone].next;
    b->piece[at].id   = id;
    b->piece[at].next = next;
    b->piece[gone].id = tni_no_token;
    if (next < length) b->piece[next].prev = at;
}

// Merges until no pair of neighbours has a merge. Each merge makes at most two new pairs.
static void merge_pieces(tn_bpe *b, uint32_t length)
{
    size_t n = 0;
    for (uint32_t i = 0; i + 1 < length; i++) n = push_pair(b, n, i, length);
    while (n) {
        uint64_t top = pop_pair(b, n--);
        uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (!is_current(b, at, rank, length)) continue;
        join_pair(b, at, b->merge[rank].result, length);
        if (at) n = push_pair(b, n, b->piece[at].prev, length);
        n = push_pair(b, n, at, length);
    }
}

// Grows the arrays for a word. Each merge pops one pair and pushes at most two, so twice the length suffices.
static bool grow_word(tn_bpe *b, const char *op, size_t length)
{
    tni_heap *h     = &b->owned.cx->heap;
    void     *piece = b->piece, *heap = b->heap;
    bool      ok = tni_grow(h, &piece, &b->piece_cap, length, sizeof *b->piece) &&
              tni_grow(h, &heap, &b->heap_cap, 2 * length, sizeof *b->heap);
    b->piece = piece;
    b->heap  = heap;
    if (!ok) tni_fail_memory(b->owned.cx, op);
    return ok;
}

// Begins with one token for each byte, merges, and moves what is left to the front of the list.
int64_t tni_bpe_word(tn_bpe *b, const char *op, const char **at, const char *end)
{
    const char *word = *at;
    *at              = tni_word_end(word, end);
    size_t   bytes   = (size_t)(*at - word);
    uint32_t length  = (uint32_t)bytes;
    int64_t  count   = 0;
    if (bytes >= tni_no_token) {
        tni_fail(b->owned.cx, TN_EARG, "%s: a word of %zu bytes: it must be less than %u", op,
                 bytes, (unsigned)tni_no_token);
        return -1;
    }
    if (!grow_word(b, op, bytes)) return -1;
    for (uint32_t i = 0; i < length; i++)
        b->piece[i] = (tni_bpe_piece){ b->byte_id[(unsigned char)word[i]], i - 1, i + 1 };
    merge_pieces(b, length);
    for (uint32_t i = 0; i < length; i = b->piece[i].next) b->piece[count++].id = b->piece[i].id;
    return count;
}

// ---- the public calls --------------------------------------------------------------------------

// Frees the tables and the memory of the current word.
static void free_bpe(tni_owned *t)
{
    tn_bpe   *b = (tn_bpe *)t;
    tni_heap *h = &t->cx->heap;
    tni_free(h, b->token);
    tni_free(h, b->pool);
    tni_free(h, b->merge);
    tni_free(h, b->slot);
    tni_free(h, b->piece);
    tni_free(h, b->heap);
    tni_free(h, b);
}

// Owned by the context, like every object, so that tn_close frees a forgotten one.
tn_bpe *tn_bpe_open(tn_ctx *cx, const char *vocab, const char *encoder)
{
    if (!tni_ctx_ok(cx, "bpe")) return NULL;
    tn_bpe *b = tni_zalloc(&cx->heap, sizeof *b);
    if (!b) return tni_fail_memory(cx, "bpe");
    tni_owned_add(cx, &b->owned, TNI_BPE, free_bpe);
    if (tni_bpe_load(b, vocab, encoder)) return b;
    tn_bpe_free(b);
    return NULL;
}

void tn_bpe_free(tn_bpe *b)
{
    if (!b || !tni_owned_ok("bpe_free", b, TNI_BPE)) return;
    tni_owned_remove(&b->owned);
    free_bpe(&b->owned);
}

int64_t tn_bpe_count(const tn_bpe *b)
{
    return tni_owned_ok("bpe_count", b, TNI_BPE) ? (int64_t)b->count : -1;
}

// Checks the arrays of a call and their counts, n and capacity.
static bool bpe_args_ok(const tn_bpe *b, const char *op, const void *in, int64_t n, const void *out,
                        int64_t capacity)
{
    if (!tni_owned_ok(op, b, TNI_BPE)) return false;
    if (n >= 0 && capacity >= 0 && (in || !n) && (out || !capacity)) return true;
    tni_fail(b->owned.cx, TN_EARG, "%s: %s", op,
             n < 0 || capacity < 0 ? "a count is negative" : "an argument is NULL");
    return false;
}

// Returns the number of tokens even if they do not all fit, so that a caller can measure first.
int64_t tn_bpe_encode(tn_bpe *b, const char *text, int64_t bytes, int64_t *ids, int64_t capacity)
{
    if (!bpe_args_ok(b, "bpe_encode", text, bytes, ids, capacity)) return -1;
    int64_t     count = 0;
    const char *end   = text ? text + bytes : text;
    for (const char *at = text; at < end;) {
        int64_t n = tni_bpe_word(b, "bpe_encode", &at, end);
        if (n < 0) return -1;
        for (int64_t i = 0; i < n; i++, count++)
            if (count < capacity) ids[count] = b->piece[i].id;
    }
    return count;
}

// As tn_bpe_encode, for bytes.
int64_t tn_bpe_decode(tn_bpe *b, const int64_t *ids, int64_t n, char *text, int64_t capacity)
{
    if (!bpe_args_ok(b, "bpe_decode", ids, n, text, capacity)) return -1;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= b->count) {
            tni_fail(b->owned.cx, TN_EARG, "bpe_decode: ids[%lld] is %lld, of %u tokens",
                     (long long)i, (long long)ids[i], (unsigned)b->count);
            return -1;
        }
        tni_token t    = b->token[ids[i]];
        int64_t   copy = capacity - count < t.length ? capacity - count : t.length;
        if (copy > 0) memcpy(text + count, b->pool + t.start, (size_t)copy);
        count += t.length;
    }
    return count;
}
