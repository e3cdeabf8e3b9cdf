// Linear algebra: what is recorded of the row `linalg`, for the public functions (linalg.c,
// norms.c) and for the gradients (grad/linalg_rules.c).
#ifndef TNI_OPS_LINALG_H
#define TNI_OPS_LINALG_H

#include "ops/ops.h"

// The transpose of the last two axes. NULL in, NULL out.
static inline tn_tensor *tni_mT(tn_tensor *x)
{
    return tn_transpose(x, -1, -2);
}

// Records x of op(a) x = b for floats of one dtype and equal leading sizes, by one triangle of a;
// and by a's factorization. NULL in, NULL out.
tn_tensor *tni_solve_triangle(tn_tensor *a, tn_tensor *b, struct tni_attr_linalg how);
tn_tensor *tni_lu_solve(tn_tensor *a, tn_tensor *b, tn_tensor *lu, tn_tensor *order,
                        bool transposed);
// The identity that broadcasts to x's last axis, in x's dtype.
tn_tensor *tni_eye_like(tn_tensor *x);
// A vector of each matrix as the columns' factors: (..., n) times (..., m, n).
tn_tensor *tni_scale_columns(tn_tensor *x, tn_tensor *by);
// The sign of the permutation of rows, (..., n): 1 or -1.
tn_tensor *tni_sign_of_order(tn_tensor *order, tn_dtype dt);
// The output of a node of the row, for its gradient: *n as in tni_output.
tn_tensor *tni_linalg_output(tn_ctx *cx, tni_node **n, int index);

#endif
