// test_rules_gradients.c: the rules of gradients that concern leaves, walks and history: 9, 10, 12
// and 13.
#include "rules_kit.h"

#include <math.h>

enum { N = 3 };

static tn_tensor *leaf(tn_ctx *cx)
{
    return tn_requires_grad(rules_ramp(cx, N), true);
}

// Evaluates w's gradient and forgets it.
#define CHECK_GRAD(w, ...)                        \
    do {                                          \
        CHECK(tn_has_grad(w));                    \
        CHECK_VALUES(tn_grad_of(w), __VA_ARGS__); \
        tn_zero_grad(w);                          \
    } while (0)

// ---- 9: the leaf is the handle -----------------------------------------------------------------

static void rule_09_all_past_states_deposit_in_the_leaf(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *l1 = tn_sum_all(tn_square(w));
        bool       mode = tn_grad_mode(cx, false);
        tn_fill_(w, 10);
        tn_grad_mode(cx, mode);
        tn_tensor *l2 = tn_sum_all(tn_square(w));
        CHECK_STATUS(tn_backward(l1, NULL), TN_OK);
        CHECK_GRAD(w, 2, 4, 6);
        CHECK_STATUS(tn_backward(l2, NULL), TN_OK);
        CHECK_GRAD(w, 20, 20, 20);
    }
}

static void rule_09_one_backward_through_several_states_sums(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *l = tn_sum_all(tn_square(w));
        tn_eval_of(l);  // a read in between changes nothing
        tn_grad_mode(cx, false);
        tn_assign(w, tn_mul_s(w, 10));
        tn_fill_(tn_slice(w, 0, 0, 1, 1), 0);
        tn_eval_of(w);
        tn_grad_mode(cx, true);
        l = tn_add(l, tn_sum_all(tn_square(w)));
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_GRAD(w, 2, 44, 66);
        // And by tn_grad the same.
        tn_tensor *m = tn_sum_all(tn_mul(w, w)), *g;
        tn_grad_mode(cx, false);
        tn_zero_(w);
        tn_grad_mode(cx, true);
        m = tn_add(m, tn_sum_all(w));
        CHECK_STATUS(tn_grad(1, &m, 1, &w, NULL, &g), TN_OK);
        CHECK_VALUES(g, 1, 41, 61);
    }
}

// A view keeps the value that was cleared, whether it was computed before or after, and the
// gradient's own handle stays.
static void rule_09_views_of_a_cleared_gradient_keep_its_value(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *g = tn_grad_of(w), *kept[2] = { NULL };
        for (int i = 0; i < 2; i++) {
            CHECK_STATUS(tn_backward(tn_sum_all(tn_mul_s(w, i + 1)), NULL), TN_OK);
            kept[i] = i ? tn_slice(g, 0, 0, 2, 1) : tn_detach(g);
            if (i) tn_eval_of(g);
            tn_zero_grad(w);
            CHECK(tn_grad_of(w) == g && !tn_has_grad(w));
        }
        CHECK_VALUES(g, 0, 0, 0);
        CHECK_VALUES(kept[0], 1, 1, 1);
        CHECK_VALUES(kept[1], 2, 2);
    }
}

static void rule_09_after_a_no_grad_assign_it_is_still_a_leaf(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *g = tn_grad_of(w);
        for (int i = 1; i <= 3; i++) {
            tn_scope *s = tn_begin(cx);
            tn_backward(tn_sum_all(tn_square(w)), NULL);
            tn_grad_mode(cx, false);
            tn_sub_(w, tn_mul_s(tn_grad_of(w), 0.5));  // w - w
            tn_add_(w, tn_full(cx, TN_F32, TN_0D, i));
            tn_zero_grad(w);
            CHECK_STATUS(tn_end(s), TN_OK);
            CHECK(tn_needs_grad(w) && tn_grad_of(w) == g && !tn_has_grad(w));
            CHECK_VALUES(w, i, i, i);
            CHECK_VALUES(g, 0, 0, 0);
        }
    }
}

