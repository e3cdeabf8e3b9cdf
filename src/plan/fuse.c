// Which items are computed together. First each item's decision: view, float, seed or alone. Then, in id
// order, every seed joins the units whose values or inputs it shares, if all of it can be one
// kernel, or begins a unit of its own.
#include "plan/fuse.h"

#include "kernel/thresholds.h"

#include <string.h>

// ---- fates -------------------------------------------------------------------------------------

// One index for each line along the axis, so that it can be computed place by place.
static bool scatters_lines(const tni_node *n)
{
    const tni_node *x = n->src[0], *index = n->src[1];
    for (int j = 0; j < x->rank; j++)
        if (index->size[j] != (j == n->attr.axis.axis ? 1 : x->size[j])) return false;
    return true;
}

static tni_fuse_way way_of(const tni_node *n)
{
    return tni_op_table[n->op].fuse;
}

static bool is_random(const tni_node *n)
{
    return way_of(n) == TNI_FUSE_RANDOM;
}

// Numbers and the like: nothing is gained by storing them where they are read.
static bool is_free(const tni_node *n)
{
    return way_of(n) == TNI_FUSE_NUMBER || way_of(n) == TNI_FUSE_IOTA;
}

static bool can_float(const tni_node *n)
{
    switch (way_of(n)) {
    case TNI_FUSE_CONCAT: return n->nsrc <= TNI_JOIN_PARTS;
    case TNI_FUSE_SCATTER: return scatters_lines(n);
    case TNI_FUSE_ALONE:
    case TNI_FUSE_VIEW:
    case TNI_FUSE_OUTPUT:
    case TNI_FUSE_FOLD:
    case TNI_FUSE_ASSIGN: return false;
    default: return true;
    }
}

static bool can_reduce(const tni_node *n)
{
    return way_of(n) == TNI_FUSE_FOLD;
}

static bool shares(const tni_item *it)
{
    if (it->n->op != TNI_assign) return false;
    tni_view v = tni_node_layout(it->n->src[0]);
    return tni_view_contiguous(&v);
}

int32_t tni_shared_item(const tni_fusion *f, int32_t item)
{
    while (f->g->item[item].n->op == TNI_assign && shares(&f->g->item[item])) {
        int32_t next = tni_place_of(f->g, f->g->item[item].n->src[0]);
        if (next < 0) return item;
        item = next;
    }
    return item;
}

// A source view read at all its places, as coordinates of its base.
static bool reads_as_coords(const tni_node *src, const tni_node *base, tni_coords *c)
{
    tni_view v                    = tni_node_layout(src);
    int64_t  stride[TNI_AXES + 1] = { 0 }, from[TNI_AXES] = { 0 }, to[TNI_AXES] = { 0 };
    for (int j = 0; j < v.rank; j++) {
        to[j]     = v.size[j] - 1;
        stride[j] = v.size[j] > 1 ? v.stride[j] : 0;
    }
    c->via = TNI_NO_VALUE;
    return tni_coords_of(base, tni_offset_of(src), stride, v.rank, from, to, 1, c);
}

// Whether every coordinate moves along one axis at most, so that bounds of it are bounds of an axis.
static bool is_straight(const tni_node *base, int naxes, const tni_coords *c)
{
    for (int j = 0; j < base->rank; j++) {
        int moves = 0;
        for (int k = 0; k < naxes; k++) moves += c->step[j][k] != 0;
        if (moves > 1) return false;
    }
    return true;
}

// What reads its sources in parts: other points of the domain have nothing there.
static bool joins_parts(const tni_node *n)
{
    return way_of(n) == TNI_FUSE_PAD || way_of(n) == TNI_FUSE_CONCAT;
}

