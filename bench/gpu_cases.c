// gpu_cases.c: which single ops are timed on a GPU, as the public interface has them.
#include "gpu_ops.h"

// ---- maps, rows, sums --------------------------------------------------------------------------

static bool record_relu(gpu_op *s)
{
    s->t[1] = tn_add_s(tn_mul_s(tn_relu(s->t[0]), 0.5), 1);
    return s->t[1] != NULL;
}

static bool record_tanh(gpu_op *s)
{
    tn_tensor *v = tn_unsqueeze(s->t[1], 1);
    s->t[2]      = tn_mul(tn_tanh(tn_add(tn_transpose(s->t[0], 0, 1), v)), s->t[0]);
    return s->t[2] != NULL;
}

static bool record_softmax(gpu_op *s)
{
    s->t[1] = tn_softmax(s->t[0], 1);
    return s->t[1] != NULL;
}

static bool record_sum(gpu_op *s)
{
    s->t[1] = tn_sum_all(s->t[0]);
    return s->t[1] != NULL;
}

static bool record_column_sum(gpu_op *s)
{
    s->t[1] = tn_sum(s->t[0], 0);
    return s->t[1] != NULL;
}

// ---- forward and backward ----------------------------------------------------------------------

// The gradients of leaves, each in a fresh place: what was there is forgotten.
static void clear(tn_tensor *x)
{
    tn_requires_grad(x, true);
    tn_zero_grad(x);
}

static bool record_cross_entropy(gpu_op *s)
{
    tn_class_opts o = { .no_ignore = true };
    clear(s->t[0]);
    s->t[2] = tn_cross_entropy_with(tn_cast(s->t[0], TN_F32), s->t[1], o);
    if (tn_backward(s->t[2], NULL) != TN_OK) return false;
    s->t[3] = tn_grad_of(s->t[0]);
    return true;
}

static bool record_norm(gpu_op *s)
{
    s->t[3] = tn_layer_norm(s->t[0], 1, s->t[1], s->t[2], 0);
    return s->t[3] != NULL;
}

static bool record_norm_all(gpu_op *s)
{
    for (int i = 0; i < 3; i++) clear(s->t[i]);
    s->t[4] = tn_want(tn_layer_norm(s->t[0], 1, s->t[1], s->t[2], 0));
    if (tn_backward(s->t[4], s->t[3]) != TN_OK) return false;
    for (int i = 0; i < 3; i++) s->t[5 + i] = tn_grad_of(s->t[i]);
    return true;
}

// ---- products ----------------------------------------------------------------------------------

static bool record_product(gpu_op *s)
{
    s->t[2] = tn_matmul(s->t[0], s->t[1]);
    return s->t[2] != NULL;
}

static bool record_gelu(gpu_op *s)
{
    s->t[3] = tn_gelu_tanh(tn_linear(s->t[0], s->t[1], s->t[2]));
    return s->t[3] != NULL;
}

// ---- updates -----------------------------------------------------------------------------------

// Part i of an array, in memory of its own.
static tn_tensor *part_of(const gpu_op *s, int array, int i)
{
    int64_t each = s->rows / s->parts;
    return tn_clone(tn_slice(s->t[array], 0, i * each, (i + 1) * each, 1));
}

// Parameters and their gradients. Clipping by a norm that no gradient has changes nothing, but
// leaves the gradients where a backward pass does: in the order of the update, side by side.
static bool open_optimizer(gpu_op *s, tn_adamw_opts o)
{
    s->parts = s->rows % GPU_PARTS ? 1 : GPU_PARTS;
    for (int i = 0; i < s->parts; i++) s->param[i] = part_of(s, 0, i);
    tn_layer *net  = tn_layer_of(s->cx, s->parts, s->param);
    o.lr           = (float)GPU_LR;
    o.weight_decay = (float)GPU_DECAY;
    s->opt         = tn_adamw(net, o);
    if (!s->opt || tn_eval(s->cx) != TN_OK) return false;
    for (int i = 0; i < s->parts; i++)
        if (tn_backward(tn_mul_s(s->param[i], 1), part_of(s, 1, i)) != TN_OK) return false;
    return tn_optim_clip_norm(s->opt, 1e30) && tn_eval(s->cx) == TN_OK;
}

static bool open_adamw(gpu_op *s)
{
    return open_optimizer(s, (tn_adamw_opts){ .eps = (float)GPU_EPS });
}

static bool open_clip(gpu_op *s)
{
    return open_optimizer(s, (tn_adamw_opts){ .eps       = (float)GPU_CLIP_EPS,
                                              .clip_norm = (float)GPU_CLIP });
}

