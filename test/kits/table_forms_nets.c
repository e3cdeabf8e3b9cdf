// table_forms_nets.c: products, networks and losses, as table_forms.c has the other ops.
// N batch, C channels, T queries, S keys, D their size
#include "table_forms.h"

#include <math.h>

// ---- products ----------------------------------------------------------------------------------

FORM(f_matmul, tn_matmul(x[0], x[1]))
FORM(f_matmul_views, tn_matmul(tn_transpose(x[0], -1, -2), tn_flip(x[1], -1)))
FORM(f_matmul_self, tn_matmul(x[0], tn_transpose(x[0], 0, 1)))
FORM(f_linear, tn_linear(x[0], x[1], x[2]))
FORM(f_linear_plain, tn_linear(x[0], x[1], NULL))
FORM(f_conv1d, tn_conv1d(x[0], x[1], x[2], (tn_conv_opts){ 0 }))
FORM(f_conv1d_with,
     tn_conv1d(x[0], x[1], NULL,
               (tn_conv_opts){ .stride = { 2 }, .padding = { 2 }, .dilation = { 2 } }))
FORM(f_conv1d_groups, tn_conv1d(x[0], x[1], NULL, (tn_conv_opts){ .groups = 2, .padding = { 1 } }))
FORM(f_conv2d, tn_conv2d(x[0], x[1], x[2], (tn_conv_opts){ 0 }))
FORM(f_conv2d_stride, tn_conv2d(x[0], x[1], NULL, (tn_conv_opts){ .stride = { 2, 1 } }))
FORM(f_conv2d_padding,
     tn_conv2d(x[0], x[1], NULL, (tn_conv_opts){ .padding = { 1, 2 }, .stride = { 2 } }))
FORM(f_conv2d_dilation,
     tn_conv2d(x[0], x[1], NULL, (tn_conv_opts){ .dilation = { 2, 1 }, .padding = { 1 } }))
FORM(f_conv2d_groups, tn_conv2d(x[0], x[1], NULL, (tn_conv_opts){ .groups = 2 }))
FORM(f_conv2d_views, tn_conv2d(tn_transpose(x[0], 2, 3), tn_flip(x[1], 3), NULL,
                               (tn_conv_opts){ .padding = { 1 } }))

FORM(f_conv3d, tn_conv3d(x[0], x[1], x[2], (tn_conv_opts){ 0 }))
FORM(f_conv3d_with, tn_conv3d(x[0], x[1], NULL,
                              (tn_conv_opts){ .stride   = { 1, 2, 1 },
                                              .padding  = { 1, TN_NO_PADDING, 2 },
                                              .dilation = { 1, 1, 2 },
                                              .groups   = 2 }))
FORM(f_conv3d_last, tn_conv3d(tn_channels_last(x[0]), x[1], NULL,
                              (tn_conv_opts){ .padding = { 1 }, .stride = { 2 } }))
FORM(f_transposed1d, tn_conv_transpose1d(x[0], x[1], x[2], (tn_conv_opts){ 0 }))
FORM(f_transposed1d_with, tn_conv_transpose1d(x[0], x[1], NULL,
                                              (tn_conv_opts){ .stride         = { 3 },
                                                              .padding        = { 1 },
                                                              .dilation       = { 2 },
                                                              .output_padding = { 2 } }))
// Output padding past the stride, below the dilation.
FORM(f_transposed1d_long, tn_conv_transpose1d(x[0], x[1], NULL,
                                              (tn_conv_opts){ .stride         = { 2 },
                                                              .padding        = { 2 },
                                                              .dilation       = { 4 },
                                                              .output_padding = { 3 } }))
FORM(f_transposed2d, tn_conv_transpose2d(x[0], x[1], x[2], (tn_conv_opts){ .stride = { 2 } }))
FORM(f_transposed2d_with,
     tn_conv_transpose2d(x[0], x[1], NULL,
                         (tn_conv_opts){ .stride         = { 2, 1 },
                                         .padding        = { 1, TN_NO_PADDING },
                                         .dilation       = { 1, 2 },
                                         .groups         = 2,
                                         .output_padding = { 1, TN_NO_PADDING } }))
