// test_profile.c: profiles: every kernel is counted and timed, values stay what they are, the table
// and the trace say what ran, and the stamps of the cuda device do what the contract promises.
#include "check.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"

#include "base/json.h"
#include "device/cuda/gpu.h"
#include "inspect/profile.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <time.h>

enum { N = 24, STEPS = 4, MOST = 4096 };

// ---- what a trace says

// One event, and the arguments of it that are looked at.
typedef struct {
    char   name[96], line[192];  // the first line
    double ts, dur, bytes, flops, percent;
    int    lines;
} event;

static event events[MOST];
static char *page;  // the table that was written last

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void read_lines(tni_json *j, event *e)
{
    while (tni_json_next(j) == TNI_JSON_STRING)
        if (!e->lines++) tni_json_string(j, e->line, sizeof e->line);
}

// The members of an object, those of "args" among the others.
static void read_event(tni_json *j, event *e, char *kind)
{
    while (tni_json_next(j) == TNI_JSON_KEY) {
        char key[32];
        tni_json_string(j, key, sizeof key);
        tni_json_kind got = tni_json_next(j);
        double       *to  = !strcmp(key, "ts")        ? &e->ts
                            : !strcmp(key, "dur")     ? &e->dur
                            : !strcmp(key, "bytes")   ? &e->bytes
                            : !strcmp(key, "flops")   ? &e->flops
                            : !strcmp(key, "percent") ? &e->percent
                                                      : NULL;
        if (to && got == TNI_JSON_NUMBER) tni_json_double(j, to);
        else if (!strcmp(key, "cat")) *kind = j->text[0];
        else if (!strcmp(key, "name")) tni_json_string(j, e->name, sizeof e->name);
        else if (!strcmp(key, "lines")) read_lines(j, e);
        else if (!strcmp(key, "args")) read_event(j, e, kind);
        else if (got == TNI_JSON_OBJECT || got == TNI_JSON_ARRAY) tni_json_skip(j);
    }
}

// The runs of kernels in a trace, in order; how many. -1 if it is none. test_profile_page.c looks
// at the rest.
static int read_trace(const char *path)
{
    size_t   bytes;
    char    *text = scratch_read(path, &bytes);
    int      n    = 0;
    tni_json j;
    if (!text) return -1;
    tni_json_open(&j, text, bytes);
    while (tni_json_next(&j) != TNI_JSON_ARRAY && j.kind != TNI_JSON_ERROR) continue;
    while (tni_json_next(&j) == TNI_JSON_OBJECT && n < MOST) {
        char kind = 0;
        events[n] = (event){ .percent = -1 };
        read_event(&j, &events[n], &kind);
        n += kind == 'k';
    }
    bool ends = j.kind == TNI_JSON_ARRAY_END && tni_json_next(&j) == TNI_JSON_OBJECT_END &&
                tni_json_next(&j) == TNI_JSON_END;
    free(text);
    return ends ? n : -1;
}

static int trace_of(tn_ctx *cx)
{
    CHECK_STATUS(tn_profile_write(cx, scratch_path("trace.json")), TN_OK);
    return read_trace(scratch_path("trace.json"));
}

// A file as a string, to be freed; NULL if it cannot be read.
static char *text_of(const char *path)
{
    size_t bytes;
    char  *data = scratch_read(path, &bytes), *text = data ? malloc(bytes + 1) : NULL;
    if (text) memcpy(text, data, bytes), text[bytes] = '\0';
    free(data);
    return text;
}

static const char *table_of(tn_ctx *cx)
{
    CHECK_STATUS(tn_profile_write(cx, scratch_path("table.txt")), TN_OK);
    free(page);
    page = text_of(scratch_path("table.txt"));
    return page ? page : "";
}

static void says(const char *text, const char *what)
{
    test_that(strstr(text, what) != NULL, "\"%s\" is not in: %.800s", what, text);
}

