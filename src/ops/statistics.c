// Reductions made of others: mean, var, std, norm, any, all. Each is a body (tni_reduction_body),
// from which the public forms over one axis, all and several follow.
#include "ops/composite.h"

// The mean of nothing is NaN.
static tn_tensor *mean(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    if (!tni_want_float(x, op)) return NULL;
    tn_tensor *sum = tni_sum_over(tni_widen(x), op, mask, keep);
    return tni_narrow(tn_div_s(sum, (double)tni_reduced_count(x, mask)), tn_dtype_of(x));
}
TNI_REDUCTION_FORMS(mean, mean)

// The unbiased variance, over n - 1, in f32 at least; NaN for one element or none.
static tn_tensor *wide_var(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    if (!tni_want_float(x, op)) return NULL;
    int64_t n = tni_reduced_count(x, mask);
    return tn_div_s(tni_moments_over(tni_widen(x), op, mask, keep).squares,
                    n > 1 ? (double)(n - 1) : 0);
}

static tn_tensor *var(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    return tni_narrow(wide_var(op, x, mask, keep), tn_dtype_of(x));
}
TNI_REDUCTION_FORMS(var, var)

// A square root whose gradient at 0 is 0. The inner choice keeps sqrt away from 0, where its own
// gradient is infinite and would make NaN with the outer choice's zero.
static tn_tensor *root(tn_tensor *x)
{
    if (!x) return NULL;
    tn_tensor *none = tn_eq_s(x, 0);
    tn_tensor *safe = tn_where(none, tni_number_like(x, 1), x);
    return tn_where(none, tni_number_like(x, 0), tn_sqrt(safe));
}

// Not the root of var(): that would round f16 and bf16 twice.
static tn_tensor *std_deviation(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    return tni_narrow(root(wide_var(op, x, mask, keep)), tn_dtype_of(x));
}
TNI_REDUCTION_FORMS(std, std_deviation)

// The Euclidean norm. Squares of f32 overflow above 1.8e19; nothing is scaled against that.
static tn_tensor *norm(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    if (!tni_want_float(x, op) || !(x = tni_autocast_wide(x))) return NULL;
    tn_tensor *sum = tni_sum_over(tn_square(tni_widen(x)), op, mask, keep);
    return tni_narrow(root(sum), tn_dtype_of(x));
}
TNI_REDUCTION_FORMS(norm, norm)

// A bool result; for u8 a u8, as in PyTorch.
static tn_tensor *truth_like(tn_tensor *x, tn_tensor *holds)
{
    return holds && tn_dtype_of(x) == TN_U8 ? tn_cast(holds, TN_U8) : holds;
}

// By counting, so that an empty axis needs no special case: any of nothing is false, all of nothing
// true.
static tn_tensor *any(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    return truth_like(x, tn_gt_s(tni_sum_over(tn_ne_s(x, 0), op, mask, keep), 0));
}
TNI_REDUCTION_FORMS(any, any)

static tn_tensor *all(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    return truth_like(x, tn_eq_s(tni_sum_over(tn_eq_s(x, 0), op, mask, keep), 0));
}
TNI_REDUCTION_FORMS(all, all)
