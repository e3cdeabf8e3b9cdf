// Linear algebra on every device: what factorizations promise, of matrices of many sizes; those
// that have none, empty ones, NaN; and what is said about arguments that do not fit. PyTorch's
// numbers are in python/test/test_linalg.py.
#include "check.h"
#include "rules_kit.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>

// Devices that are there; a context records its errors. The end of a test's loop closes the last
// one.
static tn_ctx *next_device(tn_ctx *cx)
{
    static const char *const devices[] = { "cpu", "ref", "opencl", "cuda" };
    static size_t            at;
    at = cx ? at + 1 : 0;
    if (cx && tn_error(cx)) test_that(false, "left behind: %s", tn_error_text(cx));
    tn_close(cx);
    for (; at < sizeof devices / sizeof *devices; at++)
        if ((cx = open_quiet(devices[at], 0))) return cx;
    return NULL;
}

static tn_tensor *mT(tn_tensor *x)
{
    return tn_transpose(x, -1, -2);
}

// The largest element of |x|; NaN if there is one.
static double most(tn_tensor *x)
{
    return tn_count(x) ? tn_item(tn_max_all(tn_abs(x))) : 0;
}

// Whether a and b are equal but for n roundings of numbers as large as the largest of them.
static void check_near(const char *what, int64_t n, tn_tensor *a, tn_tensor *b)
{
    double unit = tn_dtype_of(a) == TN_F64 ? 2.3e-16 : 1.2e-7, scale = fmax(1, most(b));
    double far = a && b ? most(tn_sub(a, b)) : NAN;
    test_case_result(far <= 8 * (double)(n + 4) * unit * scale, "%s of n %d: off by %g", what,
                     (int)n, far);
}

static tn_tensor *eye_like(tn_tensor *x)
{
    return tn_eye(tn_ctx_of(x), tn_dtype_of(x), tn_size(x, -1), tn_size(x, -1));
}

static void check_orthonormal(const char *what, tn_tensor *q)
{
    tn_tensor *p = tn_matmul(mT(q), q), *one = eye_like(p);
    check_near(what, tn_size(q, -2), p,
               tn_expand(one, tn_rank(p),
                         (int64_t[]){ tn_size(p, 0), tn_size(p, 1), tn_size(p, 2) }));
}

// All of it for matrices x (B, m, n).
static void check_promises(tn_tensor *x)
{
    int64_t    m = tn_size(x, 1), n = tn_size(x, 2), most_n = m > n ? m : n;
    tn_tensor *a = tn_add(tn_matmul(mT(x), x), eye_like(x)), *l = tn_cholesky(a, false), *q, *r, *w,
              *v, *u, *s, *vh;
    check_near("l l'", n, tn_matmul(l, mT(l)), a);
    CHECK(most(tn_triu(l, 1)) == 0);
    check_near("l^-1 l", n, tn_solve_triangular(l, l, false, false),
               tn_expand(eye_like(l), TN_SHAPE(tn_size(x, 0), n, n)));
    check_near("a solve(a, x')", n, tn_matmul(a, tn_solve(a, mT(x))), mT(x));
    for (int full = 0; full < 2; full++) {
        CHECK_STATUS(tn_qr(x, full, &q, &r), TN_OK);
        check_near("q r", most_n, tn_matmul(q, r), x);
        check_orthonormal("q", q);
        CHECK(most(tn_tril(r, -1)) == 0);
        CHECK_STATUS(tn_svd(x, full, &u, &s, &vh), TN_OK);
        int64_t k = tn_size(s, -1);
        check_near("u s v'", most_n,
                   tn_matmul(tn_mul(tn_slice(u, 2, 0, k, 1), tn_unsqueeze(s, -2)),
                             tn_slice(vh, 1, 0, k, 1)),
                   x);
        check_orthonormal("u", u);
        check_orthonormal("v", mT(vh));
    }
    check_near("svdvals", most_n, tn_svdvals(x), s);
    CHECK_STATUS(tn_eigh(a, false, &w, &v), TN_OK);
    check_near("v w v'", n, tn_matmul(tn_mul(v, tn_unsqueeze(w, -2)), mT(v)), a);
    check_orthonormal("v of eigh", v);
}

