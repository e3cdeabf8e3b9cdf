// Saying what a plan does: kernels and calls, the bytes they move, the lines they come from, and the
// memory it was given.
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

// A plan as it is counted and printed. launches: kernels, and calls that run. moved: bytes they read
// and write; least: bytes that even one kernel for everything would move.
typedef struct {
    tni_engine     *e;
    tni_graph      *g;
    const tni_plan *p;
    FILE           *f;
    bool            source;
    int64_t         moved, least;
    size_t          launches;
} account;

// ---- counting ----------------------------------------------------------------------------------

static int64_t node_bytes(const tni_node *n)
{
    return tni_node_count(n) * (int64_t)tni_dtype_size((tn_dtype)n->dtype);
}

// Bytes of the different elements that are read through a source.
static int64_t source_bytes(const tni_node *src)
{
    tni_view v = tni_node_layout(src);
    int64_t  n = 1;
    for (int i = 0; i < v.rank; i++) n *= v.stride[i] || !v.size[i] ? v.size[i] : 1;
    return n * (int64_t)tni_dtype_size((tn_dtype)src->dtype);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Bytes that an op reads of its source number s.
static int64_t read_bytes(const account *a, size_t i, uint32_t s)
{
    const tni_node *n = a->g->item[i].n, *src = n->src[s];
    if (n->op == TNI_update && s == 0 && a->p->place[i].in_place) return 0;
    if (src->state == TNI_PENDING) {
        int32_t base = a->g->item[src->mark - 1].base;
        if (base >= 0 && a->p->place[base].splat) return (int64_t)tni_dtype_size(src->dtype);
    }
    bool picks = n->op == TNI_gather && s == 0;
    return picks ? smaller(source_bytes(src), node_bytes(n)) : source_bytes(src);
}

static int64_t written_bytes(const account *a, size_t i)
{
    const tni_node *n = a->g->item[i].n;
    if (a->p->place[i].splat) return (int64_t)tni_dtype_size((tn_dtype)n->dtype);
    return a->p->place[i].in_place ? node_bytes(n->src[1]) : node_bytes(n);
}

static bool runs(const account *a, size_t i)
{
    const tni_node  *n = a->g->item[i].n;
    const tni_place *p = &a->p->place[i];
    return n->op != TNI_view && !p->alias && !p->filled && tni_node_count(n) > 0;
}

static int64_t call_bytes(const account *a, size_t i)
{
    int64_t bytes = written_bytes(a, i);
    for (uint32_t s = 0; s < a->g->item[i].n->nsrc; s++) bytes += read_bytes(a, i, s);
    return bytes;
}

// Adds what an item reads of inputs. A view that many ops read is added by itself, once.
static void add_reads(const account *a, size_t i, int64_t *reads)
{
    const tni_item *it = &a->g->item[i];
    if (it->n->op == TNI_view) {
        if (it->base < 0 && it->edges) reads[~it->base] += source_bytes(it->n);
        return;
    }
    if (a->p->place[i].alias && !it->joined) return;
    for (uint32_t s = 0; s < it->n->nsrc; s++) {
        int64_t skip;
        if (it->n->src[s]->state == TNI_PENDING) continue;
        reads[tni_node_base(it->n->src[s], &skip)->mark - 1] += read_bytes(a, i, s);
    }
}

// Whether an item is what fills a buffer that outlives the plan, or writes into an input.
static bool is_result(const account *a, size_t i)
{
    const tni_place *p = &a->p->place[i];
    return p->where == TNI_OWN ? p->root == i : p->where == TNI_INPUT && p->in_place;
}

// What follows an op finds its result at hand.
static int64_t kernel_bytes(const account *a, const tni_fused *k)
{
    if (k->claimed < 0) return k->bytes;
    return k->bytes + call_bytes(a, (size_t)k->claimed) - node_bytes(a->g->item[k->claimed].n);
}

static void count_steps(account *a)
{
    for (size_t t = 0; t < a->p->steps; t++) {
        tni_step step = a->p->step[t];
        bool     work = step < 0 || runs(a, (size_t)step);
        if (!work) continue;
        a->launches++;
        a->moved += step < 0 ? kernel_bytes(a, &a->p->kernel[~step]) : call_bytes(a, (size_t)step);
    }
}

// Every input read once, every result written once.
static bool count_least(account *a)
{
    tni_graph *g     = a->g;
    int64_t   *reads = tni_zalloc(&g->cx->heap, g->inputs * sizeof *reads);
    if (!reads) return false;
    for (size_t i = 0; i < g->count; i++) add_reads(a, i, reads);
    for (size_t i = 0; i < g->inputs; i++) a->least += smaller(reads[i], node_bytes(g->input[i].n));
    for (size_t i = 0; i < g->count; i++)
        if (is_result(a, i)) a->least += written_bytes(a, i);
    tni_free(&g->cx->heap, reads);
    return true;
}

// ---- printing ----------------------------------------------------------------------------------

static void print_site(FILE *f, const tni_node *n)
{
    const char *op = n->site.op ? n->site.op : tni_op_table[n->op].name;
    fprintf(f, "         ");
    if (n->site.line) fprintf(f, "%s:%d ", n->site.file, n->site.line);
    fprintf(f, "%s\n", op);
}

static bool same_site(const tni_node *a, const tni_node *b)
{
    return a->site.line == b->site.line && a->site.file == b->site.file && a->site.op == b->site.op;
}

// The calls that a kernel's instructions come from, each line once; first that of the op before it.
static void print_origins(const account *a, const tni_fused *k)
{
    const tni_node *op = k->claimed >= 0 ? a->g->item[k->claimed].n : NULL;
    if (op) print_site(a->f, op);
    for (int i = 0; i < k->kernel->nins; i++) {
        if (k->origin[i] < 0) continue;
        const tni_node *n    = a->g->item[k->origin[i]].n;
        bool            seen = op && same_site(op, n);
        for (int j = 0; j < i && !seen; j++)
            seen = k->origin[j] >= 0 && same_site(a->g->item[k->origin[j]].n, n);
        if (!seen) print_site(a->f, n);
    }
}

// The instructions, and the text that the device makes of them where it shows it.
static void print_source(const account *a, const tni_fused *k)
{
    tni_heap *h    = &a->g->cx->heap;
    size_t    room = 1 << 16;
    char     *text = tni_alloc(h, room);
    if (text) {
        tni_kernel_print(k->kernel, text, room);
        fprintf(a->f, "\n%s", text);
        tni_free(h, text);
    }
    text = a->e->device->text ? a->e->device->text(h, &k->launch) : NULL;
    if (text) fprintf(a->f, "\n%s\n", text);
    tni_free(h, text);
}

static void print_kernel(const account *a, size_t number, const tni_fused *k)
{
    const tni_launch *l    = &k->launch;
    const char       *kind = tni_kernel_kind(k->kernel);
    int               np   = k->kernel->np;
    const tni_node   *op   = k->claimed >= 0 ? a->g->item[k->claimed].n : NULL;
    tni_text          name = op ? tni_text_of("%s + %s", tni_op_table[op->op].name, kind)
                                : tni_text_of("%-10s", kind);
    fprintf(a->f, "  %4zu  %s (", number, name.s);
    for (int i = 0; i < np + k->kernel->nr; i++)
        fprintf(a->f, "%s%lld", i == 0 ? "" : i == np ? " | " : ", ", (long long)l->size[i]);
    fprintf(a->f, ")  %lld bytes\n", (long long)kernel_bytes(a, k));
    print_origins(a, k);
    if (a->source) print_source(a, k);
}

static void print_call(const account *a, size_t number, size_t i)
{
    const tni_node *n = a->g->item[i].n;
    fprintf(a->f, "  %4zu  %-10s %s  %lld bytes\n", number, tni_op_table[n->op].name,
            tni_shape_text(n->rank, n->size).s, (long long)call_bytes(a, i));
    print_site(a->f, n);
}

static void print_steps(const account *a)
{
    size_t number = 0;
    for (size_t t = 0; t < a->p->steps; t++) {
        tni_step step = a->p->step[t];
        if (step < 0) print_kernel(a, ++number, &a->p->kernel[~step]);
        else if (runs(a, (size_t)step)) print_call(a, ++number, (size_t)step);
    }
}

// "512 B", "1.2 MiB"
static tni_text size_text(int64_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };

    double v = (double)bytes / 1024;
    int    u = 0;
    if (bytes < 1024) return tni_text_of("%lld B", (long long)bytes);
    for (; v >= 1024 && u < 3; u++) v /= 1024;
    return tni_text_of("%.1f %s", v, units[u]);
}

