// The types and numbers of cuBLASLt that this folder uses, declared by ourselves; a test compares
// them with the real header.
#ifndef TNI_CUDA_LT_TYPES_H
#define TNI_CUDA_LT_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef struct tni_blaslt_handle     *tni_lthandle;
typedef struct tni_blaslt_desc       *tni_ltdesc;        // what to compute
typedef struct tni_blaslt_layout     *tni_ltlayout;      // the layout of a matrix
typedef struct tni_blaslt_preference *tni_ltpreference;  // which algorithms may be proposed

// The numbers of cuBLASLt's interface that we use.
enum {
    TNI_LT_OK = 0,
    // statuses
    TNI_LT_NO_MEMORY     = 3,
    TNI_LT_INVALID       = 7,
    TNI_LT_NOT_SUPPORTED = 15,
    // types of elements
    TNI_LT_F32  = 0,
    TNI_LT_F64  = 1,
    TNI_LT_F16  = 2,
    TNI_LT_BF16 = 14,
    // types of computing
    TNI_LT_COMPUTE_F32  = 68,
    TNI_LT_COMPUTE_F64  = 70,
    TNI_LT_COMPUTE_TF32 = 77,
    // operations on a matrix
    TNI_LT_NOT_TRANSPOSED = 0,
    TNI_LT_TRANSPOSED     = 1,
    // attributes of a description
    TNI_LT_DESC_TRANSPOSE_A = 3,
    TNI_LT_DESC_TRANSPOSE_B = 4,
    TNI_LT_DESC_EPILOGUE    = 7,
    TNI_LT_DESC_BIAS        = 8,
    TNI_LT_DESC_AUX         = 11,
    TNI_LT_DESC_AUX_LD      = 12,
    // attributes of a layout
    TNI_LT_LAYOUT_BATCH  = 5,
    TNI_LT_LAYOUT_STRIDE = 6,
    // attributes of a preference
    TNI_LT_PREFERENCE_WORKSPACE  = 1,
    TNI_LT_PREFERENCE_REDUCTIONS = 3,
    TNI_LT_PREFERENCE_ALIGN_A    = 5,
    TNI_LT_PREFERENCE_ALIGN_B    = 6,
    TNI_LT_PREFERENCE_ALIGN_C    = 7,
    TNI_LT_PREFERENCE_ALIGN_D    = 8,
    // how parts of a long inner axis are added up, as bits
    TNI_LT_REDUCE_COMPUTE = 2,
    TNI_LT_REDUCE_OUTPUT  = 4,
    // what algorithms of a number can be: tiles and stages are lists
    TNI_LT_HAS_TILES  = 6,
    TNI_LT_HAS_OPTION = 7,
    TNI_LT_HAS_STAGES = 13,
    // the least alignment of A, and behind it those of B, C and D
    TNI_LT_HAS_ALIGN_A = 16,
    // settings of an algorithm; a cluster has 16 bits, the others 32
    TNI_LT_ALGO_NUMBER  = 0,
    TNI_LT_ALGO_TILE    = 1,
    TNI_LT_ALGO_PARTS   = 2,
    TNI_LT_ALGO_SWIZZLE = 4,
    TNI_LT_ALGO_OPTION  = 5,
    TNI_LT_ALGO_STAGES  = 6,
    TNI_LT_ALGO_CLUSTER = 8,
    // clusters of blocks from one block to sixteen; 0 and 1: the algorithm knows none
    TNI_LT_CLUSTER_ONE     = 2,
    TNI_LT_CLUSTER_SIXTEEN = 16,
    // what follows the product, as bits: relu or gelu, bias, and with gelu a matrix beside D (aux)
    // for its input. Beside relu that matrix would hold one bit an element.
    TNI_LT_EPILOGUE_NONE = 1,
    TNI_LT_EPILOGUE_RELU = 2,
    TNI_LT_EPILOGUE_BIAS = 4,
    TNI_LT_EPILOGUE_GELU = 32,
    TNI_LT_EPILOGUE_AUX  = 128
};

// An algorithm with its settings. The bytes may be stored and used again with the same version of
// the library.
typedef struct {
    uint64_t data[8];
} tni_ltalgo;

// A proposal of the library.
typedef struct {
    tni_ltalgo algo;
    size_t     workspace;  // bytes that it needs
    int        status;     // else it cannot be used
    float      waves;
    int        reserved[4];
} tni_ltproposal;

#endif
