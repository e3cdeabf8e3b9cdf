// test_gpu_lm.c: language models on the GPU: training in mixed precision with dropout, attention,
// loss scaling and recomputed layers, training that goes on from a file, and generation. Judges are
// the cpu, ref, and the same work done in another way. Without a GPU all of it is skipped, except
// that training goes on on the cpu too.
//
//     TN_TEST_DEVICE=opencl tenon-tests gpu_lm   runs it on another device
#include "check.h"
#include "gpu_parts.h"
#include "scratch.h"
#include "speaking.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { VOCAB = 97, ROWS = 4, LENGTH = 32, MODELS = 2, MODES = 2 };

static const char *const model_names[MODELS] = { "gpt2", "llama" };
static const tn_dtype    modes[MODES]        = { TN_BF16, TN_F16 };

// A small GPT-2, or a small Llama with grouped heads; only the first knows dropout.
static tn_layer *open_model(tn_ctx *cx, int model, double dropout)
{
    if (model == 0)
        return tn_gpt2(cx, (tn_gpt2_opts){ .layers  = 2,
                                           .heads   = 2,
                                           .width   = 64,
                                           .vocab   = VOCAB,
                                           .context = 64,
                                           .dropout = dropout > 0 ? dropout : TN_ZERO });
    return tn_llama(cx, (tn_llama_opts){ .layers   = 2,
                                         .heads    = 4,
                                         .kv_heads = 2,
                                         .width    = 64,
                                         .hidden   = 96,
                                         .vocab    = VOCAB,
                                         .context  = 64 });
}

// The loss of tokens that repeat in a way that can be learned.
static tn_tensor *loss_of(tn_layer *net, int step)
{
    int64_t token[2][ROWS * LENGTH];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < ROWS * LENGTH; i++)
            token[k][i] = (step % 4 + i / LENGTH * 11 + (i % LENGTH + k) * 3) % VOCAB;
    tn_ctx    *cx = tn_layer_ctx(net);
    tn_tensor *x  = tn_from(cx, TN_I64, TN_SHAPE(ROWS, LENGTH), token[0]);
    tn_tensor *y  = tn_from(cx, TN_I64, TN_SHAPE(ROWS * LENGTH), token[1]);
    return tn_cross_entropy(tn_reshape(tn_forward(net, x), TN_SHAPE(ROWS * LENGTH, VOCAB)), y);
}

// One step in a mode; `factor` multiplies the loss.
static double step(tn_layer *net, tn_optim *opt, tn_dtype mode, int i, double factor)
{
    tn_ctx   *cx = tn_layer_ctx(net);
    tn_scope *s  = tn_begin(cx);
    tn_autocast(cx, mode);
    tn_tensor *loss = tn_mul_s(loss_of(net, i), factor);
    CHECK_STATUS(tn_step(opt, loss), TN_OK);
    double value = tn_item(loss);
    CHECK_STATUS(tn_end(s), TN_OK);
    return value;
}

static tn_optim *open_optim(tn_layer *net, tn_dtype mode, int accumulate)
{
    return tn_adamw(net, (tn_adamw_opts){ .lr         = 3e-3f,
                                          .clip_norm  = 1,
                                          .accumulate = accumulate,
                                          .loss_scale = mode == TN_F16 ? 65536 : 0 });
}

// A sum over the bytes of the weights, which are f32.
static void add_bytes(const char *name, tn_tensor *t, void *user)
{
    uint64_t *sum = user;
    int64_t   n   = tn_count(t);
    uint32_t *v   = calloc((size_t)n, sizeof *v);
    test_that(tn_dtype_of(t) == TN_F32 && tn_read(t, TN_F32, v, n) == TN_OK, "%s is not read",
              name);
    for (int64_t i = 0; i < n; i++) *sum = (*sum ^ v[i]) * 0x100000001b3u;
    free(v);
}

static uint64_t bytes_of(tn_layer *net)
{
    uint64_t sum = 0xcbf29ce484222325u;
    CHECK_STATUS(tn_layer_each(net, add_bytes, &sum), TN_OK);
    return sum;
}

// ---- mixed precision ---------------------------------------------------------------------------

