// Before a plan runs: the device meets its kernels, and one that a thread's registers do not hold is cut
// in two by another plan, which takes the place of the first.
#include "engine/observer.h"

// Plans in a row that cut further: what spills after the last simply runs.
enum { ROUNDS = 6 };

// ---- entries -----------------------------------------------------------------------------------

static tn_status find_entries(tn_ctx *cx, tni_plan *p, const tni_launch **first, void **entry,
                              bool wait, tni_text *why)
{
    const tni_engine *e = cx->engine;
    tn_status         s;
    for (size_t i = 0; i < p->kernels; i++) first[i] = &p->kernel[i].launch;
    do s = e->kernels->prepare(e->session, (int)p->kernels, first, entry, wait, why);
    while (s == TN_EMEM && tni_buffers_trim(&cx->buffers));
    return s;
}

// What of a plan's kernels is compiled already, in this process or on disk.
static void recall_kernels(tn_ctx *cx, tni_plan *p)
{
    const tni_engine  *e     = cx->engine;
    const tni_launch **first = tni_alloc(&cx->heap, p->kernels * sizeof *first + 1);
    void             **entry = tni_alloc(&cx->heap, p->kernels * sizeof *entry + 1);
    if (first && entry) {
        for (size_t i = 0; i < p->kernels; i++) first[i] = &p->kernel[i].launch;
        e->kernels->recall(e->session, (int)p->kernels, first, entry);
        for (size_t i = 0; i < p->kernels; i++) p->kernel[i].entry = entry[i];
        p->measured = false;
    }
    tni_free(&cx->heap, first);
    tni_free(&cx->heap, entry);
}

// The device meets the kernels of a plan, all at once, and has compiled them if that is waited for.
static bool prepare_kernels(tn_ctx *cx, tni_plan *p, bool wait)
{
    tni_text why = { "" };
    if ((p->prepared && !wait) || !p->kernels) return true;
    const tni_launch **first = tni_alloc(&cx->heap, p->kernels * sizeof *first);
    void             **entry = tni_alloc(&cx->heap, p->kernels * sizeof *entry);
    tn_status          s     = TN_EMEM;
    if (first && entry) s = find_entries(cx, p, first, entry, wait, &why);
    for (size_t i = 0; s == TN_OK && i < p->kernels; i++) p->kernel[i].entry = entry[i];
    p->prepared = s == TN_OK;
    p->measured = false;
    tni_free(&cx->heap, first);
    tni_free(&cx->heap, entry);
    if (s == TN_EMEM) tni_fail_memory(cx, "evaluating");
    else if (s != TN_OK) tni_fail_status(cx, s, "evaluating: %s", why.s);
    return p->prepared;
}

// The device meets the calls of a plan, by their shapes.
static void prepare_calls(const tni_graph *g, tni_plan *p)
{
    const tni_engine *e = g->cx->engine;
    for (size_t i = 0; i < p->calls && !p->called; i++) {
        tni_planned_call  *c    = &p->call[i];
        const tni_op_impl *impl = tni_device_impl(e->device, c->call.op);
        if (!impl->prepare) continue;
        c->call.device  = e->device;
        c->call.session = e->session;
        c->call.threads = e->threads;
        c->call.attr    = &g->item[c->item].n->attr;
        c->call.entry   = impl->prepare(&c->call);
        c->forget       = impl->forget;
    }
    p->called = true;
}

// Whether the kernels of a plan are compiled, which stays so. A plan of none is ready.
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

// A plan of a loop over sizes brings those along that have waited.
static bool prepare(tn_ctx *cx, tni_plan *p)
{
    const tni_engine *e     = cx->engine;
    bool              waits = e->kernels->compile_on_second_run && !e->compiles_first;
    if (waits && p->runs == 0 && !p->recurs) {
        if (p->kernels && e->kernels->recall) recall_kernels(cx, p);
        return true;
    }
    if (waits && p->runs == 0) {
        const tni_plans *all = &e->plans;
        for (int i = 0; i < all->count; i++)
            if (all->plan[i]->ops_hash == p->ops_hash && !prepare_kernels(cx, all->plan[i], false))
                return false;
    }
    return prepare_kernels(cx, p, tni_waits_for_compiler(e) && !p->ready);
}

// ---- registers ---------------------------------------------------------------------------------

// What a plan spills in all, in bytes, and each of its kernels, unless `spilled` is NULL.
static int64_t weigh(const tni_engine *e, const tni_plan *p, int64_t *spilled)
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

static bool keep_parts(const tni_graph *g, tni_plan *p)
{
    p->part = tni_alloc(&g->cx->heap, g->count * sizeof *p->part);
    if (!p->part) return tni_no_memory(g->cx, "planning");
    for (size_t i = 0; i < g->count; i++) p->part[i] = g->item[i].part;
    return true;
}

// Another plan for the graph, by the parts of its items as they are now, ready to run.
static tni_plan *plan_again(tni_graph *g)
{
    tn_ctx    *cx     = g->cx;
    tni_limits limits = tni_limits_of(cx->engine);
    tni_plan  *p      = tni_plan_build(g, &limits);
    if (p && keep_parts(g, p) && tni_deferred_errors_register(g, p) && prepare_kernels(cx, p, true))
        return p;
    tni_plan_free(&cx->heap, p);
    return NULL;
}

// A plan that cuts what spills of a plan, and spills less; NULL if there is none, or on an error.
static tni_plan *cut_kernels(tni_graph *g, const tni_plan *p)
{
    tn_ctx  *cx      = g->cx;
    int64_t *spilled = tni_alloc(&cx->heap, p->kernels * sizeof *spilled + 1);
    if (!spilled) return tni_fail_memory(cx, "planning");
    int64_t all  = weigh(cx->engine, p, spilled);
    bool    cuts = all && tni_split_kernels(g, p, spilled);
    tni_free(&cx->heap, spilled);
    tni_plan *q = cuts ? plan_again(g) : NULL;
    if (!q || weigh(cx->engine, q, NULL) < all) return q;
    tni_plan_free(&cx->heap, q);
    return NULL;
}

// A plan that spills runs too, so what fails on the way to a better one is no one's concern.
static void look_at_registers(tni_graph *g, tni_plan **p)
{
    tn_ctx    *cx       = g->cx;
    uint64_t   failures = cx->failures;
    tni_fault  fault    = cx->fault;
    tni_thread self     = tni_self;
    tni_plan  *q;
    for (int i = 0; i < ROUNDS && (q = cut_kernels(g, *p)) != NULL; i++) {
        tni_plans_replace(&cx->engine->plans, &cx->heap, *p, q);
        cx->engine->observer->plan_built(g, q);
        *p = q;
    }
    (*p)->weighed = true;
    if (cx->failures == failures) return;
    cx->failures    = failures;
    cx->fault       = fault;
    tni_self.latest = self.latest;
    tni_self.failed = self.failed;
}

bool tni_prepare(tni_graph *g, tni_plan **p, bool kept)
{
    const tni_engine *e = g->cx->engine;
    if (!tni_deferred_errors_register(g, *p) || !prepare(g->cx, *p)) return false;
    prepare_calls(g, *p);
    (*p)->ready = is_ready(e, *p);
    if ((*p)->weighed || !(*p)->prepared || !(*p)->ready || !kept) return true;
    if (e->kernels->registers) look_at_registers(g, p);
    prepare_calls(g, *p);
    (*p)->ready = is_ready(e, *p);
    return true;
}
