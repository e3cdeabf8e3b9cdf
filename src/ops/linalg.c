// Factorizations and what is solved by them. Each is a node of the row `linalg`, computed by a call
// of the device: LAPACK, cuSOLVER or our own code; the rest is composed of other ops. Matrices are
// the last two axes, the axes before them are a batch.
//
// A matrix that has no such factorization is found when the call runs, which may be much later and
// on a device that nothing waits for. So it is no error: its results are NaN, those of the other
// matrices of the batch are as ever, and `info`, for which a program can ask, says which it was.
// tn_linalg_check reads that and makes it an error.
#include "ops/linalg.h"
#include "ops/composite.h"

#include <float.h>
#include <string.h>

// 16-bit floats are computed in f32 and rounded once, at the end. The gradients are in
// grad/linalg_rules.c.

// ---- arguments ---------------------------------------------------------------------------------

// x, floats with at least two axes, in the precision that is computed in. NULL, reported,
// otherwise.
static tn_tensor *matrix_arg(const char *op, tn_tensor *x, const char *name, bool square)
{
    tn_ctx *cx = tni_arg1(op, x, name);
    if (!cx || !tni_want_float(x, op)) return NULL;
    if (tn_rank(x) < 2 || (square && tn_size(x, -1) != tn_size(x, -2)))
        return tni_fail(cx, TN_ESHAPE, "%s: %s %s is no %smatrix", op, name, tni_shape_of(x).s,
                        square ? "square " : "");
    return tni_widen(x);
}

// The sizes of x with other ones at the end: two if b >= 0, else one; none if a < 0.
static tn_array shaped(const tn_tensor *x, tn_dtype dt, int64_t a, int64_t b)
{
    int      rank = tn_rank(x) - 2;
    tn_array y    = { .dtype = dt };
    memcpy(y.size, tni_sizes(x), sizeof y.size);
    if (a >= 0) y.size[rank++] = a;
    if (b >= 0) y.size[rank++] = b;
    y.rank = rank;
    return y;
}

// ---- recording: nodes of the row, whose sources and outputs tni_linalg_kind lists --------------

static bool record(const struct tni_attr_linalg *how, int nin, tn_tensor *const *x, int nout,
                   const tn_array *out, tn_tensor **y)
{
    return tni_record_packed(TNI_linalg, &(tni_attr){ .linalg = *how }, nin, x, nout, out, y);
}

// The shapes of all outputs of a kind, for matrices x.
static void outputs_of(const struct tni_attr_linalg *how, const tn_tensor *x, tn_array out[3])
{
    tn_dtype dt = tn_dtype_of(x);
    int64_t  m = tn_size(x, -2), n = tn_size(x, -1), least = m < n ? m : n;
    out[0] = shaped(x, dt, m, n);
    out[1] = out[2] = shaped(x, TN_I32, -1, -1);
    switch ((tni_linalg_kind)how->kind) {
    case TNI_LINALG_LU: out[1] = shaped(x, TN_I64, n, -1); break;
    case TNI_LINALG_QR:
        out[0] = shaped(x, dt, how->full ? m : n, n);
        out[1] = shaped(x, dt, m, how->full ? m : n);
        break;
    case TNI_LINALG_EIGH:
        out[0] = shaped(x, dt, n, -1);
        out[1] = shaped(x, dt, n, n);
        break;
    case TNI_LINALG_SVD:
        out[0] = shaped(x, dt, least, -1);
        out[1] = shaped(x, dt, m, how->full ? m : least);
        out[2] = shaped(x, dt, how->full ? n : least, n);
        break;
    default: break;
    }
}

// Records a factorization of x, of which the first nout outputs are asked for.
static bool factor(tni_linalg_kind kind, bool full, tn_tensor *x, int nout, tn_tensor **y)
{
    struct tni_attr_linalg how = { .kind = kind, .full = full };
    tn_array               out[3];
    outputs_of(&how, x, out);
    return record(&how, 1, &x, nout, out, y);
}

