// Products with few rows by kernels of our own: which they take, how their work is split, and their
// launches. The kernels are in product_rows_text.c and, for 16 bits, in product_tiles_text.c.
#include "device/cuda/product_rows.h"

#include "device/cuda/gpu.h"

// THREADS, WARPS: of a block, fixed in the text. STEPS: steps of the inner axis that a block's
// threads take at a time. BLOCKS: of `dots` on a multiprocessor.
// TALL, WIDE: rows of A that a block of `tiles`, of `strips` has at a time; HELD: tiles that it
// ends at once, at most. TILES_BLOCKS: of `tiles` on a multiprocessor: as many again of the next
// kernel find room and begin to load. STRIPS_MOST: the most blocks of `strips`, which are not worth
// a second round. SHARED: the most bytes of a block, so that two fit.
enum { A, B, D, THREADS = 256, WARPS = THREADS / 32, STEPS = 32, BLOCKS = 3 };
enum { TALL = 8, HELD = 16, WIDE = 16, TILES_BLOCKS = 2, STRIPS_MOST = 400, SHARED = 108 << 10 };

// The kernel's argument: `struct rows` of the text, field by field.
typedef struct {
    const char *a, *b, *bias, *residual;
    char       *d, *input;
    int64_t     lda, ldb, ldd;
    int32_t     count, cols, depth, slice, flags;
    float       scale;
} rows_args;

_Static_assert(sizeof(rows_args) == 9 * 8 + 6 * 4, "no padding: the text declares the same fields");
_Static_assert(sizeof(tni_rows_part) == 7 * 8 + 4 * 4,
               "no padding: the text declares the same fields");
_Static_assert(sizeof(tni_tiles_args) == 3 * sizeof(tni_rows_part) + 2 * 8 + 4 * 4, "likewise");

// Bits of flags, as in the text.
enum { RELU = 1, GELU = 2, EARLY = 4 };

// Returns the elements of 16 bytes.
static int64_t each_of(const tni_product *p)
{
    return 16 / (int64_t)tni_dtype_size(p->in);
}

// Returns the shared memory of a block of `tiles` or `strips`: B, and the sums of the warps for
// HELD tiles or the strip.
static size_t tiles_shared(const tni_product *p)
{
    int64_t sums = HELD * WARPS * TALL * (int64_t)sizeof(float) * p->cols;
    return (size_t)(p->depth * 2 * p->cols + (p->x[A].transposed ? sums : p->depth * 2 * WIDE));
}

// Returns whether `tiles` or `strips` can do a product, of which columns begin at multiples of 16
// bytes.
static bool takes_tiles(const tni_product *p)
{
    bool fits = tni_is_rounded(p->in) && p->x[B].ld % 8 == 0 && p->depth < SHARED &&
                tiles_shared(p) <= SHARED;
    if (p->x[A].transposed) return fits && p->rows < INT32_MAX - TALL;
    return fits && p->depth % 16 == 0 && p->rows <= WIDE * STRIPS_MOST;
}

// Returns whether a kernel can do a product. Columns of A begin at multiples of 16 bytes, and no
// load of 16 bytes goes beyond its end. In f32, gelu's coarse form would lose digits.
bool tni_rows_takes(const tni_product *p)
{
    int64_t           each = each_of(p);
    const tni_matrix *x    = p->x;
    if (p->in != p->out || p->batch != 1 || p->loops || p->cols > TNI_ROWS_MOST) return false;
    if (p->in != TN_F32 && p->in != TN_F16 && p->in != TN_BF16) return false;
    if (p->in == TN_F32 && p->epilogue.activation == TNI_gelu_tanh) return false;
    if (p->rows < 64 || p->depth < 64 || x[B].transposed || x[A].ld % each) return false;
    if ((x[A].transposed ? p->depth : p->rows) % each) return false;
    if (takes_tiles(p)) return true;
    return p->cols == 1 && (!x[A].transposed || x[B].ld % each == 0);
}

