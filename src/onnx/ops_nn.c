// Operators of networks: convolutions, pools, normalizations.
//
// The windows of an axis of 5 places, kernel 3, stride 2, pads 1 before and after, with ceil_mode
// or without:
//
//   place      -1  0  1  2  3  4  5  (6)
//   window 0    [------]
//   window 1          [------]
//   window 2                [------]       and with stride 3 and ceil_mode one from 5 on, if it started before the pad
//
// What Tenon's own pools cannot say (pads that differ, rounding up, places of maxima) is said with
// tn_window: an axis of windows and one of taps, over which a reduction runs.
#include "onnx/onnx_ops.h"

#include <math.h>

// ---- windows -----------------------------------------------------------------------------------

// How many places a window reaches over.
static int64_t span(const tni_onnx_windows *w, int i)
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

// Reads a list of n numbers, all `or` where the node has none.
static bool sizes(tni_onnx_call *c, const char *name, int n, int64_t *v, int64_t or)
{
    int have;
    if (!tni_onnx_attr_ints(c, name, n, v, &have)) return false;
    for (int i = 0; have < 0 && i < n; i++) v[i] = or ;
    if (have >= 0 && have != n)
        return tni_onnx_refuse(c, "%s has %d numbers, not %d", name, have, n);
    for (int i = 0; i < n; i++)
        if (v[i] < 0 || v[i] > 1 << 30) return tni_onnx_refuse(c, "%s is out of range", name);
    return true;
}

// SAME: as many results as x has steps; the odd one of the pads is at the end (UPPER) or at the
// start (LOWER).
static void pad_same(tni_onnx_windows *w, tn_tensor *x, bool upper)
{
    for (int i = 0; i < w->n; i++) {
        int64_t in = tn_size(x, 2 + i), out = (in + w->stride[i] - 1) / w->stride[i];
        int64_t all = (out - 1) * w->stride[i] + span(w, i) - in;
        if (all < 0) all = 0;
        w->before[i] = upper ? all / 2 : all - all / 2;
        w->after[i]  = all - w->before[i];
    }
}

// The windows of x (N, C, places...); taps: of a weight, which a file need not repeat.
bool tni_onnx_read_windows(tni_onnx_call *c, tn_tensor *x, tn_tensor *taps, tni_onnx_windows *w)
{
    int64_t pads[6];
    *w = (tni_onnx_windows){ .n    = tn_rank(x) - 2,
                             .ceil = tni_onnx_attr_int(c, "ceil_mode", 0) != 0 };
    if (w->n < 1 || w->n > 3 || (taps && tn_rank(taps) != tn_rank(x)))
        return tni_onnx_refuse(c, "x %s has not one to three axes of places", tni_shape_of(x).s);
    if (!sizes(c, "kernel_shape", w->n, w->kernel, 0) || !sizes(c, "strides", w->n, w->stride, 1) ||
        !sizes(c, "dilations", w->n, w->dilation, 1) || !sizes(c, "pads", 2 * w->n, pads, 0))
        return false;
    for (int i = 0; i < w->n; i++) {
        if (taps) w->kernel[i] = tn_size(taps, 2 + i);
        if (!w->kernel[i] || !w->stride[i] || !w->dilation[i])
            return tni_onnx_refuse(c, "kernel, stride or dilation is 0");
        w->before[i] = pads[i];
        w->after[i]  = pads[w->n + i];
    }
    tni_wire how = tni_onnx_attr_text(c, "auto_pad");
    if (tni_wire_is(how, "SAME_UPPER") || tni_wire_is(how, "SAME_LOWER"))
        pad_same(w, x, tni_wire_is(how, "SAME_UPPER"));
    if (tni_wire_is(how, "VALID"))
        for (int i = 0; i < 3; i++) w->before[i] = w->after[i] = 0;
    return true;
}

// Whether the pads of both ends are alike, as Tenon's convolutions have them.
static bool is_symmetric(const tni_onnx_windows *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->before[i] != w->after[i]) return false;
    return true;
}