// A plain run takes f32 and f64 in turns: a size of a dtype is dozens of kernels on OpenCL.
static void factors_multiply_to_what_was_factored(void)
{
    static const int64_t sizes[][2] = { { 1, 1 }, { 2, 2 },   { 5, 3 },
                                        { 3, 5 }, { 33, 33 }, { 65, 40 } };
    for (tn_ctx *cx = next_device(NULL); cx; cx = next_device(cx))
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int d = 0; d < 2; d++) {
                if (!test_long() && d != (int)i % 2) continue;
                tn_scope *scope = tn_begin(cx);
                check_promises(
                    tn_randn(cx, d ? TN_F64 : TN_F32, TN_SHAPE(2, sizes[i][0], sizes[i][1])));
                tn_end(scope);
            }
}

// A matrix of rank 1 with a direction of every kind: singular values of 0 have orthonormal vectors,
// too.
static void a_matrix_of_less_rank_has_a_whole_svd(void)
{
    for (tn_ctx *cx = next_device(NULL); cx; cx = next_device(cx)) {
        tn_tensor *one = tn_ones(cx, TN_F64, TN_SHAPE(1, 4, 3)), *u, *s, *vh;
        CHECK_STATUS(tn_svd(one, true, &u, &s, &vh), TN_OK);
        check_orthonormal("u", u);
        check_orthonormal("v", mT(vh));
        CHECK_VALUES(tn_matrix_rank(one, 0), 1);
        check_near("pinv", 4, tn_pinv(one, 0), tn_full(cx, TN_F64, TN_SHAPE(1, 3, 4), 1.0 / 12));
        CHECK_VALUES(tn_det(tn_ones(cx, TN_F64, TN_SHAPE(3, 3))), 0);
        // The cofactors of a matrix of rank n - 1: the gradient of a determinant that is 0.
        tn_tensor *a = tn_requires_grad(
            tn_from(cx, TN_F64, TN_SHAPE(2, 2), (double[]){ 1, 2, 2, 4 }), true);
        tn_backward(tn_det(a), NULL);
        check_near("cofactors", 2, tn_grad_of(a),
                   tn_from(cx, TN_F64, TN_SHAPE(2, 2), (double[]){ 4, -2, -2, 1 }));
    }
}

static void what_has_no_factorization_is_nan_and_counted(void)
{
    static const double bad[] = { 4, 2, 2, 5, 1, 2, 2, 1, NAN, 0, 0, 1, 0, 0, 0, 0 };
    for (tn_ctx *cx = next_device(NULL); cx; cx = next_device(cx)) {
        tn_tensor *a = tn_from(cx, TN_F64, TN_SHAPE(4, 2, 2), bad), *l, *info, *w, *v, *u, *s, *vh;
        CHECK_STATUS(tn_cholesky_ex(a, false, &l, &info), TN_OK);
        CHECK_VALUES(info, 0, 2, 1, 1);
        CHECK_VALUES(tn_sum_axes(tn_cast(tn_isnan(l), TN_I32), 2, (int[]){ 1, 2 }, false), 0, 4, 4,
                     4);
        CHECK_STATUS(tn_linalg_check("cholesky", info), TN_EARG);
        CHECK_FAILED2(cx, TN_EARG, "cholesky: matrix 1 of 4", "row 1");
        CHECK_STATUS(tn_inv_ex(a, &l, &info), TN_OK);
        CHECK_VALUES(tn_slice(info, 0, 3, 4, 1), 1);
        // A singular matrix is refused whole; a NaN only spreads as the library's arithmetic
        // spreads it.
        CHECK(tn_item(tn_any_all(tn_isnan(tn_slice(l, 0, 2, 3, 1)))));
        CHECK(tn_item(tn_all_all(tn_isnan(tn_slice(l, 0, 3, 4, 1)))));
        CHECK_STATUS(tn_linalg_check("cholesky", tn_slice(info, 0, 0, 2, 1)), TN_OK);
        CHECK_STATUS(tn_eigh(a, false, &w, &v), TN_OK);
        CHECK_VALUES(tn_sum(tn_cast(tn_isnan(w), TN_I32), 1), 0, 0, 2, 0);
        CHECK_STATUS(tn_svd(a, false, &u, &s, &vh), TN_OK);
        CHECK_VALUES(tn_sum_axes(tn_cast(tn_isnan(u), TN_I32), 2, (int[]){ 1, 2 }, false), 0, 0, 4,
                     0);
    }
}

