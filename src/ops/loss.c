// Losses, with the meaning of torch.nn.functional. Each first computes the loss of every element,
// then reduces; f16 and bf16 are computed in f32 and rounded once at the end. They are composite
// ops: their gradients come from the ops they record.
//
// N batch, C classes
#include "ops/composite.h"

// ---- of classes --------------------------------------------------------------------------------

// The state of a classification loss. x is the log-probabilities; weight and target may have been
// cast. Ignored targets are 0 in index and false in counts, which is NULL if all of them count.
typedef struct {
    const char *op;
    int         axis;     // of the classes
    int64_t     classes;  // C
    tn_tensor  *x, *index, *counts, *weight;
} classes;

// One weight a class.
static bool check_weight(const classes *c, tn_tensor *x, tn_tensor *w)
{
    if (!w) return true;
    if (!tni_args(c->op, 2, (tn_tensor *const[]){ x, w }, (const char *const[]){ "x", "weight" }))
        return false;
    if (tn_rank(w) == 1 && tn_size(w, 0) == c->classes) return true;
    tni_fail(x->cx, TN_ESHAPE, "%s: x %s and weight %s: not one number per class", c->op,
             tni_shape_of(x).s, tni_shape_of(w).s);
    return false;
}

static bool reduce_ok(const char *op, tn_tensor *x, tn_reduction reduce)
{
    if (reduce == TN_REDUCTION_MEAN || reduce == TN_REDUCTION_SUM || reduce == TN_REDUCTION_NONE)
        return true;
    tni_fail(x->cx, TN_EARG, "%s: %d is not a way to reduce", op, (int)reduce);
    return false;
}

// Checks the arguments and fills in all fields but index and counts; *given becomes f32 under
// autocast. The classes are axis 1, as in PyTorch, or axis 0 of a single sample.
static bool open_classes(classes *c, tn_tensor **given, tn_tensor *target, const tn_class_opts *o)
{
    static const char *const names[] = { "x", "target" };
    tn_tensor               *x       = *given;
    if (!tni_args(c->op, 2, (tn_tensor *const[]){ x, target }, names)) return false;
    if (!tni_want_float(x, c->op) || !reduce_ok(c->op, x, o->reduce)) return false;
    if (tn_rank(x) < 1) {
        tni_fail(x->cx, TN_ESHAPE, "%s: x %s is not (C) or (N, C, ...)", c->op, tni_shape_of(x).s);
        return false;
    }
    c->axis    = tn_rank(x) == 1 ? 0 : 1;
    c->classes = tn_size(x, c->axis);
    if (!check_weight(c, x, o->weight) || !(x = *given = tni_autocast_wide(x))) return false;
    c->x      = tni_widen(x);
    c->weight = o->weight ? tn_cast(o->weight, tn_dtype_of(c->x)) : NULL;
    return c->x && (!o->weight || c->weight);
}

// Whether target has x's shape without the classes, and is of integers.
static bool check_class_target(const classes *c, tn_tensor *x, tn_tensor *target)
{
    tni_view s = tni_layout(x), t = tni_layout(target);
    bool     fit = t.rank == s.rank - 1;
    for (int i = 0; fit && i < t.rank; i++) fit = t.size[i] == s.size[i + (i >= c->axis)];
    if (!fit)
        tni_fail(x->cx, TN_ESHAPE, "%s: x %s and target %s do not fit", c->op, tni_shape_of(x).s,
                 tni_shape_of(target).s);
    else if (!tni_is_int(tn_dtype_of(target)))
        tni_fail(x->cx, TN_EDTYPE, "%s: target is %s, not of class indices", c->op,
                 tn_dtype_name(tn_dtype_of(target)));
    return fit && tni_is_int(tn_dtype_of(target));
}

