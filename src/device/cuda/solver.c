// Linear algebra of large matrices by cuSOLVER, and triangles by cuBLAS: cholesky, lu, qr,
// symmetric eigenvalues, and what is solved by factors. Matrices of a batch run one after the
// other; batches of small ones have kernels of their own (simt/group_linalg.c), and singular values
// are the host's: cuSOLVER's gesvd is slower than LAPACK's gesdd.
//
// The libraries store matrices by columns. A row-major matrix is the transposed one to them, so
// that
//
//   - the lower triangle of a symmetric matrix is its upper one: cholesky and eigenvalues need no transposing,
//   - op(a) x = b is x' op(a)' = b', with the triangle on the other side,
//   - lu and qr, which are of columns, get a transposed copy, and results are transposed back.
//
// The calls allocate, choose by sizes, and may wait for the GPU, so that a run with one of them
// never becomes a graph. Where info says that a matrix has no factors is known on the GPU alone:
// kernels write NaN there (solver_text.c), and nothing waits. Only eigenvalues look first, since
// the library may not return from a matrix with NaN.
#include "device/cuda/gpu.h"
#include "device/cuda/solver.h"
#include "device/host_linalg.h"

#include <stdlib.h>
#include <string.h>

// The kernels' parameters, `solver_params` of the text.
typedef struct {
    int64_t x, y, word, order, info, n, k;
    int32_t what, zero;
} solver_params;

_Static_assert(sizeof(solver_params) == 7 * 8 + 2 * 4,
               "no padding: the text declares the same fields");

// Everything that the functions below need of a call is here, and nothing of it outlives the call:
// the libraries keep their handles alone, and scratch is the plan's.
//
// One call: sizes, what the library wants, and where parts of scratch begin.
typedef struct {
    const tni_call     *call;
    tni_cuda           *c;
    const tni_cusolver *lib;
    tni_linalg          f;
    int                 type;
    tn_dtype            dt;
    int64_t             e;                // bytes of an element
    size_t              device, host;     // of the library
    int                 orgqr;            // elements
    size_t copy, extra, work, word, end;  // offsets: a matrix, pivots or tau, the library's, info
    char  *scratch;
    void  *on_host;
} job;

// ---- the library -------------------------------------------------------------------------------

// Makes the handles of a session. False if that failed, now or before.
static bool open_solver(tni_cuda *c, const tni_cusolver *lib)
{
    tni_solver *s = &c->solver;
    if (s->handle || s->failed) return !s->failed;
    tni_cuda_enter(c);
    s->failed = lib->create(&s->handle) || lib->params_create(&s->params) ||
                lib->blas_create(&s->blas);
    return !s->failed;
}

// In the order opposite to that of opening. A session whose handles were made halfway has those
// that there are.
void tni_solver_close(tni_cuda *c)
{
    tni_text            why = { "" };
    tni_solver         *s   = &c->solver;
    const tni_cusolver *lib = s->handle ? tni_cusolver_get(&why) : NULL;
    if (!lib) return;
    if (s->blas) lib->blas_destroy(s->blas);
    if (s->params) lib->params_destroy(s->params);
    lib->destroy(s->handle);
    *s = (tni_solver){ 0 };
}

// Left to the host: values that other ops computed, singular values, and matrices without elements,
// of which there is nothing to factor. The handles are made here, since the library answers sizes
// through them.
//
// Sizes are 32 bits in parts of the interface.
bool tni_solver_takes(const tni_call *call)
{
    tni_text       why = { "" };
    const tni_arg *a   = &call->in[0];
    if (tni_linalg_is_value(call) || call->attr->linalg.kind == TNI_LINALG_SVD) return false;
    if (a->size[a->rank - 1] == 0 || a->size[a->rank - 2] == 0) return false;
    // The first two are the matrix and its right sides; an order of rows is no matrix.
    for (int i = 0; i < call->nin && i < 2; i++)
        if (tni_shape_count(2, call->in[i].size + call->in[i].rank - 2) >= INT32_MAX) return false;
    const tni_cusolver *lib = tni_cusolver_get(&why);
    return lib && open_solver(call->session, lib);
}

