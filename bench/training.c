// training.c: whole training steps, beside PyTorch.
//
// B batch
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <tenon/models.h>

// A network, its optimizer, and a fixed random batch in device memory.
typedef struct {
    tn_ctx    *cx;
    tn_layer  *net;
    tn_optim  *opt;
    tn_tensor *x, *y;
} training;

typedef tn_layer *network(tn_ctx *cx);

static tn_layer *mlp(tn_ctx *cx)
{
    return tn_mlp(cx, TN_SHAPE(784, 128, 10));
}

static training open_training(network *make, int64_t B)
{
    training t = { .cx = bench_open((tn_open_opts){ .seed = 1 }) };
    t.net      = make(t.cx);
    t.opt      = tn_adam(t.net, (tn_adam_opts){ .lr = 1e-3f });
    t.x        = tn_want(tn_rand(t.cx, TN_F32, TN_SHAPE(B, 1, 28, 28)));
    t.y        = tn_want(tn_randint(t.cx, TN_I64, 0, 10, TN_SHAPE(B)));
    tn_eval(t.cx);
    return t;
}

static void step(void *arg)
{
    training *t = arg;
    tn_scope *s = tn_begin(t->cx);
    tn_step(t->opt, tn_cross_entropy(tn_forward(t->net, t->x), t->y));
    tn_end(s);
}

static void measure(const char *name, const char *what, network *make, int64_t B, double most_ms)
{
    char     of[96];
    training t    = open_training(make, B);
    double   ours = bench_median(step, &t);
    bench_check(t.cx);
    tn_close(t.cx);
    bench_peer peer = bench_ask_peer(name, 0);
    if (isnan(peer.seconds) && !bench_quick())
        bench_note("training", "no PyTorch found to compare %s with", what);
    snprintf(of, sizeof of, "%s (%.3f ms)", peer.name, peer.seconds * 1e3);
    bench_row r = { "training", what, ours * 1e3, "ms", ours / peer.seconds, of };
    bench_add_wanted(r, (bench_wanted){ .value = most_ms });
}

static double seconds_of_epoch(training *t, tn_data *d, int64_t B)
{
    double start = bench_seconds();
    for (bool last = false; !last && tn_error(t->cx) == TN_OK;) {
        tn_scope *s = tn_begin(t->cx);
        tn_batch  b = tn_next(d, B);
        last        = b.last;
        tn_step(t->opt, tn_cross_entropy(tn_forward(t->net, b.x), b.y));
        tn_end(s);
    }
    return bench_seconds() - start;
}

// One pass over 60,000 images in batches of 128, loading included.
static void measure_epoch(void)
{
    enum { COUNT = 60000, BATCH = 128, EPOCHS = 5 };
    double     took[EPOCHS];
    training   t = open_training(mlp, BATCH);
    tn_scope  *s = tn_begin(t.cx);
    tn_tensor *x = tn_rand(t.cx, TN_F32, TN_SHAPE(COUNT, 1, 28, 28));
    tn_tensor *y = tn_randint(t.cx, TN_I64, 0, 10, TN_SHAPE(COUNT));
    tn_data   *d = tn_arrays(t.cx, 2, (tn_tensor *const[]){ x, y });
    tn_end(s);
    seconds_of_epoch(&t, d, BATCH);  // to warm up
    for (int i = 0; i < EPOCHS; i++) took[i] = seconds_of_epoch(&t, d, BATCH);
    bench_check(t.cx);
    tn_close(t.cx);
    bench_add((bench_row){ "training", "mlp epoch, 60,000 images", bench_middle(took, EPOCHS), "s",
                           NAN, NULL });
}

void bench_training(void)
{
    measure("mlp_64", "mlp step, batch 64", mlp, 64, 0.5);
    measure("mlp_128", "mlp step, batch 128", mlp, 128, 0);
    measure("lenet_64", "lenet step, batch 64", tn_lenet, 64, 20);
    if (!bench_quick()) measure_epoch();
}
