// test_optim_rules.c: optimizers keep the rules of meaning: whose gradients a step touches (11),
// accumulation and sharing (14), flat memory (15), failure as a whole (18); and who owns what.
#include "faulty.h"
#include "rules_kit.h"

#include <math.h>
#include <string.h>

// 1, 2, ... n as a parameter of a layer of its own.
typedef struct {
    tn_tensor *w;
    tn_layer  *net;
} single;

static single single_open(tn_ctx *cx, int64_t n)
{
    single x = { .w = rules_ramp(cx, n) };
    x.net    = tn_layer_of(cx, 1, &x.w);
    return x;
}

static tn_optim *descent(tn_layer *net, float lr)
{
    return tn_sgd(net, (tn_sgd_opts){ .lr = lr });
}

static tn_tensor *squares(tn_tensor *w)
{
    return tn_sum_all(tn_square(w));
}

// ---- 11: whose gradients -----------------------------------------------------------------------

static void rule_11_a_step_touches_its_own_gradients_only(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    a = single_open(cx, 2), b = single_open(cx, 2);
        tn_optim *opt = descent(a.net, 0.5f);
        CHECK_STATUS(tn_backward(tn_sum_all(b.w), NULL), TN_OK);
        CHECK_STATUS(tn_step(opt, tn_sum_all(tn_mul(tn_square(a.w), b.w))), TN_OK);
        CHECK_VALUES(a.w, 0, -2);  // w - 0.5 * 2 w b
        CHECK(!tn_has_grad(a.w));
        CHECK_VALUES(tn_grad_of(a.w), 0, 0);
        CHECK_VALUES(tn_grad_of(b.w), 1, 1);
        CHECK_VALUES(b.w, 1, 2);
    }
}

static void rule_11_a_step_adds_to_what_backward_left(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    a   = single_open(cx, 2);
        tn_optim *opt = descent(a.net, 1);
        CHECK_STATUS(tn_backward(tn_mul_s(tn_sum_all(a.w), 10), NULL), TN_OK);
        CHECK_STATUS(tn_step(opt, tn_sum_all(a.w)), TN_OK);
        CHECK_VALUES(a.w, -10, -9);
        CHECK_STATUS(tn_step(opt, tn_sum_all(a.w)), TN_OK);
        CHECK_VALUES(a.w, -11, -10);
    }
}

static void rule_11_optim_step_clears_and_launches_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    a   = single_open(cx, 2);
        tn_optim *opt = descent(a.net, 1);
        CHECK_STATUS(tn_backward(tn_sum_all(a.w), NULL), TN_OK);
        int64_t launches = tn_ctx_stats(cx).launches;
        CHECK_STATUS(tn_optim_step(opt), TN_OK);
        CHECK_STATUS(tn_optim_step(opt), TN_OK);
        CHECK_INT(tn_ctx_stats(cx).launches, launches);
        CHECK_INT(tn_optim_updates(opt), 2);
        CHECK_VALUES(a.w, -1, 0);
        CHECK(tn_has_grad(a.w));
        tn_optim_zero_grad(opt);
        CHECK(!tn_has_grad(a.w));
        CHECK_STATUS(tn_optim_step(opt), TN_OK);
        CHECK_VALUES(a.w, -1, 0);
        CHECK_INT(tn_optim_updates(opt), 2);
    }
}

static void rule_11_a_parameter_without_gradient_is_skipped(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *p[2] = { rules_ramp(cx, 2), rules_ramp(cx, 2) };
        tn_layer  *net  = tn_layer_of(cx, 2, p);
        tn_optim  *opt  = tn_adamw(net, (tn_adamw_opts){ .lr = 0.5f, .weight_decay = 1 });
        CHECK_STATUS(tn_step(opt, squares(p[0])), TN_OK);
        CHECK_VALUES(p[1], 1, 2);  // not even decayed
        CHECK_STATUS(tn_step(opt, squares(p[1])), TN_OK);
        double a[2], b[2];
        tn_read(p[0], TN_F64, a, 2);
        tn_read(p[1], TN_F64, b, 2);
        CHECK(!memcmp(a, b, sizeof a));  // its first update, whenever that is
        CHECK(a[0] != 1);
    }
}

