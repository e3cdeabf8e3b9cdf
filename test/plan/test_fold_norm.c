// test_fold_norm.c: batch norm in evaluation is folded into the convolution before it: the values
// are those of the norm by itself, follow every write, and cost no kernels of their own.
#include "rules_kit.h"

#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, IN = 4, OUT = 6 };

// What device says that wants channels last, for weights too.
static int all_last(tn_ctx *cx, tn_dtype dt, int64_t from, int64_t to, bool last)
{
    (void)cx, (void)dt, (void)from, (void)to, (void)last;
    return TNI_WEIGHTS_LAST;
}

// A convolution and a norm with statistics and parameters of all kinds. taps: of a window over two
// axes.
static tn_layer *conv_and_norm_of(tn_ctx *cx, int axes, int64_t taps, tn_nn_conv_opts o)
{
    tn_layer *conv = axes == 1   ? tn_nn_conv1d_with(cx, IN, OUT, 3, o)
                     : axes == 2 ? tn_nn_conv2d_hw(cx, IN, OUT, taps, taps, o)
                                 : tn_nn_conv3d_dhw(cx, IN, OUT, 2, 3, 1, o);
    tn_layer *net  = tn_nn_seq(cx, conv, tn_nn_batch_norm(cx, OUT));
    tn_init_uniform(tn_layer_find(net, "1.weight"), -1, 2);
    tn_init_uniform(tn_layer_find(net, "1.bias"), -1, 1);
    tn_init_uniform(tn_layer_find(net, "1.running_mean"), -1, 1);
    tn_init_uniform(tn_layer_find(net, "1.running_var"), 0.5, 3);
    tn_layer_train(net, false);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    return net;
}

static tn_layer *conv_and_norm(tn_ctx *cx, int axes, tn_nn_conv_opts o)
{
    return conv_and_norm_of(cx, axes, 3, o);
}

static tn_tensor *image(tn_ctx *cx, int axes)
{
    tn_tensor *x = tn_want(tn_randn(cx, TN_F32, 2 + axes, (int64_t[]){ 2, IN, 5, 6, 4 }));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    return x;
}

static bool is_folded(tn_layer *net)
{
    return tn_layer_find(net, "1.running_var")->store->folded != NULL;
}

// The value of the network, with or without gradients; without them norms are folded.
static int64_t value(tn_layer *net, tn_tensor *x, bool gradients, float *y)
{
    tn_ctx    *cx   = tn_layer_ctx(net);
    tn_scope  *s    = tn_begin(cx);
    bool       mode = tn_grad_mode(cx, gradients);
    tn_tensor *t    = tn_forward(net, x);
    int64_t    n    = t ? tn_count(t) : 0;
    CHECK(n <= MOST);
    CHECK_STATUS(tn_read(t, TN_F32, y, n), TN_OK);
    tn_grad_mode(cx, mode);
    tn_end(s);
    return n;
}

// Whether both ways give the same, to a few roundings of sums.
static bool agrees(tn_layer *net, tn_tensor *x, double tol)
{
    static float plain[MOST], folded[MOST];
    int64_t      n = value(net, x, true, plain);
    if (value(net, x, false, folded) != n) return false;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(plain[i] - folded[i]) <= tol * (1 + fabs(plain[i])))) return false;
    return n > 0;
}

// ---- values ------------------------------------------------------------------------------------

static void a_folded_norm_has_the_values_of_the_norm(void)
{
    static const struct {
        int             axes;
        bool            last, device_last;
        tn_nn_conv_opts o;
        int64_t         taps;
    } kinds[] = {
        { 2, false, false, { .no_bias = true, .padding = { 1 } }, 3 },
        { 2, false, false, { .groups = 2, .stride = { 2 } }, 3 },
        { 2, true, false, { .padding = { 1 } }, 3 },
        { 2, false, true, { .padding = { 1 }, .no_bias = true }, 3 },
        { 2, false, true, { .groups = 2 }, 3 },
        { 2, false, true, { .no_bias = true }, 1 },
        { 2, false, true, { .stride = { 2 }, .padding = { 1 } }, 3 },
        { 1, false, false, { .dilation = { 2 } }, 3 },
        { 3, false, false, { .no_bias = true }, 3 },
    };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t k = 0; k < 2 * sizeof kinds / sizeof *kinds; k++) {
            int (*own)(tn_ctx *, tn_dtype, int64_t, int64_t, bool) = cx->conv_order;
            bool       half                                        = k % 2;
            tn_layer  *net = conv_and_norm_of(cx, kinds[k / 2].axes, kinds[k / 2].taps,
                                              kinds[k / 2].o);
            tn_tensor *x   = image(cx, kinds[k / 2].axes);
            if (half) CHECK_STATUS(tn_layer_cast(net, TN_BF16), TN_OK);
            if (half) x = tn_cast(x, TN_BF16);
            if (kinds[k / 2].last) x = tn_channels_last(x);
            x = tn_want(x);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            if (kinds[k / 2].device_last) cx->conv_order = all_last;
            bool ok = agrees(net, x, half ? 0.05 : 1e-5) && is_folded(net);
            test_case_result(ok, "kind %d%s: %s", (int)k / 2, half ? " in bf16" : "",
                             is_folded(net) ? "other values" : "not folded");
            cx->conv_order = own;
            tn_layer_free(net);
        }
}

