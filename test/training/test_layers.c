// test_layers.c: the tree of layers: a user's own layers, names, ownership, modes, ties, and what
// happens when something is wrong or memory is out.
#include "rules_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- a user's own layer ------------------------------------------------------------------------

// A layer's function, or what is told of its tensors, that pulls the rug from under it.
static tn_tensor *frees_its_layer(tn_layer *l, tn_tensor *x)
{
    tn_layer_free(tn_layer_self(l));
    return tn_mul_s(x, 2);
}

static tn_tensor *closes_its_context(tn_layer *l, tn_tensor *x)
{
    tn_close(tn_layer_ctx(l));
    return tn_mul_s(x, 2);
}

static tn_tensor *runs_itself(tn_layer *l, tn_tensor *x)
{
    return tn_forward(l, x);
}

static void frees_a_layer(const char *name, tn_tensor *t, void *layer)
{
    (void)name;
    (void)t;
    tn_layer_free(layer);
}

static void closes_a_context(void *cx)
{
    tn_close(cx);
}

static void releases_and_closes(void *data, void *cx)
{
    (void)data;
    tn_close(cx);
}

static void what_a_call_uses_cannot_be_freed_inside_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = rules_ramp(cx, 2);
        tn_layer  *net = tn_nn_seq(cx, tn_layer_new(cx, closes_its_context, NULL, NULL));
        CHECK_VALUES(tn_forward(net, x), 2, 4);
        CHECK_FAILED(cx, TN_EARG, "close: a call of this context is in progress");
        CHECK(tn_layer_child(net, "frees", tn_layer_new(cx, frees_its_layer, net, NULL)) != NULL);
        CHECK_VALUES(tn_forward(tn_layer_new(cx, frees_its_layer, net, NULL), x), 2, 4);
        CHECK_STATUS(tn_error(cx), TN_OK);  // net was not running

        net = tn_nn_linear(cx, 2, 2);
        CHECK(tn_layer_child(net, "frees", tn_layer_new(cx, frees_its_layer, net, NULL)) != NULL);
        CHECK_STATUS(tn_layer_each(net, frees_a_layer, net), TN_OK);
        CHECK_FAILED(cx, TN_EARG, "layer_free: a call that uses the layer is in progress");
        CHECK(tn_forward(tn_layer_new(cx, runs_itself, NULL, NULL), x) == NULL);
        CHECK_FAILED(cx, TN_EARG, "forward: 1000 calls inside one another");

        tn_layer_free(tn_layer_new(cx, runs_itself, cx, closes_a_context));
        CHECK_FAILED(cx, TN_EARG, "close: a call");
        tn_drop(tn_borrow(cx, TN_F32, TN_SHAPE(1), &(float){ 1 }, releases_and_closes, cx));
        CHECK_FAILED(cx, TN_EARG, "close: a call");
        CHECK(tn_forward(net, x) != NULL);
    }
}

// y = scale * inner(x), with a tensor remembered from the last call.
typedef struct {
    tn_layer  *inner;
    tn_tensor *scale, *seen;
    int       *freed;
} scaled;

static tn_tensor *scaled_forward(tn_layer *l, tn_tensor *x)
{
    scaled *s = tn_layer_self(l);
    s->seen   = tn_mul_s(tn_forward(s->inner, x), 2);
    return tn_mul(tn_forward(s->inner, x), s->scale);
}

static void scaled_free(void *self)
{
    scaled *s = self;
    ++*s->freed;
    free(s);
}

static tn_layer *make_scaled(tn_ctx *cx, int *freed)
{
    scaled *s     = calloc(1, sizeof *s);
    s->freed      = freed;
    tn_layer *l   = tn_layer_new(cx, scaled_forward, s, scaled_free);
    s->scale      = tn_layer_param(l, "scale", tn_full(cx, TN_F32, TN_SHAPE(2), 3));
    s->inner      = tn_layer_child(l, "inner", tn_nn_linear(cx, 2, 2));
    tn_tensor *up = tn_layer_buffer(l, "calls", tn_zeros(cx, TN_I64, TN_0D));
    CHECK(l && s->scale && s->inner && up);
    return l;
}

