// test_profile_page.c: a profile as a page and as a trace: the figures are those of the table, the
// memory is that which was foretold, and the tracks of a trace are what its viewers expect.
#include "check.h"
#include "faulty.h"
#include "page_kit.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { ROWS = 32, FEATURES = 20, WIDTH = 64, STEPS = 5, BYTES = ROWS * FEATURES * 4 };
enum { PARAMETERS = FEATURES * WIDTH + WIDTH + WIDTH + 1 };

// Steps of a small network while a profile is on; each batch is copied in, each loss is read.
static tn_ctx *profiled(void)
{
    static float x[ROWS * FEATURES];
    tn_ctx      *cx  = rules_open("cpu");
    tn_layer    *net = tn_nn_seq(cx, tn_nn_linear(cx, FEATURES, WIDTH), tn_nn_act(cx, tn_relu),
                                 tn_nn_linear(cx, WIDTH, 1));
    tn_optim    *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 1e-3 });
    for (int i = 0; i < STEPS + 3; i++) {
        if (i == 3) tn_profile_begin(cx);
        tn_scope  *s    = tn_begin(cx);
        tn_tensor *in   = tn_from(cx, TN_F32, TN_SHAPE(ROWS, FEATURES), x);
        tn_tensor *loss = tn_mean_all(tn_square(tn_forward(net, in)));
        tn_step(opt, loss);
        tn_item(loss);
        tn_end(s);
    }
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    return cx;
}

// A row of the page as the table prints it, up to the kernel's name.
static void row_text(const char *data, int i, double all, char *to, size_t room)
{
    char   path[64];
    double v[5];
    for (int k = 0; k < 5; k++) {
        static const char *const member[] = { "time", "count", "best", "bytes", "flops" };
        snprintf(path, sizeof path, "rows.%d.%s", i, member[k]);
        v[k] = page_number(data, path);
    }
    double mean = v[0] / v[1];
    snprintf(path, sizeof path, "rows.%d.percent", i);
    snprintf(to, room, "%10.3f %5.1f %% %7.0f %10.2f %10.2f %8.1f %9.1f %6.1f  ", v[0] * 1e-6,
             100 * v[0] / all, v[1], mean * 1e-3, v[2] * 1e-3, v[3] / mean, v[4] / mean,
             page_number(data, path));
}

static void the_page_has_the_figures_of_the_table(void)
{
    tn_ctx *cx = profiled();
    if (!CHECK(scratch_open())) return;
    CHECK_STATUS(tn_profile_write(cx, scratch_path("p.txt")), TN_OK);
    CHECK_STATUS(tn_profile_write(cx, scratch_path("p.html")), TN_OK);
    char  *data = page_data(scratch_path("p.html")), *table = page_read(scratch_path("p.txt"));
    double all = page_number(data, "time"), sum = 0;
    int    rows = page_count(data, "rows"), lines = 0;
    for (int i = 0; i < rows; i++) {
        char text[160], path[32];
        row_text(data, i, all, text, sizeof text);
        snprintf(path, sizeof path, "rows.%d.name", i);
        strncat(text, page_text(data, path), sizeof text - strlen(text) - 1);
        test_that(table && strstr(table, text), "\"%s\" is not in:\n%s", text, table);
    }
    for (const char *c = table; c && *c; c++) lines += *c == '\n';
    CHECK_INT(rows, lines - 5);
    for (int i = 0; i < page_count(data, "events"); i++) {
        char path[32];
        snprintf(path, sizeof path, "events.%d.1", i);
        sum += page_number(data, path);
    }
    CHECK_NEAR(sum, all, 0);
    CHECK_INT(page_count(data, "events"), page_number(data, "launches"));
    CHECK(page_number(data, "ceilings.copy") > 0);
    CHECK_STR(page_text(data, "ceilings.products.0.dtype"), "f32");
    free(data);
    free(table);
    scratch_close();
    tn_close(cx);
}

