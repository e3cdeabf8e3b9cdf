// test_rules_values.c: the rules of what is computed and stored when, 4 to 8, each sentence of them
// on every device.
#include "rules_kit.h"

#include <pthread.h>
#include <string.h>

// A value large enough not to be stored for being one element.
enum { N = 4 };

// ---- 4: what a step boundary stores ------------------------------------------------------------

// Whether the value of t is there: reading it runs nothing.
static bool is_stored(tn_tensor *t)
{
    tn_ctx *cx     = tn_ctx_of(t);
    int64_t before = tn_ctx_stats(cx).launches;
    CHECK_STATUS(tn_eval_of(t), TN_OK);
    return tn_ctx_stats(cx).launches == before;
}

static void rule_04_what_a_boundary_did_not_store_is_computed_again(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *h = tn_square(x), *lost = tn_mul_s(h, 2);
        tn_tensor *y = tn_neg(lost);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(tn_add_s(lost, 1), 3, 9, 19, 33);
        CHECK_VALUES(tn_sum(tn_transpose(tn_unsqueeze(h, 0), 0, 1), 1), 1, 4, 9, 16);
        CHECK_VALUES(tn_clone(lost), 2, 8, 18, 32);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y, -2, -8, -18, -32);
        CHECK(tn_fill_(tn_slice(lost, 0, 0, 1, 1), 1) != NULL);
        CHECK_VALUES(lost, 1, 8, 18, 32);
        CHECK(tn_fill_(h, 3) == h);
        CHECK_VALUES(h, 3, 3, 3, 3);
        CHECK_STATUS(tn_error(cx), TN_OK);
    }
}

static void rule_04_what_was_overwritten_is_gone_and_the_message_says_where(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x    = tn_set_name(rules_ramp(cx, N), "level");
        tn_tensor *h    = tn_add_s(x, 1);
        tn_tensor *lost = tn_exp(h);
        int        made = __LINE__ - 1;
        tn_tensor *y    = tn_neg(lost);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_add_(x, tn_ones_like(x));
        int wrote = __LINE__ - 1;
        CHECK_STATUS(tn_eval(cx), TN_OK);
        double v[N];
        CHECK_STATUS(tn_read(lost, TN_F64, v, N), TN_EGONE);
        CHECK_FAILED2(cx, TN_EGONE, SITE(made), SITE(wrote));
        CHECK_STATUS(tn_read(lost, TN_F64, v, N), TN_EGONE);
        CHECK_FAILED2(cx, TN_EGONE, "(4,) \"level\"", "was overwritten at");
        CHECK(tn_add_s(lost, 1) == NULL);
        CHECK_FAILED2(cx, TN_EGONE, "add_s: ", SITE(made));
        CHECK(tn_relu(tn_transpose(tn_unsqueeze(lost, 0), 0, 1)) == NULL);
        CHECK_FAILED2(cx, TN_EGONE, SITE(made), SITE(wrote));
        CHECK(tn_clone(lost) == NULL);
        CHECK_FAILED2(cx, TN_EGONE, "clone: ", SITE(wrote));
        CHECK_STATUS(tn_eval_of(lost), TN_EGONE);
        CHECK_FAILED(cx, TN_EGONE, "eval_of: ");
        CHECK(tn_ptr(lost) == NULL);
        tn_error_clear(cx);
        CHECK(tn_fill_(tn_slice(lost, 0, 0, 1, 1), 1) == NULL);  // the rest would be missing
        CHECK_FAILED(cx, TN_EGONE, "fill_: ");
        CHECK(tn_size(lost, 0) == N && tn_rank(lost) == 1 && tn_dtype_of(lost) == TN_F32);
        CHECK(tn_fill_(lost, 3) == lost);  // all of it is new
        CHECK_VALUES(lost, 3, 3, 3, 3);
        CHECK(tn_count(y) == N);
    }
}

// The old value is there until the new one is.
static void rule_04_what_was_not_stored_is_computed_again_before_a_pending_write(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *h = tn_add_s(x, 1), *y = tn_neg(h);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_add_(x, tn_ones_like(x));
        tn_tensor *later = tn_mul(h, x);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(later, 4, 9, 16, 25);
        CHECK_VALUES(y, -2, -3, -4, -5);
        CHECK(tn_neg(h) == NULL);
        CHECK_FAILED(cx, TN_EGONE, "overwritten");
    }
}

