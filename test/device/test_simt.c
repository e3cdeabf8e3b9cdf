// Kernels for devices with work groups: shapes that are chosen for well-known work, their CUDA text
// compiled for an H200, and their OpenCL text run against the definition.
#include "check.h"

#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/opencl/opencl.h"
#include "kernel/simt.h"
#include "kernel_kit.h"
#include "long_rows.h"
#include "shared_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = TNI_NO_VALUE, RANDOM = 45 };

// An H200, and one without bulk copies and clusters, as older chips are.
static const tni_simt_limits h200 = {
    .threads = 1024, .shared_bytes = 227 * 1024, .units = 132, .features = TNI_GPU_ALL, .cluster = 8
};
static const tni_simt_limits older = {
    .threads = 1024, .shared_bytes = 227 * 1024, .units = 132, .features = TNI_GPU_ALL
};

// ---- kernels -----------------------------------------------------------------------------------

// A kernel by name: builds it over so many rows and columns.
typedef struct {
    const char *name;
    void (*make)(kit_case *c, int64_t rows, int64_t cols);
    int64_t rows, cols;         // as people would run it
    int64_t few_rows, columns;  // as a test runs it
} work;

static void relu_chain(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows * cols }, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int y = kit_map2(c, TNI_maximum, x, kit_number(c, TN_F32, 0));
    y     = kit_map2(c, TNI_mul, y, kit_number(c, TN_F32, 0.5));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW),
              kit_map2(c, TNI_add, y, kit_number(c, TN_F32, 1)));
}

// tanh(x.T + v) * x
static void transposed(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 2, (int64_t[]){ rows, cols }, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int b = kit_buffer(c, TN_F32, rows * cols, false), v = kit_buffer(c, TN_F32, cols, false);
    int t = kit_load(c, kit_access(c, b, 0, (int64_t[]){ 1, rows }, 0));
    t     = kit_map2(c, TNI_add, t, kit_load(c, kit_access(c, v, 0, (int64_t[]){ 0, 1 }, 0)));
    t     = kit_map2(c, TNI_mul, kit_map1(c, TNI_tanh, t), x);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), t);
}

// The same, where both are one buffer: rows is cols.
static void mirrored(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 2, (int64_t[]){ rows, cols }, 0, NULL, false);
    int b = kit_buffer(c, TN_F32, rows * cols, false), v = kit_buffer(c, TN_F32, cols, false);
    int x = kit_load(c, kit_access(c, b, 0, (int64_t[]){ cols, 1 }, 0));
    int t = kit_load(c, kit_access(c, b, 0, (int64_t[]){ 1, rows }, 0));
    t     = kit_map2(c, TNI_add, t, kit_load(c, kit_access(c, v, 0, (int64_t[]){ 0, 1 }, 0)));
    t     = kit_map2(c, TNI_mul, kit_map1(c, TNI_tanh, t), x);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), t);
}

// Sums of matrices and their transposes, several side by side with room between them.
static void mirrored_batch(kit_case *c, tn_dtype dt, int64_t rows)
{
    const int64_t page = rows * rows + 16;
    kit_begin(c, 3, (int64_t[]){ 2, rows, rows }, 0, NULL, false);
    int b = kit_buffer(c, dt, 2 * page, false);
    int x = kit_load(c, kit_access(c, b, 0, (int64_t[]){ page, rows, 1 }, 0));
    int t = kit_load(c, kit_access(c, b, 0, (int64_t[]){ page, 1, rows }, 0));
    kit_store(c, kit_output(c, dt, TNI_PER_ROW), kit_map2(c, TNI_sub, x, t));
}

static void mirrored_halves(kit_case *c, int64_t rows, int64_t cols)
{
    (void)cols;
    mirrored_batch(c, TN_BF16, rows);
}

static void mirrored_doubles(kit_case *c, int64_t rows, int64_t cols)
{
    (void)cols;
    mirrored_batch(c, TN_F64, rows);
}

// Images with channels last from images with channels first: rows channels, cols points.
static void channels_last(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 3, (int64_t[]){ 3, rows, cols }, 0, NULL, false);
    int x = kit_load_new(c, TN_BF16, TNI_PER_ROW),
        b = kit_buffer(c, TN_BF16, 3 * rows * cols, true);
    kit_store(c, kit_access(c, b, 0, (int64_t[]){ rows * cols, 1, rows }, 0), x);
}

static void adamw(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows * cols }, 0, NULL, false);
    int p = kit_load_new(c, TN_F32, TNI_PER_ROW), g = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int m = kit_load_new(c, TN_F32, TNI_PER_ROW), v = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int b1 = kit_number(c, TN_F32, 0.9), b2 = kit_number(c, TN_F32, 0.99);
    int lr = kit_number(c, TN_F32, 1e-3), one = kit_number(c, TN_F32, 1);
    m     = kit_map2(c, TNI_add, kit_map2(c, TNI_mul, m, b1),
                     kit_map2(c, TNI_mul, g, kit_map2(c, TNI_sub, one, b1)));
    v     = kit_map2(c, TNI_add, kit_map2(c, TNI_mul, kit_map1(c, TNI_abs, v), b2),
                     kit_map2(c, TNI_mul, kit_map2(c, TNI_mul, g, g), kit_map2(c, TNI_sub, one, b2)));
    int d = kit_map2(c, TNI_add, kit_map1(c, TNI_sqrt, v), kit_number(c, TN_F32, 1e-3));
    p     = kit_map2(c, TNI_sub, p, kit_map2(c, TNI_mul, lr, kit_map2(c, TNI_div, m, d)));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), p);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), m);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), v);
    kit_store(c, kit_output(c, TN_BF16, TNI_PER_ROW), p);
}

static void dropout(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows * cols }, 0, NULL, false);
    int x = kit_load_new(c, TN_F16, TNI_PER_ROW);
    int u = kit_random(c, TNI_uniform, TN_F32, kit_place(c, 0, (int64_t[]){ 1 }), 7, 1000);
    int k = kit_map2(c, TNI_lt, u, kit_number(c, TN_F32, 0.5));
    int y = kit_map(c, TNI_where, k, kit_cast(c, TN_F32, x), kit_number(c, TN_F32, 0));
    kit_store(c, kit_output(c, TN_F16, TNI_PER_ROW), y);
}

