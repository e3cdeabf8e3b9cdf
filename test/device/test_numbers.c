// test_numbers.c: a plain number beside a tensor: beside f16 and bf16 it keeps the digits of f32,
// and as an integer it keeps all of its own, however it is run.
#include "check.h"
#include "graph_ways.h"

#include "kernel/prelude.h"

#include <math.h>
#include <string.h>

enum { ALL = 65536 };

static const graph_way ways[] = {
    { "ref", "ref", "TN_EAGER", "0" },
    { "cpu, interpreted", "cpu", "TN_CC", "none" },
    { "cpu, compiled", "cpu", "TN_COMPILE", "wait" },
    { "cpu, op by op", "cpu", "TN_EAGER", "1" },
    { "opencl, fused", "opencl", "TN_EAGER", "0" },
    { "opencl, op by op", "opencl", "TN_EAGER", "1" },
    { 0 },
};

// ---- beside f16 and bf16 -----------------------------------------------------------------------

static double value_of(tn_dtype dt, int bits)
{
    return dt == TN_F16 ? m_half_to_float((uint16_t)bits) : m_bf16_to_float((uint16_t)bits);
}

// The bits of v, computed in float or, as ref does, in double.
static int bits_of(tn_dtype dt, double v)
{
    return dt == TN_F16 ? m_double_to_half(v) : m_double_to_bf16(v);
}

typedef struct {
    const char *name;
    tn_tensor *(*run)(tn_tensor *x, double v);
    double (*in_double)(double x, double v);
    float (*in_float)(float x, float v);
    bool rough;  // the last bit is open
} half_case;

static tn_tensor *by_scalar(tn_tensor *x, double v)
{
    return tn_mul(tn_scalar(tn_ctx_of(x), v), x);
}

// A number that was computed is one all the same.
static tn_tensor *by_halves(tn_tensor *x, double v)
{
    return tn_mul(x, tn_mul_s(tn_scalar(tn_ctx_of(x), v / 2), 2));
}

static tn_tensor *in_place(tn_tensor *x, double v)
{
    return tn_mul_(tn_clone(x), tn_scalar(tn_ctx_of(x), v));
}

static tn_tensor *pow_gradient(tn_tensor *x, double v)
{
    tn_tensor *w = tn_requires_grad(tn_clone(x), true), *y = tn_pow_s(w, v), *gx = NULL;
    tn_grad(1, &y, 1, &w, (tn_tensor *[]){ tn_ones_like(y) }, &gx);
    return gx;
}

#define IN_BOTH(name, expr)                    \
    static double name##_d(double x, double v) \
    {                                          \
        return expr;                           \
    }                                          \
    static float name##_f(float x, float v)    \
    {                                          \
        return expr;                           \
    }
IN_BOTH(sum, x + v)
IN_BOTH(less, x - v)
IN_BOTH(from, v - x)
IN_BOTH(times, x *v)
IN_BOTH(over, x / v)
IN_BOTH(under, v / x)
IN_BOTH(leaky, x > 0 ? x : x * v)

// As the op does, also of minus infinity.
static double power_d(double x, double v)
{
    return pow(x, v);
}

static double slope_d(double x, double v)
{
    return v * pow(x, (double)((float)v - 1));
}

static const half_case half_cases[] = {
    { "add_s", tn_add_s, sum_d, sum_f, false },
    { "sub_s", tn_sub_s, less_d, less_f, false },
    { "rsub_s", tn_rsub_s, from_d, from_f, false },
    { "mul_s", tn_mul_s, times_d, times_f, false },
    { "div_s", tn_div_s, over_d, over_f, true },
    { "rdiv_s", tn_rdiv_s, under_d, under_f, true },
    { "leaky_relu", tn_leaky_relu, leaky_d, leaky_f, false },
    { "mul by a scalar", by_scalar, times_d, times_f, false },
    { "mul by a product of scalars", by_halves, times_d, times_f, false },
    { "mul_", in_place, times_d, times_f, false },
    { "pow_s", tn_pow_s, power_d, NULL, true },
    { "the gradient of pow_s", pow_gradient, slope_d, NULL, true },
};

