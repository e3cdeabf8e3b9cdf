// Library calls and their epilogues: how a product gets its bias and activation.
//
// A kernel that reads the result of a library call element by element, as a bias, an activation, a
// residual or an addition to a gradient does, becomes one step with the call if the device takes
// the two. For each kernel, in the order of steps (find_call):
//
// 1. it must be the first reader of the result of a LIBRARY op of one output, and read it at the
//    same position that it computes (is_elementwise)
// 2. the two must fit into one step: everything else the kernel reads is computed before the call,
//    or the call can wait until the kernel runs without more memory
// 3. tni_epilogue_of (kernel/epilogue.c) describes the kernel as scale, residual, bias, activation,
//    column sum
// 4. the device answers limits->takes: the cpu takes any such kernel without tails behind a product
//    or convolution, and runs it on each finished part of the result while that is in the cache;
//    cuda takes what cuBLASLt or cuDNN has an epilogue for, and what can be the ending of a kernel
//    of its own (kernel/ending.h), which may have tails that add up columns: a batch norm's
//    statistics
//
// The kernel then has call_item set, the call's own step is dropped, and engine/evaluate.c runs
// both by run_with_epilogue. What a device does not take remains two steps.
// docs/adding-a-library-call.md has the rest.
//
// Then the kernel right before such a step is offered with it, if it makes the call's first operand
// element by element, as a normalization, an activation and a residual do (offer_prologue). It
// remains a step of its own, which launches nothing: the call gets it as its prologue, and computes
// it while it reads the operand, or launches it first, whichever is faster.
#include "plan/fuse.h"

static const uint32_t      NOT_YET = UINT32_MAX;
static const tni_plan_step NO_STEP = INT32_MIN;

// By item: the step that makes it, kept current as steps move; and the first and last steps that
// read it, as they were before any step moved.
typedef struct {
    const tni_fusion *f;
    tni_plan         *p;
    uint32_t         *made, *first, *last;
} offers;

// Records that a step reads an item; an assignment that shares memory is looked through.
static void add_reader(offers *c, int32_t at, size_t step)
{
    if (at < 0) return;
    at = tni_shared_item(c->f, at);
    if (at < 0) return;
    if (c->first[at] == NOT_YET) c->first[at] = (uint32_t)step;
    c->last[at] = (uint32_t)step;
}

// Finds the steps that make and read each item. What outlives the plan is read after its last step.
static void find_item_steps(offers *c)
{
    const tni_graph *g = c->f->g;
    for (size_t i = 0; i < g->count; i++) c->made[i] = c->first[i] = NOT_YET, c->last[i] = 0;
    for (size_t t = 0; t < c->p->steps; t++) {
        tni_plan_step             step = c->p->step[t];
        const tni_planned_kernel *k    = step < 0 ? &c->p->kernel[~step] : NULL;
        int32_t                   call = k ? k->call_item : step;
        const tni_node           *n    = call >= 0 ? g->item[call].n : NULL;
        if (n) c->made[call] = (uint32_t)t;
        for (const tni_node *o = n ? tni_outputs(n) : NULL; o; o = o->output)
            c->made[o->mark - 1] = (uint32_t)t;
        for (uint32_t s = 0; n && s < n->nsrc; s++) add_reader(c, tni_base_of(g, n->src[s]), t);
        if (!k) continue;
        for (int i = 0; i < k->kernel->nbuffer; i++)
            if (!k->kernel->buffer[i].written) add_reader(c, k->buffer[i], t);
        for (size_t i = 0; i < k->seeds; i++)
            if (k->seed[i] >= 0) c->made[k->seed[i]] = (uint32_t)t;
    }
    for (size_t i = 0; i < g->count; i++)
        if (g->item[i].why) add_reader(c, g->item[i].base, c->p->steps);
}

// Whether an access reads element k at point k of the domain, in order and all of it. So the first
// rows of the kernel need only the first elements of the result, and it can run on each part of
// that as soon as it is computed.
static bool is_elementwise(const tni_fusion *f, const tni_planned_kernel *k, int access)
{
    const tni_access_binding *s    = &k->source[access];
    const tni_launch         *l    = &k->launch;
    int64_t                   step = 1;
    if (s->offset || s->edge < 0) return false;
    if (tni_offset_of(f->g->item[s->reader].n->src[s->edge])) return false;
    for (int i = k->kernel->np + k->kernel->nr - 1; i >= 0; i--) {
        if (l->size[i] > 1 && l->stride[access][i] != step) return false;
        step *= l->size[i];
    }
    return step == tni_node_count(f->g->item[s->place].n) && !l->stride[access][TNI_AXES];
}

