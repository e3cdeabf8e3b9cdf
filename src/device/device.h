// The contract between the engine and a device: seven groups of functions, five of them optional.
// docs/adding-a-device.md explains them one by one.
#ifndef TNI_DEVICE_DEVICE_H
#define TNI_DEVICE_DEVICE_H

#include "base/heap.h"
#include "kernel/call.h"
#include "kernel/tuning.h"

// Tickets number the launches whose errors arrive later; TNI_TIMING_EVENTS is how many timing
// events a session remembers, enough for a profile to read them in batches.
enum { TNI_TICKETS = 255, TNI_TIMING_EVENTS = 1024 };

// What one thread of a compiled kernel uses: registers, and bytes of local memory for spilled ones.
typedef struct {
    int used, spilled;
} tni_registers;

// Options for opening the device.
typedef struct {
    int   number;  // the device's index: 1 for "cuda:1"
    void *stream;  // the caller's stream for all work; NULL: the session creates its own
} tni_device_open_args;

// Device memory, and copies between it and the host.
typedef struct {
    bool host;  // device memory is host memory, with each element in its own dtype
    void *(*alloc)(void *session, size_t bytes);  // aligned to 64
    void (*free)(void *session, void *p);
    size_t (*element_size)(tn_dtype dt);
    // Copy count elements. The caller may change host as soon as upload returns; download returns
    // when host holds the elements.
    tn_status (*upload)(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why);
    tn_status (*download)(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why);
    // Memory that keeps its address for as long as the session is open; see tni_memory. NULL: the
    // device has no arena.
    void *(*arena)(void *session, size_t bytes, size_t most, size_t *held);
    // Free and total bytes, for messages. NULL: the device cannot tell.
    bool (*space)(void *session, size_t *free, size_t *all);
} tni_device_memory;

// How a device runs one op.
//
//   run_nofail  runs a call that cannot fail; a device gives either this or run
//   run         runs a call that can fail
//   scratch     returns the bytes of scratch memory for a call; NULL: none
//   prepare     decides once for each call of a plan, before addresses are known, which library and
//               algorithm serve it. Returns an entry that each run of the call receives. An entry of NULL
//               (the device is out of memory, say) means that each run decides anew.
//   forget      frees an entry
//   varies      returns why the bits of a result may differ from run to run, or NULL if they do not; NULL:
//               they never do
//   declines    asked when a LIBRARY op is recorded, with a call without addresses: returns why the device
//               does not run it, in words for tn_explain that live forever, or NULL if it does. The op is
//               then recorded as other ops. NULL: it runs all
//   method      returns what computes a call, for tn_explain, in words that live as long as the process; NULL:
//               there is nothing to tell
//   others      returns what a call without addresses could do otherwise than by the rule, bits of tni_otherwise,
//               which tni_call.otherwise asks for; NULL: there never is anything
//   tuned       what measuring found for a call, whose runs search if they are asked to (tni_call.search), with words for people;
//               false if it was not measured. Asked of planned calls, without addresses. NULL: runs never search
//   strided     its results may have any strides that do not overlap; else they are row-major
//
// Only addresses, and attributes that are no part of a plan's key (RUN in attr.def), differ between
// runs.
typedef struct {
    void (*run_nofail)(const tni_call *call);
    tn_status (*run)(const tni_call *call);
    size_t (*scratch)(const tni_call *call);
    void *(*prepare)(const tni_call *call);
    void (*forget)(void *entry);
    const char *(*varies)(const tni_call *call);
    const char *(*declines)(const tni_call *call);
    const char *(*method)(const tni_call *call);
    unsigned (*others)(const tni_call *call);
    bool (*tuned)(const tni_call *call, tni_tuned *won, tni_text *with);
    bool strided;
} tni_op_impl;

