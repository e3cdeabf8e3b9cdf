// Norms: over the channels of a batch or of each item (with running statistics), over the last
// axes, over groups.
#include "nn/builtin.h"

// The state of a norm; every kind uses a part of it. The tensors belong to the layer; those that a
// kind does not have are NULL.
typedef struct {
    tn_tensor *w, *b;
    tn_tensor *mean, *var, *batches;  // running statistics, and how many batches made them
    tn_dist   *dist;                  // whose ranks' items are one batch; NULL: this rank's alone
    double     eps, momentum;
    int        axes;  // how many, from the last
    int64_t    groups;
} norm;

// Makes a layer with a weight of ones and, if asked for, a bias of zeros; NULL, reported, on
// failure.
static tn_layer *make_norm(tn_ctx *cx, const char *op, const char *type, tn_forward_fn *f,
                           bool bias, int rank, const int64_t *size, tn_nn_norm_opts o)
{
    if (!(o.eps >= 0)) return tni_fail(cx, TN_EARG, "%s: eps %g is not 0 or more", op, o.eps);
    tn_layer *l = tni_layer_make(cx, op, type, f, sizeof(norm));
    if (!l) return NULL;
    norm *s = l->self;
    s->eps  = o.eps;
    s->axes = rank;
    if (o.no_affine) return l;
    s->w = tni_new_param(l, "weight", tn_init_constant, 1, rank, size);
    if (s->w && bias) s->b = tni_new_param(l, "bias", tn_init_constant, 0, rank, size);
    return s->w && (s->b || !bias) ? l : tni_layer_give_up(l);
}

// Running mean and variance, and the count of batches, which files of old PyTorch versions and of
// converters lack and from which nothing is computed.
static bool add_running(tn_layer *l, int64_t channels)
{
    norm *s = l->self;
    s->mean = tni_new_buffer(l, "running_mean", TN_F32, 0, 1, &channels);
    if (s->mean) s->var = tni_new_buffer(l, "running_var", TN_F32, 1, 1, &channels);
    if (s->var) s->batches = tni_new_buffer(l, "num_batches_tracked", TN_I64, 0, TN_0D);
    if (s->batches) l->buffer[l->buffers - 1].spare = true;
    return s->batches != NULL;
}

// ---- batch norm --------------------------------------------------------------------------------

// In training, tn_batch_norm updates the running statistics as well; the count of batches is kept
// because PyTorch's files have it.
static tn_tensor *batch_norm_forward(tn_layer *l, tn_tensor *x)
{
    norm              *s = l->self;
    tn_batch_norm_opts o = {
        .training = l->training, .momentum = s->momentum, .eps = s->eps, .dist = s->dist
    };
    tn_tensor *y = tn_batch_norm(x, s->mean, s->var, s->w, s->b, o);
    if (!y || !l->training) return y;
    return tn_add_(s->batches, tn_scalar(l->owned.cx, 1)) ? y : NULL;
}

tn_layer *tn_nn_batch_norm_with(tn_ctx *cx, int64_t channels, tn_nn_norm_opts o)
{
    const char *op = "nn_batch_norm";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "channels", channels) ||
        !tni_unit_arg(cx, op, "momentum", o.momentum))
        return NULL;
    tn_layer *l = make_norm(cx, op, "BatchNorm", batch_norm_forward, true, 1, &channels, o);
    if (!l) return NULL;
    norm *s     = l->self;
    s->momentum = o.momentum;
    return add_running(l, channels) ? l : tni_layer_give_up(l);
}

tn_status tn_layer_sync_batch_norm(tn_layer *l, tn_dist *d)
{
    const char *op = "layer_sync_batch_norm";
    tn_ctx     *cx = tni_owned_ok(op, l, TNI_LAYER), *its = cx;
    if (cx && d) its = tni_owned_ok(op, d, TNI_DIST);
    if (!cx || !its) return tni_failed();
    if (its != cx) return tni_fail_status(cx, TN_EARG, "%s: the world is another context's", op);
    for (tn_layer *k = l; k; k = tni_layer_next(l, k))
        if (k->forward == batch_norm_forward) ((norm *)k->self)->dist = d;
    return TN_OK;
}

tn_layer *tn_nn_batch_norm(tn_ctx *cx, int64_t channels)
{
    return tn_nn_batch_norm_with(cx, channels, (tn_nn_norm_opts){ 0 });
}

// ---- instance norm -----------------------------------------------------------------------------

// running = (1 - momentum) running + momentum now, where now is a statistic of each channel of each
// item.
static bool remember(tn_tensor *running, tn_tensor *now, double momentum)
{
    now = tn_mean(now, 0);
    return now &&
           tn_assign(running, tn_add(tn_mul_s(running, 1 - momentum), tn_mul_s(now, momentum)));
}

// What is remembered of each channel are the means over the items of its mean and of its variance
// as that of a sample. The count of batches stays 0, as PyTorch's.
static bool remember_items(norm *s, tn_tensor *x)
{
    int64_t    N = tn_size(x, 0), C = tn_size(x, 1);
    bool       mode = tn_grad_mode(x->cx, false);
    double     m    = s->momentum ? s->momentum : 0.1;
    tn_tensor *rows = N ? tn_reshape(tn_detach(x), TN_SHAPE(N, C, tn_count(x) / (N * C))) : NULL;
    bool       ok   = !N || (rows && remember(s->mean, tn_mean(rows, 2), m) &&
                     remember(s->var, tn_var(rows, 2), m));
    tn_grad_mode(x->cx, mode);
    return ok;
}

