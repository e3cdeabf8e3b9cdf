// Small products in f32 by a kernel of our own, for which the library takes longer to begin and end
// than to multiply.
#ifndef TNI_CUDA_PRODUCT_SMALL_H
#define TNI_CUDA_PRODUCT_SMALL_H

#include "device/cuda/product.h"

// The version rises when the kernel becomes faster or slower, so that choices timed against another
// version are timed again. TNI_SMALL_RANKS: the most blocks that share a tile, as a cluster.
enum { TNI_SMALL_VERSION = 1, TNI_SMALL_RANKS = 8 };

// The kernels small_1, small_2, small_4 and small_8, named by how many blocks share a tile.
extern const char *const tni_text_small[];

struct tni_cuda;

// Returns whether the kernel can do a product, at any alignment, on a GPU with clusters.
bool tni_small_takes(const tni_product *p);

// How a product is split: the blocks that share a tile, the steps of the inner axis of each, and
// the tiles.
typedef struct {
    int     ranks, slice;
    int64_t tiles;
} tni_small_split;

// Splits a product for a GPU with that many multiprocessors.
tni_small_split tni_small_split_of(const tni_product *p, int units);

// Returns whether launching need not wait for the compiler; starts it if it has not run.
bool tni_small_is_ready(struct tni_cuda *c);
// Launches a product that tni_small_takes accepts, with D in out. overlaps: it may begin before the
// kernel ahead of it ends. Returns an error of the driver, TNI_CU_NOT_FOUND if the kernel is not
// compiled.
int tni_small_launch(struct tni_cuda *c, const tni_product *p, char *out, bool overlaps);

#endif
