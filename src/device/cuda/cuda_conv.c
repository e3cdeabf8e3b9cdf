// Convolution by the fastest of several methods: the family of calls, and the methods that are not cuDNN.
#include "device/cuda/cuda_conv.h"

#include <stdlib.h>

// ---- as a matrix product -----------------------------------------------------------------------

// A form that is a product of its operands in place: what matmul prepared for it.
typedef struct {
    void *entry;
} product_work;

static size_t own_version(void)
{
    return 1;
}

static int count_one(void *work)
{
    return work != NULL;
}

static const char *product_declines(tni_cuda *c, const tni_call *call)
{
    tni_arg  in[2];
    tni_call m;
    (void)c;
    return tni_conv_product(call, in, &m) ? NULL : "it is no matrix product";
}

static void *product_open(tni_cuda *c, const tni_call *call)
{
    tni_arg       in[2];
    tni_call      m;
    product_work *w = calloc(1, sizeof *w);
    (void)c;
    if (w && tni_conv_product(call, in, &m)) w->entry = tni_cuda_prepare_matmul(&m);
    return w;
}

static size_t product_scratch(void *work)
{
    (void)work;
    return 0;
}

// The entry is that of all calls of the form, which the lock of method.c lets run one at a time.
static tn_status product_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                                tni_text *why)
{
    const product_work *w = work;
    tni_arg             in[2];
    tni_call            m;
    (void)c, (void)candidate;
    if (!tni_conv_product(call, in, &m)) return TN_EARG;
    m.entry = w->entry;
    m.why   = why;
    return tni_cuda_matmul(&m);
}

static const char *product_varies(tni_cuda *c, void *work, const tni_call *call)
{
    tni_arg  in[2];
    tni_call m;
    (void)c, (void)work;
    return tni_conv_product(call, in, &m) ? tni_cuda_matmul_varies(&m) : NULL;
}

static const tni_method by_product = { .name     = "product",
                                       .version  = own_version,
                                       .declines = product_declines,
                                       .open     = product_open,
                                       .count    = count_one,
                                       .scratch  = product_scratch,
                                       .launch   = product_launch,
                                       .varies   = product_varies };

// ---- by the kernels of all devices with work groups --------------------------------------------

// They take every form; all that is remembered is the scratch.
typedef struct {
    size_t scratch;
} groups_work;

static const char *groups_declines(tni_cuda *c, const tni_call *call)
{
    (void)c, (void)call;
    return NULL;
}

static void *groups_open(tni_cuda *c, const tni_call *call)
{
    groups_work *w = malloc(sizeof *w);
    (void)c;
    if (w) w->scratch = tni_groups_conv_scratch(call);
    return w;
}

static size_t groups_scratch(void *work)
{
    return ((const groups_work *)work)->scratch;
}

static tn_status groups_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                               tni_text *why)
{
    tni_call here = *call;
    (void)c, (void)work, (void)candidate;
    here.why   = why;
    here.entry = NULL;
    return tni_groups_conv(&here);
}

static const tni_method by_groups = { .name        = "kernels of work groups",
                                      .last_resort = true,
                                      .version     = own_version,
                                      .declines    = groups_declines,
                                      .open        = groups_open,
                                      .count       = count_one,
                                      .scratch     = groups_scratch,
                                      .launch      = groups_launch };

// ---- the family --------------------------------------------------------------------------------

static void put_array(tni_form_words *w, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++) tni_form_put(w, v[i]);
}

// Sizes, strides and the window.
static void describe(const tni_call *call, tni_form_words *w)
{
    tni_conv_form f = tni_conv_form_of(call, 3);
    tni_form_put(w, call->op);
    for (int i = 0; i < 3; i++) {
        put_array(w, f.arg[i].size, 5);
        tni_form_put_arg(w, &f.arg[i], 5);
    }
    put_array(w, f.stride, 3);
    put_array(w, f.padding, 3);
    put_array(w, f.dilation, 3);
    tni_form_put(w, f.groups);
}

static const tni_family family = { .name     = "convolution",
                                   .methods  = 3,
                                   .method   = { &tni_conv_by_cudnn, &by_product, &by_groups },
                                   .describe = describe };

// ---- the contract ------------------------------------------------------------------------------

// cuDNN's engines for tensor cores want the channels of one place next to each other, in vectors of 16 bytes.
// An image of few channels is copied for the sake of what follows: the result has many.
int tni_cuda_conv_order(const void *session, tn_dtype dt, int64_t from, int64_t to, bool last)
{
    const tni_cuda *c      = session;
    int64_t         vector = dt == TN_F32 ? 4 : 8;
    bool            cores  = dt == TN_F16 || dt == TN_BF16 || (dt == TN_F32 && c->tf32);
    if (!cores || !tni_conv_by_cudnn.version()) return last;
    bool fits = to % vector == 0 && (from % vector == 0 || from < vector);
    return last || fits ? TNI_WEIGHTS_LAST : 0;
}

void *tni_cuda_prepare_conv(const tni_call *call)
{
    return tni_form_open(&family, call);
}

static tni_form *form_of(const tni_call *call)
{
    return call->entry ? call->entry : tni_form_open(&family, call);
}

size_t tni_cuda_conv_scratch(const tni_call *call)
{
    const tni_form *f = form_of(call);
    return f ? tni_form_scratch(f) : tni_groups_conv_scratch(call);
}

// Libraries read 16 bytes at once, and forms promise such addresses.
static bool is_aligned(const tni_call *call)
{
    bool aligned = (uintptr_t)call->out.data % 16 == 0;
    for (int i = 0; i < call->nin; i++) aligned &= (uintptr_t)call->in[i].data % 16 == 0;
    return aligned;
}

// The contract's run. Without memory for a form the kernels that need none run.
tn_status tni_cuda_conv(const tni_call *call)
{
    tni_text  reason = { "" };
    tni_form *f      = form_of(call);
    if (!f) return tni_groups_conv(call);
    if (call->compile_only) return tni_form_is_last_resort(f) ? tni_groups_conv(call) : TN_OK;
    tn_status s = is_aligned(call) ? tni_form_launch(f, call, &reason)
                                   : tni_form_launch_unsuited(f, call, &reason);
    if (s != TN_OK) tni_text_add(call->why, "%s", reason.s);
    return s;
}

const char *tni_cuda_conv_varies(const tni_call *call)
{
    tni_form *f = form_of(call);
    return f ? tni_form_varies(f, call) : NULL;
}

const char *tni_cuda_conv_method(const tni_call *call)
{
    tni_form *f = form_of(call);
    return f ? tni_form_method(f) : NULL;
}
