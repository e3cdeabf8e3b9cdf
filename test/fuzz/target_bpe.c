// Fuzzes the tokenizers. The first byte of an input says what the rest is: an encoder.json ('e'), a
// vocab.bpe ('v') or a text ('t'), beside good files for the others: whatever is encoded must come
// back. Or a tokenizer.json ('j'), which is opened and encodes some text.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char merges[] = "#version: 0.2\nt h\nth e\na a\naa aa\n\xc4\xa0 the\n";

// Tokens for all bytes, spelled as in GPT-2's file, and for what the merges make.
static size_t make_encoder(char *json)
{
    int spare = 256, at = sprintf(json, "{");
    for (int v = 0; v < 256; v++) {
        bool prints = (v >= 33 && v <= 126) || (v >= 161 && v <= 172) || v >= 174;
        at += sprintf(json + at, "\"\\u%04x\":%d,", (unsigned)(prints ? v : spare), v);
        spare += !prints;
    }
    at += sprintf(json + at, "\"th\":256,\"the\":257,\"aa\":258,\"aaaa\":259,\"\xc4\xa0the\":260}");
    return (size_t)at;
}

static const char json[] =
    "j{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true,\"lstrip\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s)|_?\\\\p{L}+|[^a-z]{1,3}?|\\\\s+"
    "(?!\\\\S)\"},\"behavior\":\"MergedWithNext\",\"invert\":false},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"byte_fallback\":true,"
    "\"vocab\":{\"_\":0,\"a\":1,\"_a\":2,\"?\":3},\"merges\":[\"_ a\"]}}";

static void seeds(void)
{
    fuzz_seed(json, sizeof json - 1);
    static char       input[1 << 13] = "e";
    static const char text[]         = "tthe thing's  aaaaa\n\n \xc3\xa9\xe4\xb8\xad 12\xff";
    fuzz_seed(text, sizeof text - 1);
    fuzz_seed(input, 1 + make_encoder(input + 1));
    fuzz_seed("e{\"a\":0}", 8);
    input[0] = 'v';
    memcpy(input + 1, merges, sizeof merges - 1);
    fuzz_seed(input, sizeof merges);
}

// Encodes a text and decodes it again.
static void there_and_back(tn_tokenizer *b, const char *text, int64_t n)
{
    int64_t *ids  = malloc(((size_t)n + 1) * sizeof *ids);
    char    *back = malloc((size_t)n + 1);
    int64_t  k    = tn_tokenizer_encode(b, text, n, ids, n);
    FUZZ_CHECK(k >= 0 && k <= n);
    FUZZ_CHECK(tn_tokenizer_decode(b, ids, k, back, n) == n);
    FUZZ_CHECK(memcmp(text, back, (size_t)n) == 0);
    free(ids);
    free(back);
}

// A tokenizer.json need not have tokens for every text, so only its calls must succeed.
static uint64_t run_json(const char *rest, size_t length)
{
    static const char text[] = "a <s> a's  12\xc3\xa9\xff_a";
    int64_t           ids[64];
    char              back[64];
    tn_ctx           *cx = fuzz_open();
    tn_tokenizer     *t  = tn_tokenizer_open(cx, fuzz_file("tokenizer.json", rest, length));
    FUZZ_CHECK((t == NULL) == (tn_error(cx) != TN_OK));
    int64_t n = t ? tn_tokenizer_encode(t, text, sizeof text - 1, ids, 64) : 0;
    if (n > 0 && n <= 64) FUZZ_CHECK(tn_tokenizer_decode(t, ids, n, back, 64) >= 0);
    return fuzz_join((uint64_t)n, fuzz_close(cx, length + 1));
}

static uint64_t run(const unsigned char *data, size_t n)
{
    if (n && data[0] == 'j') return run_json((const char *)data + 1, n - 1);
    static char   good[1 << 13];
    int           kind    = n ? data[0] : 'e';
    const char   *rest    = (const char *)data + (n > 0);
    size_t        length  = n - (n > 0);
    const char   *encoder = kind == 'v' || kind == 't'
                                ? fuzz_file("encoder.json", good, make_encoder(good))
                                : fuzz_file("encoder.json", rest, length);
    const char   *vocab   = kind == 'v' ? fuzz_file("vocab.bpe", rest, length)
                                        : fuzz_file("vocab.bpe", merges, sizeof merges - 1);
    tn_ctx       *cx      = fuzz_open();
    tn_tokenizer *b       = tn_tokenizer_gpt2(cx, vocab, encoder);
    FUZZ_CHECK((b == NULL) == (tn_error(cx) != TN_OK));
    if (b) there_and_back(b, rest, (int64_t)length);
    uint64_t count = b ? (uint64_t)tn_tokenizer_count(b) : 0;
    return fuzz_join(count, fuzz_close(cx, n));
}

static const char *const tokens[] = { "\"the\":", "\"",     "\\u0120", "256",      "261",   "{",
                                      "}",        "\\p{L}", "(?",      "{1,2}",    "t h\n", "a a",
                                      "\n",       " ",      "'s",      "#version", NULL };

const fuzz_target fuzz_bpe = { .name = "bpe", .seeds = seeds, .run = run, .tokens = tokens };
