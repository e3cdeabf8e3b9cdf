// Protocol buffers as they are written: a message grows in memory, field by field.
#ifndef TNI_BASE_MESSAGE_H
#define TNI_BASE_MESSAGE_H

#include "base/heap.h"

// `full`: memory ran out, and some of it is missing.
typedef struct {
    tni_heap      *heap;
    unsigned char *data;
    size_t         bytes, cap;
    bool           full;
} tni_message;

void tni_message_int(tni_message *m, uint32_t field, int64_t v);
void tni_message_float(tni_message *m, uint32_t field, float v);
void tni_message_double(tni_message *m, uint32_t field, double v);
// Bytes; also a packed list of numbers.
void tni_message_bytes(tni_message *m, uint32_t field, const void *data, size_t bytes);
void tni_message_text(tni_message *m, uint32_t field, const char *s);
// A message within the message; frees it.
void tni_message_nest(tni_message *m, uint32_t field, tni_message *child);
// The fields of another message, as fields of this one.
void tni_message_fields(tni_message *m, const tni_message *fields);
// The key and the length of a field of bytes that follow elsewhere.
void tni_message_head(tni_message *m, uint32_t field, uint64_t bytes);
// How many bytes such a head has.
size_t tni_message_head_size(uint32_t field, uint64_t bytes);
void   tni_message_free(tni_message *m);

#endif