// A value that is not stored keeps none of the memory that it would be computed from.
static void rule_04_what_was_given_back_is_gone_and_the_message_says_where(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        enum { LARGE = 1 << 16 };
        tn_tensor *x = rules_there(cx, TN_SHAPE(LARGE)), *lost = tn_exp(x), *y = tn_neg(lost);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        int64_t before = tn_ctx_stats(cx).bytes;
        tn_drop(x);
        int dropped = __LINE__ - 1;
        CHECK(before - tn_ctx_stats(cx).bytes >= LARGE * 4);
        CHECK_STATUS(tn_eval_of(lost), TN_EGONE);
        CHECK_FAILED2(cx, TN_EGONE, "was released at", SITE(dropped));
        CHECK_STATUS(tn_eval_of(y), TN_OK);
    }
}

static void rule_04_a_boundary_stores_what_nothing_consumed(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *a = tn_neg(x), *b = tn_abs(a), *c = tn_sum_all(b);
        tn_tensor *alone = tn_add_s(x, 1), *read = tn_mul_s(x, 2), *user = tn_neg(read);
        CHECK_VALUES(read, 2, 4, 6, 8);  // computed before the boundary: stays
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(alone, 2, 3, 4, 5);
        CHECK_VALUES(c, 10);
        CHECK_VALUES(read, 2, 4, 6, 8);
        CHECK_VALUES(user, -2, -4, -6, -8);
        CHECK(is_stored(alone) && is_stored(c) && is_stored(read) && is_stored(user));
        CHECK(!is_stored(a) && !is_stored(b));
        CHECK_VALUES(b, 1, 2, 3, 4);
    }
}

static void rule_04_a_boundary_stores_one_element_values_with_a_handle(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x  = rules_ramp(cx, N);
        tn_tensor *kl = tn_sum_all(x), *l2 = tn_reshape(tn_mean_all(tn_square(x)), TN_SHAPE(1, 1));
        tn_tensor *one  = tn_slice(tn_exp(tn_zeros(cx, TN_F32, TN_SHAPE(1))), 0, 0, 1, 1);
        tn_tensor *loss = tn_add(tn_add(kl, l2), one);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_NEAR(tn_item(kl), 10, 0);
        CHECK_NEAR(tn_item(l2), 7.5, 0);
        CHECK_NEAR(tn_item(one), 1, 0);
        CHECK_VALUES(loss, 18.5);
    }
}

static void rule_04_a_boundary_stores_what_is_wanted_kept_or_assigned(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = rules_ramp(cx, N), *wanted = tn_want(tn_neg(x)), *kept = tn_keep(tn_abs(x));
        tn_tensor *assigned = tn_zeros(cx, TN_F32, TN_SHAPE(N));
        tn_add_(assigned, x);
        tn_tensor *w = tn_zeros(cx, TN_F32, TN_SHAPE(N));
        tn_fill_(tn_slice(w, 0, 0, 2, 1), 1);
        tn_tensor *sum = tn_add(tn_add(wanted, kept), tn_add(assigned, w));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(wanted, -1, -2, -3, -4);
        CHECK_VALUES(kept, 1, 2, 3, 4);
        CHECK_VALUES(assigned, 1, 2, 3, 4);
        CHECK_VALUES(w, 1, 1, 0, 0);
        CHECK_VALUES(sum, 2, 3, 3, 4);
        tn_end(s);
    }
}

static void rule_04_a_handle_that_nothing_consumed_is_stored_though_its_node_was(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *y = tn_neg(x), *copy = tn_clone(y);
        tn_tensor *h = tn_abs(x), *v = tn_slice(h, 0, 1, 3, 1), *z = tn_neg(h);
        tn_add_(y, tn_ones_like(y));  // consumes the state that copy has
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y, 0, -1, -2, -3);
        CHECK_VALUES(copy, -1, -2, -3, -4);
        CHECK_VALUES(v, 2, 3);
        CHECK_VALUES(z, -1, -2, -3, -4);
    }
}

