// The rules with Adam's moments, m of the gradient and v of its square: Adam, AdamW, which has
// decoupled weight decay, NAdam, which looks ahead by the momentum of the next update, and LAMB,
// which scales each parameter's step by its norm.
#include "optim/optim.h"

#include <math.h>

// Returns 1 - beta^t on the device, by expm1, which keeps the digits of a small difference.
static tn_tensor *correction(const tni_update *u, double beta)
{
    return tn_neg(tn_expm1(tn_mul_s(u->counted, log(beta))));
}

// Returns lr / c1 * m / (sqrt(v) / c2 + eps), where c1 and c2 correct for m and v starting from
// zeros. Numerator and denominator are multiplied by c2, which saves a division for
// each element. Under loss scaling only the device knows the number of updates.
static tn_tensor *adam_step(const tn_optim *o, tni_update *u, tn_tensor *g, int first, double lr)
{
    tn_tensor *m = u->next[first] = tni_average(u->state[first], g, o->beta1);
    tn_tensor *v = u->next[first + 1] = tni_average(u->state[first + 1], tn_square(g), o->beta2);
    tn_tensor *root                   = tn_sqrt(v);
    if (u->counted) {
        tn_tensor *c1 = correction(u, o->beta1), *c2 = tn_sqrt(correction(u, o->beta2));
        tn_tensor *d = tn_div(m, tn_add(root, tn_mul_s(c2, o->eps)));
        return tn_mul(d, tn_mul_s(tn_div(c2, c1), lr));
    }
    double c1 = 1 - pow(o->beta1, (double)u->t), c2 = sqrt(1 - pow(o->beta2, (double)u->t));
    return tn_mul_s(tn_div(m, tn_add_s(root, o->eps * c2)), lr * c2 / c1);
}

// Adam's weight decay is part of the gradient, as in PyTorch's Adam.
static tn_tensor *update_adam(tn_optim *o, tni_update *u)
{
    return tn_sub(u->p, adam_step(o, u, tni_decayed(u), 0, u->lr));
}

// AdamW shrinks the parameter itself, before the step.
tn_tensor *tni_update_adamw(const tn_optim *o, tni_update *u, int first)
{
    return tn_sub(tni_shrunk(u), adam_step(o, u, u->g, first, u->lr));
}

static tn_tensor *update_adamw(tn_optim *o, tni_update *u)
{
    return tni_update_adamw(o, u, 0);
}

// Returns the momentum of update t in NAdam, which rises to beta1.
static double nadam_momentum(const tn_optim *o, int64_t t)
{
    return o->beta1 * (1 - 0.5 * pow(0.96, (double)t * o->decay));
}

// Returns the product of the momenta of the first t updates. It is continued from the last one
// asked for, as all parameters but those that missed an update ask for the same.
static double nadam_product(tn_optim *o, int64_t t)
{
    if (o->factors > t || o->factors == 0) o->factors = 0, o->product = 1;
    while (o->factors < t) o->product *= nadam_momentum(o, ++o->factors);
    return o->product;
}

// p - lr * ((1 - mu) / (1 - product) * g + mu' / (1 - product * mu') * m) / (sqrt(v) / c2 + eps),
// where mu' is the momentum of the next update.
static tn_tensor *update_nadam(tn_optim *o, tni_update *u)
{
    double     mu = nadam_momentum(o, u->t), next = nadam_momentum(o, u->t + 1);
    double     product = nadam_product(o, u->t), c2 = sqrt(1 - pow(o->beta2, (double)u->t));
    tn_tensor *g = tni_decayed(u);
    tn_tensor *m = u->next[0] = tni_average(u->state[0], g, o->beta1);
    tn_tensor *v = u->next[1] = tni_average(u->state[1], tn_square(g), o->beta2);
    tn_tensor *ahead          = tn_add(tn_mul_s(g, u->lr * c2 * (1 - mu) / (1 - product)),
                                       tn_mul_s(m, u->lr * c2 * next / (1 - product * next)));
    return tn_sub(u->p, tn_div(ahead, tn_add_s(tn_sqrt(v), o->eps * c2)));
}

