// Forms of calls, the methods that take them, and which of these is the fastest. Calls of one form,
// such as those of the layers of a network, share what is described, compiled and chosen.
#include "device/cuda/method.h"

#include "base/hash.h"
#include "device/cuda/library_log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TIMED = 32 };

// What tells forms apart. Only the words and tf32 concern other processes. Invariant: no padding,
// so that keys compare and hash as bytes.
typedef struct {
    const tni_family *family;
    int64_t           device, deterministic, tf32;
    int64_t           word[TNI_FORM_WORDS];
} form_key;

// If every method declines the form, declined says why. Invariant: once opened, work[i] is NULL if
// and only if method i does not take it.
struct tni_form {
    tni_form   *next;
    uint64_t    hash;
    form_key    key;
    const char *declined;
    bool        takes[TNI_METHODS], opened;
    void       *work[TNI_METHODS];
    bool        broken[TNI_METHODS];  // failed in a run, and is not used again
    bool        chosen;
    int         method, candidate;  // the choice
    char        by[48];             // for people
};

// The lock covers everything, also timing: another thread would time the same, and disturb this
// one.
static struct {
    pthread_mutex_t lock;
    tni_form       *first;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const tni_method *method_of(const tni_form *f, int i)
{
    return f->key.family->method[i];
}

// How many candidates a method has for a form that it opened.
static int count_of(const tni_form *f, int i)
{
    const tni_method *by = method_of(f, i);
    return by->count ? by->count(f->work[i]) : 1;
}

// ---- forms -------------------------------------------------------------------------------------

void tni_form_put(tni_form_words *w, int64_t word)
{
    if (w->words < TNI_FORM_WORDS) w->word[w->words] = word;
    w->words++;
}

void tni_form_put_arg(tni_form_words *w, const tni_arg *x, int rank)
{
    tni_form_put(w, x->dtype);
    for (int i = 0; i < rank; i++) tni_form_put(w, x->size[i] == 1 ? 0 : x->stride[i]);
}

// Writes a call as a key. False if its words do not fit, which no call reaches.
static bool write_form_key(const tni_family *family, const tni_call *call, form_key *k)
{
    const tni_cuda *c = call->session;
    tni_form_words  w = { 0 };
    family->describe(call, &w);
    *k = (form_key){ .family        = family,
                     .device        = c->gpu->number,
                     .deterministic = c->deterministic,
                     .tf32          = c->tf32 };
    memcpy(k->word, w.word, sizeof k->word);
    return w.words <= TNI_FORM_WORDS;
}

// Whether some method before the last resorts computes the form.
static bool has_better(const tni_form *f)
{
    bool better = false;
    for (int i = 0; i < f->key.family->methods; i++)
        better |= f->takes[i] && !f->broken[i] && !method_of(f, i)->last_resort;
    return better;
}

// Describes the form to the methods that take it, which begin to compile. Last resorts are opened
// with the others, for whichever of these fails later on: they compile when they are first
// launched.
static void open_form(tni_cuda *c, const tni_call *call, tni_form *f)
{
    for (int i = 0; i < f->key.family->methods && !f->opened; i++)
        if (f->takes[i]) f->work[i] = method_of(f, i)->open(c, call);
    f->opened = true;
}

// Asks every method. If a single one takes the form, and is one that may fail, it has to compile
// first: nothing else could compute the call once it is recorded.
static void ask_methods(tni_cuda *c, const tni_call *call, tni_form *f)
{
    int takes = 0, last = 0;
    for (int i = 0; i < f->key.family->methods; i++) {
        const tni_method *by  = method_of(f, i);
        const char       *why = by->declines ? by->declines(c, call) : NULL;
        f->takes[i]           = !why;
        if (why) f->declined = why;
        else takes++, last = i;
    }
    if (takes) f->declined = NULL;
    if (takes != 1 || !method_of(f, last)->may_fail) return;
    open_form(c, call, f);
    if (f->work[last] && count_of(f, last)) return;
    f->work[last] = NULL;
    f->declined   = "no engine of the library compiles";
}

// The lock is held.
static tni_form *find_form(const tni_family *family, const tni_call *call)
{
    form_key key;
    if (!write_form_key(family, call, &key)) return NULL;
    uint64_t  hash = tni_hash(&key, sizeof key);
    tni_form *f    = self.first;
    while (f && (f->hash != hash || memcmp(&f->key, &key, sizeof key))) f = f->next;
    if (f || !(f = calloc(1, sizeof *f))) return f;
    f->hash = hash;
    f->key  = key;
    ask_methods(call->session, call, f);
    f->next    = self.first;
    self.first = f;
    return f;
}

tni_form *tni_form_find(const tni_family *family, const tni_call *call)
{
    tni_cuda_enter(call->session);
    pthread_mutex_lock(&self.lock);
    tni_form *f = find_form(family, call);
    pthread_mutex_unlock(&self.lock);
    return f;
}

tni_form *tni_form_open_inside(const tni_family *family, const tni_call *call)
{
    tni_form *f = find_form(family, call);
    if (f) open_form(call->session, call, f);
    return f;
}

tni_form *tni_form_open(const tni_family *family, const tni_call *call)
{
    tni_cuda_enter(call->session);
    pthread_mutex_lock(&self.lock);
    tni_form *f = tni_form_open_inside(family, call);
    pthread_mutex_unlock(&self.lock);
    return f;
}

const char *tni_form_declined(const tni_form *f)
{
    return f->declined;
}

bool tni_form_is_last_resort(const tni_form *f)
{
    return !has_better(f);
}

bool tni_form_lasts(const tni_form *f)
{
    bool lasts = true;
    for (int i = 0; i < f->key.family->methods; i++) {
        const tni_method *by = method_of(f, i);
        if (f->work[i] && by->lasts) lasts &= by->lasts(f->work[i]);
    }
    return lasts;
}

size_t tni_form_scratch(const tni_form *f)
{
    size_t most = 0;
    for (int i = 0; i < f->key.family->methods; i++) {
        const tni_method *by   = method_of(f, i);
        bool              asks = f->work[i] && !f->broken[i] && by->scratch;
        size_t            need = asks ? by->scratch(f->work[i]) : 0;
        if (need > most) most = need;
    }
    return most;
}

// ---- choosing ----------------------------------------------------------------------------------

// A choice on disk: the name of a method and, if that is our own, whose candidates are the same in
// every process, the candidate. The versions of all methods that take the form are part of the key,
// so that a new one is timed against the others.
typedef struct {
    char    name[32];  // of any method: "kernels of work groups" is the longest
    int64_t candidate;
} kept_choice;

static tni_choice_key choice_key_of(const tni_cuda *c, const tni_form *f)
{
    size_t version = (size_t)f->key.tf32;
    for (int i = 0; i < f->key.family->methods; i++) {
        const tni_method *by = method_of(f, i);
        if (f->work[i]) version = version * 1000003 + (by->version ? by->version() : 1) + (size_t)i;
    }
    return (tni_choice_key){ .library = f->key.family->name,
                             .version = version,
                             .gpu     = c->gpu->name,
                             .word    = f->key.word,
                             .words   = TNI_FORM_WORDS };
}

static bool choice_lasts(const tni_form *f, const tni_call *call)
{
    return !f->key.family->lasts || f->key.family->lasts(call);
}

static bool find_kept(const tni_cuda *c, const tni_call *call, tni_form *f)
{
    kept_choice    kept = { .name = "" };
    tni_choice_key k    = choice_key_of(c, f);
    if (!choice_lasts(f, call) || tni_choice_find(&k, &kept, sizeof kept) != sizeof kept)
        return false;
    for (int i = 0; i < f->key.family->methods; i++) {
        if (!f->work[i] || strncmp(kept.name, method_of(f, i)->name, sizeof kept.name)) continue;
        int count    = count_of(f, i);
        f->method    = i;
        f->candidate = count == 1 ? 0 : (int)kept.candidate;
        return count == 1 || (!method_of(f, i)->may_fail && kept.candidate < count);
    }
    return false;
}

static void keep_choice(const tni_cuda *c, const tni_call *call, const tni_form *f)
{
    kept_choice    kept = { .name = "" };
    tni_choice_key k    = choice_key_of(c, f);
    if (!choice_lasts(f, call) || !tni_form_lasts(f)) return;
    strncpy(kept.name, method_of(f, f->method)->name, sizeof kept.name - 1);
    kept.candidate = f->candidate;
    tni_choice_keep(&k, &kept, sizeof kept);
}

// The candidates of all methods in one list.
typedef struct {
    tni_cuda       *c;
    const tni_call *call;
    const tni_form *form;
    int             count, method[MOST_TIMED], candidate[MOST_TIMED];
} trial;

static int launch_candidate(void *session, int i)
{
    const trial *t    = session;
    tni_text     none = { "" };
    int          m    = t->method[i];
    return method_of(t->form, m)->launch(t->c, t->form->work[m], t->call, t->candidate[i], &none);
}

// Whether a method is among those to choose from: a last resort only if it is all there is.
static bool competes(const tni_form *f, int m)
{
    if (!f->work[m] || f->broken[m]) return false;
    return !method_of(f, m)->last_resort || !has_better(f);
}

// Lists the candidates of the methods that compete; returns how many of them are of the last ones,
// which are our own. A library that turns out to have none is out, and the last resorts are listed
// instead.
static int list_candidates(trial *t, tni_form *f)
{
    int own = 0;
    for (int m = 0; m < f->key.family->methods; m++) {
        if (!competes(f, m)) continue;
        int n = count_of(f, m);
        if (!n) f->broken[m] = true;
        for (int i = 0; i < n && t->count < MOST_TIMED; i++) {
            t->method[t->count]      = m;
            t->candidate[t->count++] = i;
            own += !method_of(f, m)->may_fail;
        }
    }
    return own;
}

// Tells each method which of its candidates was its fastest, and takes the fastest of all.
static void take_fastest(trial *t, tni_form *f, const float *ms)
{
    int best = tni_choice_best(ms, t->count);
    for (int i = 0; i < t->count; i++)
        tni_library_log("%s to %s of %s: %s, candidate %d: %.1f us", f->key.family->name,
                        tni_shape_text(t->call->out.rank, t->call->out.size).s,
                        tni_shape_text(t->call->in[0].rank, t->call->in[0].size).s,
                        method_of(f, t->method[i])->name, t->candidate[i], ms[i] * 1e3);
    for (int first = 0, end; first < t->count; first = end) {
        int               m  = t->method[first];
        const tni_method *by = method_of(f, m);
        for (end = first; end < t->count && t->method[end] == m;) end++;
        int at = tni_choice_best(ms + first, end - first);
        if (at >= 0 && by->settle) by->settle(f->work[m], at);
        if (at >= 0 && best == first + at) {
            f->method    = m;
            f->candidate = count_of(f, m) == 1 ? 0 : at;
            f->chosen    = true;
        }
    }
}

// Takes the first candidate of the method that the environment asks for. False: it asks for none,
// or that does not compute the form.
static bool take_asked(const tni_cuda *c, const trial *t, tni_form *f)
{
    for (int i = 0; i < t->count && *c->method; i++) {
        if (strcmp(method_of(f, t->method[i])->name, c->method)) continue;
        f->method    = t->method[i];
        f->candidate = t->candidate[i];
        return true;
    }
    return false;
}

// Times all candidates on the call's own operands: results are written, inputs are not. If nothing
// is to be timed, or only one candidate is there, the first is taken.
static void choose(tni_cuda *c, const tni_call *call, tni_form *f)
{
    enum {
        FILLED = 32 << 20
    };  // of the scratch, to keep the GPU busy while launches are submitted
    float    ms[MOST_TIMED];
    tni_call plain       = *call;
    plain.search         = NULL;  // it does not search while it is timed
    trial          t     = { .c = c, .call = &plain, .form = f };
    size_t         bytes = tni_form_scratch(f);
    int            own   = list_candidates(&t, f);
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
    f->chosen = t.count == 1 || take_asked(c, &t, f) || c->deterministic || find_kept(c, call, f);
    if (f->chosen) return;
    if (tni_choice_time(&all, ms) == TNI_CU_OK) take_fastest(&t, f, ms);
    if (f->chosen) keep_choice(c, call, f);
}

// ---- running -----------------------------------------------------------------------------------

// The lock is held.
static tn_status launch_form(tni_cuda *c, const tni_call *call, tni_form *f, tni_text *why)
{
    bool may_time = c->recorder.mode == TNI_REPLAY_LAUNCH && !c->capturing;
    for (;;) {
        if (!f->chosen && may_time) choose(c, call, f);
        if (!f->chosen || f->broken[f->method]) break;
        const tni_method *by = method_of(f, f->method);
        *why                 = (tni_text){ "" };
        tn_status s          = by->launch(c, f->work[f->method], call, f->candidate, why);
        if (s == TN_OK) return s;
        tni_library_log("%s: %s fails: %s", f->key.family->name, by->name, why->s);
        f->broken[f->method] = true;
        f->chosen            = false;
        if (!may_time) c->recorder.failed = true;  // the run is submitted again, kernel by kernel
        if (!may_time) return TN_OK;
    }
    if (!*why->s) tni_text_add(why, "cuda: no method computes this %s", f->key.family->name);
    return TN_EDEVICE;
}

tn_status tni_form_launch_inside(tni_form *f, const tni_call *call, tni_text *why)
{
    return launch_form(call->session, call, f, why);
}

tn_status tni_form_launch(tni_form *f, const tni_call *call, tni_text *why)
{
    tni_cuda_enter(call->session);
    pthread_mutex_lock(&self.lock);
    tn_status s = launch_form(call->session, call, f, why);
    pthread_mutex_unlock(&self.lock);
    return s;
}

tn_status tni_form_launch_unsuited(tni_form *f, const tni_call *call, tni_text *why)
{
    tn_status s = TN_EARG;
    tni_cuda_enter(call->session);
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < f->key.family->methods && s == TN_EARG; i++) {
        if (!f->work[i] || f->broken[i]) continue;
        *why = (tni_text){ "" };
        s    = method_of(f, i)->launch(call->session, f->work[i], call, 0, why);
    }
    pthread_mutex_unlock(&self.lock);
    return s;
}

