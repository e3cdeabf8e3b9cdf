// test_recompute.c: values that a step did not store and that are asked for again: every op of the
// table, a GAN's loop, dropout, gradients, and what all that costs a step that asks for nothing.
#include "check.h"
#include "rules_kit.h"
#include "table.h"

#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- every op ----------------------------------------------------------------------------------

// What a NaN looks like is open: it depends on the order in which a compiler adds.
static bool level_nans(tn_tensor *t, char *p)
{
    int64_t n    = tn_count(t);
    size_t  size = tni_dtype_size(tn_dtype_of(t));
    double *v    = malloc((size_t)n * sizeof *v + 1);
    bool    ok   = v && tn_read(t, TN_F64, v, n) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++)
        if (isnan(v[i])) memset(p + (size_t)i * size, 0xff, size);
    free(v);
    return ok;
}

// The bytes of t, all NaNs alike; NULL, cleared, if it cannot be had. Free them.
static void *bytes_of(tn_tensor *t)
{
    void *p  = malloc((size_t)tn_count(t) * tni_dtype_size(tn_dtype_of(t)) + 1);
    bool  ok = p && tn_read(t, tn_dtype_of(t), p, tn_count(t)) == TN_OK;
    if (ok && tni_is_float(tn_dtype_of(t))) ok = level_nans(t, p);
    if (ok) return p;
    free(p);
    return NULL;
}

// Records a sample once more, with the random numbers it had before.
static tn_tensor *record(tn_ctx *cx, const row *r, const sample *s)
{
    tn_tensor *x[INPUTS];
    tn_seed(cx, 7);
    for (int i = 0; i < s->nin; i++) x[i] = input_put(&s->in[i], cx);
    return r->build(s, cx, x);
}

