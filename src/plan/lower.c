// Lowering: writes items as instructions of a unit.
//
// tni_lower_seed(unit, seed, align) is the entry. It lays the seed's axes along the unit's axes,
// which gives the coordinates of the seed's element at each point (tni_coords), and lowers the op
// at these coordinates. Each op turns the coordinates of its result into those of its sources
// (lower_op): a map reads its sources at the same ones, a pad shifts them and adds a guard, a
// gather replaces one of them by an index. A source is then (lower_source)
//
// - a number: an argument of the launch
// - inlined, or a seed of the same unit: lowered, or found, at its coordinates, in this unit
// - in memory: a load, whose address the coordinates times the view's strides give
//
// So a softmax row is written as
//
//   load x[p, r]; reduce max; map sub; map exp; reduce sum; map reciprocal; map mul
//
// An inlined item is lowered again for every set of coordinates at which it is read; equal
// instructions are found and shared (find_same), and rules of simplify.def are applied before. The
// recursion is as deep as values are inlined into a reader, which decide.c bounds
// (TNI_READER_COST).
//
// Any function may return FAILED: the item cannot be part of this unit. The unit then holds values
// that nothing reads; tni_lower_seed cuts them off.
#include "plan/simplify.h"

#include <string.h>

enum { FAILED = -2 };  // no instruction: it cannot be part of this unit

// The state of lowering one seed. Inside a pad or a concat a value is defined only at the points
// from low to high of the domain, and there only where guard (-1: none) is true; what is computed
// at other points may be anything, and loads do not touch memory there. via_size: the size of the
// axis that the current index goes along.
typedef struct {
    tni_fusion *f;
    tni_unit   *u;
    int64_t     via_size;
    int64_t     low[TNI_AXES], high[TNI_AXES];
    int         guard;
    bool        drops_reads;  // simplification may have left a value without readers
} lowering;

static int lower_item(lowering *l, int32_t i, const tni_coords *c);

static tni_node *item_node(const lowering *l, int32_t i)
{
    return l->f->g->item[i].n;
}

// ---- adding to the unit ------------------------------------------------------------------------

static bool grow_list(lowering *l, void **array, size_t *cap, size_t need, size_t size)
{
    if (tni_grow(&l->f->g->cx->heap, array, cap, need, size)) return true;
    l->f->failed = true;
    return false;
}

static uint32_t operand_axes(const lowering *l, int x)
{
    return x >= 0 ? l->u->value[x].axes : 0;
}

// Returns the value with the same instruction over the same operands, which is the same value;
// FAILED if there is none.
static int find_same(const tni_unit *u, const tni_ins *x)
{
    for (size_t k = 0; k < u->values; k++) {
        const tni_ins *y = &u->value[k].ins;
        if (y->code == x->code && y->op == x->op && y->dtype == x->dtype && y->a == x->a &&
            y->b == x->b && y->c == x->c)
            return (int)k;
    }
    return FAILED;
}

// Appends an instruction as a value of item i at coordinates c, or of no item (i -1, c NULL).
// Leaves room for one store per buffer.
static int add_value(lowering *l, int32_t i, int32_t origin, const tni_coords *c, tni_ins ins)
{
    tni_unit *u = l->u;
    if (u->values == TNI_MAX_INS - TNI_MAX_BUFFERS ||
        !grow_list(l, (void **)&u->value, &u->values_cap, u->values + 1, sizeof *u->value))
        return FAILED;
    tni_lowered *v = &u->value[u->values];
    v->ins         = ins;
    v->item        = i;
    v->origin      = origin;
    v->mask        = 0;
    v->seed        = false;
    v->guard       = (int16_t)l->guard;
    v->axes        = operand_axes(l, ins.a) | operand_axes(l, ins.b) | operand_axes(l, ins.c);
    if (c) v->coords = *c;
    return (int)u->values++;
}

static const tni_ins blank = { .a = -1, .b = -1, .c = -1, .access = -1, .number = -1 };

static int bound_number(lowering *l, int32_t i, int which, tn_dtype dt, int64_t literal);

// Looks through a cast that changes nothing. name_value adds those to give a seed a value of its
// own; reading the original instead lets more instructions be found equal.
static int16_t skip_name(const tni_unit *u, int v)
{
    const tni_ins *x      = v >= 0 ? &u->value[v].ins : NULL;
    bool           narrow = x && tni_is_rounded((tn_dtype)x->dtype);
    if (!x || x->code != TNI_I_CAST || narrow) return (int16_t)v;
    return u->value[x->a].ins.dtype == x->dtype ? x->a : (int16_t)v;
}

// Adds a MAP or CAST after simplification, unless the unit has an equal one.
static int put_simplified(lowering *l, int32_t i, int32_t origin, const tni_coords *c, tni_ins x)
{
    x.a       = skip_name(l->u, x.a);
    x.b       = skip_name(l->u, x.b);
    x.c       = skip_name(l->u, x.c);
    int known = tni_simplify(l->u, &x, &l->drops_reads);
    if (known >= 0) return known;
    if (known == TNI_IS_NO || known == TNI_IS_YES)
        return bound_number(l, -1, TNI_NUMBER_LITERAL, TN_BOOL, known == TNI_IS_YES);
    int same = find_same(l->u, &x);
    return same == FAILED ? add_value(l, i, origin, c, x) : same;
}

// Returns a MAP over values, any of which may be FAILED; likewise cast_of.
static int map_of(lowering *l, int32_t i, int32_t origin, const tni_coords *c, int op, tn_dtype dt,
                  int a, int b, int third)
{
    tni_ins x = blank;
    x.code    = TNI_I_MAP;
    x.op      = (uint8_t)op;
    x.dtype   = (uint8_t)dt;
    x.a       = (int16_t)a;
    x.b       = (int16_t)b;
    x.c       = (int16_t)third;
    return a == FAILED || b == FAILED || third == FAILED ? FAILED
                                                         : put_simplified(l, i, origin, c, x);
}

