// Fourier transforms over host memory: what a call of the row `fft` is of, roots of unity, and a
// plain transform of our own, by which the ref device judges the others.
#ifndef TNI_DEVICE_HOST_FFT_H
#define TNI_DEVICE_HOST_FFT_H

#include "device/device.h"

// A call: `batch` transforms of `axes` axes with n[] elements each, outermost first; of real
// transforms the last one's are real numbers, and spectra have half = n / 2 + 1 of them.
typedef struct {
    struct tni_attr_fft how;
    int64_t             batch, n[3], half;
    tn_dtype            dtype;
    const char         *in;
    char               *out;
} tni_fft;

tni_fft tni_fft_of(const tni_call *c);
// e^(-2 pi i k / n) for 0 <= k < n, correctly to the last bit or so: by angles up to an eighth of a
// turn.
void tni_fft_root(int64_t n, int64_t k, double w[2]);
// Runs a call whose elements are doubles; work holds tni_fft_work doubles.
int64_t tni_fft_work(const tni_fft *f);
void    tni_fft_run(const tni_fft *f, double *work);

#endif
