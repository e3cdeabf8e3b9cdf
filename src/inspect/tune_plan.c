// Tuning of plans: what the planner decided by rules about single values (plan/choices.c) is chosen
// otherwise, the graph is planned again, and the plan that wins takes the place of the rule's.
//
// A plan is measured as a whole, since a choice moves work from one kernel to another. Before a
// run, while its graph is open and nothing of it has run, other plans of the graph are run on its
// inputs, with memory of their own. What they overwrite is copied before and put back afterwards,
// so that the run itself sees nothing of it. From the present plan the search goes to the first
// alternative that is right and wins two contests (kernel/tuning.h), and on from there.
// Alternatives are tried in the order of what is expected of them: the share of the plan's bytes
// that they are about, times what their kind did on this chip so far. One that takes twice as long
// is given up after a run.
//
// Results are compared with those of the rule's plan, all that the graph stores. Another order of
// sums may be amplified on the way through a graph: an optimizer that divides by the root of a
// square makes a whole step of a gradient's last bit. So where results differ by more than sums
// may, the graph is run op by op as well, and a plan may differ from the rule's by twice as much as
// that does.
//
// TN_LOG=tune prints
//
//   tenon: tuned plan of 14 steps: 212.4 us, 219.9 us by the rule, 214 us next: store add (64, 512) (recorded at model.c:31)
//   tenon: tuned plan of 14 steps: 9 other plans in 1.83 s, all that there are
#include "inspect/agreement.h"
#include "inspect/host_copy.h"
#include "inspect/profile.h"
#include "inspect/step_facts.h"
#include "inspect/tuner.h"
#include "ops/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALTERNATIVES = 64,  // that are looked at from one plan
    WARM_UPS     = 2,   // runs before a plan is timed: libraries time their algorithms in the first
    HELD         = 400  // launches that are submitted at once, while the device waits
};

void (*tni_tune_spoil_plan)(tni_plan *p);

// An input that a plan overwrites, a copy of it, and whether it was marked as rewritten before.
typedef struct {
    tni_buffer *of, *copy;
    bool        rewritten;
} saved;

// A search for a graph. want, slack: by item, what the rule's plan stored, and how far from it
// another may be.
typedef struct {
    tn_ctx      *cx;
    tni_engine  *e;
    tni_graph   *g;
    const char  *chip;
    tni_limits   limits;
    tni_plan    *rule, *best;
    tni_buffer **want;
    double      *slack;
    bool        *exactly;  // by item: made without sums and library calls, it has the same bits
    bool         exact;    // all items are
    bool         loose;    // slack is known
    bool         refuted;  // the plan that won before gives other results than the rule's
    bool         stopped;  // the program has asked to stop (tn_stop_when)
    saved       *input;
    size_t       inputs, inputs_cap;
    int64_t      bytes;               // that the steps of the rule's plan move
    int          repeats;             // runs of a sample
    int          others;              // plans that were timed
    double       once;                // seconds of one run of the present plan, measured by itself
    double       begun, until, each;  // by the clock; the seconds that an alternative takes
} search;

// ---- inputs that are overwritten ---------------------------------------------------------------

// Describes the bytes of a buffer, for a copy.
static tni_arg bytes_of(const tni_buffer *b)
{
    tni_arg x = { .dtype = TN_U8, .rank = 1, .size = { (int64_t)b->bytes }, .stride = { 1 } };
    x.data    = b->data;
    return x;
}

static bool copy_buffer(const search *s, const tni_buffer *from, const tni_buffer *to)
{
    tni_text why = { "" };
    return tni_arg_copy(s->cx, bytes_of(from), TN_U8, to->data, &why) == TN_OK;
}

// Copies a buffer once. False when memory is out. Until the search ends devices keep nothing that
// they make of it, such as packed weights: its elements change while its node stays the same.
static bool save_buffer(search *s, tni_buffer *b)
{
    for (size_t i = 0; i < s->inputs; i++)
        if (s->input[i].of == b) return true;
    if (!tni_grow(&s->cx->heap, (void **)&s->input, &s->inputs_cap, s->inputs + 1,
                  sizeof *s->input))
        return false;
    tni_buffer *copy = tni_buffer_new(&s->cx->buffers, b->bytes);
    if (!copy || !copy_buffer(s, b, copy)) {
        tni_buffer_unref(&s->cx->buffers, copy);
        return false;
    }
    s->input[s->inputs++] = (saved){ b, copy, b->rewritten };
    b->rewritten          = true;
    return true;
}

