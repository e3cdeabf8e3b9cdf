// test_programs.c: random programs of views, writes, gradients, scopes and evaluations, each run by
// the library and by the plain interpreter of oracle.h, which must agree on all that is read. A
// program that fails is shrunk and printed as a listing.
//
//     TN_PROGRAM=12345 tenon-tests programs    runs and prints that one (also one that crashes)
//     TN_PROGRAMS=100000 tenon-tests programs  runs that many
#include "program.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// The same in a child, so that a crash is a failure like any other.
static bool agrees_in_child(const program *p)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool quiet = freopen("/dev/null", "w", stderr) != NULL;
        _exit(!quiet || !prg_agrees(p, NULL, NULL));
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) < 0) return false;
    return status == 0;
}

// Takes out instructions as long as the program still fails, and prints what is left.
static void shrink(program p)
{
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (int i = p.count - 1; i >= 0; i--) {
            program q = p;
            memmove(&q.code[i], &q.code[i + 1], (size_t)(p.count - i - 1) * sizeof *q.code);
            q.count--;
            if (agrees_in_child(&q)) continue;
            p       = q;
            smaller = true;
        }
    }
    printf("---- program %llu on %s%s%s, flush_nodes %lld\n", (unsigned long long)p.seed, p.device,
           p.singles ? ", with f32" : "", p.wrapped ? ", in a scope" : "",
           (long long)p.flush_nodes);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(!prg_agrees(&p, stdout, NULL));
    int status = 0;
    if (pid > 0) waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) printf("    // CRASHES: %s\n", strsignal(WTERMSIG(status)));
    printf("----\n");
}

static volatile uint64_t now_seed;

static void crashed(int sig)
{
    char text[96];
    int  n = snprintf(text, sizeof text, "program %llu crashed: run with TN_PROGRAM=%llu\n",
                      (unsigned long long)now_seed, (unsigned long long)now_seed);
    if (write(1, text, (size_t)n) < 0) n = 0;
    signal(sig, SIG_DFL);
    raise(sig);
}

static bool has_sanitizer(void)
{
    return TN_SANITIZE[0] != 0;
}

static void run_programs(const char *device, int count, uint64_t first)
{
    const char *one = getenv("TN_PROGRAM"), *many = getenv("TN_PROGRAMS");
    int         shown = 0;
    program     p;
    if (one) {
        prg_generate(&p, strtoull(one, NULL, 10), device);
        if (!CHECK(agrees_in_child(&p))) shrink(p);
        return;
    }
    if (many) count = atoi(many);
    if (has_sanitizer()) count /= 20;
    for (int i = 0; i < count; i++) {
        char text[512];
        now_seed = first + (uint64_t)i;
        prg_generate(&p, now_seed, device);
        bool ok = prg_agrees(&p, NULL, text);
        test_case_result(ok, "program %llu on %s: %s", (unsigned long long)p.seed, device, text);
        if (!ok && shown++ < 3) shrink(p);
    }
}

static void catch_crashes(void)
{
    if (has_sanitizer()) return;
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    signal(SIGBUS, crashed);
    signal(SIGFPE, crashed);
}

static void programs_agree_with_the_oracle_on_cpu(void)
{
    catch_crashes();
    run_programs("cpu", 27000, 1);
}

static void programs_agree_with_the_oracle_on_ref(void)
{
    catch_crashes();
    run_programs("ref", 3000, 1000001);
}

// ---- what programs have found, in short

static tn_tensor *counting(tn_ctx *cx, int64_t n)
{
    return tn_arange(cx, TN_F64, 1, (double)n + 1, 1);
}

static bool holds(tn_tensor *t, int64_t n, const double *want)
{
    double got[16];
    return tn_read(t, TN_F64, got, n) == TN_OK && !memcmp(got, want, (size_t)n * sizeof *got);
}
#define HOLDS(t, ...) \
    CHECK(holds(t, sizeof((double[]){ __VA_ARGS__ }) / 8, (double[]){ __VA_ARGS__ }))

static void a_write_to_all_of_a_store_keeps_the_order_of_its_view(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *x = counting(cx, 4), *v = tn_view(x, TN_SHAPE(2, 2));
    tn_assign(v, tn_transpose(v, 0, 1));
    HOLDS(x, 1, 3, 2, 4);
    tn_close(cx);
}

static void a_clone_is_a_value_of_its_own(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *w = tn_requires_grad(counting(cx, 3), true), *x = tn_mul_s(w, 2), *c = tn_clone(x),
              *g;
    tn_tensor *y = tn_sum_all(tn_mul(x, c));
    CHECK_STATUS(tn_grad(1, &y, 1, &c, NULL, &g), TN_OK);
    HOLDS(g, 2, 4, 6);
    tn_tensor *a = tn_exp(counting(cx, 3)), *b = tn_clone(a), *z = tn_neg(a);
    tn_eval(cx);  // a was consumed, b was not
    CHECK(tn_item(tn_add(tn_select(b, 0, 1), tn_select(z, 0, 1))) == 0);
    tn_close(cx);
}

