// Products of rows by rows by a kernel of our own on Hopper's tensor cores, with the kernel behind
// them as its ending: what a text is printed for. The text is in product_cores_text.c;
// product_cores.c runs it.
#ifndef TNI_CUDA_PRODUCT_CORES_H
#define TNI_CUDA_PRODUCT_CORES_H

#include "kernel/ending.h"

#include <stdbool.h>
#include <stddef.h>

// The version rises when the kernel becomes faster or slower, so that choices timed against another
// version are timed again.
enum { TNI_PRODUCT_CORES_VERSION = 3 };

// What a prologue reads of each element besides the first, at most.
enum { TNI_PRODUCT_CHANGES = 2 };

// Everything that the text depends on. A tile has 8 * ntiles columns, 64, 128 or 256; stages: of
// its operands in shared memory; blocks: of a multiprocessor. near: the accesses of the ending,
// `nears` of them, whose elements are copied into shared memory, `panels` pieces at a time
// (tni_ending_fetches). ending: the text of the kernel behind it (kernel/ending.h), NULL: none;
// sums: the columns that it adds up; twice: the product itself is stored, too; once: and nothing
// else, since the ending only adds up; pivots: the ending reads the first row of the product for
// all others, so that the first tiles are computed ahead of the rest. turned: b's columns are side
// by side in memory, and are copied into rows ahead of the product.
//
// has_prologue: a is made by a kernel, whose text is `prologue`; changed: the accesses of that
// kernel, `changes` of them, that are copied beside what a is made from; kept: what it makes is
// stored.
typedef struct {
    bool        f16, twice, once, pivots, turned, has_prologue, kept;
    int         ntiles, stages, blocks, sums;
    int         nears, near[TNI_ENDING_FETCHES], panels;
    int         changes, changed[TNI_PRODUCT_CHANGES];
    const char *ending, *prologue;
} tni_product_case;

extern const char *const tni_text_product_cores[], *const tni_text_product_change[],
                                                       *const         tni_text_product_kernel[],
                                                           *const     tni_text_product_finish[],
                                                               *const tni_text_product_turn[];

// The tiles that forms are timed with.
enum { TNI_PRODUCT_TILES = 3 };
extern const tni_product_case tni_product_tiles[TNI_PRODUCT_TILES];

// Returns the bytes of shared memory that a block is launched with.
int tni_product_cores_shared(const tni_product_case *x);
// Returns its threads.
int tni_product_cores_threads(const tni_product_case *x);
// Divides the shared memory of a tile between stages and the panels of its nears.
void tni_product_cores_panels(tni_product_case *x);
// Prints the program; the caller frees it by tni_free. NULL when memory is out.
char *tni_product_cores_source(tni_heap *h, const tni_product_case *x);

#endif
