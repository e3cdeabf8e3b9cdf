// ConvNeXt, with torchvision's layout and names.
//
// B batch, C channels
#include "part.h"

enum { STAGES = 4, MAX_BLOCKS = 64 };

static const double EPS = 1e-6, STD = 0.02, FIRST_SCALE = 1e-6;

static tn_tensor *channels_last(tn_tensor *x)
{
    return tn_permute(x, TN_AXES(0, 2, 3, 1));
}

static tn_tensor *channels_first(tn_tensor *x)
{
    return tn_permute(x, TN_AXES(0, 3, 1, 2));
}

// Initializes a layer as torchvision's: truncated normal weights, a zero bias.
static tn_layer *initialized(tn_layer *l)
{
    bool ok = l && tn_init_trunc_normal(tn_layer_find(l, "weight"), 0, STD) &&
              tn_init_constant(tn_layer_find(l, "bias"), 0);
    return tni_model_done(l, ok);
}

// ---- a norm over channels ----------------------------------------------------------------------

typedef struct {
    tn_tensor *weight, *bias;
} norm;

static tn_tensor *run_norm(tn_layer *l, tn_tensor *x)
{
    const norm *n = tn_layer_self(l);
    return channels_first(tn_layer_norm(channels_last(x), 1, n->weight, n->bias, EPS));
}

static tn_layer *new_norm(tn_ctx *cx, int64_t C)
{
    tn_layer *l = tni_model_part(cx, run_norm, sizeof(norm));
    if (!l) return NULL;
    norm *n   = tn_layer_self(l);
    n->weight = tn_layer_param(l, "weight", tn_ones(cx, TN_F32, TN_SHAPE(C)));
    n->bias   = tn_layer_param(l, "bias", tn_zeros(cx, TN_F32, TN_SHAPE(C)));
    return tni_model_done(l, n->weight && n->bias);
}

// ---- a block -----------------------------------------------------------------------------------

// Around a convolution of each channel and two linear layers goes x. In training the branch is left
// out for an item with probability `drop`.
typedef struct {
    tn_tensor *layer_scale;  // (C, 1, 1)
    tn_layer  *block;
    double     drop;
} branch;

static tn_tensor *run_branch(tn_layer *l, tn_tensor *x)
{
    const branch *b = tn_layer_self(l);
    tn_tensor    *y = tn_mul(b->layer_scale, tn_forward(b->block, x));
    if (y && b->drop > 0 && tn_layer_training(l)) {
        tn_tensor *one = tn_ones(tn_ctx_of(y), tn_dtype_of(y), TN_SHAPE(tn_size(y, 0), 1, 1, 1));
        y              = tn_mul(y, tn_dropout(one, b->drop, true));
    }
    return tn_add(x, y);
}

static tn_layer *new_branch(tn_ctx *cx, int64_t C, double drop)
{
    tn_layer *l = tni_model_part(cx, run_branch, sizeof(branch));
    if (!l) return NULL;
    tn_nn_conv_opts each   = { .padding = { 3 }, .groups = C };
    tn_layer       *conv   = initialized(tn_nn_conv2d_hw(cx, C, C, 7, 7, each));
    tn_layer       *first  = initialized(tn_nn_linear(cx, C, 4 * C));
    tn_layer       *second = initialized(tn_nn_linear(cx, 4 * C, C));
    tn_layer       *ln     = tn_nn_layer_norm_nd(cx, TN_SHAPE(C), (tn_nn_norm_opts){ .eps = EPS });
    branch         *b      = tn_layer_self(l);
    b->drop                = drop;
    b->layer_scale         = tn_layer_param(l, "layer_scale",
                                            tn_full(cx, TN_F32, TN_SHAPE(C, 1, 1), FIRST_SCALE));
    b->block               = tn_layer_child(l, "block",
                                            tn_nn_seq(cx, conv, tn_nn_act(cx, channels_last), ln, first,
                                                      tn_nn_act(cx, tn_gelu), second,
                                                      tn_nn_act(cx, channels_first)));
    return tni_model_done(l, b->layer_scale && b->block);
}

