// Which items are computed together. First each item's decision (decide.c): view, inlined, seed or alone. Then,
// in id order, every seed joins the units whose values or inputs it shares, if all of it can be one
// kernel, or begins a unit of its own.
#include "plan/fuse.h"

#include "kernel/thresholds.h"

#include <string.h>

// ---- units -------------------------------------------------------------------------------------

static tni_unit *add_unit(tni_fusion *f, int32_t item, int32_t level)
{
    if (!tni_grow(&f->g->cx->heap, (void **)&f->unit, &f->units_cap, f->units + 1,
                  sizeof *f->unit)) {
        f->failed = true;
        return NULL;
    }
    tni_unit *u = &f->unit[f->units];
    memset(u, 0, sizeof *u);
    u->item  = item;
    u->into  = (int32_t)f->units++;
    u->level = level;
    return u;
}

static int32_t unit_of(const tni_fusion *f, int32_t item)
{
    return tni_final_unit(f, f->decision[item].unit);
}

bool tni_unit_reads(tni_fusion *f, tni_unit *u, int32_t unit)
{
    if (unit < 0 || unit == u->into) return true;
    for (size_t k = 0; k < u->befores; k++)
        if (u->before[k] == (uint32_t)unit) return true;
    if (!tni_grow(&f->g->cx->heap, (void **)&u->before, &u->befores_cap, u->befores + 1,
                  sizeof *u->before)) {
        f->failed = true;
        return false;
    }
    u->before[u->befores++] = (uint32_t)unit;
    f->unit[unit].readers++;
    return true;
}

void tni_unit_forget(tni_fusion *f, tni_unit *u, size_t befores)
{
    while (u->befores > befores) {
        int32_t unit = tni_final_unit(f, (int32_t)u->before[--u->befores]);
        f->unit[unit].readers--;
    }
}

// The level of the unit that a stored item is part of.
static int32_t level_of(const tni_fusion *f, int32_t item)
{
    int32_t unit = unit_of(f, item);
    return unit >= 0 ? f->unit[unit].level : f->decision[item].level;
}

static bool join(tni_fusion *f, tni_unit *u, int32_t i);

// Whether kernels are written for an op. What a concat in memory joins is copied there by a call.
static bool is_written(const tni_node *n)
{
    if (tni_node_count(n) == 0 || tni_op_table[n->op].fuse == TNI_FUSE_CONCAT) return false;
    return tni_can_inline(n) || tni_op_table[n->op].fuse == TNI_FUSE_FOLD;
}

// A unit for an item that runs alone, as a kernel if one can be written, or that only joins what others
// wrote. No other item joins it, but the other outputs of an op, which are of its unit.
static void run_alone(tni_fusion *f, int32_t i)
{
    tni_node *n     = f->g->item[i].n;
    int32_t   level = f->decision[i].level;
    if (n->op == TNI_output) {
        f->decision[i].unit = f->decision[n->src[0]->mark - 1].unit;
        return;
    }
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_base_of(f->g, n->src[s]);
        if (at >= 0) at = tni_shared_item(f, at);
        if (at >= 0 && level <= level_of(f, at)) level = level_of(f, at) + 1;
    }
    tni_unit *u = add_unit(f, i, level);
    if (!u) return;
    f->decision[i].unit = u->into;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_base_of(f->g, n->src[s]);
        if (at >= 0) at = tni_shared_item(f, at);
        if (at >= 0) tni_unit_reads(f, u, unit_of(f, at));
    }
    if (f->limits->kernels && is_written(n)) join(f, u, i);
}

// Whether unit `late` comes after unit `early` on some way: searched backwards, among kernels of its
// level, since products and the like raise the level.
static bool comes_after(tni_fusion *f, uint32_t late, uint32_t early)
{
    uint32_t stack[TNI_JOIN_VISITS];
    int      depth = 0, visits = 0;
    uint32_t mark  = ++f->search;
    stack[depth++] = late;
    while (depth > 0) {
        tni_unit *u = &f->unit[tni_final_unit(f, (int32_t)stack[--depth])];
        if ((uint32_t)(u - f->unit) == early) return true;
        if (u->seen == mark || u->level < f->unit[early].level) continue;
        u->seen = mark;
        for (size_t k = 0; k < u->befores; k++) {
            if (++visits == TNI_JOIN_VISITS) return true;
            stack[depth++] = u->before[k];
        }
    }
    return false;
}

