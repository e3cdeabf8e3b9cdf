// Llama, with the names and layouts of Hugging Face's LlamaForCausalLM. Mistral is the same network
// with a window, Qwen 2 the same with biases.
//
// B batch, T tokens, C width, H heads of queries, K heads of keys and values, D width of a head
#include "part.h"

#include <math.h>

static const double STD = 0.02;  // standard deviation of all initial weights, as in Llama

// Makes a linear layer with normal weights and, if it has one, a zero bias.
static tn_layer *new_linear(tn_ctx *cx, int64_t in, int64_t out, bool bias)
{
    tn_layer *l  = tn_nn_linear_with(cx, in, out, (tn_nn_linear_opts){ .no_bias = !bias });
    bool      ok = l && tn_init_normal(tn_layer_find(l, "weight"), 0, STD);
    if (ok && bias) ok = tn_init_constant(tn_layer_find(l, "bias"), 0);
    return tni_model_done(l, ok);
}

static tn_layer *new_norm(tn_ctx *cx, const tn_llama_opts *o)
{
    return tn_nn_rms_norm_nd(cx, TN_SHAPE(o->width), (tn_nn_norm_opts){ .eps = o->eps });
}

// ---- a block -----------------------------------------------------------------------------------

// Causal self-attention in which several heads of queries share a head of keys and values. Its
// second input is the table of rotations, which all blocks share.
typedef struct {
    tn_layer *q_proj, *k_proj, *v_proj, *o_proj;
    int64_t   heads, kv_heads, window;
    bool      interleaved;
} attention;

static void run_attention(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    const attention  *a = tn_layer_self(l);
    tn_rope_opts      r = { .interleaved = a->interleaved };
    tn_attention_opts o = { .causal = true, .window = a->window };
    (void)nx, (void)ny;
    tn_tensor *q = tni_split_heads(tn_forward(a->q_proj, x[0]), a->heads);
    tn_tensor *k = tni_split_heads(tn_forward(a->k_proj, x[0]), a->kv_heads);
    tn_tensor *v = tni_split_heads(tn_forward(a->v_proj, x[0]), a->kv_heads);
    q            = tn_rope(q, x[1], r);
    k            = tn_rope(k, x[1], r);
    y[0]         = tn_forward(a->o_proj, tni_join_heads(tn_layer_attention(l, q, k, v, o)));
}

static tn_layer *new_attention(tn_ctx *cx, const tn_llama_opts *o)
{
    tn_layer_counts two = { .in = 2 };
    tn_layer       *l   = tni_model_part_n(cx, run_attention, two, sizeof(attention));
    int64_t         C = o->width, Q = o->heads * o->head_width, K = o->kv_heads * o->head_width;
    if (!l) return NULL;
    attention *a   = tn_layer_self(l);
    a->heads       = o->heads;
    a->kv_heads    = o->kv_heads;
    a->window      = o->window;
    a->interleaved = o->rope.interleaved;
    a->q_proj      = tn_layer_child(l, "q_proj", new_linear(cx, C, Q, o->qkv_bias));
    a->k_proj      = tn_layer_child(l, "k_proj", new_linear(cx, C, K, o->qkv_bias));
    a->v_proj      = tn_layer_child(l, "v_proj", new_linear(cx, C, K, o->qkv_bias));
    a->o_proj      = tn_layer_child(l, "o_proj", new_linear(cx, Q, C, o->out_bias));
    return tni_model_done(l, a->q_proj && a->k_proj && a->v_proj && a->o_proj);
}

// The feed-forward part: down(silu(gate(x)) up(x)).
typedef struct {
    tn_layer *gate_proj, *up_proj, *down_proj;
} feed_forward;

static tn_tensor *run_feed_forward(tn_layer *l, tn_tensor *x)
{
    const feed_forward *f    = tn_layer_self(l);
    tn_tensor          *gate = tn_forward(f->gate_proj, x);
    return tn_forward(f->down_proj, tn_swiglu(gate, tn_forward(f->up_proj, x)));
}

