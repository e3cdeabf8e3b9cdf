// test_gpu_same.c: what is the same on the GPU as elsewhere: the CPU's random numbers bit for bit,
// a run done again, the losses of ref, and no number lost behind a product. Without a GPU all of it
// is skipped.
//
//     TN_TEST_DEVICE=opencl tenon-tests gpu_same   runs it on another device
#include "check.h"
#include "gpu_parts.h"
#include "scratch.h"
#include "table.h"

#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tenon.h>
#include <tenon/models.h>

// ---- the CPU's random numbers ------------------------------------------------------------------

// A case: whether two tensors have the same bytes.
static void same(tn_tensor *a, tn_tensor *b, const char *what)
{
    int64_t n    = a ? tn_count(a) : 0;
    size_t  size = a ? tni_dtype_size(tn_dtype_of(a)) : 1;
    char   *data = malloc(2 * (size_t)n * size + 1), *other = data + (size_t)n * size;
    int64_t apart = 0;
    bool    ok    = a && b && tn_dtype_of(a) == tn_dtype_of(b) && tn_count(b) == n && n > 0 &&
              tn_read(a, tn_dtype_of(a), data, n) == TN_OK &&
              tn_read(b, tn_dtype_of(b), other, n) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++)
        apart += memcmp(data + (size_t)i * size, other + (size_t)i * size, size) != 0;
    test_case_result(ok && !apart, "%s: %lld of %lld elements differ", what, (long long)apart,
                     (long long)n);
    free(data);
}

enum { NUMBERS = 15 };

// Random tensor i. Weights of the draws are whole numbers, whose sums are exact in any order.
static tn_tensor *numbers(tn_ctx *cx, int i)
{
    static const tn_dtype floats[] = { TN_F32, TN_F64, TN_F16, TN_BF16 };
    if (i < 4) return tn_rand(cx, floats[i], TN_SHAPE(37, 1031));
    if (i < 8) return tn_randn(cx, floats[i - 4], TN_SHAPE(37, 1031));
    switch (i) {
    case 8: return tn_randint(cx, TN_I64, -5, 1000003, TN_SHAPE(5001));
    case 9: return tn_randint(cx, TN_U8, 0, 256, TN_SHAPE(5001));
    case 10: return tn_randperm(cx, 10007);
    case 11: return tn_bernoulli(tn_full(cx, TN_F32, TN_SHAPE(9999), 0.3));
    case 12: return tn_multinomial(tn_arange(cx, TN_F32, 0, 64, 1), 999);
    case 13: return tn_randn(cx, TN_F32, TN_SHAPE(1 << 20));
    default: return tn_init_trunc_normal(tn_zeros(cx, TN_F32, TN_SHAPE(200, 301)), 1, 0.5);
    }
}

static void run_numbers(int part, int parts)
{
    (void)part, (void)parts;
    tn_ctx *a = open_seeded(tested_device(), 11), *b = open_seeded("cpu", 11);
    for (int i = 0; i < NUMBERS; i++) {
        char what[32];
        snprintf(what, sizeof what, "numbers %d", i);
        same(tn_want(numbers(a, i)), tn_want(numbers(b, i)), what);
    }
    tn_close(a);
    tn_close(b);
}

static void random_numbers_are_those_of_the_cpu(void)
{
    in_parts(run_numbers, 1);
}

enum { LAYERS = 10 };

static tn_layer *layer(tn_ctx *cx, int i)
{
    switch (i) {
    case 0: return tn_nn_linear(cx, 123, 77);
    case 1: return tn_nn_conv2d(cx, 7, 19, 3);
    case 2: return tn_nn_conv1d(cx, 5, 6, 7);
    case 3: return tn_nn_embedding(cx, 501, 33);
    case 4: return tn_nn_seq(cx, tn_nn_batch_norm(cx, 9), tn_nn_layer_norm(cx, 9));
    case 5: return tn_nn_transformer_block(cx, 48, 4);
    case 6: return tn_mlp(cx, TN_SHAPE(784, 256, 128, 10));
    case 7: return tn_lenet(cx);
    case 8: return tn_resnet(cx, (tn_resnet_opts){ .depth = 20 });
    default:
        return tn_gpt2(cx, (tn_gpt2_opts){ .layers = 2, .heads = 2, .width = 32, .vocab = 97 });
    }
}

static void same_in(const char *name, tn_tensor *t, void *user)
{
    tn_layer *other = user;
    same(t, tn_layer_find(other, name), name);
}

static void run_layers(int part, int parts)
{
    (void)part, (void)parts;
    tn_ctx *a = open_seeded(tested_device(), 5), *b = open_seeded("cpu", 5);
    for (int i = 0; i < LAYERS; i++) {
        tn_layer *other = layer(b, i);
        CHECK_STATUS(tn_layer_each(layer(a, i), same_in, other), TN_OK);
    }
    tn_close(a);
    tn_close(b);
}

