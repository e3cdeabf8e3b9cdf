// scatter and scatter_add by the kernel of cl_text.c: x is copied, then each line along the indexed
// axis is written in order. f16 and bf16 are added up in float, in scratch, and rounded once.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

#include <limits.h>
#include <string.h>

// `scattering` of the text.
typedef struct {
    int64_t count, inner, length, size, index_step, v_step, y_step;
    int32_t wide, add;
} scattering;

static bool in_float(const tni_call *c)
{
    return c->op == TNI_scatter_add && (c->out.dtype == TN_F16 || c->out.dtype == TN_BF16);
}

size_t tni_cl_scatter_scratch(const tni_call *c)
{
    if (!in_float(c)) return 0;
    return (size_t)tni_shape_count(c->out.rank, c->out.size) * sizeof(float);
}

static tn_status copy(const tni_call *c, const tni_arg *from, const tni_arg *to)
{
    tni_call call = *c;
    call.op       = from->dtype == to->dtype ? TNI_copy : TNI_cast;
    call.nin      = 1;
    call.in       = from;
    call.out      = *to;
    return tni_cl_one_op(&call);
}

// The number of the first bad index, where the kernel notes it; INT_MAX: none. Locked.
static tni_cl_mem bad_index(tni_cl *cl, int32_t *code)
{
    static tni_cl_mem    mem;
    static const int32_t none = INT_MAX;
    if (!mem)
        mem = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, sizeof none,
                                     NULL, code);
    if (mem)
        *code = cl->api.clEnqueueWriteBuffer(cl->queue, mem, 0, 0, sizeof none, &none, 0, NULL,
                                             NULL);
    return mem;
}

static tn_status out_of_range(const tni_call *c, int64_t at)
{
    const tni_arg *index = &c->in[1];
    int            axis  = c->attr->axis.axis;
    int64_t        place = 0;
    for (int i = index->rank - 1; i >= 0; i--) {
        place += at % index->size[i] * index->stride[i];
        at /= index->size[i];
    }
    int64_t   value = 0;
    int32_t   small = 0;
    size_t    bytes = tni_dtype_size(index->dtype);
    tn_status s     = tni_cl_download(c->seat, index->dtype == TN_I64 ? (void *)&value : &small,
                                      index->dtype, index->data + place * (int64_t)bytes, 1, c->why);
    if (s != TN_OK) return s;
    if (index->dtype != TN_I64) value = small;
    *c->why = (tni_text){ 0 };
    tni_text_add(c->why, "%s: index %lld is out of range for size %lld along axis %d",
                 tni_op_table[c->op].name, (long long)value, (long long)c->in[0].size[axis], axis);
    return TN_EARG;
}

// The lines along the axis: argument 0 is the index, 1 the values, 2 what is written.
static tni_cl_axes lines_of(const tni_call *c, const tni_arg *y)
{
    const tni_arg *index = &c->in[1], *v = &c->in[2];
    tni_cl_axes    lines = { .rank = index->rank };
    for (int i = 0; i < index->rank; i++) {
        lines.size[i]      = i == c->attr->axis.axis ? 1 : index->size[i];
        lines.stride[0][i] = index->stride[i];
        lines.stride[1][i] = v->stride[i];
        lines.stride[2][i] = y->stride[i];
    }
    tni_cl_merge(&lines, 3);
    return lines;
}

static scattering job_of(const tni_call *c, const tni_arg *y, int64_t lines)
{
    int            axis  = c->attr->axis.axis;
    const tni_arg *index = &c->in[1];
    scattering     s     = { .count      = lines,
                             .inner      = 1,
                             .length     = index->size[axis],
                             .size       = y->size[axis],
                             .index_step = index->stride[axis],
                             .v_step     = c->in[2].stride[axis],
                             .y_step     = y->stride[axis],
                             .wide       = index->dtype == TN_I64,
                             .add        = c->op == TNI_scatter_add };
    for (int i = axis + 1; i < index->rank; i++) s.inner *= index->size[i];
    return s;
}

// Writes the values into y and waits. *bad: the first index out of range.
static tn_status write(const tni_call *c, const tni_arg *y, int32_t *bad)
{
    const tni_arg *x[]   = { &c->in[1], &c->in[2], y };
    tni_cl_axes    lines = lines_of(c, y);
    scattering     o     = job_of(c, y, tni_cl_count(&lines));
    tni_cl_launch  l;
    tn_status s = tni_cl_kernel_of(tni_cl_text_index, "scatter", x[1]->dtype, y->dtype, &l, c->why);
    if (s != TN_OK) return s;
    for (int k = 0; k < 3; k++) {
        tni_cl_shape a = tni_cl_shape_of(&lines, k, tni_cl_pass_buffer(&l, x[k]->data),
                                         x[k]->dtype);
        tni_cl_pass(&l, &a, sizeof a);
    }
    tni_cl_mem mem = bad_index(l.cl, &l.code);
    tni_cl_pass(&l, &mem, sizeof mem);
    tni_cl_pass(&l, &o, sizeof o);
    s = tni_cl_start_items(&l, tni_op_table[c->op].name, o.count, c->why);
    if (s != TN_OK) return s;
    int32_t code = l.cl->api.clEnqueueReadBuffer(l.cl->queue, mem, 1, 0, sizeof *bad, bad, 0, NULL,
                                                 NULL);
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(c->why, tni_op_table[c->op].name, code);
}

tn_status tni_cl_scatter(const tni_call *c)
{
    tni_arg y   = c->out;
    int32_t bad = INT_MAX;
    if (in_float(c)) {
        y.dtype = TN_F32;
        y.data  = c->scratch;
    }
    tn_status s = copy(c, &c->in[0], &y);
    if (s == TN_OK && tni_shape_count(c->in[1].rank, c->in[1].size) > 0) {
        tni_cl_lock();
        s = write(c, &y, &bad);
        tni_cl_unlock();
    }
    if (s == TN_OK && bad != INT_MAX) s = out_of_range(c, bad);
    if (s == TN_OK && in_float(c)) s = copy(c, &y, &c->out);
    return s;
}
