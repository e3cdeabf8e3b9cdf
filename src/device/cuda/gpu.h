// What the files of the cuda device share: the GPU, once it is open, and its errors.
#ifndef TNI_CUDA_GPU_H
#define TNI_CUDA_GPU_H

#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/device.h"
#include "kernel/simt.h"

// The GPU: one, with its primary context, which libraries share, and one stream, in which all work
// of all contexts is done in order. Set once, at the first use, and read-only from then on; the
// process keeps it until it ends.
typedef struct {
    const tni_driver *cu;
    tni_cucontext     cx;
    tni_custream      stream;
    char              chip[16];  // "sm_90"
    tni_simt_limits   limits;
    tni_cuptr         state;  // see simt.h
    int64_t          *seen;   // on the host, for copies of the failure in state
} tni_gpu;

// The GPU, current in the calling thread; NULL, with the reason, if it cannot be used.
const tni_gpu *tni_gpu_get(tni_text *why);

// TN_OK, or what an error of the driver means, with a sentence: what could not be done, and why.
tn_status tni_gpu_status(const tni_gpu *gpu, int error, const char *what, tni_text *why);

// The kernels of the contract.
tn_status tni_cuda_prepare(int n, const tni_launch *const *first, void **entry, tni_text *why);
size_t    tni_cuda_room(void *entry, const tni_launch *l);
tn_status tni_cuda_launch(void *entry, tni_launch *l, tni_text *why);

// What prepare compiles: the text of kernels, opts being their class, as machine code for a chip; look
// as in cubin.h. It needs no GPU.
tn_status tni_cuda_cubin(int n, const tni_emit_item *item, const char *chip, bool look,
                         tni_cubin *c, tni_text *why);

// A call of one op, of those that need no kernel of their own: copy, cast, full.
tn_status tni_cuda_run(const tni_call *call);

#endif