// The event whose name begins so; NULL, reported, if there is none.
static const event *find_event(int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strncmp(events[i].name, name, strlen(name))) return &events[i];
    test_that(false, "there is no event %s", name);
    return NULL;
}

// ---- what is profiled

// So that nothing is measured.
static void set_ceilings(tn_ctx *cx)
{
    tni_profile *p = cx->engine->inspect->profile;
    if (!p) return;
    p->copy = 1e9;
    for (int i = 0; i < TNI_DTYPES; i++) p->product[i] = 1e9;
}

// Steps of a small training loop; the last loss.
static double train(tn_ctx *cx, tn_tensor *x, tn_tensor *w, int steps)
{
    double loss = 0;
    for (int i = 0; i < steps; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = tn_mean_all(tn_square(tn_tanh(tn_matmul(x, w))));
        tn_backward(y, NULL);
        tn_grad_mode(cx, false);
        tn_sub_(w, tn_mul_s(tn_grad_of(w), 0.1));
        tn_zero_grad(w);
        tn_grad_mode(cx, true);
        tn_eval(cx);
        loss = tn_item(y);
        tn_end(s);
    }
    return loss;
}

static void profile_on(const char *device)
{
    tn_ctx *cx = rules_open(device);
    if (!cx || !scratch_open()) return;
    tn_tensor *x = rules_there(cx, TN_SHAPE(N, N)),
              *w = tn_requires_grad(rules_there(cx, TN_SHAPE(N, N)), true);
    train(cx, x, w, 3);
    CHECK_STATUS(tn_sync(cx), TN_OK);
    int64_t before = tn_ctx_stats(cx).launches;
    double  from = seconds(), sum = 0, end = 0;
    CHECK_STATUS(tn_profile_begin(cx), TN_OK);
    train(cx, x, w, STEPS);
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    double  wall     = seconds() - from;
    int64_t launches = tn_ctx_stats(cx).launches - before;
    train(cx, x, w, 1);  // it is off again
    int n = trace_of(cx);
    CHECK(launches > 0);
    CHECK_INT(n, launches);
    for (int i = 0; i < n; i++) {
        CHECK(events[i].dur >= 0 && events[i].ts >= end - 1e-3);
        end = events[i].ts + events[i].dur;
        sum += events[i].dur * 1e-6;
        CHECK(events[i].bytes > 0 && events[i].lines > 0 &&
              strstr(events[i].line, "test_profile.c"));
    }
    test_that(sum > 0 && sum <= wall, "%g s of kernels in %g s", sum, wall);
    test_that(end * 1e-6 <= wall * 1.05 + 1e-4, "the last ends at %g s of %g s", end * 1e-6, wall);
    char head[96];
    snprintf(head, sizeof head, "profile on %.*s: %lld kernels in ", (int)strcspn(device, ":"),
             device, (long long)launches);
    says(table_of(cx), head);
    says(page, "ceiling, measured here: copies ");
    says(page, "products of f32 ");
    tn_close(cx);
    scratch_close();
}

static void every_kernel_is_counted_and_timed_on_the_cpu(void)
{
    profile_on("cpu");
}

static void every_op_is_counted_and_timed_on_ref(void)
{
    profile_on("ref");
}

static void every_kernel_is_counted_and_timed_on_opencl(void)
{
    tni_text why = { "" };
    if (!tni_device_opencl.probe(&why)) SKIP("%s", why.s);
    profile_on("opencl");
}

static void every_kernel_is_counted_and_timed_on_cuda(void)
{
    tni_text why = { "" };
    if (!tni_device_cuda.probe(&why)) SKIP("%s", why.s);
    profile_on("cuda");
}

static void a_profile_changes_no_value(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double loss[2];
        for (int i = 0; i < 2; i++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *x = rules_there(cx, TN_SHAPE(N, N));
            tn_tensor *w = tn_requires_grad(rules_there(cx, TN_SHAPE(N, N)), true);
            if (i) CHECK_STATUS(tn_profile_begin(cx), TN_OK);
            loss[i] = train(cx, x, w, STEPS);
            if (i) CHECK_STATUS(tn_profile_end(cx), TN_OK);
            tn_end(s);
        }
        CHECK(!memcmp(&loss[0], &loss[1], sizeof loss[0]));
    }
}

