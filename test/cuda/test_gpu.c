// test_gpu.c: the cuda device against ref: every op of the table in every dtype and layout,
// gradients, random graphs, what PyTorch recorded. Without a GPU all of it is skipped.
//
//     TN_GRAPHS=10000 tenon-tests gpu/         runs that many random graphs instead of 300
//     TN_TEST_DEVICE=opencl tenon-tests gpu/   runs it all on another device
//
// Compiling takes most of the time, so a test runs in several processes at once. This one must not
// touch the GPU itself: what is forked from a process that did cannot use it.
#include "check.h"
#include "device_table.h"
#include "gpu_parts.h"
#include "graph_ways.h"
#include "on_device.h"
#include "table.h"

#include "device/device.h"

#include <string.h>
#include <tenon/models.h>
#include <unistd.h>

enum { MOST_PARTS = 16 };

static int cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN) - 1;
    return n < 1 ? 1 : n > MOST_PARTS ? MOST_PARTS : (int)n;
}

// ---- the table ---------------------------------------------------------------------------------

// Every parts-th op, so that each part has some of each class.
static int ops_of_part(int part, int parts, int *ops)
{
    int all[TNI_OPS], n = 0, m = 0;
    for (int class = 0; class <= TNI_LIBRARY; class ++)
        n += device_table_ops((tni_class) class, all + n);
    for (int i = part; i < n; i += parts) ops[m++] = all[i];
    return m;
}

static void run_table(int part, int parts)
{
    int ops[TNI_OPS], n = ops_of_part(part, parts, ops);
    device_table(tested_device(), false, COMPLETE, n, ops);
}

static void run_ops(int part, int parts)
{
    int ops[TNI_OPS], n = ops_of_part(part, parts, ops);
    device_table(tested_device(), true, FEW, n, ops);
}

static void every_op_agrees_with_ref(void)
{
    in_parts(run_table, cores());
}

static void every_op_by_itself_agrees_with_ref(void)
{
    in_parts(run_ops, cores());
}

// ---- sizes of all kinds ------------------------------------------------------------------------

static void run_sizes(int part, int parts)
{
    static void (*const all[])(const char *) = {
        products_on, scans_on, extrema_on, sorts_on, sums_on, scatters_on, long_lines_on, losses_on
    };
    for (int i = part; i < 8; i += parts) all[i](tested_device());
}

static void products_folds_and_sorts_of_all_sizes_agree_with_ref(void)
{
    in_parts(run_sizes, 8);
}

static void run_attention(int part, int parts)
{
    attention_on(tested_device(), part, parts);
    attention_forms_on(tested_device(), part, parts);
}

static void attention_agrees_with_ref(void)
{
    in_parts(run_attention, cores());
}

static void run_recognized(int part, int parts)
{
    recognize_on(tested_device(), part, parts);
}

static void attention_in_plain_ops_agrees_with_ref(void)
{
    in_parts(run_recognized, cores());
}

// ---- gradients, graphs, recordings -------------------------------------------------------------

static void run_gradients(int part, int parts)
{
    gradients_on(tested_device(), part, parts);
}

static void gradients_agree_with_ref(void)
{
    in_parts(run_gradients, cores());
}

static void run_differences(int part, int parts)
{
    differences_on(tested_device(), part, parts);
}

static void gradients_are_those_of_differences(void)
{
    in_parts(run_differences, cores());
}

static void run_graphs(int part, int parts)
{
    graph_way w     = { "fused", tested_device(), "TN_EAGER", "0" };
    int       share = (test_draws(300) + parts - 1) / parts;
    graph_way_run(&w, 500001 + (uint64_t)(part * share), share);
}

static void run_alone(int part, int parts)
{
    graph_way w     = { "op by op", tested_device(), "TN_EAGER", "1" };
    int       share = (test_draws(300) / 10 + parts - 1) / parts;
    graph_way_run(&w, 900001 + (uint64_t)(part * share), share);
}

static void random_graphs_agree_with_ref(void)
{
    in_parts(run_graphs, cores());
}

static void random_graphs_op_by_op_agree_with_ref(void)
{
    in_parts(run_alone, cores());
}

