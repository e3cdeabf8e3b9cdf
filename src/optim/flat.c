// Flat blocks: parameters that agree are stored one after the other in one buffer, and so are their
// moments, masters and, while an update is recorded, their gradients. A rule runs once over each
// block. The parameters move into their blocks when the optimizer is made, before a forward pass
// records their addresses: so the first step finds them where the second does, and both have one
// plan. A value that the user writes to a parameter is stored elsewhere until the next update,
// which joins it again.
#include "optim/update.h"
#include "ops/composite.h"

#include <string.h>

// ---- which slots -------------------------------------------------------------------------------

// Returns whether two slots can share a block: one kernel updates it with one set of numbers. A
// view cannot be in a block, because its elements belong to another tensor's buffer.
static bool slots_agree(const tni_trained *a, const tni_trained *b)
{
    return a->flat == b->flat && a->due == b->due && tni_dtype(a->p) == tni_dtype(b->p) &&
           a->lr_scale == b->lr_scale && a->weight_decay == b->weight_decay &&
           a->updates == b->updates && !a->p->view && !b->p->view;
}

// Lets go of a block's states. The slots keep theirs, which are views of the same memory.
static void drop_states(tni_flat *f)
{
    for (int k = 0; k < TNI_STATES; k++) {
        if (f->state[k]) tni_tensor_disown(f->state[k]);
        f->state[k] = NULL;
    }
}

// Appends to a block the slots that were picked for it: either those whose number of elements keeps
// what follows aligned to 64 bytes in every dtype (even), or the others. Aligned ones come first,
// since products with an unaligned operand are slower on a GPU.
static size_t take_slots(tn_optim *o, tni_flat *f, size_t at, bool even)
{
    enum { LINE = 32 };  // elements of 16 bits in 64 bytes
    for (size_t j = 0; j < o->slots; j++) {
        tni_trained *s     = &o->slot[j];
        int64_t      count = tni_count(s->p);
        if (!s->picked || (count % LINE == 0) != even) continue;
        s->picked = false;
        s->taken  = true;
        s->at     = f->size;
        f->size += count;
        f->count++;
        o->order[at++] = s;
    }
    return at;
}

// Picks the slots of a block that begins with slot i: that one alone, if updates look at whole
// parameters; or all that agree with it, or, for buckets, those before it in the network up to a
// number of bytes. The first bucket is small, so that the ranks begin to exchange early.
static void pick_slots(tn_optim *o, size_t i, size_t block)
{
    enum { FIRST = 1 << 20 };
    const tni_trained like  = o->slot[i];
    int64_t           bytes = 0, most = o->bucket_bytes;
    if (most > FIRST && block == 0) most = FIRST;
    for (size_t k = 0; k < o->slots; k++) {
        size_t       j = o->bucket_bytes ? i - k : k;
        tni_trained *s = &o->slot[j];
        if (o->bucket_bytes && k > i) break;
        if (s->taken || (i != j && (tni_takes_whole(o) || !slots_agree(&like, s)))) continue;
        if (o->bucket_bytes && bytes >= most) break;
        s->picked = true;
        bytes += tni_count(s->p) * (int64_t)tni_dtype_size(tni_dtype(s->p));
    }
}

// Sorts the slots into blocks, in the order of the network, by what they agree in; buckets in the
// opposite order, in which a backward pass finishes gradients. The blocks are built in spare, so
// that the old ones can be compared: a block that did not change keeps its states; the states of
// the others are joined when they are next needed.
static void divide_slots(tn_optim *o)
{
    size_t    n = 0, at = 0;
    int64_t   ranks = tn_dist_size(o->dist);
    tni_flat *old   = o->flat;
    o->flat         = o->spare;
    o->spare        = old;
    for (size_t i = 0; i < o->slots; i++) o->slot[i].taken = tni_count(o->slot[i].p) == 0;
    for (size_t turn = 0; turn < o->slots; turn++) {
        size_t      i    = o->bucket_bytes ? o->slots - 1 - turn : turn;
        tni_trained like = o->slot[i];
        if (like.taken) continue;
        tni_flat *f = &o->flat[n];
        *f          = (tni_flat){ .first = at };
        pick_slots(o, i, n);
        at      = take_slots(o, f, at, true);
        at      = take_slots(o, f, at, false);
        f->part = o->shard_state ? (f->size + ranks - 1) / ranks : 0;
        for (size_t k = f->first; k < at; k++) o->order[k]->flat = n;
        if (like.flat < o->flats && old[like.flat].count == f->count) {
            memcpy(f->state, old[like.flat].state, sizeof f->state);
            memset(old[like.flat].state, 0, sizeof f->state);
        }
        n++;
    }
    for (size_t i = 0; i < o->flats; i++) drop_states(&old[i]);
    o->flats = n;
}

