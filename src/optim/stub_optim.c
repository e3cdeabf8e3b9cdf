// Not written yet.
#include <tenon.h>

tn_optim *tn_sgd(tn_layer *net, tn_sgd_opts o)
{
    (void)net;
    (void)o;
    return NULL;
}

tn_optim *tn_adam(tn_layer *net, tn_adam_opts o)
{
    (void)net;
    (void)o;
    return NULL;
}

tn_optim *tn_adamw(tn_layer *net, tn_adamw_opts o)
{
    (void)net;
    (void)o;
    return NULL;
}

tn_optim *tn_rmsprop(tn_layer *net, tn_rmsprop_opts o)
{
    (void)net;
    (void)o;
    return NULL;
}

tn_status tn_optim_group(tn_optim *o, const char *names, float lr_scale, float weight_decay)
{
    (void)o;
    (void)names;
    (void)lr_scale;
    (void)weight_decay;
    return TN_EARG;
}

tn_status tn_step(tn_optim *o, tn_tensor *loss)
{
    (void)o;
    (void)loss;
    return TN_EARG;
}

tn_status tn_optim_step(tn_optim *o)
{
    (void)o;
    return TN_EARG;
}

void tn_optim_zero_grad(tn_optim *o)
{
    (void)o;
}

tn_tensor *tn_optim_clip_norm(tn_optim *o, double max)
{
    (void)o;
    (void)max;
    return NULL;
}

tn_status tn_optim_clip_value(tn_optim *o, double max)
{
    (void)o;
    (void)max;
    return TN_EARG;
}

double tn_optim_lr(const tn_optim *o)
{
    (void)o;
    return 0;
}

void tn_optim_set_lr(tn_optim *o, double lr)
{
    (void)o;
    (void)lr;
}

int64_t tn_optim_updates(const tn_optim *o)
{
    (void)o;
    return 0;
}

void tn_optim_free(tn_optim *o)
{
    (void)o;
}
