// Reading JSON without making a tree: a text is walked token by token, in place, without
// allocation. Everything RFC 8259 forbids is an error, and so are more than TNI_JSON_DEPTH nested
// brackets. And writing it, piece by piece.
#ifndef TNI_BASE_JSON_H
#define TNI_BASE_JSON_H

#include "base/heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Arrays and objects inside one another: bounds the parser's stack; no format read here nests ten
// deep.
enum { TNI_JSON_DEPTH = 64 };

typedef enum {
    TNI_JSON_END,  // after the one value and white space
    TNI_JSON_OBJECT,
    TNI_JSON_OBJECT_END,
    TNI_JSON_ARRAY,
    TNI_JSON_ARRAY_END,
    TNI_JSON_KEY,
    TNI_JSON_STRING,
    TNI_JSON_NUMBER,
    TNI_JSON_TRUE,
    TNI_JSON_FALSE,
    TNI_JSON_NULL,
    TNI_JSON_ERROR  // and again at every further call
} tni_json_kind;

// The reader and its current token: the kind, and of a key, string (without quotes) or number the
// raw characters text[0 .. length-1]. at is where the next token is looked for, so an error's
// place.
typedef struct {
    const char   *start, *at, *end;
    tni_json_kind kind;
    const char   *text;
    size_t        length;
    const char   *why;  // of an error, a phrase
    int           depth;
    bool          comma;      // a value was just read: a comma or an end must follow
    uint64_t      in_object;  // bit i: the bracket at depth i is an object
} tni_json;

void          tni_json_open(tni_json *j, const char *text, size_t bytes);
tni_json_kind tni_json_next(tni_json *j);
// Skips the value whose first token is current. False on an error.
bool tni_json_skip(tni_json *j);
// The current key or string with its escapes resolved, as UTF-8: its length, and as much of it as
// fits in dst with a 0 after it. -1 where it holds an escaped lone surrogate.
int64_t tni_json_string(const tni_json *j, char *dst, size_t capacity);
// Whether the current key or string is this one.
bool tni_json_is(const tni_json *j, const char *text);
// The current number: false if it is not an integer, or does not fit.
bool tni_json_int(const tni_json *j, int64_t *v);
bool tni_json_double(const tni_json *j, double *v);

// A text while it grows, in memory of heap that is its reader's in the end; begins as zeros and
// heap. A 0 follows its bytes. Once memory is out it is full, and nothing more is added.
typedef struct {
    tni_heap *heap;
    char     *text;
    size_t    bytes, capacity;
    bool      full;
} tni_json_writer;

void tni_json_put(tni_json_writer *w, const char *s);    // as it is
void tni_json_quote(tni_json_writer *w, const char *s);  // UTF-8, as a string
void tni_json_put_int(tni_json_writer *w, int64_t v);
void tni_json_put_double(tni_json_writer *w, double v);  // 9 digits; null if it is not finite

#endif
