// Weights that are computed from others in each forward pass: weight norm, spectral norm, and
// masks.
//
// A layer's function reads its weight through the handle that tn_layer_param gave it. Normalizing a
// weight takes this handle out of the list of parameters, puts others there, and has tn_forward
// bind the handle's store to a value computed from them (tni_derive_weights), history included: the
// layer's function is as before, for layers of the user's own too.
//
//   weight norm      NAME_g, NAME_v           NAME = g v / |v|
//   spectral norm    NAME_orig; NAME_u, _v    NAME = orig / (u . orig v)
//   mask             NAME_orig; NAME_mask     NAME = orig mask
#include "nn/layer.h"

#include <math.h>
#include <string.h>

// ---- values ------------------------------------------------------------------------------------

// The lengths of the places of an axis: all other axes stay with size 1.
static tn_tensor *lengths(tn_tensor *v, int axis)
{
    int axes[TN_MAX_RANK], n = 0;
    for (int i = 0; i < tn_rank(v); i++)
        if (i != axis) axes[n++] = i;
    return n ? tn_norm_axes(v, n, axes, true) : tn_abs(v);
}

// x divided by its length, which counts as at least eps.
static tn_tensor *unit(tn_tensor *x, double eps)
{
    tn_tensor *n = tn_norm_all(x);
    return n ? tn_div(x, tn_maximum(n, tn_full_like(n, eps))) : NULL;
}

// The weight as a matrix (h, rest), with an axis as its rows.
static tn_tensor *as_matrix(tn_tensor *w, int axis)
{
    int order[TN_MAX_RANK] = { axis }, n = 1;
    for (int i = 0; i < tn_rank(w); i++)
        if (i != axis) order[n++] = i;
    if (axis) w = tn_permute(w, n, order);
    return w ? tn_reshape(w, TN_SHAPE(tn_size(w, 0), tn_count(w) / tn_size(w, 0))) : NULL;
}

// One round of the power method brings u and v nearer to the singular vectors of the largest
// singular value; no gradient flows through them. False after a failure.
static bool iterate(const tni_derived *d, tn_tensor *m, tn_tensor **u, tn_tensor **v)
{
    m = tn_detach(m);
    for (int i = 0; i < d->iterations && *u && *v; i++) {
        *v = unit(tn_matmul(tn_transpose(m, 0, 1), *u), d->eps);
        *u = *v ? unit(tn_matmul(m, *v), d->eps) : NULL;
    }
    return *u && *v && tn_assign(d->u, *u) && tn_assign(d->v, *v);
}

// The largest singular value is u . m v for the right u and v. They are copied before the power
// method writes their buffers, so that the backward pass of this forward pass sees the values that
// it used.
static tn_tensor *spectral_value(const tni_derived *d, bool training)
{
    tn_ctx    *cx = d->source->cx;
    tn_tensor *m = as_matrix(d->source, d->axis), *u = tn_clone(d->u), *v = tn_clone(d->v);
    bool       mode = tn_grad_mode(cx, false), ok = m && u && v;
    if (ok && training) ok = iterate(d, m, &u, &v);
    tn_grad_mode(cx, mode);
    return ok ? tn_div(d->source, tn_sum_all(tn_mul(u, tn_matmul(m, v)))) : NULL;
}

// The value that the weight has now, with its history.
static tn_tensor *value_of(const tni_derived *d, bool training)
{
    if (d->spectral) return spectral_value(d, training);
    if (d->mask) return tn_mul(d->source, d->mask);
    return tn_mul(d->source, tn_div(d->g, lengths(d->source, d->axis)));
}

// The store is bound, not written: the value is not copied, and its dtype is that of what it is
// computed from, also after tn_layer_cast.
bool tni_derive_weights(tn_layer *l)
{
    for (tni_derived *d = l->derived; d; d = d->next) {
        tn_tensor *y = value_of(d, l->training);
        tni_node  *n = y ? tni_resolve(y, "forward") : NULL;
        if (!n) return false;
        tni_store_bind(l->owned.cx, d->w->store, tni_node_ref(n));
    }
    return true;
}

