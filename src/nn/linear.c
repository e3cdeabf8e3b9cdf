// Layers of one weight: linear, y = x w^T + b over the last axis, and embedding, rows of w by index.
#include "nn/builtin.h"

#include <math.h>

// ---- linear ------------------------------------------------------------------------------------

// Both belong to the layer; b is NULL where there is no bias.
typedef struct {
    tn_tensor *w, *b;
} linear;

static tn_tensor *linear_forward(tn_layer *l, tn_tensor *x)
{
    linear *s = l->self;
    return tn_linear(x, s->w, s->b);
}

// Weight (out, in) and bias start uniformly within 1 / sqrt(in), as PyTorch's.
tn_layer *tn_nn_linear_with(tn_ctx *cx, int64_t in, int64_t out, tn_nn_linear_opts o)
{
    const char *op = "nn_linear";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "in", in) || !tni_size_arg(cx, op, "out", out))
        return NULL;
    tn_layer *l = tni_layer_make(cx, op, "Linear", linear_forward, sizeof(linear));
    if (!l) return NULL;
    linear *s     = l->self;
    double  bound = 1 / sqrt((double)in);
    s->w          = tni_new_param(l, "weight", tni_start_within, bound, TN_SHAPE(out, in));
    if (s->w && !o.no_bias) s->b = tni_new_param(l, "bias", tni_start_within, bound, TN_SHAPE(out));
    return s->w && (s->b || o.no_bias) ? l : tni_layer_give_up(l);
}

tn_layer *tn_nn_linear(tn_ctx *cx, int64_t in, int64_t out)
{
    return tn_nn_linear_with(cx, in, out, (tn_nn_linear_opts){ 0 });
}

// ---- embedding ---------------------------------------------------------------------------------

static tn_tensor *embedding_forward(tn_layer *l, tn_tensor *x)
{
    return tn_embed(x, l->param[0].t);
}

// The weight (count, width) starts normally distributed, as PyTorch's.
tn_layer *tn_nn_embedding(tn_ctx *cx, int64_t count, int64_t width)
{
    const char *op = "nn_embedding";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "count", count) ||
        !tni_size_arg(cx, op, "width", width))
        return NULL;
    tn_layer *l = tni_layer_make(cx, op, "Embedding", embedding_forward, 0);
    if (!l) return NULL;
    bool ok = tni_new_param(l, "weight", tni_start_normal, 1, TN_SHAPE(count, width)) != NULL;
    return ok ? l : tni_layer_give_up(l);
}
