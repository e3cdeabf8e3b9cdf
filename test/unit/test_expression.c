// test_expression.c: users' ops given as an expression: the language, dtypes, shapes, gradients,
// errors, and that they cost no kernel and no plan of their own.
#include "check.h"
#include "faulty.h"
#include "rules_kit.h"
#include "tenon.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// ---- help --------------------------------------------------------------------------------------

enum { N = 24 };  // elements of the operands

// Values of both signs, also between integers; of integer dtypes they are cut to those. b is
// never 0, c is positive.
static void operands(tn_ctx *cx, tn_dtype dt, tn_tensor **x)
{
    double a[N], b[N], c[N];
    for (int i = 0; i < N; i++) {
        a[i] = (i - 12) * 0.75;
        b[i] = i % 2 ? 1.25 + i % 5 : -1.5 - i % 3;
        c[i] = 1 + i % 7 * 0.5;
    }
    x[0] = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(N), a), dt);
    x[1] = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(N), b), dt);
    x[2] = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(N), c), dt);
}

// How many inputs a text names: up to the last of a, b and c that stands alone in it.
static int count_inputs(const char *expr)
{
    int n = 1;
    for (const char *s = expr; *s; s++) {
        bool word = (s[0] >= 'a' && s[0] <= 'c');
        bool open = s == expr || !(s[-1] == '_' || (s[-1] >= 'a' && s[-1] <= 'z'));
        bool shut = !(s[1] == '_' || (s[1] >= 'a' && s[1] <= 'z') || (s[1] >= '0' && s[1] <= '9'));
        if (word && open && shut && s[0] - 'a' >= n) n = s[0] - 'a' + 1;
    }
    return n;
}

static tn_tensor *by_text(const char *expr, tn_tensor *const *x)
{
    tn_op_def op = { .name = "test", .nin = count_inputs(expr), .expr = expr };
    return tn_custom(&op, x, NULL, 0);
}

// One case: both have the same dtype and nearly the same values.
static void same(const char *device, tn_dtype dt, const char *expr, tn_tensor *y, tn_tensor *want)
{
    double have[N], real[N], off = dt == TN_BF16 ? 0.02 : 1e-5;
    bool   ok = y && want && tn_dtype_of(y) == tn_dtype_of(want) && tn_count(y) == N;
    ok = ok && tn_read(y, TN_F64, have, N) == TN_OK && tn_read(want, TN_F64, real, N) == TN_OK;
    for (int i = 0; ok && i < N; i++) {
        bool nan = have[i] != have[i] && real[i] != real[i];
        ok = nan || have[i] == real[i] || fabs(have[i] - real[i]) <= off * (1 + fabs(real[i]));
    }
    tn_ctx *cx = y ? tn_ctx_of(y) : NULL;
    test_case_result(ok, "%s, %s: %s %s", device, tn_dtype_name(dt), expr, tn_error_text(cx));
}

// ---- the language ------------------------------------------------------------------------------

typedef struct {
    const char *expr;
    tn_tensor *(*by_ops)(tn_tensor *a, tn_tensor *b, tn_tensor *c);
    bool floats;  // for float dtypes alone
} row;

#define BY(name, value)                                                   \
    static tn_tensor *by_##name(tn_tensor *a, tn_tensor *b, tn_tensor *c) \
    {                                                                     \
        (void)a, (void)b, (void)c;                                        \
        return value;                                                     \
    }
