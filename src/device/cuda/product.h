// Matrix products by cuBLASLt: how the library sees one, which algorithm it uses, and running it.
// The header of product_layout.c and product_plan.c.
//
// The library is column-major. A row-major matrix is the transpose of a column-major one, so that
// the product of row-major matrices is that of the operands in exchanged order, and nothing is ever
// copied.
#ifndef TNI_CUDA_PRODUCT_H
#define TNI_CUDA_PRODUCT_H

#include "device/cuda/blaslt.h"
#include "device/cuda/driver.h"
#include "device/device.h"

// A column-major matrix: element (i, j) is at i + j * ld, and ld is at least rows.
typedef struct {
    int64_t rows, cols, ld;
    int64_t batch_stride;  // elements to the next matrix of a batch; 0: the same matrix
    bool    transposed;    // read transposed; never true for D
} tni_matrix;

// What is computed from a product before it is rounded and stored, by kind alone, without
// addresses: D = activation(scale * A B + residual + bias). Without padding: it is compared as
// bytes.
typedef struct {
    int  activation;  // an op of the table: TNI_relu, TNI_gelu_tanh; TNI_leaf: none
    bool scaled;      // the product is multiplied by a number
    bool residual;    // a matrix of D's dtype and layout is added
    bool bias;        // one element of D's dtype for each of D's rows is added
    bool input;       // the input of the activation is stored too, as a matrix like the residual
} tni_product_epilogue;
_Static_assert(sizeof(tni_product_epilogue) == 8, "no padding");

// Products of one shape, D = A B with A (rows, depth) and B (depth, cols) after transposing, over a
// batch of equal strides, once for every index of the loops; and their epilogue. x[] are A, B and
// D. Plain data that owns nothing. Each run may set other addresses and another scale; those that
// the epilogue does not name are ignored. Invariant: all else stays as it was at the first run, so
// that the plan found then holds.
typedef struct {
    tn_dtype in, out;           // dtype of A and B; of D and the epilogue
    bool     waits;             // the caller waits for our own kernel to be compiled
    bool     lasting;           // A was computed before the plan that runs
    bool     tf32;              // f32 operands may be rounded to 10 bits of mantissa
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
    const char          *residual;  // may be D itself
    const char *packed;  // A as cuSPARSELt reads it, beside the plain one; NULL: only that is there
    char       *input;
    int64_t     newest;       // of what the epilogue reads, as in tni_call
    tni_call_search *search;  // as in tni_call
    // The plan found last, with the alignment bits of the addresses and the generation of plans
    // then.
    struct tni_ltplan *plan;
    uint32_t           aligned, generation;
} tni_product;

// Describes the products of a matmul. Returns false if the library cannot do them in place, so that
// a kernel of our own must: elements that are no floats, a matrix without a unit stride, rows that
// overlap, an empty inner axis, sizes beyond 32 bits, or batches so irregular that one kernel is
// better than that many library calls.
bool tni_product_of(const tni_call *c, tni_product *p);
// Sets the addresses of another call of the same shapes; the result is in out.
void tni_product_bind(tni_product *p, const tni_call *c, char *out);

// A product that is done in parts: the first, whose sizes suit the library, and what is left along
// one dimension each, of D's rows twice. offset: elements from the first of A, B and D to those of
// a part.
enum { TNI_PRODUCT_PARTS = 5 };
typedef struct {
    int         count;
    tni_product part[TNI_PRODUCT_PARTS];
    int64_t     offset[TNI_PRODUCT_PARTS][3];
} tni_product_parts;

// Divides a large product without an epilogue at the dimensions that are contiguous in one of its
// matrices and no multiple of 16 bytes. The library's fast algorithms load and store 16 bytes at a
// time and do not take such a product, however its rows are aligned. On an H200 the logits of GPT-2
// in bf16, 32,768 rows of 50257 columns 50264 elements apart, take 24.7 ms as one product, 4.24 ms
// as 50256 + 1 columns, and 3.46 ms as 50240 + 16 + 1: for columns of D in pieces of 128 bytes the
// library has faster algorithms.
void tni_product_divide(const tni_product *p, tni_product_parts *parts);
// Sets the addresses of all parts for a call of the same shapes.
void tni_product_bind_parts(tni_product_parts *parts, const tni_call *c);

