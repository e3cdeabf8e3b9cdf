// Small products of f32 by a kernel of our own: the library takes longer to begin and to end one than
// to multiply.
#ifndef TNI_CUDA_PRODUCT_SMALL_H
#define TNI_CUDA_PRODUCT_SMALL_H

#include "device/cuda/product.h"

// The version counts up when the kernel becomes faster or slower: what was timed against another is
// timed again. And the most blocks that share a tile, which the GPU has to allow in a cluster.
enum { TNI_SMALL_VERSION = 1, TNI_SMALL_RANKS = 8 };

// The kernels: small_1, 2, 4 and 8, by how many blocks share a tile.
extern const char *const tni_text_small[];

struct tni_cuda;

// Whether the kernel can do a product, of any alignment, on a GPU that has it.
bool tni_small_takes(const tni_product *p);

// How a product is cut: the blocks that share a tile, and the steps of the inner axis each has.
typedef struct {
    int     ranks, slice;
    int64_t tiles;
} tni_small_split;

// The cut for a GPU of so many multiprocessors.
tni_small_split tni_small_split_of(const tni_product *p, int units);

// Whether the kernel need not be waited for: it is compiled, or never will be. Begins to compile it.
bool tni_small_is_ready(struct tni_cuda *c);
// Launches a product that it takes, with D in out. overlaps: it may begin before what is ahead of it
// ends. An error of the driver, also where the kernel cannot be had.
int tni_small_launch(struct tni_cuda *c, const tni_product *p, char *out, bool overlaps);

#endif
