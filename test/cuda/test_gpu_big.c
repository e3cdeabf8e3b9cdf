// test_gpu_big.c: tensors of more than 2^31 elements, on a GPU that has room for them. What they
// hold follows from their places, so that any element can be checked alone.
#include "check.h"
#include "gpu_parts.h"
#include "rules_kit.h"

#include <math.h>
#include <string.h>
#include <tenon.h>

enum { CYCLE = 251 };

// Sizes: x has n elements, of which rows x cols make a matrix, and places of interest. On other
// devices than cuda (TN_TEST_DEVICE) the same is tried with small ones.
typedef struct {
    int64_t n, rows, cols, m;  // m x m is a product
    int64_t place[6];
} sizes;

static sizes wanted(void)
{
    bool    big = !strncmp(tested_device(), "cuda", 4);
    int64_t n = big ? ((int64_t)1 << 31) + 12345 : 70001, rows = big ? 50000 : 300;
    return (sizes){ .n     = n,
                    .rows  = rows,
                    .cols  = n / rows,
                    .m     = big ? 47000 : 210,
                    .place = { 0, 1, n / 2, n - 12346, n - 12345, n - 1 } };
}

// A context with room for such tensors; NULL if there is none.
static tn_ctx *open_has_memory(const sizes *z)
{
    tn_ctx *cx = rules_open(tested_device());
    tn_keep(tn_zeros(cx, TN_U8, TN_SHAPE(24 * z->n)));
    bool has_memory = tn_eval(cx) == TN_OK;
    tn_close(cx);
    return has_memory ? rules_open(tested_device()) : NULL;
}

// Element i is i % CYCLE.
static tn_tensor *cycle(tn_ctx *cx, const sizes *z, tn_dtype dt)
{
    tn_tensor *i = tn_arange(cx, TN_I64, 0, (double)z->n, 1);
    return tn_keep(tn_cast(tn_remainder(i, tn_full(cx, TN_I64, TN_SHAPE(1), CYCLE)), dt));
}

// The sum of i % CYCLE over i < n.
static double sum_to(int64_t n)
{
    int64_t rest = n % CYCLE;
    return (double)(n / CYCLE * (CYCLE * (CYCLE - 1) / 2) + rest * (rest - 1) / 2);
}

static double element(tn_tensor *x, int64_t i)
{
    return tn_item(tn_select(x, 0, i));
}

static double element2(tn_tensor *x, int64_t i, int64_t j)
{
    return tn_item(tn_select(tn_select(x, 0, i), 0, j));
}

