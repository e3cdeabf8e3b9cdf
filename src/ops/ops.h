// Recording: the functions that every op goes through. This is the one header of the folder for
// what record.c, autocast.c, memory_format.c, multi_output.c, reduce.c, write.c, create.c,
// product.c, attention.c, fallback.c, flops.c and custom.c offer to other files.
#ifndef TNI_OPS_OPS_H
#define TNI_OPS_OPS_H

#include "ops/op_table.h"
#include "ops/score.h"
#include "tensor/context.h"

// Additions and multiplications that computing a node takes.
double tni_node_flops(const tni_node *n);

// ---- recording by nodes: sources are checked and of fitting shape and dtype --------------------

// Whether ops compute with a dtype; false, reported, if it only stores numbers.
bool tni_want_math_dtype(tn_ctx *cx, const char *op, tn_dtype dt);
// Whether both are of i8 or u8, as products of bytes take them; otherwise an error.
bool tni_want_bytes(const char *op, tn_tensor *a, tn_tensor *b);

// Records an op over nodes and wraps it in a handle. attr may be NULL.
tn_tensor *tni_record(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int nsrc,
                      tni_node *const *src, const tni_attr *attr);

// The same for an op that the device may decline by its sizes: then its fallback is recorded.
tn_tensor *tni_record_or_fallback(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size,
                                  int nsrc, tni_node *const *src, const tni_attr *attr);

// Promises that all elements of y, integers, are in 0 .. count-1 in every run of any plan. A gather
// or scatter of at least count elements by y then needs no check, so it cannot fail. NULL is
// allowed.
void tni_set_below(tn_tensor *y, int64_t count);
// Whether computing n can fail: it may find an index out of range, or it is a user's function.
static inline bool tni_node_may_fail(const tni_node *n)
{
    tni_failure how = tni_op_table[n->op].fails;
    if (how != TNI_FAILS_INDEX) return how != 0;
    return !n->src[1]->below || n->src[1]->below > n->src[0]->size[n->attr.axis.axis];
}

// ---- recording by handles ----------------------------------------------------------------------

// Maps with broadcasting and promotion; the op's row gives the name in messages.
tn_tensor *tni_unary(int op, tn_tensor *x);
tn_tensor *tni_binary(int op, tn_tensor *a, tn_tensor *b);
// The same with a number on the right, or (swap) on the left.
tn_tensor *tni_binary_s(int op, const char *name, tn_tensor *x, tni_num v, bool swap);
// Reduces the axes in the mask; keep leaves them with size 1.
tn_tensor *tni_reduce(int op, const char *name, tn_tensor *x, uint32_t axes, bool keep);
// The largest over axes, whose gradient goes to the first of equal elements in row-major order; of
// NaN to the last. padded: x shows windows of a padded tensor, and padding gets no gradient. NULL
// in, NULL out.
tn_tensor *tni_first_max(const char *name, tn_tensor *x, uint32_t axes, bool keep, bool padded);
// The mask of one axis, or of n axes (n 0: all). False, reported, on a bad one.
bool tni_axis_mask(tn_tensor *x, const char *op, int axis, uint32_t *mask);
bool tni_axes_mask(tn_tensor *x, const char *op, int n, const int *axes, uint32_t *mask);
// The number of elements that a reduction folds into one.
int64_t tni_reduced_count(tn_tensor *x, uint32_t axes);
// x's value in a new store, in the order of axes that x has in memory: the same node if it has no
// gaps, else a copy. tni_share_permuted: in a given order.
tn_tensor *tni_share(tn_tensor *x, const char *op);
tn_tensor *tni_share_permuted(tn_tensor *x, const char *op, const int *order);
// Whether x is stored in the order of tni_channels_last_order. If one channel or one place makes
// both orders the same memory, the strides of the single axes decide.
bool tni_is_channels_last(const tn_tensor *x);
// The view of x with axis order[i] in place i. A result recorded from it is shown in x's order
// again by tni_show_permuted.
tn_tensor *tni_permuted_view(tn_tensor *x, const int *order);
// The node of that view.
tni_node *tni_resolve_permuted(tn_tensor *x, const int *order, const char *op);
// x cast and expanded to a shape, for values that are written or selected. NULL, reported, if it
// does not broadcast.
tn_tensor *tni_cast_and_expand(tn_tensor *x, const char *op, tn_dtype dt, int rank,
                               const int64_t *size);
