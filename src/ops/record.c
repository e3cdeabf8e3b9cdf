// The op table in memory, and recording by it.
//
// The path of one elementwise op, tn_add(a, b), through this file:
//   tni_binary           checks the arguments: not NULL, alive, one context
//   record_promoted      the steps of every map, in this order:
//     broadcast_shape      the shape that the operands broadcast to, or TN_ESHAPE
//     tni_promote_all      one dtype for all operands, by NumPy's and PyTorch's rules
//     tni_autocast_dtype   f32 instead of 16 bits, if autocast is on and the op's row says so
//     tni_dtype_rule_apply the dtype computed in and that of the result, by the op's row
//     find_result_order    the order of axes in which the result is stored
//     prepare_source       each operand cast, expanded and resolved to a node
//   tni_record           one node (tensor/node.c) and one handle for it (tni_wrap)
// Nothing is computed here. Reductions, movement and products have their own checks, and end in
// tni_record as well.
#include "ops/complex.h"

#include <math.h>
#include <string.h>

#define GRAD_NONE       false
#define GRAD_BY(f)      true
#define GRAD1(...)      true
#define GRAD2(...)      true
#define GRAD3(...)      true
#define MATH(f, a)      m_##f(a)
#define MATH2(f, a, b)  m_##f(a, b)
#define TEXT_UNARY(e)   #e
#define TEXT_BINARY(e)  #e
#define TEXT_TERNARY(e) #e
#define TEXT_CAST(e)    #e
#define TEXT_REDUCE(e)  #e
#define TEXT_SCAN(e)    #e
#define TEXT_SOURCE(e)  ""
#define TEXT_MOVE(e)    ""
#define TEXT_EFFECT(e)  ""
#define TEXT_LIBRARY(e) ""
#define TEXT_INNER(e)   #e

// ops.def as data. TEXT_class keeps the expression as text for rows that kernels are written from;
// GRAD_x says only whether there is a gradient, whose code is in grad/rules.c.
const tni_op_facts tni_op_table[TNI_OPS] = {
#define FACTS(attr, fuse, fails, error, flops, autocast, outputs)                              \
    TNI_ATTR_##attr, TNI_FUSE_##fuse, TNI_FAILS_##fails, TNI_ERROR_##error, TNI_FLOPS_##flops, \
        TNI_AUTOCAST_##autocast, outputs
#define MAP(error, autocast) FACTS(none, MAP, NEVER, error, EACH, autocast, 1)
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) \
    { #name, TNI_##class, TNI_##dtypes, TEXT_##class(expr), cost, facts, grad, doc },
#include "ops/ops.def"
#undef OP
};

_Static_assert((int)TNI_leaf == (int)TNI_LEAF_OP, "ops.def begins with leaf");
_Static_assert((int)TNI_view == (int)TNI_VIEW_OP, "and then view");
_Static_assert((int)TNI_output == (int)TNI_OUTPUT_OP, "and then output");

// The rules are explained at tni_dtype_rule.
bool tni_dtype_rule_apply(tni_dtype_rule rule, tn_dtype promoted, tn_dtype *in, tn_dtype *out)
{
    bool real = tni_is_float(promoted), boolean = promoted == TN_BOOL;
    *in = *out = promoted;
    switch (rule) {
    case TNI_NUMBER:
    case TNI_REAL: return !boolean;
    case TNI_FLOAT:
        if (!real) *in = *out = TN_F32;
        return true;
    case TNI_FULL:
        if (!real) *in = *out = TN_F32;
        return !tni_is_rounded(*in);
    case TNI_INTEGER: return !real && !boolean;
    case TNI_BITS: return !real;
    case TNI_TO_BOOL: *out = TN_BOOL; return true;
    case TNI_TO_I64: *out = TN_I64; return true;
    case TNI_ACCUM:
        if (!real) *out = tni_total_dtype(promoted);
        return true;
    case TNI_WIDE: *in = *out = TN_I64; return true;
    case TNI_BYTES: *out = TN_I32; return promoted == TN_I8 || promoted == TN_U8;
    default: return true;
    }
}

