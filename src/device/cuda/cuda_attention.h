// Attention and its gradient on this device, by any of several methods: a library, kernels of our
// own. method.h says how they are chosen. A form whose strided results no method takes is computed
// row-major and copied.
#ifndef TNI_CUDA_ATTENTION_H
#define TNI_CUDA_ATTENTION_H

#include "device/attention.h"
#include "device/cuda/method.h"

// The methods: cudnn_attention.c, flash.c.
extern const tni_method tni_attention_by_cudnn, tni_attention_by_flash;

// The contract's functions for attention and attention_grad.
const char *tni_cuda_attention_declines(const tni_call *call);
void       *tni_cuda_prepare_attention(const tni_call *call);
size_t      tni_cuda_attention_scratch(const tni_call *call);
tn_status   tni_cuda_attention(const tni_call *call);
const char *tni_cuda_attention_varies(const tni_call *call);
const char *tni_cuda_attention_method(const tni_call *call);

#endif
