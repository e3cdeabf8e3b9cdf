// test_json.c: the reader of JSON takes what RFC 8259 allows and nothing else; the writer writes
// it.
#include "base/json.h"
#include "check.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

// Reads all of a text that lies in memory of just its size, so that a sanitizer sees a step past
// it. NULL if it is good, else what is wrong.
static const char *fault_of(const char *text, size_t n)
{
    char    *copy = malloc(n ? n : 1);
    tni_json j;
    if (n) memcpy(copy, text, n);
    tni_json_open(&j, copy, n);
    while (tni_json_next(&j) != TNI_JSON_END && j.kind != TNI_JSON_ERROR) continue;
    const char *why = j.kind == TNI_JSON_ERROR ? j.why : NULL;
    CHECK(tni_json_next(&j) == j.kind);
    free(copy);
    return why;
}

static void good_texts_are_read(void)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "-12.5e+3",
        "1E5",
        "\"\"",
        "true",
        " false ",
        "\tnull\r\n",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[1,2,3]",
        "[[],{},[[]]]",
        "{\"a\":1,\"b\":[true,{\"c\":null}]}",
        "{\"\":\"\"}",
        "{\"a\":1,\"a\":2}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
        "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \x7f\"",
        "\"\\ud800\"",
        "1e999",
        "123456789012345678901234567890",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *why = fault_of(texts[i], strlen(texts[i]));
        test_case_result(!why, "%s: %s", texts[i], why);
    }
}

static void bad_texts_are_refused_with_their_reason(void)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "", "the text ends too early" },
        { " ", "the text ends too early" },
        { "[", "the text ends too early" },
        { "[1,", "the text ends too early" },
        { "{\"a\"", "a colon is expected after a key" },
        { "{\"a\":", "the text ends too early" },
        { "[1 2]", "a comma or a closing bracket is expected" },
        { "[1,]", "a value is expected" },
        { "{\"a\":1,}", "a key is expected" },
        { "{,}", "a key is expected" },
        { "{1:2}", "a key is expected" },
        { "{\"a\" 1}", "a colon is expected after a key" },
        { "{\"a\":}", "a value is expected" },
        { "[}", "a value is expected" },
        { "{]", "a key is expected" },
        { "[1}", "a comma or a closing bracket is expected" },
        { "]", "a value is expected" },
        { "1 2", "something follows the value" },
        { "{} x", "something follows the value" },
        { "nul", "a value is expected" },
        { "True", "a value is expected" },
        { "nan", "a value is expected" },
        { "+1", "a value is expected" },
        { ".5", "a value is expected" },
        { "-", "a number has no digits" },
        { "01", "a number begins with 0" },
        { "-012", "a number begins with 0" },
        { "1.", "a number has no digits after its point" },
        { "1.e5", "a number has no digits after its point" },
        { "1e", "a number has no digits in its exponent" },
        { "1e+", "a number has no digits in its exponent" },
        { "0x10", "something follows the value" },
        { "'a'", "a value is expected" },
        { "\"a", "a string has no end" },
        { "\"a\n\"", "a string holds a control character" },
        { "\"\\x\"", "an escape is wrong" },
        { "\"\\u12g4\"", "an escape is wrong" },
        { "\"\\u12", "an escape is wrong" },
        { "\"\\", "an escape is wrong" },
        { "\"\x80\"", "a character is not UTF-8" },
        { "\"\xc0\xaf\"", "a character is not UTF-8" },
        { "\"\xed\xa0\x80\"", "a character is not UTF-8" },
        { "\"\xf4\x90\x80\x80\"", "a character is not UTF-8" },
        { "\"\xe2\x82\"", "a character is not UTF-8" },
        { "\xef\xbb\xbf{}", "a value is expected" },
        { "[/* */]", "a value is expected" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = fault_of(cases[i].text, strlen(cases[i].text));
        test_case_result(why && strcmp(why, cases[i].why) == 0, "%s: %s, not %s", cases[i].text,
                         why ? why : "no fault", cases[i].why);
    }
}

static void a_zero_byte_is_no_white_space(void)
{
    CHECK_STR(fault_of("{}\0", 3), "something follows the value");
    CHECK_STR(fault_of("\"\0\"", 3), "a string holds a control character");
}

static void a_text_cut_anywhere_is_refused(void)
{
    static const char text[] =
        "{\"a\":[1,-2.5e3,true,false,null],\"b\":{\"c\":\"\\u00e9\xc3\xa9\\n\"}}";
    CHECK(fault_of(text, sizeof text - 1) == NULL);
    for (size_t n = 0; n < sizeof text - 1; n++)
        test_case_result(fault_of(text, n) != NULL, "the first %zu bytes are taken", n);
}

static void brackets_nest_64_deep(void)
{
    char text[2 * TNI_JSON_DEPTH + 2];
    memset(text, '[', TNI_JSON_DEPTH);
    memset(text + TNI_JSON_DEPTH, ']', TNI_JSON_DEPTH);
    CHECK(fault_of(text, 2 * TNI_JSON_DEPTH) == NULL);
    memset(text, '[', TNI_JSON_DEPTH + 1);
    memset(text + TNI_JSON_DEPTH + 1, ']', TNI_JSON_DEPTH + 1);
    CHECK_STR(fault_of(text, sizeof text), "too many nested brackets");
}

