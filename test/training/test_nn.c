// test_nn.c: the layers that come with Tenon: values and gradients as PyTorch's, running
// statistics, normalized weights, and wrong arguments.
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- against PyTorch ---------------------------------------------------------------------------

static tn_layer *linear(tn_ctx *cx)
{
    return tn_nn_linear(cx, 3, 4);
}
static tn_layer *linear_no_bias(tn_ctx *cx)
{
    return tn_nn_linear_with(cx, 3, 4, (tn_nn_linear_opts){ .no_bias = true });
}
static tn_layer *embedding(tn_ctx *cx)
{
    return tn_nn_embedding(cx, 7, 3);
}
static tn_layer *conv1d(tn_ctx *cx)
{
    tn_nn_conv_opts o = { .stride = { 2 }, .padding = { 1 }, .dilation = { 2 }, .groups = 2 };
    return tn_nn_conv1d_with(cx, 4, 6, 3, o);
}
static tn_layer *conv2d(tn_ctx *cx)
{
    // A second padding of 0 would take the first, so the axes are turned.
    tn_nn_conv_opts o = { .stride = { 1, 2 }, .padding = { 0, 1 }, .no_bias = true };
    return tn_nn_conv2d_hw(cx, 2, 4, 2, 3, o);
}
static tn_layer *depthwise(tn_ctx *cx)
{
    return tn_nn_conv2d_hw(cx, 4, 4, 3, 3, (tn_nn_conv_opts){ .padding = { 1 }, .groups = 4 });
}
static tn_layer *conv3d(tn_ctx *cx)
{
    tn_nn_conv_opts o = { .stride = { 1, 2, 1 }, .padding = { 1, TN_NO_PADDING, 1 }, .groups = 2 };
    return tn_nn_conv3d_dhw(cx, 2, 4, 2, 1, 3, o);
}
static tn_layer *conv3d_plain(tn_ctx *cx)
{
    return tn_nn_conv3d(cx, 2, 3, 2);
}
static tn_layer *conv_transpose1d(tn_ctx *cx)
{
    tn_nn_conv_opts o = { .stride = { 2 }, .padding = { 1 }, .output_padding = { 1 }, .groups = 2 };
    return tn_nn_conv_transpose1d_with(cx, 4, 6, 3, o);
}
static tn_layer *conv_transpose1d_long(tn_ctx *cx)
{
    tn_nn_conv_opts o = {
        .stride = { 2 }, .padding = { 3 }, .output_padding = { 3 }, .dilation = { 4 }
    };
    return tn_nn_conv_transpose1d_with(cx, 3, 2, 3, o);
}
static tn_layer *conv_transpose2d(tn_ctx *cx)
{
    tn_nn_conv_opts o = {
        .stride = { 2, 3 }, .padding = { 0, 1 }, .output_padding = { 1, 2 }, .no_bias = true
    };
    return tn_nn_conv_transpose2d_hw(cx, 3, 4, 2, 3, o);
}
static tn_layer *conv_transpose3d(tn_ctx *cx)
{
    tn_nn_conv_opts o = { .stride         = { 2 },
                          .padding        = { 1 },
                          .output_padding = { 1, TN_NO_PADDING, 1 },
                          .dilation       = { 2 } };
    return tn_nn_conv_transpose3d_dhw(cx, 2, 3, 2, 2, 2, o);
}
static tn_layer *max_pool3d(tn_ctx *cx)
{
    tn_pool_opts o = { .stride = { 1, 2, 1 }, .padding = { 1, TN_NO_PADDING, TN_NO_PADDING } };
    return tn_nn_max_pool3d_dhw(cx, 2, 2, 1, o);
}
static tn_layer *avg_pool3d(tn_ctx *cx)
{
    return tn_nn_avg_pool3d_dhw(cx, 2, 2, 2,
                                (tn_pool_opts){ .stride = { 1, 2, 1 }, .padding = { 0, 1, 1 } });
}
static tn_layer *batch_norm(tn_ctx *cx)
{
    return tn_nn_batch_norm(cx, 3);
}
static tn_layer *batch_norm_with(tn_ctx *cx)
{
    return tn_nn_batch_norm_with(cx, 3, (tn_nn_norm_opts){ .eps = 1e-3, .momentum = 0.3 });
}
static tn_layer *layer_norm(tn_ctx *cx)
{
    return tn_nn_layer_norm_nd(cx, TN_SHAPE(3, 4), (tn_nn_norm_opts){ 0 });
}
static tn_layer *rms_norm(tn_ctx *cx)
{
    return tn_nn_rms_norm_nd(cx, TN_SHAPE(4), (tn_nn_norm_opts){ .eps = 1e-6 });
}
static tn_layer *group_norm(tn_ctx *cx)
{
    return tn_nn_group_norm(cx, 2, 4);
}
static tn_layer *attention(tn_ctx *cx)
{
    return tn_nn_attention(cx, 6, 2);
}
static tn_layer *causal_attention(tn_ctx *cx)
{
    tn_nn_attention_opts o = { .causal = true, .no_bias = true };
    return tn_nn_attention_with(cx, 6, 3, o);
}
static tn_layer *block(tn_ctx *cx)
{
    return tn_nn_transformer_block_with(cx, 6, 2, (tn_nn_transformer_opts){ .hidden = 10 });
}
static tn_layer *block_norm_first(tn_ctx *cx)
{
    tn_nn_transformer_opts o = { .norm_first = true, .f = tn_gelu };
    return tn_nn_transformer_block_with(cx, 6, 2, o);
}

// ---- layers of several inputs, and those around which a test builds something

// A layer that runs f, with a child "a" as its self.
static tn_layer *around(tn_ctx *cx, tn_forward_fn *f, tn_layer *child)
{
    tn_layer *l = child ? tn_layer_new(cx, f, child, NULL) : NULL;
    return l && tn_layer_child(l, "a", child) ? l : NULL;
}
static tn_tensor *run_n(tn_layer *l, int n, tn_tensor *const *x)
{
    tn_tensor *y = NULL;
    tn_forward_n(tn_layer_self(l), n, x, 1, &y);
    return y;
}
static tn_tensor *run_bilinear(tn_layer *l, tn_tensor *x)
{
    return run_n(l, 2, (tn_tensor *[]){ tn_slice(x, 1, 0, 2, 1), tn_slice(x, 1, 2, 5, 1) });
}
static tn_layer *bilinear(tn_ctx *cx)
{
    return around(cx, run_bilinear, tn_nn_bilinear(cx, 2, 3, 4, (tn_nn_linear_opts){ 0 }));
}
static tn_layer *swiglu(tn_ctx *cx)
{
    return tn_nn_swiglu(cx, 3, 5, (tn_nn_linear_opts){ 0 });
}
static tn_tensor *visible_keys(tn_ctx *cx)
{
    return tn_from(cx, TN_BOOL, TN_SHAPE(2, 4), (bool[]){ 1, 1, 1, 0, 1, 1, 0, 0 });
}
static tn_tensor *run_cross(tn_layer *l, tn_tensor *x)
{
    tn_ctx *cx = tn_ctx_of(x);
    return run_n(l, 4, (tn_tensor *[]){ tn_slice(x, 1, 0, 3, 1), x, NULL, visible_keys(cx) });
}
static tn_layer *cross_attention(tn_ctx *cx)
{
    tn_nn_attention_opts o = { .causal = true };
    return around(cx, run_cross, tn_nn_attention_with(cx, 6, 2, o));
}
static tn_tensor *wave(tn_ctx *cx, double (*f)(double), double scale, double a, double b, int rank,
                       const int64_t *size);
