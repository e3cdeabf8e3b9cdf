// Products: matmul with its vector forms, linear, and convolution. Each ends in one node of a
// LIBRARY op, which devices run by a library or by kernels of their own.
//
// m rows, n columns of the result, k the inner size
#include "ops/ops.h"

#include <string.h>

// ---- matmul ------------------------------------------------------------------------------------

// Broadcasts the leading axes of a and b and puts the product's shape into *y. Messages show the
// operands as they were given, before vectors became matrices.
static bool broadcast_batches(tn_ctx *cx, tn_tensor *const *given, tn_tensor **a, tn_tensor **b,
                              tni_view *y)
{
    tni_view va = tni_layout(*a), vb = tni_layout(*b);
    int64_t  lead[TN_MAX_RANK];
    int      rank = va.rank - 2;
    memcpy(lead, va.size, sizeof lead);
    if (va.size[va.rank - 1] != vb.size[vb.rank - 2]) {
        tni_fail(cx, TN_ESHAPE, "matmul: %s @ %s: inner sizes differ", tni_shape_of(given[0]).s,
                 tni_shape_of(given[1]).s);
        return false;
    }
    if (!tni_shape_broadcast(&rank, lead, vb.rank - 2, vb.size)) {
        tni_fail(cx, TN_ESHAPE, "matmul: %s @ %s: leading sizes do not broadcast",
                 tni_shape_of(given[0]).s, tni_shape_of(given[1]).s);
        return false;
    }
    *y = (tni_view){ .rank = rank + 2 };
    // (lead, m, k), (lead, k, n) and (lead, m, n).
    int64_t size_a[TN_MAX_RANK], size_b[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) size_a[i] = size_b[i] = y->size[i] = lead[i];
    size_a[rank] = y->size[rank] = va.size[va.rank - 2];
    size_a[rank + 1] = size_b[rank] = va.size[va.rank - 1];
    size_b[rank + 1] = y->size[rank + 1] = vb.size[vb.rank - 1];
    if (!tni_shape_ok(cx, "matmul", y->rank, y->size)) return false;
    *a = tni_expand_to(*a, rank + 2, size_a);
    *b = tni_expand_to(*b, rank + 2, size_b);
    return *a && *b;
}

// The last two axes alone: of a batch that is one matrix repeated, that matrix.
static bool first_matrix(tni_view *v, const void *how)
{
    (void)how;
    for (int i = 0; i < 2; i++) {
        v->size[i]   = v->size[v->rank - 2 + i];
        v->stride[i] = v->stride[v->rank - 2 + i];
    }
    v->rank = 2;
    return true;
}

// One matrix on the right that serves a whole batch on the left, as a linear layer's weight does:
// then the batch is just more rows, if strides allow, and product and gradients become single large
// products. The matrix is that of `right`, from which b was expanded; if right was expanded itself,
// gradients of its single matrices are not computed (unview_through in grad/walk.c reports it).
static void fold_batch(tn_tensor **a, tn_tensor **b, tn_tensor *right)
{
    tni_view va = tni_layout(*a), vb = tni_layout(*b), rows;
    int64_t  batch = 1;
    for (int i = 0; i + 2 < vb.rank; i++) {
        // An axis of stride 0 repeats one matrix.
        if (vb.size[i] > 1 && vb.stride[i] != 0) return;
        batch *= vb.size[i];
    }
    int64_t m = va.size[va.rank - 2], k = va.size[va.rank - 1];
    if (va.rank == 2 || batch == 0) return;
    // Rows of different batches must be one run: no copy is made for this.
    if (!tni_view_reshape(&va, 2, (int64_t[]){ batch * m, k }, &rows)) return;
    tni_view_change how   = { .to_rank = 2, .to = rows.size };
    bool            alone = tni_count(right) == k * vb.size[vb.rank - 1];
    first_matrix(&vb, NULL);
    tn_tensor *fa = tni_wrap_view(*a, &rows, tni_change_view, &how);
    tn_tensor *fb = fa ? tni_wrap_view(right, &vb, alone ? first_matrix : NULL, NULL) : NULL;
    if (fa && fb) {
        *a = fa;
        *b = fb;
    }
}

