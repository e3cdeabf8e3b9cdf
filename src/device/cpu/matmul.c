// Batched matrix products, by gemm.h. Leading axes that merge into one make one batch; the others
// are a loop over batches.
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"
#include "device/cpu/gemm.h"
#include "device/cpu/tiled_epilogue.h"

// A product as a loop over batches. a, b, c: the leading axes, without the one that is the batch.
typedef struct {
    tni_gemm_batch g;
    tni_arg        a, b, c;  // the leading axes, without the last if it is the batch
    int64_t        loops;
} matmul_job;

// Merges the leading axes of all three arguments, so that the batch is as large as possible: the
// inner axis becomes the batch, which may be broadcast (stride 0) in a or b.
static matmul_job plan_matmul(const tni_call *call)
{
    int            rank = call->out.rank, lead = rank - 2;
    const tni_arg *a = &call->in[0], *b = &call->in[1], *c = &call->out;
    matmul_job     j = { .a = *a, .b = *b, .c = *c };
    j.g.one          = (tni_gemm){
                 .dtype = c->dtype,
                 .m     = c->size[lead],
                 .n     = c->size[lead + 1],
                 .k     = a->size[lead + 1],
                 .a     = a->data,
                 .a_row = a->stride[lead],
                 .a_col = a->stride[lead + 1],
                 .b     = b->data,
                 .b_row = b->stride[lead],
                 .b_col = b->stride[lead + 1],
                 .c     = c->data,
                 .ldc   = c->size[lead + 1],
    };
    j.a.rank = j.b.rank = j.c.rank = lead;
    tni_arg *all[3]                = { &j.c, &j.a, &j.b };
    tni_merge_axes(3, all);
    int last  = j.c.rank - 1;
    j.g.batch = 1;
    if (last >= 0) {
        j.g.batch  = j.c.size[last];
        j.g.a_step = j.a.stride[last];
        j.g.b_step = j.b.stride[last];
        j.g.c_step = j.c.stride[last];
        j.a.rank = j.b.rank = j.c.rank = last;
    }
    j.loops       = tni_arg_count(&j.c);
    j.g.otherwise = call->otherwise;
    return j;
}

// Of all calls only products have two methods, and parts that can be chosen.
unsigned tni_cpu_others(const tni_call *call)
{
    if (call->op != TNI_matmul) return 0;
    matmul_job j = plan_matmul(call);
    return tni_gemm_others(&j.g);
}

size_t tni_cpu_matmul_scratch(const tni_call *call)
{
    matmul_job j = plan_matmul(call);
    return tni_gemm_batch_scratch(&j.g, call->threads);
}

// The epilogue, if there is one, counts elements from the beginning of the whole result.
tn_status tni_cpu_matmul(const tni_call *call)
{
    matmul_job j     = plan_matmul(call);
    int64_t    bytes = (int64_t)tni_dtype_size(call->out.dtype);
    for (int64_t i = 0; i < j.loops; i++) {
        tni_gemm_batch g = j.g;
        g.one.a          = j.a.data + tni_arg_offset(&j.a, i) * bytes;
        g.one.b          = j.b.data + tni_arg_offset(&j.b, i) * bytes;
        g.one.c          = j.c.data + tni_arg_offset(&j.c, i) * bytes;
        g.epilogue       = call->tiled_epilogue;
        if (g.epilogue) g.epilogue->offset = tni_arg_offset(&j.c, i);
        tni_gemm_batch_run(&g, call->threads, call->scratch);
    }
    return TN_OK;
}