bool tni_explain(tni_graph *g, const tni_plan *p, FILE *f, bool source)
{
    account a     = { .e = g->cx->engine, .g = g, .p = p, .f = f, .source = source };
    int64_t bound = tni_arena_bound(g, p);
    count_steps(&a);
    if (bound < 0 || !count_least(&a)) return false;
    fprintf(f, "%zu kernel%s, %lld bytes moved, %lld at least\n", a.launches,
            a.launches == 1 ? "" : "s", (long long)a.moved, (long long)a.least);
    if (p->unfused) fprintf(f, "  not fused: no order of kernels was found\n");
    print_steps(&a);
    fprintf(f, "  memory: %s planned, %s lower bound\n", size_text(p->arena).s, size_text(bound).s);
    return true;
}

// ---- the call ----------------------------------------------------------------------------------

// By a plan of its own, so that the plans that are kept and counted stay as they are.
static tn_status explain_graph(tn_ctx *cx, tni_graph *g, FILE *f, tn_explain_opts o)
{
    tni_plan   nothing = { 0 };
    tni_limits limits  = tni_limits_of(cx->engine);
    int64_t    built   = cx->stats.plans;
    tni_plan  *p       = g->count ? tni_plan_build(g, &limits) : &nothing;
    cx->stats.plans    = built;
    if (!p) return tni_failed();
    bool ok = tni_explain(g, p, f, o.source);
    if (p != &nothing) tni_plan_free(&cx->heap, p);
    if (!ok) tni_fail_memory(cx, "explain");
    if (!ok) return tni_failed();
    return ferror(f) ? tni_fail_status(cx, TN_EIO, "explain: it could not be written") : TN_OK;
}

static tn_status explain(tn_ctx *cx, FILE *f, tn_explain_opts o)
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

tn_status tn_explain_with(tn_ctx *cx, FILE *f, tn_explain_opts o)
{
    tni_enter(tni_self.site);
    tn_status s = explain(cx, f, o);
    tni_leave(false, NULL);
    return s;
}

tn_status tn_explain(tn_ctx *cx, FILE *f)
{
    return tn_explain_with(cx, f, (tn_explain_opts){ 0 });
}
