// test_scaling.c: loss scaling. Scaled training is training; an update whose gradients are not
// finite changes nothing but the scale and the count of skipped ones, and costs no wait and no
// plan.
#include "rules_kit.h"
#include "scratch.h"

#include "engine/engine.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

typedef enum { SGD, ADAM, ADAMW, RMSPROP, ADAGRAD, LAMB, RULES } rule;

// The options that differ between the tests.
typedef struct {
    double  scale, clip_norm;
    int64_t interval;
    int     accumulate;
} options;

static tn_optim *open_rule(tn_layer *net, rule r, options o)
{
    tn_adam_opts adam = { .lr             = 0.05f,
                          .clip_norm      = o.clip_norm,
                          .loss_scale     = o.scale,
                          .scale_interval = o.interval,
                          .accumulate     = o.accumulate };
    switch (r) {
    case SGD:
        return tn_sgd(net, (tn_sgd_opts){ .lr             = 0.05f,
                                          .momentum       = 0.9f,
                                          .dampening      = 0.1f,
                                          .clip_norm      = o.clip_norm,
                                          .loss_scale     = o.scale,
                                          .scale_interval = o.interval,
                                          .accumulate     = o.accumulate });
    case ADAM: return tn_adam(net, adam);
    case ADAMW: return tn_adamw(net, adam);
    case LAMB: return tn_lamb(net, adam);
    case ADAGRAD:
        return tn_adagrad(net, (tn_adagrad_opts){ .lr             = 0.05f,
                                                  .lr_decay       = 0.1f,
                                                  .clip_norm      = o.clip_norm,
                                                  .loss_scale     = o.scale,
                                                  .scale_interval = o.interval,
                                                  .accumulate     = o.accumulate });
    default:
        return tn_rmsprop(net, (tn_rmsprop_opts){ .lr             = 0.05f,
                                                  .momentum       = 0.9f,
                                                  .centered       = true,
                                                  .clip_norm      = o.clip_norm,
                                                  .loss_scale     = o.scale,
                                                  .scale_interval = o.interval,
                                                  .accumulate     = o.accumulate });
    }
}

static tn_layer *open_net(tn_ctx *cx)
{
    tn_seed(cx, 3);
    return tn_nn_seq(cx, tn_nn_linear(cx, 4, 6), tn_nn_act(cx, tn_tanh), tn_nn_linear(cx, 6, 2));
}

// One tn_step; `factor` multiplies the loss, and infinity makes gradients that are not finite.
static tn_status step(tn_layer *net, tn_optim *o, double factor)
{
    tn_ctx    *cx = tn_layer_ctx(net);
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *x  = tn_reshape(tn_linspace(cx, TN_F32, -1, 1, 12), TN_SHAPE(3, 4));
    tn_tensor *y  = tn_mul_s(tn_slice(x, 1, 1, 3, 1), 0.5);
    tn_status  st = tn_step(o, tn_mul_s(tn_mse(tn_forward(net, x), y), factor));
    tn_end(s);
    return st;
}

enum { MOST = 256 };

// All parameters and states, one after the other, as numbers; returns how many.
static int read_all(const tn_optim *o, double *v)
{
    int n = 0;
    for (size_t i = 0; i < o->slots; i++)
        for (int k = -1; k < TNI_STATES; k++) {
            tn_tensor *t = k < 0 ? o->slot[i].p : o->slot[i].state[k];
            if (!t || n + tn_count(t) > MOST) continue;
            CHECK_STATUS(tn_read(t, TN_F64, v + n, tn_count(t)), TN_OK);
            n += (int)tn_count(t);
        }
    return n;
}

static double scale_of(tn_optim *o)
{
    return tn_item(tn_optim_loss_scale(o));
}

// ---- values ------------------------------------------------------------------------------------

// A power of two is multiplied and divided without rounding, so only Adam's correction may differ.
static void scaled_training_is_training(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int r = 0; r < RULES; r++)
            for (int clip = 0; clip < 2; clip++) {
                double a[MOST], b[MOST];
                int    n[2];
                for (int k = 0; k < 2; k++) {
                    tn_layer *net = open_net(cx);
                    options   how = { .scale = k ? 1024 : 0, .clip_norm = clip ? 0.1 : 0 };
                    tn_optim *o   = open_rule(net, (rule)r, how);
                    for (int i = 0; i < 5; i++) CHECK_STATUS(step(net, o, 1), TN_OK);
                    CHECK_INT(tn_optim_skipped(o), 0);
                    CHECK_NEAR(scale_of(o), k ? 1024 : 1, 0);
                    n[k] = read_all(o, k ? b : a);
                    tn_optim_free(o);
                    tn_layer_free(net);
                }
                CHECK_INT(n[0], n[1]);
                for (int i = 0; i < n[0]; i++) CHECK_NEAR(a[i], b[i], 2e-6 * (1 + fabs(a[i])));
            }
}

