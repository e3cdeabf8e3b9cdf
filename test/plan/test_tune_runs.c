// test_tune_runs.c: kernels are measured while a program runs: its results stay what they are, a
// setting which gives other results never wins, however fast it is, and little time goes to what
// promises most.
#include "tune_kit.h"

#include "device/device.h"
#include "inspect/agreement.h"
#include "inspect/profile.h"
#include "inspect/tuner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <tenon/models.h>
#include <unistd.h>

enum { ROWS = 96, MANY_ROWS = 4096, COLS = 257, STEPS = 8 };

// A small computation with a map, rows and columns, which updates w in place.
static void record_step(tn_tensor *x, tn_tensor *w)
{
    tn_tensor *y = tn_tanh(tn_mul(x, w));
    tn_assign(w, tn_add_s(tn_mul_s(tn_mean(y, 0), 0.5), 0.01));
    tn_want(tn_softmax(x, -1));
}

// Steps of it; the last result goes to y.
static void run_steps(tn_ctx *cx, int64_t rows, float *y)
{
    tn_seed(cx, 1);
    tn_tensor *x = tn_randn(cx, TN_F32, 2, (int64_t[]){ rows, COLS });
    tn_tensor *w = tn_randn(cx, TN_F32, 1, (int64_t[]){ COLS });
    tn_eval(cx);
    for (int i = 0; i < STEPS; i++) {
        tn_scope *s = tn_begin(cx);
        record_step(x, w);
        tn_eval(cx);
        tn_end(s);
    }
    CHECK(tn_read(w, TN_F32, y, COLS) == TN_OK);
    CHECK(tn_error(cx) == TN_OK);
}

static void tuned_runs_give_the_results_of_rules(void)
{
    float   want[COLS], have[COLS];
    tn_ctx *cx = tune_open();
    tune_begin("runs");
    run_steps(cx, ROWS, want);
    CHECK(tn_tune(cx, 1) == TN_OK);
    run_steps(cx, ROWS, have);
    CHECK(cx->engine->tune_seconds < 1);
    run_steps(cx, ROWS, have);
    for (int i = 0; i < COLS; i++) CHECK_NEAR(have[i], want[i], 1e-5 * fabs(want[i]) + 1e-7);
    tn_close(cx);
    tune_end();
}

// The candidates in the order in which they were launched, one after the other: the key of what was
// launched, since a kernel may lie where one of another plan lay before; run: of the program.
static struct {
    uint64_t   key[2];
    tni_tuning settings;
    int        run;
} launched[256];
static int launches, this_run;

// Notes a candidate, and makes it slow.
static void note_launch(tni_launch *l)
{
    enum { MOST = sizeof launched / sizeof *launched };
    uint64_t key[2];
    usleep(5000);
    tni_tuned_key(l, key);
    if (launches && !memcmp(launched[launches - 1].key, key, sizeof key) &&
        !memcmp(&launched[launches - 1].settings, l->tuning, sizeof *l->tuning))
        return;
    if (launches == MOST) return;
    memcpy(launched[launches].key, key, sizeof key);
    launched[launches].settings = *l->tuning;
    launched[launches++].run    = this_run;
}

// Whether a candidate of the list was launched before.
static bool was_launched_before(int at)
{
    for (int i = 0; i < at; i++)
        if (!memcmp(launched[i].key, launched[at].key, sizeof launched[i].key) &&
            !memcmp(&launched[i].settings, &launched[at].settings, sizeof launched[i].settings))
            return true;
    return false;
}

