// Products with one row, as in generating a token, by a kernel of our own: they are bound by
// reading the other operand once, which can begin before the kernel ahead has ended. The library's
// kernels do not.
#ifndef TNI_CUDA_PRODUCT_ROWS_H
#define TNI_CUDA_PRODUCT_ROWS_H

#include "device/cuda/product.h"

// TNI_ROWS_MOST: rows of the call's result, at most; in 16 bits by the tensor cores, which multiply
// up to eight in the time of one. Without them the library is faster from 2 on. TNI_ROWS_RANKS:
// blocks that split the inner axis of a tile, as a cluster, at most. TNI_ROWS_PARTS: products of
// one launch.
enum { TNI_ROWS_MOST = 8, TNI_ROWS_RANKS = 8, TNI_ROWS_PARTS = 3 };

// The kernels dots, for a matrix whose inner axis is contiguous, and columns_1 .. columns_8 for one
// whose other axis is, by how many blocks split the inner axis.
extern const char *const tni_text_rows[];
// The kernels tiles and strips, for the same two kinds of matrices in 16 bits.
extern const char *const tni_text_tiles[];

// The argument of tiles and strips, `tiles_args` of the text, field by field: products with one B.
typedef struct {
    const char *a, *bias, *residual;
    char       *d, *input;
    int64_t     lda, ldd;
    int32_t     count, tiles, flags;
    float       scale;
} tni_rows_part;
typedef struct {
    tni_rows_part of[TNI_ROWS_PARTS];
    const char   *b;
    int64_t       ldb;
    int32_t       parts, cols, depth, early;
} tni_tiles_args;

// A launch of `tiles` that waits for more products to join it; f is NULL if there is none. step: of
// the plan, that of the first product.
typedef struct {
    tni_cufunction f;
    tni_tiles_args args;
    size_t         shared, step;
} tni_rows_waiting;

struct tni_cuda;

// Returns whether the kernel can do a product, with its epilogue, at addresses that are multiples
// of 16 bytes, on a GPU with clusters.
bool tni_rows_takes(const tni_product *p);
// Returns how many blocks of a GPU with that many multiprocessors split the inner axis of a product
// whose matrix is contiguous along its other axis.
int tni_rows_ranks(const tni_product *p, int units);
// Launches a product that tni_rows_takes accepts. lasting: A was computed before the plan that
// runs, so that it may be read ahead of the work before this in a graph. In a run that becomes a
// graph the launch may wait, so that products with the same B become one; every other launch
// submits it first. Returns an error of the driver, TNI_CU_NOT_FOUND if the kernel is not compiled,
// TNI_CU_NOT_SUPPORTED if an address is not aligned.
int tni_rows_launch(struct tni_cuda *c, const tni_product *p, bool lasting);
// Submits the launch that waits, if any.
int tni_rows_submit(struct tni_cuda *c);
// Returns whether there is one.
bool tni_rows_wait(const struct tni_cuda *c);

#endif