static void run_recordings(int part, int parts)
{
    recordings_on(tested_device(), part, parts);
}

static void training_steps_equal_those_of_pytorch(void)
{
    in_parts(run_recordings, cores());
}

// ---- failures ----------------------------------------------------------------------------------

// A bad index is told when it is known: by the evaluation, or when all is done.
static void run_bad_index(int part, int parts)
{
    const int64_t places[] = { 0, 2, 7, -1 };
    (void)part, (void)parts;
    for (int k = 0; k < 6; k++) {
        tn_ctx    *cx = open_eager(tested_device(), k & 1);
        tn_tensor *x  = tn_rand(cx, TN_F32, TN_SHAPE(5, 3)), *y;
        tn_tensor *i  = tn_from(cx, TN_I64, TN_SHAPE(4), places);
        tn_tensor *v  = tn_ones(cx, TN_F32, TN_SHAPE(4, 3));
        i             = tn_expand(tn_unsqueeze(i, 1), TN_SHAPE(4, 3));
        if (k / 2 == 0) y = tn_gather(x, 0, i);
        else y = k / 2 == 1 ? tn_scatter(x, 0, i, v) : tn_scatter_add(x, 0, i, v);
        tn_status s = tn_eval_of(y);
        if (s == TN_OK) s = tn_sync(cx);
        CHECK_STATUS(s, TN_EARG);
        test_that(strstr(tn_error_text(cx), "index 7 is out of range for size 5 along axis 0"),
                  "%s", tn_error_text(cx));
        tn_error_clear(cx);
        CHECK_NEAR(tn_item(tn_sum_all(tn_ones(cx, TN_F32, TN_SHAPE(7)))), 7, 0);
        tn_close(cx);
    }
}

static void an_index_out_of_range_is_told(void)
{
    in_parts(run_bad_index, 1);
}

// What one context compiled another finds, in memory or on disk.
static void run_counts(int part, int parts)
{
    (void)part, (void)parts;
    int64_t before = 0;
    for (int k = 0; k < 2; k++) {
        tn_ctx *cx = open_eager(tested_device(), false);
        CHECK_NEAR(tn_item(tn_sum_all(tn_sqrt(tn_ones(cx, TN_F32, TN_SHAPE(3, 19, 7))))), 399, 0);
        tn_stats s = tn_ctx_stats(cx);
        CHECK(s.kernels + s.disk_hits > 0);
        if (k) CHECK_INT(s.kernels + s.disk_hits, before);
        before = s.kernels + s.disk_hits;
        tn_close(cx);
    }
}

// ---- what follows products ---------------------------------------------------------------------

// A product whose result is needed besides; of one row; with the addend's place, or its own.
static tn_tensor *product_case(tn_ctx *cx, int k, tn_tensor **kept)
{
    int64_t    rows = k == 0 ? 5 : 1;
    tn_tensor *x    = tn_randn(cx, TN_F32, TN_SHAPE(rows, 8)),
              *w    = tn_randn(cx, TN_F32, TN_SHAPE(8, 6));
    tn_tensor *b = tn_randn(cx, TN_F32, TN_SHAPE(6)), *r = tn_randn(cx, TN_F32, TN_SHAPE(rows, 6));
    tn_eval(cx);
    tn_tensor *h = tn_matmul(x, w);
    *kept        = tn_keep(tn_zeros(cx, TN_F32, TN_SHAPE(rows, 6)));
    if (k == 0) tn_assign(*kept, h);
    if (k == 0) return tn_relu(tn_add(h, b));
    if (k == 1) return tn_relu(tn_add(tn_matmul(x, tn_mul_s(w, 2)), h));
    if (k == 2) return tn_add(h, h);
    return tn_add(tn_exp(r), h);
}

