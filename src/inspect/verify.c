// TN_VERIFY=1: every kernel and every call beside the reference device.
//
// The items that a step stands for are its group: those it stores, and those that are computed on
// the way and stay nowhere. Before the step runs, what it reads is copied, and the group is
// computed on ref, op by op, each value with a bound of how far a device may be from it
// (error_bound.c). After it ran, what it stored is compared. Where a kernel differs, its group is
// run op by op on the device itself: the first op that differs then is named, or, if none does, the
// kernel is at fault.
#include "inspect/error_bound.h"
#include "inspect/host_copy.h"
#include "inspect/inspect.h"

#include "device/ref/ref.h"

#include <math.h>
#include <stdlib.h>

// What becomes of an item while a group is verified.
enum {
    OUTSIDE,
    MEMBER,  // computed
    SHARE,   // of the group, in the place of its source
    LOADED   // read from memory
};

// A step and its group. ref is the run beside: its engine has the reference device, its data are
// cells. Owned by the run of the step, everything in it.
typedef struct {
    const tni_run *r;
    tni_plan_step  step;
    bool           on;  // there is something to compare
    tni_engine     engine;
    tni_run        ref;
    uint8_t       *role;    // by item
    double       **error;   // by item: bounds; NULL where it is exact
    void         **owned;   // by item, then by input: memory of this struct
    uint32_t      *member;  // the group, in id order
    size_t         members;
} verification;

// A value that differs, as a number. alone: what the device gives op by op where the kernel
// differs.
typedef struct {
    bool    found, has_alone;
    size_t  item;
    int64_t at;
    double  have, want, alone;
} difference;

static tni_heap *heap_of(const verification *v)
{
    return &v->r->cx->heap;
}

static tni_node *node_at(const verification *v, size_t i)
{
    return v->r->g->item[i].n;
}

static bool out_of_memory(const verification *v)
{
    return tni_no_memory(v->r->cx, "verify");
}

// ---- the group ---------------------------------------------------------------------------------

static const tni_planned_kernel *kernel_of(const verification *v)
{
    return v->step < 0 ? &v->r->plan->kernel[~v->step] : NULL;
}

// Returns whether the step reads item i from memory.
static bool is_loaded(const verification *v, int32_t i)
{
    const tni_planned_kernel *k = kernel_of(v);
    if (!k) return true;
    for (int b = 0; b < k->kernel->nbuffer; b++)
        if (k->buffer[b] == i) return true;
    return false;
}

// Returns what item i is to the group that reads it. OUTSIDE: the group cannot be computed.
static uint8_t role_of(const verification *v, size_t i)
{
    const tni_place *p      = &v->r->plan->place[i];
    int              op     = node_at(v, i)->op;
    bool             number = tni_is_number(op);
    if (v->step < 0 && (number || p->where == TNI_NOWHERE)) return MEMBER;
    if (is_loaded(v, (int32_t)i)) return LOADED;
    return op == TNI_assign && p->alias ? SHARE : OUTSIDE;
}

// Updates write in place, and custom ops are only defined by the user's code: neither has a
// reference.
static bool can_compare(int op)
{
    return op != TNI_update && op != TNI_custom && op != TNI_view;
}

// An item that cannot be computed or compared turns the comparison of this step off.
static void add_item(verification *v, size_t i, uint8_t role)
{
    v->role[i] = role;
    if (role == MEMBER || role == SHARE) v->member[v->members++] = (uint32_t)i;
    v->on &= role != OUTSIDE && (role == LOADED || can_compare(node_at(v, i)->op));
}

// Adds the items that item i reads. Inputs of the graph are found when they are read.
static void add_sources(verification *v, size_t i)
{
    const tni_node *n = node_at(v, i);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        if (n->src[s]->state != TNI_PENDING) continue;
        int32_t base = v->r->g->item[n->src[s]->mark - 1].base;
        if (base >= 0 && !v->role[base]) add_item(v, (size_t)base, role_of(v, (size_t)base));
    }
}

