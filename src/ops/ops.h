// The op table as C sees it: the enum, one record of facts per op, and the record functions that
// every op goes through.
#ifndef TNI_OPS_OPS_H
#define TNI_OPS_OPS_H

#include "tensor/context.h"

typedef enum {
#define OP(name, class, dtypes, expr, cost, grad, doc) TNI_##name,
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
    TNI_LIBRARY
} tni_class;

// Which dtypes an op takes, and what it gives. Inputs are first promoted to one dtype.
typedef enum {
    TNI_ANY,      // all, the same
    TNI_PROMOTE,  // all, the promoted one
    TNI_NUMBER,   // all but bool, the promoted one
    TNI_REAL,     // all but bool; integers are given back as they are
    TNI_FLOAT,    // integers and bool become f32
    TNI_INTEGER,  // integers
    TNI_BITS,     // integers and bool
    TNI_TO_BOOL,  // all, bool
    TNI_TO_I64,   // all, i64
    TNI_ACCUM,    // all; integers and bool become i64
    TNI_SELECT,   // bool, then all: the promoted one of those
    TNI_INDEX,    // all, and an index
    TNI_WIDE      // i64
} tni_rule;

// One row of ops.def as data, without what is code: the expression as text, and whether there is a
// gradient.
typedef struct {
    const char *name;
    tni_class class;
    tni_rule    rule;
    const char *expr;  // "" where the op is not an expression
    int         cost;
    bool        has_grad;
    const char *doc;
} tni_op_facts;

extern const tni_op_facts tni_op_table[TNI_OPS];

static inline bool tni_is_map(int op)
{
    return tni_op_table[op].class <= TNI_CAST;
}

// Whether running the op can fail on its values: an index out of range, a user's op.
static inline bool tni_op_fallible(int op)
{
    return op == TNI_gather || op == TNI_scatter || op == TNI_scatter_add || op == TNI_custom;
}

// The dtype inputs are computed in and the dtype of the result, by an op's rule for operands of a
// promoted dtype. False if the op does not take it.
bool tni_rule_apply(tni_rule rule, tn_dtype promoted, tn_dtype *in, tn_dtype *out);

// ---- recording by nodes: sources are checked and of fitting shape and dtype ---------------------

// Records an op over nodes and wraps it in a handle. attr may be NULL.
tn_tensor *tni_record(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int nsrc,
                      tni_node *const *src, const tni_attr *attr);

// ---- recording by handles ----------------------------------------------------------------------

