// Copies and casts between any strides, by generated kernels, for the few copies that no plan has a
// kernel for (op by op, and those of other ops here). And concat, which is copies.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

// Axes of out with the strides of out (0) and in (1), sorted so that the axis densest in out comes
// last: the generator then stores neighbouring elements by neighbouring items. A scalar becomes one
// axis of size 1, which the generator wants.
static tni_axes copy_axes(const tni_arg *out, const tni_arg *in)
{
    tni_axes a = { .rank = out->rank };
    memcpy(a.size, out->size, sizeof a.size);
    memcpy(a.stride[0], out->stride, sizeof a.stride[0]);
    memcpy(a.stride[1], in->stride, sizeof a.stride[1]);
    tni_axes_sort(&a, 0);
    tni_axes_merge(&a, 2);
    if (a.rank == 0) {
        a.rank         = 1;
        a.size[0]      = 1;
        a.stride[0][0] = 1;
        a.stride[1][0] = 0;
    }
    return a;
}

// Adds buffer and access number i: argument x with the strides of argument `of` of the axes. The
// access also says which strides are 0 or 1, which is part of the kernel's key and lets the text be
// shorter.
static void add_access(tni_kernel *k, tni_launch *l, int i, const tni_arg *x, const tni_axes *a,
                       int of)
{
    k->buffer[i]        = (tni_kernel_buffer){ (uint8_t)x->dtype, .written = of == 0 };
    k->access[i].buffer = (int16_t)i;
    l->buffer[i]        = x->data;
    for (int j = 0; j < a->rank; j++) {
        int64_t d              = a->stride[of][j];
        l->stride[i][j]        = d;
        k->access[i].stride[j] = d == 0 ? TNI_STRIDE_0 : d == 1 ? TNI_STRIDE_1 : TNI_STRIDE_N;
    }
}

// Appends an instruction and returns its number.
static int16_t add_instruction(tni_kernel *k, tni_code code, tn_dtype dt, int a, int access)
{
    k->ins[k->nins] = (tni_ins){ .code   = (uint8_t)code,
                                 .dtype  = (uint8_t)dt,
                                 .a      = (int16_t)a,
                                 .b      = -1,
                                 .c      = -1,
                                 .access = (int16_t)access,
                                 .number = -1 };
    return k->nins++;
}

// Writes the kernel: a load, a cast if the dtypes differ, a store. Returns false if it is invalid.
static bool write_copy(tni_kernel *k, tni_launch *l, const tni_call *c)
{
    tn_dtype from = c->in->dtype, to = c->out.dtype;
    tni_axes a = copy_axes(&c->out, c->in);
    k->np      = (uint8_t)a.rank;
    k->nbuffer = k->naccess = 2;
    memcpy(l->size, a.size, (size_t)a.rank * sizeof *a.size);
    add_access(k, l, 0, c->in, &a, 1);
    add_access(k, l, 1, &c->out, &a, 0);
    int16_t v = add_instruction(k, TNI_I_LOAD, from, -1, 0);
    if (from != to) v = add_instruction(k, TNI_I_CAST, to, v, -1);
    add_instruction(k, TNI_I_STORE, to, v, 1);
    l->kernel = k;
    return tni_kernel_seal(k);
}

// Through prepare and launch of the device, like a kernel of a plan; equal copies share one entry.
tn_status tni_groups_copy(const tni_call *c)
{
    const tni_device_kernels *d     = c->device->kernels;
    tni_kernel                k     = { 0 };
    tni_launch                l     = { .wait_for_compiler = c->wait_for_compiler };
    const tni_launch         *first = &l;
    void                     *entry = NULL;
    if (!write_copy(&k, &l, c)) {
        tni_text_add(c->why, "%s: %s: the kernel for the copy is invalid", tni_op_table[c->op].name,
                     c->device->name);
        return TN_EDEVICE;
    }
    tn_status s = d->prepare(c->session, 1, &first, &entry, c->wait_for_compiler, c->why);
    return s == TN_OK && !c->compile_only ? d->launch(c->session, entry, &l, c->why) : s;
}

// Copies each input to its slice, unless it is stored there already, and skips empty ones.
tn_status tni_groups_concat(const tni_call *c)
{
    int       axis = c->attr->axis.axis;
    tni_call  call = tni_call_within(c, TNI_copy);
    tn_status s    = TN_OK;
    call.nin       = 1;
    for (int k = 0; s == TN_OK && k < c->nin; k++) {
        call.in             = &c->in[k];
        call.out.size[axis] = c->in[k].size[axis];
        if (call.in->data != call.out.data && tni_shape_count(call.out.rank, call.out.size) > 0)
            s = tni_call_run(&call);
        call.out.data += call.out.size[axis] * call.out.stride[axis] *
                         (int64_t)tni_dtype_size(call.out.dtype);
    }
    return s;
}