// The largest value of an owner in the page.
static double most_of(const char *data, int owner)
{
    double most = 0;
    for (int i = 0; i < page_count(data, "memory"); i++) {
        char path[32];
        snprintf(path, sizeof path, "memory.%d.%d", i, owner + 1);
        double v = page_number(data, path);
        if (v > most) most = v;
    }
    return most;
}

static void memory_over_time_is_told_by_owner(void)
{
    tn_ctx *cx = profiled();
    if (!CHECK(scratch_open())) return;
    CHECK_STATUS(tn_profile_write(cx, scratch_path("p.html")), TN_OK);
    char *data = page_data(scratch_path("p.html"));
    CHECK_STR(page_text(data, "owners.0"), "parameters");
    CHECK_STR(page_text(data, "owners.3"), "activations");
    CHECK_NEAR(most_of(data, 0), 4.0 * PARAMETERS, 0);
    CHECK_NEAR(most_of(data, 2), 2 * 4.0 * PARAMETERS, 0);  // two moments
    CHECK(most_of(data, 3) > 0 && most_of(data, 3) <= (double)tn_ctx_stats(cx).peak);
    free(data);
    scratch_close();
    tn_close(cx);
}

// A list that is too long for the page is cut, and how long it was is told; the most memory comes
// after the end of what is shown.
static void a_page_says_how_much_it_leaves_out(void)
{
    enum { MANY = 20100, LATE = 1 << 20 };
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = tn_zeros(cx, TN_F32, TN_SHAPE(8));
    tn_eval(cx);
    tn_profile_begin(cx);
    for (int i = 0; i < MANY; i++) {
        tn_scope *s = tn_begin(cx);
        tn_want(tn_exp(i + 1 < MANY ? x : tn_expand(tn_slice(x, 0, 0, 1, 1), TN_SHAPE(LATE))));
        tn_eval(cx);
        tn_end(s);
    }
    tn_profile_end(cx);
    if (!CHECK(scratch_open())) return;
    CHECK_STATUS(tn_profile_write(cx, scratch_path("p.html")), TN_OK);
    char *data = page_data(scratch_path("p.html"));
    CHECK(page_number(data, "launches") >= MANY);
    CHECK_INT(page_count(data, "events"), 20000);
    CHECK_INT(page_count(data, "host"), 20000);
    CHECK(page_number(data, "hosts") > MANY);
    CHECK_INT(page_count(data, "memory"), 4000);
    CHECK(page_number(data, "changes") > 4000);
    CHECK(page_number(data, "most") >= 4.0 * LATE);
    free(data);
    scratch_close();
    tn_close(cx);
}

// ---- the trace

// A number of a member of an event, or of its arguments; NAN if it has none.
static double member(const char *event, const char *name)
{
    tni_json j;
    double   v = -1;
    return page_find(event, name, &j) && tni_json_double(&j, &v) ? v : -1;
}

// What was seen of a trace: by track the end of the newest event, and how many there are; counters
// of memory.
typedef struct {
    double until[4];
    int    count[4], counters, copied;
} tracks;

static void look_at(const char *data, int i, tracks *t)
{
    char     path[48], phase[8] = "";
    tni_json j;
    snprintf(path, sizeof path, "traceEvents.%d", i);
    if (!CHECK(page_find(data, path, &j))) return;
    char *event = strdup(j.at - 1);  // the object and what follows: enough to look for its members
    snprintf(phase, sizeof phase, "%s", page_text(event, "ph"));
    int    track = (int)member(event, "tid");
    double from = member(event, "ts"), bytes = member(event, "args.bytes");
    if (*phase == 'C') t->counters += member(event, "args.parameters") > 0;
    if (*phase == 'X' && CHECK(track >= 1 && track <= 3)) {
        CHECK(from >= t->until[track] - 1e-3);
        t->until[track] = from + member(event, "dur");
        t->count[track]++;
        t->copied += track == 3 && bytes == BYTES;
    }
    free(event);
}

