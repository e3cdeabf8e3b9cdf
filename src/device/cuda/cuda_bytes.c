// Products and convolutions of bytes on the tensor cores, by the kernels of conv_cores.h: a product
// of matrices is a convolution of one tap, whose places are the rows of a. What they do not take is
// recorded as products of i32.
#include "device/cuda/cuda_conv.h"
#include "device/cuda/with_kernel.h"

#include <string.h>

static const tni_family convs_of_bytes = { .name     = "convolution of bytes",
                                           .methods  = 1,
                                           .method   = { &tni_conv_by_cores },
                                           .describe = tni_conv_describe };

// A call as a convolution: the arguments and options that a product is given.
typedef struct {
    tni_call call;
    tni_arg  in[2];
    tni_attr attr;
} byte_conv;

// A matrix (rows, n) with rows of n neighbours as (1, rows, n).
static tni_arg as_places(const tni_arg *x, int64_t rows, int64_t n)
{
    tni_arg y = { .dtype = x->dtype, .rank = 3, .data = x->data };
    y.size[0] = 1, y.size[1] = rows, y.size[2] = n;
    y.stride[0] = rows * n, y.stride[1] = n, y.stride[2] = 1;
    return y;
}

// False: a matrix does not lie as the kernels read it, a by rows and b by columns, or there are
// several.
static bool find_conv(const tni_call *call, byte_conv *c)
{
    c->call = *call;
    if (call->op == TNI_conv_i32) return true;
    const tni_arg *a = &call->in[0], *b = &call->in[1];
    int            r = call->out.rank - 2;
    int64_t        m = call->out.size[r], n = call->out.size[r + 1], k = a->size[r + 1];
    for (int i = 0; i < r; i++)
        if (call->out.size[i] != 1) return false;
    if ((k > 1 && (a->stride[r + 1] != 1 || b->stride[r] != 1)) || (m > 1 && a->stride[r] != k) ||
        (n > 1 && b->stride[r + 1] != k))
        return false;
    c->in[0] = as_places(a, m, k);
    c->in[1] = as_places(b, n, k);
    // w is (O, taps, C).
    c->in[1].size[0] = n, c->in[1].size[1] = 1;
    c->in[1].stride[0] = c->in[1].stride[1] = k;
    c->attr                                 = (tni_attr){ .conv = { .groups        = 1,
                                                                    .stride        = { 1 },
                                                                    .dilation      = { 1 },
                                                                    .channels_last = TNI_WEIGHTS_LAST } };
    c->call.op                              = TNI_conv_i32;
    c->call.in                              = c->in;
    c->call.out                             = as_places(&call->out, m, n);
    c->call.attr                            = &c->attr;
    return true;
}

// Asked when a call is recorded. tn_conv_i32 and tn_matmul_i32 have brought operands into the order
// that is read here where copies do that.
const char *tni_cuda_bytes_declines(const tni_call *call)
{
    byte_conv c;
    if (!find_conv(call, &c))
        return "matrices are several, or not stored along what is summed over";
    tni_cuda_enter(call->session);
    return tni_conv_by_cores.declines(call->session, &c.call);
}

void *tni_cuda_prepare_bytes(const tni_call *call)
{
    byte_conv c;
    return find_conv(call, &c) ? tni_form_open(&convs_of_bytes, &c.call) : NULL;
}

static int64_t bytes_of(const tni_arg *x)
{
    return tni_align64(tni_shape_count(x->rank, x->size));
}

// Behind what the kernels need there is room for both operands, should they not begin at multiples
// of 16 bytes.
size_t tni_cuda_bytes_scratch(const tni_call *call)
{
    const tni_form *f = call->entry ? call->entry : tni_cuda_prepare_bytes(call);
    size_t          n = f ? (size_t)tni_align64((int64_t)tni_form_scratch(f)) : 0;
    return n + (size_t)(bytes_of(&call->in[0]) + bytes_of(&call->in[1]));
}

// Copies an operand, in the order of its memory, to where it begins at a multiple of 16 bytes.
static tn_status align_operand(const tni_call *call, tni_arg *x, char **room)
{
    tni_call copy  = tni_call_within(call, TNI_copy);
    tni_arg  from  = { .dtype = x->dtype, .rank = 1, .data = x->data };
    from.size[0]   = tni_shape_count(x->rank, x->size);
    from.stride[0] = 1;
    copy.nin = 1, copy.in = &from, copy.out = from;
    copy.out.data = *room;
    x->data       = *room;
    *room += bytes_of(x);
    return tni_groups_copy(&copy);
}

// The contract's run. There is nothing to compile that preparing the call did not begin with.
tn_status tni_cuda_bytes(const tni_call *call)
{
    byte_conv c;
    tni_form *f = call->entry ? call->entry : tni_cuda_prepare_bytes(call);
    if (!f || !find_conv(call, &c)) {
        tni_text_add(call->why, "no memory for a product of bytes");
        return TN_EMEM;
    }
    if (call->compile_only) return TN_OK;
    char *room = (char *)call->scratch + tni_align64((int64_t)tni_form_scratch(f));
    if (call->op == TNI_conv_i32) memcpy(c.in, call->in, sizeof c.in);
    c.call.in = c.in;
    for (int i = 0; i < 2; i++) {
        if ((uintptr_t)c.in[i].data % 16 == 0) continue;
        tn_status s = align_operand(call, &c.in[i], &room);
        if (s != TN_OK) return s;
    }
    tni_text  reason = { "" };
    tn_status s      = tni_form_launch(f, &c.call, &reason);
    if (s != TN_OK) tni_text_add(call->why, "%s", reason.s);
    return s;
}
