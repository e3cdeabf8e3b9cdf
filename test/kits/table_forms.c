// table_forms.c: the ops of tenon.h that work element by element, fold, or move elements, each
// called in one or several ways. test_table.c compares devices by them, test_gradients.c
// differentiates them.
#include "table_forms.h"

#include <math.h>

// ---- maps --------------------------------------------------------------------------------------

FORM(f_neg, tn_neg(x[0]))
FORM(f_abs, tn_abs(x[0]))
FORM(f_sign, tn_sign(x[0]))
FORM(f_floor, tn_floor(x[0]))
FORM(f_ceil, tn_ceil(x[0]))
FORM(f_round, tn_round(x[0]))
FORM(f_trunc, tn_trunc(x[0]))
FORM(f_sqrt, tn_sqrt(x[0]))
FORM(f_rsqrt, tn_rsqrt(x[0]))
FORM(f_reciprocal, tn_reciprocal(x[0]))
FORM(f_square, tn_square(x[0]))
FORM(f_exp, tn_exp(x[0]))
FORM(f_exp2, tn_exp2(x[0]))
FORM(f_expm1, tn_expm1(x[0]))
FORM(f_log, tn_log(x[0]))
FORM(f_log2, tn_log2(x[0]))
FORM(f_log1p, tn_log1p(x[0]))
FORM(f_sin, tn_sin(x[0]))
FORM(f_cos, tn_cos(x[0]))
FORM(f_tan, tn_tan(x[0]))
FORM(f_atan, tn_atan(x[0]))
FORM(f_tanh, tn_tanh(x[0]))
FORM(f_erf, tn_erf(x[0]))
FORM(f_asin, tn_asin(x[0]))
FORM(f_acos, tn_acos(x[0]))
FORM(f_sinh, tn_sinh(x[0]))
FORM(f_cosh, tn_cosh(x[0]))
FORM(f_asinh, tn_asinh(x[0]))
FORM(f_acosh, tn_acosh(tn_add_s(x[0], 1)))
FORM(f_atanh, tn_atanh(x[0]))
FORM(f_log10, tn_log10(x[0]))
FORM(f_erfinv, tn_erfinv(x[0]))
FORM(f_lgamma, tn_lgamma(x[0]))
FORM(f_digamma, tn_digamma(x[0]))
FORM(f_signbit, tn_signbit(x[0]))
FORM(f_atan2, tn_atan2(x[0], x[1]))
FORM(f_hypot, tn_hypot(x[0], x[1]))
FORM(f_logaddexp, tn_logaddexp(x[0], x[1]))
FORM(f_copysign, tn_copysign(x[0], x[1]))
FORM(f_nextafter, tn_nextafter(tn_cast(x[0], TN_F32), tn_cast(x[1], TN_F32)))
FORM(f_fmod, tn_fmod(x[0], x[1]))
FORM(f_trunc_divide, tn_trunc_divide(x[0], x[1]))
FORM(f_isnan, tn_isnan(x[0]))
FORM(f_isinf, tn_isinf(x[0]))
FORM(f_isfinite, tn_isfinite(x[0]))
FORM(f_logical_not, tn_logical_not(x[0]))
FORM(f_bit_not, tn_bit_not(tn_gt_s(x[0], 0)))
FORM(f_add, tn_add(x[0], x[1]))
FORM(f_sub, tn_sub(x[0], x[1]))
FORM(f_mul, tn_mul(x[0], x[1]))
FORM(f_mul_self, tn_mul(x[0], tn_mul(x[0], x[0])))
FORM(f_div, tn_div(x[0], x[1]))
FORM(f_pow, tn_pow(x[0], x[1]))
FORM(f_remainder, tn_remainder(x[0], x[1]))
FORM(f_floor_divide, tn_floor_divide(x[0], x[1]))
FORM(f_maximum, tn_maximum(x[0], x[1]))
FORM(f_minimum, tn_minimum(x[0], x[1]))
FORM(f_eq, tn_eq(x[0], x[1]))
FORM(f_ne, tn_ne(x[0], x[1]))
FORM(f_lt, tn_lt(x[0], x[1]))
FORM(f_le, tn_le(x[0], x[1]))
FORM(f_gt, tn_gt(x[0], x[1]))
FORM(f_ge, tn_ge(x[0], x[1]))
FORM(f_and, tn_logical_and(x[0], x[1]))
FORM(f_or, tn_logical_or(x[0], x[1]))
FORM(f_xor, tn_logical_xor(x[0], x[1]))
FORM(f_bits, tn_bit_xor(tn_bit_or(tn_gt_s(x[0], 1), tn_gt_s(x[1], 0)),
                        tn_bit_and(tn_lt_s(x[0], 0), tn_lt_s(x[1], 1))))
