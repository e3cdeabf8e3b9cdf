// Random numbers for data: short streams by key, equal on every machine. Loader threads use them,
// so there is no state besides the caller's. SplitMix64, not the Philox of tensors: the order of an
// epoch mixes eight times for every item, and streams are too short to need more than a good mixer.
#ifndef TNI_DATA_DRAW_H
#define TNI_DATA_DRAW_H

#include <stdint.h>

typedef struct {
    uint64_t at;
} tni_draw;

// A bijection of 64 bits in which every input bit changes every output bit half of the time.
static inline uint64_t tni_draw_mix(uint64_t v)
{
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

// What a stream is for, so that equal numbers give unequal streams.
enum {
    TNI_DRAW_ORDER = 1,
    TNI_DRAW_SPLIT,
    TNI_DRAW_AUGMENT,
    TNI_DRAW_DIGIT,
    TNI_DRAW_LABEL,
    TNI_DRAW_JITTER,
    TNI_DRAW_MIX
};

static inline tni_draw tni_draw_by(int purpose, uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t k = tni_draw_mix(seed + 0x9e3779b97f4a7c15u * (uint64_t)purpose);
    return (tni_draw){ tni_draw_mix(tni_draw_mix(k ^ a) + b) };
}

static inline uint64_t tni_draw_bits(tni_draw *d)
{
    return tni_draw_mix(d->at += 0x9e3779b97f4a7c15u);
}

// In 0 .. n-1, n below 2^31; the bias is below n / 2^32.
static inline int tni_draw_below(tni_draw *d, int n)
{
    return (int)(((tni_draw_bits(d) >> 32) * (uint64_t)n) >> 32);
}

// In [lo, hi), 24 bits.
static inline float tni_draw_between(tni_draw *d, float lo, float hi)
{
    return lo + (hi - lo) * (float)(tni_draw_bits(d) >> 40) * 0x1p-24f;
}

#endif
