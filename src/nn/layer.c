// The tree of layers: making, naming, modes.
//
//   Sequential                 tn_nn_seq
//     0  Linear                  parameters "0.weight", "0.bias"
//     1  ReLU
//     2  Residual                child "body": "2.body.weight", ...
//
// Names are joined by dots, as in PyTorch's state_dict, and a name with dots given to
// tn_layer_param, tn_layer_buffer or tn_layer_child makes the containers on its way. A layer owns
// its tensors and children; the context owns the roots. On any failure the tree is as it was before
// the call.
#include "nn/layer.h"

#include "engine/engine.h"

#include <string.h>

// ---- making and freeing ------------------------------------------------------------------------

// Children are freed first, deepest first, without recursion: a tree may be deeper than the stack.
static tn_layer *deepest_child(tn_layer *l)
{
    while (l->children) l = l->child[l->children - 1].l;
    return l;
}

// Frees a list of named tensors and the layer's hold on them.
static void free_names(tni_heap *h, tni_named *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tni_tensor_disown(list[i].t);
        tni_free(h, list[i].name);
    }
    tni_free(h, list);
}

// The user's function may ask about the layer, but not free it.
static void free_user_self(tn_layer *l)
{
    tni_layer_hold(l);
    l->free_self(l->self);
    tni_layer_let_go(l);
}

// Frees one layer whose children are gone. Our own layers have their state on the context's heap; a
// user's state is freed by the user's function.
static void free_layer(tn_layer *l)
{
    tni_heap *h = &l->owned.cx->heap;
    free_names(h, l->param, l->params);
    free_names(h, l->buffer, l->buffers);
    for (tni_derived *d; (d = l->derived);) {
        l->derived = d->next;
        tni_tensor_disown(d->w);
        tni_free(h, d->name);
        tni_free(h, d);
    }
    tni_free(h, l->child);
    if (l->builtin) tni_free(h, l->self);
    else if (l->free_self) free_user_self(l);
    tni_free(h, l);
}

// Removes leaf after leaf until the root is left.
static void free_tree(tni_owned *t)
{
    tn_layer *root = (tn_layer *)t;
    for (tn_layer *l = deepest_child(root); l != root;) {
        tn_layer *parent = l->parent;
        tni_free(&t->cx->heap, parent->child[--parent->children].name);
        free_layer(l);
        l = deepest_child(parent);
    }
    free_layer(root);
}

// Refuses to free a layer that its parent owns, or that is running.
void tn_layer_free(tn_layer *l)
{
    if (!l || !tni_owned_ok("layer_free", l, TNI_LAYER)) return;
    if (l->parent) {
        tni_fail(l->owned.cx, TN_EARG, "layer_free: the layer belongs to its parent");
        return;
    }
    for (tn_layer *k = l; k; k = tni_layer_next(l, k))
        if (k->running) {
            tni_fail(l->owned.cx, TN_EARG, "layer_free: a call that uses the layer is in progress");
            return;
        }
    tni_owned_remove(&l->owned);
    free_tree(&l->owned);
}

// Makes a layer with one input and one output, in training mode, owned by the context.
static tn_layer *new_layer(tn_ctx *cx, const char *op, const char *type, tn_forward_fn *f)
{
    tn_layer *l = tni_zalloc(&cx->heap, sizeof *l);
    if (!l) return tni_fail_memory(cx, op);
    l->type    = type;
    l->forward = f;
    l->in = l->out = 1;
    l->training    = true;
    tni_owned_add(cx, &l->owned, TNI_LAYER, free_tree);
    return l;
}

// Hands the user's struct to a new layer, or frees it if there is no layer: the user's struct is
// ours from the call on, also on failure.
static tn_layer *give_self(tn_layer *l, void *self, void (*free)(void *self))
{
    if (!l && free) free(self);
    if (!l) return NULL;
    l->self      = self;
    l->free_self = free;
    return l;
}

