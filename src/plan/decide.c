// How each item is computed: as a view, inlined into its readers, as a seed of a kernel, or alone.
//
// tni_decide_items makes passes, because an item's readers come after it:
//
// 1. the kind that the op itself allows; its level; who reads it, and the vetoes (never_inline) of
//    readers that can only load it
// 2. an assignment that shares memory and is stored makes its source stored
// 3. the costs that inlining would bring its readers; an item that is costly with several readers
//    is vetoed before those count it, so they count one load; and the vetoes of readers that grow
//    too large
// 4. sums with a closed form become inlined
// 5. inlined items that are vetoed become seeds
//
// A linear layer and a softmax (docs/design.md follows this example through all layers):
//
//   matmul           alone    no kernel is written for it
//   add of the bias  inlined  cheap: its three readers compute it from the product
//   max, sum         seed     reductions
//   sub, exp         inlined  cheap enough for two readers
//   mul              seed     the result, which is stored
//
// An item that is in_memory for another reason than these (a call or another unit reads it) is
// marked later, by order_units.c, when units are known.
#include "plan/fuse.h"

#include "kernel/thresholds.h"

// Whether a scatter has one index for each line along its axis, so that a kernel can compute it
// element by element: v where the place is the index, else x.
static bool scatters_lines(const tni_node *n)
{
    const tni_node *x = n->src[0], *index = n->src[1];
    for (int j = 0; j < x->rank; j++)
        if (index->size[j] != (j == n->attr.axis.axis ? 1 : x->size[j])) return false;
    return true;
}

static tni_fuse_kind fuse_kind(const tni_node *n)
{
    return tni_op_table[n->op].fuse;
}

static bool is_random(const tni_node *n)
{
    return fuse_kind(n) == TNI_FUSE_RANDOM;
}

// Whether storing a value would gain nothing: it is a number, or follows from its place.
static bool is_free(const tni_node *n)
{
    return fuse_kind(n) == TNI_FUSE_NUMBER || fuse_kind(n) == TNI_FUSE_IOTA;
}

