// test_pad_rows.c: gaps between the rows of matrices: which values get them, and that the numbers
// of a classifier with an odd number of classes are those of a device without gaps.
#include "check.h"

#include "device/opencl/opencl.h"
#include "engine/engine.h"
#include "plan/plan.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>

// M samples of C features, V classes: rows of 1013 floats or halves begin at odd places.
enum { M = 24, C = 16, V = 1013 };

static tn_tensor *pattern(tn_ctx *cx, int64_t rows, int64_t cols, int step)
{
    float *v = malloc((size_t)(rows * cols) * sizeof *v);
    if (!v) return NULL;
    for (int64_t i = 0; i < rows * cols; i++) v[i] = (float)(i * step % 101 - 50) / 64;
    tn_tensor *t = tn_from(cx, TN_F32, TN_SHAPE(rows, cols), v);
    free(v);
    return t;
}

// ---- which -------------------------------------------------------------------------------------

// Plans what is pending with rows of 16 bytes. Returns the number of values with gaps, and the last
// pitch.
static int padded_values(tn_ctx *cx, int64_t *pitch)
{
    tni_limits limits = tni_limits_of(cx->engine);
    tni_graph  g;
    int        count = 0;
    limits.row_bytes = 16;
    limits.takes     = NULL;  // the cpu would make one step of the product and the loss
    CHECK(tni_graph_open(&g, cx, TNI_STEP, NULL));
    tni_plan *p = tni_plan_build(&g, &limits);
    for (size_t i = 0; p && i < p->count; i++) {
        if (!p->place[i].pitch) continue;
        count++;
        *pitch = p->place[i].pitch;
    }
    tni_plan_free(&cx->heap, p);
    tni_graph_close(&g);
    return count;
}

static tn_tensor *labels(tn_ctx *cx)
{
    int64_t y[M];
    for (int i = 0; i < M; i++) y[i] = i * 37 % V;
    return tn_from(cx, TN_I64, TN_SHAPE(M), y);
}

// Logits and their gradient are read by the loss row by row and by products.
static void logits_and_their_gradient_get_gaps(void)
{
    tn_ctx    *cx    = open_quiet("cpu", 1);
    tn_tensor *x     = tn_requires_grad(pattern(cx, M, C, 7), true);
    tn_tensor *w     = tn_requires_grad(pattern(cx, V, C, 13), true);
    tn_tensor *y     = labels(cx);
    int64_t    pitch = 0;
    tn_eval(cx);
    tn_scope  *s     = tn_begin(cx);
    tn_tensor *batch = tn_reshape(x, TN_SHAPE(2, M / 2, C));  // as a network's: (B, T, C)
    tn_backward(tn_cross_entropy(tn_flatten(tn_linear(batch, w, NULL), 0, 1), y), NULL);
    CHECK_INT(padded_values(cx, &pitch), 2);
    CHECK_INT(pitch, 1016);
    tn_end(s);
    tn_close(cx);
}

// A value that outlives the evaluation, one that is assigned, and one of even rows have none.
static void other_values_have_no_gaps(void)
{
    tn_ctx    *cx = open_quiet("cpu", 1);
    tn_tensor *x = tn_keep(pattern(cx, M, C, 7)), *w = tn_keep(pattern(cx, C, V, 13));
    tn_tensor *even = tn_keep(pattern(cx, C, 1016, 3)),
              *kept = tn_zeros(cx, TN_F32, TN_SHAPE(M, V));
    int64_t pitch   = 0;
    tn_eval(cx);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *a = tn_want(tn_matmul(x, w));
    tn_want(tn_sum(a, 1));
    tn_assign(kept, tn_matmul(x, w));
    tn_want(tn_sum(tn_matmul(x, even), 1));
    CHECK_INT(padded_values(cx, &pitch), 0);
    tn_end(s);
    tn_close(cx);
}

// ---- numbers -----------------------------------------------------------------------------------

// Loss and norms of the gradients of a classifier; the logits are cast on the way if dt is not f32.
static void classify(const char *device, tn_dtype dt, double out[3])
{
    tn_ctx    *cx = open_quiet(device, 1);
    tn_tensor *x  = tn_requires_grad(pattern(cx, M, C, 7), true);
    tn_tensor *w  = tn_requires_grad(pattern(cx, V, C, 13), true);
    tn_tensor *y  = labels(cx);
    tn_eval(cx);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *z = tn_linear(tn_cast(x, dt), tn_cast(w, dt), NULL);
    tn_tensor *l = tn_cross_entropy(z, y);
    tn_backward(l, NULL);
    tn_eval(cx);
    out[0] = tn_item(l);
    out[1] = tn_item(tn_norm_all(tn_grad_of(x)));
    out[2] = tn_item(tn_norm_all(tn_grad_of(w)));
    CHECK_STATUS(tn_error(cx), TN_OK);
    tn_end(s);
    tn_close(cx);
}

// opencl stores rows with gaps, ref does not.
static void gaps_change_no_number(void)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_BF16 };
    static const double   near[]   = { 1e-5, 2e-2 };  // the rounding of logits and gradients
    if (!tni_cl_get()) SKIP("no opencl device: %s", tni_cl_detail());
    for (int i = 0; i < 2; i++) {
        double ours[3], ref[3];
        classify("opencl", dtypes[i], ours);
        classify("ref", dtypes[i], ref);
        for (int k = 0; k < 3; k++) CHECK_NEAR(ours[k], ref[k], near[i] * fabs(ref[k]));
    }
}

// ---- concats -----------------------------------------------------------------------------------

// Two products side by side, and a sum over their columns, on a device.
static void join(const char *device, float *out, int *kernels)
{
    tn_ctx    *cx = open_quiet(device, 1);
    tn_tensor *x = tn_keep(pattern(cx, M, C, 7)), *a = tn_keep(pattern(cx, C, 40, 13));
    tn_tensor *b = tn_keep(pattern(cx, C, 24, 5));
    tn_eval(cx);
    tn_scope  *s      = tn_begin(cx);
    tn_tensor *part[] = { tn_reshape(tn_matmul(x, a), TN_SHAPE(M, 5, 8)),
                          tn_reshape(tn_matmul(x, b), TN_SHAPE(M, 3, 8)) };
    tn_tensor *y = tn_want(tn_concat(2, part, 1)), *sum = tn_want(tn_sum(y, 0));
    tn_stats   before = tn_ctx_stats(cx);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    *kernels = (int)(tn_ctx_stats(cx).launches - before.launches);
    tn_read(y, TN_F32, out, (int64_t)M * 64);
    tn_read(sum, TN_F32, out + (size_t)M * 64, 64);
    tn_end(s);
    tn_close(cx);
}

// Where a product may have strides, it writes its columns of the concat itself: two calls, and the
// sum.
static void products_are_computed_into_a_concat(void)
{
    static float ours[M * 64 + 64], ref[M * 64 + 64];
    int          kernels, unused;
    if (!tni_cl_get()) SKIP("no opencl device: %s", tni_cl_detail());
    join("opencl", ours, &kernels);
    join("ref", ref, &unused);
    for (int i = 0; i < M * 64 + 64; i++) CHECK_NEAR(ours[i], ref[i], 1e-4);
    CHECK_INT(kernels, 3);
}

const test_case tests_pad_rows[] = { TEST(logits_and_their_gradient_get_gaps),
                                     TEST(other_values_have_no_gaps), TEST(gaps_change_no_number),
                                     TEST(products_are_computed_into_a_concat), TEST_END };
