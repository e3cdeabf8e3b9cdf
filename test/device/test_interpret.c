// test_interpret.c: the interpreter of kernels against the definition, element by element.
//
// N rows, C columns
#include "check.h"
#include "kernel_kit.h"

#include "device/cpu/interpret.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = TNI_NO_VALUE };

// Runs a case by so many threads, with no byte of scratch to spare.
static bool interpret(kit_case *c, int threads)
{
    c->l.threads = threads;
    size_t bytes = tni_interpret_scratch(&c->l);
    char  *block = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!block) return false;
    memset(block + bytes, 0x3c, 64);
    c->l.scratch = block;
    tni_interpret(&c->l);
    bool ok = true;
    for (int i = 0; i < 64; i++) ok &= block[bytes + (size_t)i] == 0x3c;
    free(block);
    return ok;
}

// A finished case against the definition, then freed.
static void expect(kit_case *c)
{
    static char why[KIT_WHY];
    if (CHECK(kit_end(c)) && CHECK(interpret(c, 2)) && CHECK(kit_naive(c))) {
        test_that(kit_compare(c, 0, why), "%s", why);
        CHECK(c->checked > 0 && c->unknown == 0);
        CHECK_INT(c->l.fail[0], c->fail[0]);
        CHECK_INT(c->l.fail[1], c->fail[1]);
    }
    kit_free(c);
}

static void begin(kit_case *c, int64_t n, int64_t cols, bool lane_in_r)
{
    kit_begin(c, 1, &n, cols > 0, &cols, lane_in_r);
}

// ---- maps --------------------------------------------------------------------------------------

static void a_relu_chain_is_one_pass(void)
{
    static kit_case c;
    begin(&c, 100003, 0, false);
    int x = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ROW));
    for (int i = 0; i < 4; i++) {
        x = kit_map2(&c, TNI_maximum, x, kit_number(&c, TN_F32, 0));
        x = kit_map2(&c, TNI_sub, kit_map2(&c, TNI_mul, x, kit_number(&c, TN_F32, 1.5)),
                     kit_number(&c, TN_F32, 0.25));
    }
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), x);
    expect(&c);
}

static void operands_may_lie_across_and_be_broadcast(void)
{
    enum { A = 7, B = 33, D = 70 };
    static kit_case c;
    kit_begin(&c, 3, (int64_t[]){ A, B, D }, 0, NULL, false);
    int x = kit_access(&c, kit_buffer(&c, TN_F32, A * B * D, false), 0, (int64_t[]){ B, 1, A * B },
                       0);
    int y = kit_access(&c, kit_buffer(&c, TN_F32, B, false), B - 1, (int64_t[]){ 0, -1, 0 }, 0);
    int z = kit_access(&c, kit_buffer(&c, TN_BF16, D, false), 0, (int64_t[]){ 0, 0, 1 }, 0);
    int q = kit_access(&c, kit_buffer(&c, TN_F16, 2 * A * B * D, true), 1,
                       (int64_t[]){ 2, 2 * A, 2 * A * B }, 0);
    int v = kit_map2(&c, TNI_add, kit_load(&c, x), kit_load(&c, y));
    v     = kit_map2(&c, TNI_mul, v, kit_cast(&c, TN_F32, kit_load(&c, z)));
    kit_store(&c, q, v);
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), v);
    expect(&c);
}

static void narrow_integers_wrap_after_every_map(void)
{
    static kit_case c;
    begin(&c, 3000, 0, false);
    int x = kit_load(&c, kit_input(&c, TN_I8, TNI_PER_ROW));
    int y = kit_map2(&c, TNI_mul, x, kit_number(&c, TN_I8, 11));
    kit_store(&c, kit_output(&c, TN_I32, TNI_PER_ROW), y);
    kit_store(&c, kit_output(&c, TN_BOOL, TNI_PER_ROW), kit_map2(&c, TNI_lt, y, x));
    int u = kit_cast(&c, TN_U8, x);
    kit_store(&c, kit_output(&c, TN_I64, TNI_PER_ROW), kit_map1(&c, TNI_neg, u));
    expect(&c);
}

static void bools_are_0_or_1(void)
{
    static kit_case c;
    begin(&c, 2000, 0, false);
    int x = kit_load(&c, kit_input(&c, TN_BOOL, TNI_PER_ROW));
    int y = kit_load(&c, kit_input(&c, TN_BOOL, TNI_PER_ROW));
    int s = kit_map2(&c, TNI_add, x, y), n = kit_map1(&c, TNI_bit_not, x);
    kit_store(&c, kit_output(&c, TN_I32, TNI_PER_ROW), s);
    kit_store(&c, kit_output(&c, TN_BOOL, TNI_PER_ROW), n);
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), kit_map(&c, TNI_where, n, s, x));
    expect(&c);
}

