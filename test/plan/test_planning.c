// test_planning.c: what plans must not mix up, and how far kernels go: views that are computed
// already, long chains, many results, sums that are known without adding.
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { ROWS = 4, COLS = 3 };

static void hush(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static tn_ctx *open_cpu(void)
{
    return tn_open_with((tn_open_opts){ .device = "cpu", .handler = hush });
}

// The page of what is pending; "" on error. The next call overwrites it.
static const char *explained(tn_ctx *cx)
{
    static char page[1 << 16];
    FILE       *f = fmemopen(page, sizeof page, "w");
    page[0]       = 0;
    if (!CHECK(f != NULL)) return page;
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    return page;
}

// Kernels of what is pending; -1 on error.
static int kernels(tn_ctx *cx)
{
    int n = -1;
    return sscanf(explained(cx), "%d kernel", &n) == 1 ? n : -1;
}

// A product of two views of one tensor, which may be the same view or not.
static void computed_views_are_told_apart(void)
{
    tn_ctx *cx = open_cpu();
    float   v[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) v[i] = (float)(i + 1);
    tn_tensor *all = tn_keep(tn_from(cx, TN_F32, TN_SHAPE(ROWS, COLS), v)), *row[ROWS];
    for (int i = 0; i < ROWS; i++) row[i] = tn_keep(tn_select(all, 0, i));
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < ROWS; i++) {
            tn_scope *s    = tn_begin(cx);
            double    want = 0;
            for (int j = 0; j < COLS; j++) want += v[j] * v[i * COLS + j];
            CHECK_NEAR(tn_item(tn_sum_all(tn_mul(row[0], row[i]))), want, 0);
            tn_end(s);
        }
    tn_close(cx);
}

// Bytes that the kernels of what is pending move; -1 on error.
static long long bytes_moved(tn_ctx *cx)
{
    long long n = -1;
    return sscanf(explained(cx), "%*d kernels, %lld bytes", &n) == 1 ? n : -1;
}

// The sum of sin(v) cos(v') over slices of a product: one slice, the same one made twice, or
// another.
static void slices_of_what_is_computed_are_read_once_where_they_are_equal(void)
{
    enum { SIDE = 8, PART = 4 };
    tn_ctx *cx = open_cpu();
    float   v[SIDE * SIDE];
    double  product[SIDE][SIDE] = { { 0 } };
    for (int i = 0; i < SIDE * SIDE; i++) v[i] = (float)(i % 7 - 3) * 0.25f;
    for (int i = 0; i < SIDE * SIDE * SIDE; i++)
        product[i / SIDE / SIDE][i % SIDE] += v[i / SIDE] * v[i / SIDE % SIDE * SIDE + i % SIDE];
    tn_tensor *x     = tn_keep(tn_from(cx, TN_F32, TN_SHAPE(SIDE, SIDE), v));
    long long  moved = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int from = -1; from < PART; from++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *m = tn_matmul(x, x), *a = tn_slice(m, 1, 0, PART, 1);
            tn_tensor *b    = from < 0 ? a : tn_slice(m, 1, from, from + PART, 1);
            tn_tensor *y    = tn_sum_all(tn_mul(tn_sin(a), tn_cos(b)));
            double     want = 0;
            for (int i = 0; i < SIDE * PART; i++)
                want += sin(product[i / PART][i % PART]) *
                        cos(product[i / PART][i % PART + (from < 0 ? 0 : from)]);
            if (from < 0) moved = bytes_moved(cx);
            else test_case_result((bytes_moved(cx) == moved) == (from == 0), "from %d", from);
            CHECK_NEAR(tn_item(y), want, 1e-5);
            tn_end(s);
        }
    tn_close(cx);
}

// Ids that lie far apart, with what was made in between forgotten, and those of one step after the
// other: graphs and walks of both find the order.
static void what_was_recorded_far_apart_is_in_order(void)
{
    tn_ctx *cx = open_cpu();
    for (int between = 0; between <= 4000; between += 1000) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *w = tn_requires_grad(tn_full(cx, TN_F64, TN_0D, 3), true), *y = w;
        for (int i = 0; i < 5; i++) {
            y            = tn_sub_s(tn_mul(y, w), i);
            tn_scope *in = tn_begin(cx);
            for (int k = 0; k < between; k++) tn_add_s(y, k);
            tn_end(in);
        }
        // y is w^6 - w^3 - 2 w^2 - 3 w - 4.
        CHECK_STATUS(tn_backward(y, NULL), TN_OK);
        CHECK_NEAR(tn_item(tn_grad_of(w)), 6 * 243 - 3 * 9 - 4 * 3 - 3, 0);
        CHECK_NEAR(tn_item(y), 729 - 27 - 2 * 9 - 3 * 3 - 4, 0);
        tn_end(s);
    }
    tn_close(cx);
}

