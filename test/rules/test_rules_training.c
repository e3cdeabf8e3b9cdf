// test_rules_training.c: the rules of meaning, where networks, optimizers and datasets are
// concerned; those that no other file of theirs has.
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"

#include <pthread.h>
#include <setjmp.h>
#include <string.h>

// ---- what is trained

typedef struct {
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    tn_data  *data;
} training;

static training make(tn_ctx *cx)
{
    tn_scope        *s        = tn_begin(cx);
    tn_tensor *const fields[] = { tn_view(rules_ramp(cx, 16), TN_SHAPE(8, 2)),
                                  tn_zeros(cx, TN_I64, TN_SHAPE(8)) };
    training t = { .cx = cx, .net = tn_nn_linear(cx, 2, 3), .data = tn_arrays(cx, 2, fields) };
    t.opt      = tn_sgd(t.net, (tn_sgd_opts){ .lr = 0.1f, .momentum = 0.9f });
    tn_end(s);
    CHECK(t.net && t.opt && t.data);
    return t;
}

static tn_status step(const training *t)
{
    tn_scope *s      = tn_begin(t->cx);
    tn_batch  b      = tn_next(t->data, 4);
    tn_status status = tn_step(t->opt, tn_cross_entropy(tn_forward(t->net, b.x), b.y));
    tn_end(s);
    return status;
}

static tn_tensor *weight(const training *t)
{
    return tn_layer_find(t->net, "weight");
}

// ---- 3: who owns what

static void rule_03_what_a_scope_made_besides_tensors_outlives_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        training t = make(cx);  // in a scope of its own
        for (int i = 0; i < 3; i++) CHECK_STATUS(step(&t), TN_OK);
        CHECK_INT(tn_optim_updates(t.opt), 3);
        CHECK_INT(tn_data_cursor(t.data).epoch, 1);
    }
}

static void rule_03_freeing_is_optional_and_in_any_order(void)
{
    for (int order = 0; order < 8; order++) {
        faulty  h  = { 0 };
        tn_ctx *cx = faulty_open("cpu", &h);
        CHECK(scratch_open());
        training   t = make(cx);
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = tn_want(tn_forward(t.net, tn_next(t.data, 4).x));
        CHECK_STATUS(tn_save(t.net, scratch_path("a")), TN_OK);
        tn_file   *f = tn_file_open(cx, scratch_path("a"));
        tn_tensor *w = tn_file_tensor(f, "weight");
        if (order & 1) tn_layer_free(t.net);
        if (order & 2) tn_data_free(t.data);
        if (order & 4) tn_file_free(f);
        if (order & 1) CHECK_STATUS(tn_step(t.opt, tn_mean_all(y)), TN_OK);  // it keeps them
        if (order & 2) tn_optim_free(t.opt);
        double v[12];
        CHECK_STATUS(tn_read(y, TN_F64, v, 12), TN_OK);
        CHECK_STATUS(tn_read(w, TN_F64, v, 6), TN_OK);
        tn_end(s);
        CHECK_STR(tn_error_text(cx), "");
        tn_close(cx);
        CHECK_INT(faulty_left(&h), 0);
        scratch_close();
    }
}

// ---- 14: sharing

static void rule_14_a_parameter_in_two_optimizers_counts_once_in_each(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w    = tn_from(cx, TN_F64, TN_SHAPE(1), (double[]){ 1 });
        tn_tensor *p[2] = { w, w };
        tn_layer  *both = tn_layer_of(cx, 2, p);
        tn_optim  *slow = tn_sgd(both, (tn_sgd_opts){ .lr = 0.25f });
        tn_optim  *fast = tn_sgd(both, (tn_sgd_opts){ .lr = 0.5f });
        CHECK_STATUS(tn_step(slow, tn_sum_all(w)), TN_OK);
        CHECK_VALUES(w, 0.75);
        CHECK_STATUS(tn_step(fast, tn_sum_all(w)), TN_OK);
        CHECK_VALUES(w, 0.25);
        tn_optim_free(slow);
        CHECK_STATUS(tn_step(fast, tn_sum_all(w)), TN_OK);
        CHECK_VALUES(w, -0.25);
    }
}

// ---- 16: NULL

static void rule_16_a_step_of_null_gives_the_first_errors_code(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        training   t = make(cx);
        tn_tensor *x = rules_ramp(cx, 3);
        CHECK_STATUS(tn_step(t.opt, tn_mean_all(tn_forward(t.net, x))), TN_ESHAPE);
        CHECK_FAILED(cx, TN_ESHAPE, "linear");
        CHECK_STATUS(tn_step(t.opt, NULL), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "step: the loss is NULL");
        CHECK_STATUS(tn_step(NULL, tn_sum_all(weight(&t))), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "step: the optimizer is NULL");
        tn_error_clear(NULL);  // of the chain above, which had no context
        CHECK_STATUS(tn_step(NULL, NULL), TN_EARG);
        CHECK_FAILED(NULL, TN_EARG, "step: the optimizer is NULL");
        CHECK_INT(tn_optim_updates(t.opt), 0);
        CHECK_STATUS(step(&t), TN_OK);
    }
}

