// Sparse matrices on every device: products of many shapes beside those of the dense matrix,
// patterns, NaN and infinity, and what is said about indices that do not fit.
#include "check.h"
#include "rules_kit.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>

static const char *const devices[] = { "cpu", "ref", "opencl", "cuda" };
enum { DEVICES = sizeof devices / sizeof *devices };

// A matrix with about one element in `every`, none in some rows, and all in row 1.
static tn_tensor *dense(tn_ctx *cx, tn_dtype dt, int64_t rows, int64_t cols, uint32_t every)
{
    float *v = calloc((size_t)(rows * cols) + 1, sizeof *v);
    for (int64_t i = 0; i < rows * cols; i++)
        if (i / cols == 1 || (i / cols % 5 != 2 && draw() % every == 0))
            v[i] = 0.25f + (float)(draw() % 64) / 32;
    tn_tensor *x = tn_cast(tn_from(cx, TN_F32, TN_SHAPE(rows, cols), v), dt);
    free(v);
    return x;
}

static double far(tn_tensor *a, tn_tensor *b)
{
    if (!a || !b || tn_count(a) != tn_count(b)) return NAN;
    return tn_count(a) ? tn_item(tn_max_all(tn_abs(tn_sub(tn_cast(a, TN_F64), tn_cast(b, TN_F64)))))
                       : 0;
}

// Sums of up to 300 products below 5 in f32; of 16 bits the one rounding of a number below 1500.
static double slack(tn_dtype dt)
{
    return dt == TN_F64 ? 1e-10 : dt == TN_F32 ? 2e-3 : dt == TN_F16 ? 1 : 8;
}

// Both ways, every width that a kernel treats otherwise, and the gradients, which are products of
// the same kind.
static void check_products(tn_ctx *cx, tn_dtype dt, int64_t rows, int64_t cols, int64_t n)
{
    tn_scope  *scope = tn_begin(cx);
    tn_tensor *d     = tn_requires_grad(dense(cx, dt, rows, cols, 9), true), *x, *y, *g[2], *h[2];
    tn_sparse  a;
    CHECK_STATUS(tn_sparse_from_dense(d, &a), TN_OK);
    CHECK(far(tn_sparse_to_dense(a), d) == 0);
    for (int turned = 0; turned < 2; turned++) {
        a.transposed    = turned;
        x               = tn_requires_grad(dense(cx, dt, turned ? rows : cols, n, 1), true);
        tn_tensor *w    = dense(cx, dt, turned ? cols : rows, n, 1);
        y               = tn_sparse_matmul(a, x);
        tn_tensor *want = tn_matmul(turned ? tn_transpose(d, 0, 1) : d, x);
        test_case_result(far(y, want) <= slack(dt), "%s (%d, %d) x %d%s: off by %g",
                         tn_dtype_name(dt), (int)rows, (int)cols, (int)n, turned ? ", turned" : "",
                         far(y, want));
        if (dt != TN_F64 && rows < 300) continue;  // shapes that are compiled for cost time
        CHECK_STATUS(tn_grad(1, &y, 2, (tn_tensor *[]){ d, x }, &w, g), TN_OK);
        CHECK_STATUS(tn_grad(1, &want, 2, (tn_tensor *[]){ d, x }, &w, h), TN_OK);
        // Places without an element have no gradient.
        h[0] = tn_where(tn_ne_s(d, 0), h[0], tn_zeros_like(d));
        for (int i = 0; i < 2; i++)
            test_case_result(far(g[i], h[i]) <= slack(dt),
                             "gradient %d of (%d, %d) x %d%s: off by %g", i, (int)rows, (int)cols,
                             (int)n, turned ? ", turned" : "", far(g[i], h[i]));
    }
    tn_end(scope);
}

