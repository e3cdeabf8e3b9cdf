// The cpu device: kernels compiled by the system's compiler or interpreted, a tile interpreter for
// the op table, matrix products by gemm.h.
#include "base/heap.h"
#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_walk.h"
#include "device/cpu/gemm.h"
#include "device/cpu/then.h"

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

static bool probe(tni_text *detail)
{
    tni_blas_info blas = tni_blas_find();
    tni_text_add(detail, "%s %s, %d threads, ", MACHINE, isa_name(), tni_threads_default());
    if (blas.found) tni_text_add(detail, "BLAS: %s", blas.name);
    else tni_text_add(detail, "own product (%s)", blas.detail);
    return true;
}

// ---- memory ----

static void *cpu_alloc(void *seat, size_t bytes)
{
    return tni_alloc_block(seat, bytes);
}

static void cpu_free(void *seat, void *p)
{
    tni_free_block(seat, p);
}

static tn_status upload(void *seat, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why)
{
    (void)seat;
    (void)why;
    if (count > 0) memcpy(dst, host, (size_t)count * tni_dtype_size(dt));
    return TN_OK;
}

static tn_status download(void *seat, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why)
{
    return upload(seat, host, dt, src, count, why);
}

// ---- running ----

static size_t scratch(const tni_call *call)
{
    switch (call->op) {
    case TNI_sum:
    case TNI_prod:
    case TNI_max:
    case TNI_min: return tni_cpu_reduce_scratch(call);
    case TNI_argmax:
    case TNI_argmin: return tni_cpu_arg_scratch(call);
    case TNI_scatter:
    case TNI_scatter_add: return tni_cpu_scatter_scratch(call);
    case TNI_fold: return tni_cpu_fold_scratch(call);
    case TNI_matmul: return tni_cpu_matmul_scratch(call);
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: return tni_cpu_conv_scratch(call);
    case TNI_attention:
    case TNI_attention_grad: return tni_cpu_attention_scratch(call);
    case TNI_argsort: return tni_cpu_argsort_scratch(call);
    case TNI_custom: return tni_cpu_custom_scratch(call);
    default: return 0;
    }
}

// What runs an op that cannot fail; NULL where there is nothing to run.
typedef void runner(const tni_call *call);

static runner *runner_of(int op)
{
    switch (op) {
    case TNI_cast:
    case TNI_copy: return tni_cpu_copy;
    case TNI_full:
    case TNI_scalar: return tni_cpu_fill;
    case TNI_iota: return tni_cpu_iota;
    case TNI_random_bits:
    case TNI_uniform:
    case TNI_normal: return tni_cpu_random;
    case TNI_argmax:
    case TNI_argmin: return tni_cpu_arg;
    case TNI_pad: return tni_cpu_pad;
    case TNI_concat: return tni_cpu_concat;
    case TNI_fold: return tni_cpu_fold;
    case TNI_matmul: return tni_cpu_matmul;
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: return tni_cpu_conv;
    case TNI_attention:
    case TNI_attention_grad: return tni_cpu_attention;
    case TNI_argsort: return tni_cpu_argsort;
    default: break;
    }
    tni_class class = tni_op_table[op].class;
    if (class == TNI_REDUCE) return tni_cpu_reduce;
    if (class == TNI_SCAN) return tni_cpu_scan;
    return tni_is_map(op) ? tni_cpu_map : NULL;
}

static tn_status run(const tni_call *call)
{
    if (call->op == TNI_gather) return tni_cpu_gather(call);
    if (call->op == TNI_scatter || call->op == TNI_scatter_add) return tni_cpu_scatter(call);
    if (call->op == TNI_custom) return tni_cpu_custom(call);
    runner *f = runner_of(call->op);
    if (!f) {
        tni_text_add(call->why, "%s: not an op that a device runs", tni_op_table[call->op].name);
        return TN_EDEVICE;
    }
    f(call);
    return TN_OK;
}

const tni_device tni_device_cpu = {
    .name         = "cpu",
    .host_memory  = true,
    .attention    = true,
    .probe        = probe,
    .alloc        = cpu_alloc,
    .free         = cpu_free,
    .element_size = tni_dtype_size,
    .upload       = upload,
    .download     = download,
    .scratch      = scratch,
    .run          = run,
    .lazy         = true,
    .recall       = tni_cpu_recall,
    .prepare      = tni_cpu_prepare,
    .room         = tni_cpu_room,
    .launch       = tni_cpu_launch,
    .claims       = tni_cpu_claims,
    .room_then    = tni_cpu_room_then,
    .run_then     = tni_cpu_run_then,
    .counts       = tni_cpu_counts_of,
    .text         = tni_cpu_text,
};