static void rule_04_a_value_consumed_through_its_view_is_consumed(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *h = tn_exp(x), *v = tn_unsqueeze(h, 0), *c = tn_clone(h);
        tn_tensor *z = tn_add(tn_sum(v, 0), c);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK(is_stored(z));
        CHECK(!is_stored(v));
        CHECK(is_stored(h));  // which v is a view of
        CHECK(is_stored(c));  // and c
    }
}

static void rule_04_what_a_boundary_did_not_store_is_not_computed_unless_asked_for(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *twice = rules_double(x), *y = tn_neg(twice);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        rules_computed = 0;
        for (int i = 0; i < 3; i++) {
            tn_add_(x, tn_ones_like(x));
            CHECK_STATUS(tn_eval(cx), TN_OK);
            CHECK(tn_neg(twice) == NULL);
            CHECK_FAILED(cx, TN_EGONE, "neg");
        }
        CHECK_INT(rules_computed, 0);
        CHECK_VALUES(y, -2, -4, -6, -8);
        tn_drop(twice);
        CHECK_STATUS(tn_eval(cx), TN_OK);
    }
}

// Asked for by tn_keep, it is computed while its sources are there, and then stays.
static void rule_04_what_was_not_stored_can_still_be_kept(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *outer = tn_begin(cx), *s = tn_begin(cx);
        tn_tensor *x = rules_ramp(cx, N), *h = tn_square(x), *y = tn_sum_all(h);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y, 30);
        CHECK(tn_keep(h) == h);
        tn_end(s);
        CHECK_VALUES(h, 1, 4, 9, 16);
        tn_end(outer);
    }
}

// ---- 5: reads lose nothing ---------------------------------------------------------------------

static void rule_05_a_read_never_makes_another_value_unreadable(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *a = tn_neg(x), *b = tn_abs(a),
                  *v = tn_slice(b, 0, 1, 3, 1);
        tn_tensor *c = tn_sum_all(v), *late = tn_add(a, b), *other = tn_mul(b, b);
        CHECK_NEAR(tn_item(c), 5, 0);
        CHECK_STATUS(tn_eval_of(tn_sum_all(other)), TN_OK);
        CHECK_VALUES(late, 0, 0, 0, 0);
        CHECK_VALUES(v, 2, 3);
        CHECK_VALUES(b, 1, 2, 3, 4);
        CHECK_VALUES(a, -1, -2, -3, -4);
        CHECK_VALUES(other, 1, 4, 9, 16);
        CHECK(tn_add(a, b) != NULL);
    }
}

static void rule_05_pending_handles_need_the_old_state(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *old = tn_mul_s(x, 10), *part = tn_slice(x, 0, 0, 2, 1);
        tn_tensor *view = tn_add_s(part, 100);
        tn_fill_(part, 0);
        CHECK_VALUES(x, 0, 0, 3, 4);  // evaluates the write alone
        tn_mul_(x, tn_scalar(cx, -1));
        CHECK_STATUS(tn_eval_of(x), TN_OK);
        CHECK_VALUES(x, 0, 0, -3, -4);
        CHECK_VALUES(old, 10, 20, 30, 40);
        CHECK_VALUES(view, 101, 102);
    }
}

static void rule_05_a_flush_by_itself_loses_nothing(void)
{
    const char *const devices[] = { "cpu", "ref" };
    for (int d = 0; d < 2; d++) {
        tn_ctx *cx = tn_open_with((tn_open_opts){ .device = devices[d], .flush_nodes = 7 });
        if (!CHECK(cx != NULL)) return;
        tn_on_error(cx, NULL, NULL);
        tn_tensor *y[100], *x = rules_ramp(cx, N);
        for (int i = 0; i < 100; i++) {
            y[i] = tn_add_s(i ? y[i - 1] : x, 1);
            if (i % 9 == 0) tn_fill_(tn_slice(x, 0, 0, 1, 1), i);
        }
        for (int i = 0; i < 100; i++) CHECK_VALUES(y[i], i + 2, i + 3, i + 4, i + 5);
        CHECK_VALUES(x, 99, 2, 3, 4);
        tn_close(cx);
    }
}

// ---- 6: dead values are never computed ---------------------------------------------------------