// ---- what is said of kernels

// Evaluates what is pending, t last, under a profile and reads the trace; how many events.
static int profiled(tn_ctx *cx, tn_tensor *t)
{
    CHECK(t != NULL);
    CHECK_STATUS(tn_profile_begin(cx), TN_OK);
    set_ceilings(cx);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    return trace_of(cx);
}

static void a_product_has_its_bytes_and_flops(void)
{
    if (!scratch_open()) return;
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor   *a = rules_there(cx, TN_SHAPE(2, 6, 8)), *b = rules_there(cx, TN_SHAPE(8, 10));
        int          line = __LINE__ + 1;
        int          n    = profiled(cx, tn_matmul(a, b));
        const event *e    = find_event(n, "matmul (");
        if (!e) continue;
        CHECK_INT(e->flops, 2 * 2 * 6 * 8 * 10);
        CHECK_INT(e->bytes, 4 * (2 * 6 * 8 + 8 * 10 + 2 * 6 * 10));
        CHECK(e->percent >= 0);
        CHECK_INT(e->lines, 1);
        char want[256];
        snprintf(want, sizeof want, "%s matmul", SITE(line));
        CHECK_STR(e->line, want);
        says(table_of(cx), want);
    }
    scratch_close();
}

static void convolutions_and_attention_have_their_flops(void)
{
    if (!scratch_open()) return;
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = tn_requires_grad(rules_there(cx, TN_SHAPE(2, 4, 7, 7)), true);
    tn_tensor *w  = tn_requires_grad(rules_there(cx, TN_SHAPE(6, 2, 3, 3)), true);
    tn_tensor *y  = tn_conv2d(x, w, NULL, (tn_conv_opts){ .groups = 2 });
    tn_backward(tn_sum_all(tn_square(y)), NULL);
    int          n     = profiled(cx, y);
    const double flops = 2.0 * (2 * 6 * 5 * 5) * (2 * 3 * 3);
    for (int i = 0; i < n; i++)
        if (!strncmp(events[i].name, "conv", 4) && !strchr(events[i].name, '+'))
            CHECK_INT(events[i].flops, flops);
    find_event(n, "conv");
    find_event(n, "conv_dgrad");
    find_event(n, "conv_wgrad");

    tn_tensor *q   = rules_there(cx, TN_SHAPE(2, 3, 5, 4)),
              *k   = rules_there(cx, TN_SHAPE(2, 3, 6, 4));
    const event *e = find_event(profiled(cx, tn_attention(q, k, k, (tn_attention_opts){ 0 })),
                                "attention");
    if (e) CHECK_INT(e->flops, 2 * (2 * 3 * 5 * 6) * (4 + 4));
    tn_close(cx);
    scratch_close();
}

static void a_kernel_has_the_cost_of_its_ops(void)
{
    if (getenv("TN_EAGER")) SKIP("TN_EAGER is set");
    if (!scratch_open()) return;
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = rules_there(cx, TN_SHAPE(16, 32));
    int        n  = profiled(cx, tn_sum(tn_exp(tn_mul(x, x)), 1));
    CHECK_INT(n, 1);
    CHECK_STR(events[0].name, "ROW (16 | 32)");
    CHECK_INT(events[0].flops, 16 * 32 * (8 + 1 + 1));
    CHECK_INT(events[0].bytes, 4 * (16 * 32 + 16));
    CHECK_INT(events[0].lines, 3);
    tn_close(cx);
    scratch_close();
}

static int by_time(const void *a, const void *b)
{
    double x = ((const event *)a)->dur, y = ((const event *)b)->dur;
    return (x > y) - (x < y);
}

