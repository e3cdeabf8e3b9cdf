// Bunches: parameters that agree are updated as one flat tensor. Their values and gradients are joined,
// and each is assigned its part of a result. The planner gives the parts of a result adjacent memory,
// so that joining them the next time copies nothing. Their state is one flat tensor from the first
// update on, of which each has a part; where a bunch is another one later, it is joined too.
#include "optim/update.h"

static tn_tensor *tensor_of(const tni_trained *s, int what)
{
    if (what < TNI_STATES) return s->state[what];
    return what == TNI_PARAM ? s->p : s->p->leaf->grad;
}

// The flat tensor of state k, if the slots of the bunch have its parts, all of them and in order.
static tn_tensor *flat_of(const tn_optim *o, const tni_bunch *b, int k)
{
    tn_tensor *flat = o->order[b->first]->flat[k];
    int64_t    at   = 0;
    for (size_t i = 0; flat && i < b->count; i++) {
        const tn_tensor *t = o->order[b->first + i]->state[k];
        if (!t || t->store != flat->store || !t->view || t->view->offset != at) return NULL;
        at += tni_count(t);
    }
    return flat && at == tni_count(flat) ? flat : NULL;
}

// State k of a slot; where there is none yet it is made: a master of p, another of zeros. NULL,
// reported, on failure.
static tn_tensor *state_of(tni_trained *s, int k)
{
    if (s->state[k]) return s->state[k];
    tn_dtype   dt = tni_state_dtype(s->p);
    tn_tensor *t  = k == TNI_MASTER ? tn_cast(s->p, dt)
                                    : tn_zeros(s->p->cx, dt, tni_rank(s->p), tni_sizes(s->p));
    if (!t) return NULL;
    tni_tensor_own(t);
    s->state[k] = t;
    return t;
}

bool tni_bunch_has(const tn_optim *o, const tni_bunch *b, int k)
{
    for (size_t i = 0; i < b->count; i++)
        if (o->order[b->first + i]->state[k]) return true;
    return false;
}

// The elements of t as one axis, with a reference for the caller; NULL, reported, on failure.
static tni_node *flat_node(tn_tensor *t, tn_dtype dt)
{
    tni_view  v, flat;
    tni_node *n;
    if (tni_dtype(t) != dt && !(t = tn_cast(t, dt))) return NULL;
    int64_t count = tni_count(t);
    v             = tni_layout(t);
    if (tni_view_reshape(&v, 1, &count, &flat)) return tni_resolve_cut(t, &flat, "concat");
    t = tn_reshape(t, 1, &count);
    n = t ? tni_resolve(t, "concat") : NULL;
    return n ? tni_node_ref(n) : NULL;
}

tn_tensor *tni_bunch_join(const tn_optim *o, const tni_bunch *b, int what)
{
    tn_tensor *y    = what < TNI_STATES ? flat_of(o, b, what) : NULL;
    tn_ctx    *cx   = o->thing.cx;
    tn_tensor *p    = o->order[b->first]->p;
    tn_dtype   dt   = what < TNI_STATES ? tni_state_dtype(p) : tni_dtype(p);
    size_t     n    = 0;
    int64_t    size = 0;
    if (y) return y;
    if (b->count == 1) return tensor_of(o->order[b->first], what);
    for (; n < b->count; n++) {
        tni_trained *s = o->order[b->first + n];
        tn_tensor   *t = what < TNI_STATES ? state_of(s, what) : tensor_of(s, what);
        if (!t || !(o->node[n] = flat_node(t, dt))) break;
        size += tni_count(t);
    }
    if (n == b->count)
        y = tni_record(cx, TNI_concat, dt, 1, &size, (int)n, o->node,
                       &(tni_attr){ .axis = { 0, false } });
    while (n > 0) tni_node_unref(cx, o->node[--n]);
    return y;
}

// Part of a flat tensor, which is all of its store, as one of p's shape.
static tni_view part_of(int64_t at, const tn_tensor *p)
{
    tni_view v = tni_view_whole(tni_rank(p), tni_sizes(p));
    v.offset   = at;
    return v;
}

// Assigns t, of p's shape, its part of y.
static bool assign_part(tn_tensor *t, tn_tensor *y, int64_t at, const tn_tensor *p)
{
    tni_view v = part_of(at, p);
    if (t->view) return tn_assign(t, tni_wrap_view(y, &v, NULL, NULL)) != NULL;
    tni_node *n  = tni_resolve_cut(y, &v, "assign");
    bool      ok = n && tni_assign_node(t, n);
    tni_node_unref(y->cx, n);
    return ok;
}

// Gives the slots of a bunch, none of which has a state k yet, the parts of a flat tensor. NULL,
// reported, on failure, and then none has.
static tn_tensor *make_flat(const tn_optim *o, const tni_bunch *b, int k, tn_tensor *y)
{
    tn_tensor *flat = tn_zeros_like(y);
    int64_t    at   = 0;
    for (size_t i = 0; flat && i < b->count; i++) {
        const tni_trained *s = o->order[b->first + i];
        tni_view           v = part_of(at, s->p);
        if (!(o->list[i] = tni_wrap_view(flat, &v, NULL, NULL))) return NULL;
        at += tni_count(s->p);
    }
    for (size_t i = 0; flat && i < b->count; i++) {
        tni_tensor_own(o->list[i]);
        o->order[b->first + i]->state[k] = o->list[i];
    }
    if (flat) tni_tensor_own(flat);
    return o->order[b->first]->flat[k] = flat;
}

bool tni_bunch_spread(const tn_optim *o, const tni_bunch *b, int what, tn_tensor *y)
{
    int64_t at = 0;
    if (!y) return false;
    if (what < TNI_STATES && b->count > 1) {
        tn_tensor *flat = tni_bunch_has(o, b, what) ? flat_of(o, b, what)
                                                    : make_flat(o, b, what, y);
        if (flat) return tn_assign(flat, y) != NULL;
        if (!tni_bunch_has(o, b, what)) return false;
    }
    for (size_t i = 0; i < b->count; i++) {
        tni_trained *s = o->order[b->first + i];
        tn_tensor   *t = what < TNI_STATES ? state_of(s, what) : tensor_of(s, what);
        if (!t || !(b->count == 1 ? tn_assign(t, y) != NULL : assign_part(t, y, at, s->p)))
            return false;
        at += tni_count(s->p);
    }
    return true;
}

static bool agree(const tni_trained *a, const tni_trained *b)
{
    return tni_dtype(a->p) == tni_dtype(b->p) && a->lr_scale == b->lr_scale &&
           a->weight_decay == b->weight_decay && a->updates == b->updates;
}

bool tni_bunches_make(tn_optim *o)
{
    size_t at  = 0;
    o->bunches = 0;
    for (size_t i = 0; i < o->slots; i++) {
        tni_trained *s = &o->slot[i];
        s->taken       = !tni_trained_grad(s) || tni_count(s->p) == 0;
    }
    for (size_t i = 0; i < o->slots; i++) {
        if (o->slot[i].taken) continue;
        tni_bunch *b = &o->bunch[o->bunches++];
        *b           = (tni_bunch){ .first = at };
        for (size_t j = i; j < o->slots; j++) {
            if (o->slot[j].taken || !agree(&o->slot[i], &o->slot[j])) continue;
            o->slot[j].taken = true;
            o->order[at++]   = &o->slot[j];
            b->count++;
        }
        if (!(b->g = tni_bunch_join(o, b, TNI_GRADIENT))) return false;
    }
    return true;
}
