// Which of NVIDIA's libraries this process has, for people to read.
#ifndef TNI_CUDA_LIBRARY_REPORT_H
#define TNI_CUDA_LIBRARY_REPORT_H

#include "base/text.h"

// One library: its version and its file, or why there is none.
typedef struct {
    const char *name;
    bool        found;
    tni_text    version;
    tni_text    detail;
} tni_nvidia_library;

// Reports the driver and NVRTC and, if there is a driver, cuBLASLt, cuDNN, cuFFT, cuSOLVER and
// cuSPARSELt, which it opens for that. Returns how many it reported.
enum { TNI_NVIDIA_LIBRARIES = 7 };
int tni_nvidia_report(tni_nvidia_library library[TNI_NVIDIA_LIBRARIES]);

#endif
