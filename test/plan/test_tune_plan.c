// test_tune_plan.c: what may be chosen of a plan. Every alternative that is listed for some graphs
// gives their results, on every device; a plan that wins takes the place of the rule's, in this
// process and in later ones; a wrong one never does; and what plans overwrite while they are
// measured is as it was.
#include "tune_kit.h"

#include "device/cpu/gemm.h"
#include "inspect/inspect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// ---- graphs ------------------------------------------------------------------------------------

enum { ROWS = 48, COLS = 331, MOST = 4, STEPS = 3 };

// The tensors of a graph: x, y (ROWS, COLS), w (COLS, COLS), v (COLS,), which a step may update;
// and its results.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *x, *y, *w, *v, *out[MOST];
    int        outs;
} values;

static void result(values *a, tn_tensor *t)
{
    a->out[a->outs++] = tn_want(t);
}

// Rows that end in two folds, and a value that both loops compute.
static void record_softmax(values *a)
{
    result(a, tn_softmax(tn_add(a->x, a->v), -1));
}

// A product with a bias, an activation, and sums over its columns; v is overwritten.
static void record_layer(values *a)
{
    tn_tensor *h = tn_gelu(tn_add(tn_matmul(a->x, a->w), a->v));
    tn_tensor *d = tn_mul(h, a->y);
    result(a, d);
    tn_assign(a->v, tn_add(tn_mul_s(a->v, 0.9), tn_mul_s(tn_mean(d, 0), 0.1)));
}

// A value of many ops that kernels before and after a product read, and one that is cheap.
static void record_shared(values *a)
{
    tn_tensor *dear  = tn_tanh(tn_mul(tn_exp(tn_mul_s(tn_add(a->x, a->y), 0.1)), tn_sigmoid(a->x)));
    tn_tensor *cheap = tn_add_s(a->x, 1);
    tn_tensor *p     = tn_matmul(tn_mul(dear, cheap), a->w);
    result(a, tn_mul(tn_add(p, dear), cheap));
    result(a, tn_sum(tn_mul(dear, tn_sub(p, cheap)), 1));
}

// The gradient of relu(norm(x)), whose kernels compute what they would load.
static void record_norm(values *a)
{
    tn_tensor *x = tn_requires_grad(tn_mul_s(a->x, 1), true);
    tn_tensor *h = tn_relu(tn_layer_norm(x, 1, a->v, a->v, 1e-5));
    tn_tensor *p = tn_matmul(h, a->w);
    tn_backward(tn_sum_all(tn_mul(p, tn_add(a->y, h))), NULL);
    result(a, tn_grad_of(x));
    result(a, tn_mul(p, h));
}

// Sums of the same rows, recorded far from each other.
static void record_far(values *a)
{
    tn_tensor *t = tn_matmul(a->y, a->w);
    result(a, tn_sum(tn_mul(a->x, t), 1));
    tn_tensor *z = a->v;
    for (int i = 0; i < 220; i++) z = tn_softmax(z, -1);
    result(a, z);
    result(a, tn_max(tn_sub(a->x, t), 1));
}

// Folds down columns, which a GPU does by rows side by side or by partial results of all its
// threads.
static void record_columns(values *a)
{
    result(a, tn_softmax(tn_add(a->x, a->v), 0));
}

static void (*const graphs[])(values *a) = { record_softmax, record_layer, record_shared,
                                             record_norm,    record_far,   record_columns };
enum { GRAPHS = sizeof graphs / sizeof *graphs };

// A context; as_gpu: its plans are those for a device that needs many lanes.
static bool    as_gpu;
static tn_ctx *open_here(void)
{
    static tni_device_kernels k;
    tn_ctx                   *cx = tune_open();
    k                            = *cx->engine->kernels;
    if (as_gpu) k.lanes = 1 << 14;
    cx->engine->kernels = &k;
    return cx;
}

