// The reference device: host memory, one op at a time, in double and int64. Every other device is
// compared with it, so it says what an op means in the plainest way, and shares no
// arithmetic with the devices that it judges, except random numbers.
//
// Where the meaning of each op is written:
//
//     maps                 ops.def's expression, by tni_map_f, _i, _u (ops/map_value.c); ref_map.c applies them
//     cast, copy           tni_ref_convert in ref_number.c; copy_cells in ref_move.c
//     full, scalar, iota, random    ref_source.c
//     reductions, scans    ref_reduce.c
//     pad, concat, gather, scatter, fold    ref_move.c
//     matmul, convolution and its gradients    ref_product.c
//     attention and its gradient    ref_attention.c
//     argsort              ref_sort.c
//     linear algebra       device/host_linalg.c, called by ref_linalg.c
//     products with sparse matrices    ref_sparse.c
//     users' ops           the user's function, called by ref_custom.c
#include "ref.h"

#include "base/heap.h"

static bool ref_probe(tni_text *detail)
{
    tni_text_add(detail, "double-precision reference, op by op");
    return true;
}

static void *ref_alloc(void *session, size_t bytes)
{
    return tni_alloc_block(session, bytes);
}

static void ref_free(void *session, void *p)
{
    tni_free_block(session, p);
}

// Conversions to and from cells happen here, so that all ops see only doubles and int64s.
static tn_status ref_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                            tni_text *why)
{
    (void)session;
    (void)why;
    tni_ref_from_host(dst, dt, host, count);
    return TN_OK;
}

static tn_status ref_download(void *session, void *host, tn_dtype dt, const void *src,
                              int64_t count, tni_text *why)
{
    (void)session;
    (void)why;
    tni_ref_to_host(host, dt, src, count);
    return TN_OK;
}

// Every element takes one cell, whatever its dtype.
static size_t ref_element_size(tn_dtype dt)
{
    (void)dt;
    return sizeof(tni_cell);
}

// clang-format off
static const tni_device_calls calls = {
    .runs_scores = true,
    .of_class = {
        [TNI_UNARY]          = { .run_nofail = tni_ref_map },
        [TNI_BINARY]         = { .run_nofail = tni_ref_map },
        [TNI_TERNARY]        = { .run_nofail = tni_ref_map },
        [TNI_CAST]           = { .run_nofail = tni_ref_copy },
        [TNI_REDUCE]         = { .run_nofail = tni_ref_reduce },
        [TNI_SCAN]           = { .run_nofail = tni_ref_scan },
        [TNI_SOURCE]         = { .run_nofail = tni_ref_source },
    },
    .of_op = {
        [TNI_copy]           = { .run_nofail = tni_ref_copy },
        [TNI_pad]            = { .run_nofail = tni_ref_pad },
        [TNI_concat]         = { .run_nofail = tni_ref_concat },
        [TNI_gather]         = { .run = tni_ref_gather },
        [TNI_scatter]        = { .run = tni_ref_scatter },
        [TNI_scatter_add]    = { .run = tni_ref_scatter },
        [TNI_fold]           = { .run_nofail = tni_ref_fold },
#define CALLS(f, g) { .run = tni_ref_##f, .scratch = tni_ref_##f##_scratch },
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_IF_##class([TNI_##name] = expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
    },
};
// clang-format on

static const tni_device_memory memory = {
    .alloc        = ref_alloc,
    .free         = ref_free,
    .element_size = ref_element_size,
    .upload       = ref_upload,
    .download     = ref_download,
};

const tni_device tni_device_ref = {
    .name   = "ref",
    .probe  = ref_probe,
    .memory = &memory,
    .calls  = &calls,
};
