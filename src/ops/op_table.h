// The op table as C sees it: the enum, and one record of facts per op. This header knows nothing of
// nodes and recording, so that kernels and devices can know the table alone.
#ifndef TNI_OPS_OP_TABLE_H
#define TNI_OPS_OP_TABLE_H

#include "tensor/attr.h"

typedef enum {
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_##name,
#include "ops/ops.def"
#undef OP
    TNI_OPS
} tni_op;

typedef enum {
    TNI_UNARY,
    TNI_BINARY,
    TNI_TERNARY,
    TNI_CAST,
    TNI_REDUCE,
    TNI_SCAN,
    TNI_SOURCE,
    TNI_MOVE,
    TNI_EFFECT,
    TNI_LIBRARY,
    TNI_CLASSES,
    TNI_INNER = TNI_UNARY
} tni_class;

// For tables made of the LIBRARY rows alone: expands to nothing for the other classes.
#define TNI_IF_LIBRARY(...) __VA_ARGS__
#define TNI_IF_INNER(...)
#define TNI_IF_UNARY(...)
#define TNI_IF_BINARY(...)
#define TNI_IF_TERNARY(...)
#define TNI_IF_CAST(...)
#define TNI_IF_REDUCE(...)
#define TNI_IF_SCAN(...)
#define TNI_IF_SOURCE(...)
#define TNI_IF_MOVE(...)
#define TNI_IF_EFFECT(...)

// Which dtypes an op takes, and which it returns. Inputs are first promoted to one dtype.
typedef enum {
    TNI_ANY,      // all, the same
    TNI_PROMOTE,  // all, the promoted one
    TNI_NUMBER,   // all but bool, the promoted one
    TNI_REAL,     // all but bool; integers are returned unchanged
    TNI_FLOAT,    // integers and bool become f32
    TNI_FULL,     // the same, but kernels have it for f32 and f64 alone: in 16 bits it is composed
    TNI_INTEGER,  // integers
    TNI_BITS,     // integers and bool
    TNI_TO_BOOL,  // all, bool
    TNI_TO_I64,   // all, i64
    TNI_ACCUM,    // all; integers and bool become i64
    TNI_SELECT,   // bool, then all: the promoted one of those
    TNI_INDEX,    // all, and an index
    TNI_WIDE,     // i64
    TNI_BYTES     // i8 and u8, each input its own; i32
} tni_dtype_rule;

// How the planner computes an op: which kernels it can be part of, and what plan/lower.c writes for
// it.
typedef enum {
    TNI_FUSE_ALONE,    // a call of its own
    TNI_FUSE_VIEW,     // computes nothing: only strides
    TNI_FUSE_OUTPUT,   // computed by the call of its source
    TNI_FUSE_NUMBER,   // one number everywhere: an argument, never read from memory
    TNI_FUSE_IOTA,     // a function of the element's index
    TNI_FUSE_RANDOM,   // the same, random
    TNI_FUSE_MAP,      // element by element
    TNI_FUSE_COPY,     // an element of its source
    TNI_FUSE_GATHER,   // the source's element at an index
    TNI_FUSE_SCATTER,  // fused if there is one index for each line
    TNI_FUSE_PAD,      // an element of its source, or the fill outside of it
    TNI_FUSE_CONCAT,   // an element of one of its sources, if these are few
    TNI_FUSE_FOLD,     // many elements become one
    TNI_FUSE_ASSIGN    // the value of its source, shared if that is row-major
} tni_fuse_kind;

// How an op can fail on its values, when it runs.
typedef enum {
    TNI_FAILS_NEVER,
    TNI_FAILS_INDEX,  // source 1 is an index along attr.axis, which may be out of range
    TNI_FAILS_USER    // in a user's function
} tni_failure;

