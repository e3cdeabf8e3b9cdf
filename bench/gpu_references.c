// gpu_references.c: what the single ops must give, in double.
#include "gpu_ops.h"

#include "base/pool.h"

#include <math.h>
#include <stdlib.h>

// ---- errors ------------------------------------------------------------------------------------

enum { SAMPLES = 16 };

// Row k of SAMPLES that are spread over all, the first and the last among them.
static int64_t sampled(const gpu_op *s, int k)
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
static double row_error(gpu_op *s, int array, int64_t row, const double *want)
{
    double *y = malloc((size_t)s->cols * sizeof *y), most = 0, error = INFINITY;
    if (y && gpu_out(s, array, row * s->cols, s->cols, y)) {
        for (int64_t i = 0; i < s->cols; i++) most = fmax(most, fabs(want[i]));
        error = 0;
        for (int64_t i = 0; i < s->cols; i++) error = worse(error, off(y[i], want[i], most));
    }
    free(y);
    return error;
}

// The largest over the sampled rows of what `f` gives for one, with room for two rows.
static double over_rows(gpu_op *s, double (*f)(gpu_op *s, int64_t row, double *room))
{
    double *room = malloc(3 * (size_t)s->cols * sizeof *room), error = room ? 0 : INFINITY;
    for (int k = 0; room && k < SAMPLES; k++) error = worse(error, f(s, sampled(s, k), room));
    free(room);
    return error;
}

// ---- relu chain --------------------------------------------------------------------------------

static double relu_row(gpu_op *s, int64_t row, double *want)
{
    for (int64_t i = 0; i < s->cols; i++)
        want[i] = fmax(gpu_in(s, 0, row * s->cols + i), 0) * 0.5 + 1;
    return row_error(s, 1, row, want);
}

double gpu_relu_error(gpu_op *s)
{
    return over_rows(s, relu_row);
}

// ---- tanh(x.T + v) * x -------------------------------------------------------------------------

static double tanh_row(gpu_op *s, int64_t row, double *want)
{
    for (int64_t i = 0; i < s->cols; i++)
        want[i] = tanh(gpu_in(s, 0, i * s->cols + row) + gpu_in(s, 1, row)) *
                  gpu_in(s, 0, row * s->cols + i);
    return row_error(s, 2, row, want);
}

double gpu_tanh_error(gpu_op *s)
{
    return over_rows(s, tanh_row);
}

// ---- softmax -----------------------------------------------------------------------------------

// The softmax of a row of array 0; returns the logarithm of what it was divided by.
static double softmax_of(const gpu_op *s, int64_t row, double *y)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s->cols; i++) top = fmax(top, gpu_in(s, 0, row * s->cols + i));
    for (int64_t i = 0; i < s->cols; i++) {
        y[i] = exp(gpu_in(s, 0, row * s->cols + i) - top);
        sum += y[i];
    }
    for (int64_t i = 0; i < s->cols; i++) y[i] /= sum;
    return top + log(sum);
}

static double softmax_row(gpu_op *s, int64_t row, double *want)
{
    softmax_of(s, row, want);
    return row_error(s, 1, row, want);
}

double gpu_softmax_error(gpu_op *s)
{
    return over_rows(s, softmax_row);
}

// ---- cross-entropy -----------------------------------------------------------------------------

static double cross_entropy_row(gpu_op *s, int64_t row, double *want)
{
    softmax_of(s, row, want);
    want[(int64_t)gpu_in(s, 1, row)] -= 1;
    for (int64_t i = 0; i < s->cols; i++) want[i] /= (double)s->rows;
    return row_error(s, 3, row, want);
}

// The losses of rows, and room for a row of each worker.
typedef struct {
    const gpu_op *s;
    double       *loss, *room;
} losses;

static void one_loss(void *arg, int64_t row, int worker)
{
    losses       *l = arg;
    const gpu_op *s = l->s;
    double        y = softmax_of(s, row, l->room + worker * s->cols);
    l->loss[row]    = y - gpu_in(s, 0, row * s->cols + (int64_t)gpu_in(s, 1, row));
}

