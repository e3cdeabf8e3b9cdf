// products.c: matrix products beside direct calls of the same BLAS.
#include "bench.h"

#include "base/pool.h"
#include "device/cpu/blas.h"
#include "device/cpu/gemm.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 1024 };

static const double GFLOP = 2.0 * SIDE * SIDE * SIDE / 1e9;

// ---- ours

typedef struct {
    tn_ctx    *cx;
    tn_tensor *a, *b;
} product;

// The result dies with the scope, and its memory is used again by the next.
static void run_product(void *arg)
{
    product  *p = arg;
    tn_scope *s = tn_begin(p->cx);
    tn_eval_of(tn_matmul(p->a, p->b));
    tn_end(s);
}

static double our_gflops(int threads)
{
    product p = { .cx = bench_open((tn_open_opts){ .threads = threads }) };
    p.a       = tn_randn(p.cx, TN_F32, TN_SHAPE(SIDE, SIDE));
    p.b       = tn_randn(p.cx, TN_F32, TN_SHAPE(SIDE, SIDE));
    tn_eval_of(p.a);
    tn_eval_of(p.b);
    double t = bench_median(run_product, &p);
    bench_check(p.cx);
    tn_close(p.cx);
    return GFLOP / t;
}

void bench_matmul_child(void)
{
    printf("GFLOP/s %.6g\n", our_gflops(1));
}

// ---- the BLAS, called directly

typedef struct {
    tni_sgemm *sgemm;
    void (*threads)(int);  // NULL where the library has no such call
    float *a, *b, *c;
} direct;

static void run_direct(void *arg)
{
    direct *d = arg;
    d->sgemm(TNI_ROW_MAJOR, TNI_NO_TRANS, TNI_NO_TRANS, SIDE, SIDE, SIDE, 1, d->a, SIDE, d->b, SIDE,
             0, d->c, SIDE);
}

static bool open_direct(direct *d, const char *path)
{
    void *lib = dlopen(path, RTLD_NOW), *f;
    if (!lib || !(f = dlsym(lib, "cblas_sgemm"))) return false;
    memcpy(&d->sgemm, &f, sizeof f);
    f = dlsym(lib, "openblas_set_num_threads");
    memcpy(&d->threads, &f, sizeof f);
    size_t n = (size_t)SIDE * SIDE;
    d->a     = malloc(3 * n * sizeof *d->a);
    if (!d->a) return false;
    d->b = d->a + n;
    d->c = d->b + n;
    srand(1);
    for (size_t i = 0; i < 3 * n; i++) d->a[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    return true;
}

// Tenon's own threads call the BLAS on one thread each, so that is what it is left with.
static double direct_gflops(direct *d, int threads)
{
    if (d->threads) d->threads(threads);
    double t = bench_median(run_direct, d);
    if (d->threads) d->threads(1);
    return GFLOP / t;
}

static void add_product(const char *what, double gflops, double ratio, const char *of)
{
    if (isnan(gflops)) bench_note("matmul", "%s: not measured", what);
    else bench_add((bench_row){ "matmul", what, gflops, "GFLOP/s", ratio, of });
}

void bench_matmul(void)
{
    int           n    = tni_threads_default();
    tni_blas_info blas = tni_blas_find();
    direct        d    = { 0 };
    double        own  = bench_child("TN_BLAS=none TN_NUM_THREADS=1", "--child matmul", "GFLOP/s");
    double        ours = our_gflops(n);
    if (blas.found && open_direct(&d, blas.path)) {
        double all = direct_gflops(&d, n), one = direct_gflops(&d, 1);
        add_product("BLAS, all threads", all, NAN, NULL);
        add_product("tn_matmul, all threads", ours, ours / all, "BLAS");
        add_product("BLAS, one thread", one, NAN, NULL);
        add_product("own product, one thread", own, own / one, "BLAS, one thread");
        free(d.a);
    } else {
        bench_note("matmul", "no BLAS to compare with: %s", blas.found ? blas.path : blas.detail);
        add_product("tn_matmul, all threads", ours, NAN, NULL);
        add_product("own product, one thread", own, NAN, NULL);
    }
}
