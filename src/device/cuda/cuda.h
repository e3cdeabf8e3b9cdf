// What benchmarks need from the cuda device besides the contract.
#ifndef TNI_CUDA_CUDA_H
#define TNI_CUDA_CUDA_H

// Returns how long `times` calls of f take on the session's GPU, in seconds between two events of
// its stream. Work of f on the host counts only if the GPU waits for it. NAN if it fails.
double tni_cuda_seconds(void *session, void (*f)(void *arg), void *arg, int times);

#endif
