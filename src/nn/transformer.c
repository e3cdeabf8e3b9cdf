// Multi-head self-attention, and the transformer block around it. Names of parameters and initial values are
// those of PyTorch's MultiheadAttention and TransformerEncoderLayer, so that weights load under their names.
//
// B batch, T time, E width, H heads, D = E / H
#include "nn/builtin.h"

// ---- attention ---------------------------------------------------------------------------------

// The tensors and the layer are children of the attention; b is NULL where there is no bias. w
// (3E, E) makes queries, keys and values at once.
typedef struct {
    tn_tensor *w, *b;
    tn_layer  *out;
    int64_t    heads;
    bool       causal;
    double     dropout;
} attention;

// One product makes queries, keys and values; heads are moved before time, attention runs for each of
// them, and the heads are joined again for the output projection.
static tn_tensor *attention_forward(tn_layer *l, tn_tensor *x)
{
    attention *s = l->self;
    int64_t    E = tn_size(s->w, 1), H = s->heads, D = E / H;
    if (tn_rank(x) != 3 || tn_size(x, 2) != E)
        return tni_fail(l->owned.cx, TN_ESHAPE, "nn_attention: x %s is not (B, T, %lld)",
                        tni_shape_of(x).s, (long long)E);
    int64_t    B = tn_size(x, 0), T = tn_size(x, 1);
    tn_tensor *parts = tn_reshape(tn_linear(x, s->w, s->b), TN_SHAPE(B, T, 3, H, D)), *qkv[3];
    if (!parts) return NULL;
    for (int i = 0; i < 3; i++) qkv[i] = tn_transpose(tn_select(parts, 2, i), 1, 2);
    if (!qkv[0] || !qkv[1] || !qkv[2]) return NULL;
    tn_attention_opts o = { .causal = s->causal, .dropout = l->training ? s->dropout : 0 };
    tn_tensor        *y = tn_attention(qkv[0], qkv[1], qkv[2], o);  // (B, H, T, D)
    if (y) y = tn_reshape(tn_transpose(y, 1, 2), TN_SHAPE(B, T, E));
    return y ? tn_forward(s->out, y) : NULL;
}

// Adds a child layer to l. child is NULL if making it failed, which was reported then.
static tn_layer *add_child(tn_layer *l, const char *name, tn_layer *child)
{
    if (!child || tn_layer_child(l, name, child)) return child;
    return tni_layer_give_up(child);
}

// Initializes the weights as PyTorch does, with the fans of the three stacked projections, and biases with zero.
static bool fill_attention(tn_layer *l, int64_t E, bool bias)
{
    attention        *s = l->self;
    tn_nn_linear_opts o = { .no_bias = !bias };
    s->w = tni_new_param(l, "in_proj_weight", tn_init_xavier_uniform, 1, TN_SHAPE(3 * E, E));
    if (s->w && bias) s->b = tni_new_param(l, "in_proj_bias", tn_init_constant, 0, TN_SHAPE(3 * E));
    if (!s->w || (bias && !s->b)) return false;
    s->out = add_child(l, "out_proj", tn_nn_linear_with(l->owned.cx, E, E, o));
    return s->out && (!bias || tn_init_constant(s->out->param[1].t, 0));
}

// Checks the arguments that attention and block have in common.
static bool heads_ok(tn_ctx *cx, const char *op, int64_t width, int64_t heads, double dropout)
{
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "width", width) ||
        !tni_size_arg(cx, op, "heads", heads) || !tni_unit_arg(cx, op, "dropout", dropout))
        return false;
    if (width % heads == 0) return true;
    return tni_refuse(cx, TN_EARG, "%s: heads %lld does not divide width %lld", op,
                      (long long)heads, (long long)width);
}

// The scope collects temporaries of the initial values.
tn_layer *tn_nn_attention_with(tn_ctx *cx, int64_t width, int64_t heads, tn_nn_attention_opts o)
{
    const char *op = "nn_attention";
    if (!heads_ok(cx, op, width, heads, o.dropout)) return NULL;
    tn_layer *l = tni_layer_make(cx, op, "MultiheadAttention", attention_forward,
                                 sizeof(attention));
    if (!l) return NULL;
    *(attention *)l->self = (attention){ .heads = heads, .causal = o.causal, .dropout = o.dropout };
    tn_scope *scope       = tn_begin(cx);
    bool      ok          = scope && fill_attention(l, width, !o.no_bias);
    if (scope) tni_scope_close(scope);
    return ok ? l : tni_layer_give_up(l);
}

