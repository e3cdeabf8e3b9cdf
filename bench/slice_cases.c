// slice_cases.c: what is measured, as the public interface has it, and the references in double.
#include "slice_kernels.h"

#include "base/pool.h"

#include <math.h>
#include <stdlib.h>

// ---- errors ------------------------------------------------------------------------------------

enum { SAMPLES = 16 };

// Row k of SAMPLES that are spread over all, the first and the last among them.
static int64_t sampled(const slice *s, int k)
{
    int64_t last = s->rows - 1;
    return k == SAMPLES - 1 ? last : last / (SAMPLES - 1) * k;
}

// The larger of two errors; one that is no number is larger than any.
static double worse(double a, double b)
{
    return isnan(b) || b > a ? isnan(b) ? INFINITY : b : a;
}

static double off(double y, double want, double scale)
{
    return fabs(y - want) / scale;
}

// The largest error of one row's elements against `want`, relative to the largest of them.
static double row_error(slice *s, int array, int64_t row, const double *want)
{
    double *y = malloc((size_t)s->cols * sizeof *y), most = 0, error = INFINITY;
    if (y && slice_out(s, array, row * s->cols, s->cols, y)) {
        for (int64_t i = 0; i < s->cols; i++) most = fmax(most, fabs(want[i]));
        error = 0;
        for (int64_t i = 0; i < s->cols; i++) error = worse(error, off(y[i], want[i], most));
    }
    free(y);
    return error;
}

// The largest over the sampled rows of what `f` gives for one, with room for two rows.
static double over_rows(slice *s, double (*f)(slice *s, int64_t row, double *room))
{
    double *room = malloc(3 * (size_t)s->cols * sizeof *room), error = room ? 0 : INFINITY;
    for (int k = 0; room && k < SAMPLES; k++) error = worse(error, f(s, sampled(s, k), room));
    free(room);
    return error;
}

// ---- relu chain --------------------------------------------------------------------------------

static bool record_relu(slice *s)
{
    s->t[1] = tn_add_s(tn_mul_s(tn_relu(s->t[0]), 0.5), 1);
    return s->t[1] != NULL;
}

static double relu_row(slice *s, int64_t row, double *want)
{
    for (int64_t i = 0; i < s->cols; i++)
        want[i] = fmax(slice_in(s, 0, row * s->cols + i), 0) * 0.5 + 1;
    return row_error(s, 1, row, want);
}

static double relu_error(slice *s)
{
    return over_rows(s, relu_row);
}

// ---- softmax -----------------------------------------------------------------------------------

static bool record_softmax(slice *s)
{
    s->t[1] = tn_softmax(s->t[0], 1);
    return s->t[1] != NULL;
}

// The softmax of a row of array 0; returns the logarithm of what it was divided by.
static double softmax_of(const slice *s, int64_t row, double *y)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s->cols; i++) top = fmax(top, slice_in(s, 0, row * s->cols + i));
    for (int64_t i = 0; i < s->cols; i++) {
        y[i] = exp(slice_in(s, 0, row * s->cols + i) - top);
        sum += y[i];
    }
    for (int64_t i = 0; i < s->cols; i++) y[i] /= sum;
    return top + log(sum);
}

static double softmax_row(slice *s, int64_t row, double *want)
{
    softmax_of(s, row, want);
    return row_error(s, 1, row, want);
}

static double softmax_error(slice *s)
{
    return over_rows(s, softmax_row);
}

// ---- cross-entropy -----------------------------------------------------------------------------

// The gradients of leaves, each in a fresh place: what was there is forgotten.
static void clear(tn_tensor *x)
{
    tn_requires_grad(x, true);
    tn_zero_grad(x);
}

static bool record_cross_entropy(slice *s)
{
    tn_class_opts o = { .no_ignore = true };
    clear(s->t[0]);
    s->t[2] = tn_cross_entropy_with(tn_cast(s->t[0], TN_F32), s->t[1], o);
    if (tn_backward(s->t[2], NULL) != TN_OK) return false;
    s->t[3] = tn_grad_of(s->t[0]);
    return true;
}

static double cross_entropy_row(slice *s, int64_t row, double *want)
{
    softmax_of(s, row, want);
    want[(int64_t)slice_in(s, 1, row)] -= 1;
    for (int64_t i = 0; i < s->cols; i++) want[i] /= (double)s->rows;
    return row_error(s, 3, row, want);
}

// The losses of rows, and room for a row of each worker.
typedef struct {
    const slice *s;
    double      *loss, *room;
} losses;

static void one_loss(void *arg, int64_t row, int worker)
{
    losses      *l = arg;
    const slice *s = l->s;
    double       y = softmax_of(s, row, l->room + worker * s->cols);
    l->loss[row]   = y - slice_in(s, 0, row * s->cols + (int64_t)slice_in(s, 1, row));
}

