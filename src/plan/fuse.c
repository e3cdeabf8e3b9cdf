// Fusion: which seeds share a kernel.
//
// In id order every seed is placed (place_seed). Candidates are, first, the kernel units that
// compute a value the seed reads, then units that read the same values and were recorded nearby.
// The seed joins the first candidate of its level that can take it, else it starts a unit. Then the
// other candidates over the same axes are merged into its unit. For softmax,
// e = exp(x - max(x)), y = e * (1 / sum(e)):
//
//   max  seed      starts unit 0 over (rows, columns); columns are reduced
//   sum  seed      reads max, which unit 0 computes: joins it; x, sub and exp are shared
//   mul  seed      reads sum: joins it; stored at every point
//
// To join, the axes of the seed's domain must be mapped to axes of the unit. join_seed makes up to
// six tries, the most natural first; join_on(allowed, extend, permuted) is one of them:
//
//   allowed         extend  permuted
//   parallel axes   no      no        a value per row: a mean that is stored
//   all axes        no      no        a value per element, its axes in the unit's order
//   reduced axes    no      no        a value per column: made from column sums
//   all axes        no      yes       the same elements in another order: a transposed copy
//   all axes        yes     no        it broadcasts the unit's values along new axes
//   all axes        yes     yes       the same, permuted
//
// Each try lowers the seed into the unit (lower.c) and then checks what only the finished
// instructions tell: buffers, instructions, cycles through other units, and whether some choice of
// reduced axes makes it one kernel (axes.c). A failed try restores the unit.
//
// Levels keep the search for cycles short. A unit's level counts the calls on the longest path to
// it; units of one level can only depend on each other through kernels of that level, and only
// units of one level join. A unit of a lower level may be raised by a merge if no third unit reads
// it.
#include "plan/fuse.h"

#include "kernel/thresholds.h"

#include <string.h>

// ---- units -------------------------------------------------------------------------------------

// Adds a unit, which may move the others in memory. NULL when memory is out.
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

bool tni_unit_add_dep(tni_fusion *f, tni_unit *u, int32_t unit)
{
    if (unit < 0 || unit == u->into) return true;
    for (size_t k = 0; k < u->deps; k++)
        if (u->dep[k] == (uint32_t)unit) return true;
    if (!tni_grow(&f->g->cx->heap, (void **)&u->dep, &u->deps_cap, u->deps + 1, sizeof *u->dep)) {
        f->failed = true;
        return false;
    }
    u->dep[u->deps++] = (uint32_t)unit;
    f->unit[unit].readers++;
    return true;
}

void tni_unit_drop_deps(tni_fusion *f, tni_unit *u, size_t deps)
{
    while (u->deps > deps) {
        int32_t unit = tni_final_unit(f, (int32_t)u->dep[--u->deps]);
        f->unit[unit].readers--;
    }
}

// Returns the level of a value: that of the unit that computes it, or of a call's result; one more
// if its kernel was chosen to end with it.
static int32_t level_of(const tni_fusion *f, int32_t item)
{
    int32_t unit = unit_of(f, item), cut = tni_is_chosen(f, item, TNI_CHOICE_CUT);
    return (unit >= 0 ? f->unit[unit].level : f->decision[item].level) + cut;
}

static bool join_seed(tni_fusion *f, tni_unit *u, int32_t i);

// Whether a kernel can be written for an op that runs alone. Values that a concat joins are copied
// by a call.
static bool has_own_kernel(const tni_node *n)
{
    if (tni_node_count(n) == 0 || tni_op_table[n->op].fuse == TNI_FUSE_CONCAT) return false;
    return tni_can_inline(n) || tni_op_table[n->op].fuse == TNI_FUSE_FOLD;
}

// Makes a unit for an item that runs alone: a kernel if one can be written, else a call. No other
// item joins it, except that the other outputs of an op belong to its unit.
static void place_alone(tni_fusion *f, int32_t i)
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
        if (at >= 0) tni_unit_add_dep(f, u, unit_of(f, at));
    }
    if (f->limits->kernels && has_own_kernel(n)) join_seed(f, u, i);
}

