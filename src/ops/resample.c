// Images and other tensors (N, C, places...) at other places: padding with what is there, resizing,
// sampling on a grid, windows as columns. Elements are gathered by an index that the host makes,
// times weights where there are several for one result, so that gradients are scatters.
#include "ops/composite.h"

// ---- padding with elements of x ----------------------------------------------------------------

typedef enum { REFLECT, REPLICATE, CIRCULAR } border;

// The place that place i, which may be outside, shows.
static int64_t shown(border how, int64_t i, int64_t n)
{
    if (how == REPLICATE) return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (how == CIRCULAR) return (i % n + n) % n;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

static tn_tensor *pad_axis(const char *op, tn_tensor *x, int axis, int64_t before, int64_t after,
                           border how)
{
    int64_t n = tn_size(x, axis), count = n + before + after,
            most = before > after ? before : after;
    if (before == 0 && after == 0) return x;
    if (count < 0 || (count > 0 && n == 0) || (how == REFLECT && most >= n) ||
        (how == CIRCULAR && most > n))
        return tni_fail(x->cx, TN_ESHAPE, "%s: %lld and %lld places at axis %d of x %s", op,
                        (long long)before, (long long)after, axis, tni_shape_of(x).s);
    int64_t *at = tni_alloc(&x->cx->heap, (size_t)(count + 1) * sizeof *at);
    if (!at) return tni_fail_memory(x->cx, op);
    for (int64_t i = 0; i < count; i++) at[i] = shown(how, i - before, n);
    tn_tensor *y = tn_index_select(x, axis, tn_from(x->cx, TN_I64, 1, &count, at));
    tni_free(&x->cx->heap, at);
    return y;
}

static tn_tensor *pad_shown(const char *op, tn_tensor *x, const int64_t *before,
                            const int64_t *after, border how)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx) return NULL;
    if (!before || !after) return tni_fail(cx, TN_EARG, "%s: before or after is NULL", op);
    int rank = tn_rank(x);
    for (int i = 0; i < rank && x; i++) x = pad_axis(op, x, i, before[i], after[i], how);
    return x ? tni_share(x, op) : NULL;
}

tn_tensor *tn_pad_reflect(tn_tensor *x, const int64_t *before, const int64_t *after)
{
    return pad_shown("pad_reflect", x, before, after, REFLECT);
}

tn_tensor *tn_pad_replicate(tn_tensor *x, const int64_t *before, const int64_t *after)
{
    return pad_shown("pad_replicate", x, before, after, REPLICATE);
}

tn_tensor *tn_pad_circular(tn_tensor *x, const int64_t *before, const int64_t *after)
{
    return pad_shown("pad_circular", x, before, after, CIRCULAR);
}

// ---- resizing ----------------------------------------------------------------------------------

// How an axis of n places becomes one of m: each new place is the sum of `taps` old ones,
// at[m][taps] with weights w[m][taps].
typedef struct {
    int64_t  n, m;
    int      taps;
    double   step;  // old places for one new
    int64_t *at;
    double  *w;
} resizing;