static void train_in_16_bits(int part, int parts)
{
    enum { STEPS = 30 };
    (void)parts;
    int      model = part % MODELS;
    tn_dtype mode  = modes[part / MODELS];
    double   loss[2][STEPS];
    int64_t  skipped = 0;
    for (int k = 0; k < 2; k++) {
        tn_ctx   *cx  = open_seeded(k ? tested_device() : "cpu", 3);
        tn_layer *net = open_model(cx, model, 0);
        tn_dtype  in  = k ? mode : TN_F32;
        tn_optim *opt = open_optim(net, in, 1);
        for (int i = 0; i < STEPS; i++) loss[k][i] = step(net, opt, in, i, 1);
        skipped = tn_optim_skipped(opt);
        CHECK(bytes_of(net) != 0);
        tn_close(cx);
    }
    CHECK(loss[0][STEPS - 1] < 0.7 * loss[0][0]);
    CHECK(skipped >= 0 && skipped <= 2);
    // Each skipped update leaves a run one behind; batches come again every four steps.
    for (int i = 0; i < STEPS && !skipped; i++)
        test_case_result(fabs(loss[1][i] - loss[0][i]) <= 0.02 * loss[0][i],
                         "%s %s: the loss of step %d is %.6f, %.6f in f32", model_names[model],
                         tn_dtype_name(mode), i, loss[1][i], loss[0][i]);
    CHECK_NEAR(loss[1][STEPS - 1], loss[0][STEPS - 1], 0.1 * loss[0][STEPS - 1]);
}

static void losses_in_16_bits_are_those_of_f32_on_the_cpu(void)
{
    in_parts(train_in_16_bits, MODELS * MODES);
}

static double scale_of(tn_optim *opt, tn_ctx *cx)
{
    tn_scope *s     = tn_begin(cx);
    double    scale = tn_item(tn_optim_loss_scale(opt));
    tn_end(s);
    return scale;
}

// An update with an infinity changes the scale and nothing else, and nobody waits for it or plans
// anew.
static void skip_an_update(int part, int parts)
{
    (void)parts;
    tn_ctx   *cx     = open_seeded(tested_device(), 3);
    tn_layer *net    = open_model(cx, part, 0);
    tn_optim *opt    = open_optim(net, TN_F16, 1);
    uint64_t  before = 0;
    for (int i = 0; i < 4; i++) {
        step(net, opt, TN_F16, 0, 1);
        before = bytes_of(net);  // the first step after a read is planned anew
    }
    double  scale = scale_of(opt, cx);
    int64_t plans = tn_ctx_stats(cx).plans, had = tn_optim_skipped(opt);
    CHECK(isinf(step(net, opt, TN_F16, 0, INFINITY)));
    CHECK_INT(tn_ctx_stats(cx).plans, plans);
    CHECK_INT(tn_optim_skipped(opt), had + 1);
    CHECK_NEAR(scale_of(opt, cx), scale / 2, 0);
    CHECK(bytes_of(net) == before);
    CHECK(isfinite(step(net, opt, TN_F16, 0, 1)));
    CHECK(bytes_of(net) != before);
    CHECK_INT(tn_optim_skipped(opt), had + 1);
    tn_close(cx);
}

static void an_update_with_an_infinity_is_skipped(void)
{
    in_parts(skip_an_update, MODELS);
}

// ---- recomputed layers -------------------------------------------------------------------------

enum { MOST = 1 << 16 };

typedef struct {
    float  *v;
    int64_t n;
} numbers;

static void add_gradient(const char *name, tn_tensor *t, void *user)
{
    numbers *to = user;
    int64_t  n  = tn_count(t);
    if (!tn_has_grad(t) || to->n + n > MOST) return;
    test_that(tn_read(tn_grad_of(t), TN_F32, to->v + to->n, n) == TN_OK, "%s: no gradient", name);
    to->n += n;
}

// Gradients of a model whose blocks are recomputed or not, with dropout, by the same random
// numbers.
static numbers gradients(tn_ctx *cx, int model, tn_dtype mode, bool recompute)
{
    numbers g = { .v = calloc(MOST, sizeof *g.v) };
    tn_seed(cx, 3);
    tn_layer *net = open_model(cx, model, 0.2);
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, model ? "model.layers.%d" : "transformer.h.%d", i);
        tn_layer_recompute(tn_layer_find_child(net, name), recompute);
    }
    tn_seed(cx, 11);
    tn_autocast(cx, mode);
    CHECK_STATUS(tn_backward(loss_of(net, 0), NULL), TN_OK);
    tn_autocast(cx, TN_F32);
    CHECK_STATUS(tn_layer_each(net, add_gradient, &g), TN_OK);
    return g;
}

