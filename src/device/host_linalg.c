// Our own linear algebra: plain algorithms in double over row-major matrices, whose inner loops run
// along rows. cholesky by dot products, lu by rows with partial pivoting, qr by Householder's
// reflections with LAPACK's signs, eigenvalues and singular values by Jacobi's rotations.
//
// Everything is in double, whatever the dtype: f32 is converted when a matrix is read and rounded
// when its results are written, so that one algorithm serves both and its errors are those of the
// last rounding. That also makes it what other devices are compared with.
//
// Matrices are worked on by rows, since that is how they lie in memory. Where an algorithm is of
// columns (qr, the rotations of an SVD), a transposed copy has them as rows.
#include "device/host_linalg.h"

#include "base/pool.h"

#include <math.h>
#include <string.h>

// ---- calls -------------------------------------------------------------------------------------

tn_status tni_linalg_copy_value(const tni_call *c)
{
    tni_call copy = tni_call_within(c, TNI_copy);
    copy.nin      = 1;
    copy.nmore    = 0;
    return tni_call_run(&copy);
}

// Sizes are those of in[0], (..., m, n), and of the right sides, (..., n, k); the elements of each
// operand of one matrix follow from the kind.
tni_linalg tni_linalg_of(const tni_call *c)
{
    const tni_arg *a = &c->in[0];
    tni_linalg     f = { .how = c->attr->linalg, .batch = 1 };
    int            r = a->rank;
    for (int i = 0; i < r - 2; i++) f.batch *= a->size[i];
    f.m = a->size[r - 2], f.n = a->size[r - 1];
    if (c->nin > 1) f.k = c->in[1].size[r - 1];
    int64_t least = f.m < f.n ? f.m : f.n, mn = f.m * f.n, nk = f.n * f.k;
    bool    full  = f.how.full;
    f.inner       = full ? f.m : least;
    int64_t in[4] = { mn, nk, mn, f.n }, out[3] = { mn, 1, 1 };
    switch ((tni_linalg_kind)f.how.kind) {
    case TNI_LINALG_LU: out[1] = f.n; break;
    case TNI_LINALG_TRIANGULAR:
    case TNI_LINALG_LU_SOLVE: out[0] = nk; break;
    case TNI_LINALG_QR: out[0] = f.inner * f.n, out[1] = f.m * f.inner; break;
    case TNI_LINALG_EIGH: out[0] = f.n, out[1] = mn; break;
    case TNI_LINALG_SVD:
        out[0] = least, out[1] = f.m * f.inner, out[2] = (full ? f.n : least) * f.n;
        break;
    default: break;
    }
    for (int i = 0; i < c->nin; i++)
        f.in[i] = (tni_linalg_array){ c->in[i].dtype, c->in[i].data, in[i] };
    for (int i = 0; i <= c->nmore && i < 3; i++) {
        const tni_arg *y = tni_call_output(c, i);
        f.out[i]         = (tni_linalg_array){ y->dtype, y->data, out[i] };
    }
    return f;
}

// Reads operand x of matrix i as doubles; writes them; writes integers. What nothing reads is not
// written.
static void load(const tni_linalg_array *x, int64_t i, double *to)
{
    if (x->dtype == TN_F64) memcpy(to, x->data + i * x->count * 8, (size_t)x->count * sizeof *to);
    else
        for (int64_t j = 0; j < x->count; j++) to[j] = ((const float *)x->data)[i * x->count + j];
}

static void store(const tni_linalg_array *x, int64_t i, const double *from)
{
    if (!x->data) return;
    if (x->dtype == TN_F64)
        memcpy(x->data + i * x->count * 8, from, (size_t)x->count * sizeof *from);
    else
        for (int64_t j = 0; j < x->count; j++)
            ((float *)x->data)[i * x->count + j] = (float)from[j];
}

static void store_int(const tni_linalg_array *x, int64_t at, int64_t v)
{
    if (!x->data) return;
    if (x->dtype == TN_I32) ((int32_t *)x->data)[at] = (int32_t)v;
    else ((int64_t *)x->data)[at] = v;
}