// Whether what u reads from entry `from` on, other than `except`, is free of u's own results.
static bool no_cycle(tni_fusion *f, const tni_unit *u, size_t from, int32_t except)
{
    for (size_t k = from; k < u->befores; k++) {
        int32_t before = tni_final_unit(f, (int32_t)u->before[k]);
        if (before == except || before == u->into) continue;
        if (comes_after(f, (uint32_t)before, (uint32_t)u->into)) return false;
    }
    return true;
}

// ---- joining -----------------------------------------------------------------------------------

typedef struct {
    size_t   values, sources, numbers, seeds, befores;
    int      naxes;
    uint32_t reduced;
} mark;

static mark mark_of(const tni_unit *u)
{
    return (mark){ u->values, u->sources, u->numbers, u->seeds, u->befores, u->naxes, u->reduced };
}

static void back_to(tni_fusion *f, tni_unit *u, const mark *m)
{
    tni_unit_forget(f, u, m->befores);
    u->values  = m->values;
    u->sources = m->sources;
    u->numbers = m->numbers;
    u->seeds   = m->seeds;
    u->naxes   = m->naxes;
    u->reduced = m->reduced;
}

// The axes of a seed's domain that are not of size 1.
static int domain_of(const tni_fusion *f, int32_t i, int *axis, int64_t *size)
{
    const tni_node *n     = tni_seed_domain(f, i);
    int             count = 0;
    for (int j = 0; j < n->rank; j++)
        if (n->size[j] != 1) {
            axis[count]   = j;
            size[count++] = n->size[j];
        }
    return count;
}

// The first axis of the unit from `from` on that is allowed, free and of a size; naxes if none is.
static int free_axis(const tni_unit *u, int from, int64_t size, uint32_t allowed)
{
    int k = from;
    while (k < u->naxes && (!(allowed >> k & 1) || u->size[k] != size)) k++;
    return k;
}

// Axes of the unit from `from` on that stand side by side, are allowed and come to a size together; 0
// if there are none.
static uint32_t free_run(const tni_unit *u, int from, int64_t size, uint32_t allowed)
{
    for (int first = from; first + 1 < u->naxes && size <= INT32_MAX; first++) {
        uint32_t run   = 0;
        int64_t  count = 1;
        for (int k = first; k < u->naxes && allowed >> k & 1 && count < size; k++) {
            run |= 1u << k;
            count *= u->size[k];
        }
        if (count == size) return run;
    }
    return 0;
}

// Lays the n sizes of a domain on axes of the unit from the allowed ones: in order, or (turned) the
// last first and in any order, as a transposed value lies. One may lie on several, as an axis does of
// which others read parts. What does not fit becomes a new axis where that is allowed. False if it
// cannot be.
static bool lay(tni_unit *u, int n, const int64_t *size, uint32_t allowed, bool extend, bool turned,
                uint32_t *on)
{
    int at = 0;
    for (int i = 0; i < n; i++) {
        int j = turned ? n - 1 - i : i, k = free_axis(u, turned ? 0 : at, size[j], allowed);
        on[j] = k < u->naxes ? 1u << k : free_run(u, turned ? 0 : at, size[j], allowed);
        if (!on[j] && extend && u->naxes < TNI_AXES) {
            u->size[u->naxes] = size[j];
            on[j]             = 1u << u->naxes++;
        }
        if (!on[j]) return false;
        while (on[j] >> at) at++;
        if (turned) allowed &= ~on[j];
    }
    return true;
}

static bool loads(const tni_unit *u, size_t n, int32_t place)
{
    for (size_t k = 0; k < n; k++)
        if (u->source[k].reader >= 0 && u->source[k].place == place) return true;
    return false;
}

// How many values u loads, apart from those that `other`, which may be NULL, computes or loads too.
static size_t own_loads(const tni_fusion *f, const tni_unit *u, const tni_unit *other)
{
    size_t count = 0;
    for (size_t i = 0; i < u->sources; i++) {
        int32_t at = u->source[i].place;
        if (u->source[i].reader < 0 || loads(u, i, at)) continue;  // a place, or met before
        if (other && loads(other, other->sources, at)) continue;
        if (other && at >= 0 && unit_of(f, tni_shared_item(f, at)) == other->into) continue;
        count++;
    }
    return count;
}

// A seed may become a fold in two steps, and a store.
static bool is_small(const tni_fusion *f, const tni_unit *u)
{
    return u->seeds + own_loads(f, u, NULL) <= (size_t)f->limits->buffers &&
           u->values + 2 * u->seeds <= TNI_MAX_INS;
}

