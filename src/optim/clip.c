// Averaging and clipping gradients: as part of an update, and alone.
#include "optim/update.h"
#include "ops/composite.h"

// Records the norm of all gradients together: f64 if one of them is, else f32, since squares of f16
// overflow. Each block is one sum, so a model has a handful of them whatever its number of
// parameters. parts: this rank has gradients of its parts alone.
static tn_tensor *total_norm(const tn_optim *o, bool parts)
{
    tn_dtype   dt  = TN_F32;
    tn_tensor *sum = NULL;
    for (size_t i = 0; i < o->flats; i++)
        if (o->flat[i].g && tn_dtype_of(o->flat[i].g) == TN_F64) dt = TN_F64;
    for (size_t i = 0; i < o->flats; i++) {
        if (!o->flat[i].g) continue;
        tn_tensor *one = tn_sum_all(tn_square(tni_widen(o->flat[i].g)));
        if (one && tn_dtype_of(one) != dt) one = tn_cast(one, dt);
        sum = one && sum ? tn_add(sum, one) : one;
        if (!sum) return NULL;
    }
    if (sum && parts) sum = tn_dist_all_reduce(o->dist, sum, TN_REDUCE_SUM);
    return sum ? tn_sqrt(sum) : tn_zeros(o->owned.cx, TN_F32, TN_0D);
}

// Returns min(1, max / (norm + 1e-6)): the factor, and the small number that keeps a norm of 0 from
// dividing, are PyTorch's.
static tn_tensor *clip_factor(tn_tensor *norm, double max)
{
    return tn_minimum_s(tn_rdiv_s(tn_add_s(norm, 1e-6), max), 1);
}

// Multiplies in the gradient's dtype.
static tn_tensor *scale_gradient(tn_tensor *x, tn_tensor *factor)
{
    if (x && factor && tn_dtype_of(factor) != tn_dtype_of(x))
        factor = tn_cast(factor, tn_dtype_of(x));
    return tn_mul(x, factor);
}

// Scales the gradient of one parameter so that its own norm is at most max.
static tn_tensor *clip_each(tn_tensor *g, double max)
{
    tn_tensor *norm = g ? tn_sqrt(tn_sum_all(tn_square(g))) : NULL;
    return norm ? scale_gradient(g, clip_factor(norm, max)) : NULL;
}

// ---- in an update ------------------------------------------------------------------------------

// Returns what all gradients are multiplied with: the mean over accumulated steps, the loss scale
// taken back and the clipping factor as one number, so that together they cost one pass over the
// gradients, which the planner fuses into the update. *factor is NULL if it is only `share`. False,
// reported, on failure.
static bool find_factor(tn_optim *o, double share, tn_tensor **factor)
{
    bool scaled = o->scaling[TNI_SCALE] != NULL, clips = o->clip_norm > 0;
    *factor = o->finite = NULL;
    if (!scaled && !clips && !o->norm) return true;
    tn_tensor *norm = tn_mul_s(total_norm(o, o->shard_state), share);
    if (!norm) return false;
    if (scaled) {
        tn_tensor *inverse = tni_scaling_inverse(o);
        if (!inverse || !tni_scaling_check(o, norm)) return false;
        norm    = tn_mul(norm, inverse);
        *factor = tn_mul_s(inverse, share);
    }
    if (o->norm && !tn_assign(o->norm, tn_cast(norm, TN_F32))) return false;
    if (!scaled && !clips) return true;
    if (clips) {
        tn_tensor *clip = clip_factor(norm, o->clip_norm);
        *factor         = scaled ? tn_mul(*factor, clip) : tn_mul_s(clip, share);
    }
    return *factor != NULL;
}

bool tni_gradients_prepare(tn_optim *o, int64_t steps)
{
    double     share = 1.0 / ((double)steps * tn_dist_size(o->dist));
    tn_tensor *factor;
    if (!tni_gradients_sum_ranks(o) || !find_factor(o, share, &factor)) return false;
    for (size_t i = 0; i < o->flats; i++) {
        if (!o->flat[i].g) continue;
        tn_tensor *g = tni_widen(o->flat[i].g);
        if (factor) g = scale_gradient(g, factor);
        else if (share != 1) g = tn_mul_s(g, share);
        if (o->clip_each > 0) g = clip_each(g, o->clip_each);
        if (o->clip_value > 0) g = tn_clamp(g, -o->clip_value, o->clip_value);
        if (!(o->flat[i].g = g)) return false;
    }
    return true;
}

// ---- alone -------------------------------------------------------------------------------------

// Returns the context of an optimizer whose gradients can be clipped to max now; NULL, reported, if
// they cannot.
static tn_ctx *ready_to_clip(const char *op, const tn_optim *o, double max)
{
    tn_ctx *cx = tni_record_ready(op, o);
    if (!cx || max >= 0) return cx;
    return tni_fail(cx, TN_EARG, "%s: max %g is not a number >= 0", op, max);
}

