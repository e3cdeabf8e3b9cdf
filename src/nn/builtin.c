// Checks of arguments, and tensors made in place, for the constructors of our own layers.
//
// A built-in layer is a struct of its state, a forward function, and a constructor in four steps:
// check the arguments, tni_layer_make, tni_new_param or tni_new_buffer for each tensor, and
// tni_layer_give_up if one of them failed. linear.c is the shortest example.
#include "nn/builtin.h"

// Sizes fit 32 bits, so that products of two of them fit 64.
bool tni_size_arg(tn_ctx *cx, const char *op, const char *name, int64_t v)
{
    if (v >= 1 && v <= INT32_MAX) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s %lld is not in 1 .. %d", op, name, (long long)v,
                      INT32_MAX);
}

// NaN fails both comparisons and is refused.
bool tni_unit_arg(tn_ctx *cx, const char *op, const char *name, double v)
{
    if (v >= 0 && v <= 1) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s %g is not in 0 .. 1", op, name, v);
}

bool tni_axes_arg(tn_ctx *cx, const char *op, const char *name, const int64_t *v, int64_t least)
{
    for (int i = 0; i < 3; i++)
        if (v[i] < (i ? least : 0))
            return tni_refuse(cx, TN_EARG, "%s: %s %lld is negative", op, name, (long long)v[i]);
    return true;
}

// A NULL after an earlier error comes from that error, which is enough to report.
bool tni_layer_arg(tn_ctx *cx, const char *op, const char *name, const tn_layer *l)
{
    if (l) return true;
    if (!cx->fault.code) tni_fail(cx, TN_EARG, "%s: %s is NULL", op, name);
    return false;
}

// Call sites inside a user's function are the user's lines again, for errors and profiles.
tn_tensor *tni_function_run(tn_tensor *(*f)(tn_tensor *x), tn_tensor *x)
{
    tni_thread before;
    tni_user_sites_begin(&before);
    tn_tensor *y = f(x);
    tni_user_sites_end(&before);
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

// Made in a scope of its own: the layer keeps the parameter, everything else dies with the scope.
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

// As tni_new_param; a buffer is saved with the weights and never trained.
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

// So that a constructor can make and add a child in one expression, whatever of the two fails.
tn_layer *tni_add_child(tn_layer *l, const char *name, tn_layer *child)
{
    if (!child || tn_layer_child(l, name, child)) return child;
    return tni_layer_give_up(child);
}
