// A driver between the library and the real one: see driver_watch.h.
#include "driver_watch.h"

#include "device/cuda/gpu.h"
#include "engine/engine.h"

static struct {
    const tni_driver *real;
    tni_driver        between;
    int64_t           count[WATCH_KINDS];
} self;

#define COUNTED(kind, name, params, args) \
    static int name params                \
    {                                     \
        self.count[kind]++;               \
        return self.real->name args;      \
    }

COUNTED(WATCH_GRAPHS, exec_launch, (tni_cuexec x, tni_custream s), (x, s))
COUNTED(WATCH_KERNELS, launch,
        (tni_cufunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
         unsigned bz, unsigned shared, tni_custream s, void **args, void **extra),
        (f, gx, gy, gz, bx, by, bz, shared, s, args, extra))
COUNTED(WATCH_KERNELS, launch_with,
        (const tni_culaunch *l, tni_cufunction f, void **args, void **extra), (l, f, args, extra))
COUNTED(WATCH_KERNELS, copy, (tni_cuptr dst, tni_cuptr src, size_t bytes, tni_custream s),
        (dst, src, bytes, s))
COUNTED(WATCH_KERNELS, set8, (tni_cuptr dst, unsigned char v, size_t n, tni_custream s),
        (dst, v, n, s))
COUNTED(WATCH_KERNELS, set16, (tni_cuptr dst, unsigned short v, size_t n, tni_custream s),
        (dst, v, n, s))
COUNTED(WATCH_KERNELS, set32, (tni_cuptr dst, unsigned v, size_t n, tni_custream s), (dst, v, n, s))
COUNTED(WATCH_UPLOADS, copy_in, (tni_cuptr dst, const void *src, size_t bytes, tni_custream s),
        (dst, src, bytes, s))
COUNTED(WATCH_DOWNLOADS, copy_out, (void *dst, tni_cuptr src, size_t bytes, tni_custream s),
        (dst, src, bytes, s))
COUNTED(WATCH_WAITS, context_wait, (void), ())
COUNTED(WATCH_WAITS, stream_wait, (tni_custream s), (s))
COUNTED(WATCH_MEMORY, mem_alloc, (tni_cuptr * p, size_t bytes), (p, bytes))
COUNTED(WATCH_MEMORY, mem_free, (tni_cuptr p), (p))
COUNTED(WATCH_MEMORY, host_alloc, (void **p, size_t bytes, unsigned flags), (p, bytes, flags))
COUNTED(WATCH_MEMORY, host_free, (void *p), (p))
COUNTED(WATCH_MEMORY, memory_create,
        (tni_cumemory * m, size_t bytes, const tni_cuallocation *what, unsigned long long flags),
        (m, bytes, what, flags))
COUNTED(WATCH_MEMORY, memory_release, (tni_cumemory m), (m))
COUNTED(WATCH_MODULES, module_load, (tni_cumodule * m, const void *image), (m, image))
COUNTED(WATCH_MODULES, module_load_with,
        (tni_cumodule * m, const void *image, unsigned options, int *option, void **value),
        (m, image, options, option, value))
COUNTED(WATCH_CAPTURES, capture_begin, (tni_custream s, int mode), (s, mode))
COUNTED(WATCH_CAPTURES, exec_create, (tni_cuexec * x, tni_cugraph g, unsigned long long flags),
        (x, g, flags))

// An event that has come is nothing to wait for.
static int event_wait(tni_cuevent e)
{
    self.count[WATCH_WAITS] += self.real->event_query(e) != TNI_CU_OK;
    return self.real->event_wait(e);
}

static void stand_between(tni_driver *b)
{
    b->exec_launch      = exec_launch;
    b->launch           = launch;
    b->launch_with      = launch_with;
    b->copy             = copy;
    b->set8             = set8;
    b->set16            = set16;
    b->set32            = set32;
    b->copy_in          = copy_in;
    b->copy_out         = copy_out;
    b->context_wait     = context_wait;
    b->stream_wait      = stream_wait;
    b->event_wait       = event_wait;
    b->mem_alloc        = mem_alloc;
    b->mem_free         = mem_free;
    b->host_alloc       = host_alloc;
    b->host_free        = host_free;
    b->memory_create    = memory_create;
    b->memory_release   = memory_release;
    b->module_load      = module_load;
    b->module_load_with = module_load_with;
    b->capture_begin    = capture_begin;
    b->exec_create      = exec_create;
}

bool driver_watch(tn_ctx *cx)
{
    if (cx->engine->device != &tni_device_cuda) return false;
    tni_gpu *g = (tni_gpu *)(uintptr_t)((tni_cuda *)cx->engine->session)->gpu;
    if (g->cu == &self.between) return true;
    self.real    = g->cu;
    self.between = *g->cu;
    stand_between(&self.between);
    g->cu = &self.between;
    return true;
}

int64_t driver_watched(watch_kind k)
{
    return self.count[k];
}
