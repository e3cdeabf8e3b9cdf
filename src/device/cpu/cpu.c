// The cpu device: memory, the table that says which function runs which op, and what people are
// told about it. Kernels are compiled by the system's compiler or interpreted; ops that no kernel
// is written for are calls: copies, products, scans, sorts, scatters.
#include "base/heap.h"
#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/gemm.h"
#include "device/cpu/tiled_epilogue.h"
#include "device/cpu/tiles.h"

#include <string.h>

#if defined(__x86_64__)
#define MACHINE "x86-64"
#define BASE    "SSE2"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#define BASE    "NEON"
#else
#define MACHINE "cpu"
#define BASE    "portable"
#endif

static const char *isa_name(void)
{
    const tni_tiles *t = tni_tiles_get();
    if (t == &tni_tiles_base) return BASE;
    return strcmp(t->name, "avx2") == 0 ? "AVX2" : "AVX-512";
}

// The cpu is always there; the line names the instruction set, the threads and the BLAS.
static bool cpu_probe(tni_text *detail)
{
    tni_blas_info blas = tni_blas_find();
    tni_text_add(detail, "%s %s, %d threads, ", MACHINE, isa_name(), tni_threads_default());
    if (blas.found) tni_text_add(detail, "BLAS: %s", blas.name);
    else tni_text_add(detail, "own product (%s)", blas.detail);
    return true;
}

// ---- memory ------------------------------------------------------------------------------------

static void *cpu_alloc(void *session, size_t bytes)
{
    return tni_alloc_block(session, bytes);
}

static void cpu_free(void *session, void *p)
{
    tni_free_block(session, p);
}

// Device memory is host memory, so that both directions are a memcpy.
static tn_status cpu_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                            tni_text *why)
{
    (void)session;
    (void)why;
    if (count > 0) memcpy(dst, host, (size_t)count * tni_dtype_size(dt));
    return TN_OK;
}

static tn_status cpu_download(void *session, void *host, tn_dtype dt, const void *src,
                              int64_t count, tni_text *why)
{
    return cpu_upload(session, host, dt, src, count, why);
}

// ---- running -----------------------------------------------------------------------------------

// clang-format off
static const tni_device_calls calls = {
    .of_class = {
        [TNI_CAST]           = { .run_nofail = tni_cpu_copy },
        [TNI_SCAN]           = { .run_nofail = tni_cpu_scan },
    },
    .of_op = {
        [TNI_argmax]         = { .run_nofail = tni_cpu_arg, .scratch = tni_cpu_arg_scratch },
        [TNI_argmin]         = { .run_nofail = tni_cpu_arg, .scratch = tni_cpu_arg_scratch },
        [TNI_copy]           = { .run_nofail = tni_cpu_copy },
        [TNI_concat]         = { .run_nofail = tni_cpu_concat },
        [TNI_scatter]        = { .run = tni_cpu_scatter, .scratch = tni_cpu_scatter_scratch },
        [TNI_scatter_add]    = { .run = tni_cpu_scatter, .scratch = tni_cpu_scatter_scratch },
        [TNI_fold]           = { .run_nofail = tni_cpu_fold, .scratch = tni_cpu_fold_scratch },
#define CALLS(f, g) { .run = tni_cpu_##f, .scratch = tni_cpu_##f##_scratch, .others = tni_cpu_others, \
                      .prepare = tni_cpu_prepare_call, .forget = tni_cpu_forget_call },
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_IF_##class([TNI_##name] = expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
    },
    .takes     = tni_cpu_takes,
    .scratch_with_epilogue = tni_cpu_scratch_with_epilogue,
    .run_with_epilogue  = tni_cpu_run_with_epilogue,
};
// clang-format on

static const tni_device_memory memory = {
    .host         = true,
    .alloc        = cpu_alloc,
    .free         = cpu_free,
    .element_size = tni_dtype_size,
    .upload       = cpu_upload,
    .download     = cpu_download,
};

static const tni_device_kernels kernels = {
    .compile_on_second_run = true,
    .fixed_scratch         = true,
    .prepare               = tni_cpu_prepare,
    .launch                = tni_cpu_launch,
    .scratch               = tni_cpu_scratch,
    .recall                = tni_cpu_recall,
    .chip                  = tni_cpu_chip,
    .neighbours            = tni_cpu_neighbours,
    .expect                = tni_cpu_expect,
    .retuned               = tni_cpu_retuned,
    .counts                = tni_cpu_compile_counts,
    .text                  = tni_cpu_text,
};

const tni_device tni_device_cpu = {
    .name    = "cpu",
    .probe   = cpu_probe,
    .memory  = &memory,
    .calls   = &calls,
    .kernels = &kernels,
};