// More steps than are kept as stamps at a time. All do the same, so that none takes much less than
// most; more is noise.
static void long_plans_are_timed_in_parts(void)
{
    enum { LONG = 700 };
    if (!scratch_open()) return;
    tn_ctx    *cx = rules_open("ref");
    tn_tensor *x  = rules_there(cx, TN_SHAPE(8192));
    for (int i = 0; i < LONG; i++) x = tn_neg(x);
    CHECK_INT(profiled(cx, x), LONG);
    qsort(events, LONG, sizeof *events, by_time);
    CHECK(events[0].dur > events[LONG / 2].dur / 5);
    char row[64];
    snprintf(row, sizeof row, "profile on ref: %d kernels in 1 evaluation\n", LONG);
    says(table_of(cx), row);
    snprintf(row, sizeof row, " %7d ", LONG);  // one line, one row
    says(page, row);
    tn_close(cx);
    scratch_close();
}

static void a_new_profile_forgets_the_one_before(void)
{
    if (!scratch_open()) return;
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = rules_there(cx, TN_SHAPE(4, 4));
    CHECK_INT(profiled(cx, tn_matmul(x, x)), 1);
    CHECK_INT(profiled(cx, tn_exp(x)), 1);
    CHECK(strstr(table_of(cx), "matmul") == NULL);
    tn_profile_begin(cx);
    CHECK_INT(trace_of(cx), 0);  // so far
    tn_eval_of(tn_matmul(x, x));
    CHECK_INT(trace_of(cx), 1);
    tn_close(cx);  // it is on
    scratch_close();
}

// What ran before the failure is in the profile, and it goes on.
static void a_step_that_fails_is_not_in_it(void)
{
    if (!scratch_open()) return;
    tn_ctx    *cx = rules_open("ref");
    int64_t    at = 9;
    tn_tensor *x = rules_there(cx, TN_SHAPE(4)), *index = tn_from(cx, TN_I64, TN_SHAPE(1), &at);
    tn_profile_begin(cx);
    set_ceilings(cx);
    CHECK_STATUS(tn_eval_of(tn_gather(tn_exp(x), 0, index)), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "out of range");
    CHECK_STATUS(tn_eval_of(tn_sin(x)), TN_OK);
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    int n = trace_of(cx);
    CHECK_INT(n, 2);
    find_event(n, "exp");
    find_event(n, "sin");
    tn_close(cx);
    scratch_close();
}

// ---- misuse and failures

static tn_status profiles_inside(const void *attr, const tn_array *in, tn_array *out)
{
    tn_ctx *cx = *(tn_ctx *const *)attr;
    memcpy(out->data, in->data, sizeof(float));
    CHECK_STATUS(tn_profile_begin(cx), TN_EARG);
    CHECK_STATUS(tn_profile_end(cx), TN_EARG);
    CHECK_STATUS(tn_profile_write(cx, NULL), TN_EARG);
    return TN_OK;
}

static void profiling_where_it_cannot_be_is_an_error(void)
{
    static const tn_op_def op = {
        .name = "looks", .nin = 1, .shape = rules_same_shape, .compute = profiles_inside
    };

    tn_ctx *cx = rules_open("cpu");
    CHECK_STATUS(tn_profile_end(cx), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "profile_end: no profile is on");
    CHECK_STATUS(tn_profile_write(cx, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "profile_write: there is no profile");
    CHECK_STATUS(tn_profile_begin(NULL), TN_EARG);
    CHECK_STATUS(tn_profile_end(NULL), TN_EARG);
    CHECK_STATUS(tn_profile_write(NULL, NULL), TN_EARG);
    tn_tensor *x = rules_there(cx, TN_SHAPE(1));
    tn_eval_of(tn_custom(&op, &x, &cx, sizeof cx));
    CHECK_FAILED(cx, TN_EARG, "profile_begin: a tn_ call is in progress");
    CHECK_STATUS(tn_profile_begin(cx), TN_OK);
    CHECK_STATUS(tn_profile_begin(cx), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "profile_begin: a profile is already on");
    tn_eval_of(tn_custom(&op, &x, &cx, sizeof cx));
    CHECK_FAILED(cx, TN_EARG, "a tn_ call is in progress");
    set_ceilings(cx);
    CHECK_STATUS(tn_profile_write(cx, "/nowhere/at/all.json"), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "profile_write: \"/nowhere/at/all.json\" could not be written");
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        fclose(full);
        CHECK_STATUS(tn_profile_write(cx, "/dev/full"), TN_EIO);
        CHECK_FAILED(cx, TN_EIO, "could not be written");
    }
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    tn_close(cx);
}