tn_layer *tn_layer_new(tn_ctx *cx, tn_forward_fn *f, void *self, void (*free)(void *self))
{
    const char *op = "layer_new", *type = f ? "Layer" : "Container";
    return give_self(tni_ctx_ok(cx, op) ? new_layer(cx, op, type, f) : NULL, self, free);
}

// Checks one of the counts; reports it by name.
static bool count_ok(tn_ctx *cx, const char *op, const char *name, int v, int least)
{
    if (v >= least && v <= TNI_MOST_PORTS) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s %d is not in %d .. %d", op, name, v, least,
                      TNI_MOST_PORTS);
}

// Makes a layer one whose function takes and fills arrays. NULL in, NULL out.
static tn_layer *take_arrays(tn_layer *l, tn_forward_n_fn *f, tn_layer_counts n)
{
    if (!l) return NULL;
    l->forward_n = f;
    l->in        = n.in;
    l->out       = n.out;
    l->optional  = n.optional;
    return l;
}

// Checks the counts, which later fix how tn_forward_n may be called.
static tn_layer *new_layer_n(tn_ctx *cx, tn_forward_n_fn *f, tn_layer_counts n)
{
    const char *op = "layer_new_n";
    if (!tni_ctx_ok(cx, op)) return NULL;
    if (!f) return tni_fail(cx, TN_EARG, "%s: the function is NULL", op);
    if (!n.in) n.in = 1;
    if (!n.out) n.out = 1;
    if (!count_ok(cx, op, "in", n.in, 1) || !count_ok(cx, op, "out", n.out, 1) ||
        !count_ok(cx, op, "optional", n.optional, 0))
        return NULL;
    if (n.optional >= n.in)
        return tni_fail(cx, TN_EARG, "%s: optional %d leaves none of the %d inputs", op, n.optional,
                        n.in);
    return take_arrays(new_layer(cx, op, "Layer", NULL), f, n);
}

tn_layer *tn_layer_new_n(tn_ctx *cx, tn_forward_n_fn *f, tn_layer_counts n, void *self,
                         void (*free)(void *self))
{
    return give_self(new_layer_n(cx, f, n), self, free);
}

tn_layer *tni_layer_make(tn_ctx *cx, const char *op, const char *type, tn_forward_fn *f,
                         size_t self_bytes)
{
    tn_layer *l = new_layer(cx, op, type, f);
    if (!l) return NULL;
    l->builtin = true;
    if (!self_bytes) return l;
    l->self = tni_zalloc(&cx->heap, self_bytes);
    if (l->self) return l;
    tni_fail_memory(cx, op);
    return tni_layer_give_up(l);
}

// As tni_layer_make, but the function takes and fills arrays.
tn_layer *tni_layer_make_n(tn_ctx *cx, const char *op, const char *type, tn_forward_n_fn *f,
                           tn_layer_counts n, size_t self_bytes)
{
    return take_arrays(tni_layer_make(cx, op, type, NULL, self_bytes), f, n);
}

// Returns NULL, so that constructors can return its result.
void *tni_layer_give_up(tn_layer *l)
{
    if (!l) return NULL;
    tni_owned_remove(&l->owned);
    free_tree(&l->owned);
    return NULL;
}

// ---- naming ------------------------------------------------------------------------------------

// Parameters, buffers and children share one set of names: they become parts of one dotted name.
static bool name_taken(const tn_layer *l, const char *name)
{
    for (size_t i = 0; i < l->params; i++)
        if (!strcmp(l->param[i].name, name)) return true;
    for (size_t i = 0; i < l->buffers; i++)
        if (!strcmp(l->buffer[i].name, name)) return true;
    for (const tni_derived *d = l->derived; d; d = d->next)
        if (!strcmp(d->name, name)) return true;
    for (size_t i = 0; i < l->children; i++)
        if (!strcmp(l->child[i].name, name)) return true;
    return false;
}

