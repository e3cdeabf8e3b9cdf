// Products of bytes by VPDPBUSD of AVX512-VNNI, which adds the products of four bytes of a,
// unsigned, and b, signed, to an i32, without saturating on the way. 12 rows of 32 columns take 24
// of 32 registers for their sums.
#include "device/cpu/gemm_bytes.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#include <string.h>

enum { MR = 12, NR = 32, KR = 4 };

// Four bytes of each row are repeated over a register, beside 16 columns of four bytes each.
static void tile(int64_t steps, int rows, const void *a, const void *b, const int32_t *start,
                 int32_t *c, int64_t ldc)
{
    const int8_t *x = a, *w = b;
    __m512i       sum[MR][2];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < 2; j++) sum[i][j] = _mm512_loadu_si512(start + 16 * j);
    for (int64_t s = 0; s < steps; s++, x += MR * KR, w += NR * KR) {
        __m512i col[2] = { _mm512_loadu_si512(w), _mm512_loadu_si512(w + 64) };
        for (int i = 0; i < MR; i++) {
            int four;
            memcpy(&four, x + i * KR, KR);
            __m512i row = _mm512_set1_epi32(four);
            for (int j = 0; j < 2; j++) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], row, col[j]);
        }
    }
    UNROLL for (int i = 0; i < MR; i++) for (int j = 0; j < 2 && i < rows; j++)
        _mm512_storeu_si512(c + i * ldc + 16 * j, sum[i][j]);
}

const tni_bytes_kernel tni_bytes_vnni = { "AVX512-VNNI", MR, NR, KR, true, tile };

#endif
