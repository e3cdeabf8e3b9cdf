// Listing the training state, taking it, and putting it back.
//
// Saving lists the pieces, takes their values and writes them. Loading lists the pieces of the same
// objects, finds each in the file by its name, reads it beside the training state, and puts all of
// them at the end. So the list is the one place that says what a checkpoint contains.
#include "train/snapshot.h"

#include "train/restore.h"

#include <string.h>

// ---- the list ----------------------------------------------------------------------------------

// Adds a piece, named by prefix and name together. NULL, reported, on failure.
static tni_piece *add_piece(tni_snapshot *s, tni_piece_kind kind, const char *prefix,
                            const char *name)
{
    tni_heap *h = &s->cx->heap;
    if (!tni_grow(h, (void **)&s->piece, &s->cap, s->pieces + 1, sizeof *s->piece))
        return tni_fail_memory(s->cx, s->op);
    char *full = tni_join_names(s->cx, s->op, prefix, name);
    if (!full) return NULL;
    tni_piece *p = &s->piece[s->pieces++];
    *p           = (tni_piece){ .kind = kind, .name = full, .from = -1 };
    return p;
}

// Adds a piece of host numbers. data NULL: the file may have them, and they are not asked for.
static bool add_numbers(tni_snapshot *s, const char *prefix, const char *name, tn_dtype dt,
                        int64_t count, void *data)
{
    tni_piece *p = add_piece(s, TNI_PIECE_NUMBERS, prefix, name);
    if (!p) return false;
    p->dtype = dt;
    p->count = count;
    p->data  = data;
    return true;
}

// Adds the parameters and buffers of network k. A tied tensor is one piece, under its first name.
static bool add_net(tni_snapshot *s, int k)
{
    tni_entries list;
    tni_text    prefix = { "" };
    tni_text_add(&prefix, "net.%d.", k);
    if (!tni_layer_list(s->c->net[k], s->op, &list)) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < list.count; i++) {
        if (list.entry[i].first != (int)i) continue;
        tni_piece *p = add_piece(s, TNI_PIECE_VALUE, prefix.s, list.entry[i].name);
        ok           = p != NULL;
        if (!ok) break;
        p->t     = list.entry[i].t;
        p->dtype = tn_dtype_of(p->t);
    }
    tni_entries_free(&list);
    return ok;
}

// Adds the states and the gradient of one parameter. A master and an average are listed even if
// none is kept here, so that a file written with them can be loaded by an optimizer without.
static bool add_slot(tni_snapshot *s, int k, tni_trained *slot)
{
    tn_optim *o = s->c->opt[k];
    for (int i = 0; i <= TNI_STATES; i++) {
        const char *what = i < TNI_STATES ? tni_state_name(o, i) : "grad";
        if (!what) continue;
        tni_text prefix = { "" };
        tni_text_add(&prefix, "opt.%d.%s.", k, what);
        tni_piece *p = add_piece(s, i < TNI_STATES ? TNI_PIECE_STATE : TNI_PIECE_GRADIENT, prefix.s,
                                 slot->name);
        if (!p) return false;
        p->t      = slot->p;
        p->opt    = o;
        p->slot   = slot;
        p->state  = i;
        p->dtype  = i < TNI_STATES ? tni_state_dtype(slot->p) : tn_dtype_of(slot->p);
        p->unused = (i == TNI_MASTER || i == TNI_EMA) && !tni_has_state(o, slot, i);
    }
    return true;
}

// Adds what loss scaling keeps. Listed also without it, so that a file may have it.
static bool add_scaling(tni_snapshot *s, int k)
{
    const tn_optim *o      = s->c->opt[k];
    tni_text        prefix = { "" };
    tni_text_add(&prefix, "opt.%d.loss_scale.", k);
    for (int i = 0; i < TNI_SCALING; i++) {
        tni_piece *p = add_piece(s, TNI_PIECE_SCALING, prefix.s, tni_scaling_name[i]);
        if (!p) return false;
        p->t      = o->scaling[i];
        p->unused = !p->t;
        p->dtype  = i == TNI_SCALE ? TN_F32 : TN_I64;
    }
    return true;
}

