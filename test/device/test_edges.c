// test_edges.c: infinities, NaNs, bools, empty tensors and what is overwritten: as PyTorch has
// them. The numbers are what PyTorch 2.15 gives.
#include "check.h"
#include "graph_ways.h"

#include <math.h>
#include <string.h>

static const graph_way ways[] = {
    { "ref", "ref", "TN_EAGER", "0" },
    { "cpu, interpreted", "cpu", "TN_CC", "none" },
    { "cpu, compiled", "cpu", "TN_COMPILE", "wait" },
    { "opencl", "opencl", "TN_EAGER", "0" },
    { 0 },
};

enum { MOST = 16 };

// Whether t has these values, to a float's precision; a NaN is a NaN. What is small may come from a
// difference of larger ones, as gelu's.
static bool has(const graph_way *w, const char *what, tn_tensor *t, int n, const double *want)
{
    double have[MOST];
    bool   ok = tn_count(t) == n && tn_read(t, TN_F64, have, n) == TN_OK;
    int    at = 0;
    for (int i = 0; ok && i < n; i++) {
        bool same = isnan(want[i])   ? isnan(have[i])
                    : isinf(want[i]) ? have[i] == want[i]
                                     : fabs(have[i] - want[i]) <= 1e-5 * fmax(0.1, fabs(want[i]));
        if (!same && ok) ok = false, at = i;
    }
    return test_case_result(ok, "%s: %s: [%d] is %.9g, not %.9g", w->name, what, at, have[at],
                            want[at]);
}

static tn_tensor *leaf(tn_ctx *cx, int n, const double *v)
{
    tn_tensor *t = tn_from(cx, TN_F64, TN_SHAPE(n), v);
    return tn_requires_grad(tn_cast(t, TN_F32), true);
}

// ---- maps --------------------------------------------------------------------------------------

enum { POINTS = 8 };

static const double points[POINTS] = { -INFINITY, -3, 0, 3, INFINITY, NAN, -1e5, 1e5 };

static tn_tensor *elu(tn_tensor *x)
{
    return tn_elu(x, 1);
}

static tn_tensor *leaky(tn_tensor *x)
{
    return tn_leaky_relu(x, 0.01);
}

typedef struct {
    const char *name;
    tn_tensor *(*run)(tn_tensor *x);
    double value[POINTS], slope[POINTS];
} map_case;