static int by_position(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

// Starts from what the step stores, follows sources until they are in memory, and sorts by id,
// which is an order of computation.
static void find_group(verification *v)
{
    const tni_planned_kernel *k = kernel_of(v);
    v->on                       = true;
    if (!k) add_item(v, (size_t)v->step, MEMBER);
    for (size_t i = 0; k && i < k->seeds; i++)
        add_item(v, (size_t)tni_seed_item(k->seed[i]), MEMBER);
    for (size_t i = 0; i < v->members && v->on; i++) add_sources(v, v->member[i]);
    qsort(v->member, v->members, sizeof *v->member, by_position);
}

// ---- on ref ------------------------------------------------------------------------------------

// Copies `count` consecutive elements at data to the host.
static void *copy_run(const verification *v, int dtype, char *data, int64_t count)
{
    tni_arg x = { .dtype = (tn_dtype)dtype, .rank = 1, .size = { count }, .stride = { 1 } }, y;
    x.data    = data;
    return tni_host_copy(heap_of(v), v->r->e, &x, &y);
}

// Copies item i of the run to the host, before the step can overwrite it.
static bool copy_item(verification *v, size_t i)
{
    v->owned[i] = copy_run(v, node_at(v, i)->dtype, v->r->data[i], tni_node_count(node_at(v, i)));
    v->ref.data[i] = v->owned[i];
    return v->owned[i] || out_of_memory(v);
}

static bool copy_input(verification *v, size_t i)
{
    size_t          at   = v->r->g->count + i;
    const tni_node *n    = v->r->g->input[i].n;
    size_t          size = v->r->e->device->memory->element_size((tn_dtype)n->dtype);
    if (v->owned[at]) return true;
    char *data      = n->buf->data + n->start * (int64_t)size;
    v->owned[at]    = copy_run(v, n->dtype, data, tni_node_count(n));
    v->ref.input[i] = v->owned[at];
    return v->owned[at] || out_of_memory(v);
}

static bool copy_sources(verification *v, size_t i)
{
    const tni_node *n  = node_at(v, i);
    bool            ok = true;
    for (uint32_t s = 0; s < n->nsrc && ok; s++) {
        int64_t   skip;
        tni_node *base = tni_node_base(n->src[s], &skip);
        size_t    at   = base->mark - 1;
        if (base->state != TNI_PENDING) ok = copy_input(v, at);
        else if (v->role[at] == LOADED && !v->owned[at]) ok = copy_item(v, at);
    }
    return ok;
}

// Finds the error bounds of what a call of item i reads: they have the layout of its values.
static void find_errors(const verification *v, size_t i, const tni_call *c, tni_arg *error)
{
    const tni_node *n = node_at(v, i);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int64_t   skip;
        tni_node *base = tni_node_base(n->src[s], &skip);
        size_t    at   = base->mark - 1;
        bool      some = base->state == TNI_PENDING && v->error[at];
        error[s]       = c->in[s];
        error[s].dtype = TN_F64;
        error[s].data  = NULL;
        if (some) error[s].data = (char *)v->error[at] + (c->in[s].data - v->ref.data[at]);
    }
}

// Allocates scratch for the call, as the run's device asks for it; false if memory is out.
static bool run_scratch(const tni_device *d, tni_call *c, void **scratch)
{
    size_t need = tni_call_scratch(c);
    *scratch    = need ? d->memory->alloc(c->session, need) : NULL;
    c->scratch  = *scratch;
    return !need || *scratch;
}

// Runs item i of the group on the run's device; TN_EMEM if there is no memory for it.
static tn_status run_on(const tni_run *r, size_t i, tni_call *c, tni_text *why)
{
    const tni_device *d = r->e->device;
    void             *scratch;
    tn_status         s = TN_EMEM;
    *c                  = tni_run_call(r, i, why);
    if (run_scratch(d, c, &scratch)) s = tni_call_run(c);
    if (scratch) d->memory->free(c->session, scratch);
    return s;
}

