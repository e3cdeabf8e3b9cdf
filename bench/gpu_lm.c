// gpu_lm.c: language models on a GPU in bf16, beside PyTorch (lm_peers.py): training in tokens a
// second with its peak memory and the time of the first step, attention alone, and generation.
//
// B batch, T tokens, H heads, D their width
#include "gpu_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

enum { SECONDS = 150 };

static const char group[] = "gpu_lm";

// ---- networks ----------------------------------------------------------------------------------

// A network to train or to generate with: TRAINED of them, in the order of the table.
typedef struct {
    const char *name;
    bool        llama;
    int64_t     layers, heads, width;
    int64_t     B, T, vocab;
} network;

static const network networks[] = {
    { "GPT-2 124M, B 32", false, 12, 12, 768, 32, 1024, 50257 },
    { "GPT-2 124M, B 4", false, 12, 12, 768, 4, 1024, 50257 },
    { "GPT-2 350M, B 16", false, 24, 16, 1024, 16, 1024, 50257 },
    { "Llama 1.1B, B 4", true, 22, 32, 2048, 4, 2048, 32000 },
};

static tn_layer *make_network(tn_ctx *cx, const network *n)
{
    bool q = bench_quick();
    if (n->llama)
        return tn_llama(cx, q ? (tn_llama_opts){ .layers   = 2,
                                                 .heads    = 4,
                                                 .kv_heads = 2,
                                                 .width    = 64,
                                                 .hidden   = 128,
                                                 .vocab    = 97,
                                                 .context  = 32 }
                              : (tn_llama_opts){ .layers   = n->layers,
                                                 .heads    = n->heads,
                                                 .kv_heads = 4,
                                                 .width    = n->width,
                                                 .hidden   = 5632,
                                                 .vocab    = n->vocab,
                                                 .context  = n->T });
    return tn_gpt2(cx, q ? (tn_gpt2_opts){ .layers  = 2,
                                           .heads   = 2,
                                           .width   = 32,
                                           .vocab   = 97,
                                           .context = 32,
                                           .dropout = TN_ZERO }
                         : (tn_gpt2_opts){ .layers  = n->layers,
                                           .heads   = n->heads,
                                           .width   = n->width,
                                           .dropout = TN_ZERO });
}

// ---- training ----------------------------------------------------------------------------------

// A network, its optimizer and a fixed random batch on the device.
typedef struct {
    tn_ctx    *cx;
    tn_layer  *net;
    tn_optim  *opt;
    tn_tensor *x, *y;
} training;

static tn_tensor *random_tokens(tn_ctx *cx, const network *n)
{
    int64_t B = bench_quick() ? 2 : n->B, T = bench_quick() ? 16 : n->T;
    return tn_want(tn_randint(cx, TN_I64, 0, bench_quick() ? 97 : n->vocab, TN_SHAPE(B, T)));
}

// Returns whether it worked. Weights stay f32 and are used in bf16, as under PyTorch's autocast.
static bool open_training(training *t, const network *n)
{
    t->cx = gpu_open(group, true);
    if (!t->cx) return false;
    tn_autocast(t->cx, TN_BF16);
    t->net = make_network(t->cx, n);
    t->opt = tn_adamw(t->net, (tn_adamw_opts){ .lr = 6e-4f, .clip_norm = 1 });
    t->x   = random_tokens(t->cx, n);
    t->y   = random_tokens(t->cx, n);
    tn_eval(t->cx);
    tn_sync(t->cx);
    return gpu_is_well(t->cx, group, n->name);
}

static void train_step(void *arg)
{
    training  *t      = arg;
    tn_scope  *s      = tn_begin(t->cx);
    tn_tensor *logits = tn_flatten(tn_forward(t->net, t->x), 0, 1);
    tn_step(t->opt, tn_cross_entropy(logits, tn_flatten(t->y, 0, 1)));
    tn_end(s);
}

static void train(void *arg)
{
    const network *n = arg;
    training       t;
    if (!open_training(&t, n)) return;
    gpu_loop l = gpu_time_loop(t.cx, train_step, &t);
    if (gpu_is_well(t.cx, group, n->name)) {
        gpu_add_row(group, n->name, "tokens/s", (double)tn_count(t.x) / l.step, "tokens/s");
        gpu_add_row(group, n->name, "first step", l.first, "s");
        gpu_add_row(group, n->name, "peak", l.peak / (1 << 30), "GiB");
        gpu_add_row(group, n->name, "kernels and calls", l.launches, "");
        gpu_profile(t.cx, n->name, train_step, &t, 2);
    }
    tn_close(t.cx);
}

// ---- attention ---------------------------------------------------------------------------------

// Causal attention by tn_attention, or spelled out in ops with a change of the scores.
typedef struct {
    const char *name;
    int64_t     B, H, T, D;
    enum { PLAIN, ALIBI, SOFTCAP } kind;
} attention;

