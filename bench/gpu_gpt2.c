// gpu_gpt2.c: GPT-2 124M on a GPU. Loss and gradients of a first step are left in files, for a peer
// to compare; training is timed in tokens a second, with TF32 on.
//
// B batch, T tokens, V vocabulary
#include "gpu_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

enum { WARM = 4, STEPS = 10, SECONDS = 150 };

static const char group[] = "gpu_gpt2";

static tn_gpt2_opts settings(void)
{
    if (!bench_quick()) return (tn_gpt2_opts){ .dropout = TN_ZERO };
    return (tn_gpt2_opts){
        .layers = 2, .heads = 2, .width = 32, .vocab = 97, .context = 32, .dropout = TN_ZERO
    };
}

static tn_tensor *tokens(tn_ctx *cx, int64_t B, int64_t T)
{
    return tn_want(tn_randint(cx, TN_I64, 0, bench_quick() ? 97 : 50257, TN_SHAPE(B, T)));
}

static tn_tensor *loss_of(tn_layer *net, tn_tensor *x, tn_tensor *y)
{
    tn_tensor *logits = tn_flatten(tn_forward(net, x), 0, 1);
    return tn_cross_entropy(logits, tn_flatten(y, 0, 1));
}

// ---- a first step, to be compared --------------------------------------------------------------

static void take_gradient(const char *name, tn_tensor *t, void *user)
{
    gpu_left_add(user, "grad.", name, tn_grad_of(t));
}

static void leave_results(tn_ctx *cx, tn_layer *net, tn_tensor *x, tn_tensor *y, tn_tensor *loss)
{
    gpu_left *l = calloc(1, sizeof *l);
    if (!l) return;
    gpu_left_add(l, "", "x", x);
    gpu_left_add(l, "", "y", y);
    gpu_left_add(l, "", "loss", loss);
    tn_layer_each(net, take_gradient, l);
    gpu_left_write(l, cx, "gpt2_step.safetensors");
    free(l);
}

static void first_step(void *unused)
{
    int64_t B = 2, T = bench_quick() ? 16 : 512;
    tn_ctx *cx = gpu_open(group, false);
    (void)unused;
    if (!cx) return;
    tn_layer   *net  = tn_gpt2(cx, settings());
    const char *path = gpu_file("gpt2.safetensors");
    tn_tensor  *x = tokens(cx, B, T), *y = tokens(cx, B, T);
    tn_eval(cx);
    if (path) tn_save(net, path);
    tn_scope  *s    = tn_begin(cx);
    tn_tensor *loss = tn_want(loss_of(net, x, y));
    tn_backward(loss, NULL);
    tn_eval(cx);
    double v = tn_item(loss);
    if (gpu_is_well(cx, group, "first step")) {
        bench_add((bench_row){ group, "gpt2 first loss", v, "", NAN, NULL });
        leave_results(cx, net, x, y, loss);
        gpu_is_well(cx, group, "first step");
    }
    tn_end(s);
    tn_close(cx);
}

// ---- training ----------------------------------------------------------------------------------

// A network, its optimizer, and a fixed random batch in device memory.
typedef struct {
    tn_ctx    *cx;
    tn_layer  *net;
    tn_optim  *opt;
    tn_tensor *x, *y;
} training;

static void step(void *arg)
{
    training *t = arg;
    tn_scope *s = tn_begin(t->cx);
    tn_step(t->opt, loss_of(t->net, t->x, t->y));
    tn_end(s);
}

static void report(double seconds, tn_stats now, const tn_stats *before, double count)
{
    bench_add((bench_row){ group, "gpt2 tokens a second", count / seconds, "tokens/s", NAN, NULL });
    bench_add((bench_row){ group, "gpt2 step", seconds * 1e3, "ms", NAN, NULL });
    bench_add((bench_row){ group, "gpt2 step: kernels and calls",
                           (double)(now.launches - before->launches) / STEPS, "", NAN, NULL });
    bench_add((bench_row){ group, "gpt2 step: copies",
                           (double)(now.copies - before->copies) / STEPS, "", NAN, NULL });
    bench_add((bench_row){ group, "gpt2 step: waits", (double)(now.syncs - before->syncs) / STEPS,
                           "", NAN, NULL });
    bench_add((bench_row){ group, "gpt2 peak memory", (double)now.peak / 1e9, "GB", NAN, NULL });
}

static void train(void *unused)
{
    int64_t  B = 4, T = bench_quick() ? 16 : 1024;
    training t = { .cx = gpu_open(group, true) };
    (void)unused;
    if (!t.cx) return;
    t.net = tn_gpt2(t.cx, settings());
    t.opt = tn_adamw(t.net, (tn_adamw_opts){ .lr = 3e-4f });
    t.x   = tokens(t.cx, B, T);
    t.y   = tokens(t.cx, B, T);
    tn_eval(t.cx);
    for (int i = 0; i < WARM; i++) step(&t);
    if (gpu_is_well(t.cx, group, "training")) {
        tn_stats before = tn_ctx_stats(t.cx);
        double   start  = bench_seconds();
        for (int i = 0; i < STEPS; i++) step(&t);
        tn_stats after = tn_ctx_stats(t.cx);
        tn_sync(t.cx);
        double took = (bench_seconds() - start) / STEPS;
        if (gpu_is_well(t.cx, group, "training")) report(took, after, &before, (double)(B * T));
        gpu_profile(t.cx, "gpt2", step, &t, 2);
        gpu_is_well(t.cx, group, "profile");
    }
    tn_close(t.cx);
}

void bench_gpu_gpt2(void)
{
    if (!gpu_there(group)) return;
    bench_apart(group, "first step", SECONDS, first_step, NULL);
    bench_apart(group, "training", SECONDS, train, NULL);
}
