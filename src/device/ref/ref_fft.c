// Fourier transforms: device/host_fft.c over cells, which are doubles, whatever the dtype.
//
// The work space holds a line on the way in, one on the way out, and what a transform of one needs;
// of spectra back to real numbers over several axes also a copy of the spectra, since inputs stay
// as they are. Lines run one after the other: what others are judged by need not be fast, and a
// transform of n elements takes n times the sum of its prime factors.
#include "device/host_fft.h"
#include "ref.h"

size_t tni_ref_fft_scratch(const tni_call *c)
{
    tni_fft f = tni_fft_of(c);
    return (size_t)tni_fft_work(&f) * sizeof(double);
}

tn_status tni_ref_fft(const tni_call *c)
{
    tni_fft f = tni_fft_of(c);
    tni_fft_run(&f, c->scratch);
    return TN_OK;
}
