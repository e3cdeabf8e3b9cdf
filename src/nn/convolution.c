// Convolutions over one axis and over two, made by one function.
//
// x is (N, C, L) or (N, C, H, W), the weight (out, in / groups, kernel ...). Channels-last inputs are kept in
// that order by the op itself.
#include "nn/builtin.h"

#include <math.h>

// w and b belong to the layer; b is NULL if there is no bias.
typedef struct {
    tn_tensor   *w, *b;
    tn_conv_opts o;
} conv;

static tn_tensor *conv1d_forward(tn_layer *l, tn_tensor *x)
{
    conv *s = l->self;
    return tn_conv1d(x, s->w, s->b, s->o);
}

static tn_tensor *conv2d_forward(tn_layer *l, tn_tensor *x)
{
    conv *s = l->self;
    return tn_conv2d(x, s->w, s->b, s->o);
}

// Checks the options when the layer is made, so that the error names the constructor, not the first
// forward pass.
static bool conv_opts_ok(tn_ctx *cx, const char *op, int64_t in, int64_t out,
                         const tn_nn_conv_opts *o)
{
    if (!tni_size_arg(cx, op, "in", in) || !tni_size_arg(cx, op, "out", out) ||
        !tni_pair_arg(cx, op, "stride", o->stride) ||
        !tni_pair_arg(cx, op, "padding", o->padding) ||
        !tni_pair_arg(cx, op, "dilation", o->dilation))
        return false;
    int64_t groups = o->groups ? o->groups : 1;
    if (groups >= 1 && in % groups == 0 && out % groups == 0) return true;
    return tni_refuse(cx, TN_EARG, "%s: groups %lld does not divide in %lld and out %lld", op,
                      (long long)groups, (long long)in, (long long)out);
}

// Makes a convolution over `axes` axes. Weight and bias start uniformly within 1 / sqrt(fan_in), as
// PyTorch's.
static tn_layer *make_conv(tn_ctx *cx, const char *op, int64_t in, int64_t out, int axes,
                           const int64_t *kernel, tn_nn_conv_opts o)
{
    if (!tni_ctx_ok(cx, op) || !conv_opts_ok(cx, op, in, out, &o)) return NULL;
    int64_t size[4] = { out, in / (o.groups ? o.groups : 1) };
    double  fan     = (double)size[1];
    for (int i = 0; i < axes; i++) {
        if (!tni_size_arg(cx, op, "kernel", kernel[i])) return NULL;
        size[2 + i] = kernel[i];
        fan *= (double)kernel[i];
    }
    tn_layer *l = axes == 1 ? tni_layer_make(cx, op, "Conv1d", conv1d_forward, sizeof(conv))
                            : tni_layer_make(cx, op, "Conv2d", conv2d_forward, sizeof(conv));
    if (!l) return NULL;
    conv *s = l->self;
    s->o    = (tn_conv_opts){ .stride   = { o.stride[0], o.stride[1] },
                              .padding  = { o.padding[0], o.padding[1] },
                              .dilation = { o.dilation[0], o.dilation[1] },
                              .groups   = o.groups };
    s->w    = tni_new_param(l, "weight", tni_start_within, 1 / sqrt(fan), 2 + axes, size);
    if (s->w && !o.no_bias)
        s->b = tni_new_param(l, "bias", tni_start_within, 1 / sqrt(fan), TN_SHAPE(out));
    return s->w && (s->b || o.no_bias) ? l : tni_layer_give_up(l);
}

tn_layer *tn_nn_conv1d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel, tn_nn_conv_opts o)
{
    return make_conv(cx, "nn_conv1d", in, out, 1, &kernel, o);
}

tn_layer *tn_nn_conv1d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv1d_with(cx, in, out, kernel, (tn_nn_conv_opts){ 0 });
}

tn_layer *tn_nn_conv2d_hw(tn_ctx *cx, int64_t in, int64_t out, int64_t kh, int64_t kw,
                          tn_nn_conv_opts o)
{
    return make_conv(cx, "nn_conv2d", in, out, 2, (int64_t[]){ kh, kw }, o);
}

tn_layer *tn_nn_conv2d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv2d_hw(cx, in, out, kernel, kernel, (tn_nn_conv_opts){ 0 });
}