static void a_store_may_go_where_a_load_came_from(void)
{
    static kit_case c;
    begin(&c, 5000, 0, false);
    int at = kit_output(&c, TN_F32, TNI_PER_ROW);
    int x = kit_load(&c, at), g = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ROW));
    int y = kit_map2(&c, TNI_sub, x, kit_map2(&c, TNI_mul, g, kit_number(&c, TN_F32, 0.1)));
    kit_store(&c, at, y);
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), x);  // the old value
    expect(&c);
}

// Two buffers of a launch can be one memory, when a result takes its operand's place.
static void two_buffers_may_be_one_memory(void)
{
    static kit_case c;
    begin(&c, 5000, 0, false);
    int x = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ROW));
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), kit_map1(&c, TNI_exp, x));
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), kit_map1(&c, TNI_neg, x));
    if (CHECK(kit_end(&c))) {
        memcpy(c.before[1], c.before[0], 5000 * sizeof(float));
        kit_reset(&c);
        c.l.buffer[0] = c.l.buffer[1];
        CHECK(interpret(&c, 1));
        static char why[KIT_WHY];
        CHECK(kit_naive(&c));
        test_that(kit_compare(&c, 0, why), "%s", why);
    }
    kit_free(&c);
}

// ---- rows --------------------------------------------------------------------------------------

static int softmax(kit_case *c, int x)
{
    int e = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, kit_reduce(c, TNI_max, x, false)));
    return kit_map2(c, TNI_div, e, kit_reduce(c, TNI_sum, e, false));
}

static void softmax_of_any_float_and_lane(void)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_BF16, TN_F16, TN_F64 };
    static const int64_t  cols[]   = { 2, 10, 300, 2500 };
    static kit_case       c;
    for (int i = 0; i < 32; i++) {
        tn_dtype dt = dtypes[i / 2 % 4], up = dt == TN_F64 ? TN_F64 : TN_F32;
        begin(&c, 67, cols[i / 8], i % 2);
        int x = kit_cast(&c, up, kit_load(&c, kit_input(&c, dt, TNI_PER_ELEM)));
        kit_store(&c, kit_output(&c, dt, TNI_PER_ELEM), softmax(&c, x));
        expect(&c);
    }
}

static void layer_norm_stores_rows_beside_elements(void)
{
    enum { C = 768 };
    static kit_case c;
    begin(&c, 40, C, true);
    int x     = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ELEM));
    int gamma = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_COL));
    int beta  = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_COL));
    int part  = kit_number(&c, TN_F32, 1.0 / C);
    int mean  = kit_map2(&c, TNI_mul, kit_reduce(&c, TNI_sum, x, false), part);
    int d     = kit_map2(&c, TNI_sub, x, mean);
    int var   = kit_reduce(&c, TNI_sum, kit_map2(&c, TNI_mul, d, d), false);
    int rstd  = kit_map1(&c, TNI_rsqrt,
                         kit_map2(&c, TNI_add, kit_map2(&c, TNI_mul, var, part),
                                  kit_number(&c, TN_F32, 1e-5)));
    int y     = kit_map2(&c, TNI_mul, kit_map2(&c, TNI_mul, d, rstd), gamma);
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ELEM), kit_map2(&c, TNI_add, y, beta));
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), mean);
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), rstd);
    expect(&c);
}

// dx of a layer norm, with dgamma and dbeta as tails.
static void a_backward_pass_has_tails(void)
{
    enum { N = 333, C = 200 };
    static kit_case c;
    for (int in_r = 0; in_r < 2; in_r++) {
        begin(&c, N, C, in_r);
        int g     = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ELEM));
        int h     = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ELEM));  // normalized x
        int rstd  = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ROW));
        int gamma = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_COL));
        int gh    = kit_map2(&c, TNI_mul, g, h);
        int a     = kit_map2(&c, TNI_mul, g, gamma);
        int part  = kit_number(&c, TN_F32, 1.0 / C);
        int s1    = kit_map2(&c, TNI_mul, kit_reduce(&c, TNI_sum, a, false), part);
        int s2 = kit_map2(&c, TNI_mul, kit_reduce(&c, TNI_sum, kit_map2(&c, TNI_mul, a, h), false),
                          part);
        int dx = kit_map2(&c, TNI_sub, kit_map2(&c, TNI_sub, a, s1), kit_map2(&c, TNI_mul, h, s2));
        kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ELEM), kit_map2(&c, TNI_mul, dx, rstd));
        kit_store(&c, kit_output(&c, TN_F32, TNI_PER_COL), kit_reduce(&c, TNI_sum, gh, true));
        int old = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_COL));
        int sum = kit_reduce(&c, TNI_sum, g, true);
        kit_store(&c, kit_output(&c, TN_BF16, TNI_PER_COL), kit_map2(&c, TNI_add, sum, old));
        expect(&c);
    }
}

