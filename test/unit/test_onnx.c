// ONNX files: what they mean, and what is refused. The operators one by one are compared with the
// ONNX package's own cases by `make test-onnx`.
#include "check.h"
#include "onnx_writer.h"
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *write_model(const onnx_bytes *m)
{
    const char *path = scratch_path("m.onnx");
    return scratch_write(path, m->data, m->n) ? path : NULL;
}

// y = op(x) of a model of one node.
static onnx_bytes one_node(const onnx_bytes *node, int opset)
{
    onnx_bytes g = { .n = 0 };
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 1, node);
    return onnx_model(&g, opset);
}

// Runs a model of one input and one output; NULL where it fails.
static tn_tensor *run_model(tn_ctx *cx, const onnx_bytes *bytes, tn_tensor *x)
{
    tn_onnx   *m = tn_onnx_open(cx, write_model(bytes));
    tn_tensor *y = NULL;
    if (m) tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y);
    return y;
}

// ---- meaning -----------------------------------------------------------------------------------

// y = relu(x @ w + b), and a second run with the same weights.
static void a_small_network_runs(void)
{
    tn_ctx    *cx  = rules_open_scratch();
    onnx_bytes g   = { .n = 0 },
               w   = onnx_tensor("w", 1, 2, (int64_t[]){ 2, 2 }, (float[]){ 1, -1, 2, 1 }),
               b   = onnx_tensor("b", 1, 1, (int64_t[]){ 2 }, (float[]){ 0.5f, 0 }),
               mul = onnx_node("MatMul", "x w", "h"), add = onnx_node("Add", "h b", "s"),
               relu = onnx_node("Relu", "s", "y");
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &w);
    onnx_message(&g, 5, &b);
    onnx_message(&g, 1, &mul);
    onnx_message(&g, 1, &add);
    onnx_message(&g, 1, &relu);
    onnx_bytes file = onnx_model(&g, 17);
    tn_onnx   *m    = tn_onnx_open(cx, write_model(&file));
    tn_tensor *x    = tn_from(cx, TN_F32, TN_SHAPE(1, 2), (float[]){ 1, 2 }), *y;
    CHECK(m && tn_onnx_inputs(m) == 1 && tn_onnx_outputs(m) == 1);
    CHECK_STR(tn_onnx_input(m, 0).name, "x");
    CHECK_STR(tn_onnx_output(m, 0).name, "y");
    CHECK_INT(tn_onnx_input(m, 0).rank, -1);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(tn_onnx_run(m, 1, (const char *[]){ "x" }, &x, 1, (const char *[]){ "y" }, &y),
                     TN_OK);
        CHECK_VALUES(y, 5.5, 1);
    }
    CHECK_STATUS(tn_onnx_cast(m, TN_F16), TN_OK);
    CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y), TN_OK);
    CHECK_INT(tn_dtype_of(y), TN_F32);
    CHECK_VALUES(y, 5.5, 1);
    CHECK_STATUS(tn_onnx_cast(m, TN_I8), TN_EDTYPE);
    CHECK_FAILED2(cx, TN_EDTYPE, "onnx_cast", "i8");
    CHECK_STATUS(tn_onnx_cast(m, TN_F32), TN_OK);
    CHECK_STATUS(tn_onnx_run(m, 1, (const char *[]){ "z" }, &x, 1, NULL, &y), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "onnx_run", "\"z\"");
    CHECK_STATUS(tn_onnx_run(m, 0, NULL, NULL, 1, NULL, &y), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "input", "missing");
    tn_onnx_close(m);
    rules_close_scratch(cx);
}

// The same op means other things at other versions of the standard.
static void meaning_follows_the_opset(void)
{
    tn_ctx    *cx   = rules_open_scratch();
    onnx_bytes soft = onnx_node("Softmax", "x", "y"), old = one_node(&soft, 11),
               now = one_node(&soft, 13);
    tn_tensor *x   = tn_zeros(cx, TN_F32, TN_SHAPE(1, 2, 2));
    CHECK_VALUES(run_model(cx, &old, x), 0.25, 0.25, 0.25, 0.25);
    CHECK_VALUES(run_model(cx, &now, x), 0.5, 0.5, 0.5, 0.5);
    for (int packed = 0; packed < 2; packed++) {
        onnx_bytes squeeze = onnx_node("Squeeze", "x", "y");
        onnx_ints(&squeeze, "axes", 1, (int64_t[]){ 0 }, packed);
        onnx_bytes m = one_node(&squeeze, 11);
        CHECK_INT(tn_rank(run_model(cx, &m, x)), 2);
    }
    // Integers are divided towards zero.
    onnx_bytes g = { .n = 0 }, two = onnx_tensor("two", 7, 0, NULL, (int64_t[]){ 2 }),
               div = onnx_node("Div", "x two", "y");
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &two);
    onnx_message(&g, 1, &div);
    onnx_bytes m = onnx_model(&g, 14);
    CHECK_VALUES(run_model(cx, &m, tn_from(cx, TN_I64, TN_SHAPE(2), (int64_t[]){ -7, 7 })), -3, 3);
    rules_close_scratch(cx);
}