BY(sum, tn_sub(tn_add(a, tn_mul(b, c)), a))
BY(left, tn_sub(tn_sub(a, b), c))
BY(group, tn_mul(tn_add(a, b), tn_neg(c)))
BY(quotient, tn_div(tn_div(a, b), c))
BY(rest, tn_remainder(a, b))
BY(parts, tn_add(tn_floor_divide(a, b), tn_pow(c, tn_mul_s(c, 0))))
BY(numbers, tn_add_s(tn_mul_s(a, 3), -2))
BY(fractions, tn_add_s(tn_mul_s(a, 0.125), 1e-3))
BY(third, tn_mul_s(a, 1.0 / 3))
BY(root, tn_mul_s(a, sqrt(2.0 / 3.14159265358979)))
BY(relu, tn_where(tn_gt_s(a, 0), a, tn_mul_s(a, 0)))
BY(step, tn_cast(tn_gt_s(a, 0), tn_dtype_of(a)))
BY(sign3, tn_sign(a))
BY(both, tn_logical_and(tn_le(a, b), tn_ge(c, b)))
BY(either, tn_logical_or(tn_logical_not(tn_lt(a, b)), tn_ne(a, c)))
BY(masks, tn_bit_xor(tn_bit_or(tn_gt(a, b), tn_lt(a, c)), tn_bit_and(tn_eq(a, b), tn_gt(b, c))))
BY(masked, tn_mul(a, tn_gt(b, c)))
BY(extremes, tn_sub(tn_maximum(a, b), tn_minimum(b, c)))
BY(whole, tn_add(tn_abs(tn_neg(a)), tn_sign(b)))
BY(rounded, tn_add(tn_add(tn_floor(a), tn_ceil(b)), tn_add(tn_round(c), tn_trunc(a))))
BY(powers, tn_add(tn_add(tn_exp(a), tn_exp2(b)), tn_expm1(a)))
BY(logs, tn_add(tn_add(tn_log(c), tn_log2(tn_abs(b))), tn_log1p(tn_abs(a))))
BY(turns, tn_add(tn_add(tn_sin(a), tn_cos(b)), tn_add(tn_tan(c), tn_atan(a))))
BY(bends, tn_add(tn_add(tn_tanh(a), tn_erf(b)), tn_add(tn_sqrt(c), tn_rsqrt(c))))
BY(clipped, tn_where(tn_lt_s(a, -1), tn_full(tn_ctx_of(a), tn_dtype_of(a), TN_SHAPE(1), -1),
                     tn_where(tn_gt_s(a, 1), tn_ones_like(a), a)))
BY(itself, tn_clone(a))
#undef BY

static const row rows[] = {
    { "a + b * c - a", by_sum, false },
    { "x0 + x1*c - a", by_sum, false },
    { "a - b - c", by_left, false },
    { " ( a+b ) * - c ", by_group, false },
    { "a / b / c", by_quotient, false },
    { "a % b", by_rest, true },
    { "m_rem(a, b)", by_rest, true },
    { "fdiv(a, b) + m_pow(c, c * 0)", by_parts, true },
    { "a * 3 + -2", by_numbers, false },
    { "a * 3. - 0.2e1f", by_numbers, false },
    { "a * .125 + 1e-3", by_fractions, false },
    { "1 / 3 * a", by_third, true },
    { "a * sqrt(2 / 3.14159265358979)", by_root, true },
    { "a > 0 ? a : a * 0", by_relu, true },
    { "a > 0 ? 1 : 0", by_step, true },
    { "a > 0 ? 1 : a < 0 ? -1 : a", by_sign3, true },
    { "a <= b && c >= b", by_both, false },
    { "!(a < b) || a != c", by_either, false },
    { "(a > b | a < c) ^ (a == b & b > c)", by_masks, false },
    { "a * (b > c)", by_masked, false },
    { "m_max(a, b) - min(b, c)", by_extremes, false },
    { "m_abs(-a) + m_sign(b)", by_whole, false },
    { "m_floor(a) + ceil(b) + (rint(c) + m_trunc(a))", by_rounded, true },
    { "exp(a) + m_exp2(b) + m_expm1(a)", by_powers, true },
    { "m_log(c) + log2(abs(b)) + log1p(abs(a))", by_logs, true },
    { "sin(a) + m_cos(b) + (m_tan(c) + atan(a))", by_turns, true },
    { "m_tanh(a) + erf(b) + (m_sqrt(c) + m_rsqrt(c))", by_bends, true },
    { "a < -1 ? -1 : a > 1 ? 1 : a", by_clipped, true },
    { "a", by_itself, false },
};

