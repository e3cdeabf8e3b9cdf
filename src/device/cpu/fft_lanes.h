// Fourier transforms of the cpu device: tables of a length, and lines of it by fft_lanes.inc, which
// is compiled for each instruction set.
#ifndef TNI_DEVICE_CPU_FFT_LANES_H
#define TNI_DEVICE_CPU_FFT_LANES_H

#include "device/host_fft.h"

// A prime factor above this is not worth a butterfly: n log n with a few times the work (Bluestein)
// is less.
enum { TNI_FFT_RADIX = 31, TNI_FFT_PASSES = 64 };
// Vectors of columns that are read and written at once: two lines of the cache.
enum { TNI_FFT_COLUMNS = 4 };

// The passes of one length and their twiddles, in the transform's type: for each pass m (r - 1) of
// them and, for radices above 5, the roots of unity of r.
typedef struct {
    int64_t n;
    int     passes;
    uint8_t radix[TNI_FFT_PASSES];
    void   *twiddle;
} tni_fft_table;

// How lines of n elements are transformed.
//   by passes   `first` is of n
//   in a split  n = n1 n2, too long for the caches or alone: lines of n1 in columns, twiddles, lines of n2 (first, second). The twiddle of
//               exponent e is coarse[e >> shift] fine[e & (1 << shift) - 1], doubles
//   by a chirp  n has a large prime factor (Bluestein): a product with chirp (n), a convolution by transforms of m elements (first),
//               whose spectrum is filter (m), and the chirp again
typedef struct {
    int64_t       n;
    tni_fft_table first, second;
    bool          split;
    int           shift;
    double       *coarse, *fine;
    void         *chirp, *filter;
} tni_fft_lines;

// Lines that run at once: complex ones, real ones to spectra (two in a lane), spectra to real ones.
// Element k of line l is at in[k in_step + l in_pitch], in numbers of the type. exchanged: the
// transform is an inverse one.
typedef struct {
    const tni_fft_lines *f;
    int                  kind, count;
    bool                 inverse;
    double               scale;
    const void          *in;
    void                *out;
    int64_t              in_step, in_pitch, out_step, out_pitch;
    char                *scratch;
} tni_fft_group;

// One instruction set's functions, [0] for f32 and [1] for f64. lanes: lines of a group, or
// TNI_FFT_COLUMNS times as many that are columns side by side; element: bytes of a vector of
// complex numbers.
typedef struct {
    int lanes[2], element;
    void (*run[2])(const tni_fft_group *g);
    void (*chirp[2])(tni_fft_lines *f, char *scratch);  // fills filter, from chirp
} tni_fft_isa;

extern const tni_fft_isa tni_fft_isa_base, tni_fft_isa_avx2;
const tni_fft_isa       *tni_fft_isa_get(void);

// Bytes of scratch for a group of any kind.
static inline int64_t tni_fft_group_scratch(const tni_fft_lines *f, int64_t bytes)
{
    int64_t most = f->first.n > f->second.n ? f->first.n : f->second.n;
    return (TNI_FFT_COLUMNS + 1) * (most + 2) * tni_fft_isa_get()->element +
           (f->split ? tni_align64(6 * f->n * bytes) : 0);
}

#endif
