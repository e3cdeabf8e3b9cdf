// prelude.h: the math prelude as C code, for the interpreter and the reference device. Names with
// a type suffix come from math.def; the names below choose by the type of the first argument, as
// expressions of the op table do. Compile what includes this with -ffp-contract=off.
#ifndef TNI_PRELUDE_H
#define TNI_PRELUDE_H

#include <math.h>
#include <stdint.h>

#define M_SELDOM(c)
#define M_MORE(x, a, plain) plain
#define M_LESS(x, a, plain) plain
#define M_CUT(x, lo, hi)    ((m_int)m_less_f(m_more_f(x, lo), hi) & -(m_int)((x) == (x)))
#define C_ONLY(...)         __VA_ARGS__
#define FN(...)             static inline __VA_ARGS__
#include "kernel/math.def"
#define FN(...) static inline __VA_ARGS__
#include "kernel/gelu.def"
#define C_ONLY(...) __VA_ARGS__
#define FN(...)     static inline __VA_ARGS__
#include "kernel/special.def"
#define FN(...) static inline __VA_ARGS__
#include "kernel/strips.def"

// The function for the type of a: float and double; these and the integers; the integers.
#define M_FLOAT(name, a) _Generic((a), float : name##_f, double : name##_d)
#define M_REAL(name, a)           \
    _Generic((a), float           \
             : name##_f, double   \
             : name##_d, int32_t  \
             : name##_i, int64_t  \
             : name##_l, uint64_t \
             : name##_u)
#define M_INT(name, a) _Generic((a), int32_t : name##_i, int64_t : name##_l, uint64_t : name##_u)

// A function of floats by its bare name.
#define MATH(f, a)       M_FLOAT(m_##f, a)(a)
#define MATH2(f, a, b)   M_FLOAT(m_##f, a)(a, b)
#define m_floor(a)       M_FLOAT(m_floor, a)(a)
#define m_ceil(a)        M_FLOAT(m_ceil, a)(a)
#define m_rint(a)        M_FLOAT(m_rint, a)(a)
#define m_trunc(a)       M_FLOAT(m_trunc, a)(a)
#define m_abs(a)         M_REAL(m_abs, a)(a)
#define m_sign(a)        M_REAL(m_sign, a)(a)
#define m_where(a, b, c) M_REAL(m_where, b)(a, b, c)
#define m_max(a, b)      M_REAL(m_max, a)(a, b)
#define m_min(a, b)      M_REAL(m_min, a)(a, b)
#define m_relu(a)        M_REAL(m_relu, a)(a)
#define m_rem(a, b)      M_REAL(m_rem, a)(a, b)
#define m_fdiv(a, b)     M_REAL(m_fdiv, a)(a, b)
#define m_pow(a, b)      M_REAL(m_pow, a)(a, b)
#define m_fmod(a, b)     M_REAL(m_fmod, a)(a, b)
#define m_tdiv(a, b)     M_REAL(m_tdiv, a)(a, b)
#define m_signbit(a)     M_REAL(m_signbit, a)(a)
#define m_shl(a, n)      M_INT(m_shl, a)(a, n)
#define m_shr(a, n)      M_INT(m_shr, a)(a, n)

#endif