static void a_long_chain_is_one_kernel(void)
{
    tn_ctx    *cx = open_cpu();
    tn_tensor *x  = tn_keep(tn_ones(cx, TN_F32, TN_SHAPE(64, 64)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int n = 20; n <= 100; n += 10) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = x;
        for (int i = 0; i < n; i++) y = i % 2 ? tn_sin(y) : tn_exp(tn_neg(y));
        tn_want(y);
        test_case_result(kernels(cx) == 1, "%d ops", n);
        tn_end(s);
    }
    tn_close(cx);
}

// Many sums over everything of long chains that share their rows' maxima.
static void many_results_fit_into_kernels_or_are_parted(void)
{
    for (int sums = 1; sums <= 40; sums += 3) {
        tn_ctx    *cx = open_cpu();
        tn_tensor *x  = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(6, 16))), *y[40];
        tn_tensor *d  = tn_sub(x, tn_max_keep(x, 1));
        for (int i = 0; i < sums; i++) {
            tn_tensor *e = tn_mul_s(d, 1 + i);
            for (int k = 0; k < 3; k++) e = tn_add_s(tn_exp(e), k);
            tn_want(y[i] = tn_sum_all(e));
        }
        CHECK_STATUS(tn_eval(cx), TN_OK);
        bool ok = true;
        for (int i = 0; i < sums; i++) ok &= isfinite(tn_item(y[i]));
        test_case_result(ok, "%d sums", sums);
        tn_close(cx);
    }
}

// Sums along the lines of a scatter need no scatter, but its indices are looked at.
static void known_sums_check_their_indices(void)
{
    for (int at = 3; at < 8; at += 4) {
        int64_t    index[] = { 0, at };
        tn_ctx    *cx      = open_cpu();
        tn_tensor *i       = tn_from(cx, TN_I64, TN_SHAPE(2, 1), index);
        tn_tensor *v       = tn_full(cx, TN_F32, TN_SHAPE(2, 1), 2.5);
        tn_tensor *h       = tn_scatter_add(tn_zeros(cx, TN_F32, TN_SHAPE(2, 5)), 1, i, tn_exp(v));
        tn_tensor *y       = tn_add(tn_sum(h, 1), tn_exp(tn_sum(h, 1)));
        CHECK_STATUS(tn_eval_of(y), at < 5 ? TN_OK : TN_EARG);
        tn_close(cx);
    }
}

static void a_fused_pad_cuts_its_number_as_the_op_does(void)
{
    static const double fill[] = { 1e12, -1e30, NAN, INFINITY, 2.5, -3.75 };
    int32_t             x[]    = { 3, 4 };
    for (size_t k = 0; k < sizeof fill / sizeof *fill; k++) {
        int32_t    got[2][4] = { { 0 } };
        tn_ctx    *cx        = open_cpu();
        int64_t    one       = 1;
        tn_tensor *t         = tn_from(cx, TN_I32, TN_SHAPE(2), x);
        tn_tensor *y         = tn_pad(t, &one, &one, fill[k]);
        CHECK_STATUS(tn_read(tn_mul_s(y, 1), TN_I32, got[0], 4), TN_OK);
        y = tn_pad(t, &one, &one, fill[k]);
        CHECK_STATUS(tn_read(y, TN_I32, got[1], 4), TN_OK);
        test_case_result(!memcmp(got[0], got[1], sizeof got[0]), "%g: %d and %d", fill[k],
                         got[0][0], got[1][0]);
        tn_close(cx);
    }
}

// A second result needs the input whose place the first could take.
static void results_do_not_take_what_others_still_read(void)
{
    float  v[] = { -.9f, .2f, .3f, .4f, .5f };
    double g[2][5];
    for (int eager = 0; eager < 2; eager++) {
        if (eager) setenv("TN_EAGER", "1", 1);
        tn_ctx *cx = open_cpu();
        unsetenv("TN_EAGER");
        tn_tensor *x = tn_requires_grad(tn_from(cx, TN_F32, TN_SHAPE(5), v), true), *gx;
        tn_tensor *y = tn_silu(x), *l = tn_mean_all(tn_mul(y, tn_cos(y)));
        CHECK_STATUS(tn_grad(1, &l, 1, &x, NULL, &gx), TN_OK);
        tn_backward(tn_sum_all(tn_square(gx)), NULL);
        CHECK_STATUS(tn_read(tn_grad_of(x), TN_F64, g[eager], 5), TN_OK);
        tn_close(cx);
    }
    for (int i = 0; i < 5; i++) CHECK_NEAR(g[0][i], g[1][i], 1e-6);
}

