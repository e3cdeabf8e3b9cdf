// Evaluation: from pending nodes to values. tni_evaluate is the entry; run_graph is the whole of a
// run:
//
// 1. tni_deferred_errors_check: an index of an earlier step was out of range; nothing new runs then
// 2. tni_graph_open: what to compute, what to store (plan/graph.c)
// 3. tni_plan_for: the plan, found by its key or built
// 4. tni_prepare: kernels compiled or being compiled, calls prepared (prepare.c)
// 5. tni_run_take_memory: every buffer of the run, before its first step; then the address of each
//    item
// 6. tni_submit_plan: each step is a kernel launch or a call, in order; or the replay of a captured
//    graph
// 7. finish_items: nodes get their buffers; nodes that only the graph held are freed; what is not
//    stored keeps its recipe
// 8. settle_stores, spend_walked: stores drop old values, nodes that backward passes walked drop
//    their history
//
// On failure nothing of 7 and 8 happens. A read leaves everything pending as it was
// (return_recalled) and marks the item that failed, so that later evaluations leave it out; a step
// fails if a store was assigned what was made from it (check_assigned). A training step rolls back:
// every store returns to its last computed value (tni_roll_back); a step that the program stopped
// (tn_stop_when) stays pending. 1 to 5 change nothing that would have to be undone; in 6 inputs are
// only overwritten by plan steps after the last one that can fail (plan/memory.c).
#include "engine/observer.h"

#include "base/hash.h"
#include "dist/world.h"
#include "ops/collective.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef tni_run run;

// ---- addresses ---------------------------------------------------------------------------------

// Returns the address where the elements of a source begin; NULL for a number, which kernels get as
// an argument.
static char *source_data(const run *r, tni_node *src)
{
    int64_t   offset;
    tni_node *base = tni_node_base(src, &offset);
    char     *data;
    if (base->state == TNI_PENDING) {
        data = r->data[base->mark - 1];
        if (!data) return NULL;  // a number: an argument of kernels, not in memory
    } else if (r->input) {
        data = r->input[base->mark - 1];
    } else {
        data = base->buf->data;
        offset += base->start;
    }
    return data + offset * (int64_t)r->e->device->memory->element_size((tn_dtype)src->dtype);
}

// Returns the address of a root with a buffer. A donated one begins where the input it overwrites
// does.
static char *own_data(const run *r, size_t i)
{
    const tni_place *p = &r->plan->place[i];
    if (!p->donated) return r->own[i]->data;
    if (p->donor >= 0) return r->data[p->donor];
    const tni_node *n = r->g->input[~p->donor].n;
    return n->buf->data +
           n->start * (int64_t)r->e->device->memory->element_size((tn_dtype)n->dtype);
}

// Where an update writes is known in a run only.
char *tni_find_data(const tni_run *r, size_t i)
{
    const tni_place *p    = &r->plan->place[i];
    const tni_node  *n    = r->g->item[i].n;
    int64_t          size = (int64_t)r->e->device->memory->element_size((tn_dtype)n->dtype);
    if (p->where == TNI_NOWHERE) return NULL;  // a view, or a value inside a kernel
    if (p->alias || p->in_place) return source_data(r, n->src[0]);
    if (p->into) {
        const tni_node *update = r->g->item[p->into - 1].n;
        return source_data(r, update->src[0]) + update->attr.view.offset * size;
    }
    char *root = p->where == TNI_OWN ? own_data(r, p->root)
                                     : r->arena->data + r->plan->place[p->root].offset;
    return root + p->start * size;
}

// ---- calls -------------------------------------------------------------------------------------

// Fills in what a call of item i gets in each run: addresses, attributes, scratch, the ticket for
// late errors.
static void bind_call(const run *r, size_t i, tni_call *c, tni_arg *arg, tni_text *why)
{
    tni_node *n = r->g->item[i].n;
    int64_t   skip;
    c->device            = r->e->device;
    c->session           = r->e->session;
    c->attr              = &n->attr;
    c->threads           = r->e->threads;
    c->scratch           = r->scratch ? r->scratch->data : NULL;
    c->ticket            = r->plan->errors ? tni_deferred_error_ticket(r->plan, i) : 0;
    c->wait_for_compiler = tni_waits_for_compiler(r->e);
    c->why               = why;
    c->out.data          = r->data[i];
    c->lasting           = 0;
    tni_call_find_packed(c, r->input || r->in_loop ? NULL : n);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        arg[s].data           = source_data(r, n->src[s]);
        const tni_node *base  = tni_node_base(n->src[s], &skip);
        bool            lasts = base->state != TNI_PENDING && !r->in_loop;
        if (s < 32 && lasts) c->lasting |= (uint32_t)1 << s;
        bool stays = lasts && base->buf && !base->buf->borrowed && !base->buf->rewritten;
        if (s < 2) c->value[s] = stays ? base->id : 0;
    }
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        arg[n->nsrc + o->attr.output.index - 1].data = r->data[o->mark - 1];
}

tni_call tni_run_call(const tni_run *r, size_t i, tni_text *why)
{
    const tni_planned_call *p   = r->in ? NULL : &r->plan->call[r->plan->place[i].call - 1];
    tni_arg                *arg = p ? p->arg : r->in;
    tni_call                c   = p ? p->call : tni_call_of(r->g->item[i].n, arg);
    bind_call(r, i, &c, arg, why);
    return c;
}