// Parameters of one optimizer count their updates for themselves: p, which was updated twice as
// often as q, goes where each would go alone.
static void rule_11_updates_are_counted_per_parameter(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *both[2] = { rules_ramp(cx, 2), rules_ramp(cx, 2) };
        single     p = single_open(cx, 2), q = single_open(cx, 2);
        tn_optim  *opt   = tn_adam(tn_layer_of(cx, 2, both), (tn_adam_opts){ .lr = 0.1f });
        tn_optim  *opt_p = tn_adam(p.net, (tn_adam_opts){ .lr = 0.1f });
        tn_optim  *opt_q = tn_adam(q.net, (tn_adam_opts){ .lr = 0.1f });
        for (int i = 0; i < 4; i++) {
            tn_tensor *loss = squares(both[0]);
            if (i % 2) loss = tn_add(loss, squares(both[1]));
            CHECK_STATUS(tn_step(opt, loss), TN_OK);
            CHECK_STATUS(tn_step(opt_p, squares(p.w)), TN_OK);
            if (i % 2) CHECK_STATUS(tn_step(opt_q, squares(q.w)), TN_OK);
        }
        CHECK(tn_item(tn_max_all(tn_abs(tn_sub(both[0], p.w)))) == 0);
        CHECK(tn_item(tn_max_all(tn_abs(tn_sub(both[1], q.w)))) == 0);
        CHECK(tn_item(tn_max_all(tn_sub(both[0], both[1]))) != 0);
    }
}

// Not even where so much is pending that any other call would start to compute.
static void rule_11_optim_step_does_not_flush(void)
{
    tn_ctx   *cx  = tn_open_with((tn_open_opts){ .device = "cpu", .flush_nodes = 3 });
    single    a   = single_open(cx, 2);
    tn_optim *opt = descent(a.net, 1);
    CHECK_STATUS(tn_backward(tn_sum_all(a.w), NULL), TN_OK);
    int64_t launches = tn_ctx_stats(cx).launches;
    CHECK_STATUS(tn_optim_step(opt), TN_OK);
    CHECK_INT(tn_ctx_stats(cx).launches, launches);
    CHECK_VALUES(a.w, 0, 1);
    tn_close(cx);
}

static void a_loss_of_other_parameters_is_an_error(void)
{
    tn_ctx   *cx = rules_open("cpu");
    single    a = single_open(cx, 2), b = single_open(cx, 2);
    tn_optim *opt = descent(a.net, 1);
    CHECK_STATUS(tn_step(opt, squares(b.w)), TN_EGRAD);
    CHECK_FAILED(cx, TN_EGRAD, "step: the loss depends on none");
    CHECK_STATUS(tn_step(opt, tn_ones(cx, TN_F32, TN_0D)), TN_EGRAD);
    CHECK_FAILED(cx, TN_EGRAD, "step: the loss depends on no parameter");
    CHECK_STATUS(tn_step(opt, tn_square(a.w)), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "(2,) is not one element");
    CHECK_STATUS(tn_step(opt, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "step: the loss is NULL");
    CHECK_STATUS(tn_step(NULL, squares(a.w)), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "step: the optimizer is NULL");
    CHECK_STATUS(tn_step(opt, tn_matmul(a.w, tn_ones(cx, TN_F32, TN_SHAPE(3)))), TN_ESHAPE);
    tn_error_clear(cx);
    CHECK_STATUS(tn_step(opt, squares(a.w)), TN_OK);
    CHECK_VALUES(a.w, -1, -2);
    tn_close(cx);
}

// ---- 14: accumulation and sharing --------------------------------------------------------------

static void rule_14_every_kth_step_updates_with_the_average(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    a   = single_open(cx, 2);
        tn_optim *opt = tn_sgd(a.net, (tn_sgd_opts){ .lr = 1, .accumulate = 2 });
        for (int i = 0; i < 4; i++) {
            tn_scope  *s    = tn_begin(cx);
            tn_tensor *loss = tn_mul_s(tn_sum_all(a.w), i + 1);
            CHECK_STATUS(tn_step(opt, loss), TN_OK);
            CHECK(tn_has_grad(a.w) == (i % 2 == 0));
            tn_item(loss);
            tn_end(s);
            CHECK_INT(tn_optim_updates(opt), (i + 1) / 2);
        }
        CHECK_VALUES(a.w, 1 - 1.5 - 3.5, 2 - 1.5 - 3.5);
    }
}

