// LIBRARY ops out of other rows of the table, for devices that do not run them. They are recorded
// in the op's place, so planning, gradients and devices need not know. f16 and bf16 are computed in
// f32 and rounded once, as every device does. Correct, not fast: a device that matters runs the op
// itself.
//
// N images, G groups, C input channels, O output channels (both of one group), P places of the
// result, K = C times the taps of a weight
#include "ops/composite.h"
#include "ops/op_functions.h"

#include <string.h>

// ---- products ----------------------------------------------------------------------------------

// The sum of products, over (..., m, k, n). Batches become one axis if k has no axis left.
tn_tensor *tni_fallback_matmul(const tni_fallback_args *r)
{
    tn_tensor *a = r->x[0], *b = r->x[1];
    if (tn_rank(a) == TN_MAX_RANK) {
        int64_t B = tni_shape_count(TN_MAX_RANK - 2, tni_sizes(a));
        a         = tn_reshape(a, TN_SHAPE(B, tn_size(a, -2), tn_size(a, -1)));
        b         = tn_reshape(b, TN_SHAPE(B, tn_size(b, -2), tn_size(b, -1)));
    }
    return tn_sum(tn_mul(tn_unsqueeze(a, -1), tn_unsqueeze(b, -3)), -2);
}

// ---- convolutions ------------------------------------------------------------------------------

// To (N, C, places), in which the functions below work; given_format undoes it.
static tn_tensor *channels_first(const tni_fallback_args *r, tn_tensor *x)
{
    if (!x || !r->attr->conv.channels_last) return x;
    int order[] = { 0, tn_rank(x) - 1, 1, 2, 3 };
    return tn_permute(x, tn_rank(x), order);
}

static tn_tensor *given_format(const tni_fallback_args *r, tn_tensor *y)
{
    if (!y || !r->attr->conv.channels_last) return y;
    return tn_permute(y, tn_rank(y), tni_channels_last_order(tn_rank(y)));
}

// The sizes of the result as (N, C, places).
static void result_sizes(const tni_fallback_args *r, int64_t *size)
{
    const int *order = tni_channels_last_order(r->rank);
    for (int i = 0; i < r->rank; i++) size[r->attr->conv.channels_last ? order[i] : i] = r->size[i];
}

// x (N, G C, places) as the windows that a convolution looks at, (N, G, P, K). This is
// im2col, as views.
static tn_tensor *conv_windows(const tni_fallback_args *r, tn_tensor *x, const int64_t *taps)
{
    const struct tni_attr_conv *a    = &r->attr->conv;
    int                         axes = r->rank - 2, order[TN_MAX_RANK] = { 0 };
    int64_t                     before[TN_MAX_RANK] = { 0 };
    bool                        any                 = false;
    for (int i = 0; i < axes; i++) any |= (before[2 + i] = a->padding[i]) > 0;
    if (any) x = tn_pad(x, before, before, (double)a->fill);
    for (int i = 0; i < axes; i++)
        x = tn_window_dilated(x, 2 + i, taps[i], a->stride[i], a->dilation[i]);
    if (!x) return NULL;
    // (N, G C, places, taps) with the channels beside the taps.
    for (int i = 1; i <= axes; i++) {
        order[i]            = 1 + i;
        order[1 + axes + i] = 1 + axes + i;
    }
    order[1 + axes] = 1;
    int64_t K = tn_size(x, 1) / a->groups * tni_shape_count(axes, taps), N = tn_size(x, 0);
    int64_t P = tni_shape_count(axes, tni_sizes(x) + 2);
    x         = tn_permute(x, 2 + 2 * axes, order);
    return tn_transpose(tn_reshape(x, TN_SHAPE(N, P, a->groups, K)), 1, 2);
}

// y (N, G O, places) as (N, G, O, P), w (G O, C, taps) as (G, O, K).
static tn_tensor *conv_places(const tni_fallback_args *r, tn_tensor *y)
{
    int64_t G = r->attr->conv.groups;
    if (!y) return NULL;
    return tn_reshape(y, TN_SHAPE(tn_size(y, 0), G, tn_size(y, 1) / G,
                                  tni_shape_count(tn_rank(y) - 2, tni_sizes(y) + 2)));
}