// Writes a node of x's shape and dtype to all of x, which is not a view, without the checks of a
// user's write. False, reported, on failure.
bool tni_assign_node(tn_tensor *x, tni_node *value);
// The argument of tni_change_view, a tni_view_fn that does up to three steps in this order:
// expands axes to `size`, reshapes to `to`, permutes so that axis order[i] comes to place i. NULL
// leaves a part out.
typedef struct {
    int            rank;
    const int64_t *size;
    int            to_rank;
    const int64_t *to;
    const int     *order;
} tni_view_change;
bool tni_change_view(tni_view *v, const void *how);
// A view of x with expanded axes, or x itself; NULL, not reported, if it does not broadcast.
tn_tensor *tni_expand_to(tn_tensor *x, int rank, const int64_t *size);
// Whether a tensor of that dtype and shape can exist in cx; else reported by the op's name.
bool tni_can_make(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size);
// A number given as a double: whole if that is an integer; i is its integer part, for u64 the bits,
// 0 if neither i64 nor u64 holds it. tni_num_i64: one given as an integer.
tni_num tni_num_of(double v);
tni_num tni_num_i64(int64_t v);
// Whether it is an integer that i64 holds.
bool tni_num_is_i64(tni_num v);
// The number with its integer as dt would have it, if the double says more than i holds.
tni_num tni_num_as(tn_dtype dt, tni_num v);
// A plain number (weak) of dtype dt, 0-d: its value is an argument of each run, not part of the
// plan.
tn_tensor *tni_number(tn_ctx *cx, tn_dtype dt, tni_num v);
// Elements of x whose random number u is below p become 0, the others are scaled: see tn_dropout.
tn_tensor *tni_drop(tn_tensor *x, tn_tensor *u, double p);
// Reserves counters for `count` random numbers of dt; returns the first.
uint64_t tni_random_reserve(tn_ctx *cx, tn_dtype dt, int64_t count);
// The same for a tensor of items, `rows` along its first axis, of which this rank has a part
// (tn_random_shard): numbers for all ranks' items are reserved, and the result is the counter of
// this rank's first one. That one is number *shift of its counter.
uint64_t tni_random_reserve_items(tn_ctx *cx, tn_dtype dt, int64_t count, int64_t rows,
                                  int64_t *shift);
// Uniform numbers for such a tensor.
tn_tensor *tni_rand_items(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size);

// ---- autocast ----------------------------------------------------------------------------------

// The dtype in which autocast computes what would be computed in dt.
tn_dtype tni_autocast_dtype(const tn_ctx *cx, tni_autocast how, tn_dtype dt);
// Casts the floats among n operands (NULL: none) as autocast has it, by the dtype that they promote
// to; x is written. False, reported, on failure.
bool tni_autocast_args(tn_ctx *cx, tni_autocast how, int n, tn_tensor **x);
// The same for one; NULL in, NULL out.
tn_tensor *tni_autocast_arg(tn_tensor *x, tni_autocast how);

// ---- ops with several outputs ------------------------------------------------------------------

// Records an op over nodes and wraps each of its outputs in a handle; y[0] is the primary's own
// value. False, reported, on failure; the handles made by then are in y.
bool tni_record_outputs(tn_ctx *cx, int op, int nout, const tn_array *out, int nsrc,
                        tni_node *const *src, const tni_attr *attr, tn_tensor **y);
// The same over handles, whose elements the device gets row-major; NULL among them: false.
bool tni_record_packed(int op, const tni_attr *attr, int nin, tn_tensor *const *x, int nout,
                       const tn_array *out, tn_tensor **y);
// Output index (from 1) of a primary, for the rule of its gradient. If the primary was computed
// without that output, it is recorded once more: *primary, a reference of the caller's, is then the
// new one.
tn_tensor *tni_output(tn_ctx *cx, tni_node **primary, int64_t index, const tn_array *out);
// Gives attr bytes of its own, equal to those that it has. False, reported, when memory is out.
bool tni_custom_copy(tn_ctx *cx, tni_attr *attr);
// Records a node of n's op, shape and attributes over other sources, which for an output are its
// new primary. The caller has one reference. NULL, reported, when memory is out.
tni_node *tni_record_copy(tn_ctx *cx, const tni_node *n, tni_node *const *src);

// ---- fallbacks of LIBRARY ops, out of other rows -----------------------------------------------

