// The order of units: each after those whose results it reads, otherwise by first item, which is
// the recorded order and keeps lifetimes short. This is also where it becomes known which values
// are in memory: all that another unit reads (mark_in_memory). A collective begins as early as it
// can, since it runs beside what comes after it: what the first one needs comes first, then what
// the second needs besides, and so on. So the gradient of a weight is computed before that of the
// layer's input, where it completes a bucket. What reads a result of one comes last, since it
// waits.
#include "ops/collective.h"
#include "plan/fuse.h"

// A topological sort in progress. waits: the units a unit still waits for; the readers of unit i
// are list[first[i + 1] .. first[i + 2]); ready is a binary heap by turn and first item.
typedef struct {
    tni_fusion *f;
    uint32_t   *waits, *first, *list, *ready;
    uint32_t *
        turn;  // by unit: the number of the first collective that needs it, from 1; 0: not known yet
    uint32_t collectives;
    size_t   readies, taken, units;
} unit_sort;

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

// What the units that can run are ordered by.
static int64_t key_of(const unit_sort *s, uint32_t unit)
{
    return ((int64_t)s->turn[unit] << 32) + first_item(s->f, unit);
}

static bool is_collective(const tni_fusion *f, size_t unit)
{
    const tni_unit *u = &f->unit[unit];
    return u->item >= 0 && tni_node_is_collective(f->g->item[u->item].n);
}

// The turn of a unit that no collective needs: as soon as what it reads is there; last, if it would
// wait for a collective.
static uint32_t turn_of(const unit_sort *s, uint32_t unit)
{
    const tni_unit *u    = &s->f->unit[unit];
    uint32_t        turn = 1;
    for (size_t k = 0; k < u->deps; k++) {
        uint32_t of = is_collective(s->f, u->dep[k]) ? s->collectives + 1 : s->turn[u->dep[k]];
        if (turn < of) turn = of;
    }
    return turn;
}

// Adds a unit to the heap of those that can run.
static void push_ready(unit_sort *s, uint32_t unit)
{
    if (!s->turn[unit]) s->turn[unit] = turn_of(s, unit);
    size_t  at  = s->readies++;
    int64_t key = key_of(s, unit);
    for (; at > 0 && key_of(s, s->ready[(at - 1) / 2]) > key; at = (at - 1) / 2)
        s->ready[at] = s->ready[(at - 1) / 2];
    s->ready[at] = unit;
}

// Removes the unit whose turn is first from the heap.
static uint32_t pop_ready(unit_sort *s)
{
    uint32_t top = s->ready[0], last = s->ready[--s->readies];
    int64_t  key = key_of(s, last);
    size_t   at  = 0;
    for (size_t down; (down = 2 * at + 1) < s->readies; at = down) {
        if (down + 1 < s->readies && key_of(s, s->ready[down + 1]) < key_of(s, s->ready[down]))
            down++;
        if (key_of(s, s->ready[down]) >= key) break;
        s->ready[at] = s->ready[down];
    }
    if (s->readies) s->ready[at] = last;
    return top;
}

// Rewrites u's dependencies by final units, each once: merges may have left several names for one.
static void merge_deps(const tni_fusion *f, tni_unit *u)
{
    size_t   kept = 0;
    uint32_t me   = (uint32_t)u->into;
    for (size_t k = 0; k < u->deps; k++) {
        uint32_t before = (uint32_t)tni_final_unit(f, (int32_t)u->dep[k]);
        size_t   j      = 0;
        while (j < kept && u->dep[j] != before) j++;
        if (before != me && j == kept) u->dep[kept++] = before;
    }
    u->deps = kept;
}

// Gives a collective and all that it needs its turn, except what earlier ones need. Units of
// collectives are in recorded order. The heap, which is empty, has those whose dependencies are not
// looked at yet.
static void take_turn(unit_sort *s, uint32_t unit)
{
    const tni_fusion *f    = s->f;
    size_t            left = 0;
    if (!is_collective(f, unit)) return;
    s->turn[unit]    = ++s->collectives;
    s->ready[left++] = unit;
    while (left) {
        const tni_unit *u = &f->unit[s->ready[--left]];
        for (size_t k = 0; k < u->deps; k++) {
            if (s->turn[u->dep[k]]) continue;
            s->turn[u->dep[k]] = s->collectives;
            s->ready[left++]   = u->dep[k];
        }
    }
}

