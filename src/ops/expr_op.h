// Users' ops given as an expression: recorded as ordinary ops of the table, so that they fuse and
// run wherever those do.
//
// Without grad_expr the recorded ops are differentiated like any others. With it they are recorded
// with gradients off, and the user gets a view of their value that has the op's inputs as further
// sources: evaluating it costs nothing, and the reverse walk goes from it straight to the inputs,
// by the user's gradient.
#ifndef TNI_OPS_EXPR_OP_H
#define TNI_OPS_EXPR_OP_H

#include "ops/expr.h"

// A parsed user's op, with copies of its texts: ops are distinguished by their texts, so a
// definition may be gone after the call. Owned by the context until it closes.
struct tni_expr_op {
    tni_owned owned;
    char     *name, *expr, *grad_expr;  // grad_expr: NULL where there is none
    int       nin;
    tni_expr  value, gx[TNI_EXPR_INPUTS];
};

// Records the op, which has an expr, over its nin inputs. NULL, reported, on failure.
tn_tensor *tni_expr_op_record(tn_ctx *cx, const tn_op_def *op, tn_tensor *const *x);

// The gradient of input i by the user's expression, of y's shape: x are the inputs, y the result, g
// its gradient. NULL, not reported, if nothing flows.
tn_tensor *tni_expr_op_grad(const tni_expr_op *e, int i, tn_tensor *const *x, tn_tensor *y,
                            tn_tensor *g);

#endif