static tn_layer *new_feed_forward(tn_ctx *cx, const tn_llama_opts *o)
{
    tn_layer *l = tni_model_part(cx, run_feed_forward, sizeof(feed_forward));
    int64_t   C = o->width, F = o->hidden;
    if (!l) return NULL;
    feed_forward *f = tn_layer_self(l);
    f->gate_proj    = tn_layer_child(l, "gate_proj", new_linear(cx, C, F, o->mlp_bias));
    f->up_proj      = tn_layer_child(l, "up_proj", new_linear(cx, C, F, o->mlp_bias));
    f->down_proj    = tn_layer_child(l, "down_proj", new_linear(cx, F, C, o->mlp_bias));
    return tni_model_done(l, f->gate_proj && f->up_proj && f->down_proj);
}

// A pre-norm block: x + attention, then x + feed-forward part.
typedef struct {
    tn_layer *self_attn, *mlp, *input_layernorm, *post_attention_layernorm;
} block;

static void run_block(tn_layer *l, int nx, tn_tensor *const *in, int ny, tn_tensor **y)
{
    const block *b = tn_layer_self(l);
    tn_tensor   *x = in[0], *seen[] = { tn_forward(b->input_layernorm, x), in[1] };
    if (tn_forward_n(b->self_attn, nx, seen, ny, y) != TN_OK) return;
    x    = tn_add(x, y[0]);
    y[0] = tn_add(x, tn_forward(b->mlp, tn_forward(b->post_attention_layernorm, x)));
}

static tn_layer *new_block(tn_ctx *cx, const void *opts)
{
    const tn_llama_opts *o = opts;
    tn_layer *l = tni_model_part_n(cx, run_block, (tn_layer_counts){ .in = 2 }, sizeof(block));
    if (!l) return NULL;
    block *b                    = tn_layer_self(l);
    b->self_attn                = tn_layer_child(l, "self_attn", new_attention(cx, o));
    b->mlp                      = tn_layer_child(l, "mlp", new_feed_forward(cx, o));
    b->input_layernorm          = tn_layer_child(l, "input_layernorm", new_norm(cx, o));
    b->post_attention_layernorm = tn_layer_child(l, "post_attention_layernorm", new_norm(cx, o));
    return tni_model_done(l, b->self_attn && b->mlp && b->input_layernorm &&
                                 b->post_attention_layernorm);
}

// ---- the network -------------------------------------------------------------------------------

// All of the network but the output layer.
typedef struct {
    tn_layer    *embed_tokens, *layers, *norm;
    int64_t      context;
    tn_rope_opts rope;  // its width is that of what is rotated
} decoder;

// Embeds the tokens, makes the table of rotations, runs the blocks, and normalizes.
static void run_decoder(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    const decoder *d = tn_layer_self(l);
    if (!tni_tokens_ok(l, "llama", x[0], d->context)) return;
    tn_rope_opts rope = d->rope;
    tn_tensor   *e = tn_forward(d->embed_tokens, x[0]), *seen = NULL;
    tn_tensor   *at = nx > 1 ? x[1] : tn_layer_positions(l, tn_size(x[0], 1));
    if (!e) return;
    rope.dtype      = tn_dtype_of(e);
    tn_tensor *in[] = { e, tn_rope_table(at, rope) };
    if (tn_forward_n(d->layers, 2, in, ny, &seen) != TN_OK) return;
    y[0] = tn_forward(d->norm, seen);
}

static const tn_layer_counts TOKENS = { .in = 2, .optional = 1 };  // and their positions

static tn_layer *new_decoder(tn_ctx *cx, const tn_llama_opts *o)
{
    tn_layer *l = tni_model_part_n(cx, run_decoder, TOKENS, sizeof(decoder));
    if (!l) return NULL;
    decoder  *d     = tn_layer_self(l);
    tn_layer *table = tni_model_embedding(cx, o->vocab, o->width, STD);
    d->context      = o->context;
    d->rope         = o->rope;
    d->embed_tokens = tn_layer_child(l, "embed_tokens", table);
    d->layers       = tn_layer_child(l, "layers", tni_model_stack(cx, o->layers, 2, new_block, o));
    d->norm         = tn_layer_child(l, "norm", new_norm(cx, o));
    return tni_model_done(l, d->embed_tokens && d->layers && d->norm);
}