FORM(f_shifts, tn_shr(tn_shl(tn_cast(x[0], TN_I32), INDEX(1)), INDEX(3)))
FORM(f_add_s, tn_add_s(x[0], 1.5))
FORM(f_sub_s, tn_sub_s(x[0], 0.3))
FORM(f_rsub_s, tn_rsub_s(x[0], 2))
FORM(f_mul_s, tn_mul_s(x[0], -1.7))
FORM(f_div_s, tn_div_s(x[0], 3))
FORM(f_rdiv_s, tn_rdiv_s(x[0], 2.5))
FORM(f_pow_0, tn_pow_s(x[0], 0))
FORM(f_pow_1, tn_pow_s(x[0], 1))
FORM(f_pow_2, tn_pow_s(x[0], 2))
FORM(f_pow_3, tn_pow_s(x[0], 3))
FORM(f_pow_half, tn_pow_s(x[0], 0.5))
FORM(f_pow_minus, tn_pow_s(x[0], -1.5))
FORM(f_maximum_s, tn_maximum_s(x[0], 0.05))
FORM(f_minimum_s, tn_minimum_s(x[0], -0.05))
FORM(f_scalar, tn_mul(x[0], tn_scalar(CX, 1.25)))
FORM(f_cast_same, tn_cast(tn_mul(x[0], x[0]), DT))
FORM(f_cast_int, tn_cast(x[0], TN_I32))
FORM(f_where, tn_where(tn_gt_s(x[0], 0.02), x[0], x[1]))
FORM(f_where_0d, tn_where(tn_lt_s(x[0], 0.5), x[1], tn_sin(x[0])))
FORM(f_masked_fill, tn_masked_fill(x[0], tn_gt_s(x[0], 0.5), -3))
FORM(f_clamp, tn_clamp(x[0], -0.55, 0.65))
FORM(f_clamp_low, tn_clamp(x[0], 0.05, INFINITY))
FORM(f_relu, tn_relu(x[0]))
FORM(f_leaky_relu, tn_leaky_relu(x[0], 0.1))
FORM(f_elu, tn_elu(x[0], 1.3))
FORM(f_celu, tn_celu(x[0], 0.7))
FORM(f_selu, tn_selu(x[0]))
FORM(f_prelu, tn_prelu(x[0], x[1]))
FORM(f_prelu_one, tn_prelu(x[0], tn_slice(x[1], 0, 0, 1, 1)))
FORM(f_sigmoid, tn_sigmoid(x[0]))
FORM(f_logsigmoid, tn_logsigmoid(x[0]))
FORM(f_mish, tn_mish(x[0]))
FORM(f_softsign, tn_softsign(x[0]))
FORM(f_glu, tn_glu(tn_concat(2, (tn_tensor *const[]){ x[0], tn_sin(x[0]) }, -1), 1))
FORM(f_silu, tn_silu(x[0]))
FORM(f_gelu, tn_gelu(x[0]))
FORM(f_gelu_tanh, tn_gelu_tanh(x[0]))
FORM(f_softplus, tn_softplus(x[0]))
FORM(f_hardswish, tn_hardswish(tn_mul_s(x[0], 2.5)))
FORM(f_swiglu, tn_swiglu(x[0], x[1]))

// The same elements are dropped each time.
static tn_tensor *f_dropout(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_seed(CX, 3);
    return tn_dropout(x[0], 0.4, true);
}
FORM(f_dropout_eval, tn_dropout(x[0], 0.4, false))
FORM(f_dropout_all, tn_dropout(x[0], 1, true))

// clang-format off
#define ONE(m)            1, { { 2, { 3, 4 }, m } }
#define TWO(m, n)         2, { { 2, { 3, 4 }, m }, { 2, { 3, 4 }, n } }
#define ROW(m)            2, { { 2, { 3, 4 }, m }, { 1, { 4 }, m } }
#define CROSS(m)          2, { { 2, { 3, 1 }, m }, { 2, { 1, 4 }, m } }
#define SINGLE(m)         2, { { 2, { 3, 4 }, m }, { 0, { 0 }, m } }

