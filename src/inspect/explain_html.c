// Plans as a page: the graph of kernels with the data between them. Here its data is written; what
// draws it is explain_html.js.
//
//   {"plans":[{"title":"plan 3","device":"cpu","kernels":3,"moved":713768,"least":610344,"arena":35328,"bound":35328,
//     "steps":[{"number":"1","name":"matmul + POINT","sizes":"(64, 128)","bytes":668160,"flops":1.6e7,
//       "ops":["matmul","add","relu"],"lines":["train.c:4 forward in layer 0"],"by":"OpenBLAS","varies":"...","tuned":"...",
//       "stored":[["(64, 128)","history"]],"reads":[[0,32768,"f32 (64, 128)"]],"inputs":[[401408,"f32 (784, 128)"]],
//       "text":"...","times":7,"body":[...]}]}]}
#include "base/page.h"
#include "inspect/explain.h"
#include "inspect/step_facts.h"
#include "ops/loop.h"

#include <string.h>

extern const char tni_explain_html_js[];

// Texts of kernels beyond this many bytes are left out of a page, which opens at once then too.
enum { MOST_TEXT = 4 << 20, MOST_OPS = 256 };

// A plan on its way into a page. made: by item, 1 + the number of the step that computes it; edge:
// by step, whether the current step was found to read what it makes. number: of the steps that run,
// so far.
typedef struct {
    tni_json_writer *w;
    tni_engine      *e;
    tni_graph       *g;
    const tni_plan  *p;
    const char      *within;  // the number of the loop around, or ""
    bool            *listed, *edge;
    uint32_t        *made;
    size_t           number;
} writer;

// ---- pieces ------------------------------------------------------------------------------------

// Writes ,"name": before a value: every object here begins with a member of its own.
static void put_key(tni_json_writer *w, const char *name)
{
    tni_json_put(w, ",");
    tni_json_quote(w, name);
    tni_json_put(w, ":");
}

static void put_text(tni_json_writer *w, const char *name, const char *s)
{
    put_key(w, name);
    tni_json_quote(w, s);
}

static void put_int(tni_json_writer *w, const char *name, int64_t v)
{
    put_key(w, name);
    tni_json_put_int(w, v);
}

// Begins an element of a list.
static void put_comma(tni_json_writer *w, int *count)
{
    if ((*count)++) tni_json_put(w, ",");
}

// Returns "f32 (64, 128)".
static tni_text value_text(const tni_node *n)
{
    return tni_text_of("%s %s", tn_dtype_name((tn_dtype)n->dtype),
                       tni_shape_text(n->rank, n->size).s);
}

// ---- data between steps ------------------------------------------------------------------------

// Writes [step, bytes, "f32 (64, 128)"] for a step that makes what is read, once.
static void put_edge(writer *x, uint32_t made, const tni_node *n, int64_t bytes, int *count)
{
    if (!made || x->edge[made - 1]) return;
    x->edge[made - 1] = true;
    put_comma(x->w, count);
    tni_json_put(x->w, "[");
    tni_json_put_int(x->w, made - 1);
    tni_json_put(x->w, ",");
    tni_json_put_int(x->w, bytes);
    tni_json_put(x->w, ",");
    tni_json_quote(x->w, value_text(n).s);
    tni_json_put(x->w, "]");
}

// What no step makes by itself, as the result of a concat whose parts are computed in their places,
// is made by all that write to its place.
static void put_read(writer *x, int32_t item, int64_t bytes, int *count)
{
    const tni_place *at = &x->p->place[item];
    const tni_node  *n  = x->g->item[item].n;
    put_edge(x, x->made[item], n, bytes, count);
    for (size_t j = 0; !x->made[item] && at->where != TNI_NOWHERE && j < x->g->count; j++)
        if (x->p->place[j].where == at->where && x->p->place[j].root == at->root)
            put_edge(x, x->made[j], x->g->item[j].n, tni_node_bytes(x->g->item[j].n), count);
}