static void sums_of_columns_and_of_everything(void)
{
    static kit_case c;
    for (int i = 0; i < 4; i++) {
        begin(&c, i == 2 ? 3000001 : 1500, i < 2 ? 70 : 0, i == 1);
        int per = i < 2 ? TNI_PER_ELEM : TNI_PER_ROW, to = i < 2 ? TNI_PER_COL : TNI_PER_ONE;
        int x = kit_load(&c, kit_input(&c, i == 3 ? TN_I64 : TN_F32, per));
        kit_store(&c, kit_output(&c, TN_F64, to), kit_reduce(&c, TNI_sum, x, true));
        kit_store(&c, kit_output(&c, TN_F32, to),
                  kit_map1(&c, TNI_neg, kit_reduce(&c, TNI_max, x, true)));
        expect(&c);
    }
}

// The parts of a unit that are there for the sake of many rows: chunks, groups, strips.
static void long_axes_are_cut_the_same_for_any_threads(void)
{
    static kit_case c, d;
    static char     why[KIT_WHY];
    for (int i = 0; i < 8; i++) {
        kit_case *both[2] = { &c, &d };
        for (int j = 0; j < 2; j++) {
            begin(both[j], i & 1 ? 5000 : 150, i & 1 ? 37 : 2100, i & 2);
            int x = kit_load(both[j], kit_input(both[j], TN_F32, TNI_PER_ELEM));
            int s = kit_reduce(both[j], TNI_sum, x, false);
            int y = kit_map2(both[j], TNI_mul, x, s);
            kit_store(both[j], kit_output(both[j], TN_F32, TNI_PER_COL),
                      kit_reduce(both[j], TNI_sum, i & 4 ? x : y, true));
            kit_store(both[j], kit_output(both[j], TN_F32, TNI_PER_ONE),
                      kit_reduce(both[j], TNI_sum, s, true));
            kit_store(both[j], kit_output(both[j], TN_F32, TNI_PER_ELEM), y);
            if (!CHECK(kit_end(both[j])) || !CHECK(interpret(both[j], 1 + 4 * j))) return;
        }
        test_that(kit_same(&c, &d, why), "%s", why);
        CHECK(kit_naive(&c));
        test_that(kit_compare(&c, 0, why), "%s", why);
        kit_free(&c);
        kit_free(&d);
    }
}

// ---- indices, guards, random numbers -----------------------------------------------------------

// Rows of a table by an index that one of the tests makes wrong.
static void take_rows(kit_case *c, int64_t wrong)
{
    enum { N = 300, C = 40, V = 50 };
    kit_begin(c, 2, (int64_t[]){ N, C }, 0, NULL, false);
    int index = kit_access(c, kit_buffer(c, TN_I64, N, false), 0, (int64_t[]){ 1, 0 }, 0);
    int table = kit_access(c, kit_buffer(c, TN_BF16, V * C, false), 0, (int64_t[]){ 0, 1 }, C);
    int i     = kit_check(c, kit_load(c, index), V);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_load_at(c, table, i, NONE));
    if (!CHECK(kit_end(c))) return;
    if (wrong) ((int64_t *)c->mem[0])[123] = wrong;
    kit_keep(c);
    CHECK(interpret(c, 2) && kit_naive(c));
    static char why[KIT_WHY];
    test_that(kit_compare(c, 0, why), "%s", why);
    CHECK_INT(c->l.fail[0], wrong ? 1 + i : 0);
    CHECK_INT(c->l.fail[1], wrong);
    kit_free(c);
}

static void an_index_counts_from_either_end(void)
{
    static kit_case c;
    take_rows(&c, 0);
}

static void an_index_out_of_range_is_told(void)
{
    static kit_case c;
    take_rows(&c, 50);
    take_rows(&c, -51);
    take_rows(&c, INT64_MAX);
}

