// The gradients of linear algebra, written with products and with calls of the same row, so that
// they can be differentiated any further. Giles, "Collected matrix derivative results"; what each
// is of is in tni_linalg_kind.
#include "ops/linalg.h"
#include "ops/op_functions.h"

#include <float.h>

// Source i of the node.
static tn_tensor *source(tni_grad_args *r, int i)
{
    return tni_wrap_node(r->cx, r->n->src[i]);
}

// a' b and a b'.
static tn_tensor *mul_t_n(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(tni_mT(a), b);
}

static tn_tensor *mul_n_t(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(a, tni_mT(b));
}

// a + b, where either may be missing.
static tn_tensor *plus(tn_tensor *a, tn_tensor *b)
{
    return a && b ? tn_add(a, b) : a ? a : b;
}

// The lower triangle of x with half of its diagonal.
static tn_tensor *half_lower(tn_tensor *x)
{
    return tn_mul_s(tn_add(tn_tril(x, 0), tn_tril(x, -1)), 0.5);
}

// x' s = x for s symmetric: l^-T x l^-1.
// From da = dl l' + l dl': l^-1 da l^-T is s + s', where s = l^-1 dl is lower, so that dl = l (the
// half of it). The gradient is that of a symmetric matrix: both triangles get a half.
static void grad_cholesky(tni_grad_args *r)
{
    struct tni_attr_linalg t = { .transposed = true };
    tn_tensor             *l = tni_wrap_node(r->cx, r->n);
    if (!r->g) return;
    tn_tensor *s = tni_solve_triangle(l, half_lower(mul_t_n(l, r->g)), t);
    s            = tni_mT(tni_solve_triangle(l, tni_mT(s), t));
    r->gx[0]     = tn_mul_s(tn_add(s, tni_mT(s)), 0.5);
}

// op(a) x = b: gb = op(a)^-T g, and -gb x' for op(a), of which only a triangle may count.
// The factors of a are used again, so that the gradient costs no second factorization; the right
// sides get their gradient in any case, since a's is made of it.
static void grad_solve(tni_grad_args *r)
{
    struct tni_attr_linalg how = r->n->attr.linalg;
    bool                   lu = how.kind == TNI_LINALG_LU_SOLVE, t = how.transposed;
    tn_tensor             *a = source(r, 0), *x = tni_wrap_node(r->cx, r->n), *gb;
    how.transposed = !t;
    gb             = lu ? tni_lu_solve(a, r->g, source(r, 2), source(r, 3), !t)
                        : tni_solve_triangle(a, r->g, how);
    if (r->need[1]) r->gx[1] = gb;
    if (!r->need[0]) return;
    tn_tensor *ga = tn_neg(t ? mul_n_t(x, gb) : mul_n_t(gb, x));
    if (lu) r->gx[0] = ga;
    else r->gx[0] = how.upper ? tn_triu(ga, how.unit) : tn_tril(ga, -(int64_t)how.unit);
}

// (gq + q (s + s' - diag s)) r^-T, with s the upper triangle of gr r' - q' gq, for q with as many
// columns as r. The rows of a complete q beyond those of r are not determined by the matrix, and
// have no gradient.
static void grad_qr(tni_grad_args *r, tni_node **n)
{
    tn_tensor *gr = r->out_g[0], *gq = r->out_g[1], *R = tni_wrap_node(r->cx, *n);
    tn_tensor *q = tni_linalg_output(r->cx, n, 1);
    if (r->n->attr.linalg.full && tn_size(q, -1) != tn_size(R, -1)) {
        tni_fail(r->cx, TN_EGRAD, "qr: a complete q of more rows than columns has no gradient");
        return;
    }
    tn_tensor *s = plus(gr ? mul_n_t(gr, R) : NULL, gq ? tn_neg(mul_t_n(q, gq)) : NULL);
    s            = tn_triu(s, 0);
    s            = tn_add(s, tni_mT(tn_triu(s, 1)));
    s            = plus(tn_matmul(q, s), gq);
    // y r' = s is r y' = s'.
    struct tni_attr_linalg how = { .upper = true };
    r->gx[0]                   = tni_mT(tni_solve_triangle(R, tni_mT(s), how));
}

// 1 / (w_j - w_i) off the diagonal, 0 on it.
// The diagonal of the gaps is 0, and gets a 1 before it is divided by, so that no infinity has to
// be taken out afterwards.
static tn_tensor *inverse_gaps(tn_tensor *w)
{
    tn_tensor *gap = tn_sub(tn_unsqueeze(w, -2), tn_unsqueeze(w, -1)), *eye = tni_eye_like(w);
    return tn_div(tn_add_s(tn_neg(eye), 1), tn_add(gap, eye));
}

// v (diag gw + (v' gv) / gaps) v'.
// From dw = diag(v' da v) and dv = v ((v' da v) / gaps). Equal eigenvalues have no gradient of
// their vectors: gaps of 0 give infinities, as in PyTorch.
static void grad_eigh(tni_grad_args *r, tni_node **n)
{
    tn_tensor *v = tni_linalg_output(r->cx, n, 1), *w = tni_wrap_node(r->cx, *n), *s;
    tn_tensor *gw = r->out_g[0], *gv = r->out_g[1];
    s        = gv ? tn_matmul(v, tn_mul(mul_t_n(v, gv), inverse_gaps(w))) : NULL;
    s        = plus(gw ? tni_scale_columns(v, gw) : NULL, s);
    r->gx[0] = mul_n_t(s, v);
}

// x - x'.
static tn_tensor *skew(tn_tensor *x)
{
    return tn_sub(x, tni_mT(x));
}

