// long_rows.c: kernels over long rows, and the lengths they are tried with.
#include "long_rows.h"

#include <stdio.h>

enum { NONE = TNI_NO_VALUE, CLASSES = 20 };

// The mean of what was added up over a row.
static int mean(kit_case *c, int sum, int64_t cols)
{
    return kit_map2(c, TNI_mul, sum, kit_number(c, TN_F32, 1.0 / (double)cols));
}

// ---- kernels -----------------------------------------------------------------------------------

static void begin(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
}

static void softmax_of(kit_case *c, tn_dtype dt)
{
    int x = kit_load_new(c, dt, TNI_PER_ELEM);
    int m = kit_reduce(c, TNI_max, x, false);
    int e = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, m));
    int s = kit_reduce(c, TNI_sum, e, false);
    kit_store(c, kit_output(c, dt, TNI_PER_ELEM), kit_map2(c, TNI_div, e, s));
}

static void softmax(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols)
{
    begin(c, rows, cols);
    softmax_of(c, dt);
}

// Over two axes at once.
static void plane(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols)
{
    kit_begin(c, 2, (int64_t[]){ 2, rows }, 2, (int64_t[]){ 4, cols / 4 }, true);
    softmax_of(c, dt);
}

// Two reductions, one after the other; loads of columns beside those of elements.
static void norm(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols)
{
    begin(c, rows, cols);
    int x = kit_cast(c, TN_F32, kit_load_new(c, dt, TNI_PER_ELEM));
    int w = kit_cast(c, TN_F32, kit_load_new(c, dt, TNI_PER_COL));
    int b = kit_cast(c, TN_F32, kit_load_new(c, dt, TNI_PER_COL));
    int u = mean(c, kit_reduce(c, TNI_sum, x, false), cols);
    int d = kit_map2(c, TNI_sub, x, u);
    int v = mean(c, kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, d, d), false), cols);
    int r = kit_map1(c, TNI_sqrt, kit_map2(c, TNI_add, v, kit_number(c, TN_F32, 1e-5)));
    int y = kit_map2(c, TNI_mul, kit_map2(c, TNI_div, d, r), w);
    kit_store(c, kit_output(c, dt, TNI_PER_ELEM), kit_map2(c, TNI_add, y, b));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), u);
}

// Reductions of several types in one loop, two inputs, a mask by column.
static void several(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols)
{
    begin(c, rows, cols);
    int x = kit_load_new(c, dt, TNI_PER_ELEM), i = kit_load_new(c, TN_I32, TNI_PER_ELEM);
    int p = kit_place(c, 0, (int64_t[]){ 0, 1 });
    int y = kit_map2(c, TNI_lt, p, kit_number(c, TN_I64, (double)cols - 7));
    y     = kit_map(c, TNI_where, y, x, kit_number(c, dt, 0));
    int s = kit_reduce(c, TNI_sum, y, false), m = kit_reduce(c, TNI_min, x, false);
    int k = kit_reduce(c, TNI_max, i, false);
    int l = kit_reduce(c, TNI_sum, kit_cast(c, TN_I64, i), false);
    int d = kit_map2(c, TNI_sub, x, mean(c, s, cols));
    int v = kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, d, d), false);
    y     = kit_map2(c, TNI_add, kit_map2(c, TNI_mul, d, m), mean(c, v, cols));
    kit_store(c, kit_output(c, dt, TNI_PER_ELEM), y);
    kit_store(c, kit_output(c, TN_I32, TNI_PER_ELEM), kit_map2(c, TNI_sub, k, i));
    kit_store(c, kit_output(c, TN_I64, TNI_PER_ROW), l);
}

