// Recording updates: the rule runs once for each block of parameters; and tn_step, which is a
// backward walk and an update in one.
//
// An update is recorded as a whole or not at all. Between tni_record_begin and tni_record_end
// nothing is evaluated (cx->busy) and no gradient is recorded (grad_mode); if anything fails,
// tni_record_give_up takes every store back to its last computed value, and optimizers correct
// their counts by rolled_back.
#include "optim/update.h"
#include "dist/world.h"
#include "ops/composite.h"

#include <string.h>

// ---- rules -------------------------------------------------------------------------------------

tn_tensor *tni_average(tn_tensor *old, tn_tensor *x, double keep)
{
    return tn_add(tn_mul_s(old, keep), tn_mul_s(x, 1 - keep));
}

tn_tensor *tni_decayed(const tni_update *u)
{
    return u->weight_decay > 0 ? tn_add(u->g, tn_mul_s(u->p, u->weight_decay)) : u->g;
}

tn_tensor *tni_shrunk(const tni_update *u)
{
    return u->weight_decay > 0 ? tn_mul_s(u->p, 1 - u->lr * u->weight_decay) : u->p;
}

// Counts the update that is about to be recorded, and remembers what to return to if it fails. Its
// nodes get ids from `since` on. If the value before it is not computed yet, since and before stay
// those of the earlier update: a failure takes both back.
static void count_update(tn_optim *o)
{
    tn_ctx *cx = o->owned.cx;
    for (size_t i = 0; i < o->slots; i++) {
        tni_trained     *s     = &o->slot[i];
        const tni_store *store = s->p->store;
        const tni_node  *done  = store->node->state == TNI_DONE ? store->node : store->rollback;
        if (!s->due || !tni_count(s->p)) continue;
        if (!done || done->id >= s->since) {
            s->since  = cx->next_id;
            s->before = s->updates;
        }
        s->updates++;
    }
    o->updates++;
}

// Returns the parameters of a block as the rule takes them, in f32 or wider: the master, where the
// parameter is its rounding, else the parameter, which somebody wrote. Reading the parameter for
// this costs two bytes for each element, and lets the new value take the old one's place.
static tn_tensor *master_params(const tn_optim *o, const tni_flat *f)
{
    tn_tensor *p = tni_flat_part(o, f, tni_flat_params(o, f)), *wide = tni_widen(p);
    tn_tensor *master = f->state[TNI_MASTER];
    if (!wide || !tni_has_state(o, o->order[f->first], TNI_MASTER)) return wide;
    return tn_where(tn_eq(tn_cast(master, tni_dtype(p)), p), master, wide);
}

// Records the update of one block: the rule's new value, the next states, the master, which is that
// value before rounding, and the running average of such values.
static bool update_flat(tn_optim *o, const tni_flat *f, double lr)
{
    const tni_trained *s = o->order[f->first];
    tni_update         u = { .p            = master_params(o, f),
                             .g            = f->g,
                             .lr           = lr * s->lr_scale,
                             .weight_decay = s->weight_decay,
                             .vector       = s->vector,
                             .t            = s->updates,
                             .counted      = tni_scaling_count(o, s->updates) };
    memcpy(u.state, f->state, sizeof u.state);
    if (!u.p || (o->finite && !u.counted)) return false;
    tn_tensor *wide = tni_scaling_keep(o, o->rule->update(o, &u), u.p);
    tn_tensor *p    = tni_narrow(wide, tni_dtype(s->p));
    if (!p) return false;
    for (int k = 0; k < TNI_RULE_STATES; k++)
        if (tni_has_state(o, s, k) &&
            !tn_assign(f->state[k], tni_scaling_keep(o, u.next[k], f->state[k])))
            return false;
    if (tni_has_state(o, s, TNI_MASTER) && !tn_assign(f->state[TNI_MASTER], wide)) return false;
    if (tni_has_state(o, s, TNI_EMA)) {
        tn_tensor *average = tni_average(f->state[TNI_EMA], wide, o->ema);
        if (!tn_assign(f->state[TNI_EMA], tni_scaling_keep(o, average, f->state[TNI_EMA])))
            return false;
    }
    return tni_flat_spread_params(o, f, tni_flat_whole(o, f, p));
}

// Records the update of all blocks, whose gradients are sums over `steps` steps. States are made
// before anything else is recorded, since that can fail. While cx->updating is set, what is
// assigned is marked as an update, which is computed as a whole or not at all.
static bool record_update(tn_optim *o, int64_t steps)
{
    bool ok = tni_flats_begin(o), any = false;
    for (size_t i = 0; ok && i < o->flats; i++) {
        if (!o->flat[i].g) continue;
        ok  = tni_flat_make_states(o, &o->flat[i]);
        any = true;
    }
    if (!ok || !any || !tni_gradients_prepare(o, steps)) return ok && !any;
    double  lr = tn_optim_lr(o);
    tn_ctx *cx = o->owned.cx;
    count_update(o);
    cx->updating = true;
    for (size_t i = 0; ok && i < o->flats; i++)
        if (o->flat[i].g) ok = update_flat(o, &o->flat[i], lr);
    if (ok && o->finite) ok = tni_scaling_update(o);
    cx->updating = false;
    o->finite    = NULL;
    return ok;
}

// ---- recording as a whole ----------------------------------------------------------------------

tn_scope *tni_record_begin(tn_ctx *cx)
{
    tn_scope *s = tn_begin(cx);
    if (!s) return NULL;
    cx->grad_mode = false;
    cx->autocast  = TN_F32;
    cx->busy      = true;
    cx->recording = true;
    return s;
}

