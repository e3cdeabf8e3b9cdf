// test_optim.c: optimizers compute what PyTorch's formulas say: every rule and its variants against
// a scalar copy of them, groups, schedules, clipping, accumulation, settings.
#include "rules_kit.h"

#include "engine/engine.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

// ---- PyTorch's formulas, one number at a time --------------------------------------------------

typedef enum { SGD, ADAM, ADAMW, RMSPROP } rule;

typedef struct {
    rule   rule;
    double lr, beta1, beta2, eps, alpha, momentum, dampening, decay;
    bool   nesterov, centered;
} settings;

typedef struct {
    double p, m, v, b;
    int    t;
} number;

static void sgd_number(const settings *s, number *x, double g)
{
    if (s->momentum > 0) {
        x->b = x->t == 1 ? g : s->momentum * x->b + (1 - s->dampening) * g;
        g    = s->nesterov ? g + s->momentum * x->b : x->b;
    }
    x->p -= s->lr * g;
}

static void adam_number(const settings *s, number *x, double g)
{
    x->m += (1 - s->beta1) * (g - x->m);
    x->v           = s->beta2 * x->v + (1 - s->beta2) * g * g;
    double correct = 1 - pow(s->beta1, x->t), root = sqrt(1 - pow(s->beta2, x->t));
    x->p -= s->lr / correct * x->m / (sqrt(x->v) / root + s->eps);
}

static void rmsprop_number(const settings *s, number *x, double g)
{
    double v = x->v = s->alpha * x->v + (1 - s->alpha) * g * g;
    if (s->centered) {
        x->m += (1 - s->alpha) * (g - x->m);
        v -= x->m * x->m;
    }
    double d = g / (sqrt(v) + s->eps);
    if (s->momentum > 0) d = x->b = s->momentum * x->b + d;
    x->p -= s->lr * d;
}

static void update_number(const settings *s, number *x, double g)
{
    x->t++;
    if (s->rule == ADAMW) x->p *= 1 - s->lr * s->decay;
    else g += s->decay * x->p;
    if (s->rule == SGD) sgd_number(s, x, g);
    else if (s->rule == RMSPROP) rmsprop_number(s, x, g);
    else adam_number(s, x, g);
}

// ---- networks of two parameters ----------------------------------------------------------------

enum { A = 6, B = 3, ALL = A + B };

static const double start[ALL] = { 0.5, -1, 2, 0.1, -0.3, 1.5, 0.7, -0.2, 3 };

// Two bare tensors, (2, 3) and (3,).
typedef struct {
    tn_tensor *p[2];
    tn_layer  *net;
} pair;

static pair pair_open(tn_ctx *cx, tn_dtype dt)
{
    pair x = { 0 };
    x.p[0] = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(2, 3), start), dt);
    x.p[1] = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(3), start + A), dt);
    x.net  = tn_layer_of(cx, 2, x.p);
    x.p[0] = tn_layer_find(x.net, "0");
    x.p[1] = tn_layer_find(x.net, "1");
    return x;
}

// The sum of sin(p) + step * p * p / 10 over all elements; its gradient is cos(p) + step * p / 5.
static tn_tensor *pair_loss(const pair *x, int step)
{
    tn_tensor *sum = NULL;
    for (int i = 0; i < 2; i++) {
        tn_tensor *p   = x->p[i];
        tn_tensor *one = tn_sum_all(tn_add(tn_sin(p), tn_mul_s(tn_square(p), 0.1 * step)));
        sum            = sum ? tn_add(sum, one) : one;
    }
    return sum;
}

static double gradient(double p, int step)
{
    return cos(p) + 0.2 * step * p;
}

static void pair_read(const pair *x, double *v)
{
    CHECK_STATUS(tn_read(x->p[0], TN_F64, v, A), TN_OK);
    CHECK_STATUS(tn_read(x->p[1], TN_F64, v + A, B), TN_OK);
}

static void check_near(const double *have, const double *want, double tol, const char *what)
{
    for (int i = 0; i < ALL; i++)
        test_that(fabs(have[i] - want[i]) <= tol, "%s: [%d] is %.17g, not %.17g", what, i, have[i],
                  want[i]);
}

static tn_optim *open_rule(tn_layer *net, const settings *s)
{
    float lr = (float)s->lr, decay = s->decay > 0 ? (float)s->decay : TN_ZERO;
    switch (s->rule) {
    case SGD:
        return tn_sgd(net, (tn_sgd_opts){ .lr           = lr,
                                          .momentum     = (float)s->momentum,
                                          .dampening    = (float)s->dampening,
                                          .weight_decay = decay,
                                          .nesterov     = s->nesterov });
    case RMSPROP:
        return tn_rmsprop(net, (tn_rmsprop_opts){ .lr           = lr,
                                                  .alpha        = (float)s->alpha,
                                                  .eps          = (float)s->eps,
                                                  .momentum     = (float)s->momentum,
                                                  .weight_decay = decay,
                                                  .centered     = s->centered });
    default: {
        tn_adamw_opts o = { .lr           = lr,
                            .beta1        = (float)s->beta1,
                            .beta2        = (float)s->beta2,
                            .eps          = (float)s->eps,
                            .weight_decay = decay };
        return s->rule == ADAM ? tn_adam(net, o) : tn_adamw(net, o);
    }
    }
}

