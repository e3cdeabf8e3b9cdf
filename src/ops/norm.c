// Normalization: layer norm, RMS norm, group norm and batch norm, in f32 at least.
//
// These are composite ops: C functions over primitives (sums, products, rsqrt). The planner makes
// one kernel of what they record. There is no gradient written for them: the gradient of
// tn_layer_norm is what the reverse walk (grad/walk.c) makes of the nodes recorded below, each by
// the rule of its own op in the gradient column of ops.def (grad/rules.c). test_gradients.c checks
// it by finite differences.
//
// N batch, C channels, G groups
#include "ops/composite.h"

// The mean over the axes in the mask, which stay with size 1.
static tn_tensor *mean_over(tn_tensor *x, const char *op, uint32_t mask)
{
    if (!x) return NULL;
    return tn_mul_s(tni_sum_over(x, op, mask, true), 1 / (double)tni_reduced_count(x, mask));
}

// 1 / sqrt(var + eps); an eps of 0 means 1e-5, PyTorch's default, which keeps a constant row
// finite.
static tn_tensor *inverse_std(const char *op, tn_tensor *var, double eps)
{
    if (var && !(eps >= 0))
        return tni_fail(var->cx, TN_EARG, "%s: eps %g is not 0 or more", op, eps);
    return tn_rsqrt(tn_add_s(var, tni_or_default(eps, 1e-5)));
}

// d / sqrt(var + eps).
static tn_tensor *divide_by_std(const char *op, tn_tensor *d, tn_tensor *var, double eps)
{
    return tn_mul(d, inverse_std(op, var, eps));
}

// (x - mean) / sqrt(var + eps). x - mean is computed in two parts: d = x - mid, where mid is the
// mean as rounded, and the rounding error of the mean, one number per row, which is subtracted
// last, so that the gradient reads d alone again (tni_moments). Recorded one by one: compilers
// differ in which argument of a call they evaluate first, and plans should not.
static tn_tensor *normalize(tn_tensor *x, const char *op, uint32_t mask, double eps)
{
    if (!x) return NULL;
    double      n = (double)tni_reduced_count(x, mask);
    tni_moments m = tni_moments_over(x, op, mask, true);
    tn_tensor  *r = inverse_std(op, tn_mul_s(m.squares, 1 / n), eps);
    tn_tensor  *y = tn_mul(m.d, r);
    return tn_sub(y, tn_mul(tn_mul_s(m.sum, 1 / n), r));
}

// y w + b in the dtype of x; w and b may be NULL.
static tn_tensor *affine(tn_tensor *y, tn_tensor *w, tn_tensor *b, tn_tensor *x)
{
    if (w) y = tn_mul(y, tni_widen(w));
    if (b) y = tn_add(y, tni_widen(b));
    tn_dtype dt = tn_dtype_of(x);
    return y && tn_dtype_of(y) != dt ? tn_cast(y, dt) : y;
}

// ---- over the last axes ------------------------------------------------------------------------

// Whether p, which may be NULL, has the shape of the last n axes of x.
static bool fits_last(const char *op, tn_tensor *x, int n, tn_tensor *p, const char *name)
{
    if (!p) return true;
    if (!tni_args(op, 2, (tn_tensor *const[]){ x, p }, (const char *const[]){ "x", name }))
        return false;
    tni_view v = tni_layout(x), s = tni_layout(p);
    if (tni_shape_equal(n, v.size + v.rank - n, s.rank, s.size)) return true;
    tni_fail(x->cx, TN_ESHAPE, "%s: x %s and %s %s: the last axes differ", op, tni_shape_of(x).s,
             name, tni_shape_of(p).s);
    return false;
}

// The mask of the last n axes; 0, reported, if x has fewer.
static uint32_t last_axes(const char *op, tn_tensor *x, int n)
{
    int rank = tn_rank(x);
    if (n >= 1 && n <= rank) return ((1u << n) - 1) << (rank - n);
    tni_fail(x->cx, TN_EARG, "%s: %d is not a number of axes of x %s", op, n, tni_shape_of(x).s);
    return 0;
}