void tni_record_end(tn_scope *s)
{
    s->cx->busy      = false;
    s->cx->recording = false;
    tni_scope_close(s);
}

// Whether the rule updates by one gradient; L-BFGS calls a function.
static bool takes_gradient(const char *op, const tn_optim *o)
{
    return !o->lbfgs || tni_refuse(o->owned.cx, TN_EARG,
                                   "%s: lbfgs needs a function of the loss: tn_minimize", op);
}

tn_ctx *tni_record_ready(const char *op, const tn_optim *o)
{
    tn_ctx *cx = tni_owned_ok(op, o, TNI_OPTIM);
    if (!cx || !cx->busy) return cx;
    return tni_fail(cx, TN_EARG, "%s: a tn_ call is in progress", op);
}

// Sets every gradient to zero; the next backward pass then writes instead of adding.
static bool clear_gradients(tn_optim *o)
{
    uint64_t failures = o->owned.cx->failures;
    for (size_t i = 0; i < o->slots; i++)
        if (tn_has_grad(o->slot[i].p)) tn_zero_grad(o->slot[i].p);
    return o->owned.cx->failures == failures;
}

tn_status tni_record_give_up(tn_optim *o)
{
    tn_status status = tni_failed();
    tni_roll_back(o->owned.cx);
    if (tn_dist_size(o->dist) > 1) tni_dist_fail(o->dist);
    clear_gradients(o);
    o->micro = 0;
    return status;
}

// ---- steps -------------------------------------------------------------------------------------

// Whose gradients a walk is for, and whether it found one of them.
typedef struct {
    const tn_optim *o;
    bool            found;
} step_target;

// Lets gradients flow to the optimizer's own parameters only.
static bool accept_leaf(const tni_leaf *l, void *user)
{
    step_target *a = user;
    if (!tni_optim_trains(a->o, l->handle)) return false;
    return a->found = true;
}

// Refuses a loss before anything is recorded, so that a wrong call changes nothing. A NULL loss
// after an earlier error returns that error again.
static tn_status check_loss(const tn_optim *o, tn_tensor *loss)
{
    tn_ctx *cx = o->owned.cx;
    if (!loss && cx->fault.code) return (tn_status)cx->fault.code;
    if (!loss) return tni_fail_status(cx, TN_EARG, "step: the loss is NULL");
    if (!tni_arg1("step", loss, "loss")) return tni_failed();
    if (loss->cx != cx)
        return tni_fail_status(cx, TN_EARG, "step: the loss belongs to another context");
    if (tn_count(loss) != 1)
        return tni_fail_status(cx, TN_ESHAPE, "step: the loss %s is not one element",
                               tni_shape_of(loss).s);
    if (!tn_needs_grad(loss))
        return tni_fail_status(cx, TN_EGRAD, "step: the loss depends on no parameter");
    return tni_resolve(loss, "step") ? TN_OK : tni_failed();
}

// One evaluation computes the whole step: the forward pass that made the loss, the backward pass
// and the update, which is what lets the planner fuse them and reuse memory between them.
tn_status tn_step(tn_optim *o, tn_tensor *loss)
{
    if (!o && loss && tni_arg1("step", loss, "loss") && !loss->cx->fault.code)
        return tni_fail_status(loss->cx, TN_EARG, "step: the optimizer is NULL");
    tn_ctx *cx = tni_record_ready("step", o);
    if (!cx || !takes_gradient("step", o)) return tni_failed();
    tn_status status = check_loss(o, loss);
    if (status != TN_OK && tn_dist_size(o->dist) > 1) tni_dist_fail(o->dist);
    if (status != TN_OK) return status;
    tn_scope *s = tni_record_begin(cx);
    if (!s) return tni_record_give_up(o);
    step_target   a    = { .o = o };
    tni_walk_args w    = { .op = "step", .ny = 1, .y = &loss, .accepts = accept_leaf, .user = &a };
    bool          last = o->micro + 1 >= o->accumulate, scaled = o->scaling[TNI_SCALE] != NULL;
    tn_tensor    *seed = scaled ? tni_scaling_seed(o, loss) : NULL;
    w.gy               = scaled ? &seed : NULL;
    bool ok            = (!scaled || seed) && tni_grad_walk(cx, &w, true) == TN_OK;
    if (ok && a.found && last) ok = record_update(o, o->accumulate) && clear_gradients(o);
    tni_record_end(s);
    if (!ok) return tni_record_give_up(o);
    if (!a.found)
        return tni_fail_status(cx, TN_EGRAD,
                               "step: the loss depends on none of the optimizer's parameters");
    o->micro = last ? 0 : o->micro + 1;
    status   = tni_evaluate(cx, TNI_STEP, NULL);
    return status == TN_OK || status == TN_ESTOP ? status : tni_record_give_up(o);
}

// Gradients may have come from anywhere; only the update is recorded, and evaluated when something
// is read or the next step is taken.
tn_status tn_optim_step(tn_optim *o)
{
    tn_ctx *cx = tni_record_ready("optim_step", o);
    if (!cx || !takes_gradient("optim_step", o)) return tni_failed();
    tn_scope *s  = tni_record_begin(cx);
    bool      ok = s && record_update(o, 1);
    if (s) tni_record_end(s);
    return ok ? TN_OK : tni_record_give_up(o);
}

// ---- gradients ---------------------------------------------------------------------------------

void tn_optim_zero_grad(tn_optim *o)
{
    if (tni_owned_ok("optim_zero_grad", o, TNI_OPTIM)) clear_gradients(o);
}