static void rule_09_writing_to_a_leaf_outside_no_grad_is_an_error(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *one = tn_ones(cx, TN_F32, TN_0D);
        CHECK(tn_assign(w, one) == NULL);
        CHECK_FAILED2(cx, TN_EGRAD, "assign: x (3,)", "tn_grad_mode");
        CHECK(tn_add_(w, one) == NULL);
        CHECK_FAILED(cx, TN_EGRAD, "add_: ");
        CHECK(tn_sub_(w, one) == NULL);
        CHECK_FAILED(cx, TN_EGRAD, "sub_: ");
        CHECK(tn_mul_(w, one) == NULL);
        CHECK_FAILED(cx, TN_EGRAD, "mul_: ");
        CHECK(tn_div_(w, one) == NULL);
        CHECK_FAILED(cx, TN_EGRAD, "div_: ");
        CHECK(tn_fill_(w, 0) == NULL);
        CHECK_FAILED(cx, TN_EGRAD, "fill_: ");
        CHECK(tn_zero_(w) == NULL);
        CHECK_FAILED(cx, TN_EGRAD, "zero_: ");
        CHECK(tn_clamp_(w, 0, 1) == NULL);
        CHECK_FAILED(cx, TN_EGRAD, "clamp_: ");
        CHECK(tn_fill_(tn_slice(w, 0, 0, 1, 1), 0) == NULL);  // a view of one
        CHECK_FAILED(cx, TN_EGRAD, "fill_: ");
        CHECK_VALUES(w, 1, 2, 3);
        // Through a detached handle it may be written, and stays a leaf.
        CHECK(tn_fill_(tn_detach(w), 5) != NULL);
        CHECK_VALUES(w, 5, 5, 5);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_square(w)), NULL), TN_OK);
        CHECK_GRAD(w, 10, 10, 10);
        CHECK(tn_fill_(tn_requires_grad(w, false), 1) == w);
        CHECK_VALUES(w, 1, 1, 1);
    }
}

static void rule_09_a_value_with_history_can_be_written_and_differentiated(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *h = tn_mul_s(w, 1), *y = tn_zeros(cx, TN_F32, TN_SHAPE(2, N));
        tn_mul_(tn_slice(h, 0, 1, 3, 1), tn_scalar(cx, 10));  // 1 20 30
        tn_assign(tn_select(y, 0, 1), tn_square(h));
        tn_fill_(tn_select(tn_select(y, 0, 1), 0, 2), 7);  // cuts the last
        CHECK(tn_needs_grad(y));
        CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
        CHECK_GRAD(w, 2, 400, 0);
    }
}

static void rule_09_a_leaf_may_be_a_view_and_may_die(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *base = rules_ramp(cx, 4), *w = tn_slice(base, 0, 0, 4, 2), *dead = leaf(cx);
        tn_requires_grad(w, true);
        tn_tensor *l = tn_add(tn_sum_all(tn_square(w)), tn_sum_all(dead));
        tn_drop(dead);  // its gradient is dropped
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_GRAD(w, 2, 6);
        CHECK(tn_requires_grad(tn_expand(tn_select(base, 0, 0), TN_SHAPE(3)), true) == NULL);
        CHECK_FAILED(cx, TN_EARG, "requires_grad: t (3,)");
        CHECK(tn_requires_grad(tn_zeros(cx, TN_I32, TN_SHAPE(2)), true) == NULL);
        CHECK_FAILED(cx, TN_EDTYPE, "requires_grad: t is i32");
    }
}

// ---- 10: backward and grad ---------------------------------------------------------------------

static void rule_10_backward_deposits_detached_gradients_and_adds_up(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *v = leaf(cx);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(tn_square(w), v)), NULL), TN_OK);
        CHECK(!tn_needs_grad(tn_grad_of(w)) && !tn_needs_grad(tn_grad_of(v)));
        CHECK(tn_grad_mode(cx, true));  // the mode is what it was
        CHECK_STATUS(tn_backward(tn_sum_all(w), NULL), TN_OK);
        CHECK_GRAD(w, 3, 9, 19);
        CHECK_GRAD(v, 1, 4, 9);
        tn_grad_mode(cx, false);
        tn_tensor *y = tn_sum_all(w);
        CHECK(!tn_needs_grad(y));
        tn_grad_mode(cx, true);
        CHECK_STATUS(tn_backward(y, NULL), TN_EGRAD);
        CHECK_FAILED(cx, TN_EGRAD, "backward: y ()");
    }
}

static void rule_10_backward_in_no_grad_mode_is_the_same(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *l = tn_sum_all(tn_square(w));
        tn_grad_mode(cx, false);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK(!tn_grad_mode(cx, true));
        CHECK_GRAD(w, 2, 4, 6);
    }
}

static void rule_10_grad_is_differentiable_and_touches_no_stored_gradient(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *y = tn_sum_all(tn_pow_s(w, 3)), *g = NULL, *gg = NULL,
                  *ggg = NULL;
        CHECK_STATUS(tn_grad(1, &y, 1, &w, NULL, &g), TN_OK);
        CHECK(!tn_has_grad(w) && tn_needs_grad(g));
        tn_tensor *s = tn_sum_all(g);
        CHECK_STATUS(tn_grad(1, &s, 1, &w, NULL, &gg), TN_OK);
        CHECK_VALUES(g, 3, 12, 27);
        CHECK_VALUES(gg, 6, 12, 18);
        s = tn_sum_all(gg);
        CHECK_STATUS(tn_grad(1, &s, 1, &w, NULL, &ggg), TN_OK);
        CHECK_VALUES(ggg, 6, 6, 6);
        // It frees nothing: once more, and then backward.
        CHECK_STATUS(tn_grad(1, &y, 1, &w, NULL, &g), TN_OK);
        CHECK_VALUES(g, 3, 12, 27);
        CHECK(!tn_has_grad(w));
        // A gradient penalty.
        CHECK_STATUS(tn_backward(tn_sum_all(tn_square(g)), NULL), TN_OK);
        CHECK_GRAD(w, 36, 288, 972);
    }
}

