// test_math.c: the math prelude against the host's libm in double, against known answers, and
// against itself compiled from its text.
#include "check.h"
#include "kernel/prelude.h"
#include "kernel/prelude_text.h"
#include "ops/op_table.h"

#include <dlfcn.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A float function, what it should be, and the bound math.def states for it.
typedef struct {
    const char *name;
    float (*f)(float);
    double (*exact)(double);
    double bound;  // ULP
    bool   above;  // for numbers above 0
} unary;

static double exact_rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

static double exact_gelu_tanh(double x)
{
    return x / (1 + exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)));
}

static double exact_gelu_slope(double x)
{
    return tni_map_f(TNI_gelu_slope, x, 0, 0);
}

// clang-format off
static const unary unaries[] = {
    { "exp",   m_exp_f,   exp,         1.04, false },
    { "exp2",  m_exp2_f,  exp2,        0.87, false },
    { "expm1", m_expm1_f, expm1,       1.44, false },
    { "log",   m_log_f,   log,         0.85, false },
    { "log2",  m_log2_f,  log2,        1.10, false },
    { "log1p", m_log1p_f, log1p,       1.43, false },
    { "sin",   m_sin_f,   sin,         1.21, false },
    { "cos",   m_cos_f,   cos,         1.21, false },
    { "tan",   m_tan_f,   tan,         1.18, false },
    { "atan",  m_atan_f,  atan,        1.21, false },
    { "tanh",  m_tanh_f,  tanh,        1.34, false },
    { "erf",   m_erf_f,   erf,         1.11, false },
    { "rsqrt", m_rsqrt_f, exact_rsqrt, 1.50, false },
    { "gelu_tanh", m_gelu_tanh_f, exact_gelu_tanh, 3.80, false },
    { "gelu_slope", m_gelu_slope_f, exact_gelu_slope, 3.77, false },
    { "asin",  m_asin_f,  asin,        1.55, false },
    { "acos",  m_acos_f,  acos,        1.00, false },
    { "sinh",  m_sinh_f,  sinh,        2.30, false },
    { "cosh",  m_cosh_f,  cosh,        2.30, false },
    { "asinh", m_asinh_f, asinh,       1.79, false },
    { "acosh", m_acosh_f, acosh,       1.84, false },
    { "atanh", m_atanh_f, atanh,       1.80, false },
    { "log10", m_log10_f, log10,       0.90, false },
    { "erfinv", m_erfinv_f, m_erfinv_d, 2.13, false },
    { "lgamma", m_lgamma_f, lgamma,    2.60, true },
    { "digamma", m_digamma_f, m_digamma_d, 3.20, true },
    { "trigamma", m_trigamma_f, m_trigamma_d, 2.86, true },
    { "tetragamma", m_tetragamma_f, m_tetragamma_d, 3.30, true },
};
// clang-format on
enum { UNARIES = sizeof unaries / sizeof *unaries };

static const double POW_BOUND = 0.92;

static bool same(float a, float b)
{
    return a != a ? b != b : m_bits_f(a) == m_bits_f(b);
}

// The distance of y from the exact r in units of the last place of r; huge where one is NaN or
// infinite and the other is not.
static double ulps(float y, double r)
{
    if (r != r || y != y) return r != r && y != y ? 0 : 1e30;
    if (isinf(y) || isinf((float)r)) {
        bool edge = fabs(r) > 0x1.fffffcp127 && fabs(r) < 0x1.000002p128;
        return y == (float)r ? 0 : edge ? 1 : 1e30;
    }
    int e;
    frexp(r, &e);
    return fabs((double)y - r) / ldexp(1, e < -125 ? -149 : e - 24);
}

static double worst_in(const unary *u, uint32_t first, uint32_t last, uint32_t step)
{
    double worst = 0;
    for (uint64_t i = first; i <= last; i += step) {
        float x = m_float_bits((m_uint)i);
        if (u->above && x < 0) continue;
        double e = ulps(u->f(x), u->exact((double)x));
        if (e > worst) worst = e;
    }
    return worst;
}

