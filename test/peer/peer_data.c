// peer_data.c: random numbers, dtypes, and the elements of inputs.
#include "peer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t peer_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z          = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t peer_below(uint64_t *state, int64_t n)
{
    return (int64_t)(peer_next(state) >> 33) % n;
}

bool peer_chance(uint64_t *state, int of_100)
{
    return peer_below(state, 100) < of_100;
}

bool peer_is_float(tn_dtype dt)
{
    return dt >= TN_F16;
}

int peer_digits(tn_dtype dt)
{
    static const int digits[] = {
        [TN_BOOL] = 1, [TN_U8] = 8,   [TN_I8] = 7,   [TN_I32] = 31, [TN_I64] = 53,
        [TN_F16] = 11, [TN_BF16] = 8, [TN_F32] = 24, [TN_F64] = 53
    };
    return digits[dt];
}

// The power of 2 below which f16 has no normal numbers, as frexp tells it. Random data is that
// small now and then; the other types go far below it.
enum { F16_LEAST = -13 };

// To the nearest number of a float type, halves to even.
double peer_round(double x, tn_dtype dt)
{
    int e;
    if (!peer_is_float(dt) || x == 0 || !isfinite(x)) return x;
    frexp(x, &e);
    if (dt == TN_F16 && e < F16_LEAST) e = F16_LEAST;
    return ldexp(nearbyint(ldexp(x, peer_digits(dt) - e)), e - peer_digits(dt));
}

int64_t peer_count(int rank, const int64_t *size)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    return n;
}

// ---- elements

static double uniform(uint64_t *r, double lo, double hi)
{
    return lo + (hi - lo) * ((double)(peer_next(r) >> 11) / 9007199254740992.0);
}

static double grid(uint64_t *r, tn_dtype dt)
{
    if (dt == TN_BOOL) return (double)peer_below(r, 2);
    if (dt == TN_U8) return (double)peer_below(r, 8);
    if (!peer_is_float(dt)) return (double)peer_below(r, 11) - 5;
    return (double)(peer_below(r, 17) - 8) / 4;
}

static double odd(uint64_t *r, tn_dtype dt)
{
    static const double values[] = { NAN, INFINITY, -INFINITY, -0.0 };
    return peer_is_float(dt) && peer_chance(r, 20) ? values[peer_below(r, 4)] : grid(r, dt);
}

static double element(const peer_step *s, uint64_t *r)
{
    if (s->dtype == TN_BOOL) return s->law == LAW_POSITIVE ? 1 : grid(r, TN_BOOL);
    switch (s->law) {
    case LAW_SMOOTH: return peer_is_float(s->dtype) ? uniform(r, -2, 2) : grid(r, s->dtype);
    case LAW_POSITIVE:
        return peer_is_float(s->dtype) ? uniform(r, 0.5, 2) : 1 + (double)peer_below(r, 4);
    case LAW_SHARE: return uniform(r, 0.05, 0.95);
    case LAW_INDEX: return (double)peer_below(r, s->bound);
    case LAW_ODD: return odd(r, s->dtype);
    default: return grid(r, s->dtype);
    }
}

// A random order of 0 .. n-1, along the axis s->axis of its places, or (distinct) of all elements.
static void shuffle(double *x, int64_t n, int64_t stride, uint64_t *r)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k     = peer_below(r, i + 1);
        double  t     = x[i * stride];
        x[i * stride] = x[k * stride];
        x[k * stride] = t;
    }
}

static void distinct(const peer_step *s, double *x, int64_t n, uint64_t *r)
{
    double unit  = peer_is_float(s->dtype) ? 0.25 : 1,
           first = s->dtype == TN_U8 ? 0 : (double)(n / 2);
    for (int64_t i = 0; i < n; i++) x[i] = ((double)i - first) * unit;
    shuffle(x, n, 1, r);
}

// Indices along an axis of which none comes twice: the first of a random order of all there are.
static void places(const peer_step *s, double *x, uint64_t *r)
{
    int64_t inner = 1, outer = 1, n = s->list[s->axis];
    double  order[PEER_MOST];
    for (int i = 0; i < s->axis; i++) outer *= s->list[i];
    for (int i = s->axis + 1; i < s->n; i++) inner *= s->list[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            for (int64_t k = 0; k < s->bound; k++) order[k] = (double)k;
            shuffle(order, s->bound, 1, r);
            for (int64_t k = 0; k < n; k++) x[(o * n + k) * inner + i] = order[k % s->bound];
        }
}

void peer_elements(const peer_step *s, double *x)
{
    uint64_t r = s->seed;
    int64_t  n = peer_count(s->n, s->list);
    if (s->law == LAW_DISTINCT) distinct(s, x, n, &r);
    else if (s->law == LAW_PLACES) places(s, x, &r);
    else
        for (int64_t i = 0; i < n; i++) x[i] = peer_round(element(s, &r), s->dtype);
}

// ---- tensors

static uint16_t half_bits(double x)
{
    int      e;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7e00;
    if (isinf(x)) return sign | 0x7c00;
    if (x == 0) return sign;
    double m = frexp(fabs(x), &e);  // in [0.5, 1), of 11 bits
    if (e < F16_LEAST) return (uint16_t)(sign | (int)ldexp(m, e - F16_LEAST + 11));
    return (uint16_t)(sign | (e + 14) << 10 | ((int)ldexp(m, 11) & 0x3ff));
}

static uint16_t brain_bits(double x)
{
    float    f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return isnan(x) ? 0x7fc0 : (uint16_t)(bits >> 16);
}

static void store(double v, tn_dtype dt, void *to, int64_t i)
{
    switch (dt) {
    case TN_BOOL:
    case TN_U8: ((uint8_t *)to)[i] = (uint8_t)v; break;
    case TN_I8: ((int8_t *)to)[i] = (int8_t)v; break;
    case TN_I32: ((int32_t *)to)[i] = (int32_t)v; break;
    case TN_I64: ((int64_t *)to)[i] = (int64_t)v; break;
    case TN_F16: ((uint16_t *)to)[i] = half_bits(v); break;
    case TN_BF16: ((uint16_t *)to)[i] = brain_bits(v); break;
    case TN_F32: ((float *)to)[i] = (float)v; break;
    default: ((double *)to)[i] = v; break;
    }
}

tn_tensor *peer_tensor(const peer_step *s, tn_ctx *cx)
{
    double  x[PEER_MOST], memory[PEER_MOST];
    int64_t n = peer_count(s->n, s->list);
    if (n > PEER_MOST) return NULL;
    peer_elements(s, x);
    for (int64_t i = 0; i < n; i++) store(x[i], s->dtype, memory, i);
    tn_tensor *t = tn_from(cx, s->dtype, s->n, s->list, memory);
    return s->leaf ? tn_requires_grad(t, true) : t;
}
