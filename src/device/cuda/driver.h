// The CUDA driver and NVRTC as this folder calls them, found at run time, with declarations of our
// own: no header of CUDA is needed to build. driver.def has the libraries' name of each function.
#ifndef TNI_CUDA_DRIVER_H
#define TNI_CUDA_DRIVER_H

#include "base/text.h"
#include "device/cuda/cu_types.h"

// The functions of libcuda. The library is used only if it has all of them except the last ones,
// which are optional. They return 0 or an error. What is an enum in CUDA is an int here.
typedef struct {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);  // 13000: CUDA 13.0
    int (*error_string)(int error, const char **text);
    int (*error_name)(int error, const char **name);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int room, int device);
    int (*device_bus)(char *id, int room, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*device_attribute)(int *value, int attribute, int device);

    int (*primary_retain)(tni_cucontext *cx, int device);
    int (*primary_release)(int device);
    int (*set_current)(tni_cucontext cx);
    int (*get_current)(tni_cucontext *cx);
    int (*push_current)(tni_cucontext cx);
    int (*pop_current)(tni_cucontext *cx);
    int (*context_wait)(void);
    int (*priorities)(int *least, int *greatest);  // the greatest is the smaller number

    int (*mem_alloc)(tni_cuptr *p, size_t bytes);
    int (*mem_free)(tni_cuptr p);
    int (*mem_info)(size_t *free, size_t *total);
    int (*host_alloc)(void **p, size_t bytes, unsigned flags);
    int (*host_free)(void *p);
    int (*host_address)(tni_cuptr *p, void *host, unsigned flags);
    int (*pointer_attributes)(unsigned n, int *attribute, void **value, tni_cuptr p);

    // Ranges of addresses without memory, and memory without addresses. Sizes and offsets are
    // multiples of the granularity; flags are 0.
    int (*range_reserve)(tni_cuptr *p, size_t bytes, size_t align, tni_cuptr args,
                         unsigned long long flags);
    int (*range_free)(tni_cuptr p, size_t bytes);
    int (*range_map)(tni_cuptr p, size_t bytes, size_t offset, tni_cumemory m,
                     unsigned long long flags);
    int (*range_unmap)(tni_cuptr p, size_t bytes);
    int (*range_access)(tni_cuptr p, size_t bytes, const tni_cuaccess *access, size_t count);
    int (*memory_create)(tni_cumemory *m, size_t bytes, const tni_cuallocation *what,
                         unsigned long long flags);
    int (*memory_release)(tni_cumemory m);
    int (*memory_granularity)(size_t *bytes, const tni_cuallocation *what, int which);

    int (*copy_in)(tni_cuptr dst, const void *src, size_t bytes, tni_custream s);
    int (*copy_out)(void *dst, tni_cuptr src, size_t bytes, tni_custream s);
    int (*copy)(tni_cuptr dst, tni_cuptr src, size_t bytes, tni_custream s);
    int (*set8)(tni_cuptr dst, unsigned char value, size_t count, tni_custream s);
    int (*set16)(tni_cuptr dst, unsigned short value, size_t count, tni_custream s);
    int (*set32)(tni_cuptr dst, unsigned value, size_t count, tni_custream s);

    int (*stream_create)(tni_custream *s, unsigned flags);
    int (*stream_create_at)(tni_custream *s, unsigned flags, int priority);
    int (*stream_destroy)(tni_custream s);
    int (*stream_context)(tni_custream s, tni_cucontext *cx);
    int (*stream_wait)(tni_custream s);   // the host waits
    int (*stream_query)(tni_custream s);  // TNI_CU_NOT_READY while there is work
    int (*stream_after)(tni_custream s, tni_cuevent e, unsigned flags);  // the stream waits
    int (*stream_host)(tni_custream s, void (*f)(void *arg), void *arg);

    int (*event_create)(tni_cuevent *e, unsigned flags);
    int (*event_record)(tni_cuevent e, tni_custream s);
    int (*event_wait)(tni_cuevent e);
    int (*event_query)(tni_cuevent e);
    int (*event_destroy)(tni_cuevent e);
    int (*elapsed)(float *milliseconds, tni_cuevent from, tni_cuevent to);

    int (*module_load)(tni_cumodule *m, const void *image);
    int (*module_load_with)(tni_cumodule *m, const void *image, unsigned options, int *option,
                            void **value);
    int (*module_unload)(tni_cumodule m);
    int (*module_function)(tni_cufunction *f, tni_cumodule m, const char *name);
    int (*module_global)(tni_cuptr *p, size_t *bytes, tni_cumodule m, const char *name);
    int (*function_get)(int *value, int attribute, tni_cufunction f);
    int (*function_set)(tni_cufunction f, int attribute, int value);
    int (*occupancy)(int *blocks, tni_cufunction f, int threads, size_t shared);
    int (*occupancy_clusters)(int *clusters, tni_cufunction f, const tni_culaunch *l);
    int (*launch)(tni_cufunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, tni_custream s, void **args, void **extra);
    int (*launch_with)(const tni_culaunch *l, tni_cufunction f, void **args, void **extra);

    int (*capture_begin)(tni_custream s, int mode);
    int (*capture_end)(tni_custream s, tni_cugraph *g);
    int (*capture_state)(tni_custream s, int *state);
    int (*capture_mode)(int *mode);  // of the calling thread, exchanged
    int (*graph_nodes)(tni_cugraph g, tni_cunode *node, size_t *nodes);
    int (*graph_destroy)(tni_cugraph g);
    int (*node_type)(tni_cunode n, int *type);
    int (*node_get)(tni_cunode n, tni_cunode_params *p);
    int (*exec_create)(tni_cuexec *x, tni_cugraph g, unsigned long long flags);
    int (*exec_set)(tni_cuexec x, tni_cunode n, const tni_cunode_params *p);
    int (*exec_update)(tni_cuexec x, tni_cugraph g, tni_cuupdate *result);
    int (*exec_upload)(tni_cuexec x, tni_custream s);
    int (*exec_launch)(tni_cuexec x, tni_custream s);
    int (*exec_destroy)(tni_cuexec x);

    // NULL where the driver has none. tensor_map describes a tensor to TMA: bytes are the strides
    // of axes 1 and up, box what is copied at once, and every how many elements of an axis are
    // taken.
    int (*tensor_map)(tni_cutensor_map *m, int type, uint32_t rank, void *at, const uint64_t *size,
                      const uint64_t *bytes, const uint32_t *box, const uint32_t *every,
                      int interleave, int swizzle, int promote, int fill);
    int (*capture_info_v2)(tni_custream s, int *state, uint64_t *id, tni_cugraph *g,
                           const tni_cunode **last, size_t *lasts);
    int (*capture_info_v3)(tni_custream s, int *state, uint64_t *id, tni_cugraph *g,
                           const tni_cunode **last, const tni_cuedge **edge, size_t *lasts);
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
    // Maybe: has a function asked now and then whether to give up (1) or to go on.
    int (*flow_callback)(tni_nvprogram p, int (*function)(void *payload, void *unused),
                         void         *payload);
} tni_nvrtc;

// Returns the library, loaded once and kept until the process ends; NULL, with the reason, if it is
// not installed or too old. Finding the driver does not mean that there is a GPU.
const tni_driver *tni_driver_get(tni_text *why);
const tni_nvrtc  *tni_nvrtc_get(tni_text *why);

// Return the files they were loaded from; empty if they were not found.
tni_text tni_driver_path(void);
tni_text tni_nvrtc_path(void);

// Starts the driver and counts its GPUs; false, with the reason, if there is none that can be used.
bool tni_driver_start(const tni_driver *cu, int *count, tni_text *why);

// Returns whether nothing works any more in the process after an error: the context is lost.
bool tni_driver_lost(int error);

// Returns the node that a capture of the stream made last; NULL if there is none or more than one.
int tni_capture_last(const tni_driver *cu, tni_custream s, tni_cunode *node);

// Opens another library of CUDA ("libcublasLt"), preferably of the version that fits the driver;
// NULL if there is none. find_libraries.h says where it looks and what *where is.
void *tni_cuda_library(const char *name, tni_text *where);

// Fills the table from an open library, as tni_driver_get does with the one it found. False, with a
// sentence, if it is too old.
bool tni_driver_fill(void *library, tni_driver *cu, tni_text *why);

#endif
