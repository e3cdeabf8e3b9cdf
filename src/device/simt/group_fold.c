// Scans, places of extrema, and the adjoint of views, by the kernels of group_text_fold.c.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

// ---- scans -------------------------------------------------------------------------------------

tn_status tni_groups_scan(const tni_groups *via, const tni_call *c)
{
    const tni_arg *in = &c->in[0], *out = &c->out;
    int            axis = c->attr->axis.axis, product = c->op == TNI_cumprod;
    tni_axes       lines = { .rank = out->rank };
    for (int i = 0; i < out->rank; i++) {
        lines.size[i]      = i == axis ? 1 : out->size[i];
        lines.stride[0][i] = in->stride[i];
        lines.stride[1][i] = out->stride[i];
    }
    tni_axes_merge(&lines, 2);

    tni_hand  h;
    tn_status s = tni_hand_begin(&h, via, c, tni_text_fold, "scan", in->dtype, out->dtype);
    if (s != TN_OK) return s;
    tni_hand_arg(&h, &lines, 0, in->data, in->dtype);
    tni_hand_arg(&h, &lines, 1, out->data, out->dtype);
    tni_hand_long(&h, out->size[axis]);
    tni_hand_long(&h, in->stride[axis]);
    tni_hand_long(&h, out->stride[axis]);
    tni_hand_pass(&h, &product, sizeof product);
    return tni_hand_groups(&h, tni_axes_count(&lines), c->why);
}

// ---- places of extrema -------------------------------------------------------------------------

// The axes of in that stay, or those that are folded; in row-major order, which is what is counted.
static tni_axes axes_of(const tni_call *c, bool folded)
{
    const tni_arg *in = &c->in[0];
    tni_axes       a  = { .rank = in->rank };
    for (int i = 0; i < in->rank; i++) {
        bool gone      = c->attr->reduce.axes >> i & 1;
        a.size[i]      = gone == folded ? in->size[i] : 1;
        a.stride[0][i] = in->stride[i];
    }
    tni_axes_merge(&a, 1);
    return a;
}

tn_status tni_groups_arg_reduce(const tni_groups *via, const tni_call *c)
{
    const tni_arg *in     = &c->in[0];
    int            lowest = c->op == TNI_argmin;
    tni_axes       stay = axes_of(c, false), gone = axes_of(c, true);

    tni_hand  h;
    tn_status s = tni_hand_begin(&h, via, c, tni_text_fold, "arg_reduce", in->dtype, TN_I64);
    if (s != TN_OK) return s;
    tni_hand_arg(&h, &stay, 0, in->data, in->dtype);
    tni_hand_axes(&h, &gone, 0, 0);
    tni_hand_long(&h, tni_hand_buffer(&h, c->out.data) / 8);
    tni_hand_long(&h, tni_axes_count(&gone));
    tni_hand_pass(&h, &lowest, sizeof lowest);
    return tni_hand_groups(&h, tni_axes_count(&stay), c->why);
}

// ---- the adjoint of a view ---------------------------------------------------------------------

// Whether axes, by falling stride of argument 0, each step past all that lies behind them.
static bool apart(const tni_axes *a)
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
static void divide(const tni_axes *view, tni_axes *in, tni_axes *tap)
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
        if (apart(&more)) *in = more;
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

tn_status tni_groups_fold(const tni_groups *via, const tni_call *c)
{
    const tni_arg *x     = &c->in[0];
    int64_t        bytes = (int64_t)tni_dtype_size(x->dtype), at, from;
    int64_t        count = tni_shape_count(c->out.rank, c->out.size);
    bool           empty = tni_shape_count(x->rank, x->size) == 0;
    tni_axes       view  = view_axes(c, &at, &from), in, tap;
    divide(&view, &in, &tap);

    tni_hand  h;
    tn_status s = tni_hand_begin(&h, via, c, tni_text_fold, "fold", x->dtype, x->dtype);
    if (s != TN_OK) return s;
    from += tni_hand_buffer(&h, x->data) / bytes;
    tni_hand_long(&h, tni_hand_buffer(&h, c->out.data) / bytes);
    tni_hand_long(&h, count);
    tni_hand_axes(&h, &in, 0, 0);
    tni_hand_axes(&h, &in, 1, 0);
    tni_hand_axes(&h, &tap, 0, at);
    tni_hand_axes(&h, &tap, 1, from);
    tni_hand_long(&h, empty ? 0 : tni_axes_count(&tap));
    return tni_hand_items(&h, count, c->why);
}
