// test_half.c: parameters of f16 and bf16 are trained as f32 ones are: their state is f32, and each
// is the rounding of an f32 master that the updates go by.
#include "rules_kit.h"
#include "scratch.h"

#include "optim/optim.h"

#include <math.h>
#include <string.h>

#include <tenon/models.h>

typedef enum { SGD, ADAM, ADAMW, RMSPROP, ADAGRAD, LAMB, LION, RULES } rule;

static const char *const rule_names[] = { "sgd",     "adam", "adamw", "rmsprop",
                                          "adagrad", "lamb", "lion" };
static const tn_dtype    halves[]     = { TN_F16, TN_BF16 };

// Every rule with all of its state.
static tn_optim *open_rule(tn_layer *net, rule r, bool no_master)
{
    tn_adam_opts adam = { .lr = 0.01f, .no_master = no_master };
    switch (r) {
    case SGD:
        return tn_sgd(net, (tn_sgd_opts){ .lr = 0.01f, .momentum = 0.9f, .no_master = no_master });
    case ADAM: return tn_adam(net, adam);
    case ADAMW: return tn_adamw(net, adam);
    case LAMB: return tn_lamb(net, adam);
    case LION: return tn_lion(net, adam);
    case ADAGRAD: return tn_adagrad(net, (tn_adagrad_opts){ .lr = 0.01f, .no_master = no_master });
    default:
        return tn_rmsprop(
            net, (tn_rmsprop_opts){
                     .lr = 0.01f, .momentum = 0.9f, .centered = true, .no_master = no_master });
    }
}

// Two parameters, (2, 3) and (3,), with the values 0.5, 0.6, ...
enum { ALL = 9 };

typedef struct {
    tn_tensor *p[2];
    tn_layer  *net;
} pair;

static pair pair_open(tn_ctx *cx, tn_dtype dt)
{
    float start[ALL];
    for (int i = 0; i < ALL; i++) start[i] = 0.5f + 0.1f * (float)i;
    pair x = { .p = { tn_cast(tn_from(cx, TN_F32, TN_SHAPE(2, 3), start), dt),
                      tn_cast(tn_from(cx, TN_F32, TN_SHAPE(3), start + 6), dt) } };
    x.net  = tn_layer_of(cx, 2, x.p);
    return x;
}

static void pair_read(const pair *x, double *v)
{
    CHECK_STATUS(tn_read(x->p[0], TN_F64, v, 6), TN_OK);
    CHECK_STATUS(tn_read(x->p[1], TN_F64, v + 6, 3), TN_OK);
}

static void master_read(const tn_optim *o, double *v)
{
    CHECK_STATUS(tn_read(o->slot[0].state[TNI_MASTER], TN_F64, v, 6), TN_OK);
    CHECK_STATUS(tn_read(o->slot[1].state[TNI_MASTER], TN_F64, v + 6, 3), TN_OK);
}

// One step by the gradient g, the same for every element.
static tn_status step_by(const pair *x, tn_optim *o, double g)
{
    tn_ctx    *cx   = tn_layer_ctx(x->net);
    tn_scope  *s    = tn_begin(cx);
    tn_tensor *sum  = tn_sum_all(tn_cast(x->p[0], TN_F32));
    tn_tensor *loss = tn_mul_s(tn_add(sum, tn_sum_all(tn_cast(x->p[1], TN_F32))), g);
    tn_status  st   = tn_step(o, loss);
    tn_end(s);
    return st;
}

// Numbers rounded to a dtype.
static void round_to(tn_ctx *cx, tn_dtype dt, double *v)
{
    CHECK_STATUS(tn_read(tn_cast(tn_from(cx, TN_F64, TN_SHAPE(ALL), v), dt), TN_F64, v, ALL),
                 TN_OK);
}

static void check_same(const double *have, const double *want, const char *what)
{
    for (int i = 0; i < ALL; i++)
        test_that(have[i] == want[i], "%s: [%d] is %.17g, not %.17g", what, i, have[i], want[i]);
}

// ---- state -------------------------------------------------------------------------------------

