// Our own matrix product, blocked as in GotoBLAS and BLIS. The result is cut into panels; a panel
// is computed by one thread over the whole of k, block by block:
//
//     for each panel of c (rows x cols)             a unit; threads share them
//         for each block of TNI_GEMM_DEPTH of k     packs rows x depth of a: stays in the L2 cache
//             for each strip of nr columns          packs depth x nr of b, TNI_GEMM_STRIPS strips at a time: stays in the L1 cache
//                 for each tile of mr x nr          sums in registers over the depth
//
// Panels share nothing, so that no thread waits for another, at the price of packing an operand
// once per panel that reads it. The order of additions of an element is that of gemm_kernel.h,
// whatever the panels.
//
// Narrow types are widened block by block (16-bit floats to f32, bytes to u32), summed in a scratch
// panel, and rounded or cut once, at the end. Integers are computed as unsigned, which wraps.
//
// M rows of c, N columns, K depth.
#include "base/pool.h"
#include "device/cpu/gemm_kernel.h"
#include "base/integers.h"
#include "device/cpu/tiled_epilogue.h"
#include "kernel/prelude.h"

#include <string.h>

enum {
    // The largest panel. Its packed rows of a take 240 KiB in f32, half of an L2 cache of 512 KiB,
    // and are reused by all its columns. A multiple of every tile's rows (6, 8, 12).
    PANEL_ROWS  = 240,
    PANEL_COLS  = 512,
    PANELS_EACH = 2,        // panels wanted for each of several threads: a late one holds up little
    PANEL_WORK  = 1 << 19,  // a panel of fewer multiply-adds is not cut to get more panels
    // Tiles along a side of a panel: each packed strip is read at least that often. A panel of more
    // than LARGE_WORK multiply-adds may have fewer, since its arithmetic outweighs the packing.
    LEAST_TILES = 4,
    LARGE_WORK  = 1 << 22,
    // While threads have no panel at all, panels are cut down to this, a few microseconds, and to
    // single tiles: packing more often costs less than what they would leave undone.
    IDLE_WORK = 1 << 16,
    // Of products of one row, which are bound by memory: least columns of a panel, as lines of b
    // are read in runs; panels wanted, and the least work of one.
    ROW_COLS = 128,
    ACROSS_COLS =
        48,  // columns of such a panel if columns are contiguous: each is read to its end soon
    ROW_PANELS = 8,
    ROW_WORK   = 1 << 15,
    ITEM_WORK  = 1 << 16,  // panels of fewer multiply-adds share a task, which costs time to start
    ROW_ITEM   = 1 << 14,  // likewise, of one row: memory makes them take longer
    // Tasks for each thread of a batch of such products: each reads what follows in memory, since a
    // core that fetches ahead of itself beyond its task fetches what another core does. Two cores
    // of a Neoverse-V1 read 51 GB/s so, with tasks of 100 KB 42 GB/s.
    ROW_ITEMS    = 4,
    DIRECT_TILES = 3,  // an operand that no more tiles read is read in place, not packed
    ALIGN        = 64  // bytes of a cache line, and of the largest vector
};

// How one product is cut, and the scratch that its panels need. The number of threads decides the
// panels, and not the bits, since an element's additions do not depend on its panel.
typedef struct {
    int                    threads;
    tni_gemm_batch         g;      // as given, but transposed if it has one column
    int64_t                c_col;  // stride along a row of c: 1 unless transposed
    const tni_gemm_kernel *kernel;
    size_t                 bytes;              // of an element as given
    size_t                 wide_bytes;         // of an element as computed
    bool                   widens;             // operands are converted block by block
    bool                   staged;             // a panel is summed in scratch and then written
    int64_t                rows, cols, depth;  // of a panel, and of a block
    int64_t                down, across;       // panels per product
    int64_t                units, per_item;    // panels of all products, panels in an item
    bool                   packs_a, packs_b;
    bool                   row_bf16;                               // one row, and b is read as bf16
    size_t                 a_wide, b_wide, a_pack, b_pack, stage;  // bytes of each scratch area
} product_plan;

// Chooses the kernel for the type that elements are computed in. Rounded floats (16 bits) are
// computed in f32; of integers only the low bits count, which need no sign.
static void plan_type(product_plan *p)
{
    const tni_gemm_isa *isa = tni_gemm_isa_get();
    tn_dtype            dt  = p->g.one.dtype;
    p->bytes                = tni_dtype_size(dt);
    p->wide_bytes           = p->bytes < 4 ? 4 : p->bytes;
    p->widens               = p->bytes != p->wide_bytes;
    if (tni_is_float(dt)) p->kernel = p->wide_bytes == 8 ? &isa->f64 : &isa->f32;
    else p->kernel = p->wide_bytes == 8 ? &isa->u64 : &isa->u32;
}