// a is (..., m, k), b is (..., k, n); leading sizes broadcast. A vector on the left is a row, one
// on the right a column, and the axis it lacks is missing in the result too: the node has that
// shape, since a product is the same memory with or without an axis of size 1.
tn_tensor *tn_matmul(tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "a", "b" };
    tn_tensor *const         given[] = { a, b };
    tn_ctx                  *cx      = tni_args("matmul", 2, given, names);
    if (!cx) return NULL;
    bool row = tni_rank(a) == 1, col = tni_rank(b) == 1;
    if (!tni_rank(a) || !tni_rank(b))
        return tni_fail(cx, TN_ESHAPE, "matmul: %s @ %s: a 0-d tensor has no product",
                        tni_shape_of(a).s, tni_shape_of(b).s);
    if (!tni_want_math_dtype(cx, "matmul", tni_dtype(a)) ||
        !tni_want_math_dtype(cx, "matmul", tni_dtype(b)))
        return NULL;
    tn_tensor *low[] = { a, b };
    if (!tni_autocast_args(cx, tni_op_table[TNI_matmul].autocast, 2, low)) return NULL;
    a           = low[0];
    b           = low[1];
    tn_dtype dt = tni_promote(tni_dtype(a), tni_dtype(b));
    // NumPy takes bool as or of ands; PyTorch refuses it too.
    if (dt == TN_BOOL) return tni_fail(cx, TN_EDTYPE, "matmul: bool is not a supported dtype");
    if (tni_dtype(a) != dt) a = tn_cast(a, dt);
    if (tni_dtype(b) != dt) b = tn_cast(b, dt);
    uint64_t   failures  = cx->failures;
    tn_tensor *attention = cx->recognizes && a && b ? tni_recognize_attention(a, b) : NULL;
    if (attention || cx->failures != failures) return attention;
    if (row) a = tn_unsqueeze(a, 0);
    if (col) b = tn_unsqueeze(b, 1);
    tni_view   y;
    tn_tensor *right = b;
    if (!a || !b || !broadcast_batches(cx, given, &a, &b, &y)) return NULL;
    fold_batch(&a, &b, right);
    tni_node *src[] = { tni_resolve(a, "matmul"), tni_resolve(b, "matmul") };
    if (!src[0] || !src[1]) return NULL;
    // The axes that were added to vectors are left out of the result.
    if (col) y.rank--;
    if (row) {
        y.rank--;
        if (!col) y.size[y.rank - 1] = y.size[y.rank];
    }
    return tni_record(cx, TNI_matmul, dt, y.rank, y.size, 2, src, NULL);
}

// x w' + b. The transposed w is a view; devices read it in place. The bias is a separate op that
// the planner may make an epilogue of the product.
tn_tensor *tn_linear(tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    static const char *const names[] = { "x", "w", "b" };

    tn_ctx *cx = tni_args("linear", b ? 3 : 2, (tn_tensor *const[]){ x, w, b }, names);
    if (!cx) return NULL;
    if (tni_rank(w) != 2 || tni_rank(x) < 1 || tn_size(x, -1) != tn_size(w, 1))
        return tni_fail(cx, TN_ESHAPE, "linear: x %s and w %s do not fit", tni_shape_of(x).s,
                        tni_shape_of(w).s);
    if (b && !(tni_rank(b) == 1 && tn_size(b, 0) == tn_size(w, 0)))
        return tni_fail(cx, TN_ESHAPE, "linear: w %s and b %s do not fit", tni_shape_of(w).s,
                        tni_shape_of(b).s);
    tn_tensor *low[] = { x, w, b };
    if (!tni_autocast_args(cx, tni_op_table[TNI_matmul].autocast, b ? 3 : 2, low)) return NULL;
    tn_tensor *y = tn_matmul(low[0], tn_transpose(low[1], 0, 1));
    return b ? tn_add(y, low[2]) : y;
}

// ---- convolution -------------------------------------------------------------------------------

// Options with their defaults filled in; a second size of 0 takes the first.
static tni_attr conv_attr(tn_conv_opts o)
{
    tni_attr a = { .conv = { .groups = o.groups ? o.groups : 1 } };
    for (int i = 0; i < 2; i++) {
        a.conv.stride[i]   = o.stride[i] ? o.stride[i] : o.stride[0] ? o.stride[0] : 1;
        a.conv.padding[i]  = o.padding[i] ? o.padding[i] : o.padding[0];
        a.conv.dilation[i] = o.dilation[i] ? o.dilation[i] : o.dilation[0] ? o.dilation[0] : 1;
    }
    return a;
}

