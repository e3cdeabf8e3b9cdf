// test_recordings.c: training steps equal those of PyTorch, which tools/record.py recorded. Weights
// and batches come from names by the same hash as there; see the script for what a recording has.
#include "on_device.h"
#include "rules_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

enum { BUCKETS = 512, STEPS = 10 };

// A recorded gradient below this norm is 0 but for rounding: that of a bias before a batch norm.
static const double NOISE = 1e-6;

// ---- numbers from names

static uint32_t seed_of(const char *name)
{
    uint32_t h = 0x811c9dc5u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x01000193u;
    return h;
}

static uint32_t hash_at(uint32_t seed, int64_t i)
{
    uint32_t h = seed + (uint32_t)i * 0x9e3779b9u;
    h          = (h ^ h >> 16) * 0x85ebca6bu;
    h          = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

static double unit_at(uint32_t seed, int64_t i)
{
    return (double)(hash_at(seed, i) >> 16) / 32768 - 1;
}

// A tensor of n times scale * unit + shift.
static tn_tensor *units(tn_ctx *cx, const char *name, tn_dtype dt, int rank, const int64_t *size,
                        double scale, double shift)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    double  *v    = malloc((size_t)n * sizeof *v);
    uint32_t seed = seed_of(name);
    if (!v) return NULL;
    for (int64_t i = 0; i < n; i++) v[i] = scale * unit_at(seed, i) + shift;
    tn_tensor *t = tn_from(cx, TN_F64, rank, size, v);
    free(v);
    return tn_cast(t, dt);
}

static tn_tensor *classes(tn_ctx *cx, const char *name, int rank, const int64_t *size, int count)
{
    int64_t  v[256], n = 1;
    uint32_t seed = seed_of(name);
    for (int i = 0; i < rank; i++) n *= size[i];
    for (int64_t i = 0; i < n; i++) v[i] = hash_at(seed, i) % (uint32_t)count;
    return tn_from(cx, TN_I64, rank, size, v);
}

// Fills a parameter; user is unused.
static void fill(const char *name, tn_tensor *t, void *user)
{
    (void)user;
    if (!tn_needs_grad(t)) return;
    int64_t size[TN_MAX_RANK];
    int     rank  = tn_rank(t);
    bool    norm  = rank == 1 && strlen(name) > 6 && !strcmp(name + strlen(name) - 6, "weight");
    double  scale = norm ? 0.25 : 0.125;
    for (int i = 0; i < rank; i++) size[i] = tn_size(t, i);
    if (rank > 1)
        for (scale = 1; scale * scale * (double)(tn_count(t) / size[0]) > 1;) scale /= 2;
    tn_assign(t, units(tn_ctx_of(t), name, tn_dtype_of(t), rank, size, scale, norm ? 1 : 0));
}

// ---- models and optimizers

static tn_layer *make_mlp(tn_ctx *cx)
{
    return tn_mlp(cx, TN_SHAPE(784, 32, 16, 10));
}

static tn_layer *make_resnet20(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 20 });
}

static tn_layer *make_gpt2(tn_ctx *cx)
{
    return tn_gpt2(
        cx,
        (tn_gpt2_opts){
            .layers = 2, .heads = 2, .width = 32, .vocab = 97, .context = 16, .dropout = TN_ZERO });
}

static tn_layer *make_gpt2_hf(tn_ctx *cx)
{
    return tn_gpt2(
        cx,
        (tn_gpt2_opts){
            .layers = 2, .heads = 2, .width = 16, .vocab = 97, .context = 16, .dropout = TN_ZERO });
}

static tn_layer *make_tinyllama(tn_ctx *cx)
{
    return tn_llama(cx, (tn_llama_opts){ .layers   = 2,
                                         .heads    = 8,
                                         .kv_heads = 1,
                                         .width    = 32,
                                         .hidden   = 48,
                                         .vocab    = 97,
                                         .context  = 16 });
}

static tn_layer *make_smollm(tn_ctx *cx)
{
    return tn_llama(
        cx, (tn_llama_opts){
                .layers   = 1,
                .heads    = 9,
                .kv_heads = 3,
                .width    = 36,
                .hidden   = 40,
                .vocab    = 97,
                .context  = 16,
                .tied     = true,
                .rope = { .theta = 100, .scaling = TN_ROPE_LLAMA3, .factor = 4, .trained = 8 } });
}

