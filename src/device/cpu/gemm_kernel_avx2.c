// The kernels for AVX2 and FMA: 16 registers of 32 bytes, of which a tile uses 6 * 2 for its sums,
// 2 for b and 1 for a. Twelve independent sums keep two multiply-add units busy over a latency of 4
// to 5 cycles. FAR_LINES: more than the second TLB of a Zen 3 holds, of 2,048 pages.
#define ISA          avx2
#define VECTOR_BYTES 32
#define MR           6
#define NV           2
#define FR           6
#define BY_LANE      0
#define F32_ROWS     2
#define FAR_ROWS     18
#define FAR_LINES    2049
#include "device/cpu/gemm_kernel.inc"
