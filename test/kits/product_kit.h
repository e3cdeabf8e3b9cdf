// product_kit.h: random calls of matmul over host memory, and what they should give.
#ifndef TEST_PRODUCT_KIT_H
#define TEST_PRODUCT_KIT_H

#include "device/cuda/product.h"

enum {
    PRODUCT_A,
    PRODUCT_B,
    PRODUCT_D,
    PRODUCT_RESIDUAL,
    PRODUCT_INPUT,
    PRODUCT_BIAS,
    PRODUCT_MEMS
};

// A call with its memory: mem[] are what a, b and the result lie in, of so many elements, then what
// may be added to the result and where the activation's input may go, which lie as the result does,
// and a bias. Values are small whole numbers, so that every type holds every sum exactly. The call
// points into the case, so that it must not be moved; product_free ends it.
typedef struct {
    tni_call call;
    tni_arg  in[2];
    char    *mem[PRODUCT_MEMS];
    int64_t  count[PRODUCT_MEMS];
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

// The type of a memory's elements, and its bytes.
tn_dtype product_dtype(const product_case *c, int mem);
size_t   product_bytes(const product_case *c, int mem);

// What follows the product of a case. in_place: the residual is what the result's memory holds.
typedef struct {
    tni_product_epilogue end;
    bool                 in_place;
    double               scale;
} product_after;

// Number i of all that can follow, PRODUCT_AFTERS of them, relu with its input and the like left
// out.
enum { PRODUCT_AFTERS = 48 };
product_after product_after_of(int i);

// Lets it follow a product of the case, with addresses in mem[], which are the case's or copies of
// it on a device. False if the library cannot do it.
bool product_follow(const product_case *c, const product_after *after, char *const mem[],
                    tni_product *p);

// What the memory of the result, and after it that of the input, should hold afterwards, all of it,
// as doubles, to be freed; NULL when memory is out.
double *product_want(const product_case *c, const product_after *after);
// The number of elements of those memories that differ from that, more than tol times as large as
// the larger of one and the value.
int64_t product_misses(const product_case *c, const double *want, double tol);

// Random 64 bits from a state.
uint64_t product_random(uint64_t *state);

#endif
