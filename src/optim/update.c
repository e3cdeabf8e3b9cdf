// Recording updates. Parameters that agree are updated as one flat tensor: their values, gradients
// and state are joined, the rule runs once, and each is assigned its part of the result. The planner
// gives the parts of a result adjacent memory, so that joining them the next time copies nothing.
#include "optim/optim.h"
#include "ops/compose.h"

// ---- batches -----------------------------------------------------------------------------------

// What can be joined and assigned of a batch: a state by its number, or one of these.
enum { PARAM = TNI_STATES, GRAD };

static tn_tensor *tensor_of(const tni_slot *s, int what)
{
    if (what == PARAM) return s->p;
    return what == GRAD ? s->p->leaf->grad : s->state[what];
}

// The tensors of a batch as one of one axis; of a batch of one as it is.
static tn_tensor *join(const tn_optim *o, const tni_batch *b, int what)
{
    for (size_t i = 0; i < b->count; i++) {
        o->list[i] = tensor_of(o->order[b->first + i], what);
        if (b->count == 1) break;
        o->list[i] = tn_reshape(o->list[i], 1, (int64_t[]){ tn_count(o->list[i]) });
        if (!o->list[i]) return NULL;
    }
    return b->count == 1 ? o->list[0] : tn_concat((int)b->count, o->list, 0);
}

tn_tensor *tni_slot_state(tni_slot *s, int k)
{
    if (s->state[k]) return s->state[k];
    tn_tensor *t = tn_zeros_like(s->p);
    if (!t) return NULL;
    tni_tensor_own(t);
    s->state[k] = t;
    return t;
}

// Assigns each slot of a batch its part of y.
static bool spread(const tn_optim *o, const tni_batch *b, int what, tn_tensor *y)
{
    int64_t at = 0;
    for (size_t i = 0; i < b->count; i++) {
        tni_slot  *s    = o->order[b->first + i];
        tn_tensor *t    = what < TNI_STATES ? tni_slot_state(s, what) : tensor_of(s, what);
        tn_tensor *part = y;
        int64_t    n    = tn_count(s->p);
        if (b->count > 1) {
            part = tn_slice(y, 0, at, at + n, 1);
            part = part ? tn_reshape(part, tn_rank(s->p), tni_sizes(s->p)) : NULL;
        }
        if (!t || !part || !tn_assign(t, part)) return false;
        at += n;
    }
    return true;
}

static bool agree(const tni_slot *a, const tni_slot *b)
{
    return tn_dtype_of(a->p) == tn_dtype_of(b->p) && a->lr_scale == b->lr_scale &&
           a->weight_decay == b->weight_decay && a->updates == b->updates;
}

// Sorts the slots that have a gradient into batches, in their order, and joins the gradients.
static bool make_batches(tn_optim *o)
{
    size_t at  = 0;
    o->batches = 0;
    for (size_t i = 0; i < o->slots; i++) {
        tni_slot *s = &o->slot[i];
        s->taken    = !tni_slot_grad(s) || tn_count(s->p) == 0;
    }
    for (size_t i = 0; i < o->slots; i++) {
        if (o->slot[i].taken) continue;
        tni_batch *b = &o->batch[o->batches++];
        *b           = (tni_batch){ .first = at };
        for (size_t j = i; j < o->slots; j++) {
            if (o->slot[j].taken || !agree(&o->slot[i], &o->slot[j])) continue;
            o->slot[j].taken = true;
            o->order[at++]   = &o->slot[j];
            b->count++;
        }
        if (!(b->g = join(o, b, GRAD))) return false;
    }
    return true;
}

// ---- clipping ----------------------------------------------------------------------------------

