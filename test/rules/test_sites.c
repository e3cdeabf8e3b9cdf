// test_sites.c: who is named: the innermost line of the user's code, the layer that was running,
// and the outermost call, in errors, in plans, in profiles and by the switches that look for wrong
// numbers.
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

// ---- what a handler is told

static struct {
    tn_status code;
    char      text[700], file[300], layer[700], outer_file[300];
    int       line, outer_line, times;
} told;

static void remember(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    (void)user;
    told.code = f->code;
    told.line = f->line;
    snprintf(told.text, sizeof told.text, "%s", f->text);
    snprintf(told.file, sizeof told.file, "%s", f->file);
    snprintf(told.layer, sizeof told.layer, "%s", f->layer);
    snprintf(told.outer_file, sizeof told.outer_file, "%s", f->outer_file);
    told.outer_line = f->outer_line;
    told.times++;
}

static tn_ctx *open_told(void)
{
    told.times = 0;
    return tn_open_with((tn_open_opts){ .device = "cpu", .handler = remember });
}

// Whether the one error was told with these lines of this file and this layer; clears it.
static bool was_told(tn_ctx *cx, int line, const char *layer, int outer_line)
{
    bool ok = told.times == 1 && told.line == line && told.outer_line == outer_line &&
              !strcmp(told.layer, layer) && !strcmp(told.file, __FILE__) &&
              !strcmp(told.outer_file, __FILE__);
    test_that(ok,
              "told %d times: %s:%d: \"%s\", in \"%s\", from %s:%d, not line %d in \"%s\" from %d",
              told.times, told.file, told.line, told.text, told.layer, told.outer_file,
              told.outer_line, line, layer, outer_line);
    told.times = 0;
    tn_error_clear(cx);
    return ok;
}

// ---- layers of a user's

static int inner_line;  // of the call that fails in them

// Relu, then a product that fits no x but one of 4 columns.
static tn_tensor *multiplies(tn_layer *l, tn_tensor *x)
{
    x          = tn_relu(x);
    inner_line = __LINE__ + 1;
    return tn_matmul(x, tn_layer_find(l, "w"));
}

static tn_layer *multiplier(tn_ctx *cx)
{
    tn_layer *l = tn_layer_new(cx, multiplies, NULL, NULL);
    tn_layer_param(l, "w", tn_ones(cx, TN_F32, TN_SHAPE(4, 4)));
    return l;
}

static int middle_line;

static tn_tensor *runs_its_child(tn_layer *l, tn_tensor *x)
{
    middle_line = __LINE__ + 1;
    return tn_forward(tn_layer_find_child(l, "conv1"), x);
}

// "layer3.2.conv1": containers, a layer of the user's and the child that it runs.
static tn_layer *tree(tn_ctx *cx, tn_layer *child)
{
    tn_layer *net = tn_layer_new(cx, NULL, NULL, NULL);
    tn_layer *l   = tn_layer_child(net, "layer3.2", tn_layer_new(cx, runs_its_child, NULL, NULL));
    tn_layer_child(l, "conv1", child);
    return net;
}

static void an_error_names_the_innermost_line_the_layer_and_the_outermost_line(void)
{
    tn_ctx    *cx  = open_told();
    tn_tensor *x   = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));
    tn_layer  *net = tree(cx, multiplier(cx)), *l = tn_layer_find_child(net, "layer3.2");
    int        line = __LINE__ + 1;
    CHECK(tn_forward(l, x) == NULL);
    CHECK_STR(told.text, "matmul: (2, 3) @ (4, 4): inner sizes differ (in layer3.2.conv1)");
    CHECK_STR(tn_error_text(cx), told.text);
    was_told(cx, inner_line, "layer3.2.conv1", line);
    line = __LINE__ + 1;
    CHECK(tn_matmul(x, x) == NULL);  // nothing of the layers is left
    CHECK_STR(told.text, "matmul: (2, 3) @ (2, 3): inner sizes differ");
    was_told(cx, line, "", line);
    tn_close(cx);
}

