// Products of bytes by SDOT, which adds the products of four bytes to an i32: 8 rows of 8 columns
// take 16 of 32 registers for their sums, two for a step of b and two for one of a, whose lanes the
// instruction takes directly.
#include "device/cpu/gemm_bytes.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>

enum { MR = 8, NR = 8, KR = 4 };

// Four bytes of each row are a lane of two registers, beside 4 columns of four bytes each.
static void tile(int64_t steps, int rows, const void *a, const void *b, const int32_t *start,
                 int32_t *c, int64_t ldc)
{
    const int8_t *x = a, *w = b;
    int32x4_t     sum[MR][2];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < 2; j++) sum[i][j] = vld1q_s32(start + 4 * j);
    for (int64_t s = 0; s < steps; s++, x += MR * KR, w += NR * KR) {
        int8x16_t low = vld1q_s8(x), high = vld1q_s8(x + 16);
        for (int j = 0; j < 2; j++) {
            int8x16_t col = vld1q_s8(w + 16 * j);
            sum[0][j]     = vdotq_laneq_s32(sum[0][j], col, low, 0);
            sum[1][j]     = vdotq_laneq_s32(sum[1][j], col, low, 1);
            sum[2][j]     = vdotq_laneq_s32(sum[2][j], col, low, 2);
            sum[3][j]     = vdotq_laneq_s32(sum[3][j], col, low, 3);
            sum[4][j]     = vdotq_laneq_s32(sum[4][j], col, high, 0);
            sum[5][j]     = vdotq_laneq_s32(sum[5][j], col, high, 1);
            sum[6][j]     = vdotq_laneq_s32(sum[6][j], col, high, 2);
            sum[7][j]     = vdotq_laneq_s32(sum[7][j], col, high, 3);
        }
    }
    UNROLL for (int i = 0; i < MR; i++) for (int j = 0; j < 2 && i < rows; j++)
        vst1q_s32(c + i * ldc + 4 * j, sum[i][j]);
}

const tni_bytes_kernel tni_bytes_dot = { "SDOT", MR, NR, KR, false, tile };

#endif
