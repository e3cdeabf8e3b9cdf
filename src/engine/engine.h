// What a context has besides its tensors: the device, the plans, the late values.
#ifndef TNI_ENGINE_ENGINE_H
#define TNI_ENGINE_ENGINE_H

#include "device/device.h"
#include "plan/plan.h"

enum { TNI_ON_THE_WAY = 4 };

// A value that tn_item_late asked for: the newest that arrived, the node it waits for, and the
// device's tickets for values that were computed since, oldest first.
typedef struct {
    char     *name;  // or, where NULL, by call site
    tni_site  site;
    double    value;
    tni_node *node;
    int       tickets;
    int64_t   ticket[TNI_ON_THE_WAY];
    uint8_t   dtype[TNI_ON_THE_WAY];
} tni_async_item;

typedef struct tni_observer tni_observer;  // observer.h
typedef struct tni_inspect  tni_inspect;   // inspect/inspect.h

struct tni_engine {
    const tni_device *device;
    void             *session;  // at the device
    // The device's optional groups; without functions where it has none.
    const tni_device_kernels  *kernels;
    const tni_device_events   *events;
    const tni_device_replay   *replay;
    const tni_device_borrowed *borrowed;
    const tni_device_pinned   *pinned;

    int                 threads;
    bool                eager;           // TN_EAGER: op by op
    bool                compiles_first;  // TN_COMPILE=wait: a plan is compiled before it runs
    unsigned            watch;           // what the observer wants to see: TNI_WATCH_*
    tni_plans           plans;
    uint64_t            tickets;  // given so far
    int64_t             steps;    // boundaries so far
    tni_async_item     *late;
    size_t              late_count, late_cap;
    const tni_observer *observer;
    tni_inspect        *inspect;  // the observer's own
};

// Evaluates root (TNI_READ) or everything pending. On failure the context's error says why; a step
// that fails leaves every store at its last computed value.
tn_status tni_evaluate(tn_ctx *cx, tni_mode mode, tni_node *root);
// Returns every store to its last computed value; what has none is gone.
void tni_roll_back(tn_ctx *cx);

// Gives tickets to what can fail in a new plan, and writes down what is to be said then. False,
// reported, when memory is out.
bool tni_deferred_errors_register(tni_graph *g, tni_plan *p);
// The ticket of an item that is run by a call; 0 if it needs none.
int tni_deferred_error_ticket(const tni_plan *p, size_t item);
// What failed on the device since this was asked last, reported; else TN_OK.
tn_status tni_deferred_errors_check(tn_ctx *cx);

// The node of t, computed; NULL, reported, on failure.
tni_node *tni_value(tn_tensor *t, const char *op);
// A tensor with elements that lie in pinned memory of the device, which must stay as they are until the copy
// numbered *copy is done; NULL, reported, on failure.
tn_tensor *tni_from_pinned(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size,
                           const void *data, uint64_t *copy);
// Where the elements of a computed node lie.
tni_arg tni_value_arg(const tni_engine *e, tni_node *n);
void    tni_async_items_close(tn_ctx *cx);

// What the planner may know of the device.
tni_limits tni_limits_of(const tni_engine *e);
// The plan for a graph that is open, found or built, and looked at where the environment asks for
// that; see tni_plans_get. NULL, reported, on failure.
tni_plan *tni_plan_for(tni_graph *g, bool *kept);
// Makes a plan ready to run: its kernels are compiled, or being compiled. Where some of them spill,
// *p, if the cache keeps it, becomes a plan that cuts them. False, reported, on failure.
bool tni_prepare(tni_graph *g, tni_plan **p, bool kept);
// Scratch that a plan's steps want, in bytes, once it is ready; -1, reported, on failure.
int64_t tni_plan_workspace(tni_graph *g, tni_plan **p, bool kept);

// The device of a context that has recorded nothing yet. What it lacks of LIBRARY ops is recorded as
// other ops from now on.
void tni_engine_use(tn_ctx *cx, const tni_device *d);
// The device and its groups alone.
void tni_engine_set(tni_engine *e, const tni_device *d);

#endif
