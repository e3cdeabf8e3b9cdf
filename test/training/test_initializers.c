// test_initializers.c: how the parameters of layers start, and the initializers.
#include "rules_kit.h"

#include <math.h>
#include <string.h>

// ---- how parameters start ----------------------------------------------------------------------

typedef struct {
    double low, high, mean, std;
} spread;

static spread spread_of(tn_tensor *t)
{
    return (spread){ tn_item(tn_min_all(t)), tn_item(tn_max_all(t)), tn_item(tn_mean_all(t)),
                     tn_item(tn_std_all(t)) };
}

// Uniform in -bound .. bound, and nearly up to it; five deviations of the statistics are let pass.
static void check_uniform(tn_tensor *t, double bound, const char *what)
{
    spread s = spread_of(t);
    double n = (double)tn_count(t), std = bound / sqrt(3);
    bool   inside = s.low >= -bound * (1 + 1e-6) && s.high <= bound * (1 + 1e-6);
    bool   wide   = s.low < -bound * (1 - 20 / n) && s.high > bound * (1 - 20 / n);
    test_case_result(inside && wide && fabs(s.mean) < 5 * std / sqrt(n) &&
                         fabs(s.std / std - 1) < 5 / sqrt(n),
                     "%s: %g .. %g, mean %g, std %g, not uniform up to %g", what, s.low, s.high,
                     s.mean, s.std, bound);
}

static void check_normal(tn_tensor *t, double mean, double std, const char *what)
{
    spread s = spread_of(t);
    double n = (double)tn_count(t);
    test_case_result(fabs(s.mean - mean) < 5 * std / sqrt(n) &&
                         fabs(s.std / std - 1) < 5 / sqrt(2 * n) && s.high > mean + 2.5 * std,
                     "%s: mean %g, std %g, not normal with %g and %g", what, s.mean, s.std, mean,
                     std);
}

static void parameters_start_as_pytorchs_do(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l  = tn_nn_linear(cx, 400, 1000);
    check_uniform(tn_layer_find(l, "weight"), 0.05, "linear weight");
    check_uniform(tn_layer_find(l, "bias"), 0.05, "linear bias");
    l = tn_nn_conv2d_hw(cx, 32, 500, 2, 2, (tn_nn_conv_opts){ .groups = 2 });
    check_uniform(tn_layer_find(l, "weight"), 0.125, "conv2d weight");
    check_uniform(tn_layer_find(l, "bias"), 0.125, "conv2d bias");
    check_uniform(tn_layer_find(tn_nn_conv1d(cx, 5, 500, 5), "weight"), 0.2, "conv1d weight");
    check_uniform(tn_layer_find(tn_nn_conv3d(cx, 2, 250, 2), "weight"), 0.25, "conv3d weight");
    l = tn_nn_conv_transpose2d_hw(cx, 64, 512, 1, 1, (tn_nn_conv_opts){ .groups = 2 });
    check_uniform(tn_layer_find(l, "weight"), 0.0625, "conv_transpose2d weight");
    check_uniform(tn_layer_find(l, "bias"), 0.0625, "conv_transpose2d bias");
    check_normal(tn_layer_find(tn_nn_embedding(cx, 300, 50), "weight"), 0, 1, "embedding");
    l = tn_nn_attention(cx, 96, 4);
    check_uniform(tn_layer_find(l, "in_proj_weight"), sqrt(6.0 / (4 * 96)), "in_proj_weight");
    check_uniform(tn_layer_find(l, "out_proj.weight"), 1 / sqrt(96), "out_proj.weight");
    CHECK_NEAR(tn_item(tn_norm_all(tn_layer_find(l, "in_proj_bias"))), 0, 0);
    CHECK_NEAR(tn_item(tn_norm_all(tn_layer_find(l, "out_proj.bias"))), 0, 0);
    l = tn_nn_batch_norm(cx, 2);
    CHECK_VALUES(tn_layer_find(l, "weight"), 1, 1);
    CHECK_VALUES(tn_layer_find(l, "bias"), 0, 0);
    CHECK_VALUES(tn_layer_find(l, "running_mean"), 0, 0);
    CHECK_VALUES(tn_layer_find(l, "running_var"), 1, 1);
    tn_close(cx);
}

