// test_rules_stores.c: the rules of stores, views and lifetimes, 1 to 3, each sentence of them on
// every device.
#include "rules_kit.h"

#include <math.h>

enum { N = 4 };

// ---- 1: a handle is (store, view) --------------------------------------------------------------

static int view_count(tn_tensor *x, tn_tensor **y)
{
    int n  = 0;
    y[n++] = tn_slice(x, 0, 0, 2, 1);
    y[n++] = tn_select(x, 0, 0);
    y[n++] = tn_squeeze(tn_unsqueeze(x, 0), 0);
    y[n++] = tn_squeeze_all(x);
    y[n++] = tn_unsqueeze(x, -1);
    y[n++] = tn_transpose(x, 0, 1);
    y[n++] = tn_permute(x, TN_AXES(1, 0));
    y[n++] = tn_expand(x, TN_SHAPE(3, 2, 2));
    y[n++] = tn_flip(tn_flip(x, 0), 0);
    y[n++] = tn_diagonal(x, 0, 0, 1);
    y[n++] = tn_window(x, 0, 2, 1);
    y[n++] = tn_window_dilated(x, 1, 2, 1, 1);
    y[n++] = tn_detach(x);
    y[n++] = tn_view(x, TN_SHAPE(4));
    y[n++] = tn_reshape(x, TN_SHAPE(4, 1));
    y[n++] = tn_flatten(x, 0, 1);
    n += tn_split(x, 1, 0, 2, y + n) - 1;
    return n;
}

static void rule_01_a_view_shares_the_store(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (int pending = 0; pending < 2; pending++) {
            tn_tensor *x = tn_reshape(rules_ramp(cx, 4), TN_SHAPE(2, 2)), *y[32];
            if (pending) x = tn_add_s(x, 0);
            int n = view_count(x, y);
            for (int i = 0; i < n; i++) {
                if (!CHECK(y[i] != NULL)) return;
                CHECK(tn_is_view(y[i]));
                CHECK(y[i] != x);
            }
            tn_fill_(x, 7);
            for (int i = 0; i < n; i++) {
                double v[16];
                if (!CHECK_STATUS(tn_read(y[i], TN_F64, v, tn_count(y[i])), TN_OK)) break;
                CHECK_NEAR(v[0], 7, 0);
            }
        }
    }
}

static void rule_01_a_write_through_a_view_reaches_the_store_and_its_other_views(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = tn_reshape(rules_ramp(cx, 6), TN_SHAPE(2, 3));
        tn_tensor *row = tn_select(x, 0, 1), *col = tn_select(x, 1, 2), *t = tn_transpose(x, 0, 1);
        tn_fill_(row, 9);
        CHECK_VALUES(x, 1, 2, 3, 9, 9, 9);
        CHECK_VALUES(col, 3, 9);
        tn_fill_(tn_slice(t, 0, TN_TO_END, TN_TO_END, -2), 5);  // columns 2 and 0
        CHECK_VALUES(x, 5, 2, 5, 5, 9, 5);
        tn_fill_(tn_detach(tn_diagonal(x, 1, 0, 1)), 0);
        CHECK_VALUES(x, 5, 0, 5, 5, 9, 0);
        CHECK_VALUES(row, 5, 9, 0);
        CHECK_VALUES(col, 5, 0);
    }
}