void tni_flats_divide(tn_optim *o)
{
    for (size_t i = 0; i < o->flats; i++) drop_states(&o->flat[i]);
    for (size_t i = 0; i < o->slots; i++) {
        o->slot[i].flat = 0;
        o->slot[i].due  = true;
    }
    divide_slots(o);
}

// The block's state no longer holds the slot's, so it is forgotten and joined again later.
void tni_state_set(tn_optim *o, tni_trained *s, int k, tn_tensor *t)
{
    tn_tensor **whole = s->flat < o->flats ? &o->flat[s->flat].state[k] : NULL;
    if (whole && *whole) tni_tensor_disown(*whole);
    if (whole) *whole = NULL;
    if (t) tni_tensor_own(t);
    if (s->state[k]) tni_tensor_disown(s->state[k]);
    s->state[k] = t;
}

// ---- joining -----------------------------------------------------------------------------------

// Returns the state, parameter or gradient of a slot.
static tn_tensor *tensor_of(const tni_trained *s, int what)
{
    if (what < TNI_STATES) return s->state[what];
    if (what == TNI_LOW) return s->p->store->low;
    return what == TNI_PARAM ? s->p : s->p->leaf->grad;
}

// Returns the elements of t as a node of one axis, with a reference for the caller; NULL, reported,
// on failure. A contiguous tensor is viewed, any other one copied by a reshape.
static tni_node *flat_node(tn_tensor *t, tn_dtype dt)
{
    tni_view  v, flat;
    tni_node *n;
    if (tni_dtype(t) != dt && !(t = tn_cast(t, dt))) return NULL;
    int64_t count = tni_count(t);
    v             = tni_layout(t);
    if (tni_view_reshape(&v, 1, &count, &flat)) return tni_resolve_detached(t, &flat, "concat");
    t = tn_reshape(t, 1, &count);
    n = t ? tni_resolve(t, "concat") : NULL;
    return n ? tni_node_ref(n) : NULL;
}

// Returns whether a state begins as its parameter; the rule's own begin with a number,
// first_number.
static bool begins_as_param(int k)
{
    return k >= TNI_MASTER;
}

// A copy with memory of its own, as every later value of the state has: a clone would share p's
// until one of them is written, and the first update would have another plan than the second.
static tn_tensor *copy_as(tn_tensor *p, tn_dtype dt)
{
    return tni_dtype(p) == dt ? tn_maximum(p, p) : tn_cast(p, dt);
}

static double first_number(const tn_optim *o, int k)
{
    return k == 0 ? o->first : 0;
}

// Returns what a slot has, or the initial value of a state that it lacks.
static tn_tensor *tensor_or_new(const tn_optim *o, const tni_trained *s, int what)
{
    tn_tensor *t = tensor_of(s, what);
    if (t) return t;
    tn_dtype dt = tni_state_dtype(s->p);
    if (begins_as_param(what)) return copy_as(s->p, dt);
    return tn_full(s->p->cx, dt, tni_rank(s->p), tni_sizes(s->p), first_number(o, what));
}

// Joins the tensors of the list, one for each slot of a block, into one of one axis; NULL,
// reported, on failure. The planner computes producers of a concatenation directly into their
// places.
static tn_tensor *join_list(const tn_optim *o, const tni_flat *f, tn_dtype dt)
{
    tn_ctx    *cx = o->owned.cx;
    tn_tensor *y  = NULL;
    size_t     n  = 0;
    while (n < f->count && (o->node[n] = flat_node(o->list[n], dt)) != NULL) n++;
    if (n == f->count)
        y = tni_record(cx, TNI_concat, dt, 1, &f->size, (int)n, o->node,
                       &(tni_attr){ .axis = { 0, false } });
    while (n > 0) tni_node_unref(cx, o->node[--n]);
    return y;
}

// Joins what the slots of a block have, copying it.
static tn_tensor *concat_block(const tn_optim *o, const tni_flat *f, int what, tn_dtype dt)
{
    for (size_t i = 0; i < f->count; i++)
        if (!(o->list[i] = tensor_or_new(o, o->order[f->first + i], what))) return NULL;
    return join_list(o, f, dt);
}

