// test_report.c: reports from C: what their pages hold, what is read again, and what is refused.
#include "check.h"
#include "faulty.h"
#include "page_kit.h"
#include "rules_kit.h"
#include "scratch.h"

#include "tensor/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// A small report of everything that there is.
static tn_report *example(tn_ctx *cx)
{
    static const char *const names[]  = { "cat", "d<og" };
    static const int64_t     counts[] = { 5, 1, 0, 4 };

    float      pixels[6] = { 0, 0.5f, 1, 1, 0.5f, 0 };
    tn_report *r         = tn_report_open(cx, "a <run>");
    for (int i = 1; i <= 20; i++) tn_report_scalar(r, "loss", i, 1.0 / i);
    tn_report_scalar(r, "loss", 21, NAN);
    tn_report_scalar(r, "test_loss", 20, 0.25);
    tn_report_setting(r, "lr", "0.1");
    tn_report_setting(r, "lr", "0.01");
    tn_report_figure(r, "accuracy", 0.9);
    tn_report_confusion(r, 2, counts, names);
    tn_report_sample(r, tn_from(cx, TN_F32, TN_SHAPE(2, 3), pixels),
                     (tn_report_sample_opts){
                         .truth = "cat", .prediction = "d<og", .chance = 0.5 });
    tn_report_sample(r, NULL, (tn_report_sample_opts){ .text = "5, 3", .prediction = "cat" });
    return r;
}

static void check_example(const char *data)
{
    if (!CHECK(data != NULL)) return;
    CHECK_STR(page_text(data, "kind"), "report");
    CHECK_STR(page_text(data, "title"), "a <run>");
    CHECK_INT(page_count(data, "curves"), 2);
    CHECK_STR(page_text(data, "curves.0.name"), "loss");
    CHECK_INT(page_count(data, "curves.0.points"), 21);
    CHECK_NEAR(page_number(data, "curves.0.points.2.0"), 3, 0);
    CHECK_NEAR(page_number(data, "curves.0.points.2.1"), 1.0 / 3, 1e-9);
    CHECK_NEAR(page_number(data, "curves.1.points.0.1"), 0.25, 0);
    CHECK_INT(page_count(data, "settings"), 1);
    CHECK_STR(page_text(data, "settings.0.1"), "0.01");
    CHECK_NEAR(page_number(data, "figures.0.1"), 0.9, 1e-12);
    CHECK_STR(page_text(data, "confusion.names.1"), "d<og");
    CHECK_NEAR(page_number(data, "confusion.counts.0.1"), 1, 0);
    CHECK_NEAR(page_number(data, "confusion.counts.1.1"), 4, 0);
    CHECK_INT(page_count(data, "samples"), 2);
    CHECK(!strncmp(page_text(data, "samples.0.image"), "data:image/png;base64,iVBORw0KGgo", 32));
    CHECK_STR(page_text(data, "samples.0.prediction"), "d<og");
    CHECK_STR(page_text(data, "samples.1.text"), "5, 3");
    CHECK_STR(page_text(data, "machine.0.1"), "cpu");
}

static void a_page_has_what_was_added(void)
{
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    CHECK_STATUS(tn_report_write(example(cx), scratch_path("r.html")), TN_OK);
    char *data = page_data(scratch_path("r.html"));
    check_example(data);
    free(data);
    scratch_close();
    tn_close(cx);
}

// Names that every object of a script has, and a matrix of more elements than a call takes
// arguments.
static void scripts_run_to_their_end(void)
{
    enum { CLASSES = 500 };
    static int64_t counts[CLASSES * CLASSES];
    tn_ctx        *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    tn_report *r = tn_report_open(cx, "odd names");
    for (int i = 0; i < CLASSES * CLASSES; i++) counts[i] = i % 7;
    tn_report_confusion(r, CLASSES, counts, NULL);
    tn_report_scalar(r, "hasOwnProperty", 1, 2);
    tn_report_scalar(r, "loss", 1, INFINITY);
    tn_report_figure(r, "constructor", 1);
    tn_report_setting(r, "__proto__", "1");
    CHECK_STATUS(tn_report_write(r, scratch_path("r.html")), TN_OK);
    CHECK_STATUS(tn_report_compare(r, r, scratch_path("c.html"), NULL), TN_OK);
    free(page_data(scratch_path("r.html")));
    free(page_data(scratch_path("c.html")));
    scratch_close();
    tn_close(cx);
}