void tni_linalg_fail(const tni_linalg *f, int64_t i)
{
    for (int o = 0; o < 3; o++) {
        const tni_linalg_array *x = &f->out[o];
        for (int64_t j = i * x->count; x->data && j < (i + 1) * x->count; j++) {
            if (x->dtype == TN_F64) ((double *)x->data)[j] = (double)NAN;
            else if (x->dtype == TN_F32) ((float *)x->data)[j] = NAN;
        }
    }
}

// Exchanges are done in the order in which they were found.
void tni_linalg_order(int64_t n, const int32_t *pivot, int64_t *order)
{
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = 0; i < n; i++) {
        int64_t p = pivot[i] - 1, was = order[i];
        if (p < 0 || p >= n) continue;  // of a NaN some libraries give no pivot
        order[i] = order[p], order[p] = was;
    }
}

// ---- rows: what all algorithms below are made of -----------------------------------------------

// Four sums, so that additions do not wait for each other.
static double dot(int64_t n, const double *x, const double *y)
{
    double  s[4] = { 0 };
    int64_t i    = 0;
    for (; i + 4 <= n; i += 4)
        for (int l = 0; l < 4; l++) s[l] += x[i + l] * y[i + l];
    for (; i < n; i++) s[0] += x[i] * y[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

static void add_scaled(int64_t n, double f, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) y[i] += f * x[i];
}

static void swap_rows(int64_t n, double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        double t = x[i];
        x[i] = y[i], y[i] = t;
    }
}

// (x, y) = (c x - s y, s x + c y).
static void rotate(int64_t n, double c, double s, double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        double u = x[i], v = y[i];
        x[i] = c * u - s * v, y[i] = s * u + c * v;
    }
}

// y (n, m) = x', of x (m, n).
static void transpose(int64_t m, int64_t n, const double *x, double *y)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) y[j * m + i] = x[i * n + j];
}

// x becomes the identity.
static void set_identity(int64_t n, double *x)
{
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
}

// Whether there is no infinity and no NaN among n numbers.
static bool all_finite(int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

// ---- cholesky, lu, solutions -------------------------------------------------------------------

// The lower triangle of a becomes l, the rest zeros; returns the order of the first minor that is
// not positive, or 0.
// Row i of l needs the rows before it and itself up to the place: l_ij = (a_ij - l_i . l_j) / l_jj,
// over the first j elements. A pivot that is NaN is not positive either.
static int64_t cholesky(int64_t n, double *a)
{
    for (int64_t i = 0; i < n; i++) {
        double *r = a + i * n;
        for (int64_t j = 0; j < i; j++) r[j] = (r[j] - dot(j, r, a + j * n)) / a[j * n + j];
        double d = r[i] - dot(i, r, r);
        if (!(d > 0)) return i + 1;
        r[i] = sqrt(d);
        memset(r + i + 1, 0, (size_t)(n - i - 1) * sizeof *r);
    }
    return 0;
}

// a becomes l and u, order the rows of a; returns the first pivot that is 0, from 1, or 0.
// Step k puts the row with the largest element of column k in place k, and takes multiples of it
// from the rows below, so that these have 0 there; the multiples stay in that place as l. Of a
// column of zeros nothing is to be taken.
static int64_t lu(int64_t n, double *a, int64_t *order)
{
    int64_t info = 0;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t k = 0; k < n; k++) {
        int64_t p = k, was = order[k];
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[p * n + k])) p = i;
        if (p != k) swap_rows(n, a + p * n, a + k * n);
        order[k] = order[p], order[p] = was;
        if (a[k * n + k] == 0) {
            if (!info) info = k + 1;
            continue;
        }
        for (int64_t i = k + 1; i < n; i++) {
            double *r = a + i * n;
            r[k] /= a[k * n + k];
            add_scaled(n - k - 1, -r[k], a + k * n + k + 1, r + k + 1);
        }
    }
    return info;
}

