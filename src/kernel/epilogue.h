// Epilogues: what a library may do to the result of a call before it is stored.
#ifndef TNI_KERNEL_EPILOGUE_H
#define TNI_KERNEL_EPILOGUE_H

#include "kernel/kernel.h"

// y = activation(scale x + residual + bias), each part optional, x is the result of the call,
// and z, what the activation was given, stored as well where the gradient will want it; or, of an
// activation's gradient, y = (scale x + residual + bias) slope(z) with z read; and the column sum
// of y, over all axes but the last. All are accesses of the kernel that does the same: x, y, z and
// residual go element after element, bias and sum along the last axis of x. -1: absent.
typedef struct {
    bool fits;        // the kernel does this and nothing else
    bool wide;        // y is x in f32, where x is of 16 bits: the sums of a product, not rounded
    int  activation;  // an op of the table: relu, gelu_tanh; gelu_slope: z is read; TNI_leaf: none
    int  scale;       // the number of the launch
    int  product;     // the kernel's buffer with the result of the call, whether it fits or not
    int  x, y, z, residual, bias, sum;
} tni_epilogue;

// Whether an op of the table can be the activation of an epilogue.
static inline bool tni_is_activation(int op)
{
    return op == TNI_relu || op == TNI_gelu_tanh;
}

// Whether an access visits the elements of the domain in memory order, without gaps.
bool tni_visits_in_order(const tni_launch *l, int access);
// Whether an access has stride 1 along the last axis, of `width` elements, and 0 along all others,
// as a bias has.
bool tni_visits_columns(const tni_launch *l, int access, int64_t width);

// Returns the address of the first element of an access of a launch; NULL for no access.
static inline char *tni_access_address(const tni_launch *l, int access)
{
    if (access < 0) return NULL;
    int b = l->kernel->access[access].buffer;
    return l->buffer[b] +
           l->offset[access] * (int64_t)tni_dtype_size((tn_dtype)l->kernel->buffer[b].dtype);
}

// Returns the epilogue that a kernel is for what it reads from buffer `product`, whose last axis
// has `width` elements; `fits` is false if the kernel is no epilogue.
tni_epilogue tni_epilogue_of(const tni_launch *l, int product, int64_t width);

#endif