// The 8-bit floats only store numbers: arithmetic in them would lose too many digits.
bool tni_want_math_dtype(tn_ctx *cx, const char *op, tn_dtype dt)
{
    if (tni_is_storage_only(dt))
        tni_fail(cx, TN_EDTYPE, "%s: %s only stores numbers: cast it to another dtype first", op,
                 tn_dtype_name(dt));
    return !tni_is_storage_only(dt);
}

// A LIBRARY op that the device does not run is recorded as other ops, so planner and devices never
// meet it.
static tn_tensor *record_fallback(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size,
                                  int nsrc, tni_node *const *src, const tni_attr *attr)
{
    tn_tensor *y   = NULL;
    tn_array   out = { .dtype = dt, .rank = rank };
    memcpy(out.size, size, (size_t)rank * sizeof *size);
    tni_fallback(cx, op, 1, &out, nsrc, src, attr, &y);
    return y;
}

// The one place where an op becomes a node; attr is copied.
tn_tensor *tni_record(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int nsrc,
                      tni_node *const *src, const tni_attr *attr)
{
    if (tni_lacks(cx, op)) return record_fallback(cx, op, dt, rank, size, nsrc, src, attr);
    tni_node *n = tni_node_new(cx, op, dt, rank, size, nsrc, src);
    if (n && attr) n->attr = *attr;
    if (n) n->constant = tni_is_number(op);
    return tni_wrap(cx, n);
}

void tni_set_below(tn_tensor *y, int64_t count)
{
    if (y && count > 0 && count <= UINT32_MAX) y->store->node->below = (uint32_t)count;
}

// ---- operands ----------------------------------------------------------------------------------

// How much an operand's dtype counts in a promotion: see tni_operand.
static tni_operand operand_of(const tn_tensor *x)
{
    const tni_node *n = x->store->node;
    return (tni_operand){ .dtype    = (tn_dtype)n->dtype,
                          .strength = n->weak           ? 0
                                      : tni_rank(x) > 0 ? 2
                                                        : 1 };
}

// The integer part saturates to 0 outside of u64, where no integer dtype holds the number anyway. A
// double of 2^53 and more is always whole.
tni_num tni_num_of(double v)
{
    double   a = fabs(v);
    uint64_t u = a < 0x1p64 ? (uint64_t)a : 0;
    return (tni_num){ v, (int64_t)(v < 0 ? 0 - u : u), a < 0x1p64 ? (double)u == a : a < INFINITY };
}

tni_num tni_num_i64(int64_t v)
{
    return (tni_num){ (double)v, v, true };
}

// 2^63 as a double may also stand for an i64 just below it.
bool tni_num_is_i64(tni_num v)
{
    return v.whole && fabs(v.f) <= 0x1p63 && (v.i < 0) == (v.f < 0);
}

// v.i is exact already unless the double says more than it holds; then it saturates as a cast does.
tni_num tni_num_as(tn_dtype dt, tni_num v)
{
    bool held = dt == TN_U64 ? v.whole && fabs(v.f) < 0x1p64
                             : fabs(v.f) < 0x1p63 || tni_num_is_i64(v);
    if (dt == TN_BOOL || (tni_is_int(dt) && !held)) v.i = tni_clamp_to_dtype(dt, v.f);
    return v;
}

// A number without a fraction counts as an integer beside a tensor, so that it takes the tensor's
// dtype.
static bool is_whole_number(const tn_tensor *x)
{
    const tni_node *n = x->store->node;
    return n->weak && n->op == TNI_scalar && tni_is_float((tn_dtype)n->dtype) && n->attr.num.whole;
}

// The value is an argument of the run, not of the plan: x * 0.1 and x * 0.2 share a kernel.
tn_tensor *tni_number(tn_ctx *cx, tn_dtype dt, tni_num v)
{
    tni_attr   a = { .num = tni_num_as(dt, v) };
    tn_tensor *t = tni_record(cx, TNI_scalar, dt, 0, NULL, 0, NULL, &a);
    if (t) t->store->node->weak = true;
    return t;
}

