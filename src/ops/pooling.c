// Pooling: windows are views, and a pool reduces their last axes; the planner computes both in one
// kernel. The result has x's memory format. The gradient of a maximum goes to the first of equal
// elements of a window, in row-major order, as in PyTorch.
#include "ops/composite.h"

// The windows along the last `axes` axes of x.
typedef struct {
    const char *op;
    int         axes;
    int64_t     kernel[3], stride[3], padding[3], dilation[3];
    bool        ceil;  // a window more, where the last one leaves elements over
} pool;

// "(2, 3)", for messages.
static tni_text kernel_text(const pool *p)
{
    return tni_shape_text(p->axes, p->kernel);
}

// Fills in the defaults; a stride of 0 is the kernel's size.
static pool fill_pool(const char *op, int axes, const int64_t *kernel, const tn_pool_opts *o)
{
    pool p = { .op = op, .axes = axes, .ceil = o->ceil_mode };
    for (int i = 0; i < axes; i++) {
        p.kernel[i]   = kernel[i];
        p.stride[i]   = tni_option_at(o->stride, i, kernel[i]);
        p.padding[i]  = tni_option_at(o->padding, i, 0);
        p.dilation[i] = tni_option_at(o->dilation, i, 1);
    }
    return p;
}

// The number of windows along n elements, 0 if there is none. In ceil mode the last may reach
// beyond the padding, if it begins in x or before it.
static int64_t count_windows(const pool *p, int i, int64_t n)
{
    int64_t s = p->stride[i], pad = p->padding[i], span = (p->kernel[i] - 1) * p->dilation[i] + 1;
    int64_t room = n + 2 * pad - span + (p->ceil ? s - 1 : 0);
    if (room < 0) return 0;
    int64_t windows = room / s + 1;
    return p->ceil && (windows - 1) * s >= n + pad ? windows - 1 : windows;
}

// Whether axis i of the windows fits into n elements. Padding of at most half a window, as in
// PyTorch: every window then spans an element of x, which with dilation may lie between its own.
static bool window_fits(const pool *p, int i, int64_t n)
{
    int64_t k = p->kernel[i], d = p->dilation[i], pad = p->padding[i];
    if (k < 1 || d < 1 || p->stride[i] < 1 || pad < 0) return false;
    if (k > 1 && d > (INT64_MAX / 4) / (k - 1)) return false;
    if (p->stride[i] > INT64_MAX / 4) return false;
    return pad <= ((k - 1) * d + 1) / 2 && n >= 1 && count_windows(p, i, n) > 0;
}

// Ranks with and without a batch axis; the message has all options, since any of them may be wrong.
static bool check_pool(const pool *p, tn_tensor *x)
{
    tn_ctx *cx = tni_arg1(p->op, x, "x");
    if (!cx) return false;
    static const char *const shapes[] = { "C, L", "C, H, W", "C, D, H, W" };
    const char              *shape    = shapes[p->axes - 1];
    int                      rank     = tn_rank(x);
    if (rank != p->axes + 1 && rank != p->axes + 2) {
        tni_fail(cx, TN_ESHAPE, "%s: x %s is not (%s) or (N, %s)", p->op, tni_shape_of(x).s, shape,
                 shape);
        return false;
    }
    for (int i = 0; i < p->axes; i++)
        if (!window_fits(p, i, tn_size(x, rank - p->axes + i))) {
            tni_fail(cx, TN_EARG,
                     "%s: kernel %s with stride %lld, padding %lld (at most half of it), dilation "
                     "%lld does not fit axis %d of x %s",
                     p->op, kernel_text(p).s, (long long)p->stride[i], (long long)p->padding[i],
                     (long long)p->dilation[i], rank - p->axes + i, tni_shape_of(x).s);
            return false;
        }
    return true;
}

// x with its axes in memory order, and where each of its own axes went.
typedef struct {
    tn_tensor *x;
    bool       moved;
    int        order[TN_MAX_RANK];
} memory_axes;