// With little time in each of several runs.
static void a_search_goes_on_where_it_was_cut_short(void)
{
    tn_ctx *cx = rules_open("cpu");
    tune_begin("goes_on");
    launches       = 0;
    tni_tune_spoil = note_launch;
    tn_tensor *x   = tn_randn(cx, TN_F32, 2, (int64_t[]){ MANY_ROWS, COLS });
    tn_tensor *w   = tn_randn(cx, TN_F32, 1, (int64_t[]){ COLS });
    tn_eval(cx);
    for (this_run = 0; this_run < 12; this_run++) {
        tn_scope *s = tn_begin(cx);
        record_step(x, w);
        CHECK(tn_tune(cx, 1) == TN_OK);
        tn_eval(cx);
        tn_end(s);
    }
    tni_tune_spoil = NULL;
    int runs       = 0;
    for (int i = 0; i < launches; i++) {
        runs += !i || launched[i].run != launched[i - 1].run;
        test_case_result(!was_launched_before(i), "candidate %d of run %d was measured before: %s",
                         i, launched[i].run, tni_tuning_text(&launched[i].settings).s);
    }
    CHECK(runs > 1);
    tn_close(cx);
    tune_end();
}

// The candidates of a kernel of 16 Mi elements that were launched in steps with a budget. A tenth
// of a second has no time for a dozen launches of it by one thread.
static int launches_in(tn_ctx *cx, tn_tensor *x, double budget)
{
    launches = 0;
    CHECK(tn_tune(cx, budget) == TN_OK);
    for (int i = 0; i < STEPS; i++) {
        tn_scope *s = tn_begin(cx);
        tn_want(tn_softmax(tn_tanh(x), -1));
        CHECK(tn_eval(cx) == TN_OK);
        tn_end(s);
    }
    return launches;
}

static void what_was_too_slow_for_a_budget_is_measured_in_a_larger_one(void)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .threads = 1 });
    tune_begin("too_slow");
    tn_tensor *x = tn_randn(cx, TN_F32, 2, (int64_t[]){ 4096, 4096 });
    CHECK(tn_eval(cx) == TN_OK);
    tni_tune_spoil = note_launch;
    CHECK_INT(launches_in(cx, x, 0.1), 0);
    CHECK(launches_in(cx, x, 4) > 0);
    tni_tune_spoil = NULL;
    tn_close(cx);
    tune_end();
}

typedef struct {
    tn_ctx *cx;
    int     tokens;
} tuned_text;

// Asks for measuring in the middle of a text.
static bool tune_at_token_20(int row, int64_t token, void *user)
{
    tuned_text *t = user;
    (void)row, (void)token;
    if (++t->tokens == 20) CHECK_STATUS(tn_tune(t->cx, 1), TN_OK);
    return true;
}

// Steps that are repeated without a look at their plan are looked at again.
static void a_budget_counts_in_the_middle_of_a_text(void)
{
    enum { TOKENS = 60, LENGTH = 64 };
    tn_ctx *cx = rules_open("cpu");
    tune_begin("tokens");
    tn_gpt2_opts small = { .layers = 1, .heads = 2, .width = 16, .vocab = 50, .context = LENGTH };
    tn_layer    *net   = tn_gpt2(cx, small);
    tuned_text   text  = { cx, 0 };
    int64_t      one   = 3, ids[TOKENS], n;
    tn_generate_opts o = {
        .max_tokens = TOKENS, .length = LENGTH, .on_token = tune_at_token_20, .user = &text
    };
    const tn_tokens prompt = { &one, 1 };
    CHECK_STATUS(tn_generate(net, 1, &prompt, o, ids, &n), TN_OK);
    CHECK_INT(n, TOKENS);
    CHECK(cx->engine->tune_seconds < 1);
    CHECK(tune_is_over(cx));
    tn_close(cx);
    tune_end();
}

static int begun_now, begun_ahead;

static void count_begun(void *session, void *entry, const tni_launch *l, bool now)
{
    (void)session, (void)entry, (void)l;
    *(now ? &begun_now : &begun_ahead) += 1;
}

// Counts the compilers that tuning begins, instead of beginning them.
static void count_compilers(tn_ctx *cx, tni_device_kernels *counted)
{
    *counted            = *cx->engine->kernels;
    counted->expect     = count_begun;
    cx->engine->kernels = counted;
    begun_now = begun_ahead = 0;
}

