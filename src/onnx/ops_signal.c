// Fourier transforms, windows, and the matrix that makes mel bands of frequencies.
//
// Complex numbers have a last axis of 2, real ones of 1:
//
//   DFT    (B, ..., n, 1 or 2)  ->  (B, ..., n, 2), of a real x with onesided (B, ..., n / 2 + 1, 2)
//   STFT   (B, n, 1 or 2)       ->  (B, windows, frequencies, 2)
#include "onnx/onnx_ops.h"

#include <math.h>

// Numbers that are made on the host at most: a file of a few bytes can ask for any.
enum { MOST = 1 << 24 };

// x without its last axis, complex if that has two places. Floats of 16 bits are computed in f32.
static tn_tensor *as_numbers(tn_tensor *x)
{
    if (!x || tn_rank(x) < 2) return NULL;
    if (tn_dtype_of(x) != TN_F64) x = tn_cast(x, TN_F32);
    return tn_size(x, -1) == 2 ? tn_view_as_complex(tn_contiguous(x)) : tn_squeeze(x, -1);
}

// DFT(x, length, axis; inverse, onesided): the axis was an attribute before opset 20.
// Backwards and one-sided it goes from the first half of a spectrum to real numbers.
bool tni_onnx_dft(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *y = as_numbers(x);
    int64_t    n = 0, axis = c->opset < 20 ? tni_onnx_attr_int(c, "axis", 1) : -2;
    int        k;
    bool       back = tni_onnx_attr_int(c, "inverse", 0) != 0,
         half       = tni_onnx_attr_int(c, "onesided", 0) != 0;
    if (!y) return x && tni_onnx_refuse(c, "x %s has no axis to transform", tni_shape_of(x).s);
    if ((tni_onnx_has(c, 1) && !tni_onnx_ints(c, 1, 1, &n, &k)) ||
        (c->opset >= 20 && tni_onnx_has(c, 2) && !tni_onnx_ints(c, 2, 1, &axis, &k)))
        return false;
    if (axis < 0) axis += tn_rank(x);
    if (axis < 0 || axis >= tn_rank(x) - 1)
        return tni_onnx_refuse(c, "axis %lld is out of range of x %s", (long long)axis,
                               tni_shape_of(x).s);
    int at = (int)axis;
    if (back && half) y = tn_unsqueeze(tn_irfft(y, n, at, TN_FFT_BACKWARD), -1);
    else
        y = tn_view_as_real(back   ? tn_ifft(y, n, at, TN_FFT_BACKWARD)
                            : half ? tn_rfft(y, n, at, TN_FFT_BACKWARD)
                                   : tn_fft(y, n, at, TN_FFT_BACKWARD));
    return tni_onnx_out(c, 0, y ? tn_cast(y, tn_dtype_of(x)) : NULL);
}

// Windows of a part of a signal, times a window's weights if there are any.
static tn_tensor *framed(tn_tensor *x, int64_t n, int64_t step, tn_tensor *window)
{
    tn_tensor *y = tn_window(x, 1, n, step);
    return window ? tn_mul(y, tn_cast(window, tn_dtype_of(y))) : y;
}

// STFT(x, step, window, length; onesided): without a length that of the window. Nothing is padded.
bool tni_onnx_stft(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *window = tni_onnx_in(c, 2), *y;
    int64_t    step, n                        = window ? tn_count(window) : 0;
    int        k;
    bool       half = tni_onnx_attr_int(c, "onesided", 1) != 0;
    if (!x || !tni_onnx_ints(c, 1, 1, &step, &k) || k != 1 ||
        (tni_onnx_has(c, 3) && !tni_onnx_ints(c, 3, 1, &n, &k)))
        return false;
    if (tn_rank(x) != 3 || n < 1 || step < 1 || n > tn_size(x, 1))
        return tni_onnx_refuse(c, "windows of %lld places every %lld do not fit x %s", (long long)n,
                               (long long)step, tni_shape_of(x).s);
    tn_tensor *wide = tn_dtype_of(x) == TN_F64 ? x : tn_cast(x, TN_F32),
              *re   = framed(tn_select(wide, 2, 0), n, step, window);
    if (tn_size(x, 2) == 2) {
        y = tn_fft(tn_complex(re, framed(tn_select(wide, 2, 1), n, step, window)), 0, 2,
                   TN_FFT_BACKWARD);
        if (half) y = tn_slice(y, 2, 0, n / 2 + 1, 1);
    } else y = half ? tn_rfft(re, 0, 2, TN_FFT_BACKWARD) : tn_fft(re, 0, 2, TN_FFT_BACKWARD);
    y = tn_view_as_real(y);
    return tni_onnx_out(c, 0, y ? tn_cast(y, tn_dtype_of(x)) : NULL);
}

