// Preparing a plan: before it runs, the device gets its kernels and calls. A kernel that spills
// registers is split by another plan of the same graph, which takes the place of the first in the
// cache: see cut_while_spilling.
//
// When kernels are compiled is up to the device. One with compile_on_second_run (the cpu, which
// interprets a kernel until its C is compiled) is only asked for kernels on disk or in this process
// before the first run of a plan, and to compile at the second run, since most plans run once. A
// plan whose ops were seen with other sizes (recurs) counts as run before.
#include "engine/observer.h"

// Rounds of splitting. Each halves the largest kernels; what still spills after the last runs as it
// is. A limit, so that a kernel that no cut helps does not compile forever.
enum { ROUNDS = 6 };

// ---- limits ------------------------------------------------------------------------------------

// Whether the results of a library call may have strides, for the planner.
static bool writes_strided(const void *device, int op)
{
    return tni_device_impl(device, op)->strided;
}

// What the device could do otherwise for a call, for the planner.
static unsigned find_others(const void *device, const tni_call *c)
{
    const tni_op_impl *impl = tni_device_impl(device, c->op);
    return impl->others ? impl->others(c) : 0;
}

// Whatever is watched, or run op by op, is not fused with library calls, and every step counts as
// fallible, since an observer may refuse a value. Fusion may use 24 buffers of the 32 that a kernel
// can have: more inputs and outputs in one kernel save launches, but take registers and arguments.
tni_limits tni_limits_of(const tni_engine *e)
{
    const tni_device *d       = e->device;
    bool              watched = e->watch & (TNI_WATCH_CALLS | TNI_WATCH_VALUES);
    bool              by_op   = e->eager || e->watch & TNI_WATCH_CALLS;
    return (tni_limits){ .element_size = d->memory->element_size,
                         .kernels      = e->kernels->launch != NULL,
                         .fuses        = !by_op,
                         .doubles      = !e->kernels->doubles || e->kernels->doubles(e->session),
                         .checked      = watched,
                         .loads_before_stores = e->kernels->loads_before_stores,
                         .async_errors        = e->events->failed != NULL,
                         .row_bytes           = watched || by_op ? 0 : d->calls->row_bytes,
                         .buffers             = 24,
                         .lanes               = e->kernels->lanes,
                         .takes               = watched || by_op ? NULL : d->calls->takes,
                         .session             = e->session,
                         .strided             = watched || by_op ? NULL : writes_strided,
                         .others              = watched || by_op ? NULL : find_others,
                         .device              = d,
                         .chip                = watched || by_op || !e->kernels->chip
                                                    ? NULL
                                                    : e->kernels->chip(e->session, e->threads) };
}

// ---- entries -----------------------------------------------------------------------------------

// The launch of a kernel before it has addresses: it knows the threads of the context, by which the
// cpu looks for settings.
static const tni_launch *first_launch(const tni_engine *e, tni_planned_kernel *k)
{
    k->launch.threads = e->threads;
    return &k->launch;
}

// Gives all kernels of a plan to the device. If it is out of memory, cached free blocks are
// returned to it first.
static tn_status find_entries(tn_ctx *cx, tni_plan *p, const tni_launch **first, void **entry,
                              bool wait, tni_text *why)
{
    const tni_engine *e = cx->engine;
    tn_status         s;
    for (size_t i = 0; i < p->kernels; i++) first[i] = first_launch(e, &p->kernel[i]);
    do s = e->kernels->prepare(e->session, (int)p->kernels, first, entry, wait, why);
    while (s == TN_EMEM && tni_buffers_trim(&cx->buffers));
    return s;
}

// Uses the kernels of a plan that are compiled already, in this process or on disk, and begins no
// compilation. Failing to do so costs only time.
static void recall_kernels(tn_ctx *cx, tni_plan *p)
{
    const tni_engine  *e     = cx->engine;
    const tni_launch **first = tni_alloc(&cx->heap, p->kernels * sizeof *first + 1);
    void             **entry = tni_alloc(&cx->heap, p->kernels * sizeof *entry + 1);
    if (first && entry) {
        for (size_t i = 0; i < p->kernels; i++) first[i] = first_launch(e, &p->kernel[i]);
        e->kernels->recall(e->session, (int)p->kernels, first, entry);
        for (size_t i = 0; i < p->kernels; i++) p->kernel[i].entry = entry[i];
        p->scratch_known = false;
    }
    tni_free(&cx->heap, first);
    tni_free(&cx->heap, entry);
}