// A concat of more sources is copied by a call: in a kernel each source is a branch for every
// element.
bool tni_can_inline(const tni_node *n)
{
    switch (fuse_kind(n)) {
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
    return fuse_kind(n) == TNI_FUSE_FOLD;
}

// Whether an assignment shares its source's memory: that is one row-major run.
static bool shares_source(const tni_item *it)
{
    if (it->n->op != TNI_assign) return false;
    tni_view v = tni_node_layout(it->n->src[0]);
    return tni_view_contiguous(&v);
}

int32_t tni_shared_item(const tni_fusion *f, int32_t item)
{
    while (f->g->item[item].n->op == TNI_assign && shares_source(&f->g->item[item])) {
        int32_t next = tni_base_of(f->g, f->g->item[item].n->src[0]);
        if (next < 0) return item;
        item = next;
    }
    return item;
}

// Finds the coordinates of base at which a source view reads it, over all of the view's elements.
// False if they are no sums of axes, so that base has to be in memory.
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

// Whether every coordinate of base moves along at most one axis of the reader. Then the bounds of a
// piece are bounds of axes, and guard_within of lower.c can tell them by one comparison each.
static bool is_straight(const tni_node *base, int naxes, const tni_coords *c)
{
    for (int j = 0; j < base->rank; j++) {
        int moves = 0;
        for (int k = 0; k < naxes; k++) moves += c->step[j][k] != 0;
        if (moves > 1) return false;
    }
    return true;
}

// Whether a pad has points outside its source; one that only cuts off has none.
static bool adds_points(const tni_node *n)
{
    for (int j = 0; j < n->rank; j++) {
        int64_t before = n->attr.pad.before[j];
        if (before > 0 || before + n->src[0]->size[j] < n->size[j]) return true;
    }
    return false;
}

// Whether an op reads each source in a piece of its domain only: other points have nothing there.
static bool is_piecewise(const tni_node *n)
{
    return fuse_kind(n) == TNI_FUSE_CONCAT || (fuse_kind(n) == TNI_FUSE_PAD && adds_points(n));
}

// Whether n can compute the elements that it reads through src from base, whose decision is y. In a
// pad or a concat the value would also be computed, under a guard, at points where it does not
// exist: there is no index to check and no number to draw; and if values are inspected, its NaNs
// could not be told from real ones.
static bool can_inline_into(const tni_fusion *f, const tni_node *n, const tni_node *src,
                            const tni_node *base, const tni_decision *y)
{
    tni_coords c;
    if (is_piecewise(n) && (y->never_guarded || f->limits->checked)) return false;
    if (src == base) return true;
    return reads_as_coords(src, base, &c) && (!y->piecewise || is_straight(base, src->rank, &c));
}

// Returns the kind that an op allows, whatever its readers are. Empty values and those of too many
// axes are left to calls.
static tni_item_kind kind_by_op(const tni_item *it)
{
    const tni_node *n = it->n;
    if (n->op == TNI_view || shares_source(it)) return TNI_AS_VIEW;
    int64_t count = tni_node_count(n);
    if (count <= 0 || n->rank > TNI_AXES) return TNI_AS_ALONE;
    if (can_reduce(n)) return tni_node_count(n->src[0]) > 0 ? TNI_AS_SEED : TNI_AS_ALONE;
    if (n->op == TNI_assign) return TNI_AS_SEED;
    if (!tni_can_inline(n)) return TNI_AS_ALONE;
    for (uint32_t s = 0; s < n->nsrc; s++)
        if (tni_node_count(n->src[s]) <= 0) return TNI_AS_ALONE;
    return TNI_AS_INLINED;
}

// Whether n would compute elements of y several times (it goes over at least twice as many points),
// or where they do not exist.
static bool recomputes(const tni_node *n, const tni_node *y)
{
    const tni_node *over = can_reduce(n) ? n->src[0] : n;
    return is_piecewise(n) || tni_node_count(over) >= 2 * tni_node_count(y);
}

// Whether y has few elements, of which n would compute each for thousands of points, as batch norm
// has factors for each channel: a device with many lanes waits for what they are made from in every
// one of them.
static bool is_few_for_many(const tni_fusion *f, const tni_node *n, const tni_node *y,
                            const tni_decision *x)
{
    const tni_node *over = can_reduce(n) ? n->src[0] : n;
    int64_t         few  = tni_node_count(y);
    return x->cost >= 2 && x->read_bytes > 0 && few > 1 && few < f->limits->lanes &&
           tni_node_count(over) >= few * TNI_MANY_FOLDED;
}

// Source s of an item as the planner sees it: the item whose elements it reads (base), and the one
// that computes them (at, decision y); -1 and NULL if it is an input.
typedef struct {
    tni_node     *src;
    int32_t       base, at;
    tni_decision *y;
} source_facts;

static source_facts facts_of(tni_fusion *f, const tni_node *n, uint32_t s)
{
    source_facts x = { .src = n->src[s], .base = tni_base_of(f->g, n->src[s]) };
    x.at           = x.base >= 0 ? tni_shared_item(f, x.base) : x.base;
    x.y            = x.at >= 0 ? &f->decision[x.at] : NULL;
    return x;
}

static bool is_inlined_so_far(const tni_decision *y)
{
    return y && y->kind == TNI_AS_INLINED && !y->never_inline;
}

// A kernel takes what is inlined into it.
static bool joins_kernel(const tni_decision *x)
{
    return x->kind == TNI_AS_INLINED || x->kind == TNI_AS_SEED;
}

// Whether a pad has rows so short that a device without lanes is slow at them: what reads it goes
// over each row by itself, where the rows of a value in memory that lie behind each other are one.
static bool pads_short_rows(const tni_fusion *f, const tni_node *n)
{
    return !f->limits->lanes && fuse_kind(n) == TNI_FUSE_PAD && adds_points(n) && n->rank > 1 &&
           n->size[n->rank - 1] < TNI_SHORT_ROW;
}

// Stores a pad of short rows that a fold of many of them reads, by a kernel of its own; a map hands
// it on to its own readers.
static void find_short_pad(tni_fusion *f, const tni_node *n, tni_decision *x, const tni_decision *y)
{
    enum { MANY = TNI_SHORT_ROW * TNI_SHORT_ROW };
    if (!y->short_pad) return;
    if (tni_is_map(n->op)) x->short_pad = y->short_pad;
    if (!can_reduce(n) || tni_node_count(n->src[0]) / tni_node_count(n) < MANY) return;
    tni_decision *pad = &f->decision[y->short_pad - 1];
    pad->never_inline = pad->own_unit = true;
}

// Counts a reader of y. Readers of one level may share a kernel, which computes y once; those of
// another level cannot.
static void count_reader(tni_decision *y, const tni_decision *reader, int op)
{
    if (!y->uses || y->last_level != reader->level) y->levels++;
    y->last_level = reader->level;
    y->uses++;
    if (tni_is_activation(op)) y->activation = (uint8_t)op;
}

// Returns the level of what reads an item: a kernel that was chosen to end with it ends what can be
// one kernel, as a call does.
static int32_t level_behind(const tni_fusion *f, int32_t at)
{
    return f->decision[at].level + tni_is_chosen(f, at, TNI_CHOICE_CUT);
}

// First pass for item i: its level; and for each source that it is read, by an activation perhaps,
// and whether it can only be loaded here: if n is no kernel, or its elements cannot be expressed.
static void find_readers_of_sources(tni_fusion *f, size_t i)
{
    tni_graph    *g  = f->g;
    tni_decision *x  = &f->decision[i];
    tni_node     *n  = g->item[i].n;
    x->never_guarded = x->kind == TNI_AS_INLINED && (tni_op_table[n->op].fails || is_random(n));
    if (x->kind == TNI_AS_INLINED && pads_short_rows(f, n)) x->short_pad = (int32_t)i + 1;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        source_facts q = facts_of(f, n, s);
        if (q.at >= 0 && level_behind(f, q.at) > x->level) x->level = level_behind(f, q.at);
        if (q.base >= 0 && level_behind(f, q.base) > x->level) x->level = level_behind(f, q.base);
    }
    if (x->kind == TNI_AS_ALONE && n->op != TNI_output) x->level++;
    for (uint32_t s = 0; s < n->nsrc && n->op != TNI_view; s++) {
        source_facts q = facts_of(f, n, s);
        if (!q.y) continue;
        count_reader(q.y, x, n->op);
        if (tni_is_number(g->item[q.at].n->op) && joins_kernel(x)) continue;
        // What is computed again reads what the forward pass kept for it, not what that was made
        // from.
        if (n->again && !is_free(g->item[q.at].n) && !tni_same_pass(n, g->item[q.at].n))
            q.y->never_inline = true;
        if (is_inlined_so_far(q.y) &&
            (!joins_kernel(x) || !can_inline_into(f, n, q.src, g->item[q.base].n, q.y)))
            q.y->never_inline = true;
        if (!is_inlined_so_far(q.y)) continue;
        x->never_guarded |= q.y->never_guarded;
        x->piecewise |= q.y->piecewise || is_piecewise(n);
        find_short_pad(f, n, x, q.y);
    }
}