// Where functions change their formula or lose bits: each is swept densely on both signs.
static double worst_at_hard_spots(const unary *u)
{
    static const float spots[] = { 0.5f,        0.75f,       1.75f,        4.0f,        5.0f,
                                   8.0f,        1e4f,        1e-45f,       0x1p-126f,   0x1p-24f,
                                   0.34657359f, 0.6f,        0.752461433f, 1.00246143f, 9.67f,
                                   16.0f,       0.70710678f, 0.9f,         1.0f,        1.570796f,
                                   3.1415927f,  20.0f,       88.72284f,    103.97f,     126.0f,
                                   128.0f,      149.5f,      950977.0f,    3.4e38f };
    double             worst   = 0;
    for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
        uint32_t b = m_bits_f(spots[i]), lo = b > 4000 ? b - 4000 : 0;
        double   plus  = worst_in(u, lo, b + 4000, 1);
        double   minus = worst_in(u, lo | 0x80000000u, (b + 4000) | 0x80000000u, 1);
        worst          = fmax(worst, fmax(plus, minus));
    }
    return worst;
}

// Over all floats in equal steps, which share no factor with the number of mantissas.
static void unary_functions_keep_their_bounds(void)
{
    uint32_t step = test_long() ? 131 : 521;
    for (int i = 0; i < UNARIES; i++) {
        const unary *u     = &unaries[i];
        double       worst = fmax(worst_in(u, 0, 0xffffffffu, step), worst_at_hard_spots(u));
        test_case_result(worst <= u->bound, "%s: %.4f ULP, bound %.4f", u->name, worst, u->bound);
    }
}

// Floats of every exponent from where the quarter turns are taken off with all bits of 2/pi, 4,001
// of each and both signs; then the float that is nearest to a multiple of pi/2 of all, and values
// from a computation with 600 bits.
static void circular_functions_are_right_for_every_exponent(void)
{
    static const struct {
        float  x;
        double sine, cosine;
    } known[] = { { 0x1.f37c8ap+95f, 1.0, -1.6147697982476212e-9 },
                  { 1e8f, 0.93163902710972601, -0.36338508935569055 },
                  { FLT_MAX, -0.52187652333365854, 0.85302103983030416 } };
    for (int i = 0; i < UNARIES; i++) {
        const unary *u = &unaries[i];
        if (u->f != m_sin_f && u->f != m_cos_f && u->f != m_tan_f) continue;
        double worst = 0;
        for (uint32_t e = 127; e < 255; e++)
            for (uint32_t minus = 0; minus < 2; minus++) {
                uint32_t first = minus << 31 | e << 23;
                worst          = fmax(worst, worst_in(u, first, first + 0x7fffff, 2097));
            }
        test_case_result(worst <= u->bound, "%s: %.4f ULP, bound %.4f", u->name, worst, u->bound);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        CHECK(ulps(m_sin_f(known[i].x), known[i].sine) <= 1.21);
        CHECK(ulps(m_cos_f(-known[i].x), known[i].cosine) <= 1.21);
    }
}

// Where each element of a strip comes from: small ones, and `far` in place `at`.
static void fill_strip(float *x, int n, int at, float far)
{
    for (int i = 0; i < n; i++) x[i] = (float)(i * 37 % 101 - 50) * 0.37f;
    x[at] = far;
}

// How many results of the functions of a strip have other bits than those of its elements.
static int other_bits(const float *x, int n)
{
    enum { MOST = 1100 };
    static float sine[MOST], cosine[MOST], tangent[MOST], both[2][MOST];
    int          bad = 0;
    m_strip_sin_f(sine, x, n);
    m_strip_cos_f(cosine, x, n);
    m_strip_tan_f(tangent, x, n);
    m_strip_sin_cos_f(both[0], both[1], x, n);
    for (int i = 0; i < n; i++)
        bad += !same(sine[i], m_sin_f(x[i])) + !same(cosine[i], m_cos_f(x[i])) +
               !same(tangent[i], m_tan_f(x[i])) + !same(both[0][i], sine[i]) +
               !same(both[1][i], cosine[i]);
    return bad;
}

