// Attention on the tensor cores by kernels of our own: which texts there are, what each is printed for
// and how its work is split over blocks. The texts are in flash_text*.c; flash.c runs them.
#ifndef TNI_CUDA_FLASH_H
#define TNI_CUDA_FLASH_H

#include "base/heap.h"
#include "ops/score.h"

#include <stdbool.h>
#include <stdint.h>

// The version rises when the kernels become faster or slower, so that choices timed against another
// version are timed again. TNI_FLASH_WIDEST: the widest heads; TNI_FLASH_DECODE_ROWS: the most queries
// of a block of flash_decode.
enum { TNI_FLASH_VERSION = 1, TNI_FLASH_WIDEST = 256, TNI_FLASH_DECODE_ROWS = 4 };

// The kernels: attention; its gradient for queries, and for keys and values; and attention of few
// queries over many keys.
typedef enum {
    TNI_FLASH_FORWARD,
    TNI_FLASH_QUERIES,
    TNI_FLASH_KEYS,
    TNI_FLASH_DECODE
} tni_flash_part;

typedef enum { TNI_FLASH_NO_MASK, TNI_FLASH_BOOL_MASK, TNI_FLASH_ADDED_MASK } tni_flash_mask;

// Everything that a text depends on. D, E: widths of a key and of a value; rows: of flash_decode, the
// queries that share keys; aligned: all rows begin at multiples of 16 bytes; wgmma: the products of
// Hopper are used; quads: of dropout, rows of weights are a multiple of four long; grads: a bit for each extra whose gradient flash_queries adds up; program: the
// functions of the score program (tni_flash_program), NULL if scores are not changed.
typedef struct {
    tni_flash_part part;
    int            D, E, rows;
    bool           f16, aligned, wgmma, causal, window, lengths, dropout, quads;
    tni_flash_mask mask;
    unsigned       grads;
    const char    *program;
} tni_flash_case;

// How a kernel's work is split. A block has `tiles` times 16 rows for each warp, which are queries (of
// flash_keys: keys), and goes through the others in tiles of `columns`, whose scores are computed for
// `sub` of them at a time; held: the fragments of its rows stay in registers; blocks: the most that the
// compiler is to make room for on a multiprocessor.
typedef struct {
    int  warps, tiles, columns, sub;
    bool held;
    int  blocks;
} tni_flash_tile;

// Whether dk and dv are computed by blocks of their own: their sums do not fit into the registers.
static inline bool tni_flash_splits(const tni_flash_case *x)
{
    return x->part == TNI_FLASH_KEYS && (x->D > 128 || x->E > 128);
}

tni_flash_tile tni_flash_tile_of(const tni_flash_case *x);
// Returns the rows of a block.
int tni_flash_rows(const tni_flash_case *x);
// Returns the keys that a block of flash_decode reads at a time.
int tni_flash_decode_keys(const tni_flash_case *x);
// Returns the bytes of shared memory that a block is launched with.
int tni_flash_shared(const tni_flash_case *x);
// Returns the name of the kernel.
const char *tni_flash_kernel(tni_flash_part part);
// Returns whether the slope of a program by a source does not depend on the score, so that the
// gradient of that source can be added up.
bool tni_flash_adds_source(const tni_score *score, int source);
// Prints the functions of a score program, for tni_flash_case.program; source: the dtypes of what it
// reads; size: B, H, T and S. The caller frees it by tni_free; NULL when memory is out.
char *tni_flash_program(tni_heap *h, const tni_score *score, const tn_dtype *source,
                        const int64_t size[4]);
// Prints the program; the caller frees it by tni_free. NULL when memory is out.
char *tni_flash_source(tni_heap *h, const tni_flash_case *x);

#endif
