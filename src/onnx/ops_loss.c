// Losses, and steps of optimizers: what training graphs end with.
//
// Optimizers take a rate, the number of the step, and then lists of n tensors each: all weights,
// all gradients, all states.
#include "onnx/onnx_ops.h"

#include <math.h>

// Without ignore_index no target is ignored, not even PyTorch's -100.
static tn_class_opts class_opts(tni_onnx_call *c)
{
    tn_class_opts o = { .weight     = tni_onnx_in(c, 2),
                        .ignore     = tni_onnx_attr_int(c, "ignore_index", 0),
                        .use_ignore = tni_onnx_has_attr(c, "ignore_index"),
                        .reduce     = TN_REDUCTION_MEAN };
    o.no_ignore     = !o.use_ignore;
    if (tni_onnx_attr_is(c, "reduction", "sum", false)) o.reduce = TN_REDUCTION_SUM;
    if (tni_onnx_attr_is(c, "reduction", "none", false)) o.reduce = TN_REDUCTION_NONE;
    return o;
}

// NegativeLogLikelihoodLoss(x, target, weight; reduction, ignore_index).
bool tni_onnx_negative_log_likelihood_loss(tni_onnx_call *c)
{
    return tni_onnx_out(c, 0, tn_nll_with(tni_onnx_in(c, 0), tni_onnx_in(c, 1), class_opts(c)));
}

// SoftmaxCrossEntropyLoss(x, target, weight; reduction, ignore_index): the loss, and the
// log-probabilities.
bool tni_onnx_softmax_cross_entropy_loss(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    if (c->nout > 1 && !tni_onnx_out(c, 1, tn_log_softmax(x, 1))) return false;
    return tni_onnx_out(c, 0, tn_cross_entropy_with(x, tni_onnx_in(c, 1), class_opts(c)));
}

// ---- optimizers --------------------------------------------------------------------------------

// The rate and step, and how many weights there are among lists of tensors; false: reported.
static bool read_step(tni_onnx_call *c, int lists, double *rate, int64_t *step, int *n)
{
    int one;
    if (!tni_onnx_reals(c, 0, 1, rate, &one) || !tni_onnx_ints(c, 1, 1, step, &one)) return false;
    *n = (c->nin - 2) / lists;
    return *n * lists == c->nin - 2 || tni_onnx_refuse(c, "it has %d inputs", c->nin);
}

// The gradient of weight i, with that of a penalty on its size.
static tn_tensor *regularized(tni_onnx_call *c, int i, int n)
{
    double     norm = tni_onnx_attr_real(c, "norm_coefficient", 0);
    tn_tensor *g    = tni_onnx_in(c, 2 + n + i);
    return norm != 0 ? tn_add(g, tn_mul_s(tni_onnx_in(c, 2 + i), norm)) : g;
}

// Adagrad(rate, step, x..., g..., h...; decay_factor, epsilon): h grows by g squared, x moves by g
// over its root.
bool tni_onnx_adagrad(tni_onnx_call *c)
{
    double  rate, eps = tni_onnx_attr_real(c, "epsilon", 1e-6);
    int64_t step;
    int     n;
    if (!read_step(c, 3, &rate, &step, &n)) return false;
    rate /= 1 + (double)step * tni_onnx_attr_real(c, "decay_factor", 0);
    for (int i = 0; i < n; i++) {
        tn_tensor *g    = regularized(c, i, n),
                  *h    = tn_add(tni_onnx_in(c, 2 + 2 * n + i), tn_square(g));
        tn_tensor *move = tn_mul_s(tn_div(g, tn_add_s(tn_sqrt(h), eps)), rate);
        if (!tni_onnx_out(c, i, tn_sub(tni_onnx_in(c, 2 + i), move)) || !tni_onnx_out(c, n + i, h))
            return false;
    }
    return true;
}

// Adam(rate, step, x..., g..., v..., h...; alpha, beta, epsilon): running means of g and of its
// square; the first ones are of few steps, which the rate makes up for.
bool tni_onnx_adam(tni_onnx_call *c)
{
    double rate, a = tni_onnx_attr_real(c, "alpha", 0.9), b = tni_onnx_attr_real(c, "beta", 0.999),
                 eps  = tni_onnx_attr_real(c, "epsilon", 1e-6),
                 post = tni_onnx_attr_real(c, "norm_coefficient_post", 0);
    int64_t step;
    int     n;
    if (!read_step(c, 4, &rate, &step, &n)) return false;
    if (step > 0) rate *= sqrt(1 - pow(b, (double)step)) / (1 - pow(a, (double)step));
    for (int i = 0; i < n; i++) {
        tn_tensor *g = regularized(c, i, n), *x = tni_onnx_in(c, 2 + i),
                  *v = tn_add(tn_mul_s(tni_onnx_in(c, 2 + 2 * n + i), a), tn_mul_s(g, 1 - a)),
                  *h = tn_add(tn_mul_s(tni_onnx_in(c, 2 + 3 * n + i), b),
                              tn_mul_s(tn_square(g), 1 - b));
        x            = tn_sub(x, tn_mul_s(tn_div(v, tn_add_s(tn_sqrt(h), eps)), rate));
        if (!tni_onnx_out(c, i, post != 0 ? tn_mul_s(x, 1 - post) : x) ||
            !tni_onnx_out(c, n + i, v) || !tni_onnx_out(c, 2 * n + i, h))
            return false;
    }
    return true;
}

// Momentum(rate, step, x..., g..., v...; alpha, beta, mode): the first step takes all of g.
bool tni_onnx_momentum(tni_onnx_call *c)
{
    double rate, alpha = tni_onnx_attr_real(c, "alpha", 0), beta = tni_onnx_attr_real(c, "beta", 1);
    int64_t step;
    int     n;
    bool    ahead = tni_onnx_attr_is(c, "mode", "nesterov", false);
    if (!read_step(c, 3, &rate, &step, &n)) return false;
    if (step <= 0) beta = 1;
    for (int i = 0; i < n; i++) {
        tn_tensor *g    = regularized(c, i, n),
                  *v    = tn_add(tn_mul_s(tni_onnx_in(c, 2 + 2 * n + i), alpha), tn_mul_s(g, beta));
        tn_tensor *move = ahead ? tn_add(g, tn_mul_s(v, alpha)) : v;
        if (!tni_onnx_out(c, i, tn_sub(tni_onnx_in(c, 2 + i), tn_mul_s(move, rate))) ||
            !tni_onnx_out(c, n + i, v))
            return false;
    }
    return true;
}
