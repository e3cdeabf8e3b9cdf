// fake_gpu.h: a GPU of streams, events and memory that runs nothing but copies and functions of a
// test, in any order that the streams allow: what is given to a stream waits in it until the GPU
// gets to it, and which stream goes next is drawn.
#ifndef TEST_FAKE_GPU_H
#define TEST_FAKE_GPU_H

#include "device/cuda/gpu.h"

// A session at the fake GPU, with all that is needed to open one. One at a time.
void      fake_gpu_open(uint32_t seed);
tni_cuda *fake_gpu_session(void);
// Ends it: everything given is run. What is left of streams, events and memory.
int fake_gpu_close(void);

// Gives a function to the compute stream.
void fake_gpu_work(void (*f)(void *arg), void *arg);
// Runs up to n things that can run; no_work: a stream gets no further than to the first function in
// it. Returns how many it were.
int fake_gpu_run(int n, bool no_work);
// Memory of another GPU.
void *fake_gpu_stranger(void);
// A caller's stream. captures: from now on it is captured into a graph, or not. broken: how many
// calls did not fit with that.
void *fake_gpu_other_stream(bool captures);
int   fake_gpu_broken(void);
// How often the host waited.
int fake_gpu_waits(void);

#endif