// A function of the model is inlined, with attributes of its caller, and calls another.
static void functions_are_inlined(void)
{
    tn_ctx    *cx = rules_open_scratch();
    onnx_bytes g = { .n = 0 }, outer = { .n = 0 }, inner = { .n = 0 },
               call = onnx_node("Outer", "x", "y"), mid = onnx_node("Inner", "a", "b"),
               body = onnx_node("Softmax", "u", "v"), attr = { .n = 0 }, pass = { .n = 0 };
    onnx_text(&attr, 1, "axis");
    onnx_text(&attr, 21, "which");
    onnx_int(&attr, 20, 2);
    onnx_message(&body, 5, &attr);
    onnx_text(&pass, 1, "which");
    onnx_text(&pass, 21, "which");
    onnx_int(&pass, 20, 2);
    onnx_message(&mid, 5, &pass);
    onnx_text(&mid, 7, "own");
    onnx_attr_int(&call, "which", 0);
    onnx_text(&call, 7, "own");
    onnx_bytes *f[2]    = { &outer, &inner };
    const char *name[2] = { "Outer", "Inner" }, *in[2] = { "a", "u" }, *out[2] = { "b", "v" };
    onnx_bytes *nodes[2] = { &mid, &body }, set = { .n = 0 };
    onnx_int(&set, 2, 13);
    for (int i = 0; i < 2; i++) {
        onnx_text(f[i], 1, name[i]);
        onnx_text(f[i], 4, in[i]);
        onnx_text(f[i], 5, out[i]);
        onnx_message(f[i], 7, nodes[i]);
        onnx_message(f[i], 9, &set);
        onnx_text(f[i], 10, "own");
    }
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 1, &call);
    onnx_bytes m = onnx_model(&g, 13);
    onnx_message(&m, 25, &outer);
    onnx_message(&m, 25, &inner);
    CHECK_VALUES(run_model(cx, &m, tn_zeros(cx, TN_F32, TN_SHAPE(2, 1))), 0.5, 0.5);
    rules_close_scratch(cx);
}

// y = x reshaped by a shape that is computed of x's own: nothing of it is computed on the device.
static void shapes_are_known_on_the_host(void)
{
    tn_ctx    *cx = rules_open_scratch();
    onnx_bytes g = { .n = 0 }, shape = onnx_node("Shape", "x", "s"),
               cut = onnx_node("Gather", "s zero", "n"), join = onnx_node("Concat", "n rest", "to"),
               turn = onnx_node("Reshape", "x to", "y"),
               zero = onnx_tensor("zero", 7, 1, (int64_t[]){ 1 }, (int64_t[]){ 0 }),
               rest = onnx_tensor("rest", 7, 1, (int64_t[]){ 1 }, (int64_t[]){ -1 });
    onnx_attr_int(&join, "axis", 0);
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &zero);
    onnx_message(&g, 5, &rest);
    onnx_message(&g, 1, &shape);
    onnx_message(&g, 1, &cut);
    onnx_message(&g, 1, &join);
    onnx_message(&g, 1, &turn);
    onnx_bytes m = onnx_model(&g, 17);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *y = run_model(cx, &m, tn_ones(cx, TN_F32, TN_SHAPE(2, 3, 4)));
    CHECK(y && tn_rank(y) == 2 && tn_size(y, 0) == 2 && tn_size(y, 1) == 12);
    CHECK_INT(tn_ctx_stats(cx).launches, 0);
    tn_end(s);
    rules_close_scratch(cx);
}

// ---- files of strangers ------------------------------------------------------------------------

static void refuse(tn_ctx *cx, const onnx_bytes *m, const char *why)
{
    tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(2));
    CHECK(!run_model(cx, m, x));
    test_that(strstr(tn_error_text(cx), why) != NULL, "%s: not %s", tn_error_text(cx), why);
    tn_error_clear(cx);
}

