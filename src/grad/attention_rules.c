// The rules of attention and of its gradient. The first is an op of its own; the second is written
// with products and sums over the matrix of weights, so it can be differentiated any further.
//
// B batch, H heads, T queries, S keys and values, D their size, E that of a value
#include "ops/op_functions.h"

static tn_tensor *input(tni_grad_args *r, uint32_t i)
{
    return tni_wrap_node(r->cx, r->n->src[i]);
}

// A mask gets none: one that wants a gradient is left to other ops when it is recorded.
void tni_grad_attention(tni_grad_args *r)
{
    tn_tensor *gx[3];
    if (!r->g || !tni_attention_grad(r->cx, r->n, r->g, gx)) return;
    for (int i = 0; i < 3; i++)
        if (r->need[i]) r->gx[i] = gx[i];
}

// ---- the gradient's gradient -------------------------------------------------------------------

// (B, T, H, D) as (B, H, T, D), or back.
static tn_tensor *turn(tn_tensor *x)
{
    return tn_transpose(x, 1, 2);
}

static tn_tensor *across(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(a, tn_transpose(b, -1, -2));
}

static tn_tensor *down(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(tn_transpose(a, -1, -2), b);
}

static tn_tensor *row_sum(tn_tensor *a, tn_tensor *b)
{
    return tn_sum_keep(tn_mul(a, b), -1);
}

// What arrived at output i of attention_grad, which has the shape of source i.
static tn_tensor *arrived(tni_grad_args *r, uint32_t i)
{
    return turn(r->out_g[i] ? r->out_g[i] : tn_zeros_like(input(r, i)));
}

// With the weights p, dp = g v' and the score's gradient ds = p (dp - sum(p dp)), the op gives
// scale ds k, scale ds' q and p' g. Their gradients are a, b and c. x is what they say of ds, w of p
// and z, through the softmax, of the scores. All of it follows from queries, keys, values and g; the
// result and the logarithms, which the op is given besides, get no gradient.
void tni_grad_attention_grad(tni_grad_args *r)
{
    const tni_attr *attr = &r->n->attr;
    uint32_t        last = r->n->nsrc - 1;
    double          s    = attr->attention.scale;
    tn_tensor      *q = turn(input(r, 0)), *k = turn(input(r, 1)), *v = turn(input(r, 2));
    tn_tensor      *g = turn(input(r, last)), *mask = last == 6 ? input(r, 3) : NULL;
    tn_tensor      *a = arrived(r, 0), *b = arrived(r, 1), *c = arrived(r, 2);
    tn_tensor      *p = tni_attention_weights(q, k, mask, s, attr->attention.causal);

    tn_tensor *dp = across(g, v);
    tn_tensor *dd = tn_sub(dp, row_sum(p, dp)), *ds = tn_mul(p, dd);
    tn_tensor *x  = tn_mul_s(tn_add(across(a, k), across(q, b)), s);
    tn_tensor *px = row_sum(p, x), *y = tn_mul(p, tn_sub(x, px));
    tn_tensor *w = tn_add(tn_sub(tn_mul(x, dd), tn_mul(px, dp)), across(g, c));
    tn_tensor *z = tn_mul(p, tn_sub(w, row_sum(p, w)));

    if (r->need[0]) r->gx[0] = turn(tn_mul_s(tn_add(tn_matmul(ds, b), tn_matmul(z, k)), s));
    if (r->need[1]) r->gx[1] = turn(tn_mul_s(tn_add(down(ds, a), down(z, q)), s));
    if (r->need[2]) r->gx[2] = turn(down(y, g));
    if (r->need[last]) r->gx[last] = turn(tn_add(tn_matmul(p, c), tn_matmul(y, v)));
}