static void recompute(int part, int parts)
{
    (void)parts;
    tn_dtype mode = part / MODELS ? TN_BF16 : TN_F32;
    tn_ctx  *cx   = open_seeded(tested_device(), 3);
    numbers  a    = gradients(cx, part % MODELS, mode, false),
            b     = gradients(cx, part % MODELS, mode, true);
    double apart = 0, size = 0;
    CHECK(a.n == b.n && a.n > 50000);
    for (int64_t i = 0; i < a.n; i++) {
        apart += (a.v[i] - b.v[i]) * (double)(a.v[i] - b.v[i]);
        size += a.v[i] * (double)a.v[i];
    }
    test_case_result(size > 0 && sqrt(apart / size) <= (mode == TN_F32 ? 1e-5 : 1e-2),
                     "%s %s: gradients are apart by %.3g of their norm", model_names[part % MODELS],
                     tn_dtype_name(mode), sqrt(apart / size));
    free(a.v);
    free(b.v);
    tn_close(cx);
}

static void recomputed_layers_have_the_same_gradients(void)
{
    in_parts(recompute, 2 * MODELS);
}

// ---- training that goes on ---------------------------------------------------------------------

enum { WHOLE = 8, STOP = 5 };

// A run, in memory that processes share: steps `from` to `to` of it, their losses, its weights at
// the end.
typedef struct {
    const char *device, *path;
    int         model, from, to;
    tn_dtype    mode;
    double      loss[WHOLE];
    uint64_t    weights;
} run;

// Starts anew, or from the file that another left in the middle of an accumulation.
static void run_part(void *arg)
{
    run          *r   = arg;
    tn_ctx       *cx  = open_seeded(r->device, r->from ? 99 : 3);
    tn_layer     *net = open_model(cx, r->model, 0.1);
    tn_optim     *opt = open_optim(net, r->mode, 2);
    tn_checkpoint c   = { .net = { net }, .opt = { opt } };
    if (r->from) CHECK_STATUS(tn_checkpoint_load(cx, r->path, &c), TN_OK);
    for (int i = r->from; i < r->to; i++) r->loss[i] = step(net, opt, r->mode, i, 1);
    c.step = r->to;
    if (r->to == STOP) CHECK_STATUS(tn_checkpoint_save(cx, r->path, &c), TN_OK);
    r->weights = bytes_of(net);
    tn_close(cx);
}

// Under TN_DETERMINISTIC, each part with an empty cache, so that nothing that was timed decides.
static void go_on(const char *device, int model, tn_dtype mode)
{
    static const int ends[3][2] = { { 0, WHOLE }, { 0, STOP }, { STOP, WHOLE } };
    run *r = mmap(NULL, 3 * sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(r != MAP_FAILED) || !CHECK(scratch_open())) return;
    setenv("TN_DETERMINISTIC", "1", 1);
    for (int i = 0; i < 3; i++) {
        char folder[16];
        snprintf(folder, sizeof folder, "cache%d", i);
        setenv("TN_CACHE_DIR", scratch_path(folder), 1);
        r[i] = (run){ .device = device,
                      .path   = scratch_path("state"),
                      .model  = model,
                      .from   = ends[i][0],
                      .to     = ends[i][1],
                      .mode   = mode };
        in_process(run_part, &r[i]);
    }
    for (int i = 0; i < WHOLE; i++) {
        double loss = r[i < STOP ? 1 : 2].loss[i];
        test_case_result(loss == r[0].loss[i] && loss > 0,
                         "%s %s: the loss of step %d is %.9g, not %.9g", model_names[model],
                         tn_dtype_name(mode), i, loss, r[0].loss[i]);
    }
    test_case_result(r[2].weights == r[0].weights && r[1].weights != r[0].weights,
                     "%s %s: weights differ", model_names[model], tn_dtype_name(mode));
    munmap(r, 3 * sizeof *r);
    scratch_close();
}

static void go_on_here(int part, int parts)
{
    (void)parts;
    go_on(tested_device(), part % MODELS, modes[part / MODELS]);
}

static void training_goes_on_bit_for_bit(void)
{
    in_parts(go_on_here, MODELS * MODES);
}

static void go_on_cpu(void *arg)
{
    (void)arg;
    go_on("cpu", 0, TN_BF16);
}

static void training_goes_on_bit_for_bit_on_the_cpu(void)
{
    if (strstr(TN_SANITIZE, "thread")) SKIP("the sanitizer allows no threads after a fork");
    in_process(go_on_cpu, NULL);
}

// ---- generation --------------------------------------------------------------------------------

enum { NEW = 24 };

// A model whose weights are large enough that the most likely token changes from step to step.
static tn_layer *open_speaker(tn_ctx *cx, int model)
{
    tn_layer *net = open_model(cx, model, 0);
    tn_init_normal(
        tn_layer_find(net, model ? "model.embed_tokens.weight" : "transformer.wte.weight"), 0, 1);
    if (!model) tn_init_normal(tn_layer_find(net, "transformer.wpe.weight"), 0, 1);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    return net;
}

