// Public calls that a trace keeps. Ops composed of primitives leave only these behind, and that is
// all that planners need. A program that is written for another runtime (onnx/onnx_save.c) should
// say softmax where it says softmax: while a context has a trace, composite calls add themselves to
// it, with what they were given and what they returned.
#ifndef TNI_OPS_KEPT_CALLS_H
#define TNI_OPS_KEPT_CALLS_H

#include "tensor/context.h"

typedef enum {
    TNI_KEPT_none,
    TNI_KEPT_linear,          // x, w, b
    TNI_KEPT_matmul,          // a, b
    TNI_KEPT_conv,            // x, w, b           i: axes, groups, strides, paddings, dilations
    TNI_KEPT_conv_transpose,  // the same          i: and output paddings
    TNI_KEPT_max_pool,  // x                 i: axes, ceil, kernels, strides, paddings, dilations
    TNI_KEPT_avg_pool,  // the same          i: and whether padding is left out
    TNI_KEPT_global_avg_pool,
    TNI_KEPT_softmax,      // x                 i: axis
    TNI_KEPT_log_softmax,  // x                 i: axis
    TNI_KEPT_mean,         // x                 i: mask of axes, whether they are kept
    TNI_KEPT_layer_norm,   // x, w, b           i: number of axes; f: eps
    TNI_KEPT_group_norm,   // x, w, b           i: groups; f: eps
    TNI_KEPT_batch_norm,   // x, w, b, mean, var  f: eps
    TNI_KEPT_gelu,
    TNI_KEPT_sigmoid,
    TNI_KEPT_silu,
    TNI_KEPT_swiglu,  // gate, up
    TNI_KEPT_softplus,
    TNI_KEPT_mish,
    TNI_KEPT_hardswish,
    TNI_KEPT_leaky_relu,  // f: slope
    TNI_KEPT_elu,         // f: alpha
    TNI_KEPT_selu,
    TNI_KEPT_clamp,  // f: bounds
    TNI_KEPT_embed   // index, weight
} tni_kept_kind;

enum { TNI_KEPT_SOURCES = 5, TNI_KEPT_INTS = 16 };

// One call. `shown` is the result as the caller sees it, a view of node y: ops may store their
// results in another order of axes. The nodes are held while the trace is open.
typedef struct {
    tni_kept_kind kind;
    tni_node     *y, *src[TNI_KEPT_SOURCES];  // NULL: not given
    tni_view      shown;
    int64_t       i[TNI_KEPT_INTS];
    double        f[2];
} tni_kept;

// The calls since a trace began, in order.
typedef struct tni_trace {
    tni_kept *call;
    size_t    count, cap;
} tni_trace;

void tni_trace_add(tn_tensor *y, int n, tn_tensor *const *src, const tni_kept *c);

// Keeps the call that made y of n tensors, if there is a trace, and returns y. A result in another
// dtype than the first source was cast by autocast: that is left to the primitives.
static inline tn_tensor *tni_traced(tn_tensor *y, int n, tn_tensor *const *src, tni_kept c)
{
    if (y && y->cx->trace) tni_trace_add(y, n, src, &c);
    return y;
}

// Releases what the trace has.
void tni_trace_close(tn_ctx *cx, tni_trace *t);

#endif
