// inference.c: one image at a time through ResNet-18 and MobileNetV2, with one thread and with all, in turn with
// PyTorch.
#include "bench.h"
#include "networks.h"

#include "base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/models.h>

enum { ROUNDS = 3 };

static tn_layer *resnet18(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 18 });
}

// ---- measuring ---------------------------------------------------------------------------------

typedef struct {
    tn_layer  *net;
    tn_tensor *x;
} inference;

static void run(void *arg)
{
    const inference *t = arg;
    tn_scope        *s = tn_begin(tn_layer_ctx(t->net));
    tn_grad_mode(tn_layer_ctx(t->net), false);
    tn_eval_of(tn_forward(t->net, t->x));
    tn_end(s);
}

// The two take turns, so that what else the machine does is done to both.
static void measure(const char *name, const char *what, tn_layer *make(tn_ctx *cx), int threads)
{
    char       of[96], text[64];
    double     ours[ROUNDS], theirs[ROUNDS];
    int64_t    side   = bench_quick() ? 32 : 224;
    int        rounds = bench_quick() ? 1 : ROUNDS;
    tn_ctx    *cx   = bench_open((tn_open_opts){ .device = "cpu", .seed = 1, .threads = threads });
    inference  t    = { make(cx), tn_want(tn_randn(cx, TN_F32, TN_SHAPE(1, 3, side, side))) };
    bench_peer peer = { .seconds = NAN };
    tn_layer_train(t.net, false);
    tn_eval(cx);
    for (int i = 0; i < rounds; i++) {
        ours[i]   = bench_median(run, &t);
        peer      = bench_ask_peer(name, threads);
        theirs[i] = peer.seconds;
    }
    bench_check(cx);
    tn_close(cx);
    if (isnan(peer.seconds) && !bench_quick()) bench_note("inference", "no PyTorch found");
    double mine = bench_middle(ours, rounds);
    double its  = isnan(peer.seconds) ? NAN : bench_middle(theirs, rounds);
    snprintf(text, sizeof text, "%s, %d thread%s", what, threads, threads > 1 ? "s" : "");
    snprintf(of, sizeof of, "%s (%.1f ms)", peer.name, its * 1e3);
    bench_row r = { "inference", text, mine * 1e3, "ms", mine / its, of };
    bench_add_wanted(r, (bench_wanted){ .ratio = 1 });
}

void bench_inference(void)
{
    int all = tni_threads_default();
    for (int threads = 1; threads <= all; threads += all > 1 ? all - 1 : 1) {
        measure("resnet18", "ResNet-18, batch 1", resnet18, threads);
        measure("mobilenet", "MobileNetV2, batch 1", bench_mobilenet, threads);
    }
}
