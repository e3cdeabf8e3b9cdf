// The adjoint of views (fold), by the kernel of group_text_fold.c: each element of the base sums
// the elements of the view that show it.
//
// A view may show an element several times (windows that overlap). Its axes are split in two: `in`
// are axes that together show each element at most once, so that an element's index along them is
// found by division; `tap` are the rest, whose combinations are tried one after the other. A window
// of 3 x 3 gives nine taps.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// Returns whether axes, sorted by falling stride in the base, show no element twice: each stride is
// longer than all that the axes behind it span.
static bool is_injective(const tni_axes *a)
{
    int64_t span = 0;
    for (int i = a->rank - 1; i >= 0; i--) {
        if (a->stride[0][i] <= span) return false;
        span += a->stride[0][i] * (a->size[i] - 1);
    }
    return true;
}

static void append_axis(tni_axes *to, const tni_axes *from, int i)
{
    int r            = to->rank++;
    to->size[r]      = from->size[i];
    to->stride[0][r] = from->stride[0][i];
    to->stride[1][r] = from->stride[1][i];
}

// Tries the axes from the largest on, so that `tap`, whose sizes multiply the work, gets the
// smallest.
static void split_axes(const tni_axes *view, tni_axes *in, tni_axes *tap)
{
    uint32_t taken = 0;
    *in = *tap = (tni_axes){ 0 };
    for (int n = 0; n < view->rank; n++) {
        int most = -1;
        for (int i = 0; i < view->rank; i++)
            if (!(taken >> i & 1) && (most < 0 || view->size[i] > view->size[most])) most = i;
        taken |= 1u << most;
        tni_axes more = *in;
        append_axis(&more, view, most);
        tni_axes_sort(&more, 0);
        if (is_injective(&more)) *in = more;
        else append_axis(tap, view, most);
    }
}

// Returns the view's axes with their strides in the base (0) and in x (1). An axis that runs
// backwards in the base is reversed, since division needs positive strides; *at and *from are where
// the two then begin.
static tni_axes view_axes(const tni_call *c, int64_t *at, int64_t *from)
{
    const tni_arg *x = &c->in[0];
    tni_axes       a = { .rank = x->rank };
    *at              = c->attr->view.offset;
    *from            = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t to = c->attr->view.stride[i], step = x->stride[i];
        if (to < 0) {
            *at += to * (x->size[i] - 1);
            *from += step * (x->size[i] - 1);
            to   = -to;
            step = -step;
        }
        a.size[i]      = x->size[i];
        a.stride[0][i] = to;
        a.stride[1][i] = step;
    }
    tni_axes_merge(&a, 2);
    return a;
}

// An empty view has no taps, and the result is zeros.
tn_status tni_groups_fold(const tni_call *c)
{
    const tni_arg *x     = &c->in[0];
    int64_t        bytes = (int64_t)tni_dtype_size(x->dtype), at, from;
    int64_t        count = tni_shape_count(c->out.rank, c->out.size);
    bool           empty = tni_shape_count(x->rank, x->size) == 0;
    tni_axes       view  = view_axes(c, &at, &from), in, tap;
    split_axes(&view, &in, &tap);

    tni_kernel_args h;
    tn_status       s = tni_kernel_args_begin(&h, c, tni_text_fold, "fold", x->dtype, x->dtype);
    if (s != TN_OK) return s;
    from += tni_kernel_args_add_buffer(&h, x->data) / bytes;
    tni_kernel_args_add_long(&h, tni_kernel_args_add_buffer(&h, c->out.data) / bytes);
    tni_kernel_args_add_long(&h, count);
    tni_kernel_args_add_axes(&h, &in, 0, 0);
    tni_kernel_args_add_axes(&h, &in, 1, 0);
    tni_kernel_args_add_axes(&h, &tap, 0, at);
    tni_kernel_args_add_axes(&h, &tap, 1, from);
    tni_kernel_args_add_long(&h, empty ? 0 : tni_axes_count(&tap));
    return tni_kernel_args_launch_items(&h, count, c->why);
}