static void check_state(tn_ctx *cx, tn_dtype dt, rule r, bool no_master)
{
    pair      x = pair_open(cx, dt);
    tn_optim *o = open_rule(x.net, r, no_master);
    CHECK_STATUS(step_by(&x, o, 1), TN_OK);
    CHECK_STATUS(step_by(&x, o, 1), TN_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(tn_dtype_of(x.p[i]), dt);
        for (int k = 0; k < TNI_STATES; k++) {
            tn_tensor *t    = o->slot[i].state[k];
            bool       have = k == TNI_MASTER ? !no_master : k != TNI_EMA && tni_state_name(o, k);
            test_that((t != NULL) == have, "%s: state %d", rule_names[r], k);
            if (t) CHECK_INT(tn_dtype_of(t), TN_F32);
        }
    }
}

static void the_state_of_half_parameters_is_f32(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int d = 0; d < 2; d++)
            for (int r = 0; r < RULES; r++) {
                check_state(cx, halves[d], (rule)r, false);
                check_state(cx, halves[d], (rule)r, true);
            }
}

static void full_parameters_have_no_master(void)
{
    tn_ctx  *cx   = rules_open("cpu");
    tn_dtype dt[] = { TN_F32, TN_F64 };
    for (int d = 0; d < 2; d++) {
        pair      x = pair_open(cx, dt[d]);
        tn_optim *o = open_rule(x.net, ADAM, false);
        CHECK_STATUS(step_by(&x, o, 1), TN_OK);
        CHECK(!o->slot[0].state[TNI_MASTER]);
        CHECK_INT(tn_dtype_of(o->slot[0].state[0]), dt[d]);
    }
    tn_close(cx);
}

// ---- values ------------------------------------------------------------------------------------

// By gradients that do not depend on p, the master goes where an f32 parameter goes, to the last
// bit.
static void half_parameters_are_the_rounding_of_what_f32_ones_become(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int k = 0; k < 2 * RULES; k++) {
            tn_dtype  dt = halves[k / RULES];
            rule      r  = (rule)(k % RULES);
            pair      x = pair_open(cx, dt), y = pair_open(cx, TN_F32);
            tn_optim *o = open_rule(x.net, r, false), *full;
            double    have[ALL], master[ALL], want[ALL];
            for (int i = 0; i < 2; i++) {
                tn_grad_mode(cx, false);
                tn_assign(y.p[i], x.p[i]);
                tn_grad_mode(cx, true);
            }
            full = open_rule(y.net, r, false);
            for (int t = 0; t < 20; t++) {
                double g = 1.0 / (1 << t % 5);  // exact in every dtype
                CHECK_STATUS(step_by(&x, o, g), TN_OK);
                CHECK_STATUS(step_by(&y, full, g), TN_OK);
            }
            pair_read(&y, want);
            master_read(o, master);
            check_same(master, want, rule_names[r]);
            pair_read(&x, have);
            round_to(cx, dt, want);
            check_same(have, want, rule_names[r]);
        }
}

// From 1 down, bf16 numbers are 1/256 apart: a step of 1/1024 is none without a master.
static void steps_below_the_precision_add_up(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int no_master = 0; no_master < 2; no_master++) {
            tn_tensor  *w   = tn_full(cx, TN_BF16, TN_SHAPE(2), 1);
            tn_layer   *net = tn_layer_of(cx, 1, &w);
            tn_sgd_opts o   = { .lr = 1.0f / 1024, .no_master = no_master };
            tn_optim   *opt = tn_sgd(net, o);
            for (int t = 0; t < 64; t++) CHECK_STATUS(tn_step(opt, tn_sum_all(w)), TN_OK);
            double v = no_master ? 1 : 1 - 64.0 / 1024;
            CHECK_VALUES(w, v, v);
        }
}

