// Nodes of ONNX models that become one: what they compute, and when they do not. The kernels of a
// plan are counted by launches.
#include "check.h"
#include "onnx_writer.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdlib.h>

static tn_ctx *open_waiting(void)
{
    setenv("TN_COMPILE", "wait", 1);
    tn_ctx *cx = rules_open_scratch();
    unsetenv("TN_COMPILE");
    return cx;
}

static tn_onnx *open_graph(tn_ctx *cx, int nodes, const onnx_bytes *node, int weights,
                           const onnx_bytes *weight)
{
    onnx_bytes  file = onnx_model_of(nodes, node, weights, weight);
    const char *path = scratch_path("fuse.onnx");
    return scratch_write(path, file.data, file.n) ? tn_onnx_open(cx, path) : NULL;
}

static tn_tensor *run(tn_onnx *m, const char *output, tn_tensor *x)
{
    tn_tensor *y = NULL;
    CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 1, &output, &y), TN_OK);
    return y;
}

// The launches of a run that is computed.
static int64_t launches(tn_ctx *cx, tn_onnx *m, tn_tensor *x)
{
    CHECK_STATUS(tn_eval_of(run(m, "y", x)), TN_OK);
    int64_t before = tn_ctx_stats(cx).launches;
    CHECK_STATUS(tn_eval_of(run(m, "y", x)), TN_OK);
    return tn_ctx_stats(cx).launches - before;
}

// ---- batch norms -------------------------------------------------------------------------------

// One channel in, two out, 1 x 1: 2 x + 1 and 4 x - 1; then (v - mean) / sqrt(var + 0) * scale +
// shift.
static tn_onnx *open_norm(tn_ctx *cx, bool twice)
{
    const int64_t two[] = { 2 }, w[] = { 2, 1, 1, 1 };
    onnx_bytes    norm = onnx_node("BatchNormalization", "h g s m v", "y");
    onnx_bytes    a    = { .n = 0 };
    onnx_text(&a, 1, "epsilon");
    onnx_varint(&a, 2 << 3 | 5);
    memcpy(a.data + a.n, (float[]){ 0 }, 4);
    a.n += 4;
    onnx_int(&a, 20, 1);
    onnx_message(&norm, 5, &a);
    onnx_bytes node[]   = { onnx_node("Conv", "x w b", "h"), norm, onnx_node("Relu", "h", "z") };
    onnx_bytes weight[] = { onnx_tensor("w", 1, 4, w, (float[]){ 2, 4 }),
                            onnx_tensor("b", 1, 1, two, (float[]){ 1, -1 }),
                            onnx_tensor("g", 1, 1, two, (float[]){ 3, 1 }),
                            onnx_tensor("s", 1, 1, two, (float[]){ 0, 5 }),
                            onnx_tensor("m", 1, 1, two, (float[]){ 1, 1 }),
                            onnx_tensor("v", 1, 1, two, (float[]){ 4, 0.25f }) };
    return open_graph(cx, twice ? 3 : 2, node, 6, weight);
}

static tn_tensor *image(tn_ctx *cx, float a, float b)
{
    return tn_from(cx, TN_F32, TN_SHAPE(1, 1, 1, 2), (float[]){ a, b });
}

// The value before the norm is as it would be, when it is asked for or something else reads it.
static void a_batch_norm_goes_into_the_convolution(void)
{
    tn_ctx *cx = open_waiting();
    for (int twice = 0; twice < 2; twice++) {
        tn_onnx *m = open_norm(cx, twice);
        for (int i = 0; i < 6; i++) {
            tn_tensor *x = image(cx, (float)i, 1);
            CHECK_VALUES(run(m, "y", x), 3.0 * i, 3, 8.0 * i + 1, 9);
            CHECK_VALUES(run(m, "h", x), 2 * i + 1, 3, 4 * i - 1, 3);
            if (twice) CHECK_VALUES(run(m, "z", x), 2 * i + 1, 3, i ? 4 * i - 1 : 0, 3);
        }
        CHECK_STATUS(tn_onnx_cast(m, TN_F16), TN_OK);
        CHECK_VALUES(run(m, "y", image(cx, 2, 1)), 6, 3, 17, 9);
        tn_onnx_close(m);
    }
    rules_close_scratch(cx);
}