typedef struct {
    tn_layer *model, *lm_head;
} llama;

static void run_llama(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    const llama *m = tn_layer_self(l);
    if (tn_forward_n(m->model, nx, x, ny, y) == TN_OK) y[0] = tn_forward(m->lm_head, y[0]);
}

// Replaces zeros by TinyLlama's sizes.
static tn_llama_opts with_defaults(tn_llama_opts o)
{
    if (!o.kv_heads) o.kv_heads = o.heads ? o.heads : 4;
    if (!o.layers) o.layers = 22;
    if (!o.heads) o.heads = 32;
    if (!o.width) o.width = 2048;
    if (!o.hidden && o.width > 0 && o.width < INT32_MAX)
        o.hidden = (o.width * 8 / 3 + 255) / 256 * 256;
    if (!o.head_width && o.heads > 0) o.head_width = o.width / o.heads;
    if (!o.vocab) o.vocab = 32000;
    if (!o.context) o.context = 2048;
    if (o.eps == 0 && !signbit(o.eps)) o.eps = 1e-5;
    if (!o.rope.width) o.rope.width = o.head_width;
    return o;
}

// Whether the settings are valid. Reports the first wrong one otherwise. `whole`: heads are to be
// the width's parts.
static bool settings_ok(tn_ctx *cx, const tn_llama_opts *o, bool whole)
{
    const tni_model_size sizes[] = {
        { "layers", o->layers },     { "heads", o->heads },     { "width", o->width },
        { "kv_heads", o->kv_heads }, { "hidden", o->hidden },   { "head_width", o->head_width },
        { "vocab", o->vocab },       { "context", o->context }, { "rope.width", o->rope.width }
    };

    char text[160] = "";
    if (!tni_sizes_ok(cx, "llama", sizeof sizes / sizeof *sizes, sizes)) return false;
    if (o->heads % o->kv_heads != 0)
        snprintf(text, sizeof text, "llama: %lld heads are no multiple of %lld kv_heads",
                 (long long)o->heads, (long long)o->kv_heads);
    else if (whole && o->width % o->heads != 0)
        snprintf(text, sizeof text, "llama: width %lld is no multiple of %lld heads",
                 (long long)o->width, (long long)o->heads);
    else if (o->rope.width > o->head_width || o->rope.width % 2)
        snprintf(text, sizeof text,
                 "llama: rope.width %lld is not an even number up to the head_width of %lld",
                 (long long)o->rope.width, (long long)o->head_width);
    else if (o->window < 0)
        snprintf(text, sizeof text, "llama: window %lld is negative", (long long)o->window);
    else if (!(o->eps >= 0)) snprintf(text, sizeof text, "llama: eps %g is not 0 or more", o->eps);
    if (*text) tn_error_set(cx, TN_EARG, text);
    return !*text;
}

// Makes the output layer, with the embedding as its weight or one of its own.
static tn_layer *new_head(tn_ctx *cx, const tn_llama_opts *o, tn_layer *model)
{
    if (!o->tied) return new_linear(cx, o->width, o->vocab, false);
    return tni_model_head(cx, tn_layer_find(model, "embed_tokens.weight"));
}

tn_layer *tn_llama(tn_ctx *cx, tn_llama_opts o)
{
    bool whole  = !o.head_width;
    o           = with_defaults(o);
    tn_layer *l = settings_ok(cx, &o, whole)
                      ? tni_model_part_n(cx, run_llama, TOKENS, sizeof(llama))
                      : NULL;
    if (!l) return NULL;
    llama *m = tn_layer_self(l);
    m->model = tn_layer_child(l, "model", new_decoder(cx, &o));
    if (!m->model) return tni_model_done(l, false);
    m->lm_head = tn_layer_child(l, "lm_head", new_head(cx, &o, m->model));
    return tni_model_done(l, m->lm_head);
}
