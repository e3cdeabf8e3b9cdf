// Tuning: kernels are measured under other settings than the rule's where they run, and what wins is kept (kernel/tuning.h).
//
// A run that tunes stops before each kernel that was not measured yet. The kernel is launched with what it reads, but writes to
// memory of the tuner, so that the run sees nothing of it. From the rule's settings, or those that won before, the search goes
// to the best of the settings that differ in one knob, and on from there as long as one wins. A setting has to be
// right (its results are compared with the rule's) and to win two contests against the present best, each by more than
// the times of either vary. Those that are much slower are given up after one launch.
//
// Plans are tuned from their second run on, since most run once. Half of the seconds that are left are shared among the kernels of
// a run by the bytes that they move, so that the most expensive get most; a kernel that runs once in every layer is measured once, with
// the share of all. Those for which there is no time wait for a later run, when larger ones are done. A search that was cut short goes
// on in a later run with what it has not measured yet; so does one that would wait for its compiler while other kernels can be
// measured.
//
// A search from the rule's settings, as it goes for a sum of all of a large tensor:
//
//   the rule           132.8 us    256 threads, four vectors in flight
//   neighbours         unroll 8 116.1, unroll 2 140.2, warps 32 133.0, grid 8 131.9, vector 1 221 (given up), ...
//   unroll 8           is right; 116.2 against 132.8, and once more 116.1 against 132.9: it wins
//   its neighbours     warps 32 116.1, grid 8 116.4, ...: none wins by more than it varies
//   against the rule   116.2, 132.8
//
// and TN_LOG=tune prints
//
//   tenon: tuned FULL (130023424,): 116.2 us, 132.8 us by the rule, 116.1 us next: unroll 8
#include "base/pool.h"
#include "inspect/contest.h"
#include "inspect/explain.h"
#include "inspect/profile.h"
#include "inspect/tuner.h"
#include "kernel/disk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CANDIDATES = 48,  // most neighbours of a setting
    TOGETHER =
        12,  // of them that are measured before the best goes into contests: those that promise most
    FINALISTS = 4  // of these that do: those that were fastest once
};

// Seconds that a compiler takes for a kernel, about.
static const double A_COMPILER = 0.25;

void (*tni_tune_spoil)(tni_launch *l);

// A kernel that is being measured.
typedef struct {
    const tni_run      *r;
    tni_planned_kernel *k;
    const char         *chip;
    uint64_t            key[2];
    tni_launch          l;                       // writes to `have`
    tni_buffer         *have[TNI_MAX_BUFFERS];   // what it writes; NULL: it does not
    tni_buffer         *want[TNI_MAX_BUFFERS];   // what the rule's settings wrote
    int64_t             count[TNI_MAX_BUFFERS];  // elements of them
    bool                exact;                   // no sum: results have the same bits
    int                 repeats;                 // launches of a sample
    double once;   // seconds of one launch by itself: of a short kernel, mostly those of the events
    double until;  // when its share of the time is spent
} trial;

// ---- memory ------------------------------------------------------------------------------------

// The elements from the address of buffer b of a launch up to the last that a store writes.
static int64_t written_elements(const tni_launch *l, int b)
{
    const tni_kernel *k    = l->kernel;
    int64_t           most = 0;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code != TNI_I_STORE || k->access[x->access].buffer != b) continue;
        int64_t end = l->offset[x->access] + 1;
        for (int a = 0; a < k->np + k->nr; a++)
            if (l->stride[x->access][a] > 0) end += (l->size[a] - 1) * l->stride[x->access][a];
        if (end > most) most = end;
    }
    return most;
}

// Describes the elements of buffer b at an address, for a copy.
static tni_arg elements_at(const trial *t, int b, char *data)
{
    tni_arg x = { .rank = 1, .size = { t->count[b] }, .stride = { 1 } };
    x.dtype   = (tn_dtype)t->k->kernel->buffer[b].dtype;
    x.data    = data;
    return x;
}

// Copies what buffer b had before the kernel, which may read it, too.
static bool reset_buffer(const trial *t, int b)
{
    tni_text why  = { "" };
    tni_arg  from = elements_at(t, b, t->k->launch.buffer[b]);
    return tni_arg_copy(t->r->cx, from, from.dtype, t->have[b]->data, &why) == TN_OK;
}

