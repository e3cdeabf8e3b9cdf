// Products with few rows by a kernel of our own: which it takes, how their work is split, and its
// launch. The kernel is in product_rows_text.c.
#include "device/cuda/product_rows.h"

#include "device/cuda/gpu.h"

// THREADS, WARPS: of a block, fixed in the text. STEPS: steps of the inner axis that a block's threads
// take at a time. BLOCKS: of `dots` on a multiprocessor.
enum { A, B, D, THREADS = 256, WARPS = THREADS / 32, STEPS = 32, BLOCKS = 3 };

// The kernel's argument: `struct rows` of the text, field by field.
typedef struct {
    const char *a, *b, *bias, *residual;
    char       *d, *input;
    int64_t     lda, ldb, ldd;
    int32_t     count, cols, depth, slice, flags;
    float       scale;
} rows_args;

_Static_assert(sizeof(rows_args) == 9 * 8 + 6 * 4, "no padding: the text declares the same fields");

// Bits of flags, as in the text.
enum { RELU = 1, GELU = 2, EARLY = 4 };

// Returns the elements of 16 bytes.
static int64_t each_of(const tni_product *p)
{
    return 16 / (int64_t)tni_dtype_size(p->in);
}

// Returns whether the kernel can do a product. Columns of A begin at multiples of 16 bytes, and no load
// of 16 bytes goes beyond its end. In f32, gelu's coarse form would lose digits.
bool tni_rows_takes(const tni_product *p)
{
    int64_t           each = each_of(p);
    const tni_matrix *x    = p->x;
    if (p->in != p->out || p->batch != 1 || p->loops || p->cols > TNI_ROWS_MOST) return false;
    if (p->in != TN_F32 && p->in != TN_F16 && p->in != TN_BF16) return false;
    if (p->in == TN_F32 && p->epilogue.activation == TNI_gelu_tanh) return false;
    if (p->rows < 64 || p->depth < 64 || x[B].transposed || x[A].ld % each) return false;
    if (!x[A].transposed) return p->rows % each == 0;
    return p->depth % each == 0 && x[B].ld % each == 0;
}

int tni_rows_ranks(const tni_product *p, int units)
{
    int64_t wide = 8 * each_of(p), tiles = (p->rows + wide - 1) / wide;
    int     ranks = 1;
    while (ranks < TNI_ROWS_RANKS && tiles * ranks <= units && p->depth >= ranks * 2 * STEPS)
        ranks *= 2;
    return ranks;
}

// Returns the kernel's name and its number of blocks, and its `slice`: the steps of a block's share of
// the inner axis, or the warps of all blocks, which take turns at the rows.
static const char *choose_rows(const tni_product *p, int units, unsigned *blocks, int32_t *slice)
{
    static const char *const name[] = { "columns_1", "columns_2", "columns_4", "columns_8" };
    int64_t                  wide   = 8 * each_of(p);
    if (p->x[A].transposed) {
        int64_t most = (int64_t)units * BLOCKS, needed = (p->rows + WARPS - 1) / WARPS;
        *blocks = (unsigned)(needed < most ? needed : most);
        *slice  = (int32_t)*blocks * WARPS;
        return "dots";
    }
    int ranks = tni_rows_ranks(p, units);
    *blocks   = (unsigned)((p->rows + wide - 1) / wide * ranks);
    *slice    = (int32_t)((p->depth + ranks - 1) / ranks);
    return name[ranks == 1 ? 0 : ranks == 2 ? 1 : ranks == 4 ? 2 : 3];
}

// Writes the kernel's argument: what the epilogue does not name is absent.
static rows_args rows_args_of(const tni_product *p, int32_t slice, bool early)
{
    const tni_product_epilogue *e = &p->epilogue;
    return (rows_args){ .a        = p->at[A],
                        .b        = p->at[B],
                        .bias     = e->bias ? p->bias : NULL,
                        .residual = e->residual ? p->residual : NULL,
                        .d        = p->at[D],
                        .input    = e->input ? p->input : NULL,
                        .lda      = p->x[A].ld,
                        .ldb      = p->x[B].ld,
                        .ldd      = p->x[D].ld,
                        .count    = (int32_t)p->rows,
                        .cols     = (int32_t)p->cols,
                        .depth    = (int32_t)p->depth,
                        .slice    = slice,
                        .flags    = (e->activation == TNI_relu ? RELU : 0) |
                                 (e->activation == TNI_gelu_tanh ? GELU : 0) | (early ? EARLY : 0),
                        .scale = e->scaled ? (float)p->scale : 1 };
}

// Returns the kernel of a name; NULL if it is not compiled yet and the caller does not wait.
static tni_cufunction rows_kernel(tni_cuda *c, const tni_product *p, const char *name)
{
    tni_text  why  = { "" };
    tn_status s    = TN_OK;
    bool      wait = p->waits || c->compiles_first;
    if (!wait && !tni_compiled_group_kernel_soon(c->gpu->compiled, tni_text_rows, p->in, p->out))
        return NULL;
    return tni_compiled_group_kernel(c->gpu->compiled, tni_text_rows, name, p->in, p->out, &s,
                                     &why);
}

// A graph begins when all work before it has ended, so within it a matrix that the plan does not write
// can be read at any time. Outside of graphs the kernel ahead may still be writing it.
int tni_rows_launch(tni_cuda *c, const tni_product *p, bool lasting)
{
    unsigned    blocks = 0;
    int32_t     slice  = 0;
    const char *name   = choose_rows(p, c->gpu->limits.units, &blocks, &slice);
    if ((uintptr_t)p->at[A] % 16 || (p->x[A].transposed && (uintptr_t)p->at[B] % 16))
        return TNI_CU_NOT_FOUND;
    tni_cufunction f = rows_kernel(c, p, name);
    if (!f) return TNI_CU_NOT_FOUND;
    bool              early = lasting && c->gpu->overlaps && c->recorder.mode != TNI_REPLAY_LAUNCH;
    rows_args         a     = rows_args_of(p, slice, early);
    uint32_t          offset[] = { 0, sizeof a };
    tni_launch_record d        = { .f        = f,
                                   .grid     = { blocks, 1, 1 },
                                   .block    = { THREADS, 1, 1 },
                                   .overlaps = c->gpu->overlaps,
                                   .args     = 1 };
    return tni_replay_launch(c, &d, offset, (const char *)&a);
}
