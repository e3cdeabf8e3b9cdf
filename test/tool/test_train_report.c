// test_train_report.c: the page of `tenon train --report`, beside the log and the text of the same
// run.
#include "cli_kit.h"
#include "page_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN                                                                                \
    "tenon train --model mlp --hidden 16 --data digits:count=640 --batch 64 --eval-every 5 " \
    "--log run.log --report run.html --save m.safetensors "

// The number after a key in a line of the log; NaN if the line has none.
static double logged(const char *line, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(line, key), *end = strchr(line, '\n');
    return at && at < end ? strtod(at + strlen(key), NULL) : NAN;
}

// A curve of the page must have the values that lines of the log have by its name, and no others.
// Returns how many.
static int check_curve(const char *page, const char *log, int curve)
{
    char path[64], name[64];
    int  n = 0;
    snprintf(path, sizeof path, "curves.%d.name", curve);
    snprintf(name, sizeof name, "%s", page_text(page, path));
    for (const char *line = log; *line; line = strchr(line, '\n') + 1) {
        double v = logged(line, name);
        if (isnan(v)) continue;
        snprintf(path, sizeof path, "curves.%d.points.%d.0", curve, n);
        CHECK_NEAR(page_number(page, path), logged(line, "step"), 0);
        snprintf(path, sizeof path, "curves.%d.points.%d.1", curve, n++);
        double shown = page_number(page, path);
        test_case_result(fabs(shown - v) <= 1e-5 * fabs(v), "%s: %g, not %g", name, shown, v);
    }
    snprintf(path, sizeof path, "curves.%d.points", curve);
    CHECK_INT(page_count(page, path), n);
    return n;
}

// The value of a result of the page.
static double figure(const char *page, const char *name)
{
    char path[64];
    for (int i = 0; i < page_count(page, "figures"); i++) {
        snprintf(path, sizeof path, "figures.%d.0", i);
        if (strcmp(page_text(page, path), name)) continue;
        snprintf(path, sizeof path, "figures.%d.1", i);
        return page_number(page, path);
    }
    return NAN;
}

static void check_matrix(const char *page)
{
    double all = 0, right = 0;
    char   path[64];
    CHECK_INT(page_count(page, "confusion.names"), 10);
    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "confusion.counts.%d.%d", i / 10, i % 10);
        double v = page_number(page, path);
        all += v;
        right += i / 10 == i % 10 ? v : 0;
    }
    CHECK_NEAR(all, figure(page, "test_items"), 0);
    CHECK_NEAR(right / all, figure(page, "test_accuracy"), 1e-8);
}

static void the_page_has_the_figures_of_the_log_and_the_text(void)
{
    char text[64];
    int  values = 0;
    if (!begin() || !runs(0, TRAIN "--epochs 2 --quiet")) return;
    prints("report in run.html\n");
    char *page = page_data(scratch_path("run.html")), *log = page_read(scratch_path("run.log"));
    if (!CHECK(page && log)) return;
    for (int i = 0; i < page_count(page, "curves"); i++) values += check_curve(page, log, i);
    // Loss, rate, norm and speed of 20 steps, the accuracy of 2, loss and accuracy of 4 tests.
    CHECK_INT(values, 4 * 20 + 2 + 2 * 4);
    snprintf(text, sizeof text, "test accuracy %.2f %%\n", 100 * figure(page, "test_accuracy"));
    prints(text);
    snprintf(text, sizeof text, "test loss %.4f\n", figure(page, "test_loss"));
    prints(text);
    snprintf(text, sizeof text, "20 steps in %.1f s\n", figure(page, "seconds"));
    prints(text);
    CHECK_NEAR(figure(page, "steps"), 20, 0);
    CHECK_INT(page_count(page, "samples"),
              24);  // 12, and 12 mistakes of a network that knows little
    CHECK(!strncmp(page_text(page, "samples.0.image"), "data:image/png;base64,", 22));
    check_matrix(page);
    free(page);
    free(log);
    scratch_close();
}

