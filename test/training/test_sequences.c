// test_sequences.c: loops and recurrent layers: that a scan means what the steps one after the
// other do, what a body may do, that its plan does not depend on the number of steps, and what is
// reported.
#include "rules_kit.h"

#include <math.h>

// ---- scans -------------------------------------------------------------------------------------

// The sum and the number of steps; the second is an integer.
static void sums(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    carry[0] = tn_add(carry[0], x[0]);
    carry[1] = tn_add_i64(carry[1], 1);
    y[0]     = tn_mul(carry[0], tn_cast(carry[1], TN_F32));
}

// 1, 2, 4, ...: a scan of no sequence.
static void doubles(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    (void)x;
    y[0]     = carry[0];
    carry[0] = tn_mul_s(carry[0], 2);
}

// A scan in a scan: the powers of each number.
static void powers(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    tn_tensor *one = tn_add_s(x[0], 0);
    (void)user;
    tn_scan(doubles, NULL, 1, &one, 0, NULL, 1, y, (tn_scan_opts){ .steps = 3 });
    carry[0] = tn_add(carry[0], one);
}

static void a_scan_runs_its_body_for_every_step(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 3), *y = NULL;
        tn_tensor *c[] = { tn_zeros(cx, TN_F32, TN_0D), tn_zeros(cx, TN_I64, TN_0D) };
        CHECK_STATUS(tn_scan(sums, NULL, 2, c, 1, &x, 1, &y, (tn_scan_opts){ 0 }), TN_OK);
        CHECK_VALUES(y, 1, 6, 18);
        CHECK(tn_item(c[0]) == 6 && tn_item_i64(c[1]) == 3);
        c[0] = tn_zeros(cx, TN_F32, TN_0D);
        tn_scan(sums, NULL, 2, c, 1, &x, 1, &y, (tn_scan_opts){ .reverse = true });
        CHECK_VALUES(y, 36, 25, 12);
        CHECK(tn_item_i64(c[1]) == 6);

        tn_tensor *one = tn_ones(cx, TN_F32, TN_SHAPE(1));
        tn_scan(doubles, NULL, 1, &one, 0, NULL, 1, &y, (tn_scan_opts){ .steps = 4 });
        CHECK_VALUES(tn_reshape(y, TN_SHAPE(-1)), 1, 2, 4, 8);
        CHECK_VALUES(one, 16);

        tn_tensor *sum = tn_zeros(cx, TN_F32, TN_0D);
        tn_requires_grad(x, true);
        CHECK_STATUS(tn_scan(powers, NULL, 1, &sum, 1, &x, 1, &y, (tn_scan_opts){ 0 }), TN_OK);
        CHECK_VALUES(tn_select(y, 0, 2), 3, 6, 12);
        CHECK(tn_item(sum) == 8 * 6);
        tn_backward(tn_add(sum, tn_sum_all(y)), NULL);
        CHECK_VALUES(tn_grad_of(x), 15, 15, 15);
    }
}

// What is computed from tensors of the outside alone is computed once: its random numbers are those
// of all steps.
static void adds_noise(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    tn_tensor *noise = tn_rand(tn_ctx_of(x[0]), TN_F32, TN_0D);
    carry[0]         = tn_add(carry[0], noise);
    y[0]             = tn_mul(noise, user);
}

static void what_depends_on_no_step_is_computed_once(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 4), *y = NULL, *c = tn_zeros(cx, TN_F32, TN_0D);
        tn_scan(adds_noise, tn_ones(cx, TN_F32, TN_0D), 1, &c, 1, &x, 1, &y, (tn_scan_opts){ 0 });
        double noise = tn_item(tn_select(y, 0, 0));
        CHECK_NEAR(tn_item(tn_select(y, 0, 3)), noise, 0);
        CHECK_NEAR(tn_item(c), 4 * noise, 1e-6);
    }
}

// No gradient passes what is detached, in a body as outside.
static void forgets(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    carry[0] = tn_add(tn_mul(tn_detach(carry[0]), x[0]), x[0]);
    y[0]     = tn_mul_s(carry[0], 2);
}

static void a_body_can_detach_values(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_requires_grad(rules_ramp(cx, 3), true), *y = NULL;
        tn_tensor *c = tn_ones(cx, TN_F32, TN_0D);
        tn_scan(forgets, NULL, 1, &c, 1, &x, 1, &y, (tn_scan_opts){ 0 });
        CHECK_VALUES(y, 4, 12, 42);
        tn_backward(tn_sum_all(y), NULL);
        CHECK_VALUES(tn_grad_of(x), 4, 6, 14);
    }
}

