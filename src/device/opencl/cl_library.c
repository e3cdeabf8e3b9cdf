// Finds libOpenCL and a device, once for the process: the first GPU, else the first CPU device, or
// the one that TN_OPENCL_DEVICE=platform:device names by number. libOpenCL is loaded at run time,
// so that Tenon needs no OpenCL to be built or started.
#include "device/opencl/opencl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tni_cl          opened;
static pthread_once_t  once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void tni_cl_lock(void)
{
    pthread_mutex_lock(&lock);
}

void tni_cl_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

// ---- errors ------------------------------------------------------------------------------------

// Drivers report a full device by any of these, CL_OUT_OF_RESOURCES included.
bool tni_cl_no_memory(int32_t code)
{
    return code == TNI_CL_MEM_OBJECT_ALLOCATION_FAILURE || code == TNI_CL_OUT_OF_RESOURCES ||
           code == TNI_CL_OUT_OF_HOST_MEMORY;
}

// `what` names the op or the step that failed, and begins the sentence.
tn_status tni_cl_error(tni_text *why, const char *what, int32_t code)
{
    *why = (tni_text){ 0 };
    if (tni_cl_no_memory(code)) tni_text_add(why, "%s: opencl: out of memory", what);
    else tni_text_add(why, "%s: opencl: error %d", what, code);
    return tni_cl_no_memory(code) ? TN_EMEM : TN_EDEVICE;
}

// ---- the library -------------------------------------------------------------------------------

