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

// What is so without cuFFT, for people.
#define TNI_WITHOUT_CUFFT \
    "transforms of other lengths than powers of two up to 2,048 run on the host"

// Finds cuFFT. Returns whether it is there, with its version (12200: 12.2.0) and its file, else why
// not.
bool tni_cufft_find(int *version, tni_text *detail);

#endif