// How rounding errors pass through an op, and which it adds: see tni_error_bound.
typedef enum {
    TNI_ERROR_MOVES,     // elements are copied: errors move with them
    TNI_ERROR_EXACT,     // the result of exact inputs is exact
    TNI_ERROR_ROUNDS,    // a map or source that rounds
    TNI_ERROR_COMPARES,  // may go either way if its inputs are close
    TNI_ERROR_ADDS,      // sums of many terms, in any order
    TNI_ERROR_ATTENDS,
    TNI_ERROR_UNKNOWN  // no bound once an input has an error
} tni_error_kind;

// How an op's arithmetic is counted: see tni_node_flops.
typedef enum {
    TNI_FLOPS_NONE,
    TNI_FLOPS_EACH,  // its cost, for each element of the result
    TNI_FLOPS_FOLD,  // one for each element of the source
    TNI_FLOPS_MATMUL,
    TNI_FLOPS_CONV,
    TNI_FLOPS_ATTENTION,
    TNI_FLOPS_SPARSE
} tni_flops;

// The precision that autocast computes an op in (ops/autocast.c), after PyTorch's lists.
typedef enum {
    TNI_AUTOCAST_LOW,    // 16 bits: products, which gain most and add up in f32 anyway
    TNI_AUTOCAST_KEEP,   // the precision of its inputs
    TNI_AUTOCAST_WIDE,   // f32: long sums, and what overflows or loses all digits in 16 bits
    TNI_AUTOCAST_WIDEST  // the widest of its inputs, where promotion alone would take the first
} tni_autocast;

// One row of ops.def as data: the expression as text, and whether there is a gradient (its code is
// in grad/rules.c).
typedef struct {
    const char *name;
    tni_class class;
    tni_dtype_rule rule;
    const char    *expr;  // "" if the op is not an expression
    int            cost;
    tni_attr_kind  attr;
    tni_fuse_kind  fuse;
    tni_failure    fails;
    tni_error_kind error;
    tni_flops      flops;
    tni_autocast   autocast;
    int            outputs;  // 0: see tni_outputs_of
    bool           has_grad;
    const char    *doc;
} tni_op_facts;

extern const tni_op_facts tni_op_table[TNI_OPS];

static inline bool tni_is_map(int op)
{
    return tni_op_table[op].class <= TNI_CAST;
}

// Whether an op is a convolution, not one of its gradients.
static inline bool tni_is_conv(int op)
{
    return op == TNI_conv || op == TNI_conv_i32;
}

// Whether an op is a product of matrices.
static inline bool tni_is_matmul(int op)
{
    return op == TNI_matmul || op == TNI_matmul_i32;
}

// One number everywhere.
static inline bool tni_is_number(int op)
{
    return tni_op_table[op].fuse == TNI_FUSE_NUMBER;
}

// The dtype that inputs are computed in and the dtype of the result, by an op's rule, for operands
// of a promoted dtype. False if the op does not take it.
bool tni_dtype_rule_apply(tni_dtype_rule rule, tn_dtype promoted, tn_dtype *in, tn_dtype *out);

// A map of single numbers, in double, int64 or uint64, by the host's functions (map_value.c). bits:
// the width in which integers are shifted.
double   tni_map_f(int op, double a, double b, double c);
int64_t  tni_map_i(int op, int64_t a, int64_t b, int64_t c, int bits);
uint64_t tni_map_u(int op, uint64_t a, uint64_t b, uint64_t c, int bits);

// The axes of (N, C, places) of a rank from 3 to 5 in the order in which tn_channels_last stores
// them: (0, 2, 3, 1) for 4.
const int *tni_channels_last_order(int rank);
// Of attr.conv.channels_last: the weights are stored so, too.
enum { TNI_WEIGHTS_LAST = 2 };

