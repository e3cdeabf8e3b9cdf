// Making optimizers: the parameters of a network, settings, groups, counts.
#include "optim/optim.h"
#include "ops/compose.h"

#include <stdlib.h>
#include <string.h>

// ---- numbers -----------------------------------------------------------------------------------

double tni_decimal(float v)
{
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) return strtod(text, NULL);
    }
    return (double)v;
}

double tni_option(float v, double fallback)
{
    return tni_or_default(tni_decimal(v), fallback);
}

// ---- settings ----------------------------------------------------------------------------------

static bool numbers_ok(tn_ctx *cx, const char *op, const tn_optim *o)
{
    const struct {
        const char *name;
        double      v, end;
    } number[] = {
        { "lr", o->lr, INFINITY },
        { "beta1", o->beta1, 1 },
        { "beta2", o->beta2, 1 },
        { "alpha", o->alpha, 1 },
        { "eps", o->eps, INFINITY },
        { "momentum", o->momentum, INFINITY },
        { "dampening", o->dampening, INFINITY },
        { "weight_decay", o->weight_decay, INFINITY },
        { "clip_norm", o->clip_norm, INFINITY },
        { "clip_value", o->clip_value, INFINITY },
        { "accumulate", (double)o->accumulate, INFINITY },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        if (number[i].v >= 0 && number[i].v < number[i].end) continue;
        tni_fail(cx, TN_EARG, "%s: %s %g is not %s", op, number[i].name, number[i].v,
                 number[i].end == 1 ? "in 0 .. 1, without 1" : "a number from 0 on");
        return false;
    }
    return true;
}

static bool settings_ok(tn_ctx *cx, const char *op, const tn_optim *o)
{
    const char *wrong = tni_schedule_wrong(&o->schedule);
    bool        plain = !o->nesterov || (o->momentum > 0 && o->dampening == 0);
    if (!numbers_ok(cx, op, o)) return false;
    if (wrong) tni_fail(cx, TN_EARG, "%s: schedule: %s", op, wrong);
    else if (!plain) tni_fail(cx, TN_EARG, "%s: nesterov needs a momentum and no dampening", op);
    return !wrong && plain;
}

// ---- slots -------------------------------------------------------------------------------------

static bool is_leaf(const tn_tensor *t)
{
    return t->leaf && t->leaf->handle == t;
}

tn_tensor *tni_slot_grad(const tni_slot *s)
{
    // Asked first: it forgets a gradient whose step failed.
    tn_tensor *g = is_leaf(s->p) && s->p->leaf->grad ? tn_grad_of(s->p) : NULL;
    return g && tn_has_grad(s->p) ? g : NULL;
}

void tni_slot_reset(tni_slot *s)
{
    for (int k = 0; k < TNI_STATES; k++) {
        if (s->state[k]) tni_tensor_disown(s->state[k]);
        s->state[k] = NULL;
    }
    s->updates = 0;
    s->since   = 0;
}

static bool state_lost(const tni_slot *s)
{
    for (int k = 0; k < TNI_STATES; k++)
        if (s->state[k] && s->state[k]->store->node->state == TNI_GONE) return true;
    return false;
}

// A step failed: updates whose node did not stay are counted back.
static void rolled_back(tni_thing *t)
{
    tn_optim *o    = (tn_optim *)t;
    int64_t   most = 0;
    for (size_t i = 0; i < o->slots; i++) {
        tni_slot       *s = &o->slot[i];
        const tni_node *n = s->p->store->node;
        if (s->since && (n->id < s->since || n->state == TNI_GONE)) {
            if (s->updates - s->before > most) most = s->updates - s->before;
            s->updates = s->before;
        }
        s->since = 0;
        if (!s->updates || state_lost(s)) tni_slot_reset(s);
    }
    o->updates -= most;
}

// Every parameter of the list that is trained, once. Their names move to the slots.
static bool take_parameters(tn_optim *o, tni_entries *list)
{
    tni_heap *h = &o->thing.cx->heap;
    size_t    n = list->count ? list->count : 1;
    o->slot     = tni_zalloc(h, n * sizeof *o->slot);
    o->order    = tni_alloc(h, n * sizeof *o->order);
    o->batch    = tni_alloc(h, n * sizeof *o->batch);
    o->list     = tni_alloc(h, n * sizeof *o->list);
    if (!o->slot || !o->order || !o->batch || !o->list) {
        tni_fail_memory(o->thing.cx, o->rule->name);
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        tni_entry *e = &list->entry[i];
        if (!e->is_param || e->first != (int)i || !is_leaf(e->t)) continue;
        o->slot[o->slots++] = (tni_slot){
            .name = e->name, .p = e->t, .lr_scale = 1, .weight_decay = o->weight_decay
        };
        tni_tensor_own(e->t);
        e->name = NULL;
    }
    return true;
}

