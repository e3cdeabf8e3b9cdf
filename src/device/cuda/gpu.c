// The GPUs of the machine: whether there are any, and opening one. Probing loads libraries and asks
// the driver for names, but takes no memory of a GPU; opening retains its primary context, which
// takes memory there and time, so that it happens only for a GPU that a session asks for.
#include "device/cuda/gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// More than any single machine has; GPUs beyond are not used.
enum { MOST_GPUS = 16 };

// What probing found, and the GPUs opened so far. The lock guards gpu[] while one is opened; all
// else is written by probe_once alone.
static struct {
    pthread_once_t    probed;
    pthread_mutex_t   lock;
    const tni_driver *cu;
    pid_t             process;  // that the driver was started in
    int               count;    // of GPUs; 0: none, for the reason in detail
    tni_text          detail;   // in a line
    tni_gpu           gpu[MOST_GPUS];
} self = { .probed = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

// Maps the driver's error to a status: out of memory can be handled by freeing, a lost context by
// nothing but a new process, all else is an error of the device.
tn_status tni_gpu_status(const tni_driver *cu, int error, const char *what, tni_text *why)
{
    const char *text = NULL;
    if (error == TNI_CU_OK) return TN_OK;
    cu->error_string(error, &text);
    tni_text_add(why, "cuda: %s: %s", what, text ? text : "an unknown error");
    if (error == TNI_CU_OUT_OF_MEMORY) return TN_EMEM;
    return tni_driver_lost(error) ? TN_ELOST : TN_EDEVICE;
}

static int attribute_of(int device, int which)
{
    int v = 0;
    self.cu->device_attribute(&v, which, device);
    return v;
}

// Writes the line that `tenon doctor` shows for the device: the first GPU's name, chip,
// multiprocessors and memory, and the versions of driver and compiler.
static void describe_gpu(const tni_nvrtc *rtc, int device)
{
    int    version = 0, major = 0, minor = 0;
    size_t bytes    = 0;
    char   name[64] = "";
    self.cu->device_name(name, (int)sizeof name, device);
    self.cu->device_memory(&bytes, device);
    self.cu->driver_version(&version);
    rtc->version(&major, &minor);
    tni_text_add(&self.detail,
                 "%s, sm_%d%d, %d multiprocessors, %.0f GiB, driver %d.%d, NVRTC %d.%d", name,
                 attribute_of(device, TNI_CU_MAJOR), attribute_of(device, TNI_CU_MINOR),
                 attribute_of(device, TNI_CU_MULTIPROCESSORS), (double)bytes / (1 << 30),
                 version / 1000, version % 1000 / 10, major, minor);
    if (self.count > 1) tni_text_add(&self.detail, "; %d GPUs, cuda:0 the first", self.count);
}

// Runs once per process. On failure count stays 0 and detail has the reason. NVRTC is required,
// since a device without a compiler runs nothing.
static void probe_once(void)
{
    tni_text *t     = &self.detail;
    int       count = 0, device = 0;
    self.cu = tni_driver_get(t);
    if (!self.cu) return;
    self.process = getpid();
    if (!tni_driver_start(self.cu, &count, t)) return;
    self.cu->device_get(&device, 0);
    const tni_nvrtc *rtc = tni_nvrtc_get(t);
    if (!rtc) return;
    self.count = count < MOST_GPUS ? count : MOST_GPUS;
    describe_gpu(rtc, device);
}

// Whether this is the child of a process that had started the driver, which then works in neither
// way here.
static bool is_forked(tni_text *why)
{
    if (!self.count || self.process == getpid()) return false;
    tni_text_add(why, "CUDA cannot be used in the child of a fork: use the cpu there, or begin the "
                      "process anew (Python's start method \"spawn\")");
    return true;
}

bool tni_gpu_probe(tni_text *detail)
{
    pthread_once(&self.probed, probe_once);
    if (is_forked(detail)) return false;
    tni_text_add(detail, "%s", self.detail.s);
    return self.count > 0;
}

// Waits, by the lock, for a GPU that another thread is opening: kernels are compiled in the
// background before their GPU's context exists, and loaded into it afterwards.
tni_cucontext tni_gpu_context(const tni_gpu *g)
{
    pthread_mutex_lock(&self.lock);
    tni_cucontext cx = g->cx;
    pthread_mutex_unlock(&self.lock);
    return cx;
}

static int driver_version(void)
{
    int version = 0;
    self.cu->driver_version(&version);
    return version;
}

// The interpreter gets its program as a kernel argument of more than 4 KiB, which driver and
// compiler accept from CUDA 12.1 on, for chips from 2017 on (compute capability 7).
static bool takes_large_arguments(int major)
{
    int              version = driver_version(), rtc_major = 0, rtc_minor = 0;
    const tni_nvrtc *rtc = tni_nvrtc_get(&(tni_text){ "" });
    if (rtc) rtc->version(&rtc_major, &rtc_minor);
    return major >= 7 && version >= 12010 && rtc_major * 1000 + rtc_minor * 10 >= 12010;
}

// TN_COMPILE=wait compiles before the first launch. So does TN_DETERMINISTIC=1: interpreted and
// compiled kernels may sum in different orders, and which of them runs depends on time.
bool tni_gpu_interprets_first(void)
{
    const char *when = getenv("TN_COMPILE"), *equal = getenv("TN_DETERMINISTIC");
    return !(when && !strcmp(when, "wait")) && !(equal && !strcmp(equal, "1"));
}

// Opens a GPU for the first session that asks for it; the lock is held. Retaining the primary
// context takes longest and comes last, so that the interpreters are compiled meanwhile.
static int open_gpu(tni_gpu *g, int number)
{
    int error = self.cu->device_get(&g->device, number);
    if (error) return error;
    int major = attribute_of(g->device, TNI_CU_MAJOR),
        minor = attribute_of(g->device, TNI_CU_MINOR);
    self.cu->device_name(g->name, (int)sizeof g->name, g->device);
    snprintf(g->chip, sizeof g->chip, "sm_%d%d", major, minor);
    g->number = number;
    // Programmatic dependent launch: chips from sm_90 on, and drivers that can capture it in a
    // graph.
    g->overlaps = major >= 9 && self.cu->capture_info_v3;
    g->divides  = g->overlaps && driver_version() >= 12080;
    g->limits   = (tni_simt_limits){ .threads      = 1024,
                                     .shared_bytes = attribute_of(g->device, TNI_CU_SHARED_PER_BLOCK),
                                     .units        = attribute_of(g->device, TNI_CU_MULTIPROCESSORS),
                                     .features     = tni_dialect_cuda.features,
                                     // blocks that every chip with clusters can run in one cluster
                                     .cluster = major >= 9 ? 8 : 0 };
    if (!g->compiled) g->compiled = tni_cuda_compiled_new(g);
    if (!g->compiled) return TNI_CU_OUT_OF_MEMORY;
    g->interprets = takes_large_arguments(major);
    if (g->interprets && tni_gpu_interprets_first()) tni_compiled_interpreters_soon(g->compiled);
    error = self.cu->primary_retain(&g->cx, g->device);
    if (!error) g->cu = self.cu;
    return error;
}

int tni_gpu_count(void)
{
    pthread_once(&self.probed, probe_once);
    return self.count;
}

// A GPU that could not be opened is tried again by the next session: memory may have been freed
// since.
const tni_gpu *tni_gpu_get(int number, tni_text *why)
{
    pthread_once(&self.probed, probe_once);
    if (is_forked(why)) return NULL;
    if (number < 0 || number >= self.count) {
        if (!self.count) tni_text_add(why, "cuda: %s", self.detail.s);
        else
            tni_text_add(why, "cuda:%d: there are %d GPUs, numbered from cuda:0", number,
                         self.count);
        return NULL;
    }
    tni_gpu *g = &self.gpu[number];
    pthread_mutex_lock(&self.lock);
    int error = g->cu ? TNI_CU_OK : open_gpu(g, number);
    pthread_mutex_unlock(&self.lock);
    return tni_gpu_status(self.cu, error, "opening the GPU", why) == TN_OK ? g : NULL;
}

bool tni_gpu_has_cores(const tni_gpu *g)
{
    return atoi(g->chip + 3) >= 80;
}

bool tni_gpu_has_wgmma(const tni_gpu *g)
{
    return !strcmp(g->chip, "sm_90");
}
