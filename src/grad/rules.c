// The gradient rules. Most are one expression in the gradient column of ops.def, compiled here:
// `OP(exp, ..., GRAD1(mul(g, Y)), ...)` becomes the function
//
//     static void rule_exp(tni_grad_args *r)
//     {
//         tn_tensor *g = r->g;
//         if (r->need[0]) r->gx[0] = tn_mul(g, tni_wrap_node(r->cx, r->n));
//     }
//
// by the macros before the table at the end of this file: g is the gradient of the result,
// A, B, C the inputs, Y the result, and the lower-case words are ops. A rule that is more than an
// expression is GRAD_BY(f), the function tni_grad_f, mostly in this file.
//
// Only primitive ops have rules. A composite op, such as softmax or layer norm (ops/norm.c), is a C
// function over primitives: its gradient is that of the primitives it recorded, one node at a time.
#include "grad/grad.h"
#include "ops/composite.h"
#include "ops/expr_op.h"
#include "ops/ranking.h"

#include <math.h>
#include <string.h>

// ---- the vocabulary of the table ---------------------------------------------------------------

// Source i of the node as a tensor.
static tn_tensor *rule_input(tni_grad_args *r, int i)
{
    return tni_wrap_node(r->cx, r->n->src[i]);
}

// A square sends the same gradient twice: it is recorded once.
void tni_grad_mul(tni_grad_args *r)
{
    bool square = r->n->src[0] == r->n->src[1] && r->need[0];
    if (r->need[0]) r->gx[0] = tn_mul(r->g, rule_input(r, 1));
    if (r->need[1]) r->gx[1] = square ? r->gx[0] : tn_mul(r->g, rule_input(r, 0));
}

// For maximum and minimum: nothing where the other was chosen, half of g at a tie, else g. As in
// PyTorch, if either input is NaN, so is the result, and both inputs get g.
static tn_tensor *unless_less(tn_tensor *g, tn_tensor *lost, tn_tensor *tie)
{
    return tn_where(lost, tn_zeros_like(g), tn_where(tie, tn_mul_s(g, 0.5), g));
}

// g where y is above 0 or NaN: relu. By the result, so that its input need not be kept.
static tn_tensor *where_above(tn_tensor *g, tn_tensor *y)
{
    tn_tensor *zero = y ? tni_number(y->cx, tni_dtype(y), tni_num_i64(0)) : NULL;
    return tn_where(tn_le(y, zero), zero, g);
}

static tn_tensor *cast_like(tn_tensor *g, tn_tensor *x)
{
    return x ? tn_cast(g, tn_dtype_of(x)) : NULL;
}

// g in another shape; itself if it has that.
static tn_tensor *reshape_to(tn_tensor *g, int rank, const int64_t *size)
{
    bool same = g && tni_shape_equal(tn_rank(g), tni_sizes(g), rank, size);
    return same ? g : tn_reshape(g, rank, size);
}

// A reduction's value or gradient with the reduced axes back, at size 1 each.
static tn_tensor *keep_axes(tni_grad_args *r, tn_tensor *g)
{
    const tni_node *x = r->n->src[0];
    int64_t         size[TN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) size[i] = r->n->attr.reduce.axes >> i & 1 ? 1 : x->size[i];
    return reshape_to(g, x->rank, size);
}

// The gradient of a sum: g for every element that was added.
static tn_tensor *spread_gradient(tni_grad_args *r, tn_tensor *g)
{
    const tni_node *x = r->n->src[0];
    g                 = keep_axes(r, g);
    return g ? tni_expand_to(g, x->rank, x->size) : NULL;
}

// ---- views and writes --------------------------------------------------------------------------

// A view of several sources is a user's op with a grad_expr (ops/expr_op.h): the first source is
// the value and gets nothing; the others are the inputs of the op, whose gradients the user's
// expression gives.
static void grad_by_user(tni_grad_args *r)
{
    const tni_expr_op *e = r->n->attr.view.rule;
    tn_tensor         *x[TNI_EXPR_INPUTS];
    tn_tensor         *y = tni_wrap_node(r->cx, r->n);
    for (int i = 0; i < e->nin; i++)
        if (!(x[i] = rule_input(r, 1 + i))) return;
    for (int i = 0; i < e->nin && y; i++)
        if (r->need[1 + i]) r->gx[1 + i] = tni_expr_op_grad(e, i, x, y, r->g);
}