// No address is needed for that, so that scratch is known when a plan is made.
//
// Asks the library how much memory it wants. False if it does not answer.
static bool ask_sizes(job *j)
{
    const tni_cusolver *lib = j->lib;
    tni_solver         *s   = &j->c->solver;
    int64_t             m = j->f.m, n = j->f.n;
    int                 t = j->type;
    switch ((tni_linalg_kind)j->f.how.kind) {
    case TNI_LINALG_CHOLESKY:
        return !lib->potrf_size(s->handle, s->params, TNI_SOLVER_LOWER, n, t, NULL, n, t,
                                &j->device, &j->host);
    case TNI_LINALG_LU:
        return !lib->getrf_size(s->handle, s->params, n, n, t, NULL, n, t, &j->device, &j->host);
    case TNI_LINALG_QR:
        return !lib->geqrf_size(s->handle, s->params, m, n, t, NULL, m, t, NULL, t, &j->device,
                                &j->host) &&
               !lib->orgqr_size[t](s->handle, (int)m, (int)j->f.inner, (int)n, NULL, (int)m, NULL,
                                   &j->orgqr);
    case TNI_LINALG_EIGH:  // whether vectors are read is not known before the run
        return !lib->syevd_size(s->handle, s->params, true, TNI_SOLVER_UPPER, n, t, NULL, n, t,
                                NULL, t, &j->device, &j->host);
    default: return true;
    }
}

static size_t round_up(size_t n)
{
    return (n + 255) / 256 * 256;
}

// Scratch, in order: a matrix by columns, of qr with room for q, or right sides; pivots, tau or
// eigenvalues; the library's; a word. Offsets follow from sizes alone, which are those of one
// matrix: all of a batch use the same memory, one after the other.
static bool open_job(job *j, const tni_call *call)
{
    tni_text why = { "" };
    *j           = (job){ .call = call, .c = call->session, .f = tni_linalg_of(call) };
    j->dt        = call->in[0].dtype;
    j->type      = j->dt == TN_F64 ? TNI_SOLVER_F64 : TNI_SOLVER_F32;
    j->e         = (int64_t)tni_dtype_size(j->dt);
    if (!(j->lib = tni_cusolver_get(&why)) || !open_solver(j->c, j->lib)) return false;
    tni_cuda_enter(j->c);
    if (!ask_sizes(j)) return false;
    int64_t m = j->f.m, n = j->f.n, wide = n > j->f.inner ? n : j->f.inner;
    bool    solves = j->f.how.kind == TNI_LINALG_LU_SOLVE || j->f.how.kind == TNI_LINALG_TRIANGULAR;
    int64_t copy   = solves ? n * j->f.k : m * wide;
    size_t  work = j->device, orgqr = (size_t)j->orgqr * (size_t)j->e;
    if (orgqr > work) work = orgqr;
    j->copy  = 0;
    j->extra = j->copy + round_up((size_t)(copy * j->e));
    j->work  = j->extra + round_up((size_t)(m > n ? m : n) * 8);
    j->word  = j->work + round_up(work);
    j->end   = j->word + 256;
    return true;
}

// The same sizes as in the run, in which the library is asked again: they follow from shapes alone.
// 256 more, for alignment.
size_t tni_solver_scratch(const tni_call *call)
{
    job j;
    return open_job(&j, call) ? j.end + 256 : 0;
}

// Kernels of ours let the next one begin before they end; those of the libraries know nothing of
// that, so that a word is written in between, which waits for all ahead of it.
//
// Whether a call of a library is to be made now: behind all kernels ahead of it.
static bool may_call(job *j, const char *what)
{
    struct {
        const char *what;
        const void *in, *out;
    } mark = { what, j->call->in[0].data, j->call->out.data };
    return !tni_replay_finish(j->c, INT64_MAX, j->scratch + j->word + 64) &&
           tni_replay_library_call(j->c, &mark, sizeof mark);
}

// ---- kernels -----------------------------------------------------------------------------------

