// gpu_conv.c: convolution networks on a GPU, beside PyTorch (conv_peers.py): training under bf16
// autocast and in f32 with TF32, inference in f16, the steps of a small network, and losses to be
// compared. The input stays on the device. Each network has a cache of kernels and choices of its
// own on disk: its first step is timed with that one empty, and in a new process with it full.
//
// B batch
#include "gpu_kit.h"
#include "networks.h"

#include "device/cpu/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <tenon/models.h>

enum { SECONDS = 150, QUICK_B = 2, QUICK_SIDE = 32, PROFILED = 3 };

static const char group[] = "gpu_conv";

// How a network is run. Those for ImageNet are trained by SGD with momentum, the small one by Adam.
typedef enum { BF16_TRAINING, TF32_TRAINING, ADAM_TRAINING, F16_INFERENCE } way;

typedef struct {
    const char *name;
    tn_layer *(*make)(tn_ctx *cx);
    way     way;
    int64_t B, channels, side, classes;
    bool    dense;  // there is a class for each pixel
} network;

// What matters most comes first, for a run whose time is short.
static const network networks[] = {
    { "ResNet-50 training, B 256", bench_resnet50, BF16_TRAINING, 256, 3, 224, 1000, false },
    { "ResNet-50 inference, B 64", bench_resnet50, F16_INFERENCE, 64, 3, 224, 1000, false },
    { "ResNet-50 inference, B 1", bench_resnet50, F16_INFERENCE, 1, 3, 224, 1000, false },
    { "MobileNetV2 training, B 256", bench_mobilenet, BF16_TRAINING, 256, 3, 224, 1000, false },
    { "U-Net training, B 16", bench_unet, BF16_TRAINING, 16, 3, 256, 2, true },
    { "lenet training, B 64", tn_lenet, ADAM_TRAINING, 64, 1, 28, 10, false },
    { "lenet training, B 1024", tn_lenet, ADAM_TRAINING, 1024, 1, 28, 10, false },
    { "ResNet-50 training, B 64", bench_resnet50, BF16_TRAINING, 64, 3, 224, 1000, false },
    { "ResNet-18 training, B 256", bench_resnet18, BF16_TRAINING, 256, 3, 224, 1000, false },
    { "MobileNetV2 inference, B 1", bench_mobilenet, F16_INFERENCE, 1, 3, 224, 1000, false },
    { "MobileNetV2 inference, B 256", bench_mobilenet, F16_INFERENCE, 256, 3, 224, 1000, false },
    { "ResNet-50 inference, B 256", bench_resnet50, F16_INFERENCE, 256, 3, 224, 1000, false },
    { "ResNet-50 training in TF32, B 64", bench_resnet50, TF32_TRAINING, 64, 3, 224, 1000, false },
};

// A network, its optimizer, and a fixed random batch on the device.
typedef struct {
    tn_ctx    *cx;
    tn_layer  *net;
    tn_optim  *opt;  // NULL: it is not trained
    tn_tensor *x, *y;
} session;

static void make_batch(session *s, const network *n)
{
    bool    small = bench_quick() && n->side > QUICK_SIDE;
    int64_t B = bench_quick() ? QUICK_B : n->B, side = small ? QUICK_SIDE : n->side;
    s->x = tn_randn(s->cx, TN_F32, TN_SHAPE(B, n->channels, side, side));
    if (n->way == F16_INFERENCE) s->x = tn_cast(s->x, TN_F16);
    s->y = n->dense ? tn_randint(s->cx, TN_I64, 0, n->classes, TN_SHAPE(B, side, side))
                    : tn_randint(s->cx, TN_I64, 0, n->classes, TN_SHAPE(B));
    tn_want(s->x);
    tn_want(s->y);
}

// Returns whether it worked. Weights that are trained stay f32 and are used in bf16, as under
// PyTorch's autocast.
static bool open_session(session *s, const network *n)
{
    *s = (session){ .cx = gpu_open(group, true) };
    if (!s->cx) return false;
    s->net = n->make(s->cx);
    if (n->way == BF16_TRAINING) tn_autocast(s->cx, TN_BF16);
    if (n->way == ADAM_TRAINING) s->opt = tn_adam(s->net, (tn_adam_opts){ .lr = 1e-3 });
    else if (n->way != F16_INFERENCE)
        s->opt = tn_sgd(s->net, (tn_sgd_opts){ .lr = 0.1, .momentum = 0.9 });
    else {
        tn_layer_cast(s->net, TN_F16);
        tn_layer_train(s->net, false);
        tn_grad_mode(s->cx, false);
    }
    make_batch(s, n);
    tn_eval(s->cx);
    return gpu_is_well(s->cx, group, n->name);
}

static void step(void *arg)
{
    session   *s     = arg;
    tn_scope  *scope = tn_begin(s->cx);
    tn_tensor *y     = tn_forward(s->net, s->x);
    if (s->opt) tn_step(s->opt, tn_cross_entropy(y, s->y));
    else tn_eval(s->cx);
    tn_end(scope);
}

static void time_first_step(void *arg)
{
    const network *n = arg;
    session        s;
    if (!open_session(&s, n)) return;
    double start = bench_seconds();
    step(&s);
    tn_sync(s.cx);
    double took = bench_seconds() - start;
    if (gpu_is_well(s.cx, group, n->name))
        gpu_add_row(group, n->name, "first step, empty cache", took, "s");
    tn_close(s.cx);
}

