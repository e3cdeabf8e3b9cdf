// Builds a plan: decisions and units (fuse.c), their order (order_units.c), library calls with an epilogue
// (offer_epilogues.c), memory (memory.c), calls (planned_calls.c).
#include "plan/fuse.h"

static void free_steps(tni_heap *h, tni_plan *p)
{
    for (size_t i = 0; i < p->kernels; i++) {
        tni_free(h, p->kernel[i].kernel);
        tni_free(h, p->kernel[i].source);
        tni_free(h, p->kernel[i].number);
        tni_free(h, p->kernel[i].origin);
        tni_free(h, p->kernel[i].seed);
    }
    tni_free(h, p->kernel);
    tni_free(h, p->step);
    p->kernel  = NULL;
    p->step    = NULL;
    p->kernels = p->steps = 0;
}

static bool step_by_unit(tni_graph *g, tni_plan *p, const tni_limits *limits, bool *failed)
{
    tni_fusion f  = { .g = g, .limits = limits };
    bool       ok = tni_fuse(&f) && tni_order_units(&f, p) && tni_offer_epilogues(&f, p);
    tni_fusion_close(&f);
    *failed = f.failed;
    return ok;
}

// Op by op is always right: what fusion cannot order or write runs so.
static bool find_steps(tni_graph *g, tni_plan *p, const tni_limits *limits)
{
    tni_limits by_op = *limits;
    bool       failed;
    if (step_by_unit(g, p, limits, &failed)) return true;
    if (failed || !limits->fuses) return false;
    free_steps(&g->cx->heap, p);
    p->unfused  = true;
    by_op.fuses = false;
    by_op.takes = NULL;
    return step_by_unit(g, p, &by_op, &failed);
}

static tni_plan *new_plan(tni_graph *g)
{
    tni_heap *h = &g->cx->heap;
    tni_plan *p = tni_zalloc(h, sizeof *p);
    if (!p) return NULL;
    p->place = tni_zalloc(h, g->count * sizeof *p->place);
    p->count = g->count;
    return p;
}

tni_plan *tni_plan_build(tni_graph *g, const tni_limits *limits)
{
    tni_plan *p  = new_plan(g);
    bool      ok = p && p->place && find_steps(g, p, limits) && tni_place_values(g, limits, p) &&
              tni_plan_calls(g, p);
    g->cx->stats.plans += ok;
    if (ok) return p;
    tni_plan_free(&g->cx->heap, p);
    return tni_fail_memory(g->cx, "planning");
}

void tni_plan_free(tni_heap *h, tni_plan *p)
{
    if (!p) return;
    tni_plan_drop_calls(h, p);
    free_steps(h, p);
    if (p->forget) p->forget(p->replay);
    tni_free(h, p->key);
    tni_free(h, p->note);
    tni_free(h, p->place);
    tni_free(h, p->part);
    tni_free(h, p);
}
