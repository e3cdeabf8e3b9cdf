// What the composed ops share: shapes that must broadcast, and reductions given as a body.
#include "ops/compose.h"

tn_tensor *tni_fold_axis(tni_fold *f, const char *op, tn_tensor *x, int axis, bool keep)
{
    uint32_t mask;
    if (!tni_arg1(op, x, "x") || !tni_axis_mask(x, op, axis, &mask)) return NULL;
    return f(op, x, mask, keep);
}

tn_tensor *tni_fold_axes(tni_fold *f, const char *op, tn_tensor *x, int n, const int *axes,
                         bool keep)
{
    uint32_t mask;
    if (!tni_arg1(op, x, "x") || !tni_axes_mask(x, op, n, axes, &mask)) return NULL;
    return f(op, x, mask, keep);
}

static bool refuse_shapes(const char *op, tn_tensor *x, const char *x_name, tn_tensor *y,
                          const char *y_name)
{
    tni_fail(x->cx, TN_ESHAPE, "%s: %s %s and %s %s do not broadcast", op, x_name,
             tni_shape_of(x).s, y_name, tni_shape_of(y).s);
    return false;
}

bool tni_broadcast_pair(const char *op, tn_tensor *x, const char *x_name, tn_tensor *y,
                        const char *y_name)
{
    tni_view a = tni_layout(x), b = tni_layout(y);
    return tni_shape_broadcast(&a.rank, a.size, b.rank, b.size) ||
           refuse_shapes(op, x, x_name, y, y_name);
}

bool tni_broadcasts(const char *op, tn_tensor *x, const char *x_name, tn_tensor *to,
                    const char *to_name)
{
    tni_view a = tni_layout(x), b = tni_layout(to);
    return tni_view_expand(&a, b.rank, b.size) || refuse_shapes(op, x, x_name, to, to_name);
}
