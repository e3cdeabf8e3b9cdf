// Convolution and its gradients on this device, by any of several methods, of which method.h says
// how they are chosen: cuDNN, a matrix product where that is what a convolution is, kernels of our
// own on the tensor cores without cuDNN, and those of ../simt where none of these serves. A
// convolution and the kernel behind it are one call of cuDNN, or two launches, whichever is faster.
#ifndef TNI_CUDA_CONV_H
#define TNI_CUDA_CONV_H

#include "device/cuda/method.h"

// The methods of cudnn_conv.c and conv_cores.c.
extern const tni_method tni_conv_by_cudnn, tni_conv_by_cores;

// Writes the strides of a dense (N, C, places), with channels last or not. Returns whether x has
// them.
bool tni_conv_has_order(const tni_arg *x, bool last, int64_t *stride);

// Describes a convolution as a form: sizes, strides and the window.
void tni_conv_describe(const tni_call *call, tni_form_words *w);

// The contract's functions for matmul_i32 and conv_i32, of cuda_bytes.c.
const char *tni_cuda_bytes_declines(const tni_call *call);
void       *tni_cuda_prepare_bytes(const tni_call *call);
size_t      tni_cuda_bytes_scratch(const tni_call *call);
tn_status   tni_cuda_bytes(const tni_call *call);

// The contract's functions for conv, conv_dgrad and conv_wgrad.
void       *tni_cuda_prepare_conv(const tni_call *call);
size_t      tni_cuda_conv_scratch(const tni_call *call);
tn_status   tni_cuda_conv(const tni_call *call);
const char *tni_cuda_conv_varies(const tni_call *call);
const char *tni_cuda_conv_method(const tni_call *call);
bool        tni_cuda_conv_takes(void *session, const tni_offer *o);
tn_status   tni_cuda_conv_with_epilogue(const tni_call *call, void *entry, tni_launch *l,
                                        tni_text *why);
int tni_cuda_conv_order(const void *session, tn_dtype dt, int64_t from, int64_t to, bool last);

#endif