static tn_layer *make_qwen2(tn_ctx *cx)
{
    return tn_llama(cx, (tn_llama_opts){ .layers   = 1,
                                         .heads    = 2,
                                         .kv_heads = 1,
                                         .width    = 16,
                                         .hidden   = 24,
                                         .vocab    = 97,
                                         .context  = 16,
                                         .eps      = 1e-6,
                                         .qkv_bias = true });
}

static tn_layer *make_mistral(tn_ctx *cx)
{
    return tn_llama(cx, (tn_llama_opts){ .layers   = 2,
                                         .heads    = 2,
                                         .kv_heads = 1,
                                         .width    = 16,
                                         .hidden   = 24,
                                         .vocab    = 97,
                                         .context  = 16,
                                         .window   = 5 });
}

// A model of the script: how it is made, its batches, and the optimizer of its ten steps (NULL:
// none).
typedef struct {
    const char *name;
    tn_layer *(*make)(tn_ctx *cx);
    int         rank;
    int64_t     size[4];  // of x
    int         classes;
    bool        tokens;
    const char *optim;
    bool        logits;  // are recorded too
} model;

static const model models[] = {
    { "mlp", make_mlp, 4, { 8, 1, 28, 28 }, 10, false, "sgd", false },
    { "lenet", tn_lenet, 4, { 4, 1, 28, 28 }, 10, false, "adam_decay", false },
    { "resnet20", make_resnet20, 4, { 4, 3, 32, 32 }, 10, false, "sgd_nesterov", false },
    { "gpt2", make_gpt2, 2, { 4, 16 }, 97, true, "adamw_decay", false },
    { "gpt2_hf", make_gpt2_hf, 2, { 2, 16 }, 97, true, NULL, true },
    { "tinyllama", make_tinyllama, 2, { 4, 16 }, 97, true, "adamw_decay", true },
    { "smollm", make_smollm, 2, { 4, 16 }, 97, true, NULL, true },
    { "qwen2", make_qwen2, 2, { 2, 16 }, 97, true, NULL, true },
    { "mistral", make_mistral, 2, { 2, 16 }, 97, true, NULL, true },
};

enum { MODELS = sizeof models / sizeof *models };

static tn_layer *fresh(const model *m, tn_ctx *cx, tn_dtype dt)
{
    tn_layer *net = m->make(cx);
    if (!CHECK(net != NULL) || !CHECK_STATUS(tn_layer_cast(net, dt), TN_OK)) return NULL;
    bool mode = tn_grad_mode(cx, false);
    CHECK_STATUS(tn_layer_each(net, fill, NULL), TN_OK);
    tn_grad_mode(cx, mode);
    return net;
}

static tn_tensor *loss_of(const model *m, tn_layer *net, int step, tn_dtype dt)
{
    tn_ctx *cx = tn_layer_ctx(net);
    char    x[8], y[8];
    snprintf(x, sizeof x, "x%d", step);
    snprintf(y, sizeof y, "y%d", step);
    if (!m->tokens)
        return tn_cross_entropy(tn_forward(net, units(cx, x, dt, m->rank, m->size, 1, 0)),
                                classes(cx, y, 1, m->size, m->classes));
    tn_tensor *logits = tn_forward(net, classes(cx, x, m->rank, m->size, m->classes));
    return tn_cross_entropy(tn_transpose(logits, 1, 2),
                            classes(cx, y, m->rank, m->size, m->classes));
}

#define EXACT .lr = 1 / 128.0f, .beta1 = 7 / 8.0f, .beta2 = 31 / 32.0f, .eps = 1 / 1048576.0f

