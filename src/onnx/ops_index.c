// Operators of several indices, and those whose result has a size that depends on values, for which
// they wait.
//
//   x (2, 3), indices (4, 2):     rows (i, j) are joined to i * 3 + j, places of x as one line
//   x (2, 3), indices (4, 1):     rows (i) name lines of 3 elements
//
// so that both are one gather or scatter of lines.
#include "onnx/onnx_ops.h"

#include <stdlib.h>

// The place in x's first axes, joined to one after `batch` of them, of each row of indices (...,
// k).
static tn_tensor *joined_index(tn_tensor *x, tn_tensor *index, int batch, int k)
{
    tn_tensor *at = NULL;
    for (int i = 0; i < k; i++) {
        int64_t    n = tn_size(x, batch + i);
        tn_tensor *v = tn_cast(tn_select(index, -1, i), TN_I64);
        v            = tn_where(tn_lt_i64(v, 0), tn_add_i64(v, n), v);
        at           = at ? tn_add(tn_mul_i64(at, n), v) : v;
    }
    return at;
}

// x as (batch, indexed places, rest), and how its indices are; false, reported, if they do not fit.
typedef struct {
    int     batch, k;
    int64_t items, places, rest, rows;
} nd_sizes;

// The last axis of indices has k numbers, one for each axis of x behind the batch.
static bool measure(tni_onnx_call *c, tn_tensor *x, tn_tensor *index, int batch, nd_sizes *s)
{
    *s = (nd_sizes){ .batch  = batch,
                     .k      = tn_rank(index) ? (int)tn_size(index, -1) : -1,
                     .items  = 1,
                     .places = 1,
                     .rest   = 1,
                     .rows   = 1 };
    if (s->k < 0 || batch < 0 || batch >= tn_rank(index) || batch + s->k > tn_rank(x))
        return tni_onnx_refuse(c, "indices %s do not fit x %s", tni_shape_of(index).s,
                               tni_shape_of(x).s);
    for (int i = 0; i < tn_rank(x); i++)
        *(i < batch ? &s->items : i < batch + s->k ? &s->places : &s->rest) *= tn_size(x, i);
    for (int i = batch; i < tn_rank(index) - 1; i++) s->rows *= tn_size(index, i);
    return true;
}

// GatherND(x, indices; batch_dims): x at rows of indices.
bool tni_onnx_gather_nd(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *index = tni_onnx_in(c, 1);
    nd_sizes   s;
    int64_t    size[2 * TN_MAX_RANK];
    int        rank = 0;
    if (!x || !index || !measure(c, x, index, (int)tni_onnx_attr_int(c, "batch_dims", 0), &s))
        return false;
    tn_tensor *at = s.k ? joined_index(x, index, s.batch, s.k) : NULL;
    if (!at) return tni_onnx_refuse(c, "indices %s name no axis", tni_shape_of(index).s);
    at = tn_expand(tn_reshape(at, TN_SHAPE(s.items, s.rows, 1)), TN_SHAPE(s.items, s.rows, s.rest));
    tn_tensor *y = tn_gather(tn_reshape(x, TN_SHAPE(s.items, s.places, s.rest)), 1, at);
    for (int i = 0; i < tn_rank(index) - 1; i++) size[rank++] = tn_size(index, i);
    for (int i = s.batch + s.k; i < tn_rank(x); i++) size[rank++] = tn_size(x, i);
    if (rank > TN_MAX_RANK)
        return tni_onnx_refuse(c, "the result has more than %d axes", TN_MAX_RANK);
    return tni_onnx_out(c, 0, tn_reshape(y, rank, size));
}