static void one_large_angle_changes_no_bit_of_its_strip(void)
{
    static const float far[] = {
        0x1.fffffep19f, 0x1p20f, -0x1.000002p20f, 1e20f, -FLT_MAX, INFINITY, NAN, 0.0f
    };
    static const int long_ones[] = { 1023, 1024, 1025 };
    static float     x[1100];
    int              bad = 0;
    for (size_t k = 0; k < sizeof far / sizeof *far; k++) {
        for (int n = 1; n < 70; n++)
            for (int at = 0; at < n; at++) {
                fill_strip(x, n, at, far[k]);
                bad += other_bits(x, n);
            }
        for (int n = 0; n < 3; n++)
            for (int at = 0; at < long_ones[n]; at += at % 256 < 20 || at > 1000 ? 1 : 47) {
                fill_strip(x, long_ones[n], at, far[k]);
                bad += other_bits(x, long_ones[n]);
            }
    }
    CHECK_INT(bad, 0);
}

static void special_values_are_exact(void)
{
    static const float inputs[] = { 0.0f, -0.0f,  1.0f,    -1.0f, INFINITY, -INFINITY,
                                    NAN,  1e-45f, -1e-45f, 3e38f, -3e38f };
    for (int i = 0; i < UNARIES; i++)
        for (size_t j = 0; j < sizeof inputs / sizeof *inputs; j++) {
            const unary *u = &unaries[i];
            float        x = inputs[j], y = u->f(x);
            double       r       = u->exact((double)x);
            bool         extreme = x == 0 || !isfinite(x) || !isfinite(r);
            test_case_result(extreme ? same(y, (float)r) : ulps(y, r) <= u->bound,
                             "%s(%g) is %g, want %g", u->name, x, y, r);
        }
}

static void pow_has_the_special_cases_of_c99(void)
{
    static const float v[] = { 0.0f,      -0.0f,       1.0f,        -1.0f,       0.5f,  -0.5f,
                               2.0f,      -2.0f,       3.0f,        -3.0f,       1.5f,  INFINITY,
                               -INFINITY, NAN,         1e-45f,      -1e-45f,     1e38f, -1e9f,
                               1e30f,     16777216.0f, 16777215.0f, -16777215.0f };
    enum { N = sizeof v / sizeof *v };
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double r  = pow(v[i], v[j]);
            float  y  = m_pow_f(v[i], v[j]);
            bool   ok = isfinite(r) && r != 0 && isfinite((float)r) ? ulps(y, r) <= POW_BOUND
                                                                    : same(y, (float)r);
            test_case_result(ok, "pow(%g, %g) is %g, want %g", v[i], v[j], y, r);
        }
}

static void pow_keeps_its_bound(void)
{
    double worst = 0;
    for (uint64_t i = 0; i < 3000000; i++) {
        m_quad q = m_philox(7, i, 0);
        float  x = m_float_bits(q.x & 0x7fffffffu);
        if (i % 2) x = 1.0f + (m_uniform_f(q.x) - 0.5f) * ldexpf(1, -(int)(q.z % 20));
        float  y = (float)((m_uniform_f(q.y) * 280.0f - 150.0f) / log2((double)x));
        double e = ulps(m_pow_f(x, y), pow((double)x, (double)y));
        if (e > worst) worst = e;
    }
    test_that(worst <= POW_BOUND, "pow: %.4f ULP, bound %.4f", worst, POW_BOUND);
}

// ---- division, extremes, integers --------------------------------------------------------------