// x (n, k) becomes the solution of op(a) x = x.
// Each row of x is found by the rows that were found before it: from the first one on for a lower
// triangle, from the last one on for an upper one. A transposed triangle is the other one, read by
// columns.
static void solve_triangle(int64_t n, int64_t k, const double *a, double *x, bool upper,
                           bool transposed, bool unit)
{
    bool back = upper != transposed;
    for (int64_t s = 0; s < n; s++) {
        int64_t i = back ? n - 1 - s : s;
        for (int64_t t = 0; t < s; t++) {
            int64_t j = back ? n - 1 - t : t;
            add_scaled(k, -(transposed ? a[j * n + i] : a[i * n + j]), x + j * k, x + i * k);
        }
        for (int64_t j = 0; !unit && j < k; j++) x[i * k + j] /= a[i * n + i];
    }
}

// op(a) x = b by a = p' l u; to is where x goes, in matrix memory of its own.
// For the transposed equations the order of rows comes last, and is undone.
static void solve_lu(const tni_linalg *f, const double *a, const int64_t *order, double *b,
                     double *to)
{
    int64_t n = f->n, k = f->k;
    if (f->how.transposed) {
        solve_triangle(n, k, a, b, true, true, false);
        solve_triangle(n, k, a, b, false, true, true);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t from = f->how.transposed ? i : order[i], at = f->how.transposed ? order[i] : i;
        memcpy(to + at * k, b + from * k, (size_t)k * sizeof *b);
    }
    if (f->how.transposed) return;
    solve_triangle(n, k, a, to, false, false, true);
    solve_triangle(n, k, a, to, true, false, false);
}

// ---- qr ----------------------------------------------------------------------------------------

// Reflects x, a column of m elements, by I - tau v v', where v is 0 before `from` and 1 there.
static void reflect(int64_t m, int64_t from, double tau, const double *v, double *x)
{
    double s = tau * (x[from] + dot(m - from - 1, v + from + 1, x + from + 1));
    x[from] -= s;
    add_scaled(m - from - 1, -s, v + from + 1, x + from + 1);
}

// t has the n columns of a, each of m elements; r stays in their beginnings, and q gets `inner`
// columns. tau: n numbers.
// Reflection k makes column k of a zero below its place k, and v, which is normal to its mirror,
// takes the place of these zeros. q is the product of all reflections: it is made from the last one
// on, so that column j is only touched by the first j of them.
static void qr(int64_t m, int64_t n, int64_t inner, double *t, double *q, double *tau)
{
    int64_t steps = m < n ? m : n;
    for (int64_t k = 0; k < steps; k++) {
        double *v = t + k * m, tail = 0;
        for (int64_t i = k + 1; i < m; i++) tail = hypot(tail, v[i]);
        tau[k] = 0;
        if (tail == 0) continue;  // LAPACK reflects nothing then
        double beta = -copysign(hypot(v[k], tail), v[k]);
        tau[k]      = (beta - v[k]) / beta;
        for (int64_t i = k + 1; i < m; i++) v[i] /= v[k] - beta;
        v[k] = beta;
        for (int64_t j = k + 1; j < n; j++) reflect(m, k, tau[k], v, t + j * m);
    }
    memset(q, 0, (size_t)(m * inner) * sizeof *q);
    for (int64_t j = 0; j < inner; j++) q[j * m + j] = 1;
    for (int64_t k = steps - 1; k >= 0; k--)
        for (int64_t j = k; j < inner; j++) reflect(m, k, tau[k], t + k * m, q + j * m);
}

// ---- eigenvalues and singular values -----------------------------------------------------------

// The rotation that makes the product of two directions 0: p, q on the diagonal and r beside it.
// Of the two angles it is the smaller one, whose tangent has no cancellation.
static void rotation(double p, double q, double r, double *c, double *s)
{
    double z = (q - p) / (2 * r), t = copysign(1, z) / (fabs(z) + hypot(1, z));
    *c = 1 / hypot(1, t), *s = t * *c;
}

// Jacobi's method converges quadratically: six to ten rounds for any matrix in double.
enum { ROUNDS = 40 };

