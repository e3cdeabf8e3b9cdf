// Adagrad and Adadelta, which divide the gradient by the root of what they know of its square: the
// sum over all updates, or the running mean.
#include "optim/optim.h"

// p -= lr / (1 + (t - 1) * decay) * g / (sqrt(sum) + eps). Under loss scaling only the device knows
// t.
static tn_tensor *update_adagrad(tn_optim *o, tni_update *u)
{
    tn_tensor *g = tni_decayed(u);
    tn_tensor *v = u->next[0] = tn_add(u->state[0], tn_square(g));
    tn_tensor *d              = tn_div(g, tn_add_s(tn_sqrt(v), o->eps));
    if (!u->counted || o->decay == 0)
        return tn_sub(u->p, tn_mul_s(d, u->lr / (1 + (double)(u->t - 1) * o->decay)));
    tn_tensor *slower = tn_add_s(tn_mul_s(tn_add_s(u->counted, -1), o->decay), 1);
    return tn_sub(u->p, tn_mul(d, tn_rdiv_s(slower, u->lr)));
}

// The step has the unit of p: the root of the mean square of earlier steps over that of gradients,
// times g.
static tn_tensor *update_adadelta(tn_optim *o, tni_update *u)
{
    tn_tensor *g = tni_decayed(u);
    tn_tensor *v = u->next[0] = tni_average(u->state[0], tn_square(g), o->alpha);
    tn_tensor *ratio = tn_div(tn_sqrt(tn_add_s(u->state[1], o->eps)), tn_sqrt(tn_add_s(v, o->eps)));
    tn_tensor *d     = tn_mul(ratio, g);
    u->next[1]       = tni_average(u->state[1], tn_square(d), o->alpha);
    return tn_sub(u->p, tn_mul_s(d, u->lr));
}

static const tni_update_rule adagrad  = { .name     = "adagrad",
                                          .state    = { "sum" },
                                          .update   = update_adagrad,
                                          .settings = { "lr_decay", "eps" } };
static const tni_update_rule adadelta = { .name     = "adadelta",
                                          .state    = { "square_avg", "acc_delta" },
                                          .update   = update_adadelta,
                                          .settings = { "rho", "eps" } };

tn_optim *tn_adagrad(tn_layer *net, tn_adagrad_opts o)
{
    return tni_optim_make("adagrad", net,
                          &(tn_optim){ .rule         = &adagrad,
                                       .lr           = tni_option(o.lr, 1e-2),
                                       .decay        = tni_option(o.lr_decay, 0),
                                       .first        = tni_option(o.initial_accumulator_value, 0),
                                       .eps          = tni_option(o.eps, 1e-10),
                                       .weight_decay = tni_option(o.weight_decay, 0),
                                       TNI_COMMON_OF(o) });
}

tn_optim *tn_adadelta(tn_layer *net, tn_adadelta_opts o)
{
    return tni_optim_make("adadelta", net,
                          &(tn_optim){ .rule         = &adadelta,
                                       .lr           = tni_option(o.lr, 1),
                                       .alpha        = tni_option(o.rho, 0.9),
                                       .eps          = tni_option(o.eps, 1e-6),
                                       .weight_decay = tni_option(o.weight_decay, 0),
                                       TNI_COMMON_OF(o) });
}
