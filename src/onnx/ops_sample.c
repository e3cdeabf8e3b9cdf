// Operators that read an image between its places: regions, grids that are learned, pools undone.
//
// A region of RoiAlign, two cells by two, two samples by two in each cell; every sample is the mean
// of the four places around it, weighed by how near they are:
//
//   +-------+-------+
//   | o   o | o   o |      o   a sample, at (p + (i + 0.5) / 2) * cell for cells p and samples i
//   | o   o | o   o |
//   +-------+-------+      places of the image lie anywhere between
//   | o   o | o   o |
//   | o   o | o   o |
//   +-------+-------+
//
// Coordinates are computed on the device, so that regions which a network finds need not be read.
#include "onnx/onnx_ops.h"

#include <math.h>

// ---- RoiAlign ----------------------------------------------------------------------------------

// Samples along one axis of regions: (R, out * most), where cell p of a region has the samples
// first + (p + (i + 0.5) / count) * size for i below its count.
typedef struct {
    tn_tensor *at;     // coordinates
    tn_tensor *count;  // (R, 1): samples of a cell
    tn_tensor *used;   // 1 where i is below the count, else 0
    int64_t    out, most;
} samples;

// How many samples each cell of a region has: the same number, or by the region's size.
static bool set_samples(tni_onnx_call *c, samples *s, tn_tensor *first, tn_tensor *size,
                        int64_t ratio)
{
    double most = (double)ratio;
    s->count    = ratio > 0 ? tn_full_like(first, most) : tn_maximum_s(tn_ceil(size), 1);
    // The largest number of samples is a size, for which the host waits.
    if (ratio <= 0 && tn_read(tn_max_all(s->count), TN_F64, &most, 1) != TN_OK) return false;
    if (!(most >= 1 && most <= 4096)) return tni_onnx_refuse(c, "a region is out of range");
    s->most      = (int64_t)most;
    tn_tensor *k = tn_arange(c->cx, TN_F32, 0, (double)(s->out * s->most), 1), *i, *p;
    p            = tn_floor(tn_div_s(k, most));
    i            = tn_sub(k, tn_mul_s(p, most));
    s->used      = tn_cast(tn_lt(i, s->count), TN_F32);
    s->at        = tn_add(first, tn_mul(tn_add(p, tn_div(tn_add_s(i, 0.5), s->count)), size));
    return s->at != NULL;
}

// The two places beside a coordinate and their weights; weights are 0 farther than one place
// outside.
static void beside(const samples *s, int64_t n, tn_tensor *at[2], tn_tensor *w[2])
{
    tn_tensor *inside = tn_cast(tn_logical_and(tn_ge_s(s->at, -1), tn_le_s(s->at, (double)n)),
                                TN_F32);
    tn_tensor *x = tn_clamp(s->at, 0, (double)(n - 1)), *low = tn_floor(x);
    at[0]  = tn_cast(low, TN_I64);
    at[1]  = tn_minimum_i64(tn_add_i64(at[0], 1), n - 1);
    inside = tn_mul(inside, s->used);
    w[1]   = tn_mul(tn_sub(x, low), inside);
    w[0]   = tn_mul(tn_rsub_s(tn_sub(x, low), 1), inside);
}

// (R, n) as (R, 1, n, 1) or (R, 1, 1, n).
static tn_tensor *along(tn_tensor *x, bool rows)
{
    return tn_unsqueeze(tn_unsqueeze(x, 1), rows ? 3 : 2);
}