static void expressions_agree_with_ops(void)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_F64, TN_BF16, TN_F16, TN_I32, TN_I64 };
    static const char    *device   = NULL;
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        device = device ? "ref" : "cpu";
        for (int d = 0; d < COUNT(dtypes); d++)
            for (int i = 0; i < COUNT(rows); i++) {
                tn_tensor *x[3];
                bool       half = dtypes[d] == TN_BF16 || dtypes[d] == TN_F16;
                if (rows[i].floats && !tni_is_float(dtypes[d])) continue;
                tn_scope *s = tn_begin(cx);
                operands(cx, dtypes[d], x);
                // 16-bit floats are computed in f32 and rounded once.
                tn_tensor *w[3] = { x[0], x[1], x[2] };
                for (int k = 0; half && k < 3; k++) w[k] = tn_cast(x[k], TN_F32);
                tn_tensor *want = rows[i].by_ops(w[0], w[1], w[2]);
                if (half && tn_dtype_of(want) == TN_F32) want = tn_cast(want, dtypes[d]);
                same(device, dtypes[d], rows[i].expr, by_text(rows[i].expr, x), want);
                tn_end(s);
            }
    }
}

// All of them in one step on another device, beside the cpu.
static void expressions_agree_on_opencl(void)
{
    tn_ctx *here = rules_open("cpu"), *there = tn_open("opencl");
    if (!there) {
        tn_close(here);
        SKIP("no opencl: %s", tn_error_text(NULL));
    }
    tn_tensor *x[3], *far[3], *y[COUNT(rows)];
    operands(here, TN_F32, x);
    operands(there, TN_F32, far);
    for (int i = 0; i < COUNT(rows); i++) y[i] = by_text(rows[i].expr, far);
    CHECK_STATUS(tn_eval(there), TN_OK);
    for (int i = 0; i < COUNT(rows); i++)
        same("opencl", TN_F32, rows[i].expr, y[i], by_text(rows[i].expr, x));
    tn_close(there);
    tn_close(here);
}

static void a_chain_of_half_floats_is_rounded_once(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        // 1 + 2^-10 is not a bf16: rounded in between, the difference would be 0.
        tn_tensor *x = tn_full(cx, TN_BF16, TN_SHAPE(2), 1);
        tn_tensor *y = by_text("(a + 0.0009765625) - a", &x);
        CHECK_INT(tn_dtype_of(y), TN_BF16);
        CHECK_VALUES(y, 0.0009765625, 0.0009765625);
    }
}

static void inputs_broadcast(void)
{
    static const tn_op_def op = { .name = "mix", .nin = 3, .expr = "a * b + c" };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x[] = { tn_reshape(rules_ramp(cx, 2), TN_SHAPE(2, 1)), rules_ramp(cx, 3),
                           tn_scalar(cx, 10) };
        tn_tensor *y   = tn_custom(&op, x, NULL, 0);
        CHECK_INT(tn_rank(y), 2);
        CHECK_VALUES(y, 11, 12, 13, 12, 14, 16);
        x[1] = tn_transpose(tn_expand(x[1], TN_SHAPE(2, 3)), 0, 1);  // of another layout
        x[0] = tn_reshape(rules_ramp(cx, 3), TN_SHAPE(3, 1));
        CHECK_VALUES(tn_custom(&op, x, NULL, 0), 11, 11, 14, 14, 19, 19);
        x[2] = rules_ramp(cx, 4);
        CHECK(tn_custom(&op, x, NULL, 0) == NULL);
        CHECK_FAILED2(cx, TN_ESHAPE, "mix: ", "(3, 1) and (3, 2) and (4,)");
    }
}

// With and without grad_expr, of one to three inputs; the shapes broadcast.
static const tn_op_def smooth[] = {
    { .name = "cube", .nin = 1, .expr = "a * a * a" },
    { .name = "cube", .nin = 1, .expr = "a * a * a", .grad_expr = "3 * g * a * a" },
    { .name = "logistic", .nin = 1, .expr = "1 / (1 + exp(-a))", .grad_expr = "g * y * (1 - y)" },
    { .name = "plus", .nin = 2, .expr = "(a + sqrt(a*a + b*b + 1)) / 2" },
    { .name      = "plus",
      .nin       = 2,
      .expr      = "(a + sqrt(a*a + b*b + 1)) / 2",
      .grad_expr = "g * y / (2*y - a); g * b / (2 * (2*y - a))" },
    { .name = "mixed", .nin = 3, .expr = "a * b + sin(c)", .grad_expr = "g*b; g*a; g*cos(c)" },
    { .name      = "chosen",
      .nin       = 2,
      .expr      = "a > 0 ? a * b : b",
      .grad_expr = "a > 0 ? g*b : 0; "
                   "a > 0 ? g*a : g" },
    { .name = "flat", .nin = 2, .expr = "a + b", .grad_expr = "g;g" },
};

