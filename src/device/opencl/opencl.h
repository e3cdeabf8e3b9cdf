// What the files of the opencl device share: the device in use, memory by address, programs and
// launches, and the functions that run ops.
//
// All of it is state of the process: one OpenCL context with one in-order queue, which every tn_ctx
// uses. tni_cl_lock guards it; functions marked "locked" are called between tni_cl_lock and
// tni_cl_unlock.
#ifndef TNI_DEVICE_OPENCL_OPENCL_H
#define TNI_DEVICE_OPENCL_OPENCL_H

#include "device/device.h"
#include "device/opencl/cl_api.h"
#include "device/simt/groups.h"

// The device in use and its properties. Filled once, by the first call of tni_cl_get, and never
// closed: drivers do not survive being unloaded.
// Invariant: after that call only built and loaded change, under the lock (and keeps, by a test).
typedef struct {
    tni_cl_api           api;
    tni_cl_device_id     device;
    tni_cl_context       context;
    tni_cl_command_queue queue;
    bool                 available;  // a device was found and opened
    bool                 fp64;
    bool                 is_cpu;
    bool                 exact_divide;  // f32 division and square root can be correctly rounded
    bool                 keeps;         // binaries of programs, in the disk cache
    int64_t              memory, max_buffer;  // bytes in all, most bytes of one buffer
    int64_t              local;               // most bytes of local memory of a work group
    int64_t              group;               // most work items of a group
    int64_t              units;               // compute units
    int                  batch;               // most kernels compiled as one program
    int64_t       built, loaded;  // programs built from text, and from the disk cache; locked
    tni_compiled *compiled;       // the table of compiled kernels
    char          chip[328];      // name and versions: part of the cache key of a binary
    tni_text      detail;         // one line: the device, or the reason why there is none
} tni_cl;

// Returns the device, opened by the first call; NULL if there is none, and tni_cl_detail has the
// reason.
tni_cl     *tni_cl_get(void);
const char *tni_cl_detail(void);
// Whether this process is the child of one that had opened the device, whose threads it does not
// have.
bool tni_cl_forked(void);

void tni_cl_lock(void);
void tni_cl_unlock(void);

// Registers a function that waits for the queue at exit: work still running then would run on in
// libraries that are being unloaded. Called once the driver has loaded all of its own libraries,
// which it does to compile: what is registered last runs first. Locked.
void tni_cl_finish_at_exit(void);

// Returns an OpenCL error as a status, with a sentence in why: out of memory is TN_EMEM, everything
// else TN_EDEVICE.
tn_status tni_cl_error(tni_text *why, const char *what, int32_t code);
bool      tni_cl_no_memory(int32_t code);

// ---- memory ------------------------------------------------------------------------------------
//
// An address of this device is in a range that is reserved and never mapped; the range stands for a
// buffer object. So the engine's arithmetic with addresses works, and a host read of one by mistake
// faults at once.

void     *tni_cl_alloc(void *session, size_t bytes);
void      tni_cl_free(void *session, void *p);
tn_status tni_cl_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why);
tn_status tni_cl_download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why);

// The buffer that an address is in, and the bytes from its start. mem is NULL if it is in none.
typedef struct {
    tni_cl_mem mem;
    int64_t    offset;
} tni_cl_buffer;

tni_cl_buffer tni_cl_find_buffer(const void *address);  // locked
// Returns the number of allocated blocks, and their bytes, for tests.
int64_t tni_cl_blocks(int64_t *bytes);

// ---- programs and launches ---------------------------------------------------------------------

// Builds a program: from the disk cache if that has it, else from source. `what` names it in the
// reason. Returns NULL, with reason and status, if it cannot be built. Locked.
tni_cl_program tni_cl_build(const char *source, const char *what, tn_status *status, tni_text *why);

// A launch being assembled: a kernel, the number of its next argument, and the first error so far.
// Invariant: after an error nothing more is set, and tni_cl_enqueue reports it.
typedef struct {
    tni_cl       *cl;
    tni_cl_kernel kernel;
    uint32_t      arg;
    int32_t       code;
} tni_cl_launch;

void tni_cl_set_arg(tni_cl_launch *l, const void *value, size_t size);  // locked
// Sets the buffer that an address is in; returns the bytes from its start.
int64_t   tni_cl_set_buffer(tni_cl_launch *l, const void *address);  // locked
void      tni_cl_set_long(tni_cl_launch *l, int64_t value);          // locked
tn_status tni_cl_enqueue(tni_cl_launch *l, const char *what, int axes, const size_t *groups,
                         const size_t *local, tni_text *why);  // locked

// ---- kernels -----------------------------------------------------------------------------------

// The table of compiled kernels: a new one (NULL when out of memory), that of the device, and how
// many kernels were compiled or found on disk.
tni_compiled *tni_cl_compiled_new(tni_cl *cl);
tni_compiled *tni_cl_compiled(void *session);
void          tni_cl_counts(int64_t *compiled, int64_t *found);

tn_status tni_cl_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                         bool wait, tni_text *why);
size_t    tni_cl_scratch(void *session, void *entry, const tni_launch *l);
tn_status tni_cl_launch_kernel(void *session, void *entry, tni_launch *l, tni_text *why);

// The functions of tni_groups for this device.
tni_buffer_at tni_cl_buffer_at(void *session, const void *address);
tni_buffer_at tni_cl_state(void *session, int ticket);
tn_status tni_cl_launch_args(const tni_kernel_args *h, int64_t groups, int items, tni_text *why);

// Runs a cast to f64 on a device without f64.
tn_status tni_cl_to_double(const tni_call *c);

#endif