void tni_grad_view(tni_grad_args *r)
{
    if (r->n->nsrc > 1) grad_by_user(r);
    else {
        tni_view base = tni_node_layout(r->n->src[0]);
        r->gx[0]      = tni_unview(r->cx, r->g, tni_node_layout(r->n), &base);
    }
}

// Reads x, of the base's shape, at the places of the node's view: the gradient of what was written
// there.
static tn_tensor *read_at_view(tni_grad_args *r, tn_tensor *x, const tni_node *shape)
{
    tni_view v = { .rank = shape->rank, .offset = r->n->attr.view.offset };
    memcpy(v.size, shape->size, sizeof v.size);
    memcpy(v.stride, r->n->attr.view.stride, sizeof v.stride);
    x = tn_contiguous(x);
    return x ? tni_wrap_view(x, &v, NULL, NULL) : NULL;
}

// A fold is the adjoint of a view, so its own gradient is that view.
void tni_grad_fold(tni_grad_args *r)
{
    r->gx[0] = read_at_view(r, r->g, r->n->src[0]);
}

// The written value gets the gradient at the places of the view; the base gets the rest, with zeros
// there.
void tni_grad_update(tni_grad_args *r)
{
    const tni_node *value = r->n->src[1];
    if (r->need[1]) r->gx[1] = read_at_view(r, r->g, value);
    if (!r->need[0]) return;
    tni_view v = { .rank = value->rank, .offset = r->n->attr.view.offset };
    memcpy(v.stride, r->n->attr.view.stride, sizeof v.stride);
    tn_tensor *zeros = tn_zeros(r->cx, (tn_dtype)value->dtype, value->rank, value->size);
    r->gx[0]         = tni_record_at_view(r->cx, TNI_update, r->n->rank, r->n->size, 2,
                                          (tn_tensor *const[]){ r->g, zeros }, &v);
}

// ---- maps and folds ----------------------------------------------------------------------------

// As in PyTorch nothing flows to the base where b is 0, nor to the exponent where a is 0 and b is
// not negative. f16 and bf16 are rounded only at the end: a power on the way can overflow them
// where the gradient does not.
void tni_grad_pow(tni_grad_args *r)
{
    tn_tensor *a = tni_widen(rule_input(r, 0)), *b = tni_widen(rule_input(r, 1)),
              *g    = tni_widen(r->g);
    tn_tensor *zero = tn_zeros_like(g);
    if (r->need[0]) {
        // The branch not taken stays finite at a = 0, so that its own gradient does. A number stays
        // one, and so is not rounded to a's dtype before 1 is taken from it.
        tn_tensor *one  = tni_number_like(b, 1);
        tn_tensor *none = tn_eq_s(b, 0), *safe = tn_where(none, one, b);
        tn_tensor *gx = tn_mul(g, tn_mul(b, tn_pow(a, tn_sub_s(safe, 1))));
        r->gx[0]      = tn_where(none, zero, gx);
    }
    if (r->need[1]) {
        tn_tensor *y    = tni_widen(tni_wrap_node(r->cx, r->n));
        tn_tensor *dead = tn_logical_and(tn_eq_s(a, 0), tn_ge_s(b, 0));
        tn_tensor *safe = tn_where(dead, tn_ones_like(a), a);
        r->gx[1]        = tn_where(dead, zero, tn_mul(g, tn_mul(y, tn_log(safe))));
    }
}

// (1 - t^2) (u' + x (u'' / 2 - t u'^2)) with t = tanh(u), u = c (x + k x^3). Past 16 nothing is
// left of 1 - t^2, and what it is multiplied with would overflow.
void tni_grad_gelu_slope(tni_grad_args *r)
{
    const double c = 0.79788456080286535588, k = 0.044715;  // c: sqrt(2 / pi)
    tn_tensor   *x = tn_clamp(tni_widen(rule_input(r, 0)), -16, 16), *xx = tn_mul(x, x);
    tn_tensor   *t     = tn_tanh(tn_mul(x, tn_add_s(tn_mul_s(xx, c * k), c)));
    tn_tensor   *slope = tn_add_s(tn_mul_s(xx, 3 * c * k), c);
    tn_tensor   *bend  = tn_mul(tn_mul(x, t), tn_mul(slope, slope));
    tn_tensor   *rest  = tn_sub(tn_add_s(tn_mul_s(xx, 6 * c * k), c), bend);
    r->gx[0]           = tn_mul(tni_widen(r->g), tn_mul(tn_rsub_s(tn_mul(t, t), 1), rest));
}

