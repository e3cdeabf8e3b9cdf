// Products and convolutions of bytes on every device: bits of 64-bit arithmetic for the largest
// numbers and long sums, each kernel of this machine, weights that change, and the kernel behind a
// product as part of its step.
#include "check.h"
#include "rules_kit.h"
#include "scratch.h"
#include "table.h"

#include "device/cpu/gemm_bytes.h"

#include <stdlib.h>
#include <string.h>

static const char *const devices[] = { "cpu", "ref", "opencl", "cuda" };
enum { DEVICES = sizeof devices / sizeof *devices };

// Bytes of a dtype: random; or, of `extreme`, the ends of its range alone: the larger in absolute
// value, or either.
static void draw_bytes(uint8_t *x, int64_t n, tn_dtype dt, int extreme)
{
    uint8_t large = dt == TN_U8 ? 255 : 0x80, small = dt == TN_U8 ? 0 : 0x7f;
    for (int64_t i = 0; i < n; i++)
        x[i] = extreme == 0 ? (uint8_t)draw() : extreme == 1 || draw() & 1 ? large : small;
}

static int64_t byte_value(tn_dtype dt, uint8_t v)
{
    return dt == TN_U8 ? v : (int8_t)v;
}

// ---- kernels

// A tile, its operands packed as gemm_bytes.h says, beside the definition.
static void check_tile(const tni_bytes_kernel *k, int64_t steps, int rows, int extreme)
{
    int64_t  depth = steps * k->kr;
    uint8_t *a = malloc((size_t)(depth * k->mr)), *b = malloc((size_t)(depth * k->nr));
    int32_t  start[TNI_BYTES_MOST_COLS], c[TNI_BYTES_MOST_ROWS + 1][TNI_BYTES_MOST_COLS + 1];
    tn_dtype da    = k->unsigned_a ? TN_U8 : TN_I8;
    int      wrong = 0;
    draw_bytes(a, depth * k->mr, da, extreme);
    draw_bytes(b, depth * k->nr, TN_I8, extreme);
    for (int j = 0; j < k->nr; j++) start[j] = (int32_t)draw();
    for (int i = 0; i <= TNI_BYTES_MOST_ROWS; i++)
        for (int j = 0; j <= TNI_BYTES_MOST_COLS; j++) c[i][j] = -7;
    k->tile(steps, rows, a, b, start, c[0], TNI_BYTES_MOST_COLS + 1);
    for (int i = 0; i <= TNI_BYTES_MOST_ROWS; i++)
        for (int j = 0; j <= TNI_BYTES_MOST_COLS; j++) {
            bool     inside = i < rows && j < k->nr;
            uint64_t sum    = inside ? (uint64_t)start[j] : (uint64_t)-7;
            for (int64_t s = 0; inside && s < depth; s++) {
                int64_t at = s / k->kr, in = s % k->kr;
                sum += (uint64_t)(byte_value(da, a[(at * k->mr + i) * k->kr + in]) *
                                  byte_value(TN_I8, b[(at * k->nr + j) * k->kr + in]));
            }
            wrong += c[i][j] != (int32_t)(uint32_t)sum;
        }
    test_case_result(!wrong, "%s, %d rows, %d deep: %d wrong", k->name, rows, (int)depth, wrong);
    free(a);
    free(b);
}

static void every_kernel_is_exact(void)
{
    const tni_bytes_kernel *k;
    int                     n = 0;
    table_seed(3);
    for (; (k = tni_bytes_kernel_get(n)); n++)
        for (int extreme = 0; extreme < 3; extreme++)
            for (int rows = 1; rows <= k->mr; rows++) {
                check_tile(k, 1 + rows % 3, rows, extreme);
                if (rows == k->mr && extreme) check_tile(k, 65536 / k->kr, rows, extreme);
            }
    CHECK(n > 0 && tni_bytes_kernel_get(n - 1) == &tni_bytes_base);
}

// ---- products

static tn_tensor *bytes(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, const uint8_t *x)
{
    return tn_from(cx, dt, rank, size, x);
}

static void check_product(tn_ctx *cx, tn_dtype da, tn_dtype db, int64_t m, int64_t k, int64_t n,
                          int extreme)
{
    uint8_t  *a = malloc((size_t)(m * k)), *b = malloc((size_t)(k * n));
    int32_t  *y     = calloc((size_t)(m * n), sizeof *y);
    tn_scope *scope = tn_begin(cx);
    int64_t   wrong = 0;
    draw_bytes(a, m * k, da, extreme);
    draw_bytes(b, k * n, db, extreme);
    tn_tensor *x = bytes(cx, da, TN_SHAPE(m, k), a), *w = bytes(cx, db, TN_SHAPE(k, n), b);
    CHECK_STATUS(tn_read(tn_matmul_i32(x, w), TN_I32, y, m * n), TN_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t sum = 0;
            for (int64_t s = 0; s < k; s++)
                sum += byte_value(da, a[i * k + s]) * byte_value(db, b[s * n + j]);
            wrong += y[i * n + j] != (int32_t)(uint32_t)(uint64_t)sum;
        }
    test_case_result(!wrong, "%s: %s (%d, %d) @ %s (%d, %d): %d wrong", tn_ctx_device(cx),
                     tn_dtype_name(da), (int)m, (int)k, tn_dtype_name(db), (int)k, (int)n,
                     (int)wrong);
    tn_end(scope);
    free(a);
    free(b);
    free(y);
}