static void bytes(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows * cols }, 0, NULL, false);
    int x = kit_load_new(c, TN_I8, TNI_PER_ROW), y = kit_load_new(c, TN_U8, TNI_PER_ROW);
    kit_store(c, kit_output(c, TN_I8, TNI_PER_ROW), kit_map2(c, TNI_mul, x, x));
    kit_store(c, kit_output(c, TN_BOOL, TNI_PER_ROW),
              kit_map2(c, TNI_gt, y, kit_map2(c, TNI_add, y, y)));
}

static void softmax_of(kit_case *c, tn_dtype dt)
{
    int x = kit_load_new(c, dt, TNI_PER_ELEM);
    int m = kit_reduce(c, TNI_max, x, false);
    int e = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, m));
    int s = kit_reduce(c, TNI_sum, e, false);
    kit_store(c, kit_output(c, dt, TNI_PER_ELEM), kit_map2(c, TNI_div, e, s));
}

static void softmax(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    softmax_of(c, TN_F32);
}

static void softmax_half(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    softmax_of(c, TN_F16);
}

// Over the first axis: neighbours are in P.
static void softmax_down(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ cols }, 1, (int64_t[]){ rows }, false);
    int bx = kit_buffer(c, TN_F32, rows * cols, false);
    int by = kit_buffer(c, TN_F32, rows * cols, true);
    int x  = kit_load(c, kit_access(c, bx, 0, (int64_t[]){ 1, cols }, 0));
    int m  = kit_reduce(c, TNI_max, x, false);
    int e  = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, m));
    int s  = kit_reduce(c, TNI_sum, e, false);
    kit_store(c, kit_access(c, by, 0, (int64_t[]){ 1, cols }, 0), kit_map2(c, TNI_div, e, s));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), s);
}

// Loss and its gradient, with the mean loss as a tail.
static void cross_entropy(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int ax = kit_input(c, TN_BF16, TNI_PER_ELEM), x = kit_load(c, ax);
    int target = kit_check(c, kit_load_new(c, TN_I64, TNI_PER_ROW), 20);
    int column = kit_place(c, 0, (int64_t[]){ 0, 1 });
    int at     = kit_access(c, c->k.access[ax].buffer, 0, (int64_t[]){ cols, 0 }, 1);
    int xf     = kit_cast(c, TN_F32, x);
    int m      = kit_reduce(c, TNI_max, xf, false);
    int e      = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, xf, m));
    int s      = kit_reduce(c, TNI_sum, e, false);
    int own    = kit_cast(c, TN_F32, kit_load_at(c, at, target, NONE));
    int loss   = kit_map2(c, TNI_sub, kit_map2(c, TNI_add, kit_map1(c, TNI_log, s), m), own);
    int hit    = kit_cast(c, TN_F32, kit_map2(c, TNI_eq, column, target));
    int g      = kit_map2(c, TNI_sub, kit_map2(c, TNI_div, e, s), hit);
    int n      = kit_number(c, TN_F32, 1.0 / (double)rows);
    kit_store(c, kit_output(c, TN_BF16, TNI_PER_ELEM), kit_map2(c, TNI_mul, g, n));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), loss);
    int mean = kit_map2(c, TNI_mul, kit_reduce(c, TNI_sum, loss, true), n);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ONE), mean);
}

static void norm_backward(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int x = kit_cast(c, TN_F32, kit_load_new(c, TN_BF16, TNI_PER_ELEM));
    int g = kit_cast(c, TN_F32, kit_load_new(c, TN_BF16, TNI_PER_ELEM));
    int w = kit_cast(c, TN_F32, kit_load_new(c, TN_BF16, TNI_PER_COL));
    int u = kit_load_new(c, TN_F32, TNI_PER_ROW), r = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int xh = kit_map2(c, TNI_mul, kit_map2(c, TNI_sub, x, u), r), a = kit_map2(c, TNI_mul, g, w);
    int gx = kit_map2(c, TNI_mul, g, xh), n = kit_number(c, TN_F32, 1.0 / (double)cols);
    int s1 = kit_map2(c, TNI_mul, kit_reduce(c, TNI_sum, a, false), n);
    int s2 = kit_map2(c, TNI_mul, kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, a, xh), false), n);
    int d  = kit_map2(c, TNI_sub, kit_map2(c, TNI_sub, a, s1), kit_map2(c, TNI_mul, xh, s2));
    kit_store(c, kit_output(c, TN_BF16, TNI_PER_ELEM), kit_map2(c, TNI_mul, d, r));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), kit_reduce(c, TNI_sum, gx, true));
    kit_store(c, kit_output(c, TN_BF16, TNI_PER_COL), kit_reduce(c, TNI_sum, g, true));
}

static void column_sum(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int s = kit_reduce(c, TNI_sum, kit_load_new(c, TN_F32, TNI_PER_ELEM), true);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), s);
}

static void full_sum(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows * cols }, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int s = kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, x, x), true);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ONE), kit_map1(c, TNI_sqrt, s));
}

static void row_sum(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int x = kit_load_new(c, TN_F32, TNI_PER_ELEM);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_reduce(c, TNI_sum, x, false));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_reduce(c, TNI_min, x, false));
}

// Sums of a batch of images over everything but the channel, lane in P: tails for each r.
static void channel_sums(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 2, (int64_t[]){ 5, rows }, 1, (int64_t[]){ cols }, false);
    int b = kit_buffer(c, TN_F32, 5 * rows * cols, false);
    int x = kit_load(c, kit_access(c, b, 0, (int64_t[]){ rows * cols, 1, rows }, 0));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), kit_reduce(c, TNI_sum, x, true));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), kit_reduce(c, TNI_max, x, true));
}

// The mean of a window of two axes, of a slice whose rows begin anywhere.
static void two_axes(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 2, (int64_t[]){ 3, rows }, 2, (int64_t[]){ 6, cols }, true);
    int64_t line = cols + 1, image = 6 * line;
    int     b = kit_buffer(c, TN_F32, 3 * rows * image + 1, false);
    int     x = kit_load(c, kit_access(c, b, 1, (int64_t[]){ rows * image, image, line, 1 }, 0));
    int     s = kit_reduce(c, TNI_sum, x, false);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), s);
    kit_store(c, kit_output(c, TN_F64, TNI_PER_ELEM),
              kit_cast(c, TN_F64, kit_map2(c, TNI_sub, x, kit_map2(c, TNI_mul, s, s))));
}

