// Vision transformers, with torchvision's layout and names.
//
// B batch, N tokens (patches and one for the class), C width
#include "part.h"

#include <math.h>

static const double EPS = 1e-6;  // of the norms

static tn_layer *new_norm(tn_ctx *cx, int64_t width)
{
    return tn_nn_layer_norm_nd(cx, TN_SHAPE(width), (tn_nn_norm_opts){ .eps = EPS });
}

// ---- a block -----------------------------------------------------------------------------------

// x + self_attention(ln_1(x)), then x + mlp(ln_2(x)).
typedef struct {
    tn_layer *ln_1, *self_attention, *dropout, *ln_2, *mlp;
} block;

static tn_tensor *run_block(tn_layer *l, tn_tensor *x)
{
    const block *b = tn_layer_self(l);
    tn_tensor   *y = tn_forward(b->self_attention, tn_forward(b->ln_1, x));
    x              = tn_add(x, tn_forward(b->dropout, y));
    return tn_add(x, tn_forward(b->mlp, tn_forward(b->ln_2, x)));
}

// A linear layer of the feed-forward part.
static tn_layer *new_linear(tn_ctx *cx, int64_t in, int64_t out)
{
    tn_layer *l  = tn_nn_linear(cx, in, out);
    bool      ok = l && tn_init_xavier_uniform(tn_layer_find(l, "weight"), 1) &&
              tn_init_normal(tn_layer_find(l, "bias"), 0, 1e-6);
    return tni_model_done(l, ok);
}

static tn_layer *new_mlp(tn_ctx *cx, const tn_vit_opts *o)
{
    tn_layer *first = new_linear(cx, o->width, o->hidden), *act = tn_nn_act(cx, tn_gelu);
    tn_layer *drop = tn_nn_dropout(cx, o->dropout), *second = new_linear(cx, o->hidden, o->width);
    return tn_nn_seq(cx, first, act, drop, second, tn_nn_dropout(cx, o->dropout));
}

static tn_layer *new_block(tn_ctx *cx, const tn_vit_opts *o)
{
    tn_layer *l = tni_model_part(cx, run_block, sizeof(block));
    if (!l) return NULL;
    block *b          = tn_layer_self(l);
    b->ln_1           = tn_layer_child(l, "ln_1", new_norm(cx, o->width));
    b->self_attention = tn_layer_child(l, "self_attention",
                                       tn_nn_attention(cx, o->width, o->heads));
    b->dropout        = tn_layer_child(l, "dropout", tn_nn_dropout(cx, o->dropout));
    b->ln_2           = tn_layer_child(l, "ln_2", new_norm(cx, o->width));
    b->mlp            = tn_layer_child(l, "mlp", new_mlp(cx, o));
    return tni_model_done(l, b->ln_1 && b->self_attention && b->dropout && b->ln_2 && b->mlp);
}

// ---- the encoder -------------------------------------------------------------------------------

typedef struct {
    int64_t   n;
    tn_layer *block[];
} stack;

static tn_tensor *run_stack(tn_layer *l, tn_tensor *x)
{
    const stack *s = tn_layer_self(l);
    for (int64_t i = 0; i < s->n; i++) x = tn_forward(s->block[i], x);
    return x;
}

static tn_layer *new_stack(tn_ctx *cx, const tn_vit_opts *o)
{
    size_t    bytes = sizeof(stack) + (size_t)o->layers * sizeof(tn_layer *);
    tn_layer *l     = tni_model_part(cx, run_stack, bytes);
    if (!l) return NULL;
    stack *s  = tn_layer_self(l);
    bool   ok = true;
    for (s->n = 0; s->n < o->layers && ok; s->n++) {
        char name[40];
        snprintf(name, sizeof name, "encoder_layer_%lld", (long long)s->n);
        s->block[s->n] = tn_layer_child(l, name, new_block(cx, o));
        ok             = s->block[s->n] != NULL;
    }
    return tni_model_done(l, ok);
}

// Adds what each place is known by, then the blocks and a norm.
typedef struct {
    tn_tensor *pos_embedding;  // (1, N, C)
    tn_layer  *dropout, *layers, *ln;
} encoder;

static tn_tensor *run_encoder(tn_layer *l, tn_tensor *x)
{
    const encoder *e = tn_layer_self(l);
    x                = tn_forward(e->dropout, tn_add(x, e->pos_embedding));
    return tn_forward(e->ln, tn_forward(e->layers, x));
}

static tn_layer *new_encoder(tn_ctx *cx, const tn_vit_opts *o, int64_t N)
{
    tn_layer *l = tni_model_part(cx, run_encoder, sizeof(encoder));
    if (!l) return NULL;
    encoder *e       = tn_layer_self(l);
    e->pos_embedding = tn_layer_param(
        l, "pos_embedding", tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(1, N, o->width)), 0.02));
    e->dropout = tn_layer_child(l, "dropout", tn_nn_dropout(cx, o->dropout));
    e->layers  = tn_layer_child(l, "layers", new_stack(cx, o));
    e->ln      = tn_layer_child(l, "ln", new_norm(cx, o->width));
    return tni_model_done(l, e->pos_embedding && e->dropout && e->layers && e->ln);
}