// Whether an access reads the first row of the result at every row of the domain, as a batch norm's
// statistics do, which are of differences to it.
static bool is_first_row(const tni_fusion *f, const tni_planned_kernel *k, int access)
{
    const tni_access_binding *s = &k->source[access];
    const tni_node           *n = f->g->item[s->place].n;
    if (s->offset || s->edge < 0 || !n->rank || k->launch.stride[access][TNI_AXES]) return false;
    if (tni_offset_of(f->g->item[s->reader].n->src[s->edge])) return false;
    return tni_visits_columns(&k->launch, access, n->size[n->rank - 1]);
}

// Whether a kernel reads a buffer element by element; *first_row: and its first row besides.
static bool reads_elementwise(const tni_fusion *f, const tni_planned_kernel *k, int buffer,
                              bool *first_row)
{
    int elementwise = 0;
    *first_row      = false;
    for (int i = 0; i < k->kernel->naccess; i++) {
        if (k->kernel->access[i].buffer != buffer) continue;
        bool each = is_elementwise(f, k, i);
        if (!each && !is_first_row(f, k, i)) return false;
        elementwise += each;
        *first_row |= !each;
    }
    return elementwise > 0;
}

// Whether a kernel checks an index, and so can fail. Such a kernel is not offered.
static bool checks_an_index(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_CHECK) return true;
    return false;
}

// Whether everything that the kernel reads besides the call's result is computed before the call.
static bool can_run_early(const offers *c, const tni_planned_kernel *k, int32_t item)
{
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        int32_t at = k->buffer[i];
        if (at >= 0) at = tni_shared_item(c->f, at);
        if (at < 0 || at == item || k->kernel->buffer[i].written) continue;
        if (c->made[at] >= c->made[item]) return false;
    }
    return true;
}

// Whether running the call where the kernel is takes no more memory: its sources are kept longer,
// its result shorter.
static bool can_run_late(const offers *c, int32_t item, size_t step)
{
    const tni_graph *g    = c->f->g;
    const tni_node  *n    = g->item[item].n;
    int64_t          more = 0;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_base_of(g, n->src[s]);
        if (at >= 0) at = tni_shared_item(c->f, at);
        if (at >= 0 && !g->item[at].why && c->last[at] < step) more += c->f->decision[at].bytes;
    }
    return more <= c->f->decision[item].bytes;
}

// Asks the device about an offer with the call of a node.
static bool ask_device(const offers *c, const tni_node *n, tni_offer *o)
{
    tni_arg arg[TNI_OFFER_ARGS];
    if (tni_call_args(n) > TNI_OFFER_ARGS) return false;
    tni_call call = tni_call_of(n, arg);
    o->call       = &call;
    bool taken    = c->f->limits->takes(c->f->limits->session, o);
    o->call       = NULL;
    return taken;
}

// Offers the call and the kernel to the device. buffer: the kernel's buffer with the result of the
// call. A kernel with tails cannot run in parts, so that a device takes it whole or not at all.
static bool device_takes(const offers *c, tni_planned_kernel *k, int buffer, size_t step,
                         bool first_row, tni_offer *o)
{
    int32_t         item = k->buffer[buffer];
    const tni_node *n    = c->f->g->item[item].n;
    int64_t         last = n->rank ? n->size[n->rank - 1] : 1;
    *o = (tni_offer){ .only_reader = c->last[item] == step && !c->f->decision[item].never_inline,
                      .first_row   = first_row,
                      .epilogue    = tni_epilogue_of(&k->launch, buffer, last),
                      .launch      = &k->launch };
    return ask_device(c, n, o);
}

// Returns the call that the kernel of a step can join, the one made last if there are several; -1
// if there is none.
static int32_t find_call(const offers *c, tni_planned_kernel *k, size_t step, tni_offer *offer)
{
    int32_t best = -1;
    if (checks_an_index(k->kernel)) return -1;
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        int32_t at = k->buffer[i];
        if (at < 0 || k->kernel->buffer[i].written || c->made[at] == NOT_YET) continue;
        const tni_op_facts *op = &tni_op_table[c->f->g->item[at].n->op];
        if (op->class != TNI_LIBRARY || op->outputs != 1 || c->first[at] != step) continue;
        if (tni_is_chosen(c->f, at, TNI_CHOICE_PLAIN)) continue;
        if (best >= 0 && c->made[best] > c->made[at]) continue;
        bool first_row;
        if (!reads_elementwise(c->f, k, i, &first_row)) continue;
        if (!can_run_early(c, k, at) && !can_run_late(c, at, step)) continue;
        tni_offer o;
        if (!device_takes(c, k, i, step, first_row, &o)) continue;
        best   = at;
        *offer = o;
    }
    return best;
}

// Makes one step of the two: where the call was, or, if the kernel needs something later, where the
// kernel was.
static void join_steps(offers *c, int32_t item, tni_planned_kernel *k, size_t step,
                       const tni_offer *o)
{
    tni_plan_step *at    = c->p->step;
    uint32_t       early = c->made[item];
    k->call_item         = item;
    k->only_reader       = o->only_reader;
    k->epilogue          = o->epilogue;
    if (!can_run_early(c, k, item)) {
        c->made[item] = (uint32_t)step;
        at[early]     = NO_STEP;
        return;
    }
    at[early] = at[step];
    at[step]  = NO_STEP;
    for (size_t i = 0; i < k->seeds; i++)
        if (k->seed[i] >= 0) c->made[k->seed[i]] = early;
}

