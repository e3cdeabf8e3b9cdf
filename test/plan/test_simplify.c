// test_simplify.c: the rules of simplify.def. Each is built from its own text as a graph of public
// calls, pattern and result: both have to become the same kernel, and its values the bits that op
// by op gives, on all that is awkward in a dtype.
#include "check.h"
#include "rules_kit.h"

#include "plan/simplify.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 256, SIDE = 16, LETTERS = 4, ROOM = 1 << 14, MOST = N * 8 };

// ---- awkward values ----------------------------------------------------------------------------

static const double floats[SIDE] = {
    0.0,  -0.0,   NAN,    INFINITY, -INFINITY, 1.0,    -1.0,   0.5,
    -2.5, 3.0e38, 1e-310, 1e-40,    -1e-40,    6.0e-8, 2.0001, -7
};

static const int64_t integers[SIDE] = { 0,         1,         -1,  2,    -2,        127,
                                        -128,      128,       255, -255, INT32_MAX, INT32_MIN,
                                        INT64_MAX, INT64_MIN, 7,   -77 };

// Letter k of a pattern: x runs fast, y slowly, the others mix, so that all pairs occur.
static int pick(int k, int i)
{
    const int at[LETTERS] = { i % SIDE, i / SIDE, (i + i / SIDE) % SIDE, (3 * i + 5) % SIDE };
    return at[k];
}

// A context that runs op by op, or fuses and interprets.
static tn_ctx *open_way(bool eager)
{
    setenv("TN_EAGER", eager ? "1" : "0", 1);
    tn_ctx *cx = rules_open("cpu");
    unsetenv("TN_EAGER");
    return cx;
}

static tn_tensor *input(tn_ctx *cx, int k, tn_dtype dt)
{
    double     f[N];
    int64_t    l[N];
    bool       real = tni_is_float(dt);
    tn_tensor *t;
    for (int i = 0; i < N; i++) {
        f[i] = floats[pick(k, i)];
        l[i] = dt == TN_BOOL ? pick(k, i) & 1 : integers[pick(k, i)];
    }
    t = real ? tn_from(cx, TN_F64, TN_SHAPE(N), f) : tn_from(cx, TN_I64, TN_SHAPE(N), l);
    t = tn_clone(tn_cast(t, dt));
    tn_eval_of(t);
    return t;
}

// ---- a graph from text -------------------------------------------------------------------------

// Letters as tensors.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *letter[LETTERS];
} words;