// Maps with broadcasting and promotion, by name of op in messages.
tn_tensor *tni_unary(int op, tn_tensor *x);
tn_tensor *tni_binary(int op, tn_tensor *a, tn_tensor *b);
// The same with a number on the right, or (swap) on the left.
tn_tensor *tni_binary_s(int op, const char *name, tn_tensor *x, tni_num v, bool swap);
// Reduces the axes in the mask; keep leaves them with size 1.
tn_tensor *tni_reduce(int op, const char *name, tn_tensor *x, uint32_t axes, bool keep);
// The largest over axes, whose gradient goes to the first of equal elements, row-major; of NaN to the
// last. Padded: x shows windows of a padded tensor, and what was put there gets none. NULL in, NULL
// out.
tn_tensor *tni_first_max(const char *name, tn_tensor *x, uint32_t axes, bool keep, bool padded);
// The mask of one axis, of n axes (none: all). False, reported, on a bad one.
bool tni_axis_mask(tn_tensor *x, const char *op, int axis, uint32_t *mask);
bool tni_axes_mask(tn_tensor *x, const char *op, int n, const int *axes, uint32_t *mask);
// Number of elements that a reduction folds into one.
int64_t tni_reduced_count(tn_tensor *x, uint32_t axes);
// x's value in a new store, lying in the order of axes that x's does: the same node where there are
// no gaps, else a copy. And lying in an order that is given.
tn_tensor *tni_share(tn_tensor *x, const char *op);
tn_tensor *tni_share_ordered(tn_tensor *x, const char *op, const int *order);
// (0, 2, 3, 1): the axes of (N, C, H, W) as tn_channels_last lays them; and whether x lies so. Where
// one channel or one place leaves both orders the same, the strides of the single axes tell.
extern const int tni_channels_last_order[4];
bool             tni_is_channels_last(const tn_tensor *x);
// The view of x with axis order[i] in place i; what is made from it is brought back by tni_lay.
tn_tensor *tni_ordered(tn_tensor *x, const int *order);
// The node of that view.
tni_node *tni_resolve_ordered(tn_tensor *x, const int *order, const char *op);
// x cast and expanded to a shape; for values that are written or selected.
tn_tensor *tni_fit(tn_tensor *x, const char *op, tn_dtype dt, int rank, const int64_t *size);
// Writes a node of x's shape and dtype to all of x, which is no view, without the checks of a user's
// write. False, reported, on failure.
bool tni_assign_node(tn_tensor *x, tni_node *value);
// A step of views (tni_view_step) that stretches axes to size, gives the result the shape to, and puts axis
// order[i] in place i; NULL leaves a part out.
typedef struct {
    int            rank;
    const int64_t *size;
    int            to_rank;
    const int64_t *to;
    const int     *order;
} tni_remade;
bool tni_remake(tni_view *v, const void *how);
// A view of x with stretched axes, or x itself; no message of its own on failure.
tn_tensor *tni_expand_to(tn_tensor *x, int rank, const int64_t *size);
// Whether a tensor of that dtype and shape can be had in cx; reports it by the op's name.
bool tni_can_make(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size);
// A number given as a double: whole if that is an integer which i64 holds, else i is it cut, or 0. And
// one given as an integer.
tni_num tni_num_of(double v);
tni_num tni_num_i64(int64_t v);
// A plain number (weak) of dtype dt, 0-d: its value is a run-time argument.
tn_tensor *tni_number(tn_ctx *cx, tn_dtype dt, tni_num v);
// Takes the counters for so many random numbers of dt; returns the first.
uint64_t tni_take_random(tn_ctx *cx, tn_dtype dt, int64_t count);

enum { TNI_MOST_OUTPUTS = 16 };  // of a user's op
// Output i of a user's op of several.
tn_tensor *tni_custom_output(tn_ctx *cx, tni_node *custom, int i);
// The outputs as the op's shape callback gave them when it was recorded.
const tn_array *tni_custom_outputs(const tni_attr *attr);
// Where output k of several begins among their bytes: eight an element, each at a multiple of 64. For
// k past the last, the bytes of all; -1 where they overflow.
int64_t tni_custom_start(const tn_array *out, int k);
// Calls the compute function of an op over memory of the host; an error, with a sentence, if there is
// none or it fails.
tn_status tni_custom_compute(const tni_attr *attr, const tn_array *in, tn_array *out,
                             const char *device, tni_text *why);

// ---- fallbacks of LIBRARY ops, out of other rows -----------------------------------------------

tn_tensor *tni_matmul_fallback(tn_tensor *a, tn_tensor *b);
tn_tensor *tni_conv_fallback(tn_tensor *x, tn_tensor *w, tn_conv_opts o);
// The convolution with its options filled in, without bias; also its two gradients.
tn_tensor *tni_conv(tn_tensor *x, tn_tensor *w, const tni_attr *attr);
tn_tensor *tni_conv_dgrad(tn_tensor *gy, tn_tensor *w, const int64_t *x_size, const tni_attr *attr);
tn_tensor *tni_conv_wgrad(tn_tensor *gy, tn_tensor *x, const int64_t *w_size, const tni_attr *attr);

// Attention's fallback in parts: the weights of k (..., S, D) for q (..., T, D), (..., T, S).
tn_tensor *tni_attention_weights(tn_tensor *q, tn_tensor *k, tn_tensor *mask, double scale,
                                 bool causal);
// The gradients of a node of attention for the gradient g of its value, one after the other.
tn_tensor *tni_attention_grad(tn_ctx *cx, tni_node *attention, tn_tensor *g);

#endif
