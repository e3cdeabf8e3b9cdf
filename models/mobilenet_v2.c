// MobileNetV2, with torchvision's layout and names.
//
// B batch, C channels
#include "part.h"

enum { MAX_PARTS = 24, LAST = 1280 };

static const tn_nn_conv_opts plain = { .groups = 1 };

static tn_tensor *relu6(tn_tensor *x)
{
    return tn_clamp(x, 0, 6);
}

// Makes a convolution without bias that keeps the size (for stride 1).
static tn_layer *conv(tn_ctx *cx, int64_t in, int64_t out, int64_t k, tn_nn_conv_opts o)
{
    o.padding[0] = k / 2;
    o.no_bias    = true;
    return tni_model_conv(cx, in, out, k, o);
}

// A convolution, its norm and an activation.
static tn_layer *unit(tn_ctx *cx, int64_t in, int64_t out, int64_t k, tn_nn_conv_opts o)
{
    tn_layer *first = conv(cx, in, out, k, o);
    return tn_nn_seq(cx, first, tn_nn_batch_norm(cx, out), tn_nn_act(cx, relu6));
}

typedef struct {
    tn_layer *conv;
    bool      residual;
} block;

static tn_tensor *run_block(tn_layer *l, tn_tensor *x)
{
    const block *b = tn_layer_self(l);
    tn_tensor   *y = tn_forward(b->conv, x);
    return b->residual ? tn_add(x, y) : y;
}

// A block: 1 x 1 to more channels (if they are more), 3 x 3 of each channel, 1 x 1 to fewer; around
// it goes x if the shape is the same.
static tn_layer *new_block(tn_ctx *cx, int64_t in, int64_t out, int64_t stride, int64_t times)
{
    int64_t         C     = in * times;
    tn_nn_conv_opts depth = { .stride = { stride }, .groups = C };
    tn_layer       *part[4], *l = tni_model_part(cx, run_block, sizeof(block));
    int             n = 0;
    if (!l) return NULL;
    if (times > 1) part[n++] = unit(cx, in, C, 1, plain);
    part[n++]   = unit(cx, C, C, 3, depth);
    part[n++]   = conv(cx, C, out, 1, plain);
    part[n++]   = tn_nn_batch_norm(cx, out);
    block *b    = tn_layer_self(l);
    b->residual = stride == 1 && in == out;
    b->conv     = tn_layer_child(l, "conv", tn_nn_seq_n(cx, n, part));
    return tni_model_done(l, b->conv);
}

static tn_layer *new_features(tn_ctx *cx, int64_t channels)
{
    static const int64_t stages[][4] = { // times, channels, blocks, stride
                                         { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 },
                                         { 6, 64, 4, 2 }, { 6, 96, 3, 1 }, { 6, 160, 3, 2 },
                                         { 6, 320, 1, 1 }
    };
    tn_layer *part[MAX_PARTS];
    int       n  = 0;
    int64_t   in = 32;
    part[n++]    = unit(cx, channels, in, 3, (tn_nn_conv_opts){ .stride = { 2 } });
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (int64_t k = 0; k < stages[i][2]; k++, in = stages[i][1])
            part[n++] = new_block(cx, in, stages[i][1], k ? 1 : stages[i][3], stages[i][0]);
    part[n++] = unit(cx, in, LAST, 1, plain);
    return tn_nn_seq_n(cx, n, part);
}

tn_layer *tn_mobilenet_v2(tn_ctx *cx, tn_mobilenet_v2_opts o)
{
    if (!o.classes) o.classes = 1000;
    if (!o.channels) o.channels = 3;
    o.dropout                    = tni_model_default(o.dropout, 0.2);
    const tni_model_size sizes[] = { { "classes", o.classes }, { "channels", o.channels } };
    if (!tni_sizes_ok(cx, "mobilenet_v2", 2, sizes)) return NULL;
    tn_layer *l    = tni_model_chain(cx);
    tn_layer *last = tni_model_linear(cx, LAST, o.classes, 0.01);
    tni_chain_add(l, "features", new_features(cx, o.channels));
    tni_chain_add(l, "avgpool", tn_nn_adaptive_avg_pool2d(cx, 1, 1));
    tni_chain_add(l, "flatten", tn_nn_flatten(cx));
    tni_chain_add(l, "classifier", tn_nn_seq(cx, tn_nn_dropout(cx, o.dropout), last));
    return tni_chain_done(l);
}