// The update at step 7,999 over the learning rate, after gradients of 1 and then many of 0.033. It
// begins at zero, where numbers are dense.
static double late_update(tn_ctx *cx, tn_dtype dt, bool no_master)
{
    tn_tensor *w   = tn_zeros(cx, dt, TN_SHAPE(4));
    tn_layer  *net = tn_layer_of(cx, 1, &w);
    tn_optim  *opt = tn_adam(net, (tn_adam_opts){ .lr = 1e-3f, .no_master = no_master });
    double     v[4];
    for (int t = 1; t <= 7999; t++) {
        tn_scope *s = tn_begin(cx);
        if (t == 7999) {
            tn_grad_mode(cx, false);
            tn_zero_(w);
            tn_grad_mode(cx, true);
        }
        double g = t <= 1000 ? 1 : 0.033;
        CHECK_STATUS(tn_step(opt, tn_mul_s(tn_sum_all(tn_cast(w, TN_F32)), g)), TN_OK);
        tn_end(s);
    }
    CHECK_STATUS(tn_read(w, TN_F64, v, 4), TN_OK);
    return -v[0] / 1e-3;
}

// A second moment of bf16 would stay where the large gradients brought it: 0.068 instead of 0.809.
static void the_second_moment_of_half_parameters_decays(void)
{
    tn_ctx *cx   = rules_open("cpu");
    double  full = late_update(cx, TN_F32, false);
    CHECK_NEAR(full, 0.809, 1e-3);
    for (int k = 0; k < 4; k++) CHECK_NEAR(late_update(cx, halves[k / 2], k % 2 == 1), full, 5e-3);
    tn_close(cx);
}

// A second moment of f16 would be zero after a step, and the first update that follows infinite.
static void lenet_in_f16_learns(void)
{
    tn_ctx *cx = rules_open("cpu");
    tn_seed(cx, 1);
    tn_data  *data = tn_digits(cx, (tn_digits_opts){ .count = 1000 });
    tn_layer *net  = tn_lenet(cx);
    CHECK_STATUS(tn_layer_cast(net, TN_F16), TN_OK);
    tn_optim *opt   = tn_adam(net, (tn_adam_opts){ .lr = 2e-3f });
    double    first = 0, last = 0;
    for (int i = 0; i < 40; i++) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, 16);
        tn_tensor *loss = tn_cross_entropy(tn_forward(net, tn_cast(b.x, TN_F16)), b.y);
        CHECK_STATUS(tn_step(opt, loss), TN_OK);
        if (i < 10) first += tn_item(loss) / 10;
        if (i >= 30) last += tn_item(loss) / 10;
        tn_end(s);
    }
    test_that(last < 0.7 * first, "the loss went from %g to %g", first, last);
    tn_close(cx);
}

// ---- written by the program --------------------------------------------------------------------

// The first element is written; the others keep what their master has beyond their precision.
static void what_the_program_writes_becomes_the_masters(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        pair        x   = pair_open(cx, TN_BF16);
        tn_sgd_opts o   = { .lr = 1.0f / 1024 };
        tn_optim   *opt = tn_sgd(x.net, o);
        double      before[ALL], after[ALL];
        CHECK_STATUS(step_by(&x, opt, 1), TN_OK);
        master_read(opt, before);
        tn_grad_mode(cx, false);
        tn_fill_(tn_slice(tn_select(x.p[0], 0, 0), 0, 0, 1, 1), 4);
        tn_grad_mode(cx, true);
        CHECK_STATUS(step_by(&x, opt, 1), TN_OK);
        master_read(opt, after);
        before[0] = 4;
        for (int i = 0; i < ALL; i++) before[i] -= 1.0 / 1024;
        for (int i = 0; i < ALL; i++) CHECK_NEAR(after[i], before[i], 1e-6);
    }
}

static void loaded_weights_become_the_masters(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("half.safetensors");
    tn_ctx     *cx   = rules_open("cpu");
    pair        x    = pair_open(cx, TN_F16);
    tn_optim   *opt  = tn_sgd(x.net, (tn_sgd_opts){ .lr = 0.25f });
    double      start[ALL], have[ALL];
    pair_read(&x, start);
    CHECK_STATUS(tn_save(x.net, path), TN_OK);
    for (int i = 0; i < 3; i++) CHECK_STATUS(step_by(&x, opt, 1), TN_OK);
    CHECK_STATUS(tn_load(x.net, path), TN_OK);
    CHECK_STATUS(step_by(&x, opt, 1), TN_OK);
    master_read(opt, have);
    for (int i = 0; i < ALL; i++) CHECK_NEAR(have[i], start[i] - 0.25, 1e-6);
    tn_close(cx);
    scratch_close();
}