// Kernels take a buffer and a place in it, since a buffer is what OpenCL can pass; on cuda it
// begins at the address.
//
// The place of an address in its buffer, in elements of `bytes` bytes; its buffer is passed.
static int64_t add_address(tni_kernel_args *h, const void *p, int64_t bytes)
{
    return tni_kernel_args_add_buffer(h, p) / bytes;
}

static tn_status begin_kernel(tni_kernel_args *h, const job *j, const char *name)
{
    return tni_kernel_args_begin(h, j->call, tni_text_solver, name, j->dt, j->dt);
}

// Looks at the diagonal of x (n, n): see solver_check. info may be NULL.
static tn_status check_diagonal(const job *j, const char *x, char *info, bool zeros)
{
    solver_params   s = { .n = j->f.n, .what = zeros };
    tni_kernel_args h;
    tn_status       status = begin_kernel(&h, j, "solver_check");
    if (status != TN_OK) return status;
    s.x        = add_address(&h, x, j->e);
    s.word     = add_address(&h, j->scratch + j->word, 4);
    int64_t at = add_address(&h, info ? info : j->scratch + j->word, 4);
    s.info     = info ? at : -1;
    tni_kernel_args_add(&h, &s, sizeof s);
    return tni_kernel_args_launch(&h, 1, 256, j->call->why);
}

// y (n, k) becomes NaN if the word says so; else a triangle: 1 the lower one, 2 the upper one, 0
// all of it.
static tn_status end_result(const job *j, char *y, int64_t n, int64_t k, int triangle)
{
    solver_params   s = { .n = n, .k = k, .what = triangle };
    tni_kernel_args h;
    tn_status       status = y ? begin_kernel(&h, j, "solver_end") : TN_OK;
    if (status != TN_OK || !y) return status;
    s.word = add_address(&h, j->scratch + j->word, 4);
    s.y    = add_address(&h, y, j->e);
    tni_kernel_args_add(&h, &s, sizeof s);
    return tni_kernel_args_launch(&h, tni_ceil_div(n * k, 256), 256, j->call->why);
}

// y (rows, cols) = x' of x (cols, rows), both row-major; or a plain copy.
static tn_status copy_matrix(const job *j, const char *x, char *y, int64_t rows, int64_t cols,
                             bool transposed)
{
    tni_arg  in   = { .dtype = j->dt, .rank = 2, .size = { rows, cols }, .data = (char *)x };
    tni_call copy = tni_call_within(j->call, TNI_copy);
    in.stride[0]  = transposed ? 1 : cols;
    in.stride[1]  = transposed ? rows : 1;
    copy.in       = &in;
    copy.nin      = 1;
    copy.nmore    = 0;
    copy.out      = (tni_arg){
             .dtype = j->dt, .rank = 2, .size = { rows, cols }, .stride = { cols, 1 }, .data = y
    };
    return tni_groups_copy(&copy);
}

// ---- one matrix --------------------------------------------------------------------------------

// Operand x of matrix i; NULL for an output that nothing reads.
static char *matrix(const tni_linalg_array *x, int64_t i)
{
    return x->data ? x->data + i * x->count * (int64_t)tni_dtype_size(x->dtype) : NULL;
}

// Errors of the library are not reported to the program: the host computes the call instead, which
// is slower and right.
//
// What the library returned as a status: TN_EARG if it failed.
static tn_status by_library(int error)
{
    return error ? TN_EARG : TN_OK;
}

// By columns and the lower triangle, between two transposing copies: for the upper one, which is
// what the lower one by rows is, the library takes 2.4 times as long (4,096 rows on an H200). The
// result's other triangle becomes zeros.
static tn_status run_cholesky(job *j, int64_t i)
{
    const tni_cusolver *lib = j->lib;
    tni_solver         *o   = &j->c->solver;
    int64_t             n   = j->f.n;
    char               *l = matrix(&j->f.out[0], i), *copy = j->scratch + j->copy;
    if (!l) return TN_EARG;  // info alone is asked for: the host has memory for what is not read
    tn_status s = copy_matrix(j, matrix(&j->f.in[0], i), copy, n, n, true);
    if (s == TN_OK && may_call(j, "potrf"))
        s = by_library(lib->potrf(o->handle, o->params, TNI_SOLVER_LOWER, n, j->type, copy, n,
                                  j->type, j->scratch + j->work, j->device, j->on_host, j->host,
                                  (int *)(j->scratch + j->word)));
    if (s == TN_OK) s = copy_matrix(j, copy, l, n, n, true);
    if (s == TN_OK) s = check_diagonal(j, l, matrix(&j->f.out[1], i), false);
    return s == TN_OK ? end_result(j, l, n, n, 1) : s;
}

