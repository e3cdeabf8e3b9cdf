// Tiles of cuBLASLt: how large they are, and what they promise for a product.
#ifndef TNI_CUDA_LT_TILES_H
#define TNI_CUDA_LT_TILES_H

#include <stdbool.h>
#include <stdint.h>

// Rows and columns of D that a block of a tile computes, by the library's number of the tile. False
// for a number without a size that is known.
bool tni_lt_tile_size(int32_t number, int *rows, int *cols);

// A product as blocks see it. parts: into which the inner axis is divided; units: multiprocessors.
typedef struct {
    int64_t rows, cols, batch, parts, units;
} tni_lt_extent;

// What the product is expected to take by a tile, in no unit: to compare tiles. INFINITY for one
// whose size is not known.
double tni_lt_tile_expect(const tni_lt_extent *of, int32_t tile);

#endif
