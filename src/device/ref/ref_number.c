// Numbers of the reference device: rounding to a dtype, conversion between dtypes, and the way to
// and from the host. The 16-bit floats are written out by frexp and ldexp, apart from the bit
// arithmetic of the math prelude, which is tested against this.
#include "ref.h"

#include <math.h>

int64_t tni_ref_wrap(tn_dtype dt, int64_t v)
{
    switch (dt) {
    case TN_BOOL: return v != 0;
    case TN_U8: return (uint8_t)v;
    case TN_I8: return (int8_t)v;
    case TN_I32: return (int32_t)v;
    default: return v;
    }
}

// A 16-bit float: its digits (the hidden one included) and the exponent of its smallest normal
// number. The largest exponent is 1 - lowest.
typedef struct {
    int digits, lowest;
} format;

static format format_of(tn_dtype dt)
{
    return dt == TN_F16 ? (format){ 11, -14 } : (format){ 8, -126 };
}

// The exponent of the last digit of numbers of v's size; v is finite.
static int last_digit(format f, double v)
{
    int e;
    frexp(v, &e);  // |v| in [2^(e-1), 2^e)
    e--;
    if (v == 0 || e < f.lowest) e = f.lowest;
    return e - (f.digits - 1);
}

// Scaling is exact, so nearbyint is the only rounding.
static double round_to_format(format f, double v)
{
    if (!isfinite(v)) return v;
    int    last = last_digit(f, v);
    double r    = ldexp(nearbyint(ldexp(v, -last)), last);
    return fabs(r) >= ldexp(1, 2 - f.lowest) ? copysign(INFINITY, v) : r;
}

double tni_ref_round(tn_dtype dt, double v)
{
    switch (dt) {
    case TN_F64: return v;
    case TN_F32: return (float)v;
    default: return round_to_format(format_of(dt), v);
    }
}

// ---- casts -------------------------------------------------------------------------------------

static bool holds_all_of(tn_dtype to, tn_dtype from)
{
    return to >= from && !(to == TN_BF16 && from == TN_F16);
}

// Cut towards 0, held in the range of the dtype; NaN gives 0. Anything but 0 is true.
static int64_t int_of_float(tn_dtype dt, double v)
{
    static const double low[]  = { 0, 0, -0x1p7, -0x1p31, -0x1p63 };   // by dtype
    static const double high[] = { 0, 0x1p8, 0x1p7, 0x1p31, 0x1p63 };  // the first above the range
    if (dt == TN_BOOL) return v != 0;
    if (isnan(v)) return 0;
    v = trunc(v);
    if (v < low[dt]) return (int64_t)low[dt];
    if (v >= high[dt]) return dt == TN_I64 ? INT64_MAX : (int64_t)high[dt] - 1;
    return (int64_t)v;
}

// Rounds once. Above 53 bits the digits that double has no room for are folded into its last one,
// which is below anything that the rounding to 16 bits looks at except whether it is 0.
static double float_of_int(tn_dtype dt, int64_t v)
{
    if (dt == TN_F64) return (double)v;
    if (dt == TN_F32) return (float)v;
    if (v >= INT64_C(1) << 53 || v <= -(INT64_C(1) << 53))
        return tni_ref_round(dt, (double)(v >> 11 | ((v & 2047) != 0)) * 2048);
    return tni_ref_round(dt, (double)v);
}

tni_cell tni_ref_convert(tn_dtype to, tn_dtype from, tni_cell v)
{
    if (!tni_is_float(from))
        return tni_is_float(to) ? (tni_cell){ .f = float_of_int(to, v.i) }
                                : (tni_cell){ .i = tni_ref_wrap(to, v.i) };
    if (!tni_is_float(to)) return (tni_cell){ .i = int_of_float(to, v.f) };
    return holds_all_of(to, from) ? v : (tni_cell){ .f = tni_ref_round(to, v.f) };
}

bool tni_ref_above(tn_dtype dt, tni_cell a, tni_cell b)
{
    if (!tni_is_float(dt)) return a.i > b.i;
    if (isnan(a.f)) return !isnan(b.f);
    return a.f > b.f;
}

// ---- to and from the host ----------------------------------------------------------------------

static double decode(format f, uint16_t bits)
{
    int    point = f.digits - 1, exponent = (bits & 0x7fff) >> point;
    int    digits = bits & ((1 << point) - 1);
    double v;
    if (exponent == 0x7fff >> point) v = digits ? NAN : INFINITY;
    else if (exponent == 0) v = ldexp(digits, f.lowest - point);
    else v = ldexp(digits + (1 << point), exponent - 1 + f.lowest - point);
    return bits & 0x8000 ? -v : v;
}

// The hidden digit of a normal number adds the 1 that its exponent field is ahead by.
static uint16_t encode(format f, double v)
{
    int      point = f.digits - 1, infinity = 0x7fff >> point << point;
    unsigned sign = signbit(v) ? 0x8000 : 0, bits;
    v             = fabs(round_to_format(f, v));
    if (isnan(v)) {
        bits = infinity | 1 << (point - 1);
    } else if (isinf(v)) {
        bits = infinity;
    } else {
        int last = last_digit(f, v);
        bits     = ((last + point - f.lowest) << point) + (int)ldexp(v, -last);
    }
    return (uint16_t)(sign | bits);
}

// An element in host memory, which need not be aligned.
typedef union {
    uint8_t  u8;
    int8_t   i8;
    int32_t  i32;
    int64_t  i64;
    uint16_t half;
    float    f32;
    double   f64;
} host_cell;

static tni_cell from_host(tn_dtype dt, host_cell h)
{
    switch (dt) {
    case TN_BOOL: return (tni_cell){ .i = h.u8 != 0 };
    case TN_U8: return (tni_cell){ .i = h.u8 };
    case TN_I8: return (tni_cell){ .i = h.i8 };
    case TN_I32: return (tni_cell){ .i = h.i32 };
    case TN_I64: return (tni_cell){ .i = h.i64 };
    case TN_F32: return (tni_cell){ .f = h.f32 };
    case TN_F64: return (tni_cell){ .f = h.f64 };
    default: return (tni_cell){ .f = decode(format_of(dt), h.half) };
    }
}

static host_cell to_host(tn_dtype dt, tni_cell v)
{
    switch (dt) {
    case TN_BOOL: return (host_cell){ .u8 = v.i != 0 };
    case TN_U8: return (host_cell){ .u8 = (uint8_t)v.i };
    case TN_I8: return (host_cell){ .i8 = (int8_t)v.i };
    case TN_I32: return (host_cell){ .i32 = (int32_t)v.i };
    case TN_I64: return (host_cell){ .i64 = v.i };
    case TN_F32: return (host_cell){ .f32 = (float)v.f };
    case TN_F64: return (host_cell){ .f64 = v.f };
    default: return (host_cell){ .half = encode(format_of(dt), v.f) };
    }
}

void tni_ref_put(void *dst, tn_dtype dt, const void *host, int64_t count)
{
    size_t size = tni_dtype_size(dt);
    for (int64_t i = 0; i < count; i++) {
        host_cell h;
        memcpy(&h, (const char *)host + (size_t)i * size, size);
        ((tni_cell *)dst)[i] = from_host(dt, h);
    }
}

void tni_ref_get(void *host, tn_dtype dt, const void *src, int64_t count)
{
    size_t size = tni_dtype_size(dt);
    for (int64_t i = 0; i < count; i++) {
        host_cell h = to_host(dt, ((const tni_cell *)src)[i]);
        memcpy((char *)host + (size_t)i * size, &h, size);
    }
}
