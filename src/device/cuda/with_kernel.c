// Calls with the kernel behind them: words of forms, running, and matrix products by a kernel of
// our own whose ending it is.
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

// A word of an instruction, its fields from the lowest bit on. Access or number: that which a
// launch is asked for.
static int64_t instruction_word(const tni_launch *l, const tni_ins *x, int64_t width)
{
    const tni_kernel *k      = l->kernel;
    bool              memory = x->code == TNI_I_LOAD || x->code == TNI_I_STORE;
    int               buffer = memory ? k->access[x->access].buffer : 0;
    const struct {
        int64_t value;
        int     bits;
    } field[] = {
        { x->code, 4 },
        { x->op, 8 },
        { x->dtype, 6 },
        { x->a, 8 },
        { x->b, 8 },
        { x->c, 8 },
        { memory ? order_of(l, x->access, width) : 0, 2 },
        { buffer, 6 },
        { memory ? k->buffer[buffer].dtype : 0, 6 },
        { memory                    ? x->access
          : x->code == TNI_I_NUMBER ? x->number
                                    : 0,
          8 },
    };
    uint64_t word = 0;
    for (int i = 0, at = 0; i < (int)(sizeof field / sizeof *field); at += field[i++].bits)
        word |= ((uint64_t)field[i].value & (((uint64_t)1 << field[i].bits) - 1)) << at;
    return (int64_t)word;
}

_Static_assert(TNI_I_STORE < 1 << 4 && TNI_MAX_INS < 1 << 8 && TNI_MAX_BUFFERS <= 1 << 6 &&
                   TNI_MAX_ACCESSES <= 1 << 8 && TNI_MAX_NUMBERS <= 1 << 8,
               "an instruction fits the fields of its word");

// A word for each instruction. width: elements of a row.
static void put_instructions(tni_form_words *w, const tni_launch *l, int64_t width)
{
    const tni_kernel *k = l->kernel;
    for (int i = 0; i < k->nins; i++) tni_form_put(w, instruction_word(l, &k->ins[i], width));
}

void tni_form_put_kernel(tni_form_words *w, const tni_call *call)
{
    tni_form_put(w, call->epilogue->product | (int64_t)call->also_read << 32);
    put_instructions(w, call->launch, call->out.size[call->out.rank - 1]);
}

// ---- running -----------------------------------------------------------------------------------

bool tni_call_is_aligned(const tni_call *call)
{
    bool aligned = (uintptr_t)call->out.data % 16 == 0;
    for (int i = 0; i < call->nin; i++) aligned &= (uintptr_t)call->in[i].data % 16 == 0;
    return aligned;
}

static bool is_aligned(const tni_launch *l)
{
    bool aligned = true;
    for (int i = 0; i < l->kernel->naccess; i++)
        aligned &= (uintptr_t)tni_access_address(l, i) % 16 == 0;
    return aligned;
}

// Whether kernel l writes something that kernel `other` reads or writes.
static bool writes_of(const tni_launch *l, const tni_launch *other)
{
    for (int w = 0; w < l->kernel->nbuffer; w++)
        for (int i = 0; i < other->kernel->nbuffer && l->kernel->buffer[w].written; i++)
            if (l->buffer[w] == other->buffer[i] && (l != other || i != w)) return true;
    return false;
}

// Whether the kernel before a call may be computed while the rest is: what it reads is overwritten
// by none of the three, and none but itself knows what it makes.
static bool suits_prologue(const tni_call *call, const tni_launch *l)
{
    const tni_launch *p = call->prologue;
    bool suited         = is_aligned(p) && !writes_of(p, p) && !writes_of(p, l) && !writes_of(l, p);
    for (int i = 0; i < p->kernel->nbuffer; i++)
        suited &= p->buffer[i] != call->out.data &&
                  (!p->kernel->buffer[i].written || p->buffer[i] != call->in[1].data);
    return suited;
}

bool tni_call_suits_form(const tni_call *call, const tni_launch *l)
{
    const tni_kernel *k      = l->kernel;
    bool              suited = tni_call_is_aligned(call) && is_aligned(l);
    for (int w = 0; w < k->nbuffer; w++) {
        if (!k->buffer[w].written) continue;
        for (int i = 0; i < k->nbuffer; i++)
            suited &= i == w || i == call->epilogue->product || l->buffer[i] != l->buffer[w];
        for (int i = 0; i < call->nin; i++)
            suited &= (const char *)call->in[i].data != l->buffer[w];
    }
    return suited;
}