// ---- the plan

// Turns a product of one column into the transposed product of one row, c^T = b^T a^T, so that the
// row kernel serves both; only c is strided then.
static void plan_transpose(product_plan *p)
{
    tni_gemm *g = &p->g.one;
    p->c_col    = 1;
    if (g->n != 1 || g->m == 1) return;

    tni_gemm was  = *g;
    int64_t  step = p->g.a_step;
    g->m = 1, g->n = was.m;
    g->a = was.b, g->a_row = was.b_col, g->a_col = was.b_row;
    g->b = was.a, g->b_row = was.a_col, g->b_col = was.a_row;
    p->g.a_step = p->g.b_step;
    p->g.b_step = step;
    p->c_col    = was.ldc;
    g->ldc      = 0;
}

static double panel_work(const product_plan *p)
{
    return (double)p->rows * (double)p->cols * (double)p->g.one.k;
}

// Returns half of a side, in whole tiles, or all of it if the half would be less than `least`.
static int64_t half_side(int64_t side, int64_t tile, int64_t least)
{
    int64_t less = tni_round_up((side + 1) / 2, tile);
    return less >= least ? less : side;
}

// The panels that are wanted, so that all threads end at about the same time. Fewer pack less; more
// are even where threads are not.
static int wanted_panels(const product_plan *p)
{
    int each = p->g.otherwise & TNI_BY_FEWER_PARTS  ? 1
               : p->g.otherwise & TNI_BY_MORE_PARTS ? 2 * PANELS_EACH
                                                    : PANELS_EACH;
    if (p->g.one.m == 1) return ROW_PANELS;
    return p->threads > 1 ? each * p->threads : 1;
}

// Halves the panels, the longer side first, while there are too few and each has work to share.
// Square panels read the least of a and b per multiply-add.
static void cut_panels(product_plan *p)
{
    const tni_gemm *g  = &p->g.one;
    int64_t         mr = p->kernel->mr, nr = p->kernel->nr;
    bool            row    = g->m == 1;
    int             wanted = wanted_panels(p);
    for (;;) {
        p->down       = tni_ceil_div(g->m, p->rows);
        p->across     = tni_ceil_div(g->n, p->cols);
        double panels = (double)p->down * (double)p->across * (double)p->g.batch;
        bool   idle   = !row && panels < p->threads;
        if (panels >= wanted) return;
        if (panel_work(p) < 2.0 * (row ? ROW_WORK : idle ? IDLE_WORK : PANEL_WORK)) return;

        int64_t tiles = idle ? 1 : panel_work(p) < 2.0 * LARGE_WORK ? LEAST_TILES : 1;
        int64_t rows  = row ? 1 : half_side(p->rows, mr, tiles * mr);
        int64_t cols  = half_side(p->cols, nr, row ? ROW_COLS : tiles * nr);
        if (rows < p->rows && (p->rows >= p->cols || cols == p->cols)) p->rows = rows;
        else if (cols < p->cols) p->cols = cols;
        else return;
    }
}

// Cuts the rows into that many panels of one size, or into fewer where they are not whole tiles.
static void cut_rows(product_plan *p, int64_t down)
{
    p->rows = tni_round_up(tni_ceil_div(p->g.one.m, down), p->kernel->mr);
    p->down = tni_ceil_div(p->g.one.m, p->rows);
}

// The rows that the thread with the most panels computes, if all take as long.
static int64_t longest_share(const product_plan *p)
{
    return tni_ceil_div(p->down * p->across * p->g.batch, p->threads) * p->rows;
}

// Makes panels of one size: with AVX2 784 rows are 4 of 198, not 3 of 240 and one of 64. More are
// cut, as many for each thread, if that makes the longest share shorter by more than it costs to
// pack b again: 1,200 rows are 6 panels for two threads, not 5. AGAIN: at most half as many more;
// WORTH: a tenth of the share, at least.
static void even_panels(product_plan *p)
{
    enum { AGAIN = 2, WORTH = 10 };
    int64_t beside = p->across * p->g.batch, down = p->down;
    cut_rows(p, down);
    p->cols           = tni_round_up(tni_ceil_div(p->g.one.n, p->across), p->kernel->nr);
    p->across         = tni_ceil_div(p->g.one.n, p->cols);
    product_plan more = *p;
    while (down * beside % p->threads) down++;
    if (down - p->down > p->down / AGAIN) return;
    cut_rows(&more, down);
    int64_t share = longest_share(p);
    if (share - longest_share(&more) > share / WORTH) *p = more;
}

