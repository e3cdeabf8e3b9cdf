// The types and numbers of cuDNN's graph interface that this folder uses, declared by ourselves; a
// test compares them with the real header where it is installed.
#ifndef TNI_CUDA_CUDNN_TYPES_H
#define TNI_CUDA_CUDNN_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef struct tni_cudnn_handle     *tni_dnnhandle;
typedef struct tni_cudnn_descriptor *tni_dnndesc;  // a tensor, an op, a graph, a plan, ...

// The numbers of cuDNN's interface that we use. Descriptors have attributes by number, and each
// attribute has a type by number.
enum {
    TNI_DNN_OK = 0,
    // statuses: their thousands are the kind. NOT_SUPPORTED: there is no engine for this, which is
    // an answer and no error
    TNI_DNN_OTHER_SERIALIZATION = 1003,
    TNI_DNN_NOT_SUPPORTED       = 3000,
    TNI_DNN_INTERNAL            = 4000,
    // types of elements
    TNI_DNN_F32  = 0,
    TNI_DNN_F16  = 2,
    TNI_DNN_I32  = 4,
    TNI_DNN_BF16 = 9,
    TNI_DNN_BOOL = 11,
    // kinds of descriptors
    TNI_DNN_POINTWISE    = 0,
    TNI_DNN_CONV         = 1,
    TNI_DNN_ENGINE       = 2,
    TNI_DNN_CONFIG       = 3,
    TNI_DNN_HEURISTIC    = 4,
    TNI_DNN_PLAN         = 5,
    TNI_DNN_OP_CONV      = 10,
    TNI_DNN_OP_CONV_DW   = 11,
    TNI_DNN_OP_CONV_DX   = 12,
    TNI_DNN_OP_POINTWISE = 13,
    TNI_DNN_GRAPH        = 15,
    TNI_DNN_PACK         = 16,
    TNI_DNN_TENSOR       = 17,
    TNI_DNN_MATMUL       = 18,
    TNI_DNN_OP_MATMUL    = 19,
    TNI_DNN_REDUCTION    = 21,
    TNI_DNN_OP_REDUCTION = 22,
    TNI_DNN_OP_RESHAPE   = 31,
    // types of attributes
    TNI_DNN_TYPE_HANDLE    = 0,
    TNI_DNN_TYPE_DTYPE     = 1,
    TNI_DNN_TYPE_BOOL      = 2,
    TNI_DNN_TYPE_INT64     = 3,
    TNI_DNN_TYPE_FLOAT     = 4,
    TNI_DNN_TYPE_POINTER   = 6,
    TNI_DNN_TYPE_CONV_MODE = 7,
    TNI_DNN_TYPE_HEURISTIC = 8,
    TNI_DNN_TYPE_NAN       = 10,
    TNI_DNN_TYPE_NOTE      = 11,
    TNI_DNN_TYPE_POINTWISE = 14,
    TNI_DNN_TYPE_DESC      = 15,
    TNI_DNN_TYPE_REDUCTION = 18,
    TNI_DNN_TYPE_BEHAVIOR  = 19,
    TNI_DNN_TYPE_CHAR      = 24,
    // attributes of a tensor
    TNI_DNN_TENSOR_ALIGN   = 900,
    TNI_DNN_TENSOR_DTYPE   = 901,
    TNI_DNN_TENSOR_SIZES   = 902,
    TNI_DNN_TENSOR_STRIDES = 903,
    TNI_DNN_TENSOR_ID      = 906,
    TNI_DNN_TENSOR_VIRTUAL = 907,
    TNI_DNN_TENSOR_VALUE   = 908,
    // of a pointwise description and op
    TNI_DNN_POINTWISE_MODE  = 0,
    TNI_DNN_POINTWISE_DTYPE = 1,
    TNI_DNN_POINTWISE_NAN   = 2,
    TNI_DNN_POINTWISE_AXIS  = 9,
    TNI_DNN_POINTWISE_DESC  = 750,
    TNI_DNN_POINTWISE_X     = 751,
    TNI_DNN_POINTWISE_B     = 752,
    TNI_DNN_POINTWISE_Y     = 753,
    TNI_DNN_POINTWISE_T     = 758,
    // of a convolution's description, and of the op and the ops of its gradients
    TNI_DNN_CONV_DTYPE    = 100,
    TNI_DNN_CONV_MODE     = 101,
    TNI_DNN_CONV_DILATION = 102,
    TNI_DNN_CONV_STRIDE   = 103,
    TNI_DNN_CONV_AFTER    = 104,
    TNI_DNN_CONV_BEFORE   = 105,
    TNI_DNN_CONV_PLACES   = 106,
    TNI_DNN_CONV_ALPHA    = 700,
    TNI_DNN_CONV_BETA     = 701,
    TNI_DNN_CONV_DESC     = 702,
    TNI_DNN_CONV_W        = 703,
    TNI_DNN_CONV_X        = 704,
    TNI_DNN_CONV_Y        = 705,
    TNI_DNN_CONV_DX_ALPHA = 706,
    TNI_DNN_CONV_DX_BETA  = 707,
    TNI_DNN_CONV_DX_DESC  = 708,
    TNI_DNN_CONV_DX_W     = 709,
    TNI_DNN_CONV_DX_DX    = 710,
    TNI_DNN_CONV_DX_DY    = 711,
    TNI_DNN_CONV_DW_ALPHA = 712,
    TNI_DNN_CONV_DW_BETA  = 713,
    TNI_DNN_CONV_DW_DESC  = 714,
    TNI_DNN_CONV_DW_DW    = 715,
    TNI_DNN_CONV_DW_X     = 716,
    TNI_DNN_CONV_DW_DY    = 717,
    // of a product's description and op; M, N and K: tensors of sizes, one for each batch
    TNI_DNN_MATMUL_DTYPE = 1500,
    TNI_DNN_MATMUL_A     = 1520,
    TNI_DNN_MATMUL_B     = 1521,
    TNI_DNN_MATMUL_C     = 1522,
    TNI_DNN_MATMUL_DESC  = 1523,
    TNI_DNN_MATMUL_M     = 1525,
    TNI_DNN_MATMUL_N     = 1526,
    TNI_DNN_MATMUL_K     = 1527,
    // of a reduction's description and op
    TNI_DNN_REDUCTION_MODE  = 1600,
    TNI_DNN_REDUCTION_DTYPE = 1601,
    TNI_DNN_REDUCTION_X     = 1610,
    TNI_DNN_REDUCTION_Y     = 1611,
    TNI_DNN_REDUCTION_DESC  = 1612,
    // of a reshape
    TNI_DNN_RESHAPE_X = 2200,
    TNI_DNN_RESHAPE_Y = 2201,
    // of a graph, of the question which engines there are, of an answer
    TNI_DNN_GRAPH_HANDLE      = 800,
    TNI_DNN_GRAPH_OPS         = 801,
    TNI_DNN_HEURISTIC_MODE    = 200,
    TNI_DNN_HEURISTIC_GRAPH   = 201,
    TNI_DNN_HEURISTIC_RESULTS = 202,
    TNI_DNN_CONFIG_ENGINE     = 300,
    TNI_DNN_CONFIG_WORKSPACE  = 303,
    TNI_DNN_ENGINE_NOTES      = 1303,
    TNI_DNN_ENGINE_BEHAVIOR   = 1305,
    // of a plan and of the addresses for a run
    TNI_DNN_PLAN_HANDLE    = 400,
    TNI_DNN_PLAN_CONFIG    = 401,
    TNI_DNN_PLAN_WORKSPACE = 402,
    TNI_DNN_PLAN_JSON      = 405,
    TNI_DNN_PACK_IDS       = 1000,
    TNI_DNN_PACK_POINTERS  = 1001,
    TNI_DNN_PACK_WORKSPACE = 1003,
    // pointwise modes
    TNI_DNN_ADD        = 0,
    TNI_DNN_MUL        = 1,
    TNI_DNN_MIN        = 2,
    TNI_DNN_MAX        = 3,
    TNI_DNN_SQRT       = 4,
    TNI_DNN_DIV        = 6,
    TNI_DNN_SUB        = 9,
    TNI_DNN_ABS        = 10,
    TNI_DNN_EXP        = 13,
    TNI_DNN_LOG        = 15,
    TNI_DNN_NEG        = 16,
    TNI_DNN_RSQRT      = 17,
    TNI_DNN_ERF        = 20,
    TNI_DNN_IDENTITY   = 21,
    TNI_DNN_RECIPROCAL = 22,
    TNI_DNN_RELU       = 100,
    TNI_DNN_TANH       = 101,
    TNI_DNN_GELU_TANH  = 107,
    TNI_DNN_GE         = 303,
    TNI_DNN_LT         = 304,
    TNI_DNN_AND        = 400,
    TNI_DNN_GEN_INDEX  = 501,
    TNI_DNN_SELECT     = 601,
    // what becomes of NaN in a comparison: it stays
    TNI_DNN_KEEPS_NAN = 1,
    // reductions
    TNI_DNN_REDUCE_ADD = 0,
    TNI_DNN_REDUCE_MAX = 3,
    // a convolution as networks have it: the window is not turned around
    TNI_DNN_CROSS_CORRELATION = 1,
    // what is noted of an engine: it computes on tensor cores, rounds operands, rounds partial
    // sums, goes through a Fourier transform, may add in another order each time, or transforms
    // windows (Winograd)
    TNI_DNN_NOTE_TENSOR_CORE   = 0,
    TNI_DNN_NOTE_ROUNDS_INPUTS = 1,
    TNI_DNN_NOTE_ROUNDS_SUMS   = 2,
    TNI_DNN_NOTE_FFT           = 3,
    TNI_DNN_NOTE_VARIES        = 4,
    TNI_DNN_NOTE_WINOGRAD      = 5,
    TNI_DNN_NOTE_WINOGRAD_LAST = 8,
    // of its behavior: it is compiled when a plan is made
    TNI_DNN_BEHAVIOR_COMPILES = 0,
    // how engines are asked for: those thought fast, best first, and those that always work
    TNI_DNN_HEURISTIC_FALLBACK = 2,
    TNI_DNN_HEURISTIC_A        = 3
};

#endif