tn_layer *tn_nn_attention(tn_ctx *cx, int64_t width, int64_t heads)
{
    return tn_nn_attention_with(cx, width, heads, (tn_nn_attention_opts){ 0 });
}

// ---- transformer block -------------------------------------------------------------------------

// The layers are the block's children.
typedef struct {
    tn_layer *attn, *linear1, *linear2, *norm1, *norm2;
    bool      norm_first;
    double    dropout;
    tn_tensor *(*f)(tn_tensor *x);
} block;

static tn_tensor *attend(tn_layer *l, tn_tensor *x)
{
    block *s = l->self;
    x        = tn_forward(s->attn, x);
    return x ? tn_dropout(x, s->dropout, l->training) : NULL;
}

static tn_tensor *feed_forward(tn_layer *l, tn_tensor *x)
{
    block *s = l->self;
    x        = tn_forward(s->linear1, x);
    if (x) x = tni_function_run(s->f, x);
    if (x) x = tn_forward(s->linear2, tn_dropout(x, s->dropout, l->training));
    return x ? tn_dropout(x, s->dropout, l->training) : NULL;
}

// One half of a block with its norm: before the half (norm_first, as GPT-2 has it), or after the sum.
static tn_tensor *with_norm(tn_layer *l, tn_tensor *x, tn_layer *norm, tn_forward_fn *part)
{
    bool       first = ((block *)l->self)->norm_first;
    tn_tensor *y     = first ? tn_forward(norm, x) : x;
    if (y) y = part(l, y);
    if (y) y = tn_add(x, y);
    return y && !first ? tn_forward(norm, y) : y;
}

static tn_tensor *block_forward(tn_layer *l, tn_tensor *x)
{
    block *s = l->self;
    x        = with_norm(l, x, s->norm1, attend);
    return x ? with_norm(l, x, s->norm2, feed_forward) : NULL;
}

// Makes the children under PyTorch's names; each one is made only if the one before it was.
static bool fill_block(tn_layer *l, int64_t width, int64_t heads, int64_t hidden,
                       tn_nn_attention_opts o)
{
    tn_ctx *cx = l->owned.cx;
    block  *s  = l->self;
    s->attn    = add_child(l, "self_attn", tn_nn_attention_with(cx, width, heads, o));
    if (s->attn) s->linear1 = add_child(l, "linear1", tn_nn_linear(cx, width, hidden));
    if (s->linear1) s->linear2 = add_child(l, "linear2", tn_nn_linear(cx, hidden, width));
    if (s->linear2) s->norm1 = add_child(l, "norm1", tn_nn_layer_norm(cx, width));
    if (s->norm1) s->norm2 = add_child(l, "norm2", tn_nn_layer_norm(cx, width));
    return s->norm2 != NULL;
}

tn_layer *tn_nn_transformer_block_with(tn_ctx *cx, int64_t width, int64_t heads,
                                       tn_nn_transformer_opts o)
{
    const char *op = "nn_transformer_block";
    if (!heads_ok(cx, op, width, heads, o.dropout)) return NULL;
    int64_t hidden = o.hidden ? o.hidden : 4 * width;
    if (!tni_size_arg(cx, op, "hidden", hidden)) return NULL;
    tn_layer *l = tni_layer_make(cx, op, "TransformerEncoderLayer", block_forward, sizeof(block));
    if (!l) return NULL;
    *(block *)l->self         = (block){ .norm_first = o.norm_first,
                                         .dropout    = o.dropout,
                                         .f          = o.f ? o.f : tn_relu };
    tn_nn_attention_opts attn = { .causal = o.causal, .dropout = o.dropout };
    return fill_block(l, width, heads, hidden, attn) ? l : tni_layer_give_up(l);
}

tn_layer *tn_nn_transformer_block(tn_ctx *cx, int64_t width, int64_t heads)
{
    return tn_nn_transformer_block_with(cx, width, heads, (tn_nn_transformer_opts){ 0 });
}