// Axes in memory order, so that windows are walked as the tensor they look at.
static void axes_by_stride(const tni_node *x, int *order)
{
    tni_view v = tni_node_layout(x);
    tni_view_sort(&v, order);
}

// The inverse permutation.
static void invert_order(int rank, const int *order, int *back)
{
    for (int i = 0; i < rank; i++) back[order[i]] = i;
}

// A reduction whose axes are put in memory order: its input, and its value and gradient with the
// axes kept.
typedef struct {
    int        order[TN_MAX_RANK], back[TN_MAX_RANK];
    uint32_t   axes;
    tn_tensor *x, *y, *g;
} sorted_reduction;

// The reduction with its axes in memory order: then its gradient is in the order of the tensor that
// the windows look at, and folds over it read memory forward.
static sorted_reduction sort_reduction(tni_grad_args *r)
{
    sorted_reduction l    = { 0 };
    int              rank = r->n->src[0]->rank;
    axes_by_stride(r->n->src[0], l.order);
    invert_order(rank, l.order, l.back);
    for (int i = 0; i < rank; i++) l.axes |= (r->n->attr.reduce.axes >> l.order[i] & 1) << i;
    l.x = tn_permute(rule_input(r, 0), rank, l.order);
    l.y = tn_permute(keep_axes(r, tni_wrap_node(r->cx, r->n)), rank, l.order);
    l.g = tn_permute(keep_axes(r, r->g), rank, l.order);
    return l;
}

// Elements equal to the result share its gradient; of a NaN, those that are NaN, as in PyTorch's
// max of all elements.
static tn_tensor *shared_gradient(tni_grad_args *r, const sorted_reduction *l)
{
    tn_tensor *hit = tn_logical_or(tn_eq(l->x, l->y), tn_isnan(l->x));
    tn_tensor *n   = hit ? tni_reduce(TNI_sum, "sum", hit, l->axes, true) : NULL;
    tn_tensor *g   = tn_div(l->g, cast_like(n, l->g));
    return g ? tn_where(hit, g, tni_number(r->cx, tn_dtype_of(g), tni_num_i64(0))) : NULL;
}

// The row-major index of each element among those that are reduced to one, as a tensor with the
// other axes at size 1; *count is their number. In bytes if they fit, since the index is kept from
// the forward pass on.
static tn_tensor *reduced_places(tni_grad_args *r, int64_t *count)
{
    const tni_node *x = r->n->src[0];
    int64_t         size[TN_MAX_RANK];
    *count = 1;
    for (int i = 0; i < x->rank; i++) {
        size[i] = r->n->attr.reduce.axes >> i & 1 ? x->size[i] : 1;
        *count *= size[i];
    }
    tn_tensor *i = tn_arange(r->cx, *count < 128 ? TN_I8 : TN_I32, 0, (double)*count, 1);
    return tn_reshape(i, x->rank, size);
}

// The axis of a row-major base along which a window with this stride runs.
static int axis_along(const tni_node *base, int64_t stride)
{
    tni_view v = tni_node_layout(base);
    int      a = base->rank - 1;
    for (int i = a; i >= 0; i--)
        if (v.size[i] > 1 && v.stride[i] <= stride && v.stride[i] > v.stride[a]) a = i;
    return a;
}

