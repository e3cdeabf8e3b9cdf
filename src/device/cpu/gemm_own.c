// Our own matrix product. The result is cut into panels; a panel is one item of work, computed by
// one thread over the whole of k, block by block. Panels share nothing, so there is nothing to
// wait for, at the price of packing an operand once per panel that reads it.
//
// Narrow types are widened block by block (16-bit floats to f32, bytes to u32), summed in a
// scratch panel and rounded or cut once, at the end. Integers are computed as unsigned, which
// wraps.
//
// M rows of c, N columns, K depth.
#include "base/pool.h"
#include "device/cpu/gemm_kernel.h"
#include "base/integers.h"
#include "device/cpu/tiled_epilogue.h"
#include "kernel/prelude.h"

#include <string.h>

enum {
    PANEL_ROWS   = 240,  // of the largest panel: the packed rows of a fill half of an L2 cache
    PANEL_COLS   = 512,
    PANELS       = 32,       // as many as this keep most machines busy
    PANEL_WORK   = 1 << 19,  // multiply-adds below which a panel is not cut for that
    LARGE_WORK   = 1 << 22,  // multiply-adds above which a panel is cut to less than LEAST_TILES
    LEAST_TILES  = 4,        // a side of a panel has so many tiles, for packing to pay
    ROW_COLS     = 512,      // columns of the smallest panel of one row, to read b in long lines
    ITEM_WORK    = 1 << 16,  // multiply-adds below which panels share an item
    DIRECT_TILES = 3,        // an operand read by at most so many tiles is not packed
    ALIGN        = 64
};

// How one product is cut, and what its panels need. Everything follows from the sizes, the strides
// and the type, never from the number of threads.
typedef struct {
    tni_gemm_batch         g;  // as given, but turned so that a product of one column is one row
    int64_t                c_col;  // stride along a row of c: 1 unless turned
    const tni_gemm_kernel *kernel;
    size_t                 bytes;              // of an element as given
    size_t                 wide;               // of an element as computed
    bool                   widens;             // operands are converted block by block
    bool                   staged;             // a panel is summed in scratch and then written
    int64_t                rows, cols, depth;  // of a panel, and of a block
    int64_t                down, across;       // panels per product
    int64_t                units, per_item;    // panels of all products, panels in an item
    bool                   packs_a, packs_b;
    size_t                 a_room, b_room, a_pack, b_pack, stage;  // bytes of each scratch area
} plan;

// Floats that are rounded to be stored are computed in f32; of integers only the low bits count, which
// need no sign.
static void plan_type(plan *p)
{
    const tni_gemm_isa *isa = tni_gemm_isa_get();
    tn_dtype            dt  = p->g.one.dtype;
    p->bytes                = tni_dtype_size(dt);
    p->wide                 = p->bytes < 4 ? 4 : p->bytes;
    p->widens               = p->bytes != p->wide;
    if (tni_is_float(dt)) p->kernel = p->wide == 8 ? &isa->f64 : &isa->f32;
    else p->kernel = p->wide == 8 ? &isa->u64 : &isa->u32;
}

// ---- the plan

// A product of one column is the transposed product of one row; only c is then strided.
static void plan_turn(plan *p)
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

static double panel_work(const plan *p)
{
    return (double)p->rows * (double)p->cols * (double)p->g.one.k;
}

// Half of a side, in whole tiles, or all of it where that would be less than `least`.
static int64_t half(int64_t side, int64_t tile, int64_t least)
{
    int64_t less = tni_round_up((side + 1) / 2, tile);
    return less >= least ? less : side;
}

// Halves the panels, the longer side first, while there are few and each has work to share.
static void cut_panels(plan *p)
{
    const tni_gemm *g  = &p->g.one;
    int64_t         mr = p->kernel->mr, nr = p->kernel->nr;
    for (;;) {
        p->down       = tni_ceil_div(g->m, p->rows);
        p->across     = tni_ceil_div(g->n, p->cols);
        double panels = (double)p->down * (double)p->across * (double)p->g.batch;
        if (panels >= PANELS || panel_work(p) < 2.0 * PANEL_WORK) return;

        int64_t tiles = panel_work(p) < 2.0 * LARGE_WORK ? LEAST_TILES : 1;
        int64_t rows  = g->m == 1 ? 1 : half(p->rows, mr, tiles * mr);
        int64_t cols  = half(p->cols, nr, g->m == 1 ? ROW_COLS : tiles * nr);
        if (rows < p->rows && (p->rows >= p->cols || cols == p->cols)) p->rows = rows;
        else if (cols < p->cols) p->cols = cols;
        else return;
    }
}

