// Multi-head attention with masks, to itself or to another sequence, and the transformer block
// around it. Names of parameters and initial values are those of PyTorch's MultiheadAttention and
// TransformerEncoderLayer, so that weights load under their names.
//
// B batch, T time, S time of keys, E width, K and V width of keys and values, H heads, D = E / H
#include "nn/builtin.h"

#include <math.h>

// ---- attention ---------------------------------------------------------------------------------

// The tensors and the layer are children of the attention; b (3E) is NULL where there is no bias. w
// (3E, E) makes queries, keys and values at once; it is NULL where widths differ, and part[] has a
// weight for each of them.
typedef struct {
    tn_tensor *w, *part[3], *b;
    tn_layer  *out;
    int64_t    width, heads;
    bool       causal;
    double     dropout;
} attention;

// Queries, keys and values, in this order everywhere.
static const char *const part_name[] = { "x", "keys", "values" };

// Projects x by the parts first .. last of the weights, in one product, and splits it into heads:
// (B, H, T, D) each.
static bool project(const attention *s, tn_tensor *x, int first, int last, tn_tensor **y)
{
    int64_t    E = s->width, n = last - first + 1, H = s->heads;
    int64_t    B = tn_size(x, 0), T = tn_size(x, 1);
    bool       all = n == 3;
    tn_tensor *w = s->w, *b = s->b;
    if (!w) w = s->part[first];
    else if (!all) w = tn_slice(w, 0, first * E, (last + 1) * E, 1);
    if (b && !all) b = tn_slice(b, 0, first * E, (last + 1) * E, 1);
    if (!w || (s->b && !b)) return false;
    tn_tensor *both = tn_reshape(tn_linear(x, w, b), TN_SHAPE(B, T, n, H, E / H));
    if (!both) return false;
    for (int i = first; i <= last; i++)
        if (!(y[i] = tn_transpose(tn_select(both, 2, i - first), 1, 2))) return false;
    return true;
}

// Whether input i is (B, T, its width), and agrees with those before it.
static bool sequence_ok(tn_ctx *cx, const attention *s, int i, tn_tensor *const *x)
{
    int64_t width = s->part[i] ? tn_size(s->part[i], 1) : s->width;
    if (tn_rank(x[i]) != 3 || tn_size(x[i], 2) != width)
        return tni_refuse(cx, TN_ESHAPE, "nn_attention: %s %s is not (B, %c, %lld)", part_name[i],
                          tni_shape_of(x[i]).s, i ? 'S' : 'T', (long long)width);
    if (!i || (tn_size(x[i], 0) == tn_size(x[i - 1], 0) &&
               (i == 1 || tn_size(x[2], 1) == tn_size(x[1], 1))))
        return true;
    return tni_refuse(cx, TN_ESHAPE, "nn_attention: %s %s and %s %s: their sizes differ",
                      part_name[i - 1], tni_shape_of(x[i - 1]).s, part_name[i],
                      tni_shape_of(x[i]).s);
}

// For where a bool mask meets one of numbers: an infinity hides a key whatever its score is.
// A bool mask as numbers to add: 0 where it is true.
static tn_tensor *as_scores(tn_tensor *m, tn_dtype dt)
{
    if (tn_dtype_of(m) != TN_BOOL) return m;
    tn_tensor *zero = tn_full(m->cx, dt, TN_0D, 0), *hidden = tn_full(m->cx, dt, TN_0D, -INFINITY);
    return zero && hidden ? tn_where(m, zero, hidden) : NULL;
}

// One mask for the mask of keys (B, S) and the other one, either of which may be missing. Sets *ok.
static tn_tensor *join_masks(tn_ctx *cx, tn_tensor *const *x, tn_tensor *keys, tn_tensor *mask,
                             bool *ok)
{
    *ok = true;
    if (!keys) return mask;
    *ok = false;
    if (tn_rank(keys) != 2 || tn_size(keys, 0) != tn_size(x[1], 0) ||
        tn_size(keys, 1) != tn_size(x[1], 1))
        return tni_fail(cx, TN_ESHAPE, "nn_attention: the mask of keys %s is not (%lld, %lld)",
                        tni_shape_of(keys).s, (long long)tn_size(x[1], 0),
                        (long long)tn_size(x[1], 1));
    keys        = tn_reshape(keys, TN_SHAPE(tn_size(keys, 0), 1, 1, tn_size(keys, 1)));
    tn_dtype dt = tn_dtype_of(x[0]);
    if (!mask || !keys) mask = keys;
    else if (tn_dtype_of(mask) == TN_BOOL && tn_dtype_of(keys) == TN_BOOL)
        mask = tn_logical_and(mask, keys);
    else mask = tn_add(as_scores(mask, dt), as_scores(keys, dt));
    *ok = mask != NULL;
    return mask;
}

