// The reverse walk and what it asks of the gradient rules.
#ifndef TNI_GRAD_GRAD_H
#define TNI_GRAD_GRAD_H

#include "ops/op_functions.h"

// False, reported, when the op has no gradient or the rule failed.
bool tni_grad_rule(tni_grad_args *r);

// The adjoint of a view: g, of the view's shape, goes back to where its elements lie in a row-major
// tensor of base's shape.
tn_tensor *tni_unview(tn_ctx *cx, tn_tensor *g, tni_view v, const tni_view *base);
// Records an update or a fold at the places of v in a tensor of a shape.
tn_tensor *tni_record_at_view(tn_ctx *cx, int op, int rank, const int64_t *size, int n,
                              tn_tensor *const *x, const tni_view *v);
// The sum of two gradients of one value, in the shape they were computed in where that is one.
tn_tensor *tni_add_gradients(tn_ctx *cx, tn_tensor *a, tn_tensor *b);

// What a walk is for: the leaves it deposits in (accepts: NULL takes all), or the nodes whose
// gradients are collected.
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

// Walks from the outputs down. The gradients are recorded in the gradient mode of the context, in
// the innermost scope. mark_spent: the nodes walked are spent when they are next evaluated.
tn_status tni_grad_walk(tn_ctx *cx, const tni_walk_args *w, bool mark_spent);

#endif