// Pads x itself, where an op has one pad for both ends.
static tn_tensor *pad_places(tn_tensor *x, const tni_onnx_windows *w, double v)
{
    int64_t before[5] = { 0 }, after[5] = { 0 };
    for (int i = 0; i < w->n; i++) before[2 + i] = w->before[i], after[2 + i] = w->after[i];
    return tn_pad(x, before, after, v);
}

// The options of Tenon's convolutions: 0 in them is the entry before, so that no padding has a name
// of its own.
static tn_conv_opts conv_opts(const tni_onnx_windows *w, int64_t groups, bool padded)
{
    tn_conv_opts o = { .groups = groups };
    for (int i = 0; i < w->n; i++) {
        o.stride[i]   = w->stride[i];
        o.dilation[i] = w->dilation[i];
        o.padding[i]  = padded || !w->before[i] ? TN_NO_PADDING : w->before[i];
    }
    if (o.padding[0] == TN_NO_PADDING) o.padding[0] = 0;
    for (int i = 1; i < w->n; i++)
        if (!o.padding[i]) o.padding[i] = TN_NO_PADDING;
    return o;
}

// Pads that differ are put around x first.
tn_tensor *tni_onnx_convolve(tni_onnx_call *c, tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    tni_onnx_windows k;
    if (!x || !w || !tni_onnx_read_windows(c, x, w, &k)) return NULL;
    bool pad = !is_symmetric(&k);
    if (pad) x = pad_places(x, &k, 0);
    tn_conv_opts o = conv_opts(&k, tni_onnx_attr_int(c, "group", 1), pad);
    return k.n == 1   ? tn_conv1d(x, w, b, o)
           : k.n == 2 ? tn_conv2d(x, w, b, o)
                      : tn_conv3d(x, w, b, o);
}

// The same of bytes, added up in i32; pads count as `pad`.
tn_tensor *tni_onnx_convolve_bytes(tni_onnx_call *c, tn_tensor *x, tn_tensor *w, int64_t pad)
{
    tni_onnx_windows k;
    int64_t          before[5] = { 0 }, after[5] = { 0 };
    if (!x || !w || !tni_onnx_read_windows(c, x, w, &k)) return NULL;
    bool around = !is_symmetric(&k);
    for (int i = 0; i < k.n; i++) before[2 + i] = k.before[i], after[2 + i] = k.after[i];
    if (around) x = tn_pad_i64(x, before, after, pad);
    return tn_conv_i32(x, w, pad, conv_opts(&k, tni_onnx_attr_int(c, "group", 1), around));
}

// Conv(x, w, b; kernel_shape, strides, pads, dilations, group, auto_pad). Of bytes with scales it
// is a convolution of bytes.
bool tni_onnx_conv(tni_onnx_call *c)
{
    tni_onnx_operand x, w;
    if (tni_onnx_is_byte_conv(c, &x, &w)) return tni_onnx_byte_conv(c, &x, &w);
    if (tni_onnx_conv_with_norm(c)) return true;
    tn_tensor *b = tni_onnx_in(c, 2);
    if (tni_onnx_has(c, 2) && !b) return false;
    return tni_onnx_out(c, 0, tni_onnx_convolve(c, tni_onnx_in(c, 0), tni_onnx_in(c, 1), b));
}