static void a_page_that_is_read_is_written_alike(void)
{
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    tn_report_write(example(cx), scratch_path("a.html"));
    tn_report *again = tn_report_read(cx, scratch_path("a.html"));
    if (!CHECK(again != NULL)) return;
    CHECK_STATUS(tn_report_write(again, scratch_path("b.html")), TN_OK);
    char *a = page_data(scratch_path("a.html")), *b = page_data(scratch_path("b.html"));
    check_example(b);
    CHECK(a && b && strlen(a) == strlen(b));
    // A run that goes on from step 5 forgets what came after.
    CHECK_STATUS(tn_report_rewind(again, 5), TN_OK);
    CHECK_STATUS(tn_report_scalar(again, "loss", 6, 7), TN_OK);
    tn_report_write(again, scratch_path("c.html"));
    char *c = page_data(scratch_path("c.html"));
    CHECK_INT(page_count(c, "curves.0.points"), 6);
    CHECK_NEAR(page_number(c, "curves.0.points.5.1"), 7, 0);
    CHECK_INT(page_count(c, "curves.1.points"), 0);
    CHECK_INT(page_count(c, "samples"), 0);
    free(a);
    free(b);
    free(c);
    scratch_close();
    tn_close(cx);
}

// The page of a long run has means, and the lowest and the highest of the values that they stand
// for.
static void long_curves_are_shortened(void)
{
    enum { STEPS = 10000 };
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    tn_report *r = tn_report_open(cx, "long");
    for (int i = 1; i <= STEPS; i++) tn_report_scalar(r, "x", i, i % 4);
    tn_report_write(r, scratch_path("r.html"));
    char  *data   = page_data(scratch_path("r.html"));
    double stride = page_number(data, "curves.0.stride");
    CHECK_NEAR(stride, 4, 0);
    CHECK_INT(page_count(data, "curves.0.points"), STEPS / 4);
    CHECK_NEAR(page_number(data, "curves.0.points.9.0"), 40, 0);
    CHECK_NEAR(page_number(data, "curves.0.points.9.1"), 1.5, 0);
    CHECK_NEAR(page_number(data, "curves.0.points.9.2"), 0, 0);
    CHECK_NEAR(page_number(data, "curves.0.points.9.3"), 3, 0);
    free(data);
    // Read again, it goes on in the same steps.
    r = tn_report_read(cx, scratch_path("r.html"));
    for (int i = 1; i <= 8; i++) tn_report_scalar(r, "x", STEPS + i, 2);
    tn_report_write(r, scratch_path("r.html"));
    data = page_data(scratch_path("r.html"));
    CHECK_INT(page_count(data, "curves.0.points"), STEPS / 4 + 2);
    free(data);
    scratch_close();
    tn_close(cx);
}