// Adds an optimizer: its numbers first, then its loss scale, then the pieces of each parameter.
static bool add_optim(tni_snapshot *s, int k)
{
    tn_optim          *o      = s->c->opt[k];
    tni_optim_numbers *n      = &s->opt[k];
    tni_text           prefix = { "" };
    int64_t            slots  = (int64_t)o->slots;
    n->group                  = tni_alloc(&s->cx->heap, 2 * o->slots * sizeof *n->group);
    n->updates                = tni_alloc(&s->cx->heap, o->slots * sizeof *n->updates);
    if (!n->group || !n->updates) return tni_fail_memory(s->cx, s->op) != NULL;
    tni_numbers_take(o, n);
    tni_text_add(&prefix, "opt.%d.", k);
    size_t first = s->pieces;
    bool   ok    = add_numbers(s, prefix.s, "settings", TN_F64, TNI_SETTINGS, n->setting) &&
              add_numbers(s, prefix.s, "counts", TN_I64, TNI_COUNTS, n->count) &&
              add_numbers(s, prefix.s, "groups", TN_F64, 2 * slots, n->group) &&
              add_numbers(s, prefix.s, "updates", TN_I64, slots, n->updates) && add_scaling(s, k);
    for (size_t i = 0; ok && i < o->slots; i++) ok = add_slot(s, k, &o->slot[i]);
    if (ok) s->piece[first].least = TNI_FIRST_SETTINGS;
    return ok;
}

// Adds the cursor of dataset k, and its number of items, by which a file recognizes the dataset.
static bool add_data(tni_snapshot *s, int k)
{
    const tn_data *d    = s->c->data[k];
    tn_cursor      at   = tn_data_cursor(d);
    int64_t        v[4] = { (int64_t)at.seed, at.epoch, at.index, tn_data_count(d) };
    tni_text       name = { "" };
    memcpy(s->data[k], v, sizeof v);
    tni_text_add(&name, "data.%d", k);
    return add_numbers(s, name.s, "", TN_I64, 4, s->data[k]);
}

// Adds the caller's bytes. They are listed also if none are asked for, so that a file may have
// them.
static bool add_user(tni_snapshot *s)
{
    size_t n = s->c->user ? s->c->user_bytes : 0;
    if (n) {
        s->user = tni_alloc(&s->cx->heap, n);
        if (!s->user) return tni_fail_memory(s->cx, s->op) != NULL;
        memcpy(s->user, s->c->user, n);
    }
    return add_numbers(s, "user", "", TN_U8, (int64_t)n, s->user);
}

// Returns whether an object of the checkpoint is a live one of this context; reports it if not.
static bool is_ours(const tni_snapshot *s, const void *owned, tni_kind kind)
{
    tn_ctx *cx = tni_owned_ok(s->op, owned, kind);
    if (cx && cx != s->cx)
        tni_fail(s->cx, TN_EARG, "%s: a network, optimizer or dataset belongs to another context",
                 s->op);
    return cx == s->cx;
}

// Lists all pieces. Networks come first, so that in a file values precede the optimizer's state.
bool tni_snapshot_open(tni_snapshot *s)
{
    const tn_checkpoint *c = s->c;
    s->step                = c->step;
    s->seed                = s->cx->seed;
    s->counter             = s->cx->counter;
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++)
        if (c->net[k] && !(is_ours(s, c->net[k], TNI_LAYER) && add_net(s, k))) return false;
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++)
        if (c->opt[k] &&
            !(is_ours(s, c->opt[k], TNI_OPTIM) && tni_optim_whole(c->opt[k]) && add_optim(s, k)))
            return false;
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++)
        if (c->data[k] && !(is_ours(s, c->data[k], TNI_DATA) && add_data(s, k))) return false;
    return add_user(s);
}

void tni_snapshot_close(tni_snapshot *s)
{
    tni_heap *h = &s->cx->heap;
    for (size_t i = 0; i < s->pieces; i++) tni_free(h, s->piece[i].name);
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++) {
        tni_free(h, s->opt[k].group);
        tni_free(h, s->opt[k].updates);
    }
    tni_free(h, s->piece);
    tni_free(h, s->user);
}

// ---- taking and putting ------------------------------------------------------------------------

