// Attention on the tensor cores by kernels of our own: which texts there are, what each is printed
// for and how its work is split over blocks. The texts are in flash_text*.c; flash.c runs them.
#ifndef TNI_CUDA_FLASH_H
#define TNI_CUDA_FLASH_H

#include "base/heap.h"
#include "ops/score.h"

#include <stdbool.h>
#include <stdint.h>

// The version rises when the kernels become faster or slower, so that choices timed against another
// version are timed again. TNI_FLASH_WIDEST: the widest heads; TNI_FLASH_DECODE_ROWS: the most
// queries of a block of flash_decode.
enum { TNI_FLASH_VERSION = 4, TNI_FLASH_WIDEST = 256, TNI_FLASH_DECODE_ROWS = 4 };

// The kernels: attention; its gradient for queries, and for keys and values; and attention of few
// queries over many keys.
typedef enum {
    TNI_FLASH_FORWARD,
    TNI_FLASH_QUERIES,
    TNI_FLASH_KEYS,
    TNI_FLASH_DECODE
} tni_flash_part;

// Everything that a text depends on. D, E: widths of a key and of a value; rows, ranks: of
// flash_decode, the queries that share keys and the blocks, a cluster, that share them (1: one
// block); aligned: all rows begin at multiples of 16 bytes; wgmma: the products of Hopper are used;
// quads: of dropout, rows of weights are a multiple of four long; program: the functions of the
// score program (tni_flash_program), NULL if scores are not changed; heavy: it keeps more than the
// scores in registers. grads: a bit for each extra whose gradient this kernel adds up, and of these
// row_grads for those that do not vary along a row of scores, head_grads for those that vary with
// neither query nor key.
typedef struct {
    tni_flash_part part;
    int            D, E, rows, ranks;
    bool           f16, aligned, wgmma, causal, window, lengths, dropout, quads, heavy;
    unsigned       grads, row_grads, head_grads;
    const char    *program;
} tni_flash_case;

// What a score program reads. varies: along batch, head, query and key; dense: the elements of
// neighbouring keys are neighbours; small: its elements are numbered in 32 bits.
typedef struct {
    tn_dtype dtype;
    bool     varies[4], dense, small;
} tni_flash_extra;

// The call that a score program is printed for. size: B, H, T and S.
typedef struct {
    tni_flash_extra extra[TNI_SCORE_SOURCES];
    int64_t         size[4];
} tni_flash_in;

// How a kernel's work is split. A block has `tiles` times 16 rows for each warp, which are queries
// (of flash_keys: keys), and goes through the others in tiles of `columns`, whose scores are
// computed for `sub` of them at a time; held: the fragments of its rows stay in registers; blocks:
// the most that the compiler is to make room for on a multiprocessor.
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
// Returns the bytes of shared memory that a block is launched with.
int tni_flash_shared(const tni_flash_case *x);
// Returns the name of the kernel.
const char *tni_flash_kernel(tni_flash_part part);
// Returns the program that a mask is: of bools, or added to the scores.
const tni_score *tni_flash_mask(bool added);
// Returns whether a kernel that adds up the gradients of the sources in grads needs more registers
// with this program than without.
bool tni_flash_is_heavy(const tni_score *score, const tni_flash_in *in, tni_flash_part part,
                        unsigned grads);
// Prints the functions of a score program, for tni_flash_case.program. The caller frees it by
// tni_free; NULL when memory is out.
char *tni_flash_program(tni_heap *h, const tni_score *score, const tni_flash_in *in);
// Prints the program; the caller frees it by tni_free. NULL when memory is out.
char *tni_flash_source(tni_heap *h, const tni_flash_case *x);

#endif