// Values that do not lie row-major, with and without a gradient of the user's.
static void the_order_in_memory_does_not_matter(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int i = 3; i < 6; i++) {
            tn_tensor *g[2], *y[2];
            for (int last = 0; last < 2; last++) {
                tn_tensor *w = tn_requires_grad(rules_ramp(cx, 2 * 3 * 4 * 5), true);
                tn_tensor *a = tn_reshape(tn_sin(w), TN_SHAPE(2, 3, 4, 5));
                if (last) a = tn_channels_last(a);
                tn_tensor *x[] = { a, tn_slice(a, 1, 0, 1, 1), tn_scalar(cx, 0.5) };
                y[last]        = tn_custom(&smooth[i], x, NULL, 0);
                tn_tensor *l   = tn_sum_all(tn_mul(y[last], tn_cos(y[last])));
                CHECK_STATUS(tn_grad(1, &l, 1, &w, NULL, &g[last]), TN_OK);
            }
            CHECK(tn_item(tn_sum_all(tn_abs(tn_sub(y[0], y[1])))) < 1e-5);
            CHECK(tn_item(tn_sum_all(tn_abs(tn_sub(g[0], g[1])))) < 1e-5);
            CHECK(tn_item(tn_sum_all(tn_abs(g[0]))) > 1);
        }
}

static void eight_inputs_have_names(void)
{
    static const tn_op_def op = { .name = "many",
                                  .nin  = 8,
                                  .expr = "x0 + 2*x1 + 3*x2 + 4*x3 + 5*x4 + 6*x5 + 7*x6 + 8*x7" };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x[8];
        for (int i = 0; i < 8; i++) x[i] = tn_full(cx, TN_F32, TN_SHAPE(1), i);
        CHECK_VALUES(tn_custom(&op, x, NULL, 0), 168);
    }
}

static void long_texts_are_read(void)
{
    static char text[40000];
    strcpy(text, "a");
    for (size_t n = 1; n + 8 < sizeof text; n += 4) strcpy(text + n, " + 1");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, 1), *y = by_text(text, &x);
        CHECK_VALUES(y, 1 + (double)(strlen(text) / 4));
    }
}

// ---- gradients ---------------------------------------------------------------------------------

static tn_tensor *weighed(tn_tensor *const *x, void *user)
{
    tn_tensor *y = tn_custom(user, x, NULL, 0);
    return tn_sum_all(tn_mul(tn_square(y), tn_cos(y)));
}

static void gradients_agree_with_finite_differences(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int i = 0; i < COUNT(smooth); i++) {
            static const double a[]  = { -1.5, -0.4, 0.3, 0.9, 1.7, 2.2 };
            tn_tensor          *x[]  = { tn_from(cx, TN_F64, TN_SHAPE(2, 3), a),
                                         tn_from(cx, TN_F64, TN_SHAPE(3), a + 2),
                                         tn_from(cx, TN_F64, 0, NULL, a + 4) };
            tn_status           once = tn_gradcheck(weighed, smooth[i].nin, x, (void *)&smooth[i]);
            tn_status twice = tn_gradgradcheck(weighed, smooth[i].nin, x, (void *)&smooth[i]);
            test_case_result(once == TN_OK && twice == TN_OK, "%s, %s: %s", smooth[i].name,
                             smooth[i].grad_expr ? smooth[i].grad_expr : "by itself",
                             tn_error_text(cx));
            tn_error_clear(cx);
        }
}