static void plan_panels(plan *p)
{
    const tni_gemm *g   = &p->g.one;
    bool            row = g->m == 1;

    p->depth = tni_min_i64(g->k, TNI_GEMM_DEPTH);
    p->rows  = row ? 1 : tni_round_up(tni_min_i64(g->m, PANEL_ROWS), p->kernel->mr);
    p->cols  = tni_round_up(tni_min_i64(g->n, row ? TNI_GEMM_ROW_COLS : PANEL_COLS), p->kernel->nr);
    if (row) p->cols = tni_min_i64(p->cols, TNI_GEMM_ROW_COLS);
    cut_panels(p);
    double work = panel_work(p);
    p->units    = p->down * p->across * p->g.batch;
    p->per_item = work >= ITEM_WORK ? 1
                                    : tni_min_i64(p->units, 1 + (int64_t)(ITEM_WORK / (work + 1)));
}

static size_t room(int64_t elements, size_t bytes)
{
    return (size_t)tni_round_up(elements * (int64_t)bytes, ALIGN);
}

static void plan_scratch(plan *p)
{
    const tni_gemm        *g    = &p->g.one;
    const tni_gemm_kernel *unit = p->kernel;
    bool                   row  = g->m == 1;

    p->staged  = p->widens || p->c_col != 1;
    p->packs_a = !row && p->cols > DIRECT_TILES * unit->nr;
    p->packs_b = !row && (p->rows > DIRECT_TILES * unit->mr || g->b_col != 1);
    if (p->widens) {
        p->a_room = room(p->rows * p->depth, p->wide);
        p->b_room = room(p->cols * p->depth, p->wide);
    }
    if (p->packs_a) p->a_pack = room(tni_round_up(p->rows, unit->mr) * p->depth, p->wide);
    if (!row) p->b_pack = room(unit->nr * p->depth, p->wide);
    if (p->staged) p->stage = room(p->rows * p->cols, p->wide);
}

static plan plan_of(const tni_gemm_batch *g)
{
    plan p = { .g = *g };
    plan_type(&p);
    plan_turn(&p);
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

static void widen_line(tn_dtype t, void *dst, const void *src, int64_t step, int64_t count)
{
    switch (t) {
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) WIDENS_##held(id, host, stem)
#include "tensor/dtype.def"
    default: break;
    }
}

// Writes one line of sums to c, adding what is there when accumulating. Integers need no sign: the
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

// Part of an operand: where it starts and its strides.
typedef struct {
    const void *at;
    int64_t     row, col;
} view;

// The same part as elements of the type computed in, in dst, with its unit stride kept.
static view widen(const plan *p, view v, int64_t rows, int64_t cols, void *dst)
{
    bool    by_col = v.row == 1 && v.col != 1;
    int64_t lines = by_col ? cols : rows, length = by_col ? rows : cols;
    int64_t skip = by_col ? v.col : v.row, step = by_col ? v.row : v.col;
    for (int64_t i = 0; i < lines; i++)
        widen_line(p->g.one.dtype, (char *)dst + (size_t)(i * length) * p->wide,
                   (const char *)v.at + i * skip * (int64_t)p->bytes, step, length);
    return (view){ dst, by_col ? 1 : length, by_col ? length : 1 };
}

// ---- a panel

// The columns that fill whole tiles can be read where they lie when there are few rows; the rest
// go through the packed strip, which is padded.
static void multiply(const plan *p, tni_gemm_block *k, void *a_pack, void *b_pack)
{
    if (p->g.one.m == 1) {
        p->kernel->row(k);
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
        k->b      = (const char *)k->b + (size_t)whole * p->wide;
        k->c      = (char *)k->c + (size_t)whole * p->wide;
        k->b_pack = b_pack;
    }
    p->kernel->block(k);
}

static void write_stage(const plan *p, char *c, const char *stage, int64_t rows, int64_t cols)
{
    const tni_gemm *g = &p->g.one;
    for (int64_t i = 0; i < rows; i++) {
        char       *to   = c + i * g->ldc * (int64_t)p->bytes;
        const char *from = stage + (size_t)(i * cols) * p->wide;
        narrow_line(g->dtype, to, p->c_col, from, cols, g->accumulate);
    }
}

