// Convolution over one, two or three axes, and the transposed convolution, which is the gradient of
// a convolution for its input: each is one node of a LIBRARY op, conv or conv_dgrad.
//
// N images, C channels of x, O channels of the result; places are the last axes of x, taps those of
// w
#include "ops/composite.h"

#include <string.h>

// ---- options -----------------------------------------------------------------------------------

// Options with their defaults filled in.
static tni_attr conv_attr(int axes, const tn_conv_opts *o)
{
    tni_attr a = { .conv = { .groups = o->groups ? o->groups : 1 } };
    for (int i = 0; i < axes; i++) {
        a.conv.stride[i]   = tni_option_at(o->stride, i, 1);
        a.conv.padding[i]  = tni_option_at(o->padding, i, 0);
        a.conv.dilation[i] = tni_option_at(o->dilation, i, 1);
    }
    return a;
}

// The bounds keep sizes from overflowing.
static bool conv_attr_ok(int axes, const tni_attr *a)
{
    for (int i = 0; i < axes; i++)
        if (a->conv.stride[i] < 1 || a->conv.padding[i] < 0 || a->conv.dilation[i] < 1 ||
            a->conv.padding[i] > INT32_MAX || a->conv.dilation[i] > INT32_MAX)
            return false;
    return a->conv.groups > 0;
}

// "2", or "(2, 1)" if axes differ, for messages.
static tni_text option_text(int axes, const int64_t *v)
{
    for (int i = 1; i < axes; i++)
        if (v[i] != v[0]) return tni_shape_text(axes, v);
    return tni_text_of("%lld", (long long)v[0]);
}

static tn_tensor *no_fit(tn_ctx *cx, const char *op, const tni_view *x, const tni_view *w,
                         const tni_attr *a)
{
    int axes = x->rank > 2 && x->rank < 6 ? x->rank - 2 : 1;
    return tni_fail(
        cx, TN_ESHAPE,
        "%s: x %s and w %s do not fit (stride %s, padding %s, dilation %s, groups %lld)", op,
        tni_shape_text(x->rank, x->size).s, tni_shape_text(w->rank, w->size).s,
        option_text(axes, a->conv.stride).s, option_text(axes, a->conv.padding).s,
        option_text(axes, a->conv.dilation).s, (long long)a->conv.groups);
}

// ---- sizes -------------------------------------------------------------------------------------

// The sizes of the result, (x + 2 padding - dilation (taps - 1) - 1) / stride + 1; false if x and w
// do not fit.
static bool conv_size(const tni_view *x, const tni_view *w, const tni_attr *a, int64_t *y)
{
    int axes = x->rank - 2;
    if (axes < 1 || axes > 3 || w->rank != x->rank || !conv_attr_ok(axes, a)) return false;
    if (x->size[1] % a->conv.groups || w->size[0] % a->conv.groups) return false;
    // A weight has the channels of one group.
    if (x->size[1] / a->conv.groups != w->size[1]) return false;
    y[0] = x->size[0];
    y[1] = w->size[0];
    for (int i = 0; i < axes; i++) {
        int64_t span = x->size[2 + i] + 2 * a->conv.padding[i] - 1, taps = w->size[2 + i] - 1;
        if (span < 0 || taps < 0 || taps > span / a->conv.dilation[i]) return false;
        span -= a->conv.dilation[i] * taps;
        y[2 + i] = span / a->conv.stride[i] + 1;
    }
    return true;
}