// Finds up to which level each item is read, also by way of what may be inlined: readers first.
static void find_last_levels(tni_fusion *f)
{
    for (size_t i = f->g->count; i-- > 0;) {
        const tni_decision *x     = &f->decision[i];
        const tni_node     *n     = f->g->item[i].n;
        int32_t             until = x->level;
        if (n->op == TNI_view) continue;
        if (is_inlined_so_far(x) && until < x->until) until = x->until;
        for (uint32_t s = 0; s < n->nsrc; s++) {
            tni_decision *y = facts_of(f, n, s).y;
            if (y && y->until < until) y->until = until;
        }
    }
}

// What it takes to compute an item: the items that are inlined into it, each once, since a kernel
// has one value for them all, and what they load, over its points. Items and loads at other places
// than the item's own are other values, and are counted again.
typedef struct {
    int32_t         item[TNI_TALLY];
    const tni_node *read[TNI_TALLY];
    const tni_node *counted;  // the load that was counted last
    int             items, listed, ops, cost, reads;
    int64_t         read_bytes, points;
} tally;

// An item to be added to a tally, whether it is read at other places than the tally's own, and at
// how many at most.
typedef struct {
    int32_t at;
    bool    moved;
    int64_t places;
} to_count;

// Adds a load. A value of which each element is loaded for many points (a bias, the statistic of a
// row) is in cache: it moves its own bytes, or those of the places at which it is read, and is no
// load that counts.
static void add_read(const tni_fusion *f, tally *t, tni_node *src, bool moved, int64_t places)
{
    int64_t skip, count = tni_node_count(src), own = tni_node_count(tni_node_base(src, &skip));
    for (int k = 0; k < t->listed && !moved; k++)
        if (t->read[k] == src) return;
    if (!moved && t->listed < TNI_TALLY) t->read[t->listed++] = src;
    if (own > count) own = count;
    if (own > places) own = places;
    bool counts = own > t->points / TNI_CACHED_POINTS;
    t->reads += counts;
    if (counts) t->counted = src;
    t->read_bytes += own * (int64_t)f->limits->element_size((tn_dtype)src->dtype);
}

