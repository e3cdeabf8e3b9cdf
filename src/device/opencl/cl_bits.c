// A cast to f64 on a device without doubles: values can always be read.
#include "device/opencl/opencl.h"

#include <string.h>

#define CL(...) #__VA_ARGS__ "\n"

// clang-format off
// What is read into the host as f64 is cast here, also on a device that cannot compute in it: the
// bits of a double are put together. An integer is rounded to 53 bits, nearest even.
static const char *const text[] = {
    CL(M_FN ulong bits_f(float v) {
           uint b = as_uint(v);
           ulong sign_ = (ulong)(b >> 31) << 63;
           uint e = b >> 23 & 255;
           ulong m = b & 0x7fffff;
           if (e == 255) return sign_ | 0x7ff0000000000000ul | m << 29;
           if (e == 0 && m == 0) return sign_;
           if (e == 0) {
               int up = (int)clz((uint)m) - 8;
               m = m << up & 0x7fffff;
               e = 1 - up;
           }
           return sign_ | (ulong)((int)e + 1023 - 127) << 52 | m << 29;
       }),
    CL(M_FN ulong bits_u(ulong u) {
           if (u == 0) return 0;
           int up = (int)clz(u);
           ulong m = u << up;
           ulong rest = m & 0x7ff;
           m >>= 11;
           m += rest > 0x400 || (rest == 0x400 && (m & 1));
           return ((ulong)(1023 + 63 - up) << 52) + (m - (1ul << 52));
       }
       M_FN ulong bits_l(long v) { return v < 0 ? 1ul << 63 | bits_u(0ul - (ulong)v) : bits_u((ulong)v); }
       M_FN ulong bits_i(int v) { return bits_l(v); }),
    CL(KERNEL(64) to_double(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL ulong *y, GIVEN shape sy,
                            long count) {
           long g = ITEM;
           if (g < count) y[place(&sy, g)] = CAT(bits_, X_IN)(x_get(x[place(&sx, g)]));
       }),
    NULL,
};
// clang-format on

tn_status tni_cl_to_double(const tni_call *c)
{
    const tni_arg *x = &c->in[0], *y = &c->out;
    tni_axes       a = { .rank = y->rank };
    memcpy(a.size, y->size, sizeof a.size);
    memcpy(a.stride[0], x->stride, sizeof a.stride[0]);
    memcpy(a.stride[1], y->stride, sizeof a.stride[1]);
    tni_axes_merge(&a, 2);

    tni_kernel_args h;
    tn_status       s = tni_kernel_args_begin(&h, c, text, "to_double", x->dtype, TN_I64);
    if (s != TN_OK) return s;
    tni_kernel_args_add_operand(&h, &a, 0, x->data, x->dtype);
    tni_kernel_args_add_operand(&h, &a, 1, y->data, TN_I64);
    tni_kernel_args_add_long(&h, tni_axes_count(&a));
    return tni_kernel_args_launch_items(&h, tni_axes_count(&a), c->why);
}