// Copies the inputs that a plan overwrites: updates in place, and values that take the memory of an
// input that dies.
static bool save_inputs(search *s, const tni_plan *p)
{
    bool ok = true;
    for (size_t i = 0; ok && i < s->g->count; i++) {
        const tni_place *x     = &p->place[i];
        int64_t          input = -1;
        if (x->where == TNI_INPUT) input = x->root;
        else if (x->where == TNI_OWN && x->root == i && x->donated)
            input = x->donor < 0 ? ~x->donor : (int64_t)p->place[x->donor].root;
        if (input >= 0) ok = save_buffer(s, s->g->input[input].n->buf);
    }
    return ok;
}

// Puts all inputs back that any plan so far has overwritten.
static void restore_inputs(const search *s)
{
    for (size_t i = 0; i < s->inputs; i++) copy_buffer(s, s->input[i].copy, s->input[i].of);
}

// ---- results -----------------------------------------------------------------------------------

// Whether the value of an item is one of the graph's results. What a step assigns is one, though it
// mostly has the memory of what it is assigned from: that is no result itself.
static bool is_result(const tni_run *r, size_t i)
{
    const tni_node *n = r->g->item[i].n;
    return r->g->item[i].why && n->op != TNI_view && r->data[i] && tni_node_count(n) > 0;
}

// Calls `look` with each result of a run, until one returns false.
static bool each_result(search *s, const tni_run *r,
                        bool (*look)(search *s, size_t i, const tni_node *n, char *data))
{
    bool ok = true;
    for (size_t i = 0; ok && i < r->g->count; i++)
        if (is_result(r, i)) ok = look(s, i, r->g->item[i].n, r->data[i]);
    return ok;
}

// Copies a result of the rule's plan, to compare others with it. Copies stay on the device:
// results of a training step are as large as its parameters.
static bool keep_result(search *s, size_t i, const tni_node *n, char *data)
{
    int64_t  count = tni_node_count(n);
    tni_text why   = { "" };
    tni_arg  x     = { .rank = 1, .size = { count }, .stride = { 1 }, .data = data };
    x.dtype        = (tn_dtype)n->dtype;
    size_t size    = s->e->device->memory->element_size(x.dtype);
    s->want[i]     = tni_buffer_new(&s->cx->buffers, (size_t)count * size);
    return s->want[i] && tni_arg_copy(s->cx, x, x.dtype, s->want[i]->data, &why) == TN_OK;
}

// A result that the rule's plan does not have is not compared.
static bool check_result(search *s, size_t i, const tni_node *n, char *data)
{
    return !s->want[i] ||
           tni_results_agree(s->cx, (tn_dtype)n->dtype, data, s->want[i]->data, tni_node_count(n),
                             s->exactly[i] ? TNI_COMPARE_BITS : 0, s->slack[i]);
}

// Notes how far from the rule's a result is that was computed op by op. Twice that is allowed,
// since the rule's own result is as far from the exact one. One that overflows op by op, as squares
// of f16 do, says nothing of other plans.
static bool note_slack(search *s, size_t i, const tni_node *n, char *data)
{
    if (!s->want[i]) return true;
    double d    = tni_results_differ(s->cx, (tn_dtype)n->dtype, data, s->want[i]->data,
                                     tni_node_count(n));
    s->slack[i] = isfinite(2 * d) ? 2 * d : 0;
    return true;
}

// ---- runs --------------------------------------------------------------------------------------