// ---- rules -------------------------------------------------------------------------------------

static void check_rule(const char *name, settings s)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair      x   = pair_open(cx, TN_F64);
        tn_optim *opt = open_rule(x.net, &s);
        number    n[ALL];
        double    have[ALL], want[ALL];
        for (int i = 0; i < ALL; i++) n[i] = (number){ .p = start[i] };
        for (int step = 1; step <= 10; step++) {
            tn_scope *in = tn_begin(cx);
            CHECK_STATUS(tn_step(opt, pair_loss(&x, step)), TN_OK);
            tn_end(in);
            for (int i = 0; i < ALL; i++) update_number(&s, &n[i], gradient(n[i].p, step));
        }
        pair_read(&x, have);
        for (int i = 0; i < ALL; i++) want[i] = n[i].p;
        check_near(have, want, 1e-12, name);
        CHECK_INT(tn_optim_updates(opt), 10);
    }
}

static void sgd_is_pytorchs(void)
{
    check_rule("plain", (settings){ SGD, .lr = 0.05 });
    check_rule("decay", (settings){ SGD, .lr = 0.05, .decay = 0.1 });
    check_rule("momentum", (settings){ SGD, .lr = 0.05, .momentum = 0.9 });
    check_rule("dampening",
               (settings){ SGD, .lr = 0.05, .momentum = 0.9, .dampening = 0.3, .decay = 0.01 });
    check_rule("nesterov",
               (settings){ SGD, .lr = 0.05, .momentum = 0.9, .decay = 0.01, .nesterov = true });
}

static void adam_is_pytorchs(void)
{
    settings s = { ADAM, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    check_rule("adam", s);
    s.decay = 0.1;
    check_rule("adam, decay", s);
    s.beta1 = 0.8;
    s.beta2 = 0.95;
    s.eps   = 1e-3;
    check_rule("adam, other betas", s);
}

static void adamw_is_pytorchs(void)
{
    settings s = { ADAMW, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01 };
    check_rule("adamw", s);
    s.decay = 0;
    check_rule("adamw, no decay", s);
}

static void rmsprop_is_pytorchs(void)
{
    settings s = { RMSPROP, .lr = 0.01, .alpha = 0.99, .eps = 1e-8 };
    check_rule("plain", s);
    s.decay = 0.1;
    check_rule("decay", s);
    s.momentum = 0.9;
    check_rule("momentum", s);
    s.centered = true;
    check_rule("centered", s);
    s.momentum = 0;
    check_rule("centered, no momentum", s);
}

// Half-precision parameters follow the same path, to their precision.
static void every_float_type_is_trained(void)
{
    static const tn_dtype dts[] = { TN_F32, TN_F16, TN_BF16 };
    static const double   tol[] = { 1e-5, 2e-2, 1e-1 };
    for (int k = 0; k < 3; k++) {
        tn_ctx   *cx = rules_open("cpu");
        pair      x  = pair_open(cx, dts[k]);
        settings  s  = { ADAM, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
        double    have[ALL], want[ALL];
        tn_optim *opt = open_rule(x.net, &s);
        for (int step = 1; step <= 5; step++)
            CHECK_STATUS(tn_step(opt, tn_cast(pair_loss(&x, step), TN_F32)), TN_OK);
        for (int i = 0; i < ALL; i++) {
            number n = { .p = start[i] };
            for (int step = 1; step <= 5; step++) update_number(&s, &n, gradient(n.p, step));
            want[i] = n.p;
        }
        pair_read(&x, have);
        check_near(have, want, tol[k], tn_dtype_name(dts[k]));
        CHECK_INT(tn_dtype_of(x.p[0]), dts[k]);
        tn_close(cx);
    }
}

// ---- groups ------------------------------------------------------------------------------------

// One step with settings (scale, decay) of its own for each parameter.
static void check_groups(tn_ctx *cx, const double scale[2], const double decay[2])
{
    pair      x   = pair_open(cx, TN_F64);
    tn_optim *opt = tn_sgd(x.net, (tn_sgd_opts){ .lr = 0.1f, .weight_decay = 0.5f });
    double    have[ALL], want[ALL];
    CHECK_STATUS(tn_optim_add_group(opt, "*", (float)scale[0], (float)decay[0]), TN_OK);
    CHECK_STATUS(tn_optim_add_group(opt, "no,1", (float)scale[1], (float)decay[1]), TN_OK);
    CHECK_STATUS(tn_step(opt, pair_loss(&x, 1)), TN_OK);
    for (int i = 0; i < ALL; i++)
        want[i] = start[i] -
                  0.1 * scale[i >= A] * (gradient(start[i], 1) + decay[i >= A] * start[i]);
    pair_read(&x, have);
    check_near(have, want, 1e-14, "groups");
}

static void groups_have_their_own_rate_and_decay(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        check_groups(cx, (double[]){ 3, 0.5 }, (double[]){ 0.25, 0 });
        check_groups(cx, (double[]){ 3, 3 }, (double[]){ 0.25, 0 });
        check_groups(cx, (double[]){ 3, 0.5 }, (double[]){ 0.25, 0.25 });
        check_groups(cx, (double[]){ 0, 1 }, (double[]){ 0, 0 });
    }
}

static void a_group_of_nobody_is_an_error(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    pair      x   = pair_open(cx, TN_F32);
    tn_optim *opt = tn_sgd(x.net, (tn_sgd_opts){ 0 });
    CHECK_STATUS(tn_optim_add_group(opt, "*.bias", 1, 0), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "optim_add_group", "*.bias");
    CHECK_STATUS(tn_optim_add_group(opt, "*", -1, 0), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "lr_scale -1");
    CHECK_STATUS(tn_optim_add_group(opt, NULL, 1, 0), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "NULL");
    tn_close(cx);
}

// ---- schedules ---------------------------------------------------------------------------------

// The learning rates of the first n updates.
static void check_rates(tn_schedule s, int n, const double *want)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_tensor *w   = rules_ramp(cx, 2);
    tn_layer  *net = tn_layer_of(cx, 1, &w);
    tn_optim  *opt = tn_sgd(net, (tn_sgd_opts){ .lr = 0.5f, .schedule = s });
    for (int i = 0; i < n; i++) {
        CHECK_NEAR(tn_optim_lr(opt), 0.5 * want[i], 1e-15);
        CHECK_STATUS(tn_step(opt, tn_sum_all(w)), TN_OK);
    }
    double moved = 0, value[2];
    for (int i = 0; i < n; i++) moved += 0.5 * want[i];
    CHECK_STATUS(tn_read(w, TN_F64, value, 2), TN_OK);
    CHECK_NEAR(value[0], 1 - moved, 1e-5);
    tn_close(cx);
}