// ---- for people --------------------------------------------------------------------------------

// Whether a method is the one that is chosen or, before that, one of those that may be.
static bool is_likely(const tni_form *f, int i)
{
    return competes(f, i) && (!f->chosen || f->method == i);
}

const char *tni_form_varies(tni_form *f, const tni_call *call)
{
    const char *why = NULL;
    for (int i = 0; i < f->key.family->methods && !why; i++)
        if (is_likely(f, i) && method_of(f, i)->varies)
            why = method_of(f, i)->varies(call->session, f->work[i], call);
    return why;
}

const char *tni_form_method(tni_form *f)
{
    size_t n = 0;
    *f->by   = 0;
    for (int i = 0; i < f->key.family->methods; i++)
        if (is_likely(f, i) && n < sizeof f->by)
            n += (size_t)snprintf(f->by + n, sizeof f->by - n, "%s%s", n ? " or " : "",
                                  method_of(f, i)->name);
    const tni_method *by   = f->chosen ? method_of(f, f->method) : NULL;
    const char       *rest = by && by->rest ? by->rest(f->work[f->method]) : NULL;
    if (rest && n < sizeof f->by) snprintf(f->by + n, sizeof f->by - n, ", then %s", rest);
    return *f->by ? f->by : NULL;
}

bool tni_form_tuned(const tni_form *f, const tni_call *call, tni_tuned *won, tni_text *with)
{
    const tni_method *by = f->chosen ? method_of(f, f->method) : NULL;
    return by && by->tuned && by->tuned(f->work[f->method], call, won, with);
}

void tni_forms_forget(void)
{
    pthread_mutex_lock(&self.lock);
    for (tni_form *f; (f = self.first);) {
        self.first = f->next;
        free(f);
    }
    pthread_mutex_unlock(&self.lock);
}