static void maps_and_folds(int part, int parts)
{
    (void)part, (void)parts;
    sizes   z  = wanted();
    tn_ctx *cx = open_has_memory(&z);
    if (!cx) SKIP("there is no room for 24 times 2^31 bytes");
    tn_tensor *x = cycle(cx, &z, TN_U8);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *y = tn_keep(tn_relu(tn_sub_s(tn_cast(x, TN_F32), 100)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int i = 0; i < 6; i++) {
        double v = (double)(z.place[i] % CYCLE);
        CHECK(element(x, z.place[i]) == v);
        CHECK(element(y, z.place[i]) == fmax(v - 100, 0));
    }
    CHECK(tn_item(tn_sum_all(x)) == sum_to(z.n));
    CHECK(tn_item(tn_max_all(y)) == CYCLE - 101);
    CHECK(tn_item(tn_argmax_all(x)) == CYCLE - 1);
    CHECK(tn_item(tn_argmax_all(tn_arange(cx, TN_I64, 0, (double)z.n, 1))) == (double)(z.n - 1));
    CHECK(tn_item(tn_sum_all(tn_eq_s(x, 7))) == (double)((z.n - 8) / CYCLE + 1));
    tn_tensor *back = tn_flip(x, 0), *part_of = tn_slice(x, 0, 5, z.n, 3);
    CHECK(element(tn_contiguous(back), 3) == (double)((z.n - 4) % CYCLE));
    CHECK(element(tn_contiguous(part_of), (z.n - 6) / 3) ==
          (double)((5 + (z.n - 6) / 3 * 3) % CYCLE));
    tn_tensor *two[] = { tn_slice(x, 0, 0, 1000, 1), x };
    CHECK(element(tn_concat(2, two, 0), z.n + 999) == (double)((z.n - 1) % CYCLE));
    tn_close(cx);
}

static void rows_and_columns(int part, int parts)
{
    (void)part, (void)parts;
    sizes   z  = wanted();
    tn_ctx *cx = open_has_memory(&z);
    if (!cx) SKIP("there is no room for 24 times 2^31 bytes");
    int64_t    rows = z.rows, cols = z.cols, last = rows * cols - 1;
    tn_tensor *flat = tn_slice(cycle(cx, &z, TN_U8), 0, 0, rows * cols, 1);
    tn_tensor *x    = tn_keep(tn_reshape(flat, TN_SHAPE(rows, cols)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *turned = tn_contiguous(tn_add_s(tn_transpose(x, 0, 1), 1));
    tn_tensor *sums[] = { tn_sum(x, 0), tn_sum(x, 1) };
    CHECK(element2(turned, cols - 1, rows - 1) == (double)(last % CYCLE + 1));
    CHECK(element2(turned, 1, rows - 1) == (double)(((rows - 1) * cols + 1) % CYCLE + 1));
    double column = 0;
    for (int64_t i = 0; i < rows; i++) column += (double)((i * cols + cols - 1) % CYCLE);
    CHECK(element(sums[0], cols - 1) == column);
    CHECK(element(sums[1], rows - 1) == sum_to(last + 1) - sum_to(last + 1 - cols));
    tn_tensor *y = tn_keep(tn_softmax(tn_mul_s(tn_cast(x, TN_F32), 0.01), 1));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    double a = element2(y, rows - 1, cols - 1), b = element2(y, rows - 1, cols - 2);
    CHECK(fabs(a / b - exp(0.01 * (double)(last % CYCLE - (last - 1) % CYCLE))) < 1e-5);
    CHECK(fabs(tn_item(tn_min_all(tn_sum(y, 1))) - 1) < 1e-4);
    CHECK(fabs(tn_item(tn_max_all(tn_sum(y, 1))) - 1) < 1e-4);
    tn_close(cx);
}

static void places_by_index(int part, int parts)
{
    (void)part, (void)parts;
    sizes   z  = wanted();
    tn_ctx *cx = open_has_memory(&z);
    if (!cx) SKIP("there is no room for 24 times 2^31 bytes");
    int64_t    rows = z.n / 64, index[] = { rows - 1, 0, rows / 2, rows - 2, rows - 1 };
    tn_tensor *flat  = tn_slice(cycle(cx, &z, TN_F32), 0, 0, rows * 64, 1);
    tn_tensor *table = tn_keep(tn_reshape(flat, TN_SHAPE(rows, 64)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_requires_grad(table, true);
    tn_tensor *got = tn_embed(tn_from(cx, TN_I64, TN_SHAPE(5), index), table);
    for (int i = 0; i < 5; i++)
        CHECK(element2(got, i, 63) == (double)((index[i] * 64 + 63) % CYCLE));
    CHECK_STATUS(tn_backward(tn_sum_all(got), NULL), TN_OK);
    tn_tensor *grad = tn_grad_of(table);
    CHECK(element2(grad, rows - 1, 63) == 2);
    CHECK(element2(grad, rows - 2, 0) == 1);
    CHECK(element2(grad, rows - 3, 0) == 0);
    CHECK(tn_item(tn_sum_all(grad)) == 5 * 64);
    tn_close(cx);
}

// Small whole numbers, so that every sum is exact in half precision.
static void products(int part, int parts)
{
    (void)part, (void)parts;
    sizes   z  = wanted();
    tn_ctx *cx = open_has_memory(&z);
    if (!cx) SKIP("there is no room for 24 times 2^31 bytes");
    int64_t    m = z.m, places[] = { 0, 1, m / 2, m - 2, m - 1 };
    tn_tensor *i = tn_reshape(tn_arange(cx, TN_I64, 0, (double)m, 1), TN_SHAPE(m, 1));
    tn_tensor *k = tn_reshape(tn_arange(cx, TN_I64, 0, 16, 1), TN_SHAPE(1, 16));
    tn_tensor *x = tn_add(tn_mul_s(i, 3), k);
    x            = tn_cast(tn_remainder(x, tn_full(cx, TN_I64, TN_SHAPE(1), 5)), TN_F16);
    tn_tensor *y = tn_keep(tn_add_s(tn_matmul(tn_keep(x), tn_transpose(x, 0, 1)), 1));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) {
            double want = 1;
            for (int64_t t = 0; t < 16; t++)
                want += (double)((places[a] * 3 + t) % 5 * ((places[b] * 3 + t) % 5));
            CHECK(element2(y, places[a], places[b]) == want);
        }
    tn_close(cx);
}

static void maps_and_folds_of_many_elements_are_right(void)
{
    in_parts(maps_and_folds, 1);
}

static void rows_and_columns_of_many_elements_are_right(void)
{
    in_parts(rows_and_columns, 1);
}

static void indices_into_many_elements_are_right(void)
{
    in_parts(places_by_index, 1);
}

// A matrix of -1, 0 and 1.
static tn_tensor *signs(tn_ctx *cx, int64_t rows, int64_t cols, tn_dtype dt)
{
    return tn_keep(tn_cast(tn_sub_s(tn_randint(cx, TN_I64, 0, 3, TN_SHAPE(rows, cols)), 1), dt));
}

// Products of 16 bits with an odd number of classes: as output, as depth, and as rows of the
// weight's gradient. Sums of whole numbers below 256 are exact in bf16, so that both dtypes must
// give the same.
static void odd_products(int part, int parts)
{
    (void)part, (void)parts;
    bool    big = !strncmp(tested_device(), "cuda", 4);
    int64_t M = big ? 4096 : 64, K = 64, N = big ? 50257 : 1013;
    tn_ctx *cx = rules_open(tested_device());
    tn_seed(cx, 3);
    tn_tensor *x = signs(cx, M, K, TN_F32), *w = signs(cx, N, K, TN_F32), *sum[2], *gx[2], *gw[2];
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int i = 0; i < 2; i++) {
        tn_dtype   dt = i ? TN_BF16 : TN_F32;
        tn_tensor *a = tn_keep(tn_cast(x, dt)), *b = tn_keep(tn_cast(w, dt));
        tn_scope  *s = tn_begin(cx);
        tn_tensor *z = tn_cast(tn_matmul(a, tn_transpose(b, 0, 1)), TN_F32);
        sum[i]       = tn_keep(tn_sum(tn_mul(z, tn_gt_s(z, 8)), 1));  // row by row
        // Few elements of each row, so that the sums over classes stay exact too.
        tn_tensor *row = tn_unsqueeze(tn_max(z, 1), 1);
        tn_tensor *g   = tn_cast(tn_eq(z, row), dt);
        gx[i]          = tn_keep(tn_cast(tn_matmul(g, b), TN_F32));
        gw[i]          = tn_keep(tn_cast(tn_matmul(tn_transpose(g, 0, 1), a), TN_F32));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
    }
    CHECK(tn_item(tn_max_all(tn_abs(tn_sub(sum[0], sum[1])))) == 0);
    CHECK(tn_item(tn_max_all(tn_abs(tn_sub(gx[0], gx[1])))) == 0);
    CHECK(tn_item(tn_max_all(tn_abs(tn_sub(gw[0], gw[1])))) == 0);
    CHECK(tn_item(tn_max_all(tn_abs(gx[0]))) > 0 && tn_item(tn_max_all(sum[0])) > 8);
    CHECK_STATUS(tn_error(cx), TN_OK);
    tn_close(cx);
}

static void products_of_odd_sizes_are_exact_for_whole_numbers(void)
{
    in_parts(odd_products, 1);
}

static void products_with_many_elements_are_right(void)
{
    in_parts(products, 1);
}

const test_case tests_gpu_big[] = {
    TEST(maps_and_folds_of_many_elements_are_right),
    TEST(rows_and_columns_of_many_elements_are_right),
    TEST(indices_into_many_elements_are_right),
    TEST(products_with_many_elements_are_right),
    TEST(products_of_odd_sizes_are_exact_for_whole_numbers),
    TEST_END,
};
