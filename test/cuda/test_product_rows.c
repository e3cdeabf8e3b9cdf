// test_product_rows.c: products of one row by our own kernel: which it takes, how they are split,
// and, where there is a GPU, what it gives.
#include "check.h"

#include "device/cuda/product_rows.h"

#include <math.h>
#include <stdlib.h>
#include <tenon.h>

enum { UNITS = 132 };

// A matrix (rows, depth) in the library's words, along the inner axis or across it, times one
// column.
static tni_product product_of(tn_dtype dt, bool along, int64_t rows, int64_t depth)
{
    return (tni_product){ .in    = dt,
                          .out   = dt,
                          .rows  = rows,
                          .cols  = 1,
                          .depth = depth,
                          .batch = 1,
                          .x     = { { rows, depth, along ? depth : rows, 0, along },
                                     { depth, 1, depth, 0, false },
                                     { rows, 1, rows, 0, false } } };
}

static void aligned_products_of_one_row_are_taken(void)
{
    tni_product p = product_of(TN_BF16, true, 50257, 768);
    CHECK(tni_rows_takes(&p));
    p = product_of(TN_BF16, false, 2304, 768);
    CHECK(tni_rows_takes(&p));
    p.cols = 8;
    CHECK(tni_rows_takes(&p));
    p.cols = 9;
    CHECK(!tni_rows_takes(&p));
    p      = product_of(TN_BF16, false, 8192, 768);  // too many strips
    p.cols = 2;
    CHECK(!tni_rows_takes(&p));
    p = product_of(TN_BF16, false, 2300, 768);  // columns that do not begin at 16 bytes
    CHECK(!tni_rows_takes(&p));
    p = product_of(TN_F32, false, 2300, 768);
    CHECK(tni_rows_takes(&p));
    p = product_of(TN_F16, true, 768, 767);
    CHECK(!tni_rows_takes(&p));
    p = product_of(TN_F64, true, 768, 768);
    CHECK(!tni_rows_takes(&p));
    p                     = product_of(TN_F32, true, 768, 768);
    p.epilogue.activation = TNI_gelu_tanh;
    CHECK(!tni_rows_takes(&p));
    p.in = p.out = TN_BF16;
    CHECK(tni_rows_takes(&p));
}

static void the_inner_axis_is_split_until_a_gpu_is_full(void)
{
    static const struct {
        int64_t rows, depth;
        int     ranks;
    } row[] = {
        { 768, 768, 8 }, { 2304, 768, 4 }, { 3072, 768, 4 }, { 768, 64, 2 }, { 16384, 768, 1 }
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tni_product p = product_of(TN_BF16, false, row[i].rows, row[i].depth);
        CHECK_INT(tni_rows_ranks(&p, UNITS), row[i].ranks);
    }
}

// gelu(x w + b) + r for one row, several times, so that the last run is a graph. w is (K, N), or
// (N, K).
static bool run_row(tn_ctx *cx, tn_dtype dt, int64_t K, int64_t N, bool along, double *to)
{
    tn_seed(cx, 3);
    tn_grad_mode(cx, false);
    tn_tensor *x = tn_want(tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(1, K)), dt));
    tn_tensor *w = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(along ? N : K, along ? K : N)), 0.05);
    tn_tensor *b = tn_want(tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(N)), dt));
    tn_tensor *r = tn_want(tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(1, N)), dt));
    w            = tn_want(tn_cast(w, dt));
    tn_eval(cx);
    for (int i = 0; i < 6; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = along ? tn_linear(x, w, b) : tn_add(tn_matmul(x, w), b);
        tn_tensor *z = tn_want(tn_add(tn_gelu_tanh(y), r));
        tn_want(tn_mul_s(z, 2));
        tn_eval(cx);
        if (i == 5) tn_read(z, TN_F64, to, N);
        tn_end(s);
    }
    return tn_error(cx) == TN_OK;
}

