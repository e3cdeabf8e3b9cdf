// The inner loops of the interpreter and of the calls: functions over tiles, which are up to
// TNI_TILE contiguous elements of one compute type. tiles.inc and tiles_type.inc make them from
// ops.def, once per compute type and instruction set; all other code only brings elements to them.
//
// A compute type is a dtype that tni_compute_dtype returns. Tiles also hold bools as they are
// stored in memory, as bytes of 0 and 1.
#ifndef TNI_DEVICE_CPU_TILES_H
#define TNI_DEVICE_CPU_TILES_H

#include "kernel/kernel.h"

// A tile of 8-byte elements takes 8 KiB: two operands and a result fit in a first-level cache of 32
// KiB, and the cost of a call is spread over enough elements to vanish. Kernels cut lanes by the
// same number, TNI_STRIP of kernel.h.
enum { TNI_TILE = 1024 };

// The running value of a fold: d for floats, l for integers, u for u64.
typedef union {
    double   d;
    int64_t  l;
    uint64_t u;
} tni_total;

// y[i] = op(a[i], b[i], c[i]). Comparisons write bytes of 0 and 1, and the first operand of `where`
// is such bytes.
typedef void tni_tile_map(void *restrict y, const void *restrict a, const void *restrict b,
                          const void *restrict c, int64_t n);
// y[i] = x[i] in another dtype.
typedef void tni_tile_convert(void *restrict y, const void *restrict x, int64_t n);
// Folds n elements, 1 <= n <= TNI_TILE, in an order that depends on n alone.
typedef tni_total tni_tile_block(const void *x, int64_t n);
// acc[j] = fold(acc[j], x[i * step + j]) for j < n, for each i < rows in order.
typedef void tni_tile_fold(void *restrict acc, const void *restrict x, int64_t step, int64_t rows,
                           int64_t n);
// Replaces n elements by their running fold, which continues from *acc; *acc becomes the last.
typedef void tni_tile_scan(void *x, tni_total *acc, int64_t n);
// Returns the first i with x[i] == v, or the first NaN if v is NaN; n if there is none.
typedef int64_t tni_tile_find(const void *x, tni_total v, int64_t n);
// Sets best[j] = x[j] and at[j] = i wherever x[j] is better than best[j]. The first NaN is better
// than any number.
typedef void tni_tile_best(void *restrict best, int64_t *restrict at, const void *restrict x,
                           int64_t i, int64_t n);

// Rows of attention scores of any length, folded in an order that depends on n alone. bias is NULL
// or n elements.
//
//   softmax           x = e^(scale x + bias - max), where max is the largest scale x + bias. Returns one over
//                     the sum of x, or 0 if all are 0: the caller scales the result, which is shorter than
//                     the row. *lse, unless NULL, gets the logarithm of the sum of e^(scale x + bias).
//   softmax_from_lse  x = e^(scale x + bias - lse): the weights themselves, computed again for the gradient
//   softmax_grad      dw = scale w (dw - sum(w dw))
typedef double tni_tile_softmax(void *restrict x, const void *restrict bias, double scale,
                                int64_t n, double *lse);
typedef void   tni_tile_softmax_from_lse(void *restrict x, const void *restrict bias, double scale,
                                         int64_t n, double lse);
typedef void   tni_tile_softmax_grad(const void *restrict w, void *restrict dw, double scale,
                                     int64_t n);

// The functions of one compute type; NULL if an op does not take that type.
typedef struct {
    tni_tile_map              *map[TNI_OPS];
    tni_tile_block            *block[TNI_OPS];  // reductions
    tni_tile_fold             *fold[TNI_OPS];   // reductions and scans
    tni_tile_scan             *scan[TNI_OPS];
    tni_tile_find             *find;
    tni_tile_best             *better[2];  // larger, smaller
    tni_tile_softmax          *softmax;    // floats
    tni_tile_softmax_from_lse *softmax_from_lse;
    tni_tile_softmax_grad     *softmax_grad;
} tni_type_tiles;

// has only the dtypes that no tile has; the others are found in their own table.
typedef struct {
    tni_tile_convert *to[TNI_DTYPES], *from[TNI_DTYPES];
} tni_conversions;

// Elements first .. first+n-1 of a random tensor; first is a multiple of 4.
typedef void tni_tile_random(void *y, uint64_t key, uint64_t counter, int64_t first, int64_t n);

// All tile functions of one instruction set.
typedef struct {
    const char            *name;  // of the instruction set
    const tni_type_tiles  *of[TNI_DTYPES];
    const tni_conversions *as[TNI_DTYPES];  // of compute types and bools
    tni_tile_random       *bits;            // i64
    tni_tile_random       *uniform_f, *uniform_d, *normal_f, *normal_d;
} tni_tiles;

extern const tni_tiles tni_tiles_base;
extern const tni_tiles tni_tiles_avx2;    // on x86-64 only
extern const tni_tiles tni_tiles_avx512;  // on x86-64 only

// Returns the conversion between two dtypes, at least one of which tiles have.
static inline tni_tile_convert *tni_converter(const tni_tiles *t, tn_dtype from, tn_dtype to)
{
    return t->as[from] ? t->as[from]->to[to] : t->as[to]->from[from];
}

// Returns the functions for this machine.
const tni_tiles *tni_tiles_get(void);

#endif
