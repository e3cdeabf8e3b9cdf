// Products of bytes by AVX2. Its instruction for bytes, VPMADDUBSW, adds pairs of products in 16
// bits and saturates: 255 * 127 twice does not fit. So bytes are widened to 16 bits as they are
// loaded, and VPMADDWD adds pairs in 32. 6 rows of 16 columns take 12 of 16 registers for their
// sums.
#include "device/cpu/gemm_bytes.h"

#if defined(__AVX2__)
#include <immintrin.h>
#include <string.h>

enum { MR = 6, NR = 16, KR = 2 };

static inline __m256i load_wide(const int8_t *x)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x));
}

// A pair of bytes of each row is repeated over a register, beside 8 columns of two bytes each.
static void tile(int64_t steps, int rows, const void *a, const void *b, const int32_t *start,
                 int32_t *c, int64_t ldc)
{
    const int8_t *x = a, *w = b;
    __m256i       sum[MR][2];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = _mm256_loadu_si256((const __m256i *)(start + 8 * j));
    for (int64_t s = 0; s < steps; s++, x += MR * KR, w += NR * KR) {
        __m256i col[2] = { load_wide(w), load_wide(w + 16) };
        for (int i = 0; i < MR; i++) {
            short pair = 0;
            memcpy(&pair, x + i * KR, KR);
            __m256i row = _mm256_cvtepi8_epi16(_mm_set1_epi16(pair));
            for (int j = 0; j < 2; j++)
                sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(row, col[j]));
        }
    }
    UNROLL for (int i = 0; i < MR; i++) for (int j = 0; j < 2 && i < rows; j++)
        _mm256_storeu_si256((__m256i *)(c + i * ldc + 8 * j), sum[i][j]);
}

const tni_bytes_kernel tni_bytes_avx2 = { "AVX2", MR, NR, KR, false, tile };

#endif