// 65536 products of 255 and -128 are -2139095040, which i32 just holds; of u8 by u8 the sums wrap.
static void products_have_the_bits_of_wide_sums(void)
{
    for (int i = 0; i < DEVICES; i++) {
        tn_ctx *cx = open_quiet(devices[i], 0);
        if (!cx) continue;
        table_seed(8);
        for (int pair = 0; pair < 4; pair++) {
            tn_dtype da = pair & 1 ? TN_I8 : TN_U8, db = pair & 2 ? TN_U8 : TN_I8;
            for (int extreme = 0; extreme < 3; extreme++) {
                if (extreme == 1) check_product(cx, da, db, 3, 65536, 2, extreme);
                check_product(cx, da, db, 21, 147, 37, extreme);
                check_product(cx, da, db, 1, 64, 130, extreme);
            }
            check_product(cx, da, db, 150, 96, 160, 0);
        }
        CHECK_STR(tn_error_text(cx), "");
        tn_close(cx);
    }
}

// ---- convolutions

// Beside the same convolution in f64, of x padded before: all numbers are whole and below 2^53.
static void convolutions_are_those_of_padded_numbers(void)
{
    static const struct {
        int64_t      C, O, size, taps;
        tn_conv_opts o;
    } cases[] = {
        { 3, 9, 17, 7, { .stride = { 2 }, .padding = { 3 } } },
        { 16, 24, 9, 3, { .padding = { 1 } } },
        { 64, 40, 7, 1, { .stride = { 2 } } },
        { 32, 32, 6, 3, { .padding = { 2 }, .dilation = { 2 }, .groups = 4 } },
        { 40, 40, 8, 3, { .padding = { 1 }, .groups = 40 } },
        { 12, 24, 8, 5, { .padding = { 2 }, .stride = { 3 }, .groups = 12 } },
    };
    for (int i = 0; i < DEVICES; i++) {
        tn_ctx *cx = open_quiet(devices[i], 0);
        if (!cx) continue;
        table_seed(21);
        for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
            tn_scope *scope = tn_begin(cx);
            int64_t   C = cases[k / 2].C, O = cases[k / 2].O, n = cases[k / 2].size,
                    taps = cases[k / 2].taps, G = cases[k / 2].o.groups ? cases[k / 2].o.groups : 1;
            tn_conv_opts   o  = cases[k / 2].o;
            tn_dtype       dx = k & 1 ? TN_I8 : TN_U8, dw = k % 3 ? TN_I8 : TN_U8;
            int64_t        pad = k & 1 ? -128 : 255, p = o.padding[0];
            static uint8_t x[2 * 64 * 17 * 17], w[40 * 64 * 9];
            draw_bytes(x, 2 * C * n * n, dx, (int)k % 3);
            draw_bytes(w, O * C / G * taps * taps, dw, (int)k % 3);
            tn_tensor *tx   = bytes(cx, dx, TN_SHAPE(2, C, n, n), x);
            tn_tensor *tw   = bytes(cx, dw, TN_SHAPE(O, C / G, taps, taps), w);
            tn_tensor *y    = tn_conv_i32(tx, tw, pad, o);
            tn_tensor *wide = tn_pad(tn_cast(tx, TN_F64), (int64_t[]){ 0, 0, p, p },
                                     (int64_t[]){ 0, 0, p, p }, (double)pad);
            memset(o.padding, 0, sizeof o.padding);
            tn_tensor *want = tn_conv2d(wide, tn_cast(tw, TN_F64), NULL, o);
            tn_tensor *off  = tn_abs(tn_sub(tn_cast(y, TN_F64), want));
            test_case_result(y && tn_item(tn_max_all(off)) == 0, "%s: case %d", devices[i], (int)k);
            tn_end(scope);
        }
        CHECK_STR(tn_error_text(cx), "");
        tn_close(cx);
    }
}

// ---- in a network

// What a quantized network computes of the sums: scaled by channel, rounded, shifted and cut to a
// byte.
static tn_tensor *requantized(tn_tensor *y, tn_tensor *bias, tn_tensor *scale)
{
    y = tn_mul(tn_cast(tn_add(y, bias), TN_F32), scale);
    y = tn_clamp(tn_add_s(tn_round(y), 5), 0, 255);
    return tn_cast(y, TN_U8);
}

