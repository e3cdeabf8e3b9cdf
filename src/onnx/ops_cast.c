// Casts, and elements that Tenon has no dtype for: they are kept in a wider one, which holds every
// value of theirs.
//
//   type                 bits   kept as   values
//   18, 20  e4m3fnuz, e5m2fnuz    8   f32   of a float of 4 or 5 bits of exponent, without inf and -0
//   21, 22  u4, i4        4    u8, i8    0 .. 15, -8 .. 7
//   23      e2m1          4    f32       0, 0.5, 1, 1.5, 2, 3, 4, 6 with either sign
//   24      e8m0          8    f32       powers of two
//   25, 26  u2, i2        2    u8, i8    0 .. 3, -2 .. 1
//
// Which of them a value is, is written beside it (tni_onnx_value.type), for casts and scales that
// ask for it.
#include "onnx/onnx_ops.h"

#include <math.h>

// Floats: bits of the mantissa, exponent of the least normal number, the largest number. Integers
// have none of that.
static const struct {
    int8_t type, bits, dt, mantissa, least;
    float  most;
} narrow[] = { { 18, 8, TN_F32, 3, -7, 240 }, { 20, 8, TN_F32, 2, -15, 57344 },
               { 21, 4, TN_U8, 0, 0, 0 },     { 22, 4, TN_I8, 0, 0, 0 },
               { 23, 4, TN_F32, 1, 0, 6 },    { 24, 8, TN_F32, 0, -127, 0 },
               { 25, 2, TN_U8, 0, 0, 0 },     { 26, 2, TN_I8, 0, 0, 0 } };
enum {
    NARROW   = sizeof narrow / sizeof *narrow,
    F8E4M3FN = 17,
    F8E5M2   = 19,
    F4E2M1   = 23,
    F8E8M0   = 24
};

// The row of a type; -1: it has a dtype of its own, or is not known.
static int narrow_row(int64_t type)
{
    for (int i = 0; i < NARROW; i++)
        if (narrow[i].type == type) return i;
    return -1;
}

// *dt and *bits stay as they are if it is not narrow.
bool tni_onnx_is_narrow(int64_t type, tn_dtype *dt, int *bits)
{
    int i = narrow_row(type);
    if (i < 0) return false;
    *dt   = (tn_dtype)narrow[i].dt;
    *bits = narrow[i].bits;
    return true;
}

// The number that the bits of a float are.
static float float_of(int row, unsigned code)
{
    int m = narrow[row].mantissa, all = narrow[row].bits - 1, type = narrow[row].type;
    if (type == F8E8M0) return code == 255 ? NAN : ldexpf(1, (int)code - 127);
    if (type != F4E2M1 && code == 0x80) return NAN;
    int   e = (int)(code >> m) & ((1 << (all - m)) - 1), f = (int)code & ((1 << m) - 1);
    float v = e ? ldexpf((float)((1 << m) + f), e - 1 + narrow[row].least - m)
                : ldexpf((float)f, narrow[row].least - m);
    return code >> all & 1 ? -v : v;
}

// The lowest bits of a byte are its first element.
void tni_onnx_widen(int type, const unsigned char *packed, int64_t count, void *to)
{
    int row = narrow_row(type), bits = narrow[row].bits, each = 8 / bits;
    for (int64_t i = 0; i < count; i++) {
        unsigned code = packed[i / each] >> (i % each * bits) & ((1u << bits) - 1);
        if (narrow[row].dt == TN_F32) ((float *)to)[i] = float_of(row, code);
        else if (narrow[row].dt == TN_U8) ((uint8_t *)to)[i] = (uint8_t)code;
        else ((int8_t *)to)[i] = (int8_t)((int)code - (int)(code >> (bits - 1) << bits));
    }
}

//   x         1.1      0.3       -5
//   bits      3f8ccccd 3e99999a  c0a00000      and 7f800000
//   result    1        0.25      4
//
// 2 to the exponent of each element, from its bits: the largest power of two that is not above it.
static tn_tensor *power_below(tn_tensor *x)
{
    tn_tensor *e = tn_bitcast(x, TN_I32);
    return tn_bitcast(tn_bit_and(e, e ? tn_full_like_i64(e, 0x7f800000) : NULL), TN_F32);
}

// The low bits of an integer, as if they were all it has.
static tn_tensor *low_bits(tn_tensor *x, int bits, tn_dtype dt)
{
    tn_tensor *y = tn_cast(x, TN_I32);
    y            = tn_bit_and(y, y ? tn_full_like_i64(y, (1 << bits) - 1) : NULL);
    if (dt == TN_I8) y = tn_where(tn_ge_i64(y, 1 << (bits - 1)), tn_add_i64(y, -(1 << bits)), y);
    return tn_cast(y, dt);
}

// A power of two: the one below, above (the default), or nearest. Neither infinities nor NaN are
// one.
static tn_tensor *power_of_two(tn_tensor *x, tni_wire round)
{
    tn_tensor *p = power_below(x), *up = p;
    if (!tni_wire_is(round, "down"))
        up = tn_where(tni_wire_is(round, "nearest") ? tn_ge(x, tn_mul_s(p, 1.5)) : tn_gt(x, p),
                      tn_mul_s(p, 2), p);
    up = tn_clamp(up, ldexp(1, -127), ldexp(1, 127));
    return tn_where(tn_isfinite(x), up, tn_full_like(x, NAN));
}