// Makes what a plan does not write look wrong: its memory may still hold the results of another.
static bool spoil_memory(const search *s, const tni_run *r)
{
    bool ok = !r->arena || tni_spoil_memory(s->cx, r->arena->data, (int64_t)r->arena->bytes);
    for (size_t i = 0; ok && i < r->g->count; i++)
        if (r->own[i] && !r->plan->place[i].donated)
            ok = tni_spoil_memory(s->cx, r->own[i]->data, (int64_t)r->own[i]->bytes);
    return ok;
}

// Runs a plan n times on the inputs as they are, and puts these back. *seconds: of one run. look:
// at each result of the last. The device's queue is held until all is submitted, if that is not too
// much, so that the time of a short plan is not the host's.
static bool run_plan(search *s, tni_plan *p, int n, double *seconds,
                     bool (*look)(search *s, size_t i, const tni_node *n, char *data))
{
    tni_run r    = { .cx = s->cx, .e = s->e, .g = s->g, .plan = p };
    bool    ok   = !s->stopped && save_inputs(s, p) && tni_run_take_memory(&r);
    bool    hold = seconds && s->e->events->hold_queue && (int64_t)p->steps * n <= HELD;
    size_t  item;
    if (ok && look) ok = spoil_memory(s, &r);
    if (hold) s->e->events->hold_queue(s->e->session, true);
    tni_time_point from = tni_time_now(s->e);
    for (int i = 0; ok && i < n; i++) {
        ok         = tni_run_submit(s->cx, &r, &item);
        s->stopped = !ok && tni_failed() == TN_ESTOP;
    }
    tni_time_point to = tni_time_now(s->e);
    if (hold) s->e->events->hold_queue(s->e->session, false);
    double all = tni_seconds_between(s->e, from, to);
    if (seconds) *seconds = ok && all > 0 ? all / n : INFINITY;
    if (ok && look) ok = each_result(s, &r, look);
    restore_inputs(s);
    tni_run_release_memory(&r);
    if (!p->runs) p->runs = 1;
    return ok;
}

// A sample of a plan. Memory is taken and released for each, so that two plans never need it at the
// same time.
static double sample(void *arg, const void *plan)
{
    search *s = arg;
    double  seconds;
    return run_plan(s, (tni_plan *)plan, s->repeats, &seconds, NULL) ? seconds : INFINITY;
}

// Finds how far from the rule's results those of the graph are that is run op by op. Its kernels
// are interpreted where they are not compiled, since it runs once.
static bool find_slack(search *s)
{
    tni_limits limits = s->limits;
    limits.fuses      = false;
    limits.takes      = NULL;
    s->loose          = true;
    s->e->watch &= ~(unsigned)TNI_WATCH_TUNES;
    tni_plan *p  = tni_plan_build(s->g, &limits);
    bool      ok = p && tni_prepare(s->g, &p, false) && run_plan(s, p, 1, NULL, note_slack);
    s->e->watch |= TNI_WATCH_TUNES;
    tni_plan_free(&s->cx->heap, p);
    return ok;
}

// Whether a plan stores what the rule's does.
static bool is_right(search *s, tni_plan *p)
{
    if (run_plan(s, p, 1, NULL, check_result)) return true;
    if (s->exact || s->loose || !find_slack(s)) return false;
    return run_plan(s, p, 1, NULL, check_result);
}

// ---- other plans -------------------------------------------------------------------------------

// Builds the plan with some choices, ready to run; NULL if that fails.
static tni_plan *build_with(search *s, const tni_choices *c)
{
    tni_plan *p = tni_plan_again(s->g, c);
    if (p && !tni_prepare(s->g, &p, false)) {
        tni_plan_free(&s->cx->heap, p);
        return NULL;
    }
    if (p && c->n && tni_tune_spoil_plan) tni_tune_spoil_plan(p);
    return p;
}

// Whether two kernels compute the same items from as many buffers: equal seeds in equal order, with
// as many instructions. What was inlined differently has another number of them.
static bool same_kernel(const tni_planned_kernel *a, const tni_planned_kernel *b)
{
    return a->call_item == b->call_item && a->is_prologue == b->is_prologue &&
           a->seeds == b->seeds && !memcmp(a->seed, b->seed, a->seeds * sizeof *a->seed) &&
           a->kernel->nins == b->kernel->nins && a->kernel->nbuffer == b->kernel->nbuffer;
}