// Returns a copy of the n characters of a name that is free in l; NULL, reported, if it cannot be
// used.
static char *copy_name(tn_layer *l, const char *op, const char *name, size_t n)
{
    tn_ctx *cx   = l->owned.cx;
    char   *copy = tni_alloc(&cx->heap, n + 1);
    if (!copy) return tni_fail_memory(cx, op);
    memcpy(copy, name, n);
    copy[n] = 0;
    if (!name_taken(l, copy)) return copy;
    tni_fail(cx, TN_EARG, "%s: the layer has a \"%.100s\" already", op, copy);
    tni_free(&cx->heap, copy);
    return NULL;
}

// Puts a layer without a parent below l, under the n characters of a name.
static bool put_child(tn_layer *l, const char *op, const char *name, size_t n, tn_layer *child)
{
    tni_heap *h = &l->owned.cx->heap;
    if (!tni_grow(h, (void **)&l->child, &l->child_cap, l->children + 1, sizeof *l->child))
        return tni_no_memory(l->owned.cx, op);
    char *copy = copy_name(l, op, name, n);
    if (!copy) return false;
    tni_owned_remove(&child->owned);
    child->parent           = l;
    l->child[l->children++] = (tni_child){ copy, child };
    // They moved, so their paths changed.
    for (tn_layer *k = child; k; k = tni_layer_next(child, k)) k->path = NULL;  // they moved
    return true;
}

// Makes the container for one part of a dotted name.
static tn_layer *new_container(tn_layer *l, const char *op, const char *name, size_t n)
{
    tn_layer *c = new_layer(l->owned.cx, op, "Container", NULL);
    if (!c) return NULL;
    c->training = l->training;
    return put_child(l, op, name, n, c) ? c : tni_layer_give_up(c);
}

// The end of a path: the layer that takes something, and the name there. made is the first of the
// containers that had to be made on the way; NULL if none.
typedef struct {
    tn_layer   *l, *made;
    const char *name;
} place;

// Removes the containers that following a path has made, all of which are below the first.
static void *undo_path(place *p)
{
    if (!p->made) return NULL;
    tn_layer *up = p->made->parent;
    tni_free(&up->owned.cx->heap, up->child[--up->children].name);  // the newest there
    free_tree(&p->made->owned);
    return NULL;
}

// Returns whether no part of a dotted name is empty.
static bool path_ok(tn_ctx *cx, const char *op, const char *path)
{
    bool ok = path && *path && *path != '.' && !strstr(path, "..") && path[strlen(path) - 1] != '.';
    return ok || tni_refuse(cx, TN_EARG, "%s: \"%.100s\" is not a name: a part of it is empty", op,
                            path ? path : "");
}

// Follows a path, "encoder.0.weight", to its last name; makes containers that do not exist yet.
// False, reported, if that fails; then nothing was made.
static bool find_place(tn_layer *l, const char *op, const char *path, place *p)
{
    *p = (place){ l, NULL, path };
    if (!path_ok(l->owned.cx, op, path)) return false;
    for (const char *dot; (dot = strchr(p->name, '.')) != NULL; p->name = dot + 1) {
        size_t    n = (size_t)(dot - p->name);
        tn_layer *c = tni_layer_child_named(p->l, p->name, n);
        if (!c) {
            c = new_container(p->l, op, p->name, n);
            if (!c) undo_path(p);
            if (!c) return false;
            if (!p->made) p->made = c;
        }
        p->l = c;
    }
    return true;
}

// Returns the handle that a layer can own. A tensor with a history, a view of another store or one
// that is not row-major is copied: a parameter must be a leaf with memory of its own.
static tn_tensor *own_value(tn_tensor *t)
{
    if (tni_is_leaf(t) || (!t->is_view && !t->view && !tn_needs_grad(t))) return t;
    tn_ctx *cx       = t->cx;
    bool    mode     = cx->grad_mode;
    cx->grad_mode    = false;
    tn_tensor *value = tn_detach(t), *y = value ? tn_contiguous(value) : NULL;
    cx->grad_mode = mode;
    return y;
}

