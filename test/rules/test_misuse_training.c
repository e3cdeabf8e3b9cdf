// test_misuse_training.c: networks, optimizers, datasets and files used where they do not belong:
// with those of another context, on another thread, after a change that does not suit them.
#include "calls.h"
#include "rules_kit.h"
#include "scratch.h"

#include <pthread.h>
#include <stdio.h>

static void check_works(const call_things *has, tn_ctx *cx)
{
    tn_scope *s = tn_begin(cx);
    CHECK_STATUS(tn_step(has->opt,
                         tn_mean_all(tn_forward(has->net, tn_ones(cx, TN_F32, TN_SHAPE(1, 2))))),
                 TN_OK);
    CHECK(tn_next(has->data, 4).x != NULL);
    CHECK(tn_file_tensor(has->file, "t") != NULL);
    tn_end(s);
    CHECK_STR(tn_error_text(cx), "");
}

// ---- another context

static void layers_refuse_what_is_of_another_context(tn_ctx *cx, const call_things *has,
                                                     tn_ctx *other, const call_things *far)
{
    tn_tensor *y = tn_ones(other, TN_F32, TN_SHAPE(2, 2));
    CHECK(tn_forward(has->net, y) == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward: x belongs to another context");
    CHECK(tn_layer_param(has->net, "more", y) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_param: \"more\" belongs to another context");
    CHECK(tn_layer_buffer(has->net, NULL, y) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_buffer: \"\" belongs to another context");
    CHECK(tn_layer_child(has->net, NULL, far->net) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_child: \"\" belongs to another context");
    CHECK(tn_layer_of(cx, 1, &y) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_of: \"0\" belongs to another context");
    CHECK(tn_nn_seq(cx, has->net, far->net) == NULL);
    CHECK_FAILED(cx, TN_EARG, "belongs to another context");
    CHECK(tn_nn_residual(cx, far->net) == NULL);
    CHECK_FAILED(cx, TN_EARG, "belongs to another context");
    CHECK(tn_layer_summary(has->net, y, stderr) == TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "forward: x belongs to another context");
}

static void the_rest_refuses_what_is_of_another_context(tn_ctx *cx, const call_things *has,
                                                        tn_ctx *other, const call_things *far)
{
    tn_tensor *const  both[]  = { tn_ones(cx, TN_F32, TN_SHAPE(2)),
                                  tn_ones(other, TN_F32, TN_SHAPE(2)) };
    const char *const names[] = { "a", "b" };
    const char       *path    = scratch_path("file");
    tn_tensor        *x       = tn_ones(other, TN_F32, TN_SHAPE(1, 2));
    CHECK_STATUS(tn_step(has->opt, tn_mean_all(tn_forward(far->net, x))), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "step: the loss belongs to another context");
    CHECK(tn_arrays(cx, 2, both) == NULL);
    CHECK_FAILED(cx, TN_EARG, "arrays: ");
    CHECK_STATUS(tn_file_write(cx, path, 2, names, both, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "file_write: ");
    for (int i = 0; i < 3; i++) {
        tn_checkpoint c = { .net  = { i == 0 ? far->net : has->net },
                            .opt  = { i == 1 ? far->opt : has->opt },
                            .data = { i == 2 ? far->data : has->data } };
        CHECK_STATUS(tn_checkpoint_save(cx, path, &c), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "checkpoint_save: ");
        CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "checkpoint_load: ");
    }
    CHECK_INT(scratch_count(), 0);
}

static void things_of_two_contexts_do_not_mix(void)
{
    if (!CHECK(scratch_open())) return;
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_ctx     *other = rules_open("cpu");
        call_things has = calls_things(cx), far = calls_things(other);
        layers_refuse_what_is_of_another_context(cx, &has, other, &far);
        the_rest_refuses_what_is_of_another_context(cx, &has, other, &far);
        check_works(&has, cx);
        check_works(&far, other);
        tn_close(other);
    }
    scratch_close();
}

// ---- another thread

static void *free_all(void *arg)
{
    call_things *has = arg;
    tn_layer_free(has->net);
    CHECK_FAILED(NULL, TN_ETHREAD, "layer_free: ");
    tn_optim_free(has->opt);
    CHECK_FAILED(NULL, TN_ETHREAD, "optim_free: ");
    tn_data_free(has->data);
    CHECK_FAILED(NULL, TN_ETHREAD, "data_free: ");
    tn_file_free(has->file);
    CHECK_FAILED(NULL, TN_ETHREAD, "file_free: ");
    tn_dist_close(has->dist);
    CHECK_FAILED(NULL, TN_ETHREAD, "dist_close: ");
    CHECK_INT(tn_layer_count(has->net), 0);
    CHECK_FAILED(NULL, TN_ETHREAD, "layer_count: ");
    return NULL;
}

static void another_thread_frees_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        call_things has = calls_things(cx);
        pthread_t   thread;
        if (CHECK(!pthread_create(&thread, NULL, free_all, &has))) pthread_join(thread, NULL);
        CHECK_INT(tn_layer_count(has.net), 9);
        check_works(&has, cx);
    }
}

// ---- changes

static void a_cast_under_an_optimizer_is_refused_or_works(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        call_things has = calls_things(cx);
        check_works(&has, cx);
        if (tn_layer_cast(has.net, TN_F64) == TN_OK) {
            tn_tensor *y = tn_forward(has.net, tn_ones(cx, TN_F64, TN_SHAPE(1, 2)));
            tn_step(has.opt, tn_mean_all(y));
            tn_step(has.opt, tn_mean_all(tn_forward(has.net, tn_ones(cx, TN_F64, TN_SHAPE(1, 2)))));
        }
        tn_error_clear(cx);
        CHECK_VALUES(tn_add_s(rules_ramp(cx, 2), 1), 2, 3);
    }
}

static void a_parameter_that_is_a_view_cannot_be_cast(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(tn_slice(rules_ramp(cx, 4), 0, 1, 3, 1), true);
        tn_layer  *l = tn_layer_of(cx, 1, &w);
        CHECK(l != NULL);
        CHECK_STATUS(tn_layer_cast(l, TN_F64), TN_EARG);
        CHECK_FAILED2(cx, TN_EARG, "layer_cast: \"0\"", "view");
        CHECK_VALUES(tn_layer_find(l, "0"), 2, 3);
    }
}

// ---- callbacks

static void look(const char *name, tn_tensor *t, void *user)
{
    (void)name;
    tn_tensor *y = tn_std_all(t);
    if (tn_item(y) >= 0) ++*(int *)user;
    tn_drop(y);
}

// What ops make besides their results dies with them, inside a callback too.
static void calls_of_a_callback_leave_nothing_behind(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        call_things has  = calls_things(cx);
        int         seen = 0;
        CHECK_STATUS(tn_layer_each(has.net, look, &seen), TN_OK);
        int64_t before = tn_ctx_stats(cx).nodes;
        CHECK_STATUS(tn_layer_each(has.net, look, &seen), TN_OK);
        CHECK_INT(tn_ctx_stats(cx).nodes, before);
        CHECK_INT(seen, 4);
    }
}

const test_case tests_misuse_training[] = {
    TEST(things_of_two_contexts_do_not_mix),
    TEST(another_thread_frees_nothing),
    TEST(a_cast_under_an_optimizer_is_refused_or_works),
    TEST(a_parameter_that_is_a_view_cannot_be_cast),
    TEST(calls_of_a_callback_leave_nothing_behind),
    TEST_END,
};
