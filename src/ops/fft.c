// Fourier transforms, with PyTorch's meaning: a node of the row `fft` over up to three of the last
// axes, around which axes are cut or filled with zeros and moved to the end; short-time transforms
// of windows of a signal; and the gradient, which is a transform again.
//
// What tn_rfft2(x, NULL, TN_FFT_ORTHO) of x (8, 6, 10), f32, records, behind whatever makes x:
//
//   fft   f32 (8, 6, 6, 2)   kind r2c, axes 2, scale 1 / sqrt(60)     the result's handle hides the 2: c64 (8, 6, 6)
//
// and tn_fft(x, 16, 0, TN_FFT_BACKWARD), along the first axis, with zeros behind its 8 elements:
//
//   where f32 (8, 6, 10, 2)  parts joined: x and 0
//   pad   f32 (16, 6, 10, 2)
//   copy  f32 (6, 10, 16, 2) of a view: the axis at the end
//   fft   f32 (6, 10, 16, 2) kind c2c, axes 1, scale 1; a view shows it as c64 (16, 6, 10)
//
// where, pad and copy are one kernel. The node has no neighbours inside: what follows a transform
// is a kernel of its own.
#include "ops/fft.h"
#include "ops/op_functions.h"

#include <math.h>
#include <string.h>

// ---- recording ---------------------------------------------------------------------------------

// A call reads row-major memory, so that a view is copied first.
tn_tensor *tni_fft_record(tn_tensor *x, struct tni_attr_fft how, int64_t n)
{
    tn_tensor *c = x ? tn_contiguous(x) : NULL;
    tni_node  *s = c ? tni_resolve(c, "fft") : NULL;
    tni_attr   a = { .fft = how };
    int64_t    size[TN_MAX_RANK + 1];
    if (!s) return NULL;
    int rank = s->rank;
    memcpy(size, s->size, sizeof s->size);
    if (how.kind == TNI_FFT_R2C) {
        size[rank - 1] = size[rank - 1] / 2 + 1;
        size[rank++]   = 2;
    } else if (how.kind == TNI_FFT_C2R) {
        size[--rank - 1] = n;
    }
    return tni_record(x->cx, TNI_fft, (tn_dtype)s->dtype, rank, size, 1, &s, &a);
}

// Of a spectrum of real numbers, pairs (..., n / 2 + 1, 2): the elements that stand for two, all
// but the first and, for an even n, the last, times w.
static tn_tensor *weigh_inner(tn_tensor *x, int64_t n, double w)
{
    if (!x) return NULL;
    tn_tensor *k   = tn_arange_i64(x->cx, TN_I64, 0, n / 2 + 1, 1);
    tn_tensor *own = tn_eq_i64(k, 0);
    if (n % 2 == 0) own = tn_logical_or(own, tn_eq_i64(k, n / 2));
    tn_tensor *by = tn_where(own, tni_number_like(x, 1), tni_number_like(x, w));
    return tn_mul(x, tn_unsqueeze(by, 1));
}

// The adjoint of each kind: of c2c the opposite direction; of r2c a c2r, which counts inner
// elements twice, of their halves; of c2r an r2c with inner elements doubled, as each stands for
// two.
void tni_grad_fft(tni_grad_args *r)
{
    struct tni_attr_fft how  = r->n->attr.fft;
    const tni_node     *x    = r->n->src[0];
    int64_t             n    = 0;
    tn_tensor          *g    = r->g;
    int                 kind = how.kind;
    how.inverse              = !how.inverse;
    if (kind == TNI_FFT_R2C) {
        n        = x->size[x->rank - 1];
        how.kind = TNI_FFT_C2R;
        g        = weigh_inner(g, n, 0.5);
    } else if (kind == TNI_FFT_C2R) {
        n        = r->n->size[r->n->rank - 1];
        how.kind = TNI_FFT_R2C;
    }
    g        = tni_fft_record(g, how, n);
    r->gx[0] = kind == TNI_FFT_C2R ? weigh_inner(g, n, 2) : g;
}

// ---- arguments ---------------------------------------------------------------------------------