// On cpu the sums and what becomes of them are one step, whose packed weights are kept while they
// are the same value.
static void requantizing_is_part_of_the_step(void)
{
    char   found[64] = "";
    size_t size;
    if (!CHECK(scratch_open())) return;
    setenv("TN_EXPLAIN", scratch_path("plans"), 1);
    setenv("TN_COMPILE", "wait", 1);
    tn_ctx    *cx    = open_quiet("cpu", 2);
    tn_tensor *w     = tn_zeros(cx, TN_I8, TN_SHAPE(32, 16, 3, 3)), *x[2], *y[2];
    tn_tensor *scale = tn_mul_s(tn_add_s(tn_arange(cx, TN_F32, 0, 32, 1), 1), 0x1p-12);
    tn_tensor *bias  = tn_sub_s(tn_arange(cx, TN_I32, 0, 320, 10), 100);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    table_seed(4);
    for (int i = 0; i < 8; i++) {
        tn_scope      *s = tn_begin(cx);
        static uint8_t v[32 * 16 * 9], u[16 * 12 * 12];
        uint8_t        got[32 * 12 * 12];
        if (i % 4 == 0) {
            draw_bytes(v, sizeof v, TN_I8, 0);
            tn_assign(w, bytes(cx, TN_I8, TN_SHAPE(32, 16, 3, 3), v));
        }
        draw_bytes(u, sizeof u, TN_U8, 0);
        x[0]            = bytes(cx, TN_U8, TN_SHAPE(1, 16, 12, 12), u);
        tn_tensor *wide = tn_conv2d(tn_cast(x[0], TN_F64), tn_cast(w, TN_F64), NULL,
                                    (tn_conv_opts){ .padding = { 1 } });
        y[0]            = requantized(tn_conv_i32(x[0], w, 0, (tn_conv_opts){ .padding = { 1 } }),
                                      tn_reshape(bias, TN_SHAPE(32, 1, 1)),
                                      tn_reshape(scale, TN_SHAPE(32, 1, 1)));
        CHECK_STATUS(tn_read(y[0], TN_U8, got, sizeof got), TN_OK);
        y[1] = requantized(tn_cast(wide, TN_I32), tn_reshape(bias, TN_SHAPE(32, 1, 1)),
                           tn_reshape(scale, TN_SHAPE(32, 1, 1)));
        static uint8_t want[32 * 12 * 12];
        CHECK_STATUS(tn_read(y[1], TN_U8, want, sizeof want), TN_OK);
        test_case_result(!memcmp(got, want, sizeof got), "run %d", i);
        tn_end(s);
    }
    tn_close(cx);
    unsetenv("TN_EXPLAIN");
    unsetenv("TN_COMPILE");
    char *text = scratch_read(scratch_path("plans"), &size);
    if (CHECK(text != NULL)) {
        const char *at = strstr(text, "conv_i32 + ");
        if (at) snprintf(found, sizeof found, "%.11s", at);
    }
    CHECK_STR(found, "conv_i32 + ");
    free(text);
    scratch_close();
}

static void what_does_not_fit_is_named(void)
{
    tn_ctx    *cx = open_quiet("cpu", 0);
    tn_tensor *a = tn_zeros(cx, TN_U8, TN_SHAPE(2, 3)), *b = tn_zeros(cx, TN_I8, TN_SHAPE(4, 5));
    tn_tensor *x = tn_zeros(cx, TN_U8, TN_SHAPE(1, 2, 4, 4));
#define SAYS(call, text)                    \
    do {                                    \
        CHECK(!(call));                     \
        CHECK_STR(tn_error_text(cx), text); \
        tn_error_clear(cx);                 \
    } while (0)
    SAYS(tn_matmul_i32(a, b), "matmul_i32: (2, 3) @ (4, 5): inner sizes differ");
    SAYS(tn_matmul_i32(a, tn_cast(b, TN_I32)), "matmul_i32: u8 and i32: both have to be i8 or u8");
    SAYS(tn_matmul_i32(a, tn_zeros(cx, TN_I8, TN_0D)),
         "matmul_i32: (2, 3) @ (): a 0-d tensor has no product");
    SAYS(tn_conv_i32(x, b, 0, (tn_conv_opts){ 0 }),
         "conv_i32: x (1, 2, 4, 4) and w (4, 5) are not both of rank 4");
    SAYS(tn_conv_i32(x, x, -1, (tn_conv_opts){ 0 }), "conv_i32: pad -1: x is of u8");
    SAYS(tn_conv_i32(x, tn_zeros(cx, TN_I8, TN_SHAPE(3, 1, 1, 1)), 0, (tn_conv_opts){ 0 }),
         "conv_i32: x (1, 2, 4, 4) and w (3, 1, 1, 1) do not fit (stride 1, padding 0, dilation 1, "
         "groups 1)");
    SAYS(tn_conv_i32(x, x, 0, (tn_conv_opts){ .output_padding = { 1 } }),
         "conv_i32: output_padding (1, 0) is for transposed convolutions");
    tn_close(cx);
}

const test_case tests_bytes[] = { TEST(every_kernel_is_exact),
                                  TEST(products_have_the_bits_of_wide_sums),
                                  TEST(convolutions_are_those_of_padded_numbers),
                                  TEST(requantizing_is_part_of_the_step),
                                  TEST(what_does_not_fit_is_named),
                                  TEST_END };
