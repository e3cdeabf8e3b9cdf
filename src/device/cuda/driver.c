// Opens libcuda and libnvrtc, once, and keeps them: neither survives being unloaded.
#include "device/cuda/driver.h"

#include "base/find_libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEEDED = 12000 };  // the version of CUDA that a driver must support

// ---- tables ------------------------------------------------------------------------------------

// driver.def has a row for each field, with the kind of table that it belongs to; each inclusion
// takes the rows of one kind. Optional functions may be missing, and are NULL then.
static const tni_symbol driver_symbols[] = {
#define CALL(field, name) { offsetof(tni_driver, field), #name },
#include "device/cuda/driver.def"
};

static const tni_symbol driver_optional[] = {
#define MAYBE(field, name) { offsetof(tni_driver, field), #name },
#include "device/cuda/driver.def"
};

static const tni_symbol nvrtc_symbols[] = {
#define NVRTC(field, name) { offsetof(tni_nvrtc, field), #name },
#include "device/cuda/driver.def"
};

static const tni_symbol nvrtc_optional[] = {
#define NVRTC_MAYBE(field, name) { offsetof(tni_nvrtc, field), #name },
#include "device/cuda/driver.def"
};

enum {
    CALLS        = sizeof driver_symbols / sizeof *driver_symbols,
    EXTRAS       = sizeof driver_optional / sizeof *driver_optional,
    NVRTC_CALLS  = sizeof nvrtc_symbols / sizeof *nvrtc_symbols,
    NVRTC_EXTRAS = sizeof nvrtc_optional / sizeof *nvrtc_optional
};

_Static_assert(sizeof(tni_driver) == (CALLS + EXTRAS) * sizeof(void (*)(void)), "a row a field");
_Static_assert(sizeof(tni_nvrtc) == (NVRTC_CALLS + NVRTC_EXTRAS) * sizeof(void (*)(void)),
               "a row a field");

// A driver of CUDA 12.0 has every function that is not optional, so that the version names the
// problem better than the missing symbol; both are reported.
bool tni_driver_fill(void *library, tni_driver *cu, tni_text *why)
{
    int         version = 0;
    const char *missing = tni_symbols_fill(library, cu, driver_symbols, CALLS);
    tni_symbols_fill(library, cu, driver_optional, EXTRAS);
    if (cu->driver_version) cu->driver_version(&version);
    if (!missing && version >= NEEDED) return true;
    tni_text_add(why, "the NVIDIA driver is too old: it supports CUDA %d.%d", version / 1000,
                 version % 1000 / 10);
    if (missing) tni_text_add(why, " and has no %s", missing);
    tni_text_add(why, "; CUDA %d.%d is needed", NEEDED / 1000, NEEDED % 1000 / 10);
    return false;
}

// ---- finding them ------------------------------------------------------------------------------

// What was found; each half is filled once by its find function and read-only from then on.
static struct {
    pthread_once_t driver_once, nvrtc_once;
    tni_driver     driver;
    tni_nvrtc      nvrtc;
    bool           has_driver, has_nvrtc;
    int            version;  // of CUDA that the driver supports; 0 without one
    tni_text       driver_path, nvrtc_path, no_driver, no_nvrtc;
} found = { .driver_once = PTHREAD_ONCE_INIT, .nvrtc_once = PTHREAD_ONCE_INIT };

// Runs once. Keeps the library or the reason why there is none.
static void find_driver(void)
{
    void *lib = tni_nvidia_open_driver(&found.driver_path);
    if (!lib) {
        tni_text_add(&found.no_driver, "there is no NVIDIA driver (libcuda.so.1)");
        return;
    }
    found.has_driver = tni_driver_fill(lib, &found.driver, &found.no_driver);
    if (found.has_driver) found.driver.driver_version(&found.version);
}

// Libraries of one major version of CUDA run on drivers of that version and above. So the newest
// that the driver serves is tried first, and newer ones only if there is nothing else. Without a
// driver the newest is as good as any: NVRTC still compiles.
void *tni_cuda_library(const char *name, tni_text *where)
{
    enum { OLDEST = 12, NEWEST = 13, ROOM = 64 };
    char file[NEWEST - OLDEST + 1][ROOM];
    pthread_once(&found.driver_once, find_driver);
    int most = found.version ? found.version / 1000 : NEWEST;

    const char *fits[NEWEST - OLDEST + 2] = { 0 }, *rest[NEWEST - OLDEST + 2] = { 0 };
    for (int v = NEWEST, nf = 0, nr = 0; v >= OLDEST; v--) {
        snprintf(file[v - OLDEST], ROOM, "%s.so.%d", name, v);
        if (v <= most) fits[nf++] = file[v - OLDEST];
        else rest[nr++] = file[v - OLDEST];
    }
    void *lib = tni_nvidia_open(fits, where);
    return lib ? lib : tni_nvidia_open(rest, where);
}