// A transform as it was asked for: its axes from 0, in order, and the sizes along them.
typedef struct {
    const char  *op;
    tni_fft_kind kind;
    bool inverse, unscaled_forward;  // unscaled_forward: for the norm, it counts as a forward one
    int  n, axis[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];
} transform;

// Fills in the axes: those given, else the last n; n 0: all. An axis may be given once only, since
// the second transform of it would be another one.
static bool fill_axes(transform *t, tn_tensor *x, int n, const int *axes)
{
    int rank = tni_rank(x);
    if (n < 0 || n > rank || rank == 0)
        return tni_refuse(x->cx, TN_EARG, "%s: %d axes of x %s", t->op, n, tni_shape_of(x).s);
    t->n = n ? n : rank;
    for (int i = 0; i < t->n; i++) {
        t->axis[i] = n && axes ? tni_axis(x->cx, t->op, rank, axes[i]) : rank - t->n + i;
        if (t->axis[i] < 0) return false;
        for (int k = 0; k < i; k++)
            if (t->axis[k] == t->axis[i])
                return tni_refuse(x->cx, TN_EARG, "%s: axis %d is given twice for x %s", t->op,
                                  t->axis[i], tni_shape_of(x).s);
    }
    return true;
}

// Fills in the sizes: those given, 0 for x's own. The last one of a spectrum to real numbers is 2
// (m - 1).
static bool fill_sizes(transform *t, tn_tensor *x, const int64_t *size)
{
    for (int i = 0; i < t->n; i++) {
        int64_t own = tni_sizes(x)[t->axis[i]];
        if (t->kind == TNI_FFT_C2R && i == t->n - 1) own = 2 * (own - 1);
        t->size[i] = size && size[i] ? size[i] : own;
        if (t->size[i] < 1)
            return tni_refuse(x->cx, TN_EARG, "%s: %lld points along axis %d of x %s", t->op,
                              (long long)t->size[i], t->axis[i], tni_shape_of(x).s);
    }
    return true;
}

// What results are multiplied by: PyTorch's "backward" scales inverse transforms, "forward" the
// others, "ortho" both by the root.
static double scale_of(const transform *t, tn_fft_norm norm)
{
    double n       = 1;
    bool   forward = !t->inverse || t->unscaled_forward;
    for (int i = 0; i < t->n; i++) n *= (double)t->size[i];
    if (norm == TN_FFT_ORTHO) return 1 / sqrt(n);
    return (norm == TN_FFT_FORWARD) == forward ? 1 / n : 1;
}

// x with `size` elements along an axis: the first of them, which is a view, or zeros behind, which
// the pad's kernel writes beside a copy.
static tn_tensor *fit_axis(tn_tensor *x, int axis, int64_t size)
{
    int64_t before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    if (!x || tn_size(x, axis) == size) return x;
    if (tn_size(x, axis) > size) return tn_slice(x, axis, 0, size, 1);
    after[axis] = size - tn_size(x, axis);
    return tn_pad(x, before, after, 0);
}

// Axes that are not transformed keep their order, before those that are, which come in the order
// they were given in, the halved one last. The order of axes with those of the transform at the
// end; false if they are there.
static bool order_axes(const transform *t, int rank, int *order, int *back)
{
    int  n     = 0;
    bool moved = false;
    for (int i = 0; i < rank; i++) {
        bool mine = false;
        for (int k = 0; k < t->n; k++) mine |= t->axis[k] == i;
        if (!mine) order[n++] = i;
    }
    for (int k = 0; k < t->n; k++) order[n++] = t->axis[k];
    for (int i = 0; i < rank; i++) {
        back[order[i]] = i;
        moved |= order[i] != i;
    }
    return moved;
}

// The axes before the last three, one by one: each is moved to the end for a transform of its own.
static tn_tensor *transform_leading(const transform *t, tn_tensor *z, bool inverse)
{
    int rank = z ? tni_rank(z) : 0;
    for (int i = 0; z && i + 3 < t->n; i++) {
        int        axis = rank - t->n + i;
        tn_tensor *p    = tni_pairs(tn_transpose(z, axis, -1));
        p               = tni_fft_record(p, (struct tni_attr_fft){ TNI_FFT_C2C, 1, inverse, 1 }, 0);
        z               = tn_transpose(tni_as_complex(p), axis, -1);
    }
    return z;
}