static void set(tn_layer *l, const char *name, int n, const float *v)
{
    tn_tensor *t    = tn_layer_find(l, name);
    tn_ctx    *cx   = tn_layer_ctx(l);
    bool       mode = tn_grad_mode(cx, false);
    tn_assign(t, tn_reshape(tn_from(cx, TN_F32, TN_SHAPE(n), v), tn_rank(t),
                            (int64_t[]){ tn_size(t, 0), tn_size(t, -1) }));
    tn_grad_mode(cx, mode);
}

static void a_layer_from_a_struct_and_a_function_trains_like_ours(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        int       freed = 0;
        tn_layer *l     = make_scaled(cx, &freed);
        set(l, "inner.weight", 4, (float[]){ 1, 0, 0, 2 });
        set(l, "inner.bias", 2, (float[]){ 0, 1 });
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = tn_forward(l, tn_reshape(rules_ramp(cx, 2), TN_SHAPE(1, 2)));
        CHECK_VALUES(y, 3, 15);
        CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
        CHECK_VALUES(((scaled *)tn_layer_self(l))->seen, 2, 10);  // made inside, and still alive
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_VALUES(tn_grad_of(tn_layer_find(l, "scale")), 1, 5);
        CHECK_VALUES(tn_grad_of(tn_layer_find(l, "inner.weight")), 3, 6, 3, 6);
        CHECK_INT(tn_layer_count(l), 8);
        tn_layer_free(l);
        CHECK_INT(freed, 1);
    }
}

static double last_item;

static void read_last(void *self)
{
    last_item = tn_item(tn_add_s(self, 1));
}

static void what_frees_a_layer_may_evaluate_while_its_context_closes(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *t  = tn_full(cx, TN_F32, TN_SHAPE(1), 41);
    CHECK(tn_layer_new(cx, runs_itself, t, read_last) != NULL);
    tn_close(cx);
    CHECK_NEAR(last_item, 42, 0);
}