_Static_assert(TNI_OPS <= 8 * sizeof(((tn_ctx *)0)->lacks), "a bit for every op");

// Marks a LIBRARY op that the context's device does not run; asks for the mark.
static inline void tni_mark_lacking(tn_ctx *cx, int op)
{
    cx->lacks[op / 64] |= UINT64_C(1) << op % 64;
}

static inline bool tni_lacks(const tn_ctx *cx, int op)
{
    return cx->lacks[op / 64] >> op % 64 & 1;
}

// Asks the device whether it runs a node of a LIBRARY op that it does not lack. If not, the reason
// is kept for tn_explain.
bool tni_declines(tn_ctx *cx, const tni_node *n);

// Records other ops in the place of one that the device lacks, with the same values and gradients,
// for the first nout outputs. False, reported, on failure.
bool tni_fallback(tn_ctx *cx, int op, int nout, const tn_array *out, int nsrc, tni_node *const *src,
                  const tni_attr *attr, tn_tensor **y);

// ---- products and attention --------------------------------------------------------------------

// The convolution with its options filled in, without bias; and its two gradients.
tn_tensor *tni_conv(tn_tensor *x, tn_tensor *w, const tni_attr *attr);
tn_tensor *tni_conv_dgrad(tn_tensor *gy, tn_tensor *w, const int64_t *x_size, const tni_attr *attr);
tn_tensor *tni_conv_wgrad(tn_tensor *gy, tn_tensor *x, const int64_t *w_size, const tni_attr *attr);

// What attention is of: q (..., H, T, D), k (..., Hk, S, D), v (..., Hk, S, E); the mask, or what
// the score program reads, and the lengths broadcast to (..., H, T, S). NULL: not there.
typedef struct {
    tn_tensor      *q, *k, *v, *extra[TNI_SCORE_SOURCES], *lengths;
    const tni_attr *attr;
} tni_attention_args;

// The same from the sources of a node, whose heads are inside.
tni_attention_args tni_attention_sources(const tni_attr *attr, tn_tensor *const *x);
// Attention out of other ops: the weights (..., H, T, S); and x, of their shape, with dropped
// elements 0 and the others scaled. NULL in, NULL out.
tn_tensor *tni_attention_weights(const tni_attention_args *a);
tn_tensor *tni_attention_drop(const tni_attr *attr, tn_tensor *x);
// x (..., Hk, S, D) as (..., H, S, D), each head H / Hk times; one head stays one.
tn_tensor *tni_repeat_heads(tn_tensor *x, int64_t H);
// x summed over the axes along which `like`, of its rank, has size 1.
tn_tensor *tni_sum_to(tn_tensor *x, const tn_tensor *like);

// The batch norm of x by running statistics as the convolution that x is, with another weight and
// bias (fold_norm.c); eps is filled in. NULL, not reported, if x is something else.
tn_tensor *tni_fold_norm(tn_tensor *x, tn_tensor *mean, tn_tensor *var, tn_tensor *gain,
                         tn_tensor *shift, double eps);
// Attention as one op over q, k and v of four axes and extras of the attributes' number, (B, H, T,
// S) with sizes of 1 where they broadcast. NULL, not reported, if the device declines it.
tn_tensor *tni_attention_record(tn_tensor *const x[3], tn_tensor *const *extra,
                                const tni_attr *attr);
// The product of a and b as attention, if that is what it is the end of (recognize.c), else NULL.
// The arguments are checked and of one dtype.
tn_tensor *tni_recognize_attention(tn_tensor *a, tn_tensor *b);
// Records the first `count` instructions of a score program over the scores raw (B, H, T, S) and
// its sources: value[i] is that of instruction i. False, reported, on failure.
bool tni_score_record(tn_ctx *cx, const tni_score_op *op, int count, tn_tensor *raw,
                      tn_tensor *const *extra, tn_tensor **value);
// Frees the programs that a context keeps.
void tni_scores_close(tn_ctx *cx);

enum { TNI_ATTENTION_GRADS = 3 + TNI_SCORE_SOURCES };
// The gradients of queries, keys and values of a node of attention, and of the first `extras` of
// what it reads beside the scores, for the gradient g of its result. False, reported, on failure.
bool tni_attention_grad(tn_ctx *cx, tni_node *attention, tn_tensor *g, int extras,
                        tn_tensor *gx[TNI_ATTENTION_GRADS]);

#endif
