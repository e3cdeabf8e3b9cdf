// Explaining a plan: its kernels and calls, the bytes they move, the lines they come from, and the
// memory it was given. Of a two-layer network:
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
#include "inspect/explain.h"
#include "inspect/step_facts.h"
#include "ops/loop.h"

#include <stdio.h>
#include <string.h>

// A plan as it is printed.
typedef struct {
    tni_engine     *e;
    tni_graph      *g;
    const tni_plan *p;
    FILE           *f;
    tn_explain_opts o;
    bool           *listed;  // by item: its line "stored" is printed
} account;

// A plan as it is counted.
typedef struct {
    tni_graph      *g;
    const tni_plan *p;
} counted;

// ---- counting ----------------------------------------------------------------------------------

// Adds what an item reads of the graph's inputs. A view that several ops read is counted once, by
// itself.
static void add_reads(const counted *a, size_t i, int64_t *reads)
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
static bool is_result(const counted *a, size_t i)
{
    const tni_place *p = &a->p->place[i];
    return p->where == TNI_OWN ? p->root == i : p->where == TNI_INPUT && p->in_place;
}

// Counts launches, and the bytes that they move.
static void count_steps(const counted *a, tni_plan_counts *n)
{
    for (size_t t = 0; t < a->p->steps; t++) {
        if (!tni_step_runs(a->g, a->p, a->p->step[t])) continue;
        n->launches++;
        n->moved += tni_step_bytes(a->g, a->p, a->p->step[t]);
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
static bool count_least(const counted *a, tni_plan_counts *n)
{
    tni_graph *g     = a->g;
    int64_t   *reads = tni_zalloc(&g->cx->heap, g->inputs * sizeof *reads);
    if (!reads) return false;
    for (size_t i = 0; i < g->count; i++) add_reads(a, i, reads);
    for (size_t i = 0; i < g->inputs; i++)
        if (!is_within(g, reads, i))
            n->least += tni_min_i64(reads[i], tni_node_bytes(g->input[i].n));
    for (size_t i = 0; i < g->count; i++)
        if (is_result(a, i)) n->least += tni_written_bytes(g, a->p, i);
    tni_free(&g->cx->heap, reads);
    return true;
}

bool tni_plan_count(tni_graph *g, const tni_plan *p, tni_plan_counts *n)
{
    *n = (tni_plan_counts){ .bound = tni_arena_bound(g, p) };
    count_steps(&(counted){ g, p }, n);
    return n->bound >= 0 && count_least(&(counted){ g, p }, n);
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

// A plan that has not run has no threads yet, by which the cpu looks for settings.
char *tni_planned_text(tni_heap *h, const tni_engine *e, const tni_planned_kernel *k)
{
    tni_launch l = k->launch;
    l.threads    = e->threads;
    return e->kernels->text ? e->kernels->text(e->session, h, &l) : NULL;
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
    text = tni_planned_text(h, a->e, k);
    if (text) fprintf(a->f, "\n%s\n", text);
    tni_free(h, text);
}

// A value that only shares a place, as an assignment does, is listed with the first that is
// computed into it.
const tni_item *tni_next_stored(const tni_graph *g, const tni_plan *p, int32_t i, bool *listed)
{
    const tni_place *at = i >= 0 ? &p->place[i] : NULL;
    for (size_t j = 0; at && at->where != TNI_NOWHERE && j < g->count; j++) {
        const tni_place *q = &p->place[j];
        if (!g->item[j].why || listed[j] || q->where != at->where || q->root != at->root) continue;
        listed[j] = true;
        return &g->item[j];
    }
    return NULL;
}

// Prints the values that outlive the plan in the place of item i, and why.
static void print_stored(const account *a, int32_t i)
{
    const tni_item *it;
    while ((it = tni_next_stored(a->g, a->p, i, a->listed)) != NULL)
        fprintf(a->f, "         stored %s: %s\n", tni_shape_text(it->n->rank, it->n->size).s,
                tni_why_text(it->why).s);
}

// Prints what a step stores.
static void print_all_stored(const account *a, tni_plan_step step)
{
    const tni_planned_kernel *k = step < 0 ? &a->p->kernel[~step] : NULL;
    print_stored(a, k ? k->call_item : step);
    for (size_t i = 0; k && i < k->seeds; i++) print_stored(a, k->seed[i]);
}

// Prints what computes a call, if the device tells, and why the bits of its result may differ from
// run to run, if they may.
static void print_method(const account *a, tni_plan_step step)
{
    const char *by  = tni_step_method(a->e, a->g, a->p, step);
    const char *why = tni_step_varies(a->e, a->g, a->p, step);
    if (by) fprintf(a->f, "         by %s\n", by);
    if (why) fprintf(a->f, "         not deterministic: %s\n", why);
}

static void print_steps(const account *a, const char *within);

// The body is planned for the look alone: kept plans and their counts do not change.
void tni_with_body(tn_ctx *cx, const tni_node *n, void *to,
                   void (*show)(void *to, tni_graph *g, const tni_plan *p))
{
    tni_node  *root[TNI_LOOP_OUTPUTS];
    tni_graph  g;
    tni_limits limits = tni_limits_of(cx->engine);
    bool       busy   = cx->busy;
    int64_t    built  = cx->stats.plans;
    tni_plan  *p      = NULL;
    if (tni_graph_open_body(&g, cx, tni_loop_roots(n, root), root)) p = tni_plan_build(&g, &limits);
    if (p) show(to, &g, p);
    tni_plan_free(&cx->heap, p);
    tni_graph_close(&g);
    cx->busy        = busy;
    cx->stats.plans = built;
}

// The steps of a loop's body, and the number of the loop that they are within.
typedef struct {
    const account *outer;
    const char    *number;
} body;

static void print_body_steps(void *to, tni_graph *g, const tni_plan *p)
{
    const body *b = to;
    account     a = *b->outer;
    a.g           = g;
    a.p           = p;
    a.o.stored    = false;
    print_steps(&a, b->number);
}

// Prints the body of a loop, whose steps run once for each step of the loop: "3.1", "3.2".
static void print_body(const account *a, const char *number, const tni_node *n)
{
    body b = { a, number };
    fprintf(a->f, "         %lld times:\n", (long long)n->attr.loop.steps);
    tni_with_body(a->g->cx, n, &b, print_body_steps);
}

tni_text tni_tuned_text(const tni_tuned *won, const char *with)
{
    tni_text s = tni_text_of("%s, %s by the rule", tni_micros_text(won->us).s,
                             tni_micros_text(won->rule_us).s);
    if (won->next_us > 0) tni_text_add(&s, ", %s next", tni_micros_text(won->next_us).s);
    tni_text_add(&s, ": %s", with);
    return s;
}

tni_text tni_step_tuned(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                        tni_plan_step step)
{
    tni_tuned                 won;
    tni_call                  c;
    tni_text                  with = { "" };
    const tni_planned_kernel *k    = step < 0 ? &p->kernel[~step] : NULL;
    const tni_op_impl        *impl = tni_step_call(e, g, p, step, &c);
    if (impl)
        return impl->tuned && impl->tuned(&c, &won, &with) ? tni_tuned_text(&won, with.s)
                                                           : (tni_text){ "" };
    if (!k || !e->kernels->chip ||
        !tni_tuned_find(e->kernels->chip(e->session, e->threads), &k->launch, &won))
        return (tni_text){ "" };
    return tni_tuned_text(&won, tni_tuning_text(&won.settings).s);
}

tni_text tni_plan_tuned(tni_graph *g)
{
    tni_limits limits = tni_limits_of(g->cx->engine);
    size_t     bytes;
    tni_tuned  won;
    char      *key = limits.chip && g->count ? tni_key_write(g, &bytes) : NULL;
    bool       any = key && tni_find_winner(g, &limits, key, bytes, &won);
    tni_free(&g->cx->heap, key);
    return any ? tni_tuned_text(&won, tni_choices_text(g, &won.choices).s) : (tni_text){ "" };
}

// Prints where a choice comes from, if it was measured.
static void print_tuned(const account *a, const char *indent, const char *text)
{
    if (*text) fprintf(a->f, "%stuned: %s\n", indent, text);
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
    print_tuned(a, "         ", tni_step_tuned(a->e, a->g, a->p, step).s);
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
    account         a = { .e = g->cx->engine, .g = g, .p = p, .f = f, .o = o };
    tni_plan_counts n;
    if (o.html) return tni_explain_html(g, p, f);
    if (!tni_plan_count(g, p, &n)) return false;
    if (!(a.listed = tni_zalloc(&g->cx->heap, g->count * sizeof *a.listed + 1))) return false;
    fprintf(f, "%zu kernel%s, %lld bytes moved, %lld at least\n", n.launches,
            n.launches == 1 ? "" : "s", (long long)n.moved, (long long)n.least);
    if (p->unfused) fprintf(f, "  not fused: no order of kernels was found\n");
    if (g->cx->declined.s[0]) fprintf(f, "  recorded as other ops: %s\n", g->cx->declined.s);
    print_tuned(&a, "  ", tni_plan_tuned(g).s);
    print_steps(&a, "");
    fprintf(f, "  memory: %s planned, %s lower bound\n", size_text(p->arena).s,
            size_text(n.bound).s);
    tni_free(&g->cx->heap, a.listed);
    return true;
}

// ---- the call ----------------------------------------------------------------------------------

// Builds a plan of its own, so that the kept plans and their counts do not change. A plan that was
// cut because its kernels spilled is cut here too.
static tn_status explain_graph(tn_ctx *cx, tni_graph *g, FILE *f, tn_explain_opts o)
{
    tni_plan   nothing = { 0 };
    tni_limits limits  = tni_limits_of(cx->engine);
    int64_t    built   = cx->stats.plans;
    if (!tni_plans_recall(&cx->engine->plans, g, &limits)) return tni_failed();
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