// Rounded to a multiple of the last place that its size has there, halves to the even one.
tn_tensor *tni_onnx_narrowed(tn_tensor *x, int type, bool saturate, tni_wire round)
{
    int row = narrow_row(type);
    if (row < 0 || !x) return NULL;
    if (narrow[row].dt != TN_F32) return low_bits(x, narrow[row].bits, (tn_dtype)narrow[row].dt);
    x = tn_cast(x, TN_F32);
    if (type == F8E8M0) return power_of_two(x, round);
    double     most = narrow[row].most;
    tn_tensor *unit = tn_mul_s(tn_maximum_s(power_below(x), ldexp(1, narrow[row].least)),
                               ldexp(1, -narrow[row].mantissa));
    tn_tensor *y    = tn_where(tn_isfinite(x), tn_mul(tn_round(tn_div(x, unit)), unit), x);
    // The least type has neither NaN nor infinity.
    if (type == F4E2M1) return tn_clamp(tn_where(tn_isnan(x), tn_zeros_like(x), y), -most, most);
    if (saturate) return tn_clamp(y, -most, most);
    return tn_where(tn_gt_s(tn_abs(y), most), tn_full_like(x, NAN), y);
}

// What the file says of a weight or of an input, where no node made the value.
int tni_onnx_narrow_in(const tni_onnx_call *c, int i)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    int             bits;
    tn_dtype        dt;
    if (!v || v->type) return v ? v->type : 0;
    int32_t        number = c->r->m->use[c->n->use + (uint32_t)i];
    tni_wire       init = c->r->m->value[number].init, w = c->r->m->graph_message;
    tni_wire_field f;
    int64_t        type  = tni_wire_size(init) ? tni_onnx_int(init, TNI_TENSOR_TYPE, 0) : 0;
    bool           input = false;
    for (uint32_t k = 0; k < c->r->m->graph[0].nin; k++)
        input = input || c->r->m->use[c->r->m->graph[0].in + k] == number;
    for (uint32_t k = 0; !type && input && tni_wire_next(&w, &f) > 0;) {
        if (f.number != TNI_GRAPH_INPUT || f.type != TNI_WIRE_BYTES) continue;
        if (c->r->m->use[c->r->m->graph[0].in + k++] != number) continue;
        type = tni_onnx_int(
            tni_onnx_bytes(tni_onnx_bytes(f.bytes, TNI_VALUE_TYPE), TNI_TYPE_TENSOR), 1, 0);
    }
    return tni_onnx_is_narrow(type, &dt, &bits) ? (int)type : 0;
}

// Called after the output has its tensor. Ops that only move elements do not pass the type on:
// their results are right, and a scale or a cast that asks for the type of one is not.
void tni_onnx_narrow_out(tni_onnx_call *c, int i, int type)
{
    int32_t v = i < c->nout ? c->r->m->use[c->n->use + (uint32_t)(c->nin + i)] : TNI_ONNX_NONE;
    if (v >= 0) c->r->value[v].type = (int8_t)type;
}

// A bool is whether a number is not 0; a float becomes an integer without its fraction.
// What a float out of an integer's range becomes is not defined by the standard; here it is the
// nearest integer there is, but for integers of less than a byte, of which the low bits are taken.
// Floats of 8 bits saturate unless the node says otherwise.
static bool cast_to(tni_onnx_call *c, tn_tensor *x, int64_t to)
{
    tn_dtype dt;
    bool     saturate = tni_onnx_attr_int(c, "saturate", 1) != 0;
    if (!x) return false;
    if (!tni_onnx_dtype(to, &dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)to);
    if (narrow_row(to) >= 0) {
        x = tni_onnx_narrowed(x, (int)to, saturate, tni_onnx_attr_text(c, "round_mode"));
        if (!tni_onnx_out(c, 0, x)) return false;
        tni_onnx_narrow_out(c, 0, (int)to);
        return true;
    }
    if (to == F8E5M2 && saturate) x = tn_clamp(tn_cast(x, TN_F32), -57344, 57344);
    // Halfway between the largest number and what would be the next.
    if (to == F8E4M3FN && !saturate && tni_is_float(tn_dtype_of(x)))
        x = tn_where(tn_gt_s(tn_abs(x), 464), tn_full_like(x, NAN), x);
    return tni_onnx_out(c, 0, tn_cast(x, dt));
}

// Cast(x; to, saturate, round_mode).
bool tni_onnx_cast(tni_onnx_call *c)
{
    return cast_to(c, tni_onnx_in(c, 0), tni_onnx_attr_int(c, "to", 0));
}

// CastLike(x, like; saturate, round_mode).
bool tni_onnx_cast_like(tni_onnx_call *c)
{
    tn_tensor *like = tni_onnx_in(c, 1);
    int64_t    to   = tni_onnx_narrow_in(c, 1);
    return like && cast_to(c, tni_onnx_in(c, 0), to ? to : tni_onnx_type_of(tn_dtype_of(like)));
}

// BitCast(x; to): the same bits, of elements of the same size.
bool tni_onnx_bit_cast(tni_onnx_call *c)
{
    tn_tensor *x  = tni_onnx_in(c, 0);
    int64_t    to = tni_onnx_attr_int(c, "to", 0);
    tn_dtype   dt;
    if (!x) return false;
    if (narrow_row(to) >= 0 || !tni_onnx_dtype(to, &dt) ||
        tni_dtype_size(dt) != tni_dtype_size(tn_dtype_of(x)))
        return tni_onnx_refuse(c, "elements of type %lld have not the size of %s", (long long)to,
                               tn_dtype_name(tn_dtype_of(x)));
    bool truth = dt == TN_BOOL || tn_dtype_of(x) == TN_BOOL;
    return tni_onnx_out(c, 0, truth ? tn_cast(x, dt) : tn_bitcast(x, dt));
}