static void rule_06_values_that_die_unread_are_never_computed(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = rules_ramp(cx, N);
        rules_computed = 0;
        tn_scope *s    = tn_begin(cx);
        tn_neg(rules_double(x));
        tn_drop(rules_double(x));
        tn_tensor *y = tn_add_s(x, 1);
        CHECK_VALUES(y, 2, 3, 4, 5);
        CHECK_INT(rules_computed, 0);
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_INT(rules_computed, 0);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_INT(rules_computed, 0);
        // A state that was overwritten before anybody read it is dead too.
        tn_tensor *z = rules_double(x);
        tn_fill_(z, 1);
        CHECK_VALUES(z, 1, 1, 1, 1);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_INT(rules_computed, 0);
    }
}

static void rule_06_only_the_outermost_end_launches(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = rules_ramp(cx, N);
        rules_computed = 0;
        tn_scope  *s1 = tn_begin(cx), *s2 = tn_begin(cx);
        tn_tensor *y        = tn_keep(rules_double(x));
        int64_t    launches = tn_ctx_stats(cx).launches;
        tn_end(s2);
        CHECK_INT(rules_computed, 0);
        CHECK_INT(tn_ctx_stats(cx).launches, launches);
        tn_keep(y);
        tn_end(s1);
        CHECK_INT(rules_computed, 1);
        CHECK_VALUES(y, 2, 4, 6, 8);
        CHECK_INT(rules_computed, 1);
    }
}

static void rule_06_the_outermost_end_launches_only_what_outlives_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *state = tn_zeros(cx, TN_F32, TN_SHAPE(N));
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, N), true);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        rules_computed  = 0;
        tn_scope  *s    = tn_begin(cx);
        tn_tensor *kept = tn_keep(rules_double(x)), *dead = rules_double(tn_neg(x));
        tn_assign(state, rules_double(x));               // computed: an outer store
        tn_backward(tn_sum_all(rules_double(w)), NULL);  // its gradient: an outer leaf's
        (void)dead;
        CHECK_INT(rules_computed, 0);
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_INT(rules_computed, 3);
        CHECK_VALUES(kept, 2, 4, 6, 8);
        CHECK_VALUES(state, 2, 4, 6, 8);
        CHECK_VALUES(tn_grad_of(w), 2, 2, 2, 2);
        CHECK_INT(rules_computed, 3);
    }
}

// ---- 7: host memory ----------------------------------------------------------------------------

static tn_tensor *lent(tn_ctx *cx, float *data, int *released)
{
    return tn_borrow(cx, TN_F32, TN_SHAPE(N), data, rules_release, released);
}

static void rule_07_from_copies_before_it_returns(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        float      data[N] = { 1, 2, 3, 4 };
        tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(N), data), *y = tn_add_s(x, 1);
        memset(data, 0x55, sizeof data);
        CHECK_VALUES(y, 2, 3, 4, 5);
        CHECK_VALUES(x, 1, 2, 3, 4);
    }
}

static void rule_07_borrowed_memory_stays_untouched(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        float      data[N] = { 1, 2, 3, 4 }, same[N] = { 1, 2, 3, 4 };
        int        released = 0;
        tn_tensor *x        = lent(cx, data, &released);
        tn_tensor *old      = tn_slice(tn_mul_s(x, 10), 0, 0, 2, 1);
        tn_fill_(tn_slice(x, 0, 1, 3, 1), 0);
        tn_add_(x, tn_ones_like(x));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(x, 2, 1, 1, 5);
        CHECK_VALUES(old, 10, 20);
        for (int i = 0; i < 3; i++) {
            tn_mul_(tn_slice(x, 0, 0, 1, 1), tn_scalar(cx, 2));
            tn_eval(cx);
        }
        CHECK_VALUES(x, 16, 1, 1, 5);
        CHECK(!memcmp(data, same, sizeof data));
        tn_drop(x);
        CHECK_INT(released, 1);
    }
}

static void rule_07_release_waits_for_what_still_reads_the_memory(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        float      data[N]  = { 1, 2, 3, 4 };
        int        released = 0;
        tn_scope  *s        = tn_begin(cx);
        tn_tensor *x = lent(cx, data, &released), *v = tn_slice(x, 0, 2, 4, 1);
        tn_tensor *y = tn_keep(tn_add(x, tn_sum_keep(v, 0)));
        tn_drop(x);
        tn_drop(v);
        if (released) memset(data, 0, sizeof data);  // a device without host memory copied it
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_INT(released, 1);
        CHECK_VALUES(y, 8, 9, 10, 11);
    }
}