// Gives the memory of the results back.
static void free_trial(trial *t)
{
    for (int b = 0; b < t->k->kernel->nbuffer; b++) {
        tni_buffer_unref(&t->r->cx->buffers, t->have[b]);
        tni_buffer_unref(&t->r->cx->buffers, t->want[b]);
    }
}

// Takes memory for the results, twice. False if there is none: the kernel is then left as it is.
static bool open_trial(trial *t, const tni_run *r, tni_planned_kernel *k)
{
    *t = (trial){ .r = r, .k = k, .l = k->launch, .repeats = 1, .exact = true };
    tni_tuned_key(&k->launch, t->key);
    t->chip = r->e->kernels->chip(r->e->session, r->e->threads);
    for (int i = 0; i < k->kernel->nins; i++)
        if (k->kernel->ins[i].code == TNI_I_REDUCE) t->exact = false;
    for (int b = 0; b < k->kernel->nbuffer; b++) {
        if (!k->kernel->buffer[b].written) continue;
        t->count[b]  = written_elements(&k->launch, b);
        size_t bytes = (size_t)t->count[b] *
                       r->e->device->memory->element_size((tn_dtype)k->kernel->buffer[b].dtype);
        t->have[b] = tni_buffer_new(&r->cx->buffers, bytes);
        t->want[b] = t->have[b] ? tni_buffer_new(&r->cx->buffers, bytes) : NULL;
        if (!t->want[b] || !reset_buffer(t, b)) return false;
        t->l.buffer[b] = t->have[b]->data;
    }
    return true;
}

// ---- launches ----------------------------------------------------------------------------------

// Launches the kernel under some settings; false if it cannot be. A candidate is launched as the run would launch it, but waits for its compiler, takes scratch of its own, since the run's was
// taken for other settings, and is spoiled if a test says so.
static bool launch_with(trial *t, const tni_tuning *settings)
{
    static const tni_tuning rule;
    const tni_engine       *e    = t->r->e;
    tni_launch              l    = t->l;
    tni_buffer             *room = NULL;
    tni_text                why  = { "" };
    l.tuning                     = settings;
    l.wait_for_compiler          = true;
    if (tni_tune_spoil && memcmp(settings, &rule, sizeof rule)) tni_tune_spoil(&l);
    size_t need = e->kernels->scratch ? e->kernels->scratch(e->session, t->k->entry, &l) : 0;
    if (need && !(room = tni_buffer_new_temp(&t->r->cx->buffers, need))) return false;
    if (room) l.scratch = room->data;
    tn_status s = e->kernels->launch(e->session, t->k->entry, &l, &why);
    tni_buffer_unref(&t->r->cx->buffers, room);
    return s == TN_OK && !l.fail[0];
}

// Returns the seconds of one launch, from `n` of them one after the other; INFINITY if it cannot be launched.
// The queue is held until all launches are submitted, so that the time of a short kernel is not that of the host.
static double time_launches(trial *t, const tni_tuning *settings, int n)
{
    const tni_engine *e  = t->r->e;
    bool              ok = true;
    if (e->events->hold_queue) e->events->hold_queue(e->session, true);
    tni_time_point from = tni_time_now(e);
    for (int i = 0; ok && i < n; i++) ok = launch_with(t, settings);
    tni_time_point to = tni_time_now(e);
    if (e->events->hold_queue) e->events->hold_queue(e->session, false);
    double s = tni_seconds_between(e, from, to) / n;
    return ok && s > 0 ? s : INFINITY;
}

// ---- results -----------------------------------------------------------------------------------

// Runs the kernel under some settings on what it would read in the run.
static bool run_fresh(trial *t, const tni_tuning *settings)
{
    for (int b = 0; b < t->k->kernel->nbuffer; b++)
        if (t->have[b] && !reset_buffer(t, b)) return false;
    return launch_with(t, settings);
}