// Gives a matrix of numbers that were made on the host, in the dtype that the node asks for; frees
// them.
static bool give_numbers(tni_onnx_call *c, int rank, const int64_t *size, double *v)
{
    tn_dtype dt = TN_F32;
    bool     ok = tni_onnx_dtype(tni_onnx_attr_int(c, "output_datatype", 1), &dt) ||
              tni_onnx_refuse(c, "its output_datatype is not supported");
    ok = ok && tni_onnx_out(c, 0, tn_cast(tn_from(c->cx, TN_F64, rank, size, v), dt));
    tni_free(&c->r->cx->heap, v);
    return ok;
}

// a0 - a1 cos(t) + a2 cos(2 t), where t goes once around in `size` steps, or in one less if it is
// not periodic.
static bool cosine_window(tni_onnx_call *c, double a0, double a1, double a2)
{
    int64_t size;
    int     n;
    if (!tni_onnx_ints(c, 0, 1, &size, &n)) return false;
    if (n != 1 || size < 0 || size > MOST) return tni_onnx_refuse(c, "size is out of range");
    double *v = tni_alloc(&c->r->cx->heap, (size_t)(size + 1) * sizeof *v);
    if (!v) return tni_fail_memory(c->r->cx, c->r->m->op) != NULL;
    double around = (double)(tni_onnx_attr_int(c, "periodic", 1) ? size : size - 1);
    for (int64_t i = 0; i < size; i++) {
        double t = around > 0 ? 2 * M_PI * (double)i / around : 0;
        v[i]     = a0 - a1 * cos(t) + a2 * cos(2 * t);
    }
    return give_numbers(c, TN_SHAPE(size), v);
}

// The three windows differ in their weights alone. Those of Hamming's are as fractions in the
// standard.
bool tni_onnx_hann_window(tni_onnx_call *c)
{
    return cosine_window(c, 0.5, 0.5, 0);
}
// HammingWindow(size; periodic, output_datatype).
bool tni_onnx_hamming_window(tni_onnx_call *c)
{
    return cosine_window(c, 25.0 / 46, 21.0 / 46, 0);
}
// BlackmanWindow(size; periodic, output_datatype).
bool tni_onnx_blackman_window(tni_onnx_call *c)
{
    return cosine_window(c, 0.42, 0.5, 0.08);
}

// MelWeightMatrix(bands, length, rate, lowest, highest): (length / 2 + 1, bands). Bands are
// triangles whose middles are at equal distances on the mel scale, each from the middle of the one
// before to that of the one behind it.
bool tni_onnx_mel_weight_matrix(tni_onnx_call *c)
{
    double p[5];
    for (int i = 0, n; i < 5; i++)
        if (!tni_onnx_reals(c, i, 1, &p[i], &n) || n != 1) return false;
    if (!(p[0] >= 1 && p[0] <= MOST && p[1] >= 0 && p[1] <= MOST && p[2] >= 1))
        return tni_onnx_refuse(c, "its numbers are out of range");
    int64_t bands = (int64_t)p[0], rows = (int64_t)p[1] / 2 + 1;
    if (rows * bands > MOST) return tni_onnx_refuse(c, "its result has too many elements");
    double *v = tni_zalloc(&c->r->cx->heap, (size_t)(rows * bands) * sizeof *v);
    if (!v) return tni_fail_memory(c->r->cx, c->r->m->op) != NULL;
    double low = 2595 * log10(1 + p[3] / 700), high = 2595 * log10(1 + p[4] / 700);
    for (int64_t k = 0; k < bands; k++) {
        int64_t at[3];
        for (int i = 0; i < 3; i++) {
            double mel = low + (double)(k + i) * (high - low) / (double)(bands + 2);
            double bin = floor((p[1] + 1) * (700 * (pow(10, mel / 2595) - 1)) / p[2]);
            at[i]      = bin >= 0 && bin < 1e15 ? (int64_t)bin : 0;
        }
        for (int64_t j = at[0] < 0 ? 0 : at[0]; j < rows && j < at[2]; j++)
            v[j * bands + k] = j < at[1] ? (double)(j - at[0]) / (double)(at[1] - at[0])
                                         : (double)(at[2] - j) / (double)(at[2] - at[1]);
        if (at[1] >= 0 && at[1] < rows && at[2] <= at[1]) v[at[1] * bands + k] = 1;
    }
    return give_numbers(c, TN_SHAPE(rows, bands), v);
}
