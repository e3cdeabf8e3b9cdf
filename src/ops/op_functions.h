// The functions that rows of ops.def name, wherever in src/ops or src/grad they are written: the
// gradient of a row with GRAD_BY(f) is tni_grad_f, and what a LIBRARY row CALLS(f, g) is recorded
// as on a device that does not run it is tni_fallback_g. So an op can be one file: how it is
// recorded, its fallback, its gradient.
#ifndef TNI_OPS_OP_FUNCTIONS_H
#define TNI_OPS_OP_FUNCTIONS_H

#include "ops/ops.h"

// The arguments of a gradient rule, for one node: g is the gradient of its value. The rule sets
// gx[i] for each source i with need[i], or leaves it NULL if nothing flows. For an op with several
// outputs out_g has the gradient of each, NULL if none arrived; g is the first of them, and may be
// NULL then.
typedef struct {
    tn_ctx           *cx;
    tni_node         *n;
    tn_tensor        *g;
    tn_tensor       **gx;
    const bool       *need;
    tn_tensor *const *out_g;
} tni_grad_args;

// The arguments of a fallback: the sources, f16 and bf16 already in f32; the attributes; the shape
// of the result, which is returned in any dtype; and how many outputs are wanted: those after the
// first go into more.
typedef struct {
    tn_ctx         *cx;
    tn_tensor      *x[TNI_ATTENTION_GRADS + 4];  // attention_grad has the most
    int             nin, nout, rank;
    const int64_t  *size;
    const tni_attr *attr;
    tn_tensor     **more;
} tni_fallback_args;

// clang-format off
#define GRAD_NONE
#define GRAD_BY(f)  void tni_grad_##f(tni_grad_args *r);
#define GRAD1(...)
#define GRAD2(...)
#define GRAD3(...)
#define CALLS(f, g) tn_tensor *tni_fallback_##g(const tni_fallback_args *r);
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) grad TNI_IF_##class(expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
#undef GRAD_NONE
#undef GRAD_BY
#undef GRAD1
#undef GRAD2
#undef GRAD3
// clang-format on

#endif
