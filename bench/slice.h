// The slice: the kernels that tell whether generated code is fast, on one device. A case is timed
// twice: as the public interface records it, and as a kernel written by hand in the IR, which needs
// no planner. Both work on the same random arrays and are checked by the same reference in double.
#ifndef BENCH_SLICE_H
#define BENCH_SLICE_H

#include "bench.h"

#include "device/device.h"

enum { SLICE_ARRAYS = 9, SLICE_KERNELS = 2 };

// How an array begins: a result, whose elements are poisoned; numbers in -3 .. 3; numbers in 0 .. 1;
// indices below the number of columns.
typedef enum { SLICE_RESULT, SLICE_RANDOM, SLICE_POSITIVE, SLICE_INDEX } slice_fill;

typedef struct {
    tn_dtype   dtype;
    slice_fill fill;
    bool       by_row, by_col;  // how many: rows, columns, their product or 1
} slice_spec;

typedef struct slice slice;

// One case. rows and cols are those of the array that counts; where nothing depends on rows there is
// one axis, and cols is 1.
typedef struct {
    const char *name;
    int64_t     rows, cols;
    double      bytes;                // an element, the fewest that must move
    slice_spec  array[SLICE_ARRAYS];  // up to the first without a dtype's size
    int         arrays;
    int         kernels;                                     // of its own
    void (*build)(int which, tni_kernel *k, tni_launch *l);  // its kernels; launch: but the sizes
    bool (*record)(slice *s);                                // sets the results' tensors
    double (*error)(slice *s);                               // the largest of sampled elements
    double most;                                             // error that is still right
} slice_case;

// A case on a device: the inputs on the host, where the reference reads them, and on the device, by
// address or as tensors. Whoever opened it closes it.
struct slice {
    const slice_case *c;
    const tni_device *device;
    tn_ctx           *cx;
    int64_t           rows, cols;
    void             *host[SLICE_ARRAYS];
    char             *data[SLICE_ARRAYS];  // NULL where the tensors are used
    tn_tensor        *t[SLICE_ARRAYS];
};

extern const slice_case slice_cases[];
extern const int        slice_count;

int64_t slice_elements(const slice *s, int array);
// Element i of an input, as a double.
double slice_in(const slice *s, int array, int64_t i);
// n elements of a result from the first on, or of an input that was written. False if the device
// gave none.
bool slice_out(slice *s, int array, int64_t first, int64_t n, double *v);

#endif