// Where the host computes, launches wait for all that is being compiled: candidates that are begun
// without the time for them would make a short budget as long as the compiler takes for all, and
// none is begun for a kernel that is not measured yet.
static void little_time_begins_no_compilers(void)
{
    float              y[COLS];
    tn_ctx            *cx = rules_open("cpu");
    tni_device_kernels counted;
    tune_begin("little");
    count_compilers(cx, &counted);
    CHECK(tn_tune(cx, 0.06) == TN_OK);
    run_steps(cx, ROWS, y);
    CHECK_INT(begun_now, 0);
    CHECK(tn_tune(cx, 4) == TN_OK);
    run_steps(cx, MANY_ROWS, y);
    CHECK(begun_now > 0);
    CHECK_INT(begun_ahead, 0);
    tn_close(cx);
    tune_end();
}

// Three steps: a softmax and a map, and sums between them that no kernel takes in.
static void run_several_kernels(tn_ctx *cx)
{
    tn_tensor *x = tn_want(tn_randn(cx, TN_F32, 2, (int64_t[]){ ROWS, ROWS }));
    tn_eval(cx);
    for (int run = 0; run < 2; run++) {
        tn_scope *s = tn_begin(cx);
        tn_want(tn_tanh(tn_cumsum(tn_softmax(x, -1), 0)));
        tn_eval(cx);
        tn_end(s);
    }
}

static int64_t note_time(void *session)
{
    (void)session;
    return (int64_t)(1e9 * tni_clock_now());
}

static double elapsed(void *session, int64_t from, int64_t to)
{
    (void)session;
    return 1e-9 * (double)(to - from);
}

// Elsewhere, which is where the device has timing events, the candidates of later kernels are
// compiled while earlier ones are measured. The cpu is such a device for this test.
static void later_kernels_are_compiled_while_others_are_measured(void)
{
    tn_ctx            *cx = rules_open("cpu");
    tni_device_kernels counted;
    tni_device_events  events = *cx->engine->events;
    events.event_record       = note_time;
    events.event_elapsed      = elapsed;
    cx->engine->events        = &events;
    tune_begin("ahead");
    count_compilers(cx, &counted);
    CHECK(tn_tune(cx, 20) == TN_OK);
    run_several_kernels(cx);
    CHECK(begun_now > 0);
    CHECK(begun_ahead > 0);
    tn_close(cx);
    tune_end();
}

// The winners of a folder among kernels that are not the rule's settings, and all of them.
static int count_winners(int *all)
{
    char     path[1024], line[600], settings[128];
    tni_text why;
    int      other = 0;
    snprintf(path, sizeof path, "%s", scratch_path("count.txt"));
    CHECK(tni_tuned_export(path, all, &why));
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strstr(line, "plan_of") &&
            sscanf(line, "winner %*s %*s %*s %*s %*s %127s", settings) == 1)
            other += strcmp(settings, "-") != 0;
    if (f) fclose(f);
    return other;
}

static void softmax_and_sum(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    carry[0] = tn_cumsum(tn_softmax(tn_add(carry[0], x[0]), -1), 0);
    y[0]     = tn_tanh(tn_mul_s(carry[0], 0.1));
}

// Kernels of a loop's body are in no list of the plan that runs.
static void kernels_of_loops_are_measured_to_the_end(void)
{
    enum { RUNS = 40, T = 3 };
    tn_ctx *cx  = rules_open("cpu");
    int     all = 0, at = 0;
    tune_begin("loops");
    tn_tensor *x = tn_want(tn_randn(cx, TN_F32, 3, (int64_t[]){ T, ROWS, ROWS }));
    tn_eval(cx);
    CHECK(tn_tune(cx, 60) == TN_OK);
    const tni_plan *p = NULL;
    for (; at < RUNS && !(p && p->measured); at++) {
        tn_scope  *s     = tn_begin(cx);
        tn_tensor *carry = tn_zeros(cx, TN_F32, TN_SHAPE(ROWS, ROWS)), *y = NULL;
        CHECK(tn_scan(softmax_and_sum, NULL, 1, &carry, 1, &x, 1, &y, (tn_scan_opts){ 0 }) ==
              TN_OK);
        tn_want(tn_exp(carry));
        tn_want(y);
        tn_eval(cx);
        tn_end(s);
        for (int i = 0; i < cx->engine->plans.count; i++)
            if (!cx->engine->plans.plan[i]->recurs) p = cx->engine->plans.plan[i];
    }
    count_winners(&all);
    test_case_result(p && p->measured, "after %d runs there is still something to measure", at);
    test_case_result(all >= 3, "%d winners", all);
    tn_close(cx);
    tune_end();
}

