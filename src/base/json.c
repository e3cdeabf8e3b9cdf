// JSON. The reader: one pass, in place. Its state is the current token, the kind of every open
// bracket (one bit each) and whether a value was just read; so it needs neither memory nor
// recursion, and a hostile file can exhaust neither.
#include "base/json.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void tni_json_open(tni_json *j, const char *text, size_t bytes)
{
    *j = (tni_json){ .start = text, .at = text, .end = text + bytes };
}

// `why` is a phrase for a message; `at` stays at the place of the error.
static tni_json_kind fail_json(tni_json *j, const char *why)
{
    j->why         = why;
    return j->kind = TNI_JSON_ERROR;
}

static void skip_json_space(tni_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
}

static int hex_digit(char c)
{
    if (tni_is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// ---- tokens ------------------------------------------------------------------------------------

// The number of characters of the escape at s; 0 if it is not one.
static size_t escape_length(const char *s, const char *end)
{
    if (end - s < 2) return 0;
    if (s[1] != 'u') return memchr("\"\\/bfnrt", s[1], 8) ? 2 : 0;
    if (end - s < 6) return 0;
    for (int i = 2; i < 6; i++)
        if (hex_digit(s[i]) < 0) return 0;
    return 6;
}

// Checks escapes and UTF-8 while it looks for the end, so that whoever reads the text later need
// not.
static tni_json_kind scan_string(tni_json *j, tni_json_kind kind)
{
    const char *s = j->at + 1;
    j->text       = s;
    while (s < j->end && *s != '"') {
        bool   escape = *s == '\\';
        size_t n      = escape ? escape_length(s, j->end) : tni_utf8(s, (size_t)(j->end - s));
        j->at         = s;
        if (!n) return fail_json(j, escape ? "an escape is wrong" : "a character is not UTF-8");
        if ((unsigned char)*s < ' ') return fail_json(j, "a string holds a control character");
        s += n;
    }
    j->at = s;
    if (s == j->end) return fail_json(j, "a string has no end");
    j->length      = (size_t)(s - j->text);
    j->at          = s + 1;
    return j->kind = kind;
}

// Steps over digits; false if there is none.
static bool skip_digits(tni_json *j)
{
    const char *from = j->at;
    while (j->at < j->end && tni_is_digit(*j->at)) j->at++;
    return j->at > from;
}

// The grammar of RFC 8259: no leading zeros, no plus, digits on both sides of a point.
static tni_json_kind scan_number(tni_json *j)
{
    j->text = j->at;
    if (*j->at == '-') j->at++;
    const char *first = j->at;
    if (!skip_digits(j)) return fail_json(j, "a number has no digits");
    if (*first == '0' && j->at - first > 1) return fail_json(j, "a number begins with 0");
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        if (!skip_digits(j)) return fail_json(j, "a number has no digits after its point");
    }
    if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
        j->at++;
        if (j->at < j->end && (*j->at == '+' || *j->at == '-')) j->at++;
        if (!skip_digits(j)) return fail_json(j, "a number has no digits in its exponent");
    }
    j->length      = (size_t)(j->at - j->text);
    return j->kind = TNI_JSON_NUMBER;
}

// true, false or null.
static tni_json_kind scan_word(tni_json *j, const char *text, tni_json_kind kind)
{
    size_t n = strlen(text);
    if ((size_t)(j->end - j->at) < n || memcmp(j->at, text, n) != 0)
        return fail_json(j, "a value is expected");
    j->at += n;
    return j->kind = kind;
}

// The kind of each open bracket is a bit, hence the limit of 64 levels.
static tni_json_kind open_bracket(tni_json *j, bool object)
{
    if (j->depth == TNI_JSON_DEPTH) return fail_json(j, "too many nested brackets");
    uint64_t bit = (uint64_t)1 << j->depth;
    j->in_object = object ? j->in_object | bit : j->in_object & ~bit;
    j->depth++;
    j->at++;
    j->comma       = false;
    return j->kind = object ? TNI_JSON_OBJECT : TNI_JSON_ARRAY;
}

