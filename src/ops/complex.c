// Complex numbers, composed of real ops over pairs: see tn_tensor in tensor/tensor.h. A product,
// for example, is
//
//   y = re(a) * b + im(a) * (-1, 1) * flip(b)        with b, flip(b) and y pairs, and the parts of a repeated for both
//
// which is one kernel with strided loads; its gradient, of any order, is that of these ops. Results
// follow NumPy, except that a real operand counts as a real number, not as one with an imaginary
// part of 0: inf times 2 has no NaN.
//
// Which functions know complex numbers is said where each begins: it asks for a complex argument
// and comes here, or takes its arguments by tni_arg1_any and works on any tensor, as views do,
// whose axes are before that of the pairs. All others are stopped by tni_arg1.
//
// In memory (1 + 2i, 3 - 4i) is 1, 2, 3, -4. Handles of it, of shape (2) and dtype c64, are over a
// node of shape (2, 2) and dtype f32:
//
//   tn_real(z)           the view of the node's first column, stride 2
//   tn_view_as_real(z)   the node itself
//   tn_flip(z, 0)        a view of its rows
#include "ops/complex.h"

#include <math.h>
#include <string.h>

// ---- pairs and parts ---------------------------------------------------------------------------

// The view of all of x as it is.
static tn_tensor *same_view(tn_tensor *x)
{
    tni_view        v   = tni_layout(x);
    tni_view_change how = { 0 };
    return tni_wrap_view(x, &v, tni_change_view, &how);
}

tn_tensor *tni_pairs(tn_tensor *x)
{
    if (!x || !x->complex) return x;
    tn_tensor *y = same_view(x);
    if (y) y->complex = false;
    return y;
}

// Whether strides are those of pairs: a complex number is one element of memory, so that C
// programs, files and other libraries can read it there. Axes of one place have any stride.
static bool are_pairs(const tni_view *v)
{
    bool ok = v->stride[v->rank - 1] == 1 && v->offset % 2 == 0;
    for (int i = 0; i + 1 < v->rank; i++) ok = ok && (v->stride[i] % 2 == 0 || v->size[i] < 2);
    return ok;
}

tn_tensor *tni_as_complex(tn_tensor *y)
{
    if (!y) return NULL;
    tni_view v = tni_layout(y);
    if (!are_pairs(&v)) y = tn_contiguous(y);
    if (y) y->complex = true;
    return y;
}

tn_tensor *tni_part(tn_tensor *x, int which)
{
    return tn_select(tni_pairs(x), -1, which);
}

// (true, false): whether a place of a pair is the real part. It is computed where it is read, so
// that a choice by it costs a comparison of the place, and parts are joined without a copy.
static tn_tensor *is_real_part(tn_ctx *cx)
{
    return tn_eq_i64(tn_arange_i64(cx, TN_I32, 0, 2, 1), 0);
}

tn_tensor *tni_join_parts(tn_tensor *re, tn_tensor *im)
{
    if (!re || !im) return NULL;
    return tni_as_complex(
        tn_where(is_real_part(re->cx), tn_unsqueeze(re, -1), tn_unsqueeze(im, -1)));
}

bool tni_any_complex(int n, tn_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (x[i] && x[i]->complex) return true;
    return false;
}

// By the rules of real tensors, of the parts; there are complex numbers of f32 and f64 only.
tn_dtype tni_parts_promote(int n, tn_tensor *const *x)
{
    tn_dtype dt   = TN_F32;
    int      most = 0;
    // Tensors with axes decide before 0-d ones, these before plain numbers.
    for (int i = 0; i < n; i++) {
        int strength = x[i]->store->node->weak ? 0 : tni_rank(x[i]) ? 2 : 1;
        if (strength > most && tni_is_float(tni_dtype(x[i]))) most = strength;
    }
    for (int i = 0; i < n; i++) {
        int strength = x[i]->store->node->weak ? 0 : tni_rank(x[i]) ? 2 : 1;
        if (strength == most && tni_dtype(x[i]) == TN_F64) dt = TN_F64;
    }
    return dt;
}

// A zero of x's dtype that broadcasts.
static tn_tensor *zero_like(tn_tensor *x)
{
    return tni_number_like(x, 0);
}

tn_tensor *tni_to_complex(tn_tensor *x, tn_dtype dt)
{
    if (!x) return NULL;
    if (x->complex && tni_dtype(x) == dt) return x;
    if (x->complex) return tni_as_complex(tn_cast(tni_pairs(x), dt));
    x = tn_cast(x, dt);
    return tni_join_parts(x, zero_like(x));
}