// Adds an item itself; false if the tally has it.
static bool add_item(const tni_fusion *f, tally *t, int32_t at, bool moved)
{
    const tni_node *n = f->g->item[at].n;
    for (int k = 0; k < t->items && !moved; k++)
        if (t->item[k] == at) return false;
    if (!moved && t->items < TNI_TALLY) t->item[t->items++] = at;
    if (f->decision[at].kind != TNI_AS_INLINED || is_free(n)) return true;
    t->ops += is_piecewise(n) ? 1 + 3 * (int)n->nsrc : 1;  // two comparisons and a where each
    t->cost += tni_op_table[n->op].cost;
    return true;
}

// Returns at how many places of its base a source is read: an axis along which it is repeated adds
// none. So the first row of a value, read for all of its rows, is one row.
static int64_t places_of(const tni_node *src)
{
    tni_view v = tni_node_layout(src);
    int64_t  n = 1;
    for (int j = 0; j < v.rank; j++)
        if (v.stride[j]) n *= v.size[j];
    return n;
}

// Adds one source of an item: a load, or what is inlined, which is left to be counted.
static bool add_source(tni_fusion *f, tally *t, to_count x, uint32_t s, to_count *next)
{
    const tni_node *n = f->g->item[x.at].n;
    source_facts    q = facts_of(f, n, s);
    if (q.y && tni_is_number(f->g->item[q.at].n->op) && joins_kernel(&f->decision[x.at]))
        return false;
    if (!is_inlined_so_far(q.y)) {
        add_read(f, t, q.src, x.moved, x.places);
        return false;
    }
    bool    elsewhere = q.src != f->g->item[q.base].n || !(tni_is_map(n->op) || can_reduce(n));
    int64_t places    = elsewhere ? places_of(q.src) : x.places;
    *next = (to_count){ q.at, x.moved || elsewhere, places < x.places ? places : x.places };
    return true;
}

// Adds what is inlined for source s of item i, down to what is loaded. Stops where the tally is
// beyond all limits; whatever it has then, it is too much.
static void add_inlined(tni_fusion *f, tally *t, size_t i, uint32_t s)
{
    to_count left[TNI_TALLY];
    int      count = add_source(f, t, (to_count){ (int32_t)i, false, INT64_MAX }, s, &left[0]);
    while (count > 0 && t->ops <= TNI_TALLY) {
        to_count        x = left[--count];
        const tni_node *n = f->g->item[x.at].n;
        if (!add_item(f, t, x.at, x.moved)) continue;
        for (uint32_t k = 0; k < n->nsrc && count < TNI_TALLY; k++)
            count += add_source(f, t, x, k, &left[count]);
    }
    if (count) t->ops = TNI_TALLY + 1;
}

// Whether all that counts of what an item is made from is one value that is in memory for as long
// as the item is read: then storing the item gains neither memory nor, mostly, a load.
static bool is_made_from_kept(const tni_fusion *f, const tni_decision *x, const tally *t)
{
    int32_t at = t->reads == 1 ? tni_base_of(f->g, t->counted) : -1;
    return t->reads < 1 || (t->reads == 1 && (at < 0 || f->decision[at].until >= x->until));
}

// Third pass for item i: its costs and loads. A source is vetoed if a costly value would be
// computed repeatedly, or if the item would grow beyond the limits of what one reader takes in
// (TNI_READER_COST, TNI_READER_READS).
static void add_costs(tni_fusion *f, size_t i)
{
    tni_graph    *g = f->g;
    tni_decision *x = &f->decision[i];
    tni_node     *n = g->item[i].n;
    tally         t = { .points = tni_node_count(can_reduce(n) ? n->src[0] : n) };
    add_item(f, &t, (int32_t)i, false);
    for (uint32_t s = 0; s < n->nsrc && n->op != TNI_view; s++) {
        source_facts q   = facts_of(f, n, s);
        tally        old = t;
        if (is_inlined_so_far(q.y) &&
            ((q.y->cost >= TNI_REPEAT_COST && recomputes(n, g->item[q.at].n)) ||
             is_few_for_many(f, n, g->item[q.at].n, q.y)))
            q.y->never_inline = true;
        add_inlined(f, &t, i, s);
        bool much = t.ops > TNI_READER_COST || t.reads > TNI_READER_READS;
        if (!much || !is_inlined_so_far(q.y)) continue;
        q.y->never_inline = true;
        t                 = old;
        add_read(f, &t, q.src, false, INT64_MAX);
    }
    x->ops        = (uint16_t)t.ops;
    x->cost       = (uint16_t)t.cost;
    x->reads      = (uint16_t)t.reads;
    x->read_bytes = t.read_bytes;
    x->from_kept  = is_made_from_kept(f, x, &t);
}

