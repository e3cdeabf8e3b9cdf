// Products of rows by rows by a kernel of our own on Hopper's tensor cores, with the kernel behind them as its ending:
// what a text is printed for. The text is in product_cores_text.c; product_cores.c runs it.
#ifndef TNI_CUDA_PRODUCT_CORES_H
#define TNI_CUDA_PRODUCT_CORES_H

#include "base/heap.h"

#include <stdbool.h>
#include <stddef.h>

// The version rises when the kernel becomes faster or slower, so that choices timed against another version are timed
// again.
enum { TNI_PRODUCT_CORES_VERSION = 1 };

// Everything that the text depends on. A tile has 8 * ntiles columns, 64, 128 or 256; stages: of its operands in shared
// memory; blocks: of a multiprocessor. near: one more than the access of the
// ending whose elements are copied into shared memory, in `panels` pieces (tni_ending_fetch); 0: none. ending: the text of the kernel behind it (kernel/ending.h), NULL: none; twice: the
// product itself is stored, too.
typedef struct {
    bool        f16, twice;
    int         ntiles, stages, blocks, near, panels;
    const char *ending;
} tni_product_case;

extern const char *const tni_text_product_cores[];

// The tiles that forms are timed with.
enum { TNI_PRODUCT_TILES = 3 };
extern const tni_product_case tni_product_tiles[TNI_PRODUCT_TILES];

// Returns the bytes of shared memory that a block is launched with.
int tni_product_cores_shared(const tni_product_case *x);
// Returns its threads.
int tni_product_cores_threads(const tni_product_case *x);
// Exchanges a stage for panels.
void tni_product_cores_panels(tni_product_case *x);
// Prints the program; the caller frees it by tni_free. NULL when memory is out.
char *tni_product_cores_source(tni_heap *h, const tni_product_case *x);

#endif