// Whether unit `late` depends on unit `early`. Searched backwards from late, only through units
// that are not below early's level, since dependencies never lead to a higher level. The search
// gives up after TNI_JOIN_VISITS units and then says yes: refusing to join is always right.
static bool comes_after(tni_fusion *f, uint32_t late, uint32_t early)
{
    uint32_t stack[TNI_JOIN_VISITS];
    int      depth = 0, visits = 0;
    uint32_t mark  = ++f->search_id;
    stack[depth++] = late;
    while (depth > 0) {
        tni_unit *u = &f->unit[tni_final_unit(f, (int32_t)stack[--depth])];
        if ((uint32_t)(u - f->unit) == early) return true;
        if (u->seen == mark || u->level < f->unit[early].level) continue;
        u->seen = mark;
        for (size_t k = 0; k < u->deps; k++) {
            if (++visits == TNI_JOIN_VISITS) return true;
            stack[depth++] = u->dep[k];
        }
    }
    return false;
}

// Whether no unit that u depends on, from entry `from` of its list on and except `except`, depends
// on u.
static bool no_cycle(tni_fusion *f, const tni_unit *u, size_t from, int32_t except)
{
    for (size_t k = from; k < u->deps; k++) {
        int32_t before = tni_final_unit(f, (int32_t)u->dep[k]);
        if (before == except || before == u->into) continue;
        if (comes_after(f, (uint32_t)before, (uint32_t)u->into)) return false;
    }
    return true;
}

// ---- joining -----------------------------------------------------------------------------------

// How much a unit held before a try.
typedef struct {
    size_t   values, sources, numbers, seeds, deps;
    int      naxes;
    uint32_t reduced;
} checkpoint;

// Remembers how much a unit holds. Lowering only appends, so that going back is cutting the lists.
static checkpoint checkpoint_of(const tni_unit *u)
{
    checkpoint m = { u->values, u->sources, u->numbers, u->seeds, u->deps, u->naxes, u->reduced };
    return m;
}

static void restore_unit(tni_fusion *f, tni_unit *u, const checkpoint *m)
{
    tni_unit_drop_deps(f, u, m->deps);
    u->values  = m->values;
    u->sources = m->sources;
    u->numbers = m->numbers;
    u->seeds   = m->seeds;
    u->naxes   = m->naxes;
    u->reduced = m->reduced;
}

// Finds the axes of a seed's domain that are larger than 1, and their sizes; returns how many there
// are.
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

// Returns the first axis of the unit, from `from` on, that is allowed and has the size; naxes if
// there is none.
static int free_axis(const tni_unit *u, int from, int64_t size, uint32_t allowed)
{
    int k = from;
    while (k < u->naxes && (!(allowed >> k & 1) || u->size[k] != size)) k++;
    return k;
}

// Returns neighbouring axes of the unit, from `from` on and allowed, whose product is the size; 0
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

// Maps the n sizes of a domain to allowed axes of the unit: in order, or (permuted) from the last
// one on in any order, as a transposed value needs. One size may be mapped to several axes if it is
// their product: a flattened read of a value that others read in parts. A size that fits nowhere
// becomes a new axis if extend is set. on[j]: the axes of size j.
static bool align_domain(tni_unit *u, int n, const int64_t *size, uint32_t allowed, bool extend,
                         bool permuted, uint32_t *on)
{
    int at = 0;
    for (int i = 0; i < n; i++) {
        int j = permuted ? n - 1 - i : i, k = free_axis(u, permuted ? 0 : at, size[j], allowed);
        on[j] = k < u->naxes ? 1u << k : free_run(u, permuted ? 0 : at, size[j], allowed);
        if (!on[j] && extend && u->naxes < TNI_AXES) {
            u->size[u->naxes] = size[j];
            on[j]             = 1u << u->naxes++;
        }
        if (!on[j]) return false;
        while (on[j] >> at) at++;
        if (permuted) allowed &= ~on[j];
    }
    return true;
}