// The transform of x, whose arguments are checked: as pairs, cut or filled up, its axes at the end,
// as one node for up to three axes. The scale is the node's, so that no kernel goes over the result
// once more. An axis that was moved is shown in its place again by a view.
static tn_tensor *run(const transform *t, tn_tensor *x, double scale)
{
    int        order[TN_MAX_RANK], back[TN_MAX_RANK], rank = tni_rank(x), last = t->n - 1;
    bool       r2c = t->kind == TNI_FFT_R2C, c2r = t->kind == TNI_FFT_C2R;
    bool       wide = tni_dtype(x) == TN_F64;
    tn_tensor *z    = r2c ? tn_cast(x, wide ? TN_F64 : TN_F32)
                          : tni_to_complex(x, wide ? TN_F64 : TN_F32);
    tn_tensor *p = tni_pairs(z);  // the axes keep their numbers: that of the pairs is behind them
    for (int i = 0; i < t->n; i++)
        p = fit_axis(p, t->axis[i], c2r && i == last ? t->size[i] / 2 + 1 : t->size[i]);
    if (p && !r2c) p = tni_as_complex(p);
    bool moved = order_axes(t, rank, order, back);
    if (moved) p = tn_permute(p, rank, order);
    struct tni_attr_fft how = { t->kind, t->n < 3 ? t->n : 3, c2r || (!r2c && t->inverse), scale };
    if (c2r) p = transform_leading(t, p, true);
    p = tni_fft_record(tni_pairs(p), how, t->size[last]);
    if (!c2r) p = tni_as_complex(p);
    if (!c2r) p = transform_leading(t, p, how.inverse);
    return moved ? tn_permute(p, rank, back) : p;
}

// Checks x and the arguments, and runs. 16-bit floats and integers are computed in f32, as the
// result is.
static tn_tensor *transform_of(transform t, tn_tensor *x, int n, const int64_t *size,
                               const int *axes, tn_fft_norm norm)
{
    tn_ctx *cx = t.kind == TNI_FFT_R2C ? tni_arg1(t.op, x, "x") : tni_arg1_any(t.op, x, "x");
    if (!cx || !tni_want_math_dtype(cx, t.op, tni_dtype(x))) return NULL;
    if (norm < TN_FFT_BACKWARD || norm > TN_FFT_FORWARD)
        return tni_fail(cx, TN_EARG, "%s: %d is not a norm", t.op, (int)norm);
    if (!fill_axes(&t, x, n, axes) || !fill_sizes(&t, x, size)) return NULL;
    if (tni_rank(x) + 1 > TN_MAX_RANK)
        return tni_fail(cx, TN_ESHAPE, "%s: x %s has more than %d axes", t.op, tni_shape_of(x).s,
                        TN_MAX_RANK - 1);
    return run(&t, x, scale_of(&t, norm));
}

// ---- public ------------------------------------------------------------------------------------