// Whether the results under some settings agree with the rule's, in every buffer that the kernel writes.
static bool is_right(trial *t, const tni_tuning *settings)
{
    bool ok = run_fresh(t, settings);
    for (int b = 0; ok && b < t->k->kernel->nbuffer; b++) {
        tn_dtype dt = (tn_dtype)t->k->kernel->buffer[b].dtype;
        if (t->have[b])
            ok = tni_results_agree(t->r->cx, dt, t->have[b]->data, t->want[b]->data, t->count[b],
                                   t->exact, 0);
    }
    return ok;
}

// Keeps what the rule's settings write.
static bool keep_rule(trial *t)
{
    static const tni_tuning rule;
    tni_text                why = { "" };
    bool                    ok  = run_fresh(t, &rule);
    for (int b = 0; ok && b < t->k->kernel->nbuffer; b++) {
        if (!t->have[b]) continue;
        tni_arg from = elements_at(t, b, t->have[b]->data);
        ok           = tni_arg_copy(t->r->cx, from, from.dtype, t->want[b]->data, &why) == TN_OK;
    }
    return ok;
}

// ---- what was tried ----------------------------------------------------------------------------

// The key by which it is remembered that a kernel, by its key, was measured under some settings.
static void key_under(const uint64_t kernel[2], const tni_tuning *settings, uint64_t key[2])
{
    char bytes[2 * sizeof *kernel + sizeof *settings];
    memcpy(bytes, kernel, 2 * sizeof *kernel);
    memcpy(bytes + 2 * sizeof *kernel, settings, sizeof *settings);
    tni_disk_hash_bytes(bytes, sizeof bytes, key);
}

static bool was_tried(const tni_tuner *u, const uint64_t kernel[2], const tni_tuning *settings)
{
    uint64_t key[2];
    key_under(kernel, settings, key);
    return tni_was_measured(u, key);
}

static void note_tried(const trial *t, const tni_tuning *settings)
{
    uint64_t key[2];
    key_under(t->key, settings, key);
    tni_note_measured(t->r->cx, key);
}

// ---- contests ----------------------------------------------------------------------------------

// A sample of some settings.
static double sample(void *arg, const void *settings)
{
    trial *t = arg;
    return time_launches(t, settings, t->repeats);
}

// A candidate, what the model expects of it and what was measured; best: seconds of the present best beside it, 0 if they did not meet;
// lost: it was slower, or cannot be launched.
typedef struct {
    tni_tuning settings;
    double     expected, seconds, best;
    bool       lost;
} candidate;

// The order in which candidates are measured: if time runs out, those that promise least are left.
static int by_expectation(const void *a, const void *b)
{
    return tni_by_size(&((const candidate *)a)->expected, &((const candidate *)b)->expected);
}

// The order in which candidates meet the present best.
static int by_time(const void *a, const void *b)
{
    return tni_by_size(&((const candidate *)a)->seconds, &((const candidate *)b)->seconds);
}

// Whether compilers run beside what is measured. Where the host computes they take the cores that are measured, so that a launch waits for
// all that was begun.
static bool compiles_beside(const tni_engine *e)
{
    return e->kernels->expect && e->events->event_record;
}

// The seconds that a candidate is taken to wait for its compiler before it is launched, by those before it.
static double wait_of(const trial *t)
{
    const tni_tuner *u = t->r->e->inspect->tuner;
    if (compiles_beside(t->r->e)) return 0;
    return (u->waited + A_COMPILER) / (u->waits + 1);
}

// Lists the most promising neighbours of a setting for a launch that were not tried yet, the best first.
static int list_candidates(const tni_engine *e, const tni_launch *l, const uint64_t key[2],
                           const tni_tuning *from, candidate *c)
{
    tni_tuning  near[CANDIDATES];
    const char *chip  = e->kernels->chip(e->session, e->threads);
    int         count = e->kernels->neighbours(e->session, l, from, near, CANDIDATES), n = 0;
    for (int i = 0; i < count; i++) {
        double expected = tni_tuning_expect(chip, l->kernel, &near[i]);
        if (was_tried(e->inspect->tuner, key, &near[i])) continue;
        c[n++] = (candidate){ near[i], expected, INFINITY, 0, false };
    }
    qsort(c, (size_t)n, sizeof *c, by_expectation);
    return n < TOGETHER ? n : TOGETHER;
}