// Computed without pads, then cut at both ends; output_padding adds places at the far end,
// output_shape says how many are left.
// The weight is (inputs, outputs / group, taps). Of output_shape the pads follow: their odd place
// is cut at the start, with SAME_UPPER at the end.
bool tni_onnx_conv_transpose(tni_onnx_call *c)
{
    tn_tensor       *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *b = tni_onnx_in(c, 2), *y;
    tni_onnx_windows k;
    int64_t          more[3], shape[3];
    int              shapes;
    if (!x || !w || (tni_onnx_has(c, 2) && !b) || !tni_onnx_read_windows(c, x, w, &k) ||
        !sizes(c, "output_padding", k.n, more, 0) ||
        !tni_onnx_attr_ints(c, "output_shape", 3, shape, &shapes))
        return false;
    tni_wire how  = tni_onnx_attr_text(c, "auto_pad");
    bool     same = tni_wire_is(how, "SAME_UPPER") || tni_wire_is(how, "SAME_LOWER"),
         upper    = tni_wire_is(how, "SAME_UPPER");
    for (int i = 0; i < k.n; i++) {
        int64_t all = (tn_size(x, 2 + i) - 1) * k.stride[i] + more[i] + span(&k, i);
        if (shapes != k.n && !same) continue;
        int64_t cut = all - (shapes == k.n ? shape[i] : tn_size(x, 2 + i) * k.stride[i]);
        k.before[i] = upper ? cut >> 1 : cut - (cut >> 1);  // rounded down, also below 0
        k.after[i]  = cut - k.before[i];
    }
    tni_onnx_windows plain = k;
    for (int i = 0; i < 3; i++) plain.before[i] = plain.after[i] = 0;
    tn_conv_opts o    = conv_opts(&plain, tni_onnx_attr_int(c, "group", 1), true);
    y                 = k.n == 1   ? tn_conv_transpose1d(x, w, NULL, o)
                        : k.n == 2 ? tn_conv_transpose2d(x, w, NULL, o)
                                   : tn_conv_transpose3d(x, w, NULL, o);
    int64_t before[5] = { 0 }, after[5] = { 0 };
    for (int i = 0; i < k.n; i++) before[2 + i] = -k.before[i], after[2 + i] = more[i] - k.after[i];
    y = tn_pad(y, before, after, 0);
    for (int i = 0; b && i < k.n; i++) b = tn_unsqueeze(b, -1);
    return tni_onnx_out(c, 0, b ? tn_add(y, b) : y);
}

// ---- pools -------------------------------------------------------------------------------------

// Rounding up adds the last window where it starts inside x or the pad before it: pads more at the
// end, which counts for nothing.
static void round_up(tni_onnx_windows *w, tn_tensor *x, int64_t *extra)
{
    for (int i = 0; i < w->n; i++) {
        extra[i] = 0;
        if (!w->ceil) continue;
        int64_t in = tn_size(x, 2 + i) + w->before[i] + w->after[i] - span(w, i);
        int64_t n  = (in + w->stride[i] - 1) / w->stride[i] + 1;
        if ((n - 1) * w->stride[i] >= tn_size(x, 2 + i) + w->before[i]) n--;
        extra[i] = (n - 1) * w->stride[i] - in;
        if (extra[i] < 0) extra[i] = 0;
    }
}

// All windows of padded x: axes (N, C, places..., taps...).
static tn_tensor *window_axes(tn_tensor *x, const tni_onnx_windows *w)
{
    for (int i = 0; x && i < w->n; i++)
        x = tn_window_dilated(x, 2 + i, w->kernel[i], w->stride[i], w->dilation[i]);
    return x;
}

// Reduces the axes of taps, which are the last.
static tn_tensor *over_taps(tn_tensor *x, const tni_onnx_windows *w,
                            tn_tensor *(*f)(tn_tensor *, int, const int *, bool))
{
    int axes[3];
    for (int i = 0; i < w->n; i++) axes[i] = 2 + w->n + i;
    return f(x, w->n, axes, false);
}

// What is never a maximum.
static double lowest(tn_dtype dt)
{
    return tni_is_float(dt) ? -INFINITY : dt == TN_U8 ? 0 : -128;
}

