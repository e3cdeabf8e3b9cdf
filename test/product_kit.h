// product_kit.h: random calls of matmul over host memory, and what they should give.
#ifndef TEST_PRODUCT_KIT_H
#define TEST_PRODUCT_KIT_H

#include "device/cuda/product.h"

// A call with its memory: mem[] are what a, b and the result lie in, of so many elements. Values are
// small whole numbers, so that every type holds every sum exactly. The call points into the case, so
// that it must not be moved; product_free ends it.
typedef struct {
    tni_call call;
    tni_arg  in[2];
    char    *mem[3];
    int64_t  count[3];
    bool     easy;  // the library can do it: what it cannot do was not drawn
} product_case;

// Sizes of the matrices are 1 to most. False when memory is out.
bool product_draw(product_case *c, uint64_t seed, tn_dtype in, tn_dtype out, int most);
// A case of one product of given sizes; an operand that is turned lies column after column.
bool product_make(product_case *c, const int64_t size[3], bool turn_a, bool turn_b, tn_dtype in,
                  tn_dtype out);
void product_free(product_case *c);

// Replaces the operands' values by random ones in -0.5..0.5.
void product_fill(product_case *c, uint64_t seed);

// What the result's memory should hold afterwards, all of it, as doubles, to be freed; NULL when
// memory is out. adds: the product is added. bias is one for each of the last size, or NULL.
double *product_want(const product_case *c, bool adds, int epilogue, const double *bias);
// The number of elements of a result's memory that differ from that, more than tol times as large as
// the larger of one and the value.
int64_t product_misses(const product_case *c, const char *mem, const double *want, double tol);

// Random 64 bits from a state.
uint64_t product_random(uint64_t *state);

#endif
