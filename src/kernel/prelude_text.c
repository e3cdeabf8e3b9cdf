// math.def, gelu.def, special.def and casts.def as text, and the shim of each dialect: the types
// and the few functions that those files take for granted (bit casts, fma, sqrt, rounding), by the
// names that the dialect has for them.
#include "kernel/prelude_text.h"

#include <stddef.h>

// The rows as text, one literal for each: C11 promises no more than 4,095 characters in one.
const char *const tni_prelude_text[] = {
#define FN(...) "M_FN " #__VA_ARGS__ "\n",
#include "kernel/math.def"
#define FN(...) "M_FN " #__VA_ARGS__ "\n",
#include "kernel/gelu.def"
#define FN(...) "M_FN " #__VA_ARGS__ "\n",
#include "kernel/special.def"
#define FN(...) "M_FN " #__VA_ARGS__ "\n",
#include "kernel/casts.def"
    NULL,
};

// The shim of C. M_VECTOR: the bytes of a vector, as compilers take it with the options of
// device/cpu/cc.c. M_LANES tells the compiler that the turns of a lane loop do not depend on each
// other; M_SELDOM(c) is empty in C: lanes compute both sides anyway, whereas a GPU branches around
// what is rare.
// M_MORE, M_LESS: the larger or smaller, a number of a NaN; ARM has instructions for both, which
// gcc finds by these functions alone; elsewhere they would be calls, and `plain` is what to do
// instead: a text that names all that it calls, since functions are printed by the names in texts
// (emit_program.c). M_CUT(x, lo, hi): x as an integer, within the two, 0 of a NaN. FCVTZS of ARM
// gives the nearest integer that there is, and 0 of a NaN, so that integers are cut; C leaves open
// what such a conversion gives, and clang relies on it.
// m_stream copies a strip, past the caches where `stores` is TNI_STORES_PAST. x86 has instructions
// for that: whole lines of 64 bytes, since half of one would be read and written by itself. Cores
// of ARM see by themselves that whole lines are overwritten. M_STREAMED: from there on other cores
// see what was written so.
// clang-format off
const char *const tni_prelude_c[] = {
    "#define M_FN static inline\n"
    "#define M_APART static __attribute__((noinline))\n"
    "#define M_SELDOM(c)\n"
    "#if defined(__AVX512F__)\n"
    "#define M_VECTOR 64\n"
    "#elif defined(__AVX__)\n"
    "#define M_VECTOR 32\n"
    "#else\n"
    "#define M_VECTOR 16\n"
    "#endif\n"
    "#define M_FETCH(p) __builtin_prefetch(p, 0, 2)\n"
    "#ifdef __x86_64__\n"
    "typedef float m_vector __attribute__((vector_size(M_VECTOR), may_alias));\n"
    "#ifdef __clang__\n"
    "#define M_PAST(to, v) __builtin_nontemporal_store(v, (m_vector *)(to))\n"
    "#elif M_VECTOR == 64\n"
    "#define M_PAST(to, v) __builtin_ia32_movntps512((float *)(to), v)\n"
    "#elif M_VECTOR == 32\n"
    "#define M_PAST(to, v) __builtin_ia32_movntps256((float *)(to), v)\n"
    "#else\n"
    "#define M_PAST(to, v) __builtin_ia32_movntps((float *)(to), v)\n"
    "#endif\n"
    "static inline void m_stream(void *dst, const void *src, __INTPTR_TYPE__ bytes, int stores)\n"
    "{\n"
    "    if (stores == 1) {\n"
    "        __builtin_memcpy(dst, src, bytes);\n"
    "        return;\n"
    "    }\n"
    "    char *to = dst;\n"
    "    const char *from = src;\n"
    "    __INTPTR_TYPE__ i = -(__INTPTR_TYPE__)to & 63;\n"
    "    if (i > bytes) i = bytes;\n"
    "    __builtin_memcpy(to, from, i);\n"
    "    for (; i + 64 <= bytes; i += 64)\n"
    "        for (int k = 0; k < 64; k += M_VECTOR) {\n"
    "            m_vector v;\n"
    "            __builtin_memcpy(&v, from + i + k, M_VECTOR);\n"
    "            M_PAST(to + i + k, v);\n"
    "        }\n"
    "    __builtin_memcpy(to + i, from + i, bytes - i);\n"
    "}\n"
    "#define M_STREAMED() __builtin_ia32_sfence()\n"
    "#else\n"
    "#define m_stream(to, from, bytes, stores) __builtin_memcpy(to, from, bytes)\n"
    "#define M_STREAMED() (void)0\n"
    "#endif\n"
    "#pragma GCC diagnostic ignored \"-Wtautological-compare\"\n"
    "#ifdef __clang__\n"
    "#pragma clang diagnostic ignored \"-Wpass-failed\"\n"
    "#define M_LANES _Pragma(\"clang loop vectorize(assume_safety)\")\n"
    "#else\n"
    "#define M_LANES _Pragma(\"GCC ivdep\")\n"
    "#endif\n"
    "#ifdef __aarch64__\n"
    "#define M_MORE(x, a, plain) __builtin_fmaxf(x, a)\n"
    "#define M_LESS(x, a, plain) __builtin_fminf(x, a)\n"
    "#else\n"
    "#define M_MORE(x, a, plain) plain\n"
    "#define M_LESS(x, a, plain) plain\n"
    "#endif\n"
    "#if defined(__aarch64__) && !defined(__clang__)\n"
    "#define M_CUT(x, lo, hi) m_cut_i((m_int)(x), (m_int)(lo), (m_int)(hi))\n"
    "static inline __INT32_TYPE__ m_cut_i(__INT32_TYPE__ c, __INT32_TYPE__ lo, __INT32_TYPE__ hi)\n"
    "{ c = c < lo ? lo : c; return c > hi ? hi : c; }\n"
    "#else\n"
    "#define M_CUT(x, lo, hi) ((m_int)m_less_f(m_more_f(x, lo), hi) & -(m_int)((x) == (x)))\n"
    "#endif\n",
#define C_ONLY(...) #__VA_ARGS__ "\n",
#define FN(...)
#include "kernel/math.def"
#define C_ONLY(...) #__VA_ARGS__ "\n",
#define FN(...)
#include "kernel/special.def"
    NULL,
};