// A convolution of weights alone is kept from run to run, as it is before the norm.
static void what_is_kept_is_not_normed(void)
{
    tn_ctx       *cx    = open_waiting();
    const int64_t one[] = { 1 }, four[] = { 1, 1, 1, 1 };
    onnx_bytes    node[]   = { onnx_node("Relu", "i", "c"), onnx_node("Conv", "c w", "h"),
                               onnx_node("BatchNormalization", "h g s m v", "n"),
                               onnx_node("Add", "n x", "y") };
    onnx_bytes    weight[] = {
           onnx_tensor("i", 1, 4, four, (float[]){ 3 }), onnx_tensor("w", 1, 4, four, (float[]){ 2 }),
           onnx_tensor("g", 1, 1, one, (float[]){ 10 }), onnx_tensor("s", 1, 1, one, (float[]){ 5 }),
           onnx_tensor("m", 1, 1, one, (float[]){ 6 }),  onnx_tensor("v", 1, 1, one, (float[]){ 1 })
    };
    tn_onnx *m = open_graph(cx, 4, node, 6, weight);
    for (int i = 0; i < 3; i++) {
        tn_tensor *x = tn_full(cx, TN_F32, TN_SHAPE(1, 1, 1, 1), i);
        CHECK_VALUES(run(m, "y", x), 5 + i);
        CHECK_VALUES(run(m, "h", x), 6);
    }
    rules_close_scratch(cx);
}

// A layer trains the weights of both.
static void a_layer_keeps_its_batch_norm(void)
{
    tn_ctx    *cx = open_waiting();
    tn_onnx   *m  = open_norm(cx, false);
    tn_tensor *x  = image(cx, 2, 1);
    CHECK_VALUES(run(m, "y", x), 6, 3, 17, 9);
    tn_layer *l = tn_onnx_layer(m);
    tn_layer_train(l, false);
    tn_grad_mode(cx, false);
    CHECK(tn_layer_find(l, "g") &&
          tn_assign(tn_layer_find(l, "g"), tn_full(cx, TN_F32, TN_SHAPE(2), 0)));
    CHECK_VALUES(tn_forward(l, x), 0, 0, 5, 5);
    rules_close_scratch(cx);
}

// ---- products ----------------------------------------------------------------------------------

// y = (x q + x k) * x v; also through an Identity, whose products are others.
static tn_onnx *open_products(tn_ctx *cx, bool copied)
{
    const int64_t two[]    = { 2, 2 };
    onnx_bytes    node[]   = { onnx_node("MatMul", "x q", "a"),
                               onnx_node("Identity", "x", "i"),
                               onnx_node("MatMul", copied ? "i k" : "x k", "b"),
                               onnx_node("MatMul", copied ? "i v" : "x v", "c"),
                               onnx_node("Add", "a b", "d"),
                               onnx_node("Mul", "d c", "y") };
    onnx_bytes    weight[] = { onnx_tensor("q", 1, 2, two, (float[]){ 1, 0, 0, 1 }),
                               onnx_tensor("k", 1, 2, two, (float[]){ 2, 0, 0, 2 }),
                               onnx_tensor("v", 1, 2, two, (float[]){ 0, 1, 1, 0 }) };
    return open_graph(cx, 6, node, 3, weight);
}