static void make_values(values *a, tn_ctx *cx)
{
    *a = (values){ .cx = cx };
    tn_seed(cx, 7);
    a->x = tn_randn(cx, TN_F32, 2, (int64_t[]){ ROWS, COLS });
    a->y = tn_randn(cx, TN_F32, 2, (int64_t[]){ ROWS, COLS });
    a->w = tn_mul_s(tn_randn(cx, TN_F32, 2, (int64_t[]){ COLS, COLS }), 0.1);
    a->v = tn_rand(cx, TN_F32, 1, (int64_t[]){ COLS });
    tn_eval(cx);
}

// Runs a graph some times and reads its results, then v, into y.
static size_t run_graph(tn_ctx *cx, int graph, int steps, float *y)
{
    values a;
    size_t n = 0;
    make_values(&a, cx);
    for (int i = 0; i < steps; i++) {
        tn_scope *s = tn_begin(cx);
        a.outs      = 0;
        graphs[graph](&a);
        tn_eval(cx);
        for (int k = 0; k < a.outs && i + 1 == steps; k++) {
            CHECK(tn_read(a.out[k], TN_F32, y + n, tn_count(a.out[k])) == TN_OK);
            n += (size_t)tn_count(a.out[k]);
        }
        tn_end(s);
    }
    CHECK(tn_read(a.v, TN_F32, y + n, COLS) == TN_OK);
    CHECK(tn_error(cx) == TN_OK);
    return n + COLS;
}

enum { ROOM = 4 * ROWS * COLS };

static bool agree(const float *have, const float *want, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (fabs((double)want[i]) > most) most = fabs((double)want[i]);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)have[i] - want[i]) <= 2e-5 * (fabs((double)want[i]) + most)))
            return false;
    return true;
}

// ---- alternatives ------------------------------------------------------------------------------

enum { ALTERNATIVES = 64 };

// Lists what could be chosen for a graph as it is recorded first; key gets the key of its plan.
static int list_for(tn_ctx *cx, int graph, tni_alternative *list, uint64_t key[2])
{
    values    a;
    tni_graph g;
    bool      kept;
    int       n = -1;
    make_values(&a, cx);
    tn_scope *s = tn_begin(cx);
    graphs[graph](&a);
    if (CHECK(tni_graph_open(&g, cx, TNI_STEP, NULL))) {
        tni_limits limits = tni_limits_of(cx->engine);
        tni_plan  *p      = tni_plan_for(&g, &kept);
        if (CHECK(p && kept)) {
            tni_tuned_bytes_key(p->key, p->key_bytes, key);
            n = tni_alternatives(&g, &limits, p, list, ALTERNATIVES);
        }
    }
    tni_graph_close(&g);
    tn_end(s);
    return n;
}

static tni_tuned winner_of(const tn_ctx *cx, const uint64_t key[2], tni_choice c)
{
    tni_tuned w;
    memset(&w, 0, sizeof w);
    memcpy(w.key, key, sizeof w.key);
    snprintf(w.chip, sizeof w.chip, "%s",
             cx->engine->kernels->chip(cx->engine->session, cx->engine->threads));
    snprintf(w.what, sizeof w.what, "plan of some steps");
    w.us = 1, w.rule_us = 2;
    w.choices = (tni_choices){ 1, { c } };
    return w;
}

// The launches of one run in a context of its own.
static int64_t launches_of(int graph, float *y, size_t *n)
{
    tn_ctx *cx     = open_here();
    *n             = run_graph(cx, graph, 1, y);
    int64_t counts = tn_ctx_stats(cx).launches;
    tn_close(cx);
    return counts;
}

// Every alternative of a graph gives its results; seen gets those that change the number of
// launches, by kind.
static void try_all(int graph, int *listed, int *seen)
{
    tni_alternative list[ALTERNATIVES];
    uint64_t        key[2] = { 0 };
    float          *want = malloc(ROOM * sizeof *want), *have = malloc(ROOM * sizeof *have);
    size_t          m, n;
    tune_begin("rule");
    tn_ctx *cx    = open_here();
    int     count = list_for(cx, graph, list, key);
    CHECK(count >= 0);
    int64_t rule = launches_of(graph, want, &n);
    for (int i = 0; i < count; i++) {
        tni_choice c = list[i].choice;
        tni_tuned  w = winner_of(cx, key, c);
        setenv("TN_CACHE_DIR", scratch_path(tni_text_of("%d", i).s), 1);
        tni_tuned_forget();
        CHECK(tni_tuned_keep(&w));
        int64_t launches = launches_of(graph, have, &m);
        test_case_result(m == n && agree(have, want, n), "graph %d: %s at item %d", graph,
                         tni_choice_name(c.kind), (int)list[i].item);
        listed[c.kind]++;
        seen[c.kind] += launches != rule;
    }
    tn_close(cx);
    tune_end();
    free(want);
    free(have);
}

