// test_gpu_attention.c: attention in 16 bits on a GPU, by whatever method this machine has for it:
// against ref, captured into a graph, and with equal bits where that is asked for.
#include "check.h"
#include "gpu_parts.h"
#include "on_device.h"

#include "device/cuda/cudnn.h"
#include "device/cuda/dnn_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// B batches, H heads, T queries and keys, D their width.
enum { PARTS = 6, RUNS = 8, B = 2, H = 3, T = 200, D = 64, COUNT = B * T * 3 * H * D };

static void run_halves(int part, int parts)
{
    int64_t  compiled, found;
    tni_text why = { "" };
    attention_halves_on(tested_device(), part, parts);
    if (strncmp(tested_device(), "cuda", 4) || !tni_cudnn_get(&why)) return;
    tni_dnn_counts(&compiled, &found);
    CHECK(compiled + found > 0);
}

static void attention_in_16_bits_agrees_with_ref(void)
{
    in_parts(run_halves, PARTS);
}

// The gradient of all of q, k and v, one tensor, in the same scope again and again: the first runs
// are launched, the later ones are a graph.
static bool step(tn_ctx *cx, tn_tensor *all, tn_tensor *g, double *to)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x[3], *gx = NULL;
    for (int i = 0; i < 3; i++) x[i] = tn_transpose(tn_select(all, 2, i), 1, 2);
    tn_tensor *y = tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .causal = true });
    bool ok = tn_grad(1, &y, 1, &all, &g, &gx) == TN_OK && tn_read(gx, TN_F64, to, COUNT) == TN_OK;
    tn_end(s);
    return ok;
}

// How far the runs of one context are from the first, as a part of the largest element.
static double spread(tn_ctx *cx, double *first)
{
    static double now[COUNT];
    double        most = 0, apart = 0;
    tn_tensor    *all = tn_requires_grad(
           tn_want(tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(B, T, 3, H, D)), TN_BF16)), true);
    tn_tensor *g = tn_want(tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(B, H, T, D)), TN_BF16));
    if (!step(cx, all, g, first)) return INFINITY;
    for (int r = 1; r < RUNS; r++) {
        if (!step(cx, all, g, now)) return INFINITY;
        for (int i = 0; i < COUNT; i++) {
            most  = fmax(most, fabs(first[i]));
            apart = fmax(apart, fabs(now[i] - first[i]));
        }
    }
    return apart / most;
}

// bf16 has 8 bits: sums in another order may round to the next number.
static void run_steady(int part, int parts)
{
    static double first[COUNT];
    (void)part, (void)parts;
    tn_ctx *cx    = open_seeded(tested_device(), 7);
    double  apart = cx ? spread(cx, first) : INFINITY;
    test_that(apart <= 0.01, "runs differ by %g: %s", apart, cx ? tn_error_text(cx) : "");
    tn_close(cx);
}

static void attention_in_a_graph_gives_the_same(void)
{
    in_parts(run_steady, 1);
}

static void run_equal(int part, int parts)
{
    static double first[COUNT], again[COUNT];
    (void)part, (void)parts;
    setenv("TN_DETERMINISTIC", "1", 1);
    for (int i = 0; i < 2; i++) {
        tn_ctx *cx    = open_seeded(tested_device(), 7);
        double  apart = cx ? spread(cx, i ? again : first) : INFINITY;
        test_that(apart == 0, "runs differ by %g: %s", apart, cx ? tn_error_text(cx) : "");
        tn_close(cx);
    }
    CHECK(!memcmp(first, again, sizeof first));
}

static void attention_has_equal_bits_where_that_is_asked_for(void)
{
    in_parts(run_equal, 1);
}

const test_case tests_gpu_attention[] = { TEST(attention_in_16_bits_agrees_with_ref),
                                          TEST(attention_in_a_graph_gives_the_same),
                                          TEST(attention_has_equal_bits_where_that_is_asked_for),
                                          TEST_END };
