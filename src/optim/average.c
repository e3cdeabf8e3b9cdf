// Running averages of parameters, which updates keep as one more state: giving them to a network.
#include "optim/update.h"

#include <string.h>

// Returns the slot of this name; NULL if there is none.
static const tni_trained *find_slot(const tn_optim *o, const char *name)
{
    for (size_t i = 0; i < o->slots; i++)
        if (!strcmp(o->slot[i].name, name)) return &o->slot[i];
    return NULL;
}

static bool same_shape(const tn_tensor *a, const tn_tensor *b)
{
    return tni_rank(a) == tni_rank(b) &&
           !memcmp(tni_sizes(a), tni_sizes(b), (size_t)tni_rank(a) * sizeof(int64_t));
}

// Checks every parameter of a network before the first is assigned.
static bool all_fit(const tn_optim *o, const tni_entries *list)
{
    tn_ctx *cx = o->owned.cx;
    for (size_t i = 0; i < list->count; i++) {
        const tni_entry *e = &list->entry[i];
        if (!e->is_param || e->first != (int)i) continue;
        const tni_trained *s = find_slot(o, e->name);
        if (!s)
            return tni_refuse(cx, TN_EARG,
                              "optim_average_to: the optimizer has no parameter %.100s", e->name);
        if (!same_shape(s->p, e->t))
            return tni_refuse(cx, TN_ESHAPE,
                              "optim_average_to: %.100s is %s in the network, %s in the optimizer",
                              e->name, tni_shape_of(e->t).s, tni_shape_of(s->p).s);
    }
    return true;
}

static bool assign_averages(const tn_optim *o, const tni_entries *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const tni_entry *e = &list->entry[i];
        if (!e->is_param || e->first != (int)i) continue;
        const tni_trained *s = find_slot(o, e->name);
        tn_tensor         *t = s->state[TNI_EMA] ? s->state[TNI_EMA] : s->p;
        if (!tn_assign(e->t, tn_cast(t, tni_dtype(e->t)))) return false;
    }
    return true;
}

// Sharded averages are made whole first. Assigned without gradients, as an update is.
tn_status tn_optim_average_to(tn_optim *o, tn_layer *net)
{
    tn_ctx     *cx = tni_record_ready("optim_average_to", o);
    tni_entries list;
    if (!cx || !tni_owned_ok("optim_average_to", net, TNI_LAYER)) return tni_failed();
    if (!(o->ema > 0))
        return tni_fail_status(cx, TN_EARG, "optim_average_to: the optimizer was made without ema");
    if (((tni_owned *)net)->cx != cx)
        return tni_fail_status(cx, TN_EARG,
                               "optim_average_to: the network belongs to another context");
    if (!tni_optim_whole(o) || !tni_layer_list(net, "optim_average_to", &list)) return tni_failed();
    bool      ok = all_fit(o, &list);
    tn_scope *s  = ok ? tn_begin(cx) : NULL;
    if (s) cx->grad_mode = false;
    if (s) cx->autocast = TN_F32;
    ok = s && assign_averages(o, &list);
    if (s) tni_scope_close(s);
    tni_entries_free(&list);
    return ok ? TN_OK : tni_failed();
}