static void products_are_those_of_the_dense_matrix(void)
{
    static const int64_t widths[] = { 1, 7, 70, 300 };
    for (int i = 0; i < DEVICES; i++) {
        tn_ctx *cx = open_quiet(devices[i], 0);
        if (!cx) continue;
        table_seed(5);
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            check_products(cx, TN_F32, 37, 61, widths[w]);
        check_products(cx, TN_F64, 61, 37, 1);
        check_products(cx, TN_F16, 9, 100, 40);
        check_products(cx, TN_BF16, 9, 100, 3);
        check_products(cx, TN_F32, 300, 300, 64);
        CHECK_STR(tn_error_text(cx), "");
        tn_close(cx);
    }
}

// Elements are kept by rows and columns; those at one place are one, their sum. A matrix may have
// none, or no rows.
static void elements_are_sorted_and_added_up(void)
{
    tn_ctx    *cx = open_quiet("cpu", 0);
    tn_sparse  a;
    float      v[]    = { 1, 2, 3, 4, 5 }, all[6], kept[4];
    int64_t    at[]   = { 1, 0, 1, 0, 1, 2, 1, 0, 1, 2 }, place[8];
    tn_tensor *values = tn_requires_grad(tn_from(cx, TN_F32, TN_SHAPE(5), v), true), *g;
    CHECK_STATUS(tn_sparse_coo(tn_from(cx, TN_I64, TN_SHAPE(2, 5), at), values, 2, 3, &a), TN_OK);
    CHECK_INT(tn_size(a.values, 0), 3);
    tn_read(a.values, TN_F32, kept, 3);
    CHECK(kept[0] == 6 && kept[1] == 3 && kept[2] == 6);
    tn_read(tn_sparse_indices(a), TN_I64, place, 6);
    CHECK(place[0] == 0 && place[1] == 1 && place[2] == 1 && place[3] == 1 && place[4] == 0 &&
          place[5] == 2);
    tn_read(tn_sparse_to_dense(a), TN_F32, all, 6);
    CHECK(all[1] == 6 && all[3] == 3 && all[5] == 6 && all[0] == 0);
    tn_tensor *y = tn_sum_all(tn_sparse_matmul(a, tn_arange(cx, TN_F32, 1, 4, 1)));
    CHECK_STATUS(tn_grad(1, &y, 1, &values, NULL, &g), TN_OK);
    tn_read(g, TN_F32, v, 5);
    CHECK(v[0] == 3 && v[1] == 2 && v[2] == 1 && v[3] == 2 && v[4] == 3);
    CHECK_STATUS(tn_sparse_csr(tn_from(cx, TN_I32, TN_SHAPE(3), (int32_t[]){ 0, 2, 3 }),
                               tn_from(cx, TN_I32, TN_SHAPE(3), (int32_t[]){ 2, 0, 1 }),
                               tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 7, 8, 9 }), 3, &a),
                 TN_OK);
    tn_read(tn_sparse_to_dense(a), TN_F32, all, 6);
    CHECK(all[0] == 8 && all[2] == 7 && all[4] == 9);
    CHECK_STATUS(tn_sparse_from_dense(tn_zeros(cx, TN_F32, TN_SHAPE(4, 0)), &a), TN_OK);
    CHECK(far(tn_sparse_matmul(a, tn_zeros(cx, TN_F32, TN_SHAPE(0, 3))),
              tn_zeros(cx, TN_F32, TN_SHAPE(4, 3))) == 0);
    CHECK_STATUS(tn_sparse_from_dense(tn_zeros(cx, TN_F32, TN_SHAPE(4, 2)), &a), TN_OK);
    CHECK(far(tn_sparse_matmul(a, tn_full(cx, TN_F32, TN_SHAPE(2), NAN)),
              tn_zeros(cx, TN_F32, TN_SHAPE(4))) == 0);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// What a row has an element for is multiplied as anywhere: NaN and infinity come through, and 0
