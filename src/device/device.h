// The contract between the engine and a device: seven groups of functions, five of which a device can do
// without. docs/adding-a-device.md goes through them.
#ifndef TNI_DEVICE_DEVICE_H
#define TNI_DEVICE_DEVICE_H

#include "base/heap.h"
#include "kernel/call.h"

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

// Memory of the device and copies between it and the host.
typedef struct {
    bool host;                                 // it is the host's, each value in its own dtype
    void *(*alloc)(void *seat, size_t bytes);  // aligned to 64
    void (*free)(void *seat, void *p);
    size_t (*element_size)(tn_dtype dt);
    // When upload returns, host may change; when download does, host has the elements.
    tn_status (*upload)(void *seat, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why);
    tn_status (*download)(void *seat, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why);
    // Memory at one address for as long as the seat is held; see tni_memory. NULL: there is none.
    void *(*arena)(void *seat, size_t bytes, size_t most, size_t *held);
    // Bytes that are free and that there are, for messages. NULL: nobody knows.
    bool (*space)(void *seat, size_t *free, size_t *all);
} tni_device_memory;

// How a device runs an op: by sure, where it cannot fail, or by run. scratch: the bytes that it needs;
// NULL: none. prepare: what can be known of a call before it has addresses, as which library does it and
// how; it is asked once for each call of a plan, gives an entry, which every run of the call is given
// again, and forget frees it; an entry of NULL, as when memory is out, leaves the call to be looked at in
// each run. Addresses and attributes that are no part of a plan's key (RUN in attr.def) are others in each
// run. varies: why the bits of a result may differ from run to run; NULL, as without it: they do not.
typedef struct {
    void (*sure)(const tni_call *call);
    tn_status (*run)(const tni_call *call);
    size_t (*scratch)(const tni_call *call);
    void *(*prepare)(const tni_call *call);
    void (*forget)(void *entry);
    const char *(*varies)(const tni_call *call);
} tni_op_impl;

// Calls, each by its op, else by the class of its row. A LIBRARY op that is in neither is recorded as
// other ops in the device's contexts. A device with kernels needs no call for maps, sources, reductions, pad
// and gather. Leaves, views, outputs, assignments and updates are never run.
typedef struct {
    tni_op_impl              of_op[TNI_OPS], of_class[TNI_CLASSES];
    const struct tni_groups *groups;  // of a device with work groups: what device/simt needs of it
    // A library op and a kernel that reads its result element after element, so that the first n
    // rows of the kernel can run as soon as the elements they read are there, or the library does what
    // the kernel would. takes: whether the device runs the two so, asked when a plan is made; NULL: it
    // never does. One whose epilogue has a sum has no such rows: it is done by the library or afterwards.
    // room_then: scratch for both.
    bool (*takes)(void *seat, const tni_offer *o);
    size_t (*room_then)(const tni_call *call, void *entry, const tni_launch *l);
    tn_status (*run_then)(const tni_call *call, void *entry, tni_launch *l, tni_text *why);
} tni_device_calls;

// Kernels of one op or of several. Without this group, every op is a call.
typedef struct {
    bool lazy;     // see recall
    bool at_once;  // a kernel of a map has all values of a point before it stores one of them
    // Takes the kernels of a new plan, each as its first launch will be but without addresses, and
    // gives an entry for each: what the device needs to launch it, compiled or being compiled, owned
    // by the device and good until the process ends. A plan launches its entries again with other
    // addresses, offsets and numbers, never with other sizes or strides. wait: they are compiled when
    // it returns. Else a device with a background may still be at it, and launches what is not ready
    // by an interpreter.
    tn_status (*prepare)(void *seat, int n, const tni_launch *const *first, void **entry, bool wait,
                         tni_text *why);
    // May return before the work is done.
    tn_status (*launch)(void *seat, void *entry, tni_launch *l, tni_text *why);
    // Bytes of scratch for launch. NULL: the device has its own. fixed_room: they follow from entry,
    // sizes and strides, whatever the addresses are, so that a plan asks once.
    bool fixed_room;
    size_t (*room)(void *seat, void *entry, const tni_launch *l);
    // Whether all that was prepared is compiled. NULL: it always is.
    bool (*ready)(void *seat, int n, const tni_launch *const *first, void *const *entry);
    // A device that is lazy also launches NULL for an entry, and meets the kernels of a plan when that
    // runs for the second time, or the same ops with other sizes: most plans run once, and compiling
    // them would be in vain. What takes no compiling it is asked for before: recall gives an entry
    // for each kernel that is compiled already, in this process or on disk, and NULL for the others.
    void (*recall)(void *seat, int n, const tni_launch *const *first, void **entry);
    // What a thread takes of the chip in such a launch of an entry; nothing where it is not known yet.
    // A plan with kernels that spill is made again with smaller ones. NULL: nobody knows.
    tni_registers (*registers)(void *seat, void *entry, const tni_launch *l);
    // Whether kernels compute in f64. NULL: they do.
    bool (*doubles)(void *seat);
    // To be seen by people; NULL: nothing to show. counts: kernels that this process had to compile,
    // and those it found on disk. text: what is compiled for a kernel, without what it calls, to be
    // freed by tni_free; NULL when memory is out.
    void (*counts)(int64_t *compiled, int64_t *found);
    char *(*text)(tni_heap *h, const tni_launch *l);
} tni_device_kernels;

