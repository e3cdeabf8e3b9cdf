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
#include "device/simt/groups.h"

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
    tni_compiled        *compiled;       // kernels
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

void     *tni_cl_alloc(void *session, size_t bytes);
void      tni_cl_free(void *session, void *p);
tn_status tni_cl_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why);
tn_status tni_cl_download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
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

// ---- kernels -----------------------------------------------------------------------------------

// What this device compiled, and how many kernels so, or found on disk. NULL when memory is out.
tni_compiled *tni_cl_compiled_new(tni_cl *cl);
tni_compiled *tni_cl_compiled(void *session);
void          tni_cl_counts(int64_t *compiled, int64_t *found);

tn_status tni_cl_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                         bool wait, tni_text *why);
size_t    tni_cl_scratch(void *session, void *entry, const tni_launch *l);
tn_status tni_cl_launch_kernel(void *session, void *entry, tni_launch *l, tni_text *why);

// What tni_groups asks of this device.
tni_buffer_at tni_cl_buffer_at(void *session, const void *address);
tni_buffer_at tni_cl_state(void *session, int ticket);
tn_status tni_cl_launch_args(const tni_kernel_args *h, int64_t groups, int items, tni_text *why);

// A cast to f64 on a device that has none.
tn_status tni_cl_to_double(const tni_call *c);

#endif