FORM(f_transposed2d_last, tn_conv_transpose2d(tn_channels_last(x[0]), x[1], x[2],
                                              (tn_conv_opts){ .stride = { 2 }, .padding = { 1 } }))
FORM(f_transposed3d,
     tn_conv_transpose3d(x[0], x[1], x[2],
                         (tn_conv_opts){ .stride         = { 2, 1, 2 },
                                         .padding        = { 1 },
                                         .output_padding = { 1, TN_NO_PADDING, 1 } }))

// ---- pooling -----------------------------------------------------------------------------------

FORM(f_max_pool1d, tn_max_pool1d(x[0], 2, (tn_pool_opts){ 0 }))
FORM(f_max_pool1d_with,
     tn_max_pool1d(x[0], 2, (tn_pool_opts){ .stride = { 1 }, .padding = { 1 }, .dilation = { 2 } }))
FORM(f_avg_pool1d, tn_avg_pool1d(x[0], 3, (tn_pool_opts){ .stride = { 2 }, .padding = { 1 } }))
FORM(f_max_pool2d, tn_max_pool2d(x[0], 2, 2, (tn_pool_opts){ 0 }))
FORM(f_max_pool2d_with,
     tn_max_pool2d(x[0], 3, 2, (tn_pool_opts){ .stride = { 1, 2 }, .padding = { 1, 1 } }))
FORM(f_avg_pool2d, tn_avg_pool2d(x[0], 2, 2, (tn_pool_opts){ 0 }))
FORM(f_avg_pool2d_with,
     tn_avg_pool2d(x[0], 3, 2, (tn_pool_opts){ .stride = { 1 }, .padding = { 1 } }))
FORM(f_avg_pool2d_real,
     tn_avg_pool2d(x[0], 3, 2,
                   (tn_pool_opts){ .stride = { 2 }, .padding = { 1 }, .exclude_padding = true }))
FORM(f_max_pool3d, tn_max_pool3d(x[0], 2, 2, 3, (tn_pool_opts){ .padding = { 1, TN_NO_PADDING } }))
FORM(f_avg_pool3d, tn_avg_pool3d(x[0], 2, 1, 2, (tn_pool_opts){ .stride = { 1 } }))
FORM(f_adaptive_avg, tn_adaptive_avg_pool2d(x[0], 2, 3))
FORM(f_adaptive_avg_1, tn_adaptive_avg_pool2d(x[0], 1, 1))
FORM(f_adaptive_max, tn_adaptive_max_pool2d(x[0], 3, 2))

// ---- normalization -----------------------------------------------------------------------------

FORM(f_layer_norm, tn_layer_norm(x[0], 1, x[1], x[2], 0))
FORM(f_layer_norm_2, tn_layer_norm(x[0], 2, NULL, NULL, 1e-3))
FORM(f_rms_norm, tn_rms_norm(x[0], 1, x[1], 0))
FORM(f_rms_norm_plain, tn_rms_norm(x[0], 2, NULL, 1e-3))
FORM(f_group_norm, tn_group_norm(x[0], 2, x[1], x[2], 0))
FORM(f_group_norm_1, tn_group_norm(x[0], 1, NULL, NULL, 0))
FORM(f_batch_norm,
     tn_batch_norm(x[0], NULL, NULL, x[1], x[2], (tn_batch_norm_opts){ .training = true }))
FORM(f_batch_norm_plain, tn_batch_norm(x[0], NULL, NULL, NULL, NULL,
                                       (tn_batch_norm_opts){ .training = true, .eps = 1e-3 }))
FORM(f_batch_norm_eval, tn_batch_norm(x[0], FLOATS(0.1, -0.2, 0, 0.4), FLOATS(1, 0.5, 2, 0.25),
                                      x[1], x[2], (tn_batch_norm_opts){ 0 }))