// a, symmetric, becomes diagonal; the rows of v become eigenvectors. What is small beside the whole
// matrix counts as 0: eigenvalues have no more digits than that.
// A rotation of two rows, and of the same two columns, makes the element where they cross 0. It
// makes other elements that were 0 not so, but the sum of squares beside the diagonal falls by that
// of the element each time.
static void jacobi_eigen(int64_t n, double *a, double *v)
{
    double small = 1e-17 * sqrt(dot(n * n, a, a));
    set_identity(n, v);
    for (int round = 0, turned = 1; turned && round < ROUNDS; round++) {
        turned = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double r = a[p * n + q], c, s;
                if (fabs(r) <= small) continue;
                turned = 1;
                rotation(a[p * n + p], a[q * n + q], r, &c, &s);
                rotate(n, c, s, a + p * n, a + q * n);
                for (int64_t i = 0; i < n; i++) rotate(1, c, s, a + i * n + p, a + i * n + q);
                a[p * n + q] = a[q * n + p] = 0;
                rotate(n, c, s, v + p * n, v + q * n);
            }
    }
}

// The rows of w (n, m), n <= m, become orthogonal by rotations, which v (n, n) gets as well.
// One-sided: the eigenvalues of w w' by rotations of w alone, whose product is never formed, so
// that small singular values keep their digits.
static void jacobi_singular(int64_t m, int64_t n, double *w, double *v)
{
    set_identity(n, v);
    for (int round = 0, turned = 1; turned && round < ROUNDS; round++) {
        turned = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double *x = w + p * m, *y = w + q * m, c, s;
                double  xx = dot(m, x, x), yy = dot(m, y, y), xy = dot(m, x, y);
                if (fabs(xy) <= 1e-16 * sqrt(xx) * sqrt(yy) || fabs(xy) < 1e-300) continue;
                turned = 1;
                rotation(xx, yy, xy, &c, &s);
                rotate(m, c, s, x, y);
                rotate(n, c, s, v + p * n, v + q * n);
            }
    }
}

// Sorts rows of x and y by a number each, rising or falling: n are few, and exchanges of rows
// cheap. The vectors move with their numbers; y may be missing.
static void sort_rows(int64_t n, double *by, bool falling, int64_t nx, double *x, int64_t ny,
                      double *y)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i;
        for (int64_t j = i + 1; j < n; j++)
            if (falling ? by[j] > by[first] : by[j] < by[first]) first = j;
        if (first == i) continue;
        swap_rows(1, by + i, by + first);
        swap_rows(nx, x + i * nx, x + first * nx);
        if (y) swap_rows(ny, y + i * ny, y + first * ny);
    }
}

// The lower triangle is mirrored first. The method does not end well with infinities, which have no
// eigenvalues.
static void run_eigh(const tni_linalg *f, int64_t i, double *a, double *v)
{
    int64_t n = f->n;
    for (int64_t p = 0; p < n; p++)
        for (int64_t q = 0; q < p; q++) a[q * n + p] = a[p * n + q];
    if (!all_finite(n * n, a)) {
        tni_linalg_fail(f, i);
        return;
    }
    jacobi_eigen(n, a, v);
    for (int64_t p = 0; p < n; p++) a[p] = a[p * n + p];
    sort_rows(n, a, false, n, v, 0, NULL);
    store(&f->out[0], i, a);
    transpose(n, n, v, a);
    store(&f->out[1], i, a);
}

// Orthonormal rows from `have` to `want` of x (want, m), by a QR of those that there are. t: m m,
// q: m want, tau: m numbers.
// The rows that there are stay: those of q may differ from them in sign.
static void complete_rows(int64_t m, int64_t have, int64_t want, double *x, double *t, double *q,
                          double *tau)
{
    if (have == want) return;
    memcpy(t, x, (size_t)(have * m) * sizeof *x);
    qr(m, have, want, t, q, tau);
    memcpy(x + have * m, q + have * m, (size_t)((want - have) * m) * sizeof *x);
}

