// The tree of layers: making, naming, running, modes.
#include "nn/layer.h"

#include <string.h>

// ---- making and freeing ------------------------------------------------------------------------

// Children first, deepest first, without recursion: a tree may be deep.
static tn_layer *deepest(tn_layer *l)
{
    while (l->children) l = l->child[l->children - 1].l;
    return l;
}

static void free_names(tni_heap *h, tni_named *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tni_tensor_disown(list[i].t);
        tni_free(h, list[i].name);
    }
    tni_free(h, list);
}

static void run_free(tn_layer *l)
{
    tni_layer_hold(l);
    l->free_self(l->self);
    tni_layer_let_go(l);
}

static void free_one(tn_layer *l)
{
    tni_heap *h = &l->thing.cx->heap;
    free_names(h, l->param, l->params);
    free_names(h, l->buffer, l->buffers);
    tni_free(h, l->child);
    if (l->builtin) tni_free(h, l->self);
    else if (l->free_self) run_free(l);
    tni_free(h, l);
}

static void free_tree(tni_thing *t)
{
    tn_layer *root = (tn_layer *)t;
    for (tn_layer *l = deepest(root); l != root;) {
        tn_layer *parent = l->parent;
        tni_free(&t->cx->heap, parent->child[--parent->children].name);
        free_one(l);
        l = deepest(parent);
    }
    free_one(root);
}

void tn_layer_free(tn_layer *l)
{
    if (!l || !tni_thing_ok("layer_free", l, TNI_LAYER)) return;
    if (l->parent) {
        tni_fail(l->thing.cx, TN_EARG, "layer_free: the layer belongs to its parent");
        return;
    }
    for (tn_layer *k = l; k; k = tni_layer_next(l, k))
        if (k->running) {
            tni_fail(l->thing.cx, TN_EARG, "layer_free: a call that uses the layer is in progress");
            return;
        }
    tni_thing_remove(&l->thing);
    free_tree(&l->thing);
}

static tn_layer *new_layer(tn_ctx *cx, const char *op, const char *type, tn_forward_fn *f)
{
    tn_layer *l = tni_zalloc(&cx->heap, sizeof *l);
    if (!l) return tni_fail_memory(cx, op);
    l->type     = type;
    l->forward  = f;
    l->training = true;
    tni_thing_add(cx, &l->thing, TNI_LAYER, free_tree);
    return l;
}