static int cast_of(lowering *l, int32_t i, int32_t origin, const tni_coords *c, tn_dtype dt, int a)
{
    tni_ins x = blank;
    x.code    = TNI_I_CAST;
    x.dtype   = (uint8_t)dt;
    x.a       = (int16_t)a;
    return a == FAILED ? FAILED : put_simplified(l, i, origin, c, x);
}

// Binds a number to the kernel, once for equal bindings. The key and counter of a random op are
// never shared: they have to be neighbours.
static int bind_number(lowering *l, tni_number_binding b)
{
    tni_unit *u = l->u;
    for (size_t k = 0; k < u->numbers; k++) {
        const tni_number_binding *x = &u->number[k];
        if (x->which == b.which && x->item == b.item && x->literal == b.literal &&
            x->dtype == b.dtype && b.which != TNI_NUMBER_KEY && b.which != TNI_NUMBER_COUNTER)
            return (int)k;
    }
    if (u->numbers == TNI_MAX_NUMBERS ||
        !grow_list(l, (void **)&u->number, &u->numbers_cap, u->numbers + 1, sizeof *u->number))
        return FAILED;
    u->number[u->numbers] = b;
    return (int)u->numbers++;
}

// Returns the value of a number of item i, or of a literal.
static int bound_number(lowering *l, int32_t i, int which, tn_dtype dt, int64_t literal)
{
    tni_ins x = blank;
    int     n = bind_number(l, (tni_number_binding){ (uint8_t)which, (uint8_t)dt, i, literal });
    if (n == FAILED) return FAILED;
    for (size_t k = 0; k < l->u->values; k++)
        if (l->u->value[k].ins.code == TNI_I_NUMBER && l->u->value[k].ins.number == n)
            return (int)k;
    x.code   = TNI_I_NUMBER;
    x.dtype  = (uint8_t)dt;
    x.number = (int16_t)n;
    return add_value(l, -1, i, NULL, x);
}

// Returns the value of a number that the plan fixes.
static int literal_of(lowering *l, tn_dtype dt, int64_t v)
{
    return bound_number(l, -1, TNI_NUMBER_LITERAL, dt, tni_word_of(dt, (double)v, v).l);
}

// Returns the axes along which an access moves, as bits.
static uint32_t source_axes(const lowering *l, const tni_access_binding *s)
{
    uint32_t axes = 0;
    for (int k = 0; k < l->u->naxes; k++) axes |= (uint32_t)(s->stride[k] != 0) << k;
    return axes;
}

// Appends an access; room is left for the accesses of stores.
static int add_source(lowering *l, const tni_access_binding *s)
{
    tni_unit *u = l->u;
    if (u->sources == TNI_MAX_ACCESSES - TNI_MAX_BUFFERS ||
        !grow_list(l, (void **)&u->source, &u->sources_cap, u->sources + 1, sizeof *u->source))
        return FAILED;
    u->source[u->sources] = *s;
    return (int)u->sources++;
}

// Returns the sum of coordinates times strides as an i64 value: the row-major position of an
// element, or a coordinate. Coordinates by an index have none.
static int place_by(lowering *l, const tni_coords *c, int rank, const int64_t *stride,
                    int32_t origin)
{
    tni_access_binding s = { .place = -1, .reader = -1, .edge = -1 };
    tni_ins            x = blank;
    if (c->via >= 0) return FAILED;
    for (int j = 0; j < rank; j++) {
        s.offset += stride[j] * c->start[j];
        for (int k = 0; k < l->u->naxes; k++) s.stride[k] += stride[j] * c->step[j][k];
    }
    for (size_t k = 0; k < l->u->values; k++) {
        const tni_ins            *y = &l->u->value[k].ins;
        const tni_access_binding *r = y->code == TNI_I_PLACE ? &l->u->source[y->access] : NULL;
        if (r && r->offset == s.offset && !memcmp(r->stride, s.stride, sizeof s.stride))
            return (int)k;
    }
    int at = add_source(l, &s);
    if (at == FAILED) return FAILED;
    x.code   = TNI_I_PLACE;
    x.dtype  = TN_I64;
    x.access = (int16_t)at;
    at       = add_value(l, -1, origin, NULL, x);
    if (at >= 0) l->u->value[at].axes |= source_axes(l, &s);
    return at;
}

// ---- reading -----------------------------------------------------------------------------------

// Records that the unit reads the result of another from memory. False if that is this unit itself:
// a kernel cannot load what it stores.
static bool add_dependency(lowering *l, int32_t place)
{
    tni_unit *u = l->u;
    if (place < 0) return true;
    int32_t unit = l->f->decision[tni_shared_item(l->f, place)].unit;
    if (unit < 0) return true;
    unit = tni_final_unit(l->f, unit);
    if (&l->f->unit[unit] == u) return false;  // a kernel cannot load what it stores
    return tni_unit_add_dep(l->f, u, unit);
}

// Whether a view's offset is part of the key, since its base is still to be computed. Other offsets
// are arguments of the run: two that are equal now may differ in the next run of this plan.
static bool begins_as_planned(const tni_node *n)
{
    for (; n->op == TNI_view; n = n->src[0])
        if (n->src[0]->state != TNI_PENDING || n->src[0]->op == TNI_update) return false;
    return true;
}