// Whether a choice has changed nothing.
static bool same_plan(const tni_plan *a, const tni_plan *b)
{
    if (a->steps != b->steps || a->kernels != b->kernels || a->calls != b->calls) return false;
    for (size_t i = 0; i < a->calls; i++)
        if (a->call[i].call.otherwise != b->call[i].call.otherwise) return false;
    for (size_t i = 0; i < a->steps; i++)
        if (a->step[i] != b->step[i]) return false;
    for (size_t i = 0; i < a->kernels; i++)
        if (!same_kernel(&a->kernel[i], &b->kernel[i])) return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->place[i].pitch != b->place[i].pitch) return false;
    return true;
}

// A plan that is neither the one in the cache nor the rule's belongs to the search.
static void drop_plan(search *s, const tni_plan *cached, tni_plan *p)
{
    if (p && p != cached && p != s->rule && p != s->best) tni_plan_free(&s->cx->heap, p);
}

// ---- the search --------------------------------------------------------------------------------

// The part of the plan's bytes that a choice is about.
static double bytes_share(const search *s, const tni_alternative *a)
{
    return fmin(1, (double)a->bytes / fmax(1, (double)s->bytes));
}

// What a plan is expected to take beside the present one: the part that the choice is about takes
// what such choices did so far.
static double expected_of(const search *s, const tni_alternative *a)
{
    return 1 + bytes_share(s, a) * (tni_choice_expect(s->chip, a->choice.kind) - 1);
}

// Learns what the part did that a choice is about: the whole has changed by `ratio`. Within bounds,
// since a small share makes much of noise.
static void learn_ratio(const search *s, const tni_alternative *a, double ratio)
{
    double share = bytes_share(s, a);
    if (share < 0.02 || !isfinite(ratio)) return;
    tni_choice_learn(s->chip, a->choice.kind, fmin(4, fmax(0.25, 1 + (ratio - 1) / share)));
}

// The alternative that promises most of those that are left; they are in the order of their bytes,
// which decides where nothing is known.
static int most_promising(const search *s, const tni_alternative *a, int n)
{
    int    best  = -1;
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        double x = a[i].choice.where ? expected_of(s, &a[i]) : INFINITY;
        if (x < least) least = x, best = i;
    }
    return best;
}

// The key by which it is remembered that a graph was measured with some choices.
static void key_of(const search *s, const tni_choices *c, uint64_t key[2])
{
    uint64_t word[1 + TNI_CHOICES] = { s->rule->hash };
    for (int i = 0; i < c->n; i++) word[1 + i] = (uint64_t)c->of[i].kind << 32 | c->of[i].where;
    tni_tuned_bytes_key(word, sizeof word, key);
}

// Times a plan; INFINITY if it fails. Given up after a run if that takes more than twice as long as
// one of the present plan. *once: the time of that run, which of a short plan is mostly that of the
// events.
static double time_plan(search *s, tni_plan *p, double *once)
{
    enum { GIVEN_UP = 2 };
    double seconds = INFINITY, first = INFINITY;
    for (int i = 0; i < WARM_UPS; i++)
        if (!run_plan(s, p, 1, NULL, NULL)) return INFINITY;
    if (!run_plan(s, p, 1, &first, NULL) || first > GIVEN_UP * s->once) return first;
    *once = first;
    return run_plan(s, p, s->repeats, &seconds, NULL) ? seconds : INFINITY;
}

