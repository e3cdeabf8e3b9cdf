// test_fft.c: Fourier transforms on every device: lengths of every kind beside the definition,
// inverses, halves of real signals, several axes beside one after the other; and what is said about
// arguments that do not fit. PyTorch's numbers are in test_recorded_ops.c.
#include "check.h"
#include "rules_kit.h"

#include <math.h>
#include <stdlib.h>

// Numbers from -1 to 1, n of them.
static tn_tensor *noise(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    int64_t n = dt == TN_C64 || dt == TN_C128 ? 2 : 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    double  *v = malloc((size_t)(n + 1) * sizeof *v);
    uint32_t s = 12345;
    for (int64_t i = 0; i < n; i++) {
        s    = s * 1664525u + 1013904223u;
        v[i] = (double)(s >> 8) / (1 << 23) - 1;
    }
    tn_tensor *x = tn_cast(tn_from(cx, n > 1 && (dt == TN_C64 || dt == TN_C128) ? TN_C128 : TN_F64,
                                   rank, size, v),
                           dt);
    free(v);
    return x;
}

// Whether a and b, complex or real, are equal but for a few roundings of sums of n numbers.
static void check_close(const char *what, int64_t n, tn_tensor *a, tn_tensor *b)
{
    tn_dtype dt   = tn_dtype_of(a);
    double   unit = dt == TN_F64 || dt == TN_C128 ? 2.3e-16 : 1.2e-7;
    double   far  = a && b ? tn_item(tn_max_all(tn_abs(tn_sub(a, b)))) : NAN;
    double   size = a && b ? tn_item(tn_max_all(tn_abs(b))) : 0;
    test_case_result(far <= 4 * unit * log2((double)n + 2) * fmax(1, size),
                     "%s of n %d, %s: off by %g of %g", what, (int)n, tn_dtype_name(dt), far, size);
}

// Element k of the transform of the first line of x (lines, n), in double.
static void define(int64_t n, const double *x, int64_t k, double y[2])
{
    y[0] = y[1] = 0;
    for (int64_t j = 0; j < n; j++) {
        double a = -6.283185307179586 * (double)(j * k % n) / (double)n;
        y[0] += x[2 * j] * cos(a) - x[2 * j + 1] * sin(a);
        y[1] += x[2 * j] * sin(a) + x[2 * j + 1] * cos(a);
    }
}

// The last of `lines` lines of n beside the definition, at up to 64 places; and all of them back.
static void check_length(tn_ctx *cx, tn_dtype dt, int64_t lines, int64_t n)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = noise(cx, dt, TN_SHAPE(lines, n)), *y = tn_fft(x, 0, 1, TN_FFT_BACKWARD);
    double *in = malloc((size_t)n * 16), *out = malloc((size_t)n * 16), want[2], off = 0, most = 0;
    double  unit = dt == TN_C128 ? 2.3e-16 : 1.2e-7;
    CHECK_STATUS(tn_read(tn_select(x, 0, lines - 1), TN_C128, in, n), TN_OK);
    CHECK_STATUS(tn_read(tn_select(y, 0, lines - 1), TN_C128, out, n), TN_OK);
    for (int64_t k = 0; k < n; k += n / 64 + 1) {
        define(n, in, k, want);
        off  = fmax(off, hypot(out[2 * k] - want[0], out[2 * k + 1] - want[1]));
        most = fmax(most, hypot(want[0], want[1]));
    }
    test_case_result(off <= 4 * unit * log2((double)n + 2) * fmax(1, most),
                     "fft of %d lines of %d, %s: off by %g of %g", (int)lines, (int)n,
                     tn_dtype_name(dt), off, most);
    check_close("ifft", n, tn_ifft(y, 0, 1, TN_FFT_BACKWARD), x);
    tn_tensor *r = tn_real(x), *h = tn_rfft(r, 0, 1, TN_FFT_ORTHO);
    check_close("rfft", n, h, tn_slice(tn_fft(r, 0, 1, TN_FFT_ORTHO), 1, 0, n / 2 + 1, 1));
    check_close("irfft", n, tn_irfft(h, n, 1, TN_FFT_ORTHO), r);
    free(in), free(out);
    tn_end(s);
}

// Powers of two, small factors, a prime with a butterfly of its own, primes and products of primes
// without one; lines that fill vectors and groups and lines that do not.
static void lengths_of_every_kind_are_transformed(void)
{
    static const int64_t lengths[] = { 1,   2,   3,   4,   5,    6,    7,    8,   9,
                                       16,  30,  31,  32,  37,   64,   97,   128, 143,
                                       210, 256, 512, 997, 1000, 1024, 1369, 2048 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            check_length(cx, TN_C64, i % 2 ? 1 : 11, lengths[i]);
            check_length(cx, TN_C128, i % 3 ? 5 : 2, lengths[i]);
        }
}

static void long_lines_are_cut(void)
{
    tn_ctx *cx = rules_open("cpu");
    for (int i = 0; i < 2; i++) {
        check_length(cx, i ? TN_C128 : TN_C64, 2, 16384);
        check_length(cx, i ? TN_C128 : TN_C64, 9, 12000);
        check_length(cx, i ? TN_C128 : TN_C64, 1, 9973);
    }
    tn_close(cx);
}

