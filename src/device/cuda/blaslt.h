// cuBLASLt as this folder calls it, found at run time. The declarations are our own: no header of
// CUDA is needed to build, and a test compares them with the real one where that is installed.
#ifndef TNI_CUDA_BLASLT_H
#define TNI_CUDA_BLASLT_H

#include "device/cuda/driver.h"

typedef struct tni_blaslt_handle *tni_lthandle;
typedef struct tni_blaslt_desc   *tni_ltdesc;    // what to compute
typedef struct tni_blaslt_layout *tni_ltlayout;  // how a matrix lies
typedef struct tni_blaslt_wish   *tni_ltwish;    // which algorithms may be proposed

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
    TNI_LT_AS_IT_LIES = 0,
    TNI_LT_TRANSPOSED = 1,
    // attributes of a description
    TNI_LT_DESC_TRANSPOSE_A = 3,
    TNI_LT_DESC_TRANSPOSE_B = 4,
    TNI_LT_DESC_EPILOGUE    = 7,
    TNI_LT_DESC_BIAS        = 8,
    TNI_LT_DESC_BIAS_TYPE   = 26,
    // attributes of a layout
    TNI_LT_LAYOUT_BATCH = 5,
    TNI_LT_LAYOUT_STEP  = 6,
    // attributes of a wish
    TNI_LT_WISH_WORKSPACE  = 1,
    TNI_LT_WISH_REDUCTIONS = 3,
    TNI_LT_WISH_ALIGN_A    = 5,
    TNI_LT_WISH_ALIGN_B    = 6,
    TNI_LT_WISH_ALIGN_C    = 7,
    TNI_LT_WISH_ALIGN_D    = 8,
    // how parts of a long inner axis are added up, as bits
    TNI_LT_REDUCE_IN_PLACE = 1,
    TNI_LT_REDUCE_COMPUTE  = 2,
    TNI_LT_REDUCE_OUTPUT   = 4,
    // what follows the product; the last three may stand beside each other but for relu with gelu
    TNI_LT_EPILOGUE_NONE = 1,
    TNI_LT_EPILOGUE_RELU = 2,
    TNI_LT_EPILOGUE_BIAS = 4,
    TNI_LT_EPILOGUE_GELU = 32
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

// The functions of libcublasLt. All are there, or the library is not used. Those that return an int
// return 0 or an error.
typedef struct {
    size_t (*version)(void);  // 130000: 13.0.0
    const char *(*status_string)(int status);
    int (*create)(tni_lthandle *h);
    int (*desc_create)(tni_ltdesc *d, int compute, int scale);
    int (*desc_destroy)(tni_ltdesc d);
    int (*desc_set)(tni_ltdesc d, int attribute, const void *value, size_t bytes);
    int (*layout_create)(tni_ltlayout *l, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*layout_destroy)(tni_ltlayout l);
    int (*layout_set)(tni_ltlayout l, int attribute, const void *value, size_t bytes);
    int (*wish_create)(tni_ltwish *w);
    int (*wish_destroy)(tni_ltwish w);
    int (*wish_set)(tni_ltwish w, int attribute, const void *value, size_t bytes);
    int (*propose)(tni_lthandle h, tni_ltdesc d, tni_ltlayout a, tni_ltlayout b, tni_ltlayout c,
                   tni_ltlayout out, tni_ltwish w, int most, tni_ltproposal *found, int *count);
    int (*check)(tni_lthandle h, tni_ltdesc d, tni_ltlayout a, tni_ltlayout b, tni_ltlayout c,
                 tni_ltlayout out, const tni_ltalgo *algo, tni_ltproposal *result);
    int (*matmul)(tni_lthandle h, tni_ltdesc d, const void *alpha, const void *a, tni_ltlayout la,
                  const void *b, tni_ltlayout lb, const void *beta, const void *c, tni_ltlayout lc,
                  void *out, tni_ltlayout lout, const tni_ltalgo *algo, void *workspace,
                  size_t bytes, tni_custream s);
} tni_blaslt;

// The library, loaded once and kept until the process ends; NULL, with the reason, if it is not
// here. Finding it does not mean that there is a GPU.
const tni_blaslt *tni_blaslt_get(tni_text *why);
// Where it was found; "" if it was not. Good after tni_blaslt_get.
const char *tni_blaslt_where(void);

#endif