static void run_panel(const plan *p, int64_t unit, char *scratch)
{
    const tni_gemm *g    = &p->g.one;
    int64_t         grid = p->down * p->across, size = (int64_t)p->bytes;
    int64_t         which = unit / grid, place = unit % grid;
    int64_t         i0 = place / p->across * p->rows, j0 = place % p->across * p->cols;
    int64_t         rows = tni_min_i64(p->rows, g->m - i0), cols = tni_min_i64(p->cols, g->n - j0);

    char *a_room = scratch, *b_room = a_room + p->a_room, *a_pack = b_room + p->b_room;
    char *b_pack = a_pack + p->a_pack, *stage = b_pack + p->b_pack;

    const char *a = (const char *)g->a + (which * p->g.a_step + i0 * g->a_row) * size;
    const char *b = (const char *)g->b + (which * p->g.b_step + j0 * g->b_col) * size;
    char       *c = (char *)g->c + (which * p->g.c_step + i0 * g->ldc + j0 * p->c_col) * size;

    for (int64_t k0 = 0; k0 < g->k; k0 += p->depth) {
        int64_t depth = tni_min_i64(p->depth, g->k - k0);
        view    va    = { a + k0 * g->a_col * size, g->a_row, g->a_col };
        view    vb    = { b + k0 * g->b_row * size, g->b_row, g->b_col };
        if (p->widens) {
            va = widen(p, va, rows, depth, a_room);
            vb = widen(p, vb, depth, cols, b_room);
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
        multiply(p, &k, a_pack, b_pack);
    }
    if (p->staged) write_stage(p, c, stage, rows, cols);
}

// ---- the job

static size_t worker_scratch(const plan *p)
{
    return p->a_room + p->b_room + p->a_pack + p->b_pack + p->stage;
}

typedef struct {
    plan                p;
    char               *scratch;
    tni_tiled_epilogue *epilogue;
} job;

static void tell(const job *j, int64_t unit, int worker)
{
    const plan *p    = &j->p;
    int64_t     band = unit / p->across, i0 = band % p->down * p->rows, n = p->g.one.n;
    tni_tiled_epilogue_piece(j->epilogue, band, band / p->down * p->g.c_step + i0 * n,
                             tni_min_i64(p->rows, p->g.one.m - i0) * n, worker);
}

static void run_item(void *arg, int64_t item, int worker)
{
    job    *j       = arg;
    char   *scratch = j->scratch + (size_t)worker * worker_scratch(&j->p);
    int64_t first = item * j->p.per_item, end = tni_min_i64(first + j->p.per_item, j->p.units);
    for (int64_t unit = first; unit < end; unit++) {
        run_panel(&j->p, unit, scratch);
        if (j->epilogue) tell(j, unit, worker);
    }
}

static void clear(const tni_gemm_batch *g, size_t bytes)
{
    for (int64_t which = 0; which < g->batch; which++) {
        for (int64_t i = 0; i < g->one.m; i++)
            memset((char *)g->one.c + (which * g->c_step + i * g->one.ldc) * (int64_t)bytes, 0,
                   (size_t)g->one.n * bytes);
    }
}

static bool is_empty(const tni_gemm_batch *g)
{
    return g->batch <= 0 || g->one.m <= 0 || g->one.n <= 0;
}

size_t tni_gemm_own_scratch(const tni_gemm_batch *g, int threads)
{
    if (is_empty(g) || g->one.k <= 0) return 0;
    plan    p     = plan_of(g);
    int64_t items = tni_ceil_div(p.units, p.per_item);
    return (size_t)tni_min_i64(threads < 1 ? 1 : threads, tni_min_i64(items, TNI_MAX_THREADS)) *
           worker_scratch(&p);
}

void tni_gemm_own_run(const tni_gemm_batch *g, int threads, void *scratch)
{
    if (is_empty(g)) return;
    job j = { .p = plan_of(g), .scratch = scratch };
    if (g->one.k <= 0) {
        if (!g->one.accumulate) clear(g, j.p.bytes);
        return;
    }
    int64_t all = j.p.g.one.m * j.p.g.one.n, band = j.p.down > 1 ? j.p.rows * j.p.g.one.n : all;
    if (tni_tiled_epilogue_begin(g->epilogue, band, all, j.p.down * g->batch, (int)j.p.across))
        j.epilogue = g->epilogue;
    tni_parallel(threads, tni_ceil_div(j.p.units, j.p.per_item), run_item, &j);
}
