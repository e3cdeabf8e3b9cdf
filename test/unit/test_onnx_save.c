// Layers as ONNX files. What is written is read back by the reader and compared; onnx's own checker
// and ONNX Runtime look at the same networks in `make test-onnx`.
#include "check.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

// ---- there and back ----------------------------------------------------------------------------

// Runs the file on x; NULL where it fails.
static tn_tensor *run_file(tn_ctx *cx, const char *path, int nx, tn_tensor *const *x)
{
    tn_onnx   *m = tn_onnx_open(cx, path);
    tn_tensor *y = NULL;
    if (m) tn_onnx_run(m, nx, NULL, x, 1, NULL, &y);
    return y;
}

// Whether y is what the layer made, within a part of its largest element: a runtime adds in another
// order.
static bool is_near(tn_tensor *y, tn_tensor *want, double part)
{
    if (!y || !want) return false;
    double most = tn_item(tn_max_all(tn_abs(want)));
    return tn_rank(y) == tn_rank(want) && tn_count(y) == tn_count(want) && most > 0 &&
           tn_item(tn_max_all(tn_abs(tn_sub(y, want)))) <= part * most;
}

// Random numbers in all parameters, since some layers begin with zeros.
static void stir(const char *name, tn_tensor *t, void *user)
{
    (void)user;
    if (tn_needs_grad(t) && !strstr(name, "norm")) tn_init_normal(t, 0, 0.1);
}

typedef struct {
    const char *name;
    tn_layer *(*make)(tn_ctx *cx);
    int     rank;
    int64_t size[4], vocab;  // vocab: x has tokens
} network;

static tn_layer *make_mlp(tn_ctx *cx)
{
    return tn_mlp(cx, TN_SHAPE(16, 24, 10));
}
static tn_layer *make_resnet18(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 18, .classes = 10 });
}
static tn_layer *make_resnet20(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 20 });
}
static tn_layer *make_mobilenet(tn_ctx *cx)
{
    return tn_mobilenet_v2(cx, (tn_mobilenet_v2_opts){ .classes = 10 });
}
static tn_layer *make_vit(tn_ctx *cx)
{
    return tn_vit(
        cx, (tn_vit_opts){
                .size = 16, .patch = 8, .layers = 2, .heads = 2, .width = 16, .classes = 10 });
}
static tn_layer *make_convnext(tn_ctx *cx)
{
    return tn_convnext(cx,
                       (tn_convnext_opts){ .blocks = { 1, 1, 1, 1 }, .width = 8, .classes = 10 });
}
static tn_layer *make_unet(tn_ctx *cx)
{
    return tn_unet(cx, (tn_unet_opts){ .levels = 3, .width = 4 });
}
static tn_layer *make_gpt2(tn_ctx *cx)
{
    return tn_gpt2(cx, (tn_gpt2_opts){
                           .layers = 2, .heads = 2, .width = 16, .vocab = 31, .context = 12 });
}
static tn_layer *make_llama(tn_ctx *cx)
{
    return tn_llama(cx, (tn_llama_opts){ .layers   = 2,
                                         .heads    = 4,
                                         .kv_heads = 2,
                                         .width    = 16,
                                         .vocab    = 31,
                                         .context  = 12,
                                         .window   = 4 });
}

// Two layers, which read in both directions.
static tn_layer *make_lstm(tn_ctx *cx)
{
    tn_nn_rnn_opts o = { .kind = TN_LSTM, .layers = 2, .bidirectional = true, .batch_first = true };
    return tn_nn_rnn(cx, 4, 6, o);
}

