// old.h: old spellings. They keep working in this version, with the same meaning, and will be
// removed in the next one. Define TN_NO_OLD before <tenon.h> to hide them: the compiler then
// reports every use.
//
// Part of tenon.h, which includes it.
#ifndef TENON_OLD_H
#define TENON_OLD_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

#if !defined(TN_NO_OLD) && !defined(TN_INSIDE)

// Getters are named tn_<subject>_<noun>.
#define tn_devices    tn_device_count
#define tn_stats_get  tn_ctx_stats
#define tn_plan_bytes tn_ctx_plan_memory
#define tn_data_class tn_data_class_name

// tn_X_with takes the arguments of tn_X and options. These took other sizes than tn_X: a height and
// a width (hw), a shape (nd), or a dilation.
#define tn_window_with         tn_window_dilated
#define tn_nn_conv2d_with      tn_nn_conv2d_hw
#define tn_nn_max_pool2d_with  tn_nn_max_pool2d_hw
#define tn_nn_avg_pool2d_with  tn_nn_avg_pool2d_hw
#define tn_nn_layer_norm_with  tn_nn_layer_norm_nd
#define tn_nn_rms_norm_with    tn_nn_rms_norm_nd
#define tn_nn_standardize_with tn_nn_standardize_nd

// A type is a noun, and its values carry its name.
typedef tn_reduction tn_reduce;
#define TN_MEAN TN_REDUCTION_MEAN
#define TN_SUM  TN_REDUCTION_SUM
#define TN_NONE TN_REDUCTION_NONE

// A tokenizer is not only GPT-2's.
typedef tn_tokenizer tn_bpe;
#define tn_bpe_open   tn_tokenizer_gpt2
#define tn_bpe_count  tn_tokenizer_count
#define tn_bpe_encode tn_tokenizer_encode
#define tn_bpe_decode tn_tokenizer_decode
#define tn_bpe_free   tn_tokenizer_free

// Arguments come in PyTorch's order, here the index first: tn_embed(index, weight).
static inline tn_tensor *tn_embedding(tn_tensor *weight, tn_tensor *index)
{
    return (tn_embed)(index, weight);
}

// Settings are double, and a function that adds something says so: tn_optim_add_group.
static inline tn_status tn_optim_group(tn_optim *o, const char *names, float lr_scale,
                                       float weight_decay)
{
    return (tn_optim_add_group)(o, names, (double)lr_scale, (double)weight_decay);
}

// The call forms of these two functions, which pass on the line of the call.
#ifndef TN_PLAIN
#define tn_embedding(weight, index) tn_embed(index, weight)
#define tn_optim_group(o, names, lr_scale, weight_decay) \
    tn_optim_add_group(o, names, (double)(float)(lr_scale), (double)(float)(weight_decay))
#endif

#endif

#endif
