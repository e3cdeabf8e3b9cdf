// Chooses between the BLAS found on this machine and our own product, and cuts the work into the
// BLAS's panels. The BLAS gets f32 and f64 products of some size whose operands have a layout that
// it can read, unless ours is known to be faster. Our own product does the rest: it packs operands
// of any strides and converts narrow types on the way, for which a BLAS would need an extra copy.
#include "device/cpu/gemm.h"

#include "base/pool.h"
#include "device/cpu/blas.h"
#include "device/cpu/gemm_kernel.h"
#include "base/integers.h"
#include "device/cpu/tiled_epilogue.h"

#include <limits.h>

enum {
    PANEL       = 512,  // most rows and columns of a panel: large enough for a BLAS to block well
    PANEL_STEP  = 32,   // panels are multiples of this: whole tiles of most libraries
    PANELS      = 8,    // least number of panels; on machines of more than 4 cores, two per core
    PANELS_MOST = 64,   // more would make panels too small to be efficient
    PANEL_WORK  = 1 << 20,  // a panel of fewer multiply-adds is not cut to get more panels
    BLAS_WORK   = 1 << 15,  // a product of fewer multiply-adds is ours: a BLAS call has fixed costs
    BLAS_COLS   = 17,       // fewer columns are ours, too: a BLAS pads them to a whole tile
    BLAS_DEPTH  = 24,       // likewise: packing and clearing c would take longer than the product
    FAR_BYTES   = 4096      // lines that are a page apart meet in few sets of a cache
};

// An operand as a BLAS takes it: transposed or not, and the distance between its lines.
typedef struct {
    int trans, ld;
} blas_layout;

// A batch of products cut into panels. Invariant: the cut depends on sizes, strides and the
// machine's number of cores, never on the number of threads in use, since each panel's shape
// decides how a BLAS sums.
typedef struct {
    const tni_blas     *blas;
    tni_gemm_batch      g;
    blas_layout         a, b;
    int64_t             rows, cols;    // of a panel
    int64_t             down, across;  // panels per product
    tni_tiled_epilogue *epilogue;
} blas_job;

// Finds how a BLAS can read an operand in place; false if it cannot. One of the strides must be 1
// and the other at least the length of a line; a single line may have any distance. BLAS sizes are
// 32-bit.
static bool find_blas_layout(blas_layout *l, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    if (col == 1 && (row >= cols || rows == 1)) {
        *l = (blas_layout){ TNI_NO_TRANS, (int)(rows == 1 ? cols : row) };
        return cols <= INT_MAX && (rows == 1 || row <= INT_MAX);
    }
    if (row == 1 && (col >= rows || cols == 1)) {
        *l = (blas_layout){ TNI_TRANS, (int)(cols == 1 ? rows : col) };
        return rows <= INT_MAX && (cols == 1 || col <= INT_MAX);
    }
    return false;
}

static int64_t half_panel(int64_t side)
{
    return tni_round_up(side / 2, PANEL_STEP);
}

// Returns the number of panels wanted, from the machine's cores, not from the threads in use: the
// panels decide the bits.
static double panels_wanted(void)
{
    int cores = tni_cores();
    return cores < PANELS / 2 ? PANELS : cores > PANELS_MOST / 2 ? PANELS_MOST : 2 * cores;
}

// Halves the longer side of the panels until there are enough of them for all cores, or they have
// too little work. Sides stay multiples of PANEL_STEP, which most libraries' tiles divide.
static void choose_blas_panels(blas_job *j)
{
    const tni_gemm *g      = &j->g.one;
    double          wanted = panels_wanted();
    j->rows                = tni_min_i64(g->m, PANEL);
    j->cols                = tni_min_i64(g->n, PANEL);
    for (;;) {
        j->down       = tni_ceil_div(g->m, j->rows);
        j->across     = tni_ceil_div(g->n, j->cols);
        double panels = (double)j->down * (double)j->across * (double)j->g.batch;
        double work   = (double)j->rows * (double)j->cols * (double)g->k;
        if (panels >= wanted || work < 2.0 * PANEL_WORK) return;
        int64_t *side = j->rows >= j->cols ? &j->rows : &j->cols;
        if (half_panel(*side) >= *side) return;
        *side = half_panel(*side);
    }
}

