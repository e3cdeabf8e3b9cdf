// What the files of the opencl device share: the device that was chosen, memory by address,
// programs and launches, and the functions that run ops.
//
// All of it is one state of the process: one OpenCL context with one in-order queue, which every
// context of ours uses. tni_cl_lock guards it; functions marked "locked" are called between
// tni_cl_lock and tni_cl_unlock.
#ifndef TNI_DEVICE_OPENCL_OPENCL_H
#define TNI_DEVICE_OPENCL_OPENCL_H

#include "device/device.h"
#include "device/opencl/cl_api.h"

// The device in use, and what its code has to know of it. Filled once, by the first call of
// tni_cl_get, and never closed: drivers do not survive it.
typedef struct {
    tni_cl_api           api;
    tni_cl_device_id     device;
    tni_cl_context       context;
    tni_cl_command_queue queue;
    bool                 there;
    bool                 fp64;
    bool                 is_cpu;
    bool                 exact_divide;  // f32 division and square root can be had correctly rounded
    int64_t              memory, most;  // bytes in all, bytes of one buffer
    int64_t              local;         // bytes of local memory of a work group
    int64_t              group;         // most work items of a group
    int64_t              units;         // compute units
    int                  batch;         // kernels of a program, at most
    int64_t              built, loaded;  // programs from text, from the disk cache; locked
    char                 chip[192];      // name and versions: part of the key of a binary
    tni_text             detail;         // in a line: the device, or why there is none
} tni_cl;

// The device, or NULL if there is none: then the reason is in tni_cl_detail.
tni_cl     *tni_cl_get(void);
const char *tni_cl_detail(void);

void tni_cl_lock(void);
void tni_cl_unlock(void);

// Work that still runs when the process ends would run on in libraries that are being taken down.
// To be called once the driver has loaded all of its own, which it does to compile: what is
// registered last is called first. Locked.
void tni_cl_finish_at_exit(void);

// An error of OpenCL as a status of ours, with a sentence: no memory is TN_EMEM, everything else
// TN_EDEVICE.
tn_status tni_cl_error(tni_text *why, const char *what, int32_t code);
bool      tni_cl_no_memory(int32_t code);

// ---- memory ------------------------------------------------------------------------------------
//
// An address of this device is one of a range that is reserved and never touched; the range stands
// for a buffer. So the engine's arithmetic with addresses holds, and a read of one by mistake is a
// fault at once.

void     *tni_cl_alloc(void *seat, size_t bytes);
void      tni_cl_free(void *seat, void *p);
tn_status tni_cl_upload(void *seat, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why);
tn_status tni_cl_download(void *seat, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why);

// Where an address lies: a buffer, and bytes from its start. mem is NULL if it lies nowhere.
typedef struct {
    tni_cl_mem mem;
    int64_t    offset;
} tni_cl_place;

tni_cl_place tni_cl_find(const void *address);  // locked
// Blocks that are there now and their bytes, for tests.
int64_t tni_cl_blocks(int64_t *bytes);

// ---- programs and launches ---------------------------------------------------------------------

// Builds a program: from the disk cache where it is there, else from source. what names it in the
// reason. NULL with the reason and status if it cannot be built. Locked.
tni_cl_program tni_cl_build(const char *source, const char *what, tn_status *status, tni_text *why);

// A launch being put together: a kernel, its next argument, the first error so far.
typedef struct {
    tni_cl       *cl;
    tni_cl_kernel kernel;
    uint32_t      arg;
    int32_t       code;
} tni_cl_launch;

void tni_cl_pass(tni_cl_launch *l, const void *value, size_t size);  // locked
// The buffer in which an address lies; gives the bytes from its start.
int64_t   tni_cl_pass_buffer(tni_cl_launch *l, const void *address);  // locked
void      tni_cl_pass_long(tni_cl_launch *l, int64_t value);          // locked
tn_status tni_cl_start(tni_cl_launch *l, const char *what, int axes, const size_t *groups,
                       const size_t *local, tni_text *why);  // locked

// ---- kernels written by hand -------------------------------------------------------------------

// The texts, by name; each is compiled for a dtype of elements T and one of results Y.
extern const char *const tni_cl_text_common[],
    *const tni_cl_text_matmul[], *const tni_cl_text_conv[], *const tni_cl_text_fold[],
                                                                *const         tni_cl_text_sort[],
                                                                    *const     tni_cl_text_index[],
                                                                        *const tni_cl_text_bits[];

extern const char *const tni_cl_text_attention[];

// A kernel of one of the texts for elements of dtype x and results of dtype y. Locked.
tn_status tni_cl_kernel_of(const char *const *text, const char *name, tn_dtype x, tn_dtype y,
                           tni_cl_launch *l, tni_text *why);

// Elements as the texts see them: `shape` there.
typedef struct {
    int64_t at;  // of the first element, in elements from the start of the buffer
    int32_t rank, unused;
    int64_t size[TN_MAX_RANK], stride[TN_MAX_RANK];
} tni_cl_shape;

// Axes of one shape over several arguments, outermost first.
typedef struct {
    int     rank;
    int64_t size[TN_MAX_RANK];
    int64_t stride[4][TN_MAX_RANK];  // of argument 0 to 3
} tni_cl_axes;

int64_t tni_cl_count(const tni_cl_axes *a);
// Drops axes of size 1 and joins neighbours that are one run in all n arguments.
void tni_cl_merge(tni_cl_axes *a, int n);
// Sorts axes by falling stride, either way, of one argument. Stable.
void tni_cl_sort_axes(tni_cl_axes *a, int argument);
// Argument i as the texts see it, begun at an address of so many bytes from its buffer's start.
tni_cl_shape tni_cl_shape_of(const tni_cl_axes *a, int i, int64_t offset, tn_dtype dt);
// One item for each of count: groups of 64.
tn_status tni_cl_start_items(tni_cl_launch *l, const char *what, int64_t count, tni_text *why);

tn_status tni_cl_matmul(const tni_call *c);
tn_status tni_cl_conv(const tni_call *c);  // also its gradients
size_t    tni_cl_attention_scratch(const tni_call *c);
tn_status tni_cl_attention(const tni_call *c);  // also its gradient
tn_status tni_cl_scan(const tni_call *c);
tn_status tni_cl_arg_reduce(const tni_call *c);
tn_status tni_cl_fold(const tni_call *c);
size_t    tni_cl_argsort_scratch(const tni_call *c);
tn_status tni_cl_argsort(const tni_call *c);
size_t    tni_cl_scatter_scratch(const tni_call *c);
tn_status tni_cl_scatter(const tni_call *c);
// A cast to f64 on a device that has none.
tn_status tni_cl_to_double(const tni_call *c);

// ---- generated kernels -------------------------------------------------------------------------

tn_status tni_cl_prepare(void *seat, int n, const tni_launch *const *first, void **entry,
                         tni_text *why);
size_t    tni_cl_room(void *seat, void *entry, const tni_launch *l);
tn_status tni_cl_launch_kernel(void *seat, void *entry, tni_launch *l, tni_text *why);

// Maps, reductions, sources and movement, each as a kernel of one op.
bool      tni_cl_is_one_op(int op);
size_t    tni_cl_one_op_scratch(const tni_call *c);
tn_status tni_cl_one_op(const tni_call *c);

#endif