#define ONE_AXIS(name, kind, inverse)                                                              \
    tn_tensor *tn_##name(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm)                      \
    {                                                                                              \
        return transform_of((transform){ #name, kind, inverse, false, 0, { 0 }, { 0 } }, x, 1, &n, \
                            &axis, norm);                                                          \
    }
#define TWO_AXES(name, kind, inverse)                                                          \
    tn_tensor *tn_##name(tn_tensor *x, const int64_t *size, tn_fft_norm norm)                  \
    {                                                                                          \
        return transform_of((transform){ #name, kind, inverse, false, 0, { 0 }, { 0 } }, x, 2, \
                            size, NULL, norm);                                                 \
    }
#define ANY_AXES(name, kind, inverse)                                                          \
    tn_tensor *tn_##name(tn_tensor *x, int n, const int64_t *size, const int *axes,            \
                         tn_fft_norm norm)                                                     \
    {                                                                                          \
        return transform_of((transform){ #name, kind, inverse, false, 0, { 0 }, { 0 } }, x, n, \
                            size, axes, norm);                                                 \
    }
ONE_AXIS(fft, TNI_FFT_C2C, false)
ONE_AXIS(ifft, TNI_FFT_C2C, true)
ONE_AXIS(rfft, TNI_FFT_R2C, false)
ONE_AXIS(irfft, TNI_FFT_C2R, true)
TWO_AXES(fft2, TNI_FFT_C2C, false)
TWO_AXES(ifft2, TNI_FFT_C2C, true)
TWO_AXES(rfft2, TNI_FFT_R2C, false)
TWO_AXES(irfft2, TNI_FFT_C2R, true)
ANY_AXES(fftn, TNI_FFT_C2C, false)
ANY_AXES(ifftn, TNI_FFT_C2C, true)
ANY_AXES(rfftn, TNI_FFT_R2C, false)
ANY_AXES(irfftn, TNI_FFT_C2R, true)

// A forward transform of a signal of which half is given, since the rest is its mirror image, gives
// real numbers: the inverse one of the conjugate, scaled as a forward one.
tn_tensor *tn_hfft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm)
{
    transform t = { .op = "hfft", .kind = TNI_FFT_C2R, .inverse = true, .unscaled_forward = true };
    if (!tni_arg1_any("hfft", x, "x")) return NULL;
    tn_tensor *z = tn_conj(x);
    return z ? transform_of(t, z, 1, &n, &axis, norm) : NULL;
}

// The conjugate of the first half of the inverse transform of real numbers.
tn_tensor *tn_ihfft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm)
{
    transform  t = { .op = "ihfft", .kind = TNI_FFT_R2C, .inverse = true };
    tn_tensor *z = transform_of(t, x, 1, &n, &axis, norm);
    return z ? tn_conj(z) : NULL;
}

// Shifts each axis by half of its size, up or down. Of an odd size n the halves differ by one:
// fftshift moves by n / 2, which puts frequency 0 at place n / 2, and ifftshift moves back by as
// much.
static tn_tensor *shifted(const char *op, tn_tensor *x, int n, const int *axes, bool back)
{
    transform t = { .op = op };
    if (!tni_arg1_any(op, x, "x")) return NULL;
    if (!tni_rank(x)) return tni_share(x, op);
    if (!fill_axes(&t, x, n, axes)) return NULL;
    for (int i = 0; i < t.n && x; i++) {
        int64_t half = tn_size(x, t.axis[i]) / 2;
        x            = tn_roll(x, back ? -half : half, t.axis[i]);
    }
    return x;
}

tn_tensor *tn_fftshift(tn_tensor *x, int n, const int *axes)
{
    return shifted("fftshift", x, n, axes, false);
}

tn_tensor *tn_ifftshift(tn_tensor *x, int n, const int *axes)
{
    return shifted("ifftshift", x, n, axes, true);
}

// 0, 1, ... and, of both halves, the negative ones from the middle on; over n d.
// Computed in f64 and rounded once.
static tn_tensor *frequencies(const char *op, tn_ctx *cx, tn_dtype dt, int64_t n, double d,
                              bool both)
{
    if (!tni_can_make(cx, op, dt, 0, NULL)) return NULL;
    if (!tni_is_float(dt) || n < 1)
        return tni_fail(cx, TN_EARG, "%s: %lld points of %s", op, (long long)n, tn_dtype_name(dt));
    tn_tensor *k = tn_arange_i64(cx, TN_I64, 0, both ? n : n / 2 + 1, 1);
    if (both) k = tn_where(tn_ge_i64(k, (n + 1) / 2), tn_sub_i64(k, n), k);
    return tn_cast(tn_div_s(tn_cast(k, TN_F64), (double)n * d), dt);
}

tn_tensor *tn_fftfreq(tn_ctx *cx, tn_dtype dt, int64_t n, double d)
{
    return frequencies("fftfreq", cx, dt, n, d, true);
}

tn_tensor *tn_rfftfreq(tn_ctx *cx, tn_dtype dt, int64_t n, double d)
{
    return frequencies("rfftfreq", cx, dt, n, d, false);
}

// ---- windows and short-time transforms ---------------------------------------------------------