// The windows are made of x in memory order, so that the kernel reads forward, also channels last.
static memory_axes in_memory_order(tn_tensor *x)
{
    memory_axes l = { .x = x };
    l.moved       = x->view && tni_view_order(x->view, l.order);
    if (l.moved) l.x = tni_permuted_view(x, l.order);
    return l;
}

// Where an axis of x is among the permuted ones.
static int axis_place(const memory_axes *l, int axis)
{
    int i = 0;
    while (l->moved && l->order[i] != axis) i++;
    return l->moved ? i : axis;
}

// The result with its axes back in their places.
static tn_tensor *show_in_order(const memory_axes *l, tn_tensor *y)
{
    return l->moved ? tni_show_permuted(y, l->order) : y;
}

// One axis of the windows: the kernel without the ends that meet padding in every window, and what
// remains of the padding before and after x. So a kernel of 2^33 over one element costs one
// element.
typedef struct {
    int64_t kernel, before, after, windows;
} extent;

// `skip` elements at the kernel's start only ever meet padding, and elements beyond `reach` are
// past x for every window.
static extent extent_of(const pool *p, int i, int64_t n)
{
    int64_t d = p->dilation[i], pad = p->padding[i];
    int64_t windows = count_windows(p, i, n), last = (windows - 1) * p->stride[i];
    int64_t skip = pad > last ? (pad - last) / d : 0, reach = (pad + n - 1) / d + 1;
    extent  e   = { .kernel  = (p->kernel[i] < reach ? p->kernel[i] : reach) - skip,
                    .before  = pad - skip * d,
                    .windows = windows };
    int64_t end = last + (e.kernel - 1) * d + 1 - e.before;  // of the last window, from x's first
    e.after     = end > n ? end - n : 0;
    return e;
}

// x padded with `fill`, and its windows in `axes` more axes at the end.
static tn_tensor *pool_windows(const pool *p, const memory_axes *l, int first, double fill)
{
    int64_t    before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    extent     e[3];
    bool       any = false;
    tn_tensor *x   = l->x;
    for (int i = 0; i < p->axes; i++) {
        int axis     = axis_place(l, first + i);
        e[i]         = extent_of(p, i, tn_size(x, axis));
        before[axis] = e[i].before;
        after[axis]  = e[i].after;
        any |= e[i].before || e[i].after;
    }
    // A pad is a copy only if nothing fuses with it.
    if (any) x = tn_pad(x, before, after, fill);
    for (int i = 0; i < p->axes; i++) {
        int axis = axis_place(l, first + i);
        x        = tn_window_dilated(x, axis, e[i].kernel, p->stride[i], p->dilation[i]);
        // A dilated kernel that lost its end fits more often than the whole one.
        if (x && tn_size(x, axis) > e[i].windows) x = tn_slice(x, axis, 0, e[i].windows, 1);
    }
    return x;
}

// The axes that pool_windows added.
static uint32_t window_axes(const pool *p, tn_tensor *w)
{
    return ((1u << p->axes) - 1) << (tn_rank(w) - p->axes);
}

// The value that no element is below: padding never wins a maximum.
static double lowest(tn_dtype dt)
{
    return tni_is_float(dt) ? -INFINITY : tni_dtype_table[dt].low;
}

static tn_tensor *traced_pool(tn_tensor *y, tni_kept_kind kind, const pool *p, tn_tensor *x,
                              bool exclude_padding)
{
    tni_kept c = { .kind = kind, .i = { p->axes, p->ceil, [14] = exclude_padding } };
    for (int i = 0; i < p->axes; i++) {
        c.i[2 + i]  = p->kernel[i];
        c.i[5 + i]  = p->stride[i];
        c.i[8 + i]  = p->padding[i];
        c.i[11 + i] = p->dilation[i];
    }
    return tni_traced(y, 1, &x, c);
}

// A maximum over windows of x padded with the lowest value.
static tn_tensor *max_pool(const pool *p, tn_tensor *x)
{
    if (!check_pool(p, x)) return NULL;
    memory_axes l      = in_memory_order(x);
    tn_tensor  *w      = pool_windows(p, &l, tn_rank(x) - p->axes, lowest(tn_dtype_of(x)));
    bool        padded = p->padding[0] || p->padding[1] || p->padding[2] || p->ceil;
    if (!w) return NULL;
    tn_tensor *y = tni_first_max(p->op, w, window_axes(p, w), false, padded);
    return traced_pool(show_in_order(&l, y), TNI_KEPT_max_pool, p, x, false);
}