static void every_alternative_gives_the_results_of_the_rule(void)
{
    int     listed[TNI_CHOICE_KINDS] = { 0 }, seen[TNI_CHOICE_KINDS] = { 0 };
    tn_ctx *cx    = tune_open();
    bool    tunes = cx->engine->kernels->neighbours != NULL, lanes = cx->engine->kernels->lanes > 0;
    bool gaps = cx->engine->device->calls->row_bytes > 0, takes = cx->engine->device->calls->takes;
    bool others = tni_device_impl(cx->engine->device, TNI_matmul)->others != NULL;
    tn_close(cx);
    if (!tunes) {
        test_skip("the device has nothing to tune");
        return;
    }
    for (int i = 0; i < GRAPHS; i++) try_all(i, listed, seen);
    CHECK(seen[TNI_CHOICE_CUT] > 0);
    CHECK(listed[TNI_CHOICE_STORE] > 0);
    CHECK(listed[TNI_CHOICE_INLINE] > 0);
    CHECK(seen[TNI_CHOICE_JOIN] > 0);
    // A GPU's library takes the ending of a product only at sizes of its own.
    if (takes && !lanes) CHECK(listed[TNI_CHOICE_PLAIN] > 0);
    if (others && tni_blas_find().found) CHECK(listed[TNI_CHOICE_OTHER] > 0);
    if (others && tni_gemm_f32_is_own()) CHECK(listed[TNI_CHOICE_FEWER] && listed[TNI_CHOICE_MORE]);
    if (gaps) CHECK(listed[TNI_CHOICE_DENSE] > 0);
    if (lanes) CHECK(listed[TNI_CHOICE_LOAD] > 0);
}

// On a device that has no such lanes by itself, too.
static void folds_are_spread_or_not(void)
{
    int listed[TNI_CHOICE_KINDS] = { 0 }, seen[TNI_CHOICE_KINDS] = { 0 };
    as_gpu = true;
    try_all(GRAPHS - 1, listed, seen);
    as_gpu = false;
    CHECK(listed[TNI_CHOICE_SPREAD] > 0);
    CHECK(seen[TNI_CHOICE_SPREAD] > 0);
}

// ---- winners -----------------------------------------------------------------------------------

// Lets the steps of the last plan run many times over, which changes no result of a graph that
// overwrites nothing.
static void slow_down(tn_ctx *cx)
{
    enum { TIMES = 40 };
    tni_plan      *p    = cx->engine->plans.last;
    tni_plan_step *step = p ? tni_alloc(&cx->heap, p->steps * TIMES * sizeof *step) : NULL;
    if (!CHECK(step != NULL)) return;
    for (size_t t = 0; t < p->steps * TIMES; t++) step[t] = p->step[t % p->steps];
    tni_free(&cx->heap, p->step);
    p->step = step;
    p->steps *= TIMES;
}

// The winners among plans that are not the rule's, and those among kernels.
static int count_chosen(int *kernels)
{
    char     path[1024], line[600], settings[200];
    tni_text why;
    int      all, chosen = 0;
    *kernels = 0;
    snprintf(path, sizeof path, "%s", scratch_path("count.txt"));
    CHECK(tni_tuned_export(path, &all, &why));
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "winner %*s %*s %*s %*s %*s %199s", settings) != 1) continue;
        bool plan = strstr(line, "plan_of") != NULL;
        *kernels += !plan;
        chosen += plan && strcmp(settings, "-") != 0;
    }
    if (f) fclose(f);
    return chosen;
}

