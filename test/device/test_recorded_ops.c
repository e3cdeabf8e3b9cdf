// test_recorded_ops.c: functions of tenon/arrays.h beside values of PyTorch, which tools/record.py
// wrote.
#include "check.h"
#include "rules_kit.h"

#include <math.h>
#include <stdlib.h>

// Everything of a recording by this name, as doubles. Free it.
static double *recorded(tn_ctx *cx, const char *file, const char *name, int64_t *n)
{
    tn_file   *f = tn_file_open(cx, file);
    tn_tensor *t = tn_file_tensor(f, name);
    double    *v = NULL;
    *n           = t ? tn_count(t) : 0;
    if (t) v = malloc((size_t)*n * sizeof *v);
    if (v && tn_read(t, TN_F64, v, *n) != TN_OK) *n = 0;
    tn_file_free(f);
    return v;
}

// ---- maps --------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    tn_tensor *(*one)(tn_tensor *x);
    tn_tensor *(*two)(tn_tensor *a, tn_tensor *b);
    double least;  // smaller results are differences of numbers of this size
} map_case;

// clang-format off
static const map_case maps[] = {
    { "asin",         tn_asin,    NULL,            0 },
    { "acos",         tn_acos,    NULL,            0 },
    { "sinh",         tn_sinh,    NULL,            0 },
    { "cosh",         tn_cosh,    NULL,            0 },
    { "asinh",        tn_asinh,   NULL,            0 },
    { "acosh",        tn_acosh,   NULL,            0 },
    { "atanh",        tn_atanh,   NULL,            0 },
    { "log10",        tn_log10,   NULL,            0 },
    { "erfinv",       tn_erfinv,  NULL,            0 },
    { "lgamma",       tn_lgamma,  NULL,            8 },
    { "digamma",      tn_digamma, NULL,            8 },
    { "signbit",      tn_signbit, NULL,            0 },
    { "atan2",        NULL,       tn_atan2,        0 },
    { "hypot",        NULL,       tn_hypot,        0 },
    { "logaddexp",    NULL,       tn_logaddexp,    1 },
    { "copysign",     NULL,       tn_copysign,     0 },
    { "nextafter",    NULL,       tn_nextafter,    0 },
    { "fmod",         NULL,       tn_fmod,         0 },
    { "trunc_divide", NULL,       tn_trunc_divide, 0 },
};
// clang-format on

// Zeros, infinities and NaN exactly, other numbers within 4 units in the last place.
static bool is_recorded(tn_dtype dt, double y, double want, double least)
{
    if (isnan(want)) return isnan(y);
    if (dt == TN_F32) want = (double)(float)want, y = (double)(float)y;  // ref has more digits
    if (isinf(want) || isinf(y)) return y == want;
    if (want == 0) return least > 0 ? fabs(y) < 1e-6 : y == 0 && !signbit(y) == !signbit(want);
    int e;
    frexp(fmax(fabs(want), least), &e);
    double unit = dt == TN_F32 ? ldexp(1, e < -125 ? -149 : e - 24) : ldexp(1, e - 53);
    return fabs(y - want) <= 4 * unit;
}

static void check_map(tn_ctx *cx, const map_case *m, tn_dtype dt)
{
    const char *file = TN_SOURCE_DIR "/test/recordings/maps.safetensors";
    tn_scope   *s    = tn_begin(cx);
    int64_t     n, count;
    double     *x = recorded(cx, file, "x", &n), *want = recorded(cx, file, m->name, &count);
    double     *y = malloc((size_t)(n * n) * sizeof *y);
    tn_tensor  *t = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(n), x), dt);
    tn_tensor  *r = m->one ? m->one(t) : m->two(tn_unsqueeze(t, 1), t);
    CHECK_INT(count, m->one ? n : n * n);
    CHECK_STATUS(tn_read(r, TN_F64, y, count), TN_OK);
    for (int64_t i = 0; i < count; i++)
        test_case_result(is_recorded(tn_dtype_of(r), y[i], want[i], m->least),
                         "%s of %g, %g: %.9g, PyTorch %.9g", m->name, x[m->one ? i : i / n],
                         x[m->one ? 0 : i % n], y[i], want[i]);
    free(x), free(want), free(y);
    tn_end(s);
}

// PyTorch computed them in f64, and nextafter, of which the dtype is the point, in f32.
static void maps_are_pytorchs_at_every_end(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
            check_map(cx, &maps[i], TN_F32);
            if (maps[i].two != tn_nextafter) check_map(cx, &maps[i], TN_F64);
        }
}

// Integers become f32, but for divisions, which keep them; of 16 bits there is no neighbour.
static void maps_promote_integers_as_pytorch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = tn_from(cx, TN_I32, TN_SHAPE(2), (int32_t[]){ -7, 7 });
        tn_tensor *h   = tn_zeros(cx, TN_F16, TN_SHAPE(2)),
                  *two = tn_full_i64(cx, TN_I32, 0, NULL, 2);
        CHECK(tn_dtype_of(tn_asinh(x)) == TN_F32 && tn_dtype_of(tn_atan2(x, x)) == TN_F32);
        CHECK(tn_dtype_of(tn_copysign(x, x)) == TN_F32);
        CHECK(tn_dtype_of(tn_nextafter(x, x)) == TN_F32 && tn_dtype_of(tn_signbit(x)) == TN_BOOL);
        CHECK(tn_dtype_of(tn_fmod(x, x)) == TN_I32);
        CHECK_VALUES(tn_trunc_divide(x, two), -3, 3);
        CHECK_VALUES(tn_fmod(x, two), -1, 1);
        CHECK_VALUES(tn_signbit(x), 1, 0);
        CHECK(!tn_nextafter(h, h));
        CHECK_FAILED(cx, TN_EDTYPE, "nextafter: f16 is not");
    }
}

const test_case tests_recorded_ops[] = {
    TEST(maps_are_pytorchs_at_every_end),
    TEST(maps_promote_integers_as_pytorch),
    TEST_END,
};