// The running statistics that training leaves, of a batch that is not differentiated.
static tn_tensor *f_batch_norm_running(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *mean = tn_zeros(CX, TN_F32, TN_SHAPE(4)), *var = tn_ones(CX, TN_F32, TN_SHAPE(4));
    tn_batch_norm_opts o = { .training = true, .momentum = 0.3 };
    if (!tn_batch_norm(x[0], mean, var, NULL, NULL, o)) return NULL;
    if (!tn_batch_norm(x[0], mean, var, NULL, NULL, o)) return NULL;
    return tn_stack(2, (tn_tensor *const[]){ mean, var }, 0);
}

// ---- attention ---------------------------------------------------------------------------------

FORM(f_attention, tn_attention(x[0], x[1], x[2], (tn_attention_opts){ 0 }))
FORM(f_attention_causal, tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .causal = true }))
FORM(f_attention_scale, tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .scale = 0.4 }))
FORM(f_attention_mask,
     tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .mask = MASK2(2, 3, 1, 0, 1, 1, 1, 0) }))
FORM(f_attention_float, tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .mask = x[3] }))

// ---- rotary embedding: positions beyond what the scalings are told that the training had

#define ROPE(...) tn_rope(x[0], INDEX(0, 3, 41), (tn_rope_opts){ __VA_ARGS__ })
FORM(f_rope, tn_rope(x[0], NULL, (tn_rope_opts){ .start = 2 }))
FORM(f_rope_pairs, ROPE(.interleaved = true, .theta = 100))
FORM(f_rope_part, ROPE(.width = 4))
FORM(f_rope_part_pairs, ROPE(.width = 2, .interleaved = true))
FORM(f_rope_batch, tn_rope(x[0], INDEX2(2, 3, 0, 1, 2, 9, 8, 7), (tn_rope_opts){ .theta = 50 }))
FORM(f_rope_linear, ROPE(.scaling = TN_ROPE_LINEAR, .factor = 4))
FORM(f_rope_dynamic, ROPE(.scaling = TN_ROPE_DYNAMIC, .factor = 2, .trained = 16))
FORM(f_rope_llama3, ROPE(.scaling = TN_ROPE_LLAMA3, .factor = 8, .trained = 64))
FORM(f_rope_yarn, ROPE(.scaling = TN_ROPE_YARN, .factor = 4, .trained = 64, .beta_fast = 4))
FORM(f_rope_table, tn_rope_table(INDEX2(2, 2, 0, 1, 7, -3), (tn_rope_opts){ .width = 8 }))

static tn_tensor *f_rope_twice(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_rope_opts o     = { .width = 4, .dtype = DT };
    tn_tensor   *table = tn_rope_table(INDEX(5, 6, 7), o);
    return tn_mul(tn_rope(x[0], table, o), tn_rope(x[1], table, o));
}

static tn_tensor *f_attention_dropout(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_seed(CX, 9);
    return tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .dropout = 0.3, .causal = true });
}

// clang-format off
#define IMAGE             IN(4, APART, 2, 4, 4, 5)
#define SMALL_IMAGE       IN(4, APART, 1, 4, 3, 4)
#define SOLID_IMAGE       IN(5, APART, 1, 2, 3, 3, 4)
#define QKV               IN(3, APART, 2, 2, 3), IN(3, APART, 2, 3, 3), IN(3, APART, 2, 3, 2)

