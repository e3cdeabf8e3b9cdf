// device_cases.c: products, sums, writes by index and losses of many sizes on a device, against
// ref.
#include "check.h"
#include "device_table.h"
#include "on_device.h"
#include "table.h"

#include <math.h>
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
            bool ok = agrees(y[0], y[1],
                             (tolerance){ .how = SUMS, .depth = (double)K, .bound = bound }, text);
            test_case_result(ok, "(%d, %d) @ (%d, %d), %d: %s", (int)M, (int)K, (int)K, (int)N, how,
                             text);
            input_free(&a);
            input_free(&b);
        }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// ---- sums of many ------------------------------------------------------------------------------

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
            bool ok = agrees(y[0], y[1], (tolerance){ .how = SUMS, .depth = depth, .bound = bound },
                             text);
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
    bool ok = agrees(y[0], y[1], (tolerance){ .how = SUMS, .depth = (double)rows, .bound = bound },
                     text);
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

// ---- losses over many classes ------------------------------------------------------------------

enum { ROWS = 9, WIDTH = 4 };

// The gradients of a loss over that many classes by x and w into g, the loss last. Returns the
// memory that was planned, in matrices of logits.
static double loss_gradients(tn_ctx *cx, tn_dtype dt, int64_t classes, const float *w, double *g)
{
    float   v[ROWS * WIDTH];
    int64_t label[ROWS];
    for (int i = 0; i < ROWS * WIDTH; i++) v[i] = (float)(i * 7 % 13) / 8 - 0.75f;
    for (int i = 0; i < ROWS; i++) label[i] = i == 0 ? 0 : classes - 1 - (i - 1) * 1117;
    tn_tensor *x  = tn_cast(tn_from(cx, TN_F32, TN_SHAPE(ROWS, WIDTH), v), dt);
    tn_tensor *wt = tn_cast(tn_from(cx, TN_F32, TN_SHAPE(classes, WIDTH), w), dt);
    tn_tensor *y  = tn_from(cx, TN_I64, TN_SHAPE(ROWS), label);
    tn_requires_grad(tn_want(x), true);
    tn_requires_grad(tn_want(wt), true);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *l = tn_cross_entropy(tn_linear(x, wt, NULL), y);
    tn_backward(l, NULL);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    double planned = (double)tn_ctx_stats(cx).planned / (double)(ROWS * classes);
    CHECK_STATUS(tn_read(tn_grad_of(x), TN_F64, g, ROWS * WIDTH), TN_OK);
    CHECK_STATUS(tn_read(tn_grad_of(wt), TN_F64, g + ROWS * WIDTH, (size_t)classes * WIDTH), TN_OK);
    g[(ROWS + classes) * WIDTH] = tn_item(l);
    tn_end(s);
    return planned / (dt == TN_F32 ? 4 : 2);
}

// The gradient of the logits is stored over them where rows are long, and is right there.
static void losses_agree(const char *device, tn_dtype dt, int64_t classes)
{
    size_t  n = (size_t)(ROWS + classes) * WIDTH + 1;
    double *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b), far = 0;
    float  *w  = calloc(n, sizeof *w);
    tn_ctx *cx = open_eager(device, false), *ref = open_quiet("ref", 1);
    if (CHECK(a && b && w && cx && ref)) {
        for (size_t i = 0; i < (size_t)classes * WIDTH; i++)
            w[i] = (float)(i * 31 % 101) / 64 - 0.75f;
        double planned = loss_gradients(cx, dt, classes, w, a);
        loss_gradients(ref, dt, classes, w, b);
        // Gradients of w are small: those of classes that no row has, about 1 / classes.
        for (size_t i = 0; i < n; i++) {
            bool small = i >= ROWS * WIDTH && i + 1 < n;
            far        = fmax(far, fabs(a[i] - b[i]) / ((small ? 1e-5 : 1e-1) + fabs(b[i])));
        }
        test_case_result(far < (dt == TN_F32 ? 1e-3 : 5e-2), "%lld classes, %s: %g off",
                         (long long)classes, tn_dtype_name(dt), far);
        test_case_result(planned < 1.5, "%lld classes, %s: %.2f times the logits",
                         (long long)classes, tn_dtype_name(dt), planned);
    }
    tn_close(cx);
    tn_close(ref);
    free(a);
    free(b);
    free(w);
}

void losses_on(const char *device)
{
    losses_agree(device, TN_F32, 9001);
    losses_agree(device, TN_BF16, 8192);
}