// The bound on padding and dilation keeps the sizes below from overflowing.
static bool conv_attr_ok(const tni_attr *a)
{
    for (int i = 0; i < 2; i++)
        if (a->conv.stride[i] < 1 || a->conv.padding[i] < 0 || a->conv.dilation[i] < 1 ||
            a->conv.padding[i] > INT32_MAX || a->conv.dilation[i] > INT32_MAX)
            return false;
    return a->conv.groups > 0;
}

// The sizes of the result, (x + 2 padding - dilation (taps - 1) - 1) / stride + 1; false if x and w
// do not fit.
static bool conv_size(const tni_view *x, const tni_view *w, const tni_attr *a, int64_t *y)
{
    if (x->rank != 4 || w->rank != 4 || !conv_attr_ok(a)) return false;
    if (x->size[1] % a->conv.groups || w->size[0] % a->conv.groups) return false;
    // A weight has the channels of one group.
    if (x->size[1] / a->conv.groups != w->size[1] || w->size[2] < 1 || w->size[3] < 1) return false;
    y[0] = x->size[0];
    y[1] = w->size[0];
    for (int i = 0; i < 2; i++) {
        int64_t span = x->size[2 + i] + 2 * a->conv.padding[i] - 1, taps = w->size[2 + i] - 1;
        if (span < 0 || taps > span / a->conv.dilation[i]) return false;
        span -= a->conv.dilation[i] * taps;
        y[2 + i] = span / a->conv.stride[i] + 1;
    }
    return true;
}

// The checks and the node; sizes are checked as (N, C, H, W) and recorded as (N, H, W, C) if x is
// channels last.
static tn_tensor *conv_named(const char *op, tn_tensor *x, tn_tensor *w, const tni_attr *a)
{
    if (!x || !w) return NULL;
    tn_ctx  *cx = x->cx;
    tni_view vx = tni_layout(x), vw = tni_layout(w), vy = { .rank = 4 };
    int64_t *size = vy.size;
    // x is seen as (N, C, H, W) for the checks.
    if (a->conv.channels_last) tni_view_unpermute(&vx, tni_channels_last_order);
    if (!conv_size(&vx, &vw, a, size))
        return tni_fail(cx, TN_ESHAPE,
                        "%s: x %s and w %s do not fit (stride %lld, padding %lld, dilation %lld, "
                        "groups %lld)",
                        op, tni_shape_text(vx.rank, vx.size).s, tni_shape_of(w).s,
                        (long long)a->conv.stride[0], (long long)a->conv.padding[0],
                        (long long)a->conv.dilation[0], (long long)a->conv.groups);
    if (a->conv.channels_last) tni_view_permute(&vy, tni_channels_last_order);
    tn_dtype dt = tni_promote(tni_dtype(x), tni_dtype(w));
    if (!tni_want_math_dtype(cx, op, tni_dtype(x)) || !tni_want_math_dtype(cx, op, tni_dtype(w)))
        return NULL;
    if (!tni_is_float(dt))
        return tni_fail(cx, TN_EDTYPE, "%s: %s is not a float type", op, tn_dtype_name(dt));
    if (!tni_shape_ok(cx, op, 4, size)) return NULL;
    if (tni_dtype(x) != dt) x = tn_cast(x, dt);
    if (tni_dtype(w) != dt) w = tn_cast(w, dt);
    tni_node *src[] = { x ? tni_resolve(x, op) : NULL, w ? tni_resolve(w, op) : NULL };
    if (!src[0] || !src[1]) return NULL;
    return tni_record(cx, TNI_conv, dt, 4, size, 2, src, a);
}

tn_tensor *tni_conv(tn_tensor *x, tn_tensor *w, const tni_attr *a)
{
    return conv_named("conv", x, w, a);
}

// The result has x's memory format. Only the activations do: the weight keeps (O, C, KH, KW). The
// cast of autocast comes before the views of x, so that products of one x share it.
static tn_tensor *conv_in_format(const char *op, tn_tensor *x, tn_tensor *w, tni_attr *a)
{
    tn_tensor *low[] = { x, w };
    if (!x || !w) return NULL;
    if (!tni_autocast_args(x->cx, tni_op_table[TNI_conv].autocast, 2, low)) return NULL;
    x                     = low[0];
    w                     = low[1];
    a->conv.channels_last = x && tni_is_channels_last(x);
    if (!a->conv.channels_last) return conv_named(op, x, w, a);
    tn_tensor *y = conv_named(op, tni_permuted_view(x, tni_channels_last_order), w, a);
    return tni_show_permuted(y, tni_channels_last_order);
}