// A gradient that the value does not have: rounding that lets it pass, and one that is bounded.
static void the_users_gradient_is_the_one_used(void)
{
    static const tn_op_def round = { .name = "st", .nin = 1, .expr = "rint(a)", .grad_expr = "g" };
    static const tn_op_def bound = {
        .name = "bound", .nin = 1, .expr = "a", .grad_expr = "max(-1, min(1, g))"
    };
    static const tn_op_def half = { .name = "half", .nin = 2, .expr = "a*b", .grad_expr = ";g*a" };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, 3), true), *x = tn_mul_s(w, 0.75);
        tn_backward(tn_sum_all(tn_mul_s(tn_custom(&round, &x, NULL, 0), 4)), NULL);
        CHECK_VALUES(tn_grad_of(w), 3, 3, 3);
        tn_zero_grad(w);
        tn_tensor *y = tn_custom(&bound, &w, NULL, 0);
        CHECK_VALUES(y, 1, 2, 3);
        tn_backward(tn_sum_all(tn_mul(y, tn_sub_s(w, 2.5))), NULL);
        // Half of it goes past the op: y = 1, 2, 3 and the bounded -1.5, -0.5, 0.5.
        CHECK_VALUES(tn_grad_of(w), 0, 1.5, 3.5);
        tn_zero_grad(w);
        tn_tensor *v = tn_requires_grad(rules_ramp(cx, 3), true);
        tn_backward(tn_sum_all(tn_custom(&half, (tn_tensor *[]){ w, v }, NULL, 0)), NULL);
        CHECK(!tn_has_grad(w));
        CHECK_VALUES(tn_grad_of(v), 1, 2, 3);
    }
}

static void half_floats_have_gradients(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int i = 0; i < 2; i++) {
            tn_tensor *w = tn_requires_grad(tn_cast(rules_ramp(cx, 3), TN_BF16), true);
            tn_tensor *y = tn_custom(&smooth[i], &w, NULL, 0);
            CHECK_VALUES(y, 1, 8, 27);
            CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
            CHECK_INT(tn_dtype_of(tn_grad_of(w)), TN_BF16);
            CHECK_VALUES(tn_grad_of(w), 3, 12, 27);
        }
}

// ---- life and cost -----------------------------------------------------------------------------

static const tn_op_def leaky = {
    .name = "leaky", .nin = 2, .expr = "a > 0 ? a : b * a", .grad_expr = "a > 0 ? g : b * g;"
};
static const tn_op_def swish = { .name = "swish", .nin = 1, .expr = "a / (1 + exp(-a))" };

static tn_tensor *chain(tn_tensor *x, double slope)
{
    tn_tensor *in[] = { tn_mul_s(x, 2), tn_scalar(tn_ctx_of(x), slope) };
    tn_tensor *y    = tn_add_s(tn_custom(&leaky, in, NULL, 0), 1);
    return tn_tanh(tn_custom(&swish, &y, NULL, 0));
}

// The same by built-in ops.
static tn_tensor *built_in_chain(tn_tensor *x, double slope)
{
    tn_tensor *a = tn_mul_s(x, 2), *y = tn_where(tn_gt_s(a, 0), a, tn_mul_s(a, slope));
    return tn_tanh(tn_silu(tn_add_s(y, 1)));
}

// Kernels of one step: the value, and with back its gradient.
static int64_t kernels_of(tn_ctx *cx, tn_tensor *(*f)(tn_tensor *x, double slope), bool back)
{
    tn_scope *s = tn_begin(cx);
    // Outside the step, so that it is computed before.
    tn_tensor *x = tn_requires_grad(tn_arange(cx, TN_F32, -8, 8, 0.0625), back);
    tn_eval_of(x);
    tn_scope  *inner = tn_begin(cx);
    tn_tensor *y     = f(x, 0.1);
    if (back) tn_backward(tn_sum_all(tn_mul_s(y, 0.5)), NULL);
    else tn_want(y);
    int64_t before = tn_ctx_stats(cx).launches;
    CHECK_STATUS(tn_eval(cx), TN_OK);
    int64_t count = tn_ctx_stats(cx).launches - before;
    tn_end(inner);
    tn_end(s);
    return count;
}

// On a device that runs kernels.
static void a_chain_with_built_ins_is_one_kernel(void)
{
    tn_ctx *cx = rules_open("cpu");
    if (!cx) return;
    int64_t forward = kernels_of(cx, built_in_chain, false);
    if (forward == 1) {
        CHECK_INT(kernels_of(cx, chain, false), 1);
        CHECK_INT(kernels_of(cx, chain, true), kernels_of(cx, built_in_chain, true));
    }
    tn_close(cx);
    if (forward != 1) SKIP("the cpu device runs op by op");
}