static void schedules_give_the_factor_of_the_rate(void)
{
    double c = 0.5 * (1 + cos(3.14159265358979323846 / 4));
    check_rates((tn_schedule){ 0 }, 3, (double[]){ 1, 1, 1 });
    check_rates((tn_schedule){ .warmup = 4 }, 6, (double[]){ 0.25, 0.5, 0.75, 1, 1, 1 });
    check_rates((tn_schedule){ .kind = TN_LR_STEP, .every = 2 }, 5,
                (double[]){ 1, 1, 0.1, 0.1, 0.01 });
    check_rates((tn_schedule){ .kind = TN_LR_STEP, .every = 1, .factor = 0.5f, .floor = 0.25f }, 4,
                (double[]){ 1, 0.5, 0.25, 0.25 });
    check_rates((tn_schedule){ .kind = TN_LR_LINEAR, .total = 4, .floor = 0.2f }, 6,
                (double[]){ 1, 0.8, 0.6, 0.4, 0.2, 0.2 });
    check_rates((tn_schedule){ .kind = TN_LR_COSINE, .warmup = 2, .total = 6 }, 8,
                (double[]){ 0.5, 1, 1, c, 0.5, 1 - c, 0, 0 });
    check_rates(
        (tn_schedule){ .kind = TN_LR_EXPONENTIAL, .warmup = 2, .factor = 0.5f, .floor = 0.125f }, 7,
        (double[]){ 0.5, 1, 1, 0.5, 0.25, 0.125, 0.125 });
    check_rates((tn_schedule){ .kind = TN_LR_RESTARTS, .warmup = 1, .every = 2, .factor = 2 }, 9,
                (double[]){ 1, 1, 0.5, 1, c, 0.5, 1 - c, 1,
                            0.5 * (1 + cos(3.14159265358979323846 / 8)) });
    check_rates((tn_schedule){ .kind = TN_LR_ONE_CYCLE, .warmup = 2, .total = 5 }, 6,
                (double[]){ 0.04, 0.52, 1, 0.5 * (1 + 4e-6), 4e-6, 4e-6 });
}

// The averages after three steps, by hand; they are kept beside the parameters and leave them
// alone.
static void averages_of_parameters_are_kept(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w[2] = { rules_ramp(cx, 2), rules_ramp(cx, 3) };
        tn_tensor *e[2] = { rules_ramp(cx, 2), rules_ramp(cx, 3) };
        tn_layer  *net = tn_layer_of(cx, 2, w), *copy = tn_layer_of(cx, 2, e);
        tn_optim  *opt = tn_sgd(net, (tn_sgd_opts){ .lr = 1, .ema = 0.5f });
        CHECK_STATUS(tn_optim_average_to(opt, copy), TN_OK);
        CHECK_VALUES(e[1], 1, 2, 3);
        for (int i = 0; i < 3; i++)
            CHECK_STATUS(tn_step(opt, tn_add(tn_sum_all(w[0]), tn_sum_all(w[1]))), TN_OK);
        CHECK_VALUES(w[0], -2, -1);
        CHECK_VALUES(e[0], 1, 2);
        CHECK_STATUS(tn_optim_average_to(opt, copy), TN_OK);
        CHECK_VALUES(e[0], -1.125, -0.125);  // 1, 0.5, -0.25, -1.125
        CHECK_VALUES(e[1], -1.125, -0.125, 0.875);
        CHECK_VALUES(w[1], -2, -1, 0);
        tn_tensor *other = rules_ramp(cx, 4);
        CHECK_STATUS(tn_optim_average_to(opt, tn_layer_of(cx, 1, &other)), TN_ESHAPE);
        CHECK_FAILED(cx, TN_ESHAPE, "in the network");
        CHECK_STATUS(tn_optim_average_to(tn_sgd(net, (tn_sgd_opts){ 0 }), copy), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "without ema");
    }
}