static const network networks[] = {
    { "mlp", make_mlp, 2, { 2, 16 }, 0 },
    { "lenet", tn_lenet, 4, { 2, 1, 28, 28 }, 0 },
    { "resnet18", make_resnet18, 4, { 2, 3, 32, 32 }, 0 },
    { "resnet20", make_resnet20, 4, { 2, 3, 16, 16 }, 0 },
    { "mobilenet_v2", make_mobilenet, 4, { 2, 3, 32, 32 }, 0 },
    { "vit", make_vit, 4, { 2, 3, 16, 16 }, 0 },
    { "convnext", make_convnext, 4, { 2, 3, 32, 32 }, 0 },
    { "unet", make_unet, 4, { 2, 3, 16, 16 }, 0 },
    { "gpt2", make_gpt2, 2, { 2, 9 }, 31 },
    { "llama", make_llama, 2, { 2, 9 }, 31 },
    { "lstm", make_lstm, 3, { 2, 7, 4 }, 0 },
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static tn_tensor *input_of(tn_ctx *cx, const network *n, int64_t items)
{
    int64_t size[4];
    memcpy(size, n->size, sizeof size);
    if (items) size[0] = items;
    return n->vocab ? tn_randint(cx, TN_I64, 0, n->vocab, n->rank, size)
                    : tn_randn(cx, TN_F32, n->rank, size);
}

// Saves a network, and compares what the file makes of `items` items (0: as many as it was saved
// with) with the network.
static void there_and_back(tn_ctx *cx, const network *n, tn_onnx_save_opts o, int64_t items)
{
    tn_scope   *s    = tn_begin(cx);
    const char *path = scratch_path("net.onnx");
    tn_layer   *net  = n->make(cx);
    CHECK_STATUS(tn_layer_each(net, stir, NULL), TN_OK);
    tn_tensor *x = input_of(cx, n, 0);
    CHECK_STATUS(tn_onnx_save(net, path, 1, &x, o), TN_OK);
    CHECK(tn_layer_training(net));
    tn_layer_train(net, false);
    x            = input_of(cx, n, items);
    tn_tensor *y = run_file(cx, path, 1, &x);
    test_that(is_near(y, tn_forward(net, x), 2e-5), "%s, opset %d, %d items: %s", n->name, o.opset,
              (int)items, tn_error_text(cx));
    tn_error_clear(cx);
    tn_layer_free(net);
    tn_end(s);
}

static void networks_come_back(void)
{
    tn_ctx *cx = rules_open_scratch();
    for (int i = 0; i < NETWORKS; i++)
        there_and_back(cx, &networks[i], (tn_onnx_save_opts){ 0 }, 0);
    rules_close_scratch(cx);
}

// Any number of items fits, in every opset, with the weights inside and beside.
static void a_batch_is_a_symbol(void)
{
    static const int opset[] = { 13, 17, 18, 20, 21 };
    tn_ctx          *cx      = rules_open_scratch();
    for (int i = 0; i < NETWORKS; i++) {
        tn_onnx_save_opts o = { .opset = opset[i % 5], .batch = "N", .beside = i % 2 };
        there_and_back(cx, &networks[i], o, 5);
    }
    rules_close_scratch(cx);
}

// How often a text is in a file.
static int count_text(const char *path, const char *text)
{
    size_t bytes, n = strlen(text);
    char  *data  = scratch_read(path, &bytes);
    int    count = 0;
    for (size_t i = 0; data && i + n <= bytes; i++) count += !memcmp(data + i, text, n);
    free(data);
    return count;
}

// A model that was read is a layer, and goes back into a file with the names of its weights.
static void a_model_that_was_read_goes_back(void)
{
    tn_ctx     *cx   = rules_open_scratch();
    const char *path = scratch_path("net.onnx"), *again = scratch_path("again.onnx");
    tn_layer   *net = make_unet(cx);
    tn_tensor  *x   = tn_randn(cx, TN_F32, TN_SHAPE(2, 3, 16, 16));
    CHECK_STATUS(tn_onnx_save(net, path, 1, &x, (tn_onnx_save_opts){ .batch = "N" }), TN_OK);
    tn_layer *read = tn_onnx_layer(tn_onnx_open(cx, path));
    CHECK_STATUS(tn_onnx_save(read, again, 1, &x, (tn_onnx_save_opts){ .batch = "N" }), TN_OK);
    tn_layer_train(net, false);
    x = tn_randn(cx, TN_F32, TN_SHAPE(3, 3, 16, 16));
    CHECK(is_near(run_file(cx, again, 1, &x), tn_forward(net, x), 2e-5));
    CHECK(count_text(again, "up.1.weight") > 1);
    rules_close_scratch(cx);
}

// ---- every op ----------------------------------------------------------------------------------

// Ops that ONNX lacks, as refusals name them.
static const char *const lacking[] = {
    "erfinv", "lgamma", "digamma", "atan2",      "hypot",       "copysign", "nextafter",
    "shl",    "shr",    "cumprod", "fold",       "update",      "linalg",   "spmm",
    "sddmm",  "fft",    "custom",  "conv_wgrad", "random_bits", "conv_i32",
};

static bool is_lacking(const char *text)
{
    // Sizes that depend on values.
    if (strstr(text, "onnx_save: the layer reads a value")) return true;
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
        size_t n = strlen(lacking[i]);
        if (!strncmp(text, "onnx_save: ", 11) && !strncmp(text + 11, lacking[i], n) &&
            text[11 + n] == ' ')
            return true;
    }
    return false;
}

