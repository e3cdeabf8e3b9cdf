// Builds the plan of a graph: tni_plan_build is where planning starts.
//
// 1. decide.c and fuse.c: how each item is computed, and what shares a kernel. The result is a list
//    of units, each one kernel or one call.
// 2. order_units.c: the order of the units; each kernel unit becomes a kernel (make_kernel.c,
//    unroll.c).
// 3. offer_epilogues.c: a library call and the kernel that reads its result become one step, if the
//    device takes the two.
// 4. pad_rows.c: which matrices have gaps between their rows.
// 5. memory.c: where every value is stored.
// 6. planned_calls.c: the calls, described by shapes and strides.
//
// A plan depends on the key of the graph (key.c), the limits of the device and the partitions and
// choices of the items (split.c, choices.c), and on nothing else, so that the cache may use it for
// every graph with that key.
#include "plan/fuse.h"

// Frees the kernels and steps of a plan, which may then be planned anew.
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

// Notes which values kernels store into the rows of a concat, for memory.c.
static void note_filled(const tni_fusion *f, tni_plan *p)
{
    for (size_t i = 0; i < f->g->count; i++) {
        uint32_t fills = f->decision[i].fills;
        if (!fills) continue;
        const tni_node *concat = f->g->item[fills - 1].n;
        if (tni_concat_is_flat(concat)) continue;
        p->place[i].pitch = tni_concat_row(concat, concat);
        p->place[i].row   = tni_node_count(f->g->item[i].n) /
                          (tni_node_count(concat) / p->place[i].pitch);
    }
}

// Finds the steps of a plan under some limits. False if memory is out (*failed is set), or if the
// units cannot be ordered or written as kernels.
static bool step_by_unit(tni_graph *g, tni_plan *p, const tni_limits *limits, bool *failed)
{
    tni_fusion f  = { .g = g, .limits = limits };
    bool       ok = tni_fuse(&f) && tni_order_units(&f, p) && tni_offer_epilogues(&f, p);
    if (ok) note_filled(&f, p);
    tni_fusion_close(&f);
    *failed = f.failed;
    return ok;
}

// Finds the steps of a plan, op by op if fusion fails. Two units may each need a result of the
// other by way of merges that the bounded search for cycles did not see, or a kernel may break a
// rule of kernel.h; op by op has neither problem, so an evaluation never fails because of fusion.
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

// Returns an empty plan with one place per item; its place list is NULL when memory is out.
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
    bool      ok = p && p->place && find_steps(g, p, limits);
    if (ok) tni_pad_rows(g, limits, p);
    ok = ok && tni_place_values(g, limits, p) && tni_plan_calls(g, p);
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
    for (size_t i = 0; i < p->segments; i++)
        if (p->forget) p->forget(p->segment[i]);
    tni_free(h, p->segment);
    tni_free(h, p->collective);
    tni_free(h, p->arrive);
    tni_free(h, p->key);
    tni_free(h, p->error);
    tni_free(h, p->place);
    tni_free(h, p->partition);
    tni_free(h, p);
}
