// Adam, and AdamW, which has decoupled weight decay.
#include "optim/optim.h"

#include <math.h>

// Returns 1 - beta^t on the device, by expm1, which keeps the digits of a small difference.
static tn_tensor *correction(const tni_update *u, double beta)
{
    return tn_neg(tn_expm1(tn_mul_s(u->counted, log(beta))));
}

// Returns p - lr / c1 * m / (sqrt(v) / c2 + eps), where c1 and c2 correct for m and v starting from
// zeros. Numerator and denominator are multiplied by c2, which saves a division for
// each element. Under loss scaling only the device knows the number of updates.
static tn_tensor *descend(const tn_optim *o, tni_update *u, tn_tensor *p, tn_tensor *g)
{
    tn_tensor *m = u->next[0] = tni_average(u->state[0], g, o->beta1);
    tn_tensor *v = u->next[1] = tni_average(u->state[1], tn_square(g), o->beta2);
    tn_tensor *root           = tn_sqrt(v);
    if (u->counted) {
        tn_tensor *c1 = correction(u, o->beta1), *c2 = tn_sqrt(correction(u, o->beta2));
        tn_tensor *d = tn_div(m, tn_add(root, tn_mul_s(c2, o->eps)));
        return tn_sub(p, tn_mul(d, tn_mul_s(tn_div(c2, c1), u->lr)));
    }
    double c1 = 1 - pow(o->beta1, (double)u->t), c2 = sqrt(1 - pow(o->beta2, (double)u->t));
    return tn_sub(p, tn_mul_s(tn_div(m, tn_add_s(root, o->eps * c2)), u->lr * c2 / c1));
}

// Adam's weight decay is part of the gradient, as in PyTorch's Adam.
static tn_tensor *update_adam(const tn_optim *o, tni_update *u)
{
    return descend(o, u, u->p, tni_decayed(u));
}

// AdamW shrinks the parameter itself, before the step.
static tn_tensor *update_adamw(const tn_optim *o, tni_update *u)
{
    tn_tensor *p = u->p;
    if (u->weight_decay > 0) p = tn_mul_s(p, 1 - u->lr * u->weight_decay);
    return descend(o, u, p, u->g);
}

static const tni_update_rule adam = {
    "adam", { "exp_avg", "exp_avg_sq" }, update_adam, NULL, { "beta1", "beta2", "eps" }
};
static const tni_update_rule adamw = {
    "adamw", { "exp_avg", "exp_avg_sq" }, update_adamw, NULL, { "beta1", "beta2", "eps" }
};

// Both rules have the same options and defaults, except for the weight decay.
static tn_optim *make_adam(const tni_update_rule *rule, tn_layer *net, tn_adamw_opts o,
                           double weight_decay)
{
    return tni_optim_make(rule->name, net,
                          &(tn_optim){ .rule         = rule,
                                       .lr           = tni_option(o.lr, 1e-3),
                                       .beta1        = tni_option(o.beta1, 0.9),
                                       .beta2        = tni_option(o.beta2, 0.999),
                                       .eps          = tni_option(o.eps, 1e-8),
                                       .weight_decay = tni_option(o.weight_decay, weight_decay),
                                       .clip_norm    = tni_option(o.clip_norm, 0),
                                       .clip_value   = tni_option(o.clip_value, 0),
                                       .no_master    = o.no_master,
                                       .accumulate   = o.accumulate,
                                       .schedule     = o.schedule,
                                       TNI_SCALING_OF(o) });
}

tn_optim *tn_adam(tn_layer *net, tn_adam_opts o)
{
    return make_adam(&adam, net, o, 0);
}

tn_optim *tn_adamw(tn_layer *net, tn_adamw_opts o)
{
    return make_adam(&adamw, net, o, 1e-2);
}