// The three steps in one tni_view_fn, so that a source is prepared by one view and not by three.
bool tni_change_view(tni_view *v, const void *how)
{
    const tni_view_change *m = how;
    tni_view               y;
    if (m->size && !tni_view_expand(v, m->rank, m->size)) return false;
    if (m->to) {
        if (!tni_view_reshape(v, m->to_rank, m->to, &y)) return false;
        *v = y;
    }
    if (m->order) tni_view_permute(v, m->order);
    return true;
}

// x itself if it has that shape already; NULL if it does not broadcast.
tn_tensor *tni_expand_to(tn_tensor *x, int rank, const int64_t *size)
{
    if (tni_shape_equal(rank, size, tni_rank(x), tni_sizes(x))) return x;
    tni_view        v   = tni_layout(x);
    tni_view_change how = { .rank = rank, .size = size };
    return tni_change_view(&v, &how) ? tni_wrap_view(x, &v, tni_change_view, &how) : NULL;
}

// Whether a dtype holds a number. As in PyTorch a negative one wraps in an unsigned dtype.
static bool holds_number(tn_dtype dt, tni_num v)
{
    const tni_dtype_facts *f = &tni_dtype_table[dt];
    if (!tni_is_int(dt)) return true;
    if (f->digits == 63) return tni_num_is_i64(v);
    return (tni_is_signed(dt) ? v.f >= f->low : v.f > -f->past) && v.f < f->past;
}

// A number as dt; an error if the dtype does not hold it, since silently wrapping it would change
// results.
static tn_tensor *number_as(tn_ctx *cx, const char *op, tn_dtype dt, tni_num v)
{
    if (!holds_number(dt, v))
        return tni_fail(cx, TN_EARG, "%s: the number %.17g does not fit %s", op, v.f,
                        tn_dtype_name(dt));
    return tni_number(cx, dt, v);
}

// The dtype of a number in a map over dt. f16 and bf16 are computed in f32, and there a number
// keeps all digits of f32: only the result is rounded. What is compared is rounded first, as in
// PyTorch, so that x equals the number it was made from.
static tn_dtype number_dtype_in(int op, tn_dtype dt)
{
    return tni_is_rounded(dt) && tni_op_table[op].rule != TNI_TO_BOOL ? TN_F32 : dt;
}

// The order of axes in which a map's result is stored: that of its largest input, of equals the
// first; an input that only chooses (the condition of where) comes last. So tensors in
// channels-last order stay so. A broadcast input is smaller than it looks, and a constant takes any
// order. False for row-major.
static bool find_result_order(int n, tn_tensor *const *x, int skip, int rank, const int64_t *size,
                              int *order)
{
    bool views = false;
    for (int i = 0; i < n; i++) views |= x[i]->view != NULL;
    for (int i = 0; i < n && views; i++) {
        tn_tensor *t = x[(i + skip) % n];
        if (t->store->node->constant || tni_rank(t) != rank) continue;
        if (!tni_shape_equal(rank, size, rank, tni_sizes(t))) continue;
        // The first full-size input that is row-major decides for row-major.
        if (!t->view) return false;
        bool whole = true;
        for (int k = 0; k < rank; k++) whole &= t->view->stride[k] != 0 || size[k] <= 1;
        if (whole) return tni_view_order(t->view, order);
    }
    return false;
}

// x expanded to a shape, with its axes in the given order.
static tni_node *resolve_ordered(tn_tensor *x, const char *op, int rank, const int64_t *size,
                                 const int *order)
{
    tni_view        v   = tni_layout(x);
    tni_view_change how = { .rank = rank, .size = size, .order = order };
    return tni_change_view(&v, &how) ? tni_resolve_as(x, &v, tni_change_view, &how, op) : NULL;
}

// Source i of a map: cast to dt and expanded to the result's shape, its axes in the given order
// unless that is NULL. Single elements stay as they are, since maps repeat them; numbers just take
// the dtype.
static tni_node *prepare_source(tn_tensor *x, const char *op, tn_dtype dt, int rank,
                                const int64_t *size, const int *order)
{
    if ((tn_dtype)x->store->node->dtype != dt) {
        const tni_node *n      = x->store->node;
        bool            number = n->weak && n->op == TNI_scalar;
        x                      = number ? number_as(x->cx, op, dt, n->attr.num) : tn_cast(x, dt);
        if (!x) return NULL;
    }
    if (tni_rank(x) > 0 && order) return resolve_ordered(x, op, rank, size, order);
    if (tni_rank(x) > 0) {
        x = tni_expand_to(x, rank, size);
        if (!x) return NULL;
    }
    return tni_resolve(x, op);
}

