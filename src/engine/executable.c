// Values that are computed again and again of other inputs, without recording them: what a model does for each request.
//
//   y = model(x)                  recorded once, x a tensor that stays
//   e = tni_executable_new(y)     planned; memory is taken; run once
//   write x, tni_executable_run   the plan is submitted with the arguments of the first run
//
// On a GPU a run is the launch of one graph: nothing of it changes. What a run computes is in the executable's own memory until
// the next one, so that results are copied for whoever asked.
//
// What it is made of must be such that a run is the same each time: no random numbers, no functions of the user, no loops (whose
// bodies are bound step by step), nothing that is written in place.
#include "engine/observer.h"

#include <string.h>

struct tni_executable {
    tn_ctx         *cx;
    tni_plan       *plan;
    tni_run         run;    // for its memory; there is no graph any more
    size_t          count;  // of the graph's items
    tni_bound_step *step;   // by step of the plan
    int64_t         launches;
    tni_buffer    **input;  // that it reads
    size_t          inputs;
    tni_node      **result;  // each in its buffer
    int             results;
    uint64_t        runs;
};

// ---- making ------------------------------------------------------------------------------------

// Whether a run of these nodes is the same each time, and every root is in memory of its own.
static bool can_run_again(const tni_graph *g, const tni_plan *p)
{
    if (p->collectives) return false;
    for (size_t i = 0; i < g->count; i++) {
        const tni_node *n = g->item[i].n;
        if (n->op == TNI_custom || n->op == TNI_loop) return false;
        if (tni_op_table[n->op].attr == TNI_ATTR_random) return false;
        if (n->op == TNI_attention && n->attr.attention.drops) return false;
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
static bool bind_results(tni_executable *x, int n, tni_node *const *root)
{
    tni_heap *h = &x->cx->heap;
    x->result   = tni_zalloc(h, (size_t)n * sizeof *x->result + 1);
    x->step     = tni_zalloc(h, x->plan->steps * sizeof *x->step + 1);
    if (!x->result || !x->step) return tni_no_memory(x->cx, "evaluating");
    for (; x->results < n; x->results++) {
        const tni_node  *y    = root[x->results];
        const tni_place *p    = &x->plan->place[y->mark - 1];
        x->result[x->results] = tni_node_in_buffer(x->cx, (tn_dtype)y->dtype, y->rank, y->size,
                                                   x->run.own[p->root], p->start);
        if (!x->result[x->results]) return false;
    }
    x->launches = tni_bind_steps(&x->run, x->step);
    return true;
}

// Makes an open graph with its plan an executable by running it once.
static bool bind(tni_executable *x, tni_graph *g, int n, tni_node *const *root)
{
    size_t item;
    x->run  = (tni_run){ .cx = x->cx, .e = x->cx->engine, .g = g, .plan = x->plan, .lasts = true };
    bool ok = hold_inputs(x, g) && tni_run_take_memory(&x->run) &&
              tni_run_submit(x->cx, &x->run, &item) && bind_results(x, n, root);
    // Memory is released by counts, for which the graph's size is needed.
    x->count = g->count;
    x->plan->runs++;
    return ok;
}

// Plans an open graph. Kernels are compiled at once, since the plan runs often. NULL, with *later if they are not yet compiled.
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

// Whether runs may be repeated now: an observer wants to see each one, and another library's graph is recorded of launches.
static bool is_plain(const tn_ctx *cx)
{
    const tni_engine *e = cx->engine;
    return !e->watch && !e->eager && !cx->busy && !cx->recording && !tni_is_captured(e);
}

// A value that is there already, is a view, or is asked for twice has no memory of its own in the plan.
tni_executable *tni_executable_new(tn_ctx *cx, int n, tn_tensor *const *y, bool *later)
{
    tni_heap       *h    = &cx->heap;
    tni_node      **root = tni_alloc(h, (size_t)n * sizeof *root + 1);
    tni_executable *x    = tni_zalloc(h, sizeof *x);
    bool            ok   = root && x && is_plain(cx);
    *later               = !ok;
    if (!root || !x) tni_fail_memory(cx, "evaluating");
    if (x) x->cx = cx;
    for (int i = 0; ok && i < n; i++) {
        root[i] = tni_resolve(y[i], "evaluating");
        ok      = root[i] && root[i]->state == TNI_PENDING && root[i]->op != TNI_view;
        for (int k = 0; ok && k < i; k++) ok = root[k] != root[i];
    }
    if (ok) {
        tni_graph g;
        ok = tni_graph_open_roots(&g, cx, n, root) && (x->plan = plan_graph(&g, later)) != NULL;
        ok = ok && bind(x, &g, n, root);
        x->run.g = NULL;
        tni_graph_close(&g);
        cx->engine->evaluations++;
    }
    tni_free(h, root);
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
    for (int i = 0; i < x->results; i++) tni_node_unref(cx, x->result[i]);
    tni_graph size = { .count = x->count };
    x->run.g       = &size;
    if (x->run.cx) tni_run_release_memory(&x->run);
    if (x->plan) tni_plans_drop(&cx->engine->plans, h, x->plan);
    tni_free(h, x->input);
    tni_free(h, x->result);
    tni_free(h, x->step);
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
        ok = tni_run_bound_step(e, &x->step[i], &why) == TN_OK;
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

// Copies a computed value into memory of the device.
static bool copy_value(tn_ctx *cx, tni_node *n, char *to)
{
    tni_text  why = { "" };
    tn_status s   = tni_node_count(n) ? tni_value_copy(cx, n, (tn_dtype)n->dtype, to, &why) : TN_OK;
    return s == TN_OK || tni_refuse(cx, s, "evaluating: %s", why.s);
}

// A computed value in a buffer of its own, as a tensor of the innermost scope.
static tn_tensor *value_copy(tn_ctx *cx, tni_node *n, bool rewritten)
{
    tni_node   *copy = NULL;
    int64_t     size = (int64_t)cx->engine->device->memory->element_size((tn_dtype)n->dtype);
    tni_buffer *b    = tni_buffer_new(&cx->buffers, (size_t)(tni_node_count(n) * size));
    if (!b) return tni_fail_memory(cx, "evaluating");
    b->rewritten = rewritten;
    if (copy_value(cx, n, b->data))
        copy = tni_node_in_buffer(cx, (tn_dtype)n->dtype, n->rank, n->size, b, 0);
    tni_buffer_unref(&cx->buffers, b);
    return copy ? tni_wrap(cx, copy) : NULL;
}

tn_tensor *tni_executable_result(const tni_executable *x, int i)
{
    return value_copy(x->cx, x->result[i], false);
}

tn_tensor *tni_executable_input(tn_tensor *x)
{
    tni_node *n = tni_value(x, "evaluating");
    return n ? value_copy(x->cx, n, true) : NULL;
}

bool tni_executable_write(tn_tensor *input, tn_tensor *x)
{
    tni_node *n = tni_value(x, "evaluating");
    return n && copy_value(x->cx, n, input->store->node->buf->data);
}