static void rule_10_grad_in_no_grad_mode_has_no_history(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *y = tn_sum_all(tn_square(w)), *g = NULL;
        tn_grad_mode(cx, false);
        CHECK_STATUS(tn_grad(1, &y, 1, &w, NULL, &g), TN_OK);
        tn_grad_mode(cx, true);
        CHECK(!tn_needs_grad(g));
        CHECK_VALUES(g, 2, 4, 6);
    }
}

static void rule_10_gy_may_be_null_only_for_one_element(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *y = tn_square(w), *one = tn_slice(y, 0, 2, 3, 1), *g = NULL;
        CHECK_STATUS(tn_backward(y, NULL), TN_EARG);
        CHECK_FAILED2(cx, TN_EARG, "backward: y (3,)", "gy");
        CHECK_STATUS(tn_grad(1, &y, 1, &w, NULL, &g), TN_EARG);
        CHECK_FAILED2(cx, TN_EARG, "grad: y (3,)", "gy");
        CHECK_STATUS(tn_grad(1, &y, 1, &w, (tn_tensor *const[]){ NULL }, &g), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "grad: y (3,)");
        CHECK(g == NULL);
        CHECK_STATUS(tn_backward(one, NULL), TN_OK);
        CHECK_GRAD(w, 0, 0, 6);
        CHECK_STATUS(tn_backward(y, tn_arange(cx, TN_F32, 1, 4, 1)), TN_OK);
        CHECK_GRAD(w, 2, 8, 18);
        tn_tensor *z[] = { tn_square(w), tn_sum_all(w) };
        CHECK_STATUS(tn_grad(2, z, 1, &w, (tn_tensor *const[]){ tn_ones_like(w), NULL }, &g),
                     TN_OK);
        CHECK_VALUES(g, 3, 5, 7);
        CHECK_STATUS(tn_backward(tn_square(w), tn_ones(cx, TN_F32, TN_SHAPE(2))), TN_ESHAPE);
        CHECK_FAILED2(cx, TN_ESHAPE, "y (3,)", "gy (2,)");
    }
}

static void rule_10_an_unused_x_gives_zeros(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *no = leaf(cx), *plain = rules_ramp(cx, 2), *y = tn_sum_all(w);
        tn_tensor *x[] = { no, w, plain, w }, *g[4] = { 0 };
        CHECK_STATUS(tn_grad(1, &y, 4, x, NULL, g), TN_OK);
        CHECK_VALUES(g[0], 0, 0, 0);
        CHECK_VALUES(g[1], 1, 1, 1);
        CHECK_VALUES(g[2], 0, 0);
        CHECK_VALUES(g[3], 1, 1, 1);
        CHECK(g[1] != g[3]);
        tn_fill_(g[1], 9);
        CHECK_VALUES(g[3], 1, 1, 1);       // stores of their own
        tn_tensor *c = tn_sum_all(plain);  // no leaf at all
        CHECK_STATUS(tn_grad(1, &c, 1, x, NULL, g), TN_OK);
        CHECK_VALUES(g[0], 0, 0, 0);
    }
}

static void rule_10_grad_of_a_value_in_the_middle(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *h = tn_square(w), *y = tn_sum_all(tn_square(h)), *g = NULL;
        CHECK_STATUS(tn_grad(1, &y, 1, &h, NULL, &g), TN_OK);
        CHECK_VALUES(g, 2, 8, 18);
        CHECK_STATUS(tn_grad(1, &y, 1, &y, NULL, &g), TN_OK);
        CHECK_VALUES(g, 1);
    }
}

// ---- 12: history -------------------------------------------------------------------------------

static void rule_12_history_is_cut_by_detach_and_by_no_grad(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *h = tn_square(w);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(h, tn_detach(h))), NULL), TN_OK);
        CHECK_GRAD(w, 2, 16, 54);
        h = tn_square(w);
        tn_grad_mode(cx, false);
        tn_tensor *copy = tn_clone(h), *view = tn_slice(h, 0, 0, 3, 1), *same = tn_cast(h, TN_F32);
        tn_grad_mode(cx, true);
        CHECK(!tn_needs_grad(copy) && !tn_needs_grad(same) && !tn_needs_grad(view));
        CHECK(tn_needs_grad(h));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(h, tn_mul(copy, same))), NULL), TN_OK);
        CHECK_GRAD(w, 2, 64, 486);
    }
}

