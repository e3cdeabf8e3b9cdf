// The functions that rows of onnx_ops.def name.
#ifndef TNI_ONNX_OPS_H
#define TNI_ONNX_OPS_H

#include "onnx/onnx_run.h"
#include "ops/ops.h"
#include "tensor/dtype.h"

#define OP(name, f)   bool tni_onnx_##f(tni_onnx_call *c);
#define FLOW(name, f) bool tni_onnx_##f(tni_onnx_call *c);
#define ONE(name, f)
#define TWO(name, f)
#define FOLD(name, f)
#include "onnx/onnx_ops.def"
#undef OP
#undef FLOW
#undef ONE
#undef TWO
#undef FOLD

// The convolution that a node describes, of other operands than its inputs.
tn_tensor *tni_onnx_convolve(tni_onnx_call *c, tn_tensor *x, tn_tensor *w, tn_tensor *b);
bool       tni_onnx_one(tni_onnx_call *c);
bool       tni_onnx_two(tni_onnx_call *c);
bool       tni_onnx_variadic(tni_onnx_call *c);

#endif
