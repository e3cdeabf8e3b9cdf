// Matrix products on the CPU: by the BLAS found at run time if there is one, else by our own
// blocked product. The bits of a result are the same for every number of threads: the panels of a
// BLAS depend on the sizes alone, and our own adds up in one order in whatever panel.
#ifndef TNI_DEVICE_CPU_GEMM_H
#define TNI_DEVICE_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tenon.h"

// c (m, n) = a (m, k) @ b (k, n), and c += when accumulate is set. Strides are in elements, any
// values (zero and negative too) for a and b; c is row-major with rows ldc >= n apart and does
// not overlap a or b. dtype is that of all three: TN_F32 or TN_F64 (BLAS or own), floats of 16
// bits (computed and summed in f32, rounded once), integers (wrapping).
// k = 0 gives zeros (or c unchanged when accumulating). m = 0 or n = 0 does nothing.
typedef struct {
    tn_dtype    dtype;
    bool        accumulate;
    int64_t     m, n, k;
    const void *a;
    int64_t     a_row, a_col;
    const void *b;
    int64_t     b_row, b_col;
    void       *c;
    int64_t     ldc;
} tni_gemm;

// Returns the bytes of scratch that tni_gemm_run needs on that many threads or fewer. It allocates
// nothing itself.
size_t tni_gemm_scratch(const tni_gemm *g, int threads);

// Computes the product. scratch: that many bytes, aligned to 64.
void tni_gemm_run(const tni_gemm *g, int threads, void *scratch);

// The same product `batch` times: operand i starts at a + i * a_step elements, and so on.
// Parallel over the batch and inside of each product, whichever suits.
// epilogue: the kernel that follows the product, run on bands of whole rows of c, for which ldc is
// n.
typedef struct {
    tni_gemm                   one;
    int64_t                    batch, a_step, b_step, c_step;
    struct tni_tiled_epilogue *epilogue;  // NULL: nothing
    uint8_t otherwise;  // bits of tni_otherwise: the BLAS or our own product, panels of our own
} tni_gemm_batch;

// What a batch could do otherwise, as bits of tni_otherwise: the other method if both the BLAS and
// our own product can compute it, other panels if it is our own that does.
unsigned tni_gemm_others(const tni_gemm_batch *g);

size_t tni_gemm_batch_scratch(const tni_gemm_batch *g, int threads);
void   tni_gemm_batch_run(const tni_gemm_batch *g, int threads, void *scratch);

// The BLAS in use: loaded at the first call (thread safe), kept until the process ends.
// TN_BLAS names a library file, or "none" for our own product.
typedef struct {
    bool        found;
    const char *path;  // of the library, as the loader resolved it
    const char
        *name;  // "OpenBLAS 0.3.21 neoversen1 ..." as the library describes itself, or its soname
    const char *detail;  // when not found: why, in a sentence
} tni_blas_info;

tni_blas_info tni_blas_find(void);

// Returns whether most products of f32 are our own though a BLAS is in use, since they are faster.
bool tni_gemm_f32_is_own(void);

#endif
