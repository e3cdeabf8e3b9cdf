// recording.c: what it costs to record, plan and free nodes, whatever they compute.
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHAIN = 10000, MILLION = 1000000, STEPS = 100000, COUNTED = 20000 };

static tn_tensor *add(tn_tensor *y, tn_tensor *x)
{
    return tn_add(y, x);
}

static tn_tensor *mul_s(tn_tensor *y, tn_tensor *x)
{
    (void)x;
    return tn_mul_s(y, 1.5);
}

static tn_tensor *relu(tn_tensor *y, tn_tensor *x)
{
    (void)x;
    return tn_relu(y);
}

typedef tn_tensor *link_fn(tn_tensor *y, tn_tensor *x);

static tn_tensor *chain(link_fn *f, tn_tensor *x, int64_t n)
{
    tn_tensor *y = x;
    for (int64_t i = 0; i < n; i++) y = f(y, x);
    return y;
}

// Four elements: larger than the one-element values that a step boundary stores.
static tn_tensor *start(tn_ctx *cx)
{
    tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(4));
    tn_eval_of(x);
    return x;
}

// ---- record

static void record_one(const char *what, const char *per_call, link_fn *f)
{
    enum { RUNS = 41 };
    double     took[RUNS];
    int64_t    nodes = 0;
    tn_ctx    *cx    = bench_open((tn_open_opts){ .flush_nodes = 1 << 30 });
    tn_tensor *x     = start(cx);
    for (int i = -3; i < RUNS; i++) {
        tn_scope *s      = tn_begin(cx);
        int64_t   before = tn_ctx_stats(cx).nodes;
        double    begin  = bench_seconds();
        chain(f, x, CHAIN);
        if (i >= 0) took[i] = bench_seconds() - begin;
        nodes = tn_ctx_stats(cx).nodes - before;
        tn_end(s);
    }
    bench_check(cx);
    tn_close(cx);
    double each = bench_middle(took, RUNS) / (double)nodes;
    bench_add((bench_row){ "record", what, each * 1e9, "ns/node", NAN, NULL });
    if (nodes != CHAIN)
        bench_add((bench_row){ "record", per_call, (double)nodes / CHAIN, "", NAN, NULL });
}

void bench_record(void)
{
    record_one("tn_add", "tn_add, nodes per call", add);
    record_one("tn_mul_s", "tn_mul_s, nodes per call", mul_s);
    record_one("tn_relu", "tn_relu, nodes per call", relu);
}

// ---- a million nodes

void bench_chain(void)
{
    tn_ctx    *cx = bench_open((tn_open_opts){ .flush_nodes = 1 << 30, .threads = 1 });
    tn_tensor *x  = start(cx);
    tn_scope  *s  = tn_begin(cx);
    double     t0 = bench_seconds();
    chain(add, x, MILLION);
    double t1 = bench_seconds();
    tn_eval(cx);
    double t2 = bench_seconds();
    tn_end(s);
    double t3 = bench_seconds();
    bench_check(cx);
    tn_close(cx);
    bench_add((bench_row){ "chain_1m", "record", (t1 - t0) * 1e3, "ms", NAN, NULL });
    bench_add((bench_row){ "chain_1m", "evaluate", (t2 - t1) * 1e3, "ms", NAN, NULL });
    bench_add((bench_row){ "chain_1m", "free", (t3 - t2) * 1e3, "ms", NAN, NULL });
}

// ---- a loop

static double resident_bytes(void)
{
    long  pages = 0;
    FILE *f     = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

// A step as a training loop has it: forward, backward, update, boundary.
static void small_step(tn_ctx *cx, tn_tensor *x, tn_tensor *w)
{
    tn_scope *s = tn_begin(cx);
    tn_backward(tn_mean_all(tn_square(tn_tanh(tn_matmul(x, w)))), NULL);
    tn_grad_mode(cx, false);
    tn_sub_(w, tn_mul_s(tn_grad_of(w), 0.01));
    tn_zero_grad(w);
    tn_eval(cx);
    tn_end(s);
}

void bench_loop(void)
{
    tn_ctx    *cx = bench_open((tn_open_opts){ .threads = 1 });
    tn_tensor *x  = tn_randn(cx, TN_F32, TN_SHAPE(8, 8));
    tn_tensor *w  = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(8, 8)), true);
    tn_eval_of(x);
    tn_eval_of(w);
    for (int i = 0; i < 1000; i++) small_step(cx, x, w);
    double bytes = resident_bytes(), begin = bench_seconds();
    for (int i = 0; i < STEPS; i++) small_step(cx, x, w);
    double took = bench_seconds() - begin;
    bench_check(cx);
    bench_add((bench_row){ "loop", "steps", STEPS / took, "steps/s", NAN, NULL });
    bench_add((bench_row){ "loop", "resident memory grew by", (resident_bytes() - bytes) / 1024,
                           "KiB", NAN, NULL });
    tn_close(cx);
}

// ---- instructions

// mode: "none" does all but record, "record" records and frees, "evaluate" evaluates too.
void bench_instructions_child(const char *mode)
{
    tn_ctx    *cx = bench_open((tn_open_opts){ .flush_nodes = 1 << 30, .threads = 1 });
    tn_tensor *x  = start(cx);
    tn_scope  *s  = tn_begin(cx);
    chain(add, x, strcmp(mode, "none") ? COUNTED : 1);
    if (strcmp(mode, "record")) tn_eval(cx);
    tn_end(s);
    bench_check(cx);
    tn_close(cx);
}

static double instructions_of(const char *mode)
{
    char arguments[64];
    snprintf(arguments, sizeof arguments, "--child %s", mode);
    return bench_child("TN_BLAS=none TN_NUM_THREADS=1 valgrind --tool=callgrind"
                       " --callgrind-out-file=/dev/null",
                       arguments, "Collected : ");
}

void bench_instructions(void)
{
    if (system("command -v valgrind >/dev/null 2>&1") != 0) {
        bench_note("instructions", "not counted: valgrind is not installed (apt install valgrind)");
        return;
    }
    double none = instructions_of("none"), record = instructions_of("record");
    double both = instructions_of("evaluate");
    if (isnan(none + record + both)) {
        bench_note("instructions", "not counted: valgrind could not run this program");
        return;
    }
    bench_add((bench_row){ "instructions", "record and free", (record - none) / COUNTED, "per node",
                           NAN, NULL });
    bench_add((bench_row){ "instructions", "evaluate", (both - record) / COUNTED, "per node", NAN,
                           NULL });
}
