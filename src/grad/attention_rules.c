// The rules of attention and of its gradient. The first is an op of its own (attention_grad); the
// second is written with products and sums over the matrix of weights, so it can be differentiated
// any further.
//
// B batch, H heads, T queries, S keys and values, D their size, E that of a value
#include "ops/op_functions.h"
#include "ops/recognize.h"

static tn_tensor *attention_input(tni_grad_args *r, uint32_t i)
{
    return tni_wrap_node(r->cx, r->n->src[i]);
}

// How many of what is read beside the scores have to be asked for, to get all that are needed.
static int extras_needed(const tni_grad_args *r)
{
    int n = r->n->attr.attention.extras;
    while (n > 0 && !r->need[2 + n]) n--;
    return n;
}

void tni_grad_attention(tni_grad_args *r)
{
    tn_tensor *gx[TNI_ATTENTION_GRADS];
    int        extras = extras_needed(r);
    if (!r->g || !tni_attention_grad(r->cx, r->n, r->g, extras, gx)) return;
    for (int i = 0; i < 3 + extras; i++)
        if (r->need[i]) r->gx[i] = gx[i];
}

// ---- the gradient's gradient -------------------------------------------------------------------

// (B, T, H, D) as (B, H, T, D), or back.
static tn_tensor *heads_swapped(tn_tensor *x)
{
    return tn_transpose(x, 1, 2);
}

// The products a b' and a' b over the last two axes; n and t as in BLAS.
static tn_tensor *matmul_nt(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(a, tn_transpose(b, -1, -2));
}

static tn_tensor *matmul_tn(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(tn_transpose(a, -1, -2), b);
}

// The sum of a row's products, one number a query: what the softmax's gradient subtracts.
static tn_tensor *row_sum(tn_tensor *a, tn_tensor *b)
{
    return tn_sum_keep(tn_mul(a, b), -1);
}

// The gradient that arrived at output i of attention_grad, which has the shape of source i; zeros
// if none.
static tn_tensor *output_gradient(tni_grad_args *r, uint32_t i)
{
    return heads_swapped(r->out_g[i] ? r->out_g[i] : tn_zeros_like(attention_input(r, i)));
}

// x (B, H, S, D) as the gradient of keys or values: summed over the heads that each served, heads
// inside.
static tn_tensor *keys_gradient(tn_tensor *x, int64_t Hk)
{
    if (x && tn_size(x, 1) != Hk)
        x = tn_sum(tn_reshape(x, TN_SHAPE(tn_size(x, 0), Hk, -1, tn_size(x, 2), tn_size(x, 3))), 2);
    return heads_swapped(x);
}

// The second gradient: what attention_grad was given, what arrived at its outputs (a, b, c, and e
// at those of a mask or of what a score program reads), and values on the way.
typedef struct {
    tni_grad_args     *r;
    tni_attention_args t;
    const tni_score   *score;
    int64_t            H, Hk;
    tn_tensor         *src[TNI_ATTENTION_GRADS + 1], *q, *k, *v, *g, *a, *b, *c;
    tn_tensor         *raw, *value[TNI_SCORE_OPS], *e[TNI_SCORE_SOURCES];
} second;

// Keys and values are repeated for the query heads that they serve, so that all else has H heads.
// False if something could not be recorded.
static bool begin_second(second *s, tni_grad_args *r)
{
    const tni_attr *attr = &r->n->attr;
    uint32_t        last = r->n->nsrc - 1;
    s->r                 = r;
    s->score             = attr->attention.score;
    for (uint32_t i = 0; i < last - 2; i++) s->src[i] = attention_input(r, i);
    s->t = tni_attention_sources(attr, s->src);
    s->g = heads_swapped(attention_input(r, last));
    s->a = output_gradient(r, 0), s->b = output_gradient(r, 1), s->c = output_gradient(r, 2);
    for (int i = 0; i < attr->attention.extras; i++) s->e[i] = r->out_g[3 + i];
    s->q = s->t.q;
    if (!s->q || !s->t.k || !s->g || !s->a || !s->b || !s->c) return false;
    s->H = tn_size(s->q, 1), s->Hk = tn_size(s->t.k, 1);
    s->k = tni_repeat_heads(s->t.k, s->H), s->v = tni_repeat_heads(s->t.v, s->H);
    s->b = tni_repeat_heads(s->b, s->H), s->c = tni_repeat_heads(s->c, s->H);
    if (!s->score) return true;
    s->raw = tn_mul_s(matmul_nt(s->q, s->k), attr->attention.scale);
    return s->raw &&
           tni_score_record(r->cx, s->score->op, s->score->all, s->raw, s->t.extra, s->value);
}