static tn_tensor *call(const char *op, tn_tensor *a, tn_tensor *b, tn_tensor *c)
{
#define OP1(name) \
    if (!strcmp(op, #name)) return tn_##name(a);
#define OP2(name) \
    if (!strcmp(op, #name)) return tn_##name(a, b);
    // clang-format off
    OP1(neg) OP1(abs) OP1(sign) OP1(floor) OP1(ceil) OP1(round) OP1(trunc) OP1(isnan) OP1(isinf)
    OP1(isfinite) OP1(logical_not) OP1(bit_not)
    OP2(add) OP2(sub) OP2(mul) OP2(div) OP2(maximum) OP2(minimum) OP2(eq) OP2(ne) OP2(lt) OP2(le)
    OP2(gt) OP2(ge) OP2(logical_and) OP2(logical_or) OP2(logical_xor) OP2(bit_and) OP2(bit_or)
    OP2(bit_xor)
        // clang-format on
        if (!strcmp(op, "where")) return tn_where(a, b, c);
    test_that(false, "no call for the op %s of a rule", op);
    return NULL;
}

// The expression at *p, which goes on to what follows.
static tn_tensor *build(words *g, const char **p)
{
    char       op[32] = "";
    size_t     n      = strspn(*p, "abcdefghijklmnopqrstuvwxyz_");
    tn_tensor *a[3]   = { NULL, NULL, NULL };
    snprintf(op, sizeof op, "%.*s", (int)n, *p);
    *p += n;
    if (**p != '(') {
        if (!strcmp(op, "yes")) return tn_isfinite(input(g->cx, 0, TN_I32));
        if (!strcmp(op, "no")) return tn_isnan(input(g->cx, 1, TN_I32));
        return g->letter[strchr("xyzw", op[0]) - "xyzw"];
    }
    for (int k = 0; k < 3 && **p != ')'; k++) {
        *p += strspn(*p, "(, ");
        a[k] = build(g, p);
    }
    ++*p;
    return call(op, a[0], a[1], a[2]);
}

// ---- the kernel --------------------------------------------------------------------------------

// The instructions of what is pending, a line each, how they vary left out; "" if that is not one
// kernel.
static void instructions(tn_ctx *cx, char *out)
{
    char  *text = NULL, *rest = NULL;
    size_t size = 0, n = 0;
    int    kernels = 0;
    FILE  *f       = open_memstream(&text, &size);
    *out           = 0;
    if (!CHECK(f != NULL)) return;
    tn_explain_with(cx, f, (tn_explain_opts){ .source = true });
    fclose(f);
    sscanf(text, "%d kernel", &kernels);
    for (char *line = strtok_r(text, "\n", &rest); kernels == 1 && line;
         line       = strtok_r(NULL, "\n", &rest)) {
        int  number;
        char code[16], *end = strstr(line, "  (");
        if (sscanf(line, "%d %15[a-z]", &number, code) != 2 || !end) continue;
        end[strcspn(end, ",)")] = 0;
        n += (size_t)snprintf(out + n, ROOM - n, "%s\n", line);
    }
    free(text);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) n++;
    return n;
}

// ---- one rule on one dtype ---------------------------------------------------------------------

typedef struct {
    const char *pattern, *result, *when;
    char        text[128];
} row;

static bool parse(row *r, int i)
{
    const char *text = tni_simplify_text(i);
    if (!text) return false;
    snprintf(r->text, sizeof r->text, "%s", text);
    char *arrow = strstr(r->text, " -> "), *comma = strrchr(r->text, ',');
    r->pattern = r->text;
    r->result  = arrow + 4;
    r->when    = comma + 2;
    *arrow = *comma = 0;
    return true;
}

// Whether a rule is meant for letters of this dtype.
static bool is_for(const row *r, tn_dtype dt)
{
    static const char *const floating[] = { "div(", "floor(", "ceil(", "round(", "trunc(" };
    bool                     real       = tni_is_float(dt);
    // Of integers, div casts and floor and its kind record nothing.
    for (int k = 0; k < 5 && !real; k++)
        if (!strncmp(r->pattern, floating[k], strlen(floating[k]))) return false;
    if (!strcmp(r->when, "BOOLEAN")) return dt == TN_BOOL || strstr(r->pattern, "where(");
    if (strstr(r->when, "INTEGER")) return !real;
    if (!strcmp(r->when, "SIGNED")) return dt > TN_U8;
    if (!strcmp(r->when, "UNSIGNED")) return dt == TN_U8;
    if (!strcmp(r->when, "WHOLE")) return real;
    return true;
}

static words make_letters(tn_ctx *cx, const row *r, tn_dtype dt)
{
    words g      = { .cx = cx };
    bool  choice = strstr(r->pattern, "where(x") || strstr(r->pattern, "where(logical_not(x");
    for (int k = 0; k < LETTERS; k++) g.letter[k] = input(cx, k, k == 0 && choice ? TN_BOOL : dt);
    return g;
}

// Text over letters of dt.
static tn_tensor *build_text(words *g, const row *r, const char *text)
{
    tn_tensor *x = g->letter[0];
    if (!strcmp(r->when, "WHOLE")) g->letter[0] = tn_round(x);
    tn_tensor *t = build(g, &text);
    g->letter[0] = x;
    return t;
}

// A value that no rule is about and that reads all letters, so that in a kernel they have their
// numbers whatever follows: in order, or y before x where the rule is about that.
static tn_tensor *read_letters(const words *g, const row *r)
{
    int        first = !strncmp(r->when, "LATER", 5);
    tn_tensor *all   = tn_cast(g->letter[first], TN_F32);
    for (int k = 1; k < LETTERS; k++)
        all = tn_pow(all, tn_cast(g->letter[k < 2 ? k ^ first : k], TN_F32));
    return all;
}

// What text gives, a bool as a number, so that it has to be one; its bytes, 0 if the dtype is
// refused.
static size_t run_text(tn_ctx *cx, const row *r, const char *text, tn_dtype dt, char *bits)
{
    tn_scope *s     = tn_begin(cx);
    words     g     = make_letters(cx, r, dt);
    size_t    bytes = 0;
    read_letters(&g, r);
    tn_tensor *t = build_text(&g, r, text);
    if (t && tn_dtype_of(t) == TN_BOOL) t = tn_cast(t, TN_U8);
    if (t) {
        tn_dtype as = tn_dtype_of(t);
        bool     ok = tn_eval(cx) == TN_OK && tn_read(t, as, bits, N) == TN_OK;
        test_that(ok, "%s of %s: %s", text, tn_dtype_name(dt), tn_error_text(cx));
        if (ok) bytes = N * tni_dtype_size(as);
    }
    tn_error_clear(cx);
    tn_end(s);
    return bytes;
}

static void show_text(tn_ctx *cx, const row *r, const char *text, tn_dtype dt, char *kernel)
{
    tn_scope  *s   = tn_begin(cx);
    words      g   = make_letters(cx, r, dt);
    tn_tensor *all = read_letters(&g, r);
    tn_pow(all, tn_cast(build_text(&g, r, text), TN_F32));
    instructions(cx, kernel);
    tn_end(s);
}

// Whether two elements of a float dtype are both NaN.
static bool are_nans(size_t size, const char *a, const char *b)
{
    static const uint64_t inf[] = { 0, 0, 0x7c00, 0, 0x7f800000, 0, 0, 0, 0x7ff0000000000000 };
    uint64_t              x = 0, y = 0, sign = 1ull << (8 * size - 1);
    memcpy(&x, a, size);
    memcpy(&y, b, size);
    return (x & ~sign) > inf[size] && (y & ~sign) > inf[size];
}

// Elements that differ in any bit; NaNs are alike.
static int differing(const char *a, const char *b, size_t bytes, bool real)
{
    size_t size = bytes / N;
    int    n    = 0;
    for (size_t at = 0; at < bytes; at += size)
        n += memcmp(a + at, b + at, size) && !(real && are_nans(size, a + at, b + at));
    return n;
}

static void try_rule(tn_ctx *fused, tn_ctx *eager, const row *r, tn_dtype dt, int *fired)
{
    static char kernel[ROOM], wanted[ROOM], have[MOST], want[MOST];
    const char *dtype = tn_dtype_name(dt);
    bool        known = !strcmp(r->result, "yes") || !strcmp(r->result, "no");
    size_t      bytes = run_text(fused, r, r->pattern, dt, have);
    if (!bytes || !CHECK(run_text(eager, r, r->pattern, dt, want) == bytes)) return;
    int off = differing(have, want, bytes, bytes / N > 1 && tni_is_float(dt));
    test_case_result(off == 0, "%s of %s: %d of %d elements are not those of op by op", r->pattern,
                     dtype, off, N);
    if (!is_for(r, dt)) return;
    show_text(fused, r, r->pattern, dt, kernel);
    snprintf(wanted, sizeof wanted, "%s", kernel);
    if (!known) show_text(fused, r, r->result, dt, wanted);
    bool same = known ? count(kernel, " map ") == 4 : !strcmp(kernel, wanted);
    test_case_result(*kernel && same, "%s of %s is\n%sand not %s:\n%s", r->pattern, dtype, kernel,
                     r->result, known ? "" : wanted);
    ++*fired;
}

// Casts have dtypes besides, and tests of their own below.
static bool casts(const row *r)
{
    return strstr(r->pattern, "cast(") != NULL;
}

static void every_rule_fires_and_keeps_every_bit(void)
{
    tn_ctx *fused = open_way(false), *eager = open_way(true);
    row     r;
    for (int i = 0; fused && eager && parse(&r, i); i++) {
        int fired = 0;
        if (casts(&r)) continue;
        for (int dt = TN_BOOL; dt <= TN_F64; dt++) try_rule(fused, eager, &r, (tn_dtype)dt, &fired);
        test_case_result(fired > 0, "%s -> %s, %s: no graph of it was planned", r.pattern, r.result,
                         r.when);
    }
    tn_close(fused);
    tn_close(eager);
}

// ---- casts -------------------------------------------------------------------------------------

static void rules_of_casts_are_the_ones_tested_here(void)
{
    static const char *const known[] = { "logical_not(cast(x)) -> logical_not(x), LOSSLESS",
                                         "cast(x) -> x, SAME",
                                         "cast(cast(x)) -> cast(x), LOSSLESS" };
    int                      n       = 0;
    row                      r;
    for (int i = 0; parse(&r, i); i++)
        if (casts(&r) && CHECK(n < 3)) CHECK_STR(tni_simplify_text(i), known[n++]);
    CHECK_INT(n, 3);
}

// Whether every value of a dtype is one of another, by the limits of each.
static bool holds(tn_dtype wide, tn_dtype dt)
{
    static const char *const wider[] = {
        [TN_BOOL] = "bool u8 i8 i32 i64 f16 bf16 f32 f64",
        [TN_U8]   = "u8 i32 i64 f16 bf16 f32 f64",
        [TN_I8]   = "i8 i32 i64 f16 bf16 f32 f64",
        [TN_I32]  = "i32 i64 f64",
        [TN_I64]  = "i64",
        [TN_F16]  = "f16 f32 f64",
        [TN_BF16] = "bf16 f32 f64",
        [TN_F32]  = "f32 f64",
        [TN_F64]  = "f64",
    };
    char list[64], name[16];
    snprintf(list, sizeof list, " %s ", wider[dt]);
    snprintf(name, sizeof name, " %s ", tn_dtype_name(wide));
    return strstr(list, name) != NULL;
}

// x as one dtype, then as another, and then whether that is zero, if asked.
static size_t run_casts(tn_ctx *cx, tn_dtype from, tn_dtype by, tn_dtype to, bool zero,
                        char *kernel, char *bits)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = input(cx, 0, from), *t = tn_cast(x, by);
    t = zero ? tn_logical_not(t) : tn_cast(t, to);
    instructions(cx, kernel);
    if (zero) to = TN_BOOL;
    size_t bytes = tn_read(t, to, bits, N) == TN_OK ? N * tni_dtype_size(to) : 0;
    tn_end(s);
    return bytes;
}

static void try_casts(tn_ctx *fused, tn_ctx *eager, tn_dtype from, tn_dtype by, tn_dtype to)
{
    static char kernel[ROOM], unused[ROOM], have[MOST], want[MOST];
    const char *a = tn_dtype_name(from), *b = tn_dtype_name(by), *c = tn_dtype_name(to);
    size_t      bytes = run_casts(fused, from, by, to, false, kernel, have);
    if (!CHECK(bytes && run_casts(eager, from, by, to, false, unused, want) == bytes)) return;
    int off = differing(have, want, bytes, tni_is_float(to));
    test_case_result(off == 0, "%s as %s as %s: %d of %d elements are not those of op by op", a, b,
                     c, off, N);
    // A cast back to x's own dtype leaves the copy of x, which is a cast in name.
    // An integer wraps where it becomes a narrower one, and does not where it comes from a float.
    bool wraps = tni_is_float(by) && !tni_is_float(from) && to > TN_BOOL && !tni_is_float(to) &&
                 !holds(to, from);
    int casts_left = holds(by, from) && !wraps ? 1 : 2;
    test_case_result(count(kernel, "  cast ") == casts_left, "%s as %s as %s takes\n%s", a, b, c,
                     kernel);
}

static void only_casts_that_lose_something_stay(void)
{
    tn_ctx *fused = open_way(false), *eager = open_way(true);
    for (int from = TN_BOOL; fused && eager && from <= TN_F64; from++)
        for (int by = TN_BOOL; by <= TN_F64; by++)
            for (int to = TN_BOOL; to <= TN_F64; to++)
                if (from != by && by != to)
                    try_casts(fused, eager, (tn_dtype)from, (tn_dtype)by, (tn_dtype)to);
    tn_close(fused);
    tn_close(eager);
}

static void zero_is_told_before_a_cast_that_loses_nothing(void)
{
    static char kernel[ROOM], unused[ROOM], have[MOST], want[MOST];
    tn_ctx     *fused = open_way(false), *eager = open_way(true);
    for (int from = TN_BOOL; fused && eager && from <= TN_F64; from++)
        for (int by = TN_BOOL; by <= TN_F64; by++) {
            tn_dtype a = (tn_dtype)from, b = (tn_dtype)by;
            if (a == b) continue;
            CHECK_INT(run_casts(fused, a, b, b, true, kernel, have), N);
            CHECK_INT(run_casts(eager, a, b, b, true, unused, want), N);
            test_case_result(!memcmp(have, want, N) && count(kernel, " cast ") == !holds(b, a),
                             "not of %s as %s:\n%s", tn_dtype_name(a), tn_dtype_name(b), kernel);
        }
    tn_close(fused);
    tn_close(eager);
}

static void a_cast_to_the_same_dtype_is_none(void)
{
    static char kernel[ROOM];
    tn_ctx     *cx = open_way(false);
    tn_scope   *s  = tn_begin(cx);
    tn_tensor  *x  = input(cx, 0, TN_I64);
    tn_sum_all(x);  // sums i64, which i64 has to become first
    instructions(cx, kernel);
    CHECK(count(kernel, " reduce ") == 1 && !count(kernel, " cast "));
    tn_end(s);
    tn_close(cx);
}

static void a_narrowing_cast_stays_whatever_follows(void)
{
    static char kernel[ROOM];
    tn_ctx     *cx = open_way(false);
    tn_scope   *s  = tn_begin(cx);
    tn_tensor  *x  = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 1.001f, 65537.0f });
    tn_tensor  *y  = tn_mul_s(tn_cast(tn_cast(x, TN_F16), TN_F32), 1);
    tn_tensor  *z  = tn_mul_s(tn_cast(tn_cast(x, TN_BF16), TN_F32), 1);
    instructions(cx, kernel);
    CHECK_INT(count(kernel, "(f16") + count(kernel, "(bf16"), 2);
    CHECK_VALUES(y, 1.0009765625, INFINITY);
    CHECK_VALUES(z, 1.0, 65536.0);
    tn_end(s);
    tn_close(cx);
}

