// speaking.h: what tests of generation continue, and how.
#ifndef TEST_SPEAKING_H
#define TEST_SPEAKING_H

#include "tenon.h"
#include "tenon/models.h"

// PROMPTS: of unequal lengths, of tokens below 50. WAYS: of choosing a token.
enum { PROMPTS = 3, WAYS = 4 };

extern const tn_tokens prompts[PROMPTS];

// Way i of choosing each of `count` new tokens: the most likely one, one drawn from all, one drawn
// from few, and the most likely one of those that were not there.
tn_generate_opts way_of_choosing(int i, int64_t count);

#endif