// Assigns a block's gradients their new values, which were computed in f32 or wider.
static bool assign_gradients(const tn_optim *o, const tni_flat *f, tn_tensor *g)
{
    g = tni_narrow(g, tn_dtype_of(f->g));
    return g && tni_flat_spread(o, f, TNI_GRADIENT, g);
}

// Returns the norm before clipping, still in the scope of the recording; NULL, reported, on
// failure.
static tn_tensor *record_clip_norm(tn_optim *o, double max)
{
    if (!tni_flats_begin(o)) return NULL;
    tn_tensor *norm = total_norm(o, false);
    // Stored gradients are those of the scaled loss; the norm is that of the loss.
    if (o->scaling[TNI_SCALE]) norm = tn_mul(norm, tni_scaling_inverse(o));
    tn_tensor *factor = clip_factor(norm, max);
    if (!factor) return NULL;
    for (size_t i = 0; i < o->flats; i++) {
        const tni_flat *f = &o->flat[i];
        if (f->g && !assign_gradients(o, f, scale_gradient(tni_widen(f->g), factor))) return NULL;
    }
    return norm;
}

// The norm leaves the recording's scope for the caller's; nothing waits for its value.
tn_tensor *tn_optim_clip_norm(tn_optim *o, double max)
{
    tn_ctx *cx = ready_to_clip("optim_clip_norm", o, max);
    if (!cx) return NULL;
    tn_scope  *s    = tni_record_begin(cx);
    tn_tensor *norm = s ? record_clip_norm(o, max) : NULL;
    if (norm) {
        tni_scope_remove(norm);
        tni_scope_add(s->outer, norm);
    }
    if (s) tni_record_end(s);
    if (!norm) tni_record_give_up(o);
    return norm;
}

// It holds data from the beginning, as the tensors of loss scaling do: the first update that writes
// it has the plan of all later ones.
tn_tensor *tn_optim_grad_norm(tn_optim *o)
{
    float   none = NAN;
    tn_ctx *cx   = tni_record_ready("optim_grad_norm", o);
    if (!cx) return NULL;
    if (!o->norm) {
        tn_tensor *t = tn_from(cx, TN_F32, TN_0D, &none);
        if (!t) return NULL;
        tni_tensor_own(t);
        o->norm = t;
    }
    return tni_share(o->norm, "optim_grad_norm");
}

// Limits a gradient to -max .. max, times the loss scale.
static tn_tensor *clamp_gradient(const tn_optim *o, tn_tensor *g, double max)
{
    if (!o->scaling[TNI_SCALE]) return tn_clamp(g, -max, max);
    g = scale_gradient(g, tni_scaling_inverse(o));
    return scale_gradient(tn_clamp(g, -max, max), o->scaling[TNI_SCALE]);
}

static bool record_clip_value(tn_optim *o, double max)
{
    if (!tni_flats_begin(o)) return false;
    for (size_t i = 0; i < o->flats; i++) {
        const tni_flat *f = &o->flat[i];
        if (f->g && !assign_gradients(o, f, clamp_gradient(o, tni_widen(f->g), max))) return false;
    }
    return true;
}

// By slots, not blocks: a block may have several parameters, each with a norm of its own. Stored
// gradients are those of the scaled loss, and so is the norm that they may have.
static bool record_clip_each(tn_optim *o, double max)
{
    tn_tensor *scale = o->scaling[TNI_SCALE], *inverse = scale ? tni_scaling_inverse(o) : NULL;
    for (size_t i = 0; i < o->slots; i++) {
        tn_tensor *g = tni_trained_grad(&o->slot[i]), *y = g ? tni_widen(g) : NULL;
        if (!g) continue;
        if (scale) y = scale_gradient(y, inverse);
        y = clip_each(y, max);
        if (scale) y = scale_gradient(y, scale);
        y = y ? tni_narrow(y, tn_dtype_of(g)) : NULL;
        if (!y || !tn_assign(g, y)) return false;
    }
    return true;
}

// Records a clipping that needs no norm of all gradients: nothing waits for its result.
static tn_status clip_by(const char *op, tn_optim *o, double max,
                         bool (*record)(tn_optim *, double))
{
    tn_ctx *cx = ready_to_clip(op, o, max);
    if (!cx) return tni_failed();
    tn_scope *s  = tni_record_begin(cx);
    bool      ok = s && record(o, max);
    if (s) tni_record_end(s);
    return ok ? TN_OK : tni_record_give_up(o);
}

tn_status tn_optim_clip_each(tn_optim *o, double max)
{
    return clip_by("optim_clip_each", o, max, record_clip_each);
}

tn_status tn_optim_clip_value(tn_optim *o, double max)
{
    return clip_by("optim_clip_value", o, max, record_clip_value);
}