static void rule_12_history_lives_while_a_handle_reaches_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx);
        tn_scope  *s = tn_begin(cx);
        tn_tensor *l = tn_keep(tn_sum_all(tn_exp(tn_mul_s(tn_square(w), 0))));
        tn_end(s);  // the temporaries' handles are gone, l reaches them
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_GRAD(w, 0, 0, 0);
        tn_tensor *m = tn_sum_all(tn_square(w));
        CHECK_STATUS(tn_eval(cx), TN_OK);  // a boundary spends only what was walked
        CHECK_STATUS(tn_backward(m, NULL), TN_OK);
        CHECK_GRAD(w, 2, 4, 6);
    }
}

static void rule_12_walked_nodes_are_spent_once_evaluated(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w    = leaf(cx);
        tn_tensor *h    = tn_square(w);
        int        made = __LINE__ - 1;
        tn_tensor *l    = tn_sum_all(h);
        tn_want(h);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_GRAD(w, 2, 4, 6);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_exp(h)), NULL), TN_EGRAD);
        CHECK_FAILED2(cx, TN_EGRAD, "backward: ", SITE(made));
        CHECK_STATUS(tn_backward(l, NULL), TN_EGRAD);
        CHECK_FAILED(cx, TN_EGRAD, "backward: ");
        tn_tensor *g = NULL;
        CHECK_STATUS(tn_grad(1, &l, 1, &w, NULL, &g), TN_EGRAD);
        CHECK_FAILED(cx, TN_EGRAD, "grad: ");
        CHECK_VALUES(h, 1, 4, 9);  // the value is there
        CHECK(!tn_has_grad(w));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(tn_detach(h), w)), NULL), TN_OK);
        CHECK_GRAD(w, 1, 4, 9);
    }
}

static void rule_12_two_backwards_before_an_evaluation_accumulate(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *l = tn_sum_all(tn_square(w));
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_GRAD(w, 4, 8, 12);
    }
}

static void rule_12_reads_never_spend(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *h = tn_exp(w), *l = tn_sum_all(tn_mul(h, h));
        CHECK(isfinite(tn_item(l)));
        CHECK_STATUS(tn_eval_of(h), TN_OK);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK(isfinite(tn_item(tn_sum_all(tn_grad_of(w)))));
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);  // the read of the gradient did not spend l
        double g[N];
        CHECK_STATUS(tn_read(tn_grad_of(w), TN_F64, g, N), TN_OK);
        CHECK_NEAR(g[0], 4 * exp(2), 1e-4);
    }
}

static void rule_12_reading_then_backward_recomputes_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w   = leaf(cx);
        rules_computed = 0;
        tn_tensor *h = rules_double(w), *l = tn_sum_all(tn_square(h));
        CHECK_NEAR(tn_item(l), 56, 0);
        CHECK_INT(rules_computed, 1);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_GRAD(w, 8, 16, 24);
        CHECK_INT(rules_computed, 2);  // forward once, gradient once
    }
}

static void rule_12_a_gan_recomputes_no_product(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *gen = leaf(cx), *dis = leaf(cx);
        for (int step = 0; step < 3; step++) {
            tn_scope *s     = tn_begin(cx);
            rules_computed  = 0;
            tn_tensor *fake = rules_double(gen);
            // The discriminator's step, on the detached fake, and its evaluation.
            tn_tensor *d = tn_sum_all(tn_mul(tn_detach(fake), dis));
            tn_want(fake);
            CHECK_STATUS(tn_backward(d, NULL), TN_OK);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            CHECK_GRAD(dis, 2, 4, 6);
            CHECK(!tn_has_grad(gen));
            CHECK_INT(rules_computed, 1);
            // The generator's, through the same fake.
            tn_tensor *g = tn_sum_all(tn_mul(fake, dis));
            CHECK_STATUS(tn_backward(g, NULL), TN_OK);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            CHECK_INT(rules_computed, 2);
            CHECK_GRAD(gen, 2, 4, 6);
            CHECK_GRAD(dis, 2, 4, 6);
            tn_end(s);
        }
    }
}

