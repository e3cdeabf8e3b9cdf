// Short texts by value, for messages: tni_shape_text(rank, size).s.
#ifndef TNI_BASE_TEXT_H
#define TNI_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char s[192];
} tni_text;

// "(2, 3)", "(4,)", "()".
tni_text tni_shape_text(int rank, const int64_t *size);
// Appends to a text, cutting what does not fit.
void tni_text_add(tni_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// A name from outside for a message: in quotes, cut, control characters replaced.
tni_text tni_shown(const char *name);

// Bytes of the UTF-8 character that begins at s, of which n > 0 bytes are there; 0 if it is none.
size_t tni_utf8(const char *s, size_t n);
// Whether a text of n bytes is UTF-8 throughout.
bool tni_utf8_ok(const char *s, size_t n);
// Writes a code point, up to 0x10ffff, as UTF-8: the number of bytes.
size_t tni_utf8_put(char s[4], unsigned c);

#endif
