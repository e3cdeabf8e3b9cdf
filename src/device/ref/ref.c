// The reference device: memory of the host, one op at a time, in double and int64. It is what every
// other device is compared with, so it says what an op means in the plainest way.
#include "ref.h"

#include "base/heap.h"

static bool probe(tni_text *detail)
{
    tni_text_add(detail, "double-precision reference, op by op");
    return true;
}

static void *alloc(void *seat, size_t bytes)
{
    return tni_alloc_block(seat, bytes);
}

static void release(void *seat, void *p)
{
    tni_free_block(seat, p);
}

static tn_status upload(void *seat, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why)
{
    (void)seat;
    (void)why;
    tni_ref_put(dst, dt, host, count);
    return TN_OK;
}

static tn_status download(void *seat, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why)
{
    (void)seat;
    (void)why;
    tni_ref_get(host, dt, src, count);
    return TN_OK;
}

static size_t element_size(tn_dtype dt)
{
    (void)dt;
    return sizeof(tni_cell);
}

static size_t scratch(const tni_call *c)
{
    switch (c->op) {
    case TNI_argsort: return tni_ref_argsort_scratch(c);
    case TNI_attention:
    case TNI_attention_grad: return tni_ref_attention_scratch(c);
    case TNI_custom: return tni_ref_custom_scratch(c);
    default: return 0;
    }
}

// The ops that cannot fail.
static void run_sure(const tni_call *c)
{
    switch (c->op) {
    case TNI_full:
    case TNI_scalar:
    case TNI_iota:
    case TNI_random_bits:
    case TNI_uniform:
    case TNI_normal: tni_ref_source(c); break;
    case TNI_sum:
    case TNI_prod:
    case TNI_max:
    case TNI_min:
    case TNI_argmax:
    case TNI_argmin: tni_ref_reduce(c); break;
    case TNI_cumsum:
    case TNI_cumprod: tni_ref_scan(c); break;
    case TNI_cast:
    case TNI_copy: tni_ref_copy(c); break;
    case TNI_pad: tni_ref_pad(c); break;
    case TNI_concat: tni_ref_concat(c); break;
    case TNI_fold: tni_ref_fold(c); break;
    case TNI_matmul: tni_ref_matmul(c); break;
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: tni_ref_conv(c); break;
    case TNI_argsort: tni_ref_argsort(c); break;
    case TNI_attention:
    case TNI_attention_grad: tni_ref_attention(c); break;
    default: tni_ref_map(c); break;
    }
}

static tn_status run(const tni_call *c)
{
    switch (c->op) {
    case TNI_gather: return tni_ref_gather(c);
    case TNI_scatter:
    case TNI_scatter_add: return tni_ref_scatter(c);
    case TNI_custom: return tni_ref_custom(c);
    default: run_sure(c); return TN_OK;
    }
}

const tni_device tni_device_ref = {
    .name         = "ref",
    .host_memory  = false,
    .attention    = true,
    .probe        = probe,
    .alloc        = alloc,
    .free         = release,
    .element_size = element_size,
    .upload       = upload,
    .download     = download,
    .scratch      = scratch,
    .run          = run,
};
