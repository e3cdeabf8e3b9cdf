// device_cases.c: products, sums and writes by index of many sizes on a device, against ref.
#include "check.h"
#include "device_table.h"
#include "on_device.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- products ----------------------------------------------------------------------------------

void products_on(const char *device)
{
    static const int64_t sizes[][3] = { { 1, 1, 1 },    { 1, 300, 1 },   { 64, 16, 64 },
                                        { 65, 17, 63 }, { 63, 15, 65 },  { 128, 64, 128 },
                                        { 200, 1, 70 }, { 3, 1000, 130 } };
    tn_ctx              *cx[]       = { open_eager(device, false), open_quiet("ref", 1) };
    table_seed(3);
    for (size_t k = 0; cx[0] && k < sizeof sizes / sizeof *sizes; k++)
        for (int how = 0; how < 4; how++) {
            int64_t    M = sizes[k][0], K = sizes[k][1], N = sizes[k][2];
            input      a = input_make(TN_F32, how & 1 ? TRANSPOSED : PLAIN, 2, (int64_t[]){ M, K },
                                      TAME);
            input      b = input_make(TN_F32, how & 2 ? TRANSPOSED : PLAIN, 2, (int64_t[]){ K, N },
                                      TAME);
            tn_tensor *y[2], *bound = NULL;
            char       text[256];
            for (int d = 0; d < 2; d++) {
                tn_tensor *x = input_put(&a, cx[d]), *w = input_put(&b, cx[d]);
                y[d]  = tn_matmul(x, w);
                bound = tn_matmul(tn_abs(x), tn_abs(w));
            }
            bool ok = agrees(y[0], y[1], (tolerance){ SUMS, (double)K, bound, 0, 0 }, text);
            test_case_result(ok, "(%d, %d) @ (%d, %d), %d: %s", (int)M, (int)K, (int)K, (int)N, how,
                             text);
            input_free(&a);
            input_free(&b);
        }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// ---- sums of many -------------------------------------------------------------------------------

void sums_on(const char *device)
{
    static const int64_t sizes[][2] = { { 1, 100000 }, { 100000, 1 }, { 3, 40000 }, { 40000, 3 },
                                        { 700, 700 },  { 33, 4097 },  { 5000, 33 } };
    tn_ctx              *cx[]       = { open_eager(device, false), open_quiet("ref", 1) };
    table_seed(4);
    for (size_t k = 0; cx[0] && k < sizeof sizes / sizeof *sizes; k++)
        for (int axis = 0; axis < 3; axis++) {
            input      in = input_make(TN_F32, k & 1 ? TRANSPOSED : PLAIN, 2, sizes[k], TAME);
            tn_tensor *y[2], *bound = NULL;
            char       text[256];
            for (int d = 0; d < 2; d++) {
                tn_tensor *x = input_put(&in, cx[d]);
                y[d]         = axis == 2 ? tn_sum_all(x) : tn_sum(x, axis);
                bound        = axis == 2 ? tn_sum_all(tn_abs(x)) : tn_sum(tn_abs(x), axis);
            }
            double depth = axis == 2 ? (double)(sizes[k][0] * sizes[k][1]) : (double)sizes[k][axis];
            bool   ok    = agrees(y[0], y[1], (tolerance){ SUMS, depth, bound, 0, 0 }, text);
            test_case_result(ok, "sum of (%d, %d) over %d: %s", (int)sizes[k][0], (int)sizes[k][1],
                             axis, text);
            input_free(&in);
        }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// ---- sums by index -----------------------------------------------------------------------------

// The gradient of rows taken from a table: many rows added into few, twice the same bits.
static bool scatter_once(tn_ctx *const *cx, tn_dtype dt, int64_t rows, int64_t places,
                         int64_t width, char text[256])
{
    input index = input_make(TN_I32, PLAIN, 2, (int64_t[]){ rows, 1 }, TAME);
    input v     = input_make(dt, PLAIN, 2, (int64_t[]){ rows, width }, TAME);
    input x     = input_make(dt, PLAIN, 2, (int64_t[]){ places, width }, TAME);
    int  *at    = index.data;
    for (int64_t i = 0; i < rows; i++) at[i] = (int)draw_below(2 * places) - (int)places;
    tn_tensor *y[2], *again = NULL, *bound = NULL;
    for (int d = 0; d < 2; d++) {
        tn_tensor *i = tn_expand(input_put(&index, cx[d]), TN_SHAPE(rows, width));
        tn_tensor *a = input_put(&x, cx[d]), *b = input_put(&v, cx[d]);
        y[d]  = tn_scatter_add(a, 0, i, b);
        bound = tn_scatter_add(tn_abs(a), 0, i, tn_abs(b));
        if (!d) again = tn_scatter_add(a, 0, i, b);
    }
    bool ok = agrees(y[0], y[1], (tolerance){ SUMS, (double)rows, bound, 0, 0 }, text);
    if (ok) ok = agrees(again, tn_copy_to(cx[1], y[0]), (tolerance){ .how = EXACT }, text);
    input_free(&index);
    input_free(&v);
    input_free(&x);
    return ok;
}

void scatters_on(const char *device)
{
    static const int64_t  sizes[][3] = { { 1, 1, 1 },      { 70, 3, 5 },     { 1000, 1, 33 },
                                         { 513, 40, 64 },  { 4000, 50, 96 }, { 300, 5000, 16 },
                                         { 20000, 700, 4 } };
    static const tn_dtype dtypes[]   = { TN_F32, TN_BF16, TN_F16, TN_F64, TN_I32 };
    tn_ctx               *cx[]       = { open_eager(device, false), open_quiet("ref", 1) };
    table_seed(6);
    for (size_t k = 0; cx[0] && k < sizeof sizes / sizeof *sizes; k++)
        for (int t = 0; t < (k == 1 ? 5 : 2); t++) {
            char text[256] = "";
            bool ok = scatter_once(cx, dtypes[t], sizes[k][0], sizes[k][1], sizes[k][2], text);
            test_case_result(ok, "%d rows of %d into %d, %s: %s %s", (int)sizes[k][0],
                             (int)sizes[k][2], (int)sizes[k][1], tn_dtype_name(dtypes[t]), text,
                             tn_error_text(cx[0]));
        }
    tn_close(cx[0]);
    tn_close(cx[1]);
}