// Where the maximum of each window is in x, as if all of x were one line: a window of places, then
// the first largest element.
static tn_tensor *places_of_max(tn_tensor *x, const tni_onnx_windows *w, bool columns)
{
    int64_t    plane = 1, size[5];
    tn_tensor *at;
    for (int i = 0; i < w->n; i++) plane *= tn_size(x, 2 + i);
    at = tn_arange_i64(tn_ctx_of(x), TN_I64, 0, plane, 1);
    for (int i = 0; i < w->n; i++) size[2 + i] = tn_size(x, 2 + (columns ? w->n - 1 - i : i));
    size[0] = size[1] = 1;
    at                = tn_reshape(at, 2 + w->n, size);
    if (columns && w->n == 2) at = tn_transpose(at, 2, 3);
    if (columns && w->n == 3) at = tn_transpose(at, 2, 4);
    int64_t    n = tn_size(x, 0), c = tn_size(x, 1);
    tn_tensor *v = window_axes(pad_places(x, w, lowest(tn_dtype_of(x))), w),
              *p = window_axes(pad_places(at, w, 0), w);
    if (!v || !p) return NULL;
    int        last = 2 + w->n;
    tn_tensor *best = tn_unsqueeze(
        tn_argmax(tn_flatten(tn_contiguous(v), last, tn_rank(v) - 1), last), last);
    p = tn_take_along_axis(tn_flatten(tn_contiguous(p), last, tn_rank(p) - 1), best, last);
    tn_tensor *start = tn_reshape(
        tn_mul_i64(tn_arange_i64(tn_ctx_of(x), TN_I64, 0, n * c, 1), plane), TN_SHAPE(n, c));
    for (int i = 0; start && i < w->n; i++) start = tn_unsqueeze(start, -1);
    return tn_add(tn_squeeze(p, last), start);
}

// Pads of -inf, or the lowest integer, are never the maximum. The plain case is Tenon's own pool.
// The second output has places in x as one line of all its elements, batch and channels among them,
// by rows or, with storage_order, by columns of the plane.
bool tni_onnx_max_pool(tni_onnx_call *c)
{
    tn_tensor       *x = tni_onnx_in(c, 0), *y;
    tni_onnx_windows w;
    int64_t          extra[3];
    if (!x || !tni_onnx_read_windows(c, x, NULL, &w)) return false;
    round_up(&w, x, extra);
    bool plain = is_symmetric(&w) && tni_is_float(tn_dtype_of(x)) && c->nout < 2;
    for (int i = 0; i < w.n; i++) {
        plain = plain && !extra[i] && 2 * w.before[i] <= w.kernel[i];
        w.after[i] += extra[i];
    }
    if (plain) {
        tn_conv_opts k = conv_opts(&w, 1, false);
        tn_pool_opts o = { .stride   = { k.stride[0], k.stride[1], k.stride[2] },
                           .padding  = { k.padding[0], k.padding[1], k.padding[2] },
                           .dilation = { k.dilation[0], k.dilation[1], k.dilation[2] } };
        y              = w.n == 1   ? tn_max_pool1d(x, w.kernel[0], o)
                         : w.n == 2 ? tn_max_pool2d(x, w.kernel[0], w.kernel[1], o)
                                    : tn_max_pool3d(x, w.kernel[0], w.kernel[1], w.kernel[2], o);
        return tni_onnx_out(c, 0, y);
    }
    y = over_taps(window_axes(pad_places(x, &w, lowest(tn_dtype_of(x))), &w), &w, tn_max_axes);
    if (!tni_onnx_out(c, 0, y) || c->nout < 2) return y != NULL;
    return tni_onnx_out(c, 1, places_of_max(x, &w, tni_onnx_attr_int(c, "storage_order", 0) != 0));
}