static void quiet(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static bool is_unstored(const tn_tensor *t)
{
    return t->store->node->state == TNI_UNSTORED;
}

// Evaluates y with a reader, so that nothing but a wish stores it.
static tn_status step_with(tn_ctx *cx, tn_tensor *y)
{
    return tn_cast(y, TN_F64) ? tn_eval(cx) : tn_error(cx);
}

// One sample stored, and once not stored and asked for. Whether it was computed again.
static bool try_sample(tn_ctx *cx, const char *device, const row *r, sample *s)
{
    if (r->inputs) r->inputs(s);
    tn_scope  *scope = tn_begin(cx);
    tn_tensor *kept  = tn_want(record(cx, r, s));
    bool       again = false;
    if (kept && step_with(cx, kept) == TN_OK) {
        tn_tensor *y = record(cx, r, s);
        CHECK_STATUS(step_with(cx, y), TN_OK);
        again   = is_unstored(y);
        void *a = bytes_of(kept), *b = bytes_of(y);
        bool  same = a && b && !memcmp(a, b, (size_t)tn_count(y) * tni_dtype_size(tn_dtype_of(y)));
        test_case_result(same, "%s: %s %s %s %d: not what it was %s", device,
                         tni_op_table[s->op].name, tn_dtype_name(s->dt), layout_names[s->lay],
                         s->variant, tn_error_text(cx));
        free(a);
        free(b);
    }
    tn_error_clear(cx);
    tn_end(scope);
    for (int i = 0; i < s->nin; i++) input_free(&s->in[i]);
    return again;
}

// What a row of the table has no unstored value for, and why.
static bool is_always_there(int op)
{
    return op == TNI_leaf || op == TNI_view ||    // no value of its own
           op == TNI_full || op == TNI_scalar ||  // numbers
           op == TNI_assign || op == TNI_update;  // states of tensors, which are stored
}

static void walk_table(const char *device)
{
    static const tn_dtype dtypes[]  = { TN_F32, TN_BF16, TN_I64, TN_BOOL, TN_I8 };
    static const layout   layouts[] = { PLAIN, TRANSPOSED };
    tn_ctx               *cx        = open_quiet(device, 1);
    table_seed(11);
    for (int op = 0; cx && op < TNI_OPS; op++) {
        row r     = row_of(op);
        int again = 0;
        for (size_t d = 0; r.build && d < sizeof dtypes / sizeof *dtypes; d++)
            for (int v = 0; v < r.variants; v++) {
                sample s = { .op = op, .dt = dtypes[d], .lay = layouts[d % 2], .variant = v };
                if (r.source) s.lay = PLAIN;
                again += try_sample(cx, device, &r, &s);
            }
        if (r.build && !is_always_there(op))
            test_case_result(again > 0, "%s: no value of %s was left out", device,
                             tni_op_table[op].name);
    }
    tn_close(cx);
}

static void every_op_gives_again_what_was_not_stored_on_ref(void)
{
    walk_table("ref");
}

static void every_op_gives_again_what_was_not_stored_on_cpu(void)
{
    walk_table("cpu");
}

// ---- a GAN -------------------------------------------------------------------------------------

enum { BATCH = 8, Z = 4, WIDTH = 6, ROUNDS = 5 };

typedef struct {
    tn_ctx   *cx;
    tn_layer *g, *d;
    tn_optim *og, *od;
    bool      wants;  // asks for what it will read
} gan;

static tn_layer *mlp(tn_ctx *cx, int64_t in, int64_t out)
{
    return tn_nn_seq(cx, tn_nn_linear(cx, in, 16), tn_nn_act(cx, tn_tanh),
                     tn_nn_linear(cx, 16, out));
}

static gan gan_open(const char *device, bool wants)
{
    gan n = { .cx = rules_open(device), .wants = wants };
    n.g   = mlp(n.cx, Z, WIDTH);
    n.d   = mlp(n.cx, WIDTH, 1);
    n.og  = tn_adamw(n.g, (tn_adamw_opts){ .lr = 0.01f });
    n.od  = tn_adamw(n.d, (tn_adamw_opts){ .lr = 0.01f });
    return n;
}

// The loop as one writes it: fake is used by the discriminator's step, then read, then used again,
// with its history, by the generator's step.
static void gan_round(gan *n, double *read)
{
    tn_scope  *s    = tn_begin(n->cx);
    tn_tensor *real = tn_randn(n->cx, TN_F32, TN_SHAPE(BATCH, WIDTH));
    tn_tensor *z    = tn_randn(n->cx, TN_F32, TN_SHAPE(BATCH, Z));
    tn_tensor *fake = tn_forward(n->g, z);
    if (n->wants) tn_want(fake);
    tn_tensor *yes = tn_forward(n->d, real), *no = tn_forward(n->d, tn_detach(fake));
    CHECK_STATUS(
        tn_step(n->od, tn_add(tn_mean_all(tn_softplus(tn_neg(yes))), tn_mean_all(tn_softplus(no)))),
        TN_OK);
    CHECK_STATUS(tn_read(fake, TN_F64, read, BATCH * WIDTH), TN_OK);
    CHECK_STATUS(tn_step(n->og, tn_mean_all(tn_softplus(tn_neg(tn_forward(n->d, fake))))), TN_OK);
    CHECK_STATUS(tn_error(n->cx), TN_OK);
    tn_end(s);
}

static void the_loop_of_a_gan_reads_what_its_step_did_not_store(void)
{
    static const char *const devices[] = { "ref", "cpu" };
    for (int k = 0; k < 2; k++) {
        gan a = gan_open(devices[k], false), b = gan_open(devices[k], true);
        for (int round = 0; round < ROUNDS; round++) {
            double x[BATCH * WIDTH], y[BATCH * WIDTH], most = 0;
            gan_round(&a, x);
            gan_round(&b, y);
            for (int i = 0; i < BATCH * WIDTH; i++) most = fmax(most, fabs(x[i] - y[i]));
            test_that(most <= 1e-5, "%s: round %d: fake differs by %g", devices[k], round, most);
        }
        tn_close(a.cx);
        tn_close(b.cx);
    }
}

// Used again in the next step without being read, it is computed as a part of that.
static void what_was_not_stored_has_its_history_when_it_is_used_again(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, 3), true), *h = tn_square(w);
        tn_tensor *sum = tn_sum_all(tn_mul_s(tn_detach(h), 2));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK(is_unstored(h));
        tn_tensor *gw;
        tn_tensor *loss = tn_sum_all(h);
        CHECK_STATUS(tn_grad(1, &loss, 1, &w, NULL, &gw), TN_OK);
        CHECK_VALUES(gw, 2, 4, 6);
        CHECK_STATUS(tn_backward(tn_sum_all(h), NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 2, 4, 6);
        CHECK_VALUES(h, 1, 4, 9);
        CHECK_STATUS(tn_backward(tn_sum_all(h), NULL), TN_EGRAD);  // spent, as a stored one is
        CHECK_FAILED(cx, TN_EGRAD, "earlier backward pass");
        CHECK_VALUES(sum, 28);
    }
}