static void rule_12_a_total_of_losses_does_not_leak(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w     = tn_requires_grad(tn_ones(cx, TN_F32, TN_SHAPE(1)), true);
        tn_tensor *total = tn_zeros(cx, TN_F32, TN_0D);
        int64_t    nodes = 0, bytes = 0, most = 0;
        for (int i = 0; i < 10000; i++) {
            tn_scope  *s    = tn_begin(cx);
            tn_tensor *loss = tn_sum_all(tn_square(w)), *old = total;
            tn_backward(loss, NULL);
            total = tn_keep(tn_add(total, loss));
            tn_zero_grad(w);
            if (tn_eval(cx) || tn_end(s)) break;
            tn_drop(old);
            int64_t now = tn_ctx_stats(cx).nodes;
            if (i == 100) {
                nodes = now;
                bytes = tn_ctx_stats(cx).bytes;
            }
            most = now > most ? now : most;
        }
        CHECK_STATUS(tn_error(cx), TN_OK);
        test_that(most <= nodes + 2, "nodes grew from %lld to %lld", (long long)nodes,
                  (long long)most);
        CHECK(tn_ctx_stats(cx).bytes <= bytes);
        CHECK_NEAR(tn_item(total), 10000, 0);
    }
}

static void rule_12_a_total_read_at_the_end_does_not_leak_either(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w     = tn_requires_grad(tn_ones(cx, TN_F32, TN_SHAPE(1)), true);
        tn_tensor *total = tn_zeros(cx, TN_F32, TN_0D);
        int64_t    nodes = 0;
        for (int i = 0; i < 1000; i++) {  // tn_end evaluates, there is no tn_eval
            tn_scope  *s    = tn_begin(cx);
            tn_tensor *loss = tn_mean_all(tn_square(w)), *old = total;
            tn_backward(loss, NULL);
            total = tn_keep(tn_add(total, loss));
            if (tn_end(s)) break;
            tn_drop(old);
            if (i == 100) nodes = tn_ctx_stats(cx).nodes;
        }
        CHECK_STATUS(tn_error(cx), TN_OK);
        CHECK(tn_ctx_stats(cx).nodes <= nodes + 2);
        CHECK_NEAR(tn_item(total), 1000, 0);
        CHECK_VALUES(tn_grad_of(w), 2000);
    }
}

// ---- 13: the gradient's handle, the mode -------------------------------------------------------

static void rule_13_grad_of_is_the_same_handle_for_life(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *g = tn_grad_of(w);
        CHECK(!tn_has_grad(w));
        CHECK_VALUES(g, 0, 0, 0);
        for (int i = 0; i < 3; i++) {
            tn_scope *s = tn_begin(cx);
            tn_backward(tn_sum_all(tn_square(w)), NULL);
            CHECK(tn_grad_of(w) == g && tn_has_grad(w));
            tn_end(s);  // the gradient outlives the scope it was made in
            CHECK_VALUES(g, 2, 4, 6);
            tn_zero_grad(w);
            CHECK(tn_grad_of(w) == g && !tn_has_grad(w));
            CHECK_VALUES(g, 0, 0, 0);
        }
        // First asked for inside a scope, it lives as long as w.
        tn_tensor *v = leaf(cx);
        tn_scope  *s = tn_begin(cx);
        g            = tn_grad_of(v);
        tn_end(s);
        CHECK(tn_grad_of(v) == g);
        CHECK_VALUES(g, 0, 0, 0);
    }
}

static void rule_13_zeros_stay_readable_over_a_boundary(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *g = tn_grad_of(w), *y = tn_add_s(g, 1);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y, 1, 1, 1);
        CHECK_VALUES(g, 0, 0, 0);
        tn_backward(tn_sum_all(w), NULL);
        y = tn_add_s(g, 1);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(g, 1, 1, 1);
        tn_zero_grad(w);
        y = tn_add_s(g, 1);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(g, 0, 0, 0);
        CHECK_VALUES(y, 1, 1, 1);
    }
}

static void rule_13_grad_of_a_non_leaf_is_an_error_that_names_tn_grad(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *no[] = { tn_square(w), rules_ramp(cx, 3), tn_slice(w, 0, 0, 3, 1),
                                           tn_detach(w) };
        for (int i = 0; i < 4; i++) {
            CHECK(tn_grad_of(no[i]) == NULL);
            CHECK_FAILED2(cx, TN_EGRAD, "grad_of: x (3,)", "tn_grad ");
            CHECK(!tn_has_grad(no[i]));
            tn_zero_grad(no[i]);
            CHECK_FAILED(cx, TN_EGRAD, "zero_grad: x (3,)");
        }
        tn_drop(tn_grad_of(w));
        CHECK_FAILED(cx, TN_EARG, "drop: ");
    }
}

static void rule_13_the_mode_is_returned_remembered_and_restored(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        CHECK(tn_grad_mode(cx, false) == true);
        CHECK(tn_grad_mode(cx, false) == false);
        tn_scope *s1 = tn_begin(cx);
        tn_grad_mode(cx, true);
        tn_scope *s2 = tn_begin(cx);
        tn_grad_mode(cx, false);
        tn_begin(cx);
        tn_grad_mode(cx, true);
        tn_end(s2);  // ends two
        CHECK(tn_grad_mode(cx, true) == true);
        tn_end(s1);
        CHECK(tn_grad_mode(cx, true) == false);
    }
}