// The mean of a window is its sum over the number of elements that count: those of x, with
// count_include_pad also the pads, never what rounding up adds.
// Rounding up adds places that never count, not even with count_include_pad.
tn_tensor *tni_onnx_averages(tni_onnx_call *c, tn_tensor *x)
{
    tn_tensor       *ones, *y;
    tni_onnx_windows w;
    int64_t          extra[3], size[5];
    if (!x || !tni_onnx_read_windows(c, x, NULL, &w)) return NULL;
    bool with = tni_onnx_attr_int(c, "count_include_pad", 0) != 0, plain = is_symmetric(&w);
    round_up(&w, x, extra);
    for (int i = 0; i < w.n; i++)
        plain = plain && !extra[i] && w.dilation[i] == 1 && 2 * w.before[i] <= w.kernel[i];
    if (plain) {
        tn_conv_opts k = conv_opts(&w, 1, false);
        tn_pool_opts o = { .stride          = { k.stride[0], k.stride[1], k.stride[2] },
                           .padding         = { k.padding[0], k.padding[1], k.padding[2] },
                           .exclude_padding = !with };
        y              = w.n == 1   ? tn_avg_pool1d(x, w.kernel[0], o)
                         : w.n == 2 ? tn_avg_pool2d(x, w.kernel[0], w.kernel[1], o)
                                    : tn_avg_pool3d(x, w.kernel[0], w.kernel[1], w.kernel[2], o);
        return y;
    }
    for (int i = 0; i < w.n; i++)
        size[2 + i] = tn_size(x, 2 + i) + (with ? w.before[i] + w.after[i] : 0);
    size[0] = size[1]     = 1;
    ones                  = tn_ones(c->cx, tn_dtype_of(x), 2 + w.n, size);
    tni_onnx_windows rest = w;
    for (int i = 0; i < w.n; i++) {
        w.after[i] += extra[i];
        rest.before[i] = with ? 0 : w.before[i];
        rest.after[i]  = with ? extra[i] : w.after[i];
    }
    y = over_taps(window_axes(pad_places(x, &w, 0), &w), &w, tn_sum_axes);
    return tn_div(y, over_taps(window_axes(pad_places(ones, &rest, 0), &rest), &rest, tn_sum_axes));
}

// AveragePool(x; kernel_shape, strides, pads, dilations, ceil_mode, count_include_pad).
bool tni_onnx_average_pool(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tni_onnx_averages(c, tni_onnx_in(c, 0)));
}

// NhwcMaxPool(x; as MaxPool) of com.microsoft: channels are behind the places.
bool tni_onnx_nhwc_max_pool(tni_onnx_call *c)
{
    tn_tensor       *x = tni_onnx_in(c, 0);
    tni_onnx_windows w;
    int64_t          extra[3];
    if (!x || tn_rank(x) != 4)
        return x && tni_onnx_refuse(c, "x %s has not four axes", tni_shape_of(x).s);
    x = tn_permute(x, TN_AXES(0, 3, 1, 2));
    if (!x || !tni_onnx_read_windows(c, x, NULL, &w)) return false;
    round_up(&w, x, extra);
    for (int i = 0; i < w.n; i++) w.after[i] += extra[i];
    x = over_taps(window_axes(pad_places(x, &w, lowest(tn_dtype_of(x))), &w), &w, tn_max_axes);
    return tni_onnx_out(c, 0, tn_permute(x, TN_AXES(0, 2, 3, 1)));
}

// (sum |x|^p)^(1/p) of each window.
bool tni_onnx_lp_pool(tni_onnx_call *c)
{
    tn_tensor       *x = tni_onnx_in(c, 0), *y;
    tni_onnx_windows w;
    int64_t          extra[3];
    double           p = (double)tni_onnx_attr_int(c, "p", 2);
    if (!x || !tni_onnx_read_windows(c, x, NULL, &w)) return false;
    round_up(&w, x, extra);
    for (int i = 0; i < w.n; i++) w.after[i] += extra[i];
    y = over_taps(window_axes(pad_places(tn_pow_s(tn_abs(x), p), &w, 0), &w), &w, tn_sum_axes);
    return tni_onnx_out(c, 0, tn_pow_s(y, 1 / p));
}

// Pools of all places: a reduction that keeps its axes.
static bool global(tni_onnx_call *c, tn_tensor *(*f)(tn_tensor *, int, const int *, bool))
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int        axes[TN_MAX_RANK];
    if (!x) return false;
    for (int i = 2; i < tn_rank(x); i++) axes[i - 2] = i;
    return tni_onnx_out(c, 0, tn_rank(x) > 2 ? f(x, tn_rank(x) - 2, axes, true) : x);
}