// ---- making ------------------------------------------------------------------------------------

// A parameter by the path to it. Returns the layer that has it, and its index; NULL, reported, if
// there is none.
static tn_layer *find_param(tn_layer *l, const char *op, const char *path, const char **name,
                            size_t *index)
{
    if (!tni_owned_ok(op, l, TNI_LAYER)) return NULL;
    tn_layer *root = l;
    *name          = path ? path : "";
    for (const char *dot; l && (dot = strchr(*name, '.')); *name = dot + 1)
        l = tni_layer_child_named(l, *name, (size_t)(dot - *name));
    for (*index = 0; l && *index < l->params; ++*index)
        if (!strcmp(l->param[*index].name, *name)) return l;
    return tni_fail(root->owned.cx, TN_EARG, "%s: there is no parameter \"%.100s\"", op,
                    path ? path : "");
}

// Whether another layer of the tree has the tensor too: it would go on training what is no
// parameter any more.
static bool is_tied(tn_layer *l, const tn_tensor *t)
{
    tn_layer *root = tni_layer_root(l);
    int       n    = 0;
    for (tn_layer *k = root; k; k = tni_layer_next(root, k))
        for (size_t i = 0; i < k->params; i++) n += k->param[i].t == t;
    return n > 1;
}

// Parts are copies, so that whoever holds the old weight's memory sees no writes to it.
// Gives l a parameter or a buffer named NAME and a suffix, with the value of `init`.
static tn_tensor *add_part(tn_layer *l, const char *name, const char *suffix, tn_tensor *init,
                           bool is_param)
{
    tni_text   full = tni_text_of("%.100s_%s", name, suffix);
    tn_tensor *t    = init ? tn_clone(init) : NULL;
    if (!t) return NULL;
    return is_param ? tn_layer_param(l, full.s, t) : tn_layer_buffer(l, full.s, t);
}

// A random unit vector in the dtype of w.
static tn_tensor *random_unit(tn_tensor *w, int64_t n, double eps)
{
    tn_tensor *x = tn_randn(w->cx, TN_F32, TN_SHAPE(n));
    return x ? tn_cast(unit(x, eps), tn_dtype_of(w)) : NULL;
}

// In the order of PyTorch's files; the list of names of a layer shows it.
// Makes what the weight is computed from.
static bool add_parts(tn_layer *l, tni_derived *d)
{
    tn_tensor *w = tn_detach(d->w);
    if (!w) return false;
    if (d->mask) {  // the caller's, which becomes a buffer
        tn_tensor *mask = d->mask;
        d->mask         = NULL;
        d->source       = add_part(l, d->name, "orig", w, true);
        if (d->source) d->mask = add_part(l, d->name, "mask", mask, false);
        return d->mask != NULL;
    }
    if (!d->spectral) {
        d->g = add_part(l, d->name, "g", lengths(w, d->axis), true);
        if (d->g) d->source = add_part(l, d->name, "v", w, true);
        return d->source != NULL;
    }
    int64_t h = tn_size(w, d->axis);
    d->source = add_part(l, d->name, "orig", w, true);
    if (d->source) d->u = add_part(l, d->name, "u", random_unit(w, h, d->eps), false);
    if (d->u) d->v = add_part(l, d->name, "v", random_unit(w, tn_count(w) / h, d->eps), false);
    return d->v != NULL;
}

// Removes the last parameters and buffers down to these numbers.
static void drop_parts(tn_layer *l, size_t params, size_t buffers)
{
    tni_heap *h = &l->owned.cx->heap;
    while (l->params > params) {
        tni_tensor_disown(l->param[--l->params].t);
        tni_free(h, l->param[l->params].name);
    }
    while (l->buffers > buffers) {
        tni_tensor_disown(l->buffer[--l->buffers].t);
        tni_free(h, l->buffer[l->buffers].name);
    }
}

// Takes parameter i out of the list; its name and its handle go over to d.
static void take_param(tn_layer *l, size_t i, tni_derived *d)
{
    memmove(l->param + i, l->param + i + 1, (--l->params - i) * sizeof *l->param);
    tn_requires_grad(d->w, false);
    d->next    = l->derived;
    l->derived = d;
}

