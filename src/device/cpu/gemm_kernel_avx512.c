// The kernels for AVX-512 (F, VL, DQ, BW): 32 registers of 64 bytes, of which a tile uses 12 * 2
// for its sums, 2 for b and 1 for a.
#define ISA          avx512
#define VECTOR_BYTES 64
#define MR           12
#define NV           2
#define FR           12
#define BY_LANE      0
#define F32_ROWS     2
#define FAR_ROWS     36
#define FAR_LINES    0
#include "device/cpu/gemm_kernel.inc"
