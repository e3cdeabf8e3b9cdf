// Complex tensors: what handles know of them (tensor/tensor.h), and their arithmetic over pairs of
// real numbers.
#ifndef TNI_OPS_COMPLEX_H
#define TNI_OPS_COMPLEX_H

#include "ops/composite.h"

// x as real numbers: of a complex tensor the view with the axis of its pairs; a real one itself.
// NULL in, NULL out.
tn_tensor *tni_pairs(tn_tensor *x);
// y, a new real handle whose last axis has 2 places, as a complex tensor; a copy if its strides
// cannot be one's. NULL in, NULL out.
tn_tensor *tni_as_complex(tn_tensor *y);
// One part of a complex tensor, 0: real, 1: imaginary, as a view; and a complex tensor of both,
// real ones that broadcast. NULL in, NULL out.
tn_tensor *tni_part(tn_tensor *x, int which);
tn_tensor *tni_join_parts(tn_tensor *re, tn_tensor *im);
// Whether one of n tensors is complex; NULL ones are not.
bool tni_any_complex(int n, tn_tensor *const *x);
// The dtype of the parts that n tensors, of which one is complex, are computed in.
tn_dtype tni_parts_promote(int n, tn_tensor *const *x);
// x as a complex tensor with parts of dt. NULL in, NULL out.
tn_tensor *tni_to_complex(tn_tensor *x, tn_dtype dt);

// What public functions do if an argument is complex: maps of the op table; a number beside x;
// where; sums and means; products; joining along an axis, or a new one (stack); a write of op(x,
// v), or with op -1 of v, into x.
tn_tensor *tni_complex_unary(int op, tn_tensor *x);
tn_tensor *tni_complex_binary(int op, const char *name, tn_tensor *a, tn_tensor *b);
tn_tensor *tni_complex_where(tn_tensor *cond, tn_tensor *a, tn_tensor *b);
tn_tensor *tni_complex_cast(tn_tensor *x, tn_dtype dt);
tn_tensor *tni_complex_reduce(tni_reduction_body *f, const char *op, tn_tensor *x, uint32_t mask,
                              bool keep);
tn_tensor *tni_complex_matmul(tn_tensor *a, tn_tensor *b);
tn_tensor *tni_complex_concat(int n, tn_tensor *const *x, int axis, bool stack);
tn_tensor *tni_complex_write(tn_tensor *x, const char *name, int op, tn_tensor *v);

#endif