// Whether two accesses read the same elements in every run of the plan.
static bool same_source(const lowering *l, const tni_access_binding *a, const tni_access_binding *b)
{
    if (a->place != b->place || a->offset != b->offset) return false;
    if (memcmp(a->stride, b->stride, sizeof a->stride)) return false;
    if (a->edge < 0 || b->edge < 0) return a->edge < 0 && b->edge < 0;
    const tni_node *x = item_node(l, a->reader)->src[a->edge];
    const tni_node *y = item_node(l, b->reader)->src[b->edge];
    if (x == y || (x->op != TNI_view && y->op != TNI_view)) return true;
    return begins_as_planned(x) && begins_as_planned(y) && tni_offset_of(x) == tni_offset_of(y);
}

// Returns a load by an access, shared with an equal one. index: the value that is added to the
// address, if any. A load under a guard reads only where the guard is true; one without a guard
// serves for it too.
static int load_value(lowering *l, const tni_access_binding *s, tn_dtype dt, int index,
                      int32_t origin)
{
    tni_unit *u = l->u;
    tni_ins   x = blank;
    for (size_t k = 0; k < u->values; k++) {
        const tni_ins *y = &u->value[k].ins;
        if (y->code == TNI_I_LOAD && y->a == index && (y->b < 0 || y->b == l->guard) &&
            same_source(l, &u->source[y->access], s))
            return (int)k;
    }
    if (!add_dependency(l, s->place)) return FAILED;
    int at = add_source(l, s);
    if (at == FAILED) return FAILED;
    x.code   = TNI_I_LOAD;
    x.dtype  = (uint8_t)dt;
    x.a      = (int16_t)index;
    x.b      = (int16_t)l->guard;
    x.access = (int16_t)at;
    at       = add_value(l, -1, origin, NULL, x);
    if (at >= 0) u->value[at].axes |= source_axes(l, s);
    return at;
}

// Whether the value of an item can be had without memory: it is inlined, or this unit computes it.
static bool is_inside(const lowering *l, int32_t i)
{
    const tni_decision *x = &l->f->decision[i];
    if (x->kind == TNI_AS_INLINED) return true;
    if (x->unit < 0) return false;
    int32_t unit = x->unit;
    unit         = tni_final_unit(l->f, unit);
    return x->kind == TNI_AS_SEED && &l->f->unit[unit] == l->u;
}

// Returns the value of source s of item i at coordinates of the source's own axes: see the top of
// this file. The access is built from the view's strides. If the base is computed in this unit, the
// same offset and strides are turned into coordinates of the base instead (delinearize.c), looking
// through assignments that share memory.
static int lower_source(lowering *l, int32_t i, int s, const tni_coords *c)
{
    tni_graph         *g    = l->f->g;
    tni_node          *src  = item_node(l, i)->src[s];
    tni_view           v    = tni_node_layout(src);
    int32_t            base = tni_base_of(g, src);
    tni_access_binding a    = { .place = base, .reader = i, .edge = s };
    for (int j = 0; j < v.rank; j++) {
        a.offset += v.stride[j] * c->start[j];
        for (int k = 0; k < l->u->naxes; k++) a.stride[k] += v.stride[j] * c->step[j][k];
        if (c->via >= 0) a.stride[TNI_AXES] += v.stride[j] * c->step[j][TNI_AXES];
    }
    int via        = a.stride[TNI_AXES] ? c->via : TNI_NO_VALUE;
    a.indices      = via >= 0 ? l->via_size : 0;
    int32_t shared = base >= 0 ? tni_shared_item(l->f, base) : base;
    if (shared >= 0 && tni_is_number(item_node(l, shared)->op))
        return bound_number(l, shared, TNI_NUMBER_VALUE, (tn_dtype)src->dtype, 0);
    if (shared >= 0 && is_inside(l, shared)) {
        // Assignments that share memory are looked through: each adds the offset of its source.
        int64_t    offset = a.offset + tni_offset_of(src);
        tni_coords inner  = { .via = (int16_t)via };
        for (int32_t at = base; at != shared;) {
            const tni_node *from = item_node(l, at)->src[0];
            offset += tni_offset_of(from);
            at = tni_base_of(g, from);
        }
        if (!tni_delinearize(item_node(l, shared), offset, a.stride, l->u->naxes, l->low, l->high,
                             l->via_size, &inner))
            return FAILED;
        return lower_item(l, shared, &inner);
    }
    return load_value(l, &a, (tn_dtype)src->dtype, via, i);
}

// Returns source s of a map at the map's own coordinates; a source of rank 0 has only one element.
static int lower_operand(lowering *l, int32_t i, int s, const tni_coords *c)
{
    static const tni_coords only = { .via = TNI_NO_VALUE };
    const tni_node         *n    = item_node(l, i);
    return lower_source(l, i, s, n->src[s]->rank == n->rank ? c : &only);
}

// ---- ops ---------------------------------------------------------------------------------------

// Rounds a value of 16 bits as if it were in memory. Between ops it is kept in f32, which is finer;
// but two ways to compute one value, one of them through memory, must compare as equal.
static int round_value(lowering *l, int32_t i, int v)
{
    tni_ins x = blank;
    x.code    = TNI_I_CAST;
    x.dtype   = l->u->value[v].ins.dtype;
    x.a       = (int16_t)v;
    if (!tni_is_rounded((tn_dtype)x.dtype) || l->u->value[v].ins.code == TNI_I_LOAD) return v;
    int same = find_same(l->u, &x);
    return same == FAILED ? add_value(l, -1, i, NULL, x) : same;
}

// Whether an op compares two computed values, not one with a number.
static bool compares_values(const lowering *l, const tni_node *n, const int *x)
{
    if (tni_op_table[n->op].error != TNI_ERROR_COMPARES) return false;
    return l->u->value[x[0]].ins.code != TNI_I_NUMBER && l->u->value[x[1]].ins.code != TNI_I_NUMBER;
}