// Whether a profile with the n-th allocation failing is an error, or complete.
static bool survives(long n, bool *hit)
{
    faulty  h  = { 0 };
    tn_ctx *cx = faulty_open("ref", &h);
    if (!cx) return false;
    tn_tensor  *x    = rules_there(cx, TN_SHAPE(4, 4));
    tn_tensor  *y    = tn_softmax(tn_matmul(x, x), 1);
    const char *path = scratch_path(n % 3 == 0 ? "t.html" : n % 3 == 1 ? "t.json" : "t.txt");
    h.countdown      = n;
    tn_status begun = tn_profile_begin(cx), ran = tn_eval_of(y), ended = TN_OK, written = TN_OK;
    set_ceilings(cx);
    if (begun == TN_OK) ended = tn_profile_end(cx);
    if (begun == TN_OK) written = tn_profile_write(cx, path);
    *hit        = h.countdown == 0;
    bool failed = begun || ran || ended || written;
    bool ok     = tn_error(cx) == (failed ? TN_EMEM : TN_OK);
    h.countdown = 0;
    tn_error_clear(cx);
    ok = ok && tn_profile_begin(cx) == TN_OK && tn_eval_of(tn_exp(x)) == TN_OK;
    set_ceilings(cx);
    ok = ok && tn_profile_end(cx) == TN_OK && trace_of(cx) == 1 && !tn_error(cx);
    tn_close(cx);
    return ok && faulty_left(&h) == 0;
}

static void any_allocation_may_fail_while_profiling(void)
{
    bool hit = true;
    long n   = 1;
    if (!scratch_open()) return;
    for (; hit && n < 2000; n++) test_case_result(survives(n, &hit), "at allocation %ld", n);
    CHECK(n > 20 && n < 2000);
    scratch_close();
}

// Without memory for a large copy or product the part of what could be is left out, or that of a
// smaller one is taken.
static void without_memory_there_may_be_no_ceiling(void)
{
    if (!scratch_open()) return;
    for (long n = 1; n <= 8; n++) {
        faulty     h  = { .forever = true };
        tn_ctx    *cx = faulty_open("ref", &h);
        tn_tensor *x  = rules_there(cx, TN_SHAPE(4, 4));
        tn_profile_begin(cx);
        CHECK_STATUS(tn_eval_of(tn_matmul(x, x)), TN_OK);
        tn_profile_end(cx);
        h.countdown = n;
        table_of(cx);
        says(page, n <= 2 ? "copies unknown\n" : "copies ");
        CHECK(h.failed > 0);
        h.countdown = 0;
        tn_close(cx);
        CHECK_INT(faulty_left(&h), 0);
    }
    scratch_close();
}

// Allocations of a step that has been run before.
static long allocations(tn_ctx *cx, const faulty *h, tn_tensor *x)
{
    long made = h->made;
    tn_drop(tn_exp(x));
    tn_tensor *y = tn_exp(x);
    CHECK_STATUS(tn_eval_of(y), TN_OK);
    tn_drop(y);
    (void)cx;
    return h->made - made;
}

