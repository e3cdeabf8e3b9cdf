// Attention by the fastest of several methods. Calls of one form, such as those of the layers of a
// network, share what is described, compiled and chosen.
#include "device/cuda/cuda_attention.h"

#include "base/hash.h"
#include "device/cuda/choice.h"
#include "device/cuda/library_log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The methods, the likely fastest first: it is taken if nothing is timed.
static const tni_attention_method *const methods[] = { &tni_attention_by_cudnn,
                                                       &tni_attention_by_flash };

enum { METHODS = sizeof methods / sizeof *methods, WORDS = 96, MOST_TIMED = 32 };

// All that a choice depends on besides the kind of GPU and the methods' versions; see describe. The words
// of no use are 0.
typedef struct {
    int64_t device, deterministic;  // these two do not concern other processes
    int64_t word[WORDS];
} form_key;

// A form that was met, in the table until the process ends. If every method declines it, declined says
// why. Invariant: once opened, work[i] is NULL if and only if method i does not take it.
typedef struct form form;
struct form {
    form       *next;
    uint64_t    hash;
    form_key    key;
    const char *declined;
    bool        takes[METHODS], opened;
    void       *work[METHODS];
    bool        broken[METHODS];  // failed in a run, and is not used again
    bool        chosen;
    int         method, candidate;  // the choice
    char        by[48];             // for people
};

// The lock covers everything, also timing: another thread would time the same, and disturb this one.
static struct {
    pthread_mutex_t lock;
    form           *first;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

// ---- forms -------------------------------------------------------------------------------------

typedef struct {
    form_key *key;
    int       words;
} writer;

static void put(writer *w, int64_t word)
{
    if (w->words < WORDS) w->key->word[w->words] = word;
    w->words++;
}

static void put_arg(writer *w, const tni_arg *x, int rank)
{
    put(w, x->dtype);
    for (int i = 0; i < rank; i++) put(w, x->size[i] == 1 ? 0 : x->stride[i]);
}

// A score program as a word: its instructions, since another may have its address once its context is
// closed.
static int64_t score_word(const tni_score *s)
{
    return s ? (int64_t)tni_hash(s->op, (size_t)s->all * sizeof *s->op) : 0;
}

// Writes a call as words. False if they do not fit, which no call reaches.
static bool describe(const tni_cuda *c, const tni_call *call, form_key *k)
{
    tni_attention a = tni_attention_of(call);
    writer        w = { k, 0 };
    *k              = (form_key){ .device = c->gpu->number, .deterministic = c->deterministic };
    int64_t plain[] = { call->op, a.B, a.H,      a.Hk,     a.T,      a.S,
                        a.D,      a.E, a.causal, a.window, a.extras, a.drops };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) put(&w, plain[i]);
    put(&w, score_word(a.score));
    put_arg(&w, a.q, 4);
    put_arg(&w, a.k, 4);
    put_arg(&w, a.v, 4);
    if (a.g) put_arg(&w, a.g, 4), put_arg(&w, a.o, 4);
    put_arg(&w, &call->out, 4);
    if (a.g) put_arg(&w, &call->more[0], 4), put_arg(&w, &call->more[1], 4);
    put(&w, a.lengths ? 1 + a.lengths->stride[0] : 0);
    for (int i = 0; i < a.extras; i++) {
        put(&w, a.extra[i].arg->dtype);
        for (int d = 0; d < 4; d++) put(&w, a.extra[i].arg->size[d]);
        for (int d = 0; d < 4; d++) put(&w, a.extra[i].stride[d]);
        put(&w, a.extra[i].grad != NULL);
    }
    return w.words <= WORDS;
}

// Describes the form to the methods that take it, which begin to compile.
static void open_form(tni_cuda *c, const tni_call *call, form *f)
{
    for (int i = 0; i < METHODS && !f->opened; i++)
        if (f->takes[i]) f->work[i] = methods[i]->open(c, call);
    f->opened = true;
}

