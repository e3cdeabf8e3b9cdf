// test_models.c: the models' shapes, sizes and names, and that they learn.
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tenon/models.h>

static tn_layer *small_gpt2(tn_ctx *cx, double dropout)
{
    return tn_gpt2(
        cx,
        (tn_gpt2_opts){
            .layers = 2, .heads = 2, .width = 16, .vocab = 11, .context = 8, .dropout = dropout });
}

static tn_layer *resnet(tn_ctx *cx, int depth)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = depth });
}

// "(8, 10)", in a ring of two.
static const char *shape_of(tn_tensor *t)
{
    static char ring[2][80];
    static int  at;
    char       *s = ring[at++ % 2];
    int         n = snprintf(s, 80, "(");
    for (int i = 0; t && i < tn_rank(t); i++)
        n += snprintf(s + n, (size_t)(80 - n), i ? ", %d" : "%d", (int)tn_size(t, i));
    snprintf(s + n, (size_t)(80 - n), t ? ")" : "NULL");
    return s;
}

// ---- sizes and names

static void outputs_have_the_expected_shapes(void)
{
    tn_ctx *cx = rules_open("cpu");
    tn_grad_mode(cx, false);
    tn_tensor *digit = tn_rand(cx, TN_F32, TN_SHAPE(2, 1, 28, 28));
    tn_tensor *cifar = tn_rand(cx, TN_F32, TN_SHAPE(2, 3, 32, 32));
    tn_tensor *ids   = tn_randint(cx, TN_I64, 0, 11, TN_SHAPE(2, 5));
    CHECK_STR(shape_of(tn_forward(tn_mlp(cx, TN_SHAPE(784, 32, 10)), digit)), "(2, 10)");
    CHECK_STR(shape_of(tn_forward(tn_lenet(cx), digit)), "(2, 10)");
    CHECK_STR(shape_of(tn_forward(resnet(cx, 20), cifar)), "(2, 10)");
    CHECK_STR(shape_of(tn_forward(resnet(cx, 56), cifar)), "(2, 10)");
    CHECK_STR(shape_of(tn_forward(resnet(cx, 18), cifar)), "(2, 1000)");
    CHECK_STR(shape_of(tn_forward(resnet(cx, 50), cifar)), "(2, 1000)");
    CHECK_STR(shape_of(tn_forward(small_gpt2(cx, 0), ids)), "(2, 5, 11)");
    CHECK_STR(shape_of(tn_forward(small_gpt2(cx, 0), tn_cast(ids, TN_I32))), "(2, 5, 11)");
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

static void options_set_classes_and_channels(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = tn_resnet(cx, (tn_resnet_opts){ .depth = 20, .classes = 7, .channels = 1 });
    tn_tensor *x   = tn_rand(cx, TN_F32, TN_SHAPE(2, 1, 16, 16));
    tn_tensor *y   = tn_forward(net, x);
    CHECK_STR(shape_of(y), "(2, 7)");
    CHECK(tn_item(tn_all_all(tn_isfinite(y))) == 1);
    tn_close(cx);
}

static void parameter_counts_are_the_known_ones(void)
{
    tn_ctx *cx = rules_open("cpu");
    CHECK_INT(tn_layer_count(tn_mlp(cx, TN_SHAPE(784, 256, 128, 10))), 235146);
    CHECK_INT(tn_layer_count(tn_lenet(cx)), 225226);
    CHECK_INT(tn_layer_count(resnet(cx, 0)), 11689512);
    CHECK_INT(tn_layer_count(resnet(cx, 50)), 25557032);
    CHECK_INT(tn_layer_count(resnet(cx, 20)), 269722);
    CHECK_INT(tn_layer_count(resnet(cx, 56)), 853018);
    CHECK_INT(tn_layer_count(tn_gpt2(cx, (tn_gpt2_opts){ 0 })), 124439808);
    tn_close(cx);
}

// A digest of all names and shapes in any order: how many there are, and the sum of the FNV-1a
// hashes of their texts, such as "fc.weight 1000 512".
typedef struct {
    int      count;
    uint32_t sum;
} digest;

static void digest_one(const char *name, tn_tensor *t, void *user)
{
    digest  *d = user;
    char     text[256];
    uint32_t h = 0x811c9dc5u;
    int      n = snprintf(text, sizeof text, "%s", name);
    for (int i = 0; i < tn_rank(t); i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", (int)tn_size(t, i));
    for (const char *s = text; *s; s++) h = (h ^ (unsigned char)*s) * 0x01000193u;
    d->sum += h;
    d->count++;
}

static void check_digest(tn_layer *net, int count, uint32_t sum)
{
    digest d = { 0 };
    CHECK_STATUS(tn_layer_each(net, digest_one, &d), TN_OK);
    CHECK_INT(d.count, count);
    CHECK_INT(d.sum, sum);
}

static void check_name(tn_layer *net, const char *name, const char *shape)
{
    test_that(!strcmp(shape_of(tn_layer_find(net, name)), shape), "%s is %s, not %s", name,
              shape_of(tn_layer_find(net, name)), shape);
}

static void names_of_small_models_are_those_of_a_sequential(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *mlp = tn_mlp(cx, TN_SHAPE(784, 256, 128, 10)), *lenet = tn_lenet(cx);
    check_name(mlp, "1.weight", "(256, 784)");
    check_name(mlp, "3.bias", "(128)");
    check_name(mlp, "5.weight", "(10, 128)");
    check_name(lenet, "0.weight", "(32, 1, 3, 3)");
    check_name(lenet, "1.running_mean", "(32)");
    check_name(lenet, "4.weight", "(64, 32, 3, 3)");
    check_name(lenet, "5.weight", "(64)");
    check_name(lenet, "9.weight", "(128, 1600)");
    check_name(lenet, "11.bias", "(10)");
    tn_close(cx);
}

// The digests are of torchvision's state_dict().
static void names_of_resnets_are_torchvisions(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *r18 = resnet(cx, 18), *r50 = resnet(cx, 50), *r20 = resnet(cx, 20);
    check_digest(r18, 122, 0x076c104f);
    check_digest(r50, 320, 0x300b1bbf);
    check_name(r18, "conv1.weight", "(64, 3, 7, 7)");
    check_name(r18, "layer2.0.downsample.0.weight", "(128, 64, 1, 1)");
    check_name(r50, "layer1.0.conv3.weight", "(256, 64, 1, 1)");
    check_name(r50, "fc.weight", "(1000, 2048)");
    check_name(r20, "conv1.weight", "(16, 3, 3, 3)");
    check_name(r20, "layer3.2.bn2.running_var", "(64)");
    check_name(r20, "linear.weight", "(10, 64)");
    tn_close(cx);
}

// The digest is of the state_dict() of Hugging Face's GPT2LMHeadModel, without the tied lm_head.
static void names_of_gpt2_are_hugging_faces(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = tn_gpt2(cx, (tn_gpt2_opts){ 0 });
    check_digest(net, 148, 0x4550c6a3);
    check_name(net, "transformer.wte.weight", "(50257, 768)");
    check_name(net, "transformer.h.11.attn.c_attn.weight", "(768, 2304)");
    check_name(net, "transformer.h.0.mlp.c_proj.weight", "(3072, 768)");
    CHECK(tn_layer_find(net, "lm_head.weight") == tn_layer_find(net, "transformer.wte.weight"));
    tn_close(cx);
}

// ---- errors

static void what_cannot_be_made_is_an_error(void)
{
    tn_ctx *cx = rules_open("cpu");
    CHECK(resnet(cx, 19) == NULL);
    CHECK_FAILED(cx, TN_EARG, "resnet: depth 19 is none of 18, 34, 50, 101, 152, 20 and 56");
    CHECK(tn_mlp(cx, TN_SHAPE(784)) == NULL);
    CHECK_FAILED(cx, TN_EARG, "mlp: it needs at least the sizes of input and output");
    CHECK(tn_mlp(cx, TN_SHAPE(784, -5, 10)) == NULL);
    CHECK_FAILED(cx, TN_EARG, "-5");
    CHECK(tn_gpt2(cx, (tn_gpt2_opts){ .width = 100, .heads = 3 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "gpt2: width 100 is no multiple of 3 heads");
    CHECK(tn_gpt2(cx, (tn_gpt2_opts){ .layers = -1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "gpt2: layers -1 is not in 1 .. 2147483647");
    CHECK(tn_gpt2(cx, (tn_gpt2_opts){ .vocab = INT64_MAX }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "gpt2: vocab 9223372036854775807 is not in");
    CHECK(small_gpt2(cx, 1) == NULL);
    CHECK_FAILED(cx, TN_EARG, "gpt2: dropout 1 is not in [0, 1)");
    CHECK(small_gpt2(cx, NAN) == NULL);
    CHECK_FAILED(cx, TN_EARG, "gpt2: dropout nan is not in [0, 1)");
    CHECK(tn_lenet(NULL) == NULL);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

static void note_line(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    *(int *)user = strcmp(f->file, __FILE__) ? -1 : f->line;
}

static void errors_name_the_line_that_makes_the_model(void)
{
    tn_ctx *cx   = rules_open("cpu");
    int     line = 0;
    tn_on_error(cx, note_line, &line);
    tn_mlp(cx, TN_SHAPE(784, 0));
    CHECK_INT(line, __LINE__ - 1);
    tn_error_clear(cx);
    tn_resnet(cx, (tn_resnet_opts){ .depth = 19 });
    CHECK_INT(line, __LINE__ - 1);
    tn_error_clear(cx);
    tn_gpt2(cx, (tn_gpt2_opts){ .heads = 5 });
    CHECK_INT(line, __LINE__ - 1);
    tn_close(cx);
}

static void wrong_inputs_are_errors(void)
{
    tn_ctx    *cx    = rules_open("cpu");
    tn_layer  *net   = small_gpt2(cx, 0);
    tn_tensor *long9 = tn_zeros(cx, TN_I64, TN_SHAPE(1, 9));
    CHECK(tn_forward(net, long9) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "gpt2: 9 tokens are more than the context of 8");
    CHECK(tn_forward(net, tn_zeros(cx, TN_I64, TN_SHAPE(4))) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "gpt2: tokens have rank 1, not (B, T)");
    CHECK(tn_forward(net, tn_zeros(cx, TN_F32, TN_SHAPE(1, 4))) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "embed");
    CHECK(tn_forward(tn_lenet(cx), tn_zeros(cx, TN_F32, TN_SHAPE(1, 3, 28, 28))) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "conv2d");
    tn_close(cx);
}

static tn_layer *make(tn_ctx *cx, int which)
{
    switch (which) {
    case 0: return tn_mlp(cx, TN_SHAPE(784, 32, 10));
    case 1: return tn_lenet(cx);
    case 2: return resnet(cx, 20);
    case 3: return resnet(cx, 18);
    default: return small_gpt2(cx, 0);
    }
}

static void any_allocation_may_fail_while_a_model_is_made(void)
{
    for (int which = 0; which < 5; which++) {
        faulty h = { .failed = 1 };
        for (long n = 1; h.failed; n++) {
            h              = (faulty){ 0 };
            tn_ctx *cx     = faulty_open("cpu", &h);
            h.countdown    = n;
            bool      made = make(cx, which) != NULL;
            tn_status e    = tn_error(cx);
            h.countdown    = 0;
            tn_close(cx);
            test_case_result(e == (made ? TN_OK : TN_EMEM) && faulty_left(&h) == 0,
                             "model %d, allocation %ld: %s, %ld blocks left", which, n,
                             tn_status_name(e), faulty_left(&h));
        }
    }
}

static tn_tensor *refuse(tn_layer *l, tn_tensor *x)
{
    (void)x;
    return tn_error_set(tn_layer_ctx(l), TN_ESHAPE, "mine: not like that");
}

static void a_users_layer_reports_errors_as_ours_do(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l  = tn_layer_new(cx, refuse, NULL, NULL);
    CHECK(tn_relu(tn_forward(l, tn_zeros(cx, TN_F32, TN_SHAPE(2)))) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "mine: not like that");
    CHECK(tn_error_set(cx, TN_OK, NULL) == NULL);
    CHECK_FAILED(cx, TN_EUSER, "no reason given");
    tn_close(cx);
}

// ---- files

// Tensors for tn_file_write, with names that lack "transformer.".
typedef struct {
    int         count;
    char        text[32][64];
    const char *name[32];
    tn_tensor  *t[32];
} published;

static void publish(const char *name, tn_tensor *t, void *user)
{
    published *p = user;
    int        i = p->count++;
    snprintf(p->text[i], sizeof p->text[i], "%s", name + strlen("transformer."));
    p->name[i] = p->text[i];
    p->t[i]    = t;
}

static bool equal(tn_tensor *a, tn_tensor *b)
{
    return tn_item(tn_all_all(tn_eq(a, b))) == 1;
}

static void gpt2_loads_from_a_file_as_hugging_face_publishes_it(void)
{
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *a = small_gpt2(cx, 0), *b = small_gpt2(cx, 0);
    published p = { 0 };
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("model.safetensors");
    CHECK_STATUS(tn_layer_each(a, publish, &p), TN_OK);
    p.name[p.count] = "h.0.attn.bias";  // a mask
    p.t[p.count++]  = tn_ones(cx, TN_F32, TN_SHAPE(1, 1, 8, 8));
    CHECK_STATUS(tn_file_write(cx, path, p.count, p.name, p.t, 0, NULL), TN_OK);
    CHECK_STATUS(tn_load(b, path), TN_EFORMAT);
    tn_error_clear(cx);
    tn_load_opts o = { .add_prefix = "transformer.", .ignore = "*.attn.bias" };
    CHECK_STATUS(tn_load_with(b, path, o), TN_OK);
    for (int i = 0; i + 1 < p.count; i++) {
        char full[96];
        snprintf(full, sizeof full, "transformer.%s", p.name[i]);
        test_that(equal(p.t[i], tn_layer_find(b, full)), "%s differs", full);
    }
    CHECK_STR(tn_error_text(cx), "");
    scratch_close();
    tn_close(cx);
}

// ---- learning

// Trains on one batch; the loss must fall to at most `share` of what it was.
static void check_learns(tn_layer *net, tn_tensor *x, tn_tensor *y, int steps, double share)
{
    tn_ctx   *cx    = tn_layer_ctx(net);
    tn_optim *o     = tn_adam(net, (tn_adam_opts){ .lr = 3e-3f });
    double    first = 0, last = 0;
    for (int i = 0; i < steps; i++) {
        tn_scope  *s      = tn_begin(cx);
        tn_tensor *logits = tn_forward(net, x);
        if (tn_rank(logits) == 3) logits = tn_transpose(logits, 1, 2);
        tn_tensor *loss = tn_cross_entropy(logits, y);
        CHECK_STATUS(tn_step(o, loss), TN_OK);
        last = tn_item(loss);
        if (i == 0) first = last;
        CHECK_STATUS(tn_end(s), TN_OK);
    }
    test_that(last <= share * first, "the loss goes from %g to %g only", first, last);
    CHECK_STR(tn_error_text(cx), "");
}

static void every_model_learns_a_batch_by_heart(void)
{
    tn_ctx    *cx    = rules_open("cpu");
    tn_tensor *digit = tn_rand(cx, TN_F32, TN_SHAPE(8, 1, 28, 28));
    tn_tensor *image = tn_rand(cx, TN_F32, TN_SHAPE(8, 3, 16, 16));
    tn_tensor *label = tn_randint(cx, TN_I64, 0, 10, TN_SHAPE(8));
    tn_tensor *ids   = tn_randint(cx, TN_I64, 0, 11, TN_SHAPE(4, 8));
    check_learns(tn_mlp(cx, TN_SHAPE(784, 32, 10)), digit, label, 20, 0.5);
    check_learns(tn_lenet(cx), digit, label, 10, 0.5);
    check_learns(resnet(cx, 20), image, label, 15, 0.5);
    check_learns(small_gpt2(cx, TN_ZERO), ids, tn_roll(ids, -1, 1), 60, 0.5);
    tn_close(cx);
}

static void bottleneck_and_projection_take_part_in_learning(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = tn_resnet(cx, (tn_resnet_opts){ .depth = 50, .classes = 2 });
    tn_tensor *x   = tn_rand(cx, TN_F32, TN_SHAPE(2, 3, 32, 32));
    CHECK_STATUS(tn_backward(tn_sum_all(tn_square(tn_forward(net, x))), NULL), TN_OK);
    const char *const names[] = { "conv1.weight", "layer1.0.conv2.weight",
                                  "layer1.0.downsample.0.weight", "layer4.2.bn3.bias" };
    for (int i = 0; i < 4; i++) {
        tn_tensor *g = tn_grad_of(tn_layer_find(net, names[i]));
        test_that(tn_item(tn_norm_all(g)) > 0, "%s has no gradient", names[i]);
    }
    tn_close(cx);
}

// ---- modes

static void dropout_acts_in_training_alone(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net = small_gpt2(cx, 0.5);
        tn_tensor *x   = tn_randint(cx, TN_I64, 0, 11, TN_SHAPE(2, 8));
        CHECK(!equal(tn_forward(net, x), tn_forward(net, x)));
        tn_layer_train(net, false);
        CHECK(equal(tn_forward(net, x), tn_forward(net, x)));
    }
}

static void evaluation_leaves_running_statistics_alone(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net  = tn_lenet(cx);
        tn_tensor *x    = tn_rand(cx, TN_F32, TN_SHAPE(4, 1, 28, 28));
        tn_tensor *mean = tn_layer_find(net, "1.running_mean"), *before = tn_clone(mean);
        tn_forward(net, x);
        CHECK(!equal(mean, before));
        tn_layer_train(net, false);
        before = tn_clone(mean);
        CHECK(equal(tn_forward(net, x), tn_forward(net, x)));
        CHECK(equal(mean, before));
    }
}

static void a_later_token_does_not_change_earlier_logits(void)
{
    static const int64_t a[] = { 1, 2, 3, 4, 5, 6 }, b[] = { 1, 2, 3, 4, 9, 10 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *net = small_gpt2(cx, 0.5);
        tn_layer_train(net, false);
        tn_tensor *ya = tn_forward(net, tn_from(cx, TN_I64, TN_SHAPE(1, 6), a));
        tn_tensor *yb = tn_forward(net, tn_from(cx, TN_I64, TN_SHAPE(1, 6), b));
        CHECK(equal(tn_slice(ya, 1, 0, 4, 1), tn_slice(yb, 1, 0, 4, 1)));
        CHECK(!equal(tn_slice(ya, 1, 4, 6, 1), tn_slice(yb, 1, 4, 6, 1)));
    }
}

const test_case tests_models[] = {
    TEST(outputs_have_the_expected_shapes),
    TEST(options_set_classes_and_channels),
    TEST(parameter_counts_are_the_known_ones),
    TEST(names_of_small_models_are_those_of_a_sequential),
    TEST(names_of_resnets_are_torchvisions),
    TEST(names_of_gpt2_are_hugging_faces),
    TEST(what_cannot_be_made_is_an_error),
    TEST(errors_name_the_line_that_makes_the_model),
    TEST(wrong_inputs_are_errors),
    TEST(any_allocation_may_fail_while_a_model_is_made),
    TEST(a_users_layer_reports_errors_as_ours_do),
    TEST(gpt2_loads_from_a_file_as_hugging_face_publishes_it),
    TEST(every_model_learns_a_batch_by_heart),
    TEST(bottleneck_and_projection_take_part_in_learning),
    TEST(dropout_acts_in_training_alone),
    TEST(evaluation_leaves_running_statistics_alone),
    TEST(a_later_token_does_not_change_earlier_logits),
    TEST_END,
};
