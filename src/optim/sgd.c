// Stochastic gradient descent: p -= lr * g; with a momentum m, b = m * b + g and p -= lr * b, and
// in Nesterov's form p -= lr * (g + m * b).
#include "optim/optim.h"

// As in PyTorch, the first gradient enters the buffer undamped.
static tn_tensor *damped(const tn_optim *o, const tni_update *u, tn_tensor *g)
{
    tn_tensor *less = tn_mul_s(g, 1 - (u->t > 1 ? o->dampening : 0));
    return u->counted ? tn_where(tn_le_s(u->counted, 1), g, less) : less;
}

static tn_tensor *update_sgd(tn_optim *o, tni_update *u)
{
    tn_tensor *g = tni_decayed(u), *b = u->state[0];
    if (o->momentum > 0) {
        tn_tensor *fresh = o->dampening > 0 ? damped(o, u, g) : g;
        b = u->next[0] = tn_add(tn_mul_s(b, o->momentum), fresh);
        g              = o->nesterov ? tn_add(g, tn_mul_s(b, o->momentum)) : b;
    }
    return tn_sub(u->p, tn_mul_s(g, u->lr));
}

// The buffer exists only with a momentum: plain SGD keeps no state.
static bool has_momentum(const tn_optim *o, const tni_trained *s, int k)
{
    (void)s;
    (void)k;
    return o->momentum > 0;
}

static const tni_update_rule rule = { .name     = "sgd",
                                      .state    = { "momentum_buffer" },
                                      .update   = update_sgd,
                                      .has      = has_momentum,
                                      .settings = { "momentum", "dampening" } };

tn_optim *tn_sgd(tn_layer *net, tn_sgd_opts o)
{
    return tni_optim_make("sgd", net,
                          &(tn_optim){ .rule         = &rule,
                                       .lr           = tni_option(o.lr, 1e-3),
                                       .momentum     = tni_option(o.momentum, 0),
                                       .dampening    = tni_option(o.dampening, 0),
                                       .weight_decay = tni_option(o.weight_decay, 0),
                                       .nesterov     = o.nesterov,
                                       TNI_COMMON_OF(o) });
}