// RoiAlign(x, regions, batches; mode, output_height, output_width, sampling_ratio, spatial_scale,
// coordinate_transformation_mode): the mean, or the maximum, of samples in each cell of a region,
// between four places each. The maximum is over the four places, too, each times its weight.
bool tni_onnx_roi_align(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *roi = tni_onnx_in(c, 1), *batch = tni_onnx_in(c, 2),
              *sum = NULL;
    if (!x || !roi || !batch) return false;
    if (tn_rank(x) != 4 || tn_rank(roi) != 2 || tn_size(roi, 1) != 4 ||
        tn_size(batch, 0) != tn_size(roi, 0))
        return tni_onnx_refuse(c, "x %s, regions %s and batches %s do not fit", tni_shape_of(x).s,
                               tni_shape_of(roi).s, tni_shape_of(batch).s);
    bool half = c->opset >= 16 &&
                !tni_onnx_attr_is(c, "coordinate_transformation_mode", "output_half_pixel", false),
         max      = tni_onnx_attr_is(c, "mode", "max", false);
    double  scale = tni_onnx_attr_real(c, "spatial_scale", 1);
    int64_t N = tn_size(x, 0), C = tn_size(x, 1), H = tn_size(x, 2), W = tn_size(x, 3),
            R = tn_size(roi, 0), ratio = tni_onnx_attr_int(c, "sampling_ratio", 0);
    tn_dtype dt   = tn_dtype_of(x);
    samples  s[2] = { { .out = tni_onnx_attr_int(c, "output_height", 1) },
                      { .out = tni_onnx_attr_int(c, "output_width", 1) } };
    if (s[0].out < 1 || s[1].out < 1 || s[0].out > 4096 || s[1].out > 4096)
        return tni_onnx_refuse(c, "its output sizes are out of range");
    roi = tn_add_s(tn_mul_s(tn_cast(roi, TN_F32), scale), half ? -0.5 : 0);
    tn_tensor *at[2][2], *w[2][2];
    for (int i = 0; i < 2; i++) {
        tn_tensor *first = tn_slice(roi, 1, 1 - i, 2 - i, 1),
                  *last = tn_slice(roi, 1, 3 - i, 4 - i, 1), *size = tn_sub(last, first);
        if (!half) size = tn_maximum_s(size, 1);
        if (!set_samples(c, &s[i], first, tn_div_s(size, (double)s[i].out), ratio)) return false;
        beside(&s[i], i ? W : H, at[i], w[i]);
    }
    // One line of places for each channel, with all images in it.
    tn_tensor *line = tn_reshape(N == 1 ? x : tn_contiguous(tn_transpose(x, 0, 1)),
                                 TN_SHAPE(1, C, N * H * W)),
              *start = tn_reshape(tn_mul_i64(tn_cast(batch, TN_I64), H * W), TN_SHAPE(R, 1, 1, 1));
    int64_t P = s[0].out * s[0].most, Q = s[1].out * s[1].most;
    for (int i = 0; i < 4; i++) {
        tn_tensor *place = tn_add(tn_add(start, tn_mul_i64(along(at[0][i / 2], true), W)),
                                  along(at[1][i % 2], false));
        place            = tn_reshape(place, TN_SHAPE(R, 1, P * Q));
        tn_tensor *v     = tn_reshape(tn_take_along_axis(line, place, 2), TN_SHAPE(R, C, P, Q));
        v = tn_mul(tn_cast(v, TN_F32), tn_mul(along(w[0][i / 2], true), along(w[1][i % 2], false)));
        sum = !sum ? v : max ? tn_maximum(sum, v) : tn_add(sum, v);
    }
    sum = tn_reshape(sum, TN_SHAPE(R, C, s[0].out, s[0].most, s[1].out, s[1].most));
    if (max) return tni_onnx_out(c, 0, tn_cast(tn_max_axes(sum, 2, (int[]){ 3, 5 }, false), dt));
    tn_tensor *count = tn_reshape(tn_mul(s[0].count, s[1].count), TN_SHAPE(R, 1, 1, 1));
    return tni_onnx_out(c, 0,
                        tn_cast(tn_div(tn_sum_axes(sum, 2, (int[]){ 3, 5 }, false), count), dt));
}

// ---- DeformConv --------------------------------------------------------------------------------

// Coordinates, in -1 .. 1 over n places, of every tap and place: (taps of both axes, out...) plus
// the offsets of an axis.
static tn_tensor *tap_places(tn_tensor *offset, const tni_onnx_windows *k, int i,
                             const int64_t *out, int64_t n)
{
    int64_t shape[4] = { 1, 1, 1, 1 }, steps[4] = { 1, 1, 1, 1 };
    shape[i]       = k->kernel[i];
    steps[2 + i]   = out[i];
    tn_ctx    *cx  = tn_ctx_of(offset);
    tn_dtype   dt  = tn_dtype_of(offset);
    tn_tensor *tap = tn_reshape(tn_arange(cx, dt, 0, (double)k->kernel[i], 1), 4, shape),
              *at  = tn_reshape(tn_arange(cx, dt, 0, (double)out[i], 1), 4, steps);
    at             = tn_add_s(tn_mul_s(at, (double)k->stride[i]), -(double)k->before[i]);
    at             = tn_add(at, tn_mul_s(tap, (double)k->dilation[i]));
    return tn_add_s(tn_div_s(tn_add_s(tn_mul_s(tn_add(at, offset), 2), 1), (double)n), -1);
}

