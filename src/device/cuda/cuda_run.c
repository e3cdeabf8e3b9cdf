// How this device runs one op at a time: plain copies by the driver, matmul and users' kernels by
// their own files, all else as on every device with work groups.
#include "device/cuda/cuda_attention.h"
#include "device/cuda/cuda_conv.h"
#include "device/cuda/cuda_fft.h"
#include "device/cuda/gpu.h"
#include "device/cuda/product_pruned.h"
#include "device/host_linalg.h"

#include <stdlib.h>

// What device/simt needs from this device.
static const tni_groups groups = {
    .compiled  = tni_cuda_compiled,
    .buffer_at = tni_cuda_buffer_at,
    .state_at  = tni_cuda_state_at,
    .launch    = tni_cuda_launch_args,
};

// Returns whether elements follow each other in memory without gaps, in the order of the axes. The
// stride of an axis of size 1 means nothing.
static bool is_dense_arg(const tni_arg *x)
{
    int64_t next = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->size[i] != 1 && x->stride[i] != next) return false;
        next *= x->size[i];
    }
    return true;
}

// Returns whether a copy moves bytes without changing dtype or order.
static bool is_plain_copy(const tni_call *call)
{
    const tni_arg *x = call->in, *y = &call->out;
    return x->dtype == y->dtype && is_dense_arg(x) && is_dense_arg(y);
}

// Copies by the driver. Never inside the run of a plan: a graph can give a kernel other addresses,
// but a captured copy keeps its own, so that each new address would need a new graph.
static tn_status copy_bytes(const tni_call *call)
{
    tni_cuda *c     = call->session;
    size_t    bytes = tni_dtype_size(call->out.dtype);
    tni_cuda_enter(c);
    tni_cuda_await_uploads(c);
    for (int i = 0; i < call->out.rank; i++) bytes *= (size_t)call->out.size[i];
    int error = c->gpu->cu->copy((tni_cuptr)(uintptr_t)call->out.data,
                                 (tni_cuptr)(uintptr_t)call->in[0].data, bytes, c->stream);
    return tni_cuda_status(c, error, "copying", call->why);
}

// There is nothing to compile for a plain copy, so that compile_only is done at once.
static tn_status run_copy(const tni_call *call)
{
    const tni_cuda *c     = call->session;
    bool            plain = is_plain_copy(call) && !c->recorder.plan;
    if (!plain) return tni_groups_copy(call);
    return call->compile_only ? TN_OK : copy_bytes(call);
}

// Small matrices by kernels, large ones by cuSOLVER. On the host, with copies that wait, if nothing
// else takes it: such a run can never be a graph.
static tn_status run_linalg(const tni_call *call)
{
    if (tni_groups_takes_linalg(call)) return tni_groups_linalg_small(call);
    if (tni_solver_takes(call)) {
        tn_status s = tni_solver_run(call);
        if (s != TN_EARG) return s;
    }
    if (!tni_linalg_is_value(call) && !call->compile_only) tni_replay_never_graph(call->session);
    return tni_call_on_host(call);
}

// Kernels for small matrices and the host have no scratch of the device.
static size_t linalg_scratch(const tni_call *call)
{
    bool solver = !tni_groups_takes_linalg(call) && tni_solver_takes(call);
    return solver ? tni_solver_scratch(call) : 0;
}

// ---- calls and the kernels behind them ---------------------------------------------------------

static bool takes_epilogue(void *session, const tni_offer *o)
{
    int op = o->call->op;
    if (op == TNI_conv || op == TNI_conv_dgrad) return tni_cuda_conv_takes(session, o);
    return op == TNI_matmul && tni_cuda_matmul_takes(session, o);
}

static size_t scratch_with_epilogue(const tni_call *call, void *entry, const tni_launch *l)
{
    (void)entry;
    (void)l;
    return tni_call_scratch(call);
}

static tn_status run_with_epilogue(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    return call->op == TNI_matmul ? tni_cuda_matmul_with_epilogue(call, entry, l, why)
                                  : tni_cuda_conv_with_epilogue(call, entry, l, why);
}

// Entries are forms, which calls share and which live until the process ends.
static void keep_form(void *entry)
{
    (void)entry;
}

#define ATTENTION                                                                              \
    {                                                                                          \
        .run = tni_cuda_attention, .prepare = tni_cuda_prepare_attention, .forget = keep_form, \
        .scratch = tni_cuda_attention_scratch, .varies = tni_cuda_attention_varies,            \
        .declines = tni_cuda_attention_declines, .method = tni_cuda_attention_method,          \
        .strided = true                                                                        \
    }

#define CONVOLUTION                                                                  \
    {                                                                                \
        .run = tni_cuda_conv, .prepare = tni_cuda_prepare_conv, .forget = keep_form, \
        .scratch = tni_cuda_conv_scratch, .varies = tni_cuda_conv_varies,            \
        .method = tni_cuda_conv_method                                               \
    }

#define BYTES                                                                          \
    {                                                                                  \
        .run = tni_cuda_bytes, .prepare = tni_cuda_prepare_bytes, .forget = keep_form, \
        .scratch = tni_cuda_bytes_scratch, .declines = tni_cuda_bytes_declines         \
    }

const tni_device_calls tni_cuda_calls = {
    .of_class              = { TNI_GROUPS_CLASSES, [TNI_CAST] = { .run = run_copy } },
    .of_op                 = { TNI_GROUPS_OPS, [TNI_copy] = { .run = run_copy },
                               [TNI_matmul] = { .run     = tni_cuda_matmul,
                                                .prepare = tni_cuda_prepare_matmul,
                                                .forget  = free,
                                                .scratch = tni_cuda_matmul_scratch,
                                                .varies  = tni_cuda_matmul_varies,
                                                .method  = tni_cuda_matmul_method,
                                                .tuned   = tni_cuda_matmul_tuned,
                                                .strided = true },
                               [TNI_conv] = CONVOLUTION, [TNI_conv_dgrad] = CONVOLUTION,
                               [TNI_conv_wgrad] = CONVOLUTION, [TNI_matmul_i32] = BYTES, [TNI_conv_i32] = BYTES,
                               [TNI_attention] = ATTENTION, [TNI_attention_grad] = ATTENTION,
                               [TNI_linalg] = { .run = run_linalg, .scratch = linalg_scratch },
                               [TNI_fft]    = { .run     = tni_cuda_fft,
                                                .prepare = tni_cuda_prepare_fft,
                                                .forget  = tni_cuda_forget_fft,
                                                .scratch = tni_cuda_fft_scratch,
                                                .method  = tni_cuda_fft_method },
                               [TNI_custom] = { .run = tni_cuda_custom, .scratch = tni_cuda_custom_scratch } },
    .groups                = &groups,
    .row_bytes             = 16,  // what cuBLASLt's fast algorithms ask of leading dimensions
    .takes                 = takes_epilogue,
    .scratch_with_epilogue = scratch_with_epilogue,
    .run_with_epilogue     = run_with_epilogue,
    .recognizes            = 64 * 64,  // a tile of scores
    .runs_scores           = true,
    .conv_order            = tni_cuda_conv_order,
    .packed_bytes          = tni_cuda_packed_bytes,
    .pack                  = tni_cuda_pack,
    .expect_products       = tni_cuda_expect_products,
};