// Returns whether the parameters or gradients of a block are computed and stored one after the
// other, each at its place. Parameters are, except those that the user wrote since the last update;
// gradients are if one backward pass computed them and nothing clipped them since.
static bool is_contiguous(const tn_optim *o, const tni_flat *f, int what)
{
    const tni_node *first = tensor_of(o->order[f->first], what)->store->node;
    for (size_t i = 0; i < f->count; i++) {
        const tni_trained *s = o->order[f->first + i];
        const tn_tensor   *t = tensor_of(s, what);
        const tni_node    *n = t->store->node;
        if (t->view || n->state != TNI_DONE || n->op == TNI_view) return false;
        if (n->buf != first->buf || n->start != first->start + s->at) return false;
    }
    return true;
}

// Returns the parameters or the gradients of a block as one tensor: a view of their buffer if they
// are contiguous, else a concatenation.
static tn_tensor *join_block(const tn_optim *o, const tni_flat *f, int what)
{
    tn_ctx         *cx = o->owned.cx;
    tn_tensor      *t  = tensor_of(o->order[f->first], what);
    const tni_node *n  = t->store->node;
    tn_dtype        dt = tni_dtype(t);
    if (f->count == 1) return t;
    if (!is_contiguous(o, f, what)) return concat_block(o, f, what, dt);
    return tni_wrap(cx, tni_node_in_buffer(cx, dt, 1, &f->size, n->buf, n->start));
}

tn_tensor *tni_flat_params(const tn_optim *o, const tni_flat *f)
{
    return join_block(o, f, TNI_PARAM);
}

// ---- moving parameters into their blocks -------------------------------------------------------

// Returns whether all parameters of a block have a value, so that they can be moved.
static bool are_computed(const tn_optim *o, const tni_flat *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (o->order[f->first + i]->p->store->node->state != TNI_DONE) return false;
    return true;
}

// Computes y, the values of a block's parameters or their copies, and makes one node in y's buffer
// for each parameter (in o->node). False, reported, with no node left over, on failure.
static bool cut_nodes(const tn_optim *o, const tni_flat *f, tn_tensor *y)
{
    tn_ctx         *cx   = o->owned.cx;
    const tni_node *from = y ? tni_value(y, o->rule->name) : NULL;
    size_t          n    = 0;
    for (; from && n < f->count; n++) {
        const tni_trained *s = o->order[f->first + n];
        o->node[n]           = tni_node_in_buffer(cx, tni_dtype(y), tni_rank(s->p), tni_sizes(s->p),
                                                  from->buf, from->start + s->at);
        if (!o->node[n]) break;
    }
    if (from && n == f->count) return true;
    while (n > 0) tni_node_unref(cx, o->node[--n]);
    return false;
}

// Returns whether the parameters of a block have a buffer to themselves. Parts of a larger block
// could not be updated in place, because the rest of the buffer is still in use.
static bool has_buffer(const tn_optim *o, const tni_flat *f)
{
    return is_contiguous(o, f, TNI_PARAM) &&
           o->order[f->first]->p->store->node->buf->refs == f->count;
}

// Copies the parameters of a block into one new buffer and binds their stores to it.
static bool move_in(const tn_optim *o, const tni_flat *f)
{
    if (!cut_nodes(o, f, concat_block(o, f, TNI_PARAM, tni_dtype(o->order[f->first]->p))))
        return false;
    for (size_t i = 0; i < f->count; i++)
        tni_store_bind(o->owned.cx, o->order[f->first + i]->p->store, o->node[i]);
    return true;
}

// Returns whether the copies of a block can be made before its first step: all of it is f32 and
// computed, and none has a copy yet.
static bool lacks_low(const tn_optim *o, const tni_flat *f)
{
    bool none = are_computed(o, f);
    for (size_t i = 0; none && i < f->count; i++) {
        const tn_tensor *p = o->order[f->first + i]->p;
        none               = tni_dtype(p) == TN_F32 && !p->view && !tni_low_is_valid(p->store);
    }
    return none;
}

// Makes the copies of a block in 16 bits, one after the other as its updates will leave them. So
// the first step has the plan and the memory of all later ones; the first update frees what it did
// not use.
static bool make_lows(const tn_optim *o, const tni_flat *f, tn_dtype dt)
{
    tn_ctx *cx = o->owned.cx;
    bool    ok = true;
    if (!cut_nodes(o, f, tn_cast(tni_flat_params(o, f), dt))) return false;
    for (size_t i = 0; i < f->count; i++) {
        tni_store *store = o->order[f->first + i]->p->store;
        tn_tensor *low   = tni_wrap(cx, o->node[i]);
        ok &= low != NULL;
        if (low) tni_low_set(store, low);
    }
    return ok;
}