// In a kernel a sum of bf16 is an f32; one that is widened has been rounded by that, and narrowing
// it again changes nothing.
static void what_was_not_rounded_yet_is_rounded_by_a_cast_there_and_back(void)
{
    static char kernel[ROOM];
    tn_ctx     *cx = open_way(false);
    tn_scope   *s  = tn_begin(cx);
    tn_tensor  *x = input(cx, 0, TN_BF16), *y = input(cx, 1, TN_BF16);
    tn_neg(tn_cast(tn_cast(tn_add(x, y), TN_F32), TN_BF16));
    instructions(cx, kernel);
    CHECK_INT(count(kernel, " cast "), 1);
    tn_end(s);
    tn_close(cx);
}

// ---- what follows from the rules ---------------------------------------------------------------

static void operands_in_either_order_are_one_value(void)
{
    static char kernel[ROOM];
    tn_ctx     *cx = open_way(false);
    tn_scope   *s  = tn_begin(cx);
    tn_tensor  *x = input(cx, 0, TN_F32), *y = input(cx, 1, TN_F32);
    tn_where(tn_lt(x, y), tn_add(x, y), tn_where(tn_gt(y, x), tn_neg(x), tn_add(y, x)));
    instructions(cx, kernel);
    test_that(count(kernel, " map ") == 1 && count(kernel, "add") == 1, "%s", kernel);
    tn_end(s);
    tn_close(cx);
}

