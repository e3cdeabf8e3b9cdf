// product_place.h: where products run in tests without a GPU: a fake cuBLASLt, a driver over host
// memory, and an empty cache.
#ifndef TEST_PRODUCT_PLACE_H
#define TEST_PRODUCT_PLACE_H

#include "product_kit.h"

#include "../cuda/fake/fake_blaslt.h"

#include <stddef.h>

// Bytes of workspace, and the numbers of the algorithms that the fake proposes first and takes
// least for.
enum { PRODUCT_WORKSPACE = 4096, PRODUCT_FIRST = 1, PRODUCT_FASTEST = 7 };

// The fake and the place, once product_begin has succeeded.
extern fake_state     *product_fake;
extern tni_product_env product_place;

// Loads the fake before anyone looks for the real one: it is taken since it is in the process. The
// cache is a folder that is empty.
bool product_begin(void);
// Checks that nothing is left.
void product_end(void);
// Compiles a file of test/cuda/fake as a library of a real one's name; NULL, with what the compiler
// said.
void *product_compile_fake(const char *source, const char *soname, char *out, size_t size);

// How many products this process has timed, and found on disk.
int64_t product_timed(void);
int64_t product_found(void);

// A product of 3 x 4 by 4 x 5 of ones in memory of its own, and a result of eights.
typedef struct {
    tni_product p;
    tni_call    call;
    tni_arg     in[2];
    _Alignas(64) char a[64];
    _Alignas(64) char b[128];
    _Alignas(64) char out[64];
} product_small;

void product_make_small(product_small *s);
// Prepares and runs it; returns the number of the algorithm.
int product_prepare_and_run(product_small *s);

#endif