// Three softmaxes with sums between them that no kernel takes in, so that the same kernel runs
// three times: it is measured once, for all three, and nothing is left of what they move.
static void kernels_of_many_layers_share_a_search(void)
{
    tn_ctx *cx = tune_open();
    tune_begin("layers");
    tn_tensor *w = tn_want(tn_randn(cx, TN_F32, 2, (int64_t[]){ ROWS, ROWS })), *x = w;
    tn_eval(cx);
    CHECK(tn_tune(cx, 0.5) == TN_OK);
    for (int run = 0; run < 2; run++) {
        tn_scope *s = tn_begin(cx);
        x           = w;
        for (int layer = 0; layer < 3; layer++) x = tn_softmax(tn_cumsum(x, 0), -1);
        tn_want(x);
        tn_eval(cx);
        tn_end(s);
    }
    const tni_tuner *u = cx->engine->inspect->tuner;
    CHECK(u != NULL);
    if (u) CHECK_INT(u->bytes, 0);
    CHECK(cx->engine->tune_seconds < 0.5);
    tn_close(cx);
    tune_end();
}

// Half of the work, which is fast and wrong.
static void do_half(tni_launch *l)
{
    l->size[0] /= 2;
}

static void a_wrong_candidate_never_wins(void)
{
    float   y[COLS];
    int     all = 0;
    tn_ctx *cx  = tune_open();
    tune_begin("wrong");
    tni_tune_spoil = do_half;
    CHECK(tn_tune(cx, 2) == TN_OK);
    run_steps(cx, MANY_ROWS, y);
    tni_tune_spoil = NULL;
    int other      = count_winners(&all);
    test_case_result(!cx->engine->kernels->neighbours || (all > 0 && other == 0),
                     "%d of %d winners give other results", other, all);
    CHECK_INT(tune_next_faster(false), 0);
    tn_close(cx);
    tune_end();
}

// Of the same input the memory of a result holds the same numbers from the run before: what a wrong
// candidate leaves out would look right if it saw them.
static void results_of_the_run_before_prove_nothing(void)
{
    int     all = 0;
    tn_ctx *cx  = tune_open();
    tune_begin("stale");
    tn_tensor *x = tn_want(tn_randn(cx, TN_F32, 2, (int64_t[]){ MANY_ROWS, COLS }));
    tn_eval(cx);
    tni_tune_spoil = do_half;
    CHECK(tn_tune(cx, 4) == TN_OK);
    for (int run = 0; run < 8; run++) {
        tn_scope *s = tn_begin(cx);
        tn_want(tn_softmax(x, -1));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
    }
    tni_tune_spoil = NULL;
    int other      = count_winners(&all);
    test_case_result(!cx->engine->kernels->neighbours || (all > 0 && other == 0),
                     "%d of %d winners give other results", other, all);
    tn_close(cx);
    tune_end();
}

static void body_of_many_nodes(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    tn_tensor *z = tn_cumsum(tn_softmax(tn_add(carry[0], x[0]), -1), 0);
    for (int i = 0; i < TNI_PLAN_NODES + 1000; i++) z = tn_mul_s(z, 1.0 + 1e-6 * (i & 1));
    carry[0] = z;
    y[0]     = tn_tanh(tn_mul_s(z, 0.1));
}