// The loss is the mean over all rows, so that it is computed in full.
static double loss_error(slice *s)
{
    int    threads = tni_threads_default();
    size_t n       = (size_t)s->rows;
    losses l       = { s, malloc(n * sizeof(double)), malloc((size_t)(threads * s->cols) * 8) };
    double sum = 0, y = NAN, error = INFINITY;
    if (l.loss && l.room && slice_out(s, 2, 0, 1, &y)) {
        tni_parallel(threads, s->rows, one_loss, &l);
        for (size_t i = 0; i < n; i++) sum += l.loss[i] / (double)n;
        error = off(y, sum, sum);
    }
    free(l.loss);
    free(l.room);
    return error;
}

// The loss is kept in f32, so its error counts a hundred times against that of the bf16 gradient.
static double cross_entropy_error(slice *s)
{
    return worse(over_rows(s, cross_entropy_row), 100 * loss_error(s));
}

// ---- AdamW -------------------------------------------------------------------------------------

static bool record_adamw(slice *s)
{
    tn_tensor *p = s->t[0], *g = s->t[1];
    tn_tensor *a = tn_add(tn_mul_s(s->t[2], 0.9), tn_mul_s(g, 0.1));
    tn_tensor *v = tn_add(tn_mul_s(s->t[3], 0.999), tn_mul_s(tn_square(g), 0.001));
    tn_tensor *d = tn_div(a, tn_add_s(tn_sqrt(v), SLICE_EPS));
    tn_tensor *q = tn_sub(tn_mul_s(p, SLICE_DECAY), tn_mul_s(d, SLICE_RATE));
    return tn_assign(s->t[2], a) && tn_assign(s->t[3], v) && tn_assign(p, q);
}

static double adamw_row(slice *s, int64_t row, double *p)
{
    double *a = p + s->cols, *v = a + s->cols;
    for (int64_t i = 0; i < s->cols; i++) {
        int64_t at = row * s->cols + i;
        double  g  = slice_in(s, 1, at);
        a[i]       = 0.9 * slice_in(s, 2, at) + 0.1 * g;
        v[i]       = 0.999 * slice_in(s, 3, at) + 0.001 * g * g;
        p[i] = slice_in(s, 0, at) * SLICE_DECAY - a[i] / (sqrt(v[i]) + SLICE_EPS) * SLICE_RATE;
    }
    return worse(row_error(s, 0, row, p), worse(row_error(s, 2, row, a), row_error(s, 3, row, v)));
}

static double adamw_error(slice *s)
{
    return over_rows(s, adamw_row);
}

// ---- layer norm --------------------------------------------------------------------------------

static bool record_layer_norm(slice *s)
{
    for (int i = 0; i < 3; i++) clear(s->t[i]);
    s->t[4] = tn_want(tn_layer_norm(s->t[0], 1, s->t[1], s->t[2], 0));
    if (tn_backward(s->t[4], s->t[3]) != TN_OK) return false;
    for (int i = 0; i < 3; i++) s->t[5 + i] = tn_grad_of(s->t[i]);
    return true;
}

// What a row of x is less its mean, over its deviation; returns one over that.
static double normal_of(const slice *s, int64_t row, double *h)
{
    double mean = 0, var = 0, n = (double)s->cols;
    for (int64_t i = 0; i < s->cols; i++) mean += slice_in(s, 0, row * s->cols + i) / n;
    for (int64_t i = 0; i < s->cols; i++) {
        h[i] = slice_in(s, 0, row * s->cols + i) - mean;
        var += h[i] * h[i] / n;
    }
    double inverse = 1 / sqrt(var + 1e-5);
    for (int64_t i = 0; i < s->cols; i++) h[i] *= inverse;
    return inverse;
}

static double layer_norm_row(slice *s, int64_t row, double *want)
{
    double *h = want + s->cols, inverse = normal_of(s, row, h), s1 = 0, s2 = 0;
    double  n = (double)s->cols;
    for (int64_t i = 0; i < s->cols; i++) {
        double g = slice_in(s, 3, row * s->cols + i) * slice_in(s, 1, i);
        want[i]  = h[i] * slice_in(s, 1, i) + slice_in(s, 2, i);
        s1 += g / n;
        s2 += g * h[i] / n;
    }
    double error = row_error(s, 4, row, want);
    for (int64_t i = 0; i < s->cols; i++) {
        double g = slice_in(s, 3, row * s->cols + i) * slice_in(s, 1, i);
        want[i]  = inverse * (g - s1 - h[i] * s2);
    }
    return worse(error, row_error(s, 5, row, want));
}

// The gradients of weight and bias are over all rows.
static double columns_error(slice *s)
{
    size_t  n = (size_t)s->cols;
    double *w = calloc(3 * n, sizeof *w), *b = w ? w + n : NULL, error = INFINITY;
    for (int64_t row = 0; w && row < s->rows; row++) {
        double *h = b + n;
        normal_of(s, row, h);
        for (size_t i = 0; i < n; i++) {
            double g = slice_in(s, 3, row * s->cols + (int64_t)i);
            w[i] += g * h[i];
            b[i] += g;
        }
    }
    if (w) error = worse(row_error(s, 6, 0, w), row_error(s, 7, 0, b));
    free(w);
    return error;
}