// For each window of a padded tensor, its first element along one axis that is no padding: window i
// begins `before` - i step places inside the padding. As many elements as there are windows, on
// their axis.
static tn_tensor *first_along(tni_grad_args *r, int j)
{
    const tni_node *w = r->n->src[0], *pad = w->src[0];
    tni_view        v = tni_node_layout(w), base = tni_node_layout(pad);
    int             a    = axis_along(pad, v.stride[j]);
    double          step = (double)(v.stride[a] / base.stride[a]),
           d             = (double)(v.stride[j] / base.stride[a]);
    double     from = (double)pad->attr.pad.before[a] + d - 1, n = (double)v.size[a];
    tn_tensor *i = tn_arange(r->cx, TN_I32, from, from - step * n, -step);
    int64_t    size[TN_MAX_RANK];
    for (int k = 0; k < v.rank; k++) size[k] = k == a ? v.size[a] : 1;
    if (d > 1) i = tn_floor_divide(i, tni_number(r->cx, TN_I32, tni_num_i64((int64_t)d)));
    return tn_reshape(tn_relu(i), v.rank, size);
}

// The index of each window's first element that is no padding; NULL if there is no padding. Padding
// has the lowest value, so it equals the result only if all of the window does.
static tn_tensor *first_inside(tni_grad_args *r)
{
    const tni_node *w     = r->n->src[0];
    tn_tensor      *place = NULL;
    int64_t         many  = 1;
    if (!r->n->attr.reduce.padded || w->op != TNI_view || w->src[0]->op != TNI_pad) return NULL;
    for (int j = w->rank - 1; j >= 0; j--) {
        if (!(r->n->attr.reduce.axes >> j & 1) || w->size[j] == 1) continue;
        tn_tensor *i = first_along(r, j);
        if (many > 1) i = tn_mul(i, tni_number(r->cx, TN_I32, tni_num_i64(many)));
        place = place ? tn_add(place, i) : i;
        many *= w->size[j];
    }
    return place;
}

// Whether a reduction folds elements that are next to each other in memory.
static bool folds_neighbours(const tni_node *n)
{
    tni_view v = tni_node_layout(n->src[0]);
    for (int i = 0; i < v.rank; i++)
        if (n->attr.reduce.axes >> i & 1 && v.size[i] > 1 && v.stride[i] == 1) return true;
    return false;
}

// The first element equal to the result gets all of its gradient, of NaN the last, as in PyTorch's
// pools. Each element gets a key, its index if it equals the result, and the smallest key wins: one
// reduction, as for sharing, over the elements as the maximum read them, so that both can be one
// kernel.
static tn_tensor *first_gradient(tni_grad_args *r, const sorted_reduction *l)
{
    int64_t    count;
    int        rank = r->n->src[0]->rank;
    tn_tensor *x = rule_input(r, 0), *y = keep_axes(r, tni_wrap_node(r->cx, r->n));
    tn_tensor *place = reduced_places(r, &count), *inside = first_inside(r);
    tn_tensor *none  = place ? tni_number(r->cx, tn_dtype_of(place), tni_num_i64(count)) : NULL;
    tn_tensor *key   = tn_where(tn_isnan(x), tn_neg(place), none);
    key              = tn_where(tn_eq(x, y), place, key);
    tn_tensor *least = key ? tni_reduce(TNI_min, "min", key, r->n->attr.reduce.axes, true) : NULL;
    if (inside) least = tn_where(tn_eq_s(y, -INFINITY), cast_like(inside, place), least);
    // The index tells the winner, a NaN's by its negative, so that the windows are not read again;
    // unless they are along memory: then this is the kernel that reads them.
    bool by_index = least && !folds_neighbours(r->n);
    if (by_index) least = tn_abs(least);
    tn_tensor *hit = tn_eq(tn_permute(by_index ? place : key, rank, l->order),
                           tn_permute(least, rank, l->order));
    return hit && l->g ? tn_where(hit, l->g, tni_number(r->cx, tn_dtype_of(l->g), tni_num_i64(0)))
                       : NULL;
}

// max and min. tn_max shares the gradient among equal elements, pools give it to the first.
void tni_grad_extremum(tni_grad_args *r)
{
    sorted_reduction l = sort_reduction(r);
    tn_tensor       *g = r->n->attr.reduce.first ? first_gradient(r, &l) : shared_gradient(r, &l);
    r->gx[0]           = tn_permute(g, r->n->src[0]->rank, l.back);
}