static void rule_10_the_gradient_of_a_view_counts_the_views_made_from_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *h = tn_mul_s(w, 1), *g;
        tn_tensor *v = tn_slice(h, 0, 1, 3, 1);                            // 2, 3
        tn_tensor *u = tn_flip(tn_unsqueeze(v, 0), 1);                     // through v
        tn_tensor *y = tn_sum_all(tn_add(tn_square(u), tn_mul_s(v, 10)));  // and v itself
        y            = tn_add(y, tn_sum_all(h));                           // not through v
        CHECK_STATUS(tn_grad(1, &y, 1, &v, NULL, &g), TN_OK);
        CHECK_VALUES(g, 14, 16);
        // A product folds and turns its operands by views of its own.
        tn_tensor *x = tn_reshape(h, TN_SHAPE(1, 3, 1)), *one = tn_ones(cx, TN_F32, TN_SHAPE(1, 1));
        y = tn_sum_all(tn_square(tn_matmul(x, one)));
        CHECK_STATUS(tn_grad(1, &y, 1, &x, NULL, &g), TN_OK);
        CHECK_VALUES(g, 2, 4, 6);
    }
}

// The gradient for x of the sum of y, each element times its number from 1 on; NULL if it failed.
static tn_tensor *numbered_grad(tn_tensor *x, tn_tensor *y)
{
    tn_ctx    *cx = tn_ctx_of(y);
    tn_tensor *n  = tn_reshape(tn_arange(cx, TN_F32, 1, (double)tn_count(y) + 1, 1), TN_SHAPE(-1));
    tn_tensor *s = tn_sum_all(tn_mul(tn_reshape(y, TN_SHAPE(-1)), n)), *g = NULL;
    return tn_grad(1, &s, 1, &x, NULL, &g) == TN_OK ? g : NULL;
}

// Each element of such a view has its own gradient, though it shares its place with others.
static void rule_10_an_expanded_or_overlapping_view_has_the_gradients_of_views_made_from_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *h = tn_mul_s(leaf(cx), 1);                                     // 1, 2, 3
        tn_tensor *e = tn_expand(tn_reshape(h, TN_SHAPE(3, 1)), TN_SHAPE(3, 2));  // rows of equals
        tn_tensor *w = tn_window(h, 0, 2, 1);                                     // (1, 2), (2, 3)
        CHECK_VALUES(numbered_grad(e, tn_flip(e, 1)), 2, 1, 4, 3, 6, 5);
        CHECK_VALUES(numbered_grad(e, tn_slice(e, 1, 1, 2, 1)), 0, 1, 0, 2, 0, 3);
        CHECK_VALUES(numbered_grad(e, tn_select(e, 1, -1)), 0, 1, 0, 2, 0, 3);
        CHECK_VALUES(numbered_grad(e, tn_diagonal(e, 0, 0, 1)), 1, 0, 0, 2, 0, 0);
        CHECK_VALUES(numbered_grad(e, tn_transpose(e, 0, 1)), 1, 4, 2, 5, 3, 6);
        CHECK_VALUES(numbered_grad(e, tn_window(e, 1, 1, 1)), 1, 2, 3, 4, 5, 6);
        CHECK_VALUES(numbered_grad(e, tn_expand(tn_unsqueeze(e, 0), TN_SHAPE(2, 3, 2))), 8, 10, 12,
                     14, 16, 18);
        CHECK_VALUES(numbered_grad(w, tn_flip(tn_flip(w, 0), 1)), 4, 3, 2, 1);
        CHECK_VALUES(numbered_grad(w, tn_squeeze(tn_slice(w, 0, 1, 2, 1), 0)), 0, 0, 1, 2);
        CHECK_VALUES(numbered_grad(w, tn_flip(tn_flip(w, 0), 0)), 1, 2, 3, 4);
        // Through several, and what is not viewed again beside it.
        tn_tensor *t = tn_permute(tn_flip(e, 0), 2, (int[]){ 1, 0 });
        CHECK_VALUES(numbered_grad(e, tn_add(tn_slice(t, 0, 0, 1, 1), tn_select(e, 1, 0))), 4, 0, 4,
                     0, 4, 0);
        // Twice: the gradient of e * e is 2 e, times the number, and of that it is 2 times the
        // number.
        tn_tensor *f = tn_flip(e, 1);
        tn_tensor *g = numbered_grad(e, tn_square(f));
        CHECK_VALUES(g, 4, 2, 16, 12, 36, 30);
        CHECK_VALUES(numbered_grad(e, g), 4, 4, 24, 24, 60, 60);
    }
}

