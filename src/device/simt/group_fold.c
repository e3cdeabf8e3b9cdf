// The adjoint of views, by the kernel of group_text_fold.c.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// Whether axes, by falling stride of argument 0, each step past all that lies behind them.
static bool is_injective(const tni_axes *a)
{
    int64_t span = 0;
    for (int i = a->rank - 1; i >= 0; i--) {
        if (a->stride[0][i] <= span) return false;
        span += a->stride[0][i] * (a->size[i] - 1);
    }
    return true;
}

static void add_axis(tni_axes *to, const tni_axes *from, int i)
{
    int r            = to->rank++;
    to->size[r]      = from->size[i];
    to->stride[0][r] = from->stride[0][i];
    to->stride[1][r] = from->stride[1][i];
}

// Divides the axes of a view: `in` visit no place twice, the largest axes first; the rest are
// tried.
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
        add_axis(&more, view, most);
        tni_axes_sort(&more, 0);
        if (is_injective(&more)) *in = more;
        else add_axis(tap, view, most);
    }
}

// The view's axes with strides in the base (0) and in x (1). An axis that goes backwards in the
// base is turned round; *at and *from are where the two then begin.
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
