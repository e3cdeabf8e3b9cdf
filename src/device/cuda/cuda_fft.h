// Fourier transforms on the cuda device.
#ifndef TNI_DEVICE_CUDA_FFT_H
#define TNI_DEVICE_CUDA_FFT_H

#include "device/cuda/gpu.h"
#include "device/simt/groups.h"

void       *tni_cuda_prepare_fft(const tni_call *c);
void        tni_cuda_forget_fft(void *entry);
size_t      tni_cuda_fft_scratch(const tni_call *c);
tn_status   tni_cuda_fft(const tni_call *c);
const char *tni_cuda_fft_method(const tni_call *c);

#endif
