// Values of a unit that nobody reads, which rules leave behind: they are taken out, and what stays
// moves up and is numbered anew.
#include "plan/simplify.h"

#include <string.h>

// Which of a unit's values, accesses and numbers are read, and the numbers they get. The latter are
// set as far as the unit goes.
typedef struct {
    bool    value[TNI_MAX_INS], source[TNI_MAX_ACCESSES], number[TNI_MAX_NUMBERS];
    int16_t to_value[TNI_MAX_INS], to_source[TNI_MAX_ACCESSES], to_number[TNI_MAX_NUMBERS];
} census;

static void begin(census *c)
{
    memset(c->value, 0, sizeof c->value);
    memset(c->source, 0, sizeof c->source);
    memset(c->number, 0, sizeof c->number);
}

static void note_read(bool *read, int at)
{
    if (at >= 0) read[at] = true;
}

// A random op has two numbers, one after the other. An item's value is found by its guard, too; and by
// its index, which is a CHECK.
static void find_read(const tni_unit *u, size_t values, census *c)
{
    for (size_t k = u->values; k-- > values;) {
        const tni_ins *x = &u->value[k].ins;
        c->value[k] |= x->code == TNI_I_CHECK;
        if (!c->value[k]) continue;
        note_read(c->value, x->a);
        note_read(c->value, x->b);
        note_read(c->value, x->c);
        note_read(c->source, x->access);
        note_read(c->number, x->number);
        if (x->code == TNI_I_RANDOM) note_read(c->number, x->number + 1);
        if (u->value[k].item >= 0) note_read(c->value, u->value[k].guard);
    }
}

// Numbers what is read, all before `from` included; how many that are.
static size_t count_up(const bool *read, size_t from, size_t count, int16_t *to)
{
    size_t n = 0;
    for (size_t k = 0; k < count; k++) {
        to[k] = (int16_t)n;
        n += k < from || read[k];
    }
    return n;
}

static int16_t moved(const int16_t *to, int at)
{
    return (int16_t)(at < 0 ? at : to[at]);
}

static void move_value(tni_unit *u, size_t k, const census *c)
{
    tni_lowered *v = &u->value[c->to_value[k]];
    memmove(v, &u->value[k], sizeof *v);
    v->ins.a      = moved(c->to_value, v->ins.a);
    v->ins.b      = moved(c->to_value, v->ins.b);
    v->ins.c      = moved(c->to_value, v->ins.c);
    v->ins.access = moved(c->to_source, v->ins.access);
    v->ins.number = moved(c->to_number, v->ins.number);
    v->guard      = moved(c->to_value, v->guard);
    if (v->item >= 0) v->coords.via = moved(c->to_value, v->coords.via);
}

// Takes out what is not read, from these numbers on.
static void drop(tni_unit *u, size_t values, size_t sources, size_t numbers, census *c)
{
    find_read(u, values, c);
    size_t left = count_up(c->value, values, u->values, c->to_value);
    if (left == u->values) return;
    size_t places = count_up(c->source, sources, u->sources, c->to_source);
    size_t bound  = count_up(c->number, numbers, u->numbers, c->to_number);
    for (size_t k = values; k < u->values; k++)
        if (c->value[k]) move_value(u, k, c);
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
    census c;
    begin(&c);
    c.value[root] = true;
    drop(u, values, sources, numbers, &c);
    return c.to_value[root];
}

// Roles were found with the reductions there, so those stay. Values that are no seeds have readers.
void tni_drop_unstored_seeds(const tni_fusion *f, tni_unit *u)
{
    census c;
    size_t stored = 0;
    while (stored < u->seeds && f->decision[u->seed[stored]].stored) stored++;
    if (stored == u->seeds) return;
    begin(&c);
    for (size_t k = 0; k < u->values; k++) {
        const tni_lowered *v = &u->value[k];
        c.value[k] = v->ins.code == TNI_I_REDUCE || (v->seed && f->decision[v->item].stored);
    }
    drop(u, 0, 0, 0, &c);
}