static void a_second_step_plans_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w     = tn_requires_grad(rules_ramp(cx, 8), true);
        int64_t    plans = 0, nodes = 0;
        for (int step = 0; step < 6; step++) {
            tn_scope *s = tn_begin(cx);
            tn_backward(tn_mean_all(chain(w, 0.1 * step)), NULL);
            tn_grad_mode(cx, false);
            tn_sub_(w, tn_mul_s(tn_grad_of(w), 0.1));
            tn_grad_mode(cx, true);
            tn_zero_grad(w);
            tn_end(s);
            tn_eval(cx);
            if (step == 2) plans = tn_ctx_stats(cx).plans, nodes = tn_ctx_stats(cx).nodes;
        }
        CHECK_INT(tn_ctx_stats(cx).plans, plans);
        CHECK_INT(tn_ctx_stats(cx).nodes, nodes);
        CHECK(isfinite(tn_item(tn_sum_all(w))));
    }
}

// A state that each step makes from the last one: once a backward pass went through, the steps
// before are let go.
static void a_state_carried_on_does_not_grow(void)
{
    static const tn_op_def mix = {
        .name = "mix", .nin = 2, .expr = "tanh(a * b)", .grad_expr = "g*(1-y*y)*b; g*(1-y*y)*a"
    };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, 4), true), *h = tn_keep(rules_ramp(cx, 4));
        int64_t    nodes = 0, bytes = 0;
        for (int step = 0; step < 12; step++) {
            tn_scope  *s    = tn_begin(cx);
            tn_tensor *next = tn_keep(tn_custom(&mix, (tn_tensor *[]){ h, w }, NULL, 0));
            CHECK_STATUS(tn_backward(tn_sum_all(next), NULL), TN_OK);
            tn_eval(cx);
            tn_drop(h);
            h = tn_keep(tn_detach(next));
            if (next != h) tn_drop(next);
            tn_end(s);
            if (step == 4) nodes = tn_ctx_stats(cx).nodes, bytes = tn_ctx_stats(cx).bytes;
        }
        CHECK_INT(tn_ctx_stats(cx).nodes, nodes);
        CHECK_INT(tn_ctx_stats(cx).bytes, bytes);
    }
}

static void spent_history_is_an_error(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, 3), true);
        tn_tensor *y = tn_want(tn_custom(&smooth[1], &w, NULL, 0)), *l = tn_sum_all(y);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);  // before the step ends it accumulates
        tn_eval(cx);
        CHECK_VALUES(tn_grad_of(w), 6, 24, 54);
        CHECK_VALUES(y, 1, 8, 27);
        CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_EGRAD);
        tn_error_clear(cx);
        // A value read before the backward pass keeps what the gradient wants.
        tn_zero_grad(w);
        y = tn_custom(&smooth[1], (tn_tensor *[]){ tn_mul_s(w, 2) }, NULL, 0);
        CHECK_VALUES(y, 8, 64, 216);
        CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 24, 96, 216);
    }
}

// ---- errors ------------------------------------------------------------------------------------

typedef struct {
    int         nin, nout;
    const char *expr, *grad_expr, *text;
} wrong;

static const wrong wrongs[] = {
    { 1, 0, "(a * 2", NULL, "leaky: expr: column 7: \")\" expected" },
    { 1, 0, "a +", NULL, "leaky: expr: column 4: a value expected" },
    { 1, 0, "a b", NULL, "leaky: expr: column 3: an operator expected" },
    { 1, 0, "a $", NULL, "leaky: expr: column 3: an operator expected" },
    { 1, 0, "1.2.3 * a", NULL, "leaky: expr: column 4: an operator expected" },
    { 1, 0, "a * 1e999", NULL, "leaky: expr: column 5: the number is too large" },
    { 1, 0, "a << 2", NULL, "leaky: expr: column 4: a value expected" },
    { 1, 0, "sinus(a)", NULL, "leaky: expr: column 1: \"sinus\" is no function" },
    { 1, 0, "alpha * a", NULL, "leaky: expr: column 1: \"alpha\" is no input and no function" },
    { 1, 0, "a * exp", NULL, "leaky: expr: column 8: \"(\" expected" },
    { 1, 0, "max(a)", NULL, "leaky: expr: column 6: \",\" expected" },
    { 1, 0, "exp(a, a)", NULL, "leaky: expr: column 6: \")\" expected" },
    { 1, 0, "a ? 1", NULL, "leaky: expr: column 6: \":\" expected" },
    { 1, 0, "g * a", NULL, "leaky: expr: column 1: \"g\" is a name of grad_expr alone" },
    { 1, 0, "a * b", NULL, "leaky: expr: column 5: \"b\" is not an input: nin is 1" },
    { 1, 0, "a; a", NULL, "leaky: expr: column 2: an operator expected" },
    { 1, 0, "2 + 3", NULL, "leaky: expr: it uses no input" },
    { 1, 0, "", NULL, "leaky: expr: it uses no input" },
    { 2, 0, "a", NULL, "leaky: expr: nin is 2, but input 1 (b) is not used" },
    { 9, 0, "a", NULL, "leaky: expr: nin is 9, and 8 inputs have names" },
    { 1, 2, "a", NULL, "leaky: expr: it gives one result, and nout is 2" },
    { 1, 0, "a", "g * (a", "leaky: grad_expr: column 7: \")\" expected" },
    { 2, 0, "a * b", "g * b", "leaky: grad_expr: 1 given for 2 inputs" },
    { 1, 0, "a * a", "g; g", "leaky: grad_expr: column 2: more than nin, 1, gradients" },
    { 1, 0, "a & 1.5", NULL, "bit_and: " },
};