// Pivots become an order of rows.
static tn_status write_order(const job *j, char *order, char *info)
{
    solver_params   s = { .n = j->f.n };
    tni_kernel_args h;
    tn_status       status = begin_kernel(&h, j, "solver_order");
    if (status != TN_OK) return status;
    char *word = j->scratch + j->word, *pivots = j->scratch + j->extra;
    s.x        = add_address(&h, pivots, 8);
    s.order    = add_address(&h, order ? order : j->scratch + j->copy, 8);
    s.word     = add_address(&h, word, 4);
    int64_t at = add_address(&h, info ? info : word, 4);
    s.info     = info ? at : -1;
    tni_kernel_args_add(&h, &s, sizeof s);
    return tni_kernel_args_launch(&h, 1, 256, j->call->why);
}

// Pivots are those of LAPACK: row i was exchanged with row pivots[i] - 1, in this order. A pivot of
// 0 is no failure: l and u are right, and info tells where.
static tn_status run_lu(job *j, int64_t i)
{
    const tni_cusolver *lib  = j->lib;
    tni_solver         *o    = &j->c->solver;
    int64_t             n    = j->f.n;
    char               *copy = j->scratch + j->copy, *lu = matrix(&j->f.out[0], i);
    tn_status           s = copy_matrix(j, matrix(&j->f.in[0], i), copy, n, n, true);
    if (s == TN_OK && may_call(j, "getrf"))
        s = by_library(lib->getrf(o->handle, o->params, n, n, j->type, copy, n,
                                  (int64_t *)(j->scratch + j->extra), j->type, j->scratch + j->work,
                                  j->device, j->on_host, j->host, (int *)(j->scratch + j->word)));
    if (s == TN_OK && lu) s = copy_matrix(j, copy, lu, n, n, true);
    return s == TN_OK ? write_order(j, matrix(&j->f.out[1], i), matrix(&j->f.out[2], i)) : s;
}

// op(a) x = x in place, x by columns, as the library's own solutions have it. What a is by rows is
// a' by columns, of which the other triangle is read.
static tn_status solve_triangle(job *j, const char *a, char *x, bool upper, bool unit)
{
    static const double one_d = 1;
    static const float  one_f = 1;
    const void         *one   = j->type == TNI_SOLVER_F64 ? (const void *)&one_d : &one_f;
    int                 n = (int)j->f.n, k = (int)j->f.k;
    if (!may_call(j, upper ? "trsm, upper" : "trsm, lower")) return TN_OK;
    return by_library(j->lib->trsm[j->type](
        j->c->solver.blas, TNI_SOLVER_LEFT, upper ? TNI_SOLVER_LOWER : TNI_SOLVER_UPPER,
        j->f.how.transposed ? TNI_SOLVER_PLAIN : TNI_SOLVER_TRANSPOSED, unit, n, k, one, a, n, x,
        n));
}

// Rows of x to y in the order of l u, or back from it.
static tn_status order_rows(const job *j, const char *x, const char *order, char *y)
{
    solver_params   s = { .n = j->f.n, .k = j->f.k, .what = j->f.how.transposed };
    tni_kernel_args h;
    tn_status       status = begin_kernel(&h, j, "solver_rows");
    if (status != TN_OK) return status;
    s.x     = add_address(&h, x, j->e);
    s.order = add_address(&h, order, 8);
    s.y     = add_address(&h, y, j->e);
    tni_kernel_args_add(&h, &s, sizeof s);
    return tni_kernel_args_launch(&h, tni_ceil_div(s.n * s.k, 256), 256, j->call->why);
}

