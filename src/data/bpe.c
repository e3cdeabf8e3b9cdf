// Byte-pair encoding of a word. In it, the pair of neighbours whose merge ranks lowest (of equal
// ones the leftmost) becomes one token, until no pair has a merge. A heap of pairs makes that n log
// n also for a word of a million bytes.
#include "base/hash.h"
#include "data/tokenizer.h"

#include <string.h>

// ---- merging -----------------------------------------------------------------------------------

// Adds the pair that begins at a place to the heap of n, if it has a merge. The key orders by rank,
// then by place, so that equal ranks are merged from left to right.
static size_t push_pair(tn_tokenizer *t, size_t n, uint32_t at, uint32_t length)
{
    uint32_t next = t->piece[at].next;
    int64_t  rank = TNI_NO_RANK;
    if (next < length)
        rank = tni_vocabulary_rank(&t->vocabulary, t->piece[at].id, t->piece[next].id);
    if (rank == TNI_NO_RANK) return n;
    uint64_t key = (uint64_t)rank << 32 | at;
    size_t   i   = n;
    for (; i && t->heap[(i - 1) / 2] > key; i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = key;
    return n + 1;
}

// Removes the lowest key from a heap of n > 0.
static uint64_t pop_pair(tn_tokenizer *t, size_t n)
{
    uint64_t top = t->heap[0], key = t->heap[n - 1];
    size_t   i = 0, child;
    for (; (child = 2 * i + 1) < n - 1; i = child) {
        if (child + 1 < n - 1 && t->heap[child + 1] < t->heap[child]) child++;
        if (t->heap[child] >= key) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = key;
    return top;
}

// A pair in the heap is stale once one of its two tokens was merged with something else: it is
// skipped when it is popped, which is cheaper than removing it.
static bool is_current(const tn_tokenizer *t, uint32_t at, uint32_t rank, uint32_t length)
{
    uint32_t         next = t->piece[at].next;
    const tni_merge *m    = &t->vocabulary.merge[rank];
    return t->piece[at].id == m->left && next < length && t->piece[next].id == m->right;
}

// Merges two neighbours: the left one takes the new token, the right one leaves the list.
static void join_pair(tn_tokenizer *t, uint32_t at, uint32_t id, uint32_t length)
{
    uint32_t gone = t->piece[at].next, next = t->piece[gone].next;
    t->piece[at].id   = id;
    t->piece[at].next = next;
    t->piece[gone].id = tni_no_token;
    if (next < length) t->piece[next].prev = at;
}

// Merges until no pair of neighbours has a merge. Each merge makes at most two new pairs.
static void merge_pieces(tn_tokenizer *t, uint32_t length)
{
    size_t n = 0;
    for (uint32_t i = 0; i + 1 < length; i++) n = push_pair(t, n, i, length);
    while (n) {
        uint64_t top = pop_pair(t, n--);
        uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (!is_current(t, at, rank, length)) continue;
        join_pair(t, at, t->vocabulary.merge[rank].result, length);
        if (at) n = push_pair(t, n, t->piece[at].prev, length);
        n = push_pair(t, n, at, length);
    }
}

// ---- characters --------------------------------------------------------------------------------

// Grows the arrays for a word. Each merge pops one pair and pushes at most two, so twice the length
// suffices.
static bool grow_word(tn_tokenizer *t, const char *op, size_t length)
{
    tni_heap *h     = &t->owned.cx->heap;
    void     *piece = t->piece, *heap = t->heap, *ids = t->ids;
    bool      ok = tni_grow(h, &piece, &t->piece_cap, length, sizeof *t->piece) &&
              tni_grow(h, &heap, &t->heap_cap, 2 * length, sizeof *t->heap) &&
              tni_grow(h, &ids, &t->ids_cap, length, sizeof *t->ids);
    t->piece = piece;
    t->heap  = heap;
    t->ids   = ids;
    if (!ok) tni_fail_memory(t->owned.cx, op);
    return ok;
}

static void add_piece(tn_tokenizer *t, uint32_t *count, uint32_t id)
{
    t->piece[*count] = (tni_bpe_piece){ id, *count - 1, *count + 1 };
    ++*count;
}

static bool bytes_have_tokens(const tn_tokenizer *t, const char *s, const char *end)
{
    for (; s < end; s++)
        if (t->byte_id[(unsigned char)*s] == tni_no_token) return false;
    return true;
}

// Fills the list with a token for each character; returns their number. An unknown one waits, so
// that those after it can join it; bytes that stand for a character do not wait for it, as in
// Hugging Face's tokenizers.
static uint32_t read_pieces(tn_tokenizer *t, const char *s, size_t n)
{
    const tni_vocabulary *v     = &t->vocabulary;
    uint32_t              count = 0, waiting = tni_no_token;
    const char           *end = s + n, *next;
    for (const char *at = s; at < end; at = next) {
        uint32_t c  = tni_read_character(at, end, &next);
        uint32_t id = c < TNI_CHARACTERS ? v->of_character[c]
                                         : tni_vocabulary_find_model(v, at, (size_t)(next - at));
        if (id == tni_no_token && t->byte_fallback && bytes_have_tokens(t, at, next)) {
            for (; at < next; at++) add_piece(t, &count, t->byte_id[(unsigned char)*at]);
            continue;
        }
        bool joins = id == tni_no_token && t->fuse_unknown;
        if (waiting != tni_no_token && !joins) {
            add_piece(t, &count, waiting);
            waiting = tni_no_token;
        }
        if (id != tni_no_token) add_piece(t, &count, id);
        else waiting = t->unknown;
    }
    if (waiting != tni_no_token) add_piece(t, &count, waiting);
    return count;
}

// ---- words -------------------------------------------------------------------------------------

// Computes the tokens of a word: t->ids, and their number; -1, reported, on failure.
static int64_t merge_word(tn_tokenizer *t, const char *op, const char *s, size_t n)
{
    int64_t  count = 0;
    uint32_t whole = t->ignore_merges ? tni_vocabulary_find_model(&t->vocabulary, s, n)
                                      : tni_no_token;
    if (n >= tni_no_token) {
        tni_fail(t->owned.cx, TN_EARG, "%s: a word of %zu bytes: it must be less than %u", op, n,
                 (unsigned)tni_no_token);
        return -1;
    }
    if (!grow_word(t, op, n)) return -1;
    t->ids[0] = whole;
    if (whole != tni_no_token) return 1;
    uint32_t length = read_pieces(t, s, n);
    merge_pieces(t, length);
    for (uint32_t i = 0; i < length; i = t->piece[i].next) t->ids[count++] = t->piece[i].id;
    return count;
}

// Short words are looked up among those encoded lately first.
bool tni_encode_word(tn_tokenizer *t, const char *op, const char *s, size_t n, tni_token_sink *sink)
{
    tni_kept_word *k = NULL;
    if (!t->kept) t->kept = tni_zalloc(&t->owned.cx->heap, TNI_KEPT_WORDS * sizeof *t->kept);
    if (!t->kept) return tni_no_memory(t->owned.cx, op);
    if (n <= TNI_KEPT_BYTES) k = &t->kept[tni_hash(s, n) >> 20 & (TNI_KEPT_WORDS - 1)];
    if (k && k->bytes == n && memcmp(k->text, s, n) == 0) return sink->put(sink, k->id, k->tokens);

    int64_t count = merge_word(t, op, s, n);
    if (count < 0) return false;
    if (k && count <= TNI_KEPT_TOKENS) {
        *k = (tni_kept_word){ .bytes = (uint8_t)n, .tokens = (uint8_t)count };
        memcpy(k->text, s, n);
        memcpy(k->id, t->ids, (size_t)count * sizeof *k->id);
    }
    return sink->put(sink, t->ids, (size_t)count);
}
