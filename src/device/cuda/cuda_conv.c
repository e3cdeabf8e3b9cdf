// Convolution by the fastest of several methods: the family of calls, and the methods that are not
// cuDNN.
#include "device/cuda/conv_direct.h"
#include "device/cuda/with_kernel.h"

#include <stdlib.h>
#include <string.h>

// ---- as a matrix product -----------------------------------------------------------------------

// A form that is a product of its operands in place: what matmul prepared for it.
typedef struct {
    void *entry;
} product_work;

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
                                       .declines = product_declines,
                                       .open     = product_open,
                                       .launch   = product_launch,
                                       .varies   = product_varies };

// ---- of each channel with its own window -------------------------------------------------------

// A text with the ending of the kernel behind the call. It lives until the process ends, as the
// programs compiled of it do, which are found by its address: calls that differ in sizes alone
// share one.
typedef struct ended_text {
    const char        *piece[6];
    struct ended_text *next;
} ended_text;

static ended_text *ended_texts;  // method.c calls with its lock held

typedef struct {
    const char *const *text;
} depthwise_work;

static int64_t width_of(const tni_call *call)
{
    return call->out.size[call->out.rank - 1];
}

static const char *depthwise_declines(tni_cuda *c, const tni_call *call)
{
    (void)c;
    if (!tni_groups_takes_depthwise(call)) return "it is no convolution of single channels";
    if (call->also_read) return "something else reads its result";
    bool ends = !call->launch ||
                (call->op == TNI_conv && !call->launch->kernel->tails &&
                 tni_is_ending(call->launch, call->epilogue->product, width_of(call)));
    return ends ? NULL : "the kernel behind it does more than map elements";
}

// Returns a text with another second piece; NULL when memory is out.
static const char *const *end_text(const char *const *plain, const char *ending)
{
    ended_text *t = ended_texts;
    while (t && (t->piece[0] != plain[0] || strcmp(t->piece[1], ending))) t = t->next;
    if (t) return t->piece;
    t          = calloc(1, sizeof *t);
    char *copy = strdup(ending);
    if (!t || !copy) {
        free(t);
        free(copy);
        return NULL;
    }
    memcpy(t->piece, plain, sizeof t->piece);
    t->piece[1] = copy;
    t->next     = ended_texts;
    ended_texts = t;
    return t->piece;
}

static const char *const *depthwise_text(tni_cuda *c, const tni_call *call)
{
    const char *const *plain = tni_groups_depthwise_text(call);
    if (!call->launch) return plain;
    char              *ending = tni_ending_text(c->heap, &tni_dialect_cuda, call->launch,
                                                call->epilogue->product, width_of(call));
    const char *const *text   = ending ? end_text(plain, ending) : NULL;
    tni_free(c->heap, ending);
    return text;
}

static void *depthwise_open(tni_cuda *c, const tni_call *call)
{
    depthwise_work *w  = calloc(1, sizeof *w);
    tn_dtype        dt = call->out.dtype;
    if (w && (w->text = depthwise_text(c, call))) {
        tni_compiled_group_kernel_soon(c->gpu->compiled, w->text, dt, dt);
        return w;
    }
    free(w);
    return NULL;
}

static tn_status depthwise_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                                  tni_text *why)
{
    const depthwise_work *w    = work;
    tni_call              here = *call;
    tni_ending_args       ending;
    char                 *y = call->out.data;
    (void)c, (void)candidate;
    here.why = why;
    if (call->launch) {
        ending = tni_ending_args_of(call->launch);
        y      = ending.from[tni_ending_store(call->launch->kernel, call->epilogue->product)];
    }
    return tni_groups_depthwise(&here, w->text, y, call->launch ? &ending : NULL);
}

static const tni_method by_depthwise = { .name     = "depthwise",
                                         .declines = depthwise_declines,
                                         .open     = depthwise_open,
                                         .launch   = depthwise_launch };

// ---- by the kernels of all devices with work groups --------------------------------------------

// They take every form; all that is remembered is the scratch.
typedef struct {
    size_t scratch;
} groups_work;

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
                                      .open        = groups_open,
                                      .scratch     = groups_scratch,
                                      .launch      = groups_launch };