// Asks every method. If a single one takes the form, and is one that may fail, it has to compile first:
// nothing else could compute the call once it is recorded.
static void ask_methods(tni_cuda *c, const tni_call *call, form *f)
{
    int takes = 0, last = 0;
    for (int i = 0; i < METHODS; i++) {
        const char *why = methods[i]->declines(c, call);
        f->takes[i]     = !why;
        if (why) f->declined = why;
        else takes++, last = i;
    }
    if (takes) f->declined = NULL;
    if (takes != 1 || !methods[last]->may_fail) return;
    open_form(c, call, f);
    if (f->work[last] && methods[last]->count(f->work[last])) return;
    f->work[last] = NULL;
    f->declined   = "no engine of the library compiles";
}

// Returns the form of a call, which is added if it is new; NULL when memory is out. The lock is held.
static form *find_form(tni_cuda *c, const tni_call *call)
{
    form_key key;
    if (!describe(c, call, &key)) return NULL;
    uint64_t hash = tni_hash(&key, sizeof key);
    form    *f    = self.first;
    while (f && (f->hash != hash || memcmp(&f->key, &key, sizeof key))) f = f->next;
    if (f || !(f = calloc(1, sizeof *f))) return f;
    f->hash = hash;
    f->key  = key;
    ask_methods(c, call, f);
    f->next    = self.first;
    self.first = f;
    return f;
}

// Enough for whichever method is chosen.
static size_t form_scratch(const form *f)
{
    size_t most = 0;
    for (int i = 0; i < METHODS; i++) {
        size_t need = f->work[i] && !f->broken[i] ? methods[i]->scratch(f->work[i]) : 0;
        if (need > most) most = need;
    }
    return most;
}

// ---- choosing ----------------------------------------------------------------------------------

// A choice on disk: the name of a method. The versions of all methods that take the form are part of the
// key, so that a new one is timed against the others.
typedef struct {
    char name[16];
} kept_choice;

static tni_choice_key choice_key_of(const tni_cuda *c, const form *f)
{
    size_t version = 0;
    for (int i = 0; i < METHODS; i++)
        if (f->work[i]) version = version * 1000003 + methods[i]->version() + (size_t)i;
    return (tni_choice_key){ .library = "attention",
                             .version = version,
                             .gpu     = c->gpu->name,
                             .word    = f->key.word,
                             .words   = WORDS };
}

// Choices of forms with a score program, which is known by a hash alone, are not kept.
static bool find_kept(const tni_cuda *c, const tni_call *call, form *f)
{
    kept_choice    kept = { "" };
    tni_choice_key k    = choice_key_of(c, f);
    if (tni_attention_of(call).score || tni_choice_find(&k, &kept, sizeof kept) != sizeof kept)
        return false;
    for (int i = 0; i < METHODS; i++) {
        if (!f->work[i] || strncmp(kept.name, methods[i]->name, sizeof kept.name)) continue;
        f->method = i;
        return methods[i]->count(f->work[i]) == 1;
    }
    return false;
}

static void keep_choice(const tni_cuda *c, const tni_call *call, const form *f)
{
    kept_choice    kept = { "" };
    tni_choice_key k    = choice_key_of(c, f);
    if (tni_attention_of(call).score) return;
    strncpy(kept.name, methods[f->method]->name, sizeof kept.name - 1);
    tni_choice_keep(&k, &kept, sizeof kept);
}

// The candidates of all methods in one list.
typedef struct {
    tni_cuda       *c;
    const tni_call *call;
    const form     *form;
    int             count, method[MOST_TIMED], candidate[MOST_TIMED];
} trial;

static int launch_candidate(void *session, int i)
{
    const trial *t    = session;
    tni_text     none = { "" };
    int          m    = t->method[i];
    return methods[m]->launch(t->c, t->form->work[m], t->call, t->candidate[i], &none);
}

// Lists the candidates of the methods that work; returns how many of them are of the last ones, which
// are our own.
static int list_candidates(trial *t)
{
    int own = 0;
    for (int m = 0; m < METHODS; m++) {
        if (!t->form->work[m] || t->form->broken[m]) continue;
        int n = methods[m]->count(t->form->work[m]);
        for (int i = 0; i < n && t->count < MOST_TIMED; i++) {
            t->method[t->count]      = m;
            t->candidate[t->count++] = i;
            own += !methods[m]->may_fail;
        }
    }
    return own;
}