// The loss is the mean over all rows, so that it is computed in full.
static double loss_error(gpu_op *s)
{
    int    threads = tni_threads_default();
    size_t n       = (size_t)s->rows;
    losses l       = { s, malloc(n * sizeof(double)), malloc((size_t)(threads * s->cols) * 8) };
    double sum = 0, y = NAN, error = INFINITY;
    if (l.loss && l.room && gpu_out(s, 2, 0, 1, &y)) {
        tni_parallel(threads, s->rows, one_loss, &l);
        for (size_t i = 0; i < n; i++) sum += l.loss[i] / (double)n;
        error = off(y, sum, sum);
    }
    free(l.loss);
    free(l.room);
    return error;
}

// The loss is kept in f32, so its error counts a hundred times against that of the bf16 gradient.
double gpu_cross_entropy_error(gpu_op *s)
{
    return worse(over_rows(s, cross_entropy_row), 100 * loss_error(s));
}

// ---- AdamW -------------------------------------------------------------------------------------

// One update of zeros as averages, by gradients that were scaled. The row is read from the
// parameter that has it.
static double update_row(gpu_op *s, int64_t row, double scale, double eps, double *p)
{
    const double lr = GPU_LR, c1 = 1 - 0.9, c2 = sqrt(1 - 0.999);
    int64_t      each = s->rows / s->parts;
    for (int64_t i = 0; i < s->cols; i++) {
        double g = scale * gpu_in(s, 1, row * s->cols + i);
        double m = (1 - 0.9) * g / c1, v = sqrt((1 - 0.999) * g * g) / c2;
        p[i] = gpu_in(s, 0, row * s->cols + i) * (1 - lr * GPU_DECAY) - lr * m / (v + eps);
    }
    s->t[2] = s->param[row / each];
    return row_error(s, 2, row % each, p);
}

static double adamw_row(gpu_op *s, int64_t row, double *p)
{
    return update_row(s, row, 1, GPU_EPS, p);
}

double gpu_adamw_error(gpu_op *s)
{
    return over_rows(s, adamw_row);
}

double gpu_clip_error(gpu_op *s)
{
    double *room = malloc((size_t)s->cols * sizeof *room), sum = 0, error = room ? 0 : INFINITY;
    int64_t n = gpu_elements(s, 1);
    for (int64_t i = 0; room && i < n; i++) sum += gpu_in(s, 1, i) * gpu_in(s, 1, i);
    double scale = fmin(1, GPU_CLIP / (sqrt(sum) + 1e-6));
    for (int k = 0; room && k < SAMPLES; k++)
        error = worse(error, update_row(s, sampled(s, k), scale, GPU_CLIP_EPS, room));
    free(room);
    return error;
}

// ---- layer norm --------------------------------------------------------------------------------

// What a row of x is less its mean, over its deviation; returns one over that.
static double normal_of(const gpu_op *s, int64_t row, double *h)
{
    double mean = 0, var = 0, n = (double)s->cols;
    for (int64_t i = 0; i < s->cols; i++) mean += gpu_in(s, 0, row * s->cols + i) / n;
    for (int64_t i = 0; i < s->cols; i++) {
        h[i] = gpu_in(s, 0, row * s->cols + i) - mean;
        var += h[i] * h[i] / n;
    }
    double inverse = 1 / sqrt(var + 1e-5);
    for (int64_t i = 0; i < s->cols; i++) h[i] *= inverse;
    return inverse;
}

static double norm_row(gpu_op *s, int64_t row, double *want)
{
    normal_of(s, row, want);
    for (int64_t i = 0; i < s->cols; i++) want[i] = want[i] * gpu_in(s, 1, i) + gpu_in(s, 2, i);
    return row_error(s, 3, row, want);
}

double gpu_norm_error(gpu_op *s)
{
    return over_rows(s, norm_row);
}