static tn_tensor *run_widths(tn_layer *l, tn_tensor *x)
{
    tn_ctx    *cx   = tn_ctx_of(x);
    tn_tensor *mask = tn_cast(wave(cx, sin, 1, 1, 0, TN_SHAPE(4, 4)), tn_dtype_of(x));
    return run_n(l, 5,
                 (tn_tensor *[]){ x, tn_slice(x, 2, 0, 4, 1), tn_slice(x, 2, 4, 6, 1),
                                  visible_keys(cx), mask });
}
static tn_layer *other_widths(tn_ctx *cx)
{
    tn_nn_attention_opts o = { .key_width = 4, .value_width = 2 };
    return around(cx, run_widths, tn_nn_attention_with(cx, 6, 3, o));
}
static tn_layer *instance_norm(tn_ctx *cx)
{
    return tn_nn_instance_norm(cx, 4, (tn_nn_instance_norm_opts){ .affine = true });
}
static tn_layer *instance_norm_running(tn_ctx *cx)
{
    tn_nn_instance_norm_opts o = { 0x1p-10, 0.25, .affine = true, .running = true };
    return tn_nn_instance_norm(cx, 3, o);
}
static tn_layer *prelu(tn_ctx *cx)
{
    return tn_nn_prelu(cx, 3);
}
static tn_layer *glu(tn_ctx *cx)
{
    return tn_nn_glu(cx, 1);
}
static tn_layer *positions(tn_ctx *cx)
{
    return tn_nn_positional(cx, 6, (tn_nn_positional_opts){ 0 });
}
static tn_layer *learned_positions(tn_ctx *cx)
{
    return tn_nn_positional(cx, 4, (tn_nn_positional_opts){ .length = 7 });
}
static tn_layer *weight_norm(tn_ctx *cx)
{
    tn_layer *l = tn_nn_linear(cx, 3, 4);
    CHECK_STATUS(tn_layer_weight_norm(l, "weight", 0), TN_OK);
    return l;
}
static tn_layer *weight_norm_conv(tn_ctx *cx)
{
    tn_layer *l = tn_nn_conv2d(cx, 2, 4, 3);
    CHECK_STATUS(tn_layer_weight_norm(l, "weight", -3), TN_OK);
    return l;
}
// Its vectors start as the recording's; in evaluation mode, so that differences see one function.
static tn_layer *spectral(tn_layer *l, tn_spectral_norm_opts o)
{
    CHECK_STATUS(tn_layer_spectral_norm(l, "weight", o), TN_OK);
    tn_tensor *u = tn_layer_find(l, "weight_u"), *v = tn_layer_find(l, "weight_v");
    tn_assign(u, tn_full_like(u, 0.5));
    tn_assign(v, tn_eq_i64(tn_arange_i64(tn_ctx_of(v), TN_I64, 0, tn_count(v), 1), 0));
    tn_layer_train(l, false);
    return l;
}
static tn_layer *spectral_norm(tn_ctx *cx)
{
    return spectral(tn_nn_linear(cx, 3, 4), (tn_spectral_norm_opts){ 0 });
}
static tn_layer *spectral_norm_conv(tn_ctx *cx)
{
    tn_spectral_norm_opts o = { .axis = 1, .iterations = 3 };
    return spectral(tn_nn_conv2d(cx, 2, 4, 3), o);
}

#define WEIGHT     "weight "
#define BIAS       "weight bias "
#define STATISTICS "weight bias running_mean running_var num_batches_tracked "
#define TRANSFORMER                                                                    \
    "self_attn.in_proj_weight self_attn.in_proj_bias self_attn.out_proj.weight "       \
    "self_attn.out_proj.bias linear1.weight linear1.bias linear2.weight linear2.bias " \
    "norm1.weight norm1.bias norm2.weight norm2.bias "

// PyTorch's numbers for a layer whose parameter k is 0.5 sin(i + 0.7 k), of x = 0.8 cos(1.3 i) (or,
// for an embedding, 5 i mod ints), in f64: y weighed by sin(i + 1), and the gradients of that,
// those of parameter k weighed by cos(i + k) and x's by cos(i + 0.5).
typedef struct {
    const char *name;
    tn_layer *(*make)(tn_ctx *cx);
    int         rank, y_rank;
    int64_t     size[5], y_size[5];
    bool        training;
    int         steps, ints;
    double      y, gp, gx;
    const char *names;
} recorded;

