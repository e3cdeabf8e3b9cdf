// A graph of cuDNN as plain data: tensors, and ops over them. It says what to compute and in which
// layout, without addresses, and knows nothing of the library but its numbers (cudnn_types.h).
// dnn_plan.h makes something that runs of it.
//
// Tensors are numbered from 1 in the order in which they were added, and 0 means none. The
// functions return the number of a tensor, or 0 if the graph is full.
#ifndef TNI_CUDA_DNN_GRAPH_H
#define TNI_CUDA_DNN_GRAPH_H

#include "device/cuda/cudnn_types.h"

#include <stdbool.h>

// RANK: of a tensor, at most; PLACES: axes of an image that a window moves along.
enum { TNI_DNN_RANK = 5, TNI_DNN_PLACES = 3, TNI_DNN_TENSORS = 64, TNI_DNN_OPS = 48 };

// Where the elements of a tensor are: in device memory, nowhere (the library decides), or in host
// memory, read at each run (one number).
enum { TNI_DNN_IN_MEMORY, TNI_DNN_VIRTUAL, TNI_DNN_BY_VALUE };

typedef struct {
    int64_t where, dtype, align;  // align: bytes that its address is a multiple of
    int64_t rank;
    int64_t size[TNI_DNN_RANK], stride[TNI_DNN_RANK];
} tni_dnn_tensor;

// kind is that of the op's descriptor (TNI_DNN_OP_...), mode that of a pointwise op or of a
// reduction, dtype what it computes in. x: operands, y: the result. sizes: of a product, tensors
// with its M, N and K for each batch; 0: those of the operands. window: of a convolution.
typedef struct {
    int64_t stride[TNI_DNN_PLACES], padding[TNI_DNN_PLACES], dilation[TNI_DNN_PLACES];
} tni_dnn_window;

typedef struct {
    int64_t        kind, mode, dtype, axis;
    int64_t        x[3], y;
    int64_t        sizes[3];
    tni_dnn_window window;
} tni_dnn_op;

// Engines are refused by what the library notes of them: bit i for numerical note i
// (TNI_DNN_NOTE_...).

// Invariant: made of words only, zeros where unused, so that graphs compare, hash and print as they
// are.
typedef struct {
    int64_t        full;     // not 0: there was no room for all of it
    int64_t        refused;  // notes of engines that are not wanted, as bits
    int64_t        tensors, ops;
    tni_dnn_tensor tensor[TNI_DNN_TENSORS];
    tni_dnn_op     op[TNI_DNN_OPS];
} tni_dnn_graph;

// Adds a tensor in device memory, whose address is a multiple of 16.
int tni_dnn_memory(tni_dnn_graph *g, int dtype, int rank, const int64_t *size,
                   const int64_t *stride);
// Adds a virtual tensor of four axes; without strides it is row-major.
int tni_dnn_virtual(tni_dnn_graph *g, int dtype, const int64_t size[4], const int64_t *stride);
// Adds a number in f32, given at each run.
int tni_dnn_number(tni_dnn_graph *g);

// Add an op with an existing result. The elements of x and b of size 1 along an axis are repeated.
void tni_dnn_product(tni_dnn_graph *g, int a, int b, int y, const int *sizes);
// A convolution or a gradient of one (kind: TNI_DNN_OP_CONV...), summed in f32. Images are (N, C,
// ...), weights (O, C / groups, ...) whatever their strides. y of x and w; dx of dy and w; dw of dy
// and x.
void tni_dnn_conv(tni_dnn_graph *g, int kind, int a, int b, int y, const tni_dnn_window *window);
void tni_dnn_map_to(tni_dnn_graph *g, int mode, int x, int b, int y);
void tni_dnn_reduce_to(tni_dnn_graph *g, int mode, int x, int y);
// Stores x in the order of y's strides; y may have other sizes of the same product.
void tni_dnn_reshape_to(tni_dnn_graph *g, int x, int y);

// Add an op whose result is virtual, row-major, in x's size: f32 for map and select, i32 for an
// index along an axis, bool for a comparison and for `and`.
int tni_dnn_map(tni_dnn_graph *g, int mode, int x, int b);
int tni_dnn_compare(tni_dnn_graph *g, int mode, int x, int b);
int tni_dnn_index(tni_dnn_graph *g, int x, int axis);
int tni_dnn_select(tni_dnn_graph *g, int condition, int x, int otherwise);

#endif
