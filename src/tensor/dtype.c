// The table of element types (dtype.def compiled), conversions of single numbers, and type
// promotion.
#include "tensor/dtype.h"

#include <math.h>

const tni_compute_facts tni_compute_table[TNI_COMPUTES] = {
#define COMPUTE(id, letter, type, wraps, total) { #letter[0], TN_##id, TN_##total, #type, #wraps },
#include "tensor/dtype.def"
};

const tni_dtype_facts tni_dtype_table[TNI_DTYPES] = {
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user,       \
              safetensors, npy, use)                                                              \
    [TN_##id] = {                                                                                 \
        #name,       #kernel,     #stem,        #user,        safetensors,       npy,             \
        low,         past,        (double)high, sizeof(host), TNI_CLASS_##class, TNI_HELD_##held, \
        TNI_AS_##in, TNI_IN_##in, digits                                                          \
    },
#include "tensor/dtype.def"
};

const char *tn_dtype_name(tn_dtype dt)
{
    if (tni_is_complex(dt)) return dt == TN_C64 ? "c64" : "c128";
    return tni_dtype_ok(dt) ? tni_dtype_table[dt].name : "?";
}

double tni_dtype_epsilon(tn_dtype dt)
{
    return ldexp(1, 1 - tni_dtype_table[dt].digits);
}

// A float holds another if it has its digits and reaches as far both ways; a float holds an integer
// dtype if it has its digits; an integer dtype holds another if it has its digits and, if the other
// is signed, a sign.
bool tni_dtype_holds(tn_dtype wide, tn_dtype dt)
{
    const tni_dtype_facts *w = &tni_dtype_table[wide], *x = &tni_dtype_table[dt];
    if (wide == dt) return true;
    if (w->digits < x->digits) return false;
    if (x->class == TNI_CLASS_FLOAT)
        return w->class == TNI_CLASS_FLOAT && w->low <= x->low && w->high >= x->high;
    return w->class != TNI_CLASS_BOOL &&
           (x->class != TNI_CLASS_SIGNED || w->class >= TNI_CLASS_SIGNED);
}

// Saturates, as C's conversion would be undefined outside the range. The comparison with `past` is
// exact in double, while the largest i64 and u64 themselves have no double.
int64_t tni_clamp_to_dtype(tn_dtype dt, double f)
{
    const tni_dtype_facts *x = &tni_dtype_table[dt];
    if (x->class == TNI_CLASS_BOOL) return f != 0;
    if (f >= x->past) return (int64_t)(UINT64_MAX >> (64 - x->digits));
    if (f >= 0x1p63) return (int64_t)(uint64_t)f;
    return f >= x->low ? (int64_t)f : f < x->low ? (int64_t)x->low : 0;
}

#define AT_BOOL(host)     ((const host *)data)[i] != 0
#define AT_UNSIGNED(host) (int64_t)((const host *)data)[i]
#define AT_SIGNED(host)   ((const host *)data)[i]
#define AT_FLOAT(host)    0

int64_t tni_integer_at(tn_dtype dt, const void *data, int64_t i)
{
    switch (dt) {
// clang-format off
#define DTYPE(id, name, class, held, in, host, ...) \
    case TN_##id: return AT_##class(host);
#include "tensor/dtype.def"
    default: return 0;
        // clang-format on
    }
}

// The smallest signed dtype that holds both, for two integer dtypes of which neither holds the
// other (one alone has a sign). As in NumPy it is f64 if there is none; PyTorch has no such rule
// beyond u8 and i8.
static tn_dtype hold_both(tn_dtype a, tn_dtype b)
{
    tn_dtype y = TN_F64;
    for (int i = 0; i < TNI_DTYPES; i++) {
        tn_dtype dt = (tn_dtype)i;
        if (!tni_is_int(dt) || !tni_dtype_holds(dt, a) || !tni_dtype_holds(dt, b)) continue;
        if (y == TN_F64 || tni_dtype_holds(y, dt)) y = dt;
    }
    return y;
}

tn_dtype tni_promote(tn_dtype a, tn_dtype b)
{
    if (tni_is_float(a) != tni_is_float(b)) return tni_is_float(a) ? a : b;
    if (tni_dtype_holds(a, b)) return a;
    if (tni_dtype_holds(b, a)) return b;
    return tni_is_float(a) ? TN_F32 : hold_both(a, b);
}

// Bool, integers, floats: a stronger operand gives way only to a weaker one of a higher category.
static int category(tn_dtype dt)
{
    return dt == TN_BOOL ? 0 : tni_is_float(dt) ? 2 : 1;
}

// The promoted dtype of the strongest operands, unless weaker ones are of a higher category: then
// theirs. So i8 tensors plus the number 1 stay i8, and plus 1.5 become f32.
tn_dtype tni_promote_all(int n, const tni_operand *x)
{
    int result = -1;
    if (n == 2 && x[0].dtype == x[1].dtype) return x[0].dtype;
    for (int strength = 2; strength >= 0; strength--) {
        int level = -1;
        for (int i = 0; i < n; i++)
            if (x[i].strength == strength)
                level = level < 0 ? (int)x[i].dtype : (int)tni_promote(level, x[i].dtype);
        if (level < 0) continue;
        if (result < 0 || category(level) > category(result)) result = level;
    }
    return result;
}
