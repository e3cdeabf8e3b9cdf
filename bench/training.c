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

static tn_layer *mlp_3(tn_ctx *cx)
{
    return tn_mlp(cx, TN_SHAPE(784, 256, 128, 10));
}

static tn_layer *lstm(tn_ctx *cx)
{
    return tn_nn_rnn(cx, 512, 512, (tn_nn_rnn_opts){ .kind = TN_LSTM, .layers = 2 });
}

// threads: 0 for all.
static training open_training(network *make, int64_t B, int threads)
{
    training t = { .cx = bench_open((tn_open_opts){ .seed = 1, .threads = threads }) };
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

// 128 steps of B sequences, each of 512 numbers.
static training open_sequences(int64_t B, int threads)
{
    training t = { .cx = bench_open((tn_open_opts){ .seed = 1, .threads = threads }) };
    t.net      = lstm(t.cx);
    t.opt      = tn_adam(t.net, (tn_adam_opts){ .lr = 1e-3f });
    t.x        = tn_want(tn_randn(t.cx, TN_F32, TN_SHAPE(128, B, 512)));
    tn_eval(t.cx);
    return t;
}

static void sequence_step(void *arg)
{
    training *t = arg;
    tn_scope *s = tn_begin(t->cx);
    tn_step(t->opt, tn_mean_all(tn_square(tn_forward(t->net, t->x))));
    tn_end(s);
}

// A network to train, and what is wanted of its step. name: the peer's.
typedef struct {
    const char  *name, *what;
    network     *make;
    int64_t      B;
    bench_wanted wanted;
} training_case;

static void measure(const training_case *c, int threads)
{
    char     of[96], text[80];
    bool     sequences = c->make == lstm;
    training t = sequences ? open_sequences(c->B, threads) : open_training(c->make, c->B, threads);
    double   ours = bench_median(sequences ? sequence_step : step, &t);
    bench_profile(t.cx, c->name, threads, step, &t);
    bench_check(t.cx);
    tn_close(t.cx);
    bench_peer peer = bench_ask_peer(c->name, threads);
    if (isnan(peer.seconds) && bench_peers())
        bench_note("training", "no PyTorch found to compare %s with", c->what);
    snprintf(text, sizeof text, "%s, %d thread%s", c->what, threads, threads > 1 ? "s" : "");
    snprintf(of, sizeof of, "%s (%.3f ms)", peer.name, peer.seconds * 1e3);
    bench_row r = { "training", text, ours * 1e3, "ms", ours / peer.seconds, of };
    bench_add_wanted(r, c->wanted);
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
    training   t = open_training(mlp, BATCH, 0);
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
    static const training_case cases[] = {
        { "mlp_64", "mlp step, batch 64", mlp, 64, { .value = 0.5 } },
        { "mlp_128", "mlp step, batch 128", mlp, 128, { .value = 0 } },
        { "mlp_3_64", "mlp of 3 layers, batch 64", mlp_3, 64, { .value = 0.7, .ratio = 1 } },
        { "lenet_64", "lenet step, batch 64", tn_lenet, 64, { .value = 14, .ratio = 1 } },
        { "lstm_64", "lstm of 2 layers, 128 steps, batch 64", lstm, 64, { .ratio = 0.83 } },
    };
    int threads[BENCH_THREAD_COUNTS], n = bench_thread_counts(threads, false);
    for (int k = 0; k < n; k++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (bench_chosen(cases[i].name) && !(bench_quick() && cases[i].make == lstm))
                measure(&cases[i], threads[k]);
    if (!bench_quick() && bench_chosen("mlp_epoch")) measure_epoch();
}
