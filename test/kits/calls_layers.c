// calls_layers.c: the table of calls, layers and initializers. What a wrapper makes is run on x,
// and freed before its result is evaluated.
#include "call_rows.h"
#include "rules_kit.h"

#include "nn/layer.h"

#include <tenon/models.h>

static tn_tensor *run(tn_layer *l, const call_args *k)
{
    tn_tensor *y = l ? tn_forward(l, k->x) : NULL;
    tn_layer_free(l);
    return y;
}

// A layer to give things to; NULL without a context.
static tn_layer *holder(const call_args *k)
{
    return k->cx ? tn_nn_flatten(k->cx) : NULL;
}

// Names that can and that cannot be used.
static const char *name_of(const call_args *k)
{
    static const char *const names[] = { "weight", NULL, "", "a.b", "another" };
    return names[(uint64_t)k->j % 5];
}

// ---- layers

static tn_tensor *double_it(tn_layer *l, tn_tensor *x)
{
    return tn_layer_self(l) ? tn_add(x, x) : NULL;
}
CALL(layer_new)
{
    static int self;
    return run(tn_layer_new(k->cx, k->i ? double_it : NULL, k->j ? &self : NULL, NULL), k);
}
static void swap_two(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    (void)l;
    for (int i = 0; i < ny; i++) y[i] = tn_neg(x[nx - 1 - i % nx]);
}
CALL(layer_new_n)
{
    tn_layer_counts n = { .in = (int)k->i, .out = (int)k->j, .optional = (int)k->j };
    return run(tn_layer_new_n(k->cx, k->i == 3 ? NULL : swap_two, n, NULL, NULL), k);
}
CALL(layer_param)
{
    tn_layer *l = holder(k);
    tn_layer_param(l, name_of(k), k->x ? tn_clone(k->x) : NULL);
    return run(l, k);
}
CALL(layer_buffer)
{
    tn_layer *l = holder(k);
    tn_layer_buffer(l, name_of(k), k->x ? tn_clone(k->x) : NULL);
    return run(l, k);
}
CALL(layer_child)
{
    tn_layer *l = holder(k), *child = k->i ? holder(k) : l;
    bool      taken = tn_layer_child(l, name_of(k), child) != NULL;
    if (!taken && child != l) tn_layer_free(child);
    return run(l, k);
}
CALL(layer_of)
{
    tn_tensor *const x[] = { k->x ? tn_clone(k->x) : NULL, k->y ? tn_clone(k->y) : NULL };
    return run(tn_layer_of(k->cx, k->i == 1 ? 2 : (int)(k->i % 2), k->j == 9 ? NULL : x), k);
}
CALL(forward)
{
    return tn_forward(k->has.net, k->x);
}
CALL(forward_n)
{
    tn_tensor *const x[TNI_MOST_PORTS] = { k->x, k->y };  // as many as any number that is allowed
    tn_tensor       *y[]               = { NULL, NULL };
    tn_forward_n(k->has.net, (int)k->i, x, k->j == 2 ? 2 : 1, k->j == 3 ? NULL : y);
    return y[0];
}
CALL(layer_self)
{
    tn_layer_self(k->has.net);
    return NULL;
}
CALL(layer_ctx)
{
    tn_layer_ctx(k->has.net);
    return NULL;
}
CALL(layer_train)
{
    tn_layer_train(k->has.net, k->i & 1);
    return NULL;
}
CALL(layer_recompute)
{
    tn_layer_recompute(k->has.net, k->i & 1);
    return NULL;
}
CALL(layer_repeatable)
{
    tn_layer_repeatable(k->has.net, k->i & 1);
    return NULL;
}
CALL(layer_training)
{
    tn_layer_training(k->has.net);
    return NULL;
}
CALL(layer_freeze)
{
    tn_layer_freeze(k->has.net, k->i & 1);
    return NULL;
}
CALL(layer_cast)
{
    tn_layer *l = k->cx ? tn_nn_linear(k->cx, 2, 2) : NULL;
    tn_layer_cast(l, (tn_dtype)k->i);
    return run(l, k);
}
CALL(layer_find_child)
{
    tn_layer_find_child(k->has.net, name_of(k));
    return NULL;
}
CALL(layer_find)
{
    return tn_layer_find(k->has.net, name_of(k));
}
static void look(const char *name, tn_tensor *t, void *user)
{
    (void)user;
    CHECK(name != NULL && tn_rank(t) >= 0);
}
CALL(layer_each)
{
    tn_layer_each(k->has.net, k->i ? look : NULL, NULL);
    return NULL;
}
CALL(layer_count)
{
    tn_layer_count(k->has.net);
    return NULL;
}
CALL(layer_summary)
{
    tn_layer_summary(k->has.net, k->x, k->j ? calls_nowhere() : NULL);
    return NULL;
}
CALL(layer_free)
{
    tn_layer_free(holder(k));
    return NULL;
}

