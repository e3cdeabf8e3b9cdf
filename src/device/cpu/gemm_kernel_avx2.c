// The kernels for AVX2 and FMA: 16 registers of 32 bytes.
#define ISA          avx2
#define VECTOR_BYTES 32
#define MR           6
#define NV           2
#define FR           6
#define BY_LANE      0
#include "device/cpu/gemm_kernel.inc"
