// What of NVIDIA's software this process has, for people to read.
#ifndef TNI_CUDA_LIBRARY_REPORT_H
#define TNI_CUDA_LIBRARY_REPORT_H

#include "base/text.h"

// One piece of software: its version and its file, or why there is none.
typedef struct {
    const char *name;
    bool        found;
    tni_text    version;
    tni_text    detail;
} tni_nvidia_library;

// The driver and NVRTC, then, where there is a driver, cuBLASLt and cuDNN: how many it told of. The
// libraries are opened for that.
enum { TNI_NVIDIA_LIBRARIES = 4 };
int tni_nvidia_report(tni_nvidia_library library[TNI_NVIDIA_LIBRARIES]);

#endif
