// The opencl device: any device of OpenCL 1.2, on a GPU or on a CPU.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

static bool probe(tni_text *detail)
{
    bool there = tni_cl_get() != NULL;
    tni_text_add(detail, "%s", tni_cl_detail());
    return there;
}

static size_t scratch(const tni_call *c)
{
    switch (c->op) {
    case TNI_attention:
    case TNI_attention_grad: return tni_cl_attention_scratch(c);
    case TNI_argsort: return tni_cl_argsort_scratch(c);
    case TNI_scatter:
    case TNI_scatter_add: return tni_cl_scatter_scratch(c);
    default: return tni_cl_is_one_op(c->op) ? tni_cl_one_op_scratch(c) : 0;
    }
}

// A user's op is C code of the host, which cannot reach this device's memory.
static tn_status refuse(const tni_call *c)
{
    *c->why = (tni_text){ 0 };
    if (c->op == TNI_custom)
        tni_text_add(c->why,
                     "%s: a host compute function cannot run on opencl; give the op an expression",
                     c->attr->custom.def->name);
    else tni_text_add(c->why, "%s: not an op that a device runs", tni_op_table[c->op].name);
    return TN_EDEVICE;
}

static tn_status run(const tni_call *c)
{
    bool widens = c->op == TNI_cast && c->out.dtype == TN_F64 && c->in[0].dtype != TN_F64;
    if (widens && !tni_cl_get()->fp64) return tni_cl_to_double(c);
    switch (c->op) {
    case TNI_matmul: return tni_cl_matmul(c);
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: return tni_cl_conv(c);
    case TNI_attention:
    case TNI_attention_grad: return tni_cl_attention(c);
    case TNI_cumsum:
    case TNI_cumprod: return tni_cl_scan(c);
    case TNI_argmax:
    case TNI_argmin: return tni_cl_arg_reduce(c);
    case TNI_fold: return tni_cl_fold(c);
    case TNI_argsort: return tni_cl_argsort(c);
    case TNI_scatter:
    case TNI_scatter_add: return tni_cl_scatter(c);
    default: return tni_cl_is_one_op(c->op) ? tni_cl_one_op(c) : refuse(c);
    }
}

static tn_status wait(void *seat, tni_text *why)
{
    tni_cl *cl   = tni_cl_get();
    int32_t code = cl->api.clFinish(cl->queue);
    (void)seat;
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "waiting", code);
}

const tni_device tni_device_opencl = {
    .name         = "opencl",
    .host_memory  = false,
    .attention    = true,
    .probe        = probe,
    .alloc        = tni_cl_alloc,
    .free         = tni_cl_free,
    .element_size = tni_dtype_size,
    .upload       = tni_cl_upload,
    .download     = tni_cl_download,
    .scratch      = scratch,
    .run          = run,
    .prepare      = tni_cl_prepare,
    .room         = tni_cl_room,
    .launch       = tni_cl_launch_kernel,
    .wait         = wait,
};
