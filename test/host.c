// host.c: elements in host memory, and how much of it there is.
#include "host.h"

#include "kernel/prelude.h"

#include <stdio.h>
#include <unistd.h>

void host_put(tn_dtype dt, void *mem, int64_t i, double f, int64_t k)
{
    switch (dt) {
    case TN_BOOL: ((uint8_t *)mem)[i] = k & 1; break;
    case TN_U8:
    case TN_I8: ((uint8_t *)mem)[i] = (uint8_t)k; break;
    case TN_I32: ((int32_t *)mem)[i] = (int32_t)k; break;
    case TN_I64: ((int64_t *)mem)[i] = k; break;
    case TN_F16: ((uint16_t *)mem)[i] = m_double_to_half(f); break;
    case TN_BF16: ((uint16_t *)mem)[i] = m_double_to_bf16(f); break;
    case TN_F32: ((float *)mem)[i] = (float)f; break;
    case TN_F64: ((double *)mem)[i] = f; break;
    }
}

double host_get(tn_dtype dt, const void *mem, int64_t i)
{
    switch (dt) {
    case TN_BOOL:
    case TN_U8: return ((const uint8_t *)mem)[i];
    case TN_I8: return ((const int8_t *)mem)[i];
    case TN_I32: return ((const int32_t *)mem)[i];
    case TN_I64: return (double)((const int64_t *)mem)[i];
    case TN_F16: return m_half_to_float(((const uint16_t *)mem)[i]);
    case TN_BF16: return m_bf16_to_float(((const uint16_t *)mem)[i]);
    case TN_F32: return ((const float *)mem)[i];
    case TN_F64: return ((const double *)mem)[i];
    }
    return 0;
}

long host_resident(void)
{
    long  pages = 0;
    FILE *f     = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}