// Gives the kernels of a plan to the device, all at once so that it can compile them in parallel;
// with wait, returns only when they are compiled. False, reported, on failure.
static bool prepare_plan_kernels(tn_ctx *cx, tni_plan *p, bool wait)
{
    tni_text why = { "" };
    if ((p->prepared && !wait) || !p->kernels) return true;
    const tni_launch **first = tni_alloc(&cx->heap, p->kernels * sizeof *first);
    void             **entry = tni_alloc(&cx->heap, p->kernels * sizeof *entry);
    tn_status          s     = TN_EMEM;
    if (first && entry) s = find_entries(cx, p, first, entry, wait, &why);
    for (size_t i = 0; s == TN_OK && i < p->kernels; i++) p->kernel[i].entry = entry[i];
    p->prepared      = s == TN_OK;
    p->scratch_known = false;
    tni_free(&cx->heap, first);
    tni_free(&cx->heap, entry);
    if (s == TN_EMEM) tni_fail_memory(cx, "evaluating");
    else if (s != TN_OK) tni_fail_status(cx, s, "evaluating: %s", why.s);
    return p->prepared;
}

// Scratch is taken for the settings, and a winner that another context keeps before the launch may
// need more.
void tni_fix_settings(const tni_engine *e, tni_planned_kernel *k)
{
    if (!e->kernels->settings || !k->entry) return;
    k->launch.tuning = NULL;
    e->kernels->settings(e->session, k->entry, &k->launch, &k->settings);
    k->launch.tuning = &k->settings;
}

// Lets the device prepare an entry for each call that will run, by its shapes, once per plan.
static void prepare_calls(const tni_graph *g, tni_plan *p)
{
    const tni_engine *e = g->cx->engine;
    for (size_t i = 0; i < p->calls && !p->calls_prepared; i++) {
        tni_planned_call  *c    = &p->call[i];
        const tni_op_impl *impl = tni_device_impl(e->device, c->call.op);
        if (!impl->prepare || tni_runs_nothing(g, p->place, c->item)) continue;
        c->call.device  = e->device;
        c->call.session = e->session;
        c->call.threads = e->threads;
        c->call.attr    = &g->item[c->item].n->attr;
        c->call.entry   = impl->prepare(&c->call);
        c->forget       = impl->forget;
    }
    p->calls_prepared = true;
}

// Whether all kernels of a plan are compiled, which then stays so.
static bool is_ready(const tni_engine *e, const tni_plan *p)
{
    if (p->ready || !e->kernels->ready) return true;
    if (p->kernels && !p->prepared) return false;
    for (size_t i = 0; i < p->kernels; i++) {
        const tni_launch *first = &p->kernel[i].launch;
        if (!e->kernels->ready(e->session, 1, &first, &p->kernel[i].entry)) return false;
    }
    return true;
}

// Prepares the kernels of a plan: at once, or, if the device compiles on the second run, then. A
// plan whose ops were seen before with other sizes is one of a loop over sizes: it is prepared at
// its first run, together with the others of the loop that have waited.
static bool prepare_plan(tn_ctx *cx, tni_plan *p)
{
    const tni_engine *e     = cx->engine;
    bool              tunes = e->watch & TNI_WATCH_TUNES;
    bool              waits = e->kernels->compile_on_second_run && !e->compiles_first && !tunes;
    if (waits && p->runs == 0 && !p->recurs) {
        if (p->kernels && e->kernels->recall) recall_kernels(cx, p);
        return true;
    }
    if (waits && p->runs == 0) {
        const tni_plans *all = &e->plans;
        for (int i = 0; i < all->count; i++)
            if (all->plan[i]->ops_hash == p->ops_hash &&
                !prepare_plan_kernels(cx, all->plan[i], false))
                return false;
    }
    return prepare_plan_kernels(cx, p, tni_waits_for_compiler(e) && (!p->ready || tunes));
}

// ---- registers ---------------------------------------------------------------------------------

// Returns the bytes that the kernels of a plan spill in one run; spilled, if not NULL, gets those
// of each kernel.
static int64_t count_spills(const tni_engine *e, const tni_plan *p, int64_t *spilled)
{
    int64_t all = 0;
    for (size_t i = 0; i < p->kernels; i++) {
        const tni_planned_kernel *k = &p->kernel[i];
        tni_registers             r = e->kernels->registers(e->session, k->entry, &k->launch);
        int64_t                   n = tni_spilled_bytes(k, r.spilled);
        if (spilled) spilled[i] = n;
        all = n > INT64_MAX - all ? INT64_MAX : all + n;
    }
    return all;
}