// The first of all values that is not what it should be, -1 if none: to the bit, or off by one
// where the last is open.
static int first_wrong(const half_case *h, tn_dtype dt, double v, bool wide, const uint16_t *have)
{
    float number = (float)v;
    for (int i = 0; i < ALL; i++) {
        double x = value_of(dt, i),
               y = wide || !h->in_float ? h->in_double(x, number) : h->in_float((float)x, number);
        int want = bits_of(dt, y), off = have[i] - want;
        if (isnan(y) ? isnan(value_of(dt, have[i])) : off == 0) continue;
        if (h->rough && (off == 1 || off == -1) && !isnan(value_of(dt, have[i]))) continue;
        return i;
    }
    return -1;
}

enum { HALF_CASES = sizeof half_cases / sizeof *half_cases };

// All cases of one dtype and number, a few in each evaluation: more would be one kernel that a
// thread's registers do not hold.
static void check_halves(tn_ctx *cx, const graph_way *w, const uint16_t *all, tn_dtype dt, double v)
{
    static uint16_t have[ALL];
    tn_scope       *s = tn_begin(cx);
    tn_tensor      *x = tn_from(cx, dt, TN_SHAPE(ALL), all), *y[HALF_CASES];
    for (int k = 0; k < HALF_CASES; k++) {
        y[k] = half_cases[k].run(x, v);
        if (k % 3 == 2) CHECK_STATUS(tn_eval(cx), TN_OK);
    }
    for (int k = 0; k < HALF_CASES; k++) {
        bool ok = tn_dtype_of(y[k]) == dt && tn_read(y[k], dt, have, ALL) == TN_OK;
        int  at = ok ? first_wrong(&half_cases[k], dt, v, w == ways, have) : 0;
        test_case_result(at < 0, "%s: %s of %s %.9g by %g is %.9g", w->name, half_cases[k].name,
                         tn_dtype_name(dt), value_of(dt, at), v, value_of(dt, have[at]));
    }
    tn_end(s);
}

static void a_number_beside_f16_or_bf16_is_rounded_with_the_result_alone(void)
{
    static const double numbers[] = { 0.1, 1.0 / 3, 300 };
    static uint16_t     all[ALL];
    const graph_way    *w = NULL;
    for (int i = 0; i < ALL; i++) all[i] = (uint16_t)i;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx))
        for (int n = 0; n < 6; n++)
            check_halves(cx, w, all, n % 2 ? TN_F16 : TN_BF16, numbers[n / 2]);
}

// As in PyTorch: else 0.1 would not equal what was made from it.
static void what_is_compared_with_a_number_is_compared_as_its_dtype_has_it(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx))
        for (int n = 0; n < 2; n++) {
            tn_tensor *x = tn_full(cx, n ? TN_BF16 : TN_F16, TN_SHAPE(3), 0.1);
            test_case_result(tn_item(tn_sum_all(tn_eq_s(x, 0.1))) == 3 &&
                                 tn_item(tn_sum_all(tn_lt_s(x, 0.1))) == 0 &&
                                 tn_item(tn_sum_all(tn_gt(x, tn_scalar(cx, 0.1)))) == 0,
                             "%s: 0.1 is not %s's 0.1", w->name, n ? "bf16" : "f16");
        }
}

// ---- integers ----------------------------------------------------------------------------------

enum { FEW = 6 };

static const int64_t BIG = 9007199254740993;  // 2^53 + 1, which no double is

static const int64_t few[FEW] = {
    9007199254740993, 9007199254740992, -9007199254740993, 9223372036854775807 - 1, 0, 7
};

typedef struct {
    const char *name;
    tn_tensor *(*run)(tn_tensor *x, int64_t v);
    int64_t (*want)(uint64_t x, uint64_t v);
} whole_case;

#define WHOLE(name, expr)                              \
    static int64_t name##_want(uint64_t x, uint64_t v) \
    {                                                  \
        int64_t a = (int64_t)x, b = (int64_t)v;        \
        (void)a, (void)b;                              \
        return (int64_t)(expr);                        \
    }
WHOLE(add, x + v)
WHOLE(sub, x - v)
WHOLE(rsub, v - x)
WHOLE(mul, x *v)
WHOLE(maximum, a > b ? a : b)
WHOLE(minimum, a < b ? a : b)
WHOLE(eq, a == b)
WHOLE(ne, a != b)
WHOLE(lt, a < b)
WHOLE(le, a <= b)
WHOLE(gt, a > b)
WHOLE(ge, a >= b)
WHOLE(given, b)
WHOLE(within, a<b - 1 ? b - 1 : a> b ? b : a)

