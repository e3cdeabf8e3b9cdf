// A profile as a table of kernels, and what the table shares with the other forms.
//
//           ms   share   count    mean us    best us     GB/s   GFLOP/s  %ceil  kernel           lines
//        0.085   0.4 %       7      12.18      10.11      3.3      13.5   41.9  matmul (64, 10)  train.c:4 ...
#include "inspect/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_LINES = 3, NAME_WIDTH = 44 };

// Returns how much of the device's best a row reaches, in tenths of a percent: of the copy rate or
// of the product rate, whichever bounds it more (its roofline). More than 1000 is possible when
// values stay in a cache. -1 if there is nothing to compare with.
int64_t tni_profile_per_mille(tn_ctx *cx, tni_profile *p, const tni_profile_row *r)
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

typedef tni_profile_group group;

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
size_t tni_profile_groups(const tni_profile *p, const tni_profile_row **row, tni_profile_group *g)
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

// Returns "model.c:12 linear in layer1.fc". Bytes that are not UTF-8, or cut in the middle of a
// character, become question marks.
tni_text tni_profile_line(const tni_site *s)
{
    tni_text t = { "" };
    if (s->line) tni_text_add(&t, "%s:%d ", s->file, s->line);
    tni_text_add(&t, "%s%s", s->op, tni_layer_text(s).s);
    if (tni_utf8_ok(t.s, strlen(t.s))) return t;
    for (char *c = t.s; *c; c++)
        if ((unsigned char)*c >= 128) *c = '?';
    return t;
}

// Returns the first layer that a row names; "" if it names none.
const char *tni_profile_layer(const tni_profile_row *r)
{
    for (int i = 0; i < r->sites; i++)
        if (r->site[i].layer) return r->site[i].layer->text;
    return "";
}

// Prints "; alike in h.1.attn, h.2.attn, and 9 more".
static void print_alike(const group *g, FILE *f)
{
    for (size_t i = 1; i < g->rows && i <= NAMED_LINES; i++)
        fprintf(f, "%s%s", i == 1 ? "; alike in " : ", ",
                tni_escaped(tni_profile_layer(g->row[i])).s);
    if (g->rows > NAMED_LINES + 1) fprintf(f, ", and %zu more", g->rows - NAMED_LINES - 1);
}

// Prints one line of the table.
static void print_group(tn_ctx *cx, tni_profile *p, const group *g, int width, FILE *f)
{
    const tni_profile_row *r = &g->sum;

    double  mean = (double)r->ns / (double)r->count;  // ns, so that rates are in billions
    int64_t part = tni_profile_per_mille(cx, p, r);
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

// The time of single kernels may add up to less than the wall time: the rest is recording, planning
// and waiting.
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
    size_t                  n     = all ? tni_profile_groups(p, row, all) : p->rows;
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
