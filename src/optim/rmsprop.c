// RMSprop: p -= lr * g / (sqrt(v) + eps), where v is the running mean of g * g; centered, the
// running variance of g; with a momentum, the steps are accumulated as SGD's are.
#include "optim/optim.h"

// As PyTorch computes it: eps is added after the square root, and weight decay is part of the
// gradient.
static tn_tensor *update_rmsprop(tn_optim *o, tni_update *u)
{
    tn_tensor *g = tni_decayed(u);
    tn_tensor *v = u->next[0] = tni_average(u->state[0], tn_square(g), o->alpha);
    if (o->centered) {
        tn_tensor *mean = u->next[1] = tni_average(u->state[1], g, o->alpha);
        v                            = tn_sub(v, tn_square(mean));
    }
    tn_tensor *d = tn_div(g, tn_add_s(tn_sqrt(v), o->eps));
    if (o->momentum > 0) d = u->next[2] = tn_add(tn_mul_s(u->state[2], o->momentum), d);
    return tn_sub(u->p, tn_mul_s(d, u->lr));
}

// The mean of gradients is kept if centered, the momentum buffer if there is a momentum.
static bool has_moment(const tn_optim *o, const tni_trained *s, int k)
{
    (void)s;
    return k == 0 || (k == 1 ? o->centered : o->momentum > 0);
}

static const tni_update_rule rule = { .name     = "rmsprop",
                                      .state    = { "square_avg", "grad_avg", "momentum_buffer" },
                                      .update   = update_rmsprop,
                                      .has      = has_moment,
                                      .settings = { "alpha", "eps", "momentum" } };

tn_optim *tn_rmsprop(tn_layer *net, tn_rmsprop_opts o)
{
    return tni_optim_make("rmsprop", net,
                          &(tn_optim){ .rule         = &rule,
                                       .lr           = tni_option(o.lr, 1e-2),
                                       .alpha        = tni_option(o.alpha, 0.99),
                                       .eps          = tni_option(o.eps, 1e-8),
                                       .momentum     = tni_option(o.momentum, 0),
                                       .weight_decay = tni_option(o.weight_decay, 0),
                                       .centered     = o.centered,
                                       TNI_COMMON_OF(o) });
}