static tni_json_kind close_bracket(tni_json *j, bool object)
{
    j->depth--;
    j->at++;
    j->comma       = true;
    return j->kind = object ? TNI_JSON_OBJECT_END : TNI_JSON_ARRAY_END;
}

// The first token of a value; the caller made sure that there is a character.
static tni_json_kind scan_value(tni_json *j)
{
    j->comma = true;
    switch (*j->at) {
    case '{': return open_bracket(j, true);
    case '[': return open_bracket(j, false);
    case '"': return scan_string(j, TNI_JSON_STRING);
    case 't': return scan_word(j, "true", TNI_JSON_TRUE);
    case 'f': return scan_word(j, "false", TNI_JSON_FALSE);
    case 'n': return scan_word(j, "null", TNI_JSON_NULL);
    default:
        if (*j->at == '-' || tni_is_digit(*j->at)) return scan_number(j);
        return fail_json(j, "a value is expected");
    }
}

// A key and its colon, so that the value comes next.
static tni_json_kind scan_key(tni_json *j)
{
    if (*j->at != '"') return fail_json(j, "a key is expected");
    if (scan_string(j, TNI_JSON_KEY) == TNI_JSON_ERROR) return TNI_JSON_ERROR;
    skip_json_space(j);
    if (j->at == j->end || *j->at != ':') return fail_json(j, "a colon is expected after a key");
    j->at++;
    return TNI_JSON_KEY;
}

// Which tokens may follow is decided by three rules: after a key comes its value; at depth 0 one
// value and the end; inside a bracket a comma or the closing one, if a value was before.
tni_json_kind tni_json_next(tni_json *j)
{
    bool has_key = j->kind == TNI_JSON_KEY;
    if (j->kind == TNI_JSON_ERROR) return TNI_JSON_ERROR;
    skip_json_space(j);
    if (j->depth == 0 && j->comma) {
        if (j->at < j->end) return fail_json(j, "something follows the value");
        return j->kind = TNI_JSON_END;
    }
    if (j->at == j->end) return fail_json(j, "the text ends too early");
    if (has_key || j->depth == 0) return scan_value(j);

    bool object = j->in_object >> (j->depth - 1) & 1;
    if (*j->at == (object ? '}' : ']')) return close_bracket(j, object);
    if (j->comma) {
        if (*j->at != ',') return fail_json(j, "a comma or a closing bracket is expected");
        j->at++;
        skip_json_space(j);
        if (j->at == j->end) return fail_json(j, "the text ends too early");
    }
    return object ? scan_key(j) : scan_value(j);
}

// Reads until the bracket that was opened is closed; a value without brackets is over already.
bool tni_json_skip(tni_json *j)
{
    if (j->kind == TNI_JSON_OBJECT || j->kind == TNI_JSON_ARRAY)
        for (int depth = j->depth; j->depth >= depth;)
            if (tni_json_next(j) == TNI_JSON_ERROR) return false;
    return j->kind != TNI_JSON_ERROR;
}

// ---- their values ------------------------------------------------------------------------------

// The four hex digits of \uXXXX.
static unsigned utf16_unit(const char *s)
{
    return (unsigned)(hex_digit(s[2]) << 12 | hex_digit(s[3]) << 8 | hex_digit(s[4]) << 4 |
                      hex_digit(s[5]));
}

// The character at *s, which moves behind it, as UTF-8: its length, or 0 for a lone surrogate.
// Characters beyond the first plane are escaped as two surrogates. Other errors were found when the
// string was scanned.
static size_t decode_character(const char **s, const char *end, char utf8[4])
{
    static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    if (**s != '\\') {
        utf8[0] = *(*s)++;
        return 1;
    }
    if ((*s)[1] != 'u') {
        const char *letter = strchr(letters, (*s)[1]);
        utf8[0]            = letter ? meanings[letter - letters] : (*s)[1];
        *s += 2;
        return 1;
    }
    unsigned c = utf16_unit(*s);
    *s += 6;
    if (c >= 0xd800 && c < 0xe000) {
        if (c >= 0xdc00 || end - *s < 6 || (*s)[0] != '\\' || (*s)[1] != 'u') return 0;
        unsigned low = utf16_unit(*s);
        if (low < 0xdc00 || low >= 0xe000) return 0;
        c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
        *s += 6;
    }
    return tni_utf8_put(utf8, c);
}