// The same for two units as one; what both load is counted for neither.
static bool few_together(const tni_fusion *f, const tni_unit *u, const tni_unit *v)
{
    size_t count = u->seeds + v->seeds + own_loads(f, u, v) + own_loads(f, v, u);
    return count <= (size_t)f->limits->buffers;
}

// One try: seed i on some axes of u.
static bool join_on(tni_fusion *f, tni_unit *u, int32_t i, uint32_t allowed, bool extend,
                    bool turned)
{
    int      axis[TN_MAX_RANK];
    int64_t  size[TN_MAX_RANK];
    uint32_t on[TN_MAX_RANK], align[TN_MAX_RANK] = { 0 };
    int      n = domain_of(f, i, axis, size), old = u->naxes;
    mark     m    = mark_of(u);
    bool     ok   = lay(u, n, size, allowed, extend, turned, on);
    uint32_t used = 0;
    for (int j = 0; ok && j < n; j++) {
        align[axis[j]] = on[j];
        used |= on[j];
    }
    // New axes come to all of the old ones, or there would be work for every pair of elements.
    if (extend) ok = ok && u->naxes > old && used == (1u << u->naxes) - 1;
    ok = ok && tni_lower_seed(f, u, i, align) && is_small(f, u) &&
         no_cycle(f, u, m.befores, u->into) && tni_find_reduced_axes(u);
    if (!ok) back_to(f, u, &m);
    return ok;
}

static bool join(tni_fusion *f, tni_unit *u, int32_t i)
{
    uint32_t all        = u->naxes ? (1u << u->naxes) - 1 : 0;
    int32_t  old        = f->decision[i].unit;
    f->decision[i].unit = u->into;
    bool ok             = join_on(f, u, i, all & ~u->reduced, false, false) ||
              join_on(f, u, i, all, false, false) ||
              (u->reduced && join_on(f, u, i, u->reduced, false, false)) ||
              join_on(f, u, i, all, false, true) || join_on(f, u, i, all, true, false) ||
              join_on(f, u, i, all, true, true);
    if (!ok) f->decision[i].unit = old;
    return ok;
}

// Whether u reads nothing that comes after unit `other`, except from that itself.
static bool are_independent(tni_fusion *f, const tni_unit *u, int32_t other)
{
    for (size_t k = 0; k < u->befores; k++) {
        int32_t before = tni_final_unit(f, (int32_t)u->before[k]);
        if (before != other && before != u->into &&
            comes_after(f, (uint32_t)before, (uint32_t)other))
            return false;
    }
    return true;
}

static void free_unit(tni_heap *h, tni_unit *u)
{
    tni_free(h, u->value);
    tni_free(h, u->source);
    tni_free(h, u->number);
    tni_free(h, u->seed);
    tni_free(h, u->before);
}

static bool refused(tni_unit *u, int32_t other)
{
    for (int k = 0; k < 4 && k < u->refusals; k++)
        if (u->refused[k] == other) return true;
    return false;
}

static int32_t next_seed(const tni_unit *u, size_t *i, const tni_unit *v, size_t *j)
{
    if (*j == v->seeds || (*i < u->seeds && u->seed[*i] < v->seed[*j])) return u->seed[(*i)++];
    return v->seed[(*j)++];
}

static void give_seeds(tni_fusion *f, const tni_unit *u)
{
    for (size_t k = 0; k < u->seeds; k++) f->decision[u->seed[k]].unit = u->into;
}

// Whether two units may become one. Of one level: if neither comes after the other by way of a third.
// One of a lower level must not be read by any third.
static bool can_merge(tni_fusion *f, tni_unit *u, tni_unit *v)
{
    if (refused(u, v->into) || !few_together(f, u, v)) return false;
    if (u->level != v->level) {
        uint32_t reads = 0;
        for (size_t k = 0; k < u->befores; k++) reads += u->before[k] == (uint32_t)v->into;
        return v->level < u->level && v->readers == reads;
    }
    return no_cycle(f, u, 0, v->into) && no_cycle(f, v, 0, u->into) &&
           are_independent(f, u, v->into) && are_independent(f, v, u->into);
}

