// Making optimizers: the parameters of a network, settings, groups, counts.
//
// All optimizers share one struct and one way through a step; a rule (adam.c, muon.c, sgd.c ...)
// only says how a new value and new states are computed from a parameter, its gradient and its
// states, in tensor math. To add one, write such a file and declare its constructor in training.h.
#include "optim/update.h"
#include "ops/composite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- numbers -----------------------------------------------------------------------------------

// Finds the fewest digits that give the float back: 0.9f means 0.9 to its user, not 0.89999998.
double tni_decimal(double v)
{
    char  text[32];
    float f = (float)v;
    for (int digits = 1; digits < 9 && (double)f == v; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtof(text, NULL) == f) return strtod(text, NULL);
    }
    return v;
}

double tni_option(double v, double fallback)
{
    return tni_or_default(tni_decimal(v), fallback);
}

// ---- settings ----------------------------------------------------------------------------------

// One table for all optimizers: a rule leaves the numbers that it does not use at 0, which is in
// every range.
tni_text tni_optim_wrong(const tn_optim *o)
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
        { "the decay", o->decay, INFINITY },
        { "initial_accumulator_value", o->first, INFINITY },
        { "ema", o->ema, 1 },
        { "weight_decay", o->weight_decay, INFINITY },
        { "clip_norm", o->clip_norm, INFINITY },
        { "clip_value", o->clip_value, INFINITY },
        { "clip_each", o->clip_each, INFINITY },
        { "accumulate", (double)o->accumulate, INFINITY },
        { "loss_scale", o->loss_scale, INFINITY },
        { "scale_growth", o->scale_growth, INFINITY },
        { "scale_backoff", o->scale_backoff, INFINITY },
        { "scale_interval", (double)o->scale_interval, INFINITY },
    };
    tni_text    wrong    = { "" };
    const char *schedule = tni_schedule_wrong(&o->schedule);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        if (number[i].v >= 0 && number[i].v < number[i].end) continue;
        tni_text_add(&wrong, "%s %g is not %s", number[i].name, number[i].v,
                     number[i].end == 1 ? "in 0 .. 1, without 1" : "a number >= 0");
        return wrong;
    }
    if (schedule) tni_text_add(&wrong, "schedule: %s", schedule);
    else if (o->loss_scale > 0 && !(o->scale_growth >= 1 && o->scale_backoff <= 1))
        tni_text_add(&wrong, "scale_growth %g is below 1 or scale_backoff %g above",
                     o->scale_growth, o->scale_backoff);
    else if (o->nesterov && !(o->momentum > 0 && o->dampening == 0))
        tni_text_add(&wrong, "nesterov needs a momentum and no dampening");
    return wrong;
}

// ---- slots -------------------------------------------------------------------------------------

tn_tensor *tni_trained_grad(const tni_trained *s)
{
    // tn_grad_of is asked first: it forgets a gradient whose step failed, which tn_has_grad then
    // sees.
    tn_tensor *g = tni_is_leaf(s->p) && s->p->leaf->grad ? tn_grad_of(s->p) : NULL;
    return g && tn_has_grad(s->p) ? g : NULL;
}

const char *tni_state_name(const tn_optim *o, int k)
{
    return k == TNI_MASTER ? "master" : k == TNI_EMA ? "ema" : o->rule->state[k];
}

tn_dtype tni_state_dtype(const tn_tensor *p)
{
    tn_dtype dt = tni_dtype(p);
    return tni_is_rounded(dt) ? TN_F32 : dt;
}

bool tni_has_state(const tn_optim *o, const tni_trained *s, int k)
{
    if (k == TNI_MASTER) return !o->no_master && tni_state_dtype(s->p) != tni_dtype(s->p);
    if (k == TNI_EMA) return o->ema > 0;
    return o->rule->state[k] && (!o->rule->has || o->rule->has(o, s, k));
}

// Puts a slot back to what it was before its first update.
static void reset_slot(tn_optim *o, tni_trained *s)
{
    for (int k = 0; k < TNI_STATES; k++) tni_state_set(o, s, k, NULL);
    s->updates = 0;
    s->since   = 0;
}

// Returns whether a state's value went with a step that failed.
static bool state_lost(const tni_trained *s)
{
    for (int k = 0; k < TNI_STATES; k++)
        if (s->state[k] && s->state[k]->store->node->state == TNI_GONE) return true;
    return false;
}