// Writes a map: its operands at its own coordinates. Operands of a comparison are rounded first; so
// is what a cast to a wider float takes from a map, or the logits of a loss, in f32 here and read
// by an index there, would differ by a rounding.
static int lower_map(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n    = item_node(l, i);
    int             x[3] = { TNI_NO_VALUE, TNI_NO_VALUE, TNI_NO_VALUE };
    for (uint32_t s = 0; s < n->nsrc; s++)
        if ((x[s] = lower_operand(l, i, (int)s, c)) == FAILED) return FAILED;
    for (uint32_t s = 0; s < 2 && compares_values(l, n, x); s++)
        if ((x[s] = round_value(l, i, x[s])) == FAILED) return FAILED;
    tn_dtype dt = (tn_dtype)n->dtype;
    if (n->op == TNI_cast && tni_is_float(dt) && l->u->value[x[0]].ins.code == TNI_I_MAP &&
        (x[0] = round_value(l, i, x[0])) == FAILED)
        return FAILED;
    if (n->op == TNI_cast) return cast_of(l, i, i, c, dt, x[0]);
    return map_of(l, i, i, c, n->op, dt, x[0], x[1], x[2]);
}

// Writes start + place * step, in double if the device has it, or in i64.
static int lower_iota(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n  = item_node(l, i);
    tn_dtype        as = l->f->limits->doubles ? TN_F64 : TN_F32;
    if (!tni_is_float((tn_dtype)n->dtype)) as = TN_I64;
    int64_t row[TN_MAX_RANK];
    tni_shape_strides(n->rank, n->size, row);
    int at = place_by(l, c, n->rank, row, i);
    if (at == FAILED) return FAILED;
    at = cast_of(l, -1, i, NULL, as, at);
    at = map_of(l, -1, i, NULL, TNI_mul, as, at, bound_number(l, i, TNI_NUMBER_STEP, as, 0), -1);
    if (at == FAILED) return FAILED;
    at = map_of(l, -1, i, NULL, TNI_add, as, at, bound_number(l, i, TNI_NUMBER_START, as, 0), -1);
    return cast_of(l, i, i, c, (tn_dtype)n->dtype, at);
}

// Writes a random op: a function of key, counter and row-major position, so that recomputing it
// gives the same numbers. Never under a guard, where other points would draw too.
static int lower_random(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n = item_node(l, i);
    int64_t         row[TN_MAX_RANK];
    tni_ins         x = blank;
    tni_shape_strides(n->rank, n->size, row);
    int at    = place_by(l, c, n->rank, row, i);
    int first = bind_number(l, (tni_number_binding){ TNI_NUMBER_KEY, TN_I64, i, 0 });
    int next  = bind_number(l, (tni_number_binding){ TNI_NUMBER_COUNTER, TN_I64, i, 0 });
    if (at == FAILED || first == FAILED || next == FAILED || l->guard >= 0) return FAILED;
    x.code   = TNI_I_RANDOM;
    x.op     = (uint8_t)n->op;
    x.dtype  = n->dtype;
    x.a      = (int16_t)at;
    x.number = (int16_t)first;
    return add_value(l, i, i, c, x);
}

// Returns the index of a gather or scatter, checked against the size of its axis unless it is known
// to be in range. The check belongs to item i, which the message names, so equal checks of other
// items are not shared.
static int lower_index(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n    = item_node(l, i);
    int64_t         size = n->src[0]->size[n->attr.axis.axis];
    int             at   = lower_source(l, i, 1, c);
    tni_ins         x    = blank;
    if (at == FAILED || l->guard >= 0)
        return FAILED;  // a check under a guard would fail where the value does not exist
    at = cast_of(l, -1, i, NULL, TN_I64, at);
    if (!tni_node_may_fail(n)) return at;
    int m = bind_number(l, (tni_number_binding){ TNI_NUMBER_LITERAL, TN_I64, -1, size });
    if (at == FAILED || m == FAILED) return FAILED;
    x.code   = TNI_I_CHECK;
    x.dtype  = TN_I64;
    x.a      = (int16_t)at;
    x.number = (int16_t)m;
    for (size_t k = 0; k < l->u->values; k++) {
        const tni_ins *y = &l->u->value[k].ins;
        if (y->code == TNI_I_CHECK && y->a == at && y->number == m && l->u->value[k].origin == i)
            return (int)k;
    }
    return add_value(l, -1, i, NULL, x);
}

// Whether value `at` is made from value x.
static bool is_made_from(const tni_unit *u, int at, int x)
{
    bool made[TNI_MAX_INS] = { false };
    made[x]                = true;
    for (int k = x + 1; k <= at; k++) {
        const tni_ins *y = &u->value[k].ins;
        made[k]          = (y->a >= 0 && made[y->a]) || (y->b >= 0 && made[y->b]) ||
                  (y->c >= 0 && made[y->c]);
    }
    return at >= x && made[at];
}

// Writes a gather: its source at the coordinate that the index gives. If the source does not depend
// on the index (it is a number, or has no element along the axis), the index would be dead code and
// stay unchecked, so the value is written as where(index < size, value, 0).
static int lower_gather(lowering *l, int32_t i, const tni_coords *c)
{
    int        axis = item_node(l, i)->attr.axis.axis;
    int64_t    size = item_node(l, i)->src[0]->size[axis];
    tn_dtype   dt   = (tn_dtype)item_node(l, i)->dtype;
    tni_coords x    = *c;
    if (c->via >= 0) return FAILED;
    int index = lower_index(l, i, c);
    if (index == FAILED) return FAILED;
    x.via         = (int16_t)index;
    x.start[axis] = 0;
    memset(x.step[axis], 0, sizeof x.step[axis]);
    x.step[axis][TNI_AXES] = 1;
    int64_t outer          = l->via_size;
    l->via_size            = size;
    int at                 = size ? lower_source(l, i, 0, &x) : literal_of(l, dt, 1);
    l->via_size            = outer;
    if (at == FAILED || is_made_from(l->u, at, index)) return at;
    int in = map_of(l, -1, i, NULL, TNI_lt, TN_BOOL, index, literal_of(l, TN_I64, size), -1);
    return map_of(l, i, i, c, TNI_where, dt, in, at, literal_of(l, dt, 0));
}

