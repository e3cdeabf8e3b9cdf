// networks.c: MobileNetV2 and a U-Net, as users would write them.
//
// B batch, C channels
#include "networks.h"

#include <stdio.h>
#include <stdlib.h>

static const tn_nn_conv_opts plain = { .groups = 1 };

// A convolution without bias that keeps the size (for stride 1), and its norm; an activation unless act is NULL.
static tn_layer *conv(tn_ctx *cx, int64_t in, int64_t out, int64_t k, tn_nn_conv_opts o,
                      tn_tensor *act(tn_tensor *x))
{
    o.padding[0]   = k / 2;
    o.no_bias      = true;
    tn_layer *c    = tn_nn_conv2d_hw(cx, in, out, k, k, o);
    tn_layer *norm = tn_nn_batch_norm(cx, out);
    return act ? tn_nn_seq(cx, c, norm, tn_nn_act(cx, act)) : tn_nn_seq(cx, c, norm);
}

// ---- MobileNetV2 -------------------------------------------------------------------------------

enum { MOST_PARTS = 32 };

static tn_tensor *relu6(tn_tensor *x)
{
    return tn_clamp(x, 0, 6);
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
    tn_layer       *narrow = conv(cx, C, out, 1, plain, NULL);
    tn_layer       *middle = conv(cx, C, C, 3, depth, relu6);
    tn_layer       *block  = tn_nn_seq(cx, middle, narrow);
    if (times > 1) block = tn_nn_seq(cx, conv(cx, in, C, 1, plain, relu6), block);
    if (stride != 1 || in != out) return block;
    tn_layer **body = malloc(sizeof *body);
    if (!body) return NULL;
    *body       = block;
    tn_layer *l = tn_layer_new(cx, run_residual, body, free);
    tn_layer_child(l, "conv", block);
    return l;
}

tn_layer *bench_mobilenet(tn_ctx *cx)
{
    static const int64_t stages[][4] = { // times, channels, blocks, stride
                                         { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 },
                                         { 6, 64, 4, 2 }, { 6, 96, 3, 1 }, { 6, 160, 3, 2 },
                                         { 6, 320, 1, 1 }
    };
    tn_layer *part[MOST_PARTS];
    int       n  = 0;
    int64_t   in = 32;
    part[n++]    = conv(cx, 3, in, 3, (tn_nn_conv_opts){ .stride = { 2 } }, relu6);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (int64_t k = 0; k < stages[i][2]; k++, in = stages[i][1])
            part[n++] = inverted_block(cx, in, stages[i][1], k ? 1 : stages[i][3], stages[i][0]);
    part[n++] = conv(cx, in, 1280, 1, plain, relu6);
    part[n++] = tn_nn_adaptive_avg_pool2d(cx, 1, 1);
    part[n++] = tn_nn_flatten(cx);
    part[n++] = tn_nn_dropout(cx, 0.2);
    part[n++] = tn_nn_linear(cx, 1280, 1000);
    return tn_nn_seq_n(cx, n, part);
}

// ---- U-Net -------------------------------------------------------------------------------------

enum { LEVELS = 5, FIRST_WIDTH = 32, CLASSES = 2 };

// Convolutions on the way down; on the way up, for each level but the lowest, a transposed convolution from below and the
// convolutions after what it gives was joined to what went down there.
typedef struct {
    tn_layer *down[LEVELS], *up[LEVELS], *joined[LEVELS], *out;
} unet;

static tn_tensor *run_unet(tn_layer *l, tn_tensor *x)
{
    const unet *u = tn_layer_self(l);
    tn_tensor  *kept[LEVELS];
    for (int i = 0; i < LEVELS; i++) {
        if (i > 0) x = tn_max_pool2d(x, 2, 2, (tn_pool_opts){ .stride = { 2 } });
        x = kept[i] = tn_forward(u->down[i], x);
    }
    for (int i = LEVELS - 2; i >= 0; i--) {
        tn_tensor *both[] = { kept[i], tn_forward(u->up[i], x) };
        x                 = tn_forward(u->joined[i], tn_concat(2, both, 1));
    }
    return tn_forward(u->out, x);
}

static tn_layer *two_convs(tn_ctx *cx, int64_t in, int64_t out)
{
    tn_layer *first = conv(cx, in, out, 3, plain, tn_relu);
    return tn_nn_seq(cx, first, conv(cx, out, out, 3, plain, tn_relu));
}

tn_layer *bench_unet(tn_ctx *cx)
{
    unet *u = calloc(1, sizeof *u);
    if (!u) return NULL;
    tn_layer       *l    = tn_layer_new(cx, run_unet, u, free);
    tn_nn_conv_opts half = { .stride = { 2 } };
    char            name[16];
    for (int i = 0; i < LEVELS; i++) {
        int64_t width = FIRST_WIDTH << i;
        snprintf(name, sizeof name, "down.%d", i);
        u->down[i] = tn_layer_child(l, name, two_convs(cx, i ? width / 2 : 3, width));
        if (i == LEVELS - 1) break;
        snprintf(name, sizeof name, "up.%d", i);
        u->up[i] = tn_layer_child(l, name,
                                  tn_nn_conv_transpose2d_hw(cx, 2 * width, width, 2, 2, half));
        snprintf(name, sizeof name, "joined.%d", i);
        u->joined[i] = tn_layer_child(l, name, two_convs(cx, 2 * width, width));
    }
    u->out = tn_layer_child(l, "out", tn_nn_conv2d(cx, FIRST_WIDTH, CLASSES, 1));
    return l;
}