// The sizes of x that a transposed convolution makes of y: the least that a convolution makes y of,
// and output_padding more.
static bool transposed_size(const tni_view *y, const tni_view *w, const tni_attr *a,
                            const int64_t *extra, int64_t *x)
{
    int axes = y->rank - 2;
    if (axes < 1 || axes > 3 || w->rank != y->rank || !conv_attr_ok(axes, a)) return false;
    if (y->size[1] % a->conv.groups || y->size[1] != w->size[0]) return false;
    if ((double)w->size[1] * (double)a->conv.groups > 0x1p60) return false;
    x[0] = y->size[0];
    x[1] = w->size[1] * a->conv.groups;
    for (int i = 0; i < axes; i++) {
        int64_t places = y->size[2 + i] - 1, taps = w->size[2 + i] - 1;
        int64_t stride = a->conv.stride[i], dilation = a->conv.dilation[i];
        double  most = (double)places * (double)stride + (double)taps * (double)dilation;
        if (places < 0 || taps < 0 || most + (double)extra[i] > 0x1p60) return false;
        x[2 + i] = places * stride + taps * dilation + 1 + extra[i] - 2 * a->conv.padding[i];
        if (x[2 + i] < 1) return false;
    }
    return true;
}

// ---- nodes -------------------------------------------------------------------------------------

// Brings x and w to the dtype of the result; false if there is none.
static bool promote_both(tn_ctx *cx, const char *op, tn_tensor **x, tn_tensor **w)
{
    tn_dtype dt = tni_promote(tni_dtype(*x), tni_dtype(*w));
    if (!tni_want_math_dtype(cx, op, tni_dtype(*x)) || !tni_want_math_dtype(cx, op, tni_dtype(*w)))
        return false;
    if (!tni_is_float(dt)) {
        tni_fail(cx, TN_EDTYPE, "%s: %s is not a float type", op, tn_dtype_name(dt));
        return false;
    }
    if (tni_dtype(*x) != dt) *x = tn_cast(*x, dt);
    if (tni_dtype(*w) != dt) *w = tn_cast(*w, dt);
    return *x && *w;
}

// The node of an op of two sources.
static tn_tensor *record_conv(int op, const char *name, tn_tensor *a, tn_tensor *b, int rank,
                              const int64_t *size, const tni_attr *attr)
{
    tni_node *src[] = { tni_resolve(a, name), tni_resolve(b, name) };
    if (!src[0] || !src[1]) return NULL;
    if (op == TNI_conv_i32)
        return tni_record_or_fallback(a->cx, op, TN_I32, rank, size, 2, src, attr);
    return tni_record(a->cx, op, (tn_dtype)src[0]->dtype, rank, size, 2, src, attr);
}

// The checks and the node of a convolution or, if extra is given, of a transposed one. Sizes are
// checked as (N, C, places) and recorded as (N, places, C) if x is channels last.
static tn_tensor *conv_named(const char *name, tn_tensor *x, tn_tensor *w, const tni_attr *a,
                             const int64_t *extra)
{
    if (!x || !w) return NULL;
    tn_ctx  *cx = x->cx;
    tni_view vx = tni_layout(x), vw = tni_layout(w), vy = { .rank = vx.rank };
    bool     last = a->conv.channels_last;
    if (last) tni_view_unpermute(&vx, tni_channels_last_order(vx.rank));
    if (a->conv.channels_last == TNI_WEIGHTS_LAST)
        tni_view_unpermute(&vw, tni_channels_last_order(vw.rank));
    bool fits = extra ? transposed_size(&vx, &vw, a, extra, vy.size)
                      : conv_size(&vx, &vw, a, vy.size);
    if (!fits) return no_fit(cx, name, &vx, &vw, a);
    if (last) tni_view_permute(&vy, tni_channels_last_order(vy.rank));
    if (!promote_both(cx, name, &x, &w) || !tni_shape_ok(cx, name, vy.rank, vy.size)) return NULL;
    return record_conv(extra ? TNI_conv_dgrad : TNI_conv, name, x, w, vy.rank, vy.size, a);
}

tn_tensor *tni_conv(tn_tensor *x, tn_tensor *w, const tni_attr *a)
{
    return conv_named("conv", x, w, a, NULL);
}

// dgrad and wgrad are ops of their own, as libraries have them; shapes were checked with the
// convolution.
tn_tensor *tni_conv_dgrad(tn_tensor *gy, tn_tensor *w, const int64_t *x_size, const tni_attr *a)
{
    if (!gy || !w) return NULL;
    return record_conv(TNI_conv_dgrad, "conv_dgrad", gy, w, tni_rank(gy), x_size, a);
}

