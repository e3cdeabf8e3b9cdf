// The reference device: memory of the host, one op at a time, in double and int64. It is what every
// other device is compared with, so it says what an op means in the plainest way.
#include "ref.h"

#include "base/heap.h"

static bool probe(tni_text *detail)
{
    tni_text_add(detail, "double-precision reference, op by op");
    return true;
}

static void *alloc(void *session, size_t bytes)
{
    return tni_alloc_block(session, bytes);
}

static void release(void *session, void *p)
{
    tni_free_block(session, p);
}

static tn_status upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why)
{
    (void)session;
    (void)why;
    tni_ref_put(dst, dt, host, count);
    return TN_OK;
}

static tn_status download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why)
{
    (void)session;
    (void)why;
    tni_ref_get(host, dt, src, count);
    return TN_OK;
}

static size_t element_size(tn_dtype dt)
{
    (void)dt;
    return sizeof(tni_cell);
}

// clang-format off
static const tni_device_calls calls = {
    .of_class = {
        [TNI_UNARY]          = { .sure = tni_ref_map },
        [TNI_BINARY]         = { .sure = tni_ref_map },
        [TNI_TERNARY]        = { .sure = tni_ref_map },
        [TNI_CAST]           = { .sure = tni_ref_copy },
        [TNI_REDUCE]         = { .sure = tni_ref_reduce },
        [TNI_SCAN]           = { .sure = tni_ref_scan },
        [TNI_SOURCE]         = { .sure = tni_ref_source },
    },
    .of_op = {
        [TNI_copy]           = { .sure = tni_ref_copy },
        [TNI_pad]            = { .sure = tni_ref_pad },
        [TNI_concat]         = { .sure = tni_ref_concat },
        [TNI_gather]         = { .run = tni_ref_gather },
        [TNI_scatter]        = { .run = tni_ref_scatter },
        [TNI_scatter_add]    = { .run = tni_ref_scatter },
        [TNI_fold]           = { .sure = tni_ref_fold },
#define CALLS(f, g) { .run = tni_ref_##f, .scratch = tni_ref_##f##_scratch },
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_IF_##class([TNI_##name] = expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
    },
};
// clang-format on

static const tni_device_memory memory = {
    .alloc        = alloc,
    .free         = release,
    .element_size = element_size,
    .upload       = upload,
    .download     = download,
};

const tni_device tni_device_ref = {
    .name   = "ref",
    .probe  = probe,
    .memory = &memory,
    .calls  = &calls,
};
