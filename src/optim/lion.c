// Lion: each element moves by lr, in the direction of an average of gradients in which the newest
// counts for more than in the average that is kept. Weight decay is decoupled, as AdamW's.
#include "optim/optim.h"

static tn_tensor *update_lion(tn_optim *o, tni_update *u)
{
    tn_tensor *direction = tn_sign(tni_average(u->state[0], u->g, o->beta1));
    u->next[0]           = tni_average(u->state[0], u->g, o->beta2);
    return tn_sub(tni_shrunk(u), tn_mul_s(direction, u->lr));
}

static const tni_update_rule rule = {
    .name = "lion", .state = { "exp_avg" }, .update = update_lion, .settings = { "beta1", "beta2" }
};

tn_optim *tn_lion(tn_layer *net, tn_lion_opts o)
{
    return tni_optim_make("lion", net,
                          &(tn_optim){ .rule         = &rule,
                                       .lr           = tni_option(o.lr, 1e-4),
                                       .beta1        = tni_option(o.beta1, 0.9),
                                       .beta2        = tni_option(o.beta2, 0.99),
                                       .weight_decay = tni_option(o.weight_decay, 0),
                                       TNI_COMMON_OF(o) });
}
