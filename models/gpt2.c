// GPT-2, with the names and layouts of Hugging Face's GPT2LMHeadModel.
//
// B batch, T tokens, C width, H heads, D = C / H
#include "part.h"

#include <math.h>

static const double STD = 0.02;  // standard deviation of all initial weights, as in GPT-2

// ---- an affine map whose weight is (in, out), as in GPT-2's files ------------------------------

// Hugging Face's Conv1D: a linear layer with a transposed weight. The tensors belong to the layer.
typedef struct {
    tn_tensor *weight, *bias;
} affine;

static tn_tensor *run_affine(tn_layer *l, tn_tensor *x)
{
    const affine *a = tn_layer_self(l);
    return tn_linear(x, tn_transpose(a->weight, 0, 1), a->bias);
}

// Makes such a map, with normal weights of this standard deviation and a zero bias.
static tn_layer *new_affine(tn_ctx *cx, int64_t in, int64_t out, double std)
{
    tn_layer *l = tni_model_part(cx, run_affine, sizeof(affine));
    if (!l) return NULL;
    affine    *a = tn_layer_self(l);
    tn_tensor *w = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(in, out)), std);
    a->weight    = tn_layer_param(l, "weight", w);
    a->bias      = tn_layer_param(l, "bias", tn_zeros(cx, TN_F32, TN_SHAPE(out)));
    return tni_model_done(l, a->weight && a->bias);
}

// Makes the map that ends a residual branch. Each block adds the results of two branches; dividing
// their weights by the root of the number of branches keeps the variance of the sum constant.
static tn_layer *new_projection(tn_ctx *cx, int64_t in, const tn_gpt2_opts *o)
{
    return new_affine(cx, in, o->width, STD / sqrt(2 * (double)o->layers));
}

// ---- a block -----------------------------------------------------------------------------------

// Causal multi-head self-attention. c_attn computes queries, keys and values in one product, c_proj
// maps the joined heads back.
typedef struct {
    tn_layer *c_attn, *c_proj;
    int64_t   heads;
    double    dropout;
} attention;

static tn_tensor *run_attention(tn_layer *l, tn_tensor *x)
{
    const attention *a        = tn_layer_self(l);
    bool             training = tn_layer_training(l);
    tn_tensor       *part[3];
    if (tn_chunk(tn_forward(a->c_attn, x), 3, -1, part) != 3) return NULL;
    for (int i = 0; i < 3; i++) part[i] = tni_split_heads(part[i], a->heads);
    tn_attention_opts o = { .causal = true, .dropout = training ? a->dropout : 0 };
    tn_tensor        *y = tn_layer_attention(l, part[0], part[1], part[2], o);
    y                   = tn_forward(a->c_proj, tni_join_heads(y));
    return tn_dropout(y, a->dropout, training);
}

static tn_layer *new_attention(tn_ctx *cx, const tn_gpt2_opts *o)
{
    tn_layer *l = tni_model_part(cx, run_attention, sizeof(attention));
    if (!l) return NULL;
    attention *a = tn_layer_self(l);
    a->heads     = o->heads;
    a->dropout   = o->dropout;
    a->c_attn    = tn_layer_child(l, "c_attn", new_affine(cx, o->width, 3 * o->width, STD));
    a->c_proj    = tn_layer_child(l, "c_proj", new_projection(cx, o->width, o));
    return tni_model_done(l, a->c_attn && a->c_proj);
}

// Two maps with GELU between them, the first four times as wide.
typedef struct {
    tn_layer *c_fc, *c_proj;
    double    dropout;
} feed_forward;

static tn_tensor *run_feed_forward(tn_layer *l, tn_tensor *x)
{
    const feed_forward *f = tn_layer_self(l);
    tn_tensor          *y = tn_forward(f->c_proj, tn_gelu_tanh(tn_forward(f->c_fc, x)));
    return tn_dropout(y, f->dropout, tn_layer_training(l));
}

static tn_layer *new_feed_forward(tn_ctx *cx, const tn_gpt2_opts *o)
{
    tn_layer *l = tni_model_part(cx, run_feed_forward, sizeof(feed_forward));
    if (!l) return NULL;
    feed_forward *f = tn_layer_self(l);
    f->dropout      = o->dropout;
    f->c_fc         = tn_layer_child(l, "c_fc", new_affine(cx, o->width, 4 * o->width, STD));
    f->c_proj       = tn_layer_child(l, "c_proj", new_projection(cx, 4 * o->width, o));
    return tni_model_done(l, f->c_fc && f->c_proj);
}

// A pre-norm block: x + attn(ln_1(x)), then x + mlp(ln_2(x)).
typedef struct {
    tn_layer *ln_1, *attn, *ln_2, *mlp;
} block;

static tn_tensor *run_block(tn_layer *l, tn_tensor *x)
{
    const block *b = tn_layer_self(l);
    x              = tn_add(x, tn_forward(b->attn, tn_forward(b->ln_1, x)));
    return tn_add(x, tn_forward(b->mlp, tn_forward(b->ln_2, x)));
}

