// The cuda device: the GPU, its memory, and transfers.
#include "device/cuda/cuda.h"

#include "device/cuda/gpu.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// ---- the GPU -----------------------------------------------------------------------------------

// What was found, and what came of opening it. Each is set once.
static struct {
    pthread_once_t looked, opened;
    bool           there;
    tni_text       detail;  // what it is, or why there is none
    int            device, major, minor;
    tni_gpu        gpu;
    int            error;  // of opening
} self = { .looked = PTHREAD_ONCE_INIT, .opened = PTHREAD_ONCE_INIT };

tn_status tni_gpu_status(const tni_gpu *gpu, int error, const char *what, tni_text *why)
{
    enum { NO_MEMORY = 2, LOST = 700, LAST_LOST = 719 };
    const char *text = NULL;
    if (error == TNI_CU_OK) return TN_OK;
    gpu->cu->error_string(error, &text);
    tni_text_add(why, "cuda: %s: %s", what, text ? text : "an unknown error");
    if (error == NO_MEMORY) return TN_EMEM;
    return error >= LOST && error <= LAST_LOST ? TN_ELOST : TN_EDEVICE;
}

static int attribute(const tni_driver *cu, int which)
{
    int v = 0;
    cu->device_attribute(&v, which, self.device);
    return v;
}

// Whether a driver, a GPU and a compiler are here; nothing of the GPU is used for that.
static void look_once(void)
{
    tni_text         *t     = &self.detail;
    const tni_driver *cu    = tni_driver_get(t);
    int               count = 0, version = 0, major = 0, minor = 0;
    size_t            bytes    = 0;
    char              name[64] = "";
    if (!cu) return;
    if (cu->init(0) != TNI_CU_OK || cu->device_count(&count) != TNI_CU_OK || count < 1 ||
        cu->device_get(&self.device, 0) != TNI_CU_OK) {
        tni_text_add(t, "the driver finds no GPU");
        return;
    }
    const tni_nvrtc *rtc = tni_nvrtc_get(t);
    if (!rtc) return;
    cu->device_name(name, (int)sizeof name, self.device);
    cu->device_memory(&bytes, self.device);
    cu->driver_version(&version);
    rtc->version(&major, &minor);
    self.gpu.cu = cu;
    self.major  = attribute(cu, TNI_CU_MAJOR);
    self.minor  = attribute(cu, TNI_CU_MINOR);
    self.there  = true;
    tni_text_add(t, "%s, sm_%d%d, %d multiprocessors, %.0f GiB, driver %d.%d, NVRTC %d.%d", name,
                 self.major, self.minor, attribute(cu, TNI_CU_MULTIPROCESSORS),
                 (double)bytes / (1 << 30), version / 1000, version % 1000 / 10, major, minor);
}

static bool probe(tni_text *detail)
{
    pthread_once(&self.looked, look_once);
    tni_text_add(detail, "%s", self.detail.s);
    return self.there;
}

static void open_once(void)
{
    enum { STATE = 4 * 8 };
    tni_gpu          *g    = &self.gpu;
    const tni_driver *cu   = g->cu;
    void             *host = NULL;
    snprintf(g->chip, sizeof g->chip, "sm_%d%d", self.major, self.minor);
    g->limits = (tni_simt_limits){ .threads      = 1024,
                                   .shared_bytes = attribute(cu, TNI_CU_SHARED_PER_BLOCK),
                                   .units        = attribute(cu, TNI_CU_MULTIPROCESSORS),
                                   .cuda         = true,
                                   .cluster      = self.major >= 9 ? 8 : 0 };
    int e     = cu->primary_retain(&g->cx, self.device);
    if (!e) e = cu->set_current(g->cx);
    if (!e) e = cu->stream_create(&g->stream, TNI_CU_STREAM_NONBLOCKING);
    if (!e) e = cu->mem_alloc(&g->state, STATE);
    if (!e) e = cu->set8(g->state, 0, STATE, g->stream);
    if (!e) e = cu->host_alloc(&host, STATE, TNI_CU_HOST_PORTABLE);
    g->seen    = host;
    self.error = e;
}