// clang-format off
static const recorded recordings[] = {
    { "linear", linear, 3, 3, { 2, 5, 3 }, { 2, 5, 4 }, false, 1, 0,
      -1.79871123094, 4.41126103942, 0.00530893583724, BIAS },
    { "linear without bias", linear_no_bias, 2, 2, { 2, 3 }, { 2, 4 }, false, 1, 0,
      -0.857459769348, 1.30216810018, -0.742371171776, WEIGHT },
    { "embedding", embedding, 2, 3, { 2, 4 }, { 2, 4, 3 }, false, 1, 7,
      0.372182086252, 3.38268315454, 0, WEIGHT },
    { "conv1d", conv1d, 3, 3, { 2, 4, 9 }, { 2, 6, 4 }, false, 1, 0,
      0.411562847413, 0.827811496124, -3.11451617044, BIAS },
    { "conv2d", conv2d, 4, 4, { 2, 2, 5, 6 }, { 2, 4, 4, 3 }, false, 1, 0,
      -0.376108435277, 4.18913035255, -0.24245841844, WEIGHT },
    { "depthwise conv2d", depthwise, 4, 4, { 1, 4, 5, 5 }, { 1, 4, 5, 5 }, false, 1, 0,
      -0.464546992762, 0.478753437158, -1.48318482844, BIAS },
    { "conv3d", conv3d, 5, 5, { 2, 2, 3, 4, 5 }, { 2, 4, 4, 2, 5 }, false, 1, 0,
      1.40751704192, -5.94864372516, -2.48296172721, BIAS },
    { "conv3d without options", conv3d_plain, 5, 5, { 1, 2, 3, 4, 3 }, { 1, 3, 2, 3, 2 }, false, 1, 0,
      0.255987223561, -0.999872680435, 1.0184430203, BIAS },
    { "conv_transpose1d", conv_transpose1d, 3, 3, { 2, 4, 5 }, { 2, 6, 10 }, false, 1, 0,
      0.349713519162, 0.126312080284, -0.593577839216, BIAS },
    { "conv_transpose1d, padded past its stride", conv_transpose1d_long, 3, 3, { 2, 3, 5 }, { 2, 2, 14 }, false, 1, 0,
      1.02738378433, 0.0668521438301, -0.829050333206, BIAS },
    { "conv_transpose2d", conv_transpose2d, 4, 4, { 2, 3, 3, 4 }, { 2, 4, 7, 12 }, false, 1, 0,
      0.00517719932871, -0.090768923859, 0.0633799127815, WEIGHT },
    { "conv_transpose3d", conv_transpose3d, 5, 5, { 1, 2, 3, 2, 3 }, { 1, 3, 6, 3, 6 }, false, 1, 0,
      3.52251359025, -7.69800027599, -1.35975408732, BIAS },
    { "max_pool3d", max_pool3d, 5, 5, { 1, 2, 3, 4, 3 }, { 1, 2, 4, 2, 3 }, false, 1, 0,
      -1.48193424017, 0, 1.60541817636, "" },
    { "avg_pool3d", avg_pool3d, 5, 5, { 2, 2, 3, 4, 3 }, { 2, 2, 2, 3, 4 }, false, 1, 0,
      0.00779772487072, 0, 7.78800687272, "" },
    { "batch norm in training", batch_norm, 4, 4, { 2, 3, 2, 2 }, { 2, 3, 2, 2 }, true, 2, 0,
      0.359222259575, 5.88168825427, 1.88583603131, STATISTICS },
    { "batch norm", batch_norm, 4, 4, { 2, 3, 2, 2 }, { 2, 3, 2, 2 }, false, 1, 0,
      0.319883811312, 5.21023146469, 1.56256517964, STATISTICS },
    { "batch norm with options", batch_norm_with, 2, 2, { 4, 3 }, { 4, 3 }, true, 1, 0,
      -1.64547782009, 0.701584152888, -0.11533622494, STATISTICS },
    { "layer norm", layer_norm, 3, 3, { 2, 3, 4 }, { 2, 3, 4 }, false, 1, 0,
      6.25733936723, -3.06241775542, 0.370763903567, BIAS },
    { "rms norm", rms_norm, 3, 3, { 2, 3, 4 }, { 2, 3, 4 }, false, 1, 0,
      0.169148295764, 0.413155869985, 0.996286624108, WEIGHT },
    { "group norm", group_norm, 3, 3, { 2, 4, 3 }, { 2, 4, 3 }, false, 1, 0,
      1.68029284008, 4.42312779555, 1.26651338638, BIAS },
    { "attention", attention, 3, 3, { 2, 4, 6 }, { 2, 4, 6 }, false, 1, 0,
      -5.6314164962, -1.69719155775, -3.8511665003,
      "in_proj_weight in_proj_bias out_proj.weight out_proj.bias " },
    { "causal attention", causal_attention, 3, 3, { 2, 4, 6 }, { 2, 4, 6 }, true, 1, 0,
      -0.335763661582, -12.649842823, -9.95243753842, "in_proj_weight out_proj.weight " },
    { "transformer block", block, 3, 3, { 2, 4, 6 }, { 2, 4, 6 }, true, 1, 0,
      0.32793709817, 23.9152846641, 2.90417836642, TRANSFORMER },
    { "transformer block, norm first", block_norm_first, 3, 3, { 2, 4, 6 }, { 2, 4, 6 }, true, 1, 0,
      3.07954333477, -24.8282598486, 11.2273980287, TRANSFORMER },
    { "instance norm", instance_norm, 3, 3, { 2, 4, 3 }, { 2, 4, 3 }, true, 1, 0,
      1.88168313649, 4.46528862124, 0.530345820479, BIAS },
    { "instance norm, remembering", instance_norm_running, 4, 4, { 2, 3, 2, 2 }, { 2, 3, 2, 2 }, true, 2, 0,
      0.395557034799, 5.69009005021, 0.420200014452, STATISTICS },
    { "instance norm by what it remembers", instance_norm_running, 4, 4, { 2, 3, 2, 2 }, { 2, 3, 2, 2 }, false, 1, 0,
      0.319856348747, 5.20976212755, 1.56181057572, STATISTICS },
    { "prelu", prelu, 3, 3, { 2, 3, 4 }, { 2, 3, 4 }, false, 1, 0,
      0.886339006208, -0.444044175903, 3.76060117237, WEIGHT },
    { "glu", glu, 3, 3, { 2, 6, 3 }, { 2, 3, 3 }, false, 1, 0,
      -1.08343679478, 0, -0.787110484151, "" },
    { "bilinear", bilinear, 2, 2, { 4, 5 }, { 4, 4 }, false, 1, 0,
      1.25034109045, -1.49418810717, 1.49055692564, "a.weight a.bias " },
    { "swiglu", swiglu, 3, 3, { 2, 4, 3 }, { 2, 4, 3 }, false, 1, 0,
      -0.0249608899881, -0.321657676575, 0.0238571481064,
      "gate_proj.weight gate_proj.bias up_proj.weight up_proj.bias down_proj.weight down_proj.bias " },
    { "cross-attention", cross_attention, 3, 3, { 2, 4, 6 }, { 2, 3, 6 }, false, 1, 0,
      -5.84860426017, -6.04947461128, -4.24294484106,
      "a.in_proj_weight a.in_proj_bias a.out_proj.weight a.out_proj.bias " },
    { "attention of other widths", other_widths, 3, 3, { 2, 4, 6 }, { 2, 4, 6 }, false, 1, 0,
      -12.0648798788, 32.273488564, 0.376842993814,
      "a.q_proj_weight a.k_proj_weight a.v_proj_weight a.in_proj_bias a.out_proj.weight a.out_proj.bias " },
    { "positions", positions, 3, 3, { 2, 5, 6 }, { 2, 5, 6 }, false, 1, 0,
      -3.32125113701, 0, 14.5139148779, "" },
    { "learned positions", learned_positions, 3, 3, { 2, 5, 4 }, { 2, 5, 4 }, false, 1, 0,
      -0.329864090974, 17.6807129044, 9.73645433993, WEIGHT },
    { "weight norm", weight_norm, 2, 2, { 2, 3 }, { 2, 4 }, false, 1, 0,
      0.492602333242, -0.569678536431, -0.30304904438, "bias weight_g weight_v " },
    { "weight norm of a convolution", weight_norm_conv, 4, 4, { 2, 2, 4, 5 }, { 2, 4, 2, 3 }, false, 1, 0,
      0.262887455022, -0.324458389171, -0.0102936230727, "bias weight_g weight_v " },
    { "spectral norm in training", spectral_norm, 2, 2, { 2, 3 }, { 2, 4 }, true, 2, 0,
      0.180200430402, 5.33799337587, 0.152410871168, "bias weight_orig weight_u weight_v " },
    { "spectral norm", spectral_norm, 2, 2, { 2, 3 }, { 2, 4 }, false, 1, 0,
      -3.17647697712, 28.2277437577, 1.25479309836, "bias weight_orig weight_u weight_v " },
    { "spectral norm of a convolution", spectral_norm_conv, 4, 4, { 2, 2, 4, 5 }, { 2, 4, 2, 3 }, true, 1, 0,
      0.177703780609, -0.856037157795, 0.0656043693595, "bias weight_orig weight_u weight_v " },
};
// clang-format on
enum { RECORDINGS = sizeof recordings / sizeof *recordings, MOST = 1024 };

// scale f(a i + b) of a shape, f64.
static tn_tensor *wave(tn_ctx *cx, double (*f)(double), double scale, double a, double b, int rank,
                       const int64_t *size)
{
    double  data[MOST];
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    for (int64_t i = 0; i < n && i < MOST; i++) data[i] = scale * f(a * (double)i + b);
    return tn_from(cx, TN_F64, rank, size, data);
}

static int64_t shape_of(tn_tensor *t, int64_t *size)
{
    for (int i = 0; i < tn_rank(t); i++) size[i] = tn_size(t, i);
    return tn_count(t);
}