// y = (x - mean) / sqrt(var + eps) w + b over the last n axes. Its gradient: see the top of this
// file.
tn_tensor *tn_layer_norm(tn_tensor *x, int n, tn_tensor *w, tn_tensor *b, double eps)
{
    const char *op = "layer_norm";
    if (!tni_arg1(op, x, "x") || !tni_want_float(x, op)) return NULL;
    uint32_t mask = last_axes(op, x, n);
    if (!mask || !fits_last(op, x, n, w, "w") || !fits_last(op, x, n, b, "b")) return NULL;
    if (!(x = tni_autocast_wide(x))) return NULL;
    tn_tensor *y = affine(normalize(tni_widen(x), op, mask, eps), w, b, x);
    return tni_traced(y, 3, (tn_tensor *[]){ x, w, b },
                      (tni_kept){ .kind = TNI_KEPT_layer_norm, .i = { n }, .f = { eps } });
}

// x / sqrt(mean(x^2) + eps) w: without a mean to subtract. An eps of 0 is that of the dtype, as in
// PyTorch.
tn_tensor *tn_rms_norm(tn_tensor *x, int n, tn_tensor *w, double eps)
{
    const char *op = "rms_norm";
    if (!tni_arg1(op, x, "x") || !tni_want_float(x, op)) return NULL;
    uint32_t mask = last_axes(op, x, n);
    if (!mask || !fits_last(op, x, n, w, "w") || !(x = tni_autocast_wide(x))) return NULL;
    tn_tensor *wide = tni_widen(x);
    if (eps == 0 && !signbit(eps)) eps = tni_dtype_epsilon(tn_dtype_of(x));  // as in PyTorch
    return affine(divide_by_std(op, wide, mean_over(tn_square(wide), op, mask), eps), w, NULL, x);
}

// ---- by channels -------------------------------------------------------------------------------

// Whether p, which may be NULL, is (C) for x (N, C, ...).
static bool fits_channels(const char *op, tn_tensor *x, tn_tensor *p, const char *name)
{
    if (!p) return true;
    if (!tni_args(op, 2, (tn_tensor *const[]){ x, p }, (const char *const[]){ "x", name }))
        return false;
    if (tn_rank(p) == 1 && tn_size(p, 0) == tn_size(x, 1)) return true;
    tni_fail(x->cx, TN_ESHAPE, "%s: x %s and %s %s: not one number per channel", op,
             tni_shape_of(x).s, name, tni_shape_of(p).s);
    return false;
}

// (C) as (1, C, 1, ...) of x's rank, to broadcast.
static tn_tensor *per_channel(tn_tensor *p, tn_tensor *x)
{
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(x); i++) size[i] = i == 1 ? tn_size(x, 1) : 1;
    return tn_reshape(p, tn_rank(x), size);
}

// y w + b by channels.
static tn_tensor *affine_channels(tn_tensor *y, tn_tensor *w, tn_tensor *b, tn_tensor *x)
{
    tn_tensor *wc = w ? per_channel(w, x) : NULL, *bc = b ? per_channel(b, x) : NULL;
    if (!y || (w && !wc) || (b && !bc)) return NULL;
    return affine(y, wc, bc, x);
}

// Whether x is (N, C, ...) of a float type; else reported.
static bool has_channels(const char *op, tn_tensor *x)
{
    if (tn_rank(x) < 2)
        tni_fail(x->cx, TN_ESHAPE, "%s: x %s is not (N, C, ...)", op, tni_shape_of(x).s);
    return tn_rank(x) >= 2 && tni_want_float(x, op);
}

// Each group of channels with all its places is one row: x is reshaped to (N, G, rest), normalized
// over the last axis, and reshaped back. tni_share keeps the result from being a view for the user.
tn_tensor *tn_group_norm(tn_tensor *x, int64_t groups, tn_tensor *w, tn_tensor *b, double eps)
{
    const char *op = "group_norm";
    tn_ctx     *cx = tni_arg1(op, x, "x");
    if (!cx || !has_channels(op, x)) return NULL;
    if (!fits_channels(op, x, w, "w") || !fits_channels(op, x, b, "b")) return NULL;
    if (groups < 1 || tn_size(x, 1) % groups)
        return tni_fail(cx, TN_EARG, "group_norm: %lld groups do not divide the channels of x %s",
                        (long long)groups, tni_shape_of(x).s);
    if (!(x = tni_autocast_wide(x))) return NULL;
    tni_view s    = tni_layout(x);
    int64_t  each = s.size[1] / groups;
    for (int i = 2; i < s.rank; i++) each *= s.size[i];
    tn_tensor *y = tn_reshape(tni_widen(x), TN_SHAPE(s.size[0], groups, each));
    y            = tn_reshape(normalize(y, op, 1u << 2, eps), s.rank, s.size);
    y            = y ? affine_channels(tni_share(y, op), w, b, x) : NULL;
    return tni_traced(y, 3, (tn_tensor *[]){ x, w, b },
                      (tni_kept){ .kind = TNI_KEPT_group_norm, .i = { groups }, .f = { eps } });
}

