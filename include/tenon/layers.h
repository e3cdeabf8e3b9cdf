// layers.h: networks. Layers, which hold parameters, and initializers.
//
// Part of tenon.h, which includes it.
#ifndef TENON_LAYERS_H
#define TENON_LAYERS_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- layers ------------------------------------------------------------------------------------

// A layer holds parameters, buffers (state that is not trained) and child layers, each by name, and
// a function from its inputs to its outputs. Full names join the names with dots:
// "layer1.0.conv1.weight". A layer belongs to its context, a child to its parent. tn_layer_free is
// optional, and an error while the layer runs.
typedef tn_tensor *tn_forward_fn(tn_layer *l, tn_tensor *x);
// Makes a layer of the user's own. self is the user's struct; free, if not NULL, is called on it
// once, when the layer dies or if this call fails. f NULL makes a container, which holds tensors
// and other layers and cannot run.
TN_API tn_layer *tn_layer_new(tn_ctx *cx, tn_forward_fn *f, void *self, void (*free)(void *self));
// A forward function of several inputs and outputs, such as masks, states, or a second sequence. It
// fills y; an output left NULL counts as failed.
typedef void tn_forward_n_fn(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y);
typedef struct {
    int in, out;   // number of inputs and outputs, up to 16 each; 0: 1
    int optional;  // how many of the last inputs may be left out
} tn_layer_counts;
// Makes a layer of the user's own with several inputs and outputs.
TN_API tn_layer *tn_layer_new_n(tn_ctx *cx, tn_forward_n_fn *f, tn_layer_counts n, void *self,
                                void (*free)(void *self));
// Add a tensor to the layer, which keeps it alive. Return the tensor. A parameter becomes a leaf. A
// tensor that another layer also holds is tied: it counts once, under its first name. A name with
// dots is a path, "encoder.0.weight"; missing containers on it are made.
TN_API tn_tensor *tn_layer_param(tn_layer *l, const char *name, tn_tensor *init);
TN_API tn_tensor *tn_layer_buffer(tn_layer *l, const char *name, tn_tensor *init);
// Adds a child layer, by a name or a path. Returns the child.
TN_API tn_layer *tn_layer_child(tn_layer *l, const char *name, tn_layer *child);
// Makes a container of bare tensors, named "0", "1", ..., for an optimizer or a file.
TN_API tn_layer *tn_layer_of(tn_ctx *cx, int n, tn_tensor *const *params);
// Runs the layer on x.
TN_API tn_tensor *tn_forward(tn_layer *l, tn_tensor *x);
// Runs the layer on nx inputs and fills y with its ny outputs. On failure all of them are NULL. x
// and y may overlap. An input that may be left out may also be NULL. A layer of one input and one
// output can be run by either function.
TN_API tn_status tn_forward_n(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y);
// Return the user's struct of a layer, and its context.
TN_API_PLAIN void   *tn_layer_self(const tn_layer *l);
TN_API_PLAIN tn_ctx *tn_layer_ctx(const tn_layer *l);
// Normalizes a parameter, by name or path: it leaves the list of parameters, and tn_forward of its
// layer computes it each time. Call them before making an optimizer, and before loading a file that
// has these names.
//
// torch.nn.utils.weight_norm: NAME is NAME_g * NAME_v / |NAME_v|, with a length for each place of
// the axis.
TN_API tn_status tn_layer_weight_norm(tn_layer *l, const char *name, int axis);
typedef struct {
    int    axis;        // the rows of the matrix that NAME is seen as
    int    iterations;  // of the power method in each forward pass in training mode; 0: 1
    double eps;         // the least length that is divided by; 0: 1e-12
} tn_spectral_norm_opts;
// torch.nn.utils.spectral_norm: NAME is NAME_orig divided by its largest singular value, as the
// vectors NAME_u and NAME_v tell it, which are buffers.
TN_API tn_status tn_layer_spectral_norm(tn_layer *l, const char *name, tn_spectral_norm_opts o);
// torch.nn.utils.prune.custom_from_mask: NAME is NAME_orig where the mask, of its shape, is not 0,
// and 0 elsewhere. NAME_mask is a buffer, so that it is saved and loaded, and optimizers train what
// is left.
TN_API tn_status tn_layer_prune(tn_layer *l, const char *name, tn_tensor *mask);
// Ends any of them: NAME is a parameter again, with the value that it has now.
TN_API tn_status tn_layer_remove_norm(tn_layer *l, const char *name);
// Switches the layer and all layers below it to training mode (the default) or evaluation mode,
// which changes dropout and batch norm.
TN_API void tn_layer_train(tn_layer *l, bool on);
// Whether the layer is in training mode.
TN_API_PLAIN bool tn_layer_training(const tn_layer *l);
// Sets whether the values inside the layer are not kept for the backward pass, but computed again
// in it: less memory for more work, as PyTorch's torch.utils.checkpoint. Its inputs and outputs are
// kept. Random numbers are the same both times, so gradients are too. Of layers inside one another
// each keeps its own inputs and outputs. Values that a read computes before the backward pass are
// kept as usual.
TN_API void tn_layer_recompute(tn_layer *l, bool on);
// Freezes the parameters, so that they take no gradient, or releases them.
TN_API void tn_layer_freeze(tn_layer *l, bool on);
// Casts parameters and float buffers, for example to f64 or half precision. Call it before making
// an optimizer.
TN_API tn_status tn_layer_cast(tn_layer *l, tn_dtype dt);
// Returns the parameter or buffer with this full name.
TN_API tn_tensor *tn_layer_find(tn_layer *l, const char *name);
// Returns the layer below l with this path, "encoder.0".
TN_API tn_layer *tn_layer_find_child(tn_layer *l, const char *name);
// Calls f for every parameter and buffer with its full name, in order; for tied ones once.
TN_API tn_status tn_layer_each(tn_layer *l, void (*f)(const char *name, tn_tensor *t, void *user),
                               void     *user);
