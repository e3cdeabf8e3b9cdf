// Linear algebra of large matrices by cuSOLVER and cuBLAS (solver.c).
#ifndef TNI_CUDA_SOLVER_H
#define TNI_CUDA_SOLVER_H

#include "device/cuda/cusolver.h"
#include "device/device.h"

struct tni_cuda;

// The libraries' handles of a session, made by its first call: some 100 ms, and memory on the GPU.
typedef struct {
    tni_solver_handle handle;
    tni_solver_params params;
    tni_blas_handle   blas;
    bool              failed;  // they could not be made; nothing is tried again
} tni_solver;

// Returns whether the libraries take a call of the row linalg.
bool tni_solver_takes(const tni_call *call);
// Returns the bytes of scratch memory; runs the call. A failure of a library is TN_EARG: the call
// can run elsewhere.
size_t    tni_solver_scratch(const tni_call *call);
tn_status tni_solver_run(const tni_call *call);
void      tni_solver_close(struct tni_cuda *c);

extern const char *const tni_text_solver[];

#endif