static void self_is_freed_once_also_when_making_fails(void)
{
    int     freed = 0;
    tn_ctx *cx    = rules_open("cpu");
    make_scaled(cx, &freed);
    tn_layer *child = make_scaled(cx, &freed);
    tn_nn_seq(cx, child);
    CHECK_INT(freed, 0);
    scaled *s = calloc(1, sizeof *s);
    s->freed  = &freed;
    CHECK(tn_layer_new_n(cx, NULL, (tn_layer_counts){ 0 }, s, scaled_free) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_new_n: the function is NULL");
    CHECK_INT(freed, 1);
    s        = calloc(1, sizeof *s);
    s->freed = &freed;
    CHECK(tn_layer_new(NULL, scaled_forward, s, scaled_free) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "layer_new: the context is NULL");
    CHECK_INT(freed, 2);
    tn_close(cx);
    CHECK_INT(freed, 4);
}

static tn_tensor *gives_nothing(tn_layer *l, tn_tensor *x)
{
    (void)l;
    (void)x;
    return NULL;
}

static void a_function_that_gives_nothing_is_reported(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l  = tn_layer_new(cx, gives_nothing, NULL, NULL);
    CHECK(tn_forward(tn_nn_seq(cx, l, tn_nn_act(cx, tn_relu)), rules_ramp(cx, 2)) == NULL);
    CHECK_FAILED(cx, TN_EUSER, "forward: the layer's function returned no tensor");
    tn_close(cx);
}

// ---- names -------------------------------------------------------------------------------------

static void join(const char *name, tn_tensor *t, void *user)
{
    char *names = user;
    CHECK(t != NULL);
    strcat(strcat(names, name), " ");
}

static const char *names_of(tn_layer *l)
{
    static char names[1024];
    names[0] = 0;
    CHECK_STATUS(tn_layer_each(l, join, names), TN_OK);
    return names;
}

static void names_nest_with_dots_in_order(void)
{
    int       freed = 0;
    tn_ctx   *cx    = rules_open("cpu");
    tn_layer *l     = tn_nn_seq(cx, tn_nn_conv2d(cx, 1, 2, 3), tn_nn_batch_norm(cx, 2),
                                tn_nn_seq(cx, tn_nn_flatten(cx), make_scaled(cx, &freed)));
    CHECK_STR(names_of(l),
              "0.weight 0.bias 1.weight 1.bias 1.running_mean 1.running_var "
              "1.num_batches_tracked 2.1.scale 2.1.calls 2.1.inner.weight 2.1.inner.bias ");
    CHECK_INT(tn_size(tn_layer_find(l, "2.1.inner.weight"), 0), 2);
    CHECK(tn_layer_find(l, "2.1.inner.none") == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_find: there is no parameter or buffer \"2.1.inner.none\"");
    CHECK(tn_layer_find(l, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_find: the name is NULL");
    CHECK_STATUS(tn_layer_each(l, NULL, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "layer_each: ");
    tn_close(cx);
}

static void names_are_unique_and_none_of_their_parts_is_empty(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_layer  *l = tn_nn_linear(cx, 2, 2), *child = tn_nn_flatten(cx);
    tn_tensor *t = tn_ones(cx, TN_F32, TN_SHAPE(1));
    CHECK(tn_layer_param(l, "weight", t) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_param: the layer has a \"weight\" already");
    CHECK(tn_layer_buffer(l, "bias", t) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_buffer: the layer has a \"bias\" already");
    CHECK(tn_layer_child(l, "weight", child) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_child: the layer has a \"weight\" already");
    CHECK(tn_layer_param(l, "a..b", t) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\"a..b\" is not a name: a part of it is empty");
    CHECK(tn_layer_param(l, ".b", t) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\".b\" is not a name: a part of it is empty");
    CHECK(tn_layer_param(l, "a.", t) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\"a.\" is not a name: a part of it is empty");
    CHECK(tn_layer_child(l, "", child) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\"\" is not a name");
    CHECK_STR(names_of(l), "weight bias ");
    CHECK_VALUES(t, 1);
    tn_layer_free(child);
    tn_close(cx);
}

// ---- ownership ---------------------------------------------------------------------------------

static void rule_03_layers_made_in_a_scope_outlive_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        int        freed = 0;
        tn_scope  *outer = tn_begin(cx), *inner = tn_begin(cx);
        tn_layer  *l    = make_scaled(cx, &freed);
        tn_tensor *x    = tn_ones(cx, TN_F32, TN_SHAPE(1, 2));
        double     want = tn_item(tn_sum_all(tn_forward(l, x)));
        CHECK_STATUS(tn_end(inner), TN_OK);
        CHECK_STATUS(tn_end(outer), TN_OK);
        x = tn_ones(cx, TN_F32, TN_SHAPE(1, 2));
        CHECK_NEAR(tn_item(tn_sum_all(tn_forward(l, x))), want, 1e-6);
        CHECK_VALUES(tn_layer_find(l, "scale"), 3, 3);
        CHECK_INT(freed, 0);
        tn_layer_free(l);
        CHECK_INT(freed, 1);
    }
}

static void rule_03_parameters_never_read_outlive_scopes_and_steps(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope *s = tn_begin(cx);
        tn_layer *l = tn_nn_seq(cx, tn_nn_linear(cx, 50, 40), tn_nn_batch_norm(cx, 40));
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        s = tn_begin(cx);
        tn_forward(l, tn_ones(cx, TN_F32, TN_SHAPE(2, 50)));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK(tn_item(tn_norm_all(tn_layer_find(l, "0.weight"))) > 0);
        CHECK_VALUES(tn_layer_find(l, "1.num_batches_tracked"), 1);
    }
}

static void rule_03_a_child_belongs_to_its_parent(void)
{
    tn_ctx   *cx = rules_open("cpu"), *other = rules_open("cpu");
    tn_layer *a = tn_nn_linear(cx, 2, 2), *net = tn_nn_seq(cx, a), *b = tn_nn_flatten(other);
    tn_layer_free(a);
    CHECK_FAILED(cx, TN_EARG, "layer_free: the layer belongs to its parent");
    CHECK(tn_layer_child(tn_nn_flatten(cx), "a", a) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\"a\" has a parent already");
    CHECK(tn_layer_child(a, "net", net) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\"net\" would be its own child");
    CHECK(tn_layer_child(a, "b", b) == NULL);
    CHECK_FAILED(cx, TN_EARG, "\"b\" belongs to another context");
    CHECK(tn_layer_child(a, "none", NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_child: \"none\" is NULL");
    tn_layer_free(net);
    tn_layer_free(NULL);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
    tn_close(other);
}

static void a_layer_takes_the_tensor_over(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_layer  *l  = tn_nn_flatten(cx);
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *t = rules_ramp(cx, 4), *p = tn_layer_param(l, "t", t);
    CHECK(p == t && tn_needs_grad(t));
    tn_drop(t);
    CHECK_FAILED(cx, TN_EARG, "drop: t (4,) belongs to");
    // What is not a value of its own is copied.
    tn_tensor *view = tn_layer_param(l, "view", tn_slice(rules_ramp(cx, 4), 0, 1, 3, 1));
    tn_tensor *made = tn_layer_buffer(l, "made", tn_mul_s(t, 2));
    tn_end(s);
    CHECK_VALUES(t, 1, 2, 3, 4);
    CHECK_VALUES(view, 2, 3);
    CHECK_VALUES(made, 2, 4, 6, 8);
    CHECK(!tn_is_view(view) && tn_needs_grad(view) && !tn_needs_grad(made));
    CHECK(tn_layer_param(l, "i", tn_zeros(cx, TN_I64, TN_SHAPE(1))) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "not a float type");
    CHECK(tn_layer_param(l, "n", NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_param: \"n\" is NULL");
    CHECK_STR(names_of(l), "t view made ");
    tn_close(cx);
}

static void run_once(tn_ctx *cx, tn_layer *net)
{
    tn_scope *s = tn_begin(cx);
    CHECK_STATUS(tn_backward(tn_sum_all(tn_forward(net, tn_ones(cx, TN_F32, TN_SHAPE(2, 3, 8)))),
                             NULL),
                 TN_OK);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STATUS(tn_end(s), TN_OK);
}

// In one scope: whatever a constructor left there would add up.
static void building_running_and_freeing_leaves_nothing(void)
{
    tn_ctx   *cx    = rules_open("cpu");
    tn_stats  first = { 0 };
    tn_scope *s     = tn_begin(cx);
    for (int i = 0; i < 1000; i++) {
        int       freed = 0;
        tn_layer *net   = tn_nn_seq(cx, tn_nn_linear(cx, 8, 8), tn_nn_layer_norm(cx, 8),
                                    tn_nn_rms_norm(cx, 8), tn_nn_transformer_block(cx, 8, 2),
                                    tn_nn_residual(cx, tn_nn_act(cx, tn_gelu)),
                                    tn_nn_dropout(cx, 0.1));
        if (i % 10 == 0) run_once(cx, net);
        tn_layer_free(net);
        tn_layer_free(tn_nn_seq(cx, tn_nn_conv2d(cx, 2, 4, 3), tn_nn_batch_norm(cx, 4),
                                tn_nn_group_norm(cx, 2, 4), tn_nn_conv1d(cx, 1, 1, 1),
                                tn_nn_embedding(cx, 4, 4), tn_nn_max_pool2d(cx, 2)));
        tn_scope *inner = tn_begin(cx);  // what the user makes for a layer is the user's scope's
        tn_layer_free(make_scaled(cx, &freed));
        tn_end(inner);
        CHECK_INT(freed, 1);
        if (i == 10) first = tn_ctx_stats(cx);
    }
    CHECK_INT(tn_ctx_stats(cx).nodes, first.nodes);
    CHECK_INT(tn_ctx_stats(cx).bytes, first.bytes);
    CHECK_STATUS(tn_end(s), TN_OK);
    tn_close(cx);
}

static void constructors_leave_no_nodes_in_the_scope(void)
{
    tn_ctx   *cx     = rules_open("cpu");
    tn_scope *s      = tn_begin(cx);
    int64_t   before = tn_ctx_stats(cx).nodes;
    tn_layer_free(tn_nn_linear(cx, 2, 2));
    tn_layer_free(tn_nn_batch_norm(cx, 2));
    tn_layer_free(tn_nn_embedding(cx, 2, 2));
    tn_layer_free(tn_nn_transformer_block(cx, 4, 2));
    CHECK_INT(tn_ctx_stats(cx).nodes, before);
    tn_end(s);
    tn_close(cx);
}

static void freeing_a_layer_frees_its_memory(void)
{
    tn_ctx   *cx     = rules_open("cpu");
    int64_t   before = tn_ctx_stats(cx).bytes;
    tn_layer *l      = tn_nn_linear(cx, 1000, 1000);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK(tn_ctx_stats(cx).bytes - before >= 4000000);
    tn_layer_free(l);
    CHECK(tn_ctx_stats(cx).bytes - before < 100000);
    tn_close(cx);
}

// ---- ties --------------------------------------------------------------------------------------

static tn_tensor *tied_forward(tn_layer *l, tn_tensor *x)
{
    tn_tensor *w = tn_layer_find(l, "embed.weight");
    return tn_matmul(tn_embed(x, w), tn_transpose(w, 0, 1));
}

static void rule_14_tied_parameters_count_once_under_their_first_name(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *l     = tn_layer_new(cx, tied_forward, NULL, NULL);
        tn_layer  *embed = tn_layer_child(l, "embed", tn_nn_embedding(cx, 3, 2));
        tn_layer  *head  = tn_layer_child(l, "head", tn_layer_new(cx, tied_forward, NULL, NULL));
        tn_tensor *w     = tn_layer_find(embed, "weight");
        CHECK(tn_layer_param(head, "weight", w) == w);
        CHECK_STR(names_of(l), "embed.weight ");
        CHECK_INT(tn_layer_count(l), 6);
        CHECK(tn_layer_find(l, "head.weight") == w);

        tn_tensor *index = tn_from(cx, TN_I64, TN_SHAPE(1), (int64_t[]){ 1 });
        set(l, "embed.weight", 6, (float[]){ 1, 2, 3, 4, 5, 6 });
        CHECK_STATUS(tn_backward(tn_sum_all(tn_forward(l, index)), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 3, 4, 3 + 9, 4 + 12, 3, 4);  // both ways deposit
    }
}

static void a_tied_tensor_lives_with_its_last_layer(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_layer  *a = tn_nn_flatten(cx), *b = tn_nn_flatten(cx);
    tn_tensor *t = tn_layer_param(a, "t", rules_ramp(cx, 2));
    CHECK(tn_layer_buffer(b, "t", t) == t);
    tn_layer_free(a);
    CHECK_VALUES(tn_layer_find(b, "t"), 1, 2);
    tn_layer_free(b);
    tn_close(cx);
}

static void layer_of_holds_bare_tensors(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_tensor *p[] = { rules_ramp(cx, 2), rules_ramp(cx, 3) };
    tn_layer  *l   = tn_layer_of(cx, 2, p);
    CHECK_STR(names_of(l), "0 1 ");
    CHECK_INT(tn_layer_count(l), 5);
    CHECK(tn_needs_grad(p[1]));
    CHECK(tn_forward(l, p[0]) == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward: the layer has no function: it only holds");
    CHECK(tn_layer_of(cx, 0, p) == NULL);
    CHECK_FAILED(cx, TN_EARG, "layer_of: there are no tensors");
    tn_close(cx);
}

// ---- modes -------------------------------------------------------------------------------------

static void modes_reach_all_layers_below(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *a = tn_nn_dropout(cx, 0.5), *inner = tn_nn_seq(cx, a), *net = tn_nn_seq(cx, inner);
    CHECK(tn_layer_training(net) && tn_layer_training(a));
    tn_layer_train(net, false);
    CHECK(!tn_layer_training(net) && !tn_layer_training(inner) && !tn_layer_training(a));
    tn_layer_train(inner, true);
    CHECK(!tn_layer_training(net) && tn_layer_training(a));
    CHECK(!tn_layer_training(NULL));
    tn_close(cx);
}

static void frozen_parameters_take_no_gradient(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *a = tn_nn_linear(cx, 2, 2), *b = tn_nn_linear(cx, 2, 1);
        tn_layer *net = tn_nn_seq(cx, a, b);
        tn_layer_freeze(a, true);
        tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(1, 2));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_forward(net, x)), NULL), TN_OK);
        CHECK(!tn_needs_grad(tn_layer_find(a, "weight")));
        CHECK(tn_has_grad(tn_layer_find(b, "weight")));
        CHECK_INT(tn_layer_count(net), 9);
        tn_layer_freeze(net, false);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_forward(net, x)), NULL), TN_OK);
        CHECK(tn_has_grad(tn_layer_find(a, "bias")));
    }
}

