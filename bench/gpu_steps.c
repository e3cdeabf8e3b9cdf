// gpu_steps.c: training steps of a small network on a GPU, and where their time goes.
//
// A step is timed as the wall time of many, with the batch on the device and TF32 on. What the host
// needs to give a step away, and the device to do one that it has been given, are measured apart.
//
// B batch
#include "gpu_kit.h"

#include "device/cuda/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

enum { STEPS = 300, QUICK_STEPS = 6, WARM = 20, ROUNDS = 5, SECONDS = 90 };

static const char group[] = "gpu_steps";

// A network, its optimizer, and a fixed random batch in device memory.
typedef struct {
    int64_t    B;
    double     most_us;  // that are wanted
    tn_ctx    *cx;
    tn_layer  *net;
    tn_optim  *opt;
    tn_tensor *x, *y;
} training;

static void open_training(training *t)
{
    t->net = tn_mlp(t->cx, TN_SHAPE(784, 256, 128, 10));
    t->opt = tn_adam(t->net, (tn_adam_opts){ .lr = 1e-3f });
    t->x   = tn_want(tn_rand(t->cx, TN_F32, TN_SHAPE(t->B, 784)));
    t->y   = tn_want(tn_randint(t->cx, TN_I64, 0, 10, TN_SHAPE(t->B)));
    tn_eval(t->cx);
}

static void add_row(const training *t, const char *what, double value, const char *unit)
{
    char text[64];
    snprintf(text, sizeof text, "mlp step, batch %d%s", (int)t->B, what);
    bench_row r = { group, text, value, unit, NAN, NULL };
    bench_add_wanted(r, (bench_wanted){ .value = *what ? 0 : t->most_us });
}

// ---- what a peer starts from -------------------------------------------------------------------

static void take(const char *name, tn_tensor *t, void *user)
{
    gpu_left_add(user, "", name, t);
}

static void leave_file(const training *t)
{
    char      name[64];
    gpu_left *l = calloc(1, sizeof *l);
    if (!l) return;
    snprintf(name, sizeof name, "mlp_%d.safetensors", (int)t->B);
    tn_layer_each(t->net, take, l);
    take("x", t->x, l);
    take("y", t->y, l);
    gpu_left_write(l, t->cx, name);
    free(l);
}

// ---- steps -------------------------------------------------------------------------------------

static void step(void *arg)
{
    training *t = arg;
    tn_scope *s = tn_begin(t->cx);
    tn_step(t->opt, tn_cross_entropy(tn_forward(t->net, t->x), t->y));
    tn_end(s);
}

static double step_with_loss(training *t)
{
    tn_scope  *s    = tn_begin(t->cx);
    tn_tensor *loss = tn_cross_entropy(tn_forward(t->net, t->x), t->y);
    tn_step(t->opt, loss);
    double v = tn_item(loss);
    tn_end(s);
    return v;
}

static int steps(void)
{
    return bench_quick() ? QUICK_STEPS : STEPS;
}

static int rounds(void)
{
    return bench_quick() ? 1 : ROUNDS;
}

// The wall time of a step, and the part of it until the host is done.
static void time_wall(training *t)
{
    double wall[ROUNDS], host[ROUNDS];
    for (int r = 0; r < rounds(); r++) {
        gpu_wait(t->cx);
        double start = bench_seconds();
        for (int i = 0; i < steps(); i++) step(t);
        host[r] = (bench_seconds() - start) / steps();
        tn_sync(t->cx);
        wall[r] = (bench_seconds() - start) / steps();
    }
    add_row(t, "", bench_middle(wall, rounds()) * 1e6, "us");
    add_row(t, ": host", bench_middle(host, rounds()) * 1e6, "us");
}

// The device does nothing but steps if it is kept busy until all have been given away.
static void time_device(training *t, double host)
{
    gpu_copy c;
    double   took[ROUNDS];
    int64_t  bytes = bench_quick() ? 1 << 16 : 1 << 30;
    bool     ok    = gpu_copy_open(&c, t->cx, bytes);
    int      busy  = (int)(1.5 * host * steps() / 4e-4) + 1;  // a copy takes longer than this
    for (int r = 0; ok && r < rounds(); r++) {
        gpu_wait(t->cx);
        for (int i = 0; i < busy && !bench_quick(); i++) gpu_copy_run(&c);
        took[r] = gpu_seconds(t->cx, step, t, steps());
    }
    gpu_copy_close(&c);
    if (ok) add_row(t, ": device", bench_middle(took, rounds()) * 1e6, "us");
}

static int64_t graphs_launched(const training *t)
{
    if (gpu_device(t->cx) != &tni_device_cuda) return 0;
    const tni_cuda *c = gpu_session(t->cx);
    return c->recorder.graphs;
}

// Returns how long the host takes for a step.
static double count_steps(training *t)
{
    tn_stats before = tn_ctx_stats(t->cx);
    int64_t  graphs = graphs_launched(t);
    double   start = bench_seconds(), n = steps();
    for (int i = 0; i < steps(); i++) step(t);
    double   host  = (bench_seconds() - start) / n;
    tn_stats after = tn_ctx_stats(t->cx);
    add_row(t, ": kernels and calls", (double)(after.launches - before.launches) / n, "");
    add_row(t, ": graph launches", (double)(graphs_launched(t) - graphs) / n, "");
    add_row(t, ": copies", (double)(after.copies - before.copies) / n, "");
    add_row(t, ": waits", (double)(after.syncs - before.syncs) / n, "");
    add_row(t, ": plans built", (double)(after.plans - before.plans), "");
    gpu_wait(t->cx);
    return host;
}

// The losses of the first steps without TF32, which a peer that starts alike must have too.
static void compare(training *t)
{
    if (!(t->cx = gpu_open(group, false))) return;
    open_training(t);
    leave_file(t);
    for (int i = 1; i <= WARM; i++) {
        double loss = step_with_loss(t);
        if (i == 1) add_row(t, ": loss 1", loss, "");
        if (i == WARM) add_row(t, ": loss 20", loss, "");
    }
    gpu_is_well(t->cx, group, "mlp without TF32");
    tn_close(t->cx);
}

static void run_training(void *arg)
{
    training *t = arg;
    compare(t);
    if (!(t->cx = gpu_open(group, true))) return;
    open_training(t);
    for (int i = 0; i < WARM; i++) step(t);
    if (gpu_is_well(t->cx, group, "mlp")) {
        time_wall(t);
        time_device(t, count_steps(t));
        char name[64];
        snprintf(name, sizeof name, "mlp_%d", (int)t->B);
        gpu_profile(t->cx, name, step, t, WARM);
        gpu_is_well(t->cx, group, "mlp");
    }
    tn_close(t->cx);
}

void bench_gpu_steps(void)
{
    static training all[] = { { .B = 64, .most_us = 60 }, { .B = 1024, .most_us = 100 } };
    if (!gpu_there(group)) return;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bench_apart(group, "mlp", SECONDS, run_training, &all[i]);
}