// The sums of all windows.
static tn_tensor *window_sums(const pool *p, tn_tensor *x)
{
    if (!x) return NULL;
    memory_axes l = in_memory_order(x);
    tn_tensor  *w = pool_windows(p, &l, tn_rank(x) - p->axes, 0);
    return w ? show_in_order(&l, tni_sum_over(w, p->op, window_axes(p, w), false)) : NULL;
}

// How many elements of each window count: those of x or, unless they are excluded, of x and its
// padding, but not what a last window reaches beyond it. The sums of windows of ones.
static tn_tensor *window_counts(const pool *p, tn_tensor *x, tn_dtype dt, bool exclude_padding)
{
    tni_view s = tni_layout(x);
    int64_t *n = s.size + s.rank - p->axes;
    pool     q = *p;
    extent   e[3];
    for (int i = 0; i < p->axes; i++) {
        e[i] = extent_of(p, i, n[i]);
        if (exclude_padding) continue;
        n[i] += 2 * p->padding[i];
        q.padding[i] = 0;
    }
    tn_tensor *y = window_sums(&q, tn_ones(x->cx, dt, p->axes, n));
    // Rows, columns and planes each have their own number of windows.
    // Without its padding, another last window may begin before the end.
    for (int i = 0; i < p->axes; i++) y = tn_slice(y, i, 0, e[i].windows, 1);
    return y;
}

static tn_tensor *avg_pool(const pool *p, tn_tensor *x, bool exclude_padding)
{
    if (!check_pool(p, x) || !tni_want_float(x, p->op)) return NULL;
    tn_tensor *y = window_sums(p, tni_widen(x));
    if (!y) return NULL;
    if (exclude_padding || p->ceil) {
        y = tn_div(y, window_counts(p, x, tn_dtype_of(y), exclude_padding));
    } else {
        double count = 1;
        for (int i = 0; i < p->axes; i++) count *= (double)p->kernel[i];
        y = tn_div_s(y, count);
    }
    y = tni_narrow(y, tn_dtype_of(x));
    return traced_pool(y, TNI_KEPT_avg_pool, p, x, exclude_padding);
}

tn_tensor *tn_max_pool1d(tn_tensor *x, int64_t kernel, tn_pool_opts o)
{
    pool p = fill_pool("max_pool1d", 1, &kernel, &o);
    return max_pool(&p, x);
}

tn_tensor *tn_avg_pool1d(tn_tensor *x, int64_t kernel, tn_pool_opts o)
{
    pool p = fill_pool("avg_pool1d", 1, &kernel, &o);
    return avg_pool(&p, x, o.exclude_padding);
}

tn_tensor *tn_max_pool2d(tn_tensor *x, int64_t kh, int64_t kw, tn_pool_opts o)
{
    pool p = fill_pool("max_pool2d", 2, (int64_t[]){ kh, kw }, &o);
    return max_pool(&p, x);
}

tn_tensor *tn_avg_pool2d(tn_tensor *x, int64_t kh, int64_t kw, tn_pool_opts o)
{
    pool p = fill_pool("avg_pool2d", 2, (int64_t[]){ kh, kw }, &o);
    return avg_pool(&p, x, o.exclude_padding);
}

tn_tensor *tn_max_pool3d(tn_tensor *x, int64_t kd, int64_t kh, int64_t kw, tn_pool_opts o)
{
    pool p = fill_pool("max_pool3d", 3, (int64_t[]){ kd, kh, kw }, &o);
    return max_pool(&p, x);
}

tn_tensor *tn_avg_pool3d(tn_tensor *x, int64_t kd, int64_t kh, int64_t kw, tn_pool_opts o)
{
    pool p = fill_pool("avg_pool3d", 3, (int64_t[]){ kd, kh, kw }, &o);
    return avg_pool(&p, x, o.exclude_padding);
}

// ---- adaptive: a given number of regions -------------------------------------------------------

