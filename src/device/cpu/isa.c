// Chooses the instruction set, for all code that is compiled once for each: the most capable one
// that this chip and its system support. Tiles give the same bits in every set; products of floats
// need not, since only some sets fuse multiply and add.
#include "device/cpu/fft_lanes.h"
#include "device/cpu/gemm_bytes.h"
#include "device/cpu/gemm_kernel.h"
#include "device/cpu/tiles.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

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

// The kernels for products of bytes need instructions of their own. Writes those that run here, the
// fastest first, and returns how many there are.
enum { BYTES = 2 };
#if defined(__x86_64__)
static int find_bytes(const tni_bytes_kernel *k[BYTES])
{
    int n = 0;
    if (machine_isa() == &avx512 && __builtin_cpu_supports("avx512vnni")) k[n++] = &tni_bytes_vnni;
    if (machine_isa() != &base) k[n++] = &tni_bytes_avx2;
    return n;
}
#elif defined(__aarch64__) && defined(__linux__)
static int find_bytes(const tni_bytes_kernel *k[BYTES])
{
    enum { I8MM = 1 << 13 };  // HWCAP2_I8MM, which older headers lack
    int n = 0;
    if (getauxval(AT_HWCAP2) & I8MM) k[n++] = &tni_bytes_mmla;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) k[n++] = &tni_bytes_dot;
    return n;
}
#else
static int find_bytes(const tni_bytes_kernel *k[BYTES])
{
    (void)k;
    return 0;
}
#endif

const tni_bytes_kernel *tni_bytes_kernel_get(int i)
{
    const tni_bytes_kernel *k[BYTES];
    int                     n = find_bytes(k);
    return i < n ? k[i] : i == n ? &tni_bytes_base : NULL;
}

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
