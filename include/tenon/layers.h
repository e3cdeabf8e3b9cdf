// layers.h: networks. Layers that hold parameters, and initializers.
//
// Part of tenon.h, which includes it.
#ifndef TENON_LAYERS_H
#define TENON_LAYERS_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- layers ------------------------------------------------------------------------------------

// A layer holds parameters, buffers (state that is not trained) and children, each by name, and a
// function from x to y, or to several. Names nest with dots: "layer1.0.conv1.weight". A layer belongs to the
// context, a child to its parent; tn_layer_free is optional, and an error while the layer runs.
typedef tn_tensor *tn_forward_fn(tn_layer *l, tn_tensor *x);
// A user's own layer: self is the user's struct, free (may be NULL) runs once, when the layer dies
// or when this call fails. f NULL: a container, which holds tensors and other layers and does not run.
TN_API tn_layer *tn_layer_new(tn_ctx *cx, tn_forward_fn *f, void *self, void (*free)(void *self));
// The same with several inputs and outputs, up to 16 each: masks, states, what is attended to. f fills
// y; one that it leaves NULL has failed.
typedef void tn_forward_n_fn(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y);
typedef struct {
    int in, out;   // 0: one
    int optional;  // of the inputs, so many at the end may be left out
} tn_layer_counts;
TN_API tn_layer *tn_layer_new_n(tn_ctx *cx, tn_forward_n_fn *f, tn_layer_counts n, void *self,
                                void (*free)(void *self));
// Gives the layer a tensor, which lives as long as the layer; returns it. A parameter becomes a leaf.
// A tensor that another layer has is tied: it counts once, under its first name. A name with dots is a
// path, "encoder.0.weight": containers on the way that are not there are made.
TN_API tn_tensor *tn_layer_param(tn_layer *l, const char *name, tn_tensor *init);
TN_API tn_tensor *tn_layer_buffer(tn_layer *l, const char *name, tn_tensor *init);
TN_API tn_layer  *tn_layer_child(tn_layer *l, const char *name, tn_layer *child);
// A layer of bare tensors, named "0", "1", ..., for an optimizer or a file. It has no function.
TN_API tn_layer  *tn_layer_of(tn_ctx *cx, int n, tn_tensor *const *params);
TN_API tn_tensor *tn_forward(tn_layer *l, tn_tensor *x);
// Fills y with the outputs, all or, on failure, none: NULL. x and y may overlap. A layer of one input
// and one output runs by either call.
TN_API tn_status     tn_forward_n(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y);
TN_API_PLAIN void   *tn_layer_self(const tn_layer *l);
TN_API_PLAIN tn_ctx *tn_layer_ctx(const tn_layer *l);
// Training mode (the default) or evaluation: dropout, batch statistics. Of the layer and all below.
TN_API void       tn_layer_train(tn_layer *l, bool on);
TN_API_PLAIN bool tn_layer_training(const tn_layer *l);
// Frozen parameters take no gradient.
TN_API void tn_layer_freeze(tn_layer *l, bool on);
// Casts parameters and float buffers; for f64 or half precision. Before an optimizer is made.
TN_API tn_status tn_layer_cast(tn_layer *l, tn_dtype dt);
// The parameter or buffer of that full name.
TN_API tn_tensor *tn_layer_find(tn_layer *l, const char *name);
// The layer below l of that path, "encoder.0".
TN_API tn_layer *tn_layer_find_child(tn_layer *l, const char *name);
// Calls f for every parameter and buffer with its full name, in order; tied ones once.
TN_API tn_status tn_layer_each(tn_layer *l, void (*f)(const char *name, tn_tensor *t, void *user),
                               void     *user);
TN_API_PLAIN int64_t
tn_layer_count(const tn_layer *l);  // elements of all parameters, tied ones once
// Prints a table: layer, output shape, parameters. x runs through the layer as in evaluation, without
// gradients, and nothing is computed; modes and random numbers are as before afterwards.
TN_API tn_status tn_layer_summary(tn_layer *l, tn_tensor *x, FILE *f);
TN_API void      tn_layer_free(tn_layer *l);

// Layers with parameters start as PyTorch's do.
typedef struct {
    bool no_bias;
} tn_nn_linear_opts;
TN_API tn_layer *tn_nn_linear(tn_ctx *cx, int64_t in, int64_t out);
TN_API tn_layer *tn_nn_linear_with(tn_ctx *cx, int64_t in, int64_t out, tn_nn_linear_opts o);
typedef struct {
    int64_t stride[2], padding[2], dilation[2], groups;  // as tn_conv_opts
    bool    no_bias;
} tn_nn_conv_opts;
TN_API tn_layer *tn_nn_conv1d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);
TN_API tn_layer *tn_nn_conv1d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel,
                                   tn_nn_conv_opts o);
TN_API tn_layer *tn_nn_conv2d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);  // square
TN_API tn_layer *tn_nn_conv2d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kh, int64_t kw,
                                   tn_nn_conv_opts o);
typedef struct {
    double eps;        // 0: the default of the op
    double momentum;   // of batch norm alone; 0: the default of the op
    bool   no_affine;  // no weight and bias
} tn_nn_norm_opts;
// Over (N, C, ...), with running statistics.
TN_API tn_layer *tn_nn_batch_norm(tn_ctx *cx, int64_t channels);
TN_API tn_layer *tn_nn_batch_norm_with(tn_ctx *cx, int64_t channels, tn_nn_norm_opts o);
// Over the last axis, or (with) the last axes, of that shape.
TN_API tn_layer *tn_nn_layer_norm(tn_ctx *cx, int64_t size);
TN_API tn_layer *tn_nn_layer_norm_with(tn_ctx *cx, int rank, const int64_t *size,
                                       tn_nn_norm_opts o);