static void a_layer_of_ours_is_named_by_its_path_and_the_users_forward(void)
{
    tn_ctx    *cx   = open_told();
    tn_tensor *x    = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));
    tn_layer  *net  = tree(cx, tn_nn_seq(cx, tn_nn_flatten(cx), tn_nn_linear(cx, 4, 4)));
    int        line = __LINE__ + 1;
    CHECK(tn_forward(tn_layer_find_child(net, "layer3.2"), x) == NULL);
    was_told(cx, middle_line, "layer3.2.conv1.1", line);
    line = __LINE__ + 1;
    CHECK(tn_forward(tn_layer_find_child(net, "layer3.2.conv1"), x) == NULL);
    was_told(cx, line, "layer3.2.conv1.1", line);
    net  = tn_nn_seq(cx, tn_nn_flatten(cx), tn_nn_linear(cx, 4, 4));
    line = __LINE__ + 1;
    CHECK(tn_forward(net, x) == NULL);
    CHECK(strstr(told.text, " (in layer 1)") != NULL);  // a number alone says little
    was_told(cx, line, "1", line);
    tn_close(cx);
}

static int act_line;

static tn_tensor *bad_act(tn_tensor *x)
{
    tn_tensor *y = tn_sigmoid(x);
    act_line     = __LINE__ + 1;
    return tn_matmul(y, x);
}

static void a_function_that_a_layer_of_ours_runs_has_its_own_lines(void)
{
    tn_ctx    *cx  = open_told();
    tn_tensor *x   = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));
    tn_layer  *l[] = { tn_nn_seq(cx, tn_nn_act(cx, bad_act)),
                       tn_nn_seq(cx, tn_nn_residual_with(cx, tn_nn_act(cx, tn_relu),
                                                         (tn_nn_residual_opts){ .f = bad_act })) };
    for (int i = 0; i < 2; i++) {
        int line = __LINE__ + 1;
        CHECK(tn_forward(l[i], x) == NULL);
        was_told(cx, act_line, "0", line);
    }
    tn_close(cx);
}

static int grad_line;

static tn_status bad_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                          tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr;
    (void)y;
    (void)gy;
    grad_line = __LINE__ + 1;
    gx[0]     = tn_matmul(x[0], x[0]);
    return gx[0] ? TN_OK : TN_EUSER;
}

static tn_tensor *uses_an_op(tn_layer *l, tn_tensor *x)
{
    (void)l;
    static tn_op_def op;
    op      = rules_twice;
    op.grad = bad_grad;
    return tn_custom(&op, &x, NULL, 0);
}

static void an_error_of_a_backward_pass_names_the_layer(void)
{
    tn_ctx    *cx   = open_told();
    tn_layer  *net  = tn_layer_new(cx, NULL, NULL, NULL);
    tn_layer  *l    = tn_layer_child(net, "body.op", tn_layer_new(cx, uses_an_op, NULL, NULL));
    tn_tensor *x    = tn_layer_param(net, "x", tn_ones(cx, TN_F32, TN_SHAPE(2, 3)));
    tn_tensor *y    = tn_sum_all(tn_forward(l, x));
    int        line = __LINE__ + 1;
    CHECK(tn_backward(y, NULL) != TN_OK);
    CHECK_STR(told.text, "matmul: (2, 3) @ (2, 3): inner sizes differ (in body.op)");
    was_told(cx, grad_line, "body.op", line);
    tn_close(cx);
}

static void a_model_of_ours_keeps_the_users_line(void)
{
    tn_ctx    *cx   = open_told();
    tn_layer  *net  = tn_resnet(cx, (tn_resnet_opts){ .depth = 20, .classes = 10 });
    tn_tensor *x    = tn_ones(cx, TN_F32, TN_SHAPE(1, 4, 8, 8));
    int        line = __LINE__ + 1;
    CHECK(tn_forward(net, x) == NULL);
    was_told(cx, line, "conv1", line);
    tn_close(cx);
}

