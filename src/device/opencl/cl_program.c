// Programs: building them from text or from a binary kept on disk, and putting a launch together.
#include "device/opencl/opencl.h"

#include "kernel/disk.h"

#include <stdlib.h>
#include <string.h>

// ---- building ----------------------------------------------------------------------------------

// Contraction is off in the text; division and square root round correctly where they can. -w: a
// driver prints warnings to the standard error of the program.
static const char *options(const tni_cl *cl)
{
    return cl->exact_divide ? "-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt"
                            : "-cl-std=CL1.2 -w";
}

// The first line of the log that speaks of an error.
static void explain(const tni_cl *cl, tni_cl_program p, const char *what, int32_t code,
                    tni_text *why)
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

static tni_disk_key key_of(const tni_cl *cl, const char *source)
{
    return (tni_disk_key){ "cl", source, options(cl), "", cl->chip };
}

// A program of a binary that was kept, or NULL.
static tni_cl_program kept_program(const tni_cl *cl, const char *source)
{
    tni_disk_key   key    = key_of(cl, source);
    size_t         bytes  = 0;
    int32_t        status = 0, code = 0;
    unsigned char *binary = tni_disk_find(&cache.disk, &key, &bytes);
    if (!binary) return NULL;
    tni_cl_program p = cl->api.clCreateProgramWithBinary(
        cl->context, 1, &cl->device, &bytes, (const unsigned char **)&binary, &status, &code);
    free(binary);
    if (!p) return NULL;
    if (status == TNI_CL_SUCCESS &&
        cl->api.clBuildProgram(p, 1, &cl->device, options(cl), NULL, NULL) == TNI_CL_SUCCESS)
        return p;
    cl->api.clReleaseProgram(p);
    return NULL;
}

static void keep_program(const tni_cl *cl, tni_cl_program p, const char *source)
{
    tni_disk_key key   = key_of(cl, source);
    size_t       bytes = 0;
    cl->api.clGetProgramInfo(p, (uint32_t)TNI_CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
    unsigned char *binary = bytes ? malloc(bytes) : NULL;
    if (binary && cl->api.clGetProgramInfo(p, (uint32_t)TNI_CL_PROGRAM_BINARIES, sizeof binary,
                                           &binary, NULL) == TNI_CL_SUCCESS)
        tni_disk_keep(&cache.disk, &key, binary, bytes);
    free(binary);
}

tni_cl_program tni_cl_build(const char *source, const char *what, tn_status *status, tni_text *why)
{
    tni_cl *cl   = tni_cl_get();
    int32_t code = 0;
    if (!cache.opened) tni_disk_open(&cache.disk);
    cache.opened     = true;
    tni_cl_program p = kept_program(cl, source);
    if (p) {
        cl->loaded++;
        tni_cl_finish_at_exit();
        return p;
    }
    p = cl->api.clCreateProgramWithSource(cl->context, 1, &source, NULL, &code);
    if (p) code = cl->api.clBuildProgram(p, 1, &cl->device, options(cl), NULL, NULL);
    if (p && code == TNI_CL_SUCCESS) {
        cl->built++;
        keep_program(cl, p, source);
        tni_cl_finish_at_exit();
        return p;
    }
    *status = tni_cl_error(why, what, code);
    if (p && !tni_cl_no_memory(code)) explain(cl, p, what, code, why);
    if (p) cl->api.clReleaseProgram(p);
    return NULL;
}

// ---- launching ---------------------------------------------------------------------------------

void tni_cl_pass(tni_cl_launch *l, const void *value, size_t size)
{
    int32_t code = l->cl->api.clSetKernelArg(l->kernel, l->arg++, size, value);
    if (l->code == TNI_CL_SUCCESS) l->code = code;
}

void tni_cl_pass_long(tni_cl_launch *l, int64_t value)
{
    tni_cl_pass(l, &value, sizeof value);
}

int64_t tni_cl_pass_buffer(tni_cl_launch *l, const void *address)
{
    tni_cl_place p = tni_cl_find(address);
    tni_cl_pass(l, &p.mem, sizeof p.mem);
    return p.offset;
}

// A driver may keep what is in the queue until it is told to begin.
enum { FLUSH = 16 };
static unsigned started;  // guarded by the lock

tn_status tni_cl_start(tni_cl_launch *l, const char *what, int axes, const size_t *groups,
                       const size_t *local, tni_text *why)
{
    size_t global[3];
    for (int i = 0; i < axes; i++) global[i] = groups[i] * local[i];
    if (l->code == TNI_CL_SUCCESS && ++started % FLUSH == 0) l->cl->api.clFlush(l->cl->queue);
    if (l->code == TNI_CL_SUCCESS)
        l->code = l->cl->api.clEnqueueNDRangeKernel(l->cl->queue, l->kernel, (uint32_t)axes, NULL,
                                                    global, local, 0, NULL, NULL);
    return l->code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, what, l->code);
}
