// How much arithmetic an op is, for profiles and the roofline.
#include "ops/ops.h"

// A convolution and its gradients multiply every element of y by every weight that it came from.
static double conv_flops(const tni_node *n)
{
    const tni_node *y = tni_is_conv(n->op) ? n : n->src[0];
    const tni_node *w = n->op == TNI_conv_wgrad ? n : n->src[1];
    return 2 * (double)tni_node_count(y) * (double)tni_shape_count(w->rank - 1, w->size + 1);
}

// A multiplication and an addition for each element of the result and each of the inner size.
static double matmul_flops(const tni_node *n)
{
    const tni_node *a = n->src[0];
    return 2 * (double)tni_node_count(n) * (double)a->size[a->rank - 1];
}

// Both products of attention, half of them where a query sees only what came before it, and what a
// window leaves; the gradient has five.
static double attention_flops(const tni_node *n)
{
    const struct tni_attr_attention *t = &n->attr.attention;
    const int64_t *q = n->src[0]->size, *k = n->src[1]->size, *v = n->src[2]->size;
    double         seen = (double)k[1] / (t->causal ? 2 : 1), far = (double)t->window;
    double width = n->op == TNI_attention ? (double)(q[3] + v[3]) : (double)(3 * q[3] + 2 * v[3]);
    if (!t->causal) far = 2 * far - 1;
    if (t->window && far < seen) seen = far;
    return (double)(q[0] * q[1] * q[2]) * seen * width * 2;
}

// A multiplication and an addition for each element of the sparse matrix and each column.
static double sparse_flops(const tni_node *n)
{
    const tni_node *values = n->op == TNI_spmm ? n->src[0] : n;
    return 2 * (double)tni_node_count(values) * (double)n->src[1]->size[1];
}

// Which way to count is in the op's row.
double tni_node_flops(const tni_node *n)
{
    switch (tni_op_table[n->op].flops) {
    case TNI_FLOPS_EACH: return (double)tni_node_count(n) * tni_op_table[n->op].cost;
    case TNI_FLOPS_FOLD: return (double)tni_node_count(n->src[0]);
    case TNI_FLOPS_MATMUL: return matmul_flops(n);
    case TNI_FLOPS_CONV: return conv_flops(n);
    case TNI_FLOPS_ATTENTION: return attention_flops(n);
    case TNI_FLOPS_SPARSE: return sparse_flops(n);
    case TNI_FLOPS_NONE: break;
    }
    return 0;
}