// x in parts of dt: pairs of a complex tensor; of a real one its numbers with an axis of 1, which
// broadcasts to both parts.
static tn_tensor *spread(tn_tensor *x, tn_dtype dt)
{
    tn_tensor *y = x->complex ? tni_pairs(x) : tn_unsqueeze(x, -1);
    return y && tni_dtype(y) != dt ? tn_cast(y, dt) : y;
}

// Both parts of pairs, each with an axis of 1.
static tn_tensor *re(tn_tensor *pairs)
{
    return tn_slice(pairs, -1, 0, 1, 1);
}

static tn_tensor *im(tn_tensor *pairs)
{
    return tn_slice(pairs, -1, 1, 2, 1);
}

// Pairs of two parts that have an axis of 1 each.
static tn_tensor *both(tn_tensor *r, tn_tensor *i)
{
    return r && i ? tn_where(is_real_part(r->cx), r, i) : NULL;
}

// ---- public: making and taking apart -----------------------------------------------------------

// The parts a and b in one float dtype. False, reported, otherwise.
static bool parts_args(const char *op, tn_tensor **a, const char *a_name, tn_tensor **b,
                       const char *b_name)
{
    const char *names[] = { a_name, b_name };
    tn_ctx     *cx      = tni_args(op, 2, (tn_tensor *const[]){ *a, *b }, names);
    if (!cx || !tni_want_float(*a, op) || !tni_want_float(*b, op)) return false;
    if (!tni_broadcast_pair(op, *a, a_name, *b, b_name)) return false;
    bool wide = tni_dtype(*a) == TN_F64 || tni_dtype(*b) == TN_F64;
    *a        = tn_cast(*a, wide ? TN_F64 : TN_F32);
    *b        = tn_cast(*b, wide ? TN_F64 : TN_F32);
    return *a && *b;
}

tn_tensor *tn_complex(tn_tensor *re, tn_tensor *im)
{
    return parts_args("complex", &re, "re", &im, "im") ? tni_join_parts(re, im) : NULL;
}

tn_tensor *tn_polar(tn_tensor *abs, tn_tensor *angle)
{
    if (!parts_args("polar", &abs, "abs", &angle, "angle")) return NULL;
    return tni_join_parts(tn_mul(abs, tn_cos(angle)), tn_mul(abs, tn_sin(angle)));
}

tn_tensor *tn_real(tn_tensor *x)
{
    if (!tni_arg1_any("real", x, "x")) return NULL;
    return x->complex ? tni_part(x, 0) : same_view(x);
}

tn_tensor *tn_imag(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1_any("imag", x, "x");
    if (!cx) return NULL;
    if (x->complex) return tni_part(x, 1);
    return tni_fail(cx, TN_EDTYPE, "imag: x is %s, which has no imaginary part",
                    tn_dtype_name(tn_dtype_of(x)));
}

tn_tensor *tn_conj(tn_tensor *x)
{
    if (!tni_arg1_any("conj", x, "x")) return NULL;
    if (!x->complex) return same_view(x);
    tn_tensor *p = tni_pairs(x);
    return tni_as_complex(both(re(p), tn_neg(im(p))));
}

// At 0, where the angle has no derivative, its gradient is 0: atan2 then sees (0, +-1), whose angle
// is the same.
tn_tensor *tn_angle(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1_any("angle", x, "x");
    if (!cx) return NULL;
    if (!x->complex) {
        if (!tni_want_math_dtype(cx, "angle", tni_dtype(x))) return NULL;
        tn_tensor *f = tni_is_float(tni_dtype(x)) ? x : tn_cast(x, TN_F32);
        tn_tensor *y = tn_where(tn_lt_s(f, 0), tni_number_like(f, 3.14159265358979323846),
                                zero_like(f));
        return tn_where(tn_isnan(f), f, y);
    }
    tn_tensor *r = tni_part(x, 0), *i = tni_part(x, 1);
    tn_tensor *none = tn_logical_and(tn_eq_s(r, 0), tn_eq_s(i, 0));
    tn_tensor *sign = tn_copysign(tni_number_like(r, 1), tn_detach(r));
    return tn_atan2(i, tn_where(none, sign, r));
}