tni_call tni_update_call(const tni_run *r, size_t i, tni_arg *value, tni_text *why)
{
    const tni_node *n     = r->g->item[i].n;
    tni_call        whole = tni_run_call(r, i, why), c = tni_call_within(&whole, TNI_copy);
    size_t          size = r->e->device->memory->element_size(whole.out.dtype);
    *value               = whole.in[1];
    c.nin                = 1;
    c.in                 = value;
    c.out                = *value;
    c.out.data           = whole.out.data + n->attr.view.offset * (int64_t)size;
    memcpy(c.out.stride, n->attr.view.stride, sizeof c.out.stride);
    return c;
}

// Runs an update: a copy of its base, unless it is in place, then a copy of the value into the
// elements that the update's view names.
static tn_status run_update(const run *r, size_t i, tni_text *why)
{
    tn_status s = TN_OK;
    tni_arg   value;
    if (!r->plan->place[i].in_place) {
        tni_call whole = tni_run_call(r, i, why), base = tni_call_within(&whole, TNI_copy);
        base.nin = 1;
        s        = tni_call_run(&base);
    }
    if (s != TN_OK || tni_node_count(r->g->item[i].n->src[1]) == 0) return s;
    tni_call c = tni_update_call(r, i, &value, why);
    return tni_call_run(&c);
}

// Reports an error of node n, prefixed by the user's op if that is composed of n's, with the line
// that recorded it.
static tn_status report_node_failure(tn_ctx *cx, tn_status s, const tni_node *n, const char *why)
{
    const char *op = n->site.op && strcmp(n->site.op, tni_op_table[n->op].name) ? n->site.op : NULL;
    if (!n->site.line) return tni_fail_status(cx, s, "%s%s%s", op ? op : "", op ? ": " : "", why);
    return tni_fail_status(cx, s, "%s%s%s (recorded at %s)", op ? op : "", op ? ": " : "", why,
                           tni_site_text(&n->site).s);
}

// Asks the call of a step to search, if the run tunes and there is time for it.
static void begin_search(const run *r, tni_plan_step step, tni_call *c)
{
    bool tunes = r->e->watch & TNI_WATCH_TUNES;
    c->search  = tunes ? r->e->observer->call_begins(r, step, c) : NULL;
}

static void end_search(const run *r, const tni_call *c)
{
    if (c->search) r->e->observer->call_searched(r);
}

// Runs the call of item i, if it has anything to do. With TNI_WATCH_CALLS the observer sees the
// result.
static tn_status run_item(const run *r, size_t i)
{
    tni_text why = { "" };
    if (tni_runs_nothing(r->g, r->plan->place, i)) return TN_OK;
    tni_node *n = r->g->item[i].n;
    r->cx->stats.launches++;
    tn_status s;
    if (n->op == TNI_update) {
        s = run_update(r, i, &why);
    } else {
        tni_call c        = tni_run_call(r, i, &why);
        bool     reported = false;
        if (n->op == TNI_loop) {
            tni_loop_call l = tni_loop_call_of(n);
            s               = tni_run_loop(r->cx, &l, &c, SIZE_MAX, &reported);
        } else {
            begin_search(r, (tni_plan_step)i, &c);
            s = tni_call_run(&c);
            end_search(r, &c);
        }
        if (reported) return s;
        if (s == TN_OK && r->e->watch & TNI_WATCH_CALLS)
            return r->e->observer->call_ran(r->cx, n, &c);
    }
    if (s == TN_OK) return TN_OK;
    return report_node_failure(r->cx, s, n, why.s);
}

// ---- kernels -----------------------------------------------------------------------------------

// Returns a number of a node in its compute type.
static tni_word number_word(const run *r, const tni_number_binding *b)
{
    tni_word w = { .l = b->literal };
    if (b->which == TNI_NUMBER_LITERAL) return w;
    const tni_attr *a = &r->g->item[b->item].n->attr;
    double          f = a->num.f;
    int64_t         l = a->num.i;
    switch ((tni_number_kind)b->which) {
    case TNI_NUMBER_KEY: w.u = a->random.key; return w;
    case TNI_NUMBER_COUNTER: w.u = a->random.counter; return w;
    case TNI_NUMBER_START: f = a->iota.start, l = a->iota.istart; break;
    case TNI_NUMBER_STEP: f = a->iota.step, l = a->iota.istep; break;
    case TNI_NUMBER_FILL: f = a->pad.value, l = a->pad.ivalue; break;
    case TNI_NUMBER_VALUE:
    case TNI_NUMBER_LITERAL: break;
    }
    return tni_word_of((tn_dtype)b->dtype, f, l);
}

// Sets the addresses of a kernel's buffers, rounded down to lines of 64 bytes so that a device may
// load whole lines; rest[i]: the elements between that and the real address, which are added to
// offsets.
static void bind_buffers(const run *r, tni_planned_kernel *k, int64_t *rest)
{
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        int32_t at   = k->buffer[i];
        char   *data = at >= 0 ? r->data[at] : (char *)r->g->input[~at].n->buf->data;
        size_t  over = (uintptr_t)data % 64;
        size_t  size = r->e->device->memory->element_size((tn_dtype)k->kernel->buffer[i].dtype);
        k->launch.buffer[i] = data - over;
        rest[i]             = (int64_t)(over / size);
    }
}