// Ops that give back their input's value, in a shape with as many elements.
static int copy_count(tn_tensor *x, tn_tensor **y)
{
    int     n      = 0;
    int64_t zero[] = { 0 };
    y[n++]         = tn_cast(x, TN_F32);
    y[n++]         = tn_contiguous(x);
    y[n++]         = tn_clone(x);
    y[n++]         = tn_dropout(x, 0.5, false);
    y[n++]         = tn_dropout(x, 0, true);
    y[n++]         = tn_abs(x);
    y[n++]         = tn_relu(x);
    y[n++]         = tn_floor(x);
    y[n++]         = tn_clamp(x, -INFINITY, INFINITY);
    y[n++]         = tn_concat(1, &x, 0);
    y[n++]         = tn_stack(1, &x, 0);
    y[n++]         = tn_repeat(x, TN_SHAPE(1));
    y[n++]         = tn_roll(x, 0, 0);
    y[n++]         = tn_roll(x, 4, 0);
    y[n++]         = tn_pad(x, zero, zero, 0);
    y[n++]         = tn_sum(tn_unsqueeze(x, 0), 0);
    y[n++]         = tn_mean(tn_unsqueeze(x, 0), 0);
    y[n++]         = tn_max_keep(tn_unsqueeze(x, 1), 1);
    y[n++]         = tn_cumsum(tn_unsqueeze(x, 0), 0);
    y[n++]         = tn_masked_fill(x, tn_zeros(tn_ctx_of(x), TN_BOOL, TN_0D), 1);
    y[n++]         = tn_max_pool1d(tn_view(x, TN_SHAPE(1, 1, 4)), 1, (tn_pool_opts){ 0 });
    y[n++]         = tn_adaptive_avg_pool2d(tn_view(x, TN_SHAPE(1, 1, 4, 1)), 4, 1);
    y[n++]         = tn_copy_to(tn_ctx_of(x), x);
    y[n++]         = tn_maximum_s(x, -1e9);
    y[n++]         = tn_contiguous(tn_view(x, TN_SHAPE(2, 2)));
    y[n++]         = tn_cast(tn_detach(x), TN_F32);
    y[n++]         = tn_add_s(x, 0);
    y[n++]         = tn_mul_s(x, 1);
    y[n++]         = tn_div_s(x, 1);
    y[n++]         = tn_pow_s(x, 1);
    return n;
}

static void rule_01_every_other_op_makes_a_new_store(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *probe[64];
        int        n = copy_count(rules_ramp(cx, 4), probe);
        for (int i = 0; i < n; i++)
            for (int how = 0; how < 4; how++) {
                tn_scope  *s = tn_begin(cx);
                tn_tensor *x = rules_ramp(cx, 4), *y[64];
                if (how & 1) x = tn_add_s(x, 0);  // pending
                copy_count(x, y);
                if (!test_that(y[i] && y[i] != x && !tn_is_view(y[i]), "op %d: %s", i,
                               tn_error_text(cx)))
                    return;
                tn_fill_(how & 2 ? x : y[i], 9);
                double kept[4] = { 0 }, changed[4] = { 0 };
                tn_read(how & 2 ? y[i] : x, TN_F64, kept, 4);
                tn_read(how & 2 ? x : y[i], TN_F64, changed, 4);
                test_case_result(kept[0] == 1 && kept[3] == 4 && changed[0] == 9, "op %d, way %d",
                                 i, how);
                tn_end(s);
            }
    }
}

static void rule_01_the_same_value_in_a_new_store_is_free(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x        = rules_ramp(cx, 4);
        int64_t    launches = tn_ctx_stats(cx).launches, bytes = tn_ctx_stats(cx).bytes;
        tn_tensor *y[] = { tn_cast(x, TN_F32), tn_contiguous(x), tn_clone(x),
                           tn_dropout(x, 0.5, false) };
        for (int i = 0; i < 4; i++) CHECK_STATUS(tn_eval_of(y[i]), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_INT(tn_ctx_stats(cx).launches, launches);
        CHECK_INT(tn_ctx_stats(cx).bytes, bytes);
        // And a write to one of those that share a buffer copies it first.
        tn_fill_(tn_slice(y[1], 0, 0, 2, 1), 0);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y[1], 0, 0, 3, 4);
        CHECK_VALUES(x, 1, 2, 3, 4);
        CHECK_VALUES(y[2], 1, 2, 3, 4);
    }
}