// Measures the present plan with one more choice. Whether it wins, and is the present one from now
// on.
static bool try_alternative(search *s, const tni_alternative *a, const tni_plan *cached,
                            tni_tuned *won)
{
    tni_choices c = s->best->choices;
    uint64_t    key[2];
    double      us[2];
    if (c.n == TNI_CHOICES) return false;
    c.of[c.n++] = a->choice;
    key_of(s, &c, key);
    if (tni_was_measured(s->e->inspect->tuner, key)) return false;
    tni_note_measured(s->cx, key);
    tni_plan *p = build_with(s, &c), *before = s->best;
    if (!p || same_plan(p, before)) {
        drop_plan(s, cached, p);
        return false;
    }
    double once = 0, seconds = time_plan(s, p, &once);
    s->others++;
    learn_ratio(s, a, 1e6 * seconds / won->us);
    bool faster = 1e6 * seconds < won->us, right = faster && is_right(s, p);
    bool better = right && tni_wins(sample, s, before, p, TNI_CONTESTS, us);
    if (faster) seconds = right ? 1e-6 * us[1] : INFINITY;  // a wrong plan is not the next best
    if (right) tni_time_again(won, us[0]);
    if (better) {
        s->best      = p;
        s->once      = once;
        won->us      = us[1];
        won->next_us = us[0];
    } else if (isfinite(seconds) && (won->next_us == 0 || 1e6 * seconds < won->next_us)) {
        won->next_us = 1e6 * seconds;
    }
    drop_plan(s, cached, better ? before : p);
    return better;
}

// Whether there is time for another alternative, as far as those before tell.
static bool has_time(const search *s)
{
    return !s->stopped && tni_clock_now() + s->each < s->until;
}

// Goes from the present plan to one that wins; false if none does, or time is up.
static bool climb(search *s, const tni_plan *cached, tni_tuned *won)
{
    tni_alternative a[ALTERNATIVES];
    tni_choose(s->g, &s->best->choices);
    int n = tni_alternatives(s->g, &s->limits, s->best, a, ALTERNATIVES), i;
    while (has_time(s) && (i = most_promising(s, a, n)) >= 0) {
        double begun  = tni_clock_now();
        bool   won_by = try_alternative(s, &a[i], cached, won);
        s->each       = fmax(s->each, tni_clock_now() - begun);
        if (won_by) return true;
        a[i].choice.where = 0;
    }
    return false;
}

// Runs the rule's plan, keeps its results, and times the plan to begin with, which has won before
// or is the rule's. A plan of which there is no time for FEW runs is left: a run of a large one
// takes longer than the whole search may.
static bool begin_search(search *s, tni_tuned *won)
{
    enum { FEW = 12 };
    double since = tni_clock_now();
    if (!run_plan(s, s->rule, 1, NULL, keep_result)) return false;
    if (tni_clock_now() + (FEW - 1) * (tni_clock_now() - since) > s->until) return false;
    s->refuted = s->best != s->rule && !is_right(s, s->best);
    if (s->refuted) s->best = s->rule;
    s->repeats = 1;
    s->once    = INFINITY;
    if (!isfinite(time_plan(s, s->best, &s->once))) return false;
    s->repeats = tni_repeats_for(s->e, s->once);
    if (s->repeats > 1 && (int64_t)s->repeats * (int64_t)s->best->steps > HELD)
        s->repeats = 1 + HELD / 2 / (int)s->best->steps;
    won->us = 1e6 * time_plan(s, s->best, &s->once);
    return isfinite(won->us);
}

// The winner meets the rule's plan once more.
static void end_search(search *s, const tni_plan *cached, tni_tuned *won)
{
    double    us[2];
    tni_plan *lost = s->best;
    won->rule_us   = won->us;
    if (s->best == s->rule) return;
    bool stays = tni_winner_stays(sample, s, s->rule, s->best, s->best == cached, us);
    tni_time_again(won, us[1]);
    won->rule_us = us[0];
    if (stays) return;
    won->us      = us[0];
    won->next_us = us[1];
    s->best      = s->rule;
    drop_plan(s, cached, lost);
}

// ---- what was chosen, in words -----------------------------------------------------------------

// Adds "cut sum (64,) (recorded at model.c:12)", and how many more values the choice is about.
static void add_choice(const tni_graph *g, const tni_choice *c, tni_text *to)
{
    const tni_node *first = NULL;
    int             more  = 0;
    for (size_t i = 0; i < g->count; i++) {
        if (tni_choice_where(g, i) != c->where) continue;
        more += first != NULL;
        if (!first) first = g->item[i].n;
    }
    if (!first) return;
    tni_text_add(to, "%s%s %s %s%s", *to->s ? ", " : "", tni_choice_name(c->kind),
                 tni_node_name(first).s, tni_shape_text(first->rank, first->size).s,
                 tni_node_line(first).s);
    if (more) tni_text_add(to, " and %d alike", more);
}