static tn_layer *new_block(tn_ctx *cx, const void *opts)
{
    const tn_gpt2_opts *o = opts;
    tn_layer           *l = tni_model_part(cx, run_block, sizeof(block));
    if (!l) return NULL;
    block *b = tn_layer_self(l);
    b->ln_1  = tn_layer_child(l, "ln_1", tn_nn_layer_norm(cx, o->width));
    b->attn  = tn_layer_child(l, "attn", new_attention(cx, o));
    b->ln_2  = tn_layer_child(l, "ln_2", tn_nn_layer_norm(cx, o->width));
    b->mlp   = tn_layer_child(l, "mlp", new_feed_forward(cx, o));
    return tni_model_done(l, b->ln_1 && b->attn && b->ln_2 && b->mlp);
}

// ---- the network -------------------------------------------------------------------------------

// All of the network but the output layer.
typedef struct {
    tn_layer *wte, *wpe;  // embeddings of tokens and of positions
    tn_layer *h, *ln_f;
    int64_t   context;
    double    dropout;
} transformer;

// Adds the embeddings of tokens and positions, runs the blocks, and normalizes.
static tn_tensor *run_transformer(tn_layer *l, tn_tensor *x)
{
    const transformer *t = tn_layer_self(l);
    if (!tni_tokens_ok(l, "gpt2", x, t->context)) return NULL;
    tn_tensor *place = tn_layer_positions(l, tn_size(x, 1));
    tn_tensor *y     = tn_add(tn_forward(t->wte, x), tn_forward(t->wpe, place));
    y                = tn_dropout(y, t->dropout, tn_layer_training(l));
    return tn_forward(t->ln_f, tn_forward(t->h, y));
}

static tn_layer *new_transformer(tn_ctx *cx, const tn_gpt2_opts *o)
{
    tn_layer *l = tni_model_part(cx, run_transformer, sizeof(transformer));
    if (!l) return NULL;
    transformer *t = tn_layer_self(l);
    t->context     = o->context;
    t->dropout     = o->dropout;
    t->wte         = tn_layer_child(l, "wte", tni_model_embedding(cx, o->vocab, o->width, STD));
    t->wpe         = tn_layer_child(l, "wpe", tni_model_embedding(cx, o->context, o->width, STD));
    t->h           = tn_layer_child(l, "h", tni_model_stack(cx, o->layers, 1, new_block, o));
    t->ln_f        = tn_layer_child(l, "ln_f", tn_nn_layer_norm(cx, o->width));
    return tni_model_done(l, t->wte && t->wpe && t->h && t->ln_f);
}

// The transformer, and the output layer that shares its embedding.
typedef struct {
    tn_layer *transformer, *lm_head;
} gpt2;

static tn_tensor *run_gpt2(tn_layer *l, tn_tensor *x)
{
    const gpt2 *g = tn_layer_self(l);
    return tn_forward(g->lm_head, tn_forward(g->transformer, x));
}

// Replaces zeros by the sizes of the smallest published GPT-2 (124 M parameters).
static tn_gpt2_opts with_defaults(tn_gpt2_opts o)
{
    if (!o.layers) o.layers = 12;
    if (!o.heads) o.heads = 12;
    if (!o.width) o.width = 768;
    if (!o.vocab) o.vocab = 50257;
    if (!o.context) o.context = 1024;
    if (o.dropout == 0) o.dropout = signbit(o.dropout) ? 0 : 0.1;
    return o;
}

// Whether the settings are valid. Reports the first wrong one otherwise.
static bool settings_ok(tn_ctx *cx, const tn_gpt2_opts *o)
{
    const tni_model_size sizes[] = { { "layers", o->layers },
                                     { "heads", o->heads },
                                     { "width", o->width },
                                     { "vocab", o->vocab },
                                     { "context", o->context } };

    char text[160] = "";
    if (!tni_sizes_ok(cx, "gpt2", sizeof sizes / sizeof *sizes, sizes)) return false;
    if (o->width % o->heads != 0)
        snprintf(text, sizeof text, "gpt2: width %lld is no multiple of %lld heads",
                 (long long)o->width, (long long)o->heads);
    if (!*text && !(o->dropout >= 0 && o->dropout < 1))
        snprintf(text, sizeof text, "gpt2: dropout %g is not in [0, 1)", o->dropout);
    if (*text) tn_error_set(cx, TN_EARG, text);
    return !*text;
}

tn_layer *tn_gpt2(tn_ctx *cx, tn_gpt2_opts o)
{
    o           = with_defaults(o);
    tn_layer *l = settings_ok(cx, &o) ? tni_model_part(cx, run_gpt2, sizeof(gpt2)) : NULL;
    if (!l) return NULL;
    gpt2 *g        = tn_layer_self(l);
    g->transformer = tn_layer_child(l, "transformer", new_transformer(cx, &o));
    if (!g->transformer) return tni_model_done(l, false);
    tn_tensor *embedding = tn_layer_find(g->transformer, "wte.weight");
    g->lm_head           = tn_layer_child(l, "lm_head", tni_model_head(cx, embedding));
    return tni_model_done(l, g->lm_head);
}