// PyTorch's ReduceLROnPlateau(patience=1, cooldown=1) gives these rates.
static void the_rate_falls_on_a_plateau(void)
{
    const double value[] = { 3, 2, 2, 2, 2, 2, 2, 1, 1.1, 1.2, 1.3, 1.4 };
    const double want[]  = { 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001, 0.001, 0.001 };
    tn_ctx      *cx      = rules_open("cpu");
    pair         x       = pair_open(cx, TN_F64);
    tn_optim    *opt     = tn_sgd(x.net, (tn_sgd_opts){ .lr = 1 });
    tn_plateau   p       = { .patience = 1, .cooldown = 1 };
    for (int i = 0; i < 12; i++) {
        bool fell = tn_plateau_step(&p, opt, value[i]);
        CHECK(fell == (i > 0 && want[i] < want[i - 1]));
        CHECK_NEAR(tn_optim_lr(opt), want[i], 1e-12);
    }
    CHECK(!tn_plateau_step(&(tn_plateau){ .factor = 2 }, opt, 1));
    CHECK_FAILED(cx, TN_EARG, "factor 2");
    tn_close(cx);
}

static void the_rate_can_be_set(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    pair      x   = pair_open(cx, TN_F64);
    tn_optim *opt = tn_sgd(x.net, (tn_sgd_opts){ .schedule = { .warmup = 2 } });
    CHECK(tn_optim_lr(opt) == 0.0005);
    tn_optim_set_lr(opt, 0.25);
    CHECK(tn_optim_lr(opt) == 0.125);
    tn_optim_set_lr(opt, NAN);
    CHECK_FAILED(cx, TN_EARG, "lr");
    CHECK(tn_optim_lr(opt) == 0.125);
    tn_close(cx);
}

static void numbers_of_the_rule_can_be_set(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    pair      x   = pair_open(cx, TN_F64);
    tn_optim *opt = tn_sgd(x.net, (tn_sgd_opts){ .momentum = 0.9, .nesterov = true });
    CHECK_STATUS(tn_optim_set(opt, "momentum", 0.5), TN_OK);
    CHECK_STATUS(tn_optim_set(opt, "momentum", 0), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "nesterov needs a momentum");
    CHECK_STATUS(tn_optim_set(opt, "beta1", 0.5), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "sgd has no setting \"beta1\"");
    tn_close(cx);
}

// ---- clipping ----------------------------------------------------------------------------------

// The gradient of the first step, its norm, and where plain descent by scale * gradient goes.
static double first_norm(void)
{
    double sum = 0;
    for (int i = 0; i < ALL; i++) sum += gradient(start[i], 1) * gradient(start[i], 1);
    return sqrt(sum);
}

static void check_descent(const pair *x, double scale, const char *what)
{
    double have[ALL], want[ALL];
    for (int i = 0; i < ALL; i++) want[i] = start[i] - 0.1 * scale * gradient(start[i], 1);
    pair_read(x, have);
    check_near(have, want, 1e-13, what);
}

static void clip_norm_bounds_the_common_norm(void)
{
    double norm = first_norm();
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair      x   = pair_open(cx, TN_F64);
        tn_optim *opt = tn_sgd(x.net, (tn_sgd_opts){ .lr = 0.1f, .clip_norm = 0.5f });
        CHECK_STATUS(tn_optim_add_group(opt, "1", 1, 1e-30f), TN_OK);  // two batches, one norm
        CHECK_STATUS(tn_step(opt, pair_loss(&x, 1)), TN_OK);
        check_descent(&x, 0.5 / (norm + 1e-6), "clipped");
        x   = pair_open(cx, TN_F64);
        opt = tn_sgd(x.net, (tn_sgd_opts){ .lr = 0.1f, .clip_norm = 50 });
        CHECK_STATUS(tn_step(opt, pair_loss(&x, 1)), TN_OK);
        check_descent(&x, 1, "small enough");
    }
}

static void clip_value_bounds_every_element(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    pair      x   = pair_open(cx, TN_F64);
    tn_optim *opt = tn_sgd(x.net, (tn_sgd_opts){ .lr = 1, .clip_value = 0.25f });
    double    have[ALL], want[ALL];
    CHECK_STATUS(tn_step(opt, pair_loss(&x, 1)), TN_OK);
    for (int i = 0; i < ALL; i++)
        want[i] = start[i] - fmin(fmax(gradient(start[i], 1), -0.25), 0.25);
    pair_read(&x, have);
    check_near(have, want, 1e-14, "clamped");
    tn_close(cx);
}

// By its own norm, whatever the other's: as an option, and alone.
static void clip_each_bounds_the_norm_of_each_parameter(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int alone = 0; alone < 2; alone++) {
            pair      x   = pair_open(cx, TN_F64);
            tn_optim *opt = tn_sgd(x.net, (tn_sgd_opts){ .lr = 1, .clip_each = alone ? 0 : 0.5 });
            double    have[ALL], want[ALL];
            CHECK_STATUS(tn_backward(pair_loss(&x, 1), NULL), TN_OK);
            if (alone) CHECK_STATUS(tn_optim_clip_each(opt, 0.5), TN_OK);
            CHECK_STATUS(tn_optim_step(opt), TN_OK);
            for (int p = 0, at = 0; p < 2; p++) {
                int    n   = (int)tn_count(x.p[p]);
                double sum = 0;
                for (int i = at; i < at + n; i++) sum += pow(gradient(start[i], 1), 2);
                for (int i = at; i < at + n; i++)
                    want[i] = start[i] - gradient(start[i], 1) * fmin(1, 0.5 / (sqrt(sum) + 1e-6));
                at += n;
            }
            pair_read(&x, have);
            check_near(have, want, 1e-13, alone ? "alone" : "in an update");
            CHECK_STATUS(tn_optim_clip_each(opt, -1), TN_EARG);
            CHECK_FAILED(cx, TN_EARG, "optim_clip_each: max -1");
        }
}

