// Shared by the files of the reference device: elements as it stores them, a walk through a shape,
// and the functions that run ops, with the file that each is in.
#ifndef TNI_DEVICE_REF_H
#define TNI_DEVICE_REF_H

#include "device/device.h"
#include "tensor/dtype.h"

#include <string.h>

// One element in this device's memory: f for float dtypes, i for integers and bool (0 or 1).
// Invariant: an integer is always one that its dtype can hold; a float may have more digits than
// its dtype.
typedef union {
    double  f;
    int64_t i;
} tni_cell;

static inline tni_cell *tni_cells(const tni_arg *x)
{
    return (tni_cell *)x->data;
}

// Returns the offset of element at[] of x, in elements from x's first.
static inline int64_t tni_ref_offset(const tni_arg *x, const int64_t *at)
{
    int64_t p = 0;
    for (int i = 0; i < x->rank; i++) p += at[i] * x->stride[i];
    return p;
}

// A walk through all indices of a shape in row-major order, which is also how an output is
// numbered:
//
//     for (tni_ref_walk w = tni_ref_walk_over(rank, size); w.left; tni_ref_walk_next(&w)) ... w.at ...
typedef struct {
    int     rank;
    int64_t size[TN_MAX_RANK], at[TN_MAX_RANK];
    int64_t left;  // indices still to be visited, this one included
} tni_ref_walk;

static inline tni_ref_walk tni_ref_walk_over(int rank, const int64_t *size)
{
    tni_ref_walk w = { .rank = rank, .left = tni_shape_count(rank, size) };
    if (rank) memcpy(w.size, size, (size_t)rank * sizeof *size);
    return w;
}

static inline void tni_ref_walk_next(tni_ref_walk *w)
{
    w->left--;
    for (int i = w->rank - 1; i >= 0 && ++w->at[i] == w->size[i]; i--) w->at[i] = 0;
}

// ---- numbers -----------------------------------------------------------------------------------

// Returns an integer cut to the width of its dtype; for bool, whether it is not 0.
int64_t tni_ref_wrap(tn_dtype dt, int64_t v);
// Returns a float rounded to its dtype, to nearest even.
double tni_ref_round(tn_dtype dt, double v);
// Converts as the op `cast` does. A float that is cast to a dtype that holds all its values keeps
// its digits.
tni_cell tni_ref_convert(tn_dtype to, tn_dtype from, tni_cell v);
// Returns whether a is above b; NaN is above everything else.
bool tni_ref_above(tn_dtype dt, tni_cell a, tni_cell b);

// Convert count elements from the host's form to cells, and back.
void tni_ref_from_host(void *dst, tn_dtype dt, const void *host, int64_t count);
void tni_ref_to_host(void *host, tn_dtype dt, const void *src, int64_t count);

// ---- ops, by kind ------------------------------------------------------------------------------

void      tni_ref_source(const tni_call *c);  // full, scalar, iota and the random ones
void      tni_ref_map(const tni_call *c);
void      tni_ref_reduce(const tni_call *c);
void      tni_ref_scan(const tni_call *c);
void      tni_ref_copy(const tni_call *c);  // also cast
void      tni_ref_pad(const tni_call *c);
void      tni_ref_concat(const tni_call *c);
tn_status tni_ref_gather(const tni_call *c);
tn_status tni_ref_scatter(const tni_call *c);  // also scatter_add
void      tni_ref_fold(const tni_call *c);

// Of every LIBRARY row, with the bytes of scratch that it wants.
// clang-format off
#define CALLS(f, g)                              \
    tn_status tni_ref_##f(const tni_call *c);     \
    size_t    tni_ref_##f##_scratch(const tni_call *c);
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_IF_##class(expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
// clang-format on

#endif
