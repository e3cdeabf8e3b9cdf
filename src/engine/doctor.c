// tn_doctor: what this build has, what this machine adds to it, and what is missing. Says only what
// it looked at.
#include "engine/engine.h"

#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/gemm.h"
#include "device/cuda/parts.h"
#include "kernel/disk.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

static void say_devices(FILE *f)
{
    fprintf(f, "devices\n");
    for (int i = 0; i < tn_devices(); i++) {
        tn_device_desc d = tn_device_info(i);
        fprintf(f, "  %-8s %-8s %s\n", d.name, d.available ? "ready" : "missing", d.detail);
    }
}

// Which device tn_open(NULL) takes.
static void say_default(FILE *f)
{
    tn_ctx *cx = tn_open(NULL);
    if (cx) fprintf(f, "  tn_open(NULL) takes %s\n", cx->engine->device->name);
    else fprintf(f, "  tn_open(NULL) fails: %s\n", tn_error_text(NULL));
    tn_close(cx);
}

static void say_threads(FILE *f)
{
    const char *set = getenv("TN_NUM_THREADS");
    int         n   = tni_threads_default();
    fprintf(f, "threads\n  %d, ", n);
    if (!set || !*set) fprintf(f, "the cores this process may use (TN_NUM_THREADS changes it)\n");
    else if (atoi(set) == n) fprintf(f, "from TN_NUM_THREADS\n");
    else fprintf(f, "TN_NUM_THREADS=%s is not a number in 1 .. %d\n", set, TNI_MAX_THREADS);
}

static void say_blas(FILE *f)
{
    tni_blas_info b = tni_blas_find();
    fprintf(f, "matrix products\n");
    if (b.found) {
        fprintf(f, "  %s\n  %s\n", b.name, b.path);
        return;
    }
    const char *set = getenv("TN_BLAS");
    fprintf(f, "  Tenon's own: %s\n", b.detail);
    if (set && *set) fprintf(f, "  unset TN_BLAS to look for one\n");
    else fprintf(f, "  a BLAS is faster; on Debian or Ubuntu: apt install libopenblas0-pthread\n");
}

static void say_cuda(FILE *f)
{
    tni_cuda_part part[TNI_CUDA_PARTS];
    int           n = tni_cuda_parts(part);
    fprintf(f, "cuda\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "  %-8s %-8s %s\n", part[i].name, part[i].there ? part[i].version.s : "none",
                part[i].detail.s);
}

static void say_compiler(FILE *f)
{
    tni_text t = { "" };
    tni_disk d;
    bool     ok = tni_cpu_compiler(&t);
    fprintf(f, "compiler\n  %s%s\n", ok ? "" : "none, kernels are interpreted: ", t.s);
    tni_disk_open(&d);
    t  = (tni_text){ "" };
    ok = tni_disk_usable(&d, &t);
    fprintf(f, "compiled kernels\n  %s%s\n", ok ? "kept in " : "not kept: ", ok ? d.path : t.s);
}

static void say_environment(FILE *f)
{
    int n = 0;
    fprintf(f, "environment\n");
    for (char **e = environ; e && *e; e++)
        if (!strncmp(*e, "TN_", 3)) {
            fprintf(f, "  %s\n", *e);
            n++;
        }
    if (!n) fprintf(f, "  no TN_ variable is set\n");
}

void tn_doctor(FILE *f)
{
    if (!f) return;
    fprintf(f, "tenon %s\n", tn_version());
    say_devices(f);
    say_default(f);
    say_threads(f);
    say_blas(f);
    say_compiler(f);
    say_cuda(f);
    say_environment(f);
}