// Whether n can compute what it reads of y, whose elements src has from item base. Beside its parts
// there is no index to check and no number to draw, and a NaN would not be told from others.
static bool can_enter(const tni_fusion *f, const tni_node *n, const tni_node *src,
                      const tni_node *base, const tni_decision *y)
{
    tni_coords c;
    if (joins_parts(n) && (y->whole || f->limits->checked)) return false;
    if (src == base) return true;
    return reads_as_coords(src, base, &c) && (!y->cut || is_straight(base, src->rank, &c));
}

static tni_item_kind kind_alone(const tni_item *it)
{
    const tni_node *n = it->n;
    if (n->op == TNI_view || shares(it)) return TNI_AS_VIEW;
    int64_t count = tni_node_count(n);
    if (count <= 0 || n->rank > TNI_AXES) return TNI_AS_ALONE;
    if (can_reduce(n)) return tni_node_count(n->src[0]) > 0 ? TNI_AS_SEED : TNI_AS_ALONE;
    if (n->op == TNI_assign) return TNI_AS_SEED;
    if (!can_float(n)) return TNI_AS_ALONE;
    for (uint32_t s = 0; s < n->nsrc; s++)
        if (tni_node_count(n->src[s]) <= 0) return TNI_AS_ALONE;
    return TNI_AS_INLINED;
}

// Whether n would compute elements of a value y several times, or where they are nothing.
static bool repeats(const tni_node *n, const tni_node *y)
{
    const tni_node *over = can_reduce(n) ? n->src[0] : n;
    return joins_parts(n) || tni_node_count(over) >= 2 * tni_node_count(y);
}

// x loads a value, unless it does already.
static void note_read(tni_decision *x, const tni_node *n, int64_t bytes)
{
    for (int k = 0; n && k < x->reads && k < TNI_READS; k++)
        if (x->read[k].n == n) return;
    if (x->reads < TNI_READS) x->read[x->reads] = (tni_read){ n, bytes };
    x->reads++;
    x->read_bytes += bytes;
}

// x loads what y does; moved: not at the same places.
static void note_reads(tni_decision *x, const tni_decision *y, bool moved)
{
    int64_t rest = y->read_bytes;
    for (int k = 0; k < y->reads; k++) {
        bool    listed = k < TNI_READS;
        int64_t bytes  = listed ? y->read[k].bytes : rest;
        note_read(x, listed && !moved ? y->read[k].n : NULL, bytes);
        rest -= bytes;
    }
}

// Whether source s of n is one before it: the square of a value computes it once.
static bool is_repeated(const tni_node *n, uint32_t s)
{
    for (uint32_t k = 0; k < s; k++)
        if (n->src[k] == n->src[s]) return true;
    return false;
}

// What item i's sources say of it: how far it is from the inputs, what its readers would compute and
// load if it floats; and what it says of them: that they are read, and how.
static void look_at_sources(tni_fusion *f, size_t i)
{
    tni_graph    *g = f->g;
    tni_decision *x = &f->decision[i];
    tni_node     *n = g->item[i].n;
    x->ops          = x->kind == TNI_AS_INLINED && !is_free(n);
    x->cost         = x->ops ? (uint16_t)tni_op_table[n->op].cost : 0;
    x->whole        = x->kind == TNI_AS_INLINED && (tni_op_table[n->op].fails || is_random(n));
    if (x->ops && joins_parts(n)) x->ops = (uint16_t)(1 + 3 * n->nsrc);  // bounds
    for (uint32_t s = 0; s < n->nsrc; s++) {
        tni_node     *src  = n->src[s];
        int32_t       base = tni_place_of(g, src);
        int32_t       at   = base >= 0 ? tni_shared_item(f, base) : base;
        tni_decision *y    = at >= 0 ? &f->decision[at] : NULL;
        if (y && y->level > x->level) x->level = y->level;
        if (base >= 0 && f->decision[base].level > x->level) x->level = f->decision[base].level;
        if (n->op == TNI_view) continue;
        bool number = y && tni_is_number(g->item[at].n->op);
        bool floats = y && y->kind == TNI_AS_INLINED && !y->never_inline;
        bool joins  = x->kind == TNI_AS_INLINED || x->kind == TNI_AS_SEED;
        if (y) y->uses++;
        if (y && tni_is_activation(n->op)) y->activation = (uint8_t)n->op;
        if (number && joins) continue;
        if (floats && (!joins || !can_enter(f, n, src, g->item[base].n, y))) y->never_inline = true;
        if (floats && y->cost >= TNI_REPEAT_COST && repeats(n, g->item[at].n))
            y->never_inline = true;
        int ops = floats && !is_repeated(n, s) ? y->ops : 0;
        if (floats && (x->ops + ops > TNI_FLOAT_COST || x->reads + y->reads > TNI_FLOAT_READS))
            y->never_inline = true;
        if (floats && !y->never_inline) {
            x->whole |= y->whole;
            x->cut |= y->cut || joins_parts(n);
            x->ops  = (uint16_t)(x->ops + ops);
            x->cost = (uint16_t)(x->cost + (ops ? y->cost : 0));
            note_reads(x, y, src != g->item[base].n || !tni_is_map(n->op));
        } else {
            note_read(x, src,
                      tni_node_count(src) * (int64_t)f->limits->element_size((tn_dtype)src->dtype));
        }
    }
}

