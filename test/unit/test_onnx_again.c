// Runs of an ONNX model that are repeated instead of recorded, from the fourth of the same shapes
// on: what they compute, and which are never repeated.
#include "check.h"
#include "onnx_writer.h"
#include "rules_kit.h"
#include "scratch.h"
#include "tune_kit.h"

#include <math.h>
#include <stdlib.h>

enum { RUNS = 8 };

static tn_onnx *open_graph(tn_ctx *cx, int nodes, const onnx_bytes *node, int weights,
                           const onnx_bytes *weight)
{
    onnx_bytes  file = onnx_model_of(nodes, node, weights, weight);
    const char *path = scratch_path("again.onnx");
    return scratch_write(path, file.data, file.n) ? tn_onnx_open(cx, path) : NULL;
}

// A model of nodes, with a weight w (2, 2) = {1, -1; 2, 1}.
static tn_onnx *open_nodes(tn_ctx *cx, int n, const onnx_bytes *node)
{
    onnx_bytes w = onnx_tensor("w", 1, 2, (int64_t[]){ 2, 2 }, (float[]){ 1, -1, 2, 1 });
    return open_graph(cx, n, node, 1, &w);
}

// Kernels are compiled before they run, so that it is known when a run can be kept.
static tn_ctx *open_in_scratch(void)
{
    setenv("TN_COMPILE", "wait", 1);
    tn_ctx *cx = rules_open("cpu");
    unsetenv("TN_COMPILE");
    return cx;
}

static tn_ctx *open_waiting(void)
{
    CHECK(scratch_open());
    return open_in_scratch();
}

static tn_tensor *run(tn_onnx *m, tn_tensor *x)
{
    tn_tensor *y = NULL;
    CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y), TN_OK);
    return y;
}

// relu(x @ w), of a row (i, 1).
static tn_onnx *open_product(tn_ctx *cx)
{
    return open_nodes(
        cx, 2, (onnx_bytes[]){ onnx_node("MatMul", "x w", "h"), onnx_node("Relu", "h", "y") });
}

static tn_tensor *row(tn_ctx *cx, float a, float b)
{
    return tn_from(cx, TN_F32, TN_SHAPE(1, 2), (float[]){ a, b });
}

// Results of earlier runs stay, and inputs are not written to. From the fourth run on no plan is
// looked for.
static void repeated_runs_compute_what_recorded_ones_do(void)
{
    tn_ctx    *cx = open_waiting();
    tn_onnx   *m  = open_product(cx);
    tn_tensor *x[RUNS], *y[RUNS];
    for (int i = 0; i < RUNS; i++) {
        int64_t before = tn_ctx_stats(cx).hits + tn_ctx_stats(cx).plans;
        x[i]           = row(cx, (float)i, 1);
        y[i]           = run(m, x[i]);
        if (i > 3) CHECK_INT(tn_ctx_stats(cx).hits + tn_ctx_stats(cx).plans, before);
        CHECK_VALUES(y[i], i + 2, i < 1 ? 1 : 0);
    }
    for (int i = 0; i < RUNS; i++) {
        CHECK_VALUES(y[i], i + 2, i < 1 ? 1 : 0);
        CHECK_VALUES(x[i], i, 1);
    }
    rules_close_scratch(cx);
}

// An input may be a view, of another dtype than the last one, or not computed yet; a result is
// written to.
static void inputs_may_be_views_and_pending(void)
{
    tn_ctx  *cx = open_waiting();
    tn_onnx *m  = open_product(cx);
    for (int i = 0; i < RUNS; i++) {
        tn_tensor *both = tn_from(cx, TN_F32, TN_SHAPE(2, 2), (float[]){ 9, (float)i, 9, 1 });
        tn_tensor *x    = tn_add_s(tn_unsqueeze(tn_select(both, 1, 1), 0), 1);
        if (i % 2) x = tn_unsqueeze(tn_select(both, 1, 1), 0);
        tn_tensor *y = run(m, x);
        if (i % 2) CHECK_VALUES(y, i + 2, 0);
        else CHECK_VALUES(y, i + 5, i < 1 ? 1 : 0);
        CHECK(tn_assign(y, tn_mul_s(y, 2)));
        CHECK_VALUES(tn_slice(y, 1, 0, 1, 1), i % 2 ? 2 * i + 4 : 2 * i + 10);
    }
    rules_close_scratch(cx);
}