tn_tensor *tn_view_as_real(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1_any("view_as_real", x, "x");
    if (!cx || x->complex) return cx ? tni_pairs(x) : NULL;
    return tni_fail(cx, TN_EDTYPE, "view_as_real: x is %s, not complex",
                    tn_dtype_name(tn_dtype_of(x)));
}

tn_tensor *tn_view_as_complex(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1("view_as_complex", x, "x");
    if (!cx) return NULL;
    if (tni_dtype(x) != TN_F32 && tni_dtype(x) != TN_F64)
        return tni_fail(cx, TN_EDTYPE, "view_as_complex: x is %s, not f32 or f64",
                        tn_dtype_name(tni_dtype(x)));
    if (!tni_rank(x) || tn_size(x, -1) != 2)
        return tni_fail(cx, TN_ESHAPE, "view_as_complex: the last axis of x %s has not size 2",
                        tni_shape_of(x).s);
    return tni_as_complex(same_view(x));
}

// ---- maps --------------------------------------------------------------------------------------

// |x| without overflow, by hypot, which divides by the larger part first.
//  At 0 hypot has no derivative; the inner choice keeps it away from there, and the gradient is 0.
static tn_tensor *magnitude(tn_tensor *r, tn_tensor *i)
{
    tn_tensor *none = tn_logical_and(tn_eq_s(r, 0), tn_eq_s(i, 0));
    tn_tensor *safe = tn_where(none, tni_number_like(r, 1), r);
    return tn_where(none, zero_like(r), tn_hypot(safe, i));
}

// a * b of pairs, of which one may have an axis of 1: then it is a real number.
static tn_tensor *times(tn_tensor *a, tn_tensor *b)
{
    if (!a || !b) return NULL;
    if (tn_size(a, -1) == 1 || tn_size(b, -1) == 1) return tn_mul(a, b);
    tn_tensor *sign = tn_arange(a->cx, tni_dtype(a), -1, 2, 2);
    return tn_add(tn_mul(re(a), b), tn_mul(tn_mul(im(a), sign), tn_flip(b, -1)));
}

// a / b by Smith's method: the larger part of b is divided out, so that squares neither overflow
// nor vanish.
//   |c| >= |d|:  q = d / c,  (a + b q, b - a q) / (c + d q)      of (a + b i) / (c + d i)
//   otherwise:   q = c / d,  (a q + b, b q - a) / (c q + d)
static tn_tensor *quotient(tn_tensor *a, tn_tensor *b)
{
    if (!a || !b) return NULL;
    if (tn_size(b, -1) == 1) return tn_div(a, b);
    tn_tensor *c = re(b), *d = im(b);
    tn_tensor *first = tn_ge(tn_abs(c), tn_abs(d));
    tn_tensor *big = tn_where(first, c, d), *small = tn_where(first, d, c);
    tn_tensor *none = tn_eq_s(big, 0);  // 0 / 0 of the parts would be NaN where a / 0 is infinite
    tn_tensor *q    = tn_where(none, zero_like(c),
                               tn_div(small, tn_where(none, tni_number_like(c, 1), big)));
    tn_tensor *by   = tn_add(big, tn_mul(small, q));
    tn_tensor *r = re(a), *i = tn_size(a, -1) == 1 ? zero_like(a) : im(a);
    tn_tensor *u = tn_where(first, r, i), *v = tn_where(first, i, r);
    // Where b is 0, q is 0, too, and infinite parts of a do not meet it.
    tn_tensor *uq   = tn_where(none, zero_like(c), tn_mul(u, q)),
              *vq   = tn_where(none, zero_like(c), tn_mul(v, q));
    tn_tensor *turn = tn_sub(v, uq);
    return tn_div(both(tn_add(u, vq), tn_where(first, turn, tn_neg(turn))), by);
}

// e to the power of pairs. An imaginary part of 0 stays, also where the real one overflows.
static tn_tensor *exponential(tn_tensor *p)
{
    tn_tensor *e = tn_exp(re(p)), *i = im(p);
    return both(tn_mul(e, tn_cos(i)), tn_where(tn_eq_s(i, 0), i, tn_mul(e, tn_sin(i))));
}

// log|x| + i angle(x).
static tn_tensor *logarithm(tn_tensor *x)
{
    return tni_pairs(
        tni_join_parts(tn_log(magnitude(tni_part(x, 0), tni_part(x, 1))), tn_angle(x)));
}