// The sum of t weighed by f(i + b).
static tn_tensor *weighed(tn_tensor *t, double (*f)(double), double b)
{
    int64_t size[TN_MAX_RANK];
    shape_of(t, size);
    return tn_sum_all(tn_mul(t, wave(tn_ctx_of(t), f, 1, 1, b, tn_rank(t), size)));
}

// The names of a layer's tensors, and its parameters, as tn_layer_each tells them.
typedef struct {
    char       names[512];
    int        count;
    tn_tensor *param[16];
} listing;

static void list_one(const char *name, tn_tensor *t, void *user)
{
    listing *l = user;
    strncat(l->names, name, sizeof l->names - strlen(l->names) - 2);
    strcat(l->names, " ");
    if (tn_needs_grad(t)) l->param[l->count++] = t;
}

static listing list(tn_layer *l)
{
    listing all = { .count = 0 };
    CHECK_STATUS(tn_layer_each(l, list_one, &all), TN_OK);
    return all;
}

static void fill_waves(const listing *all)
{
    for (int k = 0; k < all->count; k++) {
        tn_ctx *cx = tn_ctx_of(all->param[k]);
        int64_t size[TN_MAX_RANK];
        shape_of(all->param[k], size);
        bool mode = tn_grad_mode(cx, false);
        tn_assign(all->param[k], wave(cx, sin, 0.5, 1, 0.7 * k, tn_rank(all->param[k]), size));
        tn_grad_mode(cx, mode);
    }
}

static tn_tensor *recorded_input(tn_ctx *cx, const recorded *r)
{
    int64_t index[MOST];
    for (int i = 0; i < MOST && r->ints; i++) index[i] = 5 * i % r->ints;
    if (r->ints) return tn_from(cx, TN_I64, r->rank, r->size, index);
    return tn_requires_grad(wave(cx, cos, 0.8, 1.3, 0, r->rank, r->size), true);
}

static bool near(double have, double want)
{
    return fabs(have - want) <= 1e-9 * (1 + fabs(want));
}

static void check_recording(tn_ctx *cx, const recorded *r)
{
    tn_layer *l = r->make(cx);
    if (!test_that(l != NULL, "%s: %s", r->name, tn_error_text(cx))) return;
    CHECK_STATUS(tn_layer_cast(l, TN_F64), TN_OK);
    tn_layer_train(l, r->training);
    listing all = list(l);
    CHECK_STR(all.names, r->names);
    fill_waves(&all);
    tn_tensor *x = recorded_input(cx, r), *y = NULL;
    for (int i = 0; i < r->steps; i++) y = tn_forward(l, x);
    if (!test_that(y != NULL, "%s: %s", r->name, tn_error_text(cx))) return;
    bool same = tn_rank(y) == r->y_rank;
    for (int i = 0; i < r->y_rank && same; i++) same = tn_size(y, i) == r->y_size[i];
    test_that(same, "%s: another shape", r->name);

    tn_tensor *sum = weighed(y, sin, 1);
    double     gp  = 0;
    CHECK_STATUS(tn_backward(sum, NULL), TN_OK);
    for (int k = 0; k < all.count; k++) gp += tn_item(weighed(tn_grad_of(all.param[k]), cos, k));
    double gx = r->ints ? 0 : tn_item(weighed(tn_grad_of(x), cos, 0.5)), v = tn_item(sum);
    test_case_result(near(v, r->y), "%s: y %.12g, not %.12g", r->name, v, r->y);
    test_case_result(near(gp, r->gp), "%s: parameters' %.12g, not %.12g", r->name, gp, r->gp);
    test_case_result(near(gx, r->gx), "%s: x's %.12g, not %.12g", r->name, gx, r->gx);
    tn_layer_free(l);
}

static void layers_give_pytorchs_values_gradients_and_names(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int i = 0; i < RECORDINGS; i++) {
            tn_scope *s = tn_begin(cx);
            check_recording(cx, &recordings[i]);
            CHECK_STATUS(tn_end(s), TN_OK);
        }
}

static tn_tensor *run_layer(tn_tensor *const *x, void *user)
{
    return tn_forward(user, x[0]);
}

static void gradients_of_layers_agree_with_differences(void)
{
    tn_ctx *cx = rules_open("cpu");
    for (int i = 0; i < RECORDINGS; i++) {
        const recorded *r = &recordings[i];
        tn_layer       *l = r->make(cx);
        tn_layer_cast(l, TN_F64);
        if (r->ints) continue;
        tn_tensor *x = wave(cx, sin, 1.1, 0.9, 0.3, r->rank, r->size);
        test_case_result(tn_gradcheck(run_layer, 1, &x, l) == TN_OK, "%s: %s", r->name,
                         tn_error_text(cx));
        tn_error_clear(cx);
    }
    tn_close(cx);
}

// ---- batch norm --------------------------------------------------------------------------------

static bool all_near(tn_tensor *t, int n, const double *want, double tol)
{
    double have[64];
    if (!t || tn_count(t) != n || tn_read(t, TN_F64, have, n) != TN_OK) return false;
    for (int i = 0; i < n; i++)
        if (!(fabs(have[i] - want[i]) <= tol)) return false;
    return true;
}
#define NEAR(t, tol, ...)                                                        \
    CHECK(all_near(t, (int)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)), \
                   (double[]){ __VA_ARGS__ }, tol))

static void batch_norm_remembers_what_pytorch_remembers(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *l = tn_nn_batch_norm(cx, 3);
        tn_layer_cast(l, TN_F64);
        for (int i = 0; i < 2; i++) {
            tn_scope *s = tn_begin(cx);
            tn_forward(l, wave(cx, cos, 0.8, 1.3, 0, TN_SHAPE(2, 3, 2, 2)));
            CHECK_STATUS(tn_end(s), TN_OK);
        }
        NEAR(tn_layer_find(l, "running_mean"), 1e-12, -0.00165491287983, -0.00126834704962,
             0.00046642940434);
        NEAR(tn_layer_find(l, "running_var"), 1e-11, 0.89207061588, 0.88034444064, 0.865908709911);
        CHECK_INT(tn_item_i64(tn_layer_find(l, "num_batches_tracked")), 2);
        CHECK_INT(tn_dtype_of(tn_layer_find(l, "num_batches_tracked")), TN_I64);
    }
}

static void batch_norm_in_evaluation_uses_and_keeps_its_statistics(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *l    = tn_nn_batch_norm_with(cx, 2, (tn_nn_norm_opts){ .eps = TN_ZERO });
        tn_tensor *mean = tn_layer_find(l, "running_mean"), *var = tn_layer_find(l, "running_var");
        tn_assign(mean, tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 1, 2 }));
        tn_assign(var, tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 4, 0.25f }));
        tn_layer_train(l, false);
        tn_tensor *y = tn_forward(l, tn_from(cx, TN_F32, TN_SHAPE(1, 2), (float[]){ 5, 3 }));
        NEAR(y, 1e-6, 2, 2);
        CHECK_VALUES(mean, 1, 2);
        CHECK_VALUES(var, 4, 0.25);
        CHECK_VALUES(tn_layer_find(l, "num_batches_tracked"), 0);
        CHECK(!tn_needs_grad(mean) && tn_needs_grad(y));
    }
}