// One unit out of two, written anew, since each may have read from memory what the other computes.
// All or nothing.
static bool merge(tni_fusion *f, int32_t into, int32_t from)
{
    tni_heap *h = &f->g->cx->heap;
    tni_unit *u = &f->unit[into], *v = &f->unit[from];
    if (!can_merge(f, u, v)) return false;
    bool     ok = true;
    size_t   i = 0, j = 0;
    tni_unit old_u = *u, old_v = *v;
    *u = (tni_unit){ .item = -1, .into = into, .level = old_u.level, .readers = old_u.readers };
    v->into = into;
    while (ok && (i < old_u.seeds || j < old_v.seeds))
        ok = join(f, u, next_seed(&old_u, &i, &old_v, &j));
    if (ok) {
        // What the old ones read they no longer do; those that read v read u now.
        tni_unit_forget(f, &old_u, 0);
        tni_unit_forget(f, &old_v, 0);
        u->readers += v->readers;
        free_unit(h, &old_u);
        free_unit(h, &old_v);
        *v = (tni_unit){ .item = -1, .into = into, .level = old_u.level };
        return true;
    }
    tni_unit_forget(f, u, 0);
    free_unit(h, u);
    *u                            = old_u;
    *v                            = old_v;
    u->refused[u->refusals++ % 4] = from;
    give_seeds(f, u);
    give_seeds(f, v);
    return false;
}

// ---- candidates --------------------------------------------------------------------------------

// Units that a seed may join: first `read` of them compute what it reads, the rest only read the same.
typedef struct {
    int32_t unit[TNI_JOIN_UNITS];
    int     count, read;
} near_units;

static void consider(const tni_fusion *f, near_units *c, int32_t unit, int32_t level)
{
    unit = tni_final_unit(f, unit);
    if (unit < 0 || f->unit[unit].item >= 0 || f->unit[unit].level > level) return;
    for (int k = 0; k < c->count; k++)
        if (c->unit[k] == unit) return;
    if (c->count < TNI_JOIN_UNITS) c->unit[c->count++] = unit;
}

// Walks what floats into seed i: units whose values it reads come first, then those that read the
// same values. reads gets the places it reads, for the next.
typedef struct {
    int32_t item[64];
    int     count;
} walk;

static void note_once(walk *w, int32_t at)
{
    for (int k = 0; k < w->count; k++)
        if (w->item[k] == at) return;
    if (w->count < (int)(sizeof w->item / sizeof *w->item)) w->item[w->count++] = at;
}

// A seed comes after all it reads. What it reads may have come to a higher level by a merge.
static void raise_level(tni_fusion *f, int32_t i, const walk *w, int32_t level)
{
    if (w->count == (int)(sizeof w->item / sizeof *w->item))  // there may be more
        for (size_t k = 0; k < f->units; k++)
            if (level < f->unit[k].level) level = f->unit[k].level;
    if (f->decision[i].level < level) f->decision[i].level = level;
}

static void find_near(tni_fusion *f, int32_t i, near_units *c, walk *reads)
{
    walk    w     = { { i }, 1 };
    int32_t level = 0;
    for (int k = 0; k < w.count; k++) {
        const tni_node *n = f->g->item[w.item[k]].n;
        for (uint32_t s = 0; s < n->nsrc; s++) {
            int32_t at = tni_base_of(f->g, n->src[s]);
            if (at >= 0) at = tni_shared_item(f, at);
            if (at >= 0 && f->decision[at].kind == TNI_AS_INLINED) {
                note_once(&w, at);
                continue;
            }
            if (at >= 0 && level < level_of(f, at)) level = level_of(f, at);
            if (at >= 0 && f->decision[at].kind == TNI_AS_SEED)
                consider(f, c, f->decision[at].unit, INT32_MAX);
            if (tni_node_count(n->src[s]) > 1) note_once(reads, at);
        }
    }
    raise_level(f, i, &w, level);
    c->read = c->count;
    for (int k = 0; k < reads->count; k++) {
        int32_t at   = reads->item[k];
        int32_t unit = f->reader[at >= 0 ? (size_t)at : f->g->count + (size_t)~at];
        if (unit < 0) continue;
        unit              = tni_final_unit(f, unit);
        const tni_unit *u = &f->unit[unit];
        if (u->seeds && i - u->seed[u->seeds - 1] <= TNI_JOIN_NEAR)
            consider(f, c, unit, f->decision[i].level);
    }
    // What has one element, as counters have, is not worth a kernel of its own.
    if (tni_node_count(tni_seed_domain(f, i)) == 1) consider(f, c, f->single, f->decision[i].level);
}

// Whether n sizes are those of a unit's axes, in any order.
static bool are_axes_of(const tni_unit *u, int n, const int64_t *size)
{
    uint32_t left = (1u << u->naxes) - 1;
    if (n != u->naxes) return false;
    for (int j = 0; j < n; j++) {
        int k = free_axis(u, 0, size[j], left);
        if (k == u->naxes) return false;
        left &= ~(1u << k);
    }
    return true;
}

