// Convolution and its gradients as graphs of cuDNN, for f32, f16 and bf16, over images of any
// number of axes: of one op each or, if a planned kernel runs with the call, of that one and the
// kernel's maps (dnn_kernel.h). Images and weights are dense, with channels before or behind the
// places; in 16 bits the library is fast for channels behind.
//
// Sums are in f32. Engines that round partial sums to 16 bits or compute by transforms of the
// windows, whose error is not that of a sum, are left out, as are those of tensor cores for f32,
// unless TF32 is on.
#include "device/cuda/cuda_conv.h"
#include "device/cuda/dnn_kernel.h"
#include "device/cuda/dnn_plan.h"

#include <stdlib.h>
#include <string.h>

// The bits of an address that the library wants to be 0, and where a workspace begins.
enum { ALIGN = 16, PART = 256 };
// The most bytes of workspace that an engine may ask for, and the most of the GPU's memory and of
// what is free of it: 1 / SHARE.
enum { MOST_WORKSPACE = 1 << 30, SHARE = 8 };
// Engines that the library compiles, a quarter of a second each, one at a time: of a form only the
// one that it thinks fastest. In 53 forms of MobileNetV2 and ResNet-50 no other one was faster on
// an H200, and the first steps that compiled all of them took 15.7 and 9.3 s instead of 9.2 and
// 2.4.
enum { COMPILED_ENGINES = 1 };

enum { X, W, Y };

// A form: its graph's candidates, and the tensors of x, w and y in it. With a kernel y is virtual,
// and the tensors of the kernel are in memory.
typedef struct {
    tni_dnn_plans *plans;
    int            tensor[3];
    tni_dnn_kernel kernel;
} conv_work;

// ---- what it takes -----------------------------------------------------------------------------

bool tni_conv_has_order(const tni_arg *x, bool last, int64_t *stride)
{
    int64_t next = 1;
    bool    same = true;
    if (last) stride[1] = 1, next = x->size[1];
    for (int i = x->rank - 1; i >= 0; i--) {
        if (i == 1 && last) continue;
        stride[i] = next;
        next *= x->size[i];
    }
    for (int i = 0; i < x->rank; i++) same &= x->size[i] == 1 || x->stride[i] == stride[i];
    return same;
}

// A call as the library sees it: with two axes of places at least.
static tni_conv_form form_of(const tni_call *call)
{
    return tni_conv_form_of(call, call->out.rank > 4 ? 3 : 2);
}

// Finds the strides of x, w and y if all three are in an order.
static bool find_order(const tni_arg x[3], bool last, int64_t stride[3][TNI_DNN_RANK])
{
    return tni_conv_has_order(&x[X], last, stride[X]) &&
           tni_conv_has_order(&x[W], last, stride[W]) && tni_conv_has_order(&x[Y], last, stride[Y]);
}

// The library's numbers are 32 bits wide in places, and it multiplies some of them.
static bool has_library_sizes(const tni_conv_form *f)
{
    enum { MOST_STEP = 1 << 12 };
    bool ok = true;
    for (int i = 0; i < f->axes; i++)
        ok &= f->stride[i] < MOST_STEP && f->padding[i] < MOST_STEP && f->dilation[i] < MOST_STEP;
    for (int i = 0; i < 3; i++) {
        int64_t count = tni_shape_count(f->arg[i].rank, f->arg[i].size);
        ok &= count > 0 && count < INT32_MAX;
    }
    return ok;
}

static int dtype_of(tn_dtype dt)
{
    return dt == TN_F16 ? TNI_DNN_F16 : dt == TN_BF16 ? TNI_DNN_BF16 : TNI_DNN_F32;
}

// ---- the graph ---------------------------------------------------------------------------------

// The notes of engines that are not wanted.
static int64_t refused_notes(const tni_cuda *c, tn_dtype dt)
{
    int64_t bits = (int64_t)1 << TNI_DNN_NOTE_ROUNDS_SUMS | (int64_t)1 << TNI_DNN_NOTE_FFT;
    for (int i = TNI_DNN_NOTE_WINOGRAD; i <= TNI_DNN_NOTE_WINOGRAD_LAST; i++)
        bits |= (int64_t)1 << i;
    if (dt == TN_F32 && !c->tf32)
        bits |= (int64_t)1 << TNI_DNN_NOTE_TENSOR_CORE | (int64_t)1 << TNI_DNN_NOTE_ROUNDS_INPUTS;
    if (c->deterministic) bits |= (int64_t)1 << TNI_DNN_NOTE_VARIES;
    return bits;
}

