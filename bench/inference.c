// inference.c: images through ResNet-18, ResNet-50 and MobileNetV2, with one thread and with all,
// in turn with PyTorch.
//
// B batch
#include "bench.h"
#include "networks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 3 };

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
    tn_forward(t->net, t->x);
    tn_eval(tn_layer_ctx(t->net));
    tn_end(s);
}

// A network and how many images it is given at once. name: the peer's.
typedef struct {
    const char *name, *what;
    tn_layer *(*make)(tn_ctx *cx);
    int64_t B;
} inference_case;

// The two take turns, so that what else the machine does is done to both; a batch takes so long
// that it is asked for once.
static void measure(const inference_case *c, int threads)
{
    char       of[96], text[64];
    double     ours[ROUNDS], theirs[ROUNDS];
    int64_t    side   = bench_quick() ? 32 : 224;
    int        rounds = bench_peers() && c->B == 1 ? ROUNDS : 1;
    tn_ctx    *cx   = bench_open((tn_open_opts){ .device = "cpu", .seed = 1, .threads = threads });
    tn_tensor *x    = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(c->B, 3, side, side)));
    inference  t    = { c->make(cx), x };
    bench_peer peer = { .seconds = NAN };
    tn_layer_train(t.net, false);
    tn_eval(cx);
    for (int i = 0; i < rounds; i++) {
        ours[i]   = bench_median(run, &t);
        peer      = bench_ask_peer(c->name, threads);
        theirs[i] = peer.seconds;
    }
    bench_profile(cx, c->name, threads, run, &t);
    bench_check(cx);
    tn_close(cx);
    if (isnan(peer.seconds) && bench_peers()) bench_note("inference", "no PyTorch found");
    double mine = bench_middle(ours, rounds);
    double its  = isnan(peer.seconds) ? NAN : bench_middle(theirs, rounds);
    snprintf(text, sizeof text, "%s, %d thread%s", c->what, threads, threads > 1 ? "s" : "");
    snprintf(of, sizeof of, "%s (%.1f ms)", peer.name, its * 1e3);
    bench_row r = { "inference", text, mine * 1e3, "ms", mine / its, of };
    bench_add_wanted(r, (bench_wanted){ .ratio = 1 });
}

void bench_inference(void)
{
    static const inference_case cases[] = {
        { "resnet18", "ResNet-18, batch 1", bench_resnet18, 1 },
        { "mobilenet", "MobileNetV2, batch 1", bench_mobilenet, 1 },
        { "resnet50_1", "ResNet-50, batch 1", bench_resnet50, 1 },
        { "resnet50_32", "ResNet-50, batch 32", bench_resnet50, 32 },
    };
    int threads[BENCH_THREAD_COUNTS], n = bench_thread_counts(threads, true);
    for (int k = 0; k < n; k++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (bench_chosen(cases[i].name) && (!bench_quick() || cases[i].B == 1))
                measure(&cases[i], threads[k]);
}
