// Values that are computed again and again of other inputs, without recording them: what a model
// does for each request.
//
//   y = model(x)                  recorded once, x a tensor that stays
//   e = tni_executable_new(y)     planned; memory is taken; run once
//   write x, tni_executable_run   the plan is submitted with the arguments of the first run
//
// On a GPU a run is the launch of one graph: nothing of it changes. What a run computes is in the
// executable's own memory until the next one, so that results are copied for whoever asked.
//
// What it is made of must be such that a run is the same each time: no random numbers, no functions
// of the user, nothing that is written in place. Bodies of loops are bound anew for each of their
// steps.
#include "engine/observer.h"
#include "engine/run.h"

#include <string.h>

struct tni_executable {
    tn_ctx         *cx;
    tni_plan       *plan;
    tni_run         run;    // for its memory; there is no graph any more
    size_t          count;  // of the graph's items
    tni_bound_step *step;   // by step of the plan
    tni_loop_call  *loop;   // likewise; NULL if there is no loop
    int64_t         launches;
    tni_buffer    **input;  // that it reads
    size_t          inputs;
    tni_arg        *result;  // in memory of the run
    int             results;
    uint64_t        runs;
};

// ---- making ------------------------------------------------------------------------------------

// Whether computing a node is the same each time, and so are the nodes of its body, if it is a
// loop.
static bool is_constant(const tni_node *n)
{
    if (n->op == TNI_custom || tni_op_table[n->op].attr == TNI_ATTR_random) return false;
    if (n->op == TNI_attention) return !n->attr.attention.drops;
    if (n->op != TNI_loop) return true;
    const tni_loop *l = n->attr.loop.body;
    for (size_t i = 0; i < l->count; i++)
        if (!is_constant(l->node[i])) return false;
    return true;
}

// Whether a run of these nodes is the same each time, and every root is in memory of its own.
static bool can_run_again(const tni_graph *g, const tni_plan *p)
{
    if (p->collectives) return false;
    for (size_t i = 0; i < g->count; i++) {
        const tni_node *n = g->item[i].n;
        if (!is_constant(n)) return false;
        if (n->op == TNI_update && !p->place[i].in_place) return false;
        if (g->item[i].why && p->place[i].where != TNI_OWN) return false;
        if (g->item[i].why && p->place[i].pitch) return false;
    }
    return true;
}

// Holds the buffers that the graph reads. False when memory is out.
static bool hold_inputs(tni_executable *x, const tni_graph *g)
{
    x->input = tni_alloc(&x->cx->heap, g->inputs * sizeof *x->input + 1);
    if (!x->input) return tni_no_memory(x->cx, "evaluating");
    for (size_t i = 0; i < g->inputs; i++) {
        tni_buffer *b = g->input[i].n->buf;
        b->refs++;
        x->input[x->inputs++] = b;
    }
    return true;
}

// Notes where the results are, and the arguments of every step.
static bool bind_results(tni_executable *x, int n, tni_node *const *value)
{
    tni_heap *h = &x->cx->heap;
    x->result   = tni_zalloc(h, (size_t)n * sizeof *x->result + 1);
    x->step     = tni_zalloc(h, x->plan->steps * sizeof *x->step + 1);
    bool loops  = false;
    for (size_t i = 0; i < x->plan->calls; i++) loops |= x->plan->call[i].call.op == TNI_loop;
    if (loops) x->loop = tni_zalloc(h, x->plan->steps * sizeof *x->loop);
    if (!x->result || !x->step || (loops && !x->loop)) return tni_no_memory(x->cx, "evaluating");
    for (; x->results < n; x->results++) {
        int64_t   offset;
        tni_node *y = value[x->results], *base = tni_node_base(y, &offset);
        tni_view  v = tni_node_layout(y);
        tni_arg  *a = &x->result[x->results];
        *a          = (tni_arg){ .dtype = (tn_dtype)y->dtype, .rank = v.rank };
        memcpy(a->size, v.size, sizeof a->size);
        memcpy(a->stride, v.stride, sizeof a->stride);
        a->data = x->run.data[base->mark - 1] +
                  offset * (int64_t)x->cx->engine->device->memory->element_size(a->dtype);
    }
    x->launches = tni_bind_steps(&x->run, x->step, x->loop);
    return true;
}

// Makes an open graph with its plan an executable by running it once.
static bool bind(tni_executable *x, tni_graph *g, int n, tni_node *const *value)
{
    size_t item;
    x->run  = (tni_run){ .cx = x->cx, .e = x->cx->engine, .g = g, .plan = x->plan, .lasts = true };
    bool ok = hold_inputs(x, g) && tni_run_take_memory(&x->run) &&
              tni_run_submit(x->cx, &x->run, &item) && bind_results(x, n, value);
    // Memory is released by counts, for which the graph's size is needed.
    x->count = g->count;
    x->plan->runs++;
    return ok;
}

// Plans an open graph. Kernels are compiled at once, since the plan runs often. NULL, with *later
// if they are not yet compiled.
static tni_plan *plan_graph(tni_graph *g, bool *later)
{
    tni_plans *plans = &g->cx->engine->plans;
    bool       kept;
    tni_plan  *p = tni_plan_for(g, &kept);
    if (!p) return NULL;
    p->recurs = true;
    if (kept && can_run_again(g, p) && tni_prepare(g, &p, kept)) {
        *later = !p->ready;
        if (p->ready && tni_plans_pin(plans, p)) return p;
        return NULL;
    }
    if (!kept) tni_plan_free(&g->cx->heap, p);
    return NULL;
}

// Whether runs may be repeated now: an observer wants to see each one, and another library's graph
// is recorded of launches.
static bool is_plain(const tn_ctx *cx)
{
    const tni_engine *e = cx->engine;
    return !e->watch && !e->eager && !cx->busy && !cx->recording && !tni_is_captured(e);
}