tn_tensor *tni_linalg_output(tn_ctx *cx, tni_node **n, int index)
{
    tn_array   out[3];
    tn_tensor *x = tni_wrap_node(cx, (*n)->src[0]);
    if (!x) return NULL;
    if (!index) return tni_wrap_node(cx, *n);
    outputs_of(&(*n)->attr.linalg, x, out);
    return tni_output(cx, n, index, &out[index]);
}

// Records a solution: its shape is that of the right sides.
static tn_tensor *solution(const struct tni_attr_linalg *how, int nin, tn_tensor *const *x)
{
    tn_tensor *y = NULL;
    tn_array   out;
    for (int i = 0; i < nin; i++)
        if (!x[i]) return NULL;
    out = shaped(x[1], tn_dtype_of(x[1]), tn_size(x[1], -2), tn_size(x[1], -1));
    record(how, nin, x, 1, &out, &y);
    return y;
}

tn_tensor *tni_solve_triangle(tn_tensor *a, tn_tensor *b, struct tni_attr_linalg how)
{
    how.kind = TNI_LINALG_TRIANGULAR;
    return solution(&how, 2, (tn_tensor *const[]){ a, b });
}

tn_tensor *tni_lu_solve(tn_tensor *a, tn_tensor *b, tn_tensor *lu, tn_tensor *order,
                        bool transposed)
{
    struct tni_attr_linalg how = { .kind = TNI_LINALG_LU_SOLVE, .transposed = transposed };
    return solution(&how, 4, (tn_tensor *const[]){ a, b, lu, order });
}

// A value that other ops computed, with the gradient of a kind: x[0] is it, detached.
static tn_tensor *with_gradient(tni_linalg_kind kind, int nin, tn_tensor *const *x)
{
    struct tni_attr_linalg how = { .kind = kind };
    tn_tensor             *y   = NULL;
    tn_array               out;
    for (int i = 0; i < nin; i++)
        if (!x[i]) return NULL;
    out = (tn_array){ .dtype = tn_dtype_of(x[0]), .rank = tn_rank(x[0]) };
    memcpy(out.size, tni_sizes(x[0]), sizeof out.size);
    record(&how, nin, x, 1, &out, &y);
    return y;
}

// ---- help --------------------------------------------------------------------------------------

tn_tensor *tni_eye_like(tn_tensor *x)
{
    return x ? tn_eye(x->cx, tn_dtype_of(x), tn_size(x, -1), tn_size(x, -1)) : NULL;
}

tn_tensor *tni_scale_columns(tn_tensor *x, tn_tensor *by)
{
    return tn_mul(x, tn_unsqueeze(by, -2));
}

// A product that is a step of an op: autocast is for products that the program writes.
static tn_tensor *product(tn_tensor *a, tn_tensor *b)
{
    if (!a || !b) return NULL;
    tn_ctx  *cx   = a->cx;
    tn_dtype mode = cx->autocast;
    cx->autocast  = TN_F32;
    tn_tensor *y  = tn_matmul(a, b);
    cx->autocast  = mode;
    return y;
}

// a and b with one batch, which both broadcast to; a's matrices are square. False, reported,
// otherwise. Views of both do it: what is repeated is copied when the call is recorded, since a
// call's inputs are row-major.
static bool same_batch(const char *op, tn_tensor **a, tn_tensor **b)
{
    tn_tensor *x[2] = { *a, *b };
    int64_t    size[2][TN_MAX_RANK];
    int        ra = tn_rank(*a) - 2, rb = tn_rank(*b) - 2, rank = ra > rb ? ra : rb;
    for (int i = 0; i < rank; i++) {
        int64_t na = i < rank - ra ? 1 : tn_size(*a, i - rank + ra);
        int64_t nb = i < rank - rb ? 1 : tn_size(*b, i - rank + rb);
        if (na != nb && na != 1 && nb != 1)
            return tni_refuse((*a)->cx, TN_ESHAPE, "%s: a %s and b %s do not broadcast", op,
                              tni_shape_of(*a).s, tni_shape_of(*b).s);
        size[0][i] = size[1][i] = na == 1 ? nb : na;
    }
    for (int t = 0; t < 2; t++) {
        size[t][rank]     = tn_size(x[t], -2);
        size[t][rank + 1] = tn_size(x[t], -1);
        if (!(x[t] = tn_expand(x[t], rank + 2, size[t]))) return false;
    }
    *a = x[0], *b = x[1];
    return true;
}