// The rule's plan is made slow, so that the first alternative wins: it replaces the plan, and a
// later process begins with it.
static void a_plan_that_wins_is_used_from_then_on(void)
{
    float *want = malloc(ROOM * sizeof *want), *have = malloc(ROOM * sizeof *have);
    char  *text = NULL;
    size_t n, bytes;
    int    kernels;
    values a;
    tune_begin("wins");
    tn_ctx *cx    = tune_open();
    bool    tunes = cx->engine->kernels->neighbours != NULL;
    n             = run_graph(cx, 0, 1, want);
    slow_down(cx);
    // More than the search needs on a busy machine: one that is cut short goes on in the next run,
    // against a plan that is not slow.
    CHECK(tn_tune(cx, 300) == TN_OK);
    run_graph(cx, 0, STEPS, have);
    CHECK(agree(have, want, n));
    tn_close(cx);
    if (tunes) CHECK(count_chosen(&kernels) > 0);
    if (tunes) CHECK(kernels > 0);  // of the plan that won, in the same run
    tni_tuned_forget();
    cx = tune_open();
    make_values(&a, cx);
    tn_scope *s = tn_begin(cx);
    record_softmax(&a);
    FILE *f = open_memstream(&text, &bytes);
    tn_explain(cx, f);
    fclose(f);
    tn_eval(cx);
    CHECK(tn_read(a.out[0], TN_F32, have, ROWS * COLS) == TN_OK);
    CHECK(agree(have, want, ROWS * COLS));
    if (tunes) CHECK(strstr(text, "  tuned: ") && strstr(text, "s by the rule"));
    tn_end(s);
    tn_close(cx);
    tune_end();
    free(text);
    free(want);
    free(have);
}

// What the values of a plan are named by that is made from `a->x`, and its key.
static uint32_t names_of(values *a, uint64_t key[2])
{
    tni_graph g;
    bool      kept;
    uint32_t  names = 0;
    tn_scope *s     = tn_begin(a->cx);
    a->outs         = 0;
    record_softmax(a);
    if (CHECK(tni_graph_open(&g, a->cx, TNI_STEP, NULL))) {
        tni_plan *p = tni_plan_for(&g, &kept);
        for (size_t i = 0; i < g.count; i++) names = 31 * names + tni_choice_where(&g, i);
        if (CHECK(p && kept)) tni_tuned_bytes_key(p->key, p->key_bytes, key);
    }
    tni_graph_close(&g);
    tn_eval(a->cx);
    tn_end(s);
    return names;
}

// A weight is random numbers, or from a file, in the first step, and an update from then on: what
// was chosen in a later step is found in the first of another process.
static void choices_name_values_whatever_inputs_were_made_by(void)
{
    values   a;
    uint64_t first[2], later[2];
    tune_begin("names");
    tn_ctx *cx = tune_open();
    make_values(&a, cx);
    uint32_t names = names_of(&a, first);
    tn_assign(a.x, tn_mul_s(a.x, 0.5));
    tn_eval(cx);
    CHECK_INT(names_of(&a, later), names);
    CHECK(!memcmp(first, later, sizeof first));
    tn_close(cx);
    tune_end();
}

// One choice of two that is about no value, as of another version, leaves all to the rule, and
// explain says nothing of it.
static void a_winner_that_is_known_in_part_is_left(void)
{
    tni_alternative list[ALTERNATIVES];
    uint64_t        key[2] = { 0 };
    float          *y      = malloc(ROOM * sizeof *y);
    size_t          n;
    tune_begin("rule");
    tn_ctx *cx    = open_here();
    int     count = list_for(cx, 0, list, key), changed = 0;
    int64_t rule = launches_of(0, y, &n);
    for (int i = 0; i < count; i++) {
        tni_tuned w = winner_of(cx, key, list[i].choice);
        for (int k = 0; k < 2; k++) {
            setenv("TN_CACHE_DIR", scratch_path(tni_text_of("%d-%d", i, k).s), 1);
            tni_tuned_forget();
            CHECK(tni_tuned_keep(&w));
            int64_t launches = launches_of(0, y, &n);
            if (k) CHECK_INT(launches, rule);
            else changed += launches != rule;
            w.choices.of[w.choices.n++] = (tni_choice){ TNI_CHOICE_STORE, 0x1234567 };
        }
    }
    if (cx->engine->kernels->neighbours) CHECK(changed > 0);
    tn_close(cx);
    tune_end();
    free(y);
}