// What the step updated is the one thing that it cannot be computed from; the message names it.
static void what_a_step_updated_is_gone_and_the_message_says_which(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *net = mlp(cx, Z, WIDTH);
        tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 0.01f });
        for (int i = 0; i < 3; i++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *x = rules_there(cx, TN_SHAPE(BATCH, Z)), *scaled = tn_mul_s(x, 2);
            tn_tensor *logits = tn_forward(net, scaled);
            int        made   = __LINE__ - 1;
            CHECK_STATUS(tn_step(opt, tn_mean_all(logits)), TN_OK);
            int stepped = __LINE__ - 1;
            CHECK(is_unstored(scaled) && tn_eval_of(scaled) == TN_OK);
            CHECK_STATUS(tn_eval_of(logits), TN_EGONE);
            CHECK_FAILED2(cx, TN_EGONE, SITE(made), SITE(stepped));
            tn_end(s);
        }
    }
}

// Random numbers are a function of their counters: others that were drawn since change nothing.
static void dropout_is_computed_again_with_the_same_mask(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(64)), *h = tn_dropout(x, 0.5, TN_TRAINING);
        tn_tensor *y = tn_mul_s(h, 3);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_eval_of(tn_rand(cx, TN_F32, TN_SHAPE(100)));
        double a[64], b[64];
        CHECK_STATUS(tn_read(h, TN_F64, a, 64), TN_OK);
        CHECK_STATUS(tn_read(y, TN_F64, b, 64), TN_OK);
        for (int i = 0; i < 64; i++) CHECK_NEAR(3 * a[i], b[i], 0);
    }
}

// ---- failures ----------------------------------------------------------------------------------

// A step that cannot be done: it takes an element that x does not have.
static void fail_a_step(tn_ctx *cx, tn_tensor *x)
{
    tn_tensor *at = tn_from(cx, TN_I64, TN_SHAPE(1), (int64_t[]){ 99 });
    tn_tensor *y  = tn_gather(tn_reshape(x, TN_SHAPE(tn_count(x))), 0, at);
    CHECK_STATUS(tn_eval(cx), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "99");
    tn_drop(y);
}

// The view that the step made of a is pending still when a is not.
static void a_view_of_what_a_failed_step_gave_up_is_computed_again(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_reshape(rules_ramp(cx, 6), TN_SHAPE(2, 3)), *a = tn_square(x);
        tn_tensor *y = tn_mul_s(tn_slice(a, 1, 1, 3, 1), 2), *sum = tn_sum_all(y);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK(is_unstored(a) && is_unstored(y));
        tn_tensor *z = tn_add(y, y);
        fail_a_step(cx, x);
        CHECK_VALUES(y, 8, 18, 50, 72);
        CHECK_VALUES(a, 1, 4, 9, 16, 25, 36);
        CHECK_VALUES(sum, 148);
        CHECK_STATUS(tn_eval_of(z), TN_EGONE);
        tn_error_clear(cx);
    }
}

// q is held by the backward pass alone, between two values that are not stored.
static void what_a_backward_pass_went_through_in_a_failed_step_is_computed_again(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_requires_grad(rules_ramp(cx, 3), true), *a = tn_square(x);
        tn_tensor *q = tn_neg(a), *y = tn_mul_s(q, 2);
        tn_drop(q);
        tn_tensor *sum = tn_sum_all(tn_detach(y));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK(is_unstored(a) && is_unstored(y));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(y, y)), NULL), TN_OK);
        fail_a_step(cx, x);
        CHECK_VALUES(y, -2, -8, -18);
        CHECK_VALUES(a, 1, 4, 9);
        CHECK_VALUES(sum, -28);
    }
}

// A read that finds no memory leaves the next step alone.
static void a_read_that_fails_is_not_tried_again_by_a_step(void)
{
    enum { N = 1 << 18 };
    static const char *const devices[] = { "ref", "cpu" };
    for (int k = 0; k < 2; k++)
        for (int view = 0; view < 2; view++) {
            tn_ctx    *cx      = tn_open_with((tn_open_opts){
                        .device = devices[k], .handler = quiet, .threads = 1, .mem_limit = 8 << 20 });
            float      ten[10] = { 1, 2, 3 };
            tn_tensor *ones    = tn_mul_s(tn_ones(cx, TN_F32, TN_SHAPE(1, N)), 1);
            CHECK_STATUS(tn_eval_of(ones), TN_OK);
            tn_tensor *column = tn_from(cx, TN_F32, TN_SHAPE(10, 1), ten);
            tn_tensor *y      = tn_mul(ones, tn_expand(column, TN_SHAPE(10, N)));
            tn_tensor *sum    = tn_sum_all(y);
            bool       done = tn_eval(cx) == TN_OK;  // not where the step needs that memory itself
            tn_error_clear(cx);
            CHECK(done || k == 0);
            if (done) {
                CHECK_STATUS(tn_eval_of(view ? tn_transpose(y, 0, 1) : y), TN_EMEM);
                CHECK_FAILED(cx, TN_EMEM, "out of memory");
                CHECK(is_unstored(y));
                tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(1), ten);
                tn_add_(w, w);
                CHECK_STATUS(tn_eval(cx), TN_OK);
                CHECK_NEAR(tn_item(w), 2, 0);
                CHECK_NEAR(tn_item(sum), 6.0 * N, 0);
            }
            tn_close(cx);
        }
}