// Prints the first error as it does for everyone.
static void the_default_handler_prints_both_lines(void)
{
    char text[1024] = { 0 };
    if (!CHECK(scratch_open())) return;
    FILE *keep = stderr, *f = fopen(scratch_path("stderr"), "w+");
    if (!CHECK(f != NULL)) return;
    stderr        = f;
    tn_ctx   *cx  = tn_open("cpu");
    tn_layer *net = tree(cx, multiplier(cx)), *l = tn_layer_find_child(net, "layer3.2");
    int       line = __LINE__ + 1;
    tn_forward(l, tn_ones(cx, TN_F32, TN_SHAPE(2, 3)));
    stderr = keep;
    rewind(f);
    CHECK(fread(text, 1, sizeof text - 1, f) > 0);
    char want[1024];
    snprintf(
        want, sizeof want,
        "%s: matmul: (2, 3) @ (4, 4): inner sizes differ (in layer3.2.conv1), called from %s\n",
        SITE(inner_line), SITE(line));
    CHECK_STR(text, want);
    fclose(f);
    tn_close(cx);
    scratch_close();
}

// ---- long names, lives

static void a_path_of_any_length_leaves_the_layer_in_the_text(void)
{
    char    name[3000] = { 0 };
    tn_ctx *cx         = open_told();
    for (int i = 0; i < 400; i++) strcat(name, i ? ".layer" : "layer");
    tn_layer *net = tn_layer_new(cx, NULL, NULL, NULL);
    tn_layer *l   = tn_layer_child(net, name, multiplier(cx));
    CHECK(tn_forward(l, tn_ones(cx, TN_F32, TN_SHAPE(2, 3))) == NULL);
    CHECK(strstr(told.text, " (in layer.layer.layer") != NULL);
    CHECK(told.text[strlen(told.text) - 1] == ')');
    tn_error_clear(cx);
    tn_layer *user = tn_layer_child(net, "other", tn_layer_new(cx, runs_its_child, NULL, NULL));
    CHECK(tn_forward(user, tn_ones(cx, TN_F32, TN_SHAPE(2, 3))) == NULL);
    CHECK(strstr(tn_error_text(cx), "there is no layer \"conv1\" (in other)") != NULL);
    tn_close(cx);
}

static void a_layer_that_moves_has_a_new_path(void)
{
    tn_ctx    *cx = open_told();
    tn_tensor *x  = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));
    tn_layer  *a = tn_nn_seq(cx, multiplier(cx)), *net = tn_layer_new(cx, NULL, NULL, NULL);
    CHECK(tn_forward(a, x) == NULL);
    CHECK_STR(told.layer, "0");
    tn_error_clear(cx);
    tn_layer_child(net, "stem", a);
    CHECK(tn_forward(a, x) == NULL);
    CHECK_STR(told.layer, "stem.0");
    tn_close(cx);
}

static char *explained(tn_ctx *cx)
{
    char  *text = NULL;
    size_t size = 0;
    FILE  *f    = open_memstream(&text, &size);
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    return text;
}

static bool has_site(const char *text, int line, const char *rest)
{
    char want[512];
    snprintf(want, sizeof want, "%s %s", SITE(line), rest);
    return test_that(strstr(text, want) != NULL, "no \"%s\" in:\n%s", want, text);
}

static void values_name_their_layer_after_it_is_freed(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = tree(cx, tn_nn_act(cx, tn_exp));
    tn_tensor *y   = tn_forward(tn_layer_find_child(net, "layer3.2"), rules_ramp(cx, 3));
    tn_layer_free(net);
    char *text = explained(cx);
    has_site(text, middle_line, "forward in layer3.2.conv1\n");
    free(text);
    CHECK_NEAR(tn_item(tn_select(y, 0, 0)), exp(1), 1e-5);
    tn_close(cx);
}

static tn_ctx *elsewhere;

static tn_tensor *records_elsewhere(tn_layer *l, tn_tensor *x)
{
    (void)l;
    tn_keep(tn_exp(tn_ones(elsewhere, TN_F32, TN_SHAPE(2))));
    return tn_relu(x);
}

static void another_context_does_not_keep_a_path_that_dies(void)
{
    tn_ctx *cx = rules_open("cpu");
    elsewhere  = rules_open("cpu");
    CHECK(tn_forward(tn_nn_seq(cx, tn_layer_new(cx, records_elsewhere, NULL, NULL)),
                     rules_ramp(cx, 2)) != NULL);
    tn_close(cx);
    char *text = explained(elsewhere);
    CHECK(strstr(text, " exp") != NULL && strstr(text, " in ") == NULL);
    free(text);
    tn_close(elsewhere);
}

// ---- plans, profiles, switches