TN_API tn_layer *tn_nn_rms_norm(tn_ctx *cx, int64_t size);
TN_API tn_layer *tn_nn_rms_norm_with(tn_ctx *cx, int rank, const int64_t *size, tn_nn_norm_opts o);
TN_API tn_layer *tn_nn_group_norm(tn_ctx *cx, int64_t groups, int64_t channels);
TN_API tn_layer *tn_nn_group_norm_with(tn_ctx *cx, int64_t groups, int64_t channels,
                                       tn_nn_norm_opts o);
TN_API tn_layer *tn_nn_embedding(tn_ctx *cx, int64_t count, int64_t width);
TN_API tn_layer *tn_nn_dropout(tn_ctx *cx, double p);
TN_API tn_layer *tn_nn_max_pool2d(tn_ctx *cx, int64_t kernel);
TN_API tn_layer *tn_nn_max_pool2d_with(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_layer *tn_nn_avg_pool2d(tn_ctx *cx, int64_t kernel);
TN_API tn_layer *tn_nn_avg_pool2d_with(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_layer *tn_nn_adaptive_avg_pool2d(tn_ctx *cx, int64_t h, int64_t w);
// A function of one tensor: tn_nn_act(cx, tn_relu). What it makes besides its result dies with it.
TN_API tn_layer *tn_nn_act(tn_ctx *cx, tn_tensor *(*f)(tn_tensor *x));
TN_API tn_layer *tn_nn_flatten(tn_ctx *cx);  // all axes but the first
// One after the other, named "0", "1", ...: tn_nn_seq(cx, a, b, c) counts them. The layers become
// children; if this fails, or tn_nn_residual does, they stay the context's as they were.
TN_API tn_layer *tn_nn_seq_n(tn_ctx *cx, int n, tn_layer *const *layers);
// clang-format off
#ifndef __cplusplus
#define tn_nn_seq(cx, ...) \
    tn_nn_seq_n(cx, (int)(sizeof((tn_layer *[]){ __VA_ARGS__ }) / sizeof(tn_layer *)), \
                (tn_layer *[]){ __VA_ARGS__ })
#endif
// clang-format on
// x + body(x); with a shortcut, shortcut(x) + body(x), and then f where given.
typedef struct {
    tn_layer *shortcut;
    tn_tensor *(*f)(tn_tensor *x);
} tn_nn_residual_opts;
TN_API tn_layer *tn_nn_residual(tn_ctx *cx, tn_layer *body);
TN_API tn_layer *tn_nn_residual_with(tn_ctx *cx, tn_layer *body, tn_nn_residual_opts o);
// (x - mean) / std goes through body, and comes out as it is or, with outputs, times target_std plus
// target_mean: numbers in their own units. These are buffers, 0 and 1 at first, to be assigned; mean and
// std are (columns), or (with) of a shape that x broadcasts with, as (C, 1, 1) for images. Body is the
// child "net", as in the files of `tenon train` for tables; if this fails, it stays as it was.
typedef struct {
    int64_t outputs;  // numbers that body gives for a row; 0: no target_mean and target_std
} tn_nn_standardize_opts;
TN_API tn_layer *tn_nn_standardize(tn_ctx *cx, int64_t columns, tn_layer *body);
TN_API tn_layer *tn_nn_standardize_with(tn_ctx *cx, int rank, const int64_t *size, tn_layer *body,
                                        tn_nn_standardize_opts o);
// Multi-head self-attention over (B, T, width), named as torch.nn.MultiheadAttention.
typedef struct {
    bool   causal, no_bias;
    double dropout;
} tn_nn_attention_opts;
TN_API tn_layer *tn_nn_attention(tn_ctx *cx, int64_t width, int64_t heads);
TN_API tn_layer *tn_nn_attention_with(tn_ctx *cx, int64_t width, int64_t heads,
                                      tn_nn_attention_opts o);
// Attention and a feed-forward part, each with norm and residual, named as
// torch.nn.TransformerEncoderLayer.
typedef struct {
    int64_t hidden;  // 0: 4 * width
    bool    causal, norm_first;
    double  dropout;
    tn_tensor *(*f)(tn_tensor *x);  // NULL: relu
} tn_nn_transformer_opts;
TN_API tn_layer *tn_nn_transformer_block(tn_ctx *cx, int64_t width, int64_t heads);
TN_API tn_layer *tn_nn_transformer_block_with(tn_ctx *cx, int64_t width, int64_t heads,
                                              tn_nn_transformer_opts o);

// Initializers: fill t in place, outside autograd; return t. Fans are those of a weight (out, in,
// ...).
typedef struct {
    bool   fan_out;  // else fan in
    double gain;     // 0: sqrt(2), for relu
} tn_init_opts;
TN_API tn_tensor *tn_init_constant(tn_tensor *t, double v);
TN_API tn_tensor *tn_init_uniform(tn_tensor *t, double lo, double hi);
TN_API tn_tensor *tn_init_normal(tn_tensor *t, double mean, double std);
TN_API tn_tensor *tn_init_trunc_normal(tn_tensor *t, double mean, double std);  // within 2 std
TN_API tn_tensor *tn_init_xavier_uniform(tn_tensor *t, double gain);
TN_API tn_tensor *tn_init_xavier_normal(tn_tensor *t, double gain);
TN_API tn_tensor *tn_init_kaiming_uniform(tn_tensor *t, tn_init_opts o);
TN_API tn_tensor *tn_init_kaiming_normal(tn_tensor *t, tn_init_opts o);

#endif