// The gradient of tanh has g * (1 + -(y * y)).
static void gradients_lose_their_signs(void)
{
    static char kernel[ROOM];
    tn_ctx     *cx = open_way(false);
    tn_scope   *s  = tn_begin(cx);
    tn_tensor  *x  = tn_requires_grad(input(cx, 0, TN_F32), true);
    tn_backward(tn_sum_all(tn_tanh(x)), NULL);
    instructions(cx, kernel);
    test_that(*kernel && !count(kernel, " neg ") && count(kernel, " sub ") == 1, "%s", kernel);
    tn_end(s);
    tn_close(cx);
}

static void a_condition_that_decides_nothing_still_checks_its_indices(void)
{
    tn_ctx    *cx = open_way(false);
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *x  = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 1, 2, 3 });
    tn_tensor *at = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 0, 7, 1 });
    tn_tensor *y  = tn_where(tn_gt_s(tn_gather(x, 0, at), 1), x, x);
    CHECK(tn_eval_of(y) != TN_OK);
    CHECK(tn_error_text(cx)[0] != 0);
    tn_error_clear(cx);
    tn_end(s);
    tn_close(cx);
}

// What a rule leaves behind is gone: values, loads, numbers.
static void nothing_is_read_for_what_was_simplified(void)
{
    static char kernel[ROOM];
    tn_ctx     *cx = open_way(false);
    tn_scope   *s  = tn_begin(cx);
    tn_tensor  *x = input(cx, 0, TN_F32), *y = input(cx, 1, TN_F32), *z = input(cx, 2, TN_F32);
    tn_mul(x, tn_where(tn_lt(tn_mul_s(z, 3), y), x, x));
    instructions(cx, kernel);
    test_that(count(kernel, " load ") == 1 && count(kernel, " map ") == 1 &&
                  !count(kernel, " number "),
              "%s", kernel);
    tn_end(s);
    tn_close(cx);
}

