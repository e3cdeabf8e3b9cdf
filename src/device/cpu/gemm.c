// Chooses between the BLAS found on this machine and our own product, and cuts the work into the
// BLAS's panels. The BLAS gets f32 and f64 products of some size whose operands lie as it can
// take them; the rest is ours: it packs any strides and converts narrow types on the way, which
// for a BLAS would be an extra copy.
#include "device/cpu/gemm.h"

#include "base/pool.h"
#include "device/cpu/blas.h"
#include "device/cpu/gemm_kernel.h"
#include "base/integers.h"
#include "device/cpu/tiled_epilogue.h"

#include <limits.h>
#include <unistd.h>

enum {
    PANEL       = 512,  // most rows and columns of a panel
    PANEL_STEP  = 32,   // panels are multiples of this: whole tiles of most libraries
    PANELS      = 8,    // so many at least, and two for every core of the machine
    PANELS_MOST = 64,
    PANEL_WORK  = 1 << 20,  // multiply-adds below which a panel is not cut for that
    BLAS_WORK   = 1 << 15,  // multiply-adds below which our own product is quicker
    BLAS_COLS   = 17        // columns below which it is, too: a BLAS computes more than these
};

// An operand as a BLAS takes it: transposed or not, and the distance of its lines.
typedef struct {
    int trans, ld;
} layout;

// A batch of products cut into panels. Everything follows from the sizes.
typedef struct {
    const tni_blas     *blas;
    tni_gemm_batch      g;
    layout              a, b;
    int64_t             rows, cols;    // of a panel
    int64_t             down, across;  // panels per product
    tni_tiled_epilogue *epilogue;
} job;

// Whether a BLAS can read the operand where it lies. A line alone may have any distance.
static bool lay(layout *l, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    if (col == 1 && (row >= cols || rows == 1)) {
        *l = (layout){ TNI_NO_TRANS, (int)(rows == 1 ? cols : row) };
        return cols <= INT_MAX && (rows == 1 || row <= INT_MAX);
    }
    if (row == 1 && (col >= rows || cols == 1)) {
        *l = (layout){ TNI_TRANS, (int)(cols == 1 ? rows : col) };
        return rows <= INT_MAX && (cols == 1 || col <= INT_MAX);
    }
    return false;
}

static int64_t halved(int64_t side)
{
    return tni_round_up(side / 2, PANEL_STEP);
}

// The machine's cores, not the threads in use: the panels decide the bits.
static double panels_wanted(void)
{
    double cores = (double)sysconf(_SC_NPROCESSORS_CONF);
    return cores < PANELS / 2 ? PANELS : cores > PANELS_MOST / 2 ? PANELS_MOST : 2 * cores;
}

static void choose_panels(job *j)
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
        if (halved(*side) >= *side) return;
        *side = halved(*side);
    }
}

// Whether the BLAS is to compute this batch on that many threads; then the job is filled in.
static bool suits_blas(const tni_gemm_batch *batch, int threads, job *j)
{
    const tni_gemm *g = &batch->one;
    if (g->dtype != TN_F32 && g->dtype != TN_F64) return false;
    if (g->m < 2 || g->n < BLAS_COLS) return false;
    if ((double)g->m * (double)g->n * (double)g->k < BLAS_WORK) return false;
    if (!lay(&j->a, g->m, g->k, g->a_row, g->a_col)) return false;
    if (!lay(&j->b, g->k, g->n, g->b_row, g->b_col)) return false;
    if (g->ldc > INT_MAX || g->k > INT_MAX) return false;
    j->blas = tni_blas_get(threads);
    if (!j->blas) return false;
    j->g = *batch;
    choose_panels(j);
    return true;
}

// The same small matrix against every a, rows of all a and c evenly apart: one tall product.
static tni_gemm_batch folded(const tni_gemm_batch *given)
{
    tni_gemm_batch g = *given;
    if (g.batch > 1 && g.b_step == 0 && g.a_step == g.one.m * g.one.a_row &&
        g.c_step == g.one.m * g.one.ldc) {
        g.one.m *= g.batch;
        g.batch = 1;
    }
    return g;
}

static void blas_f32(const job *j, int m, int n, int64_t a, int64_t b, int64_t c)
{
    const tni_gemm *g = &j->g.one;
    j->blas->sgemm(TNI_ROW_MAJOR, j->a.trans, j->b.trans, m, n, (int)g->k, 1.0f,
                   (const float *)g->a + a, j->a.ld, (const float *)g->b + b, j->b.ld,
                   g->accumulate ? 1.0f : 0.0f, (float *)g->c + c, (int)g->ldc);
}

static void blas_f64(const job *j, int m, int n, int64_t a, int64_t b, int64_t c)
{
    const tni_gemm *g = &j->g.one;
    j->blas->dgemm(TNI_ROW_MAJOR, j->a.trans, j->b.trans, m, n, (int)g->k, 1.0,
                   (const double *)g->a + a, j->a.ld, (const double *)g->b + b, j->b.ld,
                   g->accumulate ? 1.0 : 0.0, (double *)g->c + c, (int)g->ldc);
}

static void run_panel(void *arg, int64_t item, int worker)
{
    const job      *j    = arg;
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
        tni_tiled_epilogue_piece(j->epilogue, item / j->across, which * j->g.c_step + i0 * g->n,
                                 m * g->n, worker);
}

size_t tni_gemm_batch_scratch(const tni_gemm_batch *given, int threads)
{
    job            j;
    tni_gemm_batch g = folded(given);
    return suits_blas(&g, threads, &j) ? 0 : tni_gemm_own_scratch(&g, threads);
}

void tni_gemm_batch_run(const tni_gemm_batch *given, int threads, void *scratch)
{
    job            j;
    tni_gemm_batch g = folded(given);
    if (!suits_blas(&g, threads, &j)) {
        tni_gemm_own_run(&g, threads, scratch);
        return;
    }
    int64_t all = g.one.m * g.one.n, band = j.down > 1 ? j.rows * g.one.n : all;
    j.epilogue = NULL;
    if (tni_tiled_epilogue_begin(g.epilogue, band, all, j.down * g.batch, (int)j.across))
        j.epilogue = g.epilogue;
    tni_blas_enter(threads);
    tni_parallel(threads, j.down * j.across * g.batch, run_panel, &j);
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