// dgrad and wgrad are ops of their own, as libraries have them; shapes were checked with the
// convolution.
static tn_tensor *conv_gradient(int op, tn_tensor *gy, tn_tensor *other, const int64_t *size,
                                const tni_attr *a)
{
    const char *name = tni_op_table[op].name;
    if (!gy || !other) return NULL;
    tni_node *src[] = { tni_resolve(gy, name), tni_resolve(other, name) };
    if (!src[0] || !src[1]) return NULL;
    return tni_record(gy->cx, op, (tn_dtype)src[0]->dtype, 4, size, 2, src, a);
}

tn_tensor *tni_conv_dgrad(tn_tensor *gy, tn_tensor *w, const int64_t *x_size, const tni_attr *a)
{
    return conv_gradient(TNI_conv_dgrad, gy, w, x_size, a);
}

tn_tensor *tni_conv_wgrad(tn_tensor *gy, tn_tensor *x, const int64_t *w_size, const tni_attr *a)
{
    return conv_gradient(TNI_conv_wgrad, gy, x, w_size, a);
}

// One number for each output channel.
static bool bias_ok(tn_ctx *cx, const char *op, tn_tensor *w, tn_tensor *b)
{
    if (!b || (tni_rank(b) == 1 && tni_rank(w) > 0 && tn_size(b, 0) == tn_size(w, 0))) return true;
    tni_fail(cx, TN_ESHAPE, "%s: w %s and b %s do not fit", op, tni_shape_of(w).s,
             tni_shape_of(b).s);
    return false;
}

// The bias as autocast has it beside the product.
static tn_tensor *conv_bias(tn_tensor *b)
{
    return tni_autocast_arg(b, tni_op_table[TNI_conv].autocast);
}

// x (N, C, H, W), w (O, C / groups, KH, KW). The bias, one number a channel, is a broadcast sum.
tn_tensor *tn_conv2d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    static const char *const names[] = { "x", "w", "b" };
    tn_ctx  *cx = tni_args("conv2d", b ? 3 : 2, (tn_tensor *const[]){ x, w, b }, names);
    tni_attr a  = conv_attr(o);
    if (!cx || !bias_ok(cx, "conv2d", w, b)) return NULL;
    tn_tensor *y = conv_in_format("conv2d", x, w, &a);
    return b ? tn_add(y, tn_reshape(conv_bias(b), TN_SHAPE(-1, 1, 1))) : y;
}

// As a 2-d convolution of height 1. The options of its one axis are those of the width.
tn_tensor *tn_conv1d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    static const char *const names[] = { "x", "w", "b" };
    tn_ctx *cx = tni_args("conv1d", b ? 3 : 2, (tn_tensor *const[]){ x, w, b }, names);
    if (!cx || !bias_ok(cx, "conv1d", w, b)) return NULL;
    if (tni_rank(x) != 3 || tni_rank(w) != 3)
        return tni_fail(cx, TN_ESHAPE, "conv1d: x %s and w %s are not both of rank 3",
                        tni_shape_of(x).s, tni_shape_of(w).s);
    // The height keeps the defaults: no padding, stride and dilation 1.
    tni_attr a         = conv_attr((tn_conv_opts){ .groups = o.groups });
    tni_attr line      = conv_attr((tn_conv_opts){
             .stride = { o.stride[0] }, .padding = { o.padding[0] }, .dilation = { o.dilation[0] } });
    a.conv.stride[1]   = line.conv.stride[0];
    a.conv.padding[1]  = line.conv.padding[0];
    a.conv.dilation[1] = line.conv.dilation[0];
    tn_tensor *y       = conv_in_format("conv1d", tn_unsqueeze(x, 2), tn_unsqueeze(w, 2), &a);
    y                  = tn_squeeze(y, 2);
    if (b) return tn_add(y, tn_reshape(conv_bias(b), TN_SHAPE(-1, 1)));
    return y ? tni_share(y, "conv1d") : NULL;
}
