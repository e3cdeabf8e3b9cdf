// Protocol buffers as bytes: a message is a run of fields, each a key and a value. Nothing is
// copied: a field points into the file. Files come from strangers, so every length is checked
// against what holds it.
#ifndef TNI_BASE_WIRE_H
#define TNI_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of the file: a message, a string, a packed list. What is read moves `at` on.
typedef struct {
    const unsigned char *at, *end;
} tni_wire;

enum { TNI_WIRE_VARINT = 0, TNI_WIRE_8 = 1, TNI_WIRE_BYTES = 2, TNI_WIRE_4 = 5 };

typedef struct {
    uint32_t number;
    uint8_t  type;   // of the four above
    uint64_t value;  // of a varint; of 8 or 4 bytes: these
    tni_wire bytes;  // of TNI_WIRE_BYTES
} tni_wire_field;

// Reads the next field: 1; 0 at the end; -1 if the bytes are not a field. Groups, which ONNX never
// had, are none.
int tni_wire_next(tni_wire *w, tni_wire_field *f);
// Finds the last field with that number, which counts where there are several; false if there is
// none. The message has been checked.
bool tni_wire_find(tni_wire w, uint32_t number, tni_wire_field *f);
// Whether the bytes are a run of fields.
bool tni_wire_ok(tni_wire w);

// The numbers of a repeated field, whether each has a key of its own, all are packed, or both.
typedef struct {
    tni_wire message, packed;
    uint32_t number;
    uint8_t  type;  // of one: TNI_WIRE_VARINT, TNI_WIRE_4 or TNI_WIRE_8
    bool     bad;   // the bytes were not such numbers
} tni_wire_list;

tni_wire_list tni_wire_list_of(tni_wire message, uint32_t number, uint8_t type);
// False after the last one, or with `bad`.
bool tni_wire_list_next(tni_wire_list *l, uint64_t *value);

static inline size_t tni_wire_size(tni_wire w)
{
    return (size_t)(w.end - w.at);
}
// Whether the bytes are those of a text.
bool tni_wire_is(tni_wire w, const char *text);
bool tni_wire_same(tni_wire a, tni_wire b);
// A float of 4 bytes and a double of 8.
double tni_wire_float(uint64_t bits);
double tni_wire_double(uint64_t bits);

#endif