// An item that shares the place of its source has its source's values and errors.
static void share_item(verification *v, size_t i)
{
    int64_t   offset;
    tni_node *base = tni_node_base(node_at(v, i)->src[0], &offset);
    size_t    at   = base->mark - 1;
    if (base->state == TNI_PENDING) {
        v->ref.data[i] = v->ref.data[at] + offset * (int64_t)sizeof(tni_cell);
        v->error[i]    = v->error[at] ? v->error[at] + offset : NULL;
    } else {
        v->ref.data[i] = v->ref.input[at] + offset * (int64_t)sizeof(tni_cell);
    }
}

// Allocates cells for an item of the group, and for the other outputs of its op.
static bool alloc_item(verification *v, size_t i)
{
    v->role[i]  = MEMBER;
    v->owned[i] = tni_alloc(heap_of(v), (size_t)tni_node_count(node_at(v, i)) * sizeof(tni_cell));
    v->ref.data[i] = v->owned[i];
    bool ok        = v->owned[i] != NULL;
    for (const tni_node *o = tni_outputs(node_at(v, i)); o && ok; o = o->output)
        ok = alloc_item(v, o->mark - 1);
    return ok;
}

// Computes the error bounds of all outputs of an op.
static bool find_bounds(verification *v, size_t i, const tni_call *c, const tni_arg *error)
{
    tni_heap *h  = heap_of(v);
    bool      ok = tni_error_bound(h, c, 0, error, &v->error[i]);
    for (const tni_node *o = tni_outputs(node_at(v, i)); o && ok; o = o->output)
        ok = tni_error_bound(h, c, (int)o->attr.output.index, error, &v->error[o->mark - 1]);
    return ok;
}

// Computes one item on ref, with its bounds. An op that fails (an index out of range) ends the
// comparison: the device will report it itself.
static bool compute_item(verification *v, size_t i)
{
    tni_text why = { "" };
    tni_call c;
    if (!copy_sources(v, i)) return false;
    if (v->role[i] == SHARE) {
        share_item(v, i);
        return true;
    }
    tni_arg  *error = tni_alloc(heap_of(v), (size_t)(node_at(v, i)->nsrc + 1) * sizeof *error);
    tn_status s     = alloc_item(v, i) && error ? run_on(&v->ref, i, &c, &why) : TN_EMEM;
    if (s == TN_OK) {
        find_errors(v, i, &c, error);
        if (!find_bounds(v, i, &c, error)) s = TN_EMEM;
    }
    tni_free(heap_of(v), error);
    v->on &= s == TN_OK;
    return s != TN_EMEM || out_of_memory(v);
}

// ---- comparing ---------------------------------------------------------------------------------

static double number(const tni_node *n, tni_cell v)
{
    return tni_is_float((tn_dtype)n->dtype) ? v.f : (double)v.i;
}

// A device may be wrong by the bound, and by one more rounding when it stores the value.
static bool agrees(const tni_node *n, double have, double want, double error)
{
    tn_dtype dt = (tn_dtype)n->dtype;
    if (have == want || (isnan(have) && isnan(want)) || isinf(error)) return true;
    if (tni_is_float(dt) && have == tni_ref_round(dt, want)) return true;
    return fabs(have - want) <= error + tni_error_of_rounding(dt, want);
}

// Compares item i, which a device has computed at data; sets d if it differs. False if memory is
// out.
static bool compare_item(const verification *v, size_t i, char *data, difference *d)
{
    const tni_node *n     = node_at(v, i);
    int64_t         count = tni_node_count(node_at(v, i));
    const tni_cell *want  = (tni_cell *)v->ref.data[i];
    tni_cell       *have  = copy_run(v, n->dtype, data, count);
    for (int64_t k = 0; have && k < count && !d->found; k++) {
        double error = v->error[i] ? v->error[i][k] : 0;
        if (agrees(n, number(n, have[k]), number(n, want[k]), error)) continue;
        *d = (difference){ true, false, i, k, number(n, have[k]), number(n, want[k]), 0 };
    }
    tni_free(heap_of(v), have);
    return have || out_of_memory(v);
}