// Fills in the addresses, offsets and numbers of a kernel for this run. The offset of an access is
// that of the plan, plus where the view of its source begins in this run, plus where an input
// begins in its buffer.
static void bind_kernel(const run *r, tni_planned_kernel *k)
{
    int64_t rest[TNI_MAX_BUFFERS];
    bind_buffers(r, k, rest);
    for (int i = 0; i < k->kernel->naccess; i++) {
        const tni_access_binding *s  = &k->source[i];
        int64_t                   at = s->offset;
        int                       b  = k->kernel->access[i].buffer;
        if (b >= 0) at += rest[b];
        if (b >= 0 && s->edge >= 0) {
            const tni_node *src = r->g->item[s->reader].n->src[s->edge];
            at += tni_offset_of(src);
            if (s->place < 0) at += r->g->input[~s->place].n->start;
        }
        k->launch.offset[i] = at;
    }
    for (int i = 0; i < k->kernel->nnumber; i++)
        k->launch.number[i] = number_word(r, &k->number[i]);
    k->launch.threads           = r->e->threads;
    k->launch.wait_for_compiler = tni_waits_for_compiler(r->e);
    k->launch.fail[0]           = 0;
}

// Binds all kernels of a run before the first is launched: what they are launched with tells the
// tuner which were measured.
static void bind_kernels(run *r)
{
    for (size_t i = 0; i < r->plan->kernels; i++) bind_kernel(r, &r->plan->kernel[i]);
    r->bound = true;
}

// Reports an index out of range in a kernel with the same words as the op run by a call; *item is
// the op's item.
static tn_status report_check(const run *r, const tni_planned_kernel *k, size_t *item)
{
    tni_text why   = { "" };
    *item          = (size_t)k->origin[k->launch.fail[0] - 1];
    tni_node *n    = r->g->item[*item].n;
    int       axis = n->attr.axis.axis;
    tni_text_add(&why, "%s: index %lld is out of range for size %lld along axis %d",
                 tni_op_table[n->op].name, (long long)k->launch.fail[1],
                 (long long)n->src[0]->size[axis], axis);
    return report_node_failure(r->cx, TN_EARG, n, why.s);
}

// Shows the result of a kernel to the observer like that of a call: op by op a kernel computes one
// item.
static tn_status show_result(const run *r, size_t i)
{
    tni_text why = { "" };
    tni_call c   = tni_run_call(r, i, &why);
    return r->e->observer->call_ran(r->cx, r->g->item[i].n, &c);
}

// Launches a kernel, or runs a library call with the kernel as its epilogue; a prologue is left to
// the call of the next step. On failure *item is the item at fault.
static tn_status run_kernel(const run *r, tni_planned_kernel *k, size_t *item)
{
    tni_text why = { "" };
    r->cx->stats.launches++;
    if (!r->bound) bind_kernel(r, k);
    k->launch.scratch = r->scratch ? r->scratch->data : NULL;
    if (k->is_prologue) return TN_OK;
    tn_status s;
    if (k->call_item >= 0) {
        tni_call c = tni_run_call(r, (size_t)k->call_item, &why);
        begin_search(r, ~(tni_plan_step)(k - r->plan->kernel), &c);
        s = r->e->device->calls->run_with_epilogue(&c, k->entry, &k->launch, &why);
        end_search(r, &c);
    } else {
        if (r->e->watch & TNI_WATCH_TUNES) r->e->observer->kernel_begins(r, k);
        s = r->e->kernels->launch(r->e->session, k->entry, &k->launch, &why);
    }
    if (k->launch.fail[0]) return report_check(r, k, item);
    if (s == TN_OK && !(r->e->watch & TNI_WATCH_CALLS)) return TN_OK;
    *item = (size_t)(s == TN_OK ? tni_seed_item(k->seed[0]) : k->origin[0]);
    return s == TN_OK ? show_result(r, *item)
                      : report_node_failure(r->cx, s, r->g->item[*item].n, why.s);
}

// ---- memory ------------------------------------------------------------------------------------

// Returns a caller's memory, if the value of an item was asked for there, and the memory of the
// item holds nothing else.
static tni_buffer *take_into(const run *r, size_t item)
{
    const tni_node *n    = r->g->item[item].n;
    int64_t         size = tni_node_count(n) *
                   (int64_t)r->e->device->memory->element_size((tn_dtype)n->dtype);
    if (r->plan->place[item].pitch || r->plan->place[item].bytes > (size + 63) / 64 * 64)
        return NULL;
    for (size_t i = 0; i < r->e->intos; i++) {
        if (r->e->into[i].n != n) continue;
        r->e->into[i].memory->refs++;
        return r->e->into[i].memory;
    }
    return NULL;
}

// Returns memory for the value of a node or, with n NULL, for temporaries, which come from the
// device's arena unless the run lasts. NULL, reported by the observer, when there is none.
static tni_buffer *take_run_buffer(run *r, int64_t bytes, const tni_node *n, const char *what)
{
    tni_buffers *all = &r->cx->buffers;
    tni_buffer  *b   = n || r->lasts ? tni_buffer_new(all, (size_t)bytes)
                                     : tni_buffer_new_temp(all, (size_t)bytes);
    if (b) return b;
    tni_text value = { "" };
    if (n) {
        tni_text_add(&value, "%s of %s", tni_shape_text(n->rank, n->size).s,
                     tn_dtype_name((tn_dtype)n->dtype));
        if (n->site.line) tni_text_add(&value, " recorded at %s", tni_site_text(&n->site).s);
    }
    int op = n && n->op == TNI_output ? n->src[0]->op : n ? n->op : -1;
    return r->e->observer->out_of_memory(r->cx, n ? tni_op_table[op].name : "evaluating",
                                         n ? value.s : what, bytes);
}

tni_arg *tni_run_inputs(const tni_run *r)
{
    size_t most = 0;
    for (size_t i = 0; i < r->g->count; i++) {
        size_t args = tni_call_args(r->g->item[i].n);
        if (args > most) most = args;
    }
    return tni_alloc(&r->cx->heap, most * sizeof *r->in + 1);
}