// The cubic of Keys; a is -0.75 in plain resizing and -0.5 with antialiasing, as in PyTorch and
// PIL.
static double cubic(double t, double a)
{
    t = fabs(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

static double filter(tn_interpolation mode, double t)
{
    if (mode == TN_INTERPOLATE_CUBIC) return cubic(t, -0.5);
    return fabs(t) < 1 ? 1 - fabs(t) : 0;
}

// Half the width of the filter of an antialiased axis.
static double support(const resizing *r, tn_interpolation mode)
{
    return (mode == TN_INTERPOLATE_CUBIC ? 2 : 1) * fmax(r->step, 1);
}

static int count_taps(const resizing *r, tn_interpolate_opts o)
{
    if (o.mode == TN_INTERPOLATE_AREA) return (int)(r->n / r->m + 2);
    if (o.antialias) return (int)ceil(support(r, o.mode)) * 2 + 1;
    return o.mode == TN_INTERPOLATE_LINEAR ? 2 : o.mode == TN_INTERPOLATE_CUBIC ? 4 : 1;
}

// Places first .. last - 1, weighed by the filter around the middle, or alike; the weights add up
// to 1.
static void set_range(const resizing *r, int64_t i, int64_t first, int64_t last,
                      tn_interpolate_opts o)
{
    double sum = 0, middle = r->step * ((double)i + 0.5), wide = fmax(r->step, 1);
    for (int k = 0; k < r->taps; k++) {
        int64_t at             = first + k;
        double  w              = o.mode == TN_INTERPOLATE_AREA
                                     ? 1
                                     : filter(o.mode, ((double)at - middle + 0.5) / wide);
        r->at[i * r->taps + k] = at < last ? at : last - 1;
        r->w[i * r->taps + k]  = at < last ? w : 0;
        sum += at < last ? w : 0;
    }
    for (int k = 0; k < r->taps; k++) r->w[i * r->taps + k] /= sum;
}

// The taps of new place i.
static void set_taps(const resizing *r, int64_t i, tn_interpolate_opts o)
{
    int64_t *at = r->at + i * r->taps;
    double  *w = r->w + i * r->taps, x = (double)i;
    x = o.align_corners ? x * r->step : (x + 0.5) * r->step - 0.5;
    switch (o.mode) {
    case TN_INTERPOLATE_NEAREST:
        // PyTorch computes it in f32, which decides where a product is close to an integer.
        at[0] = shown(REPLICATE, (int64_t)floorf((float)i * (float)r->step), r->n);
        w[0]  = 1;
        return;
    case TN_INTERPOLATE_AREA:
        set_range(r, i, i * r->n / r->m, ((i + 1) * r->n + r->m - 1) / r->m, o);
        return;
    case TN_INTERPOLATE_LINEAR:
        if (o.antialias) break;
        x     = fmax(x, 0);
        at[0] = shown(REPLICATE, (int64_t)x, r->n);
        at[1] = shown(REPLICATE, at[0] + 1, r->n);
        w[1]  = x - (double)at[0];
        w[0]  = 1 - w[1];
        return;
    default:
        if (o.antialias) break;
        for (int k = 0; k < 4; k++) {
            double from = floor(x) - 1 + k;
            at[k]       = shown(REPLICATE, (int64_t)from, r->n);
            w[k]        = cubic(x - from, -0.75);
        }
        return;
    }
    double  middle = r->step * ((double)i + 0.5), half = support(r, o.mode);
    int64_t first = (int64_t)fmax(middle - half + 0.5, 0), last = (int64_t)(middle + half + 0.5);
    set_range(r, i, first, last < r->n ? last : r->n, o);
}

tn_tensor *tni_gather_taps(tn_tensor *x, int axis, int64_t m, int taps, const int64_t *at,
                           const double *weights)
{
    tni_view   v     = tni_layout(x);
    int64_t    count = m * taps, size[TN_MAX_RANK + 1], wide[TN_MAX_RANK + 1];
    tn_tensor *y     = tn_index_select(x, axis, tn_from(x->cx, TN_I64, 1, &count, at));
    if (taps == 1 || !y) return y;
    for (int i = 0; i <= v.rank; i++) {
        int64_t n = i <= axis ? v.size[i] : i == axis + 1 ? taps : v.size[i - 1];
        size[i]   = i == axis ? m : n;
        wide[i]   = i == axis || i == axis + 1 ? size[i] : 1;
    }
    tn_tensor *w = tn_cast(tn_from(x->cx, TN_F64, 1, &count, weights), tn_dtype_of(x));
    y            = tn_mul(tn_reshape(y, v.rank + 1, size), tn_reshape(w, v.rank + 1, wide));
    return tn_sum(y, axis + 1);
}

static tn_tensor *resize_axis(tn_tensor *x, int axis, int64_t m, double scale,
                              tn_interpolate_opts o)
{
    int64_t  n = tn_size(x, axis);
    resizing r = { .n = n, .m = m, .step = scale > 0 ? 1 / scale : (double)n / (double)m };
    if (o.align_corners) r.step = m > 1 ? (double)(n - 1) / (double)(m - 1) : 0;
    r.taps      = count_taps(&r, o);
    size_t room = (size_t)(m * r.taps);
    r.at        = tni_alloc(&x->cx->heap, room * (sizeof *r.at + sizeof *r.w));
    if (!r.at) return tni_fail_memory(x->cx, "interpolate");
    r.w = (double *)(r.at + room);
    for (int64_t i = 0; i < m; i++) set_taps(&r, i, o);
    tn_tensor *y = tni_gather_taps(x, axis, m, r.taps, r.at, r.w);
    tni_free(&x->cx->heap, r.at);
    return y;
}

// Axis by axis: all filters are products of those of the axes.
tn_tensor *tn_interpolate(tn_tensor *x, int n, const int64_t *size, tn_interpolate_opts o)
{
    tn_ctx *cx = tni_arg1("interpolate", x, "x");
    if (!cx || !tni_want_float(x, "interpolate")) return NULL;
    if (n < 1 || n > 3 || tn_rank(x) != n + 2 || !size)
        return tni_fail(cx, TN_ESHAPE, "interpolate: %d sizes for x %s", n, tni_shape_of(x).s);
    bool smooth = o.mode == TN_INTERPOLATE_LINEAR || o.mode == TN_INTERPOLATE_CUBIC;
    if ((int)o.mode < 0 || o.mode > TN_INTERPOLATE_AREA ||
        ((o.align_corners || o.antialias) && !smooth))
        return tni_fail(cx, TN_EARG,
                        "interpolate: align_corners and antialias are for linear and cubic");
    for (int i = 0; i < n; i++)
        if (size[i] < 1 || size[i] > INT32_MAX || tn_size(x, 2 + i) < 1)
            return tni_fail(cx, TN_ESHAPE, "interpolate: size %lld of axis %d of x %s",
                            (long long)size[i], 2 + i, tni_shape_of(x).s);
    tn_tensor *y = tni_widen(x);
    for (int i = 0; i < n && y; i++)
        if (size[i] != tn_size(x, 2 + i) || o.scale[i] != 0)
            y = resize_axis(y, 2 + i, size[i], o.scale[i], o);
    y = tni_narrow(y, tn_dtype_of(x));
    return y == x ? tni_share(x, "interpolate") : y;
}

// ---- sampling on a grid ------------------------------------------------------------------------

// The n coordinates of an axis from -1 to 1: of its ends, or of the middles of its first and last
// place.
static tn_tensor *coordinates(tn_ctx *cx, tn_dtype dt, int64_t n, bool align_corners)
{
    double end = align_corners ? (n > 1 ? 1 : 0) : (double)(n - 1) / (double)n;
    return tn_linspace(cx, dt, -end, end, n);
}

// The places as rows (x, y, 1), times the transposed maps.
tn_tensor *tn_affine_grid(tn_tensor *theta, int64_t height, int64_t width, bool align_corners)
{
    tn_ctx *cx = tni_arg1("affine_grid", theta, "theta");
    if (!cx || !tni_want_float(theta, "affine_grid")) return NULL;
    if (tn_rank(theta) != 3 || tn_size(theta, 1) != 2 || tn_size(theta, 2) != 3 || height < 1 ||
        width < 1)
        return tni_fail(cx, TN_ESHAPE,
                        "affine_grid: theta %s, not (N, 2, 3), for %lld x %lld places",
                        tni_shape_of(theta).s, (long long)height, (long long)width);
    tn_dtype   dt   = tn_dtype_of(tni_widen(theta));
    tn_tensor *x    = tn_expand(coordinates(cx, dt, width, align_corners), TN_SHAPE(height, width));
    tn_tensor *y    = tn_expand(tn_unsqueeze(coordinates(cx, dt, height, align_corners), 1),
                                TN_SHAPE(height, width));
    tn_tensor *at   = tn_stack(3, (tn_tensor *const[]){ x, y, tn_ones_like(x) }, 2);
    tn_dtype   mode = cx->autocast;
    cx->autocast    = TN_F32;  // places in 8 bits would be off by pixels
    at              = tn_matmul(tn_reshape(at, TN_SHAPE(height * width, 3)),
                                tn_transpose(tni_widen(theta), 1, 2));
    cx->autocast    = mode;
    return tni_narrow(tn_reshape(at, TN_SHAPE(tn_size(theta, 0), height, width, 2)),
                      tn_dtype_of(theta));
}

// What one axis of a coordinate is made of: whole places, and the weight of each; NULL of a single
// one.
typedef struct {
    int        count;
    tn_tensor *at[4], *w[4];
} taps;

// Coordinates in -1 .. 1 as places 0 .. n - 1.
static tn_tensor *to_places(tn_tensor *g, int64_t n, tn_grid_opts o)
{
    return o.align_corners ? tn_mul_s(tn_add_s(g, 1), (double)(n - 1) / 2)
                           : tn_add_s(tn_mul_s(tn_add_s(g, 1), (double)n / 2), -0.5);
}

// Places beyond the ends as the border says.
static tn_tensor *inside(tn_tensor *x, int64_t n, tn_grid_opts o)
{
    double lo = o.align_corners ? 0 : -0.5, span = o.align_corners ? (double)(n - 1) : (double)n;
    if (o.border == TN_BORDER_REFLECT) {
        // Back and forth between the ends: the distance from the nearest even one.
        if (span <= 0) return tn_zeros_like(x);
        x                = tn_abs(tn_sub_s(x, lo));
        tn_tensor *turns = tn_mul_s(tn_round(tn_div_s(x, 2 * span)), 2 * span);
        x                = tn_add_s(tn_abs(tn_sub(x, turns)), lo);
    }
    return o.border == TN_BORDER_ZEROS ? x : tn_clamp(x, 0, (double)(n - 1));
}

// The cubic of Keys with a = -0.75 at distance t, below 1 (near) or from 1 to 2.
static tn_tensor *cubic_weight(tn_tensor *t, bool near)
{
    if (near) return tn_add_s(tn_mul(tn_mul(tn_sub_s(tn_mul_s(t, 1.25), 2.25), t), t), 1);
    tn_tensor *w = tn_add_s(tn_mul(tn_sub_s(t, 5), t), 8);
    return tn_mul_s(tn_sub_s(tn_mul(w, t), 4), -0.75);
}

// The border moves a coordinate before it is divided among two places, but of a cubic each of its
// four places.
static taps find_taps(tn_tensor *g, int64_t n, tn_grid_opts o)
{
    tn_tensor *x = to_places(g, n, o);
    if (!o.cubic) x = inside(x, n, o);
    if (o.nearest) return (taps){ 1, { tn_round(tn_detach(x)) }, { NULL } };
    tn_tensor *f = tn_floor(tn_detach(x)), *t = tn_sub(x, f), *rest = tn_rsub_s(t, 1);
    if (!o.cubic) return (taps){ 2, { f, tn_add_s(f, 1) }, { rest, t } };
    // Two places on either side; the weights of the outer ones are small and negative, which keeps
    // edges sharp.
    taps c = { .count = 4 };
    for (int k = 0; k < 4; k++) c.at[k] = inside(tn_add_s(f, k - 1), n, o);
    c.w[0] = cubic_weight(tn_add_s(t, 1), false);
    c.w[1] = cubic_weight(t, true);
    c.w[2] = cubic_weight(rest, true);
    c.w[3] = cubic_weight(tn_add_s(rest, 1), false);
    return c;
}

// The elements of x (N, C, places) at whole places (N, L) of its `axes` axes times weights w (N, L)
// or 1; 0 outside.
static tn_tensor *at_places(tn_tensor *x, int axes, tn_tensor *const *at, const int64_t *size,
                            tn_tensor *w)
{
    // Row-major: the index of the axes so far times the size of the next one. Places outside are
    // read at the nearest end and then set to 0, so that no gather leaves x.
    tn_tensor *in = NULL, *index = NULL;
    for (int i = 0; i < axes; i++) {
        tn_tensor *ok = tn_logical_and(tn_ge_s(at[i], 0), tn_lt_s(at[i], (double)size[i]));
        tn_tensor *to = tn_cast(tn_clamp(at[i], 0, (double)(size[i] - 1)), TN_I64);
        in            = i ? tn_logical_and(in, ok) : ok;
        index         = i ? tn_add(tn_mul_i64(index, size[i]), to) : to;
    }
    tn_tensor *v = tn_take_along_axis(x, tn_unsqueeze(index, 1), 2);
    v            = tn_where(tn_unsqueeze(in, 1), v, tni_number_like(v, 0));
    return w ? tn_mul(v, tn_unsqueeze(w, 1)) : v;
}

// The sum over all combinations of the axes' taps, the last axis running fastest.
static tn_tensor *sum_taps(tn_tensor *x, int axes, const taps *t, const int64_t *size)
{
    tn_tensor *y = NULL;
    int        n = 1;
    for (int i = 0; i < axes; i++) n *= t[i].count;
    for (int k = 0; k < n; k++) {
        tn_tensor *at[3], *w = NULL;
        for (int i = axes - 1, rest = k; i >= 0; rest /= t[i--].count)
            at[i] = t[i].at[rest % t[i].count];
        for (int i = 0, part = n; i < axes && t[i].w[0]; i++) {
            part /= t[i].count;
            tn_tensor *one = t[i].w[k / part % t[i].count];
            w              = w ? tn_mul(w, one) : one;
        }
        tn_tensor *v = at_places(x, axes, at, size, w);
        y            = y ? tn_add(y, v) : v;
    }
    return y;
}

// Whether x (N, C, places) and grid (N, places, axes) fit.
static bool check_grid(tn_ctx *cx, tn_tensor *x, tn_tensor *grid, tn_grid_opts o)
{
    int  axes = tn_rank(x) - 2;
    bool fit  = (axes == 2 || axes == 3) && tn_rank(grid) == tn_rank(x) &&
               tn_size(grid, -1) == axes && tn_size(x, 0) == tn_size(grid, 0);
    for (int i = 0; fit && i < axes; i++) fit = tn_size(x, 2 + i) > 0;
    if (!fit)
        return tni_refuse(cx, TN_ESHAPE,
                          "grid_sample: x %s and grid %s, not (N, C, H, W) and (N, P, Q, 2), nor "
                          "(N, C, D, H, W) and (N, O, P, Q, 3)",
                          tni_shape_of(x).s, tni_shape_of(grid).s);
    if (o.cubic && (o.nearest || axes == 3))
        return tni_refuse(cx, TN_EARG, "grid_sample: cubic %s",
                          o.nearest ? "and nearest" : "is for images (N, C, H, W)");
    return true;
}

// The places around each coordinate, weighed by nearness; gradients flow to x by the gathers, to
// the grid by the weights. The last axis of the grid has the coordinate of x's last axis first.
tn_tensor *tn_grid_sample(tn_tensor *x, tn_tensor *grid, tn_grid_opts o)
{
    static const char *const names[] = { "x", "grid" };
    tn_ctx *cx = tni_args("grid_sample", 2, (tn_tensor *const[]){ x, grid }, names);
    if (!cx || !tni_want_float(x, "grid_sample") || !tni_want_float(grid, "grid_sample") ||
        !check_grid(cx, x, grid, o))
        return NULL;
    tni_view   s = tni_layout(x), p = tni_layout(grid);
    int        axes = s.rank - 2;
    int64_t    N = s.size[0], C = s.size[1];
    taps       t[3];
    tn_tensor *g = tn_reshape(tni_widen(grid),
                              TN_SHAPE(N, tni_shape_count(axes, p.size + 1), axes));
    tn_tensor *v = tn_reshape(tni_widen(x), TN_SHAPE(N, C, tni_shape_count(axes, s.size + 2)));
    for (int i = 0; i < axes; i++)
        t[i] = find_taps(tn_select(g, 2, axes - 1 - i), s.size[2 + i], o);
    tn_tensor *y = sum_taps(v, axes, t, s.size + 2);
    for (int i = 0; i < axes; i++) s.size[2 + i] = p.size[1 + i];
    return tni_narrow(tn_reshape(y, s.rank, s.size), tn_dtype_of(x));
}

// ---- pixels and windows ------------------------------------------------------------------------

// (N..., C r r, H, W) as (N..., C, H r, W r), or back.
static tn_tensor *shuffle(const char *op, tn_tensor *x, int64_t r, bool up)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx) return NULL;
    int rank = tn_rank(x);
    if (rank < 3 || r < 1 || r > 1 << 20 || (up && tn_size(x, -3) % (r * r)) ||
        (!up && (tn_size(x, -2) % r || tn_size(x, -1) % r)))
        return tni_fail(cx, TN_ESHAPE, "%s: x %s by %lld", op, tni_shape_of(x).s, (long long)r);
    tni_view s = tni_layout(x);
    int64_t  n = tni_shape_count(rank - 3, s.size), C = tn_size(x, -3), H = tn_size(x, -2),
            W = tn_size(x, -1);
    tn_tensor *y;
    if (up) {
        C /= r * r;
        y = tn_permute(tn_reshape(x, TN_SHAPE(n * C, r, r, H, W)), TN_AXES(0, 3, 1, 4, 2));
        H *= r, W *= r;
    } else {
        H /= r, W /= r;
        y = tn_permute(tn_reshape(x, TN_SHAPE(n * C, H, r, W, r)), TN_AXES(0, 2, 4, 1, 3));
        C *= r * r;
    }
    s.size[rank - 3] = C, s.size[rank - 2] = H, s.size[rank - 1] = W;
    return tn_reshape(y, rank, s.size);
}