static void what_is_folded_follows_every_write(void)
{
    static const char *const names[] = { "0.weight", "0.bias",         "1.weight",
                                         "1.bias",   "1.running_mean", "1.running_var" };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net = conv_and_norm(cx, 2, (tn_nn_conv_opts){ .padding = { 1 } });
        tn_tensor *x   = image(cx, 2);
        CHECK(agrees(net, x, 1e-5) && is_folded(net));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            bool mode = tn_grad_mode(cx, false);
            tn_mul_(tn_layer_find(net, names[i]), tn_scalar(cx, 1.5));
            tn_grad_mode(cx, mode);
            test_case_result(agrees(net, x, 1e-5), "%s, before it is computed", names[i]);
            test_case_result(agrees(net, x, 1e-5), "%s", names[i]);
        }
        tn_layer_train(net, true);
        CHECK(tn_forward(net, x) != NULL);
        CHECK(!is_folded(net));
        tn_layer_train(net, false);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK(agrees(net, x, 1e-5));
        tn_layer_free(net);
    }
}

// A vector of as many numbers as there are channels is a bias only along them.
static void only_a_bias_of_channels_is_folded(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int kind = 0; kind < 8; kind++) {
            bool       mode = tn_grad_mode(cx, false), last = kind >= 4;
            tn_tensor *x    = tn_randn(cx, TN_F32, TN_SHAPE(2, IN, OUT, OUT));
            tn_tensor *w    = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(OUT, IN, 1, 1)));
            tn_tensor *b    = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(OUT))),
                      *mean = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(OUT)));
            tn_tensor *var  = tn_want(tn_add_s(tn_rand(cx, TN_F32, TN_SHAPE(OUT)), 0.5)), *y[2];
            x               = tn_want(last ? tn_channels_last(x) : x);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            tn_tensor *first = tn_slice(b, 0, 0, 1, 1), *wide[] = {
                tn_reshape(b, TN_SHAPE(OUT, 1, 1)), b, tn_reshape(b, TN_SHAPE(OUT, 1)),
                tn_reshape(tn_expand(first, TN_SHAPE(OUT)), TN_SHAPE(OUT, 1, 1))
            };
            for (int i = 0; i < 2; i++) {
                y[i] = tn_add(tn_conv2d(x, w, NULL, (tn_conv_opts){ 0 }), wide[kind % 4]);
                if (i) tn_want(y[i]);
                y[i] = tn_batch_norm(y[i], mean, var, NULL, NULL, (tn_batch_norm_opts){ 0 });
            }
            CHECK((var->store->folded != NULL) == (kind % 4 == 0));
            test_case_result(tn_item(tn_max_all(tn_abs(tn_sub(y[0], y[1])))) < 1e-4, "kind %d",
                             kind);
            tn_grad_mode(cx, mode);
        }
}

// A channel that hardly varies around 300 stays finite in f16, where 300 / sqrt(eps) is not.
static void what_would_overflow_is_not_folded(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int far = 0; far < 2; far++) {
            bool       mode = tn_grad_mode(cx, false);
            tn_tensor *x    = tn_want(tn_full(cx, TN_F16, TN_SHAPE(1, 1, 2, 2), 300)),
                      *w    = tn_want(tn_ones(cx, TN_F16, TN_SHAPE(1, 1, 1, 1)));
            tn_tensor *mean = tn_want(tn_full(cx, TN_F32, TN_SHAPE(1), 300));
            tn_tensor *var  = tn_want(tn_full(cx, TN_F32, TN_SHAPE(1), far ? 0 : 4));
            CHECK_STATUS(tn_eval(cx), TN_OK);
            for (int i = 0; i < 2; i++) {
                tn_tensor *y = tn_batch_norm(tn_conv2d(x, w, NULL, (tn_conv_opts){ 0 }), mean, var,
                                             NULL, NULL, (tn_batch_norm_opts){ 0 });
                CHECK(tn_item(tn_max_all(tn_abs(y))) < 0.1);
                CHECK(var->store->folded && var->store->folded->declined == far);
            }
            tn_grad_mode(cx, mode);
        }
}

// ---- what else reads the convolution -----------------------------------------------------------