// Compares what a call wrote: item i and the other outputs of its op.
static bool compare_outputs(const verification *v, size_t i, difference *d)
{
    bool ok = compare_item(v, i, v->r->data[i], d);
    for (const tni_node *o = tni_outputs(node_at(v, i)); o && ok && !d->found; o = o->output)
        ok = compare_item(v, o->mark - 1, v->r->data[o->mark - 1], d);
    return ok;
}

// Compares what the step stored, in id order, up to the first difference.
static bool compare_results(const verification *v, difference *d)
{
    const tni_planned_kernel *k = kernel_of(v);
    if (!k) return compare_outputs(v, (size_t)v->step, d);
    for (size_t i = 0; i < k->seeds && !d->found; i++)
        if (k->seed[i] >= 0 && !compare_item(v, (size_t)k->seed[i], v->r->data[k->seed[i]], d))
            return false;
    return true;
}

// ---- op by op ----------------------------------------------------------------------------------

// The group on the device itself: buffers by item, and a plan of the same graph in which every item
// has a step of its own.
typedef struct {
    tni_run      run;
    tni_buffer **buffer;
} alone;

// Allocates device memory for item i alone, outside of the plan's places.
static bool take_buffer(const verification *v, alone *a, size_t i)
{
    size_t size  = v->r->e->device->memory->element_size((tn_dtype)node_at(v, i)->dtype);
    a->buffer[i] = tni_buffer_new(&v->r->cx->buffers, (size_t)tni_node_count(node_at(v, i)) * size);
    if (!a->buffer[i]) return false;
    a->run.data[i] = a->buffer[i]->data;
    return true;
}

// Uploads what the step read, as it was before: the step may have overwritten it.
static bool restore_input(const verification *v, alone *a, size_t i)
{
    tn_dtype dt    = (tn_dtype)node_at(v, i)->dtype;
    int64_t  count = tni_node_count(node_at(v, i));
    char    *host  = tni_alloc(heap_of(v), (size_t)count * tni_dtype_size(dt));
    bool     ok    = host && take_buffer(v, a, i);
    if (ok) {
        const tni_engine *e   = v->r->e;
        tni_text          why = { "" };
        tni_device_ref.memory->download(NULL, host, dt, v->ref.data[i], count, &why);
        ok = e->device->memory->upload(e->session, a->run.data[i], dt, host, count, &why) == TN_OK;
    }
    tni_free(heap_of(v), host);
    return ok;
}

// An item that shares its source's place does so here too.
static void share_alone(const verification *v, alone *a, size_t i)
{
    int64_t   offset;
    size_t    size = v->r->e->device->memory->element_size((tn_dtype)node_at(v, i)->dtype);
    tni_node *base = tni_node_base(node_at(v, i)->src[0], &offset);
    if (base->state == TNI_PENDING) a->run.data[i] = a->run.data[base->mark - 1];
    else a->run.data[i] = base->buf->data + base->start * (int64_t)size;
    a->run.data[i] += offset * (int64_t)size;
}

// Finds the step that computes item i; false if there is none, as for a number.
static bool find_step(const tni_plan *p, size_t i, tni_plan_step *step)
{
    for (size_t t = 0; t < p->steps; t++) {
        *step        = p->step[t];
        int32_t item = *step < 0 ? tni_seed_item(p->kernel[~*step].seed[0]) : *step;
        if (item == (int32_t)i) return true;
    }
    return false;
}

