// What measurements on a GPU share: the device, its time, what its memory can do.
//
// TN_BENCH_DEVICE names the device (cuda), TN_BENCH_FILES a folder where inputs and results are
// left for a peer to read; without it nothing is left.
#ifndef BENCH_GPU_KIT_H
#define BENCH_GPU_KIT_H

#include "bench.h"

#include "device/device.h"

// Whether the device can be used, found out by a process of its own: what is forked from one that
// has used it cannot. If not, a note of the group says why.
bool gpu_there(const char *group);

// A context on it, with TF32 on or off; NULL, with a note, if there is none. Errors are silent:
// gpu_is_well tells.
tn_ctx *gpu_open(const char *group, bool tf32);
// Whether nothing failed in the context; else a note of the group says what.
bool gpu_is_well(tn_ctx *cx, const char *group, const char *what);

const tni_device *gpu_device(const tn_ctx *cx);
void             *gpu_session(const tn_ctx *cx);
// Waits for everything launched.
void gpu_wait(const tn_ctx *cx);
// The time of a call between two events of the device, of so many one after the other.
double gpu_seconds(const tn_ctx *cx, void (*f)(void *arg), void *arg, int times);
// The median of that over rounds of 20 calls, after some to warm up.
double gpu_median(const tn_ctx *cx, void (*f)(void *arg), void *arg);

// What the steps of a loop take, in seconds: the first, which plans, compiles and chooses among
// libraries' ways; a later one, by the clock and until the host has given it away. launches:
// kernels and calls of a step; peak: the most bytes so far.
typedef struct {
    double first, step, host, launches, peak;
} gpu_loop;
gpu_loop gpu_time_loop(tn_ctx *cx, void (*f)(void *arg), void *arg);

// Adds a row "WHAT: PART" of the group.
void gpu_add_row(const char *group, const char *what, const char *part, double value,
                 const char *unit);
// Writes which kernels and calls some calls of f have, and how long each takes alone, for peers to
// NAME.profile.
void gpu_profile(tn_ctx *cx, const char *name, void (*f)(void *arg), void *arg, int times);

// Fills n elements of device memory with a number.
bool gpu_fill(const tn_ctx *cx, char *p, tn_dtype dt, int64_t n, double v);

// A copy on the device, whose bytes are as many read as written. Whoever opens it closes it.
typedef struct {
    const tn_ctx *cx;
    tni_arg       in;
    tni_call      call;
    tni_text      why;
} gpu_copy;
bool gpu_copy_open(gpu_copy *c, const tn_ctx *cx, int64_t bytes);
void gpu_copy_run(void *copy);
void gpu_copy_close(gpu_copy *c);
// Bytes that a copy of 1 GiB reads and writes in a second; NAN if it cannot be measured.
double gpu_copy_rate(const tn_ctx *cx);

// The path of a file in the folder for peers; NULL where there is none. Good until the next call.
const char *gpu_file(const char *name);

// Tensors with names, which are copied, to be left in such a file.
enum { GPU_LEFT = 256, GPU_LEFT_NAME = 96 };
typedef struct {
    char        text[GPU_LEFT][GPU_LEFT_NAME];
    const char *name[GPU_LEFT];
    tn_tensor  *t[GPU_LEFT];
    int         n;
} gpu_left;
void gpu_left_add(gpu_left *l, const char *prefix, const char *name, tn_tensor *t);
// Writes it as safetensors; without a folder, nothing.
void gpu_left_write(const gpu_left *l, tn_ctx *cx, const char *file);

#endif
