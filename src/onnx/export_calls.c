// Composite calls as ops of ONNX.
//
//   tn_linear(x, w, b)       Gemm of x and w, or MatMul of x and the turned w, then Add
//   tn_conv2d(x, w, b, o)    Conv, with padding on both sides of each axis
//   tn_batch_norm(...)       BatchNormalization, by running statistics
//   tn_layer_norm(x, 1, ..)  LayerNormalization; before opset 17 ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add
//   tn_group_norm(...)       GroupNormalization; before opset 21 Reshape, InstanceNormalization, Reshape, Mul, Add
//   tn_gelu(x)               Gelu; before opset 20 Div, Erf, Add, Mul, Mul
//   tn_embed(index, w)       Gather
//
// Runtimes know kernels for these; of primitives they would have to
// recognize them.
#include "onnx/export.h"

#include <math.h>
#include <string.h>

// ---- what has an op ----------------------------------------------------------------------------

// The calls that are one expression, by kind.
static const char *const texts[] = {
#define SPELL(row, floats, integers, bools)
#define BY(row, f)
#define CALL(call, text) [TNI_KEPT_##call] = text,
#include "onnx/export_rows.def"
};

// Whether a result is shown as it is stored, or with its axes permuted.
static bool is_permuted(const tni_kept *c)
{
    const tni_view *v = &c->shown;
    int             order[TN_MAX_RANK];
    int64_t         unit = 1;
    if (v->rank != c->y->rank || v->offset) return false;
    tni_view_sort(v, order);
    for (int k = v->rank - 1; k >= 0; k--) {
        int a = order[k];
        if (v->size[a] != c->y->size[k] || (v->size[a] > 1 && v->stride[a] != unit)) return false;
        unit *= v->size[a];
    }
    return true;
}

// Pools over items with a batch, with windows that ONNX counts in the same way.
static bool pool_fits(const tni_exporter *e, const tni_kept *c)
{
    bool average = c->kind == TNI_KEPT_avg_pool;
    if (c->src[0]->rank != c->i[0] + 2) return false;
    for (int i = 0; i < c->i[0]; i++)
        if (average && c->i[11 + i] != 1 && e->opset < 19) return false;
    return !(average && c->i[1]);
}

// Calls that have no form here are left to the primitives that they recorded, which mean the same
// in more nodes.
bool tni_export_call_fits(const tni_exporter *e, const tni_kept *c)
{
    const tni_node *x     = c->src[0];
    bool            index = c->kind == TNI_KEPT_embed || c->kind == TNI_KEPT_matmul ||
                 c->kind == TNI_KEPT_clamp;
    if (!is_permuted(c) || (!index && !tni_is_float((tn_dtype)x->dtype))) return false;
    switch (c->kind) {
    case TNI_KEPT_max_pool:
    case TNI_KEPT_avg_pool: return pool_fits(e, c);
    case TNI_KEPT_global_avg_pool: return x->rank == 4;
    case TNI_KEPT_softmax:
    case TNI_KEPT_log_softmax: return x->rank > 0 && tni_node_count(x) > 0;
    case TNI_KEPT_mean: return tni_node_count(x) > 0;
    case TNI_KEPT_linear: return x->rank > 0;
    case TNI_KEPT_clamp: return x->dtype != TN_BOOL;
    default: return true;
    }
}

// ---- one by one --------------------------------------------------------------------------------

// A call that is written, with its sources; "" for those that were not given.
typedef struct {
    tni_exporter   *e;
    const tni_kept *c;
    size_t          y, at[TNI_KEPT_SOURCES];
    tn_dtype        dt;
} call;

// Returns the name of source i of the call; "" if it was not given, which is how a node leaves out
// an input.
static const char *arg(const call *k, int i)
{
    return k->c->src[i] ? tni_export_value(k->e, k->at[i]).name : "";
}

// A vector of the call, or n equal numbers in its place.
static const char *vector(const call *k, int i, int64_t n, double v)
{
    return k->c->src[i] ? arg(k, i) : tni_export_fill(k->e, k->dt, n, v);
}

