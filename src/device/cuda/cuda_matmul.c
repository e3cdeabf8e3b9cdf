// Matrix products: by our own kernel if they have few rows, by cuBLASLt if it is installed and
// accepts the layout, by our own kernel for small ones if that is faster, else by the kernel of all
// devices with work groups. The epilogue that a plan offers is taken if cuBLASLt has an algorithm
// for the two together.
#include "base/background.h"
#include "device/cuda/cuda_conv.h"
#include "device/cuda/product_pruned.h"
#include "device/cuda/product_rows.h"
#include "device/cuda/product_small.h"
#include "device/cuda/with_kernel.h"
#include "device/simt/groups.h"

#include <stdlib.h>

// cuBLASLt's documentation recommends 32 MiB on Hopper; algorithms that need more are not proposed.
enum { WORKSPACE = 32 << 20 };

// Memory for the library's partial sums, allocated at the first product and kept: products of a
// stream run one after the other, so that all share it. 0 if there is none; then only algorithms
// without a workspace are proposed.
static tni_cuptr get_workspace(tni_cuda *c)
{
    if (!c->workspace && c->gpu->cu->mem_alloc(&c->workspace, WORKSPACE) != TNI_CU_OK)
        c->workspace = 0;
    return c->workspace;
}

// Launches our own kernel as the library launches its own, without overlap with the kernel ahead of
// it: a candidate that began early would be timed as faster than it is.
static int launch_small_serialized(void *session, const tni_product *p, char *out)
{
    return tni_small_launch(session, p, out, false);
}

static bool small_is_ready(void *session)
{
    return tni_small_is_ready(session);
}

// The small kernel adds partial sums through the shared memory of a cluster, which the chip must
// have.
static bool has_small(const tni_cuda *c)
{
    return c->gpu->limits.cluster >= TNI_SMALL_RANKS && c->small_policy != TNI_SMALL_NEVER;
}

// Describes where products of a session run; see tni_product_env.
static tni_product_env env_of(tni_cuda *c)
{
    tni_cuptr work = get_workspace(c);
    return (tni_product_env){ .cu        = c->gpu->cu,
                              .device    = c->gpu->number,
                              .gpu       = c->gpu->name,
                              .stream    = c->stream,
                              .workspace = work,
                              .bytes     = work ? WORKSPACE : 0,
                              .units     = c->gpu->limits.units,
                              .capturing = c->capturing || c->recorder.mode == TNI_REPLAY_CAPTURE,
                              .timing    = !c->deterministic,
                              .pruned    = c->pruned,
                              .pruned_least = c->pruned ? 0 : TNI_PRUNED_LEAST,
                              .launch_small = has_small(c) ? launch_small_serialized : NULL,
                              .small_ready  = small_is_ready,
                              .session      = c };
}

// Returns TN_EARG if the kernel is not compiled, or cannot be.
static tn_status multiply_small(tni_cuda *c, const tni_product *p, tni_text *why)
{
    int error = tni_small_launch(c, p, p->at[2], true);
    if (error == TNI_CU_NOT_FOUND) return TN_EARG;
    return tni_cuda_status(c, error, "multiplying", why);
}

// The kernel for few rows adds up through a cluster, too.
static bool takes_rows(const tni_cuda *c, const tni_product *p)
{
    return has_small(c) && tni_rows_takes(p);
}

// Returns TN_EARG if the kernel is not compiled, or an address is not aligned. Until it is compiled
// the library multiplies, and the run does not become a graph.
static tn_status multiply_rows(tni_cuda *c, const tni_product *p, tni_text *why)
{
    int error = tni_rows_launch(c, p, p->lasting);
    if (error == TNI_CU_NOT_SUPPORTED) return TN_EARG;
    if (error != TNI_CU_NOT_FOUND) return tni_cuda_status(c, error, "multiplying", why);
    tni_replay_provisional(c);
    return TN_EARG;
}