// Five batch sizes are more than are kept.
static void shapes_may_alternate(void)
{
    tn_ctx  *cx = open_waiting();
    tn_onnx *m  = open_product(cx);
    for (int i = 0; i < 40; i++) {
        int64_t    n = 1 + i % 5;
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_full(cx, TN_F32, TN_SHAPE(n, 2), i), *y = run(m, x);
        CHECK(y && tn_size(y, 0) == n);
        CHECK_INT((int)tn_item(tn_sum_all(y)), 3 * i * n);
        tn_end(s);
    }
    rules_close_scratch(cx);
}

// How many elements NonZero gives depends on x, and random numbers are new ones each time.
static void what_depends_on_values_is_recorded_each_time(void)
{
    tn_ctx    *cx   = open_waiting();
    onnx_bytes find = onnx_node("NonZero", "x", "y"),
               draw = onnx_node("RandomNormalLike", "x", "y");
    tn_onnx *m = open_nodes(cx, 1, &find), *r = open_nodes(cx, 1, &draw);
    double   last = NAN;
    for (int i = 0; i < RUNS; i++) {
        tn_tensor *x = row(cx, (float)(i % 2), 1), *y = run(m, x);
        CHECK(y && tn_size(y, 1) == 1 + i % 2);
        double now = tn_item(tn_sum_all(run(r, x)));
        CHECK(now != last);
        last = now;
    }
    rules_close_scratch(cx);
}

// A gather that fails in a repeated run says so, and the next run is right.
static void an_index_out_of_range_is_reported(void)
{
    tn_ctx    *cx   = open_waiting();
    onnx_bytes take = onnx_node("Gather", "w x", "y");
    tn_onnx   *m    = open_nodes(cx, 1, &take);
    for (int i = 0; i < RUNS; i++) {
        int64_t    at = i == 5 ? 7 : i % 2;
        tn_tensor *x = tn_from(cx, TN_I64, TN_SHAPE(1), &at), *y = NULL;
        tn_status  s = tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y);
        float      v[2];
        if (s == TN_OK) s = tn_read(y, TN_F32, v, 2);
        CHECK_STATUS(s, i == 5 ? TN_EARG : TN_OK);
        if (i == 5) CHECK_FAILED2(cx, TN_EARG, "index 7", "out of range");
        else CHECK(v[0] == (at ? 2 : 1));
    }
    rules_close_scratch(cx);
}

// Outputs that are an input, a view of one, or stored in another order of axes.
static void outputs_may_be_views(void)
{
    tn_ctx    *cx   = open_waiting();
    onnx_bytes turn = onnx_node("Transpose", "x", "y"), same = onnx_node("Identity", "x", "y");
    tn_onnx   *t = open_nodes(cx, 1, &turn), *s = open_nodes(cx, 1, &same);
    for (int i = 0; i < RUNS; i++) {
        tn_tensor *x = row(cx, (float)i, 3), *y = run(t, x), *z = run(s, x);
        CHECK(y && tn_rank(y) == 2 && tn_size(y, 0) == 2);
        CHECK_VALUES(y, i, 3);
        CHECK_VALUES(z, i, 3);
        CHECK(tn_assign(z, tn_mul_s(z, 0)));
        CHECK_VALUES(x, i, 3);
    }
    rules_close_scratch(cx);
}

