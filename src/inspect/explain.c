// Explaining a plan: its kernels and calls, the bytes they move, the lines they come from, and the memory it
// was given. Of a two-layer network:
//
//   3 kernels, 713768 bytes moved, 610344 at least
//        1  matmul + POINT (64, 128)  668160 bytes
//            train.c:4 forward in layer 0
//            train.c:4 forward in layer 1
//        2  matmul     (64, 10)  40448 bytes
//            train.c:4 forward in layer 2
//        3  POINT      (64)  5160 bytes
//            train.c:4 forward in layer 2
//            train.c:4 softmax
//     memory: 34.5 KiB planned, 34.5 KiB lower bound
#include "base/integers.h"
#include "inspect/inspect.h"
#include "inspect/step_facts.h"
#include "ops/loop.h"

#include <stdio.h>
#include <string.h>

// A plan as it is counted and printed. launches: kernels, and calls that run. moved: bytes they read
// and write; least: bytes that even one kernel for everything would move.
typedef struct {
    tni_engine     *e;
    tni_graph      *g;
    const tni_plan *p;
    FILE           *f;
    tn_explain_opts o;
    bool           *listed;  // by item: its line "stored" is printed
    int64_t         moved, least;
    size_t          launches;
} account;

// ---- counting ----------------------------------------------------------------------------------

// Adds what an item reads of the graph's inputs. A view that several ops read is counted once, by
// itself.
static void add_reads(const account *a, size_t i, int64_t *reads)
{
    const tni_item *it = &a->g->item[i];
    if (it->n->op == TNI_view) {
        if (it->base < 0 && it->edges) reads[~it->base] += tni_source_bytes(it->n);
        return;
    }
    if (a->p->place[i].alias) return;
    for (uint32_t s = 0; s < it->n->nsrc; s++) {
        int64_t skip;
        if (it->n->src[s]->state == TNI_PENDING) continue;
        reads[tni_node_base(it->n->src[s], &skip)->mark - 1] += tni_read_bytes(a->g, a->p, i, s);
    }
}

// Returns whether an item fills a buffer that outlives the plan, or writes into an input.
static bool is_result(const account *a, size_t i)
{
    const tni_place *p = &a->p->place[i];
    return p->where == TNI_OWN ? p->root == i : p->where == TNI_INPUT && p->in_place;
}

// Counts launches, and the bytes that they move.
static void count_steps(account *a)
{
    for (size_t t = 0; t < a->p->steps; t++) {
        if (!tni_step_runs(a->g, a->p, a->p->step[t])) continue;
        a->launches++;
        a->moved += tni_step_bytes(a->g, a->p, a->p->step[t]);
    }
}

// Returns whether an input is part of another that is read too, as a parameter is part of its
// optimizer's block.
static bool is_within(const tni_graph *g, const int64_t *reads, size_t i)
{
    const tni_node *n = g->input[i].n;
    for (size_t j = 0; j < g->inputs; j++) {
        const tni_node *m    = g->input[j].n;
        int64_t         from = n->start - m->start, more = tni_node_count(m) - tni_node_count(n);
        if (m->buf != n->buf || from < 0 || from > more || !reads[j]) continue;
        if (more || j < i) return true;
    }
    return false;
}

// Counts the bytes that any plan must move: every input read once, every result written once.
static bool count_least(account *a)
{
    tni_graph *g     = a->g;
    int64_t   *reads = tni_zalloc(&g->cx->heap, g->inputs * sizeof *reads);
    if (!reads) return false;
    for (size_t i = 0; i < g->count; i++) add_reads(a, i, reads);
    for (size_t i = 0; i < g->inputs; i++)
        if (!is_within(g, reads, i))
            a->least += tni_min_i64(reads[i], tni_node_bytes(g->input[i].n));
    for (size_t i = 0; i < g->count; i++)
        if (is_result(a, i)) a->least += tni_written_bytes(g, a->p, i);
    tni_free(&g->cx->heap, reads);
    return true;
}

// ---- printing ----------------------------------------------------------------------------------

