// registry.c: the networks of the tool, one row each, and their losses.
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

enum { MOST_LAYERS = 32, MOST_CHANNELS = 64 };

// ---- mlp

// Reads "128,64" into sizes[1] and the following ones. Returns the number of sizes including the
// first, 0 if the text is not such a list.
static int read_hidden(const char *text, int64_t *sizes)
{
    if (!strcmp(text, "none")) return 1;
    int n = cli_whole_numbers(text, 1, 1000000, sizes + 1, MOST_LAYERS - 1);
    return n ? n + 1 : 0;
}

bool cli_is_hidden(const char *text)
{
    int64_t sizes[MOST_LAYERS];
    return read_hidden(text, sizes) > 0;
}

static tn_layer *build_mlp(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    int64_t sizes[MOST_LAYERS + 1] = { 1 };
    for (int i = 0; i < f->rank; i++) sizes[0] *= f->size[i];
    int n = read_hidden(s->hidden, sizes);
    if (f->task == CLI_TOKENS) return cli_fail("mlp is for images and tables, not for text"), NULL;
    sizes[n++]     = f->outputs;
    tn_layer *body = tn_mlp(cx, n, sizes);
    return f->rank == 1 ? cli_tabular(cx, f, body) : body;
}

// ---- images

static bool are_images(const char *model, const cli_facts *f)
{
    return (f->rank == 3 && f->task == CLI_CLASSES) ||
           (cli_fail("%s is for classes of images", model), false);
}

static tn_layer *build_lenet(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    (void)s;
    if (!are_images("lenet", f)) return NULL;
    if (f->size[0] != 1 || f->size[1] != 28 || f->size[2] != 28 || f->outputs != 10)
        return cli_fail("lenet is for 10 classes of 1 x 28 x 28 images, not %lld of %lld x %lld x "
                        "%lld",
                        (long long)f->outputs, (long long)f->size[0], (long long)f->size[1],
                        (long long)f->size[2]),
               NULL;
    return tn_lenet(cx);
}

static tn_layer *build_resnet(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    if (!are_images("resnet", f)) return NULL;
    const char *depth = s->model + strlen("resnet");  // resnet50, or --depth
    return tn_resnet(cx, (tn_resnet_opts){ .depth    = *depth ? atoi(depth) : (int)s->depth,
                                           .classes  = f->outputs,
                                           .channels = f->size[0] });
}

static tn_layer *build_mobilenet(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    if (!are_images(s->model, f)) return NULL;
    return tn_mobilenet_v2(cx,
                           (tn_mobilenet_v2_opts){ .classes = f->outputs, .channels = f->size[0] });
}

// vit_b_16: base or large, and the size of a patch.
static tn_layer *build_vit(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    if (!are_images(s->model, f)) return NULL;
    bool large = !strncmp(s->model, "vit_l", 5);
    return tn_vit(cx, (tn_vit_opts){ .size     = f->size[1],
                                     .patch    = atoi(s->model + strlen("vit_b_")),
                                     .layers   = large ? 24 : 12,
                                     .heads    = large ? 16 : 12,
                                     .width    = large ? 1024 : 768,
                                     .classes  = f->outputs,
                                     .channels = f->size[0] });
}

static tn_layer *build_convnext(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    static const struct {
        const char *name;
        int64_t     third, width;
        double      drop;
    } kinds[] = { { "convnext_tiny", 9, 96, 0.1 },
                  { "convnext_small", 27, 96, 0.4 },
                  { "convnext_base", 27, 128, 0.5 } };

    size_t i = 0;
    if (!are_images(s->model, f)) return NULL;
    while (strcmp(kinds[i].name, s->model) != 0) i++;
    return tn_convnext(cx, (tn_convnext_opts){ .blocks   = { 3, 3, kinds[i].third, 3 },
                                               .width    = kinds[i].width,
                                               .drop     = kinds[i].drop,
                                               .classes  = f->outputs,
                                               .channels = f->size[0] });
}

// ---- text

static tn_layer *build_gpt2(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    if (f->task != CLI_TOKENS) return cli_fail("gpt2 is for text, as in --data text:FILE"), NULL;
    return tn_gpt2(cx, (tn_gpt2_opts){ .layers  = s->layers,
                                       .heads   = s->heads,
                                       .width   = s->width,
                                       .vocab   = f->outputs,
                                       .context = s->context,
                                       .dropout = s->dropout > 0 ? s->dropout : TN_ZERO });
}