static void initial_weights_are_those_of_the_cpu(void)
{
    in_parts(run_layers, 1);
}

// Dropout alone and among other work, and batches of a loader, for two epochs.
static void run_masks(int part, int parts)
{
    enum { STEPS = 8 };
    (void)part, (void)parts;
    tn_ctx    *cx[2] = { open_seeded(tested_device(), 7), open_seeded("cpu", 7) };
    tn_layer  *drop[2];
    tn_data   *data[2];
    tn_tensor *t[4][2];
    for (int d = 0; d < 2; d++) {
        drop[d] = tn_nn_dropout(cx[d], 0.3);
        data[d] = tn_digits(cx[d], (tn_digits_opts){ .count = 100 });
    }
    for (int i = 0; i < STEPS; i++) {
        tn_scope *s[2] = { tn_begin(cx[0]), tn_begin(cx[1]) };
        for (int d = 0; d < 2; d++) {
            tn_batch   b = tn_next(data[d], 30);
            tn_tensor *x = tn_ones(cx[d], TN_F32, TN_SHAPE(64, 257));
            t[0][d] = b.x, t[1][d] = b.y;
            t[2][d] = tn_want(tn_forward(drop[d], x));
            t[3][d] = tn_want(tn_relu(tn_dropout(tn_mul_s(x, 4), 0.5, true)));
            CHECK_STATUS(tn_eval(cx[d]), TN_OK);
        }
        for (int k = 0; k < 4; k++)
            same(t[k][0], t[k][1], k < 2 ? "a batch" : k == 2 ? "dropout" : "dropout, fused");
        for (int d = 0; d < 2; d++) tn_end(s[d]);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

static void masks_and_shuffles_are_those_of_the_cpu(void)
{
    in_parts(run_masks, 1);
}

// ---- runs that repeat themselves ---------------------------------------------------------------

enum { RUN_STEPS = 30, BATCH = 64 };

// The networks: an MLP, a GPT, and a residual network under autocast.
enum { MLP, GPT, RESNET, KINDS };
static const char *const kind_name[KINDS] = { "mlp", "gpt", "resnet" };

// What a run came to, in memory that processes share: its losses, and a sum over the bytes of its
// weights.
typedef struct {
    int      kind;
    bool     ok;
    double   loss[RUN_STEPS];
    uint64_t weights;
} outcome;

static tn_layer *mlp_with_dropout(tn_ctx *cx)
{
    return tn_nn_seq(cx, tn_nn_flatten(cx), tn_nn_linear(cx, 784, 256), tn_nn_act(cx, tn_relu),
                     tn_nn_dropout(cx, 0.2), tn_nn_linear(cx, 256, 128), tn_nn_act(cx, tn_relu),
                     tn_nn_linear(cx, 128, 10));
}

static void add_bytes(const char *name, tn_tensor *t, void *user)
{
    uint64_t *sum = user;
    int64_t   n   = tn_count(t);
    double   *v   = calloc((size_t)n, sizeof *v);
    test_that(tn_read(t, TN_F64, v, n) == TN_OK, "%s cannot be read", name);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        *sum = (*sum ^ bits) * 0x100000001b3u;
    }
    free(v);
}

// The loss of tokens that repeat in a way that can be learned.
static tn_tensor *gpt_loss(tn_layer *net, int step)
{
    enum { ROWS = 8, LENGTH = 32, VOCAB = 97 };
    int64_t token[2][ROWS * LENGTH];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < ROWS * LENGTH; i++)
            token[k][i] = (step + i / LENGTH * 11 + (i % LENGTH + k) * 3) % VOCAB;
    tn_ctx    *cx = tn_layer_ctx(net);
    tn_tensor *x  = tn_from(cx, TN_I64, TN_SHAPE(ROWS, LENGTH), token[0]);
    tn_tensor *y  = tn_from(cx, TN_I64, TN_SHAPE(ROWS * LENGTH), token[1]);
    return tn_cross_entropy(tn_reshape(tn_forward(net, x), TN_SHAPE(ROWS * LENGTH, VOCAB)), y);
}

static tn_layer *network(tn_ctx *cx, int kind)
{
    if (kind == GPT) return layer(cx, LAYERS - 1);
    if (kind == MLP) return mlp_with_dropout(cx);
    tn_autocast(cx, TN_BF16);
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 20, .classes = 10, .channels = 1 });
}

