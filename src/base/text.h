// Short texts by value, for messages: tni_shape_text(rank, size).s. Then what texts of others are
// read by: UTF-8, numbers, patterns.
#ifndef TNI_BASE_TEXT_H
#define TNI_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A short text by value, for messages; what does not fit is cut.
typedef struct {
    char s[192];
} tni_text;

// "(2, 3)", "(4,)", "()".
tni_text tni_shape_text(int rank, const int64_t *size);
// What printf would print, cut to fit.
tni_text tni_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// "512 bytes", "3.8 MiB".
tni_text tni_size_text(int64_t bytes);
// Appends to a text, cutting what does not fit.
void tni_text_add(tni_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Texts from outside (names in files, paths, variables) may hold anything, including sequences that
// move the cursor of a terminal, rename its window or reverse the order of letters. Writes n bytes
// so that they can be printed: control characters and bytes that are not UTF-8 as \xNN, characters
// that are invisible or change the order of others as \u{NNNN}, all others as they are. Leaves out
// what does not fit into `capacity` with a 0 at the end, never half a character. Returns how many
// of the n bytes were written.
size_t tni_escape(char *to, size_t capacity, const char *s, size_t n);
// The same, cut to fit; and for a message: in quotes, cut.
tni_text tni_escaped(const char *s);
tni_text tni_quoted(const char *name);

// A time for people, of four digits: "212.4 us", "36.98 ms", "1.2 s".
tni_text tni_micros_text(double us);

// The length of the UTF-8 character at s, where n > 0 bytes follow; 0 if it is not valid.
size_t tni_utf8(const char *s, size_t n);
// Whether a text of n bytes is UTF-8 throughout.
bool tni_utf8_ok(const char *s, size_t n);
// Writes a code point, up to 0x10ffff, as UTF-8: the number of bytes.
size_t tni_utf8_put(char s[4], unsigned c);
// The code point of a UTF-8 character of n bytes, as tni_utf8 measures it.
uint32_t tni_code_point(const char *s, size_t n);

static inline bool tni_is_digit(char c)
{
    return c >= '0' && c <= '9';
}
// The value of n characters that are a decimal number, whatever the locale: false if they are none,
// if it is not finite, or if there are more characters than any number needs.
bool tni_parse_double(const char *s, size_t n, double *v);

// Whether a name fits a pattern: '*' is any run, '?' any character; several patterns with commas.
bool tni_glob(const char *pattern, const char *name);
// Whether a list of words with commas between them has this word; NULL is an empty list.
bool tni_has_word(const char *list, const char *word);
// The part of a name that a star of a pattern matches.
enum { TNI_STARS = 8 };
typedef struct {
    const char *from, *to;
} tni_star;
// The same for one pattern, in which a comma is a comma and which has at most TNI_STARS stars; and
// what each of them matches: as little as possible, from the left, and the last one all the rest.
bool tni_glob_stars(const char *pattern, const char *name, tni_star star[TNI_STARS]);

#endif