// ScatterND(x, indices, updates; reduction): a copy of x with updates at rows of indices.
bool tni_onnx_scatter_nd(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *index = tni_onnx_in(c, 1), *v = tni_onnx_in(c, 2), *y;
    nd_sizes   s;
    int64_t    size[TN_MAX_RANK];
    tni_wire   how = tni_onnx_attr_text(c, "reduction");
    if (!x || !index || !v || !measure(c, x, index, 0, &s)) return false;
    tn_tensor *at = s.k ? joined_index(x, index, 0, s.k) : NULL;
    if (!at) return tni_onnx_refuse(c, "indices %s name no axis", tni_shape_of(index).s);
    at = tn_expand(tn_reshape(at, TN_SHAPE(s.rows, 1)), TN_SHAPE(s.rows, s.rest));
    v  = tn_reshape(v, TN_SHAPE(s.rows, s.rest));
    y  = tn_reshape(x, TN_SHAPE(s.places, s.rest));
    if (!tni_wire_size(how) || tni_wire_is(how, "none")) y = tn_scatter(y, 0, at, v);
    else
        y = tn_scatter_reduce(y, 0, at, v,
                              tni_wire_is(how, "add")   ? TN_FOLD_SUM
                              : tni_wire_is(how, "mul") ? TN_FOLD_PROD
                              : tni_wire_is(how, "max") ? TN_FOLD_MAX
                                                        : TN_FOLD_MIN,
                              true);
    for (int i = 0; i < tn_rank(x); i++) size[i] = tn_size(x, i);
    return tni_onnx_out(c, 0, tn_reshape(y, tn_rank(x), size));
}

// NonZero(x): (rank, count), which has to wait for the count.
bool tni_onnx_non_zero(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *y = tn_nonzero(x);
    return tni_onnx_out(c, 0, y ? tn_transpose(y, 0, 1) : NULL);
}

// The parts of x along an axis where a condition, which may be shorter, is true; without an axis of
// x as a line. The condition's length may be less than the axis: what is beyond is left out.
bool tni_onnx_compress(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *cond = tni_onnx_in(c, 1);
    if (!x || !cond) return false;
    bool line     = !tni_onnx_has_attr(c, "axis");
    x             = line ? tn_reshape(x, TN_SHAPE(-1)) : x;
    tn_tensor *at = tn_nonzero(cond);
    return tni_onnx_out(c, 0,
                        tn_index_select(x, line ? 0 : (int)tni_onnx_attr_int(c, "axis", 0),
                                        at ? tn_select(at, 1, 0) : NULL));
}

// Each row of x until its length backwards, the rest as it is.
// One axis is time, the other the batch.
bool tni_onnx_reverse_sequence(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *length = tni_onnx_in(c, 1);
    int        time = (int)tni_onnx_attr_int(c, "time_axis", 0),
        batch       = (int)tni_onnx_attr_int(c, "batch_axis", 1);
    if (!x || !length) return false;
    if (tn_rank(x) < 2 || time + batch != 1 || time < 0 || batch < 0)
        return tni_onnx_refuse(c, "its axes are not 0 and 1");
    int64_t    n = tn_size(x, time);
    tn_tensor *t = tn_arange_i64(c->cx, TN_I64, 0, n, 1), *l = tn_cast(length, TN_I64);
    t = tn_unsqueeze(t, time == 0 ? 1 : 0);
    l = tn_unsqueeze(l, time == 0 ? 0 : 1);
    t = tn_where(tn_lt(t, l), tn_sub(tn_add_i64(l, -1), t), t);
    for (int i = 2; t && i < tn_rank(x); i++) t = tn_unsqueeze(t, -1);
    return tni_onnx_out(c, 0, tn_take_along_axis(x, t, time));
}

// Cuts or pads axes in the middle to a shape.
// Of an odd number of places the one more is at the end.
bool tni_onnx_center_crop_pad(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t    size[TN_MAX_RANK], axes[TN_MAX_RANK], before[TN_MAX_RANK] = { 0 },
                                                  after[TN_MAX_RANK] = { 0 };
    int n, some;
    if (!x || !tni_onnx_ints(c, 1, TN_MAX_RANK, size, &n) ||
        !tni_onnx_attr_ints(c, "axes", TN_MAX_RANK, axes, &some))
        return false;
    if (n != (some < 0 ? tn_rank(x) : some))
        return tni_onnx_refuse(c, "shape has %d sizes for x %s", n, tni_shape_of(x).s);
    for (int i = 0; i < n; i++) {
        int64_t a = some < 0 ? i : axes[i] < 0 ? axes[i] + tn_rank(x) : axes[i];
        if (a < 0 || a >= tn_rank(x) || size[i] < 0)
            return tni_onnx_refuse(c, "an axis or size is out of range of x %s", tni_shape_of(x).s);
        int64_t more = size[i] - tn_size(x, (int)a);
        before[a]    = more / 2;
        after[a]     = more - before[a];
    }
    return tni_onnx_out(c, 0,
                        tni_is_float(tn_dtype_of(x)) ? tn_pad(x, before, after, 0)
                                                     : tn_pad_i64(x, before, after, 0));
}

