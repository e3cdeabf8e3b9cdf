// How each item is computed: as a view, inlined into its readers, as a seed of a kernel, or alone.
#include "plan/fuse.h"

#include "kernel/thresholds.h"

// One index for each line along the axis, so that it can be computed place by place.
static bool scatters_lines(const tni_node *n)
{
    const tni_node *x = n->src[0], *index = n->src[1];
    for (int j = 0; j < x->rank; j++)
        if (index->size[j] != (j == n->attr.axis.axis ? 1 : x->size[j])) return false;
    return true;
}

static tni_fuse_kind way_of(const tni_node *n)
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

bool tni_can_inline(const tni_node *n)
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
        int32_t next = tni_base_of(f->g, f->g->item[item].n->src[0]);
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
    return tni_delinearize(base, tni_offset_of(src), stride, v.rank, from, to, 1, c);
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
    if (!tni_can_inline(n)) return TNI_AS_ALONE;
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
        int32_t       base = tni_base_of(g, src);
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
        int32_t             at     = tni_base_of(f->g, n->src[s]);
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

static bool is_inlined(const tni_fusion *f, int32_t at)
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
        int32_t at = tni_base_of(f->g, n->src[s]);
        if (is_inlined(f, at)) return false;
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

void tni_decide_items(tni_fusion *f)
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
        x->known = 1 + tni_closed_form_sum(f, (int32_t)i);
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
