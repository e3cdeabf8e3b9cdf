// Numbers of the reference device: rounding to a dtype, conversion between dtypes, and the way to
// and from the host. The narrow floats are written with frexp and ldexp, independently of the bit
// arithmetic of the math prelude, which is tested against this.
#include "ref.h"

#include <math.h>

// Shifts the upper bits out and back: arithmetically if signed, so that the sign is extended.
int64_t tni_ref_wrap(tn_dtype dt, int64_t v)
{
    const tni_dtype_facts *f    = &tni_dtype_table[dt];
    int                    over = 64 - (f->digits + tni_is_signed(dt));  // bits above the dtype's
    if (dt == TN_BOOL) return v != 0;
    uint64_t up = (uint64_t)v << over;
    return tni_is_signed(dt) ? (int64_t)up >> over : (int64_t)(up >> over);
}

// The format of a narrow float: its digits (the hidden one included), the exponent of its smallest
// normal number, its largest number, and all bits but the sign. endless: it has infinities. A
// format with numbers above 2^(2 - lowest) uses the codes of infinity and of all NaNs but one for
// them (f8 e4m3), and infinity becomes its largest number.
typedef struct {
    int      digits, lowest;
    double   largest;
    unsigned all;
    bool     endless;
} format;

static format format_of(tn_dtype dt)
{
    const tni_dtype_facts *f      = &tni_dtype_table[dt];
    int                    lowest = ilogb(f->low);
    return (format){ f->digits, lowest, f->high, (1u << (8 * f->bytes - 1)) - 1,
                     f->high < ldexp(1, 2 - lowest) };
}

// Returns the exponent of the last digit of numbers of v's size; v is finite. Below the smallest
// normal number it stays the same: subnormals.
static int last_digit(format f, double v)
{
    int e;
    frexp(v, &e);  // |v| in [2^(e-1), 2^e)
    e--;
    if (v == 0 || e < f.lowest) e = f.lowest;
    return e - (f.digits - 1);
}

