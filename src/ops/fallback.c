// LIBRARY ops out of other rows of the table, for devices that do not run them. They are recorded
// in the op's place, so planning, gradients and devices need not know. f16 and bf16 are computed in
// f32 and rounded once, as every device does. Correct, not fast: a device that matters runs the op
// itself.
//
// N images, G groups, C input channels, O output channels (both of one group), H x W places of the
// input, OH x OW of the result, KH x KW of a weight, K = C KH KW
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

// To (N, C, H, W), in which the functions below work; given_format undoes it.
static tn_tensor *channels_first(const tni_fallback_args *r, tn_tensor *x)
{
    return r->attr->conv.channels_last ? tn_permute(x, TN_AXES(0, 3, 1, 2)) : x;
}

static tn_tensor *given_format(const tni_fallback_args *r, tn_tensor *y)
{
    return r->attr->conv.channels_last ? tn_permute(y, TN_AXES(0, 2, 3, 1)) : y;
}

// x (N, G C, H, W) as the windows that a convolution looks at: (N, G, OH OW, K). This is im2col, as
// views.
static tn_tensor *conv_windows(const tni_fallback_args *r, tn_tensor *x, int64_t KH, int64_t KW)
{
    int64_t        G = r->attr->conv.groups;
    const int64_t *P = r->attr->conv.padding, *S = r->attr->conv.stride;
    const int64_t *D = r->attr->conv.dilation, before[] = { 0, 0, P[0], P[1] };
    if (P[0] || P[1]) x = tn_pad(x, before, before, 0);
    x = tn_window_dilated(tn_window_dilated(x, 2, KH, S[0], D[0]), 3, KW, S[1], D[1]);
    if (!x) return NULL;
    int64_t N = tn_size(x, 0), C = tn_size(x, 1) / G, OH = tn_size(x, 2), OW = tn_size(x, 3);
    x = tn_permute(tn_reshape(x, TN_SHAPE(N, G, C, OH, OW, KH, KW)), TN_AXES(0, 1, 3, 4, 2, 5, 6));
    return tn_reshape(x, TN_SHAPE(N, G, OH * OW, C * KH * KW));
}

// y (N, G O, OH, OW) as (N, G, O, OH OW), w (G O, C, KH, KW) as (G, O, K).
static tn_tensor *conv_places(const tni_fallback_args *r, tn_tensor *y)
{
    int64_t G = r->attr->conv.groups;
    if (!y) return NULL;
    return tn_reshape(y,
                      TN_SHAPE(tn_size(y, 0), G, tn_size(y, 1) / G, tn_size(y, 2) * tn_size(y, 3)));
}

static tn_tensor *conv_weights(const tni_fallback_args *r, tn_tensor *w)
{
    int64_t G = r->attr->conv.groups, K = tn_size(w, 1) * tn_size(w, 2) * tn_size(w, 3);
    return tn_reshape(w, TN_SHAPE(G, tn_size(w, 0) / G, K));
}

// Windows times weights.
tn_tensor *tni_fallback_conv(const tni_fallback_args *r)
{
    tn_tensor     *x = channels_first(r, r->x[0]), *w = r->x[1];
    const int64_t *y      = r->size;
    int64_t        size[] = { y[0], y[1], y[2], y[3] };
    tn_tensor     *rows   = conv_windows(r, x, tn_size(w, 2), tn_size(w, 3));
    tn_tensor     *out    = tn_matmul(conv_weights(r, w), tn_transpose(rows, 2, 3));
    if (r->attr->conv.channels_last) size[1] = y[3], size[2] = y[1], size[3] = y[2];
    return given_format(r, tn_reshape(out, 4, size));
}

// Weights times the gradient gives what each window gets; a fold adds it up where the windows read.
// The stride array is the view of the padded x that the windows are.
tn_tensor *tni_fallback_conv_dgrad(const tni_fallback_args *r)
{
    const struct tni_attr_conv *a  = &r->attr->conv;
    tn_tensor                  *gy = channels_first(r, r->x[0]), *w = r->x[1];
    const int64_t *x = r->size, *P = a->padding, OH = tn_size(gy, 2), OW = tn_size(gy, 3);
    int64_t        N = x[0], C = a->channels_last ? x[3] : x[1];
    int64_t        H = a->channels_last ? x[1] : x[2], W = a->channels_last ? x[2] : x[3];
    int64_t        size[] = { N, C, H + 2 * P[0], W + 2 * P[1] };
    tni_attr       at     = { .view = { .stride = { C * size[2] * size[3], size[2] * size[3],
                                                    a->dilation[0] * size[3], a->dilation[1],
                                                    a->stride[0] * size[3], a->stride[1] } } };
    tn_tensor     *cols   = tn_matmul(tn_transpose(conv_weights(r, w), 1, 2), conv_places(r, gy));
    cols                  = tn_reshape(cols, TN_SHAPE(N, C, tn_size(w, 2), tn_size(w, 3), OH, OW));
    tni_node *n           = cols ? tni_resolve(cols, "conv_dgrad") : NULL;
    if (!n) return NULL;
    tn_tensor *gx = tni_record(r->cx, TNI_fold, (tn_dtype)n->dtype, 4, size, 1, &n, &at);
    return given_format(r, tn_slice(tn_slice(gx, 2, P[0], P[0] + H, 1), 3, P[1], P[1] + W, 1));
}

// The gradient times windows, of each image, summed over images.
tn_tensor *tni_fallback_conv_wgrad(const tni_fallback_args *r)
{
    tn_tensor *gy = conv_places(r, channels_first(r, r->x[0])), *x = channels_first(r, r->x[1]);
    return tn_sum(tn_matmul(gy, conv_windows(r, x, r->size[2], r->size[3])), 0);
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
// Attention has none: tn_attention looks before it records it, since the ops in its place also take what it
// does not. Nor has a user's function: see tn_custom_n.
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