// As above, but nothing may be chosen by timing: the rule's plan stays.
static void rules_decide_if_they_are_to(void)
{
    float *want = malloc(ROOM * sizeof *want), *have = malloc(ROOM * sizeof *have);
    tune_begin("rules");
    setenv("TN_DETERMINISTIC", "1", 1);
    tn_ctx *cx = tune_open();
    size_t  n  = run_graph(cx, 0, 1, want);
    slow_down(cx);
    CHECK(tn_tune(cx, 60) == TN_OK);
    run_graph(cx, 0, STEPS, have);
    CHECK(agree(have, want, n));
    CHECK(cx->engine->tune_seconds == 0);
    CHECK_INT(cx->engine->plans.last->choices.n, 0);
    tn_close(cx);
    tune_end();
    free(want);
    free(have);
}

// Leaves out the last step, which is fast and wrong.
static void leave_out(tni_plan *p)
{
    p->steps--;
}

// Of the second graph that is the step by which v is assigned.
static void a_wrong_plan_never_wins(void)
{
    float *want = malloc(ROOM * sizeof *want), *have = malloc(ROOM * sizeof *have);
    for (int graph = 0; graph < 2; graph++) {
        int kernels;
        tune_begin(graph ? "wrong_state" : "wrong");
        tn_ctx *cx = tune_open();
        size_t  n  = run_graph(cx, graph, STEPS, want);
        slow_down(cx);
        tni_tune_spoil_plan = leave_out;
        CHECK(tn_tune(cx, 60) == TN_OK);
        run_graph(cx, graph, STEPS, have);
        tni_tune_spoil_plan = NULL;
        test_case_result(agree(have, want, n), "graph %d has other results", graph);
        CHECK_INT(count_chosen(&kernels), 0);
        CHECK_INT(tune_next_faster(true), 0);
        tn_close(cx);
        tune_end();
    }
    free(want);
    free(have);
}

// Squares that f16 cannot hold: the rule's plan keeps them in registers, and one that stores them
// gives infinities, as running op by op does. The rule's plan is made slow, so that the other would
// win.
static void a_plan_that_overflows_never_wins(void)
{
    enum { N = 64, SUM = N * (N * 9 + 18) };
    float have[N];
    tune_begin("overflows");
    tn_ctx    *cx = tune_open();
    tn_tensor *x  = tn_full(cx, TN_F16, 2, (int64_t[]){ N, N }, 300);
    tn_tensor *w  = tn_ones(cx, TN_F16, 2, (int64_t[]){ N, N });
    tn_eval(cx);
    for (int i = 0; i < 2 * STEPS; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *d = tn_mul(x, x), *p = tn_matmul(tn_mul_s(d, 1e-4), w);
        tn_tensor *y = tn_want(tn_sum(tn_add(p, tn_mul_s(d, 2e-4)), 1));
        tn_eval(cx);
        if (i == 1) slow_down(cx);
        CHECK(tn_tune(cx, i ? 20 : 0) == TN_OK);
        CHECK(tn_read(y, TN_F32, have, N) == TN_OK);
        CHECK_NEAR(have[0], SUM, 100);
        tn_end(s);
    }
    tn_close(cx);
    tune_end();
}

// v is overwritten in each step: running other plans in between changes nothing.
static void what_plans_overwrite_is_put_back(void)
{
    float *want = malloc(ROOM * sizeof *want), *have = malloc(ROOM * sizeof *have);
    tune_begin("back");
    tn_ctx *cx = tune_open();
    size_t  n  = run_graph(cx, 1, 2 * STEPS, want);
    CHECK(tn_tune(cx, 8) == TN_OK);
    run_graph(cx, 1, 2 * STEPS, have);
    CHECK(agree(have, want, n));
    if (cx->engine->kernels->neighbours) CHECK(cx->engine->tune_seconds < 8);
    tn_close(cx);
    tune_end();
    free(want);
    free(have);
}

