// Fuzzes the reader of JSON: all of an input's tokens, then its first value skipped.
#include "base/json.h"
#include "fuzz.h"

#include <string.h>

static void seeds(void)
{
    static const char *const texts[] = {
        "{\"a\":[1,-2.5e3,true,false,null],\"b\":{\"c\":\"\\u00e9\\ud83d\\ude00\\n\"}}",
        "[[[[[[]]]]],{},\"\",0]",
        " {\"__metadata__\":{\"k\":\"v\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2,3]}} ",
        "\"text\"",
        "12345678901234567890",
        "[1e308, 0.1, -0, 9223372036854775807]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) fuzz_seed(texts[i], strlen(texts[i]));
}

// Reads the current token's value in every way; a number for what came of it.
static uint64_t look(const tni_json *j)
{
    char    text[16];
    int64_t i = 0;
    double  d = 0;
    if (j->kind == TNI_JSON_NUMBER)
        return (uint64_t)(tni_json_int(j, &i) + 2 * tni_json_double(j, &d));
    if (j->kind != TNI_JSON_KEY && j->kind != TNI_JSON_STRING) return 0;
    int64_t n = tni_json_string(j, text, sizeof text);
    FUZZ_CHECK(n <= (int64_t)j->length);
    if (n >= 0 && n < (int64_t)sizeof text && strlen(text) == (size_t)n)
        FUZZ_CHECK(tni_json_is(j, text));
    return n < 0;
}

static uint64_t run(const unsigned char *data, size_t n)
{
    tni_json      j;
    uint64_t      outcome = 0;
    tni_json_kind before  = TNI_JSON_END;
    tni_json_open(&j, (const char *)data, n);
    for (size_t count = 0; tni_json_next(&j) != TNI_JSON_END; count++, before = j.kind) {
        FUZZ_CHECK(count <= n && j.at >= j.start && j.at <= j.end);
        if (j.kind == TNI_JSON_ERROR) break;
        outcome |= (uint64_t)1 << look(&j);
    }
    outcome = fuzz_join(outcome, (uint64_t)before);
    outcome = fuzz_join(outcome, (uint64_t)(j.depth < 4 ? j.depth : 4));
    if (j.kind == TNI_JSON_ERROR) outcome = fuzz_join(outcome, fuzz_outcome(1, j.why));

    bool good = j.kind == TNI_JSON_END;
    tni_json_open(&j, (const char *)data, n);
    tni_json_next(&j);
    FUZZ_CHECK((tni_json_skip(&j) && tni_json_next(&j) == TNI_JSON_END) == good);
    return outcome;
}

static const char *const tokens[] = { "true",
                                      "false",
                                      "null",
                                      "\\u",
                                      "\\ud800",
                                      "\\udc00",
                                      "\\\"",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      ":",
                                      ",",
                                      "\"",
                                      "e",
                                      ".",
                                      "-",
                                      "\\",
                                      "[[[[[[[[[[[[[[[[",
                                      NULL };

const fuzz_target fuzz_json = { .name = "json", .seeds = seeds, .run = run, .tokens = tokens };