static void a_resumed_run_continues_its_page(void)
{
    if (!begin() || !runs(0, TRAIN "--epochs 1 --quiet && tenon train --resume --save m.safetensors"
                                   " --epochs 2 --log run.log --report run.html --quiet"))
        return;
    char *page = page_data(scratch_path("run.html")), *log = page_read(scratch_path("run.log"));
    if (!CHECK(page && log)) return;
    CHECK_INT(page_count(page, "curves.0.points"), 20);
    for (int i = 0; i < page_count(page, "curves"); i++) check_curve(page, log, i);
    CHECK_NEAR(figure(page, "steps"), 20, 0);
    free(page);
    free(log);
    scratch_close();
}

static void two_runs_are_compared_by_pages_or_logs(void)
{
    if (!begin() ||
        !runs(0, TRAIN "--epochs 1 --quiet && cp run.html a.html && cp run.log a.log &&" TRAIN
                       "--epochs 1 --lr 0.01 --force --quiet"))
        return;
    char *one = page_data(scratch_path("a.html")), *other = page_data(scratch_path("run.html"));
    char  text[160];
    runs(0, "tenon compare a.html run.html --html both.html");
    prints("  lr                                  0.001             0.01\n");
    double a = figure(one, "test_accuracy"), b = figure(other, "test_accuracy");
    snprintf(text, sizeof text, "  %-24s %16.6g %16.6g %+16.4g\n", "test_accuracy", a, b, b - a);
    prints(text);
    char *both = page_data(scratch_path("both.html"));
    CHECK_STR(page_text(both, "kind"), "comparison");
    CHECK_NEAR(page_number(both, "runs.1.curves.0.points.3.1"),
               page_number(other, "curves.0.points.3.1"), 0);
    runs(0, "tenon compare a.log run.html | grep -c test_accuracy");
    runs(1, "tenon compare a.html m.safetensors 2>&1");
    prints(
        "a.html is the page or the log of a run, m.safetensors is a model: they cannot be compared");
    runs(1, "tenon compare a.html run.html --html run.html 2>&1");
    prints("--html run.html is one of the runs");
    runs(1, "sed 's/\"kind\":\"report\"/\"kind\":\"profile\"/' a.html > p.html; "
            "tenon compare p.html p.html 2>&1");
    prints("p.html is a page, and not that of a run; of profiles the traces are compared");
    runs(2, "tenon compare a.html run.html --html x.txt 2>&1");
    runs(2, "tenon compare a.html run.html --tolerance 1 2>&1");
    free(one);
    free(other);
    free(both);
    scratch_close();
}

// Tables and texts have samples in words.
static void other_data_have_pages_too(void)
{
    if (!begin()) return;
    FILE *f = create("t.csv");
    for (int i = 0; f && i < 200; i++)
        fprintf(f, "%d,%d,%g\n", i % 7, i % 5, i % 7 + 0.5 * (i % 5));
    if (f) fclose(f);
    runs(0,
         "tenon train --model mlp --data csv:t.csv --no-header --epochs 1 --report t.html --quiet");
    char *page = page_data(scratch_path("t.html"));
    CHECK_INT(page_count(page, "samples"), 12);
    CHECK(strstr(page_text(page, "samples.0.text"), ", ") != NULL);
    CHECK(!isnan(figure(page, "test_rmse")));
    free(page);
    f = create("t.txt");
    for (int i = 0; f && i < 3000; i++) fputs("a line \xff of text\n", f);
    if (f) fclose(f);
    runs(
        0,
        "tenon train --model gpt2 --layers 1 --heads 1 --width 8 --context 16 --batch 256 --data text:t.txt"
        " --epochs 1 --report x.html --quiet");
    page = page_data(scratch_path("x.html"));
    CHECK_INT(page_count(page, "samples"), 12);
    CHECK(strstr(page_text(page, "samples.0.text"), "line") != NULL);
    CHECK(!isnan(figure(page, "test_bits_per_byte")));
    free(page);
    scratch_close();
}

