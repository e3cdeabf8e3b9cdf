// A plan being run, for evaluate.c and for observers that look at its values.
#ifndef TNI_ENGINE_RUN_H
#define TNI_ENGINE_RUN_H

#include "engine/engine.h"
#include "ops/loop.h"

// A run of a plan over a graph with its key. inspect/verify.c also makes runs on another device,
// beside the real one: those set data and input to memory of their own and have no buffers.
// Invariant: all memory of the run is taken before its first step starts.
typedef struct {
    tn_ctx      *cx;
    tni_engine  *e;
    tni_graph   *g;
    tni_plan    *plan;
    tni_buffer  *arena, *scratch;
    tni_buffer **own;      // by item: the buffer of a root that is TNI_OWN; else NULL
    char       **data;     // by item: the address of its value; NULL if it is not in memory
    char       **input;    // by input: its address; NULL: every input is in its own buffer
    tni_arg     *in;       // room for arguments of calls that are no steps of the plan, or NULL
    bool         bound;    // kernels have the addresses and numbers of this run
    bool         in_loop;  // of a body, for one of many steps: inputs were made by the step before
    bool         lasts;    // its memory is kept for further runs: see executable.c
} tni_run;

// What a run of a loop needs of its node: the attributes, and the outputs of the body that are
// computed.
typedef struct {
    struct tni_attr_loop attr;
    int                  roots;
    tni_node            *root[TNI_LOOP_OUTPUTS];  // of the body, which the context keeps
} tni_loop_call;

// A step of a plan with all arguments of a run. Those of its kernel are in the plan, so that they
// are right until another run of it begins.
typedef struct {
    tni_planned_kernel *kernel;  // NULL: a call alone
    bool                calls;   // there is a call
    tni_call            call;
    tni_arg            *arg;    // its inputs, then its further outputs
    tni_arg             value;  // of an update
    tni_attr            attr;
    tni_loop_call      *loop;   // NULL: the call is of no loop
    size_t              room;   // bytes of its scratch
    bool                moves;  // an argument differs from run to run: see repeat.c
} tni_bound_step;

// Takes all memory of a run and finds every address. False, reported, when there is not enough.
bool tni_run_take_memory(tni_run *r);
// Releases what the run holds of it, and its lists.
void tni_run_release_memory(tni_run *r);
// Submits the steps of a run. On failure, which is reported, *item is the item at fault.
bool tni_run_submit(tn_ctx *cx, tni_run *r, size_t *item);
// Writes the steps of a plan as a run bound them, when it has been submitted, and those of loops as
// `loop` has room for: one for each step, or NULL if there is no loop. Returns the number of
// launches.
int64_t tni_bind_steps(const tni_run *r, tni_bound_step *step, tni_loop_call *loop);
// Runs such a step again. Not reported, but for errors of a loop.
tn_status tni_run_bound_step(tn_ctx *cx, tni_bound_step *s, tni_text *why);

// Describes item i as a call of r's device with the addresses of this run: the plan's call, or, if
// r->in is set, one made from its node.
tni_call tni_run_call(const tni_run *r, size_t i, tni_text *why);
// Describes the copy that an update in place is, of item i: its value into the elements of its
// view. *value: its input.
tni_call tni_update_call(const tni_run *r, size_t i, tni_arg *value, tni_text *why);
// Lets `submit` launch the steps of a plan. A device with replay gets to know where the run begins
// and ends; it may capture the steps as a graph, or launch a captured one instead, and may ask for
// the steps once more. A watched run is never replayed. resumes: the steps that differ from the
// last run are known; `submit` learns whether these are enough. It calls tni_mark_step before each
// step. False, reported, on failure.
bool tni_submit_plan(tn_ctx *cx, tni_plan *p, bool resumes,
                     bool (*submit)(void *arg, bool changed_only), void *arg);
// Says which step of the plan is submitted next.
static inline void tni_mark_step(const tni_engine *e, size_t step)
{
    if (e->replay->step) e->replay->step(e->session, step);
}
// Shows a run that succeeded to what repeats it; stays: the next may be like it, by a plan that is
// kept, and nothing was measured.
void tni_repeat_note(tni_repeat *t, const tni_run *r, bool stays);
// Runs one step of r's plan by itself, with kernels compiled and scratch taken for it alone. On
// failure, which is reported, *item is the item that failed.
tn_status tni_run_one_step(tni_run *r, tni_plan_step step, size_t *item);
// Runs one step; on failure, which is reported, *item is the item that failed.
tn_status tni_run_plan_step(const tni_run *r, tni_plan_step step, size_t *item);
// Returns the address of item i; those of the items before it are known.
char *tni_find_data(const tni_run *r, size_t i);
// Fixes the settings of a kernel for a run, before its scratch is asked for; winners that are kept
// from then on count in the next.
void tni_fix_settings(const tni_engine *e, tni_planned_kernel *k);
// Returns the scratch of the largest step.
size_t tni_run_scratch(tni_run *r);

// Loops (run_loop.c): makes the bodies of a plan's loops ready to run, and clears *ready if one is
// still compiled; what a loop's node says; the scratch of a loop; its run, by the call that
// describes it, in `room` bytes of scratch. *reported: an error was.
bool          tni_prepare_loops(const tni_graph *g, tni_plan *p, bool *ready);
tni_loop_call tni_loop_call_of(const tni_node *n);
size_t        tni_loop_scratch(tn_ctx *cx, const tni_loop_call *l);
tn_status     tni_run_loop(tn_ctx *cx, const tni_loop_call *l, const tni_call *c, size_t room,
                           bool *reported);

// Returns room for the arguments of any call of the graph; NULL when memory is out. The caller
// frees it.
tni_arg *tni_run_inputs(const tni_run *r);

#endif