static void rule_14_a_tied_parameter_counts_once(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w    = tn_requires_grad(rules_ramp(cx, 2), true);
        tn_tensor *p[2] = { w, w };
        tn_optim  *opt  = descent(tn_layer_of(cx, 2, p), 1);
        tn_optim  *two  = descent(tn_layer_of(cx, 1, p), 1);
        CHECK_STATUS(tn_step(opt, tn_add(tn_sum_all(w), tn_sum_all(w))), TN_OK);
        CHECK_VALUES(w, -1, 0);
        CHECK_STATUS(tn_step(two, tn_sum_all(w)), TN_OK);  // and once in another optimizer
        CHECK_VALUES(w, -2, -1);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(w, rules_ramp(cx, 2))), NULL), TN_OK);
        CHECK_NEAR(tn_item(tn_optim_clip_norm(opt, 9)), sqrt(5), 1e-6);
        tn_optim_zero_grad(opt);
    }
}

static void a_frozen_parameter_stays(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *p[2] = { rules_ramp(cx, 2), rules_ramp(cx, 2) };
        tn_optim  *opt  = descent(tn_layer_of(cx, 2, p), 1);
        tn_requires_grad(p[1], false);
        CHECK_STATUS(tn_step(opt, tn_add(tn_sum_all(p[0]), tn_sum_all(p[1]))), TN_OK);
        tn_requires_grad(p[1], true);
        CHECK_STATUS(tn_step(opt, tn_add(tn_sum_all(p[0]), tn_sum_all(p[1]))), TN_OK);
        CHECK_VALUES(p[0], -1, 0);
        CHECK_VALUES(p[1], 0, 1);
    }
}

// Two optimizers over one graph, both losses made before the first step.
static void two_optimizers_share_a_graph(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    g = single_open(cx, 2), d = single_open(cx, 2);
        tn_optim *opt_g = descent(g.net, 0.5f), *opt_d = descent(d.net, 0.5f);
        double    vg[2] = { 1, 2 }, vd[2] = { 1, 2 };
        for (int i = 0; i < 3; i++) {
            tn_scope  *s    = tn_begin(cx);
            tn_tensor *fake = tn_mul_s(g.w, 0.5);
            tn_tensor *loss = tn_sum_all(tn_mul(tn_detach(fake), d.w));  // falls for d
            tn_tensor *fool = tn_neg(tn_sum_all(tn_mul(fake, d.w)));     // rises for g
            CHECK_STATUS(tn_step(opt_d, loss), TN_OK);
            CHECK_STATUS(tn_step(opt_g, fool), TN_OK);  // by d as it was when fool was made
            CHECK_STATUS(tn_end(s), TN_OK);
            for (int k = 0; k < 2; k++) {
                double old = vd[k];
                vd[k] -= 0.5 * 0.5 * vg[k];
                vg[k] += 0.5 * 0.5 * old;
            }
        }
        CHECK_VALUES(g.w, vg[0], vg[1]);
        CHECK_VALUES(d.w, vd[0], vd[1]);
    }
}

// ---- 15: flat memory ---------------------------------------------------------------------------