// Lets the device begin to compile a candidate, now or when it has nothing to do.
static void expect_candidate(const tni_engine *e, void *entry, const tni_launch *l,
                             const candidate *c, bool now)
{
    tni_launch with = *l;
    with.tuning     = &c->settings;
    if (e->kernels->expect) e->kernels->expect(e->session, entry, &with, now);
}

// Begins to compile those candidates for which there is time.
static void expect_candidates(const trial *t, const candidate *c, int n)
{
    double each = wait_of(t);
    for (int i = 0; i < n && tni_clock_now() + (i + 1) * each <= t->until; i++)
        expect_candidate(t->r->e, t->k->entry, &t->l, &c[i], true);
}

// Measures each neighbour of `from`, which takes `best` seconds, once, as long as there is time. GIVEN_UP: one that takes that much longer for its first launch gets no more.
static void try_candidates(trial *t, const tni_tuning *from, candidate *c, int n, double best)
{
    enum { GIVEN_UP = 2 };
    tni_tuner *u = t->r->e->inspect->tuner;
    for (int i = 0; i < n && tni_clock_now() < t->until; i++) {
        double begun    = tni_clock_now();
        bool   launched = launch_with(t, &c[i].settings);
        u->waited += tni_clock_now() - begun;
        u->waits++;
        c[i].lost = !launched;
        if (!launched) continue;
        c[i].seconds = time_launches(t, &c[i].settings, 1);
        if (c[i].seconds < GIVEN_UP * t->once)
            c[i].seconds = time_launches(t, &c[i].settings, t->repeats);
        tni_tuning_learn(t->chip, t->k->kernel, from, &c[i].settings, c[i].seconds / best);
        c[i].lost = c[i].seconds >= best;
    }
    qsort(c, (size_t)n, sizeof *c, by_time);
}

// Whether a candidate is right and wins two contests. What was measured of it by itself is replaced by its time beside the present best.
static bool beats(trial *t, const tni_tuning *best, candidate *c, double us[2])
{
    bool right = is_right(t, &c->settings);
    bool won   = right && tni_wins(sample, t, best, &c->settings, TNI_CONTESTS, us);
    c->seconds = right ? 1e-6 * us[1] : INFINITY;
    c->best    = right && isfinite(us[0]) ? 1e-6 * us[0] : 0;
    return won;
}

// Notes the fastest of the candidates, none of which has won, if it is faster than what the present best has beaten. Those that
// seemed to be faster than the present best and did not meet it are left out: whether they are right is not known.
static void note_next(const candidate *c, int n, tni_tuned *won)
{
    const candidate *next = NULL;
    double           best = 1e-6 * won->us;
    for (int i = 0; i < n; i++)
        if (isfinite(c[i].seconds) && (c[i].best > 0 || c[i].seconds >= best) &&
            (!next || c[i].seconds < next->seconds))
            next = &c[i];
    if (!next || (won->next_us > 0 && 1e6 * next->seconds >= won->next_us)) return;
    won->next_us = 1e6 * next->seconds;
    if (next->best > 0) won->us = 1e6 * next->best;
}

// Goes from *best to the best of the neighbours that were not tried, if one wins; false if there are none. won keeps the times.
static bool climb(trial *t, tni_tuning *best, tni_tuned *won)
{
    candidate c[CANDIDATES];
    double    us[2] = { 0 };
    int       n = list_candidates(t->r->e, &t->l, t->key, best, c), winner = -1;
    expect_candidates(t, c, n);
    try_candidates(t, best, c, n, 1e-6 * won->us);
    for (int i = 0; i < n && i < FINALISTS && c[i].seconds < 1e-6 * won->us && winner < 0; i++) {
        if (tni_clock_now() > t->until) break;
        if (beats(t, best, &c[i], us)) winner = i;
        c[i].lost = winner < 0;
    }
    for (int i = 0; i < n; i++)
        if (c[i].lost) note_tried(t, &c[i].settings);
    if (winner < 0) {
        note_next(c, n, won);
        return n > 0;
    }
    note_tried(t, best);
    *best        = c[winner].settings;
    won->us      = us[1];
    won->next_us = us[0];
    return true;
}

