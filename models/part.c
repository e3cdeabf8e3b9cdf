// What the models share: construction of their layers, and the parts of language models.
#include "part.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

// ---- construction ------------------------------------------------------------------------------

// Marks a part, unless it is NULL: the functions of all models only record.
static tn_layer *repeatable(tn_layer *l)
{
    if (l) tn_layer_repeatable(l, true);
    return l;
}

tn_layer *tni_model_part(tn_ctx *cx, tn_forward_fn *f, size_t bytes)
{
    void *self = calloc(1, bytes);
    if (!self) return tn_error_set(cx, TN_EMEM, "layer: out of memory");
    return repeatable(tn_layer_new(cx, f, self, free));
}

tn_layer *tni_model_part_n(tn_ctx *cx, tn_forward_n_fn *f, tn_layer_counts n, size_t bytes)
{
    void *self = calloc(1, bytes);
    if (!self) return tn_error_set(cx, TN_EMEM, "layer: out of memory");
    return repeatable(tn_layer_new_n(cx, f, n, self, free));
}

tn_layer *tni_model_done(tn_layer *l, bool ok)
{
    if (l && ok) return l;
    if (l) tn_layer_free(l);
    return NULL;
}

// ---- parts of networks for images --------------------------------------------------------------

// Children run in the order in which they were added.
typedef struct {
    int       count;
    bool      broken;  // a child could not be made
    tn_layer *step[TNI_CHAIN];
} chain;

static tn_tensor *run_chain(tn_layer *l, tn_tensor *x)
{
    const chain *c = tn_layer_self(l);
    for (int i = 0; i < c->count; i++) x = tn_forward(c->step[i], x);
    return x;
}

tn_layer *tni_model_chain(tn_ctx *cx)
{
    return tni_model_part(cx, run_chain, sizeof(chain));
}

void tni_chain_add(tn_layer *l, const char *name, tn_layer *step)
{
    chain *c = l ? tn_layer_self(l) : NULL;
    step     = tn_layer_child(l, name, step);
    if (!c) return;
    c->step[c->count++] = step;
    c->broken |= !step;
}

tn_layer *tni_chain_done(tn_layer *l)
{
    return tni_model_done(l, l && !((chain *)tn_layer_self(l))->broken);
}

tn_layer *tni_model_conv(tn_ctx *cx, int64_t in, int64_t out, int64_t k, tn_nn_conv_opts o)
{
    tn_layer *l = tn_nn_conv2d_hw(cx, in, out, k, k, o);
    bool ok = l && tn_init_kaiming_normal(tn_layer_find(l, "weight"), (tn_init_opts){ true, 0 });
    return tni_model_done(l, ok);
}

tn_layer *tni_model_linear(tn_ctx *cx, int64_t in, int64_t out, double std)
{
    tn_layer *l  = tn_nn_linear(cx, in, out);
    bool      ok = l && tn_init_normal(tn_layer_find(l, "weight"), 0, std) &&
              tn_init_constant(tn_layer_find(l, "bias"), 0);
    return tni_model_done(l, ok);
}

double tni_model_default(double v, double usual)
{
    return v != 0 ? v : signbit(v) ? 0 : usual;
}

// ---- parts of language models ------------------------------------------------------------------

tn_layer *tni_model_embedding(tn_ctx *cx, int64_t count, int64_t width, double std)
{
    tn_layer *l = tn_nn_embedding(cx, count, width);
    return tni_model_done(l, l && tn_init_normal(tn_layer_find(l, "weight"), 0, std));
}

typedef struct {
    tn_tensor *weight;
} head;

static tn_tensor *run_head(tn_layer *l, tn_tensor *x)
{
    const head *h = tn_layer_self(l);
    return tn_linear(x, h->weight, NULL);
}

tn_layer *tni_model_head(tn_ctx *cx, tn_tensor *weight)
{
    tn_layer *l = tni_model_part(cx, run_head, sizeof(head));
    if (!l) return NULL;
    head *h   = tn_layer_self(l);
    h->weight = tn_layer_param(l, "weight", weight);
    return tni_model_done(l, h->weight);
}

// The blocks are children of the layer.
typedef struct {
    int64_t   n;
    tn_layer *block[];
} stack;

enum { MOST_INPUTS = 16 };  // of a layer

static void run_stack(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    const stack *s = tn_layer_self(l);
    tn_tensor   *in[MOST_INPUTS];
    for (int i = 0; i < nx; i++) in[i] = x[i];
    for (int64_t i = 0; i < s->n && in[0]; i++) tn_forward_n(s->block[i], nx, in, ny, in);
    y[0] = in[0];
}

tn_layer *tni_model_stack(tn_ctx *cx, int64_t n, int inputs, tni_new_block *make, const void *opts)
{
    size_t    bytes = sizeof(stack) + (size_t)n * sizeof(tn_layer *);
    tn_layer *l     = tni_model_part_n(cx, run_stack, (tn_layer_counts){ .in = inputs }, bytes);
    if (!l) return NULL;
    stack *s  = tn_layer_self(l);
    bool   ok = true;
    for (s->n = 0; s->n < n && ok; s->n++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)s->n);
        s->block[s->n] = tn_layer_child(l, name, make(cx, opts));
        ok             = s->block[s->n] != NULL;
    }
    return tni_model_done(l, ok);
}

tn_tensor *tni_split_heads(tn_tensor *x, int64_t H)
{
    if (!x) return NULL;
    int64_t B = tn_size(x, 0), T = tn_size(x, 1), C = tn_size(x, 2);
    return tn_transpose(tn_reshape(x, TN_SHAPE(B, T, H, C / H)), 1, 2);
}

tn_tensor *tni_join_heads(tn_tensor *x)
{
    return tn_flatten(tn_transpose(x, 1, 2), 2, 3);
}

bool tni_tokens_ok(tn_layer *l, const char *model, tn_tensor *x, int64_t context)
{
    char text[120] = "";
    if (tn_rank(x) != 2)
        snprintf(text, sizeof text, "%s: tokens have rank %d, not (B, T)", model, tn_rank(x));
    else if (!tn_layer_fits(l, tn_size(x, 1), context))
        snprintf(text, sizeof text, "%s: %lld tokens are more than the context of %lld", model,
                 (long long)(tn_layer_past(l) + tn_size(x, 1)), (long long)context);
    if (*text) tn_error_set(tn_layer_ctx(l), TN_ESHAPE, text);
    return !*text;
}

bool tni_sizes_ok(tn_ctx *cx, const char *model, size_t n, const tni_model_size *sizes)
{
    char text[160] = "";
    for (size_t i = 0; i < n && !*text; i++)
        if (sizes[i].v < 1 || sizes[i].v > INT_MAX)
            snprintf(text, sizeof text, "%s: %s %lld is not in 1 .. %d", model, sizes[i].name,
                     (long long)sizes[i].v, INT_MAX);
    if (*text) tn_error_set(cx, TN_EARG, text);
    return !*text;
}