// Too costly to be computed by each of its readers, the negative would be a value of its own, if
// only they read it.
static void a_value_that_rules_made_useless_is_not_computed(void)
{
    static char kernel[ROOM];
    tn_ctx     *cx = open_way(false);
    tn_scope   *s  = tn_begin(cx);
    tn_tensor  *x = input(cx, 0, TN_F32), *y = input(cx, 1, TN_F32), *costly = x;
    for (int i = 0; i < 32; i++) costly = tn_exp(costly);
    tn_tensor *minus = tn_neg(costly);
    tn_add(y, minus);
    tn_add(x, minus);
    instructions(cx, kernel);
    test_that(count(kernel, " sub ") == 2 && !count(kernel, " neg "), "%s", kernel);
    tn_end(s);
    tn_close(cx);
}

const test_case tests_simplify[] = {
    TEST(every_rule_fires_and_keeps_every_bit),
    TEST(rules_of_casts_are_the_ones_tested_here),
    TEST(only_casts_that_lose_something_stay),
    TEST(zero_is_told_before_a_cast_that_loses_nothing),
    TEST(a_cast_to_the_same_dtype_is_none),
    TEST(a_narrowing_cast_stays_whatever_follows),
    TEST(what_was_not_rounded_yet_is_rounded_by_a_cast_there_and_back),
    TEST(operands_in_either_order_are_one_value),
    TEST(gradients_lose_their_signs),
    TEST(a_condition_that_decides_nothing_still_checks_its_indices),
    TEST(nothing_is_read_for_what_was_simplified),
    TEST(a_value_that_rules_made_useless_is_not_computed),
    TEST_END,
};