// Whether the search may go on from *best in this run: the candidates to come are compiled, or there is nothing else to measure meanwhile.
// They are begun, behind those of kernels that come before the next run.
static bool may_go_on(const trial *t, const tni_tuning *best)
{
    const tni_engine *e = t->r->e;
    candidate         c[CANDIDATES];
    bool              ready = true;
    if (!compiles_beside(e) || !e->kernels->ready) return true;
    int n = list_candidates(e, &t->l, t->key, best, c);
    for (int i = 0; i < n; i++) {
        tni_launch        with = t->l;
        const tni_launch *l    = &with;
        with.tuning            = &c[i].settings;
        expect_candidate(e, t->k->entry, &t->l, &c[i], false);
        ready &= e->kernels->ready(e->session, 1, &l, &t->k->entry);
    }
    return ready || !e->inspect->tuner->bytes;
}

// The settings that won before, or the rule's.
static tni_tuning settings_before(const char *chip, const tni_launch *l)
{
    tni_tuned before;
    return tni_tuned_find(chip, l, &before) ? before.settings : (tni_tuning){ { 0 } };
}

// Keeps the times of a winner that were measured side by side before; the next best may be one of those that were tried since.
static void keep_times(tni_tuned *won, const tni_tuned *before)
{
    double next = won->next_us * before->us / won->us;
    if (!(next > 0) || (before->next_us > 0 && before->next_us < next)) next = before->next_us;
    won->us      = before->us;
    won->rule_us = before->rule_us;
    won->next_us = next;
}

// The winner meets the rule once more, so that the two can be compared, and both are known from then on.
static void meet_rule(trial *t, const tni_tuning *best, tni_tuned *won)
{
    static const tni_tuning rule;
    double                  us[2];
    won->settings = *best;
    won->rule_us  = won->us;
    note_tried(t, best);
    note_tried(t, &rule);
    if (!memcmp(best, &rule, sizeof rule)) return;
    bool better  = tni_wins(sample, t, &rule, best, 1, us);
    won->us      = us[1];
    won->rule_us = us[0];
    if (!better) won->settings = rule, won->us = us[0];
}

// Searches from the settings that won before, or the rule's. *known: from settings that this process has found, which have won again.
// Returns whether it came to its end.
static bool search(trial *t, tni_tuned *won, bool *known)
{
    static const tni_tuning rule;
    tni_tuned               before;
    bool                    found = tni_tuned_find(t->chip, &t->l, &before);
    tni_tuning              best  = found ? before.settings : rule, from;
    if (memcmp(&best, &rule, sizeof rule) && !is_right(t, &best)) best = rule, found = false;
    time_launches(t, &best, 1);
    t->once      = time_launches(t, &best, 1);
    t->repeats   = tni_repeats_for(t->r->e, t->once);
    won->us      = 1e6 * time_launches(t, &best, t->repeats);
    won->next_us = 0;
    from         = best;
    *known       = found && was_tried(t->r->e->inspect->tuner, t->key, &from);
    bool more    = true;
    while (more && tni_clock_now() < t->until) {
        more = climb(t, &best, won);
        if (more && !may_go_on(t, &best)) break;
    }
    *known &= !memcmp(&best, &from, sizeof best);
    won->settings = best;
    if (*known) keep_times(won, &before);
    else meet_rule(t, &best, won);
    return !more;
}

// ---- kernels of a run --------------------------------------------------------------------------

tni_tuner *tni_tuner_of(tn_ctx *cx)
{
    tni_inspect *x = cx->engine->inspect;
    if (!x->tuner) x->tuner = tni_zalloc(&cx->heap, sizeof *x->tuner);
    if (x->tuner) x->tuner->log = tni_has_word(getenv("TN_LOG"), "tune");
    return x->tuner;
}

bool tni_was_measured(const tni_tuner *u, const uint64_t key[2])
{
    for (size_t i = 0; i < u->count; i++)
        if (u->done[i].key[0] == key[0] && u->done[i].key[1] == key[1]) return true;
    return false;
}