enum { CHANNELS = 64, PLACES = 28 };

// A convolution whose weight grows in each step.
static tn_tensor *record_convolution(tn_tensor *x, tn_tensor *w)
{
    tn_conv_opts o = { .padding = { 1, 1 } };
    tn_tensor   *y = tn_want(tn_tanh(tn_mul_s(tn_conv2d(x, w, NULL, o), 1e-3)));
    tn_assign(w, tn_mul_s(w, 1.5));
    return y;
}

// The sum of its results.
static double convolve(tn_ctx *cx, tn_tensor *x, tn_tensor *w)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *y = record_convolution(x, w);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    double sum = tn_item(tn_sum_all(tn_abs(y)));
    tn_end(s);
    return sum;
}

static tn_ctx *open_convolution(tn_tensor **x, tn_tensor **w)
{
    tn_ctx *cx = tune_open();
    tn_seed(cx, 3);
    *x = tn_want(tn_randn(cx, TN_F32, 4, (int64_t[]){ 2, CHANNELS, PLACES, PLACES }));
    *w = tn_want(tn_randn(cx, TN_F32, 4, (int64_t[]){ CHANNELS, CHANNELS, 3, 3 }));
    tn_eval(cx);
    return cx;
}

// Keeps a plan's winner whose choice changes nothing: a map is no sum that could be spread. So the
// rule's plan and the winner's are two, and equal.
static void keep_nothing_chosen(tn_ctx *cx, tn_tensor *x, tn_tensor *w)
{
    tni_graph g;
    bool      kept;
    uint64_t  key[2];
    tn_scope *s = tn_begin(cx);
    record_convolution(x, w);
    if (CHECK(tni_graph_open(&g, cx, TNI_STEP, NULL))) {
        tni_plan  *p = tni_plan_for(&g, &kept);
        tni_choice c = { TNI_CHOICE_SPREAD, tni_choice_where(&g, g.count - 1) };
        if (CHECK(p && kept && p->calls)) {
            tni_tuned_bytes_key(p->key, p->key_bytes, key);
            tni_tuned won = winner_of(cx, key, c);
            CHECK(tni_tuned_keep(&won));
        }
    }
    tni_graph_close(&g);
    tn_end(s);
    tni_tuned_forget();
}

// While plans are measured a weight is overwritten in its place: what a device packs of it then
// says nothing of the weight that is put back.
static void packed_weights_are_those_of_the_program(void)
{
    double     want[STEPS];
    tn_tensor *x, *w;
    tune_begin("packed");
    tn_ctx *cx = open_convolution(&x, &w);
    for (int i = 0; i < STEPS; i++) want[i] = convolve(cx, x, w);
    if (!cx->engine->kernels->neighbours) SKIP("%s is not tuned", cx->engine->device->name);
    keep_nothing_chosen(cx, x, w);
    tn_close(cx);
    cx = open_convolution(&x, &w);
    for (int i = 0; i < STEPS; i++) {
        if (i == 2) CHECK(tn_tune(cx, 20) == TN_OK);
        CHECK_NEAR(convolve(cx, x, w), want[i], 1e-4 * want[i]);
    }
    tn_close(cx);
    tune_end();
}

// A plan that takes longer than the search may is run once for it, and then as the program says.
static void a_long_plan_is_left(void)
{
    values a;
    tune_begin("long");
    tn_ctx *cx = tune_open();
    make_values(&a, cx);
    for (int i = 0; i < 2; i++) {
        tn_scope *s = tn_begin(cx);
        a.outs      = 0;
        record_softmax(&a);
        CHECK(tn_eval(cx) == TN_OK);
        if (i == 0) slow_down(cx);
        CHECK(tn_tune(cx, 1e-4) == TN_OK);
        tn_end(s);
    }
    CHECK(cx->engine->plans.last->runs <= 3);
    tn_close(cx);
    tune_end();
}

