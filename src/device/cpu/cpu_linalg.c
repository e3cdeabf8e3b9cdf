// Linear algebra by the LAPACK that is found with the BLAS, else by device/host_linalg.c. Matrices
// of a batch run side by side; a large one that is alone runs on the library's own threads.
//
// LAPACK stores matrices by columns: our row-major a is a' to it. The triangle of a symmetric
// matrix changes sides then, and the factors of an SVD change places; lu and qr are of transposed
// copies.
#include "base/pool.h"
#include "device/cpu/blas.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"
#include "device/host_linalg.h"

#include <limits.h>
#include <math.h>
#include <string.h>

// A call being run: t is the entry of LAPACK's tables, e the bytes of an element, lwork and liwork
// what the library asked for.
typedef struct {
    tni_linalg        f;
    const tni_lapack *lapack;  // NULL: our own
    int               t, m, n, k, inner, least, lwork, liwork;
    int64_t           e;
    char             *scratch;
    int64_t           bytes;  // of scratch for one matrix
} job;

static double number(const job *j, const void *x)
{
    return j->t ? *(const double *)x : (double)*(const float *)x;
}

// Asks the library for the sizes of its work space.
static void ask_work(job *j)
{
    const tni_lapack *l    = j->lapack;
    double            w[2] = { 0, 0 };
    int               ask = -1, info = 0, iw = 0, *n = &j->n, *m = &j->m;
    switch ((tni_linalg_kind)j->f.how.kind) {
    case TNI_LINALG_QR:
        l->geqrf[j->t](m, n, NULL, m, NULL, &w[0], &ask, &info);
        l->orgqr[j->t](m, &j->inner, n, NULL, m, NULL, &w[1], &ask, &info);
        j->lwork = (int)fmax(number(j, &w[0]), number(j, &w[1]));
        break;
    case TNI_LINALG_EIGH:
        l->syevd[j->t]("V", "U", n, NULL, n, NULL, &w[0], &ask, &iw, &ask, &info, 1, 1);
        j->lwork = (int)number(j, &w[0]), j->liwork = iw;
        break;
    case TNI_LINALG_SVD:
        for (const char *of = "ASN"; *of; of++) {  // which one a run needs is not known yet
            l->gesdd[j->t](of, n, m, NULL, n, NULL, NULL, n, NULL, m, w, &ask, &iw, &info, 1);
            j->lwork = (int)fmax(j->lwork, number(j, w));
        }
        j->liwork = 8 * j->least;
        break;
    default: break;
    }
}

// Bytes of scratch for one matrix by the library, and with our own code.
static int64_t bytes_of(const job *j)
{
    int64_t m = j->m, n = j->n, most = m > n ? m : n,
            wide = j->f.how.kind == TNI_LINALG_SVD ? 2 : 1;
    if (!j->lapack) return tni_align64(tni_linalg_work(&j->f) * 8);
    int64_t elements = m * n + wide * most * most + 2 * most + n * (int64_t)j->k + j->lwork;
    return tni_align64(elements * j->e) + tni_align64((j->liwork + n) * 4);
}

// In the scratch of a matrix elements come first, as each function below divides them, and integers
// last: the n pivots at the end, the library's own before them.
//
// Whether one matrix is large enough to be worth several threads: below, waking them takes longer.
static bool is_wide(const tni_linalg *f, int threads)
{
    enum { WIDE = 256 };
    return threads > 1 && f->batch < threads && f->n >= WIDE;
}

// Describes a call for the library, or for our own code if there is none or a size is past its
// integers.
static job job_of(const tni_call *c)
{
    job j = { .f = tni_linalg_of(c), .e = (int64_t)tni_dtype_size(c->in[0].dtype) };
    j.m = (int)j.f.m, j.n = (int)j.f.n, j.k = (int)j.f.k, j.inner = (int)j.f.inner;
    j.least  = j.m < j.n ? j.m : j.n;
    j.t      = j.e == 8;
    bool fit = j.f.m < INT_MAX / 4 && j.f.n < INT_MAX / 4 && j.f.k < INT_MAX / 4 && j.least > 0;
    j.lapack = fit ? tni_lapack_get(c->threads) : NULL;
    if (j.lapack) ask_work(&j);
    j.bytes = bytes_of(&j);
    return j;
}

