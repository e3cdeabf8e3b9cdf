// fake_cudnn_kit.h: a session of the cuda device over memory of the host, with a cuDNN that
// computes there.
#ifndef TEST_FAKE_CUDNN_KIT_H
#define TEST_FAKE_CUDNN_KIT_H

#include "cuda/fake/fake_cudnn.h"
#include "device/cuda/gpu.h"

#include <stdbool.h>

extern fake_dnn *fake_cudnn;  // NULL before the first begin
extern tni_cuda  fake_session;

// Compiles the fake, with options for the compiler, into the scratch folder, which is open.
bool fake_cudnn_compile(const char *options);
// Puts the fake and the session back as they were, with an empty cache; end checks that nothing is
// left.
bool fake_cudnn_begin(void);
void fake_cudnn_end(void);
// Forgets what was chosen, as a new process would.
void fake_cudnn_forget(void);

#endif
