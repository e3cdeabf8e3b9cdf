// Byte-pair encoding as GPT-2 has it: what its two files hold, ready to encode with.
#ifndef TNI_DATA_BPE_H
#define TNI_DATA_BPE_H

#include "tensor/context.h"

enum { TNI_BPE_NONE = -1 };

static const uint32_t tni_no_token = UINT32_MAX;

// The bytes of a token: in the pool.
typedef struct {
    uint32_t start, length;
} tni_token;

// Two tokens that stand side by side become one. Its index is its rank: lower ones come first.
typedef struct {
    uint32_t left, right, result;
} tni_merge;

// A token of the word that is being encoded, at the place of its first byte, in a list.
typedef struct {
    uint32_t id;    // tni_no_token once merged away
    uint32_t prev;  // place of the one before; no place at the first
    uint32_t next;  // of the one after; the word's length at the last
} tni_bpe_piece;

// A tokenizer. Every byte has a token of its own, so every text can be encoded. Invariant: both parts
// of a merge are single bytes or made by merges before it.
struct tn_bpe {
    tni_owned  owned;  // first
    uint32_t   count;
    tni_token *token;  // by id
    char      *pool;
    uint32_t   byte_id[256];
    tni_merge *merge;  // by rank
    uint32_t   merges;
    uint32_t  *slot;  // hash table of the pairs: rank + 1, 0 where free
    uint32_t   mask;  // its size less 1

    tni_bpe_piece *piece;  // of the current word; in the end its tokens, from 0
    uint64_t      *heap;   // pairs that may be merged: rank and place
    size_t         piece_cap, heap_cap;
};

// Fills an empty tokenizer from its files; false, reported, on failure.
bool tni_bpe_load(tn_bpe *b, const char *vocab, const char *encoder);
// The rank of the merge of two tokens, TNI_BPE_NONE if there is none.
int64_t tni_bpe_rank(const tn_bpe *b, uint32_t left, uint32_t right);
// Enters merge `rank` in the table.
void tni_bpe_enter(tn_bpe *b, uint32_t rank);

// Encodes the word at *at, which moves behind it: the number of its tokens, b->piece[i].id. -1, reported
// by the op's name, on failure.
int64_t tni_bpe_word(tn_bpe *b, const char *op, const char **at, const char *end);

#endif