static void rule_01_each_use_resolves_the_current_node(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 4), *v = tn_slice(x, 0, 1, 3, 1);
        tn_tensor *before = tn_add_s(x, 10), *part = tn_mul_s(v, 10);
        tn_fill_(v, 0);
        tn_tensor *after = tn_add_s(x, 10), *clone = tn_clone(x);
        tn_mul_(x, tn_scalar(cx, -1));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(before, 11, 12, 13, 14);
        CHECK_VALUES(part, 20, 30);
        CHECK_VALUES(after, 11, 10, 10, 14);
        CHECK_VALUES(clone, 1, 0, 0, 4);
        CHECK_VALUES(x, -1, 0, 0, -4);
        CHECK_VALUES(v, 0, 0);
    }
}

static void rule_01_only_writes_keep_and_want_return_their_argument(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 4), *one = tn_ones(cx, TN_F32, TN_0D);
        CHECK(tn_assign(x, one) == x);
        CHECK(tn_add_(x, one) == x);
        CHECK(tn_sub_(x, one) == x);
        CHECK(tn_mul_(x, one) == x);
        CHECK(tn_div_(x, one) == x);
        CHECK(tn_fill_(x, 2) == x);
        CHECK(tn_zero_(x) == x);
        CHECK(tn_clamp_(x, 1, 2) == x);
        CHECK(tn_keep(x) == x);
        CHECK(tn_want(x) == x);
        CHECK_VALUES(x, 1, 1, 1, 1);
    }
}

// ---- 2: reshape, view, writes ------------------------------------------------------------------

static void rule_02_reshape_is_a_view_or_a_copy_fixed_at_the_call(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x    = tn_reshape(rules_ramp(cx, 6), TN_SHAPE(2, 3));
        tn_tensor *view = tn_reshape(x, TN_SHAPE(3, -1));
        tn_tensor *copy = tn_reshape(tn_transpose(x, 0, 1), TN_SHAPE(6));
        CHECK(tn_is_view(view) && !tn_is_view(copy));
        tn_fill_(x, 0);
        CHECK_VALUES(view, 0, 0, 0, 0, 0, 0);
        CHECK_VALUES(copy, 1, 4, 2, 5, 3, 6);
        tn_fill_(copy, 8);
        CHECK_VALUES(x, 0, 0, 0, 0, 0, 0);
        // Pending or computed makes no difference to which it is. p lies as x does.
        tn_tensor *p = tn_add_s(tn_transpose(x, 0, 1), 1);
        CHECK(!tn_is_view(tn_reshape(p, TN_SHAPE(6))));
        CHECK(tn_is_view(tn_reshape(tn_transpose(p, 0, 1), TN_SHAPE(6))));
        // Strides that only merge, axes of size 1 and flips that stay whole.
        CHECK(tn_is_view(tn_reshape(tn_slice(x, 0, 1, 2, 1), TN_SHAPE(3))));
        CHECK(tn_is_view(tn_reshape(tn_slice(x, 1, 0, 1, 1), TN_SHAPE(2, 1, 1))));
        CHECK(!tn_is_view(tn_reshape(tn_flip(x, 1), TN_SHAPE(6))));
        CHECK(tn_is_view(tn_reshape(tn_flip(tn_flip(x, 0), 1), TN_SHAPE(6))));
    }
}

static void rule_02_view_never_copies_and_fails_if_it_would(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_view(rules_ramp(cx, 6), TN_SHAPE(2, -1)), *y = tn_view(x, TN_SHAPE(3, 2));
        tn_fill_(tn_select(y, 0, 2), 0);
        CHECK_VALUES(x, 1, 2, 3, 4, 0, 0);
        CHECK(tn_view(tn_transpose(x, 0, 1), TN_SHAPE(6)) == NULL);
        CHECK_FAILED2(cx, TN_ESHAPE, "view: the strides of x (3, 2)", "(6,)");
        CHECK(tn_view(tn_expand(tn_select(x, 0, 0), TN_SHAPE(2, 3)), TN_SHAPE(6)) == NULL);
        CHECK_FAILED(cx, TN_ESHAPE, "view: ");
        CHECK(tn_view(tn_slice(x, 1, 0, 2, 1), TN_SHAPE(4)) == NULL);
        CHECK_FAILED(cx, TN_ESHAPE, "view: ");
    }
}