// Products and maps view their operands too.
static void rule_10_an_expanded_or_overlapping_operand_has_a_gradient(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *h = tn_mul_s(leaf(cx), 1), *w = tn_window(h, 0, 2, 1), *g;
        tn_tensor *ones = tn_ones(cx, TN_F32, TN_SHAPE(2, 1, 2)), *wide = tn_unsqueeze(w, 0);
        CHECK_VALUES(numbered_grad(w, tn_matmul(ones, w)), 4, 6, 4, 6);
        CHECK_VALUES(numbered_grad(wide, tn_matmul(wide, tn_ones(cx, TN_F32, TN_SHAPE(2, 1)))), 1,
                     1, 2, 2);
        // A map over what lies by columns.
        tn_tensor *columns = tn_transpose(tn_ones(cx, TN_F32, TN_SHAPE(2, 2)), 0, 1);
        CHECK_VALUES(numbered_grad(w, tn_mul(columns, w)), 1, 2, 3, 4);
        // One matrix stands for all of a batch of equal ones.
        tn_tensor *many = tn_expand(tn_reshape(tn_slice(h, 0, 0, 2, 1), TN_SHAPE(1, 2, 1)),
                                    TN_SHAPE(2, 2, 1));
        tn_tensor *y    = tn_sum_all(tn_matmul(ones, many));
        CHECK_STATUS(tn_grad(1, &y, 1, &many, NULL, &g), TN_EGRAD);
        CHECK_FAILED2(cx, TN_EGRAD, "(2, 2, 1)", "tn_clone");
    }
}

static void rule_13_a_gradient_written_by_hand_counts(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx);
        tn_fill_(tn_grad_of(w), 5);
        CHECK(tn_has_grad(w));
        CHECK_STATUS(tn_backward(tn_sum_all(w), NULL), TN_OK);
        CHECK_GRAD(w, 6, 6, 6);
        CHECK(!tn_has_grad(w));
    }
}

static void rule_04_a_leaf_made_by_ops_is_stored(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(tn_add_s(tn_zeros(cx, TN_F32, TN_SHAPE(2)), 3), true);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_square(w)), NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(w, 3, 3);
        CHECK_GRAD(w, 6, 6);
    }
}

static void rule_12_a_no_grad_write_cuts_only_what_it_writes(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *y = tn_mul_s(w, 2), *z = tn_mul_s(w, 3);
        tn_grad_mode(cx, false);
        tn_fill_(tn_slice(y, 0, 0, 1, 1), 5);
        tn_assign(tn_slice(z, 0, 1, 2, 1), tn_slice(w, 0, 0, 1, 1));
        tn_grad_mode(cx, true);
        tn_fill_(tn_slice(tn_detach(y), 0, 1, 2, 1), 7);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_add(y, z)), NULL), TN_OK);
        CHECK_VALUES(y, 5, 7, 6);
        CHECK_VALUES(z, 3, 1, 9);
        CHECK_GRAD(w, 3, 0, 5);
    }
}

static void rule_04_what_was_made_outside_the_innermost_scope_is_stored(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *mask = tn_add_s(tn_zeros(cx, TN_F32, TN_SHAPE(3)), 2);
        for (int step = 0; step < 3; step++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *h = tn_mul(mask, mask), *y = tn_mul_s(h, step);
            CHECK_STATUS(tn_eval(cx), TN_OK);
            CHECK_VALUES(y, 4.0 * step, 4.0 * step, 4.0 * step);
            CHECK_VALUES(h, 4, 4, 4);
            tn_end(s);
        }
        CHECK_VALUES(mask, 2, 2, 2);
    }
}

static void rule_18_what_a_read_failed_to_compute_spoils_no_later_step(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *index = tn_full(cx, TN_I64, TN_SHAPE(1), 9), *w = leaf(cx);
        tn_tensor *bad = tn_embed(index, tn_reshape(w, TN_SHAPE(3, 1))), *more = tn_mul_s(bad, 2);
        CHECK(isnan(tn_item(bad)));
        CHECK_FAILED2(cx, TN_EARG, "embed", "index 9");
        tn_tensor *fresh = tn_add_s(tn_ones(cx, TN_F32, TN_SHAPE(2)), 1);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(fresh, 2, 2);
        CHECK(isnan(tn_item(more)));
        CHECK_FAILED(cx, TN_EGONE, "(1, 1)");
    }
}