// clang-format off
static const map_case maps[] = {
    { "hardswish", tn_hardswish, { NAN, -0.0, 0, 3, INFINITY, NAN, -0.0, 1e5 }, { 0, 0, 0.5, 1, 1, NAN, 0, 1 } },
    { "selu", tn_selu, { -1.75809932, -1.6705687, 0, 3.15210295, INFINITY, NAN, -1.75809932, 105070.102 },
      { 0, 0.0875306055, 1.75809932, 1.05070102, 1.05070102, NAN, 0, 1.05070102 } },
    { "mish", tn_mish, { NAN, -0.145647466, 0, 2.98653507, INFINITY, NAN, -0.0, 1e5 },
      { NAN, -0.0933931246, 0.600000024, 1.02110696, NAN, NAN, 0, 1 } },
    { "softsign", tn_softsign, { NAN, -0.75, 0, 0.75, NAN, NAN, -0.999989986, 0.999989986 },
      { NAN, 0.0625, 1, 0.0625, NAN, NAN, 1.00044417e-10, 1.00044417e-10 } },
    { "logsigmoid", tn_logsigmoid, { -INFINITY, -3.04858732, -0.693147182, -0.048587352, 0, NAN, -1e5, 0 },
      { 1, 0.952574134, 0.5, 0.0474258736, 0, NAN, 1, 0 } },
    { "silu", tn_silu, { NAN, -0.142277613, 0, 2.85772252, INFINITY, NAN, 0, 1e5 },
      { NAN, -0.0881041065, 0.5, 1.08810413, NAN, NAN, 0, 1 } },
    { "gelu", tn_gelu, { NAN, -0.00404968858, 0, 2.99595022, INFINITY, NAN, 0, 1e5 },
      { NAN, -0.0119456556, 0.5, 1.01194561, NAN, NAN, 0, 1 } },
    { "gelu_tanh", tn_gelu_tanh, { NAN, -0.00363739163, 0, 2.99636269, INFINITY, NAN, 0, 1e5 },
      { NAN, -0.0115841653, 0.5, 1.01158428, NAN, NAN, 0, 1 } },
    { "softplus", tn_softplus, { 0, 0.048587352, 0.693147182, 3.04858732, INFINITY, NAN, 0, 1e5 },
      { 0, 0.0474258736, 0.5, 0.952574134, 1, NAN, 0, 1 } },
    { "elu", elu, { -1, -0.950212955, 0, 3, INFINITY, NAN, -1, 1e5 }, { 0, 0.0497870669, 1, 1, 1, NAN, 0, 1 } },
    { "leaky_relu", leaky, { -INFINITY, -0.03, 0, 3, INFINITY, NAN, -1000, 1e5 },
      { 0.01, 0.01, 0.01, 1, 1, 0.01, 0.01, 1 } },
    { "relu", tn_relu, { 0, 0, 0, 3, INFINITY, NAN, 0, 1e5 }, { 0, 0, 0, 1, 1, 1, 0, 1 } },
    { "sigmoid", tn_sigmoid, { 0, 0.0474258736, 0.5, 0.952574134, 1, NAN, 0, 1 },
      { 0, 0.0451766588, 0.25, 0.0451766551, 0, NAN, 0, 0 } },
    { "tanh", tn_tanh, { -1, -0.995054781, 0, 0.995054781, 1, NAN, -1, 1 },
      { 0, 0.00986598153, 1, 0.00986598153, 0, NAN, 0, 0 } },
    { "abs", tn_abs, { INFINITY, 3, 0, 3, INFINITY, NAN, 1e5, 1e5 }, { -1, -1, 0, 1, 1, 0, -1, 1 } },
    { "sign", tn_sign, { -1, -1, 0, 1, 1, 0, -1, 1 }, { 0, 0, 0, 0, 0, 0, 0, 0 } },
    { "square", tn_square, { INFINITY, 9, 0, 9, INFINITY, NAN, 1e10, 1e10 }, { -INFINITY, -6, 0, 6, INFINITY, NAN, -2e5, 2e5 } },
    { "floor", tn_floor, { -INFINITY, -3, 0, 3, INFINITY, NAN, -1e5, 1e5 }, { 0, 0, 0, 0, 0, 0, 0, 0 } },
};
// clang-format on

enum { MAPS = sizeof maps / sizeof *maps };

static void maps_and_their_gradients_at_infinities_and_nan_are_pytorchs(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        tn_tensor *x[MAPS], *y[MAPS];
        for (int k = 0; k < MAPS; k++) {
            x[k] = leaf(cx, POINTS, points);
            y[k] = tn_want(maps[k].run(x[k]));
            CHECK_STATUS(tn_backward(y[k], tn_ones_like(y[k])), TN_OK);
        }
        CHECK_STATUS(tn_eval(cx), TN_OK);
        for (int k = 0; k < MAPS; k++) {
            has(w, maps[k].name, y[k], POINTS, maps[k].value);
            has(w, maps[k].name, tn_grad_of(x[k]), POINTS, maps[k].slope);
        }
    }
}

enum { ANGLES = 2061 };  // two strips and a rest

// How many elements of f(x) are further than two roundings from the double's function.
static int far_off(tn_tensor *y, const float *x, double (*exact)(double))
{
    static float have[ANGLES];
    int          bad = tn_read(y, TN_F32, have, ANGLES) == TN_OK ? 0 : ANGLES;
    for (int i = 0; i < ANGLES && !bad; i++) {
        double want = exact((double)x[i]);
        bad += !(fabs((double)have[i] - want) <= 0x1p-22 * fabs(want));
    }
    return bad;
}