// Does not move anything while a call is being recorded: nodes of that recording already point at
// the parameters' present places.
bool tni_flats_place(tn_optim *o)
{
    tn_ctx *cx = o->owned.cx;
    tni_flats_divide(o);
    if (cx->busy) return true;
    tn_scope *s = tn_begin(cx);
    if (!s) return false;
    bool     ok   = true;
    tn_dtype low  = cx->autocast;
    cx->grad_mode = false;
    cx->autocast  = TN_F32;
    for (size_t i = 0; ok && i < o->flats; i++) {
        const tni_flat *f = &o->flat[i];
        if (f->count > 1 && are_computed(o, f) && !has_buffer(o, f)) ok = move_in(o, f);
        if (ok && low != TN_F32 && lacks_low(o, f)) ok = make_lows(o, f, low);
    }
    tni_scope_close(s);
    return ok;
}

// Moves the values that the parameters of a block will get into one buffer, if all of them get one
// of the right dtype. A block of which only some are loaded stays as it is; the next update joins
// it.
static bool gather_block(const tn_optim *o, const tni_flat *f, tni_value_of *find, void *user)
{
    for (size_t i = 0; i < f->count; i++) {
        tn_tensor **v = find(user, o->order[f->first + i]->p);
        if (!v || !*v || tni_dtype(*v) != tni_dtype(o->order[f->first]->p)) return true;
        o->list[i] = *v;
    }
    if (!cut_nodes(o, f, join_list(o, f, tni_dtype(o->list[0])))) return false;
    bool ok = true;
    for (size_t i = 0; i < f->count; i++) {
        tn_tensor *t = tni_wrap(o->owned.cx, o->node[i]);
        ok &= t != NULL;
        if (!t) continue;
        *find(user, o->order[f->first + i]->p) = t;
        tn_drop(o->list[i]);
    }
    return ok;
}

// Visits every optimizer of the context: values that are loaded into a network concern whichever
// optimizers train it.
bool tni_flats_gather(tn_ctx *cx, tni_value_of *find, void *user)
{
    bool ok = true;
    for (tni_owned *t = cx->objects; ok && t; t = t->next) {
        const tn_optim *o = (const tn_optim *)t;
        for (size_t i = 0; ok && t->kind == TNI_OPTIM && i < o->flats; i++)
            if (o->flat[i].count > 1) ok = gather_block(o, &o->flat[i], find, user);
    }
    return ok;
}

// ---- for an update -----------------------------------------------------------------------------

// Checks in one pass whether the blocks still hold: between two updates a parameter may have lost
// its gradient or got other settings. Only then are slots sorted again.
bool tni_flats_begin(tn_optim *o)
{
    bool stand = true;
    for (size_t i = 0; i < o->slots; i++) o->slot[i].due = tni_trained_grad(&o->slot[i]) != NULL;
    for (size_t i = 0; i < o->flats; i++)
        for (size_t j = 1; stand && j < o->flat[i].count; j++)
            stand = slots_agree(o->order[o->flat[i].first], o->order[o->flat[i].first + j]);
    if (!stand && !tni_optim_whole(o)) return false;
    if (!stand) divide_slots(o);
    for (size_t i = 0; i < o->flats; i++) {
        tni_flat *f   = &o->flat[i];
        bool      due = o->order[f->first]->due;
        f->g          = due ? join_block(o, f, TNI_GRADIENT) : NULL;
        if (due && !f->g) return false;
    }
    return true;
}

// Returns a slot's part of a tensor with one axis that is a whole store, in the shape of p.
static tni_view part_of(const tni_trained *s)
{
    tni_view v = tni_view_whole(tni_rank(s->p), tni_sizes(s->p));
    v.offset   = s->at;
    return v;
}

bool tni_compute_now(tn_tensor *t)
{
    tn_ctx *cx   = t->cx;
    bool    busy = cx->busy;
    cx->busy     = false;
    bool ok      = tni_value(t, "optim_step") != NULL;
    cx->busy     = busy;
    return ok;
}