// Writes a scatter with one index per line: where(place == index, v or x + v, x).
static int lower_scatter(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n                 = item_node(l, i);
    int             axis              = n->attr.axis.axis;
    tn_dtype        dt                = (tn_dtype)n->dtype;
    int64_t         unit[TN_MAX_RANK] = { 0 };
    tni_coords      line              = *c;
    unit[axis]                        = 1;
    line.start[axis]                  = 0;
    memset(line.step[axis], 0, sizeof line.step[axis]);
    int x     = lower_source(l, i, 0, c);
    int index = lower_index(l, i, &line), place = place_by(l, c, n->rank, unit, i);
    int v = lower_source(l, i, 2, &line);
    if (x == FAILED || index == FAILED || place == FAILED || v == FAILED) return FAILED;
    int here = map_of(l, -1, i, NULL, TNI_eq, TN_BOOL, place, index, -1);
    int new  = n->op == TNI_scatter ? v : map_of(l, -1, i, NULL, TNI_add, dt, x, v, -1);
    return map_of(l, i, i, c, TNI_where, dt, here, new, x);
}

// ---- parts of what is padded or joined ---------------------------------------------------------

// Finds the range of coordinate j over the points at which the value is defined.
static void coordinate_range(const lowering *l, const tni_coords *c, int j, int64_t *low,
                             int64_t *high)
{
    *low = *high = c->start[j];
    for (int k = 0; k < l->u->naxes; k++) {
        int64_t step = c->step[j][k];
        *low += step * (step < 0 ? l->high[k] : l->low[k]);
        *high += step * (step < 0 ? l->low[k] : l->high[k]);
    }
}

// Restricts the points at which values are defined to those with 0 <= coordinate j < size. Only a
// coordinate that moves along a single axis says which points these are; others leave the range as
// it is, and the guard alone protects loads.
static void narrow_domain(lowering *l, const tni_coords *c, int j, int64_t size)
{
    int axis = -1, axes = 0;
    for (int k = 0; k < l->u->naxes; k++)
        if (c->step[j][k]) {
            axis = k;
            axes++;
        }
    if (axes != 1) return;
    int64_t step = c->step[j][axis], first = -c->start[j], last = size - 1 - c->start[j];
    if (step < 0) {
        int64_t swap = -first;
        first        = -last;
        last         = swap;
        step         = -step;
    }
    int64_t low  = first > 0 ? (first + step - 1) / step : 0;
    int64_t high = last >= 0 ? last / step : -1;
    if (l->low[axis] < low) l->low[axis] = low;
    if (l->high[axis] > high) l->high[axis] = high;
}

static int and_guards(lowering *l, int32_t i, int a, int b)
{
    if (a == TNI_NO_VALUE || b == TNI_NO_VALUE) return a == TNI_NO_VALUE ? b : a;
    return map_of(l, -1, i, NULL, TNI_logical_and, TN_BOOL, a, b, -1);
}

static int compare_with(lowering *l, int32_t i, int op, int at, int64_t with)
{
    return map_of(l, -1, i, NULL, op, TN_BOOL, at, literal_of(l, TN_I64, with), -1);
}

// The part of coordinate j that is between 0 and d - 1 by its steps that are no multiples of d;
// false if there is no such step, or the part leaves that range.
static bool is_remainder(const lowering *l, const tni_coords *c, int j, int64_t d)
{
    tni_coords fine  = *c;
    bool       moves = false;
    int64_t    low, high;
    fine.start[j] = (c->start[j] % d + d) % d;
    for (int k = 0; k < l->u->naxes; k++) {
        if (c->step[j][k] % d == 0) fine.step[j][k] = 0;
        moves |= fine.step[j][k] != 0;
    }
    coordinate_range(l, &fine, j, &low, &high);
    return moves && low >= 0 && high < d;
}

// Divides coordinate j by d, if it is d times one number plus another between 0 and d - 1, as w * C
// + c is for channels that lie side by side, and begin and end are multiples of d. It is in that
// range where the first number is in the range divided by d; so the guard does not move along c,
// and is tested once for a vector of channels. Returns the largest such d, or 1.
static int64_t divide_coordinate(const lowering *l, tni_coords *c, int j, int64_t begin,
                                 int64_t end)
{
    int64_t best = 1;
    for (int k = 0; k < l->u->naxes; k++) {
        int64_t d = c->step[j][k] < 0 ? -(int64_t)c->step[j][k] : c->step[j][k];
        if (d > best && begin % d == 0 && end % d == 0 && is_remainder(l, c, j, d)) best = d;
    }
    c->start[j] = (c->start[j] - (c->start[j] % best + best) % best) / best;
    for (int k = 0; k < l->u->naxes; k++)
        c->step[j][k] = c->step[j][k] % best ? 0 : (int32_t)(c->step[j][k] / best);
    return best;
}

// Returns the guard begin <= coordinate j < end; TNI_NO_VALUE if that holds at all points.
static int guard_within(lowering *l, int32_t i, const tni_coords *c, int j, int64_t begin,
                        int64_t end)
{
    int64_t low, high, unit[TN_MAX_RANK] = { 0 };
    int     from = TNI_NO_VALUE, to = TNI_NO_VALUE;
    unit[j] = 1;
    if (c->via >= 0) return FAILED;
    coordinate_range(l, c, j, &low, &high);
    if (low >= begin && high < end) return TNI_NO_VALUE;
    tni_coords x  = *c;
    int64_t    d  = divide_coordinate(l, &x, j, begin, end);
    int        at = place_by(l, &x, j + 1, unit, i);
    if (low < begin) from = compare_with(l, i, TNI_ge, at, begin / d);
    if (high >= end) to = compare_with(l, i, TNI_lt, at, end / d);
    return and_guards(l, i, from, to);
}