// Lists the nodes of the values in value, and those that hold their elements in root, each once.
// Returns how many these are; 0 if one is there already, as an input is, or gone.
static int find_roots(int n, tn_tensor *const *y, tni_node **value, tni_node **root)
{
    int roots = 0;
    for (int i = 0; i < n; i++) {
        int64_t offset;
        int     k      = 0;
        value[i]       = tni_resolve(y[i], "evaluating");
        tni_node *base = value[i] ? tni_node_base(value[i], &offset) : NULL;
        if (!base || base->state != TNI_PENDING) return 0;
        while (k < roots && root[k] != base) k++;
        root[k] = base;
        if (k == roots) roots++;
    }
    return roots;
}

// Nothing is left of the graph afterwards: what a run needs of it is in the plan, in the bound
// steps and in held buffers.
tni_executable *tni_executable_new(tn_ctx *cx, int n, tn_tensor *const *y, bool *later)
{
    tni_heap       *h     = &cx->heap;
    tni_node      **value = tni_alloc(h, 2 * (size_t)n * sizeof *value + 1);
    tni_executable *x     = tni_zalloc(h, sizeof *x);
    bool            plain = is_plain(cx), ok = false;
    *later = !plain;
    if (x) x->cx = cx;
    if (!value || !x) tni_fail_memory(cx, "evaluating");
    int roots = value && x && plain ? find_roots(n, y, value, value + n) : 0;
    if (roots) {
        tni_graph g;
        ok = tni_graph_open_roots(&g, cx, roots, value + n) &&
             (x->plan = plan_graph(&g, later)) != NULL && bind(x, &g, n, value);
        x->run.g = NULL;
        tni_graph_close(&g);
        cx->engine->evaluations++;
    }
    tni_free(h, value);
    if (ok) return x;
    tni_executable_free(x);
    return NULL;
}

void tni_executable_free(tni_executable *x)
{
    if (!x) return;
    tn_ctx   *cx = x->cx;
    tni_heap *h  = &cx->heap;
    for (size_t i = 0; i < x->inputs; i++) tni_buffer_unref(&cx->buffers, x->input[i]);
    tni_graph size = { .count = x->count };
    x->run.g       = &size;
    if (x->run.cx) tni_run_release_memory(&x->run);
    if (x->plan) tni_plans_drop(&cx->engine->plans, h, x->plan);
    tni_free(h, x->input);
    tni_free(h, x->result);
    tni_free(h, x->step);
    tni_free(h, x->loop);
    tni_free(h, x);
}

// ---- running -----------------------------------------------------------------------------------

static bool submit_bound(void *arg, bool changed_only)
{
    tni_executable *x   = arg;
    tni_engine     *e   = x->cx->engine;
    tni_text        why = { "" };
    bool            ok  = true;
    for (size_t i = 0; ok && !changed_only && i < x->plan->steps; i++) {
        tni_mark_step(e, i);
        ok = tni_run_bound_step(x->cx, &x->step[i], &why) == TN_OK;
    }
    return ok;
}

bool tni_executable_run(tni_executable *x)
{
    tn_ctx     *cx = x->cx;
    tni_engine *e  = cx->engine;
    if (!is_plain(cx) || tni_deferred_errors_check(cx) != TN_OK) return false;
    if (e->stop_asked && tni_stops(cx, x->plan, 0)) return false;
    x->plan->used = ++e->plans.clock;  // the message of a late error is that of the newest plan
    if (!tni_submit_plan(cx, x->plan, x->runs > 0, submit_bound, x)) return false;
    x->runs++;
    x->plan->runs++;
    cx->stats.launches += x->launches;
    e->evaluations++;
    return true;
}

// Copies a value of the device into memory of it.
static bool copy_value(tn_ctx *cx, const tni_arg *from, char *to)
{
    tni_text  why = { "" };
    tn_status s   = TN_OK;
    if (tni_shape_count(from->rank, from->size)) s = tni_arg_copy(cx, *from, from->dtype, to, &why);
    return s == TN_OK || tni_refuse(cx, s, "evaluating: %s", why.s);
}

// A value in a buffer of its own, as a tensor of the innermost scope.
static tn_tensor *value_copy(tn_ctx *cx, const tni_arg *from, bool rewritten)
{
    tni_node   *copy = NULL;
    int64_t     size = (int64_t)cx->engine->device->memory->element_size(from->dtype);
    tni_buffer *b    = tni_buffer_new(&cx->buffers,
                                      (size_t)(tni_shape_count(from->rank, from->size) * size));
    if (!b) return tni_fail_memory(cx, "evaluating");
    b->rewritten = rewritten;
    if (copy_value(cx, from, b->data))
        copy = tni_node_in_buffer(cx, from->dtype, from->rank, from->size, b, 0);
    tni_buffer_unref(&cx->buffers, b);
    return copy ? tni_wrap(cx, copy) : NULL;
}

tn_tensor *tni_executable_result(const tni_executable *x, int i)
{
    return value_copy(x->cx, &x->result[i], false);
}

tn_tensor *tni_executable_input(tn_tensor *x)
{
    tni_node *n = tni_value(x, "evaluating");
    tni_arg   a = n ? tni_value_arg(x->cx->engine, n) : (tni_arg){ 0 };
    return n ? value_copy(x->cx, &a, true) : NULL;
}

bool tni_executable_write(tn_tensor *input, tn_tensor *x)
{
    tni_node *n = tni_value(x, "evaluating");
    tni_arg   a = n ? tni_value_arg(x->cx->engine, n) : (tni_arg){ 0 };
    return n && copy_value(x->cx, &a, input->store->node->buf->data);
}