static void remainder_takes_the_sign_of_the_divisor(void)
{
    CHECK(m_rem(7.0f, 3.0f) == 1.0f && m_rem(-7.0f, 3.0f) == 2.0f && m_rem(7.0f, -3.0f) == -2.0f);
    CHECK(m_rem(-7.5, 2.0) == 0.5 && isnan(m_rem(1.0f, 0.0f)) && m_rem(1e20f, 3.0f) == 2.0f);
    CHECK(m_fdiv(-7.0f, 2.0f) == -4.0f && m_fdiv(7.0f, -2.0f) == -4.0f && isinf(m_fdiv(1.0, 0.0)));
    CHECK(m_fdiv(1.0f, 0.1f) == 9.0f && same(m_fdiv(-0.0f, 2.0f), -0.0f));
    for (int32_t a = -9; a <= 9; a++)
        for (int32_t b = -4; b <= 4; b++) {
            int32_t q = b ? (int32_t)floor((double)a / b) : 0, r = b ? a - q * b : 0;
            CHECK(m_fdiv(a, b) == q && m_rem(a, b) == r);
            CHECK(m_fdiv((int64_t)a, (int64_t)b) == q && m_rem((int64_t)a, (int64_t)b) == r);
        }
}

static void integer_edges_wrap(void)
{
    CHECK(m_fdiv(INT32_MIN, -1) == INT32_MIN && m_rem(INT32_MIN, -1) == 0);
    CHECK(m_fdiv(INT64_MIN, (int64_t)-1) == INT64_MIN && m_rem(INT64_MIN, (int64_t)-1) == 0);
    CHECK(m_abs(INT32_MIN) == INT32_MIN && m_abs((int64_t)-5) == 5 && m_sign(-7) == -1);
    CHECK(m_pow(3, 4) == 81 && m_pow(2, 32) == 0 && m_pow(0, 0) == 1 && m_pow(-2, 31) == INT32_MIN);
    CHECK(m_pow(2, -1) == 0 && m_pow(-1, -3) == -1 && m_pow(1, -8) == 1);
    CHECK(m_pow((int64_t)3, (int64_t)39) == 4052555153018976267);
    CHECK(m_shl(1, 31) == INT32_MIN && m_shl(1, 32) == 0 && m_shl(1, -1) == 0);
    CHECK(m_shr(-8, 1) == -4 && m_shr(-8, 99) == -1 && m_shr(8, -1) == 0);
    CHECK(m_shl((int64_t)1, (int64_t)63) == INT64_MIN && m_shr((int64_t)-1, (int64_t)64) == -1);
}

static void extremes_keep_nan_and_its_sign_is_0(void)
{
    CHECK(isnan(m_max(NAN, 1.0f)) && isnan(m_max(1.0f, NAN)) && m_max(1.0f, 2.0f) == 2.0f);
    CHECK(isnan(m_min((double)NAN, 1.0)) && isnan(m_min(1.0, (double)NAN)) && m_min(1, 2) == 1);
    CHECK(same(m_sign(NAN), 0.0f) && m_sign(NAN + 0.0) == 0 && m_sign(-3.0f) == -1.0f &&
          same(m_sign(-0.0f), 0.0f));
    CHECK(m_max((int64_t)-1, (int64_t)-2) == -1 && m_rint(2.5f) == 2.0f && m_trunc(-1.5) == -1.0);
}

// ---- 16-bit floats -----------------------------------------------------------------------------

// The value of a 16-bit float by its definition; e bits of exponent, m of mantissa.
static double value16(uint32_t h, int e, int m)
{
    int    bias = (1 << (e - 1)) - 1, ex = (int)(h >> m) & ((1 << e) - 1);
    double f = (double)(h & ((1u << m) - 1)), s = h >> 15 ? -1 : 1;
    if (ex == (1 << e) - 1) return f != 0 ? (double)NAN : s * (double)INFINITY;
    return s * (ex ? ldexp(f + (1 << m), ex - bias - m) : ldexp(f, 1 - bias - m));
}