// Runs member i alone; sets d if it differs. False if it cannot be run.
static bool run_member(const verification *v, alone *a, size_t i, difference *d)
{
    tni_plan_step step;
    size_t        item;
    if (v->role[i] == SHARE) {
        share_alone(v, a, i);
        return true;
    }
    if (!find_step(a->run.plan, i, &step)) return true;
    return take_buffer(v, a, i) && tni_run_one_step(&a->run, step, &item) == TN_OK &&
           compare_item(v, i, a->run.data[i], d);
}

// Builds a plan with one op for each step, each of which writes to a place of its own.
static tni_plan *plan_by_op(const verification *v)
{
    tni_limits limits = tni_limits_of(v->r->e);
    limits.fuses      = false;
    tni_plan *p       = tni_plan_build(v->r->g, &limits);
    for (size_t i = 0; p && i < p->count; i++) p->place[i].filled = false;
    return p;
}

// Prepares to run the group op by op on the device, with the inputs it had.
static bool open_alone(const verification *v, alone *a)
{
    const tni_graph *g = v->r->g;
    *a                 = (alone){ .run = *v->r };
    a->run.scratch     = NULL;
    a->run.plan        = plan_by_op(v);
    a->run.in          = tni_run_inputs(v->r);
    a->run.data        = tni_zalloc(heap_of(v), g->count * sizeof *a->run.data);
    a->buffer          = tni_zalloc(heap_of(v), g->count * sizeof *a->buffer);
    bool ok            = a->run.plan && a->run.in && a->run.data && a->buffer;
    for (size_t i = 0; i < g->count && ok; i++)
        if (v->role[i] == LOADED && v->owned[i]) ok = restore_input(v, a, i);
    return ok;
}

static void close_alone(const verification *v, alone *a)
{
    for (size_t i = 0; a->buffer && i < v->r->g->count; i++)
        if (a->buffer[i]) tni_buffer_unref(&v->r->cx->buffers, a->buffer[i]);
    tni_plan_free(heap_of(v), a->run.plan);
    tni_free(heap_of(v), a->run.in);
    tni_free(heap_of(v), a->run.data);
    tni_free(heap_of(v), a->buffer);
}

// Reads what op by op gives for the element at which the kernel differs.
static void look_up_alone(const verification *v, const alone *a, difference *d)
{
    const tni_node *n    = node_at(v, d->item);
    size_t          size = v->r->e->device->memory->element_size((tn_dtype)n->dtype);
    tni_cell       *x    = copy_run(v, n->dtype, a->run.data[d->item] + d->at * (int64_t)size, 1);
    if (x) d->alone = number(n, *x);
    d->has_alone = x != NULL;
    tni_free(heap_of(v), x);
}

// Finds the op of the group that differs by itself, in `first`; if none does, what the group gives
// in place of d: then the fused kernel is at fault.
static void run_group(const verification *v, difference *d, difference *first)
{
    alone a;
    bool  ok = open_alone(v, &a);
    for (size_t i = 0; i < v->members && ok && !first->found; i++)
        ok = run_member(v, &a, v->member[i], first);
    if (ok && !first->found) look_up_alone(v, &a, d);
    close_alone(v, &a);
}

// ---- saying so ---------------------------------------------------------------------------------

// Reports an op that differs, and the kernel it was found in.
static tn_status report_op(const verification *v, const difference *d, const difference *kernel)
{
    const tni_node *n = node_at(v, d->item);
    tni_text        t = { "" };
    if (kernel) {
        const tni_node *k = node_at(v, kernel->item);
        t = tni_text_of("; found in the kernel of %s%s", tni_node_name(k).s, tni_node_line(k).s);
    }
    return tni_fail_status(v->r->cx, TN_EDEVICE, "verify: %s%s gives %s at %s, ref %s%s",
                           tni_node_name(n).s, tni_node_line(n).s, tni_value_text(d->have).s,
                           tni_element_text(n->rank, n->size, d->at).s, tni_value_text(d->want).s,
                           t.s);
}

