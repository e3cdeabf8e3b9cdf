// Casts to f64 on a device without f64, so that values can always be read. The bits of a double are
// assembled from integers in the kernel, exactly as a conversion would round.
#include "device/opencl/opencl.h"

#include <string.h>

#define CL(...) #__VA_ARGS__ "\n"

// clang-format off
// bits_f: the exponent of a float is rebiased from 127 to 1023; a subnormal is normalized first,
// since a double holds it as a normal number. bits_u, bits_l: an integer is rounded to 53 bits, to
// nearest, ties to even; the implicit leading bit is subtracted last, so that a carry of the
// rounding increments the exponent by itself.
static const char *const to_double_text[] = {
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
           if (g < count) y[element_offset(&sy, g)] =
               CAT(bits_, X_IN)(x_get(x[element_offset(&sx, g)]));
       }),
    NULL,
};
// clang-format on

// The result is written as i64, which the device has, into the buffer of doubles: both have 8
// bytes. Axes of both operands are merged first, so that a contiguous cast has one.
tn_status tni_cl_to_double(const tni_call *c)
{
    const tni_arg *x = &c->in[0], *y = &c->out;
    tni_axes       a = { .rank = y->rank };
    memcpy(a.size, y->size, sizeof a.size);
    memcpy(a.stride[0], x->stride, sizeof a.stride[0]);
    memcpy(a.stride[1], y->stride, sizeof a.stride[1]);
    tni_axes_merge(&a, 2);

    tni_kernel_args h;
    tn_status       s = tni_kernel_args_begin(&h, c, to_double_text, "to_double", x->dtype, TN_I64);
    if (s != TN_OK) return s;
    tni_kernel_args_add_operand(&h, &a, 0, x->data, x->dtype);
    tni_kernel_args_add_operand(&h, &a, 1, y->data, TN_I64);
    tni_kernel_args_add_long(&h, tni_axes_count(&a));
    return tni_kernel_args_launch_items(&h, tni_axes_count(&a), c->why);
}
