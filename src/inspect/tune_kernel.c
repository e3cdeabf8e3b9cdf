// The search for the settings of a kernel, measured where it runs (tune.c says which kernels are,
// and for how long).
//
// The kernel is launched with what it reads in the run, but writes to memory of the tuner, so that
// the run sees nothing of it. From the rule's settings, or those that won before, the search goes
// to the best of the settings that differ in one knob, and on from there as long as one wins. A
// setting has to win two contests against the present best, each by more than the times of either
// vary, and to be right: its results are compared with the rule's. Those that are much slower are
// given up after one launch.
//
// A search from the rule's settings, as it goes for a sum of all of a large tensor:
//
//   the rule           132.8 us    256 threads, four vectors in flight
//   neighbours         unroll 8 116.1, unroll 2 140.2, warps 32 133.0, grid 8 131.9, vector 1 221 (given up), ...
//   unroll 8           116.2 against 132.8, and once more 116.1 against 132.9, and is right: it wins
//   its neighbours     warps 32 116.1, grid 8 116.4, ...: none wins by more than it varies
//   against the rule   116.2, 132.8
//
// and TN_LOG=tune prints
//
//   tenon: tuned FULL (130023424,): 116.2 us, 132.8 us by the rule, 116.1 us next: unroll 8
//
// What has lost is remembered for the process, so that a search that was cut short goes on with the
// rest.
#include "inspect/agreement.h"
#include "inspect/explain.h"
#include "inspect/profile.h"
#include "inspect/tuner.h"
#include "kernel/disk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CANDIDATES = 48,  // most neighbours of a setting
    FINALISTS =
        4  // of those that are measured together that go into contests: those that were fastest once
};

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

static bool loads_from(const tni_kernel *k, int b)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD && k->access[k->ins[i].access].buffer == b) return true;
    return false;
}