static void rule_15_parameters_of_one_dtype_lie_in_one_buffer(void)
{
    tn_ctx    *cx   = rules_open("cpu");
    tn_tensor *p[4] = { tn_full(cx, TN_F32, TN_SHAPE(3, 5), 1), tn_full(cx, TN_F64, TN_SHAPE(2), 1),
                        tn_full(cx, TN_F32, TN_SHAPE(7), 1), tn_full(cx, TN_F64, TN_SHAPE(4), 1) };
    tn_optim  *opt  = tn_adam(tn_layer_of(cx, 4, p), (tn_adam_opts){ 0 });
    for (int i = 0; i < 3; i++) {
        tn_scope  *s   = tn_begin(cx);
        tn_tensor *sum = NULL;
        for (int k = 0; k < 4; k++) {
            tn_tensor *one = tn_cast(squares(p[k]), TN_F64);
            sum            = sum ? tn_add(sum, one) : one;
        }
        CHECK_STATUS(tn_step(opt, sum), TN_OK);
        tn_end(s);
    }
    const char *at[4];
    for (int k = 0; k < 4; k++) at[k] = tn_ptr(p[k]);
    CHECK_INT(at[2] - at[0], 15 * 4);
    CHECK_INT(at[3] - at[1], 2 * 8);
    tn_close(cx);
}

// ---- 18: failure as a whole --------------------------------------------------------------------

// A step whose computation fails, whatever failed before or comes after.
static void rule_18_a_failed_step_changes_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    a = single_open(cx, 2), b = single_open(cx, 2);
        tn_optim *opt = tn_sgd(a.net, (tn_sgd_opts){ .lr = 1, .momentum = 0.5f });
        for (int good = 0; good < 3; good++) {
            double before[2], after[2];
            tn_read(a.w, TN_F64, before, 2);
            rules_fail      = true;
            tn_tensor *loss = tn_sum_all(rules_double(a.w));
            if (good == 1) tn_item(loss);  // fails first, and the step for want of it
            tn_status failed = tn_step(opt, loss);
            CHECK(failed == TN_EUSER || (good == 1 && failed == TN_EGONE));
            rules_fail = false;
            CHECK_FAILED(cx, TN_EUSER, "twice");
            CHECK_STATUS(tn_read(a.w, TN_F64, after, 2), TN_OK);
            CHECK(!memcmp(before, after, sizeof before));
            CHECK_INT(tn_optim_updates(opt), good);
            CHECK(!tn_has_grad(a.w));
            CHECK(tn_item(loss) != tn_item(loss));
            CHECK_FAILED(cx, TN_EGONE, "");
            CHECK_STATUS(tn_step(opt, tn_sum_all(a.w)), TN_OK);
        }
        CHECK_VALUES(a.w, 1 - 1 - 1.5 - 1.75, 2 - 1 - 1.5 - 1.75);
        CHECK_INT(tn_optim_updates(opt), 3);
        CHECK_VALUES(b.w, 1, 2);
    }
}

// The update was recorded by tn_optim_step, and fails with somebody else's work.
static void rule_18_counts_of_recorded_updates_roll_back(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    a   = single_open(cx, 2);
        tn_optim *opt = tn_sgd(a.net, (tn_sgd_opts){ .lr = 1, .momentum = 0.5f });
        for (int good = 0; good < 2; good++) {
            CHECK_STATUS(tn_backward(tn_sum_all(a.w), NULL), TN_OK);
            CHECK_STATUS(tn_optim_step(opt), TN_OK);
            CHECK_STATUS(tn_optim_step(opt), TN_OK);
            CHECK_INT(tn_optim_updates(opt), good + 2);
            rules_fail   = true;
            tn_tensor *y = rules_double(rules_ramp(cx, 2));
            CHECK_STATUS(tn_eval(cx), TN_EUSER);
            rules_fail = false;
            CHECK_FAILED(cx, TN_EUSER, "twice");
            tn_drop(y);
            CHECK_INT(tn_optim_updates(opt), good);
            tn_optim_zero_grad(opt);
            CHECK_STATUS(tn_step(opt, tn_sum_all(a.w)), TN_OK);
        }
        CHECK_VALUES(a.w, 1 - 1 - 1.5, 2 - 1 - 1.5);
    }
}