// Checks layer and tensor of tn_layer_param and its kin. A NULL tensor after an earlier error is
// not reported again.
static bool init_ok(tn_layer *l, const char *op, const char *name, tn_tensor *init)
{
    if (!tni_owned_ok(op, l, TNI_LAYER)) return false;
    tn_ctx *cx = l->owned.cx;
    if (!init && !cx->fault.code)
        return tni_refuse(cx, TN_EARG, "%s: \"%.100s\" is NULL", op, name ? name : "");
    if (!init || !tni_arg1(op, init, "init")) return false;
    if (init->cx == cx) return true;
    return tni_refuse(cx, TN_EARG, "%s: \"%.100s\" belongs to another context", op,
                      name ? name : "");
}

// A parameter that is a matrix, or the weight of a convolution, will be multiplied: the device may
// prepare.
static void expect_products(const tn_ctx *cx)
{
    const tni_device_calls *calls = cx->engine->device->calls;
    if (calls->expect_products) calls->expect_products(cx->engine->session);
}

// Gives l a tensor under a plain name. Its store is marked as wanted, so that no plan leaves the
// value out.
static tn_tensor *put_tensor(tn_layer *l, const char *op, const char *name, tn_tensor *init,
                             bool is_param)
{
    tn_ctx     *cx   = l->owned.cx;
    tni_named **list = is_param ? &l->param : &l->buffer;
    size_t     *n    = is_param ? &l->params : &l->buffers;
    size_t     *cap  = is_param ? &l->param_cap : &l->buffer_cap;
    if (!tni_grow(&cx->heap, (void **)list, cap, *n + 1, sizeof **list))
        return tni_fail_memory(cx, op);
    char *copy = copy_name(l, op, name, strlen(name));
    if (!copy) return NULL;
    tn_tensor *t = own_value(init);
    if (!t || (is_param && !tn_requires_grad(t, true))) {
        tni_free(&cx->heap, copy);
        return NULL;
    }
    tni_tensor_own(t);
    t->store->wanted = true;
    if (is_param && tni_rank(t) >= 2) expect_products(cx);
    (*list)[(*n)++] = (tni_named){ .name = copy, .t = t };
    return t;
}

// Gives l, or a layer below it, a tensor under a dotted name.
static tn_tensor *add_tensor(tn_layer *l, const char *op, const char *name, tn_tensor *init,
                             bool is_param)
{
    place p;
    if (!init_ok(l, op, name, init) || !find_place(l, op, name, &p)) return NULL;
    tn_tensor *t = put_tensor(p.l, op, p.name, init, is_param);
    return t ? t : undo_path(&p);
}

tn_tensor *tn_layer_param(tn_layer *l, const char *name, tn_tensor *init)
{
    return add_tensor(l, "layer_param", name, init, true);
}

tn_tensor *tn_layer_buffer(tn_layer *l, const char *name, tn_tensor *init)
{
    return add_tensor(l, "layer_buffer", name, init, false);
}

// Refuses a layer that has a parent or that contains l: the layers must stay a tree.
tn_layer *tn_layer_child(tn_layer *l, const char *name, tn_layer *child)
{
    if (!tni_owned_ok("layer_child", l, TNI_LAYER)) return NULL;
    tn_ctx *cx = l->owned.cx;
    if (!child && !cx->fault.code)
        return tni_fail(cx, TN_EARG, "layer_child: \"%s\" is NULL", name ? name : "");
    if (!child || !tni_owned_ok("layer_child", child, TNI_LAYER)) return NULL;
    if (!name) name = "";
    if (child->owned.cx != cx)
        return tni_fail(cx, TN_EARG, "layer_child: \"%s\" belongs to another context", name);
    if (child->parent)
        return tni_fail(cx, TN_EARG, "layer_child: \"%s\" has a parent already", name);
    for (const tn_layer *up = l; up; up = up->parent)
        if (up == child)
            return tni_fail(cx, TN_EARG, "layer_child: \"%s\" would be its own child", name);
    place p;
    if (!find_place(l, "layer_child", name, &p)) return NULL;
    if (put_child(p.l, "layer_child", p.name, strlen(p.name), child)) return child;
    return undo_path(&p);
}

