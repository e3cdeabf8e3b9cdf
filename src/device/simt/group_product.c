// Matrix products by the kernel of group_text_product.c, for devices without a library and for
// dtypes and layouts that a library does not take.
#include "device/simt/groups.h"

// Passes an operand with the axes of its batch. The kernel finds row and column strides in the last
// two places, which a batch of at most TN_MAX_RANK - 2 axes never uses.
static void add_matrix(tni_kernel_args *h, const tni_arg *x, const tni_axes *batch, int i)
{
    tni_axes a     = *batch;
    a.stride[i][6] = x->stride[x->rank - 2];
    a.stride[i][7] = x->stride[x->rank - 1];
    tni_kernel_args_add_operand(h, &a, i, x->data, x->dtype);
}

// Any strides, also 0 and negative ones; K of 0 gives zeros. TILE and ITEMS are fixed in the text.
tn_status tni_groups_matmul(const tni_call *c)
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

    tni_kernel_args h;
    tn_status       s = tni_kernel_args_begin(&h, c, tni_text_matmul, "matmul", c->out.dtype,
                                              c->out.dtype);
    if (s != TN_OK) return s;
    for (int k = 0; k < 3; k++) add_matrix(&h, x[k], &batch, k);
    tni_kernel_args_add_long(&h, M);
    tni_kernel_args_add_long(&h, N);
    tni_kernel_args_add_long(&h, K);
    int64_t tiles = tni_ceil_div(N, TILE) * tni_ceil_div(M, TILE);
    return tni_kernel_args_launch(&h, tiles * tni_axes_count(&batch), ITEMS, c->why);
}
