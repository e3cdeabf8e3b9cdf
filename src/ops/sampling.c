// Drawing an index from logits, with ops that every device has and without a host that looks at
// them.
//
// An index is drawn as the largest of logit + g, where g is drawn from the Gumbel distribution,
// which gives each index its softmax probability. So drawing ends as taking the most likely index
// does, in an argmax, whose result is known to be in range. top_k and top_p are a bound: logits
// below it are set to -inf.
#include "ops/composite.h"

#include <float.h>

// The least of the first k logits of sorted rows (..., V), (..., 1).
static tn_tensor *bound_of_k(tn_tensor *sorted, int64_t k)
{
    return tn_slice(sorted, -1, k - 1, k, 1);
}

// The least logit of sorted rows before which the probabilities sum up to less than p, (..., 1).
// The first one is always among them.
static tn_tensor *bound_of_p(tn_tensor *sorted, double p)
{
    tn_tensor *q      = tn_softmax(sorted, -1);
    tn_tensor *before = tn_sub(tn_cumsum(q, -1), q);
    return tn_min_keep(tn_masked_fill(sorted, tn_ge_s(before, p), INFINITY), -1);
}

// x with -inf in place of logits that top_k and top_p leave out. As in other libraries p counts the
// probabilities of what k leaves.
static tn_tensor *filter_logits(tn_tensor *x, tn_sample_opts o)
{
    int64_t V = tn_size(x, -1), k = o.top_k > 0 && o.top_k < V ? o.top_k : V;
    bool    by_p = o.top_p > 0 && o.top_p < 1;
    if (k == V && !by_p) return x;
    tn_tensor *sorted = tn_slice(tn_sort(x, -1, TN_DESCENDING).values, -1, 0, k, 1);
    tn_tensor *bound  = by_p ? bound_of_p(sorted, o.top_p) : bound_of_k(sorted, k);
    return tn_masked_fill(x, tn_lt(x, bound), -INFINITY);
}

// -log(-log(u)) with u in (0, 1): no draw may be -inf, as a single index left would then not be
// found.
static tn_tensor *gumbel_like(tn_tensor *x)
{
    tn_tensor *u = tn_maximum_s(tn_rand_like(x), FLT_MIN);
    return tn_neg(tn_log(tn_neg(tn_log(u))));
}

tn_tensor *tn_sample(tn_tensor *logits, tn_sample_opts o)
{
    tn_ctx *cx = tni_arg1("sample", logits, "logits");
    if (!cx || !tni_want_float(logits, "sample: logits")) return NULL;
    if (tn_rank(logits) < 1 || tn_size(logits, -1) < 1)
        return tni_fail(cx, TN_ESHAPE, "sample: logits %s is not (..., V), V above 0",
                        tni_shape_of(logits).s);
    if (!(o.temperature >= 0) || isinf(o.temperature))
        return tni_fail(cx, TN_EARG, "sample: temperature %g is not 0 or more", o.temperature);
    if (o.top_k < 0)
        return tni_fail(cx, TN_EARG, "sample: top_k %lld is negative", (long long)o.top_k);
    if (!(o.top_p >= 0 && o.top_p <= 1))
        return tni_fail(cx, TN_EARG, "sample: top_p %g is not in 0 .. 1", o.top_p);
    if (o.temperature == 0) return tn_argmax(logits, -1);
    tn_tensor *x = tn_div_s(tni_widen(tn_detach(logits)), o.temperature);
    x            = filter_logits(x, o);
    return x ? tn_argmax(tn_add(x, gumbel_like(x)), -1) : NULL;
}