static void rule_02_writing_through_an_expanded_or_overlapping_view_is_an_error(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 4), *one = tn_ones(cx, TN_F32, TN_0D);
        tn_tensor *many[] = { tn_expand(x, TN_SHAPE(2, 4)),
                              tn_window(x, 0, 2, 1),
                              tn_expand(tn_select(x, 0, 0), TN_SHAPE(3)),
                              tn_transpose(tn_window(x, 0, 3, 1), 0, 1),
                              tn_unsqueeze(tn_window(x, 0, 2, 1), 0),
                              tn_detach(tn_expand(x, TN_SHAPE(2, 4))) };
        for (int i = 0; i < 6; i++) {
            tn_tensor *v = many[i];
            CHECK(tn_assign(v, one) == NULL);
            CHECK_FAILED(cx, TN_EARG, "assign: x (");
            CHECK(tn_add_(v, one) == NULL);
            CHECK_FAILED(cx, TN_EARG, "add_: x (");
            CHECK(tn_sub_(v, one) == NULL);
            CHECK_FAILED(cx, TN_EARG, "sub_: x (");
            CHECK(tn_mul_(v, one) == NULL);
            CHECK_FAILED(cx, TN_EARG, "mul_: x (");
            CHECK(tn_div_(v, one) == NULL);
            CHECK_FAILED(cx, TN_EARG, "div_: x (");
            CHECK(tn_fill_(v, 1) == NULL);
            CHECK_FAILED(cx, TN_EARG, "fill_: x (");
            CHECK(tn_zero_(v) == NULL);
            CHECK_FAILED(cx, TN_EARG, "zero_: x (");
            CHECK(tn_clamp_(v, 0, 1) == NULL);
            CHECK_FAILED(cx, TN_EARG, "clamp_: x (");
        }
        // Windows that do not overlap, expanded to the same shape, flipped: each place once.
        CHECK(tn_fill_(tn_window(x, 0, 2, 2), 5) != NULL);
        CHECK(tn_mul_s(x, 1) && tn_zero_(tn_expand(tn_flip(x, 0), TN_SHAPE(4))) != NULL);
        CHECK_VALUES(x, 0, 0, 0, 0);
    }
}

static void rule_02_assign_reads_all_before_it_writes(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (int pending = 0; pending < 2; pending++) {
            tn_tensor *x = rules_ramp(cx, 5), *y, *m;
            if (pending) x = tn_add_s(x, 0);
            tn_assign(tn_slice(x, 0, 0, -1, 1), tn_slice(x, 0, 1, TN_TO_END, 1));
            CHECK_VALUES(x, 2, 3, 4, 5, 5);
            y = rules_ramp(cx, 5);
            if (pending) y = tn_add_s(y, 0);
            tn_assign(tn_slice(y, 0, 1, TN_TO_END, 1), tn_slice(y, 0, 0, -1, 1));
            CHECK_VALUES(y, 1, 1, 2, 3, 4);
            tn_assign(y, tn_flip(y, 0));
            CHECK_VALUES(y, 4, 3, 2, 1, 1);
            tn_add_(tn_slice(y, 0, 1, TN_TO_END, 1), tn_slice(y, 0, 0, -1, 1));
            CHECK_VALUES(y, 4, 7, 5, 3, 2);
            m = tn_view(tn_slice(rules_ramp(cx, 5), 0, 0, 4, 1), TN_SHAPE(2, 2));
            if (pending) m = tn_add_s(m, 0);
            tn_assign(m, tn_transpose(m, 0, 1));
            CHECK_VALUES(m, 1, 3, 2, 4);
            tn_assign(tn_transpose(m, 0, 1), tn_flip(m, 1));
            CHECK_VALUES(m, 3, 4, 1, 2);
            tn_assign(m, tn_select(m, 0, 1));  // broadcast from itself
            CHECK_VALUES(m, 1, 2, 1, 2);
        }
    }
}

