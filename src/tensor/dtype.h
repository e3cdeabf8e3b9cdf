// Element types: their sizes, kinds and PyTorch's rules of promotion.
#ifndef TNI_TENSOR_DTYPE_H
#define TNI_TENSOR_DTYPE_H

#include "tenon.h"

enum { TNI_DTYPES = TN_F64 + 1 };

static inline bool tni_dtype_ok(tn_dtype dt)
{
    return (unsigned)dt < TNI_DTYPES;
}
static inline bool tni_is_float(tn_dtype dt)
{
    return dt >= TN_F16;
}
static inline bool tni_is_int(tn_dtype dt)
{
    return dt > TN_BOOL && dt < TN_F16;
}

// A number as an integer dtype has it, as the op table's cast: cut; what is outside goes to the
// nearest, NaN to 0.
int64_t tni_clipped(tn_dtype dt, double f);

// Bytes of an element in host memory.
size_t tni_dtype_size(tn_dtype dt);

// The smallest type that holds both. u8 with i8 gives i32, f16 with bf16 gives f32.
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
