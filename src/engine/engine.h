// The engine of a context: its device, its plans, and values that are read asynchronously.
//
//   tni_evaluate            pending nodes -> values: graph, key, plan, memory, run       evaluate.c
//   tni_prepare             a plan's kernels compiled, its calls prepared                prepare.c
//   tni_value               evaluates one value for a read                               read.c
//   tni_deferred_errors_*   indices out of range that a device reports late              deferred_errors.c
//   tni_async_item          tn_item_late                                                 async_item.c
//   tni_exports_*             values that other libraries read                             dlpack.c
//   tni_repeat_*            a step again, at the next place, without recording it        repeat.c
//   tni_executable_*        values computed again of other inputs, without recording     executable.c
#ifndef TNI_ENGINE_ENGINE_H
#define TNI_ENGINE_ENGINE_H

#include "device/device.h"
#include "plan/plan.h"

// The most values of one tn_item_late call that are on their way to the host at once. A loop that
// runs further ahead of the device than this drops the oldest of them.
enum { TNI_ITEMS_IN_FLIGHT = 4 };

// A value that tn_item_late reads, known by its tensor's name or by its call site.
// Invariant: the first `tickets` entries of ticket and dtype are copies that the device has begun
// and that were not collected yet, oldest first.
typedef struct {
    char     *name;  // NULL: known by site
    tni_site  site;
    double    value;  // the newest value that arrived; NAN before the first
    tni_node *node;   // the value to copy next, held until it is computed; NULL: none
    int       tickets;
    int64_t   ticket[TNI_ITEMS_IN_FLIGHT];
    uint8_t   dtype[TNI_ITEMS_IN_FLIGHT];
} tni_async_item;

typedef struct tni_observer tni_observer;  // observer.h
typedef struct tni_inspect  tni_inspect;   // inspect/inspect.h
typedef struct tni_repeat   tni_repeat;    // repeat.c

typedef struct tni_executable tni_executable;  // executable.c

// A caller's memory for the value of a node.
typedef struct {
    const tni_node *n;
    tni_buffer     *memory;
} tni_into;

// Values that other libraries read (dlpack.c). Deleters, on any thread, put theirs on `back`; the
// next evaluation takes them from there. Invariant: count is the number of exports that exist,
// those in back among them.
typedef struct tni_export tni_export;
typedef struct {
    _Atomic(tni_export *) back;
    int64_t               count;
} tni_exports;

// What a context has besides its tensors. It belongs to the context, and so to one thread at a
// time. Invariant: kernels, events, replay, borrowed and pinned are never NULL. A group that the
// device lacks is a struct of NULL functions, so that a test of one function is enough.
struct tni_engine {
    const tni_device          *device;
    void                      *session;  // the device's state for this context
    const tni_device_kernels  *kernels;
    const tni_device_events   *events;
    const tni_device_replay   *replay;
    const tni_device_borrowed *borrowed;
    const tni_device_pinned   *pinned;

    char        name[32];        // of the device, as tn_open takes it
    int         threads;         // of the cpu device
    bool        eager;           // TN_EAGER: op by op
    bool        compiles_first;  // TN_COMPILE=wait: kernels are compiled before a plan runs
    unsigned    watch;           // what the observer wants to see: TNI_WATCH_*
    double      tune_seconds;    // left for measuring kernels under other settings: tn_tune
    uint64_t    tunings;         // runs that measured and budgets given so far
    tni_plans   plans;
    uint64_t    tickets;             // given so far to steps that can fail late
    int64_t     steps;               // step boundaries so far
    uint64_t    evaluations;         // so far
    tni_repeat *repeat;              // looks at the evaluation in progress; NULL: none
    bool (*stop_asked)(void *user);  // tn_stop_when; NULL: nothing is asked
    void               *stop_user;
    int64_t             stop_time;  // when it was asked last, in milliseconds
    const tni_into     *into;       // where values of the evaluation in progress go; NULL: none
    size_t              intos;
    tni_exports         exports;
    tni_async_item     *async_item;
    size_t              async_items, async_cap;
    const tni_observer *observer;
    tni_inspect        *inspect;  // the observer's own state
};

// Evaluates root (TNI_READ) or everything pending. On failure the context's error says why, and a
// step that fails leaves every store at its last computed value.
tn_status tni_evaluate(tn_ctx *cx, tni_mode mode, tni_node *root);
// Returns every store to its last computed value; values that have none are gone.
void tni_roll_back(tn_ctx *cx);

// Whether the program asks the evaluation to stop, in which case that is reported. It may be asked
// before step number `step` of a plan runs, and is not asked once inputs have been overwritten.
bool tni_stops(tn_ctx *cx, const tni_plan *p, size_t step);

// Gives a ticket to every step of a new plan that can fail late, and keeps the messages. Does
// nothing if the device reports errors at once, or for a plan that has them. False, reported, when
// memory is out.
bool tni_deferred_errors_register(tni_graph *g, tni_plan *p);
// Returns the ticket of an item that is run by a call; 0 if it has none.
int tni_deferred_error_ticket(const tni_plan *p, size_t item);
// Reports an error that arrived from the device since the last check, if any; else returns TN_OK.
tn_status tni_deferred_errors_check(tn_ctx *cx);

// Returns the node of t, computed; NULL, reported, on failure.
tni_node *tni_value(tn_tensor *t, const char *op);
// Returns a tensor with elements from pinned memory of the device. The memory must not change until
// copy number *copy is done. NULL, reported, on failure.
tn_tensor *tni_from_pinned(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size,
                           const void *data, uint64_t *copy);
// Returns a tensor whose elements fill writes, as the host has them. A fill that returns false has
// reported why. NULL, reported, on failure.
tn_tensor *tni_from_filled(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size,
                           bool (*fill)(void *to, size_t bytes, void *user), void *user);