// As in PyTorch: what comes out is empty, parameters have gradients of 0, a mean over nothing is
// NaN.
static void a_batch_of_nothing_runs_and_changes_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *l    = tn_nn_seq(cx, tn_nn_conv2d(cx, 1, 4, 3), tn_nn_batch_norm(cx, 4),
                                    tn_nn_group_norm(cx, 2, 4), tn_nn_max_pool2d(cx, 2),
                                    tn_nn_avg_pool2d(cx, 2), tn_nn_flatten(cx), tn_nn_layer_norm(cx, 4),
                                    tn_nn_dropout(cx, 0.5), tn_nn_linear(cx, 4, 3));
        tn_tensor *y    = tn_forward(l, tn_zeros(cx, TN_F32, TN_SHAPE(0, 1, 6, 6)));
        tn_tensor *loss = tn_cross_entropy(y, tn_zeros(cx, TN_I64, TN_SHAPE(0)));
        CHECK(tn_size(y, 0) == 0 && tn_size(y, 1) == 3);
        CHECK(isnan(tn_item(loss)));
        CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
        static const char *const with_gradients[] = { "0.weight", "1.weight", "2.bias", "6.weight",
                                                      "8.weight" };
        for (size_t i = 0; i < sizeof with_gradients / sizeof *with_gradients; i++)
            CHECK_NEAR(tn_item(tn_norm_all(tn_grad_of(tn_layer_find(l, with_gradients[i])))), 0, 0);
        CHECK_VALUES(tn_layer_find(l, "1.running_mean"), 0, 0, 0, 0);
        CHECK_VALUES(tn_layer_find(l, "1.running_var"), 1, 1, 1, 1);
        tn_layer *words = tn_nn_embedding(cx, 5, 2);
        CHECK_INT(tn_count(tn_forward(words, tn_zeros(cx, TN_I64, TN_SHAPE(0, 3)))), 0);
        CHECK_STATUS(tn_error(cx), TN_OK);
    }
}

// PyTorch's numbers.
static void instance_norm_remembers_what_pytorch_remembers(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *l = instance_norm_running(cx);
        tn_layer_cast(l, TN_F64);
        for (int i = 0; i < 2; i++) tn_forward(l, wave(cx, cos, 0.8, 1.3, 0, TN_SHAPE(2, 3, 2, 2)));
        NEAR(tn_layer_find(l, "running_mean"), 1e-12, -0.00381065465749576, -0.00292053596952930,
             0.00107401507578213);
        NEAR(tn_layer_find(l, "running_var"), 1e-12, 0.7812513913963003, 0.7434960624963108,
             0.6970166478186859);
        CHECK_INT(tn_item_i64(tn_layer_find(l, "num_batches_tracked")), 0);
        CHECK(tn_forward(l, tn_ones(cx, TN_F64, TN_SHAPE(2, 3, 1))) == NULL);
        CHECK_FAILED(cx, TN_ESHAPE, "nn_instance_norm: x (2, 3, 1) has one value per channel");
    }
}

// ---- normalized weights ------------------------------------------------------------------------

// The value of the weight is trained through what it is computed from, and is a parameter again in
// the end.
static void a_normalized_weight_is_trained_and_becomes_plain_again(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *l = tn_nn_seq(cx, tn_nn_linear(cx, 3, 4), tn_nn_linear(cx, 4, 1));
        CHECK_STATUS(tn_layer_weight_norm(l, "0.weight", 0), TN_OK);
        CHECK_STATUS(tn_layer_spectral_norm(l, "1.weight", (tn_spectral_norm_opts){ 0 }), TN_OK);
        tn_optim *opt   = tn_sgd(l, (tn_sgd_opts){ .lr = 0.1 });
        double    first = 0, last = 0;
        for (int i = 0; i < 20; i++) {
            tn_scope  *s    = tn_begin(cx);
            tn_tensor *x    = tn_cast(wave(cx, cos, 0.8, 1.3, 0, TN_SHAPE(8, 3)), TN_F32);
            tn_tensor *loss = tn_mse(tn_forward(l, x), tn_sum_keep(x, 1));
            CHECK_STATUS(tn_step(opt, loss), TN_OK);
            last = tn_item(loss);
            if (!i) first = last;
            CHECK_STATUS(tn_end(s), TN_OK);
        }
        CHECK(last < 0.5 * first);
        tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(1, 3));
        tn_forward(l, x);  // the power method sees the weight as the last step left it
        tn_layer_train(l, false);
        double y = tn_item(tn_forward(l, x));
        tn_optim_free(opt);
        CHECK_STATUS(tn_layer_remove_norm(l, "0.weight"), TN_OK);
        CHECK_STATUS(tn_layer_remove_norm(l, "1.weight"), TN_OK);
        CHECK_STR(list(l).names, "0.bias 0.weight 1.bias 1.weight ");
        CHECK_NEAR(tn_item(tn_forward(l, x)), y, 1e-6);
        CHECK_NEAR(tn_item(tn_norm_all(tn_layer_find(l, "1.weight"))), 1, 1e-5);
    }
}

// The mask stays through steps of an optimizer that moves every weight, goes into a file and back,
// and holds in the plain weight.
static void a_pruned_weight_keeps_its_mask(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *l = tn_nn_linear(cx, 8, 4), *copy = tn_nn_linear(cx, 8, 4);
        tn_tensor *mask = tn_keep(tn_prune_2_4(tn_layer_find(l, "weight"), true));
        CHECK(tn_item(tn_sum_all(mask)) == 16);
        CHECK(tn_item(tn_all_all(tn_eq_s(tn_sum(mask, 0), 2))) == 1);
        CHECK_STATUS(tn_layer_prune(l, "weight", mask), TN_OK);
        CHECK_STATUS(tn_layer_prune(copy, "weight", tn_ones_like(mask)), TN_OK);
        tn_optim *opt = tn_adamw(l, (tn_adamw_opts){ .lr = 0.1, .weight_decay = 0.1 });
        for (int i = 0; i < 3; i++) {
            tn_scope *s = tn_begin(cx);
            CHECK_STATUS(tn_step(opt, tn_mean_all(tn_square(
                                          tn_forward(l, tn_ones(cx, TN_F32, TN_SHAPE(2, 8)))))),
                         TN_OK);
            CHECK_STATUS(tn_end(s), TN_OK);
        }
        CHECK(scratch_open());
        CHECK_STATUS(tn_save(l, scratch_path("pruned.safetensors")), TN_OK);
        CHECK_STATUS(tn_load(copy, scratch_path("pruned.safetensors")), TN_OK);
        tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(1, 8));
        // A file has 32 bits, of which the reference device keeps more.
        CHECK(tn_item(tn_max_all(tn_abs(tn_sub(tn_forward(l, x), tn_forward(copy, x))))) < 1e-6);
        CHECK_STR(list(l).names, "bias weight_orig weight_mask ");
        CHECK_STATUS(tn_layer_remove_norm(copy, "weight"), TN_OK);
        CHECK(tn_item(tn_all_all(tn_eq(tn_ne_s(tn_layer_find(copy, "weight"), 0), mask))) == 1);
        tn_optim_free(opt);
        CHECK_STATUS(tn_layer_prune(copy, "weight", tn_ones(cx, TN_F32, TN_SHAPE(4, 4))),
                     TN_ESHAPE);
        CHECK_FAILED(cx, TN_ESHAPE, "layer_prune: mask (4, 4) is not one of \"weight\" (4, 8)");
        CHECK(!tn_prune_2_4(tn_ones(cx, TN_F32, TN_SHAPE(3, 8)), true));
        CHECK_FAILED(cx, TN_ESHAPE, "prune_2_4: w (3, 8) is not of fours along its last two axes");
    }
}

