// Not written yet.
#include <tenon.h>

tn_layer *tn_nn_linear(tn_ctx *cx, int64_t in, int64_t out)
{
    (void)cx;
    (void)in;
    (void)out;
    return NULL;
}

tn_layer *tn_nn_linear_with(tn_ctx *cx, int64_t in, int64_t out, tn_nn_linear_opts o)
{
    (void)cx;
    (void)in;
    (void)out;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_conv1d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    (void)cx;
    (void)in;
    (void)out;
    (void)kernel;
    return NULL;
}

tn_layer *tn_nn_conv1d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel, tn_nn_conv_opts o)
{
    (void)cx;
    (void)in;
    (void)out;
    (void)kernel;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_conv2d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel)
{
    (void)cx;
    (void)in;
    (void)out;
    (void)kernel;
    return NULL;
}

tn_layer *tn_nn_conv2d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kh, int64_t kw,
                            tn_nn_conv_opts o)
{
    (void)cx;
    (void)in;
    (void)out;
    (void)kh;
    (void)kw;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_batch_norm(tn_ctx *cx, int64_t channels)
{
    (void)cx;
    (void)channels;
    return NULL;
}

tn_layer *tn_nn_batch_norm_with(tn_ctx *cx, int64_t channels, tn_nn_norm_opts o)
{
    (void)cx;
    (void)channels;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_layer_norm(tn_ctx *cx, int64_t size)
{
    (void)cx;
    (void)size;
    return NULL;
}

tn_layer *tn_nn_layer_norm_with(tn_ctx *cx, int rank, const int64_t *size, tn_nn_norm_opts o)
{
    (void)cx;
    (void)rank;
    (void)size;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_rms_norm(tn_ctx *cx, int64_t size)
{
    (void)cx;
    (void)size;
    return NULL;
}

tn_layer *tn_nn_rms_norm_with(tn_ctx *cx, int rank, const int64_t *size, tn_nn_norm_opts o)
{
    (void)cx;
    (void)rank;
    (void)size;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_group_norm(tn_ctx *cx, int64_t groups, int64_t channels)
{
    (void)cx;
    (void)groups;
    (void)channels;
    return NULL;
}

tn_layer *tn_nn_group_norm_with(tn_ctx *cx, int64_t groups, int64_t channels, tn_nn_norm_opts o)
{
    (void)cx;
    (void)groups;
    (void)channels;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_embedding(tn_ctx *cx, int64_t count, int64_t width)
{
    (void)cx;
    (void)count;
    (void)width;
    return NULL;
}

tn_layer *tn_nn_dropout(tn_ctx *cx, double p)
{
    (void)cx;
    (void)p;
    return NULL;
}

tn_layer *tn_nn_max_pool2d(tn_ctx *cx, int64_t kernel)
{
    (void)cx;
    (void)kernel;
    return NULL;
}

tn_layer *tn_nn_max_pool2d_with(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o)
{
    (void)cx;
    (void)kh;
    (void)kw;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_avg_pool2d(tn_ctx *cx, int64_t kernel)
{
    (void)cx;
    (void)kernel;
    return NULL;
}

tn_layer *tn_nn_avg_pool2d_with(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o)
{
    (void)cx;
    (void)kh;
    (void)kw;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_adaptive_avg_pool2d(tn_ctx *cx, int64_t h, int64_t w)
{
    (void)cx;
    (void)h;
    (void)w;
    return NULL;
}

tn_layer *tn_nn_act(tn_ctx *cx, tn_tensor *(*f)(tn_tensor *x))
{
    (void)cx;
    (void)f;
    return NULL;
}

tn_layer *tn_nn_flatten(tn_ctx *cx)
{
    (void)cx;
    return NULL;
}

tn_layer *tn_nn_seq_n(tn_ctx *cx, int n, tn_layer *const *layers)
{
    (void)cx;
    (void)n;
    (void)layers;
    return NULL;
}

tn_layer *tn_nn_residual(tn_ctx *cx, tn_layer *body)
{
    (void)cx;
    (void)body;
    return NULL;
}

tn_layer *tn_nn_residual_with(tn_ctx *cx, tn_layer *body, tn_nn_residual_opts o)
{
    (void)cx;
    (void)body;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_attention(tn_ctx *cx, int64_t width, int64_t heads)
{
    (void)cx;
    (void)width;
    (void)heads;
    return NULL;
}

tn_layer *tn_nn_attention_with(tn_ctx *cx, int64_t width, int64_t heads, tn_nn_attention_opts o)
{
    (void)cx;
    (void)width;
    (void)heads;
    (void)o;
    return NULL;
}

tn_layer *tn_nn_transformer_block(tn_ctx *cx, int64_t width, int64_t heads)
{
    (void)cx;
    (void)width;
    (void)heads;
    return NULL;
}

tn_layer *tn_nn_transformer_block_with(tn_ctx *cx, int64_t width, int64_t heads,
                                       tn_nn_transformer_opts o)
{
    (void)cx;
    (void)width;
    (void)heads;
    (void)o;
    return NULL;
}

tn_tensor *tn_init_constant(tn_tensor *t, double v)
{
    (void)t;
    (void)v;
    return NULL;
}

tn_tensor *tn_init_uniform(tn_tensor *t, double lo, double hi)
{
    (void)t;
    (void)lo;
    (void)hi;
    return NULL;
}

tn_tensor *tn_init_normal(tn_tensor *t, double mean, double std)
{
    (void)t;
    (void)mean;
    (void)std;
    return NULL;
}

tn_tensor *tn_init_trunc_normal(tn_tensor *t, double mean, double std)
{
    (void)t;
    (void)mean;
    (void)std;
    return NULL;
}

tn_tensor *tn_init_xavier_uniform(tn_tensor *t, double gain)
{
    (void)t;
    (void)gain;
    return NULL;
}

tn_tensor *tn_init_xavier_normal(tn_tensor *t, double gain)
{
    (void)t;
    (void)gain;
    return NULL;
}

tn_tensor *tn_init_kaiming_uniform(tn_tensor *t, tn_init_opts o)
{
    (void)t;
    (void)o;
    return NULL;
}

tn_tensor *tn_init_kaiming_normal(tn_tensor *t, tn_init_opts o)
{
    (void)t;
    (void)o;
    return NULL;
}

tn_status tn_layer_summary(tn_layer *l, tn_tensor *x, FILE *f)
{
    (void)l;
    (void)x;
    (void)f;
    return TN_EARG;
}
