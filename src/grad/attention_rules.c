// The rules of attention and of its gradient. The first is an op of its own; the second is written
// with products and sums over the matrix of weights, so it can be differentiated any further.
//
// B batch, H heads, T queries, S keys and values, D their size, E that of a value
#include "grad/attention_rules.h"

static tn_tensor *input(tni_rule_args *r, uint32_t i)
{
    return tni_wrap_node(r->cx, r->n->src[i]);
}

// Part i of what attention_grad gives: the gradient of source i.
static tn_tensor *part(tni_rule_args *r, tn_tensor *all, int i)
{
    int64_t         at = 0;
    const tni_node *x  = r->n->src[i];
    for (int k = 0; k < i; k++) at += tni_node_count(r->n->src[k]);
    return tn_reshape(tn_slice(all, 0, at, at + tni_node_count(x), 1), x->rank, x->size);
}

// A mask gets none: one that wants a gradient is left to other ops when it is recorded.
void tni_rule_attention(tni_rule_args *r)
{
    tn_tensor *all = tni_attention_grad(r->cx, r->n, r->g);
    for (int i = 0; i < 3 && all; i++)
        if (r->need[i]) r->gx[i] = part(r, all, i);
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

// With the weights p, dp = g v' and the score's gradient ds = p (dp - sum(p dp)), the op gives
// scale ds k, scale ds' q and p' g. Their gradients are a, b and c. x is what they say of ds, w of p
// and z, through the softmax, of the scores.
void tni_rule_attention_grad(tni_rule_args *r)
{
    const tni_attr *attr = &r->n->attr;
    uint32_t        last = r->n->nsrc - 1;
    double          s    = attr->attention.scale;
    tn_tensor      *q = turn(input(r, 0)), *k = turn(input(r, 1)), *v = turn(input(r, 2));
    tn_tensor      *g = turn(input(r, last)), *mask = last == 4 ? input(r, 3) : NULL;
    tn_tensor      *a = turn(part(r, r->g, 0)), *b = turn(part(r, r->g, 1));
    tn_tensor      *c = turn(part(r, r->g, 2));
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
