// Fourier transforms for AVX2 and FMA; vectors of 64 bytes would not fit two butterflies into the
// first cache.
#define ISA    avx2
#define VECTOR 32
#include "device/cpu/fft_isa.inc"
