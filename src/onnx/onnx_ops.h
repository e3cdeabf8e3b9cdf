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
// Those that a node describes, of x (N, C, places...); taps: a weight, whose sizes a file need not
// repeat. False: reported.
bool tni_onnx_read_windows(tni_onnx_call *c, tn_tensor *x, tn_tensor *taps, tni_onnx_windows *w);

// Attention of q, k and v (B, heads, places, width), in the order of steps that ops_attention.c
// has. Zeroed is the plain one, but for left and right, which are -1 for no window.
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
// Nodes that become one (onnx_fuse.c): a Conv whose result a batch norm reads gives that norm's; a
// product with a matrix of the file is some columns of one that all products of its left operand x
// share. False and NULL, with no error, if it is not so.
bool       tni_onnx_conv_with_norm(tni_onnx_call *c);
tn_tensor *tni_onnx_joined_product(tni_onnx_call *c, tn_tensor *x);
void       tni_onnx_fusions_free(tni_onnx_run *r);
// The means of the windows that a node describes.
tn_tensor *tni_onnx_averages(tni_onnx_call *c, tn_tensor *x);

// An operand of a product of bytes: which inputs of a node are its bytes, scale and zero point; -1:
// none.
typedef struct {
    tni_onnx_call call;
    int           bytes, scale, zero;
} tni_onnx_operand;
// The left one as tensors, its zero point in i32 or NULL. fixed: that is one number of the file.
typedef struct {
    tn_tensor *bytes, *zero;
    bool       fixed;
} tni_onnx_left;
tni_onnx_operand tni_onnx_operand_of(const tni_onnx_call *c, int bytes, int scale, int zero);
// Whether a zero point is left out, or known to be 0 everywhere.
bool tni_onnx_is_zero(tni_onnx_operand *o);
// The zero point of x, one for all or for each place of an axis, in i32; NULL if there is none, or
// it is known to be 0.
tn_tensor *tni_onnx_zero_point(tni_onnx_operand *o, tn_tensor *x, int axis);
// a b in i32, minus zero points, plus a bias of i32 that may be NULL.
tn_tensor *tni_onnx_byte_product(tni_onnx_call *c, tni_onnx_left *a, tni_onnx_operand *b,
                                 tni_onnx_operand *bias, bool turned);
// round(sum * scale) + zero at the limits of dt; zero may be NULL.
tn_tensor *tni_onnx_scaled(tn_tensor *sum, tn_tensor *scale, tn_tensor *zero, tn_dtype dt);
// Whether a convolution or product of real numbers is one of bytes, which DequantizeLinear gave;
// and that one. The bias of a product is input i, or -1.
bool tni_onnx_is_byte_conv(tni_onnx_call *c, tni_onnx_operand *x, tni_onnx_operand *w);
bool tni_onnx_byte_conv(tni_onnx_call *c, tni_onnx_operand *x, tni_onnx_operand *w);
bool tni_onnx_is_byte_matmul(tni_onnx_call *c, bool turned, tni_onnx_operand *a,
                             tni_onnx_operand *b);
bool tni_onnx_byte_matmul(tni_onnx_call *c, tni_onnx_operand *a, tni_onnx_operand *b, bool turned,
                          int i);
// A parameter of a quantization shaped so that it broadcasts to x: of one number, along an axis, or
// for blocks of it.
tn_tensor *tni_onnx_along(tni_onnx_call *c, tn_tensor *x, tn_tensor *p, int axis, int64_t block);

bool tni_onnx_one(tni_onnx_call *c);
bool tni_onnx_two(tni_onnx_call *c);
bool tni_onnx_variadic(tni_onnx_call *c);

#endif
