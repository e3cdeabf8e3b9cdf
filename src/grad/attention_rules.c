// The rules of attention and of its gradient. The first is an op of its own (attention_grad); the
// second is written with products and sums over the matrix of weights, so it can be differentiated
// any further.
//
// B batch, H heads, T queries, S keys and values, D their size, E that of a value
#include "ops/op_functions.h"

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

// With the weights p, dp = g v' and the scores' gradient ds = p (dp - sum(p dp)), attention_grad returns
// scale ds k, scale ds' q, p' g and, for a mask, ds itself. Their gradients arrive as a, b, c and e. From
// these follow x, the gradient of ds, w, that of p, and z, through the softmax, that of the scores. Dropout
// (drop) is in p' g and in dp. All of it depends only on queries, keys, values, the mask and g; the result
// and the log-sums, further sources of the op, get none.
void tni_grad_attention_grad(tni_grad_args *r)
{
    const tni_attr *attr = &r->n->attr;
    uint32_t        last = r->n->nsrc - 1;
    double          s    = attr->attention.scale;
    tn_tensor      *src[TNI_ATTENTION_GRADS + 1];
    for (uint32_t i = 0; i < last - 2; i++) src[i] = attention_input(r, i);
    tni_attention_args t = tni_attention_sources(attr, src);
    tn_tensor         *g = heads_swapped(attention_input(r, last));
    tn_tensor *a = output_gradient(r, 0), *b = output_gradient(r, 1), *c = output_gradient(r, 2);
    tn_tensor *e = r->out_g[3], *q = t.q, *p = tni_attention_weights(&t);
    if (!g || !p || !a || !b || !c) return;
    int64_t    H = tn_size(q, 1), Hk = tn_size(t.k, 1);
    tn_tensor *k = tni_repeat_heads(t.k, H), *v = tni_repeat_heads(t.v, H);
    b = tni_repeat_heads(b, H), c = tni_repeat_heads(c, H);

    tn_tensor *dp = tni_attention_drop(attr, matmul_nt(g, v));
    tn_tensor *dd = tn_sub(dp, row_sum(p, dp)), *ds = tn_mul(p, dd);
    tn_tensor *x = tn_mul_s(tn_add(matmul_nt(a, k), matmul_nt(q, b)), s);
    if (e) x = tn_add(x, e);
    tn_tensor *px = row_sum(p, x), *y = tn_mul(p, tn_sub(x, px));
    tn_tensor *w    = tn_add(tn_sub(tn_mul(x, dd), tn_mul(px, dp)),
                             tni_attention_drop(attr, matmul_nt(g, c)));
    tn_tensor *z    = tn_mul(p, tn_sub(w, row_sum(p, w)));
    tn_tensor *kept = tni_attention_drop(attr, y);

    if (r->need[0])
        r->gx[0] = heads_swapped(tn_mul_s(tn_add(tn_matmul(ds, b), tn_matmul(z, k)), s));
    if (r->need[1])
        r->gx[1] = keys_gradient(tn_mul_s(tn_add(matmul_tn(ds, a), matmul_tn(z, q)), s), Hk);
    if (r->need[2]) r->gx[2] = keys_gradient(matmul_tn(kept, g), Hk);
    if (attr->attention.extras && r->need[3]) r->gx[3] = tni_sum_to(z, src[3]);
    if (r->need[last])
        r->gx[last] = heads_swapped(
            tn_add(tn_matmul(tni_attention_drop(attr, p), c), tn_matmul(kept, v)));
}