// The common norm of all gradients in the batches, not yet computed: f64 where one of them is, else
// f32.
static tn_tensor *total_norm(const tn_optim *o)
{
    tn_dtype   dt  = TN_F32;
    tn_tensor *sum = NULL;
    for (size_t i = 0; i < o->batches; i++)
        if (tn_dtype_of(o->batch[i].g) == TN_F64) dt = TN_F64;
    for (size_t i = 0; i < o->batches; i++) {
        tn_tensor *one = tn_sum_all(tn_square(tni_widen(o->batch[i].g)));
        if (one && tn_dtype_of(one) != dt) one = tn_cast(one, dt);
        if (!one) return NULL;
        sum = sum ? tn_add(sum, one) : one;
    }
    return sum ? tn_sqrt(sum) : tn_zeros(o->thing.cx, TN_F32, TN_0D);
}

// What brings gradients of that norm down to max: min(1, max / norm), as PyTorch computes it.
static tn_tensor *clip_factor(tn_tensor *norm, double max)
{
    return tn_minimum_s(tn_rdiv_s(tn_add_s(norm, 1e-6), max), 1);
}

// y = x * factor, where the factor's dtype gives way.
static tn_tensor *scale(tn_tensor *x, tn_tensor *factor)
{
    if (x && factor && tn_dtype_of(factor) != tn_dtype_of(x))
        factor = tn_cast(factor, tn_dtype_of(x));
    return tn_mul(x, factor);
}

// The gradients as the rule takes them: averaged over the accumulated steps, clipped by norm, then
// by value. Average and norm are one factor, so that they are one pass over the gradients.
static bool prepare_gradients(const tn_optim *o, int64_t steps)
{
    double     share  = 1.0 / (double)steps;
    tn_tensor *factor = NULL;
    if (o->clip_norm > 0 && o->batches) {
        factor = clip_factor(tn_mul_s(total_norm(o), share), o->clip_norm);
        factor = tn_mul_s(factor, share);
        if (!factor) return false;
    }
    for (size_t i = 0; i < o->batches; i++) {
        tn_tensor *g = tni_widen(o->batch[i].g);
        if (factor) g = scale(g, factor);
        else if (steps > 1) g = tn_mul_s(g, share);
        if (o->clip_value > 0) g = tn_clamp(g, -o->clip_value, o->clip_value);
        if (!(o->batch[i].g = g)) return false;
    }
    return true;
}

// ---- rules -------------------------------------------------------------------------------------

tn_tensor *tni_average(tn_tensor *old, tn_tensor *x, double keep)
{
    tn_tensor *fresh = tn_mul_s(x, 1 - keep);
    return old ? tn_add(tn_mul_s(old, keep), fresh) : fresh;
}

tn_tensor *tni_decayed(const tni_update *u)
{
    return u->weight_decay > 0 ? tn_add(u->g, tn_mul_s(u->p, u->weight_decay)) : u->g;
}

// Counts the update that is about to be recorded. Nodes from here on are younger than since; where
// the updates before it are computed, they stay if this one fails.
static void count_update(tn_optim *o)
{
    tn_ctx *cx = o->thing.cx;
    for (size_t i = 0; i < o->batches; i++) {
        for (size_t j = 0; j < o->batch[i].count; j++) {
            tni_slot        *s     = o->order[o->batch[i].first + j];
            const tni_store *store = s->p->store;
            const tni_node  *done  = store->node->state == TNI_DONE ? store->node : store->done;
            if (!done || done->id >= s->since) {
                s->since  = cx->next_id;
                s->before = s->updates;
            }
            s->updates++;
        }
    }
    o->updates++;
}

static bool update_batch(const tn_optim *o, const tni_batch *b, double lr)
{
    const tni_slot *s  = o->order[b->first];
    tn_dtype        dt = tn_dtype_of(s->p);
    tni_update      u  = { .p            = tni_widen(join(o, b, PARAM)),
                           .g            = b->g,
                           .lr           = lr * s->lr_scale,
                           .weight_decay = s->weight_decay,
                           .t            = s->updates };
    for (int k = 0; k < TNI_STATES; k++)
        if (s->state[k] && !(u.state[k] = tni_widen(join(o, b, k)))) return false;
    tn_tensor *p = u.p ? tni_narrow(o->rule->update(o, &u), dt) : NULL;
    if (!p) return false;
    for (int k = 0; k < TNI_STATES; k++)
        if (u.next[k] && !spread(o, b, k, tni_narrow(u.next[k], dt))) return false;
    return spread(o, b, PARAM, p);
}