void tni_note_measured(tn_ctx *cx, const uint64_t key[2])
{
    tni_tuner *u = cx->engine->inspect->tuner;
    if (tni_grow(&cx->heap, (void **)&u->done, &u->cap, u->count + 1, sizeof *u->done))
        u->done[u->count++] = (tni_measured){ { key[0], key[1] } };
}

// Whether a kernel is launched by itself: with a library call it is that call's.
static bool is_alone(const tni_planned_kernel *k)
{
    return k->call_item < 0 && !k->is_prologue && k->entry;
}

void tni_log_winner(tni_tuner *u, const tni_tuned *w, const char *with)
{
    static const tni_tuning rule;
    if (!u->log) return;
    fprintf(stderr, "tenon: tuned %s: %s\n", w->what, tni_tuned_text(w, with).s);
    u->told++;
    u->others += w->choices.n > 0 || memcmp(&w->settings, &rule, sizeof rule);
}

// Measures a kernel and notes the winner, the rule's settings if nothing beats them, for the end of the run. False if nothing can be
// measured.
static bool tune_kernel(trial *t)
{
    const tni_run *r     = t->r;
    bool           known = false;
    tni_tuned      won;
    memset(&won, 0, sizeof won);
    memcpy(won.key, t->key, sizeof won.key);
    snprintf(won.chip, sizeof won.chip, "%s", t->chip);
    snprintf(won.what, sizeof won.what, "%.5s %.56s", tni_kernel_kind(t->k->kernel),
             tni_shape_text(t->k->kernel->np + t->k->kernel->nr, t->l.size).s);
    if (!keep_rule(t)) return false;
    bool       ended = search(t, &won, &known);
    tni_tuner *u     = r->e->inspect->tuner;
    if (!isfinite(won.us) ||
        !tni_grow(&r->cx->heap, (void **)&u->won, &u->winners_cap, u->winners + 1, sizeof *u->won))
        return false;
    u->won[u->winners++] = (tni_tuned_kernel){ won, t->k, ended, known };
    return true;
}

// Returns the item of a key, which is made if there is none; NULL when memory is out.
static tni_tuner_item *item_of(tn_ctx *cx, tni_tuner *u, const uint64_t key[2])
{
    for (size_t i = 0; i < u->items; i++)
        if (u->item[i].key[0] == key[0] && u->item[i].key[1] == key[1]) return &u->item[i];
    if (!tni_grow(&cx->heap, (void **)&u->item, &u->items_cap, u->items + 1, sizeof *u->item))
        return NULL;
    u->item[u->items] = (tni_tuner_item){ .key = { key[0], key[1] } };
    return &u->item[u->items++];
}

// Whether a kernel is still to be measured; key: its key.
static bool is_left(const tni_tuner *u, const tni_planned_kernel *k, uint64_t key[2])
{
    if (!is_alone(k)) return false;
    tni_tuned_key(&k->launch, key);
    return !tni_was_measured(u, key);
}

// Counts what a kernel moves to its item. One that moves nothing takes time, too.
static void count_bytes(tni_tuner *u, tni_tuner_item *x, const tni_planned_kernel *k)
{
    x->bytes += k->bytes + 1;
    u->bytes += k->bytes + 1;
}

// How many kernels there are whose candidates are being compiled ahead.
static int count_ahead(const tni_tuner *u)
{
    int n = 0;
    for (size_t i = 0; i < u->items; i++) n += u->item[i].ahead && u->item[i].bytes > 0;
    return n;
}