const form forms_maps[] = {
    { "neg",             f_neg,          SMOOTH | WIDE,  1, ONE(APART) },
    { "abs",             f_abs,          SMOOTH | WIDE,  1, ONE(APART) },
    { "sign",            f_sign,         SMOOTH | WIDE,  1, ONE(APART) },
    { "floor",           f_floor,        SMOOTH | WIDE,  1, ONE(UNIT) },
    { "ceil",            f_ceil,         SMOOTH | WIDE,  1, ONE(UNIT) },
    { "round",           f_round,        SMOOTH | WIDE,  1, ONE(APART) },
    { "trunc",           f_trunc,        SMOOTH | WIDE,  1, ONE(UNIT) },
    { "sqrt",            f_sqrt,         SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "rsqrt",           f_rsqrt,        SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "reciprocal",      f_reciprocal,   SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "square",          f_square,       SMOOTH | WIDE,  1, ONE(APART) },
    { "exp",             f_exp,          SMOOTH | WIDE,  1, ONE(APART) },
    { "exp2",            f_exp2,         SMOOTH | WIDE,  1, ONE(APART) },
    { "expm1",           f_expm1,        SMOOTH | WIDE,  1, ONE(APART) },
    { "log",             f_log,          SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "log2",            f_log2,         SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "log1p",           f_log1p,        SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "sin",             f_sin,          SMOOTH | WIDE,  1, ONE(APART) },
    { "cos",             f_cos,          SMOOTH | WIDE,  1, ONE(APART) },
    { "tan",             f_tan,          SMOOTH | WIDE,  1, ONE(UNIT) },
    { "atan",            f_atan,         SMOOTH | WIDE,  1, ONE(APART) },
    { "tanh",            f_tanh,         SMOOTH | WIDE,  1, ONE(APART) },
    { "erf",             f_erf,          SMOOTH | WIDE,  1, ONE(APART) },
    { "asin",            f_asin,         SMOOTH | WIDE,  1, ONE(UNIT) },
    { "acos",            f_acos,         SMOOTH | WIDE,  1, ONE(UNIT) },
    { "sinh",            f_sinh,         SMOOTH | WIDE,  1, ONE(APART) },
    { "cosh",            f_cosh,         SMOOTH | WIDE,  1, ONE(APART) },
    { "asinh",           f_asinh,        SMOOTH | WIDE,  1, ONE(APART) },
    { "acosh",           f_acosh,        SMOOTH | WIDE,  2, ONE(POSITIVE) },
    { "atanh",           f_atanh,        SMOOTH | WIDE,  1, ONE(UNIT) },
    { "log10",           f_log10,        SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "erfinv",          f_erfinv,       SMOOTH | WIDE,  1, ONE(UNIT) },
    { "lgamma",          f_lgamma,       SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "digamma",         f_digamma,      SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "signbit",         f_signbit,      NO_GRAD | WIDE, 1, ONE(WILD) },
    { "isnan",           f_isnan,        NO_GRAD | WIDE, 1, ONE(WILD) },
    { "isinf",           f_isinf,        NO_GRAD | WIDE, 1, ONE(WILD) },
    { "isfinite",        f_isfinite,     NO_GRAD | WIDE, 1, ONE(WILD) },
    { "logical_not",     f_logical_not,  NO_GRAD | WIDE, 1, ONE(WILD) },
    { "bit_not",         f_bit_not,      NO_GRAD | WIDE, 1, ONE(APART) },
    { "add",             f_add,          SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "add of a row",    f_add,          SMOOTH,         1, ROW(APART) },
    { "sub",             f_sub,          SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "sub crossed",     f_sub,          SMOOTH,         1, CROSS(APART) },
    { "mul",             f_mul,          SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "mul crossed",     f_mul,          SMOOTH,         1, CROSS(APART) },
    { "mul by itself",   f_mul_self,     SMOOTH | WIDE,  2, ONE(APART) },
    { "div",             f_div,          SMOOTH | WIDE,  1, TWO(APART, POSITIVE) },
    { "div by 0-d",      f_div,          SMOOTH,         1, SINGLE(POSITIVE) },
    { "pow",             f_pow,          SMOOTH | WIDE,  1, TWO(POSITIVE, APART) },
    { "pow of a row",    f_pow,          SMOOTH,         1, ROW(POSITIVE) },
    { "remainder",       f_remainder,    SMOOTH | WIDE,  1, TWO(APART, POSITIVE) },
    { "floor_divide",    f_floor_divide, SMOOTH | WIDE,  1, TWO(APART, POSITIVE) },
    { "atan2",           f_atan2,        SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "hypot",           f_hypot,        SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "logaddexp",       f_logaddexp,    SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "copysign",        f_copysign,     SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "nextafter",       f_nextafter,    NO_GRAD,        1, TWO(APART, APART) },
    { "fmod",            f_fmod,         SMOOTH | WIDE,  1, TWO(APART, POSITIVE) },
    { "trunc_divide",    f_trunc_divide, SMOOTH | WIDE,  1, TWO(APART, POSITIVE) },
    { "maximum",         f_maximum,      SMOOTH | WIDE,  1, TWO(APART, UNIT) },
    { "minimum",         f_minimum,      SMOOTH | WIDE,  1, TWO(APART, UNIT) },
    { "maximum of a row", f_maximum,     SMOOTH,         1, ROW(APART) },
    { "eq",              f_eq,           NO_GRAD | WIDE, 1, TWO(APART, APART) },
    { "ne",              f_ne,           NO_GRAD | WIDE, 1, TWO(APART, APART) },
    { "lt",              f_lt,           NO_GRAD | WIDE, 1, TWO(APART, APART) },
    { "le",              f_le,           NO_GRAD | WIDE, 1, TWO(APART, APART) },
    { "gt",              f_gt,           NO_GRAD | WIDE, 1, TWO(APART, APART) },
    { "ge",              f_ge,           NO_GRAD | WIDE, 1, TWO(APART, APART) },
    { "logical_and",     f_and,          NO_GRAD | WIDE, 1, TWO(ZEROS, ZEROS) },
    { "logical_or",      f_or,           NO_GRAD | WIDE, 1, TWO(ZEROS, ZEROS) },
    { "logical_xor",     f_xor,          NO_GRAD | WIDE, 1, TWO(ZEROS, ZEROS) },
    { "bit_and, or, xor", f_bits,        NO_GRAD | WIDE, 1, TWO(APART, APART) },
    { "shl, shr",        f_shifts,       NO_GRAD | WIDE, 1, ONE(TAME) },
    { "add_s",           f_add_s,        SMOOTH | WIDE,  1, ONE(APART) },
    { "sub_s",           f_sub_s,        SMOOTH | WIDE,  1, ONE(APART) },
    { "rsub_s",          f_rsub_s,       SMOOTH | WIDE,  1, ONE(APART) },
    { "mul_s",           f_mul_s,        SMOOTH | WIDE,  1, ONE(APART) },
    { "div_s",           f_div_s,        SMOOTH | WIDE,  1, ONE(APART) },
    { "rdiv_s",          f_rdiv_s,       SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "pow_s 0",         f_pow_0,        SMOOTH | WIDE,  1, ONE(ZEROS) },
    { "pow_s 1",         f_pow_1,        SMOOTH | WIDE,  1, ONE(ZEROS) },
    { "pow_s 2",         f_pow_2,        SMOOTH | WIDE,  1, ONE(ZEROS) },
    { "pow_s 3",         f_pow_3,        SMOOTH | WIDE,  1, ONE(ZEROS) },
    { "pow_s 0.5",       f_pow_half,     SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "pow_s -1.5",      f_pow_minus,    SMOOTH | WIDE,  1, ONE(POSITIVE) },
    { "maximum_s",       f_maximum_s,    SMOOTH | WIDE,  1, ONE(APART) },
    { "minimum_s",       f_minimum_s,    SMOOTH | WIDE,  1, ONE(APART) },
    { "scalar",          f_scalar,       SMOOTH | WIDE,  1, ONE(APART) },
    { "cast to its own", f_cast_same,    SMOOTH | WIDE,  1, ONE(APART) },
    { "cast to i32",     f_cast_int,     NO_GRAD | WIDE, 1, ONE(TAME) },
    { "where",           f_where,        SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "where 0-d",       f_where_0d,     SMOOTH,         1, SINGLE(APART) },
    { "masked_fill",     f_masked_fill,  SMOOTH | WIDE,  1, ONE(APART) },
    { "clamp",           f_clamp,        SMOOTH | WIDE,  1, ONE(APART) },
    { "clamp from below", f_clamp_low,   SMOOTH | WIDE,  1, ONE(APART) },
    { "relu",            f_relu,         SMOOTH | WIDE,  1, ONE(APART) },
    { "leaky_relu",      f_leaky_relu,   SMOOTH | WIDE,  1, ONE(APART) },
    { "elu",             f_elu,          SMOOTH | WIDE,  1, ONE(APART) },
    { "celu",            f_celu,         SMOOTH | WIDE,  1, ONE(APART) },
    { "selu",            f_selu,         SMOOTH | WIDE,  1, ONE(APART) },
    { "prelu",           f_prelu,        SMOOTH,         1, ROW(APART) },
    { "prelu of one slope", f_prelu_one, SMOOTH | WIDE,  1, ROW(APART) },
    { "sigmoid",         f_sigmoid,      SMOOTH | WIDE,  1, ONE(APART) },
    { "logsigmoid",      f_logsigmoid,   SMOOTH | WIDE,  1, ONE(APART) },
    { "mish",            f_mish,         SMOOTH | WIDE,  1, ONE(APART) },
    { "softsign",        f_softsign,     SMOOTH | WIDE,  1, ONE(APART) },
    { "glu",             f_glu,          SMOOTH | WIDE,  1, ROW(APART) },
    { "silu",            f_silu,         SMOOTH | WIDE,  1, ONE(APART) },
    { "gelu",            f_gelu,         SMOOTH | WIDE,  1, ONE(APART) },
    { "gelu_tanh",       f_gelu_tanh,    SMOOTH | WIDE,  1, ONE(APART) },
    { "softplus",        f_softplus,     SMOOTH | WIDE,  1, ONE(APART) },
    { "hardswish",       f_hardswish,    SMOOTH | WIDE,  2, ONE(APART) },
    { "swiglu",          f_swiglu,       SMOOTH | WIDE,  1, TWO(APART, APART) },
    { "swiglu of a row", f_swiglu,       SMOOTH,         1, ROW(APART) },
    { "dropout",         f_dropout,      SMOOTH | WIDE,  1, ONE(APART) },
    { "dropout outside training", f_dropout_eval, SMOOTH | WIDE, 1, ONE(APART) },
    { "dropout of all",  f_dropout_all,  SMOOTH | WIDE,  1, ONE(APART) },
    { .name = NULL },
};
// clang-format on

