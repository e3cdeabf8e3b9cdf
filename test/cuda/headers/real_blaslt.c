// real_blaslt.c: our declarations of cuBLASLt beside those of cublasLt.h. It is compiled by a test
// where the header is installed, and never linked: what differs is an error.

// An enum of the library is an int of ours. Enums without negative values are unsigned in C; so
// each gets one here, put before a value of it, and becomes a signed type.
#define CUBLAS_STATUS_SUCCESS             SIGNED_STATUS = -1, CUBLAS_STATUS_SUCCESS
#define CUBLAS_COMPUTE_16F                SIGNED_COMPUTE = -1, CUBLAS_COMPUTE_16F
#define CUDA_R_16F                        SIGNED_TYPE = -1, CUDA_R_16F
#define CUBLASLT_MATMUL_DESC_COMPUTE_TYPE SIGNED_DESC = -1, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE
#define CUBLASLT_MATRIX_LAYOUT_TYPE       SIGNED_LAYOUT = -1, CUBLASLT_MATRIX_LAYOUT_TYPE
#define CUBLASLT_MATMUL_PREF_SEARCH_MODE  SIGNED_WISH = -1, CUBLASLT_MATMUL_PREF_SEARCH_MODE
#define CUBLASLT_ALGO_CAP_SPLITK_SUPPORT  SIGNED_CAP = -1, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT
#define CUBLASLT_ALGO_CONFIG_ID           SIGNED_CONFIG = -1, CUBLASLT_ALGO_CONFIG_ID

#include <library_types.h>
#undef CUDA_R_16F
#include <cublas_api.h>
#undef CUBLAS_STATUS_SUCCESS
#include <cublasLt.h>
#undef CUBLASLT_ALGO_CAP_SPLITK_SUPPORT
#undef CUBLASLT_ALGO_CONFIG_ID

// ---- types: what our handles point to is what the real ones point to

#define tni_cuda_stream   CUstream_st
#define tni_blaslt_handle cublasLtContext
#include "device/cuda/cu_types.h"
#include "device/cuda/lt_types.h"

