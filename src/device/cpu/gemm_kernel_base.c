// The kernels for what every machine of this architecture has: NEON on ARM, with 32 registers of 16
// bytes, of which a tile uses 8 * 3 for its sums, 3 for b and 2 for a, whose lanes multiply-adds
// take directly; SSE2 on x86-64, with 16 registers of 16 bytes, of which a tile uses 6 * 2 + 2 + 1.
#define ISA          base
#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define MR        8
#define NV        3
#define FR        6
#define BY_LANE   1
#define F32_ROWS  8
#define FAR_ROWS  36
#define FAR_LINES 0
#else
#define MR        6
#define NV        2
#define FR        6
#define BY_LANE   0
#define F32_ROWS  0
#define FAR_ROWS  0
#define FAR_LINES 0
#endif
#include "device/cpu/gemm_kernel.inc"
