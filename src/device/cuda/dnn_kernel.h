// The kernel behind a call as pointwise ops of a graph of cuDNN, so that the library computes both
// in one pass: a bias, an activation, a residual, or whatever else a planned kernel does to the
// elements of the call's result.
#ifndef TNI_CUDA_DNN_KERNEL_H
#define TNI_CUDA_DNN_KERNEL_H

#include "device/cuda/dnn_graph.h"
#include "kernel/epilogue.h"

// Tensors and numbers that such a kernel reads, and its result, at most.
enum { TNI_DNN_BOUND = 12 };

// What a tensor of the graph is in the kernel's launch: the elements of an access or, if that is
// -1, a number.
typedef struct {
    int tensor, access, number;
} tni_dnn_bound;

typedef struct {
    int           count;
    tni_dnn_bound bound[TNI_DNN_BOUND];
} tni_dnn_kernel;

// Adds a kernel that reads the virtual tensor `result`, which is in its buffer `product`, and
// describes its other tensors in *of. Everything is computed in f32 and rounded once, where it is
// stored. False, with the graph as it may be, if it is no such kernel: if it has reductions, stores
// several values, or does what the library cannot.
bool tni_dnn_add_kernel(tni_dnn_graph *g, const tni_launch *l, int product, int result,
                        tni_dnn_kernel *of);

#endif
