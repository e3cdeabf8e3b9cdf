// test_tokenizer.c: tokenizer.json files. test/recordings/tokenizers has one of each kind, trained
// by PyPI's `tokenizers`, with the ids that it gives for some texts (test/peer/tokenizers_side.py).
#include "base/json.h"
#include "data/regex.h"
#include "data/unicode.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"
#include "tree.h"

#include <stdlib.h>
#include <string.h>

#define FOLDER TN_SOURCE_DIR "/test/recordings/tokenizers/"
enum { MOST = 4096 };

// ---- recorded ids

// Reads a list of numbers; returns how many.
static int64_t read_ids(tni_json *j, int64_t *ids)
{
    int64_t n = 0;
    CHECK(tni_json_next(j) == TNI_JSON_ARRAY);
    while (tni_json_next(j) == TNI_JSON_NUMBER && n < MOST) tni_json_int(j, &ids[n++]);
    return n;
}

static void check_ids(const char *name, const char *text, const int64_t *want, int64_t n,
                      const int64_t *got, int64_t count)
{
    bool same = n == count;
    for (int64_t i = 0; same && i < n; i++) same = want[i] == got[i];
    test_that(same, "%s: \"%s\" has %lld tokens, not %lld", name, text, (long long)count,
              (long long)n);
}

// The tokens one by one give what they give together.
static void check_stream(tn_tokenizer *t, const int64_t *ids, int64_t n)
{
    char            whole[MOST], parts[MOST];
    tn_token_stream s     = { 0 };
    int64_t         bytes = tn_tokenizer_decode(t, ids, n, whole, MOST), at = 0;
    bool            text = tni_utf8_ok(whole, (size_t)bytes);  // an added token may be none
    for (int64_t i = 0; i < n; i++) {
        int64_t k = tn_tokenizer_stream(t, &s, ids[i], parts + at, MOST - at);
        CHECK(k >= 0 && (!text || tni_utf8_ok(parts + at, (size_t)k)));
        at += k;
    }
    at += tn_tokenizer_stream(t, &s, -1, parts + at, MOST - at);
    CHECK_INT(at, bytes);
    CHECK(memcmp(whole, parts, (size_t)bytes) == 0);
}

// Compares with one file of recorded rows: [text, ids, ids with special tokens].
static void check_recorded(tn_ctx *cx, const char *name)
{
    static char    text[MOST];
    static int64_t want[MOST], got[MOST];
    char           path[1024];
    tni_json       j;
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    tn_tokenizer *t = tn_tokenizer_open(cx, path);
    snprintf(path, sizeof path, "test/recordings/tokenizers/%s.ids.json", name);
    char *rows = tree_read(path, NULL);
    if (!CHECK(t && rows)) return;
    tni_json_open(&j, rows, strlen(rows));
    tni_json_next(&j);
    int count = 0;
    for (; tni_json_next(&j) == TNI_JSON_ARRAY; count++) {
        tni_json_next(&j);
        int64_t bytes = tni_json_string(&j, text, MOST), n = read_ids(&j, want);
        int64_t k = tn_tokenizer_encode(t, text, bytes, got, MOST);
        check_ids(name, text, want, n, got, k);
        check_stream(t, got, k);
        n = read_ids(&j, want);
        k = tn_tokenizer_encode_with(t, text, bytes, got, MOST,
                                     (tn_encode_opts){ .add_special = true });
        check_ids(name, text, want, n, got, k);
        tni_json_next(&j);
    }
    CHECK(count > 50);
    free(rows);
    tn_tokenizer_free(t);
}

static void ids_are_those_of_the_tokenizers_library(void)
{
    static const char *const names[] = { "gpt2", "llama3", "qwen", "llama2", "metaspace" };
    tn_ctx                  *cx      = rules_open("cpu");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_recorded(cx, names[i]);
    tn_close(cx);
}

// ---- regular expressions

// Whether the matches of a pattern in a text are these, shown with | between them.
static void check_matches(const char *pattern, const char *text, const char *want)
{
    char        got[400] = "";
    const char *end      = text + strlen(text), *from, *to;
    tni_heap    h        = tni_heap_default();
    tni_text    why;
    tni_regex  *r = tni_regex_open(&h, pattern, strlen(pattern), &why);
    if (!test_that(r != NULL, "%s: %s", pattern, why.s)) return;
    for (const char *at = text; at<end; at = to> at ? to : at + 1) {
        if (tni_regex_find(r, text, at, end, &from, &to) != TNI_REGEX_FOUND) break;
        if (*got) strcat(got, "|");
        strncat(got, from, (size_t)(to - from));
    }
    test_that(!strcmp(got, want), "%s in \"%s\": \"%s\", not \"%s\"", pattern, text, got, want);
    tni_regex_free(&h, r);
}

