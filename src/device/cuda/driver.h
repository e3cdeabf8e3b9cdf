// The CUDA driver and NVRTC as this folder calls them, found at run time. The declarations are our
// own: no header of CUDA is needed to build. driver.def says what the libraries call each function.
#ifndef TNI_CUDA_DRIVER_H
#define TNI_CUDA_DRIVER_H

#include "base/text.h"
#include "device/cuda/cu_types.h"

// The functions of libcuda. All are there but for the last ones, or the library is not used. They
// return 0 or an error. What is an enum in CUDA is unsigned here, which is what C makes of it.
typedef struct {
    unsigned (*init)(unsigned flags);
    unsigned (*driver_version)(int *version);  // 13000: CUDA 13.0
    unsigned (*error_string)(unsigned error, const char **text);
    unsigned (*error_name)(unsigned error, const char **name);
    unsigned (*device_count)(int *count);
    unsigned (*device_get)(int *device, int ordinal);
    unsigned (*device_name)(char *name, int room, int device);
    unsigned (*device_bus)(char *id, int room, int device);
    unsigned (*device_memory)(size_t *bytes, int device);
    unsigned (*device_attribute)(int *value, unsigned attribute, int device);

    unsigned (*primary_retain)(tni_cucontext *cx, int device);
    unsigned (*primary_release)(int device);
    unsigned (*set_current)(tni_cucontext cx);
    unsigned (*get_current)(tni_cucontext *cx);
    unsigned (*push_current)(tni_cucontext cx);
    unsigned (*pop_current)(tni_cucontext *cx);
    unsigned (*context_wait)(void);
    unsigned (*priorities)(int *least, int *greatest);  // the greatest is the smaller number

    unsigned (*mem_alloc)(tni_cuptr *p, size_t bytes);
    unsigned (*mem_free)(tni_cuptr p);
    unsigned (*mem_info)(size_t *free, size_t *total);
    unsigned (*host_alloc)(void **p, size_t bytes, unsigned flags);
    unsigned (*host_free)(void *p);
    unsigned (*host_address)(tni_cuptr *p, void *host, unsigned flags);
    unsigned (*pointer_attribute)(void *value, unsigned attribute, tni_cuptr p);

    // Ranges of addresses without memory, and memory without addresses. Sizes and offsets are
    // multiples of the granularity; flags are 0.
    unsigned (*range_reserve)(tni_cuptr *p, size_t bytes, size_t align, tni_cuptr wish,
                              unsigned long long flags);
    unsigned (*range_free)(tni_cuptr p, size_t bytes);
    unsigned (*range_map)(tni_cuptr p, size_t bytes, size_t offset, tni_cumemory m,
                          unsigned long long flags);
    unsigned (*range_unmap)(tni_cuptr p, size_t bytes);
    unsigned (*range_access)(tni_cuptr p, size_t bytes, const tni_cuaccess *access, size_t count);
    unsigned (*memory_create)(tni_cumemory *m, size_t bytes, const tni_cuallocation *what,
                              unsigned long long flags);
    unsigned (*memory_release)(tni_cumemory m);
    unsigned (*memory_granularity)(size_t *bytes, const tni_cuallocation *what, unsigned which);

    unsigned (*copy_in)(tni_cuptr dst, const void *src, size_t bytes, tni_custream s);
    unsigned (*copy_out)(void *dst, tni_cuptr src, size_t bytes, tni_custream s);
    unsigned (*copy)(tni_cuptr dst, tni_cuptr src, size_t bytes, tni_custream s);
    unsigned (*set8)(tni_cuptr dst, unsigned char value, size_t count, tni_custream s);
    unsigned (*set16)(tni_cuptr dst, unsigned short value, size_t count, tni_custream s);
    unsigned (*set32)(tni_cuptr dst, unsigned value, size_t count, tni_custream s);

    unsigned (*stream_create)(tni_custream *s, unsigned flags);
    unsigned (*stream_create_at)(tni_custream *s, unsigned flags, int priority);
    unsigned (*stream_destroy)(tni_custream s);
    unsigned (*stream_context)(tni_custream s, tni_cucontext *cx);
    unsigned (*stream_wait)(tni_custream s);   // the host waits
    unsigned (*stream_query)(tni_custream s);  // TNI_CU_NOT_READY while there is work
    unsigned (*stream_after)(tni_custream s, tni_cuevent e, unsigned flags);  // the stream waits
    unsigned (*stream_host)(tni_custream s, void (*f)(void *arg), void *arg);

    unsigned (*event_create)(tni_cuevent *e, unsigned flags);
    unsigned (*event_record)(tni_cuevent e, tni_custream s);
    unsigned (*event_wait)(tni_cuevent e);
    unsigned (*event_query)(tni_cuevent e);
    unsigned (*event_destroy)(tni_cuevent e);
    unsigned (*elapsed)(float *milliseconds, tni_cuevent from, tni_cuevent to);

    unsigned (*module_load)(tni_cumodule *m, const void *image);
    unsigned (*module_load_with)(tni_cumodule *m, const void *image, unsigned options,
                                 unsigned *option, void **value);
    unsigned (*module_unload)(tni_cumodule m);
    unsigned (*module_function)(tni_cufunction *f, tni_cumodule m, const char *name);
    unsigned (*module_global)(tni_cuptr *p, size_t *bytes, tni_cumodule m, const char *name);
    unsigned (*function_get)(int *value, unsigned attribute, tni_cufunction f);
    unsigned (*function_set)(tni_cufunction f, unsigned attribute, int value);
    unsigned (*occupancy)(int *blocks, tni_cufunction f, int threads, size_t shared);
    unsigned (*occupancy_clusters)(int *clusters, tni_cufunction f, const tni_culaunch *l);
    unsigned (*launch)(tni_cufunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, tni_custream s, void **args,
                       void **extra);
    unsigned (*launch_with)(const tni_culaunch *l, tni_cufunction f, void **args, void **extra);

    unsigned (*capture_begin)(tni_custream s, unsigned mode);
    unsigned (*capture_end)(tni_custream s, tni_cugraph *g);
    unsigned (*capture_state)(tni_custream s, unsigned *state);
    unsigned (*capture_mode)(unsigned *mode);  // of the calling thread, exchanged
    unsigned (*graph_nodes)(tni_cugraph g, tni_cunode *node, size_t *nodes);
    unsigned (*graph_destroy)(tni_cugraph g);
    unsigned (*node_type)(tni_cunode n, unsigned *type);
    unsigned (*node_get)(tni_cunode n, tni_cunode_params *p);
    unsigned (*exec_create)(tni_cuexec *x, tni_cugraph g, unsigned long long flags);
    unsigned (*exec_set)(tni_cuexec x, tni_cunode n, const tni_cunode_params *p);
    unsigned (*exec_update)(tni_cuexec x, tni_cugraph g, tni_cuupdate *result);
    unsigned (*exec_upload)(tni_cuexec x, tni_custream s);
    unsigned (*exec_launch)(tni_cuexec x, tni_custream s);
    unsigned (*exec_destroy)(tni_cuexec x);

    // NULL where the driver has none.
    unsigned (*capture_info_v2)(tni_custream s, unsigned *state, uint64_t *id, tni_cugraph *g,
                                const tni_cunode **last, size_t *lasts);
    unsigned (*capture_info_v3)(tni_custream s, unsigned *state, uint64_t *id, tni_cugraph *g,
                                const tni_cunode **last, const tni_cuedge **edge, size_t *lasts);
} tni_driver;

