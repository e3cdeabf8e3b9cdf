// Functions that the models share. TN_PLAIN is defined, so their calls have no lines: an error
// names the line of the user's call that makes or runs the network.
#ifndef TNI_MODELS_PART_H
#define TNI_MODELS_PART_H

#define TN_PLAIN
#include <tenon.h>

// Here a name of models.h is the function behind both of its call forms, as names of tenon.h are in
// src/.
#undef TN_API
#undef TN_FORM
#define TN_API                        __attribute__((visibility("hidden")))
#define TN_FORM(result, name, params) TN_API result name params __asm__("tni_" #name);
#include <tenon/models.h>

// Makes a layer that runs f, with a zeroed struct of this size as its tn_layer_self. Returns NULL
// with an error on failure.
tn_layer *tni_model_part(tn_ctx *cx, tn_forward_fn *f, size_t bytes);
// The same for a function of several inputs.
tn_layer *tni_model_part_n(tn_ctx *cx, tn_forward_n_fn *f, tn_layer_counts n, size_t bytes);
// Ends the construction of l: returns l if ok. Otherwise frees l and returns NULL.
tn_layer *tni_model_done(tn_layer *l, bool ok);

// ---- parts of networks for images --------------------------------------------------------------

// Makes a sequence whose children have names, at most TNI_CHAIN of them. tni_chain_add appends one;
// a failure is noted, so that only tni_chain_done, which ends the construction, needs a check. l
// may be NULL.
enum { TNI_CHAIN = 16 };
tn_layer *tni_model_chain(tn_ctx *cx);
void      tni_chain_add(tn_layer *l, const char *name, tn_layer *step);
tn_layer *tni_chain_done(tn_layer *l);
// Makes a convolution with a k x k kernel, initialized for relu as in torchvision: by its outputs.
tn_layer *tni_model_conv(tn_ctx *cx, int64_t in, int64_t out, int64_t k, tn_nn_conv_opts o);
// Makes a linear layer with normal weights of this standard deviation and a zero bias.
tn_layer *tni_model_linear(tn_ctx *cx, int64_t in, int64_t out, double std);
// Returns an option: `usual` for 0, 0 for TN_ZERO.
double tni_model_default(double v, double usual);

// ---- parts of language models: B batch, T tokens, C width, H heads, D = C / H ------------------

// Makes an embedding with normal weights of this standard deviation instead of PyTorch's 1.
tn_layer *tni_model_embedding(tn_ctx *cx, int64_t count, int64_t width, double std);
// Makes the output layer: no bias, and a weight (vocab, C), which may be tied to an embedding.
tn_layer *tni_model_head(tn_ctx *cx, tn_tensor *weight);

// Makes one block of a network by its options.
typedef tn_layer *tni_new_block(tn_ctx *cx, const void *opts);
// Makes n blocks, named "0", "1", ..., that run one after the other. Of `inputs` inputs the first
// goes through all blocks, and each block is given the others as they are.
tn_layer *tni_model_stack(tn_ctx *cx, int64_t n, int inputs, tni_new_block *make, const void *opts);

// Reshapes (B, T, H D) to (B, H, T, D), and back.
tn_tensor *tni_split_heads(tn_tensor *x, int64_t H);
tn_tensor *tni_join_heads(tn_tensor *x);

// Whether x is (B, T) and, after the tokens in the cache that l runs with, within the context.
// Reports an error of this model otherwise.
bool tni_tokens_ok(tn_layer *l, const char *model, tn_tensor *x, int64_t context);

// A size of a model, by the name of its option.
typedef struct {
    const char *name;
    int64_t     v;
} tni_model_size;
// Whether all n sizes are in 1 .. INT_MAX. Reports the first that is not otherwise.
bool tni_sizes_ok(tn_ctx *cx, const char *model, size_t n, const tni_model_size *sizes);

#endif