// ---- batch norm --------------------------------------------------------------------------------

// running = (1 - momentum) running + momentum scale now. It is an in-place write that the next
// evaluation computes with the rest of the step. Called without gradient mode, so that it has no
// history.
static bool update_running(tn_tensor *running, tn_tensor *now, double scale, double momentum)
{
    if (!running) return true;
    if (!now) return false;
    tn_tensor *flat = tn_reshape(now, TN_SHAPE(-1));
    tn_tensor *mix  = tn_add(tn_mul_s(running, 1 - momentum), tn_mul_s(flat, momentum * scale));
    return tn_assign(running, mix) != NULL;
}

// d: x minus its rounded mean; rest: the rounding error of that mean, per channel (NULL: none);
// scale: 1 / sqrt(var + eps).
typedef struct {
    tn_tensor *d, *rest, *scale;
} centered;

// What values are measured from, plus their mean distance from it. That is NaN where mid is
// infinite: then the mean is that infinity, or NaN.
static tn_tensor *exact_mean(tn_tensor *mid, tn_tensor *rest)
{
    return tn_where(tn_isfinite(mid), tn_add(mid, rest), mid);
}

// The first value of each channel.
static tn_tensor *first_values(tn_tensor *x)
{
    for (int i = 0; i < tn_rank(x) && x; i++)
        if (i != 1) x = tn_slice(x, i, 0, 1, 1);
    return x;
}

// The moments of each channel. Of many values the mean would cost a pass over all of x: they are
// measured from one of them instead, which is at most a few deviations off if it is not the one
// that makes the deviation.
static tni_moments channel_moments(tn_tensor *x, const char *op, uint32_t mask, int64_t n)
{
    enum { MANY = 4096 };
    if (n < MANY) return tni_moments_over(x, op, mask, true);
    return tni_moments_about(x, first_values(x), op, mask, true);
}

// Joins the moments of all ranks' items: sums and numbers of values add up, squares by the
// distances between means. Sets the rest of the mean and the variance of c, per channel, and
// returns the number of values; NULL on failure.
static tn_tensor *join_ranks(tn_dist *d, const tni_moments *m, int64_t n, tn_tensor **rest,
                             tn_tensor **var)
{
    int64_t    C = tn_count(m->mid), size = tn_dist_size(d);
    tn_tensor *mean  = tn_add(m->mid, tn_div_s(m->sum, (double)n));
    tn_tensor *own[] = { tn_reshape(mean, TN_SHAPE(1, 1, C)),
                         tn_reshape(m->squares, TN_SHAPE(1, 1, C)),
                         mean ? tn_full(mean->cx, tn_dtype_of(mean), TN_SHAPE(1, 1, C), (double)n)
                              : NULL };
    tn_tensor *all   = own[0] && own[1] && own[2] ? tn_concat(3, own, 1) : NULL, *part[3];
    all              = all ? tn_dist_all_gather(d, all, 0) : NULL;
    for (int i = 0; i < 3; i++)
        part[i] = all ? tn_reshape(tn_slice(all, 1, i, i + 1, 1), TN_SHAPE(size, C)) : NULL;
    tn_tensor *total   = tn_sum(part[2], 0);
    tn_tensor *middle  = tn_div(tn_sum(tn_mul(part[0], part[2]), 0), total);
    tn_tensor *off     = tn_square(tn_sub(part[0], middle));
    tn_tensor *squares = tn_add(tn_sum(part[1], 0), tn_sum(tn_mul(off, part[2]), 0));
    if (!squares) return NULL;
    tni_view v = tni_layout(m->mid);
    *rest      = tn_sub(tn_reshape(middle, v.rank, v.size), m->mid);
    *var       = tn_reshape(tn_div(squares, total), v.rank, v.size);
    return tn_reshape(total, v.rank, v.size);
}