// Returns the value that state k of a block begins with, made from what its slots have of it. If
// they all lack it, one tensor is made, not one for each slot. NULL, reported, on failure.
static tn_tensor *initial_state(const tn_optim *o, const tni_flat *f, int k)
{
    const tni_trained *s   = o->order[f->first];
    tn_dtype           dt  = tni_state_dtype(s->p);
    bool               any = false;
    for (size_t i = 0; i < f->count; i++) any |= o->order[f->first + i]->state[k] != NULL;
    if (f->count == 1) {
        tn_tensor *y = tensor_or_new(o, s, k);
        return y && tni_dtype(y) != dt ? tn_cast(y, dt) : y;
    }
    if (any) return concat_block(o, f, k, dt);
    if (begins_as_param(k)) return copy_as(tni_flat_params(o, f), dt);
    return tn_full(o->owned.cx, dt, 1, &f->size, first_number(o, k));
}

// Makes state k of a sharded block: this rank's part of it, of which the slots have nothing.
static bool make_part(tn_optim *o, tni_flat *f, int k)
{
    tn_dtype dt  = tni_state_dtype(o->order[f->first]->p);
    bool     any = begins_as_param(k);
    for (size_t i = 0; i < f->count; i++) any |= o->order[f->first + i]->state[k] != NULL;
    tn_tensor *y = any ? tni_flat_part(o, f, initial_state(o, f, k))
                       : tn_full(o->owned.cx, dt, 1, &f->part, first_number(o, k));
    y            = y ? tn_contiguous(y) : NULL;
    if (!y || !tni_compute_now(y)) return false;
    for (size_t i = 0; i < f->count; i++) tni_state_set(o, o->order[f->first + i], k, NULL);
    tni_tensor_own(y);
    f->state[k] = y;
    return true;
}

static bool give_state(tn_optim *o, tni_flat *f, int k, tn_tensor *y);

// Makes state k of a block, and gives each slot its part. It is computed before the update is
// recorded, so that the first update reads stored states as all later ones do, and has their plan.
static bool make_state(tn_optim *o, tni_flat *f, int k)
{
    if (f->part) return make_part(o, f, k);
    tn_tensor *y = initial_state(o, f, k);
    return y && give_state(o, f, k, y);
}

// Gives a block a whole state, and each slot its part of it.
static bool give_state(tn_optim *o, tni_flat *f, int k, tn_tensor *y)
{
    if (!tni_compute_now(y)) return false;
    o->list[0] = y;
    for (size_t i = 0; f->count > 1 && i < f->count; i++) {
        tni_view v = part_of(o->order[f->first + i]);
        if (!(o->list[i] = tni_wrap_view(y, &v, NULL, NULL))) return false;
    }
    for (size_t i = 0; i < f->count; i++) tni_state_set(o, o->order[f->first + i], k, o->list[i]);
    tni_tensor_own(y);
    f->state[k] = y;
    return true;
}

// The parts of all ranks are gathered. A scope of its own, since this may be called outside of any
// recording.
bool tni_optim_whole(tn_optim *o)
{
    tn_ctx *cx = o->owned.cx;
    bool    ok = true, any = false;
    for (size_t i = 0; i < o->flats; i++)
        for (int k = 0; o->flat[i].part && k < TNI_STATES; k++) any |= o->flat[i].state[k] != NULL;
    if (!any) return true;
    bool busy   = cx->busy;
    cx->busy    = false;
    tn_scope *s = tn_begin(cx);
    if (s) cx->grad_mode = false;
    if (s) cx->autocast = TN_F32;
    for (size_t i = 0; s && ok && i < o->flats; i++) {
        tni_flat *f = &o->flat[i];
        for (int k = 0; ok && f->part && k < TNI_STATES; k++) {
            tn_tensor *part = f->state[k], *y = part ? tni_flat_whole(o, f, part) : NULL;
            if (!part) continue;
            ok = y && give_state(o, f, k, y);
            if (f->state[k] == y && y) {
                tni_tensor_disown(y);  // the slots have it
                f->state[k] = NULL;
            }
        }
    }
    if (s) tni_scope_close(s);
    cx->busy = busy;
    return s && ok;
}

// A state of another dtype, as a checkpoint of an earlier version may have left it, is made again
// as well.
bool tni_flat_make_states(tn_optim *o, tni_flat *f)
{
    const tni_trained *s = o->order[f->first];
    for (int k = 0; k < TNI_STATES; k++) {
        const tn_tensor *t = f->state[k];
        if (!tni_has_state(o, s, k) || (t && tni_dtype(t) == tni_state_dtype(s->p))) continue;
        if (!make_state(o, f, k)) return false;
    }
    return true;
}