// The arguments of an equation a x = b: checked, of one dtype and one batch. *vector: b is one
// vector, and became a matrix of one column.
// f32 and f64 together are computed in f64, as in every other op. A vector b is one for all
// matrices of a.
static bool equation(const char *op, tn_tensor **a, tn_tensor **b, bool square, bool *vector)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx                  *cx      = tni_args(op, 2, (tn_tensor *const[]){ *a, *b }, names);
    if (!cx || !tni_want_float(*b, op)) return false;
    if (!(*a = matrix_arg(op, *a, "a", square))) return false;
    *vector = tn_rank(*b) == 1;
    if (tn_rank(*b) < 1 || tn_size(*b, *vector ? 0 : -2) != tn_size(*a, -2))
        return tni_refuse(cx, TN_ESHAPE, "%s: a %s and b %s do not fit", op, tni_shape_of(*a).s,
                          tni_shape_of(*b).s);
    *b = tni_widen(*b);
    if (*vector && *b) *b = tn_unsqueeze(*b, 1);
    if (!*b) return false;
    if (tn_dtype_of(*a) != tn_dtype_of(*b)) {  // f32 and f64: the wider one
        if (!(*a = tn_cast(*a, TN_F64)) || !(*b = tn_cast(*b, TN_F64))) return false;
    }
    return same_batch(op, a, b);
}

// x of the equations as the caller has b: a vector again, in the dtype of both.
static tn_tensor *answer(tn_tensor *x, bool vector, tn_tensor *a, tn_tensor *b)
{
    tn_dtype dt = tn_dtype_of(a);
    if (x && vector) x = tn_squeeze(x, -1);
    return dt == tn_dtype_of(b) ? tni_narrow(x, dt) : x;
}

// ---- cholesky ----------------------------------------------------------------------------------

// Narrows the results that are floats; y[i] is NULL after a failure.
// Integers, which orders of rows and infos are, stay as they are.
static bool narrowed(tn_tensor *x, int n, tn_tensor **y)
{
    for (int i = 0; i < n; i++)
        if (y[i] && tni_is_float(tn_dtype_of(y[i]))) y[i] = tni_narrow(y[i], tn_dtype_of(x));
    for (int i = 0; i < n; i++)
        if (!y[i]) return false;
    return true;
}

// n: 1, or 2 with info. The lower triangle of x' is the upper one of x.
static bool cholesky(const char *op, tn_tensor *x, bool upper, int n, tn_tensor **y)
{
    tn_tensor *a = matrix_arg(op, x, "x", true);
    if (a && upper) a = tni_mT(a);
    if (!a || !factor(TNI_LINALG_CHOLESKY, false, a, n, y) || !narrowed(x, n, y)) return false;
    return !upper || (y[0] = tni_mT(y[0])) != NULL;
}

// Nothing asks for info, so that it is not stored.
tn_tensor *tn_cholesky(tn_tensor *x, bool upper)
{
    tn_tensor *y = NULL;
    return cholesky("cholesky", x, upper, 1, &y) ? y : NULL;
}

// The end of a function that writes two results: both, or none and an error.
static tn_status write_both(const char *op, tn_ctx *cx, bool ok, tn_tensor *const y[2],
                            tn_tensor **first, tn_tensor **info)
{
    if (first) *first = ok && info ? y[0] : NULL;
    if (info) *info = ok && first ? y[1] : NULL;
    if (!ok) return tni_failed();
    if (first && info) return TN_OK;
    return tni_fail_status(cx, TN_EARG, "%s: a result has no place: NULL", op);
}