static tn_tensor *by_scalar_i64(tn_tensor *x, int64_t v)
{
    return tn_add(x, tn_scalar_i64(tn_ctx_of(x), v));
}

static tn_tensor *full_i64(tn_tensor *x, int64_t v)
{
    return tn_full_i64(tn_ctx_of(x), TN_I64, TN_SHAPE(tn_count(x)), v);
}

static tn_tensor *fill_i64(tn_tensor *x, int64_t v)
{
    return tn_fill_i64_(tn_clone(x), v);
}

static tn_tensor *masked_fill_i64(tn_tensor *x, int64_t v)
{
    return tn_masked_fill_i64(x, tn_eq(x, x), v);
}

// What was put in, alone and as part of a kernel.
static tn_tensor *pad_i64(tn_tensor *x, int64_t v)
{
    int64_t before = tn_count(x), none = 0;
    return tn_slice(tn_pad_i64(x, &before, &none, v), 0, 0, before, 1);
}

static tn_tensor *add_of_pad_i64(tn_tensor *x, int64_t v)
{
    int64_t    before = tn_count(x), none = 0;
    tn_tensor *twice = tn_pad_i64(x, &none, &before, 0);
    return tn_slice(tn_add(twice, tn_pad_i64(x, &none, &before, v)), 0, before, 2 * before, 1);
}

static tn_tensor *clamp_i64(tn_tensor *x, int64_t v)
{
    return tn_clamp_i64(x, v - 1, v);
}

static tn_tensor *clamp_i64_here(tn_tensor *x, int64_t v)
{
    return tn_clamp_i64_(tn_clone(x), v - 1, v);
}

static const whole_case whole_cases[] = {
    { "add_i64", tn_add_i64, add_want },
    { "sub_i64", tn_sub_i64, sub_want },
    { "rsub_i64", tn_rsub_i64, rsub_want },
    { "mul_i64", tn_mul_i64, mul_want },
    { "maximum_i64", tn_maximum_i64, maximum_want },
    { "minimum_i64", tn_minimum_i64, minimum_want },
    { "eq_i64", tn_eq_i64, eq_want },
    { "ne_i64", tn_ne_i64, ne_want },
    { "lt_i64", tn_lt_i64, lt_want },
    { "le_i64", tn_le_i64, le_want },
    { "gt_i64", tn_gt_i64, gt_want },
    { "ge_i64", tn_ge_i64, ge_want },
    { "add of scalar_i64", by_scalar_i64, add_want },
    { "full_i64", full_i64, given_want },
    { "full_like_i64", tn_full_like_i64, given_want },
    { "fill_i64_", fill_i64, given_want },
    { "masked_fill_i64", masked_fill_i64, given_want },
    { "pad_i64", pad_i64, given_want },
    { "add of pad_i64", add_of_pad_i64, given_want },
    { "clamp_i64", clamp_i64, within_want },
    { "clamp_i64_", clamp_i64_here, within_want },
};

enum { WHOLE_CASES = sizeof whole_cases / sizeof *whole_cases };

static void check_integers(tn_ctx *cx, const graph_way *w, int64_t v)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = tn_from(cx, TN_I64, TN_SHAPE(FEW), few), *y[WHOLE_CASES];
    for (int k = 0; k < WHOLE_CASES; k++) y[k] = whole_cases[k].run(x, v);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int k = 0; k < WHOLE_CASES; k++) {
        int64_t have[FEW] = { 0 };
        bool    ok        = tn_read(y[k], TN_I64, have, FEW) == TN_OK;
        for (int i = 0; i < FEW; i++)
            ok &= have[i] == whole_cases[k].want((uint64_t)few[i], (uint64_t)v);
        test_case_result(ok, "%s: %s by %lld: %lld of %lld", w->name, whole_cases[k].name,
                         (long long)v, (long long)have[0], (long long)few[0]);
    }
    tn_end(s);
}

static void an_integer_given_as_one_keeps_every_bit(void)
{
    static const int64_t numbers[] = { 9007199254740993, -9007199254740995, INT64_MAX - 1,
                                       INT64_MAX,        INT64_MIN + 2,     3 };
    const graph_way     *w         = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx))
        for (int n = 0; n < 6; n++) check_integers(cx, w, numbers[n]);
}