const tni_gpu *tni_gpu_get(tni_text *why)
{
    pthread_once(&self.looked, look_once);
    if (!self.there) {
        tni_text_add(why, "cuda: %s", self.detail.s);
        return NULL;
    }
    pthread_once(&self.opened, open_once);
    int error = self.error ? self.error : self.gpu.cu->set_current(self.gpu.cx);
    return tni_gpu_status(&self.gpu, error, "opening the GPU", why) == TN_OK ? &self.gpu : NULL;
}

// ---- memory ------------------------------------------------------------------------------------

static void *alloc(void *heap, size_t bytes)
{
    tni_text       why = { "" };
    const tni_gpu *g   = tni_gpu_get(&why);
    tni_cuptr      p   = 0;
    (void)heap;
    if (!g || g->cu->mem_alloc(&p, bytes ? bytes : 1) != TNI_CU_OK) return NULL;
    return (void *)(uintptr_t)p;
}

// The driver waits for work that may still use the memory.
static void give(void *heap, void *p)
{
    tni_text       why = { "" };
    const tni_gpu *g   = tni_gpu_get(&why);
    (void)heap;
    if (g && p) g->cu->mem_free((tni_cuptr)(uintptr_t)p);
}

// ---- transfer ----------------------------------------------------------------------------------

static void wait_all(void)
{
    tni_text       why = { "" };
    const tni_gpu *g   = tni_gpu_get(&why);
    if (g) g->cu->stream_wait(g->stream);
}

// The host's memory is the caller's again when these return. What goes wrong here goes wrong at the
// next launch too: such errors stay.
static void upload(void *dst, tn_dtype dt, const void *host, int64_t count)
{
    tni_text       why = { "" };
    const tni_gpu *g   = tni_gpu_get(&why);
    if (!g || count <= 0) return;
    g->cu->copy_in((tni_cuptr)(uintptr_t)dst, host, (size_t)count * tni_dtype_size(dt), g->stream);
    g->cu->stream_wait(g->stream);
}

static void download(void *host, tn_dtype dt, const void *src, int64_t count)
{
    tni_text       why   = { "" };
    const tni_gpu *g     = tni_gpu_get(&why);
    size_t         bytes = count > 0 ? (size_t)count * tni_dtype_size(dt) : 0;
    if (!g || !bytes) return;
    if (g->cu->copy_out(host, (tni_cuptr)(uintptr_t)src, bytes, g->stream) != TNI_CU_OK ||
        g->cu->stream_wait(g->stream) != TNI_CU_OK)
        memset(host, 0xff, bytes);  // NaN, rather than what lay there before
}

static size_t scratch(const tni_call *call)
{
    (void)call;
    return 0;
}

// ---- time --------------------------------------------------------------------------------------

double tni_cuda_seconds(void (*f)(void *arg), void *arg, int times)
{
    tni_text       why  = { "" };
    const tni_gpu *g    = tni_gpu_get(&why);
    tni_cuevent    from = NULL, to = NULL;
    float          ms = NAN;
    if (!g) return NAN;
    if (g->cu->event_create(&from, 0) == TNI_CU_OK && g->cu->event_create(&to, 0) == TNI_CU_OK) {
        g->cu->event_record(from, g->stream);
        for (int i = 0; i < times; i++) f(arg);
        g->cu->event_record(to, g->stream);
        if (g->cu->event_wait(to) != TNI_CU_OK || g->cu->elapsed(&ms, from, to) != TNI_CU_OK)
            ms = NAN;
    }
    if (from) g->cu->event_destroy(from);
    if (to) g->cu->event_destroy(to);
    return (double)ms * 1e-3;
}

const tni_device tni_device_cuda = {
    .name         = "cuda",
    .probe        = probe,
    .alloc        = alloc,
    .free         = give,
    .element_size = tni_dtype_size,
    .upload       = upload,
    .download     = download,
    .scratch      = scratch,
    .run          = tni_cuda_run,
    .prepare      = tni_cuda_prepare,
    .room         = tni_cuda_room,
    .launch       = tni_cuda_launch,
    .wait         = wait_all,
};