// A gradient that is a number all over is as lost with a failed step as any other, and has the
// leaf's dtype.
static void rule_10_a_gradient_of_ones_is_as_any_other(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = leaf(cx), *x = rules_ramp(cx, N);
        for (int t = 0; t < 2; t++) {
            tn_scope  *s   = tn_begin(cx);
            tn_tensor *far = tn_full(cx, TN_I64, TN_SHAPE(1), 9);
            CHECK_STATUS(tn_backward(tn_add(w, x), tn_ones(cx, TN_F32, TN_SHAPE(N))), TN_OK);
            if (t == 0) tn_want(tn_gather(x, 0, far));
            CHECK_STATUS(tn_eval(cx), t == 0 ? TN_EARG : TN_OK);
            tn_error_clear(cx);
            tn_end(s);
        }
        CHECK_GRAD(w, 1, 1, 1);
        tn_tensor *one = tn_requires_grad(tn_full(cx, TN_F32, TN_0D, 2), true);
        CHECK_STATUS(tn_backward(tn_mul_s(one, 1), tn_scalar(cx, 3)), TN_OK);
        tn_tensor *half = tn_full(cx, TN_F16, TN_0D, 1);
        CHECK_INT(tn_dtype_of(tn_mul(tn_grad_of(one), half)), TN_F32);
    }
}

// What a gradient was cleared to takes memory only while someone has read it.
static void rule_10_cleared_gradients_leave_no_memory(void)
{
    enum { MANY = 1 << 16 };
    tn_ctx    *cx = rules_open("cpu");
    int64_t    bytes[4];
    tn_tensor *w = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(MANY)), true);
    for (int t = 0; t < 4; t++) {
        tn_scope *s = tn_begin(cx);
        tn_zero_grad(w);
        if (t > 1) CHECK(tn_item(tn_sum_all(tn_grad_of(w))) == 0);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_square(w)), NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
        bytes[t] = tn_ctx_stats(cx).bytes;
    }
    CHECK_INT(bytes[3], bytes[1]);
    tn_close(cx);
}

const test_case tests_rules_gradients[] = {
    TEST(rule_10_a_gradient_of_ones_is_as_any_other),
    TEST(rule_10_cleared_gradients_leave_no_memory),
    TEST(rule_09_all_past_states_deposit_in_the_leaf),
    TEST(rule_09_one_backward_through_several_states_sums),
    TEST(rule_09_views_of_a_cleared_gradient_keep_its_value),
    TEST(rule_09_after_a_no_grad_assign_it_is_still_a_leaf),
    TEST(rule_09_writing_to_a_leaf_outside_no_grad_is_an_error),
    TEST(rule_09_a_value_with_history_can_be_written_and_differentiated),
    TEST(rule_09_a_leaf_may_be_a_view_and_may_die),
    TEST(rule_10_backward_deposits_detached_gradients_and_adds_up),
    TEST(rule_10_backward_in_no_grad_mode_is_the_same),
    TEST(rule_10_grad_is_differentiable_and_touches_no_stored_gradient),
    TEST(rule_10_grad_in_no_grad_mode_has_no_history),
    TEST(rule_10_gy_may_be_null_only_for_one_element),
    TEST(rule_10_an_unused_x_gives_zeros),
    TEST(rule_10_grad_of_a_value_in_the_middle),
    TEST(rule_10_the_gradient_of_a_view_counts_the_views_made_from_it),
    TEST(rule_10_an_expanded_or_overlapping_view_has_the_gradients_of_views_made_from_it),
    TEST(rule_10_an_expanded_or_overlapping_operand_has_a_gradient),
    TEST(rule_12_history_is_cut_by_detach_and_by_no_grad),
    TEST(rule_12_history_lives_while_a_handle_reaches_it),
    TEST(rule_12_walked_nodes_are_spent_once_evaluated),
    TEST(rule_12_two_backwards_before_an_evaluation_accumulate),
    TEST(rule_12_reads_never_spend),
    TEST(rule_12_reading_then_backward_recomputes_nothing),
    TEST(rule_12_a_gan_recomputes_no_product),
    TEST(rule_12_a_total_of_losses_does_not_leak),
    TEST(rule_12_a_total_read_at_the_end_does_not_leak_either),
    TEST(rule_13_grad_of_is_the_same_handle_for_life),
    TEST(rule_13_zeros_stay_readable_over_a_boundary),
    TEST(rule_13_grad_of_a_non_leaf_is_an_error_that_names_tn_grad),
    TEST(rule_13_a_gradient_written_by_hand_counts),
    TEST(rule_04_a_leaf_made_by_ops_is_stored),
    TEST(rule_04_what_was_made_outside_the_innermost_scope_is_stored),
    TEST(rule_12_a_no_grad_write_cuts_only_what_it_writes),
    TEST(rule_18_what_a_read_failed_to_compute_spoils_no_later_step),
    TEST(rule_13_the_mode_is_returned_remembered_and_restored),
    TEST_END,
};