tn_layer *tn_layer_new(tn_ctx *cx, tn_forward_fn *f, void *self, void (*free)(void *self))
{
    tn_layer *l = NULL;
    if (tni_ctx_ok(cx, "layer_new")) {
        if (!f) tni_fail(cx, TN_EARG, "layer_new: the function is NULL");
        else l = new_layer(cx, "layer_new", "Layer", f);
    }
    if (!l) {
        if (free) free(self);
        return NULL;
    }
    l->self      = self;
    l->free_self = free;
    return l;
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

void *tni_layer_give_up(tn_layer *l)
{
    if (!l) return NULL;
    tni_thing_remove(&l->thing);
    free_tree(&l->thing);
    return NULL;
}

// ---- naming ------------------------------------------------------------------------------------

static bool name_taken(const tn_layer *l, const char *name)
{
    for (size_t i = 0; i < l->params; i++)
        if (!strcmp(l->param[i].name, name)) return true;
    for (size_t i = 0; i < l->buffers; i++)
        if (!strcmp(l->buffer[i].name, name)) return true;
    for (size_t i = 0; i < l->children; i++)
        if (!strcmp(l->child[i].name, name)) return true;
    return false;
}

// A copy of a name that is free in l; NULL, reported, if it cannot be used.
static char *take_name(tn_layer *l, const char *op, const char *name)
{
    tn_ctx *cx = l->thing.cx;
    if (!name || !*name || strchr(name, '.'))
        return tni_fail(cx, TN_EARG, "%s: \"%s\" is not a name: it is empty or has a dot", op,
                        name ? name : "");
    if (name_taken(l, name))
        return tni_fail(cx, TN_EARG, "%s: the layer has a \"%s\" already", op, name);
    char *copy = tni_strdup(&cx->heap, name);
    return copy ? copy : tni_fail_memory(cx, op);
}

// The handle that a layer can own: a tensor that is computed by others' history, is a view of
// another store or is not row-major is copied.
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

static tn_tensor *take(tn_layer *l, const char *op, const char *name, tn_tensor *init,
                       bool is_param)
{
    if (!tni_thing_ok(op, l, TNI_LAYER)) return NULL;
    tn_ctx *cx = l->thing.cx;
    if (!init && !cx->fault.code)
        return tni_fail(cx, TN_EARG, "%s: \"%s\" is NULL", op, name ? name : "");
    if (!init || !tni_arg1(op, init, "init")) return NULL;
    if (init->cx != cx)
        return tni_fail(cx, TN_EARG, "%s: \"%s\" belongs to another context", op, name ? name : "");
    tni_named **list = is_param ? &l->param : &l->buffer;
    size_t     *n    = is_param ? &l->params : &l->buffers;
    size_t     *cap  = is_param ? &l->param_cap : &l->buffer_cap;
    if (!tni_grow(&cx->heap, (void **)list, cap, *n + 1, sizeof **list))
        return tni_fail_memory(cx, op);
    char *copy = take_name(l, op, name);
    if (!copy) return NULL;
    tn_tensor *t = own_value(init);
    if (!t || (is_param && !tn_requires_grad(t, true))) {
        tni_free(&cx->heap, copy);
        return NULL;
    }
    tni_tensor_own(t);
    t->store->wanted = true;
    (*list)[(*n)++]  = (tni_named){ copy, t };
    return t;
}

static tn_tensor *take_tensor(tn_layer *l, const char *op, const char *name, tn_tensor *init,
                              bool is_param)
{
    tni_enter(tni_self.site);
    tn_tensor *t = take(l, op, name, init, is_param);
    tni_leave(false, NULL);
    return t;
}

tn_tensor *tn_layer_param(tn_layer *l, const char *name, tn_tensor *init)
{
    return take_tensor(l, "layer_param", name, init, true);
}

tn_tensor *tn_layer_buffer(tn_layer *l, const char *name, tn_tensor *init)
{
    return take_tensor(l, "layer_buffer", name, init, false);
}

tn_layer *tn_layer_child(tn_layer *l, const char *name, tn_layer *child)
{
    if (!tni_thing_ok("layer_child", l, TNI_LAYER)) return NULL;
    tn_ctx *cx = l->thing.cx;
    if (!child && !cx->fault.code)
        return tni_fail(cx, TN_EARG, "layer_child: \"%s\" is NULL", name ? name : "");
    if (!child || !tni_thing_ok("layer_child", child, TNI_LAYER)) return NULL;
    if (!name) name = "";
    if (child->thing.cx != cx)
        return tni_fail(cx, TN_EARG, "layer_child: \"%s\" belongs to another context", name);
    if (child->parent)
        return tni_fail(cx, TN_EARG, "layer_child: \"%s\" has a parent already", name);
    for (const tn_layer *up = l; up; up = up->parent)
        if (up == child)
            return tni_fail(cx, TN_EARG, "layer_child: \"%s\" would be its own child", name);
    if (!tni_grow(&cx->heap, (void **)&l->child, &l->child_cap, l->children + 1, sizeof *l->child))
        return tni_fail_memory(cx, "layer_child");
    char *copy = take_name(l, "layer_child", name);
    if (!copy) return NULL;
    tni_thing_remove(&child->thing);
    child->parent           = l;
    l->child[l->children++] = (tni_child){ copy, child };
    return child;
}

tn_layer *tn_layer_of(tn_ctx *cx, int n, tn_tensor *const *params)
{
    const char *op = "layer_of";
    if (!tni_ctx_ok(cx, op)) return NULL;
    if (n < 1 || !params) return tni_fail(cx, TN_EARG, "%s: there are no tensors", op);
    tn_layer *l = tni_layer_make(cx, op, "ParameterList", NULL, 0);
    for (int i = 0; l && i < n; i++) {
        tni_text name = { "" };
        tni_text_add(&name, "%d", i);
        if (!take_tensor(l, op, name.s, params[i], true)) return tni_layer_give_up(l);
    }
    return l;
}

// ---- running -----------------------------------------------------------------------------------

// Whether both are there and of one context; NULL is reported to the other's, by the rules of NULL.
static tn_ctx *forward_args(const tn_layer *l, tn_tensor *x)
{
    if (!l && x) {
        tn_ctx *cx = tni_arg1("forward", x, "x");
        if (cx && !cx->fault.code) tni_fail(cx, TN_EARG, "forward: the layer is NULL");
        return NULL;
    }
    tn_ctx *cx = tni_thing_ok("forward", l, TNI_LAYER);
    if (!cx) return NULL;
    if (!x) {
        if (!cx->fault.code) tni_fail(cx, TN_EARG, "forward: x is NULL");
        tni_self.latest = cx->fault.code;
        return NULL;
    }
    if (!tni_arg1("forward", x, "x")) return NULL;
    if (x->cx != cx) return tni_fail(cx, TN_EARG, "forward: x belongs to another context");
    return cx;
}

static tn_tensor *run(tn_layer *l, tn_tensor *x)
{
    if (l->builtin) return l->forward(l, x);
    tni_thread before = tni_user_begin();
    tn_tensor *y      = l->forward(l, x);
    tni_user_end(&before);
    return y;
}

static tn_tensor *forward(tn_layer *l, tn_tensor *x)
{
    enum { MOST_NESTED = 1000 };  // before the stack ends
    tn_ctx *cx = forward_args(l, x);
    if (!cx) return NULL;
    if (!l->forward)
        return tni_fail(cx, TN_EARG, "forward: a layer of bare tensors has no function");
    if (cx->nested >= MOST_NESTED)
        return tni_fail(cx, TN_EARG,
                        "forward: %d calls inside one another: does a layer run itself?",
                        MOST_NESTED);
    tni_layer_hold(l);
    tn_tensor *y = run(l, x);
    tni_layer_let_go(l);
    if (!y && !cx->fault.code)
        tni_fail(cx, TN_EUSER, "forward: the layer's function gave no tensor");
    tn_layer *root = tni_layer_root(l);
    if (y && root->watch) root->watch(l, y, root->watch_user);
    return y;
}

tn_tensor *tn_forward(tn_layer *l, tn_tensor *x)
{
    tni_enter(tni_self.site);
    tn_tensor *y = forward(l, x);
    tni_leave(false, NULL);
    return y;
}

// ---- asking and setting ------------------------------------------------------------------------

void *tn_layer_self(const tn_layer *l)
{
    return l ? l->self : NULL;
}

tn_ctx *tn_layer_ctx(const tn_layer *l)
{
    return l ? l->thing.cx : NULL;
}

bool tn_layer_training(const tn_layer *l)
{
    return l && l->training;
}

void tn_layer_train(tn_layer *l, bool on)
{
    if (!tni_thing_ok("layer_train", l, TNI_LAYER)) return;
    for (tn_layer *k = l; k; k = tni_layer_next(l, k)) k->training = on;
}

void tn_layer_freeze(tn_layer *l, bool on)
{
    if (!tni_thing_ok("layer_freeze", l, TNI_LAYER)) return;
    for (tn_layer *k = l; k; k = tni_layer_next(l, k))
        for (size_t i = 0; i < k->params; i++)
            if (!tn_requires_grad(k->param[i].t, !on)) return;
}

// Rebinds the stores, so that every handle that the layers keep sees the new dtype.
tn_status tn_layer_cast(tn_layer *l, tn_dtype dt)
{
    tn_ctx *cx = tni_thing_ok("layer_cast", l, TNI_LAYER);
    if (!cx) return tni_failed();
    if (!tni_dtype_ok(dt) || !tni_is_float(dt))
        return tni_fail_status(cx, TN_EDTYPE, "layer_cast: %s is not a float type",
                               tni_dtype_ok(dt) ? tn_dtype_name(dt) : "that");
    tni_entries list;
    if (!tni_layer_list(l, "layer_cast", &list)) return tni_failed();
    tni_enter(tni_self.site);
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
    tn_status status = ok ? TN_OK : tni_failed();
    tni_leave(false, NULL);
    return status;
}