// A guarded load: rows shifted right by two, zero at the start; and an integer maximum.
static void masked(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int p = kit_place(c, 0, (int64_t[]){ 0, 1 });
    int g = kit_map2(c, TNI_ge, p, kit_number(c, TN_I64, 2));
    int b = kit_buffer(c, TN_I32, rows * cols, false);
    int x = kit_load_at(c, kit_access(c, b, -2, (int64_t[]){ cols, 1 }, 0), NONE, g);
    int m = kit_reduce(c, TNI_max, x, false);
    kit_store(c, kit_output(c, TN_I32, TNI_PER_ELEM), kit_map2(c, TNI_sub, x, m));
    kit_store(c, kit_output(c, TN_I64, TNI_PER_ONE),
              kit_reduce(c, TNI_sum, kit_cast(c, TN_I64, m), true));
}

// Channels side by side, with a factor and a summand in f32 for each, plus the row before, which
// the first has not.
static void scaled_channels(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 2, (int64_t[]){ rows, cols }, 0, NULL, false);
    int b = kit_buffer(c, TN_BF16, rows * cols, false), w = kit_buffer(c, TN_F32, 2 * cols, false);
    int x     = kit_load(c, kit_access(c, b, 0, (int64_t[]){ cols, 1 }, 0));
    int g     = kit_map2(c, TNI_ge, kit_place(c, 0, (int64_t[]){ 1, 0 }), kit_number(c, TN_I64, 1));
    int above = kit_load_at(c, kit_access(c, b, -cols, (int64_t[]){ cols, 1 }, 0), NONE, g);
    int y     = kit_map2(c, TNI_mul, kit_cast(c, TN_F32, x),
                         kit_load(c, kit_access(c, w, 0, (int64_t[]){ 0, 1 }, 0)));
    y = kit_map2(c, TNI_add, y, kit_load(c, kit_access(c, w, cols, (int64_t[]){ 0, 1 }, 0)));
    y = kit_map2(c, TNI_add, kit_map1(c, TNI_relu, y), kit_cast(c, TN_F32, above));
    kit_store(c, kit_output(c, TN_BF16, TNI_PER_ROW), y);
}

// Sums of such channels.
static void scaled_sums(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int x = kit_cast(c, TN_F32, kit_load_new(c, TN_BF16, TNI_PER_ELEM));
    int g = kit_cast(c, TN_F32, kit_load_new(c, TN_BF16, TNI_PER_ELEM));
    int w = kit_load_new(c, TN_F32, TNI_PER_COL), none = kit_number(c, TN_F32, 0);
    g = kit_map(c, TNI_where, kit_map2(c, TNI_gt, kit_map2(c, TNI_mul, x, w), none), g, none);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), kit_reduce(c, TNI_sum, g, true));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL),
              kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, g, x), true));
}

// A dropout of column sums, drawn where their parts are joined.
static void sums_dropped(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int x = kit_cast(c, TN_F32, kit_load_new(c, TN_BF16, TNI_PER_ELEM));
    int u = kit_random(c, TNI_uniform, TN_F32, kit_place(c, 0, (int64_t[]){ 0, 1 }), 7, 1000);
    int k = kit_map2(c, TNI_lt, u, kit_number(c, TN_F32, 0.5));
    int y = kit_reduce(c, TNI_sum, x, true);
    y     = kit_map(c, TNI_where, k, y, kit_number(c, TN_F32, 0));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), y);
}

// Rows of a table by an index for each row: an embedding.
static void rows_by_index(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 2, (int64_t[]){ rows, cols }, 0, NULL, false);
    int i = kit_buffer(c, TN_I64, rows, false), t = kit_buffer(c, TN_BF16, 20 * cols, false);
    int ix = kit_load(c, kit_access(c, i, 0, (int64_t[]){ 1, 0 }, 0));
    int at = kit_access(c, t, 0, (int64_t[]){ 0, 1 }, cols);
    int x  = kit_load_at(c, at, kit_check(c, ix, 20), NONE);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_cast(c, TN_F32, x));
}

static const work works[] = {
    { "relu chain", relu_chain, 16384, 16384, 13, 77 },
    { "tanh of a transposed sum", transposed, 4096, 4096, 20, 36 },
    { "tanh of a transposed sum of odd size", transposed, 4099, 4097, 33, 71 },
    { "tanh of a sum of transposes", mirrored, 4096, 4096, 300, 300 },
    { "tanh of a sum of odd transposes", mirrored, 4097, 4097, 261, 261 },
    { "differences from transposes in bf16", mirrored_halves, 4096, 4096, 552, 552 },
    { "differences from transposes in f64", mirrored_doubles, 2048, 2048, 270, 270 },
    { "channels last", channels_last, 64, 3136, 72, 80 },
    { "adamw", adamw, 13000, 10000, 10, 101 },
    { "dropout", dropout, 4096, 4096, 12, 50 },
    { "bytes", bytes, 4096, 4096, 7, 64 },
    { "softmax 4096", softmax, 8192, 4096, 3, 4096 },
    { "softmax 128", softmax, 65536, 128, 30, 128 },
    { "softmax 10", softmax, 65536, 10, 30, 10 },
    { "softmax 50257", softmax, 1024, 50257, 3, 5021 },
    { "softmax 131072", softmax, 512, 131072, 2, 32768 },
    { "softmax of halves", softmax_half, 8192, 1000, 5, 1003 },
    { "softmax over rows", softmax_down, 1000, 4096, 300, 132 },
    { "softmax over many rows", softmax_down, 65536, 130, 3000, 13 },
    { "cross-entropy", cross_entropy, 8192, 50257, 5, 5021 },
    { "cross-entropy of few", cross_entropy, 64, 20, 37, 20 },
    { "norm backward", norm_backward, 8192, 4096, 33, 768 },
    { "norm backward of wide rows", norm_backward, 512, 65536, 9, 9000 },
    { "norm backward of odd rows", norm_backward, 8192, 333, 21, 333 },
    { "column sum", column_sum, 65536, 1024, 100, 200 },
    { "column sum of few", column_sum, 65536, 12, 300, 7 },
    { "column sum of wide rows", column_sum, 1024, 50257, 11, 5021 },
    { "norm of all", full_sum, 8192, 8192, 61, 97 },
    { "row sums", row_sum, 4096, 4096, 11, 3333 },
    { "channel sums", channel_sums, 3136, 64, 196, 9 },
    { "two axes", two_axes, 300, 56, 12, 13 },
    { "two whole axes", two_axes, 300, 64, 6, 24 },
    { "masked", masked, 3000, 3000, 9, 301 },
    { "rows by index", rows_by_index, 32768, 768, 40, 24 },
    { "scaled channels", scaled_channels, 802816, 64, 3000, 24 },
    { "scaled channels of odd number", scaled_channels, 50176, 333, 300, 37 },
    { "sums of scaled channels", scaled_sums, 802816, 256, 700, 24 },
    { "sums of many scaled channels", scaled_sums, 12544, 2048, 50, 512 },
    { "dropout of column sums", sums_dropped, 65536, 1024, 100, 200 },
};
enum { WORKS = sizeof works / sizeof *works };