// ---- plans -------------------------------------------------------------------------------------

static tn_tensor *lstm_loss(tn_ctx *cx, tn_layer *net, int64_t T)
{
    return tn_mean_all(tn_square(tn_forward(net, tn_ones(cx, TN_F32, TN_SHAPE(T, 2, 3)))));
}

static tn_layer *lstm(tn_ctx *cx)
{
    return tn_nn_rnn(cx, 3, 4, (tn_nn_rnn_opts){ .kind = TN_LSTM, .layers = 2, .dropout = 0.1 });
}

static void layers_have_the_names_of_pytorch(void)
{
    static const char *const name[]    = { "weight_ih_l0", "bias_hh_l0", "weight_hh_l0_reverse",
                                           "weight_ih_l1_reverse" };
    static const int64_t     size[][2] = { { 9, 5 }, { 9, 1 }, { 9, 3 }, { 9, 6 } };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_nn_rnn_opts o = {
            .kind = TN_GRU, .layers = 2, .bidirectional = true, .batch_first = true
        };
        tn_layer *net = tn_nn_rnn(cx, 5, 3, o);
        for (int i = 0; i < 4; i++) {
            tn_tensor *w = tn_layer_find(net, name[i]);
            CHECK_INT(tn_size(w, 0), size[i][0]);
            CHECK_INT(tn_count(w), size[i][0] * size[i][1]);
        }
        tn_tensor *y = tn_forward(net, tn_ones(cx, TN_F32, TN_SHAPE(2, 4, 5)));
        CHECK(tn_size(y, 0) == 2 && tn_size(y, 1) == 4 && tn_size(y, 2) == 6);
        CHECK(tn_layer_count(net) == 2 * (9 * (5 + 3) + 18) + 2 * (9 * (6 + 3) + 18));
        CHECK(tn_nn_rnn(cx, 5, 3, (tn_nn_rnn_opts){ .layers = 17 }) == NULL);
        CHECK_FAILED(cx, TN_EARG, "nn_rnn: layers is 17, expected 1 to 16");
    }
}

// Plans built and kernels compiled by training steps over T steps of time.
static tn_stats train_lstm(tn_ctx *cx, int64_t T, double *last)
{
    tn_layer *net = lstm(cx);
    tn_optim *opt = tn_sgd(net, (tn_sgd_opts){ .lr = 0.5f });
    tn_stats  was = tn_ctx_stats(cx), settled = was;
    for (int i = 0; i < 12; i++) {
        tn_scope  *s    = tn_begin(cx);
        tn_tensor *loss = lstm_loss(cx, net, T);
        tn_step(opt, loss);
        *last = tn_item(loss);
        tn_end(s);
        if (i == 3) settled = tn_ctx_stats(cx);
    }
    tn_stats now = tn_ctx_stats(cx);
    CHECK_INT(now.plans, settled.plans);  // steps are found again
    now.plans -= was.plans;
    now.kernels -= was.kernels;
    return now;
}

static void a_plan_does_not_depend_on_the_number_of_steps(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double   first = tn_item(lstm_loss(cx, lstm(cx), 16)), few, many;
        tn_ctx  *one = tn_open(tn_ctx_device(cx)), *two = tn_open(tn_ctx_device(cx));
        tn_stats a = train_lstm(one, 16, &few), b = train_lstm(two, 256, &many);
        tn_close(one);
        tn_close(two);
        CHECK_INT(a.plans, b.plans);
        CHECK(few < first && isfinite(many));
    }
}

// ---- what is reported --------------------------------------------------------------------------

static tn_tensor *outside;

static void writes_outside(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    tn_assign(outside, x[0]);
    carry[0] = y[0] = tn_add(carry[0], x[0]);
}

static void grows(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    y[0]     = x[0];
    carry[0] = tn_stack(2, (tn_tensor *const[]){ carry[0], x[0] }, 0);
}

static void reads_a_value(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    y[0] = tn_mul_s(carry[0], tn_item(x[0]));
}

