// test_regions.c: layers that are recomputed in the backward pass (tn_layer_recompute). Their
// gradients have the same bits, and a step needs less memory.
#include "rules_kit.h"

#include "nn/layer.h"

#include <stdlib.h>
#include <string.h>

#include <tenon/models.h>

enum { VOCAB = 17, LAYERS = 4, WIDTH = 32, B = 2, T = 24 };

// Which layers of the network are recomputed.
typedef enum { NONE, BLOCKS, PARTS, NESTED, WHOLE, WAYS } way;

static tn_layer *open_gpt2(tn_ctx *cx, way w)
{
    tn_seed(cx, 3);
    tn_layer *net = tn_gpt2(cx, (tn_gpt2_opts){ .layers  = LAYERS,
                                                .heads   = 2,
                                                .width   = WIDTH,
                                                .vocab   = VOCAB,
                                                .context = T,
                                                .dropout = 0.1 });
    for (int i = 0; i < LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "transformer.h.%d", i);
        if (w == BLOCKS || w == NESTED) tn_layer_recompute(tn_layer_find_child(net, name), true);
        snprintf(name, sizeof name, "transformer.h.%d.mlp", i);
        if (w == PARTS || w == NESTED) tn_layer_recompute(tn_layer_find_child(net, name), true);
    }
    if (w == WHOLE || w == NESTED) tn_layer_recompute(net, true);
    return net;
}

// The loss of a batch of tokens; the same random numbers in every call after the same seed.
static tn_tensor *loss_of(tn_ctx *cx, tn_layer *net)
{
    int64_t x[B * T], y[B * T];
    for (int i = 0; i < B * T; i++) {
        x[i] = (i * 7) % VOCAB;
        y[i] = (i * 5 + 3) % VOCAB;
    }
    tn_tensor *logits = tn_forward(net, tn_from(cx, TN_I64, TN_SHAPE(B, T), x));
    return tn_cross_entropy(tn_reshape(logits, TN_SHAPE(-1, VOCAB)),
                            tn_from(cx, TN_I64, TN_SHAPE(B * T), y));
}

// All parameters, or their gradients, one after the other; the caller frees it.
static float *read_all(tn_layer *net, bool gradients, int64_t *count)
{
    tni_entries list;
    float      *to = malloc(sizeof *to * (size_t)tn_layer_count(net));
    *count         = 0;
    if (!CHECK(to && tni_layer_list(net, "test", &list))) return to;
    for (size_t i = 0; i < list.count; i++) {
        tn_tensor *t = list.entry[i].t;
        if (!list.entry[i].is_param || list.entry[i].first != (int)i) continue;
        CHECK_STATUS(tn_read(gradients ? tn_grad_of(t) : t, TN_F32, to + *count, tn_count(t)),
                     TN_OK);
        *count += tn_count(t);
    }
    tni_entries_free(&list);
    return to;
}

static void check_same(way w, const char *what, const float *a, const float *b, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += memcmp(a + i, b + i, sizeof *a) != 0;
    test_that(bad == 0, "way %d, %s: %lld of %lld numbers differ", (int)w, what, (long long)bad,
              (long long)n);
}

// Gradients by tn_backward under a mode of autocast, after the loss was read or not.
static float *gradients(const char *device, tn_dtype mode, way w, bool read, int64_t *n)
{
    tn_ctx   *cx  = rules_open(device);
    tn_layer *net = open_gpt2(cx, w);
    tn_autocast(cx, mode);
    tn_tensor *loss = loss_of(cx, net);
    if (read) tn_item(loss);
    CHECK_STATUS(tn_backward(loss, NULL), TN_OK);
    float *g = read_all(net, true, n);
    tn_close(cx);
    return g;
}

static void gradients_have_the_same_bits(void)
{
    static const tn_dtype modes[] = { TN_F32, TN_BF16, TN_F16 };
    for (int i = 0; i < 3; i++) {
        int64_t n, m;
        float  *want = gradients("cpu", modes[i], NONE, false, &n);
        for (way w = BLOCKS; w < WAYS; w++)
            for (int read = 0; read < 2; read++) {
                float *got = gradients("cpu", modes[i], w, read, &m);
                CHECK_INT(m, n);
                check_same(w, tn_dtype_name(modes[i]), want, got, n);
                free(got);
            }
        free(want);
    }
}