static void a_sequence_of_integers_keeps_every_bit(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        int64_t    have[4] = { 0 };
        tn_tensor *up      = tn_arange_i64(cx, TN_I64, BIG, BIG + 7, 2);
        tn_tensor *down    = tn_arange_i64(cx, TN_I64, INT64_MAX, INT64_MAX - 4, -1);
        tn_tensor *far     = tn_arange_i64(cx, TN_I64, INT64_MIN, INT64_MAX, INT64_MAX / 2 + 1);
        CHECK(tn_count(up) == 4 && tn_count(down) == 4 && tn_count(far) == 4);
        tn_read(up, TN_I64, have, 4);
        for (int i = 0; i < 4; i++) CHECK_INT(have[i], BIG + 2 * i);
        tn_read(down, TN_I64, have, 4);
        for (int i = 0; i < 4; i++) CHECK_INT(have[i], INT64_MAX - i);
        tn_read(far, TN_I64, have, 4);
        CHECK_INT(have[0], INT64_MIN);
        CHECK_INT(have[3], INT64_MAX / 2 + 1);
        CHECK_INT(tn_count(tn_arange_i64(cx, TN_I32, 3, 3, 1)), 0);
        CHECK_INT(tn_count(tn_arange_i64(cx, TN_I32, 3, 5, -1)), 0);
        CHECK(tn_arange_i64(cx, TN_I64, 0, 5, 0) == NULL);
        CHECK_STR(tn_error_text(cx), "arange_i64: no sequence from 0 to 5 by 0");
        tn_error_clear(cx);
    }
}

// The forms of both kinds follow one rule of dtypes.
static void an_integer_takes_the_dtype_of_what_it_meets(void)
{
    const graph_way *w = NULL;
    for (tn_ctx *cx = graph_way_next(ways, &w, NULL); cx; cx = graph_way_next(ways, &w, cx)) {
        for (int dt = TN_BOOL; dt <= TN_F64; dt++) {
            tn_tensor *x = tn_ones(cx, (tn_dtype)dt, TN_SHAPE(2));
            tn_tensor *a = tn_add_i64(x, 3), *b = tn_add_s(x, 3);
            tn_tensor *c = tn_add(tn_scalar_i64(cx, 3), x), *d = tn_div_i64(x, 4);
            test_case_result(tn_dtype_of(a) == tn_dtype_of(b) && tn_dtype_of(c) == tn_dtype_of(b),
                             "%s: %s and 3", w->name, tn_dtype_name((tn_dtype)dt));
            CHECK_STATUS(tn_eval(cx), TN_OK);
            double have[6];
            tn_read(a, TN_F64, have, 2);
            tn_read(c, TN_F64, have + 2, 2);
            tn_read(d, TN_F64, have + 4, 2);
            CHECK(have[0] == 4 && have[3] == 4 && have[5] == 0.25);
            CHECK(tn_dtype_of(d) == tn_dtype_of(tn_div_s(x, 4)));
        }
        tn_tensor *u = tn_ones(cx, TN_U8, TN_SHAPE(2));
        CHECK(tn_dtype_of(tn_scalar_i64(cx, 3)) == TN_I64);
        CHECK_INT(tn_item_i64(tn_scalar_i64(cx, BIG)), BIG);
        CHECK_NEAR(tn_item(tn_pow_i64(tn_full(cx, TN_I64, TN_0D, 3), 5)), 243, 0);
        CHECK_NEAR(tn_item(tn_rdiv_i64(tn_full(cx, TN_F64, TN_0D, 4), 3)), 0.75, 0);
        CHECK(tn_add_i64(u, 300) == NULL);
        CHECK_STR(tn_error_text(cx), "add_i64: the number 300 does not fit u8");
        tn_error_clear(cx);
    }
}

const test_case tests_numbers[] = {
    TEST(a_number_beside_f16_or_bf16_is_rounded_with_the_result_alone),
    TEST(what_is_compared_with_a_number_is_compared_as_its_dtype_has_it),
    TEST(an_integer_given_as_one_keeps_every_bit),
    TEST(a_sequence_of_integers_keeps_every_bit),
    TEST(an_integer_takes_the_dtype_of_what_it_meets),
    TEST_END,
};