// Parameters that nothing has computed yet have a value to return to.
static void rule_18_a_failed_first_step_leaves_the_parameters(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w   = tn_full(cx, TN_F32, TN_SHAPE(2), 3);
        tn_optim  *opt = descent(tn_layer_of(cx, 1, &w), 1);
        rules_fail     = true;
        CHECK_STATUS(tn_step(opt, tn_sum_all(rules_double(w))), TN_EUSER);
        rules_fail = false;
        tn_error_clear(cx);
        CHECK_VALUES(w, 3, 3);
    }
}

static void rule_18_a_failed_step_starts_accumulation_anew(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    single    a   = single_open(cx, 2);
    tn_optim *opt = tn_sgd(a.net, (tn_sgd_opts){ .lr = 1, .accumulate = 3 });
    CHECK_STATUS(tn_step(opt, tn_mul_s(tn_sum_all(a.w), 100)), TN_OK);
    rules_fail = true;
    CHECK_STATUS(tn_step(opt, tn_sum_all(rules_double(a.w))), TN_EUSER);
    rules_fail = false;
    tn_error_clear(cx);
    CHECK_STATUS(tn_step(opt, tn_sum_all(a.w)), TN_OK);
    CHECK_STATUS(tn_step(opt, tn_mul_s(tn_sum_all(a.w), 3)), TN_OK);
    CHECK_VALUES(a.w, 1, 2);
    CHECK_STATUS(tn_step(opt, tn_mul_s(tn_sum_all(a.w), 5)), TN_OK);
    CHECK_VALUES(a.w, 1 - 3, 2 - 3);
    CHECK_INT(tn_optim_updates(opt), 1);
    tn_close(cx);
}

// ---- ownership ---------------------------------------------------------------------------------

static void parameters_outlive_their_layer_in_the_optimizer(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *p[2] = { rules_ramp(cx, 2), rules_ramp(cx, 3) };
        tn_layer  *net  = tn_layer_of(cx, 2, p);
        tn_optim  *opt  = tn_adam(net, (tn_adam_opts){ 0 });
        tn_tensor *loss = squares(p[0]);
        tn_layer_free(net);
        CHECK_STATUS(tn_step(opt, loss), TN_OK);
        CHECK_STATUS(tn_step(opt, squares(p[0])), TN_OK);
        tn_optim_free(opt);
        CHECK_STR(tn_error_text(cx), "");
    }
}

static void an_optimizer_may_be_freed_first(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single    a     = single_open(cx, 2);
        tn_stats  empty = tn_ctx_stats(cx);
        tn_optim *opt   = tn_adam(a.net, (tn_adam_opts){ 0 });
        tn_scope *s     = tn_begin(cx);
        CHECK_STATUS(tn_step(opt, squares(a.w)), TN_OK);
        CHECK(tn_ctx_stats(cx).bytes > empty.bytes);
        CHECK_STATUS(tn_backward(squares(a.w), NULL), TN_OK);
        CHECK_STATUS(tn_optim_step(opt), TN_OK);  // recorded only
        tn_optim_free(opt);
        tn_optim_free(NULL);
        tn_zero_grad(a.w);
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_INT(tn_ctx_stats(cx).bytes, empty.bytes);
        CHECK(tn_item(tn_sum_all(a.w)) < 3);
    }
}

static void a_made_optimizer_outlives_its_scope(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_scope *s   = tn_begin(cx);
    single    a   = single_open(cx, 2);
    tn_optim *opt = descent(a.net, 1);
    tn_end(s);
    s = tn_begin(cx);
    CHECK_STATUS(tn_step(opt, tn_sum_all(a.w)), TN_OK);
    tn_end(s);
    CHECK_VALUES(a.w, 0, 1);
    tn_close(cx);
}