// The memory that a step with the gradient of f between two products plans, in values of (N, N)
// floats.
static double values_planned(tn_tensor *(*f)(tn_tensor *x))
{
    enum { N = 64 };
    tn_ctx    *cx = open_cpu();
    tn_tensor *w  = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(N, N)), true);
    tn_tensor *x  = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(N, N)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_backward(tn_sum_all(tn_matmul(f(tn_matmul(x, w)), w)), NULL);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    double values = (double)tn_ctx_stats(cx).planned / (4 * N * N);
    tn_close(cx);
    return values;
}

static tn_tensor *mish(tn_tensor *x)
{
    return tn_mul(x, tn_tanh(tn_softplus(x)));
}

static tn_tensor *plain_norm(tn_tensor *x)
{
    return tn_layer_norm(x, 1, NULL, NULL, 0);
}

static tn_tensor *gated(tn_tensor *x)
{
    return tn_swiglu(x, tn_add_s(x, 1));
}

// Of what lies between two products, the backward pass reads the first product and computes the
// rest again: beside it there are the operand of the second product, its gradient, and the two
// gradients of w.
static void a_backward_pass_keeps_what_the_rest_follows_from(void)
{
    tn_tensor *(*const f[])(tn_tensor * x) = { tn_silu, tn_gelu,    tn_sigmoid, tn_softplus,
                                               mish,    plain_norm, gated };
    for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
        double most = values_planned(f[i]);
        test_case_result(most < 4.2, "function %zu: %.2f values", i, most);
    }
}

// Gradients are stored where activations were that are no longer needed: a deep network takes as
// much as its activations and one layer more, not its gradients besides.
static void gradients_take_the_place_of_activations(void)
{
    enum { N = 64, LAYERS = 12 };
    tn_ctx   *cx  = open_cpu();
    tn_layer *net = tn_nn_linear(cx, N, N);
    for (int i = 1; i < LAYERS; i++)
        net = tn_nn_seq(cx, net, tn_nn_act(cx, tn_tanh), tn_nn_linear(cx, N, N));
    tn_optim  *opt = tn_sgd(net, (tn_sgd_opts){ .lr = 0.1f, .clip_norm = 1 });
    tn_tensor *x   = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(N, N)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_step(opt, tn_mean_all(tn_square(tn_forward(net, x))));
    double values = (double)tn_ctx_stats(cx).planned / (4 * N * N);
    test_case_result(values > LAYERS && values < LAYERS + 4, "%.2f values", values);
    tn_close(cx);
}

// The largest of 16-bit values is found again where it was, although one way rounds on its way.
static void largest_values_of_16_bits_are_found_again(void)
{
    for (int k = 0; k < 2; k++) {
        tn_ctx    *cx = open_cpu();
        tn_tensor *x  = tn_randn(cx, k ? TN_F16 : TN_BF16, TN_SHAPE(2, 4, 8, 8));
        tn_requires_grad(x, true);
        tn_tensor *y = tn_max_pool2d(tn_tanh(x), 2, 2, (tn_pool_opts){ 0 });
        tn_backward(tn_sum_all(y), NULL);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK(tn_item(tn_sum_all(tn_ne_s(tn_grad_of(x), 0))) >= 2 * 4 * 4 * 4);
        tn_close(cx);
    }
}

// The window of a pool is a few loads for each result, in both orders of axes, and no sum of
// columns.
static void windows_are_unrolled(void)
{
    for (int last = 0; last < 2; last++) {
        tn_ctx    *cx = open_cpu();
        tn_tensor *x  = tn_randn(cx, TN_F32, TN_SHAPE(2, 8, 9, 9));
        if (last) x = tn_channels_last(x);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_want(tn_max_pool2d(x, 3, 3, (tn_pool_opts){ .stride = { 2 }, .padding = { 1 } }));
        const char *page = explained(cx);
        test_that(strstr(page, "POINT") && !strstr(page, "COL"), "%s", page);
        tn_close(cx);
    }
}