// Indices, where a kernel has them, are filled so that they are in range.
static bool ready(kit_case *c)
{
    for (int i = 0; i < c->k.nbuffer && c->mem[i]; i++)
        for (int64_t n = 0; c->k.buffer[i].dtype == TN_I64 && n < c->count[i]; n++)
            ((int64_t *)c->mem[i])[n] %= 20;
    kit_keep(c);
    return true;
}

// ---- CUDA --------------------------------------------------------------------------------------

// Compiles one kernel as for a launch without addresses, and bounds what it takes.
static void compiles(const char *what, const kit_case *c, const tni_simt_limits *limits)
{
    enum { REGISTERS = 128 };
    tni_heap      heap  = tni_heap_default();
    tni_simt      shape = tni_simt_choose(&c->l, limits);
    tni_emit_item item  = { &c->k, "k", &shape.class };
    tni_text      why   = { "" };
    tni_usage     u     = { 0 };
    tni_cubin     bin   = { 0 };
    char         *text = tni_emit_program(&heap, &tni_dialect_cuda, tni_emit_simt, 1, &item, false);
    if (!CHECK(text != NULL)) return;
    bool ok = tni_cubin_compile(&bin, text, "sm_90", true, &why) == TN_OK;
    test_case_result(ok, "%s: %s", what, why.s);
    if (ok && CHECK(tni_cubin_usage(&bin, "k", &u))) {
        test_case_result(u.spills == 0 && u.stack == 0, "%s: %d bytes of stack", what, u.stack);
        test_case_result(u.registers <= REGISTERS, "%s: %d registers", what, u.registers);
        test_case_result(u.shared + shape.shared_bytes <= limits->shared_bytes,
                         "%s: %d + %d shared", what, u.shared, shape.shared_bytes);
    }
    tni_cubin_free(&bin);
    tni_free(&heap, text);
}

static void known_work_compiles_without_spills(void)
{
    tni_text  why = { "" };
    kit_case *c   = calloc(1, sizeof *c);
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int i = 0; c && i < WORKS; i++) {
        works[i].make(c, works[i].rows, works[i].cols);
        if (!CHECK(tni_kernel_seal(&c->k))) continue;
        tni_simt now = tni_simt_choose(&c->l, &h200), then = tni_simt_choose(&c->l, &older);
        compiles(works[i].name, c, &h200);
        if (memcmp(&now.class, &then.class, sizeof now.class) != 0)
            compiles(works[i].name, c, &older);
    }
    free(c);
}

// ---- OpenCL ------------------------------------------------------------------------------------

// A kernel on the device: its memory there, and how it is launched.
typedef struct {
    tni_heap   heap;
    tni_launch l;
    tni_simt   m;
    char      *at[TNI_MAX_BUFFERS];
    char      *state;
} placed;

static bool place(kit_case *c, placed *p, const tni_simt_limits *limits)
{
    static const int64_t zeros[4];
    bool                 ok = true;
    memset(p, 0, sizeof *p);
    p->heap = tni_heap_default();
    p->l    = c->l;
    for (int i = 0; i < c->k.nbuffer; i++) {
        size_t n = (size_t)c->count[i] * tni_dtype_size((tn_dtype)c->k.buffer[i].dtype);
        p->at[i] = tni_cl_alloc(&p->heap, n + 2 * KIT_GUARD);
        ok       = ok && p->at[i];
        if (ok)
            tni_cl_upload(NULL, p->at[i], TN_U8, c->mem[i] - KIT_GUARD, (int64_t)n + 2 * KIT_GUARD,
                          &(tni_text){ 0 });
        p->l.buffer[i] = p->at[i] + KIT_GUARD;
    }
    p->m         = tni_simt_choose(&p->l, limits);
    p->l.scratch = tni_cl_alloc(&p->heap, (size_t)p->m.scratch_bytes + 64);
    p->state     = tni_cl_alloc(&p->heap, sizeof zeros);
    if (p->state) tni_cl_upload(NULL, p->state, TN_I64, zeros, 4, &(tni_text){ 0 });
    return ok && p->l.scratch && p->state;
}

static void take_back(kit_case *c, placed *p)
{
    for (int i = 0; i < c->k.nbuffer; i++) {
        size_t n = (size_t)c->count[i] * tni_dtype_size((tn_dtype)c->k.buffer[i].dtype);
        if (p->at[i])
            tni_cl_download(NULL, c->mem[i] - KIT_GUARD, TN_U8, p->at[i],
                            (int64_t)n + 2 * KIT_GUARD, &(tni_text){ 0 });
        tni_cl_free(&p->heap, p->at[i]);
    }
    if (p->state) tni_cl_download(NULL, c->l.fail, TN_I64, p->state, 2, &(tni_text){ 0 });
    tni_cl_free(&p->heap, p->l.scratch);
    tni_cl_free(&p->heap, p->state);
}

