// cuDNN as this folder calls it, found at run time, with declarations of our own: no header of CUDA
// is needed to build. Only the graph interface of version 9 is used. cudnn.def has the library's
// name of each function.
#ifndef TNI_CUDA_CUDNN_H
#define TNI_CUDA_CUDNN_H

#include "base/text.h"
#include "device/cuda/cu_types.h"
#include "device/cuda/cudnn_types.h"

// The functions of libcudnn. The library is used only if it has all of them. Functions that return
// an int return 0 or a status, except that cudnnGetCudartVersion counts as version does: 13000 is
// 13.0.
typedef struct {
    size_t (*version)(void);       // 91400: 9.14.0
    size_t (*cuda_version)(void);  // the CUDA that it was built for, 13000: 13.0
    const char *(*status_string)(int status);
    void (*last_error)(char *text, size_t room);  // of the calling thread
    int (*create)(tni_dnnhandle *h);
    int (*destroy)(tni_dnnhandle h);
    int (*set_stream)(tni_dnnhandle h, tni_custream s);
    int (*desc_create)(int kind, tni_dnndesc *d);
    int (*desc_destroy)(tni_dnndesc d);
    int (*desc_finalize)(tni_dnndesc d);
    int (*desc_set)(tni_dnndesc d, int attribute, int type, int64_t count, const void *value);
    int (*desc_get)(tni_dnndesc d, int attribute, int type, int64_t room, int64_t *count,
                    void *value);
    int (*execute)(tni_dnnhandle h, tni_dnndesc plan, tni_dnndesc pack);
} tni_cudnn;

// Returns the library, loaded by the first call and kept until the process ends; NULL, with the
// reason, if it is not installed, is a version with known mistakes, lacks a library that it depends
// on, or is turned off (TN_CUDNN). Finding it does not mean that there is a GPU.
const tni_cudnn *tni_cudnn_get(tni_text *why);
// Returns the file it was loaded from, "" if it was not found. Valid after tni_cudnn_get.
const char *tni_cudnn_where(void);

// Returns whether a version is used: 9.6 is the first in which the gradient of attention needs no
// cleared memory, and 9.10.0 and 9.10.1 have known mistakes.
bool tni_cudnn_version_is_used(size_t version);

#endif