tn_tensor *tni_conv_wgrad(tn_tensor *gy, tn_tensor *x, const int64_t *w_size, const tni_attr *a)
{
    if (!gy || !x) return NULL;
    return record_conv(TNI_conv_wgrad, "conv_wgrad", gy, x, tni_rank(gy), w_size, a);
}

// The order in which images and weights are stored: x's own, or what the device is faster with for
// a result of that many channels.
static int64_t conv_order(tn_tensor *x, tn_tensor *w, int64_t channels)
{
    bool     last = tni_is_channels_last(x);
    tn_ctx  *cx   = x->cx;
    tn_dtype dt   = tni_promote(tni_dtype(x), tni_dtype(w));
    return cx->conv_order ? cx->conv_order(cx, dt, tn_size(x, 1), channels, last) : last;
}

// x with its channels last in memory: itself, or a copy.
static tn_tensor *with_channels_last(tn_tensor *x)
{
    tn_tensor *y = tni_permuted_view(x, tni_channels_last_order(tni_rank(x)));
    return tni_is_channels_last(x) ? y : tn_contiguous(y);
}

// ---- few channels ------------------------------------------------------------------------------

// Tensor cores multiply channels, of which images have one to four, so that most of their work on a
// network's first convolution is in vain. If its stride is 2, the 2 x 2 places of a square become
// channels of one place: the convolution of the squares has four times the channels, half the taps
// each way, and stride 1. What its window has beyond the given one is multiplied by zeros, so that
// an infinite pixel may make NaN one square farther.
enum { SQUARE = 2, FEW = 4 };

static bool has_squares(tn_tensor *x, tn_tensor *w, const tni_attr *a)
{
    tni_view vx = tni_layout(x), vw = tni_layout(w);
    int64_t  y[TN_MAX_RANK];
    if (vx.rank != 4 || !conv_size(&vx, &vw, a, y) || a->conv.groups != 1) return false;
    bool few = vx.size[1] <= FEW && tni_shape_count(4, y) > 0;
    for (int i = 0; i < 2; i++)
        few &= a->conv.stride[i] == SQUARE && a->conv.dilation[i] == 1 && vw.size[2 + i] > SQUARE;
    return few;
}

// x (N, C, H, W), or a weight, as (N, squares, 4 C): with `before` zeros ahead, and zeros behind or
// less of it for that many squares.
static tn_tensor *as_squares(tn_tensor *x, const int64_t before[2], const int64_t squares[2])
{
    int64_t C = tn_size(x, 1) > 2 ? FEW : 2, N = tn_size(x, 0);
    int64_t ahead[] = { 0, 0, before[0], before[1] }, behind[] = { 0, C - tn_size(x, 1), 0, 0 };
    for (int i = 0; i < 2; i++) {
        int64_t left = SQUARE * squares[i] - before[i], size = tn_size(x, 2 + i);
        if (left < size) x = tn_slice(x, 2 + i, 0, left, 1);
        else behind[2 + i] = left - size;
    }
    x = tn_pad(x, ahead, behind, 0);
    x = tn_reshape(x, TN_SHAPE(N, C, squares[0], SQUARE, squares[1], SQUARE));
    x = tn_contiguous(tn_permute(x, TN_AXES(0, 2, 4, 3, 5, 1)));
    return tn_reshape(x, TN_SHAPE(N, squares[0], squares[1], SQUARE * SQUARE * C));
}

