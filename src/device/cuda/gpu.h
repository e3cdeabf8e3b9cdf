// The cuda device's GPUs and sessions: the header of gpu.c, cuda.c, cuda_*.c, index_check.c and
// timing_events.c.
#ifndef TNI_CUDA_GPU_H
#define TNI_CUDA_GPU_H

#include "device/cuda/copies.h"
#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/cuda/product_rows.h"
#include "device/cuda/replay.h"
#include "device/cuda/solver.h"
#include "device/device.h"
#include "device/simt/groups.h"

// ---- GPUs (gpu.c) ------------------------------------------------------------------------------

// A GPU with its primary context, which other libraries of the process share. Opened by the first
// session, read-only from then on, and kept until the process ends.
typedef struct {
    const tni_driver *cu;  // NULL until it is open
    int               number, device;
    tni_cucontext     cx;
    char              name[64], chip[16];  // "NVIDIA H200", "sm_90"
    bool              overlaps;            // a kernel may begin before the one ahead of it ends
    bool              divides;             // a launch can ask for a share of shared memory
    bool              interprets;          // a launch can pass the interpreter's large argument
    tni_simt_limits   limits;
    tni_compiled     *compiled;  // kernels, which belong to the context
} tni_gpu;

// Whether the chip has tensor cores that take bf16 and TF32, sm_80 and later, and whether they are
// Hopper's.
bool tni_gpu_has_cores(const tni_gpu *g);
bool tni_gpu_has_wgmma(const tni_gpu *g);

// Returns whether the environment lets kernels be interpreted before they are compiled.
bool tni_gpu_interprets_first(void);
// Returns the context of a GPU; waits while another thread opens it.
tni_cucontext tni_gpu_context(const tni_gpu *g);

// Returns a GPU by its number, opened if it was not; NULL, with the reason, if it cannot be used.
const tni_gpu *tni_gpu_get(int number, tni_text *why);
// Describes the machine's GPUs in a line; false, with the reason, if none can be used.
bool tni_gpu_probe(tni_text *detail);
int  tni_gpu_count(void);

// Returns TN_OK, or the status of an error of the driver, and adds a sentence: what failed, and
// why.
tn_status tni_gpu_status(const tni_driver *cu, int error, const char *what, tni_text *why);

// ---- sessions (cuda.c) -------------------------------------------------------------------------

// Each block of scratch is twice as large as the one before, so that 40 of them exceed any GPU's
// memory. An arena that has grown TNI_ARENA_PIECES times is remapped as one piece.
enum { TNI_SCRATCHES = 40, TNI_ARENA_PIECES = 64 };

// A reserved range of addresses. Invariant: the first `held` bytes have memory, in pieces one after
// the other, each a multiple of the granularity.
typedef struct {
    tni_cuptr at;       // 0: not reserved
    bool      refused;  // the GPU or its driver cannot reserve one
    size_t    reserved, granularity, held;
    int       pieces;
    size_t    piece[TNI_ARENA_PIECES];
} tni_arena_range;

typedef struct tni_timing tni_timing;  // timing_events.c

// The collectives of a session. Invariant: done[n % TNI_COLLECT_EVENTS] is behind collective n,
// counted from 0, for the last TNI_COLLECT_EVENTS of them; the session's stream waits for the first
// `arrived`.
enum { TNI_COLLECT_EVENTS = 64 };
typedef struct {
    tni_custream stream;  // NULL before the first
    tni_cuevent  before, done[TNI_COLLECT_EVENTS];
    uint64_t     begun, arrived;
} tni_collects;

// When our own kernel for small products is used: if it is timed to be faster, or as TN_SMALL says.
typedef enum { TNI_SMALL_IF_FASTER, TNI_SMALL_NEVER, TNI_SMALL_ALWAYS } tni_small_policy;