// Calls, found by op, else by the class of the op's row. A LIBRARY op that has neither, except
// custom, is recorded as other ops in contexts of this device. A device with kernels needs no calls
// for maps, sources, reductions, pad and gather. Leaves, views, outputs, assignments and updates
// are never run: a write that needs a copy runs as `copy`.
typedef struct {
    tni_op_impl of_op[TNI_OPS], of_class[TNI_CLASSES];
    const struct tni_groups
        *groups;  // for a device with work groups: what device/simt needs from it
    // Products are much faster if the rows of their matrices begin at multiples of that many bytes:
    // the planner then leaves gaps between the rows of temporaries. 0: it makes no difference.
    int row_bytes;
    // A library op fused with its epilogue: a kernel that reads the op's result element by element.
    // The device either lets the library compute the epilogue, or runs rows of the kernel as soon
    // as the elements they read are computed.
    //
    // takes: asked when a plan is made, whether the device runs the two as one step; NULL: never. A
    // kernel whose epilogue has a column sum cannot run row by row: the library computes all of it,
    // or it runs afterwards. An offer that is taken may come again with the kernel that makes the
    // call's first operand, its prologue: who takes that as well gets it in run_with_epilogue,
    // which has to launch it or to do its work. scratch_with_epilogue: bytes of scratch for the two
    // together.
    bool (*takes)(void *session, const tni_offer *o);
    size_t (*scratch_with_epilogue)(const tni_call *call, void *entry, const tni_launch *l);
    tn_status (*run_with_epilogue)(const tni_call *call, void *entry, tni_launch *l, tni_text *why);
    // Queries times keys from which attention spelled out in plain ops is recorded as one call of
    // attention; 0: never. runs_scores: the device runs such calls also with a score program
    // (ops/score.h), where masks do not say what is done to scores; `declines` of the call may
    // still say no.
    int64_t recognizes;
    bool    runs_scores;
    // How a convolution that is being recorded stores its images and weights: as
    // attr.conv.channels_last says. from, to: channels of x and of the result; last: x is channels
    // last already, which a device keeps. NULL: as x is, with weights (O, C / groups, ...).
    int (*conv_order)(const void *session, tn_dtype dt, int64_t from, int64_t to, bool last);
    // Matrices of which two of each four elements of a row are 0, for products that add up along
    // the rows. packed_bytes: of the form that such products read faster; 0: the device has none
    // for it, and they read the matrix itself. pack: writes that form of w, (rows, cols) without
    // gaps. It is kept as long as the value and given to calls, which may read either. NULL: there
    // never is one.
    size_t (*packed_bytes)(void *session, tn_dtype dt, int64_t rows, int64_t cols);
    tn_status (*pack)(void *session, tn_dtype dt, int64_t rows, int64_t cols, const char *w,
                      char *packed, tni_text *why);
    // Says that matrix products are to come: what takes long to open for them is opened in the
    // background. May be called any number of times. NULL: nothing does.
    void (*expect_products)(void *session);
} tni_device_calls;