// Each channel is a group of its own. By running statistics it is what batch norm does in
// evaluation.
static tn_tensor *instance_norm_forward(tn_layer *l, tn_tensor *x)
{
    norm *s    = l->self;
    int   rank = tn_rank(x);
    if (rank < 3 || tn_size(x, 1) != s->groups)
        return tni_fail(l->owned.cx, TN_ESHAPE, "nn_instance_norm: x %s is not (N, %lld, ...)",
                        tni_shape_of(x).s, (long long)s->groups);
    if (s->mean && !l->training)
        return tn_batch_norm(x, s->mean, s->var, s->w, s->b, (tn_batch_norm_opts){ .eps = s->eps });
    if (l->training && tn_size(x, 0) && tn_count(x) == tn_size(x, 0) * s->groups)
        return tni_fail(l->owned.cx, TN_ESHAPE,
                        "nn_instance_norm: x %s has one value per channel in training",
                        tni_shape_of(x).s);
    tn_tensor *y = tn_group_norm(x, s->groups, s->w, s->b, s->eps);
    return y && s->mean && !remember_items(s, x) ? NULL : y;
}

// Unlike the other norms it starts without weight and bias, as PyTorch's does; its groups are its
// channels.
tn_layer *tn_nn_instance_norm(tn_ctx *cx, int64_t channels, tn_nn_instance_norm_opts o)
{
    const char     *op = "nn_instance_norm";
    tn_nn_norm_opts n  = { .eps = o.eps, .no_affine = !o.affine };
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "channels", channels) ||
        !tni_unit_arg(cx, op, "momentum", o.momentum))
        return NULL;
    tn_layer *l = make_norm(cx, op, "InstanceNorm", instance_norm_forward, true, 1, &channels, n);
    if (!l) return NULL;
    norm *s     = l->self;
    s->groups   = channels;
    s->momentum = o.momentum;
    return !o.running || add_running(l, channels) ? l : tni_layer_give_up(l);
}

// ---- over the last axes ------------------------------------------------------------------------

// A norm over the last axes needs at least one.
static bool axes_ok(tn_ctx *cx, const char *op, int rank, const int64_t *size)
{
    if (!tni_ctx_ok(cx, op) || !tni_rank_ok(cx, op, rank, size)) return false;
    if (rank == 0) return tni_refuse(cx, TN_EARG, "%s: there are no axes", op);
    for (int i = 0; i < rank; i++)
        if (!tni_size_arg(cx, op, "size", size[i])) return false;
    return true;
}

static tn_tensor *layer_norm_forward(tn_layer *l, tn_tensor *x)
{
    norm *s = l->self;
    return tn_layer_norm(x, s->axes, s->w, s->b, s->eps);
}

tn_layer *tn_nn_layer_norm_nd(tn_ctx *cx, int rank, const int64_t *size, tn_nn_norm_opts o)
{
    const char *op = "nn_layer_norm";
    if (!axes_ok(cx, op, rank, size)) return NULL;
    return make_norm(cx, op, "LayerNorm", layer_norm_forward, true, rank, size, o);
}

tn_layer *tn_nn_layer_norm(tn_ctx *cx, int64_t size)
{
    return tn_nn_layer_norm_nd(cx, 1, &size, (tn_nn_norm_opts){ 0 });
}

static tn_tensor *rms_norm_forward(tn_layer *l, tn_tensor *x)
{
    norm *s = l->self;
    return tn_rms_norm(x, s->axes, s->w, s->eps);
}

tn_layer *tn_nn_rms_norm_nd(tn_ctx *cx, int rank, const int64_t *size, tn_nn_norm_opts o)
{
    const char *op = "nn_rms_norm";
    if (!axes_ok(cx, op, rank, size)) return NULL;
    return make_norm(cx, op, "RMSNorm", rms_norm_forward, false, rank, size, o);
}

tn_layer *tn_nn_rms_norm(tn_ctx *cx, int64_t size)
{
    return tn_nn_rms_norm_nd(cx, 1, &size, (tn_nn_norm_opts){ 0 });
}

// ---- group norm --------------------------------------------------------------------------------

static tn_tensor *group_norm_forward(tn_layer *l, tn_tensor *x)
{
    norm *s = l->self;
    return tn_group_norm(x, s->groups, s->w, s->b, s->eps);
}

// Each group has as many channels, and its own mean and deviation; weight and bias are per channel.
tn_layer *tn_nn_group_norm_with(tn_ctx *cx, int64_t groups, int64_t channels, tn_nn_norm_opts o)
{
    const char *op = "nn_group_norm";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "groups", groups) ||
        !tni_size_arg(cx, op, "channels", channels))
        return NULL;
    if (channels % groups)
        return tni_fail(cx, TN_EARG, "%s: groups %lld does not divide channels %lld", op,
                        (long long)groups, (long long)channels);
    tn_layer *l = make_norm(cx, op, "GroupNorm", group_norm_forward, true, 1, &channels, o);
    if (l) ((norm *)l->self)->groups = groups;
    return l;
}

tn_layer *tn_nn_group_norm(tn_ctx *cx, int64_t groups, int64_t channels)
{
    return tn_nn_group_norm_with(cx, groups, channels, (tn_nn_norm_opts){ 0 });
}