tn_status tn_cholesky_ex(tn_tensor *x, bool upper, tn_tensor **l, tn_tensor **info)
{
    tn_tensor *y[2] = { NULL, NULL };
    bool       ok   = cholesky("cholesky_ex", x, upper, 2, y);
    return write_both("cholesky_ex", x ? x->cx : NULL, ok, y, l, info);
}

// Reads twice at most: which matrix is the first that failed, and where it did.
tn_status tn_linalg_check(const char *op, tn_tensor *info)
{
    tn_ctx *cx = tni_arg1("linalg_check", info, "info");
    if (!cx) return tni_failed();
    if (tn_dtype_of(info) != TN_I32)
        return tni_fail_status(cx, TN_EDTYPE, "linalg_check: info is %s, not i32",
                               tn_dtype_name(tn_dtype_of(info)));
    if (!tn_count(info)) return TN_OK;
    tn_tensor *flat = tn_reshape(info, TN_SHAPE(-1));
    tn_tensor *at   = tn_argmax(tn_cast(tn_ne_s(flat, 0), TN_U8), 0);
    tn_tensor *row  = tn_gather(flat, 0, tn_unsqueeze(at, 0));
    int64_t    v[2] = { 0, 0 };
    if (!row || tn_read(row, TN_I64, &v[0], 1) != TN_OK) return tni_failed();
    if (!v[0]) return TN_OK;
    if (tn_read(at, TN_I64, &v[1], 1) != TN_OK) return tni_failed();
    return tni_fail_status(cx, TN_EARG, "%s: matrix %lld of %lld cannot be factored: its row %lld",
                           op ? op : "linalg", (long long)v[1], (long long)tn_count(info),
                           (long long)v[0] - 1);
}

// ---- equations ---------------------------------------------------------------------------------

// The other triangle of a is neither read nor given a gradient.
tn_tensor *tn_solve_triangular(tn_tensor *a, tn_tensor *b, bool upper, bool unit)
{
    tn_tensor *x = a, *y = b;
    bool       vector;
    if (!equation("solve_triangular", &x, &y, true, &vector)) return NULL;
    struct tni_attr_linalg how = { .upper = upper, .unit = unit };
    return answer(tni_solve_triangle(x, y, how), vector, a, b);
}

// The factorization is detached: the gradient of the solution goes to a past it.
static bool factor_lu(tn_tensor *a, int n, tn_tensor *y[3])
{
    return factor(TNI_LINALG_LU, false, tn_detach(a), n, y);
}

// y[0]: the solution, y[1]: info, if n is 2.
static bool solve(const char *op, tn_tensor *a, tn_tensor *b, int n, tn_tensor **y)
{
    tn_tensor *x = a, *r = b, *lu[3] = { NULL };
    bool       vector;
    if (!equation(op, &x, &r, true, &vector) || !factor_lu(x, 1 + n, lu)) return false;
    y[0] = answer(tni_lu_solve(x, r, lu[0], lu[1], false), vector, a, b);
    if (n > 1) y[1] = lu[2];
    return y[0] != NULL;
}

// A singular matrix gives NaN; tn_solve_ex says which it was.
tn_tensor *tn_solve(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *y = NULL;
    return solve("solve", a, b, 1, &y) ? y : NULL;
}

tn_status tn_solve_ex(tn_tensor *a, tn_tensor *b, tn_tensor **x, tn_tensor **info)
{
    tn_tensor *y[2] = { NULL, NULL };
    bool       ok   = solve("solve_ex", a, b, 2, y);
    return write_both("solve_ex", a ? a->cx : NULL, ok, y, x, info);
}

// As many identities as a has matrices.
static tn_tensor *identities(tn_tensor *a)
{
    return tn_expand(tni_eye_like(a), tn_rank(a), tni_sizes(a));
}