// ---- the network -------------------------------------------------------------------------------

// Branches are left out the more often the later they are, up to `drop` for the last.
static tn_layer *new_stage(tn_ctx *cx, const tn_convnext_opts *o, int i, int64_t C)
{
    tn_layer *list[MAX_BLOCKS];
    int64_t   before = 0, all = 0;
    for (int k = 0; k < STAGES; k++) {
        if (k < i) before += o->blocks[k];
        all += o->blocks[k];
    }
    for (int64_t k = 0; k < o->blocks[i]; k++) {
        double part = all > 1 ? (double)(before + k) / (double)(all - 1) : 0;
        list[k]     = new_branch(cx, C, o->drop * part);
    }
    return tn_nn_seq_n(cx, (int)o->blocks[i], list);
}

static tn_layer *new_conv(tn_ctx *cx, int64_t in, int64_t out, int64_t k)
{
    return initialized(tn_nn_conv2d_hw(cx, in, out, k, k, (tn_nn_conv_opts){ .stride = { k } }));
}

// The stem, and before each other stage a norm and a convolution that halves the size.
static tn_layer *new_features(tn_ctx *cx, const tn_convnext_opts *o)
{
    tn_layer *part[2 * STAGES];
    int64_t   C = o->width;
    for (int i = 0; i < STAGES; i++, C *= 2) {
        tn_layer *conv  = i ? new_conv(cx, C / 2, C, 2) : new_conv(cx, o->channels, C, 4);
        tn_layer *ln    = new_norm(cx, i ? C / 2 : C);
        part[2 * i]     = i ? tn_nn_seq(cx, ln, conv) : tn_nn_seq(cx, conv, ln);
        part[2 * i + 1] = new_stage(cx, o, i, C);
    }
    return tn_nn_seq_n(cx, 2 * STAGES, part);
}

static bool options_ok(tn_ctx *cx, tn_convnext_opts *o)
{
    static const int64_t blocks[STAGES] = { 3, 3, 9, 3 };

    for (int i = 0; i < STAGES; i++)
        if (!o->blocks[i]) o->blocks[i] = blocks[i];
    if (!o->width) o->width = 96;
    if (!o->classes) o->classes = 1000;
    if (!o->channels) o->channels = 3;
    o->drop                      = tni_model_default(o->drop, 0.1);
    const tni_model_size sizes[] = { { "width", o->width },       { "classes", o->classes },
                                     { "channels", o->channels }, { "blocks", o->blocks[0] },
                                     { "blocks", o->blocks[1] },  { "blocks", o->blocks[2] },
                                     { "blocks", o->blocks[3] } };
    if (!tni_sizes_ok(cx, "convnext", sizeof sizes / sizeof *sizes, sizes)) return false;
    char text[96] = "";
    for (int i = 0; i < STAGES && !*text; i++)
        if (o->blocks[i] > MAX_BLOCKS)
            snprintf(text, sizeof text, "convnext: %lld blocks are more than %d",
                     (long long)o->blocks[i], MAX_BLOCKS);
    if (!*text && !(o->drop >= 0 && o->drop < 1))
        snprintf(text, sizeof text, "convnext: drop %g is not in [0, 1)", o->drop);
    if (*text) tn_error_set(cx, TN_EARG, text);
    return !*text;
}

tn_layer *tn_convnext(tn_ctx *cx, tn_convnext_opts o)
{
    if (!options_ok(cx, &o)) return NULL;
    int64_t   C = o.width << (STAGES - 1);
    tn_layer *l = tni_model_chain(cx), *ln = new_norm(cx, C), *flat = tn_nn_flatten(cx);
    tn_layer *last = initialized(tn_nn_linear(cx, C, o.classes));
    tni_chain_add(l, "features", new_features(cx, &o));
    tni_chain_add(l, "avgpool", tn_nn_adaptive_avg_pool2d(cx, 1, 1));
    tni_chain_add(l, "classifier", tn_nn_seq(cx, ln, flat, last));
    return tni_chain_done(l);
}