// A call without its prologue, and the family of such calls.
static tni_call rest_of(const tni_call *call)
{
    tni_call rest = *call;
    rest.prologue = NULL;
    rest.entry    = NULL;
    return rest;
}

static const tni_family *rest_family(const tni_call *call)
{
    return call->op == TNI_matmul ? &tni_products_with_kernels : &tni_convs_with_kernels;
}

static tn_status launch_prologue(const tni_call *call, tni_text *why)
{
    return tni_cuda_launch(call->session, *call->prologue_kernel, call->prologue, why);
}

// If addresses do not suit, a prologue is launched first, and the rest runs as a call without one.
tn_status tni_form_with_kernel(tni_form *f, const tni_call *call, void *entry, tni_launch *l,
                               tni_text *why)
{
    tni_text reason = { "" };
    tni_call here   = *call;
    here.launch     = l;
    here.kernel     = entry;
    if (call->prologue && !(f && suits_prologue(&here, l) && tni_call_suits_form(&here, l))) {
        tni_call  rest = rest_of(&here);
        tn_status s    = launch_prologue(call, why);
        if (s != TN_OK) return s;
        return tni_form_with_kernel(tni_form_open(rest_family(&rest), &rest), &rest, entry, l, why);
    }
    if (!f || !tni_call_suits_form(&here, l)) {
        tni_call  plain = tni_call_within(call, call->op);
        tn_status s     = tni_call_run(&plain);
        return s == TN_OK ? tni_cuda_launch(call->session, entry, l, why) : s;
    }
    tn_status s = tni_form_launch(f, &here, &reason);
    if (s != TN_OK) tni_text_add(why, "%s", reason.s);
    return s;
}

// ---- the call, then the kernel -----------------------------------------------------------------

// The form of a convolution alone; the entry of a product alone, which is of no family.
typedef struct {
    tni_form *form;
    void     *entry;
} pair_work;

// Where the library has an epilogue, which only products have, two launches are slower.
static const char *pair_declines(tni_cuda *c, const tni_call *call)
{
    bool both = call->op == TNI_matmul && !tni_cuda_epilogue_declines(c, call);
    return both ? "the library does both" : NULL;
}

static void *pair_open(tni_cuda *c, const tni_call *call)
{
    tni_call   plain   = tni_call_within(call, call->op);
    bool       product = call->op == TNI_matmul;
    pair_work *w       = calloc(1, sizeof *w);
    (void)c;
    if (w && product) w->entry = tni_cuda_prepare_matmul(&plain);
    if (w && !product) w->form = tni_form_open_inside(&tni_convs, &plain);
    if (w && (product || w->form)) return w;
    free(w);
    return NULL;
}

static size_t pair_scratch(void *work)
{
    const pair_work *w = work;
    return w->form ? tni_form_scratch(w->form) : 0;
}

static bool pair_lasts(void *work)
{
    const pair_work *w = work;
    return !w->form || tni_form_lasts(w->form);
}

// The kernel is not interpreted while it is being compiled: its time would be another.
static tn_status pair_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                             tni_text *why)
{
    const pair_work *w     = work;
    tni_call         plain = tni_call_within(call, call->op);
    (void)candidate;
    if (!w->form) plain.entry = w->entry, plain.why = why;
    tn_status s = w->form ? tni_form_launch_inside(w->form, &plain, why) : tni_cuda_matmul(&plain);
    call->launch->wait_for_compiler = true;
    return s == TN_OK ? tni_cuda_launch(c, call->kernel, call->launch, why) : s;
}

static const char *pair_varies(tni_cuda *c, void *work, const tni_call *call)
{
    const pair_work *w     = work;
    tni_call         plain = tni_call_within(call, call->op);
    (void)c;
    return w->form ? tni_form_varies(w->form, &plain) : tni_cuda_matmul_varies(&plain);
}

