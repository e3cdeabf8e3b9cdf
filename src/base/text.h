// Short texts by value, for messages: tni_shape_text(rank, size).s.
#ifndef TNI_BASE_TEXT_H
#define TNI_BASE_TEXT_H

#include <stdarg.h>
#include <stdint.h>

typedef struct {
    char s[192];
} tni_text;

// "(2, 3)", "(4,)", "()".
tni_text tni_shape_text(int rank, const int64_t *size);
// Appends to a text, cutting what does not fit.
void tni_text_add(tni_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
