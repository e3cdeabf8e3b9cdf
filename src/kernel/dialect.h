// A dialect: how C, OpenCL C and CUDA C spell what a kernel is made of. What is common to the three
// (operators, casts, `for`, the m_ types and functions of the prelude) has no entry here.
#ifndef TNI_KERNEL_DIALECT_H
#define TNI_KERNEL_DIALECT_H

#include "kernel/kernel.h"

// The spellings of one dialect. All texts are constants; none is NULL ("" where there is nothing
// to say). Words that qualify something end with a space.
typedef struct {
    const char        *name;  // "c", "opencl", "cuda"
    const char *const *shim;  // begins every program: types, M_FN, bit casts (prelude_text.h)
    const char *const *more;  // functions of its own, each begun with M_FN, taken when used; one
                              // named as a row of the prelude stands in its place
    const char *const
        *folds;          // functions for each fold and type: f_NAME_@op_@s; in the text @op is the
                         // fold (sum, prod, max, min), @s the suffix, @t the compute type, @w
                         // the type of totals
    const char *kernel;  // before the name of a kernel
    const char *global;  // before the type of what a pointer to a buffer points to
    const char *shared;  // before a declaration of memory of a work group
    const char *no_alias;  // `restrict`
    const char *barrier;   // statement: all of a work group get here
    const char *local_id, *group_id, *local_size, *groups;  // m_int expressions, axis x
    const char *unroll;  // before a `for` that ends by a constant
} tni_dialect;

extern const tni_dialect tni_dialect_c, tni_dialect_opencl, tni_dialect_cuda;

// The compute type of a dtype as text: float, double, m_int or m_long; and the suffix of the names
// of functions over it: f, d, i or l. tni_wide_type is that of totals: double or m_long.
static inline const char *tni_compute_type(tn_dtype dt)
{
    return tni_compute_table[tni_dtype_table[dt].number].type;
}
static inline char tni_compute_suffix(tn_dtype dt)
{
    return tni_compute_table[tni_dtype_table[dt].number].letter;
}
static inline const char *tni_wide_type(tn_dtype dt)
{
    return tni_compute_type(tni_total_dtype(dt));
}
// The type of an element in memory: float, m_ushort (f16, bf16), unsigned char (bool, u8), ...
static inline const char *tni_kept_type(tn_dtype dt)
{
    return tni_dtype_table[dt].kernel;
}

#endif