// ---- generation

// A cache like the numbers say; NULL without a context.
static tn_cache *cache_of(const call_args *k)
{
    return k->cx ? tn_cache_new(k->cx, 1, 8, (tn_cache_opts){ 0 }) : NULL;
}
CALL(cache_new)
{
    const int64_t padding[] = { k->j, 0, 0 };
    tn_cache_opts o         = { .padding = k->i <= 3 ? padding : NULL };
    tn_cache_free(tn_cache_new(k->cx, k->i, k->j, o));
    return NULL;
}
CALL(cache_clear)
{
    tn_cache_clear(cache_of(k));
    return NULL;
}
CALL(cache_free)
{
    tn_cache_free(cache_of(k));
    return NULL;
}
CALL(cache_count)
{
    tn_cache *c = cache_of(k);
    tn_cache_count(c);
    tn_cache_free(c);
    return NULL;
}
CALL(forward_cached)
{
    tn_cache  *c = cache_of(k);
    tn_tensor *y = tn_forward_cached(k->has.net, k->x, c);
    tn_cache_free(c);
    return y;
}
CALL(layer_attention)
{
    return tn_layer_attention(k->has.net, k->x, k->y, k->y, (tn_attention_opts){ .causal = true });
}
CALL(layer_positions)
{
    return tn_layer_positions(k->has.net, k->i);
}
CALL(layer_fits)
{
    tn_layer_fits(k->has.net, k->i, 2);
    return NULL;
}
CALL(layer_past)
{
    tn_layer_past(k->has.net);
    return NULL;
}
CALL(sample)
{
    return tn_sample(k->x, (tn_sample_opts){ .temperature = k->d, .top_k = k->i, .top_p = k->d });
}
CALL(generate)
{
    const int64_t    ids[] = { k->i, 1 };
    const tn_tokens  p     = { ids, 2 };
    int64_t          to[4], n;
    tn_generate_opts o = { .max_tokens = 4, .length = k->j };
    tn_generate(k->has.net, k->i == 3 ? 0 : 1, k->j == 1 ? NULL : &p, o, to, &n);
    return NULL;
}

// ---- ready-made layers