// a - (1 - a) cos(2 pi k / m), where m is n, or n - 1 for a window that is symmetric.
static tn_tensor *raised_cosine(const char *op, tn_ctx *cx, tn_dtype dt, int64_t n, bool symmetric,
                                double a)
{
    if (!tni_can_make(cx, op, dt, 1, &n)) return NULL;
    if (!tni_is_float(dt))
        return tni_fail(cx, TN_EDTYPE, "%s: %s is not a float type", op, tn_dtype_name(dt));
    if (n == 1) return tn_ones(cx, dt, 1, &n);
    tn_tensor *k = tn_arange(cx, TN_F64, 0, (double)n, 1);
    tn_tensor *c = tn_cos(tn_mul_s(k, 6.283185307179586476925 / (double)(symmetric ? n - 1 : n)));
    return tn_cast(tn_rsub_s(tn_mul_s(c, 1 - a), a), dt);
}

tn_tensor *tn_hann_window(tn_ctx *cx, tn_dtype dt, int64_t n, bool symmetric)
{
    return raised_cosine("hann_window", cx, dt, n, symmetric, 0.5);
}

tn_tensor *tn_hamming_window(tn_ctx *cx, tn_dtype dt, int64_t n, bool symmetric)
{
    return raised_cosine("hamming_window", cx, dt, n, symmetric, 0.54);
}

// The window of `win` elements in the middle of n, or NULL if all are 1. False, reported, if it
// does not fit.
static bool window_of(const char *op, tn_ctx *cx, tn_dtype dt, int64_t n, tn_stft_opts *o,
                      tn_tensor **w)
{
    int64_t win = o->win ? o->win : n, left = (n - win) / 2;
    *w = o->window;
    if (n < 1 || n > INT32_MAX || win < 1 || win > n)
        return tni_refuse(cx, TN_EARG, "%s: a window of %lld in %lld points", op, (long long)win,
                          (long long)n);
    if (*w && !tni_arg1(op, *w, "window")) return false;
    if (*w && (tni_rank(*w) != 1 || tn_size(*w, 0) != win))
        return tni_refuse(cx, TN_ESHAPE, "%s: window %s has not %lld elements", op,
                          tni_shape_of(*w).s, (long long)win);
    if (!*w && win < n) *w = tn_ones(cx, dt, 1, &win);
    if (!*w && win < n) return false;
    if (*w) *w = tn_cast(*w, dt);
    if (*w && win < n) *w = tn_pad(*w, &left, (int64_t[]){ n - win - left }, 0);
    o->hop = o->hop ? o->hop : n / 4 ? n / 4 : 1;
    if (o->hop < 1 || o->hop > INT32_MAX)
        return tni_refuse(cx, TN_EARG, "%s: hop is %lld", op, (long long)o->hop);
    return true;
}

// Frames of a real signal (..., T), n elements each, `hop` apart, times the window: (..., frames,
// n).
static tn_tensor *frames_of(tn_tensor *x, int64_t n, const tn_stft_opts *o, tn_tensor *w)
{
    int64_t around[TN_MAX_RANK] = { 0 };
    if (!x) return NULL;
    around[tni_rank(x) - 1] = n / 2;
    if (!o->no_center)
        x = o->pad_zeros ? tn_pad(x, around, around, 0) : tn_pad_reflect(x, around, around);
    x = x ? tn_window(x, -1, n, o->hop) : NULL;
    return x && w ? tn_mul(x, w) : x;
}

// Frames are views of the padded signal: the product with the window makes them, and is the only
// copy. The parts of a complex signal are cut alike and joined.
tn_tensor *tn_stft(tn_tensor *x, int64_t n, tn_stft_opts o)
{
    tn_ctx *cx = tni_arg1_any("stft", x, "x");
    if (!cx || !tni_want_math_dtype(cx, "stft", tni_dtype(x))) return NULL;
    if (!tni_is_float(tni_dtype(x)) || tni_rank(x) < 1)
        return tni_fail(cx, TN_EARG, "stft: x %s of %s is no signal of floats", tni_shape_of(x).s,
                        tn_dtype_name(tn_dtype_of(x)));
    tn_dtype   dt = tni_dtype(x) == TN_F64 ? TN_F64 : TN_F32;
    tn_tensor *w, *y;
    if (!window_of("stft", cx, dt, n, &o, &w)) return NULL;
    if (n > tn_size(x, -1) + (o.no_center ? 0 : n / 2 * 2))
        return tni_fail(cx, TN_EARG, "stft: %lld points, but x %s has fewer", (long long)n,
                        tni_shape_of(x).s);
    bool        half = !x->complex && !o.two_sided;
    tn_fft_norm norm = o.normalized ? TN_FFT_ORTHO : TN_FFT_BACKWARD;
    if (x->complex) {
        y = tni_join_parts(frames_of(tni_part(x, 0), n, &o, w),
                           frames_of(tni_part(x, 1), n, &o, w));
    } else {
        y = frames_of(tn_cast(x, dt), n, &o, w);
    }
    y = y ? half ? tn_rfft(y, 0, -1, norm) : tn_fft(y, 0, -1, norm) : NULL;
    return y ? tn_transpose(y, -1, -2) : NULL;
}

