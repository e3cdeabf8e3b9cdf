// real_cusparselt.c: our numbers of cuSPARSELt beside those of cusparseLt.h, where that is
// installed: it is no part of a toolkit. It is compiled by a test and never linked: what differs is
// an error.
#if __has_include(<cusparseLt.h>)
#include <stdalign.h>  // its own header has alignas without it

#include <cusparseLt.h>

#include "device/cuda/cusparselt.h"

#define SAME(ours, real) _Static_assert((int)(ours) == (int)(real), #ours " is not " #real)
#define FITS(real) \
    _Static_assert(sizeof(real) <= sizeof(tni_sparselt_object), #real " does not fit")

SAME(TNI_SPARSELT_F16, CUDA_R_16F);
SAME(TNI_SPARSELT_BF16, CUDA_R_16BF);
SAME(TNI_SPARSELT_COLUMNS, CUSPARSE_ORDER_COL);
SAME(TNI_SPARSELT_ROWS, CUSPARSE_ORDER_ROW);
SAME(TNI_SPARSELT_NOT_TRANSPOSED, CUSPARSE_OPERATION_NON_TRANSPOSE);
SAME(TNI_SPARSELT_TRANSPOSED, CUSPARSE_OPERATION_TRANSPOSE);
SAME(TNI_SPARSELT_TWO_OF_FOUR, CUSPARSELT_SPARSITY_50_PERCENT);
SAME(TNI_SPARSELT_COMPUTE_F32, CUSPARSE_COMPUTE_32F);
SAME(TNI_SPARSELT_ALGO_DEFAULT, CUSPARSELT_MATMUL_ALG_DEFAULT);
SAME(TNI_SPARSELT_ALGO_ID, CUSPARSELT_MATMUL_ALG_CONFIG_ID);
SAME(TNI_SPARSELT_ALGO_COUNT, CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID);
SAME(TNI_SPARSELT_MAJOR, MAJOR_VERSION);
SAME(TNI_SPARSELT_MINOR, MINOR_VERSION);
SAME(TNI_SPARSELT_PATCH, PATCH_LEVEL);

FITS(cusparseLtHandle_t);
FITS(cusparseLtMatDescriptor_t);
FITS(cusparseLtMatmulDescriptor_t);
FITS(cusparseLtMatmulAlgSelection_t);
FITS(cusparseLtMatmulPlan_t);
#else
typedef int no_cusparselt;
#endif