// By one triangle, or by l and u with the rows in order before, or after them if the equations are
// those of the transposed matrix. Right sides lie by columns in scratch; a single one is the same
// either way.
static tn_status run_solve(job *j, int64_t i)
{
    int64_t     n = j->f.n, k = j->f.k;
    bool        lu = j->f.how.kind == TNI_LINALG_LU_SOLVE, t = j->f.how.transposed;
    const char *a = matrix(&j->f.in[lu ? 2 : 0], i), *b = matrix(&j->f.in[1], i);
    const char *order = lu ? matrix(&j->f.in[3], i) : NULL;
    char       *x = matrix(&j->f.out[0], i), *work = j->scratch + j->copy;
    tn_status   s = TN_OK;
    if (lu && !t) {
        s = order_rows(j, b, order, x);
        b = x;
    }
    if (s == TN_OK) s = copy_matrix(j, b, work, k, n, true);
    if (s == TN_OK)
        s = solve_triangle(j, a, work, lu ? t : j->f.how.upper, lu ? !t : j->f.how.unit);
    if (s == TN_OK && lu) s = solve_triangle(j, a, work, !t, t);
    if (s == TN_OK && lu && t) {
        // Ordered by rows: x has the sums by rows first, and order_rows reads what it does not
        // write.
        s = copy_matrix(j, work, x, n, k, true);
        if (s == TN_OK) s = copy_matrix(j, x, work, n, k, false);
        if (s == TN_OK) s = order_rows(j, work, order, x);
    } else if (s == TN_OK) s = copy_matrix(j, work, x, n, k, true);
    if (s == TN_OK && lu) s = check_diagonal(j, a, NULL, true);
    return s == TN_OK && lu ? end_result(j, x, n, k, 0) : s;
}

// The reflections, columns of m elements, are in the first n of q's columns. r is the upper
// triangle of what geqrf leaves; orgqr makes q of the rest, in the same memory.
static tn_status run_qr(job *j, int64_t i)
{
    const tni_cusolver *lib = j->lib;
    tni_solver         *o   = &j->c->solver;
    int64_t             m = j->f.m, n = j->f.n, inner = j->f.inner;
    char     *t = j->scratch + j->copy, *tau = j->scratch + j->extra, *work = j->scratch + j->work;
    char     *r = matrix(&j->f.out[0], i), *q = matrix(&j->f.out[1], i);
    int      *info = (int *)(j->scratch + j->word);
    tn_status s    = copy_matrix(j, matrix(&j->f.in[0], i), t, n, m, true);
    if (s == TN_OK && may_call(j, "geqrf"))
        s = by_library(lib->geqrf(o->handle, o->params, m, n, j->type, t, m, j->type, tau, j->type,
                                  work, j->device, j->on_host, j->host, info));
    if (s == TN_OK && r) {
        // The first rows of t', which has rows of m elements.
        tni_arg in = {
            .dtype = j->dt, .rank = 2, .size = { inner, n }, .stride = { 1, m }, .data = t
        };
        tni_call copy = tni_call_within(j->call, TNI_copy);
        copy.in = &in, copy.nin = 1, copy.nmore = 0;
        copy.out = (tni_arg){
            .dtype = j->dt, .rank = 2, .size = { inner, n }, .stride = { n, 1 }, .data = r
        };
        s = tni_groups_copy(&copy);
        if (s == TN_OK) s = end_result(j, r, inner, n, 2);
    }
    if (s == TN_OK && q && may_call(j, "orgqr"))
        s = by_library(lib->orgqr[j->type](o->handle, (int)m, (int)inner, (int)n, t, (int)m, tau,
                                           work, j->orgqr, info));
    return s == TN_OK && q ? copy_matrix(j, t, q, m, inner, true) : s;
}