// GlobalAveragePool(x).
bool tni_onnx_global_average_pool(tni_onnx_call *c)
{
    return global(c, tn_mean_axes);
}
// GlobalMaxPool(x).
bool tni_onnx_global_max_pool(tni_onnx_call *c)
{
    return global(c, tn_max_axes);
}

// GlobalLpPool(x; p).
bool tni_onnx_global_lp_pool(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    double     p = (double)tni_onnx_attr_int(c, "p", 2);
    int        axes[TN_MAX_RANK];
    if (!x) return false;
    for (int i = 2; i < tn_rank(x); i++) axes[i - 2] = i;
    return tni_onnx_out(
        c, 0, tn_pow_s(tn_sum_axes(tn_pow_s(tn_abs(x), p), tn_rank(x) - 2, axes, true), 1 / p));
}

// ---- normalizations ----------------------------------------------------------------------------

// In training form the statistics of the batch; momentum weighs the old ones, and the variance is
// that of the batch itself, not of what it was drawn from.
// Momentum weighs the old statistics: 0.9 here is 0.1 in PyTorch. Files of exporters have the
// training form only if they were made for training. A model whose layer is in training normalizes
// by the batch as PyTorch's own layer does.
bool tni_onnx_batch_normalization(tni_onnx_call *c)
{
    if (tni_onnx_value_in(c, 0) && tni_onnx_value_in(c, 0)->normed == c->n)
        return tni_onnx_copy(c, 0, 0);
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *b = tni_onnx_in(c, 2),
              *mean = tni_onnx_in(c, 3), *var = tni_onnx_in(c, 4);
    double eps      = tni_onnx_attr_real(c, "epsilon", 1e-5),
           momentum = tni_onnx_attr_real(c, "momentum", 0.9);
    if (!x || !w || !b || !mean || !var) return false;
    if (c->opset < 14 || !tni_onnx_attr_int(c, "training_mode", 0)) {
        if (c->opset < 9 && !tni_onnx_attr_int(c, "spatial", 1))
            return tni_onnx_refuse(c, "spatial 0 is not supported");
        tn_batch_norm_opts o = { .eps = eps ? eps : TN_ZERO, .training = c->r->training };
        if (o.training) o.momentum = momentum < 1 ? 1 - momentum : TN_ZERO;
        return tni_onnx_out(c, 0, tn_batch_norm(x, mean, var, w, b, o));
    }
    int     axes[TN_MAX_RANK], n = 0;
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(x); i++) {
        size[i] = i == 1 ? tn_size(x, 1) : 1;
        if (i != 1) axes[n++] = i;
    }
    tn_tensor *m = tn_mean_axes(x, n, axes, true), *d = tn_sub(x, m),
              *v      = tn_mean_axes(tn_square(d), n, axes, true);
    tn_tensor *y      = tn_mul(d, tn_rsqrt(tn_add_s(v, eps)));
    int        rank   = tn_rank(x);
    y                 = tn_add(tn_mul(y, tn_reshape(w, rank, size)), tn_reshape(b, rank, size));
    tn_tensor *line_m = tn_reshape(m, TN_SHAPE(-1)), *line_v = tn_reshape(v, TN_SHAPE(-1));
    return tni_onnx_out(c, 0, y) &&
           tni_onnx_out(c, 1, tn_add(tn_mul_s(mean, momentum), tn_mul_s(line_m, 1 - momentum))) &&
           tni_onnx_out(c, 2, tn_add(tn_mul_s(var, momentum), tn_mul_s(line_v, 1 - momentum)));
}