static void a_cast_changes_floats_alone_and_keeps_their_values(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *l = tn_nn_seq(cx, tn_nn_linear(cx, 2, 2), tn_nn_batch_norm(cx, 2));
        tn_tensor *w = tn_layer_find(l, "0.weight"), *n = tn_layer_find(l, "1.num_batches_tracked");
        set(l, "0.weight", 4, (float[]){ 1, 2, 3, 4 });
        CHECK_STATUS(tn_layer_cast(l, TN_F64), TN_OK);
        CHECK_INT(tn_dtype_of(w), TN_F64);
        CHECK_INT(tn_dtype_of(tn_layer_find(l, "1.running_var")), TN_F64);
        CHECK_INT(tn_dtype_of(n), TN_I64);
        CHECK_VALUES(w, 1, 2, 3, 4);
        tn_tensor *y = tn_forward(l, tn_randn(cx, TN_F64, TN_SHAPE(3, 2)));
        CHECK_INT(tn_dtype_of(y), TN_F64);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(y, y)), NULL), TN_OK);
        CHECK_INT(tn_dtype_of(tn_grad_of(w)), TN_F64);
        CHECK_STATUS(tn_layer_cast(l, TN_BF16), TN_OK);
        CHECK_VALUES(w, 1, 2, 3, 4);
        CHECK_STATUS(tn_layer_cast(l, TN_I32), TN_EDTYPE);
        CHECK_FAILED(cx, TN_EDTYPE, "layer_cast: i32 is not a float type");
        CHECK_INT(tn_dtype_of(w), TN_BF16);
    }
}