static void one_row_on_the_gpu_is_as_on_the_cpu(void)
{
    static const int64_t shape[][2] = { { 768, 2304 }, { 3072, 768 }, { 136, 200 }, { 768, 4099 } };
    static const tn_dtype dtype[]   = { TN_F32, TN_F16, TN_BF16 };
    tn_ctx               *gpu       = tn_open("cuda");
    if (!gpu) SKIP("%s", tn_error_text(NULL));
    tn_ctx *cpu = tn_open("cpu");
    double *a = malloc(4099 * sizeof *a), *b = malloc(4099 * sizeof *b);
    for (int i = 0; i < 24; i++) {
        int64_t  K = shape[i / 6][0], N = shape[i / 6][1];
        tn_dtype dt    = dtype[i % 3];
        double   worst = 0, most = dt == TN_F32 ? 1e-5 : dt == TN_F16 ? 2e-3 : 1.6e-2;
        bool     ok = run_row(gpu, dt, K, N, i % 2, a) && run_row(cpu, dt, K, N, i % 2, b);
        for (int64_t j = 0; j < N; j++) worst = fmax(worst, fabs(a[j] - b[j]) / (1 + fabs(b[j])));
        test_case_result(ok && worst <= most, "%s %d x %d: off by %g", tn_dtype_name(dt), (int)K,
                         (int)N, worst);
    }
    free(a);
    free(b);
    tn_close(cpu);
    tn_close(gpu);
}

// Three products with one operand, of 3 rows, which become one launch in a graph.
static bool run_three(tn_ctx *cx, bool biased, double *to)
{
    enum { M = 3, K = 320, N = 200 };
    tn_seed(cx, 5);
    tn_grad_mode(cx, false);
    tn_tensor *x = tn_want(tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(M, K)), TN_BF16)), *w[3], *b[3];
    for (int i = 0; i < 3; i++) {
        tn_tensor *v = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(N + 72 * i, K)), 0.05);
        w[i]         = tn_want(tn_cast(v, TN_BF16));
        b[i]         = tn_want(tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(N + 72 * i)), TN_BF16));
    }
    tn_eval(cx);
    for (int i = 0; i < 6; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y[3];
        for (int j = 0; j < 3; j++) y[j] = tn_linear(x, w[j], biased ? b[j] : NULL);
        tn_tensor *z = tn_mul(tn_slice(y[1], 1, 0, N, 1), tn_slice(y[2], 1, 72, N + 72, 1));
        z            = tn_want(tn_add(z, y[0]));
        tn_eval(cx);
        if (i == 5) tn_read(z, TN_F64, to, M * N);
        tn_end(s);
    }
    return tn_error(cx) == TN_OK;
}

// A product that adds another one with the same operand, which is not done when this one begins.
// With one row it adds it as a bias.
static bool run_sum(tn_ctx *cx, int64_t M, double *to)
{
    enum { K = 320, N = 200 };
    tn_seed(cx, 7);
    tn_grad_mode(cx, false);
    tn_tensor *x = tn_want(tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(M, K)), TN_BF16)), *w[2];
    for (int i = 0; i < 2; i++)
        w[i] = tn_want(tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(N, K)), TN_BF16));
    tn_eval(cx);
    for (int i = 0; i < 6; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = tn_want(tn_linear(x, w[0], NULL));
        tn_tensor *z = tn_want(tn_add(tn_linear(x, w[1], NULL), y));
        tn_eval(cx);
        if (i == 5) tn_read(z, TN_F64, to, M * N);
        tn_end(s);
    }
    return tn_error(cx) == TN_OK;
}

static void products_with_one_operand_are_as_on_the_cpu(void)
{
    enum { COUNT = 600 };
    tn_ctx *gpu = tn_open("cuda");
    if (!gpu) SKIP("%s", tn_error_text(NULL));
    tn_ctx *cpu = tn_open("cpu");
    double  a[COUNT], b[COUNT];
    for (int i = 0; i < 2; i++) {
        double worst = 0;
        bool   ok    = run_three(gpu, i, a) && run_three(cpu, i, b);
        for (int j = 0; j < COUNT; j++) worst = fmax(worst, fabs(a[j] - b[j]) / (1 + fabs(b[j])));
        test_case_result(ok && worst <= 1.6e-2, "biased %d: off by %g", i, worst);
    }
    for (int M = 1; M <= 3; M += 2) {
        double worst = 0;
        bool   ok    = run_sum(gpu, M, a) && run_sum(cpu, M, b);
        for (int j = 0; j < 200 * M; j++) worst = fmax(worst, fabs(a[j] - b[j]) / (1 + fabs(b[j])));
        test_case_result(ok && worst <= 1.6e-2, "a sum, %d rows: off by %g", M, worst);
    }
    tn_close(cpu);
    tn_close(gpu);
}

const test_case tests_product_rows[] = {
    TEST(aligned_products_of_one_row_are_taken),
    TEST(the_inner_axis_is_split_until_a_gpu_is_full),
    TEST(one_row_on_the_gpu_is_as_on_the_cpu),
    TEST(products_with_one_operand_are_as_on_the_cpu),
    TEST_END,
};