// The principal one, as C's csqrt: the branch is cut along the negative real axis, and the sign of
// an imaginary 0 tells the sides apart. The root with a real part that is not negative: t =
// sqrt((|re| + |x|) / 2) is one part, im / (2 t) the other.
static tn_tensor *root(tn_tensor *p)
{
    tn_tensor *r = re(p), *i = im(p);
    tn_tensor *t    = tn_sqrt(tn_mul_s(tn_add(tn_abs(r), magnitude(r, i)), 0.5));
    tn_tensor *none = tn_eq_s(t, 0);
    tn_tensor *half = tn_div(i, tn_mul_s(tn_where(none, tni_number_like(t, 1), t), 2));
    tn_tensor *left = tn_lt_s(r, 0);
    return both(tn_where(left, tn_abs(half), t), tn_where(left, tn_copysign(t, i), half));
}

// a to the power of b as exp(b log a); 0 to a power is 0, or 1 if that is 0.
static tn_tensor *power(tn_tensor *a, tn_tensor *b, tn_dtype dt)
{
    tn_tensor *z = tni_to_complex(a, dt), *w = spread(b, dt);
    if (!z || !w) return NULL;
    tn_tensor *r = re(tni_pairs(z)), *i = im(tni_pairs(z));
    tn_tensor *none = tn_logical_and(tn_eq_s(r, 0), tn_eq_s(i, 0));
    // log is kept away from 0, whose gradient is infinite.
    tn_tensor *safe = tni_as_complex(both(tn_where(none, tni_number_like(r, 1), r), i));
    tn_tensor *y    = exponential(times(logarithm(safe), w));
    tn_tensor *zero = tn_eq_s(re(w), 0);
    if (tn_size(w, -1) == 2) zero = tn_logical_and(zero, tn_eq_s(im(w), 0));
    return tn_where(none, both(tn_cast(zero, dt), zero_like(r)), y);
}

// tanh(a + b i) by t = tanh(a) and u = tan(b), which do not overflow: (t + i u) / (1 + i t u).
static tn_tensor *hyperbolic_tangent(tn_tensor *p)
{
    tn_tensor *t = tn_tanh(re(p)), *u = tn_tan(im(p)), *tu = tn_mul(t, u);
    return quotient(both(t, u), both(tni_number_like(t, 1), tu));
}

// Whether a map to bool holds of the parts, one of them (any) or both.
static tn_tensor *of_parts(tn_tensor *(*f)(tn_tensor *), bool any, tn_tensor *x)
{
    tn_tensor *r = f(tni_part(x, 0)), *i = f(tni_part(x, 1));
    return any ? tn_logical_or(r, i) : tn_logical_and(r, i);
}

// The maps of one input that know complex numbers; the others refuse x by their names. sin, cos and
// their hyperbolic kin are sums of products of the real functions of both parts.
tn_tensor *tni_complex_unary(int op, tn_tensor *x)
{
    const char *name = tni_op_table[op].name;
    if (!tni_arg1_any(name, x, "x")) return NULL;
    tn_tensor *p = tni_pairs(x), *r = re(p), *i = im(p);
    switch (op) {
    case TNI_abs: return magnitude(tni_part(x, 0), tni_part(x, 1));
    case TNI_isnan: return of_parts(tn_isnan, true, x);
    case TNI_isinf: return of_parts(tn_isinf, true, x);
    case TNI_isfinite: return of_parts(tn_isfinite, false, x);
    case TNI_neg: return tni_as_complex(tn_neg(p));
    case TNI_reciprocal: return tni_as_complex(quotient(tn_ones_like(r), p));
    case TNI_exp: return tni_as_complex(exponential(p));
    case TNI_log: return tni_as_complex(logarithm(x));
    case TNI_sqrt: return tni_as_complex(root(p));
    case TNI_sin:
        return tni_as_complex(both(tn_mul(tn_sin(r), tn_cosh(i)), tn_mul(tn_cos(r), tn_sinh(i))));
    case TNI_cos:
        return tni_as_complex(
            both(tn_mul(tn_cos(r), tn_cosh(i)), tn_neg(tn_mul(tn_sin(r), tn_sinh(i)))));
    case TNI_sinh:
        return tni_as_complex(both(tn_mul(tn_sinh(r), tn_cos(i)), tn_mul(tn_cosh(r), tn_sin(i))));
    case TNI_cosh:
        return tni_as_complex(both(tn_mul(tn_cosh(r), tn_cos(i)), tn_mul(tn_sinh(r), tn_sin(i))));
    case TNI_tanh: return tni_as_complex(hyperbolic_tangent(p));
    default: tni_arg1(name, x, "x"); return NULL;
    }
}