// Rounds to nearest even. Scaling by a power of two is exact, so that nearbyint is the only
// rounding.
static double round_to_format(format f, double v)
{
    if (isnan(v)) return v;
    double over = copysign(f.endless ? INFINITY : f.largest, v);
    if (isinf(v)) return over;
    int    last = last_digit(f, v);
    double r    = ldexp(nearbyint(ldexp(v, -last)), last);
    return fabs(r) > f.largest ? over : r;
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

// Converts with one rounding. Above 53 bits, the bits that double cannot hold are folded into its
// last bit ("round to odd"), so that the rounding to 16 bits sees whether they were 0: rounding
// twice could round the wrong way.
static double float_of_u64(tn_dtype dt, uint64_t v)
{
    if (dt == TN_F64) return (double)v;
    if (dt == TN_F32) return (float)v;
    return tni_ref_round(dt, (double)(v >> 11 | ((v & 2047) != 0)) * 2048);
}

// The same for signed integers; the shift is arithmetic.
static double float_of_int(tn_dtype dt, int64_t v)
{
    if (dt == TN_F64) return (double)v;
    if (dt == TN_F32) return (float)v;
    if (v >= INT64_C(1) << 53 || v <= -(INT64_C(1) << 53))
        return tni_ref_round(dt, (double)(v >> 11 | ((v & 2047) != 0)) * 2048);
    return tni_ref_round(dt, (double)v);
}

// Four cases: u64 above int64's range, integer to float or integer, float to integer (cut towards 0
// and clipped, NaN gives 0), float to float (rounded only if the dtype does not hold all values of
// the old one).
tni_cell tni_ref_convert(tn_dtype to, tn_dtype from, tni_cell v)
{
    if (from == TN_U64 && tni_is_float(to) && v.i < 0)
        return (tni_cell){ .f = float_of_u64(to, (uint64_t)v.i) };
    if (!tni_is_float(from))
        return tni_is_float(to) ? (tni_cell){ .f = float_of_int(to, v.i) }
                                : (tni_cell){ .i = tni_ref_wrap(to, v.i) };
    if (!tni_is_float(to)) return (tni_cell){ .i = tni_clamp_to_dtype(to, v.f) };
    return tni_dtype_holds(to, from) ? v : (tni_cell){ .f = tni_ref_round(to, v.f) };
}

bool tni_ref_above(tn_dtype dt, tni_cell a, tni_cell b)
{
    if (dt == TN_U64) return (uint64_t)a.i > (uint64_t)b.i;
    if (!tni_is_float(dt)) return a.i > b.i;
    if (isnan(a.f)) return !isnan(b.f);
    return a.f > b.f;
}

// ---- to and from the host ----------------------------------------------------------------------

// Returns the value of a narrow float's bits: infinity or NaN, a subnormal, or a normal number with
// its hidden digit.
static double decode_bits(format f, unsigned bits)
{
    int    point = f.digits - 1, exponent = (int)((bits & f.all) >> point);
    int    digits = (int)(bits & ((1u << point) - 1));
    double v;
    if (f.endless ? exponent == (int)(f.all >> point) : (bits & f.all) == f.all)
        v = digits ? NAN : INFINITY;
    else if (exponent == 0) v = ldexp(digits, f.lowest - point);
    else v = ldexp(digits + (1 << point), exponent - 1 + f.lowest - point);
    return bits > f.all ? -v : v;
}

// Returns the bits of v, rounded. The hidden digit of a normal number carries into the exponent
// field, which adds the 1 by which normal numbers are ahead of subnormals.
static unsigned encode_bits(format f, double v)
{
    int      point    = f.digits - 1;
    unsigned infinity = f.all >> point << point, sign = signbit(v) ? f.all + 1 : 0, bits;
    v = fabs(round_to_format(f, v));
    if (isnan(v)) {
        bits = f.all;
    } else if (isinf(v)) {
        bits = infinity;
    } else {
        int last = last_digit(f, v);
        bits     = (unsigned)(((last + point - f.lowest) << point) + (int)ldexp(v, -last));
    }
    return sign | bits;
}

#define CELL_BOOL(held, v)     .i = (v) != 0
#define CELL_UNSIGNED(held, v) .i = (int64_t)(v)
#define CELL_SIGNED(held, v)   .i = (v)
#define CELL_FLOAT(held, v)    .f = FLOAT_##held(v)
#define FLOAT_SELF(v)          (v)
#define FLOAT_ROUND(v)         decode_bits(format_of(dt), v)
#define HOST_BOOL(held, v)     (v).i != 0
#define HOST_UNSIGNED(held, v) (v).i
#define HOST_SIGNED(held, v)   (v).i
#define HOST_FLOAT(held, v)    HOST_FLOAT_##held(v)
#define HOST_FLOAT_SELF(v)     (v).f
#define HOST_FLOAT_ROUND(v)    encode_bits(format_of(dt), (v).f)

// Converts one element of the host, which need not be aligned; the cases are made from dtype.def.
static tni_cell cell_from_host(tn_dtype dt, const void *p)
{
    switch (dt) {
#define DTYPE(id, name, class, held, in, host, ...) \
    case TN_##id: {                                 \
        host h;                                     \
        memcpy(&h, p, sizeof h);                    \
        return (tni_cell){ CELL_##class(held, h) }; \
    }
#include "tensor/dtype.def"
    default: return (tni_cell){ 0 };
    }
}

static void cell_to_host(tn_dtype dt, tni_cell v, void *p)
{
    switch (dt) {
#define DTYPE(id, name, class, held, in, host, ...) \
    case TN_##id: {                                 \
        host h = (host)(HOST_##class(held, v));     \
        memcpy(p, &h, sizeof h);                    \
        break;                                      \
    }
#include "tensor/dtype.def"
    default: break;
    }
}

void tni_ref_from_host(void *dst, tn_dtype dt, const void *host, int64_t count)
{
    size_t size = tni_dtype_size(dt);
    for (int64_t i = 0; i < count; i++)
        ((tni_cell *)dst)[i] = cell_from_host(dt, (const char *)host + (size_t)i * size);
}

void tni_ref_to_host(void *host, tn_dtype dt, const void *src, int64_t count)
{
    size_t size = tni_dtype_size(dt);
    for (int64_t i = 0; i < count; i++)
        cell_to_host(dt, ((const tni_cell *)src)[i], (char *)host + (size_t)i * size);
}