// A context's session: a GPU and the stream in which all of its work is done in order. The context
// owns it and calls it from one thread. Invariant: everything submitted to `stream` outside of a
// run is ordered behind the uploads so far (tni_cuda_await_uploads).
typedef struct tni_cuda {
    tni_heap        *heap;
    const tni_gpu   *gpu;
    tni_custream     stream;  // where work is submitted to
    tni_custream     own;     // that is the session's; NULL: a caller gave one when it was opened
    tni_cuevent      order;   // between streams; NULL before the first use
    bool             capturing;       // a caller captures the stream into a graph of its own
    bool             captured;        // one did, and its graph uses our memory whenever it runs
    bool             lost;            // the driver reported that nothing works any more
    bool             no_graphs;       // TN_REPLAY=0
    bool             tf32;            // products of f32 may round operands to 10 bits of mantissa
    bool             deterministic;   // nothing is chosen by time
    bool             compiles_first;  // nothing is interpreted: TN_COMPILE=wait, or deterministic
    bool             conv_cores;      // not TN_CORES=0: see conv_cores.h
    char             method[24];      // TN_METHOD: the method that is used where it can be
    bool             pruned;         // that is cuSPARSELt, for products alone: see product_pruned.h
    bool             expects;        // see tni_cuda_expect_products
    tni_small_policy small_policy;   // see product_small.h
    tni_cufunction small_kernel[4];  // for 1, 2, 4 and 8 blocks per tile; NULL before the first use
    bool           small_ready;      // see tni_small_is_ready
    tni_cuptr      workspace;        // for cuBLASLt; 0 before the first product
    tni_cuptr      zeros;            // see tni_cuda_zeros; 0 before the first use
    tni_cuptr      state;            // the states of all tickets: see index_check.c
    volatile int64_t *host_failure;  // host memory that the first failing CHECK writes
    int               scratches;
    tni_cuptr scratch[TNI_SCRATCHES];  // the last one is in use, by one kernel after the other
    size_t    scratch_bytes;           // of the last one
    tni_arena_range  arena;
    tni_uploads      uploads;
    tni_fetches      fetches;
    tni_collects     collect;
    tni_recorder     recorder;
    tni_rows_waiting waiting;  // products of one launch, of the run that is recorded
    tni_solver       solver;   // for large matrices
    tni_timing      *timing;   // of a profile; NULL before the first event
} tni_cuda;

// Makes the session's GPU current in the calling thread.
void tni_cuda_enter(const tni_cuda *c);
// Returns whether the stream is not captured by a caller, else says that `what` is impossible then.
bool tni_cuda_may(const tni_cuda *c, const char *what, tni_text *why);
// A caller that captures a graph forbids all threads some calls of the driver, memory and modules
// among them, since they would often be mistakes. Ours are none: relax permits them to this thread,
// restrict takes that back with its result.
int  tni_cuda_relax(const tni_driver *cu);
void tni_cuda_restrict(const tni_driver *cu, int before);
// Like tni_gpu_status, for work of a session, which it marks as lost if the error says so.
tn_status tni_cuda_status(tni_cuda *c, int error, const char *what, tni_text *why);

// ---- indices out of range (index_check.c) ------------------------------------------------------

// Returns the state that kernels of a ticket get as an argument.
tni_cuptr tni_cuda_state(const tni_cuda *c, int ticket);
// Waits, and returns in fail what a CHECK of ticket 0 reported; zeros if none failed.
tn_status tni_cuda_take_failure(tni_cuda *c, int64_t fail[2], tni_text *why);
bool      tni_cuda_failed(void *session, int *ticket, int64_t fail[2]);  // the contract's failed
int       tni_index_check_open(tni_cuda *c);
void      tni_index_check_close(tni_cuda *c);

// ---- memory and transfer (cuda_memory.c, cuda_arena.c, cuda_upload.c, cuda_fetch.c) ------------

// Returns scratch for a kernel, which it may use until the next kernel is launched; 0 when memory
// is out.
tni_cuptr tni_cuda_scratch(tni_cuda *c, size_t bytes);
void      tni_cuda_scratch_close(tni_cuda *c);
// Returns memory that holds zeros, TNI_CUDA_ZEROS bytes; 0 when memory is out.
enum { TNI_CUDA_ZEROS = 256 };
tni_cuptr tni_cuda_zeros(tni_cuda *c);

// The contract's functions of these names: see device.h.
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

// ---- timing events (timing_events.c) -----------------------------------------------------------

int64_t tni_cuda_event_record(void *session);
double  tni_cuda_event_elapsed(void *session, int64_t from, int64_t to);
void    tni_cuda_hold_queue(void *session, bool on);
void    tni_timing_close(tni_cuda *c);