// What a gradient was before it was cleared may be written over: no failure returns to it.
static void a_gradient_that_was_cleared_does_not_come_back(void)
{
    enum { N = 64 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, N), true), *m = rules_ramp(cx, N);
        tn_tensor *k = tn_reshape(rules_ramp(cx, N), TN_SHAPE(8, 8));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(w, w)), NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(w, w)), NULL), TN_OK);
        tn_tensor *s = tn_reshape(tn_matmul(k, k), TN_SHAPE(N));  // runs before
        tn_assign(m, tn_add(tn_mul_s(tn_grad_of(w), 100), tn_mul_s(s, 0)));
        tn_zero_grad(w);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(w, w)), NULL), TN_OK);
        fail_a_step(cx, w);
        double g[N] = { 0 };
        bool   had  = tn_read(tn_grad_of(w), TN_F64, g, N) == TN_OK;
        for (int i = 0; had && i < N; i++) CHECK_NEAR(g[i], 0, 0);
        tn_error_clear(cx);
    }
}

// ---- several outputs ---------------------------------------------------------------------------

typedef struct {
    tn_tensor *x, *y, *sum;
    tn_pair    p;
} sorted;

// y is made from the values, and nothing of all that is stored.
static sorted sort_and_step(tn_ctx *cx, bool drops)
{
    sorted s = { .x = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 3, 1, 2, 4 }) };
    s.p      = tn_sort(s.x, 0, TN_ASCENDING);
    s.y      = tn_mul_s(s.p.values, 10);
    s.sum    = tn_add(tn_sum_all(s.y), tn_sum_all(tn_cast(s.p.indices, TN_F32)));
    if (drops) tn_drop(s.p.values);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK(is_unstored(s.y) && is_unstored(s.p.indices));
    return s;
}

static void an_output_that_something_can_be_made_from_again_is_stored_with_its_call(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        sorted s = sort_and_step(cx, true);
        CHECK_VALUES(s.p.indices, 1, 2, 0, 3);
        CHECK_VALUES(s.y, 10, 20, 30, 40);
        CHECK_VALUES(s.sum, 106);
        // The same where the step that stores the one does not store what is made from the other.
        tn_pair    p = tn_sort(s.x, 0, TN_DESCENDING);
        tn_tensor *y = tn_mul_s(p.values, 10), *sum = tn_sum_all(y);
        tn_drop(p.values);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(p.indices, 3, 0, 2, 1);
        CHECK_VALUES(y, 40, 30, 20, 10);
        CHECK_VALUES(sum, 100);
    }
}

static void an_output_that_was_not_computed_again_after_all_is_not_lost(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        sorted     s = sort_and_step(cx, false);
        tn_tensor *u = tn_add(s.p.values, s.p.values);
        fail_a_step(cx, s.x);
        CHECK_VALUES(s.y, 10, 20, 30, 40);
        CHECK_VALUES(s.p.indices, 1, 2, 0, 3);
        CHECK_VALUES(s.p.values, 1, 2, 3, 4);
        tn_drop(u);
        s = sort_and_step(cx, false);
        u = tn_add(s.p.values, s.p.values);
        tn_drop(u);
        tn_drop(s.p.values);
        CHECK_VALUES(s.y, 10, 20, 30, 40);
        CHECK_VALUES(s.p.indices, 1, 2, 0, 3);
    }
}

// ---- what it costs -----------------------------------------------------------------------------

// A loop whose step leaves unread tensors behind, or none; what the last step did.
static tn_stats train(tn_ctx *cx, bool drops, const void **weight)
{
    tn_layer *net    = mlp(cx, 32, 32);
    tn_optim *opt    = tn_adamw(net, (tn_adamw_opts){ .lr = 0.01f });
    tn_stats  before = { 0 };
    for (int i = 0; i < 6; i++) {
        before       = tn_ctx_stats(cx);
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = rules_there(cx, TN_SHAPE(64, 32)), *y = tn_forward(net, x);
        tn_tensor *h = tn_exp(y), *e = tn_square(h);
        tn_tensor *loss = tn_mean_all(e);
        if (drops) tn_drop(y);
        if (drops) tn_drop(h);
        if (drops) tn_drop(e);
        CHECK_STATUS(tn_step(opt, loss), TN_OK);
        tn_end(s);
        weight[i % 2] = tn_ptr(tn_layer_find(net, "0.weight"));
    }
    tn_stats after = tn_ctx_stats(cx);
    after.launches -= before.launches;
    after.plans -= before.plans;
    return after;
}

