// Elementwise ops on single numbers: the expressions of ops.def compiled for the host, once each
// for double, int64 and uint64. The ref device computes by them, and numbers in users' expressions
// are folded by them. The functions that they name are the C library's, not those of the math
// prelude (kernel/math.def), so that the ref device can check the prelude.
#include "ops/op_table.h"

#include <math.h>

static const long double PI = 3.14159265358979323846264338328L;

// ---- functions of the expressions, for all types -----------------------------------------------

// 0 for NaN and for both zeros.
static double sign_f(double a)
{
    return (a > 0) - (a < 0);
}

// NaN wins, from either side, as in NumPy's maximum.
static double max_f(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

// See max_f.
static double min_f(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}

// Whether a quotient that was truncated, leaving r, was rounded up: floor division rounds down.
static bool cut_upwards(double r, double b)
{
    return r != 0 && (r < 0) != (b < 0);
}

// Python's and PyTorch's remainder, with the sign of b; C's fmod has that of a.
static double rem_f(double a, double b)
{
    double r = fmod(a, b);
    return cut_upwards(r, b) ? r + b : r;
}

// As in Python: from the exact remainder, so that a / b rounding up to an integer does no harm.
static double fdiv_f(double a, double b)
{
    if (b == 0) return a / b;
    double r = fmod(a, b);
    double q = (a - r) / b - cut_upwards(r, b);
    double n = floor(q);
    if (q == 0) return copysign(0, a / b);
    return q - n > 0.5 ? n + 1 : n;
}

// Two roundings, where the prelude has an instruction: the ref device's bound allows for it.
static double rsqrt(double a)
{
    return 1 / sqrt(a);
}

// By a sigmoid: tanh(u) = 2 sigmoid(2u) - 1, so one exponential does.
static double gelu_tanh(double a)
{
    return a / (1 + exp(-1.59576912160573071176 * (a + 0.044715 * a * a * a)));  // sqrt(8 / pi)
}

// The slope of gelu_tanh. Below 0 it is computed as a difference from its zero, so that no digits
// are lost there. Past 64 the exponential is 0 in any dtype; the last term makes NaN of NaN and
// infinity.
static double gelu_slope(double x)
{
    const double c = 1.59576912160573071176, k = 0.044715, zero = -0.7524614220710163;
    double       a = fmin(fmax(x, -64), 64), e = exp(-fabs(c * (a + k * a * a * a)));
    double       y = 1 / (1 + e), d = (a - zero) - 3.635560509207687e-17;
    double       p    = a * a + a * zero + zero * zero;
    double       rise = 0.29195521191476713 * expm1(c * d * (1 + k * p));  // of e^t
    if (a < 0) y *= e * y * (rise + c * d * (1 + 3 * k * p));
    else y += c * a * (1 + 3 * k * a * a) * e * y * y;
    return y + 0 * x;
}

// With 80 bits, and far enough up that the asymptotic series has all of them.
static double digamma(double x)
{
    static const long double c[] = { 1.0L / 12, -1.0L / 120, 1.0L / 252, -1.0L / 240, 1.0L / 132 };
    if (x == 0) return copysign(INFINITY, -x);
    if (x < 0 && (isinf(x) || trunc(x) == x)) return NAN;
    if (x == INFINITY) return x;
    if (x < 0) return (double)(digamma(1 - x) - PI / tanl(PI * remainderl(x, 1)));
    long double y = x, s = 0, z;
    for (; y < 40; y++) s -= 1 / y;
    s += logl(y) - 0.5L / y;
    z = 1 / (y * y);
    for (int i = 0; i < 5; i++, z /= y * y) s -= c[i] * z;
    return (double)s;
}

// The sum of 1 / (x + k)^n for all k from 0 on, n 2 or 3, by the formula of Euler and Maclaurin.
static long double sum_of_powers(long double x, int n)
{
    long double s = 0;
    for (; x < 150; x++) s += 1 / (n == 2 ? x * x : x * x * x);
    long double z = 1 / (x * x), t = n == 2 ? z : z / x, m = n;
    s += t * x / (m - 1) + t / 2 + m * t / x / 12;
    return s + m * (m + 1) * (m + 2) * t / x * z / 720 * ((m + 3) * (m + 4) * z / 42 - 1);
}

static double trigamma(double x)
{
    if (isinf(x)) return x > 0 ? 0 : NAN;
    if (x >= 0) return (double)sum_of_powers(x, 2);
    long double c = PI / sinl(PI * remainderl(x, 1));
    return (double)(c * c - sum_of_powers(1 - (long double)x, 2));
}

static double tetragamma(double x)
{
    if (isinf(x)) return x > 0 ? 0 : NAN;
    if (x >= 0) return (double)(-2 * sum_of_powers(x, 3));
    long double a = PI * remainderl(x, 1) + 0, c = PI / sinl(a);
    return (double)(-2 * sum_of_powers(1 - (long double)x, 3) - 2 * c * c * c * cosl(a));
}

// By Newton's steps from a place where the curve turns towards the root.
static double erfinv(double x)
{
    long double a = fabs(x), y = a < 0.5L ? 0 : sqrtl(-logl(1 - a)), d = 1;
    if (isnan(x) || a > 1) return NAN;
    if (a == 1) return copysign(INFINITY, x);
    for (int i = 0; i < 100 && fabsl(d) > 1e-18L * y; i++) {
        d = (a < 0.5L ? a - erfl(y) : erfcl(y) - (1 - a)) * sqrtl(PI) / 2 * expl(y * y);
        y += d;
    }
    return copysign((double)y, x);
}

static double logaddexp(double a, double b)
{
    double hi = max_f(a, b);
    return a == b ? hi + log(2) : hi + log1p(exp(-fabs(a - b)));
}

// From the exact remainder, as fdiv_f.
static double tdiv_f(double a, double b)
{
    double q = a / b;
    if (!isfinite(q) || isinf(b)) return trunc(q);
    return copysign(nearbyint((a - fmod(a, b)) / b), q);
}

static bool signbit_f(double a)
{
    return signbit(a);
}

// Rounding an integer changes nothing.
static int64_t same_i(int64_t a)
{
    return a;
}

// Through unsigned, where overflow wraps: -INT64_MIN is itself, as on devices.
static int64_t neg_i(int64_t a)
{
    return (int64_t)(0 - (uint64_t)a);
}

static int64_t abs_i(int64_t a)
{
    return a < 0 ? neg_i(a) : a;
}

static int64_t sign_i(int64_t a)
{
    return (a > 0) - (a < 0);
}

static int64_t max_i(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_i(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// The hardware traps on INT64_MIN / -1, so -1 is a case of its own. Of 0 the remainder is 0, not a
// trap.
static int64_t rem_i(int64_t a, int64_t b)
{
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// Rounds down, unlike C, which truncates; a division by 0 is 0.
static int64_t fdiv_i(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    if (b == -1) return neg_i(a);
    int64_t r = a % b;
    return a / b - (r != 0 && (r < 0) != (b < 0));
}

// As fdiv_i and rem_i, but towards 0.
static int64_t tdiv_i(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? neg_i(a) : a / b;
}

static int64_t fmod_i(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

static bool signbit_i(int64_t a)
{
    return a < 0;
}

// By squaring, wrapping as products do. A negative power of an integer is 0 but for 1 and -1.
static int64_t pow_i(int64_t a, int64_t b)
{
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t x = (uint64_t)a, y = 1;
    for (; b > 0; b /= 2, x *= x)
        if (b % 2) y *= x;
    return (int64_t)y;
}

// bits is the width that devices shift in: 64 for i64, 32 for everything smaller. Shifts past it
// give what an endless shift would, where C leaves it undefined.
static int64_t shl_i(int64_t a, int64_t n, int bits)
{
    return n < 0 || n >= bits ? 0 : (int64_t)((uint64_t)a << n);
}

// Keeps the sign; a shift past the width leaves only it.
static int64_t shr_i(int64_t a, int64_t n, int bits)
{
    return a >> (n < 0 || n >= bits ? 63 : n);
}

static uint64_t same_u(uint64_t a)
{
    return a;
}

static uint64_t sign_u(uint64_t a)
{
    return a > 0;
}

static uint64_t max_u(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min_u(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t rem_u(uint64_t a, uint64_t b)
{
    return b ? a % b : 0;
}

static uint64_t fdiv_u(uint64_t a, uint64_t b)
{
    return b ? a / b : 0;
}

static bool signbit_u(uint64_t a)
{
    (void)a;
    return false;
}

// Every power is defined: the exponent cannot be negative.
static uint64_t pow_u(uint64_t a, uint64_t b)
{
    uint64_t y = 1;
    for (; b > 0; b /= 2, a *= a)
        if (b % 2) y *= a;
    return y;
}

static uint64_t shl_u(uint64_t a, uint64_t n, int bits)
{
    return n >= (uint64_t)bits ? 0 : a << n;
}

static uint64_t shr_u(uint64_t a, uint64_t n, int bits)
{
    return n >= (uint64_t)bits ? 0 : a >> n;
}

// Picks the function by the type of the first operand, so that one expression serves all three
// types.
#define CHOOSE(a, f, i, u) _Generic((a), double : (f), int64_t : (i), uint64_t : (u))

#define MATH(f, a)       f(a)
#define MATH2(f, a, b)   f(a, b)
#define m_abs(a)         CHOOSE(a, fabs, abs_i, same_u)(a)
#define m_sign(a)        CHOOSE(a, sign_f, sign_i, sign_u)(a)
#define m_floor(a)       CHOOSE(a, floor, same_i, same_u)(a)
#define m_ceil(a)        CHOOSE(a, ceil, same_i, same_u)(a)
#define m_rint(a)        CHOOSE(a, nearbyint, same_i, same_u)(a)
#define m_trunc(a)       CHOOSE(a, trunc, same_i, same_u)(a)
#define m_where(a, b, c) ((a) ? (b) : (c))
#define m_max(a, b)      CHOOSE(a, max_f, max_i, max_u)(a, b)
#define m_min(a, b)      CHOOSE(a, min_f, min_i, min_u)(a, b)
#define m_relu(a)        m_max(a, 0)
#define m_rem(a, b)      CHOOSE(a, rem_f, rem_i, rem_u)(a, b)
#define m_fdiv(a, b)     CHOOSE(a, fdiv_f, fdiv_i, fdiv_u)(a, b)
#define m_tdiv(a, b)     CHOOSE(a, tdiv_f, tdiv_i, fdiv_u)(a, b)
#define m_fmod(a, b)     CHOOSE(a, fmod, fmod_i, rem_u)(a, b)
#define m_signbit(a)     CHOOSE(a, signbit_f, signbit_i, signbit_u)(a)
#define m_pow(a, b)      CHOOSE(a, pow, pow_i, pow_u)(a, b)
#define m_shl(a, n)      CHOOSE(a, shl_i, shl_i, shl_u)(a, n, bits)
#define m_shr(a, n)      CHOOSE(a, shr_i, shr_i, shr_u)(a, n, bits)

// ---- the rows ----------------------------------------------------------------------------------

// The table is included three times below; these macros choose the rows and the types.
// Which classes are maps by expression.
#define ROW_UNARY(...)   __VA_ARGS__
#define ROW_INNER(...)   __VA_ARGS__
#define ROW_BINARY(...)  __VA_ARGS__
#define ROW_TERNARY(...) __VA_ARGS__
#define ROW_CAST(...)
#define ROW_REDUCE(...)
#define ROW_SCAN(...)
#define ROW_SOURCE(...)
#define ROW_MOVE(...)
#define ROW_EFFECT(...)
#define ROW_LIBRARY(...)

// Which rules take floats. (The float ones compile for integers too, and are never asked for.)
#define FLOATS_ANY(...)     __VA_ARGS__
#define FLOATS_SAME(...)    __VA_ARGS__
#define FLOATS_PROMOTE(...) __VA_ARGS__
#define FLOATS_ARITH(...)   __VA_ARGS__
#define FLOATS_NUMBER(...)  __VA_ARGS__
#define FLOATS_REAL(...)    __VA_ARGS__
#define FLOATS_FLOAT(...)   __VA_ARGS__
#define FLOATS_FULL(...)    __VA_ARGS__
#define FLOATS_TO_BOOL(...) __VA_ARGS__
#define FLOATS_TO_I64(...)  __VA_ARGS__
#define FLOATS_ACCUM(...)   __VA_ARGS__
#define FLOATS_SELECT(...)  __VA_ARGS__
#define FLOATS_INDEX(...)   __VA_ARGS__
#define FLOATS_WIDE(...)    __VA_ARGS__
#define FLOATS_INTEGER(...)
#define FLOATS_BITS(...)

double tni_map_f(int op, double a, double b, double c)
{
    switch (op) {
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) \
    ROW_##class(FLOATS_##dtypes(case TNI_##name : return (expr);))
#include "ops/ops.def"
#undef OP
    default: return NAN;
    }
}

int64_t tni_map_i(int op, int64_t a, int64_t b, int64_t c, int bits)
{
    switch (op) {
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) \
    ROW_##class(case TNI_##name : return (int64_t)(expr);)
#include "ops/ops.def"
#undef OP
    default: return 0;
    }
}

uint64_t tni_map_u(int op, uint64_t a, uint64_t b, uint64_t c, int bits)
{
    switch (op) {
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) \
    ROW_##class(case TNI_##name : return (uint64_t)(expr);)
#include "ops/ops.def"
#undef OP
    default: return 0;
    }
}