static void what_is_wrong_is_named(void)
{
    tn_ctx    *cx = rules_open_scratch();
    onnx_bytes g = { .n = 0 }, twice = onnx_node("Relu", "x", "y"),
               never = onnx_node("Relu", "q", "y"), odd = onnx_node("NoSuch\x1b[31mOp", "x", "y"),
               file, empty                              = { .n = 0 };
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 1, &twice);
    onnx_message(&g, 1, &twice);
    file = onnx_model(&g, 13);
    refuse(cx, &file, "\"y\" is defined twice");
    file = one_node(&never, 13);
    refuse(cx, &file, "reads \"q\", which nothing before it defines");
    file = one_node(&odd, 13);
    refuse(cx, &file, "NoSuch\\x1b[31mOp: Tenon has no such op");
    refuse(cx, &empty, "malformed");
    // A function that calls itself.
    onnx_bytes self = { .n = 0 }, call = onnx_node("F", "x", "y"),
               inside = onnx_node("F", "a", "b");
    onnx_text(&call, 7, "own");
    onnx_text(&inside, 7, "own");
    onnx_text(&self, 1, "F");
    onnx_text(&self, 4, "a");
    onnx_text(&self, 5, "b");
    onnx_text(&self, 10, "own");
    onnx_message(&self, 7, &inside);
    file = one_node(&call, 13);
    onnx_message(&file, 25, &self);
    refuse(cx, &file, "deep");
    // A weight of more elements than it has bytes, and of more than there can be.
    for (int i = 0; i < 2; i++) {
        onnx_bytes w = { .n = 0 }, g2 = { .n = 0 }, add = onnx_node("Add", "x w", "y");
        for (int k = 0; k < 2; k++) onnx_int(&w, 1, i ? (int64_t)1 << 62 : 1000);
        onnx_int(&w, 2, 1);
        onnx_text(&w, 8, "w");
        onnx_raw(&w, 9, "1234", 4);
        onnx_ports(&g2, "x", "y");
        onnx_message(&g2, 5, &w);
        onnx_message(&g2, 1, &add);
        file = onnx_model(&g2, 13);
        refuse(cx, &file, i ? "too large" : "do not fit its bytes");
    }
    rules_close_scratch(cx);
}

// Weights beside a model are read from its folder alone.
static void weights_beside_it_are_in_its_folder(void)
{
    static const char *const paths[] = { "w.bin", "../w.bin",     "/etc/hostname",
                                         "link",  "sub/../w.bin", "" };
    tn_ctx                  *cx      = rules_open_scratch();
    CHECK(scratch_write(scratch_path("w.bin"), (float[]){ 1, 2 }, 8));
    CHECK_INT(mkdir(scratch_path("sub"), 0700), 0);
    CHECK_INT(symlink("w.bin", scratch_path("link")), 0);
    for (int i = 0; i < 6; i++) {
        onnx_bytes w = { .n = 0 }, entry = { .n = 0 }, g = { .n = 0 },
                   add = onnx_node("Add", "x w", "y");
        onnx_text(&entry, 1, "location");
        onnx_text(&entry, 2, paths[i]);
        onnx_int(&w, 1, 2);
        onnx_int(&w, 2, 1);
        onnx_text(&w, 8, "w");
        onnx_message(&w, 13, &entry);
        onnx_int(&w, 14, 1);
        onnx_ports(&g, "x", "y");
        onnx_message(&g, 5, &w);
        onnx_message(&g, 1, &add);
        onnx_bytes m = onnx_model(&g, 13);
        if (i) refuse(cx, &m, "cannot be read");
        else CHECK_VALUES(run_model(cx, &m, tn_ones(cx, TN_F32, TN_SHAPE(2))), 2, 3);
    }
    rules_close_scratch(cx);
}

// A model of one product with the matrix (k, n), or (n, k) if turned, of a file beside it.
static onnx_bytes product_model(bool turned, int type, int64_t k, int64_t n)
{
    onnx_bytes w = { .n = 0 }, entry = { .n = 0 }, g = { .n = 0 },
               node = onnx_node(turned ? "Gemm" : "MatMul", "x w", "y");
    if (turned) onnx_attr_int(&node, "transB", 1);
    onnx_text(&entry, 1, "location");
    onnx_text(&entry, 2, "w.bin");
    onnx_int(&w, 1, turned ? n : k);
    onnx_int(&w, 1, turned ? k : n);
    onnx_int(&w, 2, type);
    onnx_text(&w, 8, "w");
    onnx_message(&w, 13, &entry);
    onnx_int(&w, 14, 1);
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &w);
    onnx_message(&g, 1, &node);
    return onnx_model(&g, 13);
}