// Place i of the result reads from 2 i - padding on: that is the start of a square once the window
// begins with a zero where padding is odd.
static tn_tensor *conv_of_squares(const char *name, tn_tensor *x, tn_tensor *w, const tni_attr *a)
{
    tni_view vx = tni_layout(x), vw = tni_layout(w);
    tni_attr one = { .conv = { .groups = 1, .channels_last = TNI_WEIGHTS_LAST } };
    int64_t  y[TN_MAX_RANK], odd[2], ahead[2], taps[2], squares[2];
    conv_size(&vx, &vw, a, y);
    for (int i = 0; i < 2; i++) {
        odd[i]               = a->conv.padding[i] % SQUARE;
        ahead[i]             = a->conv.padding[i] + odd[i];
        taps[i]              = (vw.size[2 + i] + odd[i] + 1) / SQUARE;
        squares[i]           = y[2 + i] + taps[i] - 1;
        one.conv.stride[i]   = 1;
        one.conv.dilation[i] = 1;
    }
    x = as_squares(x, ahead, squares);
    return conv_named(name, x, as_squares(w, odd, taps), &one, NULL);
}

// ---- the format --------------------------------------------------------------------------------

// The result has x's memory format, unless the device prefers another: then x is copied, and what
// is computed of the result stays in the new order. The weight keeps (O, C, taps) unless the device
// reads it channels last, too. The cast of autocast comes before the views of x, so that products
// of one x share it.
static tn_tensor *conv_in_format(const char *name, tn_tensor *x, tn_tensor *w, tni_attr *a,
                                 const int64_t *extra)
{
    tn_tensor *low[] = { x, w };
    if (!tni_autocast_args(x->cx, tni_op_table[TNI_conv].autocast, 2, low)) return NULL;
    x = low[0];
    w = low[1];
    if (!x || !w) return NULL;
    int64_t channels      = extra ? tn_size(w, 1) * a->conv.groups : tn_size(w, 0);
    a->conv.channels_last = conv_order(x, w, channels);
    if (!a->conv.channels_last) return conv_named(name, x, w, a, extra);
    const int *order   = tni_channels_last_order(tni_rank(x));
    bool       weights = a->conv.channels_last == TNI_WEIGHTS_LAST;
    if (weights && !extra && has_squares(x, w, a))
        return tni_show_permuted(conv_of_squares(name, x, w, a), order);
    if (weights) w = with_channels_last(w);
    return tni_show_permuted(conv_named(name, with_channels_last(x), w, a, extra), order);
}

// ---- bytes -------------------------------------------------------------------------------------

// What kernels on tensor cores want: padding that is zeros, which x gets here otherwise, and
// channels in fours, of which the last are multiplied by zeros.
static bool suit_cores(tn_tensor **x, tn_tensor **w, tni_attr *a)
{
    enum { FOURS = 4 };
    int64_t none[TN_MAX_RANK] = { 0 }, ahead[TN_MAX_RANK] = { 0 }, behind[TN_MAX_RANK] = { 0 };
    int64_t more  = a->conv.groups == 1 ? (FOURS - tn_size(*x, 1) % FOURS) % FOURS : 0;
    bool    fills = false;
    for (int i = 0; i < tni_rank(*x) - 2 && a->conv.fill; i++) {
        fills |= a->conv.padding[i] > 0;
        ahead[2 + i] = behind[2 + i] = a->conv.padding[i];
        a->conv.padding[i]           = 0;
    }
    behind[1] = more;
    if (fills || more) *x = tn_pad_i64(*x, ahead, behind, a->conv.fill);
    memset(behind + 2, 0, 3 * sizeof *behind);
    if (more) *w = tn_pad_i64(*w, none, behind, 0);
    a->conv.fill          = 0;
    a->conv.channels_last = TNI_WEIGHTS_LAST;
    *w                    = *w ? with_channels_last(*w) : NULL;
    return *x && *w;
}