static void patterns_match_as_oniguruma_does(void)
{
    check_matches("a+", "aabaaa", "aa|aaa");
    check_matches("a+?", "aa", "a|a");
    check_matches("a{2}", "aaaaa", "aa|aa");
    check_matches("a{1,3}", "aaaaa", "aaa|aa");
    check_matches("a{,2}b", "aaab b", "aab|b");
    check_matches("a{2,}?b", "aaab", "aaab");
    check_matches("(ab|a)(c|bcd)", "abcd", "abc");
    check_matches("(?>ab|a)(c|bcd)", "abbcd abc", "abbcd|abc");
    check_matches("(?:ab)+c", "ababc abc", "ababc|abc");
    check_matches("(?:ab){2,3}", "abababab", "ababab");
    check_matches("(?:ab)?c", "abc c", "abc|c");
    check_matches("(?:ab)*+a", "aba", "aba");
    check_matches("(?:a|b){0,2}c", "abc c abac", "abc|c|bac");
    check_matches("a++a|b", "aab", "b");
    check_matches("\\s+(?!\\S)|\\s+|\\S+", "a   b ", "a|  | |b| ");
    check_matches("a(?=b)", "abaab", "a|a");
    check_matches("(?<=b)a|(?<!b)c", "baca bc", "a|c");
    check_matches("^a|b$", "ab\nab", "a|b|a|b");
    check_matches("\\Aa|b\\z", "ab\nab", "a|b");
    check_matches("\\ba\\w*", "ab cab a", "ab|a");
    check_matches("(?i:'s|ll)", "'S lL \xc5\xbf", "'S|lL");
    check_matches("(?i)AB", "ab Ab", "ab|Ab");
    check_matches("[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "(ab\ncd", "(ab|cd");
    check_matches("[a-c\\d_\\-\\]]+", "ab1_-]d", "ab1_-]");
    check_matches("\\p{Lu}\\p{^Lu}", "Ab\xc3\x89\xc3\xa9", "Ab|\xc3\x89\xc3\xa9");
    check_matches("\\P{L}", "a1", "1");
    check_matches("\\x41\\x{42}\\u0043\\.", "ABC.", "ABC.");
    check_matches(".", "a\n\xff", "a|\xff");
    check_matches("a{x", "a{x", "a{x");
    check_matches("[\xe4\xb8\x80-\xe9\xbe\xa5]+", "a\xe4\xb8\xad\xe6\x96\x87",
                  "\xe4\xb8\xad\xe6\x96\x87");
}

static void unsupported_patterns_are_named(void)
{
    static const char *const wrong[][2] = {
        { "(?<name>a)", "this kind of group is not supported: \"(?<name>a)\" at byte 0" },
        { "a\\1", "this escape is not supported: \"\\1\" at byte 1" },
        { "\\p{Han}", "this property of characters is not supported" },
        { "[a&&b]", "classes inside classes" },
        { "[[:alpha:]]", "classes inside classes" },
        { "(?<=ab)c", "a look-behind of more than one character" },
        { "(a*)*", "a repetition of what can be empty" },
        { "a**", "a repetition of a repetition" },
        { "a{3,2}", "limits are in the wrong order" },
        { "a{2000}", "a repetition of more than 1000" },
        { "(a", "a group has no end" },
        { "a)", "a bracket closes nothing" },
        { "[a", "a class has no end" },
        { "*a", "a repetition of nothing" },
        { "[b-a]", "a range of characters is empty" },
        { "\\", "this escape is not supported" },
        { "((a{1000}){1000}){1000}", "the pattern is too long" },
    };
    tni_heap h = tni_heap_default();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tni_text   why;
        tni_regex *r = tni_regex_open(&h, wrong[i][0], strlen(wrong[i][0]), &why);
        test_that(!r && strstr(why.s, wrong[i][1]), "%s: \"%s\"", wrong[i][0], why.s);
        tni_regex_free(&h, r);
    }
}

static void a_pattern_that_takes_too_long_is_given_up(void)
{
    char        text[64];
    const char *pattern = "(?:a|a|a)+b", *from, *to;
    tni_heap    h       = tni_heap_default();
    tni_text    why;
    tni_regex  *r = tni_regex_open(&h, pattern, strlen(pattern), &why);
    memset(text, 'a', sizeof text);
    if (!CHECK(r != NULL)) return;
    CHECK(tni_regex_find(r, text, text, text + 64, &from, &to) == TNI_REGEX_TOO_LONG);
    tni_regex_free(&h, r);
}

// ---- canonical forms

static void check_form(const char *text, bool composed, const char *want)
{
    tni_heap      h  = tni_heap_default();
    tni_byte_list to = { 0 };
    CHECK(tni_canonical(&h, &to, text, strlen(text), composed));
    CHECK(tni_byte_list_add(&h, &to, "", 1));
    CHECK_STR(to.data, want);
    tni_free(&h, to.data);
}

static void canonical_forms_are_unicodes(void)
{
    check_form("plain", true, "plain");
    check_form("e\xcc\x81", true, "\xc3\xa9");
    check_form("\xc3\xa9", false, "e\xcc\x81");
    check_form("a\xcc\x81\xcc\xa3", true, "\xe1\xba\xa1\xcc\x81");  // marks are ordered first
    check_form("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", true, "\xea\xb0\x81");
    check_form("\xea\xb0\x81", false, "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8");
    check_form("\xe2\x84\xaa", true, "K");                         // the kelvin sign is a letter
    check_form("\xe0\xa5\x98", true, "\xe0\xa4\x95\xe0\xa4\xbc");  // never composed
    check_form("e\xff\xcc\x81", true, "e\xff\xcc\x81");
}

// ---- files

static const char small[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true,\"normalized\":false}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
    "\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[4]}}},"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"_\":0,\"a\":1,\"_a\":2,\"?\":3},"
    "\"merges\":[\"_ a\"]}}";

static tn_tokenizer *open_text(tn_ctx *cx, const char *json)
{
    CHECK(scratch_write(scratch_path("tokenizer.json"), json, strlen(json)));
    return tn_tokenizer_open(cx, scratch_path("tokenizer.json"));
}

// Expects an error with this text after one change of the small file.
static void expect(tn_ctx *cx, const char *from, const char *to, const char *part)
{
    char        json[2048];
    const char *at = strstr(small, from);
    if (!CHECK(at != NULL)) return;
    snprintf(json, sizeof json, "%.*s%s%s", (int)(at - small), small, to, at + strlen(from));
    CHECK(open_text(cx, json) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, part);
}

static void wrong_files_are_errors(void)
{
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    expect(cx, "{\"added", "[\"added", "tokenizer.json: it is not an object");
    expect(cx, "]}}", "]}", "the text ends too early");
    expect(cx, "\"model\"", "\"modal\"", "it has no model");
    expect(cx, "\"BPE\"", "\"Unigram\"", "its model is not byte-pair encoding (BPE)");
    expect(cx, "\"type\":\"BPE\"", "\"type\":\"BPE\",\"dropout\":0.1", "dropout");
    expect(cx, "\"type\":\"BPE\"", "\"end_of_word_suffix\":\"</w>\"",
           "\"end_of_word_suffix\" is not supported");
    expect(cx, "\"a\":1", "\"a\":0", "the token \"a\" has the number of another");
    expect(cx, "\"a\":1", "\"_\":1", "the token \"_\" appears twice");
    expect(cx, "\"a\":1", "\"a\":-1", "a token's number is not in 0 .. ");
    expect(cx, "\"a\":1", "\"a\":99999999", "a token's number is not in 0 .. ");
    expect(cx, "\"unk_token\":\"?\"", "\"unk_token\":\"!\"", "the unknown token \"!\" is no token");
    expect(cx, "\"_ a\"", "\"_a\"", "is not two tokens with a space between them");
    expect(cx, "\"_ a\"", "\"a _\"", "makes what \"a_\" is no token");
    expect(cx, "\"_ a\"", "[\"_\",\"b\"]", "has a part that");
    expect(cx, "\"_ a\"", "[\"_\"]", "a text is expected");
    expect(cx, "\"id\":4", "\"id\":3", "the added token \"<s>\" has the number of another");
    expect(cx, "\"content\":\"<s>\"", "\"content\":\"a\"",
           "the added token \"a\" has another number in the vocabulary");
    expect(cx, "\"content\":\"<s>\"", "\"content\":\"\"", "is empty");
    expect(cx, "\"special\":true", "\"special\":1", "\"special\" is neither true nor false");
    expect(cx, "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}",
           "the normalizer \"NFKC\" is not supported");
    expect(cx, "\"type\":\"Metaspace\"", "\"type\":\"UnicodeScripts\"",
           "the pre_tokenizer \"UnicodeScripts\" is not supported");
    expect(cx, "\"type\":\"Metaspace\"",
           "\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Greek}\"}",
           "in a pattern, this property of characters is not supported");
    expect(cx, "\"ids\":[4]", "\"ids\":[9]", "the post_processor adds the token 9, which is none");
    expect(cx, "\"decoder\":{\"type\":\"Metaspace\"", "\"decoder\":{\"type\":\"CTC\"",
           "the decoder \"CTC\" is not supported");
    CHECK(tn_tokenizer_open(cx, "none.json") == NULL);
    CHECK_FAILED(cx, TN_EIO, "tokenizer: none.json: No such file");
    CHECK(tn_tokenizer_open(cx, TN_SOURCE_DIR) == NULL);
    CHECK_FAILED(cx, TN_EIO, "it has no tokenizer.json");
    CHECK(tn_tokenizer_open(cx, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "tokenizer: the path is NULL");
    tn_close(cx);
    scratch_close();
}

static void tokens_have_names_and_numbers(void)
{
    CHECK(scratch_open());
    tn_ctx       *cx = rules_open("cpu");
    tn_tokenizer *t  = open_text(cx, small);
    int64_t       ids[8];
    char          text[8] = "";
    CHECK_INT(tn_tokenizer_count(t), 5);
    CHECK_STR(tn_tokenizer_token(t, 2), "_a");
    CHECK(tn_tokenizer_token(t, 5) == NULL && tn_tokenizer_token(t, -1) == NULL);
    CHECK_INT(tn_tokenizer_id(t, "_a"), 2);
    CHECK_INT(tn_tokenizer_id(t, "x"), -1);
    CHECK(tn_tokenizer_is_special(t, 4) && !tn_tokenizer_is_special(t, 2));
    CHECK_INT(tn_tokenizer_encode(t, "a <s>x", 6, ids, 8), 5);
    CHECK(ids[0] == 2 && ids[1] == 0 && ids[2] == 4 && ids[3] == 0 && ids[4] == 3);
    tn_encode_opts plain = { .plain = true };
    CHECK_INT(tn_tokenizer_encode_with(t, "<s>", 3, ids, 8, plain), 4);
    CHECK(ids[0] == 0 && ids[1] == 3 && ids[2] == 3 && ids[3] == 3);
    CHECK_INT(tn_tokenizer_decode(t, (int64_t[]){ 2, 2 }, 2, text, 8), 3);
    CHECK_STR(text, "a a");
    CHECK(tn_tokenizer_open(cx, scratch_path("")) != NULL);  // the folder
    tn_token_stream s = { 0 };
    CHECK_INT(tn_tokenizer_stream(t, &s, 7, text, 8), -1);
    CHECK_FAILED(cx, TN_EARG, "tokenizer_stream: id is 7, of 5 tokens");
    CHECK_INT(tn_tokenizer_stream(t, &s, 2, text, 0), 1);  // too little room: as before
    CHECK_INT(s.tokens, 0);
    tn_close(cx);
    scratch_close();
}

static void every_allocation_may_fail(void)
{
    CHECK(scratch_open());
    CHECK(scratch_write(scratch_path("tokenizer.json"), small, sizeof small - 1));
    bool done = false;
    for (long n = 1; n < 300 && !done; n++) {
        faulty  h       = { 0 };
        tn_ctx *cx      = faulty_open("cpu", &h);
        h.countdown     = n;
        tn_tokenizer *t = tn_tokenizer_open(cx, scratch_path("tokenizer.json"));
        int64_t       k = t ? tn_tokenizer_encode(t, "a a", 3, NULL, 0) : -1;
        done            = !h.failed;
        test_that(done ? k == 2 : k == -1 && tn_error(cx) == TN_EMEM, "allocation %ld: %s", n,
                  tn_error_text(cx));
        h.countdown = 0;
        tn_close(cx);
        CHECK_INT(h.live, 0);
    }
    CHECK(done);
    scratch_close();
}

const test_case tests_tokenizer[] = {
    TEST(ids_are_those_of_the_tokenizers_library),
    TEST(patterns_match_as_oniguruma_does),
    TEST(unsupported_patterns_are_named),
    TEST(a_pattern_that_takes_too_long_is_given_up),
    TEST(canonical_forms_are_unicodes),
    TEST(wrong_files_are_errors),
    TEST(tokens_have_names_and_numbers),
    TEST(every_allocation_may_fail),
    TEST_END,
};
