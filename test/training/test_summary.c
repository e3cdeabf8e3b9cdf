// test_summary.c: the table of a network, and that making it changes nothing.
#include "rules_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The summary as text, until the next call.
static const char *summary(tn_layer *l, tn_tensor *x)
{
    static char text[8192];
    FILE       *f = tmpfile();
    if (!f) return "";
    CHECK_STATUS(tn_layer_summary(l, x, f), TN_OK);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static tn_layer *lenet(tn_ctx *cx)
{
    tn_layer *parts[] = { tn_nn_conv2d(cx, 1, 32, 3), tn_nn_batch_norm(cx, 32),
                          tn_nn_act(cx, tn_relu),     tn_nn_max_pool2d(cx, 2),
                          tn_nn_flatten(cx),          tn_nn_linear(cx, 5408, 10) };
    return tn_nn_seq_n(cx, 6, parts);
}

static void the_table_has_names_types_shapes_and_parameters(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        CHECK_STR(summary(lenet(cx), tn_zeros(cx, TN_F32, TN_SHAPE(64, 1, 28, 28))),
                  "Layer            Output shape      Parameters\n"
                  "---------------------------------------------\n"
                  "Sequential       (64, 10)                   -\n"
                  "  0 (Conv2d)     (64, 32, 26, 26)         320\n"
                  "  1 (BatchNorm)  (64, 32, 26, 26)          64\n"
                  "  2 (ReLU)       (64, 32, 26, 26)           0\n"
                  "  3 (MaxPool2d)  (64, 32, 13, 13)           0\n"
                  "  4 (Flatten)    (64, 5408)                 0\n"
                  "  5 (Linear)     (64, 10)              54,090\n"
                  "---------------------------------------------\n"
                  "Total parameters      54,474\n"
                  "Trainable parameters  54,474\n"
                  "Size                  0.22 MB\n");
}

// ---- a user's layers, ties, frozen parts -------------------------------------------------------

static tn_tensor *both_forward(tn_layer *l, tn_tensor *x)
{
    tn_layer **part = tn_layer_self(l);
    return tn_add(tn_forward(part[0], x), tn_forward(part[0], tn_forward(part[0], x)));
}

static void a_users_layer_shows_parts_that_are_tied_frozen_or_not_run(void)
{
    tn_ctx   *cx      = rules_open("cpu");
    tn_layer *part[2] = { tn_nn_linear(cx, 2, 2), tn_nn_flatten(cx) };
    tn_layer *l       = tn_layer_new(cx, both_forward, part, NULL);
    tn_layer_param(l, "scale", tn_ones(cx, TN_F32, TN_SHAPE(1000)));
    tn_layer_child(l, "used", part[0]);
    tn_layer_child(l, "unused", part[1]);
    tn_layer_param(part[1], "weight", tn_layer_find(part[0], "weight"));
    tn_layer_freeze(part[0], true);
    CHECK_STR(summary(l, tn_zeros(cx, TN_F32, TN_SHAPE(3, 2))),
              "Layer               Output shape  Parameters\n"
              "--------------------------------------------\n"
              "Layer               (3, 2)             1,000\n"
              "  used (Linear)     (3, 2)                 6\n"
              "  unused (Flatten)  -                   tied\n"
              "--------------------------------------------\n"
              "Total parameters      1,006\n"
              "Trainable parameters  1,000\n"
              "Size                  0.00 MB\n");
    CHECK(strstr(summary(part[0], tn_zeros(cx, TN_F32, TN_SHAPE(3, 2))), "\nLinear  (3, 2)"));
    tn_close(cx);
}

static void a_deep_network_is_indented(void)
{
    tn_ctx     *cx   = rules_open("cpu");
    tn_layer   *net  = tn_nn_seq(cx, tn_nn_embedding(cx, 9, 8), tn_nn_transformer_block(cx, 8, 2));
    const char *text = summary(net, tn_zeros(cx, TN_I64, TN_SHAPE(2, 5)));
    CHECK(strstr(text, "\n  1 (TransformerEncoderLayer)       (2, 5, 8)              -\n"));
    CHECK(strstr(text, "\n    self_attn (MultiheadAttention)  (2, 5, 8)            216\n"));
    CHECK(strstr(text, "\n      out_proj (Linear)             (2, 5, 8)             72\n"));
    CHECK(strstr(text, "\n    linear1 (Linear)                (2, 5, 32)           288\n"));
    tn_close(cx);
}

// ---- what stays --------------------------------------------------------------------------------

static tn_tensor *noisy_forward(tn_layer *l, tn_tensor *x)
{
    CHECK(!tn_layer_training(l));
    CHECK(!tn_grad_mode(tn_ctx_of(x), false));
    return tn_add(x, rules_double(tn_randn_like(x)));
}

static void it_computes_nothing_and_changes_nothing(void)
{
    tn_ctx    *cx   = rules_open("cpu");
    tn_layer  *drop = tn_nn_dropout(cx, 0.5), *norm = tn_nn_batch_norm(cx, 2);
    tn_layer  *net = tn_nn_seq(cx, tn_layer_new(cx, noisy_forward, NULL, NULL), norm, drop);
    tn_tensor *x   = tn_ones(cx, TN_F32, TN_SHAPE(4, 2));
    tn_layer_train(norm, false);
    tn_seed(cx, 1);
    double want = tn_item(tn_rand(cx, TN_F32, TN_0D));
    tn_seed(cx, 1);
    rules_computed  = 0;
    tn_stats before = tn_ctx_stats(cx);
    summary(net, x);
    tn_stats after = tn_ctx_stats(cx);
    CHECK_INT(rules_computed, 0);
    CHECK_INT(after.launches, before.launches);
    CHECK_INT(after.nodes, before.nodes);
    CHECK_NEAR(tn_item(tn_rand(cx, TN_F32, TN_0D)), want, 0);
    CHECK(tn_layer_training(net) && tn_layer_training(drop) && !tn_layer_training(norm));
    CHECK(tn_grad_mode(cx, true));
    CHECK_VALUES(tn_layer_find(norm, "num_batches_tracked"), 0);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_close(cx);
}

static void it_does_not_flush_however_much_it_records(void)
{
    tn_ctx    *cx  = tn_open_with((tn_open_opts){ .device = "cpu", .flush_nodes = 10 });
    tn_layer  *net = tn_nn_transformer_block(cx, 8, 2);
    tn_tensor *x   = tn_ones(cx, TN_F32, TN_SHAPE(1, 3, 8));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    int64_t before = tn_ctx_stats(cx).launches;
    summary(net, x);
    CHECK_INT(tn_ctx_stats(cx).launches, before);
    tn_close(cx);
}

static void it_fails_as_forward_does_and_restores_the_modes(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = tn_nn_seq(cx, tn_nn_linear(cx, 2, 2));
    CHECK_STATUS(tn_layer_summary(net, tn_ones(cx, TN_F32, TN_SHAPE(1, 3)), stderr), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "linear: ");
    CHECK(tn_layer_training(net) && tn_grad_mode(cx, true));
    CHECK_STATUS(tn_layer_summary(net, NULL, stderr), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "x is NULL");
    CHECK_STATUS(tn_layer_summary(net, tn_ones(cx, TN_F32, TN_SHAPE(1, 2)), NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "layer_summary: the file is NULL");
    CHECK_STATUS(tn_layer_summary(NULL, NULL, stderr), TN_EARG);
    CHECK_FAILED(NULL, TN_EARG, "layer_summary: the layer is NULL");
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        CHECK_STATUS(tn_layer_summary(net, tn_ones(cx, TN_F32, TN_SHAPE(1, 2)), full), TN_EIO);
        CHECK_FAILED(cx, TN_EIO, "layer_summary: ");
        fclose(full);
    }
    tn_close(cx);
}

const test_case tests_summary[] = {
    TEST(the_table_has_names_types_shapes_and_parameters),
    TEST(a_users_layer_shows_parts_that_are_tied_frozen_or_not_run),
    TEST(a_deep_network_is_indented),
    TEST(it_computes_nothing_and_changes_nothing),
    TEST(it_does_not_flush_however_much_it_records),
    TEST(it_fails_as_forward_does_and_restores_the_modes),
    TEST_END,
};
