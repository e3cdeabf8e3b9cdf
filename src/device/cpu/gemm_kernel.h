// The inner part of our own matrix product: blocks small enough for the caches. One source,
// gemm_kernel.inc and gemm_tile.inc, is compiled once per instruction set; gemm_own.c cuts a
// product into blocks, for the set that isa.c picks.
//
// The order of additions: an element of a block is one chain of multiply-adds over the block's
// depth, from zero, in order, and then one addition to c. Which kernel computes the element, and
// beside which neighbours, does not matter. So an element's bits depend only on its row of a, its
// column of b and TNI_GEMM_DEPTH.
#ifndef TNI_DEVICE_CPU_GEMM_KERNEL_H
#define TNI_DEVICE_CPU_GEMM_KERNEL_H

#include "device/cpu/gemm.h"

// Depth of a block, which is where the chains of additions are cut. A packed strip of b, nr columns
// of this depth, takes 12 to 32 KiB, depending on the instruction set, so that it stays in the
// first-level cache while all tiles of a panel read it. Changing the depth changes the bits of
// every product.
enum { TNI_GEMM_DEPTH = 256 };

// Strips of b that are packed at a time, since a row of one alone is less than a cache line, or
// little more.
enum { TNI_GEMM_STRIPS = 4 };

// c (rows, cols) = a (rows, depth) @ b (depth, cols), or += with add; rows of c are ldc apart.
// Strides are in elements. a_pack, unless NULL, holds a packed; b_pack has room for TNI_GEMM_STRIPS
// strips of b, nr columns each. An operand with no such buffer is read in place; b can only be if
// b_col is 1 and cols is a multiple of nr.
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

// The kernels for one type of element. block takes any block; row takes blocks of one row, reads b
// in place, whatever its strides, and takes up to TNI_GEMM_ROW_COLS columns; row_bf16, of f32
// alone, does the same for a b of bf16. packed takes blocks whose operands are packed already:
// a_pack, in whole strips of mr rows, and b_pack, which holds all strips of nr columns. There a_col
// is the distance from one depth of a strip to the next, and a_row and b_col are those from strip
// to strip, divided by mr and by nr.
typedef struct {
    int mr, nr;  // shape of the tile held in registers
    void (*block)(const tni_gemm_block *);
    void (*packed)(const tni_gemm_block *);
    void (*row)(const tni_gemm_block *);
    void (*row_bf16)(const tni_gemm_block *);
} tni_gemm_kernel;

enum { TNI_GEMM_ROW_COLS = 1024 };

// The transforms of Winograd's convolution with tiles of out x out (conv_winograd.c), of several
// tiles at a time, which are called lanes: input reads a patch of (out + 2) x (out + 2) elements at
// each x + at[lane], whose rows are ld apart, and stores element e of all of them transformed at v
// + e * step; spread does so with the gradients of out x out elements.
typedef struct {
    int out;
    void (*input)(const float *x, const int64_t *at, int64_t ld, float *v, int64_t step);
    void (*spread)(const float *x, const int64_t *at, int64_t ld, float *z, int64_t step);
} tni_winograd_tile;

// Tiles of 2 x 2 and of 4 x 4. output, of 2 x 2: reads sums in that order and stores the elements
// of a tile at each y[lane], with rows ld[lane] apart.
enum { TNI_WINOGRAD_TILES = 2, TNI_WINOGRAD_MOST_LANES = 16 };
typedef struct {
    int               lanes;
    tni_winograd_tile tile[TNI_WINOGRAD_TILES];
    void (*output)(const float *m, int64_t step, float *const *y, const int64_t *ld);
} tni_winograd_kernel;

enum { TNI_DEPTHWISE_TAPS = 25 };  // of a window, at most

// A sparse matrix by rows (tni_pattern) times x (k, n), into y; order: where an element's value is,
// NULL: in its own place.
typedef struct {
    const int32_t *offsets, *columns, *order;
    const void    *values, *x;
    void          *y;
    int64_t        n;
} tni_sparse_rows;

// Element i of `to` = the product of row rows[i] of x and row columns[i] of y, each of k elements.
typedef struct {
    const int32_t *rows, *columns;
    const void    *x, *y;
    void          *to;
    int64_t        k;
} tni_sparse_dots;

// The kernels of one instruction set.
typedef struct {
    tni_gemm_kernel f32, f64, u32, u64;
    // Products of f32 of f32_rows rows and more are mostly faster than OpenBLAS's and BLIS's; 0: of
    // no number of rows. Those of far_rows rows at most are slower if b has far_lines lines or more
    // that are a page apart.
    int                 f32_rows, far_rows, far_lines;
    tni_winograd_kernel winograd;
    // y[i] = the sum over t of w[t] * x[at[t] + i], i below n; x is read up to the next multiple of
    // a vector.
    void (*depthwise)(int taps, const float *x, const int64_t *at, const float *w, float *y,
                      int64_t n);
    // Rows, or elements, first .. last-1; of f32 and of f64.
    void (*sparse_rows[2])(const tni_sparse_rows *s, int64_t first, int64_t last);
    void (*sparse_dots[2])(const tni_sparse_dots *s, int64_t first, int64_t last);
} tni_gemm_isa;

extern const tni_gemm_isa tni_gemm_isa_base;
extern const tni_gemm_isa tni_gemm_isa_avx2;    // on x86-64 only
extern const tni_gemm_isa tni_gemm_isa_avx512;  // on x86-64 only

// Returns the table for this machine.
const tni_gemm_isa *tni_gemm_isa_get(void);

// Our own product, whether or not there is a BLAS; tni_gemm_batch_run falls back on it.
size_t tni_gemm_own_scratch(const tni_gemm_batch *g, int threads);
void   tni_gemm_own_run(const tni_gemm_batch *g, int threads, void *scratch);

#endif
