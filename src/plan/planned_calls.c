// The calls of a plan: everything that is known of their arguments before they have addresses. It
// follows from the key, so it is written once per plan; engine/evaluate.c adds the addresses in
// each run (bind_call).
#include "plan/plan.h"

#include <string.h>

static void set_shape(tni_arg *a, const tni_view *v)
{
    a->rank = v->rank;
    memcpy(a->size, v->size, sizeof a->size);
    memcpy(a->stride, v->stride, sizeof a->stride);
}

// Describes an input by the layout of its node, which may be a strided or broadcast view.
static tni_arg source_arg(const tni_node *src)
{
    tni_view v = tni_node_layout(src);
    tni_arg  a = { .dtype = (tn_dtype)src->dtype };
    set_shape(&a, &v);
    return a;
}

// Describes an output: row-major, whole.
static tni_arg result_arg(const tni_node *n)
{
    tni_view v = tni_view_whole(n->rank, n->size);
    tni_arg  a = { .dtype = (tn_dtype)n->dtype };
    set_shape(&a, &v);
    return a;
}

// Gives the result of a product or a reduction the rank that device.h promises: nodes may drop
// reduced axes or the axes of a vector.
static void full_shape(const tni_node *n, tni_arg *out)
{
    bool    product = tni_is_matmul(n->op);
    int64_t size[TN_MAX_RANK];
    if (!product && tni_op_table[n->op].class != TNI_REDUCE) return;
    const tni_node *x = n->src[0], *y = n->src[n->nsrc - 1];
    for (int i = 0; i < x->rank; i++)
        size[i] = !product && n->attr.reduce.axes >> i & 1 ? 1 : x->size[i];
    if (product) size[x->rank - 1] = y->size[y->rank - 1];
    tni_view v = tni_view_whole(x->rank, size);
    set_shape(out, &v);
}

// Repeats a single element over the shape of a map's result, by strides of 0.
static void broadcast_scalar(tni_arg *a, const tni_arg *out)
{
    if (a->rank > 0 || out->rank == 0) return;
    a->rank = out->rank;
    memcpy(a->size, out->size, sizeof a->size);
    memset(a->stride, 0, sizeof a->stride);
}

size_t tni_call_args(const tni_node *n)
{
    return n->nsrc + (size_t)tni_outputs_of(n->op, &n->attr) - 1;
}

// An assignment that runs is a copy. Outputs that have no node keep a zeroed argument without an
// address: the device leaves them out.
tni_call tni_call_of(const tni_node *n, tni_arg *arg)
{
    tni_arg *more = arg + n->nsrc;
    tni_call c    = { .op    = n->op == TNI_assign ? TNI_copy : n->op,
                      .nin   = (int)n->nsrc,
                      .in    = arg,
                      .out   = result_arg(n),
                      .nmore = tni_outputs_of(n->op, &n->attr) - 1,
                      .more  = more,
                      .attr  = &n->attr };
    full_shape(n, &c.out);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        arg[s] = source_arg(n->src[s]);
        if (tni_is_map(n->op)) broadcast_scalar(&arg[s], &c.out);
    }
    memset(more, 0, (size_t)c.nmore * sizeof *more);
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        more[o->attr.output.index - 1] = result_arg(o);
    return c;
}

// Notes that a step makes an item and the other outputs of its op. made[i] is 0 before item i is
// made.
static void note_made(const tni_graph *g, uint32_t *made, int32_t item, size_t step)
{
    made[item] = (uint32_t)step + 1;
    for (const tni_node *o = tni_outputs(g->item[item].n); o; o = o->output)
        note_made(g, made, (int32_t)o->mark - 1, step);
}

static void note_step(const tni_graph *g, const tni_plan *p, uint32_t *made, size_t t)
{
    tni_plan_step             step = p->step[t];
    const tni_planned_kernel *k    = step < 0 ? &p->kernel[~step] : NULL;
    if (!k) note_made(g, made, step, t);
    else if (k->call_item >= 0) note_made(g, made, k->call_item, t);
    for (size_t i = 0; k && i < k->seeds; i++)
        if (k->seed[i] >= 0) note_made(g, made, k->seed[i], t);
}

