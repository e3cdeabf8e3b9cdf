// The order of units: each after those whose results it reads, otherwise as recorded, which keeps
// lifetimes short.
#include "plan/fuse.h"

// A sort in the making. waits: units before it that are still to come; readers of unit i stand in
// list[first[i] .. first[i + 1]); ready is a heap by first item.
typedef struct {
    tni_fusion *f;
    uint32_t   *waits, *first, *list, *ready;
    size_t      readies, taken, units;
} sorting;

static bool is_unit(const tni_fusion *f, size_t i)
{
    return f->unit[i].into == (int32_t)i;
}

static int32_t first_item(const tni_fusion *f, uint32_t unit)
{
    const tni_unit *u = &f->unit[unit];
    if (u->item >= 0) return u->item;
    int32_t least = u->seed[0];
    for (size_t k = 1; k < u->seeds; k++)
        if (u->seed[k] < least) least = u->seed[k];
    return least;
}

static void push(sorting *s, uint32_t unit)
{
    size_t  at  = s->readies++;
    int32_t key = first_item(s->f, unit);
    for (; at > 0 && first_item(s->f, s->ready[(at - 1) / 2]) > key; at = (at - 1) / 2)
        s->ready[at] = s->ready[(at - 1) / 2];
    s->ready[at] = unit;
}

static uint32_t pop(sorting *s)
{
    uint32_t top = s->ready[0], last = s->ready[--s->readies];
    int32_t  key = first_item(s->f, last);
    size_t   at  = 0;
    for (size_t down; (down = 2 * at + 1) < s->readies; at = down) {
        if (down + 1 < s->readies &&
            first_item(s->f, s->ready[down + 1]) < first_item(s->f, s->ready[down]))
            down++;
        if (first_item(s->f, s->ready[down]) >= key) break;
        s->ready[at] = s->ready[down];
    }
    if (s->readies) s->ready[at] = last;
    return top;
}

// Names the units whose results u reads once each: what was merged may name one twice.
static void name_befores(const tni_fusion *f, tni_unit *u)
{
    size_t   kept = 0;
    uint32_t me   = (uint32_t)u->into;
    for (size_t k = 0; k < u->befores; k++) {
        uint32_t before = (uint32_t)tni_final_unit(f, (int32_t)u->before[k]);
        size_t   j      = 0;
        while (j < kept && u->before[j] != before) j++;
        if (before != me && j == kept) u->before[kept++] = before;
    }
    u->befores = kept;
}

// Stretches of list are filled from the end, so that first[i + 1] is at last where those of i begin.
static void find_readers(sorting *s)
{
    tni_fusion *f = s->f;
    for (size_t i = 0; i < f->units; i++) {
        if (!is_unit(f, i)) continue;
        s->units++;
        name_befores(f, &f->unit[i]);
        for (size_t k = 0; k < f->unit[i].befores; k++) s->first[f->unit[i].before[k] + 1]++;
    }
    for (size_t i = 0; i < f->units; i++) s->first[i + 1] += s->first[i];
    s->first[f->units + 1] = s->first[f->units];
    for (size_t i = 0; i < f->units; i++) {
        if (!is_unit(f, i)) continue;
        s->waits[i] = (uint32_t)f->unit[i].befores;
        for (size_t k = 0; k < f->unit[i].befores; k++)
            s->list[--s->first[f->unit[i].before[k] + 1]] = (uint32_t)i;
        if (!s->waits[i]) push(s, (uint32_t)i);
    }
}

// A reduction that only its own kernel reads is not stored.
static void mark_in_memory(tni_fusion *f)
{
    for (size_t i = 0; i < f->units; i++) {
        const tni_unit *u = &f->unit[i];
        if (!is_unit(f, i)) continue;
        if (u->item >= 0) f->decision[u->item].stored = true;
        if (tni_unit_is_call(u)) {
            tni_node *n = f->g->item[u->item].n;
            for (uint32_t k = 0; k < n->nsrc; k++) {
                int32_t at = tni_base_of(f->g, n->src[k]);
                if (at >= 0) f->decision[tni_shared_item(f, at)].stored = true;
            }
        }
        for (size_t k = 0; k < u->sources; k++)
            if (u->source[k].reader >= 0 && u->source[k].place >= 0)
                f->decision[tni_shared_item(f, u->source[k].place)].stored = true;
    }
}

static bool take(tni_fusion *f, tni_plan *p, uint32_t unit)
{
    tni_unit *u = &f->unit[unit];
    if (tni_unit_is_call(u)) {
        p->step[p->steps++] = u->item;
        return true;
    }
    tni_planned_kernel *k = &p->kernel[p->kernels];
    p->step[p->steps++]   = ~(tni_plan_step)p->kernels++;
    f->failed             = !tni_make_kernel(f, u, k);
    if (f->failed || !tni_kernel_seal(k->kernel)) return false;
    f->failed = !tni_unroll(&f->g->cx->heap, k);
    return !f->failed && tni_kernel_seal(k->kernel);
}

static bool sort(sorting *s, tni_plan *p)
{
    tni_fusion *f  = s->f;
    bool        ok = true;
    find_readers(s);
    while (ok && s->readies) {
        uint32_t unit = pop(s);
        ok            = take(f, p, unit);
        s->taken++;
        for (uint32_t k = s->first[unit + 1]; k < s->first[unit + 2]; k++)
            if (!--s->waits[s->list[k]]) push(s, s->list[k]);
    }
    return ok && s->taken == s->units;
}

bool tni_order_units(tni_fusion *f, tni_plan *p)
{
    tni_heap *h     = &f->g->cx->heap;
    size_t    edges = 0, kernels = 0;
    for (size_t i = 0; i < f->units; i++) {
        edges += f->unit[i].befores;
        kernels += !tni_unit_is_call(&f->unit[i]);
    }
    sorting s = { .f = f };
    s.waits   = tni_zalloc(h, f->units * sizeof *s.waits);
    s.ready   = tni_alloc(h, f->units * sizeof *s.ready);
    s.first   = tni_zalloc(h, (f->units + 2) * sizeof *s.first);
    s.list    = tni_alloc(h, edges * sizeof *s.list + 1);
    p->step   = tni_alloc(h, f->units * sizeof *p->step);
    p->kernel = tni_zalloc(h, kernels * sizeof *p->kernel + 1);
    bool ok   = s.waits && s.ready && s.first && s.list && p->step && p->kernel;
    f->failed = !ok;
    if (ok) mark_in_memory(f);
    ok = ok && sort(&s, p);
    tni_free(h, s.waits);
    tni_free(h, s.ready);
    tni_free(h, s.first);
    tni_free(h, s.list);
    return ok;
}