// Viewers want the events of a track in order, or inside each other.
static void a_trace_has_tracks_for_host_copies_and_memory(void)
{
    tn_ctx *cx = profiled();
    tracks  t  = { .counters = 0 };
    if (!CHECK(scratch_open())) return;
    CHECK_STATUS(tn_profile_write(cx, scratch_path("p.json")), TN_OK);
    char *data = page_read(scratch_path("p.json"));
    for (int i = 0; i < page_count(data, "traceEvents"); i++) look_at(data, i, &t);
    CHECK(t.count[1] >= STEPS);
    CHECK(t.count[2] >= 3 * STEPS);
    CHECK_INT(t.copied, STEPS);
    CHECK(t.count[3] >= 2 * STEPS);
    CHECK(t.counters >= STEPS);
    free(data);
    scratch_close();
    tn_close(cx);
}

// ---- two profiles

// A trace with two kernels, of `all` that ran: a product that takes so many microseconds, and a map
// of its own name.
static void write_trace_of(int all, const char *name, int us, const char *map)
{
    char text[1024];
    int  n = snprintf(
         text, sizeof text,
         "{\"otherData\":{\"kernels\":%d},\"traceEvents\":[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":"
          "\"cpu\"}},{\"name\":\"matmul (2, 2)\",\"cat\":\"kernel\",\"ph\":\"X\",\"ts\":0,\"dur\":"
          "%d.000,\"args\":{\"bytes\":48,\"flops\":16,\"lines\":[\"a.c:1 matmul\"]}},{\"name\":\"%s\","
          "\"cat\":\"kernel\",\"ph\":\"X\",\"ts\":0,\"dur\":0.25,\"args\":{\"bytes\":16,\"flops\":4,"
          "\"lines\":[]}},{\"name\":\"memory\",\"ph\":\"C\",\"ts\":0,\"args\":{\"parameters\":30,"
          "\"other\":12}}]}",
         all, us, map);
    CHECK(scratch_write(scratch_path(name), text, (size_t)n));
}

static void write_trace(const char *name, int us, const char *map)
{
    write_trace_of(2, name, us, map);
}

static void two_profiles_are_set_beside_each_other(void)
{
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    write_trace("a.json", 4, "POINT (4)");
    write_trace("b.json", 2, "POINT <5>");
    const char *a = scratch_path("a.json"), *b = scratch_path("b.json");
    CHECK_STATUS(tn_profile_compare(cx, a, b, scratch_path("c.txt")), TN_OK);
    CHECK_STATUS(tn_profile_compare(cx, a, b, scratch_path("c.html")), TN_OK);
    char *text = page_read(scratch_path("c.txt")), *data = page_data(scratch_path("c.html"));
    CHECK(text && strstr(text, "b takes 0.529 of the time of a\n"));
    CHECK(text &&
          strstr(text, "     0.004      0.002   0.500        1        1       4.00       2.00"
                       "  matmul (2, 2)\n"));
    CHECK(text && strstr(text, "gone        1        0       0.25          -  POINT (4)\n"));
    CHECK(text && strstr(text, "new        0        1          -       0.25  POINT <5>\n"));
    CHECK_STR(page_text(data, "rows.0.name"), "matmul (2, 2)");
    CHECK_STR(page_text(data, "rows.0.line"), "a.c:1 matmul");
    CHECK_NEAR(page_number(data, "rows.0.b.1"), 2000, 0);
    CHECK_NEAR(page_number(data, "sides.0.peak"), 42, 0);
    CHECK_STR(page_text(data, "sides.1.device"), "cpu");
    CHECK_INT(page_count(data, "rows"), 3);
    free(text);
    free(data);
    scratch_close();
    tn_close(cx);
}

