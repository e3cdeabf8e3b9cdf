// Looking at what the engine does: explaining plans, timing and checking steps, reporting memory.
// Above the engine, which reports its work to an observer (engine/observer.h).
#ifndef TNI_INSPECT_H
#define TNI_INSPECT_H

#include "base/json.h"
#include "engine/observer.h"

#include <stdio.h>

typedef struct tni_profile tni_profile;  // profile.h
typedef struct tni_tuner   tni_tuner;    // tune.c

// What is kept for a context, which owns it.
struct tni_inspect {
    bool            log_plans;     // TN_LOG has "plan"
    char            explain[512];  // TN_EXPLAIN: where new plans are printed; "": nowhere
    tni_profile    *profile;       // NULL before the first
    tni_json_writer pages;         // plans as JSON, if explain is a page: see explain.h
    int             plans, left;   // how many, and how many more were left out
    tni_tuner      *tuner;         // NULL before anything is tuned
};

// Prints what a plan for a graph does; source: with the text of its kernels. False when memory is
// out.
bool tni_explain(tni_graph *g, const tni_plan *p, FILE *f, tn_explain_opts o);

// The bytes of the arena that are in use at each step of a plan; and the most of them, which is the
// least that an arena for this order of steps could have. False and -1 when memory is out.
bool    tni_arena_use(const tni_graph *g, const tni_plan *p, int64_t *at_step);
int64_t tni_arena_bound(const tni_graph *g, const tni_plan *p);
// The memory of a plan by what it is for, without its peak, while its graph is open; false when
// memory is out.
bool tni_memory_by_owner(tni_graph *g, const tni_plan *p, int64_t workspace, tn_plan_memory *m);

// TN_EXPLAIN and TN_LOG: read as a context opens; a plan was built for this graph.
void tni_plan_log_open(tni_inspect *to);
void tni_plan_log(tni_graph *g, const tni_plan *p);
void tni_plan_log_close(tn_ctx *cx);  // writes the page of plans

// TN_PROFILE: read as a context opens, written as it closes.
void tni_profile_open(tn_ctx *cx);
void tni_profile_close(tn_ctx *cx);

// TN_TUNE: read as a context opens; freed as it closes.
void tni_tune_open(tn_ctx *cx);
void tni_tune_close(tn_ctx *cx);
// The choices of a plan in words, by the values of its graph: "cut sum (64,) (recorded at
// model.c:12)".
tni_text tni_choices_text(const tni_graph *g, const tni_choices *c);
// For tests: makes the launch of a candidate, or the plan with a choice, wrong; NULL: nothing does.
extern void (*tni_tune_spoil)(tni_launch *l);
extern void (*tni_tune_spoil_plan)(tni_plan *p);

// See tni_observer: TN_CHECK=nan looks at the results of calls, TN_VERIFY=1 compares steps with
// ref, a profile times them.
tn_status        tni_check_call(tn_ctx *cx, const tni_node *n, const tni_call *c);
void            *tni_verify_before(const tni_run *r, tni_plan_step step);
tn_status        tni_verify_after(void *begun, tn_status s, size_t *item);
void             tni_profile_start(const tni_run *r);
void             tni_profile_step(const tni_run *r, tni_plan_step step);
void             tni_profile_stop(const tni_run *r);
void             tni_profile_host(tn_ctx *cx, tni_host_work what, int64_t bytes, double since);
bool             tni_plan_tunes(tni_graph *g, tni_plan **p);
void             tni_tuning_begins(const tni_run *r);
void             tni_kernel_tunes(const tni_run *r, tni_planned_kernel *k);
tni_call_search *tni_call_tunes(const tni_run *r, tni_plan_step step, const tni_call *c);
void             tni_call_searched(const tni_run *r);
void             tni_tuning_ends(const tni_run *r);
void            *tni_oom_report(tn_ctx *cx, const char *op, const char *what, int64_t bytes);

#endif
