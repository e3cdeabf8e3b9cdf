// cuBLASLt as this folder calls it, found at run time, with declarations of our own: no header of
// CUDA is needed to build. blaslt.def has the library's name of each function.
#ifndef TNI_CUDA_BLASLT_H
#define TNI_CUDA_BLASLT_H

#include "base/text.h"
#include "device/cuda/cu_types.h"
#include "device/cuda/lt_types.h"

// The functions of libcublasLt. The library is used only if it has all of them. Functions that
// return an int return 0 or an error.
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
    int (*preference_create)(tni_ltpreference *w);
    int (*preference_destroy)(tni_ltpreference w);
    int (*preference_set)(tni_ltpreference w, int attribute, const void *value, size_t bytes);
    int (*propose)(tni_lthandle h, tni_ltdesc d, tni_ltlayout a, tni_ltlayout b, tni_ltlayout c,
                   tni_ltlayout out, tni_ltpreference w, int most, tni_ltproposal *found,
                   int *count);
    int (*check)(tni_lthandle h, tni_ltdesc d, tni_ltlayout a, tni_ltlayout b, tni_ltlayout c,
                 tni_ltlayout out, const tni_ltalgo *algo, tni_ltproposal *result);
    int (*algo_has)(const tni_ltalgo *a, int attribute, void *value, size_t bytes, size_t *written);
    int (*algo_get)(const tni_ltalgo *a, int attribute, void *value, size_t bytes, size_t *written);
    int (*algo_set)(tni_ltalgo *a, int attribute, const void *value, size_t bytes);
    int (*matmul)(tni_lthandle h, tni_ltdesc d, const void *alpha, const void *a, tni_ltlayout la,
                  const void *b, tni_ltlayout lb, const void *beta, const void *c, tni_ltlayout lc,
                  void *out, tni_ltlayout lout, const tni_ltalgo *algo, void *workspace,
                  size_t bytes, tni_custream s);
} tni_blaslt;

// Returns the library, loaded once and kept until the process ends; NULL, with the reason, if it is
// not installed. Finding it does not mean that there is a GPU.
const tni_blaslt *tni_blaslt_get(tni_text *why);
// Returns the file it was loaded from, "" if it was not found. Valid after tni_blaslt_get.
const char *tni_blaslt_where(void);

#endif
