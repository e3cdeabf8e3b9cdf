// Derivatives of functions: products with the Jacobian from either side, Jacobians and Hessians.
// Each calls the function once, at values that stand for the arguments, and differentiates what it
// recorded; rows of a matrix are one backward pass each.
#include "grad/grad.h"

enum { MOST = 16 };  // arguments of a function

// A call being differentiated: y = f(at). Its scope has gradient mode on; results leave it by
// give_out.
typedef struct {
    tn_ctx     *cx;
    tn_scope   *scope;
    const char *op;
    int         n;
    bool        linked;  // results have a history: an argument has one, and gradient mode was on
    tn_tensor  *at[MOST], *y;
} function_call;

// A value that stands for x, to be differentiated by: with x's history, or else a leaf of its own.
static tn_tensor *stand_in(const char *op, tn_tensor *x)
{
    if (tn_needs_grad(x)) return tni_share(x, op);
    x = tn_detach(x);
    if (x && x->view && !tni_view_injective(x->view)) x = tn_contiguous(x);
    return x ? tn_requires_grad(x, true) : NULL;
}

// Checks the arguments, opens the scope and calls f; v, if there are any, have the shapes and
// dtypes of x. False, reported, with no scope left.
static bool begin_call(function_call *c, tn_function *f, int n, tn_tensor *const *x, void *user,
                       tn_tensor *const *v)
{
    if (!f || n < 1 || n > MOST || !x) {
        tni_thread_fail(TN_EARG, "%s: there is no function, or it has %d inputs, not 1 .. %d",
                        c->op, n, MOST);
        return false;
    }
    if (!(c->cx = tni_args(c->op, n, x, NULL)) || (v && !tni_args(c->op, n, v, NULL))) return false;
    c->n = n;
    for (int i = 0; i < n; i++) {
        tni_view a = tni_layout(x[i]), b = v ? tni_layout(v[i]) : a;
        if (!tni_is_float(tn_dtype_of(x[i])))
            return tni_refuse(c->cx, TN_EDTYPE, "%s: x[%d] is %s, not a float type", c->op, i,
                              tn_dtype_name(tn_dtype_of(x[i])));
        if (v && (v[i]->cx != c->cx || tn_dtype_of(v[i]) != tn_dtype_of(x[i]) ||
                  !tni_shape_equal(a.rank, a.size, b.rank, b.size)))
            return tni_refuse(c->cx, TN_ESHAPE, "%s: x[%d] %s %s and v[%d] %s %s differ", c->op, i,
                              tn_dtype_name(tn_dtype_of(x[i])), tni_shape_of(x[i]).s, i,
                              tn_dtype_name(tn_dtype_of(v[i])), tni_shape_of(v[i]).s);
        c->linked |= c->cx->grad_mode && tn_needs_grad(x[i]);
    }
    if (!(c->scope = tn_begin(c->cx))) return false;
    c->cx->grad_mode  = true;
    bool     ok       = true;
    uint64_t failures = c->cx->failures;
    for (int i = 0; i < n && ok; i++) ok = (c->at[i] = stand_in(c->op, x[i])) != NULL;
    c->y = ok ? f(c->at, user) : NULL;
    if (c->y) return true;
    tni_scope_close(c->scope);
    if (c->cx->failures == failures) tni_fail(c->cx, TN_EARG, "%s: f returned no result", c->op);
    return false;
}

// Moves a result to the caller's scope, without history unless the arguments had one.
static tn_tensor *give_out(function_call *c, tn_tensor *y)
{
    if (y && !c->linked && tn_needs_grad(y)) y = tn_detach(y);
    else if (y) y = tni_share(y, c->op);
    if (!y) return NULL;
    tni_scope_remove(y);
    tni_scope_add(c->scope->outer, y);
    return y;
}

// Gives out n results and ends the call; all or none.
static tn_status end_call(function_call *c, bool ok, int n, tn_tensor **result)
{
    for (int i = 0; i < n; i++) {
        result[i] = ok ? give_out(c, result[i]) : NULL;
        ok        = ok && result[i];
    }
    tni_scope_close(c->scope);
    for (int i = 0; i < n && !ok; i++) result[i] = NULL;
    return ok ? TN_OK : tni_failed();
}

tn_status tn_vjp(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor *gy,
                 tn_tensor **y, tn_tensor **gx)
{
    function_call c = { .op = "vjp" };
    tn_tensor    *out[MOST + 1];
    if (!y || !gx) {
        tni_thread_fail(TN_EARG, "vjp: y or gx is NULL");
        return TN_EARG;
    }
    *y = NULL;
    for (int i = 0; i < n; i++) gx[i] = NULL;
    if (!begin_call(&c, f, n, x, user, NULL)) return tni_failed();
    bool ok          = tn_grad(1, &c.y, n, c.at, gy ? &gy : NULL, out + 1) == TN_OK;
    out[0]           = c.y;
    tn_status status = end_call(&c, ok, n + 1, out);
    *y               = out[0];
    for (int i = 0; i < n; i++) gx[i] = out[i + 1];
    return status;
}