// times infinity is NaN. Other elements of x are not read.
static void special_values_pass(void)
{
    for (int i = 0; i < DEVICES; i++) {
        tn_ctx *cx = open_quiet(devices[i], 0);
        if (!cx) continue;
        tn_sparse  a;
        float      y[5];
        tn_tensor *at = tn_from(cx, TN_I64, TN_SHAPE(2, 4), (int64_t[]){ 0, 1, 2, 3, 0, 1, 2, 0 });
        tn_tensor *v  = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 2, 0, -1, NAN });
        tn_tensor *x  = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 1, INFINITY, INFINITY, NAN });
        CHECK_STATUS(tn_sparse_coo(at, v, 5, 4, &a), TN_OK);
        CHECK_STATUS(tn_read(tn_sparse_matmul(a, x), TN_F32, y, 5), TN_OK);
        CHECK(y[0] == 2 && isnan(y[1]) && y[2] == -INFINITY && isnan(y[3]) && y[4] == 0);
        tn_close(cx);
    }
}

static void what_does_not_fit_is_named(void)
{
    tn_ctx    *cx = open_quiet("cpu", 0);
    tn_sparse  a;
    tn_tensor *at  = tn_from(cx, TN_I64, TN_SHAPE(2, 2), (int64_t[]){ 0, 1, 4, 0 });
    tn_tensor *v   = tn_ones(cx, TN_F32, TN_SHAPE(2)),
              *off = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 0, 3, 2 });
    tn_tensor *in  = tn_from(cx, TN_I64, TN_SHAPE(2), (int64_t[]){ 0, 1 });
#define SAYS(call, text)                    \
    do {                                    \
        CHECK(!(call));                     \
        CHECK_STR(tn_error_text(cx), text); \
        tn_error_clear(cx);                 \
    } while (0)
    SAYS(tn_sparse_coo(at, v, 2, 4, &a) == TN_OK,
         "sparse_coo: column 4 of element 0 is out of range for 4 columns");
    SAYS(tn_sparse_coo(at, v, 1, 5, &a) == TN_OK,
         "sparse_coo: row 1 of element 1 is out of range for 1 rows");
    SAYS(tn_sparse_coo(v, v, 1, 5, &a) == TN_OK, "sparse_coo: indices are f32, not integers");
    SAYS(tn_sparse_coo(in, v, 1, 5, &a) == TN_OK, "sparse_coo: indices (2,) are not (2, count)");
    SAYS(tn_sparse_coo(at, in, 2, 5, &a) == TN_OK, "sparse_coo: i64 is not a float type");
    SAYS(tn_sparse_coo(at, tn_ones(cx, TN_F32, TN_SHAPE(3)), 2, 5, &a) == TN_OK,
         "sparse_coo: values (3,) are not (2,)");
    SAYS(tn_sparse_coo(at, v, -1, 5, &a) == TN_OK, "sparse_coo: -1 rows");
    SAYS(tn_sparse_csr(off, in, v, 5, &a) == TN_OK,
         "sparse_csr: offsets 0 and 3 of row 0 are none of 2 elements");
    SAYS(tn_sparse_csr(in, in, v, 5, &a) == TN_OK, "sparse_csr: the last of offsets is 1, not 2");
    SAYS(tn_sparse_from_dense(v, &a) == TN_OK, "sparse_from_dense: x (2,) is no matrix");
    CHECK_STATUS(tn_sparse_coo(at, v, 2, 5, &a), TN_OK);
    SAYS(tn_sparse_matmul(a, v), "sparse_matmul: a (2, 5) and x (2,) do not fit");
    SAYS(tn_sparse_sampled(a, tn_ones(cx, TN_F32, TN_SHAPE(2, 3)),
                           tn_ones(cx, TN_F32, TN_SHAPE(3, 4))),
         "sparse_sampled: x (2, 3) times y (3, 4) is not (2, 5)");
    a.rows = 9;
    SAYS(tn_sparse_to_dense(a),
         "sparse_to_dense: values (2,) and pattern (28,) are not those of a matrix (9, 5)");
    a.pattern = NULL;
    SAYS(tn_sparse_matmul(a, v), "sparse_matmul: a.pattern is NULL");
    tn_close(cx);
}

const test_case tests_sparse[] = { TEST(products_are_those_of_the_dense_matrix),
                                   TEST(elements_are_sorted_and_added_up),
                                   TEST(special_values_pass), TEST(what_does_not_fit_is_named),
                                   TEST_END };
