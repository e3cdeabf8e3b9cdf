// The opencl device: any device of OpenCL 1.2, on a GPU or on a CPU.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

static bool probe(tni_text *detail)
{
    bool there = tni_cl_get() != NULL;
    tni_text_add(detail, "%s", tni_cl_detail());
    return there;
}

static const tni_groups groups = {
    .compiled  = tni_cl_compiled,
    .buffer_at = tni_cl_buffer_at,
    .state_at  = tni_cl_state,
    .launch    = tni_cl_launch_args,
};

static bool has_doubles(void *session)
{
    return tni_compiled_has_doubles(tni_cl_compiled(session));
}

static tn_status run_cast(const tni_call *c)
{
    bool widens = c->out.dtype == TN_F64 && c->in[0].dtype != TN_F64;
    if (widens && !has_doubles(c->session)) return tni_cl_to_double(c);
    return tni_groups_copy(c);
}

static const tni_device_calls calls = {
    .of_class = { TNI_GROUPS_CLASSES, [TNI_CAST] = { .run = run_cast } },
    .of_op    = { TNI_GROUPS_OPS, [TNI_copy] = { .run = tni_groups_copy },
                  [TNI_matmul] = { .run = tni_groups_matmul },
                  [TNI_custom] = { .run = tni_groups_custom } },
    .groups   = &groups,
};

static tn_status wait(void *session, tni_text *why)
{
    tni_cl *cl   = tni_cl_get();
    int32_t code = cl->api.clFinish(cl->queue);
    (void)session;
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "waiting", code);
}

static const tni_device_memory memory = {
    .alloc        = tni_cl_alloc,
    .free         = tni_cl_free,
    .element_size = tni_dtype_size,
    .upload       = tni_cl_upload,
    .download     = tni_cl_download,
};

static const tni_device_kernels kernels = {
    .loads_before_stores = true,
    .prepare             = tni_cl_prepare,
    .launch              = tni_cl_launch_kernel,
    .scratch             = tni_cl_scratch,
    .doubles             = has_doubles,
    .counts              = tni_cl_counts,
};

static const tni_device_events events = { .wait = wait };

const tni_device tni_device_opencl = {
    .name    = "opencl",
    .probe   = probe,
    .memory  = &memory,
    .calls   = &calls,
    .kernels = &kernels,
    .events  = &events,
};