static tn_nn_conv_opts conv_layer_of(const call_args *k)
{
    return (tn_nn_conv_opts){ { k->i }, { k->j }, { k->i }, k->j, k->i & 1, { 0 } };
}
static tn_nn_norm_opts norm_of(const call_args *k)
{
    return (tn_nn_norm_opts){ k->d, k->d, k->i & 1 };
}
CALL(nn_linear)
{
    return run(tn_nn_linear(k->cx, k->i, k->j), k);
}
CALL(nn_linear_with)
{
    return run(tn_nn_linear_with(k->cx, k->i, k->j, (tn_nn_linear_opts){ k->i & 1 }), k);
}
CALL(nn_conv1d)
{
    return run(tn_nn_conv1d(k->cx, k->i, 2, k->j), k);
}
CALL(nn_conv1d_with)
{
    return run(tn_nn_conv1d_with(k->cx, 3, k->i, k->j, conv_layer_of(k)), k);
}
CALL(nn_conv2d)
{
    return run(tn_nn_conv2d(k->cx, 2, k->i, k->j), k);
}
CALL(nn_conv2d_hw)
{
    return run(tn_nn_conv2d_hw(k->cx, 2, k->j, k->i, 1, conv_layer_of(k)), k);
}
CALL(nn_conv3d)
{
    return run(tn_nn_conv3d(k->cx, 2, k->i, k->j), k);
}
CALL(nn_conv3d_dhw)
{
    return run(tn_nn_conv3d_dhw(k->cx, 2, k->j, k->i, 1, 2, conv_layer_of(k)), k);
}
static tn_nn_conv_opts transposed_layer_of(const call_args *k)
{
    return (tn_nn_conv_opts){ { k->i }, { k->j }, { k->j }, k->i, k->i & 1, { k->j / 2 } };
}
CALL(nn_conv_transpose1d)
{
    return run(tn_nn_conv_transpose1d(k->cx, k->i, 2, k->j), k);
}
CALL(nn_conv_transpose1d_with)
{
    return run(tn_nn_conv_transpose1d_with(k->cx, 3, k->i, k->j, transposed_layer_of(k)), k);
}
CALL(nn_conv_transpose2d)
{
    return run(tn_nn_conv_transpose2d(k->cx, 2, k->i, k->j), k);
}
CALL(nn_conv_transpose2d_hw)
{
    return run(tn_nn_conv_transpose2d_hw(k->cx, 2, k->j, k->i, 1, transposed_layer_of(k)), k);
}
CALL(nn_conv_transpose3d)
{
    return run(tn_nn_conv_transpose3d(k->cx, 2, k->i, k->j), k);
}
CALL(nn_conv_transpose3d_dhw)
{
    return run(tn_nn_conv_transpose3d_dhw(k->cx, 2, k->j, k->i, 1, 2, transposed_layer_of(k)), k);
}
CALL(nn_max_pool3d)
{
    return run(tn_nn_max_pool3d(k->cx, k->i), k);
}
CALL(nn_max_pool3d_dhw)
{
    return run(tn_nn_max_pool3d_dhw(k->cx, k->i, k->j, 1, (tn_pool_opts){ .padding = { k->j } }),
               k);
}
CALL(nn_avg_pool3d)
{
    return run(tn_nn_avg_pool3d(k->cx, k->j), k);
}
CALL(nn_avg_pool3d_dhw)
{
    return run(tn_nn_avg_pool3d_dhw(k->cx, 1, k->i, k->j, (tn_pool_opts){ .stride = { k->j } }), k);
}
CALL(nn_batch_norm)
{
    return run(tn_nn_batch_norm(k->cx, k->i), k);
}
CALL(nn_batch_norm_with)
{
    return run(tn_nn_batch_norm_with(k->cx, k->i, norm_of(k)), k);
}
CALL(nn_layer_norm)
{
    return run(tn_nn_layer_norm(k->cx, k->i), k);
}
CALL(nn_layer_norm_nd)
{
    return run(tn_nn_layer_norm_nd(k->cx, (int)k->j, calls_shape(k), norm_of(k)), k);
}
CALL(nn_rms_norm)
{
    return run(tn_nn_rms_norm(k->cx, k->i), k);
}
CALL(nn_rms_norm_nd)
{
    return run(tn_nn_rms_norm_nd(k->cx, (int)k->j, k->j & 1 ? calls_shape(k) : NULL, norm_of(k)),
               k);
}
CALL(nn_group_norm)
{
    return run(tn_nn_group_norm(k->cx, k->i, k->j), k);
}
CALL(nn_group_norm_with)
{
    return run(tn_nn_group_norm_with(k->cx, k->j, k->i, norm_of(k)), k);
}
CALL(nn_instance_norm)
{
    tn_nn_instance_norm_opts o = { k->d, k->d, k->j & 1, k->j & 2 };
    return run(tn_nn_instance_norm(k->cx, k->i, o), k);
}
CALL(nn_bilinear)
{
    return run(tn_nn_bilinear(k->cx, k->i, k->j, 2, (tn_nn_linear_opts){ k->i & 1 }), k);
}
CALL(nn_swiglu)
{
    return run(tn_nn_swiglu(k->cx, k->i, k->j, (tn_nn_linear_opts){ k->i & 1 }), k);
}
CALL(nn_prelu)
{
    return run(tn_nn_prelu(k->cx, k->i), k);
}
CALL(nn_glu)
{
    return run(tn_nn_glu(k->cx, (int)k->i), k);
}
CALL(nn_positional)
{
    tn_nn_positional_opts o = { .length = k->j, .base = k->d };
    return run(tn_nn_positional(k->cx, k->i, o), k);
}
// A linear layer that fits x, as often as not with a weight of that name.
static tn_layer *to_normalize(const call_args *k)
{
    return k->cx ? tn_nn_linear(k->cx, k->i, 2) : NULL;
}
CALL(layer_weight_norm)
{
    tn_layer *l = to_normalize(k);
    tn_layer_weight_norm(l, name_of(k), (int)k->i - 1);
    return run(l, k);
}
CALL(layer_spectral_norm)
{
    tn_layer *l = to_normalize(k);
    tn_layer_spectral_norm(l, name_of(k), (tn_spectral_norm_opts){ 0, (int)k->j, k->d });
    return run(l, k);
}
CALL(layer_prune)
{
    tn_layer *l = to_normalize(k);
    tn_layer_prune(l, name_of(k), k->j & 1 ? k->x : tn_layer_find(l, "weight"));
    return run(l, k);
}
CALL(layer_remove_norm)
{
    tn_layer *l = to_normalize(k);
    tn_layer_weight_norm(l, "weight", 0);
    tn_layer_remove_norm(l, name_of(k));
    return run(l, k);
}
CALL(nn_embedding)
{
    return run(tn_nn_embedding(k->cx, k->i, k->j), k);
}
CALL(nn_rnn)
{
    return run(tn_nn_rnn(k->cx, 2, k->i,
                         (tn_nn_rnn_opts){ .kind = (tn_rnn_kind)k->j, .layers = (int)k->j }),
               k);
}
CALL(nn_dropout)
{
    return run(tn_nn_dropout(k->cx, k->d), k);
}
CALL(nn_max_pool2d)
{
    return run(tn_nn_max_pool2d(k->cx, k->i), k);
}
CALL(nn_max_pool2d_hw)
{
    tn_pool_opts o = { { k->j }, { k->i }, { k->j }, k->i & 1, k->j & 1 };
    return run(tn_nn_max_pool2d_hw(k->cx, k->i, k->j, o), k);
}
CALL(nn_avg_pool2d)
{
    return run(tn_nn_avg_pool2d(k->cx, k->i), k);
}
CALL(nn_avg_pool2d_hw)
{
    tn_pool_opts o = { { k->j }, { k->i }, { k->j }, k->i & 1, k->j & 1 };
    return run(tn_nn_avg_pool2d_hw(k->cx, k->i, k->j, o), k);
}
CALL(nn_adaptive_avg_pool2d)
{
    return run(tn_nn_adaptive_avg_pool2d(k->cx, k->i, k->j), k);
}
CALL(nn_act)
{
    return run(tn_nn_act(k->cx, k->i ? tn_relu : NULL), k);
}
CALL(nn_flatten)
{
    return run(tn_nn_flatten(k->cx), k);
}
CALL(nn_seq_n)
{
    tn_layer *const l[] = { holder(k), holder(k) };
    tn_layer       *seq = tn_nn_seq_n(k->cx, k->i == 1 ? 2 : (int)(k->i % 2), k->j ? l : NULL);
    if (!seq) {
        tn_layer_free(l[0]);
        tn_layer_free(l[1]);
    }
    return run(seq, k);
}
CALL(nn_residual)
{
    tn_layer *body = holder(k), *l = tn_nn_residual(k->cx, k->i ? body : NULL);
    if (!l) tn_layer_free(body);
    return run(l, k);
}
CALL(nn_residual_with)
{
    tn_layer *body = holder(k), *shortcut = k->j & 1 ? body : holder(k);
    tn_layer *l = tn_nn_residual_with(k->cx, body, (tn_nn_residual_opts){ shortcut, tn_relu });
    if (!l) tn_layer_free(body);
    if (!l && shortcut != body) tn_layer_free(shortcut);
    return run(l, k);
}
CALL(nn_standardize)
{
    tn_layer *body = holder(k), *l = tn_nn_standardize(k->cx, k->j, k->i ? body : NULL);
    if (!l) tn_layer_free(body);
    return run(l, k);
}
CALL(nn_standardize_nd)
{
    tn_layer *body = holder(k);
    tn_layer *l    = tn_nn_standardize_nd(k->cx, (int)k->j, k->i & 1 ? calls_shape(k) : NULL, body,
                                          (tn_nn_standardize_opts){ .outputs = k->i });
    if (!l) tn_layer_free(body);
    return run(l, k);
}
CALL(nn_attention)
{
    return run(tn_nn_attention(k->cx, k->i, k->j), k);
}
CALL(nn_attention_with)
{
    tn_nn_attention_opts o = { .causal = k->i & 1, .no_bias = k->i & 2, .dropout = k->d };
    return run(tn_nn_attention_with(k->cx, k->i, k->j, o), k);
}
CALL(nn_transformer_block)
{
    return run(tn_nn_transformer_block(k->cx, k->i, k->j), k);
}
CALL(nn_transformer_block_with)
{
    tn_nn_transformer_opts o = { .hidden = k->j, .norm_first = k->i & 1, .dropout = k->d };
    return run(tn_nn_transformer_block_with(k->cx, k->i, k->j, o), k);
}