// Records a map over prepared sources. With an order it is recorded in that, and shown in the order
// of size.
static tn_tensor *record_map(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int n,
                             tni_node *const *src, const int *order)
{
    int64_t stored[TN_MAX_RANK];
    if (!order) return tni_record(cx, op, dt, rank, size, n, src, NULL);
    for (int i = 0; i < rank; i++) stored[i] = size[order[i]];
    return tni_show_permuted(tni_record(cx, op, dt, rank, stored, n, src, NULL), order);
}

static tn_tensor *refuse_dtype(tn_ctx *cx, const char *op, tn_dtype dt)
{
    return tni_fail(cx, TN_EDTYPE, "%s: %s is not a supported dtype", op, tn_dtype_name(dt));
}

// The shape that n operands broadcast to. Mostly all have one shape, and then nothing need be
// checked.
static bool broadcast_shape(tn_ctx *cx, const char *op, int n, tn_tensor *const *x, int *rank,
                            int64_t *size)
{
    bool grown = false;
    *rank      = tni_rank(x[0]);
    memcpy(size, tni_sizes(x[0]), (size_t)*rank * sizeof *size);
    for (int i = 1; i < n; i++) {
        if (tni_shape_equal(*rank, size, tni_rank(x[i]), tni_sizes(x[i]))) continue;
        grown = true;
        if (tni_shape_broadcast(rank, size, tni_rank(x[i]), tni_sizes(x[i]))) continue;
        tni_text all = { "" };
        for (int k = 0; k < n; k++)
            tni_text_add(&all, "%s%s", k ? " and " : "", tni_shape_of(x[k]).s);
        tni_fail(cx, TN_ESHAPE, "%s: shapes %s do not broadcast", op, all.s);
        return false;
    }
    return !grown || tni_shape_ok(cx, op, *rank, size);
}

// The neighbour of a in the direction of b in a dtype of 16 bits, whose digits the row of the op
// does not know: a little more than half a step from a in that direction, rounded. A step is
// 2^-digits to 2^(1 - digits) of a number, and never less than the smallest number. The direction
// is that of the neighbour in f32, which has no gradient either.
static tn_tensor *next_rounded(tn_tensor *a, tn_tensor *b, tn_dtype dt)
{
    const tni_dtype_facts *f   = &tni_dtype_table[dt];
    double                 bit = ldexp(1, -f->digits);
    tn_tensor *x = tn_cast(tn_cast(a, dt), TN_F32), *y = tn_cast(tn_cast(b, dt), TN_F32);
    tn_tensor *n = tn_nextafter(x, y);
    x = tn_detach(x), y = tn_detach(y);
    tn_tensor *step = tn_maximum_s(tn_mul_s(tn_abs(x), 1.25 * bit), 1.5 * bit * f->low);
    tn_tensor *z    = tn_add(n, tn_where(tn_lt(x, y), step, tn_neg(step)));
    z               = tn_where(tn_isinf(x), tn_clamp(n, -f->high, f->high), z);
    return tn_cast(tn_where(tn_eq(x, y), y, z), dt);
}