// NAMED: as many as a line has room for.
tni_text tni_choices_text(const tni_graph *g, const tni_choices *c)
{
    enum { NAMED = 2 };
    tni_text s = { "" };
    for (int i = 0; i < c->n && i < NAMED; i++) add_choice(g, &c->of[i], &s);
    if (c->n > NAMED) tni_text_add(&s, ", and %d more", c->n - NAMED);
    return *s.s ? s : tni_text_of("as the rule says");
}

// ---- the whole ---------------------------------------------------------------------------------

// Whether a node calls a function of a user, by itself or in the body of a loop.
static bool calls_user(const tni_node *n)
{
    if (n->op != TNI_loop) return n->op == TNI_custom;
    const tni_loop *l = n->attr.loop.body;
    for (size_t i = 0; i < l->count; i++)
        if (calls_user(l->node[i])) return true;
    return false;
}

// Whether a graph can be run several times unnoticed: no other rank waits, and no function of a
// user is called.
static bool can_run_again(const tni_graph *g, const tni_plan *p)
{
    if (g->cx->world || p->collectives || p->unfused || !p->key_bytes || !p->steps) return false;
    for (size_t i = 0; i < g->count; i++)
        if (calls_user(g->item[i].n)) return false;
    return true;
}

// Whether a value has the same bits in whatever plan: no kernel that the planner writes sums on the
// way to it, and no library computes. Scans and scatters add up in an order that no plan changes.
// What it is made from are earlier items.
static bool is_exact(const search *s, const tni_node *n)
{
    const tni_op_facts *op    = &tni_op_table[n->op];
    bool                exact = op->fuse != TNI_FUSE_FOLD && op->class != TNI_LIBRARY;
    for (uint32_t i = 0; exact && i < n->nsrc; i++)
        if (n->src[i]->state == TNI_PENDING) exact = s->exactly[n->src[i]->mark - 1];
    return exact;
}

// Finds what a search needs to know of its graph. False when memory is out.
static bool open_search(search *s, tni_graph *g, tni_plan *p)
{
    tni_heap *h = &g->cx->heap;
    *s          = (search){ .cx = g->cx, .e = g->cx->engine, .g = g, .best = p, .exact = true };
    s->limits   = tni_limits_of(s->e);
    s->chip     = s->limits.chip;
    s->rule     = p;
    s->want     = tni_zalloc(h, g->count * sizeof *s->want + 1);
    s->slack    = tni_zalloc(h, g->count * sizeof *s->slack + 1);
    s->exactly  = tni_zalloc(h, g->count * sizeof *s->exactly + 1);
    for (size_t i = 0; i < g->count; i++) {
        if (s->exactly) s->exactly[i] = is_exact(s, g->item[i].n);
        s->exact &= s->exactly && s->exactly[i];
        g->item[i].partition = p->partition ? p->partition[i] : 0;
    }
    for (size_t t = 0; t < p->steps; t++) s->bytes += tni_step_bytes(g, p, p->step[t]);
    if (!s->want || !s->slack || !s->exactly) return false;
    if (p->choices.n) s->rule = build_with(s, &(tni_choices){ .n = 0 });
    return s->rule != NULL;
}

// Gives back the memory of results and inputs; plans belong to others by now.
static void close_search(search *s)
{
    tni_heap *h = &s->cx->heap;
    for (size_t i = 0; s->want && i < s->g->count; i++)
        tni_buffer_unref(&s->cx->buffers, s->want[i]);
    for (size_t i = 0; i < s->inputs; i++) {
        s->input[i].of->rewritten = s->input[i].rewritten;
        tni_buffer_unref(&s->cx->buffers, s->input[i].copy);
    }
    tni_free(h, s->input);
    tni_free(h, s->want);
    tni_free(h, s->slack);
    tni_free(h, s->exactly);
}

