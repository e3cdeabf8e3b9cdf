// Tuning: kernels are measured under other settings than the rule's where they run, and what wins
// is kept (kernel/tuning.h). tune_kernel.c has the search of a kernel; tune_plan.c measures plans.
//
// A run that tunes stops before each kernel that was not measured yet, and lets library calls
// search that know how (device/cuda/product_search.c). Plans are tuned from their second run on,
// since most run once. Half of the seconds that are left goes to a run, and on a GPU less to the
// first ones. They are shared among as many of its largest kernels as there is time for, by the
// bytes that they move, which count half for every search that was cut short before; a kernel that
// runs once in every layer is measured once, with the share of all. What that leaves goes to
// smaller ones. A search that was cut short goes on in a later run; so does one that would wait for
// its compiler while others have hardly time.
//
// Where the compiler runs beside what is measured, on a GPU, candidates are begun in this order:
// those of the kernel that is measured; behind them, if nothing else is to be compiled, those of
// the next kernels, and at the end of a run what its searches would measure next.
#include "base/hash.h"
#include "base/pool.h"
#include "base/slots.h"
#include "inspect/agreement.h"
#include "inspect/explain.h"
#include "inspect/profile.h"
#include "inspect/step_facts.h"
#include "inspect/tuner.h"
#include "kernel/disk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const double TNI_A_COMPILER = 0.25, TNI_A_MINUTE = 60;

// ---- what was measured -------------------------------------------------------------------------

tni_tuner *tni_tuner_of(tn_ctx *cx)
{
    tni_inspect *x = cx->engine->inspect;
    if (!x->tuner) x->tuner = tni_zalloc(&cx->heap, sizeof *x->tuner);
    if (x->tuner) x->tuner->log = tni_has_word(getenv("TN_LOG"), "tune");
    return x->tuner;
}

// Returns what is known of a key; NULL if that is nothing.
static tni_measured *find_measured(const tni_tuner *u, const uint64_t key[2])
{
    size_t mask = u->slots - 1;
    for (size_t at = key[0] & mask; u->slots && u->slot[at]; at = (at + 1) & mask) {
        tni_measured *x = &u->known[u->slot[at] - 1];
        if (x->key[0] == key[0] && x->key[1] == key[1]) return x;
    }
    return NULL;
}

// The same, made if there is nothing; NULL when memory is out.
static tni_measured *add_measured(tn_ctx *cx, const uint64_t key[2])
{
    tni_tuner    *u    = cx->engine->inspect->tuner;
    bool          full = 2 * (u->count + 1) > u->slots;
    tni_measured *x    = find_measured(u, key);
    if (x) return x;
    if (!tni_grow(&cx->heap, (void **)&u->known, &u->cap, u->count + 1, sizeof *u->known))
        return NULL;
    if (full && !tni_slots_double(&cx->heap, &u->slot, &u->slots)) return NULL;
    for (size_t i = 0; full && i < u->count; i++)
        tni_slots_put(u->slot, u->slots, u->known[i].key[0], i);
    x  = &u->known[u->count];
    *x = (tni_measured){ .key = { key[0], key[1] } };
    tni_slots_put(u->slot, u->slots, key[0], u->count++);
    return x;
}

// After MANY searches that were cut short a key gets no time any more until the next budget, or it
// is of a call that finds no memory, or zeros instead of numbers, and would ask in every run.
enum { MANY = 32 };

bool tni_was_measured(const tni_tuner *u, const uint64_t key[2])
{
    const tni_measured *x = find_measured(u, key);
    return x && (x->ended || x->searches >= MANY);
}

// What there is no time or memory for gets none until the next budget.
static void note_hopeless(tn_ctx *cx, const uint64_t key[2])
{
    tni_measured *x = add_measured(cx, key);
    if (x) x->searches = MANY;
}

void tni_note_measured(tn_ctx *cx, const uint64_t key[2])
{
    tni_measured *x = add_measured(cx, key);
    if (x) x->ended = true;
}

static void count_winner(tni_tuner *u, const tni_tuned *w, int times)
{
    static const tni_tuning rule;
    u->told += times;
    u->others += times * (w->choices.n > 0 || w->algorithm.n > 0 ||
                          memcmp(&w->settings, &rule, sizeof rule) != 0);
}