static void every_16_bit_float_survives_the_way_there_and_back(void)
{
    int bad = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        float  f = m_half_to_float((m_ushort)h), b = m_bf16_to_float((m_ushort)h);
        double vf = value16(h, 5, 10), vb = value16(h, 8, 7);
        bad += !same(f, (float)vf) || !same(b, (float)vb);
        if (f == f) bad += m_float_to_half(f) != h || m_double_to_half(vf) != h;
        else
            bad += !isnan(value16(m_float_to_half(f), 5, 10)) +
                   !isnan(value16(m_double_to_half(f), 5, 10));
        if (b == b) bad += m_float_to_bf16(b) != h || m_double_to_bf16(vb) != h;
        else
            bad += !isnan(value16(m_float_to_bf16(b), 8, 7)) +
                   !isnan(value16(m_double_to_bf16(b), 8, 7));
    }
    CHECK_INT(bad, 0);
}

// The halfway point of neighbours h and h + 1, and its neighbours in both types. The step past
// the largest finite number leads to infinity.
static int halfway_errors(uint32_t h, int e, int m, m_ushort (*ff)(float), m_ushort (*fd)(double))
{
    double lo = value16(h, e, m), hi = value16(h + 1, e, m);
    if (isinf(hi)) hi = 2 * lo - value16(h - 1, e, m);
    double   mid  = (lo + hi) / 2;
    uint32_t even = h & 1 ? h + 1 : h, s = 0x8000u;
    float    up = nextafterf((float)mid, INFINITY), down = nextafterf((float)mid, 0);
    int      bad = ff((float)mid) != even || ff(-(float)mid) != (even | s);
    bad += ff(up) != h + 1 || ff(down) != h || ff(-up) != ((h + 1) | s) || ff(-down) != (h | s);
    bad += fd(mid) != even || fd(-mid) != (even | s);
    return bad + (fd(nextafter(mid, INFINITY)) != h + 1) + (fd(nextafter(mid, 0)) != h);
}

static void conversions_round_once_to_nearest_even(void)
{
    int bad = 0;
    for (uint32_t h = 0; h < 0x7c00; h++)
        bad += halfway_errors(h, 5, 10, m_float_to_half, m_double_to_half);
    for (uint32_t h = 0; h < 0x7f80; h++)
        bad += halfway_errors(h, 8, 7, m_float_to_bf16, m_double_to_bf16);
    CHECK_INT(bad, 0);
    CHECK(m_float_to_half(3e38f) == 0x7c00 && m_double_to_bf16(-1e300) == 0xff80);
    CHECK(m_double_to_half(1e-300) == 0 && m_double_to_bf16(-5e-324) == 0x8000);
}

// ---- random numbers ----------------------------------------------------------------------------

static bool quad_is(m_quad q, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return q.x == x && q.y == y && q.z == z && q.w == w;
}

