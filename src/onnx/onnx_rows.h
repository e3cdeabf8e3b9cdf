// The table of ONNX's operators: name, domain, and the function that records one.
#ifndef TNI_ONNX_OP_ROWS_H
#define TNI_ONNX_OP_ROWS_H

#include "base/wire.h"
#include "tensor/context.h"

typedef struct tni_onnx_call tni_onnx_call;

// A map that is one of Tenon's has it in `one` or `two`, for the functions that run such rows.
typedef struct {
    const char *name;
    bool (*run)(tni_onnx_call *c);
    tn_tensor *(*one)(tn_tensor *x);
    tn_tensor *(*two)(tn_tensor *a, tn_tensor *b);
    bool varies;  // its results are not the same each time, or depend on more than its inputs
    char domain;  // 0: ai.onnx and its previews, 'm': com.microsoft, 'l': ai.onnx.ml
} tni_onnx_op;

// The row of an operator, or -1; and what it says.
int16_t            tni_onnx_row(tni_wire op, tni_wire domain);
const tni_onnx_op *tni_onnx_op_at(int row);

#endif