// Kernels, each of one op or of several fused ones. Without this group, every op is a call.
typedef struct {
    bool compile_on_second_run;  // see recall
    bool loads_before_stores;    // a map's kernel loads all values of a point before it stores any
    int lanes;  // rows side by side in memory that keep it busy, whatever their length; 0: any number
    // Prepares the kernels of a new plan and returns an entry for each: whatever the device needs
    // to launch it. first[i] is its first launch, without addresses. Entries belong to the device
    // and live until the process ends. A plan launches an entry again with other addresses, offsets
    // and numbers, never with other sizes or strides. wait: the kernels are compiled when prepare
    // returns. Otherwise a device with a background compiler may still be compiling, and interprets
    // the kernels that are not ready.
    tn_status (*prepare)(void *session, int n, const tni_launch *const *first, void **entry,
                         bool wait, tni_text *why);
    // Launches a kernel. May return before the work is done.
    tn_status (*launch)(void *session, void *entry, tni_launch *l, tni_text *why);
    // Bytes of scratch for launch. NULL: the device has its own. fixed_scratch: the bytes depend on
    // the entry, sizes and strides but not on addresses, so that a plan asks only once.
    bool fixed_scratch;
    size_t (*scratch)(void *session, void *entry, const tni_launch *l);
    // The settings that a launch of an entry has now. A plan whose scratch depends on them asks
    // before it asks for scratch, and launches under what it got, since a winner may be kept by
    // another context at any time. NULL: scratch does not depend on settings, or the device has its
    // own.
    void (*settings)(void *session, void *entry, const tni_launch *l, tni_tuning *now);
    // Returns whether every prepared kernel is compiled. NULL: they always are.
    bool (*ready)(void *session, int n, const tni_launch *const *first, void *const *entry);
    // A device with compile_on_second_run also launches kernels whose entry is NULL, and is asked
    // to prepare the kernels of a plan when the plan, or the same ops with other sizes, runs for
    // the second time: most plans run once, and compiling them would be wasted. recall is asked
    // before the first run: it returns an entry for each kernel that is already compiled, in this
    // process or on disk, and NULL for the others.
    void (*recall)(void *session, int n, const tni_launch *const *first, void **entry);
    // Registers of one thread in such a launch; zeros if not known yet. A plan whose kernels spill
    // is made again with smaller ones. NULL: the device cannot tell.
    tni_registers (*registers)(void *session, void *entry, const tni_launch *l);
    // Returns whether kernels compute in f64. NULL: they do.
    bool (*doubles)(void *session);
    // What measuring may choose (inspect/tune.c, kernel/tuning.h); NULL: nothing. chip: what
    // winners are kept for, on the cpu with its threads. neighbours: settings that differ from
    // `from` in one knob, and would launch differently. expect: begins to compile a kernel for a
    // launch under its settings; now: ahead of those that were expected for later. retuned: a
    // winner was kept for such launches of an entry.
    const char *(*chip)(const void *session, int threads);
    int (*neighbours)(void *session, const tni_launch *l, const tni_tuning *from, tni_tuning *dst,
                      int room);
    void (*expect)(void *session, void *entry, const tni_launch *l, bool now);
    void (*retuned)(void *session, void *entry, const tni_launch *l);
    // For people to look at; NULL: nothing to show. counts: kernels that this process compiled, and
    // kernels that it found on disk. text: the source of a kernel without its prelude, freed by
    // tni_free; NULL when memory is out.
    void (*counts)(int64_t *compiled, int64_t *found);
    char *(*text)(void *session, tni_heap *h, const tni_launch *l);
} tni_device_kernels;

// Asynchronous work. Without this group, every function returns when its work is done.
typedef struct {
    // Blocks until all submitted work is done and returns a deferred error, if any.
    tn_status (*wait)(void *session, tni_text *why);
    // Reports, without waiting, the first index out of range that a kernel or call has found since
    // the last time: its ticket (1 to TNI_TICKETS), and fail as in tni_launch.fail, where fail[0]
    // is 1 for a call. NULL: launches and calls return such errors themselves.
    bool (*failed)(void *session, int *ticket, int64_t fail[2]);
    // Reads one element without waiting. fetch starts a copy of the value as it will be after all
    // work submitted so far, and returns a ticket, or 0 if it cannot; fetched returns whether the
    // value has arrived, and stores it in 8 bytes. NULL: a download costs nothing.
    int64_t (*fetch)(void *session, tn_dtype dt, const void *src);
    bool (*fetched)(void *session, int64_t ticket, void *host);
    // Uploads that overlap with other work. submitted: a growing number for the work submitted so
    // far; completed: whether all work up to a number is done; upload_after: the next upload writes
    // memory that work up to this number used last, so that it need not wait for later work. NULL:
    // uploads are done in order.
    uint64_t (*submitted)(void *session);
    bool (*completed)(void *session, uint64_t work);
    void (*upload_after)(void *session, uint64_t work);
    // Timing events, for a profile. event_record: marks a point in the order of submitted work and
    // returns its number, or 0 if it cannot. event_elapsed: waits for two of the last
    // TNI_TIMING_EVENTS events and returns the seconds between them; NAN if unknown. hold_queue:
    // work submitted from now on starts when the hold ends, or soon after if that takes long, so
    // that the device never idles between two events while the host prepares a launch. NULL: the
    // host's clock after wait is as good.
    int64_t (*event_record)(void *session);
    double (*event_elapsed)(void *session, int64_t from, int64_t to);
    void (*hold_queue)(void *session, bool on);
    // The stream that work is submitted to, and its order with another one, by events:
    // after_stream: work submitted from now on starts after what is in the other stream;
    // before_stream: work of the other stream submitted from now on starts after what was submitted
    // here. NULL: there are no streams.
    void *(*stream)(const void *session);
    tn_status (*after_stream)(void *session, void *other, tni_text *why);
    tn_status (*before_stream)(void *session, void *other, tni_text *why);
    // Work is submitted to another stream from now on, after what was submitted here; NULL: one of
    // the session's own. captures: whether a caller was capturing that stream into a graph when it
    // was set. Then work is only launched: nothing is timed, nothing waits, and memory that it uses
    // is never given back.
    tn_status (*use_stream)(void *session, void *other, tni_text *why);
    bool (*captures)(const void *session);
    // Collectives that run beside other work. collected: work submitted from now on starts after
    // all of them but the last in_flight; NULL: their calls return when they are done. enter: makes
    // the device that of the calling thread.
    tn_status (*collected)(void *session, size_t in_flight, tni_text *why);
    void (*enter)(const void *session);
} tni_device_events;