static bool unit_loads(const tni_unit *u, size_t n, int32_t place)
{
    for (size_t k = 0; k < n; k++)
        if (u->source[k].reader >= 0 && u->source[k].place == place) return true;
    return false;
}

// Counts the values that u loads, except those that `other` (may be NULL) computes or loads too.
static size_t own_loads(const tni_fusion *f, const tni_unit *u, const tni_unit *other)
{
    size_t count = 0;
    for (size_t i = 0; i < u->sources; i++) {
        int32_t at = u->source[i].place;
        if (u->source[i].reader < 0 || unit_loads(u, i, at))
            continue;  // a PLACE, or counted before
        if (other && unit_loads(other, other->sources, at)) continue;
        if (other && at >= 0 && unit_of(f, tni_shared_item(f, at)) == other->into) continue;
        count++;
    }
    return count;
}

// Whether a unit has few enough buffers and instructions. Each seed is counted as two instructions
// more: a fold over R and then P, and a store.
static bool fits_limits(const tni_fusion *f, const tni_unit *u)
{
    return u->seeds + own_loads(f, u, NULL) <= (size_t)(f->limits->buffers + f->more_buffers) &&
           u->values + 2 * u->seeds <= TNI_MAX_INS;
}

// Whether two units together may have few enough buffers. A value that both load is counted for
// neither: join_on counts exactly, and this only saves hopeless tries.
static bool fit_buffers(const tni_fusion *f, const tni_unit *u, const tni_unit *v)
{
    size_t count = u->seeds + v->seeds + own_loads(f, u, v) + own_loads(f, v, u);
    return count <= (size_t)f->limits->buffers;
}

// Makes one try to add seed i to u, along allowed axes: see the top of this file. With extend, new
// axes must come in addition to all old ones: a seed over other axes would make a domain of all
// pairs of elements.
static bool join_on(tni_fusion *f, tni_unit *u, int32_t i, uint32_t allowed, bool extend,
                    bool permuted)
{
    int        axis[TN_MAX_RANK];
    int64_t    size[TN_MAX_RANK];
    uint32_t   on[TN_MAX_RANK], align[TN_MAX_RANK] = { 0 };
    int        n = domain_of(f, i, axis, size), old = u->naxes;
    checkpoint m    = checkpoint_of(u);
    bool       ok   = align_domain(u, n, size, allowed, extend, permuted, on);
    uint32_t   used = 0;
    for (int j = 0; ok && j < n; j++) {
        align[axis[j]] = on[j];
        used |= on[j];
    }
    // A seed that uses only some old axes and new ones would make a domain of all pairs of
    // elements.
    if (extend) ok = ok && u->naxes > old && used == (1u << u->naxes) - 1;
    ok = ok && tni_lower_seed(f, u, i, align) && fits_limits(f, u) &&
         no_cycle(f, u, m.deps, u->into) && tni_find_reduced_axes(f, u);
    if (!ok) restore_unit(f, u, &m);
    return ok;
}

// Adds seed i to unit u if any of the six tries succeeds. While they run, the seed counts as the
// unit's own, so that lowering does not read it from memory.
static bool join_seed(tni_fusion *f, tni_unit *u, int32_t i)
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