static void products_of_one_input_are_one(void)
{
    tn_ctx *cx = open_waiting();
    for (int copied = 0; copied < 2; copied++) {
        tn_onnx *m = open_products(cx, copied);
        for (int i = 0; i < 6; i++) {
            tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 2), (float[]){ (float)i, 1, 2, 3 });
            CHECK_VALUES(run(m, "y", x), 3 * i, 3 * i, 18, 18);
            CHECK_VALUES(run(m, "c", x), 1, i, 3, 2);
        }
        // A single row, and a batch of matrices.
        CHECK_VALUES(run(m, "y", tn_from(cx, TN_F32, TN_SHAPE(1, 2), (float[]){ 5, 1 })), 15, 15);
        CHECK_VALUES(run(m, "y", tn_full(cx, TN_F32, TN_SHAPE(2, 1, 2), 2)), 12, 12, 12, 12);
        tn_onnx_close(m);
    }
    rules_close_scratch(cx);
}

// What is computed of weights stays from run to run; its products do not. y = (relu(q) k + x) +
// (relu(q) v + x).
static void products_of_weights_are_made_anew(void)
{
    tn_ctx       *cx       = open_waiting();
    const int64_t two[]    = { 2, 2 };
    onnx_bytes    node[]   = { onnx_node("Relu", "q", "i"), onnx_node("Gemm", "i k x", "a"),
                               onnx_node("Gemm", "i v x", "b"), onnx_node("Add", "a b", "y") };
    onnx_bytes    weight[] = { onnx_tensor("q", 1, 2, two, (float[]){ 1, 0, 0, 1 }),
                               onnx_tensor("k", 1, 2, two, (float[]){ 2, 0, 0, 2 }),
                               onnx_tensor("v", 1, 2, two, (float[]){ 0, 1, 1, 0 }) };
    tn_onnx      *m        = open_graph(cx, 4, node, 3, weight);
    for (int i = 0; i < 6; i++) {
        tn_scope *s = tn_begin(cx);
        CHECK_VALUES(run(m, "y", tn_full(cx, TN_F32, TN_SHAPE(2, 2), i)), 2 + 2 * i, 1 + 2 * i,
                     1 + 2 * i, 2 + 2 * i);
        tn_end(s);
    }
    rules_close_scratch(cx);
}

// x q + x k + x v with matrices of ones, 16 x 16: all read x, or each a copy of it.
static tn_onnx *open_larger(tn_ctx *cx, bool copied)
{
    float one[256];
    for (int i = 0; i < 256; i++) one[i] = 1;
    onnx_bytes node[]   = { onnx_node("Identity", "x", "i"),
                            onnx_node("MatMul", "x q", "a"),
                            onnx_node("MatMul", copied ? "i k" : "x k", "b"),
                            onnx_node("Identity", "x", "j"),
                            onnx_node("MatMul", copied ? "j v" : "x v", "c"),
                            onnx_node("Add", "a b", "d"),
                            onnx_node("Add", "c d", "y") };
    onnx_bytes weight[] = { onnx_tensor("q", 1, 2, (int64_t[]){ 16, 16 }, one),
                            onnx_tensor("k", 1, 2, (int64_t[]){ 16, 16 }, one),
                            onnx_tensor("v", 1, 2, (int64_t[]){ 16, 16 }, one) };
    return open_graph(cx, 7, node, 3, weight);
}

// A joined product and the map behind it, instead of three products.
static void joined_products_are_fewer_launches(void)
{
    tn_ctx    *cx = open_waiting();
    tn_onnx   *m = open_larger(cx, false), *other = open_larger(cx, true);
    tn_tensor *x   = tn_full(cx, TN_F32, TN_SHAPE(64, 16), 1);
    int64_t    few = launches(cx, m, x), more = launches(cx, other, x);
    CHECK_INT((int)tn_item(tn_max_all(run(m, "y", x))), 48);
    CHECK(few < more);
    rules_close_scratch(cx);
}

const test_case tests_onnx_fuse[] = { TEST(a_batch_norm_goes_into_the_convolution),
                                      TEST(what_is_kept_is_not_normed),
                                      TEST(a_layer_keeps_its_batch_norm),
                                      TEST(products_of_one_input_are_one),
                                      TEST(products_of_weights_are_made_anew),
                                      TEST(joined_products_are_fewer_launches),
                                      TEST_END };