// A matrix is a Gemm, whose weight stays as it is; more axes are a product with the turned weight.
static const char *write_linear(const call *k)
{
    tni_exporter *e    = k->e;
    bool          bias = k->c->src[2] != NULL;
    if (k->c->src[0]->rank == 2) {
        tni_export_attr turn = tni_attr_int("transB", 1);
        const char     *in[] = { arg(k, 0), arg(k, 1), arg(k, 2) };
        return tni_export_add(e, "Gemm", 2 + bias, in, 1, &turn);
    }
    const char *in[]  = { arg(k, 0), tni_export_turned(e, k->at[1]) };
    const char *sum[] = { tni_export_add(e, "MatMul", 2, in, 0, NULL), bias ? arg(k, 2) : "" };
    return bias ? tni_export_add(e, "Add", 2, sum, 0, NULL) : sum[0];
}

// Numbers before and after each axis, as ONNX lists them: all of the first, then all of the second.
static void both_sides(int axes, const int64_t *v, int64_t *pads)
{
    for (int i = 0; i < axes; i++) pads[i] = pads[axes + i] = v[i];
}

// Conv and ConvTranspose have the same attributes; the second has output_padding as well. The
// order of the numbers is that of traced_conv in ops/conv.c.
static const char *write_conv(const call *k)
{
    const int64_t *i    = k->c->i;
    int            axes = (int)i[0];
    bool           back = k->c->kind == TNI_KEPT_conv_transpose;
    int64_t        pads[6];
    const char    *in[] = { arg(k, 0), arg(k, 1), arg(k, 2) };
    both_sides(axes, i + 5, pads);
    tni_export_attr a[] = { tni_attr_ints("dilations", axes, i + 8),
                            tni_attr_int("group", i[1]),
                            tni_attr_ints("kernel_shape", axes, k->c->src[1]->size + 2),
                            tni_attr_ints("pads", 2 * axes, pads),
                            tni_attr_ints("strides", axes, i + 2),
                            tni_attr_ints("output_padding", axes, i + 11) };
    return tni_export_add(k->e, back ? "ConvTranspose" : "Conv", 2 + (k->c->src[2] != NULL), in,
                          5 + back, a);
}

// Pools by windows. The order of the numbers is that of traced_pool in ops/pooling.c; dilations
// are written only if there are some, since AveragePool has them from opset 19 on.
static const char *write_pool(const call *k)
{
    const int64_t *i    = k->c->i;
    int            axes = (int)i[0];
    bool           max = k->c->kind == TNI_KEPT_max_pool, dilated = false;
    int64_t        pads[6];
    const char    *x = arg(k, 0);
    both_sides(axes, i + 8, pads);
    for (int d = 0; d < axes; d++) dilated |= i[11 + d] != 1;
    tni_export_attr a[6] = { tni_attr_ints("kernel_shape", axes, i + 2),
                             tni_attr_ints("strides", axes, i + 5),
                             tni_attr_ints("pads", 2 * axes, pads),
                             tni_attr_int("ceil_mode", i[1]) };
    int             n    = 4;
    if (dilated) a[n++] = tni_attr_ints("dilations", axes, i + 11);
    if (!max) a[n++] = tni_attr_int("count_include_pad", !i[14]);
    return tni_export_add(k->e, max ? "MaxPool" : "AveragePool", 1, &x, n, a);
}

// From opset 13 on both work along one axis, as here; before that they flattened their input.
static const char *write_softmax(const call *k)
{
    const char     *x = arg(k, 0);
    tni_export_attr a = tni_attr_int("axis", k->c->i[0]);
    return tni_export_add(k->e, k->c->kind == TNI_KEPT_softmax ? "Softmax" : "LogSoftmax", 1, &x, 1,
                          &a);
}

// The number of elements is not in the file: with a symbolic batch it may depend on it.
static const char *write_mean(const call *k)
{
    return tni_export_reduce(k->e, "ReduceMean", arg(k, 0), (uint32_t)k->c->i[0], k->c->i[1] != 0);
}

