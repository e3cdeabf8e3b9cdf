// Container layers: Sequential and Residual.
#include "nn/builtin.h"

// Frees a half-built container and returns its children, which are the user's, to the context.
static tn_layer *give_back_children(tn_layer *l)
{
    while (l->children) {
        tni_child *c = &l->child[--l->children];
        c->l->parent = NULL;
        tni_owned_add(c->l->owned.cx, &c->l->owned, c->l->owned.kind, c->l->owned.free);
        tni_free(&l->owned.cx->heap, c->name);
    }
    return tni_layer_give_up(l);
}

// ---- sequential --------------------------------------------------------------------------------

// Stops at the first layer that fails; its error is already reported.
static tn_tensor *seq_forward(tn_layer *l, tn_tensor *x)
{
    for (size_t i = 0; x && i < l->children; i++) x = tn_forward(l->child[i].l, x);
    return x;
}

// Children are named by their index, as in PyTorch's Sequential. On failure the caller keeps all
// layers.
tn_layer *tn_nn_seq_n(tn_ctx *cx, int n, tn_layer *const *layers)
{
    const char *op = "nn_seq";
    if (!tni_ctx_ok(cx, op)) return NULL;
    if (n < 1 || !layers) return tni_fail(cx, TN_EARG, "%s: there are no layers", op);
    tn_layer *l = tni_layer_make(cx, op, "Sequential", seq_forward, 0);
    for (int i = 0; l && i < n; i++) {
        tni_text name = { "" }, what = { "" };
        tni_text_add(&name, "%d", i);
        tni_text_add(&what, "layer %d", i);
        if (!tni_layer_arg(cx, op, what.s, layers[i]) || !tn_layer_child(l, name.s, layers[i]))
            return give_back_children(l);
    }
    return l;
}

// ---- residual ----------------------------------------------------------------------------------

typedef struct {
    tn_layer *body, *shortcut;  // children; the shortcut may be NULL
    tn_tensor *(*f)(tn_tensor *x);
} residual;

// y = f(body(x) + shortcut(x)), where a missing shortcut is the identity and a missing f too.
static tn_tensor *residual_forward(tn_layer *l, tn_tensor *x)
{
    residual  *s = l->self;
    tn_tensor *y = tn_forward(s->body, x);
    if (y && s->shortcut) x = tn_forward(s->shortcut, x);
    if (!x || !y) return NULL;
    y = tn_add(y, x);
    return y && s->f ? tni_function_run(s->f, y) : y;
}

tn_layer *tn_nn_residual_with(tn_ctx *cx, tn_layer *body, tn_nn_residual_opts o)
{
    const char *op = "nn_residual";
    if (!tni_ctx_ok(cx, op) || !tni_layer_arg(cx, op, "body", body)) return NULL;
    tn_layer *l = tni_layer_make(cx, op, "Residual", residual_forward, sizeof(residual));
    if (!l) return NULL;
    *(residual *)l->self = (residual){ body, o.shortcut, o.f };
    bool ok              = tn_layer_child(l, "body", body) &&
              (!o.shortcut || tn_layer_child(l, "shortcut", o.shortcut));
    return ok ? l : give_back_children(l);
}

tn_layer *tn_nn_residual(tn_ctx *cx, tn_layer *body)
{
    return tn_nn_residual_with(cx, body, (tn_nn_residual_opts){ 0 });
}
