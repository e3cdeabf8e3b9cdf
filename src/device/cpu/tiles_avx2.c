// The tile functions for AVX2 and FMA.
#define ISA avx2
#include "device/cpu/tiles.inc"
