// test_bpe.c: GPT-2's tokenizer, on a small vocabulary that the tests write; and on GPT-2's own
// where TN_GPT2_DIR names a folder with its vocab.bpe and encoder.json.
#include "data/regex.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"
#include "tiny_bpe.h"

#include <stdlib.h>
#include <string.h>

// ---- files

static tiny_bpe files;

static tn_tokenizer *open_files(tn_ctx *cx)
{
    CHECK(tiny_bpe_write(&files));
    return tn_tokenizer_gpt2(cx, scratch_path("vocab.bpe"), scratch_path("encoder.json"));
}

static tn_ctx *begin(void)
{
    CHECK(scratch_open());
    tiny_bpe_make(&files);
    return rules_open("cpu");
}

static void finish(tn_ctx *cx)
{
    tn_close(cx);
    scratch_close();
}

// ---- encoding

static void check_tokens(tn_tokenizer *b, const char *text, int n, const int64_t *want)
{
    int64_t ids[64] = { 0 };
    int64_t count   = tn_tokenizer_encode(b, text, (int64_t)strlen(text), ids, 64);
    bool    ok      = count == n;
    for (int i = 0; ok && i < n; i++) ok = ids[i] == want[i];
    test_that(ok, "\"%s\" has %lld tokens, %lld %lld %lld ...", text, (long long)count,
              (long long)ids[0], (long long)ids[1], (long long)ids[2]);
}
#define TOKENS(text, ...)                                                              \
    check_tokens(b, text, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
                 (int64_t[]){ __VA_ARGS__ })

static void merges_go_by_rank(void)
{
    tn_ctx       *cx = begin();
    tn_tokenizer *b  = open_files(cx);
    CHECK_INT(tn_tokenizer_count(b), TINY_BPE_COUNT);
    TOKENS("the", THE);
    TOKENS("the the", THE, _THE);
    TOKENS("th", TH);
    TOKENS("thing", TH, ING);
    TOKENS("aaa", AA, 'a');
    TOKENS("aaaaaaa", AAAA, AA, 'a');
    TOKENS("it's", 'i', 't', S);
    TOKENS("!'s", '!', '\'', 's');
    TOKENS("   the", SPACES, _THE);
    TOKENS("\xc3\xa9", E_ACUTE);
    CHECK_INT(tn_tokenizer_encode(b, "", 0, NULL, 0), 0);
    CHECK_INT(tn_tokenizer_encode(b, NULL, 0, NULL, 0), 0);
    CHECK_STATUS(tn_error(cx), TN_OK);
    finish(cx);
}

static void any_bytes_come_back(void)
{
    tn_ctx       *cx = begin();
    tn_tokenizer *b  = open_files(cx);
    char          text[3000], back[3000];
    int64_t       ids[3000];
    uint32_t      r = 1;
    for (int round = 0; round < 100; round++) {
        int64_t n = round * 30;
        for (int64_t i = 0; i < n; i++) {
            r       = r * 1664525 + 1013904223;
            text[i] = (char)(round % 2 ? r >> 24 : (unsigned)"ath i\n's\xc3\xa9"[(r >> 24) % 10]);
        }
        int64_t tokens = tn_tokenizer_encode(b, text, n, ids, 3000);
        CHECK(tokens <= n);
        CHECK_INT(tn_tokenizer_decode(b, ids, tokens, back, 3000), n);
        CHECK(memcmp(text, back, (size_t)n) == 0);
    }
    finish(cx);
}

static void counts_are_told_where_room_is_short(void)
{
    tn_ctx       *cx     = begin();
    tn_tokenizer *b      = open_files(cx);
    int64_t       ids[3] = { -1, -1, -1 };
    char          text[] = "......";
    CHECK_INT(tn_tokenizer_encode(b, "thing a", 7, ids, 1), 4);
    CHECK_INT(ids[0], TH);
    CHECK_INT(ids[1], -1);
    CHECK_INT(tn_tokenizer_encode(b, "thing a", 7, NULL, 0), 4);
    CHECK_INT(tn_tokenizer_decode(b, (int64_t[]){ THE, ING }, 2, text, 4), 6);
    CHECK_STR(text, "thei..");
    finish(cx);
}