// Samples are right where their classes are the same, of which names may begin alike and tokens be
// parts of characters.
static void samples_are_right_where_their_texts_are_equal(void)
{
    enum { LONG = 80 };
    if (!begin()) return;
    FILE *f = create("long.csv");
    for (int i = 0; f && i < 300; i++) {
        for (int k = 0; k < 2; k++) fprintf(f, "%d,", (i * (7 + k)) % 11);
        for (int k = 0; k < LONG; k++) fputc('n', f);
        fprintf(f, "%d\n", i % 3);
    }
    if (f) fclose(f);
    runs(0, "tenon train --model mlp --data csv:long.csv --no-header --epochs 1 --lr 0.1"
            " --report long.html --quiet");
    char  *page = page_data(scratch_path("long.html"));
    double sum = 0, right = 0;
    for (int i = 0; i < 9; i++) {
        char path[64];
        snprintf(path, sizeof path, "confusion.counts.%d.%d", i / 3, i % 3);
        sum += page_number(page, path);
        if (i / 3 == i % 3) right += page_number(page, path);
    }
    CHECK_NEAR(right / sum, figure(page, "test_accuracy"), 1e-6);
    int wrong = 0, n = page_count(page, "samples");
    for (int i = 0; i < n; i++) {
        char truth[200], path[64];
        snprintf(path, sizeof path, "samples.%d.truth", i);
        snprintf(truth, sizeof truth, "%s", page_text(page, path));
        CHECK_INT((int)strlen(truth), LONG + 1);
        snprintf(path, sizeof path, "samples.%d.prediction", i);
        wrong += strcmp(truth, page_text(page, path)) != 0;
    }
    CHECK(wrong >= 12 || wrong >= (int)(sum - right));
    free(page);
    f = create("kana.txt");
    for (int i = 0; f && i < 900; i++) fputs(i % 3 ? "\xe3\x81\x82" : "\xe6\x97\xa5", f);
    if (f) fclose(f);
    runs(0, "tenon train --model gpt2 --layers 1 --heads 1 --width 8 --context 16 --batch 64"
            " --data text:kana.txt --epochs 1 --report kana.html --quiet");
    page = page_data(scratch_path("kana.html"));
    CHECK(strstr(page_text(page, "samples.0.text"), "\xe3\x81\x82") != NULL);
    CHECK(!strncmp(page_text(page, "samples.0.truth"), "\"\\x", 3));
    free(page);
    scratch_close();
}

static const char *setting(const char *page, const char *name)
{
    for (int i = 0; i < page_count(page, "settings"); i++) {
        char path[64];
        snprintf(path, sizeof path, "settings.%d.0", i);
        if (strcmp(page_text(page, path), name)) continue;
        snprintf(path, sizeof path, "settings.%d.1", i);
        return page_text(page, path);
    }
    return "";
}

static void a_page_says_how_its_run_ended(void)
{
    if (!begin()) return;
    runs(0, "tenon train --model mlp --data digits:count=64 --epochs 1 --report r.html --quiet");
    char *page = page_data(scratch_path("r.html"));
    CHECK_STR(setting(page, "ended"), "complete");
    free(page);
    runs(1, "tenon train --model mlp --data digits:count=640 --optim sgd --lr 1e30 --epochs 9"
            " --report r.html --quiet 2>&1");
    page = page_data(scratch_path("r.html"));
    CHECK(!strncmp(setting(page, "ended"), "failed at step ", 15));
    free(page);
    scratch_close();
}

static void a_page_that_cannot_be_written_is_said_before_training(void)
{
    if (!begin()) return;
    runs(1, "tenon train --model mlp --data digits:count=64 --report /no/such/folder/r.html 2>&1");
    prints("--report /no/such/folder/r.html: No such file or directory");
    runs(1, "tenon train --model mlp --data digits:count=64 --report a --log a 2>&1");
    prints("--report a and --log a are the same file");
    runs(1, "echo notes > notes.txt; tenon train --model mlp --data digits:count=64 "
            "--report notes.txt 2>&1");
    prints("--report notes.txt exists and is no page of a run: give it another name");
    runs(0, "grep -c notes notes.txt");
    scratch_close();
}

const test_case tests_train_report[] = { TEST(the_page_has_the_figures_of_the_log_and_the_text),
                                         TEST(a_resumed_run_continues_its_page),
                                         TEST(two_runs_are_compared_by_pages_or_logs),
                                         TEST(other_data_have_pages_too),
                                         TEST(samples_are_right_where_their_texts_are_equal),
                                         TEST(a_page_says_how_its_run_ended),
                                         TEST(
                                             a_page_that_cannot_be_written_is_said_before_training),
                                         TEST_END };