// Passes the arguments in the order that simt.h names. Locked.
static void pass(tni_cl_launch *to, const placed *p, bool finish)
{
    const tni_kernel *k = p->l.kernel;
    int64_t           word[TNI_MAX_WORDS];
    tni_simt_layout   at;
    tni_simt_layout_of(k, &at);
    int n = tni_simt_words(&p->l, &p->m, &at, word);
    for (int i = 0; i < k->nbuffer; i++) {
        int64_t start = tni_cl_set_buffer(to, p->l.buffer[i]);
        for (int a = 0; a < k->naccess; a++)
            if (k->access[a].buffer == i)
                word[at.offset[a]] += start / (int64_t)tni_dtype_size((tn_dtype)k->buffer[i].dtype);
    }
    word[TNI_WORD_SCRATCH] = tni_cl_set_buffer(to, p->l.scratch);
    tni_cl_set_buffer(to, p->state);
    for (int i = 0; i < n; i++) tni_cl_set_long(to, word[i]);
    if (p->m.shared_bytes && !finish) tni_cl_set_arg(to, NULL, (size_t)p->m.shared_bytes);
}

static tn_status start(const placed *p, tni_cl_program program, const char *name, bool finish,
                       tni_text *why)
{
    tni_cl      *cl = tni_cl_get();
    char         full[64];
    int32_t      code  = 0;
    const size_t one[] = { (size_t)p->m.finish_grid }, by[] = { (size_t)p->m.finish_block };
    const size_t two[]   = { (size_t)p->m.grid[0], (size_t)p->m.grid[1] };
    const size_t group[] = { (size_t)p->m.block, 1 };
    snprintf(full, sizeof full, "%s%s", name, finish ? "_finish" : "");
    tni_cl_launch to = { .cl = cl, .kernel = cl->api.clCreateKernel(program, full, &code) };
    if (!to.kernel) return tni_cl_error(why, full, code);
    pass(&to, p, finish);
    tn_status s = finish ? tni_cl_enqueue(&to, full, 1, one, by, why)
                         : tni_cl_enqueue(&to, full, 2, two, group, why);
    cl->api.clReleaseKernel(to.kernel);
    return s;
}

static tn_status run(placed *p, const char *name, tni_text *why)
{
    tni_heap      heap = tni_heap_default();
    tni_emit_item item = { p->l.kernel, name, &p->m.class };
    char *text = tni_emit_program(&heap, &tni_dialect_opencl, tni_emit_simt, 1, &item, false);
    if (!text) return TN_EMEM;
    tn_status s = TN_OK;
    tni_cl_lock();
    tni_cl_program program = tni_cl_build(text, name, &s, why);
    if (program) s = start(p, program, name, false, why);
    if (program && s == TN_OK && p->m.finish_grid) s = start(p, program, name, true, why);
    if (program) tni_cl_get()->api.clReleaseProgram(program);
    tni_cl_unlock();
    tni_free(&heap, text);
    return s;
}

// Runs a case as a device with these limits would, and compares.
static void right(const char *what, kit_case *c, const tni_simt_limits *limits)
{
    placed          p;
    tni_text        why  = { "" };
    tni_simt_limits own  = *limits;  // no more local memory than the device at hand has
    char           *told = calloc(1, KIT_WHY);
    tn_status       s    = TN_EMEM;
    if (own.shared_bytes > tni_cl_get()->local) own.shared_bytes = (int)tni_cl_get()->local;
    if (place(c, &p, &own)) s = run(&p, "k", &why);
    take_back(c, &p);
    if (s != TN_OK) {
        test_case_result(false, "%s: %s", what, why.s);
    } else {
        c->library_ulps = 4;
        bool same       = told && kit_naive(c) && kit_compare(c, 4, told);
        test_case_result(same, "%s (%d threads): %s", what, limits->threads, told ? told : "");
        CHECK_INT(c->l.fail[0], c->fail[0]);
    }
    free(told);
}

// The same work as devices of several sizes cut it: rows in registers, in local memory, in loops.
static const tni_simt_limits devices[] = {
    { .threads = 256, .shared_bytes = 32768, .units = 2 },
    { .threads = 32, .shared_bytes = 65536, .units = 3 },
    { .threads = 64, .shared_bytes = 6000, .units = 1 },
};
// One that allows fewer slices of columns than are wanted.
static const tni_simt_limits narrow = {
    .threads = 64, .shared_bytes = 32768, .units = 2, .slices = 3
};
enum { DEVICES = sizeof devices / sizeof *devices };

static void known_work_runs_and_agrees(void)
{
    kit_case *c = calloc(1, sizeof *c);
    if (!tni_cl_get()) SKIP("%s", tni_cl_detail());
    for (int i = 0; c && i < WORKS; i++)
        for (int d = 0; d < DEVICES; d++) {
            works[i].make(c, works[i].few_rows, works[i].columns);
            bool sealed = CHECK(tni_kernel_seal(&c->k));
            // Rows that are read more than once can be held in each way; the rest is cut once. A
            // plain run takes one way of each.
            bool all = test_long() && c->k.lane_in_r && c->k.phases > 1;
            if (sealed && (d == i % DEVICES || all) && CHECK(kit_end(c)) && ready(c))
                right(works[i].name, c, &devices[d]);
            kit_free(c);
        }
    for (int i = 0; c && i < 3; i++) {
        (i < 2 ? column_sum : scaled_sums)(c, 37, 1000 + 1501 * i);
        if (CHECK(tni_kernel_seal(&c->k)) && CHECK(kit_end(c)) && ready(c) &&
            CHECK_INT(tni_simt_choose(&c->l, &narrow).class.split_columns, TNI_SLICES_FIRST))
            right("many slices", c, &narrow);
        kit_free(c);
    }
    free(c);
}

// Shapes under settings, and under settings that differ from those in one more knob, for sizes from
// few rows to few columns: a device can launch them, and every element has a thread.
static void any_settings_make_launches(void)
{
    enum { MOST = 48 };
    static const int64_t sizes[][2] = { { 3000, 777 },  { 100000, 96 },  { 1, 5000000 },
                                        { 50, 20000 },  { 1000000, 12 }, { 12, 1000000 },
                                        { 7000, 1536 }, { 3, 5 },        { 65536, 33 } };
    kit_case            *c          = calloc(1, sizeof *c);
    for (int i = 0; c && i < WORKS * 9; i++) {
        tni_tuning near[MOST], next[MOST];
        works[i / 9].make(c, sizes[i % 9][0], sizes[i % 9][1]);
        int n = tni_kernel_seal(&c->k)
                    ? tni_simt_neighbours(&c->l, &h200, &(tni_tuning){ { 0 } }, near, MOST)
                    : 0;
        for (int k = 0; k < n; k++) {
            int more = tni_simt_neighbours(&c->l, &h200, &near[k], next, MOST);
            for (int j = 0; j < more; j++) {
                tni_simt_limits with = h200;
                with.tuning          = &next[j];
                tni_simt m           = tni_simt_choose(&c->l, &with);
                bool     ok = m.block > 0 && m.block <= 1024 && m.grid[0] > 0 && m.grid[1] > 0 &&
                          m.parts > 0 && m.chunk > 0;
                if (!ok)
                    test_case_result(false, "%s %d: %s", works[i / 9].name, i % 9,
                                     tni_tuning_text(&next[j]).s);
            }
        }
    }
    CHECK(c != NULL);
    free(c);
}

