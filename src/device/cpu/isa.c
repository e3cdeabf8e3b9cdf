// Chooses the instruction set, for all code that is compiled once for each: the most capable one
// that this chip and its system support. Tiles give the same bits in every set; products of floats
// need not, since only some sets fuse multiply and add.
#include "device/cpu/fft_lanes.h"
#include "device/cpu/gemm_kernel.h"
#include "device/cpu/tiles.h"

// What there is for one set.
typedef struct {
    const tni_tiles    *tiles;
    const tni_gemm_isa *gemm;
    const tni_fft_isa  *fft;
} instruction_set;

static const instruction_set base = { &tni_tiles_base, &tni_gemm_isa_base, &tni_fft_isa_base };

#if defined(__x86_64__)
static const instruction_set avx2   = { &tni_tiles_avx2, &tni_gemm_isa_avx2, &tni_fft_isa_avx2 };
static const instruction_set avx512 = { &tni_tiles_avx512, &tni_gemm_isa_avx512,
                                        &tni_fft_isa_avx2 };

static const instruction_set *machine_isa(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return &avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2;
    return &base;
}
#else
static const instruction_set *machine_isa(void)
{
    return &base;
}
#endif

const tni_tiles *tni_tiles_get(void)
{
    return machine_isa()->tiles;
}

const tni_gemm_isa *tni_gemm_isa_get(void)
{
    return machine_isa()->gemm;
}

const tni_fft_isa *tni_fft_isa_get(void)
{
    return machine_isa()->fft;
}