// A map over n operands that are promoted to one dtype; the first `skip` keep their own (the
// condition of where). If all operands are plain numbers, so is the result. floor and its kin are
// the identity on integers.
static tn_tensor *record_promoted(int op, const char *name, tn_ctx *cx, int n, tn_tensor *const *x,
                                  int skip)
{
    tni_operand kinds[3];
    tni_node   *src[3];
    tn_dtype    in, out;
    int64_t     size[TN_MAX_RANK];
    int         rank, axes[TN_MAX_RANK];
    bool        weak = true;

    if (!broadcast_shape(cx, name, n, x, &rank, size)) return NULL;
    for (int i = 0; i < n; i++) {
        kinds[i] = operand_of(x[i]);
        if (!tni_want_math_dtype(cx, name, kinds[i].dtype)) return NULL;
        weak &= kinds[i].strength == 0;
    }
    // Numbers among themselves keep their dtypes; beside a tensor a whole one counts as an integer.
    for (int i = 0; i < n && !weak; i++)
        if (is_whole_number(x[i])) kinds[i].dtype = TN_I64;
    tn_dtype promoted = tni_autocast_dtype(cx, tni_op_table[op].autocast,
                                           tni_promote_all(n - skip, kinds + skip));
    if (tni_op_table[op].rule == TNI_FULL && tni_is_rounded(promoted))
        return next_rounded(x[0], x[1], promoted);
    if (!tni_dtype_rule_apply(tni_op_table[op].rule, promoted, &in, &out))
        return refuse_dtype(cx, name, promoted);
    // floor, ceil, round and trunc of integers.
    if (tni_op_table[op].class == TNI_UNARY && tni_op_table[op].rule == TNI_REAL &&
        !tni_is_float(in))
        return tni_share(x[0], name);
    const int *order = find_result_order(n, x, skip, rank, size, axes) ? axes : NULL;
    for (int i = 0; i < n; i++) {
        tn_dtype want = i < skip ? kinds[i].dtype : in;
        // A number that has dtype `in` already was made so on purpose and keeps it.
        if (i >= skip && kinds[i].strength == 0 && tni_dtype(x[i]) != in)
            want = number_dtype_in(op, in);
        if (!(src[i] = prepare_source(x[i], name, want, rank, size, order))) return NULL;
    }
    tn_tensor *y = record_map(cx, op, out, rank, size, n, src, order);
    if (y && weak) y->store->node->weak = true;
    return y;
}

tn_tensor *tni_unary(int op, tn_tensor *x)
{
    if (x && x->complex) return tni_complex_unary(op, x);
    tn_ctx *cx = tni_arg1(tni_op_table[op].name, x, "x");
    return cx ? record_promoted(op, tni_op_table[op].name, cx, 1, &x, 0) : NULL;
}

tn_tensor *tni_binary(int op, tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "a", "b" };
    tn_tensor *const         x[]     = { a, b };
    if (tni_any_complex(2, x)) return tni_complex_binary(op, tni_op_table[op].name, a, b);
    tn_ctx *cx = tni_args(tni_op_table[op].name, 2, x, names);
    return cx ? record_promoted(op, tni_op_table[op].name, cx, 2, x, 0) : NULL;
}

// The dtype for a number that meets x: mostly x's own, so that no cast is recorded.
static tn_dtype number_dtype(int op, const tn_tensor *x, tni_num v)
{
    const tni_node *n    = x->store->node;
    tn_dtype        dt   = (tn_dtype)n->dtype;
    bool            fits = tni_is_float(dt) || (dt != TN_BOOL && v.whole && holds_number(dt, v));
    return fits && !n->weak ? number_dtype_in(op, dt) : TN_F32;
}

tn_tensor *tni_binary_s(int op, const char *name, tn_tensor *x, tni_num v, bool swap)
{
    if (x && x->complex) {
        tn_tensor *s = tni_arg1_any(name, x, "x") ? tni_number(x->cx, tni_dtype(x), v) : NULL;
        return s ? tni_complex_binary(op, name, swap ? s : x, swap ? x : s) : NULL;
    }
    tn_ctx *cx = tni_arg1(name, x, "x");
    if (!cx) return NULL;
    // A number divided by x is a reciprocal, which autocast computes as one.
    if (swap && op == TNI_div) x = tni_autocast_arg(x, tni_op_table[TNI_reciprocal].autocast);
    if (!x) return NULL;
    tn_tensor *s = tni_number(cx, number_dtype(op, x, v), v);
    if (!s) return NULL;
    tn_tensor *const pair[] = { swap ? s : x, swap ? x : s };
    return record_promoted(op, name, cx, 2, pair, 0);
}

// ---- the maps of the table, as public functions ------------------------------------------------

