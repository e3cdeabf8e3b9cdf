// Fourier transforms for the instructions that every machine of this architecture has, whose
// vectors have 16 bytes.
#define ISA    base
#define VECTOR 16
#include "device/cpu/fft_isa.inc"