// Work that goes on after a function returned. Without this group, none does.
typedef struct {
    // Until everything launched is done. What failed meanwhile is told.
    tn_status (*wait)(void *seat, tni_text *why);
    // An index that a kernel or call of a ticket (1 to TNI_TICKETS) found out of range some time ago:
    // the first since it was asked last, as tni_launch.fail, fail[0] being 1 for a call. Nobody waits.
    // NULL: each launch and call tells.
    bool (*failed)(void *seat, int *ticket, int64_t fail[2]);
    // An element on its way to the host, as it is once all that was launched so far is done: fetch
    // begins and gives a ticket, 0 if none can be had; fetched says whether it has arrived, and puts
    // it into 8 bytes. Nobody waits. NULL: a download costs nothing.
    int64_t (*fetch)(void *seat, tn_dtype dt, const void *src);
    bool (*fetched)(void *seat, int64_t ticket, void *host);
    // Copies to the device that go beside all other work. now: a number for the work given so far,
    // which grows; done: whether that up to a number is done; after: the next upload writes memory
    // that work up to a number used and none since; without it an upload comes after all. NULL:
    // uploads come in turn.
    uint64_t (*now)(void *seat);
    bool (*done)(void *seat, uint64_t work);
    void (*after)(void *seat, uint64_t work);
    // Time, for a profile. stamp: a point in the order of all that was given so far, 0 if it cannot be
    // had. stamped: the seconds between two of the last TNI_STAMPS, once both are reached; it waits,
    // and is NAN if it is not known. hold: what is given from now on begins when the hold ends, or
    // soon after if that takes long; so that the device does not wait for the host between two
    // stamps. NULL: the host's clock after wait is as good.
    int64_t (*stamp)(void *seat);
    double (*stamped)(void *seat, int64_t from, int64_t to);
    void (*hold)(void *seat, bool on);
} tni_device_events;

// Replay. Between begin and end the engine gives all of a plan's work, the same every time but for
// addresses and numbers. A device may put it off until end and do it faster by what it keeps in *memory,
// which forget frees. *again: nothing was done, and all is to be given once more. ok: whether all was
// given without an error. Without this group, work is done as it comes.
typedef struct {
    void (*begin)(void *seat, void **memory);
    tn_status (*end)(void *seat, bool ok, bool *again, tni_text *why);
    void (*forget)(void *memory);
} tni_device_replay;

// A caller's memory of the device. holds: whether bytes at an address are of this device, *here, and can
// be used as they are; an error, with the reason, if they are of another or too few. settle: waits until
// no work uses it, unless the caller's stream keeps the order. Without this group, a caller has no
// memory but the host's.
typedef struct {
    tn_status (*holds)(void *seat, const void *p, size_t bytes, bool *here, tni_text *why);
    void (*settle)(void *seat);
} tni_device_borrowed;

// Memory of the host that copies to the device read as it lies (pinned), and copies from it, which go on
// after the function returned. Without this group, what is to be copied may lie anywhere, and goes by
// upload of memory.
typedef struct {
    void *(*alloc)(void *seat, size_t bytes);  // aligned to 64; NULL when there is none
    void (*free)(void *seat, void *p);         // once the copies from it are done
    // Begins a copy: host must stay as it is until that is done. *copy: its number; they grow from 1 on.
    tn_status (*upload)(void *seat, void *dst, tn_dtype dt, const void *host, int64_t count,
                        uint64_t *copy, tni_text *why);
    // Copies up to which number are done, as far as is known. That numbered `until` is waited for; 0: none.
    uint64_t (*done)(void *seat, uint64_t until);
} tni_device_pinned;

// One per folder below, constant. The engine calls it from the owner thread of a context, with the
// context's seat: what the device keeps for that context alone. What else it keeps is shared by all.
struct tni_device {
    const char *name;
    // What serves this device here, in a line; false, with the reason, if nothing does.
    bool (*probe)(tni_text *detail);
    // A seat; NULL, with status and reason, if there is none. Where open is NULL, heap is the seat.
    void *(*open)(tni_heap *heap, const tni_wish *wish, tn_status *s, tni_text *why);
    void (*close)(void *seat);
    const tni_device_memory   *memory;
    const tni_device_calls    *calls;
    const tni_device_kernels  *kernels;  // this and the following may be NULL
    const tni_device_events   *events;
    const tni_device_replay   *replay;
    const tni_device_borrowed *borrowed;
    const tni_device_pinned   *pinned;
};

// How a device runs an op of the table, and whether it does.
const tni_op_impl *tni_device_impl(const tni_device *d, int op);
bool               tni_device_runs(const tni_device *d, int op);

// Runs a call by its device, and the bytes of scratch that this takes.
tn_status tni_call_run(const tni_call *call);
size_t    tni_call_scratch(const tni_call *call);

extern const tni_device tni_device_ref, tni_device_cpu, tni_device_cuda, tni_device_opencl;

#endif