// x and the result are channels last on every device: a window is then runs of bytes, which the
// instructions that multiply bytes add up along. The weight keeps its order unless the device wants
// another, so that it finds the value that it packed before.
static tn_tensor *conv_bytes(tn_tensor *x, tn_tensor *w, tni_attr *a)
{
    const char *name = "conv_i32";
    tni_view    vx = tni_layout(x), vw = tni_layout(w), vy = { .rank = vx.rank };
    const int  *order = tni_channels_last_order(vx.rank);
    if (!conv_size(&vx, &vw, a, vy.size)) return no_fit(x->cx, name, &vx, &vw, a);
    if (!tni_shape_ok(x->cx, name, vy.rank, vy.size)) return NULL;
    tni_view_permute(&vy, order);
    a->conv.channels_last = true;
    if (x->cx->conv_order && vy.size[vy.rank - 1] && tni_count(x) && tni_count(w) &&
        x->cx->conv_order(x->cx, tni_dtype(x), vx.size[1], vw.size[0], true) == TNI_WEIGHTS_LAST &&
        !suit_cores(&x, &w, a))
        return NULL;
    x = with_channels_last(x);
    if (!x) return NULL;
    return tni_show_permuted(record_conv(TNI_conv_i32, name, x, w, vy.rank, vy.size, a), order);
}

// ---- the public ones ---------------------------------------------------------------------------

static tn_tensor *traced_conv(tn_tensor *y, tni_kept_kind kind, int axes, tn_tensor *const x[3],
                              const tni_attr *a, const int64_t *extra)
{
    tni_kept c = { .kind = kind, .i = { axes, a->conv.groups } };
    for (int i = 0; i < axes; i++) {
        c.i[2 + i]  = a->conv.stride[i];
        c.i[5 + i]  = a->conv.padding[i];
        c.i[8 + i]  = a->conv.dilation[i];
        c.i[11 + i] = extra ? extra[i] : 0;
    }
    return tni_traced(y, 3, x, c);
}

// A convolution is of x (N, C, places) and w (O, C / groups, taps), a transposed one of w (C, O /
// groups, taps).
static tn_ctx *conv_args(const char *name, int axes, tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    static const char *const names[] = { "x", "w", "b" };

    tn_ctx *cx = tni_args(name, b ? 3 : 2, (tn_tensor *const[]){ x, w, b }, names);
    if (!cx) return NULL;
    if (tni_rank(x) != axes + 2 || tni_rank(w) != axes + 2)
        return tni_fail(cx, TN_ESHAPE, "%s: x %s and w %s are not both of rank %d", name,
                        tni_shape_of(x).s, tni_shape_of(w).s, axes + 2);
    return cx;
}

// One number for each output channel.
static bool bias_ok(tn_ctx *cx, const char *name, tn_tensor *w, tn_tensor *b, int64_t channels)
{
    if (!b || (tni_rank(b) == 1 && tn_size(b, 0) == channels)) return true;
    tni_fail(cx, TN_ESHAPE, "%s: w %s and b %s do not fit", name, tni_shape_of(w).s,
             tni_shape_of(b).s);
    return false;
}

// The bias, as autocast has it beside the product, is a broadcast sum.
static tn_tensor *add_bias(tn_tensor *y, tn_tensor *b, int axes)
{
    if (!b) return y;
    b = tni_autocast_arg(b, tni_op_table[TNI_conv].autocast);
    return tn_add(y, tn_reshape(b, axes + 1, (int64_t[]){ -1, 1, 1, 1 }));
}

static bool no_output_padding(tn_ctx *cx, const char *name, int axes, const tn_conv_opts *o)
{
    if (!o->output_padding[0] && !o->output_padding[1] && !o->output_padding[2]) return true;
    return tni_refuse(cx, TN_EARG, "%s: output_padding %s is for transposed convolutions", name,
                      tni_shape_text(axes, o->output_padding).s);
}

static tn_tensor *convolve(const char *name, int axes, tn_tensor *x, tn_tensor *w, tn_tensor *b,
                           const tn_conv_opts *o)
{
    tni_attr a  = conv_attr(axes, o);
    tn_ctx  *cx = conv_args(name, axes, x, w, b);
    if (!cx || !bias_ok(cx, name, w, b, tn_size(w, 0))) return NULL;
    if (!no_output_padding(cx, name, axes, o)) return NULL;
    tn_tensor *y = add_bias(conv_in_format(name, x, w, &a, NULL), b, axes);
    return traced_conv(y, TNI_KEPT_conv, axes, (tn_tensor *[]){ x, w, b }, &a, NULL);
}