// Whether a device makes a value along with a library call and the activation that reads it.
static bool is_stored_input(const tni_fusion *f, const tni_node *call, int activation)
{
    tni_arg   arg[TNI_OFFER_ARGS];
    tni_call  c = { .op = TNI_leaf };
    tni_offer o = { .call        = &c,
                    .only_reader = true,
                    .epilogue    = { .fits       = true,
                                     .activation = activation,
                                     .scale      = -1,
                                     .residual   = -1,
                                     .bias       = 0,
                                     .sum        = -1,
                                     .z          = 0 } };
    if (tni_call_args(call) > TNI_OFFER_ARGS) return false;
    c = tni_call_of(call, arg);
    return f->limits->takes(f->limits->session, &o);
}

// Whether a value that an activation and its gradient read is stored instead of the result of a library
// call that it alone reads, as the sum of a product and a bias is: its readers load as much, the device
// makes it with the call, by an epilogue, and nobody needs the result itself. What it reads besides is
// small.
static bool replaces_result(const tni_fusion *f, size_t i)
{
    const tni_node *n = f->g->item[i].n, *call = NULL;
    int             then = f->decision[i].activation;
    if (!f->limits->takes || !tni_is_map(n->op) || then == TNI_leaf) return false;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int64_t             skip;
        const tni_node     *y      = tni_node_base(n->src[s], &skip);
        int32_t             at     = tni_place_of(f->g, n->src[s]);
        const tni_decision *x      = at >= 0 ? &f->decision[at] : NULL;
        bool                result = x && x->kind == TNI_AS_ALONE && x->uses == 1 && !x->stored &&
                      y == n->src[s] && tni_op_table[y->op].class == TNI_LIBRARY &&
                      y->dtype == n->dtype;
        if (result) call = y;
        else if (tni_node_count(y) > tni_node_count(n) / 8) return false;
    }
    return call && is_stored_input(f, call, then);
}

// A value of several readers is computed by each of them, unless that takes much, or reads more than
// storing it and reading it again would.
static bool is_costly(const tni_fusion *f, size_t i)
{
    const tni_decision *x = &f->decision[i];
    if (x->uses < 2 || is_free(f->g->item[i].n)) return false;
    if (x->cut || joins_parts(f->g->item[i].n)) return true;  // bounds are in the way of loops
    if (x->ops > TNI_INLINE_COST || x->reads > TNI_INLINE_READS) return true;
    if (x->uses > 2 && x->cost * (x->uses - 1) > TNI_REPEATS_COST) return true;
    if (replaces_result(f, i)) return true;
    return x->read_bytes > TNI_INLINE_BYTES && x->read_bytes > 2 * x->bytes;
}