static void rule_02_a_chain_of_overlapping_writes_in_one_step_is_in_order(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 5), *tail = tn_slice(x, 0, 1, TN_TO_END, 1);
        tn_tensor *head = tn_slice(x, 0, 0, -1, 1);
        for (int i = 0; i < 3; i++) {
            tn_assign(head, tail);
            tn_mul_(tn_select(x, 0, 4), tn_scalar(cx, 10));
        }
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(x, 4, 5, 50, 500, 5000);
        for (int i = 0; i < 3; i++) tn_assign(x, tn_roll(x, 1, 0));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(x, 50, 500, 5000, 4, 5);
    }
}

static void rule_02_assign_broadcasts_and_casts(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_zeros(cx, TN_I32, TN_SHAPE(2, 2));
        tn_assign(x, tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 1.9f, -2.9f }));
        CHECK_VALUES(x, 1, -2, 1, -2);
        CHECK_INT(tn_dtype_of(x), TN_I32);
        CHECK(tn_assign(x, tn_zeros(cx, TN_I32, TN_SHAPE(3))) == NULL);
        CHECK_FAILED2(cx, TN_ESHAPE, "assign: (3,)", "(2, 2)");
        CHECK(tn_assign(tn_select(x, 0, 0), x) == NULL);
        CHECK_FAILED2(cx, TN_ESHAPE, "assign: (2, 2)", "(2,)");
        CHECK(tn_add_(x, tn_full(cx, TN_F32, TN_0D, 0.5)) == NULL);
        CHECK_FAILED2(cx, TN_EDTYPE, "add_: ", "i32");
        CHECK_VALUES(x, 1, -2, 1, -2);
    }
}

// ---- 3: lifetimes ------------------------------------------------------------------------------

static tn_tensor *lent(tn_ctx *cx, float *data, int *released)
{
    return tn_borrow(cx, TN_F32, TN_SHAPE(N), data, rules_release, released);
}

static void rule_03_a_tensor_belongs_to_the_innermost_scope(void)
{
    float data[N] = { 1, 2, 3, 4 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        if (!tn_ptr(rules_ramp(cx, 1))) {  // only a device in host memory borrows
            tn_error_clear(cx);
            continue;
        }
        int       outer = 0, inner = 0;
        tn_scope *s1 = tn_begin(cx);
        CHECK(lent(cx, data, &outer) != NULL);
        tn_scope *s2 = tn_begin(cx);
        CHECK(lent(cx, data, &inner) != NULL);
        CHECK_STATUS(tn_end(s2), TN_OK);
        CHECK(inner == 1 && outer == 0);
        CHECK_STATUS(tn_end(s1), TN_OK);
        CHECK(inner == 1 && outer == 1);
    }
}

static void rule_03_a_scope_gives_back_what_it_made(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 4);
        tn_stats   a = { 0 };
        for (int i = 0; i < 20; i++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *y = tn_matmul(tn_unsqueeze(tn_exp(x), 0), tn_unsqueeze(x, 1));
            CHECK(tn_item(y) > 0);
            tn_softmax(y, -1);
            tn_end(s);
            if (i == 0) a = tn_ctx_stats(cx);
        }
        CHECK_INT(tn_ctx_stats(cx).nodes, a.nodes);
        CHECK_INT(tn_ctx_stats(cx).bytes, a.bytes);
    }
}

static void rule_03_made_outside_any_scope_it_lives_until_close(void)
{
    float   data[N]  = { 0 };
    int     released = 0;
    tn_ctx *cx       = rules_open("cpu");
    lent(cx, data, &released);
    tn_scope *s = tn_begin(cx);
    tn_end(s);
    tn_eval(cx);
    CHECK_INT(released, 0);
    tn_close(cx);
    CHECK_INT(released, 1);
}

static void rule_03_close_ends_open_scopes(void)
{
    float   data[N]  = { 0 };
    int     released = 0;
    tn_ctx *cx       = rules_open("cpu");
    tn_begin(cx);
    lent(cx, data, &released);
    tn_begin(cx);
    tn_exp(lent(cx, data, &released));
    tn_close(cx);
    CHECK_INT(released, 2);
}

