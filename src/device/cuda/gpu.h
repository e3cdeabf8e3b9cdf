// What the files of the cuda device share: GPUs, sessions, and their errors.
#ifndef TNI_CUDA_GPU_H
#define TNI_CUDA_GPU_H

#include "device/cuda/copies.h"
#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/cuda/replay.h"
#include "device/device.h"
#include "device/simt/groups.h"

// A GPU, with its primary context, which libraries share. Opened at the first use, read-only from
// then on, and kept until the process ends.
typedef struct {
    const tni_driver *cu;
    int               number, device;
    tni_cucontext     cx;
    char              name[64], chip[16];  // "sm_90"
    bool              overlaps;            // kernels may begin before those ahead of them end
    bool              interprets;          // a launch can pass what the interpreter takes
    tni_simt_limits   limits;
    tni_compiled     *compiled;  // kernels, which belong to the context
} tni_gpu;

// Whether the environment lets kernels be interpreted before they are compiled.
bool tni_gpu_interprets_first(void);
// The context of a GPU, once it is open.
tni_cucontext tni_gpu_context(const tni_gpu *g);

// GPU number so and so; NULL, with the reason, if it cannot be used.
const tni_gpu *tni_gpu_get(int number, tni_text *why);
// What there is, in a line; false, with the reason, if no GPU can be used.
bool tni_gpu_probe(tni_text *detail);

// TN_OK, or what an error of the driver means, with a sentence: what could not be done, and why.
tn_status tni_gpu_status(const tni_driver *cu, int error, const char *what, tni_text *why);

enum { TNI_SCRATCHES = 40, TNI_ARENA_PIECES = 64 };

// A reserved range of addresses. Invariant: the first held bytes have memory, in pieces one after the
// other, each a multiple of the grain.
typedef struct {
    tni_cuptr at;       // 0: not reserved
    bool      refused;  // it cannot be
    size_t    reserved, grain, held;
    int       pieces;
    size_t    piece[TNI_ARENA_PIECES];
} tni_arena_range;

typedef struct tni_timing tni_timing;  // timing_events.c

// When something that can be done is done: if it is timed to be faster, or by what a switch says.
typedef enum { TNI_SMALL_IF_FASTER, TNI_SMALL_NEVER, TNI_SMALL_ALWAYS } tni_small_policy;

// A context's session: a GPU and the stream in which all of its work goes in order. The context owns it.
typedef struct tni_cuda {
    tni_heap         *heap;
    const tni_gpu    *gpu;
    tni_custream      stream;
    bool              borrowed;         // the stream is the caller's
    bool              lost;             // the driver said that nothing works any more
    bool              no_graphs;        // no graphs
    bool              tf32;             // products of f32 may round to 10 bits of mantissa
    bool              deterministic;    // nothing is chosen by time
    bool              compiles_first;   // nothing is interpreted: TN_COMPILE=wait, or deterministic
    tni_small_policy  small_policy;     // products by product_small.h
    tni_cufunction    small_kernel[4];  // by how many blocks share a tile; NULL before the first
    bool              small_ready;      // see tni_small_is_ready
    tni_cuptr         workspace;        // of cuBLASLt
    tni_cuptr         state;            // one for each ticket: see simt.h
    volatile int64_t *host_failure;     // on the host: what the first CHECK that failed wrote
    int               scratches;
    tni_cuptr         scratch[TNI_SCRATCHES];  // the last is in use: by kernels one after the other
    size_t            scratch_bytes;
    tni_arena_range   arena;
    tni_uploads       uploads;
    tni_fetches       fetches;
    tni_recorder      recorder;
    tni_timing       *timing;  // of a profile; NULL before the first
} tni_cuda;

// The state that a kernel of a ticket gets.
tni_cuptr tni_cuda_state(const tni_cuda *c, int ticket);
// Waits for a CHECK of ticket 0, whose failure is known by nothing else.
tn_status tni_cuda_take_failure(tni_cuda *c, int64_t fail[2], tni_text *why);
bool      tni_cuda_failed(void *session, int *ticket, int64_t fail[2]);
int       tni_index_check_open(tni_cuda *c);
void      tni_index_check_close(tni_cuda *c);
// Scratch for a kernel, good until the next is launched; 0 when memory is out.
tni_cuptr tni_cuda_scratch(tni_cuda *c, size_t bytes);
void      tni_cuda_scratch_close(tni_cuda *c);