// Logs and pages come from elsewhere, whole or not.
static void what_is_no_report_is_refused(void)
{
    static const char *const bad[] = {
        "",
        "text",
        "{\"step\": 1, \"loss\": 2}\n{\"step\": 1, \"loss\": 2}\n",  // twice
        "{\"step\": 1, \"loss\": \"much\"}\n",
        "{\"loss\": 1}\n",
        "<script id=\"data\" type=\"application/json\">{}</script>",
        "<script id=\"data\" type=\"application/json\">{\"kind\":\"profile\"}</script>",
        "<script id=\"data\" type=\"application/json\">{\"kind\":\"report\",\"curves\":[[]]}</script>",
        "<script id=\"data\" type=\"application/json\">{\"kind\":\"report\",\"curves\":[{\"name\":\"a\","
        "\"points\":[[2,1],[1,1]]}]}</script>",
        "<script id=\"data\" type=\"application/json\">{\"kind\":\"report\",\"confusion\":{\"names\":"
        "[\"a\",\"b\"],\"counts\":[[1,2]]}}</script>",
        "<script id=\"data\" type=\"application/json\">{\"kind\":\"report\",\"samples\":[{\"image\":"
        "\"http://example.com/a.png\"}]}</script>",
        "<script id=\"data\" type=\"application/json\">{\"kind\":\"report\"",
    };
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scratch_write(scratch_path("bad"), bad[i], strlen(bad[i]));
        tn_report *r = tn_report_read(cx, scratch_path("bad"));
        test_case_result(!r && tn_error(cx) == TN_EFORMAT, "%s: %s", bad[i], tn_error_text(cx));
        tn_error_clear(cx);
    }
    CHECK(!tn_report_read(cx, scratch_path("nothing")));
    CHECK_FAILED(cx, TN_EIO, "report_read: ");
    tn_report *r = tn_report_open(cx, "r");
    CHECK_STATUS(tn_report_scalar(r, "a", 3, 1), TN_OK);
    CHECK_STATUS(tn_report_scalar(NULL, "a", 3, 1), TN_EARG);
    CHECK_STR(tn_error_text(NULL), "report_scalar: the report is NULL");
    tn_error_clear(NULL);
    CHECK_STATUS(tn_report_scalar(r, "a", 3, 1), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "report_scalar: step 3 of \"a\" comes too late");
    CHECK_STATUS(tn_report_scalar(r, "", 1, 1), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "report_scalar: the name is empty");
    CHECK_STATUS(tn_report_figure(r, "", 1), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "report_figure: the name is empty");
    CHECK_STATUS(tn_report_setting(r, "", "x"), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "report_setting: the name is empty");
    CHECK_STATUS(tn_report_setting(r, "a", "\xff"), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "report_setting: the text is not UTF-8");
    CHECK_STATUS(tn_report_sample(r, NULL, (tn_report_sample_opts){ .truth = "a" }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "report_sample: neither picture nor text");
    CHECK_STATUS(tn_report_confusion(r, 0, (int64_t[]){ 1 }, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "report_confusion: ");
    CHECK_STATUS(tn_report_write(r, "/no/such/folder/r.html"), TN_EIO);
    tn_error_clear(cx);
    scratch_close();
    tn_close(cx);
}

// A log that is still being written may end within a line.
static void a_log_is_read_up_to_its_last_whole_line(void)
{
    static const char log[] = "{\"step\": 1, \"epoch\": 1, \"loss\": 2.5, \"time\": 0.1}\n"
                              "{\"step\": 2, \"epoch\": 1, \"loss\": null, \"test_loss\": 1.5}\n"
                              "{\"step\": 3, \"ep";
    tn_ctx           *cx    = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    scratch_write(scratch_path("run.log"), log, sizeof log - 1);
    tn_report *r = tn_report_read(cx, scratch_path("run.log"));
    if (!CHECK(r != NULL)) return;
    tn_report_write(r, scratch_path("r.html"));
    char *data = page_data(scratch_path("r.html"));
    CHECK_STR(page_text(data, "title"), "run.log");
    CHECK_INT(page_count(data, "curves"), 2);
    CHECK_INT(page_count(data, "curves.0.points"), 2);
    CHECK_NEAR(page_number(data, "curves.0.points.0.1"), 2.5, 0);
    CHECK_STR(page_text(data, "figures.0.0"), "test_loss");
    CHECK_NEAR(page_number(data, "figures.0.1"), 1.5, 0);
    free(data);
    scratch_close();
    tn_close(cx);
}

static void two_runs_are_compared(void)
{
    tn_ctx *cx = rules_open("cpu");
    char   *text;
    size_t  bytes;
    if (!CHECK(scratch_open())) return;
    tn_report *a = example(cx), *b = example(cx);
    tn_report_setting(b, "lr", "0.02");
    tn_report_setting(b, "batch", "64");
    tn_report_figure(b, "accuracy", 0.95);
    tn_report_figure(a, "items", 12811671);
    tn_report_figure(b, "items", 12811679);
    tn_report_scalar(b, "more", 1, 3);
    FILE *f = open_memstream(&text, &bytes);
    CHECK_STATUS(tn_report_compare(a, b, scratch_path("c.html"), f), TN_OK);
    fclose(f);
    char *page = page_data(scratch_path("c.html"));
    CHECK_STR(page_text(page, "kind"), "comparison");
    CHECK_STR(page_text(page, "runs.0.settings.0.1"), "0.01");
    CHECK_STR(page_text(page, "runs.1.settings.0.1"), "0.02");
    CHECK_NEAR(page_number(page, "runs.1.figures.0.1"), 0.95, 1e-12);
    CHECK(strstr(text, "lr                                   0.01             0.02\n") != NULL);
    CHECK(strstr(text, "batch                                   -               64\n") != NULL);
    CHECK(strstr(text,
                 "accuracy                              0.9             0.95            +0.05\n"));
    CHECK(strstr(text, "more                                    -                3\n") != NULL);
    CHECK(strstr(text,
                 "items                            12811671         12811679               +8\n"));
    CHECK_NEAR(page_number(page, "runs.0.figures.1.1"), 12811671, 0);
    free(page);
    free(text);
    scratch_close();
    tn_close(cx);
}

// Everything once, in memory where allocation n fails.
static void try_all(tn_ctx *cx)
{
    tn_report *a = example(cx), *b = NULL;
    if (a && tn_report_write(a, scratch_path("f.html")) == TN_OK)
        b = tn_report_read(cx, scratch_path("f.html"));
    if (b) tn_report_compare(a, b, scratch_path("g.html"), NULL);
    tn_tensorboard *t = tn_tensorboard_open(cx, scratch_path("t"), (tn_tensorboard_opts){ 0 });
    if (!t) return;
    tn_tensorboard_scalar(t, "a", 1, 2);
    tn_tensorboard_histogram(t, "h", 1, tn_ones(cx, TN_F32, TN_SHAPE(3)));
    tn_tensorboard_image(t, "p", 1, tn_ones(cx, TN_F32, TN_SHAPE(3, 3)), (tn_image_show_opts){ 0 });
}

static void allocations_that_fail_are_errors_and_leak_nothing(void)
{
    long passes = 0;
    if (!CHECK(scratch_open())) return;
    bool any = true;
    for (long n = 1; any && n < 100000; n += 1 + n / 64) {  // all of the first, then fewer
        faulty  h  = { .countdown = n };
        tn_ctx *cx = faulty_open("cpu", &h);
        tn_error_clear(NULL);
        if (!cx) continue;
        cx->heap.keeps = false;  // so that every block is asked for
        try_all(cx);
        any = h.failed > 0;
        passes += any;
        test_case_result(!any || tn_error(cx) == TN_EMEM || tn_error(cx) == TN_OK, "%ld: %s", n,
                         tn_error_text(cx));
        tn_close(cx);
        test_case_result(faulty_left(&h) == 0, "%ld: %ld blocks are left", n, faulty_left(&h));
    }
    CHECK(passes > 50);
    scratch_close();
}

const test_case tests_report[] = { TEST(a_page_has_what_was_added),
                                   TEST(scripts_run_to_their_end),
                                   TEST(a_page_that_is_read_is_written_alike),
                                   TEST(long_curves_are_shortened),
                                   TEST(what_is_no_report_is_refused),
                                   TEST(a_log_is_read_up_to_its_last_whole_line),
                                   TEST(two_runs_are_compared),
                                   TEST(allocations_that_fail_are_errors_and_leak_nothing),
                                   TEST_END };