// What a row `linalg` computes, of matrices (..., m, n) with leading sizes equal. Outputs after the
// first that a program does not ask for are not computed. A matrix that has no such factorization
// gives NaN, and a number above 0 in `info`, i32 (...).
//
//   cholesky    a -> l of a = l l', info: the order of the first minor that is not positive
//   lu          a -> l below the diagonal and u; i64 (..., n): the rows of a in the order of l u; info: the
//               first pivot that is 0, counted from 1
//   triangular  a, b (..., n, k) -> x of a x = b, by one triangle of a
//   lu_solve    a, b, and lu's first two outputs -> x of a x = b; a itself is for the gradient
//   qr          a, m >= n -> r, q
//   eigh        a, by its lower triangle -> eigenvalues, rising; eigenvectors as columns
//   svd         a -> singular values, falling; u; v'
//   det, log_det, pinv  the value, which other ops computed, and what it is of: the row gives it a gradient
typedef enum {
    TNI_LINALG_CHOLESKY,
    TNI_LINALG_LU,
    TNI_LINALG_TRIANGULAR,
    TNI_LINALG_LU_SOLVE,
    TNI_LINALG_QR,
    TNI_LINALG_EIGH,
    TNI_LINALG_SVD,
    TNI_LINALG_DET,
    TNI_LINALG_LOG_DET,
    TNI_LINALG_PINV
} tni_linalg_kind;

// Where the elements of a sparse matrix (rows, cols) are: one vector of i32, the last source of
// spmm and sddmm. The elements are kept by rows, with rising columns in each; no two have one
// place. The vector has, each part from a multiple of four on so that it can be loaded in fours,
//
//   offsets     rows + 1   row r has the elements offsets[r] .. offsets[r + 1] - 1
//   columns     count      the column of each element
//   rows        count      the row of each element
//   t_offsets   cols + 1   the same for the transposed matrix, whose elements are in another order:
//   t_columns   count      the row of each element, by columns
//   order       count      which element it is
//
// and `length` numbers in all. With the transposed part a product with the transposed matrix, as in
// the gradient, also adds up each row of its result by itself, in a fixed order.
typedef struct {
    int64_t offsets, columns, rows, t_offsets, t_columns, order, length;
} tni_pattern;

static inline tni_pattern tni_pattern_of(int64_t rows, int64_t cols, int64_t count)
{
    int64_t     n = (count + 3) / 4 * 4, r = (rows + 4) / 4 * 4, c = (cols + 4) / 4 * 4;
    tni_pattern p = { .columns = r, .rows = r + n, .t_offsets = r + 2 * n };
    p.t_columns   = p.t_offsets + c;
    p.order       = p.t_columns + n;
    p.length      = p.order + n;
    return p;
}

// What a row `fft` computes, of pairs (..., n, 2) or of real numbers (..., n), over 1 to 3 of the
// last axes, times a scale. The result of C2R says whether n is even; parts that the spectrum of
// real numbers has not, imaginary ones of its first and, for an even n, last element, do not count.
//
//   c2c   (..., n, 2) -> (..., n, 2), forward or inverse
//   r2c   (..., n) -> (..., n / 2 + 1, 2), forward
//   c2r   (..., n / 2 + 1, 2) -> (..., n), inverse
typedef enum { TNI_FFT_C2C, TNI_FFT_R2C, TNI_FFT_C2R } tni_fft_kind;

enum { TNI_MOST_OUTPUTS = 16 };  // of a user's op

// How many outputs the body of a loop has.
int tni_loop_outputs(const struct tni_attr_loop *a);

// How many outputs an op has.
static inline int tni_outputs_of(int op, const tni_attr *attr)
{
    int n = tni_op_table[op].outputs;
    if (!n) n = op == TNI_loop ? tni_loop_outputs(&attr->loop) : attr->custom.def->nout;
    return n > 0 ? n : 1;
}

// The outputs of a user's op as its shape callback gave them when it was recorded.
const tn_array *tni_custom_outputs(const tni_attr *attr);
// Calls the compute function of a user's op over host memory. An error, with a sentence in *why, if
// there is none or it fails.
tn_status tni_custom_compute(const tni_attr *attr, const tn_array *in, tn_array *out,
                             const char *device, tni_text *why);

#endif