// ---- one matrix by the library -----------------------------------------------------------------

// Operand x of matrix i; NULL for an output that nothing reads.
static char *matrix(const job *j, const tni_linalg_array *x, int64_t i)
{
    return x->data ? x->data + i * x->count * j->e : NULL;
}

// y (n, m) = x' of a row-major x (m, n).
static void transposed(const job *j, int64_t m, int64_t n, const char *x, char *y)
{
    tn_dtype dt    = j->t ? TN_F64 : TN_F32;
    tni_arg  from  = tni_arg_row_major(dt, 2, (int64_t[]){ n, m }, (char *)x);
    tni_arg  to    = tni_arg_row_major(dt, 2, (int64_t[]){ n, m }, y);
    from.stride[0] = 1, from.stride[1] = n;
    tni_copy_arg(1, &from, &to);
}

// Whether none of the elements is infinite or NaN.
static bool is_finite(const job *j, const char *x, int64_t count)
{
    double s = 0;  // NaN if any element is infinite or NaN
    for (int64_t i = 0; i < count; i++) s += 0 * number(j, x + i * j->e);
    return s == 0;
}

// Info is i32 in host memory.
static void set_info(const tni_linalg_array *x, int64_t i, int info)
{
    if (x->data) ((int32_t *)x->data)[i] = info;
}

// Row-major l is the upper u of a = u' u by columns. The rest of the rows become zeros.
static void run_cholesky(const job *j, int64_t i, char *work)
{
    int64_t n = j->n, bytes = n * n * j->e;
    char   *l    = matrix(j, &j->f.out[0], i);
    int     info = 0;
    if (!l) l = work;
    memcpy(l, matrix(j, &j->f.in[0], i), (size_t)bytes);
    j->lapack->potrf[j->t]("U", &j->n, l, &j->n, &info, 1);
    for (int64_t r = 0; r < n; r++)
        memset(l + (r * n + r + 1) * j->e, 0, (size_t)((n - r - 1) * j->e));
    if (!info && !is_finite(j, l, n * n)) {
        // Comparisons with NaN are false: the library may not see one.
        for (info = 1; is_finite(j, l + (info - 1) * n * j->e, info); info++)
            ;
    }
    if (info) tni_linalg_fail(&j->f, i);
    set_info(&j->f.out[1], i, info);
}

// The transposed copy is what the library calls a; l and u are transposed back.
static void run_lu(const job *j, int64_t i, char *work)
{
    int    *pivot = (int *)(work + j->bytes) - j->n, info = 0;
    int64_t n = j->n;
    transposed(j, n, n, matrix(j, &j->f.in[0], i), work);
    j->lapack->getrf[j->t](&j->n, &j->n, work, &j->n, pivot, &info);
    if (j->f.out[0].data) transposed(j, n, n, work, matrix(j, &j->f.out[0], i));
    if (j->f.out[1].data) tni_linalg_order(n, pivot, (int64_t *)j->f.out[1].data + i * n);
    set_info(&j->f.out[2], i, info > 0 ? info : 0);
}

// op(a) x = x in place: to the library x' op(a)' = x', with the triangle on the other side.
static void solve_triangle(const job *j, const char *a, char *x, bool upper, bool unit)
{
    static const double one_d = 1;
    static const float  one_f = 1;
    const char         *op    = j->f.how.transposed ? "T" : "N";
    j->lapack->trsm[j->t]("R", upper ? "L" : "U", op, unit ? "U" : "N", &j->k, &j->n,
                          j->t ? (const void *)&one_d : &one_f, a, &j->n, x, &j->k, 1, 1, 1, 1);
}