// Lets what the epilogue reads be finished, which the library may read before the kernels ahead of
// it have ended, as cuDNN does (cudnn_conv.c). Without a workspace there is no word to set; then
// there is no memory for much else either.
static int finish_read(tni_cuda *c, const tni_product *p)
{
    const tni_product_epilogue *e = &p->epilogue;
    if (!c->workspace || !(e->residual || e->bias || e->input)) return TNI_CU_OK;
    return tni_replay_finish(c, p->newest, (void *)(uintptr_t)c->workspace);
}

// Launches by the library, unless a recorded run replaces it. The mark is everything that may
// differ between two runs of the same call, compared as bytes: the addresses, the scale, the
// epilogue and, after tuning, the algorithm. pruned: by cuSPARSELt, of the packed A.
static tn_status multiply_library(tni_cuda *c, tni_product *p, const tni_product_env *at,
                                  bool pruned, tni_text *why)
{
    struct {
        const void          *at[6];
        double               scale;
        tni_product_epilogue epilogue;
        int64_t              changes;
    } mark = { { pruned ? p->packed : p->at[0], p->at[1], p->at[2], p->bias, p->residual,
                 p->input },
               p->scale,
               p->epilogue,
               tni_product_changes(p) };
    int e  = finish_read(c, p);
    if (e) return tni_cuda_status(c, e, "multiplying", why);
    if (!tni_replay_library_call(c, &mark, sizeof mark)) return TN_OK;
    return pruned ? tni_pruned_run(p, at, why) : tni_product_run(p, at, why);
}

// Returns TN_EARG if the plain product is faster, or the two have not been timed: a run that is
// recorded is launched instead, so that they are.
static tn_status multiply_pruned(tni_cuda *c, tni_product *p, const tni_product_env *at,
                                 tni_text *why)
{
    tni_pruned_method method = tni_pruned_method_of(p, at);
    if (method == TNI_PRUNED_NOT_TIMED && at->capturing) return TN_EARG;
    if (method == TNI_PRUNED_NOT_TIMED && c->recorder.mode != TNI_REPLAY_LAUNCH)
        tni_replay_provisional(c);
    else if (method == TNI_PRUNED_NOT_TIMED) {
        tni_cuda_await_uploads(c);
        tni_pruned_choose(p, at);
        method = tni_pruned_method_of(p, at);
    }
    return method == TNI_PRUNED ? multiply_library(c, p, at, true, why) : TN_EARG;
}

// Runs a product by the method that is known, or chosen now, to be faster. Choosing times
// candidates, which a recorded or captured run must not do; such a run uses what is known. Our own
// kernel is launched like any kernel, so that a graph can give it other operands; a library call is
// identified by its mark. Returns TN_EARG if the library has no algorithm and the small kernel does
// not apply.
static tn_status multiply_best(tni_cuda *c, tni_product *p, tni_text *why)
{
    tni_product_env at = env_of(c);
    tn_status       s  = TN_EARG;
    p->tf32            = c->tf32;
    if (c->small_policy == TNI_SMALL_ALWAYS && has_small(c) && tni_small_takes(p))
        s = multiply_small(c, p, why);
    if (s == TN_EARG && takes_rows(c, p)) s = multiply_rows(c, p, why);
    if (s == TN_EARG && p->packed) s = multiply_pruned(c, p, &at, why);
    if (s != TN_EARG) return s;
    tni_product_method method = tni_product_method_of(p, &at);
    if (method == TNI_BY_NEITHER) return TN_EARG;
    if (c->recorder.mode == TNI_REPLAY_LAUNCH) {
        tni_cuda_await_uploads(c);
        s = tni_product_prepare(p, &at, why);
        if (s != TN_OK) return s;
        method = tni_product_method_of(p, &at);
    }
    if (method == TNI_BY_LIBRARY_FOR_NOW) tni_replay_provisional(c);
    if (method == TNI_BY_SMALL && (s = multiply_small(c, p, why)) != TN_EARG) return s;
    return multiply_library(c, p, &at, false, why);
}

// ---- planned calls -----------------------------------------------------------------------------