static tn_tensor *conv_weights(const tni_fallback_args *r, tn_tensor *w)
{
    int64_t G = r->attr->conv.groups, K = tni_shape_count(tn_rank(w) - 1, tni_sizes(w) + 1);
    return tn_reshape(w, TN_SHAPE(G, tn_size(w, 0) / G, K));
}

// Windows times weights.
tn_tensor *tni_fallback_conv(const tni_fallback_args *r)
{
    tn_tensor *x = channels_first(r, r->x[0]), *w = r->x[1];
    int64_t    size[TN_MAX_RANK];
    tn_tensor *rows = conv_windows(r, x, tni_sizes(w) + 2);
    tn_tensor *out  = tn_matmul(conv_weights(r, w), tn_transpose(rows, 2, 3));
    result_sizes(r, size);
    return given_format(r, tn_reshape(out, r->rank, size));
}

// Sums of i32, which wrap as those of the ops do.
tn_tensor *tni_fallback_matmul_i32(const tni_fallback_args *r)
{
    return tn_matmul(tn_cast(r->x[0], TN_I32), tn_cast(r->x[1], TN_I32));
}

tn_tensor *tni_fallback_conv_i32(const tni_fallback_args *r)
{
    tni_fallback_args wide = *r;
    for (int i = 0; i < 2; i++) wide.x[i] = tn_cast(r->x[i], TN_I32);
    if (r->attr->conv.channels_last == TNI_WEIGHTS_LAST) wide.x[1] = channels_first(r, wide.x[1]);
    return wide.x[0] && wide.x[1] ? tni_fallback_conv(&wide) : NULL;
}

// Weights times the gradient gives what each window gets; a fold adds it up where the windows read.
// The stride array is the view of the padded x that the windows are.
tn_tensor *tni_fallback_conv_dgrad(const tni_fallback_args *r)
{
    const struct tni_attr_conv *a  = &r->attr->conv;
    tn_tensor                  *gy = channels_first(r, r->x[0]), *w = r->x[1];
    int                         axes = r->rank - 2;
    int64_t                     size[TN_MAX_RANK], cols_size[TN_MAX_RANK], step = 1;
    tni_attr                    at = { 0 };
    if (!gy) return NULL;
    result_sizes(r, size);
    for (int i = axes - 1; i >= 0; i--) {
        size[2 + i] += 2 * a->padding[i];
        at.view.stride[2 + i]        = a->dilation[i] * step;
        at.view.stride[2 + axes + i] = a->stride[i] * step;
        cols_size[2 + i]             = tn_size(w, 2 + i);
        cols_size[2 + axes + i]      = tn_size(gy, 2 + i);
        step *= size[2 + i];
    }
    cols_size[0] = size[0], cols_size[1] = size[1];
    at.view.stride[0] = size[1] * step, at.view.stride[1] = step;
    tn_tensor *cols = tn_matmul(tn_transpose(conv_weights(r, w), 1, 2), conv_places(r, gy));
    cols            = tn_reshape(cols, 2 + 2 * axes, cols_size);
    tni_node *n     = cols ? tni_resolve(cols, "conv_dgrad") : NULL;
    if (!n) return NULL;
    tn_tensor *gx = tni_record(r->cx, TNI_fold, (tn_dtype)n->dtype, r->rank, size, 1, &n, &at);
    for (int i = 0; i < axes; i++)
        gx = tn_slice(gx, 2 + i, a->padding[i], size[2 + i] - a->padding[i], 1);
    return given_format(r, gx);
}

// The gradient times windows, of each image, summed over images.
tn_tensor *tni_fallback_conv_wgrad(const tni_fallback_args *r)
{
    tn_tensor *gy = conv_places(r, channels_first(r, r->x[0])), *x = channels_first(r, r->x[1]);
    return tn_sum(tn_matmul(gy, conv_windows(r, x, r->size + 2)), 0);
}

// ---- sorting -----------------------------------------------------------------------------------

// NaN sorts above everything, as in NumPy and PyTorch.
static tn_tensor *sorts_above(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *y = tn_gt(a, b);
    if (!tni_is_float(tn_dtype_of(a))) return y;
    return tn_logical_or(y, tn_logical_and(tn_isnan(a), tn_logical_not(tn_isnan(b))));
}