// Chooses the panels, and how many of them make a task. A product of one row has panels of one row,
// as wide as the row kernel takes.
static void plan_panels(product_plan *p)
{
    const tni_gemm *g   = &p->g.one;
    bool            row = g->m == 1;

    p->depth = tni_min_i64(g->k, TNI_GEMM_DEPTH);
    p->rows  = row ? 1 : tni_round_up(tni_min_i64(g->m, PANEL_ROWS), p->kernel->mr);
    p->cols  = tni_round_up(tni_min_i64(g->n, row ? TNI_GEMM_ROW_COLS : PANEL_COLS), p->kernel->nr);
    if (row) p->cols = tni_min_i64(p->cols, TNI_GEMM_ROW_COLS);
    if (row && g->b_col != 1) p->cols = tni_min_i64(p->cols, ACROSS_COLS);
    cut_panels(p);
    if (!row) even_panels(p);
    double work = panel_work(p), least = row ? ROW_ITEM : ITEM_WORK;
    p->units    = p->down * p->across * p->g.batch;
    p->per_item = work >= least ? 1 : tni_min_i64(p->units, 1 + (int64_t)(least / (work + 1)));
    if (row) p->per_item = tni_max_i64(p->per_item, p->units / (ROW_ITEMS * (int64_t)p->threads));
}

// Returns the bytes of a scratch area, in whole cache lines, so that no two threads write the same
// line.
static size_t area_bytes(int64_t elements, size_t bytes)
{
    return (size_t)tni_round_up(elements * (int64_t)bytes, ALIGN);
}

// Decides what is packed, and how much scratch a worker needs. An operand that few tiles read is
// not worth packing; b, however, can only be read in place if its rows are contiguous, as vectors
// are loaded from it.
static void plan_scratch(product_plan *p)
{
    const tni_gemm        *g    = &p->g.one;
    const tni_gemm_kernel *unit = p->kernel;
    bool                   row  = g->m == 1;

    p->staged   = p->widens || p->c_col != 1;
    p->packs_a  = !row && p->cols > DIRECT_TILES * unit->nr;
    p->packs_b  = !row && (p->rows > DIRECT_TILES * unit->mr || g->b_col != 1);
    p->row_bf16 = row && g->dtype == TN_BF16;
    if (p->widens) p->a_wide = area_bytes(p->rows * p->depth, p->wide_bytes);
    if (p->widens && !p->row_bf16) p->b_wide = area_bytes(p->cols * p->depth, p->wide_bytes);
    if (p->packs_a)
        p->a_pack = area_bytes(tni_round_up(p->rows, unit->mr) * p->depth, p->wide_bytes);
    if (!row) p->b_pack = area_bytes(TNI_GEMM_STRIPS * unit->nr * p->depth, p->wide_bytes);
    if (p->staged) p->stage = area_bytes(p->rows * p->cols, p->wide_bytes);
}

// Returns the plan of a batch; also called just to learn the bytes of scratch.
static product_plan plan_of(const tni_gemm_batch *g, int threads)
{
    product_plan p = { .g = *g, .threads = threads };
    plan_type(&p);
    plan_transpose(&p);
    plan_panels(&p);
    plan_scratch(&p);
    return p;
}

// ---- conversion

#define WIDENS(id, type, host, expr)                          \
    case TN_##id:                                             \
        for (int64_t i = 0; i < count; i++) {                 \
            host x           = ((const host *)src)[i * step]; \
            ((type *)dst)[i] = (expr);                        \
        }                                                     \
        break;
#define WIDENS_ROUND(id, host, stem) WIDENS(id, float, host, m_##stem##_to_float(x))
#define WIDENS_WRAP(id, host, stem)  WIDENS(id, uint32_t, host, (uint32_t)x)
#define WIDENS_TRUTH(id, host, stem)
#define WIDENS_SELF(id, host, stem)

// Converts a line of elements to the type computed in; the cases are made from dtype.def.
static void widen_line(tn_dtype t, void *dst, const void *src, int64_t step, int64_t count)
{
    switch (t) {
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) WIDENS_##held(id, host, stem)
#include "tensor/dtype.def"
    default: break;
    }
}

// Writes one line of sums to c, or adds them if `add`. Integers need no sign: the
// low bits of a sum are the same either way.
#define NARROWS(id, type, host, sum)           \
    case TN_##id:                              \
        for (int64_t i = 0; i < count; i++) {  \
            host *to = (host *)dst + i * step; \
            type  x  = ((const type *)src)[i]; \
            *to      = (host)(sum);            \
        }                                      \
        break;
