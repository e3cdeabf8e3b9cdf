// The inner part of our own matrix product: blocks small enough for the caches. One source,
// gemm_kernel.inc and gemm_tile.inc, is compiled once per instruction set; gemm_own.c cuts a
// product into blocks, for the set that isa.c picks.
//
// The order of additions: an element of a block is one chain of multiply-adds over the block's
// depth, from zero, in order, and then one addition to c. Which kernel computes it, and beside
// which neighbours, changes nothing, so an element's bits follow from its row of a, its column of
// b and TNI_GEMM_DEPTH alone.
#ifndef TNI_DEVICE_CPU_GEMM_KERNEL_H
#define TNI_DEVICE_CPU_GEMM_KERNEL_H

#include "device/cpu/gemm.h"

// Depth of a block: what the chains of additions are cut by.
enum { TNI_GEMM_DEPTH = 256 };

// c (rows, cols) = a (rows, depth) @ b (depth, cols), or += with add; rows of c are ldc apart.
// Strides are in elements. a_pack, when not NULL, has room for a; b_pack for one strip of b, nr
// columns. An operand without room is read where it lies; b cannot be unless b_col is 1 and cols a
// multiple of nr.
typedef struct {
    int64_t     rows, cols, depth;
    const void *a;
    int64_t     a_row, a_col;
    const void *b;
    int64_t     b_row, b_col;
    void       *a_pack, *b_pack;
    void       *c;
    int64_t     ldc;
    bool        add;
} tni_gemm_block;

// What is offered for one type of element. block takes any block; row takes blocks of one row,
// with b read where it lies, whatever its strides, and cols up to TNI_GEMM_ROW_COLS.
typedef struct {
    int mr, nr;  // shape of the tile held in registers
    void (*block)(const tni_gemm_block *);
    void (*row)(const tni_gemm_block *);
} tni_gemm_kernel;

enum { TNI_GEMM_ROW_COLS = 1024 };

typedef struct {
    tni_gemm_kernel f32, f64, u32, u64;
} tni_gemm_isa;

extern const tni_gemm_isa tni_gemm_isa_base;
extern const tni_gemm_isa tni_gemm_isa_avx2;    // on x86-64 only
extern const tni_gemm_isa tni_gemm_isa_avx512;  // on x86-64 only

// That of this machine.
const tni_gemm_isa *tni_gemm_isa_get(void);

// Our own product, whether or not there is a BLAS; tni_gemm_batch_run falls back on it.
size_t tni_gemm_own_scratch(const tni_gemm_batch *g, int threads);
void   tni_gemm_own_run(const tni_gemm_batch *g, int threads, void *scratch);

#endif