const form forms_nets[] = {
    { "matmul",              f_matmul,       SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 4, 2) } },
    { "matmul of views",     f_matmul_views, SMOOTH, 1, 2, { IN(2, APART, 4, 3), IN(2, APART, 4, 2) } },
    { "matmul by itself",    f_matmul_self,  SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "matmul (k) (k)",      f_matmul,       SMOOTH, 1, 2, { IN(1, APART, 5), IN(1, APART, 5) } },
    { "matmul (m, k) (k)",   f_matmul,       SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(1, APART, 4) } },
    { "matmul (k) (k, n)",   f_matmul,       SMOOTH, 1, 2, { IN(1, APART, 4), IN(2, APART, 4, 3) } },
    { "matmul batched",      f_matmul,       SMOOTH, 1, 2, { IN(3, APART, 2, 2, 3), IN(3, APART, 2, 3, 2) } },
    { "matmul batch by one", f_matmul,       SMOOTH, 1, 2, { IN(3, APART, 2, 2, 3), IN(2, APART, 3, 2) } },
    { "matmul one by batch", f_matmul,       SMOOTH, 1, 2, { IN(2, APART, 2, 3), IN(3, APART, 2, 3, 2) } },
    { "matmul broadcast",    f_matmul,       SMOOTH, 1, 2, { IN(4, APART, 2, 1, 2, 3), IN(3, APART, 2, 3, 2) } },
    { "matmul batch (k)",    f_matmul,       SMOOTH, 1, 2, { IN(3, APART, 2, 2, 3), IN(1, APART, 3) } },
    { "matmul (k) batch",    f_matmul,       SMOOTH, 1, 2, { IN(1, APART, 3), IN(3, APART, 2, 3, 2) } },
    { "linear",              f_linear,       SMOOTH, 2, 3, { IN(2, APART, 3, 4), IN(2, APART, 2, 4), IN(1, APART, 2) } },
    { "linear batched",      f_linear,       SMOOTH, 2, 3, { IN(3, APART, 2, 2, 3), IN(2, APART, 4, 3), IN(1, APART, 4) } },
    { "linear of a vector",  f_linear,       SMOOTH, 2, 3, { IN(1, APART, 4), IN(2, APART, 2, 4), IN(1, APART, 2) } },
    { "linear without bias", f_linear_plain, SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 2, 4) } },
    { "conv1d",              f_conv1d,       SMOOTH, 2, 3, { IN(3, APART, 2, 2, 6), IN(3, APART, 3, 2, 3), IN(1, APART, 3) } },
    { "conv1d with all",     f_conv1d_with,  SMOOTH, 1, 2, { IN(3, APART, 2, 2, 7), IN(3, APART, 2, 2, 3) } },
    { "conv1d groups",       f_conv1d_groups, SMOOTH, 1, 2, { IN(3, APART, 1, 4, 5), IN(3, APART, 4, 2, 2) } },
    { "conv2d",              f_conv2d,       SMOOTH, 2, 3, { SMALL_IMAGE, IN(4, APART, 2, 4, 2, 2), IN(1, APART, 2) } },
    { "conv2d 1 by 1",       f_conv2d,       SMOOTH, 2, 3, { SMALL_IMAGE, IN(4, APART, 3, 4, 1, 1), IN(1, APART, 3) } },
    { "conv2d stride",       f_conv2d_stride, SMOOTH, 1, 2, { SMALL_IMAGE, IN(4, APART, 2, 4, 2, 2) } },
    { "conv2d padding",      f_conv2d_padding, SMOOTH, 1, 2, { SMALL_IMAGE, IN(4, APART, 2, 4, 2, 3) } },
    { "conv2d dilation",     f_conv2d_dilation, SMOOTH, 1, 2, { SMALL_IMAGE, IN(4, APART, 2, 4, 2, 2) } },
    { "conv2d groups",       f_conv2d_groups, SMOOTH, 1, 2, { SMALL_IMAGE, IN(4, APART, 4, 2, 2, 2) } },
    { "conv2d of views",     f_conv2d_views, SMOOTH, 1, 2, { SMALL_IMAGE, IN(4, APART, 2, 4, 2, 3) } },
    { "conv3d",              f_conv3d,       SMOOTH, 2, 3, { SOLID_IMAGE, IN(5, APART, 2, 2, 2, 2, 1), IN(1, APART, 2) } },
    { "conv3d with all",     f_conv3d_with,  SMOOTH, 1, 2, { SOLID_IMAGE, IN(5, APART, 2, 1, 2, 2, 3) } },
    { "conv3d last",         f_conv3d_last,  SMOOTH, 1, 2, { SOLID_IMAGE, IN(5, APART, 3, 2, 2, 1, 2) } },
    { "conv_transpose1d",    f_transposed1d, SMOOTH, 2, 3, { IN(3, APART, 2, 2, 4), IN(3, APART, 2, 3, 3), IN(1, APART, 3) } },
    { "conv_transpose1d with all", f_transposed1d_with, SMOOTH, 1, 2, { IN(3, APART, 2, 2, 3), IN(3, APART, 2, 2, 3) } },
    { "conv_transpose1d long", f_transposed1d_long, SMOOTH, 1, 2, { IN(3, APART, 1, 2, 4), IN(3, APART, 2, 2, 2) } },
    { "conv_transpose2d",    f_transposed2d, SMOOTH, 2, 3, { SMALL_IMAGE, IN(4, APART, 4, 2, 3, 2), IN(1, APART, 2) } },
    { "conv_transpose2d with all", f_transposed2d_with, SMOOTH, 1, 2, { SMALL_IMAGE, IN(4, APART, 4, 3, 3, 2) } },
    { "conv_transpose2d last", f_transposed2d_last, SMOOTH, 2, 3, { SMALL_IMAGE, IN(4, APART, 4, 2, 3, 3), IN(1, APART, 2) } },
    { "conv_transpose3d",    f_transposed3d, SMOOTH, 2, 3, { IN(5, APART, 1, 2, 2, 3, 2), IN(5, APART, 2, 2, 3, 2, 2), IN(1, APART, 2) } },
    { "max_pool1d",          f_max_pool1d,      SMOOTH, 1, 1, { IN(3, APART, 2, 2, 6) } },
    { "max_pool1d with all", f_max_pool1d_with, SMOOTH, 1, 1, { IN(3, APART, 2, 2, 6) } },
    { "avg_pool1d",          f_avg_pool1d,      SMOOTH, 1, 1, { IN(3, APART, 2, 2, 6) } },
    { "max_pool2d",          f_max_pool2d,      SMOOTH, 1, 1, { IMAGE } },
    { "max_pool2d with all", f_max_pool2d_with, SMOOTH, 1, 1, { IMAGE } },
    { "max_pool3d",          f_max_pool3d,      SMOOTH, 1, 1, { SOLID_IMAGE } },
    { "avg_pool3d",          f_avg_pool3d,      SMOOTH, 1, 1, { SOLID_IMAGE } },
    { "avg_pool2d",          f_avg_pool2d,      SMOOTH, 1, 1, { IMAGE } },
    { "avg_pool2d with all", f_avg_pool2d_with, SMOOTH, 1, 1, { IMAGE } },
    { "avg_pool2d of real",  f_avg_pool2d_real, SMOOTH, 1, 1, { IMAGE } },
    { "adaptive_avg_pool2d", f_adaptive_avg,    SMOOTH, 1, 1, { IMAGE } },
    { "adaptive_avg_pool2d 1", f_adaptive_avg_1, SMOOTH, 1, 1, { IMAGE } },
    { "adaptive_max_pool2d", f_adaptive_max,    SMOOTH, 1, 1, { IMAGE } },
    { "layer_norm",          f_layer_norm,      SMOOTH, 1, 3, { IN(2, APART, 3, 4), IN(1, APART, 4), IN(1, APART, 4) } },
    { "layer_norm over 2",   f_layer_norm_2,    SMOOTH, 1, 1, { IN(3, APART, 2, 2, 3) } },
    { "rms_norm",            f_rms_norm,        SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(1, APART, 4) } },
    { "rms_norm over 2",     f_rms_norm_plain,  SMOOTH, 1, 1, { IN(3, APART, 2, 2, 3) } },
    { "group_norm",          f_group_norm,      SMOOTH, 1, 3, { IN(3, APART, 2, 4, 2), IN(1, APART, 4), IN(1, APART, 4) } },
    { "group_norm of 1",     f_group_norm_1,    SMOOTH, 1, 1, { IN(3, APART, 2, 4, 2) } },
    { "batch_norm",          f_batch_norm,      SMOOTH, 1, 3, { IN(3, APART, 3, 4, 2), IN(1, APART, 4), IN(1, APART, 4) } },
    { "batch_norm, plain",   f_batch_norm_plain, SMOOTH, 1, 1, { IN(2, APART, 5, 4) } },
    { "batch_norm outside training", f_batch_norm_eval, SMOOTH, 1, 3, { IN(3, APART, 2, 4, 2), IN(1, APART, 4), IN(1, APART, 4) } },
    { "batch_norm, running", f_batch_norm_running, NO_GRAD, 1, 1, { IN(3, APART, 3, 4, 2) } },
    { "rope",                f_rope,            SMOOTH, 1, 1, { IN(3, APART, 2, 3, 6) } },
    { "rope, interleaved",   f_rope_pairs,      SMOOTH, 1, 1, { IN(3, APART, 2, 3, 4) } },
    { "rope of a part",      f_rope_part,       SMOOTH, 1, 1, { IN(2, APART, 3, 6) } },
    { "rope of a part, interleaved", f_rope_part_pairs, SMOOTH, 1, 1, { IN(2, APART, 3, 5) } },
    { "rope by batch",       f_rope_batch,      SMOOTH, 1, 1, { IN(4, APART, 2, 2, 3, 4) } },
    { "rope, linear",        f_rope_linear,     SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "rope, dynamic",       f_rope_dynamic,    SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "rope, llama3",        f_rope_llama3,     SMOOTH, 1, 1, { IN(2, APART, 3, 8) } },
    { "rope, yarn",          f_rope_yarn,       SMOOTH, 1, 1, { IN(2, APART, 3, 8) } },
    { "rope_table",          f_rope_table,      NO_GRAD, 1, 1, { IN(1, APART, 1) } },
    { "rope by one table",   f_rope_twice,      SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "attention",           f_attention,         SMOOTH, 5, 3, { QKV } },
    { "attention causal",    f_attention_causal,  SMOOTH, 5, 3, { QKV } },
    { "attention scaled",    f_attention_scale,   SMOOTH, 5, 3, { QKV } },
    { "attention masked",    f_attention_mask,    SMOOTH, 5, 3, { QKV } },
    { "attention, float mask", f_attention_float, SMOOTH, 5, 4, { QKV, IN(2, APART, 2, 3) } },
    { "attention, dropout",  f_attention_dropout, SMOOTH, 6, 3, { QKV } },
    { "attention, one head", f_attention,         SMOOTH, 5, 3, { IN(3, APART, 2, 2, 3), IN(2, APART, 3, 3), IN(2, APART, 3, 2) } },
    { "attention large",     f_attention_causal,  NO_GRAD, 5, 3, { IN(3, APART, 3, 40, 16), IN(3, APART, 3, 50, 16), IN(3, APART, 3, 50, 24) } },
    { .name = NULL },
};
// clang-format on