// Whether u reads nothing that depends on unit `other`, except from `other` itself: a third unit
// between the two could not run if they were one.
static bool is_independent(tni_fusion *f, const tni_unit *u, int32_t other)
{
    for (size_t k = 0; k < u->deps; k++) {
        int32_t before = tni_final_unit(f, (int32_t)u->dep[k]);
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
    tni_free(h, u->dep);
}

// Whether a merge with `other` failed before. The last four are remembered: enough for the few
// candidates of neighbouring seeds, which ask again and again.
static bool was_refused(tni_unit *u, int32_t other)
{
    for (int k = 0; k < 4 && k < u->refusals; k++)
        if (u->refused[k] == other) return true;
    return false;
}

// Returns the next seed of two units in id order.
static int32_t next_seed(const tni_unit *u, size_t *i, const tni_unit *v, size_t *j)
{
    if (*j == v->seeds || (*i < u->seeds && u->seed[*i] < v->seed[*j])) return u->seed[(*i)++];
    return v->seed[(*j)++];
}

static void claim_seeds(tni_fusion *f, const tni_unit *u)
{
    for (size_t k = 0; k < u->seeds; k++) f->decision[u->seed[k]].unit = u->into;
}

// Whether a unit makes a value that it was chosen to end with.
static bool ends_by_choice(const tni_fusion *f, const tni_unit *u)
{
    for (size_t k = 0; k < u->seeds; k++)
        if (tni_is_chosen(f, u->seed[k], TNI_CHOICE_CUT)) return true;
    return false;
}

// Whether two units may become one. Of one level: neither may depend on the other by way of a
// third. If v's level is lower, u must be its only reader: v then simply runs later.
static bool can_merge(tni_fusion *f, tni_unit *u, tni_unit *v)
{
    if (was_refused(u, v->into) || !fit_buffers(f, u, v)) return false;
    if (u->level != v->level) {
        uint32_t reads = 0;
        for (size_t k = 0; k < u->deps; k++) reads += u->dep[k] == (uint32_t)v->into;
        return v->level < u->level && v->readers == reads && !ends_by_choice(f, v);
    }
    return no_cycle(f, u, 0, v->into) && no_cycle(f, v, 0, u->into) &&
           is_independent(f, u, v->into) && is_independent(f, v, u->into);
}

// Makes one unit of two, by lowering all their seeds into a new one in id order, since each may
// have read from memory what the other computes. If that fails, both are as before, and the refusal
// is remembered.
static bool merge_units(tni_fusion *f, int32_t into, int32_t from)
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
        ok = join_seed(f, u, next_seed(&old_u, &i, &old_v, &j));
    if (ok) {
        // The old units read nothing any more; units that read v read u now.
        tni_unit_drop_deps(f, &old_u, 0);
        tni_unit_drop_deps(f, &old_v, 0);
        u->readers += v->readers;
        free_unit(h, &old_u);
        free_unit(h, &old_v);
        *v = (tni_unit){ .item = -1, .into = into, .level = old_u.level };
        return true;
    }
    tni_unit_drop_deps(f, u, 0);
    free_unit(h, u);
    *u                            = old_u;
    *v                            = old_v;
    u->refused[u->refusals++ % 4] = from;
    claim_seeds(f, u);
    claim_seeds(f, v);
    return false;
}

// ---- candidates --------------------------------------------------------------------------------

// The units that a seed may join, best first: the first `read` of them compute values that it
// reads, the rest only read the same values.
typedef struct {
    int32_t unit[TNI_JOIN_UNITS];
    int     count, read;
} candidates;

// Adds a kernel unit to the candidates, unless it is one already or its level is above the seed's.
static void add_candidate(const tni_fusion *f, candidates *c, int32_t unit, int32_t level)
{
    unit = tni_final_unit(f, unit);
    if (unit < 0 || f->unit[unit].item >= 0 || f->unit[unit].level > level) return;
    for (int k = 0; k < c->count; k++)
        if (c->unit[k] == unit) return;
    if (c->count < TNI_JOIN_UNITS) c->unit[c->count++] = unit;
}

// A short list of items, each once. Entries beyond 64 are dropped: the lists only guide the search
// for candidates, and raise_level takes account of it where a dropped entry would matter.
typedef struct {
    int32_t item[64];
    int     count;
} item_list;

static void list_once(item_list *w, int32_t at)
{
    for (int k = 0; k < w->count; k++)
        if (w->item[k] == at) return;
    if (w->count < (int)(sizeof w->item / sizeof *w->item)) w->item[w->count++] = at;
}

// Raises the level of seed i to that of everything it reads, which merges may have raised since it
// was decided. If the list of what is inlined into it was cut, it comes after all units.
static void raise_level(tni_fusion *f, int32_t i, const item_list *w, int32_t level)
{
    if (w->count == (int)(sizeof w->item / sizeof *w->item))  // there may be more
        for (size_t k = 0; k < f->units; k++)
            if (level < f->unit[k].level) level = f->unit[k].level;
    if (f->decision[i].level < level) f->decision[i].level = level;
}