static double layer_norm_error(slice *s)
{
    return worse(over_rows(s, layer_norm_row), columns_error(s));
}

// ---- sums --------------------------------------------------------------------------------------

static bool record_sum(slice *s)
{
    s->t[1] = tn_sum_all(s->t[0]);
    return s->t[1] != NULL;
}

// Relative to the sum of absolute values: the numbers cancel.
static double sum_error(slice *s)
{
    double sum = 0, size = 0, y = NAN;
    for (int64_t i = 0; i < s->rows; i++) {
        sum += slice_in(s, 0, i);
        size += fabs(slice_in(s, 0, i));
    }
    return slice_out(s, 1, 0, 1, &y) ? off(y, sum, size) : INFINITY;
}

static bool record_column_sum(slice *s)
{
    s->t[1] = tn_sum(s->t[0], 0);
    return s->t[1] != NULL;
}

static double column_sum_error(slice *s)
{
    double *sum = calloc((size_t)s->cols, sizeof *sum), error = INFINITY;
    for (int64_t row = 0; sum && row < s->rows; row++)
        for (int64_t i = 0; i < s->cols; i++) sum[i] += slice_in(s, 0, row * s->cols + i);
    if (sum) error = row_error(s, 1, 0, sum);
    free(sum);
    return error;
}

// ---- the table ---------------------------------------------------------------------------------

#define ELEM(type, fill)                    \
    {                                       \
        TN_##type, SLICE_##fill, true, true \
    }
#define COLS(type, fill)                     \
    {                                        \
        TN_##type, SLICE_##fill, false, true \
    }
#define ROWS(type, fill)                     \
    {                                        \
        TN_##type, SLICE_##fill, true, false \
    }
#define ONE(type, fill)                       \
    {                                         \
        TN_##type, SLICE_##fill, false, false \
    }

#define RELU(what, side)                                                                       \
    {                                                                                          \
        what, side, side, 8, { ELEM(F32, RANDOM), ELEM(F32, RESULT) }, 2, 1, slice_build_relu, \
            record_relu, relu_error, 1e-6                                                      \
    }
#define SOFTMAX(what, rows, cols)                                                                 \
    {                                                                                             \
        what, rows, cols, 8, { ELEM(F32, RANDOM), ELEM(F32, RESULT) }, 2, 1, slice_build_softmax, \
            record_softmax, softmax_error, 1e-5                                                   \
    }

// clang-format off
const slice_case slice_cases[] = {
    RELU("relu chain 16384^2 f32", 16384),
    RELU("relu chain 4096^2 f32", 4096),
    SOFTMAX("softmax 8192x4096 f32", 8192, 4096),
    SOFTMAX("softmax 65536x128 f32", 65536, 128),
    SOFTMAX("softmax 1024x50257 f32", 1024, 50257),
    SOFTMAX("softmax 512x131072 f32", 512, 131072),
    { "cross-entropy 8192x50257 bf16", 8192, 50257, 4,
      { ELEM(BF16, RANDOM), ROWS(I64, INDEX), ONE(F32, RESULT), ELEM(BF16, RESULT) }, 4, 1,
      slice_build_cross_entropy, record_cross_entropy, cross_entropy_error, 5e-3 },
    { "adamw 130 M f32", 124 * 1024, 1024, 28,
      { ELEM(F32, RANDOM), ELEM(F32, RANDOM), ELEM(F32, RANDOM), ELEM(F32, POSITIVE) }, 4, 1,
      slice_build_adamw, record_adamw, adamw_error, 1e-6 },
    { "layer norm 8192x4096 bf16", 8192, 4096, 10,
      { ELEM(BF16, RANDOM), COLS(BF16, RANDOM), COLS(BF16, RANDOM), ELEM(BF16, RANDOM),
        ELEM(BF16, RESULT), ELEM(BF16, RESULT), COLS(BF16, RESULT), COLS(BF16, RESULT) }, 8, 2,
      slice_build_layer_norm, record_layer_norm, layer_norm_error, 8e-3 },
    { "sum 64 Mi f32", 1 << 26, 1, 4, { ELEM(F32, RANDOM), ONE(F32, RESULT) }, 2, 1,
      slice_build_sum, record_sum, sum_error, 1e-6 },
    { "column sum 65536x1024 f32", 65536, 1024, 4, { ELEM(F32, RANDOM), COLS(F32, RESULT) }, 2, 1,
      slice_build_column_sum, record_column_sum, column_sum_error, 1e-5 },
};
// clang-format on
const int slice_count = sizeof slice_cases / sizeof *slice_cases;