// Tells each method which of its candidates was its fastest, and takes the fastest of all.
static void take_fastest(trial *t, form *f, const float *ms)
{
    int best = tni_choice_best(ms, t->count);
    for (int first = 0, end; first < t->count; first = end) {
        int m = t->method[first];
        for (end = first; end < t->count && t->method[end] == m;) end++;
        int at = tni_choice_best(ms + first, end - first);
        if (at >= 0 && methods[m]->settle) methods[m]->settle(f->work[m], at);
        if (at >= 0 && best == first + at) {
            f->method    = m;
            f->candidate = methods[m]->count(f->work[m]) == 1 ? 0 : at;
            f->chosen    = true;
        }
    }
}

// Times all candidates on the call's own operands: results are written, inputs are not. If nothing is to
// be timed, or only one candidate is there, the first is taken.
static void choose(tni_cuda *c, const tni_call *call, form *f)
{
    enum {
        FILLED = 32 << 20
    };  // of the scratch, to keep the GPU busy while launches are submitted
    float          ms[MOST_TIMED];
    trial          t     = { .c = c, .call = call, .form = f };
    size_t         bytes = form_scratch(f);
    int            own   = list_candidates(&t);
    tni_candidates all   = { .cu        = c->gpu->cu,
                             .stream    = c->stream,
                             .workspace = (tni_cuptr)(uintptr_t)call->scratch,
                             .bytes     = bytes < FILLED ? bytes : FILLED,
                             .count     = t.count,
                             .own       = own,
                             .launch    = launch_candidate,
                             .session   = &t };
    if (!t.count) return;
    f->method    = t.method[0];
    f->candidate = t.candidate[0];
    f->chosen    = t.count == 1 || c->deterministic || find_kept(c, call, f);
    if (f->chosen) return;
    if (tni_choice_time(&all, ms) == TNI_CU_OK) take_fastest(&t, f, ms);
    if (f->chosen) keep_choice(c, call, f);
}

// ---- the contract ------------------------------------------------------------------------------

// Asked for every call that is recorded, so that a form that was met before is answered by a look.
const char *tni_cuda_attention_declines(const tni_call *call)
{
    tni_cuda *c = call->session;
    tni_cuda_enter(c);
    pthread_mutex_lock(&self.lock);
    form       *f   = find_form(c, call);
    const char *why = f ? f->declined : "out of memory";
    pthread_mutex_unlock(&self.lock);
    return why;
}

// The entry is the form, which begins to be compiled here at the latest and is shared.
void *tni_cuda_prepare_attention(const tni_call *call)
{
    tni_cuda *c = call->session;
    tni_cuda_enter(c);
    pthread_mutex_lock(&self.lock);
    form *f = find_form(c, call);
    if (f) open_form(c, call, f);
    pthread_mutex_unlock(&self.lock);
    return f;
}

// ---- rearranged calls --------------------------------------------------------------------------

// A call with operands and results in memory of the session, row-major and aligned.
typedef struct {
    tni_call call;
    tni_arg  in[TNI_CALL_ARGS], more[2 + TNI_SCORE_SOURCES];
} rearranged;

// Returns whether an address suits every method: they read 16 bytes of queries, keys, values and masks at
// once.
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

// Lays out all results and the operands that are not aligned from `memory` on. Returns the bytes. Gradients
// of keys and values that are not wanted get a place too.
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