// Each part is assigned as a slice of y, so that the planner can store y straight into the block.
bool tni_flat_spread(const tn_optim *o, const tni_flat *f, int what, tn_tensor *y)
{
    for (size_t i = 0; y && i < f->count; i++) {
        const tni_trained *s = o->order[f->first + i];
        tn_tensor         *t = tensor_of(s, what);
        tni_view           v = part_of(s);
        if (f->count == 1) return tn_assign(t, y) != NULL;
        tni_node *n  = tni_resolve_detached(y, &v, "assign");
        bool      ok = n && tni_assign_node(t, n);
        tni_node_unref(y->cx, n);
        if (!ok) return false;
    }
    return y != NULL;
}

// ---- copies in 16 bits -------------------------------------------------------------------------

// Returns whether the update writes the copy of a slot, if that is of this dtype.
static bool writes_low(const tni_trained *s, tn_dtype dt)
{
    return s->low && tni_dtype(s->p->store->low) == dt;
}

// Returns the copies of a block as one tensor if they are stored one after the other, as the last
// update left them; NULL, not reported, if not. Slots without a copy leave gaps.
static tn_tensor *joined_low(const tn_optim *o, const tni_flat *f, tn_dtype dt)
{
    const tni_node *first = NULL;
    int64_t         start = 0;
    for (size_t i = 0; i < f->count; i++) {
        const tni_trained *s = o->order[f->first + i];
        if (!writes_low(s, dt)) continue;
        const tni_node *n = s->p->store->low->store->node;
        if (n->state != TNI_DONE || n->op == TNI_view) return NULL;
        if (f->count == 1) return s->p->store->low;
        if (!first) start = n->start - s->at;
        first = first ? first : n;
        if (n->buf != first->buf || n->start != start + s->at) return NULL;
    }
    if (!first || start < 0 || (start + f->size) * 2 > (int64_t)first->buf->bytes) return NULL;
    tn_ctx *cx = o->owned.cx;
    return tni_wrap(cx, tni_node_in_buffer(cx, dt, 1, &f->size, first->buf, start));
}

// Returns the new parameters in 16 bits. An equal old value is kept, zeros with their new sign:
// that changes nothing, but lets the new copies take the place of the old ones, since a kernel
// overwrites only what it reads.
static tn_tensor *next_low(const tn_optim *o, const tni_flat *f, tn_dtype dt, tn_tensor *y)
{
    tn_tensor *low = tn_cast(y, dt), *old = joined_low(o, f, dt);
    return old ? tn_where(tn_logical_and(tn_eq(low, old), tn_ne_s(old, 0)), old, low) : low;
}

// Assigns the copies of one dtype, for a whole block in one tensor, though some slots may have
// none.
static bool spread_low(const tn_optim *o, const tni_flat *f, tn_dtype dt, tn_tensor *y)
{
    bool any = false, ok = true;
    for (size_t i = 0; i < f->count; i++) any |= writes_low(o->order[f->first + i], dt);
    tn_tensor *low = any ? next_low(o, f, dt, y) : NULL;
    if (!any || !low) return !any;
    for (size_t i = 0; ok && i < f->count; i++) {
        const tni_trained *s = o->order[f->first + i];
        tni_view           v = part_of(s);
        if (!writes_low(s, dt)) continue;
        tni_store *store = s->p->store;
        tni_node  *n     = f->count == 1 ? tni_node_ref(low->store->node)
                                         : tni_resolve_detached(low, &v, "assign");
        ok               = n && tni_assign_node(store->low, n);
        tni_node_unref(low->cx, n);
        store->low_of   = store->node->id;
        store->low_used = false;
    }
    return ok;
}

// Which copies are written is known before the parameters are, since after that all of them are
// stale.
bool tni_flat_spread_params(const tn_optim *o, const tni_flat *f, tn_tensor *y)
{
    for (size_t i = 0; i < f->count; i++) {
        tni_trained *s     = o->order[f->first + i];
        tni_store   *store = s->p->store;
        s->low             = !s->p->view && tni_low_is_valid(store) && store->low_used;
        if (!s->low) tni_low_drop(store);
    }
    return tni_flat_spread(o, f, TNI_PARAM, y) && spread_low(o, f, TN_BF16, y) &&
           spread_low(o, f, TN_F16, y);
}
