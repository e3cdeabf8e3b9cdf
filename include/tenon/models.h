// models.h: well-known networks, ready to use. Their parameters have the names of torchvision and
// Hugging Face, so that weights can be exchanged. They are ordinary layers, written against tenon.h
// alone (models/ in the source).
#ifndef TENON_MODELS_H
#define TENON_MODELS_H

#include <tenon.h>

#ifdef __cplusplus
extern "C" {
#endif

// Makes linear layers of these sizes with relu between them; x is flattened first: tn_mlp(cx,
// TN_SHAPE(784, 256, 128, 10)). Names are those of a torch.nn.Sequential of these layers:
// "1.weight", "1.bias", "3.weight", ...
TN_API tn_layer *tn_mlp(tn_ctx *cx, int n, const int64_t *sizes);

// Makes a network for 28 x 28 images: conv 3x3 32, batch norm, relu, pool 2, conv 3x3 64, batch
// norm, relu, pool 2, flatten, linear 128, relu, linear 10. Names are those of a
// torch.nn.Sequential of these layers: "0.weight" is the weight of the first convolution,
// "11.weight" of the last layer.
TN_API tn_layer *tn_lenet(tn_ctx *cx);

typedef struct {
    int     depth;     // 18 or 50 for ImageNet's 224 x 224, 20 or 56 for CIFAR's 32 x 32; 0: 18
    int64_t classes;   // 0: 1000, or 10 for CIFAR's
    int64_t channels;  // of the images; 0: 3
} tn_resnet_opts;
// Makes a residual network. 18 and 50 have torchvision's names. In 20 and 56 the last layer is
// named "linear", and shortcuts to more channels have no parameters: they take every second pixel
// and pad channels with zeros.
TN_API tn_layer *tn_resnet(tn_ctx *cx, tn_resnet_opts o);

typedef struct {
    int64_t layers, heads, width;  // 0: 12, 12, 768
    int64_t vocab, context;        // 0: 50257, 1024
    double  dropout;               // below 1; 0: 0.1; TN_ZERO: none
} tn_gpt2_opts;
// Makes GPT-2: from tokens (B, T), i64 or i32, to logits (B, T, vocab), with T up to context. The
// output layer is tied to the embedding. Names are those of Hugging Face's GPT2LMHeadModel. Their
// published files lack the first part of the names and contain the masks: load them with
// tn_load_opts .add_prefix = "transformer.", .ignore = "*.attn.bias".
TN_API tn_layer *tn_gpt2(tn_ctx *cx, tn_gpt2_opts o);

#include "models_sites.h"

#ifdef __cplusplus
}
#endif

#endif