// Makes the GPU of a session current in the calling thread.
void tni_cuda_enter(const tni_cuda *c);
// As tni_gpu_status, for work of a session, which is lost if the error says so.
tn_status tni_cuda_status(tni_cuda *c, int error, const char *what, tni_text *why);

// ---- memory and transfer -----------------------------------------------------------------------

void     *tni_cuda_alloc(void *session, size_t bytes);
void      tni_cuda_free(void *session, void *p);
void     *tni_cuda_arena(void *session, size_t bytes, size_t most, size_t *held);
void      tni_arena_close(tni_cuda *c);
tn_status tni_cuda_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                          tni_text *why);
void     *tni_cuda_pinned_alloc(void *session, size_t bytes);
void      tni_cuda_pinned_free(void *session, void *p);
tn_status tni_cuda_pinned_upload(void *session, void *dst, tn_dtype dt, const void *host,
                                 int64_t count, uint64_t *copy, tni_text *why);
uint64_t  tni_cuda_pinned_done(void *session, uint64_t until);
tn_status tni_cuda_download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                            tni_text *why);
int64_t   tni_cuda_fetch(void *session, tn_dtype dt, const void *src);
bool      tni_cuda_fetched(void *session, int64_t ticket, void *host);
uint64_t  tni_cuda_submitted(void *session);
bool      tni_cuda_completed(void *session, uint64_t work);
void      tni_cuda_upload_after(void *session, uint64_t work);
tn_status tni_cuda_owns(void *session, const void *p, size_t bytes, bool *here, tni_text *why);
void      tni_cuda_wait_unused(void *session);
bool      tni_cuda_space(void *session, size_t *free, size_t *all);
void      tni_uploads_close(tni_cuda *c);

// ---- time --------------------------------------------------------------------------------------

int64_t tni_cuda_event_record(void *session);
double  tni_cuda_event_elapsed(void *session, int64_t from, int64_t to);
void    tni_cuda_hold_queue(void *session, bool on);
void    tni_timing_close(tni_cuda *c);

// ---- kernels -----------------------------------------------------------------------------------

tn_status tni_cuda_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                           bool wait, tni_text *why);
bool      tni_cuda_ready(void *session, int n, const tni_launch *const *first, void *const *entry);
tni_registers tni_cuda_registers(void *session, void *entry, const tni_launch *l);
tn_status     tni_cuda_launch(void *session, void *entry, tni_launch *l, tni_text *why);

// What prepare compiles: the text of kernels, opts being their class, as machine code for a chip; with_usage
// as in cubin.h. It needs no GPU.
tn_status tni_cuda_cubin(int n, const tni_emit_item *item, const char *chip, bool with_usage,
                         tni_cubin *c, tni_text *why);

// What a GPU compiled, and how many kernels all of them did so, or found on disk. NULL when memory is
// out.
tni_compiled *tni_cuda_compiled_new(tni_gpu *g);
tni_compiled *tni_cuda_compiled(void *session);
void          tni_cuda_counts(int64_t *compiled, int64_t *found);
void          tni_cuda_count_kernel(bool found);  // one more

// What tni_groups asks of this device.
tni_buffer_at tni_cuda_buffer_at(void *session, const void *address);
tni_buffer_at tni_cuda_state_at(void *session, int ticket);
tn_status tni_cuda_launch_args(const tni_kernel_args *h, int64_t groups, int items, tni_text *why);

// A call of one op.
extern const tni_device_calls tni_cuda_calls;
tn_status                     tni_cuda_matmul(const tni_call *call);
void                         *tni_cuda_prepare_matmul(const tni_call *call);
const char                   *tni_cuda_matmul_varies(const tni_call *call);
bool                          tni_cuda_takes_epilogue(void *session, const tni_offer *o);
size_t    tni_cuda_scratch_with_epilogue(const tni_call *call, void *entry, const tni_launch *l);
tn_status tni_cuda_run_with_epilogue(const tni_call *call, void *entry, tni_launch *l,
                                     tni_text *why);
tn_status tni_cuda_custom(const tni_call *call);
size_t    tni_cuda_custom_scratch(const tni_call *call);

#endif