static void rule_16_a_batch_of_null_is_nulls(void)
{
    tn_batch b = tn_next(NULL, 4);
    CHECK_FAILED(NULL, TN_EARG, "next: the dataset is NULL");
    CHECK(!b.x && !b.y && !b.more[0] && !b.more[5] && b.count == 0 && !b.last);
    CHECK(tn_idx(NULL, "nowhere", false) == NULL);
    CHECK(tn_next(tn_idx(NULL, "nowhere", false), 4).x == NULL);
    CHECK_FAILED(NULL, TN_EARG, "idx: ");  // the first reason stays
}

// A chain from a network that could not be made to its step: one error, of what went wrong.
static void rule_16_a_network_that_failed_passes_on_as_null(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *net = tn_nn_seq(cx, tn_nn_linear(cx, 2, 3), tn_nn_linear(cx, 3, -1));
        tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ 0 });
        CHECK(!net && !opt);
        CHECK(tn_forward(net, rules_ramp(cx, 2)) == NULL);
        CHECK(tn_step(opt, tn_mean_all(tn_forward(net, rules_ramp(cx, 2)))) != TN_OK);
        CHECK_FAILED2(cx, TN_EARG, "linear", "-1");
        tn_error_clear(NULL);
    }
}

// ---- 17: handlers that jump

typedef struct {
    jmp_buf out;
    int     calls;
    char    file[256], text[256];
} jump;

static void leap(tn_ctx *cx, const tn_fault *f, void *user)
{
    jump *j = user;
    (void)cx;
    j->calls++;
    snprintf(j->file, sizeof j->file, "%s", f->file);
    snprintf(j->text, sizeof j->text, "%s", f->text);
    longjmp(j->out, 1);
}

static tn_tensor *failing_forward(tn_layer *l, tn_tensor *x)
{
    (void)l;
    tn_tensor *y = tn_softmax(x, 0);
    return tn_matmul(y, tn_ones(tn_ctx_of(x), TN_F32, TN_SHAPE(99)));
}

static int failing_item(void *user, int64_t i, void *const *dst)
{
    (void)user, (void)dst;
    return i == 2;
}

static void fail_in(const training *t, int which)
{
    tn_ctx        *cx  = t->cx;
    tn_tensor     *x   = tn_ones(cx, TN_F32, TN_SHAPE(2, 2));
    tn_dataset_def def = { .count = 4, .fields = 1, .get = failing_item };
    def.field[0]       = (tn_array){ .dtype = TN_U8 };
    tn_data *items     = tn_dataset(cx, def);
    tn_data_shuffle(items, false, 0);
    rules_fail = which == 0;
    if (which == 0) tn_step(t->opt, tn_mean_all(tn_forward(t->net, rules_double(x))));
    if (which == 1) tn_step(t->opt, tn_sum_all(x));  // made from none of the parameters
    if (which == 2) tn_forward(tn_layer_new(cx, failing_forward, NULL, NULL), x);
    if (which == 3) tn_next(items, 4);
    if (which == 4) tn_load(t->net, "/no/such/file");
    if (which == 5) tn_nn_seq(cx, t->net, NULL);
}

static void rule_17_a_handler_may_longjmp_out_of_training(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        training t = make(cx);
        CHECK_STATUS(step(&t), TN_OK);
        for (volatile int which = 0; which < 6; which++) {
            static jump j;
            double      before[6], after[6];
            j = (jump){ .calls = 0 };
            CHECK_STATUS(tn_read(weight(&t), TN_F64, before, 6), TN_OK);
            tn_on_error(cx, leap, &j);
            tn_scope *volatile s = tn_begin(cx);
            if (!setjmp(j.out)) {
                tn_begin(cx);
                fail_in(&t, which);
                test_that(false, "call %d did not fail", which);
            }
            rules_fail = false;
            CHECK_INT(j.calls, 1);
            CHECK_STR(j.file, __FILE__);
            CHECK(j.text[0] != 0);
            tn_error_clear(cx);
            tn_on_error(cx, NULL, NULL);
            CHECK_STATUS(tn_end(s), TN_OK);
            CHECK_STATUS(tn_read(weight(&t), TN_F64, after, 6), TN_OK);
            CHECK(!memcmp(before, after, sizeof before));
        }
        CHECK_STATUS(step(&t), TN_OK);
        CHECK_INT(tn_optim_updates(t.opt), 2);
    }
}

// ---- 18: a failed step