// Parameters after three steps, some of them with accumulated gradients.
static float *trained(way w, int64_t *n, uint64_t *plans)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = open_gpt2(cx, w);
    tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ .clip_norm = 1, .accumulate = 2 });
    for (int i = 0; i < 6; i++) {
        tn_scope *s = tn_begin(cx);
        CHECK_STATUS(tn_step(opt, loss_of(cx, net)), TN_OK);
        tn_end(s);
    }
    float *p = read_all(net, false, n);
    *plans   = (uint64_t)tn_ctx_stats(cx).plans;
    tn_close(cx);
    return p;
}

static void steps_have_the_same_bits(void)
{
    int64_t  n, m;
    uint64_t plans, more;
    float   *want = trained(NONE, &n, &plans);
    for (way w = BLOCKS; w <= NESTED; w++) {
        float *got = trained(w, &m, &more);
        check_same(w, "parameters", want, got, n);
        CHECK_INT(more, plans);  // the numbers of calls are no part of a plan
        free(got);
    }
    free(want);
}

// Intermediate values of a step at their highest.
static int64_t activations(way w)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = open_gpt2(cx, w);
    CHECK_STATUS(tn_backward(loss_of(cx, net), NULL), TN_OK);
    tn_plan_memory m = tn_ctx_plan_memory(cx);
    tn_close(cx);
    return m.activations;
}

static void memory_of_a_step_drops(void)
{
    int64_t all = activations(NONE), blocks = activations(BLOCKS), parts = activations(PARTS);
    test_that(blocks < all * 6 / 10, "%lld bytes, with recomputed blocks %lld", (long long)all,
              (long long)blocks);
    test_that(parts < all * 9 / 10, "%lld bytes, with recomputed parts %lld", (long long)all,
              (long long)parts);
}

// A batch norm writes its statistics once, not again with what is recomputed.
static void running_statistics_are_written_once(void)
{
    double mean[2][3];
    for (int on = 0; on < 2; on++) {
        tn_ctx *cx = rules_open("cpu");
        tn_seed(cx, 1);
        tn_layer *net = tn_nn_seq(cx, tn_nn_conv2d(cx, 2, 3, 3), tn_nn_batch_norm(cx, 3),
                                  tn_nn_act(cx, tn_gelu));
        tn_layer_recompute(net, on);
        for (int i = 0; i < 2; i++) {
            tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(4, 2, 6, 6));
            CHECK_STATUS(tn_backward(tn_sum_all(tn_forward(net, x)), NULL), TN_OK);
        }
        CHECK_STATUS(tn_read(tn_layer_find(net, "1.running_mean"), TN_F64, mean[on], 3), TN_OK);
        CHECK_INT(tn_item_i64(tn_layer_find(net, "1.num_batches_tracked")), 2);
        tn_close(cx);
    }
    CHECK(memcmp(mean[0], mean[1], sizeof mean[0]) == 0);
}

// Gradients of gradients go through what is recomputed.
static void second_gradients_are_the_same(void)
{
    double got[2];
    for (int on = 0; on < 2; on++) {
        tn_ctx *cx = rules_open("ref");
        tn_seed(cx, 2);
        tn_layer *net = tn_nn_seq(cx, tn_nn_linear(cx, 3, 4), tn_nn_act(cx, tn_tanh),
                                  tn_nn_linear(cx, 4, 1));
        tn_layer_recompute(net, on);
        tn_tensor *x = tn_requires_grad(tn_randn(cx, TN_F64, TN_SHAPE(5, 3)), true), *gx, *ggx;
        tn_layer_cast(net, TN_F64);
        tn_tensor *y = tn_sum_all(tn_forward(net, x));
        CHECK_STATUS(tn_grad(1, &y, 1, &x, NULL, &gx), TN_OK);
        tn_tensor *z = tn_sum_all(tn_mul(gx, gx));
        CHECK_STATUS(tn_grad(1, &z, 1, &x, NULL, &ggx), TN_OK);
        got[on] = tn_item(tn_sum_all(tn_abs(ggx)));
        CHECK_STATUS(tn_error(cx), TN_OK);
        tn_close(cx);
    }
    CHECK(got[0] > 0);
    CHECK_NEAR(got[1], got[0], 1e-12 * got[0]);
}

const test_case tests_regions[] = {
    TEST(gradients_have_the_same_bits),  TEST(steps_have_the_same_bits),
    TEST(memory_of_a_step_drops),        TEST(running_statistics_are_written_once),
    TEST(second_gradients_are_the_same), TEST_END,
};