// ---- losses ------------------------------------------------------------------------------------

#define TARGETS INDEX(2, 0, 3)
// Probabilities out of any numbers.
static tn_tensor *chances(tn_tensor *x)
{
    return tn_softmax(tn_mul_s(x, 2), 1);
}

FORM(f_cross_entropy, tn_cross_entropy(x[0], TARGETS))
FORM(f_cross_entropy_weight,
     tn_cross_entropy_with(x[0], TARGETS, (tn_class_opts){ .weight = FLOATS(0.5, 1, 2, 0.25) }))
FORM(f_cross_entropy_smooth,
     tn_cross_entropy_with(x[0], TARGETS, (tn_class_opts){ .label_smoothing = 0.1 }))
FORM(f_cross_entropy_both, tn_cross_entropy_with(x[0], TARGETS,
                                                 (tn_class_opts){ .label_smoothing = 0.2,
                                                                  .weight = FLOATS(0.5, 1, 2, 0.25),
                                                                  .reduce = TN_REDUCTION_SUM }))
FORM(f_cross_entropy_ignore,
     tn_cross_entropy_with(x[0], TARGETS, (tn_class_opts){ .ignore = 0, .use_ignore = true }))
FORM(f_cross_entropy_ignored, tn_cross_entropy(x[0], INDEX(2, -100, 1)))
FORM(f_cross_entropy_none,
     tn_cross_entropy_with(x[0], TARGETS, (tn_class_opts){ .reduce = TN_REDUCTION_NONE }))