static void rule_03_keep_lets_it_outlive_one_level(void)
{
    float      data[N]  = { 1, 2, 3, 4 };
    int        released = 0;
    tn_ctx    *cx       = rules_open("cpu");
    tn_scope  *s1 = tn_begin(cx), *s2 = tn_begin(cx), *s3 = tn_begin(cx);
    tn_tensor *x = tn_keep(lent(cx, data, &released));
    tn_end(s3);
    CHECK_INT(released, 0);
    CHECK_VALUES(x, 1, 2, 3, 4);
    tn_end(s2);  // not kept a second time
    CHECK_INT(released, 1);
    tn_end(s1);

    s1 = tn_begin(cx);
    s2 = tn_begin(cx);
    x  = tn_keep(lent(cx, data, &released));
    tn_end(s2);
    tn_keep(x);
    tn_end(s1);
    CHECK_INT(released, 1);
    CHECK_VALUES(x, 1, 2, 3, 4);
    CHECK(tn_keep(x) == x);  // outside any scope: nothing to outlive
    tn_close(cx);
    CHECK_INT(released, 2);
}

static void rule_03_keep_wants_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_keep(tn_add_s(rules_ramp(cx, N), 1)), *y = tn_neg(x);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y, -2, -3, -4, -5);
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_VALUES(x, 2, 3, 4, 5);
    }
}

static void rule_03_want_only_asks_the_next_evaluation_to_store_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_want(tn_add_s(rules_ramp(cx, N), 1)), *y = tn_neg(x);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(x, 2, 3, 4, 5);
        CHECK_VALUES(y, -2, -3, -4, -5);
        int64_t bytes = tn_ctx_stats(cx).bytes;
        tn_end(s);
        CHECK(tn_ctx_stats(cx).bytes < bytes);  // it died with its scope
    }
}

static void rule_03_drop_lets_go_before_the_scope_ends(void)
{
    float      data[N]  = { 0 };
    int        released = 0;
    tn_ctx    *cx       = rules_open("cpu");
    tn_scope  *s        = tn_begin(cx);
    tn_tensor *x = lent(cx, data, &released), *v = tn_slice(x, 0, 0, 1, 1);
    tn_drop(x);
    CHECK_INT(released, 0);  // the view has the store yet
    tn_drop(v);
    CHECK_INT(released, 1);
    tn_drop(NULL);
    tn_end(s);
    CHECK_INT(released, 1);
    tn_close(cx);
}

const test_case tests_rules_stores[] = {
    TEST(rule_01_a_view_shares_the_store),
    TEST(rule_01_a_write_through_a_view_reaches_the_store_and_its_other_views),
    TEST(rule_01_every_other_op_makes_a_new_store),
    TEST(rule_01_the_same_value_in_a_new_store_is_free),
    TEST(rule_01_each_use_resolves_the_current_node),
    TEST(rule_01_only_writes_keep_and_want_return_their_argument),
    TEST(rule_02_reshape_is_a_view_or_a_copy_fixed_at_the_call),
    TEST(rule_02_view_never_copies_and_fails_if_it_would),
    TEST(rule_02_writing_through_an_expanded_or_overlapping_view_is_an_error),
    TEST(rule_02_assign_reads_all_before_it_writes),
    TEST(rule_02_a_chain_of_overlapping_writes_in_one_step_is_in_order),
    TEST(rule_02_assign_broadcasts_and_casts),
    TEST(rule_03_a_tensor_belongs_to_the_innermost_scope),
    TEST(rule_03_a_scope_gives_back_what_it_made),
    TEST(rule_03_made_outside_any_scope_it_lives_until_close),
    TEST(rule_03_close_ends_open_scopes),
    TEST(rule_03_keep_lets_it_outlive_one_level),
    TEST(rule_03_keep_wants_it),
    TEST(rule_03_want_only_asks_the_next_evaluation_to_store_it),
    TEST(rule_03_drop_lets_go_before_the_scope_ends),
    TEST_END,
};