// A product of one row reads a large matrix in strips of columns, which are made of it whatever its
// order: the elements are integers, so that sums are exact, and those of a product of two rows,
// which has no strips.
static void one_row_times_a_large_matrix_is_as_of_two(void)
{
    enum { K = 521, N = 1003 };  // the last strip has 11 columns
    static float  w[K * N], y[2][N], one[N];
    static double wide[K * N];
    tn_ctx       *cx = rules_open_scratch();
    for (int i = 0; i < K * N; i++) wide[i] = w[i] = (float)(i * 7 % 23 - 11);
    for (int i = 0; i < 4; i++) {
        tn_dtype   dt    = i < 2 ? TN_F32 : TN_F64;
        onnx_bytes m     = product_model(i % 2, i < 2 ? 1 : 11, K, N);
        tn_tensor *index = tn_arange(cx, TN_I64, 0, K, 1);
        tn_tensor *x     = tn_cast(
                tn_reshape(tn_sub(index, tn_full_i64(cx, TN_I64, 0, NULL, 260)), TN_SHAPE(1, K)), dt);
        CHECK(scratch_write(scratch_path("w.bin"), i < 2 ? (void *)w : wide,
                            i < 2 ? sizeof w : sizeof wide));
        CHECK_STATUS(tn_read(run_model(cx, &m, x), TN_F32, one, N), TN_OK);
        CHECK_STATUS(tn_read(run_model(cx, &m, tn_concat(2, (tn_tensor *[]){ x, x }, 0)), TN_F32,
                             &y[0][0], 2 * N),
                     TN_OK);
        CHECK(!memcmp(one, y[0], sizeof one) && !memcmp(one, y[1], sizeof one));
        double sum = 0;
        for (int k = 0; k < K; k++)
            sum += (k - 260) * wide[i % 2 ? (N - 1) * K + k : k * N + N - 1];
        CHECK_NEAR(one[N - 1], sum, 0);
    }
    rules_close_scratch(cx);
}

// y = batch norm of relu(x @ fc.weight + fc.bias) + mask, where the mask is a constant.
static onnx_bytes trainable_model(void)
{
    onnx_bytes g = { .n = 0 };
    onnx_bytes w = onnx_tensor("fc.weight", 1, 2, (int64_t[]){ 2, 2 }, (float[]){ 1, -1, 2, 1 }),
               b = onnx_tensor("fc.bias", 1, 1, (int64_t[]){ 2 }, (float[]){ 0.5f, 0 }),
               scale = onnx_tensor("bn.weight", 1, 1, (int64_t[]){ 2 }, (float[]){ 1, 1 }),
               shift = onnx_tensor("bn.bias", 1, 1, (int64_t[]){ 2 }, (float[]){ 0, 0 }),
               mean  = onnx_tensor("bn.mean", 1, 1, (int64_t[]){ 2 }, (float[]){ 0, 0 }),
               var   = onnx_tensor("bn.var", 1, 1, (int64_t[]){ 2 }, (float[]){ 1, 1 }),
               mask  = onnx_tensor("mask", 1, 2, (int64_t[]){ 1, 2 }, (float[]){ 0, -1e9f }),
               fc    = onnx_node("Gemm", "x fc.weight fc.bias", "h"),
               relu  = onnx_node("Relu", "h", "r"),
               bn    = onnx_node("BatchNormalization", "r bn.weight bn.bias bn.mean bn.var", "y"),
               add   = onnx_node("Add", "y mask", "masked");
    onnx_bytes *inits[] = { &w, &b, &scale, &shift, &mean, &var, &mask };
    onnx_ports(&g, "x", "y");
    for (int i = 0; i < 7; i++) onnx_message(&g, 5, inits[i]);
    onnx_message(&g, 1, &fc);
    onnx_message(&g, 1, &relu);
    onnx_message(&g, 1, &bn);
    onnx_message(&g, 1, &add);
    return onnx_model(&g, 17);
}