// Copies what buffer b had before the kernel, if it reads it, too. Else nothing of that is left: it
// may be the results of the run before, which are right where inputs are the same, and a candidate
// that writes a part of them would look right.
static bool reset_buffer(const trial *t, int b)
{
    tni_text why  = { "" };
    tni_arg  from = elements_at(t, b, t->k->launch.buffer[b]);
    if (!loads_from(t->k->kernel, b))
        return tni_spoil_memory(t->r->cx, t->have[b]->data, (int64_t)t->have[b]->bytes);
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

// Launches the kernel under some settings; false if it cannot be. A candidate is launched as the
// run would launch it, but waits for its compiler, takes scratch of its own, since the run's was
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

// Returns the seconds of one launch, from `n` of them one after the other; INFINITY if it cannot be
// launched. The queue is held until all launches are submitted, so that the time of a short kernel
// is not that of the host.
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

// Whether the results under some settings agree with the rule's, in every buffer that the kernel
// writes.
static bool is_right(trial *t, const tni_tuning *settings)
{
    bool ok = run_fresh(t, settings);
    for (int b = 0; ok && b < t->k->kernel->nbuffer; b++) {
        tn_dtype dt = (tn_dtype)t->k->kernel->buffer[b].dtype;
        if (t->have[b])
            ok = tni_results_agree(t->r->cx, dt, t->have[b]->data, t->want[b]->data, t->count[b],
                                   TNI_COMPARE_PARTS | (t->exact ? TNI_COMPARE_BITS : 0), 0);
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

// A candidate, what the model expects of it and what was measured; best: seconds of the present
// best beside it, 0 if they did not meet; lost: it was slower, or cannot be launched.
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

// The seconds that a candidate is taken to wait for its compiler before it is launched, by those
// before it.
static double wait_of(const trial *t)
{
    const tni_tuner *u = t->r->e->inspect->tuner;
    if (tni_compiles_beside(t->r->e)) return 0;
    return (u->waited + TNI_A_COMPILER) / (u->waits + 1);
}

// Lists the most promising neighbours of a setting for a launch that were not tried yet, the best
// first.
static int list_candidates(const tni_engine *e, const tni_launch *l, const uint64_t key[2],
                           const tni_tuning *from, candidate *c)
{
    tni_tuning  near[CANDIDATES];
    const char *chip  = e->kernels->chip(e->session, e->threads);
    int         count = e->kernels->neighbours(e->session, l, from, near, CANDIDATES), n = 0;
    for (int i = 0; i < count; i++) {
        if (was_tried(e->inspect->tuner, key, &near[i])) continue;
        c[n++] = (candidate){ .settings = near[i],
                              .expected = tni_tuning_expect(chip, l->kernel, &near[i]),
                              .seconds  = INFINITY };
    }
    qsort(c, (size_t)n, sizeof *c, by_expectation);
    return n < TNI_TOGETHER ? n : TNI_TOGETHER;
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

// Measures each neighbour of `from`, which takes `best` seconds, once, as long as there is time.
// GIVEN_UP: one that takes that much longer for its first launch gets no more. A_WAIT: seconds from
// which on a launch has waited for its compiler, which takes several times as long.
static void try_candidates(trial *t, const tni_tuning *from, candidate *c, int n, double best)
{
    enum { GIVEN_UP = 2 };
    const double A_WAIT = 0.02;
    tni_tuner   *u      = t->r->e->inspect->tuner;
    for (int i = 0; i < n && tni_clock_now() < t->until; i++) {
        double begun    = tni_clock_now();
        bool   launched = launch_with(t, &c[i].settings);
        double took     = tni_clock_now() - begun;
        if (took > A_WAIT + GIVEN_UP * t->once) u->waited += took, u->waits++;
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

// Whether a candidate wins two contests and is right, which is asked of those alone that were
// faster: of large results it takes longer to find out. What was measured of it by itself is
// replaced by its time beside the present best.
static bool beats(trial *t, const tni_tuning *best, candidate *c, double us[2])
{
    bool faster = tni_wins(sample, t, best, &c->settings, TNI_CONTESTS, us);
    bool right  = us[1] >= us[0] || is_right(t, &c->settings);
    c->seconds  = right ? 1e-6 * us[1] : INFINITY;
    c->best     = right && isfinite(us[0]) ? 1e-6 * us[0] : 0;
    return faster && right;
}

// Notes the fastest of the candidates, none of which has won, if it is faster than what the present
// best has beaten. Those that seemed to be faster than the present best and did not meet it are
// left out: they may be wrong.
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
    if (next->best > 0) won->us = 1e6 * next->best;  // of the same contest
}

// Goes from *best to the best of the neighbours that were not tried, if one wins; false if there
// are none. won keeps the times. The present best is measured beside them, since the clock of a
// chip changes.
static bool climb(trial *t, tni_tuning *best, tni_tuned *won)
{
    candidate c[CANDIDATES];
    double    us[2] = { 0 }, now = time_launches(t, best, t->repeats);
    int       n = list_candidates(t->r->e, &t->k->launch, t->key, best, c), winner = -1;
    expect_candidates(t, c, n);
    try_candidates(t, best, c, n, now);
    for (int i = 0; i < n && i < FINALISTS && c[i].seconds < now && winner < 0; i++) {
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

// Keeps a winner with its times, which were measured side by side before; the next best may be one
// of those that were tried since.
static void keep_times(tni_tuned *won, const tni_tuned *before)
{
    double next = won->next_us * before->us / won->us;
    if (!(next > 0) || (before->next_us > 0 && before->next_us < next)) next = before->next_us;
    won->settings = before->settings;
    won->us       = before->us;
    won->rule_us  = before->rule_us;
    won->next_us  = next;
}

// The winner meets the rule once more, and both are known from then on. older: it has won in a
// search before.
static void meet_rule(trial *t, const tni_tuning *best, bool older, tni_tuned *won)
{
    static const tni_tuning rule;
    double                  us[2];
    won->settings = *best;
    won->rule_us  = won->us;
    note_tried(t, best);
    note_tried(t, &rule);
    if (!memcmp(best, &rule, sizeof rule)) return;
    bool stays = tni_winner_stays(sample, t, &rule, best, older, us);
    tni_time_again(won, us[1]);
    won->rule_us = us[0];
    if (!stays) won->settings = rule, won->us = us[0], won->next_us = us[1];
}

// Whether there is no time for FEW launches, with which a search has not come far. Where the host
// computes, one of a large kernel takes seconds.
static bool is_too_slow(const trial *t)
{
    enum { FEW = 12 };
    return !tni_compiles_beside(t->r->e) && tni_clock_now() + FEW * t->once > t->until;
}

// Searches from the settings that won before, or the rule's. Where this process has found them, and
// nothing beats them, their times are kept. Returns whether it came to its end.
static bool search(trial *t, tni_tuned_kernel *w)
{
    static const tni_tuning rule;
    tni_tuned               before;
    tni_tuned              *won   = &w->won;
    bool                    found = tni_tuned_find(t->chip, &t->k->launch, &before), more = true;
    tni_tuning              best = found ? before.settings : rule;
    if (memcmp(&best, &rule, sizeof rule) && !is_right(t, &best)) best = rule, found = false;
    time_launches(t, &best, 1);
    t->once = time_launches(t, &best, 1);
    won->us = INFINITY;
    if (is_too_slow(t)) return false;
    t->repeats   = tni_repeats_for(t->r->e, t->once);
    won->us      = 1e6 * time_launches(t, &best, t->repeats);
    won->next_us = 0;
    w->again     = found && was_tried(t->r->e->inspect->tuner, t->key, &best);
    while (more && tni_clock_now() < t->until && tni_search_may_go_on(t->r->e))
        more = climb(t, &best, won);
    bool older     = found && !memcmp(&best, &before.settings, sizeof best);
    w->nothing_new = w->again && older;
    if (w->nothing_new) keep_times(won, &before);
    else meet_rule(t, &best, older, won);
    return !more;
}

// The settings that won before, or the rule's.
static tni_tuning settings_before(const char *chip, const tni_launch *l)
{
    tni_tuned before;
    return tni_tuned_find(chip, l, &before) ? before.settings : (tni_tuning){ { 0 } };
}

// Begins to compile the candidates that a search of a launch, by its key, would measure first.
void tni_search_ahead(const tni_engine *e, const tni_planned_kernel *k, const uint64_t key[2])
{
    candidate  c[CANDIDATES];
    tni_tuning from = settings_before(e->kernels->chip(e->session, e->threads), &k->launch);
    int        n    = list_candidates(e, &k->launch, key, &from, c);
    for (int i = 0; i < n; i++) expect_candidate(e, k->entry, &k->launch, &c[i], false);
}

// ---- the whole ---------------------------------------------------------------------------------

// The name of a kernel, for people.
static void name_kernel(const trial *t, tni_tuned *won)
{
    const tni_kernel *k = t->k->kernel;
    snprintf(won->what, sizeof won->what, "%.5s %.56s", tni_kernel_kind(k),
             tni_shape_text(k->np + k->nr, t->l.size).s);
}

// Measures a kernel and notes the winner, the rule's settings if nothing beats them, for the end of
// the run. False if nothing can be measured.
static bool find_winner(trial *t)
{
    tni_tuner       *u = t->r->e->inspect->tuner;
    tni_tuned_kernel w = { .k = t->k };
    memset(&w.won, 0, sizeof w.won);
    memcpy(w.won.key, t->key, sizeof w.won.key);
    snprintf(w.won.chip, sizeof w.won.chip, "%s", t->chip);
    name_kernel(t, &w.won);
    if (!keep_rule(t)) return false;
    w.ended = search(t, &w);
    if (!isfinite(w.won.us) || !tni_grow(&t->r->cx->heap, (void **)&u->won, &u->winners_cap,
                                         u->winners + 1, sizeof *u->won))
        return false;
    u->won[u->winners++] = w;
    return true;
}

bool tni_search_kernel(const tni_run *r, tni_planned_kernel *k, double until)
{
    trial t;
    bool  ok = open_trial(&t, r, k);
    t.until  = until;
    ok       = ok && find_winner(&t);
    free_trial(&t);
    return ok;
}
