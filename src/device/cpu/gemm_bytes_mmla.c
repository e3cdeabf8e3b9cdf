// Products of bytes by SMMLA, which adds the product of 2 rows and 2 columns, 8 deep, to a 2 x 2
// matrix of i32: 64 operations, twice those of SDOT. A tile of 8 x 8 has 16 such sums, and reads 4
// registers of each operand for 16 instructions.
#include "device/cpu/gemm_bytes.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)
#include <arm_neon.h>

enum { MR = 8, NR = 8, KR = 8, PAIRS = MR / 2, COLS = NR / 2 };

// Two sums of the same rows, as the low or the high halves of both: four columns of one row.
static inline int32x4_t low_halves(int32x4_t x, int32x4_t y)
{
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
}
static inline int32x4_t high_halves(int32x4_t x, int32x4_t y)
{
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
}

// Rows 2 p and 2 p + 1 of a tile are the low and high halves of their sums. Every loop over sums is
// unrolled with a number of pairs that is known: sums that gcc had to index would go through
// memory.
static inline __attribute__((always_inline)) void multiply(int pairs, int64_t steps, int rows,
                                                           const int8_t *a, const int8_t *b,
                                                           const int32_t *start, int32_t *c,
                                                           int64_t ldc)
{
    int32x4_t sum[PAIRS][COLS];
    UNROLL for (int j = 0; j < COLS; j++)
    {
        int32x2_t two                                    = vld1_s32(start + 2 * j);
        UNROLL for (int p = 0; p < pairs; p++) sum[p][j] = vcombine_s32(two, two);
    }
    for (int64_t s = 0; s < steps; s++, a += MR * KR, b += NR * KR) {
        int8x16_t x[PAIRS], w[COLS];
        UNROLL for (int p = 0; p < pairs; p++) x[p] = vld1q_s8(a + 16 * p);
        UNROLL for (int j = 0; j < COLS; j++) w[j]  = vld1q_s8(b + 16 * j);
        UNROLL for (int p = 0; p < pairs; p++) UNROLL for (int j = 0; j < COLS; j++)
            sum[p][j] = vmmlaq_s32(sum[p][j], x[p], w[j]);
    }
    UNROLL for (int p = 0; p < pairs; p++)
    {
        int32_t *to = c + 2 * p * ldc;
        UNROLL for (int j = 0; j < COLS; j += 2)
            vst1q_s32(to + 2 * j, low_halves(sum[p][j], sum[p][j + 1]));
        if (2 * p + 1 == rows) return;
        UNROLL for (int j = 0; j < COLS; j += 2)
            vst1q_s32(to + ldc + 2 * j, high_halves(sum[p][j], sum[p][j + 1]));
    }
}

// Of few rows, as in a product with a vector, only as many pairs are computed.
static void tile(int64_t steps, int rows, const void *a, const void *b, const int32_t *start,
                 int32_t *c, int64_t ldc)
{
    if (rows == MR) multiply(4, steps, MR, a, b, start, c, ldc);
    else if (rows > 6) multiply(4, steps, rows, a, b, start, c, ldc);
    else if (rows > 4) multiply(3, steps, rows, a, b, start, c, ldc);
    else if (rows > 2) multiply(2, steps, rows, a, b, start, c, ldc);
    else multiply(1, steps, rows, a, b, start, c, ldc);
}

const tni_bytes_kernel tni_bytes_mmla = { "SMMLA", MR, NR, KR, false, tile };

#endif
