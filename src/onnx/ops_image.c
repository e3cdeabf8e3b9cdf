// Operators of images: resizing, sampling on a grid.
//
// An axis of 2 places that becomes one of 4, half_pixel and linear:
//
//   new place     0      1      2      3
//   coordinate   -0.25   0.25   0.75   1.25
//   taps          0, 0   0, 1   0, 1   1, 1       outside counts as the edge
//   weights              3/4, 1/4  1/4, 3/4
//
// Sizes are known when the op is recorded, so that taps and weights are made on the host, and the
// device gathers.
#include "onnx/onnx_ops.h"
#include "ops/composite.h"

#include <math.h>

// ---- Resize ------------------------------------------------------------------------------------

typedef enum {
    HALF_PIXEL,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    CROP,
    SYMMETRIC,
    TF_HALF_PIXEL
} coordinate;

// How one axis of n places becomes one of m. Coordinates are computed in f32, as other programs do:
// where a place lies between two others decides by its last bit.
typedef struct {
    int64_t    n, m;
    double     scale, first, last;  // first and last: of a region, for CROP
    coordinate how;
    int        taps;  // 1, 2 or 4 without antialias
    bool       by_size, cubic, antialias, exclude;
    tni_wire   nearest;
    double     a;  // of the cubic
    int64_t   *at;
    double    *w;
    bool      *outside;  // of CROP: places that have no source
} axis_plan;

// The coordinate among old places that new place i shows, by the rules of the standard; x is i, s
// the scale:
//
//   half_pixel            (x + 0.5) / s - 0.5      middles of places lie on middles
//   pytorch_half_pixel    the same, 0 if there is one place
//   align_corners         x (n - 1) / (m - 1)      first and last places stay
//   asymmetric            x / s                    first places stay
//   tf_crop_and_resize    within a region, given in parts of the old axis
//   half_pixel_symmetric  half_pixel, shifted so that a cut place is missing on both sides alike
static double source_of(const axis_plan *p, int64_t i)
{
    float x = (float)i, s = (float)p->scale, n = (float)p->n, m = (float)p->m,
          all = p->by_size ? m : n * s;
    switch (p->how) {
    case PYTORCH_HALF_PIXEL: return m > 1 ? (x + 0.5f) / s - 0.5f : 0;
    case ALIGN_CORNERS: return all > 1 ? x * (n - 1) / (all - 1) : 0;
    case ASYMMETRIC: return x / s;
    case TF_HALF_PIXEL: return (x + 0.5f) / s;
    case CROP:
        return m > 1 ? p->first * (n - 1) + x * (p->last - p->first) * (n - 1) / (m - 1)
                     : 0.5 * (p->first + p->last) * (n - 1);
    case SYMMETRIC: {
        float fraction = m / (s * n), center = n / 2, offset = center * (1 - fraction);
        return offset + (x + 0.5f) / s - 0.5f;
    }
    default: return (x + 0.5f) / s - 0.5f;
    }
}

// Halves go down by default, and up with round_prefer_ceil.
static int64_t nearest_place(const axis_plan *p, double x)
{
    if (tni_wire_is(p->nearest, "floor")) return (int64_t)floor(x);
    if (tni_wire_is(p->nearest, "ceil")) return (int64_t)ceil(x);
    if (tni_wire_is(p->nearest, "round_prefer_ceil")) return (int64_t)floor(x + 0.5);
    return (int64_t)ceil(x - 0.5);
}

