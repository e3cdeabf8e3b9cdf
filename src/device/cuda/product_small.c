// Small products of f32 by a kernel of our own: which, flags they are split, and their launch.
#include "device/cuda/product_small.h"

#include "device/cuda/gpu.h"

enum { A, B, D, TILE = 32, ITEMS = 256, SLICE_LEAST = 32 };

// What the kernel is given: see the text.
typedef struct {
    const char *a, *b, *bias;
    char       *d;
    int64_t     lda, ldb, ldd;
    int32_t     rows, cols, depth, slice, tiles, flags;
} small_args;

_Static_assert(sizeof(small_args) == 7 * 8 + 6 * 4,
               "no padding: the text declares the same fields");

enum { A_ALONG_K = 1, B_ALONG_K = 2, A_VEC4 = 4, B_VEC4 = 8, D_VEC4 = 16, RELU = 32 };

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

// As many blocks as there are multiprocessors, if slices stay long enough to be worth adding up.
tni_small_split tni_small_split_of(const tni_product *p, int units)
{
    tni_small_split c = { .ranks = 1, .tiles = tiles_of(p->rows) * tiles_of(p->cols) };
    while (c.ranks < TNI_SMALL_RANKS && c.tiles * c.ranks * 2 <= units &&
           p->depth >= (int64_t)c.ranks * 2 * SLICE_LEAST)
        c.ranks *= 2;
    c.slice = (int)((p->depth + c.ranks - 1) / c.ranks + 3) / 4 * 4;
    return c;
}

// Whether four elements can be had at once.
static bool is_vec4(const void *at, const tni_matrix *x)
{
    return (uintptr_t)at % 16 == 0 && x->ld % 4 == 0;
}

static small_args args_of(const tni_product *p, const tni_small_split *c, char *out)
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

bool tni_small_is_ready(tni_cuda *c)
{
    if (!c->small_ready)
        c->small_ready = c->compiles_first ||
                         tni_compiled_group_kernel_soon(c->gpu->compiled, tni_text_small, TN_F32,
                                                        TN_F32);
    return c->small_ready;
}

// The kernel for so many blocks on a tile, from a table of the session. Its text takes more than a second
// to compile, which the library's product does not wait for; then there is none yet.
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
    small_args        a        = args_of(p, &split, out);
    uint32_t          offset[] = { 0, sizeof a };
    tni_launch_record d        = { .f        = f,
                                   .grid     = { (unsigned)(split.tiles * split.ranks), 1, 1 },
                                   .block    = { ITEMS, 1, 1 },
                                   .overlaps = overlaps && c->gpu->overlaps,
                                   .args     = 1 };
    return tni_replay_launch(c, &d, offset, (const char *)&a);
}
