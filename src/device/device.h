// The contract between the engine and a device: memory, transfer, and running one call. A call is
// an op of the table over arguments that say where their elements lie; what the op means is in
// ops.def and below.
#ifndef TNI_DEVICE_DEVICE_H
#define TNI_DEVICE_DEVICE_H

#include "base/heap.h"
#include "kernel/kernel.h"

typedef struct tni_device tni_device;

// Elements in device memory: element (i0, i1, ...) is i0 * stride[0] + ... elements after data.
typedef struct {
    tn_dtype dtype;
    int      rank;
    int64_t  size[TN_MAX_RANK], stride[TN_MAX_RANK];
    char    *data;
} tni_arg;

// One op to run. out is row-major and overlaps no input, except that `copy` takes any strides that
// do not overlap themselves. Empty results are not run.
//
//   maps      in[] have out's shape (strides 0 where broadcast) and the dtype they are computed in;
//             cast and copy convert from in[0]'s dtype to out's
//   full, scalar, iota, random: out alone; iota and random count in row-major order
//   reduce    out has in[0]'s rank, size 1 at the reduced axes (attr->reduce.axes)
//   scan      along attr->axis.axis
//   concat    an input that lies where it belongs in out already is not copied
//   pad, gather (x, index), scatter and scatter_add (x, index, v), fold (out: the base)
//   matmul    a (..., m, k), b (..., k, n), out (..., m, n), leading sizes equal
//   conv      x (N, C, H, W), w (O, C / groups, KH, KW); conv_dgrad (gy, w) -> x; conv_wgrad
//             (gy, x) -> w; with attr->conv.channels_last x and y are (N, H, W, C)
//   attention q (B, T, H, D), k (B, S, H, D), v (B, S, H, E) -> (B, T, H, E); a mask (B, H, T, S) of
//             bools or of their dtype may follow v. attention_grad: the same and the gradient of
//             the result -> those of q, k and v, row-major one after the other
//   argsort   out i64, along attr->axis.axis
//   custom    in[] row-major; one output: out. Several: out is their bytes one after the other,
//             eight for each element, every output begun at a multiple of 64
typedef struct {
    const tni_device *device;
    void             *seat;
    int               op;
    int               nin;
    const tni_arg    *in;
    tni_arg           out;
    const tni_attr   *attr;
    int               threads;
    void             *scratch;  // as many bytes as the device asked for, aligned to 64
    tni_text         *why;      // what went wrong, where run returns an error
    int               ticket;   // as that of a kernel
    bool sole;   // of run_then: only the kernel reads the result, which need not be there
    bool ahead;  // of run: it only begins to compile what the call will need; where ready is there
    bool waits;  // by what is compiled, which is waited for; else by anything that gives the same
    struct tni_then *then;  // the device's own: what follows each part of the result
} tni_call;

// An argument (N, H, W, C) as (N, C, H, W).
static inline tni_arg tni_channels_first(const tni_arg *x)
{
    tni_arg y = *x;
    for (int i = 0; i < 4; i++) {
        y.size[tni_channels_last_order[i]]   = x->size[i];
        y.stride[tni_channels_last_order[i]] = x->stride[i];
    }
    return y;
}

// x, w and y of a convolution or of one of its gradients, x and y as (N, C, H, W) however they lie.
// The number of the one that is the result is returned.
static inline int tni_conv_operands(const tni_call *c, tni_arg x[3])
{
    int result             = c->op == TNI_conv ? 2 : c->op == TNI_conv_dgrad ? 0 : 1;
    x[result]              = c->out;
    x[result == 2 ? 0 : 2] = c->in[0];
    x[result == 1 ? 0 : 1] = c->in[1];
    for (int i = 0; i < 3 && c->attr->conv.channels_last; i += 2) x[i] = tni_channels_first(&x[i]);
    return result;
}

enum { TNI_TICKETS = 255, TNI_STAMPS = 1024 };

// What a thread of a compiled kernel takes: registers, and bytes of memory for what they did not hold.
typedef struct {
    int used, spilled;
} tni_registers;