// Begins to compile the candidates of kernels that come later in the run, where that is done beside what is measured: otherwise each search
// would wait for its own (ResNet-50 on an H200: 31 of 38 s). AHEAD: kernels, enough for all cores.
static void look_ahead(const tni_run *r, const tni_planned_kernel *now)
{
    enum { AHEAD = 8 };
    const tni_engine *e = r->e;
    const tni_plan   *p = r->plan;
    tni_tuner        *u = e->inspect->tuner;
    int               n = count_ahead(u);
    candidate         c[CANDIDATES];
    uint64_t          key[2];
    if (!compiles_beside(e) || r->in_loop) return;
    while (u->step < p->steps && (p->step[u->step] >= 0 || &p->kernel[~p->step[u->step]] != now))
        u->step++;
    if (u->ahead < u->step) u->ahead = u->step;
    for (; u->ahead < p->steps && n < AHEAD; u->ahead++) {
        int32_t                   s = p->step[u->ahead];
        const tni_planned_kernel *k = s < 0 ? &p->kernel[~s] : NULL;
        tni_tuner_item           *x = k && is_left(u, k, key) ? item_of(r->cx, u, key) : NULL;
        if (!x || x->ahead || !x->bytes) continue;
        tni_tuning from  = settings_before(e->kernels->chip(e->session, e->threads), &k->launch);
        int        count = list_candidates(e, &k->launch, key, &from, c);
        for (int i = 0; i < count; i++) expect_candidate(e, k->entry, &k->launch, &c[i], false);
        x->ahead = true;
        n++;
    }
}

// The seconds that a search takes at least: those of the compilers of its first candidates, by all cores where nothing else needs them.
static double least_seconds(const tni_engine *e)
{
    return compiles_beside(e) ? TOGETHER * A_COMPILER / tni_threads_default() : A_COMPILER;
}

// Measures a kernel in its share of the time, and takes what was spent off the share of the run and off the budget, also if nothing came of it.
static void tune_in_share(const tni_run *r, tni_planned_kernel *k, tni_tuner_item *x)
{
    tni_tuner *u     = r->e->inspect->tuner;
    double     begun = tni_clock_now();
    trial      t;
    bool       opened = open_trial(&t, r, k);
    double     share  = u->share * (double)x->bytes / (double)u->bytes;
    t.until           = begun + fmin(u->share, fmax(least_seconds(r->e), share));
    u->bytes -= x->bytes;
    x->bytes = 0;
    x->ahead = true;
    look_ahead(r, k);
    if (!opened || !tune_kernel(&t)) tni_note_measured(r->cx, t.key);
    free_trial(&t);
    double spent = tni_clock_now() - begun;
    u->share -= spent;
    r->e->tune_seconds -= spent;
}

// What is not listed is a kernel of a loop's body.
void tni_kernel_tunes(const tni_run *r, tni_planned_kernel *k)
{
    tni_tuner *u = r->e->inspect->tuner;
    uint64_t   key[2];
    if (!u || u->share <= 0 || !is_left(u, k, key)) return;
    size_t          listed = u->items;
    tni_tuner_item *x      = item_of(r->cx, u, key);
    if (x && u->items > listed) count_bytes(u, x, k);
    if (x && x->bytes) tune_in_share(r, k, x);
}

// ---- runs --------------------------------------------------------------------------------------

// Orders items by what they move, the most first.
static int by_bytes(const void *a, const void *b)
{
    int64_t x = ((const tni_tuner_item *)a)->bytes, y = ((const tni_tuner_item *)b)->bytes;
    return (x < y) - (x > y);
}

// Lists the kernels of a run that are still to be measured. Those that move least are left to a later run, if there is no time for all.
static void list_kernels(const tni_run *r, tni_tuner *u)
{
    uint64_t key[2];
    size_t   most = (size_t)fmax(1, u->share / least_seconds(r->e));
    u->items      = 0;
    u->bytes      = 0;
    for (size_t i = 0; i < r->plan->kernels; i++) {
        const tni_planned_kernel *k = &r->plan->kernel[i];
        tni_tuner_item           *x = is_left(u, k, key) ? item_of(r->cx, u, key) : NULL;
        if (x) count_bytes(u, x, k);
    }
    if (u->items) qsort(u->item, u->items, sizeof *u->item, by_bytes);
    for (size_t i = most; i < u->items; i++) {
        u->bytes -= u->item[i].bytes;
        u->item[i].bytes = 0;
    }
}

// Winners of a run that failed are forgotten: they would be used without having been announced to the device.
void tni_tuning_begins(const tni_run *r)
{
    tni_tuner *u = tni_tuner_of(r->cx);
    if (!u) return;
    u->winners = 0;
    u->step = u->ahead = 0;
    u->share           = r->e->tune_seconds / 2;
    list_kernels(r, u);
}