// The reader at its first token.
static tni_json first(const char *text)
{
    tni_json j;
    tni_json_open(&j, text, strlen(text));
    tni_json_next(&j);
    return j;
}

static void strings_are_unescaped(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "\"plain\"", "plain" },
        { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t" },
        { "\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac" },
        { "\"\\uD83D\\ude00!\"", "\xf0\x9f\x98\x80!" },
        { "\"\\\\u0041\"", "\\u0041" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char     text[64];
        tni_json j = first(cases[i].text);
        CHECK_INT(tni_json_string(&j, text, sizeof text), strlen(cases[i].want));
        CHECK_STR(text, cases[i].want);
        CHECK(tni_json_is(&j, cases[i].want));
        CHECK(!tni_json_is(&j, ""));
        strcat(text, "x");
        CHECK(!tni_json_is(&j, text));
    }
}

static void half_a_surrogate_pair_is_no_text(void)
{
    static const char *const texts[] = { "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800x\"",
                                         "\"\\ud800\\n\"", "\"\\ud800\\ud800\"" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char     text[8];
        tni_json j = first(texts[i]);
        CHECK_INT(tni_json_string(&j, text, sizeof text), -1);
        CHECK(!tni_json_is(&j, "?"));
    }
}

static void a_long_string_is_cut_to_the_room(void)
{
    char     text[4] = "zzz";
    tni_json j       = first("\"abcdef\"");
    CHECK_INT(tni_json_string(&j, text, sizeof text), 6);
    CHECK_STR(text, "abc");
    CHECK_INT(tni_json_string(&j, NULL, 0), 6);
}

static void integers_are_exact_or_refused(void)
{
    static const struct {
        const char *text;
        bool        ok;
        int64_t     want;
    } cases[] = {
        { "0", true, 0 },
        { "-0", true, 0 },
        { "-17", true, -17 },
        { "9223372036854775807", true, INT64_MAX },
        { "-9223372036854775808", true, INT64_MIN },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775809", false, 0 },
        { "18446744073709551617", false, 0 },
        { "1.0", false, 0 },
        { "1e3", false, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t  v = 0;
        tni_json j = first(cases[i].text);
        test_case_result(tni_json_int(&j, &v) == cases[i].ok && v == cases[i].want, "%s",
                         cases[i].text);
    }
}

static void numbers_become_doubles(void)
{
    static const struct {
        const char *text;
        double      want;
    } cases[] = {
        { "0.1", 0.1 }, { "-2.5e3", -2500 }, { "1e-400", 0 }, { "1.7976931348623157e308", DBL_MAX }
    };
    double v;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tni_json j = first(cases[i].text);
        CHECK(tni_json_double(&j, &v) && v == cases[i].want);
    }
    tni_json j = first("1e999");
    CHECK(!tni_json_double(&j, &v));
}

static void a_value_can_be_skipped(void)
{
    tni_json j = first("{\"a\":[1,{\"b\":[]},2],\"c\":3}");
    CHECK(tni_json_next(&j) == TNI_JSON_KEY && tni_json_next(&j) == TNI_JSON_ARRAY);
    CHECK(tni_json_skip(&j));
    CHECK(tni_json_next(&j) == TNI_JSON_KEY && tni_json_is(&j, "c"));
    CHECK(tni_json_next(&j) == TNI_JSON_NUMBER && tni_json_skip(&j));
    CHECK(tni_json_next(&j) == TNI_JSON_OBJECT_END && tni_json_next(&j) == TNI_JSON_END);
    j = first("[1, 2");
    CHECK(!tni_json_skip(&j));
}

static void what_is_written_can_be_read(void)
{
    static const char text[] = "a \"quote\", a \\, \n\x01\x7f and \xc3\xa9";
    tni_heap          heap   = tni_heap_default();
    tni_json_writer   w      = { .heap = &heap };
    tni_json_put(&w, "[");
    tni_json_quote(&w, text);
    tni_json_put(&w, ",");
    tni_json_put_int(&w, INT64_MIN);
    tni_json_put(&w, "]");
    if (!CHECK(!w.full)) return;
    CHECK_STR(
        w.text,
        "[\"a \\\"quote\\\", a \\\\, \\u000a\\u0001\x7f and \xc3\xa9\",-9223372036854775808]");
    CHECK_INT(strlen(w.text), w.bytes);
    tni_json j = first(w.text);
    CHECK(tni_json_next(&j) == TNI_JSON_STRING && tni_json_is(&j, text));
    tni_free(&heap, w.text);
}

const test_case tests_json[] = {
    TEST(good_texts_are_read),
    TEST(bad_texts_are_refused_with_their_reason),
    TEST(a_zero_byte_is_no_white_space),
    TEST(a_text_cut_anywhere_is_refused),
    TEST(brackets_nest_64_deep),
    TEST(strings_are_unescaped),
    TEST(half_a_surrogate_pair_is_no_text),
    TEST(a_long_string_is_cut_to_the_room),
    TEST(integers_are_exact_or_refused),
    TEST(numbers_become_doubles),
    TEST(a_value_can_be_skipped),
    TEST(what_is_written_can_be_read),
    TEST_END,
};