// Tells a matmul of node n which of its operands the device has packed (compress.c); n NULL: none.
void tni_call_find_packed(tni_call *c, const tni_node *n);
// Describes the elements of a computed node: address, shape and strides.
tni_arg tni_value_arg(const tni_engine *e, tni_node *n);
// Copies the elements of a computed node to memory of the device, row-major, as dt.
tn_status tni_value_copy(tn_ctx *cx, tni_node *n, tn_dtype dt, void *to, tni_text *why);
tn_status tni_arg_copy(tn_ctx *cx, tni_arg from, tn_dtype dt, void *to, tni_text *why);
// Copies them to host memory, after waiting for them.
tn_status tni_value_read(tn_ctx *cx, const char *op, tni_node *n, tn_dtype dt, void *host);
// Whether the device can use a caller's memory in place (*here). False, reported, if it belongs to
// another device or is not aligned.
bool tni_can_borrow(tn_ctx *cx, const char *op, tn_dtype dt, int64_t count, const void *data,
                    bool *here);
// Takes back what other libraries no longer read.
void tni_exports_reclaim(tn_ctx *cx);
// How many values others read now.
int64_t tni_exports_count(const tn_ctx *cx);
// Begins to copy element i of t, an i64 whose work is launched, to the host. Returns a ticket, or 0
// if the device reads only by waiting. At most TNI_MOST_FETCHES of them may be on their way.
enum { TNI_MOST_FETCHES = 60 };
int64_t tni_fetch_begin(tn_tensor *t, int64_t i);
// Waits for the element of a ticket. False, reported, if it does not arrive.
bool tni_fetch_end(tn_ctx *cx, int64_t ticket, int64_t *value);
// A loop whose steps differ by where they read and write alone, and by those differences in the
// same way each time. tni_repeat_eval is tn_eval for one of them, and looks on; `result` is the one
// value that a step makes in memory of its own, in the memory of the one before the last.
// tni_repeat_settled is asked before each step: once it is true, tni_repeat_run runs the next step
// without anything being recorded: values that the step writes in place, result among them, are
// those of the next step afterwards. It also begins to copy the first n elements of result, whose
// tickets are as those of tni_fetch_begin: in a graph that is a part of it. Any other call that
// records or evaluates unsettles it. tni_repeat_new returns NULL when memory is out, which is not
// reported.
tni_repeat *tni_repeat_new(tn_ctx *cx);
void        tni_repeat_free(tni_repeat *t);
tn_status   tni_repeat_eval(tni_repeat *t, tn_tensor *result);
bool        tni_repeat_settled(tni_repeat *t);
tn_status   tni_repeat_run(tni_repeat *t, tn_tensor *result, int n, int64_t *ticket);
// What n pending values are computed with: a plan, with memory of its own for temporaries and
// results. It reads the tensors that they were recorded of where they are, and holds their memory.
// Those that differ from run to run are made by tni_executable_input and written by
// tni_executable_write, between runs. NULL if there can be none (*later: not yet, since kernels are
// being compiled), which is no error, or on failure, which is reported. The values stay pending.
tni_executable *tni_executable_new(tn_ctx *cx, int n, tn_tensor *const *y, bool *later);
void            tni_executable_free(tni_executable *x);
// Computes the results again; tni_executable_new has done so once. False on failure, which is
// reported if the device failed. An index out of range, or a context whose runs are watched, is
// not: recording the values again will say it.
bool tni_executable_run(tni_executable *x);
// A copy of result i in a new tensor; NULL, reported, on failure.
tn_tensor *tni_executable_result(const tni_executable *x, int i);
// A tensor with the elements of x in memory of its own, which tni_executable_write replaces by
// those of another x of the same shape and dtype. NULL and false, reported, on failure.
tn_tensor *tni_executable_input(tn_tensor *x);
bool       tni_executable_write(tn_tensor *input, tn_tensor *x);
// Releases the nodes that tn_item_late still waits for, and its list.
void tni_async_items_close(tn_ctx *cx);

// Returns the facts of the device, and of what is watched, that the planner decides by.
tni_limits tni_limits_of(const tni_engine *e);
// Returns the plan of an open graph, found or built; a new one is shown to the observer. See
// tni_plans_get for kept. NULL, reported, on failure.
tni_plan *tni_plan_for(tni_graph *g, bool *kept);
// Makes a plan ready to run: its kernels are compiled, or being compiled, and its calls prepared.
// If kernels spill registers and the cache owns the plan, *p becomes a plan that splits them.
// False, reported, on failure.
bool tni_prepare(tni_graph *g, tni_plan **p, bool kept);
// Builds another plan of a graph with some choices, by the partitions of its items, with its
// kernels compiled; the caller owns it. NULL, reported, on failure.
tni_plan *tni_plan_again(tni_graph *g, const tni_choices *c);
// The errors of a context and of the thread, to be put back after work whose failures do not
// matter.
typedef struct {
    uint64_t   failures;
    tni_fault  fault;
    tni_thread self;
} tni_errors;
tni_errors tni_errors_now(const tn_ctx *cx);
void       tni_errors_return(tn_ctx *cx, const tni_errors *e);
// Prepares a plan and returns the bytes of scratch that its steps need; -1, reported, on failure.
int64_t tni_plan_workspace(tni_graph *g, tni_plan **p, bool kept);

// Sets the device of a context that has recorded nothing yet. LIBRARY ops that the device lacks are
// recorded as other ops from now on.
void tni_engine_use(tn_ctx *cx, const tni_device *d);
// Sets the device and its groups only.
void tni_engine_set(tni_engine *e, const tni_device *d);

#endif
