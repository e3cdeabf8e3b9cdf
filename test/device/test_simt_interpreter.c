// test_simt_interpreter.c: kernels as data. On opencl every kind of op and random graphs agree with
// ref when nothing is compiled for them; for an H200 the interpreters compile; on a GPU a new graph
// waits for no compiler.
#include "check.h"
#include "device_table.h"
#include "gpu_parts.h"
#include "graph_ways.h"
#include "kernel_kit.h"
#include "on_device.h"
#include "scratch.h"

#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/opencl/opencl.h"

#include <stdlib.h>
#include <tenon.h>
#include <tenon/models.h>
#include <time.h>

static void ops_that_are_interpreted_agree(void)
{
    // What graphs have little of.
    static const tni_class classes[] = { TNI_CAST, TNI_REDUCE, TNI_SOURCE };
    int                    ops[TNI_OPS];
    setenv("TN_COMPILE", "never", 1);
    if (!tni_cl_get()) SKIP("%s", tni_cl_detail());
    for (int i = 0; i < 3; i++)
        device_table("opencl", false, FEW, device_table_ops(classes[i], ops), ops);
}

static void graphs_that_are_interpreted_agree(void)
{
    static const graph_way way = { "opencl, interpreted", "opencl", "TN_COMPILE", "never" };
    graph_way_run(&way, 400001, test_draws(80));
}

static void a_kernel_with_too_many_words_is_refused(void)
{
    kit_case         *c = calloc(1, sizeof *c);
    tni_simt_program *p = calloc(1, sizeof *p);
    kit_begin(c, 1, (int64_t[]){ 4 }, 1, (int64_t[]){ 8 }, true);
    int x = kit_load(c, kit_input(c, TN_F32, TNI_PER_ELEM)), v = x;
    // Every fold is a loop of its own, which computes all before it again.
    for (int i = 0; i < 40; i++) v = kit_map(c, TNI_sub, v, kit_reduce(c, TNI_max, v, false), -1);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ELEM), v);
    CHECK(tni_kernel_seal(&c->k));
    CHECK(!tni_simt_program_write(p, &c->l, 2));
    kit_free(c);
    free(c);
    free(p);
}

static void interpreters_compile_for_an_h200(void)
{
    tni_heap heap = tni_heap_default();
    tni_text why  = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int i = 0; i < TNI_INTERPRETERS; i++) {
        tni_interpreter_level level = (tni_interpreter_level)i;
        tni_emit_item         item  = { .opts = &level };
        tni_usage             u     = { 0 };
        tni_cubin             c;
        char *text = tni_emit_program(&heap, &tni_dialect_cuda, tni_emit_interpreter, 1, &item,
                                      level < TNI_INTERPRET_ALL);
        CHECK_STATUS(tni_cubin_compile(&c, text, "sm_90", true, &why), TN_OK);
        CHECK(tni_cubin_usage(&c, TNI_INTERPRETER_NAME, &u) && u.registers > 0);
        tni_cubin_free(&c);
        tni_free(&heap, text);
    }
}

// ---- on a GPU ----------------------------------------------------------------------------------

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Another graph for each i, with its gradients.
static void run_small_graph(tn_ctx *cx, int i)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = tn_requires_grad(tn_rand(cx, TN_F32, TN_SHAPE(2 + i % 5, 3 + i % 7)), true),
              *y = x, *gx;
    for (int k = 0; k < 5; k++) switch (i >> k & 3) {
        case 0: y = tn_mul(y, x); break;
        case 1: y = tn_tanh(y); break;
        case 2: y = tn_softmax(y, -1); break;
        default: y = tn_sub(y, tn_mean_keep(y, 0));
        }
    y = tn_sum_all(y);
    CHECK_STATUS(tn_grad(1, &y, 1, &x, NULL, &gx), TN_OK);
    CHECK(tn_item(y) == tn_item(y) && tn_item(tn_sum_all(gx)) < 1e6);
    tn_end(s);
}

// In a process of its own, with what the one before left on disk.
static void time_graphs(int part, int parts)
{
    double most = 0;
    (void)part, (void)parts;
    unsetenv("TN_COMPILE");
    tn_ctx *cx = tn_open("cuda");
    run_small_graph(cx, 31);
    for (int i = 0; i < 31; i++) {
        double from = seconds();
        run_small_graph(cx, i);
        double took = seconds() - from;
        if (took > most) most = took;
    }
    CHECK(most < 0.02);
    tn_close(cx);
}

static void fill_disk(int part, int parts)
{
    (void)part, (void)parts;
    unsetenv("TN_COMPILE");
    tn_ctx *cx = tn_open("cuda");
    for (int i = 31; i < 34; i++) run_small_graph(cx, i);
    tn_close(cx);
}

static void a_new_graph_takes_at_most_20_ms_on_a_gpu(void)
{
    if (!CHECK(scratch_open())) return;
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    in_parts(fill_disk, 1);
    in_parts(time_graphs, 1);
    scratch_close();
}

static void time_lenet(int part, int parts)
{
    (void)part, (void)parts;
    unsetenv("TN_COMPILE");
    tn_ctx    *cx   = tn_open("cuda");
    double     from = seconds();
    tn_data   *data = tn_digits(cx, (tn_digits_opts){ .count = 256 });
    tn_layer  *net  = tn_lenet(cx);
    tn_optim  *opt  = tn_adamw(net, (tn_adamw_opts){ .lr = 1e-3f });
    tn_batch   b    = tn_next(data, 64);
    tn_tensor *loss = tn_cross_entropy(tn_forward(net, b.x), b.y);
    CHECK_STATUS(tn_step(opt, loss), TN_OK);
    double v = tn_item(loss), took = seconds() - from;
    CHECK(v > 2 && v < 3);
    CHECK(took < 1.5);
    tn_close(cx);
}

static void the_first_step_of_lenet_takes_at_most_1500_ms_on_a_gpu(void)
{
    if (!CHECK(scratch_open())) return;
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    in_parts(time_lenet, 1);
    scratch_close();
}

const test_case tests_simt_interpreter[] = {
    TEST(ops_that_are_interpreted_agree),
    TEST(graphs_that_are_interpreted_agree),
    TEST(a_kernel_with_too_many_words_is_refused),
    TEST(interpreters_compile_for_an_h200),
    TEST(a_new_graph_takes_at_most_20_ms_on_a_gpu),
    TEST(the_first_step_of_lenet_takes_at_most_1500_ms_on_a_gpu),
    TEST_END,
};
