// The reverse walk and what it asks of the gradient rules: the one header of this folder. The rules
// themselves, tni_grad_f, are declared in ops/op_functions.h.
#ifndef TNI_GRAD_GRAD_H
#define TNI_GRAD_GRAD_H

#include "ops/op_functions.h"

// Runs the rule of r->n. False, reported, if the op has no gradient or the rule failed.
bool tni_grad_rule(tni_grad_args *r);

// The adjoint of a view: g, of the view's shape, is put back where the view read its elements, in a
// row-major tensor of base's shape.
tn_tensor *tni_unview(tn_ctx *cx, tn_tensor *g, tni_view v, const tni_view *base);
// Records an update or a fold at the places of v in a tensor of a shape.
tn_tensor *tni_record_at_view(tn_ctx *cx, int op, int rank, const int64_t *size, int n,
                              tn_tensor *const *x, const tni_view *v);
// The sum of two gradients of one value, computed in the shape that both were computed in if that
// is one.
tn_tensor *tni_add_gradients(tn_ctx *cx, tn_tensor *a, tn_tensor *b);

// The nodes of recomputed layers for which a walk recorded copies (recompute.c); each has `copy`
// set until tni_recomputed_free. Begins as zeros.
typedef struct {
    size_t     count, cap;
    tni_node **node;
} tni_recomputed;

// Whether a walk computes n again instead of keeping its value from the forward pass.
bool tni_is_recomputed(const tni_node *n);
// Records copies of the nodes of n's region from which any of `count` nodes of a walk, those that
// lead to something, is computed. False, reported by the op's name.
bool tni_recompute_region(tn_ctx *cx, const char *op, tni_recomputed *r, const tni_node *n,
                          size_t count, tni_node *const *node, const bool *leads);
void tni_recomputed_free(tn_ctx *cx, tni_recomputed *r);

// What the hooks of n make of its gradient g (hooks.c). NULL, reported, if one fails.
tn_tensor *tni_hooks_run(tn_ctx *cx, const tni_node *n, tn_tensor *g);

// What a walk is for: the leaves it deposits in (accepts; NULL takes all), or the tensors x whose
// gradients are collected into gx.
typedef struct {
    const char       *op;  // for messages
    int               ny;
    tn_tensor *const *y, *const *gy;
    bool (*accepts)(const tni_leaf *l, void *user);
    void             *user;
    int               nx;  // collecting: gx[i] of x[i]
    tn_tensor *const *x;
    tn_tensor       **gx;
} tni_walk_args;

// Walks from the outputs down to the leaves. Gradients are recorded in the context's gradient mode,
// in the innermost scope. mark_spent: the nodes walked become spent when they are next evaluated.
tn_status tni_grad_walk(tn_ctx *cx, const tni_walk_args *w, bool mark_spent);

#endif