static void philox_gives_the_published_answers(void)
{
    CHECK(quad_is(m_philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
    CHECK(quad_is(m_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
                  0x6d5451fd));
    CHECK(quad_is(m_philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09,
                  0x94fdcceb, 0x5001e420, 0x24126ea1));
}

static void elements_take_their_words_in_order(void)
{
    m_quad q = m_philox(5, 100 + 3, 0);
    CHECK(m_rand_bits(5, 100, 12) == q.x && m_rand_bits(5, 100, 15) == q.w);
    CHECK(m_rand_uniform_f(5, 100, 14) == m_uniform_f(q.z));
    CHECK(m_rand_normal_f(5, 100, 15) == m_normal_f(q.z, q.w, 1));
    CHECK(m_rand_uniform_d(5, 100, 7) == m_uniform_d(q.z, q.w));
    CHECK(m_rand_normal_d(5, 100, 6) ==
          m_normal_d((uint64_t)q.x << 32 | q.y, (uint64_t)q.z << 32 | q.w, 0));
    CHECK(m_uniform_f(UINT32_MAX) < 1.0f && m_uniform_d(UINT32_MAX, UINT32_MAX) < 1.0);
    CHECK(isfinite(m_normal_f(0, 0, 0)) && isfinite(m_normal_d(0, 0, 0)));
}

// Mean, variance, third and fourth moment about zero of n numbers.
static void moments(double (*draw)(uint64_t), int n, double m[4])
{
    memset(m, 0, 4 * sizeof *m);
    for (int i = 0; i < n; i++) {
        double x = draw((uint64_t)i);
        m[0] += x / n, m[1] += x * x / n, m[2] += x * x * x / n, m[3] += x * x * x * x / n;
    }
}

static double draw_uniform_f(uint64_t i)
{
    return (double)m_rand_uniform_f(42, 0, i) - 0.5;
}

static double draw_uniform_d(uint64_t i)
{
    return m_rand_uniform_d(42, 0, i) - 0.5;
}

static double draw_normal_f(uint64_t i)
{
    return m_rand_normal_f(42, 0, i);
}

static double draw_normal_d(uint64_t i)
{
    return m_rand_normal_d(42, 0, i);
}

static void moments_are_those_of_the_distribution(void)
{
    enum { N = 1000000 };  // tolerances are five standard deviations
    double (*uniform[])(uint64_t) = { draw_uniform_f, draw_uniform_d };
    double (*normal[])(uint64_t)  = { draw_normal_f, draw_normal_d };
    double m[4];
    for (int i = 0; i < 2; i++) {
        moments(uniform[i], N, m);
        CHECK_NEAR(m[0], 0, 0.0015);
        CHECK_NEAR(m[1], 1.0 / 12, 0.0004);
        CHECK_NEAR(m[3], 1.0 / 80, 0.0001);
        moments(normal[i], N, m);
        CHECK_NEAR(m[0], 0, 0.005);
        CHECK_NEAR(m[1], 1, 0.0071);
        CHECK_NEAR(m[2], 0, 0.02);
        CHECK_NEAR(m[3], 3, 0.05);
    }
}

static void normals_are_accurate(void)
{
    double wf = 0, wd = 0, tau = 6.283185307179586;
    for (uint64_t i = 0; i < 200000; i++) {
        m_quad  q  = m_philox(3, i, 0);
        m_ulong w0 = (m_ulong)q.x << 32 | q.y, w1 = (m_ulong)q.z << 32 | q.w;
        double  r = sqrt(-2 * log(((q.x >> 8) + 1) * 0x1p-24)), t = q.y * 0x1p-32 * tau;
        wf = fmax(wf, fabs(m_normal_f(q.x, q.y, 1) - r * sin(t)));
        wf = fmax(wf, fabs(m_normal_f(q.x, q.y, 0) - r * cos(t)));
        r = sqrt(-2 * log((double)((w0 >> 11) + 1) * 0x1p-53)), t = (double)w1 * 0x1p-64 * tau;
        wd = fmax(wd, fabs(m_normal_d(w0, w1, 1) - r * sin(t)));
        wd = fmax(wd, fabs(m_normal_d(w0, w1, 0) - r * cos(t)));
    }
    test_that(wf < 1.5e-6, "float normals are off by %g", wf);
    test_that(wd < 1e-14, "double normals are off by %g", wd);  // the angle above is rounded too
}

// ---- the text ----------------------------------------------------------------------------------

static const char probe[] =
    "float probe_f(int f, float x, float y)\n"
    "{\n"
    "    switch (f) {\n"
    "    case 0: return m_exp_f(x);\n"
    "    case 1: return m_log_f(x);\n"
    "    case 2: return m_sin_f(x);\n"
    "    case 3: return m_tanh_f(x);\n"
    "    case 4: return m_erf_f(x);\n"
    "    case 5: return m_pow_f(x, y);\n"
    "    case 6: return m_rem_f(x, y);\n"
    "    case 7: return m_half_to_float(m_float_to_half(x));\n"
    "    case 8: return m_rand_normal_f(1, 2, (m_ulong)m_bits_f(x));\n"
    "    default: return (float)m_rand_normal_d(1, 2, (m_ulong)m_bits_f(x));\n"
    "    }\n"
    "}\n";

static float built_in(int f, float x, float y)
{
    switch (f) {
    case 0: return MATH(exp, x);
    case 1: return MATH(log, x);
    case 2: return MATH(sin, x);
    case 3: return MATH(tanh, x);
    case 4: return MATH(erf, x);
    case 5: return m_pow(x, y);
    case 6: return m_rem(x, y);
    case 7: return m_half_to_float(m_float_to_half(x));
    case 8: return m_rand_normal_f(1, 2, (m_ulong)m_bits_f(x));
    default: return (float)m_rand_normal_d(1, 2, (m_ulong)m_bits_f(x));
    }
}

static bool write_text(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return false;
    for (const char *const *s = tni_prelude_c; *s; s++) fputs(*s, file);
    for (const char *const *s = tni_prelude_text; *s; s++) fputs(*s, file);
    fputs(probe, file);
    return fclose(file) == 0;
}

static void compare_probe(void *library)
{
    void *symbol = dlsym(library, "probe_f");
    float (*probe_f)(int, float, float);
    if (!CHECK(symbol != NULL)) return;
    memcpy(&probe_f, &symbol, sizeof symbol);
    int bad = 0;
    for (int f = 0; f < 10; f++)
        for (uint64_t i = 0; i < 20000; i++) {
            m_quad q = m_philox(11, i, 0);
            float  x = m_float_bits(q.x), y = m_float_bits(q.y);
            if (i % 2) x = m_uniform_f(q.x) * 20.0f, y = m_uniform_f(q.y) * 8.0f - 4.0f;
            bad += !same(probe_f(f, x, y), built_in(f, x, y));
        }
    CHECK_INT(bad, 0);
}

static void the_text_compiles_and_gives_the_same_bits(void)
{
    char dir[] = "/tmp/tenon-math-XXXXXX", source[64], object[64], command[512];
    if (system("cc --version >/dev/null 2>&1") != 0) SKIP("no cc to compile the text with");
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    snprintf(source, sizeof source, "%s/p.c", dir);
    snprintf(object, sizeof object, "%s/p.so", dir);
    snprintf(command, sizeof command,
             "cc -std=c11 -O2 -Wall -Werror -Wno-unused-function -ffp-contract=off -fPIC -shared "
             "-o %s %s -lm",
             object, source);
    if (CHECK(write_text(source)) && CHECK(system(command) == 0)) {
        void *library = dlopen(object, RTLD_NOW);
        if (test_that(library != NULL, "dlopen: %s", library ? "" : dlerror())) {
            compare_probe(library);
            dlclose(library);
        }
    }
    remove(source);
    remove(object);
    rmdir(dir);
}

// Whether a row that leaves doubles out calls none that has them.
static void rows_without_double_stand_alone(void)
{
    static const char *const names[] = { "_d(", "m_double_bits" };
    for (const char *const *s = tni_prelude_text; *s; s++) {
        CHECK(strlen(*s) <= 4095);
        for (int i = 0; i < 2 && !strstr(*s, "double"); i++)
            test_that(!strstr(*s, names[i]), "uses doubles: %.60s", *s);
    }
}

const test_case tests_math[] = {
    TEST(unary_functions_keep_their_bounds),
    TEST(circular_functions_are_right_for_every_exponent),
    TEST(one_large_angle_changes_no_bit_of_its_strip),
    TEST(special_values_are_exact),
    TEST(pow_has_the_special_cases_of_c99),
    TEST(pow_keeps_its_bound),
    TEST(remainder_takes_the_sign_of_the_divisor),
    TEST(integer_edges_wrap),
    TEST(extremes_keep_nan_and_its_sign_is_0),
    TEST(every_16_bit_float_survives_the_way_there_and_back),
    TEST(conversions_round_once_to_nearest_even),
    TEST(philox_gives_the_published_answers),
    TEST(elements_take_their_words_in_order),
    TEST(moments_are_those_of_the_distribution),
    TEST(normals_are_accurate),
    TEST(the_text_compiles_and_gives_the_same_bits),
    TEST(rows_without_double_stand_alone),
    TEST_END,
};
