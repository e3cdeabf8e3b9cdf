// Programs: building them from text or from a binary kept on disk; kernels of texts written by
// hand; and putting a launch together.
#include "device/opencl/opencl.h"

#include "kernel/disk.h"
#include "kernel/prelude_text.h"
#include "tensor/dtype.h"

#include <stdio.h>
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

// ---- kernels of texts written by hand ----------------------------------------------------------

// A kernel of one text for one pair of dtypes, and its program, which other kernels of the text
// share. Kept until the process ends.
typedef struct kept kept;
struct kept {
    const char *const *text;
    const char        *name;
    tn_dtype           x, y;
    tni_cl_program     program;
    tni_cl_kernel      kernel;
    kept              *next;
};

static kept *all;  // guarded by the lock

static const char *const element_name[TNI_DTYPES] = { "BOOL", "U8",   "I8",  "I32", "I64",
                                                      "F16",  "BF16", "F32", "F64" };

// Of the prelude the texts use the conversions of 16-bit floats alone.
static bool is_used(const char *piece)
{
    static const char *const names[] = { " m_half_to_float(", " m_float_to_half(",
                                         " m_bf16_to_float(", " m_float_to_bf16(" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(piece, names[i])) return true;
    return false;
}

static bool is_left_out(const tni_cl *cl, int part, const char *piece)
{
    return (part < 2 && !cl->fp64 && strstr(piece, "double")) || (part == 1 && !is_used(piece));
}

// What the text is compiled for, the prelude, what the texts share, the text.
static char *source_of(const tni_cl *cl, const char *const *text, tn_dtype x, tn_dtype y)
{
    const char *const *parts[] = { tni_prelude_opencl, tni_prelude_text, tni_cl_text_common, text };
    size_t             room    = 256, n;
    for (int i = 0; i < 4; i++)
        for (const char *const *p = parts[i]; *p; p++) room += strlen(*p);
    char *s = malloc(room);
    if (!s) return NULL;
    n = (size_t)snprintf(s, room, "%s#define XT %s\n#define YT %s\n",
                         cl->fp64 ? "#define FP64\n" : "", element_name[x], element_name[y]);
    for (int i = 0; i < 4; i++)
        for (const char *const *p = parts[i]; *p; p++) {
            if (is_left_out(cl, i, *p)) continue;
            size_t len = strlen(*p);
            memcpy(s + n, *p, len + 1);
            n += len;
        }
    return s;
}

static tni_cl_program program_of(const tni_cl *cl, const char *const *text, const char *name,
                                 tn_dtype x, tn_dtype y, tn_status *status, tni_text *why)
{
    for (const kept *k = all; k; k = k->next)
        if (k->text == text && k->x == x && k->y == y) return k->program;
    *status      = TN_EMEM;
    char *source = source_of(cl, text, x, y);
    if (!source) {
        tni_text_add(why, "%s: out of memory", name);
        return NULL;
    }
    tni_cl_program p = tni_cl_build(source, name, status, why);
    free(source);
    return p;
}

static tn_status make_kernel(tni_cl *cl, const char *const *text, const char *name, tn_dtype x,
                             tn_dtype y, kept **made, tni_text *why)
{
    tn_status      status = TN_OK;
    int32_t        code   = (int32_t)TNI_CL_OUT_OF_HOST_MEMORY;
    tni_cl_program p      = program_of(cl, text, name, x, y, &status, why);
    if (!p) return status;
    kept *k = malloc(sizeof *k);
    if (k) {
        *k = (kept){ text, name, x, y, p, cl->api.clCreateKernel(p, name, &code), all };
        if (k->kernel) {
            *made = all = k;
            return TN_OK;
        }
    }
    free(k);
    return tni_cl_error(why, name, code);
}

tn_status tni_cl_kernel_of(const char *const *text, const char *name, tn_dtype x, tn_dtype y,
                           tni_cl_launch *l, tni_text *why)
{
    tni_cl *cl = tni_cl_get();
    kept   *k  = all;
    while (k && (k->text != text || k->x != x || k->y != y || strcmp(k->name, name))) k = k->next;
    if (!cl->fp64 && (x == TN_F64 || y == TN_F64)) {
        tni_text_add(why, "%s: the opencl device has no f64", name);
        return TN_EDEVICE;
    }
    tn_status status = k ? TN_OK : make_kernel(cl, text, name, x, y, &k, why);
    if (status == TN_OK) *l = (tni_cl_launch){ .cl = cl, .kernel = k->kernel };
    return status;
}
