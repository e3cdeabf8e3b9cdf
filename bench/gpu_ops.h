// Single ops on a GPU, as the public interface records them. A case works on random arrays and is
// checked by a reference in double before it is timed.
#ifndef BENCH_GPU_OPS_H
#define BENCH_GPU_OPS_H

#include "bench.h"

enum { GPU_ARRAYS = 9, GPU_PARTS = 124 };

// How an array begins: a result, whose elements are poisoned; numbers in -3 .. 3; indices below the
// number of columns.
typedef enum { GPU_RESULT, GPU_RANDOM, GPU_INDEX } gpu_fills;

// axes: "rc" is an array of rows and columns, "k" a vector along the inner axis, "" one number.
typedef struct {
    tn_dtype    dtype;
    gpu_fills   fill;
    const char *axes;
} gpu_array;

typedef struct gpu_op gpu_op;

// One case. The limit is the fewest bytes that must move at the rate of a copy, or the operations
// at the measured rate of the matrix units, whichever takes longer.
typedef struct {
    const char *name;
    int64_t     rows, cols, inner;
    double      bytes;      // for each row and column
    double      flop_rate;  // in a second, for 2 * rows * cols * inner operations; 0: none
    gpu_array   array[GPU_ARRAYS];
    bool (*open)(gpu_op *s);    // what lasts from call to call; NULL: nothing
    bool (*record)(gpu_op *s);  // sets the results' tensors
    double (*error)(gpu_op *s);
    double most;  // error that is still right
    bool   tf32;
} gpu_case;

// A case on a device: the inputs on the host, where the reference reads them, and as tensors.
// Whoever opened it closes it.
struct gpu_op {
    const gpu_case *c;
    tn_ctx         *cx;
    int64_t         rows, cols, inner;
    void           *host[GPU_ARRAYS];
    tn_tensor      *t[GPU_ARRAYS];
    tn_optim       *opt;  // of parameters that are the parts of array 0, one below the other
    tn_tensor      *param[GPU_PARTS];
    int             parts;
};

extern const gpu_case gpu_cases[];
extern const int      gpu_case_count;

// Which arrays a case has: up to the first without axes.
int     gpu_arrays(const gpu_case *c);
int64_t gpu_elements(const gpu_op *s, int array);
// Element i of an input, as a double.
double gpu_in(const gpu_op *s, int array, int64_t i);
// n elements of a result from the first on, or of an input that was written. False if the device
// gave none.
bool gpu_out(gpu_op *s, int array, int64_t first, int64_t n, double *v);

// References: the largest error of sampled elements.
typedef double gpu_reference(gpu_op *s);
gpu_reference  gpu_relu_error, gpu_tanh_error, gpu_softmax_error, gpu_cross_entropy_error,
    gpu_norm_error, gpu_norm_all_error, gpu_sum_error, gpu_column_sum_error, gpu_gelu_error,
    gpu_product_error, gpu_adamw_error, gpu_clip_error;

// The optimizer's numbers: with a large epsilon the update depends on the size of a gradient, and
// with a small norm on that of the clipped ones.
#define GPU_LR       1.0
#define GPU_DECAY    1e-2
#define GPU_EPS      1.0
#define GPU_CLIP_EPS 1e-4
#define GPU_CLIP     1.0

#endif