static void rule_18_a_failed_step_of_a_loader_goes_on_with_the_next_batch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        training t = make(cx);
        tn_data_shuffle(t.data, false, 0);
        CHECK_STATUS(step(&t), TN_OK);
        tn_scope *s = tn_begin(cx);
        tn_batch  b = tn_next(t.data, 2);
        CHECK_INT(b.index, 4);
        rules_fail = true;
        CHECK_STATUS(tn_step(t.opt, tn_mean_all(tn_forward(t.net, rules_double(b.x)))), TN_EUSER);
        rules_fail = false;
        CHECK_FAILED(cx, TN_EUSER, "twice");
        CHECK_VALUES(b.x, 9, 10, 11, 12);  // borrowed, so never lost
        tn_end(s);
        b = tn_next(t.data, 2);
        CHECK_INT(b.index, 6);
        CHECK_VALUES(b.x, 13, 14, 15, 16);
        CHECK_INT(tn_optim_updates(t.opt), 1);
        CHECK_STATUS(step(&t), TN_OK);
    }
}

// ---- 19: threads

static void *train_there(void *arg)
{
    training *t = arg;
    if (tn_ctx_enter(t->cx) != TN_OK) return NULL;
    bool ok = true;
    for (int i = 0; i < 4; i++) ok &= step(t) == TN_OK;
    training more = make(t->cx);
    ok &= step(&more) == TN_OK;
    tn_layer_free(more.net);
    tn_data_free(more.data);
    ok &= tn_ctx_leave(t->cx) == TN_OK;
    return ok ? arg : NULL;
}

// The numbers are those of a training that stays.
static void rule_19_a_training_moves_with_its_context(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double     there[6], here[6];
        pthread_t  thread;
        void      *ok = NULL;
        training   t = make(cx), same = make(cx);
        tn_tensor *w = weight(&same), *b = tn_layer_find(same.net, "bias");
        bool       mode = tn_grad_mode(cx, false);
        tn_assign(w, weight(&t));
        tn_assign(b, tn_layer_find(t.net, "bias"));
        tn_grad_mode(cx, mode);
        tn_data_shuffle(t.data, true, 3);
        tn_data_shuffle(same.data, true, 3);
        for (int i = 0; i < 6; i++) CHECK_STATUS(step(&same), TN_OK);

        CHECK_STATUS(step(&t), TN_OK);
        CHECK_STATUS(tn_ctx_leave(cx), TN_OK);
        CHECK_STATUS(tn_step(t.opt, NULL), TN_ETHREAD);
        tn_error_clear(NULL);
        if (CHECK(!pthread_create(&thread, NULL, train_there, &t))) pthread_join(thread, &ok);
        CHECK(ok != NULL);
        CHECK_STATUS(tn_ctx_enter(cx), TN_OK);
        CHECK_STATUS(step(&t), TN_OK);
        CHECK_STATUS(tn_read(weight(&t), TN_F64, there, 6), TN_OK);
        CHECK_STATUS(tn_read(w, TN_F64, here, 6), TN_OK);
        CHECK(!memcmp(there, here, sizeof here));
    }
}

// ---- 21: batches

static void rule_21_images_are_f32_from_0_to_1_and_labels_i64(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_data *d = tn_digits(cx, (tn_digits_opts){ .count = 10 });
        tn_batch b = tn_next(d, 4);
        CHECK(tn_dtype_of(b.x) == TN_F32 && tn_dtype_of(b.y) == TN_I64);
        CHECK(tn_rank(b.x) == 4 && tn_size(b.x, 1) == 1 && tn_size(b.x, 3) == 28);
        CHECK(tn_item(tn_min_all(b.x)) >= 0 && tn_item(tn_max_all(b.x)) <= 1);
        CHECK(tn_item(tn_max_all(b.x)) > 0.5);
        CHECK(tn_item(tn_min_all(b.y)) >= 0 && tn_item(tn_max_all(b.y)) <= 9);
    }
}

const test_case tests_rules_training[] = {
    TEST(rule_03_what_a_scope_made_besides_tensors_outlives_it),
    TEST(rule_03_freeing_is_optional_and_in_any_order),
    TEST(rule_14_a_parameter_in_two_optimizers_counts_once_in_each),
    TEST(rule_16_a_step_of_null_gives_the_first_errors_code),
    TEST(rule_16_a_batch_of_null_is_nulls),
    TEST(rule_16_a_network_that_failed_passes_on_as_null),
    TEST(rule_17_a_handler_may_longjmp_out_of_training),
    TEST(rule_18_a_failed_step_of_a_loader_goes_on_with_the_next_batch),
    TEST(rule_19_a_training_moves_with_its_context),
    TEST(rule_21_images_are_f32_from_0_to_1_and_labels_i64),
    TEST_END,
};
