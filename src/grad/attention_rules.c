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

// A mask gets no gradient: tn_attention leaves one that needs it to other ops.
void tni_grad_attention(tni_grad_args *r)
{
    tn_tensor *gx[3];
    if (!r->g || !tni_attention_grad(r->cx, r->n, r->g, gx)) return;
    for (int i = 0; i < 3; i++)
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

// With the weights p, dp = g v' and the scores' gradient ds = p (dp - sum(p dp)), attention_grad returns
// scale ds k, scale ds' q and p' g. Their gradients arrive as a, b and c. From these follow x, the gradient
// of ds, w, that of p, and z, through the softmax, that of the scores. All of it depends only on
// queries, keys, values and g; the result and the log-sums, further sources of the op, get none.
void tni_grad_attention_grad(tni_grad_args *r)
{
    const tni_attr *attr = &r->n->attr;
    uint32_t        last = r->n->nsrc - 1;
    double          s    = attr->attention.scale;
    tn_tensor *q = heads_swapped(attention_input(r, 0)), *k = heads_swapped(attention_input(r, 1));
    tn_tensor *v    = heads_swapped(attention_input(r, 2));
    tn_tensor *g    = heads_swapped(attention_input(r, last));
    tn_tensor *mask = last == 6 ? attention_input(r, 3) : NULL;
    tn_tensor *a = output_gradient(r, 0), *b = output_gradient(r, 1), *c = output_gradient(r, 2);
    tn_tensor *p = tni_attention_weights(q, k, mask, s, attr->attention.causal);

    tn_tensor *dp = matmul_nt(g, v);
    tn_tensor *dd = tn_sub(dp, row_sum(p, dp)), *ds = tn_mul(p, dd);
    tn_tensor *x  = tn_mul_s(tn_add(matmul_nt(a, k), matmul_nt(q, b)), s);
    tn_tensor *px = row_sum(p, x), *y = tn_mul(p, tn_sub(x, px));
    tn_tensor *w = tn_add(tn_sub(tn_mul(x, dd), tn_mul(px, dp)), matmul_nt(g, c));
    tn_tensor *z = tn_mul(p, tn_sub(w, row_sum(p, w)));

    if (r->need[0])
        r->gx[0] = heads_swapped(tn_mul_s(tn_add(tn_matmul(ds, b), tn_matmul(z, k)), s));
    if (r->need[1])
        r->gx[1] = heads_swapped(tn_mul_s(tn_add(matmul_tn(ds, a), matmul_tn(z, q)), s));
    if (r->need[2]) r->gx[2] = heads_swapped(matmul_tn(y, g));
    if (r->need[last]) r->gx[last] = heads_swapped(tn_add(tn_matmul(p, c), tn_matmul(y, v)));
}