// Replay of whole plans (CUDA graphs, for example). Between begin and end the engine submits all of
// a plan's work, which is the same every time except for addresses and numbers. A device may defer
// the work until end and run it faster with what it recorded in *memory, which forget frees. end
// sets *again if nothing was run and everything has to be submitted once more. ok: all of it was
// submitted without an error. Without this group, work runs as it is submitted.
//
// step says which step of the plan the work after it belongs to. resume is begin for a run that
// differs from the last run of the plan in some steps only: if it returns true, only these are
// submitted. Both may be NULL.
typedef struct {
    void (*begin)(void *session, void **memory);
    bool (*resume)(void *session, void *memory);
    void (*step)(void *session, size_t step);
    tn_status (*end)(void *session, bool ok, bool *again, tni_text *why);
    void (*forget)(void *memory);
} tni_device_replay;

// Device memory that belongs to the caller. owns: sets *here if bytes at p are memory of this
// device that can be used in place; returns an error, with the reason, if they belong to another
// device or are too few. wait_unused: blocks until no work uses such memory, unless the caller's
// stream keeps the order. Without this group, a caller can only pass host memory.
typedef struct {
    tn_status (*owns)(void *session, const void *p, size_t bytes, bool *here, tni_text *why);
    void (*wait_unused)(void *session);
} tni_device_borrowed;

// Pinned host memory, from which the device copies asynchronously. Without this group, host memory
// is ordinary and goes through upload of tni_device_memory.
typedef struct {
    void *(*alloc)(void *session, size_t bytes);  // aligned to 64; NULL if none can be had
    void (*free)(void *session, void *p);         // waits for copies from it
    // Starts a copy; host must not change until it is done. *copy: its number, counting from 1.
    tn_status (*upload)(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        uint64_t *copy, tni_text *why);
    // Returns the number up to which copies are known to be done, after waiting for copy `until`;
    // 0: no waiting.
    uint64_t (*done)(void *session, uint64_t until);
} tni_device_pinned;

// A device: one constant per folder. The engine calls it from a context's owner thread with the
// context's session, which holds the device's state for that context. Any other state is shared by
// all contexts.
struct tni_device {
    const char *name;
    // Describes in one line what serves this device here. Returns false, with the reason, if
    // nothing does.
    bool (*probe)(tni_text *detail);
    // Returns how many there are, numbered from 0; NULL: one.
    int (*count)(void);
    // Opens a session; NULL, with status and reason, if it cannot. If open is NULL, the heap is the
    // session.
    void *(*open)(tni_heap *heap, const tni_device_open_args *args, tn_status *s, tni_text *why);
    void (*close)(void *session);
    const tni_device_memory   *memory;
    const tni_device_calls    *calls;
    const tni_device_kernels  *kernels;  // this and the following may be NULL
    const tni_device_events   *events;
    const tni_device_replay   *replay;
    const tni_device_borrowed *borrowed;
    const tni_device_pinned   *pinned;
};

// Returns how a device runs an op of the table, and whether it does.
const tni_op_impl *tni_device_impl(const tni_device *d, int op);
bool               tni_device_runs(const tni_device *d, int op);

// Runs a call on its device; returns the bytes of scratch that it needs.
tn_status tni_call_run(const tni_call *call);
size_t    tni_call_scratch(const tni_call *call);

extern const tni_device tni_device_ref, tni_device_cpu, tni_device_cuda, tni_device_opencl;

#endif
