// Loss scaling: gradients of f16 values underflow, so the loss is multiplied by a large number
// before the backward pass and the gradients are divided by it before the update. The number is
// found by trying: it doubles after many updates in a row whose gradients were finite, and halves
// where they are not; such an update is skipped. All of it is decided on the device, by values of
// the recorded update: nothing waits, and the plan of a step is the same whether it is skipped or
// not.
#include "optim/update.h"
#include "ops/composite.h"

const char *const tni_scaling_name[TNI_SCALING] = { "scale", "since", "skipped" };

// ---- what an optimizer has of it ---------------------------------------------------------------

// The tensors hold data, not constants: then the first step has the plan of all later ones.
bool tni_scaling_open(tn_optim *o)
{
    float      scale = (float)o->loss_scale;
    int64_t    zero  = 0;
    tn_ctx    *cx    = o->owned.cx;
    tn_tensor *t[TNI_SCALING];
    if (!(o->loss_scale > 0)) return true;
    t[TNI_SCALE]   = tn_from(cx, TN_F32, TN_0D, &scale);
    t[TNI_SINCE]   = tn_from(cx, TN_I64, TN_0D, &zero);
    t[TNI_SKIPPED] = tn_from(cx, TN_I64, TN_0D, &zero);
    for (int i = 0; i < TNI_SCALING; i++)
        if (!t[i]) return false;
    for (int i = 0; i < TNI_SCALING; i++) {
        tni_tensor_own(t[i]);
        o->scaling[i] = t[i];
    }
    return true;
}

void tni_scaling_close(tn_optim *o)
{
    for (int i = 0; i < TNI_SCALING; i++)
        if (o->scaling[i]) tni_tensor_disown(o->scaling[i]);
}

tn_tensor *tn_optim_loss_scale(tn_optim *o)
{
    tn_ctx *cx = tni_owned_ok("optim_loss_scale", o, TNI_OPTIM);
    if (!cx) return NULL;
    if (!o->scaling[TNI_SCALE]) return tn_ones(cx, TN_F32, TN_0D);
    return tni_share(o->scaling[TNI_SCALE], "optim_loss_scale");
}

int64_t tn_optim_skipped(tn_optim *o)
{
    if (!tni_owned_ok("optim_skipped", o, TNI_OPTIM) || !o->scaling[TNI_SKIPPED]) return 0;
    return tn_item_i64(o->scaling[TNI_SKIPPED]);
}

// ---- in a recording ----------------------------------------------------------------------------

tn_tensor *tni_scaling_seed(const tn_optim *o, const tn_tensor *loss)
{
    return tn_reshape(o->scaling[TNI_SCALE], tni_rank(loss), tni_sizes(loss));
}

tn_tensor *tni_scaling_inverse(const tn_optim *o)
{
    return tn_reciprocal(o->scaling[TNI_SCALE]);
}

// An infinity or a NaN anywhere makes the norm one.
bool tni_scaling_check(tn_optim *o, tn_tensor *norm)
{
    return (o->finite = tn_isfinite(norm)) != NULL;
}

tn_tensor *tni_scaling_keep(const tn_optim *o, tn_tensor *next, tn_tensor *old)
{
    return o->finite ? tn_where(o->finite, next, old) : next;
}

// Updates that were skipped do not count for a rule, as in PyTorch. They are counted for the
// optimizer, not for each parameter: one that had no gradient in a skipped update is behind by one,
// at least 1.
tn_tensor *tni_scaling_count(const tn_optim *o, int64_t updates)
{
    if (!o->finite) return NULL;
    tn_tensor *t = tn_rsub_i64(o->scaling[TNI_SKIPPED], updates);
    return tn_cast(tn_maximum_i64(t, 1), TN_F32);
}

// As torch.amp.GradScaler does it; a scale that would overflow stays.
bool tni_scaling_update(const tn_optim *o)
{
    tn_tensor *const *s    = o->scaling;
    tn_tensor        *none = tn_full(o->owned.cx, TN_I64, TN_0D, 0);
    tn_tensor *more = tn_mul_s(s[TNI_SCALE], o->scale_growth), *since = tn_add_i64(s[TNI_SINCE], 1);
    tn_tensor *full   = tn_ge_i64(since, o->scale_interval);
    tn_tensor *scale  = tn_where(tn_logical_and(full, tn_isfinite(more)), more, s[TNI_SCALE]);
    scale             = tn_where(o->finite, scale, tn_mul_s(s[TNI_SCALE], o->scale_backoff));
    since             = tn_where(tn_logical_and(o->finite, tn_logical_not(full)), since, none);
    tn_tensor *missed = tn_add(s[TNI_SKIPPED], tn_cast(tn_logical_not(o->finite), TN_I64));
    return tn_assign(s[TNI_SCALE], scale) && tn_assign(s[TNI_SINCE], since) &&
           tn_assign(s[TNI_SKIPPED], missed);
}