// Returns the number of elements of all parameters; tied ones count once.
TN_API_PLAIN int64_t tn_layer_count(const tn_layer *l);
// Prints a table of layers, output shapes and parameters. Records a forward pass of x in evaluation
// mode without gradients, but computes nothing; modes and random numbers do not change.
TN_API tn_status tn_layer_summary(tn_layer *l, tn_tensor *x, FILE *f);
// Frees the layer and all layers below it. Does nothing for NULL. An error for a child, which
// belongs to its parent.
TN_API void tn_layer_free(tn_layer *l);

// ---- built-in layers: named and initialized as PyTorch's ---------------------------------------

typedef struct {
    bool no_bias;
} tn_nn_linear_opts;
// torch.nn.Linear: weight (out, in), bias (out).
TN_API tn_layer *tn_nn_linear(tn_ctx *cx, int64_t in, int64_t out);
TN_API tn_layer *tn_nn_linear_with(tn_ctx *cx, int64_t in, int64_t out, tn_nn_linear_opts o);
typedef struct {
    int64_t stride[3], padding[3], dilation[3], groups;  // as in tn_conv_opts
    bool    no_bias;
    int64_t output_padding[3];  // of transposed ones
} tn_nn_conv_opts;
// torch.nn.Conv1d.
TN_API tn_layer *tn_nn_conv1d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);
TN_API tn_layer *tn_nn_conv1d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel,
                                   tn_nn_conv_opts o);
// torch.nn.Conv2d with a square kernel, or with one of height kh and width kw.
TN_API tn_layer *tn_nn_conv2d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);
TN_API tn_layer *tn_nn_conv2d_hw(tn_ctx *cx, int64_t in, int64_t out, int64_t kh, int64_t kw,
                                 tn_nn_conv_opts o);
// torch.nn.Conv3d with a cubic kernel, or with one of depth kd, height kh and width kw.
TN_API tn_layer *tn_nn_conv3d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);
TN_API tn_layer *tn_nn_conv3d_dhw(tn_ctx *cx, int64_t in, int64_t out, int64_t kd, int64_t kh,
                                  int64_t kw, tn_nn_conv_opts o);
// torch.nn.ConvTranspose1d, 2d and 3d: weight (in, out / groups, kernel).
TN_API tn_layer *tn_nn_conv_transpose1d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);
TN_API tn_layer *tn_nn_conv_transpose1d_with(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel,
                                             tn_nn_conv_opts o);