// Heads are moved before time, attention runs for each of them, and the heads are joined again for
// the output projection. Sequences that are the same tensor share a product.
static void attention_forward(tn_layer *l, int nx, tn_tensor *const *in, int ny, tn_tensor **y)
{
    attention *s    = l->self;
    tn_tensor *x[5] = { 0 }, *p[3];
    (void)ny;
    for (int i = 0; i < nx; i++) x[i] = in[i];
    if (!x[1]) x[1] = x[0];
    if (!x[2]) x[2] = x[1];
    for (int i = 0; i < 3; i++)
        if (!sequence_ok(l->owned.cx, s, i, x)) return;
    bool       ok;
    tn_tensor *mask = join_masks(l->owned.cx, x, x[3], x[4], &ok);
    for (int i = 0, last; i < 3 && ok; i = last + 1) {
        for (last = i; s->w && last < 2 && x[last + 1] == x[i];) last++;
        ok = project(s, x[i], i, last, p);
    }
    if (!ok) return;
    tn_attention_opts o = { .causal  = s->causal,
                            .mask    = mask,
                            .dropout = l->training ? s->dropout : 0 };
    tn_tensor        *a = tn_attention(p[0], p[1], p[2], o);  // (B, H, T, D)
    if (a)
        a = tn_reshape(tn_transpose(a, 1, 2),
                       TN_SHAPE(tn_size(x[0], 0), tn_size(x[0], 1), s->width));
    y[0] = a ? tn_forward(s->out, a) : NULL;
}

// Initializes the weights as PyTorch does, with the fans of the three stacked projections if their
// widths agree, and biases with zero.
static bool fill_attention(tn_layer *l, int64_t K, int64_t V, bool bias)
{
    static const char *const name[] = { "q_proj_weight", "k_proj_weight", "v_proj_weight" };
    attention               *s      = l->self;
    tn_nn_linear_opts        o      = { .no_bias = !bias };
    int64_t                  E = s->width, width[] = { E, K, V };
    if (K == E && V == E) {
        s->w = tni_new_param(l, "in_proj_weight", tn_init_xavier_uniform, 1, TN_SHAPE(3 * E, E));
        if (!s->w) return false;
    }
    for (int i = 0; i < 3 && !s->w; i++) {
        s->part[i] = tni_new_param(l, name[i], tn_init_xavier_uniform, 1, TN_SHAPE(E, width[i]));
        if (!s->part[i]) return false;
    }
    if (bias) s->b = tni_new_param(l, "in_proj_bias", tn_init_constant, 0, TN_SHAPE(3 * E));
    if (bias && !s->b) return false;
    s->out = tni_add_child(l, "out_proj", tn_nn_linear_with(l->owned.cx, E, E, o));
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
    int64_t K = o.key_width ? o.key_width : width, V = o.value_width ? o.value_width : width;
    if (!tni_size_arg(cx, op, "key_width", K) || !tni_size_arg(cx, op, "value_width", V))
        return NULL;
    tn_layer_counts n = { .in = 5, .out = 1, .optional = 4 };
    tn_layer       *l = tni_layer_make_n(cx, op, "MultiheadAttention", attention_forward, n,
                                         sizeof(attention));
    if (!l) return NULL;
    *(attention *)l->self = (attention){
        .width = width, .heads = heads, .causal = o.causal, .dropout = o.dropout
    };
    tn_scope *scope = tn_begin(cx);
    bool      ok    = scope && fill_attention(l, K, V, !o.no_bias);
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

// One half of a block with its norm: before the half (norm_first, as GPT-2 has it), or after the
// sum.
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
    s->attn    = tni_add_child(l, "self_attn", tn_nn_attention_with(cx, width, heads, o));
    if (s->attn) s->linear1 = tni_add_child(l, "linear1", tn_nn_linear(cx, width, hidden));
    if (s->linear1) s->linear2 = tni_add_child(l, "linear2", tn_nn_linear(cx, hidden, width));
    if (s->linear2) s->norm1 = tni_add_child(l, "norm1", tn_nn_layer_norm(cx, width));
    if (s->norm1) s->norm2 = tni_add_child(l, "norm2", tn_nn_layer_norm(cx, width));
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
