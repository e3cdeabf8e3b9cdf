// A profile as people read it: a table of kernels, or a trace that Perfetto and Chrome show.
//
//           ms   share   count    mean us    best us     GB/s   GFLOP/s  %ceil  kernel           lines
//        0.085   0.4 %       7      12.18      10.11      3.3      13.5   41.9  matmul (64, 10)  train.c:4 ...
//
// An event of the trace:
//
//   {"name":"POINT (128)","cat":"kernel","ph":"X","ts":1361.821,"dur":2.765,"pid":0,"tid":1,
//    "args":{"bytes":512,"flops":2816,"percent":1.0,"lines":["train.c:3 nn_linear"]}}
#include "inspect/profile.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_LINES = 3, NAME_WIDTH = 44 };

// Returns how much of the device's best a row reaches, in tenths of a percent: of the copy rate or of
// the product rate, whichever bounds it more (its roofline). More than 1000 is possible when values
// stay in a cache. -1 if there is nothing to compare with.
static int64_t per_mille(tn_ctx *cx, tni_profile *p, const tni_profile_row *r)
{
    double seconds = 1e-9 * (double)r->ns / (double)r->count;
    double copy    = tni_roofline_copy(cx, p);
    double rate    = r->effort.products > 0 ? tni_roofline_product(cx, p, r->effort.dtype) : 0,
           least   = 0;
    if (copy > 0) least = (double)r->bytes / copy;
    if (rate > 0 && r->effort.products / rate > least) least = r->effort.products / rate;
    if (seconds <= 0 || (copy <= 0 && rate <= 0)) return -1;
    return (int64_t)(1000 * least / seconds + 0.5);
}

// ---- the table ---------------------------------------------------------------------------------

// A line of the table: rows that differ only in their layers. sum adds them up, and is otherwise like
// the first.
typedef struct {
    tni_profile_row         sum;
    const tni_profile_row **row;
    size_t                  rows;
} group;

static int alike_together(const void *a, const void *b)
{
    const tni_profile_row *const *x = a, *const *y = b;
    if ((*x)->kind != (*y)->kind) return (*x)->kind < (*y)->kind ? -1 : 1;
    return *x < *y ? -1 : 1;
}

static int longer_first(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->sum.ns != y->sum.ns) return x->sum.ns < y->sum.ns ? 1 : -1;
    return x->row[0] < y->row[0] ? -1 : 1;
}

static void add_row(group *g, const tni_profile_row *r)
{
    g->rows++;
    g->sum.count += r->count;
    g->sum.ns += r->ns;
    if (r->best < g->sum.best) g->sum.best = r->best;
}

// Groups rows of the same kind and sorts the groups, longest first; returns their number.
static size_t make_groups(const tni_profile *p, const tni_profile_row **row, group *g)
{
    size_t n = 0;
    for (size_t i = 0; i < p->rows; i++) row[i] = &p->row[i];
    qsort(row, p->rows, sizeof *row, alike_together);
    for (size_t i = 0; i < p->rows; i++) {
        if (n && g[n - 1].sum.kind == row[i]->kind) add_row(&g[n - 1], row[i]);
        else g[n++] = (group){ .sum = *row[i], .row = &row[i], .rows = 1 };
    }
    qsort(g, n, sizeof *g, longer_first);
    return n;
}

// Prints the measured rooflines, of the dtypes that were used.
static void print_ceilings(tn_ctx *cx, tni_profile *p, FILE *f)
{
    bool   used[TNI_DTYPES] = { false };
    double copy             = tni_roofline_copy(cx, p);
    for (size_t i = 0; i < p->rows; i++)
        if (p->row[i].effort.products > 0) used[p->row[i].effort.dtype] = true;
    fprintf(f, "ceiling, measured here: ");
    if (copy > 0) fprintf(f, "copies %.1f GB/s", copy * 1e-9);
    else fprintf(f, "copies unknown");
    for (int dt = 0; dt < TNI_DTYPES; dt++) {
        double rate = used[dt] ? tni_roofline_product(cx, p, (tn_dtype)dt) : 0;
        if (rate > 0)
            fprintf(f, ", products of %s %.1f GFLOP/s", tn_dtype_name((tn_dtype)dt), rate * 1e-9);
    }
    fputc('\n', f);
}

