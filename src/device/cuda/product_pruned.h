// Products with a matrix of 2:4 sparsity by cuSPARSELt, which multiplies half of the elements:
// where that was timed to be faster than the product with the plain matrix.
#ifndef TNI_CUDA_PRODUCT_PRUNED_H
#define TNI_CUDA_PRODUCT_PRUNED_H

#include "device/cuda/product.h"

// For TN_METHOD and tn_explain.
#define TNI_PRUNED_NAME "cuSPARSELt"

struct tni_cuda;

// The contract's functions of these names: see device.h.
size_t    tni_cuda_packed_bytes(void *session, tn_dtype dt, int64_t rows, int64_t cols);
tn_status tni_cuda_pack(void *session, tn_dtype dt, int64_t rows, int64_t cols, const char *w,
                        char *packed, tni_text *why);

// How a product whose A is packed is done: by the library of this file; with the plain matrix,
// until the two were timed; or with that for good, since it is faster or the library cannot do it.
// Products of fewer multiply-adds are not tried. On an H200 1,024 tokens gain nothing with weights
// of 3,072 x 768 (2.4e9), and a third with 4,096 x 4,096 (1.7e10).
#define TNI_PRUNED_LEAST 4e9

typedef enum { TNI_PRUNED, TNI_PRUNED_NOT_TIMED, TNI_PRUNED_NOT } tni_pruned_method;
tni_pruned_method tni_pruned_method_of(const tni_product *p, const tni_product_env *at);

// Times its algorithms against the product with the plain matrix, on the operands themselves, or
// finds the choice on disk. D is written. The stream is not being captured. Whatever fails leaves
// the plain product.
void tni_pruned_choose(tni_product *p, const tni_product_env *at);

// Launches a product whose method is TNI_PRUNED.
tn_status tni_pruned_run(const tni_product *p, const tni_product_env *at, tni_text *why);

// Returns what computes a product with a packed A, for tn_explain.
const char *tni_pruned_words(const tni_product *p, const tni_product_env *at);

// Forgets all plans, for tests; nothing may be running.
void tni_pruned_forget(void);

#endif