// Loads a function of the library. ISO C has no cast from an object pointer to a function pointer;
// POSIX promises that copying the bits works.
static bool load_symbol(void *lib, const char *name, void *function)
{
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

// Loads libOpenCL and all functions of cl_api.h. The handle is never closed.
static bool load_opencl(tni_cl *cl)
{
    void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) lib = dlopen("libOpenCL.so", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        tni_text_add(&cl->detail, "libOpenCL.so.1 cannot be loaded");
        return false;
    }
    const char *missing = NULL;
#define F(result, name, args) \
    if (!load_symbol(lib, #name, &cl->api.name)) missing = #name;
    TNI_CL_FUNCTIONS(F)
#undef F
    if (missing) tni_text_add(&cl->detail, "libOpenCL has no %s: OpenCL 1.2 is needed", missing);
    return !missing;
}

// ---- choosing ----------------------------------------------------------------------------------

// Platforms, and devices of each, that are considered: far more than machines have.
enum { MAX_FOUND = 16 };

// The devices of a type on a platform; a platform without any reports an error, which counts as 0.
static uint32_t devices_of(tni_cl *cl, tni_cl_platform_id p, uint64_t type, tni_cl_device_id *to)
{
    uint32_t n = 0;
    if (cl->api.clGetDeviceIDs(p, type, MAX_FOUND, to, &n) != TNI_CL_SUCCESS) return 0;
    return n < MAX_FOUND ? n : MAX_FOUND;
}

// Takes the device that the user named as platform:device. A name that is not one is an error, not
// a reason to take another device.
static bool choose_named(tni_cl *cl, const char *name, uint32_t n, tni_cl_platform_id *platform)
{
    tni_cl_device_id device[MAX_FOUND];
    unsigned         p = 0, d = 0;
    char             rest;
    if (sscanf(name, "%u:%u%c", &p, &d, &rest) == 2 && p < n &&
        d < devices_of(cl, platform[p], (uint64_t)TNI_CL_DEVICE_TYPE_ALL, device)) {
        cl->device = device[d];
        return true;
    }
    tni_text_add(&cl->detail, "TN_OPENCL_DEVICE=%.32s is no platform:device of this machine", name);
    return false;
}

// Takes the first GPU of any platform before the first CPU device of any: a machine with a GPU
// often has a CPU platform listed first.
static bool choose_device(tni_cl *cl)
{
    tni_cl_platform_id platform[MAX_FOUND];
    tni_cl_device_id   device[MAX_FOUND];
    uint32_t           n    = 0;
    const char        *name = getenv("TN_OPENCL_DEVICE");
    int32_t            code = cl->api.clGetPlatformIDs(MAX_FOUND, platform, &n);
    if (code != TNI_CL_SUCCESS || n == 0) {
        tni_text_add(&cl->detail, "libOpenCL has no platform (no driver is installed)");
        return false;
    }
    if (n > MAX_FOUND) n = MAX_FOUND;
    if (name && *name) return choose_named(cl, name, n, platform);
    const int64_t types[] = { TNI_CL_DEVICE_TYPE_GPU, TNI_CL_DEVICE_TYPE_CPU };
    for (int t = 0; t < 2; t++)
        for (uint32_t p = 0; p < n; p++)
            if (devices_of(cl, platform[p], (uint64_t)types[t], device)) {
                cl->device = device[0];
                return true;
            }
    tni_text_add(&cl->detail, "no platform has a GPU or CPU device");
    return false;
}

// ---- what it is --------------------------------------------------------------------------------

// A numeric property, of 4 or 8 bytes; 0 if the driver cannot tell.
static int64_t device_number(const tni_cl *cl, int64_t what, size_t size)
{
    union {
        uint32_t u;
        uint64_t l;
    } v = { .l = 0 };
    if (cl->api.clGetDeviceInfo(cl->device, (uint32_t)what, size, &v, NULL) != TNI_CL_SUCCESS)
        return 0;
    return size == sizeof v.u ? (int64_t)v.u : (int64_t)v.l;
}

// A text property, without the blanks that some drivers pad it with.
static void device_text(const tni_cl *cl, int64_t what, char *dst, size_t size)
{
    *dst = 0;
    if (cl->api.clGetDeviceInfo(cl->device, (uint32_t)what, size, dst, NULL) != TNI_CL_SUCCESS)
        *dst = 0;
    dst[size - 1] = 0;
    for (size_t n = strlen(dst); n && dst[n - 1] == ' '; n--) dst[n - 1] = 0;
}

// Whether the device has an extension. The list is one text of unknown length, so it is measured
// first.
static bool has_extension(const tni_cl *cl, const char *name)
{
    size_t n = 0;
    cl->api.clGetDeviceInfo(cl->device, (uint32_t)TNI_CL_DEVICE_EXTENSIONS, 0, NULL, &n);
    char *all = n ? calloc(n + 1, 1) : NULL;
    if (!all) return false;
    cl->api.clGetDeviceInfo(cl->device, (uint32_t)TNI_CL_DEVICE_EXTENSIONS, n, all, NULL);
    bool found = strstr(all, name) != NULL;
    free(all);
    return found;
}

// Reads the properties of the device. `chip` names driver and versions, so that a new driver does
// not load binaries that an old one wrote.
static void describe_device(tni_cl *cl)
{
    char name[128], version[128],
        driver[64];  // PoCL's version names the chip, too: 70 characters and more
    int64_t config   = device_number(cl, TNI_CL_DEVICE_SINGLE_FP_CONFIG, 8);
    cl->is_cpu       = device_number(cl, TNI_CL_DEVICE_TYPE, 8) & TNI_CL_DEVICE_TYPE_CPU;
    cl->fp64         = has_extension(cl, "cl_khr_fp64");
    cl->exact_divide = config & TNI_CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
    cl->memory       = device_number(cl, TNI_CL_DEVICE_GLOBAL_MEM_SIZE, 8);
    cl->max_buffer   = device_number(cl, TNI_CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    cl->local        = device_number(cl, TNI_CL_DEVICE_LOCAL_MEM_SIZE, 8);
    cl->group        = device_number(cl, TNI_CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    cl->units        = device_number(cl, TNI_CL_DEVICE_MAX_COMPUTE_UNITS, 4);
    device_text(cl, TNI_CL_DEVICE_NAME, name, sizeof name);
    device_text(cl, TNI_CL_DEVICE_VERSION, version, sizeof version);
    // 64 kernels share the start-up cost of a compilation. The simulator Oclgrind adds up the local
    // memory of all kernels of a program, which 8 keep below its limit.
    cl->batch = strstr(name, "Oclgrind") ? 8 : 64;
    device_text(cl, TNI_CL_DRIVER_VERSION, driver, sizeof driver);
    // PoCL compiles a kernel when it is launched, for groups of that size, and keeps it on disk. To
    // hand out a binary it compiles all kernels of the program once more, for groups of any size,
    // which no launch uses: a first training of lenet takes 45 seconds so, and 18 without. Later
    // ones find their programs in PoCL's own cache, which takes 35 ms each instead of 2.
    cl->keeps = !strstr(version, "PoCL") && !strstr(version, "pocl");
    snprintf(cl->chip, sizeof cl->chip, "%s, %s, %s", name, version, driver);
    tni_text_add(&cl->detail, "%s, %s, %s", name, version, cl->fp64 ? "fp64" : "no fp64");
}

// Whether kernels can run: they use groups of 256 and pass arguments of up to 1 KB. OpenCL 1.2
// promises the latter for every full profile, not the former. Otherwise `detail` says so.
static bool is_capable(tni_cl *cl)
{
    if (cl->group >= 256 &&
        device_number(cl, TNI_CL_DEVICE_MAX_PARAMETER_SIZE, sizeof(size_t)) >= 1024)
        return true;
    tni_text_add(&cl->detail, ": its work groups or arguments are too small");
    return false;
}

static void finish_at_exit(void)
{
    opened.api.clFinish(opened.queue);
}

// Registers once, however often it is called.
void tni_cl_finish_at_exit(void)
{
    static bool done;
    if (!done) atexit(finish_at_exit);
    done = true;
}

static bool forked;

static void note_fork(void)
{
    forked = true;
}

bool tni_cl_forked(void)
{
    return forked;
}

// Opens the device; run once, by pthread_once. On failure `available` stays false and `detail` has
// the reason.
static void open_once(void)
{
    tni_cl *cl   = &opened;
    int32_t code = 0;
    if (!load_opencl(cl) || !choose_device(cl)) return;
    describe_device(cl);
    if (!is_capable(cl)) return;
    cl->context = cl->api.clCreateContext(NULL, 1, &cl->device, NULL, NULL, &code);
    if (cl->context) cl->queue = cl->api.clCreateCommandQueue(cl->context, cl->device, 0, &code);
    if (!cl->queue) {
        tni_text_add(&cl->detail, ": no context (error %d)", code);
        return;
    }
    cl->compiled  = tni_cl_compiled_new(cl);
    cl->available = cl->compiled != NULL;
    pthread_atfork(NULL, NULL, note_fork);
    if (!cl->available) tni_text_add(&cl->detail, ": out of memory");
}

// The device is not opened before it is first asked for: loading a driver takes time and starts
// threads.
tni_cl *tni_cl_get(void)
{
    pthread_once(&once, open_once);
    return opened.available ? &opened : NULL;
}

const char *tni_cl_detail(void)
{
    tni_cl_get();
    return opened.detail.s;
}
