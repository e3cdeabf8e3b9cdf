// tn_doctor: what this build has, what this machine adds to it, and what is missing. Says only what
// it looked at.
#include "engine/engine.h"

#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/gemm.h"
#include "device/cuda/library_report.h"
#include "kernel/disk.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

// A line. What is in it, variables, paths and what drivers say of themselves, is not ours.
__attribute__((format(printf, 2, 3))) static void line(FILE *f, const char *fmt, ...)
{
    enum { ROOM = 2048 };  // of a path, or a variable
    char    text[ROOM], shown[ROOM];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    tni_escape(shown, sizeof shown, text, strlen(text));
    fprintf(f, "%s\n", shown);
}

static void say_devices(FILE *f)
{
    line(f, "devices");
    for (int i = 0; i < tn_devices(); i++) {
        tn_device_desc d = tn_device_info(i);
        line(f, "  %-8s %-8s %s", d.name, d.available ? "ready" : "missing", d.detail);
    }
}

// Which device tn_open(NULL) takes.
static void say_default(FILE *f)
{
    tn_ctx *cx = tn_open(NULL);
    if (cx) line(f, "  tn_open(NULL) takes %s", cx->engine->device->name);
    else line(f, "  tn_open(NULL) fails: %s", tn_error_text(NULL));
    tn_close(cx);
}

static void say_threads(FILE *f)
{
    const char *set = getenv("TN_NUM_THREADS");
    int         n   = tni_threads_default();
    line(f, "threads");
    if (!set || !*set)
        line(f, "  %d, the cores this process may use (TN_NUM_THREADS changes it)", n);
    else if (atoi(set) == n) line(f, "  %d, from TN_NUM_THREADS", n);
    else line(f, "  %d, TN_NUM_THREADS=%s is not a number in 1 .. %d", n, set, TNI_MAX_THREADS);
}

static void say_blas(FILE *f)
{
    tni_blas_info b = tni_blas_find();
    line(f, "matrix products");
    if (b.found) {
        line(f, "  %s", b.name);
        line(f, "  %s", b.path);
        return;
    }
    const char *set = getenv("TN_BLAS");
    line(f, "  Tenon's own: %s", b.detail);
    if (set && *set) line(f, "  unset TN_BLAS to look for one");
    else line(f, "  a BLAS is faster; on Debian or Ubuntu: apt install libopenblas0-pthread");
}

static void say_cuda(FILE *f)
{
    tni_nvidia_library library[TNI_NVIDIA_LIBRARIES];
    int                n = tni_nvidia_report(library);
    line(f, "cuda");
    for (int i = 0; i < n; i++)
        line(f, "  %-8s %-8s %s", library[i].name, library[i].found ? library[i].version.s : "none",
             library[i].detail.s);
}

static void say_compiler(FILE *f)
{
    tni_text t = { "" };
    tni_disk d;
    bool     ok = tni_cpu_compiler(&t);
    line(f, "compiler");
    line(f, "  %s%s", ok ? "" : "none, kernels are interpreted: ", t.s);
    tni_cpu_counts n = tni_cpu_kernels_counts();
    if (ok && n.off) line(f, "  this process compiles no more: %s", n.why.s);
    tni_disk_open(&d);
    t  = (tni_text){ "" };
    ok = tni_disk_usable(&d, &t);
    line(f, "compiled kernels");
    line(f, "  %s%s", ok ? "kept in " : "not kept: ", ok ? d.path : t.s);
}

static void say_environment(FILE *f)
{
    int n = 0;
    line(f, "environment");
    for (char **e = environ; e && *e; e++)
        if (!strncmp(*e, "TN_", 3)) {
            line(f, "  %s", *e);
            n++;
        }
    if (!n) line(f, "  no TN_ variable is set");
}

void tn_doctor(FILE *f)
{
    if (!f) return;
    line(f, "tenon %s", tn_version());
    say_devices(f);
    say_default(f);
    say_threads(f);
    say_blas(f);
    say_compiler(f);
    say_cuda(f);
    say_environment(f);
}