// Their numbers are the runtime's own.
static bool is_random(const char *name)
{
    return strstr(name, "dropout") || !strcmp(name, "bernoulli") || !strcmp(name, "multinomial");
}

// A layer of a form of the table of composed ops.
static void run_form(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    const form *f = *(const form *const *)tn_layer_self(l);
    (void)nx, (void)ny;
    y[0] = f->f(x, NULL);
}

// Whether a form means the same as a file; *refused counts those that cannot be one.
static void check_form(tn_ctx *cx, const form *f, int opset, int *refused)
{
    tn_scope   *s    = tn_begin(cx);
    const char *path = scratch_path("form.onnx");
    tn_layer   *l    = tn_layer_new_n(cx, run_form, (tn_layer_counts){ .in = f->nin }, &f, NULL);
    tn_tensor  *x[INPUTS];
    char        why[256] = "no result";
    table_seed(7);
    for (int i = 0; i < f->nin; i++) {
        input in = input_make(TN_F32, PLAIN, f->in[i].rank, f->in[i].size, f->in[i].m);
        x[i]     = input_put(&in, cx);
        input_free(&in);
    }
    if (tn_onnx_save(l, path, f->nin, x, (tn_onnx_save_opts){ .opset = opset }) == TN_OK) {
        tn_tensor *want = f->f(x, NULL), *y = run_file(cx, path, f->nin, x);
        bool ok = y && want && agrees(y, want, (tolerance){ .how = CLOSELY, .steps = 1 }, why);
        test_that(ok, "%s: %s %s", f->name, why, tn_error_text(cx));
    } else {
        ++*refused;
        test_that(is_lacking(tn_error_text(cx)), "%s: %s", f->name, tn_error_text(cx));
    }
    tn_error_clear(cx);
    tn_layer_free(l);
    tn_end(s);
}

// Every form of calling an op is written and means the same, or is refused by the name of an op
// that ONNX lacks.
static void every_op_comes_back(void)
{
    tn_ctx *cx    = rules_open_scratch();
    int     count = 0, refused = 0;
    for (int t = 0; form_tables[t]; t++)
        for (const form *f = form_tables[t]; f->name; f++, count++)
            if (!is_random(f->name)) check_form(cx, f, count % 2 ? 18 : 21, &refused);
    test_that(refused * 5 < count, "%d of %d forms are refused", refused, count);
    rules_close_scratch(cx);
}

// All axes of a view may count.
static tn_tensor *run_axes(tn_layer *l, tn_tensor *x)
{
    (void)l;
    x = tn_reshape(x, TN_SHAPE(2, 2, 2, 2, 2, 2, 2, 4));
    return tn_mul_s(tn_flip(tn_slice(x, 7, 0, 4, 2), 0), 2);
}

static void a_view_of_eight_axes_comes_back(void)
{
    tn_ctx     *cx   = rules_open_scratch();
    const char *path = scratch_path("axes.onnx");
    tn_layer   *l    = tn_layer_new(cx, run_axes, NULL, NULL);
    tn_tensor  *x    = tn_randn(cx, TN_F32, TN_SHAPE(512));
    CHECK_STATUS(tn_onnx_save(l, path, 1, &x, (tn_onnx_save_opts){ 0 }), TN_OK);
    CHECK(is_near(run_file(cx, path, 1, &x), tn_forward(l, x), 0));
    rules_close_scratch(cx);
}