static tn_optim *make_optim(tn_layer *net, const char *name)
{
    if (!strcmp(name, "sgd")) return tn_sgd(net, (tn_sgd_opts){ .lr = 1 / 16.0f });
    if (!strcmp(name, "sgd_nesterov"))
        return tn_sgd(net, (tn_sgd_opts){ .lr           = 1 / 32.0f,
                                          .momentum     = 7 / 8.0f,
                                          .weight_decay = 1 / 64.0f,
                                          .nesterov     = true });
    if (!strcmp(name, "sgd_dampened"))
        return tn_sgd(net, (tn_sgd_opts){ .lr = 1 / 16.0f, .momentum = 0.75f, .dampening = 0.25f });
    if (!strcmp(name, "adam")) return tn_adam(net, (tn_adam_opts){ 0 });
    if (!strcmp(name, "adam_decay"))
        return tn_adam(net, (tn_adam_opts){ EXACT, .weight_decay = 1 / 64.0f });
    if (!strcmp(name, "adamw")) return tn_adamw(net, (tn_adamw_opts){ 0 });
    if (!strcmp(name, "adamw_decay"))
        return tn_adamw(net, (tn_adamw_opts){ EXACT, .weight_decay = 0.25f });
    if (!strcmp(name, "rmsprop")) return tn_rmsprop(net, (tn_rmsprop_opts){ 0 });
    if (!strcmp(name, "adagrad")) return tn_adagrad(net, (tn_adagrad_opts){ 0 });
    if (!strcmp(name, "adagrad_decay"))
        return tn_adagrad(net, (tn_adagrad_opts){ .lr                        = 1 / 64.0f,
                                                  .lr_decay                  = 0.125f,
                                                  .initial_accumulator_value = 0.25f,
                                                  .eps                       = 1 / 1048576.0f,
                                                  .weight_decay              = 1 / 64.0f });
    if (!strcmp(name, "adadelta")) return tn_adadelta(net, (tn_adadelta_opts){ 0 });
    if (!strcmp(name, "adadelta_decay"))
        return tn_adadelta(net, (tn_adadelta_opts){ .lr           = 0.5f,
                                                    .rho          = 7 / 8.0f,
                                                    .eps          = 1 / 1048576.0f,
                                                    .weight_decay = 1 / 64.0f });
    if (!strcmp(name, "nadam")) return tn_nadam(net, (tn_nadam_opts){ 0 });
    if (!strcmp(name, "nadam_decay"))
        return tn_nadam(net, (tn_nadam_opts){ EXACT, .momentum_decay = 1 / 128.0f,
                                              .weight_decay = 1 / 64.0f });
    if (!strcmp(name, "lbfgs"))
        return tn_lbfgs(net, (tn_lbfgs_opts){ .lr = 0.25, .max_iter = 5, .history_size = 4 });
    if (!strcmp(name, "lbfgs_wolfe"))
        return tn_lbfgs(net, (tn_lbfgs_opts){ .max_iter = 6, .strong_wolfe = true });
    if (!strcmp(name, "lion"))
        return tn_lion(net, (tn_lion_opts){ .lr           = 1 / 1024.0f,
                                            .beta1        = 7 / 8.0f,
                                            .beta2        = 31 / 32.0f,
                                            .weight_decay = 0.25f });
    if (!strcmp(name, "lamb"))
        return tn_lamb(net, (tn_lamb_opts){ EXACT, .weight_decay = 1 / 64.0f });
    if (!strcmp(name, "muon"))
        return tn_muon(net, (tn_muon_opts){ .lr = 1 / 64.0f, .weight_decay = 0.25f });
    return tn_rmsprop(net, (tn_rmsprop_opts){ .lr           = 1 / 256.0f,
                                              .alpha        = 7 / 8.0f,
                                              .eps          = 1 / 1048576.0f,
                                              .momentum     = 0.5f,
                                              .weight_decay = 1 / 64.0f,
                                              .centered     = true });
}

// ---- comparing

// A comparison in progress: what tensors are called in the file, and how near they must be.
typedef struct {
    const model *m;
    tn_file     *file;
    const char  *group;      // "f32", or an optimizer
    bool         gradients;  // of the parameters, instead of them
    double       tolerance;
} comparison;

static tn_file *recording(tn_ctx *cx, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/test/recordings/%s.safetensors", TN_SOURCE_DIR, name);
    tn_file *f = tn_file_open(cx, path);
    test_that(f != NULL, "%s: %s", path, tn_error_text(cx));
    return f;
}

// As in the script; n is the sketch's length. NULL when memory is out.
static double *sketch(tn_tensor *t, int64_t *n)
{
    int64_t  count = tn_count(t);
    double  *v     = malloc((size_t)count * sizeof *v);
    uint32_t seed  = seed_of("sketch");
    *n             = count > BUCKETS ? BUCKETS : count;
    if (!v || tn_read(t, TN_F64, v, count) != TN_OK || count <= BUCKETS) return v;
    double *s = calloc(BUCKETS, sizeof *s);
    for (int64_t i = 0; s && i < count; i++) {
        uint32_t h = hash_at(seed, i);
        s[h % BUCKETS] += h >> 31 ? -v[i] : v[i];
    }
    free(v);
    return s;
}