static void errors_of_scans_name_what_is_wrong(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor   *x = rules_ramp(cx, 3), *z = tn_zeros(cx, TN_F32, TN_0D), *c = z, *y;
        tn_scan_opts o = { 0 };
        outside        = tn_zeros(cx, TN_F32, TN_0D);
        tn_eval(cx);
        tn_scan(writes_outside, NULL, 1, &c, 1, &x, 1, &y, o);
        CHECK_FAILED(cx, TN_EARG, "scan: the body wrote a tensor that was made outside");
        tn_error_clear(cx);
        tn_assign(outside, z);
        tn_scan(grows, NULL, 1, &c, 1, &x, 1, &y, o);
        CHECK_FAILED(cx, TN_ESHAPE, "scan: the body made carry[0] f32 (2,) of f32 ()");
        tn_scan(reads_a_value, NULL, 1, &c, 1, &x, 1, &y, o);
        CHECK_FAILED(cx, TN_EARG, "a tn_ call is in progress");
        tn_scan(sums, NULL, 2, (tn_tensor *[]){ z, z }, 1, &z, 1, &y, o);
        CHECK_FAILED(cx, TN_ESHAPE, "scan: x[0] () has no axis of steps");
        tn_tensor *two[] = { x, rules_ramp(cx, 2) };
        tn_scan(sums, NULL, 1, &c, 2, two, 1, &y, o);
        CHECK_FAILED(cx, TN_ESHAPE, "scan: x[1] (2,) is not of 3 steps");
        tn_rnn(x, 2, (tn_tensor *[]){ x, x }, (tn_rnn_opts){ .no_bias = true });
        CHECK_FAILED(cx, TN_ESHAPE, "rnn: x is (3,), expected (T, B, I) or (T, I)");
        tn_ctc_loss(x, x, NULL, NULL, (tn_ctc_opts){ 0 });
        CHECK_FAILED(cx, TN_ESHAPE, "ctc_loss: log_probs is (3,), expected (T, N, C)");
        tn_tensor *p = tn_zeros(cx, TN_F32, TN_SHAPE(5, 2, 3)),
                  *t = tn_zeros(cx, TN_I64, TN_SHAPE(2, 2));
        tn_ctc_loss(p, p, NULL, NULL, (tn_ctc_opts){ 0 });
        CHECK_FAILED(cx, TN_ESHAPE, "ctc_loss: targets is f32 (5, 2, 3), expected integers (2, S)");
        tn_ctc_loss(p, t, t, NULL, (tn_ctc_opts){ 0 });
        CHECK_FAILED(cx, TN_ESHAPE,
                     "ctc_loss: input_lengths is i64 (2, 2), expected integers (2,)");
        tn_ctc_loss(p, t, NULL, NULL, (tn_ctc_opts){ .blank = 3 });
        CHECK_FAILED(cx, TN_EARG, "ctc_loss: blank 3 is no class of 3");
        CHECK(isnan(tn_item(tn_ctc_loss(p, tn_add_i64(t, 9), NULL, NULL, (tn_ctc_opts){ 0 }))));
        CHECK_FAILED(cx, TN_EARG, "ctc_loss: gather: index 9 is out of range for size 3");
        tn_tensor *a = tn_zeros(cx, TN_F32, TN_SHAPE(4, 3)),
                  *b = tn_zeros(cx, TN_F32, TN_SHAPE(4, 4));
        tn_rnn(tn_zeros(cx, TN_F32, TN_SHAPE(5, 2, 6)), 2, (tn_tensor *[]){ a, b },
               (tn_rnn_opts){ .no_bias = true });
        CHECK_FAILED(cx, TN_ESHAPE, "rnn: weight_ih_l0 is (4, 3), expected (4, 6)");
        tn_rnn(tn_zeros(cx, TN_F32, TN_SHAPE(5, 2, 3)), 2, (tn_tensor *[]){ a, b },
               (tn_rnn_opts){ .layers = 2, .no_bias = true });
        CHECK_FAILED(cx, TN_EARG, "rnn: 2 weights, expected 4 for 2 layers");
    }
}

const test_case tests_sequences[] = {
    TEST(a_scan_runs_its_body_for_every_step),
    TEST(what_depends_on_no_step_is_computed_once),
    TEST(a_body_can_detach_values),
    TEST(layers_have_the_names_of_pytorch),
    TEST(a_plan_does_not_depend_on_the_number_of_steps),
    TEST(errors_of_scans_name_what_is_wrong),
    TEST_END,
};
