// The CUDA driver and NVRTC as this folder calls them, found at run time. The declarations are our
// own: no header of CUDA is needed to build.
#ifndef TNI_CUDA_DRIVER_H
#define TNI_CUDA_DRIVER_H

#include "base/text.h"

typedef uint64_t                  tni_cuptr;  // an address on the device
typedef struct tni_cuda_context  *tni_cucontext;
typedef struct tni_cuda_stream   *tni_custream;
typedef struct tni_cuda_event    *tni_cuevent;
typedef struct tni_cuda_module   *tni_cumodule;
typedef struct tni_cuda_function *tni_cufunction;
typedef struct tni_nvrtc_program *tni_nvprogram;

// The numbers of CUDA's interface that we use.
enum {
    TNI_CU_OK                 = 0,
    TNI_CU_SHARED_PER_BLOCK   = 97,  // device attributes; this one can be asked for by a function
    TNI_CU_MULTIPROCESSORS    = 16,
    TNI_CU_L2                 = 38,
    TNI_CU_MAJOR              = 75,
    TNI_CU_MINOR              = 76,
    TNI_CU_FUNCTION_SHARED    = 8,  // function attribute: most dynamic shared memory
    TNI_CU_STREAM_NONBLOCKING = 1,
    TNI_CU_HOST_PORTABLE      = 1,
    TNI_CU_HOST_MAPPED        = 2
};

// The functions of libcuda. All are there, or the library is not used. They return 0 or an error.
typedef struct {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);  // 13000: CUDA 13.0
    int (*error_string)(int error, const char **text);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int room, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*primary_retain)(tni_cucontext *cx, int device);
    int (*set_current)(tni_cucontext cx);
    int (*mem_alloc)(tni_cuptr *p, size_t bytes);
    int (*mem_free)(tni_cuptr p);
    int (*host_alloc)(void **p, size_t bytes, unsigned flags);
    int (*host_address)(tni_cuptr *p, void *host, unsigned flags);
    int (*copy_in)(tni_cuptr dst, const void *src, size_t bytes, tni_custream s);
    int (*copy_out)(void *dst, tni_cuptr src, size_t bytes, tni_custream s);
    int (*copy)(tni_cuptr dst, tni_cuptr src, size_t bytes, tni_custream s);
    int (*set8)(tni_cuptr dst, unsigned char value, size_t count, tni_custream s);
    int (*set16)(tni_cuptr dst, unsigned short value, size_t count, tni_custream s);
    int (*set32)(tni_cuptr dst, unsigned value, size_t count, tni_custream s);
    int (*stream_create)(tni_custream *s, unsigned flags);
    int (*stream_wait)(tni_custream s);
    int (*event_create)(tni_cuevent *e, unsigned flags);
    int (*event_record)(tni_cuevent e, tni_custream s);
    int (*event_wait)(tni_cuevent e);
    int (*event_destroy)(tni_cuevent e);
    int (*elapsed)(float *milliseconds, tni_cuevent from, tni_cuevent to);
    int (*module_load)(tni_cumodule *m, const void *image);
    int (*module_function)(tni_cufunction *f, tni_cumodule m, const char *name);
    int (*function_set)(tni_cufunction f, int attribute, int value);
    int (*launch)(tni_cufunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, tni_custream s, void **args, void **extra);
} tni_driver;

// The functions of libnvrtc, likewise.
typedef struct {
    int (*version)(int *major, int *minor);
    const char *(*error_string)(int error);
    int (*create)(tni_nvprogram *p, const char *text, const char *name, int headers,
                  const char *const *header, const char *const *header_name);
    int (*destroy)(tni_nvprogram *p);
    int (*compile)(tni_nvprogram p, int options, const char *const *option);
    int (*log_size)(tni_nvprogram p, size_t *bytes);
    int (*log)(tni_nvprogram p, char *log);
    int (*cubin_size)(tni_nvprogram p, size_t *bytes);
    int (*cubin)(tni_nvprogram p, char *cubin);
} tni_nvrtc;

// The library, loaded once and kept until the process ends; NULL, with the reason, if it is not
// here. Finding the driver does not mean that there is a GPU.
const tni_driver *tni_driver_get(tni_text *why);
const tni_nvrtc  *tni_nvrtc_get(tni_text *why);

#endif
