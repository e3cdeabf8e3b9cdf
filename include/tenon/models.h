// models.h: networks people know, ready to use. Their parameters are named as torchvision and
// Hugging Face name them, so that weights can be exchanged. They are written against tenon.h alone
// (models/ in the source), and are layers like any other.
#ifndef TENON_MODELS_H
#define TENON_MODELS_H

#include <tenon.h>

#ifdef __cplusplus
extern "C" {
#endif

// Linear layers of these sizes with relu between; x is flattened first:
// tn_mlp(cx, TN_SHAPE(784, 256, 128, 10)). Named as a torch.nn.Sequential of these layers: "1.weight",
// "1.bias", "3.weight", ...
TN_API tn_layer *tn_mlp(tn_ctx *cx, int n, const int64_t *sizes);

// For 28 x 28 images: conv 3x3 32, batch norm, relu, pool 2, conv 3x3 64, batch norm, relu, pool 2,
// flatten, linear 128, relu, linear 10. Named as a torch.nn.Sequential of these layers: "0.weight"
// is the first convolution's, "11.weight" that of the last layer.
TN_API tn_layer *tn_lenet(tn_ctx *cx);

typedef struct {
    int     depth;     // 18 or 50 for ImageNet's 224 x 224, 20 or 56 for CIFAR's 32 x 32; 0: 18
    int64_t classes;   // 0: 1000, or 10 for CIFAR's
    int64_t channels;  // of the image, 0: 3
} tn_resnet_opts;
// 18 and 50 have torchvision's names. In 20 and 56 the last layer is "linear", and shortcuts to more
// channels have no parameters: every second pixel, and zeros.
TN_API tn_layer *tn_resnet(tn_ctx *cx, tn_resnet_opts o);

typedef struct {
    int64_t layers, heads, width;  // 0: 12, 12, 768
    int64_t vocab, context;        // 0: 50257, 1024
    double  dropout;               // below 1; 0: 0.1; TN_ZERO: none
} tn_gpt2_opts;
// Tokens (B, T), i64 or i32, to logits (B, T, vocab); T up to context. The output layer is tied to
// the embedding. Named as Hugging Face's GPT2LMHeadModel. The files they publish lack the first part
// of the names and hold the masks: tn_load_opts .add_prefix = "transformer.", .ignore = "*.attn.bias".
TN_API tn_layer *tn_gpt2(tn_ctx *cx, tn_gpt2_opts o);

#include "models_sites.h"

#ifdef __cplusplus
}
#endif

#endif