// The body of a loop is run again, with several outputs, one of them a view.
static void loops_are_repeated(void)
{
    tn_ctx       *cx     = open_waiting();
    const int64_t size[] = { 1, 4, 1 };
    onnx_bytes    node[] = { onnx_node("LSTM", "x w r", "a y"), onnx_node("Transpose", "a", "z") };
    onnx_bytes    weight[] = { onnx_tensor("w", 1, 3, size, (float[]){ 1, 2, -1, 0.5f }),
                               onnx_tensor("r", 1, 3, size, (float[]){ 0.5f, -1, 1, 2 }) };
    onnx_attr_int(&node[0], "hidden_size", 1);
    tn_onnx    *m       = open_graph(cx, 2, node, 2, weight);
    const char *names[] = { "y", "z" };
    double      first[2][4];
    for (int i = 0; i < RUNS; i++) {
        float      in[3] = { 1, (float)(i % 2), -2 };
        tn_tensor *x     = tn_from(cx, TN_F32, TN_SHAPE(3, 1, 1), in), *y[2];
        double     now[4];
        int64_t    before = tn_ctx_stats(cx).plans;
        CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 2, names, y), TN_OK);
        CHECK_STATUS(tn_read(y[0], TN_F64, now, 1), TN_OK);
        CHECK_STATUS(tn_read(y[1], TN_F64, now + 1, 3), TN_OK);
        if (i > 3) CHECK_INT(tn_ctx_stats(cx).plans, before);
        CHECK(now[3] == now[0] && now[1] != now[2]);
        for (int k = 0; k < 4 && i > 1; k++) CHECK(fabs(now[k] - first[i % 2][k]) < 1e-7);
        for (int k = 0; k < 4; k++) first[i % 2][k] = now[k];
    }
    rules_close_scratch(cx);
}

// While runs are watched they are recorded, and results that are read late are those of their own
// inputs.
static void watched_runs_are_recorded(void)
{
    tn_ctx    *cx = open_waiting();
    tn_onnx   *m  = open_product(cx);
    tn_tensor *y[RUNS];
    tn_scope  *s = tn_begin(cx);
    tn_profile_begin(cx);
    for (int i = 0; i < RUNS; i++) y[i] = run(m, row(cx, (float)i, 1));
    for (int i = 0; i < RUNS; i++) CHECK_VALUES(y[i], i + 2, i < 1 ? 1 : 0);
    tn_profile_end(cx);
    for (int i = 0; i < RUNS; i++) CHECK_VALUES(run(m, row(cx, (float)i, 1)), i + 2, i < 1 ? 1 : 0);
    tn_end(s);
    rules_close_scratch(cx);
}

// Whoever looks at a model sees the shapes of its newest run.
static void shapes_are_those_of_the_newest_run(void)
{
    tn_ctx  *cx = open_waiting();
    tn_onnx *m  = open_product(cx);
    for (int i = 0; i < RUNS; i++) run(m, row(cx, 1, 1));
    CHECK_INT(tn_onnx_nodes(m), 2);
    for (int n = 1; n < 2 * RUNS; n++) {
        run(m, tn_ones(cx, TN_F32, TN_SHAPE(1 + n % 2, 2)));
        tn_onnx_port p = tn_onnx_node_value(m, 1, 1);
        CHECK(p.rank == 2 && p.size[0] == 1 + n % 2);
    }
    rules_close_scratch(cx);
}

// A run records, and does not compute what the program has pending: a wrong index takes nothing
// else with it.
static void a_run_leaves_the_rest_alone(void)
{
    tn_ctx    *cx   = open_waiting();
    onnx_bytes take = onnx_node("Gather", "w x", "y");
    tn_onnx   *m    = open_nodes(cx, 1, &take);
    tn_tensor *own = tn_zeros(cx, TN_F32, TN_SHAPE(2)), *y = NULL, *x;
    int64_t    at = 7, before;
    CHECK_STATUS(tn_eval_of(own), TN_OK);
    CHECK(tn_assign(own, tn_ones(cx, TN_F32, TN_SHAPE(2))));
    x      = tn_from(cx, TN_I64, TN_SHAPE(1), &at);
    before = tn_ctx_stats(cx).launches;
    CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y), TN_OK);
    CHECK_INT(tn_ctx_stats(cx).launches, before);
    CHECK(y && tn_eval_of(y) == TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "index 7", "out of range");
    CHECK_VALUES(own, 1, 1);
    rules_close_scratch(cx);
}

// Random numbers of sizes and constants alone are drawn each time, too.
static void draws_of_constants_differ(void)
{
    tn_ctx    *cx     = open_waiting();
    onnx_bytes node[] = { onnx_node("Shape", "x", "s"), onnx_node("Expand", "h s", "p"),
                          onnx_node("Bernoulli", "p", "y") };
    onnx_bytes h      = onnx_tensor("h", 1, 1, (int64_t[]){ 1 }, (float[]){ 0.5f });
    tn_onnx   *m      = open_graph(cx, 3, node, 1, &h);
    int        same   = 0;
    float      now[64], last[64];
    for (int i = 0; i < RUNS; i++) {
        CHECK_STATUS(tn_read(run(m, tn_zeros(cx, TN_F32, TN_SHAPE(64))), TN_F32, now, 64), TN_OK);
        same += i && !memcmp(now, last, sizeof now);
        memcpy(last, now, sizeof now);
    }
    CHECK_INT(same, 0);
    rules_close_scratch(cx);
}

