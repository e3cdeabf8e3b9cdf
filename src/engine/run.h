// A plan being run, for whoever looks at values on the way.
#ifndef TNI_ENGINE_RUN_H
#define TNI_ENGINE_RUN_H

#include "engine/engine.h"

// A run of a plan over the graph it was made for: every piece of memory is there before the first
// step starts. data and input may also lie elsewhere than the plan says, as for a run on another
// device beside it; such a run has no buffers.
typedef struct {
    tn_ctx      *cx;
    tni_engine  *e;
    tni_graph   *g;
    tni_plan    *plan;
    tni_buffer  *arena, *scratch;
    tni_buffer **own;    // by item: the root's buffer
    char       **data;   // by item: where it lies
    char       **input;  // by input: where it lies; NULL: all in their own buffers
    tni_arg     *in;     // room for calls that are no steps of the plan; NULL: all are
    bool         bound;  // kernels have their addresses and numbers
} tni_run;

// Item i as a call of r's device: the plan's call, or one in r->in where that is there.
tni_call tni_run_call(const tni_run *r, size_t i, tni_text *why);
// Runs a step of r's plan, whose kernels need not be prepared, with scratch of its own. On failure, which
// is reported, *item is what failed.
tn_status tni_run_one_step(tni_run *r, tni_plan_step step, size_t *item);
// Room for the inputs of the widest op of the graph, and behind them for its further outputs; NULL when
// memory is out.
tni_arg *tni_run_inputs(const tni_run *r);

#endif
