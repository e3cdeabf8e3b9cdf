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
    int depth;         // 18, 34, 50, 101 or 152 for ImageNet's 224 x 224, 20 or 56 for CIFAR's 32 x
                       // 32; 0: 18
    int64_t classes;   // 0: 1000, or 10 for CIFAR's
    int64_t channels;  // of the images; 0: 3
} tn_resnet_opts;
// Makes a residual network. 18 to 152 have torchvision's names. In 20 and 56 the last layer is
// named "linear", and shortcuts to more channels have no parameters: they take every second pixel
// and pad channels with zeros.
TN_API tn_layer *tn_resnet(tn_ctx *cx, tn_resnet_opts o);

typedef struct {
    int64_t classes, channels;  // 0: 1000, 3
    double  dropout;            // 0: 0.2; TN_ZERO: none
} tn_mobilenet_v2_opts;
// Makes MobileNetV2 with torchvision's names: from (B, channels, H, W) to (B, classes).
TN_API tn_layer *tn_mobilenet_v2(tn_ctx *cx, tn_mobilenet_v2_opts o);

typedef struct {
    int64_t size, patch;           // of the images and of a token, in pixels; 0: 224, 16
    int64_t layers, heads, width;  // 0: 12, 12, 768
    int64_t hidden;                // width of the feed-forward part; 0: 4 * width
    int64_t classes, channels;     // 0: 1000, 3
    double  dropout;               // 0: none
} tn_vit_opts;
// Makes a vision transformer with torchvision's names: from (B, channels, size, size) to (B,
// classes). The defaults are vit_b_16's; vit_l_16 has 24 layers, 16 heads and a width of 1024.
TN_API tn_layer *tn_vit(tn_ctx *cx, tn_vit_opts o);

typedef struct {
    int64_t blocks[4];          // of each stage; 0: 3, 3, 9, 3
    int64_t width;              // of the first stage, twice as many in each other; 0: 96
    int64_t classes, channels;  // 0: 1000, 3
    double  drop;  // with what probability the last block is left out for an item in training; 0:
                   // 0.1; TN_ZERO: never
} tn_convnext_opts;
// Makes a ConvNeXt with torchvision's names: from (B, channels, H, W) to (B, classes). The defaults
// are convnext_tiny's; small has blocks of 3, 3, 27 and 3, base also a width of 128, large of 192.
TN_API tn_layer *tn_convnext(tn_ctx *cx, tn_convnext_opts o);

typedef struct {
    int     levels;             // at each, H and W are halved; 0: 5
    int64_t width;              // of the first level, twice as many in each other; 0: 32
    int64_t classes, channels;  // 0: 2, 3
} tn_unet_opts;
// Makes a U-Net: from (B, channels, H, W) to (B, classes, H, W); H and W are multiples of
// 2^(levels - 1).
TN_API tn_layer *tn_unet(tn_ctx *cx, tn_unet_opts o);

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

typedef struct {
    int64_t layers, heads, width;  // 0: 22, 32, 2048
    int64_t
        kv_heads;  // heads of keys and values, which divides heads; 0: heads, or 4 if heads is 0
    int64_t      hidden;  // width of the feed-forward part; 0: 8/3 width, up to a multiple of 256
    int64_t      head_width;      // 0: width / heads
    int64_t      vocab, context;  // 0: 32000, 2048
    int64_t      window;          // each token sees that many tokens, up to itself; 0: all
    double       eps;             // of the norms; 0: 1e-5
    bool         tied;            // the output layer is tied to the embedding
    bool         qkv_bias;        // queries, keys and values have a bias, as in Qwen 2
    bool         out_bias;        // so has the layer after them
    bool         mlp_bias;        // and the feed-forward part
    tn_rope_opts rope;            // width 0: all of a head
} tn_llama_opts;
// Makes a Llama: from tokens (B, T), i64 or i32, to logits (B, T, vocab), with T up to context. A
// second input, which may be left out (tn_forward_n), has the positions of the tokens, (T) or (B,
// T), instead of 0, 1, ... Names are those of Hugging Face's LlamaForCausalLM. The defaults are
// TinyLlama's 1.1 B parameters.
TN_API tn_layer *tn_llama(tn_ctx *cx, tn_llama_opts o);

typedef struct {
    tn_dtype dtype;    // of the parameters: f32, f16, bf16 or f64; 0: that of the files
    int64_t  context;  // a shorter context than config.json says; 0: that one
} tn_pretrained_opts;
// Makes the network that a folder of Hugging Face's describes and loads it: config.json with a
// model_type of gpt2, llama, mistral or qwen2, and model.safetensors or the files that
// model.safetensors.index.json names. The network is in evaluation mode.
TN_API tn_layer *tn_pretrained(tn_ctx *cx, const char *folder);
TN_API tn_layer *tn_pretrained_with(tn_ctx *cx, const char *folder, tn_pretrained_opts o);

#include "models_sites.h"

#ifdef __cplusplus
}
#endif

#endif