// Gradients pass, a layer's weights are those of now, and so is the dtype.
static void what_changes_is_not_repeated(void)
{
    tn_ctx  *cx = open_waiting();
    tn_onnx *m  = open_product(cx);
    for (int i = 0; i < RUNS; i++) {
        tn_tensor *x = tn_requires_grad(row(cx, (float)i, 1), i % 2);
        tn_tensor *y = run(m, x);
        if (i % 2) {
            CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
            CHECK_VALUES(tn_grad_of(x), 1, 2);
        } else CHECK_VALUES(y, i + 2, i < 1 ? 1 : 0);
    }
    CHECK_STATUS(tn_onnx_cast(m, TN_F16), TN_OK);
    CHECK_VALUES(run(m, row(cx, 2049, 0)), 2048, 0);
    CHECK_STATUS(tn_onnx_cast(m, TN_F32), TN_OK);
    CHECK_VALUES(run(m, row(cx, 2049, 0)), 2049, 0);
    tn_layer  *l  = tn_onnx_layer(m);
    tn_tensor *w  = l ? tn_layer_find(l, "w") : NULL;
    bool       on = tn_grad_mode(cx, false);
    for (int i = 0; w && i < RUNS; i++) {
        CHECK(tn_assign(w, tn_full(cx, TN_F32, TN_SHAPE(2, 2), i)));
        CHECK_VALUES(run(m, row(cx, 1, 1)), 2 * i, 2 * i);
    }
    CHECK(w != NULL && on);
    rules_close_scratch(cx);
}

// With a budget, runs are recorded until all is measured, and then repeated; so they are when
// another budget comes.
static void a_model_is_measured_before_it_is_repeated(void)
{
    enum { SIDE = 192, MANY = 40 };
    float y[SIDE * SIDE];
    tune_begin("onnx");
    tn_ctx    *cx     = open_in_scratch();
    onnx_bytes node[] = { onnx_node("Softmax", "x", "h"), onnx_node("Tanh", "h", "y") };
    tn_onnx   *m      = open_nodes(cx, 2, node);
    tn_tensor *x      = tn_rand(cx, TN_F32, TN_SHAPE(SIDE, SIDE));
    for (int k = 0; m && k < 2; k++) {
        int64_t looked_up[MANY];
        CHECK_STATUS(tn_tune(cx, 1), TN_OK);
        for (int i = 0; i < MANY; i++) {
            int64_t before = tn_ctx_stats(cx).hits + tn_ctx_stats(cx).plans;
            CHECK_STATUS(tn_read(run(m, x), TN_F32, y, SIDE * SIDE), TN_OK);
            looked_up[i] = tn_ctx_stats(cx).hits + tn_ctx_stats(cx).plans - before;
        }
        CHECK(tune_is_over(cx));
        CHECK(cx->engine->tune_seconds < 1);
        CHECK(looked_up[0] > 0);
        CHECK_INT(looked_up[MANY - 1], 0);
    }
    tn_close(cx);
    tune_end();
}

const test_case tests_onnx_again[] = { TEST(repeated_runs_compute_what_recorded_ones_do),
                                       TEST(inputs_may_be_views_and_pending),
                                       TEST(shapes_may_alternate),
                                       TEST(what_depends_on_values_is_recorded_each_time),
                                       TEST(an_index_out_of_range_is_reported),
                                       TEST(outputs_may_be_views),
                                       TEST(loops_are_repeated),
                                       TEST(watched_runs_are_recorded),
                                       TEST(shapes_are_those_of_the_newest_run),
                                       TEST(a_run_leaves_the_rest_alone),
                                       TEST(draws_of_constants_differ),
                                       TEST(what_changes_is_not_repeated),
                                       TEST(a_model_is_measured_before_it_is_repeated),
                                       TEST_END };