// Prints "model.c:12 linear in layer1.fc": the first lines, and how many more there are.
static void print_lines(const tni_profile_row *r, FILE *f)
{
    for (int i = 0; i < r->sites && i < NAMED_LINES; i++) {
        const tni_site *s = &r->site[i];
        if (i) fprintf(f, ", ");
        if (s->line) fprintf(f, "%s:%d ", s->file, s->line);
        fprintf(f, "%s%s", s->op, tni_layer_text(s).s);
    }
    if (r->sites > NAMED_LINES) fprintf(f, ", and %d more", r->sites - NAMED_LINES);
}

// Returns the first layer that a row names; "" if it names none.
static const char *layer_of(const tni_profile_row *r)
{
    for (int i = 0; i < r->sites; i++)
        if (r->site[i].layer) return r->site[i].layer->text;
    return "";
}

// Prints "; alike in h.1.attn, h.2.attn, and 9 more".
static void print_alike(const group *g, FILE *f)
{
    for (size_t i = 1; i < g->rows && i <= NAMED_LINES; i++)
        fprintf(f, "%s%s", i == 1 ? "; alike in " : ", ", tni_escaped(layer_of(g->row[i])).s);
    if (g->rows > NAMED_LINES + 1) fprintf(f, ", and %zu more", g->rows - NAMED_LINES - 1);
}

// Prints one line of the table.
static void print_group(tn_ctx *cx, tni_profile *p, const group *g, int width, FILE *f)
{
    const tni_profile_row *r = &g->sum;

    double  mean = (double)r->ns / (double)r->count;  // ns, so that rates are in billions
    int64_t part = per_mille(cx, p, r);
    fprintf(f, "%10.3f %5.1f %% %7lld %10.2f %10.2f ", 1e-6 * (double)r->ns,
            p->ns ? 100 * (double)r->ns / (double)p->ns : 0, (long long)r->count, 1e-3 * mean,
            1e-3 * (double)r->best);
    if (mean > 0) fprintf(f, "%8.1f %9.1f ", (double)r->bytes / mean, r->effort.flops / mean);
    else fprintf(f, "%8s %9s ", "-", "-");
    if (part >= 0) fprintf(f, "%6.1f  ", (double)part / 10);
    else fprintf(f, "%6s  ", "-");
    fprintf(f, "%-*s  ", width, r->name.s);
    if (r->registers.spilled) fprintf(f, "(a thread spills %d bytes) ", r->registers.spilled);
    print_lines(r, f);
    print_alike(g, f);
    fputc('\n', f);
}

// The time of single kernels may add up to less than the wall time: the rest is recording, planning and
// waiting.
static void print_head(tn_ctx *cx, tni_profile *p, FILE *f)
{
    double wall = p->ended - p->begun;
    fprintf(f, "profile on %s: %lld kernel%s in %lld evaluation%s\n", cx->engine->device->name,
            (long long)p->launches, p->launches == 1 ? "" : "s", (long long)p->runs,
            p->runs == 1 ? "" : "s");
    fprintf(
        f,
        "timed one by one, each after the one before it: %.3f ms of the %.3f ms that it was on\n",
        1e-6 * (double)p->ns, 1e3 * wall);
    print_ceilings(cx, p, f);
    if (p->lost) fprintf(f, "%lld of them are missing here\n", (long long)p->lost);
}

// Prints the head, then one line for each group of alike rows, the longest first.
void tni_profile_table(tn_ctx *cx, tni_profile *p, FILE *f)
{
    tni_heap               *h     = &cx->heap;
    const tni_profile_row **row   = tni_alloc(h, p->rows * sizeof *row);
    group                  *all   = row ? tni_alloc(h, p->rows * sizeof *all) : NULL;
    size_t                  n     = all ? make_groups(p, row, all) : p->rows;
    int                     width = 6;
    print_head(cx, p, f);
    for (size_t i = 0; i < p->rows; i++) {
        int wide = (int)strlen(p->row[i].name.s);
        if (wide > width && wide <= NAME_WIDTH) width = wide;
    }
    fprintf(f, "\n%10s %7s %7s %10s %10s %8s %9s %6s  %-*s  %s\n", "ms", "share", "count",
            "mean us", "best us", "GB/s", "GFLOP/s", "%ceil", width, "kernel", "lines");
    for (size_t i = 0; i < n; i++) {
        // Without memory for sorting, rows are printed in the order they first ran.
        group alone = { .sum = p->row[i], .rows = 1 };
        print_group(cx, p, all ? &all[i] : &alone, width, f);
    }
    tni_free(h, all);
    tni_free(h, row);
}

// ---- the trace ---------------------------------------------------------------------------------

