// rank_steps.c: what one rank of a world does for scaling.py: `tenon-bench --child scaling:CASE`,
// started by a launcher or alone. Every rank has a batch of its own, of the same size for any
// number of ranks, so that steps ideally take the same time. Rank 0 prints "seconds T", the median
// of a step.
//
// B batch of a rank, T tokens
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

// The sizes are those of scaling.py's networks in PyTorch.
enum { MLP_BATCH = 128, GPT2_BATCH = 4, GPT2_TOKENS = 128, GPT2_VOCAB = 2048 };

typedef struct {
    tn_ctx    *cx;
    tn_dist   *d;
    tn_layer  *net;
    tn_optim  *opt;
    tn_tensor *x, *y;
} rank_work;

static void make_mlp(rank_work *w)
{
    w->net = tn_mlp(w->cx, TN_SHAPE(784, 1024, 1024, 10));
    w->x   = tn_rand(w->cx, TN_F32, TN_SHAPE(MLP_BATCH, 784));
    w->y   = tn_randint(w->cx, TN_I64, 0, 10, TN_SHAPE(MLP_BATCH));
}

static void make_gpt2(rank_work *w)
{
    w->net = tn_gpt2(w->cx, (tn_gpt2_opts){ .layers  = 4,
                                            .heads   = 4,
                                            .width   = 256,
                                            .vocab   = GPT2_VOCAB,
                                            .context = GPT2_TOKENS,
                                            .dropout = TN_ZERO });
    w->x   = tn_randint(w->cx, TN_I64, 0, GPT2_VOCAB, TN_SHAPE(GPT2_BATCH, GPT2_TOKENS));
    w->y   = tn_randint(w->cx, TN_I64, 0, GPT2_VOCAB, TN_SHAPE(GPT2_BATCH * GPT2_TOKENS));
}

static void step(rank_work *w)
{
    tn_scope  *s = tn_begin(w->cx);
    tn_tensor *y = tn_forward(w->net, w->x);
    if (tn_rank(y) == 3) y = tn_reshape(y, TN_SHAPE(-1, GPT2_VOCAB));
    tn_step(w->opt, tn_cross_entropy(y, w->y));
    tn_eval(w->cx);
    tn_end(s);
}

// How many steps all ranks measure: those of about half a second by rank 0's clock, at least 7.
static int64_t count_steps(rank_work *w)
{
    enum { WARM = 3, LEAST = 7, MOST = 2000 };
    for (int i = 0; i < WARM; i++) step(w);
    double start = bench_seconds();
    step(w);
    double     n   = (bench_quick() ? 0.02 : 0.5) / (bench_seconds() - start);
    tn_tensor *all = tn_from(w->cx, TN_F64, TN_0D, &n);
    n              = tn_item(tn_dist_broadcast(w->d, all, 0));
    return n < LEAST ? LEAST : n > MOST ? MOST : (int64_t)n;
}

// A network with its optimizer, in a world that is opened: of the launcher, or by an engine asked
// for by name.
static rank_work make_work(const char *name, bool world, const char *engine)
{
    rank_work w = { .cx = bench_open((tn_open_opts){ .device = "cpu", .seed = 1 }) };
    if (world) w.d = tn_dist_open(w.cx, (tn_dist_opts){ .engine = engine, .timeout = 60 });
    bench_check(w.cx);
    if (!strcmp(name, "mlp")) make_mlp(&w);
    else make_gpt2(&w);
    tn_want(w.x);
    tn_want(w.y);
    tn_eval(w.cx);
    w.opt = tn_adamw(w.net, (tn_adamw_opts){ .lr = 1e-4 });
    tn_optim_distribute(w.opt, w.d, (tn_distribute_opts){ 0 });
    return w;
}

static double time_step(rank_work *w)
{
    double start = bench_seconds();
    step(w);
    return bench_seconds() - start;
}

// engine: NULL, or one that is opened at one rank too: then steps take turns with those of a
// network without a world, since from process to process times differ by more than the world costs.
void bench_scaling_child(const char *name, const char *engine)
{
    rank_work w = make_work(name, true, engine), alone = { 0 };
    if (engine) alone = make_work(name, false, NULL);
    int64_t n    = count_steps(&w);
    double *took = malloc(2 * (size_t)n * sizeof *took);
    if (engine) count_steps(&alone);
    if (!took) return;
    tn_dist_barrier(w.d);
    for (int64_t i = 0; i < n; i++) {
        took[i] = time_step(&w);
        if (engine) took[n + i] = time_step(&alone);
    }
    bench_check(w.cx);
    if (tn_dist_rank(w.d) == 0) printf("seconds %.9g\n", bench_middle(took, (int)n));
    if (engine) printf("alone %.9g\n", bench_middle(took + n, (int)n));
    free(took);
    if (engine) tn_close(alone.cx);
    tn_close(w.cx);
}