// Lets the winner take the place of *p, and keeps its choices. Where there was nothing to choose,
// there is nothing to keep.
static void keep_winner(search *s, tni_plan **p, tni_tuned *won, bool ended)
{
    tni_plan *old = *p;
    tni_tuned before;
    if (!s->others && s->best == old && !old->choices.n) return;
    snprintf(won->chip, sizeof won->chip, "%s", s->chip);
    snprintf(won->what, sizeof won->what, "plan of %zu step%s", s->best->steps,
             s->best->steps == 1 ? "" : "s");
    won->choices = s->best->choices;
    tni_tuned_bytes_key(old->key, old->key_bytes, won->key);
    bool again = old->choosing && tni_tuned_find_bytes(s->chip, old->key, old->key_bytes, &before);
    tni_tuned_keep(won);
    tni_log_winner(s->e->inspect->tuner, won, again ? &before : NULL,
                   tni_choices_text(s->g, &won->choices).s);
    if (s->e->inspect->tuner->log)
        fprintf(stderr, "tenon: tuned %s: %d other plan%s in %.3g s, %s\n", won->what, s->others,
                s->others == 1 ? "" : "s", tni_clock_now() - s->begun,
                ended ? "all that there are" : "others are left");
    if (s->rule != old && s->rule != s->best) tni_plan_free(&s->cx->heap, s->rule);
    if (s->best == old) return;
    s->best->spills_checked = true;  // it was measured as it is
    tni_plans_replace(&s->e->plans, &s->cx->heap, old, s->best);
    *p = s->best;
}

// Frees the plans of a search that came to nothing. *p stays, unless its results are known to be
// wrong.
static void give_up(search *s, tni_plan **p)
{
    tni_heap *h = &s->cx->heap;
    if (s->best != *p && s->best != s->rule) tni_plan_free(h, s->best);
    if (s->refuted) {
        s->rule->chosen = true;
        tni_plans_replace(&s->e->plans, h, *p, s->rule);
        *p = s->rule;
    } else if (s->rule != *p) tni_plan_free(h, s->rule);
}

// An alternative is taken to need the seconds of a compiler, before one is measured: most of its
// time goes to that of its kernels. A quarter of the time that is left, and a minute at most, as
// for a run: the kernels of the plan that wins are measured, too, and a search that was cut short
// goes on behind them. What fails leaves the plan as it is, and is not reported; but a program that
// asks to stop while others are measured is not asked again. Counts of plans and launches are those
// of the program.
bool tni_plan_tunes(tni_graph *g, tni_plan **p)
{
    tn_ctx    *cx     = g->cx;
    tni_errors before = tni_errors_now(cx);
    int64_t    plans = cx->stats.plans, launches = cx->stats.launches;
    double     begun = tni_clock_now();
    search     s;
    tni_tuned  won = { .us = 0 };
    if ((*p)->chosen || ((*p)->choosing && !(*p)->measured) || !tni_tuner_of(cx)) return true;
    (*p)->chosen                      = true;
    cx->engine->inspect->tuner->share = 0;  // runs of other plans measure no kernels
    if (!can_run_again(g, *p)) return true;
    bool ok = open_search(&s, g, *p);
    s.begun = begun;
    s.until = begun + fmin(TNI_A_MINUTE, cx->engine->tune_seconds / 4);
    s.each  = TNI_A_COMPILER;
    ok      = ok && begin_search(&s, &won);
    if (ok) {
        bool any = has_time(&s);
        while (climb(&s, *p, &won)) continue;
        bool ended = has_time(&s);
        end_search(&s, *p, &won);
        ok = !s.stopped;
        if (ok) keep_winner(&s, p, &won, ended);
        (*p)->chosen   = ended || !any;
        (*p)->choosing = true;
    }
    if (!ok) give_up(&s, p);
    if (s.stopped) (*p)->chosen = false;
    tni_choose(g, &(*p)->choices);
    close_search(&s);
    if (!s.stopped) tni_errors_return(cx, &before);
    cx->stats.plans    = plans;
    cx->stats.launches = launches;
    cx->engine->tune_seconds -= tni_clock_now() - begun;
    return !s.stopped;
}
