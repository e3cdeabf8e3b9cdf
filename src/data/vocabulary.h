// The tokens of a tokenizer and the merges of byte-pair encoding.
#ifndef TNI_DATA_VOCABULARY_H
#define TNI_DATA_VOCABULARY_H

#include "data/unicode.h"
#include "tensor/context.h"

enum { TNI_MOST_TOKENS = 1 << 22, TNI_NO_RANK = -1, TNI_CHARACTERS = 1024 };

static const uint32_t tni_no_token = UINT32_MAX;

// A token's text as its file spells it: in the pool, with a 0 after it.
typedef struct {
    uint32_t start, length;
    bool     is_there;  // numbers may have gaps
    bool     is_model;  // byte-pair encoding makes it; the others are added tokens
    bool     is_special;
} tni_token;

// Two tokens that stand side by side become one. Its index is its rank: lower ones come first.
typedef struct {
    uint32_t left, right, result;
} tni_merge;

// Tokens by number and by text, merges by rank and by pair; the two hash tables are at most half
// full. Begins as zeros and heap.
typedef struct {
    tni_heap     *heap;
    uint32_t      count;  // one above the highest number
    tni_token    *token;  // by number
    tni_byte_list pool;
    uint32_t     *slot;  // of texts: number + 1, 0 where free
    uint32_t      mask;  // its size less 1
    uint32_t
        of_character[TNI_CHARACTERS];  // the model's tokens of one character, the first code points

    tni_merge *merge;
    uint32_t   merges;
    uint32_t  *pair_slot;  // rank + 1, 0 where free
    uint32_t   pair_mask;
} tni_vocabulary;

// Makes space for tokens with numbers below `numbers`, `count` of them; and for merges. False when
// memory is out.
bool tni_vocabulary_begin(tni_vocabulary *v, uint32_t numbers, uint32_t count);
bool tni_vocabulary_begin_merges(tni_vocabulary *v, uint32_t merges);
void tni_vocabulary_free(tni_vocabulary *v);

// Adds a token, of the model or not. Its number must be in range and free, its text new. False when
// memory is out.
bool tni_vocabulary_add(tni_vocabulary *v, uint32_t id, const char *s, size_t n, bool model);
// The number of a text, or tni_no_token; and of those of the model alone.
uint32_t tni_vocabulary_find(const tni_vocabulary *v, const char *s, size_t n);
uint32_t tni_vocabulary_find_model(const tni_vocabulary *v, const char *s, size_t n);
// Adds a merge of the next rank; a later one of the same pair replaces an earlier one.
void tni_vocabulary_merge(tni_vocabulary *v, tni_merge m);
// The rank of the merge of two tokens, TNI_NO_RANK if there is none.
int64_t tni_vocabulary_rank(const tni_vocabulary *v, uint32_t left, uint32_t right);

static inline const char *tni_token_text(const tni_vocabulary *v, uint32_t id)
{
    return v->pool.data + v->token[id].start;
}

// GPT-2's characters for bytes: those that print as themselves, the others, in order, as the
// characters from 256 on. The character of a byte; the byte of a character, or -1.
uint32_t tni_byte_character(int byte);
int      tni_character_byte(uint32_t c);

#endif