FORM(f_cross_entropy_soft, tn_cross_entropy(x[0], chances(x[1])))
FORM(f_cross_entropy_soft_with,
     tn_cross_entropy_with(x[0], chances(x[1]),
                           (tn_class_opts){ .label_smoothing = 0.1,
                                            .weight          = FLOATS(0.5, 1, 2, 0.25),
                                            .reduce          = TN_REDUCTION_SUM }))
FORM(f_cross_entropy_image, tn_cross_entropy(x[0], INDEX2(2, 2, 0, 2, 1, 1)))
FORM(f_cross_entropy_vector, tn_cross_entropy(x[0], tn_full(CX, TN_I64, TN_0D, 2)))
FORM(f_nll, tn_nll(x[0], TARGETS))
FORM(f_nll_with,
     tn_nll_with(x[0], TARGETS,
                 (tn_class_opts){
                     .weight = FLOATS(0.5, 1, 2, 0.25), .ignore = 3, .use_ignore = true }))
FORM(f_nll_sum, tn_nll_with(x[0], TARGETS, (tn_class_opts){ .reduce = TN_REDUCTION_SUM }))
FORM(f_mse, tn_mse(x[0], x[1]))
FORM(f_mse_sum, tn_mse_with(x[0], x[1], (tn_loss_opts){ .reduce = TN_REDUCTION_SUM }))
FORM(f_mse_weight, tn_mse_with(x[0], x[1], (tn_loss_opts){ .weight = FLOATS(1, 2, 0.5, 3) }))
FORM(f_mse_none, tn_mse_with(x[0], x[1], (tn_loss_opts){ .reduce = TN_REDUCTION_NONE }))
FORM(f_l1, tn_l1(x[0], x[1]))
FORM(f_l1_weight, tn_l1_with(x[0], x[1], (tn_loss_opts){ .weight = FLOATS(1, 2, 0.5, 3) }))
FORM(f_huber, tn_huber(x[0], x[1]))
FORM(f_huber_with,
     tn_huber_with(x[0], x[1], (tn_loss_opts){ .delta = 0.3, .reduce = TN_REDUCTION_SUM }))