// What many elements read is computed once, not by each of them.
static void dear_values_are_not_computed_again_and_again(void)
{
    tn_ctx    *cx = open_cpu();
    tn_tensor *x  = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(64, 64)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int k = 0; k < 2; k++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = k ? tn_sum(tn_window(tn_tanh(x), 1, 9, 1), -1)
                         : tn_concat(2, (tn_tensor *const[]){ tn_exp(x), tn_tanh(x) }, 1);
        tn_want(y);
        test_case_result(kernels(cx) > 1, "case %d", k);
        tn_end(s);
    }
    tn_close(cx);
}

// Rows of places with their channels side by side, moved by some places or by a number of elements
// that is none: whether a place is within the row follows, for whole places, from the place alone,
// and is the same for its channels.
static void bounds_of_whole_places_do_not_ask_for_the_channel(void)
{
    enum { ROWS_OF = 3, PLACES = 4, CHANNELS = 8, MOST = (PLACES + 4) * CHANNELS };
    static const int64_t pads[][2] = { { 8, 0 }, { 0, 16 }, { 16, 8 }, { 4, 4 }, { 3, 5 } };
    static char          page[1 << 16];
    for (size_t k = 0; k < sizeof pads / sizeof *pads; k++) {
        int64_t before[] = { 0, pads[k][0] }, after[] = { 0, pads[k][1] };
        int64_t n     = PLACES * CHANNELS + before[1] + after[1];
        bool    whole = before[1] % CHANNELS == 0 && after[1] % CHANNELS == 0;
        float   v[ROWS_OF * PLACES * CHANNELS], got[ROWS_OF * MOST];
        tn_ctx *cx = open_cpu();
        for (int i = 0; i < ROWS_OF * PLACES * CHANNELS; i++) v[i] = (float)(i + 1);
        tn_tensor *x = tn_want(tn_from(cx, TN_F32, TN_SHAPE(ROWS_OF, PLACES * CHANNELS), v));
        tn_tensor *c = tn_want(tn_ones(cx, TN_F32, TN_SHAPE(CHANNELS)));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_tensor *y = tn_reshape(tn_pad(x, before, after, 0),
                                  TN_SHAPE(ROWS_OF, n / CHANNELS, CHANNELS));
        y            = tn_want(tn_mul(y, c));
        FILE *f      = fmemopen(page, sizeof page, "w");
        if (!CHECK(f != NULL)) return;
        CHECK_STATUS(tn_explain_with(cx, f, (tn_explain_opts){ .source = true }), TN_OK);
        fclose(f);
        test_case_result(!strstr(page, "place [0n1]") == whole, "%s", page);
        CHECK_STATUS(tn_read(y, TN_F32, got, ROWS_OF * (size_t)n), TN_OK);
        for (int64_t i = 0; i < ROWS_OF * n; i++) {
            int64_t at = i % n - before[1];
            bool    in = at >= 0 && at < PLACES * CHANNELS;
            CHECK_NEAR(got[i], in ? v[i / n * PLACES * CHANNELS + at] : 0, 0);
        }
        tn_close(cx);
    }
}

// A value less its first row: its readers, before and after a product, compute it from what is in
// memory anyway.
static void a_first_row_is_no_second_load_of_a_value(void)
{
    enum { N = 64 };
    tn_ctx    *cx = open_cpu();
    tn_tensor *w  = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(N, N)));
    tn_tensor *b  = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(N)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *x = tn_add(tn_matmul(w, w), b), *y = tn_sub(x, tn_slice(x, 0, 0, 1, 1));
    tn_tensor *z = tn_matmul(tn_tanh(y), w);
    tn_want(tn_mul(z, y));
    long long values = bytes_moved(cx) / (4 * N * N);
    test_case_result(values < 12, "%lld values moved", values);
    tn_close(cx);
}

const test_case tests_planning[] = {
    TEST(bounds_of_whole_places_do_not_ask_for_the_channel),
    TEST(a_first_row_is_no_second_load_of_a_value),
    TEST(results_do_not_take_what_others_still_read),
    TEST(a_backward_pass_keeps_what_the_rest_follows_from),
    TEST(gradients_take_the_place_of_activations),
    TEST(largest_values_of_16_bits_are_found_again),
    TEST(windows_are_unrolled),
    TEST(dear_values_are_not_computed_again_and_again),
    TEST(computed_views_are_told_apart),
    TEST(slices_of_what_is_computed_are_read_once_where_they_are_equal),
    TEST(what_was_recorded_far_apart_is_in_order),
    TEST(a_long_chain_is_one_kernel),
    TEST(many_results_fit_into_kernels_or_are_parted),
    TEST(known_sums_check_their_indices),
    TEST(a_fused_pad_cuts_its_number_as_the_op_does),
    TEST_END,
};