// ---- failure -----------------------------------------------------------------------------------

// The step that fails is the first, the second or the third. What it leaves goes on as if it had
// not been, to the last bit of the master.
static void a_failed_step_leaves_parameter_and_master(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int bad = 0; bad < 3; bad++) {
            pair      x = pair_open(cx, TN_BF16), y = pair_open(cx, TN_BF16);
            tn_optim *a = open_rule(x.net, ADAMW, false), *b = open_rule(y.net, ADAMW, false);
            double    have[ALL], want[ALL];
            for (int t = 0; t < 4; t++) {
                rules_fail = t == bad;
                if (t == bad) {
                    tn_tensor *wide = tn_cast(x.p[0], TN_F32);
                    CHECK_STATUS(tn_step(a, tn_sum_all(rules_double(wide))), TN_EUSER);
                    tn_error_clear(cx);
                }
                rules_fail = false;
                pair_read(&x, have);
                pair_read(&y, want);
                check_same(have, want, "after the failure");
                CHECK_STATUS(step_by(&x, a, 0.3), TN_OK);
                CHECK_STATUS(step_by(&y, b, 0.3), TN_OK);
            }
            master_read(a, have);
            master_read(b, want);
            check_same(have, want, "the master later");
        }
}

// ---- cost --------------------------------------------------------------------------------------

static tn_tensor *squares(const pair *x)
{
    return tn_add(tn_sum_all(tn_square(x->p[0])), tn_sum_all(tn_square(x->p[1])));
}

// The launches of a step, and the bytes after it, once the optimizer has its state.
static int64_t steady_launches(tn_ctx *cx, tn_dtype dt, bool no_master)
{
    pair      x      = pair_open(cx, dt);
    tn_optim *opt    = open_rule(x.net, ADAMW, no_master);
    tn_stats  before = { 0 }, after;
    for (int i = 0; i < 6; i++) {
        before      = tn_ctx_stats(cx);
        tn_scope *s = tn_begin(cx);
        CHECK_STATUS(tn_step(opt, squares(&x)), TN_OK);
        tn_end(s);
    }
    after = tn_ctx_stats(cx);
    CHECK_INT(after.bytes, before.bytes);
    CHECK_INT(after.plans, before.plans);
    return after.launches - before.launches;
}

static void check_launches(const char *device)
{
    tn_ctx *cx   = rules_open(device);
    int64_t full = steady_launches(cx, TN_F32, false);
    for (int k = 0; k < 4; k++) CHECK_INT(steady_launches(cx, halves[k / 2], k % 2 == 1), full);
    tn_close(cx);
}

static void a_master_costs_no_launch(void)
{
    check_launches("cpu");
    tn_ctx *cx = tn_open("opencl");
    if (!cx) SKIP("%s", tn_error_text(NULL));
    tn_close(cx);
    check_launches("opencl");
}

// Where the value of t lies.
static const void *place_of(const tn_tensor *t)
{
    const tni_node *n = t->store->node;
    return n->buf ? n->buf->data : NULL;
}

// On a device that has all values of a point before it stores one, so that a GPU launches the same
// graph again. The cpu has two places for each, as for moments.
static void parameters_with_a_master_stay_in_place(void)
{
    tn_ctx *cx = tn_open("opencl");
    if (!cx) SKIP("%s", tn_error_text(NULL));
    tn_layer *net = tn_nn_seq(cx, tn_nn_linear(cx, 4, 8), tn_nn_linear(cx, 8, 2));
    CHECK_STATUS(tn_layer_cast(net, TN_BF16), TN_OK);
    tn_tensor  *w = tn_layer_find(net, "0.weight"), *x = tn_ones(cx, TN_BF16, TN_SHAPE(3, 4));
    tn_optim   *opt = open_rule(net, ADAMW, false);
    const void *p = NULL, *master = NULL;
    for (int i = 0; i < 6; i++) {
        tn_scope *s = tn_begin(cx);
        CHECK_STATUS(tn_step(opt, tn_sum_all(tn_square(tn_forward(net, x)))), TN_OK);
        tn_end(s);
        if (i > 2) CHECK(p == place_of(w) && master == place_of(opt->slot[0].state[TNI_MASTER]));
        p      = place_of(w);
        master = place_of(opt->slot[0].state[TNI_MASTER]);
        CHECK(p && master && p == place_of(tn_layer_find(net, "1.bias")));
    }
    tn_close(cx);
}