FORM(f_bce, tn_bce(x[0], x[1]))
FORM(f_bce_with,
     tn_bce_with(x[0], x[1],
                 (tn_loss_opts){ .weight = FLOATS(1, 2, 0.5, 3), .reduce = TN_REDUCTION_SUM }))
FORM(f_bce_none, tn_bce_with(x[0], x[1], (tn_loss_opts){ .reduce = TN_REDUCTION_NONE }))
FORM(f_bce_logits, tn_bce_logits(x[0], x[1]))
FORM(f_bce_logits_with, tn_bce_logits_with(x[0], x[1],
                                           (tn_loss_opts){ .pos_weight = FLOATS(1, 2, 0.5, 3),
                                                           .weight     = FLOATS(2, 1, 0.1, 1) }))
FORM(f_kl, tn_kl(tn_log_softmax(x[0], 1), chances(x[1])))
FORM(f_kl_batch,
     tn_kl_with(tn_log_softmax(x[0], 1), chances(x[1]), (tn_loss_opts){ .batch_mean = true }))
FORM(f_kl_log, tn_kl_with(tn_log_softmax(x[0], 1), tn_log_softmax(x[1], 1),
                          (tn_loss_opts){ .log_target = true, .reduce = TN_REDUCTION_SUM }))

// clang-format off
#define LOGITS     1, { IN(2, APART, 3, 4) }
#define PAIR(m, n) 2, { IN(2, m, 3, 4), IN(2, n, 3, 4) }