static void a_view_lives_as_long_as_its_base(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *x = tn_want(tn_neg(counting(cx, 4))), *v = tn_slice(x, 0, 1, 3, 1), *y = tn_exp(v);
    tn_eval(cx);
    HOLDS(v, -2, -3);
    CHECK(tn_item(tn_select(y, 0, 0)) > 0);
    tn_close(cx);
}

static void a_gradient_that_is_not_there_reads_as_zeros_after_a_step(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *w  = tn_requires_grad(tn_want(counting(cx, 2)), true);
    tn_tensor *y  = tn_add(tn_detach(w), tn_grad_of(w));
    tn_eval(cx);
    HOLDS(tn_grad_of(w), 0, 0);
    HOLDS(y, 1, 2);
    tn_close(cx);
}

static void a_view_of_a_leaf_is_never_spent(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *w = tn_requires_grad(tn_want(counting(cx, 3)), true), *v = tn_slice(w, 0, 1, 3, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul_s(v, 2)), NULL), TN_OK);
        tn_eval(cx);
    }
    HOLDS(tn_grad_of(w), 0, 6, 6);
    tn_close(cx);
}

static void a_leaf_that_is_a_view_counts_once(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *v  = tn_requires_grad(tn_slice(counting(cx, 3), 0, 1, 3, 1), true), *g;
    tn_tensor *y  = tn_sum_all(tn_square(v));
    CHECK_STATUS(tn_grad(1, &y, 1, &v, NULL, &g), TN_OK);
    HOLDS(g, 4, 6);
    tn_close(cx);
}

static void a_write_spares_what_a_gradient_will_read(void)
{
    tn_ctx    *cx  = tn_open("cpu");
    double     k[] = { 1, 2, 3 };
    tn_tensor *w   = tn_requires_grad(tn_want(counting(cx, 3)), true);
    tn_tensor *x = tn_from(cx, TN_F64, TN_SHAPE(3), k), *y = tn_mul(x, w);
    tn_add_(tn_slice(x, 0, 1, TN_TO_END, 1), tn_slice(x, 0, 0, -1, 1));
    HOLDS(x, 1, 3, 5);
    HOLDS(y, 1, 4, 9);
    tn_backward(tn_sum_all(y), NULL);
    HOLDS(tn_grad_of(w), 1, 2, 3);
    tn_close(cx);
}

static void second_gradients_reach_a_view_and_a_reshaped_copy(void)
{
    tn_ctx    *cx  = tn_open("cpu");
    tn_tensor *w   = tn_requires_grad(tn_reshape(counting(cx, 6), TN_SHAPE(2, 3)), true);
    tn_tensor *x[] = { tn_select(w, 1, 1), tn_reshape(tn_transpose(w, 0, 1), TN_SHAPE(6)) };
    for (int i = 0; i < 2; i++) {
        tn_tensor *g, *h, *y = tn_sum_all(tn_mul(tn_square(x[i]), x[i]));
        CHECK_STATUS(tn_grad(1, &y, 1, &x[i], NULL, &g), TN_OK);
        tn_tensor *s = tn_sum_all(g);
        CHECK_STATUS(tn_grad(1, &s, 1, &x[i], NULL, &h), TN_OK);
        if (i) HOLDS(h, 6, 24, 12, 30, 18, 36);
        else HOLDS(h, 12, 30);
    }
    tn_tensor *y = tn_select(x[1], 0, 2), *g;
    CHECK_STATUS(tn_grad(1, &y, 1, &x[1], NULL, &g), TN_OK);
    HOLDS(g, 0, 0, 1, 0, 0, 0);
    tn_close(cx);
}

const test_case tests_programs[] = {
    TEST(programs_agree_with_the_oracle_on_cpu),
    TEST(programs_agree_with_the_oracle_on_ref),
    TEST(a_write_to_all_of_a_store_keeps_the_order_of_its_view),
    TEST(a_clone_is_a_value_of_its_own),
    TEST(a_view_lives_as_long_as_its_base),
    TEST(a_gradient_that_is_not_there_reads_as_zeros_after_a_step),
    TEST(a_view_of_a_leaf_is_never_spent),
    TEST(a_leaf_that_is_a_view_counts_once),
    TEST(a_write_spares_what_a_gradient_will_read),
    TEST(second_gradients_reach_a_view_and_a_reshaped_copy),
    TEST_END,
};