// ---- kernels (cuda_kernel.c) -------------------------------------------------------------------

// The contract's functions of these names.
tn_status tni_cuda_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                           bool wait, tni_text *why);
bool      tni_cuda_ready(void *session, int n, const tni_launch *const *first, void *const *entry);
tni_registers tni_cuda_registers(void *session, void *entry, const tni_launch *l);
char         *tni_cuda_text(void *session, tni_heap *h, const tni_launch *l);
const char   *tni_cuda_chip(const void *session, int threads);
int tni_cuda_neighbours(void *session, const tni_launch *l, const tni_tuning *from, tni_tuning *dst,
                        int room);
void      tni_cuda_expect(void *session, void *entry, const tni_launch *l, bool now);
void      tni_cuda_retuned(void *session, void *entry, const tni_launch *l);
tn_status tni_cuda_launch(void *session, void *entry, tni_launch *l, tni_text *why);

// Compiles kernels as prepare does, without a GPU and without the cache: opts of an item is the
// class of its shape, with_usage as in cubin.h.
tn_status tni_cuda_cubin(int n, const tni_emit_item *item, const char *chip, bool with_usage,
                         tni_cubin *c, tni_text *why);

// The table of a GPU's compiled kernels (NULL when memory is out), and that of a session's GPU.
tni_compiled *tni_cuda_compiled_new(tni_gpu *g);
tni_compiled *tni_cuda_compiled(void *session);
// The kernels that this process compiled and those it found on disk, on all GPUs.
void tni_cuda_counts(int64_t *compiled, int64_t *found);
void tni_cuda_count_kernel(bool found);  // one more

// The functions of tni_groups: see simt/groups.h.
tni_buffer_at tni_cuda_buffer_at(void *session, const void *address);
tni_buffer_at tni_cuda_state_at(void *session, int ticket);
tn_status tni_cuda_launch_args(const tni_kernel_args *h, int64_t groups, int items, tni_text *why);

// Returns an offered call as it is prepared if the offer is taken.
static inline tni_call tni_call_of_offer(void *session, const tni_offer *o)
{
    tni_call call      = *o->call;
    call.session       = session;
    call.epilogue      = &o->epilogue;
    call.launch        = o->launch;
    call.also_read     = !o->only_reader;
    call.prologue      = o->prologue;
    call.prologue_kept = o->prologue_kept;
    return call;
}

// Calls of one op (cuda_run.c, cuda_matmul.c, cuda_custom.c).
extern const tni_device_calls tni_cuda_calls;
tn_status                     tni_cuda_matmul(const tni_call *call);
void                          tni_cuda_expect_products(void *session);
void                         *tni_cuda_prepare_matmul(const tni_call *call);
size_t                        tni_cuda_matmul_scratch(const tni_call *call);
const char                   *tni_cuda_matmul_varies(const tni_call *call);
const char                   *tni_cuda_matmul_method(const tni_call *call);
bool      tni_cuda_matmul_tuned(const tni_call *call, tni_tuned *won, tni_text *with);
bool      tni_cuda_matmul_takes(void *session, const tni_offer *o);
tn_status tni_cuda_matmul_with_epilogue(const tni_call *call, void *entry, tni_launch *l,
                                        tni_text *why);
// A product by the library with the kernel behind it as its epilogue: whether it has that, what is
// prepared for it, and running it, or the two one after the other where addresses or numbers do not
// suit it.
const char *tni_cuda_epilogue_declines(tni_cuda *c, const tni_call *call);
void       *tni_cuda_prepare_epilogue(const tni_call *call);
tn_status   tni_cuda_matmul_by_library(const tni_call *call, void *entry, tni_launch *l,
                                       tni_text *why);
tn_status   tni_cuda_custom(const tni_call *call);
// Collectives (cuda_collective.c), and the contract's collected.
tn_status tni_cuda_collective(const tni_call *call);
tn_status tni_cuda_collected(void *session, size_t in_flight, tni_text *why);
void      tni_cuda_collect_close(tni_cuda *c);
size_t    tni_cuda_custom_scratch(const tni_call *call);

#endif