static void wrong_weights_are_not_normalized(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l = tn_nn_linear(cx, 3, 4), *tied = tn_nn_flatten(cx);
    tn_layer_child(tied, "a", l);
    tn_layer_param(tied, "same", tn_layer_find(l, "bias"));
    CHECK_STATUS(tn_layer_weight_norm(l, "b.weight", 0), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "layer_weight_norm: there is no parameter \"b.weight\"");
    CHECK_STATUS(tn_layer_weight_norm(tied, "a.weight", 2), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "layer_weight_norm: \"a.weight\" (4, 3) has no axis 2");
    CHECK_STATUS(tn_layer_spectral_norm(l, "bias", (tn_spectral_norm_opts){ 0 }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "layer_spectral_norm: \"bias\" is tied");
    CHECK_STATUS(tn_layer_spectral_norm(l, "weight", (tn_spectral_norm_opts){ .eps = -1 }),
                 TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "layer_spectral_norm: eps -1 is not 0 or more");
    CHECK_STATUS(tn_layer_remove_norm(l, "weight"), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "layer_remove_norm: there is no normalized \"weight\"");
    tn_close(cx);
}

// Every input of attention is checked by its name.
static void attention_names_the_input_that_does_not_fit(void)
{
    static const struct {
        int         at;
        int64_t     size[3];
        int         rank;
        const char *part;
    } wrong[] = {
        { 0, { 2, 3, 5 }, 3, "nn_attention: x (2, 3, 5) is not (B, T, 6)" },
        { 1, { 2, 4, 5 }, 3, "nn_attention: keys (2, 4, 5) is not (B, S, 4)" },
        { 1, { 3, 4, 4 }, 3, "nn_attention: x (2, 3, 6) and keys (3, 4, 4): their sizes differ" },
        { 2, { 2, 5, 2 }, 3, "nn_attention: keys (2, 4, 4) and values (2, 5, 2)" },
        { 3, { 2, 3 }, 2, "nn_attention: the mask of keys (2, 3) is not (2, 4)" },
        { 4, { 5, 4 }, 2, "attention: " },
    };
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l  = tn_nn_attention_with(cx, 6, 3,
                                        (tn_nn_attention_opts){ .key_width = 4, .value_width = 2 });
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tn_tensor *y,
            *x[] = { tn_ones(cx, TN_F32, TN_SHAPE(2, 3, 6)), tn_ones(cx, TN_F32, TN_SHAPE(2, 4, 4)),
                     tn_ones(cx, TN_F32, TN_SHAPE(2, 4, 2)), NULL, NULL };
        x[wrong[i].at] = tn_ones(cx, TN_F32, wrong[i].rank, wrong[i].size);
        CHECK_STATUS(tn_forward_n(l, 5, x, 1, &y), TN_ESHAPE);
        CHECK_FAILED(cx, TN_ESHAPE, wrong[i].part);
    }
    tn_close(cx);
}

static void norms_without_affine_have_no_parameters(void)
{
    tn_ctx         *cx = rules_open("cpu");
    tn_nn_norm_opts o  = { .no_affine = true };
    CHECK_STR(list(tn_nn_batch_norm_with(cx, 2, o)).names,
              "running_mean running_var num_batches_tracked ");
    CHECK_STR(list(tn_nn_layer_norm_nd(cx, TN_SHAPE(2), o)).names, "");
    CHECK_STR(list(tn_nn_rms_norm_nd(cx, TN_SHAPE(2), o)).names, "");
    tn_layer *l = tn_nn_group_norm_with(cx, 1, 2, o);
    CHECK_STR(list(l).names, "");
    NEAR(tn_forward(l, tn_from(cx, TN_F32, TN_SHAPE(1, 2), (float[]){ -3, 3 })), 1e-5, -1, 1);
    tn_close(cx);
}

// ---- layers without parameters -----------------------------------------------------------------

static void dropout_is_for_training_only(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *l = tn_nn_dropout(cx, 0.5);
        tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(1000)), *y = tn_forward(l, x);
        double     zeros = tn_item(tn_sum_all(tn_eq_s(y, 0)));
        CHECK(zeros > 400 && zeros < 600);
        CHECK_NEAR(tn_item(tn_max_all(y)), 2, 0);
        tn_layer_train(l, false);
        CHECK_INT(tn_item(tn_sum_all(tn_eq_s(tn_forward(l, x), 1))), 1000);
    }
}

static void attention_drops_in_training_only(void)
{
    tn_ctx              *cx = rules_open("cpu");
    tn_nn_attention_opts o  = { .dropout = 0.5 };
    tn_layer            *l  = tn_nn_attention_with(cx, 8, 2, o);
    tn_tensor           *x  = tn_randn(cx, TN_F32, TN_SHAPE(2, 5, 8));
    CHECK(tn_item(tn_all_all(tn_eq(tn_forward(l, x), tn_forward(l, x)))) == 0);
    tn_layer_train(l, false);
    CHECK(tn_item(tn_all_all(tn_eq(tn_forward(l, x), tn_forward(l, x)))) == 1);
    tn_close(cx);
}

static tn_tensor *plus_one(tn_tensor *x)
{
    return tn_add_s(tn_mul_s(x, 1), 1);
}

static void small_layers_do_what_their_ops_do(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_reshape(rules_ramp(cx, 16), TN_SHAPE(1, 1, 4, 4));
        CHECK_VALUES(tn_forward(tn_nn_max_pool2d(cx, 2), x), 6, 8, 14, 16);
        CHECK_VALUES(tn_forward(tn_nn_avg_pool2d(cx, 2), x), 3.5, 5.5, 11.5, 13.5);
        CHECK_VALUES(tn_forward(tn_nn_adaptive_avg_pool2d(cx, 1, 2), x), 7.5, 9.5);
        tn_pool_opts o = { .stride = { 2, 1 } };
        CHECK_VALUES(tn_forward(tn_nn_max_pool2d_hw(cx, 2, 4, o), x), 8, 16);
        CHECK_VALUES(tn_forward(tn_nn_avg_pool2d_hw(cx, 4, 3, o), x), 8, 9);
        tn_tensor *flat = tn_forward(tn_nn_flatten(cx), tn_zeros(cx, TN_F32, TN_SHAPE(2, 3, 4)));
        CHECK(tn_rank(flat) == 2 && tn_size(flat, 0) == 2 && tn_size(flat, 1) == 12);
        CHECK_VALUES(tn_forward(tn_nn_act(cx, plus_one), rules_ramp(cx, 2)), 2, 3);
    }
}