// Whether all kernels of a run were measured.
static bool is_complete(const tni_run *r)
{
    uint64_t key[2];
    for (size_t i = 0; i < r->plan->kernels; i++)
        if (is_left(r->e->inspect->tuner, &r->plan->kernel[i], key)) return false;
    return true;
}

// LITTLE: seconds that are not worth another run.
void tni_tuning_ends(const tni_run *r)
{
    const double LITTLE = 0.05;
    tni_tuner   *u      = r->e->inspect->tuner;
    for (size_t i = 0; u && i < u->winners; i++) {
        const tni_planned_kernel *k = u->won[i].k;
        if (u->won[i].ended) tni_note_measured(r->cx, u->won[i].won.key);
        tni_tuned_keep(&u->won[i].won);
        r->e->kernels->retuned(r->e->session, k->entry, &k->launch);
        if (!u->won[i].known)
            tni_log_winner(u, &u->won[i].won, tni_tuning_text(&u->won[i].won.settings).s);
        r->plan->scratch_known = false;
    }
    if (u) u->winners = 0;
    r->plan->tuned = r->plan->chosen && (!u || is_complete(r));
    if (r->e->tune_seconds < LITTLE) r->e->tune_seconds = 0;
}

// ---- budgets -----------------------------------------------------------------------------------

// Plans that were measured are looked at again: a new budget is a new request. Where rules are to decide there is none: a plan that
// wins is used at once.
tn_status tn_tune(tn_ctx *cx, double seconds)
{
    if (!tni_ctx_ok(cx, "tune")) return tni_failed();
    if (!(seconds >= 0) || !isfinite(seconds))
        return tni_fail_status(cx, TN_EARG, "tune: %g is no number of seconds", seconds);
    cx->engine->tune_seconds = tni_tuned_off() ? 0 : seconds;
    for (int i = 0; i < cx->engine->plans.count; i++) {
        tni_plan *p = cx->engine->plans.plan[i];
        p->tuned = p->chosen = false;
    }
    return TN_OK;
}

// Whether winners are kept on disk, in d->path; why not, if they are not.
static bool has_disk(tni_disk *d, tni_text *why)
{
    tni_disk_open(d);
    return tni_disk_usable(d, why);
}

// Returns the number of winners of a file, or -1, reported as an error of reading or writing, with the reason.
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
    tni_disk disk;
    tni_text why = { "" };
    int      n   = 0;
    if (!tni_ctx_ok(cx, "tune_import")) return -1;
    if (!path) return tni_fail(cx, TN_EARG, "tune_import: the path is NULL"), -1;
    bool ok = tni_tuned_import(path, &n, &why);
    if (ok && n && !has_disk(&disk, &why))
        tni_warn(cx, "tune_import: the winners are known to this process alone: %s", why.s);
    return tuned_count(cx, "tune_import", ok, n, &why);
}

// A value that is no number of seconds leaves measuring off, with a warning; 0 turns winners off, too (kernel/tuned.c).
void tni_tune_open(tn_ctx *cx)
{
    tni_text why = { "" };
    double   s   = tni_tuned_seconds(&why);
    if (*why.s) tni_warn(cx, "open: %s", why.s);
    if (s > 0 && !tni_tuned_off()) cx->engine->tune_seconds = s;
}

// Ends what tni_log_winner has printed: most lines say that the rule was right, which looks as if nothing had come of it.
static void log_end(const tni_tuner *u)
{
    tni_disk d;
    tni_text why = { "" };
    if (!u->told) return;
    fprintf(stderr, "tenon: tuned: %d of %d results differ from the rule's; ", u->others, u->told);
    if (has_disk(&d, &why)) fprintf(stderr, "they are kept in %s\n", tni_escaped(d.path).s);
    else fprintf(stderr, "they are not kept: %s\n", why.s);
}

void tni_tune_close(tn_ctx *cx)
{
    tni_tuner *u = cx->engine->inspect->tuner;
    if (u) log_end(u);
    if (u) tni_free(&cx->heap, u->done);
    if (u) tni_free(&cx->heap, u->won);
    if (u) tni_free(&cx->heap, u->item);
    tni_free(&cx->heap, u);
    cx->engine->inspect->tuner = NULL;
}