// What a plan remembers of one of its products: the entry of the contract's prepare. form: of a
// product that a kernel of our own may compute with the kernel behind it, faster than the library
// does or the two do one after the other.
typedef struct {
    tni_form         *form;
    bool              suits;    // cuBLASLt is installed and can do it in place
    tni_product_parts product;  // all but the addresses; with an epilogue it has one part
} planned_product;

// Whether the library has an epilogue for the kernel behind a call.
static bool has_epilogue(const tni_call *call)
{
    tni_product p;
    tni_offer   o = { .call = call, .only_reader = !call->also_read, .epilogue = *call->epilogue };
    return tni_product_of_offer(&o, &p);
}

// Whether the kernel behind a call has an op that takes longer where a tile is stored than reading
// the result again: on an H200 a product of 32,768 rows of 3,072 in bf16 takes 360 us with the
// slope of gelu behind it, and 1,330 as its ending. An exponential costs 8.
static bool is_costly(const tni_kernel *k)
{
    enum { COSTLY = 8 };
    for (int i = 0; i < k->nins; i++)
        if (!k->ins[i].finish && tni_ins_cost(&k->ins[i]) >= COSTLY) return true;
    return false;
}

// Whether a kernel of our own may compute a call with the kernel behind it, faster than the two one
// after the other. Where the library has an epilogue it is as fast or faster: on an H200 products
// of GPT-2 and of an MLP of 1,024 to 4,096 columns in bf16 and f16 took 0 to 20 % longer by our
// own. By name it is used for all that it computes.
static bool is_ended(const tni_call *call)
{
    tni_cuda *c = call->session;
    if (!call->launch || !call->epilogue) return false;
    if (!*c->method && (has_epilogue(call) || is_costly(call->launch->kernel))) return false;
    tni_cuda_enter(c);
    return !tni_call_by_tiles.declines(c, call);
}

// Describes a call, with its epilogue if it has one, as cuBLASLt sees it. suits is false if the
// library is not installed or cannot do it.
static planned_product describe_product(const tni_call *call)
{
    tni_text        none = { "" };
    planned_product n    = { .suits = false };
    tni_product     p;
    n.suits = tni_blaslt_get(&none) && tni_product_of(call, &p);
    if (n.suits && call->epilogue) {
        tni_product_epilogue epilogue = tni_product_epilogue_of(call->epilogue);
        n.suits                       = tni_product_add_epilogue(&p, &epilogue);
        if (call->epilogue->wide) p.out = TN_F32;
        n.product.count   = 1;
        n.product.part[0] = p;
    } else if (n.suits && tni_rows_takes(&p)) {
        n.product.count   = 1;
        n.product.part[0] = p;
    } else if (n.suits) tni_product_divide(&p, &n.product);
    return n;
}

// A background task, which leaves the thread's context as it was.
static void open_library(void *arg)
{
    const tni_gpu  *g   = arg;
    tni_cucontext   old = NULL;
    tni_product_env at  = { .cu = g->cu, .device = g->number, .gpu = g->name };
    if (g->cu->push_current(g->cx) != TNI_CU_OK) return;
    tni_background_guard();
    tni_product_open(&at);
    g->cu->pop_current(&old);
}

// The contract's expect_products. On an H200 cuBLASLt takes 0.1 s to open, a third of what a
// language model takes to its first token. Without a thread for it the first product opens it.
void tni_cuda_expect_products(void *session)
{
    tni_cuda *c = session;
    if (!c->expects) tni_background(open_library, (void *)c->gpu, TNI_TASK_SOON);
    c->expects = true;
}

// Returns the form of a call with the kernels around it; NULL if it has none.
static tni_form *open_form(const tni_call *call)
{
    tni_call rest = *call;
    rest.prologue = NULL;
    if (!is_ended(&rest)) return NULL;
    return tni_form_open(call->prologue ? &tni_calls_with_prologues : &tni_products_with_kernels,
                         call);
}

