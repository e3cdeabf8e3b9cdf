// tenon-onnx --export FOLDER: writes every network of tenon/models.h as an ONNX model, with an
// input and what the network makes of it, for check_export.py:
//
//   FOLDER/resnet18/model.onnx   x.npy   y.npy
//
// Networks are small, unless TN_TEST_LONG is set. Opsets and places of weights take turns; the
// batch is a symbol, and x has another number of items than the model was saved with.
#include "export_zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tenon.h>
#include <tenon/models.h>

enum { ITEMS = 3 };  // that the model is run on

static bool full;  // as published

static tn_layer *resnet(tn_ctx *cx, int depth)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = depth });
}
static tn_layer *resnet18(tn_ctx *cx)
{
    return resnet(cx, 18);
}
static tn_layer *resnet50(tn_ctx *cx)
{
    return resnet(cx, 50);
}
static tn_layer *resnet20(tn_ctx *cx)
{
    return resnet(cx, 20);
}
static tn_layer *mlp(tn_ctx *cx)
{
    return tn_mlp(cx, TN_SHAPE(784, 128, 10));
}
static tn_layer *mobilenet(tn_ctx *cx)
{
    return tn_mobilenet_v2(cx, (tn_mobilenet_v2_opts){ 0 });
}
static tn_layer *vit(tn_ctx *cx)
{
    tn_vit_opts small = { .size = 64, .layers = 2, .heads = 4, .width = 64 };
    return tn_vit(cx, full ? (tn_vit_opts){ 0 } : small);
}
static tn_layer *convnext(tn_ctx *cx)
{
    tn_convnext_opts small = { .blocks = { 1, 1, 2, 1 }, .width = 16 };
    return tn_convnext(cx, full ? (tn_convnext_opts){ 0 } : small);
}
static tn_layer *unet(tn_ctx *cx)
{
    return tn_unet(cx, (tn_unet_opts){ .width = full ? 32 : 8 });
}
static tn_layer *gpt2(tn_ctx *cx)
{
    tn_gpt2_opts small = { .layers = 2, .heads = 4, .width = 64, .vocab = 211, .context = 64 };
    return tn_gpt2(cx, full ? (tn_gpt2_opts){ 0 } : small);
}
static tn_layer *gpt2_f16(tn_ctx *cx)
{
    tn_layer *l = gpt2(cx);
    tn_layer_cast(l, TN_F16);
    return l;
}
static tn_layer *llama(tn_ctx *cx)
{
    tn_llama_opts small = {
        .layers = 2, .heads = 4, .kv_heads = 2, .width = 64, .vocab = 211, .context = 64
    };
    if (full) small = (tn_llama_opts){ .layers = 4, .heads = 16, .kv_heads = 4, .width = 1024 };
    return tn_llama(cx, small);
}

// Two layers, which read in both directions.
static tn_layer *lstm(tn_ctx *cx)
{
    tn_nn_rnn_opts o = { .kind = TN_LSTM, .layers = 2, .bidirectional = true, .batch_first = true };
    return tn_nn_rnn(cx, 32, 64, o);
}

// size: of one item; vocab: items are tokens.
static const struct {
    const char *name;
    tn_layer *(*make)(tn_ctx *cx);
    int     rank;
    int64_t size[3];
    int64_t vocab;
} networks[] = {
    { "mlp", mlp, 1, { 784 }, 0 },
    { "lenet", tn_lenet, 3, { 1, 28, 28 }, 0 },
    { "resnet18", resnet18, 3, { 3, 224, 224 }, 0 },
    { "resnet50", resnet50, 3, { 3, 224, 224 }, 0 },
    { "resnet20", resnet20, 3, { 3, 32, 32 }, 0 },
    { "mobilenet_v2", mobilenet, 3, { 3, 224, 224 }, 0 },
    { "vit", vit, 3, { 3, 224, 224 }, 0 },
    { "convnext", convnext, 3, { 3, 224, 224 }, 0 },
    { "unet", unet, 3, { 3, 128, 128 }, 0 },
    { "gpt2", gpt2, 1, { 64 }, 211 },
    { "gpt2_f16", gpt2_f16, 1, { 64 }, 211 },
    { "llama", llama, 1, { 64 }, 211 },
    { "lstm", lstm, 2, { 20, 32 }, 0 },
};
enum { NETWORKS = sizeof networks / sizeof *networks };

// Random numbers in weights that begin as zeros, such as those of a head.
static void stir(const char *name, tn_tensor *t, void *user)
{
    (void)user;
    if (tn_needs_grad(t) && strstr(name, "head")) tn_init_normal(t, 0, 0.02);
}

// Images of networks that are small are small, too.
static tn_tensor *input_of(tn_ctx *cx, int i, int64_t items)
{
    int64_t size[4] = { items };
    for (int k = 0; k < networks[i].rank; k++) {
        size[1 + k] = networks[i].size[k];
        if (!full && size[1 + k] > 64 && networks[i].rank == 3) size[1 + k] = 64;
    }
    if (networks[i].vocab)
        return tn_randint(cx, TN_I64, 0, networks[i].vocab, 1 + networks[i].rank, size);
    return tn_randn(cx, TN_F32, 1 + networks[i].rank, size);
}

// Returns whether network i was written.
static bool write_network(tn_ctx *cx, const char *folder, int i)
{
    static const int opset[] = { 13, 17, 21, 18, 20 };
    char             path[3][512];
    const char      *file[] = { "model.onnx", "x.npy", "y.npy" };
    tn_scope        *s      = tn_begin(cx);
    tn_layer        *net    = networks[i].make(cx);
    tn_tensor       *x      = input_of(cx, i, 2);
    snprintf(path[0], sizeof path[0], "%s/%s", folder, networks[i].name);
    mkdir(path[0], 0777);
    for (int k = 0; k < 3; k++)
        snprintf(path[k], sizeof path[k], "%s/%s/%s", folder, networks[i].name, file[k]);
    tn_onnx_save_opts o  = { .opset = opset[i % 5], .batch = "N", .beside = i % 2 };
    bool              ok = net && tn_layer_each(net, stir, NULL) == TN_OK &&
              tn_onnx_save(net, path[0], 1, &x, o) == TN_OK;
    tn_layer_train(net, false);
    x  = input_of(cx, i, ITEMS);
    ok = ok && tn_npy_write(x, path[1]) == TN_OK &&
         tn_npy_write(tn_forward(net, x), path[2]) == TN_OK;
    if (!ok) fprintf(stderr, "%s: %s\n", networks[i].name, tn_error_text(cx));
    tn_error_clear(cx);
    tn_layer_free(net);
    tn_end(s);
    return ok;
}

int export_zoo(const char *folder)
{
    tn_ctx *cx = tn_open(NULL);
    bool    ok = cx != NULL;
    full       = getenv("TN_TEST_LONG") != NULL;
    mkdir(folder, 0777);
    for (int i = 0; cx && i < NETWORKS; i++) ok &= write_network(cx, folder, i);
    tn_close(cx);
    return !ok;
}