// Returns source s of a pad or concat at coordinates x, which are inside it only where `in` is
// true. The guard and the narrowed domain hold for everything lowered below, and are restored
// afterwards.
static int lower_part(lowering *l, int32_t i, int s, const tni_coords *x, int in)
{
    const tni_node *src   = item_node(l, i)->src[s];
    lowering        outer = *l;
    l->guard              = and_guards(l, i, outer.guard, in);
    for (int j = 0; j < src->rank; j++) narrow_domain(l, x, j, src->size[j]);
    int at = l->guard == FAILED ? FAILED : lower_source(l, i, s, x);
    *l     = outer;
    return at;
}

// Writes a pad: where(inside, x, fill). Without points outside, it is x alone.
static int lower_pad(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n  = item_node(l, i);
    tni_coords      x  = *c;
    int             in = TNI_NO_VALUE;
    if (tni_node_count(n->src[0]) == 0)
        return bound_number(l, i, TNI_NUMBER_FILL, (tn_dtype)n->dtype, 0);
    for (int j = 0; j < n->rank; j++) {
        int64_t before = n->attr.pad.before[j], end = before + n->src[0]->size[j];
        in = and_guards(l, i, in, guard_within(l, i, c, j, before, end));
        if (in == FAILED) return FAILED;
        x.start[j] -= before;
    }
    int at = lower_part(l, i, 0, &x, in);
    if (in < 0 || at == FAILED) return at;
    return map_of(l, i, i, c, TNI_where, (tn_dtype)n->dtype, in, at,
                  bound_number(l, i, TNI_NUMBER_FILL, (tn_dtype)n->dtype, 0));
}

// Writes a concat as a chain of where(): each source where the coordinate along the axis falls into
// it. Sources that no point falls into are left out, so that a slice of a concat reads only what it
// needs.
static int lower_concat(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n    = item_node(l, i);
    int             axis = n->attr.axis.axis, value = TNI_NO_VALUE;
    int64_t         low, high, begin = 0;
    tni_coords      x = *c;
    coordinate_range(l, c, axis, &low, &high);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int64_t end = begin + n->src[s]->size[axis];
        if (low < end && high >= begin) {
            int in = guard_within(l, i, c, axis, begin, end);
            int at = in == FAILED ? FAILED : lower_part(l, i, (int)s, &x, in);
            if (at == FAILED) return FAILED;
            value = value < 0
                        ? at
                        : map_of(l, -1, i, NULL, TNI_where, (tn_dtype)n->dtype, in, at, value);
            if (value == FAILED) return FAILED;
        }
        x.start[axis] -= end - begin;
        begin = end;
    }
    return value;
}

// ---- sums that are known -----------------------------------------------------------------------

// Looks through negations of what a sum adds up.
static const tni_node *summed_node(const tni_node *n, bool *negative)
{
    const tni_node *src = n->src[0];
    *negative           = false;
    while (src->state == TNI_PENDING && src->op == TNI_neg) {
        *negative = !*negative;
        src       = src->src[0];
    }
    return src;
}

// A scatter_add of one value v per line into a constant c, summed along the lines, is v + n * c for
// lines of n elements: the gradient of cross-entropy sums a one-hot row. Its indices are checked
// all the same.
int32_t tni_closed_form_sum(const tni_fusion *f, int32_t i)
{
    const tni_graph *g = f->g;
    const tni_node  *n = g->item[i].n;
    bool             negative;
    if (n->op != TNI_sum || !tni_is_float((tn_dtype)n->dtype)) return -1;
    const tni_node *src = summed_node(n, &negative);
    if (src->state != TNI_PENDING || src->op != TNI_scatter_add) return -1;
    int32_t at = (int32_t)src->mark - 1, base = tni_base_of(g, src->src[0]);
    if (f->decision[at].kind != TNI_AS_INLINED) return -1;
    if (n->attr.reduce.axes != 1u << src->attr.axis.axis) return -1;
    return base >= 0 && tni_is_number(g->item[base].n->op) ? at : -1;
}

// Returns the coordinates of the first element that a reduction folds for its result at c.
static tni_coords first_folded(const tni_node *n, const tni_coords *c)
{
    tni_coords first = { .via = c->via };
    for (int j = 0, k = 0; j < n->src[0]->rank; j++) {
        bool folded = n->attr.reduce.axes >> j & 1;
        if (folded && n->rank != n->src[0]->rank) continue;
        if (!folded) {
            first.start[j] = c->start[k];
            memcpy(first.step[j], c->step[k], sizeof first.step[j]);
        }
        k++;
    }
    return first;
}

// Writes such a sum. The length n is computed as n + index - index, so that the checked index stays
// alive, which reports an index out of range wherever the sum is computed.
static int lower_closed_form_sum(lowering *l, int32_t i, const tni_coords *c)
{
    bool            negative;
    int32_t         from = l->f->decision[i].closed_form - 1;
    const tni_node *n = item_node(l, i), *x = summed_node(n, &negative);
    tn_dtype        dt    = (tn_dtype)n->dtype;
    int             axis  = x->attr.axis.axis;
    tni_coords      line  = first_folded(n, c);
    int             at    = lower_index(l, from, &line);
    int             count = literal_of(l, TN_I64, x->size[axis]);
    count                 = map_of(l, -1, i, NULL, TNI_add, TN_I64, count, at, -1);
    count                 = map_of(l, -1, i, NULL, TNI_sub, TN_I64, count, at, -1);
    count                 = cast_of(l, -1, i, NULL, dt, count);
    int rest = map_of(l, -1, i, NULL, TNI_mul, dt, lower_source(l, from, 0, &line), count, -1);
    int sum  = map_of(l, -1, i, NULL, TNI_add, dt, lower_source(l, from, 2, &line), rest, -1);
    return negative ? map_of(l, i, i, c, TNI_neg, dt, sum, -1, -1) : sum;
}