// Parameters that were never computed are computed now: a first step that fails must have values to
// return to.
static bool compute_parameters(tn_optim *o)
{
    for (size_t i = 0; i < o->slots; i++) {
        const tni_store *s = o->slot[i].p->store;
        if (s->node->state == TNI_DONE || s->done) continue;
        if (!tni_value(o->slot[i].p, o->rule->name)) return false;
    }
    return true;
}

// ---- making and freeing ------------------------------------------------------------------------

static void free_optim(tni_thing *t)
{
    tn_optim *o = (tn_optim *)t;
    tni_heap *h = &t->cx->heap;
    for (size_t i = 0; i < o->slots; i++) {
        tni_slot_reset(&o->slot[i]);
        tni_tensor_disown(o->slot[i].p);
        tni_free(h, o->slot[i].name);
    }
    tni_free(h, o->slot);
    tni_free(h, o->order);
    tni_free(h, o->batch);
    tni_free(h, o->list);
    tni_free(h, o);
}

static bool fill(tn_optim *o, tn_layer *net)
{
    tni_entries list;
    if (!tni_layer_list(net, o->rule->name, &list)) return false;
    bool ok = take_parameters(o, &list);
    tni_entries_free(&list);
    if (!ok) return false;
    if (o->slots) return compute_parameters(o);
    tni_fail(o->thing.cx, TN_EARG, "%s: the network has no parameters to train", o->rule->name);
    return false;
}

static tn_optim *make(const char *op, tn_layer *net, const tn_optim *settings)
{
    tn_ctx *cx = tni_thing_ok(op, net, TNI_LAYER);
    if (!cx || !settings_ok(cx, op, settings)) return NULL;
    tn_optim *o = tni_alloc(&cx->heap, sizeof *o);
    if (!o) return tni_fail_memory(cx, op);
    *o = *settings;
    if (!o->accumulate) o->accumulate = 1;
    tni_thing_add(cx, &o->thing, TNI_OPTIM, free_optim);
    o->thing.rolled_back = rolled_back;
    if (fill(o, net)) return o;
    tni_thing_remove(&o->thing);
    free_optim(&o->thing);
    return NULL;
}

// In a frame, so that a handler that jumps finds nothing half way.
tn_optim *tni_optim_make(const char *op, tn_layer *net, const tn_optim *settings)
{
    tni_enter(tni_self.site);
    tn_optim *o = make(op, net, settings);
    tni_leave(false, NULL);
    return o;
}

void tn_optim_free(tn_optim *o)
{
    if (!o || !tni_thing_ok("optim_free", o, TNI_OPTIM)) return;
    tni_thing_remove(&o->thing);
    free_optim(&o->thing);
}

// ---- settings that change ----------------------------------------------------------------------

tn_status tn_optim_group(tn_optim *o, const char *names, float lr_scale, float weight_decay)
{
    tn_ctx *cx = tni_thing_ok("optim_group", o, TNI_OPTIM);
    if (!cx) return tni_failed();
    if (!names) return tni_fail_status(cx, TN_EARG, "optim_group: the pattern is NULL");
    if (!(lr_scale >= 0 && lr_scale < INFINITY && weight_decay >= 0 && weight_decay < INFINITY))
        return tni_fail_status(cx, TN_EARG,
                               "optim_group: lr_scale %g or weight_decay %g is not a number from 0 "
                               "on",
                               (double)lr_scale, (double)weight_decay);
    bool any = false;
    for (size_t i = 0; i < o->slots; i++) {
        if (!tni_glob(names, o->slot[i].name)) continue;
        any                     = true;
        o->slot[i].lr_scale     = tni_decimal(lr_scale);
        o->slot[i].weight_decay = tni_option(weight_decay, 0);
    }
    if (any) return TN_OK;
    return tni_fail_status(cx, TN_EARG, "optim_group: no parameter fits \"%.100s\"", names);
}

double tn_optim_lr(const tn_optim *o)
{
    return o ? o->lr * tni_schedule_factor(&o->schedule, o->updates) : 0;
}

void tn_optim_set_lr(tn_optim *o, double lr)
{
    tn_ctx *cx = tni_thing_ok("optim_set_lr", o, TNI_OPTIM);
    if (!cx) return;
    if (lr >= 0 && lr < INFINITY) o->lr = lr;
    else tni_fail(cx, TN_EARG, "optim_set_lr: lr %g is not a number from 0 on", lr);
}

tn_status tn_optim_set_schedule(tn_optim *o, tn_schedule s)
{
    tn_ctx *cx = tni_thing_ok("optim_set_schedule", o, TNI_OPTIM);
    if (!cx) return tni_failed();
    const char *wrong = tni_schedule_wrong(&s);
    if (wrong) return tni_fail_status(cx, TN_EARG, "optim_set_schedule: %s", wrong);
    o->schedule = s;
    return TN_OK;
}

int64_t tn_optim_updates(const tn_optim *o)
{
    return o ? o->updates : 0;
}