static void several_axes_are_one_after_the_other(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int power = 0; power < 2; power++) {
            int64_t    a = power ? 8 : 6, b = power ? 4 : 5, c = power ? 16 : 9;
            tn_tensor *x = noise(cx, TN_C64, TN_SHAPE(2, a, b, c)), *y = x, *r = tn_imag(x);
            for (int i = 1; i < 4; i++) y = tn_fft(y, 0, i, TN_FFT_BACKWARD);
            check_close("fftn", a * b * c, tn_fftn(x, 3, NULL, NULL, TN_FFT_BACKWARD), y);
            check_close("fftn of all", a * b * c, tn_fftn(x, 0, NULL, NULL, TN_FFT_BACKWARD),
                        tn_fft(y, 0, 0, TN_FFT_BACKWARD));
            check_close("ifftn", a * b * c,
                        tn_ifftn(y, 3, NULL, (int[]){ 3, 1, 2 }, TN_FFT_BACKWARD), x);
            check_close("fft2", b * c, tn_fft2(x, (int64_t[]){ b + 2, c - 2 }, TN_FFT_FORWARD),
                        tn_fft(tn_fft(x, b + 2, 2, TN_FFT_FORWARD), c - 2, 3, TN_FFT_FORWARD));
            tn_tensor *h = tn_rfft2(r, NULL, TN_FFT_BACKWARD);
            check_close("rfft2", b * c, h,
                        tn_slice(tn_fft2(r, NULL, TN_FFT_BACKWARD), 3, 0, c / 2 + 1, 1));
            check_close("irfft2", b * c, tn_irfft2(h, (int64_t[]){ b, c }, TN_FFT_BACKWARD), r);
            h = tn_rfftn(r, 0, NULL, NULL, TN_FFT_ORTHO);
            check_close("irfftn", a * b * c,
                        tn_irfftn(h, 0, (int64_t[]){ 2, a, b, c }, NULL, TN_FFT_ORTHO), r);
        }
}

// Noise comes back from short-time transforms, whatever overlaps.
static void short_time_transforms_come_back(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = noise(cx, TN_F64, TN_SHAPE(2, 50)),
                  *w   = tn_hann_window(cx, TN_F64, 12, false);
        tn_stft_opts o = { .hop = 3, .win = 12, .window = w, .length = 50 };
        tn_tensor   *y = tn_stft(x, 16, o);
        CHECK_INT(tn_size(y, 1), 9);
        CHECK_INT(tn_size(y, 2), 17);
        check_close("istft", 50, tn_istft(y, 16, o), x);
        o.two_sided = o.normalized = o.pad_zeros = true;
        check_close("istft, two-sided", 50, tn_istft(tn_stft(x, 16, o), 16, o), x);
    }
}

static void wrong_transforms_are_named(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x    = noise(cx, TN_C64, TN_SHAPE(2, 3)),
                  *none = tn_zeros(cx, TN_F32, TN_SHAPE(3, 0));
        CHECK(!tn_fft(x, 0, 2, TN_FFT_BACKWARD));
        CHECK_FAILED(cx, TN_EARG, "fft: axis 2 is out of range");
        CHECK(!tn_fft(x, -4, 1, TN_FFT_BACKWARD));
        CHECK_FAILED(cx, TN_EARG, "fft: -4 points along axis 1 of x (2, 3)");
        CHECK(!tn_rfft(none, 0, 1, TN_FFT_BACKWARD));
        CHECK_FAILED(cx, TN_EARG, "rfft: 0 points along axis 1 of x (3, 0)");
        CHECK(!tn_rfft(x, 0, 1, TN_FFT_BACKWARD));
        CHECK_FAILED(cx, TN_EDTYPE, "rfft: x is c64; this op takes real numbers");
        CHECK(!tn_fftn(x, 2, NULL, (int[]){ 1, -1 }, TN_FFT_BACKWARD));
        CHECK_FAILED(cx, TN_EARG, "fftn: axis 1 is given twice");
        CHECK(!tn_fft2(tn_select(x, 0, 0), NULL, TN_FFT_BACKWARD));
        CHECK_FAILED(cx, TN_EARG, "fft2: 2 axes of x (3,)");
        CHECK(!tn_fft(x, 0, 0, (tn_fft_norm)7));
        CHECK_FAILED(cx, TN_EARG, "fft: 7 is not a norm");
        CHECK(!tn_stft(tn_real(x), 16, (tn_stft_opts){ .no_center = true }));
        CHECK_FAILED(cx, TN_EARG, "stft: 16 points, but x (2, 3) has fewer");
        CHECK(!tn_istft(x, 16, (tn_stft_opts){ 0 }));
        CHECK_FAILED(cx, TN_ESHAPE, "istft: x (2, 3) of c64 is not (..., 9, frames)");
        CHECK(tn_count(tn_fft(tn_zeros(cx, TN_F32, TN_SHAPE(0, 4)), 0, 1, TN_FFT_BACKWARD)) == 0);
    }
}

const test_case tests_fft[] = {
    TEST(lengths_of_every_kind_are_transformed),
    TEST(long_lines_are_cut),
    TEST(several_axes_are_one_after_the_other),
    TEST(short_time_transforms_come_back),
    TEST(wrong_transforms_are_named),
    TEST_END,
};