// Ignored targets become 0, so that gather never sees them; other negative ones become C, which is
// out of range and fails at evaluation, since gather would count them from the end.
static bool prepare_target(classes *c, tn_tensor *x, tn_tensor *target, const tn_class_opts *o)
{
    if (!check_class_target(c, x, target)) return false;
    int64_t    ignore = o->use_ignore ? o->ignore : -100;
    tn_tensor *t      = tn_cast(target, TN_I64);
    tn_tensor *bad    = tni_number_like(t, (double)c->classes);
    c->index          = tn_where(tn_lt_s(t, 0), bad, t);
    if (o->no_ignore) return c->index != NULL;
    c->counts = tn_ne_i64(t, ignore);
    c->index  = tn_where(c->counts, c->index, tni_number_like(t, 0));
    return c->counts && c->index;
}

// y where the target counts, else 0.
static tn_tensor *zero_ignored(const classes *c, tn_tensor *y)
{
    return c->counts ? tn_where(c->counts, y, tni_number_like(y, 0)) : y;
}

// The weight of each target, 0 for ignored ones. Without class weights, whether it counts; NULL if
// all do.
static tn_tensor *target_weights(const classes *c)
{
    if (!c->weight) return c->counts;
    tni_view   s = tni_layout(c->index);
    tn_tensor *w = tn_gather(c->weight, 0, tn_reshape(c->index, TN_SHAPE(tn_count(c->index))));
    return zero_ignored(c, tn_reshape(w, s.rank, s.size));
}

// Minus the log-probability of each target, weighted.
static tn_tensor *target_losses(const classes *c, tn_tensor *w)
{
    tn_tensor *y = tn_gather(c->x, c->axis, tn_unsqueeze(c->index, c->axis));
    y            = tn_neg(tn_squeeze(y, c->axis));
    y            = zero_ignored(c, y);
    return c->weight ? tn_mul(y, w) : y;
}

// Minus the log-probabilities of all classes, weighted, summed: what label smoothing adds.
static tn_tensor *class_losses(const classes *c)
{
    tn_tensor *y = c->x, *w = c->weight;
    int64_t    size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(y); i++) size[i] = i == c->axis ? c->classes : 1;
    if (w) y = tn_mul(y, tn_reshape(w, tn_rank(y), size));
    return zero_ignored(c, tn_neg(tn_sum(y, c->axis)));
}

// The mean divides by the weights of the targets that count; if none does it is NaN, as in PyTorch.
static tn_tensor *reduce_classes(tn_tensor *y, tn_tensor *w, tn_reduction reduce)
{
    if (reduce == TN_REDUCTION_NONE) return y;
    if (!w) return reduce == TN_REDUCTION_SUM ? tn_sum_all(y) : tn_mean_all(y);
    tn_tensor *sum = tn_sum_all(y);
    return reduce == TN_REDUCTION_SUM ? sum : tn_div(sum, tn_sum_all(w));
}

// Targets are class indices. Label smoothing s mixes (1 - s) of the target's loss with s / C of all
// classes'.
static tn_tensor *index_loss(classes *c, tn_tensor *x, tn_tensor *target, const tn_class_opts *o)
{
    if (!prepare_target(c, x, target, o)) return NULL;
    double     smooth = o->label_smoothing;
    tn_tensor *w      = target_weights(c);
    tn_tensor *y      = target_losses(c, w);
    if (smooth != 0)
        y = tn_add(tn_mul_s(y, 1 - smooth), tn_mul_s(class_losses(c), smooth / (double)c->classes));
    return tni_narrow(reduce_classes(y, w, o->reduce), tn_dtype_of(x));
}

