// Facts about element types, and promotion.
#include "tensor/dtype.h"

int64_t tni_clipped(tn_dtype dt, double f)
{
    int     bits = dt == TN_I64 ? 63 : dt == TN_I32 ? 31 : dt == TN_U8 ? 8 : 7;
    double  past = (double)((uint64_t)1 << bits), low = dt == TN_U8 ? 0 : -past;
    int64_t top = (int64_t)(((uint64_t)1 << bits) - 1);
    if (dt == TN_BOOL) return f != 0;
    if (!(f == f)) return 0;
    return f >= past ? top : f <= low ? (int64_t)low : (int64_t)f;
}

size_t tni_dtype_size(tn_dtype dt)
{
    static const unsigned char bytes[TNI_DTYPES] = { 1, 1, 1, 4, 8, 2, 2, 4, 8 };
    return bytes[dt];
}

const char *tn_dtype_name(tn_dtype dt)
{
    static const char *const names[TNI_DTYPES] = { "bool", "u8",   "i8",  "i32", "i64",
                                                   "f16",  "bf16", "f32", "f64" };
    return tni_dtype_ok(dt) ? names[dt] : "?";
}

tn_dtype tni_promote(tn_dtype a, tn_dtype b)
{
    tn_dtype hi = a > b ? a : b, lo = a > b ? b : a;
    if (hi == TN_I8 && lo == TN_U8) return TN_I32;
    if (hi == TN_BF16 && lo == TN_F16) return TN_F32;
    return hi;
}

static int category(tn_dtype dt)
{
    return dt == TN_BOOL ? 0 : dt < TN_F16 ? 1 : 2;
}

// The result of the strongest operands, unless weaker ones are of a higher category.
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