// Finds the units that seed i may join. Walks everything that is inlined into the seed down to the
// values it loads: the units that compute those come first, then the units that loaded the same
// values last, if they were recorded within TNI_JOIN_NEAR of it. reads gets the places it loads,
// for the next seeds.
static void find_candidates(tni_fusion *f, int32_t i, candidates *c, item_list *reads)
{
    item_list w     = { { i }, 1 };
    int32_t   level = 0;
    for (int k = 0; k < w.count; k++) {
        const tni_node *n = f->g->item[w.item[k]].n;
        for (uint32_t s = 0; s < n->nsrc; s++) {
            int32_t at = tni_base_of(f->g, n->src[s]);
            if (at >= 0) at = tni_shared_item(f, at);
            if (at >= 0 && f->decision[at].kind == TNI_AS_INLINED) {
                list_once(&w, at);
                continue;
            }
            if (at >= 0 && level < level_of(f, at)) level = level_of(f, at);
            if (at >= 0 && f->decision[at].kind == TNI_AS_SEED)
                add_candidate(f, c, f->decision[at].unit, INT32_MAX);
            if (tni_node_count(n->src[s]) > 1) list_once(reads, at);
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
        if (!u->seeds) continue;
        bool far = i - u->seed[u->seeds - 1] > TNI_JOIN_NEAR;
        if (far && u->level == f->decision[i].level) tni_could_choose(f, i, TNI_CHOICE_JOIN);
        if (!far || tni_is_chosen(f, i, TNI_CHOICE_JOIN))
            add_candidate(f, c, unit, f->decision[i].level);
    }
    // A value of one element, such as a step count, is not worth a kernel of its own.
    if (tni_node_count(tni_seed_domain(f, i)) == 1)
        add_candidate(f, c, f->scalar_unit, f->decision[i].level);
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

// Whether a seed goes over all of a unit's axes. A seed over fewer axes that reads none of the
// unit's values would gain nothing, and would bind the unit to its reduced axes: a count per row,
// say.
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

// Whether seed i may join unit u: kernels that were split stay split (split.c), what is computed
// again for a backward pass stays apart from the forward pass and from the rest, and copies of
// weights stay apart from what reads them: a later step finds them in memory, and has to compute
// the same bits by the same kernels.
static bool same_partition(const tni_fusion *f, const tni_unit *u, int32_t i)
{
    const tni_item *a = &f->g->item[u->seed[0]], *b = &f->g->item[i];
    if (f->decision[u->seed[0]].own_unit || f->decision[i].own_unit) return false;
    return a->partition == b->partition && tni_same_pass(a->n, b->n) && a->n->apart == b->n->apart;
}

static void place_seed(tni_fusion *f, int32_t i);

// Stores an item that was to be inlined, as a seed or alone.
static void store_after_all(tni_fusion *f, int32_t i)
{
    f->decision[i].in_memory = true;
    if (f->decision[i].kind != TNI_AS_INLINED) return;
    bool source         = tni_op_table[f->g->item[i].n->op].class == TNI_SOURCE;
    f->decision[i].kind = source ? TNI_AS_ALONE : TNI_AS_SEED;
    if (source) place_alone(f, i);
    else place_seed(f, i);
}

// Runs a seed alone that cannot be written as a kernel. Everything that would have been inlined
// into it is stored first; that may end here again, but goes no deeper than values are inlined.
static void leave_alone(tni_fusion *f, int32_t i)
{
    tni_node *n         = f->g->item[i].n;
    f->decision[i].kind = TNI_AS_ALONE;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_base_of(f->g, n->src[s]);
        if (at >= 0) at = tni_shared_item(f, at);
        if (at >= 0) store_after_all(f, at);
    }
    place_alone(f, i);
}

// Puts seed i into a unit: a candidate of its level, or a new one; then merges the candidates over
// the same axes into that. Units that only read the same values must also have the same domain.
static void place_seed(tni_fusion *f, int32_t i)
{
    candidates c     = { .count = 0 };
    item_list  reads = { .count = 0 };
    int32_t    home  = -1;
    if (f->limits->fuses) find_candidates(f, i, &c, &reads);
    for (int k = 0; k < c.count && home < 0; k++) {
        tni_unit *u = &f->unit[c.unit[k]];
        if (u->level != f->decision[i].level || !same_partition(f, u, i)) continue;
        if ((k < c.read || same_domain(f, u, i)) && join_seed(f, u, i)) home = c.unit[k];
    }
    if (home < 0) {
        tni_unit *u = add_unit(f, -1, f->decision[i].level);
        if (!u) return;
        home = u->into;
        if (!join_seed(f, u, i)) {
            free_unit(&f->g->cx->heap, u);
            f->units--;
            leave_alone(f, i);
            return;
        }
    }
    for (int k = 0; k < c.count; k++) {
        const tni_unit *u = &f->unit[c.unit[k]];
        if (u->into != c.unit[k] || c.unit[k] == home) continue;
        if (same_partition(f, u, i) && same_axes(u, &f->unit[home]))
            merge_units(f, home, c.unit[k]);
    }
    if (f->unit[home].naxes == 0) f->scalar_unit = home;
    // What the unit computes itself stays with the unit that loads it, which others may join.
    for (int k = 0; k < reads.count; k++) {
        int32_t at = reads.item[k];
        if (at >= 0 && unit_of(f, at) == home) continue;
        f->reader[at >= 0 ? (size_t)at : f->g->count + (size_t)~at] = home;
    }
}

// ---- loads that are computed instead -----------------------------------------------------------

// Counts the bytes that a unit loads: of each access every element once.
static int64_t loaded_bytes(const tni_fusion *f, const tni_unit *u)
{
    int64_t sum = 0;
    for (size_t i = 0; i < u->sources; i++) {
        const tni_access_binding *s    = &u->source[i];
        uint32_t                  axes = 0;
        if (s->reader < 0) continue;  // a PLACE
        for (int k = 0; k < u->naxes; k++) axes |= (uint32_t)(s->stride[k] != 0) << k;
        const tni_node *src = f->g->item[s->reader].n->src[s->edge];
        sum += tni_points(u, axes) * (int64_t)f->limits->element_size((tn_dtype)src->dtype);
    }
    return sum;
}

// Whether unit u, which loads item `at`, may compute it instead: a cheap map that stays in memory
// all the same, since another unit reads it there. Values that many points share, as the factors of
// channels, are loaded from cache. Kernels that were split stay split.
static bool may_compute(const tni_fusion *f, const tni_unit *u, int32_t at, const uint32_t *readers)
{
    const tni_decision *x = &f->decision[at];
    const tni_item     *a = &f->g->item[at], *b = &f->g->item[u->seed[0]];
    int64_t             points = tni_points(u, tni_all_axes(u));
    return tni_node_count(a->n) > points / TNI_CACHED_POINTS && x->kind == TNI_AS_SEED &&
           readers[at] > 1 && tni_is_map(a->n->op) && !a->n->again && !b->n->again &&
           !a->partition && !b->partition && !x->never_guarded && !x->piecewise &&
           !tni_is_chosen(f, at, TNI_CHOICE_CUT) && !tni_is_chosen(f, at, TNI_CHOICE_LOAD) &&
           unit_of(f, at) != u->into &&
           x->cost <= TNI_AGAIN_COST * (int64_t)f->limits->element_size((tn_dtype)a->n->dtype);
}

// Writes a unit anew, with item `at` computed in it where it was loaded. It stays as it was unless
// it then loads fewer bytes: what the item is made from is loaded in any case, or small.
static bool compute_instead(tni_fusion *f, tni_unit *u, int32_t at)
{
    tni_heap *h    = &f->g->cx->heap;
    tni_unit  old  = *u;
    uint8_t   kind = f->decision[at].kind;
    bool      ok   = true;
    *u = (tni_unit){ .item = -1, .into = old.into, .level = old.level, .readers = old.readers };
    f->decision[at].kind = TNI_AS_INLINED;
    for (size_t k = 0; ok && k < old.seeds; k++) ok = join_seed(f, u, old.seed[k]);
    f->decision[at].kind = kind;
    if (ok && loaded_bytes(f, u) < loaded_bytes(f, &old)) {
        tni_unit_drop_deps(f, &old, 0);
        free_unit(h, &old);
        return true;
    }
    tni_unit_drop_deps(f, u, 0);
    free_unit(h, u);
    *u = old;
    claim_seeds(f, u);
    return false;
}

// Returns the item that source k of a unit reads from memory; -1 if none, or if one before reads it
// too.
static int32_t loaded_item(const tni_fusion *f, const tni_unit *u, size_t k)
{
    const tni_access_binding *s = &u->source[k];
    if (s->reader < 0 || s->place < 0 || unit_loads(u, k, s->place)) return -1;
    return tni_shared_item(f, s->place);
}

// Counts for each item the units that read it from memory; a value that outlives the evaluation has
// one more.
static void count_unit_readers(const tni_fusion *f, uint32_t *readers)
{
    for (size_t i = 0; i < f->g->count; i++) readers[i] = f->g->item[i].why != 0;
    for (size_t i = 0; i < f->units; i++) {
        const tni_unit *u = &f->unit[i];
        if (u->into != (int32_t)i) continue;
        const tni_node *n = tni_unit_is_call(u) ? f->g->item[u->item].n : NULL;
        for (uint32_t s = 0; n && s < n->nsrc; s++) {
            int32_t at = tni_base_of(f->g, n->src[s]);
            if (at >= 0) readers[tni_shared_item(f, at)]++;
        }
        for (size_t k = 0; k < u->sources; k++) {
            int32_t at = loaded_item(f, u, k);
            if (at >= 0) readers[at]++;
        }
    }
}

// The gradient of relu(norm(x)) reads x, and relu(norm(x)) to see where it is above 0: that follows
// from x and what the norm has for each channel. A device with many lanes computes it faster than
// it loads it.
static void compute_loads_again(tni_fusion *f)
{
    // One large value less is worth several small ones, such as factors of channels.
    enum { MORE_BUFFERS = 4 };
    tni_heap *h = &f->g->cx->heap;
    if (!f->limits->lanes) return;
    uint32_t *readers = tni_alloc(h, f->g->count * sizeof *readers);
    f->failed |= !readers;
    if (readers) count_unit_readers(f, readers);
    f->more_buffers = MORE_BUFFERS;
    for (size_t i = 0; i < f->units && !f->failed; i++) {
        tni_unit *u = &f->unit[i];
        if (u->into != (int32_t)i || u->item >= 0) continue;
        for (size_t k = 0; k < u->sources; k++) {
            int32_t at = loaded_item(f, u, k);
            if (at < 0 || !may_compute(f, u, at, readers) || !compute_instead(f, u, at)) continue;
            tni_could_choose(f, at, TNI_CHOICE_LOAD);
            readers[at]--;
        }
    }
    tni_free(h, readers);
}

// Items are placed in id order, so the units that compute a seed's sources exist when it is placed.
bool tni_fuse(tni_fusion *f)
{
    tni_graph *g = f->g;
    tni_heap  *h = &g->cx->heap;
    f->decision  = tni_zalloc(h, g->count * sizeof *f->decision);
    f->reader    = tni_alloc(h, (g->count + g->inputs) * sizeof *f->reader);
    f->failed    = !f->decision || !f->reader;
    if (f->failed) return false;
    memset(f->reader, -1, (g->count + g->inputs) * sizeof *f->reader);
    f->scalar_unit = -1;
    tni_decide_items(f);
    for (size_t i = 0; i < g->count && !f->failed; i++) {
        if (f->decision[i].kind == TNI_AS_ALONE) place_alone(f, (int32_t)i);
        else if (f->decision[i].kind == TNI_AS_SEED) place_seed(f, (int32_t)i);
    }
    if (!f->failed && f->limits->fuses) compute_loads_again(f);
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
