// The inner loops of the interpreter: functions over tiles, which are up to TNI_TILE contiguous
// elements of one compute type. They are made from ops.def by tiles.inc and tiles_type.inc, once
// per compute type and instruction set; everything else here only brings elements to them.
//
// A compute type is a dtype: that which tni_compute_dtype gives. Bools also stand in tiles as they are
// in memory.
#ifndef TNI_DEVICE_CPU_TILES_H
#define TNI_DEVICE_CPU_TILES_H

#include "kernel/kernel.h"

enum { TNI_TILE = 1024 };

// A fold so far: of floats in d, of integers in l, of u64 in u.
typedef union {
    double   d;
    int64_t  l;
    uint64_t u;
} tni_total;

// y[i] = op(a[i], b[i], c[i]). Comparisons write bytes of 0 and 1; the first operand of `where`
// is bytes.
typedef void tni_tile_map(void *restrict y, const void *restrict a, const void *restrict b,
                          const void *restrict c, int64_t n);
// y[i] = x[i] in another dtype.
typedef void tni_tile_convert(void *restrict y, const void *restrict x, int64_t n);
// Folds n elements, 1 <= n <= TNI_TILE, in an order that n alone decides.
typedef tni_total tni_tile_block(const void *x, int64_t n);
// acc[j] = fold(acc[j], x[i * step + j]) for j < n, for each i < rows in order.
typedef void tni_tile_fold(void *restrict acc, const void *restrict x, int64_t step, int64_t rows,
                           int64_t n);
// The running fold of n elements after *acc, in place; *acc becomes the last.
typedef void tni_tile_scan(void *x, tni_total *acc, int64_t n);
// The first i with x[i] == v, or not a number where v is; n if there is none.
typedef int64_t tni_tile_find(const void *x, tni_total v, int64_t n);
// Where x[j] is better than best[j] (its first NaN is best): best[j] = x[j], at[j] = i.
typedef void tni_tile_best(void *restrict best, int64_t *restrict at, const void *restrict x,
                           int64_t i, int64_t n);

// Rows of attention, of any length, in an order that n alone decides. weigh: x = e^(scale x + bias
// - the largest of those), bias being NULL or n elements; gives one over the sum of them, 0 where all
// are 0; *lse, if asked for, is the logarithm of the sum of e^(scale x + bias). reweigh:
// x = e^(scale x + bias - lse). unweigh: dw = scale w (dw - the sum of w dw).
typedef double tni_tile_weigh(void *restrict x, const void *restrict bias, double scale, int64_t n,
                              double *lse);
typedef void tni_tile_reweigh(void *restrict x, const void *restrict bias, double scale, int64_t n,
                              double lse);
typedef void tni_tile_unweigh(const void *restrict w, void *restrict dw, double scale, int64_t n);

// What is offered for one compute type; NULL where an op does not take it.
typedef struct {
    tni_tile_map     *map[TNI_OPS];
    tni_tile_block   *block[TNI_OPS];  // reductions
    tni_tile_fold    *fold[TNI_OPS];   // reductions and scans
    tni_tile_scan    *scan[TNI_OPS];
    tni_tile_find    *find;
    tni_tile_best    *better[2];  // larger, smaller
    tni_tile_weigh   *weigh;      // floats
    tni_tile_reweigh *reweigh;
    tni_tile_unweigh *unweigh;
} tni_type_tiles;

// Conversions between every dtype and one that tiles have. from has only dtypes that no tile has.
typedef struct {
    tni_tile_convert *to[TNI_DTYPES], *from[TNI_DTYPES];
} tni_conversions;

// Elements first .. first+n-1 of a random tensor; first is a multiple of 4.
typedef void tni_tile_random(void *y, uint64_t key, uint64_t counter, int64_t first, int64_t n);

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

// The conversion between dtypes of which tiles have one.
static inline tni_tile_convert *tni_converter(const tni_tiles *t, tn_dtype from, tn_dtype to)
{
    return t->as[from] ? t->as[from]->to[to] : t->as[to]->from[from];
}

// Those for this machine.
const tni_tiles *tni_tiles_get(void);

#endif
