// speaking.c: prompts, and the ways of choosing tokens.
#include "speaking.h"

static const int64_t first[] = { 1, 2, 3, 4, 5 }, second[] = { 7, 9 }, third[] = { 40 };

const tn_tokens prompts[PROMPTS] = { { first, 5 }, { second, 2 }, { third, 1 } };

tn_generate_opts way_of_choosing(int i, int64_t count)
{
    tn_generate_opts o = { .max_tokens = count, .seed = 5 };
    if (i == 1) o.sample.temperature = 1;
    if (i == 2) o.sample = (tn_sample_opts){ .temperature = 0.8, .top_k = 8, .top_p = 0.9 };
    if (i == 3) o.repetition_penalty = 1.7;
    return o;
}