// The cubic of Keys at distance t.
static double cubic_at(double t, double a)
{
    t = fabs(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

// Taps and weights of new place i. An old place outside counts as the one at the edge, or with
// `exclude` for nothing. Weights of a filter that is cut at the edge are scaled to add up to 1.
static void set_place(axis_plan *p, int64_t i)
{
    double   x = source_of(p, i), wide = p->antialias && p->scale < 1 ? 1 / p->scale : 1, sum = 0;
    int64_t *at    = p->at + i * p->taps;
    double  *w     = p->w + i * p->taps;
    int64_t  first = (int64_t)floor(x) - p->taps / 2 + 1;
    p->outside[i]  = p->how == CROP && (x < 0 || x > (double)(p->n - 1));
    if (p->taps == 1) first = nearest_place(p, x);
    for (int k = 0; k < p->taps; k++) {
        double  t = (x - (double)(first + k)) / wide;
        int64_t j = first + k;
        w[k]      = p->taps == 1 ? 1 : p->cubic ? cubic_at(t, p->a) : fabs(t) < 1 ? 1 - fabs(t) : 0;
        if (p->exclude && (j < 0 || j >= p->n)) w[k] = 0;
        at[k] = j < 0 ? 0 : j >= p->n ? p->n - 1 : j;
        sum += w[k];
    }
    for (int k = 0; (p->exclude || p->antialias) && k < p->taps; k++) w[k] /= sum;
}

// Resizes one axis. Antialias widens the filter by as much as the axis shrinks, which takes more
// taps. Places outside a region have one value.
static tn_tensor *resize_axis(tni_onnx_call *c, tn_tensor *x, int axis, axis_plan p, double outside)
{
    double wide = p.antialias && p.scale < 1 ? 1 / p.scale : 1;
    if (p.taps > 1) p.taps = (int)ceil((p.cubic ? 2 : 1) * wide) * 2;
    if (p.m < 1 || p.m > INT32_MAX || p.n < 1)
        return tni_onnx_refuse(c, "axis %d of x %s cannot have %lld places", axis,
                               tni_shape_of(x).s, (long long)p.m),
               NULL;
    size_t room = (size_t)(p.m * p.taps);
    p.at        = tni_alloc(&x->cx->heap, room * 16 + (size_t)p.m);
    if (!p.at) return tni_fail_memory(c->r->cx, "Resize");
    p.w       = (double *)(p.at + room);
    p.outside = (bool *)(p.w + room);
    bool any  = false;
    for (int64_t i = 0; i < p.m; i++) {
        set_place(&p, i);
        any |= p.outside[i];
    }
    tn_tensor *y = tni_gather_taps(x, axis, p.m, p.taps, p.at, p.w);
    if (y && any) {
        tn_tensor *mask = tn_from(x->cx, TN_BOOL, TN_SHAPE(p.m), p.outside);
        for (int i = axis + 1; i < tn_rank(x); i++) mask = tn_unsqueeze(mask, -1);
        y = tn_where(mask, tn_full_like(y, outside), y);
    }
    tni_free(&x->cx->heap, p.at);
    return y;
}

// Before opset 11 there was no choice.
static coordinate coordinate_of(tni_onnx_call *c)
{
    static const char *const names[] = { "half_pixel",          "pytorch_half_pixel",
                                         "align_corners",       "asymmetric",
                                         "tf_crop_and_resize",  "half_pixel_symmetric",
                                         "tf_half_pixel_for_nn" };
    tni_wire                 t       = tni_onnx_attr_text(c, "coordinate_transformation_mode");
    for (int i = 0; i < 7; i++)
        if (tni_wire_is(t, names[i])) return (coordinate)i;
    return c->opset < 11 ? ASYMMETRIC : HALF_PIXEL;
}

// The scale of each axis that is resized, from sizes that may keep their ratio.
// not_larger takes the smallest scale, not_smaller the largest, for all axes.
static void scales_of_sizes(tni_onnx_call *c, tn_tensor *x, int n, const int *axis, int64_t *size,
                            double *scale)
{
    tni_wire policy = tni_onnx_attr_text(c, "keep_aspect_ratio_policy");
    double   one    = 0;
    for (int i = 0; i < n; i++) {
        scale[i] = (double)size[i] / (double)tn_size(x, axis[i]);
        if (i == 0 || (tni_wire_is(policy, "not_larger") ? scale[i] < one : scale[i] > one))
            one = scale[i];
    }
    if (!tni_wire_is(policy, "not_larger") && !tni_wire_is(policy, "not_smaller")) return;
    for (int i = 0; i < n; i++) {
        scale[i] = one;
        size[i]  = (int64_t)floor(one * (double)tn_size(x, axis[i]) + 0.5);
    }
}

// Inputs: x, scales at opset 10; x, roi, scales, sizes from 11 on. Upsample is the first of these
// with nothing but scales. With scales, the scale that is given enters the coordinates, though the
// size is rounded down and would give another one. Sizes and scales are of all axes, or of those in
// the attribute axes; an axis of scale 1 stays as it is.
bool tni_onnx_resize(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *y;
    double     scale[TN_MAX_RANK], roi[2 * TN_MAX_RANK];
    int64_t    size[TN_MAX_RANK], axes[TN_MAX_RANK];
    int        n, m, rois, axis[TN_MAX_RANK], old = c->opset < 11;
    if (!x) return false;
    if (c->opset < 9) {
        if (!tni_onnx_attr_reals(c, "scales", TN_MAX_RANK, scale, &n)) return false;
        m = rois = -1;
    } else if (!tni_onnx_reals(c, old ? 1 : 2, TN_MAX_RANK, scale, &n) ||
               (!old && !tni_onnx_ints(c, 3, TN_MAX_RANK, size, &m)) ||
               (!old && !tni_onnx_reals(c, 1, 2 * TN_MAX_RANK, roi, &rois)))
        return false;
    if (old) m = rois = -1;
    int some;
    if (!tni_onnx_attr_ints(c, "axes", TN_MAX_RANK, axes, &some)) return false;
    int count = some >= 0 ? some : tn_rank(x);
    for (int i = 0; i < count; i++)
        axis[i] = some < 0 ? i : (int)(axes[i] < 0 ? axes[i] + tn_rank(x) : axes[i]);
    for (int i = 0; i < count; i++)
        if (axis[i] < 0 || axis[i] >= tn_rank(x))
            return tni_onnx_refuse(c, "an axis is out of range of x %s", tni_shape_of(x).s);
    bool by_size = m > 0;
    if ((by_size ? m : n) != count)
        return tni_onnx_refuse(c, "scales or sizes do not fit x %s", tni_shape_of(x).s);
    if (by_size) scales_of_sizes(c, x, count, axis, size, scale);
    tni_wire  mode = tni_onnx_attr_text(c, "mode");
    axis_plan p    = { .how       = coordinate_of(c),
                       .taps      = !tni_wire_size(mode) || tni_wire_is(mode, "nearest") ? 1 : 2,
                       .cubic     = tni_wire_is(mode, "cubic"),
                       .antialias = tni_onnx_attr_int(c, "antialias", 0) != 0,
                       .exclude   = tni_onnx_attr_int(c, "exclude_outside", 0) != 0,
                       .nearest   = tni_onnx_attr_text(c, "nearest_mode"),
                       .a         = tni_onnx_attr_real(c, "cubic_coeff_a", -0.75) };
    // Of opset 10 the nearest place is the one below.
    static const unsigned char below[] = "floor";
    if (old) p.nearest = (tni_wire){ below, below + 5 };
    y = p.taps > 1 && !tni_is_float(tn_dtype_of(x)) ? tn_cast(x, TN_F32) : tni_widen(x);
    for (int i = 0; y && i < count; i++) {
        p.n       = tn_size(x, axis[i]);
        p.scale   = scale[i];
        p.by_size = by_size;
        p.m       = by_size ? size[i] : (int64_t)floor((double)p.n * scale[i]);
        p.first   = rois == 2 * count ? roi[i] : 0;
        p.last    = rois == 2 * count ? roi[count + i] : 1;
        if (p.m == p.n && p.scale == 1 && p.how != CROP) continue;
        y = resize_axis(c, y, axis[i], p, tni_onnx_attr_real(c, "extrapolation_value", 0));
    }
    if (y && !tni_is_float(tn_dtype_of(x)) && p.taps > 1) y = tn_round(y);
    return tni_onnx_out(c, 0, y ? tn_cast(y, tn_dtype_of(x)) : NULL);
}

// ---- grids -------------------------------------------------------------------------------------

// AffineGrid(theta, size; align_corners): coordinates for GridSample, of two or three axes.
bool tni_onnx_affine_grid(tni_onnx_call *c)
{
    tn_tensor *theta = tni_onnx_in(c, 0);
    int64_t    size[5];
    int        n;
    bool       corners = tni_onnx_attr_int(c, "align_corners", 0) != 0;
    if (!theta || !tni_onnx_ints(c, 1, 5, size, &n)) return false;
    if (n == 4) return tni_onnx_out(c, 0, tn_affine_grid(theta, size[2], size[3], corners));
    if (n != 5) return tni_onnx_refuse(c, "size has %d numbers", n);
    // Three axes: coordinates (x, y, z, 1) of every place times theta.
    tn_tensor *p[4];
    int64_t    places = size[2] * size[3] * size[4], shape[3] = { size[2], size[3], size[4] };
    for (int i = 0; i < 3; i++) {
        int64_t    k = shape[2 - i], line[3] = { 1, 1, 1 };
        double     edge = corners ? 1 : 1 - 1.0 / (double)k;
        tn_tensor *v    = tn_linspace(c->cx, tn_dtype_of(theta), -edge, edge, k);
        line[2 - i]     = k;
        p[i]            = tn_reshape(tn_expand(tn_reshape(v, 3, line), 3, shape), TN_SHAPE(places));
    }
    p[3]            = tn_ones(c->cx, tn_dtype_of(theta), TN_SHAPE(places));
    tn_tensor *grid = tn_matmul(tn_stack(4, p, 1), tn_transpose(theta, 1, 2));
    return tni_onnx_out(c, 0, tn_reshape(grid, TN_SHAPE(size[0], size[2], size[3], size[4], 3)));
}

// GridSample(x, grid; mode, padding_mode, align_corners). The modes were renamed in opset 20.
bool tni_onnx_grid_sample(tni_onnx_call *c)
{
    tni_wire     mode = tni_onnx_attr_text(c, "mode"), pad = tni_onnx_attr_text(c, "padding_mode");
    tn_tensor   *x = tni_onnx_in(c, 0);
    tn_grid_opts o = { .nearest       = tni_wire_is(mode, "nearest"),
                       .align_corners = tni_onnx_attr_int(c, "align_corners", 0) != 0,
                       .border        = tni_wire_is(pad, "border")       ? TN_BORDER_REPLICATE
                                        : tni_wire_is(pad, "reflection") ? TN_BORDER_REFLECT
                                                                         : TN_BORDER_ZEROS };
    o.cubic        = tni_wire_is(mode, "cubic") || tni_wire_is(mode, "bicubic");
    return tni_onnx_out(c, 0, tn_grid_sample(x, tni_onnx_in(c, 1), o));
}
