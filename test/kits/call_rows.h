// call_rows.h: what the files of the table of calls share: how a wrapper and a row are written.
#ifndef TEST_CALL_ROWS_H
#define TEST_CALL_ROWS_H

#include "calls.h"

// The tables, each ended by a row without a name.
extern const call calls_of_tensors[], calls_of_arrays[], calls_of_layers[], calls_of_training[];

// Somewhere to print to.
FILE *calls_nowhere(void);
// A shape of 16 sizes: i, j, then ones.
const int64_t *calls_shape(const call_args *k);

#define CALL(name) static tn_tensor *call_##name(const call_args *k)

// Rows of wrappers: one tensor; two of one context; quiet with NULL.
#define O(f)                                \
    {                                       \
        .name = "tn_" #f, .other = call_##f \
    }
#define T(f)                                                   \
    {                                                          \
        .name = "tn_" #f, .other = call_##f, .takes_two = true \
    }
#define Q(f)                                               \
    {                                                      \
        .name = "tn_" #f, .other = call_##f, .quiet = true \
    }

// Rows of functions of one signature: of a tensor; of it and a number, an integer or an axis; of
// two.
#define U(f)                              \
    {                                     \
        .name = "tn_" #f, .unary = tn_##f \
    }
#define S(f)                               \
    {                                      \
        .name = "tn_" #f, .number = tn_##f \
    }
#define I(f)                                \
    {                                       \
        .name = "tn_" #f, .integer = tn_##f \
    }
#define B(f)                                                  \
    {                                                         \
        .name = "tn_" #f, .binary = tn_##f, .takes_two = true \
    }
#define A(f)                             \
    {                                    \
        .name = "tn_" #f, .axis = tn_##f \
    }
#define M(f)                             \
    {                                    \
        .name = "tn_" #f, .axes = tn_##f \
    }
#define FOLD(f) A(f), A(f##_keep), U(f##_all), M(f##_axes)
#define ARG(f)  A(f), A(f##_keep), U(f##_all)

#endif
