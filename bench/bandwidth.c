// bandwidth.c: ops that should be bound by memory, beside a copy. Bytes are the least that must
// move: each input read once, each result written once.
#include "bench.h"

#include "base/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// R rows, C columns
enum { R = 8192, C = 1024, PIECES = 32 };

static const double BYTES = 4.0 * R * C;

typedef tn_tensor *op_fn(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b);

typedef struct {
    tn_ctx    *cx;
    tn_tensor *x, *y, *w, *b;
    op_fn     *op;
} work;

static tn_tensor *do_add_s(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b)
{
    (void)y, (void)w, (void)b;
    return tn_add_s(x, 1);
}

static tn_tensor *do_add(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b)
{
    (void)w, (void)b;
    return tn_add(x, y);
}

static tn_tensor *do_exp(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b)
{
    (void)y, (void)w, (void)b;
    return tn_exp(x);
}

static tn_tensor *do_sum_rows(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b)
{
    (void)y, (void)w, (void)b;
    return tn_sum(x, 1);
}

static tn_tensor *do_sum_columns(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b)
{
    (void)y, (void)w, (void)b;
    return tn_sum(x, 0);
}

static tn_tensor *do_softmax(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b)
{
    (void)y, (void)w, (void)b;
    return tn_softmax(x, 1);
}

static tn_tensor *do_layer_norm(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b)
{
    (void)y;
    return tn_layer_norm(x, 1, w, b, 0);
}

static const struct {
    const char *name;
    double      passes;  // over a tensor of R x C
    op_fn      *op;
} ops[] = {
    { "add a number", 2, do_add_s },
    { "add", 3, do_add },
    { "exp", 2, do_exp },
    { "sum rows", 1, do_sum_rows },
    { "sum columns", 1, do_sum_columns },
    { "softmax rows", 2, do_softmax },
    { "layer_norm rows", 2, do_layer_norm },
};

// A step boundary stores the result alone; what the op makes on its way is the planner's to place.
static void run_op(void *arg)
{
    work     *w = arg;
    tn_scope *s = tn_begin(w->cx);
    w->op(w->x, w->y, w->w, w->b);
    tn_eval(w->cx);
    tn_end(s);
}

// ---- the copy

typedef struct {
    char *to, *from;
    int   threads;
} copy;

static void copy_piece(void *arg, int64_t i, int worker)
{
    copy  *c = arg;
    size_t n = (size_t)BYTES / PIECES;
    (void)worker;
    memcpy(c->to + (size_t)i * n, c->from + (size_t)i * n, n);
}

static void run_copy(void *arg)
{
    copy *c = arg;
    tni_parallel(c->threads, PIECES, copy_piece, c);
}

static double copy_rate(int threads)
{
    copy c = { malloc((size_t)BYTES), malloc((size_t)BYTES), threads };
    if (!c.to || !c.from) exit(1);
    memset(c.to, 1, (size_t)BYTES);
    for (size_t i = 0; i < (size_t)BYTES; i++) c.from[i] = (char)(i * 31 >> 7);
    double t = bench_median(run_copy, &c);
    free(c.to);
    free(c.from);
    return 2 * BYTES / t / 1e9;
}

void bench_bandwidth(void)
{
    int    n   = tni_threads_default();
    double one = copy_rate(1), all = copy_rate(n);
    bench_add((bench_row){ "bandwidth", "memcpy, one thread", one, "GB/s", NAN, NULL });
    bench_add((bench_row){ "bandwidth", "memcpy, all threads", all, "GB/s", NAN, NULL });

    work w = { .cx = bench_open((tn_open_opts){ .seed = 1 }) };
    w.x    = tn_want(tn_randn(w.cx, TN_F32, TN_SHAPE(R, C)));
    w.y    = tn_want(tn_randn(w.cx, TN_F32, TN_SHAPE(R, C)));
    w.w    = tn_want(tn_randn(w.cx, TN_F32, TN_SHAPE(C)));
    w.b    = tn_want(tn_randn(w.cx, TN_F32, TN_SHAPE(C)));
    tn_eval(w.cx);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        w.op        = ops[i].op;
        double rate = ops[i].passes * BYTES / bench_median(run_op, &w) / 1e9;
        bench_check(w.cx);
        bench_add((bench_row){ "bandwidth", ops[i].name, rate, "GB/s", rate / all, "memcpy" });
    }
    tn_close(w.cx);
}
