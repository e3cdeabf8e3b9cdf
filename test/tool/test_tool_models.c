// test_tool_models.c: the commands of the tool about models: run, bench, show, compare.
#include "onnx_writer.h"

#include "cli_kit.h"

#include <string.h>
#include <tenon.h>
#include <unistd.h>

// logits = relu(x @ w) @ v, of x (N, 2); v is scaled, so that two models can differ behind the
// first product.
static void write_net(const char *name, float scale, const char *op)
{
    onnx_bytes g = { .n = 0 }, dim = { .n = 0 }, two = { .n = 0 }, shape = { .n = 0 },
               tensor = { .n = 0 }, type = { .n = 0 }, x = { .n = 0 }, y = { .n = 0 },
               w = onnx_tensor("w", 1, 2, (int64_t[]){ 2, 2 }, (float[]){ 1, -1, 2, 1 }),
               v = onnx_tensor("v", 1, 2, (int64_t[]){ 2, 2 }, (float[]){ scale, 0, 0, 1 }),
               a = onnx_node("MatMul", "x w", "h"), b = onnx_node(op, "h", "r"),
               c = onnx_node("MatMul", "r v", "logits");
    onnx_text(&dim, 2, "N");
    onnx_int(&two, 1, 2);
    onnx_message(&shape, 1, &dim);
    onnx_message(&shape, 1, &two);
    onnx_int(&tensor, 1, 1);
    onnx_message(&tensor, 2, &shape);
    onnx_message(&type, 1, &tensor);
    onnx_text(&x, 1, "x");
    onnx_message(&x, 2, &type);
    onnx_text(&y, 1, "logits");
    onnx_message(&g, 11, &x);
    onnx_message(&g, 12, &y);
    onnx_message(&g, 5, &w);
    onnx_message(&g, 5, &v);
    onnx_message(&g, 1, &a);
    onnx_message(&g, 1, &b);
    onnx_message(&g, 1, &c);
    onnx_bytes m = onnx_model(&g, 17);
    FILE      *f = create(name);
    if (!f) return;
    fwrite(m.data, 1, m.n, f);
    fclose(f);
}

static void a_model_runs_on_files_and_on_words(void)
{
    if (!begin()) return;
    write_net("a.onnx", 1, "Relu");
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *x  = tn_from(cx, TN_F32, TN_SHAPE(1, 2), (float[]){ 1, 2 });
    CHECK_STATUS(tn_npy_write(x, scratch_path("x.npy")), TN_OK);
    runs(0, "tenon run a.onnx --input x=x.npy");
    prints("logits  f32 (1, 2)  from 1 to 5, mean 3\n  row 0: 0 (5), 1 (1)");
    runs(0, "tenon run a.onnx --input x=x.npy --output logits=y.npy --device ref");
    float y[2] = { 0 };
    CHECK_STATUS(tn_read(tn_npy_read(cx, scratch_path("y.npy")), TN_F32, y, 2), TN_OK);
    CHECK(y[0] == 5 && y[1] == 1);
    tn_close(cx);
    runs(0, "tenon run a.onnx --input x=zeros --dim N=3 --top 1");
    prints("(3, 2)  from 0 to 0");
    runs(1, "tenon run a.onnx --dim M=3");
    prints("no input of the model has a size \"M\"");
    runs(1, "tenon run a.onnx --dim N=99999999999999999999");
    prints("--dim N is a size");
    runs(1, "tenon run a.onnx --input z=zeros");
    prints("no input \"z\"");
    runs(1, "tenon run a.onnx --output z=z.npy");
    prints("no output \"z\"");
    runs(2, "tenon run a.onnx --input zeros");
    prints("NAME=VALUE");
    runs(1, "tenon run missing.onnx");
    prints("missing.onnx");
    runs(2, "tenon run");
    prints("a MODEL is needed");
    scratch_close();
}

static void a_model_is_timed_and_shown(void)
{
    if (!begin()) return;
    write_net("a.onnx", 1, "Relu");
    write_net("odd.onnx", 1, "Rleu");
    runs(0, "tenon bench a.onnx --seconds 0.05 --warmup 2");
    prints("then 1 to warm up, ");
    prints("throughput");
    runs(0, "tenon show a.onnx --nodes");
    prints("input   x  f32 (N, 2)");
    prints("3 nodes of 2 kinds: 2 MatMul, 1 Relu");
    prints("8 numbers in weights, 32 B");
    prints("onnx_run in MatMul");
    runs(1, "tenon show odd.onnx");
    prints("1 Rleu (which Tenon does not have)");
    prints("1 node cannot run");
    runs(
        0,
        "tenon show a.onnx --html a.html && grep -c '\"op\":\"MatMul\"' a.html && ! grep -Eq 'src=|href=|fetch|@import' a.html");
    runs(0,
         "tenon train --model mlp --hidden 4 --data digits:count=64 --epochs 1 --save m --quiet &&"
         " tenon bench m --dim N=2 --seconds 0.05 && tenon show m");
    prints("Linear");
    scratch_close();
}

static void two_models_are_compared_inside(void)
{
    if (!begin()) return;
    write_net("a.onnx", 1, "Relu");
    write_net("b.onnx", 2, "Relu");
    write_net("c.onnx", 1, "Neg");
    runs(0, "tenon compare a.onnx a.onnx");
    prints("all are equal");
    runs(1, "tenon compare a.onnx b.onnx --input x=ones");
    prints(
        "output logits: at most 3 apart, of values up to 3: different\nfirst difference, value logits");
    runs(1, "tenon compare a.onnx c.onnx --input x=ones");
    prints("first difference, value r");
    runs(2, "tenon compare a.onnx");
    prints("two MODELs are needed");
    scratch_close();
}

const test_case tests_tool_models[] = {
    TEST(a_model_runs_on_files_and_on_words),
    TEST(a_model_is_timed_and_shown),
    TEST(two_models_are_compared_inside),
    TEST_END,
};