static void misuse_is_an_error(void)
{
    tn_ctx       *cx = begin();
    tn_tokenizer *b  = open_files(cx);
    CHECK_INT(tn_tokenizer_encode(b, NULL, 1, NULL, 0), -1);
    CHECK_FAILED(cx, TN_EARG, "tokenizer_encode: an argument is NULL");
    CHECK_INT(tn_tokenizer_encode(b, "a", -1, NULL, 0), -1);
    CHECK_FAILED(cx, TN_EARG, "tokenizer_encode: a count is negative");
    CHECK_INT(tn_tokenizer_encode(b, "a", 1, NULL, 1), -1);
    CHECK_FAILED(cx, TN_EARG, "tokenizer_encode: an argument is NULL");
    CHECK_INT(tn_tokenizer_decode(b, (int64_t[]){ 0, TINY_BPE_COUNT }, 2, NULL, 0), -1);
    CHECK_FAILED(cx, TN_EARG, "tokenizer_decode: ids[1] is 266, of 266 tokens");
    CHECK_INT(tn_tokenizer_decode(b, (int64_t[]){ -1 }, 1, NULL, 0), -1);
    CHECK_FAILED(cx, TN_EARG, "ids[0] is -1");
    CHECK_INT(tn_tokenizer_encode(NULL, "a", 1, NULL, 0), -1);
    CHECK_FAILED(NULL, TN_EARG, "tokenizer_encode");
    CHECK_INT(tn_tokenizer_count(NULL), -1);
    CHECK(tn_tokenizer_gpt2(cx, NULL, scratch_path("encoder.json")) == NULL);
    CHECK_FAILED(cx, TN_EARG, "tokenizer: the path is NULL");
    tn_tokenizer_free(b);
    tn_tokenizer_free(NULL);
    finish(cx);
}

static void text_can_be_tokens(void)
{
    tn_ctx       *cx = begin();
    tn_tokenizer *b  = open_files(cx);
    CHECK(scratch_write(scratch_path("t"), "the thing aaaa", 14));
    tn_data *d = tn_text(cx, scratch_path("t"), (tn_text_opts){ .length = 2, .tokenizer = b });
    tn_tokenizer_free(b);
    CHECK_INT(tn_data_count(d), 2);
    CHECK_INT(tn_data_info(d).classes, TINY_BPE_COUNT);
    tn_data_shuffle(d, false, 0);
    tn_batch batch = tn_next(d, 2);
    CHECK_VALUES(batch.x, THE, ' ', TH, ING);
    CHECK_VALUES(batch.y, ' ', TH, ING, ' ');
    finish(cx);
}

// ---- words