// Prints the line of user code that recorded a node, with the layer that ran.
static void print_site(FILE *f, const tni_node *n)
{
    const char *op = n->site.op ? n->site.op : tni_op_table[n->op].name;
    fprintf(f, "         ");
    if (n->site.line) fprintf(f, "%s:%d ", n->site.file, n->site.line);
    fprintf(f, "%s%s\n", op, tni_layer_text(&n->site).s);
}

// Prints the kernel's instructions, and its source text if the device can show it.
static void print_source(const account *a, const tni_planned_kernel *k)
{
    tni_heap *h        = &a->g->cx->heap;
    size_t    capacity = 1 << 16;
    char     *text     = tni_alloc(h, capacity);
    if (text) {
        tni_kernel_print(k->kernel, text, capacity);
        fprintf(a->f, "\n%s", text);
        tni_free(h, text);
    }
    text = a->e->kernels->text ? a->e->kernels->text(h, &k->launch) : NULL;
    if (text) fprintf(a->f, "\n%s\n", text);
    tni_free(h, text);
}

// Prints the values that outlive the plan in the place of item i, and why. A value that only shares a
// place, as an assignment does, is listed with the first that is computed into it.
static void print_stored(const account *a, int32_t i)
{
    const tni_place *at = i >= 0 ? &a->p->place[i] : NULL;
    for (size_t j = 0; at && at->where != TNI_NOWHERE && j < a->g->count; j++) {
        const tni_item  *it = &a->g->item[j];
        const tni_place *p  = &a->p->place[j];
        if (!it->why || a->listed[j] || p->where != at->where || p->root != at->root) continue;
        a->listed[j] = true;
        fprintf(a->f, "         stored %s: %s\n", tni_shape_text(it->n->rank, it->n->size).s,
                tni_why_text(it->why).s);
    }
}

// Prints what a step stores.
static void print_all_stored(const account *a, tni_plan_step step)
{
    const tni_planned_kernel *k = step < 0 ? &a->p->kernel[~step] : NULL;
    print_stored(a, k ? k->call_item : step);
    for (size_t i = 0; k && i < k->seeds; i++) print_stored(a, k->seed[i]);
}

// Prints what computes a call, if the device tells, and why the bits of its result may differ from run to
// run, if they may.
static void print_method(const account *a, tni_plan_step step)
{
    const char *by  = tni_step_method(a->e, a->g, a->p, step);
    const char *why = tni_step_varies(a->e, a->g, a->p, step);
    if (by) fprintf(a->f, "         by %s\n", by);
    if (why) fprintf(a->f, "         not deterministic: %s\n", why);
}

static void print_steps(const account *a, const char *within);

// Prints the body of a loop, whose steps run once for each step of the loop: "3.1", "3.2".
static void print_body(const account *a, const char *number, const tni_node *n)
{
    tni_node  *root[TNI_LOOP_OUTPUTS];
    tni_graph  g;
    account    b      = *a;
    tni_limits limits = tni_limits_of(a->e);
    bool       busy   = a->g->cx->busy;
    int64_t    built  = a->g->cx->stats.plans;
    tni_plan  *p      = NULL;
    if (tni_graph_open_body(&g, a->g->cx, tni_loop_roots(n, root), root))
        p = tni_plan_build(&g, &limits);
    b.g        = &g;
    b.p        = p;
    b.o.stored = false;
    fprintf(a->f, "         %lld times:\n", (long long)n->attr.loop.steps);
    if (p) print_steps(&b, number);
    tni_plan_free(&a->g->cx->heap, p);
    tni_graph_close(&g);
    a->g->cx->busy        = busy;
    a->g->cx->stats.plans = built;
}

// Prints a step and the calls that it comes from.
static void print_step(const account *a, const char *number, tni_plan_step step)
{
    const tni_node *n;
    int             at = 0;
    fprintf(a->f, "  %4s  %-10s %s  %lld bytes\n", number, tni_step_name(a->g, a->p, step).s,
            tni_step_sizes(a->g, a->p, step).s, (long long)tni_step_bytes(a->g, a->p, step));
    while ((n = tni_step_origin(a->g, a->p, step, &at)) != NULL) print_site(a->f, n);
    if (step < 0 && a->p->kernel[~step].is_prologue) fprintf(a->f, "         by the next step\n");
    print_method(a, step);
    if (a->o.stored) print_all_stored(a, step);
    if (step < 0 && a->o.source) print_source(a, &a->p->kernel[~step]);
    if (step >= 0 && a->g->item[step].n->op == TNI_loop) print_body(a, number, a->g->item[step].n);
}

