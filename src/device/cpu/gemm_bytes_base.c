// Products of bytes in plain C, for processors without instructions for them.
#include "device/cpu/gemm_bytes.h"

#include <string.h>

enum { MR = 4, NR = 8, KR = 2 };

// Two products at a time: the sum of two is an i32, and compilers have an instruction for it.
static void tile(int64_t steps, int rows, const void *a, const void *b, const int32_t *start,
                 int32_t *c, int64_t ldc)
{
    const int8_t *x = a, *w = b;
    uint32_t      sum[MR][NR];
    for (int i = 0; i < MR; i++) memcpy(sum[i], start, sizeof sum[i]);
    for (int64_t s = 0; s < steps; s++, x += MR * KR, w += NR * KR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++)
                sum[i][j] += (uint32_t)(x[i * KR] * w[j * KR] + x[i * KR + 1] * w[j * KR + 1]);
    for (int i = 0; i < rows; i++) memcpy(c + i * ldc, sum[i], sizeof sum[i]);
}

const tni_bytes_kernel tni_bytes_base = { "plain", MR, NR, KR, false, tile };