// ---- running -----------------------------------------------------------------------------------

static void forward_in_scopes_does_not_grow(void)
{
    tn_ctx   *cx    = rules_open("cpu");
    tn_layer *net   = tn_nn_seq(cx, tn_nn_linear(cx, 4, 4), tn_nn_batch_norm(cx, 4),
                                tn_nn_act(cx, tn_relu), tn_nn_dropout(cx, 0.5));
    tn_stats  first = { 0 };
    for (int i = 0; i < 50; i++) {
        tn_scope *s = tn_begin(cx);
        tn_forward(net, tn_randn(cx, TN_F32, TN_SHAPE(8, 4)));
        CHECK_STATUS(tn_end(s), TN_OK);
        if (i == 10) first = tn_ctx_stats(cx);
    }
    CHECK_INT(tn_ctx_stats(cx).nodes, first.nodes);
    CHECK_INT(tn_ctx_stats(cx).bytes, first.bytes);
    CHECK_VALUES(tn_layer_find(net, "1.num_batches_tracked"), 50);
    tn_close(cx);
}

static void forward_refuses_what_is_missing_or_from_elsewhere(void)
{
    tn_ctx    *cx = rules_open("cpu"), *other = rules_open("cpu");
    tn_layer  *l = tn_nn_flatten(cx);
    tn_tensor *x = rules_ramp(cx, 2);
    CHECK(tn_forward(l, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward: x is NULL");
    CHECK(tn_forward(NULL, x) == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward: the layer is NULL");
    CHECK(tn_forward(NULL, NULL) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "forward: the layer is NULL");
    CHECK(tn_forward(l, rules_ramp(other, 2)) == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward: x belongs to another context");
    CHECK(tn_forward(l, tn_matmul(x, rules_ramp(cx, 3))) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "matmul: ");  // and nothing of forward
    tn_close(cx);
    tn_close(other);
}

// ---- memory that runs out ----------------------------------------------------------------------

// Allocations that are left before one fails, and blocks handed out.
typedef struct {
    int64_t left, live;
} meter;

static void *metered(void *user, void *old, size_t n)
{
    meter *m = user;
    if (n && m->left-- == 0) return NULL;
    if (!n) {
        if (old) m->live--;
        free(old);
        return NULL;
    }
    if (!old) m->live++;
    return realloc(old, n);
}

static bool build_all(tn_ctx *cx)
{
    tn_layer *net = tn_nn_seq(cx, tn_nn_transformer_block(cx, 4, 2), tn_nn_batch_norm(cx, 2),
                              tn_nn_residual(cx, tn_nn_dropout(cx, 0.5)));
    FILE     *f   = tmpfile();
    bool      ok = net && tn_layer_summary(net, tn_ones(cx, TN_F32, TN_SHAPE(1, 2, 4)), f) == TN_OK;
    fclose(f);
    return ok;
}

static void the_nth_allocation_fails_and_nothing_leaks(void)
{
    bool done = false;
    for (int n = 0; n < 3000 && !done; n++) {
        meter   m  = { INT64_MAX, 0 };
        tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .alloc = metered, .user = &m });
        tn_on_error(cx, NULL, &m);
        m.left    = n;
        done      = build_all(cx);
        int64_t r = m.left;
        m.left    = INT64_MAX;
        if (!done) CHECK_STATUS(tn_error(cx), TN_EMEM);
        if (done) CHECK(r >= 0 && n > 20);
        CHECK(tn_nn_linear(cx, 2, 2) != NULL);
        tn_close(cx);
        CHECK(TEST_DEBUG || m.live == 0);
    }
    CHECK(done);
}

const test_case tests_layers[] = {
    TEST(a_layer_from_a_struct_and_a_function_trains_like_ours),
    TEST(what_frees_a_layer_may_evaluate_while_its_context_closes),
    TEST(self_is_freed_once_also_when_making_fails),
    TEST(a_function_that_gives_nothing_is_reported),
    TEST(what_a_call_uses_cannot_be_freed_inside_it),
    TEST(names_nest_with_dots_in_order),
    TEST(names_are_unique_and_none_of_their_parts_is_empty),
    TEST(rule_03_layers_made_in_a_scope_outlive_it),
    TEST(rule_03_parameters_never_read_outlive_scopes_and_steps),
    TEST(rule_03_a_child_belongs_to_its_parent),
    TEST(a_layer_takes_the_tensor_over),
    TEST(building_running_and_freeing_leaves_nothing),
    TEST(constructors_leave_no_nodes_in_the_scope),
    TEST(freeing_a_layer_frees_its_memory),
    TEST(rule_14_tied_parameters_count_once_under_their_first_name),
    TEST(a_tied_tensor_lives_with_its_last_layer),
    TEST(layer_of_holds_bare_tensors),
    TEST(modes_reach_all_layers_below),
    TEST(frozen_parameters_take_no_gradient),
    TEST(a_cast_changes_floats_alone_and_keeps_their_values),
    TEST(forward_in_scopes_does_not_grow),
    TEST(forward_refuses_what_is_missing_or_from_elsewhere),
    TEST(the_nth_allocation_fails_and_nothing_leaks),
    TEST_END,
};
