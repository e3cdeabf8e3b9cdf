// Reading protocol buffers. The node y = Relu(x) in bytes:
//
//   0a 01 78              field 1 (input), bytes, 1 of them: "x"
//   12 01 79              field 2 (output): "y"
//   22 04 52 65 6c 75     field 4 (op_type): "Relu"
//
// A field may be repeated, fields come in any order, and there is neither a length of the whole nor
// a checksum: the start of a file is often a smaller file.
#include "base/wire.h"

#include <string.h>

// Reads a number of seven bits a byte, the low ones first; false if it is cut off or larger than 64
// bits.
static bool take_varint(tni_wire *w, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; w->at < w->end && shift < 64; shift += 7) {
        uint64_t c = *w->at++;
        if (shift == 63 && c > 1) return false;  // the tenth byte has one bit of the 64
        *v |= (c & 127) << shift;
        if (c < 128) return true;
    }
    return false;
}

// Reads n bytes, little endian.
static bool take_fixed(tni_wire *w, size_t n, uint64_t *v)
{
    *v = 0;
    if (tni_wire_size(*w) < n) return false;
    memcpy(v, w->at, n);
    w->at += n;
    return true;
}

// A key is a varint of number << 3 | type. What follows depends on the type alone, so that fields
// of newer versions can be skipped.
int tni_wire_next(tni_wire *w, tni_wire_field *f)
{
    uint64_t key;
    *f = (tni_wire_field){ 0 };
    if (w->at == w->end) return 0;
    if (!take_varint(w, &key) || key >> 3 == 0 || key >> 32) return -1;
    f->number = (uint32_t)(key >> 3);
    f->type   = (uint8_t)(key & 7);
    switch (f->type) {
    case TNI_WIRE_VARINT: return take_varint(w, &f->value) ? 1 : -1;
    case TNI_WIRE_8: return take_fixed(w, 8, &f->value) ? 1 : -1;
    case TNI_WIRE_4: return take_fixed(w, 4, &f->value) ? 1 : -1;
    case TNI_WIRE_BYTES:
        if (!take_varint(w, &f->value) || f->value > tni_wire_size(*w)) return -1;
        f->bytes = (tni_wire){ w->at, w->at + f->value };
        w->at    = f->bytes.end;
        return 1;
    default: return -1;
    }
}

// Messages are short, but for graphs, of which no field is looked up often.
bool tni_wire_find(tni_wire w, uint32_t number, tni_wire_field *f)
{
    tni_wire_field x;
    bool           found = false;
    while (tni_wire_next(&w, &x) > 0)
        if (x.number == number) {
            *f    = x;
            found = true;
        }
    return found;
}

// Only this level is looked at: bytes of a field may still be no message.
bool tni_wire_ok(tni_wire w)
{
    tni_wire_field f;
    int            r;
    while ((r = tni_wire_next(&w, &f)) > 0) {}
    return r == 0;
}

// Nothing is read yet.
tni_wire_list tni_wire_list_of(tni_wire message, uint32_t number, uint8_t type)
{
    return (tni_wire_list){ .message = message, .number = number, .type = type };
}

// Numbers with keys of their own and packed ones may come mixed. A field of another type is an
// error.
bool tni_wire_list_next(tni_wire_list *l, uint64_t *value)
{
    while (l->packed.at == l->packed.end) {
        tni_wire_field f;
        int            r = tni_wire_next(&l->message, &f);
        l->bad |= r < 0;
        if (r <= 0) return false;
        if (f.number != l->number) continue;
        if (f.type == l->type) {
            *value = f.value;
            return true;
        }
        if (f.type != TNI_WIRE_BYTES) {
            l->bad = true;
            return false;
        }
        l->packed = f.bytes;
    }
    bool ok = l->type == TNI_WIRE_VARINT
                  ? take_varint(&l->packed, value)
                  : take_fixed(&l->packed, l->type == TNI_WIRE_4 ? 4 : 8, value);
    l->bad |= !ok;
    return ok;
}

// Bytes of a file have no 0 at their end.
bool tni_wire_is(tni_wire w, const char *text)
{
    size_t n = strlen(text);
    return tni_wire_size(w) == n && (!n || !memcmp(w.at, text, n));
}

bool tni_wire_same(tni_wire a, tni_wire b)
{
    size_t n = tni_wire_size(a);
    return n == tni_wire_size(b) && (!n || !memcmp(a.at, b.at, n));
}

// The low 4 bytes of what was read.
double tni_wire_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float    v;
    memcpy(&v, &low, 4);
    return v;
}

double tni_wire_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, 8);
    return v;
}