// What was asked for before a step can be read after it, as after tn_eval.
static void a_step_is_a_step_boundary(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        single     a     = single_open(cx, 3);
        tn_optim  *opt   = descent(a.net, 1);
        tn_tensor *outer = tn_neg(a.w);
        tn_scope  *s     = tn_begin(cx);
        tn_tensor *big = tn_square(a.w), *wanted = tn_want(tn_mul_s(a.w, 3));
        tn_tensor *aside = tn_exp(tn_mul_s(a.w, 0)), *kl = tn_sum_all(wanted);
        tn_tensor *loss = tn_add(tn_sum_all(big), tn_sum_all(tn_mul(wanted, outer)));
        CHECK_STATUS(tn_step(opt, loss), TN_OK);
        CHECK_VALUES(wanted, 3, 6, 9);
        CHECK_VALUES(outer, -1, -2, -3);
        CHECK_VALUES(aside, 1, 1, 1);
        CHECK(tn_item(kl) == 18 && tn_item(loss) == 14 - 42);
        CHECK_VALUES(big, 1, 4, 9);  // the history of aside still holds the old weights
        tn_end(s);
    }
}

// ---- long runs, no memory ----------------------------------------------------------------------

static void a_thousand_steps_do_not_grow(void)
{
    tn_ctx    *cx     = rules_open("cpu");
    tn_tensor *p[2]   = { tn_full(cx, TN_F32, TN_SHAPE(4, 3), 0.1),
                          tn_zeros(cx, TN_F32, TN_SHAPE(3)) };
    tn_tensor *x      = tn_from(cx, TN_F32, TN_SHAPE(2, 4), (float[8]){ 1, 2, 3, 4, 5, 6, 7, 8 });
    tn_optim  *opt    = tn_adamw(tn_layer_of(cx, 2, p),
                                 (tn_adamw_opts){ .clip_norm = 1,
                                                  .schedule = { .kind = TN_LR_COSINE, .total = 500 } });
    tn_stats   before = { 0 };
    for (int i = 0; i < 1000; i++) {
        tn_scope *s = tn_begin(cx);
        CHECK_STATUS(tn_step(opt,
                             tn_mean_all(tn_square(tn_linear(x, tn_transpose(p[0], 0, 1), p[1])))),
                     TN_OK);
        tn_end(s);
        if (i == 9) before = tn_ctx_stats(cx);
    }
    tn_stats after = tn_ctx_stats(cx);
    CHECK_INT(after.nodes, before.nodes);
    CHECK_INT(after.bytes, before.bytes);
    CHECK_INT(after.peak, before.peak);
    CHECK_INT(after.plans, before.plans);
    CHECK_INT(tn_optim_updates(opt), 1000);
    tn_close(cx);
}

// A network, trained for some steps without faults.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *p[3];
    tn_optim  *opt;
    faulty     heap;
} trained;

// One step, with allocation n of tn_step failing.
static tn_status train_step(trained *t, long n)
{
    tn_scope  *s    = tn_begin(t->cx);
    tn_tensor *loss = NULL;
    for (int i = 0; i < 3; i++) {
        tn_tensor *one = squares(tn_sub_s(t->p[i], i));
        loss           = loss ? tn_add(loss, one) : one;
    }
    t->heap.countdown = n;
    tn_status status  = tn_step(t->opt, loss);
    tn_end(s);
    return status;
}

static void trained_open(trained *t, tn_dtype dt, int steps, bool asked)
{
    *t    = (trained){ 0 };
    t->cx = faulty_open("cpu", &t->heap);
    for (int i = 0; i < 3; i++) t->p[i] = tn_cast(rules_ramp(t->cx, i + 2), dt);
    t->opt = tn_adamw(tn_layer_of(t->cx, 3, t->p),
                      (tn_adamw_opts){ .lr = 0.1f, .clip_norm = 2, .accumulate = 2 });
    CHECK_STATUS(tn_optim_add_group(t->opt, "1", 1, 0), TN_OK);
    for (int i = 0; asked && i < 3; i++) tn_grad_of(t->p[i]);
    for (int i = 0; i < steps; i++) CHECK_STATUS(train_step(t, 0), TN_OK);
}

static void trained_read(const trained *t, float v[9])
{
    for (int i = 0, at = 0; i < 3; at += i + 2, i++)
        CHECK_STATUS(tn_read(t->p[i], TN_F32, v + at, i + 2), TN_OK);
}