// Sums with a real number change the real part alone.
static tn_tensor *sum_of(int op, tn_tensor *a, tn_tensor *b)
{
    if (!a || !b) return NULL;
    if (tn_size(a, -1) == 1) a = both(a, zero_like(a));
    if (b && tn_size(b, -1) == 1) b = both(b, zero_like(b));
    return op == TNI_add ? tn_add(a, b) : tn_sub(a, b);
}

// Whether a equals b: both parts do; and whether it does not.
static tn_tensor *equals(int op, tn_tensor *a, tn_tensor *b)
{
    tn_tensor *d = op == TNI_eq ? tn_eq(a, b) : tn_ne(a, b);
    if (!d) return NULL;
    tn_tensor *r = tn_select(d, -1, 0), *i = tn_select(d, -1, 1);
    return op == TNI_eq ? tn_logical_and(r, i) : tn_logical_or(r, i);
}

// The maps of two inputs that know complex numbers: shapes are checked as the user has them, then
// both operands are pairs, or real numbers that stand for both parts. The others refuse the first
// complex one by their names.
tn_tensor *tni_complex_binary(int op, const char *name, tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "a", "b" };
    tn_tensor *const         x[]     = { a, b };
    if (!tni_args_any(name, 2, x, names)) return NULL;
    int64_t size[TN_MAX_RANK];
    int     rank = tni_rank(a);
    memcpy(size, tni_sizes(a), (size_t)rank * sizeof *size);
    if (!tni_shape_broadcast(&rank, size, tni_rank(b), tni_sizes(b)))
        return tni_fail(a->cx, TN_ESHAPE, "%s: shapes %s and %s do not broadcast", name,
                        tni_shape_of(a).s, tni_shape_of(b).s);
    tn_dtype   dt = tni_parts_promote(2, x);
    tn_tensor *p = spread(a, dt), *q = spread(b, dt);
    switch (op) {
    case TNI_add:
    case TNI_sub: return tni_as_complex(sum_of(op, p, q));
    case TNI_mul: return tni_as_complex(times(p, q));
    case TNI_div: return tni_as_complex(quotient(p, q));
    case TNI_pow: {
        const tni_node *e =
            b->store->node;  // squares and cubes of numbers are products, which round less
        double v = e->weak && e->op == TNI_scalar ? e->attr.num.f : 0;
        if (a->complex && (v == 2 || v == 3))
            return tni_as_complex(times(p, v == 2 ? p : times(p, p)));
        return tni_as_complex(power(a, b, dt));
    }
    case TNI_eq:
    case TNI_ne:
        return equals(op, tni_pairs(tni_to_complex(a, dt)), tni_pairs(tni_to_complex(b, dt)));
    default: tni_args(name, 2, x, names); return NULL;
    }
}

// A condition is real: it chooses both parts.
tn_tensor *tni_complex_where(tn_tensor *cond, tn_tensor *a, tn_tensor *b)
{
    tn_dtype   dt = tni_parts_promote(2, (tn_tensor *const[]){ a, b });
    tn_tensor *p = tni_pairs(tni_to_complex(a, dt)), *q = tni_pairs(tni_to_complex(b, dt));
    return tni_as_complex(tn_where(tn_unsqueeze(cond, -1), p, q));
}

// To complex numbers from any, to real ones not at all: dropping a part is hardly ever what is
// meant.
tn_tensor *tni_complex_cast(tn_tensor *x, tn_dtype dt)
{
    if (tni_is_complex(dt)) {
        tn_tensor *y = tni_to_complex(x, tni_part_dtype(dt));
        return y == x ? tni_share(x, "cast") : y;
    }
    return tni_fail(
        x->cx, TN_EDTYPE,
        "cast: x is %s and does not become %s; tn_real, tn_imag and tn_abs give numbers of it",
        tn_dtype_name(tn_dtype_of(x)), tn_dtype_name(dt));
}

// ---- reductions, products, joining, writes -----------------------------------------------------

// The reductions that add up parts; the others compare or square.
tn_tensor *tni_complex_reduce(tni_reduction_body *f, const char *op, tn_tensor *x, uint32_t mask,
                              bool keep)
{
    if (strncmp(op, "sum", 3) != 0 && strncmp(op, "mean", 4) != 0) {
        tni_arg1(op, x, "x");
        return NULL;
    }
    return tni_as_complex(f(op, tni_pairs(x), mask, keep));
}