int tni_rows_ranks(const tni_product *p, int units)
{
    int64_t wide = 8 * each_of(p), tiles = (p->rows + wide - 1) / wide;
    int     ranks = 1;
    while (ranks < TNI_ROWS_RANKS && tiles * ranks <= units && p->depth >= ranks * 2 * STEPS)
        ranks *= 2;
    return ranks;
}

// Returns the kernel's name and its number of blocks, and its `slice`: the steps of a block's share
// of the inner axis, or the warps of all blocks, which take turns at the rows.
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

static int32_t flags_of(const tni_product_epilogue *e)
{
    return (e->activation == TNI_relu ? RELU : 0) | (e->activation == TNI_gelu_tanh ? GELU : 0);
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
                        .flags    = flags_of(e) | (early ? EARLY : 0),
                        .scale    = e->scaled ? (float)p->scale : 1 };
}

// The same for tiles and strips: one part.
static tni_tiles_args tiles_args_of(const tni_product *p, bool early)
{
    const tni_product_epilogue *e    = &p->epilogue;
    tni_rows_part               part = { .a        = p->at[A],
                                         .bias     = e->bias ? p->bias : NULL,
                                         .residual = e->residual ? p->residual : NULL,
                                         .d        = p->at[D],
                                         .input    = e->input ? p->input : NULL,
                                         .lda      = p->x[A].ld,
                                         .ldd      = p->x[D].ld,
                                         .count    = (int32_t)p->rows,
                                         .tiles    = (int32_t)((p->rows + TALL - 1) / TALL),
                                         .flags    = flags_of(e),
                                         .scale    = e->scaled ? (float)p->scale : 1 };
    return (tni_tiles_args){ .of    = { part },
                             .b     = p->at[B],
                             .ldb   = p->x[B].ld,
                             .parts = 1,
                             .cols  = (int32_t)p->cols,
                             .depth = (int32_t)p->depth,
                             .early = early };
}

// Returns the kernel of a name; NULL if it is not compiled yet and the caller does not wait.
static tni_cufunction rows_kernel(tni_cuda *c, const tni_product *p, const char *const *text,
                                  const char *name)
{
    tni_text  why  = { "" };
    tn_status s    = TN_OK;
    bool      wait = p->waits || c->compiles_first;
    if (!wait && !tni_compiled_group_kernel_soon(c->gpu->compiled, text, p->in, p->out))
        return NULL;
    return tni_compiled_group_kernel(c->gpu->compiled, text, name, p->in, p->out, &s, &why);
}

// Launches a kernel of one argument.
static int launch_rows(tni_cuda *c, tni_cufunction f, unsigned blocks, size_t shared,
                       const void *args, size_t bytes)
{
    tni_replay_evenly(c);
    return tni_replay_launch_one(c, f, blocks, THREADS, (int)shared, args, bytes);
}

// ---- several products in one launch ------------------------------------------------------------

static int launch_tiles(tni_cuda *c, const tni_rows_waiting *w)
{
    const tni_tiles_args *a = &w->args;
    int32_t tiles = a->of[a->parts - 1].tiles, most = c->gpu->limits.units * TILES_BLOCKS;
    return launch_rows(c, w->f, (unsigned)(tiles < most ? tiles : most), w->shared, a, sizeof *a);
}

int tni_rows_submit(tni_cuda *c)
{
    tni_rows_waiting w = c->waiting;
    c->waiting.f       = NULL;
    return w.f ? launch_tiles(c, &w) : TNI_CU_OK;
}

bool tni_rows_wait(const tni_cuda *c)
{
    return c->waiting.f != NULL;
}

// Returns the bytes from the first element of `cols` columns of a part's result to behind the last.
static int64_t extent_of(const tni_rows_part *x, int32_t cols)
{
    return (x->ldd * (cols - 1) + x->count) * 2;
}