// Places of all taps of all windows in an image of n axes as one line, taps outermost, as the axes
// of x have them. -1 of those outside is never read: they lie in pads, which the image has around
// it.
static void tap_places(int n, const int64_t *image, const int64_t *block, const int64_t *stride,
                       const int64_t *dilation, const int64_t *windows, int64_t taps, int64_t count,
                       int64_t *at)
{
    for (int64_t i = 0; i < taps * count; i++) {
        int64_t tap = i / count, window = i % count, place = 0, scale = 1;
        for (int a = n - 1; a >= 0; a--) {
            place += scale * (tap % block[a] * dilation[a] + window % windows[a] * stride[a]);
            tap /= block[a];
            window /= windows[a];
            scale *= image[a];
        }
        at[i] = place;
    }
}

// Col2Im(x, image, block; strides, dilations, pads): sums windows up at their places.
// The inverse of taking windows as columns, but for elements that several windows have. Sums go to
// a larger image, of which the pads are cut.
bool tni_onnx_col2im(tni_onnx_call *c)
{
    enum { AXES = 5 };
    tn_tensor *x = tni_onnx_in(c, 0);
    int64_t image[AXES], block[AXES], stride[AXES], dilation[AXES], pads[2 * AXES], windows[AXES];
    int64_t before[AXES + 2] = { 0 }, after[AXES + 2] = { 0 }, size[AXES + 2], taps = 1, count = 1,
                          places = 1;
    int n, m, strides, dilations, padded;
    if (!x || !tni_onnx_ints(c, 1, AXES, image, &n) || !tni_onnx_ints(c, 2, AXES, block, &m) ||
        !tni_onnx_attr_ints(c, "strides", AXES, stride, &strides) ||
        !tni_onnx_attr_ints(c, "dilations", AXES, dilation, &dilations) ||
        !tni_onnx_attr_ints(c, "pads", 2 * AXES, pads, &padded))
        return false;
    bool ok = n > 0 && n == m && tn_rank(x) == 3 && (strides < 0 || strides == n) &&
              (dilations < 0 || dilations == n) && (padded < 0 || padded == 2 * n);
    for (int i = 0; ok && i < n; i++) {
        if (strides < 0) stride[i] = 1;
        if (dilations < 0) dilation[i] = 1;
        if (padded < 0) pads[i] = pads[n + i] = 0;
        before[2 + i] = -pads[i];
        after[2 + i]  = -pads[n + i];
        image[i] += pads[i] + pads[n + i];
        size[2 + i] = image[i];
        ok          = stride[i] > 0 && dilation[i] > 0 && block[i] > 0 && image[i] < INT32_MAX &&
             (windows[i] = (image[i] - dilation[i] * (block[i] - 1) - 1) / stride[i] + 1) > 0 &&
             !__builtin_mul_overflow(taps, block[i], &taps) &&
             !__builtin_mul_overflow(count, windows[i], &count) &&
             !__builtin_mul_overflow(places, image[i], &places);
    }
    if (!ok || tn_size(x, 2) != count || tn_size(x, 1) % taps)
        return tni_onnx_refuse(c, "image and block do not fit x %s", tni_shape_of(x).s);
    int64_t N = tn_size(x, 0), C = tn_size(x, 1) / taps;
    size[0] = N, size[1] = C;
    if (n == 2) {
        tn_conv_opts o = { .stride   = { stride[0], stride[1] },
                           .dilation = { dilation[0], dilation[1] } };
        x              = tn_fold_windows(x, image[0], image[1], block[0], block[1], o);
    } else {
        int64_t *at = tni_alloc(&c->r->cx->heap, (size_t)(taps * count) * sizeof *at);
        if (!at) return tni_fail_memory(c->r->cx, c->r->m->op) != NULL;
        tap_places(n, image, block, stride, dilation, windows, taps, count, at);
        x = tn_index_add(tn_zeros(c->cx, tn_dtype_of(x), TN_SHAPE(N, C, places)), 2,
                         tn_from(c->cx, TN_I64, TN_SHAPE(taps * count), at),
                         tn_reshape(x, TN_SHAPE(N, C, taps * count)));
        x = tn_reshape(x, n + 2, size);
        tni_free(&c->r->cx->heap, at);
    }
    return tni_onnx_out(c, 0, tn_pad(x, before, after, 0));
}