tn_tensor *tn_pixel_shuffle(tn_tensor *x, int64_t factor)
{
    return shuffle("pixel_shuffle", x, factor, true);
}

tn_tensor *tn_pixel_unshuffle(tn_tensor *x, int64_t factor)
{
    return shuffle("pixel_unshuffle", x, factor, false);
}

// The windows of a padded plane: sizes of the plane, of a window, and how many there are.
typedef struct {
    int64_t plane[2], k[2], stride[2], dilation[2], pad[2], count[2];
} windows;

// Reads the options; refuses windows that are larger than the padded plane.
static bool find_windows(const char *op, tn_tensor *x, const int64_t *plane, int64_t kh, int64_t kw,
                         tn_conv_opts o, windows *w)
{
    int64_t k[2] = { kh, kw };
    for (int i = 0; i < 2; i++) {
        w->k[i] = k[i], w->stride[i] = tni_option_at(o.stride, i, 1),
        w->dilation[i] = tni_option_at(o.dilation, i, 1);
        w->pad[i]      = tni_option_at(o.padding, i, 0);
        w->plane[i]    = plane[i] + 2 * w->pad[i];
        int64_t span   = w->dilation[i] * (k[i] - 1) + 1;
        if (k[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->pad[i] < 0 ||
            span > w->plane[i])
            return tni_refuse(x->cx, TN_ESHAPE,
                              "%s: windows %lld x %lld of %lld x %lld places, x %s", op,
                              (long long)kh, (long long)kw, (long long)plane[0],
                              (long long)plane[1], tni_shape_of(x).s);
        w->count[i] = (w->plane[i] - span) / w->stride[i] + 1;
    }
    return true;
}

// Where in its plane each element of each window lies: (kh * kw * count of windows), i64.
static tn_tensor *window_index(tn_ctx *cx, const windows *w)
{
    tn_tensor *at[2];
    for (int i = 0; i < 2; i++) {
        tn_tensor *k = tn_mul_i64(tn_arange(cx, TN_I64, 0, (double)w->k[i], 1), w->dilation[i]);
        tn_tensor *n = tn_mul_i64(tn_arange(cx, TN_I64, 0, (double)w->count[i], 1), w->stride[i]);
        at[i]        = tn_add(tn_unsqueeze(k, 1), n);
    }
    tn_tensor *row = tn_reshape(tn_mul_i64(at[0], w->plane[1]),
                                TN_SHAPE(w->k[0], 1, w->count[0], 1));
    tn_tensor *col = tn_reshape(at[1], TN_SHAPE(1, w->k[1], 1, w->count[1]));
    return tn_reshape(tn_add(row, col), TN_SHAPE(-1));
}

tn_tensor *tn_unfold(tn_tensor *x, int64_t kh, int64_t kw, tn_conv_opts o)
{
    tn_ctx *cx = tni_arg1("unfold", x, "x");
    windows w;
    if (!cx) return NULL;
    if (tn_rank(x) != 4)
        return tni_fail(cx, TN_ESHAPE, "unfold: x %s, not (N, C, H, W)", tni_shape_of(x).s);
    if (!find_windows("unfold", x, (int64_t[]){ tn_size(x, 2), tn_size(x, 3) }, kh, kw, o, &w))
        return NULL;
    int64_t    by[] = { 0, 0, w.pad[0], w.pad[1] }, N = tn_size(x, 0), C = tn_size(x, 1);
    tn_tensor *y = tn_reshape(tn_pad(x, by, by, 0), TN_SHAPE(N, C, w.plane[0] * w.plane[1]));
    y            = tn_index_select(y, 2, window_index(cx, &w));
    return tn_reshape(y, TN_SHAPE(N, C * kh * kw, w.count[0] * w.count[1]));
}

// The adjoint of unfold: the same index, added to. The padding is cut off.
tn_tensor *tn_fold_windows(tn_tensor *x, int64_t height, int64_t width, int64_t kh, int64_t kw,
                           tn_conv_opts o)
{
    tn_ctx *cx = tni_arg1("fold_windows", x, "x");
    windows w;
    if (!cx || !find_windows("fold_windows", x, (int64_t[]){ height, width }, kh, kw, o, &w))
        return NULL;
    if (tn_rank(x) != 3 || tn_size(x, 1) % (kh * kw) || tn_size(x, 2) != w.count[0] * w.count[1])
        return tni_fail(cx, TN_ESHAPE, "fold_windows: x %s, not (N, C * %lld, %lld)",
                        tni_shape_of(x).s, (long long)(kh * kw),
                        (long long)(w.count[0] * w.count[1]));
    int64_t N = tn_size(x, 0), C = tn_size(x, 1) / (kh * kw),
            cut[]    = { 0, 0, -w.pad[0], -w.pad[1] };
    int64_t    count = kh * kw * w.count[0] * w.count[1];
    tn_tensor *index = tn_expand(window_index(cx, &w), TN_SHAPE(N * C, count));
    tn_tensor *y     = tn_zeros(cx, tn_dtype_of(x), TN_SHAPE(N * C, w.plane[0] * w.plane[1]));
    y                = tn_scatter_add(y, 1, index, tn_reshape(x, TN_SHAPE(N * C, count)));
    return tn_pad(tn_reshape(y, TN_SHAPE(N, C, w.plane[0], w.plane[1])), cut, cut, 0);
}