// One product of real matrices: the rows of a are its pairs one after the other, (m, 2 k), and each
// row of b becomes two, b's own pairs and those of i b, (2 k, 2 n), so that the result is pairs
// again.
tn_tensor *tni_complex_matmul(tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "a", "b" };
    tn_tensor *const         x[]     = { a, b };
    tn_ctx                  *cx      = tni_args_any("matmul", 2, x, names);
    if (!cx) return NULL;
    int     ra = tni_rank(a), rb = tni_rank(b);
    bool    row = ra == 1, col = rb == 1;
    int64_t size[TN_MAX_RANK + 1];
    if (!ra || !rb || tn_size(a, -1) != tn_size(b, col ? 0 : -2))
        return tni_fail(cx, TN_ESHAPE, "matmul: %s @ %s: inner sizes differ", tni_shape_of(a).s,
                        tni_shape_of(b).s);
    tn_dtype   dt = tni_parts_promote(2, x);
    tn_tensor *z  = tni_to_complex(row ? tn_unsqueeze(a, 0) : a, dt);
    tn_tensor *w  = tni_to_complex(col ? tn_unsqueeze(b, 1) : b, dt);
    if (!z || !w) return NULL;
    tn_tensor *p = tn_flatten(tni_pairs(z), -2, -1), *q = tni_pairs(w);
    if (!p || !q) return NULL;
    tn_tensor *turned = both(tn_neg(im(q)), re(q));  // i w
    tn_tensor *rows[] = { q, turned };
    tn_tensor *wide   = turned ? tn_stack(2, rows, -3) : NULL;  // (..., k, 2, n, 2)
    int        rank   = tni_rank(w);
    if (!wide) return NULL;
    memcpy(size, tni_sizes(w), (size_t)rank * sizeof *size);
    size[rank - 2] *= 2;
    size[rank - 1] *= 2;
    tn_tensor *y = tn_matmul(p, tn_reshape(wide, rank, size));
    if (!y) return NULL;
    int out = tni_rank(y);
    memcpy(size, tni_sizes(y), (size_t)out * sizeof *size);
    size[out - 1] /= 2;
    size[out] = 2;
    y         = tni_as_complex(tn_reshape(y, out + 1, size));
    if (col) y = tn_squeeze(y, -1);
    return row ? tn_squeeze(y, col ? -1 : -2) : y;
}

// Axes before that of the pairs keep their numbers, counted from the front.
tn_tensor *tni_complex_concat(int n, tn_tensor *const *x, int axis, bool stack)
{
    tn_ctx     *cx = x[0]->cx;
    const char *op = stack ? "stack" : "concat";
    int         i  = tni_axis(cx, op, tni_rank(x[0]) + stack, axis);
    tn_dtype    dt = tni_parts_promote(n, x);
    if (i < 0) return NULL;
    tn_tensor **p = tni_alloc(&cx->heap, (size_t)n * sizeof *p), *y = NULL;
    if (!p) return tni_fail_memory(cx, op);
    bool ok = true;
    for (int k = 0; k < n; k++) ok = (p[k] = tni_pairs(tni_to_complex(x[k], dt))) && ok;
    if (ok) y = tni_as_complex(stack ? tn_stack(n, p, i) : tn_concat(n, p, i));
    tni_free(&cx->heap, p);
    return y;
}

// The pairs share x's store, so that what is written to them is written to x.
tn_tensor *tni_complex_write(tn_tensor *x, const char *name, int op, tn_tensor *v)
{
    static const char *const names[] = { "x", "v" };
    tn_ctx                  *cx      = tni_args_any(name, 2, (tn_tensor *const[]){ x, v }, names);
    if (!cx) return NULL;
    if (!x->complex)
        return tni_fail(cx, TN_EDTYPE, "%s: v is %s and does not go into x of %s", name,
                        tn_dtype_name(tn_dtype_of(v)), tn_dtype_name(tn_dtype_of(x)));
    if (op >= 0) v = tni_complex_binary(op, name, x, v);
    v            = tni_pairs(tni_to_complex(v, tni_dtype(x)));
    tn_tensor *p = v ? tni_pairs(x) : NULL;
    return p && tn_assign(p, v) ? x : NULL;
}
