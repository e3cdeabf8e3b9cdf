// CRC-32, the sum that detects damaged bytes, by the polynomial that a format asks for: that of PNG
// and gzip, and Castagnoli's (CRC-32C) of event files.
#ifndef TNI_BASE_CRC_H
#define TNI_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

// The polynomials, lowest bit first.
static const uint32_t TNI_CRC_PNG = 0xedb88320u, TNI_CRC_CASTAGNOLI = 0x82f63b78u;

// Bit by bit: what is summed is small beside what made it.
static inline uint32_t tni_crc(uint32_t polynomial, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t             c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (polynomial & (0u - (c & 1)));
    }
    return ~c;
}

#endif