// ---- L-BFGS ------------------------------------------------------------------------------------

// Rosenbrock's function of two parameters, whose lowest point is (1, 1) at the end of a bent
// valley.
typedef struct {
    tn_tensor *p;
    int        calls;
    bool       fails, own;
} valley;

static tn_tensor *valley_loss(void *user)
{
    valley    *v = user;
    tn_tensor *x = tn_select(v->p, 0, 0), *y = tn_select(v->p, 0, 1);
    v->calls++;
    if (v->fails && v->calls > 3) return NULL;
    tn_tensor *loss = tn_add(tn_square(tn_rsub_s(x, 1)),
                             tn_mul_s(tn_square(tn_sub(y, tn_square(x))), 100));
    if (v->own) tn_backward(loss, NULL);
    return loss;
}

// PyTorch's numbers: where it stops, and after how many calls.
static void lbfgs_finds_the_end_of_a_bent_valley(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int own = 0; own < 2; own++) {
            valley v = { .p = tn_from(cx, TN_F64, TN_SHAPE(2), (double[]){ -1.2, 1 }), .own = own };
            tn_layer *net = tn_layer_of(cx, 1, &v.p);
            tn_optim *opt = tn_lbfgs(net, (tn_lbfgs_opts){ .max_iter = 100, .strong_wolfe = true });
            double    loss;
            CHECK_STATUS(tn_minimize(opt, valley_loss, &v, &loss), TN_OK);
            CHECK_NEAR(loss, 24.2, 1e-12);
            CHECK_NEAR(tn_item(tn_select(v.p, 0, 0)), 0.9999814210791363, 1e-12);
            CHECK_NEAR(tn_item(tn_select(v.p, 0, 1)), 0.9999619651810985, 1e-12);
            CHECK_INT(v.calls, 43);
            CHECK_INT(tn_optim_updates(opt), 1);
        }
}

static void lbfgs_refuses_what_it_cannot_do(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    valley    v   = { .p = tn_from(cx, TN_F64, TN_SHAPE(2), (double[]){ -1.2, 1 }), .fails = true };
    tn_layer *net = tn_layer_of(cx, 1, &v.p);
    tn_optim *opt = tn_lbfgs(net, (tn_lbfgs_opts){ .strong_wolfe = true });
    CHECK_STATUS(tn_step(opt, tn_sum_all(v.p)), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "step: lbfgs needs a function of the loss: tn_minimize");
    CHECK_STATUS(tn_minimize(opt, NULL, NULL, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "minimize: the function is NULL");
    CHECK_STATUS(tn_minimize(opt, valley_loss, &v, NULL), TN_EUSER);
    CHECK_FAILED(cx, TN_EUSER, "minimize: the function returned no loss");
    v.fails = false;  // parameters are those of an iteration, not of a place that was tried
    CHECK(tn_item(valley_loss(&v)) <= 24.2);
    CHECK(!tn_lbfgs(net, (tn_lbfgs_opts){ .history_size = -1 }));
    CHECK_FAILED(cx, TN_EARG, "lbfgs: history_size is not in 0 .. 10000");
    tn_close(cx);
}

static void stored_gradients_are_clipped_without_a_host_read(void)
{
    double norm = first_norm();
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair      x      = pair_open(cx, TN_F64);
        tn_optim *opt    = tn_sgd(x.net, (tn_sgd_opts){ .lr = 0.1f });
        tn_stats  before = tn_ctx_stats(cx);
        CHECK_STATUS(tn_backward(pair_loss(&x, 1), NULL), TN_OK);
        tn_tensor *was = tn_optim_clip_norm(opt, 0.5);
        CHECK_STATUS(tn_optim_step(opt), TN_OK);
        CHECK_INT(tn_ctx_stats(cx).syncs, before.syncs);
        CHECK_INT(tn_ctx_stats(cx).launches, before.launches);
        CHECK_NEAR(tn_item(was), norm, 1e-13);
        CHECK_NEAR(tn_item(tn_optim_clip_norm(opt, 9)), 0.5, 1e-6);
        check_descent(&x, 0.5 / (norm + 1e-6), "clipped by hand");
        CHECK_STATUS(tn_optim_clip_value(opt, 0.01), TN_OK);
        CHECK_NEAR(tn_item(tn_max_all(tn_grad_of(x.p[0]))), 0.01, 1e-15);
        tn_optim_zero_grad(opt);
        CHECK(tn_item(tn_optim_clip_norm(opt, 1)) == 0);
        CHECK(!tn_optim_clip_norm(opt, -1));
        CHECK_FAILED(cx, TN_EARG, "optim_clip_norm: max -1");
    }
}