// Prints the steps by numbers; within: that of the loop whose body they are, or "".
static void print_steps(const account *a, const char *within)
{
    size_t number = 0;
    for (size_t t = 0; t < a->p->steps; t++)
        if (tni_step_runs(a->g, a->p, a->p->step[t]))
            print_step(a, tni_text_of("%s%s%zu", within, *within ? "." : "", ++number).s,
                       a->p->step[t]);
}

// Returns "512 B" or "1.2 MiB".
static tni_text size_text(int64_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };

    double v = (double)bytes / 1024;
    int    u = 0;
    if (bytes < 1024) return tni_text_of("%lld B", (long long)bytes);
    for (; v >= 1024 && u < 3; u++) v /= 1024;
    return tni_text_of("%.1f %s", v, units[u]);
}

bool tni_explain(tni_graph *g, const tni_plan *p, FILE *f, tn_explain_opts o)
{
    account a     = { .e = g->cx->engine, .g = g, .p = p, .f = f, .o = o };
    int64_t bound = tni_arena_bound(g, p);
    count_steps(&a);
    if (bound < 0 || !count_least(&a)) return false;
    if (!(a.listed = tni_zalloc(&g->cx->heap, g->count * sizeof *a.listed + 1))) return false;
    fprintf(f, "%zu kernel%s, %lld bytes moved, %lld at least\n", a.launches,
            a.launches == 1 ? "" : "s", (long long)a.moved, (long long)a.least);
    if (p->unfused) fprintf(f, "  not fused: no order of kernels was found\n");
    if (g->cx->declined.s[0]) fprintf(f, "  recorded as other ops: %s\n", g->cx->declined.s);
    print_steps(&a, "");
    fprintf(f, "  memory: %s planned, %s lower bound\n", size_text(p->arena).s, size_text(bound).s);
    tni_free(&g->cx->heap, a.listed);
    return true;
}

// ---- the call ----------------------------------------------------------------------------------

// Builds a plan of its own, so that the kept plans and their counts do not change. A plan that was cut
// because its kernels spilled is cut here too.
static tn_status explain_graph(tn_ctx *cx, tni_graph *g, FILE *f, tn_explain_opts o)
{
    tni_plan   nothing = { 0 };
    tni_limits limits  = tni_limits_of(cx->engine);
    int64_t    built   = cx->stats.plans;
    if (!tni_plans_recall(&cx->engine->plans, g)) return tni_failed();
    tni_plan *p     = g->count ? tni_plan_build(g, &limits) : &nothing;
    cx->stats.plans = built;
    if (!p) return tni_failed();
    bool ok = tni_explain(g, p, f, o);
    if (p != &nothing) tni_plan_free(&cx->heap, p);
    if (!ok) tni_fail_memory(cx, "explain");
    if (!ok) return tni_failed();
    return ferror(f) ? tni_fail_status(cx, TN_EIO, "explain: it could not be written") : TN_OK;
}

tn_status tn_explain_with(tn_ctx *cx, FILE *f, tn_explain_opts o)
{
    if (!tni_ctx_ok(cx, "explain")) return tni_failed();
    if (!f) return tni_fail_status(cx, TN_EARG, "explain: the file is NULL");
    if (cx->busy) return tni_fail_status(cx, TN_EARG, "explain: a tn_ call is in progress");
    tni_graph g;
    tn_status s = tni_graph_open(&g, cx, TNI_STEP, NULL) ? TN_OK : tni_failed();
    if (s == TN_OK) s = explain_graph(cx, &g, f, o);
    tni_graph_close(&g);
    return s;
}

tn_status tn_explain(tn_ctx *cx, FILE *f)
{
    return tn_explain_with(cx, f, (tn_explain_opts){ 0 });
}
