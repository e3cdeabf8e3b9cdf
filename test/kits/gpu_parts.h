// gpu_parts.h: tests that use a GPU, in processes of their own.
//
// What is forked from a process that used the GPU cannot use it, so the one that runs the tests
// leaves it alone.
#ifndef TEST_GPU_PARTS_H
#define TEST_GPU_PARTS_H

#include "tenon.h"

// "cuda", or what TN_TEST_DEVICE names.
const char *tested_device(void);
// A silent context of a seed. It is checked to be there.
tn_ctx *open_seeded(const char *device, uint64_t seed);
// Runs f in so many processes at once, at most 16; checks and cases in them are those of the
// running test, which is skipped if the device is not here.
void in_parts(void (*f)(int part, int parts), int parts);
// Runs f in a process, and waits for its end; no device need be here.
void in_process(void (*f)(void *arg), void *arg);

#endif