static double norm_of(const double *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i] * v[i];
    return sqrt(sum);
}

// The recorded numbers of that name into v, n of them.
static bool recorded(tn_file *f, const char *name, double *v, int64_t n)
{
    tn_tensor *t = tn_file_tensor(f, name);
    return t && tn_count(t) == n && tn_read(t, TN_F64, v, n) == TN_OK;
}

// Compares a tensor with the recorded one of that name.
static void compare_as(const comparison *c, const char *key, tn_tensor *t)
{
    double  want[BUCKETS];
    int64_t n;
    double *have = sketch(t, &n);
    if (test_that(have && recorded(c->file, key, want, n), "%s: no %s of %d", c->m->name, key,
                  (int)n)) {
        double scale = norm_of(want, n);
        for (int64_t i = 0; i < n; i++) have[i] -= want[i];
        double d    = norm_of(have, n);
        double most = c->gradients && scale < NOISE ? NOISE : c->tolerance * scale;
        test_case_result(d <= most, "%s: %s differs by %.3g of %.3g", c->m->name, key, d, scale);
    }
    free(have);
}

static void compare(const char *name, tn_tensor *t, void *user)
{
    const comparison *c = user;
    char              key[256];
    if (!tn_needs_grad(t)) return;
    snprintf(key, sizeof key, "%s.%s.%s", c->group, c->gradients ? "grad" : "param", name);
    compare_as(c, key, c->gradients ? tn_grad_of(t) : t);
}

static void compare_losses(comparison *c, const double *have, int n)
{
    char   key[64];
    double want[STEPS];
    snprintf(key, sizeof key, "%s.loss", c->group);
    if (!test_that(recorded(c->file, key, want, n), "%s: no %s", c->m->name, key)) return;
    for (int i = 0; i < n; i++)
        test_case_result(fabs(have[i] - want[i]) <= c->tolerance * fabs(want[i]),
                         "%s: %s[%d] is %.12g, not %.12g", c->m->name, key, i, have[i], want[i]);
}

// ---- tests

static void first_step(const model *m, tn_ctx *cx)
{
    tn_layer  *net = fresh(m, cx, TN_F32);
    comparison c   = { m, recording(cx, m->name), "f32", true, 1e-4 };
    if (!net || !c.file) return;
    tn_tensor *loss = loss_of(m, net, 0, TN_F32);
    CHECK_STATUS(tn_backward(loss, NULL), TN_OK);
    compare_losses(&c, (double[]){ tn_item(loss) }, 1);
    CHECK_STATUS(tn_layer_each(net, compare, &c), TN_OK);
    if (!m->logits) return;
    tn_tensor *y = tn_forward(net, classes(cx, "x0", m->rank, m->size, m->classes));
    if (CHECK(y != NULL)) compare_as(&c, "f32.logits", y);
}

static void first_gradients_in_f32_equal_the_recorded_ones(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int i = 0; i < MODELS; i++) first_step(&models[i], cx);
}

// A step of a recording, for optimizers that call a function.
typedef struct {
    const model *m;
    tn_layer    *net;
    int          step;
} recorded_step;

static tn_tensor *step_loss(void *user)
{
    const recorded_step *s = user;
    return loss_of(s->m, s->net, s->step, TN_F64);
}