static void the_master_counts_as_optimizer_state(void)
{
    tn_ctx *cx = rules_open("cpu");
    for (int no_master = 0; no_master < 2; no_master++) {
        pair      x   = pair_open(cx, TN_BF16);
        tn_optim *opt = open_rule(x.net, ADAM, no_master);
        for (int i = 0; i < 2; i++) {
            tn_scope *s = tn_begin(cx);
            CHECK_STATUS(tn_backward(squares(&x), NULL), TN_OK);
            CHECK_STATUS(tn_optim_step(opt), TN_OK);
            tn_plan_memory m = tn_ctx_plan_memory(cx);
            CHECK_INT(m.parameters, ALL * 2);
            CHECK_INT(m.optimizer, ALL * 4 * (no_master ? 2 : 3));
            tn_optim_zero_grad(opt);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            tn_end(s);
        }
    }
    tn_close(cx);
}

// ---- checkpoints -------------------------------------------------------------------------------

static tn_checkpoint both(const pair *x, tn_optim *o)
{
    return (tn_checkpoint){ .net = { x->net }, .opt = { o } };
}

static void training_with_a_master_resumes_to_the_same_bits(void)
{
    if (!CHECK(scratch_open())) return;
    tn_ctx *cx = rules_open("cpu");
    for (int k = 0; k < 2 * RULES; k++) {
        const char *path = scratch_path("half.ckpt");
        tn_dtype    dt   = halves[k / RULES];
        rule        r    = (rule)(k % RULES);
        pair        x = pair_open(cx, dt), y = pair_open(cx, dt);
        tn_optim   *a = open_rule(x.net, r, false), *b = open_rule(y.net, r, false);
        double      have[ALL], want[ALL];
        for (int t = 0; t < 3; t++) CHECK_STATUS(step_by(&x, a, 0.3), TN_OK);
        tn_checkpoint c = both(&x, a), d = both(&y, b);
        CHECK_STATUS(tn_checkpoint_save(cx, path, &c), TN_OK);
        CHECK_STATUS(tn_checkpoint_load(cx, path, &d), TN_OK);
        for (int t = 0; t < 3; t++) {
            CHECK_STATUS(step_by(&x, a, 0.3), TN_OK);
            CHECK_STATUS(step_by(&y, b, 0.3), TN_OK);
        }
        master_read(a, want);
        master_read(b, have);
        check_same(have, want, rule_names[r]);
        pair_read(&x, want);
        pair_read(&y, have);
        check_same(have, want, rule_names[r]);
    }
    tn_close(cx);
    scratch_close();
}

// A tensor of a file that was opened for a moment.
static tn_dtype dtype_in(tn_ctx *cx, const char *path, const char *name)
{
    tn_file   *f  = tn_file_open(cx, path);
    tn_tensor *t  = tn_file_tensor(f, name);
    tn_dtype   dt = t ? tn_dtype_of(t) : TN_BOOL;
    tn_file_free(f);
    return dt;
}

