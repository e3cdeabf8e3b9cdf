// nvidia_headers.h: where the headers of CUDA are installed, for tests that compile with them.
#ifndef TEST_NVIDIA_HEADERS_H
#define TEST_NVIDIA_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

// Room for the path of a folder, and for the flags of a compiler.
enum { NVIDIA_PATH = 1024, NVIDIA_FLAGS = 4 * NVIDIA_PATH };

// Why a test that needs them is skipped.
#define NVIDIA_NO_HEADERS                     \
    "no headers of CUDA are installed here: " \
    "cuda.h is not where CUDA_PATH, wheels and /usr/local have it"

// The folder that has cuda.h; false if there is none.
bool nvidia_headers_find(char folder[NVIDIA_PATH]);
// The flags, quoted for a shell, by which a compiler finds all headers of NVIDIA's that we look at.
// Wheels of CUDA 12 have a folder of headers for each library.
void nvidia_headers_flags(const char *folder, char flags[NVIDIA_FLAGS]);

#endif