// --hidden is one size here.
static tn_layer *build_llama(tn_ctx *cx, const cli_settings *s, const cli_facts *f)
{
    int64_t sizes[MOST_LAYERS] = { 0 };
    if (f->task != CLI_TOKENS) return cli_fail("llama is for text, as in --data text:FILE"), NULL;
    if (s->hidden && read_hidden(s->hidden, sizes) != 2)
        return cli_fail("--hidden is one size for llama"), NULL;
    return tn_llama(cx, (tn_llama_opts){ .layers   = s->layers,
                                         .heads    = s->heads,
                                         .kv_heads = s->kv_heads,
                                         .width    = s->width,
                                         .hidden   = sizes[1],
                                         .vocab    = f->outputs,
                                         .context  = s->context,
                                         .tied     = s->tied });
}

// ---- normalization and weights of other programs

// Reads numbers separated by commas, up to `most`. Returns their count, 0 if the text is not such a
// list, and sets *end to its end.
static int read_numbers(const char *text, double *v, int most, const char **end)
{
    for (int n = 0; n < most; text++) {
        char *after;
        v[n++] = strtod(text, &after);
        *end   = after;
        if (after == text || !isfinite(v[n - 1])) return 0;
        if (*after != ',') return n;
        text = after;
    }
    return 0;
}

// Reads "MEAN,STD" or "MEAN,.../STD,...". Returns how many of each, 0 if the text is neither.
static int read_normalize(const char *text, double mean[MOST_CHANNELS], double std[MOST_CHANNELS])
{
    const char *end;
    int         n = read_numbers(text, mean, MOST_CHANNELS, &end);
    if (n == 2 && !*end) {
        std[0] = mean[1];
        return std[0] > 0;
    }
    if (n == 0 || *end != '/' || read_numbers(end + 1, std, MOST_CHANNELS, &end) != n || *end)
        return 0;
    for (int i = 0; i < n; i++)
        if (!(std[i] > 0)) return 0;
    return n;
}

bool cli_is_normalize(const char *text)
{
    double mean[MOST_CHANNELS], std[MOST_CHANNELS];
    return read_normalize(text, mean, std) > 0;
}

// Returns the network inside the normalization of the settings, if there is one.
static tn_layer *normalized(tn_ctx *cx, const cli_settings *s, const cli_facts *f, tn_layer *net)
{
    double mean[MOST_CHANNELS], std[MOST_CHANNELS];
    int    n = s->normalize && net ? read_normalize(s->normalize, mean, std) : 0;
    if (n == 0) return net;
    if (n != 1 && n != f->size[0])
        return cli_fail("--normalize has %d means, and the images have %lld channel%s", n,
                        (long long)f->size[0], cli_s(f->size[0])),
               NULL;
    tn_scope *scope = tn_begin(cx);
    tn_layer *l = tn_nn_standardize_nd(cx, TN_SHAPE(n, 1, 1), net, (tn_nn_standardize_opts){ 0 });
    tn_assign(tn_layer_find(l, "mean"), tn_from(cx, TN_F64, TN_SHAPE(n, 1, 1), mean));
    tn_assign(tn_layer_find(l, "std"), tn_from(cx, TN_F64, TN_SHAPE(n, 1, 1), std));
    return tn_end(scope) == TN_OK && tn_error(cx) == TN_OK ? l : NULL;
}

// Loads weights of another program. Hugging Face's files of GPT-2 lack the first part of the names
// and contain masks.
static tn_status load_foreign(tn_ctx *cx, tn_layer *net, const char *path)
{
    tn_load_opts o    = { .ignore = "*.attn.bias" };
    tn_file     *file = tn_file_open(cx, path);
    for (int i = 0; i < tn_file_count(file); i++)
        if (!strcmp(tn_file_name(file, i), "wte.weight")) o.add_prefix = "transformer.";
    tn_file_free(file);
    return tn_load_with(net, path, o);
}

tn_layer *cli_model_build(tn_ctx *cx, const cli_model *m, const cli_settings *s, const cli_facts *f,
                          const char *weights)
{
    tn_layer *net = m->build(cx, s, f);
    if (net && weights && load_foreign(cx, net, weights) != TN_OK) net = NULL;
    net = normalized(cx, s, f, net);
    if (!net && tn_error(cx) != TN_OK) cli_fail_of(cx);
    return net;
}