static void equal_seeds_make_equal_layers(void)
{
    double sum[2];
    for (int i = 0; i < 2; i++) {
        tn_ctx *cx = tn_open_with((tn_open_opts){ .device = i ? "ref" : "cpu", .seed = 5 });
        tn_nn_linear(cx, 3, 3);
        sum[i] = tn_item(tn_sum_all(tn_layer_find(tn_nn_linear(cx, 9, 9), "weight")));
        tn_close(cx);
    }
    CHECK_NEAR(sum[0], sum[1], 1e-6);
    CHECK(sum[0] != 0);
}

// ---- initializers ------------------------------------------------------------------------------

static void initializers_have_pytorchs_spreads(void)
{
    tn_ctx      *cx = rules_open("cpu");
    tn_tensor   *t  = tn_zeros(cx, TN_F32, TN_SHAPE(64, 16, 3, 3));  // fans 144 and 576
    tn_init_opts o  = { 0 };
    CHECK(tn_init_uniform(t, -2, 2) == t);
    check_uniform(t, 2, "uniform");
    CHECK(tn_init_normal(t, 3, 0.5) == t);
    check_normal(t, 3, 0.5, "normal");
    check_uniform(tn_init_xavier_uniform(t, 2), 2 * sqrt(6.0 / 720), "xavier_uniform");
    check_normal(tn_init_xavier_normal(t, 1), 0, sqrt(2.0 / 720), "xavier_normal");
    check_uniform(tn_init_kaiming_uniform(t, o), sqrt(6.0 / 144), "kaiming_uniform");
    check_normal(tn_init_kaiming_normal(t, o), 0, sqrt(2.0 / 144), "kaiming_normal");
    o = (tn_init_opts){ .fan_out = true, .gain = 1 };
    check_uniform(tn_init_kaiming_uniform(t, o), sqrt(3.0 / 576), "kaiming_uniform, fan out");
    check_normal(tn_init_kaiming_normal(t, o), 0, sqrt(1.0 / 576), "kaiming_normal, fan out");
    CHECK(tn_init_constant(t, 7) == t);
    CHECK(tn_item(tn_min_all(t)) == 7 && tn_item(tn_max_all(t)) == 7);
    tn_close(cx);
}

// P(|z| < 1) of a normal cut at 2 is 0.7153, its deviation 0.8796.
static void trunc_normal_is_a_normal_cut_at_two_deviations(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *t = tn_zeros(cx, TN_F32, TN_SHAPE(40000));
        CHECK(tn_init_trunc_normal(t, 1, 0.5) == t);
        spread s = spread_of(t);
        CHECK(s.low >= 0 && s.low < 0.01 && s.high <= 2 && s.high > 1.99);
        CHECK_NEAR(s.mean, 1, 0.012);
        CHECK_NEAR(s.std, 0.5 * 0.87962, 0.01);
        tn_tensor *near_mean = tn_cast(tn_lt_s(tn_abs(tn_sub_s(t, 1)), 0.5), TN_F32);
        CHECK_NEAR(tn_item(tn_mean_all(near_mean)), 0.71527, 0.012);
    }
}