void tni_log_winner(tni_tuner *u, const tni_tuned *w, const tni_tuned *before, const char *with)
{
    if (before) count_winner(u, before, -1);
    count_winner(u, w, 1);
    if (u->log) fprintf(stderr, "tenon: tuned %s: %s\n", w->what, tni_tuned_text(w, with).s);
}

// ---- kernels of a run --------------------------------------------------------------------------

// Whether a kernel is launched by itself: with a library call it is that call's.
static bool is_alone(const tni_planned_kernel *k)
{
    return k->call_item < 0 && !k->is_prologue && k->entry;
}

// Whether a kernel is still to be measured; key: its key.
static bool is_left(const tni_tuner *u, const tni_planned_kernel *k, uint64_t key[2])
{
    if (!is_alone(k)) return false;
    tni_tuned_key(&k->launch, key);
    return !tni_was_measured(u, key);
}

// Returns the item of a key; NULL if there is none.
static tni_tuner_item *find_item(const tni_tuner *u, const uint64_t key[2])
{
    for (size_t i = 0; i < u->items; i++)
        if (u->item[i].key[0] == key[0] && u->item[i].key[1] == key[1]) return &u->item[i];
    return NULL;
}

// Counts bytes to the item of a key, which is made if there is none; NULL when memory is out. What
// moves nothing takes time, too.
static tni_tuner_item *count_bytes(tn_ctx *cx, tni_tuner *u, int64_t bytes, const uint64_t key[2])
{
    tni_tuner_item *x = find_item(u, key);
    if (!x) {
        if (!tni_grow(&cx->heap, (void **)&u->item, &u->items_cap, u->items + 1, sizeof *u->item))
            return NULL;
        x  = &u->item[u->items++];
        *x = (tni_tuner_item){ .key = { key[0], key[1] }, .state = TNI_ITEM_POSTPONED };
    }
    x->bytes += bytes + 1;
    return x;
}

// What was searched before and is not at its end counts half as much each time, so that a large
// product with thousands of algorithms does not take the time of all others.
static void count_searches(const tni_tuner *u, tni_tuner_item *x)
{
    const tni_measured *known = find_measured(u, x->key);
    uint32_t            times = known ? known->searches : 0;
    x->bytes                  = 1 + (times < 63 ? x->bytes >> times : 0);
}

static void note_cut(tn_ctx *cx, tni_tuner *u, const uint64_t key[2])
{
    tni_measured *known = add_measured(cx, key);
    if (known) known->searches++;
    u->left |= !tni_was_measured(u, key);
}

// ---- library calls of a run --------------------------------------------------------------------

// Whether a call is still to be measured; key: a hash of what it computes and of the kernel behind
// it. Calls of equal layers have one key.
static bool call_is_left(const tni_run *r, const tni_call *c, uint64_t key[2])
{
    enum { ARGS = 4, ARG = 2 + 2 * TN_MAX_RANK };
    int64_t word[4 + (ARGS + 1) * ARG] = { c->op, c->nin };
    int     n                          = 4;
    if (!tni_device_impl(r->e->device, c->op)->tuned || c->nin > ARGS) return false;
    if (c->launch) tni_tuned_key(c->launch, (uint64_t *)&word[2]);
    for (int i = 0; i <= c->nin; i++) {
        const tni_arg *x = i < c->nin ? &c->in[i] : &c->out;
        word[n++]        = x->dtype;
        word[n++]        = x->rank;
        for (int k = 0; k < x->rank; k++) {
            word[n++] = x->size[k];
            word[n++] = x->stride[k];
        }
    }
    tni_tuned_bytes_key(word, (size_t)n * sizeof *word, key);
    return !tni_was_measured(r->e->inspect->tuner, key);
}

// The bytes that a GPU moves while it computes a step, or those of the step if that takes longer:
// an H200 does some 200 operations of 16 bits, and 50 of f32 with and without TF32, in the time of
// a byte.
static int64_t call_weight(const tni_run *r, tni_plan_step step)
{
    tni_effort does     = tni_step_effort(r->g, r->plan, step);
    double     computes = does.products / (tni_is_rounded(does.dtype) ? 200 : 50);
    return (int64_t)fmin(9e18, fmax(computes, (double)tni_step_bytes(r->g, r->plan, step)));
}