// Counts the elements of its source that a reduction folds for each element of its result.
static int64_t folded_count(const tni_node *n)
{
    int64_t count = 1;
    for (int j = 0; j < n->src[0]->rank; j++)
        if (n->attr.reduce.axes >> j & 1) count *= n->src[0]->size[j];
    return count;
}

// Whether a reduction folds nothing, or the same element again and again: a number, or a view with
// stride 0 along the folded axes. Such a reduction is no loop.
static bool folds_one(const tni_fusion *f, const tni_node *n)
{
    int32_t  base  = tni_base_of(f->g, n->src[0]);
    tni_view v     = tni_node_layout(n->src[0]);
    int64_t  count = folded_count(n);
    if (count <= 1) return count == 0;
    if (base >= 0 && tni_is_number(f->g->item[tni_shared_item(f, base)].n->op)) return true;
    for (int j = 0; j < v.rank; j++)
        if (n->attr.reduce.axes >> j & 1 && v.size[j] > 1 && v.stride[j]) return false;
    return true;
}

// Returns x to the power of a count. A float may round the count, and lose whether it is odd, which
// decides the sign: so the odd factor is separate.
static int lower_power(lowering *l, int32_t i, tn_dtype dt, int x, int64_t count)
{
    int even = map_of(l, -1, i, NULL, TNI_pow, dt, x, literal_of(l, dt, count & ~INT64_C(1)), -1);
    return count & 1 ? map_of(l, -1, i, NULL, TNI_mul, dt, even, x, -1) : even;
}

// Writes a reduction that folds one element `count` times: the element itself, times count or to
// the power of count; for no element the neutral number.
static int lower_repeated_fold(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n  = item_node(l, i);
    tn_dtype        dt = (tn_dtype)n->dtype, in = tni_compute_dtype(dt);
    tni_coords      first = first_folded(n, c);
    int64_t         count = folded_count(n);
    if (count == 0) return literal_of(l, dt, n->op == TNI_prod);
    int at = cast_of(l, -1, i, NULL, dt, lower_source(l, i, 0, &first));
    if (n->op == TNI_max || n->op == TNI_min) return at;
    at = cast_of(l, -1, i, NULL, in, at);
    at = n->op == TNI_prod ? lower_power(l, i, in, at, count)
                           : map_of(l, -1, i, NULL, TNI_mul, in, at, literal_of(l, in, count), -1);
    return cast_of(l, i, i, c, dt, at);
}

static bool same_coords(const tni_node *n, const tni_coords *a, const tni_coords *b)
{
    size_t steps = (size_t)n->rank * sizeof a->step[0];
    return a->via == b->via && !memcmp(a->start, b->start, (size_t)n->rank * sizeof *a->start) &&
           !memcmp(a->step, b->step, steps);
}

// Returns the value of item i at c, by the way its op is fused (FUSE column of ops.def).
static int lower_op(lowering *l, int32_t i, const tni_coords *c)
{
    const tni_node *n = item_node(l, i);
    switch (tni_op_table[n->op].fuse) {
    case TNI_FUSE_NUMBER: return bound_number(l, i, TNI_NUMBER_VALUE, (tn_dtype)n->dtype, 0);
    case TNI_FUSE_IOTA: return lower_iota(l, i, c);
    case TNI_FUSE_RANDOM: return lower_random(l, i, c);
    case TNI_FUSE_MAP: return lower_map(l, i, c);
    case TNI_FUSE_COPY:
    case TNI_FUSE_ASSIGN: return lower_source(l, i, 0, c);
    case TNI_FUSE_GATHER: return lower_gather(l, i, c);
    case TNI_FUSE_SCATTER: return lower_scatter(l, i, c);
    case TNI_FUSE_PAD: return lower_pad(l, i, c);
    case TNI_FUSE_CONCAT: return lower_concat(l, i, c);
    case TNI_FUSE_FOLD:
        return l->f->decision[i].closed_form ? lower_closed_form_sum(l, i, c)
                                             : lower_repeated_fold(l, i, c);
    case TNI_FUSE_VIEW:
    case TNI_FUSE_OUTPUT:
    case TNI_FUSE_ALONE: break;
    }
    return FAILED;
}

// Returns the value of item i at c: one that the unit has, else lowered now. A seed of
// the unit exists only at its own coordinates: at others it would have to be in memory first.
static int lower_item(lowering *l, int32_t i, const tni_coords *c)
{
    tni_unit       *u    = l->u;
    const tni_node *n    = item_node(l, i);
    bool            seed = l->f->decision[i].kind == TNI_AS_SEED;
    for (size_t k = 0; k < u->values; k++) {
        const tni_lowered *v = &u->value[k];
        if (v->item == i && (v->guard < 0 || v->guard == l->guard) && same_coords(n, &v->coords, c))
            return (int)k;
    }
    return seed ? FAILED : lower_op(l, i, c);
}

// ---- seeds -------------------------------------------------------------------------------------

// Whether an item is computed by a loop.
static bool folds_in_loop(const tni_fusion *f, int32_t i)
{
    const tni_node *n = f->g->item[i].n;
    return tni_op_table[n->op].class == TNI_REDUCE && !f->decision[i].closed_form &&
           !folds_one(f, n);
}

const tni_node *tni_seed_domain(const tni_fusion *f, int32_t i)
{
    const tni_node *n = f->g->item[i].n;
    return folds_in_loop(f, i) ? n->src[0] : n;
}