static void the_plain_convolution_can_still_be_read(void)
{
    static float y[2][MOST];
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net  = conv_and_norm(cx, 2, (tn_nn_conv_opts){ 0 });
        tn_tensor *x    = image(cx, 2);
        bool       mode = tn_grad_mode(cx, false);
        tn_scope  *s    = tn_begin(cx);
        tn_tensor *c    = tn_forward(tn_layer_find_child(net, "0"), x);
        tn_tensor *n    = tn_forward(tn_layer_find_child(net, "1"), c);
        int64_t    k    = tn_count(c);
        CHECK(n && is_folded(net));
        CHECK_STATUS(tn_eval_of(n), TN_OK);
        CHECK_STATUS(tn_read(c, TN_F32, y[0], k), TN_OK);
        CHECK_STATUS(tn_read(tn_clone(tn_forward(tn_layer_find_child(net, "0"), x)), TN_F32, y[1],
                             k),
                     TN_OK);
        CHECK(!memcmp(y[0], y[1], (size_t)k * sizeof(float)));
        // What is read by others already, or wanted, is computed once and normed by itself.
        c            = tn_want(tn_forward(tn_layer_find_child(net, "0"), x));
        tn_tensor *r = tn_relu(c);
        n            = tn_add(tn_forward(tn_layer_find_child(net, "1"), c), r);
        CHECK_STATUS(tn_eval_of(n), TN_OK);
        tn_end(s);
        tn_grad_mode(cx, mode);
        tn_layer_free(net);
    }
}

// What a binding holds while it calls the norm, and lets go of before anything is computed, is not
// computed; what it still holds then is.
static void what_a_binding_holds_is_folded(void)
{
    static float y[2][MOST];
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net  = conv_and_norm(cx, 2, (tn_nn_conv_opts){ 0 });
        tn_tensor *x    = image(cx, 2);
        int64_t    k    = value(net, x, false, y[0]), launches[2];
        bool       mode = tn_grad_mode(cx, false);
        for (int held = 0; held < 2; held++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *c = tn_forward(tn_layer_find_child(net, "0"), x);
            tn_retain(c);
            tn_tensor *n = tn_want(tn_forward(tn_layer_find_child(net, "1"), c));
            if (!held) tn_release(c);
            int64_t before = tn_ctx_stats(cx).launches;
            CHECK_STATUS(tn_eval(cx), TN_OK);
            launches[held] = tn_ctx_stats(cx).launches - before;
            CHECK_STATUS(tn_read(n, TN_F32, y[1], k), TN_OK);
            CHECK(!memcmp(y[0], y[1], (size_t)k * sizeof(float)));
            if (held) tn_release(c);
            tn_end(s);
        }
        CHECK(launches[0] < launches[1]);
        tn_grad_mode(cx, mode);
        tn_layer_free(net);
    }
}

// ---- costs -------------------------------------------------------------------------------------

// How many kernels the next step of the network has.
static long kernels(tn_layer *net, tn_tensor *x)
{
    char     *text = NULL;
    size_t    size = 0;
    tn_ctx   *cx   = tn_layer_ctx(net);
    tn_scope *s    = tn_begin(cx);
    FILE     *f    = open_memstream(&text, &size);
    CHECK(tn_forward(net, x) != NULL);
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    long n = strtol(text, NULL, 10);
    free(text);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_end(s);
    return n;
}

static void a_folded_norm_has_no_kernel_of_its_own(void)
{
    tn_ctx    *cx    = rules_open("cpu");
    tn_layer  *net   = conv_and_norm(cx, 2, (tn_nn_conv_opts){ .no_bias = true });
    tn_tensor *x     = image(cx, 2);
    bool       mode  = tn_grad_mode(cx, false);
    long       first = kernels(net, x);
    CHECK(is_folded(net));
    CHECK_INT(kernels(net, x), 1);
    CHECK(first > 1);
    tn_grad_mode(cx, mode);
    tn_close(cx);
}

static void what_is_folded_dies_with_its_norm(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = image(cx, 2);
    int64_t    before[2];
    for (int i = 0; i < 2; i++) {
        tn_layer *net = conv_and_norm(cx, 2, (tn_nn_conv_opts){ 0 });
        CHECK(agrees(net, x, 1e-5) && is_folded(net));
        tn_layer_free(net);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        before[i] = tn_ctx_stats(cx).bytes;
    }
    CHECK_INT(before[0], before[1]);
    tn_close(cx);
}

const test_case tests_fold_norm[] = {
    TEST(a_folded_norm_has_the_values_of_the_norm),
    TEST(what_is_folded_follows_every_write),
    TEST(only_a_bias_of_channels_is_folded),
    TEST(what_would_overflow_is_not_folded),
    TEST(what_a_binding_holds_is_folded),
    TEST(the_plain_convolution_can_still_be_read),
    TEST(a_folded_norm_has_no_kernel_of_its_own),
    TEST(what_is_folded_dies_with_its_norm),
    TEST_END,
};