// Returns whether what one part writes, `cols` columns at `d` or `input`, meets what another adds.
// With one column a residual is described as a bias (kernel/epilogue.c), so that may be a value of
// the plan too.
static bool writes_into(const tni_rows_part *x, const tni_rows_part *of, int32_t cols)
{
    const char *const to[] = { x->d, x->input }, *const from[] = { of->residual, of->bias };
    const int64_t bytes[] = { extent_of(of, cols), extent_of(of, 1) };
    for (int i = 0; i < 4; i++) {
        const char *written = to[i / 2], *read = from[i % 2];
        if (written && read && written < read + bytes[i % 2] && read < written + extent_of(x, cols))
            return true;
    }
    return false;
}

// Joins a product to the launch that waits. Returns false if it differs in B, if matrices may be
// written by the plan, or if a part would read what another writes: what is dead between the two
// may be overwritten by the second, and the first may make what the second adds.
static bool join_waiting(tni_cuda *c, tni_cufunction f, const tni_tiles_args *a)
{
    tni_tiles_args *w = &c->waiting.args;
    if (c->waiting.f != f || w->parts == TNI_ROWS_PARTS || w->b != a->b || w->ldb != a->ldb)
        return false;
    if (w->cols != a->cols || w->depth != a->depth || !w->early || !a->early) return false;
    for (int i = 0; i < w->parts; i++)
        if (writes_into(&w->of[i], &a->of[0], w->cols) ||
            writes_into(&a->of[0], &w->of[i], w->cols))
            return false;
    w->of[w->parts] = a->of[0];
    w->of[w->parts].tiles += w->of[w->parts - 1].tiles;
    w->parts++;
    tni_replay_shares(c, c->waiting.step);
    tni_replay_shares(c, tni_replay_this_step(c));
    return true;
}

// Launches a product in 16 bits. In a run that becomes a graph, tiles wait for others with the same
// B; in one that changes a graph, they are launched alone or not at all (tni_replay_shares).
static int multiply_tiles(tni_cuda *c, const tni_product *p, bool early)
{
    bool           along = p->x[A].transposed;
    tni_cufunction f     = rows_kernel(c, p, tni_text_tiles, along ? "tiles" : "strips");
    tni_tiles_args a     = tiles_args_of(p, early);
    if (!f) return TNI_CU_NOT_FOUND;
    if (!along)
        return launch_rows(c, f, (unsigned)((p->rows + WIDE - 1) / WIDE), tiles_shared(p), &a,
                           sizeof a);
    tni_replay_mode  mode = c->recorder.mode;
    tni_rows_waiting w    = {
           .f = f, .args = a, .shared = tiles_shared(p), .step = tni_replay_this_step(c)
    };
    if (mode == TNI_REPLAY_LAUNCH || mode == TNI_REPLAY_CHANGE) return launch_tiles(c, &w);
    if (join_waiting(c, f, &a)) return TNI_CU_OK;
    int error  = tni_rows_submit(c);
    c->waiting = w;
    return error;
}

// A graph begins when all work before it has ended, so within it a matrix that the plan does not
// write can be read at any time. Outside of graphs the kernel ahead may still be writing it.
int tni_rows_launch(tni_cuda *c, const tni_product *p, bool lasting)
{
    unsigned blocks = 0;
    int32_t  slice  = 0;
    bool     early  = lasting && c->gpu->overlaps && c->recorder.mode != TNI_REPLAY_LAUNCH;
    bool     tiled  = takes_tiles(p);
    if ((uintptr_t)p->at[A] % 16 || ((p->x[A].transposed || tiled) && (uintptr_t)p->at[B] % 16))
        return TNI_CU_NOT_SUPPORTED;
    if (tiled) return multiply_tiles(c, p, early);
    const char    *name = choose_rows(p, c->gpu->limits.units, &blocks, &slice);
    tni_cufunction f    = rows_kernel(c, p, tni_text_rows, name);
    rows_args      a    = rows_args_of(p, slice, early);
    return f ? launch_rows(c, f, blocks, 0, &a, sizeof a) : TNI_CU_NOT_FOUND;
}