// The running product of everything before each element of the last axis.
static tn_tensor *product_before(tn_tensor *x)
{
    tn_tensor *one  = tn_ones_like(tn_slice(x, -1, 0, 1, 1));
    tn_tensor *rest = tn_cumprod(tn_slice(x, -1, 0, -1, 1), -1);
    return tn_concat(2, (tn_tensor *const[]){ one, rest }, -1);
}

// Each element's gradient is the product of all the others: those before times those after. A
// division of the whole product by the element would fail at zeros.
void tni_grad_prod(tni_grad_args *r)
{
    tni_node *x = r->n->src[0];
    int       order[TN_MAX_RANK], back[TN_MAX_RANK], n = 0;
    int64_t   size[TN_MAX_RANK], rows = 1;
    if (tni_node_count(x) == 0) {
        r->gx[0] = tn_zeros_like(rule_input(r, 0));
        return;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->rank; i++)
            if ((int)(r->n->attr.reduce.axes >> i & 1) == pass) order[n++] = i;
    for (int i = 0; i < n; i++) {
        back[order[i]] = i;
        size[i]        = x->size[order[i]];
        if (!(r->n->attr.reduce.axes >> order[i] & 1)) rows *= size[i];
    }
    tn_tensor *flat   = tn_reshape(tn_permute(rule_input(r, 0), n, order), TN_SHAPE(rows, -1));
    tn_tensor *others = tn_mul(product_before(flat),
                               tn_flip(product_before(tn_flip(flat, -1)), -1));
    r->gx[0] = tn_mul(tn_permute(tn_reshape(others, n, size), n, back), spread_gradient(r, r->g));
}

// The sum of everything from each element to the end of the axis.
static tn_tensor *sum_from(tn_tensor *g, int axis)
{
    return tn_flip(tn_cumsum(tn_flip(g, axis), axis), axis);
}

void tni_grad_cumsum(tni_grad_args *r)
{
    r->gx[0] = sum_from(r->g, r->n->attr.axis.axis);
}

// The gradient of cumprod without a division, which also holds at zeros for the gradient of the
// gradient: element k's is the sum over j >= k of g_j times the product of all up to j but k. It
// takes the square of the axis in memory, so only a gradient that may be differentiated is computed
// so.
static tn_tensor *cumprod_twice(tni_grad_args *r, tn_tensor *x, int axis)
{
    int64_t    n = tn_size(x, axis);
    tn_tensor *j = tn_arange(r->cx, TN_I64, 0, (double)n, 1), *k = tn_unsqueeze(j, 1);
    tn_tensor *rows = tn_unsqueeze(tn_transpose(x, axis, -1), -2);
    tn_tensor *g    = tn_unsqueeze(tn_transpose(r->g, axis, -1), -2);
    tn_tensor *rest = tn_cumprod(tn_where(tn_eq(j, k), tn_ones_like(rows), rows), -1);
    tn_tensor *term = tn_mul(rest, g);
    return tn_transpose(tn_sum(tn_where(tn_ge(j, k), term, tn_zeros_like(g)), -1), axis, -1);
}

// Before the first zero of a row: the sum of g y from there on, divided by x. At the first zero:
// the same sum with that zero taken as 1, up to the second zero. Behind it nothing flows.
void tni_grad_cumprod(tni_grad_args *r)
{
    int        axis = r->n->attr.axis.axis;
    tn_tensor *x    = rule_input(r, 0);
    if (r->cx->grad_mode && tn_rank(x) < TN_MAX_RANK) {
        r->gx[0] = cumprod_twice(r, x, axis);
        return;
    }
    tn_tensor *zero  = tn_eq_s(x, 0);
    tn_tensor *seen  = tn_cumsum(tn_cast(zero, TN_I64), axis);
    tn_tensor *first = tn_logical_and(zero, tn_eq_s(seen, 1));
    tn_tensor *safe  = tn_where(zero, tn_ones_like(x), x);
    tn_tensor *none  = tn_zeros_like(x);
    tn_tensor *gy    = tn_mul(r->g, tn_cumprod(tn_where(first, tn_ones_like(x), x), axis));
    tn_tensor *early = sum_from(tn_where(tn_eq_s(seen, 0), gy, none), axis);
    tn_tensor *later = sum_from(tn_where(tn_eq_s(seen, 1), gy, none), axis);
    r->gx[0] = tn_where(tn_eq_s(seen, 0), tn_div(early, safe), tn_where(first, later, none));
}

