// test_layer_ports.c: containers, paths as names, and layers of several inputs and outputs.
#include "rules_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- containers and paths

// The names of all tensors, each with a blank behind it.
static void add_name(const char *name, tn_tensor *t, void *user)
{
    (void)t;
    strcat(user, name);
    strcat(user, " ");
}

static const char *names_of(tn_layer *l)
{
    static char text[1000];
    text[0] = 0;
    tn_layer_each(l, add_name, text);
    return text;
}

static void a_container_holds_and_does_not_run(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = tn_layer_new(cx, NULL, NULL, NULL);
    tn_layer  *enc = tn_layer_child(net, "encoder", tn_layer_new(cx, NULL, NULL, NULL));
    tn_layer  *fc  = tn_layer_child(enc, "fc", tn_nn_linear(cx, 2, 2));
    tn_tensor *x   = rules_there(cx, TN_SHAPE(1, 2));
    CHECK(tn_forward(fc, x) != NULL);
    CHECK(tn_forward(enc, x) == NULL);
    CHECK_FAILED(cx, TN_EARG,
                 "forward: the layer has no function: it only holds tensors and other "
                 "layers (in encoder)");
    tn_tensor *y = x;
    CHECK_STATUS(tn_forward_n(enc, 1, &x, 1, &y), TN_EARG);
    CHECK(y == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward_n: the layer has no function");
    CHECK_STR(names_of(net), "encoder.fc.weight encoder.fc.bias ");
    tn_layer_train(net, false);
    CHECK(!tn_layer_training(fc));
    tn_close(cx);
}

static void a_name_with_dots_is_a_path(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = tn_layer_new(cx, NULL, NULL, NULL), *act = tn_nn_act(cx, tn_relu);
    tn_layer_train(net, false);
    tn_tensor *w = tn_layer_param(net, "attn.weight", tn_ones(cx, TN_F32, TN_SHAPE(2)));
    tn_tensor *m = tn_layer_buffer(net, "attn.stats.mean", tn_ones(cx, TN_F32, TN_SHAPE(3)));
    CHECK(tn_layer_child(net, "encoder.0", tn_nn_linear(cx, 2, 2)) != NULL);
    CHECK(tn_layer_child(net, "encoder.1", act) == act);
    CHECK_STR(names_of(net), "attn.weight attn.stats.mean encoder.0.weight encoder.0.bias ");
    CHECK(tn_layer_find(net, "attn.weight") == w && tn_layer_find(net, "attn.stats.mean") == m);
    CHECK(tn_layer_find_child(net, "encoder.1") == act);
    tn_layer *attn = tn_layer_find_child(net, "attn");
    CHECK(attn && tn_layer_find(attn, "stats.mean") == m && !tn_layer_training(attn));
    const char *missing[] = { "encoder.2", "attn.weight", "", ".", "encoder.", "encoder..0", "e" };
    for (int i = 0; i < 7; i++) {
        CHECK(tn_layer_find_child(net, missing[i]) == NULL);
        CHECK_FAILED2(cx, TN_EARG, "layer_find_child: there is no layer \"", missing[i]);
    }
    tn_close(cx);
}

static void a_path_that_fails_leaves_no_containers(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_ctx    *two = rules_open("cpu");
    tn_layer  *net = tn_layer_new(cx, NULL, NULL, NULL);
    tn_tensor *t   = tn_layer_param(net, "a.w", tn_ones(cx, TN_F32, TN_SHAPE(2)));
    CHECK(tn_layer_param(net, "a.w.more", tn_ones(cx, TN_F32, TN_SHAPE(2))) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_param: the layer has a \"w\" already");
    CHECK(tn_layer_param(net, "b.c.d", tn_ones(cx, TN_I32, TN_SHAPE(2))) == NULL);  // no gradient
    CHECK(tn_error(cx) != TN_OK);
    tn_error_clear(cx);
    CHECK(tn_layer_find_child(net, "b") == NULL);
    CHECK_FAILED(cx, TN_EARG, "there is no layer \"b\"");
    CHECK(tn_layer_child(net, "b.c", tn_nn_flatten(two)) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_child: \"b.c\" belongs to another context");
    CHECK(tn_layer_child(net, "b.c", net) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_child: \"b.c\" would be its own child");
    CHECK(tn_layer_find(net, "a.w") == t);
    CHECK_STR(names_of(net), "a.w ");
    tn_close(cx);
    tn_close(two);
}

// Counts blocks that live; fails once so many were taken.
typedef struct {
    int64_t left, live;
} meter;

static void *metered(void *user, void *old, size_t n)
{
    meter *m = user;
    if (n && m->left-- <= 0) return NULL;
    if (!n) {
        m->live -= old != NULL;
        free(old);
        return NULL;
    }
    m->live += old == NULL;
    return realloc(old, n);
}

static void add_and_keep(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    (void)l;
    y[0] = nx > 2 ? tn_add(tn_mul(x[0], x[1]), x[2]) : tn_mul(x[0], x[1]);
    if (ny > 1) y[1] = tn_relu(x[1]);
}

static bool build_and_run(tn_ctx *cx)
{
    tn_layer_counts n   = { .in = 2, .out = 2 };
    tn_layer       *net = tn_layer_new(cx, NULL, NULL, NULL);
    tn_layer       *l   = net ? tn_layer_new_n(cx, add_and_keep, n, NULL, NULL) : NULL;
    tn_tensor      *w   = l ? tn_ones(cx, TN_F32, TN_SHAPE(2)) : NULL, *y[2];
    if (!w || !tn_layer_param(net, "d.e.w", w) || !tn_layer_child(net, "a.b.c", l)) return false;
    return tn_forward_n(l, 2, (tn_tensor *[]){ w, w }, 2, y) == TN_OK;
}

static void paths_and_ports_survive_every_failing_allocation(void)
{
    bool done = false;
    for (int n = 0; n < 1000 && !done; n++) {
        meter   m  = { INT64_MAX, 0 };
        tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .alloc = metered, .user = &m });
        tn_on_error(cx, NULL, &m);
        m.left = n;
        done   = build_and_run(cx);
        if (done) CHECK(m.left >= 0 && n > 5);
        else CHECK_STATUS(tn_error(cx), TN_EMEM);
        m.left = INT64_MAX;
        tn_close(cx);
        CHECK(TEST_DEBUG || m.live == 0);
    }
    CHECK(done);
}