static void one_large_angle_among_small_ones_is_right_and_so_are_they(void)
{
    static const int places[] = { 0, 1, 7, 8, 15, 500, 1023, 1024, 1025, 2047, 2048, 2056, 2060 };
    static float     x[ANGLES];
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx))
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            tn_scope *s = tn_begin(cx);
            for (int i = 0; i < ANGLES; i++) x[i] = (float)(i * 37 % 101 - 50) * 0.37f;
            x[places[k]]   = 3e22f;
            tn_tensor *t   = tn_from(cx, TN_F32, TN_SHAPE(ANGLES), x);
            int        bad = far_off(tn_sin(t), x, sin) + far_off(tn_cos(t), x, cos) +
                      far_off(tn_tan(t), x, tan);
            test_case_result(!bad, "%s: a large angle in place %d", w->name, places[k]);
            tn_end(s);
        }
}

// What was neither lost nor tied goes on to both, a NaN too.
static void the_gradient_of_an_extremum_of_two_passes_nan(void)
{
    static const double a[] = { 1, NAN, 2, NAN, 2, 0 }, b[] = { NAN, 1, 2, NAN, 1, 5 };
    const graph_way    *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        tn_tensor *x[] = { leaf(cx, 6, a), leaf(cx, 6, a) },
                  *y[] = { leaf(cx, 6, b), leaf(cx, 6, b) };
        tn_backward(tn_sum_all(tn_maximum(x[0], y[0])), NULL);
        tn_backward(tn_sum_all(tn_minimum(x[1], y[1])), NULL);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        has(w, "maximum, a", tn_grad_of(x[0]), 6, (double[]){ 1, 1, 0.5, 1, 1, 0 });
        has(w, "maximum, b", tn_grad_of(y[0]), 6, (double[]){ 1, 1, 0.5, 1, 0, 1 });
        has(w, "minimum, a", tn_grad_of(x[1]), 6, (double[]){ 1, 1, 0.5, 1, 0, 1 });
        has(w, "minimum, b", tn_grad_of(y[1]), 6, (double[]){ 1, 1, 0.5, 1, 1, 0 });
    }
}

// ---- reductions --------------------------------------------------------------------------------

static void the_gradient_of_a_reduction_to_nan_goes_to_those_that_are_nan(void)
{
    static const double v[] = { 1, NAN, 3, NAN }, shared[] = { 0, 0.5, 0, 0.5 };
    const graph_way    *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        tn_tensor *x[6];
        for (int i = 0; i < 6; i++) x[i] = leaf(cx, 4, v);
        tn_backward(tn_max_all(x[0]), NULL);
        tn_backward(tn_min(x[1], 0), NULL);
        tn_backward(tn_sum_all(x[2]), NULL);
        tn_backward(tn_sum_all(tn_cumsum(x[3], 0)), NULL);
        tn_backward(tn_logsumexp(x[4], 0), NULL);
        tn_backward(tn_max_all(tn_max_pool1d(tn_reshape(x[5], TN_SHAPE(1, 1, 4)), 4,
                                             (tn_pool_opts){ .stride = { 1 } })),
                    NULL);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        has(w, "max", tn_grad_of(x[0]), 4, shared);
        has(w, "min", tn_grad_of(x[1]), 4, shared);
        has(w, "sum", tn_grad_of(x[2]), 4, (double[]){ 1, 1, 1, 1 });
        has(w, "cumsum", tn_grad_of(x[3]), 4, (double[]){ 4, 3, 2, 1 });
        has(w, "logsumexp", tn_grad_of(x[4]), 4, (double[]){ NAN, NAN, NAN, NAN });
        has(w, "max_pool1d", tn_grad_of(x[5]), 4, (double[]){ 0, 0, 0, 1 });
    }
}

