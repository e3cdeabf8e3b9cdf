// A 64-bit hash of bytes, for tables in memory. It is never stored, so that it may change. Not for
// adversaries: a lookup by it compares the bytes too.
#ifndef TNI_BASE_HASH_H
#define TNI_BASE_HASH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t tni_hash_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static inline uint64_t tni_hash(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t             h = 0x243f6a8885a308d3u ^ n;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = tni_hash_mix(h, v);
    }
    uint64_t tail = 0;
    memcpy(&tail, p, n);
    return tni_hash_mix(tni_hash_mix(h, tail), h >> 32);
}

#endif
