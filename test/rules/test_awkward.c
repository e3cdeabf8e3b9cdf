// test_awkward.c: every public function over awkward tensors (0-d, empty, one element, overlapping,
// flipped, of every dtype, with NaN, of rank 8) and awkward numbers, evaluated where it gives
// something: no crash, no error without a text, and a context that works on.
#include "calls.h"
#include "check.h"
#include "rules_kit.h"

#include <math.h>
#include <stdlib.h>

enum { SHAPES = 17 };

// Host memory without the sizes that only a mistake asks for.
static void *capped(void *user, void *old, size_t n)
{
    (void)user;
    if (n > (size_t)1 << 28) return NULL;
    if (n) return realloc(old, n);
    free(old);
    return NULL;
}

static tn_ctx *open_capped(const char *device)
{
    tn_ctx *cx = tn_open_with(
        (tn_open_opts){ .device = device, .mem_limit = 1 << 26, .alloc = capped, .threads = 2 });
    test_that(cx != NULL, "no context: %s", tn_error_text(NULL));
    if (cx) tn_on_error(cx, NULL, NULL);
    return cx;
}

static tn_tensor *awkward(tn_ctx *cx, int i)
{
    tn_tensor *r = rules_ramp(cx, 12);
    switch (i) {
    case 0: return tn_scalar(cx, -2);
    case 1: return tn_full(cx, TN_F64, TN_0D, 1.5);
    case 2: return tn_zeros(cx, TN_F32, TN_SHAPE(0));
    case 3: return tn_zeros(cx, TN_I64, TN_SHAPE(2, 0, 3));
    case 4: return tn_full(cx, TN_F32, TN_SHAPE(1), NAN);
    case 5: return tn_full(cx, TN_I32, TN_SHAPE(1, 1), -1);
    case 6: return tn_from(cx, TN_BOOL, TN_SHAPE(3), (uint8_t[]){ 1, 0, 1 });
    case 7: return tn_flip(tn_cast(tn_slice(r, 0, 0, 4, 1), TN_I8), 0);
    case 8: return tn_expand(tn_select(r, 0, 1), TN_SHAPE(2, 3));
    case 9: return tn_window(tn_slice(r, 0, 0, 4, 1), 0, 2, 1);
    case 10: return tn_transpose(tn_view(r, TN_SHAPE(3, 4)), 0, 1);
    case 11: return tn_cast(tn_view(r, TN_SHAPE(1, 2, 2, 3)), TN_BF16);
    case 12: return tn_view(tn_slice(r, 0, 0, 2, 1), TN_SHAPE(1, 1, 1, 1, 1, 1, 1, 2));
    case 13: return tn_requires_grad(tn_view(rules_ramp(cx, 6), TN_SHAPE(2, 3)), true);
    case 14: return tn_full(cx, TN_U8, TN_SHAPE(2, 2, 2), 255);
    case 15: return tn_from(cx, TN_C64, TN_SHAPE(2, 3), (float[12]){ 1, 2, NAN, 0, -3, INFINITY });
    default: return tn_from(cx, TN_F16, TN_SHAPE(2), (uint16_t[]){ 0x7c00, 0xfc00 });  // inf, -inf
    }
}

static const int64_t ints[]  = { 0, 1, -1, 2, 3, -9, INT64_MAX, INT64_MIN, 9, 1ll << 33 };
static const double  reals[] = { 0, 1, -0.5, 1.5, NAN, INFINITY, 1e300 };

// One call in a scope of its own: it fails with a text, or what it gives can be evaluated.
static bool survives(tn_ctx *cx, const call *c, const call_args *k)
{
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *y  = calls_do(c, k);
    bool       ok = true;
    if (y && tn_eval_of(y) != TN_OK) ok = tn_error_text(cx)[0] != 0;
    if (tn_error(cx) && !tn_error_text(cx)[0]) ok = false;
    if (y && tn_count(y) < 0) ok = false;
    tn_error_clear(cx);
    tn_error_clear(NULL);
    tn_end(s);
    tn_error_clear(cx);
    return ok;
}

// Every function meets every pair of tensors, once; with the other numbers a third of the pairs,
// another one for each. `make test-long` takes all of them.
static bool is_in_sample(int a, int b, int n)
{
    return test_long() || n == 0 || (a + b + n) % 3 == 0;
}

static void every_function_with(const char *device, int from, int to)
{
    tn_ctx    *cx = open_capped(device);
    tn_tensor *x[SHAPES];
    if (!cx) return;
    for (int i = 0; i < SHAPES; i++)
        if (!test_that((x[i] = awkward(cx, i)) != NULL, "tensor %d: %s", i, tn_error_text(cx)))
            return;
    call_things has = calls_things(cx);
    tn_eval(cx);
    const call *c;
    for (int f = 0; (c = calls_at(f)); f++) {
        bool ok = true;
        for (int a = from; a < to && ok; a++)
            for (int b = 0; b < SHAPES && ok; b++)
                for (int n = 0; n < 4 && ok; n++) {
                    if (n && c->binary) break;
                    if (!is_in_sample(a, b, n)) continue;
                    unsigned  at = (unsigned)(a * 31 + b * 7 + n * 3);
                    call_args k  = { cx,
                                     x[a],
                                     x[b],
                                     ints[(at + (unsigned)n) % 10],
                                     ints[(at / 3) % 10],
                                     reals[at % 7],
                                     has };
                    if (c->unary && b) break;
                    ok = survives(cx, c, &k);
                    if (!ok) test_case_result(false, "%s, tensors %d and %d, %d", c->name, a, b, n);
                }
        if (ok) test_case_result(true, "%s", c->name);
        if (!test_that(tn_add_s(x[4], 1) != NULL, "after %s: %s", c->name, tn_error_text(cx)))
            break;
    }
    tn_close(cx);
}

static void every_function_survives_small_tensors(void)
{
    every_function_with("cpu", 0, 6);
}

static void every_function_survives_odd_strides_and_dtypes(void)
{
    every_function_with("cpu", 6, 12);
}

static void every_function_survives_high_ranks_leaves_and_infinities(void)
{
    every_function_with("cpu", 12, SHAPES);
}

static void every_function_survives_small_tensors_on_ref(void)
{
    every_function_with("ref", 0, 6);
}

static void every_function_survives_the_others_on_ref(void)
{
    every_function_with("ref", 6, SHAPES);
}

const test_case tests_awkward[] = {
    TEST(every_function_survives_small_tensors),
    TEST(every_function_survives_odd_strides_and_dtypes),
    TEST(every_function_survives_high_ranks_leaves_and_infinities),
    TEST(every_function_survives_small_tensors_on_ref),
    TEST(every_function_survives_the_others_on_ref),
    TEST_END,
};
