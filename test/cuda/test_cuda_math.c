// test_cuda_math.c: functions that CUDA has texts of its own for, compiled as C, with stand-ins for
// the chip's approximations that are as far off as those can be. It needs no GPU.
#include "check.h"
#include "kernel/cuda_spell.h"
#include "kernel/prelude.h"
#include "kernel/prelude_text.h"
#include "ops/ops.h"
#include "scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What stands in for ex2.approx, rcp.approx and rsqrt.approx, and what can be called. A way says
// which end of its bound each is at.
static const char stand_ins[] =
    "#define copysignf __builtin_copysignf\n"
    "static double off_ex2, off_rcp;\n"
    "M_FN float m_ex2_f(float x) { return (float)(exp2((double)x) * (1.0 + off_ex2)); }\n"
    "M_FN float m_ex2_all_f(float x) { return m_ex2_f(x); }\n"
    "M_FN float m_rcp_f(float x) { return (float)((1.0 + off_rcp) / (double)x); }\n"
    "M_FN float m_rsq_f(float x) { return (float)((1.0 + 1.08 * off_rcp) / __builtin_sqrt((double)x)); }\n"
    "M_FN float m_min_f(float a, float b) { return a < b || a != a ? a : b; }\n";
static const char probe[] =
    "void probe_way(int way)\n"
    "{\n"
    "    off_ex2 = (way % 3 - 1) * 0x1p-22, off_rcp = (way / 3 - 1) * 0x1p-23;\n"
    "}\n"
    "float probe_tanh(float x) { return m_tanh_f(x); }\n"
    "float probe_erf(float x) { return m_erf_f(x); }\n"
    "float probe_rsqrt(float x) { return m_rsqrt_f(x); }\n"
    "float probe_slope(float x) { return m_slope_bf16_f(x); }\n";

enum { WAYS = 9, EXACTLY = 4 };

// A function, what it should be, the bound that cuda_spell.h states for it and where its formulas
// meet.
typedef struct {
    const char *name, *symbol;
    double (*exact)(double);
    double bound;  // ULP
    float  seam;
} spelled;

static double exact_rsqrt(double x)
{
    return 1 / sqrt(x);
}

static double exact_slope(double x)
{
    return tni_map_f(TNI_gelu_slope, x, 0, 0);
}

// The first BOUNDED are never beyond 1. The last is for bf16 alone, and has a test of its own.
static const spelled functions[] = { { "tanh", "probe_tanh", tanh, 3.21, 0.8f },
                                     { "erf", "probe_erf", erf, 2.19, 0.95f },
                                     { "rsqrt", "probe_rsqrt", exact_rsqrt, 1.01, 1.0f },
                                     { "slope", "probe_slope", exact_slope, 0.02, 0.0f } };

enum { FUNCTIONS = sizeof functions / sizeof *functions, SLOPE = FUNCTIONS - 1, BOUNDED = 2 };

// The text as a library, and its functions while that is open.
typedef struct {
    void *library;
    void (*way)(int);
    float (*f[FUNCTIONS])(float);
} text;

// ---- the text as a library ---------------------------------------------------------------------

static bool write_text(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return false;
    for (const char *const *s = tni_prelude_c; *s; s++) fputs(*s, file);
    fputs(stand_ins, file);
    fputs(TNI_CUDA_TANH TNI_CUDA_ERF TNI_CUDA_RSQRT TNI_CUDA_SLOPE_BF16, file);
    fputs(probe, file);
    return fclose(file) == 0;
}

static bool find_functions(text *t)
{
    void *symbol = dlsym(t->library, "probe_way");
    if (!CHECK(symbol != NULL)) return false;
    memcpy(&t->way, &symbol, sizeof symbol);
    for (int i = 0; i < FUNCTIONS; i++) {
        symbol = dlsym(t->library, functions[i].symbol);
        if (!CHECK(symbol != NULL)) return false;
        memcpy(&t->f[i], &symbol, sizeof symbol);
    }
    return true;
}

static bool open_text(text *t)
{
    char source[1024], object[1024], command[4096];
    *t = (text){ 0 };
    if (!CHECK(scratch_open())) return false;
    snprintf(source, sizeof source, "%s", scratch_path("spelled.c"));
    snprintf(object, sizeof object, "%s", scratch_path("spelled.so"));
    snprintf(command, sizeof command,
             "cc -std=c11 -O2 -Wall -Werror -Wno-unused-function -ffp-contract=off -fno-math-errno "
             "-fPIC -shared -o '%s' '%s' -lm",
             object, source);
    if (!CHECK(write_text(source)) || !CHECK(system(command) == 0)) return false;
    t->library = dlopen(object, RTLD_NOW);
    return test_that(t->library != NULL, "the text cannot be loaded") && find_functions(t);
}

static void close_text(text *t)
{
    if (t->library) dlclose(t->library);
    scratch_close();
}

// ---- tests -------------------------------------------------------------------------------------