// Targets are probabilities of all classes. The mean divides by the number of samples, not of
// elements.
static tn_tensor *probability_loss(classes *c, tn_tensor *x, tn_tensor *target,
                                   const tn_class_opts *o)
{
    double     smooth = o->label_smoothing, C = (double)c->classes;
    tn_tensor *t = tni_widen(target);
    int64_t    size[TN_MAX_RANK];
    if (!tni_want_float(target, c->op)) return NULL;
    if (smooth != 0) t = tn_add_s(tn_mul_s(t, 1 - smooth), smooth / C);
    for (int i = 0; i < tn_rank(x); i++) size[i] = i == c->axis ? c->classes : 1;
    if (c->weight) t = tn_mul(t, tn_reshape(c->weight, tn_rank(x), size));
    tn_tensor *y = tn_neg(tn_sum(tn_mul(c->x, t), c->axis));
    if (o->reduce == TN_REDUCTION_SUM) y = tn_sum_all(y);
    if (o->reduce == TN_REDUCTION_MEAN) y = tn_div_s(tn_sum_all(y), (double)tn_count(x) / C);
    return tni_narrow(y, tn_dtype_of(x));
}

// log_softmax, then the negative log-likelihood: by the logarithm of the sum, never the logarithm
// of a softmax that underflowed to 0. A target of x's own shape is probabilities.
tn_tensor *tn_cross_entropy_with(tn_tensor *x, tn_tensor *target, tn_class_opts o)
{
    classes c = { .op = "cross_entropy" };
    if (!open_classes(&c, &x, target, &o)) return NULL;
    if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
        return tni_fail(x->cx, TN_EARG, "cross_entropy: label_smoothing %g is not in 0 .. 1",
                        o.label_smoothing);
    c.x        = tn_log_softmax(c.x, c.axis);
    tni_view s = tni_layout(x), t = tni_layout(target);
    if (!c.x) return NULL;
    if (tni_shape_equal(s.rank, s.size, t.rank, t.size)) return probability_loss(&c, x, target, &o);
    return index_loss(&c, x, target, &o);
}

tn_tensor *tn_cross_entropy(tn_tensor *x, tn_tensor *target)
{
    return tn_cross_entropy_with(x, target, (tn_class_opts){ 0 });
}

// x is log-probabilities already.
tn_tensor *tn_nll_with(tn_tensor *x, tn_tensor *target, tn_class_opts o)
{
    classes c = { .op = "nll" };
    if (!open_classes(&c, &x, target, &o)) return NULL;
    if (o.label_smoothing != 0)
        return tni_fail(x->cx, TN_EARG, "nll: label_smoothing is for cross_entropy");
    return index_loss(&c, x, target, &o);
}

tn_tensor *tn_nll(tn_tensor *x, tn_tensor *target)
{
    return tn_nll_with(x, target, (tn_class_opts){ 0 });
}

// ---- of elements -------------------------------------------------------------------------------

// (N, 1) and (N) broadcast to N x N differences, each prediction with each target: a mistake that
// trains to the mean without an error, hence a warning.
static void warn_of_stretching(const char *op, tn_tensor *x, tn_tensor *target)
{
    tni_view a = tni_layout(x), b = tni_layout(target), y = a;
    tni_shape_broadcast(&y.rank, y.size, b.rank, b.size);
    int64_t n = tni_shape_count(y.rank, y.size);
    if (n > tni_shape_count(a.rank, a.size) && n > tni_shape_count(b.rank, b.size))
        tni_warn(x->cx, "%s: x %s and target %s broadcast each other to %s; give them one shape",
                 op, tni_shape_of(x).s, tni_shape_of(target).s, tni_shape_text(y.rank, y.size).s);
}

// The checks of losses over elements; target broadcasts with x, which becomes f32 under autocast.
static bool check_pair(const char *op, tn_tensor **given, tn_tensor *target)
{
    static const char *const names[] = { "x", "target" };
    tn_tensor               *x       = *given;
    if (!tni_args(op, 2, (tn_tensor *const[]){ x, target }, names) || !tni_want_float(x, op) ||
        !tni_broadcast_pair(op, x, "x", target, "target"))
        return false;
    warn_of_stretching(op, x, target);
    return (*given = tni_autocast_wide(x)) != NULL;
}