// Every knob, in kernels of every form: whatever is set, results are right. A fifth of the settings
// of each kernel, another in each; `make test-long` takes all.
static void any_settings_run_and_agree(void)
{
    enum { MOST = 48 };
    kit_case       *c = calloc(1, sizeof *c);
    tni_tuning      near[MOST];
    tni_simt_limits with = devices[0];
    if (!tni_cl_get()) SKIP("%s", tni_cl_detail());
    for (int i = 0; c && i < WORKS; i++) {
        works[i].make(c, works[i].few_rows, works[i].columns);
        int n = tni_kernel_seal(&c->k)
                    ? tni_simt_neighbours(&c->l, &with, &(tni_tuning){ { 0 } }, near, MOST)
                    : 0;
        CHECK(n > 0);
        for (int k = 0; k < n; k++) {
            char name[256];
            if (!test_long() && (i + k) % 5) continue;
            works[i].make(c, works[i].few_rows, works[i].columns);
            with.tuning = &near[k];
            snprintf(name, sizeof name, "%s, %s", works[i].name, tni_tuning_text(&near[k]).s);
            if (CHECK(tni_kernel_seal(&c->k)) && CHECK(kit_end(c)) && ready(c))
                right(name, c, &with);
            kit_free(c);
        }
        with.tuning = NULL;
    }
    free(c);
}

// Long rows of which more than run at once: groups take them by tickets, and each row leaves its
// partial results.
static void many_long_rows_are_taken_by_tickets(void)
{
    kit_case *c = calloc(1, sizeof *c);
    char      name[LONG_ROWS_NAME];
    int       tickets = 0, tails = 0;
    for (int i = 0; c && i < long_rows_count(); i++) {
        long_rows_make(c, i, name);
        if (!CHECK(tni_kernel_seal(&c->k))) break;
        tni_simt m       = tni_simt_choose(&c->l, &h200);
        int64_t  cluster = m.class.cluster > 1 ? m.class.cluster : 1, groups = m.grid[0] / cluster;
        if (m.class.bulk) CHECK_INT(m.class.tickets || m.chunk > 1, groups < m.lines);
        if (!m.class.tickets) continue;
        tickets++;
        tails += c->k.tails;
        CHECK(m.class.bulk && m.grid[0] % cluster == 0 && groups <= h200.units * m.class.bulk);
        CHECK_INT(m.parts, m.lines);
        CHECK(!c->k.tails || m.scratch_bytes >= 4 * m.lines);
    }
    CHECK(tickets >= 4 && tails >= 2);
    free(c);
}

static void random_kernels_run_and_agree(void)
{
    kit_case *c = calloc(1, sizeof *c);
    if (!tni_cl_get()) SKIP("%s", tni_cl_detail());
    for (int i = 0; c && i < RANDOM; i++) {
        const char *reason;
        char        name[32];
        snprintf(name, sizeof name, "seed %d", i);
        if (!CHECK(kit_random_case(c, (uint64_t)i, KIT_SMALL))) break;
        if (tni_can_emit(&c->k, &reason)) right(name, c, &devices[i % DEVICES]);
        kit_free(c);
    }
    free(c);
}

// ---- tiles -------------------------------------------------------------------------------------

// Kernels whose elements lie crosswise: through tiles, on devices that have room for some or all.
static void transposed_operands_run_and_agree(void)
{
    enum { SEEDS = 32 };
    int       wide[9] = { 0 }, large = 0;
    kit_case *c = calloc(1, sizeof *c);
    if (!tni_cl_get()) SKIP("%s", tni_cl_detail());
    for (int i = 0; c && i < SEEDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "tiled seed %d", i);
        if (!CHECK(kit_crossed_case(c, (uint64_t)i, 0))) break;
        const tni_simt_limits *limits = &devices[i % 4 == 3 ? 2 : 0];
        tni_simt_class class          = tni_simt_choose(&c->l, limits).class;
        test_case_result(class.tile && class.tiled, "%s has no tile", name);
        wide[class.vector]++;
        large += class.tile == 64;
        right(name, c, limits);
        kit_free(c);
    }
    test_that(wide[1] && wide[2] && wide[4] && wide[8] && large,
              "%d, %d, %d, %d by 1, 2, 4, 8; %d large", wide[1], wide[2], wide[4], wide[8], large);
    free(c);
}

static void transposed_operands_compile_without_spills(void)
{
    enum { SEEDS = 40 };
    tni_text  why = { "" };
    kit_case *c   = calloc(1, sizeof *c);
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int i = 0; c && i < SEEDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "tiled seed %d", i);
        if (CHECK(kit_crossed_case(c, (uint64_t)i, 0))) compiles(name, c, &h200);
        kit_free(c);
    }
    free(c);
}

// ---- shared memory -----------------------------------------------------------------------------

// A case: whether the text of a kernel uses all shared memory that it declares. Returns how many
// variables that are.
static int uses_its_memory(const char *what, const kit_case *c, const tni_simt_limits *limits)
{
    tni_heap           heap   = tni_heap_default();
    tni_simt           shape  = tni_simt_choose(&c->l, limits);
    tni_emit_item      item   = { &c->k, "k", &shape.class };
    const tni_dialect *d      = limits->features & TNI_GPU_SHUFFLES ? &tni_dialect_cuda
                                                                    : &tni_dialect_opencl;
    char              *text   = tni_emit_program(&heap, d, tni_emit_simt, 1, &item, false);
    char               it[32] = "";
    if (!CHECK(text != NULL)) return 0;
    test_case_result(shared_names_used(text, it, sizeof it), "%s (%d threads%s) never uses %s",
                     what, limits->threads, limits->features ? ", cuda" : "", it);
    int n = shared_names_count(text);
    tni_free(&heap, text);
    return n;
}