// ---- the table

// clang-format off
static const cli_model models[] = {
    { "mlp",    "linear layers with relu between them, for images and tables",
      "hidden=256,128 epochs=5", build_mlp, NULL },
    { "lenet",  "two convolutions with batch norm, for digits",
      "epochs=3", build_lenet, NULL },
    { "resnet", "residual convolutions with batch norm, for images",
      "depth=20 epochs=10", build_resnet, NULL },
    { "resnet18", "torchvision's, for images as ImageNet's; so are those down to convnext_base", "epochs=90",
      build_resnet, NULL },
    { "resnet34", "34 layers", "epochs=90", build_resnet, NULL },
    { "resnet50", "50 layers", "epochs=90", build_resnet, NULL },
    { "resnet101", "101 layers", "epochs=90", build_resnet, NULL },
    { "resnet152", "152 layers", "epochs=90", build_resnet, NULL },
    { "mobilenet_v2", "convolutions of each channel between 1 x 1", "epochs=90", build_mobilenet, NULL },
    { "vit_b_16", "a transformer over patches of 16 x 16 pixels",
      "epochs=90 optim=adamw clip=1", build_vit, NULL },
    { "vit_b_32", "over patches of 32 x 32", "epochs=90 optim=adamw clip=1", build_vit, NULL },
    { "vit_l_16", "24 layers, over patches of 16 x 16", "epochs=90 optim=adamw clip=1", build_vit, NULL },
    { "convnext_tiny", "7 x 7 convolutions of each channel", "epochs=90 optim=adamw", build_convnext, NULL },
    { "convnext_small", "36 blocks", "epochs=90 optim=adamw", build_convnext, NULL },
    { "convnext_base", "36 wider blocks", "epochs=90 optim=adamw", build_convnext, NULL },
    { "gpt2",   "a transformer that continues a text",
      "layers=4 heads=4 width=128 context=128 dropout=0 batch=16 epochs=3 optim=adamw clip=1",
      build_gpt2, "transformer.h" },
    { "llama",  "a transformer with rotary positions and gated layers, that continues a text",
      "layers=4 heads=4 width=128 context=128 batch=16 epochs=3 optim=adamw clip=1",
      build_llama, "model.layers" },
};
// clang-format on

enum { MODELS = sizeof models / sizeof *models };

const cli_model *cli_model_at(int i)
{
    return i < MODELS ? &models[i] : NULL;
}

const cli_model *cli_model_find(const char *name)
{
    for (int i = 0; i < MODELS; i++)
        if (!strcmp(models[i].name, name)) return &models[i];
    return NULL;
}

bool cli_is_model(const char *text)
{
    return cli_model_find(text) != NULL;
}

// Sets every block of a network to be recomputed; one without blocks, all of it.
void cli_model_recompute(const cli_model *m, tn_layer *net, const cli_settings *s)
{
    char name[64];
    if (!m->blocks) tn_layer_recompute(net, true);
    for (int64_t i = 0; m->blocks && i < s->layers; i++) {
        snprintf(name, sizeof name, "%s.%lld", m->blocks, (long long)i);
        tn_layer_recompute(tn_layer_find_child(net, name), true);
    }
}

// ---- losses

// Cross entropy of classes and tokens (B, T, V). The squared error of numbers is in standard
// deviations of the target, so that a learning rate suits any unit.
tn_tensor *cli_loss(tn_layer *net, const cli_facts *f, tn_tensor *y, tn_tensor *target)
{
    if (f->task == CLI_TOKENS)
        return tn_cross_entropy(tn_reshape(y, TN_SHAPE(-1, tn_size(y, -1))),
                                tn_reshape(target, TN_SHAPE(-1)));
    if (f->task == CLI_CLASSES) return tn_cross_entropy(y, target);
    tn_tensor *deviation = tn_layer_find(net, "target_std");
    return tn_mse(tn_div(y, deviation), tn_div(target, deviation));
}

tn_tensor *cli_hits(tn_tensor *y, tn_tensor *target, int64_t k)
{
    if (target && tn_rank(target) == 2) target = tn_argmax(target, 1);
    if (k == 1) return tn_sum_all(tn_eq(tn_argmax(y, 1), target));
    return tn_sum_all(tn_eq(tn_topk(y, k, 1, true).indices, tn_unsqueeze(target, 1)));
}
