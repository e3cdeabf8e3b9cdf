// Element types: the table of dtype.def in memory, and promotion by it. Nothing asks where a dtype
// is in tn_dtype: its properties are in its row.
#ifndef TNI_TENSOR_DTYPE_H
#define TNI_TENSOR_DTYPE_H

#include "tenon.h"

// The number of computing types and of dtypes. TNI_IN_f is the index of the first computing type,
// TNI_AS_f its dtype.
enum {
#define COMPUTE(id, letter, ...) TNI_IN_##letter,
#include "tensor/dtype.def"
    TNI_COMPUTES
};
enum {
#define COMPUTE(id, letter, ...) TNI_AS_##letter = TN_##id,
#include "tensor/dtype.def"
};
enum {
#define DTYPE(id, ...) TNI_ROW_##id,
#include "tensor/dtype.def"
    TNI_DTYPES
};

typedef enum {
    TNI_CLASS_BOOL,
    TNI_CLASS_UNSIGNED,
    TNI_CLASS_SIGNED,
    TNI_CLASS_FLOAT
} tni_dtype_class;
enum { TNI_USE_MATH, TNI_USE_STORE };
typedef enum { TNI_HELD_SELF, TNI_HELD_TRUTH, TNI_HELD_WRAP, TNI_HELD_ROUND } tni_held;

// A row of the table; dtype.def explains the columns. low and high are bounds as doubles, in which
// the largest i64 is rounded.
typedef struct {
    const char *name, *kernel, *stem, *user, *safetensors, *npy;
    double      low, past, high;
    uint8_t     bytes, class, held, compute, number, digits;  // number: of the computing type
} tni_dtype_facts;

// A type that kernels compute in: the letter of its functions' names (o_add_f), its dtype, the
// dtype of its sums, its C type, and the unsigned type in which its sums wrap around.
typedef struct {
    char        letter;
    uint8_t     dtype, total;
    const char *type, *wraps;
} tni_compute_facts;

extern const tni_dtype_facts   tni_dtype_table[];
extern const tni_compute_facts tni_compute_table[];

// Sets of dtypes by bit.
enum {
    TNI_FLOATS = 0
#define DTYPE(id, name, class, ...) | (TNI_CLASS_##class == TNI_CLASS_FLOAT) << TN_##id
#include "tensor/dtype.def"
    ,
    TNI_STORED = 0
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user, \
              safetensors, npy, use)                                                        \
    | (TNI_USE_##use == TNI_USE_STORE) << TN_##id
#include "tensor/dtype.def"
    ,
    TNI_ROUNDED = 0
#define DTYPE(id, name, class, held, ...) | (TNI_HELD_##held == TNI_HELD_ROUND) << TN_##id
#include "tensor/dtype.def"
};

static inline bool tni_dtype_ok(tn_dtype dt)
{
    return (unsigned)dt < TNI_DTYPES;
}
// Whether a dtype is of complex numbers, which only handles know: their nodes hold pairs of the
// part's dtype (tn_tensor.complex), so complex dtypes have no row and tni_dtype_ok is false for
// them.
static inline bool tni_is_complex(tn_dtype dt)
{
    return dt == TN_C64 || dt == TN_C128;
}
// The dtype of the parts of a complex one; and back.
static inline tn_dtype tni_part_dtype(tn_dtype dt)
{
    return dt == TN_C128 ? TN_F64 : dt == TN_C64 ? TN_F32 : dt;
}
static inline tn_dtype tni_complex_of(tn_dtype part)
{
    return part == TN_F64 ? TN_C128 : TN_C64;
}
static inline bool tni_is_float(tn_dtype dt)
{
    return TNI_FLOATS >> dt & 1;
}
static inline bool tni_is_int(tn_dtype dt)
{
    return dt != TN_BOOL && !tni_is_float(dt);
}
static inline bool tni_is_signed(tn_dtype dt)
{
    return tni_dtype_table[dt].class >= TNI_CLASS_SIGNED;
}
// Whether values are computed as floats of more digits and rounded when they are stored.
static inline bool tni_is_rounded(tn_dtype dt)
{
    return TNI_ROUNDED >> dt & 1;
}
// Whether a dtype only stores numbers: nothing is computed with it.
static inline bool tni_is_storage_only(tn_dtype dt)
{
    return TNI_STORED >> dt & 1;
}
// Whether memory holds elements in the form in which they are computed.
static inline bool tni_is_held_as_is(tn_dtype dt)
{
    return tni_dtype_table[dt].held == TNI_HELD_SELF;
}

// Bytes of an element in host memory.
static inline size_t tni_dtype_size(tn_dtype dt)
{
    return tni_dtype_table[dt].bytes;
}
// The same of any dtype, also a complex one.
static inline size_t tni_element_size(tn_dtype dt)
{
    return tni_dtype_size(tni_part_dtype(dt)) * (1 + tni_is_complex(dt));
}

// The dtype that a dtype is computed in, and that its long sums are joined in.
static inline tn_dtype tni_compute_dtype(tn_dtype dt)
{
    return (tn_dtype)tni_dtype_table[dt].compute;
}
static inline tn_dtype tni_total_dtype(tn_dtype dt)
{
    return (tn_dtype)tni_compute_table[tni_dtype_table[dt].number].total;
}

// The distance from 1 to the next number of a float dtype.
double tni_dtype_epsilon(tn_dtype dt);

// Whether every value of one dtype is a value of another.
bool tni_dtype_holds(tn_dtype wide, tn_dtype dt);

// A number as an integer dtype holds it, by the rule of the op table's cast: truncated; outside the
// range the nearest bound; NaN is 0. For u64 the bits.
int64_t tni_clamp_to_dtype(tn_dtype dt, double f);

// Element i of integers or bools in memory; of u64 the bits.
int64_t tni_integer_at(tn_dtype dt, const void *data, int64_t i);

// The smallest dtype that holds both: for i8 and u8 i16, for f16 and bf16 f32. Floats hold all
// integers in this sense.
tn_dtype tni_promote(tn_dtype a, tn_dtype b);

// One operand of a promotion. A plain number (weak) counts less than a 0-d tensor, which counts
// less than one with axes: the weaker one matters only if its category (bool, integer, float) is
// higher.
typedef struct {
    tn_dtype dtype;
    int      strength;  // 0 a number, 1 a 0-d tensor, 2 a tensor with axes
} tni_operand;

tn_dtype tni_promote_all(int n, const tni_operand *x);

#endif
