// Convolutions and transposed convolutions, over one to three axes: what the constructors share,
// and the constructors. The input is (N, channels, places), the weight (out, in / groups, kernel
// ...) or, of a transposed one, (in, out / groups, kernel ...). Channels-last inputs are kept in
// that order by the op itself.
#include "nn/builtin.h"
#include "ops/composite.h"

#include <math.h>

typedef tn_tensor *conv_op(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);

// What distinguishes the layers: names, the op, its axes of places, and whether it is transposed.
typedef struct {
    const char *op, *type;
    conv_op    *run;
    int         axes;
    bool        transposed;
} conv_kind;

// w and b belong to the layer; b is NULL if there is no bias.
typedef struct {
    conv_op     *run;
    tn_tensor   *w, *b;
    tn_conv_opts o;
} conv;

static tn_tensor *conv_forward(tn_layer *l, tn_tensor *x)
{
    conv *s = l->self;
    return s->run(x, s->w, s->b, s->o);
}

// Checks the output padding as the op does; only transposed convolutions have one.
static bool output_padding_ok(tn_ctx *cx, const conv_kind *k, const tn_nn_conv_opts *o)
{
    for (int i = 0; i < k->axes; i++) {
        int64_t extra    = tni_option_at(o->output_padding, i, 0);
        int64_t stride   = tni_option_at(o->stride, i, 1),
                dilation = tni_option_at(o->dilation, i, 1);
        if (extra && !k->transposed)
            return tni_refuse(cx, TN_EARG, "%s: output_padding %lld is for transposed convolutions",
                              k->op, (long long)extra);
        if (extra && extra >= stride && extra >= dilation)
            return tni_refuse(
                cx, TN_EARG, "%s: output_padding %lld has to be below stride %lld or dilation %lld",
                k->op, (long long)extra, (long long)stride, (long long)dilation);
    }
    return true;
}

// Checks the options when the layer is made, so that the error names the constructor, not the first
// forward pass.
static bool conv_opts_ok(tn_ctx *cx, const conv_kind *k, int64_t in, int64_t out,
                         const tn_nn_conv_opts *o)
{
    if (!tni_size_arg(cx, k->op, "in", in) || !tni_size_arg(cx, k->op, "out", out) ||
        !tni_axes_arg(cx, k->op, "stride", o->stride, 0) ||
        !tni_axes_arg(cx, k->op, "padding", o->padding, TN_NO_PADDING) ||
        !tni_axes_arg(cx, k->op, "dilation", o->dilation, 0) ||
        !tni_axes_arg(cx, k->op, "output_padding", o->output_padding, TN_NO_PADDING) ||
        !output_padding_ok(cx, k, o))
        return false;
    int64_t groups = o->groups ? o->groups : 1;
    if (groups >= 1 && in % groups == 0 && out % groups == 0) return true;
    return tni_refuse(cx, TN_EARG, "%s: groups %lld does not divide in %lld and out %lld", k->op,
                      (long long)groups, (long long)in, (long long)out);
}

static tn_conv_opts op_options(const tn_nn_conv_opts *o)
{
    tn_conv_opts y = { .groups = o->groups };
    for (int i = 0; i < 3; i++) {
        y.stride[i]         = o->stride[i];
        y.padding[i]        = o->padding[i];
        y.dilation[i]       = o->dilation[i];
        y.output_padding[i] = o->output_padding[i];
    }
    return y;
}