// Saves each run of a plan the description. NULL when memory is out; then runs describe the call
// anew.
void *tni_cuda_prepare_matmul(const tni_call *call)
{
    planned_product *n = calloc(1, sizeof *n);
    if (!n) return n;
    if (!call->epilogue || has_epilogue(call)) *n = describe_product(call);
    n->form = open_form(call);
    return n;
}

// Returns the form of a call, planned or not; NULL if it has none. Whether an operand is packed,
// which is part of it, is known in a run only.
static tni_form *form_of(const tni_call *call)
{
    const planned_product *n = call->entry;
    return n && !(n->form && (call->packed[0] || call->packed[1])) ? n->form : open_form(call);
}

size_t tni_cuda_matmul_scratch(const tni_call *call)
{
    const tni_form *f = form_of(call);
    return f ? tni_form_scratch(f) : 0;
}

const char *tni_cuda_matmul_varies(const tni_call *call)
{
    const tni_cuda *c = call->session;
    tni_form       *f = form_of(call);
    if (f) return tni_form_varies(f, call);
    if (c->deterministic || !describe_product(call).suits) return NULL;
    return "its algorithm is chosen by timing, unless TN_DETERMINISTIC=1";
}

const char *tni_cuda_matmul_method(const tni_call *call)
{
    tni_form       *f = form_of(call);
    tni_product_env at;
    planned_product n;
    if (f) return tni_form_method(f);
    if (!call->packed[0] && !call->packed[1]) return NULL;
    tni_cuda_enter(call->session);
    n  = describe_product(call);
    at = env_of(call->session);
    return n.product.count == 1 ? tni_pruned_words(&n.product.part[0], &at) : NULL;
}

// Gives a product addresses where it is asked about before it runs: all are taken to be aligned, as
// memory that a plan allocates is.
static void assume_aligned(tni_product *p)
{
    char *aligned = (char *)(uintptr_t)4096;
    p->scale      = 1;
    p->at[0] = p->at[1] = p->at[2] = p->input = aligned;
    p->bias = p->residual = aligned;
}

// Of a product in parts the first is nearly all of it.
bool tni_cuda_matmul_tuned(const tni_call *call, tni_tuned *won, tni_text *with)
{
    const planned_product *n = call->entry;
    const tni_form        *f = n && n->form ? form_of(call) : NULL;
    if (f) return tni_form_tuned(f, call, won, with);
    if (!n || n->form || !n->suits) return false;
    tni_product p = n->product.part[0];
    tni_cuda_enter(call->session);
    tni_product_env at = env_of(call->session);
    p.tf32             = ((const tni_cuda *)call->session)->tf32;
    assume_aligned(&p);
    return tni_product_tuned(&p, &at, won, with);
}

// Adds a reason to the call's own only if the call fails: an attempt that another method makes good
// for leaves no text.
static tn_status with_reason(const tni_call *call, tn_status s, const tni_text *why)
{
    if (s != TN_OK) tni_text_add(call->why, "%s", why->s);
    return s;
}

// Notes whether A, which is either operand of the call, outlives the plan.
static void set_lasting(tni_product *p, const tni_call *call)
{
    p->lasting = false;
    for (int i = 0; i < 2; i++)
        if (p->at[0] == call->in[i].data) p->lasting = call->lasting >> i & 1;
}

// The contract's run. With compile_only there is nothing to compile for the library.
tn_status tni_cuda_matmul(const tni_call *call)
{
    tni_text        reason = { "" };
    planned_product own, *n = call->entry;
    if (!n) own = describe_product(call), n = &own;
    tni_cuda_enter(call->session);
    if (n->suits && call->compile_only) return TN_OK;
    tni_product_bind_parts(&n->product, call);
    tn_status s = n->suits ? TN_OK : TN_EARG;
    for (int i = 0; i < n->product.count; i++) set_lasting(&n->product.part[i], call);
    for (int i = 0; i < n->product.count && s == TN_OK; i++)
        s = multiply_best(call->session, &n->product.part[i], &reason);
    return s == TN_EARG ? tni_groups_matmul(call) : with_reason(call, s, &reason);
}

// ---- with the kernel that follows --------------------------------------------------------------