static void run_products(int part, int parts)
{
    (void)part, (void)parts;
    for (int k = 0; k < 4; k++) {
        float y[2][30], kept[2][30];
        for (int d = 0; d < 2; d++) {
            tn_ctx    *cx = open_quiet(d ? "ref" : tested_device(), 1);
            tn_scope  *s  = tn_begin(cx);
            tn_tensor *also, *t = tn_want(product_case(cx, k, &also));
            int64_t    n = tn_count(t);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            CHECK_STATUS(tn_read(t, TN_F32, y[d], n), TN_OK);
            CHECK_STATUS(tn_read(also, TN_F32, kept[d], n), TN_OK);
            for (int64_t i = 0; d && i < n; i++) {
                CHECK_NEAR(y[0][i], y[1][i], 1e-4);
                CHECK_NEAR(kept[0][i], kept[1][i], 1e-4);
            }
            tn_end(s);
            tn_close(cx);
        }
    }
}

static void what_follows_a_product_takes_nothing_away(void)
{
    in_parts(run_products, 1);
}

// ---- steps that fail ---------------------------------------------------------------------------

enum { WIDTH = 6, CLASSES = 4, ROWS = 5 };

// A step of a small network with these labels; what went wrong, also if it is told later.
static tn_status label_step(tn_layer *net, tn_optim *opt, tn_tensor *x, const int64_t *label)
{
    tn_ctx    *cx   = tn_ctx_of(x);
    tn_scope  *s    = tn_begin(cx);
    tn_tensor *y    = tn_from(cx, TN_I64, TN_SHAPE(ROWS), label);
    tn_tensor *loss = tn_cross_entropy(tn_forward(net, x), y);
    tn_status  told = tn_step(opt, loss), ended = tn_end(s), later = tn_sync(cx);
    return told != TN_OK ? told : ended != TN_OK ? ended : later;
}

static void read_weights(tn_layer *net, float *to)
{
    tn_tensor *w = tn_layer_find(net, "1.weight");
    CHECK_STATUS(tn_read(w, TN_F32, to, tn_count(w)), TN_OK);
}

// A failed step changes nothing, though the device goes on until it is told.
static void run_failed_step(int part, int parts)
{
    (void)part, (void)parts;
    static const int64_t good[ROWS] = { 0, 1, 2, 3, 0 }, bad[ROWS] = { 0, 1, CLASSES, 3, 0 };
    float                before[WIDTH * WIDTH], after[WIDTH * WIDTH];
    tn_ctx              *cx  = open_quiet(tested_device(), 1);
    tn_layer            *net = tn_mlp(cx, TN_SHAPE(WIDTH, WIDTH, CLASSES));
    tn_optim            *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 1e-2f });
    tn_tensor           *x   = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, WIDTH)));
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; i && j < 5; j++) CHECK_STATUS(label_step(net, opt, x, good), TN_OK);
        read_weights(net, before);
        CHECK_STATUS(label_step(net, opt, x, bad), TN_EARG);
        CHECK(strstr(tn_error_text(cx), "index 4 is out of range for size 4"));
        tn_error_clear(cx);
        read_weights(net, after);
        CHECK(!memcmp(before, after, sizeof before));
        CHECK_STATUS(label_step(net, opt, x, good), TN_OK);
        read_weights(net, after);
        CHECK(memcmp(before, after, sizeof before));
    }
    tn_close(cx);
}

static void a_step_that_fails_changes_nothing(void)
{
    in_parts(run_failed_step, 1);
}

static void kernels_are_compiled_once_and_counted(void)
{
    in_parts(run_counts, 1);
}

const test_case tests_gpu[] = {
    TEST(every_op_agrees_with_ref),
    TEST(every_op_by_itself_agrees_with_ref),
    TEST(products_folds_and_sorts_of_all_sizes_agree_with_ref),
    TEST(attention_agrees_with_ref),
    TEST(attention_in_plain_ops_agrees_with_ref),
    TEST(gradients_agree_with_ref),
    TEST(gradients_are_those_of_differences),
    TEST(random_graphs_agree_with_ref),
    TEST(random_graphs_op_by_op_agree_with_ref),
    TEST(training_steps_equal_those_of_pytorch),
    TEST(an_index_out_of_range_is_told),
    TEST(what_follows_a_product_takes_nothing_away),
    TEST(a_step_that_fails_changes_nothing),
    TEST(kernels_are_compiled_once_and_counted),
    TEST_END,
};