static void a_guard_keeps_memory_untouched(void)
{
    enum { N = 20, C = 1500, LO = 100, HI = 1200 };
    static kit_case c;
    kit_begin(&c, 2, (int64_t[]){ N, C }, 0, NULL, false);
    int place = kit_place(&c, 0, (int64_t[]){ 0, 1 });
    int above = kit_map2(&c, TNI_ge, place, kit_number(&c, TN_I64, LO));
    int below = kit_map2(&c, TNI_lt, place, kit_number(&c, TN_I64, HI));
    int in    = kit_map2(&c, TNI_logical_and, above, below);
    int x     = kit_access(&c, kit_buffer(&c, TN_F32, N * (HI - LO), false), -LO,
                           (int64_t[]){ HI - LO, 1 }, 0);
    kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), kit_load_at(&c, x, NONE, in));
    expect(&c);
}

static void random_numbers_are_those_of_the_op(void)
{
    enum { N = 5000, FIRST = 3 };
    static const int      ops[]    = { TNI_random_bits, TNI_uniform, TNI_normal };
    static const tn_dtype dtypes[] = { TN_F32, TN_F64, TN_F16, TN_BF16 };
    static kit_case       c;
    for (int i = 0; i < 12; i++) {
        int op = ops[i / 4];
        begin(&c, N, 0, false);
        int      place = kit_place(&c, FIRST, (int64_t[]){ 1 });
        int      back  = kit_place(&c, 2 * N, (int64_t[]){ -2 });
        tn_dtype dt    = op == TNI_random_bits ? TN_I64 : dtypes[i % 4];
        int      x     = kit_random(&c, op, dt, place, 77, 0xfffffffffffffff0u);
        kit_store(&c, kit_output(&c, dt, TNI_PER_ROW), x);
        kit_store(&c, kit_output(&c, dt, TNI_PER_ROW), kit_random(&c, op, dt, back, 5, 6));
        // An element that is computed, not placed.
        int twice = kit_map2(&c, TNI_add, place, place);
        kit_store(&c, kit_output(&c, dt, TNI_PER_ROW), kit_random(&c, op, dt, twice, 5, 6));
        expect(&c);
    }
}

// ---- many --------------------------------------------------------------------------------------

static void compare_random(uint64_t seed, int flags, int64_t *checked, int64_t *unknown)
{
    static kit_case c, d;
    static char     why[KIT_WHY];
    bool            ok = kit_random_case(&c, seed, flags) && kit_random_case(&d, seed, flags);
    if (CHECK(ok) && CHECK(interpret(&c, 1)) && CHECK(kit_naive(&c))) {
        test_case_result(kit_compare(&c, 0, why), "%s", why);
        *checked += c.checked;
        *unknown += c.unknown;
        for (int threads = 2; threads <= 5; threads += 3) {
            kit_reset(&d);
            ok = interpret(&d, threads) && kit_same(&c, &d, why);
            test_that(ok, "by %d threads: %s", threads, why);
        }
    }
    kit_free(&c);
    kit_free(&d);
}

// Large ones take most of the time: of a plain run they are every eighth, of `make test-long` every
// fourth.
static void random_kernels_are_as_defined_for_any_threads(void)
{
    int64_t  checked = 0, unknown = 0;
    uint64_t large = test_long() ? 4 : 8;
    for (uint64_t seed = 0; seed < 2000; seed++)
        compare_random(seed, seed % large ? KIT_SMALL : 0, &checked, &unknown);
    CHECK(unknown < checked / 20);
}

const test_case tests_interpret[] = {
    TEST(a_relu_chain_is_one_pass),
    TEST(operands_may_lie_across_and_be_broadcast),
    TEST(narrow_integers_wrap_after_every_map),
    TEST(bools_are_0_or_1),
    TEST(a_store_may_go_where_a_load_came_from),
    TEST(two_buffers_may_be_one_memory),
    TEST(softmax_of_any_float_and_lane),
    TEST(layer_norm_stores_rows_beside_elements),
    TEST(a_backward_pass_has_tails),
    TEST(sums_of_columns_and_of_everything),
    TEST(long_axes_are_cut_the_same_for_any_threads),
    TEST(an_index_counts_from_either_end),
    TEST(an_index_out_of_range_is_told),
    TEST(a_guard_keeps_memory_untouched),
    TEST(random_numbers_are_those_of_the_op),
    TEST(random_kernels_are_as_defined_for_any_threads),
    TEST_END,
};