// The weight expanded to the loss y, in its dtype.
static tn_tensor *expand_weight(const char *op, tn_tensor *w, tn_tensor *y)
{
    static const char *const names[] = { "loss", "weight" };
    if (!tni_args(op, 2, (tn_tensor *const[]){ y, w }, names)) return NULL;
    if (!tni_broadcasts(op, w, "weight", y, "the loss")) return NULL;
    tni_view s = tni_layout(y);
    w          = tn_cast(w, tn_dtype_of(y));
    return w ? tni_expand_to(w, s.rank, s.size) : NULL;
}

tn_tensor *tni_reduce_loss(const char *op, tn_tensor *y, tn_reduction reduce, tn_dtype dt)
{
    if (!y || !reduce_ok(op, y, reduce)) return NULL;
    if (reduce == TN_REDUCTION_SUM) y = tn_sum_all(y);
    if (reduce == TN_REDUCTION_MEAN) y = tn_mean_all(y);
    return tni_narrow(y, dt);
}

// Weights and reduces the losses y. The mean divides by the sum of the weights (mse, l1) or by the
// number of elements (the others), as PyTorch does.
static tn_tensor *weigh_and_reduce(const char *op, tn_tensor *y, tn_tensor *x,
                                   const tn_loss_opts *o, bool by_weight)
{
    tn_tensor *w = o->weight ? expand_weight(op, o->weight, y) : NULL;
    if (!y || (o->weight && !w)) return NULL;
    if (w) y = tn_mul(y, w);
    if (w && by_weight && o->reduce == TN_REDUCTION_MEAN)
        return tni_narrow(tn_div(tn_sum_all(y), tn_sum_all(w)), tn_dtype_of(x));
    return tni_reduce_loss(op, y, o->reduce, tn_dtype_of(x));
}

static tn_tensor *difference(tn_tensor *x, tn_tensor *target)
{
    return tn_sub(tni_widen(x), tni_widen(target));
}

tn_tensor *tn_mse_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o)
{
    if (!check_pair("mse", &x, target)) return NULL;
    return weigh_and_reduce("mse", tn_square(difference(x, target)), x, &o, true);
}

tn_tensor *tn_mse(tn_tensor *x, tn_tensor *target)
{
    return tn_mse_with(x, target, (tn_loss_opts){ 0 });
}

tn_tensor *tn_l1_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o)
{
    if (!check_pair("l1", &x, target)) return NULL;
    return weigh_and_reduce("l1", tn_abs(difference(x, target)), x, &o, true);
}

tn_tensor *tn_l1(tn_tensor *x, tn_tensor *target)
{
    return tn_l1_with(x, target, (tn_loss_opts){ 0 });
}

// With m the difference d clamped to [-delta, delta], m (d - m / 2) is half its square inside and
// delta (|d| - delta / 2) outside. It has no absolute value in it, whose second gradient at 0 is
// missing.
tn_tensor *tn_huber_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o)
{
    double delta = tni_or_default(o.delta, 1);
    if (!check_pair("huber", &x, target)) return NULL;
    if (!(delta > 0)) return tni_fail(x->cx, TN_EARG, "huber: delta %g is not above 0", delta);
    tn_tensor *d = difference(x, target), *m = tn_clamp(d, -delta, delta);
    return weigh_and_reduce("huber", tn_mul(m, tn_sub(d, tn_mul_s(m, 0.5))), x, &o, false);
}

tn_tensor *tn_huber(tn_tensor *x, tn_tensor *target)
{
    return tn_huber_with(x, target, (tn_loss_opts){ 0 });
}