// Cross-entropy and its gradient, with the mean as a tail.
static void loss(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols)
{
    begin(c, rows, cols);
    int ax     = kit_input(c, dt, TNI_PER_ELEM);
    int x      = kit_cast(c, TN_F32, kit_load(c, ax));
    int target = kit_check(c, kit_load_new(c, TN_I64, TNI_PER_ROW), CLASSES);
    int at     = kit_access(c, c->k.access[ax].buffer, 0, (int64_t[]){ cols, 0 }, 1);
    int m      = kit_reduce(c, TNI_max, x, false);
    int e      = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, m));
    int s      = kit_reduce(c, TNI_sum, e, false);
    int own    = kit_cast(c, TN_F32, kit_load_at(c, at, target, NONE));
    int one    = kit_map2(c, TNI_sub, kit_map2(c, TNI_add, kit_map1(c, TNI_log, s), m), own);
    int hit    = kit_map2(c, TNI_eq, kit_place(c, 0, (int64_t[]){ 0, 1 }), target);
    int g      = kit_map2(c, TNI_sub, kit_map2(c, TNI_div, e, s), kit_cast(c, TN_F32, hit));
    kit_store(c, kit_output(c, dt, TNI_PER_ELEM), mean(c, g, rows));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), one);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ONE),
              mean(c, kit_reduce(c, TNI_sum, one, true), rows));
}

// An index for each element, which nothing but the elements of the row may be asked for.
static void gather(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols)
{
    begin(c, rows, cols);
    int x = kit_load_new(c, dt, TNI_PER_ELEM);
    int i = kit_check(c, kit_load_new(c, TN_I64, TNI_PER_ELEM), CLASSES);
    int t = kit_access(c, kit_buffer(c, dt, CLASSES, false), 0, (int64_t[]){ 0, 0 }, 1);
    int y = kit_map2(c, TNI_add, x, kit_load_at(c, t, i, NONE));
    int s = kit_reduce(c, TNI_sum, y, false);
    kit_store(c, kit_output(c, dt, TNI_PER_ELEM), kit_map2(c, TNI_sub, y, mean(c, s, cols)));
}

// Sums of columns beside those of rows.
static void norm_backward(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols)
{
    begin(c, rows, cols);
    int x = kit_cast(c, TN_F32, kit_load_new(c, dt, TNI_PER_ELEM));
    int g = kit_cast(c, TN_F32, kit_load_new(c, dt, TNI_PER_ELEM));
    int s = mean(c, kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, g, x), false), cols);
    kit_store(c, kit_output(c, dt, TNI_PER_ELEM),
              kit_map2(c, TNI_sub, g, kit_map2(c, TNI_mul, x, s)));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), kit_reduce(c, TNI_sum, g, true));
}

// ---- cases -------------------------------------------------------------------------------------