TN_API tn_layer *tn_nn_conv_transpose2d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);
TN_API tn_layer *tn_nn_conv_transpose2d_hw(tn_ctx *cx, int64_t in, int64_t out, int64_t kh,
                                           int64_t kw, tn_nn_conv_opts o);
TN_API tn_layer *tn_nn_conv_transpose3d(tn_ctx *cx, int64_t in, int64_t out, int64_t kernel);
TN_API tn_layer *tn_nn_conv_transpose3d_dhw(tn_ctx *cx, int64_t in, int64_t out, int64_t kd,
                                            int64_t kh, int64_t kw, tn_nn_conv_opts o);
typedef struct {
    double eps;        // 0: the default of the op
    double momentum;   // batch norm only; 0: the default of the op
    bool   no_affine;  // no weight and bias
} tn_nn_norm_opts;
// torch.nn.BatchNorm1d, 2d and 3d, over (N, C, ...), with running statistics.
TN_API tn_layer *tn_nn_batch_norm(tn_ctx *cx, int64_t channels);
TN_API tn_layer *tn_nn_batch_norm_with(tn_ctx *cx, int64_t channels, tn_nn_norm_opts o);
typedef struct {
    double eps, momentum;  // 0: the default of the op
    bool   affine;         // a weight and a bias for each channel
    bool   running;        // running statistics, which evaluation mode normalizes by
} tn_nn_instance_norm_opts;
// torch.nn.InstanceNorm1d, 2d and 3d: each channel of each item of (N, C, ...) by itself. As
// PyTorch's, it has neither weight and bias nor running statistics unless they are asked for.
TN_API tn_layer *tn_nn_instance_norm(tn_ctx *cx, int64_t channels, tn_nn_instance_norm_opts o);
// torch.nn.LayerNorm over the last axis, or over the last axes, of that size.
TN_API tn_layer *tn_nn_layer_norm(tn_ctx *cx, int64_t size);
TN_API tn_layer *tn_nn_layer_norm_nd(tn_ctx *cx, int rank, const int64_t *size, tn_nn_norm_opts o);
// torch.nn.RMSNorm over the last axis, or over the last axes, of that size.
TN_API tn_layer *tn_nn_rms_norm(tn_ctx *cx, int64_t size);
TN_API tn_layer *tn_nn_rms_norm_nd(tn_ctx *cx, int rank, const int64_t *size, tn_nn_norm_opts o);
// torch.nn.GroupNorm.
TN_API tn_layer *tn_nn_group_norm(tn_ctx *cx, int64_t groups, int64_t channels);
TN_API tn_layer *tn_nn_group_norm_with(tn_ctx *cx, int64_t groups, int64_t channels,
                                       tn_nn_norm_opts o);
// torch.nn.Bilinear: weight (out, in1, in2), bias (out). Takes two inputs, (..., in1) and (...,
// in2), by tn_forward_n.
TN_API tn_layer *tn_nn_bilinear(tn_ctx *cx, int64_t in1, int64_t in2, int64_t out,
                                tn_nn_linear_opts o);