// The solutions for the columns of the identity.
static bool inverse(const char *op, tn_tensor *x, int n, tn_tensor **y)
{
    tn_tensor *lu[3] = { NULL }, *a = matrix_arg(op, x, "x", true);
    if (!a || !factor_lu(a, 1 + n, lu)) return false;
    y[0] = tni_narrow(tni_lu_solve(a, identities(a), lu[0], lu[1], false), tn_dtype_of(x));
    if (n > 1) y[1] = lu[2];
    return y[0] != NULL;
}

// Nothing asks for info here.
tn_tensor *tn_inv(tn_tensor *x)
{
    tn_tensor *y = NULL;
    return inverse("inv", x, 1, &y) ? y : NULL;
}

tn_status tn_inv_ex(tn_tensor *x, tn_tensor **inv, tn_tensor **info)
{
    tn_tensor *y[2] = { NULL, NULL };
    bool       ok   = inverse("inv_ex", x, 2, y);
    return write_both("inv_ex", x ? x->cx : NULL, ok, y, inv, info);
}

// ---- determinants ------------------------------------------------------------------------------

// The sign of the permutation of the rows: -1 for an odd number of pairs in the wrong order.
tn_tensor *tni_sign_of_order(tn_tensor *order, tn_dtype dt)
{
    tn_tensor *wrong = tn_triu(
        tn_cast(tn_gt(tn_unsqueeze(order, -1), tn_unsqueeze(order, -2)), TN_I32), 1);
    if (!wrong) return NULL;
    int        axes[] = { -2, -1 };
    tn_tensor *pairs  = tn_sum_axes(wrong, 2, axes, false);
    tn_tensor *odd    = tn_remainder(pairs, tni_number_like(pairs, 2));
    return tn_add_s(tn_mul_s(tn_cast(odd, dt), -2), 1);
}

// The parts of a determinant, detached: the diagonal of u, the sign of the rows' order.
// One factorization serves the value and its gradient.
static bool det_parts(const char *op, tn_tensor *x, tn_tensor **a, tn_tensor *lu[3],
                      tn_tensor **diagonal, tn_tensor **sign)
{
    *a = matrix_arg(op, x, "x", true);
    if (!*a || !factor_lu(*a, 2, lu)) return false;
    *diagonal = tn_diagonal(lu[0], 0, -2, -1);
    *sign     = tni_sign_of_order(lu[1], tn_dtype_of(*a));
    return *diagonal && *sign;
}

// The product of the pivots, and the sign of the order of rows. Its gradient is a rule of its own,
// which holds where pivots are 0.
tn_tensor *tn_det(tn_tensor *x)
{
    tn_tensor *a, *lu[3] = { NULL }, *d, *sign;
    if (!det_parts("det", x, &a, lu, &d, &sign)) return NULL;
    tn_tensor *v = tn_mul(tn_prod(d, -1), sign);
    return tni_narrow(with_gradient(TNI_LINALG_DET, 4, (tn_tensor *const[]){ v, a, lu[0], lu[1] }),
                      tn_dtype_of(x));
}

// The logarithm is the sum of those of the pivots, which does not overflow where the determinant
// does.
tn_status tn_slogdet(tn_tensor *x, tn_tensor **sign, tn_tensor **logabs)
{
    tn_tensor *a, *lu[3] = { NULL }, *d, *s;
    if (sign) *sign = NULL;
    if (logabs) *logabs = NULL;
    if (!det_parts("slogdet", x, &a, lu, &d, &s)) return tni_failed();
    if (!sign || !logabs)
        return tni_fail_status(x->cx, TN_EARG, "slogdet: %s is NULL", sign ? "logabs" : "sign");
    tn_tensor *l = tn_sum(tn_log(tn_abs(d)), -1);
    l            = with_gradient(TNI_LINALG_LOG_DET, 4, (tn_tensor *const[]){ l, a, lu[0], lu[1] });
    *logabs      = tni_narrow(l, tn_dtype_of(x));
    *sign        = tni_narrow(tn_mul(tn_prod(tn_sign(d), -1), s), tn_dtype_of(x));
    return *sign && *logabs ? TN_OK : tni_failed();
}

