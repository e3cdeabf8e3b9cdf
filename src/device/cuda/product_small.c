// Small products of f32 by a kernel of our own: which, how they are cut, and their launch.
#include "device/cuda/product_small.h"

#include "device/cuda/gpu.h"

enum { A, B, D, TILE = 32, ITEMS = 256, SLICE_LEAST = 32 };

// What the kernel is given: see the text.
typedef struct {
    const char *a, *b, *bias;
    char       *d;
    int64_t     lda, ldb, ldd;
    int32_t     rows, cols, depth, slice, tiles, how;
} argument;

enum { A_ALONG = 1, B_ALONG = 2, A_WIDE = 4, B_WIDE = 8, D_WIDE = 16, RELU = 32 };

bool tni_small_takes(const tni_product *p)
{
    const int64_t most = INT64_C(64) * 256 * 1024;
    if (p->in != TN_F32 || p->out != TN_F32 || p->batch != 1 || p->loops) return false;
    if (p->end.scaled || p->end.residual || p->end.activation == TNI_gelu_tanh) return false;
    return p->rows * p->cols <= most && p->rows * p->cols * p->depth <= most;
}

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

// As many blocks as there are multiprocessors, if slices stay long enough to be worth adding up.
tni_small_cut tni_small_cut_of(const tni_product *p, int units)
{
    tni_small_cut c = { .ranks = 1, .tiles = tiles_of(p->rows) * tiles_of(p->cols) };
    while (c.ranks < TNI_SMALL_RANKS && c.tiles * c.ranks * 2 <= units &&
           p->depth >= (int64_t)c.ranks * 2 * SLICE_LEAST)
        c.ranks *= 2;
    c.slice = (int)((p->depth + c.ranks - 1) / c.ranks + 3) / 4 * 4;
    return c;
}

// Whether four elements can be had at once.
static bool is_wide(const void *at, const tni_matrix *x)
{
    return (uintptr_t)at % 16 == 0 && x->ld % 4 == 0;
}

static argument argument_of(const tni_product *p, const tni_small_cut *c, char *out)
{
    const tni_matrix *x = p->x;
    argument          a = { .a     = p->at[A],
                            .b     = p->at[B],
                            .bias  = p->end.bias ? p->bias : NULL,
                            .d     = out,
                            .lda   = x[A].ld,
                            .ldb   = x[B].ld,
                            .ldd   = x[D].ld,
                            .rows  = (int32_t)p->rows,
                            .cols  = (int32_t)p->cols,
                            .depth = (int32_t)p->depth,
                            .slice = c->slice,
                            .tiles = (int32_t)tiles_of(p->rows) };
    a.how               = (x[A].turned ? A_ALONG : 0) | (x[B].turned ? 0 : B_ALONG) |
            (is_wide(a.a, &x[A]) ? A_WIDE : 0) | (is_wide(a.b, &x[B]) ? B_WIDE : 0) |
            (is_wide(a.d, &x[D]) ? D_WIDE : 0) | (p->end.activation == TNI_relu ? RELU : 0);
    return a;
}

bool tni_small_is_there(tni_cuda *c)
{
    if (!c->small_there)
        c->small_there = c->compiles_first ||
                         tni_compiled_group_kernel_soon(c->gpu->compiled, tni_text_small, TN_F32,
                                                        TN_F32);
    return c->small_there;
}

// The kernel for so many blocks on a tile, from a table of the session. Its text takes more than a second
// to compile, which the library's product does not wait for; then there is none yet.
static tni_cufunction kernel_of(tni_cuda *c, int ranks, bool waits)
{
    static const char *const name[] = { "small_1", "small_2", "small_4", "small_8" };
    tni_text                 why    = { "" };
    tn_status                s;
    int                      i = ranks == 1 ? 0 : ranks == 2 ? 1 : ranks == 4 ? 2 : 3;
    if (c->small_kernel[i]) return c->small_kernel[i];
    if (waits || tni_small_is_there(c))
        c->small_kernel[i] = tni_compiled_group_kernel(c->gpu->compiled, tni_text_small, name[i],
                                                       TN_F32, TN_F32, &s, &why);
    return c->small_kernel[i];
}

int tni_small_launch(tni_cuda *c, const tni_product *p, char *out, bool overlaps)
{
    tni_small_cut  cut = tni_small_cut_of(p, c->gpu->limits.units);
    tni_cufunction f   = kernel_of(c, cut.ranks, p->waits);
    if (!f) return TNI_CU_NOT_FOUND;
    argument          a        = argument_of(p, &cut, out);
    uint32_t          offset[] = { 0, sizeof a };
    tni_launch_record d        = { .f        = f,
                                   .grid     = { (unsigned)(cut.tiles * cut.ranks), 1, 1 },
                                   .block    = { ITEMS, 1, 1 },
                                   .overlaps = overlaps && c->gpu->overlaps,
                                   .args     = 1 };
    return tni_replay_launch(c, &d, offset, (const char *)&a);
}
