// Matrix products and convolutions by the kernels of group_text_product.c.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

// ---- matmul ------------------------------------------------------------------------------------

// The shape of an operand's batch, with its row and column strides where the kernel wants them.
static void pass_matrix(tni_hand *h, const tni_arg *x, const tni_axes *batch, int i)
{
    tni_axes a     = *batch;
    a.stride[i][6] = x->stride[x->rank - 2];
    a.stride[i][7] = x->stride[x->rank - 1];
    tni_hand_arg(h, &a, i, x->data, x->dtype);
}

tn_status tni_groups_matmul(const tni_groups *via, const tni_call *c)
{
    enum { TILE = 64, ITEMS = 256 };
    const tni_arg *x[] = { &c->in[0], &c->in[1], &c->out };
    int            r   = c->out.rank - 2;
    int64_t        M = c->out.size[r], N = c->out.size[r + 1], K = c->in[0].size[r + 1];
    tni_axes       batch = { .rank = r };
    for (int i = 0; i < r; i++) {
        batch.size[i] = c->out.size[i];
        for (int k = 0; k < 3; k++) batch.stride[k][i] = x[k]->stride[i];
    }
    tni_axes_merge(&batch, 3);

    tni_hand  h;
    tn_status s = tni_hand_begin(&h, via, c, tni_text_matmul, "matmul", c->out.dtype, c->out.dtype);
    if (s != TN_OK) return s;
    for (int k = 0; k < 3; k++) pass_matrix(&h, x[k], &batch, k);
    tni_hand_long(&h, M);
    tni_hand_long(&h, N);
    tni_hand_long(&h, K);
    int64_t tiles = ((N + TILE - 1) / TILE) * ((M + TILE - 1) / TILE);
    return via->start(&h, tiles * tni_axes_count(&batch), ITEMS, c->why);
}

// ---- convolution -------------------------------------------------------------------------------

// `how` of the text.
typedef struct {
    int64_t step[2], pad[2], dilation[2], groups, count;
} how;

static void pass_image(tni_hand *h, const tni_arg *x)
{
    tni_axes a = { .rank = 4 };
    memcpy(a.size, x->size, sizeof a.size);
    memcpy(a.stride[0], x->stride, sizeof a.stride[0]);
    tni_hand_arg(h, &a, 0, x->data, x->dtype);
}

tn_status tni_groups_conv(const tni_groups *via, const tni_call *c)
{
    const char *name = tni_op_table[c->op].name;
    tni_arg     x[3];
    how         o = { .groups = c->attr->conv.groups };
    tni_conv_operands(c, x);
    o.count = tni_shape_count(4, c->out.size);
    memcpy(o.step, c->attr->conv.stride, sizeof o.step);
    memcpy(o.pad, c->attr->conv.padding, sizeof o.pad);
    memcpy(o.dilation, c->attr->conv.dilation, sizeof o.dilation);

    tni_hand  h;
    tn_status s = tni_hand_begin(&h, via, c, tni_text_conv, name, c->out.dtype, c->out.dtype);
    if (s != TN_OK) return s;
    for (int k = 0; k < 3; k++) pass_image(&h, &x[k]);
    tni_hand_pass(&h, &o, sizeof o);
    return c->op == TNI_conv_wgrad ? tni_hand_groups(&h, o.count, c->why)
                                   : tni_hand_items(&h, o.count, c->why);
}