// ---- movement ----------------------------------------------------------------------------------

// A pad by the negative amounts: it cuts off what was added, and adds zeros where something was cut
// off.
void tni_grad_pad(tni_grad_args *r)
{
    const tni_node *x = r->n->src[0];
    int64_t         before[TN_MAX_RANK], after[TN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        before[i] = -r->n->attr.pad.before[i];
        after[i]  = x->size[i] - r->n->size[i] - before[i];
    }
    r->gx[0] = tn_pad(r->g, before, after, 0);
}

void tni_grad_concat(tni_grad_args *r)
{
    int     axis = r->n->attr.axis.axis;
    int64_t at   = 0;
    for (uint32_t i = 0; i < r->n->nsrc; i++) {
        int64_t n = r->n->src[i]->size[axis];
        if (r->need[i]) r->gx[i] = tn_slice(r->g, axis, at, at + n, 1);
        at += n;
    }
}

// Indices may repeat, so the elements are added up.
void tni_grad_gather(tni_grad_args *r)
{
    r->gx[0] = tn_scatter_add(tn_zeros_like(rule_input(r, 0)), r->n->attr.axis.axis,
                              rule_input(r, 1), r->g);
}

// Whether an element is the last one that was written to its place: the number of the last is
// written where it was.
static tn_tensor *is_last_write(tn_tensor *x, int axis, tn_tensor *index)
{
    tn_tensor *number = tni_places_along(index, axis);
    tn_tensor *last   = tn_scatter(tn_cast(tn_zeros_like(x), TN_I64), axis, index, number);
    return tn_eq(tn_gather(last, axis, index), number);
}

// What was overwritten gets zero, what was written last gets the gradient at its place.
void tni_grad_scatter(tni_grad_args *r)
{
    int        axis  = r->n->attr.axis.axis;
    tn_tensor *index = rule_input(r, 1);
    if (r->need[0]) r->gx[0] = tn_scatter(r->g, axis, index, tn_zeros_like(rule_input(r, 2)));
    if (r->need[2])
        r->gx[2] = tn_where(is_last_write(r->g, axis, index), tn_gather(r->g, axis, index),
                            tni_number_like(r->g, 0));
}

void tni_grad_scatter_add(tni_grad_args *r)
{
    if (r->need[0]) r->gx[0] = r->g;
    if (r->need[2]) r->gx[2] = tn_gather(r->g, r->n->attr.axis.axis, rule_input(r, 1));
}

// ---- products ----------------------------------------------------------------------------------

// Whether a matrix is stored by columns, as a transposed one is.
static bool columns_lead(const tni_node *n)
{
    tni_view v = tni_node_layout(n);
    return v.stride[v.rank - 2] == 1 && v.stride[v.rank - 1] > 1;
}

// g b' and a' g. The product of a vector has an axis less than the op's: g gets it back first.
void tni_grad_matmul(tni_grad_args *r)
{
    tni_node *a = r->n->src[0], *b = r->n->src[1];
    int64_t   size[TN_MAX_RANK];
    memcpy(size, a->size, sizeof size);
    size[a->rank - 1] = b->size[b->rank - 1];
    tn_tensor *g      = reshape_to(r->g, a->rank, size);
    if (r->need[0]) r->gx[0] = tn_matmul(g, tn_transpose(rule_input(r, 1), -1, -2));
    if (!r->need[1]) return;
    // A transposed operand, such as a linear layer's weight, gets its gradient transposed too, so
    // that both have one memory order.
    if (columns_lead(b))
        r->gx[1] = tn_transpose(tn_matmul(tn_transpose(g, -1, -2), rule_input(r, 0)), -1, -2);
    else r->gx[1] = tn_matmul(tn_transpose(rule_input(r, 0), -1, -2), g);
}

void tni_grad_conv(tni_grad_args *r)
{
    tni_node *x = r->n->src[0], *w = r->n->src[1];
    if (r->need[0]) r->gx[0] = tni_conv_dgrad(r->g, rule_input(r, 1), x->size, &r->n->attr);
    if (r->need[1]) r->gx[1] = tni_conv_wgrad(r->g, rule_input(r, 0), w->size, &r->n->attr);
}

