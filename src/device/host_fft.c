// A plain Fourier transform in double, as simple as its definition allows, since it is what others
// are judged by: a line of n = p m elements, p the least prime factor, is p transforms of m
// elements and sums of p terms. Lines of every axis in turn.
#include "device/host_fft.h"

#include <math.h>
#include <string.h>

// Sizes are those of the real or complex signal: of c2r that is the result, of the others the
// input.
tni_fft tni_fft_of(const tni_call *c)
{
    const tni_arg *x = &c->in[0], *y = &c->out;
    tni_fft        f = {
               .how = c->attr->fft, .batch = 1, .dtype = x->dtype, .in = x->data, .out = y->data
    };
    bool           real = f.how.kind == TNI_FFT_C2R;  // the axis of pairs is missing in the result
    int            a = f.how.axes, rank = real ? y->rank : x->rank - (f.how.kind == TNI_FFT_C2C);
    const int64_t *size = real ? y->size : x->size;
    for (int i = 0; i < rank - a; i++) f.batch *= size[i];
    for (int i = 0; i < a; i++) f.n[i] = size[rank - a + i];
    f.half = f.n[a - 1] / 2 + 1;
    return f;
}

// cos and sin of large angles lose digits to the reduction by a rounded pi. Here the angle is
// reduced in integers, to at most an eighth of a turn from the nearest axis, and the axis exchanges
// the two.
void tni_fft_root(int64_t n, int64_t k, double w[2])
{
    const double tau = 6.283185307179586476925286766559;
    // 8 k / n is the eighth that the angle is in; within it, the nearer axis.
    int64_t eighth = 8 * k / n, quarter = (eighth + 1) / 2;
    double  angle = tau * (double)(4 * k - quarter * n) / (4.0 * (double)n), c = cos(angle),
           s = sin(angle);
    switch (quarter & 3) {
    case 0: w[0] = c, w[1] = -s; break;
    case 1: w[0] = -s, w[1] = -c; break;
    case 2: w[0] = -c, w[1] = s; break;
    default: w[0] = s, w[1] = c; break;
    }
}

// y = transform of x[0], x[step], ...; work holds n pairs. With j = p-th parts and k = j + q m:
//   y[j + q m] = sum over k of root(n)^(k (j + q m)) * (transform of every p-th element from k on)[j]
static void transform(int64_t n, int64_t step, const double *x, double *y, double *work)
{
    int64_t p = 2;
    if (n == 1) {
        y[0] = x[0], y[1] = x[1];
        return;
    }
    while (n % p && p * p <= n) p++;
    if (n % p) p = n;
    int64_t m = n / p;
    for (int64_t k = 0; k < p; k++) transform(m, step * p, x + 2 * k * step, y + 2 * k * m, work);
    for (int64_t j = 0; j < m; j++) {
        for (int64_t k = 0; k < p; k++) memcpy(work + 2 * k, y + 2 * (k * m + j), 2 * sizeof *y);
        for (int64_t q = 0; q < p; q++) {
            double re = 0, im = 0, w[2];
            for (int64_t k = 0; k < p; k++) {
                tni_fft_root(n, k * (j + q * m) % n, w);
                re += work[2 * k] * w[0] - work[2 * k + 1] * w[1];
                im += work[2 * k] * w[1] + work[2 * k + 1] * w[0];
            }
            y[2 * (q * m + j)] = re, y[2 * (q * m + j) + 1] = im;
        }
    }
}

// Work for a call of one thread; the axes take turns in it, and the longest one decides.
//
// Two lines and the work of one, and of C2R of several axes a copy of the spectra.
int64_t tni_fft_work(const tni_fft *f)
{
    int64_t most = 0, all = f->how.kind == TNI_FFT_C2R ? 2 * f->batch * f->half : 0;
    for (int i = 0; i < f->how.axes; i++) {
        if (f->n[i] > most) most = f->n[i];
        if (i + 1 < f->how.axes) all *= f->n[i];
    }
    return 6 * most + (f->how.axes > 1 ? all : 0);
}

