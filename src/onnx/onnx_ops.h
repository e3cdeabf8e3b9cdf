// The functions that rows of onnx_ops.def name.
#ifndef TNI_ONNX_OPS_H
#define TNI_ONNX_OPS_H

#include "onnx/onnx_run.h"
#include "ops/ops.h"
#include "tensor/dtype.h"

#define OP(name, f)      bool tni_onnx_##f(tni_onnx_call *c);
#define FLOW(name, f)    bool tni_onnx_##f(tni_onnx_call *c);
#define THEIRS(name, f)  bool tni_onnx_##f(tni_onnx_call *c);
#define LEARNED(name, f) bool tni_onnx_##f(tni_onnx_call *c);
#define ONE(name, f)
#define TWO(name, f)
#define FOLD(name, f)
#include "onnx/onnx_ops.def"
#undef OP
#undef FLOW
#undef THEIRS
#undef LEARNED
#undef ONE
#undef TWO
#undef FOLD

// The windows of a convolution or pool: of up to three axes of places.
typedef struct {
    int     n;
    int64_t kernel[3], stride[3], dilation[3], before[3], after[3];
    bool    ceil;
} tni_onnx_windows;
// Those that a node describes, of x (N, C, places...); taps: a weight, whose sizes a file need not repeat. False: reported.
bool tni_onnx_read_windows(tni_onnx_call *c, tn_tensor *x, tn_tensor *taps, tni_onnx_windows *w);

// Attention of q, k and v (B, heads, places, width), in the order of steps that ops_attention.c has. Zeroed is the plain one,
// but for left and right, which are -1 for no window.
typedef struct {
    tn_tensor *q, *k, *v, *mask, *lengths, *sink;
    bool       causal;
    int64_t    past, left,
        right;  // places before the first query; keys it sees before and behind itself
    double      scale, cap;
    tn_dtype    softmax;  // dtype of the softmax; 0: as q
    int         mode;     // which step *shown shows; shown may be NULL
    tn_tensor **shown;
} tni_onnx_attend;
tn_tensor *tni_onnx_attention_of(tni_onnx_attend *a);
// (B, T, heads * D) as (B, heads, T, D), and back.
tn_tensor *tni_onnx_split_heads(tn_tensor *x, int64_t heads);
tn_tensor *tni_onnx_join_heads(tn_tensor *x);
tn_tensor *tni_onnx_rotated(tn_tensor *x, tn_tensor *cosine, tn_tensor *sine, int64_t width,
                            bool pairs);

// The convolution that a node describes, of other operands than its inputs.
tn_tensor *tni_onnx_convolve(tni_onnx_call *c, tn_tensor *x, tn_tensor *w, tn_tensor *b);
tn_tensor *tni_onnx_convolve_bytes(tni_onnx_call *c, tn_tensor *x, tn_tensor *w, int64_t pad);
// The means of the windows that a node describes.
tn_tensor *tni_onnx_averages(tni_onnx_call *c, tn_tensor *x);
// a minus p times the matrix of bytes that input b_at is, minus its zero point, which input bz_at is: i32.
tn_tensor *tni_onnx_byte_product(tni_onnx_call *c, tn_tensor *a, tn_tensor *p, int b_at, int bz_at,
                                 bool turned);
bool       tni_onnx_one(tni_onnx_call *c);
bool       tni_onnx_two(tni_onnx_call *c);
bool       tni_onnx_variadic(tni_onnx_call *c);

#endif