// Puts a new derived weight in the place of parameter i; d is a template. All or nothing.
static tn_status derive(tn_layer *l, const char *op, size_t i, const tni_derived *d)
{
    tn_ctx   *cx  = l->owned.cx;
    tn_scope *s   = tn_begin(cx);
    size_t    had = l->params, buffers = l->buffers;
    if (!s) return tni_failed();
    tni_derived *made = tni_alloc(&cx->heap, sizeof *made);
    if (!made) tni_fail_memory(cx, op);
    bool mode = tn_grad_mode(cx, false), ok = made != NULL;
    if (ok) {
        *made      = *d;
        made->w    = l->param[i].t;
        made->name = l->param[i].name;
        ok         = add_parts(l, made);
    }
    tn_grad_mode(cx, mode);
    if (ok) take_param(l, i, made);
    else {
        drop_parts(l, had, buffers);
        tni_free(&cx->heap, made);
    }
    tni_scope_close(s);
    return ok ? TN_OK : tni_failed();
}

// Checks what both norms check: the parameter, its axis, that no other layer has it.
static tn_layer *normalizable(tn_layer *l, const char *op, const char *name, int *axis, size_t *i)
{
    const char *last;
    tn_layer   *at = find_param(l, op, name, &last, i);
    if (!at) return NULL;
    tn_ctx    *cx   = l->owned.cx;
    tn_tensor *w    = at->param[*i].t;
    int        rank = tn_rank(w);
    if (*axis < -rank || *axis >= rank)
        return tni_fail(cx, TN_EARG, "%s: \"%.100s\" %s has no axis %d", op, name,
                        tni_shape_of(w).s, *axis);
    if (*axis < 0) *axis += rank;
    if (is_tied(at, w)) return tni_fail(cx, TN_EARG, "%s: \"%.100s\" is tied", op, name);
    if (at->running)
        return tni_fail(cx, TN_EARG, "%s: a call that uses the layer is in progress", op);
    return at;
}

// The lengths start as those of the weight, so that its value stays.
tn_status tn_layer_weight_norm(tn_layer *l, const char *name, int axis)
{
    const char *op = "layer_weight_norm";
    size_t      i;
    tn_layer   *at = normalizable(l, op, name, &axis, &i);
    return at ? derive(at, op, i, &(tni_derived){ .axis = axis }) : tni_failed();
}

// The vectors start at random, as PyTorch's: the first forward passes in training mode bring them
// near the singular vectors, so that a network that only ever ran in evaluation mode divides by a
// number that means little.
tn_status tn_layer_spectral_norm(tn_layer *l, const char *name, tn_spectral_norm_opts o)
{
    const char *op = "layer_spectral_norm";
    size_t      i;
    tn_layer   *at = normalizable(l, op, name, &o.axis, &i);
    if (!at) return tni_failed();
    if (o.iterations < 0)
        return tni_fail_status(l->owned.cx, TN_EARG, "%s: iterations %d is negative", op,
                               o.iterations);
    if (!(o.eps >= 0))
        return tni_fail_status(l->owned.cx, TN_EARG, "%s: eps %g is not 0 or more", op, o.eps);
    if (tn_count(at->param[i].t) == 0)
        return tni_fail_status(l->owned.cx, TN_ESHAPE, "%s: \"%.100s\" %s has no elements", op,
                               name, tni_shape_of(at->param[i].t).s);
    tni_derived d = { .spectral   = true,
                      .axis       = o.axis,
                      .iterations = o.iterations ? o.iterations : 1,
                      .eps        = o.eps > 0 ? o.eps : 1e-12 };
    return derive(at, op, i, &d);
}