// Fills in the steps of a coordinate that is mapped to domain axes: their product, innermost
// fastest.
static void step_along(const tni_unit *u, uint32_t axes, int32_t *step)
{
    int64_t inner = 1;
    for (int k = u->naxes - 1; k >= 0; k--) {
        if (!(axes >> k & 1)) continue;
        step[k] = (int32_t)inner;
        inner *= u->size[k];
    }
}

// Returns the coordinates of a shape whose axes are mapped to domain axes.
static tni_coords coords_on(const tni_unit *u, const tni_node *n, const uint32_t *align)
{
    tni_coords c = { .via = TNI_NO_VALUE };
    for (int j = 0; j < n->rank; j++) step_along(u, align[j], c.step[j]);
    return c;
}

// Writes a reduction: its operand over the whole domain, its result along the axes that are kept.
// If no axis of the unit is folded (all have size 1), it is a cast. The operand must vary along the
// folded axes, or the kernel would add one value up.
static int lower_reduce(lowering *l, int32_t i, const uint32_t *align)
{
    const tni_node *n = item_node(l, i), *src = n->src[0];
    tni_coords      c = coords_on(l->u, src, align), kept = { .via = TNI_NO_VALUE };
    tni_ins         x    = blank;
    uint32_t        mask = 0;
    int             to   = 0;
    for (int j = 0; j < src->rank; j++) {
        bool folded = n->attr.reduce.axes >> j & 1;
        if (folded) mask |= align[j];
        if (folded && n->rank != src->rank) continue;
        if (!folded) step_along(l->u, align[j], kept.step[to]);
        to++;
    }
    int at = lower_source(l, i, 0, &c);
    if (at == FAILED) return FAILED;
    if (!mask) return cast_of(l, i, i, &kept, (tn_dtype)n->dtype, at);
    at = cast_of(l, -1, i, NULL, (tn_dtype)n->dtype, at);
    if (at == FAILED || (l->u->value[at].axes & mask) == 0) return FAILED;
    x.code  = TNI_I_REDUCE;
    x.op    = (uint8_t)n->op;
    x.dtype = n->dtype;
    x.a     = (int16_t)at;
    at      = add_value(l, i, i, &kept, x);
    if (at < 0) return FAILED;
    l->u->value[at].mask = mask;
    l->u->value[at].axes &= ~mask;
    return at;
}

// Makes value `at` the value of seed i, so that it can be found and stored. A value that was just
// computed for it (from number `from` on) simply becomes its own; one that is another item's, or a
// load, is copied by a cast that changes nothing.
static int name_value(lowering *l, int at, size_t from, int32_t i, const tni_coords *c)
{
    tni_unit *u = l->u;
    if (at < 0 || u->value[at].item == i) return at;
    tni_lowered *v        = &u->value[at];
    bool         computed = v->ins.code == TNI_I_MAP || v->ins.code == TNI_I_CAST;
    if (computed && (size_t)at >= from && v->ins.dtype == item_node(l, i)->dtype) {
        v->item   = i;
        v->origin = i;
        v->guard  = TNI_NO_VALUE;
        v->coords = *c;
        return at;
    }
    tni_ins x = blank;
    x.code    = TNI_I_CAST;
    x.dtype   = item_node(l, i)->dtype;
    x.a       = (int16_t)at;
    return add_value(l, i, i, c, x);
}

// Returns the domain axes along which the element at these coordinates changes.
static uint32_t moved_axes(const tni_unit *u, const tni_coords *c)
{
    uint32_t axes = 0;
    for (int j = 0; j < TN_MAX_RANK; j++)
        for (int k = 0; k < u->naxes; k++) axes |= (uint32_t)(c->step[j][k] != 0) << k;
    return axes;
}

// Lowers seed i into u at coordinates given by align. On success the seed's value is the last one
// that matters, values left dead by simplification are removed, and the seed is on the unit's list.
// On failure all lists are cut back to where they were, and dependencies are removed. The caller
// still has to check limits and reduced axes.
bool tni_lower_seed(tni_fusion *f, tni_unit *u, int32_t i, const uint32_t *align)
{
    lowering        l      = { .f = f, .u = u, .guard = TNI_NO_VALUE };
    const tni_node *n      = f->g->item[i].n;
    size_t          values = u->values, sources = u->sources, numbers = u->numbers, deps = u->deps;
    int             at;
    for (int k = 0; k < u->naxes; k++) l.high[k] = u->size[k] - 1;
    if (folds_in_loop(f, i)) {
        at = lower_reduce(&l, i, align);
        if (at >= 0 && u->value[at].item != i) {
            uint32_t   to[TN_MAX_RANK];
            tni_coords c;
            int        j = 0;
            for (int k = 0; k < n->src[0]->rank; k++)
                if (n->rank == n->src[0]->rank || !(n->attr.reduce.axes >> k & 1))
                    to[j++] = align[k];
            c  = coords_on(u, n, to);
            at = name_value(&l, at, values, i, &c);
        }
    } else {
        tni_coords c = coords_on(u, n, align);
        at           = name_value(&l, lower_op(&l, i, &c), values, i, &c);
    }
    if (at >= 0 && l.drops_reads) at = tni_drop_dead_values(u, values, sources, numbers, at);
    if (at >= 0 && grow_list(&l, (void **)&u->seed, &u->seeds_cap, u->seeds + 1, sizeof *u->seed)) {
        u->seed[u->seeds++] = i;
        u->value[at].seed   = true;
        u->value[at].moves  = moved_axes(u, &u->value[at].coords);
        return true;
    }
    u->values  = values;
    u->sources = sources;
    u->numbers = numbers;
    tni_unit_drop_deps(f, u, deps);
    return false;
}
