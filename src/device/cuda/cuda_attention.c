// Attention by the fastest of several methods: the family of calls, and calls whose operands or
// results are not as the methods want them.
#include "device/cuda/cuda_attention.h"

#include "base/hash.h"

// A score program as a word: its instructions, since another may have its address once its context
// is closed.
static int64_t score_word(const tni_score *s)
{
    return s ? (int64_t)tni_hash(s->op, (size_t)s->all * sizeof *s->op) : 0;
}

// Writes a call as words.
static void describe(const tni_call *call, tni_form_words *w)
{
    tni_attention a       = tni_attention_of(call);
    int64_t       plain[] = { call->op, a.B, a.H,      a.Hk,     a.T,      a.S,
                              a.D,      a.E, a.causal, a.window, a.extras, a.drops };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) tni_form_put(w, plain[i]);
    tni_form_put(w, score_word(a.score));
    tni_form_put_arg(w, a.q, 4);
    tni_form_put_arg(w, a.k, 4);
    tni_form_put_arg(w, a.v, 4);
    if (a.g) tni_form_put_arg(w, a.g, 4), tni_form_put_arg(w, a.o, 4);
    tni_form_put_arg(w, &call->out, 4);
    if (a.g) tni_form_put_arg(w, &call->more[0], 4), tni_form_put_arg(w, &call->more[1], 4);
    tni_form_put(w, a.lengths ? 1 + a.lengths->stride[0] : 0);
    for (int i = 0; i < a.extras; i++) {
        tni_form_put(w, a.extra[i].arg->dtype);
        for (int d = 0; d < 4; d++) tni_form_put(w, a.extra[i].arg->size[d]);
        for (int d = 0; d < 4; d++) tni_form_put(w, a.extra[i].stride[d]);
        tni_form_put(w, a.extra[i].grad != NULL);
    }
}

// Choices of forms with a score program, which is known by a hash alone, are not kept.
static bool lasts(const tni_call *call)
{
    return !tni_attention_of(call).score;
}

static const tni_family family = { .name     = "attention",
                                   .methods  = 2,
                                   .method   = { &tni_attention_by_cudnn, &tni_attention_by_flash },
                                   .describe = describe,
                                   .lasts    = lasts };

// ---- the contract ------------------------------------------------------------------------------

// Asked for every call that is recorded, so that a form that was met before is answered by a look.
const char *tni_cuda_attention_declines(const tni_call *call)
{
    tni_form *f = tni_form_find(&family, call);
    return f ? tni_form_declined(f) : "out of memory";
}

// The entry is the form, which begins to be compiled here at the latest and is shared.
void *tni_cuda_prepare_attention(const tni_call *call)
{
    return tni_form_open(&family, call);
}

// ---- rearranged calls --------------------------------------------------------------------------

// A call with operands and results in memory of the session, row-major and aligned.
typedef struct {
    tni_call call;
    tni_arg  in[TNI_CALL_ARGS], more[2 + TNI_SCORE_SOURCES];
} rearranged;

// Returns whether an address suits every method: they read 16 bytes of queries, keys, values and
// masks at once.
static bool is_aligned(const tni_arg *x)
{
    return x->rank != 4 || (uintptr_t)x->data % 16 == 0;
}

// Gives an argument the strides of a row-major one; returns its bytes, rounded up.
static size_t make_dense(tni_arg *x)
{
    int64_t next = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        x->stride[i] = next;
        next *= x->size[i];
    }
    return x->rank ? (size_t)tni_align64(next * (int64_t)tni_dtype_size(x->dtype)) : 0;
}

static bool is_dense(const tni_arg *x)
{
    tni_arg y    = *x;
    bool    same = true;
    make_dense(&y);
    for (int i = 0; i < x->rank; i++) same &= x->size[i] == 1 || x->stride[i] == y.stride[i];
    return same;
}

// Returns whether a call is as its form says: no method looks at addresses before it runs.
static bool is_suited(const tni_call *call)
{
    bool aligned = true;
    for (int i = 0; i < call->nin; i++) aligned &= is_aligned(&call->in[i]);
    for (int i = 0; i <= call->nmore; i++) aligned &= is_aligned(tni_call_output(call, i));
    return aligned;
}