// Of the matrix or its transpose, whichever has the longer rows: w = s u' for a' = u s v'.
// Directions of singular values that are 0, and those that a square factor has more, are any
// orthonormal ones. Everything that is asked for is made here, also if only the singular values are
// read.
static void run_svd(const tni_linalg *f, int64_t i, double *a, double *work)
{
    bool    tall = f->m >= f->n;
    int64_t M = tall ? f->m : f->n, N = tall ? f->n : f->m, rank = 0;
    int64_t want = f->how.full ? M : N;
    double *w = work, *v = w + M * M, *t = v + N * N, *q = t + M * M, *s = q + M * M, *tau = s + N;
    if (!all_finite(M * N, a)) {
        tni_linalg_fail(f, i);
        return;
    }
    if (tall) transpose(M, N, a, w);
    else memcpy(w, a, (size_t)(M * N) * sizeof *w);
    jacobi_singular(M, N, w, v);
    for (int64_t p = 0; p < N; p++) s[p] = sqrt(dot(M, w + p * M, w + p * M));
    sort_rows(N, s, true, M, w, N, v);
    // A direction that rounding alone gave a length is as good as any.
    while (rank < N && s[rank] > 1e-15 * s[0] && s[rank] > 1e-150) rank++;
    for (int64_t p = 0; p < rank; p++)
        for (int64_t j = 0; j < M; j++) w[p * M + j] /= s[p];
    complete_rows(M, rank, want, w, t, q, tau);
    store(&f->out[0], i, s);
    // w has want rows of M, the long side's vectors; v N rows of N, the short side's.
    transpose(want, M, w, t);
    transpose(N, N, v, q);
    store(&f->out[tall ? 1 : 2], i, tall ? t : w);
    store(&f->out[tall ? 2 : 1], i, tall ? v : q);
}

// ---- one matrix --------------------------------------------------------------------------------

// The matrix in double, and what its kind needs: columns for qr, both factors and a basis for svd,
// right sides and solutions.
int64_t tni_linalg_work(const tni_linalg *f)
{
    int64_t most = f->m > f->n ? f->m : f->n, mn = f->m * f->n;
    if (f->how.kind == TNI_LINALG_SVD) return mn + 5 * most * most + 2 * most;
    if (f->how.kind == TNI_LINALG_QR) return 2 * mn + 2 * f->m * f->inner + most;
    return 2 * mn + 2 * f->n * f->k + f->n;
}

// r (inner, n), row-major, from the columns t.
static void run_qr(const tni_linalg *f, int64_t i, double *a, double *t)
{
    int64_t m = f->m, n = f->n, inner = f->inner;
    double *q = t + m * n, *y = q + m * inner, *tau = y + m * inner;
    transpose(m, n, a, t);
    qr(m, n, inner, t, q, tau);
    for (int64_t p = 0; p < inner; p++)
        for (int64_t j = 0; j < n; j++) a[p * n + j] = j < p ? 0 : t[j * m + p];
    transpose(inner, m, q, y);
    store(&f->out[0], i, a);
    store(&f->out[1], i, y);
}

// Whether u has a 0 on its diagonal.
static bool has_zero_pivot(int64_t n, const double *a)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i * n + i] == 0) return true;
    return false;
}

// l and u share the memory of a.
static void run_lu(const tni_linalg *f, int64_t i, double *a, int64_t *order)
{
    store_int(&f->out[2], i, lu(f->n, a, order));
    store(&f->out[0], i, a);
    for (int64_t j = 0; j < f->n; j++) store_int(&f->out[1], i * f->n + j, order[j]);
}

// By one triangle of a, or by l and u; a pivot of 0 has no solution.
static void run_solve(const tni_linalg *f, int64_t i, double *a, double *b)
{
    bool           by_lu = f->how.kind == TNI_LINALG_LU_SOLVE;
    double        *x     = b + f->n * f->k;
    const int64_t *order = by_lu ? (const int64_t *)f->in[3].data + i * f->n : NULL;
    load(&f->in[by_lu ? 2 : 0], i, a);
    load(&f->in[1], i, b);
    if (by_lu && has_zero_pivot(f->n, a)) {
        tni_linalg_fail(f, i);
        return;
    }
    if (by_lu) solve_lu(f, a, order, b, x);
    else solve_triangle(f->n, f->k, a, b, f->how.upper, f->how.transposed, f->how.unit);
    store(&f->out[0], i, by_lu ? x : b);
}

