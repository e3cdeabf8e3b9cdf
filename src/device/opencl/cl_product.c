// Matrix products and convolutions by the kernels of cl_text.c.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

#include <string.h>

// ---- matmul ------------------------------------------------------------------------------------

// The shape of an operand's batch, with its row and column strides where the kernel wants them.
static void pass_matrix(tni_cl_launch *l, const tni_arg *x, const tni_cl_axes *batch, int i)
{
    int64_t      offset = tni_cl_pass_buffer(l, x->data);
    tni_cl_shape s      = tni_cl_shape_of(batch, i, offset, x->dtype);
    s.stride[6]         = x->stride[x->rank - 2];
    s.stride[7]         = x->stride[x->rank - 1];
    tni_cl_pass(l, &s, sizeof s);
}

tn_status tni_cl_matmul(const tni_call *c)
{
    enum { TILE = 64, SIDE = 16 };
    const tni_arg *x[] = { &c->in[0], &c->in[1], &c->out };
    int            r   = c->out.rank - 2;
    int64_t        M = c->out.size[r], N = c->out.size[r + 1], K = c->in[0].size[r + 1];
    tni_cl_axes    batch = { .rank = r };
    for (int i = 0; i < r; i++) {
        batch.size[i] = c->out.size[i];
        for (int k = 0; k < 3; k++) batch.stride[k][i] = x[k]->stride[i];
    }
    tni_cl_merge(&batch, 3);
    size_t groups[] = { (size_t)(N + TILE - 1) / TILE, (size_t)(M + TILE - 1) / TILE,
                        (size_t)tni_cl_count(&batch) };
    size_t local[]  = { SIDE, SIDE, 1 };

    tni_cl_launch l;
    tni_cl_lock();
    tn_status s = tni_cl_kernel_of(tni_cl_text_matmul, "matmul", c->out.dtype, c->out.dtype, &l,
                                   c->why);
    if (s == TN_OK) {
        for (int k = 0; k < 3; k++) pass_matrix(&l, x[k], &batch, k);
        tni_cl_pass_long(&l, M);
        tni_cl_pass_long(&l, N);
        tni_cl_pass_long(&l, K);
        s = tni_cl_start(&l, "matmul", 3, groups, local, c->why);
    }
    tni_cl_unlock();
    return s;
}

// ---- convolution -------------------------------------------------------------------------------

// `how` of the text.
typedef struct {
    int64_t step[2], pad[2], dilation[2], groups, count;
} how;

static void pass_image(tni_cl_launch *l, const tni_arg *x)
{
    tni_cl_shape s = { .rank = 4 };
    s.at           = tni_cl_pass_buffer(l, x->data) / (int64_t)tni_dtype_size(x->dtype);
    memcpy(s.size, x->size, sizeof s.size);
    memcpy(s.stride, x->stride, sizeof s.stride);
    tni_cl_pass(l, &s, sizeof s);
}

tn_status tni_cl_conv(const tni_call *c)
{
    const char *name = tni_op_table[c->op].name;
    tni_arg     x[3];
    how         o = { .groups = c->attr->conv.groups };
    tni_conv_operands(c, x);
    o.count = tni_shape_count(4, c->out.size);
    memcpy(o.step, c->attr->conv.stride, sizeof o.step);
    memcpy(o.pad, c->attr->conv.padding, sizeof o.pad);
    memcpy(o.dilation, c->attr->conv.dilation, sizeof o.dilation);

    tni_cl_launch l;
    tni_cl_lock();
    tn_status s = tni_cl_kernel_of(tni_cl_text_conv, name, c->out.dtype, c->out.dtype, &l, c->why);
    if (s == TN_OK) {
        for (int k = 0; k < 3; k++) pass_image(&l, &x[k]);
        tni_cl_pass(&l, &o, sizeof o);
        if (c->op == TNI_conv_wgrad)
            s = tni_cl_start(&l, name, 1, (size_t[]){ (size_t)o.count }, (size_t[]){ 64 }, c->why);
        else s = tni_cl_start_items(&l, name, o.count, c->why);
    }
    tni_cl_unlock();
    return s;
}
