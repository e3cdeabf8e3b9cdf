// Short texts for messages, escaping, UTF-8, numbers and patterns of names.
#include "base/text.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// vsnprintf cuts what does not fit: a message may be shortened, never overflow.
void tni_text_add(tni_text *t, const char *fmt, ...)
{
    size_t  n = strlen(t->s);
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->s + n, sizeof t->s - n, fmt, args);
    va_end(args);
}

tni_text tni_text_of(const char *fmt, ...)
{
    tni_text t;
    va_list  args;
    va_start(args, fmt);
    vsnprintf(t.s, sizeof t.s, fmt, args);
    va_end(args);
    return t;
}

tni_text tni_shape_text(int rank, const int64_t *size)
{
    tni_text t = { "(" };
    for (int i = 0; i < rank; i++) tni_text_add(&t, "%s%lld", i ? ", " : "", (long long)size[i]);
    tni_text_add(&t, rank == 1 ? ",)" : ")");
    return t;
}

// Binary units, as memory is counted.
tni_text tni_size_text(int64_t bytes)
{
    static const char *const unit[] = { "KiB", "MiB", "GiB", "TiB" };
    double                   n      = (double)bytes / 1024;
    int                      i      = 0;
    if (bytes < 1024) return tni_text_of("%lld bytes", (long long)bytes);
    for (; i < 3 && n >= 1024; i++) n /= 1024;
    return tni_text_of("%.1f %s", n, unit[i]);
}

// The next unit begins where microseconds would take a fifth digit.
tni_text tni_micros_text(double us)
{
    if (us < 1e4) return tni_text_of("%.4g us", us);
    return us < 1e7 ? tni_text_of("%.4g ms", 1e-3 * us) : tni_text_of("%.4g s", 1e-6 * us);
}

// Characters that show nothing themselves: other ends of a line, marks and overrides of direction,
// characters of no width, tags.
static bool is_unseen(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } unseen[] = { { 0x80, 0x9f },     { 0xad, 0xad },      { 0x61c, 0x61c },   { 0x180e, 0x180e },
                   { 0x200b, 0x200f }, { 0x2028, 0x202e },  { 0x2060, 0x206f }, { 0xfeff, 0xfeff },
                   { 0xfff9, 0xfffb }, { 0xe0000, 0xe0fff } };
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++)
        if (c >= unseen[i].first && c <= unseen[i].last) return true;
    return false;
}

// Writes the first character of n bytes as it may be printed, at most 10 bytes. Returns how many
// bytes of s it took.
static size_t escape_one(char piece[16], const char *s, size_t n)
{
    size_t        length = tni_utf8(s, n);
    unsigned char c      = (unsigned char)*s;
    if (length == 0 || c < ' ' || c == 0x7f) {
        snprintf(piece, 16, "\\x%02x", (unsigned)c);
        return 1;
    }
    if (length > 1 && is_unseen(tni_code_point(s, length)))
        snprintf(piece, 16, "\\u{%x}", (unsigned)tni_code_point(s, length));
    else snprintf(piece, 16, "%.*s", (int)length, s);
    return length;
}

// Stops before a character that does not fit whole, so that a cut text is still valid.
size_t tni_escape(char *to, size_t capacity, const char *s, size_t n)
{
    size_t taken = 0, at = 0;
    char   piece[16];
    while (taken < n) {
        size_t step = escape_one(piece, s + taken, n - taken), length = strlen(piece);
        if (at + length >= capacity) break;
        memcpy(to + at, piece, length);
        at += length;
        taken += step;
    }
    if (capacity) to[at] = 0;
    return taken;
}

tni_text tni_escaped(const char *s)
{
    tni_text t;
    tni_escape(t.s, sizeof t.s, s, strlen(s));
    return t;
}

// At most 80 characters: a message with two names still fits a line of a terminal or two.
tni_text tni_quoted(const char *name)
{
    enum { MOST = 80 };
    char   text[MOST + 1];
    size_t n = strlen(name), taken = tni_escape(text, sizeof text, name, n);
    return tni_text_of("\"%s%s\"", text, taken < n ? "..." : "");
}

// Accepts what RFC 3629 does: shortest forms up to U+10FFFF, no surrogates.
size_t tni_utf8(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return 1;
    if (u[0] < 0xc2 || u[0] > 0xf4) return 0;
    size_t length = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    if (n < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    // Longer than need be, a surrogate, or past the last code point.
    bool bad = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) ||
               (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f);
    return bad ? 0 : length;
}

bool tni_utf8_ok(const char *s, size_t n)
{
    for (size_t step; n > 0; s += step, n -= step)
        if ((step = tni_utf8(s, n)) == 0) return false;
    return true;
}

size_t tni_utf8_put(char s[4], unsigned c)
{
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6) s[i] = (char)(0x80 | (c & 0x3f));
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    s[0]                              = (char)(lead[length] | c);
    return length;
}

uint32_t tni_code_point(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 1) return u[0];
    uint32_t c = u[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) c = c << 6 | (u[i] & 0x3f);
    return c;
}

// strtod expects a 0 at the end and the decimal point of the program's locale. 512 bytes hold the
// longest decimal expansion that matters to a double by far.
bool tni_parse_double(const char *s, size_t n, double *v)
{
    // strtod wants a 0 at the end and the point that the program's locale has.
    char        copy[512], *to = copy, *end;
    const char *point = localeconv()->decimal_point;
    if (n + strlen(point) >= sizeof copy) return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '.') to += strlen(strcpy(to, point));
        else *to++ = s[i];
    }
    *to = 0;
    *v  = strtod(copy, &end);
    return end != copy && !*end && isfinite(*v);
}

// Matches one pattern, from p to end. A star first stands for nothing; when the rest does not
// match, it takes one character more and the rest is tried again. Only the last star needs to be
// retried, so this is linear in practice and quadratic at worst. found, unless NULL, has space for
// every star.
static bool matches_pattern(const char *p, const char *end, const char *name, tni_star *found)
{
    const char *star = NULL, *back = NULL;
    while (*name) {
        if (p < end && *p == '*') {
            star = p++;
            back = name;
            if (found) *found++ = (tni_star){ name, name };
        } else if (p < end && (*p == '?' || *p == *name)) {
            p++;
            name++;
        } else if (star) {
            p    = star + 1;
            name = ++back;
            if (found) found[-1].to = back;
        } else {
            return false;
        }
    }
    for (; p < end && *p == '*'; p++)
        if (found) *found++ = (tni_star){ name, name };
    return p == end;
}

bool tni_glob_stars(const char *pattern, const char *name, tni_star star[TNI_STARS])
{
    return matches_pattern(pattern, pattern + strlen(pattern), name, star);
}

// Tries the patterns between commas one by one.
bool tni_glob(const char *pattern, const char *name)
{
    for (const char *p = pattern;; p++) {
        const char *end = p + strcspn(p, ",");
        if (matches_pattern(p, end, name, NULL)) return true;
        if (!*end) return false;
        p = end;
    }
}

// Returns whether a list with commas contains the word.
bool tni_has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; list && *list; list += strcspn(list, ","), list += *list == ',')
        if (!strncmp(list, word, n) && (!list[n] || list[n] == ',')) return true;
    return false;
}