// The plan of a body that is too large to be kept is gone when its loop has run.
static void kernels_of_bodies_that_are_not_kept_are_left(void)
{
    enum { T = 2, SIDE = 8 };
    tn_ctx *cx = rules_open("cpu");
    tune_begin("large");
    tn_tensor *x = tn_want(tn_randn(cx, TN_F32, 3, (int64_t[]){ T, SIDE, SIDE }));
    tn_eval(cx);
    CHECK(tn_tune(cx, 5) == TN_OK);
    for (int run = 0; run < 2; run++) {
        tn_scope  *s     = tn_begin(cx);
        tn_tensor *carry = tn_zeros(cx, TN_F32, TN_SHAPE(SIDE, SIDE)), *y = NULL;
        CHECK_STATUS(
            tn_scan(body_of_many_nodes, NULL, 1, &carry, 1, &x, 1, &y, (tn_scan_opts){ 0 }), TN_OK);
        tn_want(tn_exp(carry));
        tn_want(y);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
    }
    tn_close(cx);
    tune_end();
}

// Results of sums agree within a part of their size, which of an infinity is everything.
static void infinities_agree_with_themselves_alone(void)
{
    static const struct {
        float have, want;
        bool  agree;
    } row[] = {
        { INFINITY, INFINITY, true }, { -INFINITY, INFINITY, false }, { 1, INFINITY, false },
        { INFINITY, 1, false },       { NAN, INFINITY, false },       { 1, 1.000001f, true },
    };
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        float have[2] = { 1, row[i].have }, want[2] = { 1, row[i].want };
        bool  agree = tni_results_agree(cx, TN_F32, (char *)have, (char *)want, 2, 0, 0);
        test_case_result(agree == row[i].agree, "%g and %g", have[1], want[1]);
        agree = tni_results_agree(cx, TN_F32, (char *)have, (char *)want, 2, 0, INFINITY);
        test_case_result(agree || !row[i].agree, "%g and %g, if all may differ", have[1], want[1]);
    }
    float one = 1, none = NAN;
    CHECK(!tni_results_agree(cx, TN_F32, (char *)&none, (char *)&one, 1, 0, INFINITY));
    tn_close(cx);
}

// Whether two results of n ones agree where one of them has another value at an element.
static bool agree_but_at(tn_ctx *cx, float *have, const float *want, int64_t n, int64_t at,
                         unsigned how)
{
    have[at]  = 1.5f;
    bool same = tni_results_agree(cx, TN_F32, (char *)have, (const char *)want, n, how, 0);
    if (!same && !how)
        CHECK_NEAR(tni_results_differ(cx, TN_F32, (char *)have, (const char *)want, n), 0.5, 0);
    have[at] = 1;
    return same;
}

// A result is compared by pieces of a million elements, and if it is very large and parts are
// enough by 32 of them, the first and the last among them.
static void results_of_many_pieces_are_compared(void)
{
    enum { PIECE = 1 << 20, SOME = 3 * PIECE + 5, LARGE = 41 * PIECE + 1 };
    tn_ctx *cx   = rules_open("cpu");
    float  *have = malloc(LARGE * sizeof *have), *want = malloc(LARGE * sizeof *want);
    if (!CHECK(have && want)) return;
    for (int64_t i = 0; i < LARGE; i++) have[i] = want[i] = 1;
    static const int64_t at[] = { 0, PIECE - 1, PIECE, 2 * PIECE + 7, 3 * PIECE, SOME - 1 };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        CHECK(!agree_but_at(cx, have, want, SOME, at[i], i % 2 ? TNI_COMPARE_PARTS : 0));
    CHECK(!agree_but_at(cx, have, want, LARGE, 0, TNI_COMPARE_PARTS));
    CHECK(!agree_but_at(cx, have, want, LARGE, LARGE - 1, TNI_COMPARE_PARTS));
    int missed = 0;
    for (int piece = 10; piece < 20; piece++)
        missed += agree_but_at(cx, have, want, LARGE, (int64_t)piece * PIECE + 9,
                               TNI_COMPARE_PARTS);
    CHECK(missed > 0 && missed < 5);
    for (int piece = 10; piece < 20; piece += 3) {
        int64_t within = (int64_t)piece * PIECE + 9;
        CHECK(!agree_but_at(cx, have, want, LARGE, within, 0));
        CHECK(!agree_but_at(cx, have, want, LARGE, within, TNI_COMPARE_PARTS | TNI_COMPARE_BITS));
    }
    // A small number at the end is compared beside the large ones before it.
    have[LARGE - 1] = 1.0e-7f, want[LARGE - 1] = 1.1e-7f;
    CHECK(tni_results_agree(cx, TN_F32, (char *)have, (char *)want, LARGE, 0, 0));
    free(have);
    free(want);
    tn_close(cx);
}