// ---- the network -------------------------------------------------------------------------------

// Patches are the tokens, by a convolution whose stride is its kernel; the first token is that of
// the class.
typedef struct {
    tn_tensor *class_token;  // (1, 1, C)
    tn_layer  *conv_proj, *encoder, *heads;
    int64_t    size;
} vit;

static tn_tensor *run_vit(tn_layer *l, tn_tensor *x)
{
    const vit *v = tn_layer_self(l);
    if (tn_rank(x) != 4 || tn_size(x, 2) != v->size || tn_size(x, 3) != v->size) {
        char text[96];
        snprintf(text, sizeof text, "vit: images are (B, C, %lld, %lld)", (long long)v->size,
                 (long long)v->size);
        return tn_error_set(tn_layer_ctx(l), TN_ESHAPE, text);
    }
    tn_tensor *tokens = tn_transpose(tn_flatten(tn_forward(v->conv_proj, x), 2, 3), 1, 2);
    int64_t    C      = tn_size(v->class_token, 2);
    tn_tensor *all[]  = { tn_expand(v->class_token, TN_SHAPE(tn_size(x, 0), 1, C)), tokens };
    tn_tensor *y      = tn_forward(v->encoder, tn_concat(2, all, 1));
    return tn_forward(v->heads, tn_select(y, 1, 0));
}

static tn_layer *new_patches(tn_ctx *cx, const tn_vit_opts *o)
{
    double    fan = (double)(o->channels * o->patch * o->patch);
    tn_layer *l   = tn_nn_conv2d_hw(cx, o->channels, o->width, o->patch, o->patch,
                                    (tn_nn_conv_opts){ .stride = { o->patch } });
    bool      ok  = l && tn_init_trunc_normal(tn_layer_find(l, "weight"), 0, sqrt(1 / fan)) &&
              tn_init_constant(tn_layer_find(l, "bias"), 0);
    return tni_model_done(l, ok);
}

// The last layer begins with zeros, so that all classes are equally likely.
static tn_layer *new_heads(tn_ctx *cx, const tn_vit_opts *o)
{
    tn_layer *l = tni_model_chain(cx);
    tni_chain_add(l, "head", tni_model_linear(cx, o->width, o->classes, 0));
    return tni_chain_done(l);
}

// Fills in what is 0, and checks the sizes.
static bool options_ok(tn_ctx *cx, tn_vit_opts *o)
{
    if (!o->size) o->size = 224;
    if (!o->patch) o->patch = 16;
    if (!o->layers) o->layers = 12;
    if (!o->heads) o->heads = 12;
    if (!o->width) o->width = 768;
    if (!o->hidden) o->hidden = 4 * o->width;
    if (!o->classes) o->classes = 1000;
    if (!o->channels) o->channels = 3;
    const tni_model_size sizes[] = { { "size", o->size },       { "patch", o->patch },
                                     { "layers", o->layers },   { "heads", o->heads },
                                     { "width", o->width },     { "hidden", o->hidden },
                                     { "classes", o->classes }, { "channels", o->channels } };
    if (!tni_sizes_ok(cx, "vit", sizeof sizes / sizeof *sizes, sizes)) return false;
    char text[96] = "";
    if (o->size % o->patch || o->width % o->heads)
        snprintf(text, sizeof text, "vit: %s %lld is no multiple of %s %lld",
                 o->size % o->patch ? "size" : "width",
                 (long long)(o->size % o->patch ? o->size : o->width),
                 o->size % o->patch ? "patch" : "heads",
                 (long long)(o->size % o->patch ? o->patch : o->heads));
    if (*text) tn_error_set(cx, TN_EARG, text);
    return !*text;
}

tn_layer *tn_vit(tn_ctx *cx, tn_vit_opts o)
{
    if (!options_ok(cx, &o)) return NULL;
    tn_layer *l = tni_model_part(cx, run_vit, sizeof(vit));
    if (!l) return NULL;
    vit    *v      = tn_layer_self(l);
    int64_t N      = (o.size / o.patch) * (o.size / o.patch) + 1;
    v->size        = o.size;
    v->class_token = tn_layer_param(l, "class_token",
                                    tn_zeros(cx, TN_F32, TN_SHAPE(1, 1, o.width)));
    v->conv_proj   = tn_layer_child(l, "conv_proj", new_patches(cx, &o));
    v->encoder     = tn_layer_child(l, "encoder", new_encoder(cx, &o, N));
    v->heads       = tn_layer_child(l, "heads", new_heads(cx, &o));
    return tni_model_done(l, v->class_token && v->conv_proj && v->encoder && v->heads);
}