// Adds an epilogue, whatever addresses it will have. The bias is as long as the result's last axis,
// without gaps. Returns false, with nothing changed, if the library cannot do it: anything but
// scale and residual in f64; a bias that is not along D's rows; an input that is not gelu's, in a
// batch, or in columns that do not begin at multiples of 8 elements.
bool tni_product_add_epilogue(tni_product *p, const tni_product_epilogue *epilogue);

// Translates what the planner found (kernel/call.h).
tni_product_epilogue tni_product_epilogue_of(const tni_epilogue *e);

// Describes a call and the kernel behind it, if the library can do both as one: nothing else reads
// the result of the call, and gelu is in half precision, which the library's approximation suffices
// for. Gelu's slope with the column sum (DGELU_BGRAD) is left to a kernel: on an H200 forward and
// backward of an MLP block of GPT-2 take 1,030 us with it and 801 without, and in bf16 its sums are
// off by more than bf16's rounding.
bool tni_product_of_offer(const tni_offer *o, tni_product *p);

// Returns whether nothing that a product writes is at an address that it also reads or writes as
// something else, except D at the residual. A product that fails this must not be prepared or run.
bool tni_product_is_unaliased(const tni_product *p);

// Returns whether D is also the residual, so that each run changes what the next one adds.
bool tni_product_accumulates(const tni_product *p);

// Where products run. gpu names the kind of GPU, for choices on disk.
typedef struct {
    const tni_driver *cu;
    int               device;  // its number; current in the calling thread
    const char       *gpu;
    tni_custream      stream;
    tni_cuptr         workspace;  // of `bytes`, at a multiple of 256; used in this stream only
    size_t            bytes;
    int               units;      // multiprocessors
    bool              capturing;  // the stream is being captured: nothing may be timed
    bool timing;  // choose by timing, or what was timed before; else the library's first proposal
    bool pruned;  // TN_METHOD: a packed matrix is read wherever it can be, whatever takes longer
    // Multiply-adds from which on a packed matrix is worth a try: see TNI_PRUNED_LEAST.
    double pruned_least;
    // Launches our own kernel for a product that it takes (product_small.h), with D in out, not
    // overlapping with the kernel ahead of it. NULL: our own kernel is never chosen.
    int (*launch_small)(void *session, const tni_product *p, char *out);
    // Returns whether that kernel is compiled. NULL: it is.
    bool (*small_ready)(void *session);
    void *session;
} tni_product_env;

// Chooses how a product is done, so that running it chooses nothing. Candidates are timed on the
// operands themselves, and D is written unless it is also the residual. The choice is kept on disk.
// Code is loaded, so that a prepared product can be captured. TN_EARG: the library has no algorithm
// for it, or none with its epilogue.
tn_status tni_product_prepare(tni_product *p, const tni_product_env *at, tni_text *why);

// Opens the library for a GPU and asks it for algorithms, which the first product would otherwise
// wait for.
void tni_product_open(const tni_product_env *at);

// What tuning found for a product, and in words what it is. False: it was not measured.
bool tni_product_tuned(const tni_product *p, const tni_product_env *at, tni_tuned *won,
                       tni_text *with);
// How often tuning has changed the algorithm of a product: a graph that was captured before
// launches another one, until the plan is captured again.
int64_t tni_product_changes(const tni_product *p);

// Launches a product by the library: by the algorithm that was chosen, else by the library's first
// proposal.
tn_status tni_product_run(tni_product *p, const tni_product_env *at, tni_text *why);

// How a product is done, as far as that is known: by the library; by the library until our own
// kernel is compiled and can be timed; by our own kernel; or by neither, since the library has no
// algorithm.
typedef enum {
    TNI_BY_LIBRARY,
    TNI_BY_LIBRARY_FOR_NOW,
    TNI_BY_SMALL,
    TNI_BY_NEITHER
} tni_product_method;
tni_product_method tni_product_method_of(tni_product *p, const tni_product_env *at);

// Counts of this process: products that it timed, and choices that it found on disk.
void tni_product_counts(int64_t *timed, int64_t *found);
// Forgets all plans, as a new process would, for tests; nothing may be running. Products find new
// plans.
void tni_product_forget(void);

#endif