// ---- qr, eigenvalues, singular values ----------------------------------------------------------

// Of a wide matrix (X, Y): q r1 = X, and r = (r1, q' Y).
// So that one rule, for matrices with at least as many rows as columns, is the gradient of all.
static bool wide_qr(tn_tensor *a, tn_tensor *y[2])
{
    int64_t    m = tn_size(a, -2), n = tn_size(a, -1);
    tn_tensor *x = tn_slice(a, -1, 0, m, 1), *rest = tn_slice(a, -1, m, n, 1);
    if (!x || !factor(TNI_LINALG_QR, false, x, 2, y)) return false;
    rest = product(tni_mT(y[1]), rest);
    return rest && (y[0] = tn_concat(2, (tn_tensor *[]){ y[0], rest }, -1)) != NULL;
}

// A wide matrix has a square q in both forms.
tn_status tn_qr(tn_tensor *x, bool complete, tn_tensor **q, tn_tensor **upper)
{
    tn_tensor *y[2] = { NULL, NULL }, *a = matrix_arg("qr", x, "x", false);
    if (q) *q = NULL;
    if (upper) *upper = NULL;
    if (!a) return tni_failed();
    if (!upper) return tni_fail_status(x->cx, TN_EARG, "qr: upper is NULL");
    bool wide = tn_size(a, -2) < tn_size(a, -1);
    bool ok   = wide ? wide_qr(a, y) : factor(TNI_LINALG_QR, complete, a, q ? 2 : 1, y);
    if (!ok || !narrowed(x, q || wide ? 2 : 1, y)) return tni_failed();
    *upper = y[0];
    if (q) *q = y[1];
    return TN_OK;
}

// A matrix whose upper triangle counts is read by the lower one of its transpose.
tn_status tn_eigh(tn_tensor *x, bool upper, tn_tensor **w, tn_tensor **v)
{
    tn_tensor *y[2] = { NULL, NULL }, *a = matrix_arg("eigh", x, "x", true);
    if (w) *w = NULL;
    if (v) *v = NULL;
    if (!a) return tni_failed();
    if (!w || !v) return tni_fail_status(x->cx, TN_EARG, "eigh: %s is NULL", w ? "v" : "w");
    if (!factor(TNI_LINALG_EIGH, false, upper ? tni_mT(a) : a, 2, y) || !narrowed(x, 2, y))
        return tni_failed();
    *w = y[0], *v = y[1];
    return TN_OK;
}

// The eigenvectors are computed only if a gradient asks for them.
tn_tensor *tn_eigvalsh(tn_tensor *x, bool upper)
{
    tn_tensor *y = NULL, *a = matrix_arg("eigvalsh", x, "x", true);
    if (!a || !factor(TNI_LINALG_EIGH, false, upper ? tni_mT(a) : a, 1, &y)) return NULL;
    return tni_narrow(y, tn_dtype_of(x));
}

// The singular values are the op's own value: they are always wanted.
tn_status tn_svd(tn_tensor *x, bool full, tn_tensor **u, tn_tensor **s, tn_tensor **vh)
{
    tn_tensor *y[3] = { NULL, NULL, NULL }, *a = matrix_arg("svd", x, "x", false);
    if (u) *u = NULL;
    if (s) *s = NULL;
    if (vh) *vh = NULL;
    if (!a) return tni_failed();
    if (!u || !s || !vh)
        return tni_fail_status(x->cx, TN_EARG, "svd: %s is NULL", !u ? "u" : !s ? "s" : "vh");
    if (!factor(TNI_LINALG_SVD, full, a, 3, y) || !narrowed(x, 3, y)) return tni_failed();
    *s = y[0], *u = y[1], *vh = y[2];
    return TN_OK;
}