// Writes the graph of a call over operands with these strides. False if the kernel that runs with
// the call is not for the library.
static bool write_graph(tni_dnn_graph *g, const tni_call *call, const tni_conv_form *f,
                        int64_t stride[3][TNI_DNN_RANK], conv_work *work)
{
    int           *tensor = work->tensor, op = call->op;
    tni_dnn_window w    = { { 0 }, { 0 }, { 0 } };
    size_t         axes = (size_t)f->axes * sizeof(int64_t);
    memcpy(w.stride, f->stride, axes);
    memcpy(w.padding, f->padding, axes);
    memcpy(w.dilation, f->dilation, axes);
    for (int i = 0; i < 3; i++) {
        const tni_arg *x = &f->arg[i];
        tensor[i]        = call->launch && i == f->result
                               ? tni_dnn_virtual(g, TNI_DNN_F32, x->size, stride[i])
                               : tni_dnn_memory(g, dtype_of(x->dtype), x->rank, x->size, stride[i]);
    }
    if (op == TNI_conv) tni_dnn_conv(g, TNI_DNN_OP_CONV, tensor[X], tensor[W], tensor[Y], &w);
    else if (op == TNI_conv_dgrad)
        tni_dnn_conv(g, TNI_DNN_OP_CONV_DX, tensor[Y], tensor[W], tensor[X], &w);
    else tni_dnn_conv(g, TNI_DNN_OP_CONV_DW, tensor[Y], tensor[X], tensor[W], &w);
    return !call->launch || tni_dnn_add_kernel(g, call->launch, call->epilogue->product,
                                               tensor[f->result], &work->kernel);
}

// Where a session's plans run. Workspace is part of the memory of a plan, beside tensors that
// matter more. What is free differs from run to run, and with it which engine is the first: where
// every run has to give the same bits, only the GPU's memory is a bound, and a run that has no room
// for the workspace is out of memory.
static tni_dnn_env env_of(tni_cuda *c)
{
    size_t free = 0, all = 0, most = MOST_WORKSPACE;
    bool   known = tni_cuda_space(c, &free, &all);
    if (known && all / SHARE < most) most = all / SHARE;
    size_t now = known && free / SHARE < most && !c->deterministic ? free / SHARE : most;
    return (tni_dnn_env){ .cu             = c->gpu->cu,
                          .cx             = c->gpu->cx,
                          .device         = c->gpu->number,
                          .gpu            = c->gpu->name,
                          .timing         = !c->deterministic,
                          .workspace      = now ? now : 1,
                          .most_workspace = most,
                          .compiles       = COMPILED_ENGINES };
}

// Writes the graph and asks the library about it; the table of plans remembers the answer. NULL if
// the operands' orders differ, or it declines.
static tni_dnn_plans *find_plans(tni_cuda *c, const tni_call *call, conv_work *work)
{
    tni_text      none = { "" };
    tni_conv_form f    = form_of(call);
    int64_t       stride[3][TNI_DNN_RANK];
    tni_dnn_env   at   = env_of(c);
    bool          last = call->attr->conv.channels_last;
    if (!find_order(f.arg, last, stride) && !find_order(f.arg, !last, stride)) return NULL;
    if (call->launch && (!last || f.axes != 2)) return NULL;
    tni_dnn_graph *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->refused       = refused_notes(c, f.arg[X].dtype);
    tni_dnn_plans *p = write_graph(g, call, &f, stride, work)
                           ? tni_dnn_find(g, &at, tni_op_table[call->op].name, &none)
                           : NULL;
    free(g);
    return p;
}

// ---- the method --------------------------------------------------------------------------------

static size_t cudnn_version(void)
{
    tni_text         none = { "" };
    const tni_cudnn *dnn  = tni_cudnn_get(&none);
    return dnn ? dnn->version() : 0;
}