// Lists the calls of a run that are still to be measured.
static void list_calls(const tni_run *r, tni_tuner *u)
{
    uint64_t key[2];
    for (size_t t = 0; t < r->plan->steps; t++) {
        tni_plan_step step = r->plan->step[t];
        int32_t       item = step < 0 ? r->plan->kernel[~step].call_item : step;
        uint32_t      call = item < 0 ? 0 : r->plan->place[item].call;
        if (call && call_is_left(r, &r->plan->call[call - 1].call, key))
            count_bytes(r->cx, u, call_weight(r, step), key);
    }
}

// ---- states ------------------------------------------------------------------------------------

// Moves an item to another state. Those that are chosen are counted.
static void set_state(tni_tuner *u, tni_tuner_item *x, tni_item_state to)
{
    int change = (to == TNI_ITEM_CHOSEN) - (x->state == TNI_ITEM_CHOSEN);
    u->chosen += change;
    u->bytes += change * x->bytes;
    x->state = to;
}

// ---- time --------------------------------------------------------------------------------------

bool tni_compiles_beside(const tni_engine *e)
{
    return e->kernels->expect && e->events->event_record;
}

// The seconds that a search is taken to need for its first candidates, by the last ones. At first
// those of the compilers, by all cores where nothing else needs them, and of one on the cpu.
static double least_seconds(const tni_engine *e)
{
    if (e->inspect->tuner->a_search > 0) return e->inspect->tuner->a_search;
    if (!tni_compiles_beside(e)) return TNI_A_COMPILER;
    return TNI_A_COMPILER * TNI_TOGETHER / tni_threads_default();
}

// Takes the time of a search when its first candidates are measured, or at its end if that comes
// before.
static void time_search(const tni_engine *e)
{
    tni_tuner *u = e->inspect->tuner;
    if (u->dozens <= 2) u->a_search = (least_seconds(e) + tni_clock_now() - u->begun) / 2;
}

// The first candidates of a search are always measured. On others its compiler is waited for if
// there is time for all other kernels.
bool tni_search_may_go_on(const tni_engine *e)
{
    tni_tuner *u = e->inspect->tuner;
    if (u->dozens++ == 0) return true;
    time_search(e);
    if (!tni_compiles_beside(e)) return true;
    return u->share - (tni_clock_now() - u->begun) > u->chosen * least_seconds(e);
}

// Begins to compile the candidates of kernels that come later in the run: otherwise each search
// would wait for its own (ResNet-50 on an H200: 31 of 38 s). AHEAD: kernels, enough for all cores.
static void look_ahead(const tni_run *r, const tni_planned_kernel *now)
{
    enum { AHEAD = 8 };
    const tni_plan *p = r->plan;
    tni_tuner      *u = r->e->inspect->tuner;
    int             n = 0;
    uint64_t        key[2];
    if (!tni_compiles_beside(r->e) || r->in_loop) return;
    for (size_t i = 0; i < u->items; i++)
        n += u->item[i].state == TNI_ITEM_CHOSEN && u->item[i].ahead;
    while (u->step < p->steps && (p->step[u->step] >= 0 || &p->kernel[~p->step[u->step]] != now))
        u->step++;
    if (u->ahead < u->step) u->ahead = u->step;
    for (; u->ahead < p->steps && n < AHEAD; u->ahead++) {
        int32_t                   s = p->step[u->ahead];
        const tni_planned_kernel *k = s < 0 ? &p->kernel[~s] : NULL;
        tni_tuner_item           *x = k && is_left(u, k, key) ? find_item(u, key) : NULL;
        if (!x || x->ahead || x->state != TNI_ITEM_CHOSEN) continue;
        tni_search_ahead(r->e, k, key);
        x->ahead = true;
        n++;
    }
}

// Returns the item of a key, which is made if the list does not have it, if it is to be measured
// now; NULL if not. Those that are not chosen are measured if there is time for all that are, and
// when all of them were measured.
static tni_tuner_item *item_for_now(const tni_run *r, int64_t bytes, const uint64_t key[2])
{
    tni_tuner      *u = r->e->inspect->tuner;
    tni_tuner_item *x = find_item(u, key);
    if (!x && (x = count_bytes(r->cx, u, bytes, key))) count_searches(u, x);
    if (!x || x->state == TNI_ITEM_MEASURED) return NULL;
    bool now = x->state == TNI_ITEM_CHOSEN || x->state == TNI_ITEM_ASKED || !u->chosen ||
               u->share > (u->chosen + 1) * least_seconds(r->e);
    u->left |= !now;
    return now ? x : NULL;
}