static void trunc_normal_inverts_the_distribution_exactly(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        enum { N = 2000 };
        double z[N], u[N], worst = 0, most = erf(sqrt(2));
        tn_seed(cx, 3);
        tn_tensor *t = tn_zeros(cx, TN_F64, TN_SHAPE(N));
        CHECK_STATUS(tn_read(tn_init_trunc_normal(t, 0, 1), TN_F64, z, N), TN_OK);
        tn_seed(cx, 3);
        CHECK_STATUS(tn_read(tn_rand(cx, TN_F64, TN_SHAPE(N)), TN_F64, u, N), TN_OK);
        for (int i = 0; i < N; i++)
            worst = fmax(worst, fabs(erf(z[i] / sqrt(2)) - most * (2 * u[i] - 1)));
        CHECK_NEAR(worst, 0, 1e-14);
    }
}

static void initializers_fill_leaves_views_and_every_float_type(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(tn_zeros(cx, TN_F32, TN_SHAPE(2, 2)), true);
        CHECK(tn_init_uniform(w, 1, 1) == w && tn_needs_grad(w));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(w, w)), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 2, 2, 2, 2);
        CHECK(tn_grad_mode(cx, true));

        tn_tensor *x = tn_zeros(cx, TN_F32, TN_SHAPE(4));
        tn_init_constant(tn_slice(x, 0, 1, 3, 1), 5);
        CHECK_VALUES(x, 0, 5, 5, 0);
        CHECK_VALUES(tn_init_constant(tn_zeros(cx, TN_I64, TN_SHAPE(2)), 5), 5, 5);
        static const tn_dtype types[] = { TN_F16, TN_BF16, TN_F64 };
        for (int i = 0; i < 3; i++) {
            tn_tensor *h = tn_zeros(cx, types[i], TN_SHAPE(100, 100));
            CHECK(tn_init_xavier_normal(h, 1) == h && tn_dtype_of(h) == types[i]);
            CHECK_NEAR(tn_item(tn_std_all(tn_cast(h, TN_F64))), 0.1, 0.004);
        }
    }
}

static void initializers_refuse_what_they_cannot_fill(void)
{
    tn_ctx      *cx = rules_open("cpu");
    tn_tensor   *i = tn_zeros(cx, TN_I64, TN_SHAPE(2, 2)), *v = tn_zeros(cx, TN_F32, TN_SHAPE(2));
    tn_init_opts o = { 0 };
    CHECK(tn_init_uniform(i, 0, 1) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "init_uniform: i64");
    CHECK(tn_init_kaiming_normal(i, o) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "init_kaiming_normal: i64");
    CHECK(tn_init_xavier_uniform(v, 1) == NULL);
    CHECK_FAILED2(cx, TN_ESHAPE, "init_xavier_uniform: t (2,)", "(out, in, ...)");
    CHECK(tn_init_kaiming_uniform(v, o) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "init_kaiming_uniform");
    CHECK(tn_init_uniform(v, 1, 0) == NULL);
    CHECK_FAILED(cx, TN_EARG, "init_uniform: lo 1 is above hi 0");
    CHECK(tn_init_uniform(v, 0, INFINITY) == NULL);
    CHECK_FAILED(cx, TN_EARG, "init_uniform: inf is not a finite number");
    CHECK(tn_init_normal(v, 0, -1) == NULL);
    CHECK_FAILED(cx, TN_EARG, "init_normal: std -1 is not 0 or more");
    CHECK(tn_init_trunc_normal(v, NAN, 1) == NULL);
    CHECK_FAILED(cx, TN_EARG, "init_trunc_normal: nan");
    CHECK(tn_init_constant(NULL, 1) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "init_constant: t is NULL");
    CHECK_INT(tn_item(tn_sum_all(v)), 0);
    tn_close(cx);
}

const test_case tests_initializers[] = {
    TEST(parameters_start_as_pytorchs_do),
    TEST(equal_seeds_make_equal_layers),
    TEST(initializers_have_pytorchs_spreads),
    TEST(trunc_normal_is_a_normal_cut_at_two_deviations),
    TEST(trunc_normal_inverts_the_distribution_exactly),
    TEST(initializers_fill_leaves_views_and_every_float_type),
    TEST(initializers_refuse_what_they_cannot_fill),
    TEST_END,
};
