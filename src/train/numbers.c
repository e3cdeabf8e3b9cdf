// An optimizer's numbers, taken and put back by one table.
//
// The table's order is the file's order. A new setting goes to the end of its kind: an older file
// has fewer, and leaves the optimizer's own. A new count changes the format's version, since the
// last one of a file is the fingerprint.
#include "train/numbers.h"

#include "train/checksum.h"

#include <string.h>

typedef enum { DOUBLE, WHOLE, INT, BOOL } number_kind;

// Every number, in the order of the file: those of the first kind are settings, the others counts.
#define NUMBER(member, kind)             \
    {                                    \
        offsetof(tn_optim, member), kind \
    }
static const struct {
    size_t      at;
    number_kind kind;
} numbers[] = {
    NUMBER(lr, DOUBLE),
    NUMBER(beta1, DOUBLE),
    NUMBER(beta2, DOUBLE),
    NUMBER(alpha, DOUBLE),
    NUMBER(eps, DOUBLE),
    NUMBER(momentum, DOUBLE),
    NUMBER(dampening, DOUBLE),
    NUMBER(weight_decay, DOUBLE),
    NUMBER(clip_norm, DOUBLE),
    NUMBER(clip_value, DOUBLE),
    NUMBER(schedule.floor, DOUBLE),
    NUMBER(schedule.factor, DOUBLE),
    NUMBER(decay, DOUBLE),
    NUMBER(first, DOUBLE),
    NUMBER(ema, DOUBLE),
    NUMBER(clip_each, DOUBLE),
    NUMBER(updates, WHOLE),
    NUMBER(micro, WHOLE),
    NUMBER(accumulate, WHOLE),
    NUMBER(nesterov, BOOL),
    NUMBER(centered, BOOL),
    NUMBER(schedule.kind, INT),
    NUMBER(schedule.warmup, WHOLE),
    NUMBER(schedule.total, WHOLE),
    NUMBER(schedule.every, WHOLE),
};
enum { NUMBERS = sizeof numbers / sizeof *numbers, FINGERPRINT = TNI_COUNTS - 1 };
_Static_assert(NUMBERS == TNI_SETTINGS + FINGERPRINT, "the file has a place for each");

// Identifies the optimizer's parameters: equal for equal names and shapes in the same order.
static int64_t fingerprint(const tn_optim *o)
{
    uint64_t h = o->slots;
    for (size_t i = 0; i < o->slots; i++) {
        tni_view v = tni_layout(o->slot[i].p);
        h          = tni_sum_join(h, tni_sum_bytes(o->slot[i].name, strlen(o->slot[i].name)));
        h          = tni_sum_join(h, tni_sum_bytes(v.size, (size_t)v.rank * sizeof *v.size));
    }
    return (int64_t)h;
}

// Copies an optimizer's numbers into the two arrays of the file, each in the order of the table.
static void take_table(const tn_optim *o, double *setting, int64_t *count)
{
    for (int i = 0; i < NUMBERS; i++) {
        const void *at = (const char *)o + numbers[i].at;
        switch (numbers[i].kind) {
        case DOUBLE: *setting++ = *(const double *)at; break;
        case WHOLE: *count++ = *(const int64_t *)at; break;
        case INT: *count++ = *(const int *)at; break;
        case BOOL: *count++ = *(const bool *)at; break;
        }
    }
}

// The reverse of take_table. A number that its member's type cannot hold is converted and so
// changed; tni_numbers_wrong finds such numbers first.
static void put_table(tn_optim *o, const double *setting, const int64_t *count)
{
    for (int i = 0; i < NUMBERS; i++) {
        void *at = (char *)o + numbers[i].at;
        switch (numbers[i].kind) {
        case DOUBLE: *(double *)at = *setting++; break;
        case WHOLE: *(int64_t *)at = *count++; break;
        case INT: *(int *)at = (int)*count++; break;
        case BOOL: *(bool *)at = *count++ != 0; break;
        }
    }
}

void tni_numbers_take(const tn_optim *o, tni_optim_numbers *n)
{
    take_table(o, n->setting, n->count);
    n->count[FINGERPRINT] = fingerprint(o);
    for (size_t i = 0; i < o->slots; i++) {
        n->group[2 * i]     = o->slot[i].lr_scale;
        n->group[2 * i + 1] = o->slot[i].weight_decay;
        n->updates[i]       = o->slot[i].updates;
    }
}

// Sets the numbers. There is no earlier update to roll back to: since is 0.
void tni_numbers_put(tn_optim *o, const tni_optim_numbers *n)
{
    put_table(o, n->setting, n->count);
    for (size_t i = 0; i < o->slots; i++) {
        o->slot[i].lr_scale     = n->group[2 * i];
        o->slot[i].weight_decay = n->group[2 * i + 1];
        o->slot[i].updates = o->slot[i].before = n->updates[i];
        o->slot[i].since                       = 0;
    }
}

bool tni_numbers_same(const tn_optim *o, const tni_optim_numbers *n)
{
    return n->count[FINGERPRINT] == fingerprint(o);
}

// Returns whether counts from a file could be those of an optimizer.
static bool counts_ok(const tn_optim *o)
{
    return o->updates >= 0 && o->accumulate >= 1 && o->micro >= 0 && o->micro < o->accumulate;
}

// Tries the numbers on a copy of the optimizer and applies the same checks as when an optimizer is
// made, so that a file cannot set what a program could not.
tni_text tni_numbers_wrong(const tn_optim *o, const tni_optim_numbers *n)
{
    double   setting[TNI_SETTINGS];
    int64_t  count[FINGERPRINT];
    tn_optim copy = *o;
    put_table(&copy, n->setting, n->count);
    take_table(&copy, setting, count);
    // A number that a narrower type cannot hold came back as another one.
    bool held = !memcmp(setting, n->setting, sizeof setting) &&
                !memcmp(count, n->count, sizeof count);
    tni_text wrong = tni_optim_wrong(&copy);
    if (*wrong.s) return wrong;
    bool ok = held && counts_ok(&copy);
    for (size_t i = 0; ok && i < o->slots; i++)
        ok = tni_not_negative(n->group[2 * i]) && tni_not_negative(n->group[2 * i + 1]) &&
             n->updates[i] >= 0;
    return ok ? (tni_text){ "" } : (tni_text){ "a count or a parameter's number is none" };
}