// ---- initializers: of a copy, so that the arguments stay

CALL(init_constant)
{
    return tn_init_constant(tn_clone(k->x), k->d);
}
CALL(init_uniform)
{
    return tn_init_uniform(tn_clone(k->x), k->d, (double)k->i);
}
CALL(init_normal)
{
    return tn_init_normal(tn_clone(k->x), (double)k->i, k->d);
}
CALL(init_trunc_normal)
{
    return tn_init_trunc_normal(tn_clone(k->x), k->d, k->d);
}
CALL(init_xavier_uniform)
{
    return tn_init_xavier_uniform(tn_clone(k->x), k->d);
}
CALL(init_xavier_normal)
{
    return tn_init_xavier_normal(tn_clone(k->x), k->d);
}
CALL(init_kaiming_uniform)
{
    return tn_init_kaiming_uniform(tn_clone(k->x), (tn_init_opts){ k->i & 1, k->d });
}
CALL(init_kaiming_normal)
{
    return tn_init_kaiming_normal(tn_clone(k->x), (tn_init_opts){ k->i & 1, k->d });
}

// ---- models: the large ones are refused

CALL(mlp)
{
    return run(tn_mlp(k->cx, (int)k->j, k->i & 1 ? calls_shape(k) : NULL), k);
}
CALL(lenet)
{
    return run(tn_lenet(k->cx), k);
}
CALL(resnet)
{
    return run(tn_resnet(k->cx, (tn_resnet_opts){ .depth = 19, .classes = k->i }), k);
}
CALL(mobilenet_v2)
{
    // Only of wrong sizes: the network is large.
    return run(tn_mobilenet_v2(k->cx, (tn_mobilenet_v2_opts){ .classes = -1, .dropout = k->d }), k);
}
CALL(vit)
{
    tn_vit_opts o = {
        .size = 4, .patch = k->j, .layers = 1, .heads = 2, .width = 4, .classes = k->i
    };
    return run(tn_vit(k->cx, o), k);
}
CALL(convnext)
{
    tn_convnext_opts o = { .blocks = { 1, 1, 1, 1 }, .width = 2, .classes = k->i, .drop = k->d };
    return run(tn_convnext(k->cx, o), k);
}
CALL(unet)
{
    return run(tn_unet(k->cx, (tn_unet_opts){ .levels = (int)k->j, .width = 2, .classes = k->i }),
               k);
}
CALL(gpt2)
{
    tn_gpt2_opts o = { k->i == 1, 2, 4, k->j, k->i, k->d };
    return run(tn_gpt2(k->cx, o), k);
}
CALL(llama)
{
    tn_llama_opts o = { .layers   = k->i == 1,
                        .heads    = 2,
                        .width    = 4,
                        .kv_heads = 1,
                        .hidden   = 8,
                        .vocab    = k->j,
                        .context  = k->i,
                        .window   = k->j,
                        .eps      = k->d };
    return run(tn_llama(k->cx, o), k);
}
CALL(pretrained)
{
    return run(tn_pretrained(k->cx, k->i & 1 ? "no such folder" : NULL), k);
}
CALL(pretrained_with)
{
    tn_pretrained_opts o = { .dtype = (tn_dtype)(k->j & 15), .context = k->i };
    return run(tn_pretrained_with(k->cx, "no such folder", o), k);
}