// Keeps the partitions of a graph's items in its plan, if kernels were split, so that explain can
// plan the same graph again.
static bool keep_partition(const tni_graph *g, tni_plan *p)
{
    bool any = false;
    for (size_t i = 0; i < g->count; i++) any |= g->item[i].partition != 0;
    if (!any) return true;
    p->partition = tni_alloc(&g->cx->heap, g->count * sizeof *p->partition);
    if (!p->partition) return tni_no_memory(g->cx, "planning");
    for (size_t i = 0; i < g->count; i++) p->partition[i] = g->item[i].partition;
    return true;
}

tni_plan *tni_plan_again(tni_graph *g, const tni_choices *c)
{
    tn_ctx    *cx     = g->cx;
    tni_limits limits = tni_limits_of(cx->engine);
    tni_choose(g, c);
    tni_plan *p = tni_plan_build(g, &limits);
    if (p) p->choices = *c;
    if (p && keep_partition(g, p) && tni_deferred_errors_register(g, p) &&
        prepare_plan_kernels(cx, p, true))
        return p;
    tni_plan_free(&cx->heap, p);
    return NULL;
}

// Returns a plan that splits the kernels of p that spill, if it spills less; NULL otherwise, or on
// an error.
static tni_plan *cut_kernels(tni_graph *g, const tni_plan *p)
{
    tn_ctx  *cx      = g->cx;
    int64_t *spilled = tni_alloc(&cx->heap, p->kernels * sizeof *spilled + 1);
    if (!spilled) return tni_fail_memory(cx, "planning");
    int64_t all  = count_spills(cx->engine, p, spilled);
    bool    cuts = all && tni_split_kernels(g, p, spilled);
    tni_free(&cx->heap, spilled);
    tni_plan *q = cuts ? tni_plan_again(g, &p->choices) : NULL;
    if (!q || count_spills(cx->engine, q, NULL) < all) return q;
    tni_plan_free(&cx->heap, q);
    return NULL;
}

tni_errors tni_errors_now(const tn_ctx *cx)
{
    return (tni_errors){ cx->failures, cx->fault, tni_self };
}

void tni_errors_return(tn_ctx *cx, const tni_errors *e)
{
    if (cx->failures == e->failures) return;
    cx->failures    = e->failures;
    cx->fault       = e->fault;
    tni_self.latest = e->self.latest;
    tni_self.failed = e->self.failed;
}

// Replaces *p by plans with split kernels as long as each spills less than the one before. A plan
// that spills is still right, so errors on the way to a better one are not reported.
static void cut_while_spilling(tni_graph *g, tni_plan **p)
{
    tn_ctx    *cx     = g->cx;
    tni_errors before = tni_errors_now(cx);
    tni_plan  *q;
    for (int i = 0; i < ROUNDS && (q = cut_kernels(g, *p)) != NULL; i++) {
        tni_plans_replace(&cx->engine->plans, &cx->heap, *p, q);
        cx->engine->observer->plan_built(g, q);
        *p = q;
    }
    (*p)->spills_checked = true;
    tni_errors_return(cx, &before);
}

// Loops last: the plans of their bodies are prepared as this one is, by this function.
bool tni_prepare(tni_graph *g, tni_plan **p, bool kept)
{
    const tni_engine *e = g->cx->engine;
    if (tni_is_captured(e) && !(*p)->runs)
        return tni_refuse(g->cx, TN_EDEVICE,
                          "evaluating: while a CUDA graph is captured, only what has run before "
                          "with these shapes can run: run it once before the capture");
    if (!tni_deferred_errors_register(g, *p) || !prepare_plan(g->cx, *p)) return false;
    prepare_calls(g, *p);
    bool ready = true;
    if (!tni_prepare_loops(g, *p, &ready)) return false;
    (*p)->ready = is_ready(e, *p) && ready;
    if ((*p)->spills_checked || !(*p)->prepared || !(*p)->ready || !kept || tni_is_captured(e))
        return true;
    if (e->kernels->registers) cut_while_spilling(g, p);
    prepare_calls(g, *p);
    (*p)->ready = is_ready(e, *p) && ready;
    return true;
}