static tn_tensor *norm_of(tn_tensor *x)
{
    return tn_sqrt(tn_sum_all(tn_square(x)));
}

// The step r, Adam's with the decay, is scaled to the length lr * |p|; to lr * |r| if one of the
// two is 0.
static tn_tensor *update_lamb(tn_optim *o, tni_update *u)
{
    tn_tensor *r = adam_step(o, u, u->g, 0, 1);
    if (u->weight_decay > 0) r = tn_add(r, tn_mul_s(u->p, u->weight_decay));
    tn_tensor *a = norm_of(u->p), *b = norm_of(r);
    tn_tensor *both  = tn_logical_and(tn_gt_s(a, 0), tn_gt_s(b, 0));
    tn_tensor *trust = tn_where(both, tn_div(a, b), tn_ones_like(a));
    return tn_sub(u->p, tn_mul(r, tn_mul_s(trust, u->lr)));
}

static const tni_update_rule adam  = { .name     = "adam",
                                       .state    = { "exp_avg", "exp_avg_sq" },
                                       .update   = update_adam,
                                       .settings = { "beta1", "beta2", "eps" } };
static const tni_update_rule adamw = { .name     = "adamw",
                                       .state    = { "exp_avg", "exp_avg_sq" },
                                       .update   = update_adamw,
                                       .settings = { "beta1", "beta2", "eps" } };
static const tni_update_rule nadam = { .name     = "nadam",
                                       .state    = { "exp_avg", "exp_avg_sq" },
                                       .update   = update_nadam,
                                       .settings = { "beta1", "beta2", "eps" } };
static const tni_update_rule lamb  = { .name     = "lamb",
                                       .state    = { "exp_avg", "exp_avg_sq" },
                                       .update   = update_lamb,
                                       .settings = { "beta1", "beta2", "eps" },
                                       .whole    = true };

// The rules have the same options and defaults, except for the weight decay and eps.
static tn_optim *make_adam(const tni_update_rule *rule, tn_layer *net, tn_adamw_opts o,
                           double weight_decay, double eps)
{
    return tni_optim_make(rule->name, net,
                          &(tn_optim){ .rule         = rule,
                                       .lr           = tni_option(o.lr, 1e-3),
                                       .beta1        = tni_option(o.beta1, 0.9),
                                       .beta2        = tni_option(o.beta2, 0.999),
                                       .eps          = tni_option(o.eps, eps),
                                       .weight_decay = tni_option(o.weight_decay, weight_decay),
                                       TNI_COMMON_OF(o) });
}

tn_optim *tn_adam(tn_layer *net, tn_adam_opts o)
{
    return make_adam(&adam, net, o, 0, 1e-8);
}

tn_optim *tn_adamw(tn_layer *net, tn_adamw_opts o)
{
    return make_adam(&adamw, net, o, 1e-2, 1e-8);
}

tn_optim *tn_lamb(tn_layer *net, tn_lamb_opts o)
{
    return make_adam(&lamb, net, o, 1e-2, 1e-6);
}

// The product of momenta is known to the host, which does not know what loss scaling skips.
tn_optim *tn_nadam(tn_layer *net, tn_nadam_opts o)
{
    tn_ctx *cx = tni_owned_ok("nadam", net, TNI_LAYER);
    if (cx && o.loss_scale > 0)
        return tni_fail(cx, TN_EARG,
                        "nadam: loss_scale %g: NAdam counts updates on the host, and cannot skip "
                        "one; use adam, or train in bf16, which needs no loss_scale",
                        o.loss_scale);
    return tni_optim_make("nadam", net,
                          &(tn_optim){ .rule         = &nadam,
                                       .lr           = tni_option(o.lr, 2e-3),
                                       .beta1        = tni_option(o.beta1, 0.9),
                                       .beta2        = tni_option(o.beta2, 0.999),
                                       .eps          = tni_option(o.eps, 1e-8),
                                       .decay        = tni_option(o.momentum_decay, 4e-3),
                                       .weight_decay = tni_option(o.weight_decay, 0),
                                       TNI_COMMON_OF(o) });
}
