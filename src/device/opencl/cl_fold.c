// Scans, places of extrema, and the adjoint of views, by the kernels of cl_text.c.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

#include <string.h>

// ---- scans -------------------------------------------------------------------------------------

tn_status tni_cl_scan(const tni_call *c)
{
    const tni_arg *in = &c->in[0], *out = &c->out;
    int            axis = c->attr->axis.axis, product = c->op == TNI_cumprod;
    tni_cl_axes    lines = { .rank = out->rank };
    for (int i = 0; i < out->rank; i++) {
        lines.size[i]      = i == axis ? 1 : out->size[i];
        lines.stride[0][i] = in->stride[i];
        lines.stride[1][i] = out->stride[i];
    }
    tni_cl_merge(&lines, 2);

    tni_cl_launch l;
    tni_cl_lock();
    tn_status s = tni_cl_kernel_of(tni_cl_text_fold, "scan", in->dtype, out->dtype, &l, c->why);
    if (s == TN_OK) {
        tni_cl_shape x = tni_cl_shape_of(&lines, 0, tni_cl_pass_buffer(&l, in->data), in->dtype);
        tni_cl_pass(&l, &x, sizeof x);
        tni_cl_shape y = tni_cl_shape_of(&lines, 1, tni_cl_pass_buffer(&l, out->data), out->dtype);
        tni_cl_pass(&l, &y, sizeof y);
        tni_cl_pass_long(&l, out->size[axis]);
        tni_cl_pass_long(&l, in->stride[axis]);
        tni_cl_pass_long(&l, out->stride[axis]);
        tni_cl_pass(&l, &product, sizeof product);
        s = tni_cl_start(&l, tni_op_table[c->op].name, 1,
                         (size_t[]){ (size_t)tni_cl_count(&lines) }, (size_t[]){ 64 }, c->why);
    }
    tni_cl_unlock();
    return s;
}

// ---- places of extrema -------------------------------------------------------------------------

// The axes of in that stay, or those that are folded; in row-major order, which is what is counted.
static tni_cl_axes axes_of(const tni_call *c, bool folded)
{
    const tni_arg *in = &c->in[0];
    tni_cl_axes    a  = { .rank = in->rank };
    for (int i = 0; i < in->rank; i++) {
        bool gone      = c->attr->reduce.axes >> i & 1;
        a.size[i]      = gone == folded ? in->size[i] : 1;
        a.stride[0][i] = in->stride[i];
    }
    tni_cl_merge(&a, 1);
    return a;
}

tn_status tni_cl_arg_reduce(const tni_call *c)
{
    const tni_arg *in    = &c->in[0];
    const char    *name  = tni_op_table[c->op].name;
    int            least = c->op == TNI_argmin;
    tni_cl_axes    stay = axes_of(c, false), gone = axes_of(c, true);

    tni_cl_launch l;
    tni_cl_lock();
    tn_status s = tni_cl_kernel_of(tni_cl_text_fold, "arg_reduce", in->dtype, TN_I64, &l, c->why);
    if (s == TN_OK) {
        tni_cl_shape a = tni_cl_shape_of(&stay, 0, tni_cl_pass_buffer(&l, in->data), in->dtype);
        tni_cl_shape b = tni_cl_shape_of(&gone, 0, 0, in->dtype);
        tni_cl_pass(&l, &a, sizeof a);
        tni_cl_pass(&l, &b, sizeof b);
        tni_cl_pass_long(&l, tni_cl_pass_buffer(&l, c->out.data) / 8);
        tni_cl_pass_long(&l, tni_cl_count(&gone));
        tni_cl_pass(&l, &least, sizeof least);
        s = tni_cl_start(&l, name, 1, (size_t[]){ (size_t)tni_cl_count(&stay) }, (size_t[]){ 64 },
                         c->why);
    }
    tni_cl_unlock();
    return s;
}

// ---- the adjoint of a view ---------------------------------------------------------------------

// Whether axes, by falling stride of argument 0, each step past all that lies behind them.
static bool apart(const tni_cl_axes *a)
{
    int64_t span = 0;
    for (int i = a->rank - 1; i >= 0; i--) {
        if (a->stride[0][i] <= span) return false;
        span += a->stride[0][i] * (a->size[i] - 1);
    }
    return true;
}

static void add_axis(tni_cl_axes *to, const tni_cl_axes *from, int i)
{
    int r            = to->rank++;
    to->size[r]      = from->size[i];
    to->stride[0][r] = from->stride[0][i];
    to->stride[1][r] = from->stride[1][i];
}

// Divides the axes of a view: `in` visit no place twice, the largest axes first; the rest are
// tried.
static void divide(const tni_cl_axes *view, tni_cl_axes *in, tni_cl_axes *tap)
{
    uint32_t taken = 0;
    *in = *tap = (tni_cl_axes){ 0 };
    for (int n = 0; n < view->rank; n++) {
        int most = -1;
        for (int i = 0; i < view->rank; i++)
            if (!(taken >> i & 1) && (most < 0 || view->size[i] > view->size[most])) most = i;
        taken |= 1u << most;
        tni_cl_axes more = *in;
        add_axis(&more, view, most);
        tni_cl_sort_axes(&more, 0);
        if (apart(&more)) *in = more;
        else add_axis(tap, view, most);
    }
}

// The view's axes with strides in the base (0) and in x (1). An axis that goes backwards in the
// base is turned round; *at and *from are where the two then begin.
static tni_cl_axes view_axes(const tni_call *c, int64_t *at, int64_t *from)
{
    const tni_arg *x = &c->in[0];
    tni_cl_axes    a = { .rank = x->rank };
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
    tni_cl_merge(&a, 2);
    return a;
}

static void pass_axes(tni_cl_launch *l, const tni_cl_axes *a, int argument, int64_t at)
{
    tni_cl_shape s = tni_cl_shape_of(a, argument, 0, TN_U8);
    s.at           = at;
    tni_cl_pass(l, &s, sizeof s);
}

tn_status tni_cl_fold(const tni_call *c)
{
    const tni_arg *x     = &c->in[0];
    int64_t        bytes = (int64_t)tni_dtype_size(x->dtype), at, from;
    int64_t        count = tni_shape_count(c->out.rank, c->out.size);
    bool           empty = tni_shape_count(x->rank, x->size) == 0;
    tni_cl_axes    view  = view_axes(c, &at, &from), in, tap;
    divide(&view, &in, &tap);

    tni_cl_launch l;
    tni_cl_lock();
    tn_status s = tni_cl_kernel_of(tni_cl_text_fold, "fold", x->dtype, x->dtype, &l, c->why);
    if (s == TN_OK) {
        from += tni_cl_pass_buffer(&l, x->data) / bytes;
        tni_cl_pass_long(&l, tni_cl_pass_buffer(&l, c->out.data) / bytes);
        tni_cl_pass_long(&l, count);
        pass_axes(&l, &in, 0, 0);
        pass_axes(&l, &in, 1, 0);
        pass_axes(&l, &tap, 0, at);
        pass_axes(&l, &tap, 1, from);
        tni_cl_pass_long(&l, empty ? 0 : tni_cl_count(&tap));
        s = tni_cl_start_items(&l, "fold", count, c->why);
    }
    tni_cl_unlock();
    return s;
}