// Asked when a plan is made, before addresses are known: all are assumed to be aligned, as memory
// that a plan allocates is. The library is asked for an algorithm, and nothing is timed. The offer
// is declined if its epilogue is not one of the library's (tni_product_of_offer), or it has no
// algorithm for it, and the kernel is no ending of our own; then it runs behind the product.
bool tni_cuda_matmul_takes(void *session, const tni_offer *o)
{
    tni_cuda   *c    = session;
    tni_text    none = { "" };
    tni_product p;
    if (!tni_blaslt_get(&none)) return false;
    if (o->prologue || !tni_product_of_offer(o, &p)) {
        tni_call call = tni_call_of_offer(session, o);
        return is_ended(&call);
    }
    if (takes_rows(c, &p)) return true;
    tni_cuda_enter(c);
    tni_product_env at = env_of(c);
    at.capturing       = true;  // candidates are not timed, as in a capture
    p.tf32             = c->tf32;
    assume_aligned(&p);
    return tni_product_prepare(&p, &at, &none) == TN_OK;
}

// Returns a number of the epilogue's kernel, the scale; 1 for none.
static double number_value(const tni_launch *l, int number)
{
    if (number < 0) return 1;
    return l->kernel->number[number] == TN_F64 ? l->number[number].d : (double)l->number[number].f;
}

// Runs product and epilogue as one library call. Declines with TN_EARG, so that the two run one
// after the other, if the kernel is guarded (it may have to do nothing, which a library cannot
// decide), if operands overlap in this run, or if the scale is 0: the library may skip a product
// that is scaled by 0, and 0 times infinity would not be NaN.
static tn_status run_epilogue(const tni_call *call, const tni_launch *l, tni_text *why)
{
    const tni_epilogue *e = call->epilogue;
    planned_product     own, *n = call->entry;
    if (!n) own = describe_product(call), n = &own;
    if (l->kernel->guarded || !n->suits) return TN_EARG;
    tni_cuda_enter(call->session);
    tni_product *p = &n->product.part[0];
    tni_product_bind(p, call, tni_access_address(l, e->y));
    p->bias     = tni_access_address(l, e->bias);
    p->residual = tni_access_address(l, e->residual);
    p->input    = tni_access_address(l, e->z);
    p->scale    = number_value(l, e->scale);
    p->newest   = call->newest;
    set_lasting(p, call);
    if (p->scale == 0 || !tni_product_is_unaliased(p)) return TN_EARG;
    return multiply_best(call->session, p, why);
}

// Runs the product and then the kernel of its epilogue.
static tn_status run_unfused(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    tni_call  plain = tni_call_within(call, TNI_matmul);
    tn_status s     = tni_call_run(&plain);
    return s == TN_OK ? tni_cuda_launch(call->session, entry, l, why) : s;
}

void *tni_cuda_prepare_epilogue(const tni_call *call)
{
    planned_product *n = calloc(1, sizeof *n);
    if (n) *n = describe_product(call);
    return n;
}

const char *tni_cuda_epilogue_declines(tni_cuda *c, const tni_call *call)
{
    (void)c;
    return has_epilogue(call) ? NULL : "the library has no such epilogue";
}

tn_status tni_cuda_matmul_by_library(const tni_call *call, void *entry, tni_launch *l,
                                     tni_text *why)
{
    tni_text  reason = { "" };
    tn_status s      = run_epilogue(call, l, &reason);
    return s == TN_EARG ? run_unfused(call, entry, l, why) : with_reason(call, s, &reason);
}

// The library can store where it reads, as our kernel cannot.
tn_status tni_cuda_matmul_with_epilogue(const tni_call *call, void *entry, tni_launch *l,
                                        tni_text *why)
{
    const planned_product *n = call->entry;
    if (call->prologue || (n && n->form && (!n->suits || tni_call_suits_form(call, l))))
        return tni_form_with_kernel(n ? form_of(call) : NULL, call, entry, l, why);
    return tni_cuda_matmul_by_library(call, entry, l, why);
}