const form forms_losses[] = {
    { "cross_entropy",             f_cross_entropy,         SMOOTH, 1, LOGITS },
    { "cross_entropy weight",      f_cross_entropy_weight,  SMOOTH, 1, LOGITS },
    { "cross_entropy smoothing",   f_cross_entropy_smooth,  SMOOTH, 1, LOGITS },
    { "cross_entropy both",        f_cross_entropy_both,    SMOOTH, 1, LOGITS },
    { "cross_entropy ignore",      f_cross_entropy_ignore,  SMOOTH, 1, LOGITS },
    { "cross_entropy -100",        f_cross_entropy_ignored, SMOOTH, 1, LOGITS },
    { "cross_entropy none",        f_cross_entropy_none,    SMOOTH, 1, LOGITS },
    { "cross_entropy soft",        f_cross_entropy_soft,    SMOOTH, 3, PAIR(APART, APART) },
    { "cross_entropy soft, all",   f_cross_entropy_soft_with, SMOOTH, 3, PAIR(APART, APART) },
    { "cross_entropy of (N, C, T)", f_cross_entropy_image,  SMOOTH, 1, 1, { IN(3, APART, 2, 3, 2) } },
    { "cross_entropy of (C)",      f_cross_entropy_vector,  SMOOTH, 1, 1, { IN(1, APART, 4) } },
    { "nll",                       f_nll,                   SMOOTH, 1, LOGITS },
    { "nll with all",              f_nll_with,              SMOOTH, 1, LOGITS },
    { "nll sum",                   f_nll_sum,               SMOOTH, 1, LOGITS },
    { "mse",                       f_mse,                   SMOOTH | WIDE, 1, PAIR(APART, APART) },
    { "mse sum",                   f_mse_sum,               SMOOTH, 1, PAIR(APART, APART) },
    { "mse weight",                f_mse_weight,            SMOOTH, 1, PAIR(APART, APART) },
    { "mse none",                  f_mse_none,              SMOOTH | WIDE, 1, PAIR(APART, APART) },
    { "l1",                        f_l1,                    SMOOTH | WIDE, 1, PAIR(APART, UNIT) },
    { "l1 weight",                 f_l1_weight,             SMOOTH, 1, PAIR(APART, UNIT) },
    { "huber",                     f_huber,                 SMOOTH | WIDE, 1, PAIR(APART, APART) },
    { "huber with all",            f_huber_with,            SMOOTH, 1, PAIR(APART, APART) },
    { "bce",                       f_bce,                   SMOOTH | WIDE, 1, PAIR(UNIT, UNIT) },
    { "bce with all",              f_bce_with,              SMOOTH, 1, PAIR(UNIT, UNIT) },
    { "bce none",                  f_bce_none,              SMOOTH | WIDE, 1, PAIR(UNIT, UNIT) },
    { "bce_logits",                f_bce_logits,            SMOOTH | WIDE, 1, PAIR(APART, UNIT) },
    { "bce_logits with all",       f_bce_logits_with,       SMOOTH, 1, PAIR(APART, UNIT) },
    { "kl",                        f_kl,                    SMOOTH | WIDE, 4, PAIR(APART, APART) },
    { "kl batch mean",             f_kl_batch,              SMOOTH | WIDE, 4, PAIR(APART, APART) },
    { "kl log target",             f_kl_log,                SMOOTH, 4, PAIR(APART, APART) },
    { .name = NULL },
};
// clang-format on

const form *const form_tables[] = { forms_maps,   forms_folds,  forms_moves, forms_nets,
                                    forms_losses, forms_arrays, NULL };
