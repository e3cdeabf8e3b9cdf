// The interface through which inspection (inspect/) watches the engine: plans that were built,
// runs, steps and calls, memory that ran out. The engine does not depend on what an observer does.
// A context without `watch` bits pays one test per run.
#ifndef TNI_ENGINE_OBSERVER_H
#define TNI_ENGINE_OBSERVER_H

#include "engine/run.h"

// What an observer wants to see, and what that changes in how a plan is made and run:
//   CALLS   every op is a kernel or a call of its own, and the observer sees each result
//   VALUES  the observer sees each step before and after it ran; results that a plan would not store (that of a
//           library call before its epilogue) are stored
//   TIMES   the observer is called after each step of a run is launched
//   NAMES   the observer is called before and after each step is launched, to name it for other tools
//   TUNES   the observer measures kernels under other settings before they run, and lets calls search; set for single runs, by run_graph
// Under VALUES, TIMES and TUNES kernels are compiled before they run. With any bit set, no run is
// replayed as a graph.
enum {
    TNI_WATCH_CALLS  = 1,
    TNI_WATCH_VALUES = 2,
    TNI_WATCH_TIMES  = 4,
    TNI_WATCH_NAMES  = 8,
    TNI_WATCH_TUNES  = 16
};

// Whether what is launched becomes part of a graph of another library.
static inline bool tni_is_captured(const tni_engine *e)
{
    return e->events->captures && e->events->captures(e->session);
}

// Whether kernels have to be compiled before they run, so that the compiled kernel is what is
// measured, compared or captured.
static inline bool tni_waits_for_compiler(const tni_engine *e)
{
    return e->compiles_first || e->watch & (TNI_WATCH_VALUES | TNI_WATCH_TIMES | TNI_WATCH_TUNES) ||
           tni_is_captured(e);
}

// What the host does for an evaluation, and copies between host and device.
typedef enum {
    TNI_HOST_RECORD,  // from the end of the work before to the beginning of a plan: the program itself
    TNI_HOST_PLAN,
    TNI_HOST_COMPILE,
    TNI_HOST_LAUNCH,
    TNI_HOST_UPLOAD,
    TNI_HOST_DOWNLOAD
} tni_host_work;

// Whether a run of a plan measures its kernels: there is time left for it, something was not
// measured, and it ran before.
static inline bool tni_tunes_now(const tni_engine *e, const tni_plan *p)
{
    return e->tune_seconds > 0 && !e->watch && !e->eager && p->runs &&
           !(p->chosen && p->measured) && e->kernels->neighbours && !tni_is_captured(e);
}

// The functions of an observer. None is NULL.
struct tni_observer {
    // A context opens and has its device: reads the environment and sets engine->watch. False when
    // memory is out.
    bool (*open)(tn_ctx *cx);
    // A context begins to close. Freeing its layers may still evaluate, so engine->inspect is freed
    // last.
    void (*close)(tn_ctx *cx);
    // A plan was built.
    void (*plan_built)(tni_graph *g, const tni_plan *p);
    // CALLS: call c of node n ran. An error, reported, ends the evaluation.
    tn_status (*call_ran)(tn_ctx *cx, const tni_node *n, const tni_call *c);
    // VALUES: a step is about to run. Returns a state for step_ran; NULL, reported, on failure.
    // step_ran is always called with that state and the step's status, returns the status of both,
    // and sets *item to the item at fault.
    void *(*step_begins)(const tni_run *r, tni_plan_step step);
    tn_status (*step_ran)(void *state, tn_status s, size_t *item);
    // TIMES: a run begins, one of its steps was launched, it ends.
    void (*run_begins)(const tni_run *r);
    void (*step_launched)(const tni_run *r, tni_plan_step step);
    void (*run_ends)(const tni_run *r);
    // NAMES: a step is about to be launched; it was.
    void (*name_begins)(const tni_run *r, tni_plan_step step);
    void (*name_ends)(const tni_run *r);
    // TIMES: the host did something from a point in time, by tni_host_clock, until now; of a copy,
    // its bytes.
    void (*host_worked)(tn_ctx *cx, tni_host_work what, int64_t bytes, double since);
    // TUNES: a plan is ready to run; measures others of the same graph, and lets *p be the fastest,
    // in the cache as well. False, reported, if the program has asked to stop meanwhile.
    bool (*plan_tunes)(tni_graph *g, tni_plan **p);
    // TUNES: a run begins, a kernel of it is about to be launched with the arguments it is bound
    // to, the run has ended. A library call of a step is about to run, for which a search is
    // returned, or NULL; a call that may have searched has run.
    void (*tuning_begins)(const tni_run *r);
    void (*kernel_begins)(const tni_run *r, tni_planned_kernel *k);
    tni_call_search *(*call_begins)(const tni_run *r, tni_plan_step step, const tni_call *c);
    void (*call_searched)(const tni_run *r);
    void (*tuning_ends)(const tni_run *r);
    // Reports that there is no device memory for `what`: how much was asked for, how much there is,
    // and which tensors hold most of it. Returns NULL.
    void *(*out_of_memory)(tn_ctx *cx, const char *op, const char *what, int64_t bytes);
};

// The host's clock in seconds, and to report what the host did since; both cost one test where no
// profile is on.
double             tni_host_clock(const tn_ctx *cx);
static inline void tni_host_worked(tn_ctx *cx, tni_host_work what, int64_t bytes, double since)
{
    if (cx->engine->watch & TNI_WATCH_TIMES)
        cx->engine->observer->host_worked(cx, what, bytes, since);
}

// The only observer: inspect/observer.c.
extern const tni_observer tni_observer_inspect;

#endif
