// Layers without parameters, but for PReLU's slopes: activations, flatten, dropout, pooling. Each
// only keeps the options of the op that its forward function calls; layers of this kind exist so
// that they can stand in tn_nn_seq.
#include "nn/builtin.h"

#include <string.h>

// ---- a function of one tensor ------------------------------------------------------------------

typedef struct {
    tn_tensor *(*f)(tn_tensor *x);
} act;

static tn_tensor *act_forward(tn_layer *l, tn_tensor *x)
{
    act *s = l->self;
    return tni_function_run(s->f, x);
}

// The function may be a public op or the user's own.
tn_layer *tn_nn_act(tn_ctx *cx, tn_tensor *(*f)(tn_tensor *x))
{
    const char *op = "nn_act";
    if (!tni_ctx_ok(cx, op)) return NULL;
    if (!f) return tni_fail(cx, TN_EARG, "%s: the function is NULL", op);
    tn_layer *l = tni_layer_make(cx, op, tni_activation_name(f), act_forward, sizeof(act));
    if (l) *(act *)l->self = (act){ f };
    return l;
}

typedef struct {
    int axis;
} glu;

static tn_tensor *glu_forward(tn_layer *l, tn_tensor *x)
{
    glu *s = l->self;
    return tn_glu(x, s->axis);
}

// Whether x has the axis is known, and reported, when the layer runs.
tn_layer *tn_nn_glu(tn_ctx *cx, int axis)
{
    const char *op = "nn_glu";
    tn_layer   *l  = tni_ctx_ok(cx, op) ? tni_layer_make(cx, op, "GLU", glu_forward, sizeof(glu))
                                        : NULL;
    if (l) *(glu *)l->self = (glu){ axis };
    return l;
}

// The slopes: one, or one for each channel. The only weight in this file, for the sake of its kin.
typedef struct {
    tn_tensor *w;
} prelu;

static tn_tensor *prelu_forward(tn_layer *l, tn_tensor *x)
{
    prelu *s = l->self;
    return tn_prelu(x, s->w);
}

// Slopes start at 0.25, as PyTorch's.
tn_layer *tn_nn_prelu(tn_ctx *cx, int64_t count)
{
    const char *op = "nn_prelu";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "count", count)) return NULL;
    tn_layer *l = tni_layer_make(cx, op, "PReLU", prelu_forward, sizeof(prelu));
    if (!l) return NULL;
    prelu *s = l->self;
    s->w     = tni_new_param(l, "weight", tn_init_constant, 0.25, 1, &count);
    return s->w ? l : tni_layer_give_up(l);
}

// Keeps the batch axis and joins all others.
static tn_tensor *flatten_forward(tn_layer *l, tn_tensor *x)
{
    (void)l;
    return tn_flatten(x, 1, -1);
}

tn_layer *tn_nn_flatten(tn_ctx *cx)
{
    const char *op = "nn_flatten";
    return tni_ctx_ok(cx, op) ? tni_layer_make(cx, op, "Flatten", flatten_forward, 0) : NULL;
}

// ---- dropout -----------------------------------------------------------------------------------

typedef struct {
    double p;
} dropout;

// In evaluation tn_dropout returns x itself.
static tn_tensor *dropout_forward(tn_layer *l, tn_tensor *x)
{
    dropout *s = l->self;
    return tn_dropout(x, s->p, l->training);
}

tn_layer *tn_nn_dropout(tn_ctx *cx, double p)
{
    const char *op = "nn_dropout";
    if (!tni_ctx_ok(cx, op) || !tni_unit_arg(cx, op, "p", p)) return NULL;
    tn_layer *l = tni_layer_make(cx, op, "Dropout", dropout_forward, sizeof(dropout));
    if (l) *(dropout *)l->self = (dropout){ p };
    return l;
}

// ---- pooling -----------------------------------------------------------------------------------

// The size of a kernel or (adaptive) the number of windows; depth if there is one, height, width.
typedef struct {
    int64_t      size[3];
    tn_pool_opts o;
} pool;

static tn_tensor *max_pool_forward(tn_layer *l, tn_tensor *x)
{
    pool *s = l->self;
    return tn_max_pool2d(x, s->size[0], s->size[1], s->o);
}

