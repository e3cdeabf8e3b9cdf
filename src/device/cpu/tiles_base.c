// The tile functions for what every machine of this architecture has, and the choice among sets.
#define ISA base
#include "device/cpu/tiles.inc"

#if defined(__x86_64__)
const tni_tiles *tni_tiles_get(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return &tni_tiles_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &tni_tiles_avx2;
    return &tni_tiles_base;
}
#else
const tni_tiles *tni_tiles_get(void)
{
    return &tni_tiles_base;
}
#endif