// What a context asks for as it takes its seat.
typedef struct {
    int   number;  // which of several: 1 of "cuda:1"
    void *stream;  // of the caller's, in which all work is to go; NULL: one of the device's own
} tni_wish;

// How a device runs an op: by sure, where it cannot fail, or by run. scratch: the bytes that it needs;
// NULL: none.
typedef struct {
    void (*sure)(const tni_call *call);
    tn_status (*run)(const tni_call *call);
    size_t (*scratch)(const tni_call *call);
} tni_op_impl;

// What a device runs: by op, else by the class of its row. A LIBRARY op that is in neither is recorded
// as other ops in the device's contexts. Leaves, views, assignments, updates and parts are never run.
typedef struct {
    tni_op_impl of_op[TNI_OPS], of_class[TNI_CLASSES];
} tni_op_impls;

// One per folder below, constant. The engine calls it from the owner thread of a context, with the
// context's seat: what the device keeps for that context alone. What else it keeps is shared by all.
struct tni_device {
    const char *name;
    bool        host_memory;  // a value's memory is the host's, in its own dtype
    bool        at_once;      // kernels of maps have all values of a point before they store one
    // What serves this device here, in a line; false, with the reason, if nothing does.
    bool (*probe)(tni_text *detail);
    // A seat; NULL, with status and reason, if there is none. Where open is NULL, heap is the seat.
    void *(*open)(tni_heap *heap, const tni_wish *wish, tn_status *s, tni_text *why);
    void (*close)(void *seat);
    void *(*alloc)(void *seat, size_t bytes);  // aligned to 64
    void (*free)(void *seat, void *p);
    // Memory at one address for as long as the seat is held; see tni_memory. NULL where there is none.
    void *(*arena)(void *seat, size_t bytes, size_t most, size_t *held);
    size_t (*element_size)(tn_dtype dt);  // in its memory
    // When upload returns, host may change; when download does, host has the elements.
    tn_status (*upload)(void *seat, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why);
    tn_status (*download)(void *seat, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why);
    const tni_op_impls      *ops;
    const struct tni_groups *groups;  // of a device with work groups: what device/simt/ needs of it
    // Kernels; all NULL where the device runs ops one by one. prepare takes the kernels of a new
    // plan, each as its first launch will be but without addresses, and gives an entry for each:
    // what the device needs to launch it, compiled or being compiled, owned by the device and good
    // until the process ends. A plan launches its entries again with other addresses, offsets and
    // numbers, never with other sizes or strides. launch may return before the work is done.
    // A device that is lazy also takes NULL for an entry, and meets the kernels of a plan when it
    // runs for the second time, or the same ops with other sizes: most plans run once, and compiling
    // them would be in vain. What takes no compiling it is asked for before: recall gives an entry for each
    // kernel that is compiled already, in this process or on disk, and NULL for the others.
    bool lazy;
    void (*recall)(void *seat, int n, const tni_launch *const *first, void **entry);
    // wait: they are compiled when it returns. Else a device with a background may still be at it, and
    // launches what is not ready by an interpreter; ready says whether all are. NULL: they always are.
    tn_status (*prepare)(void *seat, int n, const tni_launch *const *first, void **entry, bool wait,
                         tni_text *why);
    bool (*ready)(void *seat, int n, const tni_launch *const *first, void *const *entry);
    // What a thread takes of the chip in such a launch of an entry; nothing where it is not known yet.
    // NULL where nobody knows. A plan with kernels that spill is made again with smaller ones.
    tni_registers (*registers)(void *seat, void *entry, const tni_launch *l);
    // Bytes of scratch for launch; NULL where the device has its own.
    size_t (*room)(void *seat, void *entry, const tni_launch *l);
    tn_status (*launch)(void *seat, void *entry, tni_launch *l, tni_text *why);
    // A library op and a kernel that reads its result element after element, so that the first n
    // rows of the kernel can run as soon as the elements they read are there. claims: whether the
    // device runs an op of the table so; NULL where it runs none. room_then: scratch for both.
    bool (*claims)(int op);
    size_t (*room_then)(const tni_call *call, void *entry, const tni_launch *l);
    tn_status (*run_then)(const tni_call *call, void *entry, tni_launch *l, tni_text *why);
    // Replay. Between begin and end the engine gives all of a plan's work, the same every time but for
    // addresses and numbers. A device may put it off until end and do it faster by what it keeps in
    // *memory, which forget frees. *again: nothing was done, and all is to be given once more. ok:
    // whether all was given without an error. NULL where work is done as it comes.
    void (*begin)(void *seat, void **memory);
    tn_status (*end)(void *seat, bool ok, bool *again, tni_text *why);
    void (*forget)(void *memory);
    // An index that a kernel or call of a ticket (1 to TNI_TICKETS) found out of range some time ago:
    // the first since it was asked last, as tni_launch.fail, fail[0] being 1 for a call. Nobody waits.
    // NULL where each launch and call tells.
    bool (*failed)(void *seat, int *ticket, int64_t fail[2]);
    // An element on its way to the host, as it is once all that was launched so far is done: fetch
    // begins and gives a ticket, 0 if none can be had; fetched says whether it has arrived, and puts
    // it into 8 bytes. Nobody waits. NULL where a download costs nothing.
    int64_t (*fetch)(void *seat, tn_dtype dt, const void *src);
    bool (*fetched)(void *seat, int64_t ticket, void *host);
    // Copies to the device that go beside all other work. now: a number for the work given so far, which
    // grows; done: whether that up to a number is done; after: the next upload writes memory that work
    // up to a number used and none since; without it an upload comes after all. NULL where uploads
    // come in turn.
    uint64_t (*now)(void *seat);
    bool (*done)(void *seat, uint64_t work);
    void (*after)(void *seat, uint64_t work);
    // A caller's memory of the device. holds: whether bytes at an address are of this device, *here, and
    // can be used as they are; an error, with the reason, if they are of another or too few. settle:
    // waits until no work uses it, unless the caller's stream keeps the order. NULL where there is
    // none but the host's.
    tn_status (*holds)(void *seat, const void *p, size_t bytes, bool *here, tni_text *why);
    void (*settle)(void *seat);
    // Memory of the device, for messages; NULL where nobody knows.
    bool (*memory)(void *seat, size_t *free, size_t *all);
    // Time, for a profile; NULL where the host's clock after wait is as good. stamp: a point in the order
    // of all that was given so far, 0 if it cannot be had. stamped: the seconds between two of the
    // last TNI_STAMPS, once both are reached; it waits, and is NAN if it is not known. hold: what is
    // given from now on begins when the hold ends, or soon after if that takes long; so that the device
    // does not wait for the host between two stamps.
    int64_t (*stamp)(void *seat);
    double (*stamped)(void *seat, int64_t from, int64_t to);
    void (*hold)(void *seat, bool on);
    // Until everything launched is done; NULL where launch waits. What failed meanwhile is told.
    tn_status (*wait)(void *seat, tni_text *why);
    // To be seen by people; NULL where there is nothing to show. counts: kernels that this process
    // had to compile, and those it found on disk. text: what is compiled for a kernel, without what
    // it calls, to be freed by tni_free; NULL when memory is out.
    void (*counts)(int64_t *compiled, int64_t *found);
    char *(*text)(tni_heap *h, const tni_launch *l);
};

// Whether a device runs an op of the table.
bool tni_device_runs(const tni_device *d, int op);
// Runs a call by its device, and the bytes of scratch that this takes.
tn_status tni_call_run(const tni_call *call);
size_t    tni_call_scratch(const tni_call *call);

extern const tni_device tni_device_ref, tni_device_cpu, tni_device_cuda, tni_device_opencl;

// The next multiple of 64.
static inline int64_t tni_align64(int64_t n)
{
    return (n + 63) / 64 * 64;
}

#endif