// By the batch's own statistics. The variance that divides is over n, the one that is remembered
// over n - 1, as in PyTorch. False after a failure.
static bool center_by_batch(centered *c, tn_tensor *x, tn_tensor *mean, tn_tensor *var,
                            tn_batch_norm_opts o)
{
    const char *op    = "batch_norm";
    uint32_t    mask  = ((1u << tn_rank(x)) - 1) & ~2u;
    int64_t     n     = tni_reduced_count(x, mask);
    double      rate  = tni_or_default(o.momentum, 0.1);
    bool        ranks = tn_dist_size(o.dist) > 1;
    if (n == 1 && !ranks)
        return tni_refuse(x->cx, TN_ESHAPE,
                          "batch_norm: x %s has one value per channel in training",
                          tni_shape_of(x).s);
    if (n == 0) {  // nothing to measure; NaN would go into the gradient of w
        *c = (centered){ .d = x, .scale = tn_full(x->cx, tn_dtype_of(x), TN_0D, 1) };
        return c->scale;
    }
    tni_moments m = channel_moments(x, op, mask, n);
    tn_tensor  *v, *rest, *all = NULL;
    if (!m.d) return false;
    if (ranks) {
        if (!(all = join_ranks(o.dist, &m, n, &rest, &v))) return false;
    } else {
        v    = tn_div_s(m.squares, (double)n);
        rest = tn_div_s(m.sum, (double)n);
    }
    *c = (centered){ m.d, rest, inverse_std(op, v, o.eps) };
    if (!c->rest || !c->scale) return false;
    bool   mode = tn_grad_mode(x->cx, false);
    double more = ranks ? 1 : (double)n / (double)(n - 1);
    if (ranks) v = tn_mul(v, tn_div(all, tn_sub_s(all, 1)));
    bool ok = (!mean || update_running(mean, exact_mean(m.mid, c->rest), 1, rate)) &&
              update_running(var, v, more, rate);
    tn_grad_mode(x->cx, mode);
    return ok;
}

// By the remembered statistics, outside training.
static bool center_by_running(centered *c, tn_tensor *x, tn_tensor *mean, tn_tensor *var,
                              double eps)
{
    c->scale = inverse_std("batch_norm", tni_widen(per_channel(var, x)), eps);
    c->d     = tn_sub(x, tni_widen(per_channel(mean, x)));
    return c->scale && c->d;
}

// One factor and one summand a channel, so that only two operations run over all of x.
static tn_tensor *scale_channels(const centered *c, tn_tensor *w, tn_tensor *b, tn_tensor *x)
{
    tn_tensor *scale = w ? tn_mul(c->scale, tni_widen(per_channel(w, x))) : c->scale;
    tn_tensor *shift = b ? tni_widen(per_channel(b, x)) : NULL;
    tn_tensor *rest  = c->rest ? tn_mul(c->rest, scale) : NULL;
    if (!scale || (b && !shift) || (c->rest && !rest)) return NULL;
    if (rest) shift = shift ? tn_sub(shift, rest) : tn_neg(rest);
    return affine(tn_mul(c->d, scale), NULL, shift, x);
}

// In training the statistics come from the batch and running ones are updated; else the running
// ones are used.
tn_tensor *tn_batch_norm(tn_tensor *x, tn_tensor *mean, tn_tensor *var, tn_tensor *w, tn_tensor *b,
                         tn_batch_norm_opts o)
{
    const char *op = "batch_norm";
    tn_ctx     *cx = tni_arg1(op, x, "x");
    if (!cx || !has_channels(op, x)) return NULL;
    if (!fits_channels(op, x, mean, "mean") || !fits_channels(op, x, var, "var") ||
        !fits_channels(op, x, w, "w") || !fits_channels(op, x, b, "b"))
        return NULL;
    if (!o.training && (!mean || !var))
        return tni_fail(cx, TN_EARG, "batch_norm: %s is NULL outside training",
                        mean ? "var" : "mean");
    // Training updates the statistics, so that what was folded is stale: its memory is better used.
    if (o.training && var) tni_folded_drop(cx, var->store);
    uint64_t   failures = cx->failures;
    double     eps      = tni_or_default(o.eps, 1e-5);
    bool       folds    = !o.training && eps >= 0 && !cx->trace;
    tn_tensor *folded   = folds ? tni_fold_norm(x, mean, var, w, b, eps) : NULL;
    if (folded || cx->failures != failures) return folded;
    tn_tensor *wide = tni_widen(x);
    centered   c    = { 0 };
    if (!wide || !(o.training ? center_by_batch(&c, wide, mean, var, o)
                              : center_by_running(&c, wide, mean, var, o.eps)))
        return NULL;
    tn_tensor *y = scale_channels(&c, w, b, x);
    if (o.training) return y;
    return tni_traced(y, 5, (tn_tensor *[]){ x, w, b, mean, var },
                      (tni_kept){ .kind = TNI_KEPT_batch_norm, .f = { eps } });
}
