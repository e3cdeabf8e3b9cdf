// A dialect: how C, OpenCL C and CUDA C spell what a kernel is made of. What is common to the three
// (operators, casts, `for`, the m_ types and functions of the prelude) has no entry here.
#ifndef TNI_KERNEL_DIALECT_H
#define TNI_KERNEL_DIALECT_H

#include "kernel/kernel.h"

// Features of GPUs that kernels may use, as bits: those that a dialect can express, and of these
// the ones that a device's limits allow. OpenCL C 1.2 has none. Text that depends on a bit is
// spelled as in CUDA and HIP, or by an entry of the dialect.
enum {
    TNI_GPU_STRUCT = 1 << 0,  // a kernel takes one struct by value, in which buffers are addresses
    TNI_GPU_SHUFFLES  = 1 << 1,  // the TNI_WARP threads of a warp read each other's registers
    TNI_GPU_LAST      = 1 << 2,  // atomics and fences over all groups: the last to end can finish
    TNI_GPU_MATH      = 1 << 3,  // m_fast_exp_f and its kin, m_div_by_f, m_column
    TNI_GPU_PAIRS     = 1 << 4,  // m_max_pair_half and its kin: two 16-bit floats at once
    TNI_GPU_VECTORS   = 1 << 5,  // make_float4 and its kin, stores of vectors by m_put_
    TNI_GPU_REGISTERS = 1 << 6,  // a bound on the registers of a thread: __launch_bounds__
    TNI_GPU_ALL       = (1 << 7) - 1
};
// Threads of a warp. CDNA GPUs would have 64: it is a constant as long as CUDA alone has shuffles.
enum { TNI_WARP = 32 };

// The spellings of one dialect. All texts are constants; none is NULL, "" if the dialect needs no
// word. Qualifiers end with a space.
typedef struct {
    const char        *name;  // "c", "opencl", "cuda"
    const char *const *shim;  // begins every program: types, M_FN, bit casts (prelude_text.h)
    // Functions of its own, each beginning with M_FN, taken when used; one that is named as a row
    // of the prelude replaces that row.
    const char *const *functions;
    // Functions for each fold and type, f_NAME_@op_@s: @op becomes the fold (sum, prod, max, min),
    // @s the suffix, @t the compute type, @w the type of totals.
    const char *const *folds;
    const char        *kernel;    // before the name of a kernel
    const char        *global;    // before the type of what a pointer to a buffer points to
    const char        *shared;    // before a declaration of memory of a work group
    const char        *no_alias;  // `restrict`
    const char        *barrier;   // statement: waits until all threads of a work group are here
    const char        *begin;  // statement: waits for the kernel ahead, where launches may overlap
    const char        *local_id, *group_id, *local_size, *groups;  // m_int expressions, axis x
    const char        *unroll;    // before a `for` that ends by a constant
    const char        *unroll_8;  // before one that does not: eight turns at a time
    const char *local;  // before the type of what a pointer into a work group's memory points to
    const char *no_inline;         // before a function that is not to be inlined
    const char *sized_kernel;      // KERNEL(n): before the name of a kernel for groups of n
    const char *struct_qualifier;  // before a struct parameter that the kernel does not change
    const char *second_axis;       // what the grid's second axis adds, in slices of %d
    const char *shuffle;   // the value %s of the thread whose number differs by the bits of d
    unsigned    features;  // TNI_GPU_ bits
    bool        reorders;  // of C: cores find the next vector of a loop by themselves (c_vectors.c)
    bool        streams;   // of C: there are stores that write past the caches (c_streams.c)
} tni_dialect;

extern const tni_dialect tni_dialect_c, tni_dialect_opencl, tni_dialect_cuda;

// The compute type of a dtype as text: float, double, m_int or m_long; and the suffix of the names
// of functions over it: f, d, i or l. tni_total_type is that of totals: double or m_long.
static inline const char *tni_compute_type(tn_dtype dt)
{
    return tni_compute_table[tni_dtype_table[dt].number].type;
}
static inline char tni_compute_suffix(tn_dtype dt)
{
    return tni_compute_table[tni_dtype_table[dt].number].letter;
}
static inline const char *tni_total_type(tn_dtype dt)
{
    return tni_compute_type(tni_total_dtype(dt));
}
// The type of an element in memory: float, m_ushort (f16, bf16), unsigned char (bool, u8), ...
static inline const char *tni_storage_type(tn_dtype dt)
{
    return tni_dtype_table[dt].kernel;
}

#endif