// Work begins with the matrix in double; what follows is the kind's own.
void tni_linalg_run(const tni_linalg *f, int64_t i, double *work)
{
    double *a = work, *rest = work + f->m * f->n;
    if (f->how.kind == TNI_LINALG_TRIANGULAR || f->how.kind == TNI_LINALG_LU_SOLVE) {
        run_solve(f, i, a, rest);
        return;
    }
    load(&f->in[0], i, a);
    switch ((tni_linalg_kind)f->how.kind) {
    case TNI_LINALG_CHOLESKY: {
        int64_t info = cholesky(f->n, a);
        store(&f->out[0], i, a);
        if (info) tni_linalg_fail(f, i);
        store_int(&f->out[1], i, info);
        break;
    }
    case TNI_LINALG_LU: run_lu(f, i, a, (int64_t *)rest); break;
    case TNI_LINALG_QR: run_qr(f, i, a, rest); break;
    case TNI_LINALG_EIGH: run_eigh(f, i, a, rest); break;
    case TNI_LINALG_SVD: run_svd(f, i, a, rest); break;
    default: break;
    }
}

// ---- on the host, for any device ---------------------------------------------------------------

// A call of another device as one of the cpu device, with operands in host memory: at most four
// inputs and three outputs.
enum { OPERANDS = 7 };
typedef struct {
    tni_call call;
    tni_arg  arg[OPERANDS];
} host_call;

// The elements of an operand, of all matrices.
static int64_t arg_count(const tni_arg *x)
{
    return tni_shape_count(x->rank, x->size);
}

// Operand i of a call: its inputs, then its outputs.
static const tni_arg *operand(const tni_call *c, int i)
{
    return i < c->nin ? &c->in[i] : tni_call_output(c, i - c->nin);
}

// Memory for every operand that is there, and for what the cpu device wants beside them. False if
// memory is out. Operands are dense, so that the host's copies have the same strides. What nothing
// reads has no memory, and is not computed there either.
static bool open_host_call(host_call *h, const tni_call *c, tni_heap *heap)
{
    int n   = c->nin + 1 + c->nmore;
    h->call = tni_call_within(c, c->op);
    bool ok = true;
    for (int i = 0; i < n; i++) {
        h->arg[i] = *operand(c, i);
        if (!h->arg[i].data) continue;
        size_t bytes   = (size_t)arg_count(&h->arg[i]) * tni_dtype_size(h->arg[i].dtype);
        h->arg[i].data = ok ? tni_alloc64(heap, bytes + 1) : NULL;
        ok             = h->arg[i].data != NULL;
    }
    h->call.device  = &tni_device_cpu;
    h->call.session = heap;
    h->call.in      = h->arg;
    h->call.out     = h->arg[c->nin];
    h->call.more    = h->arg + c->nin + 1;
    h->call.threads = tni_threads_default();
    h->call.scratch = ok ? tni_alloc64(heap, tni_call_scratch(&h->call) + 1) : NULL;
    return ok && h->call.scratch;
}

// Brings the inputs, runs the call, takes the outputs back.
// A failure of a copy is the device's; the call itself cannot fail.
static tn_status run_host_call(const host_call *h, const tni_call *c)
{
    const tni_device_memory *m = c->device->memory;
    tn_status                s = TN_OK;
    for (int i = 0; i < c->nin && s == TN_OK; i++)
        s = m->download(c->session, h->arg[i].data, h->arg[i].dtype, c->in[i].data,
                        arg_count(&h->arg[i]), c->why);
    if (s == TN_OK) s = tni_call_run(&h->call);
    for (int i = c->nin; i <= c->nin + c->nmore && s == TN_OK; i++)
        if (h->arg[i].data)
            s = m->upload(c->session, operand(c, i)->data, h->arg[i].dtype, h->arg[i].data,
                          arg_count(&h->arg[i]), c->why);
    return s;
}

// By the cpu device, with its LAPACK and threads.
tn_status tni_call_on_host(const tni_call *c)
{
    if (c->op == TNI_linalg && tni_linalg_is_value(c)) return tni_linalg_copy_value(c);
    if (c->compile_only) return TN_OK;
    host_call h    = { 0 };
    tni_heap  heap = tni_heap_default();
    bool      ok   = open_host_call(&h, c, &heap);
    tn_status s    = ok ? run_host_call(&h, c) : TN_EMEM;
    if (!ok) tni_text_add(c->why, "%s: out of memory on the host", tni_op_table[c->op].name);
    for (int i = 0; i < OPERANDS; i++) tni_free64(&heap, h.arg[i].data);
    tni_free64(&heap, h.call.scratch);
    return s;
}