static void residual_adds_a_shortcut_and_ends_with_a_function(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 2);
        CHECK_VALUES(tn_forward(tn_nn_residual(cx, tn_nn_act(cx, plus_one)), x), 3, 5);
        tn_nn_residual_opts o = { .shortcut = tn_nn_act(cx, tn_square), .f = tn_neg };
        tn_layer           *l = tn_nn_residual_with(cx, tn_nn_act(cx, plus_one), o);
        CHECK_VALUES(tn_forward(l, x), -3, -7);
        o = (tn_nn_residual_opts){ .shortcut = tn_nn_linear(cx, 2, 2) };
        l = tn_nn_residual_with(cx, tn_nn_linear(cx, 2, 2), o);
        CHECK_STR(list(l).names, "body.weight body.bias shortcut.weight shortcut.bias ");
    }
}

static void standardize_scales_what_goes_in_and_numbers_that_come_out(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_reshape(rules_ramp(cx, 4), TN_SHAPE(2, 2));
        tn_layer  *l = tn_nn_standardize(cx, 2, tn_nn_act(cx, plus_one));
        CHECK_STR(list(l).names, "mean std ");
        CHECK_VALUES(tn_forward(l, x), 2, 3, 4, 5);
        tn_assign(tn_layer_find(l, "mean"), tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 1, 2 }));
        tn_assign(tn_layer_find(l, "std"), tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 2, 4 }));
        CHECK_VALUES(tn_forward(l, x), 1, 1, 2, 1.5);

        tn_nn_standardize_opts o = { .outputs = 1 };
        l = tn_nn_standardize_nd(cx, TN_SHAPE(2, 1, 1), tn_nn_linear(cx, 1, 1), o);
        CHECK_STR(list(l).names, "mean std target_mean target_std net.weight net.bias ");
        tn_init_constant(tn_layer_find(l, "net.weight"), 1);
        tn_init_constant(tn_layer_find(l, "net.bias"), 0);
        tn_fill_(tn_layer_find(l, "target_std"), 10);
        tn_fill_(tn_layer_find(l, "target_mean"), 5);
        CHECK_VALUES(tn_forward(l, tn_reshape(x, TN_SHAPE(1, 2, 2, 1))), 15, 25, 35, 45);
    }
}

static void an_activations_temporaries_die_with_the_call(void)
{
    tn_ctx    *cx     = rules_open("cpu");
    tn_layer  *l      = tn_nn_act(cx, plus_one);
    tn_tensor *x      = rules_ramp(cx, 2);
    int64_t    before = tn_ctx_stats(cx).nodes;
    for (int i = 0; i < 3; i++) tn_drop(tn_forward(l, x));
    CHECK_INT(tn_ctx_stats(cx).nodes, before);
    tn_close(cx);
}

// ---- options -----------------------------------------------------------------------------------

static void rule_24_zero_is_the_default_and_tn_zero_a_real_zero(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *same = tn_ones(cx, TN_F32, TN_SHAPE(1, 2));
        CHECK_VALUES(tn_forward(tn_nn_layer_norm(cx, 2), same), 0, 0);
        tn_nn_norm_opts o = { .eps = TN_ZERO };
        CHECK_VALUES(tn_forward(tn_nn_layer_norm_nd(cx, TN_SHAPE(2), o), same), NAN, NAN);

        tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 1), (float[]){ 0, 20 });
        tn_layer  *l = tn_nn_batch_norm(cx, 1);
        tn_forward(l, x);
        CHECK_NEAR(tn_item(tn_layer_find(l, "running_mean")), 1, 1e-6);
        l = tn_nn_batch_norm_with(cx, 1, (tn_nn_norm_opts){ .momentum = TN_ZERO });
        tn_forward(l, x);
        CHECK_NEAR(tn_item(tn_layer_find(l, "running_mean")), 0, 0);

        tn_tensor *w = tn_ones(cx, TN_F32, TN_SHAPE(2, 2));
        CHECK_VALUES(tn_init_kaiming_normal(w, (tn_init_opts){ .gain = TN_ZERO }), 0, 0, 0, 0);
        // The bare name of a function beside its call-site form.
        CHECK_VALUES(tn_forward(tn_nn_act(cx, tn_neg), rules_ramp(cx, 2)), -1, -2);
        tn_layer *block4 = tn_nn_transformer_block(cx, 4, 2);
        CHECK_INT(tn_size(tn_layer_find(block4, "linear1.weight"), 0), 16);
    }
}

// ---- wrong arguments ---------------------------------------------------------------------------

static void refused(tn_ctx *cx, tn_layer *l, int line, const char *part)
{
    test_case_result(!l && tn_error(cx) == TN_EARG && strstr(tn_error_text(cx), part),
                     "line %d: %s, not \"%s\"", line, l ? "made" : tn_error_text(cx), part);
    tn_error_clear(cx);
}
#define REFUSED(call, part) refused(cx, call, __LINE__, part)

static void constructors_refuse_wrong_sizes(void)
{
    tn_ctx         *cx = rules_open("cpu");
    tn_nn_norm_opts o  = { 0 };
    REFUSED(tn_nn_linear(cx, 0, 3), "nn_linear: in 0 is not in 1 .. ");
    REFUSED(tn_nn_linear(cx, 3, -1), "nn_linear: out -1");
    REFUSED(tn_nn_linear(cx, INT64_MAX, 3), "nn_linear: in 9223372036854775807");
    REFUSED(tn_nn_conv1d(cx, 1, 1, 0), "nn_conv1d: kernel 0");
    REFUSED(tn_nn_conv2d(cx, 0, 1, 3), "nn_conv2d: in 0");
    REFUSED(tn_nn_conv2d_hw(cx, 3, 4, 3, 3, (tn_nn_conv_opts){ .groups = 2 }),
            "nn_conv2d: groups 2 does not divide in 3 and out 4");
    REFUSED(tn_nn_conv2d_hw(cx, 3, 4, 3, 3, (tn_nn_conv_opts){ .groups = -1 }), "groups -1");
    REFUSED(tn_nn_conv2d_hw(cx, 3, 4, 3, 3, (tn_nn_conv_opts){ .padding = { 0, -2 } }),
            "nn_conv2d: padding -2 is negative");
    REFUSED(tn_nn_conv2d_hw(cx, 3, 4, 3, 3, (tn_nn_conv_opts){ .stride = { 2, -1 } }),
            "nn_conv2d: stride -1 is negative");
    REFUSED(tn_nn_conv3d_dhw(cx, 3, 4, 3, 3, 3, (tn_nn_conv_opts){ .output_padding = { 0, 1 } }),
            "nn_conv3d: output_padding 1 is for transposed convolutions");
    REFUSED(tn_nn_conv_transpose3d(cx, 3, 4, 0), "nn_conv_transpose3d: kernel 0");
    REFUSED(tn_nn_conv_transpose2d_hw(
                cx, 3, 4, 2, 2, (tn_nn_conv_opts){ .stride = { 1, 2 }, .output_padding = { 1 } }),
            "nn_conv_transpose2d: output_padding 1 has to be below stride 1 or dilation 1");
    REFUSED(tn_nn_conv_transpose1d_with(cx, 3, 4, 2, (tn_nn_conv_opts){ .groups = 2 }),
            "nn_conv_transpose1d: groups 2 does not divide in 3 and out 4");
    REFUSED(tn_nn_max_pool3d(cx, 0), "nn_max_pool3d: depth 0");
    REFUSED(tn_nn_batch_norm(cx, 0), "nn_batch_norm: channels 0");
    REFUSED(tn_nn_layer_norm(cx, -4), "nn_layer_norm: size -4");
    REFUSED(tn_nn_layer_norm_nd(cx, TN_0D, o), "nn_layer_norm: there are no axes");
    REFUSED(tn_nn_rms_norm(cx, 0), "nn_rms_norm: size 0");
    REFUSED(tn_nn_group_norm(cx, 3, 4), "nn_group_norm: groups 3 does not divide channels 4");
    REFUSED(tn_nn_embedding(cx, 10, 0), "nn_embedding: width 0");
    REFUSED(tn_nn_max_pool2d(cx, 0), "nn_max_pool2d: height 0");
    REFUSED(tn_nn_avg_pool2d_hw(cx, 2, 2, (tn_pool_opts){ .stride = { -1 } }),
            "nn_avg_pool2d: stride -1 is negative");
    REFUSED(tn_nn_adaptive_avg_pool2d(cx, 1, -1), "nn_adaptive_avg_pool2d: width -1");
    REFUSED(tn_nn_attention(cx, 10, 3), "nn_attention: heads 3 does not divide width 10");
    REFUSED(tn_nn_transformer_block(cx, 10, 0), "nn_transformer_block: heads 0");
    REFUSED(tn_nn_instance_norm(cx, 0, (tn_nn_instance_norm_opts){ 0 }),
            "nn_instance_norm: channels 0");
    REFUSED(tn_nn_bilinear(cx, 1, 0, 1, (tn_nn_linear_opts){ 0 }), "nn_bilinear: in2 0");
    REFUSED(tn_nn_swiglu(cx, 1, 0, (tn_nn_linear_opts){ 0 }), "nn_swiglu: hidden 0");
    REFUSED(tn_nn_prelu(cx, 0), "nn_prelu: count 0");
    REFUSED(tn_nn_positional(cx, 4, (tn_nn_positional_opts){ .base = -1 }),
            "nn_positional: base -1");
    REFUSED(tn_nn_attention_with(cx, 4, 2, (tn_nn_attention_opts){ .key_width = -1 }),
            "nn_attention: key_width -1");
    tn_close(cx);
}