static void rule_07_release_runs_once_also_when_the_call_fails(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        float data[N]  = { 0 };
        int   released = 0, want = 0;
        CHECK(tn_borrow(cx, (tn_dtype)99, TN_SHAPE(N), data, rules_release, &released) == NULL);
        CHECK_FAILED(cx, TN_EDTYPE, "borrow: 99");
        CHECK_INT(released, ++want);
        CHECK(tn_borrow(cx, TN_F32, TN_SHAPE(-1), data, rules_release, &released) == NULL);
        CHECK_FAILED(cx, TN_ESHAPE, "borrow: shape (-1,)");
        CHECK_INT(released, ++want);
        CHECK(tn_borrow(cx, TN_F32, 9, (int64_t[9]){ 0 }, data, rules_release, &released) == NULL);
        CHECK_FAILED(cx, TN_ESHAPE, "borrow: rank 9");
        CHECK_INT(released, ++want);
        CHECK(tn_borrow(cx, TN_F32, TN_SHAPE(N), NULL, rules_release, &released) == NULL);
        CHECK_FAILED(cx, TN_EARG, "borrow: data is NULL");
        CHECK_INT(released, ++want);
        CHECK(tn_borrow(NULL, TN_F32, TN_SHAPE(N), data, rules_release, &released) == NULL);
        CHECK_FAILED(NULL, TN_EARG, "borrow: the context is NULL");
        CHECK_INT(released, ++want);
        CHECK(tn_borrow(cx, TN_F32, TN_SHAPE(N), data, NULL, NULL) != NULL);  // no release is fine
    }
}

static pthread_t release_thread;

static void note_thread(void *data, void *user)
{
    (void)data;
    ++*(int *)user;
    release_thread = pthread_self();
}

static void rule_07_release_runs_on_the_owner_thread(void)
{
    float      data[1 << 16] = { 0 };
    int        released      = 0;
    tn_ctx    *cx            = rules_open("cpu");
    tn_tensor *x = tn_borrow(cx, TN_F32, TN_SHAPE(1 << 16), data, note_thread, &released);
    tn_tensor *y = tn_exp(x);
    tn_drop(x);
    tn_eval_of(y);
    tn_close(cx);
    CHECK_INT(released, 1);
    CHECK(pthread_equal(release_thread, pthread_self()));
}

// ---- 8: numbers, offsets and counters are arguments --------------------------------------------

static void rule_08_a_scalar_takes_the_other_operands_dtype(void)
{
    static const tn_dtype all[] = { TN_F16, TN_BF16, TN_F32, TN_F64 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (int i = 0; i < 4; i++) {
            tn_tensor *x = tn_ones(cx, all[i], TN_SHAPE(2)), *zero = tn_ones(cx, all[i], TN_0D);
            CHECK_INT(tn_dtype_of(tn_mul_s(x, 0.1)), all[i]);
            CHECK_INT(tn_dtype_of(tn_mul(x, tn_scalar(cx, 0.1))), all[i]);
            CHECK_INT(tn_dtype_of(tn_sub(tn_scalar(cx, 0.1), x)), all[i]);
            CHECK_INT(tn_dtype_of(tn_add_s(zero, 1e300)), all[i]);
            CHECK_INT(tn_dtype_of(tn_add(tn_scalar(cx, 1), zero)), all[i]);
        }
        for (int dt = TN_U8; dt <= TN_I64; dt++) {
            tn_tensor *x = tn_ones(cx, (tn_dtype)dt, TN_SHAPE(2));
            CHECK_INT(tn_dtype_of(tn_add_s(x, 2)), dt);
            CHECK_INT(tn_dtype_of(tn_mul_s(x, 0.5)), TN_F32);
            CHECK_INT(tn_dtype_of(tn_div_s(x, 2)), TN_F32);
        }
        // In full precision: the number is not first rounded to f32.
        tn_tensor *d = tn_zeros(cx, TN_F64, TN_SHAPE(1));
        CHECK_NEAR(tn_item(tn_add_s(d, 0.1)), 0.1, 0);
        CHECK_NEAR(tn_item(tn_add(d, tn_scalar(cx, 0.1))), 0.1, 0);
        CHECK_INT(tn_item_i64(tn_add_s(tn_zeros(cx, TN_I64, TN_SHAPE(1)), 9007199254740992.0)),
                  9007199254740992);
    }
}