// Asks to stop once, as an interpreter does that has taken note of a key.
static bool stop_once(void *user)
{
    int left = (*(int *)user)--;
    return left == 1;
}

// A request to stop that comes while other plans are measured is not lost; what was stopped is
// computed, and measured, later.
static void a_program_can_stop_while_plans_are_measured(void)
{
    values a;
    int    left = 0;
    tune_begin("stop");
    tn_ctx *cx = rules_open("cpu");  // a GPU replays what is measured, and asks less often
    tn_on_error(cx, NULL, NULL);
    tn_stop_when(cx, stop_once, &left);
    make_values(&a, cx);
    for (int i = 0; i < 2; i++) {
        tn_scope *s = tn_begin(cx);
        a.outs      = 0;
        record_softmax(&a);
        left = i;
        CHECK_INT(tn_eval(cx), i ? TN_ESTOP : TN_OK);
        tn_error_clear(cx);
        if (i == 0) slow_down(cx);
        CHECK(tn_tune(cx, i ? 0 : 60) == TN_OK);
        CHECK(tn_eval(cx) == TN_OK);
        CHECK_NEAR(tn_item(tn_sum_all(a.out[0])), ROWS, 1e-3);
        tn_end(s);
    }
    tn_close(cx);
    tune_end();
}

// A function of a user, which counts its calls.
static int calls;

static tn_status shape_of_half(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    return TN_OK;
}

static tn_status compute_half(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    calls++;
    for (int64_t i = 0; i < in[0].size[0]; i++)
        ((float *)out[0].data)[i] = ((const float *)in[0].data)[i] / 2;
    return TN_OK;
}

static const tn_op_def half = {
    .name = "half", .nin = 1, .shape = shape_of_half, .compute = compute_half
};

static void step_of_loop(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    tn_tensor *sum = tn_add(carry[0], x[0]);
    carry[0]       = tn_custom(&half, &sum, NULL, 0);
    y[0]           = tn_exp(carry[0]);
}

// Also in the body of a loop a user's function is called as often as the program says.
static void functions_of_users_are_called_once(void)
{
    enum { LENGTH = 5 };
    tune_begin("users");
    tn_ctx    *cx   = tune_open();
    tn_tensor *x    = tn_ones(cx, TN_F32, 2, (int64_t[]){ LENGTH, COLS });
    tn_tensor *zero = tn_zeros(cx, TN_F32, 1, (int64_t[]){ COLS });
    CHECK(tn_tune(cx, 2) == TN_OK);
    calls = 0;
    for (int i = 0; i < STEPS; i++) {
        tn_scope  *s     = tn_begin(cx);
        tn_tensor *carry = zero, *y;
        CHECK(tn_scan(step_of_loop, NULL, 1, &carry, 1, &x, 1, &y, (tn_scan_opts){ 0 }) == TN_OK);
        CHECK_NEAR(tn_item(tn_sum_all(tn_softmax(y, -1))), LENGTH, 1e-3);
        tn_end(s);
    }
    CHECK_INT(calls, LENGTH * STEPS);
    tn_close(cx);
    tune_end();
}

const test_case tests_tune_plan[] = { TEST(every_alternative_gives_the_results_of_the_rule),
                                      TEST(folds_are_spread_or_not),
                                      TEST(a_plan_that_wins_is_used_from_then_on),
                                      TEST(choices_name_values_whatever_inputs_were_made_by),
                                      TEST(a_winner_that_is_known_in_part_is_left),
                                      TEST(rules_decide_if_they_are_to),
                                      TEST(a_wrong_plan_never_wins),
                                      TEST(a_plan_that_overflows_never_wins),
                                      TEST(what_plans_overwrite_is_put_back),
                                      TEST(packed_weights_are_those_of_the_program),
                                      TEST(a_long_plan_is_left),
                                      TEST(a_program_can_stop_while_plans_are_measured),
                                      TEST(functions_of_users_are_called_once),
                                      TEST_END };
