// Saying what a plan does: kernels and calls, the bytes they move, the lines they come from.
#include "engine/engine.h"

#include <string.h>

// What a step reads and writes, each place once.
typedef struct {
    tni_graph      *g;
    const tni_plan *p;
    FILE           *f;
    int64_t         moved, least;
    size_t          launches;
} account;

static int64_t node_bytes(const tni_node *n)
{
    return tni_node_count(n) * (int64_t)tni_dtype_size((tn_dtype)n->dtype);
}

static bool runs(const account *a, size_t i)
{
    const tni_node  *n = a->g->item[i].n;
    const tni_place *p = &a->p->place[i];
    return n->op != TNI_view && !p->alias && !p->filled && tni_node_count(n) > 0;
}

static int64_t call_bytes(const account *a, size_t i)
{
    const tni_node *n = a->g->item[i].n;
    int64_t bytes     = a->p->place[i].splat ? (int64_t)tni_dtype_size(n->dtype) : node_bytes(n);
    for (uint32_t s = 0; s < n->nsrc; s++) bytes += node_bytes(n->src[s]);
    return bytes;
}

static void count(account *a)
{
    const tni_plan *p = a->p;
    for (size_t t = 0; t < p->steps; t++) {
        tni_step step = p->step[t];
        bool     work = step < 0 || runs(a, (size_t)step);
        a->launches += work;
        if (work) a->moved += step < 0 ? p->kernel[~step].bytes : call_bytes(a, (size_t)step);
    }
    for (size_t i = 0; i < a->g->inputs; i++) a->least += node_bytes(a->g->input[i].n);
    for (size_t i = 0; i < a->g->count; i++) {
        const tni_item *it = &a->g->item[i];
        if (it->live && it->n->op != TNI_view && !p->place[i].alias) a->least += node_bytes(it->n);
    }
}

static void print_site(FILE *f, const tni_node *n)
{
    const char *op = n->site.op ? n->site.op : tni_op_table[n->op].name;
    fprintf(f, "        %s", op);
    if (n->site.line) fprintf(f, "  %s:%d", n->site.file, n->site.line);
    fprintf(f, "\n");
}

// The calls that a kernel's instructions come from, each line once.
static void print_origins(const account *a, const tni_fused *k)
{
    for (int i = 0; i < k->kernel->nins; i++) {
        if (k->origin[i] < 0) continue;
        const tni_node *n    = a->g->item[k->origin[i]].n;
        bool            seen = false;
        for (int j = 0; j < i && !seen; j++) {
            if (k->origin[j] < 0) continue;
            const tni_site *s = &a->g->item[k->origin[j]].n->site;
            seen = s->line == n->site.line && s->file == n->site.file && s->op == n->site.op;
        }
        if (!seen) print_site(a->f, n);
    }
}

static void print_kernel(const account *a, size_t number, const tni_fused *k)
{
    const tni_launch *l = &k->launch;
    fprintf(a->f, "  %3zu  %-5s (", number, tni_kernel_kind(k->kernel));
    for (int i = 0; i < k->kernel->np + k->kernel->nr; i++)
        fprintf(a->f, "%s%lld",
                i == 0               ? ""
                : i == k->kernel->np ? " | "
                                     : ", ",
                (long long)l->size[i]);
    fprintf(a->f, ")  %lld bytes\n", (long long)k->bytes);
    print_origins(a, k);
}

static void print_steps(const account *a, bool source)
{
    size_t number = 0;
    for (size_t t = 0; t < a->p->steps; t++) {
        tni_step step = a->p->step[t];
        if (step < 0) {
            print_kernel(a, ++number, &a->p->kernel[~step]);
            if (source) {
                char text[16384];
                tni_kernel_print(a->p->kernel[~step].kernel, text, sizeof text);
                fputs(text, a->f);
            }
        } else if (runs(a, (size_t)step)) {
            const tni_node *n = a->g->item[step].n;
            fprintf(a->f, "  %3zu  %-5s %s  %lld bytes\n", ++number, tni_op_table[n->op].name,
                    tni_shape_text(n->rank, n->size).s, (long long)call_bytes(a, (size_t)step));
            print_site(a->f, n);
        }
    }
}

void tni_explain(tni_graph *g, const tni_plan *p, FILE *f, bool source)
{
    account a = { .g = g, .p = p, .f = f };
    count(&a);
    fprintf(f, "%zu kernel%s, %lld bytes moved, %lld at least\n", a.launches,
            a.launches == 1 ? "" : "s", (long long)a.moved, (long long)a.least);
    print_steps(&a, source);
}