static int all_use_their_memory(const char *what, const kit_case *c)
{
    int n = uses_its_memory(what, c, &h200) + uses_its_memory(what, c, &older);
    for (int d = 0; d < DEVICES; d++) n += uses_its_memory(what, c, &devices[d]);
    return n;
}

// It would be taken for nothing, and PoCL 5 ends the process over it.
static void all_shared_memory_that_is_declared_is_used(void)
{
    int       n = 0;
    kit_case *c = calloc(1, sizeof *c);
    for (int i = 0; c && i < WORKS; i++) {
        works[i].make(c, works[i].few_rows, works[i].columns);
        if (CHECK(tni_kernel_seal(&c->k))) n += all_use_their_memory(works[i].name, c);
        works[i].make(c, works[i].rows, works[i].cols);
        if (CHECK(tni_kernel_seal(&c->k))) n += all_use_their_memory(works[i].name, c);
    }
    for (int i = 0; c && i < RANDOM; i++) {
        const char *reason;
        char        name[32];
        snprintf(name, sizeof name, "seed %d", i);
        if (!CHECK(kit_random_case(c, (uint64_t)i, KIT_SMALL))) break;
        if (tni_can_emit(&c->k, &reason)) n += all_use_their_memory(name, c);
        kit_free(c);
    }
    CHECK(n > 100);
    free(c);
}

static void memory_that_is_not_used_is_found(void)
{
    char it[32];
    CHECK(shared_names_used("void k() { __local int a[2]; a[0] = 1; }", it, sizeof it));
    CHECK(shared_names_used("void k() { extern __shared__ uint4 a[]; f(a); }", it, sizeof it));
    CHECK(shared_names_used("void k() { __local int *const p = q; }", it, sizeof it));
    CHECK_INT(shared_names_count("void k() { if (x) { } LOCAL m_long a[2][3], b, c[4]; }"), 3);
    CHECK(!shared_names_used("{ LOCAL int a[2], b[N]; ab = a[0]; } { b = 1; }", it, sizeof it));
    CHECK_STR(it, "b");
    CHECK(!shared_names_used("{ __shared__ int red[2]; shared = red2; }", it, sizeof it));
    CHECK_STR(it, "red");
}

// ---- shapes ------------------------------------------------------------------------------------

static tni_simt shape_of(kit_case *c, const char *name)
{
    for (int i = 0; i < WORKS; i++)
        if (!strcmp(works[i].name, name)) works[i].make(c, works[i].rows, works[i].cols);
    CHECK(tni_kernel_seal(&c->k));
    return tni_simt_choose(&c->l, &h200);
}

// As the notes on the chip measured them to be best.
static void an_h200_gets_the_measured_shapes(void)
{
    kit_case *c = calloc(1, sizeof *c);
    if (!CHECK(c != NULL)) return;
    tni_simt m = shape_of(c, "relu chain");
    CHECK(m.class.form == TNI_SIMT_POINT && m.class.vector == 4 && m.class.unroll == 1);
    CHECK_INT(m.grid[0] * m.block * 4, 16384 * 16384);
    m = shape_of(c, "softmax 4096");
    CHECK(m.class.hold == TNI_HOLD_REGISTERS && m.class.keep_costly && m.class.team >= 128);
    CHECK_INT(m.class.team * m.class.unroll * 4, 4096);
    m = shape_of(c, "softmax 128");
    CHECK(m.class.team == 8 && m.class.rows == 16 && m.class.unroll == 4);
    m = shape_of(c, "cross-entropy");
    CHECK(m.class.hold == TNI_HOLD_SHARED && m.class.vector == 8);
    CHECK(m.class.finish == TNI_FINISH_LAST && m.shared_bytes < h200.shared_bytes);
    m = shape_of(c, "norm backward");
    CHECK(m.class.hold == TNI_HOLD_REGISTERS && m.class.low_occupancy && m.class.prefetch_row);
    CHECK_INT(m.class.team * m.class.unroll * 8, 4096);
    m = shape_of(c, "column sum");
    CHECK(m.class.finish == TNI_FINISH_KERNEL && m.parts <= 4 * h200.units);
    m = shape_of(c, "column sum of few");
    CHECK(m.class.finish == TNI_FINISH_LAST && m.class.low_occupancy && m.class.unroll == 4);
    free(c);
}

// No grid is larger than CUDA launches, however many columns a row has, and every column is in a
// slice.
static void grids_are_within_what_cuda_launches(void)
{
    kit_case *c = calloc(1, sizeof *c);
    for (int i = 0; c && i < WORKS; i++)
        for (int64_t cols = 1 << 10; cols <= (int64_t)1 << 33; cols *= 8) {
            works[i].make(c, 2, works[i].make == mirrored ? 2 : cols);
            if (!CHECK(tni_kernel_seal(&c->k))) break;
            tni_simt m     = tni_simt_choose(&c->l, &h200);
            int64_t  slice = m.class.split_columns == TNI_SLICES_FIRST ? m.grid[0] : m.grid[1];
            test_case_result(m.grid[0] <= INT32_MAX && m.grid[1] <= TNI_SLICES &&
                                 m.finish_grid <= INT32_MAX &&
                                 (!m.class.split_columns || slice * m.class.team >= m.vectors),
                             "%s of %lld columns: %lld x %lld groups", works[i].name,
                             (long long)cols, (long long)m.grid[0], (long long)m.grid[1]);
        }
    free(c);
}