// Copies operands, runs, and copies results. Everything is in scratch of the session, which no method
// uses meanwhile.
static tn_status run_rearranged(const tni_call *call)
{
    rearranged r;
    size_t     bytes  = rearrange(call, NULL, &r);
    form      *f      = tni_cuda_prepare_attention(&r.call);
    size_t     all    = bytes + (f ? form_scratch(f) : 0);
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

size_t tni_cuda_attention_scratch(const tni_call *call)
{
    const form *f = call->entry ? call->entry : tni_cuda_prepare_attention(call);
    return f ? form_scratch(f) : 0;
}

// Launches by the method that is chosen. One that fails is not used again for this form, and another
// takes its place. The lock is held.
static tn_status launch_form(tni_cuda *c, const tni_call *call, form *f, tni_text *why)
{
    bool may_time = c->recorder.mode == TNI_REPLAY_LAUNCH;
    for (;;) {
        if (!f->chosen && may_time) choose(c, call, f);
        if (!f->chosen || f->broken[f->method]) break;
        *why        = (tni_text){ "" };
        tn_status s = methods[f->method]->launch(c, f->work[f->method], call, f->candidate, why);
        if (s == TN_OK) return s;
        tni_library_log("attention: %s fails: %s", methods[f->method]->name, why->s);
        f->broken[f->method] = true;
        f->chosen            = false;
        if (!may_time) c->recorder.failed = true;  // the run is submitted again, kernel by kernel
        if (!may_time) return TN_OK;
    }
    if (!*why->s) tni_text_add(why, "cuda: no method computes this attention");
    return TN_EDEVICE;
}

// Launches by the first method that takes the call at its addresses; nothing is chosen by them. TN_EARG: none
// does. The lock is held.
static tn_status launch_unsuited(tni_cuda *c, const tni_call *call, const form *f, tni_text *why)
{
    for (int i = 0; i < METHODS; i++) {
        if (!f->work[i] || f->broken[i]) continue;
        *why        = (tni_text){ "" };
        tn_status s = methods[i]->launch(c, f->work[i], call, 0, why);
        if (s != TN_EARG) return s;
    }
    return TN_EARG;
}

// The contract's run. Compiling began when the call was recorded.
tn_status tni_cuda_attention(const tni_call *call)
{
    tni_cuda *c      = call->session;
    tni_text  reason = { "" };
    form     *f      = call->entry ? call->entry : tni_cuda_prepare_attention(call);
    if (call->compile_only) return TN_OK;
    if (!f) {
        tni_text_add(call->why, "cuda: out of memory for attention");
        return TN_EMEM;
    }
    bool suited = is_suited(call);
    if (f->declined && !results_are_dense(call)) return run_rearranged(call);
    tni_cuda_enter(c);
    pthread_mutex_lock(&self.lock);
    tn_status s = suited ? launch_form(c, call, f, &reason) : launch_unsuited(c, call, f, &reason);
    pthread_mutex_unlock(&self.lock);
    if (s == TN_EARG && !suited) return run_rearranged(call);
    if (s != TN_OK) tni_text_add(call->why, "%s", reason.s);
    return s;
}

// The reason of the method that is chosen or, before that, of any that may be.
const char *tni_cuda_attention_varies(const tni_call *call)
{
    tni_cuda   *c   = call->session;
    form       *f   = call->entry ? call->entry : tni_cuda_prepare_attention(call);
    const char *why = NULL;
    for (int i = 0; f && i < METHODS && !why; i++)
        if (f->work[i] && !f->broken[i] && (!f->chosen || f->method == i) && methods[i]->varies)
            why = methods[i]->varies(c, call);
    return why;
}

// The name of the method that is chosen or, before that, of all that may be.
const char *tni_cuda_attention_method(const tni_call *call)
{
    form  *f = call->entry ? call->entry : tni_cuda_prepare_attention(call);
    size_t n = 0;
    if (!f) return NULL;
    *f->by = 0;
    for (int i = 0; i < METHODS; i++)
        if (f->work[i] && !f->broken[i] && (!f->chosen || f->method == i) && n < sizeof f->by)
            n += (size_t)snprintf(f->by + n, sizeof f->by - n, "%s%s", n ? " or " : "",
                                  methods[i]->name);
    return *f->by ? f->by : NULL;
}

void tni_cuda_attention_forget(void)
{
    pthread_mutex_lock(&self.lock);
    for (form *f; (f = self.first);) {
        self.first = f->next;
        free(f);
    }
    pthread_mutex_unlock(&self.lock);
}