// Values of tensors are taken by reference; only numbers become new tensors.
bool tni_snapshot_take(tni_snapshot *s)
{
    for (size_t i = 0; i < s->pieces; i++) {
        tni_piece *p = &s->piece[i];
        if (p->kind == TNI_PIECE_VALUE || p->kind == TNI_PIECE_SCALING) p->value = p->t;
        else if (p->kind == TNI_PIECE_STATE) p->value = p->unused ? NULL : p->slot->state[p->state];
        else if (p->kind == TNI_PIECE_GRADIENT) p->value = tni_trained_grad(p->slot);
        else if (p->data && !(p->value = tn_from(s->cx, p->dtype, 1, &p->count, p->data)))
            return false;
    }
    return true;
}

// Checks the numbers of an optimizer. The checksum only shows that the file is what was written;
// whether an optimizer can have these numbers is checked apart.
static bool optim_fits(const tni_snapshot *s, int k)
{
    const tn_optim *o = s->c->opt[k];
    if (!tni_numbers_same(o, &s->opt[k]))
        return tni_fail(s->cx, TN_EFORMAT, "%s: %s: optimizer %d was saved with other parameters",
                        s->op, s->path, k) != NULL;
    tni_text wrong = tni_numbers_wrong(o, &s->opt[k]);
    if (!*wrong.s) return true;
    return tni_fail(s->cx, TN_EFORMAT, "%s: %s: numbers of optimizer %d are out of range: %s",
                    s->op, s->path, k, wrong.s) != NULL;
}

// Checks everything about the numbers that can be wrong before the first change.
bool tni_snapshot_fits(const tni_snapshot *s)
{
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++) {
        const tn_data *d = s->c->data[k];
        if (s->c->opt[k] && !optim_fits(s, k)) return false;
        if (d && s->data[k][3] != tn_data_count(d))
            return tni_fail(s->cx, TN_EFORMAT,
                            "%s: %s: dataset %d has %lld items in the file, but %lld here", s->op,
                            s->path, k, (long long)s->data[k][3],
                            (long long)tn_data_count(d)) != NULL;
    }
    return true;
}

// Moves the loaders to where they were. All or none: if one cannot be moved, the others go back.
static bool seek_all(const tni_snapshot *s)
{
    tn_cursor before[TN_MAX_CHECKPOINT];
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++) {
        tn_data *d = s->c->data[k];
        if (!d) continue;
        const int64_t *v = s->data[k];
        before[k]        = tn_data_cursor(d);
        if (tn_data_seek(d, (tn_cursor){ (uint64_t)v[0], v[1], v[2] }) == TN_OK) continue;
        while (k-- > 0)
            if (s->c->data[k]) tn_data_seek(s->c->data[k], before[k]);
        return false;
    }
    return true;
}

// Puts a gradient, whose handle read_piece has made. Without one in the file the value is zeros,
// and the parameter counts as having no gradient.
static void put_gradient(const tni_piece *p)
{
    if (!p->value) return;
    tni_leaf *leaf = p->t->leaf;
    tni_put_value(leaf->grad, p->value);
    leaf->grad->store->written = false;
    leaf->has_grad             = p->from >= 0;
}

// Seeking is the only step that can fail, so it comes first; the rest binds stores and copies
// numbers. Blocks are divided anew, because parameters may have other settings and counts now.
bool tni_snapshot_put(tni_snapshot *s)
{
    if (!seek_all(s)) return false;
    for (size_t i = 0; i < s->pieces; i++) {
        const tni_piece *p = &s->piece[i];
        if (p->kind == TNI_PIECE_VALUE) tni_put_value(p->t, p->value);
        else if (p->kind == TNI_PIECE_STATE) tni_state_set(p->opt, p->slot, p->state, p->value);
        else if (p->kind == TNI_PIECE_GRADIENT) put_gradient(p);
        else if (p->kind == TNI_PIECE_SCALING && p->value) tni_put_value(p->t, p->value);
    }
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++)
        if (s->c->opt[k]) {
            tni_numbers_put(s->c->opt[k], &s->opt[k]);
            tni_flats_divide(s->c->opt[k]);
        }
    if (s->user) memcpy(s->c->user, s->user, s->c->user_bytes);
    if (s->c->keep_random) return true;
    s->cx->seed    = s->seed;
    s->cx->counter = s->counter;
    return true;
}