// dgrad(gy, w) is linear in both: in its gradients g takes the place of x.
void tni_grad_conv_dgrad(tni_grad_args *r)
{
    if (r->need[0]) r->gx[0] = tni_conv(r->g, rule_input(r, 1), &r->n->attr);
    if (r->need[1])
        r->gx[1] = tni_conv_wgrad(rule_input(r, 0), r->g, r->n->src[1]->size, &r->n->attr);
}

// And wgrad(gy, x): g takes the place of w.
void tni_grad_conv_wgrad(tni_grad_args *r)
{
    if (r->need[0]) r->gx[0] = tni_conv(rule_input(r, 1), r->g, &r->n->attr);
    if (r->need[1])
        r->gx[1] = tni_conv_dgrad(rule_input(r, 0), r->g, r->n->src[1]->size, &r->n->attr);
}

// The sorted elements (output 1) go back to where the indices, the op's own value, took them from.
void tni_grad_argsort(tni_grad_args *r)
{
    if (r->need[0] && r->out_g[1])
        r->gx[0] = tn_scatter(tn_zeros_like(rule_input(r, 0)), r->n->attr.axis.axis,
                              tni_wrap_node(r->cx, r->n), r->out_g[1]);
}

// ---- users' ops --------------------------------------------------------------------------------

// A user's gradient must belong to the context and have its input's shape; else it is reported.
static void check_user_grad(tni_grad_args *r, size_t i)
{
    tn_tensor      *gx = r->gx[i];
    const tni_node *x  = r->n->src[i];
    if (!gx) return;
    tni_view v = tni_layout(gx);
    if (gx->cx == r->cx && tni_shape_equal(v.rank, v.size, x->rank, x->size)) return;
    r->gx[i] = NULL;
    tni_fail(r->cx, TN_ESHAPE, "%s: grad gave gx[%d] %s for x[%d] %s", r->n->attr.custom.def->name,
             (int)i, tni_shape_of(gx).s, (int)i, tni_shape_text(x->rank, x->size).s);
}

// Calls the user's grad function with inputs, outputs and the gradients of the outputs, zeros for
// those that nothing arrived at. It records ops like any other code; its calls have lines of their
// own in messages.
void tni_grad_custom(tni_grad_args *r)
{
    const tn_op_def *op = r->n->attr.custom.def;
    size_t           nx = (size_t)op->nin, ny = (size_t)tni_outputs_of(TNI_custom, &r->n->attr);
    const tn_array  *out = tni_custom_outputs(&r->n->attr);
    tni_node        *n   = tni_node_ref(r->n);
    tn_tensor      **x   = tni_alloc(&r->cx->heap, (nx + 2 * ny) * sizeof *x);
    if (!op->grad) tni_fail(r->cx, TN_EGRAD, "%s: it has no gradient", op->name);
    if (!x) tni_fail_memory(r->cx, op->name);
    if (x && op->grad) {
        tn_tensor **y = x + nx, **gy = y + ny;
        bool        ok = true;
        for (size_t i = 0; i < nx; i++) ok &= (x[i] = rule_input(r, (int)i)) != NULL;
        for (size_t i = 0; i < ny; i++) {
            y[i]  = i ? tni_output(r->cx, &n, (int64_t)i, &out[i]) : tni_wrap_node(r->cx, n);
            gy[i] = r->out_g[i] ? r->out_g[i] : tn_zeros_like(y[i]);
            ok &= y[i] && gy[i];
        }
        tni_thread before;
        tni_user_sites_begin(&before);
        tn_status s = ok ? op->grad(r->n->attr.custom.bytes, x, y, gy, r->gx) : TN_EMEM;
        tni_user_sites_end(&before);
        if (ok && s != TN_OK)
            tni_fail(r->cx, TN_EUSER, "%s: grad failed with status %d", op->name, (int)s);
        for (size_t i = 0; i < nx && s == TN_OK; i++) check_user_grad(r, i);
    }
    tni_node_unref(r->cx, n);
    tni_free(&r->cx->heap, x);
}

// Nothing: apply_rule hands the gradients of all outputs to the rule of their primary.
void tni_grad_output(tni_grad_args *r)
{
    (void)r;
}

