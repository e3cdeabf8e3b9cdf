// Walking over elements that lie by strides: merging axes, and bringing elements into tiles.
#ifndef TNI_DEVICE_CPU_CPU_WALK_H
#define TNI_DEVICE_CPU_CPU_WALK_H

#include "base/integers.h"
#include "device/cpu/tiles.h"
#include "device/device.h"

// Room for one operand of a tile: as it was gathered, and as it is computed with.
typedef struct {
    _Alignas(64) char raw[TNI_TILE * 8];
    _Alignas(64) char ready[TNI_TILE * 8];
} tni_room;

static inline int64_t tni_arg_count(const tni_arg *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->size[i];
    return n;
}

// How many of the threads are worth waking for so many elements: each has its share to do.
static inline int tni_threads_for(int threads, int64_t elements)
{
    enum { SHARE = 16384 };
    int64_t most = elements / SHARE;
    return most < 2 ? 1 : most < threads ? (int)most : threads;
}

// The distance of a stride, either way.
static inline int64_t tni_reach(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

// A row-major argument.
tni_arg tni_arg_rows(tn_dtype dt, int rank, const int64_t *size, void *data);
bool    tni_arg_is_rows(const tni_arg *x);
// The same element everywhere.
bool tni_arg_is_still(const tni_arg *x);

// Drops axes of size 1 and merges neighbours that are one run in all n arguments, which have one
// shape. Row-major order stays.
void tni_merge(int n, tni_arg *const *x);
// Sorts the axes of n arguments alike, by falling stride of the first. Stable.
void tni_sort_axes(int n, tni_arg *const *x);
// Takes the axes perm[0 .. rank-1] in that order.
void tni_permute(tni_arg *x, int rank, const int *perm);
// Where element `at` in row-major order lies, in elements from data.
int64_t tni_arg_place(const tni_arg *x, int64_t at);

// y[i] = x[i * stride], elements of 1, 2, 4 or 8 bytes.
void tni_gather_run(size_t bytes, void *y, const void *x, int64_t stride, int64_t n);
// y[i * stride] = x[i].
void tni_scatter_run(size_t bytes, void *y, const void *x, int64_t stride, int64_t n);
// y[i * stride] += x[i], of any dtype but the 16-bit floats; bools: or.
void tni_add_run(tn_dtype dt, void *y, const void *x, int64_t stride, int64_t n);
// y[i] = *x.
void tni_fill_run(size_t bytes, void *y, const void *x, int64_t n);

// Elements first .. first+n-1 of x in row-major order, n up to TNI_TILE, as dtype `as`: in place
// where they are so already, else in the room. x's axes should be merged.
const void *tni_tile_of(const tni_tiles *t, const tni_arg *x, tn_dtype as, int64_t first, int64_t n,
                        tni_room *room);
// The same for n elements a stride apart.
const void *tni_tile_run(const tni_tiles *t, const char *x, tn_dtype dt, int64_t stride,
                         tn_dtype as, int64_t n, tni_room *room);

// ---- what the files of this folder offer to cpu.c; scratch functions give the bytes wanted ----

void      tni_cpu_copy(const tni_call *call);
void      tni_cpu_concat(const tni_call *call);
size_t    tni_cpu_arg_scratch(const tni_call *call);
void      tni_cpu_arg(const tni_call *call);
void      tni_cpu_scan(const tni_call *call);
size_t    tni_cpu_scatter_scratch(const tni_call *call);
tn_status tni_cpu_scatter(const tni_call *call);
size_t    tni_cpu_fold_scratch(const tni_call *call);
void      tni_cpu_fold(const tni_call *call);

// Of every LIBRARY row.
// clang-format off
#define CALLS(f, g)                                 \
    tn_status tni_cpu_##f(const tni_call *call);     \
    size_t    tni_cpu_##f##_scratch(const tni_call *call);
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_IF_##class(expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
// clang-format on

// Copies in to out, of one shape, any strides and dtypes.
void tni_copy_arg(int threads, const tni_arg *in, const tni_arg *out);

#endif