// Begins a search in an item's share of the time. ONE: the most that one has where compilers run
// beside it, since the first candidates promise most; what is left goes on in a later run.
static void begin_share(const tni_run *r, tni_tuner_item *x)
{
    const double ONE  = 0.25;
    tni_tuner   *u    = r->e->inspect->tuner;
    double       all  = (double)(u->bytes + (x->state == TNI_ITEM_CHOSEN ? 0 : x->bytes));
    double       most = tni_compiles_beside(r->e) ? ONE : 1;
    double       part = fmin(most, (double)x->bytes / all) * u->share;
    set_state(u, x, TNI_ITEM_MEASURED);
    u->begun  = tni_clock_now();
    u->until  = u->begun + fmin(u->share, fmax(least_seconds(r->e), part));
    u->dozens = 0;
}

// Takes what was spent off the share of the run and off the budget, also if nothing came of it.
static void end_share(const tni_run *r)
{
    tni_tuner *u     = r->e->inspect->tuner;
    double     spent = tni_clock_now() - u->begun;
    u->share -= spent;
    r->e->tune_seconds -= spent;
}

// Whether the run has time left.
static bool has_share(tni_tuner *u)
{
    if (u && u->share <= 0) u->left = true;
    return u && u->share > 0;
}

// What is not in the list is a kernel of a loop's body, or is launched with another alignment than
// at the beginning of the run.
//
// The kernels of a plan that no cache keeps, as of a loop's body that is very large, are left as
// they are: they are gone when the run ends, at which winners are kept.
void tni_kernel_tunes(const tni_run *r, tni_planned_kernel *k)
{
    tni_tuner *u = r->e->inspect->tuner;
    uint64_t   key[2];
    if (!r->plan->key_bytes || !has_share(u) || !is_left(u, k, key)) return;
    tni_tuner_item *x = item_for_now(r, k->bytes, key);
    if (!x) return;
    begin_share(r, x);
    look_ahead(r, k);
    if (!tni_search_kernel(r, k, u->until)) note_hopeless(r->cx, key);
    if (u->dozens < 2) time_search(r->e);
    end_share(r);
}

// ---- searches of library calls -----------------------------------------------------------------

static bool call_may_go_on(void *arg)
{
    const tn_ctx *cx = arg;
    return tni_clock_now() < cx->engine->inspect->tuner->until;
}

static void *call_takes(void *arg, size_t bytes, char **data)
{
    tn_ctx     *cx = arg;
    tni_buffer *b  = tni_buffer_new(&cx->buffers, bytes);
    *data          = b ? b->data : NULL;
    return b;
}

static void call_gives(void *arg, void *memory)
{
    tn_ctx *cx = arg;
    tni_buffer_unref(&cx->buffers, memory);
}

static bool call_agrees(void *arg, tn_dtype dt, const char *have, const char *want, int64_t n)
{
    return tni_results_agree(arg, dt, have, want, n, TNI_COMPARE_PARTS, 0);
}

// What the same search found before is counted no more.
static void call_found(void *arg, const tni_tuned *won, const tni_tuned *before, const char *with)
{
    tn_ctx *cx = arg;
    tni_log_winner(cx->engine->inspect->tuner, won, before, with);
    tni_tuned_keep(won);
}

// The search that a call of the run is to do; NULL: none.
tni_call_search *tni_call_tunes(const tni_run *r, tni_plan_step step, const tni_call *c)
{
    tni_tuner *u = r->e->inspect->tuner;
    uint64_t   key[2];
    if (!has_share(u) || !call_is_left(r, c, key)) return NULL;
    tni_tuner_item *x = item_for_now(r, call_weight(r, step), key);
    if (!x) return NULL;
    begin_share(r, x);
    memcpy(u->call_key, key, sizeof key);
    u->call = (tni_call_search){ .may_go_on = call_may_go_on,
                                 .take      = call_takes,
                                 .give      = call_gives,
                                 .agree     = call_agrees,
                                 .found     = call_found,
                                 .arg       = r->cx };
    return &u->call;
}

