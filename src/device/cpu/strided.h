// Elements stored at strides: merging axes, copying runs of elements, and loading elements into
// tiles.
#ifndef TNI_DEVICE_CPU_STRIDED_H
#define TNI_DEVICE_CPU_STRIDED_H

#include "base/integers.h"
#include "device/cpu/tiles.h"
#include "device/device.h"

// Scratch for one operand of a tile: `raw` holds the elements in their own dtype as they were
// gathered, `ready` holds them in the dtype they are computed in.
typedef struct {
    _Alignas(64) char raw[TNI_TILE * 8];
    _Alignas(64) char ready[TNI_TILE * 8];
} tni_tile_scratch;

// Returns the number of elements.
static inline int64_t tni_arg_count(const tni_arg *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->size[i];
    return n;
}

// Returns how many of the threads are worth waking for a number of elements. Each thread gets at
// least SHARE of them, so that its work outweighs the cost of waking it. This decides who computes
// an element, never how.
static inline int tni_threads_for(int threads, int64_t elements)
{
    enum { SHARE = 16384 };
    int64_t most = elements / SHARE;
    return most < 2 ? 1 : most < threads ? (int)most : threads;
}

// Returns the distance of a stride in either direction.
static inline int64_t tni_abs_stride(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

// Returns a row-major argument at data.
tni_arg tni_arg_row_major(tn_dtype dt, int rank, const int64_t *size, void *data);
// Returns whether the elements are dense and in row-major order. Strides of axes of size 1 do not
// matter.
bool tni_arg_is_row_major(const tni_arg *x);
// Returns whether every index reads the same element.
bool tni_arg_is_broadcast(const tni_arg *x);

// Drops axes of size 1 and merges neighbouring axes that are one run in all n arguments, which have
// the same shape. Keeps row-major order, and with it the numbering of elements.
void tni_merge_axes(int n, tni_arg *const *x);
// Sorts the axes of n arguments alike, by falling stride of the first argument. Stable.
void tni_sort_axes(int n, tni_arg *const *x);
// Replaces the axes of x by its axes perm[0 .. rank-1], in that order. rank may be smaller than
// x's: the other axes are dropped.
void tni_permute_axes(tni_arg *x, int rank, const int *perm);
// Returns the offset of element number `at` in row-major order, in elements from data.
int64_t tni_arg_offset(const tni_arg *x, int64_t at);

// y[i] = x[i * stride], for elements of 1, 2, 4 or 8 bytes.
void tni_gather_run(size_t bytes, void *y, const void *x, int64_t stride, int64_t n);
// y[i * stride] = x[i].
void tni_scatter_run(size_t bytes, void *y, const void *x, int64_t stride, int64_t n);
// y[i * stride] += x[i], for every dtype but the 16-bit floats; bools are or-ed.
void tni_add_run(tn_dtype dt, void *y, const void *x, int64_t stride, int64_t n);
// y[i] = *x.
void tni_fill_run(size_t bytes, void *y, const void *x, int64_t n);

// Returns elements first .. first+n-1 of x in row-major order, n up to TNI_TILE, as elements of
// dtype `as`: a pointer into x if they are contiguous and of that dtype, else into the scratch. x's
// axes should be merged, so that runs are long.
const void *tni_tile_load(const tni_tiles *t, const tni_arg *x, tn_dtype as, int64_t first,
                          int64_t n, tni_tile_scratch *scratch);
// The same for n elements that are a stride apart.
const void *tni_tile_load_run(const tni_tiles *t, const char *x, tn_dtype dt, int64_t stride,
                              tn_dtype as, int64_t n, tni_tile_scratch *scratch);

#endif