// The functions of libnvrtc, likewise.
typedef struct {
    unsigned (*version)(int *major, int *minor);
    const char *(*error_string)(unsigned error);
    unsigned (*create)(tni_nvprogram *p, const char *text, const char *name, int headers,
                       const char *const *header, const char *const *header_name);
    unsigned (*destroy)(tni_nvprogram *p);
    unsigned (*compile)(tni_nvprogram p, int options, const char *const *option);
    unsigned (*log_size)(tni_nvprogram p, size_t *bytes);
    unsigned (*log)(tni_nvprogram p, char *log);
    unsigned (*cubin_size)(tni_nvprogram p, size_t *bytes);
    unsigned (*cubin)(tni_nvprogram p, char *cubin);
} tni_nvrtc;

// The library, loaded once and kept until the process ends; NULL, with the reason, if it is not
// here or too old. Finding the driver does not mean that there is a GPU.
const tni_driver *tni_driver_get(tni_text *why);
const tni_nvrtc  *tni_nvrtc_get(tni_text *why);

// The files that they are; empty if there is none.
tni_text tni_driver_path(void);
tni_text tni_nvrtc_path(void);

// Starts the driver and counts its GPUs; false, with the reason, if it has none for us.
bool tni_driver_start(const tni_driver *cu, int *count, tni_text *why);

// The capture that a stream is part of: its state, and the graph so far, NULL unless it is active.
unsigned tni_capture_info(const tni_driver *cu, tni_custream s, unsigned *state, tni_cugraph *g);

// Opens another library of CUDA ("libcublasLt"), of the version that fits the driver, if there is a
// choice; NULL if there is none. See find.h for where it is looked for and what *where is.
void *tni_cuda_library(const char *name, tni_text *where);

// The table of an open library: what tni_driver_get does to the one that it found. False, with a
// sentence, if it is too old.
bool tni_driver_fill(void *library, tni_driver *cu, tni_text *why);

#endif