static void what_is_wrong_is_said_with_its_column(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x[9], *y[2];
        for (int i = 0; i < 9; i++) x[i] = rules_ramp(cx, 3);
        for (int i = 0; i < COUNT(wrongs); i++) {
            const wrong *w  = &wrongs[i];
            tn_op_def    op = { .name      = "leaky",
                                .nin       = w->nin,
                                .nout      = w->nout,
                                .expr      = w->expr,
                                .grad_expr = w->grad_expr };
            tn_status    s  = tn_custom_n(&op, x, NULL, 0, y);
            const char  *t  = tn_error_text(cx);
            test_case_result(s != TN_OK && s == tn_error(cx) && strstr(t, w->text), "\"%s\": %s",
                             w->expr, t);
            tn_error_clear(cx);
        }
        CHECK(tn_custom(&swish, x, &(int){ 1 }, sizeof(int)) == NULL);
        CHECK_FAILED2(cx, TN_EARG, "swish: ", "attr");
        CHECK_VALUES(tn_mul_s(x[0], 2), 2, 4, 6);
    }
}

static void nesting_is_bounded(void)
{
    static char text[20000];
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        static const char *const open[] = { "(", "-", "abs(", "1 ? a : ", "(-" };
        tn_tensor               *x      = rules_ramp(cx, 2);
        for (int i = 0; i < COUNT(open); i++) {
            *text = 0;
            for (size_t n = 0; n + 100 < sizeof text; n += strlen(open[i]))
                strcpy(text + n, open[i]);
            CHECK(by_text(text, &x) == NULL);
            CHECK_FAILED(cx, TN_EARG, "nested deeper than 64");
        }
        // As deep as allowed: 60 pairs of parentheses.
        memset(text, '(', 60);
        text[60] = 'a';
        memset(text + 61, ')', 60);
        text[121] = 0;
        CHECK_VALUES(by_text(text, &x), 1, 2);
    }
}