// Rows begin `start` elements after what is aligned.
static const struct {
    void (*make)(kit_case *c, tn_dtype dt, int64_t rows, int64_t cols);
    const char *name;
    tn_dtype    dt;
    int         rows, cols, start;
} cases[] = {
    { softmax, "softmax", TN_F32, 37, 100, 1 },
    { softmax, "softmax", TN_F32, 37, 128, 0 },
    { softmax, "softmax", TN_F32, 9, 3000, 0 },
    { softmax, "softmax", TN_F32, 5, 9001, 0 },
    { softmax, "softmax", TN_F32, 3, 16384, 0 },
    { softmax, "softmax", TN_F32, 3, 16384, 1 },
    { softmax, "softmax", TN_F32, 3, 16385, 0 },
    { softmax, "softmax", TN_F32, 600, 20000, 0 },
    { softmax, "softmax", TN_F32, 3, 32768, 0 },
    { softmax, "softmax", TN_F32, 3, 32769, 0 },
    { softmax, "softmax", TN_F32, 40, 50257, 0 },
    { softmax, "softmax", TN_F32, 80, 70001, 2 },
    { softmax, "softmax", TN_F32, 60, 131074, 0 },
    { softmax, "softmax", TN_F32, 2, 65536, 0 },
    { softmax, "softmax", TN_F32, 2, 65537, 3 },
    { softmax, "softmax", TN_F32, 2, 131071, 0 },
    { softmax, "softmax", TN_F32, 9, 131072, 0 },
    { softmax, "softmax", TN_F32, 2, 131073, 0 },
    { softmax, "softmax", TN_F32, 2, 400001, 2 },
    { softmax, "softmax", TN_BF16, 9, 4096, 0 },
    { softmax, "softmax", TN_F16, 9, 4097, 0 },
    { softmax, "softmax", TN_BF16, 3, 16384, 0 },
    { softmax, "softmax", TN_BF16, 3, 16392, 0 },
    { softmax, "softmax", TN_F16, 2, 65531, 5 },
    { softmax, "softmax", TN_BF16, 2, 131072, 0 },
    { softmax, "softmax", TN_BF16, 2, 131080, 1 },
    { softmax, "softmax", TN_BF16, 2, 262144, 0 },
    { softmax, "softmax", TN_BF16, 2, 262152, 0 },
    { softmax, "softmax", TN_F64, 2, 4098, 0 },
    { softmax, "softmax", TN_F64, 2, 32768, 0 },
    { softmax, "softmax", TN_F64, 2, 32769, 0 },
    { plane, "softmax over two axes", TN_F32, 2, 40000, 0 },
    { norm, "norm", TN_F32, 3, 4096, 0 },
    { norm, "norm", TN_F32, 3, 8196, 0 },
    { norm, "norm", TN_F32, 2, 49152, 0 },
    { norm, "norm", TN_F32, 2, 49156, 0 },
    { norm, "norm", TN_F32, 2, 50257, 0 },
    { norm, "norm", TN_BF16, 9, 4096, 0 },
    { norm, "norm", TN_BF16, 3, 12296, 0 },
    { norm, "norm", TN_BF16, 2, 50257, 3 },
    { several, "several", TN_F32, 3, 8193, 0 },
    { several, "several", TN_F32, 2, 65536, 0 },
    { several, "several", TN_F32, 2, 65540, 0 },
    { loss, "cross-entropy", TN_BF16, 300, 20008, 0 },
    { loss, "cross-entropy", TN_BF16, 5, 50257, 0 },
    { loss, "cross-entropy", TN_BF16, 601, 20001, 3 },
    { loss, "cross-entropy", TN_BF16, 300, 50257, 0 },
    { loss, "cross-entropy", TN_F32, 3, 50257, 0 },
    { loss, "cross-entropy", TN_F32, 2, 140001, 0 },
    { gather, "gather", TN_F32, 3, 20001, 0 },
    { norm_backward, "norm backward", TN_F32, 7, 4096, 1 },
    { norm_backward, "norm backward", TN_BF16, 300, 20000, 3 },
    { norm_backward, "norm backward", TN_BF16, 600, 4096, 0 },
    { norm_backward, "norm backward", TN_BF16, 601, 4104, 3 },
    { norm_backward, "norm backward", TN_F32, 600, 2999, 1 },
    { norm_backward, "norm backward", TN_F32, 600, 3000, 1 },
};

int long_rows_count(void)
{
    return (int)(sizeof cases / sizeof *cases);
}

void long_rows_make(kit_case *c, int i, char name[LONG_ROWS_NAME])
{
    cases[i].make(c, cases[i].dt, cases[i].rows, cases[i].cols);
    for (int a = 0; a < c->k.naccess; a++)
        if (c->k.access[a].buffer >= 0 && c->k.access[a].stride[c->k.np + c->k.nr - 1])
            c->l.offset[a] += cases[i].start;
    for (int b = 0; b < c->k.nbuffer; b++) c->count[b] += cases[i].start;
    snprintf(name, LONG_ROWS_NAME, "%s %s of %d + %d", cases[i].name, tn_dtype_name(cases[i].dt),
             cases[i].start, cases[i].cols);
}

void long_rows_ready(kit_case *c)
{
    for (int i = 0; i < c->k.nbuffer && c->mem[i]; i++)
        for (int64_t n = 0; c->k.buffer[i].dtype == TN_I64 && n < c->count[i]; n++)
            ((int64_t *)c->mem[i])[n] %= CLASSES;
    kit_keep(c);
}