static void without_a_profile_nothing_is_kept(void)
{
    faulty     h  = { 0 };
    tn_ctx    *cx = faulty_open("ref", &h);
    tn_tensor *x  = rules_there(cx, TN_SHAPE(4));
    allocations(cx, &h, x);
    long before = allocations(cx, &h, x);
    CHECK(cx->engine->inspect->profile == NULL);
    tn_profile_begin(cx);
    tn_profile_end(cx);
    CHECK(!(cx->engine->watch & TNI_WATCH_TIMES));
    CHECK_INT(allocations(cx, &h, x), before);
    tn_close(cx);
    CHECK_INT(faulty_left(&h), 0);
}

// ---- TN_PROFILE

static void run_one(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = rules_there(cx, TN_SHAPE(4, 4));
    CHECK_STATUS(tn_profile_begin(cx), TN_OK);  // it is on already, and goes on
    CHECK_STATUS(tn_eval_of(tn_matmul(x, x)), TN_OK);
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    CHECK_STATUS(tn_eval_of(tn_exp(x)), TN_OK);
    tn_close(cx);
}

static void the_environment_asks_for_a_profile(void)
{
    if (getenv("TN_PROFILE")) SKIP("TN_PROFILE is set");
    if (!scratch_open()) return;
    setenv("TN_PROFILE", scratch_path("all.json"), 1);
    run_one();
    CHECK_INT(read_trace(scratch_path("all.json")), 2);
    run_one();  // the next context has a file of its own
    CHECK_INT(read_trace(scratch_path("all-2.json")), 2);
    setenv("TN_PROFILE", scratch_path("all.txt"), 1);
    run_one();
    run_one();
    tn_close(rules_open("cpu"));  // it ran nothing, and says nothing
    unsetenv("TN_PROFILE");
    char *text = text_of(scratch_path("all.txt")), *first = NULL;
    if (CHECK(text != NULL)) first = strstr(text, "profile on cpu: 2 kernels in 2 evaluations\n");
    CHECK(first == text && first);
    CHECK(first && (first = strstr(first + 1, "profile on ")) != NULL);
    CHECK(first && strstr(first + 1, "profile on ") == NULL);
    free(text);
    scratch_close();
}

// ---- the stamps of the cuda device, by a driver of our own

static struct {
    double    now[TNI_TIMING_EVENTS + 2];  // when an event was recorded, by its number
    int       events, destroyed, broken;
    double    clock;
    pthread_t thread;
    bool      held;
    void (*f)(void *arg);
    void *arg;
} fake;

static int fake_current(tni_cucontext cx)
{
    (void)cx;
    return TNI_CU_OK;
}

static int fake_create(tni_cuevent *e, unsigned flags)
{
    CHECK_INT(flags, 0);
    if (fake.broken) return 2;
    *e = (tni_cuevent)(void *)&fake.now[fake.events++];
    return TNI_CU_OK;
}

static int fake_record(tni_cuevent e, tni_custream s)
{
    (void)s;
    *(double *)(void *)e = fake.clock;
    return TNI_CU_OK;
}

static int fake_wait(tni_cuevent e)
{
    (void)e;
    return TNI_CU_OK;
}

static int fake_destroy(tni_cuevent e)
{
    (void)e;
    fake.destroyed++;
    return TNI_CU_OK;
}

static int fake_elapsed(float *ms, tni_cuevent from, tni_cuevent to)
{
    *ms = (float)(1e3 * (*(double *)(void *)to - *(double *)(void *)from));
    return TNI_CU_OK;
}

static void *fake_run(void *unused)
{
    (void)unused;
    fake.f(fake.arg);
    return NULL;
}

static int fake_host(tni_custream s, void (*f)(void *arg), void *arg)
{
    (void)s;
    fake.f    = f;
    fake.arg  = arg;
    fake.held = pthread_create(&fake.thread, NULL, fake_run, NULL) == 0;
    return fake.held ? TNI_CU_OK : 2;
}