static bool results_are_dense(const tni_call *call)
{
    bool dense = true;
    for (int i = 0; i <= call->nmore; i++) dense &= is_dense(tni_call_output(call, i));
    return dense;
}

// Places an argument behind those before it, row-major.
static void place_arg(tni_arg *x, char *memory, size_t *used)
{
    size_t bytes = make_dense(x);
    x->data      = bytes ? memory + *used : NULL;
    *used += bytes;
}

// Lays out all results and the operands that are not aligned from `memory` on. Returns the bytes.
// Gradients of keys and values that are not wanted get a place too.
static size_t rearrange(const tni_call *call, char *memory, rearranged *r)
{
    size_t used   = 0;
    r->call       = *call;
    r->call.entry = NULL;
    r->call.in    = r->in;
    r->call.more  = r->more;
    for (int i = 0; i < call->nin; i++) {
        r->in[i] = call->in[i];
        if (!is_aligned(&r->in[i])) place_arg(&r->in[i], memory, &used);
    }
    place_arg(&r->call.out, memory, &used);
    for (int i = 0; i < call->nmore; i++) {
        r->more[i] = call->more[i];
        if (!r->more[i].rank && call->op == TNI_attention_grad && i < 2) r->more[i] = r->in[1 + i];
        place_arg(&r->more[i], memory, &used);
    }
    return used;
}

static tn_status copy_arg(const tni_call *call, const tni_arg *from, const tni_arg *to)
{
    tni_call copy = tni_call_within(call, TNI_copy);
    copy.in       = from;
    copy.nin      = 1;
    copy.out      = *to;
    copy.nmore    = 0;
    return to->data && from->data != to->data ? tni_groups_copy(&copy) : TN_OK;
}

// Copies operands, runs, and copies results. Everything is in scratch of the session, which no
// method uses meanwhile.
static tn_status run_rearranged(const tni_call *call)
{
    rearranged r;
    size_t     bytes  = rearrange(call, NULL, &r);
    tni_form  *f      = tni_cuda_prepare_attention(&r.call);
    size_t     all    = bytes + (f ? tni_form_scratch(f) : 0);
    char      *memory = (char *)(uintptr_t)tni_cuda_scratch(call->session, all);
    tn_status  s      = TN_OK;
    if (!f || !memory) {
        tni_text_add(call->why, "cuda: out of memory for attention");
        return TN_EMEM;
    }
    rearrange(call, memory, &r);
    r.call.entry   = f;
    r.call.scratch = memory + bytes;
    for (int i = 0; i < call->nin && s == TN_OK; i++) s = copy_arg(call, &call->in[i], &r.in[i]);
    if (s == TN_OK) s = tni_cuda_attention(&r.call);
    for (int i = 0; i <= call->nmore && s == TN_OK; i++)
        s = copy_arg(call, tni_call_output(&r.call, i), tni_call_output(call, i));
    return s;
}

// ---- running -----------------------------------------------------------------------------------

static tni_form *form_of(const tni_call *call)
{
    return call->entry ? call->entry : tni_cuda_prepare_attention(call);
}

size_t tni_cuda_attention_scratch(const tni_call *call)
{
    const tni_form *f = form_of(call);
    return f ? tni_form_scratch(f) : 0;
}

// The contract's run. Compiling began when the call was recorded.
tn_status tni_cuda_attention(const tni_call *call)
{
    tni_text  reason = { "" };
    tni_form *f      = form_of(call);
    if (call->compile_only) return TN_OK;
    if (!f) {
        tni_text_add(call->why, "cuda: out of memory for attention");
        return TN_EMEM;
    }
    bool suited = is_suited(call);
    if (tni_form_declined(f) && !results_are_dense(call)) return run_rearranged(call);
    tn_status s = suited ? tni_form_launch(f, call, &reason)
                         : tni_form_launch_unsuited(f, call, &reason);
    if (s == TN_EARG && !suited) return run_rearranged(call);
    if (s != TN_OK) tni_text_add(call->why, "%s", reason.s);
    return s;
}

const char *tni_cuda_attention_varies(const tni_call *call)
{
    tni_form *f = form_of(call);
    return f ? tni_form_varies(f, call) : NULL;
}

const char *tni_cuda_attention_method(const tni_call *call)
{
    tni_form *f = form_of(call);
    return f ? tni_form_method(f) : NULL;
}