#define NARROWS_ROUND(id, host, stem) \
    NARROWS(id, float, host, m_float_to_##stem(add ? m_##stem##_to_float(*to) + x : x))
#define NARROWS_WRAP(id, host, stem) NARROWS(id, uint32_t, host, x + (add ? (uint32_t)*to : 0))
#define NARROWS_TRUTH(id, host, stem)
#define NARROWS_SELF(id, host, stem) NARROWS(id, host, host, add ? *to + x : x)

static void narrow_line(tn_dtype t, void *dst, int64_t step, const void *src, int64_t count,
                        bool add)
{
    switch (t) {
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) NARROWS_##held(id, host, stem)
#include "tensor/dtype.def"
    default: break;
    }
}

// A part of an operand: its first element and its strides.
typedef struct {
    const void *at;
    int64_t     row, col;
} operand_view;

// Returns the same part of an operand converted to the type computed in, stored in dst, with the
// unit stride along the same axis as before: packing is fastest along that.
static operand_view widen_operand(const product_plan *p, operand_view v, int64_t rows, int64_t cols,
                                  void *dst)
{
    bool    by_col = v.row == 1 && v.col != 1;
    int64_t lines = by_col ? cols : rows, length = by_col ? rows : cols;
    int64_t skip = by_col ? v.col : v.row, step = by_col ? v.row : v.col;
    for (int64_t i = 0; i < lines; i++)
        widen_line(p->g.one.dtype, (char *)dst + (size_t)(i * length) * p->wide_bytes,
                   (const char *)v.at + i * skip * (int64_t)p->bytes, step, length);
    return (operand_view){ dst, by_col ? 1 : length, by_col ? length : 1 };
}

// ---- a panel

// Multiplies one block. With few rows, the columns that fill whole tiles are read in place, and the
// rest go through the packed strip, which is padded with zeros.
static void multiply_block(const product_plan *p, tni_gemm_block *k, void *a_pack, void *b_pack)
{
    if (p->g.one.m == 1) {
        (p->row_bf16 ? p->kernel->row_bf16 : p->kernel->row)(k);
        return;
    }
    int64_t whole = k->cols / p->kernel->nr * p->kernel->nr;
    k->a_pack     = p->packs_a ? a_pack : NULL;
    k->b_pack     = b_pack;
    if (!p->packs_b && k->b_col == 1 && whole > 0) {
        int64_t rest = k->cols - whole;
        k->cols      = whole;
        k->b_pack    = NULL;
        p->kernel->block(k);
        if (rest == 0) return;
        k->cols   = rest;
        k->b      = (const char *)k->b + (size_t)whole * p->wide_bytes;
        k->c      = (char *)k->c + (size_t)whole * p->wide_bytes;
        k->b_pack = b_pack;
    }
    p->kernel->block(k);
}

// Writes a panel of sums from scratch to c: converted to the dtype, or with a stride if c is a
// column.
static void write_stage(const product_plan *p, char *c, const char *stage, int64_t rows,
                        int64_t cols)
{
    const tni_gemm *g = &p->g.one;
    for (int64_t i = 0; i < rows; i++) {
        char       *to   = c + i * g->ldc * (int64_t)p->bytes;
        const char *from = stage + (size_t)(i * cols) * p->wide_bytes;
        narrow_line(g->dtype, to, p->c_col, from, cols, g->accumulate);
    }
}

// Computes one panel over all of k. Within a panel, blocks of TNI_GEMM_DEPTH follow each other: the
// first block sets c (or the stage), the others add to it, which fixes the order of additions. A
// staged panel is rounded once, at the end.
static void run_own_panel(const product_plan *p, int64_t unit, char *scratch)
{
    const tni_gemm *g    = &p->g.one;
    int64_t         grid = p->down * p->across, size = (int64_t)p->bytes;
    int64_t         which = unit / grid, place = unit % grid;
    int64_t         i0 = place / p->across * p->rows, j0 = place % p->across * p->cols;
    int64_t         rows = tni_min_i64(p->rows, g->m - i0), cols = tni_min_i64(p->cols, g->n - j0);

    char *a_wide = scratch, *b_wide = a_wide + p->a_wide, *a_pack = b_wide + p->b_wide;
    char *b_pack = a_pack + p->a_pack, *stage = b_pack + p->b_pack;

    const char *a = (const char *)g->a + (which * p->g.a_step + i0 * g->a_row) * size;
    const char *b = (const char *)g->b + (which * p->g.b_step + j0 * g->b_col) * size;
    char       *c = (char *)g->c + (which * p->g.c_step + i0 * g->ldc + j0 * p->c_col) * size;

    for (int64_t k0 = 0; k0 < g->k; k0 += p->depth) {
        int64_t      depth = tni_min_i64(p->depth, g->k - k0);
        operand_view va    = { a + k0 * g->a_col * size, g->a_row, g->a_col };
        operand_view vb    = { b + k0 * g->b_row * size, g->b_row, g->b_col };
        if (p->widens) {
            va = widen_operand(p, va, rows, depth, a_wide);
            if (!p->row_bf16) vb = widen_operand(p, vb, depth, cols, b_wide);
        }
        tni_gemm_block k = {
            .rows  = rows,
            .cols  = cols,
            .depth = depth,
            .a     = va.at,
            .a_row = va.row,
            .a_col = va.col,
            .b     = vb.at,
            .b_row = vb.row,
            .b_col = vb.col,
            .c     = p->staged ? stage : c,
            .ldc   = p->staged ? cols : g->ldc,
            .add   = k0 > 0 || (g->accumulate && !p->staged),
        };
        multiply_block(p, &k, a_pack, b_pack);
    }
    if (p->staged) write_stage(p, c, stage, rows, cols);
}