static void a_plan_names_lines_and_layers_of_both_directions(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = tree(cx, multiplier(cx)), *l = tn_layer_find_child(net, "layer3.2");
    tn_tensor *x = rules_there(cx, TN_SHAPE(64, 4));
    tn_backward(tn_sum_all(tn_forward(l, x)), NULL);
    int   line = __LINE__ - 1;
    char *text = explained(cx);
    has_site(text, inner_line, "matmul in layer3.2.conv1\n");
    has_site(text, line, "backward in layer3.2.conv1\n");
    free(text);
    tn_close(cx);
}

static char *profiled(tn_ctx *cx, tn_layer *net, tn_tensor *x, const char *name)
{
    CHECK_STATUS(tn_profile_begin(cx), TN_OK);
    tn_eval_of(tn_forward(net, x));
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    CHECK_STATUS(tn_profile_write(cx, scratch_path(name)), TN_OK);
    FILE *f    = fopen(scratch_path(name), "r");
    char *text = calloc(1, 1 << 16);
    if (f && text) CHECK(fread(text, 1, (1 << 16) - 1, f) > 0);
    if (f) fclose(f);
    return text;
}

static int lines_with(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++) n++;
    return n;
}

static void a_profile_names_layers_and_puts_equal_ones_in_one_row(void)
{
    if (!CHECK(scratch_open())) return;
    tn_ctx    *cx = rules_open("ref");
    tn_layer  *l[6];
    tn_tensor *x = rules_there(cx, TN_SHAPE(8, 8));
    for (int i = 0; i < 6; i++) l[i] = tn_nn_act(cx, tn_sin);
    tn_layer *net  = tn_nn_seq_n(cx, 6, l);
    char     *text = profiled(cx, net, x, "table");
    CHECK(strstr(text, "forward in layer 0; alike in 1, 2, 3, and 2 more\n") != NULL);
    CHECK_INT(lines_with(text, "sin (8, 8)"), 1);
    free(text);
    text = profiled(cx, net, x, "trace.json");
    for (int i = 0; i < 6; i++) {
        char want[32];
        snprintf(want, sizeof want, "forward in layer %d\"", i);
        CHECK_INT(lines_with(text, want), 1);
    }
    free(text);
    tn_close(cx);
    scratch_close();
}

static int log_line;

static tn_tensor *takes_logs(tn_layer *l, tn_tensor *x)
{
    (void)l;
    log_line = __LINE__ + 1;
    return tn_log(x);
}

static void a_nan_is_named_with_its_layer_and_both_lines(void)
{
    setenv("TN_CHECK", "nan", 1);
    tn_ctx *cx = rules_open("cpu");
    unsetenv("TN_CHECK");
    tn_layer  *net  = tn_nn_seq(cx, tn_nn_flatten(cx), tn_layer_new(cx, takes_logs, NULL, NULL));
    tn_tensor *y    = tn_forward(net, tn_neg(tn_ones(cx, TN_F32, TN_SHAPE(2, 2))));
    int        line = __LINE__ - 1;
    tn_item(tn_sum_all(y));
    char want[512];
    snprintf(want, sizeof want, "(recorded at %s in layer 1, called from %s)", SITE(log_line),
             SITE(line));
    CHECK_FAILED2(cx, TN_EARG, "check: log made nan", want);
    tn_close(cx);
}

const test_case tests_sites[] = {
    TEST(an_error_names_the_innermost_line_the_layer_and_the_outermost_line),
    TEST(a_layer_of_ours_is_named_by_its_path_and_the_users_forward),
    TEST(a_function_that_a_layer_of_ours_runs_has_its_own_lines),
    TEST(an_error_of_a_backward_pass_names_the_layer),
    TEST(a_model_of_ours_keeps_the_users_line),
    TEST(the_default_handler_prints_both_lines),
    TEST(a_path_of_any_length_leaves_the_layer_in_the_text),
    TEST(a_layer_that_moves_has_a_new_path),
    TEST(values_name_their_layer_after_it_is_freed),
    TEST(another_context_does_not_keep_a_path_that_dies),
    TEST(a_plan_names_lines_and_layers_of_both_directions),
    TEST(a_profile_names_layers_and_puts_equal_ones_in_one_row),
    TEST(a_nan_is_named_with_its_layer_and_both_lines),
    TEST_END,
};