// The distance of y from the exact r in units of the last place of r.
static double ulps(float y, double r)
{
    int e;
    if (y != y || r != r) return y != y && r != r ? 0 : 1e30;
    frexp(r, &e);
    return fabs((double)y - r) / ldexp(1, e < -125 ? -149 : e - 24);
}

static double worst_in(float (*f)(float), double (*exact)(double), uint64_t first, uint64_t last,
                       uint64_t step)
{
    double worst = 0;
    for (uint64_t i = first; i <= last; i += step) {
        float x = m_float_bits((m_uint)i);
        worst   = fmax(worst, ulps(f(x), exact((double)x)));
    }
    return worst;
}

// All floats but for the step, and those beside the seam, where errors are largest, of both signs.
static double worst_of(const text *t, int i, uint64_t step)
{
    const spelled *s  = &functions[i];
    uint64_t       at = m_bits_f(s->seam), minus = 0x80000000u;
    double         all = worst_in(t->f[i], s->exact, 0, 0xffffffffu, step);
    all                = fmax(all, worst_in(t->f[i], s->exact, at - 40000, at + 80000, 1));
    return fmax(all, worst_in(t->f[i], s->exact, minus + at - 40000, minus + at + 80000, 7));
}

// With TN_TEST_LONG every float, which takes many minutes.
static void functions_keep_their_bounds_however_far_the_chip_is_off(void)
{
    text t;
    if (system("cc --version >/dev/null 2>&1") != 0) SKIP("no cc to compile the text with");
    if (open_text(&t))
        for (int i = 0; i < SLOPE; i++)
            for (int way = 0; way < WAYS; way++) {
                t.way(way);
                double worst = worst_of(&t, i, test_long() ? 1 : 8191);
                test_case_result(worst <= functions[i].bound, "%s, way %d: %.4f ULP, bound %.4f",
                                 functions[i].name, way, worst, functions[i].bound);
            }
    close_text(&t);
}

// The slope of gelu at every bf16, in ULP of bf16 before it is rounded.
static void the_slope_is_that_of_every_bf16(void)
{
    text t;
    if (system("cc --version >/dev/null 2>&1") != 0) SKIP("no cc to compile the text with");
    if (open_text(&t))
        for (int way = 0; way < WAYS; way++) {
            double worst = 0;
            t.way(way);
            for (uint32_t i = 0; i < 0x10000; i++) {
                float x = m_float_bits(i << 16);
                worst   = fmax(worst, ulps(t.f[SLOPE](x), exact_slope((double)x)) / 0x10000);
            }
            test_case_result(worst <= functions[SLOPE].bound, "off by %.4f ULP, way %d", worst,
                             way);
            CHECK(signbit(t.f[SLOPE](-40.0f)));  // too small for a float, yet below 0
        }
    close_text(&t);
}

// Zeros keep their sign, what is tiny its value; what is large has the limit: the powers of 2 are
// 0 and infinity there.
static void limits_and_signs_are_exact(void)
{
    static const float x[] = { 0.0f,  -0.0f, 1e-45f, -1e-45f,  1e-38f,    4.5f, -4.5f,
                               20.0f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN };
    text               t;
    if (system("cc --version >/dev/null 2>&1") != 0) SKIP("no cc to compile the text with");
    bool ok = open_text(&t);
    if (ok) t.way(EXACTLY);
    for (int i = 0; ok && i < SLOPE; i++)
        for (size_t j = 0; j < sizeof x / sizeof *x; j++) {
            float y = t.f[i](x[j]), want = (float)functions[i].exact((double)x[j]);
            bool  rounds = i >= BOUNDED || (fabsf(x[j]) > 1e-30f && fabsf(x[j]) < 19);
            bool  near   = y == want || (rounds && ulps(y, want) <= 1);
            test_case_result(want != want ? y != y : near && !signbit(y) == !signbit(want),
                             "%s(%g) is %g", functions[i].name, x[j], y);
        }
    close_text(&t);
}

// A result beyond 1 would make 1 - y * y, which gradients use, negative.
static void no_result_is_beyond_one(void)
{
    text t;
    if (system("cc --version >/dev/null 2>&1") != 0) SKIP("no cc to compile the text with");
    bool ok = open_text(&t);
    for (int i = 0; ok && i < BOUNDED; i++)
        for (int way = 0; way < WAYS; way++) {
            bool within = true;
            t.way(way);
            for (float x = 0.5f; x < 30; x += 0x1p-11f) within &= fabsf(t.f[i](x)) <= 1;
            test_case_result(within, "%s, way %d", functions[i].name, way);
        }
    close_text(&t);
}

const test_case tests_cuda_math[] = { TEST(functions_keep_their_bounds_however_far_the_chip_is_off),
                                      TEST(the_slope_is_that_of_every_bf16),
                                      TEST(limits_and_signs_are_exact),
                                      TEST(no_result_is_beyond_one), TEST_END };