// x times the slope of the score (0) or of source i - 1: of a mask it is 1.
static tn_tensor *times_slope(const second *s, tn_tensor *x, int i)
{
    if (!s->score || !x) return x;
    int slope = i ? s->score->source_slope[i - 1] : s->score->slope;
    return slope < 0 ? NULL : tn_mul(x, s->value[slope]);
}

// The gradients that come back through the slopes of a score program, to the scores and to what it
// reads: ds was multiplied by them. Zeros stand for what did not arrive.
static bool slope_gradients(second *s, tn_tensor *ds, tn_tensor *m, tn_tensor **gx)
{
    tn_tensor *g[1 + TNI_SCORE_SOURCES] = { tn_mul(ds, m) };
    for (int i = 0; i <= TNI_SCORE_SOURCES; i++) gx[i] = NULL;
    if (!s->score) return true;
    for (int i = 0; i < s->score->sources; i++)
        g[i + 1] = s->e[i] ? tn_mul(ds, s->e[i]) : tn_zeros_like(ds);
    return tni_score_slope_grads(s->r->cx, s->score, s->raw, s->t.extra, g, gx);
}

static tn_tensor *sum_of(tn_tensor *a, tn_tensor *b)
{
    return a && b ? tn_add(a, b) : a ? a : b;
}

// With the weights p, dp = g v' and the scores' gradient ds = p (dp - sum(p dp)), attention_grad
// returns scale dr k, scale dr' q, p' g and ds times the slope of what was read beside the scores;
// dr is ds, or ds times the slope of a score program. Their gradients arrive as a, b, c and e. From
// these follow m, the gradient of dr, x, that of ds, w, that of p, and z, through the softmax, that
// of the scores. Dropout (drop) is in p' g and in dp. All of it depends only on queries, keys,
// values, the extras and g; the result and the log-sums, further sources of the op, get none.
void tni_grad_attention_grad(tni_grad_args *r)
{
    const tni_attr *attr  = &r->n->attr;
    uint32_t        last  = r->n->nsrc - 1;
    double          scale = attr->attention.scale;
    second          s     = { 0 };
    tn_tensor      *back[1 + TNI_SCORE_SOURCES];
    if (!begin_second(&s, r)) return;
    tn_tensor *p = tni_attention_weights(&s.t), *g = s.g;

    tn_tensor *dp = tni_attention_drop(attr, matmul_nt(g, s.v));
    tn_tensor *dd = tn_sub(dp, row_sum(p, dp)), *ds = tn_mul(p, dd), *dr = times_slope(&s, ds, 0);
    tn_tensor *m = tn_mul_s(tn_add(matmul_nt(s.a, s.k), matmul_nt(s.q, s.b)), scale);
    tn_tensor *x = times_slope(&s, m, 0);
    for (int i = 0; i < attr->attention.extras; i++)
        if (s.e[i]) x = sum_of(x, times_slope(&s, s.e[i], i + 1));
    tn_tensor *px = row_sum(p, x), *y = tn_mul(p, tn_sub(x, px));
    tn_tensor *w = tn_add(tn_sub(tn_mul(x, dd), tn_mul(px, dp)),
                          tni_attention_drop(attr, matmul_nt(g, s.c)));
    tn_tensor *z = tn_mul(p, tn_sub(w, row_sum(p, w))), *kept = tni_attention_drop(attr, y);
    if (!z || !kept || !slope_gradients(&s, ds, m, back)) return;
    tn_tensor *gr = sum_of(times_slope(&s, z, 0), back[0]);

    if (r->need[0])
        r->gx[0] = heads_swapped(tn_mul_s(tn_add(tn_matmul(dr, s.b), tn_matmul(gr, s.k)), scale));
    if (r->need[1])
        r->gx[1] = keys_gradient(tn_mul_s(tn_add(matmul_tn(dr, s.a), matmul_tn(gr, s.q)), scale),
                                 s.Hk);
    if (r->need[2]) r->gx[2] = keys_gradient(matmul_tn(kept, g), s.Hk);
    for (int i = 0; i < attr->attention.extras; i++)
        if (r->need[3 + i])
            r->gx[3 + i] = tni_sum_to(sum_of(times_slope(&s, z, i + 1), back[i + 1]), s.src[3 + i]);
    if (r->need[last])
        r->gx[last] = heads_swapped(
            tn_add(tn_matmul(tni_attention_drop(attr, p), s.c), tn_matmul(kept, s.v)));
}
