// The opencl device: the table of the functions that it offers to the engine. Any device of OpenCL
// 1.2 will do, a GPU or a CPU. Ops other than fused kernels are run by device/simt.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

// Whether the device can be used; `detail` becomes the device's name, or the reason why not.
static bool probe_opencl(tni_text *detail)
{
    bool there = tni_cl_get() != NULL;
    if (tni_cl_forked()) {
        tni_text_add(detail, "OpenCL cannot be used in the child of a fork");
        return false;
    }
    tni_text_add(detail, "%s", tni_cl_detail());
    return there;
}

// What device/simt needs to launch its kernels here.
static const tni_groups groups = {
    .compiled  = tni_cl_compiled,
    .buffer_at = tni_cl_buffer_at,
    .state_at  = tni_cl_state,
    .launch    = tni_cl_launch_args,
};

// Part of OpenCL 1.2 only as the extension cl_khr_fp64: mobile and integrated GPUs often lack it.
static bool has_doubles(void *session)
{
    return tni_compiled_has_doubles(tni_cl_compiled(session));
}

// A cast to f64 is needed on every device: tn_read reads any dtype as f64. Without f64 the bits of
// the doubles are assembled from integers.
static tn_status run_cast(const tni_call *c)
{
    bool widens = c->out.dtype == TN_F64 && c->in[0].dtype != TN_F64;
    if (widens && !has_doubles(c->session)) return tni_cl_to_double(c);
    return tni_groups_copy(c);
}

// Ops by class and by name. Attention has no entry: the recorder expands it into other ops.
static const tni_device_calls calls = {
    .of_class  = { TNI_GROUPS_CLASSES, [TNI_CAST] = { .run = run_cast } },
    .of_op     = { TNI_GROUPS_OPS, TNI_GROUPS_CONVS, [TNI_copy] = { .run = tni_groups_copy },
                   [TNI_matmul] = { .run = tni_groups_matmul, .strided = true },
                   [TNI_custom] = { .run = tni_groups_custom },
                   [TNI_linalg] = { .run = tni_groups_linalg },
                   [TNI_fft]    = { .run = tni_groups_fft, .scratch = tni_groups_fft_scratch } },
    .groups    = &groups,
    .row_bytes = 16,  // kernels load aligned rows 16 bytes at a time
};

// Without the lock: clFinish may take long, and other threads may go on enqueueing.
static tn_status wait_for_queue(void *session, tni_text *why)
{
    tni_cl *cl   = tni_cl_get();
    int32_t code = cl->api.clFinish(cl->queue);
    (void)session;
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "waiting", code);
}

// No pinned host memory and no memory of the caller: OpenCL 1.2 has no addresses to share.
static const tni_device_memory memory = {
    .alloc        = tni_cl_alloc,
    .free         = tni_cl_free,
    .element_size = tni_dtype_size,
    .upload       = tni_cl_upload,
    .download     = tni_cl_download,
};

// Winners are kept by the device's name and the version of its driver, which compiles the kernels.
static const char *chip(const void *session, int threads)
{
    (void)session, (void)threads;
    return tni_compiled_chip(tni_cl_get()->compiled);
}

// Candidates are compiled when they are launched: there is no background.
static int neighbours(void *session, const tni_launch *l, const tni_tuning *from, tni_tuning *dst,
                      int room)
{
    return tni_compiled_neighbours(tni_cl_compiled(session), l, from, dst, room);
}

static void retuned(void *session, void *entry, const tni_launch *l)
{
    (void)l;
    tni_compiled_retuned(tni_cl_compiled(session), entry);
}

static void settings_now(void *session, void *entry, const tni_launch *l, tni_tuning *now)
{
    tni_compiled_settings(tni_cl_compiled(session), entry, l, now);
}

static char *text_of(void *session, tni_heap *h, const tni_launch *l)
{
    return tni_compiled_source(tni_cl_compiled(session), h, l);
}

// loads_before_stores: the texts fetch all elements of a point before they store any, so that the
// planner may compute in place.
static const tni_device_kernels kernels = {
    .loads_before_stores = true,
    .chip                = chip,
    .neighbours          = neighbours,
    .retuned             = retuned,
    .text                = text_of,
    .prepare             = tni_cl_prepare,
    .launch              = tni_cl_launch_kernel,
    .scratch             = tni_cl_scratch,
    .settings            = settings_now,
    .doubles             = has_doubles,
    .counts              = tni_cl_counts,
};

// One in-order queue needs no events between ops: only the host ever waits.
static const tni_device_events events = { .wait = wait_for_queue };

const tni_device tni_device_opencl = {
    .name    = "opencl",
    .probe   = probe_opencl,
    .memory  = &memory,
    .calls   = &calls,
    .kernels = &kernels,
    .events  = &events,
};