tn_tensor *tn_conv_i32(tn_tensor *x, tn_tensor *w, int64_t pad, tn_conv_opts o)
{
    int      rank = x ? tni_rank(x) : 0, axes = rank > 2 && rank < 6 ? rank - 2 : 2;
    tni_attr a  = conv_attr(axes, &o);
    tn_ctx  *cx = conv_args("conv_i32", axes, x, w, NULL);
    if (!cx || !no_output_padding(cx, "conv_i32", axes, &o) || !tni_want_bytes("conv_i32", x, w))
        return NULL;
    int64_t low = tni_dtype(x) == TN_I8 ? INT8_MIN : 0;
    if (pad < low || pad > low + UINT8_MAX)
        return tni_fail(cx, TN_EARG, "conv_i32: pad %lld: x is of %s", (long long)pad,
                        tn_dtype_name(tni_dtype(x)));
    a.conv.fill = pad;
    return conv_bytes(x, w, &a);
}

// Where output_padding is below the dilation and not below the stride, x gets zeros at its end,
// which add nothing, so that what remains of it is below the stride: then a convolution of the
// result has exactly the places of x.
static tn_tensor *pad_places(tn_tensor *x, int axes, const tni_attr *a, int64_t *extra)
{
    int64_t before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    bool    any = false;
    for (int i = 0; i < axes; i++) {
        after[2 + i] = extra[i] / a->conv.stride[i];
        extra[i] %= a->conv.stride[i];
        any |= after[2 + i] > 0;
    }
    return any ? tn_pad(x, before, after, 0) : x;
}

// Checks everything with x as it was given, so that messages show that, then pads and records.
static tn_tensor *transpose(const char *name, int axes, tn_tensor *x, tn_tensor *w, tn_tensor *b,
                            const tn_conv_opts *o)
{
    tni_attr a = conv_attr(axes, o);
    int64_t  extra[3], y[TN_MAX_RANK];
    tn_ctx  *cx = conv_args(name, axes, x, w, b);
    if (!cx) return NULL;
    tni_view vx = tni_layout(x), vw = tni_layout(w);
    for (int i = 0; i < axes; i++) extra[i] = tni_option_at(o->output_padding, i, 0);
    if (!conv_attr_ok(axes, &a)) return no_fit(cx, name, &vx, &vw, &a);
    for (int i = 0; i < axes; i++)
        if (extra[i] < 0 || (extra[i] >= a.conv.stride[i] && extra[i] >= a.conv.dilation[i]))
            return tni_fail(cx, TN_EARG,
                            "%s: output_padding %s has to be below stride %s or dilation %s", name,
                            option_text(axes, extra).s, option_text(axes, a.conv.stride).s,
                            option_text(axes, a.conv.dilation).s);
    if (!transposed_size(&vx, &vw, &a, extra, y)) return no_fit(cx, name, &vx, &vw, &a);
    if (!bias_ok(cx, name, w, b, y[1])) return NULL;
    x = pad_places(x, axes, &a, extra);
    if (!x) return NULL;
    tn_tensor *made = add_bias(conv_in_format(name, x, w, &a, extra), b, axes);
    return traced_conv(made, TNI_KEPT_conv_transpose, axes, (tn_tensor *[]){ x, w, b }, &a, extra);
}

tn_tensor *tn_conv1d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    return convolve("conv1d", 1, x, w, b, &o);
}

tn_tensor *tn_conv2d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    return convolve("conv2d", 2, x, w, b, &o);
}

tn_tensor *tn_conv3d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    return convolve("conv3d", 3, x, w, b, &o);
}

tn_tensor *tn_conv_transpose1d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    return transpose("conv_transpose1d", 1, x, w, b, &o);
}

tn_tensor *tn_conv_transpose2d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    return transpose("conv_transpose2d", 2, x, w, b, &o);
}

tn_tensor *tn_conv_transpose3d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o)
{
    return transpose("conv_transpose3d", 3, x, w, b, &o);
}
