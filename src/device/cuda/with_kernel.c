// Calls with the kernel behind them: words of forms, running, and matrix products by a kernel of our own whose ending it is.
#include "device/cuda/with_kernel.h"

#include "device/cuda/cuda_conv.h"

#include <stdlib.h>

// ---- words -------------------------------------------------------------------------------------

// How an access of the kernel goes over the result.
static int64_t order_of(const tni_launch *l, int access, int64_t width)
{
    return access < 0                             ? 0
           : tni_visits_columns(l, access, width) ? 1
                                                  : 2 + tni_visits_in_order(l, access);
}

// A word for each instruction, with the access or number that a launch is asked for.
void tni_form_put_kernel(tni_form_words *w, const tni_call *call)
{
    const tni_launch *l = call->launch;
    const tni_kernel *k = l->kernel;
    tni_form_put(w, call->epilogue->product | (int64_t)call->also_read << 32);
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x      = &k->ins[i];
        bool           memory = x->code == TNI_I_LOAD || x->code == TNI_I_STORE;
        int            buffer = memory ? k->access[x->access].buffer : 0;
        int            which  = memory ? x->access : x->code == TNI_I_NUMBER ? x->number : 0;
        int64_t        word   = x->code | x->op << 4 | (int64_t)x->dtype << 12;
        word |= (int64_t)(x->a & 255) << 18 | (int64_t)(x->b & 255) << 26 |
                (int64_t)(x->c & 255) << 34;
        if (memory) {
            word |= order_of(l, x->access, call->out.size[call->out.rank - 1]) << 42;
            word |= (int64_t)buffer << 44 | (int64_t)k->buffer[buffer].dtype << 50;
        }
        word |= (int64_t)which << 56;
        tni_form_put(w, word);
    }
}

// ---- running -----------------------------------------------------------------------------------

bool tni_call_is_aligned(const tni_call *call)
{
    bool aligned = (uintptr_t)call->out.data % 16 == 0;
    for (int i = 0; i < call->nin; i++) aligned &= (uintptr_t)call->in[i].data % 16 == 0;
    return aligned;
}

bool tni_call_suits_form(const tni_call *call, const tni_launch *l)
{
    const tni_kernel *k      = l->kernel;
    bool              suited = tni_call_is_aligned(call);
    for (int i = 0; i < k->naccess; i++) suited &= (uintptr_t)tni_access_address(l, i) % 16 == 0;
    for (int w = 0; w < k->nbuffer; w++) {
        if (!k->buffer[w].written) continue;
        for (int i = 0; i < k->nbuffer; i++)
            suited &= i == w || i == call->epilogue->product || l->buffer[i] != l->buffer[w];
        for (int i = 0; i < call->nin; i++)
            suited &= (const char *)call->in[i].data != l->buffer[w];
    }
    return suited;
}

tn_status tni_form_with_kernel(tni_form *f, const tni_call *call, void *entry, tni_launch *l,
                               tni_text *why)
{
    tni_text reason = { "" };
    tni_call here   = *call;
    here.launch     = l;
    here.kernel     = entry;
    if (!f || !tni_call_suits_form(&here, l)) {
        tni_call  plain = tni_call_within(call, call->op);
        tn_status s     = tni_call_run(&plain);
        return s == TN_OK ? tni_cuda_launch(call->session, entry, l, why) : s;
    }
    tn_status s = tni_form_launch(f, &here, &reason);
    if (s != TN_OK) tni_text_add(why, "%s", reason.s);
    return s;
}

// ---- products ----------------------------------------------------------------------------------

// The product, then the kernel.
typedef struct {
    void *entry;
} pair_work;

static void *pair_open(tni_cuda *c, const tni_call *call)
{
    tni_call   plain = tni_call_within(call, TNI_matmul);
    pair_work *w     = calloc(1, sizeof *w);
    (void)c;
    if (w) w->entry = tni_cuda_prepare_matmul(&plain);
    return w;
}

// The kernel is not interpreted while it is being compiled: its time would be another.
static tn_status pair_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                             tni_text *why)
{
    tni_call plain = tni_call_within(call, TNI_matmul);
    plain.entry    = ((const pair_work *)work)->entry;
    plain.why      = why;
    (void)candidate;
    tn_status s                     = tni_cuda_matmul(&plain);
    call->launch->wait_for_compiler = true;
    return s == TN_OK ? tni_cuda_launch(c, call->kernel, call->launch, why) : s;
}

static const char *pair_varies(tni_cuda *c, void *work, const tni_call *call)
{
    tni_call plain = tni_call_within(call, TNI_matmul);
    (void)c, (void)work;
    return tni_cuda_matmul_varies(&plain);
}

// The product with the library's epilogue.
static void *library_open(tni_cuda *c, const tni_call *call)
{
    (void)c;
    return tni_cuda_prepare_epilogue(call);
}

static tn_status library_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                                tni_text *why)
{
    tni_call here = *call;
    (void)c, (void)candidate;
    here.entry = work;
    here.why   = why;
    return tni_cuda_matmul_by_library(&here, call->kernel, call->launch, why);
}

static const tni_method by_library = { .name     = "cuBLASLt",
                                       .declines = tni_cuda_epilogue_declines,
                                       .open     = library_open,
                                       .launch   = library_launch,
                                       .varies   = pair_varies };

// Where the library has an epilogue, two launches are slower.
static const char *pair_declines(tni_cuda *c, const tni_call *call)
{
    return tni_cuda_epilogue_declines(c, call) ? NULL : "the library does both";
}

static const tni_method by_pair = { .name     = "two launches",
                                    .declines = pair_declines,
                                    .open     = pair_open,
                                    .launch   = pair_launch,
                                    .varies   = pair_varies };

// Sizes, strides and the kernel.
static void describe(const tni_call *call, tni_form_words *w)
{
    const tni_arg *arg[] = { &call->in[0], &call->in[1], &call->out };
    for (int i = 0; i < 3; i++) {
        tni_form_put(w, arg[i]->rank);
        for (int k = 0; k < arg[i]->rank; k++) tni_form_put(w, arg[i]->size[k]);
        tni_form_put_arg(w, arg[i], arg[i]->rank);
    }
    tni_form_put_kernel(w, call);
}

const tni_family tni_products_with_kernels = { .name     = "product with kernel",
                                               .methods  = 3,
                                               .method   = { &by_library, &tni_conv_by_tiles,
                                                             &by_pair },
                                               .describe = describe };