static void a_step_that_is_not_finite_is_skipped(void)
{
    const double bad[] = { INFINITY, NAN };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int r = 0; r < RULES; r++) {
            tn_layer *net = open_net(cx);
            tn_optim *o   = open_rule(net, (rule)r, (options){ .scale = 256, .clip_norm = 1 });
            double    before[MOST], after[MOST];
            for (int i = 0; i < 3; i++) CHECK_STATUS(step(net, o, 1), TN_OK);
            int     n     = read_all(o, before);
            int64_t plans = tn_ctx_stats(cx).plans, syncs = tn_ctx_stats(cx).syncs;
            for (int i = 0; i < 2; i++) CHECK_STATUS(step(net, o, bad[i]), TN_OK);
            CHECK_INT(tn_ctx_stats(cx).plans, plans);
            CHECK_INT(tn_ctx_stats(cx).syncs, syncs);
            CHECK_INT(read_all(o, after), n);
            CHECK(!memcmp(before, after, (size_t)n * sizeof *before));
            CHECK_INT(tn_optim_skipped(o), 2);
            CHECK_NEAR(scale_of(o), 64, 0);
            CHECK_STATUS(step(net, o, 1), TN_OK);
            CHECK_INT(read_all(o, after), n);
            for (int i = 0; i < n; i++) CHECK(isfinite(after[i]));
            CHECK(memcmp(before, after, (size_t)n * sizeof *before) != 0);
            CHECK_INT(tn_optim_skipped(o), 2);
            CHECK_INT(tn_optim_updates(o), 6);
            CHECK(!tn_error(cx));
        }
}

// The rule counts only updates that were done: the first that is done is the first, whatever came
// before.
static void skipped_steps_do_not_count_for_the_rule(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int r = 0; r < RULES; r++) {
            double v[2][MOST];
            int    n = 0;
            for (int k = 0; k < 2; k++) {
                tn_layer *net = open_net(cx);
                tn_optim *o   = open_rule(net, (rule)r, (options){ .scale = 1024 });
                for (int i = 0; k && i < 3; i++) CHECK_STATUS(step(net, o, INFINITY), TN_OK);
                for (int i = 0; i < 2; i++) CHECK_STATUS(step(net, o, 1), TN_OK);
                n = read_all(o, v[k]);
                tn_optim_free(o);
                tn_layer_free(net);
            }
            for (int i = 0; i < n; i++) CHECK_NEAR(v[0][i], v[1][i], 1e-7);
        }
}

static void the_scale_grows_and_backs_off(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer    *net    = open_net(cx);
        tn_optim    *o      = open_rule(net, ADAMW, (options){ .scale = 8, .interval = 3 });
        const double by[]   = { 1, 1, 1, 1, 1, INFINITY, 1, 1, 1, 1 };
        const double want[] = { 8, 8, 16, 16, 16, 8, 8, 8, 16, 16 };
        for (int i = 0; i < 10; i++) {
            CHECK_STATUS(step(net, o, by[i]), TN_OK);
            CHECK_NEAR(scale_of(o), want[i], 0);
        }
        if (!strcmp(cx->engine->device->name, "ref")) continue;  // it has no f32
        tn_optim *top = open_rule(net, SGD, (options){ .scale = 0x1p127, .interval = 1 });
        CHECK_STATUS(step(net, top, 0), TN_OK);  // 2^128 is no f32: the scale stays
        CHECK_NEAR(scale_of(top), 0x1p127, 0);
        CHECK_INT(tn_optim_skipped(top), 0);
    }
}

// All micro-steps have one scale, and one that is not finite spoils the update.
static void accumulated_steps_are_skipped_together(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *net = open_net(cx);
        tn_optim *o   = open_rule(net, ADAM,
                                  (options){ .scale = 64, .accumulate = 2, .interval = 1 });
        double    before[MOST], after[MOST];
        for (int i = 0; i < 2; i++) CHECK_STATUS(step(net, o, 1), TN_OK);
        CHECK_NEAR(scale_of(o), 128, 0);
        int n = read_all(o, before);
        CHECK_STATUS(step(net, o, INFINITY), TN_OK);
        CHECK_NEAR(scale_of(o), 128, 0);
        CHECK_STATUS(step(net, o, 1), TN_OK);
        CHECK_NEAR(scale_of(o), 64, 0);
        CHECK_INT(read_all(o, after), n);
        CHECK(!memcmp(before, after, (size_t)n * sizeof *before));
        CHECK_INT(tn_optim_skipped(o), 1);
    }
}

// ---- by hand, files, mistakes ------------------------------------------------------------------

static void a_backward_pass_by_hand_is_scaled_by_the_scale(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double norm[2], v[2][MOST];
        int    n = 0;
        for (int k = 0; k < 2; k++) {
            tn_layer  *net  = open_net(cx);
            tn_optim  *o    = open_rule(net, SGD, (options){ .scale = k ? 4096 : 0 });
            tn_tensor *x    = tn_reshape(tn_linspace(cx, TN_F32, -1, 1, 12), TN_SHAPE(3, 4));
            tn_tensor *loss = tn_sum_all(tn_square(tn_forward(net, x)));
            CHECK_STATUS(tn_backward(loss, tn_optim_loss_scale(o)), TN_OK);
            norm[k] = tn_item(tn_optim_clip_norm(o, 0.5));
            CHECK_STATUS(tn_optim_clip_value(o, 0.1), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_OK);
            n = read_all(o, v[k]);
        }
        CHECK_NEAR(norm[0], norm[1], 1e-6 * norm[0]);
        for (int i = 0; i < n; i++) CHECK_NEAR(v[0][i], v[1][i], 1e-6);
    }
}

