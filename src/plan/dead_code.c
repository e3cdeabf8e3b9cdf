// Dead code: removes values of a unit that are no longer read, which simplification leaves behind,
// and moves the rest up under new numbers.
#include "plan/simplify.h"

#include <string.h>

// Which values, accesses and numbers of a unit are read, and the new number of each. Arrays are
// valid up to the counts of the unit.
typedef struct {
    bool    value[TNI_MAX_INS], source[TNI_MAX_ACCESSES], number[TNI_MAX_NUMBERS];
    int16_t to_value[TNI_MAX_INS], to_source[TNI_MAX_ACCESSES], to_number[TNI_MAX_NUMBERS];
} liveness;

static void begin_liveness(liveness *c)
{
    memset(c->value, 0, sizeof c->value);
    memset(c->source, 0, sizeof c->source);
    memset(c->number, 0, sizeof c->number);
}

static void mark_read(bool *read, int at)
{
    if (at >= 0) read[at] = true;
}

// Marks everything that a read value reads, from the last value down to number `values`. A CHECK
// always counts as read: an index out of range must be reported even if the value it selects is not
// needed. The guard of an item's value counts as read because lowering finds the value again by it.
// A random op has two numbers, one after the other.
static void mark_reads(const tni_unit *u, size_t values, liveness *c)
{
    for (size_t k = u->values; k-- > values;) {
        const tni_ins *x = &u->value[k].ins;
        c->value[k] |= x->code == TNI_I_CHECK;
        if (!c->value[k]) continue;
        mark_read(c->value, x->a);
        mark_read(c->value, x->b);
        mark_read(c->value, x->c);
        mark_read(c->source, x->access);
        mark_read(c->number, x->number);
        if (x->code == TNI_I_RANDOM) mark_read(c->number, x->number + 1);
        if (u->value[k].item >= 0) mark_read(c->value, u->value[k].guard);
    }
}

// Gives new numbers to the entries that are read, and to all before `from`; returns how many there
// are.
static size_t number_live(const bool *read, size_t from, size_t count, int16_t *to)
{
    size_t n = 0;
    for (size_t k = 0; k < count; k++) {
        to[k] = (int16_t)n;
        n += k < from || read[k];
    }
    return n;
}

static int16_t renumbered(const int16_t *to, int at)
{
    return (int16_t)(at < 0 ? at : to[at]);
}

// Moves value k to its new place and renumbers its operands. Places only move down, and in order,
// so nothing is overwritten before it has moved.
static void move_live_value(tni_unit *u, size_t k, const liveness *c)
{
    tni_lowered *v = &u->value[c->to_value[k]];
    memmove(v, &u->value[k], sizeof *v);
    v->ins.a      = renumbered(c->to_value, v->ins.a);
    v->ins.b      = renumbered(c->to_value, v->ins.b);
    v->ins.c      = renumbered(c->to_value, v->ins.c);
    v->ins.access = renumbered(c->to_source, v->ins.access);
    v->ins.number = renumbered(c->to_number, v->ins.number);
    v->guard      = renumbered(c->to_value, v->guard);
    if (v->item >= 0) v->coords.via = renumbered(c->to_value, v->coords.via);
}

// Removes unread values from number `values` on, with accesses from `sources` and numbers from
// `numbers` on. All before those were there before the current seed and stay, so that a failed try
// can cut the lists back.
static void drop_dead(tni_unit *u, size_t values, size_t sources, size_t numbers, liveness *c)
{
    mark_reads(u, values, c);
    size_t left = number_live(c->value, values, u->values, c->to_value);
    if (left == u->values) return;
    size_t places = number_live(c->source, sources, u->sources, c->to_source);
    size_t bound  = number_live(c->number, numbers, u->numbers, c->to_number);
    for (size_t k = values; k < u->values; k++)
        if (c->value[k]) move_live_value(u, k, c);
    for (size_t k = sources; k < u->sources; k++)
        if (c->source[k]) memmove(&u->source[c->to_source[k]], &u->source[k], sizeof *u->source);
    for (size_t k = numbers; k < u->numbers; k++)
        if (c->number[k]) u->number[c->to_number[k]] = u->number[k];
    u->values  = left;
    u->sources = places;
    u->numbers = bound;
}

int tni_drop_dead_values(tni_unit *u, size_t values, size_t sources, size_t numbers, int root)
{
    liveness c;
    begin_liveness(&c);
    c.value[root] = true;
    drop_dead(u, values, sources, numbers, &c);
    return c.to_value[root];
}

// Reduced axes were chosen with all reductions there, so those stay. Values that are no seeds have
// readers.
void tni_drop_unstored_seeds(const tni_fusion *f, tni_unit *u)
{
    liveness c;
    size_t   stored = 0;
    while (stored < u->seeds && f->decision[u->seed[stored]].in_memory) stored++;
    if (stored == u->seeds) return;
    begin_liveness(&c);
    for (size_t k = 0; k < u->values; k++) {
        const tni_lowered *v = &u->value[k];
        c.value[k] = v->ins.code == TNI_I_REDUCE || (v->seed && f->decision[v->item].in_memory);
    }
    drop_dead(u, 0, 0, 0, &c);
}