static tn_tensor *avg_pool_forward(tn_layer *l, tn_tensor *x)
{
    pool *s = l->self;
    return tn_avg_pool2d(x, s->size[0], s->size[1], s->o);
}

static tn_tensor *max_pool3d_forward(tn_layer *l, tn_tensor *x)
{
    pool *s = l->self;
    return tn_max_pool3d(x, s->size[0], s->size[1], s->size[2], s->o);
}

static tn_tensor *avg_pool3d_forward(tn_layer *l, tn_tensor *x)
{
    pool *s = l->self;
    return tn_avg_pool3d(x, s->size[0], s->size[1], s->size[2], s->o);
}

static tn_tensor *adaptive_forward(tn_layer *l, tn_tensor *x)
{
    pool *s = l->self;
    return tn_adaptive_avg_pool2d(x, s->size[0], s->size[1]);
}

// Makes any of the pools; an adaptive one has the number of windows for its size, and no options.
static tn_layer *make_pool(tn_ctx *cx, const char *op, const char *type, tn_forward_fn *f, int axes,
                           const int64_t *size, tn_pool_opts o)
{
    static const char *const names[] = { "depth", "height", "width" };
    if (!tni_ctx_ok(cx, op)) return NULL;
    for (int i = 0; i < axes; i++)
        if (!tni_size_arg(cx, op, names[3 - axes + i], size[i])) return NULL;
    if (!tni_axes_arg(cx, op, "stride", o.stride, 0) ||
        !tni_axes_arg(cx, op, "padding", o.padding, TN_NO_PADDING) ||
        !tni_axes_arg(cx, op, "dilation", o.dilation, 0))
        return NULL;
    tn_layer *l = tni_layer_make(cx, op, type, f, sizeof(pool));
    if (!l) return NULL;
    pool *s = l->self;
    *s      = (pool){ .o = o };
    memcpy(s->size, size, (size_t)axes * sizeof *size);
    return l;
}

tn_layer *tn_nn_max_pool2d_hw(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o)
{
    return make_pool(cx, "nn_max_pool2d", "MaxPool2d", max_pool_forward, 2, (int64_t[]){ kh, kw },
                     o);
}

tn_layer *tn_nn_max_pool2d(tn_ctx *cx, int64_t kernel)
{
    return tn_nn_max_pool2d_hw(cx, kernel, kernel, (tn_pool_opts){ 0 });
}

tn_layer *tn_nn_avg_pool2d_hw(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o)
{
    return make_pool(cx, "nn_avg_pool2d", "AvgPool2d", avg_pool_forward, 2, (int64_t[]){ kh, kw },
                     o);
}

tn_layer *tn_nn_avg_pool2d(tn_ctx *cx, int64_t kernel)
{
    return tn_nn_avg_pool2d_hw(cx, kernel, kernel, (tn_pool_opts){ 0 });
}

tn_layer *tn_nn_max_pool3d_dhw(tn_ctx *cx, int64_t kd, int64_t kh, int64_t kw, tn_pool_opts o)
{
    return make_pool(cx, "nn_max_pool3d", "MaxPool3d", max_pool3d_forward, 3,
                     (int64_t[]){ kd, kh, kw }, o);
}

tn_layer *tn_nn_max_pool3d(tn_ctx *cx, int64_t kernel)
{
    return tn_nn_max_pool3d_dhw(cx, kernel, kernel, kernel, (tn_pool_opts){ 0 });
}

tn_layer *tn_nn_avg_pool3d_dhw(tn_ctx *cx, int64_t kd, int64_t kh, int64_t kw, tn_pool_opts o)
{
    return make_pool(cx, "nn_avg_pool3d", "AvgPool3d", avg_pool3d_forward, 3,
                     (int64_t[]){ kd, kh, kw }, o);
}

tn_layer *tn_nn_avg_pool3d(tn_ctx *cx, int64_t kernel)
{
    return tn_nn_avg_pool3d_dhw(cx, kernel, kernel, kernel, (tn_pool_opts){ 0 });
}

tn_layer *tn_nn_adaptive_avg_pool2d(tn_ctx *cx, int64_t h, int64_t w)
{
    return make_pool(cx, "nn_adaptive_avg_pool2d", "AdaptiveAvgPool2d", adaptive_forward, 2,
                     (int64_t[]){ h, w }, (tn_pool_opts){ 0 });
}
