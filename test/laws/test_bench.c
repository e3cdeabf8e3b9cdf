// test_bench.c: the program of measurements still measures, and what it measures of a first step
// has its reason: nobody waits for the compiler.
#include "check.h"
#include "scratch.h"
#include "tree.h"

#include "device/cpu/cpu_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tenon.h>
#include <tenon/models.h>
#include <time.h>
#include <unistd.h>

// B batch
enum { B = 64, PIXELS = 784, SLOW = 30, STEPS = 5 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- the first step

// The first steps of a process that has compiled nothing, with a compiler that takes SLOW seconds.
// A plan is compiled when it comes again, so that it is steps behind the first that could wait.
static void take_steps(void)
{
    tn_ctx   *cx    = tn_open("cpu");
    tn_layer *net   = tn_mlp(cx, TN_SHAPE(PIXELS, 128, 10));
    tn_optim *opt   = tn_adam(net, (tn_adam_opts){ .lr = 1e-3f });
    double    start = seconds();
    for (int i = 0; i < STEPS; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(B, PIXELS));
        tn_tensor *y = tn_randint(cx, TN_I64, 0, 10, TN_SHAPE(B));
        CHECK_STATUS(tn_step(opt, tn_cross_entropy(tn_forward(net, x), y)), TN_OK);
        tn_end(s);
        CHECK_INT(tn_ctx_stats(cx).kernels, 0);
    }
    double         took = seconds() - start;
    tni_cpu_counts n    = tni_cpu_kernels_counts();
    test_that(took < SLOW / 2.0, "%d steps took %.3f s", STEPS, took);
    test_that(n.queued > 0, "no kernel waits for the compiler: %s", n.why.s);
    CHECK_INT(n.compiled + n.found + n.failed, 0);
    tn_close(cx);
}

static void the_first_steps_do_not_wait_for_the_compiler(void)
{
    char     text[256];
    int      status = -1;
    tni_text detail = { "" };
    if (!tni_cpu_compiler(&detail)) SKIP("there is no compiler here: %s", detail.s);
    if (!CHECK(scratch_open())) return;
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase \"$*\" in *-shared*-o*) exec sleep %d;; esac\nexec cc \"$@\"\n",
             SLOW);
    CHECK(scratch_write(scratch_path("slowcc"), text, strlen(text)));
    CHECK(chmod(scratch_path("slowcc"), 0700) == 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("TN_CC", scratch_path("slowcc"), 1);
        setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
        setenv("TMPDIR", scratch_path("."), 1);
        unsetenv("TN_COMPILE");
        unsetenv("TN_EAGER");
        take_steps();
        fflush(NULL);
        exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    scratch_close();
}

static void be_silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

// ---- the program

#define PROGRAM TN_BUILD_DIR "/tenon-bench"

static char out[1 << 15];

static void the_bench_measures(void)
{
    static const char *const rows[] = { "\"8 maps, 16 M\"",
                                        "\"softmax 8192 x 4096\"",
                                        "\"layer_norm 8192 x 1024\"",
                                        "\"cross_entropy 2048 x 50257\"",
                                        "\"mlp step, batch 64, 1 thread\"",
                                        "\"first mlp step, batch 64\"" };
    if (access(PROGRAM, X_OK) != 0) SKIP("tenon-bench is not built");
    int status = tree_run("'" PROGRAM "' --quick --json --threads 1 fused training cold", out,
                          sizeof out);
    test_that(status == 0, "tenon-bench: status %d: %.500s", status, out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        test_that(strstr(out, rows[i]) != NULL, "no row %s in: %.500s", rows[i], out);
    const char *note = strstr(out, "no hand-written loops");
    test_that(!note, "%.300s", note ? note : "");
}

static void without_a_compiler_the_bench_says_so(void)
{
    if (access(PROGRAM, X_OK) != 0) SKIP("tenon-bench is not built");
    int status = tree_run("TN_CC=none '" PROGRAM "' --quick fused", out, sizeof out);
    test_that(status == 0, "tenon-bench: status %d: %.500s", status, out);
    CHECK(strstr(out, "no hand-written loops to compare with: TN_CC is none") != NULL);
    CHECK(strstr(out, "softmax 8192 x 4096") != NULL);
}

// ---- on a GPU

// The cases are tried where there is a device at all.
static void the_bench_of_gpus_measures_on_any_device(void)
{
    static const char *const rows[] = { "\"tanh(x.T+v)*x 4096^2 f32\"",
                                        "\"layer norm 8192x4096 bf16\"",
                                        "\"linear+gelu 16384x768x3072 bf16\"",
                                        "\"clip + adamw 130 M f32\"",
                                        "\"matmul 8192^3 f16\"",
                                        "\"mlp step, batch 1024: device\"",
                                        "\"gpt2 tokens a second\"",
                                        "\"60,000 images, 5 epochs, warm\"" };
    if (access(PROGRAM, X_OK) != 0) SKIP("tenon-bench is not built");
    int status = tree_run("TN_BENCH_DEVICE=cpu '" PROGRAM "' --quick --json gpu_ops gpu_steps "
                          "gpu_gpt2 gpu_images 2>&1",
                          out, sizeof out);
    test_that(status == 0, "tenon-bench: status %d: %.500s", status, out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        test_that(strstr(out, rows[i]) != NULL, "no row %s in: %.500s", rows[i], out);
    CHECK(strstr(out, "WRONG") == NULL);
}

// The targets of make: measuring fails, testing is skipped.
static void without_a_gpu_the_scripts_say_so(void)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cuda", .handler = be_silent });
    tn_close(cx);
    if (cx) SKIP("there is a GPU");
    if (access(PROGRAM, X_OK) != 0) SKIP("tenon-bench is not built");
    int status = tree_run("'" PROGRAM "' --child gpu", out, sizeof out);
    CHECK(status != 0);
    CHECK(strstr(out, "device cuda is not available") != NULL);
    if (access(TN_BUILD_DIR "/tenon", X_OK) != 0) SKIP("the tool is not built");
    status = tree_run("'" TN_SOURCE_DIR "/test/gpu.sh' '" TN_BUILD_DIR "/tenon' false", out,
                      sizeof out);
    CHECK_INT(status, 0);
    CHECK(strstr(out, "SKIP test-gpu: ") == out);
}

const test_case tests_bench[] = {
    TEST(the_first_steps_do_not_wait_for_the_compiler),
    TEST(the_bench_measures),
    TEST(without_a_compiler_the_bench_says_so),
    TEST(the_bench_of_gpus_measures_on_any_device),
    TEST(without_a_gpu_the_scripts_say_so),
    TEST_END,
};