// Whether the device computes an activation and also stores its input as the epilogue of a call. It
// is asked with a bias as the example, before any kernel exists.
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

// Whether item i, which an activation and its gradient read, should be stored instead of the
// library result it is made from, as product + bias is stored instead of the product. Its readers
// load as much either way; the device stores it with the call, as part of an epilogue; and no other
// reader needs the product. Its other sources must be small (an eighth of it), since the epilogue
// adds nothing larger than a bias.
static bool replaces_result(const tni_fusion *f, size_t i)
{
    const tni_node *n = f->g->item[i].n, *call = NULL;
    int             activation = f->decision[i].activation;
    if (!f->limits->takes || !tni_is_map(n->op) || activation == TNI_leaf) return false;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int64_t             skip;
        const tni_node     *y  = tni_node_base(n->src[s], &skip);
        int32_t             at = tni_base_of(f->g, n->src[s]);
        const tni_decision *x  = at >= 0 ? &f->decision[at] : NULL;
        bool result            = x && x->kind == TNI_AS_ALONE && x->uses == 1 && !x->in_memory &&
                      !tni_is_chosen(f, at, TNI_CHOICE_PLAIN) && y == n->src[s] &&
                      tni_op_table[y->op].class == TNI_LIBRARY && y->dtype == n->dtype;
        if (result) call = y;
        else if (tni_node_count(y) > tni_node_count(n) / 8) return false;
    }
    return call && is_stored_input(f, call, activation);
}

// Whether a value with several readers is better stored once than computed by each of them: it
// takes many ops or loads, its readers together spend too much on it, or loading what it is made
// from in each of them moves as many bytes as storing and loading it would. Readers of one level
// count as one, as far as bytes go. A value with pieces is always costly.
static bool is_costly(const tni_fusion *f, size_t i)
{
    const tni_decision *x = &f->decision[i];
    if (x->uses < 2 || is_free(f->g->item[i].n)) return false;
    if (x->piecewise || is_piecewise(f->g->item[i].n))
        return true;  // bounds keep loops from being vectors
    if (x->ops > TNI_INLINE_COST || x->reads > TNI_INLINE_READS) return true;
    uint32_t times = x->levels > 1 ? x->levels : x->uses;
    if (times > 2 && x->cost * (times - 1) > TNI_REPEATS_COST) return true;
    if (replaces_result(f, i)) return true;
    int64_t levels = x->levels > 1 ? x->levels : 2;
    return !x->from_kept && x->read_bytes * (levels - 1) >= x->bytes * levels;
}

static bool is_inlined(const tni_fusion *f, int32_t at)
{
    return at >= 0 && f->decision[tni_shared_item(f, at)].kind == TNI_AS_INLINED;
}

// Whether a concat is no work for a kernel: its sources are in memory, and either all of them are
// computed straight into its place (memory.c: fill_concat), or it is stored anyway, so that a call
// copies them.
static bool is_filled_in_place(const tni_fusion *f, const tni_node *n, bool stored)
{
    if (n->op != TNI_concat) return false;
    bool filled = tni_concat_is_flat(n) || tni_concat_is_strided(f->g, f->limits, n);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t at = tni_base_of(f->g, n->src[s]);
        if (is_inlined(f, at)) return false;
        filled &= at >= 0 && tni_node_count(f->g->item[at].n) == tni_node_count(n->src[s]);
    }
    return filled || stored;
}

// Returns the kind of an item before its readers are known. Op by op only numbers are inlined, and
// without kernels nothing is.
static tni_item_kind kind_of(const tni_fusion *f, const tni_item *it)
{
    bool          fuses = f->limits->fuses;
    tni_item_kind kind  = kind_by_op(it);
    if (!f->limits->kernels) return kind == TNI_AS_VIEW ? kind : TNI_AS_ALONE;
    if (kind == TNI_AS_INLINED && is_filled_in_place(f, it->n, !fuses)) return TNI_AS_ALONE;
    return kind == TNI_AS_INLINED && !fuses && !tni_is_number(it->n->op) ? TNI_AS_SEED : kind;
}