// Tensors that nobody reads cost a step no kernel, no plan and no memory, and parameters are still
// updated where they lie.
static void unread_tensors_cost_a_step_nothing(void)
{
    tn_ctx     *a = rules_open("cpu"), *b = rules_open("cpu");
    const void *w[2], *v[2];
    tn_stats    with = train(a, false, w), without = train(b, true, v);
    CHECK(w[0] == w[1] && v[0] == v[1]);
    CHECK_INT(with.launches, without.launches);
    CHECK_INT(with.plans, 0);
    CHECK_INT(with.bytes, without.bytes);
    CHECK_INT(with.peak, without.peak);
    CHECK_INT(with.nodes, without.nodes);
    tn_close(a);
    tn_close(b);
}

// A value that each step makes from that of the step before it is stored in time, so that the
// recipe does not reach back to the first.
static void a_value_carried_from_step_to_step_does_not_grow(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *b = rules_ramp(cx, 64), *h = tn_mul_s(b, 1);
        tn_stats   at[2];
        for (int i = 0; i < 24; i++) {
            if (i == 12) at[0] = tn_ctx_stats(cx);
            tn_tensor *t = tn_add(h, b);
            tn_drop(h);
            h            = tn_mul_s(t, 0.5);
            tn_tensor *y = tn_sum_all(h);
            tn_drop(t);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            CHECK_NEAR(tn_item(y), 64 * 65 / 2, 0);
            tn_drop(y);
        }
        at[1] = tn_ctx_stats(cx);
        CHECK_INT(at[1].plans, at[0].plans);
        CHECK_INT(at[1].nodes, at[0].nodes);
        CHECK_INT(at[1].bytes, at[0].bytes);
    }
}

// A leaf's view and the zeros that its gradient was cleared to were computed in the round before,
// but are there at any time: nothing that is made from them is stored for their sake.
static void each_round_of_gradients_is_the_same_kernel(void)
{
    tn_ctx               *cx = rules_open("cpu");
    static const uint16_t zeros[4 * 64];
    static const int64_t  classes[4] = { 1, 2, 3, 4 };
    tn_tensor            *x          = tn_from(cx, TN_BF16, TN_SHAPE(4, 64), zeros);
    tn_tensor *class                 = tn_from(cx, TN_I64, TN_SHAPE(4), classes);
    int64_t launches[4];
    for (int i = 0; i < 4; i++) {
        int64_t   before = tn_ctx_stats(cx).launches;
        tn_scope *scope  = tn_begin(cx);
        tn_requires_grad(x, true);
        tn_zero_grad(x);
        tn_tensor *y = tn_cross_entropy_with(tn_cast(x, TN_F32), class,
                                             (tn_class_opts){ .no_ignore = true });
        CHECK_STATUS(tn_backward(y, NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        launches[i] = tn_ctx_stats(cx).launches - before;
        tn_end(scope);
    }
    for (int i = 1; i < 4; i++) CHECK_INT(launches[i], launches[0]);
    tn_close(cx);
}

const test_case tests_recompute[] = {
    TEST(every_op_gives_again_what_was_not_stored_on_ref),
    TEST(every_op_gives_again_what_was_not_stored_on_cpu),
    TEST(the_loop_of_a_gan_reads_what_its_step_did_not_store),
    TEST(what_was_not_stored_has_its_history_when_it_is_used_again),
    TEST(what_a_step_updated_is_gone_and_the_message_says_which),
    TEST(dropout_is_computed_again_with_the_same_mask),
    TEST(a_view_of_what_a_failed_step_gave_up_is_computed_again),
    TEST(what_a_backward_pass_went_through_in_a_failed_step_is_computed_again),
    TEST(a_read_that_fails_is_not_tried_again_by_a_step),
    TEST(a_gradient_that_was_cleared_does_not_come_back),
    TEST(an_output_that_something_can_be_made_from_again_is_stored_with_its_call),
    TEST(an_output_that_was_not_computed_again_after_all_is_not_lost),
    TEST(unread_tensors_cost_a_step_nothing),
    TEST(a_value_carried_from_step_to_step_does_not_grow),
    TEST(each_round_of_gradients_is_the_same_kernel),
    TEST_END,
};