// The shim of OpenCL C. Contraction is off, so that a product and a sum are rounded twice as in C.
const char *const tni_prelude_opencl[] = {
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "#define M_FN static inline\n"
    "#define M_SELDOM(c) if (c)\n"
    "#define M_CUT(x, lo, hi) ((m_int)m_less_f(m_more_f(x, lo), hi) & -(m_int)((x) == (x)))\n"
    "typedef int m_int;\n"
    "typedef uint m_uint;\n"
    "typedef long m_long;\n"
    "typedef ulong m_ulong;\n"
    "typedef ushort m_ushort;\n"
    "typedef struct { m_uint x, y, z, w; } m_quad;\n",
    "M_FN m_uint m_bits_f(float x) { return as_uint(x); }\n",
    "M_FN float m_float_bits(m_uint u) { return as_float(u); }\n",
    "M_FN float m_where_f(m_int a, float b, float c) { return a ? b : c; }\n",
    "M_FN float m_fma_f(float a, float b, float c) { return fma(a, b, c); }\n",
    "M_FN float m_more_f(float x, float a) { return fmax(x, a); }\n",
    "M_FN float m_less_f(float x, float a) { return fmin(x, a); }\n",
    "M_FN float m_sqrt_f(float x) { return sqrt(x); }\n",
    "M_FN float m_floor_f(float x) { return floor(x); }\n",
    "M_FN float m_ceil_f(float x) { return ceil(x); }\n",
    "M_FN float m_rint_f(float x) { return rint(x); }\n",
    "M_FN float m_trunc_f(float x) { return trunc(x); }\n",
    "M_FN float m_abs_f(float x) { return fabs(x); }\n",
    "M_FN float m_fmod_f(float a, float b) { return fmod(a, b); }\n",
    "M_FN m_ulong m_bits_d(double x) { return as_ulong(x); }\n",
    "M_FN double m_double_bits(m_ulong u) { return as_double(u); }\n",
    "M_FN double m_where_d(m_int a, double b, double c) { return a ? b : c; }\n",
    "M_FN double m_fma_d(double a, double b, double c) { return fma(a, b, c); }\n",
    "M_FN double m_sqrt_d(double x) { return sqrt(x); }\n",
    "M_FN double m_floor_d(double x) { return floor(x); }\n",
    "M_FN double m_ceil_d(double x) { return ceil(x); }\n",
    "M_FN double m_rint_d(double x) { return rint(x); }\n",
    "M_FN double m_trunc_d(double x) { return trunc(x); }\n",
    "M_FN double m_abs_d(double x) { return fabs(x); }\n",
    "M_FN double m_fmod_d(double a, double b) { return fmod(a, b); }\n",
    NULL,
};