// ---- ports and names ---------------------------------------------------------------------------

// Two inputs, of which one has no batch, and two outputs, of which one is an input.
static void run_two(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    (void)l, (void)nx, (void)ny;
    y[0] = tn_mul(x[0], x[1]);
    y[1] = x[0];
}

static void ports_have_names_and_symbols(void)
{
    static const char *const in[] = { "left", "right" }, *const out[] = { "product", "copy" };
    tn_ctx           *cx   = rules_open_scratch();
    const char       *path = scratch_path("two.onnx");
    tn_layer         *l    = tn_layer_new_n(cx, run_two, (tn_layer_counts){ 2, 2, 0 }, NULL, NULL);
    tn_tensor        *x[]  = { tn_ones(cx, TN_F32, TN_SHAPE(4, 3)), rules_ramp(cx, 3) }, *y[2];
    tn_onnx_save_opts o    = { .batch = "items", .x_names = in, .y_names = out };
    CHECK_STATUS(tn_onnx_save(l, path, 2, x, o), TN_OK);
    tn_onnx *m = tn_onnx_open(cx, path);
    CHECK_STR(tn_onnx_input(m, 0).name, "left");
    CHECK_STR(tn_onnx_input(m, 0).symbol[0], "items");
    CHECK_INT(tn_onnx_input(m, 0).size[1], 3);
    CHECK(!tn_onnx_input(m, 1).symbol[0]);
    CHECK_STR(tn_onnx_output(m, 0).name, "product");
    CHECK_STR(tn_onnx_output(m, 0).symbol[0], "items");
    CHECK_STR(tn_onnx_output(m, 1).name, "copy");
    x[0] = tn_full(cx, TN_F32, TN_SHAPE(1, 3), 2);
    CHECK_STATUS(tn_onnx_run(m, 2, in, x, 2, out, y), TN_OK);
    CHECK_VALUES(y[0], 2, 4, 6);
    CHECK_VALUES(y[1], 2, 2, 2);
    rules_close_scratch(cx);
}

// Weights keep their names, a tied one is there once, and large ones can be beside the model.
static void weights_keep_their_names(void)
{
    tn_ctx     *cx   = rules_open_scratch();
    const char *path = scratch_path("net.onnx"), *data = scratch_path("net.onnx.data");
    tn_layer   *net = make_gpt2(cx);
    tn_tensor  *x   = tn_zeros(cx, TN_I64, TN_SHAPE(1, 4));
    size_t      inside, model, beside;
    CHECK_STATUS(tn_onnx_save(net, path, 1, &x, (tn_onnx_save_opts){ 0 }), TN_OK);
    CHECK(count_text(path, "transformer.h.1.mlp.c_fc.weight") > 1);
    CHECK(count_text(path, "transformer.wte.weight") > 1 && !count_text(path, "lm_head.weight"));
    free(scratch_read(path, &inside));
    CHECK_STATUS(tn_onnx_save(net, path, 1, &x, (tn_onnx_save_opts){ .beside = true }), TN_OK);
    free(scratch_read(path, &model));
    free(scratch_read(data, &beside));
    CHECK(model < inside && beside % 4096 == 0 && beside > 0);
    rules_close_scratch(cx);
}

// ---- refusals ----------------------------------------------------------------------------------

static tn_tensor *run_gamma(tn_layer *l, tn_tensor *x)
{
    (void)l;
    return tn_lgamma(x);
}
static tn_tensor *run_read(tn_layer *l, tn_tensor *x)
{
    (void)l;
    tn_tensor *s = tn_sum_all(x);
    return tn_item(s) > 0 ? x : tn_add(x, s);
}
static tn_tensor *run_count(tn_layer *l, tn_tensor *x)
{
    (void)l;
    return tn_mul_s(x, (double)tn_size(x, 0));
}