static void a_checkpoint_has_the_f32_state_and_the_master(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("half.ckpt");
    tn_ctx     *cx   = rules_open("cpu");
    pair        x = pair_open(cx, TN_F16), y = pair_open(cx, TN_F16);
    tn_optim   *o = open_rule(x.net, ADAM, false), *without = open_rule(y.net, ADAM, true);
    double      have[ALL], want[ALL];
    CHECK_STATUS(step_by(&x, o, 0.3), TN_OK);
    tn_checkpoint c = both(&x, o), d = both(&y, without);
    CHECK_STATUS(tn_checkpoint_save(cx, path, &c), TN_OK);
    CHECK_INT(dtype_in(cx, path, "net.0.0"), TN_F16);
    CHECK_INT(dtype_in(cx, path, "opt.0.exp_avg_sq.0"), TN_F32);
    CHECK_INT(dtype_in(cx, path, "opt.0.master.1"), TN_F32);
    // One that keeps no master passes over it, and saves none.
    CHECK_STATUS(tn_checkpoint_load(cx, path, &d), TN_OK);
    CHECK(!without->slot[0].state[TNI_MASTER] && without->slot[0].state[0]);
    pair_read(&x, want);
    pair_read(&y, have);
    check_same(have, want, "loaded");
    CHECK_STATUS(step_by(&y, without, 0.3), TN_OK);
    CHECK(!without->slot[0].state[TNI_MASTER]);
    CHECK_STATUS(tn_checkpoint_save(cx, path, &d), TN_OK);
    CHECK_INT(dtype_in(cx, path, "opt.0.exp_avg.0"), TN_F32);
    // And a file without one is good for an optimizer that keeps it: it is the parameter then.
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_OK);
    pair_read(&x, want);
    CHECK_STATUS(step_by(&x, o, 0), TN_OK);
    CHECK(o->slot[0].state[TNI_MASTER] != NULL);
    tn_close(cx);
    scratch_close();
}

// The state of a slot as it once was: of the parameter's dtype, and no master.
static void make_old(tn_optim *o, tni_trained *s)
{
    for (int k = 0; k < TNI_STATES; k++) {
        bool has = s->state[k] && k != TNI_MASTER;
        tni_state_set(o, s, k, has ? tn_cast(s->state[k], tn_dtype_of(s->p)) : NULL);
    }
}

static void a_checkpoint_with_half_state_still_loads(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("old.ckpt");
    tn_ctx     *cx   = rules_open("cpu");
    pair        x = pair_open(cx, TN_BF16), y = pair_open(cx, TN_BF16);
    tn_optim   *a = open_rule(x.net, ADAM, false), *b = open_rule(y.net, ADAM, false);
    double      have[ALL], want[ALL];
    for (int i = 0; i < 2; i++) CHECK_STATUS(step_by(&x, a, 0.3), TN_OK);
    for (int i = 0; i < 2; i++) make_old(a, &a->slot[i]);
    tn_checkpoint c = both(&x, a), d = both(&y, b);
    CHECK_STATUS(tn_checkpoint_save(cx, path, &c), TN_OK);
    CHECK_INT(dtype_in(cx, path, "opt.0.exp_avg.0"), TN_BF16);
    CHECK_STATUS(tn_checkpoint_load(cx, path, &d), TN_OK);
    CHECK_INT(tn_dtype_of(b->slot[0].state[0]), TN_F32);
    CHECK_INT(tn_optim_updates(b), 2);
    tn_read(a->slot[0].state[1], TN_F64, want, 6);
    tn_read(b->slot[0].state[1], TN_F64, have, 6);
    CHECK(!memcmp(have, want, 6 * sizeof *have) && have[0] > 0);
    CHECK_STATUS(step_by(&y, b, 0.3), TN_OK);
    pair_read(&y, have);
    CHECK(have[0] < 0.5 && have[0] > 0.4);
    tn_close(cx);
    scratch_close();
}

const test_case tests_half[] = {
    TEST(the_state_of_half_parameters_is_f32),
    TEST(full_parameters_have_no_master),
    TEST(half_parameters_are_the_rounding_of_what_f32_ones_become),
    TEST(steps_below_the_precision_add_up),
    TEST(the_second_moment_of_half_parameters_decays),
    TEST(lenet_in_f16_learns),
    TEST(what_the_program_writes_becomes_the_masters),
    TEST(loaded_weights_become_the_masters),
    TEST(a_failed_step_leaves_parameter_and_master),
    TEST(a_master_costs_no_launch),
    TEST(parameters_with_a_master_stay_in_place),
    TEST(the_master_counts_as_optimizer_state),
    TEST(training_with_a_master_resumes_to_the_same_bits),
    TEST(a_checkpoint_has_the_f32_state_and_the_master),
    TEST(a_checkpoint_with_half_state_still_loads),
    TEST_END,
};
