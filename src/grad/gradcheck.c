// Gradients against central finite differences, in double precision.
#include "grad/grad.h"

#include <math.h>

// EPS balances the two errors of a central difference in f64: truncation grows with its square,
// rounding with 1e-16 / EPS; at 1e-6 both are far below ATOL. RTOL leaves three digits for
// functions that curve.
static const double EPS = 1e-6, ATOL = 1e-5, RTOL = 1e-3;

typedef tn_tensor *function(tn_tensor *const *x, void *user);

static bool inputs_ok(tn_ctx *cx, const char *op, int n, tn_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (tn_dtype_of(x[i]) != TN_F64)
            return tni_refuse(cx, TN_EDTYPE, "%s: x[%d] is %s, not f64", op, i,
                              tn_dtype_name(tn_dtype_of(x[i])));
    return true;
}

// A weighted sum of f's elements, so that one number stands for all of them. The weights are fixed
// and differ (0.5 to 1.5), so that errors of elements cannot cancel.
static tn_tensor *weighted_sum(tn_ctx *cx, tn_tensor *y)
{
    if (!y) return NULL;
    tn_tensor *flat = tn_reshape(y, TN_SHAPE(-1));
    tn_tensor *ramp = tn_arange(cx, TN_F64, 0, (double)tn_count(y), 1);
    tn_tensor *w    = tn_add_s(tn_mul_s(tn_sin(tn_add_s(ramp, 1)), 0.5), 1.0);
    return tn_sum_all(tn_mul(flat, w));
}

// f's weighted sum with element k of x[i] moved by d.
static double value_moved(tn_ctx *cx, function *f, int n, tn_tensor *const *x, void *user, int i,
                          int64_t k, double d)
{
    tn_tensor *at[16];
    tni_view   v = tni_layout(x[i]);
    for (int j = 0; j < n; j++) at[j] = tn_detach(x[j]);
    tn_tensor *ramp = tn_arange(cx, TN_I64, 0, (double)tn_count(x[i]), 1);
    tn_tensor *bump = tn_mul_s(tn_cast(tn_eq_s(ramp, (double)k), TN_F64), d);
    at[i]           = tn_add(at[i], tn_reshape(bump, v.rank, v.size));
    return tn_item(weighted_sum(cx, f(at, user)));
}

// One pair of evaluations an element, each in a scope of its own; stops at the first difference.
static tn_status compare_gradient(tn_ctx *cx, const char *op, function *f, int n,
                                  tn_tensor *const *x, void *user, int i, tn_tensor *gx)
{
    for (int64_t k = 0; k < tn_count(x[i]); k++) {
        tn_scope *s = tn_begin(cx);
        if (!s) return tni_failed();
        double hi   = value_moved(cx, f, n, x, user, i, k, EPS);
        double lo   = value_moved(cx, f, n, x, user, i, k, -EPS);
        double want = (hi - lo) / (2 * EPS);
        double got  = tn_item(tn_select(tn_reshape(gx, TN_SHAPE(-1)), 0, k));
        tni_scope_close(s);
        if (fabs(got - want) <= ATOL + RTOL * fabs(want)) continue;
        return tni_fail_status(cx, TN_EGRAD,
                               "%s: gradient of element %lld of x[%d] %s: %.9g, but differences "
                               "give %.9g",
                               op, (long long)k, i, tni_shape_of(x[i]).s, got, want);
    }
    return TN_OK;
}

// At detached copies of x, so that the caller's graph and gradients are left alone.
static tn_status check_gradients(tn_ctx *cx, const char *op, function *f, int n,
                                 tn_tensor *const *x, void *user)
{
    tn_tensor *at[16] = { 0 }, *gx[16];
    if (n > 16) return tni_fail_status(cx, TN_EARG, "%s: %d inputs are more than 16", op, n);
    for (int i = 0; i < n; i++)
        if (!(at[i] = tn_requires_grad(tn_detach(x[i]), true))) return tni_failed();
    tn_tensor *y = weighted_sum(cx, f(at, user));
    if (!y) return tni_fail_status(cx, TN_EARG, "%s: f returned no result", op);
    // An output that depends on no input has gradients of zero.
    tn_status s = tn_grad(1, &y, n, at, NULL, gx);
    for (int i = 0; i < n && s == TN_OK; i++) s = compare_gradient(cx, op, f, n, x, user, i, gx[i]);
    return s;
}

// With gradient mode on, whatever the caller's is; closing the scope restores it.
static tn_status check_in_scope(const char *op, function *f, int n, tn_tensor *const *x, void *user)
{
    if (!f || n < 1 || !x) {
        tni_thread_fail(TN_EARG, "%s: there is no function or no input", op);
        return TN_EARG;
    }
    tn_ctx *cx = tni_args(op, n, x, NULL);
    if (!cx) return tni_failed();
    if (!inputs_ok(cx, op, n, x)) return TN_EDTYPE;
    tn_scope *s = tn_begin(cx);
    if (!s) return TN_EMEM;
    cx->grad_mode    = true;
    tn_status status = check_gradients(cx, op, f, n, x, user);
    tni_scope_close(s);
    return status;
}

tn_status tn_gradcheck(function *f, int n, tn_tensor *const *x, void *user)
{
    return check_in_scope("gradcheck", f, n, x, user);
}

// ---- second order ------------------------------------------------------------------------------

// What `gradients` needs to know of the function it differentiates.
typedef struct {
    tn_ctx   *cx;
    function *f;
    int       n;
    void     *user;
} inner;

// The gradients of f as one vector: a function whose own gradient is the second derivative of f.
static tn_tensor *gradients(tn_tensor *const *x, void *user)
{
    inner     *in = user;
    tn_tensor *at[16], *gx[16];
    for (int i = 0; i < in->n; i++) {
        at[i] = x[i];
        if (!tn_needs_grad(x[i])) at[i] = tn_requires_grad(tn_detach(x[i]), true);
    }
    tn_tensor *y = weighted_sum(in->cx, in->f(at, in->user));
    if (!y || tn_grad(1, &y, in->n, at, NULL, gx) != TN_OK) return NULL;
    for (int i = 0; i < in->n; i++) gx[i] = tn_reshape(gx[i], TN_SHAPE(-1));
    return tn_concat(in->n, gx, 0);
}

tn_status tn_gradgradcheck(function *f, int n, tn_tensor *const *x, void *user)
{
    if (n < 1 || !x) return check_in_scope("gradgradcheck", f, n, x, user);
    tn_ctx *cx = tni_args("gradgradcheck", n, x, NULL);
    if (!cx) return tni_failed();
    if (n > 16) return tni_fail_status(cx, TN_EARG, "gradgradcheck: %d inputs are more than 16", n);
    inner in = { cx, f, n, user };
    return check_in_scope("gradgradcheck", f ? gradients : NULL, n, x, &in);
}
