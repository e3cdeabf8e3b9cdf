// gpu_kit.c: the device, its time, what its memory can do.
#include "gpu_kit.h"

#include "base/pool.h"
#include "device/cuda/cuda.h"
#include "device/ref/ref.h"
#include "engine/engine.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 20, ROUNDS = 15, QUICK_ROUNDS = 1 };

// ---- contexts ----------------------------------------------------------------------------------

static const char *device_name(void)
{
    const char *name = getenv("TN_BENCH_DEVICE");
    return name && *name ? name : "cuda";
}

static void ignore_fault(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

bool gpu_there(const char *group)
{
    int status = 1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tn_ctx *cx = gpu_open(group, false);
        tn_close(cx);
        fflush(NULL);
        _exit(cx ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

void bench_gpu_child(void)
{
    tn_ctx *cx = gpu_open("gpu", false);
    if (!cx) exit(1);
    tn_close(cx);
}

tn_ctx *gpu_open(const char *group, bool tf32)
{
    setenv("TN_TF32", tf32 ? "1" : "0", 1);
    tn_ctx *cx = tn_open_with(
        (tn_open_opts){ .device = device_name(), .handler = ignore_fault, .seed = 1 });
    if (!cx) bench_note(group, "%s", tn_error_text(NULL));
    return cx;
}

bool gpu_is_well(tn_ctx *cx, const char *group, const char *what)
{
    tn_sync(cx);
    if (tn_error(cx) == TN_OK) return true;
    bench_note(group, "%s: %s", what, tn_error_text(cx));
    return false;
}

const tni_device *gpu_device(const tn_ctx *cx)
{
    return cx->engine->device;
}

void *gpu_session(const tn_ctx *cx)
{
    return cx->engine->session;
}

// ---- time --------------------------------------------------------------------------------------

void gpu_wait(const tn_ctx *cx)
{
    tni_text why = { "" };
    if (gpu_device(cx)->events) gpu_device(cx)->events->wait(gpu_session(cx), &why);
}

double gpu_seconds(const tn_ctx *cx, void (*f)(void *arg), void *arg, int times)
{
    if (gpu_device(cx) == &tni_device_cuda)
        return tni_cuda_seconds(gpu_session(cx), f, arg, times) / times;
    double start = bench_seconds();
    for (int i = 0; i < times; i++) f(arg);
    gpu_wait(cx);
    return (bench_seconds() - start) / times;
}

double gpu_median(const tn_ctx *cx, void (*f)(void *arg), void *arg)
{
    double took[ROUNDS];
    int    rounds = bench_quick() ? QUICK_ROUNDS : ROUNDS;
    for (int i = 0; i < 5; i++) f(arg);
    for (int r = 0; r < rounds; r++) {
        gpu_wait(cx);
        took[r] = gpu_seconds(cx, f, arg, bench_quick() ? 2 : TIMES);
    }
    return bench_middle(took, rounds);
}

// Runs f n times and waits; gives the seconds of one, and of the host's part of it.
static double time_calls(tn_ctx *cx, void (*f)(void *arg), void *arg, int n, double *host)
{
    double start = bench_seconds();
    for (int i = 0; i < n; i++) f(arg);
    if (host) *host = (bench_seconds() - start) / n;
    tn_sync(cx);
    return (bench_seconds() - start) / n;
}

gpu_loop gpu_time_loop(tn_ctx *cx, void (*f)(void *arg), void *arg)
{
    // By the 15th step plans, graphs and choices are settled. Slow steps get fewer to wait for.
    enum { WARM = 15, LEAST = 3, MOST = 2000, LOOPS = 3 };
    const double for_warming = 4, for_loop = 0.5;
    double       wall[LOOPS], host[LOOPS];
    gpu_loop     l     = { .first = time_calls(cx, f, arg, 1, NULL) };
    double       start = bench_seconds();
    for (int i = 0; i < WARM && (i < LEAST || bench_seconds() - start < for_warming); i++)
        time_calls(cx, f, arg, 1, NULL);
    double one = time_calls(cx, f, arg, LEAST, NULL);
    int n = one * MOST < for_loop ? MOST : one * LEAST > for_loop ? LEAST : (int)(for_loop / one);
    if (bench_quick()) n = LEAST;
    tn_stats before = tn_ctx_stats(cx);
    for (int i = 0; i < LOOPS; i++) wall[i] = time_calls(cx, f, arg, n, &host[i]);
    tn_stats now = tn_ctx_stats(cx);
    l.step       = bench_middle(wall, LOOPS);
    l.host       = bench_middle(host, LOOPS);
    l.launches   = (double)(now.launches - before.launches) / (n * LOOPS);
    l.peak       = (double)now.peak;
    return l;
}

// ---- rows and profiles -------------------------------------------------------------------------

void gpu_add_row(const char *group, const char *what, const char *part, double value,
                 const char *unit)
{
    char text[120];
    snprintf(text, sizeof text, "%s: %s", what, part);
    bench_add((bench_row){ group, text, value, unit, NAN, NULL });
}

void gpu_profile(tn_ctx *cx, const char *name, void (*f)(void *arg), void *arg, int times)
{
    char file[96];
    snprintf(file, sizeof file, "%s.profile", name);
    const char *path = gpu_file(file);
    if (!path) return;
    tn_profile_begin(cx);
    for (int i = 0; i < times; i++) f(arg);
    tn_profile_end(cx);
    tn_profile_write(cx, path);
}

// ---- memory ------------------------------------------------------------------------------------

static tni_arg row_of(tn_dtype dt, int64_t n, char *data)
{
    return (tni_arg){ .dtype = dt, .rank = 1, .size = { n }, .stride = { 1 }, .data = data };
}

bool gpu_fill(const tn_ctx *cx, char *p, tn_dtype dt, int64_t n, double v)
{
    enum { PIECE = 1 << 20 };
    const tni_device_memory *m   = gpu_device(cx)->memory;
    tni_text                 why = { "out of memory" };
    tn_status                s   = TN_EMEM;
    tni_cell *cell = malloc(PIECE * sizeof *cell), *host = malloc(PIECE * sizeof *host);
    for (int64_t i = 0; cell && host && i < PIECE; i++) cell[i].f = v;
    if (cell && host) s = tni_device_ref.memory->download(NULL, host, dt, cell, PIECE, &why);
    for (int64_t at = 0; at < n && s == TN_OK; at += PIECE)
        s = m->upload(gpu_session(cx), p + at * (int64_t)m->element_size(dt), dt, host,
                      n - at < PIECE ? n - at : PIECE, &why);
    free(cell);
    free(host);
    if (s != TN_OK) fprintf(stderr, "tenon-bench: filling memory: %s\n", why.s);
    return s == TN_OK;
}

bool gpu_copy_open(gpu_copy *c, const tn_ctx *cx, int64_t bytes)
{
    const tni_device *d = gpu_device(cx);
    *c                  = (gpu_copy){ .cx = cx };
    c->in            = row_of(TN_F32, bytes / 4, d->memory->alloc(gpu_session(cx), (size_t)bytes));
    c->call          = (tni_call){ .device  = d,
                                   .session = gpu_session(cx),
                                   .op      = TNI_copy,
                                   .nin     = 1,
                                   .in      = &c->in,
                                   .out     = row_of(TN_F32, bytes / 4, NULL),
                                   .threads = tni_threads_default(),
                                   .why     = &c->why };
    c->call.out.data = d->memory->alloc(gpu_session(cx), (size_t)bytes);
    return c->in.data && c->call.out.data && gpu_fill(cx, c->in.data, TN_F32, bytes / 4, 1);
}

void gpu_copy_run(void *copy)
{
    gpu_copy *c = copy;
    tni_call_run(&c->call);
}

void gpu_copy_close(gpu_copy *c)
{
    gpu_wait(c->cx);
    gpu_device(c->cx)->memory->free(gpu_session(c->cx), c->in.data);
    gpu_device(c->cx)->memory->free(gpu_session(c->cx), c->call.out.data);
}

double gpu_copy_rate(const tn_ctx *cx)
{
    int64_t  bytes = bench_quick() ? 1 << 16 : 1 << 30;
    gpu_copy c;
    double   rate = NAN;
    if (gpu_copy_open(&c, cx, bytes)) rate = 2 * (double)bytes / gpu_median(cx, gpu_copy_run, &c);
    gpu_copy_close(&c);
    return rate;
}

// ---- files -------------------------------------------------------------------------------------

const char *gpu_file(const char *name)
{
    static char path[1024];
    const char *folder = getenv("TN_BENCH_FILES");
    if (!folder || !*folder) return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void gpu_left_add(gpu_left *l, const char *prefix, const char *name, tn_tensor *t)
{
    if (l->n == GPU_LEFT) return;
    snprintf(l->text[l->n], GPU_LEFT_NAME, "%s%s", prefix, name);
    l->name[l->n] = l->text[l->n];
    l->t[l->n++]  = t;
}

void gpu_left_write(const gpu_left *l, tn_ctx *cx, const char *file)
{
    const char *path = gpu_file(file);
    if (path) tn_file_write(cx, path, l->n, l->name, l->t, 0, NULL);
}