// Returns the eps of a norm, of which 0 means the default, as in ops/norm.c.
static double eps_of(const call *k)
{
    double eps = k->c->f[0];
    return eps != 0 ? eps : signbit(eps) ? 0 : 1e-5;
}

// Before opset 17 it is written as the nodes that runtimes recognize.
static const char *write_layer_norm(const call *k)
{
    tni_exporter   *e    = k->e;
    const tni_node *x    = k->c->src[0];
    int             n    = (int)k->c->i[0];
    const char     *y    = arg(k, 0);
    uint32_t        mask = ((1u << n) - 1) << (x->rank - n);
    if (e->opset >= 17) {
        int64_t         count = tni_shape_count(n, x->size + x->rank - n);
        tni_operand_out ones  = { .rank = 1, .size = { tni_fixed(count) } };
        tni_extent      size[TN_MAX_RANK];
        for (int i = 0; i < n; i++) size[i] = tni_fixed(x->size[x->rank - n + i]);
        if (!k->c->src[1]) ones.name = tni_export_fill(e, k->dt, count, 1);
        const char     *in[] = { y, k->c->src[1] ? arg(k, 1) : tni_export_reshape(e, ones, n, size),
                                 arg(k, 2) };
        tni_export_attr a[]  = { tni_attr_int("axis", -n), tni_attr_float("epsilon", eps_of(k)) };
        return tni_export_add(e, "LayerNormalization", 2 + (k->c->src[2] != NULL), in, 2, a);
    }
    const char *mean = tni_export_reduce(e, "ReduceMean", y, mask, true);
    const char *d    = tni_export_spell(e, "Sub(a, b)", k->dt, 2, (const char *[]){ y, mean });
    const char *var  = tni_export_spell(e, "Pow(a, 2)", k->dt, 1, &d);
    var              = tni_export_reduce(e, "ReduceMean", var, mask, true);
    const char *in[] = { d, var, tni_export_number(e, k->dt, tni_num_of(eps_of(k))) };
    y                = tni_export_spell(e, "Div(a, Sqrt(Add(b, c)))", k->dt, 3, in);
    const char *wb[] = { y, arg(k, 1), arg(k, 2) };
    if (k->c->src[1]) y = wb[0] = tni_export_spell(e, "Mul(a, b)", k->dt, 2, wb);
    return k->c->src[2] ? tni_export_spell(e, "Add(a, c)", k->dt, 3, wb) : y;
}

// A vector of channels as (C, 1, ...), to broadcast.
static const char *per_channel(const call *k, int i)
{
    tni_extent size[TN_MAX_RANK] = { tni_fixed(k->c->src[0]->size[1]) };
    int        n                 = k->c->src[0]->rank - 1;
    for (int a = 1; a < n; a++) size[a] = tni_fixed(1);
    return tni_export_reshape(k->e, tni_export_value(k->e, k->at[i]), n, size);
}

// Before opset 21 groups are normalized as the channels of (N, G, rest).
static const char *write_group_norm(const call *k)
{
    tni_exporter   *e = k->e;
    int64_t         G = k->c->i[0], C = k->c->src[0]->size[1];
    tni_export_attr a[] = { tni_attr_float("epsilon", eps_of(k)), tni_attr_int("num_groups", G) };
    if (e->opset >= 21) {
        const char *in[] = { arg(k, 0), vector(k, 1, C, 1), vector(k, 2, C, 0) };
        return tni_export_add(e, "GroupNormalization", 3, in, 2, a);
    }
    const char     *in[]   = { arg(k, 0), tni_export_ints(e, 3, (int64_t[]){ 0, G, -1 }) };
    const char     *norm[] = { tni_export_add(e, "Reshape", 2, in, 0, NULL),
                               tni_export_fill(e, k->dt, G, 1), tni_export_fill(e, k->dt, G, 0) };
    tni_operand_out x      = tni_export_value(e, k->at[0]),
                    z      = { .name = tni_export_add(e, "InstanceNormalization", 3, norm, 1, a),
                               .rank = 0 };
    const char *wb[3]      = { tni_export_reshape(e, z, x.rank, x.size) };
    if (k->c->src[1]) wb[1] = per_channel(k, 1);
    if (k->c->src[2]) wb[2] = per_channel(k, 2);
    if (k->c->src[1]) wb[0] = tni_export_spell(e, "Mul(a, b)", k->dt, 2, wb);
    return k->c->src[2] ? tni_export_spell(e, "Add(a, c)", k->dt, 3, wb) : wb[0];
}