// Returns the bytes of scratch that a step asks the device for. Kernels are bound for it: how much
// they need may depend on addresses.
static size_t step_scratch(run *r, tni_plan_step step)
{
    const tni_device   *d    = r->e->device;
    tni_planned_kernel *k    = step < 0 ? &r->plan->kernel[~step] : NULL;
    int32_t             item = k ? k->call_item : step;
    tni_text            why  = { "" };
    if (k && r->e->kernels->scratch) bind_kernel(r, k);
    if (k) tni_fix_settings(r->e, k);
    if (item < 0)
        return r->e->kernels->scratch ? r->e->kernels->scratch(r->e->session, k->entry, &k->launch)
                                      : 0;
    if (tni_runs_nothing(r->g, r->plan->place, (size_t)item)) return 0;
    if (r->g->item[item].n->op == TNI_loop) {
        tni_loop_call l = tni_loop_call_of(r->g->item[item].n);
        return tni_loop_scratch(r->cx, &l);
    }
    tni_call c = tni_run_call(r, (size_t)item, &why);
    return k ? d->calls->scratch_with_epilogue(&c, k->entry, &k->launch) : tni_call_scratch(&c);
}

// Steps run one after the other and share it. It is kept in the plan if it cannot change with the
// addresses of a run.
size_t tni_run_scratch(tni_run *r)
{
    tni_plan *p = r->plan;
    if (p->scratch_known) return p->scratch;
    p->scratch = 0;
    for (size_t t = 0; t < p->steps; t++) {
        size_t need = step_scratch(r, p->step[t]);
        if (need > p->scratch) p->scratch = need;
    }
    r->bound         = r->e->kernels->scratch != NULL;
    p->scratch_known = !r->bound || r->e->kernels->fixed_scratch;
    return p->scratch;
}

// Lets the device begin to compile what the calls of a plan need, all at once before its first run,
// instead of one after the other as they run.
static void compile_calls_ahead(run *r)
{
    tni_text why = { "" };
    for (size_t t = 0; t < r->plan->steps; t++) {
        tni_plan_step step = r->plan->step[t];
        int32_t       item = step < 0 ? r->plan->kernel[~step].call_item : step;
        if (item < 0 || tni_runs_nothing(r->g, r->plan->place, (size_t)item)) continue;
        if (r->g->item[item].n->op == TNI_update || r->g->item[item].n->op == TNI_loop) continue;
        tni_call c     = tni_run_call(r, (size_t)item, &why);
        c.compile_only = true;
        tni_call_run(&c);
    }
}

// Takes the scratch of the run, one block for all steps.
static bool take_scratch(run *r)
{
    size_t most = tni_run_scratch(r);
    return !most || (r->scratch = take_run_buffer(r, (int64_t)most, NULL, "scratch")) != NULL;
}

// Allocates the lists of a run. An observer that sees every op may ask for calls that are no steps
// of the plan.
static bool take_run_lists(run *r)
{
    r->own  = tni_zalloc(&r->cx->heap, r->g->count * sizeof *r->own);
    r->data = tni_zalloc(&r->cx->heap, r->g->count * sizeof *r->data);
    // Op by op, an observer is shown kernels as calls, which the plan does not have.
    bool each = r->e->watch & TNI_WATCH_CALLS;
    r->in     = each ? tni_run_inputs(r) : NULL;
    return (r->own && r->data && (r->in || !each)) || tni_no_memory(r->cx, "evaluating");
}

// Returns the buffer of the input that a donated place overwrites, with a reference more.
static tni_buffer *donor_buffer(const run *r, const tni_place *p)
{
    uint32_t    input = p->donor < 0 ? (uint32_t)~p->donor : r->plan->place[p->donor].root;
    tni_buffer *b     = r->g->input[input].n->buf;
    b->refs++;
    return b;
}

// When there is not enough nothing has run, so there is nothing to undo.
bool tni_run_take_memory(tni_run *r)
{
    if (!take_run_lists(r)) return false;
    // Buffers before the arena: if memory is short, an unused arena can be released for them.
    for (size_t i = 0; i < r->g->count; i++) {
        const tni_place *p = &r->plan->place[i];
        if (p->where != TNI_OWN || p->root != i) continue;
        r->own[i] = p->donated ? donor_buffer(r, p) : r->e->intos ? take_into(r, i) : NULL;
        if (!r->own[i] && !p->donated)
            r->own[i] = take_run_buffer(r, p->bytes, r->g->item[i].n, NULL);
        if (!r->own[i]) return false;
    }
    int64_t arena = r->plan->arena;
    if (arena && !(r->arena = take_run_buffer(r, arena, NULL, "temporary values"))) return false;
    for (size_t i = 0; i < r->g->count; i++) r->data[i] = tni_find_data(r, i);
    return take_scratch(r);
}

// Releases the references of the run. Stored values have theirs by now (finish_item); the rest
// returns to the cache of free blocks at once, since later work runs later in the same stream.
void tni_run_release_memory(tni_run *r)
{
    tni_buffer_unref(&r->cx->buffers, r->arena);
    tni_buffer_unref(&r->cx->buffers, r->scratch);
    for (size_t i = 0; r->own && i < r->g->count; i++) tni_buffer_unref(&r->cx->buffers, r->own[i]);
    tni_free(&r->cx->heap, r->own);
    tni_free(&r->cx->heap, r->data);
    tni_free(&r->cx->heap, r->in);
}

// ---- afterwards --------------------------------------------------------------------------------

