// test_explain_page.c: the page of a plan says what the text of it says, and names what each kernel
// reads.
#include "check.h"
#include "page_kit.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// Records a step of a small network, and leaves it pending in the scope that is open.
static void record(tn_ctx *cx)
{
    tn_tensor *x = rules_there(cx, TN_SHAPE(16, 24)), *w = rules_there(cx, TN_SHAPE(24, 8));
    tn_tensor *y = tn_softmax(tn_relu(tn_matmul(x, w)), 1);
    tn_want(tn_mean_all(tn_square(tn_matmul(tn_transpose(y, 0, 1), x))));
    tn_want(y);
}

static char *explained(tn_ctx *cx, const char *name, tn_explain_opts o)
{
    const char *path = scratch_path(name);
    FILE       *f    = fopen(path, "w");
    if (!CHECK(f != NULL)) return NULL;
    CHECK_STATUS(tn_explain_with(cx, f, o), TN_OK);
    fclose(f);
    return o.html ? page_data(path) : page_read(path);
}

static void says(const char *text, const char *what)
{
    test_that(text && strstr(text, what), "\"%s\" is not in: %.800s", what, text);
}

// Checks a step of the page against the text: its line, and the values that it stores.
static void check_step(const char *data, const char *text, int i)
{
    char path[64], line[512], name[128], sizes[128];
    snprintf(path, sizeof path, "plans.0.steps.%d.name", i);
    snprintf(name, sizeof name, "%s", page_text(data, path));
    snprintf(path, sizeof path, "plans.0.steps.%d.sizes", i);
    snprintf(sizes, sizeof sizes, "%s", page_text(data, path));
    snprintf(path, sizeof path, "plans.0.steps.%d.bytes", i);
    snprintf(line, sizeof line, "  %4d  %-10s %s  %.0f bytes\n", i + 1, name, sizes,
             page_number(data, path));
    says(text, line);
    snprintf(path, sizeof path, "plans.0.steps.%d.stored", i);
    for (int k = 0, n = page_count(data, path); k < n; k++) {
        snprintf(path, sizeof path, "plans.0.steps.%d.stored.%d.0", i, k);
        snprintf(sizes, sizeof sizes, "%s", page_text(data, path));
        snprintf(path, sizeof path, "plans.0.steps.%d.stored.%d.1", i, k);
        snprintf(line, sizeof line, "stored %s: %s\n", sizes, page_text(data, path));
        says(text, line);
    }
    snprintf(path, sizeof path, "plans.0.steps.%d.reads", i);
    for (int k = 0, n = page_count(data, path); k < n; k++) {
        snprintf(path, sizeof path, "plans.0.steps.%d.reads.%d.0", i, k);
        CHECK(page_number(data, path) < i);
    }
}

static void the_page_says_what_the_text_says(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope *s = tn_begin(cx);
        if (!CHECK(scratch_open())) break;
        record(cx);
        char *text = explained(cx, "p.txt", (tn_explain_opts){ .stored = true });
        char *data = explained(cx, "p.html", (tn_explain_opts){ .html = true });
        char  line[128];
        int   steps = page_count(data, "plans.0.steps");
        snprintf(line, sizeof line, "%d kernels, %.0f bytes moved, %.0f at least\n", steps,
                 page_number(data, "plans.0.moved"), page_number(data, "plans.0.least"));
        says(text, line);
        CHECK_INT(page_number(data, "plans.0.kernels"), steps);
        for (int i = 0; i < steps; i++) check_step(data, text, i);
        free(text);
        free(data);
        scratch_close();
        tn_end(s);
    }
}

// On the cpu the softmax is one kernel with the ops that it is made of, and the last product reads
// it.
static void a_kernel_has_its_ops_its_text_and_its_sources(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_scope *s  = tn_begin(cx);
    if (!CHECK(scratch_open())) return;
    record(cx);
    char *data = explained(cx, "p.html", (tn_explain_opts){ .html = true });
    CHECK_STR(page_text(data, "plans.0.steps.0.ops.0"), "matmul");
    CHECK(page_count(data, "plans.0.steps.1.ops") >= 4);
    CHECK(page_count(data, "plans.0.steps.0.inputs") >= 2);
    CHECK(page_count(data, "plans.0.steps.1.reads") >= 1);
    CHECK_NEAR(page_number(data, "plans.0.steps.1.reads.0.0"), 0, 0);
    says(page_text(data, "plans.0.steps.1.instructions"), "map");
    says(page_text(data, "plans.0.steps.0.lines.0"), "test_explain_page.c:");
    free(data);
    scratch_close();
    tn_end(s);
    tn_close(cx);
}

// TN_EXPLAIN with the name of a page: all plans of a context, when it closes.
static void the_environment_asks_for_a_page(void)
{
    if (getenv("TN_EXPLAIN")) SKIP("TN_EXPLAIN is set");
    if (!CHECK(scratch_open())) return;
    setenv("TN_EXPLAIN", scratch_path("all.html"), 1);
    tn_ctx   *cx = rules_open("cpu");
    tn_scope *s  = tn_begin(cx);
    unsetenv("TN_EXPLAIN");
    record(cx);
    tn_eval(cx);
    tn_want(tn_exp(rules_there(cx, TN_SHAPE(3))));
    tn_eval(cx);
    tn_end(s);
    tn_close(cx);
    char *data = page_data(scratch_path("all.html"));
    CHECK(page_count(data, "plans") >= 2);
    free(data);
    scratch_close();
}

static void a_page_says_how_many_plans_it_leaves_out(void)
{
    enum { MANY = 70, SHOWN = 64 };
    if (getenv("TN_EXPLAIN")) SKIP("TN_EXPLAIN is set");
    if (!CHECK(scratch_open())) return;
    setenv("TN_EXPLAIN", scratch_path("many.html"), 1);
    tn_ctx *cx = rules_open("cpu");
    unsetenv("TN_EXPLAIN");
    for (int i = 0; i < MANY; i++) {
        tn_scope *s = tn_begin(cx);
        tn_want(tn_exp(tn_zeros(cx, TN_F32, TN_SHAPE(i + 1))));
        tn_eval(cx);
        tn_end(s);
    }
    int64_t built = tn_ctx_stats(cx).plans;
    tn_close(cx);
    char *data = page_data(scratch_path("many.html"));
    CHECK_INT(page_count(data, "plans"), SHOWN);
    CHECK_INT(page_number(data, "left"), built - SHOWN);
    free(data);
    scratch_close();
}

const test_case tests_explain_page[] = { TEST(the_page_says_what_the_text_says),
                                         TEST(a_kernel_has_its_ops_its_text_and_its_sources),
                                         TEST(the_environment_asks_for_a_page),
                                         TEST(a_page_says_how_many_plans_it_leaves_out), TEST_END };