// ---- the table ---------------------------------------------------------------------------------

// clang-format off
// The words of the gradient column. They stand for functions only from here on, since most are
// names of C's math library as well.
#define A                 rule_input(r, 0)
#define B                 rule_input(r, 1)
#define C                 rule_input(r, 2)
#define Y                 tni_wrap_node(r->cx, r->n)
#define NOTHING           NULL
#define LN2               0.69314718055994530942
#define TWO_OVER_SQRT_PI  1.12837916709551257390
#define LN10              2.30258509299404568402
#define HALF_SQRT_PI      0.88622692545275801365
#define neg(x)            tn_neg(x)
#define mul(x, y)         tn_mul(x, y)
#define div(x, y)         tn_div(x, y)
#define scale(x, v)       tn_mul_s(x, v)
#define shift(x, v)       tn_add_s(x, v)
#define sign(x)           tn_sign(x)
#define exp(x)            tn_exp(x)
#define sin(x)            tn_sin(x)
#define cos(x)            tn_cos(x)
#define sinh(x)           tn_sinh(x)
#define cosh(x)           tn_cosh(x)
#define rsqrt(x)          tn_rsqrt(x)
#define digamma(x)        tn_digamma(x)
#define trigamma(x)       tni_unary(TNI_trigamma, x)
#define tetragamma(x)     tni_unary(TNI_tetragamma, x)
#define hypot(x, y)       tn_hypot(x, y)
#define sub(x, y)         tn_sub(x, y)
#define trunc_divide(x, y) tn_trunc_divide(x, y)
#define gelu_slope(x)     tni_unary(TNI_gelu_slope, x)
#define eq(x, y)          tn_eq(x, y)
#define lt(x, y)          tn_lt(x, y)
#define gt(x, y)          tn_gt(x, y)
#define where(c, x, y)    tn_where(c, x, y)
#define zeros(x)          tn_zeros_like(x)
#define floor_divide(x, y) tn_floor_divide(x, y)
#define spread(x)         spread_gradient(r, x)

#define WHERE_NEEDED(i, x)                                                                         \
    if (r->need[i]) r->gx[i] = (x);
#define GRAD_NONE      (void)r; (void)g;
#define GRAD_BY(f)     (void)g; tni_grad_##f(r);
#define GRAD1(x)       (void)g; WHERE_NEEDED(0, x)
#define GRAD2(x, y)    (void)g; WHERE_NEEDED(0, x) WHERE_NEEDED(1, y)
#define GRAD3(x, y, z) (void)g; WHERE_NEEDED(0, x) WHERE_NEEDED(1, y) WHERE_NEEDED(2, z)

// clang-format on

#define OP(name, class, dtypes, expr, cost, facts, grad, doc) \
    static void rule_##name(tni_grad_args *r)                 \
    {                                                         \
        tn_tensor *g = r->g;                                  \
        grad                                                  \
    }
#include "ops/ops.def"
#undef OP

static void (*const rules[TNI_OPS])(tni_grad_args *) = {
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) rule_##name,
#include "ops/ops.def"
#undef OP
};

// A map repeats a source of one element, so its gradient is summed; and it is cast to the source's
// dtype.
static tn_tensor *fit_to_source(tn_tensor *gx, const tni_node *x)
{
    if (gx && x->rank == 0 && tn_rank(gx) > 0) gx = tn_sum_all(gx);
    if (gx && tn_dtype_of(gx) != (tn_dtype)x->dtype) gx = tn_cast(gx, (tn_dtype)x->dtype);
    return gx;
}

// A rule may leave gx[i] NULL where nothing flows; a failure inside it is known by the count of
// errors.
bool tni_grad_rule(tni_grad_args *r)
{
    if (!tni_op_table[r->n->op].has_grad)
        return tni_refuse(r->cx, TN_EGRAD, "%s: it has no gradient", tni_op_table[r->n->op].name);
    uint64_t failures = r->cx->failures;
    rules[r->n->op](r);
    if (r->cx->failures != failures) return false;
    for (uint32_t i = 0; i < r->n->nsrc; i++)
        if (r->need[i]) r->gx[i] = fit_to_source(r->gx[i], r->n->src[i]);
    return r->cx->failures == failures;
}
