// test_product_pad.c: operands of products that are copied to lie better: which, and how.
#include "check.h"
#include "gpu_parts.h"
#include "rules_kit.h"

#include "device/cuda/product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

static tni_arg plain(tn_dtype dt, int64_t rows, int64_t cols)
{
    return (tni_arg){ .dtype = dt, .rank = 2, .size = { rows, cols }, .stride = { cols, 1 } };
}

static tni_arg turned(tn_dtype dt, int64_t rows, int64_t cols)
{
    return (tni_arg){ .dtype = dt, .rank = 2, .size = { rows, cols }, .stride = { 1, rows } };
}

// Which of the three are copied, as bits; -1 if one of them lies badly then.
static int padded(tni_arg a, tni_arg b, tni_arg out, bool tf32)
{
    tni_arg  in[2] = { a, b };
    tni_call c     = { .op = TNI_matmul, .nin = 2, .in = in, .out = out };
    tni_pads p;
    int      bits = 0;
    bool     any  = tni_product_pads(&c, tf32, &p);
    for (int i = 0; i < 3; i++) {
        const tni_arg *x = i < 2 ? &in[i] : &c.out, *y = &p.at[i];
        int64_t        size = (int64_t)tni_dtype_size(x->dtype), end = 1;
        if (!p.is[i]) continue;
        bits |= 1 << i;
        for (int k = 0; k < x->rank; k++) {
            if (y->size[k] != x->size[k] || !y->stride[k] != !x->stride[k]) return -1;
            if (y->stride[k] != 1 && y->stride[k] * size % 64) return -1;
            end += (x->size[k] - 1) * y->stride[k];
        }
        if (p.begin[i] % 64 || p.begin[i] + end * size > p.bytes) return -1;
    }
    CHECK(any == (bits != 0));
    return bits;
}

static void operands_that_lie_badly_are_copied(void)
{
    enum { T = 4096, C = 768, V = 50257 };
    // The classifier of a language model: its result, and both of its gradients.
    CHECK_INT(padded(plain(TN_F32, T, C), turned(TN_F32, C, V), plain(TN_F32, T, V), true), 4);
    CHECK_INT(padded(plain(TN_F32, T, V), plain(TN_F32, V, C), plain(TN_F32, T, C), true), 1);
    tni_arg across = { .dtype = TN_F32, .rank = 2, .size = { V, T }, .stride = { 1, V } };
    CHECK_INT(padded(across, plain(TN_F32, T, C), plain(TN_F32, V, C), true), 1);
    CHECK_INT(padded(plain(TN_BF16, T, V), plain(TN_BF16, V, C), plain(TN_BF16, T, C), false), 1);
    // What is computed without matrix units, lies well, or is too small.
    CHECK_INT(padded(plain(TN_F32, T, V), plain(TN_F32, V, C), plain(TN_F32, T, C), false), 0);
    CHECK_INT(padded(plain(TN_F64, T, V), plain(TN_F64, V, C), plain(TN_F64, T, C), true), 0);
    CHECK_INT(padded(plain(TN_F32, T, C), turned(TN_F32, C, V + 3), plain(TN_F32, T, V + 3), true),
              0);
    CHECK_INT(padded(plain(TN_F16, 9, V), plain(TN_F16, V, 33), plain(TN_F16, 9, 33), true), 0);
    CHECK_INT(padded(plain(TN_F16, 1, C), plain(TN_F16, C, V), plain(TN_F16, 1, V), true), 0);
    CHECK_INT(padded(plain(TN_F16, 33, C), plain(TN_F16, C, 65), plain(TN_F16, 33, 65), true), 0);
    // A batch with one right side.
    tni_arg x = {
        .dtype = TN_F16, .rank = 3, .size = { 4, 513, 777 }, .stride = { 513 * 777, 777, 1 }
    };
    tni_arg w = { .dtype = TN_F16, .rank = 3, .size = { 4, 777, 1031 }, .stride = { 0, 1031, 1 } };
    tni_arg y = {
        .dtype = TN_F16, .rank = 3, .size = { 4, 513, 1031 }, .stride = { 513 * 1031, 1031, 1 }
    };
    CHECK_INT(padded(x, w, y, false), 7);
}

// ---- on a GPU ----------------------------------------------------------------------------------

// Small whole numbers, so that every sum is exact: a (batch, rows, inner) and b (inner, cols).
static tn_tensor *product(tn_ctx *cx, tn_dtype dt, bool turn_a, bool turn_b, bool batch)
{
    int64_t    m = 513, k = 777, n = 1031, times = batch ? 3 : 1;
    tn_tensor *i = tn_remainder(tn_arange(cx, TN_I64, 0, (double)(times * m * k), 1),
                                tn_full(cx, TN_I64, TN_SHAPE(1), 7));
    tn_tensor *j = tn_remainder(tn_arange(cx, TN_I64, 0, (double)(k * n), 1),
                                tn_full(cx, TN_I64, TN_SHAPE(1), 5));
    tn_tensor *a = tn_reshape(tn_sub_s(i, 3), TN_SHAPE(times, turn_a ? k : m, turn_a ? m : k));
    tn_tensor *b = tn_reshape(tn_sub_s(j, 2), TN_SHAPE(turn_b ? n : k, turn_b ? k : n));
    a            = tn_keep(tn_cast(a, dt));
    b            = tn_keep(tn_cast(b, dt));
    tn_eval(cx);
    if (turn_a) a = tn_transpose(a, 1, 2);
    if (turn_b) b = tn_transpose(b, 0, 1);
    return tn_matmul(a, b);
}

static void run_products(int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16, TN_F32 };
    (void)part, (void)parts;
    setenv("TN_TF32", "1", 1);
    for (int i = 0; i < 24; i++) {
        tn_dtype dt   = dtypes[i / 8];
        tn_ctx  *cx[] = { rules_open(tested_device()), rules_open("cpu") };
        float   *v[2];
        int64_t  count = 0;
        for (int k = 0; k < 2; k++) {
            tn_tensor *y = tn_cast(product(cx[k], dt, i & 1, i & 2, i & 4), TN_F32);
            count        = tn_count(y);
            v[k]         = malloc((size_t)count * sizeof **v);
            CHECK_STATUS(tn_read(y, TN_F32, v[k], count), TN_OK);
        }
        test_that(!memcmp(v[0], v[1], (size_t)count * sizeof **v), "%s, form %d", tn_dtype_name(dt),
                  i % 8);
        for (int k = 0; k < 2; k++) free(v[k]), tn_close(cx[k]);
    }
}

static void products_of_odd_sizes_on_a_gpu_are_exact(void)
{
    in_parts(run_products, 1);
}

const test_case tests_product_pad[] = {
    TEST(operands_that_lie_badly_are_copied),
    TEST(products_of_odd_sizes_on_a_gpu_are_exact),
    TEST_END,
};