#define TYPES(a, b)      _Generic((a *)0, b * : 1, default : 0)
#define TYPE(ours, real) _Static_assert(TYPES(ours, real), #ours " is not " #real)
#define STRUCT(ours, real)                                                           \
    _Static_assert(sizeof(ours) == sizeof(real) && _Alignof(ours) == _Alignof(real), \
                   #ours " is not as large as " #real)
#define FIELD(ours, field, real, name)                                          \
    _Static_assert(offsetof(ours, field) == offsetof(real, name) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((real *)0)->name), \
                   #ours "." #field " is not " #real "." #name)

TYPE(tni_lthandle, cublasLtHandle_t);
TYPE(tni_custream, cudaStream_t);

STRUCT(tni_ltalgo, cublasLtMatmulAlgo_t);
FIELD(tni_ltalgo, data, cublasLtMatmulAlgo_t, data);
STRUCT(tni_ltproposal, cublasLtMatmulHeuristicResult_t);
FIELD(tni_ltproposal, algo, cublasLtMatmulHeuristicResult_t, algo);
FIELD(tni_ltproposal, workspace, cublasLtMatmulHeuristicResult_t, workspaceSize);
FIELD(tni_ltproposal, status, cublasLtMatmulHeuristicResult_t, state);
FIELD(tni_ltproposal, waves, cublasLtMatmulHeuristicResult_t, wavesCount);
FIELD(tni_ltproposal, reserved, cublasLtMatmulHeuristicResult_t, reserved);

// ---- numbers

#define SAME(ours, real) _Static_assert((int)(ours) == (int)(real), #ours " is not " #real)

SAME(TNI_LT_OK, CUBLAS_STATUS_SUCCESS);
SAME(TNI_LT_NO_MEMORY, CUBLAS_STATUS_ALLOC_FAILED);
SAME(TNI_LT_INVALID, CUBLAS_STATUS_INVALID_VALUE);
SAME(TNI_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(TNI_LT_F32, CUDA_R_32F);
SAME(TNI_LT_F64, CUDA_R_64F);
SAME(TNI_LT_F16, CUDA_R_16F);
SAME(TNI_LT_BF16, CUDA_R_16BF);
SAME(TNI_LT_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(TNI_LT_COMPUTE_F64, CUBLAS_COMPUTE_64F);
SAME(TNI_LT_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(TNI_LT_NOT_TRANSPOSED, CUBLAS_OP_N);
SAME(TNI_LT_TRANSPOSED, CUBLAS_OP_T);

SAME(TNI_LT_DESC_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(TNI_LT_DESC_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(TNI_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(TNI_LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(TNI_LT_DESC_AUX, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
SAME(TNI_LT_DESC_AUX_LD, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
SAME(TNI_LT_LAYOUT_BATCH, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(TNI_LT_LAYOUT_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(TNI_LT_PREFERENCE_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(TNI_LT_PREFERENCE_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(TNI_LT_PREFERENCE_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(TNI_LT_PREFERENCE_ALIGN_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(TNI_LT_PREFERENCE_ALIGN_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(TNI_LT_PREFERENCE_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

SAME(TNI_LT_REDUCE_COMPUTE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(TNI_LT_REDUCE_OUTPUT, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
SAME(TNI_LT_HAS_TILES, CUBLASLT_ALGO_CAP_TILE_IDS);
// The first and the last number of each list in device/cuda/lt_tiles.c, and one within;
// test_product_search.c has the same.
SAME(1, CUBLASLT_MATMUL_TILE_8x8);
SAME(35, CUBLASLT_MATMUL_TILE_256x32);
SAME(36, CUBLASLT_MATMUL_TILE_8x128);
SAME(209, CUBLASLT_MATMUL_TILE_192x192);
SAME(311, CUBLASLT_MATMUL_TILE_768x64);
SAME(312, CUBLASLT_MATMUL_TILE_64x16);
SAME(408, CUBLASLT_MATMUL_TILE_128x168);
SAME(630, CUBLASLT_MATMUL_TILE_768x80);
SAME(631, CUBLASLT_MATMUL_TILE_256x512);
SAME(634, CUBLASLT_MATMUL_TILE_512x1024);
SAME(TNI_LT_HAS_OPTION, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
SAME(TNI_LT_HAS_STAGES, CUBLASLT_ALGO_CAP_STAGES_IDS);
SAME(TNI_LT_HAS_ALIGN_A, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES);
SAME(TNI_LT_HAS_ALIGN_A + 3, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES);
SAME(TNI_LT_ALGO_NUMBER, CUBLASLT_ALGO_CONFIG_ID);
SAME(TNI_LT_ALGO_TILE, CUBLASLT_ALGO_CONFIG_TILE_ID);
SAME(TNI_LT_ALGO_PARTS, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
SAME(TNI_LT_ALGO_SWIZZLE, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
SAME(TNI_LT_ALGO_OPTION, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
SAME(TNI_LT_ALGO_STAGES, CUBLASLT_ALGO_CONFIG_STAGES_ID);
SAME(TNI_LT_ALGO_CLUSTER, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
SAME(TNI_LT_CLUSTER_ONE, CUBLASLT_CLUSTER_SHAPE_1x1x1);
SAME(TNI_LT_CLUSTER_SIXTEEN, CUBLASLT_CLUSTER_SHAPE_1x16x1);
SAME(TNI_LT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT);
SAME(TNI_LT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU);
SAME(TNI_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(TNI_LT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU);
SAME(TNI_LT_EPILOGUE_RELU | TNI_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS);
SAME(TNI_LT_EPILOGUE_GELU | TNI_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS);
SAME(TNI_LT_EPILOGUE_GELU | TNI_LT_EPILOGUE_AUX, CUBLASLT_EPILOGUE_GELU_AUX);
SAME(TNI_LT_EPILOGUE_GELU | TNI_LT_EPILOGUE_AUX | TNI_LT_EPILOGUE_BIAS,
     CUBLASLT_EPILOGUE_GELU_AUX_BIAS);

// ---- functions: from here on our structures are the real ones

#define tni_ltdesc       cublasLtMatmulDesc_t
#define tni_ltlayout     cublasLtMatrixLayout_t
#define tni_ltpreference cublasLtMatmulPreference_t
#define tni_ltalgo       cublasLtMatmulAlgo_t
#define tni_ltproposal   cublasLtMatmulHeuristicResult_t
#include "device/cuda/blaslt.h"

#define CALL(field, name)                                                                  \
    _Static_assert(_Generic(((tni_blaslt *)0)->field, __typeof__(&name) : 1, default : 0), \
                   #field " has not the arguments of " #name);
#include "device/cuda/blaslt.def"