// DeformConv(x, w, offset, b, mask): a convolution of an image whose taps are moved, each at each
// place, by offsets, and weighed by a mask. Offsets are (N, groups * kh * kw * 2, H', W'), rows
// before columns. The image is sampled on a grid of (taps * H', W') places; the rest is a product.
bool tni_onnx_deform_conv(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *offset = tni_onnx_in(c, 2),
              *b = tni_onnx_in(c, 3), *mask = tni_onnx_in(c, 4);
    int64_t g = tni_onnx_attr_int(c, "group", 1), og = tni_onnx_attr_int(c, "offset_group", 1);
    tni_onnx_windows k;
    if (!x || !w || !offset || !tni_onnx_read_windows(c, x, w, &k)) return false;
    if (k.n != 2 || g < 1 || og < 1 || tn_rank(offset) != 4)
        return tni_onnx_refuse(c, "x %s and offset %s do not fit", tni_shape_of(x).s,
                               tni_shape_of(offset).s);
    int64_t N = tn_size(x, 0), C = tn_size(x, 1), H = tn_size(x, 2), W = tn_size(x, 3),
            M = tn_size(w, 0), out[2] = { tn_size(offset, 2), tn_size(offset, 3) },
            K = k.kernel[0] * k.kernel[1], P = out[0] * out[1];
    tn_tensor *o = tn_reshape(offset,
                              TN_SHAPE(N * og, k.kernel[0], k.kernel[1], 2, out[0], out[1])),
              *grid[2];
    for (int i = 0; i < 2; i++) grid[1 - i] = tap_places(tn_select(o, 3, i), &k, i, out, i ? W : H);
    tn_tensor *at = tn_reshape(tn_stack(2, grid, -1), TN_SHAPE(N * og, K * out[0], out[1], 2)),
              *v  = tn_grid_sample(tn_reshape(x, TN_SHAPE(N * og, C / og, H, W)), at,
                                   (tn_grid_opts){ .border = TN_BORDER_ZEROS });
    v             = tn_reshape(v, TN_SHAPE(N, og, C / og, K, P));
    if (mask) v = tn_mul(v, tn_reshape(mask, TN_SHAPE(N, og, 1, K, P)));
    v            = tn_reshape(v, TN_SHAPE(N, g, C / g * K, P));
    tn_tensor *y = tn_matmul(tn_reshape(w, TN_SHAPE(g, M / g, C / g * K)), v);
    y            = tn_reshape(y, TN_SHAPE(N, M, out[0], out[1]));
    return tni_onnx_out(c, 0, b ? tn_add(y, tn_reshape(b, TN_SHAPE(M, 1, 1))) : y);
}

// ---- MaxUnpool ---------------------------------------------------------------------------------

// MaxUnpool(x, places, shape; kernel_shape, strides, pads): zeros but for x at places of all
// elements in one line, as MaxPool gives them. The line is that of the sizes that follow from the
// windows; a larger shape has it at its start.
bool tni_onnx_max_unpool(tni_onnx_call *c)
{
    tn_tensor       *x = tni_onnx_in(c, 0), *at = tni_onnx_in(c, 1), *y;
    tni_onnx_windows k;
    int64_t          size[5], to[5], count = 1, before[5] = { 0 }, after[5] = { 0 };
    int              n;
    if (!x || !at || !tni_onnx_read_windows(c, x, NULL, &k) || !tni_onnx_ints(c, 2, 5, to, &n))
        return false;
    for (int i = 0; i < tn_rank(x); i++) {
        size[i] = tn_size(x, i);
        if (i > 1)
            size[i] = (size[i] - 1) * k.stride[i - 2] + k.kernel[i - 2] - k.before[i - 2] -
                      k.after[i - 2];
        if (size[i] < 0 || __builtin_mul_overflow(count, size[i], &count))
            return tni_onnx_refuse(c, "its windows do not fit x %s", tni_shape_of(x).s);
    }
    y = tn_scatter(tn_zeros(c->cx, tn_dtype_of(x), TN_SHAPE(count)), 0,
                   tn_reshape(at, TN_SHAPE(-1)), tn_reshape(x, TN_SHAPE(-1)));
    y = tn_reshape(y, tn_rank(x), size);
    if (n != tn_rank(x)) return tni_onnx_out(c, 0, y);
    for (int i = 0; i < n; i++) after[i] = to[i] - size[i];
    return tni_onnx_out(c, 0, tn_pad(y, before, after, 0));
}
