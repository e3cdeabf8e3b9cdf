// Convolution and its gradients on the tensor cores by kernels of our own: what a text is printed
// for and how its work is split over blocks. The text is in conv_cores_text.c; conv_cores.c runs
// it.
#ifndef TNI_CUDA_CONV_CORES_H
#define TNI_CUDA_CONV_CORES_H

#include "base/heap.h"

#include <stdbool.h>
#include <stddef.h>

// The version rises when the kernels become faster or slower, so that choices timed against another
// version are timed again. TNI_CONV_CORES_TAPS: the most bits of taps, one for each tap of each
// axis.
enum { TNI_CONV_CORES_VERSION = 1, TNI_CONV_CORES_TAPS = 31 };

// What is computed; the numbers are those of the text.
typedef enum { TNI_CONV_FORWARD, TNI_CONV_DATA, TNI_CONV_WEIGHTS } tni_conv_part;

// Everything that the text depends on. aligned: pieces of 16 bytes of the result are stored;
// a_bytes, b_bytes: of a piece of the operands that lies in memory as it does in a tile: 16, 8, 4
// or 2. A block has `warps` warps with 16 * mtiles rows and 8 * ntiles columns each, and `stages`
// of its operands in shared memory; flight: stages that are still multiplied when the next one
// begins; blocks: the most that the compiler is to make room for on a multiprocessor.
typedef struct {
    tni_conv_part part;
    bool          f16, tf32, wgmma, aligned;
    int           a_bytes, b_bytes, warps, mtiles, ntiles, stages, flight, blocks;
    bool          bytes, unsigned_a, unsigned_b;  // conv_i32
} tni_conv_case;

extern const char *const tni_text_conv_cores[];

// Returns the bytes of shared memory that a block is launched with.
int tni_conv_cores_shared(const tni_conv_case *x, int taps);
// Prints the program; the caller frees it by tni_free. NULL when memory is out.
char *tni_conv_cores_source(tni_heap *h, const tni_conv_case *x);

#endif
