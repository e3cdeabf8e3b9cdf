// What of NVIDIA's software this process has, for people to read.
#ifndef TNI_CUDA_PARTS_H
#define TNI_CUDA_PARTS_H

#include "base/text.h"

// One piece of software: its version and its file, or why there is none.
typedef struct {
    const char *name;
    bool        there;
    tni_text    version;
    tni_text    detail;
} tni_cuda_part;

// The driver and NVRTC, then, where there is a driver, cuBLASLt and cuDNN: how many it told of. The
// libraries are opened for that.
enum { TNI_CUDA_PARTS = 4 };
int tni_cuda_parts(tni_cuda_part part[TNI_CUDA_PARTS]);

#endif