// The second of two accumulated steps fails at allocation n, while so many tensors more are alive,
// which moves the blocks that small objects are cut from. False when there was no such allocation.
static bool fail_at(long n, tn_dtype dt, int steps, bool asked, int alive, const float *want)
{
    trained t;
    float   before[9], after[9], end[9];
    trained_open(&t, dt, steps, asked);
    for (int i = 0; i < alive; i++) tn_scalar(t.cx, i);
    trained_read(&t, before);
    int64_t   updates = tn_optim_updates(t.opt);
    tn_status status  = train_step(&t, n);
    bool      failed  = t.heap.failed > 0;
    t.heap.countdown  = 0;
    if (failed && status != TN_OK) {
        tn_error_clear(t.cx);
        trained_read(&t, after);
        test_case_result(status == TN_EMEM && !memcmp(before, after, sizeof before) &&
                             tn_optim_updates(t.opt) == updates && !tn_has_grad(t.p[0]),
                         "allocation %ld after %d steps: something changed", n, steps);
        // The failed step took the accumulated gradients with it.
        for (int i = 0; i < 2; i++) status = train_step(&t, 0);
    }
    test_case_result(status == TN_OK && tn_error(t.cx) == TN_OK, "allocation %ld: then %s", n,
                     tn_error_text(t.cx));
    trained_read(&t, end);
    test_case_result(!memcmp(end, want, sizeof end), "allocation %ld after %d steps: wrong numbers",
                     n, steps);
    tn_close(t.cx);
    test_that(TEST_DEBUG || t.heap.live == 0, "allocation %ld: %ld blocks are left", n,
              t.heap.live);
    return failed;
}

// Steps of an accumulation are alike, so that the values after a failed one and two more are those
// of a run without faults.
static void fail_everywhere(tn_dtype dt, int steps, bool asked)
{
    trained t;
    float   want[9];
    trained_open(&t, dt, steps + 1, asked);
    trained_read(&t, want);
    tn_close(t.cx);
    for (int alive = 0; alive < 128; alive += TN_SANITIZE[0] ? 64 : 8) {
        long n = 1;
        while (fail_at(n, dt, steps, asked, alive, want)) n++;
        CHECK(n > 5);
    }
}

static void rule_18_any_allocation_of_a_step_may_fail(void)
{
    fail_everywhere(TN_F32, 1, false);  // the first update, which makes the state
    fail_everywhere(TN_F32, 3, false);
    fail_everywhere(TN_F32, 3, true);
    fail_everywhere(TN_BF16, 1, false);  // with a master
    fail_everywhere(TN_BF16, 3, false);
}

const test_case tests_optim_rules[] = {
    TEST(rule_11_a_step_touches_its_own_gradients_only),
    TEST(rule_11_a_step_adds_to_what_backward_left),
    TEST(rule_11_optim_step_clears_and_launches_nothing),
    TEST(rule_11_a_parameter_without_gradient_is_skipped),
    TEST(rule_11_updates_are_counted_per_parameter),
    TEST(rule_11_optim_step_does_not_flush),
    TEST(a_loss_of_other_parameters_is_an_error),
    TEST(rule_14_every_kth_step_updates_with_the_average),
    TEST(rule_14_a_tied_parameter_counts_once),
    TEST(a_frozen_parameter_stays),
    TEST(two_optimizers_share_a_graph),
    TEST(rule_15_parameters_of_one_dtype_lie_in_one_buffer),
    TEST(rule_18_a_failed_step_changes_nothing),
    TEST(rule_18_counts_of_recorded_updates_roll_back),
    TEST(rule_18_a_failed_first_step_leaves_the_parameters),
    TEST(rule_18_a_failed_step_starts_accumulation_anew),
    TEST(parameters_outlive_their_layer_in_the_optimizer),
    TEST(an_optimizer_may_be_freed_first),
    TEST(a_made_optimizer_outlives_its_scope),
    TEST(a_step_is_a_step_boundary),
    TEST(a_thousand_steps_do_not_grow),
    TEST(rule_18_any_allocation_of_a_step_may_fail),
    TEST_END,
};