static const attention attentions[] = {
    { "attention (16,12,1024,64)", 16, 12, 1024, 64, PLAIN },
    { "attention (32,12,1024,64)", 32, 12, 1024, 64, PLAIN },
    { "attention (4,16,4096,128)", 4, 16, 4096, 128, PLAIN },
    { "ALiBi (16,12,1024,64)", 16, 12, 1024, 64, ALIBI },
    { "softcap (16,12,1024,64)", 16, 12, 1024, 64, SOFTCAP },
};

// q, k, v and the gradient of the result. grad: the gradients are computed too.
typedef struct {
    tn_ctx          *cx;
    const attention *a;
    tn_tensor       *x[3], *g, *slope;
    bool             grad;
} attending;

// What a user writes who has no tn_attention: a product, a change of the scores, a softmax, a
// product.
static tn_tensor *attend_by_ops(const attending *s)
{
    int64_t    T     = tn_size(s->x[0], 2);
    tn_tensor *i     = tn_arange(s->cx, TN_I64, 0, (double)T, 1);
    tn_tensor *away  = tn_sub(i, tn_unsqueeze(i, 1));  // j - i
    tn_tensor *score = tn_mul_s(tn_matmul(s->x[0], tn_transpose(s->x[1], -1, -2)),
                                1 / sqrt((double)s->a->D));
    if (s->a->kind == ALIBI) score = tn_add(score, tn_mul(s->slope, tn_cast(away, TN_F32)));
    else score = tn_mul_s(tn_tanh(tn_div_s(score, 20)), 20);
    score        = tn_masked_fill(score, tn_gt_s(away, 0), -INFINITY);
    tn_tensor *p = tn_cast(tn_softmax(score, -1), tn_dtype_of(s->x[2]));
    return tn_matmul(p, s->x[2]);
}

static void attend(void *arg)
{
    attending *s     = arg;
    tn_scope  *scope = tn_begin(s->cx);
    tn_tensor *gx[3];
    tn_tensor *y = s->a->kind == PLAIN ? tn_attention(s->x[0], s->x[1], s->x[2],
                                                      (tn_attention_opts){ .causal = true })
                                       : attend_by_ops(s);
    if (s->grad && tn_grad(1, &y, 3, s->x, &s->g, gx) == TN_OK)
        for (int i = 0; i < 3; i++) tn_want(gx[i]);
    else tn_want(y);
    tn_eval(s->cx);
    tn_end(scope);
}

static void time_attention(void *arg)
{
    attending s = { .cx = gpu_open(group, true), .a = arg };
    if (!s.cx) return;
    int64_t T = bench_quick() ? 64 : s.a->T;
    for (int i = 0; i < 4; i++) {
        tn_tensor *t = tn_cast(tn_randn(s.cx, TN_F32, TN_SHAPE(s.a->B, s.a->H, T, s.a->D)),
                               TN_BF16);
        if (i < 3) s.x[i] = tn_requires_grad(tn_want(t), true);
        else s.g = tn_want(t);
    }
    s.slope = tn_want(tn_rand(s.cx, TN_F32, TN_SHAPE(s.a->H, 1, 1)));
    tn_eval(s.cx);
    for (int grad = 0; grad < 2; grad++) {
        s.grad    = grad;
        double us = gpu_median(s.cx, attend, &s) * 1e6;
        if (gpu_is_well(s.cx, group, s.a->name))
            gpu_add_row(group, s.a->name, grad ? "forward and backward" : "forward", us, "us");
    }
    tn_close(s.cx);
}

// ---- generation --------------------------------------------------------------------------------

static void generate(void *arg)
{
    const network *n     = arg;
    int64_t        count = bench_quick() ? 8 : 512, got = 0, prompt[16], *ids;
    tn_ctx        *cx = gpu_open(group, true);
    if (!cx) return;
    tn_layer *net = make_network(cx, n);
    tn_layer_cast(net, TN_BF16);
    tn_layer_train(net, false);
    tn_eval(cx);
    for (int i = 0; i < 16; i++) prompt[i] = i * 5 % 97;
    ids                = calloc((size_t)count, sizeof *ids);
    tn_generate_opts o = { .max_tokens = count };
    double           took[3];
    for (int i = 0; i < 3 && ids; i++) {
        double start = bench_seconds();
        tn_generate(net, 1, &(tn_tokens){ prompt, 16 }, o, ids, &got);
        took[i] = bench_seconds() - start;
    }
    if (ids && gpu_is_well(cx, group, n->name))
        gpu_add_row(group, n->name, "generated tokens/s", (double)got / took[2], "tokens/s");
    free(ids);
    tn_close(cx);
}

void bench_gpu_lm(void)
{
    if (!gpu_there(group)) return;
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++)
        if (bench_chosen(attentions[i].name))
            bench_apart(group, attentions[i].name, SECONDS, time_attention, (void *)&attentions[i]);
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (bench_chosen(networks[i].name))
            bench_apart(group, networks[i].name, SECONDS, train, (void *)&networks[i]);
    for (size_t i = 1; i < sizeof networks / sizeof *networks; i += 2) {
        char name[64];
        snprintf(name, sizeof name, "%s, generation", networks[i].name);
        if (bench_chosen(name))
            bench_apart(group, networks[i].name, SECONDS, generate, (void *)&networks[i]);
    }
}