// Each refusal says what is wrong and leaves no file.
static void what_cannot_be_written_is_refused(void)
{
    tn_ctx           *cx   = rules_open_scratch();
    const char       *path = scratch_path("no.onnx");
    tn_onnx_save_opts o = { 0 }, batch = { .batch = "N" };
    tn_tensor        *x = tn_ones(cx, TN_F32, TN_SHAPE(2, 3)), *zero_d = tn_ones(cx, TN_F32, TN_0D);
    tn_layer *gamma = tn_layer_new(cx, run_gamma, NULL, NULL), *outer = tn_nn_seq(cx, gamma);
    tn_layer *reads = tn_layer_new(cx, run_read, NULL, NULL);
    tn_layer *count = tn_layer_new(cx, run_count, NULL, NULL);
    CHECK_STATUS(tn_onnx_save(outer, path, 1, &x, o), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "onnx_save: lgamma", "layer 0");
    CHECK_STATUS(tn_onnx_save(reads, path, 1, &x, o), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "onnx_save", "reads a value (sum)");
    CHECK_STATUS(tn_onnx_save(count, path, 1, &x, o), TN_OK);
    remove(path);
    CHECK_STATUS(tn_onnx_save(count, path, 1, &x, batch), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "onnx_save", "another batch");
    CHECK_STATUS(tn_onnx_save(count, path, 1, &zero_d, batch), TN_ESHAPE);
    CHECK_FAILED2(cx, TN_ESHAPE, "onnx_save", "no axis for the batch");
    o.opset = 12;
    CHECK_STATUS(tn_onnx_save(count, path, 1, &x, o), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "opset 12", "13 .. 21");
    o = (tn_onnx_save_opts){ .x_names = (const char *[]){ "y" } };
    CHECK_STATUS(tn_onnx_save(count, path, 1, &x, o), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "\"y\"", "twice");
    CHECK_STATUS(tn_onnx_save(count, scratch_path("no/such.onnx"), 1, &x, (tn_onnx_save_opts){ 0 }),
                 TN_EIO);
    CHECK_FAILED2(cx, TN_EIO, "onnx_save", "such.onnx");
    CHECK_INT(scratch_count(), 0);
    rules_close_scratch(cx);
}

// ---- memory ------------------------------------------------------------------------------------

static tn_layer *make_mixed(tn_ctx *cx)
{
    tn_nn_rnn_opts o = { .kind = TN_GRU, .batch_first = true };
    return tn_nn_seq(cx, tn_nn_linear(cx, 3, 4), tn_nn_layer_norm(cx, 4), tn_nn_act(cx, tn_gelu),
                     tn_nn_rnn(cx, 4, 2, o));
}

// Whichever allocation fails, the call says so and leaves nothing behind; then it works.
static void any_allocation_may_fail(void)
{
    long n = 1, failed = 1;
    if (!CHECK(scratch_open())) return;
    for (; failed && n < 20000; n += 1 + n / 40) {
        faulty      h    = { 0 };
        tn_ctx     *cx   = faulty_open("ref", &h);
        tn_layer   *net  = cx ? make_mixed(cx) : NULL;
        tn_tensor  *x    = net ? tn_ones(cx, TN_F32, TN_SHAPE(2, 3, 3)) : NULL;
        const char *path = scratch_path("net.onnx");
        if (!CHECK(x != NULL)) return;
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_onnx_save_opts o = { .batch = "N", .beside = n % 2 };
        h.countdown         = n;
        h.forever           = n % 2;
        tn_status got       = tn_onnx_save(net, path, 1, &x, o);
        failed              = h.failed;
        h.countdown         = 0;
        CHECK(got == TN_OK || (failed && got == TN_EMEM));
        tn_error_clear(cx);
        CHECK_STATUS(tn_onnx_save(net, path, 1, &x, o), TN_OK);
        tn_close(cx);
        CHECK_INT(faulty_left(&h), 0);
    }
    CHECK(n > 100);
    scratch_close();
}

const test_case tests_onnx_save[] = {
    TEST(networks_come_back),
    TEST(a_batch_is_a_symbol),
    TEST(a_model_that_was_read_goes_back),
    TEST(every_op_comes_back),
    TEST(a_view_of_eight_axes_comes_back),
    TEST(ports_have_names_and_symbols),
    TEST(weights_keep_their_names),
    TEST(what_cannot_be_written_is_refused),
    TEST(any_allocation_may_fail),
    TEST_END,
};