// Writes [bytes, "f32 (784, 128)"] for a value from before the plan: a parameter, data, an earlier
// result. It is listed for each source that reads it, since each is read.
static void put_input(writer *x, const tni_node *n, int64_t bytes, int *count)
{
    put_comma(x->w, count);
    tni_json_put(x->w, "[");
    tni_json_put_int(x->w, bytes);
    tni_json_put(x->w, ",");
    tni_json_quote(x->w, value_text(n).s);
    tni_json_put(x->w, "]");
}

// Writes what a step reads: with inputs, values from before the plan; else those that its steps
// make. Of a library call with a kernel behind it these are the sources of the call and the buffers
// of the kernel, except for the result of the call, which stays inside the step.
static void put_reads(writer *x, tni_plan_step step, bool inputs)
{
    const tni_planned_kernel *k     = step < 0 ? &x->p->kernel[~step] : NULL;
    int32_t                   item  = k ? k->call_item : step;
    const tni_node           *n     = item >= 0 ? x->g->item[item].n : NULL;
    int                       count = 0;
    for (uint32_t s = 0; n && s < n->nsrc; s++) {
        int32_t base  = tni_base_of(x->g, n->src[s]);
        int64_t bytes = tni_read_bytes(x->g, x->p, (size_t)item, s);
        if (base < 0 && inputs) put_input(x, n->src[s], bytes, &count);
        else if (base >= 0 && !inputs) put_read(x, base, bytes, &count);
    }
    for (int i = 0; k && i < k->kernel->nbuffer; i++) {
        int32_t at = k->buffer[i];
        if (k->kernel->buffer[i].written || at == item) continue;
        const tni_node *read = at < 0 ? x->g->input[~at].n : x->g->item[at].n;
        if (at < 0 && inputs) put_input(x, read, tni_node_bytes(read), &count);
        else if (at >= 0 && !inputs) put_read(x, at, tni_node_bytes(read), &count);
    }
}

// The first step that computes an item is the one that others read from: an update in place comes
// later, and is an item of its own.
static void mark_made(writer *x, int32_t item)
{
    if (item >= 0 && !x->made[item]) x->made[item] = (uint32_t)x->number;
}

// Notes what the current step computes, for those that come after it.
static void note_made(writer *x, tni_plan_step step)
{
    const tni_planned_kernel *k    = step < 0 ? &x->p->kernel[~step] : NULL;
    int32_t                   item = k ? k->call_item : step;
    mark_made(x, item);
    if (item >= 0)
        for (const tni_node *o = tni_outputs(x->g->item[item].n); o; o = o->output)
            mark_made(x, (int32_t)o->mark - 1);
    for (size_t i = 0; k && i < k->seeds; i++) mark_made(x, tni_seed_item(k->seed[i]));
    for (int i = 0; k && i < k->kernel->nbuffer; i++)
        if (k->kernel->buffer[i].written) mark_made(x, k->buffer[i]);
}

// ---- a step ------------------------------------------------------------------------------------

// Writes the names of the ops that a step computes, in order: an op of several instructions once.
static void put_ops(writer *x, tni_plan_step step)
{
    const tni_planned_kernel *k    = step < 0 ? &x->p->kernel[~step] : NULL;
    int32_t                   item = k ? k->call_item : step, last = -1;
    int                       count = 0;
    tni_json_put(x->w, ",\"ops\":[");
    if (item >= 0) {
        put_comma(x->w, &count);
        tni_json_quote(x->w, tni_op_table[x->g->item[item].n->op].name);
    }
    for (int i = 0; k && i < k->kernel->nins && count < MOST_OPS; i++) {
        if (k->origin[i] < 0 || k->origin[i] == last || k->origin[i] == item) continue;
        last = k->origin[i];
        put_comma(x->w, &count);
        tni_json_quote(x->w, tni_op_table[x->g->item[last].n->op].name);
    }
    tni_json_put(x->w, "]");
}

// Writes the lines of the program that a step comes from, in the words of the text form. Names of
// layers come from files and may hold anything, so they are escaped.
static void put_lines(writer *x, tni_plan_step step)
{
    const tni_node *n;
    int             at = 0, count = 0;
    tni_json_put(x->w, ",\"lines\":[");
    while ((n = tni_step_origin(x->g, x->p, step, &at)) != NULL) {
        tni_text    t  = { "" };
        const char *op = n->site.op ? n->site.op : tni_op_table[n->op].name;
        if (n->site.line) tni_text_add(&t, "%s:%d ", n->site.file, n->site.line);
        tni_text_add(&t, "%s%s", op, tni_layer_text(&n->site).s);
        put_comma(x->w, &count);
        tni_json_quote(x->w, tni_escaped(t.s).s);
    }
    tni_json_put(x->w, "]");
}