// How many axes, from `axis` on, a norm is over; 0, reported, if there is no such axis.
static int axes_from(tni_onnx_call *c, tn_tensor *x)
{
    int axis = (int)tni_onnx_attr_int(c, "axis", -1);
    if (axis < 0) axis += tn_rank(x);
    if (axis >= 0 && axis < tn_rank(x)) return tn_rank(x) - axis;
    tni_onnx_refuse(c, "axis %d is out of range of x %s", axis, tni_shape_of(x).s);
    return 0;
}

// The mean and the inverse of the deviation are outputs too.
// Scale and bias broadcast: they may have fewer axes than are normalized. Statistics are computed
// in f32.
bool tni_onnx_layer_normalization(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *b = tni_onnx_in(c, 2);
    double     eps = tni_onnx_attr_real(c, "epsilon", 1e-5);
    int        n, axes[TN_MAX_RANK];
    if (!x || !w || (tni_onnx_has(c, 2) && !b) || !(n = axes_from(c, x))) return false;
    bool whole = tn_rank(w) == n;
    for (int i = 0; whole && i < n; i++) whole = tn_size(w, i) == tn_size(x, tn_rank(x) - n + i);
    tn_tensor *y = tn_layer_norm(x, n, whole ? w : NULL, whole ? b : NULL, eps ? eps : TN_ZERO);
    if (!whole) y = b ? tn_add(tn_mul(y, w), b) : tn_mul(y, w);
    if (!tni_onnx_out(c, 0, y)) return false;
    if (c->nout < 2) return true;
    for (int i = 0; i < n; i++) axes[i] = tn_rank(x) - n + i;
    tn_tensor *wide = tn_cast(x, tn_dtype_of(x) == TN_F64 ? TN_F64 : TN_F32),
              *mean = tn_mean_axes(wide, n, axes, true);
    tn_tensor *v    = tn_mean_axes(tn_square(tn_sub(wide, mean)), n, axes, true);
    return tni_onnx_out(c, 1, mean) && tni_onnx_out(c, 2, tn_rsqrt(tn_add_s(v, eps)));
}

// RMSNormalization(x, scale; axis, epsilon).
bool tni_onnx_rms_normalization(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1);
    double     eps = tni_onnx_attr_real(c, "epsilon", 1e-5);
    int        n;
    if (!x || !w || !(n = axes_from(c, x))) return false;
    return tni_onnx_out(c, 0, tn_mul(tn_rms_norm(x, n, NULL, eps ? eps : TN_ZERO), w));
}

// InstanceNormalization(x, scale, b; epsilon): each channel of each item is a group.
bool tni_onnx_instance_normalization(tni_onnx_call *c)
{
    tn_tensor *x   = tni_onnx_in(c, 0);
    double     eps = tni_onnx_attr_real(c, "epsilon", 1e-5);
    return x && tni_onnx_out(c, 0,
                             tn_group_norm(x, tn_size(x, 1), tni_onnx_in(c, 1), tni_onnx_in(c, 2),
                                           eps ? eps : TN_ZERO));
}

// At opset 18 scale and bias are one for each group.
// From opset 21 on they are one for each channel, as in PyTorch.
bool tni_onnx_group_normalization(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *b = tni_onnx_in(c, 2);
    double     eps    = tni_onnx_attr_real(c, "epsilon", 1e-5);
    int64_t    groups = tni_onnx_attr_int(c, "num_groups", 1);
    if (!x || !w || !b || groups < 1) return false;
    if (tn_size(w, 0) == groups && tn_size(x, 1) != groups) {
        int64_t each = tn_size(x, 1) / groups;
        w            = tn_repeat_interleave(w, 1, &each, 0);
        b            = tn_repeat_interleave(b, 1, &each, 0);
    }
    return tni_onnx_out(c, 0, tn_group_norm(x, groups, w, b, eps ? eps : TN_ZERO));
}