// Called after a failed step was rolled back: subtracts the updates whose node was lost. A slot
// whose state went with them starts afresh, since half of a state is worse than none.
static void rolled_back(tni_owned *t)
{
    tn_optim *o    = (tn_optim *)t;
    int64_t   most = 0;
    for (size_t i = 0; i < o->slots; i++) {
        tni_trained    *s = &o->slot[i];
        const tni_node *n = s->p->store->node;
        if (s->since && (n->id < s->since || n->state == TNI_GONE)) {
            if (s->updates - s->before > most) most = s->updates - s->before;
            s->updates = s->before;
        }
        s->since = 0;
        if (!s->updates || state_lost(s)) reset_slot(o, s);
    }
    o->updates -= most;
}

// Orders handles by address, for bsearch.
static int by_address(const void *a, const void *b)
{
    tn_tensor *const *p = a, *const *q = b;
    return ((uintptr_t)*p > (uintptr_t)*q) - ((uintptr_t)*p < (uintptr_t)*q);
}

// Asked for each leaf of a backward walk, hence by binary search.
bool tni_optim_trains(const tn_optim *o, const tn_tensor *t)
{
    return bsearch(&t, o->sorted, o->slots, sizeof *o->sorted, by_address) != NULL;
}

// Makes a slot for each trained parameter of the list, once even if it is tied. The names move from
// the list to the slots.
static bool take_parameters(tn_optim *o, tni_entries *list)
{
    tni_heap *h = &o->owned.cx->heap;
    size_t    n = list->count ? list->count : 1;
    o->slot     = tni_zalloc(h, n * sizeof *o->slot);
    o->order    = tni_alloc(h, n * sizeof *o->order);
    o->flat     = tni_alloc(h, n * sizeof *o->flat);
    o->spare    = tni_alloc(h, n * sizeof *o->spare);
    o->list     = tni_alloc(h, n * sizeof *o->list);
    o->node     = tni_alloc(h, n * sizeof *o->node);
    o->sorted   = tni_alloc(h, n * sizeof *o->sorted);
    if (!o->slot || !o->order || !o->flat || !o->spare || !o->list || !o->node || !o->sorted)
        return tni_no_memory(o->owned.cx, o->rule->name);
    for (size_t i = 0; i < list->count; i++) {
        tni_entry *e = &list->entry[i];
        if (!e->is_param || e->first != (int)i || !tni_is_leaf(e->t)) continue;
        o->slot[o->slots++] = (tni_trained){
            .name = e->name, .p = e->t, .lr_scale = 1, .weight_decay = o->weight_decay
        };
        tni_tensor_own(e->t);
        e->name = NULL;
    }
    for (size_t i = 0; i < o->slots; i++) o->sorted[i] = o->slot[i].p;
    qsort(o->sorted, o->slots, sizeof *o->sorted, by_address);
    return true;
}

// Computes parameters and buffers that are still pending: a first step that fails needs values to
// return to, and the first step then reads its parameters as every later one does.
static bool compute_values(const tn_optim *o, const tni_entries *list)
{
    for (size_t i = 0; i < list->count; i++) {
        tn_tensor *t = list->entry[i].t;
        if (t->store->node->state != TNI_DONE && !tni_value(t, o->rule->name)) return false;
    }
    return true;
}

// ---- making and freeing ------------------------------------------------------------------------

// Frees the optimizer and its hold on the parameters, which may live on in their network.
static void free_optim(tni_owned *t)
{
    tn_optim *o = (tn_optim *)t;
    tni_heap *h = &t->cx->heap;
    for (size_t i = 0; i < o->slots; i++) {
        reset_slot(o, &o->slot[i]);
        tni_tensor_disown(o->slot[i].p);
        tni_free(h, o->slot[i].name);
    }
    tni_scaling_close(o);
    if (o->norm) tni_tensor_disown(o->norm);
    tni_lbfgs_free(o);
    tni_free(h, o->slot);
    tni_free(h, o->order);
    tni_free(h, o->flat);
    tni_free(h, o->spare);
    tni_free(h, o->list);
    tni_free(h, o->node);
    tni_free(h, o->sorted);
    tni_free(h, o);
}

// Takes the network's parameters and places them in flat blocks. False, reported, on failure.
static bool fill_optim(tn_optim *o, tn_layer *net)
{
    tni_entries list;
    if (!tni_layer_list(net, o->rule->name, &list)) return false;
    bool ok = take_parameters(o, &list) && (!o->slots || compute_values(o, &list)) &&
              tni_scaling_open(o);
    tni_entries_free(&list);
    if (!ok) return false;
    if (o->slots) return tni_flats_place(o);
    return tni_refuse(o->owned.cx, TN_EARG, "%s: the network has no parameters to train",
                      o->rule->name);
}

