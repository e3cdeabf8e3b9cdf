// Checks of arguments, and tensors made in place, for the constructors of our own layers.
#include "nn/builtin.h"

bool tni_size_arg(tn_ctx *cx, const char *op, const char *name, int64_t v)
{
    if (v >= 1 && v <= INT32_MAX) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s %lld is not in 1 .. %d", op, name, (long long)v,
                      INT32_MAX);
}

bool tni_unit_arg(tn_ctx *cx, const char *op, const char *name, double v)
{
    if (v >= 0 && v <= 1) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s %g is not in 0 .. 1", op, name, v);
}

bool tni_pair_arg(tn_ctx *cx, const char *op, const char *name, const int64_t *v)
{
    if (v[0] >= 0 && v[1] >= 0) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s %lld is negative", op, name,
                      (long long)(v[0] < 0 ? v[0] : v[1]));
}

bool tni_layer_arg(tn_ctx *cx, const char *op, const char *name, const tn_layer *l)
{
    if (l) return true;
    if (!cx->fault.code) tni_fail(cx, TN_EARG, "%s: %s is NULL", op, name);
    return false;
}

tn_tensor *tni_function_run(tn_tensor *(*f)(tn_tensor *x), tn_tensor *x)
{
    tni_thread before;
    tni_lines_begin(&before);
    tn_tensor *y = f(x);
    tni_lines_end(&before);
    return y;
}

tn_tensor *tni_start_within(tn_tensor *t, double bound)
{
    return tn_init_uniform(t, -bound, bound);
}

tn_tensor *tni_start_normal(tn_tensor *t, double std)
{
    return tn_init_normal(t, 0, std);
}

tn_tensor *tni_new_param(tn_layer *l, const char *name, tni_start *start, double v, int rank,
                         const int64_t *size)
{
    tn_ctx   *cx = l->owned.cx;
    tn_scope *s  = tn_begin(cx);
    if (!s) return NULL;
    tn_tensor *t = tn_zeros(cx, TN_F32, rank, size);
    t            = t && start(t, v) ? tn_layer_param(l, name, t) : NULL;
    tni_scope_close(s);
    return t;
}

tn_tensor *tni_new_buffer(tn_layer *l, const char *name, tn_dtype dt, double v, int rank,
                          const int64_t *size)
{
    tn_ctx   *cx = l->owned.cx;
    tn_scope *s  = tn_begin(cx);
    if (!s) return NULL;
    tn_tensor *t = tn_full(cx, dt, rank, size, v);
    if (t) t = tn_layer_buffer(l, name, t);
    tni_scope_close(s);
    return t;
}
