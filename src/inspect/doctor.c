// tn_doctor: what this build has, what this machine adds to it, and what is missing. It reports
// only what it has looked at:
//
//   devices
//     cpu      ready    aarch64 NEON, 2 threads, BLAS: OpenBLAS 0.3.21 ...
//     cuda     missing  there is no NVIDIA driver (libcuda.so.1)
//   compiled kernels
//     kept in ~/.cache/tenon
#include "engine/engine.h"

#include "base/find_libraries.h"
#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/gemm.h"
#include "device/cuda/library_report.h"
#include "dist/world.h"
#include "inspect/nvtx.h"
#include "kernel/disk.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

// Prints a line with control characters escaped: variables, paths and what drivers say are not
// ours.
__attribute__((format(printf, 2, 3))) static void print_line(FILE *f, const char *fmt, ...)
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

// Each device describes itself by its probe.
static void print_devices(FILE *f)
{
    print_line(f, "devices");
    for (int i = 0; i < tn_device_count(); i++) {
        tn_device_desc d = tn_device_info(i);
        print_line(f, "  %-8s %-8s %s", d.name, d.available ? "ready" : "missing", d.detail);
    }
}

// Opens a context to find out, rather than repeating the rules of tn_open.
static void print_default(FILE *f)
{
    tn_ctx *cx = tn_open(NULL);
    if (cx) print_line(f, "  tn_open(NULL) takes %s", cx->engine->device->name);
    else print_line(f, "  tn_open(NULL) fails: %s", tn_error_text(NULL));
    tn_close(cx);
}

// Says why the number is what it is.
static void print_threads(FILE *f)
{
    const char *set = getenv("TN_NUM_THREADS");
    int         n   = tni_threads_default();
    print_line(f, "threads");
    if (!set || !*set)
        print_line(f, "  %d, the cores this process may use (TN_NUM_THREADS changes it)", n);
    else if (atoi(set) == n) print_line(f, "  %d, from TN_NUM_THREADS", n);
    else
        print_line(f, "  %d, TN_NUM_THREADS=%s is not a number in 1 .. %d", n, set,
                   TNI_MAX_THREADS);
}

// Names the package to install if no BLAS was found.
static void print_blas(FILE *f)
{
    tni_blas_info b = tni_blas_find();
    print_line(f, "matrix products");
    if (b.found) {
        print_line(f, "  %s", b.name);
        print_line(f, "  %s", b.path);
        if (tni_gemm_f32_is_own())
            print_line(f, "  most products of f32 are Tenon's own, which are faster here");
        return;
    }
    const char *set = getenv("TN_BLAS");
    print_line(f, "  Tenon's own: %s", b.detail);
    if (set && *set) print_line(f, "  unset TN_BLAS to look for one");
    else print_line(f, "  a BLAS is faster; on Debian or Ubuntu: apt install libopenblas0-pthread");
}

// Lists the libraries that the CUDA device would use, found or not.
static void print_cuda(FILE *f)
{
    tni_nvidia_library library[TNI_NVIDIA_LIBRARIES];
    int                n = tni_nvidia_report(library);
    print_line(f, "cuda");
    for (int i = 0; i < n; i++)
        print_line(f, "  %-10s %-8s %s", library[i].name,
                   library[i].found ? library[i].version.s : "none", library[i].detail.s);
}

// Says which libraries would decode pictures, and what to install for those that are not there.
static void print_pictures(FILE *f)
{
    static const tni_symbol none[1];

    char table[1];
    print_line(f, "pictures");
    print_line(f, "  JPEG  %s",
               tni_library_fill(tni_turbojpeg_names, table, none, 0)
                   ? "libturbojpeg"
                   : "none; on Debian or Ubuntu: apt install libturbojpeg0");
    print_line(f, "  PNG   %s",
               tni_library_fill(tni_libpng_names, table, none, 0)
                   ? "libpng"
                   : "none; on Debian or Ubuntu: apt install libpng16-16");
}

// Says what a launcher set, and which engines could connect several ranks.
static void print_ranks(FILE *f)
{
    tni_text line[TNI_DIST_LINES];
    int      n = tni_dist_report(line);
    print_line(f, "ranks");
    for (int i = 0; i < n; i++) print_line(f, "  %s", line[i].s);
}

// Says where compiled kernels are kept, or why they are not.
static void print_compiler(FILE *f)
{
    tni_text t = { "" };
    tni_disk d;
    bool     ok = tni_cpu_compiler(&t);
    print_line(f, "compiler");
    print_line(f, "  %s%s", ok ? "" : "none, kernels are interpreted: ", t.s);
    tni_cpu_counts n = tni_cpu_kernels_counts();
    if (ok && n.off) print_line(f, "  this process compiles no more: %s", n.why.s);
    tni_disk_open(&d);
    t  = (tni_text){ "" };
    ok = tni_disk_usable(&d, &t);
    print_line(f, "compiled kernels");
    print_line(f, "  %s%s", ok ? "kept in " : "not kept: ", ok ? d.path : t.s);
}

// Lists every variable of Tenon that is set, known or not: a misspelled one shows up here.
static void print_environment(FILE *f)
{
    int n = 0;
    print_line(f, "environment");
    for (char **e = environ; e && *e; e++)
        if (!strncmp(*e, "TN_", 3)) {
            print_line(f, "  %s", *e);
            n++;
        }
    if (!n) print_line(f, "  no TN_ variable is set");
}

void tn_doctor(FILE *f)
{
    if (!f) return;
    print_line(f, "tenon %s", tn_version());
    print_devices(f);
    print_default(f);
    print_threads(f);
    print_blas(f);
    print_compiler(f);
    print_cuda(f);
    print_pictures(f);
    print_ranks(f);
    print_line(f, "ranges of NVTX");
    print_line(f, "  %s", tni_nvtx_state().s);
    print_environment(f);
}
