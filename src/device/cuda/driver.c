// Finds libcuda and libnvrtc, once, and keeps them: neither survives being unloaded.
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

// A function of a library: where its pointer goes, and what the library calls it.
typedef struct {
    size_t      at;
    const char *name;
} call;

#define CALL(field, name)                 \
    {                                     \
        offsetof(tni_driver, field), name \
    }
static const call driver_calls[] = {
    CALL(init, "cuInit"),
    CALL(driver_version, "cuDriverGetVersion"),
    CALL(error_string, "cuGetErrorString"),
    CALL(device_count, "cuDeviceGetCount"),
    CALL(device_get, "cuDeviceGet"),
    CALL(device_name, "cuDeviceGetName"),
    CALL(device_memory, "cuDeviceTotalMem_v2"),
    CALL(device_attribute, "cuDeviceGetAttribute"),
    CALL(primary_retain, "cuDevicePrimaryCtxRetain"),
    CALL(set_current, "cuCtxSetCurrent"),
    CALL(mem_alloc, "cuMemAlloc_v2"),
    CALL(mem_free, "cuMemFree_v2"),
    CALL(host_alloc, "cuMemHostAlloc"),
    CALL(host_address, "cuMemHostGetDevicePointer_v2"),
    CALL(copy_in, "cuMemcpyHtoDAsync_v2"),
    CALL(copy_out, "cuMemcpyDtoHAsync_v2"),
    CALL(copy, "cuMemcpyDtoDAsync_v2"),
    CALL(set8, "cuMemsetD8Async"),
    CALL(set16, "cuMemsetD16Async"),
    CALL(set32, "cuMemsetD32Async"),
    CALL(stream_create, "cuStreamCreate"),
    CALL(stream_wait, "cuStreamSynchronize"),
    CALL(event_create, "cuEventCreate"),
    CALL(event_record, "cuEventRecord"),
    CALL(event_wait, "cuEventSynchronize"),
    CALL(event_destroy, "cuEventDestroy_v2"),
    CALL(elapsed, "cuEventElapsedTime"),
    CALL(module_load, "cuModuleLoadData"),
    CALL(module_function, "cuModuleGetFunction"),
    CALL(function_set, "cuFuncSetAttribute"),
    CALL(launch, "cuLaunchKernel"),
};
#undef CALL

#define CALL(field, name)                \
    {                                    \
        offsetof(tni_nvrtc, field), name \
    }
static const call nvrtc_calls[] = {
    CALL(version, "nvrtcVersion"),        CALL(error_string, "nvrtcGetErrorString"),
    CALL(create, "nvrtcCreateProgram"),   CALL(destroy, "nvrtcDestroyProgram"),
    CALL(compile, "nvrtcCompileProgram"), CALL(log_size, "nvrtcGetProgramLogSize"),
    CALL(log, "nvrtcGetProgramLog"),      CALL(cubin_size, "nvrtcGetCUBINSize"),
    CALL(cubin, "nvrtcGetCUBIN"),
};
#undef CALL

// The loader's own folders first; then where CUDA is installed when nobody told the loader.
static const char *const driver_names[] = { "libcuda.so.1", NULL };
static const char *const nvrtc_names[]  = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                            "/usr/local/cuda/lib64/libnvrtc.so", NULL };

// Filled once, read-only from then on.
static struct {
    pthread_once_t once;
    tni_driver     driver;
    tni_nvrtc      nvrtc;
    bool           has_driver, has_nvrtc;
    tni_text       no_driver, no_nvrtc;
} found = { .once = PTHREAD_ONCE_INIT };

// POSIX promises that the bits of a dlsym result are those of a function pointer.
static bool fill(void *lib, void *table, const call *calls, size_t n, tni_text *why)
{
    for (size_t i = 0; i < n; i++) {
        void *function = dlsym(lib, calls[i].name);
        if (!function) {
            tni_text_add(why, "the library has no %s", calls[i].name);
            return false;
        }
        memcpy((char *)table + calls[i].at, &function, sizeof function);
    }
    return true;
}

static void *open_first(const char *const *names)
{
    void *lib = NULL;
    for (; *names && !lib; names++) lib = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return lib;
}

static void find_once(void)
{
    void *cuda = open_first(driver_names), *nvrtc = open_first(nvrtc_names);
    if (!cuda) tni_text_add(&found.no_driver, "there is no NVIDIA driver (libcuda.so.1)");
    if (!nvrtc)
        tni_text_add(&found.no_nvrtc, "there is no NVRTC (libnvrtc.so), which compiles kernels");
    found.has_driver = cuda && fill(cuda, &found.driver, driver_calls,
                                    sizeof driver_calls / sizeof *driver_calls, &found.no_driver);
    found.has_nvrtc  = nvrtc && fill(nvrtc, &found.nvrtc, nvrtc_calls,
                                     sizeof nvrtc_calls / sizeof *nvrtc_calls, &found.no_nvrtc);
}

const tni_driver *tni_driver_get(tni_text *why)
{
    pthread_once(&found.once, find_once);
    if (!found.has_driver) tni_text_add(why, "%s", found.no_driver.s);
    return found.has_driver ? &found.driver : NULL;
}

const tni_nvrtc *tni_nvrtc_get(tni_text *why)
{
    pthread_once(&found.once, find_once);
    if (!found.has_nvrtc) tni_text_add(why, "%s", found.no_nvrtc.s);
    return found.has_nvrtc ? &found.nvrtc : NULL;
}
