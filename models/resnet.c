// Residual networks: those for ImageNet with torchvision's layout and names, and the small ones for
// CIFAR of the same paper, whose shortcuts have no parameters (option A): where the image is
// halved, they take every second pixel and pad the channels with zeros.
//
// B batch, C channels
#include "part.h"

enum { MAX_STAGES = 4, MAX_BLOCKS = 36, MAX_CONVS = 3 };

// The plan of a network: whether its blocks have two convolutions or three with a narrow middle one
// (bottleneck), and the number of blocks in each stage.
typedef struct {
    int  depth;
    bool cifar, bottleneck;
    int  blocks[MAX_STAGES];  // 0: no such stage
} plan;

static const plan plans[] = {
    { 18, false, false, { 2, 2, 2, 2 } },  { 34, false, false, { 3, 4, 6, 3 } },
    { 50, false, true, { 3, 4, 6, 3 } },   { 101, false, true, { 3, 4, 23, 3 } },
    { 152, false, true, { 3, 8, 36, 3 } }, { 20, true, false, { 3, 3, 3 } },
    { 56, true, false, { 9, 9, 9 } },
};

// Returns the plan of a depth, or NULL with an error.
static const plan *plan_of(tn_ctx *cx, int depth)
{
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (plans[i].depth == depth) return &plans[i];
    char text[96];
    snprintf(text, sizeof text, "resnet: depth %d is none of 18, 34, 50, 101, 152, 20 and 56",
             depth);
    return tn_error_set(cx, TN_EARG, text);
}

// ---- a block -----------------------------------------------------------------------------------

// A block: convolutions, each with a norm and all but the last with relu, and a shortcut around
// them.
typedef struct {
    int       convs;
    tn_layer *conv[MAX_CONVS], *norm[MAX_CONVS];
    tn_layer *shortcut;  // NULL: x itself
} block;

static tn_tensor *run_block(tn_layer *l, tn_tensor *x)
{
    const block *b = tn_layer_self(l);
    tn_tensor   *y = x;
    for (int i = 0; i < b->convs; i++) {
        if (i > 0) y = tn_relu(y);
        y = tn_forward(b->norm[i], tn_forward(b->conv[i], y));
    }
    return tn_relu(tn_add(y, b->shortcut ? tn_forward(b->shortcut, x) : x));
}

// Maps (B, C, H, W) to (B, 2 C, H / 2, W / 2); half of the new channels come first, half last.
static tn_tensor *halve(tn_tensor *x)
{
    if (!x) return NULL;
    int64_t    C     = tn_size(x, 1);
    int64_t    pad[] = { 0, C / 2, 0, 0 };
    tn_tensor *rows  = tn_slice(x, 2, 0, TN_TO_END, 2);
    return tn_pad(tn_slice(rows, 3, 0, TN_TO_END, 2), pad, pad, 0);
}

// Makes a convolution that keeps the size (for stride 1).
static tn_layer *conv(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    tn_nn_conv_opts o = { .stride = { stride }, .padding = { kernel / 2 }, .no_bias = true };
    return tni_model_conv(cx, in, out, kernel, o);
}

// Makes the shortcut of a block that changes the size or the channels.
static tn_layer *shortcut(tn_ctx *cx, bool cifar, int64_t in, int64_t out, int64_t stride)
{
    if (cifar) return tn_nn_act(cx, halve);
    return tn_nn_seq(cx, conv(cx, in, out, 1, stride), tn_nn_batch_norm(cx, out));
}

// Adds the next convolution of a block, with its norm.
static bool add_conv(tn_layer *l, int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    static const char *const names[][2] = { { "conv1", "bn1" },
                                            { "conv2", "bn2" },
                                            { "conv3", "bn3" } };

    block  *b  = tn_layer_self(l);
    tn_ctx *cx = tn_layer_ctx(l);
    int     i  = b->convs++;
    b->conv[i] = tn_layer_child(l, names[i][0], conv(cx, in, out, kernel, stride));
    b->norm[i] = tn_layer_child(l, names[i][1], tn_nn_batch_norm(cx, out));
    return b->conv[i] && b->norm[i];
}