// Of a convolution nothing is searched.
static bool pair_tuned(void *work, const tni_call *call, tni_tuned *won, tni_text *with)
{
    const pair_work *w     = work;
    tni_call         plain = tni_call_within(call, call->op);
    plain.entry            = w->entry;
    return w->entry && tni_cuda_matmul_tuned(&plain, won, with);
}

const tni_method tni_call_by_pair = { .name     = "two launches",
                                      .declines = pair_declines,
                                      .open     = pair_open,
                                      .scratch  = pair_scratch,
                                      .launch   = pair_launch,
                                      .lasts    = pair_lasts,
                                      .varies   = pair_varies,
                                      .tuned    = pair_tuned };

// ---- products ----------------------------------------------------------------------------------

static const char *product_varies(tni_cuda *c, void *work, const tni_call *call)
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

static bool library_tuned(void *work, const tni_call *call, tni_tuned *won, tni_text *with)
{
    tni_call here = *call;
    here.entry    = work;
    return tni_cuda_matmul_tuned(&here, won, with);
}

static const tni_method by_library = { .name     = "cuBLASLt",
                                       .declines = tni_cuda_epilogue_declines,
                                       .open     = library_open,
                                       .launch   = library_launch,
                                       .varies   = product_varies,
                                       .tuned    = library_tuned };

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
    if (call->packed[0] || call->packed[1]) tni_form_put(w, 1);
}

const tni_family tni_products_with_kernels = { .name     = "product with kernel",
                                               .methods  = 3,
                                               .method   = { &by_library, &tni_call_by_tiles,
                                                             &tni_call_by_pair },
                                               .describe = describe };

// ---- with the kernel before them ---------------------------------------------------------------

// The kernel, then the rest by the fastest of its own methods.
typedef struct {
    tni_form *rest;
} first_work;

static void *first_open(tni_cuda *c, const tni_call *call)
{
    tni_call    rest = rest_of(call);
    first_work *w    = calloc(1, sizeof *w);
    (void)c;
    if (w && (w->rest = tni_form_open_inside(rest_family(call), &rest))) return w;
    free(w);
    return NULL;
}

static size_t first_scratch(void *work)
{
    return tni_form_scratch(((const first_work *)work)->rest);
}

static bool first_lasts(void *work)
{
    return tni_form_lasts(((const first_work *)work)->rest);
}

static tn_status first_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                              tni_text *why)
{
    tni_call rest = rest_of(call);
    (void)c, (void)candidate;
    call->prologue->wait_for_compiler = true;
    tn_status s                       = launch_prologue(call, why);
    return s == TN_OK ? tni_form_launch_inside(((const first_work *)work)->rest, &rest, why) : s;
}

static const char *first_varies(tni_cuda *c, void *work, const tni_call *call)
{
    tni_call rest = rest_of(call);
    (void)c;
    return tni_form_varies(((const first_work *)work)->rest, &rest);
}

// Which of its own methods the rest has depends on the library.
static size_t first_version(void)
{
    return 1 + tni_conv_by_cudnn.version();
}

static const char *first_rest(void *work)
{
    return tni_form_method(((const first_work *)work)->rest);
}

static bool first_tuned(void *work, const tni_call *call, tni_tuned *won, tni_text *with)
{
    tni_call rest = rest_of(call);
    return tni_form_tuned(((const first_work *)work)->rest, &rest, won, with);
}

static const tni_method by_kernel_first = { .name    = "kernel first",
                                            .rest    = first_rest,
                                            .version = first_version,
                                            .open    = first_open,
                                            .scratch = first_scratch,
                                            .launch  = first_launch,
                                            .lasts   = first_lasts,
                                            .varies  = first_varies,
                                            .tuned   = first_tuned };

static void describe_with_prologue(const tni_call *call, tni_form_words *w)
{
    const tni_arg *a = &call->in[0];
    tni_form_put(w, call->op | (int64_t)call->prologue_kept << 32);
    put_instructions(w, call->prologue, a->size[a->rank - 1]);
    rest_family(call)->describe(call, w);
}

// What is not timed is computed as without a prologue.
const tni_family tni_calls_with_prologues = { .name     = "call with prologue",
                                              .methods  = 2,
                                              .method   = { &by_kernel_first, &tni_call_by_tiles },
                                              .describe = describe_with_prologue };