// Batches and matrices without elements: shapes, the determinant 1, and nothing that fails.
static void empty_matrices_have_empty_results(void)
{
    for (tn_ctx *cx = next_device(NULL); cx; cx = next_device(cx)) {
        tn_tensor *none = tn_zeros(cx, TN_F32, TN_SHAPE(0, 3, 3)),
                  *flat = tn_zeros(cx, TN_F32, TN_SHAPE(2, 0, 0)), *l, *info, *q, *r;
        CHECK_INT(tn_count(tn_inv(none)), 0);
        CHECK_STATUS(tn_sync(cx), TN_OK);
        CHECK_STATUS(tn_cholesky_ex(flat, false, &l, &info), TN_OK);
        CHECK_VALUES(info, 0, 0);
        CHECK_VALUES(tn_det(flat), 1, 1);
        CHECK_STATUS(tn_qr(tn_zeros(cx, TN_F32, TN_SHAPE(3, 0)), true, &q, &r), TN_OK);
        CHECK_VALUES(q, 1, 0, 0, 0, 1, 0, 0, 0, 1);
        CHECK_VALUES(tn_solve(tn_full(cx, TN_F32, TN_SHAPE(1, 1), 4),
                              tn_full(cx, TN_F32, TN_SHAPE(1), 2)),
                     0.5);
        CHECK_STATUS(tn_linalg_check("inv", tn_zeros(cx, TN_I32, TN_SHAPE(0))), TN_OK);
    }
}

static void wrong_arguments_are_named(void)
{
    tn_ctx    *cx = next_device(NULL);
    tn_tensor *a  = tn_zeros(cx, TN_F32, TN_SHAPE(2, 3)),
              *b  = tn_zeros(cx, TN_F32, TN_SHAPE(4, 3, 3)), *y;
#define FAILS(call, code, ...) \
    CHECK(!(call));            \
    CHECK_FAILED2(cx, code, __VA_ARGS__)
    FAILS(tn_cholesky(a, false), TN_ESHAPE, "cholesky: x (2, 3)", "no square matrix");
    FAILS(tn_inv(tn_zeros(cx, TN_F32, TN_SHAPE(3))), TN_ESHAPE, "inv: x (3,)", "no square matrix");
    FAILS(tn_det(tn_zeros(cx, TN_I32, TN_SHAPE(3, 3))), TN_EDTYPE, "det: i32", "not a float");
    FAILS(tn_solve(b, a), TN_ESHAPE, "solve: a (4, 3, 3) and b (2, 3)", "do not fit");
    FAILS(tn_solve(b, tn_zeros(cx, TN_F32, TN_SHAPE(5, 3, 1))), TN_ESHAPE, "b (5, 3, 1)",
          "do not broadcast");
    FAILS(tn_matrix_norm(a, (tn_matrix_norm_kind)9), TN_EARG, "matrix_norm", "no norm 9");
    FAILS(tn_vector_norm(a, NAN, 0, NULL, false), TN_EARG, "vector_norm", "p is NaN");
    CHECK_STATUS(tn_svd(a, false, &y, NULL, &y), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "svd", "s is NULL");
    CHECK_STATUS(tn_linalg_check("x", a), TN_EDTYPE);
    CHECK_FAILED2(cx, TN_EDTYPE, "linalg_check", "f32, not i32");
    while (cx) cx = next_device(cx);
}

const test_case tests_linalg[] = {
    TEST(factors_multiply_to_what_was_factored),
    TEST(a_matrix_of_less_rank_has_a_whole_svd),
    TEST(what_has_no_factorization_is_nan_and_counted),
    TEST(empty_matrices_have_empty_results),
    TEST(wrong_arguments_are_named),
    TEST_END,
};
