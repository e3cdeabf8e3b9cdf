// shared_names.h: the variables that the text of kernels declares in shared memory.
#ifndef TEST_SHARED_NAMES_H
#define TEST_SHARED_NAMES_H

#include <stdbool.h>
#include <stddef.h>

// Whether each is used in its block, after its declaration; else the name of the first that is not.
// Some drivers of OpenCL (PoCL 5) end the process over one that is not. The text is of OpenCL or
// CUDA.
bool shared_names_used(const char *text, char *unused, size_t room);
// How many there are.
int shared_names_count(const char *text);

#endif