// Runs once. Keeps the library or the reason, which says how to install it.
static void find_nvrtc(void)
{
    void *lib = tni_cuda_library("libnvrtc", &found.nvrtc_path);
    if (!lib) {
        tni_text_add(&found.no_nvrtc,
                     "there is no NVRTC (libnvrtc.so.13 or .12), which compiles kernels: install "
                     "the wheel nvidia-cuda-nvrtc, or set CUDA_PATH to a toolkit");
        return;
    }
    const char *missing = tni_symbols_fill(lib, &found.nvrtc, nvrtc_symbols, NVRTC_CALLS);
    tni_symbols_fill(lib, &found.nvrtc, nvrtc_optional, NVRTC_EXTRAS);
    found.has_nvrtc = !missing;
    if (missing)
        tni_text_add(&found.no_nvrtc, "NVRTC is too old: %s has no %s", found.nvrtc_path.s,
                     missing);
}

const tni_driver *tni_driver_get(tni_text *why)
{
    pthread_once(&found.driver_once, find_driver);
    if (!found.has_driver) tni_text_add(why, "%s", found.no_driver.s);
    return found.has_driver ? &found.driver : NULL;
}

const tni_nvrtc *tni_nvrtc_get(tni_text *why)
{
    pthread_once(&found.nvrtc_once, find_nvrtc);
    if (!found.has_nvrtc) tni_text_add(why, "%s", found.no_nvrtc.s);
    return found.has_nvrtc ? &found.nvrtc : NULL;
}

tni_text tni_driver_path(void)
{
    pthread_once(&found.driver_once, find_driver);
    return found.driver_path;
}

tni_text tni_nvrtc_path(void)
{
    pthread_once(&found.nvrtc_once, find_nvrtc);
    return found.nvrtc_path;
}

// ---- what the driver says ----------------------------------------------------------------------

// CUDA_VISIBLE_DEVICES hides GPUs, and is the usual reason for seeing none.
static void report_no_gpu(tni_text *why)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible)
        tni_text_add(why, "no GPU is visible: CUDA_VISIBLE_DEVICES is %s", tni_quoted(visible).s);
    else tni_text_add(why, "the NVIDIA driver finds no GPU");
}

// No GPU and a driver that does not start (a kernel module that does not match, for example) get
// different sentences.
bool tni_driver_start(const tni_driver *cu, int *count, tni_text *why)
{
    int         error = cu->init(0);
    const char *text  = NULL;
    *count            = 0;
    if (error == TNI_CU_OK) error = cu->device_count(count);
    if (error == TNI_CU_OK && *count > 0) return true;
    if (error == TNI_CU_OK || error == TNI_CU_NO_DEVICE) {
        report_no_gpu(why);
        return false;
    }
    cu->error_string(error, &text);
    tni_text_add(why, "the NVIDIA driver does not start: %s (error %d)",
                 text ? text : "an unknown error", error);
    return false;
}

// Errors after which every call of the context fails until the process ends.
bool tni_driver_lost(int error)
{
    switch (error) {
    case TNI_CU_BAD_MEMORY:
    case TNI_CU_BAD_LINK:
    case TNI_CU_ILLEGAL_ADDRESS:
    case TNI_CU_TIMEOUT:
    case TNI_CU_DESTROYED:
    case TNI_CU_ASSERT: return true;
    default: return error >= TNI_CU_BAD_STACK && error <= TNI_CU_LAUNCH_FAILED;
    }
}

// The node that a launch just made is what later work of the stream depends on. The driver has two
// versions of the function; edges, which the newer one reports, are not used here.
int tni_capture_last(const tni_driver *cu, tni_custream s, tni_cunode *node)
{
    const tni_cunode *last  = NULL;
    const tni_cuedge *edge  = NULL;
    int               state = TNI_CU_CAPTURE_NONE, error = TNI_CU_NOT_SUPPORTED;
    size_t            n = 0;
    if (cu->capture_info_v3) error = cu->capture_info_v3(s, &state, NULL, NULL, &last, &edge, &n);
    else if (cu->capture_info_v2) error = cu->capture_info_v2(s, &state, NULL, NULL, &last, &n);
    *node = !error && n == 1 ? last[0] : NULL;
    return error;
}
