// Products with one row, as in generating a token, by a kernel of our own: they are bound by reading the
// other operand once, which can begin before the kernel ahead has ended. The library's kernels do not.
#ifndef TNI_CUDA_PRODUCT_ROWS_H
#define TNI_CUDA_PRODUCT_ROWS_H

#include "device/cuda/product.h"

// TNI_ROWS_MOST: rows of the call's result, at most. The kernels can do 4, but from 2 on the library is
// faster on an H200. TNI_ROWS_RANKS: blocks that split the inner axis of a tile, as a cluster, at most.
enum { TNI_ROWS_MOST = 1, TNI_ROWS_RANKS = 8 };

// The kernels dots, for a matrix whose inner axis is contiguous, and columns_1 .. columns_8 for one whose
// other axis is, by how many blocks split the inner axis.
extern const char *const tni_text_rows[];

struct tni_cuda;

// Returns whether the kernel can do a product, with its epilogue, at addresses that are multiples of 16
// bytes, on a GPU with clusters.
bool tni_rows_takes(const tni_product *p);
// Returns how many blocks of a GPU with that many multiprocessors split the inner axis of a product
// whose matrix is contiguous along its other axis.
int tni_rows_ranks(const tni_product *p, int units);
// Launches a product that tni_rows_takes accepts. lasting: A was computed before the plan that runs, so
// that it may be read ahead of the work before this in a graph. Returns an error of the driver,
// TNI_CU_NOT_FOUND if the kernel is not compiled or an address is not aligned.
int tni_rows_launch(struct tni_cuda *c, const tni_product *p, bool lasting);

#endif