// Texts of random words, some of them nearly right, through the reader alone and now and then to a
// value.
static void any_text_is_read_or_refused(void)
{
    static const char *const words[] = {
        "a",   "b",  "x0", "x7", "g", "y", "(",     ")",      "((",  "+",     "-",    "*",   "/",
        "%",   "?",  ":",  "!",  "~", "&", "&&",    "|",      "||",  "^",     "<",    "<=",  "==",
        "!=",  "1",  "0",  ".5", "2", ";", ",",     "m_exp(", "max", "where", "a ",   "0x1", "m_",
        "1e3", "1e", ".",  "e",  "_", " ", "tanh(", "a+b",    "(a)", "\n",    "\x80", "$",
    };
    enum { TEXTS = 200000, WORDS = COUNT(words) };
    tn_ctx *cx = rules_open("cpu");
    if (!cx) return;
    uint64_t   seed = 12345;
    int        good = 0;
    tn_tensor *x[]  = { tn_requires_grad(rules_ramp(cx, 2), true), rules_ramp(cx, 2) };
    for (int i = 0; i < TEXTS; i++) {
        char   text[160] = "";
        size_t n         = 0;
        seed             = seed * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t r = seed >> 20, left = 1 + r % 12; left > 0; left--) {
            seed          = seed * 6364136223846793005u + 1442695040888963407u;
            const char *w = words[(seed >> 33) % WORDS];
            strcpy(text + n, w);
            n += strlen(w);
        }
        tn_scope  *s  = tn_begin(cx);
        tn_op_def  op = { .name      = "fuzz",
                          .nin       = 1 + i % 2,
                          .expr      = i % 4 < 2 ? text : "a",
                          .grad_expr = i % 4 < 2 ? NULL : text };
        tn_tensor *y  = tn_custom(&op, x, NULL, 0);
        good += y != NULL;
        if (y && i % 8 == 0 && tn_needs_grad(y)) tn_backward(tn_sum_all(y), NULL);
        if (!y && tn_error(cx) == TN_OK) test_that(false, "no error: %s", text);
        tn_error_clear(cx);
        tn_end(s);
    }
    CHECK(good > TEXTS / 200);
    CHECK_VALUES(tn_mul_s(x[1], 2), 2, 4);
    tn_close(cx);
}

// Every allocation fails once: then the call is an error, and the next one works.
static void memory_may_run_out(void)
{
    long n = 1;
    for (bool failed = true; failed; n++) {
        faulty  h  = { 0 };
        tn_ctx *cx = faulty_open("cpu", &h);
        if (!CHECK(cx != NULL)) return;
        tn_tensor *x[] = { tn_requires_grad(rules_ramp(cx, 3), true), tn_scalar(cx, 0.5) };
        h.countdown    = n;
        tn_tensor *y   = tn_custom(&leaky, x, NULL, 0);
        tn_status  s   = y ? tn_backward(tn_sum_all(y), NULL) : tn_error(cx);
        failed         = h.failed > 0;
        test_case_result(failed ? s == TN_EMEM || s == TN_OK : s == TN_OK, "allocation %ld: %s", n,
                         tn_error_text(cx));
        h.countdown = 0;
        tn_error_clear(cx);
        tn_zero_grad(x[0]);
        y = tn_custom(&leaky, x, NULL, 0);
        CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(x[0]), 1, 1, 1);
        tn_close(cx);
        test_that(faulty_left(&h) == 0, "allocation %ld: %ld blocks left", n, faulty_left(&h));
    }
    CHECK(n > 10);
}

// A table need not stay where it was, and an op of another text is another op.
static void ops_are_told_apart_by_their_texts(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_requires_grad(rules_ramp(cx, 2), true), *y[2];
        for (int i = 0; i < 2; i++) {
            char      text[] = "a * 2", grad[] = "g * 5";
            tn_op_def op = { .name = "same", .nin = 1, .expr = text, .grad_expr = grad };
            text[4]      = (char)('2' + i);
            grad[4]      = (char)('5' + i);
            y[i]         = tn_custom(&op, &x, NULL, 0);
            memset(text, 'z', sizeof text - 1);
            memset(grad, 'z', sizeof grad - 1);
        }
        CHECK_VALUES(y[0], 2, 4);
        CHECK_VALUES(y[1], 3, 6);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_add(y[0], y[1])), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(x), 11, 11);
    }
}

const test_case tests_expression[] = {
    TEST(expressions_agree_with_ops),
    TEST(expressions_agree_on_opencl),
    TEST(a_chain_of_half_floats_is_rounded_once),
    TEST(inputs_broadcast),
    TEST(the_order_in_memory_does_not_matter),
    TEST(eight_inputs_have_names),
    TEST(long_texts_are_read),
    TEST(gradients_agree_with_finite_differences),
    TEST(the_users_gradient_is_the_one_used),
    TEST(half_floats_have_gradients),
    TEST(a_chain_with_built_ins_is_one_kernel),
    TEST(a_second_step_plans_nothing),
    TEST(a_state_carried_on_does_not_grow),
    TEST(spent_history_is_an_error),
    TEST(what_is_wrong_is_said_with_its_column),
    TEST(nesting_is_bounded),
    TEST(any_text_is_read_or_refused),
    TEST(memory_may_run_out),
    TEST(ops_are_told_apart_by_their_texts),
    TEST_END,
};