// An optimizer with weight decay or momentum moves all of NAME_orig, also what the mask hides: it
// does not matter, since only the product is read, and tn_layer_remove_norm writes the zeros.
//
// The mask in the dtype of the weight, as PyTorch keeps it: a product with it keeps gradients of
// what is left, and makes the others 0.
tn_status tn_layer_prune(tn_layer *l, const char *name, tn_tensor *mask)
{
    const char *op   = "layer_prune";
    int         axis = 0;
    size_t      i;
    tn_layer   *at = normalizable(l, op, name, &axis, &i);
    if (!at || !tni_arg1(op, mask, "mask")) return tni_failed();
    tn_tensor *w = at->param[i].t;
    if (mask->cx != w->cx ||
        !tni_shape_equal(tn_rank(mask), tni_sizes(mask), tn_rank(w), tni_sizes(w)))
        return tni_fail_status(l->owned.cx, TN_ESHAPE, "%s: mask %s is not one of \"%.100s\" %s",
                               op, tni_shape_of(mask).s, name, tni_shape_of(w).s);
    tn_scope  *s   = tn_begin(w->cx);
    tn_tensor *own = s ? tn_cast(tn_ne_s(tn_detach(mask), 0), tn_dtype_of(w)) : NULL;
    tn_status  e   = own ? derive(at, op, i, &(tni_derived){ .mask = own }) : tni_failed();
    if (s) tni_scope_close(s);
    return e;
}

// ---- ending ------------------------------------------------------------------------------------

// Removes one entry of a list of named tensors.
static void remove_named(tn_layer *l, tni_named *list, size_t *n, const tn_tensor *t)
{
    size_t i = 0;
    while (i < *n && list[i].t != t) i++;
    if (i == *n) return;
    tni_tensor_disown(list[i].t);
    tni_free(&l->owned.cx->heap, list[i].name);
    memmove(list + i, list + i + 1, (--*n - i) * sizeof *list);
}

// The handle becomes a leaf again, with a value of its own, in the place that the source has in the
// list.
static bool restore(tn_layer *l, tni_derived *d)
{
    tn_ctx    *cx   = l->owned.cx;
    bool       mode = tn_grad_mode(cx, false);
    tn_tensor *y    = value_of(d, false);
    y               = y ? tn_clone(y) : NULL;
    tni_node *n     = y ? tni_resolve(y, "layer_remove_norm") : NULL;
    tn_grad_mode(cx, mode);
    if (!n) return false;
    tni_store_bind(cx, d->w->store, tni_node_ref(n));
    if (!tn_requires_grad(d->w, true)) return false;
    remove_named(l, l->param, &l->params, d->source);
    if (d->g) remove_named(l, l->param, &l->params, d->g);
    if (d->mask) remove_named(l, l->buffer, &l->buffers, d->mask);
    if (d->u) remove_named(l, l->buffer, &l->buffers, d->u);
    if (d->v) remove_named(l, l->buffer, &l->buffers, d->v);
    l->param[l->params++] = (tni_named){ .name = d->name, .t = d->w };
    return true;
}

// Looks the weight up among the derived ones of the layer that the path leads to. An optimizer made
// before goes on with the parameters that are gone from the layer, as one made before a norm does.
tn_status tn_layer_remove_norm(tn_layer *l, const char *name)
{
    const char *op = "layer_remove_norm", *last = name ? name : "";
    if (!tni_owned_ok(op, l, TNI_LAYER)) return tni_failed();
    tn_ctx   *cx = l->owned.cx;
    tn_layer *at = l;
    for (const char *dot; at && (dot = strchr(last, '.')); last = dot + 1)
        at = tni_layer_child_named(at, last, (size_t)(dot - last));
    tni_derived **d = at ? &at->derived : NULL;
    while (d && *d && strcmp((*d)->name, last)) d = &(*d)->next;
    if (!d || !*d)
        return tni_fail_status(cx, TN_EARG, "%s: there is no normalized \"%.100s\"", op,
                               name ? name : "");
    tn_scope *s  = tn_begin(cx);
    bool      ok = s && restore(at, *d);
    if (s) tni_scope_close(s);
    if (!ok) return tni_failed();
    tni_derived *gone = *d;
    *d                = gone->next;
    tni_free(&cx->heap, gone);
    return TN_OK;
}