static void ten_steps(const model *m, const char *optim, const char *device)
{
    tn_ctx    *cx  = rules_open(device);
    tn_layer  *net = fresh(m, cx, TN_F64);
    comparison c   = { m, recording(cx, m->name), optim, false, 1e-6 };
    tn_optim  *o   = net ? make_optim(net, optim) : NULL;
    double     losses[STEPS];
    if (CHECK(o && c.file)) {
        for (int i = 0; i < STEPS; i++) {
            tn_scope *s = tn_begin(cx);
            CHECK_STATUS(tn_minimize(o, step_loss, &(recorded_step){ m, net, i }, &losses[i]),
                         TN_OK);
            CHECK_STATUS(tn_end(s), TN_OK);
        }
        compare_losses(&c, losses, STEPS);
        CHECK_STATUS(tn_layer_each(net, compare, &c), TN_OK);
    }
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

static const char *const optims[] = { "sgd",
                                      "sgd_nesterov",
                                      "sgd_dampened",
                                      "adam",
                                      "adam_decay",
                                      "adamw",
                                      "adamw_decay",
                                      "rmsprop",
                                      "rmsprop_centered",
                                      "adagrad",
                                      "adagrad_decay",
                                      "adadelta",
                                      "adadelta_decay",
                                      "nadam",
                                      "nadam_decay",
                                      "lbfgs",
                                      "lbfgs_wolfe",
                                      "lion",
                                      "lamb",
                                      "muon" };
enum { OPTIMS = sizeof optims / sizeof *optims };

static void ten_steps_of_every_optimizer_in_f64_equal_the_recorded_ones(void)
{
    for (int i = 0; i < OPTIMS; i++) ten_steps(&models[0], optims[i], "cpu");
}

static void ten_steps_of_every_model_in_f64_equal_the_recorded_ones(void)
{
    for (int i = 1; i < MODELS; i++)
        if (models[i].optim) ten_steps(&models[i], models[i].optim, "cpu");
}

// On a device that has no LIBRARY op: products, convolutions and attention are other ops. (Of the
// models resnet is left out, which takes long so.)
static void ten_steps_without_library_ops_equal_the_recorded_ones(void)
{
    for (int i = 0; i < MODELS; i++)
        if (models[i].optim && strcmp(models[i].name, "resnet20"))
            ten_steps(&models[i], models[i].optim, "skeleton");
}

// Where few draws are asked for, as under a watch that makes kernels slow, only mlp takes ten
// steps.
void recordings_on(const char *device, int part, int parts)
{
    enum { ALL = 2 * MODELS - 1 + OPTIMS };
    bool brief = test_draws(ALL * ALL) < ALL * ALL;
    for (int i = part; i < ALL; i += parts) {
        int step = i - MODELS, optim = step - (MODELS - 1);
        if (brief && step >= 0 && optim < 0) continue;
        if (optim >= 0) ten_steps(&models[0], optims[optim], device);
        else if (step >= 0 && models[step + 1].optim)
            ten_steps(&models[step + 1], models[step + 1].optim, device);
        if (step >= 0) continue;
        tn_ctx *cx = rules_open(device);
        first_step(&models[i], cx);
        tn_close(cx);
    }
}

// ---- torchvision's networks

static tn_layer *make_resnet18(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ 0 });
}

static tn_layer *make_resnet34(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 34 });
}

static tn_layer *make_resnet50(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 50 });
}

static tn_layer *make_mobilenet(tn_ctx *cx)
{
    return tn_mobilenet_v2(cx, (tn_mobilenet_v2_opts){ .dropout = TN_ZERO });
}

static tn_layer *make_vit(tn_ctx *cx)
{
    return tn_vit(
        cx, (tn_vit_opts){
                .size = 64, .layers = 2, .heads = 4, .width = 64, .hidden = 96, .classes = 30 });
}

static tn_layer *make_convnext(tn_ctx *cx)
{
    return tn_convnext(cx,
                       (tn_convnext_opts){
                           .blocks = { 1, 2, 1, 1 }, .width = 16, .classes = 30, .drop = TN_ZERO });
}

static tn_layer *make_unet(tn_ctx *cx)
{
    return tn_unet(cx, (tn_unet_opts){ .width = 8, .levels = 3 });
}

// These have hundreds of tensors of up to two million elements, so there is no more than this.
static void check_logits(tn_file *f, tn_ctx *cx, const char *name, tn_layer *(*make)(tn_ctx *cx))
{
    double     want[BUCKETS];
    int64_t    n;
    tn_layer  *net = make(cx);
    tn_tensor *x   = units(cx, "x0", TN_F32, TN_SHAPE(2, 3, 64, 64), 1, 0);
    tn_grad_mode(cx, false);
    CHECK_STATUS(tn_layer_each(net, fill, NULL), TN_OK);
    tn_tensor *y    = tn_forward(net, x);
    double    *have = y ? sketch(y, &n) : NULL;
    if (test_that(have && recorded(f, name, want, n), "no %s: %s", name, tn_error_text(cx))) {
        for (int64_t i = 0; i < n; i++) have[i] -= want[i];
        test_that(norm_of(have, n) / norm_of(want, n) < 1e-4, "%s differs by %g", name,
                  norm_of(have, n) / norm_of(want, n));
    }
    free(have);
    tn_layer_free(net);
}