// Writes ["(64, 10)", "assigned"] for each value in the place of an item that outlives the plan.
static void put_stored_at(writer *x, int32_t item, int *count)
{
    const tni_item *it;
    while ((it = tni_next_stored(x->g, x->p, item, x->listed)) != NULL) {
        put_comma(x->w, count);
        tni_json_put(x->w, "[");
        tni_json_quote(x->w, tni_shape_text(it->n->rank, it->n->size).s);
        tni_json_put(x->w, ",");
        tni_json_quote(x->w, tni_why_text(it->why).s);
        tni_json_put(x->w, "]");
    }
}

// Writes the values that a step stores beyond the plan, and why. Those of a body are its loop's.
static void put_stored(writer *x, tni_plan_step step)
{
    const tni_planned_kernel *k     = step < 0 ? &x->p->kernel[~step] : NULL;
    int                       count = 0;
    if (*x->within) return;
    tni_json_put(x->w, ",\"stored\":[");
    put_stored_at(x, k ? k->call_item : step, &count);
    for (size_t i = 0; k && i < k->seeds; i++) put_stored_at(x, k->seed[i], &count);
    tni_json_put(x->w, "]");
}

// Writes the instructions of a kernel, and its text as the device compiles it.
static void put_source(writer *x, const tni_planned_kernel *k)
{
    tni_heap *h        = &x->g->cx->heap;
    size_t    capacity = 1 << 16;
    if (x->w->bytes >= MOST_TEXT) tni_json_put(x->w, ",\"cut\":true");
    char *list = x->w->bytes < MOST_TEXT ? tni_alloc(h, capacity) : NULL;
    if (!list) return;
    tni_kernel_print(k->kernel, list, capacity);
    put_text(x->w, "instructions", list);
    tni_free(h, list);
    char *text = tni_planned_text(h, x->e, k);
    if (text) put_text(x->w, "text", text);
    tni_free(h, text);
}

static void put_steps(writer *x);

static void put_body_steps(void *to, tni_graph *g, const tni_plan *p);

// Writes how often a loop runs and the steps of its body, which are numbered within it.
static void put_loop(writer *x, const char *number, const tni_node *n)
{
    writer b = *x;
    b.within = number;
    put_int(x->w, "times", n->attr.loop.steps);
    tni_json_put(x->w, ",\"body\":");
    size_t before = x->w->bytes;
    tni_with_body(x->g->cx, n, &b, put_body_steps);
    if (x->w->bytes == before) tni_json_put(x->w, "[]");  // memory was out
}

// Writes a step with its number; reads name other steps by their place in the list.
static void put_step(writer *x, const char *number, tni_plan_step step)
{
    const char *by  = tni_step_method(x->e, x->g, x->p, step);
    const char *why = tni_step_varies(x->e, x->g, x->p, step);
    tni_json_put(x->w, "{\"number\":");
    tni_json_quote(x->w, number);
    put_text(x->w, "name", tni_step_name(x->g, x->p, step).s);
    put_text(x->w, "sizes", tni_step_sizes(x->g, x->p, step).s);
    put_int(x->w, "bytes", tni_step_bytes(x->g, x->p, step));
    put_int(x->w, "flops", (int64_t)tni_step_effort(x->g, x->p, step).flops);
    if (by) put_text(x->w, "by", by);
    if (why) put_text(x->w, "varies", why);
    if (step < 0 && x->p->kernel[~step].is_prologue) put_text(x->w, "with", "the next step");
    put_text(x->w, "tuned", tni_step_tuned(x->e, x->g, x->p, step).s);
    put_ops(x, step);
    put_lines(x, step);
    put_stored(x, step);
    tni_json_put(x->w, ",\"reads\":[");
    if (x->number > 1) memset(x->edge, 0, (x->number - 1) * sizeof *x->edge);
    put_reads(x, step, false);
    tni_json_put(x->w, "],\"inputs\":[");
    put_reads(x, step, true);
    tni_json_put(x->w, "]");
    note_made(x, step);
    if (step < 0) put_source(x, &x->p->kernel[~step]);
    else if (x->g->item[step].n->op == TNI_loop) put_loop(x, number, x->g->item[step].n);
    tni_json_put(x->w, "}");
}

