// Steps of a plan that are run again with the arguments of an earlier run, all of them or all but a
// few.
#include "engine/run.h"

// Takes the call of an item as it ran. A step that runs nothing has none.
static void bind_call(const tni_run *r, tni_bound_step *s, size_t i, tni_loop_call *loop)
{
    const tni_node *n  = r->g->item[i].n;
    bool            in = n->op == TNI_update;
    if (tni_runs_nothing(r->g, r->plan->place, i)) return;
    if (in && tni_node_count(n->src[1]) == 0) return;
    s->calls     = true;
    s->call      = in ? tni_update_call(r, i, &s->value, NULL) : tni_run_call(r, i, NULL);
    s->arg       = in ? &s->value : r->plan->call[r->plan->place[i].call - 1].arg;
    s->attr      = n->attr;
    s->call.attr = &s->attr;
    if (in) s->call.nmore = 0;
    if (n->op != TNI_loop || !loop) return;
    *loop   = tni_loop_call_of(n);
    s->loop = loop;
}

int64_t tni_bind_steps(const tni_run *r, tni_bound_step *to, tni_loop_call *loop)
{
    int64_t launches = 0;
    for (size_t i = 0; i < r->plan->steps; i++) {
        tni_plan_step       step = r->plan->step[i];
        tni_planned_kernel *k    = step < 0 ? &r->plan->kernel[~step] : NULL;
        int32_t             item = k ? k->call_item : step;
        to[i]                    = (tni_bound_step){ .kernel = k, .room = r->plan->scratch };
        if (item >= 0) bind_call(r, &to[i], (size_t)item, loop ? &loop[i] : NULL);
        launches += k || to[i].calls;
    }
    return launches;
}

// A prologue is launched by the call of the next step. A kernel that found an index out of range
// says so in its launch.
tn_status tni_run_bound_step(tn_ctx *cx, tni_bound_step *s, tni_text *why)
{
    const tni_engine *e        = cx->engine;
    tn_status         st       = TN_OK;
    bool              reported = false;
    s->call.why                = why;
    if (s->kernel && s->calls)
        st = e->device->calls->run_with_epilogue(&s->call, s->kernel->entry, &s->kernel->launch,
                                                 why);
    else if (s->kernel && !s->kernel->is_prologue)
        st = e->kernels->launch(e->session, s->kernel->entry, &s->kernel->launch, why);
    else if (s->loop) st = tni_run_loop(cx, s->loop, &s->call, s->room, &reported);
    else if (s->calls) st = tni_call_run(&s->call);
    s->call.why = NULL;
    if (st == TN_OK && s->kernel && s->kernel->launch.fail[0]) st = TN_EARG;
    return st;
}
