// cuSPARSELt, products with matrices of 2:4 sparsity, as this folder calls it: found at run time,
// with declarations of our own. It is not part of CUDA's toolkit, but PyTorch's wheels bring it.
// cusparselt.def has the library's name of each function.
#ifndef TNI_CUDA_CUSPARSELT_H
#define TNI_CUDA_CUSPARSELT_H

#include "base/text.h"
#include "device/cuda/cu_types.h"

// The library's objects are structs that the caller has, of 512 bytes from version 0.8 on and of
// 11,024 before; the space of one here leaves room for both.
typedef struct {
    _Alignas(16) char data[11 * 1024];
} tni_sparselt_object;

// The numbers of its interface that we use.
enum {
    TNI_SPARSELT_F16  = 2,
    TNI_SPARSELT_BF16 = 14,
    // orders of a matrix
    TNI_SPARSELT_COLUMNS = 1,
    TNI_SPARSELT_ROWS    = 2,
    // operations on one
    TNI_SPARSELT_NOT_TRANSPOSED = 0,
    TNI_SPARSELT_TRANSPOSED     = 1,
    TNI_SPARSELT_TWO_OF_FOUR    = 0,
    TNI_SPARSELT_COMPUTE_F32    = 2,
    // attributes of an algorithm
    TNI_SPARSELT_ALGO_DEFAULT = 0,
    TNI_SPARSELT_ALGO_ID      = 0,
    TNI_SPARSELT_ALGO_COUNT   = 1,
    // parts of the version
    TNI_SPARSELT_MAJOR = 0,
    TNI_SPARSELT_MINOR = 1,
    TNI_SPARSELT_PATCH = 2
};

// The functions of libcusparseLt. The library is used only if it has all of them. All but
// status_string return 0 or an error; h is its handle, which init fills for the current GPU.
typedef struct {
    int (*property)(int which, int *value);
    const char *(*status_string)(int status);
    int (*init)(void *h);
    int (*pruned)(const void *h, void *matrix, int64_t rows, int64_t cols, int64_t ld,
                  uint32_t align, int type, int order, int sparsity);
    int (*dense)(const void *h, void *matrix, int64_t rows, int64_t cols, int64_t ld,
                 uint32_t align, int type, int order);
    int (*forget_matrix)(const void *matrix);
    int (*packed_size)(const void *h, const void *matrix, size_t *bytes, size_t *scratch);
    int (*pack)(const void *h, const void *matrix, int is_a, int op, const void *from, void *to,
                void *scratch, tni_custream s);
    int (*product)(const void *h, void *product, int op_a, int op_b, const void *a, const void *b,
                   const void *c, const void *d, int compute);
    int (*algo)(const void *h, void *algo, const void *product, int which);
    int (*algo_set)(const void *h, void *algo, int attribute, const void *value, size_t bytes);
    int (*algo_get)(const void *h, const void *algo, int attribute, void *value, size_t bytes);
    int (*plan)(const void *h, void *plan, const void *product, const void *algo);
    int (*forget_plan)(const void *plan);
    int (*workspace)(const void *h, const void *plan, size_t *bytes);
    int (*multiply)(const void *h, const void *plan, const void *alpha, const void *a,
                    const void *b, const void *beta, const void *c, void *d, void *workspace,
                    tni_custream *s, int32_t streams);
} tni_cusparselt;

// Returns the library, loaded once and kept until the process ends; NULL, with the reason, if it is
// not installed or too old.
const tni_cusparselt *tni_cusparselt_get(tni_text *why);
// Returns the file it was loaded from, "" if it was not found. Valid after tni_cusparselt_get.
const char *tni_cusparselt_where(void);
// Returns its version as the libraries of CUDA have it: 801 for 0.8.1.
size_t tni_cusparselt_version(const tni_cusparselt *lt);

#endif
