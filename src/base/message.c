// Messages are small: a key and a value each, appended. A node, Relu of x:
//
//   0a 01 78           field 1 (input), 1 byte, "x"
//   12 01 79           field 2 (output), 1 byte, "y"
//   22 04 52 65 6c 75  field 4 (op_type), 4 bytes, "Relu"
//
// Elements of weights are not copied into
// them, see tni_message_head.
#include "base/message.h"

#include <string.h>

enum { VARINT = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };

// Without memory the rest is left out, and `full` says so: callers ask once, at the end.
static void append(tni_message *m, const void *data, size_t bytes)
{
    if (m->full || !bytes) return;
    if (!tni_grow(m->heap, (void **)&m->data, &m->cap, m->bytes + bytes, 1)) {
        m->full = true;
        return;
    }
    memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

// Seven bits a byte, the lowest first; every byte but the last has its top bit set.
static size_t varint(unsigned char to[10], uint64_t v)
{
    size_t n = 0;
    for (; v > 127; v >>= 7) to[n++] = (unsigned char)(v | 128);
    to[n++] = (unsigned char)v;
    return n;
}

// Negative numbers are 64 bits long, in ten bytes.
static void put_varint(tni_message *m, uint64_t v)
{
    unsigned char b[10];
    append(m, b, varint(b, v));
}

// The number of a field and how long its value is, in one number.
static void put_key(tni_message *m, uint32_t field, int type)
{
    put_varint(m, (uint64_t)field << 3 | (uint64_t)type);
}

// int64, int32, bool and enum are all written so.
void tni_message_int(tni_message *m, uint32_t field, int64_t v)
{
    put_key(m, field, VARINT);
    put_varint(m, (uint64_t)v);
}

// Four bytes, the lowest first, as they are in memory.
void tni_message_float(tni_message *m, uint32_t field, float v)
{
    put_key(m, field, FOUR);
    append(m, &v, sizeof v);
}

// Eight bytes, as they are in memory.
void tni_message_double(tni_message *m, uint32_t field, double v)
{
    put_key(m, field, EIGHT);
    append(m, &v, sizeof v);
}

// For a message or for bytes: both are a length and what follows.
void tni_message_head(tni_message *m, uint32_t field, uint64_t bytes)
{
    put_key(m, field, BYTES);
    put_varint(m, bytes);
}

// What tni_message_head would write.
size_t tni_message_head_size(uint32_t field, uint64_t bytes)
{
    unsigned char b[10];
    return varint(b, (uint64_t)field << 3) + varint(b, bytes);
}

void tni_message_bytes(tni_message *m, uint32_t field, const void *data, size_t bytes)
{
    tni_message_head(m, field, bytes);
    append(m, data, bytes);
}

void tni_message_text(tni_message *m, uint32_t field, const char *s)
{
    tni_message_bytes(m, field, s, strlen(s));
}

// The child is freed here, so that a tree of messages is written from its leaves without any
// cleaning up.
void tni_message_nest(tni_message *m, uint32_t field, tni_message *child)
{
    m->full |= child->full;
    tni_message_bytes(m, field, child->data, child->bytes);
    tni_message_free(child);
}

// Concatenating messages is merging them: fields may stand in any order.
void tni_message_fields(tni_message *m, const tni_message *fields)
{
    m->full |= fields->full;
    append(m, fields->data, fields->bytes);
}

void tni_message_free(tni_message *m)
{
    if (m->data) tni_free(m->heap, m->data);
    *m = (tni_message){ .heap = m->heap };
}