static void check_tokens(const int64_t *have, const int64_t *want, int n, const char *what, int i)
{
    int at = 0;
    while (at < n - 1 && have[at] == want[at]) at++;
    test_case_result(have[at] == want[at], "%s, way %d: token %d is %lld, not %lld", what, i, at,
                     (long long)have[at], (long long)want[at]);
}

// All prompts at once with a cache, against the cpu, without a cache, and one by one.
static void generate(int part, int parts)
{
    (void)parts;
    setenv("TN_TF32", "0", 1);
    tn_ctx   *cx = open_seeded(tested_device(), 5), *cpu = open_seeded("cpu", 5);
    tn_layer *net = open_speaker(cx, part), *other = open_speaker(cpu, part);
    int64_t   a[PROMPTS * NEW], b[PROMPTS * NEW], n[PROMPTS];
    for (int i = 0; i < WAYS; i++) {
        tn_generate_opts o = way_of_choosing(i, NEW);
        CHECK_STATUS(tn_generate(net, PROMPTS, prompts, o, a, n), TN_OK);
        CHECK(n[0] == NEW && n[1] == NEW && n[2] == NEW);
        CHECK_STATUS(tn_generate(other, PROMPTS, prompts, o, b, n), TN_OK);
        check_tokens(a, b, PROMPTS * NEW, "on the cpu", i);
        o.no_cache = true;
        CHECK_STATUS(tn_generate(net, PROMPTS, prompts, o, b, n), TN_OK);
        check_tokens(a, b, PROMPTS * NEW, "without a cache", i);
        if (i == 1 || i == 2) continue;  // rows draw other numbers by themselves
        for (int p = 0; p < PROMPTS; p++)
            CHECK_STATUS(tn_generate(net, 1, prompts + p, way_of_choosing(i, NEW), b + p * NEW, n),
                         TN_OK);
        check_tokens(a, b, PROMPTS * NEW, "one by one", i);
    }
    CHECK(memcmp(a, a + NEW, NEW * sizeof *a) != 0);
    tn_close(cx);
    tn_close(cpu);
}

static void generated_tokens_are_those_of_the_cpu(void)
{
    in_parts(generate, MODELS);
}

// In 16 bits the logits of passes with a cache, of 1, 7 and more tokens, are near those of one
// pass.
static void pass_with_cache(int part, int parts)
{
    static const int64_t pieces[] = { 5, 1, 1, 7, 1, 17, 0 };
    (void)parts;
    tn_dtype  mode  = modes[part / MODELS];
    tn_ctx   *cx    = open_seeded(tested_device(), 5);
    tn_layer *net   = open_speaker(cx, part % MODELS);
    tn_cache *cache = tn_cache_new(cx, ROWS, LENGTH, (tn_cache_opts){ 0 });
    tn_layer_train(net, false);
    CHECK_STATUS(tn_layer_cast(net, mode), TN_OK);
    tn_grad_mode(cx, false);
    tn_tensor *x    = tn_randint(cx, TN_I64, 0, VOCAB, TN_SHAPE(ROWS, LENGTH));
    tn_tensor *want = tn_cast(tn_forward(net, x), TN_F32);
    double     size = tn_item(tn_norm_all(want)) / sqrt((double)tn_count(want));
    for (int64_t i = 0, at = 0; pieces[i]; at += pieces[i++]) {
        tn_tensor *y     = tn_forward_cached(net, tn_slice(x, 1, at, at + pieces[i], 1), cache);
        tn_tensor *d     = tn_sub(tn_cast(y, TN_F32), tn_slice(want, 1, at, at + pieces[i], 1));
        double     apart = tn_item(tn_norm_all(d)) / sqrt((double)tn_count(d)) / size;
        test_case_result(apart <= (mode == TN_BF16 ? 0.02 : 0.004),
                         "%s %s: logits from token %lld are apart by %.3g",
                         model_names[part % MODELS], tn_dtype_name(mode), (long long)at, apart);
    }
    tn_cache_free(cache);
    tn_close(cx);
}

static void passes_with_a_cache_in_16_bits_agree_with_one(void)
{
    in_parts(pass_with_cache, MODELS * MODES);
}

const test_case tests_gpu_lm[] = {
    TEST(training_goes_on_bit_for_bit_on_the_cpu),
    TEST(losses_in_16_bits_are_those_of_f32_on_the_cpu),
    TEST(an_update_with_an_infinity_is_skipped),
    TEST(recomputed_layers_have_the_same_gradients),
    TEST(training_goes_on_bit_for_bit),
    TEST(generated_tokens_are_those_of_the_cpu),
    TEST(passes_with_a_cache_in_16_bits_agree_with_one),
    TEST_END,
};