// Counts dependencies, then writes the readers of each unit as one stretch of list. Stretches are
// filled from their ends, so that first[i + 1] ends up where those of unit i begin.
static void find_readers(unit_sort *s)
{
    tni_fusion *f = s->f;
    for (size_t i = 0; i < f->units; i++) {
        if (!is_unit(f, i)) continue;
        s->units++;
        merge_deps(f, &f->unit[i]);
        for (size_t k = 0; k < f->unit[i].deps; k++) s->first[f->unit[i].dep[k] + 1]++;
    }
    for (size_t i = 0; i < f->units; i++) s->first[i + 1] += s->first[i];
    s->first[f->units + 1] = s->first[f->units];
    for (size_t i = 0; i < f->units; i++)
        if (is_unit(f, i)) take_turn(s, (uint32_t)i);
    for (size_t i = 0; i < f->units; i++) {
        if (!is_unit(f, i)) continue;
        s->waits[i] = (uint32_t)f->unit[i].deps;
        for (size_t k = 0; k < f->unit[i].deps; k++)
            s->list[--s->first[f->unit[i].dep[k] + 1]] = (uint32_t)i;
        if (!s->waits[i]) push_ready(s, (uint32_t)i);
    }
}

// Marks what has to be in memory beside the values decided so far: results of calls, sources of
// calls, and every value that a unit loads. A reduction that only its own kernel reads stays out of
// memory.
static void mark_in_memory(tni_fusion *f)
{
    for (size_t i = 0; i < f->units; i++) {
        const tni_unit *u = &f->unit[i];
        if (!is_unit(f, i)) continue;
        if (u->item >= 0) f->decision[u->item].in_memory = true;
        if (tni_unit_is_call(u)) {
            tni_node *n = f->g->item[u->item].n;
            for (uint32_t k = 0; k < n->nsrc; k++) {
                int32_t at = tni_base_of(f->g, n->src[k]);
                if (at >= 0) f->decision[tni_shared_item(f, at)].in_memory = true;
            }
        }
        for (size_t k = 0; k < u->sources; k++)
            if (u->source[k].reader >= 0 && u->source[k].place >= 0)
                f->decision[tni_shared_item(f, u->source[k].place)].in_memory = true;
    }
}

// Appends a unit to the plan as a call, or makes its kernel. Sealed twice, since unrolling rewrites
// the kernel.
static bool add_step(tni_fusion *f, tni_plan *p, uint32_t unit)
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

// Takes units that wait for none, until all are taken. If units wait for each other, some are left,
// and the order fails: build.c then plans op by op.
static bool sort_units(unit_sort *s, tni_plan *p)
{
    tni_fusion *f  = s->f;
    bool        ok = true;
    find_readers(s);
    while (ok && s->readies) {
        uint32_t unit = pop_ready(s);
        ok            = add_step(f, p, unit);
        s->taken++;
        for (uint32_t k = s->first[unit + 1]; k < s->first[unit + 2]; k++)
            if (!--s->waits[s->list[k]]) push_ready(s, s->list[k]);
    }
    return ok && s->taken == s->units;
}

// Allocates the lists of the sort and of the plan, marks what is in memory, then sorts. The number
// of kernels is an upper bound, since merged units are counted too.
bool tni_order_units(tni_fusion *f, tni_plan *p)
{
    tni_heap *h     = &f->g->cx->heap;
    size_t    edges = 0, kernels = 0;
    for (size_t i = 0; i < f->units; i++) {
        edges += f->unit[i].deps;
        kernels += !tni_unit_is_call(&f->unit[i]);
    }
    unit_sort s = { .f = f };
    s.waits     = tni_zalloc(h, f->units * sizeof *s.waits);
    s.ready     = tni_alloc(h, f->units * sizeof *s.ready);
    s.turn      = tni_zalloc(h, f->units * sizeof *s.turn + 1);
    s.first     = tni_zalloc(h, (f->units + 2) * sizeof *s.first);
    s.list      = tni_alloc(h, edges * sizeof *s.list + 1);
    p->step     = tni_alloc(h, f->units * sizeof *p->step);
    p->kernel   = tni_zalloc(h, kernels * sizeof *p->kernel + 1);
    bool ok     = s.waits && s.ready && s.turn && s.first && s.list && p->step && p->kernel;
    f->failed   = !ok;
    if (ok) mark_in_memory(f);
    ok = ok && sort_units(&s, p);
    tni_free(h, s.waits);
    tni_free(h, s.ready);
    tni_free(h, s.turn);
    tni_free(h, s.first);
    tni_free(h, s.list);
    return ok;
}