static bool is_floating(const tni_fusion *f, int32_t at)
{
    return at >= 0 && f->decision[tni_shared_item(f, at)].kind == TNI_AS_INLINED;
}

// Whether a concat is no work for a kernel: its sources are in memory, and either they are computed
// straight into its place, or it is stored anyway.
static bool is_laid_out(const tni_fusion *f, const tni_node *n, bool stored)
{
    if (n->op != TNI_concat) return false;
    bool filled = tni_concat_is_flat(n);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_place_of(f->g, n->src[s]);
        if (is_floating(f, at)) return false;
        filled &= at >= 0 && tni_node_count(f->g->item[at].n) == tni_node_count(n->src[s]);
    }
    return filled || stored;
}

// What an item is before its readers are known. Op by op only numbers float, and without kernels nothing.
static tni_item_kind kind_of(const tni_fusion *f, const tni_item *it)
{
    bool          fuses = f->limits->fuses;
    tni_item_kind kind  = kind_alone(it);
    if (!f->limits->kernels) return kind == TNI_AS_VIEW ? kind : TNI_AS_ALONE;
    if (kind == TNI_AS_INLINED && is_laid_out(f, it->n, !fuses)) return TNI_AS_ALONE;
    return kind == TNI_AS_INLINED && !fuses && !tni_is_number(it->n->op) ? TNI_AS_SEED : kind;
}

static void decide_items(tni_fusion *f)
{
    tni_graph *g = f->g;
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        x->unit         = -1;
        x->activation   = TNI_leaf;
        x->kind         = (uint8_t)kind_of(f, &g->item[i]);
        x->stored       = g->item[i].why != 0 || (x->kind == TNI_AS_SEED && !f->limits->fuses);
        x->never_inline = x->stored || g->item[i].part;
        x->bytes        = tni_node_count(g->item[i].n) *
                   (int64_t)f->limits->element_size(g->item[i].n->dtype);
        look_at_sources(f, i);
        if (x->kind == TNI_AS_ALONE && g->item[i].n->op != TNI_output) x->level++;
    }
    // A value's readers come after it, so what they need is known only now; and what is stored after
    // all changes what its readers compute.
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        if (x->kind == TNI_AS_VIEW && x->stored) {
            int32_t at = tni_shared_item(f, (int32_t)i);
            if (at >= 0 && at != (int32_t)i)
                f->decision[at].stored = f->decision[at].never_inline = true;
        }
    }
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        if (x->kind != TNI_AS_SEED) continue;
        x->known = 1 + tni_sum_teller(f, (int32_t)i);
        if (x->known && !x->never_inline) x->kind = TNI_AS_INLINED;
    }
    // What does not float is part of one kernel, and stored if another reads it.
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        if (x->kind != TNI_AS_INLINED) continue;
        bool stored = x->never_inline || is_costly(f, i);
        bool alone  = tni_op_table[g->item[i].n->op].class == TNI_SOURCE;
        if (is_laid_out(f, g->item[i].n, stored)) stored = alone = true;
        if (stored) x->kind = alone ? TNI_AS_ALONE : TNI_AS_SEED;
    }
}

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
    if (tni_node_count(n) == 0 || way_of(n) == TNI_FUSE_CONCAT) return false;
    return can_float(n) || can_reduce(n);
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
        int32_t at = tni_place_of(f->g, n->src[s]);
        if (at >= 0) at = tni_shared_item(f, at);
        if (at >= 0 && level <= level_of(f, at)) level = level_of(f, at) + 1;
    }
    tni_unit *u = add_unit(f, i, level);
    if (!u) return;
    f->decision[i].unit = u->into;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_place_of(f->g, n->src[s]);
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
         no_cycle(f, u, m.befores, u->into) && tni_find_roles(u);
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
            int32_t at = tni_place_of(f->g, n->src[s]);
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
        int32_t at = tni_place_of(f->g, n->src[s]);
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
    decide_items(f);
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