// An evaluation that finds its plan: hits rises by one, plans by none.
static void check_hit(tn_ctx *cx, tn_tensor *y, tn_stats *last, const char *what)
{
    CHECK_STATUS(tn_eval_of(y), TN_OK);
    tn_stats now = tn_ctx_stats(cx);
    test_that(now.plans == last->plans && now.hits == last->hits + 1,
              "%s: %lld plans and %lld hits more", what, (long long)(now.plans - last->plans),
              (long long)(now.hits - last->hits));
    *last = now;
}

static void rule_08_changing_numbers_reuse_the_plan(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N);
        CHECK_VALUES(tn_mul(tn_add_s(x, 1), tn_scalar(cx, 2)), 4, 6, 8, 10);
        tn_stats last = tn_ctx_stats(cx);
        for (int i = 2; i < 6; i++) {
            tn_tensor *y = tn_mul(tn_add_s(x, i), tn_scalar(cx, 0.5 * i));
            check_hit(cx, y, &last, "a number");
            CHECK_VALUES(y, (1 + i) * 0.5 * i, (2 + i) * 0.5 * i, (3 + i) * 0.5 * i,
                         (4 + i) * 0.5 * i);
        }
        CHECK_STATUS(tn_eval_of(tn_full(cx, TN_F32, TN_SHAPE(N), 1)), TN_OK);
        last = tn_ctx_stats(cx);
        check_hit(cx, tn_full(cx, TN_F32, TN_SHAPE(N), 2), &last, "full");
    }
}

static void rule_08_view_offsets_are_arguments_too(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 16), *cache = tn_zeros(cx, TN_F32, TN_SHAPE(16));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(tn_neg(tn_slice(x, 0, 0, 2, 1)), -1, -2);
        tn_stats last = tn_ctx_stats(cx);
        for (int i = 1; i < 8; i++) {
            tn_tensor *y = tn_neg(tn_slice(x, 0, i, i + 2, 1));
            check_hit(cx, y, &last, "a slice");
            CHECK_VALUES(y, -i - 1, -i - 2);
        }
        // A KV cache: each step writes the next place.
        for (int i = 0; i < 8; i++) {
            tn_scope *s = tn_begin(cx);
            last        = tn_ctx_stats(cx);
            tn_assign(tn_slice(cache, 0, i, i + 1, 1), tn_slice(x, 0, i, i + 1, 1));
            tn_end(s);
            if (i > 1) CHECK_INT(tn_ctx_stats(cx).plans, last.plans);
        }
        CHECK_VALUES(tn_slice(cache, 0, 0, 9, 1), 1, 2, 3, 4, 5, 6, 7, 8, 0);
    }
}

static void rule_08_sizes_and_strides_are_in_the_key(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_view(rules_ramp(cx, 16), TN_SHAPE(4, 4));
        CHECK_VALUES(tn_sum_all(tn_select(x, 0, 0)), 10);
        CHECK_VALUES(tn_sum_all(tn_select(x, 1, 0)), 28);  // another stride
        CHECK_VALUES(tn_sum_all(tn_slice(tn_select(x, 1, 0), 0, 0, 2, 1)), 6);
        CHECK_VALUES(tn_sum_all(tn_slice(tn_select(x, 0, 0), 0, 0, 2, 1)), 3);
        CHECK_VALUES(tn_sum_all(tn_flip(tn_select(x, 0, 0), 0)), 10);
    }
}