// The gated feed-forward part of Llama, down_proj(silu(gate_proj(x)) * up_proj(x)), from width
// through hidden to width, with Hugging Face's names.
TN_API tn_layer *tn_nn_swiglu(tn_ctx *cx, int64_t width, int64_t hidden, tn_nn_linear_opts o);
// torch.nn.Embedding: a table of `count` rows of `width` numbers, read by index.
TN_API tn_layer *tn_nn_embedding(tn_ctx *cx, int64_t count, int64_t width);
typedef struct {
    tn_rnn_kind kind;
    int         layers;                               // 0: 1
    bool        bidirectional, batch_first, no_bias;  // as in tn_rnn_opts
    double      dropout;                              // between layers, in training mode
} tn_nn_rnn_opts;
// torch.nn.RNN, LSTM and GRU: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 and so on; x (T,
// B, in) becomes (T, B, hidden). States are given and returned by tn_rnn with the layer's
// parameters.
TN_API tn_layer *tn_nn_rnn(tn_ctx *cx, int64_t in, int64_t hidden, tn_nn_rnn_opts o);
// torch.nn.Dropout with probability p, in training mode.
TN_API tn_layer *tn_nn_dropout(tn_ctx *cx, double p);
// torch.nn.MaxPool2d and AvgPool2d with a square window, or with one of height kh and width kw.
TN_API tn_layer *tn_nn_max_pool2d(tn_ctx *cx, int64_t kernel);
TN_API tn_layer *tn_nn_max_pool2d_hw(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_layer *tn_nn_avg_pool2d(tn_ctx *cx, int64_t kernel);
TN_API tn_layer *tn_nn_avg_pool2d_hw(tn_ctx *cx, int64_t kh, int64_t kw, tn_pool_opts o);
// torch.nn.MaxPool3d and AvgPool3d.
TN_API tn_layer *tn_nn_max_pool3d(tn_ctx *cx, int64_t kernel);
TN_API tn_layer *tn_nn_max_pool3d_dhw(tn_ctx *cx, int64_t kd, int64_t kh, int64_t kw,
                                      tn_pool_opts o);
TN_API tn_layer *tn_nn_avg_pool3d(tn_ctx *cx, int64_t kernel);
TN_API tn_layer *tn_nn_avg_pool3d_dhw(tn_ctx *cx, int64_t kd, int64_t kh, int64_t kw,
                                      tn_pool_opts o);
// torch.nn.AdaptiveAvgPool2d: the result is (N, C, h, w).
TN_API tn_layer *tn_nn_adaptive_avg_pool2d(tn_ctx *cx, int64_t h, int64_t w);
// A layer that applies a function of one tensor: tn_nn_act(cx, tn_relu). Tensors that f makes,
// except its result, are freed when it returns.
TN_API tn_layer *tn_nn_act(tn_ctx *cx, tn_tensor *(*f)(tn_tensor *x));
// torch.nn.PReLU: tn_prelu with one slope, or one for each of `count` channels (axis 1), that is
// trained and starts at 0.25.
TN_API tn_layer *tn_nn_prelu(tn_ctx *cx, int64_t count);
// torch.nn.GLU along an axis.
TN_API tn_layer *tn_nn_glu(tn_ctx *cx, int axis);
// torch.nn.Flatten: joins all axes but the first.
TN_API tn_layer *tn_nn_flatten(tn_ctx *cx);
// torch.nn.Sequential: runs layers one after the other. They become children named "0", "1", ...
// tn_nn_seq(cx, a, b, c) counts them. If this fails, or tn_nn_residual does, the layers stay as
// they were.
TN_API tn_layer *tn_nn_seq_n(tn_ctx *cx, int n, tn_layer *const *layers);
// clang-format off
#ifndef __cplusplus
#define tn_nn_seq(cx, ...) \
    tn_nn_seq_n(cx, (int)(sizeof((tn_layer *[]){ __VA_ARGS__ }) / sizeof(tn_layer *)), \
                (tn_layer *[]){ __VA_ARGS__ })
#endif
// clang-format on
typedef struct {
    tn_layer *shortcut;             // NULL: x itself
    tn_tensor *(*f)(tn_tensor *x);  // applied to the sum; NULL: none
} tn_nn_residual_opts;
// Computes x + body(x), or with options f(shortcut(x) + body(x)).
TN_API tn_layer *tn_nn_residual(tn_ctx *cx, tn_layer *body);
TN_API tn_layer *tn_nn_residual_with(tn_ctx *cx, tn_layer *body, tn_nn_residual_opts o);
typedef struct {
    int64_t
        outputs;  // numbers per row that body returns; 0: there are no target_mean and target_std
} tn_nn_standardize_opts;
// Computes body((x - mean) / std) and, with .outputs, multiplies the result by target_std and adds
// target_mean, so that it has the units of the target. These are buffers, 0 and 1 at first, to be
// assigned. mean and std have one number per column, or any shape that x broadcasts with, such as
// (C, 1, 1) for images. body becomes the child "net", as in the files of `tenon train` for tables;
// if this fails, it stays as it was.
TN_API tn_layer *tn_nn_standardize(tn_ctx *cx, int64_t columns, tn_layer *body);
TN_API tn_layer *tn_nn_standardize_nd(tn_ctx *cx, int rank, const int64_t *size, tn_layer *body,
                                      tn_nn_standardize_opts o);
typedef struct {
    int64_t
        length;   // learned, for that many positions: weight (length, width); 0: sines and cosines
    double base;  // of the wave lengths of sines and cosines; 0: 10000
    double dropout;  // of the sum, in training mode
} tn_nn_positional_opts;
// Adds to each token of x (..., T, width) a vector for its position: sines and cosines in turn, as
// in "Attention Is All You Need", or a learned one. In a cached pass positions go on after the
// tokens in the cache. Rotary ones are tn_rope's.
TN_API tn_layer *tn_nn_positional(tn_ctx *cx, int64_t width, tn_nn_positional_opts o);
typedef struct {
    bool    causal, no_bias;
    double  dropout;
    int64_t key_width, value_width;  // of keys and values (PyTorch's kdim, vdim); 0: width
} tn_nn_attention_opts;
// Multi-head attention over (B, T, width), with the names of torch.nn.MultiheadAttention.
// tn_forward attends to x itself. tn_forward_n takes up to five inputs: queries (B, T, width), keys
// (B, S, key_width) or NULL: the queries, values (B, S, value_width) or NULL: the keys, then a mask
// of keys (B, S) and a mask that broadcasts to (B, heads, T, S), or NULL. Masks are those of
// tn_attention: bool, where true is visible (PyTorch's hide what is true), or float, added to
// scores.
TN_API tn_layer *tn_nn_attention(tn_ctx *cx, int64_t width, int64_t heads);
TN_API tn_layer *tn_nn_attention_with(tn_ctx *cx, int64_t width, int64_t heads,
                                      tn_nn_attention_opts o);
typedef struct {
    int64_t hidden;  // width of the feed-forward part; 0: 4 * width
    bool    causal, norm_first;
    double  dropout;
    tn_tensor *(*f)(tn_tensor *x);  // activation; NULL: relu
} tn_nn_transformer_opts;
// Self-attention and a feed-forward part, each with norm and residual, with the names of
// torch.nn.TransformerEncoderLayer.
TN_API tn_layer *tn_nn_transformer_block(tn_ctx *cx, int64_t width, int64_t heads);
TN_API tn_layer *tn_nn_transformer_block_with(tn_ctx *cx, int64_t width, int64_t heads,
                                              tn_nn_transformer_opts o);

// ---- generation --------------------------------------------------------------------------------

// Keys and values of the tokens that a network has seen, for each of its attention layers, so that
// the next tokens can be computed without running the network on all of them again. Its memory has
// a fixed size and is written in place. A cache belongs to its context; tn_cache_free is optional.
typedef struct {
    // How many of the first tokens of each row are padding: no token sees them, and positions count
    // from the first token after them. NULL: none.
    const int64_t *padding;
} tn_cache_opts;
// Makes an empty cache for `batch` rows of up to `length` tokens.
TN_API tn_cache *tn_cache_new(tn_ctx *cx, int64_t batch, int64_t length, tn_cache_opts o);
// Forgets all tokens, and keeps the memory for others.
TN_API void tn_cache_clear(tn_cache *c);
// Frees the cache. Does nothing for NULL.
TN_API void tn_cache_free(tn_cache *c);
// Returns the number of tokens in each row, padding included.
TN_API_PLAIN int64_t tn_cache_count(const tn_cache *c);
// Runs a network on the tokens x (B, T) that follow those in the cache, and adds them to it. The
// result is that of tn_forward on all tokens, for the last T of them; but with TN_ROPE_DYNAMIC,
// beyond the context of the training, keys keep the angles of the pass that made them, as in
// Hugging Face's transformers. Records no gradients.
TN_API tn_tensor *tn_forward_cached(tn_layer *l, tn_tensor *x, tn_cache *c);

// How a layer of the user's own takes part in it. Outside of tn_forward_cached these mean what they
// mean without a cache. Layers must attend in the same order in every pass.
//
// Causal attention of q, k and v (B, H, T, D), also over the keys and values of earlier passes. o
// may have no mask and no lengths then.
TN_API tn_tensor *tn_layer_attention(tn_layer *l, tn_tensor *q, tn_tensor *k, tn_tensor *v,
                                     tn_attention_opts o);
// Returns the positions of the tokens that l is running on, of which there are that many, i32 or
// i64: (T), or (B, T) if rows differ.
TN_API tn_tensor *tn_layer_positions(tn_layer *l, int64_t tokens);
// Returns the number of tokens that earlier passes have put into the cache. A network with a layer
// that asks for it is run by tn_generate for every token, repeatable or not.
TN_API_PLAIN int64_t tn_layer_past(const tn_layer *l);
// Returns whether that many tokens, after those in the cache, are at most `context`. A layer that
// takes no more than that asks in every pass.
TN_API_PLAIN bool tn_layer_fits(const tn_layer *l, int64_t tokens, int64_t context);
// Says that l's function records the same ops whenever its inputs have the same shapes: it depends
// on no state of the program and has no other effect, so that the tensors it makes beside its
// result die with the call. If that is so for all layers with functions of their own, tn_generate
// calls them for a few tokens and then repeats what they recorded, one place further for each
// token, which takes the host much less time. The layers of Tenon and of its models are repeatable.
TN_API void tn_layer_repeatable(tn_layer *l, bool on);

typedef struct {
    double  temperature;  // divides the logits; 0: the most likely index is taken, none is drawn
    int64_t top_k;        // draw among the k most likely; 0: among all
    double  top_p;        // draw among the fewest whose probabilities sum up to p or more; 0: 1
} tn_sample_opts;
// Draws an index from logits (..., V), i64 (...). Equal logits at the border of top_k or top_p are
// all kept.
TN_API tn_tensor *tn_sample(tn_tensor *logits, tn_sample_opts o);

// A list of tokens, the caller's.
typedef struct {
    const int64_t *ids;
    int64_t        count;
} tn_tokens;
typedef struct {
    int64_t        max_tokens;          // new tokens of each row; 0: 128
    int64_t        length;              // of the cache; 0: the longest prompt + max_tokens
    tn_sample_opts sample;              // how a token is chosen
    double         repetition_penalty;  // divides the positive logits of tokens that the row has,
                                        // and multiplies the negative ones; 0: 1
    uint64_t       seed;                // of tn_seed; 0: goes on with the context's numbers
    int            stops;               // number of stop tokens
    const int64_t *stop;                // a row ends before the first of these
    bool           no_cache;            // run the network on all tokens for each new one
    // Called with each new token, in order. Returns false to end the generation.
    bool (*on_token)(int row, int64_t token, void *user);
    void *user;
} tn_generate_opts;
// Continues n prompts of any lengths: writes the new tokens of row i to ids[i * max_tokens] and
// their number to count[i]. The network maps tokens (B, T) to logits (B, T, V) and is run in
// evaluation mode. Tokens are chosen on the device, which does not wait for the host to read them.
TN_API tn_status tn_generate(tn_layer *net, int n, const tn_tokens *prompts, tn_generate_opts o,
                             int64_t *ids, int64_t *count);

// ---- initializers: write random or constant values into t, without gradient; return t ----------

// Fan-in and fan-out are those of a weight (out, in, ...).
typedef struct {
    bool   fan_out;  // scale by fan-out instead of fan-in
    double gain;     // 0: sqrt(2), for relu
} tn_init_opts;
TN_API tn_tensor *tn_init_constant(tn_tensor *t, double v);
TN_API tn_tensor *tn_init_uniform(tn_tensor *t, double lo, double hi);
TN_API tn_tensor *tn_init_normal(tn_tensor *t, double mean, double std);
// Normal, from the part of the distribution within 2 std of the mean.
TN_API tn_tensor *tn_init_trunc_normal(tn_tensor *t, double mean, double std);
// Scaled by fan-in + fan-out (Glorot).
TN_API tn_tensor *tn_init_xavier_uniform(tn_tensor *t, double gain);
TN_API tn_tensor *tn_init_xavier_normal(tn_tensor *t, double gain);
// Scaled by fan-in or fan-out (He).
TN_API tn_tensor *tn_init_kaiming_uniform(tn_tensor *t, tn_init_opts o);
TN_API tn_tensor *tn_init_kaiming_normal(tn_tensor *t, tn_init_opts o);

#endif