// Reports a kernel that differs though its ops do not.
static tn_status report_kernel(const verification *v, const difference *d)
{
    const tni_node *n = node_at(v, d->item);
    tni_text        t = tni_text_of("; op by op could not be run");
    if (d->has_alone) t = tni_text_of("; op by op gives %s", tni_value_text(d->alone).s);
    return tni_fail_status(v->r->cx, TN_EDEVICE,
                           "verify: the kernel of %s%s gives %s at %s, ref %s%s",
                           tni_node_name(n).s, tni_node_line(n).s, tni_value_text(d->have).s,
                           tni_element_text(n->rank, n->size, d->at).s, tni_value_text(d->want).s,
                           t.s);
}

// ---- the whole ---------------------------------------------------------------------------------

// Allocates the lists by item; false if memory is out.
static bool open_lists(verification *v)
{
    tni_heap        *h = heap_of(v);
    const tni_graph *g = v->r->g;
    v->role            = tni_zalloc(h, g->count);
    v->error           = tni_zalloc(h, g->count * sizeof *v->error);
    v->owned           = tni_zalloc(h, (g->count + g->inputs) * sizeof *v->owned);
    v->member          = tni_alloc(h, g->count * sizeof *v->member);
    v->ref.data        = tni_zalloc(h, g->count * sizeof *v->ref.data);
    v->ref.input       = tni_zalloc(h, g->inputs * sizeof *v->ref.input);
    v->ref.in          = tni_run_inputs(v->r);
    return v->role && v->error && v->owned && v->member && v->ref.data && v->ref.input && v->ref.in;
}

// Frees everything that was allocated for the step; error bounds of shared items belong to their
// source.
static void close_verify(verification *v)
{
    tni_heap        *h = heap_of(v);
    const tni_graph *g = v->r->g;
    for (size_t i = 0; v->owned && i < g->count + g->inputs; i++) tni_free(h, v->owned[i]);
    for (size_t i = 0; v->error && v->role && i < g->count; i++)
        if (v->role[i] == MEMBER) tni_free(h, v->error[i]);
    tni_free(h, v->role);
    tni_free(h, v->error);
    tni_free(h, v->owned);
    tni_free(h, v->member);
    tni_free(h, v->ref.data);
    tni_free(h, v->ref.input);
    tni_free(h, v->ref.in);
    tni_free(h, v);
}

// Runs before the step, because a step may overwrite what it reads.
void *tni_verify_before(const tni_run *r, tni_plan_step step)
{
    verification *v = tni_zalloc(&r->cx->heap, sizeof *v);
    if (!v) return tni_fail_memory(r->cx, "verify");
    v->r    = r;
    v->step = step;
    tni_engine_set(&v->engine, &tni_device_ref);
    v->engine.session = heap_of(v);
    v->ref            = (tni_run){ .cx = r->cx, .e = &v->engine, .g = r->g, .plan = r->plan };
    bool ok           = true;
    if (step < 0 || !tni_runs_nothing(r->g, r->plan->place, (size_t)step)) {
        ok = open_lists(v) || out_of_memory(v);
        if (ok) find_group(v);
    }
    for (size_t i = 0; i < v->members && ok && v->on; i++) ok = compute_item(v, v->member[i]);
    if (ok) return v;
    close_verify(v);
    return NULL;
}

// Compares, and on a difference finds out whose fault it is.
static tn_status compare_step(verification *v, size_t *item)
{
    difference d = { .found = false }, first = { .found = false };
    if (!v->on) return TN_OK;
    if (!compare_results(v, &d)) return tni_failed();
    if (!d.found) return TN_OK;
    *item = d.item;
    if (v->step >= 0) return report_op(v, &d, NULL);
    run_group(v, &d, &first);
    if (!first.found) return report_kernel(v, &d);
    *item = first.item;
    return report_op(v, &first, &d);
}

tn_status tni_verify_after(void *begun, tn_status s, size_t *item)
{
    if (s == TN_OK) s = compare_step(begun, item);
    close_verify(begun);
    return s;
}