// ---- the job

// Returns the bytes of scratch of one worker: widened operands, packed operands, the stage.
static size_t worker_scratch(const product_plan *p)
{
    return p->a_wide + p->b_wide + p->a_pack + p->b_pack + p->stage;
}

// A product being run: its plan, the scratch of all workers, and its epilogue, if that runs by
// bands.
typedef struct {
    product_plan        p;
    char               *scratch;
    tni_tiled_epilogue *epilogue;
} own_job;

// Reports a panel as a tile of its band, the row of panels that it belongs to.
static void report_tile(const own_job *j, int64_t unit, int worker)
{
    const product_plan *p    = &j->p;
    int64_t             band = unit / p->across, i0 = band % p->down * p->rows, n = p->g.one.n;
    tni_tiled_epilogue_tile_done(j->epilogue, band, band / p->down * p->g.c_step + i0 * n,
                                 tni_min_i64(p->rows, p->g.one.m - i0) * n, worker);
}

// A task: runs one or several panels, and reports each.
static void run_panels(void *arg, int64_t item, int worker)
{
    own_job *j       = arg;
    char    *scratch = j->scratch + (size_t)worker * worker_scratch(&j->p);
    int64_t  first = item * j->p.per_item, end = tni_min_i64(first + j->p.per_item, j->p.units);
    for (int64_t unit = first; unit < end; unit++) {
        run_own_panel(&j->p, unit, scratch);
        if (j->epilogue) report_tile(j, unit, worker);
    }
}

// Writes zeros: the result of a product with k = 0.
static void clear_result(const tni_gemm_batch *g, size_t bytes)
{
    for (int64_t which = 0; which < g->batch; which++) {
        for (int64_t i = 0; i < g->one.m; i++)
            memset((char *)g->one.c + (which * g->c_step + i * g->one.ldc) * (int64_t)bytes, 0,
                   (size_t)g->one.n * bytes);
    }
}

static bool is_empty_product(const tni_gemm_batch *g)
{
    return g->batch <= 0 || g->one.m <= 0 || g->one.n <= 0;
}

// Enough for any number of threads up to that one: fewer have larger panels.
size_t tni_gemm_own_scratch(const tni_gemm_batch *g, int threads)
{
    size_t most = 0;
    if (is_empty_product(g) || g->one.k <= 0) return 0;
    for (int n = 1; n == 1 || n <= tni_min_i64(threads, TNI_MAX_THREADS); n++) {
        product_plan p     = plan_of(g, n);
        size_t       bytes = (size_t)tni_min_i64(n, tni_ceil_div(p.units, p.per_item)) *
                       worker_scratch(&p);
        if (bytes > most) most = bytes;
    }
    return most;
}

void tni_gemm_own_run(const tni_gemm_batch *g, int threads, void *scratch)
{
    if (is_empty_product(g)) return;
    own_job j = { .p       = plan_of(g, threads < TNI_MAX_THREADS ? threads : TNI_MAX_THREADS),
                  .scratch = scratch };
    if (g->one.k <= 0) {
        if (!g->one.accumulate) clear_result(g, j.p.bytes);
        return;
    }
    int64_t all = j.p.g.one.m * j.p.g.one.n, band = j.p.down > 1 ? j.p.rows * j.p.g.one.n : all;
    if (tni_tiled_epilogue_begin(g->epilogue, band, all, j.p.down * g->batch, (int)j.p.across))
        j.epilogue = g->epilogue;
    tni_parallel(threads, tni_ceil_div(j.p.units, j.p.per_item), run_panels, &j);
}