// Marks a stored item done, with a reference to its buffer. A view has no buffer of its own.
static void finish_item(run *r, size_t i)
{
    tni_node        *n = r->g->item[i].n;
    const tni_place *p = &r->plan->place[i];
    if (n->op == TNI_view) {
        tni_node_mark_done(r->cx, n, NULL, 0);
        return;
    }
    tni_buffer *b = p->where == TNI_INPUT ? r->g->input[p->root].n->buf : r->own[p->root];
    b->refs++;
    size_t size = r->e->device->memory->element_size((tn_dtype)n->dtype);
    tni_node_mark_done(r->cx, n, b, (r->data[i] - b->data) / (int64_t)size);
}

// Ends the items of a run that succeeded. First every stored item gets its buffer, before any
// source is released. Then, newest first, since newer nodes hold older ones: a node that only the
// graph holds is freed; one that is not stored becomes unstored and keeps its recipe; a stored one
// releases its sources unless a gradient needs them.
static void finish_items(run *r)
{
    tni_graph *g = r->g;
    for (size_t i = 0; i < g->count; i++)
        if (g->item[i].why) finish_item(r, i);
    tni_graph_unmark(g);
    for (size_t i = g->count; i-- > 0;) {
        tni_item *it = &g->item[i];
        tni_node *n  = it->n;
        if (n->refs == 1) {
            it->n = NULL;
            tni_node_unref(r->cx, n);
            continue;
        }
        if (it->becomes_spent) n->spent = true;
        if (it->why & TNI_BY_RECOMPUTE) n->carried = true;
        if (!it->why && !n->constant) tni_node_mark_unstored(r->cx, n);
        else if (n->needs_grad && !n->spent) continue;
        else if (it->why & TNI_BY_CALL && !n->handles) tni_node_hold_output(r->cx, n);
        else tni_node_forget(r->cx, n);
    }
}

// Whether a store was assigned a value that cannot be computed any more, and has the one before. It
// stays pending until a step fails for it and rolls it back.
static bool is_lost(const tni_store *s)
{
    return s->rollback && s->node->state == TNI_GONE;
}

// Looks through the pending stores and lets those that are computed drop the value they would have
// returned to. A step may have overwritten those values, so it always does this; a read only once
// it may have computed half as many values as there are pending stores, so that many small reads
// stay cheap.
static void settle_stores(tn_ctx *cx, tni_mode mode, size_t computed)
{
    cx->computed_pending += computed;
    if (mode == TNI_READ && cx->computed_pending < cx->pending_stores / 2) return;
    cx->computed_pending = 0;
    for (tni_store *s = cx->pending; s;) {
        tni_store *next = s->next;
        if (s->node->state != TNI_PENDING && !is_lost(s)) tni_store_mark_computed(cx, s);
        s = next;
    }
}

// Spends the nodes that backward passes walked, now that they are computed: no further gradient can
// pass them, so they release their sources. Newest first, so that nodes that only each other hold
// are freed in one pass. Nodes that are still pending stay listed.
static void spend_walked(tn_ctx *cx)
{
    size_t kept = cx->walked_count;
    for (size_t i = cx->walked_count; i-- > 0;) {
        tni_node *n = cx->walked[i];
        if (n->state == TNI_PENDING && n->refs > 1) {
            cx->walked[--kept] = n;
            continue;
        }
        n->walked = false;
        n->spent  = true;
        if (n->state == TNI_DONE) tni_node_forget(cx, n);
        tni_node_unref(cx, n);
    }
    cx->walked_count -= kept;
    if (kept && cx->walked_count)
        memmove(cx->walked, cx->walked + kept, cx->walked_count * sizeof *cx->walked);
}

// Undoes the recall of a read that failed: values that became pending again for it alone are
// unstored as before, so that no step tries to compute them; views of them too, newest first.
static void return_recalled(tn_ctx *cx, tni_graph *g)
{
    int64_t skip;
    tni_graph_unmark(g);
    for (size_t i = g->count; i-- > 0;) {
        tni_node *n = g->item[i].n;
        if (n->state == TNI_PENDING && !n->uses && tni_node_base(n, &skip)->recomputed)
            tni_node_mark_unstored(cx, n);
    }
    settle_stores(cx, TNI_FLUSH, 0);
}

// The node of a store, which is pending again, is not stored after all, nor are views of it.
static void unstore_with_views(tn_ctx *cx, tni_store *s)
{
    for (tn_tensor *t = s->views; t; t = t->view_next)
        if (t->node->state == TNI_PENDING) tni_node_mark_unstored(cx, t->node);
    tni_node_mark_unstored(cx, s->node);
}

// Unstores recalled nodes that backward passes walked and that no store has.
static void unstore_walked(tn_ctx *cx)
{
    for (size_t i = cx->walked_count; i-- > 0;) {
        tni_node *n = cx->walked[i];
        if (n->state == TNI_PENDING && n->recomputed) tni_node_mark_unstored(cx, n);
    }
}

// Ends a failed step: every store returns to its last computed node. A value that never was
// computed is gone, or is unstored again if it was recalled. Constants stay pending, since they can
// always be computed. Objects such as optimizers are notified, so that their counts return too.
void tni_roll_back(tn_ctx *cx)
{
    for (tni_store *s = cx->pending, *next; s; s = next) {
        next = s->next;
        if (s->node->state == TNI_PENDING && s->node->constant) continue;
        if (s->node->state == TNI_DONE) {
            tni_store_mark_computed(cx, s);
        } else if (s->rollback) {
            tni_store_bind(cx, s, tni_node_ref(s->rollback));
        } else {
            if (s->node->state == TNI_PENDING) {
                if (s->node->recomputed) unstore_with_views(cx, s);
                else tni_node_mark_gone(cx, s->node);
            }
            tni_store_mark_computed(cx, s);
        }
    }
    unstore_walked(cx);
    spend_walked(cx);
    for (tni_owned *t = cx->objects; t; t = t->next)
        if (t->rolled_back) t->rolled_back(t);
}

