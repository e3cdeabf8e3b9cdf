// skeleton.c: the least that a device can be, group by group. Its driver is the host: where a
// device of its own would call a driver, this one calls the cpu device's parts.
#include "skeleton.h"

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ops.h"
#include "engine/engine.h"

#include <string.h>

// ---- the device itself

// What serves it here, in a line for people; false, with the reason, where its driver is not found.
// A device that finds none costs nothing.
static bool probe(tni_text *detail)
{
    tni_text_add(detail, "a skeleton on the host");
    return true;
}

// ---- memory (always)

// The session is what the device keeps for a context: a stream, a handle of a library. Without
// `open` it is the context's heap, which is enough for this one. Memory is aligned to 64 bytes;
// NULL where it is out.
static void *alloc(void *session, size_t bytes)
{
    return tni_alloc_block(session, bytes);
}

static void release(void *session, void *p)
{
    tni_free_block(session, p);
}

// The host's elements may change when it returns.
static tn_status upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why)
{
    (void)session, (void)why;
    if (count) memcpy(dst, host, (size_t)count * tni_dtype_size(dt));
    return TN_OK;
}

// The host has the elements when it returns, after all work that was launched before.
static tn_status download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why)
{
    return upload(session, host, dt, src, count, why);
}

static const tni_device_memory memory = {
    .alloc        = alloc,
    .free         = release,
    .element_size = tni_dtype_size,  // as the host has them
    .upload       = upload,
    .download     = download,
};

// ---- kernels

// Gets each kernel of a new plan once, to compile it; the entry is what launch will need. A kernel
// is instructions over buffers (kernel/kernel.h); a GPU prints it by kernel/emit_simt.h and
// compiles the text. This one interprets it, and has nothing to keep.
static tn_status prepare(void *session, int n, const tni_launch *const *first, void **entry,
                         bool wait, tni_text *why)
{
    (void)session, (void)first, (void)wait, (void)why;
    for (int i = 0; i < n; i++) entry[i] = NULL;
    return TN_OK;
}

static const tni_device_kernels kernels = {
    .prepare = prepare,
    .launch  = tni_cpu_launch,
    .scratch = tni_cpu_scratch,
};

// ---- calls (always)

// What no kernel is made of: sums along an axis that keep every part, places of extrema, writes by
// index, and copies between memory of any strides. One line more for each LIBRARY op that the
// device is good at.
// clang-format off
static const tni_device_calls calls = {
    .of_class = {
        [TNI_CAST]        = { .run_nofail = tni_cpu_copy },
        [TNI_SCAN]        = { .run_nofail = tni_cpu_scan },
    },
    .of_op = {
        [TNI_argmax]      = { .run_nofail = tni_cpu_arg, .scratch = tni_cpu_arg_scratch },
        [TNI_argmin]      = { .run_nofail = tni_cpu_arg, .scratch = tni_cpu_arg_scratch },
        [TNI_copy]        = { .run_nofail = tni_cpu_copy },
        [TNI_concat]      = { .run_nofail = tni_cpu_concat },
        [TNI_scatter]     = { .run = tni_cpu_scatter, .scratch = tni_cpu_scatter_scratch },
        [TNI_scatter_add] = { .run = tni_cpu_scatter, .scratch = tni_cpu_scatter_scratch },
        [TNI_fold]        = { .run_nofail = tni_cpu_fold, .scratch = tni_cpu_fold_scratch },
    },
};
// clang-format on

// No events: all work is done when a function returns. No replay: work is done as it comes. No
// memory of a caller's.
static const tni_device skeleton = {
    .name    = "skeleton",
    .probe   = probe,
    .memory  = &memory,
    .calls   = &calls,
    .kernels = &kernels,
};

// A device of the library stands in the table of engine/open.c, which opens it by its name. This
// one takes the place of the cpu, whose session is a heap as well.
tn_ctx *skeleton_open(tn_open_opts o)
{
    if (!o.device || strcmp(o.device, "skeleton")) return tn_open_with(o);
    o.device   = "cpu";
    tn_ctx *cx = tn_open_with(o);
    if (cx) tni_engine_use(cx, &skeleton);
    return cx;
}