// Nothing asks for the vectors, so that they are not computed.
tn_tensor *tn_svdvals(tn_tensor *x)
{
    tn_tensor *y = NULL, *a = matrix_arg("svdvals", x, "x", false);
    if (!a || !factor(TNI_LINALG_SVD, false, a, 1, &y)) return NULL;
    return tni_narrow(y, tn_dtype_of(x));
}

// ---- by factorizations -------------------------------------------------------------------------

// Of a tall matrix a = q r: r x = q' b. Of a wide one a' = q r: the shortest x is q y with r' y =
// b. The gradient goes through q and r, which is right as long as r has an inverse.
tn_tensor *tn_lstsq(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *x = a, *y = b, *f[2] = { NULL, NULL };
    bool       vector;
    if (!equation("lstsq", &x, &y, false, &vector)) return NULL;
    bool                   tall = tn_size(x, -2) >= tn_size(x, -1);
    struct tni_attr_linalg how  = { .upper = true, .transposed = !tall };
    if (!factor(TNI_LINALG_QR, false, tall ? x : tni_mT(x), 2, f)) return NULL;
    tn_tensor *z = tall ? tni_solve_triangle(f[0], product(tni_mT(f[1]), y), how)
                        : product(f[1], tni_solve_triangle(f[0], y, how));
    return answer(z, vector, a, b);
}

// The largest size times the distance of 1 from the next number, as PyTorch and NumPy have it.
// A tolerance of the caller's is taken as it is.
static double tolerance(tn_tensor *a, double rtol)
{
    int64_t m = tn_size(a, -2), n = tn_size(a, -1);
    double  eps = tn_dtype_of(a) == TN_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    return rtol > 0 ? rtol : eps * (double)(m > n ? m : n);
}

// Singular values above a part of the largest one, as a bool; none of an empty matrix.
// NaN is above nothing.
static tn_tensor *above(tn_tensor *s, double rtol)
{
    if (s && !tn_size(s, -1)) return tn_gt(s, s);
    return tn_gt(s, tn_mul_s(tn_slice(s, -1, 0, 1, 1), rtol));
}

// Out of the SVD, which its own gradient does not go through: that has none where singular values
// are equal.
tn_tensor *tn_pinv(tn_tensor *x, double rtol)
{
    tn_tensor *f[3] = { NULL }, *a = matrix_arg("pinv", x, "x", false);
    if (!a || !factor(TNI_LINALG_SVD, false, tn_detach(a), 3, f)) return NULL;
    tn_tensor *by = tn_where(above(f[0], tolerance(a, rtol)), tn_reciprocal(f[0]),
                             tn_zeros_like(f[0]));
    tn_tensor *p  = product(tni_scale_columns(tni_mT(f[2]), by), tni_mT(f[1]));
    return tni_narrow(with_gradient(TNI_LINALG_PINV, 2, (tn_tensor *const[]){ p, a }),
                      tn_dtype_of(x));
}

// The singular values that are above the tolerance, counted.
tn_tensor *tn_matrix_rank(tn_tensor *x, double rtol)
{
    tn_tensor *s = NULL, *a = matrix_arg("matrix_rank", x, "x", false);
    if (!a || !factor(TNI_LINALG_SVD, false, tn_detach(a), 1, &s)) return NULL;
    return tn_sum(tn_cast(above(s, tolerance(a, rtol)), TN_I64), -1);
}

// By squares: 13 is 8 + 4 + 1.
tn_tensor *tn_matrix_power(tn_tensor *x, int64_t n)
{
    tn_tensor *a = matrix_arg("matrix_power", x, "x", true), *y = NULL;
    if (a && n < 0) a = tn_inv(a);
    if (!a) return NULL;
    for (uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n; left; left >>= 1) {
        if (left & 1) y = y ? product(y, a) : a;
        if (left > 1 && !(a = product(a, a))) return NULL;
        if (left & 1 && !y) return NULL;
    }
    return tni_narrow(n ? tn_clone(y) : tn_clone(identities(a)), tn_dtype_of(x));
}

// ---- norms -------------------------------------------------------------------------------------