// ---- several inputs and outputs

static void a_layer_of_several_inputs_and_outputs_runs_and_trains(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer_counts n   = { .in = 3, .out = 2, .optional = 1 };
        tn_layer       *l   = tn_layer_new_n(cx, add_and_keep, n, NULL, NULL);
        tn_tensor      *w   = tn_layer_param(l, "w", rules_ramp(cx, 2));
        tn_tensor      *x[] = { rules_ramp(cx, 2), w, rules_ramp(cx, 2) }, *y[2];
        CHECK_STATUS(tn_forward_n(l, 3, x, 2, y), TN_OK);
        CHECK_VALUES(y[0], 2, 6);
        CHECK_VALUES(y[1], 1, 2);
        CHECK_STATUS(tn_forward_n(l, 2, x, 2, y), TN_OK);
        CHECK_VALUES(y[0], 1, 4);
        CHECK_STATUS(tn_backward(tn_add(tn_sum_all(y[0]), tn_sum_all(y[1])), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 2, 3);
        CHECK_STATUS(tn_forward_n(l, 3, x, 2, x), TN_OK);  // in place of what went in
        CHECK_VALUES(x[0], 2, 6);
        CHECK_VALUES(x[1], 1, 2);
    }
}

static void counts_that_do_not_fit_are_named(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_layer  *l  = tn_layer_new_n(cx, add_and_keep, (tn_layer_counts){ .in = 3, .out = 2 }, NULL,
                                   NULL);
    tn_layer  *o  = tn_layer_new_n(cx, add_and_keep, (tn_layer_counts){ 3, 1, 1 }, NULL, NULL);
    tn_tensor *x[17] = { rules_ramp(cx, 2), rules_ramp(cx, 2), rules_ramp(cx, 2) },
              *y[17] = { x[0] };
    CHECK_STATUS(tn_forward_n(l, 2, x, 2, y), TN_EARG);
    CHECK(y[0] == NULL && y[1] == NULL);
    CHECK_FAILED(cx, TN_EARG,
                 "forward_n: the layer takes 3 inputs and gives 2 outputs, not 2 and 2");
    CHECK(tn_forward(l, x[0]) == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward: the layer takes 3 inputs and gives 2 outputs, not 1 and 1");
    CHECK_STATUS(tn_forward_n(o, 1, x, 1, y), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "the layer takes 2 to 3 inputs and gives 1 output, not 1 and 1");
    CHECK_STATUS(tn_forward_n(tn_nn_act(cx, tn_relu), 2, x, 1, y), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "the layer takes 1 input and gives 1 output, not 2 and 1");
    CHECK_STATUS(tn_forward_n(l, 17, x, 2, y), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "forward_n: 17 inputs and 2 outputs: each is in 1 .. 16");
    CHECK_STATUS(tn_forward_n(l, 3, x, 2, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "forward_n: y is NULL");
    CHECK_STATUS(tn_forward_n(l, 3, NULL, 2, y), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "forward_n: x is NULL");
    x[1] = NULL;
    CHECK_STATUS(tn_forward_n(l, 3, x, 2, y), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "forward_n: x[1] is NULL");
    const tn_layer_counts bad[] = {
        { -1, 1, 0 }, { 17, 1, 0 }, { 1, -1, 0 }, { 2, 1, 2 }, { 2, 1, -1 }
    };
    for (int i = 0; i < 5; i++) {
        CHECK(tn_layer_new_n(cx, add_and_keep, bad[i], NULL, NULL) == NULL);
        CHECK_FAILED(cx, TN_EARG, "layer_new_n: ");
    }
    tn_close(cx);
}

static void one_input_and_one_output_run_by_either_call(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = rules_ramp(cx, 2), *y;
    CHECK_STATUS(tn_forward_n(tn_nn_act(cx, tn_neg), 1, &x, 1, &y), TN_OK);
    CHECK_VALUES(y, -1, -2);
    tn_layer_counts n = { .in = 2, .optional = 1 };
    tn_layer       *l = tn_layer_new_n(cx, add_and_keep, n, NULL, NULL);
    CHECK_STATUS(tn_forward_n(l, 2, (tn_tensor *[]){ x, x }, 1, &y), TN_OK);
    CHECK_VALUES(y, 1, 4);
    tn_close(cx);
}

static void doubles(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    (void)l;
    CHECK(nx == 1 && ny == 1);
    y[0] = tn_add(x[0], x[0]);
}

static void fills_half(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    (void)l;
    (void)nx;
    (void)ny;
    y[0] = tn_relu(x[0]);
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++) n++;
    return n;
}

static void a_layer_of_ports_stands_in_a_sequence_and_in_a_summary(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = tn_nn_seq(cx, tn_layer_new_n(cx, doubles, (tn_layer_counts){ 0 }, NULL, NULL),
                               tn_nn_act(cx, tn_neg));
    tn_tensor *x   = rules_ramp(cx, 2), *y[2];
    CHECK_VALUES(tn_forward(net, x), -2, -4);
    char  *text = NULL;
    size_t size = 0;
    FILE  *f    = open_memstream(&text, &size);
    CHECK_STATUS(tn_layer_summary(net, x, f), TN_OK);
    fclose(f);
    CHECK_INT(count_of(text, "(2,)"), 3);  // the sequence and both layers
    free(text);
    tn_layer *half = tn_layer_child(
        net, "half", tn_layer_new_n(cx, fills_half, (tn_layer_counts){ .out = 2 }, NULL, NULL));
    CHECK_STATUS(tn_forward_n(half, 1, &x, 2, y), TN_EUSER);
    CHECK(y[0] == NULL && y[1] == NULL);
    CHECK_FAILED(cx, TN_EUSER, "forward_n: the layer's function set no y[1] (in half)");
    tn_close(cx);
}

// Temporaries of the ops inside die with them, and what the function keeps in its scope dies with
// that.
static void ports_in_scopes_do_not_grow(void)
{
    tn_ctx         *cx     = rules_open("cpu");
    tn_layer_counts n      = { .in = 3, .out = 2 };
    tn_layer       *l      = tn_layer_new_n(cx, add_and_keep, n, NULL, NULL);
    tn_tensor      *h[3]   = { rules_there(cx, TN_SHAPE(100)), rules_there(cx, TN_SHAPE(100)),
                               rules_there(cx, TN_SHAPE(100)) };
    int64_t         before = 0;
    for (int i = 0; i < 20; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y[2];
        CHECK_STATUS(tn_forward_n(l, 3, h, 2, y), TN_OK);
        CHECK_STATUS(tn_eval_of(y[0]), TN_OK);
        tn_end(s);
        if (i == 3) before = tn_ctx_stats(cx).nodes;
    }
    CHECK_INT(tn_ctx_stats(cx).nodes, before);
    tn_close(cx);
}

const test_case tests_layer_ports[] = {
    TEST(a_container_holds_and_does_not_run),
    TEST(a_name_with_dots_is_a_path),
    TEST(a_path_that_fails_leaves_no_containers),
    TEST(paths_and_ports_survive_every_failing_allocation),
    TEST(a_layer_of_several_inputs_and_outputs_runs_and_trains),
    TEST(counts_that_do_not_fit_are_named),
    TEST(one_input_and_one_output_run_by_either_call),
    TEST(a_layer_of_ports_stands_in_a_sequence_and_in_a_summary),
    TEST(ports_in_scopes_do_not_grow),
    TEST_END,
};