// Writes the steps that run, as a list; the page finds sources by their place in it.
static void put_steps(writer *x)
{
    int count = 0;
    tni_json_put(x->w, "[");
    for (size_t t = 0; t < x->p->steps; t++) {
        if (!tni_step_runs(x->g, x->p, x->p->step[t])) continue;
        x->number++;
        if (count) tni_json_put(x->w, "\n");
        put_comma(x->w, &count);
        put_step(x, tni_text_of("%s%s%zu", x->within, *x->within ? "." : "", x->number).s,
                 x->p->step[t]);
    }
    tni_json_put(x->w, "]");
}

// Writes the steps of a plan with lists for them; nothing when memory is out.
static bool put_with_lists(writer *x)
{
    tni_heap *h = &x->g->cx->heap;
    x->number   = 0;
    x->listed   = tni_zalloc(h, x->g->count * sizeof *x->listed + 1);
    x->edge     = tni_zalloc(h, x->p->steps * sizeof *x->edge + 1);
    x->made     = tni_zalloc(h, x->g->count * sizeof *x->made + 1);
    bool ok     = x->listed && x->edge && x->made;
    if (ok) put_steps(x);
    tni_free(h, x->listed);
    tni_free(h, x->edge);
    tni_free(h, x->made);
    return ok;
}

// The body of a loop has a graph and a plan of its own, and so lists of its own.
static void put_body_steps(void *to, tni_graph *g, const tni_plan *p)
{
    writer x = *(writer *)to;
    x.g      = g;
    x.p      = p;
    put_with_lists(&x);
}

// ---- the page ----------------------------------------------------------------------------------

// The counts come first, as in the text form, whose first line they are.
bool tni_explain_json(tni_graph *g, const tni_plan *p, const char *title, tni_json_writer *w)
{
    writer          x = { .w = w, .e = g->cx->engine, .g = g, .p = p, .within = "" };
    tni_plan_counts n;
    if (!tni_plan_count(g, p, &n)) return false;
    tni_json_put(w, "{\"title\":");
    tni_json_quote(w, title);
    put_text(w, "device", g->cx->engine->device->name);
    put_int(w, "kernels", (int64_t)n.launches);
    put_int(w, "moved", n.moved);
    put_int(w, "least", n.least);
    put_int(w, "arena", p->arena);
    put_int(w, "bound", n.bound);
    if (p->unfused) put_text(w, "unfused", "no order of kernels was found");
    if (g->cx->declined.s[0]) put_text(w, "declined", g->cx->declined.s);
    put_text(w, "tuned", tni_plan_tuned(g).s);
    tni_json_put(w, ",\n\"steps\":");
    bool ok = put_with_lists(&x);
    tni_json_put(w, "}");
    return ok && !w->full;
}

// Puts plans that are JSON already, with commas between them, into a page.
bool tni_explain_pages(tn_ctx *cx, const char *plans, int left, FILE *f)
{
    tni_json_writer w = { .heap = &cx->heap };
    tni_json_put(&w, "{\"left\":");
    tni_json_put_int(&w, left);
    tni_json_put(&w, ",\"plans\":[");
    tni_json_put(&w, plans);
    tni_json_put(&w, "]}");
    tni_page page = { .title = "kernels", .data = w.text, .script = tni_explain_html_js };
    if (!w.full) tni_page_write(f, &page);
    tni_free(w.heap, w.text);
    return !w.full;
}

bool tni_explain_html(tni_graph *g, const tni_plan *p, FILE *f)
{
    tni_json_writer w  = { .heap = &g->cx->heap };
    bool            ok = tni_explain_json(g, p, "the pending work", &w);
    ok                 = ok && tni_explain_pages(g->cx, w.text, 0, f);
    tni_free(w.heap, w.text);
    return ok;
}