static void any_and_all_of_u8_are_u8(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        tn_tensor *u   = tn_from(cx, TN_U8, TN_SHAPE(2, 2), (uint8_t[]){ 0, 3, 2, 1 });
        tn_tensor *y[] = { tn_any(u, 1), tn_all(u, 1), tn_any_all(u), tn_all_keep(u, 0) };
        for (int i = 0; i < 4; i++) CHECK(tn_dtype_of(y[i]) == TN_U8);
        has(w, "any", y[0], 2, (double[]){ 1, 1 });
        has(w, "all", y[1], 2, (double[]){ 0, 1 });
        has(w, "all_keep", y[3], 2, (double[]){ 0, 1 });
        CHECK(tn_dtype_of(tn_any_all(tn_cast(u, TN_I8))) == TN_BOOL);
        CHECK(tn_dtype_of(tn_all_all(tn_cast(u, TN_F32))) == TN_BOOL);
    }
}

// ---- bools -------------------------------------------------------------------------------------

static void square_and_clamp_of_bools_are_integers_and_sign_is_a_bool(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        tn_tensor            *b   = tn_from(cx, TN_BOOL, TN_SHAPE(2), (uint8_t[]){ 1, 0 });
        tn_tensor            *y[] = { tn_square(b), tn_sign(b), tn_clamp(b, 0, 1), tn_add_s(b, 1),
                                      tn_mul_i64(b, 2) };
        static const tn_dtype dtypes[] = { TN_I64, TN_BOOL, TN_I64, TN_I64, TN_I64 };
        for (int i = 0; i < 5; i++) CHECK(tn_dtype_of(y[i]) == dtypes[i]);
        for (int i = 0; i < 3; i++) has(w, "of bools", y[i], 2, (double[]){ 1, 0 });
        has(w, "plus 1", y[3], 2, (double[]){ 2, 1 });
        has(w, "times 2", y[4], 2, (double[]){ 2, 0 });
    }
}

// ---- movement ----------------------------------------------------------------------------------

// PyTorch has no gradient for such a source; here it is 0 where nothing was taken.
static void scatter_takes_as_much_of_a_larger_source_as_the_index_reaches(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        double ramp[12];
        for (int i = 0; i < 12; i++) ramp[i] = i;
        tn_tensor *v = leaf(cx, 12, ramp), *table = tn_reshape(v, TN_SHAPE(3, 4));
        tn_tensor *index = tn_from(cx, TN_I64, TN_SHAPE(2, 2), (int64_t[]){ 0, 1, 2, 0 });
        tn_tensor *zeros = tn_zeros(cx, TN_F32, TN_SHAPE(3, 3));
        tn_tensor *y     = tn_want(tn_scatter(zeros, 0, index, table));
        tn_tensor *z     = tn_want(tn_scatter_add(zeros, 1, index, tn_detach(table)));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(y, y)), NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        has(w, "scatter", y, 9, (double[]){ 0, 5, 0, 0, 1, 0, 4, 0, 0 });
        has(w, "scatter_add", z, 9, (double[]){ 0, 1, 0, 5, 0, 4, 0, 0, 0 });
        has(w, "its gradient", tn_grad_of(v), 12,
            (double[]){ 0, 2, 0, 0, 8, 10, 0, 0, 0, 0, 0, 0 });
        CHECK(tn_scatter(zeros, 0, index, tn_zeros(cx, TN_F32, TN_SHAPE(1, 4))) == NULL);
        CHECK(strstr(tn_error_text(cx), "(1, 4) does not broadcast to (2, 2)"));
        tn_error_clear(cx);
    }
}