// ---- folds -------------------------------------------------------------------------------------

// The four forms of a reduction.
#define FOLD(name)                                    \
    FORM(f_##name, tn_##name(x[0], 1))                \
    FORM(f_##name##_keep, tn_##name##_keep(x[0], -2)) \
    FORM(f_##name##_all, tn_##name##_all(x[0]))       \
    FORM(f_##name##_axes, tn_##name##_axes(tn_unsqueeze(x[0], 0), TN_AXES(0, 2), true))
FOLD(sum)
FOLD(mean)
FOLD(prod)
FOLD(max)
FOLD(min)
FOLD(var)
FOLD(std)
FOLD(norm)
FOLD(logsumexp)
FOLD(any)
FOLD(all)
FORM(f_argmax, tn_argmax(x[0], 0))
FORM(f_argmax_keep, tn_argmax_keep(x[0], -1))
FORM(f_argmax_all, tn_argmax_all(x[0]))
FORM(f_argmin, tn_argmin(x[0], 0))
FORM(f_argmin_keep, tn_argmin_keep(x[0], -1))
FORM(f_argmin_all, tn_argmin_all(x[0]))
FORM(f_cumsum, tn_cumsum(x[0], 0))
FORM(f_cumsum_last, tn_cumsum(x[0], -1))
FORM(f_cumprod, tn_cumprod(x[0], 0))
FORM(f_cumprod_last, tn_cumprod(x[0], -1))
FORM(f_softmax, tn_softmax(x[0], 0))
FORM(f_softmax_last, tn_softmax(x[0], -1))
FORM(f_log_softmax, tn_log_softmax(x[0], 0))
FORM(f_log_softmax_last, tn_log_softmax(x[0], -1))

// clang-format off
#define FORMS4(name, flags, m)                                       \
    { #name,         f_##name,         flags, 1, ONE(m) },           \
    { #name "_keep", f_##name##_keep,  flags, 1, ONE(m) },           \
    { #name "_all",  f_##name##_all,   flags, 1, ONE(m) },           \
    { #name "_axes", f_##name##_axes,  flags, 1, ONE(m) }

const form forms_folds[] = {
    FORMS4(sum, SMOOTH | WIDE, APART),
    FORMS4(mean, SMOOTH | WIDE, APART),
    FORMS4(prod, SMOOTH, APART),
    { "prod with zeros",    f_prod,         SMOOTH,      1, ONE(ZEROS) },
    { "prod_all, zeros",    f_prod_all,     SMOOTH,      1, ONE(ZEROS) },
    FORMS4(max, SMOOTH | WIDE, APART),
    FORMS4(min, SMOOTH | WIDE, APART),
    FORMS4(var, SMOOTH | WIDE, APART),
    FORMS4(std, SMOOTH | WIDE, APART),
    FORMS4(norm, SMOOTH | WIDE, APART),
    FORMS4(logsumexp, SMOOTH | WIDE, APART),
    FORMS4(any, NO_GRAD | WIDE, ZEROS),
    FORMS4(all, NO_GRAD | WIDE, ZEROS),
    { "argmax",             f_argmax,       NO_GRAD | WIDE, 1, ONE(APART) },
    { "argmax_keep",        f_argmax_keep,  NO_GRAD | WIDE, 1, ONE(APART) },
    { "argmax_all",         f_argmax_all,   NO_GRAD | WIDE, 1, ONE(APART) },
    { "argmin",             f_argmin,       NO_GRAD | WIDE, 1, ONE(APART) },
    { "argmin_keep",        f_argmin_keep,  NO_GRAD | WIDE, 1, ONE(APART) },
    { "argmin_all",         f_argmin_all,   NO_GRAD | WIDE, 1, ONE(APART) },
    { "cumsum",             f_cumsum,       SMOOTH | WIDE,  1, ONE(APART) },
    { "cumsum last",        f_cumsum_last,  SMOOTH | WIDE,  1, ONE(APART) },
    { "cumprod",            f_cumprod,      SMOOTH,      1, ONE(APART) },
    { "cumprod last",       f_cumprod_last, SMOOTH,      1, ONE(APART) },
    { "cumprod, zeros",     f_cumprod,      SMOOTH,           1, ONE(ZEROS) },
    { "cumprod last, zeros", f_cumprod_last, SMOOTH,          1, ONE(ZEROS) },
    { "softmax",            f_softmax,      SMOOTH | WIDE, 1, ONE(APART) },
    { "softmax last",       f_softmax_last, SMOOTH | WIDE, 1, ONE(APART) },
    { "log_softmax",        f_log_softmax,  SMOOTH | WIDE, 1, ONE(APART) },
    { "log_softmax last",   f_log_softmax_last, SMOOTH | WIDE, 1, ONE(APART) },
    { .name = NULL },
};
// clang-format on

// ---- movement ----------------------------------------------------------------------------------

FORM(f_contiguous, tn_contiguous(tn_transpose(x[0], 0, 1)))
FORM(f_clone, tn_clone(x[0]))
FORM(f_concat, tn_concat(3, (tn_tensor *const[]){ x[0], x[1], x[0] }, 0))
FORM(f_concat_last, tn_concat(2, x, -1))
FORM(f_stack, tn_stack(2, x, 1))
FORM(f_repeat, tn_repeat(x[0], TN_SHAPE(2, 1, 3)))
FORM(f_roll, tn_roll(x[0], 2, 1))
FORM(f_roll_back, tn_roll(x[0], -4, 0))
FORM(f_pad, tn_pad(x[0], (int64_t[]){ 1, 0 }, (int64_t[]){ 2, 1 }, 0.7))
FORM(f_crop, tn_pad(x[0], (int64_t[]){ -1, 2 }, (int64_t[]){ 0, -1 }, 0))
FORM(f_tril, tn_tril(x[0], 0))
FORM(f_tril_up, tn_tril(x[0], 1))
FORM(f_triu, tn_triu(x[0], 0))
FORM(f_triu_down, tn_triu(x[0], -1))
FORM(f_gather, tn_gather(x[0], 0, INDEX2(2, 4, 0, 2, -1, 1, 1, 1, 0, 2)))
FORM(f_gather_last, tn_gather(x[0], 1, INDEX2(3, 2, 0, 3, 3, 3, -4, 1)))
FORM(f_take, tn_take_along_axis(x[0], INDEX2(1, 4, 2, 0, 0, -1), 0))
FORM(f_index_select, tn_index_select(x[0], 1, INDEX(3, 3, 0, -2)))
FORM(f_scatter, tn_scatter(x[0], 1, INDEX2(3, 2, 0, 3, 2, 1, -4, -1), tn_slice(x[1], 1, 0, 2, 1)))
FORM(f_scatter_add, tn_scatter_add(x[0], 0, INDEX2(3, 4, 0, 2, 2, 1, 0, 2, 1, 1, 0, 0, 0, 0), x[1]))
FORM(f_one_hot, tn_one_hot(INDEX2(2, 2, 0, 3, 1, -1), 5))
FORM(f_embedding, tn_embed(INDEX2(2, 3, 0, 2, 2, 1, 0, 0), x[0]))
FORM(f_sort, tn_sort(x[0], 1, false).values)
FORM(f_sort_down, tn_sort(x[0], 0, true).values)
FORM(f_sort_index, tn_sort(x[0], 0, true).indices)
FORM(f_argsort, tn_argsort(x[0], -1, false))
FORM(f_topk, tn_topk(x[0], 2, -1, true).values)
FORM(f_topk_least, tn_topk(x[0], 2, 0, false).values)
FORM(f_topk_index, tn_topk(x[0], 3, -1, true).indices)
FORM(f_slice, tn_slice(x[0], 1, 1, TN_TO_END, 2))
FORM(f_slice_back, tn_slice(x[0], 1, -1, TN_TO_END, -2))
FORM(f_select, tn_select(x[0], 0, -1))
FORM(f_squeeze, tn_squeeze(tn_unsqueeze(x[0], 1), 1))
FORM(f_squeeze_all, tn_squeeze_all(tn_unsqueeze(tn_select(x[0], 0, 1), 0)))
FORM(f_unsqueeze, tn_mul(tn_unsqueeze(x[0], -1), tn_unsqueeze(x[0], 0)))
FORM(f_transpose, tn_transpose(x[0], 0, 1))
FORM(f_permute, tn_permute(tn_unsqueeze(x[0], 0), TN_AXES(2, 0, 1)))
FORM(f_expand, tn_expand(tn_unsqueeze(x[0], 0), TN_SHAPE(3, -1, -1)))
FORM(f_flip, tn_flip(tn_flip(x[0], 0), 1))
FORM(f_diagonal, tn_diagonal(x[0], 0, 0, 1))
FORM(f_diagonal_off, tn_diagonal(x[0], 1, 0, 1))
FORM(f_window, tn_window(x[0], 1, 2, 1))
FORM(f_window_apart, tn_window(x[0], 1, 2, 2))
FORM(f_window_dilated, tn_window_dilated(x[0], 1, 2, 1, 2))
FORM(f_windows, tn_window(tn_window(x[0], 0, 2, 1), 1, 3, 1))
FORM(f_window_mean, tn_mean(tn_window(tn_flip(x[0], 1), 1, 3, 1), -1))
FORM(f_view, tn_view(tn_contiguous(x[0]), TN_SHAPE(2, -1)))
FORM(f_reshape, tn_reshape(tn_transpose(x[0], 0, 1), TN_SHAPE(-1, 2)))
FORM(f_flatten, tn_flatten(tn_unsqueeze(x[0], 0), 0, 1))

static tn_tensor *f_split(tn_tensor *const *x, void *user)
{
    tn_tensor *y[4];
    (void)user;
    int n = tn_split(x[0], 3, 1, 4, y);
    return n == 2 ? tn_mul(tn_slice(y[0], 1, 0, 1, 1), y[1]) : NULL;
}

static tn_tensor *f_chunk(tn_tensor *const *x, void *user)
{
    tn_tensor *y[2];
    (void)user;
    return tn_chunk(x[0], 2, 1, y) == 2 ? tn_sub(y[0], y[1]) : NULL;
}

// ---- writes: a copy is written through views, then used with what came before ------------------

static tn_tensor *f_assign(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *t = tn_mul_s(x[0], 2), *old = tn_square(t);
    tn_assign(t, tn_mul(x[1], x[0]));
    return tn_add(old, t);
}

static tn_tensor *f_assign_view(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *t = tn_mul_s(x[0], 2), *part = tn_slice(t, 1, 0, TN_TO_END, 2);
    tn_assign(part, tn_slice(tn_square(x[1]), 1, 0, 2, 1));
    return tn_mul(t, x[0]);
}

// Reads all before it writes: t[:, :-1] = t[:, 1:].
static tn_tensor *f_assign_shifted(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *t = tn_mul_s(x[0], 2);
    tn_assign(tn_slice(t, 1, 0, -1, 1), tn_slice(t, 1, 1, TN_TO_END, 1));
    return tn_square(t);
}

static tn_tensor *f_inplace_math(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *t = tn_sin(x[0]), *column = tn_select(t, 1, 1), *last = tn_select(t, 0, 2);
    tn_mul_(column, tn_select(x[1], 1, 0));
    tn_add_(last, tn_select(x[0], 0, 0));
    tn_sub_(tn_flip(t, 0), x[1]);
    tn_div_(tn_diagonal(t, 0, 0, 1), tn_add_s(tn_square(tn_select(x[1], 1, 1)), 1));
    return t;
}

static tn_tensor *f_inplace_fill(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *t = tn_exp(x[0]);
    tn_fill_(tn_select(t, 0, 1), 3);
    tn_zero_(tn_slice(t, 1, 3, 4, 1));
    tn_clamp_(tn_transpose(t, 0, 1), 0.5, 4.5);
    return tn_mul(t, x[0]);
}

// ---- made from nothing, or drawn ---------------------------------------------------------------

FORM(f_arange, tn_arange(CX, DT, 1, 5, 0.5))
FORM(f_linspace, tn_linspace(CX, DT, -1, 2, 7))
FORM(f_eye, tn_eye(CX, DT, 3, 4))
FORM(f_likes, tn_add(tn_ones_like(x[0]), tn_add(tn_zeros_like(x[0]), tn_full_like(x[0], 0.5))))

static tn_tensor *f_bernoulli(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_seed(CX, 4);
    return tn_bernoulli(x[0]);
}

static tn_tensor *f_multinomial(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_seed(CX, 4);
    return tn_multinomial(x[0], 20);
}

// clang-format off
const form forms_moves[] = {
    { "contiguous",     f_contiguous,     SMOOTH | WIDE, 1, ONE(APART) },
    { "clone",          f_clone,          SMOOTH | WIDE, 1, ONE(APART) },
    { "concat",         f_concat,         SMOOTH | WIDE, 1, TWO(APART, UNIT) },
    { "concat last",    f_concat_last,    SMOOTH | WIDE, 1, TWO(APART, UNIT) },
    { "stack",          f_stack,          SMOOTH | WIDE, 1, TWO(APART, UNIT) },
    { "split",          f_split,          SMOOTH, 1, ONE(APART) },
    { "chunk",          f_chunk,          SMOOTH, 1, ONE(APART) },
    { "repeat",         f_repeat,         SMOOTH | WIDE, 1, ONE(APART) },
    { "roll",           f_roll,           SMOOTH | WIDE, 1, ONE(APART) },
    { "roll back",      f_roll_back,      SMOOTH | WIDE, 1, ONE(APART) },
    { "pad",            f_pad,            SMOOTH | WIDE, 1, ONE(APART) },
    { "pad that crops", f_crop,           SMOOTH | WIDE, 1, ONE(APART) },
    { "tril",           f_tril,           SMOOTH | WIDE, 1, ONE(APART) },
    { "tril 1",         f_tril_up,        SMOOTH | WIDE, 1, ONE(APART) },
    { "triu",           f_triu,           SMOOTH | WIDE, 1, ONE(APART) },
    { "triu -1",        f_triu_down,      SMOOTH | WIDE, 1, ONE(APART) },
    { "gather",         f_gather,         SMOOTH, 1, ONE(APART) },
    { "gather last",    f_gather_last,    SMOOTH, 1, ONE(APART) },
    { "take_along_axis", f_take,          SMOOTH, 1, ONE(APART) },
    { "index_select",   f_index_select,   SMOOTH, 1, ONE(APART) },
    { "scatter",        f_scatter,        SMOOTH, 1, TWO(APART, UNIT) },
    { "scatter_add",    f_scatter_add,    SMOOTH, 1, TWO(APART, UNIT) },
    { "one_hot",        f_one_hot,        NO_GRAD, 1, ONE(APART) },
    { "embedding",      f_embedding,      SMOOTH, 1, ONE(APART) },
    { "sort",           f_sort,           SMOOTH | WIDE, 1, ONE(APART) },
    { "sort downwards", f_sort_down,      SMOOTH | WIDE, 1, ONE(APART) },
    { "sort, indices",  f_sort_index,     NO_GRAD | WIDE, 1, ONE(APART) },
    { "argsort",        f_argsort,        NO_GRAD | WIDE, 1, ONE(APART) },
    { "topk",           f_topk,           SMOOTH, 1, ONE(APART) },
    { "topk, least",    f_topk_least,     SMOOTH, 1, ONE(APART) },
    { "topk, indices",  f_topk_index,     NO_GRAD, 1, ONE(APART) },
    { "slice",          f_slice,          SMOOTH | WIDE, 1, ONE(APART) },
    { "slice backwards", f_slice_back,    SMOOTH | WIDE, 1, ONE(APART) },
    { "select",         f_select,         SMOOTH | WIDE, 1, ONE(APART) },
    { "squeeze",        f_squeeze,        SMOOTH | WIDE, 1, ONE(APART) },
    { "squeeze_all",    f_squeeze_all,    SMOOTH, 1, ONE(APART) },
    { "unsqueeze",      f_unsqueeze,      SMOOTH, 1, 1, { { 2, { 3, 3 }, APART } } },
    { "transpose",      f_transpose,      SMOOTH | WIDE, 1, ONE(APART) },
    { "permute",        f_permute,        SMOOTH | WIDE, 1, ONE(APART) },
    { "expand",         f_expand,         SMOOTH | WIDE, 1, ONE(APART) },
    { "flip",           f_flip,           SMOOTH | WIDE, 1, ONE(APART) },
    { "diagonal",       f_diagonal,       SMOOTH | WIDE, 1, ONE(APART) },
    { "diagonal 1",     f_diagonal_off,   SMOOTH | WIDE, 1, ONE(APART) },
    { "window",         f_window,         SMOOTH, 1, ONE(APART) },
    { "window, apart",  f_window_apart,   SMOOTH, 1, ONE(APART) },
    { "window_dilated",    f_window_dilated,    SMOOTH, 1, ONE(APART) },
    { "windows",        f_windows,        SMOOTH, 1, ONE(APART) },
    { "window, mean",   f_window_mean,    SMOOTH, 1, ONE(APART) },
    { "view",           f_view,           SMOOTH, 1, ONE(APART) },
    { "reshape",        f_reshape,        SMOOTH, 1, ONE(APART) },
    { "flatten",        f_flatten,        SMOOTH | WIDE, 1, ONE(APART) },
    { "assign",         f_assign,         SMOOTH | WIDE, 4, TWO(APART, UNIT) },
    { "assign to a view", f_assign_view,  SMOOTH, 3, TWO(APART, UNIT) },
    { "assign shifted", f_assign_shifted, SMOOTH | WIDE, 2, ONE(APART) },
    { "mul_, add_, sub_, div_", f_inplace_math, SMOOTH, 6, TWO(APART, UNIT) },
    { "fill_, zero_, clamp_", f_inplace_fill, SMOOTH, 3, ONE(UNIT) },
    { "arange",         f_arange,         NO_GRAD, 1, ONE(APART) },
    { "linspace",       f_linspace,       NO_GRAD, 1, ONE(APART) },
    { "eye",            f_eye,            NO_GRAD, 1, ONE(APART) },
    { "ones_like",      f_likes,          NO_GRAD | WIDE, 1, ONE(APART) },
    { "bernoulli",      f_bernoulli,      NO_GRAD | WIDE, 1, ONE(UNIT) },
    { "multinomial",    f_multinomial,    NO_GRAD, 1, ONE(POSITIVE) },
    { .name = NULL },
};
// clang-format on