static void rule_08_random_counters_are_taken_at_recording(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double a[2][N], b[2][N], c[2][N];
        for (int dead = 0; dead < 2; dead++) {
            tn_seed(cx, 42);
            tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(N)), *y = tn_randn(cx, TN_F32, TN_SHAPE(N));
            tn_tensor *z = tn_rand_like(x);
            if (dead) {  // z is read first, y never: x and z are the same
                tn_read(z, TN_F64, c[1], N);
                tn_drop(y);
                tn_eval(cx);
                tn_read(x, TN_F64, a[1], N);
            } else {
                tn_read(x, TN_F64, a[0], N);
                tn_read(y, TN_F64, b[0], N);
                tn_read(z, TN_F64, c[0], N);
            }
        }
        CHECK(!memcmp(a[0], a[1], sizeof a[0]));
        CHECK(!memcmp(c[0], c[1], sizeof c[0]));
        CHECK(memcmp(a[0], c[0], sizeof a[0]) != 0);
        // New counters, the same plan.
        tn_stats   last = tn_ctx_stats(cx);
        tn_tensor *u    = tn_rand(cx, TN_F32, TN_SHAPE(N));
        check_hit(cx, u, &last, "rand");
        // Back to a place of the sequence.
        tn_random_state s = tn_random_get(cx);
        tn_read(tn_rand(cx, TN_F32, TN_SHAPE(N)), TN_F64, a[0], N);
        CHECK(tn_random_get(cx).drawn > s.drawn);
        tn_random_set(cx, s);
        tn_read(tn_rand(cx, TN_F32, TN_SHAPE(N)), TN_F64, a[1], N);
        CHECK(!memcmp(a[0], a[1], sizeof a[0]));
    }
}

static void rule_08_recomputed_randomness_changes_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(N)), *y = tn_dropout(tn_add_s(x, 1), 0.5, true);
        double     first[N], again[N], twice[N];
        CHECK_STATUS(tn_read(y, TN_F64, first, N), TN_OK);
        tn_tensor *z = tn_add(y, y);
        CHECK_STATUS(tn_read(z, TN_F64, twice, N), TN_OK);
        CHECK_STATUS(tn_read(y, TN_F64, again, N), TN_OK);
        CHECK(!memcmp(first, again, sizeof first));
        for (int i = 0; i < N; i++) CHECK_NEAR(twice[i], (float)(2 * first[i]), 1e-6);
    }
}

const test_case tests_rules_values[] = {
    TEST(rule_04_what_a_boundary_did_not_store_is_computed_again),
    TEST(rule_04_what_was_overwritten_is_gone_and_the_message_says_where),
    TEST(rule_04_what_was_not_stored_is_computed_again_before_a_pending_write),
    TEST(rule_04_what_was_given_back_is_gone_and_the_message_says_where),
    TEST(rule_04_a_boundary_stores_what_nothing_consumed),
    TEST(rule_04_a_boundary_stores_one_element_values_with_a_handle),
    TEST(rule_04_a_boundary_stores_what_is_wanted_kept_or_assigned),
    TEST(rule_04_a_handle_that_nothing_consumed_is_stored_though_its_node_was),
    TEST(rule_04_a_value_consumed_through_its_view_is_consumed),
    TEST(rule_04_what_a_boundary_did_not_store_is_not_computed_unless_asked_for),
    TEST(rule_04_what_was_not_stored_can_still_be_kept),
    TEST(rule_05_a_read_never_makes_another_value_unreadable),
    TEST(rule_05_pending_handles_need_the_old_state),
    TEST(rule_05_a_flush_by_itself_loses_nothing),
    TEST(rule_06_values_that_die_unread_are_never_computed),
    TEST(rule_06_only_the_outermost_end_launches),
    TEST(rule_06_the_outermost_end_launches_only_what_outlives_it),
    TEST(rule_07_from_copies_before_it_returns),
    TEST(rule_07_borrowed_memory_stays_untouched),
    TEST(rule_07_release_waits_for_what_still_reads_the_memory),
    TEST(rule_07_release_runs_once_also_when_the_call_fails),
    TEST(rule_07_release_runs_on_the_owner_thread),
    TEST(rule_08_a_scalar_takes_the_other_operands_dtype),
    TEST(rule_08_changing_numbers_reuse_the_plan),
    TEST(rule_08_view_offsets_are_arguments_too),
    TEST(rule_08_sizes_and_strides_are_in_the_key),
    TEST(rule_08_random_counters_are_taken_at_recording),
    TEST(rule_08_recomputed_randomness_changes_nothing),
    TEST_END,
};
