// Matrix products by cuBLASLt: how the library sees one, which algorithm it takes, and running it.
//
// The library thinks column-major. A row-major matrix is its transpose, so that the product of
// row-major matrices is that of the operands in transposed order, and nothing is ever copied.
#ifndef TNI_CUDA_PRODUCT_H
#define TNI_CUDA_PRODUCT_H

#include "device/cuda/blaslt.h"
#include "device/cuda/driver.h"
#include "device/device.h"

// A matrix as it lies, column after column: element (i, j) is i + j * ld elements on, and ld is at
// least rows.
typedef struct {
    int64_t rows, cols, ld;
    int64_t
         batch_stride;  // elements to the matrix of the next product of a batch; 0: the same again
    bool transposed;    // it is read transposed; never of a result
} tni_matrix;

// What follows a product before it is rounded and stored, by its kind alone:
// D = activation(scale * A B + residual + bias).
typedef struct {
    int  activation;  // an op of the table: TNI_relu, TNI_gelu_tanh; TNI_leaf: none
    bool scaled;      // the product is multiplied by a number
    bool residual;    // a matrix of D's type that lies as D does is added
    bool bias;        // one element of D's type for each of D's rows is added
    bool input;       // what the activation is given is stored too: a matrix like the residual
} tni_product_epilogue;

// Products of one form, D = A B with A (rows, depth) and B (depth, cols) after turning, over a batch
// of equal steps, and that once for every index of the loops; and what follows. Plain data that owns
// nothing. x[] are A, B and D. A run may have other addresses and another scale; of those that stand
// under `end`, only what it names is looked at. All else stays as it is from the first run on, so that
// the plan which that found is taken again.
typedef struct {
    tn_dtype in, out;           // elements of A and B; of D and of what follows
    bool     waits;             // for the compiler of our own kernel
    bool     tf32;              // elements of f32 may be read with 10 bits of mantissa
    bool    result_transposed;  // D's rows are the columns of the call's result: D is its transpose
    int64_t rows, cols, depth, batch;
    int64_t width;  // the last size of the call's result
    tni_matrix           x[3];
    int                  loops;
    int64_t              loop_size[TN_MAX_RANK], loop_stride[3][TN_MAX_RANK];  // in elements
    char                *at[3];
    tni_product_epilogue epilogue;
    double               scale;
    const char          *bias;
    const char          *residual;  // may be where D is
    char                *input;
    // The plan found last, by how the addresses were aligned then, and of which generation of plans.
    struct tni_ltplan *plan;
    uint32_t           aligned, generation;
} tni_product;

// The products of a call of matmul. False if the library cannot do them as the operands lie, so that
// a kernel of our own must: elements that are no floats, neither axis of a matrix in steps of one
// element, rows that overlap, an empty inner axis, sizes past 32 bits, or so many unequal batches
// that one kernel is better than all those launches.
bool tni_product_of(const tni_call *c, tni_product *p);
// The same products at the addresses of another call of these shapes, but for the result.
void tni_product_bind(tni_product *p, const tni_call *c, char *out);

// Lets something follow; which addresses it will have is not asked. The bias is as long as the result's
// last axis, without gaps. False, with nothing changed, if the library cannot do it: anything but scale
// and residual in f64; a bias that does not go result_transposed D's rows; an input that is not gelu's, or that lies
// in batches or in columns that do not begin at multiples of 8 elements.
bool tni_product_add_epilogue(tni_product *p, const tni_product_epilogue *epilogue);

tni_product_epilogue tni_product_epilogue_of(const tni_epilogue *e);

// The products of a call and of the kernel behind it, if the library can do the two as one: nobody else
// reads the result of the call, and gelu is of a half precision, whose few digits the library's has. The slope
// of gelu with the column sum (DGELU_BGRAD) is left to a kernel: on an H200 forward and backward of an MLP block
// of GPT-2 take 1,030 us with it and 801 without, and in bf16 its sums are off by more than bf16's rounding.
bool tni_product_of_offer(const tni_offer *o, tni_product *p);

// Whether nothing that a product writes lies where it reads or writes something else, as its addresses
// are; but D may lie on the residual. One that fails this must not be prepared or run.
bool tni_product_is_unaliased(const tni_product *p);

// Whether D lies on the residual: each run changes what the next one adds.
bool tni_product_accumulates(const tni_product *p);

// Where products run. gpu names the chip and all else that a choice depends on, for the disk.
typedef struct {
    const tni_driver *cu;
    int               device;  // its number; current in the calling thread
    const char       *gpu;
    tni_custream      stream;
    tni_cuptr         workspace;  // of bytes, at a multiple of 256; used in the stream alone
    size_t            bytes;
    bool              capturing;  // the stream is being captured: nothing may be timed
    bool timing;  // choose by timing, or by what was timed before; else the library's first choice
    // Where a kernel of our own may be chosen for products that it takes (product_small.h): launches
    // one with D in out, as the library would. NULL: never.
    int (*launch_small)(void *session, const tni_product *p, char *out);
    // Whether that kernel need not be waited for. NULL: it need not.
    bool (*small_ready)(void *session);
    void *session;
} tni_product_env;

// Chooses how a product is done, so that running it chooses nothing: candidates are timed on the
// operands themselves, and D is written unless it lies on the residual. What was chosen is kept on
// disk. Kernels are loaded, so that what was prepared can be captured. TN_EARG: the library has no
// algorithm for it, or none with what follows.
tn_status tni_product_prepare(tni_product *p, const tni_product_env *at, tni_text *why);

// Launches a product by the library. One that was not prepared takes what is remembered, else the
// first choice.
tn_status tni_product_run(tni_product *p, const tni_product_env *at, tni_text *why);

// How a product is done, as far as it is known: by the library, which may choose at the first run, or for
// as long as the place's own kernel is being compiled; by
// the place's own kernel; by neither, since the library has no algorithm.
typedef enum {
    TNI_BY_LIBRARY,
    TNI_BY_LIBRARY_FOR_NOW,
    TNI_BY_SMALL,
    TNI_BY_NEITHER
} tni_product_method;
tni_product_method tni_product_method_of(tni_product *p, const tni_product_env *at);

// What this process did so far: products that it timed, and choices it found on disk.
void tni_product_counts(int64_t *timed, int64_t *found);
// Forgets what is in memory, as a new process would; nothing may be running. Products that are kept find
// new plans.
void tni_product_forget(void);

#endif
