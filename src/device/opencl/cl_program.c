// Programs: building them from text, or from a binary in the disk cache; and assembling launches.
#include "device/opencl/opencl.h"

#include "kernel/disk.h"

#include <stdlib.h>
#include <string.h>

// ---- building ----------------------------------------------------------------------------------

// Contraction is turned off in the text itself; division and square root round correctly if the
// device can. -w, because drivers print warnings to the standard error of the user's program.
static const char *build_options(const tni_cl *cl)
{
    return cl->exact_divide ? "-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt"
                            : "-cl-std=CL1.2 -w";
}

// Adds the first line of the build log that mentions an error to the reason.
static void explain_build_failure(const tni_cl *cl, tni_cl_program p, const char *what,
                                  int32_t code, tni_text *why)
{
    size_t n = 0;
    *why     = (tni_text){ 0 };
    tni_text_add(why, "%s: opencl: the program does not compile (error %d)", what, code);
    cl->api.clGetProgramBuildInfo(p, cl->device, (uint32_t)TNI_CL_PROGRAM_BUILD_LOG, 0, NULL, &n);
    char *log = n ? calloc(n + 1, 1) : NULL;
    if (!log) return;
    cl->api.clGetProgramBuildInfo(p, cl->device, (uint32_t)TNI_CL_PROGRAM_BUILD_LOG, n, log, NULL);
    const char *line = strstr(log, "error");
    if (line) tni_text_add(why, ": %.*s", (int)strcspn(line, "\n"), line);
    free(log);
}

// The disk cache, opened by the first program. Guarded by the lock.
static struct {
    bool     opened;
    tni_disk disk;
} cache;

// OpenCL has no compiler to name: driver and versions are in the chip's name.
static tni_disk_key program_key(const tni_cl *cl, const char *source)
{
    return (tni_disk_key){ "cl", source, build_options(cl), "", cl->chip };
}

// Builds a program from its binary in the disk cache; NULL if there is none, or the driver rejects
// it.
static tni_cl_program load_cached(const tni_cl *cl, const char *source)
{
    tni_disk_key   key    = program_key(cl, source);
    size_t         bytes  = 0;
    int32_t        status = 0, code = 0;
    unsigned char *binary = cl->keeps ? tni_disk_find(&cache.disk, &key, &bytes) : NULL;
    if (!binary) return NULL;
    tni_cl_program p = cl->api.clCreateProgramWithBinary(
        cl->context, 1, &cl->device, &bytes, (const unsigned char **)&binary, &status, &code);
    free(binary);
    if (!p) return NULL;
    if (status == TNI_CL_SUCCESS &&
        cl->api.clBuildProgram(p, 1, &cl->device, build_options(cl), NULL, NULL) == TNI_CL_SUCCESS)
        return p;
    cl->api.clReleaseProgram(p);
    return NULL;
}

// Stores a program's binary in the disk cache. Failing costs a compilation next time, nothing else.
static void store_cached(const tni_cl *cl, tni_cl_program p, const char *source)
{
    tni_disk_key key   = program_key(cl, source);
    size_t       bytes = 0;
    if (!cl->keeps) return;
    cl->api.clGetProgramInfo(p, (uint32_t)TNI_CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
    unsigned char *binary = bytes ? malloc(bytes) : NULL;
    if (binary && cl->api.clGetProgramInfo(p, (uint32_t)TNI_CL_PROGRAM_BINARIES, sizeof binary,
                                           &binary, NULL) == TNI_CL_SUCCESS)
        tni_disk_keep(&cache.disk, &key, binary, bytes);
    free(binary);
}

// The disk cache is tried first: compiling a program of many kernels takes far longer than loading
// its binary. A binary that the driver rejects is compiled anew and replaced.
tni_cl_program tni_cl_build(const char *source, const char *what, tn_status *status, tni_text *why)
{
    tni_cl *cl   = tni_cl_get();
    int32_t code = 0;
    if (!cache.opened) tni_disk_open(&cache.disk);
    cache.opened     = true;
    tni_cl_program p = load_cached(cl, source);
    if (p) {
        cl->loaded++;
        tni_cl_finish_at_exit();
        return p;
    }
    p = cl->api.clCreateProgramWithSource(cl->context, 1, &source, NULL, &code);
    if (p) code = cl->api.clBuildProgram(p, 1, &cl->device, build_options(cl), NULL, NULL);
    if (p && code == TNI_CL_SUCCESS) {
        cl->built++;
        store_cached(cl, p, source);
        tni_cl_finish_at_exit();
        return p;
    }
    *status = tni_cl_error(why, what, code);
    if (p && !tni_cl_no_memory(code)) explain_build_failure(cl, p, what, code, why);
    if (p) cl->api.clReleaseProgram(p);
    return NULL;
}

// ---- launching ---------------------------------------------------------------------------------

// Keeps the first error: later arguments of a wrong kernel would only hide it.
void tni_cl_set_arg(tni_cl_launch *l, const void *value, size_t size)
{
    int32_t code = l->cl->api.clSetKernelArg(l->kernel, l->arg++, size, value);
    if (l->code == TNI_CL_SUCCESS) l->code = code;
}

void tni_cl_set_long(tni_cl_launch *l, int64_t value)
{
    tni_cl_set_arg(l, &value, sizeof value);
}

// A kernel gets the buffer object; what the address is past its start has to reach it some other
// way, as the offset of an access.
int64_t tni_cl_set_buffer(tni_cl_launch *l, const void *address)
{
    tni_cl_buffer p = tni_cl_find_buffer(address);
    tni_cl_set_arg(l, &p.mem, sizeof p.mem);
    return p.offset;
}

// Launches between two flushes. A driver may keep commands in the queue until a flush begins them;
// flushing each launch would cost a system call each on GPU drivers, and never flushing would leave
// the device idle until the host waits.
enum { FLUSH_EVERY = 16 };
static unsigned started;  // guarded by the lock

// OpenCL counts threads, not groups, along each axis of the grid.
tn_status tni_cl_enqueue(tni_cl_launch *l, const char *what, int axes, const size_t *groups,
                         const size_t *local, tni_text *why)
{
    size_t global[3];
    for (int i = 0; i < axes; i++) global[i] = groups[i] * local[i];
    if (l->code == TNI_CL_SUCCESS && ++started % FLUSH_EVERY == 0) l->cl->api.clFlush(l->cl->queue);
    if (l->code == TNI_CL_SUCCESS)
        l->code = l->cl->api.clEnqueueNDRangeKernel(l->cl->queue, l->kernel, (uint32_t)axes, NULL,
                                                    global, local, 0, NULL, NULL);
    return l->code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, what, l->code);
}
