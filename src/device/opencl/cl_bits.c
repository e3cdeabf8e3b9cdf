// A cast to f64 on a device without doubles: values can always be read.
#include "device/opencl/opencl.h"

#include <string.h>

tn_status tni_cl_to_double(const tni_call *c)
{
    const tni_arg *x = &c->in[0], *y = &c->out;
    tni_cl_axes    a = { .rank = y->rank };
    memcpy(a.size, y->size, sizeof a.size);
    memcpy(a.stride[0], x->stride, sizeof a.stride[0]);
    memcpy(a.stride[1], y->stride, sizeof a.stride[1]);
    tni_cl_merge(&a, 2);

    tni_cl_launch l;
    tni_cl_lock();
    tn_status s = tni_cl_kernel_of(tni_cl_text_bits, "to_double", x->dtype, TN_I64, &l, c->why);
    if (s == TN_OK) {
        tni_cl_shape from = tni_cl_shape_of(&a, 0, tni_cl_pass_buffer(&l, x->data), x->dtype);
        tni_cl_pass(&l, &from, sizeof from);
        tni_cl_shape to = tni_cl_shape_of(&a, 1, tni_cl_pass_buffer(&l, y->data), TN_I64);
        tni_cl_pass(&l, &to, sizeof to);
        tni_cl_pass_long(&l, tni_cl_count(&a));
        s = tni_cl_start_items(&l, "cast", tni_cl_count(&a), c->why);
    }
    tni_cl_unlock();
    return s;
}