// Rows of b to x in the order of l u, or x's back from it.
static void order_rows(const job *j, const int64_t *order, const char *b, char *x)
{
    size_t row = (size_t)(j->k * j->e);
    for (int64_t r = 0; r < j->n; r++) {
        int64_t from = j->f.how.transposed ? r : order[r], to = j->f.how.transposed ? order[r] : r;
        memcpy(x + to * (int64_t)row, b + from * (int64_t)row, row);
    }
}

// A matrix with a pivot of 0 has no solution. Rows are put in order before l and u, or after them
// if the equations are those of the transposed matrix.
static void run_solve(const job *j, int64_t i, char *work)
{
    const char *b = matrix(j, &j->f.in[1], i), *a = matrix(j, &j->f.in[0], i);
    char       *x     = matrix(j, &j->f.out[0], i);
    size_t      bytes = (size_t)(j->n * j->f.k * j->e);
    if (j->f.how.kind == TNI_LINALG_TRIANGULAR) {
        memcpy(x, b, bytes);
        solve_triangle(j, a, x, j->f.how.upper, j->f.how.unit);
        return;
    }
    const int64_t *order = (const int64_t *)j->f.in[3].data + i * j->n;
    a                    = matrix(j, &j->f.in[2], i);
    for (int64_t r = 0; r < j->n; r++)
        if (number(j, a + (r * j->n + r) * j->e) == 0) {
            tni_linalg_fail(&j->f, i);
            return;
        }
    if (j->f.how.transposed) {
        memcpy(work, b, bytes);
        solve_triangle(j, a, work, true, false);
        solve_triangle(j, a, work, false, true);
        order_rows(j, order, work, x);
    } else {
        order_rows(j, order, b, x);
        solve_triangle(j, a, x, false, true);
        solve_triangle(j, a, x, true, false);
    }
}

// The reflections, columns of m elements, are in the first n of q's columns.
// r is the upper triangle of what geqrf leaves; orgqr makes q of the rest, in the same memory.
static void run_qr(const job *j, int64_t i, char *work)
{
    int64_t m = j->m, n = j->n, inner = j->inner;
    char   *r = matrix(j, &j->f.out[0], i), *q = matrix(j, &j->f.out[1], i);
    char   *t = work + m * n * j->e, *tau = t + m * (m > n ? m : n) * j->e, *more = tau + n * j->e;
    int     info = 0;
    transposed(j, m, n, matrix(j, &j->f.in[0], i), t);
    j->lapack->geqrf[j->t](&j->m, &j->n, t, &j->m, tau, more, &j->lwork, &info);
    for (int64_t p = 0; r && p < inner; p++)
        for (int64_t c = 0; c < n; c++) {
            char *to = r + (p * n + c) * j->e;
            if (c < p) memset(to, 0, (size_t)j->e);
            else memcpy(to, t + (c * m + p) * j->e, (size_t)j->e);
        }
    if (!q) return;
    j->lapack->orgqr[j->t](&j->m, &j->inner, &j->n, t, &j->m, tau, more, &j->lwork, &info);
    transposed(j, inner, m, t, q);
}

// Eigenvectors by columns to the library are our rows.
// The library may not return from a matrix with NaN, so that it is not asked.
static void run_eigh(const job *j, int64_t i, char *work)
{
    int64_t n = j->n, bytes = n * n * j->e;
    char   *w = matrix(j, &j->f.out[0], i), *v = matrix(j, &j->f.out[1], i);
    char   *own_w = work + bytes, *more = own_w + n * j->e;
    int    *iwork = (int *)(work + j->bytes) - j->n - j->liwork, info = 0;
    memcpy(work, matrix(j, &j->f.in[0], i), (size_t)bytes);
    bool finite = true;
    for (int64_t r = 0; r < n && finite; r++) finite = is_finite(j, work + r * n * j->e, r + 1);
    if (finite)
        j->lapack->syevd[j->t](v ? "V" : "N", "U", &j->n, work, &j->n, w ? w : own_w, more,
                               &j->lwork, iwork, &j->liwork, &info, 1, 1);
    if (!finite || info) tni_linalg_fail(&j->f, i);
    else if (v) transposed(j, n, n, work, v);
}