static void constructors_refuse_wrong_numbers_and_functions(void)
{
    tn_ctx *cx = rules_open("cpu");
    REFUSED(tn_nn_dropout(cx, 1.5), "nn_dropout: p 1.5 is not in 0 .. 1");
    REFUSED(tn_nn_dropout(cx, NAN), "nn_dropout: p nan");
    REFUSED(tn_nn_attention_with(cx, 4, 2, (tn_nn_attention_opts){ .dropout = -1 }),
            "nn_attention: dropout -1");
    REFUSED(tn_nn_batch_norm_with(cx, 2, (tn_nn_norm_opts){ .eps = -1 }),
            "nn_batch_norm: eps -1 is not 0 or more");
    REFUSED(tn_nn_batch_norm_with(cx, 2, (tn_nn_norm_opts){ .momentum = 2 }),
            "nn_batch_norm: momentum 2 is not in 0 .. 1");
    REFUSED(tn_nn_transformer_block_with(cx, 4, 2, (tn_nn_transformer_opts){ .hidden = -1 }),
            "nn_transformer_block: hidden -1");
    REFUSED(tn_nn_act(cx, NULL), "nn_act: the function is NULL");
    REFUSED(tn_nn_seq_n(cx, 0, NULL), "nn_seq: there are no layers");
    REFUSED(tn_nn_seq(cx, tn_nn_flatten(cx), NULL), "nn_seq: layer 1 is NULL");
    REFUSED(tn_nn_residual(cx, NULL), "nn_residual: body is NULL");
    REFUSED(tn_nn_standardize(cx, 2, NULL), "nn_standardize: body is NULL");
    REFUSED(tn_nn_standardize(cx, 0, tn_nn_flatten(cx)), "nn_standardize: size 0 is not in 1");
    REFUSED(tn_nn_standardize_nd(cx, TN_SHAPE(2), tn_nn_flatten(cx),
                                 (tn_nn_standardize_opts){ .outputs = -1 }),
            "nn_standardize: outputs -1 is not in 1");
    REFUSED(tn_nn_seq(cx, tn_nn_linear(cx, 0, 1), tn_nn_linear(cx, 1, 0)), "nn_linear: in 0");
    tn_close(cx);
    CHECK(tn_nn_linear(NULL, 1, 1) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "nn_linear: the context is NULL");
    CHECK(tn_nn_flatten(NULL) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "nn_flatten: the context is NULL");
}

static void a_refused_container_leaves_its_layers_to_the_context(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *a  = tn_nn_linear(cx, 2, 2);
    CHECK(tn_nn_seq(cx, a, a) == NULL);
    CHECK_FAILED2(cx, TN_EARG, "\"1\"", "has a parent already");
    CHECK(tn_nn_residual_with(cx, a, (tn_nn_residual_opts){ .shortcut = a }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\"shortcut\" has a parent already");
    CHECK(tn_forward(a, tn_ones(cx, TN_F32, TN_SHAPE(1, 2))) != NULL);
    tn_layer *net = tn_nn_seq(cx, a);
    CHECK_INT(tn_layer_count(net), 6);
    tn_layer_free(net);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

static tn_tensor *nothing(tn_tensor *x)
{
    (void)x;
    return NULL;
}

static void wrong_inputs_name_the_layer_or_the_op(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));
    CHECK(tn_forward(tn_nn_attention(cx, 4, 2), x) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "nn_attention: x (2, 3) is not (B, T, 4)");
    CHECK(tn_forward(tn_nn_seq(cx, tn_nn_linear(cx, 3, 4), tn_nn_linear(cx, 3, 4)), x) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "linear: ");
    CHECK(tn_forward(tn_nn_act(cx, nothing), x) == NULL);
    CHECK_FAILED(cx, TN_EUSER, "returned no tensor");
    CHECK(tn_forward(tn_nn_embedding(cx, 3, 3), x) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "embed: ");
    tn_close(cx);
}

const test_case tests_nn[] = {
    TEST(layers_give_pytorchs_values_gradients_and_names),
    TEST(gradients_of_layers_agree_with_differences),
    TEST(batch_norm_remembers_what_pytorch_remembers),
    TEST(instance_norm_remembers_what_pytorch_remembers),
    TEST(a_normalized_weight_is_trained_and_becomes_plain_again),
    TEST(a_pruned_weight_keeps_its_mask),
    TEST(wrong_weights_are_not_normalized),
    TEST(attention_names_the_input_that_does_not_fit),
    TEST(batch_norm_in_evaluation_uses_and_keeps_its_statistics),
    TEST(a_batch_of_nothing_runs_and_changes_nothing),
    TEST(norms_without_affine_have_no_parameters),
    TEST(dropout_is_for_training_only),
    TEST(attention_drops_in_training_only),
    TEST(small_layers_do_what_their_ops_do),
    TEST(residual_adds_a_shortcut_and_ends_with_a_function),
    TEST(standardize_scales_what_goes_in_and_numbers_that_come_out),
    TEST(an_activations_temporaries_die_with_the_call),
    TEST(rule_24_zero_is_the_default_and_tn_zero_a_real_zero),
    TEST(constructors_refuse_wrong_sizes),
    TEST(constructors_refuse_wrong_numbers_and_functions),
    TEST(a_refused_container_leaves_its_layers_to_the_context),
    TEST(wrong_inputs_name_the_layer_or_the_op),
    TEST_END,
};