// Returns the map that a kernel can store right into the rows of a concat, where source s is all of
// it, nothing else reads it, and rows are whole axes of it; -1: there is none.
static int32_t filling_map(const tni_fusion *f, const tni_node *concat, const tni_node *src)
{
    tni_view v   = tni_node_layout(src);
    int64_t  row = tni_concat_row(concat, src), inner = 1, count = tni_node_count(src);
    for (; src->op == TNI_view; src = src->src[0])
        if (src->state != TNI_PENDING || f->g->item[src->mark - 1].edges != 1) return -1;
    if (src->state != TNI_PENDING || !tni_is_map(src->op) || !tni_view_contiguous(&v)) return -1;
    const tni_item *it = &f->g->item[src->mark - 1];
    for (int i = src->rank; i > 0 && inner < row;) inner *= src->size[--i];
    bool fits = inner == row && tni_node_count(src) == count && src->dtype == concat->dtype;
    bool free = it->edges == 1 && !it->why && f->decision[src->mark - 1].kind == TNI_AS_INLINED;
    return fits && free ? (int32_t)src->mark - 1 : -1;
}

// In the body of a loop a concat that is in memory, the gradient of a step's gates, is stored by
// the kernel that computes its parts: one pass over them, and no branches by the column. Elsewhere
// parts are computed where the concat is read, which saves a launch where they are cheap.
static void fill_concats(tni_fusion *f)
{
    tni_graph *g = f->g;
    for (size_t i = 0; g->body && f->limits->fuses && i < g->count; i++) {
        const tni_node *n   = g->item[i].n;
        bool            all = n->op == TNI_concat && f->decision[i].kind == TNI_AS_INLINED &&
                   f->decision[i].never_inline;
        for (uint32_t s = 0; all && s < n->nsrc; s++) all = filling_map(f, n, n->src[s]) >= 0;
        for (uint32_t s = 0; all && s < n->nsrc; s++) {
            tni_decision *x = &f->decision[tni_base_of(g, n->src[s])];
            x->never_inline = x->in_memory = true;
            x->fills                       = (uint32_t)i + 1;
        }
    }
}

// Makes the passes of the top. Level: an item that runs alone is one level above its sources, since
// a call ends what can be one kernel.
void tni_decide_items(tni_fusion *f)
{
    tni_graph *g = f->g;
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        x->unit         = -1;
        x->activation   = TNI_leaf;
        x->kind         = (uint8_t)kind_of(f, &g->item[i]);
        x->in_memory    = g->item[i].why != 0 || (x->kind == TNI_AS_SEED && !f->limits->fuses);
        x->never_inline = x->in_memory || g->item[i].partition || g->item[i].n->apart ||
                          tni_is_chosen(f, (int32_t)i, TNI_CHOICE_CUT) ||
                          tni_is_chosen(f, (int32_t)i, TNI_CHOICE_STORE);
        x->bytes = tni_node_count(g->item[i].n) *
                   (int64_t)f->limits->element_size(g->item[i].n->dtype);
        find_readers_of_sources(f, i);
    }
    // A stored assignment that shares memory stores the value it shares.
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        if (x->kind == TNI_AS_VIEW && x->in_memory) {
            int32_t at = tni_shared_item(f, (int32_t)i);
            if (at >= 0 && at != (int32_t)i)
                f->decision[at].in_memory = f->decision[at].never_inline = true;
        }
    }
    find_last_levels(f);
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        add_costs(f, i);
        if (x->kind != TNI_AS_INLINED || x->never_inline || !is_costly(f, i)) continue;
        tni_could_choose(f, (int32_t)i, TNI_CHOICE_INLINE);
        x->never_inline = !tni_is_chosen(f, (int32_t)i, TNI_CHOICE_INLINE);
    }
    // A sum with a closed form is inlined, unless it has to be in memory, which the passes above
    // settled.
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        if (x->kind != TNI_AS_SEED) continue;
        x->closed_form = 1 + tni_closed_form_sum(f, (int32_t)i);
        if (x->closed_form && !x->never_inline) x->kind = TNI_AS_INLINED;
    }
    fill_concats(f);
    // An item that is not inlined is part of one kernel, and in memory if another unit reads it.
    for (size_t i = 0; i < g->count; i++) {
        tni_decision *x = &f->decision[i];
        if (x->kind != TNI_AS_INLINED) continue;
        bool stored = x->never_inline;
        bool alone  = tni_op_table[g->item[i].n->op].class == TNI_SOURCE;
        if (is_filled_in_place(f, g->item[i].n, stored)) stored = alone = true;
        if (stored) x->kind = alone ? TNI_AS_ALONE : TNI_AS_SEED;
    }
}
