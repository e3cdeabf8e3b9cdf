// The tile functions for AVX-512.
#define ISA avx512
#include "device/cpu/tiles.inc"