// clang-format off
const call calls_of_layers[] = {
    O(layer_new), O(layer_new_n), O(layer_param), O(layer_buffer), O(layer_child), T(layer_of), O(forward),
    T(forward_n),
    Q(layer_self), Q(layer_ctx), O(layer_train), O(layer_recompute), O(layer_repeatable), Q(layer_training), O(layer_freeze), O(layer_cast),
    O(layer_find), O(layer_find_child), O(layer_each), Q(layer_count), O(layer_summary), Q(layer_free),
    O(cache_new), O(cache_clear), Q(cache_free), Q(cache_count), O(forward_cached), T(layer_attention),
    O(layer_positions), Q(layer_past), Q(layer_fits), O(sample), O(generate),
    O(nn_linear), O(nn_linear_with), O(nn_conv1d), O(nn_conv1d_with), O(nn_conv2d),
    O(nn_conv2d_hw), O(nn_conv3d), O(nn_conv3d_dhw), O(nn_conv_transpose1d),
    O(nn_conv_transpose1d_with), O(nn_conv_transpose2d), O(nn_conv_transpose2d_hw),
    O(nn_conv_transpose3d), O(nn_conv_transpose3d_dhw), O(nn_max_pool3d), O(nn_max_pool3d_dhw),
    O(nn_avg_pool3d), O(nn_avg_pool3d_dhw), O(nn_batch_norm), O(nn_batch_norm_with), O(nn_layer_norm),
    O(nn_layer_norm_nd), O(nn_rms_norm), O(nn_rms_norm_nd), O(nn_group_norm),
    O(nn_group_norm_with), O(nn_embedding), O(nn_instance_norm), O(nn_bilinear), O(nn_swiglu), O(nn_prelu), O(nn_glu),
    O(nn_positional), O(layer_weight_norm), O(layer_spectral_norm), O(layer_prune), O(layer_remove_norm), O(nn_rnn), O(nn_dropout), O(nn_max_pool2d), O(nn_max_pool2d_hw),
    O(nn_avg_pool2d), O(nn_avg_pool2d_hw), O(nn_adaptive_avg_pool2d), O(nn_act), O(nn_flatten),
    O(nn_seq_n), O(nn_residual), O(nn_residual_with), O(nn_standardize),
    O(nn_standardize_nd), O(nn_attention), O(nn_attention_with), O(nn_transformer_block), O(nn_transformer_block_with),
    O(init_constant), O(init_uniform), O(init_normal), O(init_trunc_normal), O(init_xavier_uniform),
    O(init_xavier_normal), O(init_kaiming_uniform), O(init_kaiming_normal),
    O(mlp), O(lenet), O(resnet), O(mobilenet_v2), O(vit), O(convnext), O(unet), O(gpt2), O(llama), O(pretrained), O(pretrained_with),
    { 0 },
};
// clang-format on