static const char *declines(tni_cuda *c, const tni_call *call)
{
    tni_conv_form f  = form_of(call);
    tn_dtype      dt = call->out.dtype;
    conv_work     unused;
    if (dt != TN_F32 && dt != TN_F16 && dt != TN_BF16)
        return "cuDNN has convolutions in f32, f16 and bf16 only";
    if (!has_library_sizes(&f)) return "cuDNN has no such sizes";
    if (call->also_read) return "something else reads the result";
    if (call->launch && (call->op != TNI_conv || call->launch->kernel->tails))
        return "its engines for gradients or sums with a kernel are slow";
    if (!cudnn_version()) return "there is no cuDNN: `tenon doctor` says why";
    return find_plans(c, call, &unused) ? NULL : "cuDNN has no engine for it";
}

static void *open(tni_cuda *c, const tni_call *call)
{
    conv_work *w = calloc(1, sizeof *w);
    if (w && !(w->plans = find_plans(c, call, w))) {
        free(w);
        return NULL;
    }
    if (w) tni_dnn_begin(w->plans);
    return w;
}

static int count(void *work)
{
    const conv_work *w = work;
    return tni_dnn_wait(w->plans) ? tni_dnn_count(w->plans) : 0;
}

// PART more, since scratch need not begin at a multiple of it.
static size_t scratch(void *work)
{
    const conv_work *w = work;
    return PART + tni_dnn_workspace(w->plans);
}

static bool lasts(void *work)
{
    const conv_work *w = work;
    return !tni_dnn_is_scarce(w->plans);
}

static void settle(void *work, int candidate)
{
    const conv_work *w = work;
    tni_dnn_settle(w->plans, candidate);
}

// Launches unless a recorded run replaces it. The mark is all that may differ between runs of the
// form.
//
// The library's kernels for Hopper begin before the kernel ahead of them in the stream has ended.
// The warps that load x and w wait for that, but those that add the residual load its first rows
// without waiting, since the library's own kernels end before the next one begins.
static tn_status launch(tni_cuda *c, void *work, const tni_call *call, int candidate, tni_text *why)
{
    const conv_work *w = work;
    tni_dnn_binding  b = { .workspace = (void *)(((uintptr_t)call->scratch + PART - 1) / PART *
                                                PART) };
    tni_conv_form    f = form_of(call);
    struct {
        const void *work, *at[3 + TNI_DNN_BOUND], *workspace;
        int64_t     candidate;
        float       number[TNI_DNN_BOUND];
    } mark = { .work = work, .workspace = b.workspace, .candidate = candidate };
    for (int i = 0; i < 3; i++) mark.at[i] = b.at[w->tensor[i]] = f.arg[i].data;
    for (int i = 0; i < w->kernel.count; i++) {
        const tni_dnn_bound *x = &w->kernel.bound[i];
        if (x->access >= 0)
            mark.at[3 + i] = b.at[x->tensor] = tni_access_address(call->launch, x->access);
        else mark.number[i] = call->launch->number[x->number].f, b.at[x->tensor] = &mark.number[i];
    }
    for (int i = 0; i < 3 + w->kernel.count; i++) {
        if ((uintptr_t)mark.at[i] % ALIGN == 0) continue;
        tni_text_add(why, "an operand is not at a multiple of 16 bytes");
        return TN_EARG;
    }
    if (call->launch && tni_replay_finish(c, call->newest, call->scratch)) {
        tni_text_add(why, "the kernels before it fail");
        return TN_EDEVICE;
    }
    if (!tni_replay_library_call(c, &mark, sizeof mark)) return TN_OK;
    if (!tni_dnn_run(w->plans, candidate, &b, c->stream)) return TN_OK;
    tni_text_add(why, "cuDNN does not run it");
    return TN_EDEVICE;
}

static const char *varies(tni_cuda *c, void *work, const tni_call *call)
{
    const conv_work *w = work;
    (void)call;
    if (c->deterministic) return NULL;
    return tni_dnn_has_note(w->plans, TNI_DNN_NOTE_VARIES)
               ? "its engine may add parts in any order, unless TN_DETERMINISTIC=1"
               : "its algorithm is chosen by timing, unless TN_DETERMINISTIC=1";
}

const tni_method tni_conv_by_cudnn = { .name     = "cuDNN",
                                       .may_fail = true,
                                       .version  = cudnn_version,
                                       .declines = declines,
                                       .open     = open,
                                       .count    = count,
                                       .scratch  = scratch,
                                       .launch   = launch,
                                       .settle   = settle,
                                       .lasts    = lasts,
                                       .varies   = varies };