static void time_steps(void *arg)
{
    const network *n = arg;
    session        s;
    if (!open_session(&s, n)) return;
    gpu_loop l = gpu_time_loop(s.cx, step, &s);
    if (gpu_is_well(s.cx, group, n->name)) {
        gpu_add_row(group, n->name, "img/s", (double)tn_size(s.x, 0) / l.step, "img/s");
        gpu_add_row(group, n->name, "step", l.step * 1e6, "us");
        gpu_add_row(group, n->name, "host", l.host * 1e6, "us");
        gpu_add_row(group, n->name, "first step, full cache", l.first, "s");
        gpu_add_row(group, n->name, "peak", l.peak / (1 << 30), "GiB");
        gpu_add_row(group, n->name, "kernels and calls", l.launches, "");
        gpu_profile(s.cx, n->name, step, &s, PROFILED);
    }
    tn_close(s.cx);
}

// TN_BENCH_CACHE: a folder of kernels and winners that several runs share (alternate.py); first
// steps with an empty one are not measured then.
static void measure(const tni_runner *r, const network *n)
{
    const char *shared = getenv("TN_BENCH_CACHE");
    char        cache[TNI_FOLDER];
    tni_text    why = { "" };
    if (shared) {
        bench_apart(group, n->name, SECONDS, time_steps, (void *)n);
        return;
    }
    if (!tni_folder_make(r, cache, &why)) {
        bench_note(group, "%s: no folder for kernels: %s", n->name, why.s);
        return;
    }
    setenv("TN_CACHE_DIR", cache, 1);
    bench_apart(group, n->name, SECONDS, time_first_step, (void *)n);
    bench_apart(group, n->name, SECONDS, time_steps, (void *)n);
    tni_folder_remove(cache);
}

// ---- losses ------------------------------------------------------------------------------------

enum { BATCHES = 5, FOLLOWED = 20 };

// A network whose first losses a peer computes too, from the same weights and batches, which are
// left for it: FILE.safetensors has the weights, FILE_batches.safetensors x0, y0, x1, ...,
// FILE_f32.safetensors and FILE_bf16.safetensors the losses.
typedef struct {
    const char *name, *file;
    int         depth;
    int64_t     B, side, classes;
    double      lr;  // of SGD: with more, two runs of PyTorch in f32 are 1e-4 apart after 10 steps
} followed;

static const followed all_followed[] = {
    { "ResNet-20 losses, B 128", "resnet20", 20, 128, 32, 10, 0.003 },
    { "ResNet-50 losses, B 16", "resnet50", 50, 16, 224, 1000, 0.001 },
};

static void leave_inputs(tn_layer *net, const followed *f, tn_tensor *const *x, tn_tensor *const *y)
{
    char      name[64];
    gpu_left *l = calloc(1, sizeof *l);
    if (!l) return;
    snprintf(name, sizeof name, "%s.safetensors", f->file);
    tn_save(net, gpu_file(name));
    for (int i = 0; i < BATCHES; i++) {
        snprintf(name, sizeof name, "%d", i);
        gpu_left_add(l, "x", name, x[i]);
        gpu_left_add(l, "y", name, y[i]);
    }
    snprintf(name, sizeof name, "%s_batches.safetensors", f->file);
    gpu_left_write(l, tn_layer_ctx(net), name);
    free(l);
}

static void leave_losses(tn_ctx *cx, const followed *f, const char *precision, const float *loss)
{
    char      name[64];
    gpu_left *l = calloc(1, sizeof *l);
    if (!l) return;
    snprintf(name, sizeof name, "%s_%s.safetensors", f->file, precision);
    gpu_left_add(l, "", "losses", tn_from(cx, TN_F32, TN_SHAPE(FOLLOWED), loss));
    gpu_left_write(l, cx, name);
    free(l);
}

// The context's seed makes weights and batches the same in both precisions.
static void follow_in(const followed *f, bool bf16)
{
    const char *precision = bf16 ? "bf16" : "f32";
    float       loss[FOLLOWED];
    int64_t     B = bench_quick() ? QUICK_B : f->B, side = bench_quick() ? QUICK_SIDE : f->side;
    tn_ctx     *cx = gpu_open(group, false);
    tn_tensor  *x[BATCHES], *y[BATCHES];
    if (!cx) return;
    tn_layer *net = tn_resnet(cx, (tn_resnet_opts){ .depth = f->depth });
    tn_optim *opt = tn_sgd(net, (tn_sgd_opts){ .lr = f->lr, .momentum = 0.9 });
    for (int i = 0; i < BATCHES; i++) {
        x[i] = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(B, 3, side, side)));
        y[i] = tn_want(tn_randint(cx, TN_I64, 0, f->classes, TN_SHAPE(B)));
    }
    tn_eval(cx);
    if (bf16) tn_autocast(cx, TN_BF16);
    else leave_inputs(net, f, x, y);
    for (int i = 0; i < FOLLOWED; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *l = tn_cross_entropy(tn_forward(net, x[i % BATCHES]), y[i % BATCHES]);
        tn_step(opt, l);
        loss[i] = (float)tn_item(l);
        tn_end(s);
    }
    if (gpu_is_well(cx, group, f->name)) leave_losses(cx, f, precision, loss);
    gpu_is_well(cx, group, f->name);
    tn_close(cx);
}

static void follow(void *arg)
{
    follow_in(arg, false);
    follow_in(arg, true);
}

// The peer's part of the losses waits for ours, so they come first.
void bench_gpu_conv(void)
{
    tni_runner r;
    if (!gpu_there(group) || !tni_runner_open(&r, 0)) return;
    for (size_t i = 0; i < sizeof all_followed / sizeof *all_followed && gpu_file(""); i++)
        if (bench_chosen(all_followed[i].name))
            bench_apart(group, all_followed[i].name, SECONDS, follow, (void *)&all_followed[i]);
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (bench_chosen(networks[i].name)) measure(&r, &networks[i]);
    tni_runner_close(&r);
}