// Returns the step that made the newest of what the kernel of step t reads, the result of its call
// apart; -1 if none did. A value that no step makes shares the place of one that does: it counts as
// made just now.
static int64_t newest_read(const tni_planned_kernel *k, const uint32_t *made, size_t t)
{
    int64_t newest = -1;
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        int32_t at = k->buffer[i];
        if (at < 0 || at == k->call_item || k->kernel->buffer[i].written) continue;
        int64_t step = made[at] ? (int64_t)made[at] - 1 : (int64_t)t;
        if (step > newest) newest = step;
    }
    return newest;
}

// Gives the call of step t the kernel of the step before, if that is left to it.
static void add_prologue(tni_plan *p, size_t t, tni_call *c)
{
    tni_planned_kernel *k = t && p->step[t - 1] < 0 ? &p->kernel[~p->step[t - 1]] : NULL;
    if (!k || !k->is_prologue) return;
    c->prologue        = &k->launch;
    c->prologue_kernel = &k->entry;
    c->prologue_kept   = k->prologue_kept;
}

// Adds the call of an item to the plan, with the kernel that runs with it, if any.
static bool add_call(const tni_graph *g, tni_plan *p, int32_t item, tni_planned_kernel *k)
{
    const tni_node   *n = g->item[item].n;
    tni_planned_call *c = &p->call[p->calls];
    c->item             = item;
    c->arg              = tni_alloc(&g->cx->heap, tni_call_args(n) * sizeof *c->arg + 1);
    if (!c->arg) return false;
    c->call = tni_call_of(n, c->arg);
    tni_pad_arg(g, p, n, &c->call.out);
    for (uint32_t s = 0; s < n->nsrc; s++) tni_pad_arg(g, p, n->src[s], &c->arg[s]);
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        tni_pad_arg(g, p, o, &c->arg[n->nsrc + o->attr.output.index - 1]);
    c->call.otherwise   = (uint8_t)(g->item[item].choices >> TNI_CHOICE_OTHER &
                                  ((1 << TNI_OTHERWISE_BITS) - 1));
    c->call.epilogue    = k ? &k->epilogue : NULL;
    c->call.launch      = k ? &k->launch : NULL;
    c->call.also_read   = k && !k->only_reader;
    p->place[item].call = (uint32_t)++p->calls;
    return true;
}

// Goes through the steps in order, with what they make noted.
bool tni_plan_calls(const tni_graph *g, tni_plan *p)
{
    tni_heap *h    = &g->cx->heap;
    uint32_t *made = tni_zalloc(h, g->count * sizeof *made + 1);
    p->call        = tni_zalloc(h, p->steps * sizeof *p->call + 1);
    bool ok        = made && p->call;
    for (size_t t = 0; ok && t < p->steps; t++) {
        tni_plan_step       step = p->step[t];
        tni_planned_kernel *k    = step < 0 ? &p->kernel[~step] : NULL;
        if (!k) ok = add_call(g, p, step, NULL);
        else if (k->call_item >= 0) ok = add_call(g, p, k->call_item, k);
        if (ok && k && k->call_item >= 0) {
            tni_call *c = &p->call[p->calls - 1].call;
            c->newest   = newest_read(k, made, t);
            add_prologue(p, t, c);
        }
        note_step(g, p, made, t);
    }
    tni_free(h, made);
    return ok;
}

void tni_plan_drop_calls(tni_heap *h, tni_plan *p)
{
    for (size_t i = 0; i < p->calls; i++) {
        if (p->call[i].call.entry) p->call[i].forget(p->call[i].call.entry);
        tni_free(h, p->call[i].arg);
    }
    tni_free(h, p->call);
}