// Numbers are written digit by digit: JSON has a point, whatever the locale uses.
static void put_micros(tni_json_writer *w, int64_t ns)
{
    char digits[] = { '.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                      (char)('0' + ns % 10), '\0' };
    tni_json_put_int(w, ns / 1000);
    tni_json_put(w, digits);
}

// As put_micros, for percentages.
static void put_tenths(tni_json_writer *w, int64_t v)
{
    char digits[] = { '.', (char)('0' + v % 10), '\0' };
    tni_json_put_int(w, v / 10);
    tni_json_put(w, digits);
}

// Returns "model.c:12 linear in layer1.fc". Bytes that are not UTF-8, or cut in the middle of a
// character, become question marks.
static tni_text line_text(const tni_site *s)
{
    tni_text t = { "" };
    if (s->line) tni_text_add(&t, "%s:%d ", s->file, s->line);
    tni_text_add(&t, "%s%s", s->op, tni_layer_text(s).s);
    if (tni_utf8_ok(t.s, strlen(t.s))) return t;
    for (char *c = t.s; *c; c++)
        if ((unsigned char)*c >= 128) *c = '?';
    return t;
}

static void put_lines(tni_json_writer *w, const tni_profile_row *r)
{
    tni_json_put(w, "[");
    for (int i = 0; i < r->sites; i++) {
        if (i) tni_json_put(w, ",");
        tni_json_quote(w, line_text(&r->site[i]).s);
    }
    tni_json_put(w, "]");
}

// Writes what all events of a row share, as the end of each.
static void put_args(tn_ctx *cx, tni_profile *p, tni_json_writer *w, const tni_profile_row *r)
{
    int64_t part = per_mille(cx, p, r);
    tni_json_put(w, "\"args\":{\"bytes\":");
    tni_json_put_int(w, r->bytes);
    tni_json_put(w, ",\"flops\":");
    tni_json_put_int(w, (int64_t)r->effort.flops);
    if (part >= 0) {
        tni_json_put(w, ",\"percent\":");
        put_tenths(w, part);
    }
    if (r->registers.used) {
        tni_json_put(w, ",\"registers\":");
        tni_json_put_int(w, r->registers.used);
        tni_json_put(w, ",\"spilled\":");
        tni_json_put_int(w, r->registers.spilled);
    }
    tni_json_put(w, ",\"lines\":");
    put_lines(w, r);
    tni_json_put(w, "}}");
}

// Writes to the file and empties the writer, so that memory stays small.
static void flush_writer(tni_json_writer *w, FILE *f)
{
    if (w->text && !w->full) fwrite(w->text, 1, w->bytes, f);
    w->bytes = 0;
}

// Writes a metadata event, which names the process or the thread in the viewer.
static void put_name(tni_json_writer *w, const char *what, int tid, const char *name)
{
    tni_json_put(w, "{\"name\":");
    tni_json_quote(w, what);
    tni_json_put(w, ",\"ph\":\"M\",\"pid\":0,\"tid\":");
    tni_json_put_int(w, tid);
    tni_json_put(w, ",\"args\":{\"name\":");
    tni_json_quote(w, name);
    tni_json_put(w, "}}");
}

// Writes a complete event ("ph": "X") of the Chrome trace format, whose times are in microseconds.
static void put_event(tn_ctx *cx, tni_profile *p, tni_json_writer *w, const tni_profile_event *e)
{
    const tni_profile_row *r = &p->row[e->row];
    tni_json_put(w, ",\n{\"name\":");
    tni_json_quote(w, r->name.s);
    tni_json_put(w, ",\"cat\":\"kernel\",\"ph\":\"X\",\"ts\":");
    put_micros(w, e->from);
    tni_json_put(w, ",\"dur\":");
    put_micros(w, e->ns);
    tni_json_put(w, ",\"pid\":0,\"tid\":1,");
    put_args(cx, p, w, r);
}

// Events are written one by one; the whole trace is never in memory.
bool tni_profile_trace(tn_ctx *cx, tni_profile *p, FILE *f)
{
    tni_json_writer w = { .heap = &cx->heap };
    tni_json_put(&w, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    put_name(&w, "process_name", 0, cx->engine->device->name);
    tni_json_put(&w, ",\n");
    put_name(&w, "thread_name", 1, "kernels");
    for (size_t i = 0; i < p->events && !w.full; i++) {
        flush_writer(&w, f);
        put_event(cx, p, &w, &p->event[i]);
    }
    tni_json_put(&w, "\n]}\n");
    flush_writer(&w, f);
    tni_free(w.heap, w.text);
    return !w.full;
}