static void run_once(void *arg)
{
    outcome  *o    = arg;
    tn_ctx   *cx   = open_seeded(tested_device(), 3);
    tn_layer *net  = network(cx, o->kind);
    tn_optim *opt  = tn_adam(net, (tn_adam_opts){ .lr = 1e-3f });
    tn_data  *data = tn_digits(cx, (tn_digits_opts){ .count = 1000 });
    o->ok          = true;
    o->weights     = 0xcbf29ce484222325u;
    tn_data_drop_last(data, true);
    for (int i = 0; i < RUN_STEPS; i++) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, BATCH);
        tn_tensor *loss = o->kind == GPT ? gpt_loss(net, i)
                                         : tn_cross_entropy(tn_forward(net, b.x), b.y);
        o->ok           = tn_step(opt, loss) == TN_OK && o->ok;
        o->loss[i]      = tn_item(loss);
        o->ok           = tn_end(s) == TN_OK && o->ok && isfinite(o->loss[i]);
    }
    CHECK_STATUS(tn_layer_each(net, add_bytes, &o->weights), TN_OK);
    tn_close(cx);
}

static outcome *share_outcomes(int n, int kind)
{
    outcome *o = mmap(NULL, (size_t)n * sizeof *o, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(o != MAP_FAILED)) return NULL;
    for (int i = 0; i < n; i++) o[i].kind = kind;
    return o;
}

static void check_equal(const outcome *a, const outcome *b)
{
    int i = 0;
    while (i < RUN_STEPS - 1 && a->loss[i] == b->loss[i]) i++;
    CHECK(a->ok && b->ok);
    CHECK(a->loss[RUN_STEPS - 1] < 0.95 * a->loss[0]);
    test_case_result(a->loss[i] == b->loss[i], "%s: the losses of step %d are %.9g and %.9g",
                     kind_name[a->kind], i, a->loss[i], b->loss[i]);
    test_case_result(a->weights == b->weights, "%s: weights differ", kind_name[a->kind]);
}

// The first run leaves its choices on disk, for the two behind it.
static void run_repeats(int part, int parts)
{
    (void)parts;
    outcome *o = share_outcomes(3, part);
    if (!o || !CHECK(scratch_open())) return;
    setenv("TN_TF32", "1", 1);
    setenv("TN_CACHE_DIR", scratch_path(""), 1);
    for (int i = 0; i < 3; i++) in_process(run_once, &o[i]);
    check_equal(&o[1], &o[2]);
    scratch_close();
}

static void runs_are_equal_once_choices_are_on_disk(void)
{
    in_parts(run_repeats, KINDS);
}

static void run_fresh(int part, int parts)
{
    (void)parts;
    outcome *o = share_outcomes(2, part);
    setenv("TN_TF32", "1", 1);
    setenv("TN_DETERMINISTIC", "1", 1);
    for (int i = 0; o && i < 2; i++) {
        if (!CHECK(scratch_open())) return;
        setenv("TN_CACHE_DIR", scratch_path(""), 1);
        in_process(run_once, &o[i]);
        scratch_close();
    }
    if (o) check_equal(&o[0], &o[1]);
}

static void deterministic_runs_are_equal_without_a_cache(void)
{
    in_parts(run_fresh, KINDS);
}

// ---- losses ------------------------------------------------------------------------------------

// The mean loss of steps 91 to 100 of a small network.
static double late_loss(const char *device)
{
    tn_ctx   *cx   = open_seeded(device, 9);
    tn_layer *net  = tn_mlp(cx, TN_SHAPE(784, 256, 128, 10));
    tn_optim *opt  = tn_adam(net, (tn_adam_opts){ .lr = 1e-3f });
    tn_data  *data = tn_digits(cx, (tn_digits_opts){ .count = 4000 });
    double    sum  = 0;
    for (int i = 1; i <= 100; i++) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, 64);
        tn_tensor *loss = tn_cross_entropy(tn_forward(net, b.x), b.y);
        CHECK_STATUS(tn_step(opt, loss), TN_OK);
        if (i > 90) sum += tn_item(loss);
        tn_end(s);
    }
    tn_close(cx);
    return sum / 10;
}

static void run_losses(int part, int parts)
{
    (void)part, (void)parts;
    setenv("TN_TF32", "0", 1);
    double want = late_loss("ref"), got = late_loss(tested_device());
    CHECK(want > 0 && want < 1.8);  // of 2.3 at first
    CHECK_NEAR(got, want, 1e-3);
}

static void losses_are_those_of_ref_after_ninety_steps(void)
{
    in_parts(run_losses, 1);
}

const test_case tests_gpu_same[] = {
    TEST(random_numbers_are_those_of_the_cpu),
    TEST(initial_weights_are_those_of_the_cpu),
    TEST(masks_and_shuffles_are_those_of_the_cpu),
    TEST(runs_are_equal_once_choices_are_on_disk),
    TEST(deterministic_runs_are_equal_without_a_cache),
    TEST(losses_are_those_of_ref_after_ninety_steps),
    TEST_END,
};
