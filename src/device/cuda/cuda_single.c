// Ops that run alone: those that move or fill, as kernels of one load and one store.
#include "device/cuda/gpu.h"

#include <string.h>

// A kernel in the making: the domain is out's shape, without axes of size 1 and with those joined
// that lie one after the other in all arguments.
typedef struct {
    tni_kernel kernel;
    tni_launch launch;
} single;

static bool joins(const tni_arg *x, int outer, int inner)
{
    return x->stride[outer] == x->stride[inner] * x->size[inner];
}

// The axes that remain, as positions in out; the size of each is multiplied into launch.size.
static int find_axes(single *s, const tni_arg *out, const tni_arg *in, int axis[TNI_AXES])
{
    int n = 0;
    for (int i = 0; i < out->rank; i++) {
        if (out->size[i] == 1) continue;
        if (n && joins(out, axis[n - 1], i) && (!in || joins(in, axis[n - 1], i))) n--;
        else s->launch.size[n] = 1;
        s->launch.size[n] *= out->size[i];
        axis[n++] = i;
    }
    if (!n) s->launch.size[0] = 1;
    return n;
}

static void add_access(single *s, const tni_arg *x, const int *axis, int n)
{
    tni_kernel *k        = &s->kernel;
    int         at       = k->naccess++;
    int64_t     last     = 0;
    k->access[at].buffer = (int16_t)at;
    k->buffer[at].dtype  = (uint8_t)x->dtype;
    k->nbuffer           = k->naccess;
    s->launch.buffer[at] = x->data;
    for (int i = 0; i < n; i++) {
        int64_t t               = x->stride[axis[i]];
        s->launch.stride[at][i] = t;
        k->access[at].stride[i] = t == 0 ? TNI_STRIDE_0 : t == 1 ? TNI_STRIDE_1 : TNI_STRIDE_N;
        last += (t < 0 ? -t : t) * s->launch.size[i];
    }
    if (last > INT32_MAX) k->wide = 1;
}

static int add_ins(single *s, tni_ins x)
{
    s->kernel.ins[s->kernel.nins] = x;
    return s->kernel.nins++;
}

// The instructions for a value as out's dtype; returns the last.
static int add_cast(single *s, int value, tn_dtype to)
{
    if (s->kernel.ins[value].dtype == to) return value;
    return add_ins(s, (tni_ins){ .code  = TNI_I_CAST,
                                 .dtype = (uint8_t)to,
                                 .a     = (int16_t)value,
                                 .b     = TNI_NO_VALUE,
                                 .c     = TNI_NO_VALUE });
}

static int add_load(single *s, const tni_arg *in, const int *axis, int n)
{
    add_access(s, in, axis, n);
    return add_ins(s, (tni_ins){ .code  = TNI_I_LOAD,
                                 .dtype = (uint8_t)in->dtype,
                                 .a     = TNI_NO_VALUE,
                                 .b     = TNI_NO_VALUE,
                                 .c     = TNI_NO_VALUE });
}

// The number of full and scalar, in the type that its dtype is computed in.
static int add_number(single *s, const tni_attr *attr, tn_dtype compute)
{
    tni_word *w = &s->launch.number[0];
    if (compute == TN_F64) w->d = attr->num.f;
    else if (compute == TN_F32) w->f = (float)attr->num.f;
    else if (compute == TN_I64) w->l = attr->num.i;
    else w->i = (int32_t)attr->num.i;
    s->kernel.nnumber   = 1;
    s->kernel.number[0] = (uint8_t)compute;
    return add_ins(s, (tni_ins){ .code  = TNI_I_NUMBER,
                                 .dtype = (uint8_t)compute,
                                 .a     = TNI_NO_VALUE,
                                 .b     = TNI_NO_VALUE,
                                 .c     = TNI_NO_VALUE });
}

static void build(single *s, const tni_call *call)
{
    int axis[TNI_AXES];
    int n            = find_axes(s, &call->out, call->nin ? &call->in[0] : NULL, axis);
    s->kernel.np     = (uint8_t)(n ? n : 1);
    s->launch.kernel = &s->kernel;
    int value        = call->nin ? add_load(s, &call->in[0], axis, n)
                                 : add_number(s, call->attr, tni_compute_dtype(call->out.dtype));
    value            = add_cast(s, value, call->out.dtype);
    int at           = s->kernel.naccess;
    add_access(s, &call->out, axis, n);
    s->kernel.buffer[at].written = 1;
    add_ins(s, (tni_ins){ .code   = TNI_I_STORE,
                          .dtype  = (uint8_t)call->out.dtype,
                          .a      = (int16_t)value,
                          .b      = -1,
                          .c      = -1,
                          .access = (int16_t)at });
}

static bool in_a_row(const tni_arg *x)
{
    int64_t next = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->size[i] != 1 && x->stride[i] != next) return false;
        next *= x->size[i];
    }
    return true;
}

static tn_status copy_bytes(const tni_call *call)
{
    tni_cuda *c     = call->seat;
    size_t    bytes = tni_dtype_size(call->out.dtype);
    tni_cuda_enter(c);
    for (int i = 0; i < call->out.rank; i++) bytes *= (size_t)call->out.size[i];
    int error = c->gpu->cu->copy((tni_cuptr)(uintptr_t)call->out.data,
                                 (tni_cuptr)(uintptr_t)call->in[0].data, bytes, c->stream);
    return tni_cuda_status(c, error, "copying", call->why);
}

tn_status tni_cuda_run(const tni_call *call)
{
    bool moves = call->op == TNI_copy || call->op == TNI_cast;
    if (!moves && call->op != TNI_full && call->op != TNI_scalar) {
        tni_text_add(call->why, "cuda: %s is not available on this device yet",
                     tni_op_table[call->op].name);
        return TN_EDEVICE;
    }
    if (moves && call->in[0].dtype == call->out.dtype && in_a_row(&call->in[0]) &&
        in_a_row(&call->out))
        return copy_bytes(call);
    single s     = { 0 };
    void  *entry = NULL;
    build(&s, call);
    const tni_launch *first = &s.launch;
    tni_kernel_seal(&s.kernel);
    tn_status status = tni_cuda_prepare(call->seat, 1, &first, &entry, call->why);
    return status == TN_OK ? tni_cuda_launch(call->seat, entry, &s.launch, call->why) : status;
}