// Transforms lines of n pairs, `inner` pairs apart, in place.
static void transform_axis(int64_t outer, int64_t n, int64_t inner, bool inverse, double *x,
                           double *work)
{
    double *line = work, *to = work + 2 * n;
    for (int64_t o = 0; o < outer * inner; o++) {
        double *at = x + 2 * (o / inner * n * inner + o % inner);
        // An inverse transform is a forward one with the parts exchanged.
        for (int64_t k = 0; k < n; k++)
            line[2 * k + inverse]               = at[2 * k * inner],
                         line[2 * k + !inverse] = at[2 * k * inner + 1];
        transform(n, 1, line, to, work + 4 * n);
        for (int64_t k = 0; k < n; k++)
            at[2 * k * inner] = to[2 * k + inverse], at[2 * k * inner + 1] = to[2 * k + !inverse];
    }
}

// The axes before the last, of pairs whose last axis has `last`. Whichever axis comes first, the
// result is the same but for rounding: here the inner ones do, so that `inner` grows.
static void transform_others(const tni_fft *f, int64_t last, bool inverse, double *x, double *work)
{
    int64_t inner = last, count = f->batch * last;
    for (int i = 0; i + 1 < f->how.axes; i++) count *= f->n[i];
    for (int i = f->how.axes - 2; i >= 0; i--) {
        transform_axis(count / (inner * f->n[i]), f->n[i], inner, inverse, x, work);
        inner *= f->n[i];
    }
}

// The three kinds share lines and axes; each brings its own way of filling a line and of taking the
// result. The scale comes last, over all of the result, and is skipped where it is 1.
// Real lines get, or had, imaginary parts of 0; the second half of a spectrum is the first one's
// mirror image.
void tni_fft_run(const tni_fft *f, double *work)
{
    int           kind = f->how.kind;
    int64_t       n = f->n[f->how.axes - 1], half = f->half, lines = f->batch;
    const double *in  = (const double *)f->in;
    double       *out = (double *)f->out, *line = work, *to = work + 2 * n, *copy = work;
    for (int i = 0; i + 1 < f->how.axes; i++) lines *= f->n[i];
    if (kind == TNI_FFT_C2C) {
        memcpy(out, in, (size_t)(2 * lines * n) * sizeof *out);
        transform_axis(lines, n, 1, f->how.inverse, out, work);
        transform_others(f, n, f->how.inverse, out, work);
    } else if (kind == TNI_FFT_R2C) {
        for (int64_t l = 0; l < lines; l++) {
            for (int64_t k = 0; k < n; k++) line[2 * k] = in[l * n + k], line[2 * k + 1] = 0;
            transform(n, 1, line, to, work + 4 * n);
            memcpy(out + 2 * l * half, to, (size_t)(2 * half) * sizeof *out);
        }
        transform_others(f, half, false, out, work);
    } else {
        if (f->how.axes > 1) {
            copy = work + tni_fft_work(f) - 2 * lines * half;
            memcpy(copy, in, (size_t)(2 * lines * half) * sizeof *copy);
            transform_others(f, half, true, copy, work);
            in = copy;
        }
        for (int64_t l = 0; l < lines; l++) {
            const double *x = in + 2 * l * half;
            for (int64_t k = 0; k < n; k++) {
                bool    first   = k < half;
                int64_t at      = first ? k : n - k;
                bool    own     = at == 0 || 2 * at == n;  // real in every spectrum of real numbers
                line[2 * k + 1] = x[2 * at];  // exchanged: the transform is an inverse one
                line[2 * k]     = own ? 0 : first ? x[2 * at + 1] : -x[2 * at + 1];
            }
            transform(n, 1, line, to, work + 4 * n);
            for (int64_t k = 0; k < n; k++) out[l * n + k] = to[2 * k + 1];
        }
    }
    int64_t count = kind == TNI_FFT_C2R ? lines * n : 2 * lines * (kind == TNI_FFT_C2C ? n : half);
    for (int64_t i = 0; i < count && f->how.scale != 1; i++) out[i] *= f->how.scale;
}
