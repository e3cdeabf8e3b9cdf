// tiny_bpe.h: a tokenizer of 266 tokens, as GPT-2's two files write one.
#ifndef TEST_TINY_BPE_H
#define TEST_TINY_BPE_H

#include <stdbool.h>

// The texts of the files, for a test to change.
typedef struct {
    char json[40000], merges[4000];
} tiny_bpe;

// Tokens 0 .. 255 are the bytes; then come merges.
enum { TH = 256, THE, _THE, AA, AAAA, IN, ING, SPACES, S, E_ACUTE, TINY_BPE_COUNT };

void tiny_bpe_make(tiny_bpe *t);
// Writes encoder.json and vocab.bpe into the scratch folder.
bool tiny_bpe_write(const tiny_bpe *t);

#endif
