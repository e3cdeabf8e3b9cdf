// Losses: what training graphs end with.
#include "onnx/onnx_ops.h"

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

// SoftmaxCrossEntropyLoss(x, target, weight; reduction, ignore_index): the loss, and the log-probabilities.
bool tni_onnx_softmax_cross_entropy_loss(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    if (c->nout > 1 && !tni_onnx_out(c, 1, tn_log_softmax(x, 1))) return false;
    return tni_onnx_out(c, 0, tn_cross_entropy_with(x, tni_onnx_in(c, 1), class_opts(c)));
}