// Rows of class UNARY and BINARY are public functions by themselves; those of the other classes are
// written by hand, below and in other files.
#define FN_UNARY(name)                   \
    tn_tensor *tn_##name(tn_tensor *x)   \
    {                                    \
        return tni_unary(TNI_##name, x); \
    }
#define FN_BINARY(name)                              \
    tn_tensor *tn_##name(tn_tensor *a, tn_tensor *b) \
    {                                                \
        return tni_binary(TNI_##name, a, b);         \
    }
#define FN_TERNARY(name)
#define FN_CAST(name)
#define FN_REDUCE(name)
#define FN_SCAN(name)
#define FN_SOURCE(name)
#define FN_MOVE(name)
#define FN_EFFECT(name)
#define FN_LIBRARY(name)
#define FN_INNER(name)
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) FN_##class(name)
#include "ops/ops.def"
#undef OP

// Each in two forms: with a double, and with an i64, which has digits that a double has not.
#define FN_NUMBER(name, op, swap)                                             \
    tn_tensor *tn_##name##_s(tn_tensor *x, double v)                          \
    {                                                                         \
        return tni_binary_s(TNI_##op, #name "_s", x, tni_num_of(v), swap);    \
    }                                                                         \
    tn_tensor *tn_##name##_i64(tn_tensor *x, int64_t v)                       \
    {                                                                         \
        return tni_binary_s(TNI_##op, #name "_i64", x, tni_num_i64(v), swap); \
    }
FN_NUMBER(add, add, false)
FN_NUMBER(sub, sub, false)
FN_NUMBER(rsub, sub, true)
FN_NUMBER(mul, mul, false)
FN_NUMBER(div, div, false)
FN_NUMBER(rdiv, div, true)
FN_NUMBER(pow, pow, false)
FN_NUMBER(maximum, maximum, false)
FN_NUMBER(minimum, minimum, false)
FN_NUMBER(eq, eq, false)
FN_NUMBER(ne, ne, false)
FN_NUMBER(lt, lt, false)
FN_NUMBER(le, le, false)
FN_NUMBER(gt, gt, false)
FN_NUMBER(ge, ge, false)

tn_tensor *tn_where(tn_tensor *cond, tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "cond", "a", "b" };
    tn_tensor *const         x[]     = { cond, a, b };
    tn_ctx                  *cx      = tni_args_any("where", 3, x, names);
    if (!cx) return NULL;
    if (tn_dtype_of(cond) != TN_BOOL)
        return tni_fail(cx, TN_EDTYPE, "where: cond is %s, not bool",
                        tn_dtype_name(tn_dtype_of(cond)));
    if (tni_any_complex(2, x + 1)) return tni_complex_where(cond, a, b);
    return record_promoted(TNI_where, "where", cx, 3, x, 1);
}

// In the order of axes that x has in memory, like any map.
tn_tensor *tn_cast(tn_tensor *x, tn_dtype dt)
{
    tn_ctx *cx = tni_arg1_any("cast", x, "x");
    if (!cx) return NULL;
    if (x->complex || tni_is_complex(dt)) return tni_complex_cast(x, dt);
    if (!tni_dtype_ok(dt)) return tni_fail(cx, TN_EDTYPE, "cast: %d is not a dtype", (int)dt);
    if (tni_dtype(x) == dt) return tni_share(x, "cast");
    int        rank  = tni_rank(x), axes[TN_MAX_RANK];
    const int *order = x->view && tni_view_order(x->view, axes) ? axes : NULL;
    tni_node  *n     = order ? tni_resolve_permuted(x, order, "cast") : tni_resolve(x, "cast");
    return n ? record_map(cx, TNI_cast, dt, rank, tni_sizes(x), 1, &n, order) : NULL;
}

tn_tensor *tni_cast_and_expand(tn_tensor *x, const char *op, tn_dtype dt, int rank,
                               const int64_t *size)
{
    tn_ctx *cx = x->cx;
    if (tni_dtype(x) != dt && !(x = tn_cast(x, dt))) return NULL;
    tn_tensor *y = tni_expand_to(x, rank, size);
    if (!y)
        tni_fail(cx, TN_ESHAPE, "%s: %s does not broadcast to %s", op, tni_shape_of(x).s,
                 tni_shape_text(rank, size).s);
    return y;
}