// x over (bias + alpha / size * the sum of squares of channels around it) ^ beta.
// Of an even size one channel more is behind the middle than before it.
bool tni_onnx_lrn(tni_onnx_call *c)
{
    tn_tensor *x    = tni_onnx_in(c, 0);
    int64_t    size = tni_onnx_attr_int(c, "size", 1), before[TN_MAX_RANK] = { 0 },
            after[TN_MAX_RANK] = { 0 };
    double alpha = tni_onnx_attr_real(c, "alpha", 1e-4), beta = tni_onnx_attr_real(c, "beta", 0.75),
           bias = tni_onnx_attr_real(c, "bias", 1);
    if (!x) return false;
    if (size < 1 || tn_rank(x) < 2)
        return tni_onnx_refuse(c, "size %lld does not fit x %s", (long long)size,
                               tni_shape_of(x).s);
    before[1]    = (size - 1) / 2;
    after[1]     = size - 1 - before[1];
    tn_tensor *s = tn_sum(tn_window(tn_pad(tn_square(x), before, after, 0), 1, size, 1), -1);
    return tni_onnx_out(
        c, 0, tn_div(x, tn_pow_s(tn_add_s(tn_mul_s(s, alpha / (double)size), bias), beta)));
}

// LpNormalization(x; axis, p): x over its norm, 0 where that is 0.
bool tni_onnx_lp_normalization(tni_onnx_call *c)
{
    tn_tensor *x    = tni_onnx_in(c, 0);
    int        axis = (int)tni_onnx_attr_int(c, "axis", -1);
    tn_tensor *n    = tni_onnx_attr_int(c, "p", 2) == 1 ? tn_sum_keep(tn_abs(x), axis)
                                                        : tn_sqrt(tn_sum_keep(tn_square(x), axis));
    return tni_onnx_out(c, 0, tn_where(tn_eq_s(n, 0), x ? tn_zeros_like(x) : NULL, tn_div(x, n)));
}

// MeanVarianceNormalization(x; axes): of images without axes.
bool tni_onnx_mean_variance_normalization(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    v[TN_MAX_RANK];
    int        n, axes[TN_MAX_RANK] = { 0, 2, 3 };
    if (!x || !tni_onnx_attr_ints(c, "axes", TN_MAX_RANK, v, &n)) return false;
    for (int i = 0; i < n; i++) axes[i] = (int)v[i];
    if (n < 0) n = 3;
    tn_tensor *d = tn_sub(x, tn_mean_axes(x, n, axes, true));
    return tni_onnx_out(
        c, 0, tn_div(d, tn_add_s(tn_sqrt(tn_mean_axes(tn_square(d), n, axes, true)), 1e-9)));
}

// Without training x itself, and a mask of ones.
// The mask is true where an element is kept. Ratio and mode are inputs from opset 12 on.
bool tni_onnx_dropout(tni_onnx_call *c)
{
    tn_tensor *x     = tni_onnx_in(c, 0);
    double     ratio = tni_onnx_attr_real(c, "ratio", 0.5), training = 0;
    int        n;
    if (!x) return false;
    if (c->opset >= 12) {
        if (tni_onnx_has(c, 1) && !tni_onnx_reals(c, 1, 1, &ratio, &n)) return false;
        if (tni_onnx_has(c, 2) && !tni_onnx_reals(c, 2, 1, &training, &n)) return false;
    }
    if (!training || ratio == 0) {
        int64_t size[TN_MAX_RANK];
        for (int i = 0; i < tn_rank(x); i++) size[i] = tn_size(x, i);
        if (c->nout > 1 && !tni_onnx_out(c, 1, tn_ones(c->cx, TN_BOOL, tn_rank(x), size)))
            return false;
        return tni_onnx_copy(c, 0, 0);
    }
    c->cx =
        c->r->cx;  // as in Bernoulli: not on the host, where a repeated run would not draw again
    x               = tni_onnx_in(c, 0);
    tn_tensor *mask = tn_gt_s(tn_rand_like(x), ratio);
    return tni_onnx_out(c, 0,
                        tn_mul_s(tn_mul(x, tn_cast(mask, tn_dtype_of(x))), 1 / (1 - ratio))) &&
           tni_onnx_out(c, 1, mask);
}