// Whether a seed goes over all of a unit's axes. One that goes over fewer and reads nothing the unit
// computes would only bind the unit: a count over rows, which the rest may have to wait for.
static bool same_domain(const tni_fusion *f, const tni_unit *u, int32_t i)
{
    int     axis[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];
    return are_axes_of(u, domain_of(f, i, axis, size), size);
}

static bool same_axes(const tni_unit *u, const tni_unit *v)
{
    return are_axes_of(u, v->naxes, v->size);
}

// Kernels that were cut in two stay so.
static bool same_part(const tni_fusion *f, const tni_unit *u, int32_t i)
{
    return f->g->item[u->seed[0]].part == f->g->item[i].part;
}

static void place_seed(tni_fusion *f, int32_t i);

// A floating item is stored after all.
static void store_now(tni_fusion *f, int32_t i)
{
    f->decision[i].stored = true;
    if (f->decision[i].kind != TNI_AS_INLINED) return;
    bool source         = tni_op_table[f->g->item[i].n->op].class == TNI_SOURCE;
    f->decision[i].kind = source ? TNI_AS_ALONE : TNI_AS_SEED;
    if (source) run_alone(f, i);
    else place_seed(f, i);
}

// A seed that cannot be a kernel runs alone. What would have floated into it is stored; that may
// come here again, but no further than values float.
static void give_up(tni_fusion *f, int32_t i)
{
    tni_node *n         = f->g->item[i].n;
    f->decision[i].kind = TNI_AS_ALONE;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_base_of(f->g, n->src[s]);
        if (at >= 0) at = tni_shared_item(f, at);
        if (at >= 0) store_now(f, at);
    }
    run_alone(f, i);
}

// Seed i as part of a unit.
static void place_seed(tni_fusion *f, int32_t i)
{
    near_units c     = { .count = 0 };
    walk       reads = { .count = 0 };
    int32_t    home  = -1;
    if (f->limits->fuses) find_near(f, i, &c, &reads);
    for (int k = 0; k < c.count && home < 0; k++) {
        tni_unit *u = &f->unit[c.unit[k]];
        if (u->level != f->decision[i].level || !same_part(f, u, i)) continue;
        if ((k < c.read || same_domain(f, u, i)) && join(f, u, i)) home = c.unit[k];
    }
    if (home < 0) {
        tni_unit *u = add_unit(f, -1, f->decision[i].level);
        if (!u) return;
        home = u->into;
        if (!join(f, u, i)) {
            free_unit(&f->g->cx->heap, u);
            f->units--;
            give_up(f, i);
            return;
        }
    }
    for (int k = 0; k < c.count; k++) {
        const tni_unit *u = &f->unit[c.unit[k]];
        if (u->into != c.unit[k] || c.unit[k] == home) continue;
        if (same_part(f, u, i) && same_axes(u, &f->unit[home])) merge(f, home, c.unit[k]);
    }
    if (f->unit[home].naxes == 0) f->single = home;
    for (int k = 0; k < reads.count; k++) {
        int32_t at                                                  = reads.item[k];
        f->reader[at >= 0 ? (size_t)at : f->g->count + (size_t)~at] = home;
    }
}

bool tni_fuse(tni_fusion *f)
{
    tni_graph *g = f->g;
    tni_heap  *h = &g->cx->heap;
    f->decision  = tni_zalloc(h, g->count * sizeof *f->decision);
    f->reader    = tni_alloc(h, (g->count + g->inputs) * sizeof *f->reader);
    f->failed    = !f->decision || !f->reader;
    if (f->failed) return false;
    memset(f->reader, -1, (g->count + g->inputs) * sizeof *f->reader);
    f->single = -1;
    tni_decide_items(f);
    for (size_t i = 0; i < g->count && !f->failed; i++) {
        if (f->decision[i].kind == TNI_AS_ALONE) run_alone(f, (int32_t)i);
        else if (f->decision[i].kind == TNI_AS_SEED) place_seed(f, (int32_t)i);
    }
    return !f->failed;
}

void tni_fusion_close(tni_fusion *f)
{
    tni_heap *h = &f->g->cx->heap;
    for (size_t i = 0; i < f->units; i++) free_unit(h, &f->unit[i]);
    tni_free(h, f->unit);
    tni_free(h, f->decision);
    tni_free(h, f->reader);
}