// TensorScatter(past, update, places; axis, mode): a cache with new keys at a place of its own in
// each batch, in a ring if mode is circular.
bool tni_onnx_tensor_scatter(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *v = tni_onnx_in(c, 1), *at = tni_onnx_in(c, 2);
    int        axis = (int)tni_onnx_attr_int(c, "axis", -2);
    int64_t    size[TN_MAX_RANK], line[TN_MAX_RANK], batch[TN_MAX_RANK];
    if (!x || !v || (tni_onnx_has(c, 2) && !at)) return false;
    if (axis < 0) axis += tn_rank(x);
    if (axis < 1 || axis >= tn_rank(x) || tn_rank(v) != tn_rank(x))
        return tni_onnx_refuse(c, "axis %d or update %s does not fit x %s", axis, tni_shape_of(v).s,
                               tni_shape_of(x).s);
    for (int i = 0; i < tn_rank(x); i++) {
        size[i]  = tn_size(v, i);
        line[i]  = i == axis ? size[i] : 1;
        batch[i] = i == 0 ? size[i] : 1;
    }
    tn_tensor *place = tn_reshape(tn_arange_i64(c->cx, TN_I64, 0, size[axis], 1), tn_rank(x), line);
    if (at) place = tn_add(place, tn_reshape(tn_cast(at, TN_I64), tn_rank(x), batch));
    if (tni_onnx_attr_is(c, "mode", "circular", false))
        place = tn_remainder(place, tn_full_like_i64(place, tn_size(x, axis)));
    return tni_onnx_out(c, 0, tn_scatter(x, axis, tn_expand(place, tn_rank(x), size), v));
}

// ---- Unique ------------------------------------------------------------------------------------

//   x        2 1 1 3 4 3
//   unique   1 2 3 4        first 1 0 3 4    inverse 1 0 0 2 3 2    counts 2 1 2 1
//   not sorted: 2 1 3 4
//
// Lines of m numbers each, by which places are sorted.
typedef struct {
    const double  *real;
    const int64_t *whole;
    int64_t        m;
} line_set;

// Before 0, equal 0, behind: above it. A NaN is behind all numbers.
static int compare_lines(const void *a, const void *b, void *user)
{
    const line_set *l = user;
    int64_t         i = *(const int64_t *)a * l->m, j = *(const int64_t *)b * l->m;
    for (int64_t k = 0; k < l->m; k++) {
        if (l->whole && l->whole[i + k] != l->whole[j + k])
            return l->whole[i + k] < l->whole[j + k] ? -1 : 1;
        if (l->whole || l->real[i + k] == l->real[j + k]) continue;
        if (l->real[i + k] != l->real[i + k]) return 1;
        return l->real[i + k] > l->real[j + k] ? 1 : -1;
    }
    return 0;
}

// The same, of equal lines the first one first.
static int compare_places(const void *a, const void *b, void *user)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    int     d = compare_lines(a, b, user);
    return d ? d : (i > j) - (i < j);
}