// ---- the whole ---------------------------------------------------------------------------------

tn_status tni_run_plan_step(const tni_run *r, tni_plan_step step, size_t *item)
{
    if (step < 0) return run_kernel(r, &r->plan->kernel[~step], item);
    *item = (size_t)step;
    return run_item(r, *item);
}

// Scratch is released right after the step, so that inspection needs little memory besides the
// values.
tn_status tni_run_one_step(tni_run *r, tni_plan_step step, size_t *item)
{
    tni_planned_kernel *k     = step < 0 ? &r->plan->kernel[~step] : NULL;
    const tni_launch   *first = k ? &k->launch : NULL;
    tni_text            why   = { "" };
    tn_status           s     = TN_OK;
    if (k) s = r->e->kernels->prepare(r->e->session, 1, &first, &k->entry, true, &why);
    if (s != TN_OK) return tni_fail_status(r->cx, s, "evaluating: %s", why.s);
    size_t need = step_scratch(r, step);
    if (need && !(r->scratch = take_run_buffer(r, (int64_t)need, NULL, "scratch")))
        return tni_failed();
    s = tni_run_plan_step(r, step, item);
    tni_buffer_unref(&r->cx->buffers, r->scratch);
    r->scratch = NULL;
    return s;
}

// Runs one step, shown to the observer before and after if it watches values.
static tn_status run_step(const run *r, tni_plan_step step, size_t *item)
{
    if (!(r->e->watch & TNI_WATCH_VALUES)) return tni_run_plan_step(r, step, item);
    void *begun = r->e->observer->step_begins(r, step);
    if (!begun) return tni_failed();
    tn_status s = tni_run_plan_step(r, step, item);
    return r->e->observer->step_ran(begun, s, item);
}

// A plan was built, not found, if the count of plans has grown.
tni_plan *tni_plan_for(tni_graph *g, bool *kept)
{
    tni_engine *e      = g->cx->engine;
    tni_limits  limits = tni_limits_of(e);
    int64_t     built  = g->cx->stats.plans;
    tni_plan   *plan   = tni_plans_get(&e->plans, g, &limits, kept);
    if (plan && g->cx->stats.plans != built) e->observer->plan_built(g, plan);
    return plan;
}

// No memory is taken: everything is given one dummy address, since scratch follows from sizes and
// strides.
int64_t tni_plan_workspace(tni_graph *g, tni_plan **p, bool kept)
{
    _Alignas(64) char nowhere[64];

    run     r    = { .cx = g->cx, .e = g->cx->engine, .g = g };
    int64_t need = -1;
    bool    ok   = tni_prepare(g, p, kept);
    r.plan       = *p;
    if (ok && take_run_lists(&r)) {
        for (size_t i = 0; i < g->count; i++) r.data[i] = nowhere;
        need = (int64_t)tni_run_scratch(&r);
    }
    tni_run_release_memory(&r);
    return need;
}

// Submits what `submit` does, as one graph if the device makes one; *replay is what it remembers of
// it.
static bool submit_part(tn_ctx *cx, tni_plan *p, void **replay, bool resumes,
                        bool (*submit)(void *arg, bool changed_only), void *arg)
{
    const tni_engine *e       = cx->engine;
    bool              replays = e->replay->begin && !e->watch && p->ready, again = false;
    if (replays) p->forget = e->replay->forget;
    do {
        tni_text why  = { "" };
        bool     part = resumes && replays && !again && e->replay->resume &&
                    e->replay->resume(e->session, *replay);
        if (replays && !part) e->replay->begin(e->session, replay);
        bool      ok = submit(arg, part);
        tn_status s  = replays ? e->replay->end(e->session, ok, &again, &why) : TN_OK;
        if (ok && s != TN_OK) tni_fail_status(cx, s, "evaluating: %s", why.s);
        if (!ok || s != TN_OK) return false;
    } while (again);
    return true;
}

bool tni_submit_plan(tn_ctx *cx, tni_plan *p, bool resumes,
                     bool (*submit)(void *arg, bool changed_only), void *arg)
{
    return submit_part(cx, p, &p->replay, resumes, submit, arg);
}

void tn_stop_when(tn_ctx *cx, bool (*asked)(void *user), void *user)
{
    if (!tni_ctx_ok(cx, "stop_when")) return;
    cx->engine->stop_asked = asked;
    cx->engine->stop_user  = user;
}

// A person who presses a key does not notice 50 ms, and an interpreter that has to be asked does
// not notice 20 questions a second.
bool tni_stops(tn_ctx *cx, const tni_plan *p, size_t step)
{
    enum { PAUSE = 50 };
    tni_engine     *e = cx->engine;
    struct timespec t;
    if (!e->stop_asked || cx->recording || step > p->overwrites) return false;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    if (now - e->stop_time < PAUSE) return false;
    e->stop_time = now;
    if (!e->stop_asked(e->stop_user)) return false;
    tni_fail_status(cx, TN_ESTOP, "evaluating: stopped by the program");
    return true;
}

// A run whose steps are submitted, from one up to another, and the item that failed.
typedef struct {
    run    *r;
    size_t *item;
    size_t  from, to;
} submission;

