// Reductions made of others: mean, var, std, norm, any, all, and whether tensors are close. Each is
// a body (tni_reduction_body), from which the public forms over one axis, all and several follow.
#include "ops/composite.h"

// The mean of nothing is NaN.
static tn_tensor *mean(const char *op, tn_tensor *x, uint32_t mask, bool keep)
{
    if (!tni_want_float(x, op)) return NULL;
    tn_tensor *sum = tni_sum_over(tni_widen(x), op, mask, keep);
    tn_tensor *y   = tn_div_s(sum, (double)tni_reduced_count(x, mask));
    return tni_traced(tni_narrow(y, tn_dtype_of(x)), 1, &x,
                      (tni_kept){ .kind = TNI_KEPT_mean, .i = { mask, keep } });
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

// Equal infinities are close, and none is to anything else. Integers are compared in f64.
tn_tensor *tn_isclose(tn_tensor *a, tn_tensor *b, double rtol, double atol, bool equal_nan)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx                  *cx      = tni_args("isclose", 2, (tn_tensor *const[]){ a, b }, names);
    if (!cx || !tni_broadcast_pair("isclose", a, "a", b, "b")) return NULL;
    if (!(rtol >= 0) || !(atol >= 0))
        return tni_fail(cx, TN_EARG, "isclose: rtol %g and atol %g must not be negative", rtol,
                        atol);
    tn_tensor *x    = tni_is_float(tn_dtype_of(a)) ? tni_widen(a) : tn_cast(a, TN_F64);
    tn_tensor *y    = tni_is_float(tn_dtype_of(b)) ? tni_widen(b) : tn_cast(b, TN_F64);
    tn_tensor *near = tn_le(tn_abs(tn_sub(x, y)), tn_add_s(tn_mul_s(tn_abs(y), rtol), atol));
    near            = tn_logical_or(tn_eq(x, y), tn_logical_and(near, tn_isfinite(y)));
    return equal_nan ? tn_logical_or(near, tn_logical_and(tn_isnan(x), tn_isnan(y))) : near;
}

bool tn_allclose(tn_tensor *a, tn_tensor *b, double rtol, double atol, bool equal_nan)
{
    tn_tensor *all = tn_all_all(tn_isclose(a, b, rtol, atol, equal_nan));
    return all && tn_item(all) == 1;
}