// The gradients are the sums of so many steps.
static bool record_update(tn_optim *o, int64_t steps)
{
    if (!make_batches(o) || !prepare_gradients(o, steps)) return false;
    if (!o->batches) return true;
    double lr = tn_optim_lr(o);
    count_update(o);
    for (size_t i = 0; i < o->batches; i++)
        if (!update_batch(o, &o->batch[i], lr)) return false;
    return true;
}

// ---- recording as a whole ----------------------------------------------------------------------

// Recording stands in a scope of its own, without gradients and without a flush in between, so that
// nothing of it is computed before all of it is there. NULL, reported, on failure.
static tn_scope *begin(tn_ctx *cx)
{
    tn_scope *s = tn_begin(cx);
    if (!s) return NULL;
    cx->grad_mode = false;
    cx->busy      = true;
    return s;
}

static void end(tn_scope *s)
{
    s->cx->busy = false;
    tni_scope_close(s);
}

// The context of an optimizer that can record now; NULL, reported, else.
static tn_ctx *ready(const char *op, const tn_optim *o)
{
    tn_ctx *cx = tni_thing_ok(op, o, TNI_OPTIM);
    if (!cx || !cx->busy) return cx;
    return tni_fail(cx, TN_EARG, "%s: a tn_ call is in progress", op);
}

static bool clear_gradients(tn_optim *o)
{
    uint64_t failures = o->thing.cx->failures;
    for (size_t i = 0; i < o->slots; i++)
        if (tn_has_grad(o->slot[i].p)) tn_zero_grad(o->slot[i].p);
    return o->thing.cx->failures == failures;
}

// Something failed, of which the error tells: all stores and counts go back, and the gradients,
// which may be of any step by now, are forgotten.
static tn_status give_up(tn_optim *o)
{
    tn_status status = tni_failed();
    tni_roll_back(o->thing.cx);
    clear_gradients(o);
    o->micro = 0;
    return status;
}

// ---- steps -------------------------------------------------------------------------------------

// Whose gradients a walk is for, and whether it found one of them.
typedef struct {
    const tn_optim *o;
    bool            found;
} aim;

static bool accepts(const tni_leaf *l, void *user)
{
    aim *a = user;
    for (size_t i = 0; i < a->o->slots; i++)
        if (a->o->slot[i].p == l->handle) return a->found = true;
    return false;
}

static tn_status check_loss(const tn_optim *o, tn_tensor *loss)
{
    tn_ctx *cx = o->thing.cx;
    if (!loss && cx->fault.code) return (tn_status)cx->fault.code;
    if (!loss) return tni_fail_status(cx, TN_EARG, "step: the loss is NULL");
    if (!tni_arg1("step", loss, "loss")) return tni_failed();
    if (loss->cx != cx)
        return tni_fail_status(cx, TN_EARG, "step: the loss belongs to another context");
    if (tn_count(loss) != 1)
        return tni_fail_status(cx, TN_ESHAPE, "step: the loss %s is not one element",
                               tni_shape_of(loss).s);
    if (!tn_needs_grad(loss))
        return tni_fail_status(cx, TN_EGRAD, "step: the loss was made from no parameter");
    return tni_resolve(loss, "step") ? TN_OK : tni_failed();
}

