// The files of a small tokenizer.
#include "tiny_bpe.h"

#include "scratch.h"

#include <stdio.h>
#include <string.h>

static bool prints(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The number of the character that stands for a byte, as GPT-2 has it.
static unsigned character_of(int byte)
{
    unsigned spare = 256;
    for (int v = 0; v < byte; v++) spare += !prints(v);
    return prints(byte) ? (unsigned)byte : spare;
}

// Each token after the bytes is a merge of its two parts, written as in the file: "\xc4\xa0" is a
// space.
static const char *const pairs[][2] = {
    { "t", "h" },          { "th", "e" },
    { "\xc4\xa0", "the" }, { "a", "a" },
    { "aa", "aa" },        { "i", "n" },
    { "in", "g" },         { "\xc4\xa0", "\xc4\xa0" },
    { "'", "s" },          { "\xc3\x83", "\xc2\xa9" },
};
enum { PAIRS = sizeof pairs / sizeof *pairs };
_Static_assert(TH + PAIRS == TINY_BPE_COUNT, "a name for every merge");

void tiny_bpe_make(tiny_bpe *t)
{
    char *json = t->json, *merges = t->merges;
    json += sprintf(json, "{");
    merges += sprintf(merges, "#version: 0.2\n");
    for (int v = 0; v < 256; v++)
        json += sprintf(json, "%s\"\\u%04x\": %d", v ? ", " : "", character_of(v), v);
    for (int i = 0; i < PAIRS; i++) {
        json += sprintf(json, ", \"%s%s\": %d", pairs[i][0], pairs[i][1], TH + i);
        merges += sprintf(merges, "%s %s\n", pairs[i][0], pairs[i][1]);
    }
    sprintf(json, "}");
}

bool tiny_bpe_write(const tiny_bpe *t)
{
    return scratch_write(scratch_path("encoder.json"), t->json, strlen(t->json)) &&
           scratch_write(scratch_path("vocab.bpe"), t->merges, strlen(t->merges));
}