// A reduction along one axis: tn_mean, tn_mean_keep or the maxima below.
typedef tn_tensor *reduction(tn_tensor *x, int axis);

// Region i of n is from floor(i size / n) to ceil((i + 1) size / n), as in PyTorch: they may
// overlap and differ in size, so each is a slice of its own.
static tn_tensor *uneven_regions(tn_tensor *x, const char *op, int axis, int64_t n, reduction *keep)
{
    tn_ctx     *cx   = x->cx;
    int64_t     size = tn_size(x, axis);
    tn_tensor **part = n <= INT32_MAX ? tni_alloc(&cx->heap, (size_t)n * sizeof *part) : NULL;
    if (!part) return tni_fail_memory(cx, op);
    for (int64_t i = 0; i < n; i++) {
        int64_t start = i * size / n, stop = ((i + 1) * size + n - 1) / n;
        part[i] = keep(tn_slice(x, axis, start, stop, 1), axis);
    }
    tn_tensor *y = tn_concat((int)n, part, axis);
    tni_free(&cx->heap, part);
    return y;
}

// Equal regions are windows side by side, one op; others are reduced one by one.
static tn_tensor *pool_regions(tn_tensor *x, const char *op, int axis, int64_t n, reduction *drop,
                               reduction *keep)
{
    if (!x) return NULL;
    int64_t size = tn_size(x, axis);
    if (size % n) return uneven_regions(x, op, axis, n, keep);
    return drop(tn_window(x, axis, size / n, size / n), -1);
}

// A region of an image is one of rows by one of columns, so each axis can be reduced by itself:
// first within rows, so that the first of equal maxima is that of the first row that has one.
static tn_tensor *adaptive(tn_tensor *x, const char *op, int64_t h, int64_t w, reduction *drop,
                           reduction *keep)
{
    tn_ctx *cx = tni_arg1(op, x, "x");
    if (!cx) return NULL;
    int  rank = tn_rank(x);
    bool fit  = rank == 3 || rank == 4;
    if (!fit || tn_size(x, -1) < 1 || tn_size(x, -2) < 1)
        return tni_fail(cx, TN_ESHAPE, "%s: x %s is not (C, H, W) or (N, C, H, W)", op,
                        tni_shape_of(x).s);
    if (h < 1 || w < 1)
        return tni_fail(cx, TN_EARG, "%s: %lld by %lld is not a size for x %s", op, (long long)h,
                        (long long)w, tni_shape_of(x).s);
    tn_tensor *y = tni_widen(x);
    if (!y) return NULL;
    memory_axes l = in_memory_order(y);
    y             = pool_regions(l.x, op, axis_place(&l, rank - 1), w, drop, keep);
    y             = pool_regions(y, op, axis_place(&l, rank - 2), h, drop, keep);
    return tni_narrow(show_in_order(&l, y), tn_dtype_of(x));
}

tn_tensor *tn_adaptive_avg_pool2d(tn_tensor *x, int64_t h, int64_t w)
{
    const char *op = "adaptive_avg_pool2d";
    if (!tni_arg1(op, x, "x") || !tni_want_float(x, op)) return NULL;
    tn_tensor *y = adaptive(x, op, h, w, tn_mean, tn_mean_keep);
    if (h != 1 || w != 1) return y;
    return tni_traced(y, 1, &x, (tni_kept){ .kind = TNI_KEPT_global_avg_pool });
}

// Maxima whose gradient goes to the first of equal elements, without and with the axis kept.
static tn_tensor *max_drop(tn_tensor *x, int axis)
{
    if (!x) return NULL;
    uint32_t mask = 1u << (axis < 0 ? axis + tn_rank(x) : axis);
    return tni_first_max("adaptive_max_pool2d", x, mask, false, false);
}

static tn_tensor *max_keep(tn_tensor *x, int axis)
{
    return tni_first_max("adaptive_max_pool2d", x, 1u << axis, true, false);
}

tn_tensor *tn_adaptive_max_pool2d(tn_tensor *x, int64_t h, int64_t w)
{
    return adaptive(x, "adaptive_max_pool2d", h, w, max_drop, max_keep);
}