bool tni_gemm_f32_is_own(void)
{
    const tni_blas *blas = tni_blas_get(1);
    return blas && !blas->leads && tni_gemm_isa_get()->f32_rows > 0;
}

// Returns whether our own product is the faster one though there is a BLAS, unless that leads. Over
// sizes of networks it was, with AVX-512 and beside OpenBLAS, 1.2 times as fast on one thread and
// twice on 16 (geometric means), in f64 0.85 times; with AVX2 on a Zen 3 1.2 times on one and on
// two; on a Neoverse-V1 1.3 times on one thread. Of few rows it reads b in place, a part of each
// line for each tile, which is slow where the lines are a page apart: with AVX2 only where they are
// more pages than the TLB holds, 2,048 on a Zen 3 (4 x 4096 x 4096: 11 ms, OpenBLAS 5.4).
static bool is_own_faster(const tni_gemm *g)
{
    const tni_gemm_isa *isa = tni_gemm_isa_get();
    if (g->dtype != TN_F32 || !isa->f32_rows || g->m < isa->f32_rows) return false;
    return g->m > isa->far_rows || g->k < isa->far_lines || g->b_col != 1 ||
           g->b_row * (int64_t)sizeof(float) < FAR_BYTES;
}

// Returns whether a BLAS could compute a product, and fills in the layouts.
static bool can_be_blas(const tni_gemm *g, blas_job *j)
{
    if (g->dtype != TN_F32 && g->dtype != TN_F64) return false;
    if (g->m < 1 || g->n < 1 || g->k < 1 || g->ldc > INT_MAX || g->k > INT_MAX) return false;
    return find_blas_layout(&j->a, g->m, g->k, g->a_row, g->a_col) &&
           find_blas_layout(&j->b, g->k, g->n, g->b_row, g->b_col);
}

// Returns whether a product is worth the call of a BLAS. One of one row is ours: it is bound by
// reading b, which our row kernel does without packing.
static bool is_worth_blas(const tni_gemm *g)
{
    return g->m >= 2 && g->n >= BLAS_COLS && g->k >= BLAS_DEPTH &&
           (double)g->m * (double)g->n * (double)g->k >= BLAS_WORK;
}

// Returns whether the BLAS is to compute this batch on that many threads, and fills in the job. A
// BLAS that will not be called is not loaded: that takes milliseconds, and its threads wait for
// work in a loop.
static bool suits_blas(const tni_gemm_batch *batch, int threads, blas_job *j)
{
    const tni_gemm *g = &batch->one;
    if (!can_be_blas(g, j)) return false;
    bool small = !is_worth_blas(g), faster = is_own_faster(g);
    bool other = batch->otherwise & TNI_BY_OTHER_METHOD;
    if (!other && (small || (faster && !tni_blas_may_lead()))) return false;
    j->blas = tni_blas_get(threads);
    if (!j->blas) return false;
    bool own = small || (faster && !j->blas->leads);
    if (own != other) return false;
    j->g = *batch;
    choose_blas_panels(j);
    return true;
}

// LEAST: multiply-adds below which panels are the same, whatever was chosen.
unsigned tni_gemm_others(const tni_gemm_batch *g)
{
    const double LEAST = 1 << 20;
    blas_job     j;
    unsigned     others = 0;
    double       work   = (double)g->one.m * (double)g->one.n * (double)g->one.k * (double)g->batch;
    if (can_be_blas(&g->one, &j) && tni_blas_get(1)) others |= TNI_BY_OTHER_METHOD;
    if (g->one.m > 1 && g->one.n > 1 && work >= LEAST && !suits_blas(g, 1, &j))
        others |= TNI_BY_FEWER_PARTS | TNI_BY_MORE_PARTS;
    return others;
}

