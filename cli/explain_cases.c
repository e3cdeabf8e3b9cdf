// explain_cases.c: the cases of `tenon explain` and `tenon profile`, as a program would write them;
// their output names lines of this file.
#include "cli.h"

#include <tenon/models.h>

// B batch, T time, C channels or features, N rows
enum { N = 1024, C = 1024, CLASSES = 8192, BATCH = 64, B = 4, T = 64, VOCAB = 1024 };

// ---- inputs of the cases -----------------------------------------------------------------------

static tn_tensor *numbers(tn_ctx *cx, int rank, const int64_t *size)
{
    return tn_randn(cx, TN_F32, rank, size);
}

// x and y are rows, w and b have one number per column, as in a network.
static void make_rows(cli_kit *k)
{
    k->x = numbers(k->cx, TN_SHAPE(N, C));
    k->y = numbers(k->cx, TN_SHAPE(N, C));
    k->w = numbers(k->cx, TN_SHAPE(C));
    k->b = numbers(k->cx, TN_SHAPE(C));
}

static void make_trained_rows(cli_kit *k)
{
    make_rows(k);
    tn_requires_grad(k->x, true);
    tn_requires_grad(k->w, true);
    tn_requires_grad(k->b, true);
}

static void make_logits(cli_kit *k)
{
    k->x      = tn_requires_grad(numbers(k->cx, TN_SHAPE(N, CLASSES)), true);
    k->target = tn_randint(k->cx, TN_I64, 0, CLASSES, TN_SHAPE(N));
}

static void make_images(cli_kit *k)
{
    k->x    = numbers(k->cx, TN_SHAPE(32, 64, 28, 28));
    k->w    = numbers(k->cx, TN_SHAPE(64));
    k->b    = numbers(k->cx, TN_SHAPE(64));
    k->mean = numbers(k->cx, TN_SHAPE(64));
    k->var  = tn_rand(k->cx, TN_F32, TN_SHAPE(64));
}

// Assigns the next numbers of k->y to a gradient. In a training loop the gradients of an optimizer
// are contiguous, and so are these.
static void give_gradient(const char *name, tn_tensor *p, void *user)
{
    cli_kit   *k    = user;
    int64_t    used = k->used;
    tn_tensor *g    = tn_grad_of(p);
    k->used += tn_count(p);
    tn_assign(tn_flatten(g, 0, -1), tn_slice(k->y, 0, used, k->used, 1));
    (void)name;
}

static void make_gradients(cli_kit *k)
{
    k->net = tn_mlp(k->cx, TN_SHAPE(784, 512, 256, 10));
    k->opt = tn_adamw(k->net, (tn_adamw_opts){ .lr = 1e-3f });
    k->y   = numbers(k->cx, TN_SHAPE(tn_layer_count(k->net)));
    tn_layer_each(k->net, give_gradient, k);
}

static void make_block(cli_kit *k)
{
    k->net = tn_nn_transformer_block(k->cx, 256, 4);
    k->x   = tn_requires_grad(numbers(k->cx, TN_SHAPE(B, 128, 256)), true);
    k->y   = numbers(k->cx, TN_SHAPE(B, 128, 256));
}

static void make_mlp(cli_kit *k)
{
    k->net    = tn_mlp(k->cx, TN_SHAPE(784, 128, 10));
    k->opt    = tn_adamw(k->net, (tn_adamw_opts){ .lr = 1e-3f });
    k->x      = numbers(k->cx, TN_SHAPE(BATCH, 784));
    k->target = tn_randint(k->cx, TN_I64, 0, 10, TN_SHAPE(BATCH));
}

static void make_lenet(cli_kit *k)
{
    k->net    = tn_lenet(k->cx);
    k->opt    = tn_adamw(k->net, (tn_adamw_opts){ .lr = 1e-3f });
    k->x      = numbers(k->cx, TN_SHAPE(BATCH, 1, 28, 28));
    k->target = tn_randint(k->cx, TN_I64, 0, 10, TN_SHAPE(BATCH));
}

static void make_gpt2(cli_kit *k)
{
    tn_gpt2_opts o = { .layers = 2, .heads = 4, .width = 128, .vocab = VOCAB, .context = T };
    k->net         = tn_gpt2(k->cx, o);
    k->opt         = tn_adamw(k->net, (tn_adamw_opts){ .lr = 1e-3f, .clip_norm = 1 });
    k->x           = tn_randint(k->cx, TN_I64, 0, VOCAB, TN_SHAPE(B, T));
    k->target      = tn_randint(k->cx, TN_I64, 0, VOCAB, TN_SHAPE(B, T));
}

static void make_llama(cli_kit *k)
{
    tn_llama_opts o = { .layers   = 2,
                        .heads    = 4,
                        .kv_heads = 2,
                        .width    = 128,
                        .hidden   = 384,
                        .vocab    = VOCAB,
                        .context  = T };
    k->net          = tn_llama(k->cx, o);
    k->opt          = tn_adamw(k->net, (tn_adamw_opts){ .lr = 1e-3f, .clip_norm = 1 });
    k->x            = tn_randint(k->cx, TN_I64, 0, VOCAB, TN_SHAPE(B, T));
    k->target       = tn_randint(k->cx, TN_I64, 0, VOCAB, TN_SHAPE(B, T));
}