static double layer_norm_row(gpu_op *s, int64_t row, double *want)
{
    double *h = want + s->cols, inverse = normal_of(s, row, h), s1 = 0, s2 = 0;
    double  n = (double)s->cols;
    for (int64_t i = 0; i < s->cols; i++) {
        double g = gpu_in(s, 3, row * s->cols + i) * gpu_in(s, 1, i);
        want[i]  = h[i] * gpu_in(s, 1, i) + gpu_in(s, 2, i);
        s1 += g / n;
        s2 += g * h[i] / n;
    }
    double error = row_error(s, 4, row, want);
    for (int64_t i = 0; i < s->cols; i++) {
        double g = gpu_in(s, 3, row * s->cols + i) * gpu_in(s, 1, i);
        want[i]  = inverse * (g - s1 - h[i] * s2);
    }
    return worse(error, row_error(s, 5, row, want));
}

// The gradients of weight and bias are over all rows.
static double columns_error(gpu_op *s)
{
    size_t  n = (size_t)s->cols;
    double *w = calloc(3 * n, sizeof *w), *b = w ? w + n : NULL, error = INFINITY;
    for (int64_t row = 0; w && row < s->rows; row++) {
        double *h = b + n;
        normal_of(s, row, h);
        for (size_t i = 0; i < n; i++) {
            double g = gpu_in(s, 3, row * s->cols + (int64_t)i);
            w[i] += g * h[i];
            b[i] += g;
        }
    }
    if (w) error = worse(row_error(s, 6, 0, w), row_error(s, 7, 0, b));
    free(w);
    return error;
}

double gpu_norm_all_error(gpu_op *s)
{
    return worse(over_rows(s, layer_norm_row), columns_error(s));
}

// ---- sums --------------------------------------------------------------------------------------

// Relative to the sum of absolute values: the numbers cancel.
double gpu_sum_error(gpu_op *s)
{
    double sum = 0, size = 0, y = NAN;
    for (int64_t i = 0; i < s->rows; i++) {
        sum += gpu_in(s, 0, i);
        size += fabs(gpu_in(s, 0, i));
    }
    return gpu_out(s, 1, 0, 1, &y) ? off(y, sum, size) : INFINITY;
}

double gpu_column_sum_error(gpu_op *s)
{
    double *sum = calloc((size_t)s->cols, sizeof *sum), error = INFINITY;
    for (int64_t row = 0; sum && row < s->rows; row++)
        for (int64_t i = 0; i < s->cols; i++) sum[i] += gpu_in(s, 0, row * s->cols + i);
    if (sum) error = row_error(s, 1, 0, sum);
    free(sum);
    return error;
}

// ---- products ----------------------------------------------------------------------------------

enum { PRODUCT_SAMPLES = 4 };

// Row of array 0 times array 1, which is (inner, columns).
static double product_row(gpu_op *s, int64_t row, double *want)
{
    for (int64_t i = 0; i < s->cols; i++) want[i] = 0;
    for (int64_t k = 0; k < s->inner; k++) {
        double a = gpu_in(s, 0, row * s->inner + k);
        for (int64_t i = 0; i < s->cols; i++) want[i] += a * gpu_in(s, 1, k * s->cols + i);
    }
    return row_error(s, 2, row, want);
}

double gpu_product_error(gpu_op *s)
{
    double *room = malloc((size_t)s->cols * sizeof *room), error = room ? 0 : INFINITY;
    for (int k = 0; room && k < PRODUCT_SAMPLES; k++)
        error = worse(error,
                      product_row(s, sampled(s, k * (SAMPLES - 1) / (PRODUCT_SAMPLES - 1)), room));
    free(room);
    return error;
}

// Array 1 is (columns, inner), as linear layers have it; gelu by its approximation.
static double gelu_row(gpu_op *s, int64_t row, double *want)
{
    for (int64_t i = 0; i < s->cols; i++) {
        double x = gpu_in(s, 2, i);
        for (int64_t k = 0; k < s->inner; k++)
            x += gpu_in(s, 0, row * s->inner + k) * gpu_in(s, 1, i * s->inner + k);
        want[i] = x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
    return row_error(s, 3, row, want);
}

double gpu_gelu_error(gpu_op *s)
{
    return over_rows(s, gelu_row);
}