// ---- the families ------------------------------------------------------------------------------

static void put_array(tni_form_words *w, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++) tni_form_put(w, v[i]);
}

// Sizes, strides and the window.
void tni_conv_describe(const tni_call *call, tni_form_words *w)
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

const tni_family tni_convs = { .name     = "convolution",
                               .methods  = 6,
                               .method   = { &tni_conv_by_cudnn, &by_product, &by_depthwise,
                                             &tni_conv_direct, &tni_conv_by_cores, &by_groups },
                               .describe = tni_conv_describe };

static void describe_with_kernel(const tni_call *call, tni_form_words *w)
{
    tni_conv_describe(call, w);
    tni_form_put_kernel(w, call);
}

const tni_family tni_convs_with_kernels = { .name     = "convolution with kernel",
                                            .methods  = 4,
                                            .method   = { &tni_conv_by_cudnn, &by_depthwise,
                                                          &tni_call_by_tiles, &tni_call_by_pair },
                                            .describe = describe_with_kernel };

// ---- the contract ------------------------------------------------------------------------------

// cuDNN's engines for tensor cores and our own kernels want the channels of one place next to each
// other, in vectors of 16 bytes. An image of few channels is copied for the sake of what follows:
// the result has many.
int tni_cuda_conv_order(const void *session, tn_dtype dt, int64_t from, int64_t to, bool last)
{
    const tni_cuda *c      = session;
    int64_t         vector = dt == TN_F32 ? 4 : 8;
    bool            cores  = dt == TN_F16 || dt == TN_BF16 || (dt == TN_F32 && c->tf32);
    bool            own    = c->conv_cores && tni_gpu_has_cores(c->gpu);
    if (tni_dtype_size(dt) == 1) return own ? TNI_WEIGHTS_LAST : 1;
    if (!cores || !(own || tni_conv_by_cudnn.version())) return last;
    bool fits = to % vector == 0 && (from % vector == 0 || from < vector);
    return last || fits ? TNI_WEIGHTS_LAST : 0;
}

void *tni_cuda_prepare_conv(const tni_call *call)
{
    return tni_form_open(call->prologue ? &tni_calls_with_prologues
                         : call->launch ? &tni_convs_with_kernels
                                        : &tni_convs,
                         call);
}

static tni_form *form_of(const tni_call *call)
{
    return call->entry ? call->entry : tni_cuda_prepare_conv(call);
}

size_t tni_cuda_conv_scratch(const tni_call *call)
{
    const tni_form *f = form_of(call);
    return f ? tni_form_scratch(f) : tni_groups_conv_scratch(call);
}

// The contract's run. Without memory for a form the kernels that need none run.
tn_status tni_cuda_conv(const tni_call *call)
{
    tni_text  reason = { "" };
    tni_form *f      = form_of(call);
    if (!f) return tni_groups_conv(call);
    if (call->compile_only) return tni_form_is_last_resort(f) ? tni_groups_conv(call) : TN_OK;
    tn_status s = tni_call_is_aligned(call) ? tni_form_launch(f, call, &reason)
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

// ---- with the kernel that follows --------------------------------------------------------------

// Asked when a plan is made. cuDNN is not asked for everything: not for a prologue, not to store a
// result that something else reads, too, beside the kernel's, and not for sums of columns or the
// gradients' kernels, which its engines are slow at.
bool tni_cuda_conv_takes(void *session, const tni_offer *o)
{
    if (!o->launch) return false;
    tni_call call = tni_call_of_offer(session, o);
    tni_cuda_enter(session);
    if (o->prologue || !o->only_reader || o->first_row || o->call->op != TNI_conv ||
        o->launch->kernel->tails)
        return !tni_call_by_tiles.declines(session, &call);
    return !depthwise_declines(session, &call) || !tni_conv_by_cudnn.declines(session, &call) ||
           !tni_call_by_tiles.declines(session, &call);
}

tn_status tni_cuda_conv_with_epilogue(const tni_call *call, void *entry, tni_launch *l,
                                      tni_text *why)
{
    return tni_form_with_kernel(form_of(call), call, entry, l, why);
}
