// Losses of distances, margins and distributions, with the meaning of torch.nn.functional:
// composite ops, whose gradients come from the ops they record. 16-bit floats are computed in f32
// and rounded once at the end.
#include "ops/composite.h"

#include <math.h>

// The arguments of a loss, n of them: floats, of which those of 16 bits become f32; *dt is the
// result's dtype, f32 under autocast.
static bool open_loss(const char *op, int n, tn_tensor **x, const char *const *names, tn_dtype *dt)
{
    if (!tni_args(op, n, x, names)) return false;
    for (int i = 0; i < n; i++)
        if (!tni_want_float(x[i], op) || !(x[i] = tni_autocast_wide(x[i]))) return false;
    *dt = tn_dtype_of(x[0]);
    for (int i = 0; i < n; i++)
        if (!(x[i] = tni_widen(x[i]))) return false;
    return true;
}

// Checks that targets, 1 and -1 of any dtype, broadcast with the losses y, and returns them in y's
// dtype.
static tn_tensor *signs_of(const char *op, tn_tensor *y, tn_tensor *target)
{
    static const char *const names[] = { "the loss", "target" };
    if (!y || !tni_args(op, 2, (tn_tensor *const[]){ y, target }, names)) return NULL;
    if (!tni_broadcast_pair(op, y, "the loss", target, "target")) return NULL;
    return tn_cast(target, tn_dtype_of(y));
}

tn_tensor *tn_margin_ranking(tn_tensor *a, tn_tensor *b, tn_tensor *target, tn_margin_opts o)
{
    static const char *const names[] = { "a", "b" };
    const char              *op      = "margin_ranking";
    tn_tensor               *x[]     = { a, b }, *t;
    tn_dtype                 dt;
    if (!open_loss(op, 2, x, names, &dt) || !tni_broadcast_pair(op, a, "a", b, "b")) return NULL;
    tn_tensor *less = tn_sub(x[1], x[0]);
    if (!(t = signs_of(op, less, target))) return NULL;
    return tni_reduce_loss(op, tn_relu(tn_add_s(tn_mul(t, less), o.margin)), o.reduce, dt);
}

// The cosine is of vectors along the last axis, whose squared lengths have 1e-12 added, as in
// PyTorch.
static tn_tensor *cosine(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *aa = tn_add_s(tn_sum(tn_square(a), -1), 1e-12);
    tn_tensor *bb = tn_add_s(tn_sum(tn_square(b), -1), 1e-12);
    return tn_div(tn_sum(tn_mul(a, b), -1), tn_sqrt(tn_mul(aa, bb)));
}

tn_tensor *tn_cosine_embedding(tn_tensor *a, tn_tensor *b, tn_tensor *target, tn_margin_opts o)
{
    static const char *const names[] = { "a", "b" };
    const char              *op      = "cosine_embedding";
    tn_tensor               *x[]     = { a, b }, *t;
    tn_dtype                 dt;
    if (!open_loss(op, 2, x, names, &dt) || !tni_broadcast_pair(op, a, "a", b, "b")) return NULL;
    if (tn_rank(a) < 1 || tn_rank(b) < 1)
        return tni_fail(a->cx, TN_ESHAPE, "%s: a %s and b %s are not vectors", op,
                        tni_shape_of(a).s, tni_shape_of(b).s);
    tn_tensor *c = cosine(x[0], x[1]), *zero = tni_number_like(c, 0);
    if (!(t = signs_of(op, c, target))) return NULL;
    tn_tensor *unlike = tn_where(tn_eq_s(t, -1), tn_relu(tn_sub_s(c, o.margin)), zero);
    tn_tensor *y      = tn_where(tn_eq_s(t, 1), tn_rsub_s(c, 1), unlike);
    return tni_reduce_loss(op, y, o.reduce, dt);
}

// The p-norm of a - b along the last axis; 1e-6 is added to each difference, as in PyTorch, so that
// the gradient of two equal vectors is finite.
static tn_tensor *distance(tn_tensor *a, tn_tensor *b, double p)
{
    tn_tensor *d = tn_add_s(tn_sub(a, b), 1e-6);
    if (p == 2) return tn_sqrt(tn_sum(tn_square(d), -1));
    if (p == 1) return tn_sum(tn_abs(d), -1);
    if (isinf(p)) return tn_max(tn_abs(d), -1);
    return tn_pow_s(tn_sum(tn_pow_s(tn_abs(d), p), -1), 1 / p);
}

// With swap the nearer one of the two distances to negative counts.
tn_tensor *tn_triplet_margin(tn_tensor *anchor, tn_tensor *positive, tn_tensor *negative,
                             tn_margin_opts o)
{
    static const char *const names[] = { "anchor", "positive", "negative" };
    const char              *op      = "triplet_margin";
    tn_tensor               *x[]     = { anchor, positive, negative };
    tn_dtype                 dt;
    double                   margin = tni_or_default(o.margin, 1), p = tni_or_default(o.p, 2);
    if (!open_loss(op, 3, x, names, &dt) ||
        !tni_broadcast_pair(op, anchor, "anchor", positive, "positive") ||
        !tni_broadcast_pair(op, anchor, "anchor", negative, "negative") ||
        !tni_broadcast_pair(op, positive, "positive", negative, "negative"))
        return NULL;
    if (tn_rank(anchor) < 1 || tn_rank(positive) < 1 || tn_rank(negative) < 1)
        return tni_fail(anchor->cx, TN_ESHAPE, "%s: anchor %s, positive %s and negative %s", op,
                        tni_shape_of(anchor).s, tni_shape_of(positive).s, tni_shape_of(negative).s);
    if (!(p > 0)) return tni_fail(anchor->cx, TN_EARG, "%s: p %g is not above 0", op, p);
    tn_tensor *near = distance(x[0], x[1], p), *far = distance(x[0], x[2], p);
    if (o.swap) far = tn_minimum(far, distance(x[1], x[2], p));
    return tni_reduce_loss(op, tn_relu(tn_add_s(tn_sub(near, far), margin)), o.reduce, dt);
}