// Counts on when dst is full, so that a caller can ask for the length first.
int64_t tni_json_string(const tni_json *j, char *dst, size_t capacity)
{
    size_t      length = 0;
    char        utf8[4];
    const char *end = j->text + j->length;
    for (const char *s = j->text; s < end;) {
        size_t n = decode_character(&s, end, utf8);
        if (!n) return -1;
        for (size_t i = 0; i < n; i++, length++)
            if (length + 1 < capacity) dst[length] = utf8[i];
    }
    if (capacity) dst[length < capacity ? length : capacity - 1] = 0;
    return (int64_t)length;
}

// Compares without a copy; an escaped and a plain spelling of a key are equal.
bool tni_json_is(const tni_json *j, const char *text)
{
    char        utf8[4];
    size_t      left = strlen(text);
    const char *end  = j->text + j->length;
    for (const char *s = j->text; s < end;) {
        size_t n = decode_character(&s, end, utf8);
        if (!n || n > left || memcmp(text, utf8, n) != 0) return false;
        text += n;
        left -= n;
    }
    return left == 0;
}

// Exact: through a double, integers above 2^53 would lose digits.
bool tni_json_int(const tni_json *j, int64_t *v)
{
    bool     minus = j->text[0] == '-';
    uint64_t most = minus ? (uint64_t)1 << 63 : INT64_MAX, sum = 0;
    for (size_t i = minus; i < j->length; i++) {
        if (!tni_is_digit(j->text[i])) return false;
        uint64_t digit = (uint64_t)(j->text[i] - '0');
        if (sum > (most - digit) / 10) return false;
        sum = sum * 10 + digit;
    }
    *v = (int64_t)(minus ? 0 - sum : sum);
    return true;
}

bool tni_json_double(const tni_json *j, double *v)
{
    return tni_parse_double(j->text, j->length, v);
}

// ---- writing -----------------------------------------------------------------------------------

// Once memory is out, `full` is set and stays, so that only the end of the writing checks it.
static void append_bytes(tni_json_writer *w, const char *s, size_t n)
{
    w->full |= !tni_grow(w->heap, (void **)&w->text, &w->capacity, w->bytes + n + 1, 1);
    if (w->full) return;
    memcpy(w->text + w->bytes, s, n);
    w->bytes += n;
    w->text[w->bytes] = 0;
}

void tni_json_put(tni_json_writer *w, const char *s)
{
    append_bytes(w, s, strlen(s));
}

// Escapes quotes, backslashes and control characters; the rest is UTF-8 and passes as it is.
void tni_json_quote(tni_json_writer *w, const char *s)
{
    append_bytes(w, "\"", 1);
    for (; *s; s++) {
        char escaped[8] = { '\\', *s };
        if ((unsigned char)*s < ' ') snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*s);
        bool plain = *s != '"' && *s != '\\' && (unsigned char)*s >= ' ';
        append_bytes(w, plain ? s : escaped, plain ? 1 : strlen(escaped));
    }
    append_bytes(w, "\"", 1);
}

void tni_json_put_int(tni_json_writer *w, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)v);
    tni_json_put(w, text);
}

// Writes a number with a point, whatever the locale uses; its point may be several bytes.
void tni_json_put_double(tni_json_writer *w, double v)
{
    tni_text t  = tni_text_of("%.9g", v);
    char    *to = t.s;
    for (const char *s = t.s; *s; s++) {
        bool is_point = !strchr("0123456789+-e", *s);
        if (!is_point || to == t.s || to[-1] != '.') *to++ = is_point ? '.' : *s;
    }
    *to = 0;
    tni_json_put(w, isfinite(v) ? t.s : "null");
}
