// What the engine tells whoever looks at its work (inspect/): plans that were built, runs, steps and calls
// that were done, memory that ran out. The engine does not know what is made of it, and a context whose
// engine has no `watch` bits pays one test a run.
#ifndef TNI_ENGINE_OBSERVER_H
#define TNI_ENGINE_OBSERVER_H

#include "engine/run.h"

// What an observer wants to be told, and what that means for how a plan is made and run:
//   CALLS   every op is a kernel or a call of its own, and the observer sees each result
//   VALUES  the observer sees each step before and after it ran; results that the plan would never
//           store (a library call's, before its epilogue) are stored
//   TIMES   the observer is told when each step of a run was launched
// Under VALUES and TIMES kernels are compiled before they run; none of them is replayed as a graph.
enum { TNI_WATCH_CALLS = 1, TNI_WATCH_VALUES = 2, TNI_WATCH_TIMES = 4 };

// Whether nothing runs that is not compiled: what is measured or compared is what was.
static inline bool tni_waits_for_compiler(const tni_engine *e)
{
    return e->compiles_first || e->watch & (TNI_WATCH_VALUES | TNI_WATCH_TIMES);
}

struct tni_observer {
    // A context opens, once it has its device: reads the environment and sets engine->watch. False when
    // memory is out.
    bool (*open)(tn_ctx *cx);
    // A context begins to close. What frees its layers may still evaluate: engine->inspect is freed last.
    void (*close)(tn_ctx *cx);
    void (*plan_built)(tni_graph *g, const tni_plan *p);
    // CALLS: call c of node n was run. An error, reported, ends the evaluation.
    tn_status (*call_ran)(tn_ctx *cx, const tni_node *n, const tni_call *c);
    // VALUES: before a step runs; NULL, reported, on failure. Then step_ran gets what that returned,
    // always, with the step's status, and returns the status of both; *item is the item at fault.
    void *(*step_begins)(const tni_run *r, tni_plan_step step);
    tn_status (*step_ran)(void *begun, tn_status s, size_t *item);
    // TIMES: a run begins, a step of it was launched, it ends.
    void (*run_begins)(const tni_run *r);
    void (*step_launched)(const tni_run *r, tni_plan_step step);
    void (*run_ends)(const tni_run *r);
    // Reports that there is no device memory for `what`: how much was asked for, how much there is, and
    // which tensors have most of it. Returns NULL.
    void *(*out_of_memory)(tn_ctx *cx, const char *op, const char *what, int64_t bytes);
};

// The one there is: inspect/observer.c.
extern const tni_observer tni_observer_inspect;

#endif