// (sum |x|^p)^(1/p); of 2 by tn_norm, whose gradient at 0 is 0.
// Other powers than 1 and 2 are of pow, whose gradient at 0 is that of |x|^p.
tn_tensor *tn_vector_norm(tn_tensor *x, double p, int n, const int *axes, bool keep)
{
    tn_ctx *cx = tni_arg1("vector_norm", x, "x");
    if (!cx || !tni_want_float(x, "vector_norm")) return NULL;
    if (n < 0 || (n > 0 && !axes)) return tni_fail(cx, TN_EARG, "vector_norm: %d axes", n);
    if (isnan(p)) return tni_fail(cx, TN_EARG, "vector_norm: p is NaN");
    tn_tensor *a = tni_widen(x), *y;
    if (p == 2) return tni_narrow(tn_norm_axes(a, n, axes, keep), tn_dtype_of(x));
    a = tn_abs(a);
    if (isinf(p)) y = p > 0 ? tn_max_axes(a, n, axes, keep) : tn_min_axes(a, n, axes, keep);
    else if (p == 0) y = tn_sum_axes(tn_cast(tn_ne_s(a, 0), tn_dtype_of(a)), n, axes, keep);
    else if (p == 1) y = tn_sum_axes(a, n, axes, keep);
    else y = tn_pow_s(tn_sum_axes(tn_pow_s(a, p), n, axes, keep), 1 / p);
    return tni_narrow(y, tn_dtype_of(x));
}

// The extreme of sums of columns or rows.
// Of columns for the norm 1, of rows for the infinite one.
static tn_tensor *sums_norm(tn_tensor *a, bool columns, bool smallest)
{
    tn_tensor *s = tn_sum(tn_abs(a), columns ? -2 : -1);
    return smallest ? tn_min(s, -1) : tn_max(s, -1);
}

// Norms by sums of elements, or by singular values, whose gradient needs no gaps between them.
tn_tensor *tn_matrix_norm(tn_tensor *x, tn_matrix_norm_kind kind)
{
    tn_tensor *y, *a = matrix_arg("matrix_norm", x, "x", false);
    if (!a) return NULL;
    switch (kind) {
    case TN_NORM_FRO: y = tn_norm_axes(a, 2, (int[]){ -2, -1 }, false); break;
    case TN_NORM_NUC: y = tn_sum(tn_svdvals(a), -1); break;
    case TN_NORM_1: y = sums_norm(a, true, false); break;
    case TN_NORM_INF: y = sums_norm(a, false, false); break;
    case TN_NORM_MINUS_1: y = sums_norm(a, true, true); break;
    case TN_NORM_MINUS_INF: y = sums_norm(a, false, true); break;
    case TN_NORM_2: y = tn_max(tn_svdvals(a), -1); break;
    case TN_NORM_MINUS_2: y = tn_min(tn_svdvals(a), -1); break;
    default: return tni_fail(x->cx, TN_EARG, "matrix_norm: there is no norm %d", (int)kind);
    }
    return tni_narrow(y, tn_dtype_of(x));
}

// By singular values, or the norms of the matrix and of its inverse.
// A singular matrix has an infinite condition by singular values, and NaN by its inverse.
tn_tensor *tn_cond(tn_tensor *x, tn_matrix_norm_kind kind)
{
    bool       two = kind == TN_NORM_2 || kind == TN_NORM_MINUS_2;
    tn_tensor *y, *a = matrix_arg("cond", x, "x", !two);
    if (!a) return NULL;
    if (two) {
        tn_tensor *s = tn_svdvals(a), *most = tn_max(s, -1), *least = tn_min(s, -1);
        y = kind == TN_NORM_2 ? tn_div(most, least) : tn_div(least, most);
    } else {
        y = tn_matrix_norm(a, kind);
        if (y) y = tn_mul(y, tn_matrix_norm(tn_inv(a), kind));
    }
    return tni_narrow(y, tn_dtype_of(x));
}
