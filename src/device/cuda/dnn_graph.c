// Building graphs of cuDNN as plain data.
#include "device/cuda/dnn_graph.h"

#include <string.h>

enum { ALIGN = 16 };

static int add_tensor(tni_dnn_graph *g, const tni_dnn_tensor *t)
{
    g->full |= g->tensors == TNI_DNN_TENSORS;
    if (g->full) return 0;
    g->tensor[g->tensors++] = *t;
    return (int)g->tensors;
}

// An op over a tensor that did not fit is not added: the graph is marked as full already.
static void add_op(tni_dnn_graph *g, const tni_dnn_op *o)
{
    g->full |= g->ops == TNI_DNN_OPS;
    if (!g->full) g->op[g->ops++] = *o;
}

int tni_dnn_memory(tni_dnn_graph *g, int dtype, int rank, const int64_t *size,
                   const int64_t *stride)
{
    tni_dnn_tensor t = { TNI_DNN_IN_MEMORY, dtype, ALIGN, rank, { 0 }, { 0 } };
    memcpy(t.size, size, (size_t)rank * sizeof *size);
    memcpy(t.stride, stride, (size_t)rank * sizeof *stride);
    return add_tensor(g, &t);
}

int tni_dnn_virtual(tni_dnn_graph *g, int dtype, const int64_t size[4], const int64_t *stride)
{
    tni_dnn_tensor t    = { TNI_DNN_VIRTUAL, dtype, ALIGN, 4, { 0 }, { 0 } };
    int64_t        next = 1;
    for (int i = 3; i >= 0; i--) {
        t.size[i]   = size[i];
        t.stride[i] = stride ? stride[i] : next;
        next *= size[i];
    }
    return add_tensor(g, &t);
}

int tni_dnn_number(tni_dnn_graph *g)
{
    tni_dnn_tensor t = { TNI_DNN_BY_VALUE, TNI_DNN_F32, ALIGN, 4, { 1, 1, 1, 1 }, { 1, 1, 1, 1 } };
    return add_tensor(g, &t);
}

// A virtual tensor of x's size.
static int result_like(tni_dnn_graph *g, int x, int dtype)
{
    int64_t size[4];
    if (g->full) return 0;
    memcpy(size, g->tensor[x - 1].size, sizeof size);
    return tni_dnn_virtual(g, dtype, size, NULL);
}

void tni_dnn_product(tni_dnn_graph *g, int a, int b, int y, const int *sizes)
{
    tni_dnn_op o = { .kind = TNI_DNN_OP_MATMUL, .dtype = TNI_DNN_F32, .x = { a, b, 0 }, .y = y };
    for (int i = 0; i < 3 && sizes; i++) o.sizes[i] = sizes[i];
    add_op(g, &o);
}

void tni_dnn_conv(tni_dnn_graph *g, int kind, int a, int b, int y, const tni_dnn_window *window)
{
    tni_dnn_op o = {
        .kind = kind, .dtype = TNI_DNN_F32, .x = { a, b, 0 }, .y = y, .window = *window
    };
    add_op(g, &o);
}

void tni_dnn_map_to(tni_dnn_graph *g, int mode, int x, int b, int y)
{
    tni_dnn_op o = {
        .kind = TNI_DNN_OP_POINTWISE, .mode = mode, .dtype = TNI_DNN_F32, .x = { x, b, 0 }, .y = y
    };
    add_op(g, &o);
}

void tni_dnn_reduce_to(tni_dnn_graph *g, int mode, int x, int y)
{
    tni_dnn_op o = {
        .kind = TNI_DNN_OP_REDUCTION, .mode = mode, .dtype = TNI_DNN_F32, .x = { x, 0, 0 }, .y = y
    };
    add_op(g, &o);
}

void tni_dnn_reshape_to(tni_dnn_graph *g, int x, int y)
{
    tni_dnn_op o = { .kind = TNI_DNN_OP_RESHAPE, .x = { x, 0, 0 }, .y = y };
    add_op(g, &o);
}

int tni_dnn_map(tni_dnn_graph *g, int mode, int x, int b)
{
    int y = result_like(g, x, TNI_DNN_F32);
    tni_dnn_map_to(g, mode, x, b, y);
    return y;
}

int tni_dnn_compare(tni_dnn_graph *g, int mode, int x, int b)
{
    int        y = result_like(g, x, TNI_DNN_BOOL);
    tni_dnn_op o = {
        .kind = TNI_DNN_OP_POINTWISE, .mode = mode, .dtype = TNI_DNN_BOOL, .x = { x, b, 0 }, .y = y
    };
    add_op(g, &o);
    return y;
}

int tni_dnn_index(tni_dnn_graph *g, int x, int axis)
{
    int        y = result_like(g, x, TNI_DNN_I32);
    tni_dnn_op o = { .kind  = TNI_DNN_OP_POINTWISE,
                     .mode  = TNI_DNN_GEN_INDEX,
                     .dtype = TNI_DNN_I32,
                     .axis  = axis,
                     .x     = { x, 0, 0 },
                     .y     = y };
    add_op(g, &o);
    return y;
}

int tni_dnn_select(tni_dnn_graph *g, int condition, int x, int otherwise)
{
    int        y = result_like(g, x, TNI_DNN_F32);
    tni_dnn_op o = { .kind  = TNI_DNN_OP_POINTWISE,
                     .mode  = TNI_DNN_SELECT,
                     .dtype = TNI_DNN_F32,
                     .x     = { x, otherwise, condition },
                     .y     = y };
    add_op(g, &o);
    return y;
}