// Submits all steps of a run. On failure *item is the item at fault.
static bool submit_steps(void *arg, bool changed_only)
{
    const submission *x     = arg;
    const run        *r     = x->r;
    bool              timed = r->e->watch & TNI_WATCH_TIMES, ok = true;
    bool              named = r->e->watch & TNI_WATCH_NAMES;
    (void)changed_only;  // which those are is not known
    for (size_t t = x->from; ok && t < x->to; t++) {
        size_t last;
        if (r->e->stop_asked && tni_stops(r->cx, r->plan, t)) {
            ok = false;
            break;
        }
        tni_mark_step(r->e, t - x->from);
        if (named) r->e->observer->name_begins(r, r->plan->step[t]);
        ok = run_step(r, r->plan->step[t], &last) == TN_OK;
        if (named) r->e->observer->name_ends(r);
        if (!ok) *x->item = last;
        else if (timed) r->e->observer->step_launched(r, r->plan->step[t]);
    }
    return ok;
}

// ---- collectives -------------------------------------------------------------------------------

// Returns a hash of the collectives of a plan, in order.
static uint64_t list_hash(const tni_graph *g, const tni_plan *p)
{
    uint64_t h = p->collectives;
    for (size_t i = 0; i < p->collectives; i++)
        h = tni_hash_mix(h, tni_collective_item(g->item[p->collective[i]].n).hash);
    return h ? h : 1;
}

// Notes that all ranks did what a plan does.
static bool learn_list(tn_ctx *cx, tn_dist *d, const tni_plan *p)
{
    tni_text  why = { "" };
    tn_status s   = tni_dist_learn(d, p->collectives_hash, &why);
    return s == TN_OK || tni_fail_status(cx, s, "evaluating: %s", why.s) == TN_OK;
}

// Lets all but the last `in_flight` collectives arrive before what is submitted from now on.
static bool await_collectives(tn_ctx *cx, tn_dist *d, size_t in_flight)
{
    const tni_engine *e   = cx->engine;
    tni_text          why = { "" };
    tn_status         s   = tni_dist_collected(d, in_flight, &why);
    if (s == TN_OK && e->events->collected) s = e->events->collected(e->session, in_flight, &why);
    return s == TN_OK || tni_fail_status(cx, s, "evaluating: %s", why.s) == TN_OK;
}

// Returns the first step from t on that begins a collective, or waits for more than have arrived.
static size_t next_stop(const run *r, size_t t, size_t arrived)
{
    const tni_plan *p = r->plan;
    for (; t < p->steps; t++)
        if (p->arrive[t] > arrived ||
            (p->step[t] >= 0 && tni_node_is_collective(r->g->item[p->step[t]].n)))
            break;
    return t;
}

// Runs a plan with collectives in segments: each is a graph by itself, since ranks capture graphs
// for reasons of their own, while a collective has to be in graphs of all ranks or of none.
static bool submit_segments(tn_ctx *cx, run *r, size_t *item)
{
    tni_plan *p       = r->plan;
    size_t    arrived = 0, begun = 0, n = 0, most = 2 * p->collectives + 2;
    if (!p->segment) {
        p->segment  = tni_zalloc(&cx->heap, most * sizeof *p->segment);
        p->segments = p->segment ? most : 0;
    }
    if (!p->segment) return tni_no_memory(cx, "evaluating");
    tn_dist *d = tni_collective_world(r->g->item[p->collective[0]].n);
    if (!p->collectives_hash) p->collectives_hash = list_hash(r->g, p);
    bool known = tni_dist_knows(d, p->collectives_hash), ok = true;
    tni_dist_compare(d, !known);
    tni_dist_overlap(d, !(r->e->watch & TNI_WATCH_CALLS));  // an observer looks at each result
    for (size_t t = 0; ok && t < p->steps;) {
        submission x = { r, item, t, next_stop(r, t, arrived) };
        if (x.to > t) ok = submit_part(cx, p, &p->segment[n++], false, submit_steps, &x);
        t = x.to;
        if (!ok || t == p->steps) break;
        if (p->arrive[t] > arrived) {
            arrived = p->arrive[t];
            ok      = await_collectives(cx, d, begun - arrived);
            continue;
        }
        x  = (submission){ r, item, t, t + 1 };
        ok = submit_steps(&x, false);
        begun++;
        t++;
    }
    ok = await_collectives(cx, d, 0) && ok;
    tni_dist_overlap(d, false);
    tni_dist_compare(d, false);
    if (ok && known)
        tni_dist_ask(
            d);  // ranks that differ have begun to wait for each other, or to compute nonsense
    return ok && (known || learn_list(cx, d, p));
}

bool tni_run_submit(tn_ctx *cx, tni_run *r, size_t *item)
{
    bool       timed = r->e->watch & TNI_WATCH_TIMES;
    submission all   = { r, item, 0, r->plan->steps };
    if (timed) r->e->observer->run_begins(r);
    bool ok = r->plan->collectives ? submit_segments(cx, r, item)
                                   : tni_submit_plan(cx, r->plan, false, submit_steps, &all);
    if (timed) r->e->observer->run_ends(r);
    return ok;
}

// Waits for late errors after the first run of a plan that gave new buffers to stores which had a
// value. If such a step fails, the stores must keep their old values. A guard (deferred_errors.c)
// keeps kernels from overwriting an old value in its place, but not the engine from binding a store
// to a new buffer: so the error has to be known before.
static bool confirm_first_run(const run *r)
{
    const tni_engine *e   = r->e;
    tni_text          why = { "" };
    bool new              = false;
    for (const tni_store *s = r->cx->pending; s && r->plan->errors; s = s->next) {
        if (!s->rollback || s->node->state != TNI_PENDING || !s->node->mark) continue;
        const tni_place *p = &r->plan->place[s->node->mark - 1];
        new |= p->where == TNI_OWN && !r->plan->place[p->root].donated;
    }
    if (!new || !e->events->failed) return true;
    return e->events->wait(e->session, &why) == TN_OK && tni_deferred_errors_check(r->cx) == TN_OK;
}