// The gradient of the windows of a signal is what is wanted here: frames (..., frames, n) added up
// at their places, `hop` apart: (..., T). By the columns of tn_fold_windows.
static tn_tensor *overlap_add(tn_tensor *x, int64_t hop)
{
    int64_t size[TN_MAX_RANK], rank = x ? tni_rank(x) : 0, batch = 1;
    if (!x) return NULL;
    int64_t frames = tn_size(x, -2), n = tn_size(x, -1), all = n + hop * (frames - 1);
    for (int i = 0; i < rank - 2; i++) batch *= size[i] = tni_sizes(x)[i];
    tn_tensor *c   = tn_transpose(tn_reshape(x, TN_SHAPE(batch, frames, n)), 1, 2);
    tn_tensor *y   = c ? tn_fold_windows(c, 1, all, 1, n, (tn_conv_opts){ .stride = { 1, hop } })
                       : NULL;
    size[rank - 2] = all;
    return y ? tn_reshape(y, (int)rank - 1, size) : NULL;
}

// Frames times the window once more, divided by the sum of its squares there, which makes up for
// both.
tn_tensor *tn_istft(tn_tensor *x, int64_t n, tn_stft_opts o)
{
    tn_ctx *cx = tni_arg1_any("istft", x, "x");
    if (!cx) return NULL;
    if (!x->complex || tni_rank(x) < 2 || tn_size(x, -2) != (o.two_sided ? n : n / 2 + 1) ||
        tn_size(x, -1) < 1)
        return tni_fail(cx, TN_ESHAPE,
                        "istft: x %s of %s is not (..., %lld, frames) of complex numbers",
                        tni_shape_of(x).s, tn_dtype_name(tn_dtype_of(x)),
                        (long long)(o.two_sided ? n : n / 2 + 1));
    tn_dtype   dt = tni_dtype(x);
    tn_tensor *w, *y = tn_transpose(x, -1, -2);
    if (!window_of("istft", cx, dt, n, &o, &w)) return NULL;
    if (o.length < 0 || o.length > INT64_MAX / 4)
        return tni_fail(cx, TN_EARG, "istft: length is %lld", (long long)o.length);
    tn_fft_norm norm = o.normalized ? TN_FFT_ORTHO : TN_FFT_BACKWARD;
    y                = o.two_sided ? tn_real(tn_ifft(y, 0, -1, norm)) : tn_irfft(y, n, -1, norm);
    if (!w) w = tn_ones(cx, dt, 1, &n);
    if (!y || !w) return NULL;
    int64_t    frames = tn_size(y, -2), cut = o.no_center ? 0 : n / 2;
    tn_tensor *sum = overlap_add(tn_mul(y, w), o.hop);
    tn_tensor *all = overlap_add(tn_expand(tn_unsqueeze(tn_square(w), 0), TN_SHAPE(frames, n)),
                                 o.hop);
    if (!sum || !all) return NULL;
    int64_t end = o.length ? cut + o.length : tn_size(sum, -1) - cut;
    // The ends, where no window reaches, are cut before the division.
    sum                         = tn_slice(sum, -1, cut, end, 1);
    y                           = tn_div(sum, tn_slice(all, -1, cut, end, 1));
    int64_t before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    if (!y || !o.length || tn_size(y, -1) >= o.length) return y;
    after[tni_rank(y) - 1] = o.length - tn_size(y, -1);
    return tn_pad(y, before, after, 0);
}