// Whether a text is cut into these words, shown with | between them.
static void check_words(const char *text, const char *want)
{
    static const char words[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    char        got[200] = "";
    const char *end      = text + strlen(text), *from, *to;
    tni_heap    h        = tni_heap_default();
    tni_text    why;
    tni_regex  *r = tni_regex_open(&h, words, sizeof words - 1, &why);
    if (!CHECK(r != NULL)) return;
    for (const char *at = text; at < end; at = to) {
        CHECK(tni_regex_find(r, text, at, end, &from, &to) == TNI_REGEX_FOUND && from == at);
        strncat(got, at, (size_t)(to - at));
        if (to < end) strcat(got, "|");
    }
    CHECK_STR(got, want);
    tni_regex_free(&h, r);
}

static void words_are_cut_as_gpt2_cuts_them(void)
{
    check_words("Hello world", "Hello| world");
    check_words("we're I'll 'tis", "we|'re| I|'ll| '|tis");
    check_words("don't DON'T", "don|'t| DON|'|T");
    check_words("x'", "x|'");
    check_words("a1b22", "a|1|b|22");
    check_words("a  b   ", "a| | b|   ");
    check_words("a\n\n b", "a|\n\n| b");
    check_words("a\t\tb", "a|\t|\t|b");
    check_words("!? ...", "!?| ...");
    check_words(" ", " ");
    check_words("\xc3\xa9t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87",
                "\xc3\xa9t\xc3\xa9| \xe4\xb8\xad\xe6\x96\x87");
    check_words("x\xc2\xb2 \xe2\x85\xab", "x|\xc2\xb2| \xe2\x85\xab");
    check_words("a\xc2\xa0\xe3\x80\x80"
                "b",
                "a|\xc2\xa0|\xe3\x80\x80|b");
    check_words("a\xff\xc3 \x80"
                "1",
                "a|\xff\xc3| \x80|1");
}

// ---- wrong files

// Expects an error with this text after one change of a file: `from`, once there, becomes `to`.
static void expect(tn_ctx *cx, char *file, const char *from, const char *to, const char *part)
{
    tiny_bpe_make(&files);
    char *at = strstr(file, from);
    char  rest[40000];
    if (!CHECK(at != NULL)) return;
    strcpy(rest, at + strlen(from));
    strcpy(at, to);
    strcat(file, rest);
    CHECK(open_files(cx) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, part);
}

static void wrong_files_are_errors(void)
{
    tn_ctx *cx = begin();
    expect(cx, files.json, "\"the\": 257", "\"the\": 266",
           "a token's number is not below their count");
    expect(cx, files.json, "\"the\": 257", "\"the\": -1",
           "a token's number is not below their count");
    expect(cx, files.json, "\"the\": 257", "\"the\": 1.5",
           "a token's number is not below their count");
    expect(cx, files.json, "\"the\": 257", "\"the\": 256", "two tokens have one number");
    expect(cx, files.json, "\"the\": 257", "\"th\": 257", "a token appears twice");
    expect(cx, files.json, "\"the\": 257", "\"\": 257", "a token is empty");
    expect(cx, files.json, "\"the\": 257", "\"t e\": 257", "a character that stands for no byte");
    expect(cx, files.json, "\"the\": 257", "\"\\ud800\": 257",
           "a character that stands for no byte");
    expect(cx, files.json, "\"the\": 257", "\"the\": \"x\"", "a token has no number");
    expect(cx, files.json, "\"the\": 257", "\"the\" 257", "a colon is expected after a key");
    expect(cx, files.json, "{", "[", "it is not an object");
    expect(cx, files.json, "}", "", "the text ends too early");
    expect(cx, files.json, "}", "} 1", "something follows the value");
    expect(cx, files.json, "\"\\u0041\"", "\"xyz\"", "the byte 0x41 has no token");

    expect(cx, files.merges, "th e", "the",
           "vocab.bpe:3: it is not two tokens with a space between them");
    expect(cx, files.merges, "th e", "th e x",
           "vocab.bpe:3: it has a character that stands for no byte");
    expect(cx, files.merges, "th e", " the", "vocab.bpe:3: it is not two tokens");
    expect(cx, files.merges, "th e", "q q",
           "vocab.bpe:3: it has a token, or makes one, that has no number");
    expect(cx, files.merges, "th e", "t h", "vocab.bpe:3: an earlier line merges the same tokens");
    expect(cx, files.merges, "t h\n", "",
           "vocab.bpe:2: it merges a token that no line before it makes");
    tiny_bpe_make(&files);
    strcpy(files.merges, "#version: 0.2\n");
    CHECK(open_files(cx) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "it has no merges");
    CHECK(tn_tokenizer_gpt2(cx, "none", scratch_path("encoder.json")) == NULL);
    CHECK_FAILED(cx, TN_EIO, "tokenizer: none: No such file");
    finish(cx);
}

static void every_allocation_may_fail(void)
{
    CHECK(scratch_open());
    tiny_bpe_make(&files);
    bool done = false;
    for (long n = 1; n < 100 && !done; n++) {
        faulty  h       = { 0 };
        tn_ctx *cx      = faulty_open("cpu", &h);
        h.countdown     = n;
        tn_tokenizer *b = open_files(cx);
        int64_t       k = b ? tn_tokenizer_encode(b, "the thing", 9, NULL, 0) : -1;
        done            = !h.failed;
        test_that(done ? k == 4 : k == -1 && tn_error(cx) == TN_EMEM, "allocation %ld: %s", n,
                  tn_error_text(cx));
        h.countdown = 0;
        tn_close(cx);
        CHECK_INT(h.live, 0);
    }
    CHECK(done);
    scratch_close();
}

// ---- the real one

static void gpt2_has_its_tokens(void)
{
    const char *dir = getenv("TN_GPT2_DIR");
    if (!dir) SKIP("TN_GPT2_DIR names no folder with vocab.bpe and encoder.json");
    char vocab[1024], encoder[1024];
    snprintf(vocab, sizeof vocab, "%s/vocab.bpe", dir);
    snprintf(encoder, sizeof encoder, "%s/encoder.json", dir);
    tn_ctx       *cx = rules_open("cpu");
    tn_tokenizer *b  = tn_tokenizer_gpt2(cx, vocab, encoder);
    if (CHECK(b != NULL)) {
        CHECK_INT(tn_tokenizer_count(b), 50257);
        TOKENS("Hello, world! It's 2024.", 15496, 11, 995, 0, 632, 338, 48609, 13);
        TOKENS("  a\n\n\tb  ", 220, 257, 628, 197, 65, 220, 220);
    }
    tn_close(cx);
}

const test_case tests_bpe[] = {
    TEST(merges_go_by_rank),
    TEST(any_bytes_come_back),
    TEST(counts_are_told_where_room_is_short),
    TEST(misuse_is_an_error),
    TEST(text_can_be_tokens),
    TEST(words_are_cut_as_gpt2_cuts_them),
    TEST(wrong_files_are_errors),
    TEST(every_allocation_may_fail),
    TEST(gpt2_has_its_tokens),
    TEST_END,
};