// The logarithm of u, at least -100, whose gradient is 1 / u but at most 1e12; both bounds are
// PyTorch's, and keep a probability of exactly 0 from making the loss infinite. value is the
// logarithm itself, as exact as can be; it replaces log(u) in value only, by the detached
// difference.
static tn_tensor *bounded_log(tn_tensor *u, tn_tensor *value)
{
    tn_tensor *short_of = tn_maximum_s(tn_rsub_s(tn_detach(u), 1e-12), 0);
    tn_tensor *log      = tn_log(tn_add(u, short_of));
    tn_tensor *bounded  = tn_maximum_s(tn_detach(value), -100);
    return tn_add(log, tn_sub(bounded, tn_detach(log)));
}

// -(t log p + (1 - t) log(1 - p)); log1p keeps the digits of a small p.
tn_tensor *tn_bce_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o)
{
    if (!check_pair("bce", &x, target)) return NULL;
    tn_tensor *p = tni_widen(x), *t = tni_widen(target);
    tn_tensor *yes = tn_mul(t, bounded_log(p, tn_log(p)));
    tn_tensor *no  = tn_mul(tn_rsub_s(t, 1), bounded_log(tn_rsub_s(p, 1), tn_log1p(tn_neg(p))));
    return weigh_and_reduce("bce", tn_neg(tn_add(yes, no)), x, &o, false);
}

tn_tensor *tn_bce(tn_tensor *x, tn_tensor *target)
{
    return tn_bce_with(x, target, (tn_loss_opts){ 0 });
}

// (1 - t) x + (1 + (pos_weight - 1) t) softplus(-x): exact, and without overflow at either end,
// where a sigmoid followed by a logarithm would lose all digits.
tn_tensor *tn_bce_logits_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o)
{
    const char *op = "bce_logits";
    if (!check_pair(op, &x, target)) return NULL;
    tn_tensor *w = tni_widen(x), *t = tni_widen(target), *rest = tn_softplus(tn_neg(w));
    if (o.pos_weight) {
        static const char *const names[] = { "x", "pos_weight" };
        if (!tni_args(op, 2, (tn_tensor *const[]){ x, o.pos_weight }, names) ||
            !tni_broadcast_pair(op, x, "x", o.pos_weight, "pos_weight"))
            return NULL;
        tn_tensor *more = tn_sub_s(tni_widen(o.pos_weight), 1);
        rest            = tn_mul(tn_add_s(tn_mul(more, t), 1), rest);
    }
    return weigh_and_reduce(op, tn_add(tn_mul(tn_rsub_s(t, 1), w), rest), x, &o, false);
}

tn_tensor *tn_bce_logits(tn_tensor *x, tn_tensor *target)
{
    return tn_bce_logits_with(x, target, (tn_loss_opts){ 0 });
}

// t (log t - x), where 0 log 0 is 0: the logarithm is taken of 1 there, so that the gradient is
// finite too.
static tn_tensor *divergence(tn_tensor *x, tn_tensor *t, bool log_target)
{
    if (log_target) return tn_mul(tn_exp(t), tn_sub(t, x));
    tn_tensor *log = tn_log(tn_where(tn_eq_s(t, 0), tni_number_like(t, 1), t));
    return tn_sub(tn_mul(t, log), tn_mul(t, x));
}

// batch_mean divides the sum by the batch size, the mathematical definition; the mean is over
// elements.
tn_tensor *tn_kl_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o)
{
    if (!check_pair("kl", &x, target)) return NULL;
    if (o.batch_mean && tn_rank(x) == 0) return tni_fail(x->cx, TN_ESHAPE, "kl: x () has no batch");
    if (o.batch_mean) o.reduce = TN_REDUCTION_SUM;
    tn_tensor *y = divergence(tni_widen(x), tni_widen(target), o.log_target);
    y            = weigh_and_reduce("kl", y, y, &o, false);
    if (o.batch_mean) y = tn_div_s(y, (double)tn_size(x, 0));
    return tni_narrow(y, tn_dtype_of(x));
}

tn_tensor *tn_kl(tn_tensor *x, tn_tensor *target)
{
    return tn_kl_with(x, target, (tn_loss_opts){ 0 });
}