// The product from the left is linear in its vector u, so that its own derivative by u, in the
// direction v, is the product from the right, wherever u is.
tn_status tn_jvp(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor *const *v,
                 tn_tensor **y, tn_tensor **dy)
{
    function_call c = { .op = "jvp" };
    tn_tensor    *g[MOST], *out[2] = { 0 };
    if (!v || !y || !dy) {
        tni_thread_fail(TN_EARG, "jvp: v, y or dy is NULL");
        return TN_EARG;
    }
    *y = *dy = NULL;
    if (!begin_call(&c, f, n, x, user, v)) return tni_failed();
    tn_tensor *u  = tn_requires_grad(tn_zeros_like(tn_detach(c.y)), true);
    bool       ok = u && tn_grad(1, &c.y, n, c.at, &u, g) == TN_OK &&
              tn_grad(n, g, 1, &u, v, &out[1]) == TN_OK;
    out[0]           = c.y;
    tn_status status = end_call(&c, ok, 2, out);
    *y               = out[0];
    *dy              = out[1];
    return status;
}

// The derivatives of y's elements by each of at, one row of the matrix after the other: j[i] has
// y's shape, then that of at[i].
static bool rows_of(function_call *c, tn_tensor *y, tn_tensor **j)
{
    int64_t     count = tn_count(y);
    tni_view    s     = tni_layout(y);
    tn_tensor **row   = tni_alloc(&c->cx->heap, (size_t)(count * c->n + 1) * sizeof *row);
    tn_tensor  *gx[MOST], *ramp = tn_arange(c->cx, TN_I64, 0, (double)count, 1);
    bool        ok = row || tni_no_memory(c->cx, c->op);
    for (int64_t k = 0; k < count && ok; k++) {
        tn_tensor *one = tn_cast(tn_eq_s(ramp, (double)k), tn_dtype_of(y));
        one            = tn_reshape(one, s.rank, s.size);
        ok             = one && tn_grad(1, &y, c->n, c->at, &one, gx) == TN_OK;
        for (int i = 0; i < c->n && ok; i++) row[i * count + k] = gx[i];
    }
    for (int i = 0; i < c->n && ok; i++) {
        tni_view x                 = tni_layout(c->at[i]);
        int64_t  size[TN_MAX_RANK] = { 0 };
        ok                         = s.rank + x.rank <= TN_MAX_RANK ||
             tni_refuse(c->cx, TN_ESHAPE, "%s: y %s and x[%d] %s have more than %d axes", c->op,
                        tni_shape_of(y).s, i, tni_shape_of(c->at[i]).s, TN_MAX_RANK);
        for (int k = 0; k < s.rank && ok; k++) size[k] = s.size[k];
        for (int k = 0; k < x.rank && ok; k++) size[s.rank + k] = x.size[k];
        if (!ok) break;
        j[i] = count ? tn_reshape(tn_stack((int)count, row + i * count, 0), s.rank + x.rank, size)
                     : tn_zeros(c->cx, tn_dtype_of(c->at[i]), s.rank + x.rank, size);
        ok   = j[i] != NULL;
    }
    tni_free(&c->cx->heap, row);
    return ok;
}

tn_status tn_jacobian(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor **j)
{
    function_call c = { .op = "jacobian" };
    if (!j) {
        tni_thread_fail(TN_EARG, "jacobian: j is NULL");
        return TN_EARG;
    }
    if (!begin_call(&c, f, n, x, user, NULL)) return tni_failed();
    return end_call(&c, rows_of(&c, c.y, j), n, j);
}

// The gradients of a function of one element, which have a history. False, reported.
static bool gradients_of(function_call *c, tn_tensor **g)
{
    if (tn_count(c->y) != 1)
        return tni_refuse(c->cx, TN_ESHAPE, "%s: f returned %s, not one element", c->op,
                          tni_shape_of(c->y).s);
    return tn_grad(1, &c->y, c->n, c->at, NULL, g) == TN_OK;
}

tn_status tn_hvp(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor *const *v,
                 tn_tensor **hv)
{
    function_call c = { .op = "hvp" };
    tn_tensor    *g[MOST];
    if (!hv || !v) {
        tni_thread_fail(TN_EARG, "hvp: v or hv is NULL");
        return TN_EARG;
    }
    if (!begin_call(&c, f, n, x, user, v)) return tni_failed();
    bool ok = gradients_of(&c, g) && tn_grad(n, g, n, c.at, v, hv) == TN_OK;
    return end_call(&c, ok, n, hv);
}

tn_status tn_hessian(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor **h)
{
    function_call c = { .op = "hessian" };
    tn_tensor    *g[MOST];
    if (!h) {
        tni_thread_fail(TN_EARG, "hessian: h is NULL");
        return TN_EARG;
    }
    if (!begin_call(&c, f, n, x, user, NULL)) return tni_failed();
    bool ok = gradients_of(&c, g);
    for (int i = 0; i < n && ok; i++) ok = rows_of(&c, g[i], h + (size_t)i * (size_t)n);
    return end_call(&c, ok, n * n, h);
}