static void explain_says_what_was_measured(void)
{
    float   y[COLS];
    char   *text = NULL;
    size_t  bytes;
    tn_ctx *cx = tune_open();
    tune_begin("explain");
    tn_tune(cx, 1);
    run_steps(cx, ROWS, y);
    tn_tensor *x = tn_randn(cx, TN_F32, 2, (int64_t[]){ ROWS, COLS });
    tn_tensor *w = tn_randn(cx, TN_F32, 1, (int64_t[]){ COLS });
    tn_eval(cx);
    tn_scope *s = tn_begin(cx);
    record_step(x, w);
    FILE *f = open_memstream(&text, &bytes);
    tn_explain(cx, f);
    fclose(f);
    if (cx->engine->kernels->neighbours)
        test_case_result(strstr(text, "tuned: ") && strstr(text, "s by the rule"),
                         "explain does not say what was measured:\n%s", text);
    free(text);
    tn_end(s);
    tn_close(cx);
    tune_end();
}

// ---- library calls that search -----------------------------------------------------------------

// What a device's product was asked and did. quiet: how many of the first searches find nothing to
// do; short_of_time: how many of those after them have to go on in another run.
static struct {
    int asked, quiet, short_of_time, runs;
} product;

// The product of the cpu, which searches if it is asked to: it takes memory, and finds that the
// rule is right.
static tn_status search_and_run(const tni_call *c)
{
    tni_call_search *s   = c->search;
    tni_tuned        won = { .key = { 1, (uint64_t)c->out.size[0] }, .us = 2, .rule_us = 2 };
    char            *data;
    product.runs++;
    if (!s) return tni_device_cpu.calls->of_op[TNI_matmul].run(c);
    product.asked++;
    s->end = product.quiet-- > 0           ? TNI_SEARCHED_NOTHING
             : product.short_of_time-- > 0 ? TNI_SEARCH_LEFT
                                           : TNI_SEARCHED_ALL;
    CHECK(s->may_go_on(s->arg));
    void *memory = s->take(s->arg, 1 << 12, &data);
    if (CHECK(memory && data)) {
        memset(data, 0, 1 << 12);
        CHECK(s->agree(s->arg, TN_F32, data, data + (1 << 11), 1 << 9));
        data[1 << 11] = 1, data[(1 << 11) + 3] = 0x40;
        CHECK(!s->agree(s->arg, TN_F32, data, data + (1 << 11), 1 << 9));
    }
    s->give(s->arg, memory);
    snprintf(won.chip, sizeof won.chip, "chip");
    snprintf(won.what, sizeof won.what, "product");
    if (s->end == TNI_SEARCHED_ALL) s->found(s->arg, &won, NULL, "as it was");
    return tni_device_cpu.calls->of_op[TNI_matmul].run(c);
}

static bool nothing_tuned(const tni_call *c, tni_tuned *won, tni_text *with)
{
    (void)c, (void)won, (void)with;
    return false;
}

// A cpu whose products search.
static tn_ctx *open_searching(void)
{
    static tni_device_calls calls;
    static tni_device       device;
    tn_ctx                 *cx         = rules_open("cpu");
    calls                              = *tni_device_cpu.calls;
    device                             = tni_device_cpu;
    device.calls                       = &calls;
    calls.takes                        = NULL;
    calls.of_op[TNI_matmul].run        = search_and_run;
    calls.of_op[TNI_matmul].run_nofail = NULL;
    calls.of_op[TNI_matmul].tuned      = nothing_tuned;
    if (cx) tni_engine_use(cx, &device);
    return cx;
}