static void the_norm_of_several_dtypes_is_one(void)
{
    tn_ctx    *cx     = rules_open("cpu");
    tn_tensor *p[3]   = { tn_full(cx, TN_F32, TN_SHAPE(4), 1), tn_full(cx, TN_F64, TN_SHAPE(5), 1),
                          tn_full(cx, TN_BF16, TN_SHAPE(7), 1) };
    tn_layer  *net    = tn_layer_of(cx, 3, p);
    tn_optim  *opt    = tn_sgd(net, (tn_sgd_opts){ .lr = 1, .clip_norm = 2 });
    tn_tensor *loss   = tn_sum_all(tn_cast(p[0], TN_F64));
    loss              = tn_add(loss, tn_sum_all(p[1]));
    loss              = tn_add(loss, tn_sum_all(tn_cast(p[2], TN_F64)));
    double   value[7] = { 0 };
    tn_dtype dtypes[] = { TN_F32, TN_F64, TN_BF16 };
    CHECK_STATUS(tn_step(opt, loss), TN_OK);  // 16 ones, of norm 4
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(tn_read(p[i], TN_F64, value, tn_count(p[i])), TN_OK);
        CHECK_NEAR(value[0], 0.5, 1e-6);
        CHECK_INT(tn_dtype_of(p[i]), dtypes[i]);
    }
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// ---- accumulation ------------------------------------------------------------------------------

static void accumulated_steps_equal_one_of_the_mean(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair      a = pair_open(cx, TN_F64), b = pair_open(cx, TN_F64);
        tn_optim *slow = tn_adam(a.net, (tn_adam_opts){ .accumulate = 3, .clip_norm = 0.5f });
        tn_optim *fast = tn_adam(b.net, (tn_adam_opts){ .clip_norm = 0.5f });
        double    have[ALL], want[ALL];
        for (int round = 0; round < 3; round++) {
            tn_tensor *sum = NULL;
            for (int i = 1; i <= 3; i++) {
                tn_scope *s = tn_begin(cx);
                CHECK_STATUS(tn_step(slow, pair_loss(&a, i)), TN_OK);
                tn_end(s);
                CHECK_INT(tn_optim_updates(slow), round + (i == 3));
                tn_tensor *l = pair_loss(&b, i);
                sum          = sum ? tn_add(sum, l) : l;
            }
            CHECK_STATUS(tn_step(fast, tn_div_s(sum, 3)), TN_OK);
            CHECK(!tn_has_grad(a.p[0]));
        }
        pair_read(&a, have);
        pair_read(&b, want);
        check_near(have, want, 1e-12, "accumulated");
    }
}

// Between the two steps of an update, which is that of the mean all the same.
static void a_loss_that_will_not_do_changes_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair      a = pair_open(cx, TN_F64), b = pair_open(cx, TN_F64);
        tn_optim *opt = tn_sgd(a.net, (tn_sgd_opts){ .lr = 0.1f, .accumulate = 2 });
        double    have[ALL], want[ALL];
        CHECK_STATUS(tn_step(opt, pair_loss(&a, 1)), TN_OK);
        CHECK_STATUS(tn_step(opt, NULL), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "step: the loss is NULL");
        CHECK_STATUS(tn_step(opt, tn_sin(a.p[1])), TN_ESHAPE);
        CHECK_FAILED(cx, TN_ESHAPE, "step: the loss (3,) is not one element");
        CHECK_STATUS(tn_step(opt, tn_scalar(cx, 1)), TN_EGRAD);
        CHECK_FAILED(cx, TN_EGRAD, "depends on no parameter");
        CHECK_STATUS(tn_step(opt, pair_loss(&b, 1)), TN_EGRAD);
        CHECK_FAILED(cx, TN_EGRAD, "none of the optimizer's parameters");
        CHECK(tn_has_grad(a.p[0]) && !tn_has_grad(b.p[0]));
        CHECK_STATUS(tn_step(opt, pair_loss(&a, 3)), TN_OK);
        pair_read(&a, have);
        for (int i = 0; i < ALL; i++) want[i] = start[i] - 0.1 * gradient(start[i], 2);
        check_near(have, want, 1e-12, "the mean of both");
    }
}

// ---- failure -----------------------------------------------------------------------------------

// Somebody else's work fails: all that is not computed yet goes back.
static void fail_a_step(tn_ctx *cx)
{
    rules_fail   = true;
    tn_tensor *y = rules_double(rules_ramp(cx, 2));
    CHECK_STATUS(tn_eval(cx), TN_EUSER);
    rules_fail = false;
    CHECK_FAILED(cx, TN_EUSER, "twice");
    tn_drop(y);
}

// What somebody reads of an update that is recorded: a parameter; the next loss, which is made from
// both; a parameter that was written since, not from its old value; a moment, as saving does.
typedef enum {
    A_PARAMETER,
    THE_NEXT_LOSS,
    A_WRITTEN_PARAMETER,
    A_MOMENT,
    WAYS_TO_READ
} way_to_read;

static void read_of_update(tn_ctx *cx, const pair *x, const tn_optim *opt, way_to_read way)
{
    double v[A];
    if (way == A_PARAMETER) tn_read(x->p[0], TN_F64, v, A);
    if (way == THE_NEXT_LOSS) CHECK(isfinite(tn_item(pair_loss(x, 1))));
    if (way == A_WRITTEN_PARAMETER) {
        tn_grad_mode(cx, false);
        tn_assign(x->p[0], tn_full(cx, TN_F64, TN_SHAPE(2, 3), 0.25));
        tn_grad_mode(cx, true);
        tn_read(x->p[0], TN_F64, v, A);
    }
    if (way == A_MOMENT) tn_read(opt->slot[1].state[0], TN_F64, v, B);
    CHECK(!tn_error(cx));
}