// A call that did not search leaves its place to another one of its key, which may be aligned
// otherwise.
void tni_call_searched(const tni_run *r)
{
    tni_tuner      *u = r->e->inspect->tuner;
    tni_tuner_item *x = find_item(u, u->call_key);
    if (u->call.end == TNI_SEARCH_LEFT) note_cut(r->cx, u, u->call_key);
    if (u->call.end == TNI_SEARCHED_ALL) tni_note_measured(r->cx, u->call_key);
    if (u->call.end == TNI_SEARCHED_NOTHING && x) set_state(u, x, TNI_ITEM_ASKED);
    end_share(r);
}

// ---- runs --------------------------------------------------------------------------------------

// Orders items by what they move, the most first.
static int by_bytes(const void *a, const void *b)
{
    int64_t x = ((const tni_tuner_item *)a)->bytes, y = ((const tni_tuner_item *)b)->bytes;
    return (x < y) - (x > y);
}

// Lists the kernels and calls of a run that are still to be measured, and chooses those that move
// most, as many as there is time for.
static void list_items(const tni_run *r, tni_tuner *u)
{
    uint64_t key[2];
    u->items  = 0;
    u->bytes  = 0;
    u->chosen = 0;
    for (size_t i = 0; i < r->plan->kernels; i++) {
        const tni_planned_kernel *k = &r->plan->kernel[i];
        if (is_left(u, k, key)) count_bytes(r->cx, u, k->bytes, key);
    }
    list_calls(r, u);
    for (size_t i = 0; i < u->items; i++) count_searches(u, &u->item[i]);
    double most = fmax(1, u->share / least_seconds(r->e));
    if (u->items) qsort(u->item, u->items, sizeof *u->item, by_bytes);
    for (size_t i = 0; i < u->items && (double)i < most; i++)
        set_state(u, &u->item[i], TNI_ITEM_CHOSEN);
}

// The seconds that a run gets of those that are left: half, and on a GPU an eighth, a quarter and
// three eighths to the second, third and fourth of its plan, since most plans run a few times.
// On the cpu a search waits for its compilers, and comes to nothing in a short time. A minute at
// most, since a program that is ended before the run ends loses its winners.
static double share_of_run(const tni_run *r)
{
    double part = tni_compiles_beside(r->e) ? fmin(0.5, (double)r->plan->runs / 8) : 0.5;
    return fmin(TNI_A_MINUTE, part * r->e->tune_seconds);
}

// Winners of a run that failed are forgotten: they would be used without having been announced to
// the device.
void tni_tuning_begins(const tni_run *r)
{
    tni_tuner *u = tni_tuner_of(r->cx);
    r->e->tunings++;
    if (!u) return;
    u->winners = 0;
    u->step = u->ahead = 0;
    u->left            = false;
    u->share           = share_of_run(r);
    list_items(r, u);
}

// Keeps a winner. One that this process has found before is counted no more.
static void note_winner(tn_ctx *cx, tni_tuner *u, const tni_tuned_kernel *w)
{
    tni_tuned before;
    bool      again = w->again && tni_tuned_find(w->won.chip, &w->k->launch, &before);
    if (!again || !w->nothing_new)
        tni_log_winner(u, &w->won, again ? &before : NULL, tni_tuning_text(&w->won.settings).s);
    if (w->ended) tni_note_measured(cx, w->won.key);
    tni_tuned_keep(&w->won);
}

// Keeps the winners of a run. What their searches would measure next is compiled until the next
// run, if there is one: LITTLE, seconds that are not worth it.
void tni_tuning_ends(const tni_run *r)
{
    const double LITTLE = 0.05;
    tni_tuner   *u      = r->e->inspect->tuner;
    if (r->e->tune_seconds < LITTLE) r->e->tune_seconds = 0;
    for (size_t i = 0; u && i < u->winners; i++) {
        const tni_tuned_kernel *w = &u->won[i];
        note_winner(r->cx, u, w);
        r->e->kernels->retuned(r->e->session, w->k->entry, &w->k->launch);
        r->plan->scratch_known = false;
        if (!w->ended) note_cut(r->cx, u, w->won.key);
        if (!w->ended && r->e->tune_seconds > 0 && tni_compiles_beside(r->e))
            tni_search_ahead(r->e, w->k, w->won.key);
    }
    if (u) u->winners = 0;
    r->plan->measured = !(u && u->left);
}