static const tni_driver fake_driver = {
    .set_current   = fake_current,
    .event_create  = fake_create,
    .event_record  = fake_record,
    .event_wait    = fake_wait,
    .event_destroy = fake_destroy,
    .elapsed       = fake_elapsed,
    .stream_host   = fake_host,
};

static void stamps_are_a_ring_of_events(void)
{
    tni_heap heap    = tni_heap_default();
    tni_gpu  gpu     = { .cu = &fake_driver };
    tni_cuda session = { .heap = &heap, .gpu = &gpu };
    memset(&fake, 0, sizeof fake);
    fake.broken = true;
    CHECK_INT(tni_cuda_event_record(&session), 0);
    CHECK(isnan(tni_cuda_event_elapsed(&session, 1, 1)));
    fake.broken = false;
    for (int64_t i = 1; i <= TNI_TIMING_EVENTS + 5; i++) {
        CHECK_INT(tni_cuda_event_record(&session), i);
        if (i > 1) CHECK_NEAR(tni_cuda_event_elapsed(&session, i - 1, i), 0.25, 1e-6);
        fake.clock += 0.25;
    }
    CHECK_INT(fake.events, TNI_TIMING_EVENTS);
    CHECK_NEAR(tni_cuda_event_elapsed(&session, 6, TNI_TIMING_EVENTS + 5),
               0.25 * (TNI_TIMING_EVENTS - 1), 1e-3);
    CHECK(isnan(tni_cuda_event_elapsed(&session, 5, 7)));  // it was used again
    CHECK(isnan(tni_cuda_event_elapsed(&session, 0, 7)));
    CHECK(isnan(tni_cuda_event_elapsed(&session, 8, 7)));
    CHECK(isnan(tni_cuda_event_elapsed(&session, 8, TNI_TIMING_EVENTS + 6)));
    tni_timing_close(&session);
    CHECK_INT(fake.destroyed, TNI_TIMING_EVENTS);
    CHECK(session.timing == NULL);
    tni_timing_close(&session);
}

static void a_hold_ends_when_it_is_let_go_or_by_itself(void)
{
    tni_heap heap    = tni_heap_default();
    tni_gpu  gpu     = { .cu = &fake_driver };
    tni_cuda session = { .heap = &heap, .gpu = &gpu };
    memset(&fake, 0, sizeof fake);
    tni_cuda_hold_queue(&session, false);  // of none
    tni_cuda_hold_queue(&session, true);
    if (!CHECK(fake.held)) return;
    tni_cuda_hold_queue(&session, false);
    pthread_join(fake.thread, NULL);
    double from = seconds();
    tni_cuda_hold_queue(&session, true);
    pthread_join(fake.thread, NULL);
    double took = seconds() - from;
    test_that(took >= 0.015, "it ended after %g s", took);
    tni_cuda_hold_queue(&session, false);
    tni_timing_close(&session);
}

const test_case tests_profile[] = {
    TEST(every_kernel_is_counted_and_timed_on_the_cpu),
    TEST(every_op_is_counted_and_timed_on_ref),
    TEST(every_kernel_is_counted_and_timed_on_opencl),
    TEST(every_kernel_is_counted_and_timed_on_cuda),
    TEST(a_profile_changes_no_value),
    TEST(a_product_has_its_bytes_and_flops),
    TEST(convolutions_and_attention_have_their_flops),
    TEST(a_kernel_has_the_cost_of_its_ops),
    TEST(long_plans_are_timed_in_parts),
    TEST(a_new_profile_forgets_the_one_before),
    TEST(a_step_that_fails_is_not_in_it),
    TEST(profiling_where_it_cannot_be_is_an_error),
    TEST(any_allocation_may_fail_while_profiling),
    TEST(without_memory_there_may_be_no_ceiling),
    TEST(without_a_profile_nothing_is_kept),
    TEST(the_environment_asks_for_a_profile),
    TEST(stamps_are_a_ring_of_events),
    TEST(a_hold_ends_when_it_is_let_go_or_by_itself),
    TEST_END,
};