static void checkpoints_keep_scale_and_counts(void)
{
    if (!CHECK(scratch_open())) return;
    tn_ctx      *cx  = rules_open("cpu");
    tn_layer    *net = open_net(cx), *again = open_net(cx);
    tn_optim    *o    = open_rule(net, ADAM, (options){ .scale = 64, .interval = 4 });
    tn_optim    *p    = open_rule(again, ADAM, (options){ .scale = 2, .interval = 4 });
    const char  *path = scratch_path("scaled.ckpt");
    double       a[MOST], b[MOST];
    const double by[] = { 1, 1, INFINITY, 1, 1 };
    for (int i = 0; i < 5; i++) CHECK_STATUS(step(net, o, by[i]), TN_OK);
    tn_checkpoint c = { .net = { net }, .opt = { o } }, d = { .net = { again }, .opt = { p } };
    CHECK_STATUS(tn_checkpoint_save(cx, path, &c), TN_OK);
    CHECK_STATUS(tn_checkpoint_load(cx, path, &d), TN_OK);
    CHECK_INT(tn_optim_skipped(p), 1);
    CHECK_NEAR(scale_of(p), 32, 0);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(step(net, o, 1), TN_OK);
        CHECK_STATUS(step(again, p, 1), TN_OK);
        CHECK_NEAR(scale_of(p), scale_of(o), 0);
    }
    CHECK_NEAR(scale_of(p), 64, 0);  // two before the file, two after it
    CHECK_INT(read_all(o, a), read_all(p, b));
    CHECK(!memcmp(a, b, (size_t)read_all(o, a) * sizeof *a));
    // A file with a scale is loaded without one, and the other way round.
    tn_optim     *plain = open_rule(again, ADAM, (options){ 0 });
    tn_checkpoint e     = { .net = { again }, .opt = { plain } };
    CHECK_STATUS(tn_checkpoint_load(cx, path, &e), TN_OK);
    CHECK_STATUS(tn_checkpoint_save(cx, path, &e), TN_OK);
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_OK);
    CHECK_NEAR(scale_of(o), 64, 0);
    tn_close(cx);
    scratch_close();
}

static void wrong_scales_are_refused(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = open_net(cx);
    CHECK(!tn_adam(net, (tn_adam_opts){ .loss_scale = -1 }));
    CHECK_STR(tn_error_text(cx), "adam: loss_scale -1 is not a number >= 0");
    tn_error_clear(cx);
    CHECK(!tn_sgd(net, (tn_sgd_opts){ .loss_scale = 8, .scale_growth = 0.5 }));
    CHECK_STR(tn_error_text(cx), "sgd: scale_growth 0.5 is below 1 or scale_backoff 0.5 above");
    tn_error_clear(cx);
    CHECK_INT(tn_optim_skipped(NULL), 0);
    tn_close(cx);
}

// ---- in f16 ------------------------------------------------------------------------------------

// Gradients of 1e-9 are 0 in f16, and are found with a scale; one that is too large for f16 comes
// down by itself.
static void f16_trains_where_its_gradients_underflow(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double moved[2];
        for (int k = 0; k < 2; k++) {
            tn_layer *net = open_net(cx);
            tn_optim *o   = open_rule(net, ADAM, (options){ .scale = k ? 0x1p60 : 0 });
            double    before[MOST], after[MOST];
            int       n = read_all(o, before);
            for (int i = 0; i < 40; i++) {
                tn_scope *s = tn_begin(cx);
                tn_autocast(cx, TN_F16);
                CHECK_STATUS(step(net, o, 1e-9), TN_OK);
                tn_end(s);
            }
            read_all(o, after);
            moved[k] = 0;
            for (int i = 0; i < n && i < 24; i++) moved[k] += fabs(after[i] - before[i]);
            if (k) CHECK(tn_optim_skipped(o) > 0 && tn_optim_skipped(o) < 30);
        }
        CHECK(moved[0] == 0);
        CHECK(moved[1] > 0);
    }
}

// clang-format off
const test_case tests_scaling[] = {
    TEST(scaled_training_is_training),
    TEST(a_step_that_is_not_finite_is_skipped),
    TEST(skipped_steps_do_not_count_for_the_rule),
    TEST(the_scale_grows_and_backs_off),
    TEST(accumulated_steps_are_skipped_together),
    TEST(a_backward_pass_by_hand_is_scaled_by_the_scale),
    TEST(checkpoints_keep_scale_and_counts),
    TEST(wrong_scales_are_refused),
    TEST(f16_trains_where_its_gradients_underflow),
    TEST_END
};
// clang-format on