static void a_trace_that_was_cut_is_told_of(void)
{
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    write_trace("a.json", 4, "POINT (4)");
    write_trace_of(9, "b.json", 2, "POINT (4)");
    const char *a = scratch_path("a.json"), *b = scratch_path("b.json");
    CHECK_STATUS(tn_profile_compare(cx, a, b, scratch_path("c.txt")), TN_OK);
    CHECK_STATUS(tn_profile_compare(cx, a, b, scratch_path("c.html")), TN_OK);
    char *text = page_read(scratch_path("c.txt")), *data = page_data(scratch_path("c.html"));
    CHECK(text && strstr(text, "at most 42 bytes\nb: "));
    CHECK(text && strstr(text, "at most 42 bytes; 9 ran, it has the first\n"));
    CHECK_INT(page_number(data, "sides.0.all"), 2);
    CHECK_INT(page_number(data, "sides.1.all"), 9);
    free(text);
    free(data);
    scratch_close();
    tn_close(cx);
}

static void what_is_no_profile_is_not_compared(void)
{
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    const char *bad = scratch_path("bad.json"), *good = scratch_path("a.json");
    write_trace("a.json", 4, "POINT (4)");
    static const char *const texts[] = {
        "",          "{\"traceEvents\":[{\"name\":}]}",
        "[1]",       "{\"traceEvents\":[]}",
        "{\"a\":1}", "{\"traceEvents\":[{\"args\":{\"lines\":[1]}}]}"
    };
    for (int i = 0; i < (int)(sizeof texts / sizeof *texts); i++) {
        CHECK(scratch_write(bad, texts[i], strlen(texts[i])));
        CHECK_STATUS(tn_profile_compare(cx, good, bad, "/dev/null"), TN_EFORMAT);
        CHECK_FAILED(cx, TN_EFORMAT, "profile_compare: ");
    }
    CHECK_STATUS(tn_profile_compare(cx, "/nowhere/a.json", good, NULL), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "profile_compare: \"/nowhere/a.json\" could not be read");
    CHECK_STATUS(tn_profile_compare(cx, good, good, "/nowhere/c.html"), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "profile_compare: \"/nowhere/c.html\" could not be written");
    scratch_close();
    tn_close(cx);
}

// Whether a comparison with the n-th allocation failing is an error, or complete.
static bool survives(long n, bool *hit)
{
    faulty  h  = { 0 };
    tn_ctx *cx = faulty_open("ref", &h);
    if (!cx) return false;
    h.countdown = n;
    tn_status s = tn_profile_compare(cx, scratch_path("a.json"), scratch_path("b.json"),
                                     scratch_path(n % 2 ? "c.html" : "c.txt"));
    *hit        = h.countdown == 0;
    bool ok     = tn_error(cx) == s && (s == TN_OK || s == TN_EMEM);
    h.countdown = 0;
    tn_close(cx);
    return ok && faulty_left(&h) == 0;
}

static void any_allocation_may_fail_while_comparing(void)
{
    bool hit = true;
    long n   = 1;
    if (!CHECK(scratch_open())) return;
    write_trace("a.json", 4, "POINT (4)");
    write_trace("b.json", 2, "POINT (5)");
    for (; hit && n < 200; n++) test_case_result(survives(n, &hit), "at allocation %ld", n);
    CHECK(n > 5 && n < 200);
    scratch_close();
}

const test_case tests_profile_page[] = { TEST(the_page_has_the_figures_of_the_table),
                                         TEST(memory_over_time_is_told_by_owner),
                                         TEST(a_page_says_how_much_it_leaves_out),
                                         TEST(a_trace_that_was_cut_is_told_of),
                                         TEST(a_trace_has_tracks_for_host_copies_and_memory),
                                         TEST(two_profiles_are_set_beside_each_other),
                                         TEST(what_is_no_profile_is_not_compared),
                                         TEST(any_allocation_may_fail_while_comparing),
                                         TEST_END };