// u ((skew(u' gu) / gaps) s + s (skew(v' gv) / gaps) + diag gs) v', and what gu and gv have outside
// of the spaces of u and v. Gaps are those of the squares.
// Vectors of square factors beyond the singular values are not determined either.
static void grad_svd(tni_grad_args *r, tni_node **n)
{
    tn_tensor *s = tni_wrap_node(r->cx, *n), *u = tni_linalg_output(r->cx, n, 1);
    tn_tensor *vh = tni_linalg_output(r->cx, n, 2), *gs = r->out_g[0], *gu = r->out_g[1];
    tn_tensor *gvh = r->out_g[2], *mid = gs ? tni_scale_columns(tni_eye_like(s), gs) : NULL,
              *gx = NULL;
    if (!u || !vh) return;
    if (r->n->attr.linalg.full && (gu || gvh) && tn_size(u, -1) != tn_size(vh, -1)) {
        tni_fail(r->cx, TN_EGRAD,
                 "svd: full factors of a matrix that is not square have no gradient");
        return;
    }
    int64_t k       = tn_size(s, -1);
    u               = tn_slice(u, -1, 0, k, 1);
    vh              = tn_slice(vh, -2, 0, k, 1);
    tn_tensor *gaps = gu || gvh ? inverse_gaps(tn_mul(s, s)) : NULL;
    if (gu) mid = plus(mid, tni_scale_columns(tn_mul(skew(mul_t_n(u, gu)), gaps), s));
    if (gvh) mid = plus(mid, tn_mul(tn_unsqueeze(s, -1), tn_mul(skew(mul_n_t(vh, gvh)), gaps)));
    gx = tn_matmul(tn_matmul(u, mid), vh);
    if (gu && tn_size(u, -2) > k) {
        tn_tensor *out = tni_scale_columns(tn_sub(gu, tn_matmul(u, mul_t_n(u, gu))),
                                           tn_reciprocal(s));
        gx             = tn_add(gx, tn_matmul(out, vh));
    }
    if (gvh && tn_size(vh, -1) > k) {
        tn_tensor *out = tn_sub(gvh, tn_matmul(mul_n_t(gvh, vh), vh));
        gx             = tn_add(gx, tn_matmul(tni_scale_columns(u, tn_reciprocal(s)), out));
    }
    r->gx[0] = gx;
}

// g det a^-T. Pivots of a singular matrix that are 0 count as tiny ones, in the determinant as in
// the inverse, so that a matrix of rank n - 1 gets its cofactors.
// d log|det| = trace(a^-1 da), and d det is det times that.
static void grad_det(tni_grad_args *r)
{
    bool       log = r->n->attr.linalg.kind == TNI_LINALG_LOG_DET;
    tn_tensor *a = source(r, 1), *lu = source(r, 2), *order = source(r, 3), *g = r->g;
    if (!log && lu) {
        tn_tensor *det  = tni_wrap_node(r->cx, r->n);
        double     tiny = tn_dtype_of(lu) == TN_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
        tn_tensor *eye  = tni_eye_like(lu),
                  *zero = tn_mul(eye, tn_cast(tn_eq_s(lu, 0), tn_dtype_of(lu)));
        lu              = tn_add(lu, tn_mul_s(zero, tiny));
        tn_tensor *d    = tn_mul(tn_prod(tn_diagonal(lu, 0, -2, -1), -1),
                                 tni_sign_of_order(order, tn_dtype_of(lu)));
        g               = tn_mul(g, tn_where(tn_eq_s(det, 0), d, det));
    }
    tn_tensor *one = tn_expand(tni_eye_like(a), tn_rank(a), tni_sizes(a));
    tn_tensor *inv = tni_lu_solve(a, one, lu, order, true);
    r->gx[1]       = tn_mul(tn_unsqueeze(tn_unsqueeze(g, -1), -1), inv);
}

// With p of a: -p' g p' + (I - a p) g' p p' + p' p g' (I - p a). Golub and Pereyra.
// The rank is taken to stay what it is: where it changes, the pseudo-inverse jumps.
static void grad_pinv(tni_grad_args *r)
{
    tn_tensor *p = tni_wrap_node(r->cx, r->n), *a = source(r, 1), *t = tni_mT(r->g);
    tn_tensor *gx = tn_neg(tn_matmul(mul_t_n(p, r->g), tni_mT(p)));
    tn_tensor *b  = tn_sub(t, tn_matmul(a, tn_matmul(p, t)));
    tn_tensor *c  = tn_sub(t, tn_matmul(tn_matmul(t, p), a));
    gx            = tn_add(gx, tn_matmul(tn_matmul(b, p), tni_mT(p)));
    r->gx[1]      = tn_add(gx, mul_t_n(p, tn_matmul(p, c)));
}

// A rule that asks for an output may record its node again: it holds that until it is done.
void tni_grad_linalg(tni_grad_args *r)
{
    tni_node *n = tni_node_ref(r->n);
    switch ((tni_linalg_kind)r->n->attr.linalg.kind) {
    case TNI_LINALG_CHOLESKY: grad_cholesky(r); break;
    case TNI_LINALG_TRIANGULAR:
    case TNI_LINALG_LU_SOLVE: grad_solve(r); break;
    case TNI_LINALG_QR: grad_qr(r, &n); break;
    case TNI_LINALG_EIGH: grad_eigh(r, &n); break;
    case TNI_LINALG_SVD: grad_svd(r, &n); break;
    case TNI_LINALG_DET:
    case TNI_LINALG_LOG_DET: grad_det(r); break;
    case TNI_LINALG_PINV: grad_pinv(r); break;
    default: break;
    }
    tni_node_unref(r->cx, n);
}