// Whether the lower triangle of a has neither infinities nor NaN, which the host waits to know.
static tn_status is_finite(job *j, const char *a, bool *finite)
{
    const tni_driver *cu = j->c->gpu->cu;
    solver_params     s  = { .n = j->f.n };
    tni_kernel_args   h;
    int32_t           word = 0;
    tni_cuptr         at   = (tni_cuptr)(uintptr_t)(j->scratch + j->word);
    if (!may_call(j, "finite")) return TN_EARG;
    int       error  = cu->set8(at, 0, 4, j->c->stream);
    tn_status status = error ? TN_EARG : begin_kernel(&h, j, "solver_finite");
    if (status != TN_OK) return status;
    s.x    = add_address(&h, a, j->e);
    s.word = add_address(&h, j->scratch + j->word, 4);
    tni_kernel_args_add(&h, &s, sizeof s);
    status = tni_kernel_args_launch(&h, tni_ceil_div(s.n * s.n, 256), 256, j->call->why);
    if (status != TN_OK) return status;
    error = cu->copy_out(&word, at, 4, j->c->stream);
    if (!error) error = cu->stream_wait(j->c->stream);
    *finite = word == 0;
    return tni_cuda_status(j->c, error, "looking at a matrix", j->call->why);
}

// Eigenvectors by columns to the library are our rows. A matrix that is not finite has word 1 by
// then, which makes all of it NaN.
static tn_status run_eigh(job *j, int64_t i)
{
    const tni_cusolver *lib  = j->lib;
    tni_solver         *o    = &j->c->solver;
    int64_t             n    = j->f.n;
    char               *copy = j->scratch + j->copy, *w = matrix(&j->f.out[0], i);
    char               *v = matrix(&j->f.out[1], i), *a = matrix(&j->f.in[0], i);
    bool                finite = true;
    tn_status           s      = is_finite(j, a, &finite);
    if (s == TN_OK) s = copy_matrix(j, a, copy, n, n, false);
    if (s == TN_OK && finite && may_call(j, "syevd"))
        s = by_library(lib->syevd(o->handle, o->params, v != NULL, TNI_SOLVER_UPPER, n, j->type,
                                  copy, n, j->type, w ? w : j->scratch + j->extra, j->type,
                                  j->scratch + j->work, j->device, j->on_host, j->host,
                                  (int *)(j->scratch + j->word)));
    if (s == TN_OK && v) s = copy_matrix(j, copy, v, n, n, true);
    if (s == TN_OK) s = end_result(j, w, 1, n, 0);
    return s == TN_OK ? end_result(j, v, n, n, 0) : s;
}

// ---- the call ----------------------------------------------------------------------------------

// A caller may have given the session another stream since the last call.
//
// Both libraries work in the session's stream.
static bool set_streams(const job *j)
{
    const tni_solver *o = &j->c->solver;
    return !j->lib->set_stream(o->handle, j->c->stream) &&
           !j->lib->blas_set_stream(o->blas, j->c->stream);
}

// Without scratch, as when a size could not be known when the plan was made, the call runs
// elsewhere.
tn_status tni_solver_run(const tni_call *call)
{
    static tn_status (*const run[])(job *, int64_t) = {
        [TNI_LINALG_CHOLESKY]   = run_cholesky,
        [TNI_LINALG_LU]         = run_lu,
        [TNI_LINALG_TRIANGULAR] = run_solve,
        [TNI_LINALG_LU_SOLVE]   = run_solve,
        [TNI_LINALG_QR]         = run_qr,
        [TNI_LINALG_EIGH]       = run_eigh,
    };
    job j;
    if (call->compile_only) return TN_OK;
    if (!tni_cuda_may(call->session, "linear algebra by cuSOLVER", call->why)) return TN_EDEVICE;
    tni_replay_never_graph(call->session);
    if (!call->scratch || !open_job(&j, call) || !set_streams(&j)) return TN_EARG;
    j.scratch   = (char *)round_up((uintptr_t)call->scratch);
    j.on_host   = malloc(j.host + 1);
    tn_status s = j.on_host ? TN_OK : TN_EARG;
    for (int64_t i = 0; i < j.f.batch && s == TN_OK; i++) s = run[j.f.how.kind](&j, i);
    // The library has used its host memory when its calls return.
    free(j.on_host);
    return s;
}