static tn_status step(tn_optim *o, tn_tensor *loss)
{
    if (!o && loss && tni_arg1("step", loss, "loss") && !loss->cx->fault.code)
        return tni_fail_status(loss->cx, TN_EARG, "step: the optimizer is NULL");
    tn_ctx *cx = ready("step", o);
    if (!cx) return tni_failed();
    tn_status status = check_loss(o, loss);
    if (status != TN_OK) return status;
    tn_scope *s = begin(cx);
    if (!s) return give_up(o);
    aim      a    = { .o = o };
    tni_walk w    = { .op = "step", .ny = 1, .y = &loss, .accepts = accepts, .user = &a };
    bool     last = o->micro + 1 >= o->accumulate;
    bool     ok   = tni_grad_walk(cx, &w, true) == TN_OK;
    if (ok && a.found && last) ok = record_update(o, o->accumulate) && clear_gradients(o);
    end(s);
    if (!ok) return give_up(o);
    if (!a.found)
        return tni_fail_status(cx, TN_EGRAD,
                               "step: the loss was made from none of the optimizer's parameters");
    o->micro = last ? 0 : o->micro + 1;
    return tni_evaluate(cx, TNI_STEP, NULL) == TN_OK ? TN_OK : give_up(o);
}

// The public functions stand in a frame, also when they are called without a site, so that a handler
// that jumps finds nothing half way.
tn_status tn_step(tn_optim *o, tn_tensor *loss)
{
    tni_enter(tni_self.site);
    tn_status status = step(o, loss);
    tni_leave(false, NULL);
    return status;
}

static tn_status update_alone(tn_optim *o)
{
    tn_ctx *cx = ready("optim_step", o);
    if (!cx) return tni_failed();
    tn_scope *s  = begin(cx);
    bool      ok = s && record_update(o, 1);
    if (s) end(s);
    return ok ? TN_OK : give_up(o);
}

tn_status tn_optim_step(tn_optim *o)
{
    tni_enter(tni_self.site);
    tn_status status = update_alone(o);
    tni_leave(false, NULL);
    return status;
}

// ---- gradients ---------------------------------------------------------------------------------

void tn_optim_zero_grad(tn_optim *o)
{
    if (tni_thing_ok("optim_zero_grad", o, TNI_OPTIM)) clear_gradients(o);
}

// Records the gradients scaled to the norm at most, or (norm NULL) cut to the value at most.
static bool record_clip(tn_optim *o, double max, tn_tensor **norm)
{
    if (!make_batches(o)) return false;
    tn_tensor *factor = NULL;
    if (norm && !(factor = clip_factor(*norm = total_norm(o), max))) return false;
    for (size_t i = 0; i < o->batches; i++) {
        const tni_batch *b = &o->batch[i];
        tn_tensor       *g = tni_widen(b->g);
        g                  = norm ? scale(g, factor) : tn_clamp(g, -max, max);
        g                  = tni_narrow(g, tn_dtype_of(b->g));
        if (!g || !spread(o, b, GRAD, g)) return false;
    }
    return true;
}

static tn_status clip(const char *op, tn_optim *o, double max, tn_tensor **norm)
{
    tn_ctx *cx = ready(op, o);
    if (!cx) return tni_failed();
    if (!(max >= 0)) return tni_fail_status(cx, TN_EARG, "%s: max %g is not from 0 on", op, max);
    tn_scope *s  = begin(cx);
    bool      ok = s && record_clip(o, max, norm);
    if (ok && norm) {
        tni_scope_remove(*norm);
        tni_scope_add(s->outer, *norm);
    }
    if (s) end(s);
    return ok ? TN_OK : give_up(o);
}

tn_tensor *tn_optim_clip_norm(tn_optim *o, double max)
{
    tn_tensor *norm = NULL;
    tni_enter(tni_self.site);
    if (clip("optim_clip_norm", o, max, &norm) != TN_OK) norm = NULL;
    tni_leave(true, norm);
    return norm;
}

tn_status tn_optim_clip_value(tn_optim *o, double max)
{
    tni_enter(tni_self.site);
    tn_status status = clip("optim_clip_value", o, max, NULL);
    tni_leave(false, NULL);
    return status;
}
