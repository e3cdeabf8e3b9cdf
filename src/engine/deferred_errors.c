// Deferred errors: indices out of range on a device that reports them later, when the graph they
// were in is gone.
//
// Every kernel or call that can fail has a ticket, and the plan keeps the message for it. The
// device writes the ticket and the index where a check fails; the next evaluation, read or tn_sync
// finds and reports it. Until then later work may already be launched. Kernels that overwrite
// values which outlive the evaluation are therefore guarded: once a check has failed, they do
// nothing until it is reported, so that a failed step changes nothing.
#include "engine/engine.h"

#include "dist/world.h"

// ---- taking ------------------------------------------------------------------------------------

// Describes the index of an item: what its message will say.
static tni_deferred_error describe_error(tni_graph *g, int32_t item, int ins, int ticket)
{
    const tni_node *n    = g->item[item].n;
    int             axis = n->attr.axis.axis;
    return (tni_deferred_error){ .ticket = ticket,
                                 .ins    = ins,
                                 .op     = n->op,
                                 .axis   = axis,
                                 .size   = n->src[0]->size[axis],
                                 .site   = n->site };
}

// Returns the next ticket. Numbers wrap around; an old failure under the same number has been
// reported by then.
static int next_ticket(tni_engine *e)
{
    return 1 + (int)(e->tickets++ % TNI_TICKETS);
}

// Counts the checks of a kernel and, if `to` is not NULL, writes their messages there and gives the
// kernel a ticket.
static size_t errors_of_kernel(tni_graph *g, tni_plan *p, size_t k, tni_deferred_error *to)
{
    tni_planned_kernel *f = &p->kernel[k];
    size_t              n = 0;
    for (int i = 0; i < f->kernel->nins; i++) {
        if (f->kernel->ins[i].code != TNI_I_CHECK) continue;
        if (to) {
            if (!n) f->launch.ticket = next_ticket(g->cx->engine);
            to[n]        = describe_error(g, f->origin[i], 1 + i, f->launch.ticket);
            to[n].kernel = (int32_t)k;
        }
        n++;
    }
    return n;
}

// The same for an item that is run by a call.
static size_t errors_of_item(tni_graph *g, int32_t item, tni_deferred_error *to)
{
    if (item < 0 || tni_op_table[g->item[item].n->op].fails != TNI_FAILS_INDEX) return 0;
    if (!tni_node_may_fail(g->item[item].n)) return 0;
    if (to) {
        *to        = describe_error(g, item, 1, next_ticket(g->cx->engine));
        to->kernel = ~item;
    }
    return 1;
}

// The same for a whole plan: called once to count, once to write.
static size_t errors_of_plan(tni_graph *g, tni_plan *p, tni_deferred_error *to)
{
    size_t n = 0;
    for (size_t k = 0; k < p->kernels; k++) n += errors_of_kernel(g, p, k, to ? to + n : NULL);
    for (size_t t = 0; t < p->steps; t++) n += errors_of_item(g, p->step[t], to ? to + n : NULL);
    return n;
}

// Whether a kernel overwrites a value that a failed step has to leave as it was: it writes into an
// input's buffer. What is computed into the place of an update is not held back, as the update's
// own copy is not: no step of its plan can fail.
static bool writes_lasting(const tni_plan *p, const tni_planned_kernel *k)
{
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        int32_t          at = k->buffer[i];
        const tni_place *x  = at < 0 ? NULL : &p->place[at];
        if (!k->kernel->buffer[i].written || (x && x->into)) continue;
        if (!x || x->where == TNI_INPUT || (x->where == TNI_OWN && p->place[x->root].donated))
            return true;
    }
    return false;
}

// Counts first, so that the list is allocated once; then writes the messages and guards the kernels
// that need it.
bool tni_deferred_errors_register(tni_graph *g, tni_plan *p)
{
    tni_engine *e = g->cx->engine;
    if (!e->events->failed || p->errors_registered) return true;
    size_t n = errors_of_plan(g, p, NULL);
    p->error = n ? tni_alloc(&g->cx->heap, n * sizeof *p->error) : NULL;
    if (n && !p->error) return tni_no_memory(g->cx, "evaluating");
    if (n) p->errors = errors_of_plan(g, p, p->error);
    for (size_t k = 0; k < p->kernels; k++)
        p->kernel[k].kernel->guarded = writes_lasting(p, &p->kernel[k]);
    p->errors_registered = true;
    return true;
}

int tni_deferred_error_ticket(const tni_plan *p, size_t item)
{
    for (size_t i = 0; i < p->errors; i++)
        if (p->error[i].kernel == ~(int32_t)item) return p->error[i].ticket;
    return 0;
}

// ---- telling -----------------------------------------------------------------------------------

// Finds the message of a ticket, in the plan that was used last if several have it; NULL if that
// plan is gone.
static const tni_deferred_error *find_error(const tni_engine *e, int ticket, int64_t ins)
{
    const tni_deferred_error *found = NULL;
    uint64_t                  used  = 0;
    for (int i = 0; i < e->plans.count; i++) {
        const tni_plan *p = e->plans.plan[i];
        for (size_t k = 0; k < p->errors; k++) {
            const tni_deferred_error *n = &p->error[k];
            if (n->ticket != ticket || n->ins != ins || p->used < used) continue;
            found = n;
            used  = p->used;
        }
    }
    return found;
}

// The device keeps the first failure only, until it is asked. If the plan has been freed meanwhile,
// the message has no op and line.
tn_status tni_deferred_errors_check(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    tni_text    why;
    int         ticket;
    int64_t     fail[2];
    if (cx->world && tni_dist_lost(cx, &why))
        return tni_fail_status(cx, TN_EDEVICE, "an earlier step: %s", why.s);
    if (!e->events->failed || !e->events->failed(e->session, &ticket, fail)) return TN_OK;
    const tni_deferred_error *n = find_error(e, ticket, fail[0]);
    if (!n)
        return tni_fail_status(cx, TN_EARG, "an earlier step: index %lld was out of range",
                               (long long)fail[1]);
    return tni_fail_status(cx, TN_EARG,
                           "%s: index %lld is out of range for size %lld along axis %d "
                           "(recorded at %s)",
                           n->site.op ? n->site.op : tni_op_table[n->op].name, (long long)fail[1],
                           (long long)n->size, n->axis, tni_site_text(&n->site).s);
}