// What is transposed goes through tiles where there is enough of it, and nothing else does.
static void transposed_operands_get_tiles(void)
{
    kit_case *c = calloc(1, sizeof *c);
    if (!CHECK(c != NULL)) return;
    tni_simt m = shape_of(c, "tanh of a transposed sum");
    CHECK(m.class.tile == 32 && m.class.tile_axis == 0 && m.class.vector == 4 && !m.class.square);
    CHECK(m.class.tiled == 1 << 1 && m.class.unroll == 2 && m.block == 256);
    CHECK_INT(m.grid[0], 64 * 128);
    m = shape_of(c, "tanh of a sum of transposes");
    CHECK(m.class.tile == 32 && m.class.square && m.class.pairs && m.class.unroll == 2);
    CHECK_INT(m.grid[0], 32 * 33 * 8);
    m = shape_of(c, "tanh of a transposed sum of odd size");
    CHECK(m.class.tile == 32 && m.class.vector == 1 && m.class.unroll == 4);
    CHECK_INT(m.grid[0], 129 * 129);
    m = shape_of(c, "channels last");
    CHECK(m.class.tile == 64 && m.class.tile_axis == 1 && m.class.vector == 8);
    CHECK_INT(m.grid[0], 3 * 49);
    CHECK(!shape_of(c, "relu chain").class.tile && !shape_of(c, "rows by index").class.tile);
    transposed(c, 31, 4096);
    CHECK(tni_kernel_seal(&c->k) && !tni_simt_choose(&c->l, &h200).class.tile);
    transposed(c, 4096, 31);
    CHECK(tni_kernel_seal(&c->k) && !tni_simt_choose(&c->l, &h200).class.tile);
    free(c);
}

// A new size compiles nothing unless it falls into a new class.
static void few_classes_serve_many_sizes(void)
{
    enum { MOST = 40 };
    tni_simt_class seen[MOST];
    int            n = 0, k = 0;
    kit_case      *c = calloc(1, sizeof *c);
    for (int64_t rows = 2; c && rows <= 256; rows++) {
        softmax(c, rows, 1000);
        if (!CHECK(tni_kernel_seal(&c->k))) break;
        tni_simt m = tni_simt_choose(&c->l, &h200);
        for (k = 0; k < n && memcmp(&seen[k], &m.class, sizeof m.class) != 0; k++) continue;
        if (k == n && n < MOST) seen[n++] = m.class;
    }
    CHECK_INT(n, 1);
    for (int64_t cols = 1; c && cols <= 20000; cols++) {
        softmax(c, 100, cols);
        if (!CHECK(tni_kernel_seal(&c->k))) break;
        tni_simt m = tni_simt_choose(&c->l, &h200);
        for (k = 0; k < n && memcmp(&seen[k], &m.class, sizeof m.class) != 0; k++) continue;
        if (k == n && n < MOST) seen[n++] = m.class;
    }
    test_that(n < MOST, "%d classes", n);
    free(c);
}

// Addresses and offsets that are not aligned change the class, never what may be read.
static void other_alignment_is_another_class(void)
{
    kit_case *c = calloc(1, sizeof *c);
    if (!CHECK(c != NULL)) return;
    tni_simt whole = shape_of(c, "softmax 4096");
    c->l.offset[0] = c->l.offset[1] = 1;
    tni_simt shifted                = tni_simt_choose(&c->l, &h200);
    CHECK(!whole.class.window && shifted.class.window && shifted.class.vector == 4);
    c->l.offset[1] = 2;
    tni_simt apart = tni_simt_choose(&c->l, &h200);
    CHECK(apart.class.window && (apart.class.vectors == 1 || apart.class.vectors == 2));
    c->l.offset[0] = c->l.offset[1] = 0;
    c->l.buffer[0]                  = (char *)4096 + 4;
    CHECK(tni_simt_choose(&c->l, &h200).class.window);
    free(c);
}

// Many factors by column take so many registers that rows would have shorter vectors, of which a
// row of few columns has none.
static void rows_of_few_columns_and_many_factors_get_a_shape(void)
{
    enum { FACTORS = 6 };
    kit_case *c = malloc(sizeof *c);
    for (int64_t cols = 1; cols <= 20; cols++) {
        kit_begin(c, 2, (int64_t[]){ 300, cols }, 0, NULL, false);
        int y = kit_cast(c, TN_F32, kit_load_new(c, TN_BF16, TNI_PER_ROW));
        int w = kit_buffer(c, TN_F32, FACTORS * cols, false);
        for (int i = 0; i < FACTORS; i++)
            y = kit_map2(c, TNI_mul, y,
                         kit_load(c, kit_access(c, w, i * cols, (int64_t[]){ 0, 1 }, 0)));
        kit_store(c, kit_output(c, TN_BF16, TNI_PER_ROW), y);
        CHECK(tni_kernel_seal(&c->k));
        CHECK(tni_simt_choose(&c->l, &h200).block > 0);
        kit_free(c);
    }
    free(c);
}

// A map may write where it reads; threads that share a row, or come to it again, may not.
static void only_maps_read_what_they_write(void)
{
    enum { MAP, ROW, TAIL, KINDS };
    kit_case *c = calloc(1, sizeof *c);
    for (int kind = MAP; c && kind < KINDS; kind++) {
        kit_begin(c, 1, (int64_t[]){ 30 }, kind == ROW, (int64_t[]){ 20 }, kind == ROW);
        int at = kit_output(c, TN_F32, TNI_PER_ELEM), x = kit_load(c, at);
        int y = kit_map(c, TNI_neg, x, NONE, NONE);
        if (kind != MAP)
            kit_store(c, kit_output(c, TN_F32, kind == ROW ? TNI_PER_ROW : TNI_PER_ONE),
                      kit_reduce(c, TNI_sum, y, kind == TAIL));
        kit_store(c, at, y);
        CHECK_INT(tni_kernel_seal(&c->k), kind == MAP);
        c->k.buffer[0].written = 0;  // what it refuses is the store there, and nothing else
        CHECK(tni_kernel_seal(&c->k));
    }
    free(c);
}

const test_case tests_simt[] = { TEST(transposed_operands_get_tiles),
                                 TEST(transposed_operands_compile_without_spills),
                                 TEST(transposed_operands_run_and_agree),
                                 TEST(an_h200_gets_the_measured_shapes),
                                 TEST(grids_are_within_what_cuda_launches),
                                 TEST(few_classes_serve_many_sizes),
                                 TEST(other_alignment_is_another_class),
                                 TEST(rows_of_few_columns_and_many_factors_get_a_shape),
                                 TEST(only_maps_read_what_they_write),
                                 TEST(known_work_compiles_without_spills),
                                 TEST(known_work_runs_and_agrees),
                                 TEST(any_settings_make_launches),
                                 TEST(any_settings_run_and_agree),
                                 TEST(many_long_rows_are_taken_by_tickets),
                                 TEST(random_kernels_run_and_agree),
                                 TEST(all_shared_memory_that_is_declared_is_used),
                                 TEST(memory_that_is_not_used_is_found),
                                 TEST_END };
