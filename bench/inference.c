// inference.c: one image at a time through ResNet-18 and MobileNetV2, with one thread and with all, in turn with
// PyTorch.
//
// C channels
#include "bench.h"

#include "base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/models.h>

enum { ROUNDS = 3, MOST_PARTS = 32 };

static const tn_nn_conv_opts plain = { .groups = 1 };

// ---- MobileNetV2 -------------------------------------------------------------------------------

static tn_tensor *relu6(tn_tensor *x)
{
    return tn_clamp(x, 0, 6);
}

// A convolution without bias, and its norm; an activation unless it ends a block.
static tn_layer *conv(tn_ctx *cx, int64_t in, int64_t out, int64_t k, tn_nn_conv_opts o, bool ends)
{
    o.padding[0]   = k / 2;
    o.no_bias      = true;
    tn_layer *c    = tn_nn_conv2d_hw(cx, in, out, k, k, o);
    tn_layer *norm = tn_nn_batch_norm(cx, out);
    return ends ? tn_nn_seq(cx, c, norm) : tn_nn_seq(cx, c, norm, tn_nn_act(cx, relu6));
}

static tn_tensor *run_residual(tn_layer *l, tn_tensor *x)
{
    tn_layer *const *body = tn_layer_self(l);
    return tn_add(x, tn_forward(*body, x));
}

// A block: 1 x 1 to more channels, 3 x 3 of each channel, 1 x 1 to fewer; around it goes x if the shape is the same.
static tn_layer *inverted_block(tn_ctx *cx, int64_t in, int64_t out, int64_t stride, int64_t times)
{
    int64_t         C      = in * times;
    tn_nn_conv_opts depth  = { .stride = { stride }, .groups = C };
    tn_layer       *narrow = conv(cx, C, out, 1, plain, true);
    tn_layer       *middle = conv(cx, C, C, 3, depth, false);
    tn_layer       *block  = tn_nn_seq(cx, middle, narrow);
    if (times > 1) block = tn_nn_seq(cx, conv(cx, in, C, 1, plain, false), block);
    if (stride != 1 || in != out) return block;
    tn_layer **body = malloc(sizeof *body);
    if (!body) return NULL;
    *body       = block;
    tn_layer *l = tn_layer_new(cx, run_residual, body, free);
    tn_layer_child(l, "conv", block);
    return l;
}

static tn_layer *mobilenet(tn_ctx *cx)
{
    static const int64_t stages[][4] = { // times, channels, blocks, stride
                                         { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 },
                                         { 6, 64, 4, 2 }, { 6, 96, 3, 1 }, { 6, 160, 3, 2 },
                                         { 6, 320, 1, 1 }
    };
    tn_layer *part[MOST_PARTS];
    int       n  = 0;
    int64_t   in = 32;
    part[n++]    = conv(cx, 3, in, 3, (tn_nn_conv_opts){ .stride = { 2 } }, false);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (int64_t k = 0; k < stages[i][2]; k++, in = stages[i][1])
            part[n++] = inverted_block(cx, in, stages[i][1], k ? 1 : stages[i][3], stages[i][0]);
    part[n++] = conv(cx, in, 1280, 1, plain, false);
    part[n++] = tn_nn_adaptive_avg_pool2d(cx, 1, 1);
    part[n++] = tn_nn_flatten(cx);
    part[n++] = tn_nn_linear(cx, 1280, 1000);
    return tn_nn_seq_n(cx, n, part);
}

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
        measure("mobilenet", "MobileNetV2, batch 1", mobilenet, threads);
    }
}