// Groups by where their first line is.
static int compare_first(const void *a, const void *b, void *user)
{
    const int64_t *first = user;
    int64_t        i = first[*(const int64_t *)a], j = first[*(const int64_t *)b];
    return (i > j) - (i < j);
}

// Of n places, sorted: writes for each group of equal lines its first place and count, and for each
// place its group. Returns how many groups there are, in order of lines or, unsorted, of their
// first places. order: n more numbers.
static int64_t group_lines(line_set *l, int64_t n, bool sorted, int64_t *at, int64_t *order,
                           int64_t *first, int64_t *inverse, int64_t *count)
{
    int64_t groups = 0;
    for (int64_t i = 0; i < n; i++) at[i] = i;
    qsort_r(at, (size_t)n, sizeof *at, compare_places, l);
    for (int64_t i = 0; i < n; i++) {
        if (!i || compare_lines(&at[i - 1], &at[i], l)) {
            first[groups]   = at[i];
            count[groups++] = 0;
        }
        count[groups - 1]++;
        inverse[at[i]] = groups - 1;
    }
    if (sorted) return groups;
    for (int64_t i = 0; i < groups; i++) at[i] = i;
    qsort_r(at, (size_t)groups, sizeof *at, compare_first, first);
    for (int64_t i = 0; i < groups; i++) order[at[i]] = i;
    for (int64_t i = 0; i < n; i++) inverse[i] = order[inverse[i]];
    for (int64_t i = 0; i < groups; i++) order[i] = first[at[i]];
    for (int64_t i = 0; i < groups; i++) first[i] = order[i];
    for (int64_t i = 0; i < groups; i++) order[i] = count[at[i]];
    for (int64_t i = 0; i < groups; i++) count[i] = order[i];
    return groups;
}

// Unique(x; axis, sorted): lines along an axis, or elements, without those that are there already;
// where the first of each is, where each place went, and how many there were. Lines are compared on
// the host.
bool tni_onnx_unique(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    if (!x) return false;
    bool flat = !tni_onnx_has_attr(c, "axis"), real = tni_is_float(tn_dtype_of(x));
    int  axis = flat ? 0 : (int)tni_onnx_attr_int(c, "axis", 0);
    if (flat) x = tn_reshape(x, TN_SHAPE(-1));
    if (axis < 0) axis += tn_rank(x);
    if (axis < 0 || axis >= tn_rank(x))
        return tni_onnx_refuse(c, "axis %d is out of range of x %s", axis, tni_shape_of(x).s);
    int64_t   n = tn_size(x, axis), count = tn_count(x), groups = 0;
    tni_heap *h    = &c->r->cx->heap;
    int64_t  *room = tni_alloc(h, (size_t)(count + 5 * n + 1) * sizeof *room),
            *at    = room ? room + count : NULL;
    line_set l     = { .real  = real ? (double *)room : NULL,
                       .whole = real ? NULL : room,
                       .m     = n ? count / n : 0 };
    bool ok = room && tn_read(tn_contiguous(tn_transpose(x, 0, axis)), real ? TN_F64 : TN_I64, room,
                              count) == TN_OK;
    if (!room) tni_fail_memory(c->r->cx, c->r->m->op);
    int64_t *first = at + 2 * n, *inverse = at + 3 * n, *counts = at + 4 * n;
    if (ok)
        groups = group_lines(&l, n, tni_onnx_attr_int(c, "sorted", 1) != 0, at, at + n, first,
                             inverse, counts);
    tn_ctx *host = c->r->host;
    ok           = ok &&
         tni_onnx_out(c, 0,
                      tn_index_select(x, axis, tn_from(c->cx, TN_I64, TN_SHAPE(groups), first))) &&
         tni_onnx_out(c, 1, tn_from(host, TN_I64, TN_SHAPE(groups), first)) &&
         tni_onnx_out(c, 2, tn_from(host, TN_I64, TN_SHAPE(n), inverse)) &&
         tni_onnx_out(c, 3, tn_from(host, TN_I64, TN_SHAPE(groups), counts));
    tni_free(h, room);
    return ok;
}