// Returns a batch of products with the same b, and with rows evenly apart through all a and c, as
// one tall product: a linear layer over (batch, time, features). b is then packed once, not for
// every product.
static tni_gemm_batch as_one_product(const tni_gemm_batch *given)
{
    tni_gemm_batch g = *given;
    if (g.batch > 1 && g.b_step == 0 && g.a_step == g.one.m * g.one.a_row &&
        g.c_step == g.one.m * g.one.ldc) {
        g.one.m *= g.batch;
        g.batch = 1;
    }
    return g;
}

static void blas_f32(const blas_job *j, int m, int n, int64_t a, int64_t b, int64_t c)
{
    const tni_gemm *g = &j->g.one;
    j->blas->sgemm(TNI_ROW_MAJOR, j->a.trans, j->b.trans, m, n, (int)g->k, 1.0f,
                   (const float *)g->a + a, j->a.ld, (const float *)g->b + b, j->b.ld,
                   g->accumulate ? 1.0f : 0.0f, (float *)g->c + c, (int)g->ldc);
}

static void blas_f64(const blas_job *j, int m, int n, int64_t a, int64_t b, int64_t c)
{
    const tni_gemm *g = &j->g.one;
    j->blas->dgemm(TNI_ROW_MAJOR, j->a.trans, j->b.trans, m, n, (int)g->k, 1.0,
                   (const double *)g->a + a, j->a.ld, (const double *)g->b + b, j->b.ld,
                   g->accumulate ? 1.0 : 0.0, (double *)g->c + c, (int)g->ldc);
}

// Runs one panel, and reports it as a tile of its band of rows.
static void run_blas_panel(void *arg, int64_t item, int worker)
{
    const blas_job *j    = arg;
    const tni_gemm *g    = &j->g.one;
    int64_t         grid = j->down * j->across, which = item / grid, place = item % grid;
    int64_t         i0 = place / j->across * j->rows, j0 = place % j->across * j->cols;
    int     m = (int)tni_min_i64(j->rows, g->m - i0), n = (int)tni_min_i64(j->cols, g->n - j0);
    int64_t a = which * j->g.a_step + i0 * g->a_row;
    int64_t b = which * j->g.b_step + j0 * g->b_col;
    int64_t c = which * j->g.c_step + i0 * g->ldc + j0;
    if (g->dtype == TN_F32) blas_f32(j, m, n, a, b, c);
    else blas_f64(j, m, n, a, b, c);
    if (j->epilogue)
        tni_tiled_epilogue_tile_done(j->epilogue, item / j->across, which * j->g.c_step + i0 * g->n,
                                     m * g->n, worker);
}

size_t tni_gemm_batch_scratch(const tni_gemm_batch *given, int threads)
{
    blas_job       j;
    tni_gemm_batch g = as_one_product(given);
    return suits_blas(&g, threads, &j) ? 0 : tni_gemm_own_scratch(&g, threads);
}

// A band is a row of panels: its elements are contiguous in c, since ldc is n whenever there is an
// epilogue.
void tni_gemm_batch_run(const tni_gemm_batch *given, int threads, void *scratch)
{
    blas_job       j;
    tni_gemm_batch g = as_one_product(given);
    if (!suits_blas(&g, threads, &j)) {
        tni_gemm_own_run(&g, threads, scratch);
        return;
    }
    int64_t all = g.one.m * g.one.n, band = j.down > 1 ? j.rows * g.one.n : all;
    j.epilogue = NULL;
    if (tni_tiled_epilogue_begin(g.epilogue, band, all, j.down * g.batch, (int)j.across))
        j.epilogue = g.epilogue;
    tni_blas_enter(threads);
    tni_parallel(threads, j.down * j.across * g.batch, run_blas_panel, &j);
    tni_blas_leave(threads);
}

size_t tni_gemm_scratch(const tni_gemm *g, int threads)
{
    return tni_gemm_batch_scratch(&(tni_gemm_batch){ .one = *g, .batch = 1 }, threads);
}

void tni_gemm_run(const tni_gemm *g, int threads, void *scratch)
{
    tni_gemm_batch_run(&(tni_gemm_batch){ .one = *g, .batch = 1 }, threads, scratch);
}