static void drop_steps(tni_plan *p)
{
    size_t kept = 0;
    for (size_t t = 0; t < p->steps; t++)
        if (p->step[t] != NO_STEP) p->step[kept++] = p->step[t];
    p->steps = kept;
}

static void make_offers(offers *c)
{
    find_item_steps(c);
    for (size_t t = 0; t < c->p->steps; t++) {
        if (c->p->step[t] >= 0 || c->p->step[t] == NO_STEP) continue;
        tni_planned_kernel *k = &c->p->kernel[~c->p->step[t]];
        tni_offer           o;
        int32_t             item = find_call(c, k, t, &o);
        if (item >= 0) join_steps(c, item, k, t, &o);
    }
    drop_steps(c->p);
}

// ---- prologues ---------------------------------------------------------------------------------

// Returns the kernel of a step that maps elements to those of one result, and nothing else; NULL if
// it has none.
static tni_planned_kernel *find_map(const tni_plan *p, uint32_t step)
{
    tni_planned_kernel *k      = p->step[step] < 0 ? &p->kernel[~p->step[step]] : NULL;
    int                 stored = 0;
    if (!k || k->call_item >= 0 || k->kernel->nr || k->kernel->tails) return NULL;
    for (size_t i = 0; i < k->seeds; i++) stored += k->seed[i] >= 0;
    return stored == 1 && !checks_an_index(k->kernel) ? k : NULL;
}

static bool reads_item(const offers *c, const tni_planned_kernel *k, int32_t item)
{
    for (int i = 0; i < k->kernel->nbuffer; i++)
        if (k->buffer[i] >= 0 && tni_shared_item(c->f, k->buffer[i]) == item) return true;
    return false;
}

// Returns the item that the call of step t reads as its first operand, all of it in order, if
// neither its other operands nor the kernel behind it read it, nor anything before; -1 otherwise.
static int32_t find_operand(const offers *c, const tni_planned_kernel *k, size_t t)
{
    const tni_graph *g    = c->f->g;
    const tni_node  *n    = g->item[k->call_item].n;
    int32_t          item = n->nsrc ? tni_base_of(g, n->src[0]) : -1;
    if (item < 0 || c->made[item] == NOT_YET || c->first[item] != t) return -1;
    tni_view v = tni_node_layout(n->src[0]);
    if (!tni_view_contiguous(&v) || tni_node_count(n->src[0]) != tni_node_count(g->item[item].n))
        return -1;
    for (uint32_t s = 1; s < n->nsrc; s++) {
        int32_t other = tni_base_of(g, n->src[s]);
        if (other >= 0 && tni_shared_item(c->f, other) == item) return -1;
    }
    return reads_item(c, k, item) ? -1 : item;
}

// Lets the kernel that makes the operand of step t's call be launched by the call, if the device
// takes that and it is the step right before.
static void offer_prologue(offers *c, size_t t)
{
    tni_planned_kernel *k    = c->p->step[t] < 0 ? &c->p->kernel[~c->p->step[t]] : NULL;
    int32_t             item = k && k->call_item >= 0 ? find_operand(c, k, t) : -1;
    if (item < 0 || c->made[item] + 1 != t) return;
    tni_planned_kernel *first = find_map(c->p, c->made[item]);
    bool                kept  = c->last[item] != t;
    tni_offer           o     = { .only_reader   = k->only_reader,
                                  .epilogue      = k->epilogue,
                                  .launch        = &k->launch,
                                  .prologue      = first ? &first->launch : NULL,
                                  .prologue_kept = kept };
    if (!first || !ask_device(c, c->f->g->item[k->call_item].n, &o)) return;
    first->is_prologue   = true;
    first->prologue_kept = kept;
}

static void offer_prologues(offers *c)
{
    find_item_steps(c);
    for (size_t t = 1; t < c->p->steps; t++) offer_prologue(c, t);
}

bool tni_offer_epilogues(tni_fusion *f, tni_plan *p)
{
    tni_heap *h = &f->g->cx->heap;
    offers    c = { .f = f, .p = p };
    if (!f->limits->takes || !p->kernels) return true;
    c.made    = tni_alloc(h, f->g->count * sizeof *c.made);
    c.first   = tni_alloc(h, f->g->count * sizeof *c.first);
    c.last    = tni_zalloc(h, f->g->count * sizeof *c.last);
    f->failed = !c.made || !c.first || !c.last;
    if (!f->failed) make_offers(&c);
    if (!f->failed) offer_prologues(&c);
    tni_free(h, c.made);
    tni_free(h, c.first);
    tni_free(h, c.last);
    return !f->failed;
}