// Returns the output channels of a block. width is the number of channels of its 3 x 3
// convolutions.
static int64_t channels_of(const plan *p, int64_t width)
{
    return p->bottleneck ? 4 * width : width;
}

static bool add_convs(tn_layer *l, const plan *p, int64_t in, int64_t width, int64_t stride)
{
    if (!p->bottleneck) return add_conv(l, in, width, 3, stride) && add_conv(l, width, width, 3, 1);
    return add_conv(l, in, width, 1, 1) && add_conv(l, width, width, 3, stride) &&
           add_conv(l, width, channels_of(p, width), 1, 1);
}

// Makes a block; its stride is in the first 3 x 3 convolution, as in torchvision.
static tn_layer *new_block(tn_ctx *cx, const plan *p, int64_t in, int64_t width, int64_t stride)
{
    int64_t   out = channels_of(p, width);
    tn_layer *l   = tni_model_part(cx, run_block, sizeof(block));
    if (!l) return NULL;
    bool   ok = add_convs(l, p, in, width, stride);
    block *b  = tn_layer_self(l);
    if (ok && (stride != 1 || in != out)) {
        b->shortcut = tn_layer_child(l, "downsample", shortcut(cx, p->cifar, in, out, stride));
        ok          = b->shortcut != NULL;
    }
    return tni_model_done(l, ok);
}

// Makes a sequence of blocks. The first one changes the channels and, except in the first stage,
// halves the image.
static tn_layer *new_stage(tn_ctx *cx, const plan *p, int i, int64_t in, int64_t width)
{
    tn_layer *list[MAX_BLOCKS];
    int64_t   out = channels_of(p, width);
    for (int k = 0; k < p->blocks[i]; k++)
        list[k] = new_block(cx, p, k ? out : in, width, k == 0 && i > 0 ? 2 : 1);
    return tn_nn_seq_n(cx, p->blocks[i], list);
}

// ---- the network -------------------------------------------------------------------------------

// Adds the layers before the blocks. They divide the size of ImageNet's images by four, and keep
// that of CIFAR's.
static void add_stem(tn_layer *l, const plan *p, int64_t channels, int64_t width)
{
    tn_ctx *cx = tn_layer_ctx(l);
    tni_chain_add(l, "conv1",
                  p->cifar ? conv(cx, channels, width, 3, 1) : conv(cx, channels, width, 7, 2));
    tni_chain_add(l, "bn1", tn_nn_batch_norm(cx, width));
    tni_chain_add(l, "relu", tn_nn_act(cx, tn_relu));
    tn_pool_opts pool = { .stride = { 2 }, .padding = { 1 } };
    if (!p->cifar) tni_chain_add(l, "maxpool", tn_nn_max_pool2d_hw(cx, 3, 3, pool));
}

// Each stage has twice the width of the one before.
tn_layer *tn_resnet(tn_ctx *cx, tn_resnet_opts o)
{
    static const char *const names[MAX_STAGES] = { "layer1", "layer2", "layer3", "layer4" };

    const plan *p = plan_of(cx, o.depth ? o.depth : 18);
    tn_layer   *l = p ? tni_model_chain(cx) : NULL;
    if (!l) return NULL;
    int64_t classes = o.classes ? o.classes : p->cifar ? 10 : 1000;
    int64_t width = p->cifar ? 16 : 64, in = width;

    add_stem(l, p, o.channels ? o.channels : 3, width);
    for (int i = 0; i < MAX_STAGES && p->blocks[i]; i++, width *= 2) {
        tni_chain_add(l, names[i], new_stage(cx, p, i, in, width));
        in = channels_of(p, width);
    }
    tni_chain_add(l, "avgpool", tn_nn_adaptive_avg_pool2d(cx, 1, 1));
    tni_chain_add(l, "flatten", tn_nn_flatten(cx));
    tni_chain_add(l, p->cifar ? "linear" : "fc", tn_nn_linear(cx, in, classes));
    return tni_chain_done(l);
}