// Names are the tensors' indices, as in PyTorch's ParameterList.
tn_layer *tn_layer_of(tn_ctx *cx, int n, tn_tensor *const *params)
{
    const char *op = "layer_of";
    if (!tni_ctx_ok(cx, op)) return NULL;
    if (n < 1 || !params) return tni_fail(cx, TN_EARG, "%s: there are no tensors", op);
    tn_layer *l = tni_layer_make(cx, op, "ParameterList", NULL, 0);
    for (int i = 0; l && i < n; i++) {
        tni_text name = { "" };
        tni_text_add(&name, "%d", i);
        if (!add_tensor(l, op, name.s, params[i], true)) return tni_layer_give_up(l);
    }
    return l;
}

// ---- asking and setting ------------------------------------------------------------------------

void *tn_layer_self(const tn_layer *l)
{
    return l ? l->self : NULL;
}

tn_ctx *tn_layer_ctx(const tn_layer *l)
{
    return l ? l->owned.cx : NULL;
}

bool tn_layer_training(const tn_layer *l)
{
    return l && l->training;
}

void tn_layer_train(tn_layer *l, bool on)
{
    if (!tni_owned_ok("layer_train", l, TNI_LAYER)) return;
    for (tn_layer *k = l; k; k = tni_layer_next(l, k)) k->training = on;
}

void tn_layer_recompute(tn_layer *l, bool on)
{
    if (tni_owned_ok("layer_recompute", l, TNI_LAYER)) l->recompute = on;
}

void tn_layer_repeatable(tn_layer *l, bool on)
{
    if (tni_owned_ok("layer_repeatable", l, TNI_LAYER)) l->repeatable = on;
}

// A frozen parameter is no leaf, and so gets no gradient and is skipped by optimizers made
// afterwards.
void tn_layer_freeze(tn_layer *l, bool on)
{
    if (!tni_owned_ok("layer_freeze", l, TNI_LAYER)) return;
    for (tn_layer *k = l; k; k = tni_layer_next(l, k))
        for (size_t i = 0; i < k->params; i++)
            if (!tn_requires_grad(k->param[i].t, !on)) return;
}

// Rebinds the stores to the cast values, so that every handle that the layers keep has the new
// dtype. Gradients of the old dtype are cleared.
tn_status tn_layer_cast(tn_layer *l, tn_dtype dt)
{
    tn_ctx *cx = tni_owned_ok("layer_cast", l, TNI_LAYER);
    if (!cx) return tni_failed();
    if (!tni_dtype_ok(dt) || !tni_is_float(dt))
        return tni_fail_status(cx, TN_EDTYPE, "layer_cast: %s is not a float type",
                               tni_dtype_ok(dt) ? tn_dtype_name(dt) : "that");
    tni_entries list;
    if (!tni_layer_list(l, "layer_cast", &list)) return tni_failed();
    tn_scope *s  = tn_begin(cx);
    bool      ok = s != NULL;
    if (ok) cx->grad_mode = false;
    for (size_t i = 0; ok && i < list.count; i++) {
        tn_tensor *t = list.entry[i].t;
        if (!tni_is_float(tn_dtype_of(t)) || tn_dtype_of(t) == dt) continue;
        tn_tensor *y = t->view ? tni_fail(cx, TN_EARG, "layer_cast: \"%.100s\" is a view",
                                          list.entry[i].name)
                               : tn_cast(tn_detach(t), dt);
        if (!(ok = y != NULL)) break;
        tni_store_bind(cx, t->store, tni_node_ref(y->store->node));
        t->store->wanted = true;
        if (t->leaf && t->leaf->grad) tn_zero_grad(t);
    }
    if (s) tni_scope_close(s);
    tni_entries_free(&list);
    return ok ? TN_OK : tni_failed();
}