static void logits_of_torchvisions_networks_equal_the_recorded_ones(void)
{
    static const struct {
        const char *name;
        tn_layer *(*make)(tn_ctx *cx);
    } nets[] = { { "resnet18", make_resnet18 }, { "resnet34", make_resnet34 },
                 { "resnet50", make_resnet50 }, { "mobilenet_v2", make_mobilenet },
                 { "vit", make_vit },           { "convnext", make_convnext },
                 { "unet", make_unet } };

    tn_ctx  *cx = rules_open("cpu");
    tn_file *f  = recording(cx, "torchvision");
    for (size_t i = 0; f && i < sizeof nets / sizeof *nets; i++)
        check_logits(f, cx, nets[i].name, nets[i].make);
    tn_close(cx);
}

// The same with the sizes that a program gets without options.
static void whole_networks_have_as_many_parameters_as_torchvisions(void)
{
    double   want[6] = { 0 };
    tn_ctx  *cx      = rules_open("cpu");
    tn_file *f       = recording(cx, "torchvision");
    if (f) CHECK(recorded(f, "counts", want, 6));
    for (int i = 0; i < 6; i++) {
        const int depth[] = { 34, 101, 152 };
        tn_layer *net     = i < 3    ? tn_resnet(cx, (tn_resnet_opts){ .depth = depth[i] })
                            : i == 3 ? tn_mobilenet_v2(cx, (tn_mobilenet_v2_opts){ 0 })
                            : i == 4 ? tn_vit(cx, (tn_vit_opts){ 0 })
                                     : tn_convnext(cx, (tn_convnext_opts){ 0 });
        CHECK_INT(tn_layer_count(net), want[i]);
        tn_layer_free(net);
    }
    tn_close(cx);
}

// By every scaling, at positions within and far beyond the training.
static void rotary_tables_equal_the_recorded_ones(void)
{
    static const struct {
        const char  *name;
        tn_rope_opts o;
    } kinds[] = {
        { "default", { .width = 16 } },
        { "linear", { .width = 16, .theta = 5e5, .scaling = TN_ROPE_LINEAR, .factor = 4 } },
        { "dynamic", { .width = 16, .scaling = TN_ROPE_DYNAMIC, .factor = 2, .trained = 256 } },
        { "llama3",
          { .width = 16, .theta = 5e5, .scaling = TN_ROPE_LLAMA3, .factor = 32, .trained = 256 } },
        { "yarn", { .width = 16, .scaling = TN_ROPE_YARN, .factor = 4, .trained = 256 } },
    };
    static const int64_t at[] = { 0, 1, 7, 100, 2047 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_file *f = recording(cx, "rope");
        for (size_t i = 0; f && i < sizeof kinds / sizeof *kinds; i++) {
            double     have[80], want[80];
            tn_tensor *p = tn_from(cx, TN_I64, TN_SHAPE(5), at);
            CHECK_STATUS(tn_read(tn_rope_table(p, kinds[i].o), TN_F64, have, 80), TN_OK);
            if (!CHECK(recorded(f, kinds[i].name, want, 80))) continue;
            // An angle of 2047 in f32 is known to 1e-4.
            for (int k = 0; k < 80; k++)
                test_case_result(fabs(have[k] - want[k]) <= (k % 40 < 32 ? 1e-5 : 3e-4),
                                 "%s[%d] is %.9g, not %.9g", kinds[i].name, k, have[k], want[k]);
        }
    }
}

const test_case tests_recordings[] = {
    TEST(first_gradients_in_f32_equal_the_recorded_ones),
    TEST(ten_steps_of_every_optimizer_in_f64_equal_the_recorded_ones),
    TEST(ten_steps_of_every_model_in_f64_equal_the_recorded_ones),
    TEST(ten_steps_without_library_ops_equal_the_recorded_ones),
    TEST(logits_of_torchvisions_networks_equal_the_recorded_ones),
    TEST(whole_networks_have_as_many_parameters_as_torchvisions),
    TEST(rotary_tables_equal_the_recorded_ones),
    TEST_END,
};