// The shim of CUDA C. The intrinsics with _rn round to nearest whatever the compiler's options are.
const char *const tni_prelude_cuda[] = {
    "#define M_FN static __device__ __forceinline__\n"
    "#define M_SELDOM(c) if (c)\n"
    "#define M_CUT(x, lo, hi) ((m_int)m_less_f(m_more_f(x, lo), hi) & -(m_int)((x) == (x)))\n"
    "typedef int m_int;\n"
    "typedef unsigned int m_uint;\n"
    "typedef long long m_long;\n"
    "typedef unsigned long long m_ulong;\n"
    "typedef unsigned short m_ushort;\n"
    "typedef struct { m_uint x, y, z, w; } m_quad;\n",
    "M_FN m_uint m_bits_f(float x) { return __float_as_uint(x); }\n",
    "M_FN float m_float_bits(m_uint u) { return __uint_as_float(u); }\n",
    "M_FN float m_where_f(m_int a, float b, float c) { return a ? b : c; }\n",
    "M_FN float m_fma_f(float a, float b, float c) { return __fmaf_rn(a, b, c); }\n",
    "M_FN float m_more_f(float x, float a) { return fmaxf(x, a); }\n",
    "M_FN float m_less_f(float x, float a) { return fminf(x, a); }\n",
    "M_FN float m_sqrt_f(float x) { return __fsqrt_rn(x); }\n",
    "M_FN float m_floor_f(float x) { return floorf(x); }\n",
    "M_FN float m_ceil_f(float x) { return ceilf(x); }\n",
    "M_FN float m_rint_f(float x) { return rintf(x); }\n",
    "M_FN float m_trunc_f(float x) { return truncf(x); }\n",
    "M_FN float m_abs_f(float x) { return fabsf(x); }\n",
    "M_FN float m_fmod_f(float a, float b) { return fmodf(a, b); }\n",
    "M_FN m_ulong m_bits_d(double x) { return (m_ulong)__double_as_longlong(x); }\n",
    "M_FN double m_double_bits(m_ulong u) { return __longlong_as_double((m_long)u); }\n",
    "M_FN double m_where_d(m_int a, double b, double c) { return a ? b : c; }\n",
    "M_FN double m_fma_d(double a, double b, double c) { return __fma_rn(a, b, c); }\n",
    "M_FN double m_sqrt_d(double x) { return __dsqrt_rn(x); }\n",
    "M_FN double m_floor_d(double x) { return floor(x); }\n",
    "M_FN double m_ceil_d(double x) { return ceil(x); }\n",
    "M_FN double m_rint_d(double x) { return rint(x); }\n",
    "M_FN double m_trunc_d(double x) { return trunc(x); }\n",
    "M_FN double m_abs_d(double x) { return fabs(x); }\n",
    "M_FN double m_fmod_d(double a, double b) { return fmod(a, b); }\n",
    NULL,
};
// clang-format on