// The place of an element is the number of elements that go before it, found by (lines, n, n)
// comparisons; equal elements go by index, which makes it stable. A scatter then inverts places
// into indices.
tn_tensor *tni_fallback_argsort(const tni_fallback_args *r)
{
    int     axis = r->attr->axis.axis;
    int64_t n    = r->size[axis];
    if (tni_shape_count(r->rank, r->size) == 0) {
        if (r->nout > 1) r->more[0] = r->x[0];
        return tn_zeros(r->cx, TN_I64, r->rank, r->size);
    }
    tn_tensor *x = tn_transpose(r->x[0], axis, -1);
    if (!x) return NULL;
    tni_view v   = tni_layout(x);
    x            = tn_reshape(x, TN_SHAPE(-1, n));
    tn_tensor *i = tn_unsqueeze(x, 2), *j = tn_unsqueeze(x, 1);
    tn_tensor *at = tn_arange(r->cx, TN_I64, 0, (double)n, 1), *up = sorts_above(i, j),
              *down    = sorts_above(j, i);
    tn_tensor *earlier = tn_lt(at, tn_unsqueeze(at, 1));
    tn_tensor *before = r->attr->axis.descending ? down : up, *behind = before == up ? down : up;
    before           = tn_logical_or(before, tn_logical_and(tn_logical_not(behind), earlier));
    tn_tensor *place = tn_sum(before, 2);
    if (!place) return NULL;
    tn_tensor *y = tn_scatter(tn_zeros_like(place), 1, place, tn_expand(at, 2, tni_sizes(place)));
    y            = tn_transpose(tn_reshape(y, v.rank, v.size), axis, -1);
    if (r->nout > 1) r->more[0] = tn_gather(r->x[0], axis, y);
    return y;
}

// ---- which -------------------------------------------------------------------------------------

// One function a LIBRARY row, by the name in its CALLS.
// Attention has none: tn_attention looks before it records it, since the ops in its place also take
// what it does not. Nor has a user's function: see tn_custom_n.
#define tni_fallback_none NULL
static tn_tensor *(*const fallbacks[TNI_OPS])(const tni_fallback_args *) = {
// clang-format off
#define CALLS(f, g) tni_fallback_##g,
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_IF_##class([TNI_##name] = expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
    // clang-format on
};

bool tni_declines(tn_ctx *cx, const tni_node *n)
{
    const char *why = cx->declines ? cx->declines(cx, n) : NULL;
    if (why) cx->declined = tni_text_of("%s: %s", tni_op_table[n->op].name, why);
    return why != NULL;
}

// y as the output was asked for: dtype, shape, row-major.
static tn_tensor *fit_output(tn_tensor *y, const tn_array *out)
{
    if (y && tn_dtype_of(y) != out->dtype) y = tn_cast(y, out->dtype);
    if (y && !tni_shape_equal(tn_rank(y), tni_sizes(y), out->rank, out->size))
        y = tn_reshape(y, out->rank, out->size);
    return y ? tn_contiguous(y) : NULL;
}

// Sources are widened to f32 here and results narrowed here, so that no fallback above has to.
bool tni_fallback(tn_ctx *cx, int op, int nout, const tn_array *out, int nsrc, tni_node *const *src,
                  const tni_attr *attr, tn_tensor **y)
{
    tni_fallback_args r  = { .cx   = cx,
                             .nin  = nsrc,
                             .nout = nout,
                             .rank = out->rank,
                             .size = out->size,
                             .attr = attr,
                             .more = y + 1 };
    bool              ok = true;
    for (int i = 0; i < nsrc; i++)
        if (!(r.x[i] = tni_widen(tni_wrap_node(cx, src[i])))) return false;
    tn_dtype mode = cx->autocast;
    cx->autocast  = TN_F32;  // the op in whose place these are recorded was cast already
    y[0]          = fallbacks[op](&r);
    cx->autocast  = mode;
    for (int i = 0; i < nout && ok; i++) ok = (y[i] = fit_output(y[i], &out[i])) != NULL;
    return ok;
}