// Weights are parameters with their names: the layer is trained, its statistics move, and what was
// saved is loaded by another. A mask is none of them, and a value inside can be asked for.
static void a_model_is_trained_further(void)
{
    tn_ctx    *cx   = rules_open_scratch();
    onnx_bytes file = trainable_model();
    tn_onnx   *m    = tn_onnx_open(cx, write_model(&file)),
            *other  = tn_onnx_open(cx, write_model(&file));
    tn_tensor *x    = tn_from(cx, TN_F32, TN_SHAPE(2, 2), (float[]){ 1, 2, 3, 1 }), *y, *h;
    CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 1, (const char *[]){ "h" }, &h), TN_OK);
    CHECK_VALUES(h, 5.5, 1, 5.5, -2);
    tn_layer *l = tn_onnx_layer(m);
    CHECK(l && tn_onnx_layer(m) == l);
    CHECK_INT(tn_layer_count(l), 4 + 2 + 2 + 2);
    CHECK(tn_layer_find(l, "bn.mean") && tn_layer_find(l, "fc.weight"));
    tn_optim *o    = tn_adam(l, (tn_adam_opts){ .lr = 0.05 });
    double    loss = 0, first = 0;
    for (int i = 0; i < 30; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *e = tn_mean_all(tn_square(tn_add_s(tn_forward(l, x), -0.5)));
        tn_step(o, e);
        tn_read(e, TN_F64, &loss, 1);
        if (!i) first = loss;
        tn_end(s);
    }
    CHECK(loss < 0.5 * first);
    double mean[2];
    CHECK_STATUS(tn_read(tn_layer_find(l, "bn.mean"), TN_F64, mean, 2), TN_OK);
    CHECK(mean[0] > 1);
    const char *saved = scratch_path("trained.safetensors");
    CHECK_STATUS(tn_save(l, saved), TN_OK);
    CHECK_STATUS(tn_load(tn_onnx_layer(other), saved), TN_OK);
    tn_layer_train(l, false);
    tn_layer_train(tn_onnx_layer(other), false);
    CHECK_STATUS(tn_onnx_run(other, 1, NULL, &x, 1, NULL, &y), TN_OK);
    float a[4], b[4];
    CHECK_STATUS(tn_read(y, TN_F32, a, 4), TN_OK);
    CHECK_STATUS(tn_read(tn_forward(l, x), TN_F32, b, 4), TN_OK);
    CHECK(!memcmp(a, b, sizeof a));
    tn_onnx_close(m);
    CHECK(!tn_forward(l, x));
    CHECK_FAILED2(cx, TN_EARG, "forward", "closed");
    tn_layer_free(tn_onnx_layer(other));
    CHECK_STATUS(tn_onnx_run(other, 1, NULL, &x, 1, NULL, &y), TN_OK);
    tn_onnx_close(other);
    rules_close_scratch(cx);
}

// A model that is cut anywhere is refused, or is a smaller model; each byte turned is no worse.
static void no_cut_or_changed_file_is_a_crash(void)
{
    tn_ctx    *cx = rules_open_scratch();
    onnx_bytes g = { .n = 0 }, w = onnx_tensor("w", 1, 1, (int64_t[]){ 2 }, (float[]){ 1, 2 }),
               add = onnx_node("Add", "x w", "h"), slice = onnx_node("Squeeze", "h", "y");
    onnx_ints(&slice, "axes", 0, NULL, 0);
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &w);
    onnx_message(&g, 1, &add);
    onnx_message(&g, 1, &slice);
    onnx_bytes file = onnx_model(&g, 11);
    tn_on_error(cx, NULL, NULL);
    for (size_t i = 0; i < file.n; i++)
        for (int k = 0; k < 3; k++) {
            onnx_bytes bad = file;
            if (k == 0) bad.n = i;
            else bad.data[i] ^= k == 1 ? 0xff : 1;
            tn_scope  *s = tn_begin(cx);
            tn_tensor *y = run_model(cx, &bad, tn_ones(cx, TN_F32, TN_SHAPE(2)));
            CHECK((y == NULL) == (tn_error(cx) != TN_OK));
            tn_error_clear(cx);
            tn_end(s);
        }
    rules_close_scratch(cx);
}

// clang-format off
const test_case tests_onnx[] = {
    TEST(a_small_network_runs),
    TEST(meaning_follows_the_opset),
    TEST(functions_are_inlined),
    TEST(shapes_are_known_on_the_host),
    TEST(what_is_wrong_is_named),
    TEST(weights_beside_it_are_in_its_folder),
    TEST(one_row_times_a_large_matrix_is_as_of_two),
    TEST(a_model_is_trained_further),
    TEST(no_cut_or_changed_file_is_a_crash),
    TEST_END
};
// clang-format on