// Three times an update is recorded, read in one of the ways, and another step fails.
static void check_updates_that_stay(const char *name, settings s, way_to_read way, bool groups)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair      x   = pair_open(cx, TN_F64);
        tn_optim *opt = open_rule(x.net, &s);
        number    n[ALL];
        double    have[ALL], want[ALL];
        // The same settings, written as other ones: two bunches.
        if (groups) CHECK_STATUS(tn_optim_add_group(opt, "1", 1, 1e-30f), TN_OK);
        for (int i = 0; i < ALL; i++) n[i] = (number){ .p = start[i] };
        for (int step = 1; step <= 3; step++) {
            CHECK_STATUS(tn_backward(pair_loss(&x, step), NULL), TN_OK);
            CHECK_STATUS(tn_optim_step(opt), TN_OK);
            tn_optim_zero_grad(opt);
            read_of_update(cx, &x, opt, way);
            fail_a_step(cx);
            for (int i = 0; i < ALL; i++) {
                update_number(&s, &n[i], gradient(n[i].p, step));
                if (way == A_WRITTEN_PARAMETER && i < A) n[i].p = 0.25;
                want[i] = n[i].p;
            }
            CHECK_INT(tn_optim_updates(opt), step);
            pair_read(&x, have);
            check_near(have, want, 1e-12, name);
        }
    }
}

static void an_update_that_was_read_stays_with_its_moments_when_the_next_step_fails(void)
{
    for (int k = 0; k < 2 * WAYS_TO_READ; k++) {
        way_to_read way    = (way_to_read)(k / 2);
        bool        groups = k % 2;
        check_updates_that_stay("sgd", (settings){ .rule = SGD, .lr = 0.1, .momentum = 0.5 }, way,
                                groups);
        check_updates_that_stay(
            "adam",
            (settings){ .rule = ADAM, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 }, way,
            groups);
    }
}

// How often somebody may be asked before an evaluation stops, without the pause between two
// questions.
typedef struct {
    tn_ctx *cx;
    int     left, asked;
} patience;

static bool is_stopped(void *user)
{
    patience *p              = user;
    p->cx->engine->stop_time = 0;
    p->asked++;
    return p->left-- == 0;
}

// Every step is stopped once, each at a later place than the one before, until one is not stopped
// any more.
static void a_step_that_is_stopped_is_computed_by_the_next_evaluation(void)
{
    settings s = { .rule = ADAM, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair      x   = pair_open(cx, TN_F64);
        tn_optim *opt = open_rule(x.net, &s);
        number    n[ALL];
        double    have[ALL], want[ALL];
        bool      stopped = true;
        for (int i = 0; i < ALL; i++) n[i] = (number){ .p = start[i] };
        for (int step = 1; stopped && step < 400; step++) {
            patience   p    = { cx, step - 1, 0 };
            tn_tensor *loss = pair_loss(&x, step);
            tn_stop_when(cx, is_stopped, &p);
            tn_status status = tn_step(opt, loss);
            stopped          = status == TN_ESTOP;
            if (!stopped) CHECK_STATUS(status, TN_OK);
            CHECK(p.asked == (stopped ? step : step - 1));
            if (stopped) CHECK_FAILED(cx, TN_ESTOP, "evaluating: stopped by the program");
            if (stopped && step % 2) CHECK_STATUS(tn_eval(cx), TN_OK);
            CHECK(isfinite(tn_item(loss)));
            for (int i = 0; i < ALL; i++) {
                update_number(&s, &n[i], gradient(n[i].p, step));
                want[i] = n[i].p;
            }
            CHECK_INT(tn_optim_updates(opt), step);
            pair_read(&x, have);
            check_near(have, want, 1e-12, "stopped");
        }
        CHECK(!stopped);
        tn_stop_when(cx, NULL, NULL);
    }
}

// ---- settings ----------------------------------------------------------------------------------

static void wrong_settings_are_errors(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l  = pair_open(cx, TN_F32).net;
    CHECK(!tn_sgd(l, (tn_sgd_opts){ .lr = -1 }));
    CHECK_FAILED(cx, TN_EARG, "sgd: lr -1");
    CHECK(!tn_sgd(l, (tn_sgd_opts){ .nesterov = true }));
    CHECK_FAILED(cx, TN_EARG, "nesterov");
    CHECK(!tn_sgd(l, (tn_sgd_opts){ .accumulate = -2 }));
    CHECK_FAILED(cx, TN_EARG, "accumulate -2");
    CHECK(!tn_adam(l, (tn_adam_opts){ .beta1 = 1 }));
    CHECK_FAILED(cx, TN_EARG, "adam: beta1 1");
    CHECK(!tn_adamw(l, (tn_adamw_opts){ .beta2 = 1.5f }));
    CHECK_FAILED(cx, TN_EARG, "adamw: beta2 1.5");
    CHECK(!tn_rmsprop(l, (tn_rmsprop_opts){ .eps = NAN }));
    CHECK_FAILED(cx, TN_EARG, "rmsprop: eps nan");
    CHECK(!tn_sgd(l, (tn_sgd_opts){ .schedule = { .kind = 9 } }));
    CHECK_FAILED(cx, TN_EARG, "schedule: the kind");
    CHECK(!tn_sgd(l, (tn_sgd_opts){ .schedule = { .kind = TN_LR_STEP } }));
    CHECK_FAILED(cx, TN_EARG, "every");
    CHECK(
        !tn_sgd(l, (tn_sgd_opts){ .schedule = { .kind = TN_LR_COSINE, .warmup = 5, .total = 5 } }));
    CHECK_FAILED(cx, TN_EARG, "total");
    CHECK(!tn_sgd(NULL, (tn_sgd_opts){ 0 }));
    CHECK_FAILED(NULL, TN_EARG, "the layer is NULL");
    CHECK(!tn_sgd(tn_nn_act(cx, tn_relu), (tn_sgd_opts){ 0 }));
    CHECK_FAILED(cx, TN_EARG, "no parameters");
    tn_close(cx);
}