static bool record_update(gpu_op *s)
{
    return tn_optim_step(s->opt) == TN_OK;
}

// ---- the table ---------------------------------------------------------------------------------

// clang-format off
#define IN(type, axes)  { TN_##type, GPU_RANDOM, axes }
#define OUT(type, axes) { TN_##type, GPU_RESULT, axes }
#define MAP(what, side) \
    { what, side, side, 0, 8, 0, { IN(F32, "rc"), OUT(F32, "rc") }, NULL, \
      record_relu, gpu_relu_error, 1e-6, false }
#define SOFTMAX(what, rows, cols) \
    { what, rows, cols, 0, 8, 0, { IN(F32, "rc"), OUT(F32, "rc") }, NULL, \
      record_softmax, gpu_softmax_error, 1e-5, false }
// The rates are what the matrix units of an H200 reach in such a product.
#define PRODUCT(what, type, bytes, rate, most, tf32) \
    { what, 8192, 8192, 8192, bytes, rate, { IN(type, "rk"), IN(type, "kc"), OUT(type, "rc") }, \
      NULL, record_product, gpu_product_error, most, tf32 }

const gpu_case gpu_cases[] = {
    MAP("relu chain 4096^2 f32", 4096),
    MAP("relu chain 16384^2 f32", 16384),
    { "tanh(x.T+v)*x 4096^2 f32", 4096, 4096, 0, 8, 0,
      { IN(F32, "rc"), IN(F32, "r"), OUT(F32, "rc") }, NULL,
      record_tanh, gpu_tanh_error, 1e-5, false },
    SOFTMAX("softmax 8192x4096 f32", 8192, 4096),
    SOFTMAX("softmax 65536x128 f32", 65536, 128),
    SOFTMAX("softmax 512x131072 f32", 512, 131072),
    SOFTMAX("softmax 1024x50257 f32", 1024, 50257),
    { "layer norm 8192x4096 bf16, forward", 8192, 4096, 0, 4, 0,
      { IN(BF16, "rc"), IN(BF16, "c"), IN(BF16, "c"), OUT(BF16, "rc") }, NULL,
      record_norm, gpu_norm_error, 8e-3, false },
    { "layer norm 8192x4096 bf16", 8192, 4096, 0, 10, 0,
      { IN(BF16, "rc"), IN(BF16, "c"), IN(BF16, "c"), IN(BF16, "rc"),
        OUT(BF16, "rc"), OUT(BF16, "rc"), OUT(BF16, "c"), OUT(BF16, "c") }, NULL,
      record_norm_all, gpu_norm_all_error, 8e-3, false },
    { "cross-entropy 8192x50257 bf16", 8192, 50257, 0, 4, 0,
      { IN(BF16, "rc"), { TN_I64, GPU_INDEX, "r" }, OUT(F32, ""), OUT(BF16, "rc") }, NULL,
      record_cross_entropy, gpu_cross_entropy_error, 5e-3, false },
    { "sum 64 Mi f32", 1 << 26, 1, 0, 4, 0, { IN(F32, "r"), OUT(F32, "") }, NULL,
      record_sum, gpu_sum_error, 1e-6, false },
    { "column sum 65536x1024 f32", 65536, 1024, 0, 4, 0, { IN(F32, "rc"), OUT(F32, "c") }, NULL,
      record_column_sum, gpu_column_sum_error, 1e-5, false },
    { "linear+gelu 16384x768x3072 bf16", 16384, 3072, 768, 2, 776e12,
      { IN(BF16, "rk"), IN(BF16, "ck"), IN(BF16, "c"), OUT(BF16, "rc") }, NULL,
      record_gelu, gpu_gelu_error, 8e-3, false },
    { "adamw 130 M f32", GPU_PARTS * 1024, 1024, 0, 28, 0, { IN(F32, "rc"), IN(F32, "rc") },
      open_adamw, record_update, gpu_adamw_error, 2e-6, false },
    { "clip + adamw 130 M f32", GPU_PARTS * 1024, 1024, 0, 32, 0, { IN(F32, "rc"), IN(F32, "rc") },
      open_clip, record_update, gpu_clip_error, 1e-5, false },
    PRODUCT("matmul 8192^3 bf16", BF16, 6, 776e12, 8e-3, false),
    PRODUCT("matmul 8192^3 f16", F16, 6, 750e12, 2e-3, false),
    PRODUCT("matmul 8192^3 tf32", F32, 12, 366e12, 2e-3, true),
    PRODUCT("matmul 8192^3 f32", F32, 12, 50e12, 1e-5, false),
};
// clang-format on
const int gpu_case_count = sizeof gpu_cases / sizeof *gpu_cases;