// Makes a layer with a kernel of k->axes sizes. Weight and bias start uniformly within 1 /
// sqrt(fan), as PyTorch's; the fan is that of the weight's second axis, also of a transposed one.
static tn_layer *make_conv(tn_ctx *cx, conv_kind k, int64_t in, int64_t out, const int64_t *kernel,
                           tn_nn_conv_opts o)
{
    if (!tni_ctx_ok(cx, k.op) || !conv_opts_ok(cx, &k, in, out, &o)) return NULL;
    int64_t groups = o.groups ? o.groups : 1, size[5] = { out, in / groups };
    if (k.transposed) size[0] = in, size[1] = out / groups;
    double fan = (double)size[1];
    for (int i = 0; i < k.axes; i++) {
        if (!tni_size_arg(cx, k.op, "kernel", kernel[i])) return NULL;
        size[2 + i] = kernel[i];
        fan *= (double)kernel[i];
    }
    tn_layer *l = tni_layer_make(cx, k.op, k.type, conv_forward, sizeof(conv));
    if (!l) return NULL;
    conv *s = l->self;
    s->run  = k.run;
    s->o    = op_options(&o);
    s->w    = tni_new_param(l, "weight", tni_start_within, 1 / sqrt(fan), 2 + k.axes, size);
    if (s->w && !o.no_bias)
        s->b = tni_new_param(l, "bias", tni_start_within, 1 / sqrt(fan), TN_SHAPE(out));
    return s->w && (s->b || o.no_bias) ? l : tni_layer_give_up(l);
}

// ---- over one axis -----------------------------------------------------------------------------

tn_layer *tn_nn_conv1d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel, tn_nn_conv_opts o)
{
    conv_kind k = { "nn_conv1d", "Conv1d", tn_conv1d, 1, false };
    return make_conv(cx, k, in, out, &kernel, o);
}

tn_layer *tn_nn_conv1d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv1d_with(cx, in, out, kernel, (tn_nn_conv_opts){ 0 });
}

tn_layer *tn_nn_conv_transpose1d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel,
                                      tn_nn_conv_opts o)
{
    conv_kind k = { "nn_conv_transpose1d", "ConvTranspose1d", tn_conv_transpose1d, 1, true };
    return make_conv(cx, k, in, out, &kernel, o);
}

tn_layer *tn_nn_conv_transpose1d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv_transpose1d_with(cx, in, out, kernel, (tn_nn_conv_opts){ 0 });
}

// ---- over two axes -----------------------------------------------------------------------------

tn_layer *tn_nn_conv2d_hw(tn_ctx *cx, int64_t in, int64_t out, int64_t kh, int64_t kw,
                          tn_nn_conv_opts o)
{
    conv_kind k = { "nn_conv2d", "Conv2d", tn_conv2d, 2, false };
    return make_conv(cx, k, in, out, (int64_t[]){ kh, kw }, o);
}

tn_layer *tn_nn_conv2d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv2d_hw(cx, in, out, kernel, kernel, (tn_nn_conv_opts){ 0 });
}

tn_layer *tn_nn_conv_transpose2d_hw(tn_ctx *cx, int64_t in, int64_t out, int64_t kh, int64_t kw,
                                    tn_nn_conv_opts o)
{
    conv_kind k = { "nn_conv_transpose2d", "ConvTranspose2d", tn_conv_transpose2d, 2, true };
    return make_conv(cx, k, in, out, (int64_t[]){ kh, kw }, o);
}

tn_layer *tn_nn_conv_transpose2d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv_transpose2d_hw(cx, in, out, kernel, kernel, (tn_nn_conv_opts){ 0 });
}

// ---- over three axes ---------------------------------------------------------------------------

tn_layer *tn_nn_conv3d_dhw(tn_ctx *cx, int64_t in, int64_t out, int64_t kd, int64_t kh, int64_t kw,
                           tn_nn_conv_opts o)
{
    conv_kind k = { "nn_conv3d", "Conv3d", tn_conv3d, 3, false };
    return make_conv(cx, k, in, out, (int64_t[]){ kd, kh, kw }, o);
}

tn_layer *tn_nn_conv3d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv3d_dhw(cx, in, out, kernel, kernel, kernel, (tn_nn_conv_opts){ 0 });
}

tn_layer *tn_nn_conv_transpose3d_dhw(tn_ctx *cx, int64_t in, int64_t out, int64_t kd, int64_t kh,
                                     int64_t kw, tn_nn_conv_opts o)
{
    conv_kind k = { "nn_conv_transpose3d", "ConvTranspose3d", tn_conv_transpose3d, 3, true };
    return make_conv(cx, k, in, out, (int64_t[]){ kd, kh, kw }, o);
}

tn_layer *tn_nn_conv_transpose3d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    return tn_nn_conv_transpose3d_dhw(cx, in, out, kernel, kernel, kernel, (tn_nn_conv_opts){ 0 });
}
