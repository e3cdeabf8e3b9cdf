// Small products in f32 by a kernel of our own: which products it takes, how their work is split
// over blocks, and its launch. The kernel is in product_small_text.c.
//
// cuBLASLt takes longer to begin and end a small product than to multiply, and its launch cannot
// overlap with the kernel ahead of it or get other operands in a graph; this kernel does both.
// Whether it wins is timed for each shape, unless TN_SMALL=0 or 1 decides.
#include "device/cuda/product_small.h"

#include "device/cuda/gpu.h"

// TILE: rows and columns of a block's result; ITEMS: threads of a block; both are fixed in the
// text. SLICE_LEAST: a shorter slice of the inner axis is not worth adding up its partial sums.
enum { A, B, D, TILE = 32, ITEMS = 256, SLICE_LEAST = 32 };

// The kernel's argument: `struct small` of the text, field by field.
typedef struct {
    const char *a, *b, *bias;
    char       *d;
    int64_t     lda, ldb, ldd;
    int32_t     rows, cols, depth, slice, tiles, flags;
} small_args;

_Static_assert(sizeof(small_args) == 7 * 8 + 6 * 4,
               "no padding: the text declares the same fields");

// Bits of flags, as in the text.
enum { A_ALONG_K = 1, B_ALONG_K = 2, A_VEC4 = 4, B_VEC4 = 8, D_VEC4 = 16, RELU = 32 };

// Returns whether the kernel can do a product: one of f32, without scale, residual or gelu. The
// limit is the work of a product of 64 x 256 x 1024; larger ones are bound by arithmetic instead of
// latency, which the library is better at.
bool tni_small_takes(const tni_product *p)
{
    const int64_t most = INT64_C(64) * 256 * 1024;
    if (p->in != TN_F32 || p->out != TN_F32 || p->batch != 1 || p->loops) return false;
    if (p->epilogue.scaled || p->epilogue.residual || p->epilogue.activation == TNI_gelu_tanh)
        return false;
    return p->rows * p->cols <= most && p->rows * p->cols * p->depth <= most;
}

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

// Splits the inner axis over 2, 4 or 8 blocks of a cluster while there are multiprocessors without
// a block and slices stay long enough. A slice is a multiple of 4 steps, which a thread adds at a
// time.
tni_small_split tni_small_split_of(const tni_product *p, int units)
{
    tni_small_split c = { .ranks = 1, .tiles = tiles_of(p->rows) * tiles_of(p->cols) };
    while (c.ranks < TNI_SMALL_RANKS && c.tiles * c.ranks * 2 <= units &&
           p->depth >= (int64_t)c.ranks * 2 * SLICE_LEAST)
        c.ranks *= 2;
    c.slice = (int)((p->depth + c.ranks - 1) / c.ranks + 3) / 4 * 4;
    return c;
}

// Returns whether every column begins at a multiple of 16 bytes, so that four elements are one
// access.
static bool is_vec4(const void *at, const tni_matrix *x)
{
    return (uintptr_t)at % 16 == 0 && x->ld % 4 == 0;
}

// Writes the kernel's argument. An operand is along k if its elements along the inner axis are
// neighbours: A if it is read transposed, B if it is not.
static small_args small_args_of(const tni_product *p, const tni_small_split *c, char *out)
{
    const tni_matrix *x = p->x;
    small_args        a = { .a     = p->at[A],
                            .b     = p->at[B],
                            .bias  = p->epilogue.bias ? p->bias : NULL,
                            .d     = out,
                            .lda   = x[A].ld,
                            .ldb   = x[B].ld,
                            .ldd   = x[D].ld,
                            .rows  = (int32_t)p->rows,
                            .cols  = (int32_t)p->cols,
                            .depth = (int32_t)p->depth,
                            .slice = c->slice,
                            .tiles = (int32_t)tiles_of(p->rows) };
    a.flags             = (x[A].transposed ? A_ALONG_K : 0) | (x[B].transposed ? 0 : B_ALONG_K) |
              (is_vec4(a.a, &x[A]) ? A_VEC4 : 0) | (is_vec4(a.b, &x[B]) ? B_VEC4 : 0) |
              (is_vec4(a.d, &x[D]) ? D_VEC4 : 0) | (p->epilogue.activation == TNI_relu ? RELU : 0);
    return a;
}

// Starts to compile the kernel in the background at the first call. Once true it stays true.
bool tni_small_is_ready(tni_cuda *c)
{
    if (!c->small_ready)
        c->small_ready = c->compiles_first ||
                         tni_compiled_group_kernel_soon(c->gpu->compiled, tni_text_small, TN_F32,
                                                        TN_F32);
    return c->small_ready;
}

// Returns the kernel for a number of blocks per tile, from a table of the session; NULL if it is
// not compiled yet and the caller does not wait. Compiling takes more than a second, during which
// the library multiplies.
static tni_cufunction small_kernel_of(tni_cuda *c, int ranks, bool waits)
{
    static const char *const name[] = { "small_1", "small_2", "small_4", "small_8" };
    tni_text                 why    = { "" };
    tn_status                s;
    int                      i = ranks == 1 ? 0 : ranks == 2 ? 1 : ranks == 4 ? 2 : 3;
    if (c->small_kernel[i]) return c->small_kernel[i];
    if (waits || tni_small_is_ready(c))
        c->small_kernel[i] = tni_compiled_group_kernel(c->gpu->compiled, tni_text_small, name[i],
                                                       TN_F32, TN_F32, &s, &why);
    return c->small_kernel[i];
}

int tni_small_launch(tni_cuda *c, const tni_product *p, char *out, bool overlaps)
{
    tni_small_split split = tni_small_split_of(p, c->gpu->limits.units);
    tni_cufunction  f     = small_kernel_of(c, split.ranks, p->waits);
    if (!f) return TNI_CU_NOT_FOUND;
    small_args        a        = small_args_of(p, &split, out);
    uint32_t          offset[] = { 0, sizeof a };
    tni_launch_record d        = { .f        = f,
                                   .grid     = { (unsigned)(split.tiles * split.ranks), 1, 1 },
                                   .block    = { ITEMS, 1, 1 },
                                   .overlaps = overlaps && c->gpu->overlaps,
                                   .args     = 1 };
    return tni_replay_launch(c, &d, offset, (const char *)&a);
}