double tni_host_clock(const tn_ctx *cx)
{
    struct timespec t;
    if (!(cx->engine->watch & TNI_WATCH_TIMES)) return 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Plans, prepares and runs an open graph: steps 3 to 7 of the top. An item that fails by its values
// will fail again, so it is marked; one that failed because memory was out is not.
static tn_status run_graph(tn_ctx *cx, tni_graph *g)
{
    run       r     = { .cx = cx, .e = cx->engine, .g = g };
    bool      kept  = true;
    double    since = tni_host_clock(cx);
    tni_plan *plan  = tni_plan_for(g, &kept);
    if (!plan) return tni_failed();
    tni_host_worked(cx, TNI_HOST_PLAN, 0, since);
    since      = tni_host_clock(cx);
    bool tunes = kept && tni_tunes_now(r.e, plan);
    if (tunes) r.e->watch |= TNI_WATCH_TUNES;
    bool   ok   = tni_prepare(g, &plan, kept);
    size_t item = SIZE_MAX;
    if (ok && tunes) ok = r.e->observer->plan_tunes(g, &plan);
    r.plan = plan;
    ok     = ok && tni_run_take_memory(&r);
    if (ok && r.e->kernels->ready && plan->runs == 0) compile_calls_ahead(&r);
    tni_host_worked(cx, TNI_HOST_COMPILE, 0, since);
    since = tni_host_clock(cx);
    if (ok && tunes) bind_kernels(&r);
    if (ok && tunes) r.e->observer->tuning_begins(&r);
    if (ok) ok = tni_run_submit(cx, &r, &item);
    tni_host_worked(cx, TNI_HOST_LAUNCH, 0, since);
    if (tunes) r.e->watch &= ~(unsigned)TNI_WATCH_TUNES;
    if (ok && tunes) r.e->observer->tuning_ends(&r);
    if (ok && plan->runs == 0) ok = confirm_first_run(&r);
    if (ok && r.e->repeat) tni_repeat_note(r.e->repeat, &r, kept && !tunes);
    tn_status s = ok ? TN_OK : tni_failed();
    if (ok) finish_items(&r);
    // An item that fails by its values would fail again: later steps leave it out.
    else if (item != SIZE_MAX && s != TN_EMEM) g->item[item].n->failed = true;
    tni_run_release_memory(&r);
    tni_buffers_end_evaluation(&cx->buffers);
    plan->runs++;
    if (!kept) tni_plan_free(&cx->heap, plan);
    return s;
}

// Reports that the value asked for depends on one that could not be computed.
static tn_status fail_lost(tn_ctx *cx, const tni_node *n)
{
    return tni_fail_status(cx, TN_EGONE,
                           "%s: the value of %s made at %s was made from one that could not be "
                           "computed",
                           tni_self.site.op ? tni_self.site.op : "read",
                           tni_shape_text(n->rank, n->size).s, tni_site_text(&n->site).s);
}

// Fails a step that would leave out an assignment: a value from which it is made was read before,
// and could not be computed, or is gone.
static tn_status check_assigned(tn_ctx *cx)
{
    for (const tni_store *s = cx->pending; s; s = s->next)
        if (is_lost(s)) return fail_lost(cx, s->node);
    return TN_OK;
}

// Whether the others wait for collectives that an evaluation which failed has left out. A read
// leaves those pending that are not of its graph.
static bool leaves_collectives(const tni_graph *g, bool pending)
{
    if (g->mode != TNI_READ) return pending;
    for (size_t i = 0; i < g->count; i++)
        if (tni_node_is_collective(g->item[i].n)) return true;
    return false;
}

// The steps of the top, and what a failure leaves behind. Evaluating while an evaluation is in
// progress (a user's function that reads a tensor) is refused. A read whose value turned out to be
// lost (its sources are gone) fails after all.
tn_status tni_evaluate(tn_ctx *cx, tni_mode mode, tni_node *root)
{
    if (root && root->state == TNI_DONE) return TN_OK;
    if (cx->busy) return tni_fail_status(cx, TN_EARG, "evaluating: a tn_ call is in progress");
    tni_exports_reclaim(cx);
    tni_graph g;
    bool      collects = cx->world && tni_dist_pending(cx->world);
    tn_status s        = tni_deferred_errors_check(cx);
    if (!tni_graph_open(&g, cx, mode, root)) s = tni_failed();
    if (s == TN_OK && mode != TNI_READ) s = check_assigned(cx);
    if (g.count && s == TN_OK) s = run_graph(cx, &g);
    cx->engine->steps += mode == TNI_STEP;
    cx->engine->evaluations++;
    size_t computed = g.count;
    bool   leaves   = s != TN_OK && s != TN_ESTOP && leaves_collectives(&g, collects);
    if (s != TN_OK && mode == TNI_READ) return_recalled(cx, &g);
    tni_graph_close(&g);
    if (s == TN_OK && root && root->state == TNI_GONE) s = fail_lost(cx, root);
    if (s == TN_OK) {
        settle_stores(cx, mode, computed);
        if (mode != TNI_READ) spend_walked(cx);
        if (mode != TNI_READ) cx->declined.s[0] = 0;
    } else if (mode == TNI_STEP && s != TN_ESTOP) {
        tni_roll_back(cx);
    }
    if (leaves) tni_dist_fail(cx->world);  // the others wait for what is not done any more
    return s;
}
