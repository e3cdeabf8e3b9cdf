// host.c: elements in host memory, and how much of it there is.
#include "host.h"

#include "kernel/prelude.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <unistd.h>

#define PUT_BOOL(held, host, stem)     (host)(k & 1)
#define PUT_UNSIGNED(held, host, stem) (host) k
#define PUT_SIGNED(held, host, stem)   (host) k
#define PUT_FLOAT(held, host, stem)    PUT_##held(host, stem)
#define PUT_SELF(host, stem)           (host) f
#define PUT_ROUND(host, stem)          m_double_to_##stem(f)

void host_put(tn_dtype dt, void *mem, int64_t i, double f, int64_t k)
{
    switch (dt) {
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) \
    case TN_##id:                                                 \
        ((host *)mem)[i] = PUT_##class(held, host, stem);         \
        break;
#include "tensor/dtype.def"
    default: break;
    }
}

#define GET_SELF(stem, v)  (double)(v)
#define GET_TRUTH(stem, v) (double)(v)
#define GET_WRAP(stem, v)  (double)(v)
#define GET_ROUND(stem, v) m_##stem##_to_float(v)

double host_get(tn_dtype dt, const void *mem, int64_t i)
{
    double y = 0;
    switch (dt) {
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) \
    case TN_##id:                                                 \
        y = GET_##held(stem, ((const host *)mem)[i]);             \
        break;
#include "tensor/dtype.def"
    default: break;
    }
    return y;
}

long host_resident(void)
{
    long  pages = 0;
    FILE *f     = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}