// 24: 0 is the default, TN_ZERO a zero. lr 0.001 is the decimal, not the float next to it.
static void rule_24_zero_is_the_default_and_tn_zero_is_zero(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l  = pair_open(cx, TN_F64).net;
    CHECK(tn_optim_lr(tn_sgd(l, (tn_sgd_opts){ 0 })) == 0.001);
    CHECK(tn_optim_lr(tn_rmsprop(l, (tn_rmsprop_opts){ 0 })) == 0.01);
    CHECK(tn_optim_lr(tn_adam(l, (tn_adam_opts){ .lr = 3e-4f })) == 0.0003);
    CHECK(tn_optim_lr(tn_sgd(l, (tn_sgd_opts){ .lr = TN_ZERO })) == 0);
    // AdamW decays by 0.01 unless told not to; so large an eps leaves nothing else of the update.
    for (int k = 0; k < 2; k++) {
        pair      x   = pair_open(cx, TN_F64);
        tn_optim *opt = tn_adamw(
            x.net, (tn_adamw_opts){ .lr = 0.5f, .weight_decay = k ? TN_ZERO : 0, .eps = 1e30f });
        double have[ALL], want[ALL];
        CHECK_STATUS(tn_step(opt, pair_loss(&x, 1)), TN_OK);
        for (int i = 0; i < ALL; i++) want[i] = k ? start[i] : start[i] * (1 - 0.5 * 0.01);
        pair_read(&x, have);
        check_near(have, want, 1e-14, k ? "no decay" : "decay");
    }
    tn_close(cx);
}

// A file need not have the state of every parameter: what is missing begins with zeros, whichever
// of the parameters it is of.
static void a_state_that_is_missing_is_zeros(void)
{
    for (int lost = 0; lost < 2; lost++) {
        tn_ctx    *cx = rules_open("cpu");
        tn_tensor *p[2], *x = tn_full(cx, TN_F64, TN_SHAPE(3), 2);
        for (int i = 0; i < 2; i++)
            p[i] = tn_requires_grad(tn_zeros(cx, TN_F64, TN_SHAPE(3)), true);
        tn_layer *net = tn_layer_of(cx, 2, p);
        tn_optim *opt = tn_sgd(net, (tn_sgd_opts){ .lr = 1, .momentum = 0.5f });
        for (int t = 0; t < 2; t++) {
            if (t == 1) tni_state_set(opt, &opt->slot[lost], 0, NULL);
            CHECK_STATUS(tn_step(opt, tn_sum_all(tn_mul(tn_add(p[0], p[1]), x))), TN_OK);
        }
        // -2, and then another -2, with half of the first on top unless that was forgotten.
        CHECK_VALUES(p[lost], -4, -4, -4);
        CHECK_VALUES(p[!lost], -5, -5, -5);
        tn_close(cx);
    }
}

const test_case tests_optim[] = {
    TEST(a_state_that_is_missing_is_zeros),
    TEST(sgd_is_pytorchs),
    TEST(adam_is_pytorchs),
    TEST(adamw_is_pytorchs),
    TEST(rmsprop_is_pytorchs),
    TEST(every_float_type_is_trained),
    TEST(groups_have_their_own_rate_and_decay),
    TEST(a_group_of_nobody_is_an_error),
    TEST(schedules_give_the_factor_of_the_rate),
    TEST(averages_of_parameters_are_kept),
    TEST(the_rate_falls_on_a_plateau),
    TEST(the_rate_can_be_set),
    TEST(numbers_of_the_rule_can_be_set),
    TEST(clip_norm_bounds_the_common_norm),
    TEST(clip_value_bounds_every_element),
    TEST(clip_each_bounds_the_norm_of_each_parameter),
    TEST(lbfgs_finds_the_end_of_a_bent_valley),
    TEST(lbfgs_refuses_what_it_cannot_do),
    TEST(stored_gradients_are_clipped_without_a_host_read),
    TEST(the_norm_of_several_dtypes_is_one),
    TEST(accumulated_steps_equal_one_of_the_mean),
    TEST(a_loss_that_will_not_do_changes_nothing),
    TEST(an_update_that_was_read_stays_with_its_moments_when_the_next_step_fails),
    TEST(a_step_that_is_stopped_is_computed_by_the_next_evaluation),
    TEST(wrong_settings_are_errors),
    TEST(rule_24_zero_is_the_default_and_tn_zero_is_zero),
    TEST_END,
};
