// What measuring asks of the cuda device besides the contract.
#ifndef TNI_CUDA_CUDA_H
#define TNI_CUDA_CUDA_H

// How long so many calls of f take on the device of a session, between two events of its stream; what f does on
// the host counts only where the device waits for it. NAN if it fails.
double tni_cuda_seconds(void *session, void (*f)(void *arg), void *arg, int times);

#endif