// The mean over the classes of (margin - x[target] + x[j])^p where that is positive, without the
// target itself.
tn_tensor *tn_multi_margin(tn_tensor *x, tn_tensor *target, tn_margin_opts o)
{
    double                   margin = tni_or_default(o.margin, 1), p = tni_or_default(o.p, 1);
    static const char *const names[] = { "x", "target" };
    const char              *op      = "multi_margin";
    if (!tni_args(op, 2, (tn_tensor *const[]){ x, target }, names) || !tni_want_float(x, op))
        return NULL;
    if (tn_rank(x) != 2 || tn_rank(target) != 1 || tn_size(target, 0) != tn_size(x, 0) ||
        !tni_is_int(tn_dtype_of(target)))
        return tni_fail(x->cx, TN_ESHAPE,
                        "%s: x %s and target %s %s are not (N, C) and N class indices", op,
                        tni_shape_of(x).s, tn_dtype_name(tn_dtype_of(target)),
                        tni_shape_of(target).s);
    if (p != 1 && p != 2) return tni_fail(x->cx, TN_EARG, "%s: p is %g, not 1 or 2", op, p);
    tn_dtype   dt;
    tn_tensor *w = x, *i = tn_unsqueeze(tn_cast(target, TN_I64), 1);
    if (!open_loss(op, 1, &w, names, &dt)) return NULL;
    tn_tensor *y = tn_relu(tn_add_s(tn_sub(w, tn_gather(w, 1, i)), margin));
    if (p == 2) y = tn_square(y);
    y = tn_where(tn_eq(tn_arange(x->cx, TN_I64, 0, (double)tn_size(x, 1), 1), i),
                 tni_number_like(y, 0), y);
    return tni_reduce_loss(op, tn_mean(y, 1), o.reduce, dt);
}

// The bound of the variance has no part in the gradient, as in PyTorch.
tn_tensor *tn_gaussian_nll(tn_tensor *x, tn_tensor *target, tn_tensor *var, tn_gaussian_opts o)
{
    static const char *const names[] = { "x", "target", "var" };
    const char              *op      = "gaussian_nll";
    tn_tensor               *a[]     = { x, target, var };
    tn_dtype                 dt;
    if (!open_loss(op, 3, a, names, &dt) || !tni_broadcast_pair(op, x, "x", target, "target") ||
        !tni_broadcast_pair(op, x, "x", var, "var"))
        return NULL;
    tn_tensor *bounded = tn_maximum_s(tn_detach(a[2]), tni_or_default(o.eps, 1e-6));
    tn_tensor *v       = tn_add(bounded, tn_sub(a[2], tn_detach(a[2])));
    tn_tensor *y       = tn_add(tn_log(v), tn_div(tn_square(tn_sub(a[0], a[1])), v));
    y                  = tn_mul_s(y, 0.5);
    if (o.full) y = tn_add_s(y, 0.5 * log(2 * M_PI));
    return tni_reduce_loss(op, y, o.reduce, dt);
}

// Cross entropy of a logit, times (1 - p)^gamma, where p is the probability of what is right.
tn_tensor *tn_focal(tn_tensor *x, tn_tensor *target, tn_focal_opts o)
{
    static const char *const names[] = { "x", "target" };
    const char              *op      = "focal";
    tn_tensor               *a[]     = { x, target };
    tn_dtype                 dt;
    double alpha = tni_or_default(o.alpha, 0.25), gamma = tni_or_default(o.gamma, 2);
    if (!open_loss(op, 2, a, names, &dt) || !tni_broadcast_pair(op, x, "x", target, "target"))
        return NULL;
    if (!(gamma >= 0) || alpha > 1)
        return tni_fail(x->cx, TN_EARG, "focal: gamma %g, alpha %g", gamma, alpha);
    tn_tensor *t = a[1], *no = tn_rsub_s(t, 1), *p = tn_sigmoid(a[0]);
    tn_tensor *y     = tn_add(tn_mul(no, a[0]), tn_softplus(tn_neg(a[0])));
    tn_tensor *wrong = tn_add(tn_mul(t, tn_rsub_s(p, 1)), tn_mul(no, p));
    if (gamma == 2) y = tn_mul(y, tn_square(wrong));
    else if (gamma != 0) y = tn_mul(y, tn_pow_s(wrong, gamma));
    if (alpha >= 0) y = tn_mul(y, tn_add(tn_mul_s(t, alpha), tn_mul_s(no, 1 - alpha)));
    return tni_reduce_loss(op, y, o.reduce, dt);
}