// ---- the cases ---------------------------------------------------------------------------------

static void relu_chain(cli_kit *k)
{
    tn_add_s(tn_mul_s(tn_relu(k->x), 0.5), 1);
}

static void softmax(cli_kit *k)
{
    tn_softmax(k->x, 1);
}

static void log_softmax(cli_kit *k)
{
    tn_log_softmax(k->x, 1);
}

static void layer_norm(cli_kit *k)
{
    tn_layer_norm(k->x, 1, k->w, k->b, 0);
}

static void rms_norm(cli_kit *k)
{
    tn_rms_norm(k->x, 1, k->w, 0);
}

// k->y is the gradient of the result; the result itself is not wanted.
static void layer_norm_backward(cli_kit *k)
{
    tn_tensor *y = tn_layer_norm(k->x, 1, k->w, k->b, 0);
    tn_backward(y, k->y);
    tn_drop(y);
}

static void cross_entropy(cli_kit *k)
{
    tn_class_opts o    = { .no_ignore = true };
    tn_tensor    *loss = tn_cross_entropy_with(k->x, k->target, o);
    tn_backward(loss, NULL);
}

static void bias_gelu_dropout_residual(cli_kit *k)
{
    tn_tensor *h = tn_gelu(tn_add(k->x, k->b));
    tn_add(k->y, tn_dropout(h, 0.1, true));
}

static void batch_norm(cli_kit *k)
{
    tn_batch_norm_opts o = { .training = true };
    tn_batch_norm(k->x, k->mean, k->var, k->w, k->b, o);
}

static void adamw(cli_kit *k)
{
    tn_optim_step(k->opt);
}

static void clip(cli_kit *k)
{
    tn_optim_clip_norm(k->opt, 1);
}

static void max_pool(cli_kit *k)
{
    tn_max_pool2d(k->x, 2, 2, (tn_pool_opts){ 0 });
}

static void transformer_block(cli_kit *k)
{
    tn_tensor *y = tn_forward(k->net, k->x);
    tn_backward(y, k->y);
}

// What tn_step records; that would also run it.
static void train(cli_kit *k, tn_tensor *loss)
{
    tn_backward(loss, NULL);
    tn_optim_step(k->opt);
    tn_optim_zero_grad(k->opt);
}

static void classify(cli_kit *k)
{
    tn_tensor *y = tn_forward(k->net, k->x);
    train(k, tn_cross_entropy(y, k->target));
}

static void text_step(cli_kit *k)
{
    tn_tensor *y    = tn_reshape(tn_forward(k->net, k->x), TN_SHAPE(B * T, VOCAB));
    tn_tensor *next = tn_reshape(k->target, TN_SHAPE(B * T));
    train(k, tn_cross_entropy(y, next));
}

enum { STEADY = 2 };  // steps until a training loop repeats itself

static const cli_case cases[] = {
    { "relu_chain", "relu, scale and shift of a matrix", make_rows, relu_chain, 0 },
    { "softmax", "of the rows of a matrix", make_rows, softmax, 0 },
    { "log_softmax", "of the rows of a matrix", make_rows, log_softmax, 0 },
    { "layer_norm", "with weight and bias", make_rows, layer_norm, 0 },
    { "rms_norm", "with weight", make_rows, rms_norm, 0 },
    { "layer_norm_backward", "gradients of x, weight and bias", make_trained_rows,
      layer_norm_backward, 0 },
    { "cross_entropy", "mean loss, and the gradient of the logits", make_logits, cross_entropy, 0 },
    { "bias_gelu_dropout_residual", "the middle of a transformer", make_rows,
      bias_gelu_dropout_residual, 0 },
    { "batch_norm", "training: by the batch, with running statistics", make_images, batch_norm, 0 },
    { "adamw", "an update of all parameters of a network", make_gradients, adamw, STEADY },
    { "clip", "gradients of a network, to a common norm", make_gradients, clip, 0 },
    { "max_pool", "2 x 2 windows of images", make_images, max_pool, 0 },
    { "transformer_block", "forward and backward", make_block, transformer_block, 0 },
    { "mlp_step", "a training step of a small perceptron", make_mlp, classify, STEADY },
    { "lenet_step", "a training step of lenet", make_lenet, classify, STEADY },
    { "gpt2_step", "a training step of a small gpt2, with clipping", make_gpt2, text_step, STEADY },
    { "llama_step", "a training step of a small llama, with clipping", make_llama, text_step,
      STEADY },
};

const cli_case *cli_case_at(int i)
{
    return i >= 0 && i < (int)(sizeof cases / sizeof *cases) ? &cases[i] : NULL;
}