// Two equal products and another one, a few times.
static void run_products(tn_ctx *cx, int times)
{
    tn_tensor *x = tn_randn(cx, TN_F32, 2, (int64_t[]){ ROWS, COLS });
    tn_tensor *w = tn_randn(cx, TN_F32, 2, (int64_t[]){ COLS, COLS });
    tn_eval(cx);
    for (int i = 0; i < times; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = tn_matmul(tn_matmul(tn_matmul(x, w), w), tn_transpose(x, 0, 1));
        CHECK(tn_eval_of(y) == TN_OK);
        tn_end(s);
    }
    CHECK_STATUS(tn_error(cx), TN_OK);
}

// Equal calls once, and not again, in a run that tunes alone.
static void library_calls_search_once_for_each_form(void)
{
    tn_ctx *cx = open_searching();
    tune_begin("calls");
    memset(&product, 0, sizeof product);
    run_products(cx, 2);
    CHECK_INT(product.asked, 0);
    CHECK(tn_tune(cx, 5) == TN_OK);
    run_products(cx, 6);
    CHECK_INT(product.asked, 2);
    CHECK(tn_tune(cx, 5) == TN_OK);
    run_products(cx, 2);
    CHECK_INT(product.asked, 2);
    tn_close(cx);
    tune_end();
}

// A search that is cut short goes on in another run; one that could not be is done by the next call
// of its form.
static void a_call_is_asked_until_it_has_searched(void)
{
    tn_ctx *cx = open_searching();
    tune_begin("cut");
    memset(&product, 0, sizeof product);
    product.short_of_time = 3;
    CHECK(tn_tune(cx, 5) == TN_OK);
    run_products(cx, 12);
    CHECK_INT(product.asked, 5);
    tn_close(cx);
    cx = open_searching();
    memset(&product, 0, sizeof product);
    product.quiet = 1;
    CHECK(tn_tune(cx, 5) == TN_OK);
    run_products(cx, 2);
    CHECK_INT(product.asked, 3);
    tn_close(cx);
    tune_end();
}

// Calls that have nothing to search leave their time to others, and those that are cut short for
// ever are given up: the plan comes to its end, after which it need not be watched.
static void calls_that_never_search_hold_nothing_up(void)
{
    enum { EVER = 1 << 20, RUNS = 40 };
    for (int quiet = 0; quiet < 2; quiet++) {
        tn_ctx *cx = open_searching();
        tune_begin(quiet ? "quiet" : "never");
        memset(&product, 0, sizeof product);
        *(quiet ? &product.quiet : &product.short_of_time) = EVER;
        CHECK(tn_tune(cx, 20) == TN_OK);
        run_products(cx, RUNS);
        const tni_plan *p = cx->engine->plans.last;
        CHECK(p && p->measured);
        CHECK(product.asked > 0 && product.asked < 3 * RUNS);
        int before = product.asked;
        run_products(cx, RUNS);
        CHECK_INT(product.asked, before);
        tn_close(cx);
        tune_end();
    }
}

const test_case tests_tune_runs[] = {
    TEST(tuned_runs_give_the_results_of_rules),
    TEST(a_search_goes_on_where_it_was_cut_short),
    TEST(what_was_too_slow_for_a_budget_is_measured_in_a_larger_one),
    TEST(a_budget_counts_in_the_middle_of_a_text),
    TEST(little_time_begins_no_compilers),
    TEST(later_kernels_are_compiled_while_others_are_measured),
    TEST(kernels_of_loops_are_measured_to_the_end),
    TEST(kernels_of_many_layers_share_a_search),
    TEST(a_wrong_candidate_never_wins),
    TEST(results_of_the_run_before_prove_nothing),
    TEST(kernels_of_bodies_that_are_not_kept_are_left),
    TEST(infinities_agree_with_themselves_alone),
    TEST(results_of_many_pieces_are_compared),
    TEST(explain_says_what_was_measured),
    TEST(library_calls_search_once_for_each_form),
    TEST(a_call_is_asked_until_it_has_searched),
    TEST(calls_that_never_search_hold_nothing_up),
    TEST_END
};