// The optimizer is registered before it is filled, so that a failure while filling is rolled back
// like any other.
tn_optim *tni_optim_make(const char *op, tn_layer *net, const tn_optim *settings)
{
    tn_ctx *cx = tni_owned_ok(op, net, TNI_LAYER);
    if (!cx) return NULL;
    tni_text wrong = tni_optim_wrong(settings);
    if (*wrong.s) return tni_fail(cx, TN_EARG, "%s: %s", op, wrong.s);
    tn_optim *o = tni_alloc(&cx->heap, sizeof *o);
    if (!o) return tni_fail_memory(cx, op);
    *o = *settings;
    if (!o->accumulate) o->accumulate = 1;
    tni_owned_add(cx, &o->owned, TNI_OPTIM, free_optim);
    o->owned.rolled_back = rolled_back;
    if (fill_optim(o, net)) return o;
    tni_owned_remove(&o->owned);
    free_optim(&o->owned);
    return NULL;
}

void tn_optim_free(tn_optim *o)
{
    if (!o || !tni_owned_ok("optim_free", o, TNI_OPTIM)) return;
    tni_owned_remove(&o->owned);
    free_optim(&o->owned);
}

// ---- settings that change ----------------------------------------------------------------------

// Parameters of a group have settings of their own, so blocks are divided anew.
tn_status tn_optim_add_group(tn_optim *o, const char *names, double lr_scale, double weight_decay)
{
    tn_ctx *cx = tni_owned_ok("optim_add_group", o, TNI_OPTIM);
    if (!cx) return tni_failed();
    if (!names) return tni_fail_status(cx, TN_EARG, "optim_add_group: the pattern is NULL");
    if (!tni_not_negative(lr_scale) || !tni_not_negative(weight_decay))
        return tni_fail_status(cx, TN_EARG,
                               "optim_add_group: lr_scale %g or weight_decay %g is not a number "
                               ">= 0",
                               lr_scale, weight_decay);
    bool any = false;
    for (size_t i = 0; i < o->slots; i++) {
        if (!tni_glob(names, o->slot[i].name)) continue;
        any                     = true;
        o->slot[i].lr_scale     = tni_decimal(lr_scale);
        o->slot[i].weight_decay = tni_option(weight_decay, 0);
    }
    if (any) return tni_flats_place(o) ? TN_OK : tni_failed();
    return tni_fail_status(cx, TN_EARG, "optim_add_group: no parameter fits \"%.100s\"", names);
}

// The learning rate of the next update, without the scale of a group.
double tn_optim_lr(const tn_optim *o)
{
    return o ? o->lr * tni_schedule_factor(&o->schedule, o->updates) : 0;
}

void tn_optim_set_lr(tn_optim *o, double lr)
{
    tn_ctx *cx = tni_owned_ok("optim_set_lr", o, TNI_OPTIM);
    if (!cx) return;
    if (tni_not_negative(lr)) o->lr = lr;
    else tni_fail(cx, TN_EARG, "optim_set_lr: lr %g is not a number >= 0", lr);
}

// Returns the place of a number that the rule has by this name; NULL if it has none.
static double *setting_of(tn_optim *o, const char *name)
{
    const struct {
        const char *name;
        double     *at;
    } number[] = { { "momentum", &o->momentum },   { "dampening", &o->dampening },
                   { "beta1", &o->beta1 },         { "beta2", &o->beta2 },
                   { "alpha", &o->alpha },         { "eps", &o->eps },
                   { "rho", &o->alpha },           { "lr_decay", &o->decay },
                   { "momentum_decay", &o->decay } };
    for (const char *const *s = o->rule->settings; *s; s++)
        for (size_t i = 0; i < sizeof number / sizeof *number; i++)
            if (!strcmp(*s, name) && !strcmp(number[i].name, name)) return number[i].at;
    return NULL;
}

// A buffer of momentum stays while the momentum is 0, as in PyTorch. What is wrong changes nothing.
tn_status tn_optim_set(tn_optim *o, const char *setting, double value)
{
    tn_ctx *cx = tni_owned_ok("optim_set", o, TNI_OPTIM);
    if (!cx) return tni_failed();
    double *at = setting ? setting_of(o, setting) : NULL;
    if (!at)
        return tni_fail_status(cx, TN_EARG, "optim_set: %s has no setting \"%.100s\"",
                               o->rule->name, setting ? setting : "(null)");
    double before  = *at;
    *at            = tni_decimal(value);
    tni_text wrong = tni_optim_wrong(o);
    if (!*wrong.s) return TN_OK;
    *at = before;
    return tni_fail_status(cx, TN_EARG, "optim_set: %s", wrong.s);
}

// Takes effect at the next update; counts of updates go on.
tn_status tn_optim_set_schedule(tn_optim *o, tn_schedule s)
{
    tn_ctx *cx = tni_owned_ok("optim_set_schedule", o, TNI_OPTIM);
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