// Written with its four vectors, which runtimes fold into the convolution before it; so the
// weights keep their names and can be trained further.
static const char *write_batch_norm(const call *k)
{
    int64_t     C     = k->c->src[0]->size[1];
    const char *in[]  = { arg(k, 0), vector(k, 1, C, 1), vector(k, 2, C, 0), arg(k, 3), arg(k, 4) };
    tni_export_attr a = tni_attr_float("epsilon", k->c->f[0]);
    return tni_export_add(k->e, "BatchNormalization", 5, in, 1, &a);
}

// Activations with one number.
static const char *write_slope(const call *k)
{
    const char     *x = arg(k, 0);
    tni_export_attr a = tni_attr_float("alpha", k->c->f[0]);
    return tni_export_add(k->e, k->c->kind == TNI_KEPT_elu ? "Elu" : "LeakyRelu", 1, &x, 1, &a);
}

// A bound that bounds nothing is left out.
static const char *write_clamp(const call *k)
{
    double      lo = k->c->f[0], hi = k->c->f[1];
    const char *in[] = { arg(k, 0), "", "" };
    if (lo > -INFINITY) in[1] = tni_export_number(k->e, k->dt, tni_num_of(lo));
    if (hi < INFINITY) in[2] = tni_export_number(k->e, k->dt, tni_num_of(hi));
    return tni_export_add(k->e, "Clip", 3, in, 0, NULL);
}

// Chooses by the kind of the call; those that are one expression are in the table of
// export_rows.def.
static const char *write_call(const call *k)
{
    switch (k->c->kind) {
    case TNI_KEPT_linear: return write_linear(k);
    case TNI_KEPT_conv:
    case TNI_KEPT_conv_transpose: return write_conv(k);
    case TNI_KEPT_max_pool:
    case TNI_KEPT_avg_pool: return write_pool(k);
    case TNI_KEPT_softmax:
    case TNI_KEPT_log_softmax: return write_softmax(k);
    case TNI_KEPT_mean: return write_mean(k);
    case TNI_KEPT_layer_norm: return write_layer_norm(k);
    case TNI_KEPT_group_norm: return write_group_norm(k);
    case TNI_KEPT_batch_norm: return write_batch_norm(k);
    case TNI_KEPT_leaky_relu:
    case TNI_KEPT_elu: return write_slope(k);
    case TNI_KEPT_clamp: return write_clamp(k);
    default: break;
    }
    const char *in[] = { arg(k, 0), arg(k, 1) };
    return tni_export_spell(k->e, texts[k->c->kind], k->dt, 2, in);
}

// The result is known as the caller sees it. If the op stored it in another order of axes, the
// value of the node itself is made of it when something asks for it (tni_export_value), which is
// rare: most readers ask for the same view.
bool tni_export_call(tni_exporter *e, size_t i)
{
    call k = { .e = e, .c = e->run[0].call[i], .y = i };
    k.dt   = (tn_dtype)k.c->src[0]->dtype;
    for (int s = 0; s < TNI_KEPT_SOURCES; s++)
        if (k.c->src[s]) k.at[s] = tni_export_index(k.c->src[s]);
    const char      *name = write_call(&k);
    tni_operand_out *y    = &e->known[i].shown;
    if (!name) return false;
    *y = (tni_operand_out){ .name = name, .rank = k.c->shown.rank };
    for (int a = 0; a < y->rank; a++)
        for (int t = 0; t < TNI_EXPORT_TRACES; t++)
            y->size[a].at[t] = e->run[t < e->traces ? t : 0].call[i]->shown.size[a];
    // As it is stored.
    if (tni_view_contiguous(&k.c->shown)) e->known[i].full = *y;
    return true;
}