static void concat_leaves_out_what_has_the_shape_0(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        tn_tensor *none = tn_requires_grad(tn_zeros(cx, TN_F32, TN_SHAPE(0)), true);
        tn_tensor *x = leaf(cx, 2, (double[]){ 1, 2 }), *row = tn_reshape(x, TN_SHAPE(1, 2));
        tn_tensor *down = tn_concat(3, (tn_tensor *[]){ none, row, row }, 0);
        tn_tensor *side = tn_concat(3, (tn_tensor *[]){ row, none, row }, 1);
        CHECK(tn_rank(down) == 2 && tn_size(down, 0) == 2 && tn_size(down, 1) == 2);
        CHECK(tn_rank(side) == 2 && tn_size(side, 0) == 1 && tn_size(side, 1) == 4);
        has(w, "along axis 0", down, 4, (double[]){ 1, 2, 1, 2 });
        has(w, "along axis 1", side, 4, (double[]){ 1, 2, 1, 2 });
        CHECK_STATUS(tn_backward(tn_sum_all(down), NULL), TN_OK);
        has(w, "gradient", tn_grad_of(x), 2, (double[]){ 2, 2 });
        CHECK_INT(tn_count(tn_grad_of(none)), 0);
        tn_tensor *wide = tn_zeros(cx, TN_F64, TN_SHAPE(0));
        CHECK(tn_dtype_of(tn_concat(2, (tn_tensor *[]){ wide, row }, 0)) == TN_F64);
        CHECK(tn_count(tn_concat(2, (tn_tensor *[]){ none, none }, 0)) == 0);
        tn_tensor *other = tn_zeros(cx, TN_F32, TN_SHAPE(0, 5));
        CHECK(tn_concat(2, (tn_tensor *[]){ other, row }, 0) == NULL);
        CHECK_STR(tn_error_text(cx), "concat: x[0] (0, 5) and x[1] (1, 2) differ besides axis 0");
        tn_error_clear(cx);
    }
}

// ---- writes ------------------------------------------------------------------------------------

static void the_gradient_of_what_was_overwritten_is_zeros(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx))
        for (int how = 0; how < 4; how++) {
            tn_tensor *x = leaf(cx, 3, (double[]){ 1, 2, 3 }), *y = tn_mul_s(x, 2);
            if (how == 0) tn_assign(y, tn_full(cx, TN_F32, TN_SHAPE(3), 5));
            if (how == 1) tn_fill_(y, 5);
            if (how == 2) tn_fill_(tn_slice(y, 0, 0, TN_TO_END, 1), 5);
            if (how == 3) tn_fill_(tn_view(y, TN_SHAPE(3, 1)), 5);
            CHECK(tn_needs_grad(y));
            has(w, "overwritten", y, 3, (double[]){ 5, 5, 5 });  // computed before what follows
            CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
            CHECK_STATUS(tn_backward(tn_mul(tn_sum_all(y), tn_sum_all(x)), NULL), TN_OK);
            has(w, "gradient", tn_grad_of(x), 3, (double[]){ 15, 15, 15 });
            tn_tensor *loss = tn_sum_all(tn_neg(y)), *gx = NULL;
            CHECK_STATUS(tn_grad(1, &loss, 1, &x, NULL, &gx), TN_OK);
            has(w, "grad", gx, 3, (double[]){ 0, 0, 0 });
            tn_zero_grad(x);
        }
}

const test_case tests_edges[] = {
    TEST(maps_and_their_gradients_at_infinities_and_nan_are_pytorchs),
    TEST(one_large_angle_among_small_ones_is_right_and_so_are_they),
    TEST(the_gradient_of_an_extremum_of_two_passes_nan),
    TEST(the_gradient_of_a_reduction_to_nan_goes_to_those_that_are_nan),
    TEST(any_and_all_of_u8_are_u8),
    TEST(square_and_clamp_of_bools_are_integers_and_sign_is_a_bool),
    TEST(scatter_takes_as_much_of_a_larger_source_as_the_index_reaches),
    TEST(concat_leaves_out_what_has_the_shape_0),
    TEST(the_gradient_of_what_was_overwritten_is_zeros),
    TEST_END,
};