// a' = v s u' to the library: its u is our v', its v' our u.
// Vectors that nothing reads are left out if both are, else written to scratch: the library makes
// both or none.
static void run_svd(const job *j, int64_t i, char *work)
{
    int64_t m = j->m, n = j->n, most = m > n ? m : n, bytes = m * n * j->e;
    char   *s = matrix(j, &j->f.out[0], i), *u = matrix(j, &j->f.out[1], i);
    char   *vh = matrix(j, &j->f.out[2], i), *own = work + bytes;
    char   *own_s = own + 2 * most * most * j->e, *more = own_s + most * j->e;
    int    *iwork = (int *)(work + j->bytes) - j->n - j->liwork, info = 0;
    bool    vectors = u || vh;
    memcpy(work, matrix(j, &j->f.in[0], i), (size_t)bytes);
    bool finite = is_finite(j, work, m * n);
    if (finite)
        j->lapack->gesdd[j->t](!vectors        ? "N"
                               : j->f.how.full ? "A"
                                               : "S",
                               &j->n, &j->m, work, &j->n, s ? s : own_s, vh ? vh : own, &j->n,
                               u ? u : own + most * most * j->e, &j->inner, more, &j->lwork, iwork,
                               &info, 1);
    if (!finite || info) tni_linalg_fail(&j->f, i);
}

// Runs matrix i of the batch in the scratch of a worker.
static void run_matrix(void *arg, int64_t i, int worker)
{
    static void (*const run[])(const job *, int64_t, char *) = {
        [TNI_LINALG_CHOLESKY]   = run_cholesky,
        [TNI_LINALG_LU]         = run_lu,
        [TNI_LINALG_TRIANGULAR] = run_solve,
        [TNI_LINALG_LU_SOLVE]   = run_solve,
        [TNI_LINALG_QR]         = run_qr,
        [TNI_LINALG_EIGH]       = run_eigh,
        [TNI_LINALG_SVD]        = run_svd,
    };
    const job *j    = arg;
    char      *work = j->scratch + worker * j->bytes;
    if (j->lapack) run[j->f.how.kind](j, i, work);
    else tni_linalg_run(&j->f, i, (double *)work);
}

// ---- the op ------------------------------------------------------------------------------------

// Threads that run matrices, each with scratch of its own.
static int workers_of(const tni_linalg *f, int threads)
{
    return is_wide(f, threads) || f->batch < 1 ? 1 : f->batch < threads ? (int)f->batch : threads;
}

// As many matrices' scratch as there are workers.
size_t tni_cpu_linalg_scratch(const tni_call *call)
{
    if (tni_linalg_is_value(call)) return 0;
    job j = job_of(call);
    return (size_t)(workers_of(&j.f, call->threads) * j.bytes);
}

// Work is cut by matrices alone, so that the number of threads changes no bit, except where a large
// matrix has the library's threads.
tn_status tni_cpu_linalg(const tni_call *call)
{
    if (tni_linalg_is_value(call)) return tni_linalg_copy_value(call);
    job j     = job_of(call);
    int many  = workers_of(&j.f, call->threads);
    j.scratch = call->scratch;
    if (j.lapack) tni_blas_enter(many);
    if (j.lapack && is_wide(&j.f, call->threads)) tni_blas_widen(call->threads);
    tni_parallel(many, j.f.batch, run_matrix, &j);
    if (j.lapack) tni_blas_leave(many);
    return TN_OK;
}