// ---- budgets -----------------------------------------------------------------------------------

// Plans that were measured, and searches that were cut short, are looked at again: a new budget is
// a new request. Where rules are to decide there is none: a plan that wins is used at once.
tn_status tn_tune(tn_ctx *cx, double seconds)
{
    if (!tni_ctx_ok(cx, "tune")) return tni_failed();
    if (!(seconds >= 0) || !isfinite(seconds))
        return tni_fail_status(cx, TN_EARG, "tune: %g is no number of seconds", seconds);
    cx->engine->tune_seconds = tni_tuned_off() ? 0 : seconds;
    cx->engine->tunings++;
    for (int i = 0; i < cx->engine->plans.count; i++) {
        tni_plan *p = cx->engine->plans.plan[i];
        p->measured = p->choosing = p->chosen = false;
    }
    tni_tuner *u = cx->engine->inspect->tuner;
    for (size_t i = 0; u && i < u->count; i++) u->known[i].searches = 0;
    return TN_OK;
}

// Returns the number of winners of a file, or -1, reported as an error of reading or writing, with
// the reason.
static int tuned_count(tn_ctx *cx, const char *op, bool ok, int n, const tni_text *why)
{
    if (!ok) tni_fail(cx, TN_EIO, "%s: %s", op, why->s);
    return ok ? n : -1;
}

int tn_tune_export(tn_ctx *cx, const char *path)
{
    tni_text why = { "" };
    int      n   = 0;
    if (!tni_ctx_ok(cx, "tune_export")) return -1;
    if (!path) return tni_fail(cx, TN_EARG, "tune_export: the path is NULL"), -1;
    bool ok = tni_tuned_export(path, &n, &why);
    return tuned_count(cx, "tune_export", ok, n, &why);
}

int tn_tune_import(tn_ctx *cx, const char *path)
{
    tni_text where, why = { "" };
    int      n = 0;
    if (!tni_ctx_ok(cx, "tune_import")) return -1;
    if (!path) return tni_fail(cx, TN_EARG, "tune_import: the path is NULL"), -1;
    bool ok = tni_tuned_import(path, &n, &why);
    if (ok && n && !tni_tuned_kept(&where, &why))
        tni_warn(cx, "tune_import: the winners are known to this process alone: %s", why.s);
    return tuned_count(cx, "tune_import", ok, n, &why);
}

// A value that is no number of seconds leaves measuring off, with a warning; 0 turns winners off,
// too (kernel/tuned.c).
void tni_tune_open(tn_ctx *cx)
{
    tni_text why = { "" };
    double   s   = tni_tuned_seconds(&why);
    if (*why.s) tni_warn(cx, "open: %s", why.s);
    if (s > 0 && !tni_tuned_off()) cx->engine->tune_seconds = s;
}

// Ends what tni_log_winner has printed: most lines say that the rule was right, which looks as if
// nothing had come of it.
static void log_end(const tni_engine *e, const tni_tuner *u)
{
    tni_text where, why = { "" };
    if (!tni_has_word(getenv("TN_LOG"), "tune") || !e->evaluations) return;
    if (!u || !u->told) {
        if (e->tune_seconds > 0 && e->kernels->neighbours)
            fprintf(stderr, "tenon: tuned: nothing on %s: %s\n", e->name,
                    e->watch || e->eager ? "kernels are watched, or run op by op"
                                         : "no plan that had run before ran again");
        return;
    }
    fprintf(stderr, "tenon: tuned: %d of %d results differ from the rule's; ", u->others, u->told);
    if (tni_tuned_kept(&where, &why)) fprintf(stderr, "they are kept in %s\n", where.s);
    else fprintf(stderr, "they are not kept: %s\n", why.s);
}

void tni_tune_close(tn_ctx *cx)
{
    tni_tuner *u = cx->engine->inspect->tuner;
    log_end(cx->engine, u);
    if (u) tni_free(&cx->heap, u->known);
    if (u) tni_free(&cx->heap, u->slot);
    if (u) tni_free(&cx->heap, u->won);
    if (u) tni_free(&cx->heap, u->item);
    tni_free(&cx->heap, u);
    cx->engine->inspect->tuner = NULL;
}
